//! How busy this worker is, and for which pools: what the steward is told of it, and when.
//!
//! The driver measures. Here the measure is smoothed, and divided among pools by what was done for each. The steward hears
//! of a change that matters, of nothing in steady load, and of the end of a load once. What follows from it is
//! decided in `homes.rs`.

use std::sync::Arc;

use crate::context::Context;
use crate::mail::Letter;
use crate::pool::{Pool, Pools};
use crate::time::{Duration, Time};
use crate::timers::{Deadline, Subject};

/// A load that changed by less is not worth a message.
const STEP_PERMILLE: u16 = 100;
/// A new measure counts for one part in so many.
const WEIGHT: i32 = 4;
/// A worker of which nothing was measured for so long has nothing to do.
const IDLE_AFTER: Duration = Duration::from_millis(300);
/// Pools that the steward is told of at once, those with most of the load.
const POOLS_TOLD_MAX: usize = 16;
/// Forwarding so many bytes is as much work as a query.
const BYTES_PER_QUERY: u64 = 32 * 1024;

impl Pool {
    /// What was done for this pool, in queries.
    fn work(&self) -> u64 {
        let counters = self.counted_so_far();
        let bytes = counters.bytes_received + counters.bytes_sent;
        counters.queries + counters.transactions + bytes / BYTES_PER_QUERY
    }
}

/// How busy a worker is, in thousandths of its time.
#[derive(Debug, Default)]
pub(super) struct LoadMeter {
    busy_permille: u16,
    measured_at: Time,
    /// As the steward knows it.
    told: Option<u16>,
    pub(super) deadline: Deadline,
}

impl LoadMeter {
    pub(super) fn busy_permille(&self) -> u16 {
        self.busy_permille
    }

    /// The driver's measure of the last moment, as it is.
    fn set(&mut self, now: Time, measured: u16) {
        (self.busy_permille, self.measured_at) = (measured, now);
    }

    /// The driver's measure of the last moment, smoothed.
    fn add(&mut self, now: Time, measured: u16) {
        let (before, measured) = (i32::from(self.busy_permille), i32::from(measured));
        let long_ago = now.since(self.measured_at) > IDLE_AFTER;
        let smoothed = if long_ago { measured } else { before + (measured - before) / WEIGHT };
        self.set(now, smoothed.clamp(0, 1000) as u16);
    }

    /// What the steward has decided since rests on what it was told: it hears of the next measure whatever that is.
    pub(super) fn tell_again(&mut self) {
        self.told = None;
    }

    /// The driver's measure of the last moment: of one worker for the console, of several for the steward.
    pub(super) fn measured(&mut self, busy_permille: u16, pools: &mut Pools, cx: &mut Context) {
        if cx.config.workers == 1 {
            return self.set(cx.now, busy_permille);
        }
        self.add(cx.now, busy_permille);
        self.tell(pools, cx);
    }

    /// Nothing was measured for a while.
    pub(super) fn due(&mut self, pools: &mut Pools, cx: &mut Context) {
        self.busy_permille = 0;
        self.tell(pools, cx);
    }

    fn tell(&mut self, pools: &mut Pools, cx: &mut Context) {
        let shares = self.divide(pools);
        let is_news = |&(index, share): &(u32, u16)| is_change(pools[index].told_share_permille, share);
        if self.is_news() || shares.iter().any(is_news) {
            self.told = Some(self.busy_permille);
            for index in pools.indexes() {
                pools[index].told_share_permille = 0;
            }
            let mut told = Vec::new();
            for (index, share) in shares {
                pools[index].told_share_permille = share;
                told.push((Arc::clone(&pools[index].name), share));
            }
            cx.tell_steward(Letter::Load { busy_permille: self.busy_permille, pools: told });
        }
        let due = if self.is_told_busy() { cx.now + IDLE_AFTER } else { Time::NEVER };
        cx.timers.set(Subject::Load, &mut self.deadline, due);
    }

    /// How much of the worker's time was for which pool, in thousandths; the largest shares first.
    fn divide(&self, pools: &mut Pools) -> Vec<(u32, u16)> {
        let mut work = Vec::new();
        for index in pools.indexes() {
            let pool = &mut pools[index];
            let done = pool.work();
            let grown = done - std::mem::replace(&mut pool.work_before, done);
            if grown > 0 {
                work.push((index, grown));
            }
        }
        let total: u64 = work.iter().map(|(_, grown)| grown).sum();
        let busy = u64::from(self.busy_permille);
        work.sort_by_key(|&(index, grown)| (std::cmp::Reverse(grown), index));
        work.truncate(POOLS_TOLD_MAX);
        work.into_iter().map(|(index, grown)| (index, (busy * grown / total.max(1)) as u16)).collect()
    }

    fn is_news(&self) -> bool {
        self.told.is_none_or(|told| is_change(told, self.busy_permille))
    }

    fn is_told_busy(&self) -> bool {
        self.told.is_some_and(|told| told >= STEP_PERMILLE)
    }
}

fn is_change(told: u16, now: u16) -> bool {
    told.abs_diff(now) >= STEP_PERMILLE
}
