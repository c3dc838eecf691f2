//! What a server's session holds of prepared statements, as far as its answers tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weir_wire::backend::StatementShape;

use super::{Effect, Statement};
use crate::owed::{LastBatches, OwedQueue, Touched, UNKNOWN_PORTAL};

mod portals;
mod room;

pub(crate) use portals::Portal;
mod unnamed;
mod used;

#[derive(Debug)]
struct Known {
    statement: Arc<Statement>,
    /// None where the server's copy may be another than it should be.
    copy: Option<u32>,
    /// In which it was put there, or closed.
    batch: u64,
    /// The place of its Parse among all that the server was sent.
    place: u64,
    /// Something was executed before it in its transaction, a change of types perhaps, and it was not prepared again since.
    behind_others: bool,
    /// How many transactions had ended by then, and how much had been sent that may end one.
    ended: (u64, u64),
    ends: u64,
    /// It was to be prepared again.
    tried: bool,
    used: u64,
    shape: Shape,
    /// When it was last used while nobody knew the parameters.
    unsure: u64,
    /// The last batch in which the server was asked what it is used under.
    asked_in: u64,
    /// It was used in this batch, and nobody knows under what: of use in no other. 0 for none.
    only_in: u64,
}

impl Known {
    /// A server that was on another worker came back with a statement that shares nothing with its clients' any more: what they
    /// learned meanwhile of its copies holds for this one too.
    #[inline]
    fn meet(&mut self, statement: &Arc<Statement>) {
        if !Arc::ptr_eq(&self.statement, statement) {
            self.statement = Arc::clone(statement);
        }
    }

    /// A private one is what its client's own Parse has made: none is newer.
    fn is_current(&self) -> bool {
        let newest = |copy| self.statement.private || copy == self.statement.copies.load(Relaxed);
        self.copy.is_some_and(newest)
    }

    fn doubt(&mut self) {
        self.copy = None;
    }

    /// What it is planned under nobody knows: so it is of use in this batch alone.
    #[inline]
    fn is_used_up(&self, batch: u64) -> bool {
        self.only_in != 0 && self.only_in != batch
    }

    /// What its transaction alone had, a temporary table or a column's type, may be in it. Not where nothing is analysed before it is
    /// executed, nor in a private one, which nobody else uses.
    fn is_unproved(&self) -> bool {
        self.behind_others && self.copy.is_some() && !self.statement.private && !self.statement.reads_nothing
    }
}

/// What is known of the rows that a server's plan returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Shape {
    #[default]
    Unknown,
    /// The server has been asked. `anew`: behind a Parse, so that the answer is how things are now.
    Asked {
        anew: bool,
    },
    Is(StatementShape),
}

/// Whether a server has a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Known,
    Unknown,
    /// An earlier batch, whose end is not known, puts it there or closes it.
    InDoubt,
}

/// The statement that a portal was bound to last.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bound {
    /// 0 where it is none of ours.
    pub(crate) statement: u64,
    /// The number of its client's name for it, or of the unnamed one which of those it is.
    pub(crate) name: u64,
    pub(crate) batch: u64,
    /// The place of its Bind among all that the server was sent.
    pub(crate) place: u64,
    pub(crate) effect: Effect,
}

/// The statements that a server's session knows.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    known: BTreeMap<u64, Known>,
    /// Those among them that are one client's alone.
    private: BTreeSet<u64>,
    uses: u64,
    /// The last batches in which one of ours was closed.
    closed_in: LastBatches,
    /// The last batch in which a portal was bound to what may close prepared statements.
    pub(crate) deallocating_portal_in: u64,
    /// Uses up to this one were under parameters that are certain.
    told: u64,
    /// The last use that was not.
    unsure: u64,
    /// The unnamed statement: its id in its client, 0 for none, [`UNNAMED_UNKNOWN`] where that is not known. As it is when all
    /// is answered that was sent.
    pub(crate) unnamed: u64,
    /// Which of its client's was sent last.
    pub(crate) unnamed_sent: u64,
    /// The one that was sent last, if it is to be asked under which parameters that was; 0 where it is not.
    pub(crate) unnamed_unasked: u64,
    /// Whether the one that was prepared again in this batch is known to be as its client was told.
    pub(crate) unnamed_shape: Shape,
    /// The last batch in which it was parsed or closed.
    pub(crate) unnamed_in: u64,
    /// It, where its text is too long for its client to keep, and its id: until the next one is parsed or closed here.
    long_unnamed: Option<(u64, Arc<Statement>)>,
    bound: Bound,
    /// Those with a name.
    portals: portals::Portals,
    /// The last batch of those transactions that are over.
    transactions_until: u64,
    /// The last batch in which one was prepared.
    added_in: u64,
    /// The place of the last Parse of one.
    added_at: u64,
    /// Some may be of what their transaction alone had.
    has_unproved: bool,
    /// How many replies have told of what ends a transaction, or a part of one, or may.
    ended: u64,
}

