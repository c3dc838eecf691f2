//! What several experiments say of their figures in the same way: peaks, differences, errors, doubts, each as a sentence.
//!
//! A sentence is made only of figures that are there. Knows lines and places; does not know any one experiment.

use crate::dataset::{Dataset, Line, Place};
use crate::experiment::{Finding, FindingKind, values};
use crate::report::figures::number;
use weir_measure::journal::Role;

/// What part of the best throughput is as good as the best: less than rounds differ.
pub const AS_GOOD_AS_BEST: f64 = 0.98;
/// A line that is as good as its best at so many times fewer clients has a plateau.
const PLATEAU_FACTOR: f64 = 2.0;
/// With one round each, a smaller difference says nothing: on a virtual machine two runs of 2 s differ by as much.
const CLEAR_OF_ONE_ROUND: f64 = 0.20;
/// Nobody sets anything differently for less.
const CLEAR_OF_ROUNDS: f64 = 0.03;
/// An interval that reaches further than this part of the median to either side is worth a warning.
const WIDE_HALF: f64 = 0.15;
/// So many doubts are named; the points have them all.
const DOUBTS_MAX: usize = 4;

pub fn shows(text: impl Into<String>) -> Finding {
    Finding::new(FindingKind::Shows, text)
}

pub fn source(text: impl Into<String>) -> Finding {
    Finding::new(FindingKind::Source, text)
}

pub fn advice(text: impl Into<String>) -> Finding {
    Finding::new(FindingKind::Advice, text)
}

pub fn caution(text: impl Into<String>) -> Finding {
    Finding::new(FindingKind::Caution, text)
}

/// Three digits, since no measurement here repeats better.
pub fn about(value: f64) -> String {
    let size = value.abs();
    if size < 1_000.0 || !size.is_finite() {
        return number(value);
    }
    let unit = 10f64.powf(size.log10().floor() - 2.0);
    number((value / unit).round() * unit)
}

pub fn tps(value: f64) -> String {
    format!("{} TPS", about(value))
}

pub fn time(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{} µs", number(us.round())),
        us if us < 1_000_000.0 => format!("{} ms", about(us / 1_000.0)),
        us => format!("{} s", about(us / 1_000_000.0)),
    }
}

pub fn percent(part: f64) -> String {
    let value = part * 100.0;
    if value.abs() < 10.0 && value.fract().abs() > 0.05 { format!("{value:.1} %") } else { format!("{value:.0} %") }
}

/// `1 client`, `64 clients`.
pub fn of(x: f64, one: &str, many: &str) -> String {
    format!("{} {}", number(x), if x == 1.0 { one } else { many })
}

pub fn clients(x: f64) -> String {
    of(x, "client", "clients")
}

pub fn float(count: usize) -> f64 {
    weir_measure::statistics::place(count)
}

/// `a, b and c`.
pub fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The cores of the machine that the last run was on; 0 where no run says, or where what was measured has others.
pub fn cores(data: &Dataset) -> usize {
    let all_here = data.targets.iter().all(|target| target.local);
    data.runs.last().filter(|_| all_here).map_or(0, |run| run.machine.cores)
}

/// How one median stands to another, and whether that is more than chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    pub ratio: f64,
    pub clear: bool,
}

impl Change {
    pub fn of(from: &Place, to: &Place, key: &str) -> Option<Change> {
        let (from, to) = (from.spread(key)?, to.spread(key)?);
        if from.median <= 0.0 {
            return None;
        }
        let ratio = to.median / from.median;
        let apart = from.differs(&to);
        let repeated = from.rounds > 1 && to.rounds > 1;
        let clear = if repeated {
            apart && (ratio - 1.0).abs() >= CLEAR_OF_ROUNDS
        } else {
            (ratio - 1.0).abs() >= CLEAR_OF_ONE_ROUND
        };
        Some(Change { ratio, clear })
    }

    /// What is kept, where more than all of it would be luck.
    pub fn kept(&self) -> f64 {
        self.ratio.min(1.0)
    }

    pub fn is_less(&self) -> bool {
        self.clear && self.ratio < 1.0
    }

    pub fn is_more(&self) -> bool {
        self.clear && self.ratio > 1.0
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self.ratio {
            _ if !self.clear => formatter.write_str("about the same"),
            ratio if ratio >= 2.0 => write!(formatter, "{ratio:.1} times as much"),
            ratio if ratio >= 1.0 => write!(formatter, "{} more", percent(ratio - 1.0)),
            ratio => write!(formatter, "{} less", percent(1.0 - ratio)),
        }
    }
}

