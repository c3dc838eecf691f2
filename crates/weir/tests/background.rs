//! The built program as a daemon: what the foreground says, the log, the pidfile.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[path = "support/ports.rs"]
mod ports;
use ports::free_port;

/// A directory that goes away, and the daemon started in it with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, listen_port: u16) -> Self {
        let path = std::env::temp_dir().join(format!("weir-background-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        // Root's tests run the daemon as nobody.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        std::fs::write(path.join("users"), "\"u\" \"p\"\n").unwrap();
        let text = format!(
            "[databases]\nd = host=h\n[pgbouncer]\nauth_file = users\nlogfile = log\npidfile = pid\npool_mode = transaction\n\
             listen_addr = 127.0.0.1\nlisten_port = {listen_port}\nunix_socket_dir =\nworkers = 1\nsuspend_timeout = 60\n\
             session_state = pgbouncer\n"
        );
        std::fs::write(path.join("weir.ini"), text).unwrap();
        Self(path)
    }

    fn start(&self) -> Output {
        let user: &[&str] = if nix::unistd::geteuid().is_root() { &["--user", "nobody"] } else { &[] };
        // As from a careless shell: everybody may do everything, and a file of its own stays open.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "umask 000; exec 7</dev/zero; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_weir")]);
        command.arg("--daemon").args(user).arg("weir.ini").current_dir(&self.0).output().unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    /// The log is written beside what it tells of.
    fn wait_for(&self, name: &str, expected: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.read(name).contains(expected) {
            assert!(Instant::now() < deadline, "{expected} is missing in {}", self.read(name));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn pid(&self) -> Option<i32> {
        self.read("pid").trim().parse().ok()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn it_serves_once_the_foreground_has_ended_and_only_once() {
    let port = free_port();
    let scratch = Scratch::new("serves", port);
    let started = scratch.start();
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    assert!(started.stderr.is_empty() && started.stdout.is_empty());

    std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let pid = scratch.pid().unwrap();
    for expected in [
        &format!(" [{pid}] LOG process up: Weir "),
        &format!(" [{pid}] LOG listening on 127.0.0.1:{port}\n"),
        "WARNING weir.ini:12: suspend_timeout has no effect: SUSPEND waits for nothing",
        "SET of other parameters, LISTEN, temporary tables, session advisory locks and SQL PREPARE are met by whoever gets the server next",
    ] {
        scratch.wait_for("log", expected);
    }

    for (name, mode) in [("log", 0o640), ("pid", 0o640)] {
        assert_eq!(std::fs::metadata(scratch.0.join(name)).unwrap().permissions().mode() & 0o777, mode, "{name}");
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("\nUmask:\t0027\n"), "{status}");
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let names: Vec<_> = files.filter_map(|file| std::fs::read_link(file.path()).ok()).collect();
    assert!(!names.is_empty() && !names.contains(&PathBuf::from("/dev/zero")), "{names:?}");

    let second = scratch.start();
    assert_eq!(second.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&second.stderr),
        "weir: pidfile \"pid\" exists and its process is running: is another instance up?\n"
    );
    assert_eq!(scratch.pid(), Some(pid), "the first one's pidfile stays");

    kill(Pid::from_raw(pid), Signal::SIGQUIT).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while scratch.pid().is_some() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(scratch.pid(), None, "the pidfile goes at the end");
    let log = scratch.read("log");
    assert!(log.contains(" LOG got SIGQUIT, fast exit\n") && log.ends_with(" LOG process down\n"), "{log}");
}

#[test]
fn a_start_that_fails_says_why_in_the_foreground_and_in_the_log() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let scratch = Scratch::new("fails", port);
    let started = scratch.start();
    let reason = format!("cannot listen on 127.0.0.1:{port}: Address already in use (os error 98)\n");
    assert_eq!(started.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&started.stderr), format!("weir: {reason}"));
    assert!(scratch.read("log").ends_with(&format!(" ERROR {reason}")), "{}", scratch.read("log"));
    assert_eq!(scratch.pid(), None, "no pidfile stays behind");
}
