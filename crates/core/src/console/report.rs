//! One worker's share of the console's answers, and what the console may ask a worker to do.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::{ClientState, Link};
use crate::contract::Peer;
use crate::failure::Failure;
use crate::id::{ConnId, WorkerId};
use crate::mail::Letter;
use crate::pool::{Gate, Pool};
use crate::server::{NO_POOL, ServerState};
use crate::stats::Counters;
use crate::time::{Duration, Time};
use crate::whereabouts::Whereabouts;
use crate::worker::Worker;

use super::command::Show;

/// What a worker is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    Report(Show),
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
    pub(crate) gate: Option<Gate>,
    pub(crate) clients: u32,
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
    pub(crate) averages: [u64; 11],
}

impl PoolReport {
    pub(super) fn add(&mut self, other: &Self) {
        self.mode = other.mode;
        self.gate = self.gate.filter(|gate| *gate != Gate::Open).or(other.gate);
        self.clients += other.clients;
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
        for (column, (mine, theirs)) in self.averages.iter_mut().zip(other.averages).enumerate() {
            // Times are averages already: the larger one says more than their sum.
            *mine = if matches!(column, 5 | 6) { (*mine).max(theirs) } else { *mine + theirs };
        }
    }
}

/// One worker's share, or all shares together.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) pools: BTreeMap<(Arc<str>, Arc<str>), PoolReport>,
    pub(crate) rows: Vec<Vec<Cell>>,
    pub(crate) clients: u32,
    pub(crate) logins: u32,
    pub(crate) servers: u32,
    pub(crate) refusal: Option<String>,
    pub(crate) found: bool,
}

impl Answer {
    pub(crate) fn merge(&mut self, share: Self) {
        for (name, report) in share.pools {
            self.pools.entry(name).or_default().add(&report);
        }
        self.rows.extend(share.rows);
        self.clients += share.clients;
        self.logins += share.logins;
        self.servers += share.servers;
        self.found |= share.found;
        self.refusal = self.refusal.take().or(share.refusal);
    }
}

impl Worker {
    pub(crate) fn asked(&mut self, from: WorkerId, question: &Question, asker: ConnId) {
        let mut answer = Answer::default();
        match question {
            Question::Report(show) => self.report(*show, &mut answer),
            Question::Pause(name) | Question::WaitClose(name) => {
                if matches!(question, Question::Pause(_)) {
                    self.set_gate(name.as_deref(), Gate::Paused);
                }
                self.closing_waits.push((from, asker, question.clone()));
                return self.closing_progress();
            }
            Question::Resume(_) | Question::Enable(_) if self.shutting_down() => {
                answer.refusal = Some("the pooler is shutting down".to_owned());
            }
            Question::Resume(name) => self.set_gate(name.as_deref(), Gate::Open),
            Question::Disable(name) => self.set_gate(Some(name), Gate::Disabled),
            Question::Enable(name) => self.set_gate(Some(name), Gate::Open),
            Question::Reconnect(name) => self.reconnect(name.as_deref()),
            Question::Kill(name) => self.kill(name.as_deref()),
            Question::KillClient(number) => answer.found = self.kill_client(*number),
        }
        self.post(from, Letter::Tell { answer: Box::new(answer), asker });
    }

    fn pools_named(&self, name: Option<&str>) -> Vec<u32> {
        self.pools
            .indexes()
            .filter(|&index| name.is_none_or(|name| *self.pools[index].name.database == *name))
            .collect()
    }

    pub(crate) fn set_gate(&mut self, name: Option<&str>, gate: Gate) {
        match (name, gate) {
            (Some(name), Gate::Open) => drop(self.gates.remove(name)),
            (Some(name), _) => drop(self.gates.insert(name.into(), gate)),
            (None, Gate::Open) => {
                self.gates.retain(|_, gate| *gate == Gate::Disabled);
                self.paused = false;
            }
            (None, _) => self.paused = true,
        }
        for index in self.pools_named(name) {
            if name.is_none() && self.pools[index].gate == Gate::Disabled {
                continue;
            }
            self.pools[index].gate = gate;
            if gate == Gate::Open {
                self.schedule(index);
                self.ask(index);
            } else {
                for id in self.pools[index].idle.clone() {
                    self.close_server(id, "the pool is paused");
                }
            }
            if gate == Gate::Disabled {
                let waiting: Vec<_> = self.pools[index].waiting.iter().map(|waiting| waiting.client).collect();
                for client in waiting {
                    self.fail_client(client, &Failure::Disabled);
                }
            }
        }
    }

    /// All servers are replaced as they become free.
    fn reconnect(&mut self, name: Option<&str>) {
        for index in self.pools_named(name) {
            self.mark_servers(index);
        }
    }

    pub(crate) fn mark_servers(&mut self, index: u32) {
        for id in self.servers.ids() {
            if let Some(server) = self.servers.get_mut(id)
                && server.pool == index
            {
                server.close_needed = true;
                if matches!(server.state, ServerState::Idle) {
                    self.close_server(id, "its settings changed");
                }
            }
        }
    }

