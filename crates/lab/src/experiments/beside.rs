//! What `idle` and `mostly-idle` share: active connections measured beside many others that do little or nothing.
//!
//! Does not know what the others do.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::peaks;
use super::places::{self, Room};
use super::words::{self, Change};
use crate::dataset::{Dataset, Line, Place};
use crate::experiment::{Better, Chart, Course, Finding, Stop, values};
use crate::run::Site;
use crate::targets::{Needs, Tables, Target};
use weir_measure::journal::{Point, Preset, Role, Sizes};
use weir_measure::load::{Load, Script};
use weir_measure::statistics;

/// The source's: one, and what its 40 threads peaked at.
const SOURCE_ACTIVE: [usize; 2] = [1, 48];
/// The source's 48 on 40 threads.
const ACTIVE_PER_FIVE_CORES: usize = 6;
const ACTIVE_MIN: usize = 2;
const POOL_PER_CORE: usize = 10;
/// The version since which a snapshot no longer looks at every connection.
const SNAPSHOTS_SCALE_SINCE: u32 = 14;
/// Parts of throughput that differ by less are called alike.
const ALIKE: f64 = 0.1;
/// What is lost beside the others below this is not worth doing anything about.
const LITTLE: f64 = 0.1;
const SETTLE_PATIENCE: Duration = Duration::from_secs(30);
const SETTLE_PAUSE: Duration = Duration::from_millis(200);
const COUNT_CONNECTIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend';";

pub const CHARTS: &[Chart] = &[
    Chart {
        title: "Throughput of the active connections",
        key: values::TPS,
        unit: "transactions/s",
        better: Better::Higher,
    },
    Chart {
        title: "Latency of the active connections, median",
        key: values::P50_US,
        unit: "µs",
        better: Better::Lower,
    },
    Chart {
        title: "Latency of the active connections, 99th percentile",
        key: values::P99_US,
        unit: "µs",
        better: Better::Lower,
    },
    Chart { title: "CPU of the machine", key: values::BOX_CPU_PERCENT, unit: "%", better: Better::Neither },
    Chart { title: "CPU of the server", key: values::SERVER_CORES, unit: "cores", better: Better::Neither },
    Chart { title: "Private memory of the server", key: values::SERVER_MIB, unit: "MiB", better: Better::Lower },
    Chart {
        title: "Server connections",
        key: values::SERVER_CONNECTIONS,
        unit: "connections",
        better: Better::Neither,
    },
];

/// One active connection, and as many as keep the machine busy.
pub fn active(sizes: &Sizes, room: &Room) -> [usize; 2] {
    match sizes.preset {
        Preset::Source => SOURCE_ACTIVE,
        Preset::Quick | Preset::Machine => [1, (room.cores * ACTIVE_PER_FIVE_CORES / 5).max(ACTIVE_MIN)],
    }
}

pub fn series(active: usize) -> String {
    format!("{active} active")
}

/// How many are active on a line of this run.
fn active_of(series: &str, sizes: &Sizes, room: &Room) -> anyhow::Result<usize> {
    let known = active(sizes, room).into_iter().find(|active| self::series(*active) == series);
    known.with_context(|| format!("{series} is no line of this experiment"))
}

pub fn needs(others: &[f64], sizes: &Sizes, room: &Room) -> Needs {
    let [_, active] = active(sizes, room);
    places::needs(places::most(others) + active, Tables::Pgbench, &peaks::POOLERS, POOL_PER_CORE * room.cores)
}

/// Both numbers of active connections on every target; the quick look leaves out the single one behind poolers.
pub fn courses(xs: &[f64], sizes: &Sizes, room: &Room, targets: &[Target]) -> Vec<Course> {
    let [one, many] = active(sizes, room);
    let mut courses = Vec::new();
    for target in targets {
        let short = sizes.preset == Preset::Quick && target.is_pooler();
        for active in if short { vec![many] } else { vec![one, many] } {
            courses.push(Course::new(&series(active), target, xs, Stop::Never));
        }
    }
    courses
}

