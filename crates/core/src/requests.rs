//! What a client in its session sends: the way of a query from client to server.
//!
//! A message's header decides: forward it, skip it, or gather it first because its names must be read. Nothing is sent to a
//! server for a client that is not linked to it, and a server is taken only when there is something to send.

use std::sync::Arc;

use weir_wire::frontend::{BindNames, Parse, Target};
use weir_wire::report::{Report, Severity};
use weir_wire::{FrontendTag, HEADER_LEN, Header, TransactionStatus, write};

use crate::client::{ClientState, Discard, Link, Session};
use crate::failure::Failure;
use crate::id::ConnId;
use crate::inbox::{Body, Cursor, Piece};
use crate::owed::{Note, OWED_MAX, Owed, Request};
use crate::server::Server;
use crate::statements::{ABSENT_STATEMENT, STATEMENT_BYTES_MAX, Shape, Statement, UNNAMED_BYTES_KEPT};
use crate::worker::Worker;

/// The two names of a Bind, with their terminators, are at most this long.
const BIND_NAMES_MAX: usize = 1024;

/// What became of a piece.
enum Verdict {
    /// This many bytes must be in one piece.
    More(usize),
    /// Dealt with, up to here; the inbox knows about the rest of the message.
    Used(usize),
    /// Not now: the client is not read until something changes.
    Wait,
    Fail(Failure),
}

/// One message, as far as it is there.
struct Message<'a> {
    tag: FrontendTag,
    /// From the header on.
    bytes: &'a [u8],
    /// Where they lie in the input.
    at: Option<usize>,
    /// Header and body.
    total: usize,
}

impl<'a> Message<'a> {
    fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..self.bytes.len().min(self.total)]
    }

    /// How many of its bytes are there.
    fn present(&self) -> usize {
        self.bytes.len().min(self.total)
    }
}

impl Worker {
    /// Takes what it can of a client's bytes; answers how many.
    pub(crate) fn session_bytes(&mut self, id: ConnId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        while self.session_step(id, &mut cursor) {}
        cursor.at
    }

