//! Whether a text leaves nothing behind, told at a glance: most do, and are read no further.
//!
//! One pass over its bytes compares each word, in strings and comments too, with those that matter to [`Leaves`](super::leaves::Leaves) and to the
//! code of a database. What it takes for plain leaves nothing when it is read; what it does not is read.

use std::sync::{Arc, LazyLock, Weak};

use super::words::Words;
use crate::parameters::meanings::NAME_BYTES;
use crate::sql::{behind_exponent, behind_number, from_first_word};

/// It does not behind an INSERT or a MERGE that begins a statement.
const INTO: &str = "into";

/// Words that matter wherever they stand.
const ANYWHERE: [&str; 38] = [
    "array_in",
    "array_recv",
    "brin_summarize_new_values",
    "brin_summarize_range",
    "client_encoding",
    "currval",
    "cursor_to_xml",
    "database_to_xml",
    "database_to_xml_and_xmlschema",
    "database_to_xmlschema",
    "domain_in",
    "domain_recv",
    "execute",
    // SELECT INTO.
    INTO,
    "lastval",
    "multirange_in",
    "multirange_recv",
    // COMMIT PREPARED.
    "prepared",
    "query_to_xml",
    "query_to_xml_and_xmlschema",
    "query_to_xmlschema",
    "range_in",
    "range_recv",
    "record_in",
    "record_recv",
    "schema_to_xml",
    "schema_to_xml_and_xmlschema",
    "schema_to_xmlschema",
    "set_config",
    "setseed",
    "standard_conforming_strings",
    "table_to_xml",
    "table_to_xml_and_xmlschema",
    "table_to_xmlschema",
    "temp",
    "temporary",
    "ts_rewrite",
    "ts_stat",
];
/// And so do all that begin so.
const PREFIXES: [&str; 2] = ["pg_", "dblink"];
/// Words that matter where they begin a statement.
const BEGINNING: [&str; 24] = [
    "abort",
    "alter",
    "analyse",
    "analyze",
    "call",
    "close",
    "cluster",
    "create",
    "deallocate",
    "declare",
    "discard",
    "do",
    "drop",
    "explain",
    "import",
    "listen",
    "load",
    "prepare",
    "reindex",
    "reset",
    "rollback",
    "set",
    "unlisten",
    "vacuum",
];

/// Bits for each word: of others, one in a thousand is taken for one of them.
const BITS: usize = 64;

/// What a byte is to a word. All else are bytes of one, in lower case.
const BETWEEN: u8 = 0;
const SEMICOLON: u8 = 1;
/// A comment may begin here.
const COMMENT: u8 = 2;
const DOLLAR: u8 = 3;
const AMPERSAND: u8 = 4;
/// An escape, or a letter beyond ASCII: the text is read.
const ODD: u8 = 5;
const END: u8 = 6;
const WORD: u8 = b'0';

const CLASSES: [u8; 256] = {
    let mut classes = [BETWEEN; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            other @ (b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_') => other.to_ascii_lowercase(),
            0 => END,
            b';' => SEMICOLON,
            b'-' | b'/' => COMMENT,
            b'$' => DOLLAR,
            b'&' => AMPERSAND,
            // What is a blank to some releases alone, too.
            b'\\' | 0x0b | 0x80.. => ODD,
            _ => BETWEEN,
        };
        byte += 1;
    }
    classes
};

/// The last text that was plain, and by which words: a Parse is mostly followed by its Bind, and that by the same Parse.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    by: Weak<Words>,
    text: Vec<u8>,
}

impl Seen {
    /// A longer text is not kept.
    const TEXT_BYTES_MAX: usize = 4096;

