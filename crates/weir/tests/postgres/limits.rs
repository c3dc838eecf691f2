//! Limits hold over all workers, at every moment.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use postgres::error::SqlState;
use postgres::{Client, NoTls};
use weir_wire::{BackendTag, write};

use super::bench::{PATIENCE, Raw, Weir, at_once, shared, wait_until};
use super::parameters::said;

fn direct() -> Client {
    let url = format!("host=127.0.0.1 port={} user=postgres password=postgres dbname=postgres", shared());
    Client::connect(&url, NoTls).unwrap()
}

/// A database of its own, which tells its servers from others'.
fn database(name: &str) -> String {
    let database = format!("weir_limit_{name}");
    direct().batch_execute(&format!("create database {database}")).unwrap();
    database
}

fn servers(watcher: &mut Client, database: &str) -> i64 {
    let count = "select count(*) from pg_stat_activity where datname = $1";
    watcher.query_one(count, &[&database]).unwrap().get(0)
}

/// Counted by database, which no client can change: a watcher that sees nothing fails.
#[test]
fn limits_are_reached_and_never_passed() {
    for (name, limits, most) in [
        ("pool", "default_pool_size = 3", 3),
        ("database", "default_pool_size = 9\nmax_db_connections = 4", 4),
        ("user", "default_pool_size = 9\nmax_user_connections = 2", 2),
        ("reserve", "default_pool_size = 2\nreserve_pool_size = 2\nreserve_pool_timeout = 0.01", 4),
    ] {
        let database = database(name);
        let weir = Weir::start(shared(), &format!("workers = 4\n{limits}"));
        let done = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(AtomicI64::new(0));
        let watcher = {
            let (done, seen, database) = (Arc::clone(&done), Arc::clone(&seen), database.clone());
            std::thread::spawn(move || {
                let mut direct = direct();
                while !done.load(Ordering::Relaxed) {
                    seen.fetch_max(servers(&mut direct, &database), Ordering::Relaxed);
                }
            })
        };
        let (end, watched) = (Instant::now() + PATIENCE, Arc::clone(&seen));
        at_once(24, move |_| {
            let mut client = weir.try_client(&format!("dbname={database}")).unwrap();
            // Until the watcher has come to look, too.
            for turn in 0.. {
                client.batch_execute("begin; select pg_sleep(0.005); commit").unwrap();
                if turn >= 10 && (watched.load(Ordering::Relaxed) >= most || Instant::now() > end) {
                    break;
                }
            }
        });
        done.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), most, "{name}");
    }
}

/// Smaller ones too, while clients of all workers keep every server busy.
#[test]
fn smaller_limits_take_hold_under_load() {
    for (name, limit, most) in [
        ("smaller_pool", "default_pool_size = 2", 2),
        ("smaller_database", "max_db_connections = 3", 3),
        ("smaller_user", "max_user_connections = 1", 1),
    ] {
        let database = database(name);
        let weir = Weir::start(shared(), "workers = 4\ndefault_pool_size = 8");
        let done = AtomicBool::new(false);
        let end = Instant::now() + PATIENCE;
        let mut watcher = direct();
        let mut count = || servers(&mut watcher, &database);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let mut client = weir.try_client(&format!("dbname={database}")).unwrap();
                    while !done.load(Ordering::Relaxed) && Instant::now() < end {
                        client.batch_execute("begin; select pg_sleep(0.005); commit").unwrap();
                    }
                });
            }
            wait_until("all servers work", || count() == 8);
            weir.reload_with(limit);
            wait_until("the smaller limit holds", || count() <= most);
            let held = (0..50).all(|_| count() <= most);
            let loaded = Instant::now() < end;
            done.store(true, Ordering::Relaxed);
            assert!(held && loaded, "{name}");
        });
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

