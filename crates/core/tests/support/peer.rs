//! One end of a conversation: what a script calls it, and how it reads what it received.

use weir_core::ConnId;

use super::login::{ClientLogin, ServerStart};
use super::words::{hex, shown, shown_all};
use super::{backend, frontend};

/// A message's words, and how many bytes it has.
pub type Received = (Vec<Vec<u8>>, usize);

/// A machine that answers for a peer, for as long as its line abbreviates.
#[derive(Debug)]
pub enum Machine {
    Login(ClientLogin),
    Start(ServerStart),
}

#[derive(Debug)]
pub struct Peer {
    pub name: String,
    pub conn: ConnId,
    pub machine: Option<Machine>,
    /// The answer to an SSLRequest or GSSENCRequest is one byte; so many are due.
    pub bytes_due: usize,
    /// A server that has not had its startup packet.
    pub before_startup: bool,
    /// A server that has said ReadyForQuery.
    pub started: bool,
    /// A client of the console: what happens to others may be the answer that it waits for.
    pub console: bool,
    /// The bytes of a message that was sent in part.
    pub rest: Vec<u8>,
    /// What has come of a message that is not there in whole.
    pub begun: Vec<u8>,
}

/// The bytes of a message that a peer sends.
pub fn encode(peer: &str, message: &str, words: &[Vec<u8>]) -> Result<Vec<u8>, String> {
    if peer.starts_with('C') { frontend::encode(message, words) } else { backend::encode(message, words) }
}

impl Peer {
    /// Whether what came is the beginning of a message, with what came before of it, and no more.
    pub fn has_part(&mut self, received: &[u8]) -> Result<bool, String> {
        let mut begun = std::mem::take(&mut self.begun);
        begun.extend_from_slice(received);
        let is_part = !received.is_empty() && self.message(&begun)?.is_none();
        self.begun = if is_part { begun } else { Vec::new() };
        Ok(is_part)
    }

    /// The first of the messages received and its length; `None` while it is not there in whole.
    pub fn message(&mut self, received: &[u8]) -> Result<Option<Received>, String> {
        let client = self.name.starts_with('C');
        if client && self.bytes_due > 0 && !received.is_empty() && received[0] != b'E' {
            self.bytes_due -= 1;
            return Ok(Some((vec![b"Byte".to_vec(), vec![received[0]]], 1)));
        }
        let tagged = usize::from(client || !self.before_startup);
        let Some(length) = received.get(tagged..tagged + 4) else { return Ok(None) };
        let length = tagged + u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let Some(message) = received.get(..length) else { return Ok(None) };
        let body = message.get(tagged + 4..).ok_or("a length that lies")?;
        let words = match (client, tagged) {
            (true, _) => backend::decode(message[0], body),
            // Another's mistake, handed on as it is.
            (false, 1) => frontend::decode(message[0], body).or_else(|| Some(vec![b"Bytes".to_vec(), hex(message)])),
            (false, _) => frontend::decode_startup(body),
        };
        let words =
            words.ok_or_else(|| format!("{} received bytes that are no message: {}", self.name, shown(message)))?;
        let opens = matches!(&words[0][..], b"Startup" | b"CancelRequest");
        self.before_startup = self.before_startup && !opens;
        Ok(Some((words, length)))
    }

    /// What was received, for a person to read.
    pub fn preview(&self, received: &[u8]) -> String {
        let mut peer = Peer { machine: None, rest: Vec::new(), begun: Vec::new(), name: self.name.clone(), ..*self };
        match peer.message(received) {
            Ok(Some((words, _))) => shown_all(&words),
            _ => shown(received),
        }
    }
}