/// Opens the others, measures the active ones beside them, and waits until the others are gone again.
pub fn measure(point: &mut Point, site: &mut Site, script: &Script) -> anyhow::Result<()> {
    let (active, others) = (active_of(&point.series, site.sizes, &Room::here())?, statistics::count(point.x));
    let held = site.hold(others, script)?;
    if others > 0 {
        point.commands.push(held.command.clone());
    }
    let load = Load::new(Script::SelectOnly, active, site.sizes.seconds);
    site.measure(point, &load)?;
    drop(held);
    if others > 0 { settle(site) } else { Ok(()) }
}

/// Waits until the number of connections, of all nodes of a cluster, falls no more: thousands of backends that end would
/// disturb what is measured next.
pub fn settle(site: &mut Site) -> anyhow::Result<()> {
    let (until, mut before) = (Instant::now() + SETTLE_PATIENCE, usize::MAX);
    while Instant::now() < until {
        let Some(left) = sum(&site.psql_everywhere(COUNT_CONNECTIONS)?) else { break };
        if left >= before {
            break;
        }
        before = left;
        site.wait(SETTLE_PAUSE)?;
    }
    Ok(())
}

/// Of what each node counted; `None` when one answers no number.
pub fn sum(answers: &[String]) -> Option<usize> {
    answers.iter().map(|answer| answer.trim().parse::<usize>().ok()).sum()
}

/// What a line keeps of its throughput beside the most others.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    pub line: &'a Line,
    /// Where throughput was best before the others became many: with none of them, unless the machine slept there.
    base: &'a Place,
    pub last: &'a Place,
    pub change: Change,
}

impl Kept<'_> {
    fn of(line: &Line) -> Option<Kept<'_>> {
        let measured = |place: &&Place| place.median(values::TPS).is_some_and(|tps| tps > 0.0);
        let last = line.places.iter().rfind(measured)?;
        let none = line.at(0.0).filter(measured)?;
        if last.x <= 0.0 {
            return None;
        }
        let best = line.peak(values::TPS)?;
        let base = if Change::of(none, best, values::TPS)?.is_more() { best } else { none };
        Some(Kept { line, base, last, change: Change::of(base, last, values::TPS)? })
    }

    /// More others cannot make anything faster.
    fn rose(&self) -> bool {
        self.base.x > 0.0
    }
}

/// What lines keep, what versions and poolers change, and what a connection takes.
pub fn findings(data: &Dataset, others: &str) -> Vec<Finding> {
    let kept: Vec<Kept> = data.lines.iter().filter_map(Kept::of).collect();
    let mut findings: Vec<Finding> = kept.iter().filter_map(|kept| alone(kept, others)).collect();
    findings.extend(versions(data, &kept, others));
    findings.extend(poolers(data, &kept, others));
    findings.extend(memory(data, &kept, others));
    findings.extend(words::errors(data, others));
    findings.extend(kept.iter().filter(|kept| kept.rose()).map(|kept| rising(kept, others)));
    findings
}

/// `None` for a line that only rose: [`rising`] says what there is to say.
fn alone(kept: &Kept, others: &str) -> Option<Finding> {
    if kept.base.x == kept.last.x {
        return None;
    }
    let from = if kept.rose() {
        format!("beside {} {others}", words::about(kept.base.x))
    } else {
        "with nothing beside".to_owned()
    };
    Some(words::shows(format!(
        "{}: {} {from}, {} beside {} {others}: {}.",
        kept.line.name(),
        words::tps(kept.base.median(values::TPS)?),
        words::tps(kept.last.median(values::TPS)?),
        words::about(kept.last.x),
        kept.change
    )))
}

fn rising(kept: &Kept, others: &str) -> Finding {
    words::caution(format!(
        "{}: throughput is higher beside {} {others} than with none. Others cannot make it faster: with too little to do the machine's \
         cores sleep between two messages, and waking them takes longer than the query. What is lost is counted from that place, \
         not from none.",
        kept.line.name(),
        words::about(kept.base.x)
    ))
}

