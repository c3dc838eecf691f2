//! Two runs side by side, as text: each line's peak and each place that both measured, and whether the rounds tell them apart.
//!
//! Knows chapters; does not know pages.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;

use super::chapter::{Book, Chapter};
use super::figures::{Measure, number};
use crate::dataset::{Dataset, Line};
use crate::experiment::{Better, values};
use crate::experiments;
use weir_measure::journal::{self, RESULTS, Run};
use weir_measure::statistics::Spread;

/// The second run's figures over the first's.
pub fn compare(first: &Path, second: &Path) -> Result<String> {
    let book = |directory: &Path| -> Result<Book> {
        Ok(Book::of(&journal::read(&directory.join(RESULTS))?, &experiments::by_name))
    };
    Ok(text(&book(first)?, &book(second)?, [first, second].map(|directory| directory.display().to_string())))
}

pub(super) fn text(first: &Book, second: &Book, names: [String; 2]) -> String {
    let mut text = String::new();
    for (letter, name, book) in [('A', &names[0], first), ('B', &names[1], second)] {
        let date = book.runs().next().map_or("nothing measured", |run| &run.date);
        add(&mut text, format_args!("{letter}: {} ({date})", plain(name)));
    }
    for (letter, one, other) in [('A', first, second), ('B', second, first)] {
        let alone = one.chapters.iter().filter(|chapter| chapter_of(other, chapter).is_none());
        let alone: Vec<String> = alone.map(|chapter| plain(&chapter.data.experiment)).collect();
        if !alone.is_empty() {
            add(&mut text, format_args!("Only in {letter}: {}.", alone.join(", ")));
        }
    }
    let pairs = first.chapters.iter().filter_map(|chapter| Some((chapter, chapter_of(second, chapter)?)));
    for (one, other) in pairs {
        add(&mut text, format_args!("\n{}: {}", plain(&one.data.experiment), plain(one.title())));
        for warning in warnings(&one.data, &other.data) {
            add(&mut text, format_args!("  Warning: {warning}"));
        }
        for (measure, better) in measures(one) {
            text.push_str(&table(one, other, measure, better));
        }
        let alone = alone(&one.data, &other.data);
        if !alone.is_empty() {
            add(&mut text, format_args!("  Lines of one run only: {}.", alone.join("; ")));
        }
    }
    text.push_str(
        "\nB/A is the ratio of the medians, in brackets what the 95 % intervals of both leave of it. A difference\n\
         counts when it is larger than both half widths, added as independent errors are.\n",
    );
    text
}

fn add(text: &mut String, line: std::fmt::Arguments) {
    writeln!(text, "{line}").expect("a String takes every write");
}

/// Names come from journals: a terminal is to show them, not to obey them.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

pub(super) fn chapter_of<'a>(book: &'a Book, chapter: &Chapter) -> Option<&'a Chapter> {
    book.chapters.iter().find(|other| other.data.experiment == chapter.data.experiment)
}

/// What the experiment draws first, and latency where it is drawn too; of an unknown experiment all there is.
pub(super) fn measures(chapter: &Chapter) -> Vec<(&Measure, Better)> {
    let Some(about) = chapter.about else {
        return chapter.measures.iter().map(|measure| (measure, Better::Neither)).collect();
    };
    let main = chapter.main();
    let latency = about.charts.iter().find(|chart| chart.key == values::P99_US);
    let latency = latency.and_then(|chart| Some((chapter.measure(chart.key)?, chart.better)));
    let latency = latency.filter(|(measure, _)| main.is_none_or(|(main, _)| main.key != measure.key));
    main.into_iter().chain(latency).collect()
}

/// What makes two runs hard to compare.
fn warnings(one: &Dataset, other: &Dataset) -> Vec<String> {
    let mut warnings = Vec::new();
    if let (Some(one), Some(other)) = (one.runs.last(), other.runs.last()) {
        warnings.extend(settings(one, other));
    }
    for target in &one.targets {
        let Some(same) = other.targets.iter().find(|same| same.name == target.name) else { continue };
        let name = plain(&target.name);
        if same.version != target.version {
            let [version, newer] = [&target.version, &same.version].map(|version| plain(version));
            warnings.push(format!("{name} was {version} in A and {newer} in B."));
        }
        if same.configuration != target.configuration {
            warnings.push(format!("{name} had another configuration in B."));
        }
    }
    for (letter, data) in [('A', one), ('B', other)] {
        if !data.complete {
            warnings.push(format!("{letter} was not measured to its end."));
        }
    }
    warnings
}

fn settings(one: &Run, other: &Run) -> Vec<String> {
    let machine = |run: &Run| {
        let machine = &run.machine;
        let kind = if machine.virtual_machine { ", virtual" } else { "" };
        let sizes = format!("{} cores, {} MiB{kind}", machine.cores, machine.memory_mib);
        plain(&format!("{} ({sizes}, {}, Linux {})", machine.processor, machine.system, machine.kernel))
    };
    let sizes = |run: &Run| super::page::sizes(run.sizes.as_ref());
    let pgbench = |run: &Run| plain(&run.pgbench);
    let all: [(&str, [String; 2]); 3] = [
        ("The machines differ", [machine(one), machine(other)]),
        ("The sizes differ", [sizes(one), sizes(other)]),
        ("pgbench differs", [pgbench(one), pgbench(other)]),
    ];
    let differing = all.into_iter().filter(|(_, [one, other])| one != other);
    differing.map(|(what, [one, other])| format!("{what}: {one} in A, {other} in B.")).collect()
}

