//! Clients that go to the process that takes over (`-R`), with their connections, and those that come from the one before.

use crate::client::{Client, ClientState, Discard, Limits, Link, Session};
use crate::id::{ClientId, Moved, WorkerId};
use crate::mail::Letter;
use crate::parameters::startup::Startup;
use crate::passport::Passport;
use crate::sparse::Sparse;
use crate::statements::{ClientStatements, Unnamed};
use crate::worker::Service;
use std::sync::Arc;

impl Service {
    /// What is left is a name, until its connection has left.
    pub(super) fn go_over(&mut self, id: ClientId) {
        if !self.may_go_over(id) {
            return;
        }
        let Some(client) = self.traffic.clients.get_mut(id) else { return };
        let pool = &mut self.traffic.pools[client.pool];
        let Some(passport) = Passport::of(client, &pool.name, &pool.credentials, self.traffic.cx.now) else {
            return;
        };
        let mut left = Client::reserved(self.traffic.cx.now);
        left.enter(ClientState::Departed);
        // The steward hears of it when the connection has left: this process lives until then.
        (left.counted, left.admitted, left.number) = (client.counted, client.admitted.take(), client.number);
        left.moved = client.moved;
        let client = std::mem::replace(client, left);
        pool.clients = pool.clients.saturating_sub(1);
        if let Link::Waiting { since } = client.link {
            pool.waiting.leave(id, since, client.place);
        }
        self.sessions.ended(client.moved);
        self.traffic.departures.begins();
        self.traffic.cx.send_mail(WorkerId::SUCCESSOR, Letter::Guest { passport: Box::new(passport) }, Some(id.into()));
        self.traffic.wants_no_more(client.pool);
    }

    /// Its connection could not go: it is served here as before.
    pub(super) fn guest_stays(&mut self, id: ClientId, passport: Passport) {
        self.traffic.departures.stays(self.traffic.cx.now);
        self.guest_settles(passport, id);
        self.has_departed();
    }

    /// A client that the process before had, or that could not be sent to the next one and comes `from` here.
    pub(super) fn guest_arrives(&mut self, from: WorkerId, passport: Passport, id: ClientId) {
        let (database, user) = (passport.database.as_str().into(), passport.user.as_str().into());
        self.traffic.cx.tell_steward(Letter::CameOver { database, user });
        if from != WorkerId::SUCCESSOR {
            self.traffic.cx.tell_steward(Letter::OffItsWay);
        }
        let number = self.traffic.cx.next_number();
        if let Some(client) = self.traffic.clients.get_mut(id) {
            (client.counted, client.number) = (true, number);
            client.admitted = Some((passport.database.as_str().into(), passport.user.as_str().into()));
        }
        self.guest_settles(passport, id);
    }

    /// Under the name of its connection, as far as that is counted already.
    pub(super) fn guest_settles(&mut self, mut passport: Passport, id: ClientId) {
        let Some(counted) = self.traffic.clients.get_mut(id) else { return };
        let (number, is_counted, admitted) = (counted.number, counted.counted, counted.admitted.take());
        let (inbox, name) = (passport.inbox(), Arc::new(passport.pool()));
        let unread = inbox.has_partial();
        let mut client = Client::reserved(self.traffic.cx.now);
        (client.number, client.counted, client.admitted, client.inbox) = (number, is_counted, admitted, inbox);
        (client.peer, client.local) = (passport.peer.clone(), passport.local.clone());
        client.tls = passport.tls.clone().map(Box::new);
        client.connected_at = passport.connected_at(self.traffic.cx.now);
        // Two processes may have given the same number. Who came later is not cancelled by what it was told, and nobody else is.
        let is_taken = self.sessions.find(passport.process_id).is_some();
        let process_id = if is_taken { self.sessions.number() } else { passport.process_id };
        client.moved = Moved { process_id, moves: 0 };
        // Shown to whom nobody is asked any more, it counts no longer.
        let vouches = self.traffic.cx.settings.hba.asks_others();
        let credentials = Some(passport.credentials()).filter(|credentials| vouches || !credentials.shown);
        client.enter(ClientState::Ready(Box::new(self.session_of(passport))));
        let Some(index) = self.settle_in(&name, client, id) else { return self.turn_away(id) };
        if let Some(credentials) = credentials {
            self.traffic.pools[index].credentials.meet(credentials);
        }
        self.traffic.arm_client(id);
        self.traffic.fill(index);
        if unread {
            self.traffic.hold_client(id);
            self.traffic.wake_client(id);
        }
        self.traffic.suspend_newcomer(id);
    }

    pub(super) fn session_of(&mut self, passport: Passport) -> Session {
        let (now, idle_at) = (self.traffic.cx.now, passport.idle_at(self.traffic.cx.now));
        let (cache, sets) = (&mut self.traffic.cx.statements, &mut self.traffic.cx.parameter_sets);
        let statements = passport.statements.map(|saved| ClientStatements::of_saved(saved, cache, sets));
        Session {
            limits: Limits::of(&self.traffic.cx.settings, &passport.database, &passport.user),
            database: passport.database.into(),
            user: passport.user.into(),
            parameters: sets.intern(passport.parameters),
            read: None,
            startup: passport.startup.and_then(Startup::of_saved),
            statements: statements.map_or_else(Sparse::default, Sparse::from),
            unnamed: passport.unnamed.map(|saved| Unnamed::of_saved(saved, cache, sets)).unwrap_or_default(),
            told: passport.told,
            cancel_key: passport.cancel_key,
            discard: Discard::Nothing,
            begun: None,
            batch: passport.batch,
            listens: false,
            greeted: sets.intern(passport.greeted),
            standby: passport.standby,
            request_at: now,
            asked_at: now,
            asks: false,
            idle_at,
            transaction_at: now,
        }
    }
}
