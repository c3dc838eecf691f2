//! Facts for tests.

use crate::advise::facts::{
    BackendMemory, Console, Facts, Machine, MeasuredChange, MeasuredPeak, MeasuredPooler, Moment, Pool, PooledDatabase,
    Rates, Server, Settings,
};
use weir_measure::journal::Role;

pub fn peak(experiment: &str, connections: f64, enough: f64) -> MeasuredPeak {
    MeasuredPeak {
        experiment: experiment.to_owned(),
        target: "direct".to_owned(),
        role: Role::Server,
        tps: 20_000.0,
        connections,
        enough,
        cores: 2.0,
        rounds: 3,
        ..MeasuredPeak::default()
    }
}

/// Clear, after three rounds.
pub fn change(ratio: f64) -> MeasuredChange {
    MeasuredChange { ratio, clear: true, rounds: 3, doubts: Vec::new() }
}

/// 8 cores, 16 GiB, PostgreSQL's own settings but for its buffers, and seven steady clients.
pub fn quiet_server() -> Facts {
    let settings = Settings {
        max_connections: Some(100.0),
        reserved: 3.0,
        shared_buffers_mib: Some(4_096.0),
        work_mem_mib: Some(4.0),
        hash_mem_multiplier: 2.0,
        autovacuum_mib: Some(64.0),
        autovacuum_workers: 3.0,
        huge_pages: Some("try".to_owned()),
        idle_in_transaction_timeout_ms: Some(0.0),
    };
    let moment = Moment { open: 7.0, active: 3.0, idle: 4.0, ..Moment::default() };
    let rates =
        Rates { transactions: Some(500.0), sessions: Some(0.0), blocks_read: Some(0.0), temporary_mib: Some(0.0) };
    let server = Server {
        url: "postgres://db/shop".to_owned(),
        version: "PostgreSQL 16.4".to_owned(),
        major: 16,
        port: Some(5432),
        settings,
        moments: vec![moment; 3],
        seconds: 5.0,
        rates,
        ..Server::default()
    };
    let machine = Machine {
        cores: Some(8.0),
        memory_mib: Some(16_384.0),
        busy_percent: Some(30.0),
        server_percent: Some(25.0),
        origin: "as given".to_owned(),
    };
    Facts { machine, server: Some(server), ..Facts::default() }
}

/// 450 connections of 500, nearly all of them idle.
pub fn crowded_server(major: u32) -> Facts {
    let mut facts = quiet_server();
    if let Some(server) = &mut facts.server {
        server.major = major;
        server.version = format!("PostgreSQL {major}.4");
        server.settings.max_connections = Some(500.0);
        server.moments = vec![Moment { open: 450.0, active: 10.0, idle: 440.0, ..Moment::default() }; 3];
        server.backend_mib = Some(BackendMemory { median_mib: 3.0, largest_mib: 9.0, backends: 200 });
    }
    facts
}

pub fn pool() -> Pool {
    Pool {
        database: "shop".to_owned(),
        user: "app".to_owned(),
        mode: "transaction".to_owned(),
        size: Some(8.0),
        clients: 40.0,
        waiting_always: 0.0,
        servers_active: 8.0,
        servers_idle_always: 0.0,
        max_wait_seconds: 0.0,
    }
}

/// 30 clients wait for 8 servers.
pub fn full_pool() -> Facts {
    let database = PooledDatabase {
        name: "shop".to_owned(),
        endpoint: "127.0.0.1:5432".to_owned(),
        pool_size: Some(8.0),
        busy_servers: Some(7.9),
        waiting_clients: Some(30.0),
        ..PooledDatabase::default()
    };
    let console = Console {
        url: "postgres://db:6432/pgbouncer".to_owned(),
        version: "Weir 0.1.0".to_owned(),
        seconds: 5.0,
        pools: vec![Pool { waiting_always: 30.0, max_wait_seconds: 0.4, ..pool() }],
        databases: vec![database],
        max_client_conn: Some(100.0),
        clients: Some(40.0),
        query_wait_timeout_seconds: Some(120.0),
        workers_permille: vec![400.0, 10.0],
    };
    Facts { console: Some(console), ..Facts::default() }
}

/// So different that every rule speaks for one of them.
pub fn all() -> Vec<Facts> {
    let mut all = vec![quiet_server(), crowded_server(12), crowded_server(17), full_pool()];
    let mut spilling = crowded_server(16);
    if let Some(server) = &mut spilling.server {
        server.rates.temporary_mib = Some(50.0);
        server.settings.work_mem_mib = Some(256.0);
        server.settings.huge_pages = Some("off".to_owned());
        server.settings.shared_buffers_mib = Some(6_000.0);
        server.longest_idle_in_transaction = 600.0;
    }
    spilling.machine.busy_percent = Some(97.0);
    all.push(spilling);
    let mut odd = quiet_server();
    odd.console = full_pool().console;
    odd.runs.peaks = vec![peak("saturation", 6.0, 5.0)];
    odd.runs.poolers =
        vec![MeasuredPooler { at_peak: change(0.7), at_most: Some((500.0, change(3.0))), ..MeasuredPooler::default() }];
    if let Some(console) = &mut odd.console {
        console.pools[0].size = Some(500.0);
        console.pools[0].max_wait_seconds = 100.0;
        console.clients = Some(99.0);
        console.workers_permille = vec![1_000.0];
        console.databases[0].paused = true;
        let session = Pool { database: "old".to_owned(), mode: "session".to_owned(), servers_active: 20.0, ..pool() };
        let idle = Pool { database: "idle".to_owned(), servers_active: 0.0, servers_idle_always: 12.0, ..pool() };
        console.pools.extend([session, idle]);
        console.databases.push(PooledDatabase {
            name: "old".to_owned(),
            busy_servers: Some(1.0),
            ..PooledDatabase::default()
        });
    }
    all.push(odd);
    let mut alone = Facts::default();
    alone.runs.peaks = vec![peak("single-shard", 6.0, 5.0)];
    all.push(alone);
    all
}
