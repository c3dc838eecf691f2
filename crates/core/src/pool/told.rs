//! What a worker and the steward tell each other of a pool's servers, as the pool keeps it.

use crate::id::WorkerId;
use crate::time::{Duration, Time};

/// How long the client has waited that a server is recalled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Its worker has no server at all: it waits until one comes.
    Since(Time),
    /// It may have been served in the meantime: what it waited is compared with what others wait.
    Lasted(Duration),
}

/// A worker's share of a pool's servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// So many are kept, however long nobody needs them.
    pub(crate) least: u32,
    /// More than so many are closed as they become free.
    pub(crate) most: u32,
}

impl Default for Share {
    fn default() -> Self {
        Self { least: 0, most: u32::MAX }
    }
}

/// What this worker last heard from the steward about more servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    /// A Want is under way.
    Want,
    Full {
        alone: bool,
    },
}

/// Another worker's client that waits for a server of ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recall {
    pub(crate) to: WorkerId,
    pub(crate) wait: Wait,
    pub(crate) until: Time,
}

/// A part of what is here goes to a worker that has less to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shed {
    pub(crate) to: WorkerId,
    /// How likely it is for a client to go; each draws once, when it next has something to ask.
    pub(crate) share_permille: u16,
    pub(crate) servers_left: u32,
    pub(crate) until: Time,
    /// Which shedding this is, among all of the worker's.
    pub(crate) number: u32,
}
