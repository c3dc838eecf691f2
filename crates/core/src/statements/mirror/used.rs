//! What is used while nobody knows the parameters that PostgreSQL plans it under: it plans for all who share the copy.

use std::sync::Arc;

use super::{Known, Mirror};
use crate::parameters::ParameterSet;

impl Mirror {
    /// It is used behind what may have set parameters in this batch, and up to the use nothing tells: where `asks`, and it is the first such
    /// use in the batch, the server is to be asked. Else it is prepared again before its next use, which is no worse than to ask
    /// for each row of a thousand. One that was prepared in this transaction is prepared again in any case.
    pub(crate) fn used_blindly(&mut self, id: u64, batch: u64, asks: bool) -> bool {
        let Some(known) = self.known.get_mut(&id).filter(|known| !known.is_unproved()) else { return false };
        let asks = asks && known.asked_in != batch && known.only_in != batch;
        if asks {
            known.asked_in = batch;
        } else {
            known.only_in = batch;
        }
        asks
    }

    /// What it was used under was not what it was taken for.
    pub(crate) fn used_wrongly(&mut self, id: u64) {
        match self.known.get_mut(&id) {
            Some(known) => known.doubt(),
            // It may come back.
            None => self.doubts += 1,
        }
    }

    /// It is used while the parameters are not known that PostgreSQL plans it under; by what is known they are these.
    #[cold]
    pub(crate) fn used_presuming(&mut self, id: u64, reading: &Arc<ParameterSet>) {
        if !self.presumes_these(reading) {
            self.presumed_wrongly();
            self.presumed = Some(Arc::clone(reading));
            self.windows += 1;
        }
        if let Some(known) = self.known.get_mut(&id) {
            known.unsure = self.windows;
        }
    }

    #[inline]
    pub(crate) fn presumes(&self) -> bool {
        self.presumed.is_some()
    }

    /// A ReadyForQuery tells the parameters: what was used meanwhile is as it should be where they are, at each of them, what they were
    /// taken for. `last`: nothing of that is still on its way.
    pub(crate) fn told(&mut self, reading: &Arc<ParameterSet>, last: bool) {
        if !self.presumes_these(reading) {
            self.presumed_wrongly();
        } else if last {
            self.presumed = None;
        }
    }

    fn presumes_these(&self, reading: &Arc<ParameterSet>) -> bool {
        self.presumed.as_ref().is_some_and(|presumed| Arc::ptr_eq(presumed, reading))
    }

    /// What was used meanwhile may be planned under anything: it is prepared again before it is used.
    #[inline]
    pub(crate) fn presumed_wrongly(&mut self) {
        if self.presumed.is_some() {
            self.doubt_presumed();
        }
    }

    /// Not a client's private one: whatever it is planned under, the client's own session has it so. Nor one that is prepared again in any case
    /// before anybody else has the server.
    fn doubt_presumed(&mut self) {
        self.presumed = None;
        let used = self
            .known
            .values_mut()
            .filter(|known| known.unsure == self.windows && !known.statement.private && !known.is_unproved());
        used.for_each(Known::doubt);
    }
}
