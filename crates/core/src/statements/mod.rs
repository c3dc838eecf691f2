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
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use weir_wire::backend::StatementShape;

use crate::id::WorkerId;
use crate::parameters::ParameterSet;
use crate::reading;
use crate::resets::Resets;
use crate::sql::from_first_word;

mod client;
mod mirror;

pub(crate) use client::{ClientStatements, Held, Parsed, Unnamed};
pub(crate) use mirror::{Bound, Evicted, Mirror, Presence, Shape};

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
    /// What it takes back to a session's defaults.
    pub(crate) resets: Option<Arc<Resets>>,
    /// Moves on when servers' copies may be older than the tables that they were made for.
    copies: AtomicU32,
    /// What a server made of it last, 0 while nobody asked.
    shape: AtomicU64,
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

    /// A client comes with the statement of another worker. Answers whether copies here are known to be as the one that its Parse made.
    fn is_as_elsewhere(&self, theirs: &Self) -> bool {
        let shape = theirs.shape.load(Relaxed);
        theirs.id == self.id || (self.shape.swap(shape, Relaxed) == shape && shape != 0)
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
            resets: self.resets.as_deref().map(|resets| Arc::new(resets.clone())),
            copies: AtomicU32::new(self.copies.load(Relaxed)),
            shape: AtomicU64::new(self.shape.load(Relaxed)),
        }
    }
}

/// What a statement may do to the session, by its first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Effect {
    /// It begins a transaction, and leaves the session's parameters alone.
    BeginsTransaction,
    /// It ends a transaction, or a part of one: what was set in it may be taken back.
    EndsTransaction,
    /// It sets a parameter that parsing does not read.
    SetsUnread,
    /// It closes prepared statements.
    Deallocates,
    /// It sets no parameter that parsing reads, unless a function does that it calls.
    Plain,
    /// What it sets its command tag tells, unless a function does that it calls.
    Tagged,
    /// The same, of SET and RESET, which begin a transaction as queries do.
    Sets,
    /// It calls the function that sets parameters: no tag need tell what it sets.
    Anything,
    /// The same, in a query, which ends no transaction.
    Calls,
    /// Its text is not known: it may do all of this.
    #[default]
    Unknown,
}

impl Effect {
    pub(crate) fn of(definition: &[u8]) -> Self {
        const PLAIN: [&[u8]; 7] = [b"insert", b"update", b"delete", b"with", b"values", b"merge", b"table"];
        // Empty is what was too long to keep.
        if definition.is_empty() {
            return Self::Unknown;
        }
        let text = from_first_word(definition);
        let queries = reading::selects(text) || begins_with(text, &PLAIN);
        if names_set_config(text) {
            return if queries { Self::Calls } else { Self::Anything };
        }
        if queries {
            Self::Plain
        } else if reading::sets_unread(text) {
            Self::SetsUnread
        } else if begins_with(text, &[b"begin", b"start", b"savepoint", b"release"]) {
            Self::BeginsTransaction
        } else if begins_with(text, &[b"commit", b"end", b"rollback", b"abort"]) {
            Self::EndsTransaction
        } else if begins_with(text, &[b"deallocate", b"discard"]) {
            Self::Deallocates
        } else if begins_with(text, &[b"set", b"reset"]) {
            Self::Sets
        } else {
            Self::Tagged
        }
    }

    /// Whether it may set parameters that parsing reads, for all that its text says.
    pub(crate) fn may_set(self) -> bool {
        matches!(self, Self::Anything | Self::Calls | Self::Unknown | Self::Tagged | Self::Sets | Self::Deallocates)
    }

    /// Whether it may set one without a word.
    pub(crate) fn may_set_untold(self) -> bool {
        matches!(self, Self::Anything | Self::Calls | Self::Unknown)
    }

    /// Whether it may end a transaction.
    pub(crate) fn may_end(self) -> bool {
        !matches!(self, Self::Plain | Self::Calls | Self::BeginsTransaction | Self::Sets | Self::SetsUnread)
    }

    /// Whether it may close prepared statements, unless a function does that it calls.
    pub(crate) fn may_deallocate(self) -> bool {
        matches!(self, Self::Deallocates | Self::Unknown)
    }
}

fn begins_with(text: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|word| {
        let ends = text.get(word.len()).is_none_or(|next| !next.is_ascii_alphanumeric() && *next != b'_');
        text.len() >= word.len() && ends && text[..word.len()].eq_ignore_ascii_case(word)
    })
}

/// Whether a text may call the one function of PostgreSQL's own that sets parameters.
pub(crate) fn names_set_config(text: &[u8]) -> bool {
    // Most texts have neither of these pairs anywhere; sixteen places are looked at as one, the last of them twice.
    const IN_NAME: [u8; 2] = *b"_c";
    const IN_ESCAPED: [u8; 2] = *b"&\"";
    const PLACES: usize = 16;
    let mut seen = [0; PLACES];
    let mut look = |at: &[u8; PLACES + 1]| {
        for (place, seen) in seen.iter_mut().enumerate() {
            let pair = [at[place], at[place + 1]];
            let in_name = (pair[0] == IN_NAME[0]) & (pair[1] | 0x20 == IN_NAME[1]);
            let in_escaped = (pair[0] == IN_ESCAPED[0]) & (pair[1] == IN_ESCAPED[1]);
            *seen |= u8::from(in_name | in_escaped);
        }
    };
    // A call with its three arguments is longer.
    let Some(last) = text.last_chunk() else { return false };
    let mut rest = text;
    while let Some(at) = rest.first_chunk() {
        look(at);
        rest = &rest[PLACES..];
    }
    look(last);
    seen != [0; PLACES] && calls_set_config(text)
}

