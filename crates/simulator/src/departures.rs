//! Connections that leave their worker with a letter, or cannot.

use weir_core::contract::Mail;
use weir_core::{ConnId, Input, Side, WorkerId};

use crate::driver::{Stand, Todo};
use crate::rng::Rng;
use crate::world::World;

/// How often a client cannot leave a worker, drawn by itself: a run in which all can is the same as if there were no such draws.
pub struct Departures {
    rng: Rng,
    refuse_permille: u64,
    refused: Vec<(ConnId, Mail)>,
}

impl Departures {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let refuse_permille = *rng.pick(&[0, 0, 0, 20, 500, 1_000]);
        Self { rng, refuse_permille, refused: Vec::new() }
    }
}

impl World {
    pub fn post(&mut self, index: usize, to: WorkerId, mail: Mail, conn: Option<ConnId>) {
        if usize::from(to.0) >= self.hosts.len() {
            return self.checks.fail("contract", format!("mail to {to:?}"));
        }
        // A connection that has just ended cannot travel: its mail goes without it, and its name ends as it would have.
        let ended = |id: &ConnId| {
            let mut queue = self.hosts[index].queue.iter();
            queue.any(|todo| matches!(todo, Todo::Closed(closed) if closed == id))
        };
        let gone = conn.filter(ended);
        if gone.is_some() {
            self.counts.faults.add("connection ended as it was mailed");
        }
        let conn = conn.filter(|_| gone.is_none());
        if let Some(id) = conn.filter(|id| id.side == Side::Client && self.hosts[index].conns[id].settled)
            && self.departures.refuse_permille > 0
            && self.departures.rng.chance(self.departures.refuse_permille)
        {
            self.counts.faults.add("client could not leave");
            return self.departures.refused.push((id, mail));
        }
        let mut luggage = None;
        if let Some(id) = conn {
            luggage = self.hosts[index].conns.remove(&id);
            match &luggage {
                Some(conn) if conn.stand == Stand::Open => {
                    if let Some(link) = conn.link {
                        self.owners[link] = None;
                    }
                    self.hosts[index].queue.push_back(Todo::Departed(id));
                }
                _ => return self.checks.fail("contract", format!("{id:?} is mailed away before or after its life")),
            }
        }
        self.send_mail(index, to, mail, conn, luggage);
    }

    /// Those who could not leave are back before anything else happens.
    pub fn keep_back(&mut self, index: usize) {
        while let Some((conn, mail)) = self.departures.refused.pop() {
            self.give(index, Input::Stays { conn, mail });
        }
    }

    pub fn has_settled(&mut self, index: usize, id: ConnId) {
        if let Some(conn) = self.hosts[index].conns.get_mut(&id) {
            conn.settled = true;
        }
    }
}
