//! From the program's settings to what the driver is told: addresses, TLS, options of sockets, limits of the system.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_core::outside::Authority;
use weir_core::settings::{Database, Settings, TlsMode};

use crate::config::{DriverChoice, Loaded, ProgramSettings};
use crate::daemon;
use crate::driver::{self, AcceptOptions, ConnectOptions, DnsOptions, DriverKind, Listen, Options, TcpOptions, Tls};
use crate::log::Log;
use crate::metrics::REQUESTS_MAX;

/// Files beside clients and servers: the log, listeners, each worker's own, requests for metrics.
const FILES_BESIDE_CONNECTIONS: u64 = 64 + REQUESTS_MAX as u64;

/// Workers that are started for the places of their rings alone.
const WORKERS_FOR_FILES_MAX: u16 = 32;

/// `files`: what `raise_limits` found.
pub fn options(loaded: &Loaded, files: Files) -> Result<Options, String> {
    let program = &loaded.program;
    authorities(&loaded.settings)?;
    Ok(Options {
        listeners: listeners(program)?,
        backlog: i32::try_from(program.listen_backlog).unwrap_or(i32::MAX),
        tls: Arc::new(tls(program)?),
        tcp: tcp(program),
        dns: dns(program),
        workers: files.workers,
        busy_poll: program.busy_poll,
        kind: match program.driver {
            DriverChoice::Auto => DriverKind::Auto,
            DriverChoice::Epoll => DriverKind::Epoll,
            DriverChoice::IoUring => DriverKind::IoUring,
        },
        place: program.unix_socket_path(),
        ..Options::default()
    })
}

/// What is listened on beside TCP addresses, for the log.
pub fn place_beside(program: &ProgramSettings) -> Option<String> {
    match passed_sockets().map_or(0, |passed| passed.len()) {
        0 => program.unix_socket_path().map(|path| format!("unix:{path}")),
        count => Some(format!("{count} sockets that were passed, and on no others")),
    }
}

/// Sockets that the service manager has made for this process (a unit with a `.socket` beside it).
fn passed_sockets() -> Result<Vec<Listen>, String> {
    let passed =
        sd_notify::listen_fds().map_err(|error| format!("cannot take the sockets that were passed: {error}"))?;
    Ok(passed.map(Listen::Passed).collect())
}

/// Those that were passed, or where the settings say.
fn listeners(program: &ProgramSettings) -> Result<Vec<Listen>, String> {
    let passed = passed_sockets()?;
    if !passed.is_empty() {
        return Ok(passed);
    }
    let addresses = addresses("listen_addr", &program.listen_addresses, program.listen_port)?;
    let unix = program.unix_socket_path().map(|path| Listen::Unix {
        path: PathBuf::from(path),
        mode: program.unix_socket_mode,
        group: program.unix_socket_group.clone(),
    });
    Ok(addresses.into_iter().map(Listen::Tcp).chain(unix).collect())
}

/// Where Prometheus is answered.
pub fn metrics_addresses(program: &ProgramSettings) -> Result<Vec<SocketAddr>, String> {
    addresses("metrics_listen_addr", &program.metrics_addresses, program.metrics_port)
}

fn addresses(setting: &str, names: &[String], port: u16) -> Result<Vec<SocketAddr>, String> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for name in names {
        addresses.extend(resolve(setting, name, port)?);
    }
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// `setting`: whose value the name is.
fn resolve(setting: &str, name: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    if name == "*" {
        let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        let v6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        return Ok(if has_ipv6() { vec![v4, v6] } else { vec![v4] });
    }
    let found =
        (name, port).to_socket_addrs().map_err(|error| format!("{setting}: could not resolve \"{name}\": {error}"))?;
    Ok(found.collect())
}

/// Kernels started without IPv6 must not keep `*` from working.
fn has_ipv6() -> bool {
    std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok()
}

/// Reads keys and certificates.
/// Whether those are there whose word about passwords counts.
pub fn authorities(settings: &Settings) -> Result<(), String> {
    let of_records = settings.hba.records.iter().filter_map(|record| record.authority.as_ref());
    for authority in of_records {
        let (name, there) = match authority {
            Authority::Pam { .. } => ("PAM", driver::check_pam()),
            Authority::Directory(_) => ("LDAP", driver::check_ldap()),
        };
        there.map_err(|wrong| format!("the system's library for {name} cannot be used: {wrong}"))?;
    }
    Ok(())
}

pub fn tls(program: &ProgramSettings) -> Result<Tls, String> {
    let client = &program.client_tls;
    let accept = match (&client.cert_file, &client.key_file) {
        (Some(cert_file), Some(key_file)) if client.sslmode != TlsMode::Disable => Some(AcceptOptions {
            mode: client.sslmode,
            cert_file: cert_file.clone(),
            key_file: key_file.clone(),
            ca_file: client.ca_file.clone(),
            suites: client.suites.clone(),
            curve: client.curve,
        }),
        _ => None,
    };
    let server = &program.server_tls;
    let connect = ConnectOptions {
        mode: server.sslmode,
        ca_file: server.ca_file.clone(),
        cert_file: server.cert_file.clone(),
        key_file: server.key_file.clone(),
        suites: server.suites.clone(),
    };
    Tls::load(accept.as_ref(), &connect)
}

/// How long names are remembered.
pub fn dns(program: &ProgramSettings) -> DnsOptions {
    DnsOptions {
        found_ttl: program.dns_max_ttl,
        failed_ttl: program.dns_nxdomain_ttl,
        zone_check: Some(program.dns_zone_check_period).filter(|period| !period.is_zero()),
        resolv_conf: program.resolv_conf.as_deref().map(Arc::from),
    }
}

