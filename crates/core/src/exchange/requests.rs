//! What a client in its session sends: the way of a query from client to server.
//!
//! A message's header decides: forward it, skip it, or gather it first because its names must be read. Nothing is sent to a
//! server for a client that is not linked to it, and a server is taken only when there is something to send.

use weir_wire::frontend::BindNames;
use weir_wire::{FrontendTag, HEADER_LEN, Header, TransactionStatus, write};

use crate::client::{ClientState, Discard, Link};
use crate::failure::Failure;
use crate::id::{ClientId, ServerId};
use crate::inbox::{Body, Cursor, Piece};
use crate::meanings::NAME_BYTES;
use crate::owed::{HARMLESS, Owed, Request};
use crate::reading;
use crate::resets::TEXT_BYTES_MAX;
use crate::server::{Hold, Server};
use crate::statements::{SERVER_NAME_PREFIX, STATEMENT_BYTES_MAX, UNNAMED_BYTES_KEPT, names_set_config};
use crate::time::Duration;
use crate::worker::Worker;

/// The two names of a Bind, with their terminators, are at most this long.
const BIND_NAMES_MAX: usize = 1024;

/// A longer query is not looked at for a DEALLOCATE of a statement that is none of ours.
const DEALLOCATE_LEN_MAX: usize = 256;
const DEALLOCATE: &[u8] = b"deallocate";

/// The function's number (src/include/catalog/pg_proc.dat).
const SET_CONFIG: u32 = 2078;

/// What became of a piece.
pub(crate) enum Verdict {
    /// This many bytes must be in one piece.
    More(usize),
    /// Dealt with, up to here; the inbox knows about the rest of the message.
    Used(usize),
    /// Not now: the client is not read until something changes.
    Wait,
    Fail(Failure),
}

/// One message, as far as it is there.
pub(crate) struct Message<'a> {
    pub(crate) tag: FrontendTag,
    /// From the header on.
    pub(crate) bytes: &'a [u8],
    /// Where they lie in the input.
    pub(crate) at: Option<usize>,
    /// Header and body.
    pub(crate) total: usize,
}

impl<'a> Message<'a> {
    pub(crate) fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..self.bytes.len().min(self.total)]
    }

    /// How many of its bytes are there.
    pub(crate) fn present(&self) -> usize {
        self.bytes.len().min(self.total)
    }
}

impl Worker {
    /// Takes what it can of a client's bytes; answers how many.
    pub(crate) fn session_bytes(&mut self, id: ClientId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        while self.session_step(id, &mut cursor) {}
        cursor.at
    }

    /// One step; false where it cannot go on.
    fn session_step(&mut self, id: ClientId, cursor: &mut Cursor<'_>) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return false };
        if !matches!(client.state, ClientState::Ready(_)) {
            return false;
        }
        if let Link::Tunnel(server) = client.link {
            let (from, to) = cursor.take(u32::MAX);
            self.cx.out.forward(server, from, to);
            return false;
        }
        let blocked = match client.link.server().and_then(|server| self.servers.get(server)) {
            // A client that does not take its replies may not make us write more of them.
            Some(server) => server.congested || (client.congested && server.owed.is_empty()),
            None => client.congested,
        };
        if blocked {
            self.hold_client(id);
            return false;
        }
        if client.inbox.body != Body::None {
            return self.continue_body(id, cursor);
        }
        if cursor.rest().is_empty() && !client.inbox.has_partial() {
            return false;
        }
        let mut need = HEADER_LEN;
        loop {
            let Some(client) = self.clients.get_mut(id) else { return false };
            let Some(piece) = client.inbox.gather(cursor, need) else { return false };
            let verdict = self.request(id, &piece);
            let Some(client) = self.clients.get_mut(id) else { return false };
            match verdict {
                Verdict::More(more) => {
                    client.inbox.put_back(piece);
                    need = more;
                }
                Verdict::Used(used) => {
                    client.inbox.used(cursor, piece, used);
                    return true;
                }
                Verdict::Wait => {
                    client.inbox.put_back(piece);
                    let awaits = |server: &Server| server.owed.is_awaited();
                    let server = client.link.server().and_then(|server| self.servers.get(server));
                    debug_assert!(server.is_none_or(awaits), "who waits on a link is woken by what comes");
                    self.hold_client(id);
                    return false;
                }
                Verdict::Fail(failure) => {
                    self.fail_client(id, &failure);
                    return false;
                }
            }
        }
    }

