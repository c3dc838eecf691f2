//! What a session holds beyond what PostgreSQL reports of it, and how that stays its client's (`session_state = keep`).
//!
//! A text that may leave something in its session marks the server ([`Kept::sent`]). Where its client could be parted from it, the server
//! is asked what is there (`look.rs`): parameters are the client's from then on, and go with it to whichever server it gets next; for
//! all else the two stay together until a later look finds nothing.
//!
//! Texts tell that a look is due, and the code that they call (`words.rs`).

mod altered;
pub(crate) mod catalogue;
pub(crate) mod channels;
pub(crate) mod exact;
pub(crate) mod glance;
pub(crate) mod kinds;
pub(crate) mod knowledge;
pub(crate) mod leaves;
pub(crate) mod look;
mod own_names;
mod texts;
pub(crate) mod words;

use std::sync::Arc;

use altered::Altered;
pub(crate) use channels::NeedsChannels;
use channels::{Channels, Handover};
use glance::{Glance, Seen};
pub(crate) use kinds::Kinds;
use knowledge::Knowledge;
use leaves::Leaves;
use look::Look;
use own_names::OwnNames;
pub(crate) use texts::Texts;
use words::{Changed, Code, NAMES_MAX};

use crate::parameters::{ParameterSet, compare_names};
use crate::pool::limits::PoolLimits;
use crate::statements::Statement;
use crate::time::Time;

/// A server was told to listen to what its client hears elsewhere, which it does not tell: the client may leave some of that here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Lists {
    #[default]
    No,
    /// Between two transactions. `sent`: so was what it was for.
    Certainly { sent: bool },
    /// In one, which may be rolled back, or that part of it: then a parameter is not there that was set with it.
    IfSet {
        mark: String,
        /// A text was sent that may have ended the transaction, or taken a part of it back.
        taken_back: bool,
    },
}

/// Of a text, for SHOW PINS.
const TEXT_BYTES_SHOWN: usize = 120;

/// What a server's session holds of its client's, as far as texts and looks tell.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Its client's state is kept: `session_state`, as it was when the two were linked.
    pub(crate) on: bool,
    /// By what texts say. Where PostgreSQL tells what a session holds, nothing is read in them.
    pub(crate) reads: bool,
    /// There may be none.
    pub(crate) refuses: bool,
    /// Its server is at a node of a cluster that is not the coordinator.
    pub(crate) elsewhere: bool,
    /// One of these: each text is looked at.
    pub(crate) judges: bool,
    /// The message in hand leaves nothing, and needs nothing that is elsewhere.
    pub(crate) plain: bool,
    /// What was sent since the last look may have left so much.
    due: Kinds,
    /// And may have taken so much away.
    ends: Kinds,
    /// The two stay together for these.
    held: Kinds,
    /// Its session may have had temporary objects, or have some; and others' ahead of its client's.
    temporary: bool,
    pub(crate) others_temporary: bool,
    /// Its pool counts it among those.
    pub(crate) counted: bool,
    /// For what it was counted.
    counted_for: Kinds,
    /// How long that lasts has been said.
    pub(crate) warned: bool,
    /// Since when, for SHOW PINS.
    since: Time,
    /// The first text since the last look that may have left something.
    pub(crate) text: Box<[u8]>,
    /// Parameters with a dot in their names: PostgreSQL lists them nowhere.
    custom: Vec<Custom>,
    /// All those are among them that code sets.
    names_all: bool,
    look: Option<Box<Look>>,
    /// It is of another database than those that come to its pool by now: what its pool learns of code is not of this one.
    pub(crate) of_another_database: bool,
    /// What texts call, as it was known when the two were linked.
    code: Code,
    version: u64,
    /// Its client left, and something it had sent was still to be carried out: the version is of then.
    goes_on: bool,
    /// Something was sent while that was not known: the two stay together until it is.
    pub(crate) blind: bool,
    /// What was sent since all was answered last, or since the code is not known; `met_lasting`: meanwhile code came that may leave what no look finds.
    texts: Option<Box<Texts>>,
    met_lasting: bool,
    /// Its client may have changed it.
    pub(crate) altered: Altered,
    /// What it listens to, as the last look has told it. `None`: that is not known.
    channels: Option<Channels>,
    pub(crate) lists: Lists,
    /// A look has told what there is since a message was sent that may take some of it away.
    lists_seen: bool,
    /// All that was notified before its client's request of then has been told.
    pub(crate) heard_out: Option<Time>,
    /// What the last look has found of the mark above.
    mark_found: Option<Box<[u8]>>,
    pub(crate) handover: Handover,
    /// What `currval` and `lastval` tell is of this client's transaction alone.
    pub(crate) own_sequences: bool,
    /// What was sent ahead of the message in hand so that they are: the place behind it.
    pub(crate) forgot_up_to: Option<u64>,
    own_names: OwnNames,
    /// Where they are the client's own: one that was prepared may change code.
    pub(crate) own_names_alter: bool,
    /// They could not be given.
    pub(crate) names_failed: bool,
    /// Before that they are not tried again for what needs them only perhaps.
    pub(crate) names_again_at: Time,
    /// A cursor, a portal or a view may be there that tells which statements are prepared.
    pub(crate) asks_later: bool,
    /// The same, of what nobody has read.
    pub(crate) may_ask_later: bool,
    /// A text has named the schema of temporary objects.
    pub(crate) names_temporary: bool,
    /// What code behind its temporary objects may leave: no catalogue that is read tells of that, and it ends with them.
    behind_objects: Kinds,
    /// Or set for its transaction.
    behind_objects_reads: bool,
    /// Bytes of statements' texts that were read again, for messages that use them.
    pub(crate) read_again: usize,
    /// How texts are read may have changed since the two were linked: `standard_conforming_strings`, `client_encoding`.
    pub(crate) strings_set: bool,
    /// Something was sent, since all parameters were known, that may have set one which PostgreSQL does not report, for its transaction alone
    /// perhaps. Counts also where its client's state is not kept, as far as texts and tags tell by their own words.
    sets_unreported: bool,
}

