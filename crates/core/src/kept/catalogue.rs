//! The question what is behind the names that texts may say: `words.rs` has its answer.

/// The question. What it costs grows with the number of functions and tables: 20 ms for none, a third of a second for a thousand of each.
const QUESTION: &str = include_str!("catalogue.sql");
/// Where its last statement begins.
const LAST: &str = "WITH own AS";
/// Behind each line of it that means nothing to older releases.
const SINCE_14: &str = "-- since 14";

/// Ahead of the last statement alone, which is planned behind that. No row, which would be taken for one of the answer.
pub(crate) const AHEAD: &[u8] = b"SELECT WHERE pg_catalog.set_config(E'jit',E'off',true)IS NULL \
    OR pg_catalog.set_config(E'statement_timeout',E'9000',true)IS NULL";

/// The question to a PostgreSQL of this release: a simple query, or its last statement.
pub(crate) fn question(release: u32, alone: bool) -> Vec<u8> {
    let begins = if alone { QUESTION.find(LAST).unwrap_or_default() } else { 0 };
    let lines = QUESTION[begins..].split_inclusive('\n');
    let lines = lines.filter(|line| release >= 14 || !line.trim_end().ends_with(SINCE_14));
    lines.collect::<String>().into_bytes()
}
