//! Which database a pool's servers are of, where another may have its name.

use crate::id::ServerId;
use crate::kept::knowledge::is_same;
use crate::making::Purpose;
use crate::making::login_failure::LoginFailure;
use crate::server::{Server, ServerState};
use crate::time::{Duration, Time};
use crate::worker::Traffic;

/// A pool whose database is another again so soon has two of them behind one address.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);
/// One that has become free, or was given to a client, so lately answers.
const SERVED_WITHIN: Duration = Duration::from_secs(5);

/// A server that comes to its pool, and when its connection was begun: that is to where the address led then.
type Comes = (ServerId, Time);

impl Traffic {
    /// Why a server that has logged in is not taken, if its database is one that its pool does not follow. Where two are behind one address, each login would
    /// take the servers of the last: those that are here stay, and the next login waits, longer each time.
    pub(super) fn refuse_database(&self, id: ServerId) -> Option<LoginFailure> {
        let server = self.servers.get(id)?;
        let ServerState::Making(making) = &server.state else { return None };
        let comes = (id, server.made_at);
        let is_refused =
            matches!(making.purpose, Purpose::Pool) && self.is_refused(server.pool, making.database.as_deref(), comes);
        is_refused.then(|| LoginFailure::at_once("its database is another again than that of the pool's other servers"))
    }

    fn is_refused(&self, index: u32, database: Option<&[u8]>, (id, made_at): Comes) -> bool {
        let pool = &self.pools[index];
        let is_another = database.is_some_and(|told| pool.knowledge.is_of_another_than(told));
        let is_older = pool.database_since.is_some_and(|since| made_at < since);
        let has_left_one = pool.database_left_at.is_some_and(|left_at| self.cx.now < left_at + SETTLES_WITHIN);
        is_another && !pool.has_several_hosts() && (is_older || has_left_one && self.is_served(index, id))
    }

    /// The server that comes is of that database. One that is made anew, or renamed, has another's name: those that came before are of the other,
    /// and what is known of the one's code is not so of the other's. Those that are being made tell of theirs when they are. Several hosts may have
    /// databases of different numbers: there only the code is read again.
    pub(super) fn follow_database(&mut self, index: u32, database: Option<Box<[u8]>>, (comes, made_at): Comes) {
        let alone = !self.is_connected(index, comes);
        let pool = &mut self.pools[index];
        pool.database_since = Some(made_at).max(pool.database_since);
        let told = database.clone();
        if !pool.knowledge.learns_database(database, alone) || pool.has_several_hosts() {
            return;
        }
        let mut is_left = false;
        for id in self.servers.ids() {
            let Some(server) = self.servers.get(id).filter(|server| server.pool == index && id != comes) else {
                continue;
            };
            // In between one may have come that told nothing.
            let is_same = told.as_deref().zip(server.database.as_deref()).is_some_and(|(told, own)| is_same(own, told));
            if !is_same && !matches!(server.state, ServerState::Making(_) | ServerState::Closing) {
                is_left |=
                    !(server.told || server.kept.of_another_database || matches!(server.state, ServerState::Tunnel(_)));
                self.mark_server(id, true, "the database of that name is another now");
            }
        }
        if is_left {
            self.pools[index].database_left_at = Some(self.cx.now);
            let text = "its database may be another than that of the pool's servers before: these are closed";
            self.cx.log_warning(format!("{} {text}", self.server_label(comes)));
        }
    }

    /// Whether a server that comes from another worker is of another database than those here: nobody knows which of them is the newer one.
    pub(super) fn comes_from_another_database(
        &mut self,
        index: u32,
        database: Option<Box<[u8]>>,
        comes: Comes,
    ) -> bool {
        let alone = !self.is_connected(index, comes.0);
        let pool = &mut self.pools[index];
        match database {
            Some(database) if !alone && !pool.has_several_hosts() => !pool.knowledge.agrees_with(database),
            database if self.is_refused(index, database.as_deref(), comes) => true,
            database => {
                self.follow_database(index, database, comes);
                false
            }
        }
    }

    /// Whether a server, beside that one, was made, has become free or was given to somebody just now: those of a host that hangs are connected, too.
    fn is_served(&self, index: u32, beside: ServerId) -> bool {
        let answers = |server: &Server| self.cx.now < server.idle_at.max(server.linked_at) + SERVED_WITHIN;
        self.servers.iter().any(|(id, server)| id != beside && server.is_of_use_to(index) && answers(server))
    }

    /// Whether a server is there, beside that one, that is of the pool's database of now.
    fn is_connected(&self, index: u32, beside: ServerId) -> bool {
        self.servers.iter().any(|(id, server)| id != beside && server.is_of_use_to(index))
    }
}
