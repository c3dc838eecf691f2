//! Clients that listen, of which one server hears for all (`session_state = keep`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, NoTls};

use super::bench::{Weir, shared, wait_until};
use super::parameters::{client, said};

const KEEP: &str = "session_state = keep\nworkers = 1\ndefault_pool_size = 3\nmax_client_conn = 1000";
const PATIENCE: Duration = Duration::from_secs(20);
/// The column of `SHOW SERVERS`.
const LINK: usize = 15;
/// And that of the process.
const PID: usize = 16;

/// The next so many notifications: channel and payload.
fn heard(client: &mut Client, count: usize) -> Vec<String> {
    let until = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while all.len() < count && Instant::now() < until {
        let mut notifications = client.notifications();
        let mut waits = notifications.timeout_iter(Duration::from_millis(100));
        while let Some(told) = waits.next().unwrap() {
            all.push(format!("{} {}", told.channel(), told.payload()));
            if all.len() == count {
                break;
            }
        }
    }
    all
}

/// Nothing more comes.
fn hears_nothing(client: &mut Client) {
    let mut notifications = client.notifications();
    let more = notifications.timeout_iter(Duration::from_millis(200)).next().unwrap();
    assert!(more.is_none(), "{more:?}");
}

/// Servers of the pool, as PostgreSQL has them.
fn servers(direct: &mut Client, name: &str) -> u32 {
    let text = format!("select count(*) from pg_stat_activity where datname = '{name}'");
    said(direct, &text)[0].parse().unwrap()
}

/// No client has a server, also none that is still asked what is left there: the listener hears all.
pub fn wait_until_handed_over(weir: &Weir) {
    let mut console = weir.try_client("dbname=pgbouncer").unwrap();
    let mut has_server = |row: &String| row.split('|').nth(LINK).is_none_or(|link| !link.is_empty());
    wait_until("no client has a server", || !said(&mut console, "show servers").iter().any(&mut has_server));
}

/// A database of the test's own: its sessions can be counted, and nobody else notifies there.
fn database(server: u16, name: &str) -> (Weir, Client) {
    let mut direct = client(server, "");
    direct.batch_execute(&format!("create database {name}")).unwrap();
    let databases = format!("{name} = host=127.0.0.1 port={server} dbname={name}\n* = host=127.0.0.1 port={server}");
    (Weir::start_with(&databases, "\"postgres\" \"postgres\"\n", KEEP), direct)
}

#[test]
fn many_listen_through_one_server() {
    on::many_listen_through_one_server(shared());
}

#[test]
fn nothing_is_told_twice_and_nothing_is_lost() {
    on::nothing_is_told_twice_and_nothing_is_lost(shared());
}

#[test]
fn who_unlistens_hears_no_more() {
    on::who_unlistens_hears_no_more(shared());
}

#[test]
fn what_is_unlistened_in_a_transaction_counts_with_its_end() {
    on::what_is_unlistened_in_a_transaction_counts_with_its_end(shared());
}

#[test]
fn what_ends_listening_is_never_lost() {
    on::what_ends_listening_is_never_lost(shared());
}

#[test]
fn nothing_that_comes_during_a_handover_is_lost() {
    on::nothing_that_comes_during_a_handover_is_lost(shared());
}

#[test]
fn what_was_unlistened_behind_a_lost_mark_is_left_or_refused() {
    on::what_was_unlistened_behind_a_lost_mark_is_left_or_refused(shared());
}

#[test]
fn what_was_kept_is_told_as_its_client_reads_it_then() {
    on::what_was_kept_is_told_as_its_client_reads_it_then(shared());
}

#[test]
fn who_loses_the_server_that_listened_is_told() {
    on::who_loses_the_server_that_listened_is_told(shared());
}

