//! What the text of a request takes back to a session's defaults: RESET, DISCARD ALL, and SET to DEFAULT; and which of its
//! ROLLBACKs go back to a savepoint only.
//!
//! The grammar is that of src/backend/parser/gram.y of PostgreSQL 18: `VariableResetStmt`, `VariableSetStmt`, `DiscardStmt`,
//! `TransactionStmt`.
//! Knows nothing of sessions and servers.

use std::sync::Arc;

use crate::sql::{Tokens, name_of};

/// Texts up to this size are read.
pub(crate) const TEXT_BYTES_MAX: usize = 8 * 1024;

const ROLE: &str = "role";

/// Parameters that RESET ALL leaves as they are (`GUC_NO_RESET_ALL`, src/backend/utils/misc/guc_tables.c).
const NOT_WITH_ALL: [&str; 2] = [ROLE, "seed"];

/// What one statement does to parameters: those whose command tag is RESET, SET, DISCARD ALL or ROLLBACK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Reset(Box<str>),
    ResetAll,
    DiscardAll,
    /// Set to something.
    Set(Box<str>),
    /// Set to something up to the transaction's end.
    SetLocal(Box<str>),
    Rollback,
    RollbackToSavepoint,
    /// Whatever the statement of this name does.
    Execute(Box<str>),
    /// What has such a tag and is nothing to a session's parameters.
    Nothing,
}

impl Change {
    /// What a command did whose text was not read.
    pub(super) fn of_tag(tag: &[u8]) -> Self {
        match tag {
            b"RESET\0" => Self::ResetAll,
            b"DISCARD ALL\0" => Self::DiscardAll,
            // Or a COMMIT, of a transaction that has failed.
            b"ROLLBACK\0" => Self::Rollback,
            _ => Self::Nothing,
        }
    }

    /// Whether a statement that does this has this tag.
    pub(super) fn has_tag(&self, tag: &[u8]) -> bool {
        match self {
            // Or SET, to DEFAULT.
            Self::Reset(_) => matches!(tag, b"RESET\0" | b"SET\0"),
            Self::ResetAll => tag == b"RESET\0",
            Self::DiscardAll => tag == b"DISCARD ALL\0",
            Self::Set(_) | Self::SetLocal(_) | Self::Nothing => tag == b"SET\0",
            Self::Rollback | Self::RollbackToSavepoint => tag == b"ROLLBACK\0",
            Self::Execute(_) => false,
        }
    }

    pub(crate) fn resets(&self, name: &str) -> bool {
        match self {
            Self::Reset(reset) => reset.eq_ignore_ascii_case(name),
            Self::ResetAll => !NOT_WITH_ALL.iter().any(|known| known.eq_ignore_ascii_case(name)),
            Self::DiscardAll => true,
            Self::Set(_)
            | Self::SetLocal(_)
            | Self::Rollback
            | Self::RollbackToSavepoint
            | Self::Execute(_)
            | Self::Nothing => false,
        }
    }

    pub(crate) fn sets(&self, name: &str) -> bool {
        matches!(self, Self::Set(set) if set.eq_ignore_ascii_case(name))
    }

    pub(crate) fn sets_local(&self, name: &str) -> bool {
        matches!(self, Self::SetLocal(set) if set.eq_ignore_ascii_case(name))
    }
}

/// The text cannot be read, or is too long to be.
#[derive(Debug)]
pub(crate) struct Unread;

/// The statements of a text that change parameters, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resets {
    changes: Vec<Change>,
}

impl Resets {
    /// At a glance: a single statement that begins with another word. Most do, and this is asked of each.
    #[inline]
    pub(crate) fn are_absent(text: &[u8]) -> bool {
        let Some(([first, second, third], rest)) = text.split_first_chunk() else { return true };
        let word = [first | 0x20, second | 0x20, third | 0x20];
        let rest = rest.split_last().map_or(rest, |(_, rest)| rest);
        first.is_ascii_alphabetic()
            && !matches!(&word, b"set" | b"res" | b"dis" | b"rol" | b"exe")
            && !rest.iter().fold(false, |found, byte| found | (*byte == b';'))
    }

    /// `None` where nobody can tell which statements they are.
    fn read(text: &[u8]) -> Option<Self> {
        let mut changes = Vec::new();
        let mut tokens = Tokens::of(text);
        while let Some(statement) = tokens.statement() {
            let words: Vec<&str> = statement.iter().map(String::as_str).collect();
            changes.extend(change_of(&words));
        }
        (!tokens.are_uncertain()).then_some(Self { changes })
    }

    /// `None` where they reset nothing and name no savepoint.
    pub(crate) fn of_query(text: &[u8]) -> Result<Option<Arc<Self>>, Unread> {
        Self::of_running(text, false, |_| Ok(None))
    }

