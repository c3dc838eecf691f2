//! What two processes have between them while one takes over from the other: the limits are one budget for both.
//!
//! The old one tells what it has and what of it goes, the new one makes no server beyond what that leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::WorkerId;
use crate::mail::Letter;
use crate::names::PoolName;
use crate::pool::limits::Limit;
use crate::steward::Steward;
use crate::time::Time;

/// What the other process has, by its own word.
#[derive(Debug, Default)]
pub(super) struct Abroad {
    /// It has not said yet.
    awaited: bool,
    servers: BTreeMap<Arc<PoolName>, u32>,
    pub(super) clients: u32,
}

impl Abroad {
    pub(super) fn awaited(awaited: bool) -> Self {
        Self { awaited, ..Self::default() }
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
        self.servers.iter().filter(|(pool, _)| counts(pool)).map(|(_, servers)| servers).sum()
    }
}

impl Steward {
    /// Another process takes over: it is told what is here.
    pub(crate) fn hands_over(&mut self) {
        self.tells_abroad = true;
        let servers = self.ledgers.iter().map(|(pool, ledger)| (Arc::new(pool.own_copy()), ledger.servers()));
        let letter = Letter::Abroad { servers: servers.collect(), clients: self.clients, is_all: true };
        self.letters.push((WorkerId::SUCCESSOR, letter));
    }

    /// And how many clients, now and then: those that went over it counts itself.
    pub(crate) fn tell_clients_abroad(&mut self) {
        let letter = Letter::Abroad { servers: Vec::new(), clients: self.clients, is_all: false };
        self.letters.push((WorkerId::SUCCESSOR, letter));
    }

    pub(super) fn tell_abroad(&mut self, pool: &PoolName) {
        let servers = self.ledgers.get(pool).map_or(0, super::Ledger::servers);
        let servers = vec![(Arc::new(pool.own_copy()), servers)];
        self.letters.push((WorkerId::SUCCESSOR, Letter::Abroad { servers, clients: self.clients, is_all: false }));
    }

    /// The process before this one has so many servers of these pools, and so many clients. `is_all`: and no others.
    pub(crate) fn told_abroad(&mut self, now: Time, servers: Vec<(Arc<PoolName>, u32)>, clients: u32, is_all: bool) {
        let abroad = &mut self.abroad;
        // Who has come since that was said is counted here.
        abroad.clients = if abroad.awaited { clients } else { abroad.clients.min(clients) };
        abroad.awaited &= !is_all;
        if is_all {
            abroad.servers.clear();
        }
        for (pool, count) in servers {
            if count == 0 {
                abroad.servers.remove(&pool);
            } else {
                abroad.servers.insert(pool, count);
            }
        }
        self.serve_all(now);
    }
}
