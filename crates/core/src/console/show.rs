//! What the console shows: columns in PgBouncer's order and words, and rows made of all workers' reports.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use weir_wire::report::{Report, Severity};
use weir_wire::write::{self, ColumnType};

use crate::client::Client;
use crate::cluster::Clusters;
use crate::names::CONSOLE;
use crate::peer::Endpoint;
use crate::pool::Pool;
use crate::pool::gates::Gate;
use crate::server::Server;
use crate::settings::{Database, PeerSettings, PoolMode, Settings, UserSettings};

use super::command::Show;
use super::report::{Answer, Cell, PeerReport, PoolReport};
use super::{clusters, names, watched};

pub(super) type Columns = &'static [(&'static str, ColumnType)];

use ColumnType::{Int4, Int8, Numeric, Text};

/// What SHOW CLIENTS and SHOW SERVERS have of them.
const SOCKET_COLUMNS: usize = 21;
/// And what they have behind it.
const CONNECTIONS: Columns = &{
    let mut columns = [("client_pid", Int4); SOCKET_COLUMNS + 1];
    let mut index = 0;
    while index < SOCKET_COLUMNS {
        columns[index] = SOCKETS[index];
        index += 1;
    }
    columns
};
const SOCKETS: Columns = &[
    ("type", Text),
    ("user", Text),
    ("database", Text),
    ("replication", Text),
    ("state", Text),
    ("addr", Text),
    ("port", Int4),
    ("local_addr", Text),
    ("local_port", Int4),
    ("connect_time", Text),
    ("request_time", Text),
    ("wait", Int4),
    ("wait_us", Int4),
    ("close_needed", Int4),
    ("ptr", Text),
    ("link", Text),
    ("remote_pid", Int4),
    ("tls", Text),
    ("application_name", Text),
    ("prepared_statements", Int4),
    ("id", Int8),
    ("recv_pos", Int4),
    ("pkt_pos", Int4),
    ("pkt_remain", Int4),
    ("send_pos", Int4),
    ("send_remain", Int4),
    ("pkt_avail", Int4),
    ("send_avail", Int4),
];
const DNS_HOSTS: Columns = &[("hostname", Text), ("ttl", Int8), ("addrs", Text)];
const DNS_ZONES: Columns = &[("zonename", Text), ("serial", Int8), ("count", Int4)];
const MEM: Columns = &[("name", Text), ("size", Int4), ("used", Int4), ("free", Int4), ("memtotal", Int8)];
const PEERS: Columns = &[("peer_id", Int4), ("host", Text), ("port", Int4), ("pool_size", Int4)];
const PEER_POOLS: Columns = &[
    ("peer_id", Int4),
    ("cl_active_cancel_req", Int4),
    ("cl_waiting_cancel_req", Int4),
    ("sv_active_cancel", Int4),
    ("sv_login", Int4),
];
const TOTALS: Columns = &[("name", Text), ("value", Numeric)];
const CONFIG: Columns = &[("key", Text), ("value", Text), ("default", Text), ("changeable", Text)];
const DATABASES: Columns = &[
    ("name", Text),
    ("host", Text),
    ("port", Int4),
    ("database", Text),
    ("force_user", Text),
    ("pool_size", Int4),
    ("min_pool_size", Int4),
    ("reserve_pool_size", Int4),
    ("server_lifetime", Int4),
    ("pool_mode", Text),
    ("load_balance_hosts", Text),
    ("max_connections", Int4),
    ("current_connections", Int4),
    ("max_client_connections", Int4),
    ("current_client_connections", Int4),
    ("paused", Int4),
    ("disabled", Int4),
];
const LISTS: Columns = &[("list", Text), ("items", Int4)];
const PINS: Columns = &[
    ("database", Text),
    ("user", Text),
    ("client_id", Int8),
    ("server_id", Int8),
    ("remote_pid", Int4),
    ("state", Text),
    ("pinned_at", Text),
    ("pinned_seconds", Int8),
    ("query", Text),
];
const POOLS: Columns = &[
    ("database", Text),
    ("user", Text),
    ("cl_active", Int4),
    ("cl_waiting", Int4),
    ("cl_active_cancel_req", Int4),
    ("cl_waiting_cancel_req", Int4),
    ("sv_active", Int4),
    ("sv_active_cancel", Int4),
    ("sv_being_canceled", Int4),
    ("sv_idle", Int4),
    ("sv_used", Int4),
    ("sv_tested", Int4),
    ("sv_login", Int4),
    ("maxwait", Int4),
    ("maxwait_us", Int4),
    ("pool_mode", Text),
    ("load_balance_hosts", Text),
];
const STATE: Columns = &[("key", Text), ("value", Text)];
const STATS: Columns = &[
    ("database", Text),
    ("total_server_assignment_count", Numeric),
    ("total_xact_count", Numeric),
    ("total_query_count", Numeric),
    ("total_received", Numeric),
    ("total_sent", Numeric),
    ("total_xact_time", Numeric),
    ("total_query_time", Numeric),
    ("total_wait_time", Numeric),
    ("total_client_parse_count", Numeric),
    ("total_server_parse_count", Numeric),
    ("total_bind_count", Numeric),
    ("avg_server_assignment_count", Numeric),
    ("avg_xact_count", Numeric),
    ("avg_query_count", Numeric),
    ("avg_recv", Numeric),
    ("avg_sent", Numeric),
    ("avg_xact_time", Numeric),
    ("avg_query_time", Numeric),
    ("avg_wait_time", Numeric),
    ("avg_client_parse_count", Numeric),
    ("avg_server_parse_count", Numeric),
    ("avg_bind_count", Numeric),
    // Behind those of PgBouncer's 1.25: its next release has these two, each behind its kind. The others are `Kinds::COUNTED`.
    ("total_client_login_count", Numeric),
    ("avg_client_login_count", Numeric),
    ("total_pins_parameters", Numeric),
    ("total_pins_temporary_objects", Numeric),
    ("total_pins_advisory_locks", Numeric),
    ("total_pins_listen", Numeric),
    ("total_pins_cursors", Numeric),
    ("total_pins_prepare", Numeric),
    ("total_pins_for_the_session", Numeric),
];
const STATS_TOTALS: Columns = &[
    ("database", Text),
    ("server_assignment_count", Numeric),
    ("xact_count", Numeric),
    ("query_count", Numeric),
    ("bytes_received", Numeric),
    ("bytes_sent", Numeric),
    ("xact_time", Numeric),
    ("query_time", Numeric),
    ("wait_time", Numeric),
    ("client_parse_count", Numeric),
    ("server_parse_count", Numeric),
    ("bind_count", Numeric),
    ("client_login_count", Numeric),
];
const STATS_AVERAGES: Columns = &[
    ("database", Text),
    ("server_assignment_count", Numeric),
    ("xact_count", Numeric),
    ("query_count", Numeric),
    ("bytes_received", Numeric),
    ("bytes_sent", Numeric),
    ("xact_time", Numeric),
    ("query_time", Numeric),
    ("wait_time", Numeric),
    ("avg_client_parse_count", Numeric),
    ("avg_server_parse_count", Numeric),
    ("avg_bind_count", Numeric),
    ("avg_client_login_count", Numeric),
];
const USERS: Columns = &[
    ("name", Text),
    ("pool_size", Text),
    ("reserve_pool_size", Text),
    ("pool_mode", Text),
    ("max_user_connections", Int4),
    ("current_connections", Int4),
    ("max_user_client_connections", Int4),
    ("current_client_connections", Int4),
];
const VERSION: Columns = &[("version", Text)];
const WORKERS: Columns = &[
    ("worker", Int4),
    ("clients", Int4),
    ("servers", Int4),
    ("servers_idle", Int4),
    ("busy_permille", Int4),
    ("servers_handed_over", Int8),
    ("messages_sent", Int8),
];

