//! `max-connections`: what the setting costs by itself, and what sleeping connections cost those that work.

use std::thread;
use std::time::{Duration, Instant};

use super::beside;
use super::places::{self, Room};
use super::sources::{CYBERTEC_2014, FREUND_2020};
use super::words::{self, Change};
use crate::dataset::{Dataset, Line, Place};
use crate::experiment::{About, Axis, Better, Chart, Course, Experiment, Finding, Published, Stop, values};
use crate::report::figures::number;
use crate::run::Site;
use crate::targets::{Needs, Tables, Target};
use weir_measure::journal::{Point, Preset, Sizes};
use weir_measure::load::{Load, Protocol, Script};
use weir_measure::statistics;

pub struct MaxConnections;

/// Series: how many work, and what the rest of the connections do.
const ALLOWED: &str = "8 working, the rest only allowed";
const SLEEPING: &str = "8 working, the rest asleep";
const SLEEPING_MORE: &str = "32 working, the rest asleep";
/// By which the lab knows its own sleepers among the sessions of a server.
const SLEEPER: &str = "AS weir_lab_sleeper";
/// The measurement beside them is given up a minute after its time: none wakes up before, and none outlives a pgbench that was
/// killed for much longer.
const SLEEP_BEYOND_SECONDS: u64 = 90;
/// With each node that is asked to end them.
const END_PATIENCE: Duration = Duration::from_secs(15);
/// Until all have ended: thousands of backends take a while.
const ENDING_PATIENCE: Duration = Duration::from_secs(30);
const ENDING_PAUSE: Duration = Duration::from_millis(100);
/// Reads all of the table and its index into the buffers of a server that was just restarted.
const WARM: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0;\n\
    SELECT sum(abalance) FROM pgbench_accounts WHERE aid > 0;";
/// The source names 1,024; its other settings are a picture.
const SOURCE_CONNECTIONS: [usize; 7] = [32, 64, 128, 256, 512, 768, 1_024];
const MACHINE_CONNECTIONS: [usize; 5] = [50, 200, 1_000, 4_000, 10_000];
const QUICK_CONNECTIONS: [usize; 3] = [50, 250, 1_000];
/// MiB of shared memory that the server reserves, as version 15 and later say it.
const SHARED_MIB: &str = "shared_memory_mib";
const SHARED_MEMORY_SINCE: u32 = 15;
/// The version since which a snapshot no longer looks at every connection.
const SNAPSHOTS_SCALE_SINCE: u32 = 14;
/// Throughput that falls by less has not fallen.
const FLAT: f64 = 0.05;

static ABOUT: About = About {
    name: "max-connections",
    title: "max_connections, and connections that sleep",
    question: "Does a high max_connections cost anything by itself, and what do connections that are open but asleep cost those that work?",
    method: &[
        "First max_connections rises while 8 connections work: the server is restarted with each value, and reads its table before \
         it is measured. pgbench runs select-only with \
         prepared statements (-S -M prepared), as the source did for 20 minutes at scale 100 with shared_buffers of 2 GB.",
        "Then max_connections stays as it is, and 8, and 32, connections work while all others up to the number on the axis run \
         pg_sleep. The source raised max_connections along with them; keeping it shows one cause at a time.",
        "A session in pg_sleep holds a snapshot, an idle one does not; both are open backends. They are ended before the next \
         measurement, on every node of a cluster, and also after an error or Ctrl-C.",
        "The source's text gives one figure, 150,000 TPS whatever max_connections is, and that sleeping connections cost a little \
         with 8 and clearly more with 32 working ones. Its curves are pictures, so only that figure is drawn, up to the largest number \
         it names.",
        "The shared memory that the server reserves is read beside (version 15 and later say it), for Freund's figures: 16,804 MiB with \
         max_connections of 100 and 21,463 MiB with 100,000, shared_buffers 16 GB.",
        "Poolers are not measured: with a pooler in transaction mode sessions in pg_sleep would occupy all of its server connections.",
    ],
    sources: &[CYBERTEC_2014, FREUND_2020],
    axis: Axis { label: "connections allowed, or open", logarithmic: true },
    charts: &[
        Chart {
            title: "Throughput of the working connections",
            key: values::TPS,
            unit: "transactions/s",
            better: Better::Higher,
        },
        Chart {
            title: "Latency of the working connections, 99th percentile",
            key: values::P99_US,
            unit: "µs",
            better: Better::Lower,
        },
        Chart { title: "CPU of the machine", key: values::BOX_CPU_PERCENT, unit: "%", better: Better::Neither },
        Chart { title: "Shared memory reserved by the server", key: SHARED_MIB, unit: "MiB", better: Better::Lower },
        Chart { title: "Private memory of the server", key: values::SERVER_MIB, unit: "MiB", better: Better::Lower },
    ],
    published: &[
        Published {
            name: "8 working, the rest only allowed (Cybertec 2014)",
            setting: "8 AMD cores at 4 GHz, 16 GB, scale 100; one figure for all settings",
            key: values::TPS,
            points: &[(8.0, 150_000.0), (1_024.0, 150_000.0)],
        },
        Published {
            name: "PostgreSQL 12 or 13, shared_buffers 16 GB (Freund 2020)",
            setting: "2 Xeon Gold 5215, 192 GiB",
            key: SHARED_MIB,
            points: &[(100.0, 16_804.0), (100_000.0, 21_463.0)],
        },
    ],
    fit: false,
};

