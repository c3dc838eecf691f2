//! What texts leave, one by one.

use super::*;

fn leaves(text: &str) -> Leaves {
    Leaves::of(text.as_bytes())
}

#[test]
fn what_leaves_nothing() {
    for text in [
        "select 1",
        "update t set a = 'set b; listen c' where \"Set\" = 1",
        "insert into t values (1) on conflict do nothing",
        "begin; set local work_mem = '1MB'; commit",
        "/* set a.b = 1 */ select 1 -- listen\n",
        "SET LOCAL a.b = '1'",
        "set transaction isolation level serializable",
        "set session timezone to 'UTC'",
        "set time zone 'UTC'",
        "SET NAMES 'utf8'",
        "set \"TimeZone\" = 'UTC'",
        "set application_name = 'a'; set DateStyle to iso",
        "set constraints all deferred",
        "select set_config('app.tenant', $1, true)",
        "select pg_catalog.set_config ( 'a.b' :: text , coalesce($1, (select 'x')), TRUE )",
        "select set_config('timezone', 'UTC', false)",
        "select pg_advisory_xact_lock(1), pg_try_advisory_xact_lock(2)",
        "prepare transaction 'a'",
        "create table attempt (a int)",
        "copy t from stdin",
        "notify a, 'b'",
        "alter table t set (fillfactor = 50)",
        "create function f() returns int language plpgsql as $$ begin perform set_config('a.b', '1', false); end $$",
        "",
    ] {
        assert_eq!(leaves(text).makes, Kinds::NONE, "{text}");
    }
}

