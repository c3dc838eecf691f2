//! Statements that are refused since they are not as their client was told, and what takes that back.

use weir_wire::FrontendTag;
use weir_wire::backend::{RowShape, StatementShape};
use weir_wire::frontend::Target;

use super::{ClientStatements, Unnamed};

/// A Bind that was refused.
#[derive(Debug)]
pub(super) struct Refused {
    /// Of its client's name for the statement.
    number: u64,
    portal: Box<[u8]>,
    batch: u64,
}

impl ClientStatements {
    /// A Bind of it to this portal is refused in this batch: its rows are not as described.
    pub(crate) fn refuses(&mut self, number: u64, portal: &[u8], batch: u64) {
        self.refused = Some(Refused { number, portal: portal.into(), batch });
    }

    #[inline]
    pub(crate) fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// A Describe or a Bind in this batch. Where it describes the portal whose Bind was refused there, and nothing was bound to that since, the
    /// client asks for the rows whenever it binds.
    #[cold]
    pub(crate) fn behind_refusal(&mut self, tag: FrontendTag, body: &[u8], batch: u64) {
        let bound = body.split(|byte| *byte == 0).next().unwrap_or_default();
        let portal = match (tag, Target::parse(body)) {
            (FrontendTag::Bind, _) => bound,
            (_, Ok(Target::Portal(portal))) => portal,
            _ => return,
        };
        let refused = self.refused.take_if(|refused| refused.batch != batch || *refused.portal == *portal);
        if let Some(refused) = refused.filter(|refused| tag == FrontendTag::Describe && refused.batch == batch) {
            self.asks_with_each_bind(refused.number);
        }
    }

    /// Who does relies on no answer of before, and is not refused for ever. One that was told of parameters may rely on those.
    pub(crate) fn asks_with_each_bind(&mut self, number: u64) {
        if self.described.get(&number).is_some_and(|shape| !shape.is_whole()) {
            self.described.remove(&number);
        }
    }

    /// A portal was described, and which of its client's statements that is of is not known. Those that it was told nothing of are refused until
    /// they are prepared again: it may rely on this.
    #[cold]
    pub(crate) fn described_one(&mut self) {
        for held in self.by_name.values() {
            let shape = self.described.entry(held.number).or_insert(StatementShape::new(RowShape::UNKNOWN, None));
            if shape.rows == RowShape::UNKNOWN {
                shape.rows = RowShape::OTHER;
            }
        }
    }
}

impl Unnamed {
    /// The same of the unnamed one.
    #[cold]
    pub(crate) fn described_one(&mut self) {
        let told = &mut self.kept.told;
        if !told.of_rows {
            (told.of_rows, told.long) = (true, Some(RowShape::OTHER));
        }
    }
}