pub(super) fn columns(show: Show) -> Columns {
    match show {
        Show::ActiveSockets | Show::Sockets => SOCKETS,
        Show::Clients | Show::Servers => CONNECTIONS,
        Show::Config => CONFIG,
        Show::Errors => watched::ERRORS,
        Show::Histograms => watched::HISTOGRAMS,
        Show::Logins => watched::LOGINS,
        Show::Databases => DATABASES,
        Show::DnsHosts => DNS_HOSTS,
        Show::DnsZones => DNS_ZONES,
        Show::Help => &[],
        Show::Lists => LISTS,
        Show::Mem => MEM,
        Show::Nodes => clusters::NODES,
        Show::Peers => PEERS,
        Show::PeerPools => PEER_POOLS,
        Show::Pins => PINS,
        Show::Pools => POOLS,
        Show::Routes => clusters::ROUTES,
        Show::State => STATE,
        Show::Stats => STATS,
        Show::StatsAverages => STATS_AVERAGES,
        Show::StatsTotals => STATS_TOTALS,
        Show::Totals => TOTALS,
        Show::Users => USERS,
        Show::Version => VERSION,
        Show::Workers => WORKERS,
    }
}

pub(super) fn help() -> Report {
    Report::new(Severity::Notice, "00000", "Console usage").detail(
        "\n\tSHOW HELP|CONFIG|DATABASES|POOLS|CLIENTS|SERVERS|USERS|VERSION|LISTS|STATE\n\
         \tSHOW STATS|STATS_TOTALS|STATS_AVERAGES|TOTALS|WORKERS|PINS|HISTOGRAMS|LOGINS|ERRORS\n\
         \tSHOW SOCKETS|ACTIVE_SOCKETS|PEERS|PEER_POOLS|DNS_HOSTS|DNS_ZONES|MEM|NODES|ROUTES\n\
         \tEXPLAIN ROUTE [<db>] <query>\n\
         \tSET <setting> = <value>\n\tRELOAD\n\tPAUSE [<db>]\n\tSUSPEND\n\tRESUME [<db>]\n\tDISABLE <db>\n\tENABLE <db>\n\tRECONNECT [<db>]\n\
         \tKILL [<db>]\n\tKILL_CLIENT <client_id>\n\tWAIT_CLOSE [<db>]\n\
         \tSHUTDOWN\n\tSHUTDOWN WAIT_FOR_SERVERS\n\tSHUTDOWN WAIT_FOR_CLIENTS",
    )
}