    fn continue_body(&mut self, id: ClientId, cursor: &mut Cursor<'_>) -> bool {
        if cursor.rest().is_empty() {
            return false;
        }
        let Some(client) = self.clients.get_mut(id) else { return false };
        let (Body::Forward(count) | Body::Skip(count)) = client.inbox.body else { return false };
        let (from, to) = cursor.take(count);
        let left = count - (to - from) as u32;
        if let (Body::Forward(_), Link::Linked(server)) = (client.inbox.body, client.link) {
            self.cx.out.forward(server, from, to);
            self.pools[client.pool].counters.bytes_received += (to - from) as u64;
            client.inbox.body = if left == 0 { Body::None } else { Body::Forward(left) };
            if left == 0 {
                // Its reply may have come before its end.
                self.ask_away_doubt(server);
                self.settle(server);
            }
        } else {
            client.inbox.body = if left == 0 { Body::None } else { Body::Skip(left) };
        }
        true
    }

    fn request(&mut self, id: ClientId, piece: &Piece<'_>) -> Verdict {
        let message = match self.read_header(piece) {
            Ok(message) => message,
            Err(failure) => return Verdict::Fail(failure),
        };
        let Some(client) = self.clients.get(id) else { return Verdict::Wait };
        let Some(session) = client.session() else { return Verdict::Wait };
        if session.discard != Discard::Nothing {
            return self.discard(id, &message);
        }
        let tracks = self.pools[client.pool].tracks_statements();
        match needed(&message, tracks, session.reads()) {
            Ok(need) if message.bytes.len() < need => return Verdict::More(need),
            Ok(_) => {}
            Err(failure) => return Verdict::Fail(failure),
        }
        let server = match client.link {
            Link::Linked(server) => server,
            Link::None => {
                if let Some(verdict) = self.unlinked(id, &message) {
                    return verdict;
                }
                match self.acquire(id) {
                    Ok(Some(server)) => server,
                    Ok(None) => return Verdict::Wait,
                    Err(failure) => return Verdict::Fail(failure),
                }
            }
            _ => return Verdict::Wait,
        };
        self.linked_request(id, server, &message, tracks)
    }

    fn read_header<'a>(&self, piece: &'a Piece<'_>) -> Result<Message<'a>, Failure> {
        let bytes = piece.bytes();
        let Some((first, _)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(Failure::MessageLength { tag: 0 });
        };
        let header = Header::parse(first);
        let tag = FrontendTag::from_byte(header.tag).ok_or(Failure::UnknownMessage(header.tag))?;
        let longest = tag.body_len_max().min(self.cx.settings.max_packet_size);
        let body_len =
            header.body_len.filter(|&length| length <= longest).ok_or(Failure::MessageLength { tag: header.tag })?;
        Ok(Message { tag, bytes, at: piece.at(), total: HEADER_LEN + body_len as usize })
    }

    /// What needs no server.
    fn unlinked(&mut self, id: ClientId, message: &Message<'_>) -> Option<Verdict> {
        match message.tag {
            FrontendTag::Terminate => {
                self.end_client(id, "client close request");
                Some(Verdict::Wait)
            }
            FrontendTag::Sync => {
                self.cx.out.send(id, |out| write::ready(out, TransactionStatus::Idle));
                Some(Verdict::Used(message.total))
            }
            // Ignored outside of a copy, as in `PostgresMain`.
            FrontendTag::Flush | FrontendTag::CopyData | FrontendTag::CopyDone | FrontendTag::CopyFail => {
                Some(self.skip(id, message))
            }
            _ => None,
        }
    }

