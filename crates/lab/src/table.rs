//! The report as Markdown: machine, peers, tables, and what is absent.
//!
//! Knows rows, not how they were measured; what was not measured is not written.

use std::fmt::Write;

use crate::record::{Absent, Idle, Mode, Record, Run};
use crate::summary::{BASELINE, Row, Spread, to_f64};

const KIB_PER_MIB: f64 = 1024.0;
const NOT_MEASURED: &str = "–";

pub fn markdown(run: &Run, rows: &[Row], records: &[Record]) -> String {
    let mut text = String::new();
    text.push_str(&head(run));
    for mode in Mode::ALL {
        let of_mode: Vec<&Row> = rows.iter().filter(|row| row.mode == mode).collect();
        if !of_mode.is_empty() {
            text.push_str(&mode_section(mode, &of_mode));
        }
    }
    text.push_str(&idle_section(records));
    text.push_str(&absent_section(records));
    text.push_str(&configuration_section(run));
    text
}

fn head(run: &Run) -> String {
    let machine = &run.machine;
    let kind = if machine.virtual_machine { ", a virtual machine" } else { "" };
    let versions: Vec<String> = run.peers.iter().map(|peer| format!("{} ({})", peer.name, peer.version)).collect();
    format!(
        "Measured {} on {} with {} cores, {} MiB of memory{kind}; {}, Linux {}. pgbench, PostgreSQL and the pooler share \
         these cores.\n\n\
         Peers: {}.\n\n\
         Each figure is the median of {} round{} of {} s{}. Ratios are to {BASELINE} in the same round.\n\n\
         ```\n{}\n{}\n```\n",
        run.date,
        machine.processor,
        machine.cores,
        machine.memory_mib,
        machine.system,
        machine.kernel,
        versions.join(", "),
        run.rounds,
        if run.rounds == 1 { "" } else { "s" },
        run.seconds,
        if run.rounds == 1 { "" } else { ", with the lowest and highest round in brackets" },
        run.command,
        run.pgbench_command,
    )
}

fn mode_section(mode: Mode, rows: &[&Row]) -> String {
    let title = match mode {
        Mode::Simple => "Simple protocol",
        Mode::Extended => "Extended protocol",
        Mode::Prepared => "Prepared statements",
        Mode::Connect => "One connection per transaction (`pgbench -C`)",
    };
    let latency = if mode == Mode::Connect { ("", "") } else { (" p50 µs | p99 µs |", "---:|---:|") };
    let mut text = format!(
        "\n### {title}\n\n\
         | clients | peer | CPU µs/transaction | × {BASELINE} | TPS | × {BASELINE} |{} RSS MiB | PSS MiB | private dirty MiB |\n\
         |---:|---|---:|---:|---:|---:|{}---:|---:|---:|\n",
        latency.0, latency.1
    );
    for row in rows {
        let mut cells = vec![
            row.clients.to_string(),
            row.peer.clone(),
            spread(row.cpu_us, 1),
            ratio(row.cpu_ratio),
            spread(Some(row.tps), 0),
            ratio(row.tps_ratio),
        ];
        if mode != Mode::Connect {
            cells.extend([spread(row.p50_us, 0), spread(row.p99_us, 0)]);
        }
        cells.extend([row.rss_kib, row.pss_kib, row.private_dirty_kib].map(mib));
        text.push_str(&line(&cells));
    }
    text
}

fn idle_section(records: &[Record]) -> String {
    let idles: Vec<&Idle> =
        records.iter().filter_map(|record| if let Record::Idle(idle) = record { Some(idle) } else { None }).collect();
    if idles.is_empty() {
        return String::new();
    }
    let mut text = "\n### Memory with idle clients\n\n\
        A freshly started pooler, before and after that many clients have logged in and said nothing more.\n\n\
        | clients | peer | PSS MiB before | PSS MiB after | private dirty MiB after | private dirty KiB per client |\n\
        |---:|---|---:|---:|---:|---:|\n"
        .to_owned();
    for idle in idles {
        let grown_kib = to_f64(idle.after.private_dirty_kib) - to_f64(idle.before.private_dirty_kib);
        let cells = [
            idle.clients.to_string(),
            idle.peer.clone(),
            format!("{:.1}", to_f64(idle.before.pss_kib) / KIB_PER_MIB),
            format!("{:.1}", to_f64(idle.after.pss_kib) / KIB_PER_MIB),
            format!("{:.1}", to_f64(idle.after.private_dirty_kib) / KIB_PER_MIB),
            format!("{:.2}", grown_kib / to_f64(idle.clients as u64)),
        ];
        text.push_str(&line(&cells));
    }
    text
}

