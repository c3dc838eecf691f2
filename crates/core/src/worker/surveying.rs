//! Clusters' catalogues are looked at, one after the other, on servers of the coordinator's that are idle.

use std::sync::Arc;

use weir_wire::write;

use crate::cluster::survey::{AGAIN, EVERY, Look, Step};
use crate::id::{ServerId, WorkerId};
use crate::mail::Letter;
use crate::names::Destination;
use crate::server::{Reset, ServerState};
use crate::time::Duration;
use crate::timers::Subject;
use crate::worker::Traffic;
use crate::worker::patience::RECOVERY;

impl Traffic {
    /// A connection to a node has failed: it may be elsewhere.
    #[cold]
    pub(super) fn survey_soon(&mut self, index: u32) {
        let pool = &self.pools[index];
        let Some(base) = self.pools.find(&pool.name.at_entry()).filter(|_| pool.limits.route.is_some()) else { return };
        let due = self.cx.now + AGAIN;
        let looked = &mut self.pools[base].looked;
        looked.due_at = looked.due_at.min(due);
        self.arm_survey(due);
    }

    /// Begins the next look that is due.
    pub(super) fn survey(&mut self) {
        let now = self.cx.now;
        if self.cx.survey.look.is_some() {
            return self.arm_survey(now + AGAIN);
        }
        let first = self
            .pools
            .indexes()
            .filter(|&index| self.is_surveyed(index))
            .min_by_key(|&index| self.pools[index].looked.due_at);
        let Some(index) = first else { return };
        let due = self.pools[index].looked.due_at;
        if due > now {
            return self.arm_survey(due);
        }
        let Some(id) = self.take_for_survey(index) else {
            self.pools[index].looked.due_at = now + AGAIN;
            return self.arm_survey(now + AGAIN);
        };
        let (look, question) = Look::begin(id, Arc::clone(&self.pools[index].name), now);
        self.cx.survey.look = Some(Box::new(look));
        self.ask_for_survey(id, &question);
        self.arm_survey(now + EVERY);
    }

    /// One that leads to a cluster which somebody here uses, or has used just now.
    fn is_surveyed(&self, index: u32) -> bool {
        let pool = &self.pools[index];
        pool.limits.route.is_some()
            && pool.name.destination.is_entry()
            && !pool.is_forgotten()
            && self
                .pools
                .iter()
                .any(|other| (other.clients > 0 || other.servers > 0) && other.name.is_for_those_of(&pool.name))
    }

    /// An idle server of that user's at the coordinator: views and local tables may be nowhere else.
    fn take_for_survey(&mut self, index: u32) -> Option<ServerId> {
        let name = Arc::clone(&self.pools[index].name);
        let coordinator = self.cx.clusters.get(&name.database).and_then(|known| known.coordinator());
        let at_node = coordinator.and_then(|node| self.pools.find(&name.at(Destination::at(Some(node)))));
        let taken = at_node.into_iter().chain([index]).find_map(|index| self.pools[index].idle.pop_back());
        if taken.is_none() {
            self.cx.tell_steward(Letter::FillOne { pool: name });
        }
        taken
    }

    fn ask_for_survey(&mut self, id: ServerId, question: &str) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if matches!(server.state, ServerState::Idle) {
            server.enter(ServerState::Recovering { reset_due: Reset::Nothing, rolled_back: false, cancelled: false });
        }
        self.cx.out.send(id, |out| write::query(out, question.as_bytes()));
        server.owe_own_query(0);
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, self.cx.now + RECOVERY);
    }

    /// That server has answered. Whether it is asked something else.
    #[cold]
    pub(super) fn survey_goes_on(&mut self, id: ServerId) -> bool {
        let Some(look) = &mut self.cx.survey.look else { return false };
        let database = Arc::clone(&look.pool.database);
        let known = self.cx.clusters.get(&database).map(|known| &**known);
        #[cfg(feature = "planted")]
        if known.is_some() && self.cx.planted == Some(crate::planted::Planted::KeepTopology) {
            self.survey_over();
            return false;
        }
        match look.answered(known) {
            Step::Ask(question) => {
                self.ask_for_survey(id, &question);
                return true;
            }
            Step::Same => self.survey_over(),
            Step::Learnt(known) => {
                let nodes = known.topology.nodes().count();
                self.cx.log_info(format!("cluster of database {database}: {nodes} nodes"));
                for worker in 0..self.cx.config.workers {
                    let letter = Letter::Cluster { database: Arc::clone(&database), known: Arc::clone(&known) };
                    self.cx.post(WorkerId(worker), letter);
                }
                self.survey_over();
            }
            Step::Failed(text) => self.survey_failed(&text),
        }
        false
    }

    fn survey_over(&mut self) {
        let Some(look) = self.cx.survey.look.take() else { return };
        self.cx.clusters.read_since(&look.pool.database, look.began);
        let again = if self.cx.clusters.is_in_doubt(&look.pool.database) { Duration::ZERO } else { EVERY };
        for index in self.pools.indexes() {
            let pool = &mut self.pools[index];
            if pool.name.is_for_those_of(&look.pool) {
                // Its user is the servers'.
                let user = format!("\"{}\"", pool.name.user.replace('"', "\"\""));
                pool.knowledge.path = Some(look.path.replace("\"$user\"", &user).into());
            }
        }
        self.looked(&look, again);
    }

    /// The catalogue could not be read: transactions go to where they went, and those of pools that know nothing yet to the entry's servers.
    #[cold]
    pub(super) fn survey_failed(&mut self, text: &str) {
        let Some(look) = self.cx.survey.look.take() else { return };
        let is_news = self.pools.find(&look.pool).is_some_and(|index| !self.pools[index].looked.failed);
        if is_news {
            self.cx.log_warning(format!(
                "the catalogue of the cluster of database {} could not be read: {text}",
                look.pool.database
            ));
        }
        self.looked(&look, EVERY);
        if let Some(index) = self.pools.find(&look.pool) {
            self.pools[index].looked.failed = true;
        }
    }

    /// The server that is asked has gone.
    pub(super) fn survey_loses(&mut self, id: ServerId) {
        if self.cx.survey.asks(id)
            && let Some(look) = self.cx.survey.look.take()
        {
            self.looked(&look, AGAIN);
        }
    }

    fn looked(&mut self, look: &Look, again: Duration) {
        let due = self.cx.now + again;
        if let Some(index) = self.pools.find(&look.pool) {
            let looked = &mut self.pools[index].looked;
            (looked.due_at, looked.failed) = (due, false);
        }
        // Another may be due by now.
        self.arm_survey(self.cx.now);
    }
}
