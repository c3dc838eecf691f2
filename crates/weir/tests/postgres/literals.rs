//! What a literal's own check does while its statement is parsed: set what parsing reads, and write.

use std::thread::sleep;
use std::time::Duration;

use weir_wire::{BackendTag, write};

use super::bench::{Place, Raw, Weir, shared};
use super::parameters::{client, said};

const SETUP: &str = "create table written (a int); \
    create function sets(int) returns bool language plpgsql as \
        $$begin perform set_config('transform_null_equals', 'on', false); return true; end$$; \
    create function writes(int) returns bool language plpgsql as \
        $$begin insert into written values (1); return true; end$$; \
    create domain sets as int check (sets(value)); \
    create domain writes as int check (writes(value));";
/// Read under what it was parsed under, and not under what it sets.
const SETS: &str = "select coalesce((null::int = null)::text, 'none'), '{1}'::sets[]";
const WRITES: &str = "select '{1}'::writes[]";

fn place(database: &'static str) -> Place {
    let place = Place::of_its_own(shared(), database);
    place.client("").batch_execute(SETUP).unwrap();
    place
}

/// Also while it is not known what texts call: right behind any DDL.
#[test]
fn a_statement_is_not_parsed_under_what_it_sets() {
    let place = place("literals_set");
    let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 3");
    let mut other = client(weir.port, "");
    for (name, known) in [("s", false), ("s", true), ("", false), ("", true)] {
        for ahead in ["", "set enable_seqscan = on", "select 1", "begin"] {
            let what = format!("{name:?} behind {ahead:?}, known: {known}");
            let mut one = Raw::on(weir.port);
            if !known {
                other.batch_execute("create or replace function ddl() returns int language sql as 'select 1'").unwrap();
            }
            one.send(|out| {
                if !ahead.is_empty() {
                    write::parse(out, b"", format!("{ahead}\0\0\0").as_bytes());
                    write::bind_without_values(out, b"", b"");
                    write::execute(out, b"");
                }
                write::parse(out, name.as_bytes(), format!("{SETS}\0\0\0").as_bytes());
                write::sync(out);
            });
            let answers = one.answers();
            assert!(!answers.iter().any(|answer| answer.starts_with("E ")), "{what}: {answers:?}");
            if ahead == "begin" {
                one.says("commit");
            }
            // Another has the server meanwhile.
            let mut begun = Raw::on(weir.port);
            begun.says("begin");
            let answers = one.executes(name, None);
            // Where nobody can tell what it was parsed under, it is gone with its server.
            assert!(answers == ["none|{1}"] || (name.is_empty() && answers == ["E 26000"]), "{what}: {answers:?}");
        }
    }
}

/// A name that SQL may have prepared is tried, and its text is analysed once all the same.
#[test]
fn what_a_statement_writes_is_written_once() {
    let place = place("literals_write_once");
    let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 1");
    let mut one = Raw::on(weir.port);
    one.says("prepare p as select 1");
    one.prepares("s", WRITES);
    assert_eq!(said(&mut place.client(""), "select count(*) from written"), ["1"]);
    one.send(|out| {
        write::parse(out, b"p", format!("{WRITES}\0\0\0").as_bytes());
        write::sync(out);
    });
    // By PostgreSQL too behind the analysis of its text, whose transaction fails.
    assert_eq!(one.answers(), ["E 42P05"]);
    assert_eq!(said(&mut place.client(""), "select count(*) from written"), ["1"]);
    assert_eq!(one.says("execute p"), ["1"]);
}

/// The names of a client that uses them by SQL are given in a transaction that is gone back to: what is ahead is no part of it.
#[test]
fn what_a_statement_writes_ahead_of_its_use_by_sql_is_there() {
    let place = place("literals_write");
    let names = "select count(*) from pg_prepared_statements where name = 's'";
    for (query, sets) in [("execute s", false), ("execute s", true), (names, false), (names, true)] {
        let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 1");
        place.client("").batch_execute("delete from written").unwrap();
        // What `nextval` gave is forgotten at once from then on, with a Sync of its own, and not ahead of the query.
        let mut calls = Raw::on(weir.port);
        calls.send(|out| out.extend_from_slice(b"F\0\0\0\x0e\0\0\0\0\0\0\0\0\0\0"));
        assert_eq!(calls.answers(), ["E 42883"]);
        drop(calls);
        let mut one = Raw::on(weir.port);
        if sets {
            one.says("set transform_null_equals = on");
        }
        one.send(|out| write::parse(out, b"s", format!("{WRITES}\0\0\0").as_bytes()));
        // Nothing tells that it has come: it is sent with what is behind it.
        sleep(Duration::from_millis(100));
        one.send(|out| write::query(out, query.as_bytes()));
        assert_eq!(one.answers(), [if query == names { "1" } else { "{1}" }]);
        let written: u32 = said(&mut place.client(""), "select count(*) from written")[0].parse().unwrap();
        assert!(written > 0, "{query}, behind a SET: {sets}");
    }
}

