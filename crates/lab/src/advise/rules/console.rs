//! What a running pooler's counters say of its settings.

use super::pool::PART_FOR_POOLS;
use super::{Advice, Cited, Sure, console_look, estimates, manual, run};
use crate::advise::facts::{Console, Facts, Pool, PooledDatabase, Server};
use crate::experiments::sources::{CLICKHOUSE_2026, FREUND_2020, MICROSOFT_2026};
use crate::experiments::words;
use crate::report::figures::number;

/// A server that is less busy than this could do more at once.
const PROCESSOR_TO_SPARE_PERCENT: f64 = 80.0;
/// Nearer to a limit than this is near.
const NEAR: f64 = 0.8;
/// Of `query_wait_timeout`, a wait that is worth a warning.
const LONG_WAIT_PART: f64 = 0.5;
/// Idle servers that nobody uses: so many at least, and so many times those in use.
const IDLE_SERVERS_MIN: f64 = 4.0;
const IDLE_SERVERS_TIMES: f64 = 2.0;
/// In session mode, the part of its time that a held server is inside of transactions, below which sharing would pay.
const BUSY_PART: f64 = 0.5;
const SESSION_SERVERS_MIN: f64 = 4.0;
/// Weir passes clients on at 700; at this every thread is full.
const WORKER_FULL_PERMILLE: f64 = 850.0;

fn sources(facts: &Facts) -> Vec<Cited> {
    console_look(facts).into_iter().collect()
}

fn names<'a>(pools: impl IntoIterator<Item = &'a Pool>) -> String {
    let names: Vec<String> = pools.into_iter().map(|pool| format!("{}/{}", pool.database, pool.user)).collect();
    words::list(&names)
}

fn is_full(pool: &Pool) -> bool {
    let full = pool.size.is_none_or(|size| pool.servers_active >= size);
    pool.waiting_always >= 1.0 && pool.servers_idle_always <= 0.0 && full
}

fn is_paused(console: &Console, pool: &Pool) -> bool {
    console.databases.iter().any(|database| database.paused && database.name == pool.database)
}

pub fn paused(facts: &Facts) -> Option<Advice> {
    let console = facts.console.as_ref()?;
    let waiting = |database: &&PooledDatabase| {
        database.paused && console.pools.iter().any(|pool| pool.database == database.name && pool.waiting_always >= 1.0)
    };
    let names: Vec<String> = console.databases.iter().filter(waiting).map(|database| database.name.clone()).collect();
    if names.is_empty() {
        return None;
    }
    let what = format!("Resume {} once what it was paused for is done: clients wait.", words::list(&names));
    let reason = "A paused database gives no servers to its clients, whatever its pool's size.";
    Some(Advice::new(what, reason, Sure::Seen).from(sources(facts)))
}

/// Clients wait while all servers of their pool are busy.
pub fn clients_wait(facts: &Facts) -> Option<Advice> {
    let console = facts.console.as_ref()?;
    let full: Vec<&Pool> = console
        .pools
        .iter()
        .filter(|pool| is_full(pool) && pool.mode != "session" && !is_paused(console, pool))
        .collect();
    let worst = full.iter().max_by(|one, other| one.waiting_always.total_cmp(&other.waiting_always))?;
    let seen = format!(
        "In {} clients waited in both looks (at {} {} or more at a time, the longest {} s) while no server of the pool was idle ({} in use).",
        names(full.iter().copied()),
        names([*worst]),
        number(worst.waiting_always),
        number(worst.max_wait_seconds),
        number(worst.servers_active)
    );
    if let Some(busy) = facts.machine.busy_percent.filter(|busy| *busy >= PROCESSOR_TO_SPARE_PERCENT) {
        let what = "Leave the pool as it is although clients wait: the processor of the server's machine is busy.";
        let reason = format!(
            "{seen} The machine was {} % busy: more servers would only wait for one another. Fewer or shorter queries, or more cores, help.",
            number(busy.round())
        );
        return Some(Advice::new(what, reason, Sure::Seen).from(sources(facts)).from([MICROSOFT_2026.into()]));
    }
    let size = worst.size.unwrap_or(worst.servers_active);
    // A peak of the lab's own queries says little of a pool that others use.
    let own_peak = facts.runs.peak_of_server().filter(|peak| estimates::is_own_work(peak));
    if let Some(peak) = own_peak.filter(|peak| size >= peak.connections) {
        let what = "Leave the pool as it is although clients wait: more servers gave no more throughput.";
        let reason = format!(
            "{seen} The experiment {} measured the best throughput with {} connections.",
            peak.experiment,
            number(peak.connections)
        );
        let measured = run(facts, &peak.experiment, &peak.date);
        return Some(Advice::new(what, reason, Sure::Measured).from(sources(facts)).from([measured]));
    }
    let known = if facts.machine.busy_percent.is_some() {
        "The machine has processor to spare."
    } else {
        "Do so only while the server's machine has processor to spare, which is not known here (--url, on that machine)."
    };
    let value = wider(facts, size, worst.waiting_always);
    let what = format!(
        "Raise the pool of {} from {} to about {}, and look again.",
        names([*worst]),
        number(size),
        number(value)
    );
    let reason = format!("{seen} {known} The pool, not the server, is what limits.");
    Some(Advice::new(what, reason, Sure::Seen).set("pool_size", number(value)).from(sources(facts)))
}

