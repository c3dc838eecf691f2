//! `fleet`: one single-threaded pooler, a fleet of them on one port, and Weir, under more and more clients.

use super::places::{self, Room};
use super::sources::CLICKHOUSE_2026;
use super::words::{self, Change, Peak};
use crate::dataset::{Dataset, Line, Place};
use crate::experiment::{About, Axis, Better, Chart, Course, Experiment, Finding, Published, Stop, values};
use crate::report::figures::number;
use crate::run::Site;
use crate::targets::{Needs, PoolerKind, Tables, Target};
use weir_measure::journal::{Point, Preset, Role, Sizes};
use weir_measure::load::{Load, Script};
use weir_measure::statistics;

pub struct Fleet;

const SOURCE_CLIENTS: [usize; 5] = [8, 32, 64, 128, 256];
const CLIENTS: [usize; 6] = [8, 32, 64, 128, 256, 1_000];
/// Server connections of all processes together; the source says only that a fleet's limits add up to those of one.
const POOL_PER_CORE: usize = 16;
/// A single-threaded pooler that uses so much of a core has no more to give.
const PINNED_CORES: f64 = 0.93;
const SINGLE: &str = "PgBouncer";
const FLEET: &str = "PgBouncer fleet";
/// The source's fleet over its single process at 256 clients.
const SOURCE_GAIN: f64 = 336_469.0 / 76_893.0;

static ABOUT: About = About {
    name: "fleet",
    title: "One single-threaded pooler, a fleet of them, and Weir",
    question: "When does a pooler that uses one core become the limit, and what do more processes or threads gain?",
    method: &[
        "pgbench's select-only script through each pooler in transaction mode, 8 to 256 clients as in the source, and 1,000 beside.",
        "The fleet is one PgBouncer per core on one port with so_reuseport; its limit on server connections is divided among the \
         processes, so every pooler holds the same number of server connections in all. The source's fleet has peering as well, \
         which only cancel requests need.",
        "The source had three machines: 16 cores for the pooler alone, others for PostgreSQL and pgbench, so the pooler was what \
         limited. Unless targets are given elsewhere, all three share this machine's cores here, and a pooler can only be the limit \
         where it needs a whole core before the others need all the rest.",
        "So the CPU of the pooler stands beside throughput: what a transaction costs it, and whether one process fills its core. \
         CPU of the machine counts pgbench and PostgreSQL too, while the source's counts the pooler alone.",
        "The server itself is measured beside, as the best that any pooler could do.",
    ],
    sources: &[CLICKHOUSE_2026],
    axis: Axis { label: "clients", logarithmic: true },
    charts: &[
        Chart { title: "Throughput", key: values::TPS, unit: "transactions/s", better: Better::Higher },
        Chart { title: "CPU of the pooler", key: values::POOLER_CORES, unit: "cores", better: Better::Neither },
        Chart {
            title: "CPU of the pooler per transaction",
            key: values::POOLER_CPU_US,
            unit: "µs",
            better: Better::Lower,
        },
        Chart { title: "CPU of the machine", key: values::BOX_CPU_PERCENT, unit: "%", better: Better::Neither },
        Chart { title: "Latency, median", key: values::P50_US, unit: "µs", better: Better::Lower },
        Chart { title: "Latency, 99th percentile", key: values::P99_US, unit: "µs", better: Better::Lower },
        Chart { title: "Private memory of the pooler", key: values::POOLER_MIB, unit: "MiB", better: Better::Lower },
        Chart { title: "Errors", key: values::ERRORS_PER_SECOND, unit: "errors/s", better: Better::Lower },
    ],
    published: &[
        published(
            "one PgBouncer (ClickHouse 2026)",
            values::TPS,
            &[(8.0, 8_910.0), (32.0, 54_203.0), (64.0, 86_570.0), (128.0, 83_463.0), (256.0, 76_893.0)],
        ),
        published(
            "16 PgBouncers (ClickHouse 2026)",
            values::TPS,
            &[(8.0, 6_450.0), (32.0, 64_244.0), (64.0, 219_439.0), (128.0, 320_547.0), (256.0, 336_469.0)],
        ),
        published(
            "one PgBouncer (ClickHouse 2026)",
            values::BOX_CPU_PERCENT,
            &[(8.0, 0.8), (32.0, 5.2), (64.0, 8.3), (128.0, 8.1), (256.0, 7.7)],
        ),
        published(
            "16 PgBouncers (ClickHouse 2026)",
            values::BOX_CPU_PERCENT,
            &[(8.0, 2.9), (32.0, 12.3), (64.0, 31.9), (128.0, 45.9), (256.0, 48.9)],
        ),
    ],
    fit: true,
};

