//! What every room of a worker needs and none owns: the time, the settings, what is put out, the timers, chance, and what is
//! shared among sessions. Knows no clients, servers and pools.

use std::sync::Arc;

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use crate::contract::Level;
use crate::outbox::Outbox;
use crate::parameters::{ParameterSet, ParameterSets};
use crate::settings::Settings;
use crate::statements::StatementCache;
use crate::time::Time;
use crate::timers::Timers;
use crate::worker::WorkerConfig;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: WorkerConfig,
    pub(crate) settings: Arc<Settings>,
    pub(crate) now: Time,
    pub(crate) out: Outbox,
    pub(crate) timers: Timers,
    pub(crate) statements: StatementCache,
    pub(crate) parameter_sets: ParameterSets,
    pub(crate) no_parameters: Arc<ParameterSet>,
    rng: ChaCha12Rng,
    numbers: u64,
    #[cfg(feature = "planted")]
    pub(crate) planted: Option<crate::planted::Planted>,
    #[cfg(feature = "planted")]
    planted_chances: u64,
}

impl Context {
    pub(crate) fn new(config: WorkerConfig, settings: Arc<Settings>) -> Self {
        let mut parameter_sets = ParameterSets::default();
        let mut rng = ChaCha12Rng::from_seed(config.seed);
        Self {
            no_parameters: parameter_sets.intern(ParameterSet::default()),
            statements: StatementCache::new(config.id, &mut rng),
            settings,
            now: Time(0),
            out: Outbox::default(),
            timers: Timers::default(),
            parameter_sets,
            rng,
            numbers: 0,
            config,
            #[cfg(feature = "planted")]
            planted: None,
            #[cfg(feature = "planted")]
            planted_chances: 0,
        }
    }

    pub(crate) fn random<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        let mut bytes = [0; COUNT];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    /// A number for a client or server that no other of the process has.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers * u64::from(self.config.workers) + u64::from(self.config.id.0)
    }

    pub(crate) fn log_debug(&mut self, text: String) {
        self.out.log(Level::Debug, text);
    }

    pub(crate) fn log_info(&mut self, text: String) {
        self.out.log(Level::Info, text);
    }

    pub(crate) fn log_warning(&mut self, text: String) {
        self.out.log(Level::Warning, text);
    }

    /// Whether the planted bug strikes this time.
    #[cfg(feature = "planted")]
    pub(crate) fn planted_now(&mut self, bug: crate::planted::Planted) -> bool {
        if self.planted != Some(bug) {
            return false;
        }
        self.planted_chances += 1;
        self.planted_chances.is_multiple_of(13)
    }
}
