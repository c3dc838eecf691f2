//! A raw connection: login by trust, bytes out in pieces, messages in until a pipeline is answered.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use weir_wire::{BackendTag, HEADER_LEN, Header, ProtocolVersion, write};

use super::transcript::Transcript;

/// Messages in answer to one pipeline; far beyond what one can give.
const MESSAGES_MAX: u64 = 1_000_000;

pub struct Session {
    stream: TcpStream,
    input: Vec<u8>,
    pub transcript: Transcript,
    /// How long an answer may take before the session counts as hanging.
    pub patience: Duration,
}

/// Pieces that a pipeline is sent in: where each ends, and the pause before the next.
pub type Cuts = Vec<(usize, Duration)>;

impl Session {
    pub fn log_in(address: SocketAddr, parameters: &[(&str, &str)], patience: Duration) -> Result<Self, String> {
        let text = |error: std::io::Error| format!("{address}: {error}");
        let stream = TcpStream::connect_timeout(&address, patience).map_err(text)?;
        stream.set_nodelay(true).map_err(text)?;
        let mut session = Self { stream, input: Vec::new(), transcript: Transcript::default(), patience };
        let mut bytes = Vec::new();
        write::startup(&mut bytes, ProtocolVersion::V3_0, parameters);
        session.stream.write_all(&bytes).map_err(text)?;
        let end = Instant::now() + patience;
        while session.transcript.status.is_none() {
            let (tag, body) = session.message(end).map_err(|how| format!("{how}: {:?}", session.transcript.lines))?;
            let secret = [BackendTag::Authentication, BackendTag::BackendKeyData].iter().any(|own| *own as u8 == tag);
            if !secret {
                session.transcript.take_in(tag, &body);
            }
        }
        Ok(session)
    }

    /// Sends a pipeline whose last query marks its end, and reads all that is answered.
    pub fn ask(&mut self, bytes: &[u8], cuts: &Cuts) -> Vec<String> {
        let writer = self.stream.try_clone();
        std::thread::scope(|scope| {
            // Both ways at once: a server that cannot send does not read either.
            scope.spawn(move || writer.and_then(|stream| send(stream, bytes, cuts)));
            self.read_answer();
        });
        self.transcript.take()
    }

    /// Asks one query.
    pub fn query(&mut self, sql: &str) -> Vec<String> {
        let mut bytes = Vec::new();
        weir_wire::write::query(&mut bytes, sql.as_bytes());
        super::steps::end_mark(&mut bytes);
        self.ask(&bytes, &Cuts::new())
    }

    /// Sends a part, and leaves without a word.
    pub fn vanish(mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn read_answer(&mut self) {
        let end = Instant::now() + self.patience;
        let messages_max = self.transcript.messages + MESSAGES_MAX;
        while !self.transcript.ended {
            match self.message(end) {
                Ok((tag, body)) => self.transcript.take_in(tag, &body),
                Err(how) => {
                    self.transcript.closed(&how);
                    // A writer that still waits gets an error.
                    let _ = self.stream.shutdown(Shutdown::Both);
                }
            }
            if self.transcript.messages > messages_max {
                self.transcript.closed("(no end of messages)");
            }
        }
    }

    fn message(&mut self, end: Instant) -> Result<(u8, Vec<u8>), String> {
        loop {
            if let Some(first) = self.input.first_chunk::<HEADER_LEN>() {
                let header = Header::parse(first);
                let length = header.body_len.ok_or_else(|| "(malformed length)".to_owned())?;
                let whole = HEADER_LEN + length as usize;
                if self.input.len() >= whole {
                    let body = self.input.drain(..whole).skip(HEADER_LEN).collect();
                    return Ok((header.tag, body));
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("(hangs)".to_owned());
            }
            let _ = self.stream.set_read_timeout(Some(left));
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err("(closed)".to_owned()),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Err("(closed)".to_owned()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return Err("(hangs)".to_owned()),
            }
        }
    }
}

fn send(mut stream: TcpStream, bytes: &[u8], cuts: &Cuts) -> std::io::Result<()> {
    let mut sent = 0;
    for (end, pause) in cuts {
        let end = (*end).clamp(sent, bytes.len());
        stream.write_all(&bytes[sent..end])?;
        sent = end;
        std::thread::sleep(*pause);
    }
    stream.write_all(&bytes[sent..])
}
