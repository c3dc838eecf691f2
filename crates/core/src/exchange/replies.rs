//! What a server in its session sends: the way of a reply from server to client.
//!
//! Each reply takes its place in the queue of what is owed. Replies to messages of ours are kept; the client's go on as
//! they came. At each ReadyForQuery it is decided whether the server is free. What an error means is in `errors.rs`.

use weir_wire::backend;
use weir_wire::{BackendTag, HEADER_LEN, Header, TransactionStatus, write};

use crate::client::{ClientState, Link};
use crate::failure::Failure;
use crate::id::{ClientId, ServerId};
use crate::inbox::{Body, Cursor, Piece};
use crate::owed::{Copy, HARMLESS, Owed, OwedQueue, Request, UNNAMED};
use crate::server::{Hold, Server, ServerState};
use crate::settings::PoolMode;
use crate::statements::UNNAMED_UNKNOWN;
use crate::worker::Worker;

/// ErrorResponse and ParameterStatus up to this size are read; longer ones are passed on unread.
const READ_BYTES_MAX: usize = 64 * 1024;
/// A command tag that matters to us is shorter.
const COMMAND_BYTES_MAX: usize = 64;

pub(crate) enum Verdict {
    More(usize),
    Used(usize),
    /// The server does what no server may do here.
    Broken,
    /// It reports more parameters than any server has.
    ReportsTooMuch,
}

pub(crate) struct Reply<'a> {
    pub(crate) tag: BackendTag,
    bytes: &'a [u8],
    at: Option<usize>,
    total: usize,
}

impl<'a> Reply<'a> {
    fn present(&self) -> usize {
        self.bytes.len().min(self.total)
    }

    /// The body, where it is there in whole.
    pub(crate) fn whole_body(&self) -> Option<&'a [u8]> {
        (self.bytes.len() >= self.total).then(|| &self.bytes[HEADER_LEN..self.total])
    }
}

/// What a message from the server means for what is owed.
#[derive(PartialEq, Eq)]
enum Place {
    /// Part of the reply to the request in front.
    Within,
    /// The end of that reply.
    Completes,
    Fails,
    /// May come at any time.
    Asynchronous,
    Nowhere,
}

impl Worker {
    /// Takes a server's bytes: always all of them.
    pub(crate) fn server_session_bytes(&mut self, id: ServerId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        while self.server_step(id, &mut cursor) {}
        self.wake_held_back(id);
        input.len()
    }

    /// Its client, which is held back for something that is owed, asks again if anything has come. This is the one place where
    /// it does: see `wait_for_replies`.
    #[inline]
    fn wake_held_back(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let wakes = server.owed.wakes();
        let ServerState::Linked(client) = server.state else { return };
        if wakes {
            self.wake_client(client);
        }
        debug_assert!(!self.servers.get(id).is_some_and(Server::is_stalled), "who is held back waits for what comes");
    }

    fn server_step(&mut self, id: ServerId, cursor: &mut Cursor<'_>) -> bool {
        let Some(server) = self.servers.get_mut(id) else { return false };
        if let ServerState::Tunnel(client) = server.state {
            let (from, to) = cursor.take(u32::MAX);
            self.cx.out.forward(client, from, to);
            return false;
        }
        if matches!(server.state, ServerState::Closing) {
            return false;
        }
        if let Body::Forward(count) | Body::Skip(count) = server.inbox.body {
            let (from, to) = cursor.take(count);
            let left = count - (to - from) as u32;
            let forward = matches!(server.inbox.body, Body::Forward(_));
            server.inbox.body = match left {
                0 => Body::None,
                left if forward => Body::Forward(left),
                left => Body::Skip(left),
            };
            if let (true, Some(client)) = (forward, server.client()) {
                self.cx.out.forward(client, from, to);
                self.pools[server.pool].counters.bytes_sent += (to - from) as u64;
            }
            if left == 0 {
                server.answer_made(&mut self.cx);
            }
            return to < cursor.input.len();
        }
        self.pass_run(id, cursor);
        if cursor.rest().is_empty() {
            return false;
        }
        let mut need = HEADER_LEN;
        loop {
            let Some(server) = self.servers.get_mut(id) else { return false };
            let Some(piece) = server.inbox.gather(cursor, need) else { return false };
            let verdict = self.reply(id, &piece);
            let Some(server) = self.servers.get_mut(id) else { return false };
            match verdict {
                Verdict::More(more) => {
                    server.inbox.put_back(piece);
                    need = more;
                }
                Verdict::Used(used) => {
                    server.inbox.used(cursor, piece, used);
                    return true;
                }
                Verdict::Broken => {
                    self.fail_server(id, &Failure::ServerBrokeProtocol);
                    return false;
                }
                Verdict::ReportsTooMuch => {
                    self.fail_server(id, &Failure::ServerReportsTooMuch);
                    return false;
                }
            }
        }
    }

