//! The built program and those who want it to do something else: also where nobody reads its log, and where a worker hangs.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(20);

/// A pooler in a folder of its own, its standard error in a pipe.
struct Weir {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Weir {
    fn start(lines: &str) -> Self {
        Self::start_as(lines, |_| {})
    }

    fn start_as(lines: &str, changed: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Root's tests run it as nobody.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let at = folder.path().display().to_string();
        std::fs::write(folder.path().join("users"), "\"u\" \"p\"\n").unwrap();
        let text = format!(
            "[databases]\nd = host=127.0.0.1 port=1\n[pgbouncer]\nauth_file = {at}/users\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nadmin_users = u\nauth_type = trust\nworkers = 2\n{lines}\n"
        );
        std::fs::write(folder.path().join("weir.ini"), text).unwrap();
        let user: &[&str] = if nix::unistd::geteuid().is_root() { &["--user", "nobody"] } else { &[] };
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(user).arg(folder.path().join("weir.ini")).stderr(Stdio::piped());
        changed(&mut command);
        let weir = Self { child: command.spawn().unwrap(), port, folder };
        eventually("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        weir
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it did not end within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A startup packet; the pooler says in its log why it refuses whom nobody knows.
    fn log_in(&self, user: &str, database: &str) -> TcpStream {
        let parameters = format!("user\0{user}\0database\0{database}\0\0");
        let mut packet = u32::try_from(8 + parameters.len()).unwrap().to_be_bytes().to_vec();
        packet.extend(196_608_u32.to_be_bytes());
        packet.extend(parameters.bytes());
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&packet).unwrap();
        stream
    }

    /// More lines than a pipe holds.
    fn fill_the_log(&self) {
        for _ in 0..60 {
            let mut answer = Vec::new();
            let _ = self.log_in(&"stranger".repeat(400), "d").read_to_end(&mut answer);
        }
        std::thread::sleep(Duration::from_millis(200));
    }

    /// One command on the console, and all that it answers.
    fn console(&self, command: &str) -> Vec<u8> {
        let mut stream = self.log_in("u", "pgbouncer");
        read_until_ready(&mut stream);
        let mut message = vec![b'Q'];
        message.extend(u32::try_from(5 + command.len()).unwrap().to_be_bytes());
        message.extend(command.bytes());
        message.push(0);
        stream.write_all(&message).unwrap();
        read_until_ready(&mut stream)
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Up to ReadyForQuery of a session without a transaction.
fn read_until_ready(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(&[b'Z', 0, 0, 0, 5, b'I']) {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&bytes));
        bytes.extend(&piece[..count]);
    }
    bytes
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_log_that_nobody_reads_makes_nobody_deaf() {
    for (signal, expected) in [(Signal::SIGTERM, Some(0)), (Signal::SIGQUIT, Some(0)), (Signal::SIGINT, Some(0))] {
        let mut weir = Weir::start("");
        weir.fill_the_log();
        let text = std::fs::read_to_string(weir.folder.path().join("weir.ini")).unwrap();
        std::fs::write(weir.folder.path().join("weir.ini"), format!("{text}max_client_conn = 7654\n")).unwrap();
        assert!(weir.console("RELOAD").windows(6).any(|bytes| bytes == b"RELOAD"));
        assert!(String::from_utf8_lossy(&weir.console("SHOW CONFIG")).contains("7654"));
        std::fs::write(weir.folder.path().join("weir.ini"), format!("{text}max_client_conn = 7655\n")).unwrap();
        weir.signal(Signal::SIGHUP);
        eventually("SIGHUP", || String::from_utf8_lossy(&weir.console("SHOW CONFIG")).contains("7655"));
        weir.signal(signal);
        assert_eq!(weir.ended().code(), expected, "{signal}");
    }
    let mut weir = Weir::start("");
    weir.fill_the_log();
    let mut stream = weir.log_in("u", "pgbouncer");
    read_until_ready(&mut stream);
    stream.write_all(b"Q\0\0\0\x0dSHUTDOWN\0").unwrap();
    assert_eq!(weir.ended().code(), Some(0));
}

/// As a unit of `Type=notify` has it, PgBouncer's own among them.
#[test]
fn a_manager_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut text = [0; 256];
        let len = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    let mut weir = Weir::start_as("", |command| _ = command.env("NOTIFY_SOCKET", &path));
    assert_eq!(told(), "READY=1\n");
    weir.signal(Signal::SIGHUP);
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(told(), "READY=1\n");
    weir.signal(Signal::SIGTERM);
    assert_eq!(told(), "STOPPING=1\n");
    assert_eq!(weir.ended().code(), Some(0));
}

/// A unit with a socket (`sd_listen_fds(3)`): that is what it listens on, and on nothing else.
#[test]
fn a_socket_that_was_passed_is_listened_on() {
    let mut listener = None;
    let mut weir = Weir::start_as("", |command| {
        let file = command.get_args().last().unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let port = text.lines().find_map(|line| line.strip_prefix("listen_port = ")).unwrap().parse::<u16>().unwrap();
        // To listen there itself it would find it taken.
        let socket = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\""]).arg(command.get_program());
        shell.args(command.get_args()).stderr(Stdio::piped());
        let fd = socket.as_raw_fd();
        // SAFETY: both may be called between fork and exec, and the socket is open up to then. (It may have that number already.)
        unsafe {
            shell.pre_exec(move || {
                let passed = libc::dup2(fd, 3) == 3 && libc::fcntl(3, libc::F_SETFD, 0) == 0;
                if passed { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        *command = shell;
        listener = Some(socket);
    });
    // From here on only Weir accepts there.
    drop(listener);
    assert!(weir.log_in("u", "pgbouncer").read(&mut [0]).is_ok_and(|count| count == 1));
    weir.signal(Signal::SIGQUIT);
    assert_eq!(weir.ended().code(), Some(0));
}

/// `-R` where nothing runs, a file of users that is mounted later, an address that another machine has.
#[test]
fn what_is_not_there_keeps_nobody_from_the_rest() {
    let absent = "auth_file = /nowhere/users\nlisten_addr = 127.0.0.1,192.0.2.1";
    let mut weir = Weir::start_as(absent, |command| _ = command.arg("--reboot"));
    assert!(weir.log_in("u", "pgbouncer").read(&mut [0]).is_ok_and(|count| count == 1));
    weir.signal(Signal::SIGQUIT);
    weir.ended();
    let mut said = String::new();
    weir.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    for line in [
        "LOG old process not found, try to continue normally",
        "auth_file \"/nowhere/users\" is not there",
        "WARNING not listening on 192.0.2.1:",
    ] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn what_a_log_lost_is_said_where_it_is_read_again() {
    let mut weir = Weir::start("");
    let mut errors = weir.child.stderr.take().unwrap();
    let name = "x".repeat(63);
    // 6 MB of lines, where 4 MiB wait (`WAITING_BYTES_MAX`), and as much as a pipe holds.
    for _ in 0..8000 {
        let mut answer = Vec::new();
        let _ = weir.log_in(&name, "d").read_to_end(&mut answer);
    }
    let said = Arc::new(Mutex::new(String::new()));
    let reading = std::thread::spawn({
        let said = Arc::clone(&said);
        move || {
            let mut bytes = [0; 65_536];
            while let Ok(count @ 1..) = errors.read(&mut bytes) {
                said.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        }
    });
    eventually("the gap is told", || {
        // It stands before the next line that there is room for.
        drop(weir.log_in(&name, "d"));
        said.lock().unwrap().contains("lines are missing here")
    });
    weir.signal(Signal::SIGQUIT);
    weir.ended();
    reading.join().unwrap();
    let said = said.lock().unwrap();
    assert!(said.ends_with(" LOG process down\n"), "{} bytes", said.len());
}

/// As long as this is here nobody else can open the file: they wait, as for a file on a server that is gone (`F_SETLEASE`, fcntl(2)).
struct Lease(std::fs::File);

impl Lease {
    fn on(path: &std::path::Path) -> Self {
        // That somebody waits is told by a signal, which would end us.
        unsafe { nix::sys::signal::signal(Signal::SIGIO, nix::sys::signal::SigHandler::SigIgn) }.unwrap();
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let lease = Self(file);
        lease.set(nix::libc::F_WRLCK);
        lease
    }

    fn set(&self, kind: i32) {
        // SAFETY: the descriptor is open, and the argument is a number.
        let set = unsafe { nix::libc::fcntl(self.0.as_raw_fd(), nix::libc::F_SETLEASE, kind) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.set(nix::libc::F_UNLCK);
    }
}

#[test]
fn a_file_that_cannot_be_read_keeps_no_process_from_its_end() {
    for signals in [&[Signal::SIGTERM][..], &[Signal::SIGHUP, Signal::SIGINT], &[Signal::SIGQUIT]] {
        let mut weir = Weir::start("");
        let path = weir.folder.path().join("weir.ini");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}max_client_conn = 7654\n")).unwrap();
        let lease = Lease::on(&path);
        let mut console = weir.log_in("u", "pgbouncer");
        read_until_ready(&mut console);
        console.write_all(b"Q\0\0\0\x0bRELOAD\0").unwrap();
        eventually("the file is read", || thread_of(weir.pid(), "weir-reload").is_some());
        assert!(String::from_utf8_lossy(&weir.console("SHOW VERSION")).contains("Weir"));
        if signals == [Signal::SIGTERM] {
            // And once it can be read, all is well.
            drop(lease);
            eventually("the file is read", || String::from_utf8_lossy(&weir.console("SHOW CONFIG")).contains("7654"));
        }
        for signal in signals {
            weir.signal(*signal);
        }
        // SIGTERM waits for it.
        drop(console);
        assert_eq!(weir.ended().code(), Some(0), "{signals:?}");
    }
}

fn thread_of(process: Pid, name: &str) -> Option<Pid> {
    let mut tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let is_it = |path: std::path::PathBuf| std::fs::read_to_string(path).is_ok_and(|comm| comm.trim() == name);
    let task = tasks.find(|task| is_it(task.path().join("comm")))?;
    Some(Pid::from_raw(task.file_name().to_str().unwrap().parse().unwrap()))
}

/// A debugger that holds one thread is what a worker in an endless loop, or in a system call that does not return, is to others.
#[test]
fn a_worker_that_hangs_keeps_no_process_from_its_end() {
    let mut weir = Weir::start("");
    let mut errors = BufReader::new(weir.child.stderr.take().unwrap());
    let mut said = String::new();
    // It can be reached before its threads have begun.
    while !said.contains("process up") {
        assert_ne!(errors.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let worker = thread_of(weir.pid(), "weir-1").unwrap();
    if let Err(error) = ptrace::attach(worker) {
        eprintln!("skipped: this system lets no thread be held: {error}");
        return;
    }
    waitpid(worker, Some(WaitPidFlag::__WALL)).unwrap();
    let began = Instant::now();
    weir.signal(Signal::SIGQUIT);
    // Who holds a thread has to see it out.
    let _ = waitpid(worker, Some(WaitPidFlag::__WALL));
    let status = weir.ended();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    errors.read_to_string(&mut said).unwrap();
    assert!(said.contains("these workers hang and are left behind: weir-1"), "{said}");
    assert_eq!(status.code(), Some(1));
}

/// From /proc/net/tcp: whether a keepalive timer runs on Weir's end of this connection.
fn is_kept_alive(stream: &TcpStream) -> bool {
    let (ours, theirs) = (stream.local_addr().unwrap().port(), stream.peer_addr().unwrap().port());
    let mut timer = None;
    // What comes and goes while the table is read may hide a line.
    eventually("the socket's line", || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let line = table.lines().find(|line| {
            let mut ends = line.split_whitespace().skip(1);
            let mut port_is = |port: u16| ends.next().is_some_and(|end| end.ends_with(&format!(":{port:04X}")));
            port_is(theirs) && port_is(ours)
        });
        timer = line.and_then(|line| line.split_whitespace().nth(5)).map(str::to_owned);
        timer.is_some()
    });
    timer.is_some_and(|timer| timer.starts_with("02:"))
}

#[test]
fn options_of_tcp_are_those_of_the_last_reload() {
    let weir = Weir::start("tcp_keepalive = 1");
    let mut before = weir.log_in("u", "pgbouncer");
    read_until_ready(&mut before);
    assert!(is_kept_alive(&before));
    let path = weir.folder.path().join("weir.ini");
    let text = std::fs::read_to_string(&path).unwrap().replace("tcp_keepalive = 1", "tcp_keepalive = 0");
    std::fs::write(&path, text).unwrap();
    weir.console("RELOAD");
    let mut after = weir.log_in("u", "pgbouncer");
    read_until_ready(&mut after);
    assert!(!is_kept_alive(&after) && is_kept_alive(&before));
}

/// SET changes one setting and reads no file of the configuration; the next RELOAD has what that says.
#[test]
fn a_set_holds_until_a_reload() {
    let weir = Weir::start("query_timeout = 7\nmax_client_conn = 50");
    let value = |key: &str| {
        let rows = String::from_utf8_lossy(&weir.console("show config")).into_owned();
        let at = rows.find(&format!("{key}\0")).or_else(|| rows.find(key)).unwrap();
        let row = rows[at + key.len()..].split('D').next().unwrap().to_owned();
        row.chars().filter(char::is_ascii_digit).collect::<String>()
    };
    let before = (value("query_timeout"), value("max_client_conn"));
    let path = weir.folder.path().join("weir.ini");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("max_client_conn = 50", "max_client_conn = 60")).unwrap();
    let says = |command: &str| String::from_utf8_lossy(&weir.console(command)).into_owned();
    assert!(says("set query_timeout = '9';").contains("SET query_timeout=9"));
    let set = (value("query_timeout"), value("max_client_conn"));
    for (command, expected) in [
        ("set query_timeout = 'soon'", "SET failed: invalid value \"soon\" for query_timeout"),
        ("set query_timeou = 1", "SET failed: unknown setting \"query_timeou\": the nearest known one is"),
        ("set listen_port = 1", "SET failed: listen_port changes at the next start only"),
        ("set timezone = 'UTC'", "SET ignored"),
    ] {
        let said = says(command);
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!((value("query_timeout"), value("max_client_conn")), set, "what has failed changes nothing");
    let users = weir.folder.path().join("users");
    let text = std::fs::read_to_string(&users).unwrap();
    std::fs::write(&users, "").unwrap();
    let said = says("set query_timeout = 8");
    assert!(said.contains("no user is left in auth_file"), "{said}");
    std::fs::write(&users, text).unwrap();
    says("reload");
    let after = (value("query_timeout"), value("max_client_conn"));
    // The value, and the default behind it.
    let has = |value: &str, begins: &str| assert!(value.starts_with(begins), "{value}");
    for ((query_timeout, max_client_conn), expected) in
        [(before, ["7", "50"]), (set, ["9", "50"]), (after, ["7", "60"])]
    {
        has(&query_timeout, expected[0]);
        has(&max_client_conn, expected[1]);
    }
}

/// SET takes one setting at a time, and a key without its certificate is none: TLS stays as it is until they fit, as with PgBouncer.
#[test]
fn a_key_and_its_certificate_are_set_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for name in ["first", "second"] {
        let made = rcgen::generate_simple_self_signed(["weir.test".to_owned()]).unwrap();
        std::fs::write(path(&format!("{name}.crt")), made.cert.pem()).unwrap();
        std::fs::write(path(&format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
    }
    let (crt, key) = (path("first.crt"), path("first.key"));
    let weir =
        Weir::start(&format!("client_tls_sslmode = allow\nclient_tls_cert_file = {crt}\nclient_tls_key_file = {key}"));
    let says = |command: &str| String::from_utf8_lossy(&weir.console(command)).into_owned();
    let is_in_force = |value: &str| says("show config").contains(value);

    let said = says(&format!("set client_tls_key_file = '{}'", path("second.key")));
    assert!(
        said.contains("WARNING") && said.contains("TLS setup failed") && said.contains("SET client_tls_key"),
        "{said}"
    );
    assert!(is_in_force(&key) && !is_in_force("second.key"));
    // What it is about stays out of what is not.
    assert!(!says("set query_timeout = 8").contains("TLS"), "TLS has failed");
    assert!(says("set query_timeout = 'soon'").contains("SET failed: invalid value"), "a wrong value was taken");
    for wrong in ["client_tls_sslmode = 'no'", "client_tls_foo = 1", "server_tls_cert_file = '/nowhere'"] {
        let said = says(&format!("set {wrong}"));
        assert!(said.contains("SET failed") && !said.contains("WARNING"), "{said}");
    }

    // Nor does it keep the pair that servers are shown from being set.
    let said = says(&format!("set server_tls_key_file = '{}'", path("first.key")));
    assert!(said.contains("WARNING"), "{said}");
    let said = says(&format!("set server_tls_cert_file = '{}'", path("first.crt")));
    assert!(said.contains("SET server_tls_cert") && !said.contains("WARNING"), "{said}");
    assert!(!is_in_force("second.key"));

    let said = says(&format!("set client_tls_cert_file = '{}'", path("second.crt")));
    assert!(said.contains("SET client_tls_cert") && !said.contains("WARNING"), "{said}");
    assert!(is_in_force("second.key") && is_in_force("second.crt"));
}

/// A list of cipher suites that leaves none is a file that does not fit, to a SET: TLS stays as it was, and the log says why in PgBouncer's words. The
/// log has said so by the time that the console answers, as it has of each SET.
#[test]
fn a_list_without_a_cipher_suite_that_is_spoken_leaves_tls_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = rcgen::generate_simple_self_signed(["weir.test".to_owned()]).unwrap();
    std::fs::write(path("crt"), made.cert.pem()).unwrap();
    std::fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
    let (crt, key, log) = (path("crt"), path("key"), path("log"));
    let weir = Weir::start(&format!(
        "logfile = {log}\nclient_tls_sslmode = allow\nclient_tls_cert_file = {crt}\nclient_tls_key_file = {key}\n\
         client_tls_protocols = tlsv1.3\nclient_tls13_ciphers = TLS_AES_128_GCM_SHA256"
    ));
    let says = |command: &str| String::from_utf8_lossy(&weir.console(command)).into_owned();
    let lines = |text: &str| std::fs::read_to_string(&log).unwrap().matches(text).count();
    for number in 1..=20 {
        let said = says("set client_tls13_ciphers = 'unknown'");
        assert!(said.contains("WARNING") && said.contains("failed to set the TLSv1.3 cipher suites"), "{said}");
        assert_eq!(lines("ERROR TLS setup failed: failed to set the TLSv1.3 cipher suites"), number);
    }
    assert!(says("show config").contains("TLS_AES_128_GCM_SHA256"));
    assert!(!says("set client_tls13_ciphers = 'TLS_AES_256_GCM_SHA384'").contains("WARNING"));
    assert!(says("show config").contains("TLS_AES_256_GCM_SHA384"));
    for number in 1..=20 {
        assert!(!says(&format!("set query_timeout = {number}")).contains("WARNING"));
        assert_eq!(lines("SET query_timeout: in force until a RELOAD"), number);
    }
}
