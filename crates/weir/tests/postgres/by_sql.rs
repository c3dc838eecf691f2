//! SQL that reaches what the protocol has prepared, beside sessions each with a server of its own.

use weir_wire::{BackendTag, write};

use super::bench::{Raw, Weir, shared, wait_until};
use super::listen::wait_until_handed_over;
use super::parameters::{client, said};

#[test]
fn what_the_protocol_has_prepared_is_there_for_sql() {
    on::what_the_protocol_has_prepared_is_there_for_sql(shared());
}

#[test]
fn nobody_sees_what_others_have_prepared() {
    on::nobody_sees_what_others_have_prepared(shared());
}

/// Where code is read: with the module in PostgreSQL it is not.
#[test]
fn code_that_asks_sees_its_clients_own() {
    client(shared(), "")
        .batch_execute(
            "create or replace view public.what_is_prepared as select name from pg_prepared_statements; \
             create or replace function public.how_many() returns bigint language sql as 'select count(*) from what_is_prepared'",
        )
        .unwrap();
    let weir = Weir::start(shared(), OF_ONE);
    let [mut one, mut two] = [(); 2].map(|()| Raw::on(weir.port));
    one.prepares("s", "select 'one'");
    assert_eq!(two.says("select public.how_many()"), ["0"]);
    assert_eq!(one.says("select public.how_many()"), ["1"]);
    // It has the server for itself now.
    let mut console = weir.try_client("dbname=pgbouncer").unwrap();
    let pins = said(&mut console, "show pins");
    let shown =
        pins.iter().any(|pin| pin.contains("|prepare, for the session|") && pin.ends_with("|select public.how_many()"));
    assert!(pins.len() == 1 && shown, "{pins:?}");
    drop(one);
    wait_until("it is free", || said(&mut console, "show pins").is_empty());
    assert_eq!(two.says("select public.how_many()"), ["0"]);
    client(shared(), "").batch_execute("drop function public.how_many(); drop view public.what_is_prepared").unwrap();
    // What is put together keeps its server, and sees none of others' either.
    let [mut one, mut two] = [(); 2].map(|()| Raw::on(weir.port));
    one.prepares("s", "select 'one'");
    let counts = "do $$declare n int; begin execute 'select count(*) from pg_prep' || 'ared_statements' into n; \
        if n > 0 then raise exception 'seen'; end if; end$$";
    assert_eq!(two.says(counts), Vec::<String>::new());
}

#[test]
fn a_name_is_given_once() {
    on::a_name_is_given_once(shared());
}

#[test]
fn it_is_prepared_as_it_was() {
    on::it_is_prepared_as_it_was(shared());
}

#[test]
fn all_are_as_they_were_or_none() {
    on::all_are_as_they_were_or_none(shared());
}

/// In the midst of a batch it cannot be had: that is said, and so it is behind a Sync.
#[test]
fn in_the_midst_of_a_batch_it_is_refused() {
    let weir = Weir::start(shared(), OF_ONE);
    let mut raw = Raw::on(weir.port);
    raw.prepares("s", "select 5");
    let batch = |raw: &mut Raw, executes: bool| {
        raw.send(|out| {
            write::parse(out, b"", b"select 1\0\0\0");
            if executes {
                write::bind_without_values(out, b"", b"");
                write::execute(out, b"");
            }
            write::parse(out, b"", b"execute s\0\0\0");
            write::bind_without_values(out, b"", b"");
            write::execute(out, b"");
            write::sync(out);
        });
        raw.answers()
    };
    assert_eq!(batch(&mut raw, true), ["1", "E 0A000"]);
    assert_eq!(raw.says("begin; select 1/0"), ["E 22012"]);
    assert_eq!(raw.says("execute s"), ["E 25P02"], "PostgreSQL's own");
    assert_eq!(raw.says("rollback; execute s"), ["E 0A000"]);
    assert_eq!(raw.says("rollback"), Vec::<String>::new());
    assert_eq!(batch(&mut raw, false), ["5"], "nothing is done yet");
}

/// Who listens by another server is told; who has its own names listens by its own.
#[test]
fn who_listens_has_its_own_names_or_is_told() {
    let weir = Weir::start(shared(), "workers = 1\ndefault_pool_size = 4");
    let mut raw = Raw::on(weir.port);
    raw.prepares("s", "select 5");
    assert_eq!(raw.says("listen by_sql"), Vec::<String>::new());
    wait_until_handed_over(&weir);
    assert_eq!(raw.says("execute s"), ["E 0A000"]);
    assert_eq!(raw.says("unlisten *"), Vec::<String>::new());
    assert_eq!(raw.says("execute s"), ["5"]);
    assert_eq!(raw.says("listen by_sql"), Vec::<String>::new());
    assert_eq!(raw.executes("", Some("select count(*) from pg_listening_channels()")), ["1"]);
    assert_eq!(raw.executes("t", Some("unlisten by_sql")), Vec::<String>::new());
    assert_eq!(raw.executes("", Some("select count(*) from pg_listening_channels()")), ["0"]);
}