/// Most of them leave the worker that accepts for another one, while many others log in.
#[test]
fn a_crowd_beyond_the_limit_on_files_comes_in() {
    if !weir::driver::has_tables() {
        return println!("skipped: no io_uring here, or one whose tables give no socket back");
    }
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(4_000.min(hard)), hard).unwrap();
    // 450 descriptors, and 386 of 600 places in each worker's table: five workers, and more than half of all that.
    let weir = Weir::start_with_files(600, shared(), "max_client_conn = 2000\ndriver = io_uring");
    let weir = Arc::new(weir);
    let crowd = Arc::new(Mutex::new(Vec::new()));
    let (inside, held) = (Arc::clone(&weir), Arc::clone(&crowd));
    at_once(12, move |_| {
        for _ in 0..10 {
            let mut group: Vec<_> = (0..10).map(|_| inside.raw()).collect();
            group.iter_mut().for_each(Raw::ask_in);
            group.iter_mut().for_each(|client| drop(client.read_until(BackendTag::ReadyForQuery)));
            held.lock().unwrap().append(&mut group);
        }
    });
    let mut crowd = crowd.lock().unwrap();
    assert_eq!(crowd.len(), 1_200);
    for client in crowd.iter_mut() {
        client.send(|out| write::query(out, b"select 1"));
    }
    for client in crowd.iter_mut() {
        client.read_until(BackendTag::ReadyForQuery);
    }
}

/// Clients that ask on a worker where their pool does not live would go to where it does, and cannot.
#[test]
fn who_finds_no_descriptor_to_move_with_is_served_where_it_is() {
    if !weir::driver::has_tables() {
        return println!("skipped: no io_uring here, or one whose tables give no socket back");
    }
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(4_000.min(hard)), hard).unwrap();
    let lines =
        "workers = 4\nmax_client_conn = 2000\ndefault_pool_size = 2\ndriver = io_uring\nquery_wait_timeout = 30";
    let weir = Weir::start_with_files(600, shared(), lines);
    let mut crowd: Vec<_> = (0..1_200).map(|_| weir.raw()).collect();
    crowd.iter_mut().for_each(Raw::ask_in);
    crowd.iter_mut().for_each(|client| drop(client.read_until(BackendTag::ReadyForQuery)));
    // Both servers of the pool stand.
    for client in &mut crowd[..2] {
        client.send(|out| write::query(out, b"begin"));
        client.read_until(BackendTag::ReadyForQuery);
    }
    for client in &mut crowd[..2] {
        client.send(|out| write::query(out, b"commit"));
        client.read_until(BackendTag::ReadyForQuery);
    }
    weir.limit_files(50);
    for _ in 0..3 {
        for client in &mut crowd {
            client.send(|out| write::query(out, b"select 1"));
        }
        for client in &mut crowd {
            let answer = client.read_until(BackendTag::ReadyForQuery);
            assert!(answer.iter().all(|(tag, _)| *tag != BackendTag::ErrorResponse as u8), "{answer:?}");
        }
    }
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
    wait_until("no new clients", || weir.try_client("dbname=postgres").is_err());
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

/// Also with a new one in its place.
#[test]
fn a_pool_that_nobody_uses_is_forgotten() {
    let weir = Weir::start(shared(), "autodb_idle_timeout = 1\nserver_idle_timeout = 1\nworkers = 2");
    let pools = |weir: &Weir| {
        let rows = said(&mut weir.try_client("dbname=pgbouncer").unwrap(), "show pools");
        rows.iter().map(|row| row.split('|').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        let mut kept = weir.client();
        kept.batch_execute("select 1").unwrap();
        weir.try_client("dbname=template1").unwrap().batch_execute("select 1").unwrap();
        assert!(pools(&weir).iter().any(|database| database == "template1"));
        wait_until("the pool is forgotten", || pools(&weir) == ["pgbouncer", "postgres"]);
        // Who is there keeps its pool, whether or not it has a server.
        kept.batch_execute("select 1").unwrap();
        drop(kept);
        wait_until("so is the other one", || pools(&weir) == ["pgbouncer"]);
    }
    assert!(weir.log().contains("cleaning up idle pool for user postgres on db template1 because: pool idle timeout"));
}