    /// Drops the client of this number; one that has moved is followed.
    pub(crate) fn kill_client(&mut self, number: u64) -> bool {
        let here = self.clients.iter().find(|(_, client)| client.number == number).map(|(id, _)| id);
        if let Some(id) = here {
            self.fail_client(id, &Failure::Killed);
            return true;
        }
        let left = self.cancel_keys.values().find_map(|whereabouts| match whereabouts {
            Whereabouts::Left { to, number: other, .. } if *other == number => Some(*to),
            _ => None,
        });
        if let Some(to) = left {
            self.post(to, Letter::KillClient { number });
        }
        left.is_some()
    }

    /// How often the clients of a database were killed: one that was on its way then is killed when it comes.
    pub(crate) fn kills(&self, database: &str) -> u32 {
        self.kills_of_all + self.kills_by_database.get(database).copied().unwrap_or(0)
    }

    /// Drops clients and servers, and pauses.
    fn kill(&mut self, name: Option<&str>) {
        match name {
            Some(name) => *self.kills_by_database.entry(name.into()).or_default() += 1,
            None => self.kills_of_all += 1,
        }
        for index in self.pools_named(name) {
            for id in self.clients.ids() {
                if self.clients.get(id).is_some_and(|client| client.pool == index) {
                    self.fail_client(id, &Failure::Killed);
                }
            }
            for id in self.servers.ids() {
                if self.servers.get(id).is_some_and(|server| server.pool == index) {
                    self.close_server(id, "KILL");
                }
            }
        }
        self.set_gate(name, Gate::Paused);
    }

    /// Answers whoever waits for servers to be closed, once they are.
    pub(crate) fn closing_progress(&mut self) {
        for (from, asker, question) in std::mem::take(&mut self.closing_waits) {
            let done = match &question {
                Question::Pause(name) => {
                    self.pools_named(name.as_deref()).into_iter().all(|index| self.pools[index].servers == 0)
                }
                Question::WaitClose(name) => {
                    let pools = self.pools_named(name.as_deref());
                    !self.servers.iter().any(|(_, server)| server.close_needed && pools.contains(&server.pool))
                }
                _ => true,
            };
            let resumed = matches!(&question, Question::Pause(name)
                if self.pools_named(name.as_deref()).into_iter().any(|index| self.pools[index].gate == Gate::Open));
            if done || resumed {
                self.post(from, Letter::Tell { answer: Box::default(), asker });
            } else {
                self.closing_waits.push((from, asker, question));
            }
        }
    }

    fn report(&self, show: Show, answer: &mut Answer) {
        match show {
            Show::Clients => answer.rows = self.client_rows(),
            Show::Servers => answer.rows = self.server_rows(),
            Show::Workers => answer.rows = vec![self.worker_row()],
            _ => {}
        }
        for index in self.pools.indexes() {
            let pool = &self.pools[index];
            answer.pools.insert((Arc::clone(&pool.name.database), Arc::clone(&pool.name.user)), self.pool_report(pool));
        }
        for (_, client) in self.clients.iter() {
            match &client.state {
                ClientState::Login(_) => answer.logins += 1,
                ClientState::Ready(_) | ClientState::Console(_) => answer.clients += 1,
                _ => {}
            }
            let Some(report) = self.report_of(answer, client.pool) else { continue };
            let counted = matches!(client.state, ClientState::Ready(_) | ClientState::Login(_));
            match client.link {
                _ if !counted => {}
                Link::Waiting { since } | Link::WaitingTunnel { since } => {
                    report.clients_waiting += 1;
                    report.longest_wait = report.longest_wait.max(self.now.since(since));
                }
                _ => report.clients_active += 1,
            }
        }
        for (_, server) in self.servers.iter() {
            answer.servers += u32::from(server.pool != NO_POOL);
            let Some(report) = self.report_of(answer, server.pool) else { continue };
            report.servers += 1;
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

    fn report_of<'a>(&self, answer: &'a mut Answer, index: u32) -> Option<&'a mut PoolReport> {
        if index == NO_POOL {
            return None;
        }
        let name = &self.pools[index].name;
        answer.pools.get_mut(&(Arc::clone(&name.database), Arc::clone(&name.user)))
    }

    fn pool_report(&self, pool: &Pool) -> PoolReport {
        PoolReport {
            mode: pool.mode.as_str(),
            gate: Some(pool.gate),
            clients: pool.clients,
            counters: pool.counters,
            averages: pool.averages,
            ..PoolReport::default()
        }
    }

