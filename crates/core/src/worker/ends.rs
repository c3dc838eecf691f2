//! The end of a client's session: what it gives up.

use weir_wire::Report;

use crate::client::{ClientState, Link};
use crate::console::report::Question;
use crate::contract::event::{Command, Event};
use crate::failure::Failure;
use crate::id::ClientId;
use crate::inbox::Body;
use crate::mail::Letter;
use crate::time::Duration;
use crate::timers::Subject;
use crate::worker::Service;

/// A client that has got half a message when it is ended is told so behind the rest, if that comes so soon.
const REST_OF_A_MESSAGE: Duration = Duration::from_secs(1);

impl Service {
    /// Ends a client's session with an error.
    #[cold]
    pub(super) fn fail_client(&mut self, id: ClientId, failure: &Failure) {
        let report = failure.report();
        self.fail_client_because(id, failure, &report, &failure.reason(&report));
    }

    /// `reason`: for the log, where it is not the error's own text.
    pub(super) fn fail_client_because(&mut self, id: ClientId, failure: &Failure, report: &Report, reason: &str) {
        let Some(client) = self.traffic.clients.get(id) else { return };
        if client.is_over() || matches!(client.state, ClientState::Reserved) {
            return;
        }
        if self.traffic.cx.settings.log.pooler_errors {
            let text = format!("{} pooler error: {}", client.label(), failure.log_text(report));
            self.traffic.cx.out.event(Event::Log { level: failure.level(), text });
        }
        let can_tell = match &client.state {
            ClientState::Console(_) => true,
            _ => self.traffic.can_tell(id),
        };
        if can_tell {
            self.traffic.cx.tell_error(id, report);
        }
        self.end_client(id, reason);
    }

    /// Half a message of a reply stands between the client and what it is to be told: the rest may be there at once.
    pub(super) fn fail_between_messages(&mut self, id: ClientId, failure: Failure) {
        // Whoever is to be told something else already is told that.
        let Some(client) = self.traffic.clients.get_mut(id).filter(|client| !client.overdue) else { return };
        let server = client.link.server().and_then(|server| self.traffic.servers.get_mut(server));
        let Some(server) = server.filter(|server| server.is_in_message() && !server.told) else {
            return self.fail_client(id, &failure);
        };
        client.overdue = true;
        server.overdue = Some(Box::new(failure));
        self.traffic.cx.timers.set(Subject::Client(id), &mut client.deadline, self.traffic.cx.now + REST_OF_A_MESSAGE);
        self.traffic.hold_client(id);
    }

    /// Ends a client's session: closes its connection, and leaves its server as the next one may find it.
    #[cold]
    pub(super) fn end_client(&mut self, id: ClientId, reason: &str) {
        self.log_leaving(id, reason);
        self.leave(id);
        if self.traffic.clients.get(id).is_some_and(crate::client::Client::is_over) {
            self.traffic.cx.out.close(id);
        }
    }

    /// Says why a client's session, or its login, ends.
    #[cold]
    pub(super) fn log_leaving(&mut self, id: ClientId, reason: &str) {
        let Some(client) = self.traffic.clients.get(id).filter(|client| !client.is_over()) else { return };
        if self.traffic.cx.settings.log.disconnections {
            let age = self.traffic.cx.now.since(client.connected_at).as_secs();
            let text = format!("{} closing because: {reason} (age={age}s)", client.label());
            self.traffic.cx.log_info(text);
        }
    }

    /// Tells the steward when there is nothing left to wait for.
    pub(super) fn look_quiet(&mut self) {
        let Some(command) = self.traffic.shutdown.untold() else { return };
        let quiet = match command {
            Command::ShutdownWaitForClients | Command::HandOver => {
                self.traffic.pools.iter().all(|pool| pool.clients == 0)
            }
            Command::ShutdownWaitForServers => self.traffic.pools.iter().all(|pool| pool.servers == 0),
            _ => return,
        };
        if quiet {
            self.traffic.shutdown.tells();
            self.traffic.cx.tell_steward(Letter::Quiet);
        }
    }

    /// Whoever has sent a cancel request has closed its connection. `peer`: where it is passed on to.
    pub(super) fn asker_leaves(&mut self, id: ClientId, peer: Option<u16>) {
        if let Some(peer) = peer {
            self.traffic.cx.tell_steward(Letter::AskerLeft { peer, reply_to: id });
        }
    }

    /// The client is over: it gives up its place, its server and its names.
    pub(super) fn leave(&mut self, id: ClientId) {
        let Some(client) = self.traffic.clients.get_mut(id) else { return };
        let state = client.enter(ClientState::Closing);
        let link = client.bind(Link::None);
        let body = std::mem::replace(&mut client.inbox.body, Body::None);
        let (index, place, moved) = (client.pool, client.place, client.moved);
        if matches!(state, ClientState::Ready(_)) {
            self.sessions.ended(moved);
            self.traffic.pools[index].clients = self.traffic.pools[index].clients.saturating_sub(1);
        }
        match &state {
            ClientState::Ready(_) => self.traffic.forget_listening(index, id),
            ClientState::Login(login) if login.asks_others() => self.traffic.cx.out.ask_no_more(id),
            ClientState::CancelRequest(asked) => self.asker_leaves(id, asked.peer),
            ClientState::Console(console) if console.waits() => {
                self.traffic.cx.ask_workers(&Question::Forget, Some(id))
            }
            _ => {}
        }
        self.derivations.give_up(id);
        self.traffic.suspended.remove(&id);
        match link {
            Link::None => {}
            Link::Waiting { since } => self.traffic.pools[index].waiting.leave(id, since, place),
            Link::WaitingTunnel { since } => self.traffic.tunnel_abandoned(index, id, since, place),
            Link::Tunnel(server) => self.traffic.close_server(server, "its client has gone"),
            Link::Linked(server) => self.traffic.recover(server, matches!(body, Body::Forward(_))),
        }
        self.traffic.wants_no_more(index);
    }
}
