//! The end of a run: the faults stop, and then every waiter must be served or told, and every permit must be back.

use weir_core::settings::PoolMode;
use weir_core::time::{Duration, Time};
use weir_core::{Command, Side};

use crate::client::{Client, Habits, Identity, Role};
use crate::driver::{Stand, Todo};
use crate::plan::Plan;
use crate::postgres::backend::Backend;
use crate::world::{Event, World};

/// No timeout of the settings is longer than a waiter may take to be served or told; calm runs have work only.
const PATIENCE: Duration = Duration::from_secs(400);
/// How long a fresh client may take when nothing is wrong. Includes one server_login_retry and a connect timeout.
pub const FRESH_PATIENCE: Duration = Duration::from_secs(90);
/// How long a login may take in the end, where it might take for ever before.
const LOGIN_PATIENCE: Duration = Duration::from_secs(120);
/// How long after the last client everything must be clean.
const CLEAN_AFTER: Duration = Duration::from_secs(30);

impl World {
    pub fn live(&mut self) {
        self.run_until(Time(self.plan.active_us));
        if self.exited || self.plan.shutdown {
            return self.end_after_shutdown();
        }
        self.calm_down();
        self.everyone_served();
        self.everyone_leaves();
        self.cluster_settles();
        self.fresh_pools();
        self.all_is_clean();
        self.counts.virtual_us = self.now.0;
    }

    pub fn failed(&self) -> bool {
        self.checks.violation.is_some()
    }

    /// Waits in steps until a condition holds; false if it does not in time.
    pub fn wait_for(&mut self, patience: Duration, condition: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + patience;
        while !self.failed() && !condition(self) {
            if self.now >= end {
                return false;
            }
            self.run_until((self.now + Duration(250_000)).min(end));
        }
        true
    }

    fn calm_down(&mut self) {
        if self.failed() {
            return;
        }
        self.trace(|| "the faults are over".to_owned());
        self.quiet = true;
        self.resume();
        if !self.shutting_down {
            // A console may have killed a database a moment ago, and be cut off before it lets clients in again.
            for later_us in [0, 2_000_000] {
                self.later(later_us, 0, Todo::Command(Command::Resume));
            }
        }
        self.lift_timeouts();
        for cluster in &mut self.clusters {
            cluster.up = true;
            cluster.error_permille = 0;
            cluster.connections_max = usize::MAX;
        }
        for id in 0..self.links.len() {
            self.links[id].stalled_until = Time(0);
            self.links[id].reader_paused_until = Time(0);
            self.links[id].up.scheduled = false;
            self.links[id].down.scheduled = false;
            self.kick_up(id);
            self.kick_down(id);
        }
        // Whoever thinks is woken, so that those who leave when done do so.
        for index in 0..self.clients.len() {
            self.at(self.now, Event::Client(index));
        }
    }

    /// Timeouts on what clients do would end those that wait for each other on purpose. Without one on logins, whoever sent half a
    /// startup packet would be waited for as long as it stays.
    fn lift_timeouts(&mut self) {
        let some = |limit: Duration| if limit == Duration::ZERO { LOGIN_PATIENCE } else { limit };
        let first = &self.plan.settings;
        // Whoever waits for a server of a pool that may have none is told so some day.
        let ever = self.plan.some_unreachable(first);
        let lift = |limit: &mut Option<Duration>| *limit = limit.filter(|limit| !ever || *limit != Duration::ZERO);
        let (mut users, mut databases) = (first.users.clone(), first.databases.clone());
        let mut fallback_database = first.fallback_database.clone();
        for database in databases.values_mut().chain(&mut fallback_database) {
            lift(&mut std::sync::Arc::make_mut(database).query_wait_timeout);
        }
        for user in users.values_mut() {
            lift(&mut user.query_wait_timeout);
            user.query_timeout = None;
            user.idle_transaction_timeout = None;
            user.transaction_timeout = None;
            user.client_idle_timeout = None;
        }
        let query_wait_timeout = if ever { some(first.query_wait_timeout) } else { first.query_wait_timeout };
        let settings = std::sync::Arc::new(weir_core::Settings {
            client_login_timeout: some(first.client_login_timeout),
            query_wait_timeout,
            users,
            databases,
            fallback_database,
            query_timeout: Duration::ZERO,
            idle_transaction_timeout: Duration::ZERO,
            transaction_timeout: Duration::ZERO,
            client_idle_timeout: Duration::ZERO,
            ..first.clone()
        });
        self.hold(std::sync::Arc::clone(&settings), self.now);
        for host in &mut self.hosts {
            host.queue.push_back(Todo::Settings(std::sync::Arc::clone(&settings)));
        }
        self.settle();
    }

