//! `mostly-idle`: active connections beside more and more that send a query now and then.

use super::beside::{self, Reference};
use super::places::{self, Room};
use super::sources::{FREUND_2020, freund_2020};
use super::words;
use crate::dataset::Dataset;
use crate::experiment::{About, Axis, Course, Experiment, Finding, values};
use crate::run::Site;
use crate::targets::{Needs, Target};
use weir_measure::journal::{Point, Preset, Sizes};
use weir_measure::load::Script;

pub struct MostlyIdle;

const OTHERS: &str = "mostly idle connections";
const INSTEAD: &str = "use fewer and busier connections, with a pool in the application";
/// The query of pgbench's select-only script, after a pause.
const SCRIPT: &str = "\\sleep 100 ms\n\
    \\set aid random(1, 100000 * :scale)\n\
    SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n";
/// Queries per second of each, at most.
const QUERIES_EACH: f64 = 10.0;
const SOURCE_OTHERS: [usize; 6] = [0, 100, 1_000, 2_500, 5_000, 10_000];
const SOURCE_THREADS: usize = 40;
/// A query that costs so many of others costs more than itself.
const DEAR: f64 = 1.5;
/// Of footnote 8.
const ONE_ACTIVE: &[(f64, f64)] = &[
    (0.0, 33_773.0),
    (100.0, 29_074.0),
    (1_000.0, 25_327.0),
    (2_500.0, 19_752.0),
    (5_000.0, 9_807.0),
    (10_000.0, 6_049.0),
];
const MANY_ACTIVE: &[(f64, f64)] = &[
    (0.0, 1_040_616.0),
    (100.0, 953_755.0),
    (1_000.0, 759_366.0),
    (2_500.0, 733_000.0),
    (5_000.0, 636_057.0),
    (10_000.0, 416_819.0),
];

static ABOUT: About = About {
    name: "mostly-idle",
    title: "Active connections beside mostly idle ones",
    question: "How much slower do the connections that work become when many others send a query every 100 ms?",
    method: &[
        "As in `idle`, but each of the other connections sleeps 100 ms at the client and then sends one query, again and again. The \
         source shows that sleep; the query behind it is not in its text, so ours sends pgbench's own lookup by key.",
        "The source's 10,000 such connections ask for up to 100,000 queries a second of a machine that did a million. By default ours \
         are fewer in proportion to this machine's cores, so that they ask for about the same share of it; with the source's sizes \
         a small machine is busy with them alone.",
        "What the active connections lose is therefore partly what the others take: the report puts the queries that the others ask \
         for beside what was lost.",
        "1 and 48 active connections as in the source, 48 scaled by cores; measuring begins when all others are connected.",
    ],
    sources: &[FREUND_2020],
    axis: Axis { label: "mostly idle connections", logarithmic: false },
    charts: beside::CHARTS,
    published: &[
        freund_2020("PostgreSQL 12, 1 active (Freund 2020)", values::TPS, ONE_ACTIVE),
        freund_2020("PostgreSQL 12, 48 active (Freund 2020)", values::TPS, MANY_ACTIVE),
    ],
    fit: false,
};

fn others(sizes: &Sizes, room: &Room) -> Vec<f64> {
    let scaled = SOURCE_OTHERS.map(|number| number * room.cores / SOURCE_THREADS);
    match sizes.preset {
        Preset::Quick => places::up_to(&[scaled[0], scaled[3], scaled[5]], room.connections_max()),
        Preset::Machine => places::up_to(&scaled, room.connections_max()),
        Preset::Source => places::floats(&SOURCE_OTHERS),
    }
}

impl Experiment for MostlyIdle {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn needs(&self, sizes: &Sizes) -> Needs {
        let room = Room::here();
        beside::needs(&others(sizes, &room), sizes, &room)
    }

    fn courses(&self, sizes: &Sizes, targets: &[Target]) -> Vec<Course> {
        let room = Room::here();
        beside::courses(&others(sizes, &room), sizes, &room, targets)
    }

    fn measure(&self, point: &mut Point, site: &mut Site) -> anyhow::Result<()> {
        beside::measure(point, site, &Script::Text { name: "mostly-idle", text: SCRIPT.to_owned() })
    }