fn connections(sizes: &Sizes, room: &Room) -> Vec<f64> {
    match sizes.preset {
        Preset::Quick => places::up_to(&QUICK_CONNECTIONS, room.connections_max()),
        Preset::Machine => places::up_to(&MACHINE_CONNECTIONS, room.connections_max()),
        Preset::Source => places::floats(&SOURCE_CONNECTIONS),
    }
}

/// Of `32 working, ...`.
fn working(series: &str) -> usize {
    series.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(1)
}

impl Experiment for MaxConnections {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn needs(&self, sizes: &Sizes) -> Needs {
        places::needs(places::most(&connections(sizes, &Room::here())), Tables::Pgbench, &[], 0)
    }

    fn courses(&self, sizes: &Sizes, targets: &[Target]) -> Vec<Course> {
        let xs = connections(sizes, &Room::here());
        let course = |series, target| Course::new(series, target, &xs, Stop::Never);
        let mut courses = Vec::new();
        for target in targets.iter().filter(|target| !target.is_pooler()) {
            // Only the lab's own server is restarted.
            if target.is_direct() {
                courses.push(course(ALLOWED, target));
            }
            courses.push(course(SLEEPING, target));
            courses.push(course(SLEEPING_MORE, target));
        }
        courses
    }

    fn measure(&self, point: &mut Point, site: &mut Site) -> anyhow::Result<()> {
        let working = working(&point.series);
        let mut load = Load::new(Script::SelectOnly, working, site.sizes.seconds);
        load.protocol = Protocol::Prepared;
        if point.series == ALLOWED {
            let setting = format!("max_connections = {}", number_of(point.x));
            site.configure_server(std::slice::from_ref(&setting))?;
            site.psql(WARM)?;
            point.commands.push(setting);
            if site.target.server_major >= SHARED_MEMORY_SINCE {
                note_shared_memory(
                    point,
                    &site.psql("SELECT pg_size_bytes(current_setting('shared_memory_size')) / 1048576;")?,
                );
            }
            return site.measure(point, &load);
        }
        if site.target.is_direct() {
            site.configure_server(&[])?;
            site.psql(WARM)?;
        }
        beside_sleepers(point, site, &load)
    }

    fn conclude(&self, data: &Dataset) -> Vec<Finding> {
        let mut findings = Vec::new();
        for line in &data.lines {
            findings.extend(alone(line));
        }
        findings.extend(shared_memory(data));
        findings.extend(words::errors(data, "connections"));
        findings.extend(allowed_beside_source(data));
        findings.extend(sleeping_beside_source(data));
        findings.extend(advise(data));
        findings.extend(rising(data));
        findings.extend(words::reservations(data, values::TPS));
        findings
    }
}

fn number_of(x: f64) -> usize {
    statistics::count(x)
}

fn note_shared_memory(point: &mut Point, answer: &str) {
    // An answer that is no number leaves the value out.
    if let Ok(mib) = answer.trim().parse() {
        point.values.insert(SHARED_MIB.to_owned(), mib);
    }
}