/// As many more as wait, at most twice the size at a time, and no more than the server has room for.
fn wider(facts: &Facts, size: f64, waiting: f64) -> f64 {
    let room = facts.server.as_ref().and_then(Server::room).map_or(f64::MAX, |room| (room * PART_FOR_POOLS).floor());
    (size + waiting).min(2.0 * size.max(1.0)).min(room).max(size)
}

/// Clients are near to being sent away.
pub fn waits_too_long(facts: &Facts) -> Option<Advice> {
    let console = facts.console.as_ref()?;
    let timeout = console.query_wait_timeout_seconds?;
    let long = |pool: &&Pool| pool.max_wait_seconds >= LONG_WAIT_PART * timeout;
    let pools: Vec<&Pool> = console.pools.iter().filter(long).collect();
    let longest = pools.iter().map(|pool| pool.max_wait_seconds).reduce(f64::max)?;
    let what = "Make waits shorter: clients will soon be ended by query_wait_timeout.";
    let reason = format!(
        "In {} a client had waited {} s for a server; query_wait_timeout is {} s. A larger pool helps if the server has processor to spare, \
         shorter transactions always; a longer timeout only hides it.",
        names(pools.iter().copied()),
        number(longest),
        number(timeout)
    );
    Some(Advice::new(what, reason, Sure::Seen).from(sources(facts)))
}

/// A pool that is larger than its use.
pub fn servers_idle(facts: &Facts) -> Option<Advice> {
    let console = facts.console.as_ref()?;
    let large = |pool: &&Pool| {
        pool.servers_idle_always >= IDLE_SERVERS_MIN
            && pool.servers_idle_always >= IDLE_SERVERS_TIMES * pool.servers_active
            && pool.waiting_always <= 0.0
    };
    let pools: Vec<&Pool> = console.pools.iter().filter(large).collect();
    let idle: f64 = pools.iter().map(|pool| pool.servers_idle_always).sum();
    let used: f64 = pools.iter().map(|pool| pool.servers_active).sum();
    if pools.is_empty() {
        return None;
    }
    let each = estimates::idle_mib(facts);
    let what = "If memory or connections of the server are scarce, make the pool smaller: servers are idle.";
    let reason = format!(
        "In {} {} servers were idle in both looks and at most {} in use, while nobody waited. They hold about {} of the server's memory \
         ({}). server_idle_timeout closes what is idle for long; look again at the busiest hour first.",
        names(pools.iter().copied()),
        number(idle),
        number(used),
        estimates::size(idle * each.value),
        each.how
    );
    Some(Advice::new(what, reason, Sure::Seen).from(sources(facts)).from(each.sources))
}

/// Servers that are held by sessions, and seldom inside of a transaction.
pub fn session_mode(facts: &Facts) -> Option<Advice> {
    let console = facts.console.as_ref()?;
    let mut held = 0.0;
    let mut busy = 0.0;
    let mut seldom: Vec<&str> = Vec::new();
    for database in &console.databases {
        let pools = || console.pools.iter().filter(|pool| pool.database == database.name);
        let servers: f64 = pools().map(|pool| pool.servers_active).sum();
        let all_sessions = pools().all(|pool| pool.mode == "session");
        let Some(inside) = database.busy_servers.filter(|_| all_sessions && servers >= SESSION_SERVERS_MIN) else {
            continue;
        };
        if inside <= BUSY_PART * servers {
            held += servers;
            busy += inside;
            seldom.push(&database.name);
        }
    }
    if seldom.is_empty() {
        return None;
    }
    let names: Vec<String> = seldom.iter().map(|name| (*name).to_owned()).collect();
    let what =
        format!("Try transaction mode for {}: its sessions hold servers that they seldom use.", words::list(&names));
    let reason = format!(
        "{} servers were held by sessions, and on average {} of them were inside of a transaction: so many, and some more for bursts, would do \
         in transaction mode. Clients that keep something in their session (LISTEN, temporary tables, advisory locks) need session mode: \
         give them a database of their own in the pooler.",
        number(held),
        number(busy)
    );
    Some(
        Advice::new(what, reason, Sure::Seen)
            .set("pool_mode", "transaction")
            .from(sources(facts))
            .from([FREUND_2020.into()]),
    )
}

