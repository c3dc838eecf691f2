//! One worker as the console shows it: only read.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::{Client, ClientState};
use crate::context::Context;
use crate::id::{ClientId, ServerId, Table};
use crate::making::Target;
use crate::names::CONSOLE;
use crate::pool::gates::Gates;
use crate::pool::{Pool, Pools};
use crate::server::{Cancel, Server, ServerState};
use crate::settings::PoolMode;
use crate::stats::{Averages, Counters};
use crate::steward::Steward;
use crate::worker::lines::{Line, Lines};

use super::command::Show;
use super::report::{Answer, Cell, PeerReport, PoolReport, SearchPath};

pub(crate) struct Inspection<'w> {
    pub(crate) cx: &'w Context,
    pub(crate) clients: &'w Table<ClientId, Client>,
    pub(crate) servers: &'w Table<ServerId, Server>,
    pub(crate) pools: &'w Pools,
    pub(crate) steward: Option<&'w Steward>,
    pub(crate) gates: &'w Gates,
    pub(crate) averages: &'w Averages,
    pub(crate) console_counters: &'w Counters,
    pub(crate) strays: &'w Lines,
    pub(crate) busy_permille: u16,
    pub(crate) handed_over: u64,
}

impl Inspection<'_> {
    /// What is shown of this worker, and no more: with many clients each look at all of them costs.
    pub(crate) fn report(&self, show: Show, answer: &mut Answer) {
        answer.gates = self.gates.clone();
        match show {
            Show::Workers => answer.rows = vec![self.worker_row()],
            Show::Databases | Show::Users => {
                self.report_pools(answer, self.pool_reports());
                answer.census = self.steward.map(Steward::census).unwrap_or_default();
            }
            Show::Histograms | Show::Logins => {
                self.report_pools(answer, self.pool_reports());
                for pool in self.pools.iter() {
                    let name = (Arc::clone(&pool.name.database), Arc::clone(&pool.name.user));
                    *answer.watched.entry(name).or_default() += pool.watched;
                }
            }
            Show::Errors => answer.errors = self.cx.errors.clone(),
            Show::Stats | Show::StatsTotals | Show::StatsAverages | Show::Totals => {
                self.report_pools(answer, self.pool_reports())
            }
            Show::Pools | Show::Lists | Show::Mem => {
                let mut reports = self.pool_reports();
                self.count_clients(answer, &mut reports);
                self.count_servers(answer, &mut reports);
                self.report_pools(answer, reports);
            }
            Show::Nodes => {
                let mut reports = self.pool_reports();
                self.count_clients(answer, &mut reports);
                self.count_servers(answer, &mut reports);
                self.report_nodes(answer, &reports);
            }
            Show::Routes => {
                let uses = self.cx.recipes.uses();
                answer.routes = uses.map(|(shape, uses)| (shape.cloned(), uses.clone())).collect();
            }
            // Asked for in portions, by `Question::Rows`, or known without asking.
            Show::Clients | Show::Servers | Show::Sockets | Show::ActiveSockets | Show::Pins => {}
            Show::Config | Show::Help | Show::State | Show::Version => {}
            Show::DnsHosts | Show::DnsZones | Show::Peers => {}
            Show::PeerPools => answer.peers = self.peer_reports(),
        }
    }

    /// Of those that have requests.
    fn peer_reports(&self) -> BTreeMap<u16, PeerReport> {
        let waiting = |line: &Line| PeerReport { waiting: line.waiting() as u32, ..PeerReport::default() };
        let mut reports: BTreeMap<_, _> = self.strays.iter().map(|(peer, line)| (*peer, waiting(line))).collect();
        for (_, server) in self.servers.iter() {
            if let Some(Target::Peer { peer, .. }) = server.carries() {
                let report: &mut PeerReport = reports.entry(peer).or_default();
                let is_made = matches!(server.state, ServerState::Canceller { .. });
                report.active += u32::from(is_made);
                report.login += u32::from(!is_made);
            }
        }
        reports
    }

    /// One for each pool, by its index.
    fn pool_reports(&self) -> Vec<PoolReport> {
        let report = |pool: &Pool| PoolReport {
            mode: pool.limits.mode.as_str(),
            servers: pool.servers,
            counters: pool.counted_so_far(),
            counted: pool.counted,
            ..PoolReport::default()
        };
        self.pools.places().iter().map(report).collect()
    }

    fn report_pools(&self, answer: &mut Answer, reports: Vec<PoolReport>) {
        for (pool, report) in self.pools.places().iter().zip(reports).filter(|(pool, _)| !pool.is_forgotten()) {
            // Those that look up users stand with those of `auth_user`'s clients.
            let name = (Arc::clone(&pool.name.database), Arc::clone(&pool.name.user));
            answer
                .pools
                .entry(name)
                .or_insert_with(|| PoolReport { mode: report.mode, ..PoolReport::default() })
                .add(&report);
        }
        answer.counted_for = self.averages.counted_for();
        let consoles = PoolReport {
            mode: PoolMode::Statement.as_str(),
            clients_active: answer.consoles,
            counters: *self.console_counters,
            ..PoolReport::default()
        };
        answer.pools.insert((CONSOLE.into(), CONSOLE.into()), consoles);
    }

    /// Of databases that are a cluster's.
    fn report_nodes(&self, answer: &mut Answer, reports: &[PoolReport]) {
        for (pool, report) in self.pools.places().iter().zip(reports) {
            if !pool.is_forgotten() && pool.database.cluster.is_some() {
                let name = (Arc::clone(&pool.name.database), pool.name.destination);
                answer.nodes.entry(name).or_default().add(report);
            }
        }
    }

    pub(crate) fn search_paths(&self) -> BTreeMap<Arc<str>, SearchPath> {
        let known = self.pools.iter().filter_map(|pool| Some((pool, pool.knowledge.path.clone()?)));
        let named = |(pool, path): (&Pool, Box<str>)| {
            (Arc::clone(&pool.name.database), SearchPath { user: Arc::clone(&pool.name.user), path })
        };
        known.map(named).collect()
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
            let limits = &self.pools[server.pool].limits;
            answer.servers += 1;
            match &server.state {
                ServerState::Idle if server.is_to_check(limits, self.cx.now) => report.servers_to_check += 1,
                ServerState::Idle => report.servers_idle += 1,
                ServerState::Linked(_) | ServerState::Tunnel(_) => report.servers_active += 1,
                ServerState::Making(_) => report.servers_login += 1,
                ServerState::Held => report.servers_canceled += 1,
                ServerState::Recovering { .. } => report.servers_tested += 1,
                _ => {}
            }
            report.cancels_active += u32::from(server.cancel != Cancel::None);
        }
    }

    fn worker_row(&self) -> Vec<Cell> {
        let idle: usize = self.pools.iter().map(|pool| pool.idle.len()).sum();
        vec![
            u32::from(self.cx.config.id.0).into(),
            (self.clients.len() as u64).into(),
            (self.servers.len() as u64).into(),
            (idle as u64).into(),
            u32::from(self.busy_permille).into(),
            self.handed_over.into(),
            self.cx.letters_sent().into(),
        ]
    }
}
