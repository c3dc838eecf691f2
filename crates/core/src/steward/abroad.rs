//! What two processes have between them while one takes over from the other: the limits are one budget for both.
//!
//! The old one tells what it has and what of it goes, the new one makes no server beyond what that leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::id::WorkerId;
use crate::mail::Letter;
use crate::names::PoolName;
use crate::pool::limits::Limit;
use crate::steward::Steward;
use crate::time::Time;

/// What the process before this one has, and those before it, by its own word.
#[derive(Debug, Default)]
pub(super) struct Abroad {
    /// It lives.
    lives: bool,
    /// It has not said yet.
    awaited: bool,
    servers: BTreeMap<Arc<PoolName>, u32>,
    pub(super) clients: u32,
}

impl Abroad {
    pub(super) fn awaited(awaited: bool) -> Self {
        Self { lives: awaited, awaited, ..Self::default() }
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Its servers that count against this limit.
    pub(super) fn servers(&self, limit: &Limit) -> u32 {
        let counts = |pool: &PoolName| match limit {
            Limit::Pool(own) => **own == *pool,
            Limit::Database(database) => *database == pool.database,
            Limit::User(user) => *user == pool.user,
        };
        let servers = self.servers.iter().filter(|(pool, _)| counts(pool)).map(|(_, servers)| *servers);
        servers.fold(0, u32::saturating_add)
    }
}

impl Steward {
    /// Another process takes over: it is told what is here, and before.
    pub(crate) fn hands_over(&mut self) {
        self.tells_abroad = true;
        let pools: BTreeSet<_> = self.ledgers.keys().chain(self.abroad.servers.keys()).cloned().collect();
        self.tell_abroad(pools.iter(), true);
    }

    /// And how many clients, now and then: those that went over it counts itself.
    pub(crate) fn tell_clients_abroad(&mut self) {
        self.tell_abroad(std::iter::empty(), false);
    }

    pub(super) fn tell_abroad<'a>(&mut self, pools: impl Iterator<Item = &'a Arc<PoolName>>, is_all: bool) {
        let servers = pools.map(|pool| (Arc::new(pool.own_copy()), self.servers(pool))).collect();
        let clients = self.clients.saturating_add(self.abroad.clients);
        self.letters.push((WorkerId::SUCCESSOR, Letter::Abroad { servers, clients, is_all }));
    }

    /// The process before this one has so many servers of these pools, and so many clients. `is_all`: and no others.
    pub(crate) fn told_abroad(&mut self, now: Time, servers: Vec<(Arc<PoolName>, u32)>, clients: u32, is_all: bool) {
        let abroad = &mut self.abroad;
        // Who has come since that was said is counted here.
        abroad.clients = if abroad.awaited { clients } else { abroad.clients.min(clients) };
        abroad.awaited &= !is_all;
        let before = if is_all { std::mem::take(&mut abroad.servers) } else { BTreeMap::new() };
        let changed: BTreeSet<_> = before.into_keys().chain(servers.iter().map(|(pool, _)| Arc::clone(pool))).collect();
        for (pool, count) in servers {
            if count == 0 {
                abroad.servers.remove(&pool);
            } else {
                abroad.servers.insert(pool, count);
            }
        }
        if self.tells_abroad {
            self.tell_abroad(changed.iter(), false);
        }
        self.serve_all(now);
    }

    /// Whether that was awaited.
    pub(crate) fn stops_awaiting(&mut self, now: Time) -> bool {
        let awaited = std::mem::take(&mut self.abroad.awaited);
        if awaited {
            self.serve_all(now);
        }
        awaited
    }

    /// A client has left for the process that takes over, or has been sent.
    pub(crate) fn goes_its_way(&mut self, change: i32) {
        self.on_their_way += change;
    }

    /// Whether some have left that may come back.
    pub(crate) fn has_some_on_their_way(&self) -> bool {
        self.on_their_way != 0
    }

    /// It has ended.
    pub(crate) fn predecessor_ended(&mut self, now: Time) {
        self.told_abroad(now, Vec::new(), 0, true);
        self.abroad.lives = false;
    }

    /// Clients may come from it still, and cancel requests for those that it has go there from here.
    pub(crate) fn has_predecessor(&self) -> bool {
        self.abroad.lives
    }
}
