//! Which workers a pool lives on: as few as its load needs.
//!
//! The steward's part. Workers that are not a pool's homes hold no idle servers of it, and send it their clients as they have
//! something to ask. A worker that has too much to do sheds a part of a pool's clients and servers to one that has not; a
//! pool whose homes are mostly idle gives some up. Between a change and the next that concerns the same worker lies
//! `SETTLE`, so that what is decided next is decided on what came of it. Knows loads and names, no clients and no servers.

use std::sync::Arc;

use crate::id::WorkerId;
use crate::mail::Letter;
use crate::names::PoolName;
use crate::settings::PoolMode;
use crate::steward::Steward;
use crate::time::{Duration, Time};

/// A worker busier than this has too much to do.
pub(super) const BUSY_PERMILLE: u16 = 700;
/// A pool gives up homes while those that are left would be no busier with it than this.
const FILL_PERMILLE: u32 = 500;
/// Work goes only to a worker that is less busy by this.
const GAP_PERMILLE: u16 = 250;
/// How long a change is given to show in the loads.
pub(super) const SETTLE: Duration = Duration::from_millis(500);
/// A home has at least so many servers of its own: with one, whoever comes waits for whoever is there.
const SERVERS_PER_HOME: u32 = 2;

/// One pool's homes and what they do for it.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    /// In the order they became homes.
    pub(super) workers: Vec<WorkerId>,
    /// How much of each worker's time is for this pool, in thousandths.
    shares_permille: Vec<u16>,
    settled_at: Time,
}

impl Homes {
    pub(super) fn has(&self, worker: WorkerId) -> bool {
        self.workers.contains(&worker)
    }

    pub(super) fn share(&self, worker: WorkerId) -> u16 {
        self.shares_permille.get(usize::from(worker.0)).copied().unwrap_or(0)
    }

    fn set_share(&mut self, worker: WorkerId, share_permille: u16) {
        let place = usize::from(worker.0);
        if place >= self.shares_permille.len() {
            if share_permille == 0 {
                return;
            }
            self.shares_permille.resize(place + 1, 0);
        }
        self.shares_permille[place] = share_permille;
    }

    fn total(&self) -> u32 {
        self.shares_permille.iter().map(|&share| u32::from(share)).sum()
    }

    /// The home that does least for the pool; the newest of them.
    fn least(&self) -> Option<WorkerId> {
        self.workers.iter().rev().copied().min_by_key(|&home| self.share(home))
    }
}

/// What the steward knows of each worker's load.
#[derive(Debug)]
pub(crate) struct Loads {
    busy_permille: Vec<u16>,
    /// Takes no more connections.
    full: Vec<bool>,
    /// A change that concerns it shows in its load from then on.
    settled_at: Vec<Time>,
    /// How many pools live on it.
    pools: Vec<u32>,
}

/// A decision about one pool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// So much of the pool's clients and servers goes from one home to another; `new`: which was none until now.
    Shed { from: WorkerId, to: WorkerId, share_permille: u16, new: bool },
    /// The pool lives there no longer.
    GivesUp(WorkerId),
}

impl Loads {
    pub(super) fn new(workers: u16) -> Self {
        let count = usize::from(workers);
        Self {
            busy_permille: vec![0; count],
            full: vec![false; count],
            settled_at: vec![Time(0); count],
            pools: vec![0; count],
        }
    }

    pub(super) fn set_busy(&mut self, worker: WorkerId, busy_permille: u16) {
        self.busy_permille[usize::from(worker.0)] = busy_permille;
    }

    pub(super) fn busy(&self, worker: WorkerId) -> u16 {
        self.busy_permille[usize::from(worker.0)]
    }

    pub(super) fn set_full(&mut self, worker: WorkerId, full: bool) {
        self.full[usize::from(worker.0)] = full;
    }

    pub(super) fn is_full(&self, worker: WorkerId) -> bool {
        self.full[usize::from(worker.0)]
    }

