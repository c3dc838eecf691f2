//! Names for connections and workers, and the table that connections live in.

use std::fmt;

/// A worker's number, from 0. Worker 0 is also the steward: it keeps what is one for the whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

impl WorkerId {
    pub const STEWARD: Self = Self(0);
}

/// Which table of a worker a connection lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Accepted by us: a client, the console, a cancel request.
    Client,
    /// Opened by us: a server, or a cancel request on its way to one.
    Server,
}

/// A connection of one worker. The slot is dense per side, so drivers can index by it; the generation tells a
/// reused slot from the connection that was there before. An id is reused only after the driver has said
/// `Closed` or `ConnectFailed` for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    pub side: Side,
    pub slot: u32,
    pub generation: u32,
}

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Client => 'C',
            Side::Server => 'S',
        };
        write!(f, "{side}{}.{}", self.slot, self.generation)
    }
}

/// Connections of one side, by slot.
#[derive(Debug)]
pub struct Table<T> {
    side: Side,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Table<T> {
    pub fn new(side: Side) -> Self {
        Self { side, slots: Vec::new(), free: Vec::new(), len: 0 }
    }

    /// Takes a free slot and gives the name of what will be put there.
    pub fn insert(&mut self, value: T) -> ConnId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.value = Some(value);
        self.len += 1;
        ConnId { side: self.side, slot, generation: place.generation }
    }

    pub fn get(&self, id: ConnId) -> Option<&T> {
        debug_assert_eq!(id.side, self.side);
        let slot = self.slots.get(id.slot as usize)?;
        if slot.generation == id.generation { slot.value.as_ref() } else { None }
    }

    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut T> {
        debug_assert_eq!(id.side, self.side);
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation == id.generation { slot.value.as_mut() } else { None }
    }

    /// Frees the slot; the same id never names anything again.
    pub fn remove(&mut self, id: ConnId) -> Option<T> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot);
        self.len -= 1;
        Some(value)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Places that are free, and kept for the next.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = (ConnId, &T)> {
        self.iter_from(0)
    }

    /// Those from this slot on, in slot order: for walks in portions.
    pub fn iter_from(&self, first: u32) -> impl Iterator<Item = (ConnId, &T)> {
        let side = self.side;
        self.slots.iter().enumerate().skip(first as usize).filter_map(move |(slot, place)| {
            let id = ConnId { side, slot: slot as u32, generation: place.generation };
            place.value.as_ref().map(|value| (id, value))
        })
    }

    /// The names of all that are there, in slot order: for walks that change the table.
    pub fn ids(&self) -> Vec<ConnId> {
        self.iter().map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_has_another_name() {
        let mut table = Table::new(Side::Client);
        let first = table.insert("first");
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert("second");
        assert_eq!(first.slot, second.slot);
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&"second"));
        assert_eq!(table.len(), 1);
    }
}
