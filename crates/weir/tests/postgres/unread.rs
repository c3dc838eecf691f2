//! What is easily read for something else than it is, or not at all: nobody else has what it leaves in a session.

use std::thread::sleep;
use std::time::Duration;

use super::bench::{Place, Raw, Weir, shared};
use super::parameters::{client, said};

const OF_ONE: &str = "workers = 1\ndefault_pool_size = 1";
/// How a text is sent.
const WAYS: [&str; 3] = ["simple", "unnamed", "named"];
const LEAVES: &str = "set_config('work_mem', '7MB', false)";
/// What may have been left, and what goes on from a seed.
const SEEN: &str = "select current_setting('work_mem'), \
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), \
    (select count(*) from pg_class where relnamespace = pg_my_temp_schema()), \
    current_setting('dynamic_library_path'), random()";
const NOTHING: &str = "4MB|0|0|$libdir";

/// A table, a function or a type may be called by any keyword there, also within code.
#[test]
fn a_keyword_behind_a_dot_is_a_name() {
    let place = made(
        "dotted",
        &[
            &*leaves("at_insert() returns trigger", "new"),
            "create table \"user\" (a int)",
            "create trigger leaves before insert on \"user\" for each row execute function at_insert()",
            &*leaves("\"user\"() returns bool", "true"),
            &*leaves("\"all\"() returns bool", "true"),
            &*leaves("holds(int) returns bool", "true"),
            "create domain \"order\" as int check (holds(value))",
            "create function calls() returns bool language plpgsql as $$begin return public.user(); end$$",
            "create function casts() returns int language plpgsql as $$begin return 1::public . /* x */ order; end$$",
        ],
    );
    for text in [
        "insert into public.user values (1)",
        "select public.all()",
        "select 1::public.order",
        "select 1::public . /* x */ order",
        "select calls()",
        "select casts()",
    ] {
        left_by_nobody(place, &[text], "");
    }
}

/// Where a SELECT INTO runs an event trigger, a comment before its INTO makes no INSERT or MERGE of it.
#[test]
fn what_a_comment_says_is_no_insert() {
    let place = made(
        "commented",
        &[
            "create function sets() returns event_trigger language plpgsql as $$begin set work_mem = '7MB'; end$$",
            "create event trigger sets on ddl_command_end when tag in ('SELECT INTO') execute function sets()",
        ],
    );
    for text in ["select 1 as a --;insert\ninto zz", "select 1 as a -- x; merge \r\n into zz"] {
        left_by_nobody(place, &[text], "drop table zz");
    }
}

/// PostgreSQL cuts a name at 63 bytes, and ahead of a letter that would go beyond them.
#[test]
fn a_name_ends_ahead_of_a_letter_that_is_too_long_for_it() {
    for (database, len) in [("of_63_bytes", 63), ("of_62_bytes", 62)] {
        let name = "x".repeat(len);
        let place = made(
            database,
            &[
                &*leaves(&format!("{name}() returns bool"), "true"),
                &*format!("create function calls() returns bool language plpgsql as $$begin return {name}é(); end$$"),
            ],
        );
        for text in [&*format!("select {name}é()"), "select calls()"] {
            left_by_nobody(place, &[text], "");
        }
    }
}

/// A function's own `search_path` makes a temporary table of what SELECT INTO creates in it.
#[test]
fn select_into_in_a_function_may_create_a_temporary_table() {
    let creates = "create function creates() returns void language sql set search_path = 'pg_temp' \
                   as 'select 1 as a into zz'";
    left_by_nobody(made("creating", &[creates]), &["select creates()"], "");
}

/// What a superuser has created or replaced in `pg_catalog` is code as anywhere else.
#[test]
fn pg_catalog_may_have_code_of_others() {
    let place = made(
        "catalogued",
        &[
            &*leaves("called() returns bool", "true"),
            &*leaves("holds(int) returns bool", "true"),
            &*leaves("adds(int, int) returns int", "1"),
            "create function pg_catalog.of_a_body() returns bool begin atomic select public.called(); end",
            "create function pg_catalog.of_a_default(a bool default public.called()) returns bool language sql \
             as 'select a'",
            "create aggregate pg_catalog.of_values (int) (sfunc = public.adds, stype = int)",
            "create domain pg_catalog.of_a_check as int check (public.holds(value))",
            "create table checked (a pg_catalog.of_a_check)",
            &*leaves("pg_catalog.lpad(text, int) returns text", "$1"),
        ],
    );
    for text in [
        "select of_a_body()",
        "select of_a_default()",
        "select of_values(1)",
        "select 1::of_a_check",
        "insert into checked values (1)",
        "select lpad('a', 3)",
    ] {
        left_by_nobody(place, &[text], "");
    }
}

