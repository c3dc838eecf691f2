//! What a client calls its prepared statements, and what it was told of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_wire::backend::{RowShape, StatementShape};

use super::{CLIENT_STATEMENT_BYTES_MAX, CLIENT_STATEMENTS_MAX, Statement, StatementCache};
use crate::owed::{LastBatches, OwedQueue, Touched};
use crate::parameters::meanings::NAME_BYTES;
use crate::parameters::{ParameterSet, ParameterSets};
use crate::sparse::Blank;

mod saved;

pub(crate) use saved::SavedStatements;

/// Descriptions of one client above which those of statements that it has closed are dropped.
const DESCRIBED_SWEPT_ABOVE: usize = 64;
/// So many statements of its own are given between two waits for their batches.
const PRIVATE_APART: usize = 512;

/// A client's name for a statement.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) statement: Arc<Statement>,
    /// In which it was given.
    batch: u64,
    /// What the client was told goes by this: no other name has it, nor this one when it is given again.
    pub(crate) number: u64,
    /// What the client was told, while the name is given up in a batch that is not answered.
    told: Option<StatementShape>,
    /// Whether the parameters that it was parsed under are those that the statement says.
    parsed: Parsed,
    /// The parameters that the client had when it was used last, and the copy for who has those.
    copy: Option<(Arc<ParameterSet>, Arc<Statement>)>,
}

/// What is known of the parameters that a statement was parsed under. While it is the client's alone that may be less than all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parsed {
    Known,
    /// The server is asked in the same batch.
    Asked,
    /// Nobody can tell any more: it is of use only on the server that has it.
    Unknown,
}

impl Held {
    /// What a client uses by this name that has these values of the parameters that parsing reads: the statement, or a copy.
    #[inline]
    pub(crate) fn used_under(&mut self, reading: &Arc<ParameterSet>, cache: &mut StatementCache) -> &Arc<Statement> {
        if self.statement.private || self.statement.is_same_under(reading) {
            return &self.statement;
        }
        self.copy.take_if(|(of, _)| !Arc::ptr_eq(of, reading));
        &self.copy.get_or_insert_with(|| (Arc::clone(reading), cache.used_under(&self.statement, reading))).1
    }

    /// Whether it cannot be prepared again: nobody knows under what.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.parsed, Parsed::Asked | Parsed::Unknown)
    }

    /// What this copy of it is called on servers.
    pub(crate) fn server_name(&self, id: u64) -> Option<&str> {
        let copy = self.copy.as_ref().map(|(_, copy)| copy);
        let used = [Some(&self.statement), copy].into_iter().flatten().find(|statement| statement.id == id);
        used.map(|statement| &*statement.server_name)
    }

    fn waits(&self) -> bool {
        self.statement.private && self.parsed != Parsed::Unknown
    }

    fn learn(&mut self, reading: Option<&Arc<ParameterSet>>) {
        let Some(reading) = reading else {
            self.parsed = Parsed::Unknown;
            return;
        };
        self.parsed = Parsed::Known;
        if !Arc::ptr_eq(reading, &self.statement.reading) {
            self.statement = self.statement.parsed_under(reading);
        }
    }
}

/// What a client calls its statements.
#[derive(Debug, Default)]
pub(crate) struct ClientStatements {
    by_name: BTreeMap<Box<[u8]>, Held>,
    /// The rows, and where known the parameters, that the client was told to expect, by its name's number.
    described: BTreeMap<u64, StatementShape>,
    /// How many those were when they were last swept.
    described_kept: usize,
    /// The last number of which it is not known whether its client was told of it.
    told_until: u64,
    /// Names that were given so far.
    given: u64,
    /// Of those up to this number it is not known whether they are there still.
    pub(crate) doubted_until: u64,
    bytes: usize,
    /// The last batches in which a name was given up.
    closed_in: LastBatches,
    /// The names that stand for private statements of which something is still to be told, by those. Most clients have none, and a
    /// batch that ends looks at no other name.
    private: BTreeMap<u64, Box<[u8]>>,
    /// The server was asked under what some of those are parsed, and has not answered.
    asked: bool,
}

impl Blank for ClientStatements {
    const BLANK: &'static Self = &Self {
        by_name: BTreeMap::new(),
        described: BTreeMap::new(),
        described_kept: 0,
        told_until: 0,
        given: 0,
        doubted_until: 0,
        bytes: 0,
        closed_in: LastBatches::NONE,
        private: BTreeMap::new(),
        asked: false,
    };
}

