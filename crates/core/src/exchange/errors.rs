//! What an error of a server's means: whose it is, and what is not carried out because of it.
//!
//! Knows nothing of other replies: those are in `replies.rs`.

use weir_wire::backend::{ErrorFields, RowShape, StatementShape};
use weir_wire::report::Report;
use weir_wire::{TransactionStatus, write};

use super::replies::{BROKEN, Reply, Verdict};
use super::{Answers, Outcome, OwnFailure};
use crate::id::ClientId;
use crate::inbox::Body;
use crate::owed::{Copy, MAY_CLOSE, MAY_CLOSE_ALL, Note, Owed, Request, UNNAMED};
use crate::parameters::resetting::Noted;
use crate::server::ServerState;
use crate::statements::definition::text_of;
use crate::statements::{SERVER_NAME_PREFIX, Shape, UNNAMED_UNKNOWN};
use crate::time::Duration;
use crate::timers::Subject;
use crate::watched::Teller;

/// Behind a `FATAL` PostgreSQL closes the connection: after so long its client is ended without that.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);

impl Answers<'_> {
    /// An error: the client's, unless it answers a message of ours.
    pub(super) fn error_reply(&mut self, reply: &Reply<'_>, client: Option<ClientId>) -> Verdict {
        let fields = match reply.whole_body().map(ErrorFields::parse) {
            Some(Ok(fields)) => fields,
            Some(Err(_)) => return BROKEN,
            None => ErrorFields::default(),
        };
        let Some(front) = self.server.owed.front() else {
            if self.server.owed.unsynced() && !fields.ends_session() {
                // A time limit of PostgreSQL's ran out between two messages (`ProcessInterrupts`): it skips to the Sync.
                self.server.owed.fail();
                return Verdict::Used(self.pass(reply, client));
            }
            return self.unasked_error(reply, client, fields.ends_session());
        };
        // What we put before the client's message failed: that is the client's message's failure.
        let own_query = front.request == Request::OwnQuery;
        let client = match self.server.state {
            ServerState::Linked(client) if !own_query => Some(client),
            _ => client,
        };
        self.server.owed.told();
        self.may_have_committed();
        // A COMMIT that fails has no tag.
        self.server.kept.altered.block_may_be_over = true;
        self.learn_from_error(&fields);
        let place = self.server.owed.front_place();
        let commits = self.server.owed.commits();
        if !fields.ends_session()
            && !commits
            && (self.server.kept.names_fail(place) || self.server.kept.own_batch_fails())
        {
            let used = self.pass(reply, None);
            return if self.request_failed(&fields) { Verdict::Used(used) } else { BROKEN };
        }
        if own_query || commits || self.server.works_for_us() {
            return self.own_failed(reply, &fields, commits);
        }
        if client.is_some() {
            self.reset_failed();
        }
        if self.server.owed.is_empty() {
            return BROKEN;
        }
        let failure = if fields.ends_session() { None } else { self.server.owed.take_failure() };
        if client.is_some() && failure.is_none() {
            self.cx.errors.count(Teller::PostgreSql, fields.code);
        }
        let used = match failure {
            Some(report) => {
                if let Some(client) = client {
                    self.tell_failure(client, &report);
                }
                self.pass(reply, None)
            }
            None => self.pass_error(reply, client),
        };
        if fields.ends_session() {
            // PostgreSQL closes now; the client has its one error.
            self.server.close_needed = true;
            self.server.told = client.is_some();
            self.is_over();
            return Verdict::Used(used);
        }
        if !self.request_failed(&fields) {
            return BROKEN;
        }
        self.server.answer_made(self.cx);
        self.look_for_a_sync();
        Verdict::Used(used)
    }

    /// An error of ours behind which the session goes on. A name that is taken is logged in PgBouncer's words (`handle_parse_command`,
    /// src/prepare.c at 1.25.2).
    #[cold]
    fn tell_failure(&mut self, id: ClientId, report: &Report) {
        if let Some((_, client)) = self.client.as_ref().filter(|_| self.cx.settings.log.pooler_errors) {
            let of_name = report.message.strip_prefix("prepared statement \"");
            let text = match of_name.and_then(|rest| rest.strip_suffix("\" already exists")) {
                Some(name) => format!("prepared statement '{name}' was already prepared"),
                None => report.message.to_string(),
            };
            self.cx.log_warning(format!("{} pooler error: {text}", client.label()));
        }
        self.cx.tell_error(id, report);
    }

    fn own_failed(&mut self, reply: &Reply<'_>, fields: &ErrorFields<'_>, commits: bool) -> Verdict {
        let used = self.pass(reply, None);
        // The session goes on behind what does not commit.
        if commits && !fields.ends_session() && !self.request_failed(fields) {
            return BROKEN;
        }
        self.then = Some(Outcome::OwnQueryFailed(Box::new(OwnFailure::new(fields, reply.whole_body()))));
        Verdict::Used(used)
    }

    /// PostgreSQL may read on now to a Sync that was not sent, past a query that is. A client that is gone, or has ended its side,
    /// never sends one.
    fn look_for_a_sync(&mut self) {
        if !self.server.owed.skipping() || matches!(self.server.inbox.body, Body::Forward(_)) {
            return;
        }
        match self.server.state {
            ServerState::Recovering { .. } => self.server.sync_ours(self.server_id, self.cx),
            _ => self.then = Some(Outcome::LookEnded),
        }
    }

    /// A Describe of a client's failed behind half of its answer: what a statement returns is looked at last
    /// (`exec_describe_statement_message`, src/backend/tcop/postgres.c at REL_18_0). What its client was told it may rely on.
    fn told_of_parameters_alone(&mut self) {
        let (Some(taken), Some(front)) = (self.server.owed.taken(), self.server.owed.front()) else { return };
        let (ours, name, named) = (front.ours, front.name, front.named_statement() != 0);
        let session = self.client.as_mut().filter(|_| named && !ours).and_then(|(_, client)| client.session_mut());
        if let Some(session) = session {
            let shape = StatementShape::new(RowShape::UNKNOWN, Some(taken));
            session.statements.described(name, shape, false, &self.server.owed);
        }
    }

    /// The error ends the request in front, and a copy in it. False where it cannot be known what is answered from here on.
    fn request_failed(&mut self, fields: &ErrorFields<'_>) -> bool {
        self.told_of_parameters_alone();
        let server = &mut *self.server;
        if server.owed.front().is_some_and(|front| front.request == Request::Doubt) {
            // What failed has been told; nothing that may fail was sent behind it but our question.
            return false;
        }
        // What the batch has set is taken back, and nothing tells of it.
        server.mirror.doubt_unsure();
        if server.status == TransactionStatus::Idle {
            server.mirror.rolled_back(server.owed.front_place());
        }
        let interrupted = server.owed.copy() != Copy::None && server.owed.is_interrupted();
        let (ahead, synced) = server.owed.end_copy();
        #[cfg(feature = "planted")]
        let ahead = if self.cx.planted == Some(crate::planted::Planted::MiscountSyncs) {
            server.owed.forget_syncs(ahead);
            0
        } else {
            ahead
        };
        let simple = server.owed.front_awaits_ready();
        if ahead > 0 && !interrupted {
            let failed = server.owed.begin_doubt(synced);
            self.undo(failed, fields);
            self.ask_away_doubt();
            return true;
        }
        let ended = interrupted && fields.code == b"08P01" && fields.routine == b"CopyGetData";
        if ended {
            server.owed.forget_syncs(ahead);
        } else if ahead > 0 && fields.code.starts_with(b"57") {
            // A cancel or a time limit may have struck between any two of the Syncs.
            return false;
        }
        let dropped = if !simple {
            server.owed.fail()
        } else if ended {
            server.owed.take_interrupter().into_iter().collect()
        } else {
            Vec::new()
        };
        self.undo(dropped, fields);
        true
    }

    /// Asks how many of the Syncs are answered that were sent ahead of the end of a failed copy; not in the middle of a message
    /// of the client's, nor while a cancel may hit the question.
    pub(crate) fn ask_away_doubt(&mut self) {
        if self.client.as_ref().is_some_and(|(_, client)| matches!(client.inbox.body, Body::Forward(_))) {
            return;
        }
        let server = &mut *self.server;
        if server.cancel_is_on_its_way() {
            return;
        }
        let Some(own_sync) = server.owed.ask_doubt() else { return };
        let absent = self.cx.statements.random_name();
        self.cx.out.send(self.server_id, |out| {
            if own_sync {
                write::sync(out);
            }
            // To close what is not there is no error, and changes nothing. A simple query would take the unnamed statement away.
            write::close_statement(out, absent.as_bytes());
            write::sync(out);
        });
        server.mirror.unnamed = UNNAMED_UNKNOWN;
    }

    /// Sends an error on, with the client's name for the statement that it speaks of.
    fn pass_error(&mut self, reply: &Reply<'_>, client: Option<ClientId>) -> usize {
        let renamed = client.zip(reply.whole_body()).and_then(|(_, body)| {
            let server = &*self.server;
            let front = server.owed.front().filter(|front| front.name != 0 && front.named_statement() != 0)?;
            let prefix = SERVER_NAME_PREFIX.as_bytes();
            if !body.windows(prefix.len()).any(|at| at == prefix) {
                // Most errors speak of none, and their client may have many.
                return None;
            }
            let statements = &self.client.as_ref()?.1.session()?.statements;
            // It may have been closed behind the message that failed, or evicted.
            let (name, held) = statements.numbered(front.name).or_else(|| server.owed.closed(front.name))?;
            let known = server.mirror.get(front.statement).map(|known| &*known.server_name);
            write::renamed_error(body, known.or_else(|| held.server_name(front.statement))?.as_bytes(), name)
        });
        match (renamed, client) {
            (Some(error), Some(client)) => {
                self.cx.out.send(client, |out| out.extend_from_slice(&error));
                self.pass(reply, None)
            }
            _ => self.pass(reply, client),
        }
    }

    /// Takes back what messages would have changed that were never carried out; the first of them failed.
    fn undo(&mut self, dropped: Vec<Owed>, fields: &ErrorFields<'_>) {
        let Self { server, client, .. } = self;
        let mut session = client.as_mut().and_then(|(_, client)| client.session_mut());
        let parsed = |owed: &&Owed| owed.request == Request::Parse && owed.statement == UNNAMED;
        let text = session.as_ref().and_then(|session| session.unnamed.first_sent());
        let is_destroyed = destroys_unnamed(fields, text.map_or(b"", text_of), server.parameters.encoding());
        if let Some(session) = &mut session {
            for _ in dropped.iter().filter(parsed).filter(|owed| !owed.ours) {
                session.unnamed.skipped();
            }
        }
        if let Some(failed) = dropped.first().filter(parsed)
            && is_destroyed
        {
            server.mirror.unnamed_is(UNNAMED_UNKNOWN);
            if let (Some(session), false) = (&mut session, failed.ours) {
                session.unnamed.gone();
            }
        }
        // Behind a savepoint those may be there that these would have taken the place of.
        server.mirror.forget_portals_until(server.owed.answered() + 1);
        for owed in dropped.into_iter().rev() {
            let statement = owed.named_statement();
            if owed.request == Request::Parse && statement != 0 {
                server.mirror.remove(statement);
            }
            if owed.request == Request::DescribeStatement && owed.ours {
                server.mirror.ask_shape_again(statement);
                server.mirror.unnamed_shape = Shape::Unknown;
            }
            match owed.note.map(|note| *note) {
                Some(Note::Evicted(evicted)) => server.mirror.put_back(evicted),
                Some(Note::Own(own)) => server.left_over.push(own),
                Some(Note::Named { name, statement }) => {
                    if let Some(session) = &mut session
                        && session.statements.get(&name).is_some_and(|held| held.statement.id == statement.id)
                    {
                        session.statements.take(&name);
                    }
                }
                Some(Note::Closed { name, held: Some(held) }) => {
                    if let Some(session) = &mut session {
                        session.statements.put_back(&name, held);
                    }
                }
                Some(Note::Startup(Noted::Means(meaning))) => {
                    if let Some(startup) = session.as_mut().and_then(|session| session.startup.as_mut()) {
                        startup.not_carried_out(&meaning);
                    }
                }
                _ => {}
            }
        }
    }

    /// Some errors say that the mirror of the server's statements is wrong.
    fn learn_from_error(&mut self, fields: &ErrorFields<'_>) {
        self.learn_whether_closed(fields);
        let server = &mut *self.server;
        let Some(owed) = server.owed.front() else { return };
        let statement = owed.named_statement();
        if statement == 0 {
            return;
        }
        // "cached plan must not change result type" (RevalidateCachedQuery, src/backend/utils/cache/plancache.c):
        // every server has to prepare it anew.
        // A type was dropped that it uses: the same.
        let type_dropped = fields.code == b"XX000" && fields.message.starts_with(b"cache lookup failed");
        if type_dropped || (fields.code == b"0A000" && fields.routine == b"RevalidateCachedQuery") {
            if let Some(statement) = server.mirror.get(statement).map(std::sync::Arc::clone) {
                self.cx.outdate(&statement);
            }
        } else if owed.request == Request::Bind && fields.code.starts_with(b"42") {
            // What it names is not there as it was: another copy may have been made for what is.
            server.mirror.doubt(statement);
        } else if fields.code == b"26000" {
            // Somebody deallocated it: a function perhaps, of which no tag tells. So it may be with all others.
            server.mirror.remove(statement);
            server.mirror.doubt_all();
        } else if fields.code == b"42P05" && owed.request == Request::Parse {
            // It knows the statement, and we did not know that it does: nobody else may stumble over that.
            server.close_needed = true;
        }
    }

    /// What may close statements, and would have told so by its tag, has failed: by then it may have closed them.
    fn learn_whether_closed(&mut self, fields: &ErrorFields<'_>) {
        let (server, session) = self.pair();
        let (mark, last) = server.owed.front().map_or((0, 0), |front| (front.statement, front.name));
        if !matches!(mark, MAY_CLOSE | MAY_CLOSE_ALL) || is_refused_beforehand(fields) {
            return;
        }
        server.mirror.doubt_all();
        if let (MAY_CLOSE_ALL, Some(session)) = (mark, session)
            && !session.statements.is_blank()
        {
            session.statements.may_be_gone(last);
        }
    }

    /// PostgreSQL closes next. What stands for it may not.
    #[cold]
    fn is_over(&mut self) {
        // Nor if it tells so again and again.
        let due = self.server.deadline.due().min(self.cx.now + CLOSES_WITHIN);
        self.cx.timers.set(Subject::Server(self.server_id), &mut self.server.deadline, due);
    }

    fn unasked_error(&mut self, reply: &Reply<'_>, client: Option<ClientId>, ends_session: bool) -> Verdict {
        let used = self.pass(reply, client);
        // Only a session's end comes unasked; it is closed next, and may not be given to anybody.
        self.server.close_needed = true;
        self.server.told |= ends_session && client.is_some();
        self.is_over();
        if matches!(self.server.state, ServerState::Idle) {
            self.then = Some(Outcome::EndedIdle);
        }
        Verdict::Used(used)
    }
}

