//! Requests that do nothing but begin a transaction, say what it is, or end it: what is answered while its transaction has no server.

use weir_wire::frontend::{BindNames, Parse};
use weir_wire::{FrontendTag, HEADER_LEN, Header, TransactionStatus, write};

use crate::client::Session;
use crate::statements::definition::text_of;

/// Behind the names of a Bind: neither formats nor values, and no format of results, or one.
const NO_VALUES: [u8; 6] = [0; 6];
const NO_VALUES_ONE_FORMAT: [u8; 6] = [0, 0, 0, 0, 0, 1];
/// An Execute of the unnamed portal, and its Describe.
const UNNAMED_PORTAL: u8 = 0;
const DESCRIBES_UNNAMED_PORTAL: [u8; 2] = [b'P', UNNAMED_PORTAL];

/// One statement, and nothing else that its client waits for: a simple query, or a batch of the extended protocol that carries it out.
#[derive(Debug, Default)]
pub(super) struct Lone {
    pub(super) text: Vec<u8>,
    /// The unnamed statement that it is parsed as.
    pub(super) parsed: Option<Vec<u8>>,
    bound: bool,
    described: bool,
}

impl Lone {
    pub(super) fn query(text: &[u8]) -> Self {
        Self { text: text.to_vec(), ..Self::default() }
    }

    /// Of a whole batch, its Sync with it. PostgreSQL refuses none that is read here, if the statement has no result.
    pub(super) fn batch(mut bytes: &[u8], session: &Session) -> Option<Self> {
        let (mut lone, mut executed) = (Self::default(), false);
        while let Some(head) = bytes.first_chunk::<HEADER_LEN>() {
            let header = Header::parse(head);
            let end = HEADER_LEN + header.body_len? as usize;
            let body = bytes.get(HEADER_LEN..end)?;
            bytes = &bytes[end..];
            match FrontendTag::from_byte(header.tag)? {
                FrontendTag::Parse if lone.parsed.is_none() && !lone.bound => {
                    let parse = Parse::read(body).ok().filter(|parse| parse.name.is_empty())?;
                    lone.text = untyped(parse.definition)?.to_vec();
                    lone.parsed = Some(parse.definition.to_vec());
                }
                FrontendTag::Bind if !lone.bound => lone.binds(body, session)?,
                FrontendTag::Describe if lone.bound && !executed && !lone.described => {
                    lone.described = (body == DESCRIBES_UNNAMED_PORTAL).then_some(true)?;
                }
                FrontendTag::Execute if lone.bound && !executed => {
                    executed = (body.len() == 5 && body[0] == UNNAMED_PORTAL).then_some(true)?;
                }
                FrontendTag::Sync if executed && body.is_empty() && bytes.is_empty() => return Some(lone),
                _ => return None,
            }
        }
        None
    }

    fn binds(&mut self, body: &[u8], session: &Session) -> Option<()> {
        let names = BindNames::parse(body).filter(|names| names.portal.is_empty())?;
        let values = body[names.len()..].split_first_chunk::<6>()?;
        if !matches!(values, (&NO_VALUES, []) | (&NO_VALUES_ONE_FORMAT, [0, 0 | 1])) {
            return None;
        }
        self.bound = true;
        if self.parsed.is_some() {
            return names.statement.is_empty().then_some(());
        }
        let definition = if names.statement.is_empty() {
            session.unnamed.is_portable().then(|| session.unnamed.last())?
        } else {
            let held = session.statements.get(names.statement).filter(|held| !session.statements.is_doubted(held))?;
            &held.statement.definition
        };
        self.text = untyped(definition)?.to_vec();
        Some(())
    }

    /// What PostgreSQL answers.
    pub(super) fn answer(&self, out: &mut Vec<u8>, tag: &str, status: TransactionStatus) {
        if self.parsed.is_some() {
            write::parse_complete(out);
        }
        if self.bound {
            write::bind_complete(out);
        }
        if self.described {
            write::no_data(out);
        }
        write::command_complete(out, tag);
        write::ready(out, status);
    }

