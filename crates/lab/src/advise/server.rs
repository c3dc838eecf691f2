//! A short look at a live server: who it is, its settings, and what its sessions do over some seconds.
//!
//! Knows PostgreSQL's views; does not know what is advised.

use anyhow::{Result, bail};

use super::facts::{Moment, Rates, Server, Settings};
use super::session::{Row, Session, Table};
use super::statements::{ACTIVITY, BACKENDS, COUNTERS, IDENTITY, PAUSE, PROCESSES, SETTINGS};
use crate::experiments::places;

/// How long [`PAUSE`] is.
const PAUSE_SECONDS: f64 = 0.25;
const MIB: f64 = 1024.0 * 1024.0;
/// So far a server's clock may be set back between two sessions.
const CLOCK_SECONDS: f64 = 1.0;

/// A server and the processes that it names.
#[derive(Debug, Default)]
pub struct Look {
    pub server: Server,
    /// Always there: of this machine, if it runs here.
    pub processes: Vec<i32>,
    /// When the server started, by its own clock, in seconds since 1970.
    pub started: Option<f64>,
    pub backends: Vec<i32>,
}

/// Looks for so many seconds. `url` is without its password.
pub fn look(session: &dyn Session, url: &str, seconds: f64) -> Result<Look> {
    let before = session.ask(&[IDENTITY, SETTINGS, PROCESSES])?;
    let [identity, settings, processes] = &before[..] else { bail!("{url} left questions unanswered") };
    let who = Identity::of(identity, url)?;
    let answers = session.ask(&statements(seconds))?;
    let [again, during @ .., backends, at_end] = &answers[..] else { bail!("{url} left questions unanswered") };
    if let Some(why) = who.pooled(&Identity::of(again, url)?, &Identity::of(at_end, url)?) {
        bail!(
            "--url: {url} is a pooler: {why}. Give the server's own URL to --url and the pooler's console to --console"
        );
    }
    let mut server =
        Server { url: url.to_owned(), version: who.version, major: who.major, port: who.port, ..Server::default() };
    server.in_recovery = who.in_recovery;
    server.settings = self::settings(settings);
    activity(&mut server, during);
    let started = processes.first().and_then(|row| row.number("started"));
    Ok(Look { server, processes: numbers(processes), started, backends: numbers(backends) })
}

/// Counters at both ends, and a moment before each pause and one after the last.
fn statements(seconds: f64) -> Vec<&'static str> {
    let mut statements = vec![IDENTITY, COUNTERS];
    for _ in 0..pauses(seconds) {
        statements.extend([ACTIVITY, PAUSE]);
    }
    statements.extend([ACTIVITY, COUNTERS, BACKENDS, IDENTITY]);
    statements
}

fn pauses(seconds: f64) -> usize {
    // Seconds are few.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let pauses = (seconds / PAUSE_SECONDS).round().clamp(1.0, 1_000.0) as usize;
    pauses
}

struct Identity {
    version: String,
    major: u32,
    read_only: bool,
    port: Option<u16>,
    in_recovery: bool,
    /// Which backend answered, when it began, and when it answered; seconds of the server's clock.
    backend: Option<String>,
    began: Option<f64>,
    now: Option<f64>,
}

impl Identity {
    fn of(table: &Table, url: &str) -> Result<Identity> {
        let row = table.first();
        let Some((row, number)) = row.and_then(|row| Some((row, row.text("version_number")?.parse::<u32>().ok()?)))
        else {
            bail!("--url: {url} does not say which PostgreSQL it is")
        };
        Ok(Identity {
            version: format!("PostgreSQL {}", row.text("version").unwrap_or("of an unknown version")),
            major: number / 10_000,
            read_only: row.text("read_only") == Some("on"),
            port: row.text("port").and_then(|port| port.parse().ok()),
            in_recovery: row.text("in_recovery") == Some("t"),
            backend: row.text("backend").map(str::to_owned),
            began: row.number("began"),
            now: row.number("now"),
        })
    }

    /// What gives a pooler away, from a first session, and the begin and the end of a second one. A server's own sessions each
    /// have a process that begins with them and stays.
    fn pooled(&self, again: &Identity, at_end: &Identity) -> Option<&'static str> {
        let both = |one: &Option<String>, other: &Option<String>| one.is_some() && other.is_some();
        if !(self.read_only && again.read_only) {
            return Some("it does not pass the session's settings on");
        }
        if self.backend.is_some() && self.backend == again.backend {
            return Some("two sessions met the same server process");
        }
        if both(&again.backend, &at_end.backend) && again.backend != at_end.backend {
            return Some("one session met two server processes");
        }
        let older = |(began, now): (f64, f64)| began < now - CLOCK_SECONDS;
        again.began.zip(self.now).is_some_and(older).then_some("its server process is older than the session")
    }
}

