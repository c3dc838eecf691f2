//! What a client leaves in a session by ways that its text hides: nobody else has it.

use weir_wire::{BackendTag, ProtocolVersion, write};

use super::bench::{Place, Raw, Weir, shared};
use super::parameters::{client, said};

#[test]
fn what_is_hidden_is_its_clients() {
    on::what_is_hidden_is_its_clients(shared());
}

/// Its seed goes on where its server is kept for that.
#[test]
fn a_seed_is_its_clients_own() {
    let texts = ["select setseed(0.5)", "select set_config(lower('WORK_MEM'), '90kB', true)", "select random()"];
    let weir = Weir::start(shared(), "workers = 1\ndefault_pool_size = 1");
    let [mut direct, mut one] = [shared(), weir.port].map(|port| client(port, ""));
    let [direct, own] = [&mut direct, &mut one].map(|client| texts.map(|text| said(client, text)));
    assert_eq!(own, direct);
}

/// What runs when a session begins, or when a table is created by a SELECT that looks like an INSERT.
#[test]
fn what_event_triggers_leave_is_its_clients() {
    const SEEN: &str = "select current_setting('work_mem'), \
        (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())";
    let place = Place::of_its_own(shared(), "created_by_select");
    place
        .client("")
        .batch_execute(
            "create function sets() returns event_trigger language plpgsql as $$begin set work_mem = '7MB'; end$$; \
             create event trigger sets on ddl_command_end when tag in ('SELECT INTO') execute function sets()",
        )
        .unwrap();
    let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 1");
    for text in [
        "select 1 as insert into a",
        "select 'insert' into b",
        "select 1 /* merge */ into c",
        "select (1) merge into d",
    ] {
        let mut one = weir.client();
        one.batch_execute(text).unwrap();
        assert_eq!(said(&mut one, SEEN), ["7MB|0"], "{text}");
        drop(one);
        assert_eq!(said(&mut weir.client(), SEEN), ["4MB|0"], "{text}");
    }
    let place = Place::of_its_own(shared(), "begins_with_more");
    place
        .client("")
        .batch_execute(
            "create function begins() returns event_trigger language plpgsql as \
             $$begin set work_mem = '6MB'; perform pg_advisory_lock_shared(5); end$$; \
             create event trigger begins on login execute function begins()",
        )
        .unwrap();
    let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 2");
    let [mut one, mut two] = [weir.client(), weir.client()];
    for client in [&mut one, &mut two] {
        assert_eq!(said(client, SEEN), ["6MB|1"]);
    }
    one.batch_execute("set work_mem = '1MB'; create temp table t (a int)").unwrap();
    drop(one);
    assert_eq!(said(&mut weir.client(), SEEN), ["6MB|1"]);
}

/// A type's number tells as little as a name that is not there.
#[test]
fn types_by_their_numbers_run_what_is_behind_them() {
    on::types_by_their_numbers_run_what_is_behind_them(shared());
}

const IN_STRINGS: &[u8] = br"select '\', 'x, pg_advisory_lock(77) --'";
/// The second byte of a letter is a backslash there.
const IN_LETTERS: &[u8] = b"select E'\x83\x5c', pg_advisory_lock(77) --'";

fn parse(out: &mut Vec<u8>, name: &[u8], text: &[u8]) {
    write::parse(out, name, &[text, b"\0\0\0"].concat());
}

fn run(out: &mut Vec<u8>, name: &[u8]) {
    write::bind_without_values(out, b"", name);
    write::execute(out, b"");
}

/// Prepares a text under what `set` says and uses it under the other, or sends both in one write; how many answers come.
fn reads_otherwise(out: &mut Vec<u8>, way: usize, text: &[u8], set: &[u8], back: &[u8]) -> usize {
    let name: &[u8] = if way.is_multiple_of(2) { b"s" } else { b"" };
    match way {
        0 | 1 => {
            write::query(out, set);
            parse(out, name, text);
            write::sync(out);
            parse(out, b"t", back);
            run(out, b"t");
            write::sync(out);
            run(out, name);
            write::sync(out);
            4
        }
        2 | 3 => {
            let local = String::from_utf8_lossy(set).replace("set ", "set local ");
            parse(out, b"t", local.as_bytes());
            run(out, b"t");
            parse(out, name, text);
            run(out, name);
            write::sync(out);
            1
        }
        // Too long to be kept.
        4 => {
            parse(out, b"", &[set, b" /*", &[b'x'; 40_000], b"*/"].concat());
            run(out, b"");
            parse(out, b"", text);
            run(out, b"");
            write::sync(out);
            1
        }
        _ => {
            write::query(out, set);
            write::query(out, text);
            2
        }
    }
}

