//! How many connections, cores and nodes for a wished throughput under a wished latency, from measurements.
//!
//! Says only what the measurements carry: between them it interpolates, beyond them it says that it extrapolates, and where
//! they answer nothing it says that.

use super::fit;
use super::sampling::Interval;
use super::table::Measured;
use super::usl::{Fit, Law};
use super::words::{number, range};

/// What is wished for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wish {
    /// Transactions per second.
    pub throughput: f64,
    pub p99_ms: Option<f64>,
}

/// The measurements of one thing on one size of hardware.
#[derive(Clone, Debug)]
pub struct Group {
    pub label: String,
    pub cores: Option<f64>,
    pub nodes: Option<f64>,
    pub points: Vec<Measured>,
    pub fit: Result<Fit, String>,
}

/// Between which numbers of clients the 99th percentile crosses a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limit {
    /// By a straight line over logarithms between both.
    clients: f64,
    /// Measured, and within the bound.
    within: f64,
    /// Measured, and beyond it; `None` where all that was measured is within.
    beyond: Option<f64>,
}

impl Limit {
    const NONE: Limit = Limit { clients: f64::INFINITY, within: f64::INFINITY, beyond: None };
}

/// The measurements by what was measured, and its cores and nodes, in the order of the file.
pub fn groups(all: &[Measured]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for measured in all {
        let of_size = |group: &&mut Group| {
            group.label == measured.label && (group.cores, group.nodes) == (measured.cores, measured.nodes)
        };
        match groups.iter_mut().find(of_size) {
            Some(group) => group.points.push(measured.clone()),
            None => groups.push(Group {
                label: measured.label.clone(),
                cores: measured.cores,
                nodes: measured.nodes,
                points: vec![measured.clone()],
                fit: Err(String::new()),
            }),
        }
    }
    for group in &mut groups {
        group.points.sort_by(|left, right| left.clients.total_cmp(&right.clients));
        let curve: Vec<(f64, f64)> = group.points.iter().map(|point| (point.clients, point.throughput)).collect();
        group.fit = fit(&curve);
    }
    groups
}

impl Group {
    pub fn name(&self) -> String {
        let part = |value: Option<f64>, one: &str, many: &str| {
            value.map(|value| format!("{} {}", number(value), if value == 1.0 { one } else { many }))
        };
        let parts = [part(self.nodes, "node", "nodes"), part(self.cores, "core each", "cores each")];
        let known: Vec<String> = parts.into_iter().flatten().collect();
        let size = known.join(" of ").replace(" of 1 core each", " of 1 core");
        match (self.label.is_empty(), size.is_empty()) {
            (true, true) => "the measured server".to_owned(),
            (true, false) => size,
            (false, true) => self.label.clone(),
            (false, false) => format!("{} on {size}", self.label),
        }
    }

    /// Up to how many clients the 99th percentile is within the bound; of a number that was measured more than once the worst
    /// counts. `None` where none is, or none was measured.
    fn clients_within(&self, bound_ms: f64) -> Option<Limit> {
        let mut known: Vec<(f64, f64)> = Vec::new();
        for point in &self.points {
            let Some(p99) = point.p99_ms.filter(|p99| *p99 > 0.0) else { continue };
            match known.last_mut().filter(|last| last.0 == point.clients) {
                Some(last) => last.1 = last.1.max(p99),
                None => known.push((point.clients, p99)),
            }
        }
        let count = known.iter().take_while(|(_, p99)| *p99 <= bound_ms).count();
        let within = known.get(count.checked_sub(1)?)?;
        let Some(beyond) = known.get(count) else {
            return Some(Limit { clients: within.0, within: within.0, beyond: None });
        };
        let part = (bound_ms / within.1).ln() / (beyond.1 / within.1).ln();
        let clients = within.0 * (beyond.0 / within.0).powf(part);
        Some(Limit { clients, within: within.0, beyond: Some(beyond.0) })
    }

