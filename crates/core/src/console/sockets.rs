//! Rows of SHOW CLIENTS, SHOW SERVERS and SHOW PINS: what is told of one connection. There may be many, so they are told in portions.

use crate::client::{Client, ClientState, Link};
use crate::id::NO_POOL;
use crate::id::{Side, TableId};
use crate::label::pointer;
use crate::names::CONSOLE;
use crate::peer::Peer;
use crate::server::{Server, ServerState};
use crate::time::{Duration, Time};

use super::command::Show;
use super::inspection::Inspection;
use super::report::Cell;

/// Rows that a worker makes at once: a part of a millisecond. With 100 000 clients all of them take it half a second.
const ROWS_MAX: usize = 256;

/// Some rows, and where to go on, if there are more.
pub(crate) struct Portion {
    pub(crate) rows: Vec<Vec<Cell>>,
    pub(crate) next: Option<u32>,
}

impl Inspection<'_> {
    /// The next rows of what is shown of each client or each server, from this slot of their table on.
    pub(crate) fn rows_from(&self, show: Show, slot: u32) -> Portion {
        match show {
            Show::Servers => portion(self.servers.iter_from(slot), |server| {
                let client = server.client().and_then(|id| self.clients.get(id));
                self.server_row(server).map(|row| with_told(row, client))
            }),
            Show::Pins => portion(self.servers.iter_from(slot), |server| self.pin_row(server)),
            Show::Sockets | Show::ActiveSockets => self.sockets_from(show == Show::ActiveSockets, slot),
            _ => portion(self.clients.iter_from(slot), |client| {
                self.client_row(client).map(|row| with_told(row, Some(client)))
            }),
        }
    }

    /// Clients first, and servers behind them. `active`: those alone of which part of a message is here.
    fn sockets_from(&self, active: bool, slot: u32) -> Portion {
        const OF_SERVERS: u32 = 1 << 31;
        // What is read and sent is the driver's, and nothing waits here.
        let buffers = |row: Vec<Cell>| row.into_iter().chain([(); 7].map(|()| 0u32.into())).collect();
        if slot & OF_SERVERS == 0 {
            let row = |client: &Client| {
                let shown = !active || client.inbox.has_partial() || client.congested;
                shown.then(|| self.client_row(client).map(buffers)).flatten()
            };
            let portion = portion(self.clients.iter_from(slot), row);
            return Portion { next: portion.next.or(Some(OF_SERVERS)), ..portion };
        }
        let row = |server: &Server| {
            let shown = !active || server.inbox.has_partial() || server.congested;
            shown.then(|| self.server_row(server).map(buffers)).flatten()
        };
        let portion = portion(self.servers.iter_from(slot & !OF_SERVERS), row);
        Portion { next: portion.next.map(|slot| slot | OF_SERVERS), ..portion }
    }

    fn client_row(&self, client: &Client) -> Option<Vec<Cell>> {
        let (user, database) = match &client.state {
            ClientState::Ready(session) => (&*session.user, &*session.database),
            ClientState::Console(console) => (&**console.user(), CONSOLE),
            _ => return None,
        };
        let session = client.session();
        let (state, since) = match client.link {
            Link::Waiting { since } | Link::WaitingTunnel { since } => ("waiting", Some(since)),
            Link::None => ("idle", None),
            _ => ("active", None),
        };
        let request_at = session.map_or(client.connected_at, |session| session.request_at);
        let application = session.and_then(|session| session.parameters.get("application_name"));
        let mut row: Vec<Cell> = vec!["C".into(), user.into(), database.into(), "none".into(), state.into()];
        row.extend(addresses(Some(&client.peer), Some(&client.local)));
        row.push(self.wall_clock(client.connected_at).into());
        row.push(self.wall_clock(request_at).into());
        row.extend(wait_cells(since.map_or(Duration::ZERO, |since| self.cx.now.since(since))));
        row.push(0u32.into());
        row.push(pointer(Side::Client, client.number).into());
        row.push(
            client
                .link
                .server()
                .and_then(|id| self.servers.get(id))
                .map_or("".into(), |server| pointer(Side::Server, server.number).into()),
        );
        row.push(0u32.into());
        row.push(client.tls.as_ref().map_or("".into(), |tls| tls.description.as_str().into()));
        row.push(application.map_or("".into(), |value| String::from_utf8_lossy(&value.value).into_owned().into()));
        row.push((session.map_or(0, |session| session.statements.len()) as u64).into());
        row.push(client.number.into());
        Some(row)
    }

    fn server_row(&self, server: &Server) -> Option<Vec<Cell>> {
        if server.pool == NO_POOL || matches!(server.state, ServerState::Reserved) {
            return None;
        }
        let pool = &self.pools[server.pool];
        let replication = if matches!(server.state, ServerState::Tunnel(_)) { "logical" } else { "none" };
        let mut row: Vec<Cell> = vec![
            "S".into(),
            (&*pool.name.user).into(),
            (&*pool.name.database).into(),
            replication.into(),
            server.state_word(&pool.limits, self.cx.now).into(),
        ];
        row.extend(addresses(server.peer.as_ref(), server.local.as_ref()));
        row.push(self.wall_clock(server.made_at).into());
        row.push(self.wall_clock(server.linked_at).into());
        row.extend(wait_cells(Duration::ZERO));
        row.push(u32::from(server.close_needed).into());
        row.push(pointer(Side::Server, server.number).into());
        row.push(
            server
                .client()
                .and_then(|id| self.clients.get(id))
                .map_or("".into(), |client| pointer(Side::Client, client.number).into()),
        );
        row.push(server.key.as_ref().map_or(0, |(process_id, _)| *process_id).into());
        row.push((&*server.tls).into());
        let application = server.parameters.get("application_name");
        row.push(application.map_or("".into(), |value| String::from_utf8_lossy(&value.value).into_owned().into()));
        row.push((server.mirror.len() as u64).into());
        row.push(server.number.into());
        Some(row)
    }

    /// A server that stays with its client for what that has left in its session.
    fn pin_row(&self, server: &Server) -> Option<Vec<Cell>> {
        let client = server.client().and_then(|id| self.clients.get(id))?;
        let blind = server.kept.blind.then_some(server.linked_at);
        let since = server.kept.held_since().or(blind)?;
        let pool = &self.pools[server.pool];
        Some(vec![
            (&*pool.name.database).into(),
            (&*pool.name.user).into(),
            client.number.into(),
            server.number.into(),
            server.key.as_ref().map_or(0, |(process_id, _)| *process_id).into(),
            server.kept.held().words().into(),
            self.wall_clock(since).into(),
            (self.cx.now.since(since).0 / 1_000_000).into(),
            String::from_utf8_lossy(&server.kept.text).into_owned().into(),
        ])
    }

    /// `YYYY-MM-DD HH:MM:SS UTC`.
    fn wall_clock(&self, at: Time) -> String {
        let secs = (self.cx.config.epoch_us + at.0) / 1_000_000;
        let (days, second) = (secs / 86_400, secs % 86_400);
        let (year, month, day) = civil_from_days(days as i64);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

fn portion<'a, Id: TableId, T: 'a>(
    places: impl Iterator<Item = (Id, &'a T)>,
    row_of: impl Fn(&T) -> Option<Vec<Cell>>,
) -> Portion {
    let mut rows = Vec::new();
    for (id, place) in places {
        if rows.len() == ROWS_MAX {
            return Portion { rows, next: Some(id.slot()) };
        }
        rows.extend(row_of(place));
    }
    Portion { rows, next: None }
}

/// And the process id that the client was told at its login: its own, or that of the one which has the server. It is no server's.
fn with_told(mut row: Vec<Cell>, client: Option<&Client>) -> Vec<Cell> {
    let session = client.and_then(|client| client.session());
    row.push(session.map_or(0, |session| session.told).into());
    row
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
        Some(Peer::Unix { port, .. }) => (Cell::Text("unix".to_owned()), Cell::Int(i64::from(*port))),
        None => (Cell::Text(String::new()), Cell::Int(0)),
    };
    let ((addr, port), (local_addr, local_port)) = (split(peer), split(local));
    [addr, port, local_addr, local_port]
}

fn wait_cells(wait: Duration) -> [Cell; 2] {
    [Cell::Int((wait.0 / 1_000_000) as i64), Cell::Int((wait.0 % 1_000_000) as i64)]
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
