//! A PostgreSQL that only waits: each query takes a programmed time, and only so many are served at once; the others queue.
//!
//! When a query ends is reckoned from when the one before it on the same slot and the same session ended, not from when a thread
//! woke: a thread that a busy machine wakes late is late once, and what is served in a second stays what was programmed.
//!
//! Speaks as much of the protocol as pgbench and psql need (protocol 3.0, simple queries). A thread per connection. Sessions in
//! `pg_sleep` sleep until they are ended, whatever their time, and do not notice that their client is gone.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use weir_measure::url::Url;

#[derive(Clone, Debug)]
pub struct Nature {
    pub service: Duration,
    /// How many queries are served at once.
    pub limit: usize,
    /// Asked for in clear text; `None`: everybody is trusted.
    pub password: Option<&'static str>,
    /// After so many queries all connections break, and nobody listens any more.
    pub dies_after: Option<u64>,
    /// How long it takes to log in.
    pub login: Duration,
    /// How much longer the first query of each session takes, which fills its caches.
    pub first: Duration,
    /// Whether pgbench's tables are there.
    pub tables: bool,
}

impl Default for Nature {
    fn default() -> Nature {
        Nature {
            service: Duration::from_millis(2),
            limit: usize::MAX,
            password: None,
            dies_after: None,
            login: Duration::ZERO,
            first: Duration::ZERO,
            tables: true,
        }
    }
}

pub struct Fake {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    nature: Nature,
    /// When each slot that was ever used is free again.
    slots: Mutex<Vec<Instant>>,
    served: AtomicU64,
    dead: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
    sleepers: Mutex<Sleepers>,
    ended: Condvar,
    heard: Mutex<BTreeSet<String>>,
    port: u16,
}

#[derive(Default)]
struct Sleepers {
    asleep: usize,
    /// How many there ever were.
    slept: usize,
    /// How often all of them were ended.
    endings: usize,
}

