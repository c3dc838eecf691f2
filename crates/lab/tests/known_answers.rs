//! Against a server whose limit is known, the lab finds that limit.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use std::time::Duration;

use support::fake::{Fake, Nature};
use support::{Probe, go_ahead_of_others, plan, run};
use weir_lab::experiments;
use weir_measure::statistics::Spread;

/// As many as are served at once; no power of two, so that the first ladder does not meet it.
const LIMIT: usize = 11;
/// Long beside what a machine needs to wake a thread.
const SERVICE: Duration = Duration::from_millis(20);

#[test]
fn the_number_of_connections_that_saturate_is_found_within_five_percent() {
    go_ahead_of_others();
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start(Nature { service: SERVICE, limit: LIMIT, ..Nature::default() });
    let script = directory.path().join("work.sql");
    fs::write(&script, "select 1;\n").unwrap();
    let mut plan = plan(&[("known", fake.url())]);
    plan.asked.quick = true;
    plan.asked.seconds = Some(1);
    plan.wishes.script = Some(script);
    let saturation = experiments::by_name("saturation").unwrap();
    let (result, data) = run(saturation, &plan, &directory.path().join("out"));
    result.unwrap();

    let curve = data.line("", "known").unwrap().curve("tps");
    #[expect(clippy::cast_precision_loss)]
    let limit = LIMIT as f64;
    // What is measured is what was programmed: no more than the limit is served, and below it nobody waits.
    let served = |tps: f64| tps * SERVICE.as_secs_f64();
    let most = Spread::of(curve.iter().map(|(_, tps)| *tps)).unwrap().high;
    assert!((served(most) / limit - 1.0).abs() < 0.05, "{curve:?}");
    // What a reader is told.
    let findings = saturation.conclude(&data);
    let told = findings.iter().find(|finding| finding.text.contains(&format!(" {LIMIT} connections")));
    assert!(told.is_some(), "{findings:#?} {curve:?}");
}

/// As many direct connections are: each fills its caches before it answers for the first time.
#[test]
fn slow_first_queries_are_not_counted() {
    go_ahead_of_others();
    let directory = tempfile::tempdir().unwrap();
    let slow = Nature { service: SERVICE, limit: LIMIT, first: Duration::from_millis(1_500), ..Nature::default() };
    let (fake, like_it) = (Fake::start(slow.clone()), Fake::start(Nature { first: Duration::ZERO, ..slow }));
    let plan = plan(&[("slow", fake.url()), ("quick", like_it.url())]);
    let (result, data) = run(&Probe { places: 2 }, &plan, directory.path());
    result.unwrap();
    for x in [1.0, 2.0] {
        let tps = |target: &str| data.line("", target).unwrap().at(x).unwrap().median("tps").unwrap();
        assert!(tps("slow") / tps("quick") > 0.6, "{} of {}", tps("slow"), tps("quick"));
    }
    let point = &data.line("", "slow").unwrap().at(2.0).unwrap().points[0];
    assert!(point.seconds.warm_up >= 2 && point.seconds.per_second[0] < 10.0, "{:?}", point.seconds);
    assert!(point.commands[0].contains(&format!("-T {}", point.seconds.per_second.len())), "{:?}", point.commands);
}

/// A database that knows nothing of pgbench: the script is all that it takes.
#[test]
fn own_work_needs_no_tables_of_ours() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start(Nature { tables: false, ..Nature::default() });
    let script = directory.path().join("work.sql");
    fs::write(&script, "select 1;\n").unwrap();
    let saturation = experiments::by_name("saturation").unwrap();
    let mut wished = plan(&[("theirs", fake.url())]);
    wished.asked.quick = true;
    (wished.wishes.clients, wished.wishes.warm_up) = (vec![1, 2], Some(0));
    let (result, data) = run(saturation, &wished, &directory.path().join("without"));
    assert!(result.is_err() && data.absent[0].reason.contains("has no tables of pgbench"), "{:?}", data.absent);
    wished.wishes.script = Some(script);
    // Where nothing was measured, another command is no other run.
    let (result, data) = run(saturation, &wished, &directory.path().join("without"));
    result.unwrap();
    assert_eq!(data.line("", "theirs").unwrap().curve("tps").iter().map(|(x, _)| *x).collect::<Vec<_>>(), [1.0, 2.0]);
}
