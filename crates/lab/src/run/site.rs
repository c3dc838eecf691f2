//! Where one place is measured: the target, and what may be done with it.

use anyhow::Result;

use crate::journal::{Point, Sizes};
use crate::load::{Load, Outcome, Script};
use crate::targets::Target;

/// Handed to `Experiment::measure`.
pub struct Site<'a> {
    pub target: &'a Target,
    pub sizes: &'a Sizes,
    /// `--script`, `--p99-ms` and the like.
    pub wishes: &'a Wishes,
}

/// What a user asked of one experiment beyond sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// `saturation`: the user's pgbench script.
    pub script: Option<std::path::PathBuf>,
    /// `saturation`: the bound on p99, milliseconds.
    pub p99_ms: Option<f64>,
}

impl Site<'_> {
    /// Runs pgbench against the target and writes all that was seen meanwhile into the point: throughput, latency, errors,
    /// CPU of the box, the pooler, the server and pgbench, memory, and doubts (a load generator at its limit, a machine that
    /// slept between messages). An error only where there is nothing to write: a target that refuses is `errors`.
    pub fn measure(&mut self, point: &mut Point, load: &Load) -> Result<()> {
        anyhow::bail!("not yet")
    }

    /// Runs pgbench alone and hands back what it said.
    pub fn pgbench(&mut self, load: &Load) -> Result<Outcome> {
        anyhow::bail!("not yet")
    }

    /// Opens `clients` connections that run `script` again and again (a `\sleep`, a `pg_sleep`) until the value is dropped.
    /// Returns when all of them are connected; an error says how many came in when not all did.
    pub fn hold(&mut self, clients: usize, script: &Script) -> Result<Held> {
        anyhow::bail!("not yet")
    }

    /// What `psql -X -A -t -v ON_ERROR_STOP=1` prints for these statements, all in one session.
    pub fn psql(&mut self, sql: &str) -> Result<String> {
        anyhow::bail!("not yet")
    }

    /// Restarts the lab's own server with these further lines of `postgresql.conf` (none: as the experiment needs it), when it does
    /// not run with them already. An error for a server that is not ours.
    pub fn configure_server(&mut self, lines: &[String]) -> Result<()> {
        anyhow::bail!("not yet")
    }

    /// The target's pooler on this machine, its processes summed; `None` for a server itself, or a pooler not ours to look into.
    pub fn pooler_memory(&self) -> Result<Option<ServerMemory>> {
        anyhow::bail!("not yet")
    }

    /// The server's processes on this machine, summed; `None` for a server elsewhere.
    pub fn server_memory(&self) -> Result<Option<ServerMemory>> {
        anyhow::bail!("not yet")
    }
}

/// Connections that are open until this is dropped.
pub struct Held {
    pub clients: usize,
    pub command: String,
}

/// Memory of a server's backends, without what they share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerMemory {
    pub processes: usize,
    /// `Private_Clean + Private_Dirty + Private_Hugetlb` of `smaps_rollup`.
    pub private_kib: u64,
    /// `VmPTE` of `status`: what mapping the shared memory costs each process, unless pages are huge.
    pub page_tables_kib: u64,
    /// What naive tools would say: the sum of `VmRSS`.
    pub rss_kib: u64,
}
