//! Clients that go to another worker, with their connection and all that their session holds.
//!
//! A client moves only between two transactions: it has no server, nothing is owed to it, and what it sends next was not
//! read. It does so when it has something to ask, so that clients that are silent cost nothing: because its pool does not live
//! here, or because this worker sheds a part of its work. It leaves at the end of the input in hand (`depart`), and joins the
//! queue of its new worker by the time since when it waits (`client_arrives`). Which workers a pool lives on is decided
//! in `homes.rs`; how cancel requests find a client that moves, in `whereabouts.rs`.

use std::sync::Arc;

use crate::client::{Client, ClientState, Limits, Link};
use crate::failure::Failure;
use crate::id::NO_POOL;
use crate::id::{ClientId, WorkerId};
use crate::inbox::Body;
use crate::mail::Letter;
use crate::names::PoolName;
use crate::pool::gates::Gate;
use crate::pool::told::{Asked, Shed};
use crate::time::{Duration, Time};
use crate::worker::Service;

/// How long a shedding lasts: whoever has nothing to ask in this time is not a part of the load.
const SHED_TIME: Duration = Duration::from_millis(250);

impl Service {
    /// The client has something to ask that this worker has no server for: it goes to where its pool lives.
    pub(super) fn goes_home(&mut self, id: ClientId) -> bool {
        let Some(client) = self.traffic.clients.get(id) else { return false };
        let index = client.pool;
        if self.traffic.pools[index].homes.is_empty() || !self.traffic.may_leave(id) {
            return false;
        }
        if self.traffic.departures.room() == 0 {
            self.traffic.departures.hold_back();
            return false;
        }
        let home = self.traffic.pools[index].next_home();
        self.leaves_for(id, home)
    }

    /// Whether this client is among those that go while the worker sheds load. Each draws once.
    pub(super) fn is_shed(&mut self, id: ClientId) -> bool {
        let Some(client) = self.traffic.clients.get(id) else { return false };
        let pool = &mut self.traffic.pools[client.pool];
        let Some(shed) = pool.shed else { return false };
        if shed.until <= self.traffic.cx.now {
            pool.shed = None;
            return false;
        }
        if client.drawn == shed.number || !self.traffic.may_leave(id) || self.traffic.departures.room() == 0 {
            return false;
        }
        let drawn = u16::from_le_bytes(self.traffic.cx.random()) % 1000;
        if let Some(client) = self.traffic.clients.get_mut(id) {
            client.drawn = shed.number;
        }
        drawn < shed.share_permille && self.leaves_for(id, Some(shed.to))
    }

    /// The connection of a client that moved has left too.
    pub(super) fn has_departed(&mut self) {
        if self.traffic.departures.ends() {
            for index in self.traffic.pools.indexes() {
                if !self.traffic.pools[index].waiting.is_empty() {
                    self.send_home(index);
                    self.traffic.ask(index);
                }
            }
        }
    }

    /// As many as may be on their way at once.
    pub(super) fn send_over(&mut self) {
        while self.traffic.departures.room() > 0
            && let Some(id) = self.traffic.departures.next_to_go_over()
        {
            if self.may_go_over(id) {
                self.traffic.departures.add(id, WorkerId::SUCCESSOR);
            }
        }
    }

    pub(super) fn may_go_over(&self, id: ClientId) -> bool {
        let Some(client) = self.traffic.clients.get(id) else { return false };
        client.session().is_some()
            && matches!(client.link, Link::None | Link::Waiting { .. })
            && client.inbox.body == Body::None
            && !client.congested
            && !client.ended
            && !client.overdue
            && self.traffic.departures.are_open(self.traffic.cx.now)
    }

    /// Whoever waits for a server of a pool that lives elsewhere goes there.
    fn send_home(&mut self, index: u32) {
        let pool = &self.traffic.pools[index];
        if pool.homes.is_empty() || pool.gate != Gate::Open {
            return;
        }
        // Most stay while many leave: those are not touched.
        let room = self.traffic.departures.room();
        let may_leave =
            self.traffic.pools[index].waiting.iter().filter(|waiting| self.traffic.may_leave(waiting.client));
        let leaving: Vec<_> = may_leave.take(room + 1).collect();
        if leaving.len() > room {
            self.traffic.departures.hold_back();
        }
        for waiting in leaving.into_iter().take(room) {
            if self.goes_home(waiting.client) {
                let place = self.traffic.clients.get(waiting.client).map_or(0, |client| client.place);
                self.traffic.pools[index].waiting.leave(waiting.client, waiting.since, place);
            }
        }
        self.traffic.schedule(index);
    }

