//! Facts and advice as a page of text, no wider than a terminal of 100 columns.
//!
//! Does not know the rules.

use super::facts::{Console, Facts, Server};
use super::rules::estimates::size;
use super::rules::{Advice, Cited};
use crate::report::figures::number;

const WIDTH: usize = 100;
const INDENT: &str = "   ";

pub fn page(facts: &Facts, advice: &[Advice]) -> String {
    let mut page = String::from("What was looked at\n");
    for line in looked_at(facts) {
        page.push_str(&wrapped(INDENT, INDENT, &line));
    }
    page.push_str("\nAdvice\n");
    if advice.is_empty() {
        page.push_str(&wrapped(
            INDENT,
            INDENT,
            "None: nothing that was seen calls for a change, or too little is known.",
        ));
    }
    let mut sources: Vec<&Cited> = Vec::new();
    for (index, advice) in advice.iter().enumerate() {
        page.push_str(&piece(index + 1, advice, &mut sources));
    }
    if !facts.unknown.is_empty() {
        page.push_str("\nNot known\n");
        for text in &facts.unknown {
            page.push_str(&wrapped(" - ", INDENT, text));
        }
    }
    if !sources.is_empty() {
        page.push_str("\nSources\n");
    }
    for (index, cited) in sources.iter().enumerate() {
        page.push_str(&wrapped(&format!(" [{}] ", index + 1), INDENT, &cited.text()));
    }
    page.push_str("\nNothing was changed.\n");
    page
}

/// Sources are numbered over the whole page: many pieces share them.
fn piece<'a>(number: usize, advice: &'a Advice, sources: &mut Vec<&'a Cited>) -> String {
    let mut text = wrapped(&format!("{number:>2}. "), "    ", &advice.what);
    let mut part =
        |label: &str, value: &str| text.push_str(&wrapped(&format!("    {label:<9}"), &" ".repeat(13), value));
    if let Some(setting) = &advice.set {
        part("Set", &format!("{}: {}", setting.name, setting.value));
    }
    part("Why", &advice.reason);
    let mut numbers = Vec::new();
    for cited in &advice.sources {
        let known = sources.iter().position(|source| *source == cited).unwrap_or_else(|| {
            sources.push(cited);
            sources.len() - 1
        });
        numbers.push(format!("[{}]", known + 1));
    }
    part("Sources", &numbers.join(" "));
    part("How sure", advice.sure.words());
    text.push('\n');
    text
}

fn looked_at(facts: &Facts) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(facts.server.as_ref().map(server));
    let machine = &facts.machine;
    let parts: Vec<String> = [
        machine.cores.map(|cores| format!("{} core{}", number(cores), if cores == 1.0 { "" } else { "s" })),
        machine.memory_mib.map(|mib| format!("{} of memory", size(mib))),
        machine.busy_percent.map(|busy| format!("{} % busy meanwhile", number(busy.round()))),
        machine.server_percent.map(|server| format!("{} % by this server", number(server.round()))),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !parts.is_empty() {
        lines.push(format!("Its machine: {} ({}).", parts.join(", "), machine.origin));
    }
    lines.extend(facts.console.as_ref().map(console));
    if !facts.runs.directory.is_empty() {
        lines.push(format!("The run in {}: {}.", facts.runs.directory, facts.runs.experiments.join(", ")));
    }
    lines
}

fn server(server: &Server) -> String {
    let typical = |of: fn(&super::facts::Moment) -> f64| number(server.typical(of));
    let mut text = format!(
        "{} at {}{}, for {:.1} s: {} connections open, {} at work, {} idle, {} idle in a transaction",
        server.version,
        server.url,
        if server.in_recovery { " (a standby)" } else { "" },
        server.seconds,
        typical(|moment| moment.open),
        typical(|moment| moment.active),
        typical(|moment| moment.idle),
        typical(|moment| moment.idle_in_transaction),
    );
    if let Some(rate) = server.rates.transactions {
        text.push_str(&format!(", {} transactions per second", number(rate)));
    }
    if let Some(most) = server.settings.max_connections {
        text.push_str(&format!("; max_connections is {}", number(most)));
    }
    text + "."
}

fn console(console: &Console) -> String {
    let sum = |of: fn(&super::facts::Pool) -> f64| number(console.pools.iter().map(of).sum());
    format!(
        "{} at {}, twice within {:.1} s: {} pools, {} clients waiting in both looks, {} servers in use, {} idle.",
        console.version,
        console.url,
        console.seconds,
        console.pools.len(),
        sum(|pool| pool.waiting_always),
        sum(|pool| pool.servers_active),
        sum(|pool| pool.servers_idle_always),
    )
}

/// Words in lines of the width; a word that is wider has a line of its own. Names come from servers and poolers, and a
/// terminal obeys control characters.
fn wrapped(first: &str, others: &str, text: &str) -> String {
    let text: String = text.chars().filter(|letter| !letter.is_control() || letter.is_whitespace()).collect();
    let mut lines = String::new();
    let mut line = first.to_owned();
    let mut begun = false;
    for word in text.split_whitespace() {
        if begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(line.trim_end());
            lines.push('\n');
            others.clone_into(&mut line);
            begun = false;
        }
        if begun {
            line.push(' ');
        }
        line.push_str(word);
        begun = true;
    }
    lines + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::rules::{self, samples};

    #[test]
    fn pages_are_no_wider_than_a_terminal() {
        for facts in samples::all() {
            let page = page(&facts, &rules::all(&facts));
            for line in page.lines() {
                let unbroken = line.split_whitespace().count() <= 1;
                assert!(line.chars().count() <= WIDTH || unbroken, "{line}");
            }
            assert!(page.ends_with("Nothing was changed.\n"));
        }
    }

    #[test]
    fn names_cannot_steer_a_terminal() {
        let mut facts = samples::full_pool();
        facts.console.as_mut().unwrap().pools[0].database = "\u{1b}[2Jshop\u{7}".to_owned();
        let page = page(&facts, &rules::all(&facts));
        assert!(page.contains("[2Jshop/app") && !page.contains('\u{1b}') && !page.contains('\u{7}'), "{page}");
    }

    #[test]
    fn a_page_of_nothing_says_so() {
        assert!(page(&Facts::default(), &[]).contains("None: nothing that was seen"));
    }

    #[test]
    fn a_page_says_what_was_looked_at_and_what_to_set() {
        let facts = samples::full_pool();
        let page = page(&facts, &rules::all(&facts));
        assert!(page.contains("Weir 0.1.0 at postgres://db:6432/pgbouncer, twice within 5.0 s: 1 pools"), "{page}");
        assert!(page.contains(" 1. Raise the pool of shop/app from 8 to about 16"), "{page}");
        assert!(page.contains("    Set      pool_size: 16\n"), "{page}");
        assert!(
            page.contains("    Sources  [1]\n") && page.contains("\n [1] the console postgres://db:6432"),
            "{page}"
        );
    }
}
