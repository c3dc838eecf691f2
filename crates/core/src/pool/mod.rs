//! A worker's share of a pool: its idle servers, its waiting clients, and what it knows of the rest.
//!
//! A pool is (database, server user). How many servers it may have is the steward's business, which gives a permit for
//! each. Who is linked to whom is decided in `link.rs`.

pub(crate) mod checks;
pub(crate) mod credentials;
pub(crate) mod endpoints;
pub(crate) mod gates;
pub(crate) mod limits;
pub(crate) mod origin;
mod pools;
pub(crate) mod proven;
pub(crate) mod queue;
mod telling;
pub(crate) mod told;
pub(crate) mod welcome;

use std::collections::VecDeque;
use std::sync::Arc;

use weir_wire::Report;

use crate::cluster::survey::Looked;
use crate::derivations::Derived;
use crate::failure::Failure;
use crate::id::{ServerId, WorkerId};
use crate::kept::channels::Listener;
use crate::kept::knowledge::Knowledge;
use crate::making::Purpose;
use crate::names::PoolName;
use crate::peer::Endpoint;
use crate::pool::checks::Checks;
pub(crate) use crate::pool::credentials::Credentials;
use crate::pool::gates::Gate;
use crate::pool::limits::PoolLimits;
use crate::pool::origin::{Origin, Tls};
pub(crate) use crate::pool::pools::Pools;
use crate::pool::proven::Proven;
use crate::pool::queue::Queue;
use crate::pool::told::{Asked, Recall, Share, Shed};
pub(crate) use crate::pool::welcome::Welcome;
use crate::settings::{Database, PoolMode, Settings};

use crate::stats::Counters;
use crate::time::{Duration, Time};
use crate::timers::Deadline;
use crate::watched::Watched;

/// Servers that a worker logs in to at once for one pool, so that a burst does not become a storm of logins.
pub(crate) const CONNECTING_MAX: u32 = 8;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) name: Arc<PoolName>,
    pub(crate) database: Arc<Database>,
    /// As the settings of now have them.
    pub(crate) limits: PoolLimits,
    tls: Tls,
    pub(crate) gate: Gate,
    pub(crate) idle: VecDeque<ServerId>,
    pub(crate) checks: Checks,
    pub(crate) waiting: Queue,
    /// Clients that wait for a connection of their own (replication).
    pub(crate) tunnels: Queue,
    /// Logged-in clients of this worker.
    pub(crate) clients: u32,
    /// Server connections of this worker, those being made included.
    pub(crate) servers: u32,
    pub(crate) connecting: u32,
    /// Of those, the ones that are each for a client of its own, which is in no queue any more.
    pub(crate) tunnelling: u32,
    /// Of the others, the ones that are tried at an endpoint where logins fail.
    probing: u32,
    /// Those that are about to end.
    pub(crate) closing: u32,
    /// How many of the pool's servers are for this worker.
    pub(crate) share: Share,
    pub(crate) asked: Asked,
    /// The steward may have a want of ours.
    pub(crate) wants: bool,
    /// The least time between two wants, and when the next may leave.
    pub(crate) pause: Duration,
    pub(crate) ask_at: Time,
    pub(crate) recall: Option<Recall>,
    /// Where the pool lives, while that is not here. Empty: here, as far as is known.
    pub(crate) homes: Vec<WorkerId>,
    next_home: usize,
    pub(crate) shed: Option<Shed>,
    /// What was done for it before the load was last measured, and its share of the load as the steward knows it.
    pub(crate) work_before: u64,
    pub(crate) told_share_permille: u16,
    pub(crate) welcome: Option<Arc<Welcome>>,
    /// What PostgreSQL makes of startup packets.
    pub(crate) proven: Proven,
    /// What texts call, where clients' session state is kept.
    pub(crate) knowledge: Knowledge,
    /// What its cluster's catalogue says to its user.
    pub(crate) looked: Looked,
    /// Some client has asked for what `nextval` gave it: who gets a server has nothing of that from others.
    pub(crate) reads_sequences: bool,
    /// The server that listens for clients here.
    pub(crate) listener: Option<Box<Listener>>,
    /// Servers here that stay with their clients for those' state, and as the steward was told.
    pub(crate) pinned: u32,
    pub(crate) told_pinned: u32,
    pub(crate) credentials: Credentials,
    /// What the last login to a server was derived of: as a rule the next one needs the same.
    pub(crate) salted: Option<Derived>,
    /// The server takes nobody without TLS, as far as is known.
    pub(crate) needs_tls: bool,
    /// When the connection was begun that has told of its database last.
    pub(crate) database_since: Option<Time>,
    /// When its servers were those of another database last.
    pub(crate) database_left_at: Option<Time>,
    /// After a failed login, none is tried before this; what the steward knows of it (`endpoints.rs`).
    pub(crate) retry_at: Time,
    pub(crate) failures: u32,
    /// Connections one behind another that a load balancer has led to other nodes.
    pub(crate) misled: u32,
    /// The error that a server's login last ended in, while none has succeeded since.
    pub(crate) refusal: Option<Arc<Report>>,
    pub(crate) deadline: Deadline,
    /// But for queries that were a transaction each, which are in `watched`.
    pub(crate) counters: Counters,
    /// As they stood when the period under way began, and what the one before came to.
    pub(crate) counters_before: Counters,
    pub(crate) counted: Counters,
    pub(crate) watched: Watched,
    /// Since when it was seen to be unused.
    unused_since: Option<Time>,
    /// Its name is nobody's any more, and its place the next one's.
    forgotten: bool,
}