    /// One step; false where it cannot go on.
    fn session_step(&mut self, id: ConnId, cursor: &mut Cursor<'_>) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return false };
        if !matches!(client.state, ClientState::Ready(_)) {
            return false;
        }
        if let Link::Tunnel(server) = client.link {
            let (from, to) = cursor.take(u32::MAX);
            self.out.forward(server, from, to);
            return false;
        }
        let blocked = match client.link.server().and_then(|server| self.servers.get(server)) {
            Some(server) => server.congested,
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

    fn continue_body(&mut self, id: ConnId, cursor: &mut Cursor<'_>) -> bool {
        if cursor.rest().is_empty() {
            return false;
        }
        let Some(client) = self.clients.get_mut(id) else { return false };
        let (Body::Forward(count) | Body::Skip(count)) = client.inbox.body else { return false };
        let (from, to) = cursor.take(count);
        let left = count - (to - from) as u32;
        if let (Body::Forward(_), Link::Linked(server)) = (client.inbox.body, client.link) {
            self.out.forward(server, from, to);
            self.pools[client.pool].counters.bytes_received += (to - from) as u64;
            client.inbox.body = if left == 0 { Body::None } else { Body::Forward(left) };
        } else {
            client.inbox.body = if left == 0 { Body::None } else { Body::Skip(left) };
        }
        true
    }

    fn request(&mut self, id: ConnId, piece: &Piece<'_>) -> Verdict {
        let message = match self.read_header(piece) {
            Ok(message) => message,
            Err(failure) => return Verdict::Fail(failure),
        };
        let Some(client) = self.clients.get(id) else { return Verdict::Wait };
        let Some(session) = client.session() else { return Verdict::Wait };
        if session.discard != Discard::Nothing {
            return self.discard(id, &message);
        }
        let tracks = self.pools[client.pool].tracks_statements(&self.settings);
        match needed(&message, tracks) {
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
        let longest = tag.body_len_max().min(self.settings.max_packet_size);
        let body_len =
            header.body_len.filter(|&length| length <= longest).ok_or(Failure::MessageLength { tag: header.tag })?;
        Ok(Message { tag, bytes, at: piece.at(), total: HEADER_LEN + body_len as usize })
    }

    /// What needs no server.
    fn unlinked(&mut self, id: ConnId, message: &Message<'_>) -> Option<Verdict> {
        match message.tag {
            FrontendTag::Terminate => {
                self.end_client(id, "client close request");
                Some(Verdict::Wait)
            }
            FrontendTag::Sync => {
                self.out.send(id, |out| write::ready(out, TransactionStatus::Idle));
                Some(Verdict::Used(message.total))
            }
            // Ignored outside of a copy, as in `PostgresMain`.
            FrontendTag::Flush | FrontendTag::CopyData | FrontendTag::CopyDone | FrontendTag::CopyFail => {
                Some(self.skip(id, message))
            }
            _ => None,
        }
    }

    fn skip(&mut self, id: ConnId, message: &Message<'_>) -> Verdict {
        if let Some(client) = self.clients.get_mut(id) {
            let left = message.total - message.present();
            client.inbox.body = if left == 0 { Body::None } else { Body::Skip(left as u32) };
        }
        Verdict::Used(message.present())
    }

    /// The message belongs to a request that was cancelled while it waited.
    fn discard(&mut self, id: ConnId, message: &Message<'_>) -> Verdict {
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
        session.discard = if ready { Discard::Nothing } else { Discard::UntilSync };
        let verdict = self.skip(id, message);
        if ready {
            self.out.send(id, |out| write::ready(out, TransactionStatus::Idle));
        }
        verdict
    }

    fn linked_request(&mut self, id: ConnId, server_id: ConnId, message: &Message<'_>, tracks: bool) -> Verdict {
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get_mut(server_id)) else {
            return Verdict::Wait;
        };
        let ClientState::Ready(session) = &mut client.state else { return Verdict::Wait };
        if server.owed.len() >= OWED_MAX {
            return Verdict::Wait;
        }
        if server.owed.skipping() && !matches!(message.tag, FrontendTag::Sync | FrontendTag::Terminate) {
            return self.skip(id, message);
        }
        let first = server.owed.settled();
        if first {
            session.request_at = self.now;
        }
        let verdict = self.dispatch_request(id, server_id, message, tracks);
        if first && matches!(verdict, Verdict::Used(_)) {
            // The client is no longer idle in its transaction: a query runs.
            self.arm_client(id);
        }
        verdict
    }

    fn dispatch_request(&mut self, id: ConnId, server_id: ConnId, message: &Message<'_>, tracks: bool) -> Verdict {
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get_mut(server_id)) else {
            return Verdict::Wait;
        };
        let ClientState::Ready(session) = &mut client.state else { return Verdict::Wait };
        let counters = &mut self.pools[client.pool].counters;
        match message.tag {
            FrontendTag::Query => {
                server.owed.push(Owed::client(Request::Query));
                server.mirror.unnamed = 0;
                session.unnamed.id = 0;
                counters.queries += 1;
            }
            FrontendTag::FunctionCall => server.owed.push(Owed::client(Request::FunctionCall)),
            FrontendTag::Sync => server.owed.push(Owed::client(Request::Sync)),
            FrontendTag::Execute => {
                server.owed.push(Owed::client(Request::Execute));
                counters.queries += 1;
            }
            FrontendTag::CopyDone | FrontendTag::CopyFail => server.owed.push(Owed::client(Request::CopyEnd)),
            FrontendTag::Flush | FrontendTag::CopyData => {}
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

    /// Sends the message on as it is, now and while the rest of it comes.
    fn forward_request(&mut self, id: ConnId, server: ConnId, message: &Message<'_>) -> Verdict {
        self.forward_rest(id, server, message, 0)
    }

    /// Sends on what follows the message's first `from` bytes.
    fn forward_rest(&mut self, id: ConnId, server: ConnId, message: &Message<'_>, from: usize) -> Verdict {
        let present = message.present();
        let at = message.at.map(|at| at + from);
        self.out.send_piece(server, &message.bytes[from..present], at);
        if let Some(client) = self.clients.get_mut(id) {
            let left = message.total - present;
            client.inbox.body = if left == 0 { Body::None } else { Body::Forward(left as u32) };
            self.pools[client.pool].counters.bytes_received += present as u64;
        }
        Verdict::Used(present)
    }

    fn parse(&mut self, id: ConnId, server_id: ConnId, message: &Message<'_>, tracks: bool) -> Verdict {
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get_mut(server_id)) else {
            return Verdict::Wait;
        };
        let ClientState::Ready(session) = &mut client.state else { return Verdict::Wait };
        self.pools[client.pool].counters.client_parses += 1;
        if !tracks || message.present() < message.total {
            // Not kept: a session of its own, or an unnamed statement too long to keep.
            let unnamed = self.statements.next_id();
            session.unnamed.id = if tracks { unnamed } else { 0 };
            session.unnamed.definition.clear();
            server.mirror.unnamed = session.unnamed.id;
            server.owed.push(Owed::client(Request::Parse));
            return self.forward_request(id, server_id, message);
        }
        let parse = match Parse::read(message.body()) {
            Ok(parse) => parse,
            Err(malformed) => return Verdict::Fail(malformed.into()),
        };
        if parse.name.is_empty() {
            session.unnamed.id = self.statements.next_id();
            session.unnamed.definition.clear();
            if parse.definition.len() <= UNNAMED_BYTES_KEPT {
                session.unnamed.definition.extend_from_slice(parse.definition);
            }
            server.mirror.unnamed = session.unnamed.id;
            server.owed.push(Owed::client(Request::Parse));
            self.pools[client.pool].counters.server_parses += 1;
            return self.forward_request(id, server_id, message);
        }
        if session.statements.get(parse.name).is_some() {
            let name = String::from_utf8_lossy(parse.name).into_owned();
            return self.fail_in_order(server_id, message, already_exists(&name));
        }
        if !session.statements.has_room_for(parse.name, parse.definition.len()) {
            return self.fail_in_order(server_id, message, too_many_statements());
        }
        let statement = self.statements.intern(parse.definition);
        session.statements.insert(parse.name, Arc::clone(&statement));
        let note = Note::Named { name: parse.name.into(), statement: Arc::clone(&statement) };
        if server.mirror.knows(&statement) {
            server.owed.push(Owed::client(Request::Made).note(note));
            self.answer_made(server_id);
        } else {
            self.prepare(server_id, &statement, Owed::client(Request::Parse).note(note));
        }
        Verdict::Used(message.total)
    }

    /// Prepares a statement on a server, in the write that is under way; makes room for it first.
    fn prepare(&mut self, server_id: ConnId, statement: &Arc<Statement>, owed: Owed) {
        let Some(server) = self.servers.get_mut(server_id) else { return };
        let limit = self.settings.max_prepared_statements as usize;
        let outdated = server.mirror.remove(statement.id);
        for evicted in [outdated, server.mirror.evict(limit)].into_iter().flatten() {
            let name = Arc::clone(&evicted.statement);
            self.out.send(server_id, |out| write::close_statement(out, name.server_name.as_bytes()));
            server.owed.push(Owed::ours(Request::Close).note(Note::Evicted(evicted)));
        }
        let (name, definition) = (statement.server_name.as_bytes(), &statement.definition);
        self.out.send(server_id, |out| write::parse(out, name, definition));
        server.mirror.add(statement);
        server.owed.push(owed.statement(statement.id));
        self.pools[server.pool].counters.server_parses += 1;
    }

    fn bind(&mut self, id: ConnId, server_id: ConnId, message: &Message<'_>, tracks: bool) -> Verdict {
        if !tracks {
            if let Some(server) = self.servers.get_mut(server_id) {
                server.owed.push(Owed::client(Request::Bind));
            }
            return self.forward_request(id, server_id, message);
        }
        let Some(names) = BindNames::parse(message.body()) else {
            return Verdict::Fail(Failure::NameTooLong);
        };
        if let Some(client) = self.clients.get(id) {
            self.pools[client.pool].counters.binds += 1;
        }
        match self.statement_for(id, server_id, names.statement) {
            Named::AsItIs => {
                if let Some(server) = self.servers.get_mut(server_id) {
                    server.owed.push(Owed::client(Request::Bind));
                    server.mirror.bound = 0;
                }
                self.forward_request(id, server_id, message)
            }
            Named::Ours(statement) => {
                match self.check_rows(id, server_id, message, &statement) {
                    Rows::AsExpected => {}
                    Rows::NotKnownYet => return Verdict::Wait,
                    Rows::Changed => return self.fail_in_order(server_id, message, result_type_changed()),
                }
                if let Some(server) = self.servers.get_mut(server_id) {
                    server.owed.push(Owed::client(Request::Bind).statement(statement.id));
                    server.mirror.bound = if names.portal.is_empty() { statement.id } else { 0 };
                }
                let values = message.total - HEADER_LEN - names.len();
                let name = statement.server_name.as_bytes();
                self.out.send(server_id, |out| write::bind_names(out, names.portal, name, values));
                self.forward_rest(id, server_id, message, HEADER_LEN + names.len())
            }
        }
    }

    /// Describe and Close.
    fn target(&mut self, id: ConnId, server_id: ConnId, message: &Message<'_>, tracks: bool) -> Verdict {
        let target = match Target::parse(message.body()) {
            Ok(target) => target,
            Err(malformed) => return Verdict::Fail(malformed.into()),
        };
        let close = message.tag == FrontendTag::Close;
        let request = match (close, target) {
            (true, _) => Request::Close,
            (false, Target::Statement(_)) => Request::DescribeStatement,
            (false, Target::Portal(_)) => Request::DescribePortal,
        };
        if let (true, Target::Statement(name)) = (tracks, target) {
            if close {
                return self.close_statement(id, server_id, message, name);
            }
            if let Named::Ours(statement) = self.statement_for(id, server_id, name) {
                let name = statement.server_name.as_bytes();
                self.out.send(server_id, |out| write::describe_statement(out, name));
                if let Some(server) = self.servers.get_mut(server_id) {
                    server.owed.push(Owed::client(request).statement(statement.id));
                }
                return Verdict::Used(message.total);
            }
        }
        if let Some(server) = self.servers.get_mut(server_id) {
            let bound = match target {
                Target::Portal([]) => server.mirror.bound,
                _ => 0,
            };
            server.owed.push(Owed::client(request).statement(bound));
        }
        self.forward_request(id, server_id, message)
    }

    /// A named statement stays on the server for its other users; only the client forgets it.
    fn close_statement(&mut self, id: ConnId, server_id: ConnId, message: &Message<'_>, name: &[u8]) -> Verdict {
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get_mut(server_id)) else {
            return Verdict::Wait;
        };
        let ClientState::Ready(session) = &mut client.state else { return Verdict::Wait };
        let removed = if name.is_empty() { None } else { session.statements.remove(name) };
        if removed.is_none() {
            // The unnamed one, or one that SQL PREPARE made: PostgreSQL's own.
            if name.is_empty() {
                server.mirror.unnamed = 0;
                session.unnamed.id = 0;
            }
            server.owed.push(Owed::client(Request::Close));
            return self.forward_request(id, server_id, message);
        }
        let note = Note::Closed { name: name.into(), statement: removed };
        server.owed.push(Owed::client(Request::Made).note(note));
        self.answer_made(server_id);
        Verdict::Used(message.total)
    }

    /// Makes sure that the server knows the statement a client names.
    fn statement_for(&mut self, id: ConnId, server_id: ConnId, name: &[u8]) -> Named {
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get_mut(server_id)) else {
            return Named::AsItIs;
        };
        let ClientState::Ready(session) = &mut client.state else { return Named::AsItIs };
        if name.is_empty() {
            restore_unnamed(&mut self.out, session, server_id, server);
            return Named::AsItIs;
        }
        // An unknown name is PostgreSQL's to answer: it may be one that SQL PREPARE made.
        let Some(statement) = session.statements.get(name).map(Arc::clone) else { return Named::AsItIs };
        if !server.mirror.knows(&statement) {
            self.prepare(server_id, &statement, Owed::ours(Request::Parse));
        }
        Named::Ours(statement)
    }