    /// Awake anyway: the steward, and whoever is the home of a pool.
    pub(super) fn is_awake(&self, worker: WorkerId) -> bool {
        worker == WorkerId::STEWARD || self.pools[usize::from(worker.0)] > 0
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..self.busy_permille.len() as u16).map(WorkerId)
    }

    /// Workers with too much to do whose last change has had its time, the busiest first.
    pub(super) fn overloaded(&self, now: Time) -> Vec<WorkerId> {
        let mut workers: Vec<_> = self
            .workers()
            .filter(|&worker| self.busy(worker) > BUSY_PERMILLE && self.settled_at[usize::from(worker.0)] <= now)
            .collect();
        workers.sort_by_key(|&worker| (std::cmp::Reverse(self.busy(worker)), worker));
        workers
    }

    /// When the next worker with too much to do may be looked at again.
    pub(super) fn next_look(&self, now: Time) -> Time {
        let busy = self.workers().filter(|&worker| self.busy(worker) > BUSY_PERMILLE);
        busy.map(|worker| self.settled_at[usize::from(worker.0)]).filter(|&at| at > now).min().unwrap_or(Time::NEVER)
    }

    /// Takes work off an overloaded worker: to another home of this pool, or to one more, where its servers are enough for that.
    pub(crate) fn relieve(&mut self, now: Time, from: WorkerId, homes: &mut Homes, servers: u32) -> Option<Change> {
        let idler = |loads: &Self, worker: WorkerId| {
            worker != from
                && !loads.is_full(worker)
                && loads.settled_at[usize::from(worker.0)] <= now
                && loads.busy(worker) + GAP_PERMILLE <= loads.busy(from)
        };
        let idlest = |loads: &Self, home: bool| {
            let workers = loads.workers().filter(|&worker| homes.has(worker) == home && idler(loads, worker));
            // One that is awake for another pool rather than one that sleeps, where it has room.
            workers.min_by_key(|&worker| {
                let roomy = loads.is_awake(worker) && loads.busy(worker) < BUSY_PERMILLE / 3;
                (!roomy, loads.busy(worker), worker)
            })
        };
        let enough = homes.workers.len() as u32 * SERVERS_PER_HOME + SERVERS_PER_HOME <= servers;
        let (to, new) = match (idlest(self, true), enough) {
            (Some(home), _) => (home, false),
            (None, true) => (idlest(self, false)?, true),
            // It cannot be parted. It can go, if it is not all that there is to do here.
            (None, false) if homes.share(from) < self.busy(from) / 2 => (idlest(self, false)?, true),
            (None, false) => return None,
        };
        let share = homes.share(from);
        let moving = ((self.busy(from) - self.busy(to)) / 2).min(share);
        if moving == 0 {
            return None;
        }
        self.set_busy(from, self.busy(from) - moving);
        self.set_busy(to, self.busy(to) + moving);
        homes.set_share(from, share - moving);
        homes.set_share(to, homes.share(to) + moving);
        for worker in [from, to] {
            self.settled_at[usize::from(worker.0)] = now + SETTLE;
        }
        homes.settled_at = now + SETTLE + SETTLE;
        if new {
            homes.workers.push(to);
            self.pools[usize::from(to.0)] += 1;
        }
        let share_permille = if enough || !new { u32::from(moving) * 1000 / u32::from(share) } else { 1000 };
        Some(Change::Shed { from, to, share_permille: share_permille as u16, new })
    }

    /// One home less, where the others have room for what it does. Answers when to look again, if it is too early.
    pub(super) fn give_up(&mut self, now: Time, homes: &mut Homes) -> Result<Option<Change>, Time> {
        let left = homes.workers.len().saturating_sub(1) as u32;
        if left == 0 || homes.total() > left * FILL_PERMILLE {
            return Ok(None);
        }
        if homes.settled_at > now {
            return Err(homes.settled_at);
        }
        let Some(least) = homes.least() else { return Ok(None) };
        let others = homes.workers.iter().filter(|&&home| home != least && !self.is_full(home));
        let room: u32 = others.map(|&home| u32::from(BUSY_PERMILLE.saturating_sub(self.busy(home)))).sum();
        if room < u32::from(homes.share(least)) {
            return Ok(None);
        }
        self.leave(homes, least);
        if homes.total() > (left * FILL_PERMILLE).saturating_sub(FILL_PERMILLE) {
            homes.settled_at = now + SETTLE + SETTLE;
        }
        Ok(Some(Change::GivesUp(least)))
    }

    /// The pool lives on this worker from now on.
    pub(super) fn settle(&mut self, homes: &mut Homes, worker: WorkerId) {
        homes.workers.push(worker);
        self.pools[usize::from(worker.0)] += 1;
    }

    /// It does not any more; what it did for the pool is spread over the others.
    fn leave(&mut self, homes: &mut Homes, worker: WorkerId) {
        homes.workers.retain(|&home| home != worker);
        let share = homes.share(worker);
        homes.set_share(worker, 0);
        self.set_busy(worker, self.busy(worker).saturating_sub(share));
        let each = share / homes.workers.len().max(1) as u16;
        for home in homes.workers.clone() {
            homes.set_share(home, homes.share(home) + each);
            self.set_busy(home, self.busy(home) + each);
        }
        let pools = &mut self.pools[usize::from(worker.0)];
        *pools = pools.saturating_sub(1);
    }

    /// The pool is gone.
    pub(super) fn forget(&mut self, homes: &Homes) {
        for home in &homes.workers {
            let pools = &mut self.pools[usize::from(home.0)];
            *pools = pools.saturating_sub(1);
        }
    }

    /// What a worker does for a pool.
    pub(super) fn note_share(&self, homes: &mut Homes, worker: WorkerId, share_permille: u16) {
        homes.set_share(worker, share_permille);
    }
}