/// A parameter that has a definition perhaps, on a server that has loaded its library, and perhaps none.
#[derive(Debug)]
pub(crate) struct Custom {
    pub(crate) name: Arc<str>,
    /// The client's own text sets it, and no code that it calls.
    pub(crate) said: bool,
}

impl Kept {
    /// The server is one of such a pool, whose clients' state may be kept or not.
    pub(crate) fn is_at(&mut self, limits: &PoolLimits) {
        (self.elsewhere, self.judges) = (limits.elsewhere, limits.elsewhere);
    }

    /// A client comes.
    #[inline(never)]
    pub(crate) fn begin(&mut self, limits: &PoolLimits, knowledge: &Knowledge, is_told: bool) {
        let PoolLimits { keeps: on, refuses, elsewhere, .. } = *limits;
        self.clear_texts();
        let texts = self.texts.take();
        let judges = refuses || elsewhere;
        let temporary = self.temporary;
        *self = Self { on, reads: on && !is_told, refuses, elsewhere, judges, texts, ..Self::default() };
        (self.temporary, self.others_temporary) = (temporary, temporary);
        if self.reads {
            (self.code, self.version) = (knowledge.code.clone(), knowledge.version);
            if self.code.words().is_some_and(|words| words.left_at_login) {
                // A session of its own would have that too, and nobody could give it back to one that was reset.
                self.sent(&Leaves::any(Kinds::LASTING), b"(login event trigger)");
            }
        }
    }

    /// PostgreSQL tells what its client leaves: no text is read for what it calls.
    #[inline]
    pub(crate) fn is_told(&self) -> bool {
        self.on && !self.reads
    }

    /// Whether a text leaves nothing for certain, under these parameters: it is read no further. Where none is read, by its own words.
    pub(crate) fn is_plain(&self, text: &[u8], parameters: &ParameterSet, seen: &mut Seen) -> bool {
        if !self.reads {
            return Glance::own().is_plain(text);
        }
        let known = matches!(&self.code, Code::Known(words) if seen.is_plain(words, text));
        known && !self.has_code_behind_objects() && !self.creates_temporary(parameters)
    }