    /// What the wish asks of this size, in sentences.
    pub fn answer(&self, wish: Wish) -> Vec<String> {
        let fit = match &self.fit {
            Ok(fit) => fit,
            Err(reason) => return vec![format!("No answer from these figures: {reason}.")],
        };
        let limit = match wish.p99_ms {
            None => Limit::NONE,
            Some(_) if self.points.iter().all(|point| point.p99_ms.is_none()) => {
                return vec![
                    "The bound on p99 cannot be answered: the file has no column of it (p99_ms or p99_us).".to_owned(),
                ];
            }
            Some(bound) => match self.clients_within(bound) {
                Some(limit) => limit,
                None => return vec![format!("Already the fewest clients had a p99 above {} ms.", number(bound))],
            },
        };
        let mut sentences = vec![self.connections(fit, wish, limit)];
        sentences.extend(wish.p99_ms.map(|bound| crossing(limit, bound)));
        if !fit.is_good() {
            sentences.push(
                "The law fits these figures badly (see above): measure around the answer before you rely on it."
                    .to_owned(),
            );
        }
        sentences
    }

    fn connections(&self, fit: &Fit, wish: Wish, limit: Limit) -> String {
        let bound = wish.p99_ms.map_or(String::new(), |bound| format!(" with a p99 within {} ms", number(bound)));
        let most = most(&fit.law, limit.clients);
        let Some(clients) = fewest(&fit.law, wish.throughput, limit.clients) else {
            // The bound of latency is uncertain as well: it lies between two measured numbers of clients.
            let ends = [limit.within, limit.beyond.unwrap_or(limit.clients)];
            let bounds = ends.map(|end| Interval::of(fit.repetitions.iter().map(|law| self::most(law, end)).collect()));
            let known = match bounds {
                [Some(low), Some(high)] => {
                    format!(" ({})", range(Interval { low: low.low.min(most), high: high.high.max(most) }))
                }
                _ => String::new(),
            };
            return format!("Not reached: at most {} TPS{known}{bound}.", number(most));
        };
        let all: Vec<f64> = fit
            .repetitions
            .iter()
            .map(|law| fewest(law, wish.throughput, limit.clients).unwrap_or(f64::INFINITY))
            .collect();
        let missed = all.iter().filter(|clients| clients.is_infinite()).count() as f64 / all.len().max(1) as f64;
        let known = Interval::of(all.into_iter().filter(|clients| clients.is_finite()).collect());
        let whole = |it: Interval| range(Interval { low: it.low.ceil(), high: it.high.ceil() });
        let known = known.map_or(String::new(), |known| format!(" ({})", whole(known)));
        let doubt = if missed > 0.05 {
            format!(
                " Within the errors of these figures it may also be out of reach (in {:.0} of 100 repetitions).",
                missed * 100.0
            )
        } else {
            String::new()
        };
        let beyond = if clients > fit.range.1 { " This is beyond what was measured." } else { "" };
        format!(
            "{} TPS{bound}: {} connections{known} that are busy all the time.{doubt}{beyond}",
            number(wish.throughput),
            number(clients.ceil())
        )
    }

    /// The most throughput within the bound, and its errors.
    fn capacity(&self, wish: Wish) -> Option<(f64, Interval)> {
        let fit = self.fit.as_ref().ok()?;
        let limit = match wish.p99_ms {
            Some(bound) => self.clients_within(bound)?.clients,
            None => f64::INFINITY,
        };
        // A law without a peak promises anything: not more than was seen at the end.
        let limit = if fit.law.peak_clients().is_finite() { limit } else { limit.min(fit.range.1) };
        let all = fit.repetitions.iter().map(|law| most(law, limit)).collect();
        Some((most(&fit.law, limit), Interval::of(all)?))
    }
}

/// What the measurements say of the bound itself.
fn crossing(limit: Limit, bound_ms: f64) -> String {
    match limit.beyond {
        Some(beyond) => format!(
            "The p99 passes {} ms somewhere between {} and {} clients, both measured; {} is a straight line between them.",
            number(bound_ms),
            number(limit.within),
            number(beyond),
            number(limit.clients.floor())
        ),
        None => format!(
            "All that was measured, up to {} clients, has a p99 within {} ms; beyond it nothing is known of latency.",
            number(limit.within),
            number(bound_ms)
        ),
    }
}