    /// At the end of this input, that is: the bytes in hand are not taken.
    fn leaves_for(&mut self, id: ClientId, to: Option<WorkerId>) -> bool {
        let (Some(to), Some(client)) = (to, self.traffic.clients.get_mut(id)) else { return false };
        if client.link == Link::None {
            client.bind(Link::Waiting { since: self.traffic.cx.now });
            client.knows_it_waits = false;
        }
        self.traffic.departures.add(id, to);
        true
    }

    /// Sends a client away. What is left is a name: the connection itself travels, and its Closed ends this id.
    pub(super) fn depart(&mut self, id: ClientId, to: WorkerId) {
        let Some(client) = self.traffic.clients.get(id) else { return };
        let Some(since) = client.link.waiting_since() else { return };
        let index = client.pool;
        if !self.traffic.may_leave(id) {
            // Something has changed: it waits here like everybody else.
            return self.queue_by_time(index, id, since);
        }
        let mut left = Client::reserved(self.traffic.cx.now);
        left.enter(ClientState::Departed);
        let Some(place) = self.traffic.clients.get_mut(id) else { return };
        let mut client = Box::new(std::mem::replace(place, left));
        let Some(session) = client.session_mut() else { return };
        session.part();
        self.traffic.tell_credentials(index, to);
        let pool = &mut self.traffic.pools[client.pool];
        pool.clients = pool.clients.saturating_sub(1);
        let pool = Arc::clone(&pool.name);
        self.sessions.left(client.moved.process_id, to, client.moved.moves, client.number);
        client.moved.moves += 1;
        let kills = self.kills.of(&pool.database);
        self.traffic.departures.begins();
        self.traffic.cx.send_mail(to, Letter::Moves { pool, client, kills }, Some(id.into()));
        self.traffic.wants_no_more(index);
    }

    /// Its connection could not go. Nobody has heard of its leaving: it lives here as before, and waits for a server to come.
    pub(super) fn stays(&mut self, id: ClientId, letter: Letter) {
        debug_assert!(matches!(letter, Letter::Moves { .. }), "only a client that moves may be kept back");
        let Letter::Moves { pool, mut client, kills } = letter else { return };
        self.traffic.departures.stays(self.traffic.cx.now);
        client.moved.moves -= 1;
        self.join_in(&pool, *client, kills, id, None);
        self.has_departed();
    }

    /// A client that another worker sends to us.
    pub(super) fn client_arrives(
        &mut self,
        from: WorkerId,
        name: &PoolName,
        mut client: Client,
        kills: u32,
        id: ClientId,
    ) {
        self.traffic.cx.tell_steward(Letter::Lives { moved: client.moved, left: from });
        // A connection that was brought in is read from.
        client.held = false;
        self.join_in(name, client, kills, id, Some(from));
    }

    /// A client joins the queue of its pool, under the name of that connection.
    fn join_in(&mut self, name: &PoolName, client: Client, kills: u32, id: ClientId, from: Option<WorkerId>) {
        let since = client.link.waiting_since().unwrap_or(self.traffic.cx.now);
        let Some(index) = self.settle_in(name, client, id) else { return self.turn_away(id) };
        if self.kills.of(&name.database) > kills {
            return self.fail_client(id, &Failure::Killed);
        }
        if self.traffic.shutdown.is_under_way() && self.traffic.pools[index].gate != Gate::Open {
            return self.fail_client(id, &Failure::ShuttingDown);
        }
        if let Some(from) = from
            && (self.crowded || !self.traffic.pools[index].homes.is_empty())
        {
            // What its old worker knows is out of date, and what we know may be. Or there is no room here for more.
            self.traffic.cx.post(from, Letter::Astray { pool: Arc::clone(&self.traffic.pools[index].name) });
        }
        self.traffic.hold_client(id);
        self.queue_by_time(index, id, since);
    }