const fn published(name: &'static str, key: &'static str, points: &'static [(f64, f64)]) -> Published {
    Published {
        name,
        setting: "16 cores for the pooler alone (c7i.4xlarge), PostgreSQL and pgbench on other machines",
        key,
        points,
    }
}

fn clients(sizes: &Sizes) -> Vec<f64> {
    places::floats(match sizes.preset {
        Preset::Machine => &CLIENTS,
        Preset::Quick | Preset::Source => &SOURCE_CLIENTS,
    })
}

impl Experiment for Fleet {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn needs(&self, sizes: &Sizes) -> Needs {
        let most = places::most(&clients(sizes));
        let poolers = [PoolerKind::PgBouncer, PoolerKind::PgBouncerFleet, PoolerKind::Weir];
        places::needs(most, Tables::Pgbench, &poolers, POOL_PER_CORE * Room::here().cores)
    }

    fn courses(&self, sizes: &Sizes, targets: &[Target]) -> Vec<Course> {
        places::courses(places::ONE_SERIES, targets, &clients(sizes), Stop::Never)
    }

    fn measure(&self, point: &mut Point, site: &mut Site) -> anyhow::Result<()> {
        let load = Load::new(Script::SelectOnly, statistics::count(point.x), site.sizes.seconds);
        site.measure(point, &load)
    }

    fn conclude(&self, data: &Dataset) -> Vec<Finding> {
        let mut findings: Vec<Finding> = ends(data).into_iter().filter_map(|x| ranking(data, x)).collect();
        findings.extend(words::errors(data, "clients"));
        findings.extend(data.lines.iter().filter_map(|line| pinned(data, line)));
        findings.extend(costs(data));
        for (single, fleet) in singles(data) {
            findings.extend(beside_source(data, single, fleet));
            findings.extend(advise(single, fleet));
        }
        findings.extend(words::reservations(data, values::TPS));
        findings
    }
}

/// The fewest and the most clients at which all poolers have figures; the server itself may have failed with many.
fn ends(data: &Dataset) -> Vec<f64> {
    let mut poolers: Vec<&Line> = data.lines.iter().filter(|line| data.role_of(line) == Role::Pooler).collect();
    if poolers.is_empty() {
        poolers = data.lines.iter().collect();
    }
    let everywhere =
        |x: &f64| poolers.iter().all(|line| line.at(*x).is_some_and(|place| place.median(values::TPS).is_some()));
    let Some(first) = poolers.first() else { return Vec::new() };
    let common: Vec<f64> = first.places.iter().map(|place| place.x).filter(everywhere).collect();
    match common.as_slice() {
        [] => Vec::new(),
        [one] => vec![*one],
        [first, .., last] => vec![*first, *last],
    }
}

/// All lines at one number of clients, best first.
fn ranking(data: &Dataset, x: f64) -> Option<Finding> {
    let at =
        |line: &Line| Some((line.name(), line.at(x)?.median(values::TPS)?, line.at(x)?.median(values::POOLER_CORES)));
    let mut all: Vec<(String, f64, Option<f64>)> = data.lines.iter().filter_map(at).collect();
    if all.len() < 2 {
        return None;
    }
    all.sort_by(|left, right| right.1.total_cmp(&left.1));
    let parts: Vec<String> = all
        .into_iter()
        .map(|(name, tps, cores)| match cores {
            Some(cores) => format!("{name} {} ({} cores of its own)", words::tps(tps), number(cores)),
            None => format!("{name} {}", words::tps(tps)),
        })
        .collect();
    Some(words::shows(format!("With {}: {}.", words::clients(x), words::list(&parts))))
}

