//! What clients listen to goes from their own servers to one that listens for all of a pool's, so that theirs are free.
//!
//! The first server that stays with its client for nothing else becomes the listener. For the next, the listener begins to listen to the same;
//! then the mark is told to both (`kept/channels.rs`), and the client's own server leaves its channels.

use std::fmt::Write;
use std::sync::Arc;

use weir_wire::{HEADER_LEN, TransactionStatus};

use crate::failure::Failure;
use crate::id::{ClientId, ServerId};
use crate::kept::Lists;
use crate::kept::channels::{Channels, Handover, Listener, Notification, write_listen};
use crate::parameters::encodings::reads_alike;
use crate::server::{Hold, Server, ServerState};
use crate::worker::Service;
use crate::worker::link::part;
use crate::worker::pins::may_be_handed_over;

impl Service {
    /// A server that owes nothing may stay with its client for nothing but what that listens to. True where it does so no longer, or something is
    /// under way by which it comes to that.
    #[cold]
    pub(super) fn hands_channels_over(&mut self, id: ClientId, server_id: ServerId) -> bool {
        let Some(server) = self.traffic.servers.get(server_id) else { return false };
        let idles = server.owed.settled() && server.status == TransactionStatus::Idle && server.hold == Hold::Nothing;
        if !idles || server.kept.is_looking() {
            return false;
        }
        // Whatever the client asks next, what was sent is done now.
        let handover = server.kept.handover;
        match handover {
            Handover::Leaving if self.has_left_channels(id, server_id) => return true,
            Handover::Marking => self.is_marked(id, server_id),
            _ => {}
        }
        let Some(server) = self.traffic.servers.get(server_id) else { return false };
        if matches!(server.kept.seen_lists(), Lists::IfSet { .. } | Lists::Certainly { sent: true }) {
            // Ahead of what is told of it.
            self.traffic.listed(id, server_id);
        }
        let (Some(client), Some(server)) = (self.traffic.clients.get(id), self.traffic.servers.get(server_id)) else {
            return false;
        };
        let asks = client.session().is_none_or(|session| session.asks);
        if asks || client.ended || server.owed.is_fresh() || server.cancel_is_on_its_way() {
            return false;
        }
        if *server.kept.seen_lists() != Lists::No {
            self.traffic.listed(id, server_id);
        }
        let Some(server) = self.traffic.servers.get(server_id).filter(|server| server.kept.lists == Lists::No) else {
            return false;
        };
        // Where there is one, also of a client that keeps its server for something else: all that it listens to is told in one order.
        let alone = self.traffic.pools[server.pool].listener.is_none();
        let Some(channels) = server.kept.listens(alone).cloned() else { return false };
        if !may_be_handed_over(server, &self.traffic.pools, &self.traffic.cx) {
            return false;
        }
        if server.kept.handover == Handover::Failed {
            self.takes_channels_back(id, server_id);
            return false;
        }
        self.hand_over(id, server_id, &channels)
    }

    fn hand_over(&mut self, id: ClientId, server_id: ServerId, channels: &Channels) -> bool {
        let Some(server) = self.traffic.servers.get(server_id) else { return false };
        let (index, key) = (server.pool, server.key.as_ref().map(|(process_id, _)| *process_id));
        let Some(listener) = &mut self.traffic.pools[index].listener else {
            self.becomes_listener(id, server_id, channels.clone());
            return true;
        };
        if self.traffic.servers.get(listener.server).is_none_or(|server| server.close_needed) {
            // It ends soon, and its own server tells the client all.
            return false;
        }
        let new = listener.unknown_to(id, channels);
        if new.is_empty() {
            self.leave_channels(server_id);
            return true;
        }
        if listener.is_marked(id) {
            // The next can be when the listener has told this one.
            return false;
        }
        let mut sql = listener.wants(id, &new);
        let by = key.filter(|_| listener.hears(id, &new));
        let marks = listener.marks.clone();
        if by.is_some() && sql.is_empty() {
            // Whether it still does shows its answer.
            write_listen(&mut sql, marks.as_bytes());
        }
        self.traffic.ask_listener(index, sql);
        self.traffic.note_listening(index, id);
        let Some(by) = by else { return false };
        let mark = hexadecimal(self.traffic.cx.random());
        if let Some(listener) = &mut self.traffic.pools[index].listener {
            listener.marks(id, mark.clone(), by);
        }
        let Some(server) = self.traffic.servers.get_mut(server_id) else { return false };
        server.kept.handover = Handover::Marking;
        server.hold = Hold::Parameters;
        // Its client is not to see that it has listened to it.
        for text in [format!("LISTEN {marks}"), format!("NOTIFY {marks}, '{mark}'"), format!("UNLISTEN {marks}")] {
            // A simple query would take the unnamed statement away.
            server.run_ahead(server_id, text.into_bytes(), &mut self.traffic.cx);
            server.sync_ours(server_id, &mut self.traffic.cx);
        }
        true
    }

