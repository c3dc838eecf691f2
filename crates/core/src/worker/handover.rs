//! When clients go to the process that takes over (`-R`), and how long the one before is waited for; `guests.rs` has the clients.
//!
//! Whoever has no server goes, silent or waiting for one, and takes all along that its session holds (`passport.rs`). Who is in a transaction goes
//! behind it; who has a server of its own, because of what it left there or in session mode, and who speaks TLS, is served here until it leaves. What
//! is free of the servers is closed: the limits are the other process's.

use crate::client::{Client, Link};
use crate::time::Duration;
use crate::timers::Subject;
use crate::worker::Process;

/// How often it is looked who could go that could not.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How long nobody is served while the process before this one has not said what it has.
pub(super) const WORD_FROM_ABROAD: Duration = Duration::from_secs(5);

impl Process {
    /// Another process takes clients in: whoever can goes there.
    pub(super) fn look_who_goes_over(&mut self) {
        let traffic = &mut self.service.traffic;
        if !traffic.shutdown.hands_over() {
            return self.look_for_word_from_abroad();
        }
        for index in traffic.pools.indexes() {
            let pool = &mut traffic.pools[index];
            if pool.waiting.is_empty() && pool.tunnels.is_empty() {
                for id in std::mem::take(&mut pool.idle) {
                    traffic.close_server(id, "another process takes over");
                }
            }
        }
        if !traffic.departures.has_some_to_go_over() {
            let has_none = |client: &Client| matches!(client.link, Link::None | Link::Waiting { .. });
            let here = traffic.clients.iter().filter(|(_, client)| client.session().is_some() && has_none(client));
            traffic.departures.are_to_go_over(here.map(|(id, _)| id));
        }
        self.service.send_over();
        if let Some(steward) = &mut self.steward {
            steward.tell_clients_abroad();
            self.post_stewards_letters();
        }
        let cx = &mut self.service.traffic.cx;
        let due = cx.now + LOOK_INTERVAL;
        cx.timers.set(Subject::Handover, &mut self.handover_deadline, due);
    }

    /// A process that says nothing of what it has keeps nobody here waiting.
    fn look_for_word_from_abroad(&mut self) {
        let gives_up = self.steward.as_mut().is_some_and(|steward| steward.stops_awaiting(self.service.traffic.cx.now));
        if gives_up {
            self.service.traffic.cx.log_warning(
                "the process before this one does not say what servers it has: limits may be exceeded".to_owned(),
            );
            self.post_stewards_letters();
        }
    }
}
