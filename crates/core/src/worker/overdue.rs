//! Until when each client and server may do what it is doing, and what becomes of it then.

use crate::client::{ClientState, Discard, Doing, Limits, Link, after};
use crate::failure::Failure;
use crate::id::{ClientId, ServerId};
use crate::making::login_failure::LoginFailure;
use crate::making::{Purpose, Target};
use crate::server::ServerState;
use crate::time::Duration;
use crate::timers::Subject;
use crate::worker::patience::RECOVERY;
use crate::worker::peers::late_from;
use crate::worker::pins::pin_due;
use crate::worker::{Service, Traffic};
use weir_wire::report::{Report, Severity};
use weir_wire::write;

/// How often it is looked whether limits hold again that do not while clients are not read.
const SUSPENDED_PAUSE: Duration = Duration::from_secs(1);

impl Service {
    /// A client's deadline has come.
    pub(super) fn client_due(&mut self, id: ClientId) {
        let Traffic { cx, clients, servers, pools, gates, .. } = &mut self.traffic;
        let Some(client) = clients.get_mut(id) else { return };
        let now = cx.now;
        if client.overdue {
            return self.fail_overdue(id);
        }
        if gates.is_suspended() && client.session().is_some() {
            // It may have sent in time what is not read.
            return cx.timers.set(Subject::Client(id), &mut client.deadline, now + SUSPENDED_PAUSE);
        }
        let settings = &cx.settings;
        let failure = match (&client.state, client.link) {
            (ClientState::Login(login), _) if let Some((_, by)) = login.refused() => {
                let stranger = login.stranger(by, settings);
                Failure::AuthenticationFailed { by, user: login.user.to_string(), stranger }
            }
            (ClientState::Login(_), Link::None | Link::Linked(_)) => Failure::LoginTimeout,
            (ClientState::Login(_), _) if after(settings.client_login_timeout, client.connected_at) <= now => {
                Failure::LoginTimeout
            }
            (ClientState::Login(login), Link::Waiting { since } | Link::WaitingTunnel { since })
                if Limits::of(settings, &login.database, &login.user).query_due(since) <= now =>
            {
                Failure::QueryTimeout
            }
            (ClientState::Ready(session), Link::Waiting { since }) if session.limits.query_due(since) <= now => {
                Failure::QueryTimeout
            }
            (ClientState::Ready(session), Link::Waiting { since } | Link::WaitingTunnel { since })
                if session.limits.wait_due(settings, since) > now =>
            {
                return self.tell_waiting(id);
            }
            (ClientState::Login(_), _) | (_, Link::Waiting { .. } | Link::WaitingTunnel { .. }) => {
                Failure::QueryWaitTimeout
            }
            (ClientState::Ready(session), Link::Linked(server)) => {
                let server = servers.get(server);
                let doing = server.map_or(Doing::Idle, |server| server.doing(session.asks));
                let transaction_is_due = session.limits.transaction_due(session.transaction_at) <= now;
                match doing {
                    Doing::Query | Doing::IdleInTransaction if transaction_is_due => Failure::TransactionTimeout,
                    Doing::Query => Failure::QueryTimeout,
                    Doing::IdleInTransaction => Failure::IdleTransactionTimeout,
                    Doing::Idle => match server.filter(|server| pin_due(server, pools, cx) <= now) {
                        Some(server) => Failure::PinTimeout { held: server.kept.held().words() },
                        None => Failure::IdleTimeout,
                    },
                }
            }
            (ClientState::Ready(session), Link::None) if session.discard == Discard::Begun => {
                match session.limits.transaction_due(session.transaction_at) <= now {
                    true => Failure::TransactionTimeout,
                    false => Failure::IdleTransactionTimeout,
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

    /// The rest has come, or takes too long.
    pub(super) fn fail_overdue(&mut self, id: ClientId) {
        let Some(client) = self.traffic.clients.get(id).filter(|client| client.overdue && !client.is_over()) else {
            return;
        };
        let failure = client.link.server().and_then(|server| self.traffic.servers.get_mut(server)?.overdue.take());
        match failure {
            Some(failure) => self.fail_client(id, &failure),
            None => self.end_client(id, "its server is gone"),
        }
    }

    /// Where a client has waited for a while it is told, in PgBouncer's words, between two of its messages.
    pub(super) fn tell_waiting(&mut self, id: ClientId) {
        let text = "No server connection available in postgres backend, client being queued";
        let report = Report::new(Severity::Notice, "00000", text);
        self.traffic.cx.out.send(id, |out| write::report(out, &report));
        if let Some(client) = self.traffic.clients.get_mut(id) {
            client.knows_it_waits = true;
        }
        self.traffic.renew_client_deadline(id);
    }

    /// Sets the next deadline of a server that does what it did before, by the settings of now.
    pub(super) fn renew_server_deadline(&mut self, id: ServerId) {
        let cancel_patience = self.cancel_patience();
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        if let Some(Target::Peer { since, left, .. }) = server.carries() {
            let late = late_from(since, left, cancel_patience);
            return self.traffic.cx.timers.set(Subject::Server(id), &mut server.deadline, late);
        }
        let limit = match &server.state {
            ServerState::Idle => return self.idle_due(id),
            // It is over, and has its deadline.
            ServerState::Linked(_) if server.told => return,
            ServerState::Linked(_) => {
                self.traffic.arm_pin_warning(id);
                return self.traffic.arm_blind(id);
            }
            ServerState::Canceller { .. } => cancel_patience,
            ServerState::Making(making) => match making.purpose {
                Purpose::Cancel { .. } => cancel_patience,
                Purpose::Pool | Purpose::Tunnel { .. } => self.traffic.cx.settings.server_connect_timeout,
            },
            _ => return,
        };
        self.traffic.cx.timers.set(Subject::Server(id), &mut server.deadline, after(limit, server.made_at));
    }

    /// A deadline of a server connection has come.
    pub(super) fn server_due(&mut self, id: ServerId) {
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
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
                self.traffic.warn_of_pin(id);
                self.look_blind(id);
            }
            ServerState::Listener if server.close_needed => {
                self.traffic.close_server(id, "the server ended the session")
            }
            ServerState::Listener => self.traffic.watch_listener(id),
            ServerState::Recovering { .. } if self.traffic.pools[server.pool].checks.has(id) => {
                self.traffic.check_due(id)
            }
            ServerState::Recovering { cancelled: cancelled @ false, .. } => {
                *cancelled = true;
                let due = self.traffic.cx.now + RECOVERY;
                self.traffic.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
                self.start_cancel(id);
            }
            ServerState::Recovering { .. } => self.traffic.close_server(id, "it could not be cleaned in time"),
            ServerState::Canceller { target } => {
                let target = *target;
                server.enter(ServerState::Closing);
                self.traffic.cx.out.close(id);
                self.canceller_ended(target, false);
            }
            _ => {}
        }
    }

    /// An idle server is too old, or nobody has needed it for long.
    pub(super) fn idle_due(&mut self, id: ServerId) {
        let now = self.traffic.cx.now;
        let Some(server) = self.traffic.servers.get(id) else { return };
        let pool = &self.traffic.pools[server.pool];
        let too_old = server.lifetime_end(pool.limits.server_lifetime) <= now;
        let unused = after(pool.limits.server_idle_timeout, server.idle_at) <= now;
        if too_old {
            self.traffic.close_server(id, "server lifetime over");
        } else if unused && pool.staying() > pool.share.least {
            self.traffic.close_server(id, "server idle timeout");
        } else {
            self.arm_idle(id);
        }
    }

    /// Sets when an idle server is looked at next: never in this moment, whatever the settings.
    pub(super) fn arm_idle(&mut self, id: ServerId) {
        let now = self.traffic.cx.now;
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        let limits = &self.traffic.pools[server.pool].limits;
        let limit = limits.server_idle_timeout;
        let unused = after(limit, server.idle_at);
        // One that the smallest size keeps is looked at again: others may have come.
        let unused = if unused > now { unused } else { after(limit, now) };
        let due = unused.min(server.lifetime_end(limits.server_lifetime));
        self.traffic.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
    }
}