/// A session of another user is its client's, whatever else it holds.
#[test]
fn who_has_taken_another_user_keeps_it_beside_a_listen() {
    let (weir, mut direct) = database(shared(), "listen_as_another");
    direct.batch_execute("create role listens_less").unwrap();
    for _ in 0..2 {
        let mut listener = client(weir.port, "dbname=listen_as_another");
        listener.batch_execute("set session authorization listens_less; listen a").unwrap();
        thread::sleep(Duration::from_millis(100));
        assert_eq!(said(&mut listener, "select session_user"), ["listens_less"]);
        let mut other = client(weir.port, "dbname=listen_as_another");
        other.batch_execute("listen z").unwrap();
        wait_until("the other has handed it over", || said(&mut other, "select pg_listening_channels()") == ["z"]);
    }
    direct.batch_execute("drop role listens_less").unwrap();
}

/// Also where code asks.
#[test]
fn what_is_listened_to_is_listed() {
    let (weir, _) = database(shared(), "listen_listed");
    let mut other = client(shared(), "dbname=listen_listed");
    other.batch_execute("create view listed as select * from pg_listening_channels() as own (name)").unwrap();
    let mut listener = client(weir.port, "dbname=listen_listed");
    listener.batch_execute("listen a").unwrap();
    wait_until_handed_over(&weir);
    assert_eq!(said(&mut listener, "select name from listed"), ["a"]);
}

/// Where one server is all that there may be it does what its clients ask.
#[test]
fn the_last_server_does_not_listen_for_others() {
    for lines in ["max_db_connections = 1", "max_user_connections = 1", "default_pool_size = 1"] {
        let weir =
            Weir::start(shared(), &format!("session_state = keep\nworkers = 1\nquery_wait_timeout = 5\n{lines}"));
        let mut listener = client(weir.port, "");
        listener.batch_execute("listen a").unwrap();
        thread::sleep(Duration::from_millis(100));
        assert_eq!(said(&mut listener, "select 1"), ["1"], "{lines}");
    }
}

/// Those are not among the servers that clients keep, nor is one that is asked what its client still listens to.
#[test]
fn who_only_listens_is_none_of_those_that_keep_a_server() {
    let lines = "session_state = keep\nworkers = 1\ndefault_pool_size = 6\nmax_pinned_per_pool = 1";
    let weir = Weir::start(shared(), lines);
    let mut keeps = client(weir.port, "");
    keeps.batch_execute("create temp table kept (a int)").unwrap();
    for texts in [
        &["unlisten pinned_a"] as &[&str],
        &["discard all"],
        &["select * from pg_listening_channels()"],
        &["begin", "unlisten pinned_b", "commit"],
        &["begin", "unlisten pinned_a", "rollback"],
        &["begin", "unlisten *", "commit"],
    ] {
        for pause in [0, 50] {
            let mut listens = client(weir.port, "");
            for text in [&["listen pinned_a"], texts].concat() {
                listens.batch_execute(text).unwrap_or_else(|error| panic!("{text} of {texts:?}: {error}"));
                thread::sleep(Duration::from_millis(pause));
            }
            thread::sleep(Duration::from_millis(50));
            let still = listens.batch_execute("select 1");
            assert!(still.is_ok(), "{texts:?}: {still:?}");
        }
    }
    keeps.batch_execute("select * from kept").unwrap();
}

/// Also where PostgreSQL tells what its sessions hold (`exact.rs`).
pub mod on {
    use super::*;