pub(super) fn rows(show: Show, answer: &mut Answer, settings: &Settings, known: &Clusters) -> Vec<Vec<Cell>> {
    match show {
        // Told already, as they came.
        Show::Clients | Show::Servers | Show::Sockets | Show::ActiveSockets | Show::Pins => Vec::new(),
        Show::DnsHosts => names::hosts(&answer.names.hosts),
        Show::DnsZones => names::zones(&answer.names.zones),
        Show::Peers => peers(settings),
        Show::PeerPools => peer_pools(answer, settings),
        Show::Mem => mem(answer, settings),
        Show::Nodes => clusters::nodes(answer, settings, known),
        Show::Routes => clusters::routes(answer),
        Show::Errors => watched::errors(answer),
        Show::Histograms => watched::histograms(answer),
        Show::Logins => watched::logins(answer),
        Show::Totals => totals(answer),
        Show::Workers => {
            let mut rows = std::mem::take(&mut answer.rows);
            rows.sort_by_key(|row| match row.first() {
                Some(Cell::Int(worker)) => *worker,
                _ => 0,
            });
            rows
        }
        Show::Config => config(settings),
        Show::Databases => databases(answer, settings),
        Show::Help => Vec::new(),
        Show::Lists => lists(answer, settings),
        Show::Pools => pools(answer, settings),
        Show::State => state(answer),
        Show::Stats => stats(answer, true, true),
        Show::StatsTotals => stats(answer, true, false),
        Show::StatsAverages => stats(answer, false, true),
        Show::Users => users(answer, settings),
        Show::Version => vec![vec![settings.version.as_str().into()]],
    }
}

fn config(settings: &Settings) -> Vec<Vec<Cell>> {
    let row = |row: &crate::settings::ConfigRow| {
        let changeable = if row.changeable { "yes" } else { "no" };
        vec![row.key.clone().into(), row.value.clone().into(), row.default.clone().into(), changeable.into()]
    };
    settings.show_config.iter().map(row).collect()
}

