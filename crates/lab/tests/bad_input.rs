//! What may be wrong with a run: each time a clear sentence, and what was measured is kept.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::fake::{Fake, Nature};
use support::{Probe, cluster, plan, run, tools};
use weir_measure::ground::running::free_port;
use weir_measure::url::Url;

#[test]
fn an_endpoint_that_refuses_is_left_out_and_the_other_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start(Nature::default());
    let nobody = Url::loopback(free_port().unwrap(), "someone", "somewhere");
    let (result, data) = run(&Probe { places: 2 }, &plan(&[("gone", nobody), ("here", fake.url())]), directory.path());
    result.unwrap();
    let absent: Vec<_> = data.absent.iter().map(|absent| (absent.target.as_str(), absent.x)).collect();
    assert_eq!(absent, [("gone", None)]);
    assert!(data.absent[0].reason.contains("Connection refused"), "{}", data.absent[0].reason);
    let line = data.line("", "here").unwrap();
    assert_eq!(line.curve("tps").len(), 2);
    assert!(data.complete);
}

#[test]
fn a_wrong_password_is_said_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start(Nature { password: Some("right"), ..Nature::default() });
    let url = |password: &str| format!("{} password={password}", fake.url().conninfo()).parse::<Url>().unwrap();
    let plan = plan(&[("wrong", url("hunter2")), ("right", url("right"))]);
    let (result, data) = run(&Probe { places: 1 }, &plan, directory.path());
    result.unwrap();
    assert!(data.absent[0].reason.contains("password authentication failed"), "{}", data.absent[0].reason);
    assert_eq!(data.line("", "right").unwrap().curve("tps").len(), 1);
    let journal = fs::read_to_string(directory.path().join("results.jsonl")).unwrap();
    assert!(!journal.contains("hunter2") && !journal.contains("password=right"), "{journal}");
    // The same again, with the right one.
    let (result, data) =
        run(&Probe { places: 1 }, &self::plan(&[("wrong", url("right")), ("right", url("right"))]), directory.path());
    result.unwrap();
    assert!(data.complete && data.absent.is_empty(), "{:?}", data.absent);
    assert_eq!([data.line("", "wrong"), data.line("", "right")].map(|line| line.unwrap().curve("tps").len()), [1, 1]);
}

#[test]
fn a_cluster_without_one_of_its_nodes_is_another_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start(Nature::default());
    let nobody = Url::loopback(free_port().unwrap(), "someone", "somewhere");
    let plan = plan(&[("whole", cluster(&[&fake.url(), &nobody])), ("node", fake.url())]);
    let (result, data) = run(&Probe { places: 1 }, &plan, directory.path());
    result.unwrap();
    assert_eq!(data.absent[0].target, "whole");
    assert!(data.absent[0].reason.contains(&format!("127.0.0.1:{}", nobody.port())), "{}", data.absent[0].reason);
    assert!(data.absent[0].reason.contains("Connection refused"), "{}", data.absent[0].reason);
}

#[test]
fn nothing_to_measure_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let nobody = Url::loopback(free_port().unwrap(), "someone", "somewhere");
    let (result, data) = run(&Probe { places: 1 }, &plan(&[("gone", nobody)]), directory.path());
    assert!(result.unwrap_err().to_string().contains("nothing to measure"));
    assert!(!data.complete);
}

#[test]
fn a_measurement_that_is_over_before_it_began_is_no_zero() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start(Nature { service: Duration::from_millis(2500), ..Nature::default() });
    let mut plan = plan(&[("slow", fake.url())]);
    plan.wishes.warm_up = Some(0);
    let (result, data) = run(&Probe { places: 1 }, &plan, directory.path());
    result.unwrap();
    let place = &data.line("", "slow").unwrap().places[0];
    assert_eq!(place.median("tps"), None);
    assert!(place.errors.keys().any(|kind| kind.starts_with("no transaction ended in time")), "{:?}", place.errors);
}