impl ClientStatements {
    /// Whether it has given a name to any, ever.
    #[inline]
    pub(crate) fn has_given(&self) -> bool {
        self.given > 0
    }

    /// The number of the last name that was given.
    pub(crate) fn last_given(&self) -> u64 {
        self.given
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Held> {
        self.by_name.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &[u8]) -> Option<&mut Held> {
        self.by_name.get_mut(name)
    }

    /// When this name was last given or given up.
    pub(crate) fn touched(&self, name: &[u8], owed: &OwedQueue) -> Touched {
        match self.by_name.get(name) {
            Some(held) => owed.touched(held.batch),
            None => owed.touched_in(self.closed_in),
        }
    }

    /// Whether one was given up, and that is not answered yet.
    pub(crate) fn closes_in_doubt(&self, owed: &OwedQueue) -> bool {
        owed.touched_in(self.closed_in) == Touched::InDoubt
    }

    pub(crate) fn numbered(&self, number: u64) -> Option<(&[u8], &Held)> {
        self.by_name.iter().find(|(_, held)| held.number == number).map(|(name, held)| (&**name, held))
    }

    /// What the client expects of the statement with this name, if it has asked. An error takes nothing of that away: what the
    /// client sends may be from before it could read the error.
    pub(crate) fn expected(&self, number: u64) -> Option<StatementShape> {
        match self.described.get(&number) {
            Some(&shape) if shape.rows != RowShape::UNKNOWN => Some(shape),
            known if number > self.told_until => known.copied(),
            // It may rely on what nothing can be compared with: it is refused until it is prepared again.
            Some(shape) => Some(shape.with_rows(RowShape::OTHER)),
            None => Some(StatementShape::new(RowShape::OTHER, None)),
        }
    }

    /// A portal was described, and which of the statements it is of is not known that had a name up to this one.
    #[cold]
    pub(crate) fn described_one(&mut self, given: u64) {
        self.told_until = self.told_until.max(given);
    }

    /// `portal`: of one of its portals. What the client was told before it may still rely on, so that one which returns other rows, of what was bound
    /// before or was served because this is told with it, leaves nothing that it can be compared with.
    pub(crate) fn described(&mut self, number: u64, shape: StatementShape, portal: bool, owed: &OwedQueue) {
        let former = match self.described.get(&number) {
            // As of a portal, mostly.
            Some(&known) if shape.or_of(known) == known => return,
            _ => self.expected(number).unwrap_or(shape),
        };
        let two = former.rows == RowShape::OTHER || (portal && !former.agrees(&shape));
        let shape = if two { shape.with_rows(RowShape::OTHER) } else { shape };
        self.described.insert(number, shape.or_of(former));
        // A description may come after its statement was closed.
        if self.described.len() > DESCRIBED_SWEPT_ABOVE.max(2 * self.described_kept) {
            // What is given up in a batch that is not answered may come back.
            let held = self.by_name.values().map(|held| held.number);
            let held: BTreeSet<u64> = held.chain(owed.numbers_closed()).collect();
            self.described.retain(|number, _| held.contains(number));
            self.described_kept = self.described.len();
        }
    }

    pub(crate) fn has_room_for(&self, name: &[u8], definition_len: usize) -> bool {
        self.by_name.len() < CLIENT_STATEMENTS_MAX
            && self.bytes + name.len() + definition_len <= CLIENT_STATEMENT_BYTES_MAX
    }

    /// Answers the name's number, which is never 0.
    pub(crate) fn insert(&mut self, name: &[u8], statement: Arc<Statement>, batch: u64, parsed: Parsed) -> u64 {
        self.given += 1;
        let number = self.given;
        self.hold(name, Held { statement, batch, number, told: None, parsed, copy: None });
        number
    }

    /// It was given up in a batch that is not carried out.
    pub(crate) fn put_back(&mut self, name: &[u8], mut held: Held) {
        if let Some(told) = held.told.take() {
            // What was told since counts, as far as that goes.
            let since = self.described.get(&held.number).copied();
            self.described.insert(held.number, since.map_or(told, |since| since.or_of(told)));
        }
        self.hold(name, Held { batch: 0, ..held });
    }

    pub(crate) fn hold(&mut self, name: &[u8], held: Held) {
        self.take(name);
        self.bytes += name.len() + held.statement.definition.len();
        self.asked |= held.parsed == Parsed::Asked;
        if held.waits() {
            self.private.insert(held.statement.id, name.into());
        }
        self.by_name.insert(name.into(), held);
    }

    /// The client closes it.
    pub(crate) fn remove(&mut self, name: &[u8], batch: u64) -> Option<Held> {
        let mut held = self.take(name)?;
        self.closed_in.touch(batch);
        held.told = self.described.remove(&held.number);
        Some(held)
    }

    pub(crate) fn take(&mut self, name: &[u8]) -> Option<Held> {
        let held = self.by_name.remove(name)?;
        self.bytes -= name.len() + held.statement.definition.len();
        self.private.remove(&held.statement.id);
        Some(held)
    }

    /// The server has answered what the parameters are behind the Parse of this statement. Its name may be given up by what is owed.
    pub(crate) fn parameters_answered(
        &mut self,
        id: u64,
        values: Option<&[Option<&[u8]>]>,
        server_encoding: &[u8],
        sets: &mut ParameterSets,
        owed: &mut OwedQueue,
    ) {
        let named = self.private.get(&id).and_then(|name| self.by_name.get_mut(name));
        let Some(held) = named.or_else(|| owed.closes(id)).filter(|held| held.parsed == Parsed::Asked) else { return };
        let reading = values
            .and_then(|values| held.statement.reading.answered(values, server_encoding))
            .map(|set| sets.intern(set));
        held.learn(reading.as_ref());
        if !held.waits() {
            self.private.remove(&id);
        }
    }

    /// A batch has ended: what its statements were prepared under that are the client's alone so far is known, or will never be. `cache`:
    /// they are as everybody's from now on. Answers those of which there may be older copies.
    pub(crate) fn told(&mut self, owed: &OwedQueue, mut cache: Option<&mut StatementCache>) -> Vec<Arc<Statement>> {
        let mut newer = Vec::new();
        if cache.is_none() && !self.asked {
            // In a transaction of many requests each would look at all of them.
            return newer;
        }
        let (by_name, described, asked) = (&mut self.by_name, &self.described, &mut self.asked);
        *asked = false;
        self.private.retain(|_, name| {
            let Some(held) = by_name.get_mut(name) else { return false };
            if owed.touched(held.batch) != Touched::Answered {
                *asked |= held.parsed == Parsed::Asked;
                return true;
            }
            if held.parsed == Parsed::Asked {
                held.learn(None);
            }
            if let (Some(cache), Parsed::Known) = (&mut cache, held.parsed) {
                held.statement = cache.intern(&held.statement.definition, &held.statement.reading);
                let told = described.get(&held.number).filter(|shape| shape.is_whole());
                if !told.is_some_and(|&shape| held.statement.is_as_before(shape)) {
                    newer.push(Arc::clone(&held.statement));
                }
            }
            held.waits()
        });
        newer
    }

    /// So many are its own alone that each batch which ends would look at too many whose batches have not: now and then it is waited for these.
    pub(crate) fn is_crowded(&self, owed: &OwedQueue) -> bool {
        self.private.len() % PRIVATE_APART == PRIVATE_APART - 1 && owed.awaits_earlier()
    }

    #[inline]
    pub(crate) fn has_private(&self) -> bool {
        !self.private.is_empty()
    }

    /// For the way to another worker: what statements are called and which rows they return, no more shared with this one.
    pub(crate) fn part(&mut self) {
        for held in self.by_name.values_mut() {
            held.statement = Arc::new(held.statement.own_copy());
            held.copy = None;
        }
    }

    /// The statements are those of another worker now.
    pub(crate) fn intern_again(&mut self, cache: &mut StatementCache, sets: &mut ParameterSets) {
        for held in self.by_name.values_mut() {
            if held.parsed != Parsed::Known {
                held.parsed = Parsed::Unknown;
                continue;
            }
            let theirs = &held.statement;
            held.statement = cache.intern_again(theirs, &sets.intern(theirs.reading.own_copy()));
        }
        self.private.clear();
    }

    /// What failed may have closed all of them that were given up to this number.
    pub(crate) fn may_be_gone(&mut self, number: u64) {
        self.doubted_until = self.doubted_until.max(number);
    }

    /// Whether it is not known that the client still has this one.
    pub(crate) fn is_doubted(&self, held: &Held) -> bool {
        held.number <= self.doubted_until
    }

    pub(crate) fn clear(&mut self) {
        self.by_name.clear();
        self.described.clear();
        self.private.clear();
        self.bytes = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Bytes of all names and texts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Names, their numbers, and what they stand for.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], u64, &Held)> {
        self.by_name.iter().map(|(name, held)| (&**name, held.number, held))
    }

