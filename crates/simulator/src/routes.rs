//! Laws of a cluster: where statements may come to, and what they may mean there.
//!
//! What the pooler knows of the nodes is some seconds old, so that what was so in a bounded past counts; what a name means is never a matter of that.

use std::collections::BTreeMap;

use weir_core::time::{Duration, Time};

use crate::checks::Checks;
use crate::postgres::access::{self, Access, Deed};
use crate::postgres::language::Tag;
use crate::postgres::sharded::{COORDINATOR, Sharded, Table};

/// What the pooler knows of rows and nodes is no older. It looks every five seconds, but waits for whoever has the servers.
const STALE_MAX: Duration = Duration::from_secs(60);

/// A transaction block, from its first statement to its last.
#[derive(Debug)]
struct Block {
    last: u32,
    /// The session that it has come to, and with which statement.
    place: Option<(usize, u32)>,
}

#[derive(Debug)]
pub struct Routes {
    /// By the client and the first statement.
    blocks: BTreeMap<(u32, u32), Block>,
    sent: BTreeMap<(u32, u32), Time>,
    /// How long it takes until all workers have heard that tables may be others: as for rows, where the pooler reads no texts.
    pub letter: Duration,
    /// Settings send queries to whichever node may answer, or all to the coordinator.
    pub any: bool,
    /// The last session of each client: what it asks while the pooler has work of its own there goes on there.
    last: BTreeMap<u32, usize>,
    /// The statement in hand may be such a one.
    goes_on: bool,
    /// The pooler knows all by now: nothing is stale.
    pub settled: Option<Time>,
}

impl Default for Routes {
    fn default() -> Self {
        Self {
            blocks: BTreeMap::new(),
            sent: BTreeMap::new(),
            letter: STALE_MAX,
            any: false,
            last: BTreeMap::new(),
            goes_on: false,
            settled: None,
        }
    }
}

impl Routes {
    fn block(&self, tag: Tag) -> Option<(&u32, &Block)> {
        let before = self.blocks.range((tag.client, 0)..=(tag.client, tag.number)).next_back();
        before.map(|((_, first), block)| (first, block)).filter(|(_, block)| block.last >= tag.number)
    }

    /// When the client has sent that, or what its block begins with.
    fn sent(&self, tag: Tag) -> Time {
        let number = self.block(tag).map_or(tag.number, |(first, _)| *first);
        let before = self.sent.range((tag.client, 0)..=(tag.client, number)).next_back();
        before.map_or(Time(0), |(_, at)| *at)
    }
}

fn before(time: Time, by: Duration) -> Time {
    Time(time.0.saturating_sub(by.0))
}

impl Checks {
    /// A client has sent a request that begins with this statement.
    pub fn sends(&mut self, client: u32, first: u32, now: Time) {
        self.routes.sent.insert((client, first), now);
    }

    /// These statements of a client's are one transaction block.
    pub fn is_block(&mut self, client: u32, first: u32, last: u32) {
        self.routes.blocks.insert((client, first), Block { last, place: None });
    }

    /// A statement is to be done in this session. `explicit`: in a block, which there is none of where its BEGIN has failed.
    pub fn comes_to(&mut self, tag: Tag, session: usize, explicit: bool) {
        self.routes.goes_on = self.routes.last.insert(tag.client, session) == Some(session);
        let before = self.routes.blocks.range_mut((tag.client, 0)..=(tag.client, tag.number)).next_back();
        let Some((_, block)) = before.filter(|(_, block)| explicit && block.last >= tag.number) else { return };
        let (first, decider) = *block.place.get_or_insert((session, tag.number));
        if first != session {
            let text = format!("{tag} has come to session {session}, and c{}.{decider} to {first}", tag.client);
            self.fail("a transaction is on one server", text);
        }
    }

    /// What only the coordinator does has come to this server.
    pub fn comes_for_coordinator(&mut self, tag: Option<Tag>, access: &Access, server: usize) {
        if server != COORDINATOR {
            self.fail("to the coordinator", format!("{access:?} of {tag:?} has come to server {server}"));
        }
    }

    /// A statement is about this table on this server. `own`: what its transaction has made of `early.accounts`.
    pub fn accesses(
        &mut self,
        tag: Option<Tag>,
        sharded: &Sharded,
        (access, key): (&Access, Option<i64>),
        (table, path, own): (Table, &str, Option<bool>),
        server: usize,
    ) {
        let Some(tag) = tag else { return };
        let sent = self.routes.sent(tag);
        let mut states = sharded.early.since(before(sent, self.routes.letter)).copied().chain(own);
        if !states.any(|early| access::table(&access.name, path, early) == Some(table)) {
            let text = format!("{tag} {access:?} is about {table:?} on server {server}, with the path {path}");
            return self.fail("a name means what it means on the coordinator", text);
        }
        let decides =
            self.routes.block(tag).is_none_or(|(_, block)| block.place.is_none_or(|(_, first)| first == tag.number));
        if !decides || self.routes.goes_on || server == COORDINATOR && self.routes.settled.is_none() {
            return;
        }
        if access.is_coordinators(table) {
            return self.comes_for_coordinator(Some(tag), access, server);
        }
        let oldest = self.routes.settled.unwrap_or(before(sent, STALE_MAX));
        let mut placements = sharded.placement.since(oldest);
        let is_right = placements.any(|placement| match placement.owner(table, key) {
            Some(owner) if !self.routes.any => owner == server,
            _ => placement.has(server) && (table != Table::Colours || access.deed == Deed::Read),
        });
        if !is_right {
            let text =
                format!("{tag} {access:?} with {key:?} has come to server {server}: {:?}", sharded.placement.now);
            self.fail("to the owner", text);
        }
    }
}