    /// Compares the rows that the server's plan returns with those that the client was told to expect.
    ///
    /// A plan's rows change when somebody alters a table. A server that planned before then refuses the statement
    /// itself; one that planned after would return rows that the client takes for something else. So a client that has
    /// asked for the description of a statement is served only where the description is known to be the same: the
    /// first time that a server gets the statement, the client's message waits for it.
    /// One that asks again, with a Describe behind this Bind, is told in time what comes.
    fn check_rows(&mut self, id: ConnId, server_id: ConnId, bind: &Message<'_>, statement: &Statement) -> Rows {
        if bind.bytes.get(bind.total) == Some(&(FrontendTag::Describe as u8)) {
            return Rows::AsExpected;
        }
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get_mut(server_id)) else {
            return Rows::NotKnownYet;
        };
        let ClientState::Ready(session) = &mut client.state else { return Rows::NotKnownYet };
        let Some((expected, outdated)) = session.statements.expected(statement) else { return Rows::AsExpected };
        match server.mirror.shape(statement.id) {
            Shape::Is(shape) if shape == expected && !outdated => return Rows::AsExpected,
            Shape::Is(_) => {}
            _ if outdated => {}
            Shape::Asked => return Rows::NotKnownYet,
            Shape::Unknown => {
                server.mirror.set_shape(statement.id, Shape::Asked);
                server.owed.push(Owed::ours(Request::DescribeStatement).statement(statement.id));
                self.out.send(server_id, |out| {
                    write::describe_statement(out, statement.server_name.as_bytes());
                    write::flush(out);
                });
                return Rows::NotKnownYet;
            }
        }
        session.statements.told_of_change(statement.id);
        Rows::Changed
    }

    /// Answers a message with an error of ours where its reply belongs: something that must fail is sent in its
    /// place, so that PostgreSQL skips what follows up to the Sync.
    fn fail_in_order(&mut self, server_id: ConnId, message: &Message<'_>, report: Report) -> Verdict {
        self.out.send(server_id, |out| write::describe_statement(out, ABSENT_STATEMENT));
        if let Some(server) = self.servers.get_mut(server_id) {
            let owed = Owed::client(Request::DescribeStatement).note(Note::Fails(Box::new(report)));
            server.owed.push(owed);
        }
        Verdict::Used(message.total)
    }
}