/// By its name, or by one that is written in Unicode escapes and may be any.
#[cold]
fn calls_set_config(text: &[u8]) -> bool {
    let has = |word: &[u8]| text.windows(word.len()).any(|at| at.eq_ignore_ascii_case(word));
    has(b"set_config") || has(b"u&\"")
}

/// Whether a statement is one that PostgreSQL does not analyse at its Parse (`transformStmt`, src/backend/parser/analyze.c at 15:
/// the default of its switch), so that no literal is read under the parameters: it is analysed when it is executed, under those of
/// then. Among them are those that a transaction which has failed lets through, those that may not run behind another of their
/// batch (`PreventInTransactionBlock`) or end transactions themselves, and LOCK, ahead of which no snapshot may be taken: a query of
/// ours in front that sets parameters would be the failure of each. The scanner alone reads under parameters: what a backslash
/// and `U&` mean, and other bytes than ASCII.
pub(crate) fn reads_nothing(definition: &[u8]) -> bool {
    const WORDS: [&[u8]; 31] = [
        b"abort",
        b"alter",
        b"analyse",
        b"analyze",
        b"begin",
        b"checkpoint",
        b"cluster",
        b"comment",
        b"commit",
        b"deallocate",
        b"discard",
        b"do",
        b"drop",
        b"end",
        b"grant",
        b"listen",
        b"lock",
        b"prepare",
        b"refresh",
        b"reindex",
        b"release",
        b"reset",
        b"revoke",
        b"rollback",
        b"savepoint",
        b"set",
        b"show",
        b"start",
        b"truncate",
        b"unlisten",
        b"vacuum",
    ];
    // CREATE TABLE ... AS and its like are analysed.
    const CREATED: [&[u8]; 5] = [b"database", b"index", b"subscription", b"tablespace", b"unique"];
    let text = definition.trim_ascii_start();
    let begins = begins_with(text, &WORDS)
        || (begins_with(text, &[b"create"]) && begins_with(text[b"create".len()..].trim_ascii_start(), &CREATED));
    begins && definition.is_ascii() && !definition.iter().any(|byte| matches!(byte, b'\\' | b'&'))
}

/// The text of a statement's definition, which the types of its parameters follow.
pub(crate) fn text_of(definition: &[u8]) -> &[u8] {
    definition.split(|&byte| byte == 0).next().unwrap_or_default()
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
        if !statement.is_as_elsewhere(theirs) {
            // They may be older than the client's Parse.
            self.refresh(&theirs.definition);
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
mod tests {
    use super::*;

    pub(super) fn cache() -> StatementCache {
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
    fn what_sets_parameters_is_told_from_what_does_not() {
        for plain in ["select 1", " WITH a as (select 1) table a", "insert into t_c values ('x')", "select config"] {
            assert_eq!(Effect::of(plain.as_bytes()), Effect::Plain, "{plain}");
        }
        for sets in [
            "set timezone = 'UTC'",
            "select SET_Config('a', 'b', false)",
            "discard all",
            "do $$$$",
            "call f()",
            "explain select 1",
        ] {
            assert!(Effect::of(sets.as_bytes()).may_set(), "{sets}");
        }
        for untold in [
            "",
            "select SET_Config('a', 'b', false)",
            "table set_config(a,b,c)",
            "explain analyze select pg_catalog.\"set_config\"('a', 'b', true)",
            r#"select U&"set\005fconfig"('a', 'b', true)"#,
        ] {
            assert!(Effect::of(untold.as_bytes()).may_set_untold(), "{untold}");
        }
        assert_eq!(Effect::of(b"start transaction"), Effect::BeginsTransaction);
        for ends in ["commit", "END", "rollback to s", "abort"] {
            assert_eq!(Effect::of(ends.as_bytes()), Effect::EndsTransaction, "{ends}");
        }
        assert!(!Effect::EndsTransaction.may_set() && !Effect::EndsTransaction.may_set_untold());
        for deallocates in ["", "deallocate a", "/* so */ ;-- \n DISCARD ALL", "\tdeallocate all"] {
            assert!(Effect::of(deallocates.as_bytes()).may_deallocate(), "{deallocates}");
        }
        assert!(!Effect::of(b"select 'discard'").may_deallocate());
    }

    #[test]
    fn what_reads_no_parameter_is_told_from_what_may() {
        for nothing in [
            "lock t",
            " DO $$begin commit; end$$",
            "create  Unique index i on t(a)",
            "create database d",
            "alter system reset a",
        ] {
            assert!(reads_nothing(nothing.as_bytes()), "{nothing}");
        }
        for may in [
            "select 1",
            "call p()",
            "explain select 1",
            "declare c cursor for select 1",
            "create table t as select 1",
            "create materialized view v as select 1",
            "create",
            "locks",
            "do 'a\\b'",
            "do U&'a'",
            "comment on table t is '\u{e4}'",
        ] {
            assert!(!reads_nothing(may.as_bytes()), "{may}");
        }
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
