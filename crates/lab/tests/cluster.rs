//! A whole cluster is measured as one target. Alone in its file: figures are taken, and nothing else is to run beside them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::time::Duration;

use support::fake::{Fake, Nature};
use support::{Probe, cluster, go_ahead_of_others, plan, run};

/// Long beside what a machine needs to wake a thread.
const SERVICE: Duration = Duration::from_millis(20);

#[test]
fn the_nodes_of_a_cluster_add_up() {
    go_ahead_of_others();
    let directory = tempfile::tempdir().unwrap();
    let node = || Fake::start(Nature { service: SERVICE, limit: 1, ..Nature::default() });
    let (one, other) = (node(), node());
    let plan = plan(&[("cluster", cluster(&[&one.url(), &other.url()])), ("node", one.url())]);
    let (result, data) = run(&Probe { places: 4 }, &plan, directory.path());
    result.unwrap();
    let tps = |target: &str, x: f64| data.line("", target).unwrap().at(x).unwrap().median("tps").unwrap();
    // Beside one of its nodes, measured at the same time: both are as slow as the machine is.
    let nodes_worth = |x: f64| (tps("cluster", x) / tps("node", x)).round();
    assert_eq!([1.0, 2.0, 3.0, 4.0].map(nodes_worth), [1.0, 2.0, 2.0, 2.0], "{data:?}");
    assert!(data.targets[0].version.ends_with("(2 nodes)"), "{}", data.targets[0].version);
}