fn pools(answer: &Answer, settings: &Settings) -> Vec<Vec<Cell>> {
    let row = |((database, user), report): (&(Arc<str>, Arc<str>), &PoolReport)| {
        vec![
            (&**database).into(),
            (&**user).into(),
            report.clients_active.into(),
            report.clients_waiting.into(),
            report.cancels_active.into(),
            0u32.into(),
            report.servers_active.into(),
            report.cancels_active.into(),
            report.servers_canceled.into(),
            report.servers_idle.into(),
            report.servers_to_check.into(),
            report.servers_tested.into(),
            report.servers_login.into(),
            (report.longest_wait.0 / 1_000_000).into(),
            (report.longest_wait.0 % 1_000_000).into(),
            report.mode.into(),
            settings.databases.get(database).map_or(Cell::Null, |database| load_balance_hosts(database)),
        ]
    };
    answer.pools.iter().map(row).collect()
}

fn peers(settings: &Settings) -> Vec<Vec<Cell>> {
    let row = |(id, peer): (&u16, &PeerSettings)| {
        let (host, port) = host_and_port(std::slice::from_ref(&peer.endpoint));
        let size = peer.pool_size.unwrap_or(settings.default_pool_size);
        vec![u32::from(*id).into(), host, port.into(), size.into()]
    };
    settings.peers.iter().map(row).collect()
}

fn peer_pools(answer: &Answer, settings: &Settings) -> Vec<Vec<Cell>> {
    let row = |id: &u16| {
        let PeerReport { active, login, waiting } = answer.peers.get(id).copied().unwrap_or_default();
        vec![u32::from(*id).into(), active.into(), (waiting + login).into(), active.into(), login.into()]
    };
    settings.peers.keys().map(row).collect()
}

fn databases(answer: &Answer, settings: &Settings) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for (name, database) in &settings.databases {
        let (host, port) = host_and_port(&database.endpoints);
        let lifetime = database.server_lifetime.unwrap_or(settings.server_lifetime);
        rows.push(vec![
            (&**name).into(),
            host,
            port.into(),
            database.server_database.as_deref().unwrap_or(name).into(),
            database.forced_user.as_deref().map_or(Cell::Null, Cell::from),
            database.pool_size.unwrap_or(settings.default_pool_size).into(),
            database.min_pool_size.unwrap_or(settings.min_pool_size).into(),
            database.reserve_pool_size.unwrap_or(settings.reserve_pool_size).into(),
            (lifetime.0 / 1_000_000).into(),
            database.pool_mode.map_or(Cell::Null, |mode| mode.as_str().into()),
            load_balance_hosts(database),
            database.max_db_connections.unwrap_or(settings.max_db_connections).into(),
            servers(answer, |pool| pool.0 == *name).into(),
            database.max_db_client_connections.unwrap_or(settings.max_db_client_connections).into(),
            clients_of(&answer.census.by_database, name).into(),
            u32::from(answer.gates.of(name) == Gate::Paused).into(),
            u32::from(answer.gates.is_disabled(name)).into(),
        ]);
    }
    rows.push(console_database(answer, settings));
    rows
}

/// The console's own row, as PgBouncer has one (`admin_setup`, src/admin.c of 1.25.2).
fn console_database(answer: &Answer, settings: &Settings) -> Vec<Cell> {
    let port = settings.show_config.iter().find(|row| row.key == "listen_port");
    vec![
        CONSOLE.into(),
        Cell::Null,
        port.and_then(|row| row.value.parse().ok()).unwrap_or(6432u32).into(),
        CONSOLE.into(),
        CONSOLE.into(),
        2u32.into(),
        0u32.into(),
        0u32.into(),
        (settings.server_lifetime.0 / 1_000_000).into(),
        PoolMode::Statement.as_str().into(),
        Cell::Null,
        settings.max_db_connections.into(),
        0u32.into(),
        settings.max_db_client_connections.into(),
        clients_of(&answer.census.by_database, CONSOLE).into(),
        0u32.into(),
        0u32.into(),
    ]
}

