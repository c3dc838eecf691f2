//! Prepared statements that outlive the server they were prepared on.
//!
//! Two Parse messages with the same text and the same parameter types are one statement, prepared on a server under one
//! name of ours, whatever its clients call it. A client's session holds names for statements, a server's session holds
//! which of them it knows (its mirror); binding one that the server does not know prepares it in the same write.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use weir_wire::backend::RowShape;

use crate::id::WorkerId;

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
/// Descriptions of one client above which those of statements that it has closed are dropped.
const DESCRIBED_SWEPT_ABOVE: usize = 64;
const CACHE_SWEPT_ABOVE_BYTES: usize = 16 * 1024 * 1024;

/// What statements are called on servers; no client's name reaches a server for a statement of ours.
const SERVER_NAME_PREFIX: &str = "weir_";
/// Whether a name is one that we gave: a client that does not hold the statement itself must not reach it by that name.
pub(crate) fn is_server_name(name: &[u8]) -> bool {
    name.starts_with(SERVER_NAME_PREFIX.as_bytes())
}

/// A name that no server ever knows: describing it always fails, which is how an error of ours comes at the right place
/// in the stream of replies, and puts the server into the same error state.
pub(crate) const ABSENT_STATEMENT: &[u8] = b"weir absent";

#[derive(Debug)]
pub(crate) struct Statement {
    /// Unique among all workers.
    pub(crate) id: u64,
    pub(crate) server_name: Box<str>,
    pub(crate) definition: Box<[u8]>,
    /// Moves on when the plan's result type changed: servers that know an older generation prepare it anew.
    generation: AtomicU32,
}