/// A text is what PostgreSQL reads under the parameters of its Parse, and not of when it is used, nor those that its client was told last.
#[test]
fn a_text_is_read_as_postgresql_has_read_it() {
    for (text, set, back) in [
        (IN_STRINGS, &b"set standard_conforming_strings = off"[..], &b"set standard_conforming_strings = on"[..]),
        (IN_LETTERS, b"set client_encoding = 'SJIS'", b"set client_encoding = 'UTF8'"),
    ] {
        for way in 0..6 {
            let weir = Weir::start(shared(), "workers = 1\ndefault_pool_size = 2");
            let mut one = Raw::on(weir.port);
            let mut answers = 0;
            one.send(|out| answers = reads_otherwise(out, way, text, set, back));
            (0..answers).for_each(|_| drop(one.answers()));
            let mut console = client(weir.port, "dbname=pgbouncer");
            assert_eq!(said(&mut console, "show pins").len(), 1, "{} {way}", text.escape_ascii());
        }
    }
}

/// One that is not answered yet was not parsed under what the one before it was.
#[test]
fn an_unnamed_text_is_read_under_its_own_parameters() {
    let weir = Weir::start(shared(), "workers = 1\ndefault_pool_size = 2");
    let mut one = Raw::on(weir.port);
    let mut runs = |text: &[u8]| {
        one.send(|out| {
            parse(out, b"", text);
            run(out, b"");
            write::sync(out);
        });
        one.answers();
    };
    runs(b"select 1");
    runs(b"set standard_conforming_strings = off");
    runs(IN_STRINGS);
    let mut console = client(weir.port, "dbname=pgbouncer");
    assert_eq!(said(&mut console, "show pins").len(), 1);
}

/// RESET ALL takes back to what its client asked for at first.
#[test]
fn a_reset_to_other_strings_is_not_believed() {
    for reset in ["reset all", "discard all"] {
        let weir = Weir::start(shared(), "workers = 1\ndefault_pool_size = 2");
        let mut one = Raw(std::net::TcpStream::connect(("127.0.0.1", weir.port)).unwrap());
        let startup = [("user", "postgres"), ("database", "postgres"), ("standard_conforming_strings", "off")];
        one.send(|out| write::startup(out, ProtocolVersion::V3_0, &startup));
        one.read_until(BackendTag::ReadyForQuery);
        one.says("set standard_conforming_strings = on");
        one.send(|out| {
            for text in [reset.as_bytes(), IN_STRINGS] {
                parse(out, b"", text);
                run(out, b"");
            }
            write::sync(out);
        });
        one.answers();
        let mut console = client(weir.port, "dbname=pgbouncer");
        assert_eq!(said(&mut console, "show pins").len(), 1, "{reset}");
    }
}

