//! What a server in its session sends: the way of a reply from server to client.
//!
//! Each reply takes its place in the queue of what is owed. Replies to messages of ours are kept; the client's go on as
//! they came. At each ReadyForQuery it is decided whether the server is free. What an error means is in `errors.rs`.

use std::sync::Arc;

use weir_wire::backend;
use weir_wire::{BackendTag, HEADER_LEN, Header, TransactionStatus, write};

use super::{Answers, Fault, Outcome, told};
use crate::cluster::poses_as_node;
use crate::failure::Failure;
use crate::id::ClientId;
use crate::inbox::{self, Body, Cursor, Piece};
use crate::kept::exact::PREFIX;
use crate::owed::{Copy, Owed, Request, UNNAMED};
use crate::parameters::ParameterSet;
use crate::parameters::meanings::NAME_BYTES;
use crate::server::{Cancel, Hold, ServerState};
use crate::statements::{Shape, UNNAMED_UNKNOWN};

/// ErrorResponse and ParameterStatus up to this size are read; longer ones are passed on unread.
pub(super) const READ_BYTES_MAX: usize = 64 * 1024;
/// No description of PostgreSQL's is longer, also of 65535 parameters: of 1664 columns (`MaxTupleAttributeNumber`,
/// src/include/access/htup_details.h), whose names have 63 bytes, and four times as many in another encoding
/// (`MAX_CONVERSION_GROWTH`, src/include/mb/pg_wchar.h). So all are read.
const DESCRIPTION_BYTES_MAX: usize = HEADER_LEN + 2 + 1664 * (4 * 63 + 1 + 18);
/// A command tag that matters to us is shorter.
const COMMAND_BYTES_MAX: usize = 64;

/// What became of a message of the server's. It stops where the server does what no server may do here.
pub(super) type Verdict = inbox::Verdict<Fault>;

pub(super) const BROKEN: Verdict = Verdict::Stop(Fault::BrokeProtocol);

pub(super) struct Reply<'a> {
    pub(super) tag: BackendTag,
    pub(super) bytes: &'a [u8],
    at: Option<usize>,
    pub(super) total: usize,
}

impl<'a> Reply<'a> {
    pub(super) fn present(&self) -> usize {
        self.bytes.len().min(self.total)
    }

    /// The body, where it is there in whole.
    pub(super) fn whole_body(&self) -> Option<&'a [u8]> {
        (self.bytes.len() >= self.total).then(|| &self.bytes[HEADER_LEN..self.total])
    }
}

/// What a message from the server means for what is owed.
#[derive(PartialEq, Eq)]
enum Fit {
    /// Part of the reply to the request in front.
    Within,
    /// The end of that reply.
    Completes,
    Fails,
    /// May come at any time.
    Asynchronous,
    Nowhere,
}

