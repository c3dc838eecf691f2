//! Which clients are on their way to another worker, and how many may be at once.

use std::collections::VecDeque;

use crate::id::{ClientId, WorkerId};
use crate::time::{Duration, Time};

/// Clients whose connections may be on their way out at the same time.
const DEPARTING_MAX: usize = 16;

/// After a connection could not leave, nobody tries for so long: servers come to those who wait here.
const STAY_TIME: Duration = Duration::from_millis(100);

/// Clients that are on their way out, and who waits for that.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// Clients that go to another worker when the input in hand is dealt with.
    leaving: Vec<(ClientId, WorkerId)>,
    /// Clients that have left, and whose connection is still here.
    departing: u32,
    /// Somebody waits because too many were leaving.
    held_back: bool,
    /// Nobody leaves before then: the driver could not send somebody away.
    stays_until: Time,
    /// How often a part of a pool was shed: who drew in one time has not in the next.
    sheddings: u32,
    /// Clients that were sent to others.
    moved: u64,
    /// Clients that may be able to go to another process.
    to_go_over: VecDeque<ClientId>,
}

impl Departures {
    /// How many more may leave now. The others wait: nobody who has left can be called back, should the new worker have no more
    /// room.
    pub(super) fn room(&self) -> usize {
        DEPARTING_MAX.saturating_sub(self.departing as usize + self.leaving.len())
    }

    /// The next that goes, of those that were found to leave in this input.
    pub(super) fn next(&mut self) -> Option<(ClientId, WorkerId)> {
        self.leaving.pop()
    }

    /// Somebody waits because too many were leaving.
    pub(super) fn holds_back(&self) -> bool {
        self.held_back
    }

    /// Clients that were sent to others.
    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    pub(super) fn begins(&mut self) {
        self.moved += 1;
        self.departing += 1;
    }

    /// One that was to leave has to stay: for a while nobody tries.
    pub(super) fn stays(&mut self, now: Time) {
        self.moved -= 1;
        self.stays_until = now + STAY_TIME;
    }

    /// One has left for good, or stays. True where somebody who was held back may go now.
    pub(super) fn ends(&mut self) -> bool {
        self.departing = self.departing.saturating_sub(1);
        self.departing as usize <= DEPARTING_MAX / 2 && std::mem::take(&mut self.held_back)
    }

    /// Whether anybody may leave at all.
    pub(super) fn are_open(&self, now: Time) -> bool {
        self.stays_until <= now
    }

    /// Somebody waits until one more may leave.
    pub(super) fn hold_back(&mut self) {
        self.held_back = true;
    }

    /// That client goes when the input in hand is dealt with.
    pub(super) fn add(&mut self, client: ClientId, to: WorkerId) {
        self.leaving.push((client, to));
    }

    pub(super) fn has_some_to_go_over(&self) -> bool {
        !self.to_go_over.is_empty()
    }

    /// They may be able to go to another process.
    pub(super) fn are_to_go_over(&mut self, clients: impl Iterator<Item = ClientId>) {
        self.to_go_over.extend(clients);
    }

    pub(super) fn next_to_go_over(&mut self) -> Option<ClientId> {
        self.to_go_over.pop_front()
    }

    /// The number of a shedding that begins.
    pub(super) fn next_shedding(&mut self) -> u32 {
        self.sheddings += 1;
        self.sheddings
    }
}