#[test]
fn a_target_that_dies_leaves_the_others_alone() {
    let directory = tempfile::tempdir().unwrap();
    let well = Fake::start(Nature::default());
    // More than any one place takes, and less than all of them.
    let ill = Fake::start(Nature { dies_after: Some(4_200), ..Nature::default() });
    let (result, data) =
        run(&Probe { places: 4 }, &plan(&[("ill", ill.url()), ("well", well.url())]), directory.path());
    result.unwrap();
    assert!(ill.queries() >= 4_200);
    assert_eq!(data.line("", "well").unwrap().curve("tps").len(), 4);
    let places = &data.line("", "ill").unwrap().places;
    // A crash is no limit: there is no figure of it, and no error.
    assert!(places.len() < 4 && places.iter().all(|place| place.errors.is_empty()), "{places:?}");
    let crash = data.absent.iter().find(|absent| absent.target == "ill" && absent.x.is_some()).unwrap();
    assert!(crash.reason.contains("died") && data.line("", "ill").unwrap().at(crash.x.unwrap()).is_none(), "{crash:?}");
    let whole = data.absent.iter().find(|absent| absent.target == "ill" && absent.x.is_none()).unwrap();
    assert!(whole.reason.contains("Connection refused"), "{}", whole.reason);
    assert!(data.complete);
}

#[test]
fn a_pgbench_that_is_missing_or_old_is_said() {
    let missing = tools(Some(Path::new("/no/such/pgbench"))).err().unwrap();
    assert!(format!("{missing:#}").starts_with("cannot run /no/such/pgbench --version"), "{missing:#}");
    let directory = tempfile::tempdir().unwrap();
    let old = directory.path().join("pgbench");
    fs::write(&old, "#!/bin/sh\necho 'pgbench (PostgreSQL) 11.22'\n").unwrap();
    fs::set_permissions(&old, Permissions::from_mode(0o755)).unwrap();
    let error = tools(Some(&old)).err().unwrap().to_string();
    assert!(error.contains("is of version 11, and at least 14 is needed"), "{error}");
    fs::write(&old, "#!/bin/sh\necho something else\n").unwrap();
    assert!(tools(Some(&old)).err().unwrap().to_string().ends_with("that is no pgbench"));
}

#[test]
fn other_sizes_do_not_go_into_one_journal() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::start(Nature::default());
    let mut longer = plan(&[("here", fake.url())]);
    // Not measured to its end, so that it can be gone on with.
    let (result, _) = run(&Probe { places: 1 }, &longer, directory.path());
    result.unwrap();
    let journal = directory.path().join("results.jsonl");
    fs::write(&journal, without_end(&journal)).unwrap();
    longer.asked.seconds = Some(2);
    let (result, data) = run(&Probe { places: 1 }, &longer, directory.path());
    assert!(result.unwrap_err().to_string().contains("holds a run with other sizes"));
    assert_eq!(data.line("", "here").unwrap().curve("tps").len(), 1);
}

/// The journal as a run leaves it that was not measured to its end.
fn without_end(journal: &Path) -> String {
    let text = fs::read_to_string(journal).unwrap();
    text.lines().filter(|line| !line.contains("\"end\"")).map(|line| format!("{line}\n")).collect()
}

/// Of tmpfs, and of every usual disk.
const PAGE_BYTES: usize = 4096;

/// A disk of one's own, if we may make one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=16k", "tmpfs"]).arg(directory.path()).output();
        mount.is_ok_and(|output| output.status.success()).then_some(SmallDisk(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_disk_that_fills_ends_the_run_and_keeps_what_it_holds() {
    // Only root may mount; everybody has the journal's own test against /dev/full.
    let Some(disk) = SmallDisk::mount() else { return };
    let directory = disk.0.path().join("run");
    let fake = Fake::start(Nature::default());
    let plan = plan(&[("here", fake.url())]);
    let (result, _) = run(&Probe { places: 1 }, &plan, &directory);
    result.unwrap();
    let journal = directory.join("results.jsonl");
    let mut kept = without_end(&journal);
    // So that the page on which the file ends is full too.
    let note = |text: &str| format!("{{\"kind\":\"note\",\"experiment\":\"probe\",\"text\":\"{text}\"}}\n");
    let room = PAGE_BYTES - (kept.len() + note("").len()) % PAGE_BYTES;
    kept.push_str(&note(&"x".repeat(room)));
    fs::write(&journal, &kept).unwrap();
    fill(&disk.0.path().join("filler"));
    let (result, data) = run(&Probe { places: 2 }, &plan, &directory);
    let error = format!("{:#}", result.unwrap_err());
    assert!(error.contains("what it holds is kept") && error.contains("No space left on device"), "{error}");
    assert_eq!(data.line("", "here").unwrap().curve("tps").len(), 1);
    assert!(fs::read_to_string(&journal).unwrap().starts_with(&kept));
}

/// Writes until nothing more fits.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[b'x'; PAGE_BYTES]).is_ok() {}
}