fn table(one: &Chapter, other: &Chapter, measure: &Measure, better: Better) -> String {
    let head = ["line".to_owned(), plain(one.across()), "A".into(), "B".into(), "B/A".into(), String::new()];
    let mut rows = vec![head];
    for line in &one.data.lines {
        let same = other.data.line(&line.series, &line.target);
        rows.extend(same.into_iter().flat_map(|same| compared(line, same, measure, better)));
    }
    if rows.len() == 1 {
        return String::new();
    }
    let unit = if measure.unit.is_empty() { String::new() } else { format!(", {}", measure.unit) };
    format!("  {}{unit}\n{}", plain(&measure.title), aligned(&rows))
}

/// Lines that the other run does not have.
fn alone(one: &Dataset, other: &Dataset) -> Vec<String> {
    let lacking = |all: &Dataset, from: &Dataset, letter: char| {
        let lines = all.lines.iter().filter(|line| from.line(&line.series, &line.target).is_none());
        lines.map(|line| format!("{} ({letter})", plain(&line.name()))).collect::<Vec<_>>()
    };
    [lacking(one, other, 'A'), lacking(other, one, 'B')].concat()
}

/// A line's rows: its peak, wherever that was, then each place of both runs.
fn compared(one: &Line, other: &Line, measure: &Measure, better: Better) -> Vec<[String; 6]> {
    let mut rows = Vec::new();
    if let (Better::Higher, Some(peak), Some(second)) = (better, one.peak(&measure.key), other.peak(&measure.key)) {
        let at =
            if peak.x == second.x { number(peak.x) } else { format!("{} → {}", number(peak.x), number(second.x)) };
        let spreads = (peak.spread(&measure.key), second.spread(&measure.key));
        rows.extend(row(format!("{}: peak", plain(&one.name())), at, spreads, measure, better));
    }
    for place in &one.places {
        let Some(same) = other.at(place.x) else { continue };
        let spreads = (place.spread(&measure.key), same.spread(&measure.key));
        rows.extend(row(plain(&one.name()), number(place.x), spreads, measure, better));
    }
    rows
}

fn row(
    name: String,
    at: String,
    spreads: (Option<Spread>, Option<Spread>),
    measure: &Measure,
    better: Better,
) -> Option<[String; 6]> {
    let (one, other) = (spreads.0?, spreads.1?);
    let figures = [one.median, other.median].map(|value| measure.number(value));
    let [first, second] = figures;
    Some([name, at, first, second, ratio(&one, &other), verdict(&one, &other, better).to_owned()])
}

fn ratio(one: &Spread, other: &Spread) -> String {
    if one.interval.low <= 0.0 || one.median <= 0.0 {
        return "–".to_owned();
    }
    let median = number(other.median / one.median);
    if one.rounds < 2 && other.rounds < 2 {
        return median;
    }
    let (below, above) = (other.interval.low / one.interval.high, other.interval.high / one.interval.low);
    format!("{median} ({}–{})", number(below), number(above))
}

/// Of a figure that is clearly worse.
pub(super) const WORSE: &str = "worse";

pub(super) fn verdict(one: &Spread, other: &Spread, better: Better) -> &'static str {
    if one.rounds < 2 || other.rounds < 2 {
        return "one round: cannot tell";
    }
    if !one.differs(other) {
        return "within the noise";
    }
    let higher = other.median > one.median;
    match (better, higher) {
        (Better::Higher, true) | (Better::Lower, false) => "better",
        (Better::Higher, false) | (Better::Lower, true) => WORSE,
        (Better::Neither, true) => "higher",
        (Better::Neither, false) => "lower",
    }
}

/// Words to the left, figures to the right.
fn aligned(rows: &[[String; 6]]) -> String {
    let mut widths = [0; 6];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let cell = |(index, (cell, width)): (usize, (&String, &usize))| match index {
            0 | 5 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        };
        let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(cell).collect();
        add(&mut text, format_args!("    {}", cells.join("  ").trim_end()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64]) -> Spread {
        Spread::of(values.iter().copied()).unwrap()
    }

    #[test]
    fn a_difference_counts_when_it_is_beyond_both_intervals() {
        let (low, near, high) =
            (spread(&[98.0, 100.0, 102.0]), spread(&[99.0, 103.0, 104.0]), spread(&[148.0, 150.0, 152.0]));
        assert_eq!(verdict(&low, &near, Better::Higher), "within the noise");
        assert_eq!(verdict(&low, &high, Better::Higher), "better");
        assert_eq!(verdict(&low, &high, Better::Lower), "worse");
        assert_eq!(verdict(&high, &low, Better::Neither), "lower");
        assert_eq!(verdict(&low, &spread(&[900.0]), Better::Higher), "one round: cannot tell");
        assert_eq!(ratio(&low, &high), "1.50 (1.38–1.63)");
        assert_eq!(ratio(&spread(&[0.0; 3]), &high), "–");
    }

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 6]| cells.map(str::to_owned);
        let text = aligned(&[row(["line", "x", "A", "B", "B/A", ""]), row(["a", "10", "1,000", "2", "→", "better"])]);
        assert_eq!(text, "    line   x      A  B  B/A\n    a     10  1,000  2    →  better\n");
    }
}
