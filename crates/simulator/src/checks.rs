//! What must always hold, and the first time it did not. Knows who asked for what; how bytes travel is not known here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::postgres::Belief;
use crate::postgres::language::Tag;
use crate::routes::Routes;

/// A broken law: which, and what was seen.
#[derive(Debug, Clone)]
pub struct Violation {
    pub law: &'static str,
    pub text: String,
}

/// A cancel that a client asked for: which of its statements it may hit.
#[derive(Debug)]
struct Ask {
    client: u32,
    first: u32,
    /// `None` while the request is under way: what the client sends meanwhile may be hit too, as with PostgreSQL.
    last: Option<u32>,
}

/// Where a client's statements may run, by the servers' names.
#[derive(Debug)]
pub struct Home {
    pub databases: BTreeSet<String>,
    pub users: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub struct Checks {
    pub violation: Option<Violation>,
    /// What servers made last.
    pub committed: BTreeSet<Tag>,
    asks: Vec<Ask>,
    homes: BTreeMap<u32, Home>,
    /// Clients that are gone: the pooler may cancel what they left running.
    gone: BTreeSet<u32>,
    /// Clients whose session the pooler may end itself, for a timeout or a command.
    pub pooler_may_cancel: bool,
    /// How often each client was told of a stale plan, by (client, schema version).
    stale_told: BTreeMap<(u32, u32), u32>,
    /// What clients listen to.
    listening: BTreeMap<u32, Listening>,
    /// Types that are in no committed table, and the client that made them.
    uncommitted: BTreeMap<u32, u32>,
    /// Where statements come to in a cluster.
    pub routes: Routes,
}

/// What one client listens to, in this cluster's database, as a session of its own would.
#[derive(Debug, Default)]
struct Listening {
    place: (usize, String),
    channels: BTreeSet<String>,
    /// By channel, what was notified there and has not been told.
    comes: BTreeMap<String, VecDeque<Coming>>,
}

#[derive(Debug)]
struct Coming {
    payload: String,
    /// The client has left the channel since.
    may_be_left_out: bool,
}

/// A client may hear of a changed result type once per server that knew the old one, and no more.
const STALE_TOLD_MAX: u32 = 12;

impl Checks {
    /// Records the first violation only: those after it follow from it.
    pub fn fail(&mut self, law: &'static str, text: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { law, text });
        }
    }

    /// A client sends a cancel request while `first` is its oldest statement without an answer.
    pub fn cancel_asked(&mut self, client: u32, first: u32) -> usize {
        self.asks.push(Ask { client, first, last: None });
        self.asks.len() - 1
    }

    /// The cancel request's connection is closed: what the client sends from now on is safe.
    pub fn cancel_done(&mut self, ask: usize, last: u32) {
        self.asks[ask].last = Some(last);
    }

    pub fn client_comes(&mut self, client: u32, home: Home) {
        self.homes.insert(client, home);
    }

    /// A client's request has come to this session.
    pub fn runs_at(&mut self, client: u32, database: &str, user: &str) {
        if let Some(home) = self.homes.get(&client)
            && !(home.databases.contains(database) && home.users.contains(user))
        {
            let text = format!("a request of client {client} came to a session of {user} in {database}");
            self.fail("in its own database, as its own user", text);
        }
    }

    pub fn client_gone(&mut self, client: u32) {
        self.gone.insert(client);
        self.listening.remove(&client);
    }

    /// A cancel hits a running statement.
    pub fn cancel_hit(&mut self, tag: Option<Tag>) {
        let Some(tag) = tag else { return };
        let asked = self.asks.iter().any(|ask| {
            ask.client == tag.client && ask.first <= tag.number && ask.last.is_none_or(|last| tag.number <= last)
        });
        if !asked && !self.gone.contains(&tag.client) && !self.pooler_may_cancel {
            let asks: Vec<_> = self.asks.iter().filter(|ask| ask.client == tag.client).collect();
            self.fail("cancel hit another", format!("{tag} was cancelled and nobody asked for that: {asks:?}"));
        }
    }

    pub fn committed_told(&mut self, tag: Tag) {
        if !self.committed.contains(&tag) {
            self.fail("commit told and not done", format!("client was told that {tag} is committed"));
        }
    }

