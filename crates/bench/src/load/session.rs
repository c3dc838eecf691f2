//! A client's session as bytes: login, and where replies end. Sans I/O, and small, since there may be 100 000 of them.
//!
//! Knows message headers and the messages of a login; bodies of everything else are skipped, never held. Does not know
//! sockets, TLS or time. "Message Flow" and "Message Formats" of PostgreSQL's protocol chapter.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::scram::{Exchange, Keys};

const HEADER_LEN: usize = 5;
/// An error or a step of a login is some hundred bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;
const SCRAM: &str = "SCRAM-SHA-256";

const AUTHENTICATION: u8 = b'R';
const ERROR_RESPONSE: u8 = b'E';
const READY_FOR_QUERY: u8 = b'Z';
const COPY_IN_RESPONSE: u8 = b'G';
const DATA_ROW: u8 = b'D';

/// Who logs in, and where.
pub struct Identity {
    pub user: String,
    pub database: String,
    pub keys: Keys,
}

/// What some bytes have brought.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// ReadyForQuery: the login, or the last query, is complete.
    pub ready: bool,
    pub copy_in: bool,
}

pub struct Session {
    identity: Arc<Identity>,
    exchange: Option<Box<Exchange>>,
    header: [u8; HEADER_LEN],
    header_len: usize,
    body_left: usize,
    /// The message that is being collected, header included; empty while bodies are skipped.
    collected: Vec<u8>,
    rows: Option<Vec<u8>>,
}

impl Session {
    /// The session, and the bytes that begin it.
    pub fn begin(identity: Arc<Identity>, out: &mut Vec<u8>) -> Result<Session> {
        let mut startup = BytesMut::new();
        let parameters = [("user", identity.user.as_str()), ("database", identity.database.as_str())];
        frontend::startup_message(parameters, &mut startup).context("cannot write a startup message")?;
        out.extend_from_slice(&startup);
        Ok(Session {
            identity,
            exchange: None,
            header: [0; HEADER_LEN],
            header_len: 0,
            body_left: 0,
            collected: Vec::new(),
            rows: None,
        })
    }

    /// Keeps DataRow messages from now on, for short answers that are read.
    pub fn keep_rows(&mut self) {
        self.rows = Some(Vec::new());
    }

    /// The DataRow messages since `keep_rows`.
    pub fn take_rows(&mut self) -> Vec<u8> {
        self.rows.take().unwrap_or_default()
    }

