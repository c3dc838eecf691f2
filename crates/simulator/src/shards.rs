//! What changes in a cluster while it is used: which node has which rows, and which servers are nodes. And what must hold when nothing changes any more.

use weir_core::settings::{PoolMode, Route};
use weir_core::time::{Duration, Time};

use crate::client::{Habits, Role};
use crate::faults::Fault;
use crate::finale::FRESH_PATIENCE;
use crate::plan::Plan;
use crate::postgres::sharded::{COORDINATOR, Placement, SHARDED, SHARDS, Table};
use crate::world::{Event, World};

/// When nothing changes, and the cluster is used, all workers know where its rows are after so long.
const SETTLES_IN: Duration = Duration::from_secs(12);
/// Keys that are asked for then, and how long their clients wait in between.
const KEYS: u64 = 24;
const PAUSE_US: u64 = 700_000;

impl World {
    pub fn schedule_moves(&mut self) {
        if self.sharded.is_some() {
            let first = self.rng.spread(self.plan.move_every_us);
            self.at(Time(first), Event::Fault(Fault::Moves));
        }
    }

    pub fn something_moves(&mut self) {
        let Some(sharded) = self.sharded.as_ref().filter(|_| !self.quiet) else { return };
        let mut placement = sharded.placement.now.clone();
        match self.rng.below(10) {
            0 => self.node_joins(&mut placement),
            1 => self.node_leaves(&mut placement),
            2 if !self.plan.calm => self.node_is_replaced(&mut placement),
            3 => placement.tenant = self.some_group(&placement),
            _ => placement.owners[self.rng.index(SHARDS)] = self.some_group(&placement),
        }
        self.trace(|| format!("the cluster is {placement:?}"));
        if let Some(sharded) = &mut self.sharded {
            sharded.placement.becomes(placement, self.now);
        }
        self.counts.moves += 1;
        let pause = self.rng.spread(self.plan.move_every_us);
        self.at(self.now + Duration(pause), Event::Fault(Fault::Moves));
    }

    fn some_group(&mut self, placement: &Placement) -> i32 {
        let groups: Vec<i32> = placement.nodes.keys().copied().collect();
        *self.rng.pick(&groups)
    }

    /// A server that is no node.
    fn spare(&mut self, placement: &Placement) -> Option<usize> {
        let servers = self.plan.cluster_count..self.clusters.len();
        let spares: Vec<usize> = servers.filter(|server| !placement.has(*server)).collect();
        (!spares.is_empty()).then(|| *self.rng.pick(&spares))
    }

    fn node_joins(&mut self, placement: &mut Placement) {
        if let Some(server) = self.spare(placement) {
            let next = placement.nodes.keys().max().map_or(0, |group| group + 1);
            placement.nodes.insert(next, server);
        }
    }

    /// What it has goes to others first.
    fn node_leaves(&mut self, placement: &mut Placement) {
        let group = self.some_group(placement);
        if group == COORDINATOR as i32 {
            return;
        }
        placement.nodes.remove(&group);
        for place in 0..SHARDS {
            if placement.owners[place] == group {
                placement.owners[place] = self.some_group(placement);
            }
        }
        if placement.tenant == group {
            placement.tenant = self.some_group(placement);
        }
    }

    /// Another server has all that a node had, which is down.
    fn node_is_replaced(&mut self, placement: &mut Placement) {
        let group = self.some_group(placement);
        if group == COORDINATOR as i32 {
            return;
        }
        if let Some(server) = self.spare(placement)
            && let Some(before) = placement.nodes.insert(group, server)
        {
            self.goes_down(before);
        }
    }

    /// The faults are over: what is used is known, and a node that is down is its own clients' concern.
    pub fn cluster_settles(&mut self) {
        let quiet_since = self.now;
        let Some(user) = self.routed_user().filter(|_| !self.failed()) else { return };
        let keys: Vec<i64> = (0..KEYS).map(|_| self.rng.below(10_000) as i64).collect();
        let (group, count) = self.come_for(&user, &keys, (PAUSE_US, true), 3);
        let end = self.now + SETTLES_IN;
        self.run_until(end);
        self.checks.routes.settled = Some(quiet_since);
        self.must_be_served(group..group + count, "every waiter is served or told");
        self.checks.routes.settled = None;
        self.one_node_is_down(&user);
    }