    /// The same of a prepared statement.
    pub(crate) fn is_plain_statement(&self, statement: &Statement, parameters: &ParameterSet) -> bool {
        if !self.reads {
            return !statement.leaves().is_of_note();
        }
        let known = matches!(&self.code, Code::Known(words) if statement.is_plain(words));
        known && !self.has_code_behind_objects() && !self.creates_temporary(parameters)
    }

    fn has_code_behind_objects(&self) -> bool {
        !self.behind_objects.is_none() || self.behind_objects_reads
    }

    /// What is created may be temporary, without a word that says so.
    pub(crate) fn creates_temporary(&self, parameters: &ParameterSet) -> bool {
        self.names_temporary || parameters.names_temporary()
    }

    /// A text is sent: what it may leave by what it calls. `own`: by its own words.
    pub(crate) fn calls(&mut self, text: &[u8], own: &Leaves) {
        let leaves = self.code.leaves(text);
        self.called(leaves, text, own);
    }

    /// The same of a prepared statement.
    pub(crate) fn calls_statement(&mut self, statement: &Statement) {
        let leaves = self.code.words().and_then(|words| statement.called(words));
        self.called(leaves, &statement.definition, statement.leaves());
    }

    /// Whether that a text is analysed may set what parsing reads: it runs what reads the values of a type, and a domain's check. `None`: that
    /// is not known.
    pub(crate) fn analysis_sets(&self, text: &[u8]) -> Option<bool> {
        let sets = || self.code.leaves(text).is_some_and(|leaves| leaves.sets_read);
        if self.reads { self.code.is_known().then(sets) } else { Some(false) }
    }

    /// Whether a text asks for what `nextval` gave last in its session, by what it calls.
    pub(crate) fn reads_sequences_by_call(&self, text: &[u8]) -> bool {
        self.code.leaves(text).is_some_and(|leaves| leaves.reads_sequences)
    }

    /// Whether a text asks which statements are prepared, by itself or by what it calls. `None`: it may, since it runs what only PostgreSQL knows.
    pub(crate) fn asks_statements(&self, text: &[u8]) -> Option<bool> {
        const WORD: &[u8] = b"pg_prepared_statement";
        let (own, called) = (Leaves::of(text), self.code.leaves(text).unwrap_or_default());
        let says = || text.windows(WORD.len()).any(|at| at.eq_ignore_ascii_case(WORD));
        let asks = own.asks_statements || called.asks_statements || self.code.may_ask_statements() || says();
        // Not while the code is not known for a moment: whoever sends anything then would keep its server for good.
        let runs_anything = own.runs_anything() || called.runs_anything();
        if !asks && runs_anything && self.reads { None } else { Some(asks) }
    }

    /// Whether a prepared statement reads them, by that or by its own words.
    pub(crate) fn statement_reads_sequences(&self, statement: &Statement) -> bool {
        let called = || self.code.words().and_then(|words| statement.called(words));
        statement.leaves().reads_sequences || called().is_some_and(|leaves| leaves.reads_sequences)
    }

    /// What a text needs of what its client listens to, by what it calls, and whether that resets all parameters.
    pub(crate) fn channels_needed_by_call(&self, text: &[u8]) -> (NeedsChannels, bool) {
        let leaves = self.code.leaves(text).unwrap_or_default();
        let needs = match (leaves.makes.has(Kinds::CHANNELS), leaves.ends.has(Kinds::CHANNELS)) {
            _ if leaves.asks_channels => NeedsChannels::Reads,
            (true, _) => NeedsChannels::Perhaps,
            (false, true) => NeedsChannels::Reads,
            (false, false) if !self.code.is_known() => NeedsChannels::Unseen,
            (false, false) => NeedsChannels::No,
        };
        (needs, leaves.resets_all)
    }

