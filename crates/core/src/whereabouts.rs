//! Where sessions live that have moved, so that a cancel request finds each of them, also one that is on its way.
//!
//! A session's number tells which worker gave it. A worker that a client leaves keeps a note of where it went, and sends on
//! what comes for it, behind the client itself. The steward learns of each arrival and asks the latest worker that it knows of;
//! it tells a worker to forget its note only after all that it has sent there before. So whatever is sent for a client reaches
//! it. The note of the worker that gave the number stays as long as the client lives, so that nobody else gets that number.

use std::collections::BTreeMap;

use crate::id::{ClientId, Moved, WorkerId};

/// No process of Linux has a number above this (`PID_MAX_LIMIT`, include/linux/threads.h). What clients are told is above: taken
/// for a process of PostgreSQL's, as by `pg_terminate_backend`, it is nobody's.
const SYSTEM_PROCESS_ID_MAX: u32 = 1 << 22;

/// What a worker knows of a session's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    Here(ClientId),
    /// `moves`: how often it had moved when it lived here; `number` is the client's, as SHOW CLIENTS has it.
    Left {
        to: WorkerId,
        moves: u32,
        number: u64,
    },
    /// It came back and ended here; others may not know that yet.
    Ended,
}

/// The sessions that a worker gave numbers to, and those that it has or had: by the numbers that cancel requests name.
#[derive(Debug)]
pub(crate) struct Sessions {
    worker: WorkerId,
    workers: u16,
    given: u32,
    known: BTreeMap<u32, Whereabouts>,
}

impl Sessions {
    /// `given`: where to begin, so that the numbers of two processes differ.
    pub(crate) fn new(worker: WorkerId, workers: u16, given: u32) -> Self {
        Self { worker, workers, given, known: BTreeMap::new() }
    }

    /// A number that no other session of the process has.
    pub(crate) fn number(&mut self) -> u32 {
        loop {
            self.given = self.given.wrapping_add(1);
            let number = process_id(self.given, self.worker, self.workers);
            if !self.known.contains_key(&number) {
                return number;
            }
        }
    }

    pub(crate) fn find(&self, process_id: u32) -> Option<Whereabouts> {
        self.known.get(&process_id).copied()
    }

    /// Where the client of this number has gone, as SHOW CLIENTS has it.
    pub(crate) fn left_to(&self, client_number: u64) -> Option<WorkerId> {
        self.known.values().find_map(|whereabouts| match whereabouts {
            Whereabouts::Left { to, number, .. } if *number == client_number => Some(*to),
            _ => None,
        })
    }

    pub(crate) fn lives_here(&mut self, process_id: u32, client: ClientId) {
        self.known.insert(process_id, Whereabouts::Here(client));
    }

    pub(crate) fn left(&mut self, process_id: u32, to: WorkerId, moves: u32, number: u64) {
        self.known.insert(process_id, Whereabouts::Left { to, moves, number });
    }

    /// It has ended here: its number is free, unless others may still look for it here.
    pub(crate) fn ended(&mut self, moved: Moved) {
        if moved.moves > 0 && self.was_born_here(moved.process_id) {
            self.known.insert(moved.process_id, Whereabouts::Ended);
        } else {
            self.known.remove(&moved.process_id);
        }
    }

    /// It ended on its way to us.
    pub(crate) fn lost(&mut self, process_id: u32) {
        if self.was_born_here(process_id) {
            self.known.insert(process_id, Whereabouts::Ended);
        }
    }

    /// The steward knows where that session lives now.
    pub(crate) fn forget_note(&mut self, moved: Moved) {
        let note = self.known.get(&moved.process_id);
        if matches!(note, Some(Whereabouts::Left { moves, .. }) if *moves == moved.moves) {
            self.known.remove(&moved.process_id);
        }
    }

    /// Nobody looks for that session any more.
    pub(crate) fn release(&mut self, process_id: u32) {
        if !matches!(self.known.get(&process_id), Some(Whereabouts::Here(_))) {
            self.known.remove(&process_id);
        }
    }

    fn was_born_here(&self, process_id: u32) -> bool {
        birthplace(process_id, self.workers) == self.worker
    }
}

/// The number of the `count`th session of a worker: positive as an `int` of C's, and with the worker's name in it.
fn process_id(count: u32, worker: WorkerId, workers: u16) -> u32 {
    let workers = u32::from(workers.max(1));
    let (first, end) = (SYSTEM_PROCESS_ID_MAX / workers + 1, i32::MAX as u32 / workers);
    (first + count % (end - first)) * workers + u32::from(worker.0)
}