impl Steward {
    /// How busy a worker is, and for which pools.
    pub(crate) fn load(&mut self, from: WorkerId, busy_permille: u16, pools: &[(Arc<PoolName>, u16)]) {
        self.loads.set_busy(from, busy_permille);
        for (name, ledger) in &mut self.ledgers {
            let share = pools.iter().find(|(pool, _)| pool == name).map_or(0, |(_, share)| *share);
            self.loads.note_share(&mut ledger.homes, from, share);
        }
    }

    /// The driver of that worker has no place for more connections, or has again.
    pub(crate) fn crowded(&mut self, worker: WorkerId, full: bool) {
        self.loads.set_full(worker, full);
    }

    /// Load decides where pools live: few awake workers make large batches and few wake-ups.
    pub(crate) fn look_at_loads(&mut self, now: Time) {
        if self.workers == 1 {
            return;
        }
        self.look_at = self.loads.next_look(now);
        for worker in self.loads.overloaded(now) {
            self.relieve(now, worker);
        }
        self.look_at = self.look_at.min(self.loads.next_look(now));
        for (pool, ledger) in &mut self.ledgers {
            loop {
                match self.loads.give_up(now, &mut ledger.homes) {
                    Ok(Some(Change::GivesUp(home))) => {
                        let homes = ledger.homes.workers.clone();
                        self.letters.push((home, Letter::Homes { pool: Arc::clone(pool), homes }));
                    }
                    Ok(_) => break,
                    Err(later) => {
                        self.look_at = self.look_at.min(later);
                        break;
                    }
                }
            }
        }
    }