/// Its unnamed statement too, and by what it resets.
#[test]
fn what_was_prepared_resets_to_the_startup_values() {
    let weir = Weir::start(shared(), OF_ONE);
    let mut raw = weir.raw();
    let parameters = [("user", "postgres"), ("database", "postgres"), ("options", "-c search_path=by_sql")];
    raw.send(|out| write::startup(out, weir_wire::ProtocolVersion::V3_0, &parameters));
    raw.read_until(BackendTag::ReadyForQuery);
    raw.prepares("r", "reset search_path");
    assert_eq!(raw.executes("", Some("reset all")), Vec::<String>::new());
    // It has its own names from here on.
    raw.prepares("e", "execute r");
    raw.prepares("path", "show search_path");
    for name in ["", "r"] {
        // In one write: what follows waits until the startup values are there again.
        raw.send(|out| {
            for name in [name, "path"] {
                write::bind_without_values(out, b"", name.as_bytes());
                write::execute(out, b"");
                write::sync(out);
            }
        });
        assert_eq!([raw.answers(), raw.answers()].concat(), ["by_sql"], "{name}");
    }
    // What is prepared in the same write is not known yet.
    raw.send(|out| {
        write::parse(out, b"default", b"set search_path to default\0\0\0");
        write::sync(out);
        write::query(out, b"execute \"default\"");
        write::query(out, b"show search_path");
    });
    let answers: Vec<_> = (0..3).flat_map(|_| raw.answers()).collect();
    assert_eq!(answers, ["by_sql"]);
    // By SQL's EXECUTE, and by what executes that.
    raw.prepares("runs", "execute r");
    for runs in ["execute r", "select 1; execute r", "execute runs"] {
        raw.send(|out| {
            write::query(out, runs.as_bytes());
            write::query(out, b"show search_path");
        });
        raw.answers();
        assert_eq!(raw.answers(), ["by_sql"], "{runs}");
    }
    raw.send(|out| {
        for name in ["runs", "path"] {
            write::bind_without_values(out, b"", name.as_bytes());
            write::execute(out, b"");
        }
        write::sync(out);
    });
    assert_eq!(raw.answers(), ["by_sql"]);
    // PostgreSQL says what comes of such as execute themselves.
    raw.prepares("one", "execute two");
    raw.prepares("two", "execute one");
    assert_eq!(raw.executes("one", None), ["E 54001"]);
    assert_eq!(raw.says("execute two"), ["E 54001"]);
}

/// A query of Weir's that would end it, and with it the client's transaction, is not sent.
#[test]
fn a_batch_that_goes_on_is_not_ended() {
    let mut direct = client(shared(), "");
    direct.batch_execute("drop table if exists goes_on; create table goes_on (a int)").unwrap();
    for text in ["select lastval()", "select * from pg_prepared_statements", "execute s"] {
        let weir = Weir::start(shared(), OF_ONE);
        let mut raw = Raw::on(weir.port);
        raw.prepares("s", "select 5");
        raw.send(|out| {
            write::parse(out, b"", b"insert into goes_on values (1)\0\0\0");
            write::bind_without_values(out, b"", b"");
            write::execute(out, b"");
            write::flush(out);
        });
        raw.read_until(BackendTag::CommandComplete);
        raw.send(|out| {
            write::close_statement(out, b"");
            write::parse(out, b"", format!("{text}\0\0\0").as_bytes());
            write::sync(out);
        });
        assert_eq!(raw.answers(), ["E 0A000"], "{text}");
        assert_eq!(said(&mut direct, "select count(*) from goes_on"), ["0"], "{text}");
    }
    direct.batch_execute("drop table goes_on").unwrap();
}

