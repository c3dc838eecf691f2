//! A part's rows as a Markdown table, and what of it is missing.
//!
//! Knows rows and figures, not how they were measured; what was not measured is a dash.

use std::fmt::Write;

use super::summary::Row;
use crate::parts::{Better, Figure};
use crate::peers::BASELINE;
use weir_measure::journal::{Absent, Record};
use weir_measure::statistics::Spread;

pub const NOT_MEASURED: &str = "–";

pub fn table(figures: &[Figure], rows: &[Row]) -> String {
    // A figure that nobody has here has no column.
    let shown: Vec<&Figure> =
        figures.iter().filter(|figure| rows.iter().any(|row| row.value(figure.key).is_some())).collect();
    let compared = rows.iter().any(|row| row.peer == BASELINE) && rows.iter().any(|row| row.peer != BASELINE);
    let has_ratio = |figure: &Figure| compared && figure.better != Better::Neither;
    let mut head = vec!["load".to_owned(), "clients".to_owned(), "peer".to_owned()];
    let mut rule = vec!["---".to_owned(), "---:".to_owned(), "---".to_owned()];
    for figure in &shown {
        head.push(figure.title.to_owned());
        rule.push("---:".to_owned());
        if has_ratio(figure) {
            head.push(format!("× {BASELINE}"));
            rule.push("---:".to_owned());
        }
    }
    let mut text = line(&head) + &line(&rule).replace(' ', "");
    for row in rows {
        let mut cells = vec![row.what.to_owned(), row.clients.to_string(), row.peer.to_owned()];
        for figure in &shown {
            cells.push(spread(row.value(figure.key), figure.decimals));
            if has_ratio(figure) {
                let ratio = if row.peer == BASELINE { None } else { row.ratio(figure.key) };
                cells.push(spread(ratio, 2));
            }
        }
        text.push_str(&line(&cells));
    }
    text
}

/// One line for each thing that is missing, with the first reason given for it.
pub fn missing(records: &[Record]) -> String {
    let mut missing: Vec<(String, &str, Vec<String>)> = Vec::new();
    for record in records {
        let Record::Absent(absent @ Absent { x, reason, .. }) = record else { continue };
        let (what, clients) = (absent.line(), x.map(|x| x.to_string()));
        match missing.iter_mut().find(|(known, ..)| *known == what) {
            Some((_, _, all)) => all.extend(clients.filter(|clients| !all.contains(clients))),
            None => missing.push((what, reason, clients.into_iter().collect())),
        }
    }
    let mut text = String::new();
    for (what, reason, clients) in missing {
        let clients = if clients.is_empty() { String::new() } else { format!(" ({} clients)", clients.join(", ")) };
        let reason = reason.trim_end_matches('.');
        writeln!(text, "- Not measured: {what}{clients}: {reason}.").expect("a String takes every write");
    }
    text
}

pub fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

pub fn spread(spread: Option<Spread>, decimals: usize) -> String {
    let Some(Spread { low, median, high, .. }) = spread else { return NOT_MEASURED.to_owned() };
    let [low, median, high] = [low, median, high].map(|value| format!("{value:.decimals$}"));
    if low == high { median } else { format!("{median} ({low}–{high})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::rows;
    use crate::report::summary::tests::sample;

    #[test]
    fn what_was_not_measured_is_a_dash_and_a_figure_of_nobody_has_no_column() {
        let figures = [Figure::lower("cpu", "CPU", 1), Figure::told("p50", "p50", 0), Figure::higher("tps", "TPS", 0)];
        let records = [
            sample("direct", 0, &[("tps", 300.0)]),
            sample("direct", 1, &[("tps", 300.0)]),
            sample(BASELINE, 0, &[("tps", 100.0), ("cpu", 10.0)]),
            sample(BASELINE, 1, &[("tps", 200.0), ("cpu", 12.0)]),
        ];
        let text = table(&figures, &rows(&records));
        assert!(
            text.starts_with("| load | clients | peer | CPU | × PgBouncer | TPS | × PgBouncer |\n|---|---:|---|"),
            "{text}"
        );
        assert!(text.contains("| simple | 8 | direct | – | – | 300 | 2.25 (1.50–3.00) |\n"), "{text}");
        assert!(text.contains("| simple | 8 | PgBouncer | 11.0 (10.0–12.0) | – | 150 (100–200) | – |\n"), "{text}");
    }

    #[test]
    fn reasons_are_said_once() {
        let absent = |clients: f64| {
            let [experiment, target, series, reason] = ["speed", "PgBouncer", "prepared", "too old"].map(str::to_owned);
            Record::Absent(Absent { experiment, series, target, x: Some(clients), reason })
        };
        let text = missing(&[absent(8.0), absent(32.0), absent(8.0)]);
        assert_eq!(text, "- Not measured: PgBouncer, prepared (8, 32 clients): too old.\n");
    }
}
