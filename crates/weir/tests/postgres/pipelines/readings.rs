//! Parameters of the startup packet: what a text means to each of two who have others, and what they are told of them.

use super::Case;
use super::Say::{Close, Describe, LogIn, Parse, Query, Run, RunWith, Sync};

/// One text, prepared by two clients who log in with these parameters, and executed twice by each.
macro_rules! read_by_two {
    ($what:literal, $one:expr, $other:expr, $text:expr) => {
        (
            $what,
            &[
                (0, &[LogIn(&[$one])]),
                (1, &[LogIn(&[$other])]),
                (0, &[Parse("s", $text), Run("s"), Sync]),
                (1, &[Parse("s", $text), Run("s"), Sync]),
                (0, &[Run("s"), Sync]),
                (1, &[Run("s"), Sync]),
            ],
        )
    };
}

const FROM_T: &str = "select * from t";
const INTO_U: &str = "insert into u values ($1) returning x";
const EPOCH: &str = "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint";
const NULL_IN_ARRAY: &str = "select ('{null}'::text[])[1] is null";
const BYTES: &str = r"select '\x41'::bytea::text";
const BYTES_TOO: &str = r"select '\x4142'::bytea::text";
const ESCAPES: (&str, &str) = ("options", "-c standard_conforming_strings=off -c escape_string_warning=off");
const HEX_OF_OWN: &str = "select encode(convert_to(current_setting('my.own'), 'UTF8'), 'hex')";