/// Tokens are PostgreSQL's: in parts of one body under two settings, behind a number, and as the database has them whatever the
/// `client_encoding` is by default.
#[test]
fn code_is_read_as_postgresql_reads_it() {
    const OFF: &str = "set standard_conforming_strings = off";
    const LEAVES: &str = "perform setseed(0.42), set_config('app.k', 'left', false)";
    let place = Place::of_its_own(shared(), "tokens");
    let mut direct = place.client("");
    direct
        .batch_execute("alter database tokens set client_encoding = 'SJIS'; set check_function_bodies = off")
        .unwrap();
    direct
        .batch_execute("create function seeds() returns void language plpgsql as 'begin perform setseed(0.42); end'")
        .unwrap();
    let two_settings = "begin perform '\\', ' $q$ '; perform set_config('standard_conforming_strings', 'off', true); \
         perform '\\', 'x, setseed(0.42) --'\n; perform ' $q$ '; end";
    let mut calls = vec![format!("do $b${two_settings}$b$")];
    for (settings, body) in [
        ("", two_settings.to_owned()),
        (
            OFF,
            "begin if false then perform b'\\', ' $q$ '; end if; perform '\\', 'x, setseed(0.42) --'\n; end".to_owned(),
        ),
        (OFF, "begin perform '\\' --', seeds()\n; end".to_owned()),
        ("", format!("begin if false then perform E'a' '\\'; end if; {LEAVES}; perform 'x'; end")),
        ("", format!("begin if false then perform 1$$ $$; end if; {LEAVES}; perform $$ $$; end")),
        // A backslash is this letter's second byte in SJIS.
        ("", format!("begin perform E'\u{30bd}'; {LEAVES}; perform E'\u{30bd}'; end")),
    ] {
        let name = format!("leaves_{}", calls.len());
        direct
            .batch_execute(&format!(
                "create function {name}() returns void language plpgsql {settings} as $b${body}$b$"
            ))
            .unwrap();
        calls.push(format!("select {name}()"));
    }
    let seeded = on::left_by_none(place);
    for call in calls {
        let weir = Weir::start_at(place, on::OF_ONE);
        let mut one = client(weir.port, "");
        one.simple_query(&call).unwrap();
        on::nobody_else_has_it(&weir, &seeded, &call);
    }
}

/// Nobody is kept for letters and strings alone.
#[test]
fn letters_and_strings_keep_nobody() {
    let weir = Weir::start(shared(), "workers = 1\ndefault_pool_size = 2");
    let mut one = Raw::on(weir.port);
    one.says("set client_encoding = 'UTF8'");
    one.send(|out| {
        write::query(out, b"discard all");
        write::query(out, "select 'é', 'C:\\x'".as_bytes());
        parse(out, b"", "select 'é'".as_bytes());
        run(out, b"");
        write::sync(out);
    });
    assert_eq!([one.answers(), one.answers(), one.answers()].concat(), ["é|C:\\x", "é"]);
    let mut console = client(weir.port, "dbname=pgbouncer");
    assert_eq!(said(&mut console, "show pins"), Vec::<String>::new());
}

/// Code may run where a backslash is an escape, and where it is none: what it leaves either way is its caller's.
#[test]
fn code_is_read_both_ways() {
    let mut direct = client(shared(), "");
    let body = "begin perform '\\', 'x, setseed(0.42) --'\n; return 1; end";
    direct
        .batch_execute(&format!(
            "create or replace function public.seeds_by_escape() returns int language plpgsql set standard_conforming_strings = off \
             as $${body}$$; create or replace function public.seeds_if_off() returns int language plpgsql as $${body}$$; \
             create or replace function public.has_escapes() returns bool language plpgsql as $$begin return 'a1' ~ '\\d'; end$$"
        ))
        .unwrap();
    said(&mut direct, "select setseed(0.42)");
    let seeded = said(&mut direct, "select random()");
    let weir = Weir::start(shared(), "workers = 1\ndefault_pool_size = 1");
    let off = "set standard_conforming_strings = off";
    for texts in [
        &["select public.seeds_by_escape()"][..],
        &[off, "select public.seeds_if_off()"],
        &[
            "do $$begin perform set_config('standard_conforming_strings', 'off', true); perform '\\', 'x, setseed(0.42) --'\n; end$$",
        ],
    ] {
        let mut one = client(weir.port, "");
        for text in texts {
            said(&mut one, text);
        }
        drop(one);
        assert_ne!(said(&mut client(weir.port, ""), "select random()"), seeded, "{texts:?}");
    }
    // Escapes alone keep nobody.
    let mut one = client(weir.port, "");
    assert_eq!(said(&mut one, "select public.has_escapes()"), ["t"]);
    assert_eq!(said(&mut client(weir.port, "dbname=pgbouncer"), "show pins"), Vec::<String>::new());
    direct
        .batch_execute(
            "drop function public.seeds_by_escape(); drop function public.seeds_if_off(); drop function public.has_escapes()",
        )
        .unwrap();
}

