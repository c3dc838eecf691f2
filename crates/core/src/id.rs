//! Names for connections and workers, and the tables that connections live in.

use std::fmt;
use std::marker::PhantomData;

/// The pool index of a connection that belongs to none: of a client that is not in yet, or on the console, of a server that carries a cancel. No
/// `Option`, since nothing looks for their pools: `invariants.rs` has whoever is in, and whoever serves, in one that is there.
pub(crate) const NO_POOL: u32 = u32::MAX;

/// A worker's number, from 0. Worker 0 is also the steward: it keeps what is one for the whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

impl WorkerId {
    pub const STEWARD: Self = Self(0);
    /// No worker: the process that takes over from this one; of what has come, the one before it.
    pub const SUCCESSOR: Self = Self(u16::MAX);
}

/// Which table of a worker a connection lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Accepted by us: a client, the console, a cancel request.
    Client,
    /// Opened by us: a server, or a cancel request on its way to one.
    Server,
}

/// A connection of one worker, as drivers name it. The slot is dense per side, so drivers can index by it; the generation tells
/// a reused slot from the connection that was there before. An id is reused only after the driver has said
/// `Closed` or `ConnectFailed` for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    pub side: Side,
    pub slot: u32,
    pub generation: u32,
}

impl ConnId {
    /// Whose connection it is.
    #[inline]
    pub fn party(self) -> Party {
        let Self { side, slot, generation } = self;
        match side {
            Side::Client => Party::Client(ClientId { slot, generation }),
            Side::Server => Party::Server(ServerId { slot, generation }),
        }
    }
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

/// A connection, by its side: what core tells apart by type, so that a client's name never finds a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    Client(ClientId),
    Server(ServerId),
}

/// The name of a row in a [`Table`].
pub trait TableId: Copy {
    fn new(slot: u32, generation: u32) -> Self;
    fn slot(self) -> u32;
    fn generation(self) -> u32;
}

macro_rules! table_id {
    ($(#[$doc:meta])* $name:ident, $side:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            slot: u32,
            generation: u32,
        }

        impl TableId for $name {
            #[inline]
            fn new(slot: u32, generation: u32) -> Self {
                Self { slot, generation }
            }

            #[inline]
            fn slot(self) -> u32 {
                self.slot
            }

            #[inline]
            fn generation(self) -> u32 {
                self.generation
            }
        }

        impl From<$name> for ConnId {
            #[inline]
            fn from(id: $name) -> Self {
                Self { side: $side, slot: id.slot, generation: id.generation }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                ConnId::from(*self).fmt(f)
            }
        }
    };
}

table_id!(
    /// A connection that was accepted: a client, the console, a cancel request.
    ClientId,
    Side::Client
);
table_id!(
    /// A connection that was opened: a server, or a cancel request on its way to one.
    ServerId,
    Side::Server
);

/// Connections of one side, by slot.
#[derive(Debug)]
pub struct Table<Id, T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
    ids: PhantomData<Id>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<Id, T> Default for Table<Id, T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), len: 0, ids: PhantomData }
    }
}

impl<Id: TableId, T> Table<Id, T> {
    /// Takes a free slot and gives the name of what will be put there.
    pub fn insert(&mut self, value: T) -> Id {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.value = Some(value);
        self.len += 1;
        Id::new(slot, place.generation)
    }

    pub fn get(&self, id: Id) -> Option<&T> {
        let slot = self.slots.get(id.slot() as usize)?;
        if slot.generation == id.generation() { slot.value.as_ref() } else { None }
    }

    pub fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.slot() as usize)?;
        if slot.generation == id.generation() { slot.value.as_mut() } else { None }
    }

    /// Frees the slot; the same id never names anything again.
    pub fn remove(&mut self, id: Id) -> Option<T> {
        let slot = self.slots.get_mut(id.slot() as usize)?;
        if slot.generation != id.generation() {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot());
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

    pub fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.iter_from(0)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// Those from this slot on, in slot order: for walks in portions.
    pub fn iter_from(&self, first: u32) -> impl Iterator<Item = (Id, &T)> {
        self.slots.iter().enumerate().skip(first as usize).filter_map(|(slot, place)| {
            place.value.as_ref().map(|value| (Id::new(slot as u32, place.generation), value))
        })
    }

    /// The names of all that are there, in slot order: for walks that change the table.
    pub fn ids(&self) -> Vec<Id> {
        self.iter().map(|(id, _)| id).collect()
    }
}

/// A session that moved: the number its cancel requests name, and how often it moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) process_id: u32,
    pub(crate) moves: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_has_another_name() {
        let mut table: Table<ClientId, &str> = Table::default();
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
