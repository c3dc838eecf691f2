//! How a worker waits: it looks again for a moment, where that has been enough lately, then it sleeps.
//!
//! With few clients nearly all of a transaction's time in the pooler is waking up: the sleeping thread, and often the
//! core under it. A worker whose waits are short anyway stays awake instead. Measured in docs/decisions/waking.md.

use std::io;

use nix::sys::resource::{UsageWho, getrusage};
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

/// Whether looking has been enough lately, and whether it wins anything.
#[derive(Debug)]
pub struct BusyPoll {
    /// How long to look before sleeping; zero: never.
    limit: Duration,
    /// The part of the last turns that spoke for looking, smoothed, of `ALL`.
    share: u32,
    trial: Trial,
}

impl BusyPoll {
    pub fn new(limit: Duration) -> Self {
        Self { limit, share: 0, trial: Trial::default() }
    }

    fn is_worthwhile(&self) -> bool {
        self.has_short_waits() && self.trial.looks
    }

    fn has_short_waits(&self) -> bool {
        self.share >= ALL / 4 * 3
    }

    /// A turn came after a wait of this length. Several events speak against looking: then there is enough to do, and
    /// events that gather while we sleep are cheaper to deal with.
    pub fn turn(&mut self, now: Time, wait: Wait, events: usize) {
        let limit = if wait.slept { self.limit.0 * SLEEP_LIMITS } else { self.limit.0 };
        let speaks_for = events == 1 && wait.time.0 < limit;
        self.share = self.share - self.share / WEIGHT + if speaks_for { ALL / WEIGHT } else { 0 };
        if self.has_short_waits() {
            self.trial.turn(now);
        }
    }
}

/// Long beside a transaction and a time slice of the kernel's scheduler, short beside what a person notices.
const STRETCH: Duration = Duration(10_000);
/// One stretch in so many tries what seemed worse.
const TRY_EVERY: u32 = 8;
/// A new stretch counts for one part in so many.
const STRETCH_WEIGHT: u64 = 4;
/// The kernel gave our core to others more often than this in a stretch: somebody wants it.
const TAKEN_MAX: u64 = 2;

/// Stretches of looking and stretches of sleeping, compared by how many turns came to pass. On a core that has nothing else
/// to do looking wins up to half; where PostgreSQL or the client could use the core it loses as much. Who is taken the core
/// from need not look any further; else nothing but the result tells the two apart.
#[derive(Debug)]
struct Trial {
    looks: bool,
    began: Time,
    turns: u64,
    stretches: u32,
    /// How often the core had been taken from us when the stretch began.
    taken: u64,
    /// Turns per second, smoothed, without and with looking; zero: not known yet.
    rates: [u64; 2],
}

impl Default for Trial {
    fn default() -> Self {
        Self { looks: true, began: Time(0), turns: 0, stretches: 0, taken: 0, rates: [0; 2] }
    }
}

impl Trial {
    fn turn(&mut self, now: Time) {
        self.turns += 1;
        let length = now.since(self.began);
        if length.0 < STRETCH.0 {
            return;
        }
        // A longer one had a pause in it, which says nothing.
        let taken = times_taken();
        if length.0 < 2 * STRETCH.0 {
            self.learn(self.turns * 1_000_000 / length.0, taken.saturating_sub(self.taken) > TAKEN_MAX);
        }
        (self.began, self.turns, self.taken) = (now, 0, taken);
    }

    fn learn(&mut self, rate: u64, is_wanted: bool) {
        let known = &mut self.rates[usize::from(self.looks)];
        *known = if *known == 0 { rate } else { *known - *known / STRETCH_WEIGHT + rate / STRETCH_WEIGHT };
        self.stretches = self.stretches.wrapping_add(1);
        let [without, with] = self.rates;
        // What is not known yet is tried first. Looking costs CPU time: it has to win a tenth.
        let looking_wins = without != 0 && with > without + without / 10;
        self.looks = !is_wanted && looking_wins != self.stretches.is_multiple_of(TRY_EVERY);
    }
}

