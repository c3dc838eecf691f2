//! The whole report as Markdown: machine and peers, targets, one section per part, configurations.
//!
//! Knows the parts' files; the tables come from others.

use std::fmt::Write;

use super::publish::PartResults;
use super::summary::rows;
use super::table::{self, NOT_MEASURED, line, spread};
use super::targets;
use crate::parts;
use crate::peers::DIRECT;
use crate::peers::profile::difference;
use weir_measure::journal::{Record, Run, TargetRecord};

pub fn markdown(results: &[PartResults]) -> String {
    let mut text = head(results);
    text.push_str(&target_section(results));
    for part in results {
        text.push_str(&part_section(part, results));
    }
    text.push_str(&configuration_section(results));
    text
}

fn head(results: &[PartResults]) -> String {
    let Some(run) = results.first().and_then(PartResults::run) else { return String::new() };
    let machine = &run.machine;
    let kind = if machine.virtual_machine { ", a virtual machine" } else { "" };
    let seconds: f64 = results.iter().filter_map(PartResults::seconds).sum();
    let mut versions: Vec<String> = Vec::new();
    for peer in results.iter().flat_map(PartResults::peers).filter(|peer| peer.name != DIRECT) {
        let version = format!("{} ({})", peer.name, peer.version);
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    format!(
        "Measured {} on {} with {} cores, {} MiB of memory{kind}; {}, Linux {}. The load ({}), {} and the pooler \
         share these cores. All parts took {:.0} minutes.\n\n\
         Peers: {}.\n\n\
         Each figure is the median of its rounds, with the lowest and the highest in brackets. Ratios are those of one round, so \
         they may differ from the ratio of two medians.\n",
        run.date,
        machine.processor,
        machine.cores,
        machine.memory_mib,
        machine.system,
        machine.kernel,
        run.pgbench,
        results.first().and_then(PartResults::server).map_or("PostgreSQL", |server| &server.version),
        (seconds / 60.0).ceil(),
        versions.join(", "),
    )
}

fn target_section(results: &[PartResults]) -> String {
    let mut text = "\n### Targets\n\n\
        *Theirs* is PgBouncer's figure where no other peer is named. Each row comes from its part's section below, and is measured \
        again by its command.\n\n"
        .to_owned();
    let head = ["", "target", "clients", "ours", "theirs", "×", "wanted", "met", "command"].map(str::to_owned);
    text.push_str(&line(&head));
    text.push_str("|---:|---|---:|---:|---:|---:|---|---|---|\n");
    let (mut met, mut missed, mut unknown) = (0, 0, 0);
    for target in targets::all() {
        let records = results.iter().find(|part| part.name() == Some(target.part)).map(|part| rows(&part.records));
        let verdict = records.and_then(|rows| target.judge(&rows));
        let Some(figure) =
            parts::find(target.part).and_then(|part| part.figures.iter().find(|figure| figure.key == target.figure))
        else {
            continue;
        };
        let driver = target.driver.map_or(String::new(), |driver| format!(", {driver}"));
        let name = format!("{}: {}{driver}", target.what, figure.title);
        let command = format!("`make bench PART={}`", target.part);
        let number = target.number.to_string();
        let Some(verdict) = verdict else {
            unknown += 1;
            let clients = target.clients.map_or(NOT_MEASURED.to_owned(), |clients| clients.to_string());
            let dash = || NOT_MEASURED.to_owned();
            let cells =
                [number, name, clients, dash(), dash(), dash(), target.wanted(), "not measured".to_owned(), command];
            text.push_str(&line(&cells));
            continue;
        };
        if verdict.met {
            met += 1;
        } else {
            missed += 1;
        }
        let theirs = verdict.theirs.as_ref().map_or(NOT_MEASURED.to_owned(), |(peer, value)| {
            let who = if peer == crate::peers::BASELINE { String::new() } else { format!("{peer}: ") };
            format!("{who}{}", spread(Some(*value), figure.decimals))
        });
        text.push_str(&line(&[
            number,
            name,
            verdict.clients.to_string(),
            spread(Some(verdict.ours), figure.decimals),
            theirs,
            spread(verdict.ratio, 2),
            target.wanted(),
            if verdict.met { "yes" } else { "**no**" }.to_owned(),
            command,
        ]));
    }
    writeln!(text, "\n{met} met, {missed} missed, {unknown} not measured.").expect("a String takes every write");
    text
}

fn part_section(results: &PartResults, all: &[PartResults]) -> String {
    let (Some(run), Some(part)) = (results.run(), results.name().and_then(parts::find)) else { return String::new() };
    let mut text = format!("\n### {}\n\n{}\n\n", part.title, part.about);
    let seconds = results.seconds().map_or(String::new(), |seconds| format!(", {seconds:.0} s"));
    let first: Option<&Run> = all.first().and_then(PartResults::run);
    let date =
        if first.is_some_and(|first| first.date == run.date) { String::new() } else { format!(", {}", run.date) };
    write!(text, "`{}`{seconds}{date}\n\n", run.command).expect("a String takes every write");
    let rows = rows(&results.records);
    if let Some(drawing) = part.drawing.as_ref().filter(|_| !rows.is_empty()) {
        write!(text, "![{}](img/bench-{}.svg)\n\n", drawing.title, drawing.name).expect("a String takes every write");
    }
    if !rows.is_empty() {
        text.push_str(&table::table(part.figures, &rows));
    }
    let mut remarks = table::missing(&results.records);
    for record in &results.records {
        if let Record::Note(note) = record {
            writeln!(remarks, "- {}.", note.text.trim_end_matches('.')).expect("a String takes every write");
        }
    }
    if !remarks.is_empty() {
        text.push('\n');
        text.push_str(&remarks);
    }
    text
}

/// Each peer's first configuration in full, and of its others the lines that are new: mostly the same ones for all.
fn configuration_section(results: &[PartResults]) -> String {
    let mut text = "\n### Configuration\n".to_owned();
    let mut full: Vec<&TargetRecord> = Vec::new();
    let mut more: Vec<(String, String, Vec<&str>)> = Vec::new();
    for peer in results.iter().flat_map(PartResults::peers).filter(|peer| !peer.configuration.is_empty()) {
        let Some(first) = full.iter().find(|first| first.name == peer.name) else {
            full.push(peer);
            continue;
        };
        let lines = difference(&peer.configuration, &first.configuration);
        if lines.is_empty() {
            continue;
        }
        match more.iter_mut().find(|(profile, known, _)| *profile == peer.profile && *known == lines) {
            Some((_, _, names)) if names.contains(&peer.name.as_str()) => {}
            Some((_, _, names)) => names.push(&peer.name),
            None => more.push((peer.profile.clone(), lines, vec![&peer.name])),
        }
    }
    for peer in &full {
        let configuration = peer.configuration.trim_end();
        write!(text, "\n{}, {}:\n\n```ini\n{configuration}\n```\n", peer.name, peer.profile)
            .expect("a String takes every write");
    }
    for (profile, lines, names) in &more {
        let (names, lines) = (names.join(", "), lines.trim_end());
        write!(text, "\nOther lines where it says {profile} ({names}):\n\n```ini\n{lines}\n```\n")
            .expect("a String takes every write");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::BASELINE;
    use crate::report::publish::tests::results;
    use crate::report::summary::tests::sample_of;
    use weir_measure::journal::{Absent, Note, Role};

    fn peer(name: &str, profile: &str, configuration: &str) -> Record {
        let [name, profile, configuration] = [name, profile, configuration].map(str::to_owned);
        let version = format!("{name} 1.0");
        Record::Target(TargetRecord { version, name, profile, configuration, ..TargetRecord::default() })
    }

    #[test]
    fn a_report_has_targets_tables_remarks_and_configurations() {
        let sample = |peer: &str, cpu: f64| sample_of(("simple", 32), peer, 0, &[("cpu_us", cpu), ("tps", 5.0)]);
        let records = vec![
            peer(BASELINE, "plain", "a = 1\nlisten_port = 5\n"),
            peer(BASELINE, "plain", "a = 1\nlisten_port = 6\n"),
            peer(BASELINE, "TLS on both sides", "a = 1\nlisten_port = 7\ntls = 1\n"),
            sample(BASELINE, 10.0),
            sample("Weir io_uring", 7.0),
            Record::Note(Note { experiment: "speed".to_owned(), text: "a remark".to_owned(), topic: None }),
            Record::Absent(Absent {
                experiment: "speed".to_owned(),
                target: "other".to_owned(),
                series: String::new(),
                x: None,
                reason: "not there".to_owned(),
            }),
            Record::Target(TargetRecord {
                name: DIRECT.to_owned(),
                role: Role::Server,
                version: "PostgreSQL 18.6".to_owned(),
                ..TargetRecord::default()
            }),
        ];
        let text = markdown(&[results("speed", records)]);
        let missed =
            "| 1 | simple: CPU µs/transaction | 32 | 7.0 | 10.0 | 0.70 | × ≤ 0.6 | **no** | `make bench PART=speed` |";
        assert!(text.contains(missed), "{text}");
        assert!(text.contains("| simple | 32 | Weir io_uring | 7.0 | 0.70 | 5 | 1.00 |"), "{text}");
        assert!(text.contains("- Not measured: other: not there.\n- a remark.\n"), "{text}");
        assert!(text.contains("img/bench-speed.svg"), "{text}");
        assert_eq!(text.matches("a = 1").count(), 1, "{text}");
        assert!(text.contains("\nPgBouncer, plain:\n\n```ini\na = 1\n"), "{text}");
        let more = "\nOther lines where it says TLS on both sides (PgBouncer):\n\n```ini\ntls = 1\n```\n";
        assert!(text.contains(more), "{text}");
        assert!(text.contains("1 missed,"), "{text}");
        assert!(text.contains("The load (pgbench (PostgreSQL) 15.1), PostgreSQL 18.6 and the pooler"), "{text}");
        assert!(text.contains("\nPeers: PgBouncer (PgBouncer 1.0).\n"), "{text}");
    }
}