    fn everyone_served(&mut self) {
        if self.failed() {
            return;
        }
        // Also what a client asked for that has left meanwhile: the pooler may hear of that only when it reads again.
        let quiet = |world: &Self| !world.clients.iter().any(Client::waits) && world.unread().is_none();
        self.wait_for(PATIENCE, quiet);
        if self.clients.iter().any(Client::waits) {
            let stuck: Vec<String> =
                self.clients.iter().filter(|it| it.waits()).map(Client::describe).take(3).collect();
            self.checks.fail("every waiter is served or told", stuck.join("; "));
        }
        self.nothing_unread();
        self.everything_heard();
    }

    /// Whoever listens, and is between two transactions, is told what was notified.
    fn everything_heard(&mut self) {
        let unheard = |world: &Self| {
            let own =
                |client: &Client| world.checks.unheard(client.number).filter(|_| client.can_hear()).map(str::to_owned);
            world.clients.iter().find_map(|client| Some(format!("{:?}: {}", own(client)?, client.describe())))
        };
        self.wait_for(PATIENCE, |world| unheard(world).is_none());
        if let Some(text) = unheard(self).filter(|_| !self.failed()) {
            self.checks.fail("told what was notified", format!("nobody tells {text}"));
        }
    }

    /// When all is quiet, no connection may be left unread: nobody would ever notice what comes on it.
    fn nothing_unread(&mut self) {
        if let Some(text) = self.unread() {
            self.checks.fail("contract", format!("{text} with nothing to wait for"));
        }
    }

    fn unread(&self) -> Option<String> {
        let conns = self
            .hosts
            .iter()
            .enumerate()
            .flat_map(|(index, host)| host.conns.iter().map(move |(id, conn)| (index, id, conn)));
        let mut unread =
            conns.filter(|(_, _, conn)| conn.stand == Stand::Open && (!conn.reading || !conn.held.is_empty()));
        let (index, id, conn) = unread.next()?;
        let (reading, held) = (conn.reading, conn.held.len());
        Some(format!("worker {index} left {id:?} unread (reading {reading}, {held} bytes held)"))
    }

    fn everyone_leaves(&mut self) {
        if self.failed() {
            return;
        }
        for index in 0..self.clients.len() {
            self.with_client(index, |client, stage| client.terminate(stage));
        }
        let end = self.now + CLEAN_AFTER;
        self.run_until(end);
        self.no_client_left();
    }

    pub fn has_clients(&self) -> bool {
        let conns = self.hosts.iter().flat_map(|host| host.conns.values());
        conns.filter_map(|conn| conn.link).any(|link| !self.is_server(link))
    }

    fn no_client_left(&mut self) {
        for (index, host) in self.hosts.iter().enumerate() {
            let left = host.conns.iter().find(|(_, conn)| conn.link.is_some_and(|link| !self.is_server(link)));
            if let Some((id, conn)) = left {
                let text = format!("worker {index} still has {id:?} ({:?}) though its client left", conn.stand);
                return self.checks.fail("no client is kept", text);
            }
        }
    }

    /// As many new clients as each pool has servers, all in a transaction at once.
    fn fresh_pools(&mut self) {
        for database in self.plan.databases.clone() {
            for user in self.plan.users.clone() {
                if self.failed() {
                    return;
                }
                self.fresh_pool(&database, &user);
            }
        }
    }

    fn fresh_pool(&mut self, database: &str, user: &str) {
        let settings = std::sync::Arc::clone(&self.settings);
        let mode = Plan::mode(&settings, database, &Plan::pool_user(&settings, database, user));
        let reachable = self.plan.reachable(&settings, database, user);
        let first = self.clients.len();
        let transactions = mode != PoolMode::Statement;
        let habits = Habits { transactions, keeps_server: mode == PoolMode::Session, ..Habits::PLAIN };
        for _ in 0..reachable {
            let identity = self.plan.identity(&mut self.rng, database.to_owned(), user.to_owned());
            let index = self.clients.len();
            let role = Role::Fresh { group: first, transactions };
            self.clients.push(Client::new(index, role, identity, habits, 1));
            let pause = self.rng.below(50_000);
            self.at(self.now + Duration(pause), Event::Client(index));
        }
        let group = first..first + reachable as usize;
        if transactions {
            let all = group.clone();
            let met =
                self.wait_for(FRESH_PATIENCE, move |world| world.clients[all.clone()].iter().all(|it| it.at_barrier));
            if !met {
                return self.not_all(group, "are in a transaction at once");
            }
        }
        for index in group.clone() {
            self.clients[index].released = true;
            self.at(self.now, Event::Client(index));
        }
        let all = group.clone();
        let served = self.wait_for(FRESH_PATIENCE, move |world| world.clients[all.clone()].iter().all(|it| it.served));
        if !served {
            return self.not_all(group, "were served");
        }
        for index in group {
            self.with_client(index, |client, stage| client.terminate(stage));
        }
        let end = self.now + Duration::from_secs(2);
        self.run_until(end);
    }

