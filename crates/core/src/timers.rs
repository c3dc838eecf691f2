//! When something must be looked at again.
//!
//! Deadlines move with every query, so a moved one is not moved here: whoever owns it keeps the true deadline, an
//! entry that comes too early is put back, and only an earlier deadline makes a new entry. Setting one on the path of
//! a query is therefore a comparison.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::id::ConnId;
use crate::time::Time;

/// What a timer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Conn(ConnId),
    Pool(u32),
    Stats,
}

/// The owner's half: its true deadline, and the earliest entry that is in the heap for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) due: Time,
    entered: Time,
}

impl Default for Deadline {
    fn default() -> Self {
        Self { due: Time::NEVER, entered: Time::NEVER }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, Subject)>>,
}

impl Timers {
    #[inline]
    pub(crate) fn set(&mut self, subject: Subject, deadline: &mut Deadline, due: Time) {
        deadline.due = due;
        if due < deadline.entered {
            deadline.entered = due;
            self.heap.push(Reverse((due, subject)));
        }
    }

    /// An entry whose time has come.
    pub(crate) fn pop(&mut self, now: Time) -> Option<Subject> {
        let Reverse((due, _)) = self.heap.peek()?;
        if *due > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, subject))| subject)
    }

    /// The owner's answer to a popped entry: whether it is truly due. One that is not goes back in.
    pub(crate) fn due(&mut self, subject: Subject, deadline: &mut Deadline, now: Time) -> bool {
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
        self.heap.peek().map(|Reverse((due, _))| *due)
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
        assert_eq!(timers.pop(Time(10)), Some(Subject::Stats));
        assert!(!timers.due(Subject::Stats, &mut deadline, Time(10)));
        assert_eq!(timers.next(), Some(Time(50)));
        assert_eq!(timers.pop(Time(50)), Some(Subject::Stats));
        assert!(timers.due(Subject::Stats, &mut deadline, Time(50)));
        assert_eq!(timers.pop(Time(1000)), None);
    }

    #[test]
    fn a_cancelled_deadline_never_fires() {
        let mut timers = Timers::default();
        let mut deadline = Deadline::default();
        timers.set(Subject::Stats, &mut deadline, Time(10));
        timers.set(Subject::Stats, &mut deadline, Time::NEVER);
        assert_eq!(timers.pop(Time(10)), Some(Subject::Stats));
        assert!(!timers.due(Subject::Stats, &mut deadline, Time(10)));
        assert_eq!(timers.next(), None);
    }
}
