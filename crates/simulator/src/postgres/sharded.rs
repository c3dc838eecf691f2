//! A database that several servers have, as Citus makes one: whose rows are where, and where they were.
//!
//! Any node answers any query, and asks the owner for what it has not. What is not of the cluster is the node's alone on which it was made.

use std::collections::BTreeMap;

use weir_cluster::hash;
use weir_core::time::Time;

/// Its name, and where its coordinator is.
pub const SHARDED: &str = "d0";
pub const COORDINATOR: usize = 0;
/// Shards of each table that is distributed.
pub const SHARDS: usize = 8;
/// The schema that is ahead of the tables' own in some search paths.
pub const EARLY: &str = "early";

/// A table, as it is found behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Distributed by `aid`; in the schema `public`.
    Accounts,
    /// With it.
    History,
    /// On all nodes.
    Colours,
    /// In the schema `tenant`, all of whose tables are on one node.
    Notes,
    /// `early.accounts`, which is of no cluster.
    Early,
}

impl Table {
    pub const ALL: [Self; 5] = [Self::Accounts, Self::History, Self::Colours, Self::Notes, Self::Early];

    pub fn schema(self) -> &'static str {
        match self {
            Self::Accounts | Self::History | Self::Colours => "public",
            Self::Notes => "tenant",
            Self::Early => EARLY,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Accounts | Self::Early => "accounts",
            Self::History => "history",
            Self::Colours => "colours",
            Self::Notes => "notes",
        }
    }

    pub fn has_shards(self) -> bool {
        matches!(self, Self::Accounts | Self::History)
    }
}

/// Which server is which node, and what it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// By the number of its group: the coordinator's is 0.
    pub nodes: BTreeMap<i32, usize>,
    /// The group that has a shard.
    pub owners: [i32; SHARDS],
    /// The group that has the schema `tenant`.
    pub tenant: i32,
}

impl Placement {
    /// The node that a table's row of this key is on; `None`: on all, or on none in particular.
    pub fn owner(&self, table: Table, key: Option<i64>) -> Option<usize> {
        let group = match (table, key) {
            (Table::Accounts | Table::History, Some(key)) => self.owners[shard(key)],
            (Table::Notes, _) => self.tenant,
            (Table::Early, _) => COORDINATOR as i32,
            _ => return None,
        };
        self.nodes.get(&group).copied()
    }

    pub fn has(&self, server: usize) -> bool {
        self.nodes.values().any(|node| *node == server)
    }
}

/// Which shard a key's row is in.
pub fn shard(key: i64) -> usize {
    let place = i64::from(hash::integer(key)) - i64::from(i32::MIN);
    (place >> (32 - SHARDS.trailing_zeros())) as usize
}

/// The first and the last hash of a shard.
pub fn hashes(shard: usize) -> (i64, i64) {
    let width = (1_i64 << 32) / SHARDS as i64;
    let first = i64::from(i32::MIN) + width * shard as i64;
    (first, first + width - 1)
}

/// What was so until then.
#[derive(Debug)]
struct Former<T> {
    was: T,
    until: Time,
}

/// Something with its past.
#[derive(Debug)]
pub struct Past<T> {
    pub now: T,
    former: Vec<Former<T>>,
}

impl<T: PartialEq> Past<T> {
    pub fn new(now: T) -> Self {
        Self { now, former: Vec::new() }
    }

    pub fn becomes(&mut self, next: T, at: Time) {
        if next != self.now {
            let was = std::mem::replace(&mut self.now, next);
            self.former.push(Former { was, until: at });
        }
    }

    /// All that was so at some time since.
    pub fn since(&self, time: Time) -> impl Iterator<Item = &T> {
        let former = self.former.iter().filter(move |former| former.until >= time);
        former.map(|former| &former.was).chain([&self.now])
    }
}

/// A row, by its table and its key.
pub type Place = (Table, i64);

/// What its nodes share.
#[derive(Debug)]
pub struct Sharded {
    pub placement: Past<Placement>,
    /// Whether `early.accounts` is there, on the coordinator.
    pub early: Past<bool>,
    pub values: BTreeMap<Place, u32>,
    /// Which servers answer, by their number.
    pub up: Vec<bool>,
}

impl Sharded {
    pub fn new(placement: Placement) -> Self {
        Self { placement: Past::new(placement), early: Past::new(false), values: BTreeMap::new(), up: Vec::new() }
    }

    /// Whether a node can ask the one that has such a row, and whether it has to.
    pub fn asks(&self, server: usize, table: Table, key: Option<i64>) -> Option<bool> {
        match self.placement.now.owner(table, key) {
            Some(owner) if owner != server => Some(self.up.get(owner) == Some(&true)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_in_the_shard_of_its_hash() {
        for key in 0..1_000 {
            let (first, last) = hashes(shard(key));
            assert!((first..=last).contains(&i64::from(hash::integer(key))));
        }
        assert_eq!(hashes(0).0, i64::from(i32::MIN));
        assert_eq!(hashes(SHARDS - 1).1, i64::from(i32::MAX));
    }

    #[test]
    fn what_was_so_is_known_up_to_its_end() {
        let mut past = Past::new(1);
        past.becomes(2, Time(10));
        past.becomes(3, Time(20));
        assert_eq!(past.since(Time(15)).copied().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(past.since(Time(10)).count(), 3);
    }
}
