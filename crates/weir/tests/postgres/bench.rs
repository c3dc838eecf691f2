//! What the tests stand on: a PostgreSQL, a Weir in front of it, and clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::ports::free_port;
use postgres::{Client, NoTls};
use tempfile::TempDir;
use weir_pg::{Cluster, Installation, Options};
use weir_wire::backend::ErrorFields;
use weir_wire::{BackendTag, HEADER_LEN, Header, ProtocolVersion, write};

/// How long anything may take before it counts as hanging.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Ports that are tried for a Weir.
const PORTS_MAX: usize = 5;
/// What Weir says, in its folder, and how much of it a test that fails shows.
const LOG: &str = "weir.log";
const LINES_SHOWN: usize = 40;
pub const DRIVERS: [&str; 2] = ["epoll", "io_uring"];

/// A PostgreSQL of this major version, started anew.
pub fn cluster(major: u32) -> Cluster {
    let installation = Installation::of_major(major, &|_| {}).unwrap();
    let settings = vec!["max_connections = 60".to_owned(), "fsync = off".to_owned()];
    Cluster::start(&installation, Options { settings, ..Options::default() }).unwrap()
}

/// The same, which takes everybody's word.
pub fn trusting_cluster(major: u32) -> Cluster {
    let installation = Installation::of_major(major, &|_| {}).unwrap();
    let options = Options {
        settings: vec!["fsync = off".to_owned()],
        hba: vec!["host all all 127.0.0.1/32 trust".to_owned()],
        ..Options::default()
    };
    Cluster::start(&installation, options).unwrap()
}

/// The PostgreSQL 18 that tests share which leave it as it was.
pub fn shared() -> u16 {
    static SHARED: OnceLock<Mutex<Cluster>> = OnceLock::new();
    SHARED.get_or_init(|| Mutex::new(cluster(18))).lock().unwrap().port()
}

/// A database of the PostgreSQL at this port.
#[derive(Clone, Copy)]
pub struct Place {
    pub port: u16,
    database: &'static str,
}

impl Place {
    /// Made anew, for a test whose code gives everyday words a meaning: they would have it in other tests' texts, too.
    pub fn of_its_own(port: u16, database: &'static str) -> Self {
        let mut client = super::parameters::client(port, "");
        for sql in ["drop database if exists", "create database"] {
            client.batch_execute(&format!("{sql} {database}")).unwrap();
        }
        Self { port, database }
    }

    pub fn client(self, settings: &str) -> Client {
        super::parameters::client(self.port, &format!("dbname={} {settings}", self.database))
    }
}

impl From<u16> for Place {
    fn from(port: u16) -> Self {
        Self { port, database: "postgres" }
    }
}

/// A running Weir; dropped, it is ended at once.
pub struct Weir {
    pub port: u16,
    child: Child,
    folder: Arc<TempDir>,
}

impl Weir {
    /// With these lines of `[pgbouncer]`, in front of the PostgreSQL at `server`.
    pub fn start(server: u16, lines: &str) -> Self {
        Self::start_with(&format!("* = host=127.0.0.1 port={server}"), "\"postgres\" \"postgres\"\n", lines)
    }

    /// The same, where each database of Weir's is that place.
    pub fn start_at(place: Place, lines: &str) -> Self {
        let database = format!("* = host=127.0.0.1 port={} dbname={}", place.port, place.database);
        Self::start_with(&database, "\"postgres\" \"postgres\"\n", lines)
    }

    /// A line more in its file.
    pub fn write_line(&self, line: &str) {
        let file = self.folder.path().join("weir.ini");
        let text = std::fs::read_to_string(&file).unwrap();
        write_for_all(&file, &format!("{text}{line}\n"));
    }

