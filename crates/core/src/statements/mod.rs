//! Prepared statements that outlive the server they were prepared on.
//!
//! Two Parse messages with the same text, the same parameter types and the same values of the parameters that parsing reads
//! are one statement, prepared on a server under one name of ours, whatever its clients call it. A client's session holds
//! names for statements, a server's session holds which of them it knows (its mirror); binding one that the server does not
//! know prepares it in the same write.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use weir_wire::backend::StatementShape;

use crate::id::WorkerId;
use crate::kept::leaves::Leaves;
use crate::kept::words::{Code, Words};
use crate::parameters::ParameterSet;
use crate::parameters::resets::Resets;
use crate::statements::definition::text_of;

mod client;
mod closes;
pub(crate) mod definition;
mod effect;
mod mirror;
mod unnamed;

pub(crate) use client::{ClientStatements, Held, Parsed, SavedStatements};
pub(crate) use closes::Closes;
pub(crate) use effect::{Effect, Runs, names_set_config, reads_nothing};
pub(crate) use mirror::{Bound, Evicted, Mirror, Portal, Presence, Shape};
pub(crate) use unnamed::{SavedUnnamed, Under, Unnamed};

/// A named statement's text may be this long; an unnamed one has no limit of ours.
pub(crate) const STATEMENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// An unnamed statement up to this size survives the end of its transaction, as it does in PostgreSQL.
pub(crate) const UNNAMED_BYTES_KEPT: usize = 32 * 1024;
/// Named statements that one client may hold.
pub(crate) const CLIENT_STATEMENTS_MAX: usize = 20_000;
/// Bytes of names and texts that one client may hold.
pub(crate) const CLIENT_STATEMENT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// No client's unnamed statement has this id.
pub(crate) const UNNAMED_UNKNOWN: u64 = u64::MAX;
const CACHE_SWEPT_ABOVE: usize = 1024;
const CACHE_SWEPT_ABOVE_BYTES: usize = 16 * 1024 * 1024;

/// Texts of unnamed statements whose Parse is not answered yet, of one client.
const UNNAMED_SENT_BYTES_MAX: usize = 64 * 1024;

/// What statements are called on servers; no client's name reaches a server for a statement of ours. What follows is random:
/// SQL can reach any name that the protocol can give (both are cut to 63 bytes), so it must not be possible to guess one.
pub(crate) const SERVER_NAME_PREFIX: &str = "weir_";

/// Whether a name is one that we gave: a client that does not hold the statement itself must not reach it by that name.
pub(crate) fn is_server_name(name: &[u8]) -> bool {
    name.starts_with(SERVER_NAME_PREFIX.as_bytes())
}

#[derive(Debug)]
pub(crate) struct Statement {
    /// Unique among all workers.
    pub(crate) id: u64,
    pub(crate) server_name: Box<str>,
    pub(crate) definition: Box<[u8]>,
    /// The parameters that parsing reads, as they stood when the client prepared it.
    pub(crate) reading: Arc<ParameterSet>,
    /// What clients call it, where this is a copy for those who have other parameters by now. As long as servers know the
    /// copy, who prepares the other shares it.
    original: Option<Arc<Statement>>,
    /// In no cache: prepared where the parameters were not known for certain, for one client alone.
    pub(crate) private: bool,
    reads_nothing: bool,
    pub(crate) effect: Effect,
    /// What it may leave in its session, once somebody has asked.
    leaves: OnceLock<Leaves>,
    /// And by what it calls, as that was known when somebody has asked last.
    called: Mutex<Called>,
    /// What it takes back to a session's defaults.
    pub(crate) resets: Option<Arc<Resets>>,
    /// Moves on when servers' copies may be older than the tables that they were made for.
    copies: AtomicU32,
    /// What a server made of it last, 0 while nobody asked.
    shape: AtomicU64,
}

/// What is known of a statement by what it calls.
#[derive(Debug, Default)]
struct Called {
    by: Weak<Words>,
    leaves: Option<Leaves>,
    /// Neither that nor its own words leave anything.
    is_plain: bool,
}

impl Statement {
    /// Servers' copies may be older than the tables that they were made for.
    pub(crate) fn refresh(&self) {
        self.copies.fetch_add(1, Relaxed);
    }