    pub fn many_listen_through_one_server(server: u16) {
        const CLIENTS: usize = 300;
        let (weir, mut direct) = database(server, "listeners");
        let mut listeners: Vec<_> = (0..CLIENTS).map(|_| client(weir.port, "dbname=listeners")).collect();
        for (number, listener) in listeners.iter_mut().enumerate() {
            listener.batch_execute(&format!("listen everybody; listen c{number}")).unwrap();
        }
        wait_until_handed_over(&weir);
        assert!(servers(&mut direct, "listeners") <= 3);
        // Others are served meanwhile, as many at once as there are servers left.
        let mut notifier = client(weir.port, "dbname=listeners");
        notifier.batch_execute("begin").unwrap();
        assert_eq!(said(&mut listeners[0], "select 1"), ["1"]);
        for number in 0..CLIENTS {
            notifier.batch_execute(&format!("notify c{number}, 'own'")).unwrap();
        }
        notifier.batch_execute("notify everybody, 'all'; rollback; begin").unwrap();
        for number in (0..CLIENTS).step_by(7) {
            notifier.batch_execute(&format!("notify c{number}, 'own'")).unwrap();
        }
        notifier.batch_execute("notify everybody, 'all'; commit").unwrap();
        for (number, listener) in listeners.iter_mut().enumerate() {
            let own = format!("c{number} own");
            let all = "everybody all".to_owned();
            let told = if number.is_multiple_of(7) { vec![own, all] } else { vec![all] };
            assert_eq!(heard(listener, told.len()), told, "{number}");
        }
        listeners.iter_mut().take(3).for_each(hears_nothing);
    }

    /// What is told while the one server takes over from the other is told once, in its order.
    pub fn nothing_is_told_twice_and_nothing_is_lost(server: u16) {
        let (weir, _) = database(server, "listen_once");
        let (stop, sent) = (&AtomicBool::new(false), &AtomicU32::new(0));
        thread::scope(|scope| {
            let notifiers = (0..2).map(|own| {
                scope.spawn(move || {
                    let mut direct = client(server, "dbname=listen_once");
                    while !stop.load(Ordering::Relaxed) {
                        // Whoever sees it counted has it committed.
                        let next = sent.load(Ordering::Acquire) + 1;
                        if own == 0 {
                            direct.batch_execute(&format!("notify counted, '{next}'")).unwrap();
                            sent.store(next, Ordering::Release);
                        } else {
                            direct.batch_execute("notify other, 'x'").unwrap();
                        }
                        // A build without optimizations must be able to keep up.
                        thread::sleep(Duration::from_micros(500));
                    }
                })
            });
            let notifiers: Vec<_> = notifiers.collect();
            let listeners = (0..4).map(|number| {
                let port = weir.port;
                scope.spawn(move || {
                    for round in 0..12 {
                        let mut listener = client(port, "dbname=listen_once");
                        if (number + round) % 3 == 0 {
                            listener.batch_execute("listen other").unwrap();
                        }
                        if number % 2 == 0 {
                            listener.batch_execute("begin; listen counted; commit").unwrap();
                        } else {
                            listener.batch_execute("listen counted").unwrap();
                        }
                        let before = sent.load(Ordering::Acquire);
                        let mut counted = Vec::new();
                        let until = Instant::now() + PATIENCE;
                        while counted.len() < 60 && Instant::now() < until {
                            // A transaction now and then, during which it is told nothing.
                            listener.batch_execute("select 1").unwrap();
                            let told = heard(&mut listener, 20);
                            let own = told.iter().filter_map(|told| told.strip_prefix("counted "));
                            counted.extend(own.map(|number| number.parse::<u32>().unwrap()));
                        }
                        assert!(counted.len() >= 60, "{}", counted.len());
                        assert!(counted[0] <= before + 2, "it begins with {} behind {before}", counted[0]);
                        let follow = counted.windows(2).all(|two| two[1] == two[0] + 1);
                        assert!(follow, "one behind the other: {counted:?}");
                    }
                })
            });
            let listened = listeners.collect::<Vec<_>>().into_iter().map(|listener| listener.join());
            let listened: Vec<_> = listened.collect();
            stop.store(true, Ordering::Relaxed);
            listened.into_iter().for_each(|listened| listened.unwrap());
            notifiers.into_iter().for_each(|notifier| notifier.join().unwrap());
        });
    }

