//! How a worker waits: it looks again for a moment, where that has been enough lately, then it sleeps.
//!
//! With few clients nearly all of a transaction's time in the pooler is waking up: the sleeping thread, and often the
//! core under it. A worker whose waits are short anyway stays awake instead. Measured in docs/decisions/waking.md.

use std::io;

use weir_core::Time;
use weir_core::time::Duration;

use super::super::machine::Machine;
use super::super::sockets::Sockets;
use super::Engine;

/// A sleep of so many times the limit would have been a wait within the limit: waking up takes the rest.
const SLEEP_LIMITS: u64 = 2;
/// A new turn counts for one part in so many of what is known.
const WEIGHT: u32 = 8;
/// What is known when each of the last turns spoke for looking.
const ALL: u32 = 1024;

/// Whether looking has been enough lately.
#[derive(Debug)]
pub struct BusyPoll {
    /// How long to look before sleeping; zero: never.
    limit: Duration,
    /// The part of the last turns that spoke for looking, smoothed, of `ALL`.
    share: u32,
}

impl BusyPoll {
    pub fn new(limit: Duration) -> Self {
        Self { limit, share: 0 }
    }

    fn is_worthwhile(&self) -> bool {
        self.share >= ALL / 4 * 3
    }

    /// A turn came after a wait of this length. Several events speak against looking: then there is enough to do, and
    /// events that gather while we sleep are cheaper to deal with.
    pub fn turn(&mut self, wait: Wait, events: usize) {
        let limit = if wait.slept { self.limit.0 * SLEEP_LIMITS } else { self.limit.0 };
        let speaks_for = events == 1 && wait.time.0 < limit;
        self.share = self.share - self.share / WEIGHT + if speaks_for { ALL / WEIGHT } else { 0 };
    }
}

/// How the last wait went.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wait {
    pub time: Duration,
    pub slept: bool,
}

impl<M: Machine, S: Sockets> Engine<M, S> {
    /// Waits until something happens or something is due. Looking counts as waiting: a worker that looks is not busy.
    pub(super) fn wait(&mut self) -> io::Result<Wait> {
        let began = self.around.clock.now();
        self.load.awake(began.since(self.now));
        let slept = !self.look(began)?;
        if slept {
            let timeout = self.timeout();
            self.sockets.wait(timeout)?;
            self.around.mailbox.wake_up();
        }
        self.now = self.around.clock.now().max(self.now);
        Ok(Wait { time: self.now.since(began), slept })
    }

    /// Whether something has happened while we looked.
    fn look(&mut self, began: Time) -> io::Result<bool> {
        if !self.busy_poll.is_worthwhile() {
            return Ok(false);
        }
        while self.around.mailbox.is_empty() && self.around.clock.now().since(began) < self.busy_poll.limit {
            if self.sockets.wait(Some(std::time::Duration::ZERO))? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Wait = Wait { time: Duration(30), slept: false };
    const LONG: Wait = Wait { time: Duration(3_600_000_000), slept: true };

    #[test]
    fn looks_only_where_waits_are_short() {
        let mut poll = BusyPoll::new(Duration(50));
        assert!(!poll.is_worthwhile(), "nothing is known yet");
        (0..32).for_each(|_| poll.turn(SHORT, 1));
        assert!(poll.is_worthwhile());
        (0..32).for_each(|_| poll.turn(LONG, 1));
        assert!(!poll.is_worthwhile());
        // One of two waits is long: a client that thinks after each short query.
        (0..32).for_each(|_| [SHORT, LONG].into_iter().for_each(|wait| poll.turn(wait, 1)));
        assert!(!poll.is_worthwhile());
    }

    #[test]
    fn a_sleep_that_was_mostly_waking_up_speaks_for_looking() {
        let mut poll = BusyPoll::new(Duration(50));
        (0..32).for_each(|_| poll.turn(Wait { time: Duration(70), slept: true }, 1));
        assert!(poll.is_worthwhile());
        (0..32).for_each(|_| poll.turn(Wait { time: Duration(70), slept: false }, 1));
        assert!(!poll.is_worthwhile());
    }

    #[test]
    fn many_clients_need_no_looking() {
        let mut poll = BusyPoll::new(Duration(50));
        (0..32).for_each(|_| poll.turn(SHORT, 1));
        (0..32).for_each(|_| poll.turn(SHORT, 3));
        assert!(!poll.is_worthwhile());
    }

    #[test]
    fn never_looks_where_it_is_off() {
        let mut poll = BusyPoll::new(Duration(0));
        (0..32).for_each(|_| poll.turn(Wait::default(), 1));
        assert!(!poll.is_worthwhile());
    }
}
