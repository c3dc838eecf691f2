//! `[databases]`, `[users]` and `[peers]`: one list of pairs per line.
//!
//! Owns the checking of these lists and where a database's servers listen. Does not resolve names.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::Endpoint;
use weir_core::auth::Secret;
use weir_core::settings::{ClusterKind, Database, PeerSettings, Settings, UserSettings};
use weir_core::time::Duration;

use super::connstr;
use super::ini::Entry;
use super::problem::{Place, Problems};
use super::registry::{self, Section};
use super::value;
use super::values::{self, Values};

/// The console's databases.
pub(super) const RESERVED: [&str; 2] = ["pgbouncer", "weir"];
const FALLBACK: &str = "*";
/// PostgreSQL's port.
const PORT: u16 = 5432;
/// Poolers', as PgBouncer has it for peers (`parse_peer`, src/loader.c of 1.25.2).
const PEER_PORT: u16 = 6432;
/// How many hosts one database may name.
const HOSTS_MAX: usize = 64;

/// Puts the sections' entries into the settings.
pub fn read(settings: &mut Settings, entries: &[Entry], values: &Values, problems: &mut Problems) {
    for entry in entries {
        match Section::parse(&entry.section) {
            Some(Section::Databases) => database(settings, entry, values, problems),
            Some(Section::Users) => user(settings, entry, problems),
            Some(Section::Peers) => peer(settings, entry, problems),
            Some(Section::Pgbouncer) | None => {}
        }
    }
}

fn database(settings: &mut Settings, entry: &Entry, values: &Values, problems: &mut Problems) {
    if RESERVED.contains(&entry.key.as_str()) {
        return problems.error(&entry.place, format!("database name \"{}\" is reserved for the console", entry.key));
    }
    let Some(pairs) = Pairs::read(Section::Databases, entry, problems) else { return };
    let endpoints = match endpoints(&pairs, values.text("unix_socket_dir")) {
        Ok(endpoints) => endpoints,
        Err(text) => return problems.error(&entry.place, format!("database \"{}\": {text}", entry.key)),
    };
    if pairs.text("password").is_some() && pairs.text("user").is_none() {
        problems.warn(&entry.place, format!("database \"{}\": password has no effect without user", entry.key));
    }
    let mut database = build(&pairs, endpoints);
    if let Some(text) = pairs.text("balanced") {
        match balanced(text) {
            Ok(endpoint) => database.balanced = Some(endpoint),
            Err(text) => return problems.error(&entry.place, format!("database \"{}\": {text}", entry.key)),
        }
    }
    let database = Arc::new(database);
    if entry.key == FALLBACK {
        settings.fallback_database = Some(database);
    } else {
        settings.databases.insert(entry.key.as_str().into(), database);
    }
}

fn build(pairs: &Pairs, endpoints: Vec<Endpoint>) -> Database {
    let startup = ["client_encoding", "datestyle", "timezone", "application_name"];
    Database {
        server_database: pairs.text("dbname").map(Into::into),
        forced_user: pairs.text("user").map(Into::into),
        forced_password: pairs.text("password").map(Secret::parse),
        pool_size: pairs.number("pool_size"),
        min_pool_size: pairs.number("min_pool_size"),
        reserve_pool_size: pairs.number("reserve_pool_size").or(pairs.number("reserve_pool")),
        max_db_connections: pairs.number("max_db_connections"),
        max_db_client_connections: pairs.number("max_db_client_connections"),
        server_lifetime: pairs.seconds("server_lifetime"),
        query_wait_timeout: pairs.seconds("query_wait_timeout"),
        pool_mode: pairs.text("pool_mode").map(values::pool_mode),
        session_state: pairs.text("session_state").map(values::session_state),
        cluster: pairs.text("cluster").map(|_| ClusterKind::Citus),
        route: pairs.text("route").map(values::route),
        fan_out_pool_size: pairs.number("fan_out_pool_size"),
        startup_parameters: startup
            .iter()
            .filter_map(|name| Some(((*name).into(), pairs.text(name)?.into())))
            .collect(),
        connect_query: pairs.text("connect_query").map(Into::into),
        auth_user: pairs.text("auth_user").map(Into::into),
        auth_query: pairs.text("auth_query").map(Into::into),
        auth_dbname: pairs.text("auth_dbname").map(Into::into),
        balances_hosts: pairs.text("load_balance_hosts") != Some("disable"),
        ..Database::at(endpoints)
    }
}

/// Where the servers listen, as PgBouncer reads `host` and `port`.
fn endpoints(pairs: &Pairs, unix_socket_dir: &str) -> Result<Vec<Endpoint>, String> {
    let port = pairs.number("port").and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT);
    let hosts = match pairs.text("host") {
        Some(text) => text.split(',').map(str::trim).collect(),
        None if unix_socket_dir.is_empty() => return Err("host is missing, and unix_socket_dir is empty".to_owned()),
        None => vec![unix_socket_dir],
    };
    if hosts.len() > HOSTS_MAX {
        return Err(format!("host names {} hosts, at most {HOSTS_MAX} are allowed", hosts.len()));
    }
    hosts.into_iter().map(|host| endpoint(host, port)).collect()
}