pub const CASES: &[Case] = &[
    read_by_two!(
        "TimeZone",
        ("TimeZone", "UTC"),
        ("TimeZone", "America/New_York"),
        "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint"
    ),
    read_by_two!(
        "DateStyle",
        ("options", "-c DateStyle=ISO,MDY"),
        ("options", "-c DateStyle=ISO,DMY"),
        "select '01/02/2020'::date"
    ),
    read_by_two!(
        "IntervalStyle",
        ("IntervalStyle", "postgres"),
        ("IntervalStyle", "sql_standard"),
        "select extract(epoch from interval '-1 2:00:00')"
    ),
    read_by_two!(
        "standard_conforming_strings",
        ("options", "-c standard_conforming_strings=on -c escape_string_warning=off"),
        ("options", "-c standard_conforming_strings=off -c escape_string_warning=off"),
        r"select length('a\\b')"
    ),
    read_by_two!(
        "client_encoding",
        ("client_encoding", "UTF8"),
        ("client_encoding", "LATIN1"),
        "select length('é'), 'é'"
    ),
    read_by_two!("array_nulls", ("array_nulls", "on"), ("array_nulls", "off"), "select '{NULL}'::text[]"),
    read_by_two!(
        "transform_null_equals",
        ("transform_null_equals", "on"),
        ("transform_null_equals", "off"),
        "select null = null"
    ),
    (
        "tenants by search_path, whose tables differ",
        &[
            (
                0,
                &[Query(
                    "create schema sa; create table sa.u (x int); create table sa.t (x int); insert into sa.t values (1); \
                     create schema sb; create table sb.u (x text); create table sb.t (x text, y int); \
                     insert into sb.t values ('b', 2)",
                )],
            ),
            (0, &[LogIn(&[("options", "-c search_path=sa")])]),
            (1, &[LogIn(&[("options", "-c search_path=sb")])]),
            (0, &[Parse("i", INTO_U), RunWith("i", &["1"]), Sync]),
            (1, &[Parse("i", INTO_U), Describe("i"), RunWith("i", &["007"]), Sync]),
            (1, &[RunWith("i", &["abc"]), Sync]),
            (0, &[RunWith("i", &["2"]), Sync]),
            (0, &[Parse("q", FROM_T), Describe("q"), Run("q"), Sync]),
            (1, &[Parse("q", FROM_T), Describe("q"), Run("q"), Sync]),
            (0, &[Run("q"), Sync]),
            (1, &[Run("q"), Sync]),
            (0, &[Close("q"), Parse("q", FROM_T), Describe("q"), Run("q"), Sync]),
            (1, &[Close("q"), Parse("q", FROM_T), Describe("q"), Run("q"), Sync]),
            (0, &[Run("q"), Sync]),
            (1, &[Run("q"), Sync]),
        ],
    ),
    (
        "SET CONSTRAINTS, which runs a trigger that sets the time zone",
        &[
            (
                0,
                &[Query(
                    "create or replace function to_tokyo() returns trigger language plpgsql as \
                     'begin perform set_config(''TimeZone'', ''Asia/Tokyo'', true); return null; end'; \
                     create constraint trigger to_tokyo after insert on done deferrable initially deferred \
                     for each row execute function to_tokyo()",
                )],
            ),
            (1, &[Parse("s", EPOCH), Run("s"), Sync]),
            (0, &[Query("begin; insert into done values ('A')")]),
            (0, &[Parse("", "set constraints all immediate"), Run(""), Parse("s", EPOCH), Run("s"), Sync]),
            (0, &[Query("commit"), Run("s"), Sync]),
            (1, &[Run("s"), Sync]),
        ],
    ),
    (
        "two SETs that are one where a backslash is no escape",
        &[
            (0, &[LogIn(&[ESCAPES])]),
            (1, &[LogIn(&[ESCAPES])]),
            (1, &[Parse("s", NULL_IN_ARRAY), Run("s"), Sync]),
            (0, &[Query("begin"), Query(r"set application_name = 'a\''; set local array_nulls = 'off'")]),
            (0, &[Parse("s", NULL_IN_ARRAY), Run("s"), Sync, Query("commit")]),
            (1, &[Run("s"), Sync]),
        ],
    ),
    (
        "set_config in a transaction, and a statement that is parsed behind it",
        &[
            (1, &[Parse("s", NULL_IN_ARRAY), Run("s"), Sync]),
            (0, &[Query("begin; select set_config('array_nulls', 'off', true)")]),
            (0, &[Parse("s", NULL_IN_ARRAY), Run("s"), Sync, Query("commit")]),
            (1, &[Run("s"), Sync]),
        ],
    ),
    (
        "set_config in a batch, and a statement that is planned behind it",
        &[
            (1, &[Parse("s", BYTES), Sync]),
            (0, &[Parse("s", BYTES), Sync]),
            (0, &[Parse("", r#"select U&"set\005fconfig"('bytea_output', 'escape', true)"#), Run(""), Run("s"), Sync]),
            (1, &[Run("s"), Sync, Run("s"), Sync]),
        ],
    ),
    (
        "DO and CALL, which may run what sets a parameter",
        &[
            (
                0,
                &[Query(
                    "create or replace procedure escaped() language plpgsql as \
                     'begin perform set_config(''bytea_output'', ''escape'', true); end'",
                )],
            ),
            (1, &[Parse("s", BYTES), Parse("t", BYTES_TOO), Sync]),
            (0, &[Parse("s", BYTES), Parse("t", BYTES_TOO), Sync]),
            (0, &[Query("begin; do 'begin call escaped(); end'"), Run("s"), Sync, Query("rollback")]),
            (0, &[Query("begin; call escaped()"), Run("t"), Sync, Query("rollback")]),
            (1, &[Run("s"), Run("t"), Sync]),
        ],
    ),
    (
        "a value that is not ASCII, beside another encoding, in which a backslash is a part of it",
        &[
            (0, &[LogIn(&[("client_encoding", "SJIS"), ("my.own", "表")]), Query(HEX_OF_OWN)]),
            (1, &[LogIn(&[("my.own", "表")]), Query(HEX_OF_OWN)]),
            (0, &[Query(HEX_OF_OWN)]),
            (1, &[Query(HEX_OF_OWN)]),
        ],
    ),
    (
        "spellings of values",
        &[
            (0, &[LogIn(&[])]),
            (0, &[LogIn(&[("client_encoding", "utf8")]), Query("show client_encoding")]),
            (0, &[LogIn(&[("client_encoding", "utf-8")]), Query("show client_encoding")]),
            (0, &[LogIn(&[("client_encoding", "unicode")]), Query("show client_encoding")]),
            (1, &[LogIn(&[("client_encoding", "latin-1")]), Query("show client_encoding")]),
            (0, &[LogIn(&[("client_encoding", "unicode")]), Query("show client_encoding")]),
            (0, &[LogIn(&[("standard_conforming_strings", "1"), ("DateStyle", "iso"), ("TimeZone", "utc")])]),
        ],
    ),
    (
        "what may stand behind nothing of ours, used under another time zone than it was parsed under",
        &[
            (0, &[Parse("create", "create index concurrently of_done on done (who)"), Sync]),
            (0, &[Parse("drop", "drop index concurrently of_done"), Sync]),
            (0, &[Parse("do", "do $$begin insert into done values ('one'); commit; end$$"), Sync]),
            (0, &[Parse("lock", "lock table done"), Parse("alter", "alter system reset work_mem"), Sync]),
            (0, &[Query("set timezone = 'Asia/Tokyo'")]),
            (0, &[Run("create"), Sync, Run("drop"), Sync]),
            (0, &[Run("do"), Sync, Run("alter"), Sync, Query("table done")]),
            (0, &[Query("begin"), Run("lock"), Sync, Query("commit")]),
        ],
    ),
    (
        "a statement of a failed batch, of which nobody knows what it was parsed under, in its transaction",
        &[
            (0, &[Query("begin"), Query("set datestyle = 'ISO, DMY'")]),
            (0, &[Parse("one", "select 1"), Run("one"), Parse("s", "select 1/0"), Run("s"), Sync]),
            (0, &[Describe("s"), Run("s"), Sync]),
            (0, &[Run("one"), Sync, Run("s"), Sync]),
            (0, &[Query("rollback")]),
            (0, &[Run("one"), Sync]),
        ],
    ),
];
