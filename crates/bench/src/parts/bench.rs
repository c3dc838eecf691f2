//! What every part works with: the ground, the peers, the scale, and the journal.
//!
//! Starts peers, warms them up, lets them take turns, keeps what was measured and what was not. Does not know figures.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow};
use nix::unistd::Pid;

use super::watch::Watch;
use crate::ground::Ground;
use crate::ground::{DATABASE, PASSWORD, ROWS_PER_SCALE, USER};
use crate::load::crew::Crew;
use crate::load::pgbench::{self, Load};
use crate::load::plan::{Plan, Target};
use crate::load::scram::Keys;
use crate::load::session::Identity;
use crate::load::tally::to_f64;
use crate::load::tls;
use crate::peers::Roster;
use crate::peers::endpoint::Endpoint;
use crate::peers::pooler::Pooler;
use crate::peers::profile::Profile;
use weir_measure::doubt::{self, Doubt};
use weir_measure::ground::machine;
use weir_measure::ground::strangers::{self, Whose};
use weir_measure::journal::{Absent, Journal, Note, Point, Record, TargetRecord};
use weir_measure::load::{Outcome, Protocol};
use weir_measure::series::Series;
use weir_measure::statistics::place;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Full,
    /// Three minutes for all parts.
    Quick,
    /// Seconds: shows that everything runs, and its figures mean nothing.
    Tiny,
}

impl Scale {
    pub fn pick<T>(self, full: T, quick: T, tiny: T) -> T {
        match self {
            Scale::Full => full,
            Scale::Quick => quick,
            Scale::Tiny => tiny,
        }
    }

    pub fn name(self) -> &'static str {
        self.pick("full", "quick", "tiny")
    }
}

/// What the caller may change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    pub rounds: Option<usize>,
    pub seconds: Option<u64>,
    pub crowd_clients: Option<usize>,
    pub churn_clients: Option<usize>,
}

pub struct Bench<'a> {
    pub ground: &'a Ground,
    pub roster: &'a Roster,
    pub scale: Scale,
    pub wishes: Wishes,
    pub part: &'static str,
    pub journal: Journal,
    /// Whether something went wrong, rather than being out of a peer's reach.
    pub failed: bool,
}

/// What is missing: a peer, what of it, and with how many clients, where it is not the whole.
pub fn absent(peer: &str, what: &str, clients: Option<usize>) -> Absent {
    let (target, series) = (peer.to_owned(), what.to_owned());
    Absent { experiment: String::new(), series, target, x: clients.map(place), reason: String::new() }
}

pub type Values = BTreeMap<String, f64>;