/// Whether the statement that failed was not begun, which closes others (src/backend/parser/scan.l, src/backend/tcop/postgres.c,
/// src/backend/access/transam/xact.c, src/backend/commands/prepare.c, src/backend/utils/mmgr/portalmem.c at REL_18_0).
/// A trigger that fails at the commit may do so by any routine, but not without a context.
fn is_refused_beforehand(fields: &ErrorFields<'_>) -> bool {
    const BEFOREHAND: [&[u8]; 6] = [
        b"scanner_yyerror",
        b"exec_simple_query",
        b"exec_execute_message",
        b"PreventInTransactionBlock",
        b"FetchPreparedStatement",
        b"MarkPortalActive",
    ];
    fields.context.is_empty() && BEFOREHAND.contains(&fields.routine)
}

/// Whether a Parse of an unnamed statement that failed may have destroyed the one before: not where the message could not even be
/// read (`exec_parse_message` and before it `PostgresMain`, src/backend/tcop/postgres.c at 15). What is not of the client's encoding is refused by that,
/// and what an escape says that is not of the server's by the scanner, behind it.
fn destroys_unnamed(fields: &ErrorFields<'_>, text: &[u8], encoding: &[u8]) -> bool {
    match fields.code {
        // Not that of a domain's check, or of what reads a type's values.
        b"08P01" => !fields.routine.starts_with(b"pq_"),
        b"22021" => !(encoding.eq_ignore_ascii_case(b"UTF8") && std::str::from_utf8(text).is_err()),
        _ => true,
    }
}
