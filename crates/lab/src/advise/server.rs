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

/// Looks for so many seconds, from when `begin` was told the server's processes and start. `url` is without its password.
pub fn look(
    session: &dyn Session,
    url: &str,
    seconds: f64,
    begin: &mut dyn FnMut(&[i32], Option<f64>),
) -> Result<Look> {
    let before = session.ask(&[IDENTITY, SETTINGS, PROCESSES])?;
    let [identity, settings, processes] = &before[..] else { bail!("{url} left questions unanswered") };
    let who = Identity::of(identity, url)?;
    let started = processes.first().and_then(|row| row.number("started"));
    let processes = numbers(processes);
    begin(&processes, started);
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
    // From version 15 on a backend whose transactions touch no table reports them late (`pgstat_report_stat`).
    if server.typical(|moment| moment.active) >= 1.0 {
        server.rates.transactions = server.rates.transactions.filter(|rate| *rate > 0.0);
    }
    Ok(Look { server, processes, started, backends: numbers(backends) })
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

#[cfg(test)]
mod tests {
    use super::super::session::fake::Fake;
    use super::*;

    const IDENTITY_COLUMNS: &str = "version version_number read_only port in_recovery now began backend";
    const ACTIVITY_COLUMNS: &str = "state wait_type wait hidden sessions longest_state longest_transaction";
    const COUNTERS_COLUMNS: &str = "time transactions blocks_read blocks_hit temporary_bytes sessions";
    const URL: &str = "postgres://me@h/d";

    fn look(session: &dyn Session, url: &str, seconds: f64) -> Result<Look> {
        super::look(session, url, seconds, &mut |processes, started| {
            assert_eq!((processes, started), ([11, 12].as_slice(), Some(1000.5)));
        })
    }

    /// A server of version 16 whose first session, and the begin and end of the second, are these rows.
    fn server(identities: [&str; 3]) -> Fake {
        let mut fake = Fake::default();
        for identity in identities {
            fake = fake.with(IDENTITY, IDENTITY_COLUMNS, &[identity]);
        }
        fake.with(
            SETTINGS,
            "name number setting",
            &[
                "max_connections - 200",
                "superuser_reserved_connections - 3",
                "reserved_connections - 2",
                "shared_buffers 134217728 16384",
                "work_mem 4194304 4096",
                "hash_mem_multiplier - 2",
                "maintenance_work_mem 67108864 65536",
                "autovacuum_work_mem -1024 -1",
                "autovacuum_max_workers - 3",
                "huge_pages - try",
                "idle_in_transaction_session_timeout 60000 60000",
            ],
        )
        .with(PROCESSES, "pid started", &["11 1000.5", "12 1000.5"])
        .with(
            ACTIVITY,
            ACTIVITY_COLUMNS,
            &["active - - f 3 1 2", "active Lock transactionid f 2 40 50", "idle Client ClientRead f 20 900 -"],
        )
        .with(ACTIVITY, ACTIVITY_COLUMNS, &["active LWLock ProcArray f 4 1 2", "- - - t 6 - -"])
        .with(PAUSE, "pg_sleep", &["-"])
        .with(COUNTERS, COUNTERS_COLUMNS, &["1000 5000 100 9 0 70"])
        .with(COUNTERS, COUNTERS_COLUMNS, &["1002 7005 300 9 4194304 74"])
        .with(BACKENDS, "pid", &["101", "102"])
    }

    const FIRST: &str = "16.4 160004 on 5432 f 2000 1999.9 100/1999.9";
    const SECOND: &str = "16.4 160004 on 5432 f 2001 2000.9 101/2000.9";

    fn refusal(identities: [&str; 3]) -> String {
        look(&server(identities), URL, 0.5).map(drop).unwrap_err().to_string()
    }

    #[test]
    fn a_look_becomes_settings_moments_and_rates() {
        let look = look(&server([FIRST, SECOND, SECOND]), URL, 0.25).unwrap();
        let server = look.server;
        assert_eq!((server.version.as_str(), server.major, server.port), ("PostgreSQL 16.4", 16, Some(5432)));
        assert_eq!((look.processes, look.started, look.backends), (vec![11, 12], Some(1000.5), vec![101, 102]));
        let settings = &server.settings;
        assert_eq!((settings.max_connections, settings.reserved, server.room()), (Some(200.0), 5.0, Some(195.0)));
        assert_eq!((settings.shared_buffers_mib, settings.work_mem_mib), (Some(128.0), Some(4.0)));
        assert_eq!(settings.autovacuum_mib, Some(64.0), "-1 is maintenance_work_mem");
        assert_eq!(settings.idle_in_transaction_timeout_ms, Some(60_000.0));
        let [first, second] = server.moments[..] else { panic!("{:?}", server.moments) };
        assert_eq!((first.open, first.active, first.idle, first.waiting_lock), (25.0, 5.0, 20.0, 2.0));
        assert_eq!((second.open, second.active, second.waiting_light_lock, server.hidden), (10.0, 4.0, 4.0, 6.0));
        assert_eq!(server.longest_transaction, 50.0);
        // Five statements lie between the counters: a look at nothing is not a load.
        assert_eq!((server.seconds, server.rates.transactions), (2.0, Some(1_000.5)));
        assert_eq!((server.rates.sessions, server.rates.temporary_mib), (Some(2.0), Some(2.0)));
    }

    #[test]
    fn transactions_that_wait_are_known_by_either_name() {
        for (state, waits) in [("idle in transaction", 1.0), ("idle in transaction (aborted)", 1.0), ("idle", 0.0)] {
            let fake = Fake::default().with_fields(ACTIVITY, "state sessions", &[&[state, "1"]]);
            let moment = moment(&fake.ask(&[ACTIVITY]).unwrap()[0]);
            assert_eq!((moment.open, moment.idle_in_transaction), (1.0, waits), "{state}");
        }
    }

    #[test]
    fn a_pooler_gives_itself_away() {
        let same = "16.4 160004 on 5432 f 2001 1999.9 100/1999.9";
        assert!(refusal([FIRST, same, same]).contains("is a pooler: two sessions met the same server process"));
        let old = "16.4 160004 on 5432 f 2001 1500 77/1500";
        assert!(refusal([FIRST, old, old]).contains("older than the session"), "of session mode, or a busy one");
        let other = "16.4 160004 on 5432 f 2003 2002 102/2002";
        assert!(refusal([FIRST, SECOND, other]).contains("one session met two server processes"));
        let writing = "16.4 160004 off 5432 f 2001 2000.9 101/2000.9";
        let text = refusal([FIRST, writing, SECOND]);
        assert!(text.contains("does not pass the session's settings on") && text.contains("to --console"), "{text}");
        assert!(look(&server([FIRST, SECOND, SECOND]), URL, 0.5).is_ok());
    }

    #[test]
    fn counters_that_stand_still_beside_work_are_no_rate_of_zero() {
        let rate = |activity: &str| {
            let fake = server([FIRST, SECOND, SECOND])
                .instead(COUNTERS, COUNTERS_COLUMNS, &["1000 5000 100 9 0 70", "1005 5004 100 9 0 70"])
                .instead(ACTIVITY, "state sessions", &[activity]);
            look(&fake, URL, 0.25).unwrap().server.rates.transactions
        };
        assert_eq!((rate("active 2"), rate("idle 2")), (None, Some(0.0)));
    }

    #[test]
    fn what_is_not_postgres_is_refused() {
        assert!(refusal(["9 - - - - - - -", SECOND, SECOND]).contains("does not say which PostgreSQL it is"));
    }

    #[test]
    fn counters_that_were_reset_and_those_that_a_version_lacks_have_no_rate() {
        let table =
            |row: &str| Fake::default().with(COUNTERS, COUNTERS_COLUMNS, &[row]).ask(&[COUNTERS]).unwrap().remove(0);
        let (before, after) = (table("1 500 10 1 0 -"), table("3 20 14 1 0 -"));
        let rates = rates(&before.first().unwrap(), &after.first().unwrap(), 2.0, 0.0);
        assert_eq!((rates.transactions, rates.sessions, rates.blocks_read), (None, None, Some(2.0)));
    }
}