/// What is not read may be anything: a text of more than 1 MiB, a call by a function's number.
#[test]
fn what_is_not_read_reaches_its_clients_own() {
    let mut direct = client(shared(), "");
    direct
        .batch_execute(
            "drop sequence if exists unread; create sequence unread; \
             create or replace function public.how_many_named() returns bigint language sql as 'select count(*) from pg_prepared_statements'",
        )
        .unwrap();
    let function: u32 = said(&mut direct, "select 'public.how_many_named'::regproc::oid::int")[0].parse().unwrap();
    let long = |text: &str| format!("/*{}*/{text}", "x".repeat(1 << 20));
    let weir = Weir::start(shared(), OF_ONE);
    let mut one = Raw::on(weir.port);
    one.prepares("s", "select 'one'");
    for (text, expected) in [("select name from pg_prepared_statements", None), ("select lastval()", Some("E 55000"))] {
        for extended in [false, true] {
            assert_eq!(one.executes("s", None), ["one"]);
            one.says("select nextval('unread')");
            let mut two = Raw::on(weir.port);
            let text = long(text);
            let said = if extended { two.executes("", Some(&text)) } else { two.says(&text) };
            assert_eq!(said, Vec::from_iter(expected), "{extended}");
        }
    }
    let mut two = Raw::on(weir.port);
    two.prepares("s", "select 'two'");
    assert_eq!(two.says(&long("execute s")), ["two"]);
    drop(two);
    // What it asks may be answered later.
    let mut two = Raw::on(weir.port);
    two.prepares("", &long("select name from pg_prepared_statements"));
    two.prepares("later", "select 1");
    assert_eq!(two.executes("", None), ["later"]);
    drop(two);
    for named in [false, true] {
        assert_eq!(one.executes("s", None), ["one"]);
        let mut two = Raw::on(weir.port);
        if named {
            two.prepares("its_own", "select 'two'");
        }
        two.send(|out| {
            write::frontend_header(out, weir_wire::FrontendTag::FunctionCall, 10);
            out.extend_from_slice(&function.to_be_bytes());
            // No formats, no arguments, the result as text.
            out.extend_from_slice(&[0; 6]);
        });
        let told = two.read_until(BackendTag::ReadyForQuery);
        let count = told.iter().find(|(tag, _)| *tag == BackendTag::FunctionCallResponse as u8).unwrap();
        assert_eq!(count.1[4..], *if named { b"1" } else { b"0" });
    }
    direct.batch_execute("drop sequence unread; drop function public.how_many_named()").unwrap();
}

impl Raw {
    pub fn on(port: u16) -> Self {
        let mut raw = Self(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
        raw.log_in();
        raw
    }

    #[track_caller]
    pub fn prepares(&mut self, name: &str, text: &str) {
        self.send(|out| {
            write::parse(out, name.as_bytes(), format!("{text}\0\0\0").as_bytes());
            write::sync(out);
        });
        assert_eq!(self.answers(), Vec::<String>::new(), "{text}");
    }

    #[track_caller]
    pub fn says(&mut self, text: &str) -> Vec<String> {
        self.send(|out| write::query(out, text.as_bytes()));
        self.answers()
    }

    /// Prepares it, and executes what is prepared; unnamed: in one batch.
    #[track_caller]
    pub fn executes(&mut self, name: &str, text: Option<&str>) -> Vec<String> {
        self.send(|out| {
            if let Some(text) = text {
                write::parse(out, name.as_bytes(), format!("{text}\0\0\0").as_bytes());
            }
            write::bind_without_values(out, b"", name.as_bytes());
            write::execute(out, b"");
            write::sync(out);
        });
        self.answers()
    }

    /// Rows and errors up to ReadyForQuery.
    #[track_caller]
    pub fn answers(&mut self) -> Vec<String> {
        let messages = self.read_until(BackendTag::ReadyForQuery);
        messages.iter().filter_map(|(tag, body)| answer(*tag, body)).collect()
    }
}

fn answer(tag: u8, body: &[u8]) -> Option<String> {
    if tag == BackendTag::DataRow as u8 {
        let values = weir_wire::backend::row_values(body).unwrap();
        let values = values.iter().map(|value| value.map_or("null".into(), String::from_utf8_lossy));
        return Some(values.collect::<Vec<_>>().join("|"));
    }
    let fields = || weir_wire::backend::ErrorFields::parse(body).unwrap();
    (tag == BackendTag::ErrorResponse as u8).then(|| format!("E {}", String::from_utf8_lossy(fields().code)))
}

/// Its servers are its clients' own, and know what is prepared by the names that those give.
const ALONE: &str = "pool_mode = session";
pub const OF_ONE: &str = "workers = 1\ndefault_pool_size = 1";
const LIST: &str =
    "select name, statement, from_sql, parameter_types::text from pg_prepared_statements order by prepare_time";

pub mod on {
    use super::*;

    /// What is said in turn, in a session of its own and through a pool of one, beside another client that prepares too.
    type Step = fn(&mut Raw) -> Vec<String>;