impl Answers<'_> {
    /// Takes what it can of the server's bytes.
    pub(crate) fn server_bytes(&mut self, cursor: &mut Cursor<'_>) -> Outcome {
        loop {
            if let ServerState::Tunnel(client) = self.server.state {
                let (from, to) = cursor.take(u32::MAX);
                self.cx.out.forward(client, from, to);
                return Outcome::Drained;
            }
            if matches!(self.server.state, ServerState::Closing) {
                return Outcome::Drained;
            }
            if self.server.inbox.body != Body::None {
                self.continue_body(cursor);
                if let Some(outcome) = self.then.take() {
                    return outcome;
                }
                if cursor.rest().is_empty() {
                    return Outcome::Drained;
                }
                continue;
            }
            self.pass_run(cursor);
            if cursor.rest().is_empty() {
                return Outcome::Drained;
            }
            if let Some(outcome) = self.next_message(cursor) {
                return outcome;
            }
        }
    }

    /// The rest of a long message.
    fn continue_body(&mut self, cursor: &mut Cursor<'_>) {
        let (from, to, forwards) = self.server.inbox.take_rest(cursor);
        if let (true, Some(client)) = (forwards, self.server.client()) {
            self.cx.out.forward(client, from, to);
            self.pool.counters.bytes_sent += (to - from) as u64;
        }
        if self.server.inbox.body == Body::None {
            self.server.answer_made(self.cx);
            self.server.owed.message_is_whole();
            // It may have been all that its client still waits for, or that kept the two together.
            self.then = match &self.client {
                Some((_, client)) if client.overdue => Some(Outcome::Overdue),
                Some((_, client)) if client.ended => Some(Outcome::LookEnded),
                Some(_) if self.server.owed.settled() => Some(Outcome::Ready { cancels: false }),
                _ => None,
            };
        }
    }

    /// What comes of the next message, if more than goes on with the one behind it.
    fn next_message(&mut self, cursor: &mut Cursor<'_>) -> Option<Outcome> {
        match inbox::next_message(self, |answers| &mut answers.server.inbox, cursor, Self::reply) {
            Ok(true) => self.then.take(),
            Ok(false) if matches!(self.server.state, ServerState::Linked(_)) => Some(Outcome::Drained),
            Ok(false) => Some(self.in_part_of_a_message()),
            Err(fault) => Some(Outcome::Broken(Box::new(fault.into()))),
        }
    }

    /// More of a message has to come, and nobody is linked. What answers nobody's request must not be told to whoever sends one next.
    #[cold]
    fn in_part_of_a_message(&mut self) -> Outcome {
        let replies = self.server.has_part_of_a_reply();
        self.server.began_before = !replies;
        let idle = matches!(self.server.state, ServerState::Idle | ServerState::Held);
        match self.server.inbox.partial_tag() {
            Some(tag) if idle && tag == BackendTag::ErrorResponse as u8 => Outcome::EndedIdle,
            _ if idle && replies => Outcome::Broken(Box::new(Failure::ServerBrokeProtocol)),
            _ => Outcome::Drained,
        }
    }

    /// Sends on in one piece the messages at the front of the input that change nothing of what is known: most of what
    /// servers send.
    #[inline]
    fn pass_run(&mut self, cursor: &mut Cursor<'_>) {
        let server = &*self.server;
        let (ServerState::Linked(client), Some(owed)) = (&server.state, server.owed.front()) else { return };
        let described = owed.request == Request::Query;
        if owed.ours || !(described || owed.request == Request::Execute) || server.inbox.has_partial() {
            return;
        }
        let len = backend::rows_len(cursor.rest(), described);
        if len > 0 {
            self.cx.out.forward(*client, cursor.at, cursor.at + len);
            self.pool.counters.bytes_sent += len as u64;
            cursor.at += len;
        }
    }

    fn reply(&mut self, piece: &Piece<'_>) -> Verdict {
        let bytes = piece.bytes();
        let Some((first, _)) = bytes.split_first_chunk::<HEADER_LEN>() else { return BROKEN };
        let header = Header::parse(first);
        let (Some(tag), Some(body_len)) = (BackendTag::from_byte(header.tag), header.body_len) else {
            return BROKEN;
        };
        let reply = Reply { tag, bytes, at: piece.at(), total: HEADER_LEN + body_len as usize };
        match needed(&reply) {
            Some(need) if bytes.len() < need => return Verdict::More(need),
            Some(_) => {}
            None => return BROKEN,
        }
        if let Some(verdict) = self.doubtful_reply(&reply) {
            return verdict;
        }
        let front = self.server.owed.front();
        // What was sent to fail cannot succeed.
        let fit = fit(tag, front.filter(|owed| !owed.is_to_fail()).map(|owed| owed.request));
        let ours = front.is_some_and(|owed| owed.ours);
        let client = match self.server.state {
            ServerState::Linked(client) if !ours => Some(client),
            _ => None,
        };
        match fit {
            Fit::Nowhere => return BROKEN,
            Fit::Fails => return self.error_reply(&reply, client),
            Fit::Asynchronous => return self.asynchronous(&reply, client),
            Fit::Within if ours && tag == BackendTag::DataRow => return self.own_row(&reply),
            Fit::Within | Fit::Completes => {}
        }
        let status = match (tag, reply.whole_body().map(backend::ready)) {
            (BackendTag::ReadyForQuery, Some(Ok(status))) if self.server.owed.may_be_ready() => Some(status),
            (BackendTag::ReadyForQuery, _) => return BROKEN,
            _ => None,
        };
        // In statement mode the ReadyForQuery that opens a transaction gives way to an error.
        let refused =
            status.is_some_and(|status| status != TransactionStatus::Idle) && self.server.owed.is_one_by_one();
        if let (Some(status), Some(client)) = (status, client) {
            self.tell_ahead_of_ready(client, status);
        }
        if describes(tag) && !self.learn_shape(&reply) {
            return BROKEN;
        }
        let used = self.pass(&reply, if refused { None } else { client });
        match tag {
            BackendTag::ReadyForQuery => status.into_iter().for_each(|status| self.ready(status)),
            BackendTag::CommandComplete => {
                self.command_complete(&reply);
                if fit == Fit::Completes {
                    self.completed();
                }
            }
            BackendTag::CopyInResponse | BackendTag::CopyBothResponse => {
                self.server.owed.begin_copy_in();
                self.copy_for_nobody();
            }
            BackendTag::PortalSuspended => {
                // It may be a CALL, whose procedure has ended the transaction, and told its row alone.
                self.server.mirror.transaction_ended();
                self.may_have_committed();
                self.completed();
            }
            _ if fit == Fit::Completes => self.completed(),
            BackendTag::EmptyQueryResponse | BackendTag::FunctionCallResponse => self.server.owed.told(),
            _ => {}
        }
        Verdict::Used(used)
    }

    /// Where a copy failed, Syncs may or may not be answered that were sent ahead of its end: a Close of ours behind them
    /// tells where their answers end.
    #[inline]
    fn doubtful_reply(&mut self, reply: &Reply<'_>) -> Option<Verdict> {
        if !matches!(reply.tag, BackendTag::ReadyForQuery | BackendTag::CloseComplete) {
            return None;
        }
        let server = &mut *self.server;
        if server.owed.front()?.request != Request::Doubt {
            return None;
        }
        if reply.tag == BackendTag::CloseComplete {
            server.owed.end_doubt();
            return Some(Verdict::Used(self.pass(reply, None)));
        }
        let Some(Ok(status)) = reply.whole_body().map(backend::ready) else { return Some(BROKEN) };
        server.status = status;
        let (theirs, hold) = (server.owed.doubtful_ready(status), server.hold);
        if let (Some(status), Some(client)) = (theirs, server.client()) {
            if hold == Hold::Reset {
                self.take_back(client, status);
            }
            self.cx.out.send(client, |out| write::ready(out, status));
        }
        Some(Verdict::Used(self.pass(reply, None)))
    }

    /// Sends a reply on to the client it is for, if it is for one.
    #[inline]
    pub(super) fn pass(&mut self, reply: &Reply<'_>, client: Option<ClientId>) -> usize {
        #[cfg(feature = "planted")]
        let client = client.filter(|_| !self.cx.planted_now(crate::planted::Planted::DropReply));
        let server = &mut *self.server;
        let present = reply.present();
        server.inbox.expect_rest(reply.total, present, client.is_some());
        if let Some(client) = client {
            self.cx.out.send_piece(client, &reply.bytes[..present], reply.at);
            self.pool.counters.bytes_sent += present as u64;
        }
        present
    }

    /// The client's parameters, as of the ReadyForQuery that it gets next.
    fn tell_ahead_of_ready(&mut self, client: ClientId, status: TransactionStatus) {
        if self.server.hold == Hold::Reset {
            self.take_back(client, status);
        }
        if std::mem::take(&mut self.server.unheard) {
            self.tell_what_differs();
        }
    }

    /// The request in front has its whole reply.
    fn completed(&mut self) {
        let Some(owed) = self.server.owed.pop() else { return };
        if owed.statement == UNNAMED {
            self.unnamed_changed(&owed);
            if self.server.exact.is_some() {
                self.unnamed_parsed_exactly(&owed);
            }
        }
        if let Some(note) = owed.note {
            self.noted_answered(*note);
        }
        self.moved_on();
    }

    /// The unnamed statement is another now: it was parsed or closed.
    fn unnamed_changed(&mut self, owed: &Owed) {
        let (server, session) = self.pair();
        let mut is_long = false;
        let id = match (owed.request, session) {
            // Where it is compared it is the client's only then: what waits for that may be skipped.
            (Request::Parse, Some(_)) if owed.ours && server.mirror.unnamed_shape != Shape::Unknown => UNNAMED_UNKNOWN,
            (Request::Parse, Some(session)) if owed.ours => session.unnamed.id,
            (Request::Parse, Some(session)) => {
                is_long = session.unnamed.parsed(&session.parameters);
                session.unnamed.id
            }
            (Request::Parse, None) => UNNAMED_UNKNOWN,
            (Request::Close, session) => {
                if let (Some(session), false) = (session, owed.ours) {
                    session.unnamed.gone();
                }
                0
            }
            _ => server.mirror.unnamed,
        };
        server.mirror.unnamed_is(id);
        if is_long {
            self.keep_long_unnamed();
        }
    }

    #[cold]
    #[inline(never)]
    fn unnamed_parsed_exactly(&mut self, owed: &Owed) {
        let is_parsed = owed.request == Request::Parse && !owed.ours;
        let within = self.server.status != TransactionStatus::Idle && self.server.kept.has_set_unreported();
        if let (true, true, Some(session)) = (is_parsed, within, self.pair().1) {
            return session.unnamed.was_parsed_behind_a_set();
        }
        let told = if is_parsed { self.told_exactly() } else { None };
        if let (Some(told), Some(session)) = (told, self.pair().1) {
            session.unnamed.was_parsed_under(&told);
        }
    }

    /// The client's parameters as PostgreSQL has told them last, where that tells all of them.
    #[cold]
    pub(super) fn told_exactly(&mut self) -> Option<Arc<ParameterSet>> {
        let Self { cx, server, client, .. } = self;
        let exact = server.exact.as_ref().filter(|exact| exact.is_ahead())?;
        let session = client.as_mut().and_then(|(_, client)| client.session_mut())?;
        Some(cx.parameter_sets.intern(exact.parameters_behind(&session.parameters)))
    }

    #[cold]
    fn keep_long_unnamed(&mut self) {
        let Self { cx, server, client, .. } = self;
        let Some(session) = client.as_mut().and_then(|(_, client)| client.session_mut()) else { return };
        let definition = session.unnamed.take_definition();
        let reading = session.reading(&mut cx.parameter_sets);
        server.mirror.keep_long_unnamed(cx.statements.private(&definition, reading));
    }

    /// Another request is in front of what is owed.
    #[inline]
    fn moved_on(&mut self) {
        if self.server.owed.front().is_some_and(|owed| owed.request == Request::Made) {
            self.server.answer_made(self.cx);
        }
    }

    fn ready(&mut self, status: TransactionStatus) {
        let now = self.cx.now;
        let ended = self.server.owed.pop();
        let before = std::mem::replace(&mut self.server.status, status);
        self.server.kept.altered.ready(before, status, self.server.owed.settled());
        let ours = ended.as_ref().filter(|owed| owed.ours);
        let owns = ours.is_some_and(|ended| self.server.owed.ends_what_is_ours(ended));
        // Before anything else is made of the server: what waited for it may have nothing left to cancel.
        let cancels = owns && matches!(self.server.cancel, Cancel::BehindOwn(_));
        if owns && std::mem::take(&mut self.server.unheard) {
            self.tell_what_differs();
        }
        self.moved_on();
        if status == TransactionStatus::Idle {
            self.server.mirror.transaction_over(self.server.owed.answered());
        }
        if self.server.owed.is_empty() && !self.server.kept.has_set_unreported() {
            self.server.mirror.told();
        }
        // A simple query destroys the unnamed statement.
        let query = ended.as_ref().map(|owed| owed.request);
        if matches!(query, Some(Request::Query | Request::OwnQuery)) {
            self.server.mirror.unnamed = 0;
        }
        if ended.is_some_and(|owed| !owed.ours) {
            let (_, session) = self.pair();
            if let Some(session) = session {
                if query == Some(Request::Query) {
                    session.unnamed.gone();
                }
                let awaits = session.awaits_parameters();
                let (request_at, transaction_at) = (session.request_at, session.transaction_at);
                // The time of the next in a pipeline begins.
                (session.request_at, session.asked_at) = (now, now);
                if status == TransactionStatus::Idle {
                    session.transaction_at = now;
                }
                self.pool.count_query(now, request_at, (status == TransactionStatus::Idle).then_some(transaction_at));
                if awaits {
                    self.parameters_told(status);
                }
            }
        }
        self.then.get_or_insert(Outcome::Ready { cancels });
    }

    /// Notices, notifications and parameters.
    #[inline(never)]
    fn asynchronous(&mut self, reply: &Reply<'_>, client: Option<ClientId>) -> Verdict {
        let began_before = std::mem::take(&mut self.server.began_before);
        // What its client has prepared is carried out, or committed, by a request of ours.
        let speaks = client.is_none() && self.server.owed.speaks_to_client();
        let client = if speaks { self.server.client() } else { client };
        if reply.tag == BackendTag::ParameterStatus {
            let Some((name, value)) = told::reported(reply) else { return BROKEN };
            if self.server.exact.is_some() && name.starts_with(PREFIX) {
                self.told_by_module(name, value);
                return Verdict::Used(self.pass(reply, None));
            }
            if self.pool.limits.route.is_some() && value.is_some_and(|value| poses_as_node(name, value)) {
                return Verdict::Stop(Fault::PosesAsNode);
            }
            self.server.unheard |= client.is_none();
            let resets = self.server.hold == Hold::Reset;
            let taken_back = resets && client.is_some() && value.is_some_and(|value| self.is_taken_back(name, value));
            let client = client.filter(|_| !taken_back);
            let is_kept = value.is_some_and(|value| self.parameter_reported(name, value, client.is_some()));
            let is_kept = is_kept || (client.is_some() && self.too_much_reported());
            if !is_kept {
                return Verdict::Stop(Fault::ReportsTooMuch);
            }
            return Verdict::Used(self.pass(reply, client));
        }
        if reply.tag == BackendTag::NotificationResponse && self.pool.listener.is_some() {
            return self.heard(reply, client.filter(|_| !began_before));
        }
        let client = match reply.tag {
            BackendTag::NotificationResponse => self.notified().or(client),
            _ => client,
        };
        // A notification with nobody linked has no owner any more: LISTEN belongs to the session.
        Verdict::Used(self.pass(reply, client.filter(|_| !began_before)))
    }

    /// PostgreSQL asks a client for data that is gone.
    fn copy_for_nobody(&mut self) {
        match self.server.state {
            ServerState::Recovering { .. } if self.server.owed.copy() != Copy::None => {
                self.then = Some(Outcome::CopyForNobody);
            }
            ServerState::Linked(_) => self.then = Some(Outcome::LookEnded),
            _ => {}
        }
    }
}