/// An extension whose own code leaves nothing may have been given some that does, or have it replaced.
#[test]
fn an_extension_may_have_code_of_others() {
    let place = made(
        "extended",
        &[
            "create extension hstore",
            &*leaves("added() returns bool", "true"),
            "alter extension hstore add function added()",
            "create extension earthdistance cascade",
            &*leaves("earth() returns float8", "1"),
        ],
    );
    for text in ["select added()", "select earth()"] {
        left_by_nobody(place, &[text], "");
    }
}

/// An extension of which nothing is read has one function that leaves a table, as PostGIS' `AddAuth` does.
#[test]
fn an_extension_may_leave_a_table() {
    let place = made(
        "authorized",
        &[
            "create function addauth(text) returns bool language plpgsql as $$begin \
                create temp table temp_lock_have_table (lockcode text); \
                execute 'insert into temp_lock_have_table values (' || quote_literal($1) || ')'; return true; end$$",
            "insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) \
                values (99999, 'postgis', 10, 2200, false, '3.5')",
            "insert into pg_depend (classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype) \
                values ('pg_proc'::regclass, 'addauth(text)'::regprocedure, 0, 'pg_extension'::regclass, 99999, 0, 'e')",
        ],
    );
    left_by_nobody(place, &["select addauth('secret')"], "");
}

/// A database that is dropped and made anew has the name of the one that was known.
#[test]
fn a_database_made_anew_has_code_of_its_own() {
    let place = made("anew", &["create function called() returns bool language sql as 'select true'"]);
    let weir = Weir::start_at(place, OF_ONE);
    said(&mut weir.client(), "select called()");
    said(&mut weir.client(), "select 1");
    client(shared(), "").batch_execute("drop database anew with (force)").unwrap();
    let place = made("anew", &[&*leaves("called() returns bool", "true")]);
    let seeded = seeded(place);
    let mut one = Raw::on(weir.port);
    says(&mut one, "simple", 0, "select called()");
    weir.reload_with("query_wait_timeout = 1");
    nobody_else_has_it(&weir, 1, &seeded, "behind a database that was made anew");
}

/// Permanent objects may be made of another session's temporary ones, and run what is behind these.
#[test]
fn temporary_objects_run_what_is_behind_them_for_others() {
    let place = made(
        "temporaries",
        &[
            &*leaves("holds(int) returns bool", "true"),
            &*leaves("called() returns bool", "true"),
            &*leaves("adds(int, int) returns int", "1"),
        ],
    );
    let mut direct = place.client("");
    direct
        .batch_execute(
            "create domain pg_temp.checked as int check (public.holds(value)); \
             create table public.of_checked (a pg_temp.checked); \
             create domain pg_temp.by_default as bool default public.called(); \
             create table public.of_default (a pg_temp.by_default, b int); \
             create function pg_temp.calls() returns bool begin atomic select public.called(); end; \
             create view public.of_a_call as select pg_temp.calls(); \
             create aggregate pg_temp.sums (int) (sfunc = public.adds, stype = int); \
             create view public.of_a_sum as select pg_temp.sums(1); \
             create table public.of_checked_array (a pg_temp.checked[]); \
             create type pg_temp.pair as (a pg_temp.checked); \
             create table public.of_pair (a pg_temp.pair); \
             create type pg_temp.span as range (subtype = pg_temp.checked); \
             create table public.of_span (a pg_temp.span); \
             create table pg_temp.held (a pg_temp.checked); \
             create table public.of_held (a pg_temp.held); \
             create view public.of_a_cast as select '(1)'::pg_temp.pair; \
             create domain public.further as pg_temp.checked; \
             create function public.takes(pg_temp.held) returns int language sql as 'select 1'",
        )
        .unwrap();
    for text in [
        "insert into of_checked values (1)",
        "insert into of_default (b) values (1)",
        "select * from of_a_call",
        "select * from of_a_sum",
        "insert into of_checked_array values ('{1}')",
        "insert into of_pair values ('(1)')",
        "insert into of_span values ('[1,2)')",
        "insert into of_held values ('(1)')",
        "select * from of_a_cast",
        "select 1::further",
        "select takes('(1)')",
    ] {
        left_by_nobody(place, &[text], "");
    }
    // They are there as long as it is.
    drop(direct);
}

/// Whoever sets what only a superuser is shown has it alone, also where a role comes that is not shown it.
#[test]
fn what_a_role_is_not_shown_is_its_clients() {
    const UPDATES: &str = "update pg_settings set setting = '/srv:$libdir' where name like 'dynamic_lib%'";
    let place = made(
        "not_shown",
        &[
            "drop role if exists shown_less",
            "create role shown_less",
            &*format!(
                "create function updates() returns void language plpgsql security definer as $$begin {UPDATES}; end$$"
            ),
        ],
    );
    for texts in [
        &["set role shown_less", "select updates()"][..],
        &[UPDATES, "set role shown_less"],
        &["begin", UPDATES, "set role shown_less", "commit"],
        &["begin", "select updates()", "set role shown_less", "commit"],
    ] {
        left_by_nobody(place, texts, "");
    }
    place.client("").batch_execute("drop role shown_less").unwrap();
}