/// Nor is it ended for what another's user may not take back.
#[test]
fn nobody_is_ended_for_what_another_has_left() {
    let mut direct = client(shared(), "");
    direct
        .batch_execute(
            "drop function if exists logs_slow(); drop role if exists short_of_rights; create role short_of_rights login; \
             create function logs_slow() returns text language sql security definer \
             as $$select set_config('log_min_duration_statement', '100000', false)$$",
        )
        .unwrap();
    let users = "\"postgres\" \"postgres\"\n";
    let database = format!("* = host=127.0.0.1 port={} user=short_of_rights password=x", shared());
    direct.batch_execute("alter role short_of_rights password 'x'").unwrap();
    let weir = Weir::start_with(&database, users, "workers = 1\ndefault_pool_size = 1");
    let [mut one, mut two, mut three] = ["", "", "options='-c work_mem=5MB'"].map(|more| client(weir.port, more));
    for round in 0..3 {
        let mut sets = client(weir.port, "");
        assert_eq!(said(&mut sets, "select logs_slow()"), ["100s"]);
        assert_eq!(said(&mut one, "show log_min_duration_statement"), ["-1"]);
        assert!(sets.simple_query("select 1").is_err(), "it cannot be had again");
        let mut sets = client(weir.port, "");
        assert_eq!(said(&mut sets, "select logs_slow()"), ["100s"]);
        assert_eq!(said(&mut three, "show work_mem"), ["5MB"]);
        assert_eq!(said(&mut two, "select 2"), ["2"]);
        let mut sets = client(weir.port, "");
        assert_eq!(said(&mut sets, "select logs_slow()"), ["100s"]);
        // A login that has to be tried.
        let mut comes = client(weir.port, &format!("options='-c work_mem={}kB'", 100 + round));
        assert_eq!(said(&mut comes, "show log_min_duration_statement"), ["-1"]);
    }
    drop((one, two, three));
    drop(weir);
    direct.batch_execute("drop function logs_slow()").unwrap();
}

const SETUP: &str = "create schema deep; \
    create function deep.set_by_another_name(text, text, bool) returns text language internal as 'set_config_by_name'; \
    create function deep.seed_by_another_name(float8) returns void language internal as 'setseed'; \
    create function deep.leaves() returns int language plpgsql as \
    $$begin perform setseed(0.42), set_config('app.' || 'k', 'left', false); return 1; end$$; \
    create function deep.leaves_of(int) returns int immutable language sql as 'select deep.leaves() + $1'; \
    create function deep.does() returns int language plpgsql as \
    $a$begin do $b$begin perform setseed(0.42), set_config('app.k', 'left', false); end$b$; return 1; end$a$; \
    create function deep.sets(name text) returns text language sql as $$select set_config(name, '0.42', true)$$; \
    create table deep.t (a int); insert into deep.t values (1), (2); create index on deep.t (deep.leaves_of(a)); \
    create domain deep.d as int check (deep.leaves_of(value) > 0); create type deep.c as (a deep.d); \
    create type deep.r as range (subtype = deep.d); \
    create function deep.apart(int8, int8) returns float8 immutable language sql as 'select $1 - $2 + 0 * deep.leaves()'; \
    create type deep.s as range (subtype = int8, subtype_diff = deep.apart); create table deep.many (s deep.s); \
    create function deep.ääääääääääääääääääääääääääääääää() returns int language sql as 'select deep.leaves()'; \
    create function deep.by_a_cut_name() returns int language sql as 'select deep.ääääääääääääääääääääääääääääääää()'; \
    create index on deep.many using gist (s); create statistics deep.expressions on (deep.leaves_of(lower(s)::int)), (upper(s)) from deep.many";
const LIBRARIES: &str = "create extension tablefunc schema deep; \
    create extension refint schema deep; create table deep.pk (a int primary key); create table deep.fk (a int); \
    create function deep.at_delete() returns trigger language plpgsql as $$begin perform deep.leaves(); return old; end$$; \
    create trigger cascades after delete on deep.pk for each row \
    execute function deep.check_foreign_key(1, 'cascade', 'a', 'deep.fk', 'a'); \
    create trigger leaves before delete on deep.fk for each row execute function deep.at_delete(); \
    insert into deep.pk values (1); insert into deep.fk values (1)";