/// Says what a statement takes or returns.
fn describes(tag: BackendTag) -> bool {
    matches!(tag, BackendTag::ParameterDescription | BackendTag::RowDescription | BackendTag::NoData)
}

/// How a message fits the request in front.
fn fit(tag: BackendTag, front: Option<Request>) -> Fit {
    use BackendTag as Tag;
    match tag {
        _ if tag.is_asynchronous() => return Fit::Asynchronous,
        Tag::ErrorResponse => return Fit::Fails,
        _ => {}
    }
    let Some(front) = front else { return Fit::Nowhere };
    match (tag, front) {
        (Tag::ReadyForQuery, Request::Query | Request::OwnQuery | Request::FunctionCall | Request::Sync)
        | (Tag::ParseComplete, Request::Parse)
        | (Tag::BindComplete, Request::Bind)
        | (Tag::CloseComplete, Request::Close)
        | (Tag::RowDescription | Tag::NoData, Request::DescribeStatement | Request::DescribePortal)
        | (Tag::CommandComplete | Tag::EmptyQueryResponse | Tag::PortalSuspended, Request::Execute) => Fit::Completes,
        (
            Tag::DataRow
            | Tag::CopyInResponse
            | Tag::CopyOutResponse
            | Tag::CopyBothResponse
            | Tag::CopyData
            | Tag::CopyDone,
            Request::Query | Request::OwnQuery | Request::Execute,
        )
        | (Tag::RowDescription | Tag::CommandComplete | Tag::EmptyQueryResponse, Request::Query | Request::OwnQuery)
        | (Tag::ParameterDescription, Request::DescribeStatement)
        | (Tag::FunctionCallResponse, Request::FunctionCall) => Fit::Within,
        _ => Fit::Nowhere,
    }
}

/// How much of a message must be in one piece; `None` where its length is impossible.
fn needed(reply: &Reply<'_>) -> Option<usize> {
    let small = |limit: usize| if reply.total <= limit { reply.total } else { HEADER_LEN };
    match reply.tag {
        BackendTag::ReadyForQuery => (reply.total == HEADER_LEN + 1).then_some(reply.total),
        // Which one it is.
        BackendTag::ParameterStatus if reply.total > READ_BYTES_MAX => Some(HEADER_LEN + NAME_BYTES + 1),
        BackendTag::ParameterStatus => Some(reply.total),
        BackendTag::ErrorResponse => Some(small(READ_BYTES_MAX)),
        BackendTag::RowDescription | BackendTag::ParameterDescription => {
            (reply.total <= DESCRIPTION_BYTES_MAX).then_some(reply.total)
        }
        BackendTag::CommandComplete => Some(small(COMMAND_BYTES_MAX)),
        _ => Some(HEADER_LEN),
    }
}