/// New clients will soon be refused.
pub fn max_client_conn(facts: &Facts) -> Option<Advice> {
    let console = facts.console.as_ref()?;
    let (most, clients) = (console.max_client_conn.filter(|most| *most > 0.0)?, console.clients?);
    if clients < NEAR * most {
        return None;
    }
    let value = (2.0 * most).ceil();
    let what = format!("Raise max_client_conn from {}: new clients will soon be refused.", number(most));
    let reason = format!(
        "{} clients were connected. A client in a pooler costs a file and some kilobytes, not a server process; the process's limit on open \
         files must allow them.",
        number(clients)
    );
    let advice = Advice::new(what, reason, Sure::Seen).set("max_client_conn", number(value).replace(',', ""));
    Some(advice.from(sources(facts)).from([CLICKHOUSE_2026.into()]))
}

/// Pools that together may open more than the server allows.
pub fn pools_over_max_connections(facts: &Facts) -> Option<Advice> {
    let (console, server) = (facts.console.as_ref()?, facts.server.as_ref()?);
    let room = server.room()?;
    let port = format!(":{}", server.port?);
    let of_server = |database: &&PooledDatabase| database.endpoint.ends_with(&port);
    let mut sum = 0.0;
    let mut parts: Vec<String> = Vec::new();
    for database in console.databases.iter().filter(of_server) {
        let pools = console.pools.iter().filter(|pool| pool.database == database.name);
        let all: f64 = pools.filter_map(|pool| pool.size).sum();
        let most = if database.max_connections > 0.0 { all.min(database.max_connections) } else { all };
        if most > 0.0 {
            sum += most;
            parts.push(format!("{} {}", database.name, number(most)));
        }
    }
    if sum <= room {
        return None;
    }
    let what =
        "Make the pools smaller, or max_connections larger: together the pools may open more than the server allows.";
    let reason = format!(
        "The pools that there are may open {} connections to a server on port {} ({}), and the server has room for {}. Clients of the pool \
         that comes last are refused by the server. max_db_connections bounds a database over all of its users.",
        number(sum),
        &port[1..],
        words::list(&parts),
        number(room)
    );
    let value = (room * PART_FOR_POOLS).floor();
    let advice =
        Advice::new(what, reason, Sure::Computed).set("pool sizes", format!("at most {} together", number(value)));
    Some(advice.from(sources(facts)).from([manual::CONNECTIONS, CLICKHOUSE_2026.into()]))
}