pub fn values<const COUNT: usize>(pairs: [(&str, f64); COUNT]) -> Values {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

const WARM_UP_CLIENTS: usize = 40;
const WARM_UP: Duration = Duration::from_millis(300);
/// Clients that log in at the same time where logins are not what is measured.
pub const AT_ONCE: usize = 64;

impl Bench<'_> {
    pub fn rounds(&self, full: usize) -> usize {
        self.wishes.rounds.unwrap_or(self.scale.pick(full, 1, 1))
    }

    /// How long pgbench runs; 0 is its shortest run.
    pub fn seconds(&self, full: u64) -> u64 {
        self.wishes.seconds.unwrap_or(self.scale.pick(full, 1, 0))
    }

    /// How long a load of our own runs.
    pub fn time(&self, full: Duration) -> Duration {
        let wished = self.wishes.seconds.map(Duration::from_secs);
        wished.unwrap_or(self.scale.pick(full, Duration::from_secs(1), Duration::from_millis(50)))
    }

    /// Lets things come to rest; where figures mean nothing there is no time for that.
    pub fn settle(&self, time: Duration) -> Result<()> {
        self.ground.interrupt.sleep(self.scale.pick(time, time / 2, Duration::ZERO))
    }

    /// Starts each of these poolers; one that does not start is written down as absent.
    pub fn start<'p>(
        &mut self,
        poolers: impl IntoIterator<Item = &'p Pooler>,
        profile: &Profile,
    ) -> Result<Vec<Endpoint>> {
        let mut endpoints = Vec::new();
        for pooler in poolers {
            if let Some(endpoint) = self.start_one(pooler, profile, &pooler.name)? {
                endpoints.push(endpoint);
            }
        }
        Ok(endpoints)
    }

    pub fn start_one(&mut self, pooler: &Pooler, profile: &Profile, name: &str) -> Result<Option<Endpoint>> {
        match pooler.start(profile, self.ground) {
            Ok(endpoint) => {
                let endpoint = endpoint.named(name);
                self.describe(&endpoint, profile)?;
                Ok(Some(endpoint))
            }
            Err(error) => {
                self.ground.interrupt.check()?;
                self.fail(absent(name, profile.name, None), &error)?;
                Ok(None)
            }
        }
    }

    pub fn direct(&mut self, profile: &Profile) -> Result<Endpoint> {
        let endpoint = Endpoint::direct(self.ground);
        self.describe(&endpoint, profile)?;
        Ok(endpoint)
    }

    pub fn externals(&mut self, profile: &Profile) -> Result<Vec<Endpoint>> {
        let endpoints = self.roster.externals(profile);
        endpoints.iter().try_for_each(|endpoint| self.describe(endpoint, profile))?;
        Ok(endpoints)
    }

    pub fn describe(&mut self, endpoint: &Endpoint, profile: &Profile) -> Result<()> {
        let record = Record::Target(TargetRecord {
            experiment: self.part.to_owned(),
            name: endpoint.name.clone(),
            url: self.ground.url(endpoint.port).to_string(),
            version: endpoint.version.clone(),
            configuration: endpoint.configuration.clone(),
            profile: profile.name.to_owned(),
            local: true,
            role: endpoint.role,
            server_major: self.ground.server.major(),
        });
        // PostgreSQL itself is the same in each profile.
        if self.journal.records().contains(&record) { Ok(()) } else { self.journal.add(record) }
    }

    /// Writes down what could not be measured, and why.
    pub fn absent(&mut self, absent: Absent, reason: &str) -> Result<()> {
        let clients = absent.x.map_or(String::new(), |clients| format!(", {clients} clients"));
        eprintln!("  not measured: {}{clients}: {reason}", absent.line());
        self.journal.add(Record::Absent(Absent {
            experiment: self.part.to_owned(),
            reason: reason.to_owned(),
            ..absent
        }))
    }

    /// The same of what should have worked.
    fn fail(&mut self, absent: Absent, error: &Error) -> Result<()> {
        self.failed = true;
        self.absent(absent, &format!("{error:#}"))
    }

    /// Something to know when reading the part's figures; said once.
    pub fn note(&mut self, text: String) -> Result<()> {
        let note = Record::Note(Note { experiment: self.part.to_owned(), text, topic: None });
        if self.journal.records().contains(&note) {
            return Ok(());
        }
        if let Record::Note(Note { text, .. }) = &note {
            eprintln!("  note: {text}");
        }
        self.journal.add(note)
    }

    /// Fills PostgreSQL's cache and the peers' pools before anything counts; leaves only the peers that answer.
    pub fn warm_up(&mut self, endpoints: Vec<Endpoint>, profile: &Profile) -> Result<Vec<Endpoint>> {
        let mut answering = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            let warmed = self.asking(&endpoint, profile, WARM_UP_CLIENTS).and_then(|crew| {
                crew.ask();
                self.settle(WARM_UP)?;
                let tally = crew.stop()?;
                tally.first_failure.map_or(Ok(()), |reason| Err(anyhow!(reason)))
            });
            match warmed {
                Ok(()) => answering.push(endpoint),
                Err(error) => {
                    self.ground.interrupt.check()?;
                    self.fail(absent(&endpoint.name, "", None), &error)?;
                }
            }
        }
        Ok(answering)
    }

    fn asking(&self, endpoint: &Endpoint, profile: &Profile, clients: usize) -> Result<Crew> {
        let plan = Plan { eager: clients, ..self.plan(endpoint, profile, clients)? };
        Crew::log_in(&plan, 1, &self.ground.interrupt)
    }

    /// Idle clients; the caller changes what they shall do.
    pub fn plan(&self, endpoint: &Endpoint, profile: &Profile, clients: usize) -> Result<Plan> {
        let plan = Plan::idle(self.target(endpoint, profile, DATABASE)?, clients, AT_ONCE);
        Ok(Plan { rows: self.rows(), ..plan })
    }

    pub fn rows(&self) -> u32 {
        self.ground.scale * ROWS_PER_SCALE
    }

    pub fn target(&self, endpoint: &Endpoint, profile: &Profile, database: &str) -> Result<Target> {
        let identity = Identity { user: USER.to_owned(), database: database.to_owned(), keys: Keys::of(PASSWORD) };
        let tls = profile.client_tls.then(|| tls::config(false)).transpose()?;
        Ok(Target { port: endpoint.port, source: Ipv4Addr::LOCALHOST, tls, identity: Arc::new(identity) })
    }

    /// Keeps one measurement, or why it failed.
    pub fn keep(&mut self, load: (&str, usize), peer: &str, round: usize, measured: Result<Values>) -> Result<()> {
        self.keep_with_doubts(load, peer, round, measured.map(|values| Measured { values, ..Measured::default() }))
    }

    fn keep_with_doubts(
        &mut self,
        (what, clients): (&str, usize),
        peer: &str,
        round: usize,
        measured: Result<Measured>,
    ) -> Result<()> {
        match measured {
            Ok(Measured { values, doubts, seconds }) => {
                let shown: Vec<String> = values.iter().map(|(key, value)| format!("{key} {value:.4}")).collect();
                eprintln!("  {what}, {clients} clients, round {}, {peer}: {}", round + 1, shown.join(", "));
                let (experiment, series, target) = (self.part.to_owned(), what.to_owned(), peer.to_owned());
                let (x, round, at) = (place(clients), round + 1, machine::moment());
                let mut point = Point { experiment, series, target, x, round, values, at, seconds, ..Point::default() };
                for doubt in doubts {
                    eprintln!("  doubtful: {doubt}");
                    point.doubt(&doubt);
                }
                self.journal.add(Record::Point(point))
            }
            Err(error) => {
                self.ground.interrupt.check()?;
                self.fail(absent(peer, what, Some(clients)), &error)
            }
        }
    }

    /// One load of pgbench on each endpoint in each round, taking turns.
    pub fn pgbench(&mut self, what: &str, load: Load, rounds: usize, endpoints: &[&Endpoint]) -> Result<()> {
        let able: Vec<&Endpoint> =
            endpoints.iter().copied().filter(|endpoint| endpoint.prepares || load.mode != Protocol::Prepared).collect();
        for endpoint in endpoints.iter().filter(|endpoint| !endpoint.prepares && load.mode == Protocol::Prepared) {
            let version = &endpoint.version;
            let reason = format!("{version} has no protocol-level prepared statements in transaction pooling");
            self.absent(absent(&endpoint.name, what, Some(load.clients)), &reason)?;
        }
        for (round, endpoint) in turns(&able, rounds) {
            let measured = measure(load, endpoint, self.ground, |_| Ok(()));
            self.keep_with_doubts((what, load.clients), &endpoint.name, round, measured)?;
        }
        Ok(())
    }
}

