//! Published peaks, and what simple models say of them: of clusters of several sizes, and of queues whose service time is known.
//!
//! A peak is one figure, not a series: no law can be fitted to it, and no bounds be given.

use super::queueing::Station;
use super::words::number;

/// A prediction beside what was published.
pub struct Row {
    pub series: String,
    /// What the prediction was drawn from.
    pub fitted: String,
    /// Where it was made.
    pub at: String,
    pub published: f64,
    /// `None` where there is no prediction.
    pub predicted: Option<f64>,
    /// The bounds, or why there are none.
    pub bounds: String,
}

/// A cluster at its peak (Microsoft 2026).
#[derive(Clone, Copy)]
struct Peak {
    name: &'static str,
    tps: f64,
    clients: f64,
}

const fn peak(name: &'static str, tps: f64, clients: f64) -> Peak {
    Peak { name, tps, clients }
}

/// In the source's order: twice the nodes of the first, twice the cores of the first, both.
const SINGLE_SHARD: [Peak; 4] = [
    peak("4 nodes of 2 cores", 11_400.0, 64.0),
    peak("8 nodes of 2 cores", 19_400.0, 192.0),
    peak("4 nodes of 4 cores", 27_500.0, 128.0),
    peak("8 nodes of 4 cores", 48_300.0, 224.0),
];
const FAN_OUT: [Peak; 4] = [
    peak("4 nodes of 2 cores", 52.0, 8.0),
    peak("8 nodes of 2 cores", 168.0, 8.0),
    peak("4 nodes of 4 cores", 489.0, 32.0),
    peak("8 nodes of 4 cores", 1_008.0, 96.0),
];

/// What is predicted of a peak.
type Figure = fn(&Peak) -> f64;

/// The first half of each is two sizes that differ in nodes only; three sizes predict the fourth if cores and nodes each bring
/// their own factor.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, peaks) in [("single-shard", SINGLE_SHARD), ("fan-out", FAN_OUT)] {
        let figures: [(&str, Figure); 2] =
            [("peak TPS", |peak| peak.tps), ("clients at the peak", |peak| peak.clients)];
        for (figure, of) in figures {
            let [first, more_nodes, more_cores, both] = &peaks;
            let row = |predicted_from: &str, at: &Peak, predicted: Option<f64>, bounds: &str| Row {
                series: format!("{name}: {figure} (Microsoft 2026)"),
                fitted: predicted_from.to_owned(),
                at: at.name.to_owned(),
                published: of(at),
                predicted,
                bounds: bounds.to_owned(),
            };
            let nodes_only = "cannot be told: the two sizes differ in nodes only, this one in cores";
            rows.push(row("the first 2 sizes", more_cores, None, nodes_only));
            let product = of(more_nodes) * of(more_cores) / of(first);
            rows.push(row("the first 3 sizes", both, Some(product), "cannot be told: 3 figures for 3 coefficients"));
        }
    }
    rows
}

/// What is known of a service: how many servers, what their throughput is when all are busy, and how long clients think.
pub fn queues() -> Vec<Row> {
    let one_figure = "cannot be told: one figure".to_owned();
    // The source saw the process use 97 % of a core at its peak (ClickHouse 2026).
    let pgbouncer = Station { service: 0.97 / 86_570.0, servers: 1, think: 0.0 };
    let walls = [(128, 83_463.0), (256, 76_893.0)].map(|(clients, published)| Row {
        series: "fleet: one PgBouncer (ClickHouse 2026), TPS, as a closed queue".to_owned(),
        fitted: "97 % of a core at 64 clients".to_owned(),
        at: format!("{} clients", number(f64::from(clients))),
        published,
        predicted: pgbouncer.with(clients as usize).map(|load| load.throughput),
        bounds: one_figure.clone(),
    });
    // 40 hardware threads were busy with 48 clients; a millisecond of network and one of processing (Freund 2020).
    let threads = 40;
    let delayed = Station { service: f64::from(threads) / 1_032_435.0, servers: threads as usize, think: 0.002 };
    let delays = Row {
        series: "delays: clients at the peak (Freund 2020), as a closed queue".to_owned(),
        fitted: "1,032,435 TPS of 40 threads without delays".to_owned(),
        at: "2 ms of delays".to_owned(),
        published: 3_000.0,
        predicted: Some(delayed.knee()),
        bounds: "from here on clients wait; cannot be told: one figure".to_owned(),
    };
    walls.into_iter().chain([delays]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::values;
    use crate::experiments;

    fn has(experiment: &str, point: (f64, f64)) -> bool {
        let about = experiments::by_name(experiment).unwrap().about();
        about.published.iter().any(|published| published.key == values::TPS && published.points.contains(&point))
    }

    #[test]
    fn figures_are_those_of_the_experiments() {
        for peak in SINGLE_SHARD {
            assert!(has("single-shard", (peak.clients, peak.tps)), "{}", peak.name);
        }
        for peak in FAN_OUT {
            assert!(has("fan-out", (peak.clients, peak.tps)), "{}", peak.name);
        }
        assert!([(64.0, 86_570.0), (128.0, 83_463.0), (256.0, 76_893.0)].iter().all(|point| has("fleet", *point)));
        assert!(has("idle", (0.0, 1_032_435.0)));
    }
}