/// The pooler itself has no time left.
pub fn pooler_busy(facts: &Facts) -> Option<Advice> {
    let console = facts.console.as_ref()?;
    let least = console.workers_permille.iter().copied().reduce(f64::min)?;
    if least < WORKER_FULL_PERMILLE {
        return None;
    }
    let threads = console.workers_permille.len();
    let what = "Give the pooler more threads or cores: all of its threads are busy.";
    let reason = format!(
        "Each of its {threads} threads was busy for {} % of the time or more, so messages wait in the pooler whatever the server does. In the \
         source one full core held sixteen back: 77,000 TPS instead of 336,000.",
        number((least / 10.0).round())
    );
    Some(
        Advice::new(what, reason, Sure::Seen)
            .set("workers", "as many as cores")
            .from(sources(facts))
            .from([CLICKHOUSE_2026.into()]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::rules::samples;

    fn pool(facts: &mut Facts) -> &mut Pool {
        &mut facts.console.as_mut().unwrap().pools[0]
    }

    #[test]
    fn a_full_pool_grows_only_where_the_server_could_do_more() {
        let mut facts = samples::full_pool();
        let advice = clients_wait(&facts).unwrap();
        assert!(
            advice.set.as_ref().unwrap().value == "16" && advice.reason.contains("which is not known here"),
            "{advice:?}"
        );
        facts.machine.busy_percent = Some(40.0);
        assert!(clients_wait(&facts).unwrap().reason.contains("has processor to spare"));
        facts.machine.busy_percent = Some(93.0);
        let advice = clients_wait(&facts).unwrap();
        assert!(advice.set.is_none() && advice.what.starts_with("Leave the pool"), "{advice:?}");
        facts.machine.busy_percent = Some(40.0);
        facts.runs.peaks.push(samples::peak("saturation", 6.0, 5.0));
        assert_eq!(clients_wait(&facts).unwrap().sure, Sure::Measured);
        facts.runs.peaks[0].experiment = "single-shard".to_owned();
        assert!(clients_wait(&facts).unwrap().what.starts_with("Raise the pool"), "the peak is of other work");
        pool(&mut facts).servers_idle_always = 1.0;
        assert_eq!(clients_wait(&facts), None, "a server is free");
    }

    #[test]
    fn a_pool_that_is_paused_is_not_too_small() {
        let mut facts = samples::full_pool();
        assert_eq!(paused(&facts), None);
        facts.console.as_mut().unwrap().databases[0].paused = true;
        assert_eq!(clients_wait(&facts), None);
        assert!(paused(&facts).unwrap().what.starts_with("Resume shop"));
    }

    #[test]
    fn a_pool_grows_by_what_waits_and_what_fits() {
        let mut facts = Facts::default();
        assert_eq!((wider(&facts, 20.0, 5.0), wider(&facts, 20.0, 500.0)), (25.0, 40.0));
        facts.server = samples::quiet_server().server;
        facts.server.as_mut().unwrap().settings.max_connections = Some(33.0);
        assert_eq!((wider(&facts, 20.0, 500.0), wider(&facts, 30.0, 500.0)), (27.0, 30.0));
    }

    #[test]
    fn long_waits_are_told_before_the_timeout() {
        let mut facts = samples::full_pool();
        assert_eq!(waits_too_long(&facts), None);
        pool(&mut facts).max_wait_seconds = 70.0;
        assert!(
            waits_too_long(&facts).unwrap().reason.contains("waited 70 s for a server; query_wait_timeout is 120 s")
        );
    }

    #[test]
    fn idle_servers_are_told_where_there_are_many() {
        let mut facts = samples::full_pool();
        assert_eq!(servers_idle(&facts), None);
        *pool(&mut facts) = Pool { servers_active: 2.0, servers_idle_always: 18.0, ..samples::pool() };
        assert!(servers_idle(&facts).unwrap().reason.contains("18 servers were idle in both looks and at most 2"));
    }

    #[test]
    fn sessions_that_seldom_work_could_share() {
        let mut facts = samples::full_pool();
        assert_eq!(session_mode(&facts), None);
        *pool(&mut facts) = Pool { mode: "session".to_owned(), ..samples::pool() };
        facts.console.as_mut().unwrap().databases[0].busy_servers = Some(1.5);
        let advice = session_mode(&facts).unwrap();
        assert!(advice.reason.contains("8 servers were held by sessions, and on average 1.50"), "{advice:?}");
        assert_eq!(clients_wait(&facts), None, "the mode comes first");
        facts.console.as_mut().unwrap().databases[0].busy_servers = Some(7.0);
        assert_eq!(session_mode(&facts), None);
    }

    #[test]
    fn limits_of_clients_and_servers() {
        let mut facts = samples::full_pool();
        assert_eq!(max_client_conn(&facts), None);
        facts.console.as_mut().unwrap().clients = Some(85.0);
        assert_eq!(max_client_conn(&facts).unwrap().set.unwrap().value, "200");
        facts.server = samples::quiet_server().server;
        assert_eq!(pools_over_max_connections(&facts), None);
        pool(&mut facts).size = Some(150.0);
        let advice = pools_over_max_connections(&facts).unwrap();
        assert!(
            advice.reason.contains(
                "may open 150 connections to a server on port 5432 (shop 150), and the server has room for 97"
            ),
            "{advice:?}"
        );
        facts.server.as_mut().unwrap().port = Some(5433);
        assert_eq!(pools_over_max_connections(&facts), None, "another server");
    }

    #[test]
    fn a_pooler_without_time_says_so() {
        let mut facts = samples::full_pool();
        assert_eq!(pooler_busy(&facts), None);
        facts.console.as_mut().unwrap().workers_permille = vec![990.0, 900.0];
        assert!(pooler_busy(&facts).unwrap().reason.contains("Each of its 2 threads was busy for 90 %"));
        facts.console.as_mut().unwrap().workers_permille = vec![990.0, 100.0];
        assert_eq!(pooler_busy(&facts), None);
    }
}