impl Pool {
    pub(crate) fn new(name: Arc<PoolName>, database: Arc<Database>, settings: &Settings) -> Self {
        let limits = PoolLimits::of(&name, settings);
        Self {
            name,
            database,
            limits,
            tls: Tls::of(settings),
            gate: Gate::Open,
            idle: VecDeque::new(),
            checks: Checks::default(),
            waiting: Queue::default(),
            tunnels: Queue::default(),
            clients: 0,
            servers: 0,
            connecting: 0,
            tunnelling: 0,
            probing: 0,
            closing: 0,
            share: Share::default(),
            asked: Asked::Nothing,
            pause: Duration::ZERO,
            ask_at: Time(0),
            recall: None,
            homes: Vec::new(),
            next_home: 0,
            shed: None,
            work_before: 0,
            told_share_permille: 0,
            wants: false,
            welcome: None,
            proven: Proven::default(),
            knowledge: Knowledge::default(),
            looked: Looked::default(),
            reads_sequences: false,
            listener: None,
            pinned: 0,
            told_pinned: 0,
            credentials: Credentials::default(),
            salted: None,
            needs_tls: false,
            retry_at: Time(0),
            database_since: None,
            database_left_at: None,
            failures: 0,
            misled: 0,
            refusal: None,
            deadline: Deadline::default(),
            counters: Counters::default(),
            counters_before: Counters::default(),
            counted: Counters::default(),
            watched: Watched::default(),
            unused_since: None,
            forgotten: false,
        }
    }

    /// Settings changed; answers whether servers made under the old ones are still right.
    pub(crate) fn renew(&mut self, database: Arc<Database>, settings: &Settings) -> bool {
        let before = self.origin();
        self.limits = PoolLimits::of(&self.name, settings);
        self.tls = Tls::of(settings);
        self.database = database;
        let (same, leads) = (self.origin().equals(&before), self.origin().leads_as(&before));
        if !same {
            self.welcome = None;
            self.proven.clear();
            self.knowledge.renewed(leads);
        }
        self.salted = None;
        // What was refused may be taken now: a secret, a certificate or an address may be another.
        self.login_succeeded();
        self.needs_tls = false;
        same
    }

    /// The database's name on the server.
    pub(crate) fn server_database(&self) -> &Arc<str> {
        self.database.server_database.as_ref().unwrap_or(&self.name.database)
    }

    /// Those may have databases of their own.
    pub(crate) fn has_several_hosts(&self) -> bool {
        self.database.endpoints.len() > 1
    }

    /// Its servers are made where a load balancer leads to one node or another.
    pub(crate) fn is_balanced(&self) -> bool {
        self.database.balanced.as_ref().is_some_and(|balanced| self.database.endpoints.first() == Some(balanced))
    }

    /// What a server made now is made after.
    pub(crate) fn origin(&self) -> Origin {
        let PoolLimits { mode, keeps, .. } = self.limits;
        Origin { database: Arc::clone(&self.database), mode, keeps, tls: self.tls }
    }

    /// Where a server is made: where the steward says, if these settings know it.
    pub(crate) fn endpoint(&self, told: Option<Endpoint>) -> Option<Endpoint> {
        let endpoints = &self.database.endpoints;
        told.filter(|told| endpoints.contains(told)).or_else(|| endpoints.first().cloned())
    }

    /// Where a client or a server of ours goes that does not stay here; its homes take turns.
    pub(crate) fn next_home(&mut self) -> Option<WorkerId> {
        if self.homes.is_empty() || self.limits.mode == PoolMode::Session {
            return None;
        }
        self.next_home = (self.next_home + 1) % self.homes.len();
        Some(self.homes[self.next_home])
    }

    /// A query that was sent then has been answered now, and with it the transaction that began then, if any.
    #[inline]
    pub(crate) fn count_query(&mut self, now: Time, sent: Time, began: Option<Time>) {
        let (counters, watched) = (&mut self.counters, &mut self.watched);
        let took = now.since(sent);
        if began == Some(sent) {
            return watched.count_lone(took);
        }
        counters.query_time += took.0;
        watched.queries.count(took);
        if let Some(began) = began {
            let took = now.since(began);
            counters.transactions += 1;
            counters.transaction_time += took.0;
            watched.transactions.count(took);
        }
    }

