//! A client that sets nothing, on a server that it shares with one that does what it likes: its literals mean the same ever after.

use std::sync::Once;

use weir_wire::{BackendTag, write};

use super::bench::{Place, Raw, Weir, cluster, shared, wait_until};
use super::parameters::{Said, Step, answered, client, said};

const ZONED: &str = "select extract(epoch from timestamptz '2020-01-01')::text";
const UTC: &str = "1577836800.000000";
/// As text, which is folded under `bytea_output` as it is planned.
const BYTES: &str = r"select ('\xdeadbeef'::bytea)::text";
const FUNCTION: &str = "create or replace function local_tokyo() returns text language sql as \
     'select set_config(''TimeZone'', ''Asia/Tokyo'', true)'";
const TOKYO: &str = "select local_tokyo()";

/// `theirs`: what the other one says, who has the same statement as `s`. Answers what the innocent's statement returns before and behind it.
fn beside(lines: &str, text: &'static str, theirs: &[Said]) -> [String; 2] {
    let weir = Weir::start(shared(), &format!("default_pool_size = 1\n{lines}"));
    let [mut innocent, mut other] = [(); 2].map(|()| {
        let mut raw: Raw = weir.raw();
        raw.log_in();
        raw
    });
    let mut another = weir.raw();
    another.log_in();
    // Once: whoever follows waits until what it is has been read, which is no more than once a second.
    static CREATED: Once = Once::new();
    CREATED.call_once(|| drop(answered(&mut other, &mut another, &Said::Query(FUNCTION))));
    for raw in [&mut innocent, &mut other] {
        answered(raw, &mut another, &Said::Query("set timezone = 'UTC'"));
    }
    answered(&mut innocent, &mut another, &Said::Batch(&[Step::Parse("mine", text)]));
    let value =
        |raw: &mut Raw, another: &mut Raw| answered(raw, another, &Said::Batch(&[Step::Execute("mine")])).join(" ");
    let before = value(&mut innocent, &mut another);
    for said in theirs {
        answered(&mut other, &mut another, said);
    }
    [before, value(&mut innocent, &mut another)]
}

#[test]
fn what_a_function_sets_locally_is_in_nobody_elses_plan() {
    use Said::{Batch, Query};
    use Step::{Execute, Parse, Run};
    const PREPARED: Said = Batch(&[Parse("s", ZONED)]);
    const REPLAN: Said = Query("discard plans");
    let theirs: [&[Said]; 6] = [
        &[PREPARED, REPLAN, Batch(&[Run(TOKYO), Execute("s")])],
        &[PREPARED, REPLAN, Batch(&[Run(TOKYO), Execute("s"), Execute("s"), Run("select 1/0")])],
        &[PREPARED, REPLAN, Query("begin"), Batch(&[Run(TOKYO), Execute("s")]), Query("rollback")],
        &[PREPARED, REPLAN, Query("begin"), Query(TOKYO), Batch(&[Execute("s")]), Query("commit")],
        &[PREPARED, REPLAN, Batch(&[Run(TOKYO), Parse("t", ZONED), Execute("t"), Execute("s")])],
        // The answer to the question comes when the copy has made room for another, which the error takes back.
        &[
            PREPARED,
            REPLAN,
            Batch(&[Run(TOKYO), Execute("s"), Run("select 1/0"), Parse("t", "select 2"), Execute("s")]),
        ],
    ];
    for theirs in theirs {
        for lines in ["", "max_prepared_statements = 1"] {
            assert_eq!(beside(lines, ZONED, theirs), [UTC, UTC], "{lines}");
        }
    }
}

/// Its place is needed for another, whose batch fails before it is closed: it is still there, planned under what the error took back.
#[test]
fn a_copy_that_was_not_closed_is_not_believed() {
    use Said::{Batch, Query};
    use Step::{Execute, Parse, Run};
    let theirs = [
        Batch(&[Parse("s", BYTES)]),
        Query("begin"),
        Query("set local bytea_output = 'escape'"),
        Batch(&[Execute("s"), Run("select 1/0"), Parse("t", "select 2")]),
        Query("rollback"),
    ];
    let bytes = r"\xdeadbeef";
    assert_eq!(beside("max_prepared_statements = 1", BYTES, &theirs), [bytes, bytes]);
}

