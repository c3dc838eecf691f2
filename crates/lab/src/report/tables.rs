//! An experiment's figures, errors, doubts, commands and targets as tables and lists of the page.
//!
//! Knows a chapter; whatever is wider than the page scrolls in a box of its own.

use maud::{Markup, html};

use super::chapter::Chapter;
use super::figures::{Measure, counted, number};
use super::plot::has_errors;
use super::section::place_name;
use crate::dataset::{Line, Place};
use crate::experiment::{About, Better, Published, values};
use weir_measure::journal::Absent;

/// A table in a box that scrolls by itself, by the keyboard too.
pub fn boxed(label: &str, table: &Markup) -> Markup {
    html! { div.scroll tabindex="0" role="region" aria-label=(label) { (table) } }
}

/// A cell beside a model's: the most that a line did, and where.
pub fn measured_peak(line: &Line, measure: &Measure) -> Markup {
    let peak = line.peak(values::TPS).and_then(|place| Some((place.x, place.median(values::TPS)?)));
    html! { td { @if let Some((x, value)) = peak { (measure.number(value)) small { "at " (number(x)) } } } }
}

/// A cell beside a model's knee.
pub fn measured_knee(line: &Line) -> Markup {
    html! { td { @if let Some(knee) = line.knee(values::TPS) { (number(knee)) } } }
}

/// Each line in one row: where it begins, its best, where it ends, and what it cost there.
pub fn highlights(chapter: &Chapter) -> Markup {
    let Some((main, better)) = chapter.main() else { return html! {} };
    let beside: Vec<&Measure> = chapter
        .about
        .map(|about| about.charts)
        .unwrap_or_default()
        .iter()
        .skip(1)
        .filter_map(|chart| chapter.measure(chart.key))
        .collect();
    let lines = || chapter.data.lines.iter().filter(|line| line.peak(&main.key).is_some());
    let best = if better == Better::Lower { "Lowest" } else { "Highest" };
    let head = |name: &str, unit: &str| html! { th scope="col" { (name) @if !unit.is_empty() { small { (unit) } } } };
    let table = html! { table {
        thead { tr {
            th scope="col" { "Line" }
            (head("First", &main.unit)) (head(best, &main.unit)) (head("Last", &main.unit))
            @for measure in &beside { (head(&measure.title, &measure.unit)) }
            th scope="col" { "Errors" small { "in all rounds" } }
        } }
        tbody { @for line in lines() { (highlight(line, main, better, &beside)) } }
    } };
    html! {
        h3 { "In short: " (main.title) }
        @if !beside.is_empty() { p.faint { "The columns beside it are those of where it was " (best.to_lowercase()) "." } }
        (boxed("Each line's first, best and last figures", &table))
    }
}

fn highlight(line: &Line, main: &Measure, better: Better, beside: &[&Measure]) -> Markup {
    let curve = line.curve(&main.key);
    let of_value = |one: &&(f64, f64), other: &&(f64, f64)| one.1.total_cmp(&other.1);
    let best = if better == Better::Lower { curve.iter().min_by(of_value) } else { curve.iter().max_by(of_value) };
    let cell = |point: Option<&(f64, f64)>| {
        html! {
            td { @if let Some((x, value)) = point { (main.number(*value)) small { "at " (number(*x)) } } }
        }
    };
    let place = best.and_then(|(x, _)| line.at(*x));
    let errors: u64 = line.places.iter().flat_map(|place| place.errors.values()).sum();
    html! { tr {
        th scope="row" { (line.name()) }
        (cell(curve.first())) (cell(best)) (cell(curve.last()))
        @for measure in beside { td { @if let Some(value) = place.and_then(|place| place.median(&measure.key)) { (measure.number(value)) } @else { "–" } } }
        td { @if errors == 0 { "0" } @else { span.bad { (whole(errors)) } } }
    } }
}

#[allow(clippy::cast_precision_loss)]
fn whole(count: u64) -> String {
    number(count as f64)
}

/// Every place with every value.
pub fn all(chapter: &Chapter) -> Markup {
    let places: usize = chapter.data.lines.iter().map(|line| line.places.len()).sum();
    if places == 0 {
        return html! {};
    }
    let table = html! { table {
        thead { tr {
            th scope="col" { "Line" }
            th scope="col" { (capitalised(chapter.across())) }
            th scope="col" { "Rounds" }
            @for measure in &chapter.measures { th scope="col" { (measure.title) @if !measure.unit.is_empty() { small { (measure.unit) } } } }
            th scope="col" { "Errors" small { "in all rounds" } }
        } }
        @for line in &chapter.data.lines { tbody.line { @for place in &line.places { (row(chapter, line, place)) } } }
    } };
    html! {
        details open[chapter.about.is_none()] {
            summary { "All figures (" (counted(places as u64, "place", "places")) ")" }
            p.faint { "Medians of the rounds, with their 95 % intervals below where there were several. "
                span.doubt { "?" } " is doubtful, " span.bad { "×" } " had errors." }
            (boxed("All figures", &table))
        }
    }
}

fn row(chapter: &Chapter, line: &Line, place: &Place) -> Markup {
    let rounds = place.values.values().map(Vec::len).max().unwrap_or_default();
    let errors: u64 = place.errors.values().sum();
    html! { tr {
        th scope="row" { (line.name()) }
        td {
            (number(place.x))
            @if !place.doubts.is_empty() { " " span.doubt title="doubtful" { "?" } }
            @if has_errors(place) { " " span.bad title="with errors" { "×" } }
        }
        td { (rounds) }
        @for measure in &chapter.measures { td { (value(place, measure)) } }
        td { (whole(errors)) }
    } }
}