/// `host:port`, as the load balancer's address.
fn balanced(text: &str) -> Result<Endpoint, String> {
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.starts_with(['/', '@']));
    let parts = parts.and_then(|(host, port)| Some((host, port.parse().ok().filter(|port| *port != 0)?)));
    let (host, port) = parts.ok_or_else(|| format!("balanced is \"{text}\", it should be host:port"))?;
    endpoint(host.trim_start_matches('[').trim_end_matches(']'), port)
}

fn endpoint(host: &str, port: u16) -> Result<Endpoint, String> {
    match host.as_bytes().first() {
        None => Err("host has an empty name between commas".to_owned()),
        Some(b'/' | b'@') => Ok(Endpoint::Unix { path: socket_path(host, port).into() }),
        Some(_) => Ok(Endpoint::Tcp { host: host.into(), port }),
    }
}

/// The name of PostgreSQL's socket in a directory.
pub fn socket_path(directory: &str, port: u16) -> String {
    format!("{}/.s.PGSQL.{port}", directory.trim_end_matches('/'))
}

fn user(settings: &mut Settings, entry: &Entry, problems: &mut Problems) {
    let Some(pairs) = Pairs::read(Section::Users, entry, problems) else { return };
    let user = UserSettings {
        pool_mode: pairs.text("pool_mode").map(values::pool_mode),
        session_state: pairs.text("session_state").map(values::session_state),
        route: pairs.text("route").map(values::route),
        fan_out_pool_size: pairs.number("fan_out_pool_size"),
        pool_size: pairs.number("pool_size"),
        reserve_pool_size: pairs.number("reserve_pool_size"),
        max_user_connections: pairs.number("max_user_connections"),
        max_user_client_connections: pairs.number("max_user_client_connections"),
        query_wait_timeout: pairs.seconds("query_wait_timeout"),
        query_timeout: pairs.seconds("query_timeout"),
        idle_transaction_timeout: pairs.seconds("idle_transaction_timeout"),
        transaction_timeout: pairs.seconds("transaction_timeout"),
        client_idle_timeout: pairs.seconds("client_idle_timeout"),
    };
    settings.users.insert(entry.key.as_str().into(), user);
}

/// Our own number may be among them, so that all processes can have the same list; cancel requests of our own are looked at first.
fn peer(settings: &mut Settings, entry: &Entry, problems: &mut Problems) {
    let id = value::integer(&entry.key, 1, 16_383).ok().and_then(|id| u16::try_from(id).ok());
    if id.is_none() {
        problems.error(&entry.place, format!("peer \"{}\" must be a number from 1 to 16383", entry.key));
    }
    let Some(pairs) = Pairs::read(Section::Peers, entry, problems) else { return };
    let Some(host) = pairs.text("host") else {
        return problems.error(&entry.place, format!("peer \"{}\" needs a host", entry.key));
    };
    let port = pairs.number("port").and_then(|port| u16::try_from(port).ok()).unwrap_or(PEER_PORT);
    let endpoint = if host.contains(',') { Err("it has one host".to_owned()) } else { endpoint(host, port) };
    match (id, endpoint) {
        (Some(id), Ok(endpoint)) => {
            settings.peers.insert(id, PeerSettings { endpoint, pool_size: pairs.number("pool_size") });
        }
        (None, _) => {}
        (_, Err(text)) => problems.error(&entry.place, format!("peer \"{}\": {text}", entry.key)),
    }
}

/// A checked list of pairs; the last of two with one key counts.
struct Pairs(BTreeMap<&'static str, String>);

impl Pairs {
    /// `None` after an error, all of which were put down.
    fn read(section: Section, entry: &Entry, problems: &mut Problems) -> Option<Self> {
        let what = format!("{} \"{}\"", singular(section), entry.key);
        let list = match connstr::parse(&entry.value) {
            Ok(list) => list,
            Err(text) => {
                problems.error(&entry.place, format!("{what}: {text}"));
                return None;
            }
        };
        let mut pairs = BTreeMap::new();
        let mut complete = true;
        for (key, text) in list {
            match check(section, &key, &text, &entry.place, &what, problems) {
                Some(name) => drop(pairs.insert(name, text)),
                None => complete = false,
            }
        }
        complete.then_some(Self(pairs))
    }

    fn text(&self, name: &str) -> Option<&str> {
        debug_assert!(
            Section::ALL
                .into_iter()
                .any(|section| section != Section::Pgbouncer && registry::find(section, name).is_some()),
            "{name} is not in the registry"
        );
        self.0.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u32> {
        value::integer(self.text(name)?, 0, u32::MAX.into()).ok().and_then(|number| u32::try_from(number).ok())
    }

    fn seconds(&self, name: &str) -> Option<Duration> {
        value::seconds(self.text(name)?).ok()
    }
}

fn check(
    section: Section,
    key: &str,
    text: &str,
    place: &Place,
    what: &str,
    problems: &mut Problems,
) -> Option<&'static str> {
    let Some(setting) = registry::find(section, key) else {
        let nearest = registry::nearest(section, key);
        problems.error(place, format!("{what}: unknown key \"{key}\": the nearest known one is \"{nearest}\""));
        return None;
    };
    if let Err(text) = values::check(setting, text) {
        problems.error(place, format!("{what}: {text}"));
        return None;
    }
    if !setting.is_default(text) {
        values::warn_of_status(setting, place, problems);
    }
    Some(setting.name)
}

fn singular(section: Section) -> &'static str {
    match section {
        Section::Pgbouncer => "setting",
        Section::Databases => "database",
        Section::Users => "user",
        Section::Peers => "peer",
    }
}
