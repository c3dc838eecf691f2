//! The question what is behind the names that texts may say: `words.rs` has its answer.

/// The question. What it costs grows with the number of functions and tables: 20 ms for none, a third of a second for a thousand of each.
const QUESTION: &str = include_str!("catalogue.sql");
/// Where its last statement begins.
const LAST: &str = "WITH own AS";
/// Behind each line of it that means nothing to releases before.
const SINCE: [(u32, &str); 2] = [(14, "-- since 14"), (17, "-- since 17")];

/// Ahead of the last statement alone, which is planned behind that. No row, which would be taken for one of the answer.
pub(crate) fn ahead(release: u32) -> Vec<u8> {
    let mut sql = b"SELECT WHERE pg_catalog.set_config(E'jit',E'off',true)IS NULL \
        OR pg_catalog.set_config(E'statement_timeout',E'9000',true)IS NULL"
        .to_vec();
    if release >= 17 {
        sql.extend_from_slice(b" OR pg_catalog.set_config(E'transaction_timeout',E'0',true)IS NULL");
    }
    sql
}

/// The question to a PostgreSQL of this release: a simple query, or its last statement.
pub(crate) fn question(release: u32, alone: bool) -> Vec<u8> {
    let begins = if alone { QUESTION.find(LAST).unwrap_or_default() } else { 0 };
    let lines = QUESTION[begins..].split_inclusive('\n');
    let means = |line: &&str| SINCE.iter().all(|(since, mark)| release >= *since || !line.trim_end().ends_with(mark));
    let lines = lines.filter(means);
    lines.collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each statement means something to the release that is asked.
    #[test]
    fn releases_are_asked_what_they_know() {
        for (release, timeout, generated) in
            [(13, false, false), (14, false, true), (16, false, true), (17, true, true), (18, true, true)]
        {
            let says = |sql: Vec<u8>, word: &str| String::from_utf8(sql).unwrap().contains(word);
            assert_eq!(says(question(release, false), "transaction_timeout"), timeout, "{release}");
            assert_eq!(says(ahead(release), "transaction_timeout"), timeout, "{release}");
            assert_eq!(says(question(release, true), "prosqlbody"), generated, "{release}");
            assert!(!says(question(release, true), "SET LOCAL"), "{release}");
        }
    }
}