/// Where throughput is best on a line over clients.
#[derive(Clone, Copy, Debug)]
pub struct Peak<'a> {
    pub place: &'a Place,
    pub tps: f64,
    /// The smallest number of clients with nearly as much.
    pub enough: f64,
    /// It is at the end of the line and no plateau before it: it may go on rising.
    pub open: bool,
}

impl Peak<'_> {
    pub fn of(line: &Line) -> Option<Peak<'_>> {
        let place = line.peak(values::TPS)?;
        let tps = place.median(values::TPS)?;
        if tps <= 0.0 {
            return None;
        }
        let curve = line.curve(values::TPS);
        let enough = curve.iter().find(|(_, value)| *value >= AS_GOOD_AS_BEST * tps).map_or(place.x, |(x, _)| *x);
        let open = curve.last().is_some_and(|(last, _)| *last == place.x && enough * PLATEAU_FACTOR > *last);
        Some(Peak { place, tps, enough, open })
    }
}

/// Peak throughput, its clients, latency, CPU and memory, and what came past it.
pub fn peak(line: &Line) -> Option<Finding> {
    peak_over(line, &clients)
}

/// The same where what varies is called otherwise.
pub fn peak_over(line: &Line, named: &dyn Fn(f64) -> String) -> Option<Finding> {
    let peak = Peak::of(line)?;
    let mut text = format!("{}: throughput peaks at {} with {}", line.name(), tps(peak.tps), named(peak.place.x));
    let beside = beside(peak.place);
    if !beside.is_empty() {
        text.push_str(&format!(" ({})", beside.join(", ")));
    }
    text.push('.');
    if peak.enough < peak.place.x {
        text.push_str(&format!(
            " {} already reach {} of that.",
            sentence_start(&named(peak.enough)),
            percent(AS_GOOD_AS_BEST)
        ));
    }
    if peak.open && line.places.len() > 1 {
        text.push_str(" Nothing was measured beyond, so the peak may lie further on.");
    } else if let Some(past) = past(line, &peak, named) {
        text.push_str(&past);
    }
    Some(shows(text))
}

/// What else was measured at a place.
fn beside(place: &Place) -> Vec<String> {
    let mut parts = Vec::new();
    match (place.median(values::P50_US), place.median(values::P99_US)) {
        (Some(p50), Some(p99)) => parts.push(format!("median latency {}, 99th percentile {}", time(p50), time(p99))),
        (Some(p50), None) => parts.push(format!("median latency {}", time(p50))),
        _ => {}
    }
    if let Some(cpu) = place.median(values::BOX_CPU_PERCENT) {
        parts.push(format!("the machine's CPU {} busy", percent(cpu / 100.0)));
    }
    if let Some(cores) = place.median(values::POOLER_CORES) {
        parts.push(format!("the pooler at {} of a core", number((cores * 100.0).round() / 100.0)));
    }
    if let (Some(memory), Some(tables)) =
        (place.median(values::SERVER_MIB), place.median(values::SERVER_PAGE_TABLES_MIB))
    {
        parts.push(format!("{} MiB of private memory and page tables in the server", about(memory + tables)));
    }
    parts
}

fn past(line: &Line, peak: &Peak, named: &dyn Fn(f64) -> String) -> Option<String> {
    let last = line.places.iter().rfind(|place| place.x > peak.place.x && place.median(values::TPS).is_some())?;
    let change = Change::of(peak.place, last, values::TPS)?;
    let latency = match (peak.place.median(values::P99_US), last.median(values::P99_US)) {
        (Some(before), Some(after)) => {
            format!(", with a 99th percentile of {} instead of {}", time(after), time(before))
        }
        _ => String::new(),
    };
    Some(format!(" With {} it is {change}{latency}.", named(last.x)))
}