    /// Takes the place of that name, with all of its session that workers do not share. `None`: its database is no more.
    pub(super) fn settle_in(&mut self, name: &PoolName, mut client: Client, id: ClientId) -> Option<u32> {
        // Names that two workers share would be counted by both: these are ours alone.
        let name = Arc::new(name.own_copy());
        let index = self.traffic.pool_for(&name);
        client.bind(Link::None);
        client.deadline = crate::timers::Deadline::default();
        client.admitted = client.admitted.map(|(database, user)| ((&*database).into(), (&*user).into()));
        client.pool = index.unwrap_or(NO_POOL);
        if let ClientState::Ready(session) = &mut client.state {
            session.database = (&*session.database).into();
            session.user = (&*session.user).into();
            session.parameters = self.traffic.cx.parameter_sets.intern(session.parameters.own_copy());
            session.greeted = self.traffic.cx.parameter_sets.intern(session.greeted.own_copy());
            if let Some(startup) = &mut session.startup {
                startup.part();
            }
            if !session.statements.is_blank() {
                session.statements.intern_again(&mut self.traffic.cx.statements, &mut self.traffic.cx.parameter_sets);
            }
            session.limits = Limits::of(&self.traffic.cx.settings, &session.database, &session.user);
        }
        self.sessions.lives_here(client.moved.process_id, id);
        *self.traffic.clients.get_mut(id)? = client;
        self.traffic.pools[index?].clients += 1;
        index
    }

    /// Its database was removed while it travelled.
    pub(super) fn turn_away(&mut self, id: ClientId) {
        let report = Failure::DatabaseRemoved.report();
        self.traffic.cx.tell_error(id, &report);
        if let Some(client) = self.traffic.clients.get_mut(id) {
            client.enter(ClientState::Closing);
            self.sessions.ended(client.moved);
        }
        self.traffic.cx.out.close(id);
    }

    /// It waited elsewhere: its place in the queue here is that of its time.
    pub(super) fn queue_by_time(&mut self, index: u32, id: ClientId, since: Time) {
        self.traffic.queue(id, since);
        if self.traffic.pools[index].idle.is_empty() {
            self.traffic.ask(index);
        } else {
            self.traffic.schedule(index);
        }
    }

    /// A client was on its way to us, and its connection ended first.
    pub(super) fn client_lost(&mut self, from: WorkerId, client: Client) {
        let moved = client.moved;
        self.traffic.cx.tell_steward(Letter::Lives { moved, left: from });
        self.sessions.lost(moved.process_id);
        self.traffic.cx.tell_steward(Letter::Gone { admitted: client.admitted, moved: Some(moved) });
        self.look_quiet();
    }

    // What the steward says about a pool.

    /// The pool lives on these workers.
    pub(super) fn pool_lives_on(&mut self, name: &PoolName, homes: Vec<WorkerId>) {
        let Some(index) = self.traffic.pools.find(name) else { return };
        let own = self.traffic.cx.config.id;
        self.load.tell_again();
        let pool = &mut self.traffic.pools[index];
        pool.homes = if homes.contains(&own) { Vec::new() } else { homes };
        if pool.asked == Asked::Want {
            pool.asked = Asked::Nothing;
        }
        self.send_home(index);
        self.traffic.ask(index);
    }

    /// A part of the pool's clients and servers goes to another worker.
    pub(super) fn shed(&mut self, name: &PoolName, to: WorkerId, share_permille: u16) {
        let Some(index) = self.traffic.pools.find(name) else { return };
        self.load.tell_again();
        let number = self.traffic.departures.next_shedding();
        let pool = &mut self.traffic.pools[index];
        let servers_left = pool.servers * u32::from(share_permille) / 1000;
        let until = self.traffic.cx.now + SHED_TIME;
        pool.shed = Some(Shed { to, share_permille, servers_left, until, number });
        self.traffic.schedule(index);
    }

    /// What we know of the pool's homes is out of date: the next client that finds no server here asks the steward.
    pub(super) fn went_astray(&mut self, name: &PoolName) {
        if let Some(index) = self.traffic.pools.find(name) {
            self.traffic.pools[index].homes = Vec::new();
        }
    }
}
