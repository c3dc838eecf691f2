//! Who is linked to whom: a client gets a server when it has something to send, and a server is free exactly when it is
//! idle outside a transaction with nothing owed (`serving.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use weir_wire::write;

use crate::client::{Client, ClientState, Doing, Link, Session};
use crate::context::Context;
use crate::exchange::Around;
use crate::failure::{Failure, Uncertain};
use crate::id::{ClientId, ServerId, Table};
use crate::kept::Lists;
use crate::parameters::startup::Startup;
use crate::parameters::{ParameterSet, same_name};
use crate::pool::Pool;
use crate::pool::gates::Gate;
use crate::server::{Hold, Reset, Server, ServerState};
use crate::settings::PoolMode;
use crate::time::{Duration, Time};
use crate::timers::Subject;
use crate::worker::Service;
use crate::worker::flow::{hold_server, release_hold};
use crate::worker::patience::PROOF_PATIENCE;

/// Idle servers that are compared with a client.
const LOOKED_AT: usize = 8;

impl Service {
    /// A server for this client now, or a place in the queue.
    pub(super) fn acquire(&mut self, id: ClientId) -> Result<Option<ServerId>, Box<Failure>> {
        let Some(client) = self.traffic.clients.get(id) else { return Ok(None) };
        let index = client.pool;
        let pool = &self.traffic.pools[index];
        if pool.retry_at > self.traffic.cx.now
            && pool.connecting == 0
            && let Some(failure) = self.traffic.refuses(index, id)
            && !self.traffic.has_lasting_server(index)
        {
            return Err(Box::new(failure));
        }
        let open = pool.gate == Gate::Open;
        if !open && self.traffic.shutdown.is_under_way() {
            return Err(Box::new(Failure::ShuttingDown));
        }
        if open && pool.shed.is_some() && self.is_shed(id) {
            return Ok(None);
        }
        if open
            && self.traffic.pools[index].waiting.is_empty()
            && let Some(server) = self.take_idle(index, id)
            && self.link(id, server, self.traffic.cx.now)
        {
            return Ok(Some(server));
        }
        let since = self.traffic.cx.now;
        self.traffic.begins_to_wait(id);
        if open && self.goes_home(id) {
            return Ok(None);
        }
        self.traffic.queue(id, since);
        self.traffic.ask(index);
        if !self.traffic.pools[index].checks.is_empty() {
            // Idle servers may wait for no more than those that are being checked: that is one more who wants one.
            self.traffic.schedule(index);
        }
        Ok(None)
    }

    /// The server that was used last, but one of the next few that has the client's parameters goes first: nothing has to be set there.
    #[inline]
    pub(super) fn take_idle(&mut self, index: u32, id: ClientId) -> Option<ServerId> {
        let pool = &mut self.traffic.pools[index];
        if pool.idle.len() < 2 { pool.idle.pop_back() } else { self.choose_idle(index, id) }
    }

    #[cold]
    fn choose_idle(&mut self, index: u32, id: ClientId) -> Option<ServerId> {
        let Around { cx, clients, servers, pools } = self.traffic.around();
        let Pool { idle, limits, reads_sequences, .. } = &mut pools[index];
        let answers = |id: &ServerId| servers.get(*id).is_some_and(|server| !server.is_to_check(limits, cx.now));
        if *reads_sequences
            && let Some(behind) = last_of(id, idle, clients, servers).filter(|behind| answers(&idle[*behind]))
        {
            return idle.remove(behind);
        }
        if cx.settings.server_round_robin {
            return idle.remove(idle.iter().position(answers).unwrap_or(0));
        }
        let Some(session) = clients.get(id).and_then(Client::session) else { return idle.pop_back() };
        let has_them =
            |id: &ServerId| servers.get(*id).is_some_and(|server| Arc::ptr_eq(&server.parameters, &session.parameters));
        let behind = idle.iter().rev().take(LOOKED_AT).position(|id| has_them(id) && answers(id)).unwrap_or(0);
        idle.remove(idle.len() - 1 - behind)
    }