fn sentence_start(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Each pooler's line with that of the server behind it.
pub fn pairs(data: &Dataset) -> Vec<(&Line, &Line)> {
    let mut pairs = Vec::new();
    for pooled in data.lines.iter().filter(|line| data.role_of(line) == Role::Pooler) {
        let serves = |line: &&Line| {
            line.series == pooled.series
                && data.role_of(line) == Role::Server
                && data.major_of(line) == data.major_of(pooled)
        };
        if let Some(direct) = data.lines.iter().find(serves) {
            pairs.push((direct, pooled));
        }
    }
    pairs
}

/// What each pooler changed at the peak, and with the most clients that both were given.
pub fn poolers(data: &Dataset) -> Vec<Finding> {
    pairs(data).into_iter().filter_map(|(direct, pooled)| pooler(direct, pooled)).map(shows).collect()
}

fn pooler(direct: &Line, pooled: &Line) -> Option<String> {
    let (without, with) = (Peak::of(direct)?, Peak::of(pooled)?);
    let change = Change::of(without.place, with.place, values::TPS)?;
    let mut text =
        format!("Through {} the best is {}, directly {}: {change}.", pooled.name(), tps(with.tps), tps(without.tps));
    let common = direct.places.iter().rev().find_map(|place| Some((place, pooled.at(place.x)?)));
    if let Some((from, to)) = common.filter(|(from, _)| from.x > without.place.x)
        && let (Some(change), Some(direct), Some(value)) =
            (Change::of(from, to, values::TPS), from.median(values::TPS), to.median(values::TPS))
    {
        let (value, direct) = (tps(value), tps(direct));
        text.push_str(&format!(" With {} it is {value} through it, directly {direct}: {change}.", clients(from.x)));
    }
    Some(text)
}

/// From where on each line has errors, and which. None where there were none.
pub fn errors(data: &Dataset, many: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for line in &data.lines {
        let with_errors: Vec<&Place> = line.places.iter().filter(|place| !place.errors.is_empty()).collect();
        let Some(first) = with_errors.first() else { continue };
        let mut kinds: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
        for (kind, count) in with_errors.iter().flat_map(|place| &place.errors) {
            *kinds.entry(kind).or_default() += count;
        }
        let kinds: Vec<String> = kinds
            .iter()
            .map(|(kind, count)| match count {
                1 => format!("{kind} (once)"),
                count => format!("{kind} ({count} times)"),
            })
            .collect();
        findings.push(caution(format!(
            "{}: errors came at {} of {} places, first with {} {many}: {}.",
            line.name(),
            with_errors.len(),
            line.places.len(),
            number(first.x),
            kinds.join("; ")
        )));
    }
    findings
}

/// What to be careful with in any experiment: an unfinished run, single rounds, wide spreads, and doubts that points carry.
pub fn reservations(data: &Dataset, key: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let places = || data.lines.iter().flat_map(|line| line.places.iter().map(move |place| (line, place)));
    if places().next().is_none() {
        findings.push(caution("Nothing was measured."));
        return findings;
    }
    if !data.complete {
        findings.push(caution("The run did not come to its end: what is missing may change what is said here."));
    }
    if places().all(|(_, place)| place.spread(key).is_none_or(|spread| spread.rounds < 2)) {
        findings.push(caution(format!(
            "Each place was measured once, so differences below {} are not told from chance; more rounds tell.",
            percent(CLEAR_OF_ONE_ROUND)
        )));
    }
    let wide = places().filter(|(_, place)| {
        place.spread(key).is_some_and(|spread| spread.half_width().is_finite() && spread.half_width() > WIDE_HALF)
    });
    let wide = wide.count();
    if wide > 0 {
        findings.push(caution(format!(
            "At {wide} of {} places the rounds tell the figure only to within more than {} to either side: something else was at work \
             there.",
            places().count(),
            percent(WIDE_HALF)
        )));
    }
    findings.extend(doubts(data));
    findings
}

/// The doubts that points carry, each once with the lines and the number of places that it touches.
fn doubts(data: &Dataset) -> Vec<Finding> {
    let mut doubts: Vec<(&str, Vec<String>, usize)> = Vec::new();
    for line in &data.lines {
        for doubt in line.places.iter().flat_map(|place| &place.doubts) {
            // Doubts differ in their figures from place to place: the words before the first one name the kind.
            let kind = doubt.split(|letter: char| letter.is_ascii_digit()).next().unwrap_or(doubt);
            let known = doubts.iter_mut().find(|(known, _, _)| known.starts_with(kind) && !kind.is_empty());
            match known {
                Some((_, names, places)) => {
                    *places += 1;
                    if !names.contains(&line.name()) {
                        names.push(line.name());
                    }
                }
                None => doubts.push((doubt, vec![line.name()], 1)),
            }
        }
    }
    let left_out = doubts.len().saturating_sub(DOUBTS_MAX);
    let mut findings: Vec<Finding> = doubts
        .iter()
        .take(DOUBTS_MAX)
        .map(|(doubt, names, places)| {
            let places = if *places == 1 { "one place".to_owned() } else { format!("{places} places") };
            caution(format!("At {places} ({}): {doubt}", names.join("; ")))
        })
        .collect();
    if left_out > 0 {
        findings.push(caution(format!("{left_out} further kinds of doubt stand beside their figures.")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::fixtures::{self, Facts};

    #[test]
    fn numbers_are_rounded_to_what_they_mean() {
        assert_eq!([11_432.0, 999.6, 1_032_435.0, 12.34].map(about), ["11,400", "1,000", "1,030,000", "12.3"]);
        assert_eq!([420.4, 4_211.0, 2_500_000.0].map(time), ["420 µs", "4.21 ms", "2.50 s"]);
        assert_eq!([0.98, 0.114, 0.034].map(percent), ["98 %", "11 %", "3.4 %"]);
        assert_eq!((clients(1.0), clients(1_000.0)), ("1 client".into(), "1,000 clients".into()));
        assert_eq!(list(&["a".into(), "b".into(), "c".into()]), "a, b and c");
    }

    #[test]
    fn a_difference_is_clear_when_rounds_do_not_overlap_or_one_round_differs_much() {
        let place = |values: &[f64]| fixtures::place(1.0, "tps", values);
        let change = |from: &[f64], to: &[f64]| Change::of(&place(from), &place(to), "tps").unwrap();
        assert!(!change(&[100.0, 110.0], &[105.0, 120.0]).clear);
        assert!(change(&[100.0, 101.0], &[110.0, 111.0]).is_more());
        assert!(!change(&[100.0, 100.1], &[101.0, 101.1]).clear, "clear, but nobody cares");
        assert!(!change(&[100.0], &[85.0]).clear && change(&[100.0], &[75.0]).is_less());
        assert_eq!(change(&[100.0], &[85.0]).to_string(), "about the same");
        assert_eq!(change(&[100.0], &[75.0]).to_string(), "25 % less");
        assert_eq!(change(&[100.0], &[250.0]).to_string(), "2.5 times as much");
        assert!(Change::of(&place(&[]), &place(&[1.0]), "tps").is_none());
    }

    #[test]
    fn a_peak_says_what_is_known_of_it_and_no_more() {
        let line = fixtures::line("", "direct", "tps", &[(8.0, 9_900.0), (16.0, 10_000.0), (64.0, 7_000.0)]);
        let text = peak(&line).unwrap().text;
        assert_eq!(
            text,
            "direct: throughput peaks at 10,000 TPS with 16 clients. 8 clients already reach 98 % of that. With 64 clients it is \
             30 % less."
        );
        let rising = fixtures::line("", "direct", "tps", &[(8.0, 5_000.0), (16.0, 10_000.0)]);
        assert!(peak(&rising).unwrap().text.contains("may lie further on"));
        let flat = fixtures::line("", "direct", "tps", &[(8.0, 9_900.0), (16.0, 9_950.0), (64.0, 10_000.0)]);
        assert!(!peak(&flat).unwrap().text.contains("further"), "the best of a plateau is an accident");
        assert!(peak(&Line::default()).is_none());
        assert!(peak(&fixtures::line("", "direct", "tps", &[(8.0, 0.0)])).is_none(), "all failed: there is no peak");
    }

    #[test]
    fn a_pooler_is_compared_with_the_server_of_its_own_version() {
        let data = Facts::new("e")
            .server("PostgreSQL 12", 12)
            .server("PostgreSQL 15", 15)
            .pooler("Weir, PostgreSQL 15", 15)
            .line("", "PostgreSQL 12", "tps", &[(8.0, 100.0), (64.0, 50.0)])
            .line("", "PostgreSQL 15", "tps", &[(8.0, 200.0), (64.0, 100.0)])
            .line("", "Weir, PostgreSQL 15", "tps", &[(8.0, 140.0), (64.0, 150.0)])
            .data();
        let texts = fixtures::texts(&poolers(&data));
        assert_eq!(
            texts,
            [
                "Through Weir, PostgreSQL 15 the best is 150 TPS, directly 200 TPS: 25 % less. With 64 clients it is 150 TPS \
              through it, directly 100 TPS: 50 % more."
            ]
        );
    }

    #[test]
    fn errors_and_doubts_are_said() {
        let data = Facts::new("e")
            .line("", "a", "tps", &[(8.0, 100.0)])
            .failing("", "a", 16.0, "sorry, too many clients already (53300)", 12)
            .doubt("", "a", 8.0, "pgbench used 0.97 of a core")
            .doubt("", "a", 16.0, "pgbench used 0.99 of a core")
            .data();
        let texts = fixtures::texts(&errors(&data, "clients"));
        assert_eq!(
            texts,
            [
                "a: errors came at 1 of 2 places, first with 16 clients: sorry, too many clients already (53300) (12 times)."
            ]
        );
        let texts = fixtures::texts(&reservations(&data, "tps"));
        assert!(texts[0].starts_with("The run did not come to its end"), "{texts:?}");
        assert_eq!(texts.last().unwrap(), "At 2 places (a): pgbench used 0.97 of a core");
        assert_eq!(fixtures::texts(&reservations(&Dataset::default(), "tps")), ["Nothing was measured."]);
    }
}