    /// Nobody here has it, and nobody asks what the copy is that is made now: those that come back from elsewhere may be older.
    pub(crate) fn begin_anew(&self) {
        self.refresh();
        self.shape.store(0, Relaxed);
    }

    /// A client comes with the statement of another worker, or process, whose copies had this shape. Answers whether copies here are known to be as the
    /// one that its Parse made.
    fn is_as_elsewhere(&self, shape: u64) -> bool {
        self.shape.swap(shape, Relaxed) == shape && shape != 0
    }

    /// What a server made of it last, for another process; 0 while nobody asked.
    pub(crate) fn shape(&self) -> u64 {
        self.shape.load(Relaxed)
    }

    /// A copy that was made just now has this shape; answers whether those that were made before are known to have the same.
    pub(crate) fn is_as_before(&self, shape: StatementShape) -> bool {
        let shape = shape.digest() | 1;
        self.shape.swap(shape, Relaxed) == shape
    }

    /// Whether it is the same statement for a client that has these values of the parameters that parsing reads.
    #[inline]
    pub(crate) fn is_same_under(&self, reading: &Arc<ParameterSet>) -> bool {
        Arc::ptr_eq(reading, &self.reading) || self.reads_nothing
    }

    /// What it may leave in its session.
    pub(crate) fn leaves(&self) -> &Leaves {
        self.leaves.get_or_init(|| Leaves::of(&self.definition))
    }

    /// What it may leave by what it calls.
    pub(crate) fn called(&self, words: &Arc<Words>) -> Option<Leaves> {
        self.by_words(words, |called| called.leaves.clone())
    }

    /// It calls none of that code, for certain.
    pub(crate) fn calls_nothing_of(&self, code: &Code) -> bool {
        matches!(code, Code::Known(words) if self.called(words).is_none())
    }

    /// Whether it leaves nothing for certain.
    pub(crate) fn is_plain(&self, words: &Arc<Words>) -> bool {
        self.by_words(words, |called| called.is_plain)
    }

    fn by_words<T>(&self, words: &Arc<Words>, of: impl FnOnce(&Called) -> T) -> T {
        let mut known = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::ptr::eq(known.by.as_ptr(), Arc::as_ptr(words)) {
            let leaves = words.leaves(&self.definition);
            let is_plain = leaves.is_none() && !self.leaves().is_of_note();
            *known = Called { by: Arc::downgrade(words), leaves, is_plain };
        }
        of(&known)
    }

    /// Whether it is what PostgreSQL neither analyses at its Parse nor plans.
    pub(crate) fn is_utility(&self) -> bool {
        self.reads_nothing
    }

    /// Whether parsing it reads no parameter.
    pub(crate) fn reads_nothing(&self) -> bool {
        self.reads_nothing || self.reading.is_empty()
    }

    /// The same, parsed under these values as is known now.
    fn parsed_under(&self, reading: &Arc<ParameterSet>) -> Arc<Self> {
        Arc::new(Self { reading: Arc::clone(reading), ..self.own_copy() })
    }

    /// The same, counted by nobody else.
    fn own_copy(&self) -> Self {
        Self {
            id: self.id,
            server_name: self.server_name.clone(),
            definition: self.definition.clone(),
            reading: Arc::new(self.reading.own_copy()),
            original: self.original.as_ref().map(|original| Arc::new(original.own_copy())),
            private: self.private,
            reads_nothing: self.reads_nothing,
            effect: self.effect,
            leaves: OnceLock::new(),
            called: Mutex::default(),
            resets: self.resets.as_deref().map(|resets| Arc::new(resets.clone())),
            copies: AtomicU32::new(self.copies.load(Relaxed)),
            shape: AtomicU64::new(self.shape.load(Relaxed)),
        }
    }
}

/// Looks a statement up by its definition.
#[derive(Debug)]
struct ByDefinition(Arc<Statement>);

impl Borrow<[u8]> for ByDefinition {
    fn borrow(&self) -> &[u8] {
        &self.0.definition
    }
}

impl Ord for ByDefinition {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.definition.cmp(&other.0.definition)
    }
}

