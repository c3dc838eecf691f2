//! A server that nobody uses: the steps by which it becomes clean, and back to its pool.

use weir_wire::{TransactionStatus, write};

use crate::client::after;
use crate::id::ServerId;
use crate::kept::Kinds;
use crate::kept::catalogue::{ahead, question};
use crate::kept::knowledge::READ_APART;
use crate::kept::words::Changed;
use crate::mail::Letter;
use crate::pool::gates::Gate;
use crate::server::{Cancel, Hold, Reset, ServerState};
use crate::time::Time;
use crate::timers::Subject;
use crate::worker::Traffic;
use crate::worker::patience::RECOVERY;

/// For the log.
pub(super) const LEAVES_FOR_GOOD: &str = "its client has left what nothing takes back";

impl Traffic {
    /// A clean server: back to its pool, unless it is right for nobody.
    pub(super) fn free_server(&mut self, server_id: ServerId) {
        let now = self.cx.now;
        let Some(server) = self.servers.get_mut(server_id) else { return };
        let index = server.pool;
        let pool = &mut self.pools[index];
        let lifetime = pool.limits.server_lifetime;
        if server.has_part_of_a_reply() {
            return self.close_server(server_id, "server sent part of a reply while idle");
        }
        if server.close_needed || pool.gate != Gate::Open {
            return self.close_server(server_id, "close_needed");
        }
        if self.shutdown.hands_over() && pool.waiting.is_empty() && pool.tunnels.is_empty() {
            return self.close_server(server_id, "another process takes over");
        }
        if pool.staying() > pool.share.most {
            return self.close_server(server_id, "too many servers in the pool");
        }
        if !server.facts_changed.is_empty() {
            return self.close_server(server_id, "a client left it as another user's session");
        }
        // One that was just made is for those who wait, however long that took.
        if server.used && server.lifetime_end(lifetime) <= now {
            return self.close_server(server_id, "server lifetime over");
        }
        #[cfg(feature = "planted")]
        let late = self.cx.planted == Some(crate::planted::Planted::LateCancel);
        #[cfg(not(feature = "planted"))]
        let late = false;
        if server.cancel != Cancel::None && !late {
            server.enter(ServerState::Held);
            return;
        }
        if let Some(exact) = &server.exact {
            if !exact.is_clean(&server.parameters) {
                self.note_short_life(server_id);
                return self.close_server(server_id, "it holds what no reset takes back");
            }
        } else if pool.limits.keeps
            && (pool.knowledge.is_due(now) || pool.knowledge.has_to_wait(server_id))
            && !server.is_console()
        {
            return self.read_code(server_id);
        }
        server.enter(ServerState::Idle);
        server.idle_at = now;
        pool.idle.push_back(server_id);
        let due = after(pool.limits.server_idle_timeout, now).min(server.lifetime_end(lifetime));
        self.cx.timers.set(Subject::Server(server_id), &mut server.deadline, due);
        let waited_for = !pool.waiting.is_empty() || !pool.tunnels.is_empty();
        if waited_for || pool.recall.is_some() || pool.shed.is_some() || !pool.homes.is_empty() {
            self.schedule(index);
        }
    }

    /// This server's client may have changed what texts of its database call, on whichever worker they come. It is told as soon as
    /// what makes the change visible is sent (`exchange/altering.rs`), and again with the answers that may say that it is there, up to the end of its transaction.
    #[cold]
    pub(super) fn code_altered_on(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let over = server.status == TransactionStatus::Idle && server.owed.settled();
        let Some(by) = server.kept.altered.tell(over) else { return };
        let database = server.database(&self.pools[server.pool]);
        for worker in self.cx.other_workers() {
            self.cx.post(worker, Letter::CodeChanged { database: (&*database).into(), by: by.own_copy() });
        }
        self.code_changed(&database, &by);
    }

    /// `database`: by its name on the server, which several of ours may lead to.
    pub(super) fn code_changed(&mut self, database: &str, by: &Changed) {
        for index in self.pools.indexes() {
            #[cfg(feature = "planted")]
            let overlooks = self.cx.planted == Some(crate::planted::Planted::OverlookTables);
            #[cfg(not(feature = "planted"))]
            let overlooks = false;
            let pool = &mut self.pools[index];
            if pool.limits.route.is_some() && !overlooks && may_be_one(pool.server_database(), database) {
                self.cx.clusters.may_change(&pool.name.database, self.cx.now);
                pool.looked.due_at = Time(0);
                self.arm_survey(self.cx.now);
            }
            let pool = &mut self.pools[index];
            if pool.limits.keeps && may_be_one(pool.server_database(), database) {
                pool.knowledge.changed(by);
                self.meet_code(index);
            }
        }
        for server in self.servers.iter_mut().filter(|server| server.kept.of_another_database) {
            if may_be_one(&server.database(&self.pools[server.pool]), database) {
                server.kept.changes(by);
            }
        }
    }