/// Options of TCP sockets that are made from now on.
pub fn tcp(program: &ProgramSettings) -> TcpOptions {
    let tcp = &program.tcp;
    let seconds = |secs: u32| (secs != 0).then(|| Duration::from_secs(secs.into()));
    TcpOptions {
        keepalive: tcp.keepalive,
        keepalive_idle: seconds(tcp.keepidle_secs),
        keepalive_interval: seconds(tcp.keepintvl_secs),
        keepalive_count: (tcp.keepcnt != 0).then_some(tcp.keepcnt),
        user_timeout: (tcp.user_timeout_ms != 0).then(|| Duration::from_millis(tcp.user_timeout_ms.into())),
        defer_accept: seconds(tcp.defer_accept_secs),
        socket_buffer_bytes: usize::try_from(tcp.socket_buffer_bytes).ok().filter(|bytes| *bytes != 0),
        reuse_port: tcp.reuse_port,
    }
}

/// What follows from the limit on open files.
#[derive(Debug, Clone, Copy)]
pub struct Files {
    /// How many workers to start; 0: one per core.
    pub workers: u16,
}

/// Raises the limit of open files, and says so if it is too low for the settings. A worker with io_uring holds sockets beyond
/// it: where the number of workers is left to us, there are as many as it takes.
pub fn raise_limits(loaded: &Loaded, log: &Log) -> Files {
    let asked = loaded.program.workers;
    let limit = match daemon::raise_open_files() {
        Ok(limit) => limit,
        Err(reason) => {
            log.warning(&reason);
            return Files { workers: asked };
        }
    };
    let settings = &loaded.settings;
    let expected = expected_files(settings);
    if expected <= limit {
        return Files { workers: asked };
    }
    let holds_more = loaded.program.driver != DriverChoice::Epoll && driver::has_tables();
    if let Some(workers) = workers_for(expected, limit, asked, loaded.program.worker_count()).filter(|_| holds_more) {
        log.info(&format!(
            "max_client_conn = {} and the pools may need {expected} sockets, a process may open {limit} files: {workers} workers \
             hold the others in io_uring",
            settings.max_client_conn
        ));
        return Files { workers };
    }
    log.warning(&format!(
        "max_client_conn = {} and the pools may need {expected} open files, the system allows {limit}: \
         clients beyond it will fail to connect",
        settings.max_client_conn
    ));
    Files { workers: asked }
}

/// How many workers hold so many sockets, at least `fewest`; `None` where that is more than are asked for or sensible.
fn workers_for(sockets: u64, limit: u64, asked: u16, fewest: u16) -> Option<u16> {
    let most = if asked == 0 { fewest.max(WORKERS_FOR_FILES_MAX) } else { fewest };
    (fewest..=most).find(|workers| driver::capacity(limit, (*workers).into()) >= sockets)
}

/// As PgBouncer counts (`check_limits` in `main.c`): a pool per user, or one where the user is forced.
fn expected_files(settings: &Settings) -> u64 {
    let users = u64::try_from(settings.secrets.len().max(1)).unwrap_or(u64::MAX);
    let servers = |database: &Arc<Database>| {
        let size = u64::from(database.pool_size.unwrap_or(settings.default_pool_size));
        let pools = if database.forced_user.is_some() { 1 } else { users };
        let all = size.saturating_mul(pools);
        match database.max_db_connections.unwrap_or(settings.max_db_connections) {
            0 => all,
            limit => all.min(limit.into()),
        }
    };
    let servers = settings.databases.values().map(servers).fold(0, u64::saturating_add);
    servers.saturating_add(settings.max_client_conn.into()).saturating_add(FILES_BESIDE_CONNECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_resolved() {
        let resolve = |name| resolve("listen_addr", name, 7);
        assert_eq!(resolve("127.0.0.1").unwrap(), ["127.0.0.1:7".parse().unwrap()]);
        assert_eq!(resolve("::1").unwrap(), ["[::1]:7".parse().unwrap()]);
        assert!(resolve("*").unwrap().contains(&"0.0.0.0:7".parse().unwrap()));
        assert!(resolve("no such host").unwrap_err().starts_with("listen_addr: could not resolve \"no such host\": "));
    }

    #[test]
    fn there_are_as_many_workers_as_hold_the_clients() {
        assert_eq!(workers_for(20_000, 20_000, 0, 2), Some(2));
        // 15 000 descriptors, and 14 936 places of each ring.
        assert_eq!(workers_for(101_000, 20_000, 0, 2), Some(6));
        assert_eq!(workers_for(101_000, 20_000, 0, 16), Some(16));
        assert_eq!(workers_for(10_000_000, 20_000, 0, 2), None);
        assert_eq!(workers_for(59_808, 20_000, 3, 3), Some(3));
        assert_eq!(workers_for(59_809, 20_000, 3, 3), None, "three were asked for");
    }

    #[test]
    fn files_are_counted_per_pool() {
        let mut settings = Settings { max_client_conn: 1000, default_pool_size: 10, ..Settings::default() };
        for user in ["a", "b", "c"] {
            settings.secrets.insert(user.into(), weir_core::auth::Secret::parse("x"));
        }
        let database = |change: fn(&mut Database)| {
            let mut database = Database::at(Vec::new());
            change(&mut database);
            Arc::new(database)
        };
        settings.databases.insert("per user".into(), database(|_| {}));
        settings.databases.insert("forced".into(), database(|database| database.forced_user = Some("a".into())));
        settings.databases.insert("limited".into(), database(|database| database.max_db_connections = Some(5)));
        assert_eq!(expected_files(&settings), 1000 + FILES_BESIDE_CONNECTIONS + 30 + 10 + 5);
    }
}