    pub fn rolled_back_told(&mut self, tag: Tag) {
        if self.committed.contains(&tag) {
            self.fail("rollback told and not done", format!("client was told that {tag} is rolled back"));
        }
    }

    /// A session has committed a client's LISTEN.
    pub fn listens(&mut self, by: Option<Tag>, (cluster, database): (usize, &str), channel: &str) {
        let Some(Tag { client, .. }) = by.filter(|tag| !self.gone.contains(&tag.client)) else { return };
        let listening = self.listening.entry(client).or_default();
        listening.place = (cluster, database.to_owned());
        listening.channels.insert(channel.to_owned());
    }

    /// And its UNLISTEN, of all channels where none is named.
    pub fn listens_no_more(&mut self, by: Option<Tag>, channel: Option<&str>) {
        let Some(listening) = by.and_then(|tag| self.listening.get_mut(&tag.client)) else { return };
        let left = |own: &str| channel.is_none_or(|channel| channel == own);
        listening.channels.retain(|own| !left(own));
        let coming = listening.comes.iter_mut().filter(|(own, _)| left(own));
        coming.flat_map(|(_, coming)| coming).for_each(|coming| coming.may_be_left_out = true);
    }

    /// A session has committed a NOTIFY.
    pub fn notifies(&mut self, (cluster, database): (usize, &str), channel: &str, payload: &str) {
        for listening in self.listening.values_mut() {
            if listening.place.0 == cluster && listening.place.1 == database && listening.channels.contains(channel) {
                let coming = Coming { payload: payload.to_owned(), may_be_left_out: false };
                listening.comes.entry(channel.to_owned()).or_default().push_back(coming);
            }
        }
    }

    /// A client is told of a notification: each once, in the order of their commits.
    pub fn notified(&mut self, client: u32, channel: &str, payload: &str) {
        let coming = self.listening.get_mut(&client).and_then(|listening| listening.comes.get_mut(channel));
        if let Some(coming) = coming {
            while let Some(next) = coming.pop_front() {
                if next.payload == payload {
                    return;
                }
                if !next.may_be_left_out {
                    break;
                }
            }
        }
        self.fail("told what was notified", format!("client {client} hears {payload:?} on {channel:?}"));
    }

    /// What a client was to hear and has not heard.
    pub fn unheard(&self, client: u32) -> Option<&str> {
        let coming = self.listening.get(&client)?.comes.values().flatten();
        coming.filter(|coming| !coming.may_be_left_out).map(|coming| &*coming.payload).next()
    }

    pub fn types_made(&mut self, types: u32, by: Option<Tag>) {
        self.uncommitted.insert(types, by.map_or(0, |tag| tag.client));
    }

    pub fn types_committed(&mut self, types: u32) {
        self.uncommitted.remove(&types);
    }

    /// A client's statement has parameters of these types, as a server prepared it. `oldest`: those of the table when the client
    /// sent its Parse; a server that is given the statement later may find newer ones.
    pub fn prepared_for(&mut self, client: u32, types: u32, oldest: u32) {
        if types < oldest {
            let text = format!("client {client} has types {types}, and at its Parse they were {oldest} already");
            self.fail("statement older than its Parse", text);
        }
        if self.uncommitted.get(&types).is_some_and(|maker| *maker != client) {
            let text = format!("client {client} has types {types}, which a client made and did not commit");
            self.fail("types of another's transaction", text);
        }
    }

    /// A Bind is run under these types.
    pub fn bound(&mut self, tag: Option<Tag>, belief: Belief, types: u32) {
        let Some(Tag { client, .. }) = tag else { return };
        self.prepared_for(client, types, belief.oldest);
        if belief.told != 0 && belief.told != types {
            let text =
                format!("client {client} was told of types {}, and its values are taken for {types}", belief.told);
            self.fail("value taken for another type", text);
        }
    }

    pub fn stale_plan_told(&mut self, client: u32, schema_version: u32) {
        let told = self.stale_told.entry((client, schema_version)).or_default();
        *told += 1;
        if *told > STALE_TOLD_MAX {
            self.fail("stale plan lasts", format!("client {client} still gets the plan of an older schema"));
        }
    }
}