    /// The same, and read.
    pub fn reload_with(&self, line: &str) {
        self.write_line(line);
        self.try_client("dbname=pgbouncer").unwrap().simple_query("reload").unwrap();
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(LOG)).unwrap()
    }

    /// A process that may open so many files and no more.
    pub fn start_with_files(files: u64, server: u16, lines: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_weir")]);
        let databases = format!("* = host=127.0.0.1 port={server}");
        Self::start_as(command, &databases, "\"postgres\" \"postgres\"\n", lines)
    }

    pub fn start_with(databases: &str, users: &str, lines: &str) -> Self {
        Self::start_as(Command::new(env!("CARGO_BIN_EXE_weir")), databases, users, lines)
    }

    /// Somebody's connection may have taken the port that was free a moment ago.
    pub fn start_as(mut command: Command, databases: &str, users: &str, lines: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("weir-test").tempdir().unwrap();
        let file = folder.path().join("weir.ini");
        command.arg(&file).stdout(Stdio::null());
        for _ in 0..PORTS_MAX {
            let port = configure(folder.path(), databases, users, lines);
            // Others may write there too, who take its place.
            let _ = std::fs::remove_file(folder.path().join(LOG));
            let log = std::fs::File::options().create(true).append(true).open(folder.path().join(LOG)).unwrap();
            let mut child = command.stderr(log).spawn().unwrap();
            let mut has_ended = false;
            // By its own word: who takes connections on that port may be somebody else, for as long as this one has not failed.
            let listens = format!("listening on 127.0.0.1:{port}\n");
            wait_until("Weir listens", || {
                has_ended = child.try_wait().unwrap().is_some();
                has_ended || std::fs::read_to_string(folder.path().join(LOG)).unwrap().contains(&listens)
            });
            if !has_ended {
                return Self { port, child, folder: Arc::new(folder) };
            }
        }
        panic!("Weir does not start: {}", last_lines(folder.path()))
    }

    /// Another process takes its place, with the same file.
    pub fn successor(&self) -> Self {
        let said = self.log().len();
        let successor = self.start_successor();
        wait_until("the old process hands over", || self.log()[said..].contains(" takes over: "));
        successor
    }

    /// One that is to.
    pub fn start_successor(&self) -> Self {
        let log = std::fs::File::options().append(true).open(self.folder.path().join(LOG)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("--reboot").arg(self.folder.path().join("weir.ini")).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        Self { port: self.port, child, folder: Arc::clone(&self.folder) }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn client(&self) -> Client {
        self.try_client("dbname=postgres").unwrap()
    }

    pub fn try_client(&self, more: &str) -> Result<Client, postgres::Error> {
        let port = self.port;
        Client::connect(&format!("host=127.0.0.1 port={port} user=postgres password=postgres {more}"), NoTls)
    }

    pub fn raw(&self) -> Raw {
        Raw(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    /// Resident memory of the process.
    pub fn memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// From now on it opens none beyond so many; those that are open stay.
    pub fn limit_files(&self, files: u64) {
        let pid = self.child.id();
        let mut command = Command::new("prlimit");
        // Not everywhere may root do it for others.
        if nix::unistd::geteuid().is_root() {
            let owner = nix::unistd::User::from_name("nobody").unwrap().unwrap();
            command.uid(owner.uid.as_raw()).gid(owner.gid.as_raw());
        }
        let status = command.args([format!("--pid={pid}"), format!("--nofile={files}:{files}")]).status();
        assert!(status.unwrap().success(), "prlimit failed");
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ended = self.child.try_wait();
            eprintln!("Weir ({ended:?}) said last:\n{}", last_lines(self.folder.path()));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of what the Weir in that folder has logged.
fn last_lines(folder: &Path) -> String {
    let log = std::fs::read(folder.join(LOG)).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
}

/// Writes the configuration into the folder; the port to listen on.
fn configure(folder: &Path, databases: &str, users: &str, lines: &str) -> u16 {
    let port = free_port();
    let (file, userlist) = (folder.join("weir.ini"), folder.join("userlist.txt"));
    std::fs::write(&userlist, users).unwrap();
    let root = if nix::unistd::geteuid().is_root() { "user = nobody\n" } else { "" };
    let ini = format!(
        "[databases]\n{databases}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
         admin_users = postgres\n{root}{lines}\n",
        userlist.display()
    );
    std::fs::write(&file, ini).unwrap();
    for path in [folder, &file, &userlist] {
        open_to_all(path);
    }
    port
}

/// A file that an unprivileged Weir can read, too.
pub fn write_for_all(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    open_to_all(path);
}

pub fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = if path.is_dir() { 0o755 } else { 0o644 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// A connection of bytes and messages.
pub struct Raw<S = TcpStream>(pub S);

/// What bytes go over, with a limit to patience.
pub trait Stream: Read + Write {
    fn limit_patience(&self);
}

impl Stream for TcpStream {
    fn limit_patience(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

impl Stream for UnixStream {
    fn limit_patience(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

impl<S: Stream> Raw<S> {
    pub fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        write(&mut bytes);
        self.0.write_all(&bytes).unwrap();
    }

    /// Logs in by trust and reads up to the first ReadyForQuery.
    #[track_caller]
    pub fn log_in(&mut self) {
        self.ask_in();
        self.read_until(BackendTag::ReadyForQuery);
    }

    pub fn ask_in(&mut self) {
        let parameters = [("user", "postgres"), ("database", "postgres")];
        self.send(|out| write::startup(out, ProtocolVersion::V3_0, &parameters));
    }

    /// The next message: its tag and its body; `None` where the connection has ended.
    #[track_caller]
    pub fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        self.0.limit_patience();
        let mut header = [0; HEADER_LEN];
        match self.0.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("it hangs"),
            Err(_) => return None,
        }
        let header = Header::parse(&header);
        let mut body = vec![0; header.body_len.unwrap() as usize];
        self.0.read_exact(&mut body).ok()?;
        Some((header.tag, body))
    }

    #[track_caller]
    pub fn read_until(&mut self, tag: BackendTag) -> Vec<(u8, Vec<u8>)> {
        let mut messages = Vec::new();
        loop {
            let message = self.message().unwrap_or_else(|| panic!("closed before {tag:?}, after {messages:?}"));
            let last = message.0 == tag as u8;
            messages.push(message);
            if last {
                return messages;
            }
        }
    }

    /// The one error that ends the connection: its SQLSTATE.
    #[track_caller]
    pub fn last_error(&mut self) -> String {
        let mut code = None;
        while let Some((tag, body)) = self.message() {
            if tag == BackendTag::ErrorResponse as u8 {
                let fields = ErrorFields::parse(&body).unwrap();
                assert_eq!(code, None, "one error, not two");
                code = Some(String::from_utf8(fields.code.to_vec()).unwrap());
            }
        }
        code.unwrap_or_default()
    }
}

/// Runs this in so many threads at once.
pub fn at_once(count: usize, run: impl Fn(usize) + Send + Sync + 'static) {
    let run = Arc::new(run);
    let threads: Vec<_> = (0..count)
        .map(|number| {
            let run = Arc::clone(&run);
            std::thread::spawn(move || run(number))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
