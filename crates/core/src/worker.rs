//! One worker: the clients and servers of one thread, and what is decided about them.

use std::sync::Arc;

use crate::contract::{Input, Output, Span};
use crate::id::{ConnId, Side, Table, WorkerId};
use crate::settings::Settings;
use crate::time::Time;

/// What a worker is born with.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    pub id: WorkerId,
    /// How many workers the process has.
    pub workers: u16,
    /// Where all its random bytes come from: the operating system's, or a simulation's seed.
    pub seed: [u8; 32],
    /// Shared by all workers of a process and by nobody else: unknown users' salts derive from it.
    pub process_secret: [u8; 32],
    /// The wall clock at `Time(0)`, in microseconds since 1970: only for what the console prints.
    pub epoch_us: u64,
}

/// One worker. See [`crate::contract`] for how to drive it.
#[derive(Debug)]
pub struct Worker {
    clients: Table<()>,
    servers: Table<()>,
}

impl Worker {
    pub fn new(_config: WorkerConfig, _settings: Arc<Settings>) -> Self {
        Self { clients: Table::new(Side::Client), servers: Table::new(Side::Server) }
    }

    /// The name for a connection that the driver is about to hand in.
    pub fn reserve(&mut self, side: Side) -> ConnId {
        match side {
            Side::Client => self.clients.insert(()),
            Side::Server => self.servers.insert(()),
        }
    }

    /// Takes one input; for `Bytes`, answers how many of them were taken.
    pub fn handle(&mut self, _now: Time, _input: Input<'_>) -> usize {
        0
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        None
    }

    /// The bytes of a `Span::Made`; empty for a span of received bytes.
    pub fn made(&self, _span: Span) -> &[u8] {
        &[]
    }

    /// When `Input::Timeout` is due at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        None
    }
}