    const PROGRAMS: [&[Step]; 12] = [
        // What asks is there before what is prepared, of one who has prepared nothing.
        &[
            |raw| raw.says("deallocate all"),
            |raw| raw.says("begin; declare c cursor for select name from pg_prepared_statements"),
            |raw| raw.executes("later", Some("select 1")),
            |raw| raw.says("fetch all from c; commit"),
        ],
        &[
            |raw| raw.says("deallocate all; create temp view prepared as select name from pg_prepared_statements"),
            |raw| raw.executes("later", Some("select 1")),
            |raw| raw.says("table prepared"),
            |raw| raw.says("drop view prepared"),
        ],
        &[
            |raw| raw.executes("later", Some("select 1")),
            |raw| raw.executes("first", Some("select 2")),
            |raw| raw.says(LIST),
        ],
        &[|raw| raw.says("execute s(7)"), |raw| raw.executes("s", None), |raw| raw.says(LIST)],
        &[|raw| raw.says(LIST), |raw| raw.executes("u", Some("select 8")), |raw| raw.says(LIST)],
        &[|raw| raw.executes("l", Some(LIST)), |raw| raw.executes("", Some(LIST)), |raw| raw.says("select 1")],
        &[
            |raw| raw.says("prepare s as select 2"),
            |raw| raw.says("prepare p as select 2"),
            |raw| raw.executes("p", None),
            |raw| raw.executes("p", Some("select 3")),
            |raw| raw.says(LIST),
        ],
        &[
            |raw| raw.says("select 1; deallocate \"S\"; select 2"),
            |raw| raw.executes("S", None),
            |raw| raw.executes("S", Some("select 'new'")),
            |raw| raw.says("deallocate prepare s; execute s(1)"),
            |raw| raw.says(LIST),
        ],
        &[
            |raw| raw.says("begin"),
            |raw| raw.says("select count(*) from pg_prepared_statements"),
            |raw| raw.says("execute s(1); explain (costs off) execute s(2)"),
            |raw| raw.says("commit"),
            |raw| raw.says("execute s(1)"),
        ],
        &[
            |raw| raw.executes("", Some("select 'unnamed'")),
            |raw| raw.executes("e", Some("execute s(3)")),
            |raw| raw.executes("e", None),
            |raw| raw.says("do $$declare n int; begin execute 'execute s(4)' into n; execute 'deallocate s'; end$$"),
            |raw| raw.executes("s", None),
        ],
        &[
            |raw| raw.says("deallocate all"),
            |raw| raw.says(LIST),
            |raw| raw.executes("s", Some("select 9")),
            |raw| raw.says("execute s"),
            |raw| raw.says("discard all"),
            |raw| raw.says("execute s"),
            |raw| raw.says(LIST),
        ],
        &[
            |raw| raw.executes("a\"b", Some("select 'quoted'")),
            |raw| raw.says("execute \"a\"\"b\""),
            |raw| raw.says("begin; select 1/0"),
            |raw| raw.says("execute s(1)"),
            |raw| raw.says("rollback"),
            |raw| raw.says("execute s(1)"),
            |raw| raw.says("create table if not exists public.made_by_sql as execute s(1)"),
            |raw| raw.says("drop table public.made_by_sql"),
        ],
    ];

    pub fn what_the_protocol_has_prepared_is_there_for_sql(server: u16) {
        for (number, program) in PROGRAMS.iter().enumerate() {
            let seen = [ALONE, OF_ONE].map(|lines| {
                let weir = Weir::start(server, lines);
                let port = weir.port;
                let mut other = Raw::on(port);
                other.prepares("s", "select 'of another'");
                other.prepares("v", "select 1");
                assert_eq!(other.executes("s", None), ["of another"]);
                let mut raw = Raw::on(port);
                raw.send(|out| {
                    // One parameter, of the type int4.
                    write::parse(out, b"s", b"select $1 + 1\0\0\x01\0\0\0\x17");
                    write::parse(out, b"S", b"select 'S'\0\0\0");
                    write::sync(out);
                });
                raw.answers();
                let said: Vec<_> = program.iter().map(|step| step(&mut raw)).collect();
                drop(raw);
                assert_eq!(other.executes("s", None), ["of another"], "program {number}");
                said
            });
            assert_eq!(seen[1], seen[0], "program {number}");
        }
    }

