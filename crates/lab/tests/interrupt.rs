//! Ctrl-C in mid-run, and going on afterwards. Alone in its program: a signal is for all of it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use support::fake::{Fake, Nature};
use support::{Probe, plan, run};

#[test]
fn what_was_measured_is_kept_and_the_next_run_goes_on_from_there() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start(Nature::default());
    let plan = plan(&[("here", fake.url())]);
    let journal = directory.path().join("results.jsonl");
    let points = move || fs::read_to_string(&journal).unwrap_or_default().matches("\"point\"").count();
    let person = thread::spawn(move || {
        while points() < 2 {
            thread::sleep(Duration::from_millis(5));
        }
        raise(Signal::SIGINT).unwrap();
    });
    let (result, data) = run(&Probe { places: 5 }, &plan, directory.path());
    person.join().unwrap();
    assert!(result.unwrap_err().to_string().starts_with("interrupted"));
    let before = data.line("", "here").unwrap().curve("tps");
    assert!((2..5).contains(&before.len()) && !data.complete, "{before:?}");

    let (result, data) = run(&Probe { places: 5 }, &plan, directory.path());
    result.unwrap();
    let after = data.line("", "here").unwrap().curve("tps");
    assert!(after.len() == 5 && before.iter().all(|point| after.contains(point)), "{before:?} {after:?}");
    assert!(data.complete && data.runs.len() == 2);
}