    /// Sends on in one piece the messages at the front of the input that change nothing of what is known: most of what
    /// servers send.
    #[inline]
    fn pass_run(&mut self, id: ServerId, cursor: &mut Cursor<'_>) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let (ServerState::Linked(client), Some(owed)) = (&server.state, server.owed.front()) else { return };
        let described = owed.request == Request::Query;
        if owed.ours || !(described || owed.request == Request::Execute) || server.inbox.has_partial() {
            return;
        }
        let len = backend::rows_len(cursor.rest(), described);
        if len > 0 {
            self.cx.out.forward(*client, cursor.at, cursor.at + len);
            self.pools[server.pool].counters.bytes_sent += len as u64;
            cursor.at += len;
        }
    }

    fn reply(&mut self, id: ServerId, piece: &Piece<'_>) -> Verdict {
        let bytes = piece.bytes();
        let Some((first, _)) = bytes.split_first_chunk::<HEADER_LEN>() else { return Verdict::Broken };
        let header = Header::parse(first);
        let (Some(tag), Some(body_len)) = (BackendTag::from_byte(header.tag), header.body_len) else {
            return Verdict::Broken;
        };
        let reply = Reply { tag, bytes, at: piece.at(), total: HEADER_LEN + body_len as usize };
        match needed(&reply) {
            Some(need) if bytes.len() < need => return Verdict::More(need),
            Some(_) => {}
            None => return Verdict::Broken,
        }
        if let Some(verdict) = self.doubtful_reply(id, &reply) {
            return verdict;
        }
        let Some(server) = self.servers.get_mut(id) else { return Verdict::Broken };
        let front = server.owed.front();
        // What was sent to fail cannot succeed.
        let place = place(tag, front.filter(|owed| !owed.is_to_fail()).map(|owed| owed.request));
        let ours = front.is_some_and(|owed| owed.ours);
        let client = match server.state {
            ServerState::Linked(client) if !ours => Some(client),
            _ => None,
        };
        match place {
            Place::Nowhere => return Verdict::Broken,
            Place::Fails => return self.error_reply(id, &reply, client),
            Place::Asynchronous => return self.asynchronous(id, &reply, client),
            Place::Within if ours && tag == BackendTag::DataRow => return self.own_row(id, &reply),
            Place::Within | Place::Completes => {}
        }
        let status = match (tag, reply.whole_body().map(backend::ready)) {
            (BackendTag::ReadyForQuery, Some(Ok(status))) => Some(status),
            (BackendTag::ReadyForQuery, _) => return Verdict::Broken,
            _ => None,
        };
        // In statement mode the ReadyForQuery that opens a transaction gives way to an error.
        let refused = status.is_some_and(|status| status != TransactionStatus::Idle)
            && self.pools[server.pool].mode == PoolMode::Statement;
        if let (BackendTag::ReadyForQuery, Hold::Reset, Some(client)) = (tag, server.hold, client) {
            self.take_back(id, client);
        }
        if matches!(tag, BackendTag::ParameterDescription | BackendTag::RowDescription | BackendTag::NoData) {
            self.learn_shape(id, &reply);
        }
        let used = self.pass(id, &reply, if refused { None } else { client });
        match tag {
            BackendTag::ReadyForQuery => status.into_iter().for_each(|status| self.ready(id, status)),
            BackendTag::CommandComplete => {
                self.command_complete(id, &reply);
                if place == Place::Completes {
                    self.completed(id);
                }
            }
            BackendTag::CopyInResponse | BackendTag::CopyBothResponse => {
                if let Some(server) = self.servers.get_mut(id) {
                    server.owed.begin_copy_in();
                }
                self.copy_for_nobody(id);
            }
            _ if place == Place::Completes => self.completed(id),
            _ => {}
        }
        Verdict::Used(used)
    }

