//! PostgreSQL is killed under load and started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use weir_wire::backend::ErrorFields;
use weir_wire::{BackendTag, write};

use super::bench::{DRIVERS, Raw, Weir, cluster, shared, wait_until};

/// True after a ReadyForQuery; false after exactly one error that says that the server is lost, and the end.
fn is_served(client: &mut Raw) -> bool {
    loop {
        let (tag, body) = client.message().expect("an error before the end");
        if tag == BackendTag::ReadyForQuery as u8 {
            return true;
        }
        if tag == BackendTag::ErrorResponse as u8 {
            let fields = ErrorFields::parse(&body).unwrap();
            assert!(matches!(fields.code, b"08006" | b"57P01" | b"57P02"), "{fields:?}");
            assert_eq!(client.message(), None, "one error, not two");
            return false;
        }
    }
}

#[test]
fn a_killed_server_costs_only_what_was_running() {
    for driver in DRIVERS {
        let mut cluster = cluster(18);
        let weir = Arc::new(Weir::start(cluster.port(), &format!("driver = {driver}\ndefault_pool_size = 4")));
        let mut idle: Vec<_> = (0..10).map(|_| weir.client()).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let (served, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let load: Vec<_> = (0..12)
            .map(|_| {
                let (weir, stop) = (Arc::clone(&weir), Arc::clone(&stop));
                let (served, lost) = (Arc::clone(&served), Arc::clone(&lost));
                std::thread::spawn(move || {
                    let mut client = weir.raw();
                    client.log_in();
                    while !stop.load(Ordering::Relaxed) {
                        client.send(|out| write::query(out, b"begin; select pg_sleep(0.05); commit"));
                        if is_served(&mut client) {
                            served.fetch_add(1, Ordering::Relaxed);
                        } else {
                            lost.fetch_add(1, Ordering::Relaxed);
                            client = weir.raw();
                            client.log_in();
                        }
                    }
                })
            })
            .collect();
        wait_until("the load runs", || served.load(Ordering::Relaxed) > 50);
        cluster.kill_hard();
        std::thread::sleep(Duration::from_millis(300));
        cluster.start_again().unwrap();
        let before = served.load(Ordering::Relaxed);
        wait_until("the load runs again", || served.load(Ordering::Relaxed) > before + 50);
        stop.store(true, Ordering::Relaxed);
        for thread in load {
            thread.join().unwrap();
        }
        let lost = lost.load(Ordering::Relaxed);
        assert!((1..=4).contains(&lost), "{lost} clients were told, at most 4 were being served");
        for client in &mut idle {
            assert_eq!(client.query_one("select 1", &[]).unwrap().get::<_, i32>(0), 1);
        }
    }
}

/// As one does that is behind a firewall which has forgotten the connection: nothing comes back, and no end.
#[test]
fn a_server_that_hangs_is_found_by_its_check() {
    let mut direct = postgres::Client::connect(
        &format!("host=127.0.0.1 port={} user=postgres password=postgres dbname=postgres", shared()),
        postgres::NoTls,
    )
    .unwrap();
    direct.batch_execute("create database weir_hangs").unwrap();
    let lines = "default_pool_size = 1\nworkers = 1\nserver_check_query = select 'there'\nserver_check_delay = 1";
    let weir = Weir::start(shared(), lines);
    let mut console = weir.try_client("dbname=pgbouncer").unwrap();
    let mut client = weir.try_client("dbname=weir_hangs").unwrap();
    client.batch_execute("select 1").unwrap();
    let mut is_used = || {
        let rows = console.query("show pools", &[]).unwrap();
        let pool = rows.iter().find(|row| row.get::<_, String>("database") == "weir_hangs").unwrap();
        pool.get::<_, i32>("sv_used") == 1
    };
    let mut own_server = || {
        let asked = "select pid from pg_stat_activity where datname = 'weir_hangs'";
        nix::unistd::Pid::from_raw(direct.query_one(asked, &[]).unwrap().get(0))
    };
    wait_until("it is idle for long", &mut is_used);
    let server = own_server();
    client.batch_execute("select 2").unwrap();
    assert_eq!(own_server(), server, "it has answered");
    wait_until("it is idle for long again", &mut is_used);
    kill(server, Signal::SIGSTOP).unwrap();
    let answered = client.query_one("select 3", &[]);
    kill(server, Signal::SIGCONT).unwrap();
    assert_eq!(answered.unwrap().get::<_, i32>(0), 3);
    assert!(weir.log().contains("server_check_query was not answered in time"), "{}", weir.log());
}
