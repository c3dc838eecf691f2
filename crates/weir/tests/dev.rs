//! `weir dev` as a person runs it: the program, a real PostgreSQL, signals, and what is said when it cannot.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[path = "support/ports.rs"]
mod ports;
use ports::free_port;

const LAST_LINE_OF_SCREEN: &str = "Ctrl-C stops both.";
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A running `weir dev`.
struct Dev {
    child: Child,
    screen: String,
    out: BufReader<std::process::ChildStdout>,
}

impl Dev {
    /// Returns with the screen read, or with what was said instead.
    fn start(command: &mut Command) -> Result<Self, (ExitStatus, String)> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut screen = String::new();
        while !screen.contains(LAST_LINE_OF_SCREEN) {
            if out.read_line(&mut screen).unwrap() == 0 {
                let mut said = String::new();
                child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                return Err((child.wait().unwrap(), said));
            }
        }
        Ok(Self { child, screen, out })
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// The exit code, and what was printed after the screen.
    fn stop(mut self, signal: Signal) -> (Option<i32>, String) {
        self.signal(signal);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "did not stop within {STOP_TIMEOUT:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn weir_dev(port: u16) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["dev", "--port", &port.to_string()]);
    command
}

/// A folder that the unprivileged user of PostgreSQL can pass through.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A startup packet for protocol 3.0; a pooler with SCRAM answers `R` (authentication), not an error.
fn asks_for_a_password(port: u16) -> bool {
    let parameters = b"user\0postgres\0database\0postgres\0\0";
    let mut packet = u32::try_from(8 + parameters.len()).unwrap().to_be_bytes().to_vec();
    packet.extend(196_608_u32.to_be_bytes());
    packet.extend(parameters);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(&packet).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    answer == *b"R"
}

fn line_of<'a>(screen: &'a str, name: &str) -> &'a str {
    screen.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap().trim()
}

/// PGDATA, without the remark behind it.
fn data_of(screen: &str) -> PathBuf {
    PathBuf::from(line_of(screen, "data:").rsplit_once(" (").unwrap().0)
}

fn password_of(url: &str) -> &str {
    url.strip_prefix("postgres://postgres:").unwrap().split_once('@').unwrap().0
}

/// Whether Weir and PostgreSQL both take the password that the URL on the screen has.
fn answers(url: &str) -> bool {
    let mut client = postgres::Client::connect(url, postgres::NoTls).unwrap();
    client.query_one("select 1::int", &[]).unwrap().get::<_, i32>(0) == 1
}

fn postmaster_of(data: &Path) -> u32 {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + STOP_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {STOP_TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn ephemeral_run_serves_and_leaves_nothing() {
    let port = free_port();
    let dev = Dev::start(weir_dev(port).arg("--ephemeral")).unwrap_or_else(|said| panic!("{said:?}"));
    let url = line_of(&dev.screen, "applications:");
    let password = password_of(url);
    assert_eq!(url, format!("postgres://postgres:{password}@127.0.0.1:{port}/postgres"));
    assert!(password.len() >= 32, "{password}");
    assert_eq!(line_of(&dev.screen, "psql:"), format!("psql {url}"));
    assert!(line_of(&dev.screen, "console:").contains(&format!(":{port}/pgbouncer")));
    assert!(asks_for_a_password(port));
    let data = data_of(&dev.screen);
    let postmaster = postmaster_of(&data);
    let (code, rest) = dev.stop(Signal::SIGINT);
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("thrown away"), "{rest}");
    assert!(!data.exists());
    assert!(!Path::new(&format!("/proc/{postmaster}")).exists());
    TcpStream::connect(("127.0.0.1", port)).unwrap_err();
}

#[test]
fn kept_folder_outlives_a_kill_and_serves_one_at_a_time() {
    let folder = open_folder();
    let data_folder = folder.path().join("data");
    let port = free_port();
    let dev = Dev::start(weir_dev(port).arg("--data").arg(&data_folder)).unwrap_or_else(|said| panic!("{said:?}"));
    let data = data_of(&dev.screen);
    let postmaster = postmaster_of(&data);

    let second = Dev::start(weir_dev(free_port()).arg("--data").arg(&data_folder));
    let (status, said) = second.err().expect("the folder is taken");
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("is another weir dev running there?"), "{said}");

    // All of them at once, as a machine that loses power would.
    kill(Pid::from_raw(i32::try_from(postmaster).unwrap()), Signal::SIGKILL).unwrap();
    drop(dev);
    assert!(data.join("postmaster.pid").exists());
    eventually("PostgreSQL is gone", || !Path::new(&format!("/proc/{postmaster}")).exists());

    let dev = Dev::start(weir_dev(port).arg("--data").arg(&data_folder)).unwrap_or_else(|said| panic!("{said:?}"));
    assert_eq!(data_of(&dev.screen), data);
    assert!(asks_for_a_password(port));
    let url = line_of(&dev.screen, "applications:").to_owned();
    assert!(answers(&url));
    let (code, rest) = dev.stop(Signal::SIGTERM);
    assert_eq!(code, Some(0), "{rest}");
    assert!(data.join("PG_VERSION").exists());

    // A folder whose password was lost, or was never its own, gets another.
    std::fs::remove_file(data_folder.join("password")).unwrap();
    let dev = Dev::start(weir_dev(port).arg("--data").arg(&data_folder)).unwrap_or_else(|said| panic!("{said:?}"));
    let other = line_of(&dev.screen, "applications:").to_owned();
    assert_ne!(other, url);
    assert!(answers(&other));
    dev.stop(Signal::SIGTERM);
}