pub mod on {
    use super::*;

    pub const OF_ONE: &str = "workers = 1\ndefault_pool_size = 1";
    /// A seed that one has set gives the other this, and what it has put into a parameter without definition.
    const SHOW: &str = "select random(), current_setting('app.k', true)";

    pub fn left_by_none(place: Place) -> String {
        let mut direct = place.client("");
        said(&mut direct, "select setseed(0.42)");
        said(&mut direct, "select random()").remove(0)
    }

    /// Where the server stays with whoever left something, the other waits in vain.
    pub fn nobody_else_has_it(weir: &Weir, seeded: &str, what: &str) {
        weir.reload_with("query_wait_timeout = 1");
        let Ok(mut other) = weir.try_client("dbname=postgres") else { return };
        let shown = said(&mut other, SHOW).remove(0);
        if let Some((random, set)) = shown.split_once('|') {
            assert_ne!(random, seeded, "{what}");
            assert!(matches!(set, "null" | ""), "{what}: {set}");
        }
    }

    pub fn what_is_hidden_is_its_clients(server: u16) {
        let place = Place::of_its_own(server, "deep");
        place.client("").batch_execute(&[SETUP, LIBRARIES].join("; ")).unwrap();
        let seeded = left_by_none(place);
        for what in [
            "select deep.set_by_another_name('app.k', 'left', false), deep.seed_by_another_name(0.42)",
            "select * from deep.crosstab2($$select setseed(0.42)::text, set_config('app.k', 'left', false), ''$$)",
            "analyze",
            "vacuum full",
            "reindex schema deep",
            "reindex index deep.t_leaves_of_idx",
            "analyze deep.t",
            "analyze deep.many",
            "do 'begin perform set'\n'seed(0.42), set_config(''app.k'', ''left'', false); end'",
            "do 'begin perform deep.le'\n'aves(); end'",
            "do 'begin raise notice ''-- begins''; perform setseed(0.42), set_config(''app.k'', ''left'', false); end'",
            "do E'begin perform set'\n'seed(0.42); end'",
            "do U&'begin perform set!0073eed(0.42); perform deep.leave!0073(); end' uescape '!'",
            "do $a$begin do $b$begin perform setseed(0.42); set app.k = 'left'; end$b$; end$a$",
            "do $a$begin do 'begin perform setseed(0.42); set app.k = ''left''; end'; end$a$",
            "do $a$begin do language plpgsql $b$begin perform setseed(0.42); end$b$; end$a$",
            "do $a$begin do $b$begin perform deep.leaves(); end$b$; end$a$",
            "select deep.does()",
            "delete from deep.pk",
            "select deep.by_a_cut_name()",
            "select set_config('se'\n'ed', '0.42', true)",
            "select set_config(E'se\\x65d', '0.42', true)",
            "select set_config(U&'s!0065ed' uescape '!', '0.42', true)",
            "select set_config($$seed$$, '0.42', true)",
            "select set_config(lower('SEED'), '0.42', true)",
            "select set_config(x, '0.42', true) from (values ('seed')) v(x)",
            "insert into deep.many select deep.s(i, i + 10) from generate_series(1, 2000) i",
            "begin; select deep.sets('seed'); rollback",
            "select deep.sets('seed')",
            "create view deep.v as select deep.leaves(); select * from deep.v; drop view deep.v",
        ] {
            let weir = Weir::start_at(place, OF_ONE);
            let mut one = client(weir.port, "");
            one.simple_query(what).unwrap();
            nobody_else_has_it(&weir, &seeded, what);
        }
        // Made a moment ago by another.
        for (makes, what) in [
            (
                "create view deep.w as select setseed(0.42)::text, set_config('app.' || 'k', 'left', false)",
                "table deep.w",
            ),
            ("create function deep.f() returns void begin atomic select setseed(0.42); end", "select deep.f()"),
            ("create table deep.u (a int default deep.leaves())", "insert into deep.u default values"),
            ("create function deep.g() returns void language sql as 'select set'\n'seed(0.42)'", "select deep.g()"),
        ] {
            let weir = Weir::start_at(place, OF_ONE);
            let [mut makes_it, mut one] = [(); 2].map(|()| client(weir.port, ""));
            said(&mut makes_it, "create table deep.x (); drop table deep.x");
            assert_eq!(said(&mut makes_it, makes), Vec::<String>::new(), "{makes}");
            drop(makes_it);
            said(&mut one, what);
            nobody_else_has_it(&weir, &seeded, what);
        }
        what_is_replaced_meanwhile(place, &seeded);
        what_stands_in_schemas_of_postgres(place, &seeded);
    }