/// All hosts of a list, as the file has them; they share a port.
pub(super) fn host_and_port(endpoints: &[Endpoint]) -> (Cell, u32) {
    let split = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp { host, port } => (host.to_string(), u32::from(*port)),
        Endpoint::Unix { path } => match path.rsplit_once("/.s.PGSQL.") {
            Some((directory, port)) => (directory.to_owned(), port.parse().unwrap_or(0)),
            None => (path.to_string(), 0),
        },
    };
    let ends: Vec<_> = endpoints.iter().map(split).collect();
    let hosts: Vec<_> = ends.iter().map(|(host, _)| host.as_str()).collect();
    match ends.first() {
        Some((_, port)) => (hosts.join(",").into(), *port),
        None => (Cell::Null, 0),
    }
}

/// What is done with a list of hosts.
fn load_balance_hosts(database: &Database) -> Cell {
    match (database.endpoints.len() > 1, database.balances_hosts) {
        (false, _) => Cell::Null,
        (true, true) => "round-robin".into(),
        (true, false) => "disable".into(),
    }
}

fn servers(answer: &Answer, is_of: impl Fn(&(Arc<str>, Arc<str>)) -> bool) -> u32 {
    answer.pools.iter().filter(|(name, _)| is_of(name)).map(|(_, report)| report.servers).sum()
}

fn clients_of(counts: &BTreeMap<Arc<str>, u32>, name: &str) -> u32 {
    counts.get(name).copied().unwrap_or(0)
}

fn lists(answer: &Answer, settings: &Settings) -> Vec<Vec<Cell>> {
    let mut users: Vec<_> = settings.secrets.keys().chain(settings.users.keys()).collect();
    users.sort_unstable();
    users.dedup();
    let counts: [(&str, u64); 14] = [
        ("databases", settings.databases.len() as u64 + 1),
        ("users", users.len() as u64),
        ("peers", settings.peers.len() as u64),
        ("pools", answer.pools.len() as u64),
        ("peer_pools", settings.peers.len() as u64),
        ("free_clients", u64::from(answer.free_clients)),
        ("used_clients", u64::from(answer.clients + answer.consoles)),
        ("login_clients", u64::from(answer.logins)),
        ("free_servers", u64::from(answer.free_servers)),
        ("used_servers", u64::from(answer.servers)),
        ("dns_names", answer.names.hosts.len() as u64),
        ("dns_zones", answer.names.zones.len() as u64),
        ("dns_queries", answer.names.asked),
        ("dns_pending", answer.names.waiting),
    ];
    counts.map(|(list, items)| vec![list.into(), items.into()]).into()
}

fn state(answer: &Answer) -> Vec<Vec<Cell>> {
    let (paused, suspended) = (answer.gates.all_paused(), answer.gates.is_suspended());
    let word = |yes: bool| if yes { "yes" } else { "no" };
    vec![
        vec!["active".into(), word(!paused && !suspended).into()],
        vec!["paused".into(), word(paused).into()],
        vec!["suspended".into(), word(suspended).into()],
    ]
}

fn stats(answer: &Answer, totals: bool, averages: bool) -> Vec<Vec<Cell>> {
    let mut databases: BTreeMap<&str, PoolReport> = BTreeMap::new();
    for ((database, _), report) in &answer.pools {
        databases.entry(database).or_default().add(report);
    }
    let mut rows = Vec::new();
    for (database, sum) in databases {
        let mut row: Vec<Cell> = vec![database.into()];
        if totals {
            row.extend(sum.counters.columns().map(Cell::from));
        }
        if averages {
            row.extend(sum.counted.averages(answer.counted_for).map(Cell::from));
        }
        if totals {
            row.push(sum.counters.client_logins.into());
        }
        if averages {
            row.push(sum.counted.client_logins_a_second(answer.counted_for).into());
        }
        if totals && averages {
            row.extend(sum.counters.pins.map(Cell::from));
        }
        rows.push(row);
    }
    rows
}