    /// The same, in the order in which they were given.
    pub(crate) fn as_given(&self) -> Vec<(&[u8], u64, &Held)> {
        let mut names: Vec<_> = self.iter().collect();
        names.sort_unstable_by_key(|(_, number, _)| *number);
        names
    }

    /// Whether it may have one that SQL calls so, which cuts names to 63 bytes as PostgreSQL's table of them does
    /// (`StorePreparedStatement`, src/backend/commands/prepare.c).
    pub(crate) fn has_for_sql(&self, name: &[u8]) -> bool {
        let cut = |name: &[u8]| name.len().min(NAME_BYTES);
        if name.is_ascii() && name.len() < NAME_BYTES {
            return self.by_name.contains_key(name);
        }
        self.by_name.keys().any(|own| !name.is_ascii() || own[..cut(own)] == name[..cut(name)])
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::backend::RowShape;

    use super::*;
    use crate::owed::{Note, Owed, Request};
    use crate::statements::tests::{cache, reading};

    const NO_ROWS: StatementShape = StatementShape::new(RowShape::NO_ROWS, None);

    #[test]
    fn descriptions_of_closed_statements_are_swept() {
        let mut cache = cache();
        let mut statements = ClientStatements::default();
        let kept = cache.intern(b"kept", &reading());
        let number = statements.insert(b"kept", kept, 1, Parsed::Known);
        statements.described(number, NO_ROWS, false, &OwedQueue::default());
        for text in 0..10_000 {
            let statement = cache.intern(format!("select {text}").as_bytes(), &reading());
            let closed = statements.insert(b"a", statement, 1, Parsed::Known);
            statements.remove(b"a", 1);
            statements.described(closed, NO_ROWS, false, &OwedQueue::default());
        }
        assert!(statements.described.len() <= DESCRIBED_SWEPT_ABOVE);
        assert!(statements.expected(number).is_some());
    }

    #[test]
    fn what_may_come_back_keeps_what_was_told_of_it() {
        let mut cache = cache();
        let mut statements = ClientStatements::default();
        let number = statements.insert(b"s", cache.intern(b"s", &reading()), 1, Parsed::Known);
        let closed = statements.remove(b"s", 1);
        let mut owed = OwedQueue::default();
        owed.push(Owed::client(Request::Close).note(Note::Closed { name: b"s"[..].into(), held: closed }));
        statements.described(number, NO_ROWS, false, &owed);
        for other in 0..1000 {
            statements.described(1_000_000 + other, NO_ROWS, false, &owed);
        }
        assert!(statements.described.len() <= DESCRIBED_SWEPT_ABOVE);
        assert_eq!(statements.expected(number), Some(NO_ROWS));
    }

    #[test]
    fn a_copy_is_looked_up_once_for_each_change_of_parameters() {
        let (mut first, mut other) = (cache(), cache());
        let [cet, utc] = [b"CET", b"UTC"].map(|zone| {
            let mut set = ParameterSet::default();
            set.set("TimeZone", zone, true);
            Arc::new(set)
        });
        let mut statements = ClientStatements::default();
        statements.insert(b"a", first.intern(b"select 1", &cet), 1, Parsed::Known);
        let held = statements.get_mut(b"a").unwrap();
        let copy = Arc::clone(held.used_under(&utc, &mut first));
        // Nothing is looked up there.
        assert!(Arc::ptr_eq(held.used_under(&utc, &mut other), &copy));
        let own = Arc::clone(held.used_under(&cet, &mut other));
        assert!(Arc::ptr_eq(&own, &held.statement));
        assert!(Arc::ptr_eq(copy.original.as_ref().unwrap(), &held.statement));
        assert!(Arc::ptr_eq(held.used_under(&utc, &mut other), &copy));
        let changed = Arc::new((*utc).own_copy());
        assert!(!Arc::ptr_eq(held.used_under(&changed, &mut other), &copy));
    }

    #[test]
    fn a_clients_bytes_are_counted() {
        let mut cache = cache();
        let mut statements = ClientStatements::default();
        for definition in [&b"1234"[..], b"12"] {
            statements.insert(b"a", cache.intern(definition, &reading()), 1, Parsed::Known);
        }
        assert_eq!(statements.bytes, 3);
        assert!(!statements.has_room_for(b"b", CLIENT_STATEMENT_BYTES_MAX));
        statements.remove(b"a", 1);
        assert_eq!(statements.bytes, 0);
    }
}
