//! Cancel requests for peers, in the lines in which they wait (`peers.rs`).

use std::collections::{BTreeMap, VecDeque};

use crate::id::WorkerId;
use crate::mail::Stray;

/// The requests for one peer.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// So many are on their way.
    pub(super) carried: u32,
    pub(super) waiting: VecDeque<(WorkerId, Stray)>,
}

impl Line {
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// By peer, where there are any.
pub(crate) type Lines = BTreeMap<u16, Line>;