impl Statement {
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Relaxed)
    }

    pub(crate) fn outdate(&self) {
        self.generation.fetch_add(1, Relaxed);
    }

    /// The same, counted by nobody else.
    fn own_copy(&self) -> Self {
        Self {
            id: self.id,
            server_name: self.server_name.clone(),
            definition: self.definition.clone(),
            generation: AtomicU32::new(self.generation()),
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

/// All statements of a worker's clients.
#[derive(Debug)]
pub(crate) struct StatementCache {
    worker: WorkerId,
    made: u64,
    statements: BTreeSet<ByDefinition>,
    sweep_above: usize,
    bytes: usize,
    sweep_above_bytes: usize,
}

impl StatementCache {
    pub(crate) fn new(worker: WorkerId) -> Self {
        Self {
            worker,
            made: 0,
            statements: BTreeSet::new(),
            sweep_above: CACHE_SWEPT_ABOVE,
            bytes: 0,
            sweep_above_bytes: CACHE_SWEPT_ABOVE_BYTES,
        }
    }

    pub(crate) fn intern(&mut self, definition: &[u8]) -> Arc<Statement> {
        if let Some(known) = self.statements.get(definition) {
            return Arc::clone(&known.0);
        }
        self.bytes += definition.len();
        if self.statements.len() >= self.sweep_above || self.bytes > self.sweep_above_bytes {
            self.sweep();
            self.bytes += definition.len();
        }
        let id = self.next_id();
        let statement = Arc::new(Statement {
            id,
            server_name: format!("{SERVER_NAME_PREFIX}{}_{}", self.worker.0, self.made).into(),
            definition: definition.into(),
            generation: AtomicU32::new(0),
        });
        self.statements.insert(ByDefinition(Arc::clone(&statement)));
        statement
    }

    /// Drops what no client and no server knows any more.
    fn sweep(&mut self) {
        self.statements.retain(|statement| Arc::strong_count(&statement.0) > 1);
        self.bytes = self.statements.iter().map(|statement| statement.0.definition.len()).sum();
        self.sweep_above = CACHE_SWEPT_ABOVE.max(self.statements.len() * 2);
        self.sweep_above_bytes = CACHE_SWEPT_ABOVE_BYTES.max(self.bytes * 2);
    }

    /// Another worker saw the result type of this statement change.
    pub(crate) fn outdate(&self, definition: &[u8]) {
        if let Some(known) = self.statements.get(definition) {
            known.0.outdate();
        }
    }

    /// A number that no other statement of any worker has.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.made += 1;
        (u64::from(self.worker.0) << 48) | self.made
    }
}

/// What a client calls its statements.
#[derive(Debug, Default)]
pub(crate) struct ClientStatements {
    by_name: BTreeMap<Box<[u8]>, Arc<Statement>>,
    /// The rows the client was told to expect, by statement, and the statement's generation at that time.
    described: BTreeMap<u64, (RowShape, u32)>,
    bytes: usize,
}

impl ClientStatements {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.by_name.get(name)
    }

    /// The rows that the client expects of it, if it has asked, and whether they are outdated for certain.
    pub(crate) fn expected(&self, statement: &Statement) -> Option<(RowShape, bool)> {
        let (shape, generation) = self.described.get(&statement.id)?;
        Some((*shape, *generation != statement.generation()))
    }

    pub(crate) fn described(&mut self, statement: &Statement, shape: RowShape) {
        self.described.insert(statement.id, (shape, statement.generation()));
        // A description may come after its statement was closed.
        if self.described.len() > DESCRIBED_SWEPT_ABOVE.max(2 * self.by_name.len()) {
            let held: BTreeSet<u64> = self.by_name.values().map(|statement| statement.id).collect();
            self.described.retain(|id, _| held.contains(id));
        }
    }

    /// The client has been told by an error that the rows changed: what it expects now is its own affair.
    pub(crate) fn told_of_change(&mut self, id: u64) {
        self.described.remove(&id);
    }

    pub(crate) fn has_room_for(&self, name: &[u8], definition_len: usize) -> bool {
        self.by_name.len() < CLIENT_STATEMENTS_MAX
            && self.bytes + name.len() + definition_len <= CLIENT_STATEMENT_BYTES_MAX
    }

    pub(crate) fn insert(&mut self, name: &[u8], statement: Arc<Statement>) {
        self.bytes += name.len() + statement.definition.len();
        if let Some(replaced) = self.by_name.insert(name.into(), statement) {
            self.bytes -= name.len() + replaced.definition.len();
        }
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Arc<Statement>> {
        let removed = self.by_name.remove(name)?;
        self.described.remove(&removed.id);
        self.bytes -= name.len() + removed.definition.len();
        Some(removed)
    }

    /// For the way to another worker: what statements are called and which rows they return, no more shared with this one.
    pub(crate) fn part(&mut self) {
        for statement in self.by_name.values_mut() {
            *statement = Arc::new(statement.own_copy());
        }
    }

    /// The statements are those of another worker now. Rows that were outdated there are outdated here.
    pub(crate) fn intern_again(&mut self, cache: &mut StatementCache) {
        let described = std::mem::take(&mut self.described);
        for statement in self.by_name.values_mut() {
            let ours = cache.intern(&statement.definition);
            if let Some((shape, generation)) = described.get(&statement.id) {
                let behind = statement.generation().wrapping_sub(*generation);
                self.described.insert(ours.id, (*shape, ours.generation().wrapping_sub(behind)));
            }
            *statement = ours;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.by_name.clear();
        self.described.clear();
        self.bytes = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }
}

/// A client's unnamed statement, kept so that it can be used on another server.
#[derive(Debug, Default)]
pub(crate) struct Unnamed {
    /// Which one it is; 0 while there is none.
    pub(crate) id: u64,
    /// Empty where it was too long to keep.
    pub(crate) definition: Vec<u8>,
}

#[derive(Debug)]
struct Known {
    statement: Arc<Statement>,
    generation: u32,
    used: u64,
    shape: Shape,
}

/// What is known of the rows that a server's plan returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Unknown,
    /// The server has been asked.
    Asked,
    Is(RowShape),
}

/// The statements that a server's session knows.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    known: BTreeMap<u64, Known>,
    uses: u64,
    /// The unnamed statement that was parsed last: its id in its client, 0 for none, [`UNNAMED_UNKNOWN`] where a
    /// message that would have changed it may not have been carried out.
    pub(crate) unnamed: u64,
    /// The statement of ours that the unnamed portal was bound to last, 0 for another's.
    pub(crate) bound: u64,
}