    /// The mark was sent, and all is answered.
    fn is_marked(&mut self, id: ClientId, server_id: ServerId) {
        let Some(server) = self.traffic.servers.get_mut(server_id) else { return };
        let told = self.traffic.pools[server.pool].listener.as_ref().is_some_and(|listener| listener.own_has_told(id));
        // What is between the two and PostgreSQL may not tell who has notified.
        server.kept.handover = if told { Handover::Nothing } else { Handover::Failed };
    }

    /// The client's own server goes on telling it what it was to hear from the listener, unless that does so by now.
    fn takes_channels_back(&mut self, id: ClientId, server_id: ServerId) {
        let Some(server) = self.traffic.servers.get(server_id) else { return };
        let index = server.pool;
        let Some(listener) = self.traffic.pools[index].listener.as_mut().filter(|listener| !listener.own_has_told(id))
        else {
            return;
        };
        let sql = listener.gives_back(id);
        self.traffic.ask_listener(index, sql);
        self.traffic.note_listening(index, id);
    }

    /// All that it listens to is told by the listener.
    fn leave_channels(&mut self, server_id: ServerId) {
        let Some(server) = self.traffic.servers.get_mut(server_id) else { return };
        server.kept.handover = Handover::Leaving;
        server.hold = Hold::Parameters;
        server.run_ahead(server_id, b"UNLISTEN *".to_vec(), &mut self.traffic.cx);
        server.sync_ours(server_id, &mut self.traffic.cx);
    }

    /// False where something else keeps the two together by now.
    fn has_left_channels(&mut self, id: ClientId, server_id: ServerId) -> bool {
        let Some(server) = self.traffic.servers.get_mut(server_id) else { return false };
        let index = server.pool;
        server.kept.leaves_channels(self.traffic.cx.now);
        let is_free = server.kept.is_blank();
        self.traffic.note_listening(index, id);
        if is_free {
            self.unlink(id, server_id);
        }
        is_free
    }

    /// The first of its pool: it is nobody else's from now on, and its client has none.
    fn becomes_listener(&mut self, id: ClientId, server_id: ServerId, channels: Channels) {
        self.traffic.uncount_pin(server_id);
        self.traffic.release_hold(server_id);
        let marks = format!("weir_{}", hexadecimal(self.traffic.cx.random()));
        let Some(server) = self.traffic.servers.get_mut(server_id) else { return };
        server.kept.left();
        server.enter(ServerState::Listener);
        // What its client has set there is not for the others: among it may be a time limit. Names and notifications come as the database has them.
        let mut plain = server.parameters.reported_only();
        if !server.encoding().is_empty() {
            plain.set("client_encoding", server.encoding(), true);
        }
        if server.release() >= 14 {
            // It is idle for most of its time, and what its clients do is not known to it.
            plain.set("idle_session_timeout", b"0", false);
        }
        let plain = self.traffic.cx.parameter_sets.intern(plain);
        server.bring_to(server_id, &plain, &mut self.traffic.cx);
        let (index, batch) = (server.pool, server.owed.batch());
        let mut sql = Vec::new();
        write_listen(&mut sql, marks.as_bytes());
        self.traffic.pools[index].listener = Some(Box::new(Listener::new(server_id, marks, id, channels)));
        self.traffic.ask_listener(index, sql);
        self.traffic.note_listening(index, id);
        if let Some(client) = self.traffic.clients.get_mut(id) {
            part(id, client, batch, &mut self.traffic.cx);
            if client.held {
                self.traffic.wake_client(id);
            }
        }
    }

    /// The client is about to leave some of what it hears from the listener, which tells it first what was notified before. Whether that is awaited.
    #[cold]
    pub(super) fn hears_out(&mut self, id: ClientId) -> bool {
        let Some(client) = self.traffic.clients.get(id) else { return false };
        let index = client.pool;
        let sql =
            self.traffic.pools[index].listener.as_mut().map(|listener| listener.hears_out(id)).unwrap_or_default();
        if sql.is_empty() {
            self.has_heard_out(id);
            return false;
        }
        self.traffic.ask_listener(index, sql);
        true
    }

    /// All that was notified before its request has been told.
    pub(super) fn has_heard_out(&mut self, id: ClientId) {
        let Some(client) = self.traffic.clients.get(id) else { return };
        let (Some(server), Some(session)) = (client.link.server(), client.session()) else { return };
        let asked_at = session.asked_at;
        if let Some(server) = self.traffic.servers.get_mut(server) {
            server.kept.heard_out = Some(asked_at);
        }
        self.traffic.wake_client(id);
    }