    /// As with a session of one's own.
    pub fn who_unlistens_hears_no_more(server: u16) {
        let (weir, _) = database(server, "listen_less");
        let mut first = client(weir.port, "dbname=listen_less");
        first.batch_execute("listen held").unwrap();
        for through in [weir.port, server] {
            let mut listener = client(through, "dbname=listen_less");
            let mut other = client(server, "dbname=listen_less");
            let channels = |listener: &mut Client| said(listener, "select pg_listening_channels() order by 1");
            let mut tell = |listener: &mut Client, channels: &[&str]| -> BTreeMap<String, usize> {
                if through != server {
                    // Until then what it listens to by several transactions may be told by several servers.
                    wait_until_handed_over(&weir);
                }
                for channel in channels {
                    other.batch_execute(&format!("notify \"{channel}\", 'to {channel}'")).unwrap();
                }
                other.batch_execute("notify unheard; notify last").unwrap();
                let mut told = BTreeMap::new();
                while let Some(next) = heard(listener, 1).pop().filter(|next| next != "last ") {
                    *told.entry(next).or_default() += 1;
                }
                told
            };
            let of = |channels: &[&str]| channels.iter().map(|name| (format!("{name} to {name}"), 1)).collect();
            const NAMES: [&str; 4] = ["a", "B", "with \" and ' quotes", "ä"];
            listener.batch_execute("listen last").unwrap();
            for name in NAMES {
                listener.batch_execute(&format!("listen \"{}\"", name.replace('"', "\"\""))).unwrap();
            }
            let tell_all = ["a", "B", "ä"];
            assert_eq!(tell(&mut listener, &tell_all), of(&tell_all));
            listener.batch_execute("unlisten a").unwrap();
            assert_eq!(tell(&mut listener, &tell_all), of(&["B", "ä"]));
            listener.batch_execute("listen a; listen a; unlisten \"B\"").unwrap();
            assert_eq!(tell(&mut listener, &tell_all), of(&["a", "ä"]));
            // What is rolled back never was.
            assert!(listener.batch_execute("listen \"B\"; unlisten a; select 1/0").is_err());
            assert_eq!(tell(&mut listener, &tell_all), of(&["a", "ä"]));
            listener.execute("unlisten a", &[]).unwrap();
            listener.batch_execute("begin; listen \"B\"; commit").unwrap();
            assert_eq!(tell(&mut listener, &tell_all), of(&["B", "ä"]));
            listener.batch_execute("do $$begin unlisten \"B\"; listen a; end$$").unwrap();
            assert_eq!(tell(&mut listener, &tell_all), of(&["a", "ä"]));
            // Its own are told as others'.
            listener.batch_execute("notify a, 'mine'").unwrap();
            assert_eq!(heard(&mut listener, 1), ["a mine"]);
            assert_eq!(channels(&mut listener).len(), 4);
            listener.batch_execute("unlisten *; listen last").unwrap();
            assert_eq!(tell(&mut listener, &tell_all), of(&[]));
            listener.batch_execute("listen a").unwrap();
            listener.batch_execute("discard all").unwrap();
            listener.batch_execute("listen last").unwrap();
            assert_eq!(tell(&mut listener, &tell_all), of(&[]));
        }
        // Nobody has left anything to the first.
        client(server, "dbname=listen_less").batch_execute("notify a; notify held, 'x'").unwrap();
        assert_eq!(heard(&mut first, 1), ["held x"]);
    }