    pub(crate) fn counted_so_far(&self) -> Counters {
        self.watched.add_to(self.counters)
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        self.forgotten
    }

    fn forget(&mut self) {
        self.forgotten = true;
        self.welcome = None;
        self.proven.clear();
        self.knowledge = Knowledge::default();
        self.credentials = Credentials::default();
    }

    /// No client, no server, nothing under way.
    fn is_unused(&self) -> bool {
        self.clients == 0
            && self.servers == 0
            && self.waiting.is_empty()
            && self.tunnels.is_empty()
            && self.asked == Asked::Nothing
    }

    /// One more server is being made; `alone`: where logins fail.
    pub(crate) fn login_begins(&mut self, purpose: &Purpose, alone: bool) {
        self.connecting += 1;
        if purpose.is_tunnel() {
            self.tunnelling += 1;
        } else {
            self.probing += u32::from(alone);
        }
    }

    pub(crate) fn login_over(&mut self, purpose: &Purpose, alone: bool) {
        self.connecting = self.connecting.saturating_sub(1);
        if purpose.is_tunnel() {
            self.tunnelling = self.tunnelling.saturating_sub(1);
        } else {
            self.probing = self.probing.saturating_sub(u32::from(alone));
        }
    }

    /// Servers that are being made, and not for one client alone.
    pub(crate) fn made_for_all(&self) -> usize {
        self.connecting.saturating_sub(self.tunnelling) as usize
    }

    /// Those of them that whoever waits may count on. One that is tried where logins fail may be long in failing, while others are to be had.
    pub(crate) fn on_their_way(&self) -> usize {
        let several = self.database.endpoints.len() > 1;
        let made = self.made_for_all().saturating_sub(if several { self.probing as usize } else { 0 });
        made + self.checks.prompt() + self.knowledge.keeps_waiting()
    }

    /// Somebody waits for a server that is not on its way. None that is is for who waits for a connection of their own.
    pub(crate) fn misses_one(&self) -> bool {
        self.waiting.len() > self.on_their_way() || !self.tunnels.is_empty()
    }

    /// That server is on its way to nobody any more. Whether somebody may have counted on it.
    pub(crate) fn forgets(&mut self, id: ServerId) -> bool {
        self.knowledge.forgets(id);
        self.checks.ends(id)
    }

    /// Servers that stay, as far as is known.
    pub(crate) fn staying(&self) -> u32 {
        self.servers - self.closing
    }

    /// One more server, which the steward knows of or is about to hear of: it has a place. Whether that is one that the share has not: the steward may have
    /// counted it, and is to tell it once more.
    pub(crate) fn one_more(&mut self) -> bool {
        self.servers += 1;
        let before = self.share.most;
        self.share.most = before.max(self.staying());
        self.share.most != before
    }

    /// That server is not idle any more. Those that are idle longest stand first, and they are most of those that go.
    pub(crate) fn forget_idle(&mut self, id: ServerId) {
        if let Some(place) = self.idle.iter().position(|&idle| idle == id) {
            self.idle.remove(place);
        }
    }

    pub(crate) fn first_waiting_since(&self) -> Option<Time> {
        self.waiting.first().map(|waiting| waiting.since)
    }

    /// Since when somebody waits for a server, shared or not.
    pub(crate) fn oldest_want(&self) -> Option<Time> {
        let shared = self.first_waiting_since();
        if self.tunnels.is_empty() {
            return shared;
        }
        let own = self.tunnels.first().map(|waiting| waiting.since);
        shared.into_iter().chain(own).min()
    }

    /// What whoever waits is told where logins fail.
    pub(crate) fn refuses(&self) -> Option<Failure> {
        let report = self.refusal.as_ref()?;
        // What PostgreSQL says of `auth_user` is for nobody who has proved nothing yet.
        let looks_up = self.name.looks_up;
        Some(if looks_up { Failure::LookupFailed } else { Failure::ServerLogin { report: Arc::clone(report) } })
    }

    /// The same for whoever has named this database. That there is none may be told: by their name, not by what the entry makes of it.
    pub(crate) fn refuses_in(&self, database: &str) -> Option<Failure> {
        let failure = self.refuses()?;
        let is_missing = self.refusal.as_ref().is_some_and(|report| report.code == "3D000");
        let missing = || Failure::DatabaseMissing { name: database.to_owned() };
        Some(if self.name.looks_up && is_missing && *self.name.database == *database { missing() } else { failure })
    }

    pub(crate) fn login_succeeded(&mut self) {
        self.failures = 0;
        self.retry_at = Time(0);
        self.refusal = None;
    }

    /// What servers greet with from now on. Where it differs, values may come to something else from the new defaults on.
    pub(crate) fn set_welcome(&mut self, welcome: Arc<Welcome>) {
        if self.welcome.as_ref() != Some(&welcome) {
            self.proven.clear();
        }
        self.welcome = Some(welcome);
    }
}