fn value(place: &Place, measure: &Measure) -> Markup {
    let Some(spread) = place.spread(&measure.key) else { return html! { "–" } };
    let interval = spread.interval;
    let several = spread.rounds > 1 && interval.low < interval.high;
    html! { (measure.number(spread.median)) @if several { small { (measure.number(interval.low)) " – " (measure.number(interval.high)) } } }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// By kind, the most frequent first, with where they came.
pub fn errors(chapter: &Chapter) -> Markup {
    let mut kinds: Vec<(&str, u64, Vec<String>)> = Vec::new();
    for line in &chapter.data.lines {
        for place in &line.places {
            for (kind, count) in place.errors.iter().filter(|(_, count)| **count > 0) {
                let at = format!("{} at {}: {}", line.name(), place_name(chapter, place.x), whole(*count));
                match kinds.iter_mut().find(|(known, _, _)| known == kind) {
                    Some((_, sum, places)) => {
                        *sum += count;
                        places.push(at);
                    }
                    None => kinds.push((kind, *count, vec![at])),
                }
            }
        }
    }
    kinds.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    let table = html! { table.errors {
        thead { tr { th scope="col" { "Count" } th.words scope="col" { "Error, and where it came" } } }
        tbody { @for (kind, count, places) in &kinds {
            tr { td.bad { (whole(*count)) } td.words { (kind) small { (places.join("; ")) } } }
        } }
    } };
    html! { @if !kinds.is_empty() { h3 { "Errors, by kind" } (boxed("Errors by kind", &table)) } }
}

pub fn doubts(chapter: &Chapter) -> Markup {
    let mut doubts: Vec<(&str, Vec<String>)> = Vec::new();
    for line in &chapter.data.lines {
        for place in &line.places {
            for doubt in &place.doubts {
                let at = format!("{} at {}", line.name(), place_name(chapter, place.x));
                match doubts.iter_mut().find(|(known, _)| known == doubt) {
                    Some((_, places)) => places.push(at),
                    None => doubts.push((doubt, vec![at])),
                }
            }
        }
    }
    html! { @if !doubts.is_empty() {
        h3 { "Doubtful figures" }
        ul { @for (doubt, places) in doubts { li { (doubt) " " span.faint { "(" (places.join("; ")) ")" } } } }
    } }
}

pub fn absent(chapter: &Chapter) -> Markup {
    let name = |absent: &Absent| {
        let line = Line { series: absent.series.clone(), target: absent.target.clone(), places: Vec::new() }.name();
        absent.x.map_or(line.clone(), |x| format!("{line} at {}", place_name(chapter, x)))
    };
    html! { @if !chapter.data.absent.is_empty() {
        h3 { "Not measured" }
        ul { @for absent in &chapter.data.absent { li { (name(absent)) ": " (absent.reason) } } }
    } }
}

/// What the source measured, in its own figures.
pub fn published(about: &About) -> Markup {
    if about.published.is_empty() {
        return html! {};
    }
    let mut keys: Vec<&str> = about.published.iter().map(|published| published.key).collect();
    keys.dedup();
    html! {
        details {
            summary { "What the source published" }
            p.faint { "On other machines, with other versions: their shape can be compared with ours, their size cannot." }
            @for key in keys {
                @let of_key: Vec<&Published> = about.published.iter().filter(|published| published.key == key).collect();
                (published_table(about, key, &of_key))
            }
        }
    }
}

fn published_table(about: &About, key: &str, published: &[&Published]) -> Markup {
    let mut xs: Vec<f64> = published.iter().flat_map(|published| published.points).map(|(x, _)| *x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let measure = Measure::of(key, about.charts, 0.0);
    let value =
        |published: &Published, x: f64| published.points.iter().find(|(at, _)| *at == x).map(|(_, value)| *value);
    let table = html! { table {
        thead { tr {
            th scope="col" { (capitalised(about.axis.label)) }
            @for published in published { th scope="col" { (published.name) small { (published.setting) } } }
        } }
        tbody { @for x in xs { tr {
            th scope="row" { (number(x)) }
            @for published in published { td { @if let Some(value) = value(published, x) { (measure.number(value)) } @else { "–" } } }
        } } }
    } };
    html! {
        h4 { (measure.title) @if !measure.unit.is_empty() { ", " (measure.unit) } }
        (boxed("Published figures", &table))
    }
}

pub fn commands(chapter: &Chapter) -> Markup {
    let lines = || chapter.data.lines.iter().filter(|line| line.places.iter().any(|place| !place.commands.is_empty()));
    if chapter.data.runs.is_empty() && lines().next().is_none() {
        return html! {};
    }
    html! {
        details {
            summary { "The exact commands" }
            @for run in &chapter.data.runs { p.faint { "Run of " (run.date) ", with " (run.pgbench) ":" } pre { (run.command) } }
            @for line in lines() {
                h4 { (line.name()) }
                pre { @for place in &line.places {
                    "# " (place_name(chapter, place.x)) "\n"
                    @for command in &place.commands { (command) "\n" }
                } }
            }
            @for (name, text) in &chapter.data.scripts { h4 { "The script " (name) } pre { (text) } }
        }
    }
}

pub fn targets(chapter: &Chapter) -> Markup {
    html! { @if !chapter.data.targets.is_empty() {
        details {
            summary { "What was measured: versions and configuration" }
            @for target in &chapter.data.targets {
                h4 { (target.name) }
                p.facts-of {
                    (target.version) br; code { (target.url) } br;
                    @if target.local { "On this machine: the CPU and memory of its processes were read." }
                    @else { "Not seen from inside: the CPU and memory of its processes are unknown." }
                }
                @if !target.configuration.is_empty() { pre { (target.configuration) } }
            }
        }
    } }
}
