//! Types that DDL changes under a text that is known.

use super::Case;
use super::Say::{Close, Describe, LogIn, Parse, Query, Run, RunWith, Sync};

const INTO_X: &str = "insert into typed (x) values ($1) returning x";
const Y_OF_X: &str = "select y from typed where x = $1";
const INTO_K: &str = "insert into typed (k) values ($1) returning k";
const OF_KIND: &str = "select $1::kind::text";

pub const CASES: &[Case] = &[
    (
        "types of columns",
        &[
            (0, &[Query("create table typed (x int); insert into typed values (1)")]),
            (1, &[Parse("s", "select x from typed"), Run("s"), Sync]),
            (0, &[Query("drop table typed; create table typed (x text); insert into typed values ('one')")]),
            (0, &[Parse("s", "select x from typed"), Describe("s"), Run("s"), Sync]),
            (1, &[Close("s"), Parse("s", "select x from typed"), Describe("s"), Run("s"), Sync]),
        ],
    ),
    (
        "types of parameters, each time on a new connection",
        &[
            (0, &[Query("create table typed (x int, y int); insert into typed values (1, 1)")]),
            (1, &[LogIn(&[]), Parse("s", INTO_X), Describe("s"), RunWith("s", &["7"]), Sync]),
            (1, &[LogIn(&[]), Parse("s", Y_OF_X), Describe("s"), RunWith("s", &["1"]), Sync]),
            (0, &[Query("alter table typed alter x type text")]),
            (1, &[LogIn(&[]), Parse("s", INTO_X), Describe("s"), RunWith("s", &["007"]), Sync]),
            (1, &[LogIn(&[]), Parse("s", INTO_X), RunWith("s", &["abc"]), Sync]),
            (1, &[LogIn(&[]), Parse("s", Y_OF_X), Describe("s"), RunWith("s", &["1"]), Sync]),
            (0, &[Query("delete from typed; alter table typed alter x type int using x::int")]),
            (1, &[LogIn(&[]), Parse("s", Y_OF_X), Describe("s"), RunWith("s", &["1"]), Sync]),
            (0, &[Query("alter table typed alter x type bigint")]),
            (1, &[LogIn(&[]), Parse("s", Y_OF_X), Describe("s"), RunWith("s", &["5000000000"]), Sync]),
            (1, &[LogIn(&[]), Parse("s", INTO_X), RunWith("s", &["5000000000"]), Sync]),
        ],
    ),
    (
        "an enum that is dropped and made again",
        &[
            (0, &[Query("create type kind as enum ('a'); create table typed (x int, k kind)")]),
            (1, &[LogIn(&[]), Parse("s", INTO_K), Describe("s"), RunWith("s", &["a"]), Sync]),
            (
                0,
                &[Query(
                    "alter table typed drop k; drop type kind; create type kind as enum ('b'); alter table typed add k kind",
                )],
            ),
            (1, &[LogIn(&[]), Parse("s", INTO_K), Describe("s"), RunWith("s", &["b"]), Sync]),
            (1, &[RunWith("s", &["a"]), Sync]),
        ],
    ),
    (
        "a statement whose parameter's type is gone",
        &[
            (0, &[Query("create type kind as enum ('a')")]),
            (1, &[Parse("s", OF_KIND), RunWith("s", &["a"]), Sync]),
            (0, &[Query("drop type kind; create type kind as enum ('b')")]),
            (0, &[Parse("s", OF_KIND), RunWith("s", &["b"]), Sync]),
            (0, &[Query("drop type kind; create type kind as enum ('c')")]),
            (0, &[RunWith("s", &["c"]), Sync]),
            (0, &[Close("s"), Parse("s", OF_KIND), Describe("s"), RunWith("s", &["c"]), Sync]),
            (1, &[Close("s"), Parse("s", OF_KIND), Describe("s"), RunWith("s", &["c"]), Sync]),
        ],
    ),
    (
        "what was described by one of two names for a text",
        &[
            (0, &[Query("create table typed (x int, y int); insert into typed values (1, 2)")]),
            (1, &[Parse("s", "table typed"), Describe("s"), Run("s"), Parse("t", "table typed"), Run("t"), Sync]),
            (1, &[Close("t"), Sync]),
            (1, &[Parse("", "no statement"), Close("s"), Sync]),
            (0, &[Query("alter table typed drop x; alter table typed add z text default 'three'")]),
            (1, &[Parse("t", "table typed"), Run("t"), Sync]),
            (1, &[Run("s"), Sync]),
            (1, &[Run("s"), Sync, Run("s"), Sync]),
            (1, &[Run("t"), Sync, Run("s"), Sync]),
        ],
    ),
    (
        "an error about one of two names for a text",
        &[
            (0, &[Query("create table typed (x int, y int); insert into typed values (1, 2)")]),
            (1, &[Parse("s", "table typed"), Describe("s"), Parse("t", "table typed"), Sync, Run("s"), Run("t"), Sync]),
            (0, &[Query("alter table typed drop x; alter table typed add z text default 'three'")]),
            (1, &[Run("t"), Sync]),
            (1, &[Run("s"), Sync, Run("s"), Sync]),
            (1, &[Close("s"), Parse("s", "table typed"), Describe("s"), Run("s"), Sync]),
        ],
    ),
];