impl Fake {
    pub fn start(nature: Nature) -> Fake {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            nature,
            slots: Mutex::default(),
            served: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            streams: Mutex::new(Vec::new()),
            sleepers: Mutex::default(),
            ended: Condvar::new(),
            heard: Mutex::default(),
            port,
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.dead.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                accepting.streams.lock().unwrap().push(stream.try_clone().unwrap());
                let shared = Arc::clone(&accepting);
                thread::spawn(move || {
                    // A client that goes away ends its thread; that is no error here.
                    let _ = shared.serve(&mut stream);
                    // `streams` has it as well.
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
        Fake { port, shared }
    }

    pub fn url(&self) -> Url {
        Url::loopback(self.port, "someone", "somewhere")
    }

    pub fn queries(&self) -> u64 {
        self.shared.served.load(Ordering::SeqCst)
    }

    /// Whether a query with this in it, in small letters, has come.
    pub fn heard(&self, part: &str) -> bool {
        self.shared.heard.lock().unwrap().iter().any(|query| query.contains(part))
    }

    /// Sessions in `pg_sleep`, now.
    pub fn asleep(&self) -> usize {
        self.shared.sleepers.lock().unwrap().asleep
    }

    /// Those that were, ever.
    pub fn slept(&self) -> usize {
        self.shared.sleepers.lock().unwrap().slept
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.die();
    }
}

impl Shared {
    fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.end_sleepers();
        // Wakes the listener, which then closes.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }

    fn serve(&self, stream: &mut TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        thread::sleep(self.nature.login);
        self.log_in(stream)?;
        let mut ended = Instant::now();
        let mut is_first = true;
        loop {
            let (kind, body) = message(stream)?;
            match kind {
                b'Q' => {
                    let text = String::from_utf8_lossy(&body).to_lowercase();
                    self.hear(&text);
                    if text.starts_with("select pg_sleep(") {
                        self.sleep();
                        return Ok(());
                    }
                    if std::mem::take(&mut is_first) {
                        thread::sleep(self.nature.first);
                        ended = Instant::now();
                    }
                    stream.write_all(&self.answer(&text, &mut ended))?;
                }
                _ => return Ok(()),
            }
        }
    }

    fn hear(&self, text: &str) {
        let mut heard = self.heard.lock().unwrap();
        if !heard.contains(text) {
            heard.insert(text.to_owned());
        }
    }

    fn log_in(&self, stream: &mut TcpStream) -> io::Result<()> {
        loop {
            let body = packet(stream)?;
            match body.get(..4) {
                // Protocol 3.0; others are SSLRequest and GSSENCRequest, answered `N`.
                Some([0, 3, 0, 0]) => break,
                // CancelRequest, 80877102: of all, as sessions have no keys here.
                Some([4, 210, 22, 46]) => {
                    self.end_sleepers();
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                _ => stream.write_all(b"N")?,
            }
        }
        if let Some(password) = self.nature.password {
            stream.write_all(&framed(b'R', &3u32.to_be_bytes()))?;
            let (_, answer) = message(stream)?;
            if answer.strip_suffix(b"\0") != Some(password.as_bytes()) {
                let words = "password authentication failed for user \"someone\"";
                stream.write_all(&framed(b'E', format!("SFATAL\0C28P01\0M{words}\0\0").as_bytes()))?;
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
        let mut greeting = framed(b'R', &0u32.to_be_bytes());
        for (name, value) in
            [("server_version", "15.4"), ("client_encoding", "UTF8"), ("standard_conforming_strings", "on")]
        {
            greeting.extend(framed(b'S', format!("{name}\0{value}\0").as_bytes()));
        }
        greeting.extend(framed(b'K', &[0; 8]));
        greeting.extend(framed(b'Z', b"I"));
        stream.write_all(&greeting)
    }

    /// `ended`: when the session's query before this one did; now, when this one did.
    fn answer(&self, text: &str, ended: &mut Instant) -> Vec<u8> {
        if text.starts_with("show version") {
            // As PostgreSQL does: only a pooler's console knows it.
            let error = b"SERROR\0C42704\0Munrecognized configuration parameter \"version\"\0\0";
            return [framed(b'E', error), framed(b'Z', b"I")].concat();
        }
        if text.contains("server_version") {
            return rows(&["15.4", "15", &self.port.to_string(), "127.0.0.1"]);
        }
        if text.contains("pgbench_branches") && !self.nature.tables {
            let error = b"SERROR\0C42P01\0Mrelation \"pgbench_branches\" does not exist\0\0";
            return [framed(b'E', error), framed(b'Z', b"I")].concat();
        }
        if text.contains("pgbench_branches") {
            return rows(&["1"]);
        }
        // pgbench asks how its own tables are partitioned.
        if text.contains("partstrat") {
            return rows(&["1", "h", "0"]);
        }
        if text.contains("pg_terminate_backend") {
            return rows(&[&self.end_sleepers().to_string()]);
        }
        self.work(ended);
        // The experiment cache-bloat asks for three figures.
        if text.contains("pg_backend_memory_contexts") { rows(&["1.0", "0.5", "2.0"]) } else { rows(&["1"]) }
    }

    /// Until all are ended.
    fn sleep(&self) {
        let mut sleepers = self.sleepers.lock().unwrap();
        sleepers.asleep += 1;
        sleepers.slept += 1;
        let endings = sleepers.endings;
        while sleepers.endings == endings {
            sleepers = self.ended.wait(sleepers).unwrap();
        }
    }

    /// How many there were.
    fn end_sleepers(&self) -> usize {
        let mut sleepers = self.sleepers.lock().unwrap();
        sleepers.endings += 1;
        self.ended.notify_all();
        std::mem::take(&mut sleepers.asleep)
    }

    fn work(&self, ended: &mut Instant) {
        let service = self.nature.service;
        // A client that asks again at once is not charged for the threads that woke late between.
        let asked = Instant::now().checked_sub(service / 2).unwrap().max(*ended);
        *ended = self.slot_from(asked) + service;
        thread::sleep(ended.saturating_duration_since(Instant::now()));
        let served = self.served.fetch_add(1, Ordering::SeqCst) + 1;
        if self.nature.dies_after == Some(served) {
            self.die();
        }
    }

    /// When the service begins of a query that was asked at `asked`: the slot that is free first is taken.
    fn slot_from(&self, asked: Instant) -> Instant {
        let mut slots = self.slots.lock().unwrap();
        if slots.len() < self.nature.limit && slots.iter().all(|free| *free > asked) {
            slots.push(asked);
        }
        let first = slots.iter_mut().min().unwrap();
        let begins = asked.max(*first);
        *first = begins + self.nature.service;
        begins
    }
}

/// A startup packet: its length, and what follows.
fn packet(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; (u32::from_be_bytes(length) as usize).saturating_sub(4)];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn message(stream: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    Ok((kind[0], packet(stream)?))
}

fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes
}

/// RowDescription, one DataRow of text, CommandComplete, ReadyForQuery.
fn rows(values: &[&str]) -> Vec<u8> {
    let count = u16::try_from(values.len()).unwrap().to_be_bytes();
    let (mut description, mut row) = (count.to_vec(), count.to_vec());
    for value in values {
        // Name, table 0, column 0, type text (25), length, modifier, format 0.
        description.extend(b"c\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0");
        row.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
        row.extend(value.as_bytes());
    }
    let parts = [framed(b'T', &description), framed(b'D', &row), framed(b'C', b"SELECT 1\0"), framed(b'Z', b"I")];
    parts.concat()
}