/// Whether a single-threaded pooler fills its core, and from where on.
fn pinned(data: &Dataset, line: &Line) -> Option<Finding> {
    if data.role_of(line) != Role::Pooler || kind(line) != SINGLE {
        return None;
    }
    let used = |place: &&Place| place.median(values::POOLER_CORES);
    let most =
        line.places.iter().max_by(|left, right| used(left).unwrap_or(0.0).total_cmp(&used(right).unwrap_or(0.0)))?;
    let cores = most.median(values::POOLER_CORES)?;
    let text = match line.places.iter().find(|place| place.median(values::POOLER_CORES) >= Some(PINNED_CORES)) {
        Some(first) => format!(
            "{}: from {} on its single thread fills a core ({} of one): there the pooler is the limit.",
            line.name(),
            words::clients(first.x),
            number(cores)
        ),
        None => format!(
            "{}: its single thread never fills a core here (at most {} of one, with {}), so it is not what limits; more poolers cannot \
             gain much here.",
            line.name(),
            number(cores),
            words::clients(most.x)
        ),
    };
    Some(words::shows(text))
}

/// What a transaction costs each pooler, at its best throughput.
fn costs(data: &Dataset) -> Option<Finding> {
    let poolers = data.lines.iter().filter(|line| data.role_of(line) == Role::Pooler);
    let cost = |line: &Line| {
        let cost_us = Peak::of(line)?.place.median(values::POOLER_CPU_US)?;
        Some(format!("{} {}", line.name(), format_us(cost_us)))
    };
    let parts: Vec<String> = poolers.filter_map(cost).collect();
    let text = format!("CPU of the pooler per transaction, at the best throughput of each: {}.", words::list(&parts));
    (!parts.is_empty()).then(|| words::shows(text))
}

fn format_us(us: f64) -> String {
    format!("{} µs", number(us))
}

/// `PgBouncer` of `PgBouncer, PostgreSQL 15`.
fn kind(line: &Line) -> &str {
    line.target.split(", ").next().unwrap_or(&line.target)
}

/// Each single PgBouncer with the fleet before the same server.
fn singles(data: &Dataset) -> Vec<(&Line, &Line)> {
    let singles = data.lines.iter().filter(|line| kind(line) == SINGLE);
    let fleet_of = |single: &Line| {
        let rest = single.target.strip_prefix(SINGLE)?;
        data.lines.iter().find(|line| line.target.strip_prefix(FLEET) == Some(rest))
    };
    singles.filter_map(|single| Some((single, fleet_of(single)?))).collect()
}

fn common_ends<'a>(single: &'a Line, fleet: &'a Line) -> Option<[(&'a Place, &'a Place); 2]> {
    let both = |place: &'a Place| {
        let other = fleet.at(place.x)?;
        (place.median(values::TPS).is_some() && other.median(values::TPS).is_some()).then_some((place, other))
    };
    let all: Vec<(&Place, &Place)> = single.places.iter().filter_map(both).collect();
    (all.len() > 1).then(|| [all[0], all[all.len() - 1]])
}

fn beside_source(data: &Dataset, single: &Line, fleet: &Line) -> Option<Finding> {
    let [(few, few_fleet), (many, many_fleet)] = common_ends(single, fleet)?;
    let (at_few, at_many) = (Change::of(few, few_fleet, values::TPS)?, Change::of(many, many_fleet, values::TPS)?);
    let mut text = format!(
        "In the source the fleet has 28 % less than one process with 8 clients, and {} times as much with 256. Here it is {at_few} with \
         {} and {at_many} with {}: ",
        number(SOURCE_GAIN),
        words::clients(few.x),
        words::clients(many.x)
    );
    let pinned = many.median(values::POOLER_CORES).is_some_and(|cores| cores >= PINNED_CORES);
    text.push_str(match (at_many.is_more(), pinned) {
        (true, _) => "the shape agrees, with many clients the fleet wins.",
        (false, true) => "the shape does not agree though the single process fills its core; the rest of the machine is full as well.",
        (false, false) => "the shape does not agree, since one process is not the limit here.",
    });
    let cores = words::cores(data);
    if cores > 0 && !at_many.is_more() {
        text.push_str(&format!(
            " The source gave the pooler 16 cores of its own; here {cores} are shared with pgbench and PostgreSQL."
        ));
    }
    Some(words::source(text))
}