/// One run of pgbench.
#[derive(Default)]
pub struct Measured {
    pub values: Values,
    doubts: Vec<Doubt>,
    seconds: Series,
}

/// Peers take turns within a round and start at another place in the next, so that a machine that grows warm or busy is
/// unfair to each of them alike.
pub fn turns<T: Copy>(all: &[T], rounds: usize) -> Vec<(usize, T)> {
    let round = |round: usize| (0..all.len()).map(move |turn| (round, all[(turn + round) % all.len()]));
    (0..rounds).flat_map(round).collect()
}

/// TPS, latency, CPU per transaction and memory of one run of pgbench.
/// `look` is called again and again with the time since the start.
pub fn measure(
    load: Load,
    endpoint: &Endpoint,
    ground: &Ground,
    mut look: impl FnMut(Duration) -> Result<()>,
) -> Result<Measured> {
    let mut watch = Watch::default();
    let server = ground.server.postmaster().map(|pid| (pid, Whose::Server));
    let known: Vec<_> = endpoint.pids.iter().map(|pid| (*pid, Whose::Pooler)).chain(server).collect();
    let cores = machine::affine_cores(Pid::this()).map_or(0, |cores| cores.len());
    let mut strangers = strangers::Watch::new(cores, &known);
    let (before, start) = (endpoint.cpu_time()?, Instant::now());
    let outcome = pgbench::run(load, endpoint.port, ground, || {
        look(start.elapsed())?;
        strangers.look(false);
        watch.look(endpoint)
    })?;
    strangers.look(true);
    let after = endpoint.cpu_time()?;
    let mut figures = values([("tps", outcome.tps)]);
    if let Some((before, after)) = before.zip(after) {
        // Of the seconds that count: neither of logins before them, nor of warming up.
        let start = if load.seconds == 0 { Some(before) } else { watch.cpu_at(Duration::from_secs(load.seconds)) };
        let used = after.saturating_sub(start.unwrap_or(before));
        figures.insert("cpu_us".to_owned(), per_transaction(used, &outcome));
    }
    if let Some(latency) = outcome.latency {
        figures.insert("p50_us".to_owned(), latency.p50_us);
        figures.extend(latency.p99_us.map(|p99_us| ("p99_us".to_owned(), p99_us)));
    }
    if let Some(kib) = watch.private_kib_max {
        figures.insert("private_mib".to_owned(), to_f64(kib) / 1024.0);
    }
    let mut doubts: Vec<Doubt> = doubt::of_series(&outcome.series).into_iter().collect();
    doubts.extend(strangers.all().iter().flat_map(|shares| doubt::of_strangers(shares, cores)));
    Ok(Measured { values: figures, doubts, seconds: outcome.series })
}

fn per_transaction(used: Duration, outcome: &Outcome) -> f64 {
    used.as_secs_f64() * 1e6 / to_f64(outcome.transactions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_peer() {
        assert_eq!(turns(&['a', 'b'], 2), [(0, 'a'), (0, 'b'), (1, 'b'), (1, 'a')]);
        assert_eq!(turns::<char>(&[], 2), []);
    }
}
