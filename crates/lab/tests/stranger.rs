//! A program that is nobody's here burns a core: it is named, and nothing is concluded. Alone in its file: it would disturb others.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::fake::{Fake, Nature};
use support::{Probe, plan, run};
use weir_lab::conclusions;
use weir_measure::ground::machine::Machine;
use weir_measure::ground::strangers::Look;

/// Until it is dropped.
struct Burner(Pid);

impl Burner {
    /// The shell that starts it is gone at once: it is no child of ours.
    fn start() -> Burner {
        let script = "sh -c 'while :; do :; done' >/dev/null 2>&1 & echo $!";
        let output = Command::new("sh").args(["-c", script]).output().unwrap();
        Burner(Pid::from_raw(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()))
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGKILL).unwrap();
    }
}

#[test]
fn a_stranger_that_burns_a_core_is_named() {
    // In a container that may use a part of the cores, strangers are not ours to tell.
    if Look::now(Machine::describe().cores).is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start(Nature::default());
    let burner = Burner::start();
    let (result, data) = run(&Probe { places: 2 }, &plan(&[("here", fake.url())]), directory.path());
    drop(burner);
    result.unwrap();
    for place in &data.line("", "here").unwrap().places {
        assert!(place.forbids.iter().any(|doubt| doubt.contains("used the processor")), "{:?}", place.doubts);
        // What was measured is there all the same.
        assert!(place.median("tps").is_some_and(|tps| tps > 0.0) && place.median("other_cores").is_some(), "{place:?}");
    }
    let reason = conclusions::reason_for_none(&data).unwrap();
    assert!(reason.contains("2 of 2 places are worth nothing"), "{reason}");
}