    /// A superuser's view in `information_schema`, and one among the temporary objects of another session.
    fn what_stands_in_schemas_of_postgres(place: Place, seeded: &str) {
        let mut direct = place.client("");
        direct
            .batch_execute(
                "create view information_schema.hides as select deep.leaves(); create temp view covers as select deep.leaves()",
            )
            .unwrap();
        let covers = said(&mut direct, "select pg_my_temp_schema()::regnamespace || '.covers'").remove(0);
        for view in ["information_schema.hides", &covers] {
            let weir = Weir::start_at(place, OF_ONE);
            let mut one = client(weir.port, "");
            said(&mut one, &format!("select * from {view}"));
            nobody_else_has_it(&weir, seeded, view);
        }
    }

    /// While a text is on its way, or something is prepared.
    fn what_is_replaced_meanwhile(place: Place, seeded: &str) {
        const REPLACE: &str = "create or replace function deep.plain() returns int language plpgsql as \
            $$begin perform setseed(0.42), set_config('app.' || 'k', 'left', false); return 1; end$$";
        for what in [
            "select pg_sleep(0.6); select count(*) from deep.t; select deep.plain()",
            "prepare plain as select deep.plain(); select pg_sleep(1.5); execute plain; deallocate plain",
        ] {
            place
                .client("")
                .batch_execute("create or replace function deep.plain() returns int language sql as 'select 1'")
                .unwrap();
            let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 2");
            let [mut replaces, mut begun] = [(); 2].map(|()| client(weir.port, ""));
            let port = weir.port;
            let one = std::thread::spawn(move || {
                let mut one = client(port, "");
                said(&mut one, what);
                one
            });
            std::thread::sleep(std::time::Duration::from_millis(300));
            replaces.batch_execute(REPLACE).unwrap();
            let one = one.join().unwrap();
            // The two servers, in turn.
            weir.reload_with("query_wait_timeout = 1");
            let _ = begun.simple_query("begin");
            nobody_else_has_it(&weir, seeded, what);
            let _ = begun.simple_query("commit");
            nobody_else_has_it(&weir, seeded, what);
            drop(one);
        }
    }

    pub fn types_by_their_numbers_run_what_is_behind_them(server: u16) {
        let place = Place::of_its_own(server, "numbered");
        let mut direct = place.client("");
        direct.batch_execute(&SETUP.replace("deep", "numbered")).unwrap();
        let seeded = left_by_none(place);
        for name in ["d", "d[]", "c", "t", "r"] {
            let value = match name {
                "d" => "5",
                "d[]" => "{5}",
                "r" => "[1,2]",
                _ => "(5)",
            };
            let number = direct.query_one(&format!("select 'numbered.{name}'::regtype::oid"), &[]).unwrap().get(0);
            let weir = Weir::start_at(place, OF_ONE);
            let mut raw = weir.raw();
            raw.log_in();
            raw.send(|out| {
                let definition = [b"select $1\0\0\x01", &u32::to_be_bytes(number)[..]].concat();
                weir_wire::write::parse(out, b"", &definition);
                let mut bind = vec![0, 0, 0, 0, 0, 1];
                bind.extend((value.len() as u32).to_be_bytes());
                bind.extend(value.as_bytes());
                bind.extend([0, 0]);
                out.push(b'B');
                out.extend((bind.len() as u32 + 4).to_be_bytes());
                out.extend(bind);
                weir_wire::write::execute(out, b"");
                weir_wire::write::sync(out);
            });
            raw.read_until(weir_wire::BackendTag::ReadyForQuery);
            nobody_else_has_it(&weir, &seeded, name);
        }
    }
}