/// Whether a statement returns what its client expects.
enum Rows {
    AsExpected,
    NotKnownYet,
    Changed,
}

/// How a statement's name goes to the server.
enum Named {
    AsItIs,
    Ours(Arc<Statement>),
}

/// The unnamed statement is the client's, wherever it was parsed: another server gets it again, and one that holds
/// somebody else's has it closed, so that nobody ever binds what is not his.
fn restore_unnamed(out: &mut crate::outbox::Outbox, session: &Session, server_id: ConnId, server: &mut Server) {
    let unnamed = &session.unnamed;
    if unnamed.id == server.mirror.unnamed {
        return;
    }
    if unnamed.id != 0 && !unnamed.definition.is_empty() {
        out.send(server_id, |out| write::parse(out, b"", &unnamed.definition));
        server.owed.push(Owed::ours(Request::Parse));
        server.mirror.unnamed = unnamed.id;
    } else {
        out.send(server_id, |out| write::close_statement(out, b""));
        server.owed.push(Owed::ours(Request::Close));
        server.mirror.unnamed = 0;
    }
}

/// How much of a message must be in one piece before it is dealt with.
fn needed(message: &Message<'_>, tracks: bool) -> Result<usize, Failure> {
    let total = message.total;
    Ok(match message.tag {
        FrontendTag::Bind if tracks => {
            let longest = total.min(HEADER_LEN + BIND_NAMES_MAX);
            if BindNames::parse(message.body()).is_some() { message.present() } else { longest }
        }
        FrontendTag::Describe | FrontendTag::Close => total,
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

/// PostgreSQL's own words for it (`RevalidateCachedQuery`).
fn result_type_changed() -> Report {
    Report::new(Severity::Error, "0A000", "cached plan must not change result type")
        .hint("Prepare the statement again.")
        // asyncpg and pgjdbc look for it before they prepare anew by themselves.
        .routine("RevalidateCachedQuery")
}

fn already_exists(name: &str) -> Report {
    Report::new(Severity::Error, "42P05", format!("prepared statement \"{name}\" already exists"))
}

fn too_many_statements() -> Report {
    Report::new(Severity::Error, "53400", "this client holds too many prepared statements")
        .hint("Close the statements that are no longer used.")
}