impl Mirror {
    /// Whether the server can bind it as it is; counts as a use.
    #[inline]
    pub(crate) fn presence(&mut self, statement: &Arc<Statement>, owed: &OwedQueue) -> Presence {
        self.uses += 1;
        let Some(known) = self.known.get_mut(&statement.id) else {
            let in_doubt = owed.touched_in(self.closed_in) == Touched::InDoubt;
            return if in_doubt { Presence::InDoubt } else { Presence::Unknown };
        };
        if owed.touched(known.batch) == Touched::InDoubt {
            return Presence::InDoubt;
        }
        if known.is_unproved() {
            let may_have_ended = known.ends != owed.ends() || (known.batch != owed.batch() && owed.awaits_ready());
            if may_have_ended && !owed.is_empty() {
                return Presence::InDoubt;
            }
            known.ends = owed.ends();
            if known.ended != (self.transactions_until, self.ended) {
                return Presence::Unknown;
            }
        }
        known.meet(statement);
        if !known.is_current() || known.is_used_up(owed.batch()) {
            return Presence::Unknown;
        }
        known.used = self.uses;
        Presence::Known
    }

    /// `behind_others`: something may have been executed in its transaction already.
    pub(crate) fn add(&mut self, statement: &Arc<Statement>, owed: &OwedQueue, behind_others: bool) {
        self.uses += 1;
        // A private one is of little use behind its batch: it is the first to go.
        let used = if statement.private { 0 } else { self.uses };
        let copy = Some(statement.copies.load(Relaxed));
        let (statement, shape) = (Arc::clone(statement), Shape::Unknown);
        let (batch, ended, ends) = (owed.batch(), (self.transactions_until, self.ended), owed.ends());
        let place = owed.next_place();
        self.added_at = place;
        self.insert(Known {
            statement,
            copy,
            batch,
            place,
            behind_others,
            ended,
            ends,
            tried: false,
            used,
            shape,
            unsure: 0,
            asked_in: 0,
            only_in: 0,
        });
        if behind_others {
            self.added_in = batch;
        }
    }

    fn insert(&mut self, known: Known) {
        let id = known.statement.id;
        self.has_unproved |= known.is_unproved();
        if known.statement.private {
            self.private.insert(id);
        }
        self.known.insert(id, known);
    }

    fn take(&mut self, id: u64) -> Option<Known> {
        self.private.remove(&id);
        self.known.remove(&id)
    }

    #[inline]
    pub(crate) fn has_unproved(&self) -> bool {
        self.has_unproved
    }

    /// Whether this copy is as one is that is prepared outside of a transaction.
    pub(crate) fn is_proved(&self, id: u64) -> bool {
        self.known.get(&id).is_some_and(|known| !known.behind_others)
    }

    /// No transaction is open: the next of the copies that are to be prepared again before anybody else uses them.
    pub(crate) fn next_unproved(&mut self) -> Option<Arc<Statement>> {
        for known in self.known.values_mut().filter(|known| known.is_unproved()) {
            // Besides the cache and this.
            let has_users = Arc::strong_count(&known.statement) > 2;
            if has_users && !std::mem::replace(&mut known.tried, true) {
                return Some(Arc::clone(&known.statement));
            }
            // It could not be, or nobody has a name for it any more.
            known.doubt();
        }
        self.has_unproved = false;
        None
    }

    /// They are prepared again when they are used.
    pub(crate) fn doubt_unproved(&mut self) {
        if std::mem::take(&mut self.has_unproved) {
            self.known.values_mut().filter(|known| known.is_unproved()).for_each(Known::doubt);
        }
    }

    /// Whether a portal that may still be there was bound to what may close prepared statements.
    pub(crate) fn has_deallocating_portal(&self) -> bool {
        self.deallocating_portal_in > self.transactions_until
    }

    /// No transaction is open behind this batch.
    #[inline]
    pub(crate) fn transaction_over(&mut self, batch: u64) {
        self.transactions_until = batch;
    }

    /// A reply tells that it has ended, or a part of it, or may have.
    pub(crate) fn transaction_ended(&mut self) {
        self.ended += 1;
    }