/// A wrapper's validator runs whenever something is created by it, and no text names that.
#[test]
fn a_validator_is_run_by_what_it_validates() {
    let place = Place::of_its_own(shared(), "validated");
    for (wrapper, left) in [("seeds", "setseed(0.42)"), ("sets", LEAVES)] {
        place
            .client("")
            .batch_execute(&format!(
                "create function by_{wrapper}(text[], oid) returns void language plpgsql \
                 as $$begin perform {left}; end$$; \
                 create foreign data wrapper {wrapper} validator by_{wrapper}; \
                 create server {wrapper}_here foreign data wrapper {wrapper}"
            ))
            .unwrap();
        for (creates, undo) in [
            (format!("create server s foreign data wrapper {wrapper} options (a 'b')"), "drop server s".to_owned()),
            (
                format!("create user mapping for public server {wrapper}_here options (a 'b')"),
                format!("drop user mapping for public server {wrapper}_here"),
            ),
        ] {
            left_by_nobody(place, &[&*creates], &undo);
        }
    }
}

/// So does that of a language, whatever that is called.
#[test]
fn a_validator_is_run_by_what_it_looks_at() {
    let validates =
        "create function validates(oid) returns void language plpgsql as $$begin perform setseed(0.42); end$$";
    let place = made("validating", &[validates]);
    place
        .client("")
        .batch_execute("update pg_language set lanvalidator = 'validates'::regproc where lanname = 'sql'")
        .unwrap();
    left_by_nobody(
        place,
        &["create function created() returns int language sql as 'select 1'"],
        "drop function created()",
    );
}

/// Statistics are read as values of their column, which is named in a string.
#[test]
fn statistics_are_read_by_a_column_s_type() {
    let place = made(
        "restored",
        &[
            &*leaves("holds(int) returns bool", "true"),
            "create domain held as int check (holds(value))",
            "create table t (a held)",
        ],
    );
    if place.client("").query_one("show server_version_num", &[]).unwrap().get::<_, String>(0).as_str() < "180000" {
        return;
    }
    let restores = "select pg_restore_attribute_stats('schemaname', 'public', 'relname', 't', 'attname', 'a', 'inherited', false, \
                    'null_frac', 0.1::real, 'avg_width', 4, 'n_distinct', 2::real, 'most_common_vals', '{1,2}'::text, \
                    'most_common_freqs', '{0.3,0.2}'::real[])";
    left_by_nobody(place, &[restores], "");
}

/// While a statement runs, what it calls is changed and changed back, and each time read.
#[test]
fn code_may_be_another_for_a_while() {
    let place = Place::of_its_own(shared(), "for_a_while");
    let seeded = seeded(place);
    let code = |left: &str| {
        format!(
            "create or replace function called() returns bool language plpgsql as $$begin {left}; return true; end$$"
        )
    };
    let mut direct = place.client("");
    direct.batch_execute("create table steps (a int)").unwrap();
    direct.batch_execute(&code("null")).unwrap();
    let waits = "create or replace function waits(n int) returns bool language plpgsql as $$begin \
                 for i in 1..200 loop exit when (select count(*) from steps) >= n; perform pg_sleep(0.05); end loop; return true; end$$";
    // PostgreSQL looks for what it calls when it comes to that.
    let slow = "create or replace function slow() returns bool language plpgsql as $$begin \
                perform waits(1); perform called(); perform waits(2); return true; end$$";
    direct.batch_execute(&format!("{waits}; {slow}")).unwrap();
    let lefts = ["perform setseed(0.42)", "perform set_config('app.zz', 'left', false)"];
    // Read in between, or changed back before anybody has.
    for (left, is_read) in lefts.into_iter().flat_map(|left| [(left, true), (left, false)]) {
        direct.batch_execute("delete from steps").unwrap();
        let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 2");
        let mut two = weir.client();
        said(&mut two, "select 1");
        let mut one = Raw::on(weir.port);
        let passes = |two: &mut postgres::Client, times: usize| {
            for _ in 0..times {
                sleep(Duration::from_millis(100));
                said(two, "select 1");
            }
        };
        if !is_read {
            passes(&mut two, 15);
            two.batch_execute("create table harmless (a int); drop table harmless").unwrap();
            passes(&mut two, 1);
        }
        one.send(|out| weir_wire::write::query(out, b"select slow()"));
        two.batch_execute(&code(left)).unwrap();
        passes(&mut two, if is_read { 25 } else { 0 });
        direct.batch_execute("insert into steps values (1)").unwrap();
        sleep(Duration::from_millis(300));
        two.batch_execute(&code("null")).unwrap();
        passes(&mut two, 25);
        direct.batch_execute("insert into steps values (1)").unwrap();
        assert_eq!(one.answers(), ["t"], "{left}");
        drop(two);
        weir.reload_with("query_wait_timeout = 1");
        for _ in 0..2 {
            nobody_else_has_it(&weir, 2, &seeded, left);
            let mut newcomer = weir.client();
            let custom = said(&mut newcomer, "select coalesce(current_setting('app.zz', true), '')");
            assert_ne!(custom, ["left"], "{left}");
        }
        drop(one);
        nobody_else_has_it(&weir, 2, &seeded, left);
    }
}

