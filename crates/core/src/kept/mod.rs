//! What a session holds beyond what PostgreSQL reports of it, and how that stays its client's (`session_state = keep`).
//!
//! A text that may leave something in its session marks the server ([`Kept::sent`]). Where its client could be parted from it, the server
//! is asked what is there (`look.rs`): parameters are the client's from then on, and go with it to whichever server it gets next; for
//! all else the two stay together until a later look finds nothing.
//!
//! Texts tell that a look is due, and the code that they call (`words.rs`).

pub(crate) mod leaves;
pub(crate) mod look;
pub(crate) mod words;

use std::sync::Arc;

use leaves::Leaves;
use look::Look;
use words::{Code, Knowledge};

use crate::parameters::compare_names;
use crate::pool::limits::PoolLimits;
use crate::time::Time;

/// Kinds of what a session may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const NONE: Self = Self(0);
    /// Parameters that PostgreSQL does not report.
    pub(crate) const PARAMETERS: Self = Self(1);
    /// In the schema of temporary objects.
    pub(crate) const OBJECTS: Self = Self(2);
    /// Advisory locks.
    pub(crate) const LOCKS: Self = Self(4);
    /// LISTEN.
    pub(crate) const CHANNELS: Self = Self(8);
    /// WITH HOLD.
    pub(crate) const CURSORS: Self = Self(16);
    /// SQL PREPARE.
    pub(crate) const PREPARED: Self = Self(32);
    /// What a look does not find, and nothing takes back: a library, the seed of random(), a parameter whose name is not known.
    pub(crate) const LASTING: Self = Self(64);
    /// A look failed.
    pub(crate) const UNKNOWN: Self = Self(128);
    /// What a look can be for.
    pub(crate) const ANY: Self = Self(63);

    #[inline]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[inline]
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The kind that a look's row is of.
    fn of_word(word: &[u8]) -> Option<Self> {
        WORDS.iter().find(|(_, own)| own.as_bytes() == word).map(|(kind, _)| *kind)
    }

    /// For SHOW PINS.
    pub(crate) fn words(self) -> String {
        let words = WORDS.iter().filter(|(kind, _)| self.has(*kind)).map(|(_, word)| *word);
        words.collect::<Vec<_>>().join(", ")
    }
}

/// What keeps a server, as a look and SHOW PINS call it.
const WORDS: [(Kinds, &str); 8] = [
    (Kinds::PARAMETERS, "parameters"),
    (Kinds::OBJECTS, "temporary objects"),
    (Kinds::LOCKS, "advisory locks"),
    (Kinds::CHANNELS, "listen"),
    (Kinds::CURSORS, "cursors"),
    (Kinds::PREPARED, "prepare"),
    (Kinds::LASTING, "for the session"),
    (Kinds::UNKNOWN, "unknown"),
];

/// Names of custom parameters that are kept of one client's texts.
const NAMES_MAX: usize = 64;
/// Of a text, for SHOW PINS.
const TEXT_BYTES_SHOWN: usize = 120;

/// What a server's session holds of its client's, as far as texts and looks tell.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Its client's state is kept: `session_state`, as it was when the two were linked.
    pub(crate) on: bool,
    /// There may be none.
    pub(crate) refuses: bool,
    /// What was sent since the last look may have left so much.
    due: Kinds,
    /// And may have taken so much away.
    ends: Kinds,
    /// The two stay together for these.
    held: Kinds,
    /// Its pool counts it among those.
    pub(crate) counted: bool,
    /// How long that lasts has been said.
    pub(crate) warned: bool,
    /// Since when, for SHOW PINS.
    since: Time,
    /// The first text since the last look that may have left something.
    pub(crate) text: Box<[u8]>,
    /// Parameters with a dot in their names: PostgreSQL lists them nowhere.
    custom: Vec<Arc<str>>,
    look: Option<Box<Look>>,
    /// What texts call, as it was known when the two were linked.
    code: Code,
    version: u64,
    /// Its client may have changed that.
    altered: bool,
    /// A text has named the schema of temporary objects.
    pub(crate) names_temporary: bool,
    /// A text has named `standard_conforming_strings`.
    pub(crate) strings_change: bool,
}