    pub(crate) fn skip(&mut self, id: ClientId, message: &Message<'_>) -> Verdict {
        if let Some(client) = self.clients.get_mut(id) {
            let left = message.total - message.present();
            client.inbox.body = if left == 0 { Body::None } else { Body::Skip(left as u32) };
        }
        Verdict::Used(message.present())
    }

    /// The message belongs to a request that was cancelled while it waited.
    fn discard(&mut self, id: ClientId, message: &Message<'_>) -> Verdict {
        let Some(session) = self.clients.get_mut(id).and_then(|client| client.session_mut()) else {
            return Verdict::Wait;
        };
        let ready = match (session.discard, message.tag) {
            (_, FrontendTag::Terminate) => {
                self.end_client(id, "client close request");
                return Verdict::Wait;
            }
            (Discard::Cancelled, FrontendTag::Query | FrontendTag::FunctionCall) | (_, FrontendTag::Sync) => true,
            _ => false,
        };
        if message.tag == FrontendTag::Query {
            // As it would have begun, a simple query destroys the unnamed statement.
            session.unnamed.gone();
        }
        session.discard = if ready { Discard::Nothing } else { Discard::UntilSync };
        let verdict = self.skip(id, message);
        if ready {
            self.cx.out.send(id, |out| write::ready(out, TransactionStatus::Idle));
        }
        verdict
    }