    /// Takes bytes of the server; `out` gets what has to be answered. An ErrorResponse is an error here.
    pub fn receive(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<Seen> {
        let mut seen = Seen::default();
        while !bytes.is_empty() {
            if self.header_len < HEADER_LEN {
                let count = bytes.len().min(HEADER_LEN - self.header_len);
                self.header[self.header_len..self.header_len + count].copy_from_slice(&bytes[..count]);
                self.header_len += count;
                bytes = &bytes[count..];
                if self.header_len < HEADER_LEN {
                    break;
                }
                self.begin_body()?;
            }
            let count = bytes.len().min(self.body_left);
            if !self.collected.is_empty() {
                self.collected.extend_from_slice(&bytes[..count]);
            }
            self.body_left -= count;
            bytes = &bytes[count..];
            if self.body_left == 0 {
                self.end_body(out, &mut seen)?;
                self.header_len = 0;
            }
        }
        Ok(seen)
    }

    fn begin_body(&mut self) -> Result<()> {
        let [tag, a, b, c, d] = self.header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        self.body_left = length.checked_sub(4).with_context(|| format!("a message of length {length}"))?;
        let wanted = matches!(tag, AUTHENTICATION | ERROR_RESPONSE) || (tag == DATA_ROW && self.rows.is_some());
        if wanted {
            if self.body_left > BODY_BYTES_MAX {
                bail!("a message of {length} bytes where a short one was expected");
            }
            self.collected.extend_from_slice(&self.header);
        }
        Ok(())
    }

    fn end_body(&mut self, out: &mut Vec<u8>, seen: &mut Seen) -> Result<()> {
        match self.header[0] {
            READY_FOR_QUERY => seen.ready = true,
            COPY_IN_RESPONSE => seen.copy_in = true,
            _ if self.collected.is_empty() => {}
            DATA_ROW => {
                let row = std::mem::take(&mut self.collected);
                self.rows.get_or_insert_default().extend_from_slice(&row);
            }
            _ => {
                let message = std::mem::take(&mut self.collected);
                self.step(&message, out)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let parsed = Message::parse(&mut BytesMut::from(message)).context("not PostgreSQL's protocol")?;
        let mut answer = BytesMut::new();
        match parsed.context("half a message")? {
            Message::AuthenticationOk | Message::AuthenticationSaslFinal(_) => {}
            Message::AuthenticationSasl(_) => {
                let exchange = Exchange::begin()?;
                frontend::sasl_initial_response(SCRAM, exchange.client_first().as_bytes(), &mut answer)?;
                self.exchange = Some(Box::new(exchange));
            }
            Message::AuthenticationSaslContinue(body) => {
                let exchange = self.exchange.take().context("SCRAM goes on without a beginning")?;
                let server_first = std::str::from_utf8(body.data()).context("SCRAM is not text")?;
                let last = exchange.client_final(server_first, &self.identity.keys)?;
                frontend::sasl_response(last.as_bytes(), &mut answer)?;
            }
            Message::ErrorResponse(error) => {
                // The human-readable message: "Error and Notice Message Fields" of the protocol chapter.
                let text = error.fields().find(|field| Ok(field.type_() == b'M')).ok().flatten();
                let text = text.map(|field| String::from_utf8_lossy(field.value_bytes()).into_owned());
                let text = text.unwrap_or_else(|| "without a message".to_owned());
                bail!("refused: {text}");
            }
            _ => bail!("a way to log in that the lab does not have"),
        }
        out.extend_from_slice(&answer);
        Ok(())
    }
}

pub fn query(text: &str, out: &mut Vec<u8>) -> Result<()> {
    let mut message = BytesMut::new();
    frontend::query(text, &mut message).context("a query with a zero byte")?;
    out.extend_from_slice(&message);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let identity = Identity { user: "u".to_owned(), database: "d".to_owned(), keys: Keys::of("p") };
        let mut out = Vec::new();
        let session = Session::begin(Arc::new(identity), &mut out).unwrap();
        assert!(out.windows(5).any(|part| part == b"user\0"));
        session
    }

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[tag], &length.to_be_bytes()[..], body].concat()
    }

    #[test]
    fn replies_end_at_ready_however_they_are_split() {
        let bytes =
            [message(AUTHENTICATION, &[0, 0, 0, 0]), message(b'S', b"a\0b\0"), message(READY_FOR_QUERY, b"I")].concat();
        for at in 0..bytes.len() {
            let (mut session, mut out) = (session(), Vec::new());
            assert!(!session.receive(&bytes[..at], &mut out).unwrap().ready);
            assert!(session.receive(&bytes[at..], &mut out).unwrap().ready);
            assert!(out.is_empty());
        }
    }

    #[test]
    fn scram_is_answered_and_an_error_is_told() {
        let (mut session, mut out) = (session(), Vec::new());
        session.receive(&message(AUTHENTICATION, b"\0\0\0\x0aSCRAM-SHA-256\0\0"), &mut out).unwrap();
        assert_eq!(out[0], b'p');
        assert!(out.windows(3).any(|part| part == b"n,,"));
        out.clear();
        session.receive(&message(AUTHENTICATION, b"\0\0\0\x0br=x,s=AAAA,i=1"), &mut out).unwrap();
        assert!(out.windows(6).any(|part| part == b"c=biws"));
        let error = session.receive(&message(ERROR_RESPONSE, b"SFATAL\0C28P01\0Mno way\0\0"), &mut out).unwrap_err();
        assert_eq!(error.to_string(), "refused: no way");
    }

    #[test]
    fn rows_are_kept_only_when_asked_for_and_a_bad_length_is_an_error() {
        let row = message(DATA_ROW, b"\0\x01\0\0\0\x01x");
        let (mut session, mut out) = (session(), Vec::new());
        session.receive(&row, &mut out).unwrap();
        session.keep_rows();
        session.receive(&row, &mut out).unwrap();
        assert_eq!(session.take_rows(), row);
        assert!(session.receive(&[b'Z', 0, 0, 0, 3], &mut out).is_err());
    }
}
