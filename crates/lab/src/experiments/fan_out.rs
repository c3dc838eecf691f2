//! `fan-out`: sums over many rows in a transaction block, clients raised until throughput falls.

use super::peaks::{self, Climb, Steps};
use super::places;
use super::sources::{MICROSOFT_2026, microsoft_2026 as published};
use super::words;
use crate::dataset::Dataset;
use crate::experiment::{About, Axis, Finding, Published, values};
use crate::targets::Tables;

const SCRIPT: &str = "\\set bid random(1, :scale)\n\
    BEGIN;\n\
    SELECT sum(abalance) FROM pgbench_accounts WHERE bid = :bid;\n\
    END;\n";

/// The source names peaks only (8, 32 and 96 clients); these steps meet them.
const SOURCE_CLIENTS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192];
const STEPS: Steps = Steps {
    quick_per_core: &[0.5, 1.0, 2.0, 4.0, 16.0],
    // So few transactions are under way in a second that each of many clients would wait longer than it is measured.
    per_core_max: 32,
    max_least: 64,
    source: &SOURCE_CLIENTS,
    source_threads: Some(16),
};
/// Sums keep a core busy without a break: two per core cover what little waiting there is.
const POOL_PER_CORE: usize = 2;
/// Peaks up to this many clients per core are few: the source's are 0.5 to 3.
const FEW_CLIENTS_PER_CORE: f64 = 4.0;

static ABOUT: About = About {
    name: "fan-out",
    title: "Sums over many rows: throughput over clients",
    question: "How few clients are enough when each query reads many rows, and what do more of them do to latency?",
    method: &[
        "The source's script, unchanged: the balances of one branch, 100,000 rows, are summed between BEGIN and END; \
         pgbench_accounts has an index on bid.",
        "Clients are raised step by step on each target until throughput has clearly fallen or errors come. The peak is the \
         place with the largest median throughput.",
        "In the source each query went to all 4 or 8 nodes of a cluster, 600 s per step with 16 pgbench threads at scale 3000. \
         Here one server sums alone, so what is repeated is the load on each node, not the coordination between them.",
        "The source's nodes of 2 cores (8 GB) read from disk since the table was larger than memory; by default ours fits into \
         memory, and only --source-sizes can show that effect, on a machine with less than 38 GB.",
        "The source measured no pooler here. Ours hold 2 server connections per core, to see whether a pool that small already \
         gives the peak.",
    ],
    sources: &[MICROSOFT_2026],
    axis: Axis { label: "clients", logarithmic: true },
    charts: peaks::CHARTS,
    published: &PUBLISHED,
    fit: true,
};

static PUBLISHED: [Published; 8] = [
    published("peak of 4 nodes of 2 cores (Microsoft 2026)", values::TPS, &[(8.0, 52.0)]),
    published("peak of 8 nodes of 2 cores (Microsoft 2026)", values::TPS, &[(8.0, 168.0)]),
    published("peak of 4 nodes of 4 cores (Microsoft 2026)", values::TPS, &[(32.0, 489.0)]),
    published("peak of 8 nodes of 4 cores (Microsoft 2026)", values::TPS, &[(96.0, 1_008.0)]),
    // Its "latency at peak" is clients by throughput: the mean.
    published("peak of 4 nodes of 2 cores (Microsoft 2026)", values::MEAN_US, &[(8.0, 150_000.0)]),
    published("peak of 8 nodes of 2 cores (Microsoft 2026)", values::MEAN_US, &[(8.0, 50_000.0)]),
    published("peak of 4 nodes of 4 cores (Microsoft 2026)", values::MEAN_US, &[(32.0, 65_000.0)]),
    published("peak of 8 nodes of 4 cores (Microsoft 2026)", values::MEAN_US, &[(96.0, 95_000.0)]),
];

pub static FAN_OUT: Climb = Climb {
    about: &ABOUT,
    steps: STEPS,
    tables: Tables::PgbenchWithBidIndex,
    pool_per_core: POOL_PER_CORE,
    script: SCRIPT,
    queries: "queries that keep a core busy like these",
    source: |data| beside_source(data).into_iter().collect(),
};

/// Few clients at the peak, and latency that grows past it, as in the source.
fn beside_source(data: &Dataset) -> Option<Finding> {
    let line = peaks::direct_lines(data).last()?;
    let (peak, cores) = (words::Peak::of(line)?, words::cores(data));
    if cores == 0 {
        return None;
    }
    let per_core = peak.enough / places::floats(&[cores])[0];
    let number = crate::report::figures::number(per_core);
    let mut text = "In the source the peak comes with few clients: 0.5 to 3 per core of the cluster.".to_owned();
    text.push_str(&if per_core <= FEW_CLIENTS_PER_CORE {
        format!(
            " Here {number} per core already give {} of the best: the shape agrees.",
            words::percent(words::AS_GOOD_AS_BEST)
        )
    } else {
        format!(
            " Here it takes {number} per core: the shape does not agree; look whether the queries wait for the disk."
        )
    });
    let past = line.places.iter().rfind(|place| place.x > peak.place.x);
    let latency = |place: &crate::dataset::Place| place.median(values::P50_US);
    if let Some((past, before, after)) = past.and_then(|past| Some((past, latency(peak.place)?, latency(past)?))) {
        let (clients, latency) = (past.x / peak.place.x, after / before);
        text.push_str(&format!(
            " Past the peak clients only wait: {} times as many have {} times the latency, as its clusters showed when overloaded.",
            crate::report::figures::number(clients),
            crate::report::figures::number(latency)
        ));
    }
    Some(words::source(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::experiment::FindingKind;
    use crate::experiments::fixtures::{self, Facts};
    use crate::experiments::places::Room;
    use weir_measure::journal::Preset;

    #[test]
    fn places_follow_the_preset_and_the_machine() {
        let room = Room { cores: 2, memory_mib: 24_000, files: 1_000_000 };
        let clients = |preset, room: &Room| STEPS.clients(&fixtures::sizes(preset), room);
        assert_eq!(clients(Preset::Quick, &room), [1.0, 2.0, 4.0, 8.0, 32.0]);
        assert_eq!(clients(Preset::Machine, &room), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
        for peak in [8.0, 32.0, 96.0] {
            assert!(clients(Preset::Source, &room).contains(&peak));
        }
        assert_eq!(clients(Preset::Quick, &Room { cores: 1, ..room }), [1.0, 2.0, 4.0, 16.0]);
    }

    #[test]
    fn few_clients_at_the_peak_agree_with_the_source_and_many_do_not() {
        let data = |places: &[(f64, f64, f64)]| {
            let mut facts = Facts::new("fan-out").run(2).server("direct", 15);
            for (x, tps, p50_us) in places {
                facts = facts.values("", "direct", *x, &[("tps", *tps), ("p50_us", *p50_us)]);
            }
            facts.end().data()
        };
        let few = data(&[(1.0, 30.0, 30_000.0), (2.0, 55.0, 36_000.0), (4.0, 56.0, 70_000.0), (32.0, 54.0, 560_000.0)]);
        let findings = FAN_OUT.conclude(&few);
        let text = fixtures::kind(&findings, FindingKind::Source).remove(0);
        assert!(text.contains("Here 1 per core already give 98 % of the best: the shape agrees."), "{text}");
        assert!(text.contains("8 times as many have 8 times the latency"), "{text}");
        let many = data(&[(1.0, 5.0, 1.0), (32.0, 56.0, 1.0)]);
        assert!(fixtures::kind(&FAN_OUT.conclude(&many), FindingKind::Source)[0].contains("does not agree"));
        assert!(beside_source(&Dataset::default()).is_none());
    }
}