    fn linked_request(&mut self, id: ClientId, server_id: ServerId, message: &Message<'_>, tracks: bool) -> Verdict {
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get_mut(server_id)) else {
            return Verdict::Wait;
        };
        let ClientState::Ready(session) = &mut client.state else { return Verdict::Wait };
        if server.owed.is_in_copy() {
            if !is_part_of_copy(message.tag) || (message.tag == FrontendTag::Sync && server.owed.is_full()) {
                return Verdict::Fail(Failure::WrongMessage {
                    expected: "data or the end of a COPY from stdin",
                    got: message.tag as u8,
                });
            }
        } else if message.tag != FrontendTag::Terminate && holds_back(server, message.tag) {
            return self.wait_for_replies(server_id);
        }
        if message.tag == FrontendTag::Describe && session.statements.has_refused() {
            session.statements.described_by(message.body(), server.owed.batch());
        }
        if server.owed.skipping() && !matches!(message.tag, FrontendTag::Sync | FrontendTag::Terminate) {
            return self.skip(id, message);
        }
        let first = server.owed.settled();
        if first {
            session.request_begins(self.cx.now);
        } else {
            // What it waited was for the request that is served already.
            session.waited = Duration::ZERO;
        }
        let reads = session.reads();
        if reads && let Some(verdict) = self.before_resets(id, server_id, message, tracks) {
            return verdict;
        }
        let verdict = self.dispatch_request(id, server_id, message, tracks);
        if reads && matches!(verdict, Verdict::Used(_)) {
            self.read_resets(id, server_id, message, tracks);
        }
        if first && matches!(verdict, Verdict::Used(_)) {
            // The client is no longer idle in its transaction: a query runs.
            self.arm_client(id);
        }
        verdict
    }

    /// The message in hand is held back: what it depends on has not come yet. It is taken up again when anything has come
    /// (`wake_held_back`), so one rule wakes whoever waits, whatever for.
    pub(crate) fn wait_for_replies(&mut self, server_id: ServerId) -> Verdict {
        let Some(server) = self.servers.get_mut(server_id) else { return Verdict::Wait };
        if server.owed.awaits() {
            self.cx.out.send(server_id, write::flush);
        }
        debug_assert!(!server.is_stalled(), "who is held back waits for what comes");
        Verdict::Wait
    }

    fn dispatch_request(&mut self, id: ClientId, server_id: ServerId, message: &Message<'_>, tracks: bool) -> Verdict {
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get_mut(server_id)) else {
            return Verdict::Wait;
        };
        let counters = &mut self.pools[client.pool].counters;
        if matches!(message.tag, FrontendTag::Query | FrontendTag::FunctionCall) {
            // PostgreSQL 18 fails what follows the Sync of a batch that one of these ended: "StartTransactionCommand: unexpected
            // state STARTED" (src/backend/access/transam/xact.c).
            server.close_needed |= server.owed.unsynced();
        }
        match message.tag {
            FrontendTag::Query => {
                let deallocates =
                    message.body().first().is_some_and(|first| first.eq_ignore_ascii_case(&DEALLOCATE[0]));
                let harmless = if deallocates { deallocates_another(message) } else { sets_unread(message) };
                server.mirror.unnamed_in = server.owed.batch();
                server.owed.push(Owed::client(Request::Query).statement(if harmless { HARMLESS } else { 0 }));
                if deallocates {
                    server.owed.deallocates();
                }
                if tracks && may_set_untold(message) {
                    server.owed.sets_unreported();
                }
                counters.queries += 1;
            }
            FrontendTag::FunctionCall => {
                server.owed.push(Owed::client(Request::FunctionCall));
                if calls_set_config(message) {
                    server.owed.sets_unreported();
                }
            }
            FrontendTag::Sync => server.owed.push(Owed::client(Request::Sync)),
            FrontendTag::Execute => {
                counters.queries += 1;
                return self.execute(id, server_id, message);
            }
            FrontendTag::CopyData | FrontendTag::CopyDone | FrontendTag::CopyFail => {
                return self.copy_message(id, server_id, message);
            }
            FrontendTag::Flush => {}
            FrontendTag::Parse => return self.parse(id, server_id, message, tracks),
            FrontendTag::Bind => return self.bind(id, server_id, message, tracks),
            FrontendTag::Describe | FrontendTag::Close => return self.target(id, server_id, message, tracks),
            FrontendTag::Password => return Verdict::Fail(Failure::UnknownMessage(message.tag as u8)),
            FrontendTag::Terminate => {
                self.end_client(id, "client close request");
                return Verdict::Wait;
            }
        }
        self.forward_request(id, server_id, message)
    }

    /// Data for a copy, or its end. Sent ahead of the CopyInResponse it waits for that; outside of a copy it is ignored, as in
    /// `PostgresMain`.
    fn copy_message(&mut self, id: ClientId, server_id: ServerId, message: &Message<'_>) -> Verdict {
        let Some(server) = self.servers.get_mut(server_id) else { return Verdict::Wait };
        if !server.owed.is_in_copy() {
            return if server.owed.is_empty() { self.skip(id, message) } else { self.wait_for_replies(server_id) };
        }
        if message.tag != FrontendTag::CopyData {
            server.owed.end_copy_in();
        }
        self.forward_request(id, server_id, message)
    }

    /// Sends the message on as it is, now and while the rest of it comes.
    pub(crate) fn forward_request(&mut self, id: ClientId, server: ServerId, message: &Message<'_>) -> Verdict {
        self.forward_rest(id, server, message, 0)
    }

    /// Sends on what follows the message's first `from` bytes.
    pub(crate) fn forward_rest(
        &mut self,
        id: ClientId,
        server: ServerId,
        message: &Message<'_>,
        from: usize,
    ) -> Verdict {
        let present = message.present();
        let at = message.at.map(|at| at + from);
        self.cx.out.send_piece(server, &message.bytes[from..present], at);
        if let Some(client) = self.clients.get_mut(id) {
            let left = message.total - present;
            client.inbox.body = if left == 0 { Body::None } else { Body::Forward(left as u32) };
            self.pools[client.pool].counters.bytes_received += present as u64;
        }
        Verdict::Used(present)
    }
}

/// What a client may send while PostgreSQL waits for its data.
fn is_part_of_copy(tag: FrontendTag) -> bool {
    use FrontendTag as Tag;
    matches!(tag, Tag::CopyData | Tag::CopyDone | Tag::CopyFail | Tag::Flush | Tag::Sync | Tag::Terminate)
}