/// What version 14 changed, where servers before and since were measured.
fn versions(data: &Dataset, kept: &[Kept], others: &str) -> Vec<Finding> {
    let servers: Vec<&Kept> =
        kept.iter().filter(|kept| data.role_of(kept.line) == Role::Server && data.major_of(kept.line) > 0).collect();
    let mut findings = Vec::new();
    for old in servers.iter().filter(|kept| data.major_of(kept.line) < SNAPSHOTS_SCALE_SINCE) {
        let newer = |kept: &&&Kept| {
            kept.line.series == old.line.series
                && kept.last.x == old.last.x
                && data.major_of(kept.line) >= SNAPSHOTS_SCALE_SINCE
        };
        for new in servers.iter().filter(newer) {
            let (before, after) = (old.change.kept(), new.change.kept());
            let verdict = if after > before + ALIKE / 2.0 {
                "Since version 14 a snapshot no longer looks at every connection, and that is seen here."
            } else {
                "What version 14 changed for snapshots is not seen here."
            };
            findings.push(words::shows(format!(
                "{}, beside {} {others}: version {} keeps {} of its throughput, version {} {}. {verdict}",
                old.line.series,
                words::about(old.last.x),
                data.major_of(old.line),
                words::percent(before),
                data.major_of(new.line),
                words::percent(after)
            )));
        }
    }
    findings
}

fn poolers(data: &Dataset, kept: &[Kept], others: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (direct, pooled) in words::pairs(data) {
        let find = |line: &Line| kept.iter().find(|kept| kept.line.name() == line.name());
        let (Some(direct), Some(pooled)) = (find(direct), find(pooled)) else { continue };
        let mut text = format!(
            "{}: beside {} {others} {} of the throughput are kept, directly {} beside {}.",
            pooled.line.name(),
            words::about(pooled.last.x),
            words::percent(pooled.change.kept()),
            words::percent(direct.change.kept()),
            words::about(direct.last.x)
        );
        if let Some(connections) = pooled.last.median(values::SERVER_CONNECTIONS) {
            text.push_str(&format!(
                " The server holds {} for all of them.",
                words::of(connections.round(), "connection", "connections")
            ));
        }
        findings.push(words::shows(text));
    }
    findings
}

/// What one of the others takes of the server's memory.
fn memory(data: &Dataset, kept: &[Kept], others: &str) -> Option<Finding> {
    let most = kept
        .iter()
        .filter(|kept| data.role_of(kept.line) == Role::Server)
        .max_by(|left, right| left.last.x.total_cmp(&right.last.x))?;
    let none = most.line.at(0.0)?;
    let grown = |key: &str| Some((most.last.median(key)? - none.median(key)?) / most.last.x);
    let (private, tables) = (grown(values::SERVER_MIB)?, grown(values::SERVER_PAGE_TABLES_MIB)?);
    if private <= 0.0 {
        return None;
    }
    Some(words::shows(format!(
        "{}: each of the {} {others} takes {} MiB of the server's memory ({} private, {} page tables).",
        most.line.target,
        words::about(most.last.x),
        crate::report::figures::number(private + tables),
        crate::report::figures::number(private),
        crate::report::figures::number(tables)
    )))
}

/// A published line beside which a measured one is put.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// How many connections are active on it.
    pub one: bool,
    pub points: &'static [(f64, f64)],
}

/// What the source keeps beside ours, for each line of a server.
pub fn beside_source(data: &Dataset, references: &[Reference], others: &str) -> Vec<Finding> {
    let kept = peaks::direct_lines(data).filter_map(Kept::of);
    kept.filter_map(|kept| {
        let reference = references.iter().find(|reference| reference.one == (kept.line.series == series(1)))?;
        let source = interpolate(reference.points, kept.last.x)? / reference.points.first()?.1;
        let ours = kept.change.kept();
        let major = data.major_of(kept.line);
        let verdict = if (ours - source).abs() <= ALIKE {
            "the shape agrees".to_owned()
        } else if ours > source && major >= SNAPSHOTS_SCALE_SINCE {
            format!("less is lost; this is version {major}, and version 14 made snapshots cheaper")
        } else if ours > source {
            "less is lost here".to_owned()
        } else {
            "more is lost here, on fewer cores that the others share".to_owned()
        };
        Some(words::source(format!(
            "{}: beside {} {others} the source's PostgreSQL 12 keeps {} of its throughput, {} keeps {}: {verdict}.",
            kept.line.series,
            words::about(kept.last.x),
            words::percent(source),
            kept.line.target,
            words::percent(ours)
        )))
    })
    .collect()
}