    pub(super) fn is_plain(&mut self, words: &Arc<Words>, text: &[u8]) -> bool {
        let is_by = std::ptr::eq(self.by.as_ptr(), Arc::as_ptr(words));
        if is_by && *text == *self.text && !text.is_empty() {
            return true;
        }
        let is_plain = words.are_plain(text);
        if is_plain && text.len() <= Self::TEXT_BYTES_MAX {
            if !is_by {
                self.by = Arc::downgrade(words);
            }
            self.text.clear();
            self.text.extend_from_slice(text);
        }
        is_plain
    }
}

/// The words that matter to one database, as a Bloom filter with two hashes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Glance {
    bits: Box<[u64]>,
}

impl Glance {
    /// Those that texts say for themselves, and room for so many others.
    fn with_room_for(others: usize) -> Self {
        let words = ANYWHERE.len() + BEGINNING.len() + others;
        let mut glance = Self { bits: vec![0; (words * BITS).next_power_of_two() / 64].into() };
        ANYWHERE.iter().for_each(|word| glance.insert(hash(word.as_bytes())));
        BEGINNING.iter().for_each(|word| glance.insert(as_beginning(hash(word.as_bytes()))));
        glance
    }

    /// `names`: those of code, as texts call it, of which no byte is a capital letter. `None` where one of them cannot be told at a glance.
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Self> {
        let mut glance = Self::with_room_for(names.clone().count());
        for name in names {
            // Where it is more than one word, it stands in quotes, with all of them. PostgreSQL may have cut it, with its last word.
            let is_of_word = |byte: &u8| CLASSES[usize::from(*byte)] >= WORD;
            let whole = name.iter().all(is_of_word);
            let first = name.split(|byte| !is_of_word(byte)).find(|word| !word.is_empty())?;
            if !whole && name.len() >= NAME_BYTES {
                return None;
            }
            glance.insert(hash(first));
        }
        Some(glance)
    }

    /// By what texts say for themselves.
    pub(super) fn own() -> &'static Self {
        static OWN: LazyLock<Glance> = LazyLock::new(|| Glance::with_room_for(0));
        &OWN
    }

    /// Whether a text leaves nothing for certain. It ends with its length, or a NUL.
    pub(super) fn is_plain(&self, text: &[u8]) -> bool {
        let rest = from_first_word(text);
        let (blank, _) = text.split_at(text.len() - rest.len());
        (blank.is_empty() || self.are_plain(blank, false)) && self.are_plain(rest, true)
    }

    /// `begins`: a statement begins with the first word.
    fn are_plain(&self, text: &[u8], mut begins: bool) -> bool {
        let mut rest = text;
        // What is behind an INSERT or a MERGE, if one is the last word and begins a statement.
        let mut inserts: &[u8] = b"";
        loop {
            let (mut hash, mut len) = (SEED, 0);
            let mut end = END;
            for &byte in rest {
                end = CLASSES[usize::from(byte)];
                if end < WORD {
                    break;
                }
                hash = with_byte(hash, end);
                len += 1;
            }
            if len > 0 {
                let is_noticed = self.has(hash) || (begins && self.has(as_beginning(hash)));
                let word = &rest[..len];
                if (is_noticed && !inserts_into(inserts, rest, word)) || len > NAME_BYTES || self.begins_so(word) {
                    return false;
                }
                let first = begins && is_insert(word) && is_first(&text[..text.len() - rest.len()]);
                inserts = if first { &rest[len..] } else { b"" };
                begins = false;
            }
            let Some(behind) = rest.get(len + 1..) else { return true };
            match end {
                END => return true,
                SEMICOLON => begins = true,
                // Behind it a statement may begin.
                COMMENT if begins => return false,
                // A parameter, behind which another word may begin; else a string in dollars, or a part of a name.
                DOLLAR => {
                    let digits = behind.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    if len > 0 || digits == 0 {
                        return false;
                    }
                    rest = &behind[digits..];
                    continue;
                }
                // A name in escapes.
                AMPERSAND if behind.first() == Some(&b'"') => return false,
                ODD => return false,
                _ => {}
            }
            rest = behind;
        }
    }

    /// It has a prefix that matters, or begins with a number, behind which another word may begin.
    #[inline]
    fn begins_so(&self, word: &[u8]) -> bool {
        match char::from(word[0]) {
            'p' | 'P' | 'd' | 'D' => has_prefix(word),
            '0'..='9' => !word.iter().all(u8::is_ascii_digit) && self.has_behind(behind_number(word)),
            // Of `1.e5`.
            'e' | 'E' => word.get(1).is_some_and(u8::is_ascii_digit) && self.has_behind(behind_exponent(word)),
            _ => false,
        }
    }

    #[cold]
    fn has_behind(&self, word: &[u8]) -> bool {
        let hash = word.iter().fold(SEED, |hash, &byte| with_byte(hash, byte.to_ascii_lowercase()));
        !word.is_empty() && (self.has(hash) || has_prefix(word))
    }

    fn has(&self, hash: u32) -> bool {
        let mask = self.bits.len() * 64 - 1;
        probes(hash, mask).iter().all(|bit| self.bits[bit / 64] >> (bit % 64) & 1 == 1)
    }

    fn insert(&mut self, hash: u32) {
        let mask = self.bits.len() * 64 - 1;
        probes(hash, mask).iter().for_each(|bit| self.bits[bit / 64] |= 1 << (bit % 64));
    }
}