#[test]
fn what_leaves_something() {
    const ANY: Kinds = Kinds::ANY;
    let unnamed = Kinds::PARAMETERS.with(Kinds::LASTING);
    for (text, makes) in [
        ("set work_mem = '1MB'", Kinds::PARAMETERS),
        ("select 1; /* a */ SET search_path to a", Kinds::PARAMETERS),
        ("set session work_mem = 1", Kinds::PARAMETERS),
        ("set session characteristics as transaction read only", Kinds::PARAMETERS),
        ("set session authorization a", Kinds::PARAMETERS),
        ("set role a", Kinds::PARAMETERS),
        ("select set_config('work_mem', '1MB', false)", Kinds::PARAMETERS),
        ("select set_config('work_mem', '1MB', $1)", Kinds::PARAMETERS),
        ("select set_config('work_mem', '1MB', not true)", Kinds::PARAMETERS),
        ("select set_config('work_mem', '1MB', true and false)", Kinds::PARAMETERS),
        ("select set_config($1, '1MB', false)", unnamed),
        ("select set_config('a' || 'b', '1MB', false)", unnamed),
        ("select set_config(concat('a', 'b'), '1MB', false)", unnamed),
        ("select set_config('a', '1MB'", unnamed),
        ("select set_config($1, f($2, true), true)", Kinds::SEED),
        ("select set_config($$seed$$, '0.5', true)", Kinds::SEED),
        ("select set_config('se'\n'ed', '0.5', true)", Kinds::SEED),
        ("select set_config(U&'s!0065ed' uescape '!', '0.5', true)", Kinds::SEED),
        ("set default_transaction_read_only = on", Kinds::PARAMETERS),
        ("analyze t", ANY),
        ("vacuum (full, analyze) \"T\"", ANY),
        ("reindex table concurrently t", ANY),
        ("analyze", ANY.with(Kinds::LASTING)),
        ("vacuum (verbose on) ; select 1", ANY.with(Kinds::LASTING)),
        ("reindex index i", ANY.with(Kinds::LASTING)),
        ("do 'begin perform set'\n'seed(0.5); end'", ANY.with(Kinds::LASTING)),
        ("do u&'begin null; end'", ANY.with(Kinds::LASTING)),
        ("do $a$begin do $b$begin perform setseed(0.5); end$b$; end$a$", ANY.with(Kinds::LASTING)),
        ("do $a$begin do $b$begin null; end$b$; end$a$", ANY),
        ("create temp table t (a int)", Kinds::OBJECTS),
        ("select 1 into temporary t", Kinds::OBJECTS),
        ("create view pg_temp.v as select 1", Kinds::OBJECTS),
        ("create view \"pg_temp\".v as select 1", Kinds::OBJECTS),
        ("select pg_advisory_lock(1)", Kinds::LOCKS),
        ("select PG_TRY_ADVISORY_LOCK_SHARED(1)", Kinds::LOCKS),
        ("listen a", Kinds::CHANNELS),
        ("declare c cursor with hold for select 1", Kinds::CURSORS),
        ("explain analyze declare c cursor with hold for select 1", Kinds::CURSORS),
        ("prepare p as select 1", Kinds::PREPARED),
        ("execute p", ANY),
        ("create table t as execute p", ANY),
        ("do $$ begin end $$", ANY),
        ("do $$ begin load 'a'; end $$", ANY.with(Kinds::LASTING)),
        ("call p()", ANY),
        ("load 'a'", Kinds::LASTING),
        ("select setseed(0)", Kinds::LASTING),
        ("set seed = 0.5", unnamed),
        ("select set_config('a..b', '1', false)", unnamed),
        ("set local seed = 0.5", Kinds::LASTING),
        ("select set_config('seed', '0.5', true)", unnamed),
        ("set dynamic_library_path = '/x'", unnamed),
        ("update pg_settings set setting = '1' where name = 'work_mem'", Kinds::PARAMETERS.with(Kinds::LASTING)),
        ("select E'a'\n'\\''; set work_mem = '1MB'; --'", Kinds::PARAMETERS),
        ("select query_to_xml('select set_config(''a.b'', '''', false)', true, true, '')", ANY.with(Kinds::LASTING)),
        ("do $$ begin execute 'set a.b = 1'; end $$", ANY.with(Kinds::LASTING)),
        ("do E'begin set a\\x2eb = 1; end'", ANY.with(Kinds::LASTING)),
        ("select dblink_connect('a', '')", Kinds::LASTING),
        (r#"select U&"\0073etseed"(0)"#, ANY.with(Kinds::LASTING)),
    ] {
        assert_eq!(leaves(text).makes, makes, "{text}");
    }
}

#[test]
fn what_a_text_says() {
    for (text, says) in [
        ("set work_mem = '1MB'", Kinds::PARAMETERS),
        ("set local work_mem = '1MB'", Kinds::NONE),
        ("set timezone = 'UTC'", Kinds::NONE),
        ("select set_config('work_mem', '1MB', false)", Kinds::PARAMETERS),
        ("select set_config($1, $2, false)", Kinds::PARAMETERS),
        ("select set_config('work_mem', '1MB', $1)", Kinds::NONE),
        ("select set_config('work_mem', '1MB', true)", Kinds::NONE),
        ("create temp table t (a int)", Kinds::OBJECTS),
        ("create or replace temporary view v as select 1", Kinds::OBJECTS),
        ("create local temp table t (a int)", Kinds::OBJECTS),
        ("create table temp (a int)", Kinds::NONE),
        ("select temp from weather", Kinds::NONE),
        ("select pg_advisory_lock(1)", Kinds::LOCKS),
        ("select pg_advisory_lock from t", Kinds::NONE),
        ("select pg_advisory_xact_lock(1)", Kinds::NONE),
        ("listen a", Kinds::CHANNELS),
        ("declare c cursor with hold for select 1", Kinds::CURSORS),
        ("declare c scroll cursor for select 'with hold'", Kinds::NONE),
        ("declare c cursor without hold for select 1", Kinds::NONE),
        ("prepare p as select 1", Kinds::PREPARED),
        ("prepare transaction 'a'", Kinds::NONE),
        ("load 'a'; select setseed(0)", Kinds::LASTING),
        ("do $$ begin set work_mem = 1; perform pg_advisory_lock(1); end $$", Kinds::NONE),
        ("call p(); execute p", Kinds::NONE),
    ] {
        assert_eq!(leaves(text).says, says, "{text}");
    }
}

#[test]
fn what_changes_code() {
    for (text, alters) in [
        ("create temp table t (a int)", false),
        ("create temp table t (a int); create function f() returns int language sql as 'select 1'", true),
        ("alter table t add b int", true),
        ("select 1", false),
        // A table is created, and what runs at that.
        ("select 1 into t", true),
        ("select 1 as insert into t", true),
        ("select 1 insert into t", true),
        ("select (1) insert into t", true),
        ("select 1 as \"merge\" into t", true),
        ("select 'insert' into t", true),
        ("with a as (select 1) select (1) as insert into t", true),
        ("with a as (select 1) select 1 from a order by (1), insert into t", true),
        ("explain analyze select 1 insert into t", true),
        ("with recursive a(b) as (select 1) search depth first by b set c select (2) insert into t", true),
        ("with recursive a(b) as (select 1) cycle b set c using d select (2) merge into t", true),
        ("insert /* x */ into t values (1)", false),
        ("insert into t (a) select (1)", false),
        (
            "with a (b) as (select 1), c as materialized (insert into t select 1 returning a) insert into t select 1",
            false,
        ),
        (
            "with recursive a as (select 1) search depth first by b set c, d as (select 1) merge into t using a on true",
            false,
        ),
    ] {
        assert_eq!(leaves(text).alters, alters, "{text}");
    }
}

#[test]
fn what_takes_something_away() {
    for (text, ends) in [
        ("reset work_mem", Kinds::PARAMETERS),
        ("reset all", Kinds::PARAMETERS),
        ("reset session authorization", Kinds::PARAMETERS),
        ("reset timezone", Kinds::NONE),
        ("drop table t", Kinds::OBJECTS),
        ("select pg_advisory_unlock_all()", Kinds::LOCKS),
        ("unlisten *", Kinds::CHANNELS),
        ("close c", Kinds::CURSORS),
        ("deallocate p", Kinds::PREPARED),
        ("discard all", Kinds::ANY),
    ] {
        let leaves = leaves(text);
        assert_eq!((leaves.makes, leaves.ends), (Kinds::NONE, ends), "{text}");
    }
}

#[test]
fn calls_within_calls_are_read_once() {
    let text = format!("select {}", "set_config(".repeat(100_000));
    assert!(leaves(&text).makes.has(Kinds::LASTING));
}

#[test]
fn a_name_that_is_cut_is_not_known() {
    assert!(leaves(&format!("set app.{} = '7'", "a".repeat(70))).makes.has(Kinds::LASTING));
}

#[test]
fn custom_parameters_have_their_names_from_texts() {
    let names = |text: &str| leaves(text).names.iter().map(|name| name.to_string()).collect::<Vec<_>>().join(" ");
    assert_eq!(names("set A.b = 1; set \"c\".\"D\" to 2; set local e.f = 3"), "a.b c.d");
    assert_eq!(names("select set_config('My.Own', 'x', false)"), "my.own");
    assert_eq!(names("select set_config('my.own'::text, 'x', false)"), "my.own");
    assert_eq!(names("do $$begin set a.b = 1; perform set_config('c.d', '', false); end$$"), "a.b c.d");
    assert_eq!(names("create function f() returns int language sql as $$select set_config('e.f', '', false)$$"), "e.f");
    assert_eq!(names("set work_mem = 1"), "");
}

#[test]
fn code_has_statements_of_its_own() {
    let makes = |text: &str| Leaves::of_code(text.as_bytes()).makes;
    for (text, expected) in [
        ("declare a int; begin update t set a = 1; insert into t values (1) on conflict do nothing; end", Kinds::NONE),
        ("begin set local work_mem = 1; end", Kinds::NONE),
        ("begin set work_mem = 1; end", Kinds::PARAMETERS),
        ("begin if a then set role b; end if; end", Kinds::PARAMETERS),
        ("<<a>> begin execute 'x'; end", Kinds::ANY.with(Kinds::LASTING)),
        ("begin create table t (a int); end", Kinds::OBJECTS),
        ("begin create temp table t (a int) on commit drop; end", Kinds::OBJECTS),
        ("begin perform pg_advisory_lock(1); end", Kinds::LOCKS),
        ("begin open c; fetch c into d; close c; end", Kinds::NONE),
        // Of an expression, as it is stored: what it calls.
        ("pg_advisory_lock int4_sum", Kinds::LOCKS),
    ] {
        assert_eq!(makes(text), expected, "{text}");
    }
}

#[test]
fn backslashes_are_told() {
    assert!(leaves(r"select 'a\'").uncertain);
    assert!(!leaves(r"select E'a\n', 'b'").uncertain);
}

#[test]
fn what_is_created_may_leave_what_lasts() {
    let lasts = |text: &str| leaves(text).defines_lasting;
    for text in [
        "create function f() returns void language sql as $$select setseed(0.5)$$",
        "create function f() returns void language sql as 'select set'\n'seed(0.5)'",
        "create function f() returns void begin atomic select setseed(0.5); end",
        "create view v as select set_config('a.' || b, '1', false) from t",
        "alter table t alter a set default setseed(0.5)",
        "do $$begin create view v as select setseed(0.5); end$$",
    ] {
        assert!(lasts(text), "{text}");
    }
    for text in ["create view v as select 1", "create table t (a text default 'a')"] {
        assert!(!lasts(text), "{text}");
    }
}

#[test]
fn what_may_change_how_texts_are_read() {
    for text in [
        "set names 'SJIS'",
        "set local names 'SJIS'",
        "set session names default",
        "set client_encoding = SJIS",
        "set local \"client_encoding\" to SJIS",
        "reset client_encoding",
        "select set_config('Client_Encoding', 'SJIS', true)",
        "select set_config($1, $2, true)",
        "select set_config('standard_conforming_strings', 'off', false)",
        "alter function f() set standard_conforming_strings = off",
        "update pg_settings set setting = 'off' where name = $1",
    ] {
        assert!(leaves(text).sets_strings, "{text}");
    }
    for text in
        ["select 1", "set time zone 'UTC'", "select set_config('search_path', $1, true)", "set local work_mem = '1MB'"]
    {
        assert!(!leaves(text).sets_strings, "{text}");
    }
    for text in ["reset all", "discard all", "select 1; DISCARD ALL"] {
        let leaves = leaves(text);
        assert!(leaves.resets_strings && !leaves.sets_strings, "{text}");
    }
}

/// PostgreSQL refuses a Query with more behind its end; what that says is no part of the text.
#[test]
fn what_is_behind_the_end_is_not_read() {
    for behind in ["\u{ff}", " pg_temp", ";set work_mem = '1MB'"] {
        assert!(!Leaves::of(format!("select 1\0{behind}").as_bytes()).is_of_note(), "{behind}");
    }
}