/// The fewest clients with this throughput, up to the peak and the limit.
fn fewest(law: &Law, throughput: f64, limit: f64) -> Option<f64> {
    let highest = law.peak_clients().min(limit).min(1e9);
    if law.throughput(highest) < throughput {
        return None;
    }
    let (mut low, mut high) = (0.0, highest);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if law.throughput(middle) < throughput { low = middle } else { high = middle }
    }
    Some(high)
}

fn most(law: &Law, limit: f64) -> f64 {
    law.throughput(law.peak_clients().min(limit).min(1e9))
}

/// Which of both is made larger.
#[derive(Clone, Copy)]
enum Unit {
    Nodes,
    Cores,
}

impl Unit {
    fn of(self, group: &Group) -> Option<f64> {
        match self {
            Unit::Nodes => group.nodes,
            Unit::Cores => group.cores,
        }
    }

    fn other(self, group: &Group) -> Option<f64> {
        match self {
            Unit::Nodes => group.cores,
            Unit::Cores => group.nodes,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Nodes => "nodes",
            Unit::Cores => "cores each",
        }
    }
}

/// How many nodes, and how many cores, would reach the wish: sentences over all sizes of the file.
pub fn hardware(groups: &[Group], wish: Wish) -> Vec<String> {
    let able: Vec<(&Group, f64, Interval)> = groups
        .iter()
        .filter_map(|group| group.capacity(wish).map(|(most, interval)| (group, most, interval)))
        .collect();
    let Some((best, capacity, range)) = able.iter().max_by(|left, right| left.1.total_cmp(&right.1)) else {
        return vec!["How many cores or nodes it takes cannot be said: no size of the file answers.".to_owned()];
    };
    let mut sentences: Vec<String> =
        [Unit::Nodes, Unit::Cores].iter().filter_map(|unit| grown(&able, *unit, wish)).collect();
    if sentences.is_empty() && wish.throughput > *capacity {
        sentences.push(format!(
            "At best, in proportion: {} times {} ({} to {}). The file has one size of it only, so how throughput grows with cores or nodes is \
             not known; it rarely grows in proportion.",
            (wish.throughput / capacity).ceil(), best.name(),
            (wish.throughput / range.high).ceil(), (wish.throughput / range.low).ceil()
        ));
    }
    sentences
}

