//! Until when each client and server may do what it is doing, and what becomes of it then.
//!
//! `timers.rs` keeps the entries; what they mean is decided here.

use weir_wire::report::{Report, Severity};
use weir_wire::write;

use crate::client::{ClientState, Doing, Limits, Link, after};
use crate::failure::Failure;
use crate::id::{ClientId, ServerId};
use crate::mail::Letter;
use crate::making::login_failure::LoginFailure;
use crate::making::{Purpose, Target};
use crate::names::shown;
use crate::server::ServerState;
use crate::stats::Counters;
use crate::time::{Duration, Time};
use crate::timers::{Entry, Subject};
use crate::worker::Worker;
use crate::worker::peers::late_from;
use crate::worker::pins::pin_due;
use crate::worker::release::RECOVERY;

/// A client that has got half a message when a limit ends it is told so behind the rest, if that comes so soon.
const REST_OF_A_MESSAGE: Duration = Duration::from_secs(1);
/// How often it is looked whether limits hold again that do not while clients are not read.
const SUSPENDED_PAUSE: Duration = Duration::from_secs(1);

impl Worker {
    /// Does what is due. What becomes due on the way is for the next call, so that no setting can keep one from returning.
    pub(super) fn timeout(&mut self) {
        let mut due = self.cx.timers.take_due(self.cx.now);
        for entry in due.drain(..) {
            self.step();
            self.entry_due(entry);
        }
        self.cx.timers.give_back(due);
    }

    fn entry_due(&mut self, entry: Entry) {
        let now = self.cx.now;
        match entry.subject {
            Subject::Client(id) => {
                let Some(client) = self.clients.get_mut(id) else { return };
                if self.cx.timers.due(entry, &mut client.deadline, now) {
                    self.client_due(id);
                }
            }
            Subject::Server(id) => {
                let Some(server) = self.servers.get_mut(id) else { return };
                if self.cx.timers.due(entry, &mut server.deadline, now) {
                    self.server_due(id);
                }
            }
            Subject::Pool(index) => {
                if self.cx.timers.due(entry, &mut self.pools[index].deadline, now) {
                    self.pool_due(index);
                }
            }
            Subject::Load => {
                if self.cx.timers.due(entry, &mut self.load.deadline, now) {
                    self.load.due(&mut self.pools, &mut self.cx);
                }
            }
            Subject::Loads => {
                if self.cx.timers.due(entry, &mut self.loads_deadline, now) {
                    self.look_at_loads();
                }
            }
            Subject::Unused => {
                if self.cx.timers.due(entry, &mut self.unused_deadline, now) {
                    self.forget_unused();
                }
            }
            Subject::Handover => {
                if self.cx.timers.due(entry, &mut self.handover_deadline, now) {
                    self.look_who_goes_over();
                }
            }
            Subject::Stats => {
                if self.cx.timers.due(entry, &mut self.averages.deadline, now) {
                    self.take_averages();
                    self.arm_stats();
                }
            }
        }
    }

    /// Connections that are gone leave their entries behind.
    #[cold]
    pub(super) fn sweep_timers(&mut self) {
        let mut timers = std::mem::take(&mut self.cx.timers);
        timers.sweep(|entry| match entry.subject {
            Subject::Client(id) => self.clients.get(id).is_some_and(|client| entry.is_of(&client.deadline)),
            Subject::Server(id) => self.servers.get(id).is_some_and(|server| entry.is_of(&server.deadline)),
            Subject::Pool(index) => entry.is_of(&self.pools[index].deadline),
            Subject::Load => entry.is_of(&self.load.deadline),
            Subject::Loads => entry.is_of(&self.loads_deadline),
            Subject::Stats => entry.is_of(&self.averages.deadline),
            Subject::Unused => entry.is_of(&self.unused_deadline),
            Subject::Handover => entry.is_of(&self.handover_deadline),
        });
        self.cx.timers = timers;
    }

    pub(super) fn arm_stats(&mut self) {
        let due = self.cx.settings.stats_period.limit().map_or(Time::NEVER, |period| self.cx.now + period);
        self.cx.timers.set(Subject::Stats, &mut self.averages.deadline, due);
    }