    /// What a transaction leaves of what is listened to is as with a session of one's own; what cannot be told is refused.
    pub fn what_is_unlistened_in_a_transaction_counts_with_its_end(server: u16) {
        let (weir, _) = database(server, "listen_within");
        let mut first = client(weir.port, "dbname=listen_within");
        first.batch_execute("listen held").unwrap();
        let mut other = client(server, "dbname=listen_within");
        for through in [weir.port, server] {
            let refused = |client: &mut Client, what: &str| {
                let said = said(client, what);
                assert!(through == server || said == ["0A000"], "{what}: {said:?}");
            };
            let mut listener = client(through, "dbname=listen_within");
            let mut hears = |listener: &mut Client, channels: &str| {
                if through != server {
                    wait_until_handed_over(&weir);
                }
                other.batch_execute("notify a; notify b; notify c; notify last").unwrap();
                let told: Vec<_> =
                    std::iter::from_fn(|| heard(listener, 1).pop().filter(|told| told != "last ")).collect();
                assert_eq!(told.concat().replace(' ', ""), channels);
            };
            listener.batch_execute("listen a; listen b; listen last").unwrap();
            hears(&mut listener, "ab");
            listener.batch_execute("begin").unwrap();
            listener.batch_execute("unlisten a").unwrap();
            listener.batch_execute("commit").unwrap();
            hears(&mut listener, "b");
            listener.batch_execute("begin; select 1").unwrap();
            listener.batch_execute("unlisten b; listen a").unwrap();
            listener.batch_execute("rollback").unwrap();
            hears(&mut listener, "b");
            listener.batch_execute("begin; savepoint s").unwrap();
            listener.batch_execute("unlisten b; listen c").unwrap();
            listener.batch_execute("rollback to s").unwrap();
            listener.batch_execute("listen a; commit").unwrap();
            hears(&mut listener, "ab");
            listener.batch_execute("begin; select 1").unwrap();
            listener.execute("unlisten b", &[]).unwrap();
            listener.batch_execute("listen c; unlisten a; listen a").unwrap();
            listener.batch_execute("commit").unwrap();
            hears(&mut listener, "ac");
            listener.batch_execute("begin; select 1").unwrap();
            listener.batch_execute("do $$begin unlisten c; end$$").unwrap();
            listener.batch_execute("commit; select 1").unwrap();
            hears(&mut listener, "a");
            listener.batch_execute("begin; savepoint s").unwrap();
            listener.batch_execute("unlisten a").unwrap();
            listener.batch_execute("rollback to s").unwrap();
            if server == shared() {
                // Elsewhere it is certain what is left.
                refused(&mut listener, "unlisten a");
            }
            listener.batch_execute("rollback").unwrap();
            hears(&mut listener, "a");
            assert_eq!(said(&mut listener, "select pg_listening_channels() order by 1"), ["a", "last"]);
            if through != server {
                // Up to then the server that has told it listens to them, and would tell it again.
                wait_until_handed_over(&weir);
            }
            listener.batch_execute("begin").unwrap();
            refused(&mut listener, "select count(*) from pg_listening_channels()");
            listener.batch_execute("rollback").unwrap();
            listener.batch_execute("unlisten a").unwrap();
            hears(&mut listener, "");
        }
        other.batch_execute("notify a; notify held, 'x'").unwrap();
        assert_eq!(heard(&mut first, 1), ["held x"]);
    }

    /// Found by an attack: texts that end what is listened to where that was lost, and what is told meanwhile.
    pub fn what_ends_listening_is_never_lost(server: u16) {
        let (weir, _) = database(server, "listen_ends");
        let mut other = client(server, "dbname=listen_ends");
        let function = "create or replace function unlistens(c text) returns void language plpgsql as \
         $$begin execute 'unlisten ' || c; end$$";
        other.batch_execute(function).unwrap();
        let mut first = client(weir.port, "dbname=listen_ends");
        first.batch_execute("listen held").unwrap();
        // Each time `a` is left, or the statement is refused.
        let cases: [&[&str]; 7] = [
            &["begin; select 1/0", "commit; unlisten a"],
            &["begin; select 1/0", "end; unlisten *; listen last"],
            &["begin", "unlisten a", "reset all", "commit"],
            &["begin; select 1", "unlisten other", "unlisten a; reset all", "commit"],
            &["begin; savepoint s", "select unlistens('a')", "rollback to s", "select unlistens('a')", "commit"],
            &["select 1; select unlistens('a')"],
            &["begin isolation level repeatable read", "unlisten a", "commit"],
        ];
        for case in cases {
            let mut listener = client(weir.port, "dbname=listen_ends");
            listener.batch_execute("listen a; listen last").unwrap();
            wait_until_handed_over(&weir);
            let mut refused = false;
            for text in case {
                let said = said(&mut listener, text);
                refused |= said.iter().any(|said| said == "0A000" || said == "25P02");
            }
            let _ = listener.batch_execute("rollback");
            other.batch_execute("notify a; notify last").unwrap();
            let told = heard(&mut listener, if refused { 2 } else { 1 });
            assert_eq!(told, if refused { vec!["a ", "last "] } else { vec!["last "] }, "{case:?}");
        }
        // What comes for it in the transaction in which it is left is not told behind it.
        let mut listener = client(weir.port, "dbname=listen_ends");
        listener.batch_execute("listen a; listen last").unwrap();
        wait_until_handed_over(&weir);
        listener.batch_execute("begin").unwrap();
        other.batch_execute("notify a").unwrap();
        thread::sleep(Duration::from_millis(50));
        listener.batch_execute("unlisten a").unwrap();
        listener.batch_execute("commit").unwrap();
        other.batch_execute("notify last").unwrap();
        assert_eq!(heard(&mut listener, 1), ["last "]);
    }