fn settings(table: &Table) -> Settings {
    let row = |name: &str| table.rows().find(|row| row.text("name") == Some(name));
    let plain = |name: &str| row(name)?.number("setting");
    let mib = |name: &str| row(name)?.number("number").filter(|bytes| *bytes >= 0.0).map(|bytes| bytes / MIB);
    // -1 is maintenance_work_mem.
    let autovacuum = plain("autovacuum_work_mem").filter(|own| *own >= 0.0).and_then(|_| mib("autovacuum_work_mem"));
    Settings {
        max_connections: plain("max_connections"),
        reserved: plain("superuser_reserved_connections").unwrap_or(0.0) + plain("reserved_connections").unwrap_or(0.0),
        shared_buffers_mib: mib("shared_buffers"),
        work_mem_mib: mib("work_mem"),
        hash_mem_multiplier: plain("hash_mem_multiplier").unwrap_or(1.0),
        autovacuum_mib: autovacuum.or_else(|| mib("maintenance_work_mem")),
        autovacuum_workers: plain("autovacuum_max_workers").unwrap_or(0.0),
        huge_pages: row("huge_pages_status")
            .or_else(|| row("huge_pages"))
            .and_then(|row| Some(row.text("setting")?.to_owned())),
        idle_in_transaction_timeout_ms: row("idle_in_transaction_session_timeout").and_then(|row| row.number("number")),
    }
}

fn activity(server: &mut Server, tables: &[Table]) {
    let counters: Vec<Row> = tables.iter().filter_map(Table::first).filter(|row| row.text("time").is_some()).collect();
    if let [first, .., last] = counters[..] {
        server.seconds = last.count("time") - first.count("time");
        // What was asked between both is transactions, too.
        let own = places::floats(&[tables.len().saturating_sub(1)])[0];
        server.rates = rates(&first, &last, server.seconds, own);
    }
    for table in tables.iter().filter(|table| table.has("state")) {
        server.hidden =
            table.rows().filter(|row| row.text("hidden") == Some("t")).map(|row| row.count("sessions")).sum();
        server.moments.push(moment(table));
        for row in table.rows() {
            let longest = |column, known: f64| row.count(column).max(known);
            server.longest_transaction = longest("longest_transaction", server.longest_transaction);
            if is_idle_in_transaction(&row) {
                server.longest_idle_in_transaction = longest("longest_state", server.longest_idle_in_transaction);
            }
        }
    }
}

fn moment(table: &Table) -> Moment {
    let mut moment = Moment::default();
    for row in table.rows() {
        let sessions = row.count("sessions");
        moment.open += sessions;
        if is_idle_in_transaction(&row) {
            moment.idle_in_transaction += sessions;
        }
        match row.text("state") {
            Some("idle") => moment.idle += sessions,
            Some("active" | "fastpath function call") => {
                moment.active += sessions;
                match row.text("wait_type") {
                    Some("Lock") => moment.waiting_lock += sessions,
                    Some("LWLock") => moment.waiting_light_lock += sessions,
                    Some("IO") => moment.waiting_io += sessions,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    moment
}

fn is_idle_in_transaction(row: &Row) -> bool {
    row.text("state").is_some_and(|state| state.starts_with("idle in transaction"))
}

/// `None` where a counter is missing, or was reset between.
fn rates(first: &Row, last: &Row, seconds: f64, own: f64) -> Rates {
    let per_second = |column: &str, own: f64| {
        let more = last.number(column)? - first.number(column)?;
        (more >= 0.0 && seconds > 0.0).then(|| (more - own).max(0.0) / seconds)
    };
    Rates {
        transactions: per_second("transactions", own),
        sessions: per_second("sessions", 0.0),
        blocks_read: per_second("blocks_read", 0.0),
        temporary_mib: per_second("temporary_bytes", 0.0).map(|bytes| bytes / MIB),
    }
}

fn numbers(table: &Table) -> Vec<i32> {
    table.rows().filter_map(|row| row.text("pid")?.parse().ok()).collect()
}
