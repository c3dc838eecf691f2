//! A connection under way: the addresses still to try. Knows nothing of how they were found.

use std::collections::VecDeque;
use std::net::SocketAddr;

/// One `Output::Connect`, until it stands or has failed everywhere.
#[derive(Debug)]
pub struct Attempt<K> {
    pub generation: u32,
    /// `None` while the host's name is being resolved, and between two addresses.
    pub socket: Option<K>,
    pub addresses: VecDeque<SocketAddr>,
    /// What is being tried, for the error's sentence.
    pub target: String,
    /// Core said `Close`.
    pub closing: bool,
}