    /// What is on its way may call it as it is now, and call it as it was, or will be.
    #[cold]
    pub(super) fn meet_code(&mut self, index: u32) {
        let knowledge = &self.pools[index].knowledge;
        for server in self.servers.iter_mut() {
            if server.pool == index && matches!(server.state, ServerState::Linked(_)) {
                server.kept.meets(&knowledge.code, knowledge.version);
            }
        }
    }

    /// What is known of the code now is what those waited for that are free.
    pub(super) fn code_read(&mut self, index: u32, by: ServerId, failed: bool) {
        let knowledge = &mut self.pools[index].knowledge;
        if failed && knowledge.read_by(by).is_some() {
            let text = "what its functions leave in a session could not be asked: clients keep their servers until it can \
                        (session_state = pgbouncer asks nothing)";
            self.cx.log_warning(format!("{} {text}", self.server_label(by)));
        }
        let waited = self.pools[index].knowledge.ended(by, failed, self.cx.now);
        if !failed {
            self.share_code(index);
        }
        // Who waits for a connection of their own were held up by what is none.
        self.ask_behind(index);
        for id in waited {
            self.recovering_settled(id);
        }
        if !failed {
            self.code_known.push(index);
        }
    }

    /// Pools of one database know the same, which is here once.
    fn share_code(&mut self, index: u32) {
        let own = &self.pools[index];
        let knows_it = |other: &u32| {
            let pool = &self.pools[*other];
            **pool.server_database() == **own.server_database() && pool.knowledge.code.is_equal(&own.knowledge.code)
        };
        let code = self.pools.indexes().find(|other| *other != index && knows_it(other));
        if let Some(code) = code.map(|other| self.pools[other].knowledge.code.clone()) {
            self.pools[index].knowledge.code = code;
        }
    }

    /// The same where its client keeps the server until that is known, and idles: all servers may be kept so, and none would be free to be
    /// asked. What its client asks next waits.
    pub(super) fn read_code_on_linked(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let pool = &mut self.pools[server.pool];
        let knowledge = &mut pool.knowledge;
        let is_due =
            knowledge.is_due(self.cx.now) || !pool.waiting.is_empty() && knowledge.is_due_for_others(self.cx.now);
        let is_to_be_asked = server.kept.blind && !server.kept.of_another_database;
        let may_be_asked = is_to_be_asked && server.idles() && !server.cancel_is_on_its_way();
        if knowledge.is_unanswered(id, self.cx.now, RECOVERY) {
            return self.give_up_reading(id);
        }
        if !(may_be_asked && is_due) {
            return self.arm_blind(id);
        }
        knowledge.begins(id, false, self.cx.now);
        server.hold = Hold::Parameters;
        server.kept.looks_for(Kinds::NONE, self.cx.now);
        // A message of the extended protocol has one statement.
        let question = question(server.release(), true);
        server.run_ahead(id, ahead(server.release()), &mut self.cx);
        server.run_ahead(id, question, &mut self.cx);
        server.sync_ours(id, &mut self.cx);
        self.arm_blind(id);
    }

    /// It is right for nobody new. `of_another_database`: than the database that the pool's servers are of from now on.
    pub(super) fn mark_server(&mut self, id: ServerId, of_another_database: bool, reason: &str) {
        let Some(server) = self.servers.get_mut(id) else { return };
        (server.close_needed, server.outdated) = (true, true);
        server.kept.of_another_database |= of_another_database;
        // Whether one that is checked answers may not be known for long.
        let is_nobodys =
            matches!(server.state, ServerState::Idle | ServerState::Listener) || self.pools[server.pool].checks.has(id);
        if is_nobodys {
            return self.close_server(id, reason);
        }
        if of_another_database {
            self.reads_for_nobody(id, reason);
        }
        // Whether that ends its client is seen behind the input in hand.
        if self.servers.get(id).is_some_and(|server| server.ends_fast(&self.cx.settings)) {
            self.settling.push(id);
        }
    }

    /// What the code of that other database leaves is of use to nobody: where it does not answer, all would wait for it.
    fn reads_for_nobody(&mut self, id: ServerId, reason: &str) {
        let Some(server) = self.servers.get(id) else { return };
        if self.pools[server.pool].knowledge.read_by(id).is_none() {
            return;
        }
        match server.state {
            ServerState::Linked(_) => self.give_up_reading(id),
            _ => self.close_server(id, reason),
        }
    }

    /// Its client may go on waiting for that; others are judged by what another server tells.
    pub(super) fn give_up_reading(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let index = server.pool;
        server.kept.own_batch_fails();
        self.pools[index].knowledge.gives_up(self.cx.now);
        self.code_read(index, id, true);
        self.arm_blind(id);
    }

