//! What is to be started: a server's settings and tables, and the poolers before it.
//!
//! Does not know for which experiment, nor how it is started.

/// What an experiment needs of the server that the lab starts for it; a user's own target must have it already.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    pub max_connections: u32,
    /// Further lines of `postgresql.conf`.
    pub settings: Vec<String>,
    pub tables: Tables,
    /// The targets beside the server itself that are started when none are given.
    pub poolers: Vec<PoolerKind>,
    /// The poolers' server connections, all together.
    pub pool_size: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tables {
    #[default]
    None,
    /// `pgbench -i -s SCALE`.
    Pgbench,
    /// The same, with an index on `pgbench_accounts (bid)`.
    PgbenchWithBidIndex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolerKind {
    PgBouncer,
    /// As many PgBouncers as there are cores, on one port.
    PgBouncerFleet,
    Weir,
}
