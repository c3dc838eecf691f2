//! One worker's share of the console's answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::ClientState;
use crate::gates::Gates;
use crate::names::CONSOLE;
use crate::pool::Pool;
use crate::server::ServerState;
use crate::settings::PoolMode;
use crate::stats::Counters;
use crate::steward::Steward;
use crate::time::Duration;
use crate::worker::Worker;

use super::command::Show;

/// What a worker is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    Report(Show),
    /// The next of many rows, from this slot on.
    Rows {
        show: Show,
        slot: u32,
    },
    Pause(Option<Arc<str>>),
    Resume(Option<Arc<str>>),
    Disable(Arc<str>),
    Enable(Arc<str>),
    Reconnect(Option<Arc<str>>),
    Kill(Option<Arc<str>>),
    KillClient(u64),
    /// Answered when all servers that were marked for closing are closed.
    WaitClose(Option<Arc<str>>),
}

/// A row's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Text(String),
    Int(i64),
    Null,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Int(number as i64)
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Self::Int(i64::from(number))
    }
}

/// A pool, as one worker sees it or as all do together.
#[derive(Debug, Clone, Default)]
pub(crate) struct PoolReport {
    pub(crate) mode: &'static str,
    pub(crate) clients_active: u32,
    pub(crate) clients_waiting: u32,
    pub(crate) cancels_active: u32,
    pub(crate) servers: u32,
    pub(crate) servers_active: u32,
    pub(crate) servers_canceled: u32,
    pub(crate) servers_idle: u32,
    pub(crate) servers_tested: u32,
    pub(crate) servers_login: u32,
    pub(crate) longest_wait: Duration,
    pub(crate) counters: Counters,
    /// In the last period of the averages.
    pub(crate) counted: Counters,
}

impl PoolReport {
    pub(super) fn add(&mut self, other: &Self) {
        self.mode = other.mode;
        self.clients_active += other.clients_active;
        self.clients_waiting += other.clients_waiting;
        self.cancels_active += other.cancels_active;
        self.servers += other.servers;
        self.servers_active += other.servers_active;
        self.servers_canceled += other.servers_canceled;
        self.servers_idle += other.servers_idle;
        self.servers_tested += other.servers_tested;
        self.servers_login += other.servers_login;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.counters += other.counters;
        self.counted += other.counted;
    }
}

/// One worker's share, or all shares together.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) pools: BTreeMap<(Arc<str>, Arc<str>), PoolReport>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Where this worker's rows go on.
    pub(crate) next_slot: Option<u32>,
    pub(crate) clients: u32,
    pub(crate) consoles: u32,
    pub(crate) logins: u32,
    pub(crate) servers: u32,
    pub(crate) refusal: Option<String>,
    pub(crate) found: bool,
    /// All workers were told the same: one worker's are everybody's.
    pub(crate) gates: Gates,
    /// How long the last period of the averages was.
    pub(crate) counted_for: Duration,
    pub(crate) free_clients: u32,
    pub(crate) free_servers: u32,
    /// Only the steward's worker knows.
    pub(crate) census: Census,
}

/// Clients by the names they came in under.
#[derive(Debug, Default)]
pub(crate) struct Census {
    pub(crate) by_user: BTreeMap<Arc<str>, u32>,
    pub(crate) by_database: BTreeMap<Arc<str>, u32>,
}

impl Answer {
    pub(crate) fn merge(&mut self, share: Self) {
        for (name, report) in share.pools {
            self.pools.entry(name).or_default().add(&report);
        }
        self.rows.extend(share.rows);
        self.clients += share.clients;
        self.consoles += share.consoles;
        self.logins += share.logins;
        self.servers += share.servers;
        self.found |= share.found;
        self.gates = share.gates;
        self.refusal = self.refusal.take().or(share.refusal);
        self.counted_for = self.counted_for.max(share.counted_for);
        self.free_clients += share.free_clients;
        self.free_servers += share.free_servers;
        if !share.census.by_database.is_empty() {
            self.census = share.census;
        }
    }
}