/// PostgreSQL reads its configuration again ahead of any message, also of one of ours, with which a server becomes the next client's.
#[test]
fn what_the_configuration_changes_is_told_to_whom_it_changes() {
    let cluster = cluster(18);
    for (number, (mode, first)) in [
        ("transaction", "application_name=a"),
        ("transaction", "options='-c timezone=Asia/Tokyo'"),
        ("session", "application_name=a"),
    ]
    .into_iter()
    .enumerate()
    {
        let weir = Weir::start(cluster.port(), &format!("default_pool_size = 1\npool_mode = {mode}"));
        let mut other = client(weir.port, first);
        let mut administrator = client(cluster.port(), "");
        let mut raw: Raw = weir.raw();
        raw.log_in();
        other.simple_query("select 1").unwrap();
        drop(other);
        // What is read while nobody has the server, as it is made clean, is nobody's.
        let mut console = weir.try_client("dbname=pgbouncer").unwrap();
        wait_until("the server is clean", || {
            said(&mut console, "show servers").iter().all(|row| row.contains("|idle|"))
        });
        drop(console);
        let style = ["German", "SQL", "Postgres"][number];
        administrator.simple_query(&format!("alter system set datestyle = {style}")).unwrap();
        administrator.simple_query("select pg_reload_conf()").unwrap();
        wait_until("the configuration is read", || {
            let row = client(cluster.port(), "").query_one("show datestyle", &[]).unwrap();
            row.get::<_, String>(0).starts_with(style)
        });
        raw.send(|out| write::query(out, b"show datestyle"));
        let messages = raw.read_until(BackendTag::ReadyForQuery);
        let body = |tag| messages.iter().filter(move |(own, _)| *own == tag as u8).map(|(_, body)| body);
        let row =
            body(BackendTag::DataRow).map(|body| String::from_utf8_lossy(&body[6..]).into_owned()).next().unwrap();
        assert!(row.starts_with(style), "{row}");
        let told = [b"DateStyle\0", row.as_bytes(), b"\0"].concat();
        assert!(body(BackendTag::ParameterStatus).any(|status| *status == told), "{mode}, {first}: {row} was not told");
    }
}

/// Whoever works beside DDL, or does some, has its server for no longer than that takes: in a database with code that may leave anything,
/// with extensions that may, and with a language whose validator is in C.
#[test]
fn ddl_keeps_nobody_for_long() {
    let place = Place::of_its_own(shared(), "ddl_beside");
    place
        .client("")
        .batch_execute(
            "create extension dblink; create extension tablefunc; create table t (a int); \
             create function handles() returns language_handler language c as '$libdir/plpgsql', 'plpgsql_call_handler'; \
             create function validates(oid) returns void language c as '$libdir/plpgsql', 'plpgsql_validator'; \
             create language other handler handles validator validates; \
             create function dynamic(a text) returns void language plpgsql as $$begin execute a; end$$",
        )
        .unwrap();
    let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 3");
    let [mut one, mut two] = [(); 2].map(|()| weir.client());
    let mut console = weir.try_client("dbname=pgbouncer").unwrap();
    for ddl in ["create table u (a int)", "alter table u add b int", "create index on u (b)", "drop table u"] {
        one.batch_execute("begin; select 1").unwrap();
        two.batch_execute(ddl).unwrap();
        one.batch_execute("insert into t values (2); commit").unwrap();
        one.batch_execute("begin; create table w (a int); insert into w values (1); drop table w; commit").unwrap();
        wait_until("nobody is kept", || said(&mut console, "show pins").is_empty());
    }
}

/// What is created in a transaction nobody else sees before its end: nobody is kept for it, whatever goes on there.
#[test]
fn ddl_that_is_not_committed_keeps_nobody_else() {
    let place = Place::of_its_own(shared(), "ddl_open");
    let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 2\nquery_wait_timeout = 5");
    let [mut two, mut three] = [(); 2].map(|()| weir.client());
    let mut console = weir.try_client("dbname=pgbouncer").unwrap();
    let mut kept = || said(&mut console, "show pins").len();
    for ddl in [
        "create table t (a int)",
        "create function dynamic(a text) returns void language plpgsql as $$begin execute a; end$$",
        "create view prepared as select name from pg_prepared_statements",
        "savepoint a; create extension hstore; rollback to a",
    ] {
        wait_until("nobody is kept", || kept() == 0);
        // Who has created the function stays with its server.
        let mut one = weir.client();
        one.batch_execute(&format!("begin; select 1; {ddl}")).unwrap();
        wait_until("the first is kept alone", || {
            // That it began with a transaction may have been told once.
            one.batch_execute("select 1").unwrap();
            two.batch_execute("select 1").unwrap();
            three.batch_execute("select 1").unwrap();
            kept() <= 1
        });
        for _ in 0..20 {
            one.batch_execute("select 1").unwrap();
            two.batch_execute("select 1").unwrap();
            assert!(kept() <= 1, "{ddl}");
            three.batch_execute("select 1").unwrap();
            assert!(kept() <= 1, "{ddl}");
        }
        one.batch_execute("commit").unwrap();
    }
}

/// The first client of a pool that uses a word in a transaction is not refused for a longer one, or for a mark in a string.
#[test]
fn words_that_only_begin_like_another_are_no_sequences() {
    let place = Place::of_its_own(shared(), "words_alike");
    place.client("").batch_execute("create table s (id int, lastvalue int, note text)").unwrap();
    let weir = Weir::start_at(place, "workers = 1\ndefault_pool_size = 1");
    for text in [
        "insert into s (id, lastvalue, note) values (1, 2, 'f\u{fc}r')",
        "update s set lastvalue = 3 where note ~ '^\\d+$'",
        "insert into s (note) values ('<a href=\"?a=1&b=2&\">')",
        "insert into s (note) values ('{\"q\":\"a=1&\"}')",
    ] {
        weir.client().batch_execute(&format!("begin; {text}; commit")).unwrap();
        let mut client = weir.client();
        client.batch_execute("begin").unwrap();
        client.batch_execute(text).unwrap();
        client.batch_execute("commit").unwrap();
    }
}
