//! A client's names for statements, for its way to another process.

use serde::{Deserialize, Serialize};
use weir_wire::backend::StatementShape;

use super::{ClientStatements, Held, Parsed};
use crate::bytes;
use crate::parameters::{ParameterSet, ParameterSets};
use crate::statements::StatementCache;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedStatements {
    named: Vec<Named>,
    /// By the number of a name.
    described: Vec<(u64, [u64; 3])>,
    told_until: u64,
    given: u64,
    doubted_until: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Named {
    #[serde(with = "bytes")]
    name: Box<[u8]>,
    number: u64,
    #[serde(with = "bytes")]
    definition: Box<[u8]>,
    reading: ParameterSet,
    /// What servers made of it, where that is known.
    shape: u64,
}

impl ClientStatements {
    /// `None`: it is not known of one what it is, or only its server knows.
    pub(crate) fn saved(&self) -> Option<SavedStatements> {
        let named = self.by_name.iter().map(|(name, held)| {
            let statement = &held.statement;
            let is_known = held.parsed == Parsed::Known && !statement.private && held.told.is_none();
            is_known.then(|| Named {
                name: name.clone(),
                number: held.number,
                definition: statement.definition.clone(),
                reading: statement.reading.own_copy(),
                shape: statement.shape(),
            })
        });
        Some(SavedStatements {
            named: named.collect::<Option<_>>()?,
            described: self.described.iter().map(|(number, shape)| (*number, shape.parts())).collect(),
            told_until: self.told_until,
            given: self.given,
            doubted_until: self.doubted_until,
        })
    }

    /// In this process, all of whose batches are answered.
    pub(crate) fn of_saved(saved: SavedStatements, cache: &mut StatementCache, sets: &mut ParameterSets) -> Self {
        let mut statements = Self {
            described: saved.described.into_iter().map(|(number, parts)| (number, StatementShape::of(parts))).collect(),
            told_until: saved.told_until,
            given: saved.given,
            doubted_until: saved.doubted_until,
            ..Self::default()
        };
        for Named { name, number, definition, reading, shape } in saved.named {
            let statement = cache.intern_of_shape(&definition, &sets.intern(reading), shape);
            statements.hold(&name, Held { statement, batch: 0, number, told: None, parsed: Parsed::Known, copy: None });
        }
        statements
    }
}