    /// Moves a part of the pool that a worker is busiest with.
    fn relieve(&mut self, now: Time, worker: WorkerId) {
        let here = self.ledgers.iter_mut().filter(|(_, ledger)| ledger.homes.has(worker));
        let parted = here.filter(|(_, ledger)| ledger.limits.mode != PoolMode::Session);
        let mut parted: Vec<_> = parted.collect();
        parted.sort_by_key(|(_, ledger)| std::cmp::Reverse(ledger.homes.share(worker)));
        for (pool, ledger) in parted {
            let servers = ledger.servers();
            let Some(change) = self.loads.relieve(now, worker, &mut ledger.homes, servers) else { continue };
            if let Change::Shed { from, to, share_permille, new } = change {
                if new {
                    let homes = ledger.homes.workers.clone();
                    self.letters.push((to, Letter::Homes { pool: Arc::clone(pool), homes }));
                }
                self.letters.push((from, Letter::Shed { pool: Arc::clone(pool), to, share_permille }));
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(loads: &mut Loads, homes: &mut Homes, worker: u16, busy: u16) {
        loads.set_busy(WorkerId(worker), busy);
        loads.note_share(homes, WorkerId(worker), busy);
    }

    fn one_home(workers: u16, busy: u16) -> (Loads, Homes) {
        let (mut loads, mut homes) = (Loads::new(workers), Homes::default());
        loads.settle(&mut homes, WorkerId(0));
        loaded(&mut loads, &mut homes, 0, busy);
        (loads, homes)
    }

    #[test]
    fn a_saturated_home_sheds_half_to_one_more() {
        let (mut loads, mut homes) = one_home(4, 1000);
        assert_eq!(loads.overloaded(Time(0)), [WorkerId(0)]);
        let change = loads.relieve(Time(0), WorkerId(0), &mut homes, 20);
        let shed = Change::Shed { from: WorkerId(0), to: WorkerId(1), share_permille: 500, new: true };
        assert_eq!(change, Some(shed));
        // What comes of it is awaited.
        loaded(&mut loads, &mut homes, 0, 1000);
        assert!(loads.overloaded(Time(0)).is_empty());
        assert_eq!(loads.next_look(Time(0)), Time(0) + SETTLE);
        assert_eq!(loads.overloaded(Time(0) + SETTLE), [WorkerId(0)]);
    }

    #[test]
    fn few_servers_are_not_parted() {
        let (mut loads, mut homes) = one_home(4, 1000);
        assert_eq!(loads.relieve(Time(0), WorkerId(0), &mut homes, 3), None);
        assert_eq!(homes.workers, [WorkerId(0)]);
    }

    #[test]
    fn a_small_pool_goes_where_there_is_room() {
        let (mut loads, mut homes) = one_home(4, 1000);
        loads.note_share(&mut homes, WorkerId(0), 100);
        let shed = Change::Shed { from: WorkerId(0), to: WorkerId(1), share_permille: 1000, new: true };
        assert_eq!(loads.relieve(Time(0), WorkerId(0), &mut homes, 1), Some(shed));
        // It is on two now, one too many.
        let later = Time(0) + SETTLE + SETTLE;
        assert_eq!(loads.give_up(later, &mut homes), Ok(Some(Change::GivesUp(WorkerId(0)))));
    }

    #[test]
    fn homes_are_given_up_when_the_others_have_room() {
        let (mut loads, mut homes) = one_home(4, 1000);
        loads.relieve(Time(0), WorkerId(0), &mut homes, 20);
        loaded(&mut loads, &mut homes, 0, 300);
        loaded(&mut loads, &mut homes, 1, 250);
        let later = Time(0) + SETTLE + SETTLE;
        assert_eq!(loads.give_up(later, &mut homes), Ok(None), "one would be busier than it should");
        loaded(&mut loads, &mut homes, 1, 150);
        assert_eq!(loads.give_up(Time(1), &mut homes), Err(later));
        assert_eq!(loads.give_up(later, &mut homes), Ok(Some(Change::GivesUp(WorkerId(1)))));
        assert_eq!(homes.workers, [WorkerId(0)]);
        assert!(!loads.is_awake(WorkerId(1)));
    }

    #[test]
    fn a_full_worker_gets_nothing() {
        let (mut loads, mut homes) = one_home(2, 1000);
        loads.set_full(WorkerId(1), true);
        assert_eq!(loads.relieve(Time(0), WorkerId(0), &mut homes, 20), None);
    }
}
