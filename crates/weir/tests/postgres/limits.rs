//! Limits hold over all workers, at every moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postgres::NoTls;
use postgres::error::SqlState;

use super::bench::{Weir, at_once, shared, wait_until};

fn count_servers(direct: &mut postgres::Client, name: &str) -> i64 {
    let query = "select count(*) from pg_stat_activity where application_name = $1";
    direct.query_one(query, &[&name]).unwrap().get(0)
}

#[test]
fn a_pool_never_exceeds_its_size() {
    for (name, limits, most) in [
        ("pool", "default_pool_size = 3", 3),
        ("reserve", "default_pool_size = 2\nreserve_pool_size = 2\nreserve_pool_timeout = 0.05", 4),
        ("database", "default_pool_size = 9\nmax_db_connections = 4", 4),
        ("user", "default_pool_size = 9\nmax_user_connections = 2", 2),
    ] {
        let label = format!("weir_limit_{name}");
        let databases = format!("* = host=127.0.0.1 port={} application_name={label}", shared());
        let lines = format!("workers = 4\nmax_client_conn = 100\n{limits}");
        let weir = Arc::new(Weir::start_with(&databases, "\"postgres\" \"postgres\"\n", &lines));
        let done = Arc::new(AtomicBool::new(false));
        let watcher = {
            let (done, label) = (Arc::clone(&done), label.clone());
            std::thread::spawn(move || {
                let url = format!("host=127.0.0.1 port={} user=postgres password=postgres dbname=postgres", shared());
                let mut direct = postgres::Client::connect(&url, NoTls).unwrap();
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) {
                    seen = seen.max(count_servers(&mut direct, &label));
                    std::thread::sleep(Duration::from_millis(1));
                }
                seen
            })
        };
        at_once(24, move |_| {
            let mut client = weir.try_client("dbname=postgres application_name=app").unwrap();
            for _ in 0..15 {
                let mut transaction = client.transaction().unwrap();
                transaction.batch_execute("set local application_name = ''").unwrap_or_default();
                transaction.batch_execute("select pg_sleep(0.002)").unwrap();
                transaction.commit().unwrap();
            }
        });
        done.store(true, Ordering::Relaxed);
        let seen = watcher.join().unwrap();
        assert!(seen <= most, "{name}: {seen} servers");
    }
}

#[test]
fn one_client_too_many_is_told_so() {
    let weir = Weir::start(shared(), "max_client_conn = 3\nworkers = 2");
    let clients: Vec<_> = (0..3).map(|_| weir.client()).collect();
    let error = weir.try_client("dbname=postgres").err().unwrap();
    assert_eq!(error.code(), Some(&SqlState::TOO_MANY_CONNECTIONS));
    drop(clients);
    wait_until("there is room again", || weir.try_client("dbname=postgres").is_ok());
}

#[test]
fn signals_end_it_as_they_end_pgbouncer() {
    use nix::sys::signal::Signal;
    let mut weir = Weir::start(shared(), "");
    let mut client = weir.client();
    weir.signal(Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(200));
    assert!(!weir.has_ended(), "a client is still here");
    client.batch_execute("select 1").unwrap();
    assert!(weir.try_client("dbname=postgres").is_err(), "no new clients");
    drop(client);
    wait_until("it ends with its last client", || weir.has_ended());

    let mut weir = Weir::start(shared(), "");
    let mut client = weir.client();
    let mut transaction = client.transaction().unwrap();
    transaction.batch_execute("select 1").unwrap();
    weir.signal(Signal::SIGINT);
    std::thread::sleep(Duration::from_millis(200));
    assert!(!weir.has_ended(), "a transaction is still open");
    transaction.batch_execute("select 1").unwrap();
    transaction.commit().unwrap();
    wait_until("it ends with its last transaction", || weir.has_ended());

    let mut weir = Weir::start(shared(), "");
    let _client = weir.client();
    weir.signal(Signal::SIGTERM);
    weir.signal(Signal::SIGQUIT);
    wait_until("it ends at once", || weir.has_ended());
}