    fn called(&mut self, leaves: Option<Leaves>, text: &[u8], own: &Leaves) {
        if let Some(leaves) = &leaves {
            self.left_by(leaves, text, false);
        }
        if !self.code.is_known() {
            self.calls_anything(text);
        } else if own.executes {
            self.left_by(&self.code.left_unseen(true), text, false);
        }
        // What a look that has failed was to tell of is not known.
        if !self.due.with(self.held).has(Kinds::OBJECTS.with(Kinds::UNKNOWN)) {
            (self.behind_objects, self.behind_objects_reads) = (Kinds::NONE, false);
            return;
        }
        let calls_read = own.sets_read || leaves.as_ref().is_some_and(|leaves| leaves.sets_read);
        let called = leaves.map_or(Kinds::NONE, |leaves| leaves.makes);
        if own.alters || own.makes.with(called).has(Kinds::OBJECTS) {
            let unknown = if self.code.is_known() { Kinds::NONE } else { Kinds::ANY };
            let behind = own.makes.with(called).with(unknown).without(Kinds::OBJECTS);
            self.behind_objects = self.behind_objects.with(behind);
            self.behind_objects_reads |= calls_read || !self.code.is_known();
        }
        if self.has_code_behind_objects() {
            self.sets_unreported |= self.behind_objects_reads;
            self.left_by(&Leaves::any(self.behind_objects), text, false);
        }
    }

    /// What it calls may have changed.
    #[cold]
    fn calls_anything(&mut self, text: &[u8]) {
        self.blind |= self.code.is_blind();
        self.strings_set = true;
        let leaves = if std::mem::replace(&mut self.names_all, true) {
            Leaves::any(Kinds::ANY)
        } else {
            self.code.left_unseen(false)
        };
        self.left_by(&leaves, text, false);
    }

    /// What texts call has changed since the two were linked: what was sent meanwhile may have left anything. `version`: of what is known now.
    #[inline]
    pub(crate) fn meets(&mut self, code: &Code, version: u64) {
        if self.version != version && self.reads {
            self.version = version;
            if !self.of_another_database {
                self.is_judged_by(code);
            }
        }
    }

    /// Code is changed in a database of its name, perhaps in the one that the pool has left.
    pub(crate) fn changes(&mut self, by: &Changed) {
        if self.of_another_database && self.reads {
            self.is_judged_by(&self.code.changed(by));
        }
    }

    #[cold]
    fn is_judged_by(&mut self, code: &Code) {
        let same = self.code.has_same_words(code);
        self.code = code.clone();
        self.names_all = false;
        if code.is_unknown() {
            return;
        }
        let texts = self.texts.take();
        self.blind = code.is_blind() && (self.blind || texts.as_ref().is_some_and(|texts| !texts.is_empty()));
        let are_known = texts.as_ref().is_none_or(|texts| texts.are_known());
        if std::mem::take(&mut self.met_lasting) {
            // Nobody can tell whether it was called. What a look finds is found, and a seed is nobody's any more.
            let own = self.due.with(self.held).has(Kinds::LASTING);
            self.left_by(&Leaves::any(if own { Kinds::ANY } else { Kinds::LOOKED_FOR }), b"", false);
        }
        self.met_lasting = code.may_have_lasted() && texts.as_ref().is_some_and(|texts| !texts.is_empty());
        if texts.as_ref().is_some_and(|texts| !texts.is_empty()) {
            self.left_by(&code.left_unseen(!are_known && !self.blind), b"", false);
        }
        // By the same words they were judged when they came.
        let texts_left = texts.iter().filter(|_| !self.blind && !same).flat_map(|texts| texts.left(code));
        texts_left.collect::<Vec<_>>().iter().for_each(|leaves| self.left_by(leaves, b"", false));
        self.texts = texts;
    }

    /// Its session may have had temporary objects.
    #[inline]
    pub(crate) fn had_temporary(&self) -> bool {
        self.temporary
    }

    /// Nothing is there of its client's, as far as this knows.
    #[inline]
    pub(crate) fn is_blank(&self) -> bool {
        self.due.is_none() && !self.holds() && self.look.is_none()
    }