fn asleep(seconds: u64) -> String {
    format!("SELECT pg_sleep({seconds}) {SLEEPER};\n")
}

/// Says how many it found. It does not find itself: its own query begins otherwise.
fn end_sleepers() -> String {
    format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(%) {SLEEPER}%';"
    )
}

fn beside_sleepers(point: &mut Point, site: &mut Site, load: &Load) -> anyhow::Result<()> {
    let sleepers = statistics::count(point.x).saturating_sub(load.clients);
    if sleepers == 0 {
        return site.measure(point, load);
    }
    let seconds = load.seconds + SLEEP_BEYOND_SECONDS;
    let measured = measure_beside(sleepers, &asleep(seconds), point, site, load);
    // A backend in pg_sleep does not notice that its client is gone: it outlives an error or a stop as well.
    let ended = wake(site);
    if let Err(error) = &ended {
        // Nobody asks for an error after a stop.
        eprintln!(
            "{}: up to {sleepers} sessions in pg_sleep may be left there; they end by themselves within {seconds} seconds: {error:#}",
            site.target.name
        );
    }
    measured.and(ended)?;
    beside::settle(site)
}

fn measure_beside(
    sleepers: usize,
    script: &str,
    point: &mut Point,
    site: &mut Site,
    load: &Load,
) -> anyhow::Result<()> {
    let held = site.hold(sleepers, &Script::Text { name: "asleep", text: script.to_owned() })?;
    point.commands.push(held.command.clone());
    site.measure(point, load)
}

/// Ends the sleepers on every node, and waits until they are gone: one whose query was still on its way is found later.
fn wake(site: &mut Site) -> anyhow::Result<()> {
    let until = Instant::now() + ENDING_PATIENCE;
    loop {
        let answers = site.clear_everywhere(&end_sleepers(), END_PATIENCE)?;
        match beside::sum(&answers) {
            Some(0) => return Ok(()),
            Some(_) if Instant::now() < until => thread::sleep(ENDING_PAUSE),
            Some(left) => anyhow::bail!("{left} sessions in pg_sleep do not end"),
            None => anyhow::bail!("the answer about sessions in pg_sleep is no number: {answers:?}"),
        }
    }
}

/// The first and the last place with figures.
fn ends(line: &Line) -> Option<(&Place, &Place, Change)> {
    let measured = |place: &&Place| place.median(values::TPS).is_some_and(|tps| tps > 0.0);
    let (first, last) = (line.places.iter().find(measured)?, line.places.iter().rfind(measured)?);
    (first.x < last.x).then(|| Some((first, last, Change::of(first, last, values::TPS)?))).flatten()
}

fn alone(line: &Line) -> Option<Finding> {
    let (first, last, change) = ends(line)?;
    let what = if line.series == ALLOWED { "with max_connections of" } else { "with connections open:" };
    Some(words::shows(format!(
        "{}: {} {what} {}, {} with {}: {change}.",
        line.name(),
        words::tps(first.median(values::TPS)?),
        number(first.x),
        words::tps(last.median(values::TPS)?),
        number(last.x)
    )))
}

/// A setting cannot make anything faster: where it seems to, that is how much figures of this run differ by chance.
fn rising(data: &Dataset) -> Vec<Finding> {
    let risen = |line: &Line| {
        let (first, last, change) = ends(line)?;
        change.is_more().then(|| {
            words::caution(format!(
                "{}: {change} with {} than with {} cannot come from the connections; figures of this run differ by that much by chance, and \
                 smaller differences in it mean nothing.",
                line.name(),
                number(last.x),
                number(first.x)
            ))
        })
    };
    data.lines.iter().filter_map(risen).collect()
}

fn series<'a>(data: &'a Dataset, series: &'a str) -> impl Iterator<Item = &'a Line> {
    data.lines.iter().filter(move |line| line.series == series)
}

/// What a connection that is only allowed costs in shared memory.
fn shared_memory(data: &Dataset) -> Option<Finding> {
    let curve = series(data, ALLOWED).map(|line| (line, line.curve(SHARED_MIB))).find(|(_, curve)| curve.len() > 1);
    let (line, curve) = curve?;
    let (first, last) = (curve[0], curve[curve.len() - 1]);
    let each_kib = (last.1 - first.1) / (last.0 - first.0) * 1_024.0;
    Some(words::shows(format!(
        "{}: the server reserves {} MiB of shared memory with max_connections of {} and {} MiB with {}, {} KiB for each connection allowed. \
         In the source it is 48 KiB.",
        line.target,
        words::about(first.1),
        number(first.0),
        words::about(last.1),
        number(last.0),
        number(each_kib)
    )))
}