    /// Where a copy failed, Syncs may or may not be answered that were sent ahead of its end: an empty query of ours behind them
    /// tells where their answers end.
    #[inline]
    fn doubtful_reply(&mut self, id: ServerId, reply: &Reply<'_>) -> Option<Verdict> {
        if !matches!(reply.tag, BackendTag::ReadyForQuery | BackendTag::EmptyQueryResponse) {
            return None;
        }
        let server = self.servers.get_mut(id)?;
        if server.owed.front()?.request != Request::Doubt {
            return None;
        }
        match reply.tag {
            BackendTag::ReadyForQuery => {
                let Some(Ok(status)) = reply.whole_body().map(backend::ready) else { return Some(Verdict::Broken) };
                server.status = status;
                let (theirs, hold) = (server.owed.doubtful_ready(status), server.hold);
                if let (Some(status), Some(client)) = (theirs, server.client()) {
                    if hold == Hold::Reset {
                        self.take_back(id, client);
                    }
                    self.cx.out.send(client, |out| write::ready(out, status));
                }
                Some(Verdict::Used(self.pass(id, reply, None)))
            }
            _ => {
                server.owed.end_doubt();
                None
            }
        }
    }

    /// Sends a reply on to the client it is for, if it is for one.
    #[inline]
    pub(crate) fn pass(&mut self, id: ServerId, reply: &Reply<'_>, client: Option<ClientId>) -> usize {
        #[cfg(feature = "planted")]
        let client = client.filter(|_| !self.cx.planted_now(crate::planted::Planted::DropReply));
        let Some(server) = self.servers.get_mut(id) else { return reply.present() };
        let present = reply.present();
        let left = (reply.total - present) as u32;
        if let Some(client) = client {
            self.cx.out.send_piece(client, &reply.bytes[..present], reply.at);
            server.inbox.body = if left == 0 { Body::None } else { Body::Forward(left) };
            self.pools[server.pool].counters.bytes_sent += present as u64;
        } else {
            server.inbox.body = if left == 0 { Body::None } else { Body::Skip(left) };
        }
        present
    }

    /// The request in front has its whole reply.
    fn completed(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let Some(owed) = server.owed.pop() else { return };
        if owed.statement == UNNAMED {
            self.unnamed_changed(id, &owed);
        }
        if let Some(note) = owed.note {
            self.noted_answered(id, *note);
        }
        self.moved_on(id);
    }