impl Mirror {
    /// Whether the server can bind it as it is; counts as a use.
    #[inline]
    pub(crate) fn knows(&mut self, statement: &Statement) -> bool {
        self.uses += 1;
        match self.known.get_mut(&statement.id) {
            Some(known) if known.generation == statement.generation() => {
                known.used = self.uses;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn add(&mut self, statement: &Arc<Statement>) {
        self.uses += 1;
        let generation = statement.generation();
        let (statement, shape) = (Arc::clone(statement), Shape::Unknown);
        self.known.insert(statement.id, Known { statement, generation, used: self.uses, shape });
    }

    /// For the way to another worker: shares nothing with this one any more.
    pub(crate) fn part(&mut self) {
        for known in self.known.values_mut() {
            known.statement = Arc::new(known.statement.own_copy());
        }
    }

    pub(crate) fn shape(&self, id: u64) -> Shape {
        self.known.get(&id).map_or(Shape::Unknown, |known| known.shape)
    }

    pub(crate) fn set_shape(&mut self, id: u64, shape: Shape) {
        if let Some(known) = self.known.get_mut(&id) {
            known.shape = shape;
        }
    }

    /// The question for its shape was never answered.
    pub(crate) fn ask_shape_again(&mut self, id: u64) {
        if self.shape(id) == Shape::Asked {
            self.set_shape(id, Shape::Unknown);
        }
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Evicted> {
        self.known.remove(&id).map(|known| Evicted { statement: known.statement, generation: known.generation })
    }

    /// The Close of an evicted statement was never carried out: the server still knows it.
    pub(crate) fn put_back(&mut self, evicted: &Evicted) {
        let statement = Arc::clone(&evicted.statement);
        let (generation, used, shape) = (evicted.generation, self.uses, Shape::Unknown);
        let known = Known { statement, generation, used, shape };
        self.known.insert(evicted.statement.id, known);
    }

    /// The least recently used one, where there is no room for another.
    pub(crate) fn evict(&mut self, limit: usize) -> Option<Evicted> {
        if self.known.len() < limit.max(1) {
            return None;
        }
        let oldest = self.known.values().min_by_key(|known| known.used)?.statement.id;
        self.remove(oldest)
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Arc<Statement>> {
        self.known.get(&id).map(|known| &known.statement)
    }

    /// All are gone from the server but those that are prepared after that.
    pub(crate) fn forget_all_but(&mut self, kept: &[u64]) {
        self.known.retain(|id, _| kept.contains(id));
        self.unnamed = UNNAMED_UNKNOWN;
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

/// A statement that a server is told to close.
#[derive(Debug)]
pub(crate) struct Evicted {
    pub(crate) statement: Arc<Statement>,
    generation: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_definition_is_the_same_statement() {
        let mut cache = StatementCache::new(WorkerId(2));
        let one = cache.intern(b"select 1\0\0\0");
        assert_eq!(one.id, cache.intern(b"select 1\0\0\0").id);
        assert_ne!(one.id, cache.intern(b"select 2\0\0\0").id);
        assert_eq!(&*one.server_name, "weir_2_1");
    }

    #[test]
    fn unused_statements_are_swept() {
        let mut cache = StatementCache::new(WorkerId(0));
        for number in 0..10 * CACHE_SWEPT_ABOVE {
            cache.intern(format!("select {number}").as_bytes());
        }
        assert!(cache.statements.len() <= CACHE_SWEPT_ABOVE);
    }

    #[test]
    fn the_least_recently_used_statement_is_evicted() {
        let mut cache = StatementCache::new(WorkerId(0));
        let [one, two] = [&b"1"[..], b"2"].map(|definition| cache.intern(definition));
        let mut mirror = Mirror::default();
        mirror.add(&one);
        mirror.add(&two);
        assert!(mirror.evict(3).is_none());
        assert!(mirror.knows(&one));
        assert_eq!(mirror.evict(2).unwrap().statement.id, two.id);
        assert!(!mirror.knows(&two));
    }

    #[test]
    fn an_outdated_statement_is_not_known() {
        let mut cache = StatementCache::new(WorkerId(0));
        let one = cache.intern(b"1");
        let mut mirror = Mirror::default();
        mirror.add(&one);
        one.outdate();
        assert!(!mirror.knows(&one));
        mirror.remove(one.id);
        mirror.add(&one);
        assert!(mirror.knows(&one));
    }

    #[test]
    fn descriptions_of_closed_statements_are_swept() {
        let mut cache = StatementCache::new(WorkerId(0));
        let mut statements = ClientStatements::default();
        let kept = cache.intern(b"kept");
        statements.insert(b"kept", Arc::clone(&kept));
        statements.described(&kept, RowShape::NO_ROWS);
        for number in 0..10_000 {
            let statement = cache.intern(format!("select {number}").as_bytes());
            statements.insert(b"a", Arc::clone(&statement));
            statements.remove(b"a");
            statements.described(&statement, RowShape::NO_ROWS);
        }
        assert!(statements.described.len() <= DESCRIBED_SWEPT_ABOVE);
        assert!(statements.expected(&kept).is_some());
    }

    #[test]
    fn a_clients_bytes_are_counted() {
        let mut cache = StatementCache::new(WorkerId(0));
        let mut statements = ClientStatements::default();
        statements.insert(b"a", cache.intern(b"1234"));
        statements.insert(b"a", cache.intern(b"12"));
        assert_eq!(statements.bytes, 3);
        assert!(!statements.has_room_for(b"b", CLIENT_STATEMENT_BYTES_MAX));
        statements.remove(b"a");
        assert_eq!(statements.bytes, 0);
    }
}