/// A word that INTO may follow without making a table. No word is empty.
#[inline(always)]
pub(super) fn is_insert(word: &[u8]) -> bool {
    let is = |own: &str| word.eq_ignore_ascii_case(own.as_bytes());
    matches!(word[0] | 0x20, b'i' | b'm') && (is("insert") || is("merge"))
}

/// Whether nothing stands between the beginning of a statement and what comes.
#[cold]
fn is_first(ahead: &[u8]) -> bool {
    let between = |byte: &&u8| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c);
    ahead.iter().rev().find(between).is_none_or(|byte| *byte == b';')
}

/// `behind`: the INSERT; `from`: from this word on.
#[cold]
fn inserts_into(behind: &[u8], from: &[u8], word: &[u8]) -> bool {
    let between = behind.len().checked_sub(from.len()).map(|len| &behind[..len]);
    word.eq_ignore_ascii_case(INTO.as_bytes())
        // Behind the end of a line the INSERT may have stood in a comment.
        && between.is_some_and(|between| !between.is_empty() && between.iter().all(|byte| matches!(byte, b' ' | b'\t')))
}

fn has_prefix(word: &[u8]) -> bool {
    let begins_so =
        |prefix: &&str| word.get(..prefix.len()).is_some_and(|at| at.eq_ignore_ascii_case(prefix.as_bytes()));
    PREFIXES.iter().any(begins_so)
}

/// FNV-1a.
const SEED: u32 = 0x811c_9dc5;

