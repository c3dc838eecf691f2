//! What a client's names stand for on its server, as far as that resets something: prepared statements, where names are the
//! server's own, and portals.
//!
//! A name stands for what PostgreSQL has said that it does. What was sent counts before that only within its own batch: should
//! that fail, or its name be taken, PostgreSQL goes on with the next batch, and the name stands for what it did. Knows nothing of
//! sessions and servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::parameters::resets::Resets;

/// PostgreSQL tells names apart by so many bytes (NAMEDATALEN, `string_compare` in src/backend/utils/hash/dynahash.c).
pub(crate) const NAME_BYTES: usize = 63;
/// Names that reset something, of one kind.
const NAMES_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Statement,
    Portal,
}

/// What a message makes of a name, should it be carried out: `None` for what resets nothing, or is not there.
#[derive(Debug)]
pub(crate) struct Meaning {
    pub(super) kind: Kind,
    name: Box<[u8]>,
    resets: Option<Arc<Resets>>,
}

/// Whether it resets something is known when a batch is answered that was sent before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InDoubt;

/// What was sent for a name and is not answered.
#[derive(Debug)]
struct Sent {
    messages: u32,
    /// The last of them: its batch, and what it makes of the name.
    batch: u64,
    resets: Option<Arc<Resets>>,
}

#[derive(Debug)]
pub(super) struct Meanings {
    kind: Kind,
    answered: BTreeMap<Box<[u8]>, Arc<Resets>>,
    sent: BTreeMap<Box<[u8]>, Sent>,
}

impl Meanings {
    pub(crate) fn of(kind: Kind) -> Self {
        Self { kind, answered: BTreeMap::new(), sent: BTreeMap::new() }
    }

    /// What a message of this batch meets under this name.
    pub(crate) fn get(&self, name: &[u8], batch: u64) -> Result<Option<&Arc<Resets>>, InDoubt> {
        let name = told_apart(name);
        match self.sent.get(name) {
            Some(sent) if sent.batch == batch => Ok(sent.resets.as_ref()),
            Some(_) => Err(InDoubt),
            None => Ok(self.answered.get(name)),
        }
    }

    /// None of them resets anything.
    pub(super) fn are_none(&self) -> bool {
        self.answered.is_empty() && self.sent.is_empty()
    }

    /// Whether one more can be kept.
    pub(super) fn has_room(&self) -> bool {
        self.answered.len() + self.sent.len() < NAMES_MAX
    }

    /// A message is sent that gives the name to something else. `None` where that makes no difference.
    pub(crate) fn sends(&mut self, name: &[u8], resets: Option<Arc<Resets>>, batch: u64) -> Option<Meaning> {
        let name = told_apart(name);
        if resets.is_none() && !self.answered.contains_key(name) && !self.sent.contains_key(name) {
            return None;
        }
        let sent = self.sent.entry(name.into()).or_insert(Sent { messages: 0, batch, resets: None });
        (sent.messages, sent.batch) = (sent.messages + 1, batch);
        sent.resets.clone_from(&resets);
        Some(Meaning { kind: self.kind, name: name.into(), resets })
    }

    /// It was carried out.
    pub(super) fn carried_out(&mut self, meaning: Meaning) {
        self.not_carried_out(&meaning);
        match meaning.resets {
            Some(resets) => _ = self.answered.insert(meaning.name, resets),
            None => _ = self.answered.remove(&meaning.name),
        }
    }

    /// It failed, or was skipped.
    pub(super) fn not_carried_out(&mut self, meaning: &Meaning) {
        if let Some(sent) = self.sent.get_mut(&meaning.name) {
            sent.messages = sent.messages.saturating_sub(1);
            if sent.messages == 0 {
                self.sent.remove(&meaning.name);
            }
        }
    }

    /// Of what is known nothing counts any more.
    pub(super) fn forget(&mut self) {
        self.answered.clear();
        self.sent.clear();
    }

    /// All that PostgreSQL has told of is gone, but what has no name.
    pub(crate) fn gone(&mut self) {
        self.answered.retain(|name, _| name.is_empty());
    }
}

fn told_apart(name: &[u8]) -> &[u8] {
    &name[..name.len().min(NAME_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reset() -> Option<Arc<Resets>> {
        Resets::of_text(b"reset a")
    }

    #[test]
    fn a_name_stands_for_what_was_carried_out() {
        let mut names = Meanings::of(Kind::Statement);
        let meaning = names.sends(b"s", reset(), 1).unwrap();
        assert_eq!(names.get(b"s", 1), Ok(reset().as_ref()));
        assert_eq!(names.get(b"s", 2), Err(InDoubt));
        names.carried_out(meaning);
        assert_eq!(names.get(b"s", 2), Ok(reset().as_ref()));
        let taken = names.sends(b"s", None, 2).unwrap();
        assert_eq!(names.get(b"s", 2), Ok(None));
        names.not_carried_out(&taken);
        assert_eq!(names.get(b"s", 3), Ok(reset().as_ref()));
        let closed = names.sends(b"s", None, 3).unwrap();
        names.carried_out(closed);
        assert_eq!(names.get(b"s", 3), Ok(None));
    }

    #[test]
    fn of_several_messages_the_last_counts_when_all_are_answered() {
        let mut names = Meanings::of(Kind::Statement);
        let meanings = [reset(), None, reset()].map(|resets| names.sends(b"s", resets, 1).unwrap());
        for meaning in meanings {
            assert_eq!(names.get(b"s", 2), Err(InDoubt));
            names.carried_out(meaning);
        }
        assert_eq!(names.get(b"s", 2), Ok(reset().as_ref()));
        assert!(names.sent.is_empty());
    }

    #[test]
    fn names_are_told_apart_as_postgresql_does() {
        let mut names = Meanings::of(Kind::Portal);
        let long = [b'n'; 70];
        let meaning = names.sends(&long, reset(), 1).unwrap();
        names.carried_out(meaning);
        assert_eq!(names.get(&long[..63], 2), Ok(reset().as_ref()));
        assert_eq!(names.get(&long[..62], 2), Ok(None));
    }

    #[test]
    fn what_resets_nothing_is_kept_nowhere() {
        let mut names = Meanings::of(Kind::Statement);
        assert!(names.sends(b"s", None, 1).is_none());
        let mut meanings = Vec::new();
        while names.has_room() {
            meanings.push(names.sends(&meanings.len().to_ne_bytes(), reset(), 1).unwrap());
        }
        meanings.into_iter().for_each(|meaning| names.carried_out(meaning));
        assert!(!names.has_room());
        names.gone();
        assert!(names.has_room());
    }

    #[test]
    fn the_unnamed_one_outlives_the_named_ones() {
        let mut names = Meanings::of(Kind::Statement);
        for name in [&b""[..], b"s"] {
            let meaning = names.sends(name, reset(), 1).unwrap();
            names.carried_out(meaning);
        }
        names.gone();
        assert_eq!([&b""[..], b"s"].map(|name| names.get(name, 2).unwrap().is_some()), [true, false]);
    }
}