    fn client_rows(&self) -> Vec<Vec<Cell>> {
        let mut rows = Vec::new();
        for (_, client) in self.clients.iter() {
            let (user, database) = match &client.state {
                ClientState::Ready(session) => (&*session.user, &*session.database),
                ClientState::Console(console) => (&**console.user(), "pgbouncer"),
                _ => continue,
            };
            let session = client.session();
            let (state, since) = match client.link {
                Link::Waiting { since } | Link::WaitingTunnel { since } => ("waiting", Some(since)),
                Link::None if session.is_some() => ("idle", None),
                _ => ("active", None),
            };
            let request_at = session.map_or(client.connected_at, |session| session.request_at);
            let application = session.and_then(|session| session.parameters.get("application_name"));
            let mut row: Vec<Cell> = vec!["C".into(), user.into(), database.into(), "none".into(), state.into()];
            row.extend(addresses(Some(&client.peer), Some(&client.local)));
            row.push(self.wall_clock(client.connected_at).into());
            row.push(self.wall_clock(request_at).into());
            row.extend(wait_cells(since.map_or(Duration::ZERO, |since| self.now.since(since))));
            row.push(0u32.into());
            row.push(pointer(client.number).into());
            row.push(
                client
                    .link
                    .server()
                    .and_then(|id| self.servers.get(id))
                    .map_or("".into(), |server| pointer(server.number).into()),
            );
            row.push(0u32.into());
            row.push(client.tls.as_ref().map_or("".into(), |tls| tls.description.as_str().into()));
            row.push(application.map_or("".into(), |value| String::from_utf8_lossy(&value.value).into_owned().into()));
            row.push((session.map_or(0, |session| session.statements.len()) as u64).into());
            row.push(client.number.into());
            rows.push(row);
        }
        rows
    }

    fn server_rows(&self) -> Vec<Vec<Cell>> {
        let mut rows = Vec::new();
        for (_, server) in self.servers.iter() {
            if server.pool == NO_POOL || matches!(server.state, ServerState::Reserved) {
                continue;
            }
            let pool = &self.pools[server.pool];
            let replication = if matches!(server.state, ServerState::Tunnel(_)) { "logical" } else { "none" };
            let mut row: Vec<Cell> = vec![
                "S".into(),
                (&*pool.name.user).into(),
                (&*pool.name.database).into(),
                replication.into(),
                server.state_word().into(),
            ];
            row.extend(addresses(server.peer.as_ref(), server.local.as_ref()));
            row.push(self.wall_clock(server.made_at).into());
            row.push(self.wall_clock(server.linked_at).into());
            row.extend(wait_cells(Duration::ZERO));
            row.push(u32::from(server.close_needed).into());
            row.push(pointer(server.number).into());
            row.push(
                server
                    .client()
                    .and_then(|id| self.clients.get(id))
                    .map_or("".into(), |client| pointer(client.number).into()),
            );
            row.push(server.key.as_ref().map_or(0, |(process_id, _)| *process_id).into());
            row.push((&*server.tls).into());
            let application = server.parameters.get("application_name");
            row.push(application.map_or("".into(), |value| String::from_utf8_lossy(&value.value).into_owned().into()));
            row.push((server.mirror.len() as u64).into());
            row.push(server.number.into());
            rows.push(row);
        }
        rows
    }

    fn worker_row(&self) -> Vec<Cell> {
        let idle: usize = self.pools.iter().map(|pool| pool.idle.len()).sum();
        vec![
            u32::from(self.config.id.0).into(),
            (self.clients.len() as u64).into(),
            (self.servers.len() as u64).into(),
            (idle as u64).into(),
            u32::from(self.busy_permille).into(),
            self.handed_over.into(),
            self.letters_sent.into(),
        ]
    }

    /// `YYYY-MM-DD HH:MM:SS UTC`.
    fn wall_clock(&self, at: Time) -> String {
        let secs = (self.config.epoch_us + at.0) / 1_000_000;
        let (days, second) = (secs / 86_400, secs % 86_400);
        let (year, month, day) = civil_from_days(days as i64);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

/// The Gregorian date of a day since 1970-01-01 (Howard Hinnant's algorithm for civil dates).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn addresses(peer: Option<&Peer>, local: Option<&Peer>) -> [Cell; 4] {
    let split = |peer: Option<&Peer>| match peer {
        Some(Peer::Tcp { ip, port }) => (Cell::Text(ip.to_string()), Cell::Int(i64::from(*port))),
        Some(Peer::Unix { .. }) => (Cell::Text("unix".to_owned()), Cell::Int(0)),
        None => (Cell::Text(String::new()), Cell::Int(0)),
    };
    let ((addr, port), (local_addr, local_port)) = (split(peer), split(local));
    [addr, port, local_addr, local_port]
}

fn wait_cells(wait: Duration) -> [Cell; 2] {
    [Cell::Int((wait.0 / 1_000_000) as i64), Cell::Int((wait.0 % 1_000_000) as i64)]
}

/// PgBouncer prints pointers here; ours are names without a meaning of their own too, equal where PgBouncer's are.
fn pointer(number: u64) -> String {
    format!("0x{number:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil_from_days(0), (1970, 1, 1));
        assert_eq!(civil_from_days(19_782), (2024, 2, 29));
        assert_eq!(civil_from_days(20_778), (2026, 11, 21));
    }
}