    /// The transaction under way is rolled back, and with it the tables and types that it has made; what was prepared in it stays,
    /// with parameters of those types (they are no part of any transaction, src/backend/commands/prepare.c). `place`: of what is
    /// answered now; what was sent behind it comes after the transaction.
    #[inline]
    pub(crate) fn rolled_back(&mut self, place: u64) {
        if self.added_in > self.transactions_until {
            let from = self.transactions_until;
            let of_it = |known: &&mut Known| known.behind_others && known.batch > from && known.place < place;
            // A private one is for its own client what it would be in a session of its own: PostgreSQL analyses it anew where it has to.
            let within = self.known.values_mut().filter(|known| !known.statement.private).filter(of_it);
            within.for_each(Known::doubt);
        }
    }

    /// For the way to another worker: shares nothing with this one any more.
    pub(crate) fn part(&mut self) {
        self.doubt_unsure();
        if let Some((_, statement)) = &mut self.long_unnamed {
            *statement = Arc::new(statement.own_copy());
        }
        for known in self.known.values_mut() {
            known.statement = Arc::new(known.statement.own_copy());
            if known.only_in != 0 {
                known.doubt();
            }
        }
    }

    pub(crate) fn shape(&self, id: u64) -> Shape {
        self.known.get(&id).map_or(Shape::Unknown, |known| known.shape)
    }

    /// What was sent in this place is of the copy that is there when all is answered, and not of one that another takes the place of.
    pub(crate) fn holds_since(&self, id: u64, place: u64) -> bool {
        self.known.get(&id).is_some_and(|known| known.place < place)
    }

    pub(crate) fn set_shape(&mut self, id: u64, shape: Shape) {
        if let Some(known) = self.known.get_mut(&id) {
            known.shape = shape;
        }
    }

    /// This copy was made just now, whatever was said of copies since.
    pub(crate) fn is_made_anew(&mut self, id: u64) {
        if let Some(known) = self.known.get_mut(&id).filter(|known| known.copy.is_some()) {
            known.copy = Some(known.statement.copies.load(Relaxed));
        }
    }

    /// The question for its shape was never answered.
    pub(crate) fn ask_shape_again(&mut self, id: u64) {
        if matches!(self.shape(id), Shape::Asked { .. }) {
            self.set_shape(id, Shape::Unknown);
        }
    }

    /// It is gone from the server, or was never there.
    pub(crate) fn remove(&mut self, id: u64) {
        self.take(id);
    }

    /// It is closed in this batch, if the server knows it.
    pub(crate) fn close(&mut self, id: u64, batch: u64) -> Option<Evicted> {
        let known = self.take(id)?;
        self.closed_in.touch(batch);
        Some(Evicted { known })
    }

    /// The Close of an evicted statement was never carried out: the server still knows it. It was not here to be doubted, so it is now; a
    /// private one is the client's own, as it would be in a session of its own.
    pub(crate) fn put_back(&mut self, evicted: Evicted) {
        let mut known = Known { used: self.uses, shape: Shape::Unknown, ..evicted.known };
        if !known.statement.private {
            known.doubt();
        }
        self.insert(known);
    }