impl PartialOrd for ByDefinition {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.0.definition == other.0.definition
    }
}

impl Eq for ByDefinition {}

/// The parameters that parsing reads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Read {
    /// As they stood when a client prepared the statement.
    parsed: Arc<ParameterSet>,
    /// As they stand when it is used: PostgreSQL plans it under these, and where tables have changed it parses it again.
    used: Arc<ParameterSet>,
}

/// All statements of a worker's clients.
#[derive(Debug)]
pub(crate) struct StatementCache {
    worker: WorkerId,
    made: u64,
    rng: ChaCha12Rng,
    statements: BTreeMap<Read, BTreeSet<ByDefinition>>,
    count: usize,
    sweep_above: usize,
    bytes: usize,
    sweep_above_bytes: usize,
}

impl StatementCache {
    pub(crate) fn new(worker: WorkerId, rng: &mut ChaCha12Rng) -> Self {
        Self {
            worker,
            made: 0,
            rng: ChaCha12Rng::from_rng(rng),
            statements: BTreeMap::new(),
            count: 0,
            sweep_above: CACHE_SWEPT_ABOVE,
            bytes: 0,
            sweep_above_bytes: CACHE_SWEPT_ABOVE_BYTES,
        }
    }

    /// The statement of this definition, where the parameters that parsing reads stand as in `reading`.
    pub(crate) fn intern(&mut self, definition: &[u8], reading: &Arc<ParameterSet>) -> Arc<Statement> {
        let read = Read { parsed: Arc::clone(reading), used: Arc::clone(reading) };
        self.intern_read(definition, read, None)
    }

    /// The statement of a client that comes from another worker.
    pub(crate) fn intern_again(&mut self, theirs: &Statement, reading: &Arc<ParameterSet>) -> Arc<Statement> {
        let statement = self.intern(&theirs.definition, reading);
        if statement.id == theirs.id {
            statement
        } else {
            self.intern_of_shape(&theirs.definition, reading, theirs.shape())
        }
    }

    /// That of another process, whose copies had this shape.
    pub(crate) fn intern_of_shape(
        &mut self,
        definition: &[u8],
        reading: &Arc<ParameterSet>,
        shape: u64,
    ) -> Arc<Statement> {
        let statement = self.intern(definition, reading);
        if !statement.is_as_elsewhere(shape) {
            // They may be older than the client's Parse.
            self.refresh(definition);
        }
        statement
    }

    /// A copy of this statement for those who have other parameters now than when they prepared it.
    pub(crate) fn used_under(&mut self, statement: &Arc<Statement>, reading: &Arc<ParameterSet>) -> Arc<Statement> {
        let read = Read { parsed: Arc::clone(&statement.reading), used: Arc::clone(reading) };
        self.intern_read(&statement.definition, read, Some(statement))
    }

    #[expect(clippy::mutable_key_type, reason = "statements are in the order of their definitions, which never change")]
    fn intern_read(&mut self, definition: &[u8], read: Read, original: Option<&Arc<Statement>>) -> Arc<Statement> {
        if let Some(known) = self.statements.get(&read).and_then(|statements| statements.get(definition)) {
            return Arc::clone(&known.0);
        }
        self.bytes += definition.len();
        if self.count >= self.sweep_above || self.bytes > self.sweep_above_bytes {
            self.sweep();
            self.bytes += definition.len();
        }
        let statement = self.make(definition, &read.parsed, false, original);
        self.count += 1;
        let statements = self.statements.entry(read).or_default();
        statements.insert(ByDefinition(Arc::clone(&statement)));
        statement
    }

    /// One that nobody else ever gets.
    pub(crate) fn private(&mut self, definition: &[u8], reading: &Arc<ParameterSet>) -> Arc<Statement> {
        self.make(definition, reading, true, None)
    }

    fn make(
        &mut self,
        definition: &[u8],
        reading: &Arc<ParameterSet>,
        private: bool,
        original: Option<&Arc<Statement>>,
    ) -> Arc<Statement> {
        Arc::new(Statement {
            id: self.next_id(),
            server_name: self.random_name().into(),
            definition: definition.into(),
            reading: Arc::clone(reading),
            original: original.cloned(),
            private,
            reads_nothing: reads_nothing(definition),
            effect: Effect::of(definition),
            leaves: OnceLock::new(),
            called: Mutex::default(),
            resets: Resets::of_text(text_of(definition)),
            copies: AtomicU32::new(0),
            shape: AtomicU64::new(0),
        })
    }