    /// What a client leaves that goes.
    pub(crate) fn left(&mut self) -> Kinds {
        let unseen = if self.blind { Kinds::LASTING } else { Kinds::NONE };
        let left = self.due.with(self.held).with(unseen);
        let asked = self.look.as_ref().map_or(Kinds::NONE, |look| look.asked.with(Kinds::ANY));
        // What it has changed in code may be there only when all of it is answered.
        let altered = std::mem::take(&mut self.altered);
        let temporary = self.temporary || left.with(asked).has(Kinds::OBJECTS);
        *self = Self { altered, sets_unreported: self.sets_unreported, temporary, ..Self::default() };
        left.with(asked)
    }

    /// Its client is gone, and something of its is still carried out.
    pub(crate) fn goes_on_alone(&mut self, version: u64) {
        (self.goes_on, self.version) = (true, version);
    }

    /// That is over. Whether what texts call has changed meanwhile: it may have left anything.
    pub(crate) fn has_called_another(&mut self, version: u64) -> bool {
        std::mem::take(&mut self.goes_on) && self.version != version
    }

    /// A text was sent that may leave so much, by its own words.
    pub(crate) fn sent(&mut self, leaves: &Leaves, text: &[u8]) {
        self.left_by(leaves, text, true);
    }

    fn left_by(&mut self, leaves: &Leaves, text: &[u8], said: bool) {
        self.ends = self.ends.with(leaves.ends);
        self.strings_set |= leaves.sets_strings;
        self.sets_unreported |= leaves.sets_read;
        if leaves.alters {
            let mut by = Changed::by(leaves);
            // What it calls is known, though what will call it is not.
            let called = self.code.words().and_then(|words| words.left_by_code_in(text));
            by.lasting |= called.is_some_and(|called| called.makes.has(Kinds::LASTING));
            self.code = self.code.changed(&by);
            self.altered.add(by);
        } else if leaves.makes.is_none() {
            return;
        }
        self.shows(text);
        self.due = self.due.with(leaves.makes);
        for name in &leaves.names {
            if let Some(known) = self.custom.iter_mut().find(|known| compare_names(&known.name, name).is_eq()) {
                known.said |= said;
            } else if self.custom.len() < NAMES_MAX {
                self.custom.push(Custom { name: Arc::clone(name), said });
            } else {
                self.due = self.due.with(Kinds::LASTING);
            }
        }
    }

    /// What a look is due for. `unreported`: its client has parameters that PostgreSQL does not report.
    #[inline]
    pub(crate) fn due(&self, unreported: bool) -> Kinds {
        if self.due.with(self.ends).is_none() && !self.held.has(Kinds::UNKNOWN) {
            return Kinds::NONE;
        }
        let there = if unreported { self.held.with(Kinds::PARAMETERS) } else { self.held };
        let again = if self.held.has(Kinds::UNKNOWN) { Kinds::LOOKED_FOR } else { Kinds::NONE };
        self.due.with(self.ends.and(there)).with(again).without(Kinds::UNKNOWN)
    }

    /// Something is sent that may set a parameter which PostgreSQL does not report.
    pub(crate) fn sets_unreported(&mut self) {
        self.sets_unreported = true;
    }

    /// All of them are known. Whether they were not.
    #[inline]
    pub(crate) fn parameters_are_known(&mut self) -> bool {
        std::mem::take(&mut self.sets_unreported)
    }

    /// What is prepared now may be of no use to others, as theirs may be to this client.
    #[inline]
    pub(crate) fn has_set_unreported(&self) -> bool {
        self.sets_unreported
    }