    /// It was prepared in an earlier batch, which is not answered yet.
    pub(crate) fn awaits(&self, id: u64, owed: &OwedQueue) -> bool {
        self.known.get(&id).is_some_and(|known| owed.touched(known.batch) == Touched::InDoubt)
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Arc<Statement>> {
        self.known.get(&id).map(|known| &known.statement)
    }

    /// All are gone from the server but those that are prepared after that.
    pub(crate) fn forget_all_but(&mut self, kept: &[u64]) {
        self.known.retain(|id, _| kept.contains(id));
        self.private.retain(|id| kept.contains(id));
    }

    /// It may be of older tables, or planned under another's parameters: it is closed and prepared again before it is used.
    pub(crate) fn doubt(&mut self, id: u64) {
        self.known.get_mut(&id).into_iter().for_each(Known::doubt);
    }

    /// A portal is described that may be of an older copy than is there now: what is used behind it waits for what is told of it. A private one
    /// has none: it is what its client's own Parse has made.
    #[inline]
    pub(crate) fn describes_portal(&mut self, portal: Bound) {
        if portal.place < self.added_at {
            self.doubt_newer_than(portal);
        }
    }

    #[cold]
    fn doubt_newer_than(&mut self, portal: Bound) {
        let newer = self.known.values_mut().filter(|known| known.place > portal.place && !known.statement.private);
        let of_it = |known: &&mut Known| [UNKNOWN_PORTAL, known.statement.id].contains(&portal.statement);
        newer.filter(of_it).for_each(Known::doubt);
    }

    /// A client may have replaced any of them: each is closed and prepared again before it is used.
    pub(crate) fn doubt_all(&mut self) {
        self.known.values_mut().for_each(Known::doubt);
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

/// A statement that a server is told to close.
#[derive(Debug)]
pub(crate) struct Evicted {
    known: Known,
}

impl Evicted {
    pub(crate) fn statement(&self) -> &Arc<Statement> {
        &self.known.statement
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owed::{Owed, Request};
    use crate::statements::tests::{cache, reading};

    fn gone(mirror: &mut Mirror, limit: usize, owed: &OwedQueue) -> Vec<u64> {
        mirror.make_room(limit, owed).iter().map(|gone| gone.statement().id).collect()
    }

    #[test]
    fn the_least_recently_used_statement_is_evicted() {
        let (mut cache, owed) = (cache(), OwedQueue::default());
        let [one, two] = [&b"1"[..], b"2"].map(|definition| cache.intern(definition, &reading()));
        let mut mirror = Mirror::default();
        mirror.add(&one, &owed, true);
        mirror.add(&two, &owed, true);
        assert!(gone(&mut mirror, 3, &owed).is_empty());
        assert_eq!(mirror.presence(&one, &owed), Presence::Known);
        assert_eq!(gone(&mut mirror, 2, &owed), [two.id]);
        assert_eq!(mirror.presence(&two, &owed), Presence::Unknown);
    }

    #[test]
    fn what_is_one_clients_alone_goes_when_its_batch_is_over() {
        let (mut cache, mut owed, mut mirror) = (cache(), OwedQueue::default(), Mirror::default());
        let shared = cache.intern(b"1", &reading());
        mirror.add(&shared, &owed, false);
        let private: Vec<_> = (0..10).map(|_| cache.private(b"2", &reading())).collect();
        for statement in &private {
            mirror.add(statement, &owed, true);
            assert!(
                gone(&mut mirror, 2, &owed).is_empty(),
                "their batch may need them, and they take no place of others"
            );
        }
        owed.push(Owed::client(Request::Sync));
        assert!(gone(&mut mirror, 2, &owed).is_empty(), "nobody knows whether they are there");
        owed.pop();
        assert_eq!(mirror.presence(&private[0], &owed), Presence::Known);
        let gone = gone(&mut mirror, 2, &owed);
        let unused = private.iter().skip(1).chain([&private[0]]).map(|statement| statement.id);
        assert_eq!(gone, unused.collect::<Vec<_>>());
        assert_eq!(mirror.presence(&shared, &owed), Presence::Known);
    }

    #[test]
    fn what_an_unanswered_batch_prepared_or_closed_is_in_doubt_for_the_next() {
        let (mut cache, mut owed, mut mirror) = (cache(), OwedQueue::default(), Mirror::default());
        let [one, two, three] = [&b"1"[..], b"2", b"3"].map(|definition| cache.intern(definition, &reading()));
        mirror.add(&one, &owed, true);
        owed.push(Owed::client(Request::Sync));
        assert_eq!(mirror.presence(&one, &owed), Presence::InDoubt);
        assert!(gone(&mut mirror, 1, &owed).is_empty(), "nobody knows whether it is there");
        owed.pop();
        assert_eq!(mirror.presence(&one, &owed), Presence::Known);
        assert!(mirror.close(one.id, owed.batch()).is_some());
        assert_eq!(mirror.presence(&two, &owed), Presence::Unknown);
        owed.push(Owed::client(Request::Sync));
        assert_eq!(mirror.presence(&two, &owed), Presence::InDoubt);
        // Another that is closed in this batch makes nothing of an earlier one certain.
        mirror.add(&three, &owed, true);
        assert!(mirror.close(three.id, owed.batch()).is_some());
        assert_eq!(mirror.presence(&two, &owed), Presence::InDoubt);
    }

    #[test]
    fn what_is_learned_of_copies_holds_for_those_of_a_server_that_was_away() {
        let (mut cache, owed, mut mirror) = (cache(), OwedQueue::default(), Mirror::default());
        let [one, two] = [&b"1"[..], b"2"].map(|definition| cache.intern(definition, &reading()));
        mirror.add(&one, &owed, true);
        mirror.add(&two, &owed, true);
        mirror.part();
        one.refresh();
        assert_eq!(mirror.presence(&one, &owed), Presence::Unknown);
        assert_eq!(mirror.presence(&two, &owed), Presence::Known);
        two.refresh();
        assert_eq!(mirror.presence(&two, &owed), Presence::Unknown);
    }

    #[test]
    fn no_copy_is_newer_than_the_private_one() {
        let (mut cache, owed, mut mirror) = (cache(), OwedQueue::default(), Mirror::default());
        let own = cache.private(b"1", &reading());
        mirror.add(&own, &owed, true);
        own.refresh();
        assert_eq!(mirror.presence(&own, &owed), Presence::Known);
    }

    #[test]
    fn a_rollback_leaves_what_is_prepared_behind_it() {
        let (mut cache, mut owed, mut mirror) = (cache(), OwedQueue::default(), Mirror::default());
        let [one, two, three] = [&b"1"[..], b"2", b"3"].map(|definition| cache.intern(definition, &reading()));
        for (statement, then) in [(&one, Request::Execute), (&three, Request::Sync)] {
            mirror.add(statement, &owed, true);
            owed.push(Owed::client(Request::Parse).statement(statement.id));
            owed.push(Owed::client(then));
        }
        mirror.add(&two, &owed, true);
        owed.pop();
        mirror.rolled_back(owed.front_place());
        while owed.pop().is_some() {}
        let known = [&one, &two, &three].map(|statement| mirror.presence(statement, &owed));
        assert_eq!(known, [Presence::Unknown, Presence::Known, Presence::Known]);
    }

    #[test]
    fn what_is_put_back_is_closed_before_it_is_used() {
        let (mut cache, mut owed, mut mirror) = (cache(), OwedQueue::default(), Mirror::default());
        let one = cache.intern(b"1", &reading());
        mirror.add(&one, &owed, false);
        owed.push(Owed::client(Request::Sync));
        let evicted = mirror.close(one.id, owed.batch()).unwrap();
        owed.pop();
        mirror.put_back(evicted);
        assert_eq!(mirror.presence(&one, &owed), Presence::Unknown, "it was not here to be doubted");
        assert!(mirror.close(one.id, owed.batch()).is_some(), "the server has it");
    }

    #[test]
    fn what_was_used_since_the_parameters_were_known_is_doubted_where_they_are_others() {
        let (mut cache, owed, mut mirror) = (cache(), OwedQueue::default(), Mirror::default());
        let [one, two, three] = [&b"1"[..], b"2", b"3"].map(|definition| cache.intern(definition, &reading()));
        let statements = [&one, &two, &three];
        statements.iter().for_each(|statement| mirror.add(statement, &owed, false));
        mirror.told();
        mirror.presence(&two, &owed);
        mirror.presence(&three, &owed);
        mirror.used_unsure(three.id);
        mirror.doubt_unsure();
        assert_eq!(mirror.known[&three.id].copy, None, "an error may have taken back what it was used under");
        assert!(mirror.known[&two.id].copy.is_some());
        mirror.told_another();
        assert_eq!(mirror.known[&two.id].copy, None, "it was used, or parsed, since");
        assert!(mirror.known[&one.id].copy.is_some());
    }

    #[test]
    fn a_rollback_leaves_what_was_prepared_before_anything_was_executed() {
        let (mut cache, mut owed, mut mirror) = (cache(), OwedQueue::default(), Mirror::default());
        let [one, two] = [&b"1"[..], b"2"].map(|definition| cache.intern(definition, &reading()));
        mirror.add(&one, &owed, false);
        mirror.add(&two, &owed, true);
        owed.push(Owed::client(Request::Sync));
        mirror.rolled_back(owed.next_place());
        owed.pop();
        assert_eq!(mirror.presence(&one, &owed), Presence::Known);
        assert_eq!(mirror.presence(&two, &owed), Presence::Unknown);
    }

    #[test]
    fn an_outdated_statement_is_not_known() {
        let (mut cache, owed, mut mirror) = (cache(), OwedQueue::default(), Mirror::default());
        let one = cache.intern(b"1", &reading());
        mirror.add(&one, &owed, true);
        one.refresh();
        assert_eq!(mirror.presence(&one, &owed), Presence::Unknown);
        mirror.remove(one.id);
        mirror.add(&one, &owed, true);
        assert_eq!(mirror.presence(&one, &owed), Presence::Known);
        mirror.doubt_all();
        assert_eq!(mirror.presence(&one, &owed), Presence::Unknown);
    }
}
