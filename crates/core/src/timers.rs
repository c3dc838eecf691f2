//! When something must be looked at again.
//!
//! Deadlines move with every query, so a moved one is not moved here: whoever owns it keeps the true deadline, an
//! entry that comes too early is put back, and only an earlier deadline makes a new entry. Setting one on the path of
//! a query is therefore a comparison.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::id::{ClientId, ServerId};
use crate::time::Time;

/// Entries above which those that nobody counts on are dropped.
const SWEPT_ABOVE: usize = 1024;

/// What a timer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Client(ClientId),
    Server(ServerId),
    Pool(u32),
    Stats,
    /// Pools that nobody uses.
    Unused,
    /// Who could go to another process.
    Handover,
    /// Clusters' catalogues.
    Survey,
    /// The worker's own load, and the steward's look at all of them.
    Load,
    Loads,
}

/// The owner's half: its true deadline, and the earliest entry that is in the heap for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    due: Time,
    entered: Time,
}

impl Default for Deadline {
    fn default() -> Self {
        Self { due: Time::NEVER, entered: Time::NEVER }
    }
}

impl Deadline {
    /// [`Time::NEVER`] where none is set.
    pub(crate) fn due(&self) -> Time {
        self.due
    }

    pub(crate) fn is_set(&self) -> bool {
        self.due != Time::NEVER
    }
}

/// An entry of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    due: Time,
    pub(crate) subject: Subject,
}

impl Entry {
    /// Whether it stands for this deadline; else the owner has another one.
    pub(crate) fn is_of(&self, deadline: &Deadline) -> bool {
        deadline.entered == self.due
    }
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    sweep_above: usize,
    /// Room for the entries of one moment, kept for the next.
    spare: Vec<Entry>,
}

impl Timers {
    #[inline]
    pub(crate) fn set(&mut self, subject: Subject, deadline: &mut Deadline, due: Time) {
        deadline.due = due;
        if due < deadline.entered {
            deadline.entered = due;
            self.heap.push(Reverse(Entry { due, subject }));
        }
    }

    /// The entries whose time has come, in its order. Whatever is set from now on is for the next moment, even if it is due.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<Entry> {
        let mut due = std::mem::take(&mut self.spare);
        while let Some(entry) = self.pop(now) {
            due.push(entry);
        }
        due
    }

    pub(crate) fn give_back(&mut self, mut spare: Vec<Entry>) {
        spare.clear();
        if spare.capacity() <= SWEPT_ABOVE {
            self.spare = spare;
        }
    }

    fn pop(&mut self, now: Time) -> Option<Entry> {
        let Reverse(entry) = self.heap.peek()?;
        if entry.due > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// The owner's answer to a popped entry: whether it is truly due. One that is not goes back in, unless the owner has
    /// an earlier one that does.
    pub(crate) fn due(&mut self, entry: Entry, deadline: &mut Deadline, now: Time) -> bool {
        if !entry.is_of(deadline) {
            return false;
        }
        let subject = entry.subject;
        deadline.entered = Time::NEVER;
        if deadline.due <= now {
            deadline.due = Time::NEVER;
            return true;
        }
        if deadline.due != Time::NEVER {
            let due = deadline.due;
            self.set(subject, deadline, due);
        }
        false
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(entry)| entry.due)
    }

    /// Whether so many entries have come that those of gone owners, and those that others have replaced, are worth
    /// looking for.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.heap.len() > self.sweep_above.max(SWEPT_ABOVE)
    }

    /// Drops all entries that nobody counts on.
    pub(crate) fn sweep(&mut self, is_counted_on: impl Fn(Entry) -> bool) {
        self.heap.retain(|Reverse(entry)| is_counted_on(*entry));
        self.sweep_above = self.heap.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_deadline_fires_once_at_its_last_time() {
        let mut timers = Timers::default();
        let mut deadline = Deadline::default();
        timers.set(Subject::Stats, &mut deadline, Time(10));
        timers.set(Subject::Stats, &mut deadline, Time(50));
        let entry = timers.pop(Time(10)).unwrap();
        assert!(!timers.due(entry, &mut deadline, Time(10)));
        assert_eq!(timers.next(), Some(Time(50)));
        let entry = timers.pop(Time(50)).unwrap();
        assert!(timers.due(entry, &mut deadline, Time(50)));
        assert_eq!(timers.pop(Time(1000)), None);
    }

    #[test]
    fn a_deadline_that_moves_to_and_fro_does_not_gather_entries() {
        let mut timers = Timers::default();
        let mut deadline = Deadline::default();
        for now in (0..10_000).step_by(10) {
            timers.set(Subject::Stats, &mut deadline, Time(now + 5));
            timers.set(Subject::Stats, &mut deadline, Time(now + 100));
            while let Some(entry) = timers.pop(Time(now + 10)) {
                assert!(!timers.due(entry, &mut deadline, Time(now + 10)));
            }
        }
        assert!(timers.heap.len() < 20, "{} entries", timers.heap.len());
    }

    #[test]
    fn entries_of_gone_owners_are_swept() {
        let mut timers = Timers::default();
        let mut kept = Deadline::default();
        timers.set(Subject::Stats, &mut kept, Time(100));
        for pool in 0..10_000 {
            timers.set(Subject::Pool(pool), &mut Deadline::default(), Time(1000));
            if timers.is_crowded() {
                timers.sweep(|entry| entry.subject == Subject::Stats && entry.is_of(&kept));
            }
        }
        assert!(timers.heap.len() <= SWEPT_ABOVE + 1);
        assert_eq!(timers.next(), Some(Time(100)));
    }

    #[test]
    fn what_is_set_to_this_moment_waits_for_the_next_call() {
        let mut timers = Timers::default();
        let mut deadline = Deadline::default();
        timers.set(Subject::Stats, &mut deadline, Time(10));
        let due = timers.take_due(Time(10));
        assert_eq!(due.len(), 1);
        for entry in due {
            assert!(timers.due(entry, &mut deadline, Time(10)));
            timers.set(Subject::Stats, &mut deadline, Time(10));
        }
        assert_eq!(timers.next(), Some(Time(10)));
    }

    #[test]
    fn a_cancelled_deadline_never_fires() {
        let mut timers = Timers::default();
        let mut deadline = Deadline::default();
        timers.set(Subject::Stats, &mut deadline, Time(10));
        timers.set(Subject::Stats, &mut deadline, Time::NEVER);
        let entry = timers.pop(Time(10)).unwrap();
        assert!(!timers.due(entry, &mut deadline, Time(10)));
        assert_eq!(timers.next(), None);
    }
}
