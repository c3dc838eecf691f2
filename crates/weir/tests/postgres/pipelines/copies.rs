//! Copies that fail, with messages sent ahead of their end.

use super::Case;
use super::Say::{CopyData, CopyDone, CopyFail, Later, Parse, Query, Run, Sync};

pub const CASES: &[Case] = &[
    (
        "a copy that fails with a Sync ahead, a good one behind it, and somebody who waits",
        &[
            (0, &[Query("create table typed (x int)")]),
            (
                0,
                &[
                    Parse("", "copy typed from stdin"),
                    Run(""),
                    CopyData("x\n"),
                    Sync,
                    CopyFail,
                    Sync,
                    Query("copy typed from stdin"),
                    CopyData("1\n"),
                    CopyDone,
                    Query("select pg_sleep(0.2)::text, 'SECRET'"),
                    Later,
                ],
            ),
            (1, &[Query("insert into done values ('B') returning who")]),
            (0, &[]),
            (1, &[Query("select who from done")]),
            (0, &[Query("select x from typed")]),
        ],
    ),
    (
        "a simple copy that fails with a Sync ahead, and queries behind it",
        &[
            (0, &[Query("create table typed (x int)")]),
            (
                0,
                &[
                    Query("copy typed from stdin"),
                    CopyData("x\n"),
                    Sync,
                    CopyDone,
                    Query("select 'one'"),
                    Query("select 'two'"),
                    Later,
                ],
            ),
            (1, &[Query("select 'B'")]),
            (0, &[]),
        ],
    ),
];