/// The worker that gave this number to a session.
pub(crate) fn birthplace(process_id: u32, workers: u16) -> WorkerId {
    WorkerId((process_id % u32::from(workers.max(1))) as u16)
}

#[derive(Debug)]
struct Entry {
    worker: WorkerId,
    moves: u32,
    /// Arrivals that were told of. Letters of two workers may overtake each other.
    arrivals: u32,
    /// It is gone, after so many moves.
    ended: Option<u32>,
}

/// The steward's list of sessions that have moved.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    entries: BTreeMap<u32, Entry>,
}

/// What follows from news of a session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// This worker's note is of no use any more.
    pub(crate) forget: Option<(WorkerId, Moved)>,
    /// The number is free again.
    pub(crate) released: bool,
}

impl Directory {
    /// The latest worker that is known to have the session, where it has moved.
    pub(crate) fn find(&self, process_id: u32) -> Option<WorkerId> {
        self.entries.get(&process_id).map(|entry| entry.worker)
    }

    fn entry(&mut self, process_id: u32, born: WorkerId) -> &mut Entry {
        let unmoved = Entry { worker: born, moves: 0, arrivals: 0, ended: None };
        self.entries.entry(process_id).or_insert(unmoved)
    }

    /// The session has arrived at this worker.
    pub(crate) fn arrived(&mut self, at: WorkerId, moved: Moved, born: WorkerId) -> News {
        let entry = self.entry(moved.process_id, born);
        entry.arrivals += 1;
        let overtaken = if moved.moves > entry.moves {
            let before = (entry.worker, Moved { moves: entry.moves, ..moved });
            (entry.worker, entry.moves) = (at, moved.moves);
            before
        } else {
            (at, moved)
        };
        let forget = (overtaken.0 != born).then_some(overtaken);
        News { forget, released: self.is_over(moved.process_id) }
    }

    /// The session is over.
    pub(crate) fn ended(&mut self, moved: Moved, born: WorkerId) -> News {
        self.entry(moved.process_id, born).ended = Some(moved.moves);
        News { forget: None, released: self.is_over(moved.process_id) }
    }

    /// It has ended, and no news of it is under way any more.
    fn is_over(&mut self, process_id: u32) -> bool {
        let over = self.entries.get(&process_id).is_some_and(|entry| entry.ended == Some(entry.arrivals));
        if over {
            self.entries.remove(&process_id);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BORN: WorkerId = WorkerId(0);

    fn moved(moves: u32) -> Moved {
        Moved { process_id: 7, moves }
    }

    #[test]
    fn no_process_of_the_system_has_a_number_that_clients_are_told() {
        for (worker, workers) in [(0, 1), (0, 3), (2, 3), (1023, 1024)] {
            let wraps = i32::MAX as u32 / u32::from(workers) - SYSTEM_PROCESS_ID_MAX / u32::from(workers) - 1;
            for count in [0, 1, wraps - 1, wraps, wraps + 1, u32::MAX] {
                let number = process_id(count, WorkerId(worker), workers);
                assert!(number > SYSTEM_PROCESS_ID_MAX && i32::try_from(number).is_ok(), "{number}");
                assert_eq!(birthplace(number, workers), WorkerId(worker));
            }
            assert_ne!(process_id(wraps - 1, WorkerId(worker), workers), process_id(wraps, WorkerId(worker), workers));
        }
    }

    #[test]
    fn a_note_is_kept_until_its_successor_is_known() {
        let mut directory = Directory::default();
        assert_eq!(directory.find(7), None);
        // The note of the worker that gave the number stays.
        assert_eq!(directory.arrived(WorkerId(1), moved(1), BORN), News::default());
        assert_eq!(directory.find(7), Some(WorkerId(1)));
        let news = directory.arrived(WorkerId(2), moved(2), BORN);
        assert_eq!(news, News { forget: Some((WorkerId(1), moved(1))), released: false });
        assert_eq!(directory.find(7), Some(WorkerId(2)));
        assert!(directory.ended(moved(2), BORN).released);
        assert_eq!(directory.find(7), None);
    }

    #[test]
    fn news_that_was_overtaken_changes_nothing_and_releases_its_note() {
        let mut directory = Directory::default();
        assert_eq!(directory.arrived(WorkerId(2), moved(2), BORN), News::default());
        assert!(!directory.ended(moved(2), BORN).released, "the first arrival was not told of yet");
        let news = directory.arrived(WorkerId(1), moved(1), BORN);
        assert_eq!(news, News { forget: Some((WorkerId(1), moved(1))), released: true });
        assert_eq!(directory.find(7), None);
    }
}
