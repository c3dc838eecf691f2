//! New settings: what of them reaches whoever is here already.

use std::sync::Arc;

use crate::client::{ClientState, Limits};
use crate::failure::Failure;
use crate::id::WorkerId;
use crate::kept::Kinds;
use crate::kept::leaves::Leaves;
use crate::login::Phase;
use crate::pool::Tls;
use crate::pool::limits::PoolLimits;
use crate::server::ServerState;
use crate::settings::Settings;
use crate::worker::Worker;

impl Worker {
    pub(super) fn new_settings(&mut self, settings: Arc<Settings>) {
        let tls = Tls::of(&self.cx.settings);
        let before = std::mem::replace(&mut self.cx.settings, settings);
        self.known.renew(&self.cx.settings);
        if Tls::of(&self.cx.settings) != tls && self.cx.config.id == WorkerId::STEWARD {
            self.cx.log_info("server_tls_* changed: servers over TCP are replaced as they become free".to_owned());
        }
        let settings = Arc::clone(&self.cx.settings);
        let mut changed = vec![false; self.pools.indexes().len()];
        let mut removed = changed.clone();
        for index in self.pools.indexes() {
            let pool = &mut self.pools[index];
            // What was shown would go on to count more than the file's, and nobody be asked for a newer one.
            let user = &pool.name.user;
            if !settings.hba.asks_others() || settings.secrets.get(user) != before.secrets.get(user) {
                pool.credentials.forget_shown(self.cx.now);
            }
            match settings.database(&pool.name.database) {
                Some(database) => changed[index as usize] = !pool.renew(Arc::clone(database), &settings),
                None => {
                    pool.limits = PoolLimits::of(&pool.name, &settings);
                    (changed[index as usize], removed[index as usize]) = (true, true);
                }
            }
        }
        for id in self.clients.ids() {
            let Some(client) = self.clients.get_mut(id) else { continue };
            if removed.get(client.pool as usize) == Some(&true) {
                self.fail_client(id, &Failure::DatabaseRemoved);
                continue;
            }
            let waits_to_be_greeted =
                matches!(&client.state, ClientState::Login(login) if matches!(login.phase, Phase::Proving));
            if waits_to_be_greeted && !self.is_still_let_in(id) {
                self.fail_client(id, &Failure::LookupFailed);
                continue;
            }
            let Some(client) = self.clients.get_mut(id) else { continue };
            if let Some(session) = client.session_mut() {
                session.limits = Limits::of(&settings, &session.database, &session.user);
            }
            self.renew_client_deadline(id);
        }
        self.mark_servers(&changed);
        self.close_listeners();
        self.adopt_state();
        for id in self.servers.ids() {
            self.renew_server_deadline(id);
        }
        for (index, removed) in (0..).zip(removed) {
            self.tell_pinned(index, true);
            if !removed {
                self.asked_is_stale(index);
                self.ask(index);
                self.fill(index);
            }
        }
        self.fill_forced_pools();
        #[cfg(feature = "planted")]
        let keeps_limits = self.cx.planted == Some(crate::planted::Planted::KeepLimits);
        #[cfg(not(feature = "planted"))]
        let keeps_limits = false;
        if let Some(steward) = self.steward.as_mut().filter(|_| !keeps_limits) {
            steward.new_settings(self.cx.now, settings);
        }
        self.post_stewards_letters();
        self.arm_stats();
        self.look_for_unused();
    }

    /// Where one is no longer to be, or would be all that there may be.
    fn close_listeners(&mut self) {
        for index in self.pools.indexes() {
            let has_room = self.pools.have_room_for_listeners(index, self.cx.config.workers);
            if let Some(listener) = self.pools[index].listener.as_ref().filter(|_| !has_room) {
                self.close_server(listener.server, "there is no room for a server that listens");
            }
        }
    }

    /// State is kept from now on: what a client has left on the server that it has, in session mode perhaps, is its own too.
    fn adopt_state(&mut self) {
        for id in self.servers.ids() {
            let Some(server) = self.servers.get_mut(id) else { continue };
            let ServerState::Linked(client) = server.state else { continue };
            // A login only borrows one.
            let has_session = self.clients.get(client).is_some_and(|client| client.session().is_some());
            let pool = &self.pools[server.pool];
            if has_session && pool.limits.keeps && !server.kept.on {
                let of_another_database = server.kept.of_another_database;
                server.kept.begin(&pool.limits, &pool.knowledge, server.exact.is_some());
                server.kept.of_another_database = of_another_database;
                let left = if pool.limits.refuses { Leaves::any(Kinds::ANY) } else { Leaves::unknown() };
                server.kept.sent(&left, b"");
            }
        }
    }
}
