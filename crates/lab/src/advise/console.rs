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

#[cfg(test)]
mod tests {
    use super::super::session::fake::Fake;
    use super::*;

    const URL: &str = "postgres://me@h:6432/pgbouncer";
    const POOLS: &str = "database user cl_active cl_waiting sv_active sv_idle sv_used maxwait maxwait_us pool_mode";
    const STATS: &str = "database total_xact_count total_xact_time total_wait_time";

    fn console() -> Fake {
        Fake::default()
            .with(SHOW_VERSION, "version", &["Weir"])
            .with(
                SHOW_CONFIG,
                "key value default changeable",
                &["max_client_conn 100 100 yes", "query_wait_timeout 120 120 yes"],
            )
            .with(
                SHOW_DATABASES,
                "name host port pool_size reserve_pool_size max_connections paused",
                &["shop db 5432 8 2 0 0", "idle - 5433 4 0 3 1", "pgbouncer - 6432 2 0 0 0"],
            )
            .with(
                SHOW_POOLS,
                POOLS,
                &["shop app 20 5 10 0 0 1 500000 transaction", "pgbouncer pgbouncer 1 0 0 0 0 0 0 statement"],
            )
            .with(SHOW_POOLS, POOLS, &["shop app 22 3 9 1 2 0 0 transaction", "shop new 1 0 1 0 0 0 0 transaction"])
            .with(SHOW_STATS, STATS, &["shop 1000 4000000 1000000"])
            .with(SHOW_STATS, STATS, &["shop 3000 22000000 9000000"])
            .with(SHOW_LISTS, "list items", &["databases 2", "used_clients 27"])
    }

    fn seen(fake: &Fake) -> Result<Console> {
        look(fake, URL, &mut || Ok(Duration::from_secs(2)))
    }

    #[test]
    fn two_looks_become_what_holds_in_both() {
        let console = seen(&console().with(SHOW_WORKERS, "worker busy_permille", &["0 400", "1 900"])).unwrap();
        assert_eq!((console.max_client_conn, console.clients), (Some(100.0), Some(27.0)));
        assert_eq!(console.workers_permille, [400.0, 900.0]);
        let [pool] = &console.pools[..] else { panic!("seen twice, and not the console's own: {:?}", console.pools) };
        assert_eq!((pool.size, pool.waiting_always, pool.servers_active), (Some(10.0), 3.0, 10.0));
        assert_eq!((pool.servers_idle_always, pool.max_wait_seconds, pool.clients), (0.0, 1.5, 25.0));
        let [shop, idle] = &console.databases[..] else { panic!("{:?}", console.databases) };
        assert_eq!(
            (shop.endpoint.as_str(), shop.busy_servers, shop.waiting_clients),
            ("db:5432", Some(9.0), Some(4.0))
        );
        assert_eq!(shop.transactions_per_second, Some(1_000.0));
        assert_eq!((idle.paused, idle.max_connections, idle.busy_servers), (true, 3.0, None));
    }

    #[test]
    fn a_console_without_threads_of_its_own_to_show_is_pgbouncer_s() {
        assert_eq!(seen(&console()).unwrap().workers_permille, Vec::<f64>::new());
    }

    #[test]
    fn what_is_no_console_is_refused() {
        let other = Fake::default()
            .with(SHOW_VERSION, "version", &["1"])
            .with(SHOW_CONFIG, "key value", &[])
            .with(SHOW_DATABASES, "name", &[])
            .with(SHOW_POOLS, "pool", &[])
            .with(SHOW_STATS, "pool", &[])
            .with(SHOW_LISTS, "list items", &[]);
        assert!(seen(&other).unwrap_err().to_string().contains("does not answer as PgBouncer's console does"));
    }
}
