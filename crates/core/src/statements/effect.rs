//! What a statement may do to its session and transaction, as far as its text tells.

use super::definition::text_of;
use crate::parameters::reading;
use crate::sql::from_first_word;

/// What a statement may do to the session, by its first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Effect {
    /// It begins a transaction, and leaves the session's parameters alone.
    BeginsTransaction,
    /// It ends a transaction, or a part of one: what was set in it may be taken back.
    EndsTransaction,
    /// It sets a parameter that parsing does not read.
    SetsUnread,
    /// It closes prepared statements.
    Deallocates,
    /// It sets no parameter that parsing reads, unless a function does that it calls.
    Plain,
    /// There is nothing to execute.
    Empty,
    /// What it sets its command tag tells, unless a function does that it calls.
    Tagged,
    /// The same, of SET and RESET, which begin a transaction as queries do.
    Sets,
    /// It calls the function that sets parameters: no tag need tell what it sets.
    Anything,
    /// The same, in a query, which ends no transaction.
    Calls,
    /// Its text is not known: it may do all of this.
    #[default]
    Unknown,
}

/// What executing a statement does to the transaction that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    /// It is not known to be there: an empty statement neither begins a transaction nor ends one.
    MayBeEmpty,
    MayEnd,
    Within,
}

impl Effect {
    pub(crate) fn of(definition: &[u8]) -> Self {
        const PLAIN: [&[u8]; 7] = [b"insert", b"update", b"delete", b"with", b"values", b"merge", b"table"];
        // Empty is what was too long to keep.
        if definition.is_empty() {
            return Self::Unknown;
        }
        let text = from_first_word(definition);
        let queries = reading::selects(text) || begins_with(text, &PLAIN);
        if names_set_config(text) {
            return if queries { Self::Calls } else { Self::Anything };
        }
        if queries {
            Self::Plain
        } else if reading::sets_unread(text) {
            Self::SetsUnread
        } else if begins_with(text, &[b"begin", b"start", b"savepoint", b"release"]) {
            Self::BeginsTransaction
        } else if begins_with(text, &[b"commit", b"end", b"rollback", b"abort"]) {
            Self::EndsTransaction
        } else if begins_with(text, &[b"deallocate", b"discard"]) {
            Self::Deallocates
        } else if begins_with(text, &[b"set", b"reset"]) {
            Self::Sets
        } else if text_of(text).is_empty() {
            Self::Empty
        } else {
            Self::Tagged
        }
    }

    /// Whether it may set parameters that parsing reads, for all that its text says.
    pub(crate) fn may_set(self) -> bool {
        matches!(self, Self::Anything | Self::Calls | Self::Unknown | Self::Tagged | Self::Sets | Self::Deallocates)
    }

    /// Whether it may set one without a word.
    pub(crate) fn may_set_untold(self) -> bool {
        matches!(self, Self::Anything | Self::Calls | Self::Unknown)
    }

    pub(crate) fn runs(self) -> Runs {
        match self {
            Self::Plain | Self::Calls | Self::BeginsTransaction | Self::Sets | Self::SetsUnread => Runs::Within,
            Self::EndsTransaction | Self::Deallocates | Self::Tagged => Runs::MayEnd,
            Self::Empty | Self::Anything | Self::Unknown => Runs::MayBeEmpty,
        }
    }
}

pub(super) fn begins_with(text: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|word| {
        let ends = text.get(word.len()).is_none_or(|next| !next.is_ascii_alphanumeric() && *next != b'_');
        text.len() >= word.len() && ends && text[..word.len()].eq_ignore_ascii_case(word)
    })
}

/// Whether a text may call the one function of PostgreSQL's own that sets parameters.
pub(crate) fn names_set_config(text: &[u8]) -> bool {
    // Most texts have neither of these pairs anywhere; sixteen places are looked at as one, the last of them twice.
    const IN_NAME: [u8; 2] = *b"_c";
    const IN_ESCAPED: [u8; 2] = *b"&\"";
    const PLACES: usize = 16;
    let mut seen = [0; PLACES];
    let mut look = |at: &[u8; PLACES + 1]| {
        for (place, seen) in seen.iter_mut().enumerate() {
            let pair = [at[place], at[place + 1]];
            let in_name = (pair[0] == IN_NAME[0]) & (pair[1] | 0x20 == IN_NAME[1]);
            let in_escaped = (pair[0] == IN_ESCAPED[0]) & (pair[1] == IN_ESCAPED[1]);
            *seen |= u8::from(in_name | in_escaped);
        }
    };
    // A call with its three arguments is longer.
    let Some(last) = text.last_chunk() else { return false };
    let mut rest = text;
    while let Some(at) = rest.first_chunk() {
        look(at);
        rest = &rest[PLACES..];
    }
    look(last);
    seen != [0; PLACES] && calls_set_config(text)
}

