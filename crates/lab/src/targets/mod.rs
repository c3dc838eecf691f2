//! What is measured: PostgreSQL, and poolers before it, that the lab starts or that a user names by URL.
//!
//! Does not know experiments or loads.

pub mod cluster;
pub mod given;
pub mod pooler;
pub mod stand;
pub mod url;

use nix::unistd::Pid;

use crate::experiment::PoolerKind;
use url::Url;

/// An endpoint, as an experiment sees it.
#[derive(Clone, Debug)]
pub struct Target {
    /// As charts name it. With several server versions: `PostgreSQL 12`, `Weir, PostgreSQL 12`.
    pub name: String,
    pub kind: Kind,
    pub url: Url,
    /// What answers there, for a reader.
    pub version: String,
    /// `server_version_num / 10000` of the PostgreSQL behind it.
    pub server_major: u32,
    pub configuration: String,
    /// The pooler's processes where they are ours to see; empty for a server itself.
    pub pooler_pids: Vec<Pid>,
    /// The postmaster of the server behind it, where it runs on this machine and may be looked into.
    pub postmaster: Option<Pid>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// PostgreSQL itself, started by the lab: it can be restarted with other settings.
    Server,
    /// A pooler started by the lab.
    Pooler(PoolerKind),
    /// Named by the user; whether a pooler or a server, only its answers tell.
    Given,
}

impl Target {
    /// Whether anything behind it runs on this machine, as far as can be seen.
    pub fn is_local(&self) -> bool {
        self.kind != Kind::Given || self.postmaster.is_some() || !self.pooler_pids.is_empty()
    }

    pub fn is_direct(&self) -> bool {
        self.kind == Kind::Server
    }
}