fn allowed_beside_source(data: &Dataset) -> Option<Finding> {
    let line = series(data, ALLOWED).last()?;
    let (_, last, change) = ends(line)?;
    let verdict = if change.clear && change.ratio < 1.0 - FLAT {
        format!("the shape does not agree: here it is {change} with {}", number(last.x))
    } else {
        "the shape agrees: the setting alone costs nothing that can be seen".to_owned()
    };
    Some(words::source(format!(
        "In the source throughput is flat whatever max_connections is, and Freund saw no difference between 100 and 100,000; {verdict}."
    )))
}

fn sleeping_beside_source(data: &Dataset) -> Vec<Finding> {
    let pairs = series(data, SLEEPING).filter_map(|few| Some((few, data.line(SLEEPING_MORE, &few.target)?)));
    pairs
        .filter_map(|(few, more)| {
            let ((_, last, few_change), (_, _, more_change)) = (ends(few)?, ends(more)?);
            let lost = |change: Change| 1.0 - change.ratio;
            let costs = few_change.is_less() || more_change.is_less();
            let verdict = match (costs, lost(more_change) > lost(few_change) + FLAT) {
                (false, _) if data.major_of(few) >= SNAPSHOTS_SCALE_SINCE => {
                    "sleeping connections cost nothing clear here; snapshots got cheaper in version 14, long after the source"
                }
                (false, _) => "sleeping connections cost nothing clear here",
                (true, true) => "the shape agrees",
                (true, false) => "sleeping connections cost here as well, but not more with 32 working ones",
            };
            Some(words::source(format!(
                "{}: the source lost a little beside sleeping connections with 8 working ones and clearly more with 32. Here, beside up \
                 to {} open ones, it is {few_change} with 8 and {more_change} with 32: {verdict}.",
                few.target,
                number(last.x)
            )))
        })
        .collect()
}

