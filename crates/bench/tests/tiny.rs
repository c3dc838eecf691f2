//! Every part of the benchmark at its smallest: it runs, says what it measured, and leaves nothing behind.
//!
//! Its figures mean nothing and are not looked at.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What needs both poolers, or strace, may have no rows here.
const PARTS_WITH_ROWS: [&str; 7] = ["speed", "few", "tls", "connect", "flat", "logins", "big"];

/// The program that `cargo test --workspace` has built beside us, if it has.
fn weir(lab: &Path) -> PathBuf {
    lab.with_file_name("weir")
}

#[test]
fn each_part_runs_and_is_reported() {
    let lab = Path::new(env!("CARGO_BIN_EXE_weir-bench"));
    let results = tempfile::tempdir().unwrap();
    let mut command = Command::new(lab);
    // epoll: containers may forbid io_uring. Peers of whoever runs the test are none of ours.
    command.args(["bench", "--tiny", "--driver", "epoll", "--results"]).arg(results.path());
    command.arg("--weir").arg(weir(lab));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PEER_") || name == "PG_PORT") {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");

    let report = std::fs::read_to_string(results.path().join("report.md")).unwrap();
    assert_eq!(report, String::from_utf8_lossy(&output.stdout).strip_suffix('\n').unwrap());
    assert!(report.contains("### Targets") && report.contains("### Configuration"), "{report}");
    let directory = std::env::temp_dir().display().to_string();
    assert!(!report.contains(&directory), "a private path is in the report: {report}");
    if !weir(lab).is_file() {
        assert!(report.contains("Not measured: Weir epoll: there is no"), "{report}");
        return;
    }
    for part in PARTS_WITH_ROWS {
        let records = std::fs::read_to_string(results.path().join(format!("{part}.jsonl"))).unwrap();
        let ours = records.lines().any(|line| line.contains("\"kind\":\"point\"") && line.contains("\"Weir epoll\""));
        assert!(ours, "{part}: {records}");
        assert!(records.lines().last().unwrap().contains("\"kind\":\"end\""), "{part}");
    }
}
