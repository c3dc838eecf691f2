//! A look at a pooler's console, some seconds long: Weir's or PgBouncer's, whose columns are the same.
//!
//! Knows the console's words; does not know what is advised.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};

use super::facts::{Console, Pool, PooledDatabase};
use super::session::{Row, Session, Table};
use super::statements::{SHOW_CONFIG, SHOW_DATABASES, SHOW_LISTS, SHOW_POOLS, SHOW_STATS, SHOW_VERSION, SHOW_WORKERS};

/// The console's own database, of which nothing is advised.
const OWN: &str = "pgbouncer";
const MICROSECONDS: f64 = 1e6;

/// Looks now and after `pause`. `url` is without its password.
pub fn look(session: &dyn Session, url: &str, pause: &mut dyn FnMut() -> Result<Duration>) -> Result<Console> {
    let first = session.ask(&[SHOW_VERSION, SHOW_CONFIG, SHOW_DATABASES, SHOW_POOLS, SHOW_STATS])?;
    let seconds = pause()?.as_secs_f64();
    let second = session.ask(&[SHOW_POOLS, SHOW_STATS, SHOW_LISTS])?;
    let ([version, config, databases, pools, stats], [pools_after, stats_after, lists]) = (&first[..], &second[..])
    else {
        bail!("--console: {url} left questions unanswered")
    };
    if !(pools.has("cl_waiting") && stats.has("total_wait_time")) {
        bail!("--console: {url} does not answer as PgBouncer's console does");
    }
    // Refused by every console but Weir's.
    let workers = session.ask(&[SHOW_WORKERS]).unwrap_or_default();
    let databases = self::databases(databases, (stats, stats_after), seconds);
    let setting =
        |name: &str| config.rows().find(|row| row.text("key") == Some(name)).and_then(|row| row.number("value"));
    Ok(Console {
        url: url.to_owned(),
        version: version.first().and_then(|row| row.text("version")).unwrap_or("a pooler").to_owned(),
        seconds,
        pools: self::pools(pools, pools_after, &databases),
        databases,
        max_client_conn: setting("max_client_conn"),
        clients: lists.rows().find(|row| row.text("list") == Some("used_clients")).and_then(|row| row.number("items")),
        query_wait_timeout_seconds: setting("query_wait_timeout").filter(|seconds| *seconds > 0.0),
        workers_permille: workers.iter().flat_map(Table::rows).filter_map(|row| row.number("busy_permille")).collect(),
    })
}

fn key(row: &Row) -> Option<(String, String)> {
    let (database, user) = (row.text("database")?, row.text("user").unwrap_or(""));
    (database != OWN).then(|| (database.to_owned(), user.to_owned()))
}

/// Pools that both looks saw: what is seen once may be chance.
fn pools(before: &Table, after: &Table, databases: &[PooledDatabase]) -> Vec<Pool> {
    let earlier: BTreeMap<_, Row> = before.rows().filter_map(|row| Some((key(&row)?, row))).collect();
    let mut pools = Vec::new();
    for row in after.rows() {
        let Some(name) = key(&row) else { continue };
        let Some(earlier) = earlier.get(&name) else { continue };
        let (least, most) = (
            |column| row.count(column).min(earlier.count(column)),
            |column| row.count(column).max(earlier.count(column)),
        );
        let known = databases.iter().find(|database| database.name == name.0);
        // `sv_used` are idle, too: not checked for a while.
        let idle = |row: &Row| row.count("sv_idle") + row.count("sv_used");
        let longest = |row: &Row| row.count("maxwait") + row.count("maxwait_us") / MICROSECONDS;
        pools.push(Pool {
            mode: row.text("pool_mode").unwrap_or("").to_owned(),
            size: known.and_then(|database| Some(database.pool_size? + database.reserve)),
            clients: most("cl_active") + least("cl_waiting"),
            waiting_always: least("cl_waiting"),
            servers_active: most("sv_active"),
            servers_idle_always: idle(&row).min(idle(earlier)),
            max_wait_seconds: longest(&row).max(longest(earlier)),
            database: name.0,
            user: name.1,
        });
    }
    pools
}

fn databases(table: &Table, (before, after): (&Table, &Table), seconds: f64) -> Vec<PooledDatabase> {
    let of = |table: &Table, name: &str, column: &str| {
        table.rows().find(|row| row.text("database") == Some(name)).and_then(|row| row.number(column))
    };
    let mut databases = Vec::new();
    for row in table.rows() {
        let Some(name) = row.text("name").filter(|name| *name != OWN) else { continue };
        let per_second = |column: &str| {
            let more = of(after, name, column)? - of(before, name, column)?;
            (more >= 0.0 && seconds > 0.0).then(|| more / seconds)
        };
        databases.push(PooledDatabase {
            name: name.to_owned(),
            endpoint: format!("{}:{}", row.text("host").unwrap_or("a socket"), row.text("port").unwrap_or("5432")),
            pool_size: row.number("pool_size"),
            // Its name has changed between versions of PgBouncer.
            reserve: row.number("reserve_pool_size").or_else(|| row.number("reserve_pool")).unwrap_or(0.0),
            max_connections: row.count("max_connections"),
            paused: row.count("paused") > 0.0,
            busy_servers: per_second("total_xact_time").map(|time| time / MICROSECONDS),
            waiting_clients: per_second("total_wait_time").map(|time| time / MICROSECONDS),
            transactions_per_second: per_second("total_xact_count"),
        });
    }
    databases
}