/// How capacity grew with one unit while the other stayed: as a power, continued to the wish.
fn grown(able: &[(&Group, f64, Interval)], unit: Unit, wish: Wish) -> Option<String> {
    let largest = |left: &&(&Group, f64, Interval), right: &&(&Group, f64, Interval)| left.1.total_cmp(&right.1);
    let (best, ..) = able.iter().max_by(largest)?;
    let mut line: Vec<(f64, f64, Interval)> = able
        .iter()
        .filter(|(group, ..)| group.label == best.label && unit.other(group) == unit.other(best))
        .filter_map(|(group, capacity, range)| Some((unit.of(group).filter(|size| *size > 0.0)?, *capacity, *range)))
        .collect();
    line.sort_by(|left, right| left.0.total_cmp(&right.0));
    let (first, last) = (line.first()?, line.last()?);
    if last.0 <= first.0 {
        return None;
    }
    let steps = (last.0 / first.0).ln();
    let size = |from: f64, to: f64| {
        let power = (to / from).ln() / steps;
        (power > 0.0).then(|| last.0 * (wish.throughput / to).powf(1.0 / power))
    };
    let grew = format!(
        "From {} to {} {} throughput grew {} times",
        number(first.0),
        number(last.0),
        unit.name(),
        number(last.1 / first.1)
    );
    let Some(needed) = size(first.1, last.1) else {
        return Some(format!("{grew}: more of them do not help."));
    };
    let bounds =
        [size(first.2.low, last.2.high), size(first.2.high, last.2.low)].map(|size| size.unwrap_or(f64::INFINITY));
    let (low, high) = (bounds[0].min(bounds[1]), bounds[0].max(bounds[1]));
    let range = format!(
        "{} to {}",
        low.ceil(),
        if high.is_finite() { high.ceil().to_string() } else { "any number".to_owned() }
    );
    let beyond = if needed > last.0 { ", if it goes on like that" } else { "" };
    Some(format!(
        "{grew}; {} TPS take {} {} ({range}){beyond}. These bounds are those of the smallest and the largest size; how far growth \
         keeps to a power between and beyond them they do not say.",
        number(wish.throughput),
        needed.ceil(),
        unit.name()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: Law = Law { lambda: 1000.0, sigma: 0.02, kappa: 0.0001 };

    fn measured(scale: f64, nodes: Option<f64>) -> Vec<Measured> {
        [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]
            .map(|clients| Measured {
                label: String::new(),
                clients,
                throughput: scale * LAW.throughput(clients),
                p99_ms: Some(clients),
                cores: None,
                nodes,
            })
            .to_vec()
    }

    #[test]
    fn connections_are_answered_within_the_bound() {
        let groups = groups(&measured(1.0, None));
        let wish = Wish { throughput: 10_000.0, p99_ms: None };
        let answer = groups[0].answer(wish).join(" ");
        assert!(answer.starts_with("10,000 TPS: 13 connections (13 to 13)"), "{answer}");
        let answer = groups[0].answer(Wish { p99_ms: Some(6.0), ..wish }).join(" ");
        assert!(answer.starts_with("Not reached: at most 5,"), "{answer}");
        assert!(answer.contains("passes 6 ms somewhere between 4 and 8 clients, both measured; 6 is"), "{answer}");
        let answer = groups[0].answer(Wish { p99_ms: Some(500.0), ..wish }).join(" ");
        assert!(answer.contains("beyond it nothing is known of latency"), "{answer}");
        let answer = groups[0].answer(Wish { p99_ms: Some(0.5), ..wish }).join(" ");
        assert!(answer.starts_with("Already the fewest clients"), "{answer}");
    }

    #[test]
    fn nodes_follow_the_growth_that_was_measured() {
        let all = [measured(1.0, Some(4.0)), measured(1.7, Some(8.0))].concat();
        let groups = groups(&all);
        assert_eq!(groups.len(), 2);
        // 2 ^ 0.7655 is 1.7; the peak of eight nodes is 1.7 * 28 600, and 2.89 times the first's takes sixteen.
        let wish = Wish { throughput: 2.889 * most(&LAW, f64::INFINITY), p99_ms: None };
        let sentences = hardware(&groups, wish).join(" ");
        assert!(sentences.contains("take 16 nodes"), "{sentences}");
        let alone = hardware(&groups[..1], wish).join(" ");
        assert!(alone.contains("take") || alone.contains("At best, in proportion: 3 times 4 nodes"), "{alone}");
    }

    #[test]
    fn what_the_figures_do_not_carry_is_said() {
        let few = groups(&measured(1.0, None)[..3]);
        let wish = Wish { throughput: 1.0, p99_ms: None };
        assert!(few[0].answer(wish)[0].starts_with("No answer from these figures: 3 numbers"));
        assert!(hardware(&few, wish)[0].contains("cannot be said"));
        let silent: Vec<Measured> =
            measured(1.0, None).into_iter().map(|point| Measured { p99_ms: None, ..point }).collect();
        let answer = groups(&silent)[0].answer(Wish { p99_ms: Some(5.0), ..wish }).join(" ");
        assert!(answer.contains("the file has no column of it"), "{answer}");
    }

    #[test]
    fn several_lines_of_a_file_are_kept_apart() {
        let labelled = |label: &str| {
            let points = measured(1.0, None).into_iter();
            points.map(|point| Measured { label: label.to_owned(), ..point }).collect::<Vec<_>>()
        };
        let groups = groups(&[labelled("direct"), labelled("Weir")].concat());
        assert_eq!(groups.iter().map(Group::name).collect::<Vec<_>>(), ["direct", "Weir"]);
        assert!(groups.iter().all(|group| group.points.len() == 8));
    }
}
