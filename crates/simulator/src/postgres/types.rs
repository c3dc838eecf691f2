//! The types of a table's columns, which DDL changes: what an untyped parameter gets from them when a statement is parsed.
//!
//! Each change makes types that were never there before, so that one number tells a statement's age. The table is locked from
//! the change to the end of its transaction (tablecmds.c, `AlterTableGetLockLevel`), and who needs it meanwhile does not wait.

use super::Scene;
use super::backend::Backend;
use super::language::{Statement, Tag, Verb};

/// Those of one cluster.
#[derive(Debug)]
pub struct Types {
    /// As everybody sees them.
    pub committed: u32,
    made: u32,
    /// The process that has changed them and not committed.
    locked_by: Option<u32>,
}

impl Types {
    pub fn new(first: u32) -> Self {
        Self { committed: first, made: first, locked_by: None }
    }
}

/// What a transaction has changed them to.
#[derive(Debug, Clone, Copy)]
pub struct Retyped {
    types: u32,
    /// Whatever its end is, they are not everybody's then.
    passes: bool,
}

/// What a client's Bind believes of its statement's parameters, written in a value of fixed length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Belief {
    /// The type in the last ParameterDescription, 0 if there was none.
    pub told: u32,
    /// What everybody saw when its Parse was sent.
    pub oldest: u32,
}

impl Belief {
    pub const TEXT_LEN: usize = 21;

    pub fn text(self) -> String {
        format!("{:010}/{:010}", self.told, self.oldest)
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (told, oldest) = text.split_once('/')?;
        Some(Self { told: told.parse().ok()?, oldest: oldest.parse().ok()? })
    }
}

impl Statement {
    /// Whether a parameter of it gets its type from the table.
    pub fn is_typed(&self) -> bool {
        matches!(self.verb, Verb::Echo { typed: true, .. })
    }
}

impl Backend {
    /// The types that a statement gets that is parsed now.
    pub(super) fn types(&self, scene: &Scene) -> u32 {
        self.retyped.map_or(scene.cluster.types.committed, |retyped| retyped.types)
    }

    /// Whether another session keeps the table from this one; then the error is said.
    pub(super) fn locked_out(&mut self, scene: &Scene, tag: Option<Tag>, extended: bool) -> bool {
        let locked = scene.cluster.types.locked_by.is_some_and(|pid| pid != self.pid);
        if locked {
            self.error(tag, "55P03", "canceling statement due to lock timeout", extended);
        }
        locked
    }

    pub(super) fn alter_table(&mut self, scene: &mut Scene, statement: &Statement) -> &'static str {
        match statement.verb {
            Verb::Retype { passes } => self.retype(scene, statement.tag, passes),
            _ => scene.cluster.schema_version += 1,
        }
        "ALTER TABLE"
    }

    fn retype(&mut self, scene: &mut Scene, tag: Option<Tag>, passes: bool) {
        let types = &mut scene.cluster.types;
        types.made += 1;
        types.locked_by = Some(self.pid);
        self.retyped = Some(Retyped { types: types.made, passes });
        scene.checks.types_made(types.made, tag);
    }

    pub(super) fn commit_types(&mut self, scene: &mut Scene) {
        if let Some(Retyped { types, passes: false }) = self.retyped {
            scene.cluster.types.committed = types;
            scene.checks.types_committed(types);
            scene.counts.types_changed += 1;
        }
        self.unlock_types(&mut scene.cluster.types);
    }

    /// The end of its transaction, whatever it is.
    pub fn unlock_types(&mut self, types: &mut Types) {
        if self.retyped.take().is_some() {
            types.locked_by = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_belief_is_read_as_it_was_written() {
        let belief = Belief { told: 100_003, oldest: u32::MAX };
        assert_eq!(belief.text().len(), Belief::TEXT_LEN);
        assert_eq!(Belief::parse(&belief.text()), Some(belief));
    }
}
