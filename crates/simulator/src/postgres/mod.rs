//! PostgreSQL as far as a pooler can tell: one cluster and its backends.
//!
//! Speaks the protocol by the book (protocol chapters 54.2 and 54.7 of PostgreSQL 18) and keeps account of what the
//! checks need: what was committed, for whom a statement ran. Knows no pooler and no links.

pub mod access;
pub mod backend;
pub mod catalogue;
mod execute;
mod expression;
mod extended;
pub mod held;
pub mod language;
mod login;
pub mod modes;
mod notes;
mod parameters;
pub mod sharded;
pub mod types;

use std::collections::BTreeMap;

use weir_core::time::Time;
use weir_wire::ProtocolVersion;

use crate::checks::Checks;
use crate::report::Counts;
use crate::rng::Rng;

pub use execute::{BAD_DATA, NOISE};
pub use language::QUESTION;
pub use parameters::{CONFIGURED, CUSTOM, REPORTED, ROLE, UNREPORTED, canonical, configured_number};
pub use types::{Belief, Retyped, Types};

/// How backends ask for the password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAuth {
    Trust,
    Cleartext,
    Md5,
    Scram,
}

/// What all backends of one server share.
#[derive(Debug)]
pub struct Cluster {
    pub up: bool,
    /// While it is not, connections to it are never answered.
    pub swallows: bool,
    pub auth: ServerAuth,
    /// Answers SSLRequest with yes.
    pub tls: bool,
    pub newest: ProtocolVersion,
    pub connections_max: usize,
    pub schema_version: u32,
    pub types: Types,
    pub passwords: BTreeMap<String, String>,
    pub service_us: u64,
    pub error_permille: u64,
    pub noise_permille: u64,
    /// How often the configuration file is changed and read again, of a thousand messages; and how often it was.
    pub configured_permille: u64,
    pub configuration: u64,
    pub sessions: usize,
    pub next_pid: u32,
    /// What was notified.
    pub notes: Vec<notes::Note>,
}

/// What surrounds a backend while it works.
pub struct Scene<'a> {
    pub now: Time,
    pub rng: &'a mut Rng,
    pub cluster: &'a mut Cluster,
    pub checks: &'a mut Checks,
    pub counts: &'a mut Counts,
    /// What the nodes of the cluster share, if there is one.
    pub sharded: Option<&'a mut sharded::Sharded>,
    /// Cancel requests that came in: process id and key.
    pub cancels: Vec<(u32, Vec<u8>)>,
}
