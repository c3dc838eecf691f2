//! What every room of a worker needs and none owns: the time, the settings, what is put out, letters, the timers, chance, and what
//! is shared among sessions. Knows no clients, servers and pools.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use weir_wire::report::Report;
use weir_wire::write;

use crate::cluster::Clusters;
use crate::cluster::recipes::Recipes;
use crate::cluster::survey::Survey;
use crate::console::report::Question;
use crate::contract::event::Level;
use crate::derivations::{Derivations, Job, Recipe};
use crate::id::{ClientId, ConnId, ServerId, WorkerId};
use crate::kept::glance::Seen;
use crate::mail::{Letter, Mail};
use crate::outbox::Outbox;
use crate::parameters::{ParameterSet, ParameterSets};
use crate::peer::Endpoint;
use crate::settings::Settings;
use crate::statements::{Statement, StatementCache};
use crate::time::Time;
use crate::timers::Timers;
use crate::watched::{Errors, Teller};

/// Numbers of clients and servers, as the console and the log have them, shared by all workers of a process: no two are alike.
#[derive(Debug, Clone, Default)]
pub struct Numbers(Arc<AtomicU64>);

impl Numbers {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }
}

/// What a worker is born with.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    pub id: WorkerId,
    /// How many workers the process has.
    pub workers: u16,
    /// Where all its random bytes come from: the operating system's, or a simulation's seed.
    pub seed: [u8; 32],
    /// Shared by all workers of a process and by nobody else: unknown users' salts derive from it.
    pub process_secret: [u8; 32],
    /// The wall clock at `Time(0)`, in microseconds since 1970: only for what the console prints.
    pub epoch_us: u64,
    /// The system's user that the process runs as: on a Unix socket that one is an administrator without a password.
    pub uid: Option<u32>,
    pub numbers: Numbers,
    /// The process whose place this one has taken, and where it hears of cancel requests for those whom it still serves.
    pub predecessor: Option<Endpoint>,
    /// Where this one is found, and whoever takes its place.
    pub place: Option<Endpoint>,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) config: WorkerConfig,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clusters: Clusters,
    pub(crate) survey: Survey,
    pub(crate) recipes: Recipes,
    pub(crate) now: Time,
    pub(crate) out: Outbox,
    pub(crate) timers: Timers,
    pub(crate) statements: StatementCache,
    pub(crate) parameter_sets: ParameterSets,
    pub(crate) no_parameters: Arc<ParameterSet>,
    pub(crate) plain_text: Seen,
    /// What clients were told, on this worker.
    pub(crate) errors: Errors,
    rng: ChaCha12Rng,
    /// Letters to ourselves, read when the input in hand is dealt with.
    own_letters: VecDeque<Letter>,
    letters_sent: u64,
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
            clusters: Clusters::default(),
            survey: Survey::default(),
            recipes: Recipes::default(),
            now: Time(0),
            out: Outbox::default(),
            timers: Timers::default(),
            parameter_sets,
            plain_text: Seen::default(),
            errors: Errors::default(),
            rng,
            own_letters: VecDeque::new(),
            letters_sent: 0,
            config,
            #[cfg(feature = "planted")]
            planted: None,
            #[cfg(feature = "planted")]
            planted_chances: 0,
        }
    }

    /// An error of ours.
    pub(crate) fn tell_error(&mut self, id: ClientId, report: &Report) {
        self.errors.count(Teller::Weir, report.code.as_bytes());
        self.out.send(id, |out| write::report(out, report));
    }

    pub(crate) fn random<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        let mut bytes = [0; COUNT];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    /// A number for a client or server that no other of the process has.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.config.numbers.next()
    }

    pub(crate) fn post(&mut self, to: WorkerId, letter: Letter) {
        if to == self.config.id {
            self.own_letters.push_back(letter);
        } else {
            self.send_mail(to, letter, None);
        }
    }

    /// Asks each worker, this one too.
    pub(crate) fn ask_workers(&mut self, question: &Question, asker: Option<ClientId>) {
        for worker in 0..self.config.workers {
            self.post(WorkerId(worker), Letter::Ask { question: question.clone(), asker });
        }
    }

    /// What this server's client changes in code: it is told behind the input in hand.
    #[cold]
    pub(crate) fn code_may_be_there(&mut self, server: ServerId) {
        self.post(self.config.id, Letter::CodeAltered { server });
    }

    pub(crate) fn tell_steward(&mut self, letter: Letter) {
        self.post(WorkerId::STEWARD, letter);
    }

    pub(crate) fn send_mail(&mut self, to: WorkerId, letter: Letter, conn: Option<ConnId>) {
        self.letters_sent += 1;
        self.out.mail(to, Mail(letter), conn);
    }

    /// The next letter to ourselves.
    pub(crate) fn next_letter(&mut self) -> Option<Letter> {
        self.own_letters.pop_front()
    }

    pub(crate) fn letters_sent(&self) -> u64 {
        self.letters_sent
    }

    pub(crate) fn derive(&mut self, derivations: &mut Derivations, job: Job, recipe: Recipe) {
        derivations.want(job, recipe);
        self.begin_derivations(derivations);
    }

    pub(crate) fn begin_derivations(&mut self, derivations: &mut Derivations) {
        while let Some((number, recipe)) = derivations.begin() {
            self.out.derive(number, &recipe.password, recipe.salt, recipe.iterations);
        }
    }

    pub(crate) fn other_workers(&self) -> impl Iterator<Item = WorkerId> + use<> {
        let own = self.config.id;
        (0..self.config.workers).map(WorkerId).filter(move |&worker| worker != own)
    }

    /// Copies of this text on servers may be older than the tables that they were made for: on all workers, whatever they were
    /// parsed under.
    pub(crate) fn outdate(&mut self, statement: &Statement) {
        // One client's alone is in no cache.
        statement.refresh();
        self.statements.refresh(&statement.definition);
        let definition: Arc<[u8]> = (&*statement.definition).into();
        for worker in self.other_workers() {
            self.post(worker, Letter::Outdated { definition: Arc::clone(&definition) });
        }
    }

    pub(crate) fn log_debug(&mut self, text: String) {
        self.out.log(Level::Debug, text);
    }

    pub(crate) fn log_info(&mut self, text: String) {
        self.out.log(Level::Info, text);
    }

    pub(crate) fn log_error(&mut self, text: String) {
        self.out.log(Level::Error, text);
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
