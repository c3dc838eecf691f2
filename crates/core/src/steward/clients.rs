//! The clients of all workers: how many there are, who may come in, and where.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::console::report::Census;
use crate::id::{Moved, WorkerId};
use crate::mail::Letter;
use crate::names::CONSOLE;
use crate::steward::homes::BUSY_PERMILLE;
use crate::steward::{Steward, UNKNOWN_CLIENTS_MAX};
use crate::whereabouts::{News, birthplace};

impl Steward {
    /// Where a connection that was just accepted goes; `None` where there are too many that said nothing.
    pub(crate) fn accept(&mut self) -> Option<WorkerId> {
        let sockets = self.sockets.iter().sum::<i32>().max(0) as u32;
        if sockets >= self.settings.max_client_conn.saturating_add(UNKNOWN_CLIENTS_MAX) {
            return None;
        }
        let worker = self.place()?;
        self.sockets[usize::from(worker.0)] += 1;
        Some(worker)
    }

    /// Where a new connection costs least: on a worker that is awake and has time; else one more is woken.
    fn place(&self) -> Option<WorkerId> {
        let loads = &self.loads;
        loads.workers().min_by_key(|&worker| {
            let sockets = self.sockets[usize::from(worker.0)];
            match (loads.is_awake(worker), loads.busy(worker) > BUSY_PERMILLE) {
                // Where all are full, the driver says so to whoever comes.
                _ if loads.is_full(worker) => (3, sockets),
                (true, false) => (0, sockets),
                // The same one for all, as long as it has time.
                (false, false) => (1, i32::from(worker.0)),
                (_, true) => (2, sockets),
            }
        })
    }

    /// Counts a client in, or names the limit that is reached.
    pub(crate) fn admit(&mut self, database: &Arc<str>, user: &Arc<str>) -> Option<(u32, &'static str)> {
        let settings = &self.settings;
        let database_limit = settings
            .database(database)
            .and_then(|database| database.max_db_client_connections)
            .unwrap_or(settings.max_db_client_connections);
        let user_limit = settings
            .users
            .get(user)
            .and_then(|user| user.max_user_client_connections)
            .unwrap_or(settings.max_user_client_connections);
        let full = |count: Option<&u32>, limit: u32| limit != 0 && count.copied().unwrap_or(0) >= limit;
        let to_console = **database == *CONSOLE;
        // Whoever may set the limits right must be able to come in, and so must the metrics, which are shown to `CONSOLE`.
        if to_console && (settings.admin_users.iter().any(|admin| **admin == **user) || **user == *CONSOLE) {
            self.count_in(database, user);
            return None;
        }
        if !to_console && self.clients.saturating_add(self.abroad.clients) >= settings.max_client_conn {
            return Some((settings.max_client_conn, "max_client_conn"));
        }
        if full(self.database_clients.get(database), database_limit) {
            return Some((database_limit, "max_db_client_connections"));
        }
        if full(self.user_clients.get(user), user_limit) {
            return Some((user_limit, "max_user_client_connections"));
        }
        self.count_in(database, user);
        None
    }

    fn count_in(&mut self, database: &Arc<str>, user: &Arc<str>) {
        self.clients += u32::from(**database != *CONSOLE);
        *self.database_clients.entry(Arc::clone(database)).or_default() += 1;
        *self.user_clients.entry(Arc::clone(user)).or_default() += 1;
    }

    /// For the console. Names are copied: those that two threads share would be counted by both.
    pub(crate) fn census(&self) -> Census {
        fn copy(counts: &BTreeMap<Arc<str>, u32>) -> BTreeMap<Arc<str>, u32> {
            counts.iter().map(|(name, count)| ((&**name).into(), *count)).collect()
        }
        Census { by_user: copy(&self.user_clients), by_database: copy(&self.database_clients) }
    }

    pub(crate) fn gone(&mut self, from: WorkerId, admitted: Option<(Arc<str>, Arc<str>)>, moved: Option<Moved>) {
        self.sockets[usize::from(from.0)] -= 1;
        if let Some((database, user)) = admitted {
            self.withdraw(&database, &user);
        }
        if let Some(moved) = moved {
            let news = self.directory.ended(moved, birthplace(moved.process_id, self.workers));
            self.pass_on(moved, news);
        }
    }

    /// A client has come from another process: whatever the limits are, it was let in.
    pub(crate) fn came_over(&mut self, at: WorkerId, database: &Arc<str>, user: &Arc<str>) {
        self.sockets[usize::from(at.0)] += 1;
        self.abroad.clients = self.abroad.clients.saturating_sub(1);
        self.count_in(database, user);
    }

    /// A client has moved.
    pub(crate) fn lives(&mut self, at: WorkerId, moved: Moved, left: WorkerId) {
        self.sockets[usize::from(left.0)] -= 1;
        self.sockets[usize::from(at.0)] += 1;
        let news = self.directory.arrived(at, moved, birthplace(moved.process_id, self.workers));
        self.pass_on(moved, news);
    }

    fn pass_on(&mut self, about: Moved, news: News) {
        if let Some((worker, moved)) = news.forget {
            self.letters.push((worker, Letter::Forget { moved }));
        }
        if news.released {
            let process_id = about.process_id;
            self.letters.push((birthplace(process_id, self.workers), Letter::Released { process_id }));
        }
    }

    /// Which worker to ask whether a cancel request is for a client of its.
    pub(crate) fn holder(&self, process_id: u32) -> WorkerId {
        self.directory.find(process_id).unwrap_or_else(|| birthplace(process_id, self.workers))
    }

    /// Clients that have a place. Consoles are none, and hold nothing up.
    pub(crate) fn has_clients(&self) -> bool {
        self.clients > 0
    }

    /// Whether anybody is here but consoles, be it without a name yet.
    pub(crate) fn has_connections(&self) -> bool {
        let consoles = self.database_clients.get(CONSOLE).copied().unwrap_or(0);
        self.sockets.iter().sum::<i32>() > consoles as i32
    }

    /// Gives back a client's place.
    pub(crate) fn withdraw(&mut self, database: &Arc<str>, user: &Arc<str>) {
        self.clients = self.clients.saturating_sub(u32::from(**database != *CONSOLE));
        count_down(&mut self.database_clients, database);
        count_down(&mut self.user_clients, user);
    }
}

fn count_down(counts: &mut BTreeMap<Arc<str>, u32>, name: &Arc<str>) {
    if let Some(count) = counts.get_mut(name) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(name);
        }
    }
}
