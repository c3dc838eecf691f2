//! How a pool's servers are shared out among workers: how many each keeps for `min_pool_size`, and how many it may have while there
//! are more than limits allow. Who gets one more is decided in `steward/mod.rs`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use crate::id::WorkerId;
use crate::mail::Letter;
use crate::names::PoolName;
use crate::pool::limits::PoolLimits;
use crate::pool::told::Share;
use crate::steward::{Ledger, Steward};

/// Who keeps the smallest size: those that have servers, one after the other.
pub(super) fn kept(held: &[i32], mut smallest: u32) -> Vec<u32> {
    let keeps = |&held: &i32| {
        let kept = (held.max(0) as u32).min(smallest);
        smallest -= kept;
        kept
    };
    held.iter().map(keeps).collect()
}

/// One worker's servers of one pool.
#[derive(Debug)]
pub(super) struct Holding {
    pool: Arc<PoolName>,
    limits: PoolLimits,
    servers: u32,
    /// So many of them are more than a limit allows.
    surplus: u32,
}

impl Holding {
    fn left(&self) -> u32 {
        self.servers - self.surplus
    }
}

/// Finds what is beyond the limits of pools, databases and users; whoever has most gives first.
pub(super) fn find_surplus(holdings: &mut [Holding]) {
    trim(holdings, Arc::clone, |limits| Some(limits.size.saturating_add(limits.reserve)));
    trim(holdings, |pool| Arc::clone(&pool.database), |limits| limits.database);
    trim(holdings, |pool| Arc::clone(&pool.user), |limits| limits.user);
}

fn trim<Key: Ord>(
    holdings: &mut [Holding],
    key: impl Fn(&Arc<PoolName>) -> Key,
    limit: impl Fn(&PoolLimits) -> Option<u32>,
) {
    let mut groups: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for (index, holding) in holdings.iter().enumerate() {
        groups.entry(key(&holding.pool)).or_default().push(index);
    }
    for members in groups.into_values() {
        let servers: u32 = members.iter().map(|&member| holdings[member].left()).sum();
        // It is the same for all of them.
        let limit = members.first().and_then(|&member| limit(&holdings[member].limits));
        let Some(limit) = limit.filter(|limit| servers > *limit) else { continue };
        let mut most: BinaryHeap<_> =
            members.into_iter().map(|member| (holdings[member].left(), Reverse(member))).collect();
        for _ in limit..servers {
            let Some((_, Reverse(member))) = most.pop() else { break };
            holdings[member].surplus += 1;
            most.push((holdings[member].left(), Reverse(member)));
        }
    }
}

impl Steward {
    pub(crate) fn gave(&mut self, from: WorkerId, to: WorkerId, pool: &Arc<PoolName>) {
        self.hold(pool, from, -1);
        self.hold(pool, to, 1);
        self.not_alone(pool, to);
        self.forget_unused(pool);
        self.share_out(pool);
    }

    /// A worker has a server beyond its share. Where it is known of, as one that it was handed, the share was told without it and stands.
    pub(crate) fn share_exceeded(&mut self, from: WorkerId, pool: &Arc<PoolName>) {
        if let Some(ledger) = self.ledgers.get_mut(pool) {
            ledger.told[usize::from(from.0)] = None;
            self.share_out(pool);
        }
    }

    /// So many of a worker's servers of this pool stay with their clients. Those that have come since, and are too many, may not.
    pub(crate) fn pinned(&mut self, from: WorkerId, pool: &Arc<PoolName>, (pinned, standing): (u32, bool)) {
        let limit = self.settings.max_pinned_per_pool;
        let ledger = self.ledger(pool);
        let before = std::mem::replace(&mut ledger.pinned[usize::from(from.0)], pinned);
        let surplus = ledger.pinned.iter().sum::<u32>().saturating_sub(limit).min(pinned.saturating_sub(before));
        if limit > 0 && surplus > 0 && !standing {
            self.letters.push((from, Letter::KeepPinned { pool: Arc::clone(pool), keep: pinned - surplus }));
        }
    }

    /// Who has servers of the pool has changed.
    pub(super) fn share_out(&mut self, pool: &Arc<PoolName>) {
        if self.over {
            return self.share_all();
        }
        let Some(ledger) = self.ledgers.get_mut(pool) else { return };
        let none = vec![0; ledger.held.len()];
        tell_shares(pool, ledger, &none, &mut self.letters);
    }

