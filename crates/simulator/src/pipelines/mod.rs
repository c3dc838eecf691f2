//! Random pipelines against a real PostgreSQL, directly and through Weir: what comes back must be the same.
//!
//! Several clients at once, each with a schema and startup parameters of its own. Each sends what it draws from the seed to
//! two sessions, one at PostgreSQL and one at Weir, and compares message by message. The pool is smaller than the number of
//! clients, so that servers change hands all the time. Owns what is sent and compared; knows of Weir only what a client sees.

mod episode;
mod generate;
mod ground;
pub mod people;
mod report;
mod session;
mod shrink;
mod steps;
mod texts;
mod transcript;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use episode::{Difference, Twins};
use generate::Generator;
use ground::Ground;
use people::{Deed, Person};
use report::Report;
use session::Cuts;
use shrink::History;

use crate::rng::Rng;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pipelines of one episode.
const EPISODE: (u64, u64) = (2, 14);
/// Times that an episode is tried to begin before the client gives up, and the pause after each: PostgreSQL may have crashed
/// (see `Twins::ask`) and come up again.
const BEGIN_TRIES: u32 = 3000;
const BEGIN_PAUSE: Duration = Duration::from_millis(200);

/// How a run is made.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Compare so many random pipelines between a real PostgreSQL and Weir in front of it, instead of simulating
    #[arg(long)]
    pub pipelines: Option<u64>,
    /// With --pipelines: clients at once
    #[arg(long, default_value_t = 8)]
    pub clients: usize,
    /// With --pipelines: the first client's number, which decides what it does; from 8 on they mislead and are misled
    #[arg(long, default_value_t = 0)]
    pub first: usize,
    /// With --pipelines: servers in Weir's pool
    #[arg(long, default_value_t = 2)]
    pub pool_size: u32,
    /// With --pipelines: the program to start
    #[arg(long, default_value = "target/debug/weir")]
    pub weir: PathBuf,
    /// With --pipelines: further lines of Weir's configuration, with commas between
    #[arg(long, default_value = "max_prepared_statements=20")]
    pub settings: String,
    /// With --pipelines: the PostgreSQL to start, if it can be had
    #[arg(long, default_value_t = 18)]
    pub postgres: u32,
    /// With --pipelines: a pooler that runs already (with --direct), with a database `pooled`
    #[arg(long, requires = "direct_address")]
    pub target: Option<SocketAddr>,
    /// With --target: the PostgreSQL behind it
    #[arg(long)]
    pub direct_address: Option<SocketAddr>,
    /// With --pipelines: kinds of deeds to leave out
    #[arg(long, value_delimiter = ',')]
    pub without: Vec<Deed>,
    /// With --pipelines: of a thousand pipelines, those that their client leaves in the middle
    #[arg(long, default_value_t = 20)]
    pub vanish: u64,
    /// With --pipelines: stop after so many differences
    #[arg(long, default_value_t = 1)]
    pub differences: u64,
    /// With --pipelines: show differences as they came, and do not look for shorter ones
    #[arg(long)]
    pub no_shrink: bool,
}

/// What all clients of a run share.
struct Run<'a> {
    options: &'a Options,
    seed: u64,
    ground: &'a Ground,
    left: AtomicU64,
    report: Report,
    /// Held by who goes on with an episode; alone by who wants to know what comes without the others.
    going: RwLock<()>,
}

/// Runs; true if nothing differed.
pub fn run(options: &Options, count: u64, seed: u64) -> bool {
    let mut options = options.clone();
    let keeps = options.settings.contains("session_state=keep");
    options.without.push(if keeps { Deed::Call } else { Deed::Hold });
    let options = &options;
    let began = Instant::now();
    let people = (options.first..options.first + options.clients).map(Person::new);
    let settled = |ground: Ground| ground.settle(people.clone()).map(|()| ground);
    let mut ground = match ground(options).and_then(settled) {
        Ok(ground) => ground,
        Err(error) => {
            println!("FAILED pipelines: {error}");
            return false;
        }
    };
    let (left, report) = (AtomicU64::new(count), Report::default());
    let run = Run { options, seed, ground: &ground, left, report, going: RwLock::default() };
    std::thread::scope(|scope| {
        for person in people {
            let run = &run;
            scope.spawn(move || run.live(person));
        }
    });
    let Run { report, .. } = run;
    if !ground.weir_lives() {
        report.trouble("Weir has ended");
    }
    println!("PostgreSQL         {}", ground.version);
    println!("seconds            {:.1}", began.elapsed().as_secs_f64());
    report.show()
}

