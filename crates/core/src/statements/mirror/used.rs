//! What is used while nobody knows the parameters that PostgreSQL plans it under: it plans for all who share the copy.

use super::{Known, Mirror};

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

    /// It was used just now, and nobody knows what PostgreSQL plans it under.
    #[cold]
    pub(crate) fn used_unsure(&mut self, id: u64) {
        self.unsure = self.uses;
        self.known.get_mut(&id).into_iter().for_each(|known| known.unsure = self.unsure);
    }

    /// The parameters are known as of all that was sent.
    #[inline]
    pub(crate) fn told(&mut self) {
        self.told = self.uses;
    }

    /// A parameter that PostgreSQL reads is not what it was taken for: nobody knows since when.
    #[cold]
    pub(crate) fn told_another(&mut self) {
        self.doubt_used(|known| known.used);
        self.told();
    }

    /// What has been set may be taken back, and nothing tells of it.
    #[inline]
    pub(crate) fn doubt_unsure(&mut self) {
        if self.unsure > self.told {
            self.doubt_used(|known| known.unsure);
        }
    }

    /// Not a client's private one: whatever it is planned under, the client's own session has it so. Nor one that is prepared again in any case
    /// before anybody else has the server.
    #[cold]
    fn doubt_used(&mut self, used: impl Fn(&Known) -> u64) {
        let told = self.told;
        let shared = |known: &Known| !known.statement.private && !known.is_unproved();
        let these = self.known.values_mut().filter(|known| used(known) > told && shared(known));
        these.for_each(Known::doubt);
    }
}