/// What goes ahead of a query of Weir's is committed, or the client is told that it was not.
#[test]
fn what_is_refused_at_the_commit_is_told() {
    let place = place("literals_refused");
    let setup = "create table keys (a int primary key); \
        create table refused (a int references keys deferrable initially deferred); \
        create function is_refused(int) returns bool language plpgsql as \
            $$begin insert into refused values (7); return true; end$$; \
        create domain refused_later as int check (is_refused(value)); \
        create sequence counted";
    place.client("").batch_execute(setup).unwrap();
    let query = |text: &str| {
        let mut out = Vec::new();
        write::query(&mut out, text.as_bytes());
        out
    };
    for (ahead, asks) in [
        ("select 1", query("execute s")),
        ("select 1", query("select count(*) from pg_prepared_statements where name = 's'")),
        ("select 1", query("do $$begin execute 'deallocate all'; end$$")),
        ("select 1", b"F\0\0\0\x0e\0\0\0\0\0\0\0\0\0\0".to_vec()),
        ("select nextval('counted')", query("select currval('counted')")),
        ("listen refused", query("select count(*) from pg_listening_channels()")),
        ("listen refused", query("discard all")),
    ] {
        let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 2");
        let mut one = Raw::on(weir.port);
        one.says(ahead);
        // What it listens to may be told by another server by then.
        sleep(Duration::from_millis(100));
        one.send(|out| {
            write::parse(out, b"s", b"select '{7}'::refused_later[]\0\0\0");
            write::flush(out);
        });
        one.read_until(BackendTag::ParseComplete);
        one.send(|out| out.extend_from_slice(&asks));
        one.send(write::terminate);
        let code = one.last_error();
        assert_eq!(code, "23503", "{ahead}, {:?}", String::from_utf8_lossy(&asks));
    }
}

/// What PostgreSQL says as it parses a statement, also where Weir has it parsed by a name of its own and tries the client's behind that.
#[test]
fn what_is_said_as_a_text_is_parsed_is_told() {
    let place = place("literals_said");
    let setup = "create function says(int) returns bool language plpgsql as \
            $$begin raise notice 'parsed'; return true; end$$; \
        create domain says as int check (says(value))";
    place.client("").batch_execute(setup).unwrap();
    let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 1");
    let mut other = Raw::on(weir.port);
    let mut one = Raw::on(weir.port);
    let mut notices = |ahead: &str, name: &[u8]| {
        match ahead {
            "create" => other.says("create or replace function is_new() returns int language sql as 'select 1'"),
            ahead => one.says(ahead),
        };
        one.send(|out| {
            write::parse(out, b"first", b"select $1::int + 1\0\0\0");
            write::close_statement(out, b"first");
            write::parse(out, name, b"select '{7}'::says[]\0\0\0");
            write::sync(out);
        });
        let told = one.read_until(BackendTag::ReadyForQuery);
        told.iter().filter(|(tag, _)| *tag == BackendTag::NoticeResponse as u8).count()
    };
    for (ahead, name) in
        [("select 1", "one"), ("create", "two"), ("prepare another as select 1", "three"), ("select 1", "three")]
    {
        assert_eq!(notices(ahead, name.as_bytes()), 1, "behind {ahead}, {name}");
    }
}

/// What PostgreSQL reports of what it committed ahead of a query of Weir's, also what nobody can set.
#[test]
fn what_is_reported_at_the_commit_is_told() {
    let place = place("literals_reported");
    let setup = "create function acts(int) returns bool language plpgsql as \
            $$begin perform set_config('role', 'pg_monitor', false); return true; end$$; \
        create domain acts as int check (acts(value))";
    place.client("").batch_execute(setup).unwrap();
    let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 1");
    let mut one = Raw::on(weir.port);
    one.send(|out| {
        write::parse(out, b"s", b"select '{7}'::acts[]\0\0\0");
        write::flush(out);
    });
    one.read_until(BackendTag::ParseComplete);
    one.send(|out| write::query(out, b"select count(*) from pg_prepared_statements"));
    let told = one.read_until(BackendTag::ReadyForQuery);
    let reported: Vec<_> = told
        .iter()
        .filter(|(tag, body)| *tag == BackendTag::ParameterStatus as u8 && body == b"is_superuser\0off\0")
        .collect();
    assert_eq!(reported.len(), 1, "{told:?}");
}

/// A cancel reaches what a statement's literal has begun and a Sync of Weir's commits, ahead of the query that it was sent for.
#[test]
fn what_is_cancelled_at_the_commit_is_not_done() {
    let place = place("literals_cancelled");
    let setup = "create table done (a int); create table waits (a int); \
        create function waits() returns trigger language plpgsql as \
            $$begin perform pg_sleep(60); return null; end$$; \
        create constraint trigger waits after insert on waits deferrable initially deferred \
            for each row execute function waits(); \
        create function inserts(int) returns bool language plpgsql as \
            $$begin insert into waits values (1); return true; end$$; \
        create domain inserts as int check (inserts(value))";
    place.client("").batch_execute(setup).unwrap();
    let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 1");
    let mut one = weir.raw();
    one.ask_in();
    let told = one.read_until(BackendTag::ReadyForQuery);
    let (_, key) = told.iter().find(|(tag, _)| *tag == BackendTag::BackendKeyData as u8).unwrap();
    let (process_id, key) = key.split_first_chunk::<4>().unwrap();
    one.send(|out| {
        write::parse(out, b"s", b"select '{7}'::inserts[]\0\0\0");
        write::flush(out);
    });
    one.read_until(BackendTag::ParseComplete);
    // It names what the protocol has prepared: Weir's own queries go ahead of it.
    one.send(|out| write::query(out, b"insert into done select count(*) from pg_prepared_statements"));
    sleep(Duration::from_millis(300));
    weir.raw().send(|out| write::cancel_request(out, u32::from_be_bytes(*process_id), key));
    let told = one.read_until(BackendTag::ReadyForQuery);
    let errors: Vec<_> = told.iter().filter(|(tag, _)| *tag == BackendTag::ErrorResponse as u8).collect();
    assert!(matches!(&errors[..], [(_, body)] if body.windows(5).any(|code| code == b"57014")), "{told:?}");
    one.says("select 1");
    let left = said(&mut place.client(""), "select (select count(*) from done) + (select count(*) from waits)");
    assert_eq!(left, ["0"]);
}
