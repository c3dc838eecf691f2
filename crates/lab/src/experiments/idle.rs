//! `idle`: active connections beside more and more that do nothing.

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

pub struct Idle;

const OTHERS: &str = "idle connections";
const INSTEAD: &str =
    "close idle connections in the applications after some minutes (idle_session_timeout since version 14)";
const SCRIPT: &str = "\\sleep 1 s\n";
const SOURCE_IDLE: [usize; 6] = [0, 100, 1_000, 2_500, 5_000, 10_000];
/// Opening a connection takes a millisecond or two, and many times that where others want the cores: so many fit into a quick look.
const QUICK_IDLE: [usize; 3] = [0, 250, 1_000];
/// Of footnote 7.
const ONE_ACTIVE: &[(f64, f64)] = &[
    (0.0, 33_457.0),
    (100.0, 33_705.0),
    (1_000.0, 30_558.0),
    (2_500.0, 26_075.0),
    (5_000.0, 23_284.0),
    (10_000.0, 14_496.0),
];
const MANY_ACTIVE: &[(f64, f64)] = &[
    (0.0, 1_032_435.0),
    (100.0, 960_847.0),
    (1_000.0, 902_109.0),
    (2_500.0, 759_723.0),
    (5_000.0, 702_680.0),
    (10_000.0, 521_558.0),
];

static ABOUT: About = About {
    name: "idle",
    title: "Active connections beside idle ones",
    question: "How much slower do the connections that work become when thousands of others are open and do nothing?",
    method: &[
        "As in the source two pgbench run at once: one only opens connections, whose script is a client-side sleep of 1 s without \
         any query, and the other measures a select-only workload beside them with 1 and with 48 active connections.",
        "48 was what the source's 40 hardware threads peaked at; by default ours takes the same share of this machine's cores, at \
         least 2.",
        "Measuring begins when all idle connections are open, as the source made sure with a changed pgbench; when they do not all \
         come in there is no figure.",
        "Idle connections go up to the source's 10,000 where half of the machine's memory and the limit on open files allow it.",
        "With little to do, a machine's cores sleep between two messages, and a single connection then looks slow until others \
         keep the cores busy. Cores are kept awake where that is possible, and a line that rises with idle connections is said to.",
        "The source measured PostgreSQL 12; version 14 changed how snapshots are taken because of these figures. Several versions \
         side by side show it (--server-version 12,15). Poolers in transaction mode are measured too: the idle connections are \
         theirs then, not the server's.",
    ],
    sources: &[FREUND_2020],
    axis: Axis { label: "idle connections", logarithmic: false },
    charts: beside::CHARTS,
    published: &[
        freund_2020("PostgreSQL 12, 1 active (Freund 2020)", values::TPS, ONE_ACTIVE),
        freund_2020("PostgreSQL 12, 48 active (Freund 2020)", values::TPS, MANY_ACTIVE),
    ],
    fit: false,
};

fn idle(sizes: &Sizes, room: &Room) -> Vec<f64> {
    match sizes.preset {
        Preset::Quick => places::up_to(&QUICK_IDLE, room.connections_max()),
        Preset::Machine => places::up_to(&SOURCE_IDLE, room.connections_max()),
        Preset::Source => places::floats(&SOURCE_IDLE),
    }
}

impl Experiment for Idle {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn needs(&self, sizes: &Sizes) -> Needs {
        let room = Room::here();
        beside::needs(&idle(sizes, &room), sizes, &room)
    }

    fn courses(&self, sizes: &Sizes, targets: &[Target]) -> Vec<Course> {
        let room = Room::here();
        beside::courses(&idle(sizes, &room), sizes, &room, targets)
    }

    fn measure(&self, point: &mut Point, site: &mut Site) -> anyhow::Result<()> {
        beside::measure(point, site, &Script::Text { name: "idle", text: SCRIPT.to_owned() })
    }

    fn conclude(&self, data: &Dataset) -> Vec<Finding> {
        let references = [Reference { one: true, points: ONE_ACTIVE }, Reference { one: false, points: MANY_ACTIVE }];
        let mut findings = beside::findings(data, OTHERS);
        findings.extend(beside::beside_source(data, &references, OTHERS));
        findings.extend(beside::advise(data, OTHERS, INSTEAD));
        findings.extend(words::reservations(data, values::TPS));
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::FindingKind;
    use crate::experiments::fixtures::{self, Facts};

    #[test]
    fn places_follow_memory() {
        let room = Room { cores: 2, memory_mib: 24_000, files: 1_000_000 };
        assert_eq!(idle(&fixtures::sizes(Preset::Machine), &room), [0.0, 100.0, 1_000.0, 2_500.0, 5_000.0]);
        let small = Room { memory_mib: 2_000, ..room };
        assert_eq!(idle(&fixtures::sizes(Preset::Machine), &small), [0.0, 100.0, 400.0]);
        assert_eq!(idle(&fixtures::sizes(Preset::Source), &small).last(), Some(&10_000.0));
    }

    #[test]
    fn the_sources_own_figures_agree_with_it_and_newer_versions_lose_less() {
        let data = |target: &str, major: u32, last: f64| {
            Facts::new("idle")
                .server(target, major)
                .line("48 active", target, "tps", &[(0.0, 1_032_435.0), (5_000.0, last)])
                .end()
                .data()
        };
        let text = |data: &Dataset| fixtures::kind(&Idle.conclude(data), FindingKind::Source).remove(0);
        let agrees = text(&data("PostgreSQL 12", 12, 702_680.0));
        assert!(
            agrees.contains("keeps 68 % of its throughput, PostgreSQL 12 keeps 68 %: the shape agrees"),
            "{agrees}"
        );
        let newer = text(&data("PostgreSQL 15", 15, 1_000_000.0));
        assert!(
            newer.contains("keeps 97 %: less is lost; this is version 15, and version 14 made snapshots cheaper"),
            "{newer}"
        );
        let worse = text(&data("PostgreSQL 15", 15, 400_000.0));
        assert!(worse.contains("more is lost here"), "{worse}");
        assert_eq!(fixtures::texts(&Idle.conclude(&Dataset::default())), ["Nothing was measured."]);
    }
}
