//! Who has what it has prepared by its own names, since SQL reaches that: what it leaves, and what is not there yet or any more.

use std::net::TcpStream;

use weir_wire::{BackendTag, ProtocolVersion, write};

use super::bench::{Raw, Weir, shared};
use super::by_sql::OF_ONE;
use super::parameters::{client, said};

/// Its extended requests are not read from then on: its server is nobody else's.
#[test]
fn what_is_left_by_own_names_is_nobody_elses() {
    let mut direct = client(shared(), "");
    said(&mut direct, "select setseed(0.42)");
    let seeded = said(&mut direct, "select random()");
    for (name, text) in [("", "select setseed(0.42)"), ("n", "do $$begin perform setseed(0.42); end$$")] {
        let weir = Weir::start(shared(), OF_ONE);
        let mut one = Raw::on(weir.port);
        one.prepares("s", "select 1");
        assert_eq!(one.says("execute s"), ["1"]);
        one.executes(name, Some(text));
        drop(one);
        assert_ne!(Raw::on(weir.port).says("select random()"), seeded, "{text}");
    }
    // Nor is code that it has changed believed to be what it was.
    for (name, again) in [("", false), ("n", false), ("n", true), ("", true)] {
        let makes = |leaves: &str| {
            format!(
                "create or replace function public.made_by_own_name() returns int language plpgsql as \
                 $$begin {leaves} return 1; end$$"
            )
        };
        direct.batch_execute(&makes("")).unwrap();
        let weir = Weir::start(shared(), "workers = 1\ndefault_pool_size = 2");
        let [mut one, mut two] = [(); 2].map(|()| Raw::on(weir.port));
        assert_eq!(two.says("select public.made_by_own_name()"), ["1"]);
        one.prepares("s", "select 1");
        if again && !name.is_empty() {
            one.prepares(name, &makes("perform setseed(0.42);"));
        }
        assert_eq!(one.says("execute s"), ["1"]);
        let new = makes("perform setseed(0.42);");
        if again && name.is_empty() {
            // What would take its place is skipped.
            one.prepares("", &new);
            one.send(|out| {
                write::bind_without_values(out, b"", b"absent");
                write::parse(out, b"", b"select 1\0\0\0");
                write::sync(out);
            });
            assert_eq!(one.answers(), ["E 26000"]);
        }
        one.executes(name, (!again).then_some(&*new));
        assert_eq!(two.says("select public.made_by_own_name()"), ["1"]);
        // Its server stays with `two`, the other one with `one`.
        weir.reload_with("query_wait_timeout = 1");
        let mut three = Raw::on(weir.port);
        three.send(|out| write::query(out, b"select random()"));
        assert_eq!(three.last_error(), "57014", "{name} {again}");
    }
    direct.batch_execute("drop function public.made_by_own_name()").unwrap();
}

/// Nor does it see what Weir has asked: 1 ms is not enough for most looks.
#[test]
fn own_names_are_all_that_is_there() {
    let weir = Weir::start(shared(), OF_ONE);
    for _ in 0..10 {
        let mut raw = Raw::on(weir.port);
        raw.prepares("s", "select 1");
        assert_eq!(raw.says("execute s"), ["1"]);
        raw.says("set statement_timeout = 1");
        raw.says("create temp table looked_for (a int)");
        raw.says("set statement_timeout = 0");
        assert_eq!(raw.says("select name from pg_prepared_statements"), ["s"]);
    }
}

/// A Close that PostgreSQL skips closes nothing.
#[test]
fn what_was_closed_may_be_there() {
    for extended in [false, true] {
        let weir = Weir::start(shared(), OF_ONE);
        let mut raw = Raw::on(weir.port);
        raw.prepares("s", "select 5");
        raw.send(|out| {
            write::bind_without_values(out, b"", b"absent");
            write::close_statement(out, b"s");
            write::sync(out);
            if extended {
                write::parse(out, b"", b"execute s\0\0\0");
                write::bind_without_values(out, b"", b"");
                write::execute(out, b"");
                write::sync(out);
            } else {
                write::query(out, b"execute s");
            }
        });
        assert_eq!([raw.answers(), raw.answers()].concat(), ["E 26000", "5"]);
    }
}

/// Names that could not be given once can be when what was in the way is gone.
#[test]
fn names_are_given_when_they_can_be() {
    let mut direct = client(shared(), "");
    direct
        .batch_execute(
            "drop table if exists in_the_way; create table in_the_way (a int); \
             create or replace function public.runs(t text) returns text language plpgsql as \
             $$declare r text; begin execute t into r; return r; end$$",
        )
        .unwrap();
    let weir = Weir::start(shared(), OF_ONE);
    let mut raw = Raw::on(weir.port);
    raw.prepares("s", "select count(*) from in_the_way");
    raw.prepares("t", "select 't'");
    direct.batch_execute("begin; lock in_the_way").unwrap();
    assert_eq!(raw.says("select public.runs('select 1')"), ["1"]);
    direct.batch_execute("commit").unwrap();
    assert_eq!(raw.says("execute t"), ["t"]);
    direct.batch_execute("drop table in_the_way; drop function public.runs(text)").unwrap();
}

/// Nor is what a statement of that name would have reset then taken for what another resets.
#[test]
fn names_that_were_not_given_mean_nothing() {
    let mut direct = client(shared(), "");
    direct.batch_execute("drop table if exists in_its_way; create table in_its_way (a int)").unwrap();
    let weir = Weir::start(shared(), OF_ONE);
    let mut raw = Raw(TcpStream::connect(("127.0.0.1", weir.port)).unwrap());
    let startup = [("user", "postgres"), ("database", "postgres"), ("work_mem", "100kB")];
    raw.send(|out| write::startup(out, ProtocolVersion::V3_0, &startup));
    raw.read_until(BackendTag::ReadyForQuery);
    assert_eq!(raw.says("select pg_advisory_lock(3)"), [""]);
    raw.prepares("k", "select a from in_its_way");
    raw.prepares("s", "reset work_mem");
    direct.batch_execute("begin; lock in_its_way").unwrap();
    assert_eq!(raw.says("execute s"), ["E 0A000"]);
    direct.batch_execute("commit").unwrap();
    raw.send(|out| {
        write::close_statement(out, b"s");
        write::sync(out);
    });
    raw.answers();
    raw.prepares("s", "set work_mem to '200kB'");
    raw.says("execute s");
    assert_eq!(raw.says("show work_mem"), ["200kB"]);
    direct.batch_execute("drop table in_its_way").unwrap();
}

/// Its looks fail, each leaves something to be closed, and it is answered all the same.
#[test]
fn who_asks_while_looks_fail_is_answered() {
    let mut direct = client(shared(), "");
    direct.batch_execute("create database looks_fail").unwrap();
    let weir = Weir::start(shared(), "workers = 1\ndefault_pool_size = 1\nquery_timeout = 5");
    let mut locks = client(shared(), "dbname=looks_fail");
    let mut one = client(weir.port, "dbname=looks_fail");
    said(&mut one, "set statement_timeout = 50");
    locks.batch_execute("begin; lock pg_depend").unwrap();
    said(&mut one, "do $$begin set work_mem = '99kB'; end$$");
    for _ in 0..3 {
        assert_eq!(said(&mut one, "select name from pg_prepared_statements"), Vec::<String>::new());
    }
    locks.batch_execute("commit").unwrap();
    drop((one, locks, weir));
    direct.batch_execute("drop database looks_fail with (force)").unwrap();
}
