//! A connection as the engine keeps it, and the table of them. Knows nothing of system calls.

use std::os::fd::OwnedFd;

use weir_core::{ConnId, Side};

use super::connect::Attempt;
use super::tls::Session;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Open,
    /// Core said `Close`: what is unsent is being sent; what comes is thrown away.
    Closing,
    /// Its socket ends; what is unsent is thrown away too.
    Ending,
    /// On its way to another worker; what comes is held and goes with it.
    Leaving,
}

/// A connection. An idle one without TLS owns no memory besides this.
#[derive(Debug)]
pub struct Transport<K> {
    pub socket: K,
    pub tls: Option<Box<Session>>,
    /// Received and not taken by core, after TLS.
    pub held: Vec<u8>,
    pub generation: u32,
    pub phase: Phase,
    pub read_on: bool,
    /// Whether the driver was told to stop receiving.
    pub paused: bool,
    /// `Congested` was handed in, `Writable` not yet.
    pub congested: bool,
    /// The peer sends no more, which core hears once `held` is taken: of a client by `Ended`, of a server by `Closed`.
    pub ended: bool,
    /// A turn of `held` is queued.
    pub feeding: bool,
    /// A client whose login is not over, as far as we know.
    pub newcomer: bool,
}

impl<K> Transport<K> {
    pub fn new(generation: u32, socket: K) -> Self {
        Self {
            socket,
            tls: None,
            held: Vec::new(),
            generation,
            phase: Phase::Open,
            read_on: true,
            paused: false,
            congested: false,
            ended: false,
            feeding: false,
            newcomer: false,
        }
    }
}

/// A connection on its way between two workers.
#[derive(Debug)]
pub struct Shipment {
    pub side: Side,
    pub fd: OwnedFd,
    pub tls: Option<Box<Session>>,
    pub held: Vec<u8>,
    pub ended: bool,
    pub unsent: Vec<u8>,
}

/// One place of the table.
#[derive(Debug)]
pub enum Place<K> {
    Vacant,
    Connecting(Box<Attempt<K>>),
    Open(Transport<K>),
}

/// All connections of a worker, by side and slot.
#[derive(Debug)]
pub struct Transports<K> {
    clients: Vec<Place<K>>,
    servers: Vec<Place<K>>,
}

impl<K> Transports<K> {
    pub fn new() -> Self {
        Self { clients: Vec::new(), servers: Vec::new() }
    }

    fn side(&mut self, side: Side) -> &mut Vec<Place<K>> {
        match side {
            Side::Client => &mut self.clients,
            Side::Server => &mut self.servers,
        }
    }

    pub fn put(&mut self, id: ConnId, place: Place<K>) {
        let side = self.side(id.side);
        let slot = id.slot as usize;
        if slot >= side.len() {
            side.resize_with(slot + 1, || Place::Vacant);
        }
        side[slot] = place;
    }

    pub fn open(&mut self, id: ConnId) -> Option<&mut Transport<K>> {
        match self.side(id.side).get_mut(id.slot as usize)? {
            Place::Open(transport) if transport.generation == id.generation => Some(transport),
            _ => None,
        }
    }

    pub fn connecting(&mut self, id: ConnId) -> Option<&mut Attempt<K>> {
        match self.side(id.side).get_mut(id.slot as usize)? {
            Place::Connecting(attempt) if attempt.generation == id.generation => Some(attempt),
            _ => None,
        }
    }

    /// Empties a place whose id the caller has just looked up.
    pub fn take(&mut self, id: ConnId) -> Place<K> {
        match self.side(id.side).get_mut(id.slot as usize) {
            Some(place) => std::mem::replace(place, Place::Vacant),
            None => Place::Vacant,
        }
    }
}