    /// The unnamed statement is another now: it was parsed or closed.
    fn unnamed_changed(&mut self, id: ServerId, owed: &Owed) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let session = match server.state {
            ServerState::Linked(client) => self.clients.get_mut(client).and_then(|client| client.session_mut()),
            _ => None,
        };
        server.mirror.unnamed = match (owed.request, session) {
            (Request::Parse, Some(session)) if owed.ours => session.unnamed.id,
            (Request::Parse, Some(session)) => session.unnamed.parsed(&session.parameters),
            (Request::Parse, None) => UNNAMED_UNKNOWN,
            (Request::Close, session) => {
                if let (Some(session), false) = (session, owed.ours) {
                    session.unnamed.gone();
                }
                0
            }
            _ => server.mirror.unnamed,
        };
    }

    /// Another request is in front of what is owed.
    #[inline]
    fn moved_on(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if server.owed.front().is_some_and(|owed| owed.request == Request::Made) {
            server.answer_made(&mut self.cx);
        }
    }

    fn ready(&mut self, id: ServerId, status: TransactionStatus) {
        let now = self.cx.now;
        let Some(server) = self.servers.get_mut(id) else { return };
        let ended = server.owed.pop();
        server.status = status;
        let own = |owed: &Owed| owed.ours && matches!(owed.request, Request::OwnQuery | Request::Sync);
        if ended.as_ref().is_some_and(own) && server.cancel_after_own && !server.owed.front().is_some_and(own) {
            self.own_query_done(id);
        }
        self.moved_on(id);
        let Some(server) = self.servers.get_mut(id) else { return };
        if status == TransactionStatus::Idle {
            server.mirror.transaction_over(server.owed.answered());
        }
        // A simple query destroys the unnamed statement.
        let query = ended.as_ref().map(|owed| owed.request);
        if matches!(query, Some(Request::Query | Request::OwnQuery)) {
            server.mirror.unnamed = 0;
        }
        if let (ServerState::Linked(client), Some(Owed { ours: false, .. })) = (&server.state, &ended) {
            let pool = &mut self.pools[server.pool];
            if let Some(session) = self.clients.get_mut(*client).and_then(|client| client.session_mut()) {
                pool.counters.query_time += now.since(session.request_at).0;
                session.request_at = now;
                if status == TransactionStatus::Idle {
                    pool.counters.transactions += 1;
                    pool.counters.transaction_time += now.since(session.transaction_at).0;
                    session.transaction_at = now;
                }
                if query == Some(Request::Query) {
                    session.unnamed.gone();
                }
                if session.awaits_parameters() || server.mirror.presumes() {
                    self.parameters_told(id, status);
                }
            }
        }
        self.settle(id);
    }

    /// A row that nobody asked for but us: it may tell the parameters that a statement was parsed under.
    #[cold]
    fn own_row(&mut self, id: ServerId, reply: &Reply<'_>) -> Verdict {
        let front = self.servers.get(id).and_then(|server| server.owed.front());
        let statement = front.map_or(0, Owed::named_statement);
        if statement != 0 {
            let body = reply.whole_body();
            if body.is_none() && reply.total <= READ_BYTES_MAX {
                return Verdict::More(reply.total);
            }
            let client = self.client_of(id).and_then(|client| self.clients.get_mut(client));
            if let Some(session) = client.and_then(|client| client.session_mut()) {
                let values = body.and_then(|body| backend::row_values(body).ok());
                let closed = self.servers.get_mut(id).and_then(|server| server.owed.closes(statement));
                session.statements.parameters_answered(
                    statement,
                    values.as_deref(),
                    &mut self.cx.parameter_sets,
                    closed,
                );
            }
        }
        Verdict::Used(self.pass(id, reply, None))
    }

    /// Looks whether nothing is owed any more, and what that means.
    pub(crate) fn settle(&mut self, id: ServerId) {
        let Some(server) = self.servers.get(id) else { return };
        if !server.owed.settled() {
            if server.owed.unsynced() {
                self.look_ended_unsynced(id);
            }
            return;
        }
        let sender = server.client().and_then(|client| self.clients.get(client));
        if sender.is_some_and(|client| matches!(client.inbox.body, Body::Forward(_))) {
            // The rest of a message is on its way to the server.
            return;
        }
        let Some(server) = self.servers.get(id) else { return };
        match server.state {
            ServerState::Linked(client) => self.linked_settled(id, client),
            ServerState::Recovering { .. } => self.recovering_settled(id),
            _ => {}
        }
    }

    /// Notices, notifications and parameters.
    fn asynchronous(&mut self, id: ServerId, reply: &Reply<'_>, client: Option<ClientId>) -> Verdict {
        if reply.tag == BackendTag::ParameterStatus {
            let Some(body) = reply.whole_body() else { return Verdict::Broken };
            let Ok((name, value)) = backend::parameter_status(body) else { return Verdict::Broken };
            let resets = self.servers.get(id).is_some_and(|server| server.hold == Hold::Reset);
            let taken_back = resets && client.is_some_and(|client| self.is_taken_back(client, name, value));
            let client = client.filter(|_| !taken_back);
            if !self.parameter_reported(id, name, value, client) {
                return Verdict::ReportsTooMuch;
            }
            return Verdict::Used(self.pass(id, reply, client));
        }
        // A notification with nobody linked has no owner any more: LISTEN belongs to the session.
        Verdict::Used(self.pass(id, reply, client))
    }

    /// The one place that knows which parameters are the client's to keep. False where there are too many.
    fn parameter_reported(&mut self, id: ServerId, name: &str, value: &[u8], client: Option<ClientId>) -> bool {
        if crate::parameters::is_fact(name) {
            self.fact_reported(id, name, value);
            return true;
        }
        let Some(server) = self.servers.get_mut(id) else { return true };
        let session = client.and_then(|client| self.clients.get_mut(client)).and_then(|client| client.session_mut());
        // PostgreSQL tells a value in the client_encoding of that moment, and not again when that changes.
        if crate::parameters::is_encoding(name) {
            server.close_needed |= server.parameters.has_foreign_text();
            if let Some(session) = &session
                && session.parameters.has_foreign_text()
            {
                (server.keeps_client, server.close_needed) = (true, true);
            }
        } else if !value.is_ascii() && server.parameters.encoding() != self.pools[server.pool].server_encoding() {
            server.close_needed = true;
        }
        self.cx.parameter_sets.change(&mut server.parameters, name, value)
            && session.is_none_or(|session| self.cx.parameter_sets.change(&mut session.parameters, name, value))
    }

    /// Commands that change what we know of a session.
    fn command_complete(&mut self, id: ServerId, reply: &Reply<'_>) {
        let Some(server) = self.servers.get_mut(id) else { return };
        server.owed.command_completed();
        let Some(tag) = reply.whole_body() else { return };
        let statements_gone = matches!(tag, b"DISCARD ALL\0" | b"DEALLOCATE ALL\0");
        if statements_gone {
            let sent_behind = server.owed.prepared_behind();
            server.mirror.forget_all_but(&sent_behind);
        }
        let harmless = |owed: &OwedQueue| owed.front().is_some_and(|owed| owed.statement == HARMLESS);
        let ours = |owed: &OwedQueue| owed.front().is_some_and(|owed| owed.ours);
        match tag {
            b"DEALLOCATE\0" if !harmless(&server.owed) => server.mirror.doubt_all(),
            b"ROLLBACK\0" | b"PREPARE TRANSACTION\0" => server.mirror.rolled_back(server.owed.answering()),
            // What is behind the last three may be anything.
            b"SET\0" | b"RESET\0" | b"DISCARD ALL\0" | b"DO\0" | b"CALL\0" | b"SET CONSTRAINTS\0"
                if !harmless(&server.owed) && !ours(&server.owed) =>
            {
                server.owed.sets_unreported();
            }
            _ => {}
        }
        let ServerState::Linked(client) = server.state else { return };
        if statements_gone
            && server.owed.front().is_some_and(|owed| !owed.ours)
            && let Some(session) = self.clients.get_mut(client).and_then(|client| client.session_mut())
        {
            server.owed.name_again(&mut session.statements);
            if let Some(startup) = &mut session.startup {
                startup.deallocated_all();
            }
        }
        let ends_transaction = matches!(tag, b"COMMIT\0" | b"ROLLBACK\0" | b"PREPARE TRANSACTION\0");
        if (server.hold == Hold::Reset && ends_transaction) || matches!(tag, b"RESET\0" | b"SET\0" | b"DISCARD ALL\0") {
            self.reset_completed(id, tag);
        }
    }

    /// PostgreSQL asks a client for data that is gone.
    fn copy_for_nobody(&mut self, id: ServerId) {
        let Some(server) = self.servers.get(id) else { return };
        match server.state {
            ServerState::Recovering { .. } if server.owed.copy() != Copy::None => self.end_copy(id),
            ServerState::Linked(client) => {
                self.look_ended(client);
            }
            _ => {}
        }
    }

    /// The client linked to a server that is gone, or is of no use any more.
    pub(crate) fn client_of(&self, id: ServerId) -> Option<ClientId> {
        let client = self.servers.get(id)?.client()?;
        let linked = self.clients.get(client)?.link.server() == Some(id);
        linked.then_some(client)
    }

    /// Nothing half-sent stands between the client and an error of ours.
    pub(crate) fn can_tell(&self, client: ClientId) -> bool {
        let Some(client) = self.clients.get(client) else { return false };
        match &client.state {
            ClientState::Login(login) if login.is_in_handshake() => return false,
            ClientState::Login(_) | ClientState::Ready(_) => {}
            _ => return false,
        }
        match client.link {
            Link::Linked(server) => self
                .servers
                .get(server)
                .is_none_or(|server| !matches!(server.inbox.body, Body::Forward(_)) && !server.told),
            Link::Tunnel(_) => false,
            _ => true,
        }
    }
}

