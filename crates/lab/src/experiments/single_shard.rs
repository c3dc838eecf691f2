//! `single-shard`: lookups by key in a transaction block, clients raised until throughput falls.

use super::peaks::{self, Climb, Steps};
use super::places;
use super::sources::{MICROSOFT_2026, microsoft_2026 as published};
use super::words;
use crate::dataset::Dataset;
use crate::experiment::{About, Axis, Finding, Published, values};
use crate::targets::Tables;

const SCRIPT: &str = "\\set aid random(1, 100000 * :scale)\n\
    BEGIN;\n\
    SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n\
    END;\n";

/// The source names peaks only; these steps meet all of its peaks, and its two limits of 500 and 1 000 clients.
const SOURCE_CLIENTS: [usize; 15] = [8, 16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 500, 750, 1_000];
/// The source's PgBouncers: 50 server connections on a node of 2 cores.
const POOL_PER_CORE: usize = 25;
const STEPS: Steps = Steps {
    quick_per_core: &[1.0, 2.0, 8.0, 32.0, 100.0],
    per_core_max: 64,
    max_least: 1_000,
    source: &SOURCE_CLIENTS,
    source_threads: Some(16),
};
/// From here on the processor is what limits; the source's peaks had 90 to 97 %.
const CPU_LIMITS_PERCENT: f64 = 90.0;
/// Clients per core of the cluster at the source's peaks: 64/8, 192/16, 128/16, 224/32.
const SOURCE_CLIENTS_PER_CORE: (f64, f64) = (7.0, 12.0);
/// What the source lost through its PgBouncers at the peak.
const SOURCE_POOLER_LOSS: f64 = 0.10;

static ABOUT: About = About {
    name: "single-shard",
    title: "Lookups by key: throughput over clients",
    question: "How many clients give the most throughput with short indexed reads, and what happens with more of them, with and \
               without a pooler?",
    method: &[
        "The source's script, unchanged: a random account is looked up by its key between BEGIN and END, so each transaction is \
         three round trips.",
        "Clients are raised step by step on each target until throughput has clearly fallen or errors come. The peak is the \
         place with the largest median throughput.",
        "The source ran 600 s per step with 16 pgbench threads on a table of 3,000 times 100,000 accounts (38 GB), spread over a \
         cluster of 4 or 8 nodes with Citus, and pgbench on a machine of its own; --source-sizes takes its seconds, threads and \
         scale. Which steps it took between its peaks is not published.",
        "Here one server holds the whole table, so there are no remote shards; unless a target is given elsewhere, pgbench, pooler \
         and server share the machine's cores, and CPU of the machine counts all three.",
        "Around a peak found with doubled numbers of clients two more places are measured, so that it is known within a third.",
        "Poolers hold 25 server connections per core, as the source's PgBouncers did (50 on nodes of 2 cores), in transaction mode.",
    ],
    sources: &[MICROSOFT_2026],
    axis: Axis { label: "clients", logarithmic: true },
    charts: peaks::CHARTS,
    published: &PUBLISHED,
    fit: true,
};

static PUBLISHED: [Published; 8] = [
    published("peak of 4 nodes of 2 cores (Microsoft 2026)", values::TPS, &[(64.0, 11_400.0)]),
    published("peak of 8 nodes of 2 cores (Microsoft 2026)", values::TPS, &[(192.0, 19_400.0)]),
    published("peak of 4 nodes of 4 cores (Microsoft 2026)", values::TPS, &[(128.0, 27_500.0)]),
    published("peak of 8 nodes of 4 cores (Microsoft 2026)", values::TPS, &[(224.0, 48_300.0)]),
    published("peak of 4 nodes of 2 cores (Microsoft 2026)", values::BOX_CPU_PERCENT, &[(64.0, 95.0)]),
    published("peak of 8 nodes of 2 cores (Microsoft 2026)", values::BOX_CPU_PERCENT, &[(192.0, 93.0)]),
    published("peak of 4 nodes of 4 cores (Microsoft 2026)", values::BOX_CPU_PERCENT, &[(128.0, 97.0)]),
    published("peak of 8 nodes of 4 cores (Microsoft 2026)", values::BOX_CPU_PERCENT, &[(224.0, 90.0)]),
];

pub static SINGLE_SHARD: Climb = Climb {
    about: &ABOUT,
    steps: STEPS,
    tables: Tables::Pgbench,
    pool_per_core: POOL_PER_CORE,
    script: SCRIPT,
    queries: "short reads like these",
    source: |data| beside_source(data).into_iter().chain(pooler_beside_source(data)).collect(),
};