    /// A simple query destroys the unnamed statement.
    pub(super) fn is_query(&self) -> bool {
        !self.bound
    }
}

/// The text of one that takes no parameters: for whichever types stand there, values have to come.
fn untyped(definition: &[u8]) -> Option<&[u8]> {
    Some(text_of(definition)).filter(|text| definition.len() == text.len() + 3)
}

/// A statement without the semicolon that may end it.
pub(super) fn bare(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    text.strip_suffix(b";").unwrap_or(text)
}

pub(super) fn first_word(text: &[u8]) -> Vec<u8> {
    let word = text.trim_ascii_start().split(|byte| !byte.is_ascii_alphabetic()).next().unwrap_or_default();
    word.to_ascii_lowercase()
}

/// One statement alone, without comments, that begins with its word.
pub(super) fn is_lone(text: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'\t' | b'\n' | b',');
    bare(text).iter().all(is_plain) && matches!(first_word(text).as_slice(), b"begin" | b"start")
}

/// What PostgreSQL cannot refuse, and nothing behind it is read by: what a transaction is, and time limits that are so many milliseconds or seconds.
pub(super) fn is_sure_to_be_set(text: &[u8]) -> bool {
    const LIMITS: [&str; 3] = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"];
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let said = text.trim_ascii().trim_end_matches(';').replace('=', " = ");
    let lower = said.to_ascii_lowercase();
    let words: Vec<_> = lower.split_ascii_whitespace().collect();
    match words.as_slice() {
        ["set", "transaction", "isolation", "level", "serializable"]
        | ["set", "transaction", "isolation", "level", "repeatable", "read"]
        | ["set", "transaction", "isolation", "level", "read", "committed" | "uncommitted"]
        | ["set", "transaction", "read", "only" | "write"] => true,
        // Units are in small letters.
        ["set", "local", name, "=" | "to", value] if LIMITS.contains(name) && said.ends_with(value) => {
            let quoted = value.strip_prefix('\'').and_then(|value| value.strip_suffix('\''));
            let unit = quoted.and_then(|value| value.strip_suffix("ms").or(value.strip_suffix('s')));
            let digits = unit.or(quoted).unwrap_or(value);
            // What begins with a zero may be octal.
            let is_decimal = digits == "0" || !digits.starts_with('0');
            is_decimal && (1..=6).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    }
}

pub(super) fn ends_plainly(text: &[u8]) -> bool {
    let text = bare(text).to_ascii_lowercase();
    let mut words = text.trim_ascii().split(u8::is_ascii_whitespace);
    let first = words.next().unwrap_or_default();
    let is_end = matches!(first, b"commit" | b"end" | b"rollback" | b"abort");
    let rest: Vec<_> = words.collect();
    is_end && (rest.is_empty() || matches!(rest.as_slice(), [b"transaction" | b"work"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_cannot_be_refused() {
        for text in [
            "SET LOCAL Statement_Timeout = '5s'",
            "set local lock_timeout to 100;",
            "set local lock_timeout='250ms'",
            "set local statement_timeout = 0",
            "Set Transaction Read Only",
            "set transaction isolation level repeatable read",
        ] {
            assert!(is_sure_to_be_set(text.as_bytes()), "{text}");
        }
        for text in [
            "set local statement_timeout = '5S'",
            "set local statement_timeout = '08'",
            "set local statement_timeout = 08",
            "set local statement_timeout = 5s",
            "set local statement_timeout = '-1'",
            "set local statement_timeout = ''",
            "set local statement_timeout = 1; select 1",
            "set local search_path = a",
            "set transaction snapshot 'a'",
        ] {
            assert!(!is_sure_to_be_set(text.as_bytes()), "{text}");
        }
    }
}