    /// That is answered.
    pub(super) fn code_read_on_linked(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if self.pools[server.pool].knowledge.read_by(id).is_some() {
            // It is over, also where nothing else is to be looked for: a later error is the client's.
            let failed = server.kept.looked(self.cx.now).is_none_or(|look| look.failed);
            let index = server.pool;
            self.code_read(index, id, failed);
        }
    }

    /// It is looked again whether it can be asked.
    pub(super) fn arm_blind(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id).filter(|server| server.kept.blind) else { return };
        let due = self.cx.now + READ_APART;
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
    }

    /// Asks what is behind the names that texts may say, before anybody gets the server, or waits until another has told.
    fn read_code(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        server.enter(ServerState::Recovering { reset_due: Reset::Nothing, rolled_back: false, cancelled: false });
        let knowledge = &mut self.pools[server.pool].knowledge;
        if knowledge.is_due(self.cx.now) {
            knowledge.begins(id, true, self.cx.now);
            let question = question(server.release(), false);
            self.cx.out.send(id, |out| write::query(out, &question));
            server.owe_own_query(0);
        }
        let due = self.cx.now + RECOVERY;
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
    }

    /// The next step of a server that is being cleaned, or back to the pool, if nothing is owed.
    pub(super) fn recovering_settled(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let ServerState::Recovering { reset_due, rolled_back, cancelled } = server.state else { return };
        // A cancel on its way would hit the query sent next.
        if !server.owed.settled() || server.cancel != Cancel::None {
            return;
        }
        let index = server.pool;
        if self.pools[index].knowledge.read_by(id).is_some() {
            self.code_read(index, id, false);
        }
        if self.pools[index].checks.has(id) {
            self.check_over(id);
        }
        if self.cx.survey.asks(id) && self.survey_goes_on(id) {
            return;
        }
        let Some(server) = self.servers.get_mut(id) else { return };
        if server.kept.has_called_another(self.pools[index].knowledge.version) {
            return self.close_server(id, "what its client had sent may have called code that has changed since");
        }
        if reset_due == Reset::Never {
            return self.close_server(id, LEAVES_FOR_GOOD);
        }
        if cancelled || server.proofs_until <= self.cx.now {
            server.mirror.doubt_unproved();
        }
        // What was left in a transaction whose client went away is told with its end.
        let is_clean = server.exact.as_ref().is_none_or(|exact| exact.is_clean(&server.parameters));
        let reset_due = if is_clean || reset_due == Reset::Done { reset_due } else { Reset::All };
        let mut due = self.cx.now + RECOVERY;
        let pool = &self.pools[index];
        let code = pool.limits.keeps.then_some(&pool.knowledge.code);
        if server.status != TransactionStatus::Idle {
            if rolled_back {
                // PostgreSQL leaves none open.
                return self.drop_server(id, "a transaction is open behind its ROLLBACK");
            }
            server.enter(ServerState::Recovering { reset_due, rolled_back: true, cancelled });
            self.cx.out.send(id, |out| write::query(out, b"ROLLBACK"));
            server.owe_own_query(0);
        } else if !matches!(reset_due, Reset::Nothing | Reset::Done) {
            let reset_behind = if reset_due == Reset::All { Reset::Done } else { Reset::Nothing };
            server.enter(ServerState::Recovering { reset_due: reset_behind, rolled_back: false, cancelled });
            let configured = &self.cx.settings.server_reset_query;
            let query = if reset_due == Reset::All { "DISCARD ALL" } else { configured };
            self.cx.out.send(id, |out| write::query(out, query.as_bytes()));
            server.owe_own_query(0);
        } else if server.leaves_unreported(&self.cx) {
            // Among it are PostgreSQL's own time limits (`idle_session_timeout`, `statement_timeout`): they would end whatever
            // comes next, ours or another client's.
            let plain = self.cx.parameter_sets.intern(server.parameters.reported_only());
            server.bring_to(id, &plain, &mut self.cx);
        } else if server.prove_next_statement(id, code, &mut self.cx) {
            // Under parameters that are certain: PostgreSQL has told them, or they are its own again. Once for each statement: what is
            // prepared outside of a transaction stays.
            due = server.proofs_until;
        } else {
            return self.free_server(id);
        }
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
    }
}

/// Whether these may be names of one database: PostgreSQL cuts those that are longer than 63 bytes, from 17 on between letters, which have up to four.
fn may_be_one(one: &str, other: &str) -> bool {
    const KEPT: usize = 60;
    match (one.as_bytes().first_chunk::<KEPT>(), other.as_bytes().first_chunk::<KEPT>()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::may_be_one;

    #[test]
    fn names_that_are_cut_may_be_one() {
        let (long, longer) = ("x".repeat(63), "x".repeat(70));
        assert!(may_be_one(&long, &longer) && may_be_one("a", "a"));
        assert!(may_be_one(&format!("{}é", "x".repeat(62)), &"x".repeat(62)));
        assert!(!may_be_one("a", "ab") && !may_be_one(&"x".repeat(59), &longer));
    }
}
