//! Which prepared statements a request may close by SQL, as far as its text tells.

use super::Effect;
use super::effect::begins_with;
use crate::message::DEALLOCATE;
use crate::owed::{MAY_CLOSE, Owed, may_close_all_behind};
use crate::sql::Tokens;

const WORDS: [&[u8]; 2] = [DEALLOCATE, b"discard"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closes {
    Nothing,
    /// Perhaps some, or all; a command tag tells of those, but for its last statement where the commit fails behind that.
    Some,
    /// The same, and that last one, behind so many others, closes all.
    AllBehind(usize),
}

impl Closes {
    /// Of a simple query. A long one is not waited for.
    #[inline]
    pub(crate) fn of_query(body: &[u8], whole: bool) -> Self {
        let Some((&first, rest)) = body.split_first() else { return Self::Some };
        if !whole {
            return Self::Some;
        }
        // Most are a single statement that begins with another word. A `;` may stand at the end.
        let inner = &rest[..rest.len().saturating_sub(2)];
        let is_one = first.is_ascii_alphabetic() && !inner.iter().fold(false, |found, byte| found | (*byte == b';'));
        if is_one && !begins_with(body, &WORDS) { Self::Nothing } else { Self::by_its_words(body) }
    }

    #[cold]
    fn by_its_words(body: &[u8]) -> Self {
        let has = |word: &[u8]| body.windows(word.len()).any(|at| at.eq_ignore_ascii_case(word));
        if !WORDS.into_iter().any(has) {
            return Self::Nothing;
        }
        let mut tokens = Tokens::of(body.strip_suffix(&[0]).unwrap_or(body));
        let (mut commands, mut last) = (0, Vec::new());
        while let Some(statement) = tokens.statement() {
            commands += usize::from(statement[0] != ";");
            last = statement;
        }
        match last.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            _ if tokens.are_uncertain() => Self::AllBehind(0),
            ["deallocate", "all"] | ["deallocate", "prepare", "all"] | ["discard", "all"] => {
                Self::AllBehind(commands - 1)
            }
            _ => Self::Some,
        }
    }

    /// Of an Execute.
    pub(crate) fn of_execute(effect: Effect) -> Self {
        match effect {
            // The tag DEALLOCATE is sent before anything is committed, and DISCARD ALL is the only other one to close any.
            Effect::Deallocates => Self::AllBehind(0),
            Effect::Unknown => Self::Some,
            _ => Self::Nothing,
        }
    }

    /// Marks a request that does so. `last`: the number of the last name that its client has given.
    pub(crate) fn mark(self, owed: Owed, last: u64) -> Owed {
        match self {
            Self::Nothing => owed,
            Self::Some => owed.statement(MAY_CLOSE),
            Self::AllBehind(commands) => owed.statement(may_close_all_behind(commands)).name(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_that_close_statements() {
        for (text, closes) in [
            ("select 1", Closes::Nothing),
            ("select 1;", Closes::Nothing),
            ("delete from t", Closes::Nothing),
            ("select 1; select 2", Closes::Nothing),
            ("select 1; DEALLOCATE a", Closes::Some),
            ("deallocate all; select 1", Closes::Some),
            ("insert into t values (1); select 'discard all'", Closes::Some),
            ("deallocate \"all\"", Closes::Some),
            ("deallocate all", Closes::AllBehind(0)),
            ("insert into t values (';'); Deallocate /* ; */ PREPARE all -- now\n;", Closes::AllBehind(1)),
            ("/* so */; select 1;; select 2; discard all", Closes::AllBehind(2)),
            ("select 'a\\'; deallocate all; --'", Closes::AllBehind(0)),
        ] {
            assert_eq!(Closes::of_query(format!("{text}\0").as_bytes(), true), closes, "{text}");
        }
        assert_eq!(Closes::of_query(b"select", false), Closes::Some);
    }

    #[test]
    fn statements_that_close_statements() {
        for (text, closes) in [
            ("select 'discard'", Closes::Nothing),
            ("\tdeallocate a", Closes::AllBehind(0)),
            ("/* so */ ;-- \n DISCARD ALL", Closes::AllBehind(0)),
            ("", Closes::Some),
        ] {
            assert_eq!(Closes::of_execute(Effect::of(text.as_bytes())), closes, "{text}");
        }
    }
}