    fn not_all(&mut self, group: std::ops::Range<usize>, what: &str) {
        let stuck: Vec<String> =
            self.clients[group.clone()].iter().filter(|it| !it.at_barrier).map(Client::describe).take(2).collect();
        let text = format!("not all of {} fresh clients {what}: {}", group.len(), stuck.join("; "));
        self.checks.fail("all permits come back", text);
    }

    fn all_is_clean(&mut self) {
        let end = self.now + CLEAN_AFTER;
        self.run_until(end);
        if self.failed() {
            return;
        }
        self.no_client_left();
        self.nothing_unread();
        self.limits_hold_at_rest();
        // A cluster's catalogue may just be looked at.
        self.wait_for(Duration::from_secs(2), |world| world.in_work().is_none());
        if let Some(backend) = self.in_work() {
            let text = format!("backend {} of {}/{} is left in work", backend.pid, backend.database, backend.user);
            self.checks.fail("servers are left clean", text);
        }
    }

    fn in_work(&self) -> Option<&Backend> {
        self.backends.iter().flatten().find(|backend| backend.is_session() && backend.busy())
    }

    /// A shutdown that waits may wait for clients that stay; when they have left, it must end.
    fn end_after_shutdown(&mut self) {
        if !self.exited && !self.failed() {
            self.calm_down();
            let patience = PATIENCE;
            self.wait_for(patience, |world| world.exited || !world.clients.iter().any(Client::waits));
            for index in 0..self.clients.len() {
                self.with_client(index, |client, stage| client.terminate(stage));
            }
            if !self.wait_for(CLEAN_AFTER, |world| world.exited) {
                self.checks.fail("shutdown ends", "all clients have left, and there is no Exit".to_owned());
            }
        }
        if !self.failed() {
            self.stop_workers();
        }
        self.counts.virtual_us = self.now.0;
    }

    /// What the program does at the end: each worker is told to stop, and closes whoever is there.
    fn stop_workers(&mut self) {
        self.calm_down();
        self.exited = false;
        self.listening = false;
        for host in &mut self.hosts {
            host.queue.push_back(Todo::Stop);
        }
        let end = self.now + CLEAN_AFTER;
        self.run_until(end);
        for host in &self.hosts {
            let left = host.conns.iter().find(|(id, conn)| id.side == Side::Client && conn.stand == Stand::Open);
            if let Some((id, _)) = left {
                return self.checks.fail("shutdown ends", format!("{id:?} is neither told nor closed at the end"));
            }
        }
    }

    /// Clients that have come in, against the limits on them. The console is always open.
    pub fn check_client_limits(&mut self, comes: usize) {
        let Identity { database, user, .. } = &self.clients[comes].identity;
        let limits = [
            (
                "max_client_conn",
                self.most_clients(|_| true),
                self.plan.widest(|settings| Some(settings.max_client_conn)),
            ),
            (
                "max_db_client_connections",
                self.most_clients(|other| other.database == *database),
                self.plan.widest(|settings| no_zero(Plan::database_clients_max(settings, database))),
            ),
            (
                "max_user_client_connections",
                self.most_clients(|other| other.user == *user),
                self.plan.widest(|settings| no_zero(Plan::user_clients_max(settings, user))),
            ),
        ];
        let broken = limits.into_iter().find(|(_, here, most)| most.is_some_and(|most| *here > most as usize));
        if let Some((name, here, Some(most))) = broken {
            self.checks.fail("limits hold", format!("{name} is {most}, and {here} clients are in"));
        }
    }

    fn most_clients(&self, which: impl Fn(&Identity) -> bool) -> usize {
        let here = |client: &&Client| {
            client.role != Role::Console
                && client.logged_in()
                && client.link.is_some_and(|link| self.links[link].pooler_open)
                && which(&client.identity)
        };
        self.clients.iter().filter(here).count()
    }
}

fn no_zero(limit: u32) -> Option<u32> {
    Some(limit).filter(|limit| *limit != 0)
}

impl Plan {
    /// The widest that a limit ever is; `None` if it ever is none.
    fn widest(&self, limit: impl Fn(&weir_core::Settings) -> Option<u32>) -> Option<u32> {
        self.all_settings().map(limit).try_fold(0, |most, limit| Some(most.max(limit?)))
    }
}
