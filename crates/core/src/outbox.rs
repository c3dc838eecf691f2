//! What one input has led to: the outputs in order, and the bytes the worker made for them.

use std::collections::VecDeque;

use crate::contract::event::{Event, Level};
use crate::contract::{Output, Span};
use crate::id::{ClientId, ConnId, ServerId, WorkerId};
use crate::mail::Mail;
use crate::outside::Inquiry;
use crate::peer::{Endpoint, TlsRole};

/// The made bytes' buffer is given back above this size, so that one large reply is not held for ever.
const MADE_BYTES_KEPT: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Output>,
    made: Vec<u8>,
    /// Where in the current input the bytes begin that are sent on.
    base: usize,
}

impl Outbox {
    /// Begins a new input: spans of the last one are no longer valid.
    pub(crate) fn begin(&mut self) {
        debug_assert!(self.queue.is_empty(), "outputs are drained before the next input");
        self.made.clear();
        self.base = 0;
        if self.made.capacity() > MADE_BYTES_KEPT {
            self.made = Vec::new();
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Output> {
        self.queue.pop_front()
    }

    pub(crate) fn made(&self, span: Span) -> &[u8] {
        match span {
            Span::Made { start, end } => &self.made[start as usize..end as usize],
            Span::Received { .. } => &[],
        }
    }

    /// The input's first bytes are dealt with: offsets count from behind them from now on.
    pub(crate) fn skip(&mut self, count: usize) {
        self.base += count;
    }

    /// Sends bytes of the current input on as they are; adjacent spans become one.
    #[inline]
    pub(crate) fn forward(&mut self, conn: impl Into<ConnId>, from: usize, to: usize) {
        if from == to {
            return;
        }
        let (conn, from, to) = (conn.into(), self.base + from, self.base + to);
        if let Some(Output::Send { conn: last, span: Span::Received { end, .. } }) = self.queue.back_mut()
            && *last == conn
            && *end as usize == from
        {
            *end = to as u32;
            return;
        }
        self.queue.push_back(Output::Send { conn, span: Span::Received { start: from as u32, end: to as u32 } });
    }

    /// Sends what `write` appends.
    pub(crate) fn send(&mut self, conn: impl Into<ConnId>, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.made.len();
        write(&mut self.made);
        let to = self.made.len();
        if from == to {
            return;
        }
        let conn = conn.into();
        if let Some(Output::Send { conn: last, span: Span::Made { end, .. } }) = self.queue.back_mut()
            && *last == conn
            && *end as usize == from
        {
            *end = to as u32;
            return;
        }
        self.queue.push_back(Output::Send { conn, span: Span::Made { start: from as u32, end: to as u32 } });
    }

    /// Sends a piece: uncopied where it lies in the current input.
    #[inline]
    pub(crate) fn send_piece(&mut self, conn: impl Into<ConnId>, bytes: &[u8], at: Option<usize>) {
        match at {
            Some(from) => self.forward(conn, from, from + bytes.len()),
            None => self.send(conn, |out| out.extend_from_slice(bytes)),
        }
    }

    pub(crate) fn read(&mut self, conn: impl Into<ConnId>, on: bool) {
        self.queue.push_back(Output::Read { conn: conn.into(), on });
    }

    pub(crate) fn connect(&mut self, server: ServerId, endpoint: Endpoint) {
        self.queue.push_back(Output::Connect { conn: server.into(), endpoint });
    }

    pub(crate) fn start_tls(&mut self, conn: impl Into<ConnId>, role: TlsRole) {
        self.queue.push_back(Output::StartTls { conn: conn.into(), role });
    }

    pub(crate) fn close(&mut self, conn: impl Into<ConnId>) {
        self.queue.push_back(Output::Close { conn: conn.into() });
    }

    pub(crate) fn derive(&mut self, job: u32, password: &str, salt: Vec<u8>, iterations: u32) {
        self.queue.push_back(Output::Derive { job, password: password.into(), salt, iterations });
    }

    pub(crate) fn ask(&mut self, client: ClientId, inquiry: Inquiry) {
        self.queue.push_back(Output::Ask { client, inquiry: Box::new(inquiry) });
    }

    pub(crate) fn ask_no_more(&mut self, client: ClientId) {
        self.queue.push_back(Output::AskNoMore { client });
    }

    pub(crate) fn tell_names(&mut self, asker: ClientId) {
        self.queue.push_back(Output::TellNames { asker });
    }

    pub(crate) fn mail(&mut self, to: WorkerId, mail: Mail, conn: Option<ConnId>) {
        self.queue.push_back(Output::Mail { to, mail, conn });
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.queue.push_back(Output::Event(event));
    }

    pub(crate) fn log(&mut self, level: Level, text: String) {
        self.event(Event::Log { level, text });
    }
}
