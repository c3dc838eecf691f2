//! A pool's server that listens for its clients: what becomes of it as they come and go. What it tells goes to them in `channels.rs`.

use weir_wire::{HEADER_LEN, TransactionStatus};

use crate::client::Link;
use crate::id::{ClientId, ServerId};
use crate::kept::channels::Notification;
use crate::kept::exact::Unlistened;
use crate::mail::Letter;
use crate::parameters::encodings::reads_alike;
use crate::server::{Hold, Reset, ServerState};
use crate::timers::Subject;
use crate::worker::Traffic;
use crate::worker::patience::{PROOF_PATIENCE, RECOVERY};

impl Traffic {
    /// The pool's listener is asked for less, or more; nothing where the text is empty.
    pub(super) fn ask_listener(&mut self, index: u32, sql: Vec<u8>) {
        let Some(listener) = &self.pools[index].listener else { return };
        let (id, is_watched) = (listener.server, listener.awaited.is_some());
        if sql.is_empty() {
            return;
        }
        if let Some(server) = self.servers.get_mut(id) {
            self.cx.out.send(id, |out| weir_wire::write::query(out, &sql));
            server.owe_own_query(0);
        }
        if !is_watched {
            self.watch_listener(id);
        }
    }

    /// One that does not answer is as good as lost: those who come to listen keep their servers until it has heard of them, and those who are
    /// here are told of nothing.
    pub(super) fn watch_listener(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let Some(listener) = &mut self.pools[server.pool].listener else { return };
        let owes = (!server.owed.settled()).then(|| server.owed.front_number());
        let before = std::mem::replace(&mut listener.awaited, owes);
        if owes.is_none() {
            return;
        }
        if before == owes {
            let label = self.server_label(id);
            self.cx.log_warning(format!("{label} it has listened for others, and does not answer"));
            return self.close_server(id, "it has listened for others, and does not answer");
        }
        let due = self.cx.now + RECOVERY;
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
    }

    /// A client that its pool's listener has heard channels for goes.
    pub(super) fn forget_listening(&mut self, index: u32, id: ClientId) {
        let Some(listener) = &mut self.pools[index].listener else { return };
        let sql = listener.forget(id);
        self.ask_listener(index, sql);
        self.release_listener(index);
    }

    /// Of what the listener hears for this client it has left all that its own server does not listen to.
    #[cold]
    pub(super) fn listed(&mut self, id: ClientId, server_id: ServerId) {
        let Some(server) = self.servers.get_mut(server_id) else { return };
        let index = server.pool;
        if server.kept.channels_are_unread() {
            // What it has left of what the listener tells it is not known.
            self.cx.post(self.cx.config.id, Letter::ListenerLost { clients: vec![id] });
        }
        if let Some(channels) = server.kept.listed() {
            self.hears_only(index, id, |channel| channels.contains(channel));
        }
    }

    /// Of what the listener hears for its client it has left some, as PostgreSQL tells it. `None`: nobody knows what.
    #[cold]
    pub(super) fn left_channels(&mut self, server_id: ServerId, left: Option<&Unlistened>) {
        let Some(server) = self.servers.get(server_id) else { return };
        let (index, Some(id)) = (server.pool, server.client()) else { return };
        match left {
            Some(left) => self.hears_only(index, id, |channel| !left.has(channel)),
            None => self.cx.post(self.cx.config.id, Letter::ListenerLost { clients: vec![id] }),
        }
    }

    fn hears_only(&mut self, index: u32, id: ClientId, stays: impl Fn(&[u8]) -> bool) {
        let Some(listener) = &mut self.pools[index].listener else { return };
        let sql = listener.keep_only(id, stays);
        self.ask_listener(index, sql);
        self.note_listening(index, id);
        self.release_listener(index);
    }

    /// Its request is carried out by nobody: whether it waited for what was notified before.
    pub(super) fn stops_hearing_out(&mut self, id: ClientId) -> bool {
        let Some(client) = self.clients.get(id).filter(|client| client.session().is_some()) else { return false };
        self.pools[client.pool].listener.as_mut().is_some_and(|listener| listener.stops_hearing_out(id))
    }

    pub(super) fn note_listening(&mut self, index: u32, id: ClientId) {
        let listener = self.pools[index].listener.as_ref();
        let listens = listener.is_some_and(|listener| listener.has(id));
        if let Some(session) = self.clients.get_mut(id).and_then(|client| client.session_mut()) {
            session.listens = listens;
        }
    }

    /// Nobody listens any more: it is a server like any other.
    fn release_listener(&mut self, index: u32) {
        let pool = &mut self.pools[index];
        let Some(listener) = pool.listener.take_if(|listener| listener.is_unused()) else { return };
        let id = listener.server;
        let Some(server) = self.servers.get_mut(id) else { return };
        server.proofs_until = self.cx.now + PROOF_PATIENCE;
        server.enter(ServerState::Recovering { reset_due: Reset::All, rolled_back: false, cancelled: false });
        let due = self.cx.now + RECOVERY;
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
        self.recovering_settled(id);
    }

    /// What came for a client while it could not take it.
    #[cold]
    pub(super) fn tell_kept(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id).filter(|client| client.session().is_some()) else { return };
        if !self.takes_notifications(id) {
            return;
        }
        let index = client.pool;
        let Some(listener) = &mut self.pools[index].listener else { return };
        let Some(kept) = listener.take_kept(id) else { return };
        let encoding = self.servers.get(listener.server).map(|server| server.encoding().to_vec()).unwrap_or_default();
        for message in kept {
            // It may have another encoding than when this came.
            let told = Notification::read(&message[HEADER_LEN..]);
            if !told.is_some_and(|told| self.reads_notification(id, &told, &encoding)) {
                return self.cx.post(self.cx.config.id, Letter::ListenerLost { clients: vec![id] });
            }
            self.pools[index].counters.bytes_sent += message.len() as u64;
            self.cx.out.send(id, |out| out.extend_from_slice(&message));
        }
    }

    /// Whether it means the same in the client's encoding. `encoding`: the database's.
    pub(super) fn reads_notification(&self, client: ClientId, told: &Notification<'_>, encoding: &[u8]) -> bool {
        let parameters = self.clients.get(client).and_then(|client| client.session()).map(|own| &own.parameters);
        told.is_ascii() || parameters.is_some_and(|own| reads_alike(own.encoding(), encoding))
    }

    /// Whether it is between two transactions, as PostgreSQL tells notifications (`ProcessClientReadInterrupt`, src/backend/tcop/postgres.c), and
    /// reads what it is told.
    pub(super) fn takes_notifications(&self, id: ClientId) -> bool {
        let Some(client) = self.clients.get(id).filter(|client| !client.congested) else { return false };
        match client.link {
            Link::None | Link::Waiting { .. } => true,
            Link::Linked(server) => self.servers.get(server).is_some_and(|server| {
                let idles = server.status == TransactionStatus::Idle && server.owed.settled();
                idles && server.hold == Hold::Nothing && !server.is_in_message()
            }),
            Link::WaitingTunnel { .. } | Link::Tunnel(_) => false,
        }
    }
}