    /// The client may leave some of what it hears from the listener: its own server listens to that too, so that it is seen what is left.
    #[cold]
    pub(super) fn list_channels(&mut self, id: ClientId) {
        let Some(server_id) = self.traffic.clients.get(id).and_then(|client| client.link.server()) else { return };
        let Some(server) = self.traffic.servers.get_mut(server_id) else { return };
        let listener = self.traffic.pools[server.pool].listener.as_ref();
        let all_ascii = listener.is_none_or(|listener| listener.told_to(id).all(<[u8]>::is_ascii));
        if !all_ascii && !reads_alike(server.parameters.encoding(), server.encoding()) {
            // Names are the database's, and read in the client's encoding here.
            return self.fail_client(id, &Failure::NotificationUnlike);
        }
        for channel in listener.into_iter().flat_map(|listener| listener.told_to(id)) {
            let mut sql = Vec::new();
            write_listen(&mut sql, channel);
            server.run_ahead(server_id, sql, &mut self.traffic.cx);
        }
        let lists = if server.status == TransactionStatus::Idle {
            Lists::Certainly { sent: false }
        } else {
            let mark = hexadecimal(self.traffic.cx.random());
            // It takes no snapshot.
            let sql = format!("SET weir.lists = '{mark}'");
            server.run_ahead(server_id, sql.into_bytes(), &mut self.traffic.cx);
            Lists::IfSet { mark, taken_back: false }
        };
        server.kept.lists_channels(lists, self.traffic.cx.now);
        if !server.owed.settled() {
            server.hold = Hold::Parameters;
            server.sync_ours(server_id, &mut self.traffic.cx);
        }
    }

    /// Its client is about to be told by its own server what it listens to.
    #[cold]
    pub(super) fn asks_channels(&mut self, server_id: ServerId) {
        if let Some(id) = self.traffic.servers.get(server_id).and_then(Server::client) {
            self.fail_client(id, &Failure::ChannelsElsewhere);
        }
    }

    /// The client is about to ask for what `nextval` gave last.
    #[cold]
    pub(super) fn forget_sequences(&mut self, id: ClientId) {
        let Some(server_id) = self.traffic.clients.get(id).and_then(|client| client.link.server()) else { return };
        let Some(server) = self.traffic.servers.get_mut(server_id) else { return };
        server.forget_sequences(server_id, &mut self.traffic.cx);
    }

    /// The client is about to ask which statements are prepared, or to use one of its own by SQL.
    #[cold]
    pub(super) fn clear_statements(&mut self, id: ClientId, own_names: bool) {
        let Some(client) = self.traffic.clients.get_mut(id) else { return };
        let (Some(server_id), Some(session)) = (client.link.server(), client.session_mut()) else { return };
        let Some(server) = self.traffic.servers.get_mut(server_id) else { return };
        server.close_statements(server_id, &mut self.traffic.cx);
        if own_names {
            if server.status == TransactionStatus::Idle && !server.kept.own_sequences {
                // What is bound from then on is not looked into.
                server.forget_sequences(server_id, &mut self.traffic.cx);
            }
            server.give_own_names(server_id, session, &mut self.traffic.cx);
        }
        if server.owed.unsynced() {
            server.sync_ours(server_id, &mut self.traffic.cx);
        }
        if !server.owed.settled() {
            server.hold = Hold::Parameters;
        }
    }

    /// A notification was told to a pool's listener.
    #[cold]
    pub(super) fn notified(&mut self, id: ServerId, message: &[u8]) {
        let Some(server) = self.traffic.servers.get(id) else { return };
        let (index, encoding) = (server.pool, server.encoding().to_vec());
        let Some(told) = message.get(HEADER_LEN..).and_then(Notification::read) else { return };
        let Some(listener) = &mut self.traffic.pools[index].listener else { return };
        if let Some(client) = listener.marked(&told) {
            let server = self.traffic.clients.get(client).and_then(|client| client.link.server());
            return self.traffic.settling.extend(server);
        }
        let message: Arc<[u8]> = message.into();
        for client in listener.told(&told) {
            if self.traffic.reads_notification(client, &told, &encoding) {
                self.notify(index, client, &message)
            } else {
                self.fail_between_messages(client, Failure::NotificationUnlike);
            }
        }
    }

    fn notify(&mut self, index: u32, id: ClientId, message: &Arc<[u8]>) {
        let takes = self.traffic.takes_notifications(id);
        let pool = &mut self.traffic.pools[index];
        let Some(listener) = &mut pool.listener else { return };
        if takes && !listener.waits(id) {
            pool.counters.bytes_sent += message.len() as u64;
            self.traffic.cx.out.send(id, |out| out.extend_from_slice(message));
        } else if !listener.keep(id, message) {
            self.fail_between_messages(id, Failure::NotificationsUnread);
        }
    }
}

fn hexadecimal(random: [u8; 16]) -> String {
    let mut text = String::new();
    for byte in random {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