fn advise(data: &Dataset) -> Option<Finding> {
    let flat = |line: &Line| ends(line).is_some_and(|(_, _, change)| !(change.clear && change.ratio < 1.0 - FLAT));
    let allowed = series(data, ALLOWED).last()?;
    let worst = series(data, SLEEPING)
        .chain(series(data, SLEEPING_MORE))
        .filter_map(|line| Some((line, ends(line)?)))
        .min_by(|left, right| left.1.2.ratio.total_cmp(&right.1.2.ratio));
    let setting = if flat(allowed) {
        "max_connections may be higher than what is used: by itself it costs shared memory only, and keeps room for peaks."
    } else {
        "max_connections cost throughput by itself here: set it near what is used."
    };
    let open = worst.filter(|(_, (_, _, change))| change.is_less()).map(|(line, (_, last, change))| {
        format!(
            " Open connections do cost ({change} with {} of them, {}): what should be limited is how many are open, by a pooler.",
            number(last.x),
            line.series
        )
    });
    Some(words::advice(format!("{setting}{}", open.unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::FindingKind;
    use crate::experiments::fixtures::{self, Facts};
    use crate::targets::Kind;
    use crate::targets::PoolerKind;

    #[test]
    fn only_the_labs_own_server_is_restarted_and_poolers_are_left_out() {
        let targets = [
            fixtures::target("direct", Kind::Server),
            fixtures::target("Weir", Kind::Pooler(PoolerKind::Weir)),
            fixtures::target("theirs", Kind::Given),
        ];
        let courses = MaxConnections.courses(&fixtures::sizes(Preset::Source), &targets);
        let lines: Vec<(&str, &str)> =
            courses.iter().map(|course| (course.target.as_str(), course.series.as_str())).collect();
        let expected = [
            ("direct", ALLOWED),
            ("direct", SLEEPING),
            ("direct", SLEEPING_MORE),
            ("theirs", SLEEPING),
            ("theirs", SLEEPING_MORE),
        ];
        assert_eq!(lines, expected);
        assert_eq!((working(ALLOWED), working(SLEEPING), working(SLEEPING_MORE)), (8, 8, 32));
        assert_eq!(courses[0].xs.last(), Some(&1_024.0));
    }

    fn facts(allowed: f64, eight: f64, thirty_two: f64) -> Dataset {
        let line = |last: f64| [(50.0, 20_000.0), (1_000.0, last)];
        Facts::new("max-connections")
            .server("direct", 12)
            .line(ALLOWED, "direct", "tps", &line(allowed))
            .line(ALLOWED, "direct", SHARED_MIB, &[(50.0, 500.0), (1_000.0, 544.0)])
            .line(SLEEPING, "direct", "tps", &line(eight))
            .line(SLEEPING_MORE, "direct", "tps", &line(thirty_two))
            .end()
            .data()
    }

    #[test]
    fn a_server_as_in_the_source_agrees_with_it() {
        let findings = MaxConnections.conclude(&facts(19_900.0, 15_500.0, 12_000.0));
        let source = fixtures::kind(&findings, FindingKind::Source);
        assert!(source[0].contains("the shape agrees"), "{source:?}");
        assert!(source[1].contains("it is 22 % less with 8 and 40 % less with 32: the shape agrees"), "{source:?}");
        let advice = fixtures::kind(&findings, FindingKind::Advice).remove(0);
        assert!(advice.contains("Open connections do cost (40 % less with 1,000 of them, 32 working"), "{advice}");
        let shows = fixtures::kind(&findings, FindingKind::Shows);
        assert!(shows.iter().any(|text| text.contains("47.4 KiB for each connection allowed")), "{shows:?}");
    }

    #[test]
    fn a_newer_server_loses_nothing_and_a_strange_one_is_said_to_differ() {
        let findings = MaxConnections.conclude(&facts(20_100.0, 20_100.0, 19_500.0));
        assert!(fixtures::kind(&findings, FindingKind::Source)[1].contains("cost nothing clear here"));
        assert!(!fixtures::kind(&findings, FindingKind::Advice)[0].contains("Open connections do cost"));
        let findings = MaxConnections.conclude(&facts(30_000.0, 20_100.0, 19_500.0));
        assert!(
            fixtures::kind(&findings, FindingKind::Caution)[0]
                .starts_with("direct, 8 working, the rest only allowed: 50 % more")
        );
        let findings = MaxConnections.conclude(&facts(12_000.0, 20_000.0, 20_000.0));
        assert!(fixtures::kind(&findings, FindingKind::Source)[0].contains("does not agree: here it is 40 % less"));
        assert!(
            fixtures::kind(&findings, FindingKind::Advice)[0].starts_with("max_connections cost throughput by itself")
        );
    }

    #[test]
    fn one_place_says_nothing() {
        let data =
            Facts::new("max-connections").server("direct", 15).line(ALLOWED, "direct", "tps", &[(50.0, 1.0)]).data();
        assert!(fixtures::kind(&MaxConnections.conclude(&data), FindingKind::Shows).is_empty());
        assert!(fixtures::kind(&MaxConnections.conclude(&data), FindingKind::Source).is_empty());
    }

    #[test]
    fn those_that_sleep_are_found_again_and_nobody_else_is() {
        let (asleep, end) = (asleep(100), end_sleepers());
        assert_eq!(asleep, "SELECT pg_sleep(100) AS weir_lab_sleeper;\n");
        let pattern = end.split("LIKE '").nth(1).and_then(|rest| rest.split('\'').next()).unwrap();
        let (begin, rest) = pattern.split_once('%').unwrap();
        let rest = rest.strip_suffix('%').unwrap();
        let matches = |query: &str| query.strip_prefix(begin).is_some_and(|query| query.contains(rest));
        assert!(matches(&asleep) && !matches("SELECT pg_sleep(100)") && !matches(&end));
    }

    #[test]
    fn shared_memory_is_noted_where_the_server_says_it() {
        let mut point = Point::default();
        note_shared_memory(&mut point, "544\n");
        assert_eq!(point.values.get(SHARED_MIB), Some(&544.0));
        note_shared_memory(&mut point, "");
        assert_eq!(point.values.len(), 1);
    }
}
