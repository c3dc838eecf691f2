//! Where a pool's next server is made: at which of its database's endpoints, and when one is tried again where logins failed; one for
//! the whole process. Also which workers were told to wait. Knows no connections, and sends nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_wire::Report;

use crate::id::WorkerId;
use crate::names::PoolName;
use crate::peer::Endpoint;
use crate::time::{Duration, Time};

/// The first wait after a failed login; it doubles up to `server_login_retry`.
pub(crate) const RETRY_FIRST: Duration = Duration::from_millis(50);
/// Clients wait for so long where TLS fails, for a certificate that is about to be another, before they are told.
pub(crate) const TLS_PATIENCE: Duration = Duration::from_secs(5);
/// Pools above which those are forgotten whose wait has long been over.
const FAILING_SWEPT_ABOVE: usize = 1024;

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
    At(Site),
    /// Another worker tries.
    AfterAnother,
    NotYet(Setback),
}

/// Where one may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Site {
    /// Which of the endpoints.
    pub(crate) endpoint: usize,
    /// As the only one there: whether others may depends on it.
    pub(crate) alone: bool,
}

/// Whose turn it is among a pool's endpoints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn<'a> {
    pub(crate) endpoints: &'a [Endpoint],
    /// The first to be asked.
    pub(crate) first: usize,
    /// The pool has other servers to go on with while one is tried that may not answer.
    pub(crate) may_probe: bool,
    /// They are there for where the first is not: as long as nobody knows whether it is, one login asks for all.
    pub(crate) in_order: bool,
}

/// An endpoint where logins fail.
#[derive(Debug)]
struct Failing {
    endpoint: Endpoint,
    setback: Setback,
    /// The first failure in this row.
    since: Time,
    /// Who makes the one server that is tried.
    trying: Option<WorkerId>,
    /// The last failure was a session that ended at once.
    ended_at_once: bool,
    /// Since when logins succeed there: what is remembered counts where sessions end at once again, and for nothing else.
    works_since: Option<Time>,
}

/// How a login has failed.
#[derive(Debug)]
pub(crate) enum Fails {
    /// No answer, or none that is told to clients.
    Passing,
    Refused(Arc<Report>),
    /// The same, once it has gone on for `TLS_PATIENCE`.
    RefusedForLong(Arc<Report>),
    /// It succeeded, and the session ended before anybody had it.
    EndedAtOnce,
}

/// A pool that has some.
#[derive(Debug, Default)]
struct Troubled {
    failing: Vec<Failing>,
    told: Vec<WorkerId>,
    /// Where hosts are in order: where a login has succeeded, and where one is the first, and whose.
    proven: Vec<Endpoint>,
    first: Option<(Endpoint, WorkerId)>,
}

#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    troubled: BTreeMap<Arc<PoolName>, Troubled>,
    sweep_above: usize,
}

impl Setback {
    /// How long is waited behind so many failures.
    fn waits(&self, longest: Duration) -> Duration {
        let wait = RETRY_FIRST.0.saturating_mul(1 << self.failures.saturating_sub(1).min(20));
        Duration(wait.min(longest.0.max(RETRY_FIRST.0)))
    }
}

impl Failing {
    fn is_due(&self, now: Time) -> bool {
        self.setback.retry_at <= now
    }
}

impl Troubled {
    fn find(&self, endpoint: &Endpoint) -> Option<&Failing> {
        self.failing.iter().find(|failing| failing.endpoint == *endpoint && failing.works_since.is_none())
    }

    fn find_or_add(&mut self, endpoint: &Endpoint) -> &mut Failing {
        let index = self.failing.iter().position(|failing| failing.endpoint == *endpoint).unwrap_or_else(|| {
            let (setback, endpoint) = (Setback::default(), endpoint.clone());
            let (trying, since) = (None, Time(0));
            self.failing.push(Failing { endpoint, setback, since, trying, ended_at_once: false, works_since: None });
            self.failing.len() - 1
        });
        &mut self.failing[index]
    }

    /// Where no endpoint is open: until the first one is due. Clients are refused if each has refused.
    fn setback(&self, endpoints: &[Endpoint]) -> Setback {
        let setbacks = || endpoints.iter().filter_map(|endpoint| Some(&self.find(endpoint)?.setback));
        let first = setbacks().min_by_key(|setback| setback.retry_at).cloned().unwrap_or_default();
        let refusals: Option<Vec<_>> = setbacks().map(|setback| setback.refusal.clone()).collect();
        Setback { refusal: refusals.and_then(|mut refusals| refusals.pop()), ..first }
    }
}