/// Of all databases and the console together, in PgBouncer's names (`admin_show_totals`, src/stats.c of 1.25.2).
fn totals(answer: &Answer) -> Vec<Vec<Cell>> {
    const NAMES: [&str; 11] = [
        "server_assignment_count",
        "xact_count",
        "query_count",
        "client_bytes",
        "server_bytes",
        "xact_time",
        "query_time",
        "wait_time",
        "ps_client_parse_count",
        "ps_server_parse_count",
        "ps_bind_count",
    ];
    let mut sum = PoolReport::default();
    answer.pools.values().for_each(|report| sum.add(report));
    let named = |prefix: &'static str, values: [u64; 11]| {
        let row = move |(name, value): (&str, u64)| vec![Cell::from(format!("{prefix}_{name}")), value.into()];
        NAMES.into_iter().zip(values).map(row)
    };
    let logins = [
        ("total_client_login_count", sum.counters.client_logins),
        ("avg_client_login_count", sum.counted.client_logins_a_second(answer.counted_for)),
    ];
    let logins = logins.map(|(name, value)| vec![Cell::from(name), value.into()]);
    let all = named("total", sum.counters.columns()).chain(named("avg", sum.counted.averages(answer.counted_for)));
    all.chain(logins).collect()
}

/// The tables of connections and what they are for: what one entry takes by itself, without what it holds.
fn mem(answer: &Answer, settings: &Settings) -> Vec<Vec<Cell>> {
    let row = |name: &str, size: usize, used: u64, free: u64| {
        let (size, total) = (size as u64, (used + free) * size as u64);
        vec![name.into(), size.into(), used.into(), free.into(), total.into()]
    };
    let clients = answer.clients + answer.consoles + answer.logins;
    vec![
        row("user_cache", size_of::<UserSettings>(), settings.users.len() as u64, 0),
        row("db_cache", size_of::<Database>(), settings.databases.len() as u64, 0),
        row("pool_cache", size_of::<Pool>(), answer.pools.len() as u64, 0),
        row("server_cache", size_of::<Server>(), answer.servers.into(), answer.free_servers.into()),
        row("client_cache", size_of::<Client>(), clients.into(), answer.free_clients.into()),
    ]
}

fn users(answer: &Answer, settings: &Settings) -> Vec<Vec<Cell>> {
    let mut names: Vec<_> = settings.secrets.keys().chain(settings.users.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let row = |name: &Arc<str>| {
        let own = settings.users.get(name).cloned().unwrap_or_default();
        vec![
            (&**name).into(),
            own.pool_size.map_or_else(String::new, |size| size.to_string()).into(),
            own.reserve_pool_size.map_or_else(String::new, |size| size.to_string()).into(),
            own.pool_mode.map_or(Cell::Null, |mode| mode.as_str().into()),
            own.max_user_connections.unwrap_or(settings.max_user_connections).into(),
            servers(answer, |pool| pool.1 == *name).into(),
            own.max_user_client_connections.unwrap_or(settings.max_user_client_connections).into(),
            clients_of(&answer.census.by_user, name).into(),
        ]
    };
    names.into_iter().map(row).collect()
}

/// One DataRow, in text or in the binary form of the columns' types.
pub(super) fn write_row(out: &mut Vec<u8>, columns: Columns, row: &[Cell], binary: bool) {
    let cells: Vec<_> = row.iter().zip(columns).map(|(cell, (_, column))| encode(cell, *column, binary)).collect();
    write::data_row(out, cells.iter().map(|cell| cell.as_deref()));
}

fn encode(cell: &Cell, column: ColumnType, binary: bool) -> Option<Cow<'_, [u8]>> {
    Some(match (cell, column, binary) {
        (Cell::Null, _, _) => return None,
        (Cell::Text(text), _, _) => text.as_bytes().into(),
        (Cell::Int(number), Int4, true) => (*number as i32).to_be_bytes().to_vec().into(),
        (Cell::Int(number), Int8, true) => number.to_be_bytes().to_vec().into(),
        (Cell::Int(number), Numeric, true) => write::numeric(number.unsigned_abs()).into(),
        (Cell::Int(number), _, _) => number.to_string().into_bytes().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_columns() {
        let settings = Settings::default();
        let mut answer = Answer::default();
        answer.pools.insert(("app".into(), "alice".into()), PoolReport::default());
        for show in
            [Show::Pools, Show::Lists, Show::State, Show::Stats, Show::StatsTotals, Show::StatsAverages, Show::Version]
        {
            let rows = rows(show, &mut answer, &settings, &Clusters::default());
            assert!(!rows.is_empty(), "{show:?}");
            for row in rows {
                assert_eq!(row.len(), columns(show).len(), "{show:?}");
            }
        }
    }
}