/// How often the kernel has stopped this thread for another that was to run.
fn times_taken() -> u64 {
    getrusage(UsageWho::RUSAGE_THREAD)
        .map_or(0, |usage| u64::try_from(usage.involuntary_context_switches()).unwrap_or(0))
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

    const NOW: Time = Time(0);

    #[test]
    fn looks_only_where_waits_are_short() {
        let mut poll = BusyPoll::new(Duration(50));
        assert!(!poll.is_worthwhile(), "nothing is known yet");
        (0..32).for_each(|_| poll.turn(NOW, SHORT, 1));
        assert!(poll.is_worthwhile());
        (0..32).for_each(|_| poll.turn(NOW, LONG, 1));
        assert!(!poll.is_worthwhile());
        // One of two waits is long: a client that thinks after each short query.
        (0..32).for_each(|_| [SHORT, LONG].into_iter().for_each(|wait| poll.turn(NOW, wait, 1)));
        assert!(!poll.is_worthwhile());
    }

    #[test]
    fn a_sleep_that_was_mostly_waking_up_speaks_for_looking() {
        let mut poll = BusyPoll::new(Duration(50));
        (0..32).for_each(|_| poll.turn(NOW, Wait { time: Duration(70), slept: true }, 1));
        assert!(poll.is_worthwhile());
        (0..32).for_each(|_| poll.turn(NOW, Wait { time: Duration(70), slept: false }, 1));
        assert!(!poll.is_worthwhile());
    }

    #[test]
    fn many_clients_need_no_looking() {
        let mut poll = BusyPoll::new(Duration(50));
        (0..32).for_each(|_| poll.turn(NOW, SHORT, 1));
        (0..32).for_each(|_| poll.turn(NOW, SHORT, 3));
        assert!(!poll.is_worthwhile());
    }

    #[test]
    fn never_looks_where_it_is_off() {
        let mut poll = BusyPoll::new(Duration(0));
        (0..32).for_each(|_| poll.turn(NOW, Wait::default(), 1));
        assert!(!poll.is_worthwhile());
    }

    /// Waits of these lengths without and with looking, for a second: the part of the stretches that looked.
    fn part_that_looks(without: u64, with: u64) -> f64 {
        let mut poll = BusyPoll::new(Duration(50));
        let (mut now, mut looked) = (Time(0), 0);
        let mut turns = 0;
        while now.0 < 1_000_000 {
            let looks = poll.is_worthwhile();
            now = Time(now.0 + if looks { with } else { without });
            poll.turn(now, Wait { time: Duration(10), slept: !looks }, 1);
            (looked, turns) = (looked + u64::from(looks) * with, turns + 1);
        }
        looked as f64 / now.0 as f64
    }

    #[test]
    fn looks_for_as_long_as_that_wins() {
        assert!(part_that_looks(60, 40) > 0.7);
        assert!(part_that_looks(40, 40) < 0.3, "no gain: the CPU time is better left to others");
        assert!(part_that_looks(40, 60) < 0.3);
    }

    #[test]
    fn what_wins_may_change() {
        let mut trial = Trial { looks: false, rates: [20_000, 30_000], ..Trial::default() };
        (0..100).for_each(|_| trial.learn(if trial.looks { 10_000 } else { 20_000 }, false));
        assert!(trial.rates[1] < trial.rates[0]);
        (0..100).for_each(|_| trial.learn(if trial.looks { 30_000 } else { 20_000 }, false));
        assert!(trial.rates[1] > trial.rates[0]);
    }

    #[test]
    fn never_looks_while_others_want_the_core() {
        let mut trial = Trial { rates: [20_000, 30_000], ..Trial::default() };
        for _ in 0..100 {
            trial.learn(30_000, true);
            assert!(!trial.looks);
        }
        trial.learn(30_000, false);
        (0..TRY_EVERY).for_each(|_| trial.learn(if trial.looks { 30_000 } else { 20_000 }, false));
        assert!(trial.looks, "it wins again");
    }
}
