//! What the program tells of the names that it has looked up.

use std::net::IpAddr;
use std::sync::Arc;

use crate::time::Duration;

/// What names are remembered as.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub hosts: Vec<Host>,
    pub zones: Vec<Zone>,
    /// Names that are being looked up.
    pub asked: u64,
    /// Names that wait until fewer are.
    pub waiting: u64,
}

/// A zone whose serial number is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    pub name: Arc<str>,
    /// `None`: nobody has told it yet.
    pub serial: Option<u32>,
    pub hosts: u64,
}

/// A host's name, and what it was found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub name: Arc<str>,
    /// None where it has none.
    pub addresses: Vec<IpAddr>,
    /// How long that counts.
    pub ttl: Duration,
}