    fn conclude(&self, data: &Dataset) -> Vec<Finding> {
        let mut findings = beside::findings(data, OTHERS);
        findings.extend(taken(data));
        findings.extend(beside_source(data));
        findings.extend(beside::advise(data, OTHERS, INSTEAD));
        findings.extend(words::reservations(data, values::TPS));
        findings
    }
}

/// What the busiest line lost, beside what the others asked for.
fn taken(data: &Dataset) -> Option<Finding> {
    let line = super::peaks::direct_lines(data).last()?;
    let (none, last) = (line.at(0.0)?, line.places.last().filter(|place| place.x > 0.0)?);
    let (before, after) = (none.median(values::TPS)?, last.median(values::TPS)?);
    let (lost, asked) = (before - after, last.x * QUERIES_EACH);
    let change = words::Change::of(none, last, values::TPS)?;
    if !change.is_less() {
        return None;
    }
    let each = lost / asked;
    let verdict = if each > DEAR {
        format!(
            "each query of theirs takes the place of about {} of the active connections': waking a process that slept, its caches gone, \
             costs more than the query",
            crate::report::figures::number(each)
        )
    } else {
        "that is about what they took with their queries".to_owned()
    };
    Some(words::shows(format!(
        "{}: {} fewer beside {} that ask for at most {} queries a second: {verdict}.",
        line.name(),
        words::tps(lost),
        words::of(last.x, "other", "others"),
        words::about(asked)
    )))
}

/// Compared at the same share of the machine: the source's places by its cores, ours by ours.
fn beside_source(data: &Dataset) -> Vec<Finding> {
    let cores = words::cores(data);
    if cores == 0 {
        return Vec::new();
    }
    // Ours are scaled up to the source's machine, and then read along its lines.
    let factor = places::floats(&[SOURCE_THREADS])[0] / places::floats(&[cores])[0];
    let mut scaled = data.clone();
    for place in scaled.lines.iter_mut().flat_map(|line| &mut line.places) {
        place.x *= factor;
    }
    let references = [Reference { one: true, points: ONE_ACTIVE }, Reference { one: false, points: MANY_ACTIVE }];
    beside::beside_source(&scaled, &references, "such connections (ours counted per core)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::FindingKind;
    use crate::experiments::fixtures::{self, Facts};

    #[test]
    fn others_follow_the_cores() {
        let room = Room { cores: 2, memory_mib: 24_000, files: 1_000_000 };
        assert_eq!(others(&fixtures::sizes(Preset::Machine), &room), [0.0, 5.0, 50.0, 125.0, 250.0, 500.0]);
        assert_eq!(others(&fixtures::sizes(Preset::Quick), &room), [0.0, 125.0, 500.0]);
        let forty = Room { cores: 40, ..room };
        assert_eq!(others(&fixtures::sizes(Preset::Machine), &forty), [0.0, 100.0, 1_000.0, 2_500.0, 5_000.0]);
    }

    #[test]
    fn what_was_lost_is_weighed_against_what_the_others_asked_for() {
        let data = |last: f64| {
            Facts::new("mostly-idle")
                .run(2)
                .server("direct", 15)
                .line("2 active", "direct", "tps", &[(0.0, 20_000.0), (500.0, last)])
                .end()
                .data()
        };
        let shows = |data: &Dataset| fixtures::kind(&MostlyIdle.conclude(data), FindingKind::Shows).pop();
        assert!(
            shows(&data(14_000.0))
                .unwrap()
                .contains("that ask for at most 5,000 queries a second: that is about what they took")
        );
        assert!(shows(&data(4_000.0)).unwrap().contains("takes the place of about 3.20 of the active"));
        let findings = MostlyIdle.conclude(&data(8_000.0));
        let text = fixtures::kind(&findings, FindingKind::Source).remove(0);
        assert!(
            text.contains(
                "beside 10,000 such connections (ours counted per core) the source's PostgreSQL 12 keeps 40 %"
            ),
            "{text}"
        );
        assert!(
            taken(&data(19_000.0)).is_none()
                && taken(&data(21_000.0)).is_none()
                && taken(&Dataset::default()).is_none()
        );
    }
}