    /// A cancel, or an UNLISTEN, that comes while the one server takes over.
    pub fn nothing_that_comes_during_a_handover_is_lost(server: u16) {
        let (weir, _) = database(server, "listen_taken_over");
        let mut first = client(weir.port, "dbname=listen_taken_over");
        first.batch_execute("listen held").unwrap();
        let mut other = client(server, "dbname=listen_taken_over");
        for round in 0..60 {
            let mut listener = client(weir.port, "dbname=listen_taken_over");
            let cancel = listener.cancel_token();
            listener.batch_execute("listen a").unwrap();
            if round % 2 == 0 {
                thread::sleep(Duration::from_micros(round * 50));
                cancel.cancel_query(NoTls).unwrap();
                other.batch_execute("notify a").unwrap();
                assert_eq!(heard(&mut listener, 1), ["a "], "{round}");
            } else {
                listener.batch_execute("listen last").unwrap();
                thread::sleep(Duration::from_micros(round * 50));
                listener.batch_execute("unlisten a").unwrap();
                assert_eq!(said(&mut listener, "select pg_listening_channels()"), ["last"], "{round}");
                other.batch_execute("notify a; notify last").unwrap();
                assert_eq!(heard(&mut listener, 1), ["last "], "{round}");
            }
        }
    }

    /// What ends a failed transaction, or resets all from within a function, takes the mark away by which Weir knows what was left.
    pub fn what_was_unlistened_behind_a_lost_mark_is_left_or_refused(server: u16) {
        let (weir, _) = database(server, "listen_marks");
        let mut other = client(server, "dbname=listen_marks");
        other
            .batch_execute("create function resets() returns void language plpgsql as $$begin reset all; end$$")
            .unwrap();
        let mut first = client(weir.port, "dbname=listen_marks");
        first.batch_execute("listen held").unwrap();
        for texts in [
            &["begin", "unlisten a", "select 1/0", "commit and chain", "unlisten b", "commit"][..],
            &["begin", "unlisten a", "select 1/0", "commit", "begin", "unlisten b", "commit"],
            &["begin", "unlisten b", "select resets()", "commit"],
        ] {
            let mut listener = client(weir.port, "dbname=listen_marks");
            listener.batch_execute("listen a; listen b").unwrap();
            wait_until_handed_over(&weir);
            let mut left = true;
            for text in texts {
                let failed = listener.batch_execute(text).err();
                let code = failed.as_ref().and_then(|error| error.code()).map(|code| code.code().to_owned());
                assert!(code.as_deref().is_none_or(|code| ["0A000", "22012"].contains(&code)), "{failed:?}");
                left &= code.as_deref() != Some("0A000");
            }
            listener.batch_execute("rollback").unwrap();
            let expected: &[&str] = if left { &["a"] } else { &["a", "b"] };
            let mut listed = said(&mut listener, "select pg_listening_channels()");
            listed.sort();
            assert_eq!(listed, expected, "{texts:?}");
        }
    }