impl Endpoints {
    /// Where the pool's next server may be made. One whose logins fail is tried when its turn comes and others go on meanwhile,
    /// or when there is no other.
    pub(crate) fn may_try(&self, now: Time, pool: &PoolName, turn: Turn<'_>) -> Try {
        let Turn { endpoints, first, may_probe, in_order } = turn;
        let (Some(troubled), false) = (self.troubled.get(pool), endpoints.is_empty()) else {
            return Try::At(Site { endpoint: first % endpoints.len().max(1), alone: in_order });
        };
        let in_turn = || (0..endpoints.len()).map(|step| (first + step) % endpoints.len());
        let failing = |index: usize| troubled.find(&endpoints[index]);
        let open = in_turn().find(|&index| failing(index).is_none());
        let mut ahead = in_turn().map_while(|index| Some((index, failing(index)?)));
        let due = ahead.find(|(_, failing)| failing.is_due(now) && failing.trying.is_none());
        match (open, due) {
            (open, Some((endpoint, _))) if may_probe || open.is_none() => Try::At(Site { endpoint, alone: true }),
            (Some(endpoint), _) if !in_order || troubled.proven.contains(&endpoints[endpoint]) => {
                Try::At(Site { endpoint, alone: false })
            }
            (Some(endpoint), _) => match &troubled.first {
                Some((first, _)) if *first == endpoints[endpoint] => Try::AfterAnother,
                _ => Try::At(Site { endpoint, alone: true }),
            },
            (None, _) if in_turn().filter_map(failing).any(|failing| failing.is_due(now)) => Try::AfterAnother,
            (None, _) => Try::NotYet(troubled.setback(endpoints)),
        }
    }

    /// That worker tries alone there.
    pub(crate) fn tries(&mut self, pool: &Arc<PoolName>, endpoint: &Endpoint, worker: WorkerId) {
        let troubled = self.troubled.entry(Arc::clone(pool)).or_default();
        match troubled.failing.iter_mut().find(|failing| failing.endpoint == *endpoint) {
            Some(failing) if failing.works_since.is_none() => failing.trying = Some(worker),
            _ => troubled.first = Some((endpoint.clone(), worker)),
        }
    }

    /// A login failed: the next one there is tried a little later each time. Those of one burst count once.
    pub(crate) fn failed(
        &mut self,
        now: Time,
        longest: Duration,
        pool: &Arc<PoolName>,
        endpoint: &Endpoint,
        fails: Fails,
    ) {
        if self.troubled.len() > self.sweep_above.max(FAILING_SWEPT_ABOVE) {
            let lasts = |failing: &Failing| failing.trying.is_some() || failing.setback.retry_at + longest > now;
            self.troubled.retain(|_, troubled| troubled.failing.iter().any(lasts));
            self.sweep_above = self.troubled.len() * 2;
        }
        let troubled = self.troubled.entry(Arc::clone(pool)).or_default();
        troubled.first.take_if(|(first, _)| first == endpoint);
        troubled.proven.retain(|proven| proven != endpoint);
        let failing = troubled.find_or_add(endpoint);
        failing.trying = None;
        let at_once = matches!(fails, Fails::EndedAtOnce);
        let again = std::mem::replace(&mut failing.ended_at_once, at_once) && at_once;
        let setback = &mut failing.setback;
        if let Some(since) = failing.works_since.take() {
            // A server may take each login and end each session: that is over when one has lasted for longer than was waited last.
            if !again || now >= since + setback.waits(longest) {
                *setback = Setback::default();
            }
        }
        if setback.failures == 0 {
            failing.since = now;
        }
        setback.refusal = match fails {
            Fails::Refused(report) => Some(report),
            Fails::RefusedForLong(report) => Some(report).filter(|_| now >= failing.since + TLS_PATIENCE),
            Fails::Passing | Fails::EndedAtOnce => None,
        };
        if setback.retry_at <= now {
            setback.failures += 1;
            setback.retry_at = now + setback.waits(longest);
        }
    }

    /// A worker is told of the setback, and will be told when it is over.
    pub(crate) fn told(&mut self, pool: &PoolName, worker: WorkerId) {
        if let Some(troubled) = self.troubled.get_mut(pool)
            && !troubled.told.contains(&worker)
        {
            troubled.told.push(worker);
        }
    }