impl Worker {
    /// What is shown of this worker, and no more: with many clients each look at all of them costs.
    pub(super) fn report(&self, show: Show, answer: &mut Answer) {
        answer.gates = self.gates.clone();
        match show {
            Show::Workers => answer.rows = vec![self.worker_row()],
            Show::Databases | Show::Users => {
                self.report_pools(answer, self.pool_reports());
                answer.census = self.steward.as_ref().map(Steward::census).unwrap_or_default();
            }
            Show::Stats | Show::StatsTotals | Show::StatsAverages => self.report_pools(answer, self.pool_reports()),
            Show::Pools | Show::Lists => {
                let mut reports = self.pool_reports();
                self.count_clients(answer, &mut reports);
                self.count_servers(answer, &mut reports);
                self.report_pools(answer, reports);
            }
            // Asked for in portions, by `Question::Rows`, or known without asking.
            Show::Clients | Show::Servers | Show::Config | Show::Help | Show::State | Show::Version => {}
        }
    }

    /// One for each pool, by its index.
    fn pool_reports(&self) -> Vec<PoolReport> {
        let report = |pool: &Pool| PoolReport {
            mode: pool.mode.as_str(),
            servers: pool.servers,
            counters: pool.counters,
            counted: pool.counted,
            ..PoolReport::default()
        };
        self.pools.iter().map(report).collect()
    }

    fn report_pools(&self, answer: &mut Answer, reports: Vec<PoolReport>) {
        for (pool, report) in self.pools.iter().zip(reports) {
            answer.pools.insert((Arc::clone(&pool.name.database), Arc::clone(&pool.name.user)), report);
        }
        answer.counted_for = self.averages.counted_for();
        let consoles = PoolReport {
            mode: PoolMode::Statement.as_str(),
            clients_active: answer.consoles,
            counters: self.console_counters,
            ..PoolReport::default()
        };
        answer.pools.insert((CONSOLE.into(), CONSOLE.into()), consoles);
    }

    fn count_clients(&self, answer: &mut Answer, reports: &mut [PoolReport]) {
        answer.free_clients = self.clients.free() as u32;
        for (_, client) in self.clients.iter() {
            match &client.state {
                ClientState::Login(_) => answer.logins += 1,
                ClientState::Ready(_) => answer.clients += 1,
                ClientState::Console(_) => answer.consoles += 1,
                _ => continue,
            }
            let Some(report) = reports.get_mut(client.pool as usize) else { continue };
            match client.link.waiting_since() {
                Some(since) => {
                    report.clients_waiting += 1;
                    report.longest_wait = report.longest_wait.max(self.cx.now.since(since));
                }
                None => report.clients_active += 1,
            }
        }
    }

    fn count_servers(&self, answer: &mut Answer, reports: &mut [PoolReport]) {
        answer.free_servers = self.servers.free() as u32;
        for (_, server) in self.servers.iter() {
            // A connection for a cancel request has none.
            let Some(report) = reports.get_mut(server.pool as usize) else { continue };
            answer.servers += 1;
            match &server.state {
                ServerState::Idle => report.servers_idle += 1,
                ServerState::Linked(_) | ServerState::Tunnel(_) => report.servers_active += 1,
                ServerState::Making(_) => report.servers_login += 1,
                ServerState::Held => report.servers_canceled += 1,
                ServerState::Recovering { .. } => report.servers_tested += 1,
                _ => {}
            }
            report.cancels_active += u32::from(server.cancels);
        }
    }

    fn worker_row(&self) -> Vec<Cell> {
        let idle: usize = self.pools.iter().map(|pool| pool.idle.len()).sum();
        vec![
            u32::from(self.cx.config.id.0).into(),
            (self.clients.len() as u64).into(),
            (self.servers.len() as u64).into(),
            (idle as u64).into(),
            u32::from(self.load.busy_permille()).into(),
            self.handed_over.into(),
            self.cx.letters_sent().into(),
        ]
    }
}