/// One line for each thing that is missing, with the first reason given for it.
fn absent_section(records: &[Record]) -> String {
    let mut missing: Vec<(&str, &str, Vec<String>)> = Vec::new();
    for record in records {
        let Record::Absent(Absent { what, clients, reason, .. }) = record else { continue };
        let clients = clients.map(|clients| clients.to_string());
        match missing.iter_mut().find(|(known, ..)| known == what) {
            Some((_, _, all)) => all.extend(clients.filter(|clients| !all.contains(clients))),
            None => missing.push((what, reason, clients.into_iter().collect())),
        }
    }
    if missing.is_empty() {
        return String::new();
    }
    let mut text = "\n### Not measured\n\n".to_owned();
    for (what, reason, clients) in missing {
        let clients = if clients.is_empty() { String::new() } else { format!(" ({} clients)", clients.join(", ")) };
        let reason = reason.trim_end_matches('.');
        writeln!(text, "- {what}{clients}: {reason}.").expect("a String takes every write");
    }
    text
}

fn configuration_section(run: &Run) -> String {
    let mut text = "\n### Configuration\n".to_owned();
    for peer in run.peers.iter().filter(|peer| !peer.configuration.is_empty()) {
        let configuration = peer.configuration.trim_end();
        write!(text, "\n{}:\n\n```ini\n{configuration}\n```\n", peer.name).expect("a String takes every write");
    }
    text
}

fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn mib(kib: Option<Spread>) -> String {
    kib.map_or_else(|| NOT_MEASURED.to_owned(), |kib| format!("{:.1}", kib.median / KIB_PER_MIB))
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| NOT_MEASURED.to_owned(), |ratio| format!("{ratio:.2}"))
}

fn spread(spread: Option<Spread>, decimals: usize) -> String {
    match spread {
        None => NOT_MEASURED.to_owned(),
        Some(Spread { median, min, max }) if min == max => format!("{median:.decimals$}"),
        Some(Spread { median, min, max }) => format!("{median:.decimals$} ({min:.decimals$}–{max:.decimals$})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::rows;
    use crate::summary::tests::{run_of, sample};

    #[test]
    fn what_was_not_measured_is_a_dash_or_no_row_and_its_reason_is_said() {
        let run = run_of(2, &["direct", "PgBouncer"]);
        let absent = |clients: usize| {
            let (what, reason) = ("PgBouncer, prepared".to_owned(), "too old".to_owned());
            Record::Absent(Absent { what, clients: Some(clients), reason, failure: false })
        };
        let records = [
            sample("direct", 0, 300.0, None),
            sample("direct", 1, 300.0, None),
            sample("PgBouncer", 0, 100.0, Some(10.0)),
            sample("PgBouncer", 1, 200.0, Some(12.0)),
            absent(8),
            absent(32),
            absent(8),
        ];
        let text = markdown(&run, &rows(&run, &records), &records);
        assert!(text.contains("| 8 | direct | – | – | 300 | 2.25 | – | – | – | – | – |\n"), "{text}");
        assert!(text.contains("| 8 | PgBouncer | 11.0 (10.0–12.0) | 1.00 | 150 (100–200) | 1.00 |"), "{text}");
        assert!(text.contains("- PgBouncer, prepared (8, 32 clients): too old.\n"), "{text}");
        assert!(!text.contains("### Prepared") && !text.contains("### Memory"), "{text}");
    }
}