    /// A login succeeds there, and others may. Answers who was told that they do not.
    pub(crate) fn succeeded(&mut self, now: Time, pool: &PoolName, endpoint: &Endpoint) -> Vec<WorkerId> {
        let Some(troubled) = self.troubled.get_mut(pool) else { return Vec::new() };
        troubled.first.take_if(|(first, _)| first == endpoint);
        if let Some(failing) = troubled.failing.iter_mut().find(|failing| failing.endpoint == *endpoint) {
            if failing.setback.retry_at > now {
                // It was begun before another failed.
                return Vec::new();
            }
            failing.trying = None;
            failing.works_since.get_or_insert(now);
        }
        if !troubled.proven.contains(endpoint) {
            troubled.proven.push(endpoint.clone());
        }
        std::mem::take(&mut troubled.told)
    }

    /// The one that a worker tried there is gone, or was not made: another may be tried.
    pub(crate) fn gave_up(&mut self, pool: &PoolName, endpoint: &Endpoint, worker: WorkerId) {
        let Some(troubled) = self.troubled.get_mut(pool) else { return };
        troubled.first.take_if(|(first, tries)| first == endpoint && *tries == worker);
        if let Some(failing) = troubled.failing.iter_mut().find(|failing| failing.endpoint == *endpoint) {
            failing.trying.take_if(|tries| *tries == worker);
        }
    }

    /// Nobody has a server of it, or wants one: where the last were made says nothing of the next.
    pub(crate) fn forget_proven(&mut self, pool: &PoolName) {
        if self.troubled.get(pool).is_some_and(|troubled| troubled.failing.is_empty() && troubled.told.is_empty()) {
            self.troubled.remove(pool);
        }
    }

    /// The same of one pool; and the workers that were told.
    pub(crate) fn forget_pool(&mut self, pool: &PoolName) -> Vec<WorkerId> {
        self.troubled.remove(pool).map_or_else(Vec::new, |troubled| troubled.told)
    }

