//! How throughput grows with cores: core's real workers, each on a simulated core that takes its time.
//!
//! Owns the cases, what is measured, and what must hold of it. The cores, the network and the two ends are in `world.rs`.
//! What an input, a send or a letter costs is a model ([`Costs`]), ten times slower than the real thing so that a second is
//! simulated in a second; what is shown is who does the work and how many letters that takes, not how fast it is.

mod world;

use std::fmt;

use world::World;

/// What a core takes for what, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    pub input_us: u64,
    pub send_us: u64,
    pub letter_us: u64,
    pub wake_us: u64,
}

pub const COSTS: Costs = Costs { input_us: 50, send_us: 30, letter_us: 20, wake_us: 20 };
/// From one end of a connection to the other, and from worker to worker.
pub const NETWORK_US: u64 = 50;
pub const LETTER_TRAVEL_US: u64 = 5;
/// A query's time on its server: this on average, exponential.
pub const SERVICE_US: u64 = 2_000;
/// How often a worker's load is measured, as the drivers do.
pub const LOAD_PERIOD_US: u64 = 100_000;
/// Until then load finds its place; from then on is measured.
const WARM_US: u64 = 14_000_000;
const MEASURED_US: u64 = 2_000_000;

/// How busy clients are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// All ask again at once.
    Even,
    /// A few do that, the many ask once in a while.
    Skewed,
    /// Two groups take turns of a second each.
    Bursty,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Even => "even",
            Self::Skewed => "skewed",
            Self::Bursty => "bursty",
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub cores: u16,
    pub servers: u32,
    pub pattern: Pattern,
    pub seed: u64,
}

impl Case {
    /// What one transaction takes on a core: two inputs and two sends.
    fn transaction_us() -> u64 {
        2 * (COSTS.input_us + COSTS.send_us)
    }

    /// What cores could do and what servers could do, in transactions a second. A server is in use from the moment its
    /// client's query is dealt with until its answer is.
    pub fn capacities(&self) -> (f64, f64) {
        let cores = f64::from(self.cores) * 1e6 / Self::transaction_us() as f64;
        let in_use_us = SERVICE_US + 2 * NETWORK_US + Self::transaction_us();
        (cores, f64::from(self.servers) * 1e6 / in_use_us as f64)
    }

    pub fn capacity(&self) -> f64 {
        let (cores, servers) = self.capacities();
        cores.min(servers)
    }

    /// Busy clients at one moment, and quiet ones.
    pub fn clients(&self) -> (u32, u32) {
        let busy = self.servers + self.servers / 2 + 4;
        match self.pattern {
            Pattern::Even => (busy, 0),
            Pattern::Skewed => (busy, 2 * busy),
            Pattern::Bursty => (2 * busy, 0),
        }
    }
}

/// What came of a case.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    pub transactions: u64,
    /// A second.
    pub throughput: f64,
    pub busy_permille: Vec<u32>,
    /// Cores that did anything at all.
    pub awake: usize,
    pub cores_with_servers: usize,
    pub letters: u64,
    pub clients_moved: u64,
    /// From a query's leaving its client to its answer's coming.
    pub wait_us: [u64; 2],
}

impl Measured {
    pub fn letters_per_100(&self) -> f64 {
        self.letters as f64 * 100.0 / self.transactions.max(1) as f64
    }

    /// All cores' time together, in cores.
    pub fn busy(&self) -> f64 {
        self.busy_permille.iter().sum::<u32>() as f64 / 1000.0
    }
}

pub fn run(case: Case) -> Measured {
    let mut world = World::new(case);
    world.run_until(WARM_US);
    world.begin_measuring();
    world.run_until(WARM_US + MEASURED_US);
    world.measured(MEASURED_US)
}

/// Of what cores or servers can do, whichever is less, at least so much is done.
const REACHED_MIN: f64 = 0.7;
/// Where clients come and go by the hundred each second, load has not found its place when it is gone again.
const REACHED_BURSTY_MIN: f64 = 0.6;
const LETTERS_PER_100_MAX: f64 = 1.0;

/// What does not hold that should: nothing, if all is well.
pub fn broken(case: &Case, measured: &Measured) -> Vec<String> {
    let mut broken = Vec::new();
    let reached = measured.throughput / case.capacity();
    let least = if case.pattern == Pattern::Bursty { REACHED_BURSTY_MIN } else { REACHED_MIN };
    if reached < least {
        broken.push(format!("only {reached:.2} of what cores and servers can do"));
    }
    if measured.letters_per_100() > LETTERS_PER_100_MAX {
        broken.push(format!("{:.2} letters per 100 transactions", measured.letters_per_100()));
    }
    // A worker that is awake does a fair part of the work; the steward may have letters to read besides.
    let most = (measured.busy() / 0.35).ceil() as usize + 1;
    if measured.awake > most {
        broken.push(format!("{} cores are awake for the work of {:.1}", measured.awake, measured.busy()));
    }
    if measured.cores_with_servers > most.min(measured.awake.max(1)) {
        broken.push(format!("servers live on {} cores", measured.cores_with_servers));
    }
    broken
}

pub const HEADER: &str =
    " cores servers clients pattern    tx/s  of max   busy awake homes letters/100   moved    p50 ms    p99 ms";

/// A line of the table.
pub fn line(case: &Case, measured: &Measured) -> String {
    let (busy, quiet) = case.clients();
    format!(
        "{:>6} {:>7} {:>7} {:<7} {:>7.0} {:>7.2} {:>6.1} {:>5} {:>5} {:>11.3} {:>7} {:>9.1} {:>9.1}",
        case.cores,
        case.servers,
        busy + quiet,
        case.pattern,
        measured.throughput,
        measured.throughput / case.capacity(),
        measured.busy(),
        measured.awake,
        measured.cores_with_servers,
        measured.letters_per_100(),
        measured.clients_moved,
        measured.wait_us[0] as f64 / 1000.0,
        measured.wait_us[1] as f64 / 1000.0,
    )
}

/// Every case of the table.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for servers in [4, 20, 100, 1_000] {
        for pattern in [Pattern::Even, Pattern::Skewed, Pattern::Bursty] {
            for cores in [1, 2, 4, 8, 16, 32, 64] {
                cases.push(Case { cores, servers, pattern, seed: 1 });
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(cores: u16, servers: u32, pattern: Pattern) -> Measured {
        let case = Case { cores, servers, pattern, seed: 7 };
        let measured = run(case);
        let broken = broken(&case, &measured);
        assert!(broken.is_empty(), "{broken:?}\n{HEADER}\n{}", line(&case, &measured));
        measured
    }

    #[test]
    fn a_small_pool_stays_on_one_of_many_cores() {
        let measured = holds(16, 4, Pattern::Even);
        assert_eq!((measured.awake, measured.cores_with_servers, measured.letters), (1, 1, 0));
    }

    #[test]
    fn a_pool_spreads_over_as_many_cores_as_its_load_needs() {
        holds(8, 20, Pattern::Skewed);
        holds(4, 20, Pattern::Bursty);
        holds(8, 100, Pattern::Even);
    }

    #[test]
    fn the_same_seed_does_the_same() {
        let case = Case { cores: 4, servers: 4, pattern: Pattern::Skewed, seed: 3 };
        assert_eq!(format!("{:?}", run(case)), format!("{:?}", run(case)));
    }
}