/// By its name, or by one that is written in Unicode escapes and may be any.
#[cold]
fn calls_set_config(text: &[u8]) -> bool {
    let has = |word: &[u8]| text.windows(word.len()).any(|at| at.eq_ignore_ascii_case(word));
    has(b"set_config") || has(b"u&\"")
}

/// Whether a statement is one that PostgreSQL does not analyse at its Parse (`transformStmt`, src/backend/parser/analyze.c at 15:
/// the default of its switch), so that no literal is read under the parameters: it is analysed when it is executed, under those of
/// then. Among them are those that a transaction which has failed lets through, those that may not run behind another of their
/// batch (`PreventInTransactionBlock`) or end transactions themselves, and LOCK, ahead of which no snapshot may be taken: a query of
/// ours in front that sets parameters would be the failure of each. The scanner alone reads under parameters: what a backslash
/// and `U&` mean, and other bytes than ASCII.
pub(crate) fn reads_nothing(definition: &[u8]) -> bool {
    const WORDS: [&[u8]; 41] = [
        b"abort",
        b"alter",
        b"analyse",
        b"analyze",
        b"begin",
        b"checkpoint",
        b"close",
        b"cluster",
        b"comment",
        b"commit",
        b"copy",
        b"deallocate",
        b"discard",
        b"do",
        b"drop",
        b"end",
        b"execute",
        b"fetch",
        b"grant",
        b"import",
        b"listen",
        b"load",
        b"lock",
        b"move",
        b"notify",
        b"prepare",
        b"reassign",
        b"refresh",
        b"reindex",
        b"release",
        b"reset",
        b"revoke",
        b"rollback",
        b"savepoint",
        b"security",
        b"set",
        b"show",
        b"start",
        b"truncate",
        b"unlisten",
        b"vacuum",
    ];
    let text = from_first_word(definition);
    // CREATE TABLE ... AS and its like are analysed.
    let has_as = || {
        text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').any(|word| word.eq_ignore_ascii_case(b"as"))
    };
    let begins =
        begins_with(text, &WORDS) || (begins_with(text, &[b"create"]) && !has_as()) || text_of(text).is_empty();
    let escapes = definition.contains(&b'\\') || definition.windows(2).any(|at| at.eq_ignore_ascii_case(b"u&"));
    begins && definition.is_ascii() && !escapes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sets_parameters_is_told_from_what_does_not() {
        for plain in ["select 1", " WITH a as (select 1) table a", "insert into t_c values ('x')", "select config"] {
            assert_eq!(Effect::of(plain.as_bytes()), Effect::Plain, "{plain}");
        }
        for sets in [
            "set timezone = 'UTC'",
            "select SET_Config('a', 'b', false)",
            "discard all",
            "do $$$$",
            "call f()",
            "explain select 1",
        ] {
            assert!(Effect::of(sets.as_bytes()).may_set(), "{sets}");
        }
        for untold in [
            "",
            "select SET_Config('a', 'b', false)",
            "table set_config(a,b,c)",
            "explain analyze select pg_catalog.\"set_config\"('a', 'b', true)",
            r#"select U&"set\005fconfig"('a', 'b', true)"#,
        ] {
            assert!(Effect::of(untold.as_bytes()).may_set_untold(), "{untold}");
        }
        assert_eq!(Effect::of(b"start transaction"), Effect::BeginsTransaction);
        for ends in ["commit", "END", "rollback to s", "abort"] {
            assert_eq!(Effect::of(ends.as_bytes()), Effect::EndsTransaction, "{ends}");
        }
        for empty in ["\0\0\0", "-- so\0\0\0", " ;/* so */\0"] {
            assert_eq!(Effect::of(empty.as_bytes()), Effect::Empty, "{empty:?}");
        }
        assert!(!Effect::EndsTransaction.may_set() && !Effect::EndsTransaction.may_set_untold());
    }

    #[test]
    fn what_reads_no_parameter_is_told_from_what_may() {
        for nothing in [
            "lock t",
            " DO $$begin commit; end$$",
            "/* a&b */ lock t",
            "create  Unique index i on t(a)",
            "create database d",
            "create table t (a int)",
            "create temp table t (a text) on commit drop",
            "fetch 1 from c",
            "copy t from stdin",
            "copy (select date '01/02/2020') to stdout",
            "execute p('x')",
            "",
            " ; -- as\n",
            "alter system reset a",
        ] {
            assert!(reads_nothing(nothing.as_bytes()), "{nothing}");
        }
        for may in [
            "select 1",
            "call p()",
            "explain select 1",
            "declare c cursor for select 1",
            "create table t as select 1",
            "create materialized view v as select 1",
            "create table t(a)as(select 1)",
            "locks",
            "do 'a\\b'",
            "do U&'a'",
            "comment on table t is '\u{e4}'",
        ] {
            assert!(!reads_nothing(may.as_bytes()), "{may}");
        }
    }
}
