//! A client's unnamed statement, for its way to another process.

use serde::{Deserialize, Serialize};
use weir_wire::backend::StatementShape;

use super::{Told, Under, Unnamed, UnnamedTexts};
use crate::bytes;
use crate::parameters::{ParameterSet, ParameterSets};
use crate::statements::{Effect, StatementCache};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedUnnamed {
    #[serde(with = "bytes")]
    definition: Vec<u8>,
    /// What it was parsed under; none where nobody can tell.
    parameters: Option<ParameterSet>,
    of_rows: bool,
    told_parameters: Option<u64>,
    #[serde(with = "bytes")]
    rows: Vec<u8>,
    long: Option<[u64; 3]>,
}

impl Unnamed {
    /// `None`: it is not known what it is. `Some(None)`: there is none.
    pub(crate) fn saved(&self) -> Option<Option<SavedUnnamed>> {
        if self.is_awaited() || self.awaits_parameters() {
            return None;
        }
        if !self.exists() {
            return Some(None);
        }
        let Told { of_rows, parameters, rows, long } = &self.kept.told;
        Some(Some(SavedUnnamed {
            definition: self.kept.definition.clone(),
            parameters: self.parameters.as_ref().filter(|_| self.under == Under::Known).map(|set| set.own_copy()),
            of_rows: *of_rows,
            told_parameters: *parameters,
            rows: rows.clone(),
            long: long.map(|rows| StatementShape::new(rows, None).parts()),
        }))
    }

    /// In this process. What is too long to be kept was its server's alone, as for whoever goes from server to server.
    pub(crate) fn of_saved(saved: SavedUnnamed, cache: &mut StatementCache, sets: &mut ParameterSets) -> Self {
        let SavedUnnamed { definition, parameters, of_rows, told_parameters, rows, long } = saved;
        let under = if parameters.is_some() { Under::Known } else { Under::Unknown };
        let long = long.map(|parts| StatementShape::of(parts).rows);
        Self {
            id: cache.next_id(),
            parameters: parameters.map(|set| sets.intern(set)),
            under,
            effect: Effect::of(&definition),
            unread: definition.is_empty(),
            kept: UnnamedTexts {
                definition,
                told: Told { of_rows, parameters: told_parameters, rows, long },
                ..UnnamedTexts::default()
            }
            .into(),
        }
    }
}