/// Whether the processor limits at the peak, and with how many clients per core, as in the source.
fn beside_source(data: &Dataset) -> Option<Finding> {
    let line = peaks::direct_lines(data).last()?;
    let peak = words::Peak::of(line)?;
    let cpu = peak.place.median(values::BOX_CPU_PERCENT)?;
    let found = if cpu >= CPU_LIMITS_PERCENT {
        format!("{} here: the shape agrees, the processor is what limits", words::percent(cpu / 100.0))
    } else {
        format!("only {} here: something else than the processor limits this run", words::percent(cpu / 100.0))
    };
    let cores = words::cores(data);
    let mut text = format!("In the source the CPU is 90 to 97 % busy at each cluster's peak, {found}.");
    if cores > 0 {
        let per_core = peak.place.x / places::floats(&[cores])[0];
        let (low, high) = SOURCE_CLIENTS_PER_CORE;
        text.push_str(&format!(
            " Its peaks lie at {low} to {high} clients per core, ours at {}",
            crate::report::figures::number(per_core)
        ));
        text.push_str(if per_core < low {
            ": there is no network to wait for here, and pgbench takes a part of the cores, so fewer clients fill them."
        } else {
            "."
        });
    }
    Some(words::source(text))
}

/// The source's loss through PgBouncer beside ours.
fn pooler_beside_source(data: &Dataset) -> Option<Finding> {
    let pairs = words::pairs(data);
    let losses: Vec<String> = pairs
        .iter()
        .filter_map(|(direct, pooled)| {
            let (without, with) = (words::Peak::of(direct)?, words::Peak::of(pooled)?);
            let change = words::Change::of(without.place, with.place, values::TPS)?;
            Some(format!("{change} through {}", pooled.name()))
        })
        .collect();
    if losses.is_empty() {
        return None;
    }
    Some(words::source(format!(
        "The source lost about {} of its peak through PgBouncer, which ran on the servers' nodes, and no longer failed with \
         many clients; here the peak is {}. What a pooler costs is CPU that the server and pgbench would use when all share \
         one machine.",
        words::percent(SOURCE_POOLER_LOSS),
        words::list(&losses)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::experiment::{FindingKind, Stop};
    use crate::experiments::fixtures::{self, Facts};
    use crate::experiments::places::Room;
    use crate::targets::Kind;
    use weir_measure::journal::Preset;

    const ROOM: Room = Room { cores: 2, memory_mib: 24_000, files: 1_000_000 };

    #[test]
    fn places_follow_the_preset_and_the_machine() {
        let clients = |preset| STEPS.clients(&fixtures::sizes(preset), &ROOM);
        assert_eq!(clients(Preset::Quick), [2.0, 4.0, 16.0, 64.0, 200.0]);
        assert_eq!(clients(Preset::Machine).last(), Some(&1_000.0));
        for peak in [64.0, 192.0, 128.0, 224.0] {
            assert!(clients(Preset::Source).contains(&peak), "the source's peak {peak}");
        }
        let courses =
            SINGLE_SHARD.courses(&fixtures::sizes(Preset::Quick), &[fixtures::target("direct", Kind::Server)]);
        assert_eq!((courses.len(), courses[0].stop), (1, Stop::Never), "the quick look has few places");
        let courses =
            SINGLE_SHARD.courses(&fixtures::sizes(Preset::Machine), &[fixtures::target("direct", Kind::Server)]);
        assert_eq!(courses[0].stop, Stop::PastPeak);
        let needs = SINGLE_SHARD.needs(&fixtures::sizes(Preset::Source));
        assert!(needs.max_connections > 1_000);
    }

    #[test]
    fn figures_become_a_comparison_with_the_source() {
        let peak = [("tps", 9_000.0), ("box_cpu_percent", 99.0), ("p50_us", 800.0), ("p99_us", 2_100.0)];
        let data = Facts::new("single-shard")
            .run(2)
            .server("direct", 15)
            .pooler("Weir", 15)
            .values("", "direct", 8.0, &peak)
            .line("", "direct", "tps", &[(1.0, 3_000.0), (64.0, 6_000.0)])
            .line("", "Weir", "tps", &[(8.0, 6_700.0), (64.0, 6_750.0)])
            .end()
            .data();
        let findings = SINGLE_SHARD.conclude(&data);
        let sources = fixtures::kind(&findings, FindingKind::Source);
        assert!(sources[0].contains("99 % here: the shape agrees"), "{sources:?}");
        assert!(sources[0].contains("ours at 4: there is no network"), "{sources:?}");
        assert!(sources[1].contains("here the peak is 25 % less through Weir"), "{sources:?}");
        assert_eq!(fixtures::kind(&findings, FindingKind::Advice).len(), 1);
    }

    #[test]
    fn nothing_is_concluded_from_nothing() {
        let findings = SINGLE_SHARD.conclude(&Dataset::default());
        assert_eq!(fixtures::texts(&findings), ["Nothing was measured."]);
        let alone = Facts::new("single-shard").line("", "somewhere", "tps", &[(8.0, 10.0)]).data();
        assert!(
            fixtures::kind(&SINGLE_SHARD.conclude(&alone), FindingKind::Source).is_empty(),
            "no CPU, no server: no comparison"
        );
    }
}
