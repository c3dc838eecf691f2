//! `weir advise` beside real servers and poolers: it sees what is there, only asks, and says plainly what it cannot use.
//!
//! It is the lab's program, which a build of the whole workspace leaves beside Weir's, and looks with psql; without one of them
//! these tests have nothing to test.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postgres::{Client, NoTls};
use weir_pg::{Cluster, Installation, MAJORS, Options};

use super::bench::{Weir, shared, wait_until};

fn has_all() -> bool {
    let lab = Path::new(env!("CARGO_BIN_EXE_weir")).with_file_name("weir-lab").is_file();
    let psql = Command::new("psql").arg("--version").output().is_ok_and(|output| output.status.success());
    if !lab || !psql {
        println!("skipped: there is no {}", if lab { "psql" } else { "weir-lab" });
    }
    lab && psql
}

fn advise(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["advise", "--seconds", "1"]).args(words).env_remove("PGPASSWORD").output().unwrap()
}

/// What it prints, without the breaks of lines.
fn advice(words: &[&str]) -> String {
    let output = advise(words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn refusal(words: &[&str]) -> String {
    let output = advise(words);
    let (said, printed) = (String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap());
    assert!(!output.status.success() && printed.is_empty(), "{printed}{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

fn direct(url: &str) -> Client {
    Client::connect(url, NoTls).unwrap()
}

/// One session at work, one idle, one idle in a transaction; and nothing but questions in the server's log.
#[test]
fn servers_of_every_version_are_looked_at_and_only_asked() {
    if !has_all() {
        return;
    }
    for major in MAJORS {
        let installation = Installation::of_major(major, &|_| {}).unwrap();
        let settings = ["max_connections = 60", "log_statement = 'all'", "log_line_prefix = '<%a> '"];
        let settings = settings.map(str::to_owned).to_vec();
        let cluster = Cluster::start(&installation, Options { settings, ..Options::default() }).unwrap();
        let url = cluster.url("postgres");
        let (mut working, _idle, mut waiting) = (direct(&url), direct(&url), direct(&url));
        waiting.batch_execute("begin; select 1").unwrap();
        let cancel = working.cancel_token();
        let work = std::thread::spawn(move || working.batch_execute("select pg_sleep(60)"));
        let mut watch = direct(&url);
        let at_work = "select count(*) from pg_stat_activity where query like '%sleep(60)' and state = 'active'";
        wait_until("it works", || watch.query_one(at_work, &[]).unwrap().get::<_, i64>(0) == 1);
        drop(watch);

        let text = advice(&["--url", &url]);
        cancel.cancel_query(NoTls).unwrap();
        assert!(work.join().unwrap().is_err());
        assert!(text.contains(&format!("PostgreSQL {major}.")), "{text}");
        assert!(text.contains("1 at work, 1 idle, 1 idle in a transaction"), "{text}");
        assert!(text.contains("max_connections is 60") && text.ends_with("Nothing was changed."), "{text}");
        assert!(text.contains("read on this machine, where the server runs"), "{text}");
        assert!(!text.contains("postgres:postgres"), "a password: {text}");

        let log = std::fs::read_to_string(cluster.log()).unwrap();
        let asked: Vec<&str> =
            log.lines().filter_map(|line| line.split_once("<psql> LOG:  statement: ")).map(|(_, sql)| sql).collect();
        assert!(asked.len() > 8, "{log}");
        for statement in asked {
            assert!(statement.starts_with("SELECT "), "{statement}");
        }
    }
}

#[test]
fn a_pooler_is_no_server() {
    if !has_all() {
        return;
    }
    for mode in ["transaction", "session"] {
        let weir = Weir::start_with(
            &format!("* = host=127.0.0.1 port={} pool_mode={mode}", shared()),
            "\"postgres\" \"postgres\"\n",
            // A second one is made where a session asks while the first is still reset behind another.
            "default_pool_size = 1",
        );
        drop(weir.client());
        let said = refusal(&["--url", &format!("postgres://postgres:postgres@127.0.0.1:{}/postgres", weir.port)]);
        assert!(said.contains("is a pooler: ") && said.contains("to --console"), "{mode}: {said}");
    }
}

/// Six clients want two servers all the time.
#[test]
fn a_pool_that_is_too_small_is_seen_at_its_console() {
    if !has_all() {
        return;
    }
    let weir = Arc::new(Weir::start(shared(), "default_pool_size = 2\nworkers = 2"));
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6)
        .map(|_| {
            let (mut client, done) = (weir.client(), Arc::clone(&done));
            std::thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    client.batch_execute("select pg_sleep(0.1)").unwrap();
                }
            })
        })
        .collect();
    let console = format!("postgres://postgres@127.0.0.1:{}/pgbouncer", weir.port);
    let named = advice(&["--console", &console]);
    let as_url = advice(&["--url", &console]);
    done.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    for text in [named, as_url] {
        assert!(text.contains("Raise the pool of postgres/postgres from 2 to about 4"), "{text}");
        assert!(text.contains("Set pool_size: 4 ") && text.contains("give its own URL with --url"), "{text}");
    }
}

#[test]
fn what_cannot_be_used_is_said_in_one_line() {
    if !has_all() {
        return;
    }
    let server = format!("127.0.0.1:{}", shared());
    let wrong = refusal(&["--url", &format!("postgres://postgres:hunter2@{server}/postgres")]);
    assert!(wrong.contains("does not accept this user with this password") && !wrong.contains("hunter2"), "{wrong}");
    let missing = refusal(&["--url", &format!("postgres://postgres@{server}/postgres")]);
    assert!(missing.contains("asks for a password"), "{missing}");
    let console = refusal(&["--console", &format!("postgres://postgres:postgres@{server}/postgres")]);
    assert!(console.contains("is a database, not a console"), "{console}");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let stranger = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let _ = peer.read(&mut [0; 64]);
        let _ = peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let other = refusal(&["--url", &url]);
    stranger.join().unwrap();
    assert!(other.contains("does not speak as PostgreSQL does"), "{other}");
    let nobody = refusal(&["--url", &url]);
    assert!(nobody.contains("nothing listens at"), "{nobody}");
    assert!(refusal(&["--from", "/nonexistent"]).contains("there are no results of a run"));
    assert!(refusal(&[]).contains("give --from DIR, --url URL or --console URL"));
}