    /// Gives a server that was idle to the client, with the client's parameters; false where it cannot have them, or is asked first whether it
    /// still answers.
    pub(super) fn link(&mut self, id: ClientId, server_id: ServerId, since: Time) -> bool {
        let Around { cx, clients, servers, pools } = self.traffic.around();
        let (Some(client), Some(server)) = (clients.get_mut(id), servers.get_mut(server_id)) else { return false };
        let index = client.pool;
        let pool = &mut pools[index];
        if server.is_to_check(&pool.limits, cx.now) {
            self.traffic.check_idle(server_id);
            return false;
        }
        if server.kept.had_temporary() && has_other_buffers(client, server) {
            self.traffic.close_server(server_id, "its next client has another temp_buffers");
            self.traffic.schedule(index);
            return false;
        }
        debug_assert!(matches!(server.state, ServerState::Idle) && server.owed.settled());
        client.bind(Link::Linked(server_id));
        server.enter(ServerState::Linked(id));
        (server.linked_at, server.checked) = (cx.now, false);
        let waited = cx.now.since(since);
        pool.counters.wait_time += waited.0;
        if client.congested {
            hold_server(server_id, server, cx);
        }
        let ClientState::Ready(session) = &mut client.state else {
            self.lend(id, server_id);
            return true;
        };
        pool.counters.server_assignments += 1;
        if waited != Duration::ZERO {
            pool.watched.waits.count(waited);
        }
        server.used = true;
        let own_sequences = server.has_sequences_of(client.number, session);
        server.sequences_of = None;
        session.request_at = cx.now;
        session.asked_at = since;
        session.asks = true;
        session.transaction_at = cx.now;
        begin_session(session, server, pool);
        if session.standby != server.standby {
            server.tell_standby(id, session, cx);
        }
        if session.listens && server.exact.as_ref().is_some_and(|exact| !exact.tells_channels()) {
            // What it leaves there nobody hears of.
            self.fail_client(id, &Failure::ListenerLost);
            return true;
        }
        if !Arc::ptr_eq(&session.parameters, &server.parameters)
            && let Err(failure) = apply_parameters(id, server_id, session, server, cx)
        {
            self.fail_client(id, &failure);
            return true;
        }
        if server.kept.on && own_sequences {
            server.kept.own_sequences = true;
        } else if server.kept.on && pool.reads_sequences {
            server.forget_sequences(server_id, cx);
        }
        let due = session.begins(server.doing(session.asks), cx.now);
        cx.timers.set(Subject::Client(id), &mut client.deadline, due);
        true
    }

    /// A login only borrows one, to be greeted: what it is tried with, and what is reset for that, is no client's.
    #[cold]
    fn lend(&mut self, id: ClientId, server_id: ServerId) {
        if let Some(server) = self.traffic.servers.get_mut(server_id) {
            (server.kept.on, server.kept.reads) = (false, false);
        }
        self.traffic.arm_client(id);
    }

    /// The transaction is over: the client goes on without a server.
    pub(super) fn unlink(&mut self, id: ClientId, server_id: ServerId) {
        let Around { cx, servers, .. } = self.traffic.around();
        let Some(server) = servers.get_mut(server_id) else { return };
        release_hold(server_id, server, cx);
        debug_assert!(server.kept.is_blank(), "what a client has left is its own");
        let counted = server.kept.counted;
        let keeps_client = server.keeps_client;
        let settings = &cx.settings;
        let reset_due = Reset::configured(settings.server_reset_query_always, &settings.server_reset_query);
        let resets = server.leaves_unreported(cx) && !server.keeps_parameters();
        let recovers = reset_due != Reset::Nothing || server.mirror.has_unproved() || resets;
        if recovers {
            server.proofs_until = cx.now + PROOF_PATIENCE;
            server.enter(ServerState::Recovering { reset_due, rolled_back: false, cancelled: false });
        }
        let batch = server.owed.batch();
        let own_sequences = server.kept.own_sequences;
        if !matches!(server.kept.lists, Lists::No) {
            // What it has left is told no more, also what came meanwhile.
            self.traffic.listed(id, server_id);
        }
        let Around { cx, clients, servers, .. } = self.traffic.around();
        if let Some(client) = clients.get_mut(id) {
            let held = client.held;
            if own_sequences && let Some(server) = servers.get_mut(server_id) {
                server.sequences_of = Some((client.number, batch));
            }
            match part(id, client, batch, cx) {
                Some(false) => {}
                Some(true) => self.traffic.tell_kept(id),
                None => self.traffic.arm_client(id),
            }
            if held {
                self.traffic.wake_client(id);
            }
        }
        if counted {
            self.traffic.count_pin(server_id);
        }
        if self.traffic.shutdown.hands_over() {
            self.traffic.departures.are_to_go_over([id].into_iter());
            self.send_over();
        }
        if keeps_client {
            self.fail_client(id, &Failure::Uncertain(Uncertain::EncodingChanged));
        }
        if recovers {
            self.traffic.recovering_settled(server_id);
        } else {
            self.traffic.free_server(server_id);
        }
    }
}

/// What its session holds is the client's from now on.
#[inline(always)]
fn begin_session(session: &Session, server: &mut Server, pool: &Pool) {
    server.owed.begin(session.batch, pool.limits.mode == PoolMode::Statement);
    server.kept.parameters_are_known();
    debug_assert!(server.kept.is_blank(), "a server is handed on with nothing of its last client's");
    if pool.limits.keeps || server.kept.on {
        server.kept.begin(&pool.limits, &pool.knowledge, server.exact.is_some());
        if let Some(exact) = &mut server.exact {
            exact.begin();
        }
    }
    server.tracks = session.tracks_statements(pool.limits.mode);
    // The last client may have left in the midst of its batch.
    server.mirror.unnamed_unasked = 0;
    server.mirror.doubt_unsure();
    server.mirror.told();
    server.mirror.transaction_over(server.owed.answered());
}

