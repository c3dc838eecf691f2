//! Who is measured: PostgreSQL itself, the poolers that the lab starts, and endpoints that run already.
//!
//! Every peer gets the same PostgreSQL, the same number of servers and the same way to log in. Does not know loads.

pub mod endpoint;
pub mod external;
pub mod pooler;
pub mod profile;

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Result;

use endpoint::Endpoint;
use external::External;
use pooler::{Driver, Kind, Pooler};
use profile::Profile;

use crate::ground::Ground;

/// The peer that ratios refer to.
pub const BASELINE: &str = "PgBouncer";
pub const DIRECT: &str = "direct";
pub const FLEET: &str = "PgBouncer fleet";
/// How the names of ours begin.
pub const OURS: &str = "Weir";

/// All that was found on this machine.
pub struct Roster {
    pub poolers: Vec<Pooler>,
    pub externals: Vec<External>,
    /// And why.
    pub missing: Vec<(String, String)>,
}

impl Roster {
    pub fn find(weir: &Path, drivers: &[Driver], externals: Vec<External>, ground: &Ground) -> Roster {
        let cores = thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX));
        let mut roster = Roster { poolers: Vec::new(), externals, missing: Vec::new() };
        roster.add(BASELINE, Pooler::pgbouncer(Kind::PgBouncer), ground);
        if cores > 1 {
            roster.add(FLEET, Pooler::pgbouncer(Kind::Fleet(cores)), ground);
        }
        for driver in drivers {
            roster.add(&Pooler::weir_name(*driver), Pooler::weir(weir, *driver), ground);
        }
        roster
    }

    /// One that does not start at all, as io_uring may be forbidden, is missing from the beginning.
    fn add(&mut self, name: &str, pooler: Result<Pooler>, ground: &Ground) {
        let starts = |pooler: Pooler| pooler.start(&Profile::PLAIN, ground).map(|_| pooler);
        match pooler.and_then(starts) {
            Ok(pooler) => self.poolers.push(pooler),
            Err(error) => self.missing.push((name.to_owned(), format!("{error:#}"))),
        }
    }

    /// The driver that figures of ours are about: the first that was asked for.
    pub fn ours(&self) -> Option<&Pooler> {
        self.poolers.iter().find(|pooler| matches!(pooler.kind, Kind::Weir(_)))
    }

    /// All but the fleet.
    pub fn single(&self) -> Vec<&Pooler> {
        self.poolers.iter().filter(|pooler| !matches!(pooler.kind, Kind::Fleet(_))).collect()
    }

    /// PgBouncer and the first of ours: the pair that most parts compare.
    pub fn pair(&self) -> Vec<&Pooler> {
        let baseline = self.poolers.iter().filter(|pooler| pooler.kind == Kind::PgBouncer);
        baseline.chain(self.ours()).collect()
    }

    /// Endpoints that run already take part where everybody is trusted and nothing is encrypted.
    pub fn externals(&self, profile: &Profile) -> Vec<Endpoint> {
        if profile.is_plain() { self.externals.iter().map(Endpoint::external).collect() } else { Vec::new() }
    }
}

/// Weir's program as `make bench` builds it.
pub fn default_weir(repository: &Path) -> PathBuf {
    repository.join("target/release/weir")
}
