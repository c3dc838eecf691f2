//! What went wrong, by kind: pgbench's and libpq's messages without what differs from client to client.
//!
//! Does not know what a kind means for an experiment.

use std::collections::BTreeMap;

/// What programs say before what happened.
const PREFIXES: [&str; 4] = ["pgbench: error: ", "pgbench: fatal: ", "psql: error: ", "psql:"];
/// Echoes of an error that was said before them: they count clients, not errors.
const ECHOES: [&str; 4] =
    ["Run was aborted", "could not create connection for client", "Is the server running", "This probably means"];
/// SQLSTATEs of messages that clients are shown without theirs (`src/backend/utils/errcodes.txt`).
const STATES: [(&str, &str); 12] = [
    ("sorry, too many clients already", "53300"),
    ("remaining connection slots are reserved", "53300"),
    ("too many connections for", "53300"),
    ("no more connections allowed", "53300"),
    ("password authentication failed", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    ("the database system is shutting down", "57P03"),
    ("the database system is starting up", "57P03"),
    ("the database system is in recovery mode", "57P03"),
    ("terminating connection due to administrator command", "57P01"),
    ("canceling statement due to statement timeout", "57014"),
    ("out of memory", "53200"),
];
/// Whatever a server says, a report has no more kinds than people can read.
const KINDS_MAX: usize = 20;
const KIND_CHARACTERS_MAX: usize = 200;
const OTHERS: &str = "other errors";

/// How many errors of each kind an output shows.
pub fn kinds(output: &str) -> BTreeMap<String, u64> {
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for line in output.lines() {
        let Some(message) = PREFIXES.iter().find_map(|prefix| line.strip_prefix(prefix)) else { continue };
        if ECHOES.iter().any(|echo| message.starts_with(echo)) {
            continue;
        }
        let kind = kind(message);
        let known = kinds.len() < KINDS_MAX || kinds.contains_key(&kind);
        *kinds.entry(if known { kind } else { OTHERS.to_owned() }).or_default() += 1;
    }
    kinds
}

/// One message without the client's number, the server's address and the like, and with its SQLSTATE where it is known.
fn kind(message: &str) -> String {
    // `client 3 script 0 aborted in command 5 query 0: ERROR:  ...`, `connection to server at "h", port 1 failed: ...`
    let cause = ["FATAL:  ", "ERROR:  ", "PANIC:  "].iter().find_map(|severity| Some(message.split_once(severity)?.1));
    let text = match (cause, message.split_once(" failed: ")) {
        (Some(cause), _) => cause.to_owned(),
        (None, Some((connection, why))) if connection.starts_with("connection to server") => why.to_owned(),
        // `client 17 aborted in command 4 (SQL) of script 0; perhaps the backend died while processing`
        _ => match message.split_once("; ").filter(|(client, _)| client.starts_with("client ")) {
            Some((_, why)) => format!("connection broken: {why}"),
            None => without_numbers(message),
        },
    };
    let text: String = text.trim().chars().take(KIND_CHARACTERS_MAX).collect();
    let state = STATES.iter().find(|(words, _)| text.contains(words)).map(|(_, state)| *state);
    state.map_or(text.clone(), |state| format!("{text} ({state})"))
}

/// `client 17 aborted while establishing connection`: the words that stay.
fn without_numbers(message: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in message.split(' ') {
        let is_number = word.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().is_ok()
            && word.chars().all(|c| c.is_ascii_digit() || c.is_ascii_punctuation());
        if is_number && matches!(words.last(), Some(&("client" | "command" | "script" | "query" | "thread"))) {
            continue;
        }
        words.push(word);
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_with_one_trouble_are_one_kind() {
        let output = "progress: 1.0 s, 5.0 tps\n\
            pgbench: error: client 17 aborted in command 4 (SQL) of script 0; perhaps the backend died while processing\n\
            pgbench: error: client 3 aborted in command 2 (SQL) of script 0; perhaps the backend died while processing\n\
            pgbench: error: connection to server at \"127.0.0.1\", port 5999 failed: Connection refused\n\
            \tIs the server running on that host and accepting TCP/IP connections?\n\
            pgbench: error: could not create connection for client 9\n\
            pgbench: error: connection to server at \"127.0.0.1\", port 1 failed: FATAL:  sorry, too many clients already\n\
            pgbench: error: client 8 script 0 aborted in command 5 query 0: ERROR:  canceling statement due to statement timeout\n\
            pgbench: error: Run was aborted; the above results are incomplete.\n";
        let kinds = kinds(output);
        let expected = [
            ("Connection refused", 1),
            ("canceling statement due to statement timeout (57014)", 1),
            ("connection broken: perhaps the backend died while processing", 2),
            ("sorry, too many clients already (53300)", 1),
        ];
        assert_eq!(kinds, expected.map(|(kind, count)| (kind.to_owned(), count)).into());
    }

    #[test]
    fn there_are_never_more_kinds_than_people_read() {
        let output: String = (0..100).map(|n| format!("pgbench: error: x{n}\n")).collect();
        let kinds = kinds(&output);
        assert_eq!((kinds.len(), kinds[OTHERS]), (KINDS_MAX + 1, 80));
    }
}