    /// The two stay together.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_none() || self.blind
    }

    pub(crate) fn held(&self) -> Kinds {
        if self.blind { self.held.with(Kinds::UNKNOWN) } else { self.held }
    }

    /// What was found. `told`: by PostgreSQL itself, which knows also of what lasts.
    pub(crate) fn left_for_certain(&self, told: bool) -> Kinds {
        if told { self.held } else { self.held.without(Kinds::LASTING.with(Kinds::UNKNOWN)) }
    }

    /// What it holds will never be known, and is to be: it is not its client's to its end in any case.
    pub(crate) fn cannot_be_judged(&self) -> bool {
        self.blind && self.of_another_database && !self.held.has(Kinds::LASTING)
    }

    /// A query has failed. Whether it was one of ours about what is here: it is as it was then, or not known.
    pub(crate) fn own_batch_fails(&mut self) -> bool {
        if let Some(look) = &mut self.look {
            look.failed = true;
            return true;
        }
        let begun = matches!(self.handover, Handover::Marking | Handover::Leaving);
        if begun {
            self.handover = Handover::Failed;
        }
        begun
    }

    /// The two stay together for something that is known of.
    pub(crate) fn pins(&self) -> bool {
        !self.held.is_none()
    }

    /// What it has come to be held for since that was asked last.
    pub(crate) fn newly_held(&mut self) -> Kinds {
        let before = std::mem::replace(&mut self.counted_for, self.held);
        self.held.without(before)
    }

    pub(crate) fn held_since(&self) -> Option<Time> {
        self.pins().then_some(self.since)
    }

    pub(crate) fn custom(&self) -> &[Custom] {
        &self.custom
    }

    #[inline]
    pub(crate) fn is_looking(&self) -> bool {
        self.look.is_some()
    }

    pub(crate) fn looking(&mut self) -> Option<&mut Look> {
        self.look.as_deref_mut()
    }

    /// A look for these is on its way. What is sent behind it is for the next.
    pub(crate) fn looks_for(&mut self, asked: Kinds, now: Time) {
        let lasting = self.due.and(Kinds::LASTING);
        self.hold(self.held.with(lasting), now);
        (self.due, self.ends) = (Kinds::NONE, Kinds::NONE);
        self.temporary |= asked.has(Kinds::OBJECTS);
        self.look = Some(Box::new(Look::new(asked)));
    }

    pub(crate) fn hold(&mut self, kinds: Kinds, now: Time) {
        if !self.pins() || (self.held == Kinds::CHANNELS && !self.counted) {
            self.since = now;
            self.warned = false;
        }
        self.temporary |= kinds.has(Kinds::OBJECTS.with(Kinds::UNKNOWN));
        self.held = if self.own_names != OwnNames::No { kinds.with(Kinds::PREPARED) } else { kinds };
    }

    /// This is the text that SHOW PINS tells, if none is yet.
    pub(crate) fn shows(&mut self, text: &[u8]) {
        if self.due.is_none() && self.held.is_none() {
            self.text = text.iter().take_while(|byte| **byte != 0).take(TEXT_BYTES_SHOWN).copied().collect();
        }
    }

    /// SQL may have prepared something on it.
    pub(crate) fn may_have_prepared(&self) -> bool {
        self.due.with(self.held).has(Kinds::PREPARED)
    }

    /// It is over. `None` where there was none.
    pub(crate) fn looked(&mut self, now: Time) -> Option<Look> {
        let look = *self.look.take()?;
        let found = match (look.failed, look.illegible) {
            (true, _) if look.asked.is_none() => Kinds::NONE,
            // A seed is not set anew.
            (true, _) => Kinds::UNKNOWN.with(look.asked.and(Kinds::SEED)),
            (false, true) => look.found.with(Kinds::LASTING),
            (false, false) => look.found,
        };
        // Then nothing is told.
        self.sets_unreported |= look.failed && !look.asked.is_none();
        let still = if look.failed { self.held } else { self.held.without(look.asked.with(Kinds::UNKNOWN)) };
        self.hold(still.with(found), now);
        if look.asked.has(Kinds::CHANNELS) {
            self.channels = if look.failed { None } else { look.channels.clone() };
            self.lists_seen = !look.failed;
            self.mark_found.clone_from(&look.mark);
        }
        // What has come while it was on its way is not told by it.
        if !self.holds() && self.due.is_none() {
            self.text = Box::default();
            self.custom.clear();
            self.names_all = false;
            (self.behind_objects, self.behind_objects_reads) = (Kinds::NONE, false);
        }
        Some(look)
    }
}
