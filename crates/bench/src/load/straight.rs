//! One blocking session: console queries, and big data in both directions.
//!
//! Does not know what the data are.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend::{self, CopyData};

use super::channel::Channel;
use super::plan::Target;
use super::session::{self, Seen, Session};

/// As large as fits the cache of a core, so that the client is not what is measured.
const RECEIVE_BYTES: usize = 256 * 1024;

pub struct Straight {
    channel: Channel,
    session: Session,
    buffer: Vec<u8>,
    pub received: u64,
}

impl Straight {
    pub fn log_in(target: &Target) -> Result<Straight> {
        let mut channel = Channel::connect(target.port, Ipv4Addr::LOCALHOST, true)?;
        if let Some(config) = &target.tls {
            let mut request = BytesMut::new();
            frontend::ssl_request(&mut request);
            channel.send(&request)?;
            let mut answer = [0];
            if channel.receive(&mut answer)? != Some(1) || answer != *b"S" {
                bail!("TLS is not offered");
            }
            channel.start_tls(config)?;
        }
        let mut startup = Vec::new();
        let session = Session::begin(Arc::clone(&target.identity), &mut startup)?;
        channel.send(&startup)?;
        let mut straight = Straight { channel, session, buffer: vec![0; RECEIVE_BYTES], received: 0 };
        straight.wait_until(|seen| seen.ready).context("cannot log in")?;
        Ok(straight)
    }

    fn wait_until(&mut self, done: impl Fn(Seen) -> bool) -> Result<()> {
        let mut answer = Vec::new();
        loop {
            let count = match self.channel.receive(&mut self.buffer)? {
                None => continue,
                Some(0) => bail!("the connection was closed"),
                Some(count) => count,
            };
            self.received += count as u64;
            let seen = self.session.receive(&self.buffer[..count], &mut answer)?;
            if !answer.is_empty() {
                self.channel.send(&answer)?;
                answer.clear();
            }
            if done(seen) {
                return Ok(());
            }
        }
    }

    /// Asks, and drops whatever is answered.
    pub fn query(&mut self, text: &str) -> Result<()> {
        let mut message = Vec::new();
        session::query(text, &mut message)?;
        self.channel.send(&message)?;
        self.wait_until(|seen| seen.ready)
    }

    /// The rows of a short answer, as text.
    pub fn rows(&mut self, text: &str) -> Result<Vec<Vec<String>>> {
        self.session.keep_rows();
        self.query(text)?;
        let mut bytes = BytesMut::from(self.session.take_rows().as_slice());
        let mut rows = Vec::new();
        while let Some(Message::DataRow(row)) = Message::parse(&mut bytes).context("not a row")? {
            let field = |range: Option<std::ops::Range<usize>>| {
                range.map_or_else(String::new, |range| String::from_utf8_lossy(&row.buffer()[range]).into_owned())
            };
            rows.push(row.ranges().map(|range| Ok(field(range))).collect().context("not a row")?);
        }
        Ok(rows)
    }

    /// `COPY ... FROM STDIN` of so many times the same lines; gives the bytes sent.
    pub fn copy_in(&mut self, statement: &str, lines: &[u8], times: usize) -> Result<u64> {
        let mut message = Vec::new();
        session::query(statement, &mut message)?;
        self.channel.send(&message)?;
        self.wait_until(|seen| seen.copy_in || seen.ready)?;
        let mut data = BytesMut::new();
        CopyData::new(lines).context("too much data for one message")?.write(&mut data);
        for _ in 0..times {
            self.channel.send(&data)?;
        }
        let mut done = BytesMut::new();
        frontend::copy_done(&mut done);
        self.channel.send(&done)?;
        self.wait_until(|seen| seen.ready)?;
        Ok((data.len() * times) as u64)
    }

    /// One query that is as long as its value, as an INSERT of a document is; gives the bytes sent.
    pub fn send_value(&mut self, before: &str, value_bytes: usize, after: &str) -> Result<u64> {
        let text = format!("{before}{}{after}", "x".repeat(value_bytes));
        self.query(&text)?;
        Ok(text.len() as u64)
    }
}