    /// The same, where SQL can run by its name what the protocol has prepared. `whole`: also what is set where nothing is reset; `runs`: what
    /// the statement of a name does.
    pub(crate) fn of_running(
        text: &[u8],
        whole: bool,
        runs: impl Fn(&str) -> Result<Option<Arc<Self>>, Unread>,
    ) -> Result<Option<Arc<Self>>, Unread> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Unread);
        }
        if !whole && Self::are_absent(text) {
            return Ok(None);
        }
        let mut resets = Self { changes: Vec::new() };
        for change in Self::read(text).ok_or(Unread)?.changes {
            match change {
                Change::Execute(name) => resets.changes.extend(runs(&name)?.iter().flat_map(|run| run.changes.clone())),
                change => resets.changes.push(change),
            }
        }
        Ok((whole || !resets.is_nothing()).then(|| Arc::new(resets)))
    }

    /// Of a statement, and which it executes by name.
    pub(crate) fn of_statement(text: &[u8]) -> Option<Arc<Self>> {
        if text.len() > TEXT_BYTES_MAX || Self::are_absent(text) {
            return None;
        }
        // PostgreSQL prepares no more than one.
        let counts = |resets: &Self| resets.executes().is_some() || !resets.is_nothing();
        Self::read(text).filter(|resets| resets.changes.len() == 1 && counts(resets)).map(Arc::new)
    }

    /// The statement that it executes, where it does nothing else.
    pub(crate) fn executes(&self) -> Option<&str> {
        match &self.changes[..] {
            [Change::Execute(name)] => Some(name),
            _ => None,
        }
    }

    /// The same, and `None` where the text is not read.
    pub(crate) fn of_text(text: &[u8]) -> Option<Arc<Self>> {
        Self::of_query(text).ok().flatten()
    }

    pub(super) fn is_nothing(&self) -> bool {
        let is_nothing = |change: &Change| {
            matches!(
                change,
                Change::Set(_) | Change::SetLocal(_) | Change::Rollback | Change::Execute(_) | Change::Nothing
            )
        };
        self.changes.iter().all(is_nothing)
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Change> {
        self.changes.get(at)
    }

    /// Whether one of them does.
    pub(crate) fn resets(&self, name: &str) -> bool {
        self.changes.iter().any(|change| change.resets(name))
    }
}

/// Whether a statement of the text may follow one that takes a transaction back, or a part of it. `commits`: or one that ends it in
/// another way.
pub(crate) fn goes_on_behind_rollback(text: &[u8], commits: bool) -> bool {
    if text.len() > TEXT_BYTES_MAX {
        return true;
    }
    let mut tokens = Tokens::of(text);
    let mut rolled_back = false;
    while let Some(statement) = tokens.statement() {
        if rolled_back && statement[0] != ";" {
            return true;
        }
        rolled_back |= match &*statement[0] {
            "rollback" | "abort" => true,
            "commit" | "end" | "prepare" => commits,
            _ => false,
        };
    }
    tokens.are_uncertain()
}

fn change_of(words: &[&str]) -> Option<Change> {
    Some(match words {
        ["discard", "all"] => Change::DiscardAll,
        ["reset", "all"] => Change::ResetAll,
        ["reset", "time", "zone"] | ["set", "time", "zone", "default" | "local"] => Change::Reset("timezone".into()),
        ["reset", "session", "authorization"] => Change::Reset(ROLE.into()),
        ["reset", name @ ..] => Change::Reset(named(name)),
        // Has a tag of its own.
        ["set", "constraints", ..] => return None,
        ["set", "session", rest @ ..] if rest.first() != Some(&"authorization") => set_of(rest),
        ["set", "local", rest @ ..] => match set_of(rest) {
            Change::Set(name) => Change::SetLocal(name),
            _ => Change::Nothing,
        },
        ["set", rest @ ..] => set_of(rest),
        // Has a tag of its own.
        ["rollback", "prepared", ..] => return None,
        ["rollback", "to", ..] | ["rollback", "work" | "transaction", "to", ..] => Change::RollbackToSavepoint,
        ["rollback" | "abort", ..] => Change::Rollback,
        ["execute", name, ..] => Change::Execute(name_of(&[name]).into()),
        _ => return None,
    })
}

/// What gives a session another user gives it that user's role, or the session's own back (`set_config_with_handle`,
/// src/backend/utils/misc/guc.c).
fn named(words: &[&str]) -> Box<str> {
    let name = name_of(words);
    if name.eq_ignore_ascii_case("session_authorization") { ROLE.into() } else { name.into() }
}