/// Where a message belongs, given the request in front.
fn place(tag: BackendTag, front: Option<Request>) -> Place {
    use BackendTag as Tag;
    match tag {
        Tag::NoticeResponse | Tag::NotificationResponse | Tag::ParameterStatus => return Place::Asynchronous,
        Tag::ErrorResponse => return Place::Fails,
        _ => {}
    }
    let Some(front) = front else { return Place::Nowhere };
    match (tag, front) {
        (Tag::ReadyForQuery, Request::Query | Request::OwnQuery | Request::FunctionCall | Request::Sync)
        | (Tag::ParseComplete, Request::Parse)
        | (Tag::BindComplete, Request::Bind)
        | (Tag::CloseComplete, Request::Close)
        | (Tag::RowDescription | Tag::NoData, Request::DescribeStatement | Request::DescribePortal)
        | (Tag::CommandComplete | Tag::EmptyQueryResponse | Tag::PortalSuspended, Request::Execute) => Place::Completes,
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
        | (Tag::FunctionCallResponse, Request::FunctionCall) => Place::Within,
        _ => Place::Nowhere,
    }
}

/// How much of a message must be in one piece; `None` where its length is impossible.
fn needed(reply: &Reply<'_>) -> Option<usize> {
    let small = |limit: usize| if reply.total <= limit { reply.total } else { HEADER_LEN };
    match reply.tag {
        BackendTag::ReadyForQuery => (reply.total == HEADER_LEN + 1).then_some(reply.total),
        BackendTag::ParameterStatus => (reply.total <= READ_BYTES_MAX).then_some(reply.total),
        BackendTag::ErrorResponse | BackendTag::RowDescription | BackendTag::ParameterDescription => {
            Some(small(READ_BYTES_MAX))
        }
        BackendTag::CommandComplete => Some(small(COMMAND_BYTES_MAX)),
        _ => Some(HEADER_LEN),
    }
}