    /// What came for it in a transaction is told behind that, in the encoding that it has then; what it has left is not.
    pub fn what_was_kept_is_told_as_its_client_reads_it_then(server: u16) {
        let (weir, _) = database(server, "listen_kept");
        let mut other = client(server, "dbname=listen_kept");
        let mut listener = client(weir.port, "dbname=listen_kept");
        listener.batch_execute("listen a; listen b").unwrap();
        wait_until_handed_over(&weir);
        listener.batch_execute("begin").unwrap();
        other.batch_execute("notify a, '1'; notify b, '2'").unwrap();
        listener.batch_execute("unlisten a; commit").unwrap();
        assert_eq!(heard(&mut listener, 1), ["b 2"]);
        listener.batch_execute("begin").unwrap();
        other.batch_execute("notify b, 'é'").unwrap();
        listener.batch_execute("set client_encoding = 'LATIN1'; commit").ok();
        wait_until("it is disconnected", || listener.batch_execute("select 1").is_err());
    }

    /// Whoever may have missed something is told.
    pub fn who_loses_the_server_that_listened_is_told(server: u16) {
        let (weir, mut direct) = database(server, "lost_listeners");
        let mut listeners: Vec<_> = (0..5).map(|_| client(weir.port, "dbname=lost_listeners")).collect();
        listeners.iter_mut().for_each(|listener| listener.batch_execute("listen held").unwrap());
        // Until then each has a server of its own to lose.
        wait_until_handed_over(&weir);
        let mut other = client(weir.port, "dbname=lost_listeners");
        other.batch_execute("begin").unwrap();
        let idle = "select pid, pg_terminate_backend(pid) from pg_stat_activity where datname = 'lost_listeners' and state = 'idle'";
        let killed: Vec<_> = said(&mut direct, idle).iter().map(|row| row.replace("|t", "")).collect();
        for listener in &mut listeners {
            let mut notifications = listener.notifications();
            let until = Instant::now() + PATIENCE;
            while Instant::now() < until {
                match notifications.timeout_iter(Duration::from_millis(100)).next() {
                    Ok(None) => {}
                    Ok(told) => panic!("{told:?}"),
                    Err(_) => break,
                }
            }
            drop(notifications);
            wait_until("its session is over", || listener.is_closed());
        }
        assert_eq!(said(&mut other, "select 1"), ["1"]);
        // Until Weir has heard of the end of the others too, one of them may be given to the next.
        let mut console = weir.try_client("dbname=pgbouncer").unwrap();
        let ended = |row: &String| row.split('|').nth(PID).is_some_and(|pid| killed.iter().any(|one| one == pid));
        wait_until("those are gone", || !said(&mut console, "show servers").iter().any(ended));
        let mut again = client(weir.port, "dbname=lost_listeners");
        again.batch_execute("listen held").unwrap();
        other.batch_execute("commit; notify held, 'again'").unwrap();
        assert_eq!(heard(&mut again, 1), ["held again"]);
    }
}

/// What was notified, by whomever, and answered before a client asks to leave its channels is told ahead of that, as PostgreSQL tells it.
#[test]
fn who_leaves_is_told_what_was_notified_before() {
    let (weir, _direct) = database(shared(), "listen_left");
    let mut client = weir.try_client("dbname=listen_left").unwrap();
    let mut other = weir.try_client("dbname=listen_left").unwrap();
    for (leaves, own) in [("unlisten c", true), ("unlisten *", false), ("discard all", true), ("unlisten c", false)] {
        for round in 0..10 {
            client.batch_execute("listen c").unwrap();
            wait_until_handed_over(&weir);
            let notifies = format!("notify c, '{round}'");
            let teller = if own { &mut client } else { &mut other };
            teller.batch_execute(&notifies).unwrap();
            client.batch_execute(leaves).unwrap();
            assert_eq!(heard(&mut client, 1), [format!("c {round}")], "{leaves}");
        }
    }
    hears_nothing(&mut client);
}
