//! Requests that name prepared statements: Parse, Bind, Describe and Close.
//!
//! A client's name leads to a statement, a statement to a name that the server knows; where the server does not know it
//! yet, it is prepared in the same write. What a statement is, and who knows which, is kept in `statements.rs`.

use std::sync::Arc;

use weir_wire::frontend::{BindNames, Parse, Target};
use weir_wire::report::{Report, Severity};
use weir_wire::{FrontendTag, HEADER_LEN, write};

use crate::client::{ClientState, Session};
use crate::failure::Failure;
use crate::id::ConnId;
use crate::outbox::Outbox;
use crate::owed::{Note, Owed, Request};
use crate::requests::{Message, Verdict};
use crate::server::Server;
use crate::statements::{ABSENT_STATEMENT, Shape, Statement, UNNAMED_BYTES_KEPT, is_server_name};
use crate::worker::Worker;

impl Worker {
    pub(crate) fn parse(&mut self, id: ConnId, server_id: ConnId, message: &Message<'_>, tracks: bool) -> Verdict {
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
            return self.fail_in_order(id, server_id, message, already_exists(&name));
        }
        if !session.statements.has_room_for(parse.name, parse.definition.len()) {
            return self.fail_in_order(id, server_id, message, too_many_statements());
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

    pub(crate) fn bind(&mut self, id: ConnId, server_id: ConnId, message: &Message<'_>, tracks: bool) -> Verdict {
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
            Named::Anothers => self.fail_in_order(id, server_id, message, does_not_exist(names.statement)),
            Named::Ours(statement) => {
                match self.check_rows(id, server_id, message, &statement) {
                    Rows::AsExpected => {}
                    Rows::NotKnownYet => return Verdict::Wait,
                    Rows::Changed => return self.fail_in_order(id, server_id, message, result_type_changed()),
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
    pub(crate) fn target(&mut self, id: ConnId, server_id: ConnId, message: &Message<'_>, tracks: bool) -> Verdict {
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
            match self.statement_for(id, server_id, name) {
                Named::Ours(statement) => {
                    let name = statement.server_name.as_bytes();
                    self.out.send(server_id, |out| write::describe_statement(out, name));
                    if let Some(server) = self.servers.get_mut(server_id) {
                        server.owed.push(Owed::client(request).statement(statement.id));
                    }
                    return Verdict::Used(message.total);
                }
                Named::Anothers => return self.fail_in_order(id, server_id, message, does_not_exist(name)),
                Named::AsItIs => {}
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
        // To close a statement that does not exist is no error: nor is it for one that exists for others only.
        if removed.is_none() && !is_server_name(name) {
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
        let Some(statement) = session.statements.get(name).map(Arc::clone) else {
            // An unknown name is PostgreSQL's to answer: it may be one that SQL PREPARE made.
            return if is_server_name(name) { Named::Anothers } else { Named::AsItIs };
        };
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
    fn fail_in_order(&mut self, id: ConnId, server_id: ConnId, message: &Message<'_>, report: Report) -> Verdict {
        self.out.send(server_id, |out| write::describe_statement(out, ABSENT_STATEMENT));
        if let Some(server) = self.servers.get_mut(server_id) {
            let owed = Owed::client(Request::DescribeStatement).note(Note::Fails(Box::new(report)));
            server.owed.push(owed);
        }
        self.skip(id, message)
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
    /// By our name for it, which no client is told: to this client it does not exist.
    Anothers,
}

/// The unnamed statement is the client's, wherever it was parsed: another server gets it again, and one that holds
/// somebody else's has it closed, so that nobody ever binds what is not his.
fn restore_unnamed(out: &mut Outbox, session: &Session, server_id: ConnId, server: &mut Server) {
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

/// PostgreSQL's own words for it (`RevalidateCachedQuery`).
fn result_type_changed() -> Report {
    Report::new(Severity::Error, "0A000", "cached plan must not change result type")
        .hint("Prepare the statement again.")
        // asyncpg and pgjdbc look for it before they prepare anew by themselves.
        .routine("RevalidateCachedQuery")
}

/// PostgreSQL's own words for it (`FetchPreparedStatement`).
fn does_not_exist(name: &[u8]) -> Report {
    let name = String::from_utf8_lossy(name);
    Report::new(Severity::Error, "26000", format!("prepared statement \"{name}\" does not exist"))
}

fn already_exists(name: &str) -> Report {
    Report::new(Severity::Error, "42P05", format!("prepared statement \"{name}\" already exists"))
}

fn too_many_statements() -> Report {
    Report::new(Severity::Error, "53400", "this client holds too many prepared statements")
        .hint("Close the statements that are no longer used.")
}