fn ground(options: &Options) -> Result<Ground, String> {
    if let (Some(target), Some(direct)) = (options.target, options.direct_address) {
        return Ground::given(direct, target);
    }
    let settings = options.settings.replace(',', "\n");
    Ground::start(options.postgres, &options.weir, &format!("default_pool_size = {}\n{settings}", options.pool_size))
}

/// A seed of its own for each episode of each client, so that one can be run without the others.
fn episode_seed(seed: u64, person: Person, episode: u64) -> u64 {
    let mix = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (person.number as u64) << 48 ^ episode;
    mix.wrapping_mul(0xd134_2543_de82_ef95)
}

impl Run<'_> {
    fn enough(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0 || self.report.differences() >= self.options.differences
    }

    fn live(&self, person: Person) {
        for episode in 0.. {
            if self.enough() {
                return;
            }
            let person = person.at(episode);
            let mut history = History::new();
            // For as long as it may have a server: who waits to be alone keeps nobody from giving his back.
            let going = self.going.read();
            let difference = match self.begin(person, episode) {
                Ok(twins) => self.episode(twins, episode, &mut history),
                Err(error) => return self.report.trouble(&format!("an episode could not begin: {error}")),
            };
            drop(going);
            if let Some(difference) = difference {
                self.found(person, episode, &history, &difference);
            }
        }
    }

    fn begin(&self, person: Person, episode: u64) -> Result<Twins, String> {
        let mut begun = Err(String::new());
        for _ in 0..BEGIN_TRIES {
            begun = Twins::begin(self.ground, person, episode, PATIENCE);
            if begun.is_ok() {
                break;
            }
            std::thread::sleep(BEGIN_PAUSE);
        }
        begun
    }

    /// Lives until the two sessions differ or all is sent. Both sessions have ended then, and hold no server any more.
    fn episode(&self, mut twins: Twins, episode: u64, history: &mut History) -> Option<Difference> {
        let person = twins.person();
        let mut rng = Rng::new(episode_seed(self.seed, person, episode));
        let mut generator = Generator::new(&mut rng, person, &self.options.without);
        if let Some(difference) = twins.greeting() {
            return Some(difference);
        }
        for _ in 0..rng.between(EPISODE.0, EPISODE.1) {
            if self.enough() {
                return None;
            }
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok();
            let steps = generator.pipeline(&mut rng, twins.status());
            if !self.options.without.contains(&Deed::Vanish) && rng.chance(self.options.vanish) {
                // Within a message, or between two of a batch.
                let keep = match rng.chance(500) {
                    true => rng.index(twins.bytes(&steps).len()),
                    false => twins.unended(&steps[..rng.index(steps.len())]).len(),
                };
                self.report.vanished();
                twins.vanish(&steps, keep);
                return None;
            }
            let cuts = cuts(&mut rng, twins.bytes(&steps).len());
            let difference = twins.ask(self.ground, &steps, &cuts);
            self.report.pipeline(steps.len());
            history.push(steps);
            if difference.is_some() {
                return difference;
            }
            if twins.broken() {
                self.report.ended();
                return None;
            }
        }
        None
    }

    fn found(&self, person: Person, episode: u64, history: &History, difference: &Difference) {
        if difference.may_be(person) {
            return self.report.excused();
        }
        if difference.may_be_chance(person) {
            let _alone = self.going.write();
            if !shrink::always_differs(self.ground, person, self.seed, history) {
                return self.report.excused();
            }
        }
        let first = self.report.difference(person, difference);
        if !first {
            return;
        }
        let shorter = match self.options.no_shrink {
            true => None,
            false => shrink::shrink(self.ground, person, self.seed, history),
        };
        self.report.print(self.seed, person, episode, history, difference, shorter);
    }
}

/// Bytes arrive in pieces that end anywhere; mostly at once, now and then with pauses between.
fn cuts(rng: &mut Rng, len: usize) -> Cuts {
    if rng.chance(600) {
        return Cuts::new();
    }
    let mut ends: Vec<usize> = (0..rng.between(1, 6)).map(|_| rng.index(len)).collect();
    ends.sort_unstable();
    ends.into_iter().map(|end| (end, Duration::from_micros(rng.below(1_500)))).collect()
}