/// Along straight lines between points in order of x; `None` beyond them.
fn interpolate(points: &[(f64, f64)], x: f64) -> Option<f64> {
    points.windows(2).find(|pair| pair[0].0 <= x && x <= pair[1].0).map(|pair| {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    })
}

/// What to do about connections that do little: by what they cost here, and by what a pooler made of it.
pub fn advise(data: &Dataset, others: &str, instead: &str) -> Option<Finding> {
    let servers = peaks::direct_lines(data).filter_map(Kept::of);
    let worst = servers.min_by(|left, right| left.change.ratio.total_cmp(&right.change.ratio))?;
    let (lost, x) = (1.0 - worst.change.ratio, words::about(worst.last.x));
    if !(worst.change.clear && lost > LITTLE) {
        return Some(words::advice(format!(
            "Up to {x} {others} hardly slow down those that work here; what they take is memory. Set max_connections by memory, \
             not by fear of idle connections."
        )));
    }
    let lost = words::percent(lost);
    let cost = format!("{x} {others} take {lost} of the throughput of those that work ({}).", worst.line.name());
    let pooled = words::pairs(data).into_iter().filter(|(direct, _)| direct.name() == worst.line.name());
    let pooled = pooled.filter_map(|(_, pooled)| Some((pooled.name(), pooled.at(worst.last.x)?)));
    let best = pooled.filter_map(|(name, place)| Some((name, place, place.median(values::TPS)?)));
    let best = best.max_by(|left, right| left.2.total_cmp(&right.2));
    let direct = worst.last.median(values::TPS)?;
    Some(words::advice(match best {
        Some((name, place, tps)) if Change::of(worst.last, place, values::TPS)?.is_more() => format!(
            "{cost} {name} does more beside as many, {} against {}: let a pooler in transaction mode hold them, or {instead}.",
            words::tps(tps),
            words::tps(direct)
        ),
        Some((name, _, tps)) => format!(
            "{cost} A pooler that shares this machine does not do more beside as many ({name} {} against {}), though it keeps the server's \
             connections few. What helps is to {instead}.",
            words::tps(tps),
            words::tps(direct)
        ),
        None => format!("{cost} No pooler was measured beside as many; without one, {instead}."),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::FindingKind;
    use crate::experiments::fixtures::{self, Facts};
    use crate::targets::{Kind, PoolerKind};

    const ROOM: Room = Room { cores: 2, memory_mib: 24_000, files: 1_000_000 };

    #[test]
    fn active_connections_follow_the_cores() {
        assert_eq!(active(&fixtures::sizes(Preset::Machine), &ROOM), [1, 2]);
        assert_eq!(
            active(&fixtures::sizes(Preset::Machine), &Room { cores: 40, ..ROOM }),
            [1, 48],
            "the source's machine"
        );
        assert_eq!(active(&fixtures::sizes(Preset::Source), &ROOM), [1, 48]);
        let of = |series: &str| active_of(series, &fixtures::sizes(Preset::Source), &ROOM);
        assert_eq!((of(&series(1)).unwrap(), of(&series(48)).unwrap()), (1, 48));
        assert_eq!(of("7 active").unwrap_err().to_string(), "7 active is no line of this experiment");
        let targets =
            [fixtures::target("direct", Kind::Server), fixtures::target("Weir", Kind::Pooler(PoolerKind::Weir))];
        let courses = |preset| courses(&[0.0], &fixtures::sizes(preset), &ROOM, &targets).len();
        assert_eq!((courses(Preset::Quick), courses(Preset::Machine)), (3, 4));
    }

    #[test]
    fn idle_connections_that_cost_are_said_to() {
        let data = Facts::new("idle")
            .server("PostgreSQL 12", 12)
            .server("PostgreSQL 15", 15)
            .pooler("Weir, PostgreSQL 15", 15)
            .line("2 active", "PostgreSQL 12", "tps", &[(0.0, 10_000.0), (4_000.0, 4_400.0)])
            .line("2 active", "PostgreSQL 15", "tps", &[(0.0, 10_000.0), (4_000.0, 6_100.0)])
            .values("2 active", "Weir, PostgreSQL 15", 0.0, &[("tps", 9_000.0)])
            .values("2 active", "Weir, PostgreSQL 15", 4_000.0, &[("tps", 8_800.0), ("server_connections", 2.0)])
            .end()
            .data();
        let texts = fixtures::texts(&findings(&data, "idle connections"));
        assert_eq!(
            texts[0],
            "PostgreSQL 12, 2 active: 10,000 TPS with nothing beside, 4,400 TPS beside 4,000 idle connections: 56 % less."
        );
        assert!(
            texts[3].contains("version 12 keeps 44 % of its throughput, version 15 61 %. Since version 14"),
            "{texts:?}"
        );
        assert!(texts[4].contains("98 % of the throughput are kept, directly 61 %"), "{texts:?}");
        assert!(texts[4].ends_with("The server holds 2 connections for all of them."), "{texts:?}");
        let advice = advise(&data, "idle connections", "close them").unwrap();
        assert!(advice.text.starts_with("4,000 idle connections take 56 %"), "{}", advice.text);
    }

    #[test]
    fn a_machine_that_slept_with_nothing_beside_does_not_mislead() {
        let data = Facts::new("idle")
            .server("direct", 15)
            .line("1 active", "direct", "tps", &[(0.0, 9_000.0), (1_000.0, 36_000.0), (4_000.0, 33_000.0)])
            .end()
            .data();
        let findings = findings(&data, "idle connections");
        assert!(
            fixtures::kind(&findings, FindingKind::Shows)[0].contains("beside 1,000 idle connections, 33,000 TPS"),
            "{findings:?}"
        );
        assert!(
            fixtures::kind(&findings, FindingKind::Caution)[0].contains("cores sleep between two messages"),
            "{findings:?}"
        );
        assert!(
            advise(&data, "idle connections", "close them")
                .unwrap()
                .text
                .starts_with("Up to 4,000 idle connections hardly")
        );
        let only_rising = Facts::new("idle").server("direct", 15);
        let only_rising = only_rising.line("1 active", "direct", "tps", &[(0.0, 9_000.0), (4_000.0, 33_000.0)]).data();
        let texts = fixtures::texts(&super::findings(&only_rising, "idle connections"));
        assert!(
            texts.len() == 1 && texts[0].contains("higher beside 4,000 idle connections than with none"),
            "{texts:?}"
        );
    }

    #[test]
    fn memory_of_a_connection_is_what_grew() {
        let measured =
            |tps: f64, mib: f64, tables: f64| [("tps", tps), ("server_mib", mib), ("server_page_tables_mib", tables)];
        let data = Facts::new("idle")
            .server("direct", 15)
            .values("1 active", "direct", 0.0, &measured(10.0, 2.0, 0.2))
            .values("1 active", "direct", 1_000.0, &measured(9.9, 1_502.0, 200.2))
            .data();
        let findings = findings(&data, "idle connections");
        let text = &findings[1].text;
        assert_eq!(
            text,
            "direct: each of the 1,000 idle connections takes 1.70 MiB of the server's memory (1.50 private, 0.20 page tables)."
        );
    }

    #[test]
    fn without_both_ends_nothing_is_said() {
        let data = Facts::new("idle").server("direct", 15).line("1 active", "direct", "tps", &[(0.0, 9_000.0)]).data();
        assert!(
            findings(&data, "idle connections").is_empty() && advise(&data, "idle connections", "close them").is_none()
        );
        let data =
            Facts::new("idle").server("direct", 15).line("1 active", "direct", "tps", &[(500.0, 9_000.0)]).data();
        assert!(findings(&data, "idle connections").is_empty());
    }

    #[test]
    fn what_nodes_count_is_added_up() {
        let sum_of = |answers: [&str; 2]| sum(&answers.map(str::to_owned));
        assert_eq!((sum_of(["12\n", "3\n"]), sum_of(["12\n", ""])), (Some(15), None));
    }

    #[test]
    fn published_lines_are_read_between_their_points_only() {
        let points = [(0.0, 100.0), (10.0, 80.0), (20.0, 40.0)];
        assert_eq!(
            [0.0, 5.0, 15.0, 20.0].map(|x| interpolate(&points, x)),
            [Some(100.0), Some(90.0), Some(60.0), Some(40.0)]
        );
        assert_eq!(interpolate(&points, 21.0), None);
    }
}
