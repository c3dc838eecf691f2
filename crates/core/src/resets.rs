//! What the text of a request takes back to a session's defaults: RESET, DISCARD ALL, and SET to DEFAULT.
//!
//! The grammar is that of src/backend/parser/gram.y of PostgreSQL 18: `VariableResetStmt`, `VariableSetStmt`, `DiscardStmt`.
//! Knows nothing of sessions and servers.

use std::sync::Arc;

use crate::sql::Tokens;

/// Texts up to this size are read.
pub(crate) const TEXT_BYTES_MAX: usize = 8 * 1024;

/// Parameters that RESET ALL leaves as they are (`GUC_NO_RESET_ALL`, src/backend/utils/misc/guc_tables.c).
const NOT_WITH_ALL: [&str; 2] = ["role", "seed"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resets {
    all: bool,
    /// With DISCARD ALL also those that RESET ALL leaves.
    discard: bool,
    names: Vec<Box<str>>,
    /// Set to something after everything was reset.
    set_since: Vec<Box<str>>,
}

impl Resets {
    /// What a command did whose text was not read.
    pub(crate) fn of_tag(tag: &[u8]) -> Self {
        match tag {
            b"RESET\0" => Self { all: true, ..Self::default() },
            b"DISCARD ALL\0" => Self { all: true, discard: true, ..Self::default() },
            _ => Self::default(),
        }
    }

    /// At a glance: a single statement that begins with another word. Most do, and this is asked of each.
    #[inline]
    pub(crate) fn are_absent(text: &[u8]) -> bool {
        let Some(([first, second, third], rest)) = text.split_first_chunk() else { return true };
        let word = [first | 0x20, second | 0x20, third | 0x20];
        let rest = rest.split_last().map_or(rest, |(_, rest)| rest);
        first.is_ascii_alphabetic()
            && !matches!(&word, b"set" | b"res" | b"dis")
            && !rest.iter().fold(false, |found, byte| found | (*byte == b';'))
    }

    /// What the statements of this text do, one after the other.
    pub(crate) fn read(text: &[u8]) -> Self {
        let mut resets = Self::default();
        let mut tokens = Tokens::of(text);
        while let Some(statement) = tokens.statement() {
            let words: Vec<&str> = statement.iter().map(String::as_str).collect();
            resets.statement(&words);
        }
        resets
    }

    /// `None` where they do nothing, or the text is too long to be read.
    pub(crate) fn of_text(text: &[u8]) -> Option<Arc<Self>> {
        if text.len() > TEXT_BYTES_MAX || Self::are_absent(text) {
            return None;
        }
        Some(Self::read(text)).filter(|resets| !resets.is_nothing()).map(Arc::new)
    }

    pub(crate) fn is_nothing(&self) -> bool {
        !self.all && self.names.is_empty()
    }

    pub(crate) fn covers(&self, name: &str) -> bool {
        let has = |names: &[Box<str>]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
        let with_all = self.discard || !NOT_WITH_ALL.iter().any(|known| known.eq_ignore_ascii_case(name));
        has(&self.names) || (self.all && with_all && !has(&self.set_since))
    }

    /// What of it stands where what followed has failed.
    pub(crate) fn committed(&self) -> Self {
        if self.discard { Self::of_tag(b"DISCARD ALL\0") } else { Self::default() }
    }

    /// And then these.
    pub(crate) fn and(&mut self, then: &Self) {
        if then.all {
            self.set_since.clear();
        }
        self.all |= then.all;
        self.discard |= then.discard;
        self.names.extend(then.names.iter().cloned());
        self.set_since.extend(then.set_since.iter().cloned());
    }

    fn statement(&mut self, words: &[&str]) {
        match words {
            ["discard", "all"] => self.and(&Self::of_tag(b"DISCARD ALL\0")),
            ["reset", "all"] => self.and(&Self::of_tag(b"RESET\0")),
            ["reset", "time", "zone"] | ["set", "time", "zone", "default" | "local"] => self.reset("timezone"),
            ["reset", name @ ..] => self.reset(&name.concat()),
            ["set", "session", rest @ ..] if rest.first() != Some(&"authorization") => self.set(rest),
            // Only until the transaction's end.
            ["set", "local", ..] => {}
            ["set", rest @ ..] => self.set(rest),
            _ => {}
        }
    }

    fn set(&mut self, words: &[&str]) {
        match words {
            ["time", "zone", "default" | "local"] => self.reset("timezone"),
            ["time", "zone", ..] => self.set_to_something("timezone"),
            ["names"] | ["names", "default"] => self.reset("client_encoding"),
            ["names", ..] => self.set_to_something("client_encoding"),
            ["schema", ..] => self.set_to_something("search_path"),
            ["role", ..] => self.set_to_something("role"),
            _ => {
                let Some(to) = words.iter().position(|word| matches!(*word, "to" | "=")) else { return };
                let name = words[..to].concat();
                if words[to + 1..] == ["default"] { self.reset(&name) } else { self.set_to_something(&name) }
            }
        }
    }

    fn reset(&mut self, name: &str) {
        self.names.push(name.into());
    }

    fn set_to_something(&mut self, name: &str) {
        self.names.retain(|known| !known.eq_ignore_ascii_case(name));
        if self.all {
            self.set_since.push(name.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(text: &str) -> String {
        let resets = Resets::read(text.as_bytes());
        assert!(resets.is_nothing() || !Resets::are_absent(text.as_bytes()), "{text}");
        let names = ["TimeZone", "search_path", "client_encoding", "role", "my.x"];
        names.into_iter().filter(|name| resets.covers(name)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn single_statements() {
        for (text, expected) in [
            ("Select 1 ;", ""),
            ("reset timezone", "TimeZone"),
            (" RESET\n\"TimeZone\" ;", "TimeZone"),
            ("/* a; /* b */ */ -- c; reset role\n reset time zone", "TimeZone"),
            ("set my . x to default", "my.x"),
            ("SET SESSION search_path = DEFAULT", "search_path"),
            ("set local search_path to default", ""),
            ("set time zone local", "TimeZone"),
            ("set names", "client_encoding"),
            ("reset all", "TimeZone search_path client_encoding my.x"),
            ("discard all", "TimeZone search_path client_encoding role my.x"),
            ("reset role", "role"),
            ("set search_path to default_schema", ""),
            ("set search_path to 'default'", ""),
            ("set session authorization default", ""),
            ("select 'reset timezone'", ""),
            ("discard plans", ""),
            ("", ""),
        ] {
            assert_eq!(covered(text), expected, "{text}");
        }
    }

    #[test]
    fn statements_of_one_text() {
        for (text, expected) in [
            (
                "select pg_advisory_unlock_all(); close all; unlisten *; reset all;",
                "TimeZone search_path client_encoding my.x",
            ),
            ("reset timezone; set timezone = 'UTC'", ""),
            ("reset all; set time zone 'UTC'; set names 'UTF8'; set schema 'a'", "my.x"),
            ("set timezone = 'UTC'; reset timezone; reset role", "TimeZone role"),
            ("select E'\\'; reset role; ', ';reset role', $a$;reset role;$a$, $1; reset timezone", "TimeZone"),
            ("select 1; /* never ends; reset role", ""),
            ("select 1; reset 'x", ""),
        ] {
            assert_eq!(covered(text), expected, "{text}");
        }
    }

    #[test]
    fn any_text_is_read_to_its_end() {
        for text in
            ["$", "$$", "'", "\"", "\"\"", "e'\\", "/*", "--", "$1$", ";", "reset", "set x", "set =", "*/", "\0"]
        {
            Resets::read(text.as_bytes());
            Resets::read(format!("reset {text}").as_bytes());
        }
    }
}
