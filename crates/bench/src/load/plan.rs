//! What a crew of clients shall do, and what its threads and its leader tell each other.
//!
//! Does not know how it is done.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use rustls::ClientConfig;

use super::session::Identity;

/// Whom to connect to, and as whom.
#[derive(Clone)]
pub struct Target {
    pub port: u16,
    /// Each address of the loopback has 28 000 ports of its own.
    pub source: Ipv4Addr,
    pub tls: Option<Arc<ClientConfig>>,
    pub identity: Arc<Identity>,
}

#[derive(Clone)]
pub struct Plan {
    pub target: Target,
    pub clients: usize,
    /// So many log in at the same time.
    pub at_once: usize,
    /// Whether clients leave as soon as they are logged in, and come again.
    pub leave: bool,
    /// So many clients never think.
    pub eager: usize,
    /// A client that thinks asks once in this time.
    pub think: Duration,
    /// Rows of pgbench_accounts.
    pub rows: u32,
    /// Whether everybody else goes first on the CPU: a load that comes from elsewhere should not take it from the pooler.
    pub nice: bool,
}

impl Plan {
    /// Clients that log in and say no more until they are told to.
    pub fn idle(target: Target, clients: usize, at_once: usize) -> Plan {
        Plan { target, clients, at_once, leave: false, eager: 0, think: Duration::ZERO, rows: 1, nice: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    Hold,
    /// Each client asks one query.
    Once,
    /// Queries until the next stage.
    Ask,
    Stop,
}

/// What the threads of a crew and their leader tell each other.
#[derive(Default)]
pub struct Control {
    stage: AtomicU8,
    pub phase: AtomicUsize,
    pub logged_in: AtomicUsize,
    /// Clients that did not get in, or were thrown out.
    pub lost: AtomicUsize,
    /// Clients that have asked their one query.
    pub asked_once: AtomicUsize,
}

impl Control {
    pub fn set(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    pub fn stage(&self) -> Stage {
        let all = [Stage::Hold, Stage::Once, Stage::Ask];
        let stored = self.stage.load(Ordering::Relaxed);
        all.into_iter().find(|stage| *stage as u8 == stored).unwrap_or(Stage::Stop)
    }
}