/// Whether the query is a lone DEALLOCATE of a statement that is none of ours.
fn deallocates_another(message: &Message<'_>) -> bool {
    let body = message.body();
    if message.present() < message.total {
        return false;
    }
    let (word, rest) = body.split_at(DEALLOCATE.len().min(body.len()));
    word.eq_ignore_ascii_case(DEALLOCATE)
        // An identifier `U&"..."` has escapes of any kind.
        && !rest.iter().any(|byte| matches!(byte, b';' | b'\\' | b'&'))
        && !rest.windows(SERVER_NAME_PREFIX.len()).any(|at| at.eq_ignore_ascii_case(SERVER_NAME_PREFIX.as_bytes()))
}

/// Whether any message like this waits for what is owed, whatever it says.
#[inline]
fn holds_back(server: &mut Server, tag: FrontendTag) -> bool {
    let held = match server.hold {
        Hold::Nothing => false,
        Hold::Parameters => true,
        // What was reset is given back at a ReadyForQuery. Data of a copy belongs to the request that is under way.
        Hold::Reset => !is_part_of_copy(tag) && (server.owed.awaits_ready() || server.cancel_is_on_its_way()),
    };
    held || server.owed.holds_back(tag == FrontendTag::Sync) || server.owed.is_full()
}

/// Whether the query is a lone SET of a parameter that parsing does not read.
#[inline]
fn sets_unread(message: &Message<'_>) -> bool {
    reading::sets_unread(message.body()) && message.present() == message.total
}

/// Whether the query may set a parameter that neither a report nor a command tag tells of, as far as its text says. A long one
/// is not waited for.
#[inline]
fn may_set_untold(message: &Message<'_>) -> bool {
    message.present() < message.total || names_set_config(message.body())
}

/// Whether it is a call of the function `set_config`; where its number is not there yet, it may be.
fn calls_set_config(message: &Message<'_>) -> bool {
    message.body().first_chunk().is_none_or(|&number| u32::from_be_bytes(number) == SET_CONFIG)
}

/// How much of a message must be in one piece before it is dealt with. `reads`: what it resets is read in its text.
fn needed(message: &Message<'_>, tracks: bool, reads: bool) -> Result<usize, Failure> {
    let total = message.total;
    Ok(match message.tag {
        // Its text is looked through.
        FrontendTag::Query if (tracks || reads) && total <= TEXT_BYTES_MAX => total,
        FrontendTag::Parse if reads && !tracks && total <= TEXT_BYTES_MAX => total,
        FrontendTag::Parse if reads && !tracks => HEADER_LEN + NAME_BYTES,
        FrontendTag::Bind if tracks || reads => {
            let longest = total.min(HEADER_LEN + BIND_NAMES_MAX);
            if BindNames::parse(message.body()).is_some() { message.present() } else { longest }
        }
        FrontendTag::Describe | FrontendTag::Close => total,
        // Whether it is a DEALLOCATE, and of what.
        FrontendTag::Query => match message.body().first() {
            None => (HEADER_LEN + 1).min(total),
            Some(first) if first.eq_ignore_ascii_case(&DEALLOCATE[0]) && total <= DEALLOCATE_LEN_MAX => total,
            Some(_) => HEADER_LEN,
        },
        FrontendTag::Execute if reads => total,
        // The first byte of its portal's name.
        FrontendTag::Execute => (HEADER_LEN + 1).min(total),
        FrontendTag::Parse if tracks => {
            let body_len = total - HEADER_LEN;
            match message.body().first() {
                None => (HEADER_LEN + 1).min(total),
                Some(0) if body_len > UNNAMED_BYTES_KEPT => HEADER_LEN,
                Some(_) if body_len > STATEMENT_BYTES_MAX => {
                    return Err(Failure::StatementTooLong);
                }
                Some(_) => total,
            }
        }
        _ => HEADER_LEN,
    })
}
