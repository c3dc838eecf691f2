//! What stands behind a word of a text, where its meaning hangs on that.

use super::{is_one_of, is_word};
use crate::sql::{Raw, Tokens};

/// Behind a name that is called.
pub(super) fn calls(behind: &Tokens<'_>) -> bool {
    matches!(behind.clone().raw(), Some(Raw::Sign(b'(')))
}

/// Behind CREATE.
pub(super) fn is_temporary(behind: &mut Tokens<'_>) -> bool {
    loop {
        match behind.raw() {
            token if is_one_of(token, &[b"or", b"replace", b"global", b"local"]) => {}
            token => return is_one_of(token, &[b"temp", b"temporary"]),
        }
    }
}

/// Behind VACUUM and its like.
pub(super) fn names_table(behind: &mut Tokens<'_>) -> bool {
    const OPTIONS: [&[u8]; 8] =
        [b"analyse", b"analyze", b"concurrently", b"freeze", b"full", b"only", b"table", b"verbose"];
    const OF_MANY: [&[u8]; 4] = [b"database", b"index", b"schema", b"system"];
    let mut in_list = false;
    loop {
        match behind.raw() {
            Some(Raw::Sign(sign @ (b'(' | b')'))) => in_list = sign == b'(',
            Some(_) if in_list => {}
            Some(Raw::Name(_)) => return true,
            Some(token @ Raw::Word(_)) if is_one_of(Some(token), &OPTIONS) => {}
            Some(token @ Raw::Word(_)) => return !is_one_of(Some(token), &OF_MANY),
            _ => return false,
        }
    }
}

/// Behind DECLARE: a cursor WITH HOLD.
pub(super) fn is_held(behind: &mut Tokens<'_>) -> bool {
    /// A name, what it is like, and these words.
    const TOKENS_MAX: usize = 12;
    let mut with = false;
    for _ in 0..TOKENS_MAX {
        match behind.raw() {
            Some(token) if with && is_word(token, b"hold") => return true,
            Some(token) if !is_word(token, b"for") => with = is_word(token, b"with"),
            _ => return false,
        }
    }
    false
}

/// Behind DO, not ON CONFLICT DO or a rule's.
pub(super) fn begins_code(tokens: &mut Tokens<'_>) -> bool {
    match tokens.raw() {
        Some(Raw::Dollars(_) | Raw::Text(_)) => true,
        Some(token @ Raw::Word(_)) => {
            // U&'...'
            let in_escapes = is_word(token, b"u") && matches!(tokens.raw(), Some(Raw::Sign(b'&')));
            in_escapes || is_word(token, b"language")
        }
        _ => false,
    }
}

pub(super) fn next_is(tokens: &mut Tokens<'_>, word: &[u8]) -> bool {
    tokens.raw().is_some_and(|token| is_word(token, word))
}