/// What runs behind a client's temporary view is what another has made of that since.
#[test]
fn what_is_behind_a_temporary_view_may_be_replaced() {
    let place = Place::of_its_own(shared(), "replaced_behind");
    let seeded = seeded(place);
    let code = |left: &str| {
        format!(
            "create or replace function called() returns bool language plpgsql \
             as $$begin {left}; return true; end$$"
        )
    };
    for left in [LEAVES, "setseed(0.42)"] {
        for way in &WAYS[..2] {
            place.client("").batch_execute(&code("null")).unwrap();
            let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 2");
            let mut two = weir.client();
            said(&mut two, "select 1");
            let mut one = Raw::on(weir.port);
            says(&mut one, way, 0, "create temp view seen as select called()");
            two.batch_execute(&code(&format!("perform {left}"))).unwrap();
            // It is read again, at most once a second.
            for _ in 0..25 {
                sleep(Duration::from_millis(100));
                said(&mut two, "select 1");
            }
            says(&mut one, way, 1, "select 1");
            assert_eq!(says(&mut one, way, 2, "select * from seen"), ["t"]);
            says(&mut one, way, 3, "drop view seen");
            drop(two);
            weir.reload_with("query_wait_timeout = 1");
            nobody_else_has_it(&weir, 2, &seeded, left);
            drop(one);
            nobody_else_has_it(&weir, 2, &seeded, left);
        }
    }
}

/// A function that leaves something, and returns that.
fn leaves(function: &str, value: &str) -> String {
    format!("create or replace function {function} language plpgsql as $$begin perform {LEAVES}; return {value}; end$$")
}

fn made(database: &'static str, setup: &[&str]) -> Place {
    let place = Place::of_its_own(shared(), database);
    place.client("").batch_execute(&setup.join("; ")).unwrap();
    place
}

/// What `random()` gives first behind the seed that is left.
fn seeded(place: Place) -> String {
    let mut direct = place.client("");
    said(&mut direct, "select setseed(0.42)");
    said(&mut direct, "select random()").remove(0)
}

/// The rows; an error is none of them.
#[track_caller]
fn says(one: &mut Raw, way: &str, number: usize, text: &str) -> Vec<String> {
    let answers = match way {
        "simple" => one.says(text),
        "unnamed" => one.executes("", Some(text)),
        _ => one.executes(&format!("s{number}"), Some(text)),
    };
    assert!(!answers.iter().any(|answer| answer.starts_with("E ")), "{way}, {text}: {answers:?}");
    answers
}

/// Neither while the client is there that says this, nor when it has gone. `undo`: so that it can be said again.
#[track_caller]
fn left_by_nobody(place: Place, texts: &[&str], undo: &str) {
    let seeded = seeded(place);
    for way in WAYS {
        let weir = Weir::start_at(place, OF_ONE);
        // The code is known behind that.
        said(&mut weir.client(), "select 1");
        let mut one = Raw::on(weir.port);
        for (number, text) in texts.iter().enumerate() {
            says(&mut one, way, number, text);
        }
        weir.reload_with("query_wait_timeout = 1");
        let what = format!("{way}: {texts:?}");
        nobody_else_has_it(&weir, 1, &seeded, &what);
        drop(one);
        nobody_else_has_it(&weir, 1, &seeded, &what);
        place.client("").batch_execute(undo).unwrap();
    }
}

/// Looks at all servers. Where one stays with whoever left something, somebody waits in vain.
#[track_caller]
fn nobody_else_has_it(weir: &Weir, servers: usize, seeded: &str, what: &str) {
    let mut newcomers = Vec::new();
    for _ in 0..servers {
        let Ok(mut newcomer) = weir.try_client("dbname=postgres") else { continue };
        said(&mut newcomer, "begin");
        let shown = said(&mut newcomer, SEEN).remove(0);
        if let Some((seen, random)) = shown.rsplit_once('|') {
            assert_eq!(seen, NOTHING, "{what}");
            assert_ne!(random, seeded, "{what}");
        } else {
            assert!(matches!(&*shown, "57014" | "lost"), "{what}: {shown}");
        }
        newcomers.push(newcomer);
    }
}