impl Kept {
    /// A client comes.
    #[inline(never)]
    pub(crate) fn begin(&mut self, limits: &PoolLimits, knowledge: &Knowledge) {
        let PoolLimits { keeps: on, refuses, .. } = *limits;
        *self = Self { on, refuses, code: knowledge.code.clone(), version: knowledge.version, ..Self::default() };
    }

    /// What a text may leave by what it calls.
    pub(crate) fn calls(&self, text: &[u8]) -> Option<Leaves> {
        self.code.leaves(text)
    }

    /// Whether its client may have changed what texts call.
    #[inline]
    pub(crate) fn has_altered(&self) -> bool {
        self.altered
    }

    /// What texts call has changed since the two were linked: what was sent meanwhile may have left anything. `version`: of what is known now.
    #[inline]
    pub(crate) fn meets(&mut self, code: &Code, version: u64) {
        if self.version != version {
            self.version = version;
            self.code = code.clone();
            if let Some(leaves) = self.code.changed(&[]).leaves(b"") {
                self.sent(&leaves, b"");
            }
        }
    }

    /// Nothing is there of its client's, as far as this knows.
    #[inline]
    pub(crate) fn is_blank(&self) -> bool {
        self.due.is_none() && self.held.is_none() && self.look.is_none()
    }

    /// What a client leaves that goes.
    pub(crate) fn left(&mut self) -> Kinds {
        let left = self.due.with(self.held);
        let asked = if self.look.is_some() { Kinds::ANY } else { Kinds::NONE };
        *self = Self::default();
        left.with(asked)
    }

    /// A text was sent that may leave so much.
    pub(crate) fn sent(&mut self, leaves: &Leaves, text: &[u8]) {
        self.ends = self.ends.with(leaves.ends);
        if leaves.alters {
            self.altered = true;
            self.code = self.code.changed(&leaves.names);
        } else if leaves.makes.is_none() {
            return;
        }
        if self.due.is_none() && self.held.is_none() {
            self.text = text.iter().take_while(|byte| **byte != 0).take(TEXT_BYTES_SHOWN).copied().collect();
        }
        self.due = self.due.with(leaves.makes);
        for name in &leaves.names {
            let known = self.custom.iter().any(|known| compare_names(known, name).is_eq());
            if known {
                continue;
            }
            if self.custom.len() < NAMES_MAX {
                self.custom.push(Arc::clone(name));
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
        let again = if self.held.has(Kinds::UNKNOWN) { Kinds::ANY } else { Kinds::NONE };
        self.due.with(self.ends.and(there)).with(again).without(Kinds::UNKNOWN)
    }

    /// The two stay together.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_none()
    }

    pub(crate) fn held(&self) -> Kinds {
        self.held
    }

    pub(crate) fn held_since(&self) -> Option<Time> {
        self.holds().then_some(self.since)
    }

    pub(crate) fn custom(&self) -> &[Arc<str>] {
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
        self.look = Some(Box::new(Look::new(asked)));
    }

    pub(crate) fn hold(&mut self, kinds: Kinds, now: Time) {
        if !self.holds() {
            self.since = now;
            self.warned = false;
        }
        self.held = kinds;
    }

    /// It is over. `None` where there was none.
    pub(crate) fn looked(&mut self, now: Time) -> Option<Look> {
        let look = *self.look.take()?;
        let found = match (look.failed, look.illegible) {
            (true, _) => Kinds::UNKNOWN,
            (false, true) => look.found.with(Kinds::LASTING),
            (false, false) => look.found,
        };
        let still = if look.failed { self.held } else { self.held.without(look.asked.with(Kinds::UNKNOWN)) };
        self.hold(still.with(found), now);
        if !self.holds() {
            self.text = Box::default();
            self.custom.clear();
        }
        Some(look)
    }
}