    /// Limits may have changed: what is beyond them goes.
    pub(super) fn share_all(&mut self) {
        let mut holdings = Vec::new();
        for (pool, ledger) in &self.ledgers {
            let holding = |held: &i32| Holding {
                pool: Arc::clone(pool),
                limits: ledger.limits,
                servers: (*held).max(0) as u32,
                surplus: 0,
            };
            holdings.extend(ledger.held.iter().map(holding));
        }
        find_surplus(&mut holdings);
        self.over = holdings.iter().any(|holding| holding.surplus > 0);
        let surplus: Vec<u32> = holdings.iter().map(|holding| holding.surplus).collect();
        for ((pool, ledger), surplus) in self.ledgers.iter_mut().zip(surplus.chunks(usize::from(self.workers))) {
            tell_shares(pool, ledger, surplus, &mut self.letters);
        }
    }
}

/// Tells each worker its share of a pool, where that is another than it was.
fn tell_shares(pool: &Arc<PoolName>, ledger: &mut Ledger, surplus: &[u32], letters: &mut Vec<(WorkerId, Letter)>) {
    let kept = kept(&ledger.held, ledger.limits.least);
    for (worker, told) in (0..).zip(&mut ledger.told) {
        let index = usize::from(worker);
        let servers = ledger.held[index].max(0) as u32;
        let most = if surplus[index] == 0 { u32::MAX } else { servers - surplus[index] };
        let share = Share { least: kept[index].min(most), most };
        if *told != Some(share) {
            *told = Some(share);
            letters.push((WorkerId(worker), Letter::Share { pool: Arc::clone(pool), share }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Database, Settings};

    fn left(servers: &[(&str, &str, u32)], settings: &Settings) -> Vec<u32> {
        let holding = |&(database, user, servers): &(&str, &str, u32)| {
            let pool = Arc::new(PoolName::new(database.into(), user.into()));
            Holding { limits: PoolLimits::of(&pool, settings), pool, servers, surplus: 0 }
        };
        let mut holdings: Vec<_> = servers.iter().map(holding).collect();
        find_surplus(&mut holdings);
        holdings.iter().map(Holding::left).collect()
    }

    #[test]
    fn the_smallest_size_is_kept_once_for_all_workers() {
        assert_eq!(kept(&[2, 3, 1], 4), [2, 2, 0]);
        assert_eq!(kept(&[-1, 1], 4), [0, 1]);
        assert_eq!(kept(&[5], 0), [0]);
    }

    /// It is counted as soon as it is on its way, and comes later than the share that was told behind that.
    #[test]
    fn who_has_more_than_its_share_is_told_it_again() {
        let settings = Settings { default_pool_size: 1, ..Settings::default() };
        let mut steward = Steward::new(2, Arc::new(settings), false);
        let pool = Arc::new(PoolName::new("d".into(), "u".into()));
        steward.ledger(&pool).held = vec![1, 1];
        steward.share_all();
        steward.gave(WorkerId(1), WorkerId(0), &pool);
        steward.letters.clear();
        steward.share_exceeded(WorkerId(0), &pool);
        let told: Vec<_> = steward.letters.iter().filter(|(to, _)| *to == WorkerId(0)).collect();
        assert!(matches!(told[..], [(_, Letter::Share { share, .. })] if share.most == 1), "{told:?}");
    }

    #[test]
    fn whoever_has_most_gives_first() {
        let settings = Settings { default_pool_size: 4, ..Settings::default() };
        let pool = [("d", "u", 6), ("d", "u", 2), ("d", "u", 1)];
        assert_eq!(left(&pool, &settings).iter().sum::<u32>(), 4);
        assert_eq!(left(&pool, &settings), [1, 2, 1]);
        let reserve = Settings { reserve_pool_size: 2, ..settings };
        assert_eq!(left(&pool, &reserve).iter().sum::<u32>(), 6, "the reserve is a part of the pool");
    }

    #[test]
    fn limits_of_databases_and_users_hold_over_all_their_pools() {
        let mut settings = Settings { max_db_connections: 5, max_user_connections: 4, ..Settings::default() };
        settings
            .databases
            .insert("free".into(), Arc::new(Database { max_db_connections: Some(0), ..Database::at(Vec::new()) }));
        let pools = [("d", "u", 4), ("d", "v", 4), ("free", "w", 4), ("free", "v", 3)];
        assert_eq!(left(&pools, &settings), [2, 2, 4, 2]);
    }
}
