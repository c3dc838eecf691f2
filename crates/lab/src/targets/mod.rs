//! What is measured: PostgreSQL, and poolers before it, that the lab starts or that a user names by URL.
//!
//! Does not know experiments or loads.

pub mod cluster;
pub mod given;
mod needs;
pub mod pooler;
pub mod stand;

pub use needs::{Needs, PoolerKind, Tables};
use nix::unistd::Pid;

use weir_measure::journal::Role;
use weir_measure::url::Url;

/// An endpoint, as an experiment sees it.
#[derive(Clone, Debug)]
pub struct Target {
    /// As charts name it. With several server versions: `PostgreSQL 12`, `Weir, PostgreSQL 12`.
    pub name: String,
    pub kind: Kind,
    pub role: Role,
    pub place: Whereabouts,
    pub url: Url,
    /// What answers there, for a reader.
    pub version: String,
    /// `server_version_num / 10000` of the PostgreSQL behind it.
    pub server_major: u32,
    pub configuration: String,
    /// The pooler's processes where they are ours to see; empty for a server itself.
    pub pooler_pids: Vec<Pid>,
    /// Of the server behind it, or of all nodes of a cluster, where all run on this machine and may be looked into.
    pub postmasters: Vec<Pid>,
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

/// Where all that answers behind a target runs: nodes of a cluster, poolers, and the servers behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// On this machine, which pgbench shares with them.
    Here,
    /// Some of it.
    Partly,
    /// None of it, as far as can be seen.
    Elsewhere,
}

impl Whereabouts {
    /// Of parts of which so many are here.
    pub fn of(parts: &[bool]) -> Whereabouts {
        match parts.iter().filter(|here| **here).count() {
            0 => Whereabouts::Elsewhere,
            count if count == parts.len() => Whereabouts::Here,
            _ => Whereabouts::Partly,
        }
    }
}

impl Target {
    /// One that nobody has started, to reckon with.
    pub fn imagined(name: &str, kind: Kind) -> Target {
        Target {
            name: name.to_owned(),
            kind,
            url: Url::loopback(5432, "somebody", "postgres"),
            version: String::new(),
            server_major: 18,
            configuration: String::new(),
            pooler_pids: Vec::new(),
            postmasters: Vec::new(),
            role: if matches!(kind, Kind::Pooler(_)) { Role::Pooler } else { Role::Server },
            place: Whereabouts::Here,
        }
    }

    /// Whether it is a pooler that the lab started.
    pub fn is_pooler(&self) -> bool {
        matches!(self.kind, Kind::Pooler(_))
    }

    pub fn is_direct(&self) -> bool {
        self.kind == Kind::Server
    }
}