/// PostgreSQL's superuser is, on the machine, whoever PostgreSQL runs as: nothing of ours may be more than that.
#[test]
fn root_serves_as_somebody_else_and_links_lead_it_nowhere() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root has something to lose");
        return;
    }
    let folder = open_folder();
    let data_folder = folder.path().join("data");
    let port = free_port();
    let dev = Dev::start(weir_dev(port).arg("--data").arg(&data_folder)).unwrap_or_else(|said| panic!("{said:?}"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", dev.child.id())).unwrap();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap().to_owned();
    assert!(!uids.split_whitespace().any(|uid| uid == "0"), "{uids}");
    let (data, password) = (data_of(&dev.screen), password_of(line_of(&dev.screen, "applications:")).to_owned());
    dev.stop(Signal::SIGTERM);

    let victim = folder.path().join("victim");
    std::fs::write(&victim, "root's").unwrap();
    for name in ["weir.ini", "userlist.txt", "weir.log", "postgresql.log", ".lock"] {
        let _ = std::fs::remove_file(data_folder.join(name));
        std::os::unix::fs::symlink(&victim, data_folder.join(name)).unwrap();
    }
    std::fs::remove_file(data.join("weir.conf")).unwrap();
    std::os::unix::fs::symlink(&victim, data.join("weir.conf")).unwrap();
    let second = Dev::start(weir_dev(port).arg("--data").arg(&data_folder));
    assert!(second.is_err());
    let metadata = std::fs::metadata(&victim).unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "root's");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&metadata), 0);
    let mode = std::fs::metadata(data_folder.join("password")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(password.len() >= 32);
}

#[test]
fn end_of_postgresql_ends_both_and_is_said() {
    let port = free_port();
    let mut dev = Dev::start(weir_dev(port).arg("--ephemeral")).unwrap_or_else(|said| panic!("{said:?}"));
    let postmaster = postmaster_of(&data_of(&dev.screen));
    kill(Pid::from_raw(i32::try_from(postmaster).unwrap()), Signal::SIGINT).unwrap();
    let mut said = String::new();
    dev.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("PostgreSQL ended"), "{said}");
    assert_eq!(dev.child.wait().unwrap().code(), Some(1));
}

#[test]
fn port_in_use_is_one_sentence() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let (status, said) = Dev::start(weir_dev(port).arg("--ephemeral")).err().expect("the port is taken");
    assert_eq!(status.code(), Some(1));
    let expected = format!("weir: port {port} of 127.0.0.1 is in use by another process: choose another with --port\n");
    assert_eq!(said, expected);
}

/// A proxy that refuses every connection is a machine without a network.
#[test]
fn without_a_network_what_is_installed_is_used_and_said() {
    let cache = open_folder();
    let mut command = weir_dev(free_port());
    command.arg("--ephemeral").env("WEIR_PG_CACHE", cache.path().join("empty"));
    for name in ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(name, "http://127.0.0.1:1");
    }
    for name in ["no_proxy", "NO_PROXY"] {
        command.env_remove(name);
    }
    match Dev::start(&mut command) {
        Ok(mut dev) => {
            let mut errors = dev.child.stderr.take().unwrap();
            let (code, _) = dev.stop(Signal::SIGINT);
            let mut said = String::new();
            errors.read_to_string(&mut said).unwrap();
            assert!(said.contains("cannot download PostgreSQL 18"), "{said}");
            assert!(said.contains("using the installed PostgreSQL"), "{said}");
            assert_eq!(code, Some(0));
        }
        Err((status, said)) => {
            assert_eq!(status.code(), Some(1));
            assert!(said.contains("cannot download PostgreSQL 18"), "{said}");
            assert!(said.contains("no PostgreSQL is installed here"), "{said}");
        }
    }
}