fn advise(single: &Line, fleet: &Line) -> Option<Finding> {
    let [_, (many, many_fleet)] = common_ends(single, fleet)?;
    let change = Change::of(many, many_fleet, values::TPS)?;
    let cores = many.median(values::POOLER_CORES);
    Some(words::advice(match cores {
        _ if change.is_more() => format!(
            "More than one core for the pooler pays here: with {} the fleet's throughput is {change}. Divide its limits by the number of processes \
             and set peering, or cancels reach the wrong process; a pooler with threads needs neither.",
            words::clients(many.x)
        ),
        Some(cores) if cores < PINNED_CORES => format!(
            "One single-threaded pooler is enough here: it uses {} of a core with {}. Watch that figure (pidstat, top): when it nears 1, \
             the pooler is the limit.",
            number(cores),
            words::clients(many.x)
        ),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::FindingKind;
    use crate::experiments::fixtures::{self, Facts};

    fn facts(single: &[(f64, f64, f64)], fleet: &[(f64, f64, f64)]) -> Dataset {
        let mut facts = Facts::new("fleet").run(16).pooler("PgBouncer", 15).pooler("PgBouncer fleet", 15);
        for (target, places) in [("PgBouncer", single), ("PgBouncer fleet", fleet)] {
            for (x, tps, cores) in places {
                facts = facts.values("", target, *x, &[("tps", *tps), ("pooler_cores", *cores)]);
            }
        }
        facts.end().data()
    }

    #[test]
    fn the_sources_own_figures_agree_with_the_source() {
        let data =
            facts(&[(8.0, 8_910.0, 0.13), (256.0, 76_893.0, 0.97)], &[(8.0, 6_450.0, 0.46), (256.0, 336_469.0, 7.8)]);
        let findings = Fleet.conclude(&data);
        let shown = fixtures::kind(&findings, FindingKind::Shows);
        assert_eq!(
            shown[0],
            "With 8 clients: PgBouncer 8,910 TPS (0.13 cores of its own) and PgBouncer fleet 6,450 TPS (0.46 cores of its own)."
        );
        assert!(
            shown.iter().any(|text| text.contains("from 256 clients on its single thread fills a core (0.97 of one)")),
            "{shown:?}"
        );
        let source = fixtures::kind(&findings, FindingKind::Source).remove(0);
        assert!(
            source.contains(
                "Here it is 28 % less with 8 clients and 4.4 times as much with 256 clients: the shape agrees"
            ),
            "{source}"
        );
        assert!(
            fixtures::kind(&findings, FindingKind::Advice)[0].starts_with("More than one core for the pooler pays")
        );
    }

    #[test]
    fn a_small_machine_says_why_the_fleet_does_not_win() {
        let data = facts(&[(8.0, 9_000.0, 0.4), (256.0, 9_100.0, 0.5)], &[(8.0, 9_050.0, 0.4), (256.0, 8_900.0, 0.6)]);
        let findings = Fleet.conclude(&data);
        let source = fixtures::kind(&findings, FindingKind::Source).remove(0);
        assert!(
            source.contains("since one process is not the limit here. The source gave the pooler 16 cores"),
            "{source}"
        );
        assert!(fixtures::kind(&findings, FindingKind::Advice)[0].starts_with("One single-threaded pooler is enough"));
    }

    #[test]
    fn half_a_run_is_not_compared() {
        let data = facts(&[(8.0, 9_000.0, 0.4)], &[]);
        let findings = Fleet.conclude(&data);
        assert!(
            fixtures::kind(&findings, FindingKind::Source).is_empty()
                && fixtures::kind(&findings, FindingKind::Advice).is_empty()
        );
        assert_eq!(fixtures::texts(&Fleet.conclude(&Dataset::default())), ["Nothing was measured."]);
    }
}
