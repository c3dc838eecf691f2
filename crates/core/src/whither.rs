//! Addresses that the names of hosts have left: servers that were made there before are replaced.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use crate::peer::{Endpoint, Peer};
use crate::server::Server;
use crate::time::Time;

/// Those that are remembered, for servers that were on their way when their host was left: the last ones.
const LEFT_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Whither {
    left: VecDeque<(Arc<str>, IpAddr, Time)>,
}

impl Whither {
    pub(crate) fn learn(&mut self, host: &Arc<str>, gone: &[IpAddr], now: Time) {
        self.left.extend(gone.iter().map(|address| (Arc::clone(host), *address, now)));
        let many = self.left.len().saturating_sub(LEFT_MAX);
        self.left.drain(..many);
    }

    /// Its host's name led there when it was made, and does not any more.
    pub(crate) fn is_left(&self, server: &Server) -> bool {
        let is_it = |(host, address): (&Arc<str>, &IpAddr)| {
            let mut left = self.left.iter().filter(|(_, _, at)| server.made_at <= *at);
            left.any(|(left, gone, _)| left == host && gone == address)
        };
        place(server).is_some_and(is_it)
    }
}

/// Whether it is at one of these addresses of the host.
pub(crate) fn is_at(server: &Server, host: &Arc<str>, addresses: &[IpAddr]) -> bool {
    place(server).is_some_and(|(own, address)| own == host && addresses.contains(address))
}

/// By the name that it was connected by.
fn place(server: &Server) -> Option<(&Arc<str>, &IpAddr)> {
    match (&server.endpoint, &server.peer) {
        (Some(Endpoint::Tcp { host, .. }), Some(Peer::Tcp { ip, .. })) => Some((host, ip)),
        _ => None,
    }
}