#[inline]
fn with_byte(hash: u32, byte: u8) -> u32 {
    (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
}

fn hash(word: &[u8]) -> u32 {
    word.iter().fold(SEED, |hash, byte| with_byte(hash, *byte))
}

/// Of the same word where it begins a statement.
fn as_beginning(hash: u32) -> u32 {
    with_byte(hash, b';')
}

fn probes(hash: u32, mask: usize) -> [usize; 2] {
    [hash as usize & mask, (hash.wrapping_mul(0x9e37_79b1) >> 8) as usize & mask]
}

#[cfg(test)]
mod tests {
    use super::super::leaves::Leaves;
    use super::super::words::Reading;
    use super::*;

    fn glance(names: &[&str]) -> Option<Glance> {
        Glance::of(names.iter().map(|name| name.as_bytes()))
    }

    #[test]
    fn most_texts_are_plain() {
        let glance = glance(&["audit", "my func"]).unwrap();
        for text in [
            "",
            "SELECT abalance FROM pgbench_accounts WHERE aid = 12345;",
            "UPDATE t SET a = $1, b = 'set; b' WHERE \"Id\" = $2",
            "insert into t (a) values (1) on conflict do nothing",
            " ;\n insert into t values ($1)",
            "INSERT \t INTO t select * from a; merge into t using a on true",
            "begin; select 1; commit",
            "/* a comment */ select 1 -- another",
            "select 1\0not read",
            "select last_name, created_at, current_timestamp, 1e5, 0x1F, 'it''s' from \"users\" u where u.call & 1 = 0",
        ] {
            assert!(glance.is_plain(text.as_bytes()), "{text}");
        }
        for text in [
            "select audit(1)",
            "select \"my func\"()",
            "SET a = 1",
            " ;set a = 1",
            "select 1; /* x */ set a = 1",
            "select 'a\\b'",
            "select 'ä'",
            "select $a$b$a$",
            "select a$b",
            "select u&\"0061\"",
            "select PG_ADVISORY_LOCK(1)",
            "select 1; listen a",
            "select 1 into t",
            "select 'insert' into t",
            "select 1 as insert into t",
            "select 1 as a --;insert\ninto t",
            "select 1 as a -- x; merge \r\n into t",
            "select 1pg_temp1",
            "insert /* x */ into t values (1)",
            "select 1\u{b}",
            "select 1into t",
            "select 1e5into t",
            "select 1.e5into t",
            "select 1 where 1=1and pg_try_advisory_lock(1)",
            "select 1pg_advisory_lock",
            "show client_encoding",
            "insert /* x */ select a into b",
            "insert; into t",
            "= insert into t",
            "'' insert into t",
            "(insert into t",
            "select $1into t",
            "select $1pg_temp",
            &"x".repeat(64),
        ] {
            assert!(!glance.is_plain(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_name_that_no_glance_can_tell_leaves_none() {
        assert!(glance(&["--"]).is_none());
        assert!(glance(&[&format!("{}abc", "- ".repeat(30))]).is_none());
        assert!(glance(&[&"x".repeat(63)]).is_some());
    }

    /// Words at random, between all that may stand between words, are plain only where they leave nothing when they are read: that is
    /// asserted where they are.
    #[test]
    fn what_is_read_is_what_a_glance_has_told() {
        const BETWEEN: &[&str] = &[
            " ", " ", " ", "\n", ";", "; ", "(", ")", ",", ".", "'", "\"", "--", "/*", "*/", "$", "$$", "$1", "\\",
            "ü", "&\"", "1", "=", "''",
        ];
        const OTHERS: &[&str] = &[
            "audit",
            "\"my func\"",
            "\"x\"\"y\"",
            "e5",
            "\"a-b\"",
            "a$b",
            "größe",
            "select",
            "a",
            "e",
            "u",
            "local",
            "all",
            "with",
            "hold",
            "language",
            "begin",
            "into",
            "transaction",
            "pg_temp",
            "dblink_x",
        ];
        let words: Vec<&str> = ANYWHERE.iter().chain(&BEGINNING).chain(OTHERS).copied().collect();
        let mut state = 1_u64;
        let mut draw = |count: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % count
        };
        let mut reading = Reading::default();
        for name in ["audit", "my func", "x\"y", "a-b", "a$b", "größe", "e5"] {
            reading.row(name.as_bytes(), b"begin perform pg_advisory_lock(1); end");
        }
        let database = reading.words();
        let glance = glance(&[]).unwrap();
        let (mut plain, mut called) = (0, 0);
        for _ in 0..60_000 {
            let mut text = String::new();
            for _ in 0..=draw(6) {
                text.push_str(BETWEEN[draw(BETWEEN.len())]);
                text.push_str(words[draw(words.len())]);
            }
            if draw(2) == 0 {
                text.make_ascii_uppercase();
            }
            plain += usize::from(glance.is_plain(text.as_bytes()));
            Leaves::of(text.as_bytes());
            called += usize::from(database.leaves(text.as_bytes()).is_some());
        }
        assert!(plain > 1_000 && called > 1_000, "{plain}, {called}");
    }
}