    /// Who only looks keeps nothing.
    pub fn nobody_sees_what_others_have_prepared(server: u16) {
        let weir = Weir::start(server, OF_ONE);
        let [mut one, mut two] = [(); 2].map(|()| Raw::on(weir.port));
        one.prepares("s", "select 'one'");
        for text in [LIST, "select count(*) from pg_prepared_statement()"] {
            let direct = said(&mut client(server, ""), text);
            assert_eq!(one.executes("s", None), ["one"]);
            assert_eq!(two.says(text), direct);
            assert_eq!(one.executes("s", None), ["one"]);
            assert_eq!(two.executes("", Some(text)), direct);
        }
        let mut console = weir.try_client("dbname=pgbouncer").unwrap();
        assert_eq!(said(&mut console, "show pins").len(), 0);
        // Such as keep their server.
        for text in [
            "select count(*) from U&\"pg_prepared_st\\0061tements\"",
            "select query_to_xml('select name from pg_prepared_statements', true, true, '')::text",
        ] {
            assert_eq!(one.executes("s", None), ["one"]);
            let mut looks = Raw::on(weir.port);
            assert_eq!(looks.says(text), said(&mut client(server, ""), text), "{text}");
        }
        assert_eq!(one.executes("s", None), ["one"]);
    }

    /// Also where SQL has prepared it a moment ago.
    pub fn a_name_is_given_once(server: u16) {
        let seen = [ALONE, OF_ONE].map(|lines| {
            let weir = Weir::start(server, lines);
            let mut said = Vec::new();
            for begins in ["begin", "select 'none'"] {
                let mut raw = Raw::on(weir.port);
                raw.send(|out| {
                    write::query(out, begins.as_bytes());
                    write::query(out, b"prepare p as select 1000");
                    write::parse(out, b"p", b"select 2\0\0\0");
                    write::sync(out);
                });
                (0..3).for_each(|_| said.extend(raw.answers()));
                said.extend(raw.says("rollback"));
                said.extend(raw.says("execute p"));
                said.extend(raw.executes("p", None));
                raw.send(|out| {
                    write::parse(out, b"", b"prepare q as select 1000\0\0\0");
                    write::bind_without_values(out, b"", b"");
                    write::execute(out, b"");
                    write::parse(out, b"q", b"select 2\0\0\0");
                    write::sync(out);
                });
                said.extend(raw.answers());
                said.extend(raw.says("execute q"));
            }
            said
        });
        assert_eq!(seen[1], seen[0]);
    }

    /// Under the parameters of its time, in a transaction that goes on.
    pub fn it_is_prepared_as_it_was(server: u16) {
        let seen = [ALONE, OF_ONE].map(|lines| {
            let weir = Weir::start(server, lines);
            let mut raw = Raw::on(weir.port);
            let mut said = Vec::new();
            said.extend(raw.says("set timezone = 'Asia/Tokyo'"));
            raw.prepares("s", "select timestamptz '2020-01-01 00:00'");
            said.extend(raw.says("set timezone = 'UTC'"));
            raw.prepares("u", "select 'u'");
            said.extend(raw.says("begin; select 'before'"));
            said.extend(raw.says("execute s"));
            said.extend(raw.says("show timezone; execute u"));
            said.extend(raw.says("commit; execute s"));
            said.extend(raw.executes("s", None));
            said
        });
        assert_eq!(seen[1], seen[0]);
    }

    /// One that is another by now, or cannot be prepared: nothing is lost, and its client is told.
    pub fn all_are_as_they_were_or_none(server: u16) {
        let mut direct = client(server, "");
        direct.batch_execute("drop table if exists turned; create table turned (a int)").unwrap();
        let weir = Weir::start(server, OF_ONE);
        let mut raw = Raw::on(weir.port);
        raw.prepares("other", "select 'other'");
        raw.prepares("turned", "insert into turned values ($1)");
        raw.send(|out| {
            write::describe_statement(out, b"turned");
            write::sync(out);
        });
        raw.answers();
        direct.batch_execute("alter table turned alter a type float4").unwrap();
        assert_eq!(raw.says("execute other"), ["E 0A000"], "it takes another type now");
        assert_eq!(raw.executes("other", None), ["other"]);
        direct.batch_execute("drop table turned").unwrap();
        assert_eq!(raw.says("begin; select 'begun'"), ["begun"]);
        assert_eq!(raw.says("select name from pg_prepared_statements"), ["E 0A000"], "it is gone");
        assert_eq!(raw.says("rollback"), Vec::<String>::new());
        direct.batch_execute("create table turned (a int)").unwrap();
        let mut holds = client(server, "");
        holds.batch_execute("begin; lock table turned").unwrap();
        assert_eq!(raw.says("execute other"), ["E 0A000"], "nobody waits for another's lock");
        holds.batch_execute("rollback").unwrap();
        assert_eq!(raw.says("execute other"), ["other"]);
        assert_eq!(raw.says("select name from pg_prepared_statements order by 1"), ["other", "turned"]);
        direct.batch_execute("drop table turned").unwrap();
    }
}
