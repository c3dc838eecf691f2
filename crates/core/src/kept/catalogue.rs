//! The question what is behind the names that texts may say: `words.rs` has its answer.

/// The question. What it costs grows with the number of functions and tables: 30 ms for none.
const QUESTION: &str = include_str!("catalogue.sql");
/// Behind each line of it that means nothing to older releases.
const SINCE_14: &str = "-- since 14";

/// The question to a PostgreSQL of this release: a simple query, or its last statement.
pub(crate) fn question(release: u32, alone: bool) -> Vec<u8> {
    let question = if alone { QUESTION.split_once(';').map_or(QUESTION, |(_, question)| question) } else { QUESTION };
    let lines = question.split_inclusive('\n').filter(|line| release >= 14 || !line.trim_end().ends_with(SINCE_14));
    lines.collect::<String>().into_bytes()
}
