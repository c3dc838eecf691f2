//! Whose a notification is.

use super::replies::{BROKEN, READ_BYTES_MAX, Reply, Verdict};
use super::{Answers, Outcome};
use crate::id::ClientId;
use crate::kept::channels::Notification;
use crate::settings::PoolMode;

impl Answers<'_> {
    /// A notification where a server of the pool listens for many: it may be that one's, or one that both tell a client.
    #[cold]
    pub(super) fn heard(&mut self, reply: &Reply<'_>, client: Option<ClientId>) -> Verdict {
        let body = reply.whole_body();
        if body.is_none() && reply.total <= READ_BYTES_MAX {
            return Verdict::More(reply.total);
        }
        let client = self.notified().or(client);
        let told = body.and_then(Notification::read);
        let Some(listener) = &mut self.pool.listener else { return Verdict::Used(self.pass(reply, client)) };
        // PostgreSQL tells no longer ones.
        let Some(told) = told else { return BROKEN };
        if listener.server == self.server_id {
            self.then = Some(Outcome::Notified(reply.bytes[..reply.present()].into()));
            return Verdict::Used(self.pass(reply, None));
        }
        #[cfg(feature = "planted")]
        let is_planted = self.cx.planted == Some(crate::planted::Planted::HearTwice);
        #[cfg(not(feature = "planted"))]
        let is_planted = false;
        let client = client.filter(|client| is_planted || listener.is_for(*client, &told));
        Verdict::Used(self.pass(reply, client))
    }

    /// The client whose session this is, also where a query of ours is under way. (A login only borrows the server.)
    pub(super) fn notified(&self) -> Option<ClientId> {
        let is_its_own = self.server.kept.on || self.pool.limits.mode == PoolMode::Session;
        let ready = self.client.as_ref().filter(|(_, client)| is_its_own && client.session().is_some());
        ready.map(|(id, _)| *id)
    }
}