    /// New settings: what failed may succeed now.
    pub(crate) fn forget(&mut self) -> impl Iterator<Item = (Arc<PoolName>, Vec<WorkerId>)> + use<> {
        std::mem::take(&mut self.troubled).into_iter().map(|(pool, troubled)| (pool, troubled.told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(15);

    fn pool(database: &str) -> Arc<PoolName> {
        Arc::new(PoolName::new(database.into(), "alice".into()))
    }

    fn host(name: &str) -> Endpoint {
        Endpoint::Tcp { host: name.into(), port: 5432 }
    }

    fn at(milliseconds: u64) -> Time {
        Time(milliseconds * 1000)
    }

    /// Which endpoint, and whether alone.
    fn site(answer: Try) -> Option<(usize, bool)> {
        match answer {
            Try::At(Site { endpoint, alone }) => Some((endpoint, alone)),
            _ => None,
        }
    }

    fn turn(endpoints: &[Endpoint], first: usize) -> Turn<'_> {
        Turn { endpoints, first, may_probe: true, in_order: false }
    }

    #[test]
    fn one_login_is_tried_at_a_time_and_each_a_little_later() {
        let (mut tried, pool, hosts) = (Endpoints::default(), pool("app"), [host("db")]);
        let may_try = |tried: &Endpoints, now| tried.may_try(now, &pool, turn(&hosts, 0));
        assert_eq!(site(may_try(&tried, at(0))), Some((0, false)));
        for _ in 0..8 {
            tried.failed(at(0), LONGEST, &pool, &hosts[0], Fails::Passing);
        }
        assert!(
            matches!(may_try(&tried, at(49)), Try::NotYet(Setback { failures: 1, retry_at, .. }) if retry_at == at(50))
        );
        assert_eq!(site(may_try(&tried, at(50))), Some((0, true)));
        tried.tries(&pool, &hosts[0], WorkerId(1));
        assert!(matches!(may_try(&tried, at(50)), Try::AfterAnother));
        tried.failed(at(60), LONGEST, &pool, &hosts[0], Fails::Passing);
        assert!(
            matches!(may_try(&tried, at(159)), Try::NotYet(Setback { failures: 2, retry_at, .. }) if retry_at == at(160))
        );
        tried.tries(&pool, &hosts[0], WorkerId(2));
        tried.gave_up(&pool, &hosts[0], WorkerId(1));
        tried.gave_up(&pool, &host("another"), WorkerId(2));
        assert!(matches!(may_try(&tried, at(160)), Try::AfterAnother));
        tried.gave_up(&pool, &hosts[0], WorkerId(2));
        assert_eq!(site(may_try(&tried, at(160))), Some((0, true)));
        tried.told(&pool, WorkerId(3));
        assert_eq!(tried.succeeded(at(200), &pool, &hosts[0]), [WorkerId(3)]);
        assert_eq!(site(may_try(&tried, at(160))), Some((0, false)));
    }

    #[test]
    fn who_takes_logins_and_ends_sessions_is_tried_later_each_time() {
        let (mut tried, pool, hosts) = (Endpoints::default(), pool("app"), [host("db")]);
        let (mut now, mut waits) = (1_000, Vec::new());
        for _ in 0..12 {
            tried.succeeded(at(now), &pool, &hosts[0]);
            assert_eq!(site(tried.may_try(at(now), &pool, turn(&hosts, 0))), Some((0, false)));
            // Several sessions end, and each takes a while to begin.
            for _ in 0..3 {
                tried.failed(at(now + 2), LONGEST, &pool, &hosts[0], Fails::EndedAtOnce);
                tried.succeeded(at(now + 2), &pool, &hosts[0]);
            }
            let Try::NotYet(setback) = tried.may_try(at(now + 2), &pool, turn(&hosts, 0)) else { panic!() };
            let next = setback.retry_at.0 / 1000;
            waits.push(next - now - 2);
            now = next;
        }
        assert_eq!(waits, [50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 15_000, 15_000, 15_000]);
        // It has worked for long.
        tried.succeeded(at(now), &pool, &hosts[0]);
        tried.failed(at(now + 15_000), LONGEST, &pool, &hosts[0], Fails::EndedAtOnce);
        let Try::NotYet(setback) = tried.may_try(at(now + 15_000), &pool, turn(&hosts, 0)) else { panic!() };
        assert_eq!(setback.retry_at, at(now + 15_050));
        // What fails otherwise begins anew.
        tried.succeeded(at(now + 16_000), &pool, &hosts[0]);
        tried.failed(at(now + 16_001), LONGEST, &pool, &hosts[0], Fails::EndedAtOnce);
        tried.succeeded(at(now + 17_000), &pool, &hosts[0]);
        tried.failed(at(now + 17_001), LONGEST, &pool, &hosts[0], Fails::Passing);
        let Try::NotYet(setback) = tried.may_try(at(now + 17_001), &pool, turn(&hosts, 0)) else { panic!() };
        assert_eq!(setback.retry_at, at(now + 17_051));
        // And so does what ends at once behind that.
        tried.succeeded(at(now + 18_000), &pool, &hosts[0]);
        tried.failed(at(now + 18_001), LONGEST, &pool, &hosts[0], Fails::EndedAtOnce);
        let Try::NotYet(setback) = tried.may_try(at(now + 18_001), &pool, turn(&hosts, 0)) else { panic!() };
        assert_eq!(setback.retry_at, at(now + 18_051));
    }

    #[test]
    fn an_endpoint_that_fails_leaves_the_others_their_turn() {
        let (mut tried, pool, hosts) = (Endpoints::default(), pool("app"), ["one", "two", "three"].map(host));
        let may_try = |tried: &Endpoints, now, first| tried.may_try(now, &pool, turn(&hosts, first));
        tried.failed(at(0), LONGEST, &pool, &hosts[0], Fails::Passing);
        assert_eq!(site(may_try(&tried, at(1), 0)), Some((1, false)));
        assert_eq!(site(may_try(&tried, at(1), 2)), Some((2, false)));
        // It may have come back.
        assert_eq!(site(may_try(&tried, at(50), 1)), Some((1, false)), "it is another's turn");
        assert_eq!(site(may_try(&tried, at(50), 0)), Some((0, true)));
        let waited_for = Turn { may_probe: false, ..turn(&hosts, 0) };
        assert_eq!(site(tried.may_try(at(50), &pool, waited_for)), Some((1, false)));
        tried.tries(&pool, &hosts[0], WorkerId(1));
        assert_eq!(site(may_try(&tried, at(50), 0)), Some((1, false)));
        for host in &hosts[1..] {
            tried.failed(at(60), LONGEST, &pool, host, Fails::Passing);
        }
        assert!(matches!(may_try(&tried, at(60), 2), Try::AfterAnother));
        let listed = tried.may_try(at(60), &pool, turn(&hosts[1..], 0));
        assert!(matches!(listed, Try::NotYet(_)), "the one that is tried is not among them any more");
        assert_eq!(site(may_try(&tried, at(110), 2)), Some((2, true)));
    }

    #[test]
    fn clients_are_refused_where_each_endpoint_refuses() {
        use weir_wire::report::Severity;
        let (mut tried, pool, hosts) = (Endpoints::default(), pool("app"), ["one", "two"].map(host));
        let refusal = |tried: &Endpoints, now| match tried.may_try(now, &pool, turn(&hosts, 0)) {
            Try::NotYet(setback) => setback.refusal.map(|report| report.message.to_string()),
            other => panic!("{other:?}"),
        };
        let report = |text: &'static str| Fails::Refused(Arc::new(Report::new(Severity::Fatal, "28000", text)));
        tried.failed(at(0), LONGEST, &pool, &hosts[0], report("one"));
        tried.failed(at(0), LONGEST, &pool, &hosts[1], Fails::Passing);
        assert_eq!(refusal(&tried, at(0)), None);
        tried.failed(at(1), LONGEST, &pool, &hosts[1], report("two"));
        assert_eq!(refusal(&tried, at(1)).as_deref(), Some("two"));
    }

    #[test]
    fn of_hosts_in_order_one_login_asks_first() {
        let (mut tried, pool, hosts) = (Endpoints::default(), pool("app"), ["one", "two"].map(host));
        let may_try = |tried: &Endpoints, now, first| {
            tried.may_try(now, &pool, Turn { may_probe: false, in_order: true, ..turn(&hosts, first) })
        };
        assert_eq!(site(may_try(&tried, at(0), 0)), Some((0, true)));
        tried.tries(&pool, &hosts[0], WorkerId(1));
        assert!(matches!(may_try(&tried, at(0), 0), Try::AfterAnother));
        tried.failed(at(1), LONGEST, &pool, &hosts[0], Fails::Passing);
        assert_eq!(site(may_try(&tried, at(1), 0)), Some((1, true)), "the next is asked in the same way");
        tried.tries(&pool, &hosts[1], WorkerId(2));
        tried.gave_up(&pool, &hosts[1], WorkerId(1));
        assert!(matches!(may_try(&tried, at(1), 1), Try::AfterAnother));
        tried.gave_up(&pool, &hosts[1], WorkerId(2));
        assert_eq!(site(may_try(&tried, at(1), 1)), Some((1, true)), "nobody asks any more");
        tried.tries(&pool, &hosts[1], WorkerId(1));
        tried.succeeded(at(2), &pool, &hosts[1]);
        assert_eq!(site(may_try(&tried, at(2), 1)), Some((1, false)));
        tried.failed(at(3), LONGEST, &pool, &hosts[1], Fails::Passing);
        assert!(matches!(may_try(&tried, at(3), 1), Try::NotYet(_)));
    }

    #[test]
    fn what_an_unused_pool_has_shown_is_forgotten() {
        let (mut tried, pool, hosts) = (Endpoints::default(), pool("app"), ["one", "two"].map(host));
        tried.tries(&pool, &hosts[0], WorkerId(1));
        tried.succeeded(at(1), &pool, &hosts[0]);
        tried.forget_proven(&pool);
        assert!(tried.troubled.is_empty());
        tried.failed(at(2), LONGEST, &pool, &hosts[0], Fails::Passing);
        tried.forget_proven(&pool);
        assert!(matches!(tried.may_try(at(2), &pool, turn(&hosts[..1], 0)), Try::NotYet(_)));
    }

    #[test]
    fn tls_that_fails_is_told_once_it_has_failed_for_a_while() {
        use weir_wire::report::Severity;
        let (mut tried, pool, hosts) = (Endpoints::default(), pool("app"), [host("db")]);
        let report = || Fails::RefusedForLong(Arc::new(Report::new(Severity::Fatal, "08006", "TLS failed")));
        let mut fails = |now| {
            tried.failed(at(now), LONGEST, &pool, &hosts[0], report());
            let answer = tried.may_try(at(now), &pool, turn(&hosts, 0));
            let Try::NotYet(setback) = answer else { panic!("{answer:?}") };
            setback.refusal.is_some()
        };
        assert!(!fails(1_000) && !fails(5_999) && fails(6_000) && fails(7_000));
        // It has worked in between.
        tried.succeeded(at(60_000), &pool, &hosts[0]);
        tried.failed(at(61_000), LONGEST, &pool, &hosts[0], report());
        let Try::NotYet(setback) = tried.may_try(at(61_000), &pool, turn(&hosts, 0)) else { panic!() };
        assert!(setback.refusal.is_none());
    }

    #[test]
    fn what_is_long_over_is_forgotten() {
        let mut tried = Endpoints::default();
        for number in 0..10_000_u64 {
            tried.failed(at(number * 1000), LONGEST, &pool(&number.to_string()), &host("db"), Fails::Passing);
        }
        assert!(tried.troubled.len() <= 2 * FAILING_SWEPT_ABOVE, "{} are kept", tried.troubled.len());
    }
}