fn set_of(words: &[&str]) -> Change {
    match words {
        ["time", "zone", "default" | "local"] => Change::Reset("timezone".into()),
        ["time", "zone", ..] => Change::Set("timezone".into()),
        ["names"] | ["names", "default"] => Change::Reset("client_encoding".into()),
        ["names", ..] => Change::Set("client_encoding".into()),
        ["schema", ..] => Change::Set("search_path".into()),
        ["xml", "option", ..] => Change::Set("xmloption".into()),
        ["session", "authorization", "default"] => Change::Reset(ROLE.into()),
        ["session", "authorization", ..] => Change::Set(ROLE.into()),
        ["role", value, ..] if !matches!(*value, "to" | "=") => Change::Set(ROLE.into()),
        _ => {
            let Some(to) = words.iter().position(|word| matches!(*word, "to" | "=")) else { return Change::Nothing };
            let name = named(&words[..to]);
            if words[to + 1..] == ["default"] { Change::Reset(name) } else { Change::Set(name) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(text: &str) -> String {
        let Some(resets) = Resets::read(text.as_bytes()) else { return "?".to_owned() };
        assert!(resets.is_nothing() || !Resets::are_absent(text.as_bytes()), "{text}");
        let names = ["TimeZone", "search_path", "client_encoding", "role", "my.x"];
        let is_reset = |name: &&str| {
            let last = resets.changes.iter().rfind(|change| change.resets(name) || change.sets(name));
            last.is_some_and(|change| change.resets(name))
        };
        names.into_iter().filter(is_reset).collect::<Vec<_>>().join(" ")
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
            ("set search_path to \"default\"", ""),
            ("set \"search_path\" to default", "search_path"),
            ("reset U&\"\\0074imezone\"", "?"),
            ("set session authorization default", "role"),
            ("set session session authorization default", "role"),
            ("reset session authorization", "role"),
            ("reset session_authorization", "role"),
            ("set session_authorization = default", "role"),
            ("reset role; set session authorization x", ""),
            ("set role to default", "role"),
            ("set role = DEFAULT", "role"),
            ("set session role to default", "role"),
            ("reset role; set role x", ""),
            ("reset role; set role to x", ""),
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
            (r"select '\'; reset role; ', '", "?"),
            (r"set my.x = '\\'; reset timezone", "?"),
        ] {
            assert_eq!(covered(text), expected, "{text}");
        }
    }

    #[test]
    fn savepoints() {
        for (text, expected) in [
            ("rollback to savepoint a", "to"),
            (" ROLLBACK /* all */ WORK to a;", "to"),
            ("rollback transaction to savepoint \"x\"", "to"),
            ("rollback", "all"),
            ("rollback work and chain", "all"),
            ("abort", "all"),
            ("rollback prepared 'to'", ""),
            ("savepoint a", ""),
            ("release to", ""),
        ] {
            let resets = Resets::read(text.as_bytes()).unwrap();
            let read = match resets.get(0) {
                Some(Change::Rollback) => "all",
                Some(Change::RollbackToSavepoint) => "to",
                _ => "",
            };
            assert_eq!(read, expected, "{text}");
            assert_eq!(Resets::of_text(text.as_bytes()).is_some(), read == "to", "{text}");
        }
    }

    #[test]
    fn what_goes_on_behind_a_rollback() {
        for (text, failed, expected) in [
            ("rollback", false, false),
            ("rollback;; -- so\n", false, false),
            ("select 1; rollback work;", false, false),
            ("rollback; select 1", false, true),
            ("abort; begin", false, true),
            ("rollback to s; select 1", false, true),
            ("commit; select 1", false, false),
            ("commit; select 1", true, true),
            ("end; rollback", true, true),
            ("select 'rollback; x'", true, false),
            ("select '\\'; rollback; select '", false, true),
        ] {
            assert_eq!(goes_on_behind_rollback(text.as_bytes(), failed), expected, "{text}");
        }
        assert!(goes_on_behind_rollback(&vec![b' '; TEXT_BYTES_MAX + 1], false), "it is not read");
    }

    /// One for each command tag RESET, SET, DISCARD ALL or ROLLBACK.
    #[test]
    fn changes_are_in_the_order_of_their_tags() {
        let text = b"set constraints all deferred; set local a = 1; set transaction read only; discard plans; \
                     set session authorization x; reset b; set c to d; rollback to a; abort; discard all";
        let tags: [&[u8]; 8] =
            [b"SET\0", b"SET\0", b"SET\0", b"RESET\0", b"SET\0", b"ROLLBACK\0", b"ROLLBACK\0", b"DISCARD ALL\0"];
        let resets = Resets::read(text).unwrap();
        assert_eq!(resets.changes.len(), tags.len());
        assert!(resets.changes.iter().zip(tags).all(|(change, tag)| change.has_tag(tag)));
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
