//! What a run did, counted, so that a green result says how much it covered.

use std::collections::BTreeMap;
use std::fmt;

/// Things by name.
#[derive(Debug, Default, Clone)]
pub struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub fn add(&mut self, name: &str) {
        match self.0.get_mut(name) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(name.to_owned(), 1)),
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            *self.0.entry(name.clone()).or_default() += count;
        }
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(name, count)| format!("{name} {count}")).collect();
        f.write_str(&parts.join(", "))
    }
}

/// Counters of one run or of many.
#[derive(Debug, Default, Clone)]
pub struct Counts {
    pub seeds: u64,
    pub virtual_us: u64,
    pub events: u64,
    pub statements: u64,
    pub transactions: u64,
    pub exchanges: u64,
    pub client_sessions: u64,
    pub server_sessions: u64,
    pub cancels_asked: u64,
    pub cancels_hit: u64,
    pub cancels_idle: u64,
    pub stale_plans: u64,
    /// Committed changes of parameter types.
    pub types_changed: u64,
    /// Notifications that clients were told.
    pub notified: u64,
    /// Statements on a cluster's tables, what moved in one, and how often its catalogue was read.
    pub accesses: u64,
    pub moves: u64,
    pub catalogues: u64,
    pub mails: u64,
    pub transfers: u64,
    pub client_moves: u64,
    pub congestions: u64,
    pub console_queries: u64,
    pub core_heap_max: u64,
    pub faults: Tally,
    /// What the pooler itself told clients, by SQLSTATE and text.
    pub pooler_errors: Tally,
}

impl Counts {
    pub fn merge(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.virtual_us += other.virtual_us;
        self.events += other.events;
        self.statements += other.statements;
        self.transactions += other.transactions;
        self.exchanges += other.exchanges;
        self.client_sessions += other.client_sessions;
        self.server_sessions += other.server_sessions;
        self.cancels_asked += other.cancels_asked;
        self.cancels_hit += other.cancels_hit;
        self.cancels_idle += other.cancels_idle;
        self.stale_plans += other.stale_plans;
        self.types_changed += other.types_changed;
        self.notified += other.notified;
        self.accesses += other.accesses;
        self.moves += other.moves;
        self.catalogues += other.catalogues;
        self.mails += other.mails;
        self.transfers += other.transfers;
        self.client_moves += other.client_moves;
        self.congestions += other.congestions;
        self.console_queries += other.console_queries;
        self.core_heap_max = self.core_heap_max.max(other.core_heap_max);
        self.faults.merge(&other.faults);
        self.pooler_errors.merge(&other.pooler_errors);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seeds              {}", self.seeds)?;
        writeln!(f, "simulated hours    {:.2}", self.virtual_us as f64 / 3.6e9)?;
        writeln!(f, "events             {}", self.events)?;
        writeln!(f, "client sessions    {}", self.client_sessions)?;
        writeln!(f, "server sessions    {}", self.server_sessions)?;
        writeln!(f, "exchanges          {}", self.exchanges)?;
        writeln!(f, "transactions       {}", self.transactions)?;
        writeln!(f, "statements         {}", self.statements)?;
        writeln!(
            f,
            "cancels            {} asked, {} hit, {} came late",
            self.cancels_asked, self.cancels_hit, self.cancels_idle
        )?;
        writeln!(f, "stale plans        {}, parameter types changed {}", self.stale_plans, self.types_changed)?;
        writeln!(f, "notifications      {}", self.notified)?;
        writeln!(
            f,
            "cluster            {} statements on its tables, {} changes of nodes, {} catalogues read",
            self.accesses, self.moves, self.catalogues
        )?;
        writeln!(
            f,
            "mail               {}, with a connection {}, with a client's session {}",
            self.mails, self.transfers, self.client_moves
        )?;
        writeln!(f, "congestions        {}", self.congestions)?;
        writeln!(f, "console queries    {}", self.console_queries)?;
        writeln!(f, "core's heap        {} KiB at most", self.core_heap_max / 1024)?;
        writeln!(f, "faults             {}: {}", self.faults.total(), self.faults)?;
        write!(f, "pooler's errors    {}: {}", self.pooler_errors.total(), self.pooler_errors)
    }
}
