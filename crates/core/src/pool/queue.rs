//! Who waits for a server, in the order of since when. Knows nothing of why they come or leave.
//!
//! Whoever leaves from the middle leaves an empty place behind, so that leaving costs a search and no move: as many may leave
//! at once as have come. Empty places are dropped at both ends, and everywhere when they are the larger part.

use std::collections::VecDeque;

use crate::id::ClientId;
use crate::time::Time;

/// Empty places that are kept, however few others there are.
const EMPTY_KEPT: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) client: ClientId,
    pub(crate) since: Time,
}

#[derive(Debug)]
struct Place {
    since: Time,
    number: u64,
    client: Option<ClientId>,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// By time, then by number.
    places: VecDeque<Place>,
    waiting: usize,
    last_number: u64,
    /// Places that were looked at to drop empty ones.
    #[cfg(test)]
    swept: usize,
}

impl Queue {
    /// A place behind all that have waited as long; its number finds it again.
    pub(crate) fn join(&mut self, client: ClientId, since: Time) -> u64 {
        self.last_number += 1;
        let place = Place { since, number: self.last_number, client: Some(client) };
        self.waiting += 1;
        if self.places.back().is_none_or(|last| last.since <= since) {
            self.places.push_back(place);
        } else {
            let index = self.places.partition_point(|other| other.since <= since);
            self.places.insert(index, place);
        }
        self.last_number
    }

    /// Gives up a place. Who has none, or has it no more, changes nothing.
    pub(crate) fn leave(&mut self, client: ClientId, since: Time, number: u64) {
        let found = self.places.binary_search_by_key(&(since, number), |place| (place.since, place.number));
        let Some(place) = found.ok().and_then(|index| self.places.get_mut(index)) else { return };
        if place.client != Some(client) {
            return;
        }
        place.client = None;
        self.waiting -= 1;
        self.drop_empty();
    }

    /// Whoever waits longest: the front is never an empty place.
    pub(crate) fn first(&self) -> Option<Waiting> {
        let place = self.places.front()?;
        place.client.map(|client| Waiting { client, since: place.since })
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let first = self.first()?;
        self.places.pop_front();
        self.waiting -= 1;
        self.drop_empty();
        Some(first)
    }

    /// Everybody, in order; the queue is empty then.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waiting> + use<> {
        self.waiting = 0;
        std::mem::take(&mut self.places).into_iter().filter_map(|place| {
            let since = place.since;
            place.client.map(|client| Waiting { client, since })
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Waiting> {
        self.places.iter().filter_map(|place| place.client.map(|client| Waiting { client, since: place.since }))
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    fn drop_empty(&mut self) {
        while self.places.front().is_some_and(|place| place.client.is_none()) {
            self.places.pop_front();
        }
        while self.places.back().is_some_and(|place| place.client.is_none()) {
            self.places.pop_back();
        }
        if self.places.len() > 2 * self.waiting + EMPTY_KEPT {
            #[cfg(test)]
            {
                self.swept += self.places.len();
            }
            self.places.retain(|place| place.client.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Table;

    fn clients(count: usize) -> Vec<ClientId> {
        let mut table = Table::default();
        (0..count).map(|_| table.insert(())).collect()
    }

    #[test]
    fn those_who_wait_longest_come_first_whenever_they_joined() {
        let ids = clients(4);
        let mut queue = Queue::default();
        queue.join(ids[0], Time(10));
        queue.join(ids[1], Time(30));
        queue.join(ids[2], Time(20));
        queue.join(ids[3], Time(20));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|waiting| waiting.client).collect();
        assert_eq!(order, [ids[0], ids[2], ids[3], ids[1]]);
        assert!(queue.is_empty());
    }

    #[test]
    fn who_has_left_is_not_there() {
        let ids = clients(3);
        let mut queue = Queue::default();
        let numbers: Vec<_> = ids.iter().map(|&id| queue.join(id, Time(1))).collect();
        queue.leave(ids[0], Time(1), numbers[0]);
        assert_eq!(queue.first().map(|first| first.client), Some(ids[1]));
        queue.leave(ids[0], Time(1), numbers[0]);
        // Another's place is not given up.
        queue.leave(ids[0], Time(1), numbers[1]);
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.take_all().count(), 2);
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn all_may_leave_at_once_in_any_order() {
        let ids = clients(32_000);
        // Forwards, backwards, and all over the place: 7 919 and 32 000 have no common factor.
        let orders: [fn(usize) -> usize; 3] = [|at| at, |at| 31_999 - at, |at| at * 7_919 % 32_000];
        for order in orders {
            let mut queue = Queue::default();
            let numbers: Vec<_> = ids.iter().map(|&id| queue.join(id, Time(1))).collect();
            for at in 0..ids.len() {
                let client = order(at);
                queue.leave(ids[client], Time(1), numbers[client]);
                assert!(queue.places.len() <= 2 * queue.len() + EMPTY_KEPT);
            }
            assert!(queue.is_empty() && queue.places.is_empty());
            assert!(queue.swept <= 4 * ids.len(), "{} places were looked at", queue.swept);
        }
    }
}