    /// A name on servers that nobody can guess.
    pub(crate) fn random_name(&mut self) -> String {
        let mut random = [0; 16];
        self.rng.fill_bytes(&mut random);
        let mut name = SERVER_NAME_PREFIX.to_owned();
        for byte in random {
            let _ = write!(name, "{byte:02x}");
        }
        name
    }

    /// Drops what no client and no server knows any more.
    fn sweep(&mut self) {
        self.statements.retain(|_, statements| {
            statements.retain(|statement| Arc::strong_count(&statement.0) > 1);
            !statements.is_empty()
        });
        let all = || self.statements.values().flatten();
        self.count = all().count();
        self.bytes = all().map(|statement| statement.0.definition.len()).sum();
        self.sweep_above = CACHE_SWEPT_ABOVE.max(self.count * 2);
        self.sweep_above_bytes = CACHE_SWEPT_ABOVE_BYTES.max(self.bytes * 2);
    }

    /// Copies of this text may be old, whatever the parameters are that they were parsed under.
    pub(crate) fn refresh(&self, definition: &[u8]) {
        let known = self.statements.values().filter_map(|statements| statements.get(definition));
        known.for_each(|known| known.0.refresh());
    }

    /// A number that no other statement of any worker has.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.made += 1;
        (u64::from(self.worker.0) << 48) | self.made
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn cache() -> StatementCache {
        StatementCache::new(WorkerId(2), &mut ChaCha12Rng::from_seed([7; 32]))
    }

    pub(super) fn reading() -> Arc<ParameterSet> {
        Arc::default()
    }

    #[test]
    fn the_same_definition_is_the_same_statement() {
        let mut cache = cache();
        let one = cache.intern(b"select 1\0\0\0", &reading());
        assert_eq!(one.id, cache.intern(b"select 1\0\0\0", &reading()).id);
        assert_ne!(one.id, cache.intern(b"select 2\0\0\0", &reading()).id);
        let mut berlin = ParameterSet::default();
        berlin.set("TimeZone", b"Europe/Berlin", true);
        assert_ne!(one.id, cache.intern(b"select 1\0\0\0", &Arc::new(berlin)).id);
        assert_ne!(one.id, cache.private(b"select 1\0\0\0", &reading()).id);
    }

    #[test]
    fn copies_are_believed_for_a_client_of_another_worker_where_the_same_is_known_of_its_own() {
        let (mut here, mut cache) = (cache(), StatementCache::new(WorkerId(3), &mut ChaCha12Rng::from_seed([7; 32])));
        let [ours, theirs] = [&mut here, &mut cache].map(|cache| cache.intern(b"select 1\0\0\0", &reading()));
        let mut refreshed = |theirs: &Statement| {
            let before = ours.copies.load(Relaxed);
            here.intern_again(theirs, &reading());
            ours.copies.load(Relaxed) != before
        };
        assert!(refreshed(&theirs), "nothing is known of either");
        let shape = StatementShape::new(weir_wire::backend::RowShape::NO_ROWS, None);
        theirs.is_as_before(shape);
        assert!(refreshed(&theirs), "nothing is known of ours");
        assert!(!refreshed(&theirs));
        theirs.begin_anew();
        assert!(refreshed(&theirs), "nobody has asked what its new copy is");
        assert!(!refreshed(&ours), "it is here already");
    }

    #[test]
    fn names_on_servers_fit_and_differ() {
        let mut cache = cache();
        let (one, two) = (cache.random_name(), cache.random_name());
        assert!(one != two && one.len() < 63 && is_server_name(one.as_bytes()));
    }

    #[test]
    fn unused_statements_are_swept() {
        let mut cache = cache();
        for number in 0..10 * CACHE_SWEPT_ABOVE {
            cache.intern(format!("select {number}").as_bytes(), &reading());
        }
        assert!(cache.count <= CACHE_SWEPT_ABOVE);
    }
}