/// Where among the next idle servers the one is that the client had last, in a pool whose clients ask for what `nextval` gave last: it is told that
/// there, up to when somebody else has had it.
#[cold]
fn last_of(
    id: ClientId,
    idle: &VecDeque<ServerId>,
    clients: &Table<ClientId, Client>,
    servers: &Table<ServerId, Server>,
) -> Option<usize> {
    let client = clients.get(id)?;
    let session = client.session()?;
    let had = |id: &ServerId| servers.get(*id).is_some_and(|server| server.has_sequences_of(client.number, session));
    let first = idle.len().saturating_sub(LOOKED_AT);
    (first..idle.len()).rev().find(|behind| had(&idle[*behind]))
}

/// Where there were temporary objects PostgreSQL lets nobody set or reset how many buffers those have.
#[cold]
fn has_other_buffers(client: &Client, server: &Server) -> bool {
    const NAME: &str = "temp_buffers";
    fn buffers(parameters: &ParameterSet) -> Option<&[u8]> {
        parameters.get(NAME).map(|own| &*own.value)
    }
    match &client.state {
        ClientState::Ready(session) => buffers(&session.parameters) != buffers(&server.parameters),
        ClientState::Login(login) => login.parameters.iter().any(|(name, _)| same_name(name, NAME)),
        _ => false,
    }
}

/// The client goes on without a server; `batch`: its last on that. Whether another one listens for its session, if it is in one.
#[inline(always)]
pub(super) fn part(id: ClientId, client: &mut Client, batch: u64, cx: &mut Context) -> Option<bool> {
    client.bind(Link::None);
    let ClientState::Ready(session) = &mut client.state else { return None };
    session.batch = batch;
    if let Some(startup) = &mut session.startup {
        startup.unlinked();
    }
    let due = session.begins(Doing::Idle, cx.now);
    cx.timers.set(Subject::Client(id), &mut client.deadline, due);
    Some(session.listens)
}

/// What the client was told by a server that reports others goes on as this one has it, and only what is certain.
#[inline(never)]
fn adopt_reported(id: ClientId, session: &mut Session, server: &Server, cx: &mut Context) -> Result<(), Box<Failure>> {
    let Some(welcome) = &server.welcome else { return Ok(()) };
    let asked = |name: &str| session.startup.as_ref().is_some_and(|startup| startup.has(name));
    let carried = session.parameters.as_reported_by(&welcome.defaults, &session.greeted, asked);
    let (told, greets) = carried.map_err(|name| Box::new(Failure::ReportedElsewhere { name: name.to_string() }))?;
    if !told.is_legible(server.encoding()) {
        // Of what it cannot tell PostgreSQL tells for ever (`is_told_unlike`).
        return Err(Box::new(Failure::Uncertain(Uncertain::UnlikeEncodings)));
    }
    if !told.is_had_within_bounds() {
        return Err(Box::new(Failure::ServerReportsTooMuch));
    }
    // It may have changed where nobody told it.
    for own in told.iter().filter(|own| own.reported && !session.parameters.reports(&own.name)) {
        cx.out.send(id, |out| write::parameter_status(out, &own.name, &own.value));
    }
    debug_assert!(told.reports_alike(&server.parameters), "a server's session reports what its login did");
    session.greeted = cx.parameter_sets.intern(greets);
    if let Some(startup) = &mut session.startup {
        startup.reported_as(&told);
    }
    session.parameters = cx.parameter_sets.intern(told);
    Ok(())
}

/// Brings the server's session to the client's parameters. The client's request waits until PostgreSQL has taken them: an error,
/// a cancel request of an administrator's perhaps, may come in their place, and what is sent behind is carried out all the same.
/// Only a name may be another's then; it goes in the write that is under way.
#[inline(never)]
fn apply_parameters(
    client: ClientId,
    id: ServerId,
    session: &mut Session,
    server: &mut Server,
    cx: &mut Context,
) -> Result<(), Box<Failure>> {
    if session.startup.as_ref().is_some_and(|startup| startup.is_untold()) {
        // They are nobody else's up to here, so that it comes by here.
        for line in Startup::take_untold(&mut session.startup) {
            cx.log_debug(line);
        }
        session.parameters = cx.parameter_sets.intern(session.parameters.own_copy());
        if Arc::ptr_eq(&session.parameters, &server.parameters) {
            return Ok(());
        }
    }
    if !session.parameters.reports_alike(&server.parameters) {
        adopt_reported(client, session, server, cx)?;
    }
    let same_write = server.parameters.differs_by_name_only(&session.parameters);
    let queries = server.bring_to(id, &session.parameters, cx);
    server.hold = if queries > usize::from(same_write) { Hold::Parameters } else { Hold::Nothing };
    Ok(())
}
