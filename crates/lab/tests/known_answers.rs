//! Against a server whose limit is known, the lab finds that limit.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use std::time::Duration;

use support::fake::{Fake, Nature};
use support::{go_ahead_of_others, plan, run};
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