    /// One whose statements go to their owners.
    fn routed_user(&self) -> Option<String> {
        let sharded = self.sharded.as_ref()?;
        let settings = &self.settings;
        let database = settings.database(SHARDED)?;
        let is_routed = |user: &&String| {
            let pool_user = Plan::pool_user(settings, SHARDED, user);
            Plan::mode(settings, SHARDED, &pool_user) == PoolMode::Transaction
                && self.plan.reachable(settings, SHARDED, user) > 0
        };
        // A worker that never has an idle server reads no catalogue, nor is there one where other databases want all of a user's places.
        let lasts = settings.server_lifetime != Duration::ZERO && database.server_lifetime != Some(Duration::ZERO);
        let has_room = settings.max_user_connections == 0 && settings.users.is_empty();
        let is_read = lasts && (has_room || self.plan.databases.len() == 1);
        let by_owner =
            is_read && matches!(database.route, None | Some(Route::Owner)) && sharded.placement.now.nodes.len() > 1;
        self.plan.users.iter().filter(|_| by_owner).find(is_routed).cloned()
    }

    /// The first of some new clients, and how many there are.
    fn come_for(&mut self, user: &str, keys: &[i64], (pause_us, strict): (u64, bool), most: u32) -> (usize, usize) {
        let count = self.plan.reachable(&self.settings, SHARDED, user).min(most) as usize;
        let first = self.clients.len();
        for _ in 0..count {
            let identity = self.plan.identity(&mut self.rng, SHARDED.to_owned(), user.to_owned());
            let role = Role::Keyed { keys: keys.to_vec(), pause_us, strict };
            let client = crate::client::Client::new(self.clients.len(), role, identity, Habits::PLAIN, 1);
            let pause = self.rng.below(50_000);
            self.at(self.now + Duration(pause), Event::Client(self.clients.len()));
            self.clients.push(client);
        }
        (first, count)
    }

    fn must_be_served(&mut self, group: std::ops::Range<usize>, law: &'static str) {
        let all = group.clone();
        if !self.wait_for(FRESH_PATIENCE, move |world| world.clients[all.clone()].iter().all(|it| it.served)) {
            let stuck: Vec<String> = self.clients[group.clone()]
                .iter()
                .filter(|it| !it.served)
                .map(crate::client::Client::describe)
                .collect();
            self.checks.fail(law, stuck.join("; "));
        }
        for index in group {
            self.with_client(index, |client, stage| client.terminate(stage));
        }
    }

    /// Those who ask for rows of others are answered, and the coordinator's too.
    fn one_node_is_down(&mut self, user: &str) {
        let most = self.plan.reachable(&self.settings, SHARDED, user);
        let Some(sharded) = self.sharded.as_ref().filter(|_| !self.failed() && most > 1) else { return };
        let placement = sharded.placement.now.clone();
        let down: Vec<usize> = placement.nodes.values().copied().filter(|server| *server != COORDINATOR).collect();
        let down = *self.rng.pick(&down);
        let keys: Vec<i64> = (0..KEYS).map(|_| self.rng.below(10_000) as i64).collect();
        let is_down = |key: &i64| placement.owner(Table::Accounts, Some(*key)) == Some(down);
        let (dead, living): (Vec<i64>, Vec<i64>) = keys.into_iter().partition(is_down);
        // They are in by then: a login waits for a server as others do, and less patiently.
        let (first, living_count) = self.come_for(user, &living, (PAUSE_US, true), 2.min(most - 1));
        let end = self.now + Duration::from_secs(2);
        self.run_until(end);
        self.clusters[down].swallows = self.rng.chance(500);
        self.goes_down(down);
        let count = 2.min(most - living_count as u32);
        let (mourners, count) = self.come_for(user, &dead[..dead.len().min(2)], (0, false), count);
        self.must_be_served(first..first + living_count, "a node that is down holds up nobody else");
        (self.clusters[down].up, self.clusters[down].swallows) = (true, false);
        for index in mourners..mourners + count {
            self.with_client(index, |client, stage| client.terminate(stage));
        }
        // Who has waited for it is counted up to the answer.
        self.wait_for(FRESH_PATIENCE, |world| !world.has_clients());
        let end = self.now + Duration::from_secs(2);
        self.run_until(end);
    }
}
