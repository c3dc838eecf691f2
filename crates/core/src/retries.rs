//! Pools whose servers cannot be logged in to: when the next login may be tried, one for the whole process, and which workers
//! have been told. Knows no connections, and sends nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_wire::Report;

use crate::id::WorkerId;
use crate::names::PoolName;
use crate::time::{Duration, Time};

/// The first wait after a failed login; it doubles up to `server_login_retry`.
pub(crate) const RETRY_FIRST: Duration = Duration::from_millis(50);
/// Pools above which those are forgotten whose wait has long been over.
const RETRIES_SWEPT_ABOVE: usize = 1024;

/// What workers know of a pool's failed logins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setback {
    /// In a row. None: logins succeed, as far as is known.
    pub(crate) failures: u32,
    /// None is tried before.
    pub(crate) retry_at: Time,
    /// What clients are told who would wait for one.
    pub(crate) refusal: Option<Arc<Report>>,
}

/// Whether a server may be made.
#[derive(Debug)]
pub(crate) enum Try {
    Freely,
    /// As the only one: whether others may depends on it.
    Alone,
    /// Another worker tries.
    AfterAnother,
    NotYet(Setback),
}

#[derive(Debug, Default)]
struct Retry {
    setback: Setback,
    /// Who makes the one server that is tried.
    trying: Option<WorkerId>,
    told: Vec<WorkerId>,
}

#[derive(Debug, Default)]
pub(crate) struct Retries {
    list: BTreeMap<Arc<PoolName>, Retry>,
    sweep_above: usize,
}

impl Retries {
    pub(crate) fn may_try(&self, now: Time, pool: &PoolName) -> Try {
        match self.list.get(pool) {
            None => Try::Freely,
            Some(retry) if retry.setback.retry_at > now => Try::NotYet(retry.setback.clone()),
            Some(Retry { trying: None, .. }) => Try::Alone,
            Some(_) => Try::AfterAnother,
        }
    }

    /// That worker tries alone.
    pub(crate) fn tries(&mut self, pool: &PoolName, worker: WorkerId) {
        if let Some(retry) = self.list.get_mut(pool) {
            retry.trying = Some(worker);
        }
    }

    /// A login failed: the next one is tried a little later each time. Those of one burst count once.
    pub(crate) fn failed(
        &mut self,
        now: Time,
        longest: Duration,
        pool: &Arc<PoolName>,
        refusal: Option<Arc<Report>>,
    ) -> Setback {
        if self.list.len() > self.sweep_above.max(RETRIES_SWEPT_ABOVE) {
            self.list.retain(|_, retry| retry.trying.is_some() || retry.setback.retry_at + longest > now);
            self.sweep_above = self.list.len() * 2;
        }
        let retry = self.list.entry(Arc::clone(pool)).or_default();
        retry.trying = None;
        let setback = &mut retry.setback;
        setback.refusal = refusal;
        if setback.retry_at <= now {
            let wait = RETRY_FIRST.0.saturating_mul(1 << setback.failures.min(20));
            setback.failures += 1;
            setback.retry_at = now + Duration(wait.min(longest.0.max(RETRY_FIRST.0)));
        }
        setback.clone()
    }

    /// A worker is told of the setback, and will be told when it is over.
    pub(crate) fn told(&mut self, pool: &PoolName, worker: WorkerId) {
        if let Some(retry) = self.list.get_mut(pool)
            && !retry.told.contains(&worker)
        {
            retry.told.push(worker);
        }
    }

    /// Logins succeed again. Answers who was told that they do not.
    pub(crate) fn succeeded(&mut self, pool: &PoolName) -> Vec<WorkerId> {
        self.list.remove(pool).map(|retry| retry.told).unwrap_or_default()
    }

    /// A worker's server is gone, or was not made: if it was the one tried, another may be.
    pub(crate) fn gave_up(&mut self, pool: &PoolName, worker: WorkerId) {
        if let Some(retry) = self.list.get_mut(pool)
            && retry.trying == Some(worker)
        {
            retry.trying = None;
        }
    }

    /// New settings: what failed may succeed now.
    pub(crate) fn forget(&mut self) -> impl Iterator<Item = (Arc<PoolName>, Vec<WorkerId>)> + use<> {
        std::mem::take(&mut self.list).into_iter().map(|(pool, retry)| (pool, retry.told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(15);

    fn pool(database: &str) -> Arc<PoolName> {
        Arc::new(PoolName { database: database.into(), user: "alice".into() })
    }

    fn at(milliseconds: u64) -> Time {
        Time(milliseconds * 1000)
    }

    #[test]
    fn one_login_is_tried_at_a_time_and_each_a_little_later() {
        let (mut retries, pool) = (Retries::default(), pool("app"));
        assert!(matches!(retries.may_try(at(0), &pool), Try::Freely));
        for _ in 0..8 {
            assert_eq!(retries.failed(at(0), LONGEST, &pool, None).retry_at, at(50), "a burst counts once");
        }
        assert!(matches!(retries.may_try(at(49), &pool), Try::NotYet(_)));
        assert!(matches!(retries.may_try(at(50), &pool), Try::Alone));
        retries.tries(&pool, WorkerId(1));
        assert!(matches!(retries.may_try(at(50), &pool), Try::AfterAnother));
        assert_eq!(retries.failed(at(60), LONGEST, &pool, None).retry_at, at(160));
        retries.tries(&pool, WorkerId(2));
        retries.gave_up(&pool, WorkerId(1));
        assert!(matches!(retries.may_try(at(160), &pool), Try::AfterAnother));
        retries.gave_up(&pool, WorkerId(2));
        assert!(matches!(retries.may_try(at(160), &pool), Try::Alone));
        retries.told(&pool, WorkerId(3));
        assert_eq!(retries.succeeded(&pool), [WorkerId(3)]);
        assert!(matches!(retries.may_try(at(160), &pool), Try::Freely));
    }

    #[test]
    fn what_is_long_over_is_forgotten() {
        let mut retries = Retries::default();
        for number in 0..10_000_u64 {
            retries.failed(at(number * 1000), LONGEST, &pool(&number.to_string()), None);
        }
        assert!(retries.list.len() <= 2 * RETRIES_SWEPT_ABOVE, "{} are kept", retries.list.len());
    }
}