    /// In PgBouncer's words (`cleanup_inactive_pools`, src/janitor.c of its master).
    fn forget_unused(&mut self) {
        for (name, unused) in self.pools.forget_unused(self.cx.now) {
            let (database, user) = (shown(&name.database), shown(&name.user));
            let age = unused.as_secs();
            self.cx.log_info(format!(
                "cleaning up idle pool for user {user} on db {database} because: pool idle timeout (age={age}s)"
            ));
        }
        self.look_for_unused();
    }

    fn take_averages(&mut self) {
        self.averages.begin(self.cx.now);
        let mut all = Counters::default();
        for index in self.pools.indexes() {
            let pool = &mut self.pools[index];
            let counters = pool.counted_so_far();
            pool.counted = counters.since(&pool.counters_before);
            pool.counters_before = counters;
            all += pool.counted;
        }
        if self.cx.settings.log_stats {
            self.cx.tell_steward(Letter::Counted { counted: Box::new(all) });
        }
    }

    // Clients.

    /// A client's deadline has come.
    pub(super) fn client_due(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id) else { return };
        if self.gates.is_suspended() && client.session().is_some() {
            // It may have sent in time what is not read.
            let due = self.cx.now + SUSPENDED_PAUSE;
            if let Some(client) = self.clients.get_mut(id) {
                self.cx.timers.set(Subject::Client(id), &mut client.deadline, due);
            }
            return;
        }
        if client.overdue {
            return self.fail_overdue(id);
        }
        let failure = match (&client.state, client.link) {
            (ClientState::Login(login), _) if let Some((_, by)) = login.refused() => {
                Failure::AuthenticationFailed { by, user: login.user.to_string() }
            }
            (ClientState::Login(_), Link::None | Link::Linked(_)) => Failure::LoginTimeout,
            (ClientState::Login(_), _)
                if after(self.cx.settings.client_login_timeout, client.connected_at) <= self.cx.now =>
            {
                Failure::LoginTimeout
            }
            (ClientState::Login(login), Link::Waiting { since } | Link::WaitingTunnel { since })
                if Limits::of(&self.cx.settings, &login.database, &login.user).query_due(since) <= self.cx.now =>
            {
                Failure::QueryTimeout
            }
            (ClientState::Ready(session), Link::Waiting { since })
                if session.limits.query_due(since) <= self.cx.now =>
            {
                Failure::QueryTimeout
            }
            (ClientState::Ready(session), Link::Waiting { since } | Link::WaitingTunnel { since })
                if session.limits.wait_due(&self.cx.settings, since) > self.cx.now =>
            {
                return self.tell_waiting(id);
            }
            (ClientState::Login(_), _) | (_, Link::Waiting { .. } | Link::WaitingTunnel { .. }) => {
                Failure::QueryWaitTimeout
            }
            (ClientState::Ready(session), Link::Linked(server)) => {
                let doing = self.servers.get(server).map_or(Doing::Idle, |server| server.doing(session.asks));
                if doing != Doing::Idle && session.limits.transaction_due(session.transaction_at) <= self.cx.now {
                    Failure::TransactionTimeout
                } else {
                    match doing {
                        Doing::Query => Failure::QueryTimeout,
                        Doing::IdleInTransaction => Failure::IdleTransactionTimeout,
                        Doing::Idle => match self.servers.get(server) {
                            Some(server) if pin_due(server, &self.pools, &self.cx) <= self.cx.now => {
                                Failure::PinTimeout { held: server.kept.held().words() }
                            }
                            _ => Failure::IdleTimeout,
                        },
                    }
                }
            }
            (ClientState::Ready(_), _) => Failure::IdleTimeout,
            (ClientState::CancelRequest(_), _) => {
                return self.end_client(id, "cancel_wait_timeout");
            }
            (ClientState::Console(_), _) => return self.console_goes_on(id),
            _ => return,
        };
        self.fail_between_messages(id, failure);
    }

    /// Half a message of a reply stands between the client and what it is to be told: the rest may be there at once.
    fn fail_between_messages(&mut self, id: ClientId, failure: Failure) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let server = client.link.server().and_then(|server| self.servers.get_mut(server));
        let Some(server) = server.filter(|server| server.is_in_message() && !server.told) else {
            return self.fail_client(id, &failure);
        };
        client.overdue = true;
        server.overdue = Some(Box::new(failure));
        self.cx.timers.set(Subject::Client(id), &mut client.deadline, self.cx.now + REST_OF_A_MESSAGE);
        self.hold_client(id);
    }

    /// The rest has come, or takes too long.
    pub(super) fn fail_overdue(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id).filter(|client| client.overdue && !client.is_over()) else { return };
        let failure = client.link.server().and_then(|server| self.servers.get_mut(server)?.overdue.take());
        match failure {
            Some(failure) => self.fail_client(id, &failure),
            None => self.end_client(id, "its server is gone"),
        }
    }

    /// Where a client has waited for a while it is told, in PgBouncer's words, between two of its messages.
    fn tell_waiting(&mut self, id: ClientId) {
        let text = "No server connection available in postgres backend, client being queued";
        let report = Report::new(Severity::Notice, "00000", text);
        self.cx.out.send(id, |out| write::report(out, &report));
        if let Some(client) = self.clients.get_mut(id) {
            client.knows_it_waits = true;
        }
        self.renew_client_deadline(id);
    }

    // Servers.

    /// Sets the next deadline of a server that does what it did before, by the settings of now.
    pub(super) fn renew_server_deadline(&mut self, id: ServerId) {
        let cancel_patience = self.cancel_patience();
        let Some(server) = self.servers.get_mut(id) else { return };
        if let Some(Target::Peer { since, left, .. }) = server.carries() {
            let late = late_from(since, left, cancel_patience);
            return self.cx.timers.set(Subject::Server(id), &mut server.deadline, late);
        }
        let limit = match &server.state {
            ServerState::Idle => return self.idle_due(id),
            // It is over, and has its deadline.
            ServerState::Linked(_) if server.told => return,
            ServerState::Linked(_) => {
                self.arm_pin_warning(id);
                return self.arm_blind(id);
            }
            ServerState::Canceller { .. } => cancel_patience,
            ServerState::Making(making) => match making.purpose {
                Purpose::Cancel { .. } => cancel_patience,
                Purpose::Pool | Purpose::Tunnel { .. } => self.cx.settings.server_connect_timeout,
            },
            _ => return,
        };
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, after(limit, server.made_at));
    }

    /// A deadline of a server connection has come.
    pub(super) fn server_due(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        match &mut server.state {
            ServerState::Making(_) => {
                let text = "connect timeout (server_connect_timeout)";
                self.server_login_failed(id, LoginFailure::broken(text));
            }
            ServerState::Idle => self.idle_due(id),
            ServerState::Linked(client) if server.told => {
                let client = *client;
                self.end_client(client, "the server ended the session");
            }
            ServerState::Linked(_) => {
                self.warn_of_pin(id);
                self.look_blind(id);
            }
            ServerState::Listener if server.close_needed => self.close_server(id, "the server ended the session"),
            ServerState::Listener => self.watch_listener(id),
            ServerState::Recovering { .. } if self.pools[server.pool].checks.has(id) => self.check_due(id),
            ServerState::Recovering { cancelled: cancelled @ false, .. } => {
                *cancelled = true;
                let due = self.cx.now + RECOVERY;
                self.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
                self.start_cancel(id);
            }
            ServerState::Recovering { .. } => self.close_server(id, "it could not be cleaned in time"),
            ServerState::Canceller { target } => {
                let target = *target;
                server.enter(ServerState::Closing);
                self.cx.out.close(id);
                self.canceller_ended(target, false);
            }
            _ => {}
        }
    }

    /// An idle server is too old, or nobody has needed it for long.
    fn idle_due(&mut self, id: ServerId) {
        let now = self.cx.now;
        let Some(server) = self.servers.get(id) else { return };
        let pool = &self.pools[server.pool];
        let too_old = server.lifetime_end(pool.limits.server_lifetime) <= now;
        let unused = after(pool.limits.server_idle_timeout, server.idle_at) <= now;
        if too_old {
            self.close_server(id, "server lifetime over");
        } else if unused && pool.staying() > pool.share.least {
            self.close_server(id, "server idle timeout");
        } else {
            self.arm_idle(id);
        }
    }

    /// Sets when an idle server is looked at next: never in this moment, whatever the settings.
    fn arm_idle(&mut self, id: ServerId) {
        let now = self.cx.now;
        let Some(server) = self.servers.get_mut(id) else { return };
        let limits = &self.pools[server.pool].limits;
        let limit = limits.server_idle_timeout;
        let unused = after(limit, server.idle_at);
        // One that the smallest size keeps is looked at again: others may have come.
        let unused = if unused > now { unused } else { after(limit, now) };
        let due = unused.min(server.lifetime_end(limits.server_lifetime));
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
    }
}
