//! New settings: what of them reaches whoever is here already.

use std::sync::Arc;

use crate::client::{ClientState, Limits};
use crate::failure::Failure;
use crate::id::{ClientId, WorkerId};
use crate::kept::Kinds;
use crate::kept::leaves::Leaves;
use crate::login::Phase;
use crate::pool::limits::PoolLimits;
use crate::pool::origin::Tls;
use crate::server::ServerState;
use crate::settings::Settings;
use crate::worker::{Process, Service, Traffic};

impl Process {
    pub(super) fn new_settings(&mut self, settings: Arc<Settings>) {
        self.service.known.renew(&settings);
        let Traffic { cx, pools, .. } = &mut self.service.traffic;
        let before = std::mem::replace(&mut cx.settings, Arc::clone(&settings));
        cx.clusters.retain(&settings);
        if Tls::of(&before) != Tls::of(&settings) && cx.config.id == WorkerId::STEWARD {
            cx.log_info("server_tls_* changed: servers over TCP are replaced as they become free".to_owned());
        }
        let mut changed = vec![false; pools.indexes().len()];
        let mut removed = changed.clone();
        for index in pools.indexes() {
            let pool = &mut pools[index];
            // What was shown would go on to count more than the file's, and nobody be asked for a newer one.
            let user = &pool.name.user;
            if !settings.hba.asks_others() || settings.secrets.get(user) != before.secrets.get(user) {
                pool.credentials.forget_shown(cx.now);
            }
            match cx.clusters.entry(&settings, &pool.name) {
                Some(database) => changed[index as usize] = !pool.renew(database, &settings),
                None => {
                    pool.limits = PoolLimits::of(&pool.name, &settings);
                    changed[index as usize] = true;
                    removed[index as usize] = settings.database(&pool.name.database).is_none();
                }
            }
        }
        for id in self.service.traffic.clients.ids() {
            self.service.renew_client(id, &settings, &removed);
        }
        self.mark_servers(&changed);
        self.leave_lost_nodes();
        self.service.traffic.close_listeners();
        self.service.traffic.adopt_state();
        for id in self.service.traffic.servers.ids() {
            self.service.renew_server_deadline(id);
        }
        let traffic = &mut self.service.traffic;
        for (index, removed) in (0..).zip(removed) {
            traffic.tell_pinned(index, true);
            if !removed {
                traffic.asked_is_stale(index);
                traffic.ask(index);
                traffic.fill(index);
            }
        }
        self.service.fill_forced_pools();
        #[cfg(feature = "planted")]
        let keeps_limits = self.service.traffic.cx.planted == Some(crate::planted::Planted::KeepLimits);
        #[cfg(not(feature = "planted"))]
        let keeps_limits = false;
        if let Some(steward) = self.steward.as_mut().filter(|_| !keeps_limits) {
            steward.new_settings(self.service.traffic.cx.now, settings);
        }
        self.post_stewards_letters();
        self.arm_stats();
        self.service.traffic.look_for_unused();
    }
}

impl Service {
    /// This client by new settings, where some pools' databases are `removed`.
    fn renew_client(&mut self, id: ClientId, settings: &Settings, removed: &[bool]) {
        let Some(client) = self.traffic.clients.get_mut(id) else { return };
        if removed.get(client.pool as usize) == Some(&true) {
            return self.fail_client(id, &Failure::DatabaseRemoved);
        }
        let waits_to_be_greeted =
            matches!(&client.state, ClientState::Login(login) if matches!(login.phase, Phase::Proving));
        if waits_to_be_greeted && !self.is_still_let_in(id) {
            return self.fail_client(id, &Failure::LookupFailed);
        }
        let Some(client) = self.traffic.clients.get_mut(id) else { return };
        if let Some(session) = client.session_mut() {
            session.limits = Limits::of(settings, &session.database, &session.user);
        }
        self.traffic.renew_client_deadline(id);
    }
}

impl Traffic {
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
