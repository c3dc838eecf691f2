//! A client that sets nothing, on a server that it shares with one that does what it likes: its literals mean the same ever after.

use super::bench::{Raw, Weir, shared};
use super::parameters::{Said, Step, answered};

const ZONED: &str = "select extract(epoch from timestamptz '2020-01-01')::text";
const UTC: &str = "1577836800.000000";
/// As text, which is folded under `bytea_output` as it is planned.
const BYTES: &str = r"select ('\xdeadbeef'::bytea)::text";
const FUNCTIONS: &str = "create or replace function local_tokyo() returns text language sql as \
     'select set_config(''TimeZone'', ''Asia/Tokyo'', true)'; set timezone = 'UTC'";
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
    for raw in [&mut innocent, &mut other] {
        answered(raw, &mut another, &Said::Query(FUNCTIONS));
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
