//! Statements and names: who holds which, behind what fails, what SQL changes, and what the session has set.

use super::Case;
use super::Say::{Bind, Close, Describe, Parse, Query, Run, RunWith, Sync, Usurp};

pub const CASES: &[Case] = &[
    (
        "the unnamed statement of another, behind a batch that failed",
        &[
            (0, &[Parse("", "insert into done values ('A') returning who"), Run(""), Sync]),
            (1, &[Run("nope"), Bind(""), Sync, Run(""), Sync]),
            (0, &[Parse("", "select 'SECRET'"), Run(""), Sync]),
            (1, &[Run("nope"), Close(""), Sync, Run(""), Sync]),
            (1, &[Parse("", "select 'own'"), Sync]),
            (0, &[Parse("", "select 'SECRET'"), Run(""), Sync]),
            (1, &[Run("nope"), Describe(""), Sync, Run(""), Sync]),
            (1, &[Run("nope"), Parse("", "select 'skipped'"), Sync, Run(""), Sync]),
        ],
    ),
    (
        "what must fail, where SQL has made a name",
        &[
            (0, &[Query("prepare \"weir absent\" as select 1"), Query("deallocate \"weir absent\"")]),
            (1, &[Parse("s", "select 'mine'"), Sync]),
            (1, &[Parse("s", "select 'taken'"), Run("s"), Sync, Run("s"), Sync]),
            (1, &[Parse("s", "insert into done values ('taken')"), Run("s"), Sync]),
        ],
    ),
    (
        "a name given anew behind a batch that failed",
        &[
            (0, &[Parse("s7", "select 'old'"), Sync]),
            (
                0,
                &[
                    Run("nope"),
                    Close("s7"),
                    Parse("s7", "select 'mid'"),
                    Sync,
                    Close("s7"),
                    Parse("s7", "select 'new'"),
                    Sync,
                ],
            ),
            (0, &[Run("s7"), Sync]),
            (0, &[Run("nope"), Close("s7"), Sync, Parse("s7", "select 'newer'"), Sync]),
            (0, &[Run("s7"), Sync]),
            (0, &[Close("s7"), Sync, Close("s7"), Parse("s7", "select 'newest'"), Run("s7"), Sync]),
            (0, &[Run("s7"), Sync]),
        ],
    ),
    (
        "a name of a batch that failed, in the next",
        &[
            (
                0,
                &[
                    Run("nope"),
                    Parse("s6", "select 'skipped'"),
                    Sync,
                    Parse("s6", "select 'there'"),
                    Sync,
                    Run("s6"),
                    Sync,
                ],
            ),
            (1, &[Parse("t", "insert into done values ('T')"), Sync]),
            (0, &[Run("nope"), Parse("t", "insert into done values ('T')"), Sync, Run("t"), Sync]),
            (1, &[Run("t"), Sync, Query("select count(*) from done")]),
            (0, &[Run("nope"), Run("s6"), Sync, Run("s6"), Sync]),
        ],
    ),
    (
        "names that SQL takes away",
        &[
            (0, &[Parse("a", "select 'a'"), Sync, Query("deallocate all"), Run("a"), Sync]),
            (0, &[Parse("a", "select 'again'"), Run("a"), Sync]),
            (0, &[Query("begin; savepoint x; select 1/0"), Run("a"), Sync, Query("rollback"), Run("a"), Sync]),
            (0, &[Query("discard all"), Run("a"), Sync, Parse("a", "select 'third'"), Run("a"), Sync]),
        ],
    ),
    (
        "DEALLOCATE ALL by Execute, and what stands behind it in its batch",
        &[
            (0, &[Parse("a", "select 'a'"), Parse("d", "deallocate all"), Sync]),
            (0, &[Run("d"), Run("a"), Sync]),
            (0, &[Run("d"), Parse("a", "select 'new'"), Run("a"), Sync]),
            (0, &[Parse("d", "deallocate all"), Run("d"), Parse("a", "select 'newer'"), Run("a"), Sync]),
            (0, &[Run("a"), Sync]),
            (
                0,
                &[
                    Parse("d", "deallocate all"),
                    Run("d"),
                    Run("a"),
                    Sync,
                    Parse("a", "select 'newest'"),
                    Run("a"),
                    Sync,
                ],
            ),
        ],
    ),
    (
        "a name on the server to which SQL gives another text",
        &[
            (0, &[Parse("s", "select 'mine'"), Run("s"), Sync]),
            (1, &[Usurp]),
            (0, &[Run("s"), Sync]),
            (0, &[Parse("t", "select 'mine, too'"), Sync]),
            (1, &[Usurp]),
            (0, &[Run("t"), Run("s"), Sync]),
        ],
    ),
    (
        "a time zone of one's own",
        &[
            (
                0,
                &[
                    Query("set timezone = 'Asia/Tokyo'"),
                    Parse("z", "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint"),
                    Run("z"),
                    Sync,
                ],
            ),
            (1, &[Parse("z", "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint"), Run("z"), Sync]),
            (1, &[Query("set timezone = 'America/New_York'"), Run("z"), Sync]),
            (0, &[Run("z"), Sync, Query("reset timezone"), Run("z"), Sync]),
        ],
    ),
    (
        "a name that a failed batch was to close",
        &[
            (0, &[Query("set timezone = 'America/New_York'"), Query("begin"), Query("set timezone = 'Asia/Tokyo'")]),
            (0, &[Parse("s1", "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint"), Sync]),
            (0, &[Run("nope"), Close("s1"), Sync, Query("rollback"), Run("s1"), Sync]),
        ],
    ),
    (
        "a name that is evicted in the transaction that gave it",
        &[
            (0, &[Query("set timezone = 'America/New_York'"), Query("begin; set datestyle = 'ISO, DMY'")]),
            (
                0,
                &[
                    Parse("", "select set_config('TimeZone', 'Asia/Tokyo', false)"),
                    Run(""),
                    Parse("s1", "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint"),
                    Sync,
                ],
            ),
            (
                0,
                &[
                    Parse("a", "select 1"),
                    Parse("b", "select 2"),
                    Parse("c", "select 3"),
                    Run("a"),
                    Run("b"),
                    Run("c"),
                    Sync,
                ],
            ),
            (0, &[Run("s1"), Sync, Query("commit"), Run("s1"), Sync]),
        ],
    ),
    (
        "a name given behind a DEALLOCATE ALL, its Close skipped behind an error",
        &[
            (
                0,
                &[
                    Parse("", "deallocate all"),
                    Run(""),
                    Parse("s", "select 'own'"),
                    Parse("", "no statement"),
                    Close("s"),
                    Sync,
                ],
            ),
            (0, &[Run("s"), Sync]),
            (0, &[Parse("s", "select 2"), Sync]),
        ],
    ),
    (
        "an error names the name that was used, of two for a text, or where the text gives way behind it",
        &[
            (0, &[Parse("a", "select 1"), Parse("b", "select 1"), Sync]),
            (0, &[RunWith("b", &["a value"]), Sync, RunWith("a", &["a value"]), Sync]),
            (0, &[Parse("c", "select 2"), Parse("d", "select 3"), Sync]),
            (0, &[RunWith("a", &["a value"]), Run("c"), Run("d"), Sync]),
            (0, &[RunWith("b", &["a value"]), Close("b"), Run("c"), Run("d"), Sync]),
        ],
    ),
];

/// For releases before 18: 18.6 answers the next query with XX000.
pub const A_QUERY_ENDS_A_BATCH: &[Case] = &[(
    "a name given behind what sets the time zone, in a batch that a query ends",
    &[
        (0, &[Query("set timezone = 'America/New_York'")]),
        (
            0,
            &[
                Parse("st", "select set_config('TimeZone', 'Asia/Tokyo', false)"),
                Run("st"),
                Parse("s1", "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint"),
                Query("select 1"),
            ],
        ),
        (1, &[Parse("a", "select 1"), Run("a"), Parse("b", "select 2"), Run("b"), Sync]),
        (0, &[Query("set timezone = 'Europe/Berlin'"), Run("s1"), Sync]),
    ],
)];
