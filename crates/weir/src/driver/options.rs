//! What the drivers are told when they start. Knows nothing of files or of how a setting is spelled.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::tls::Tls;

/// Which system interface moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriverKind {
    /// io_uring where the kernel allows it, epoll where it does not.
    #[default]
    Auto,
    Epoll,
    IoUring,
}

/// A place to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix {
        path: PathBuf,
        mode: u32,
        group: Option<String>,
    },
    /// A socket that listens already, which whoever has started the process has made (`sd_listen_fds(3)`); it is taken once.
    Passed(RawFd),
    /// The same of the process that is taken over from; with the file of a Unix socket, which is removed at the end.
    TakenOver(RawFd),
}

/// Options of TCP sockets, for clients and servers alike. `None` and `false` leave the system's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// `tcp_keepalive`, `tcp_keepidle`, `tcp_keepintvl`, `tcp_keepcnt`.
    pub keepalive: bool,
    pub keepalive_idle: Option<Duration>,
    pub keepalive_interval: Option<Duration>,
    pub keepalive_count: Option<u32>,
    /// `tcp_user_timeout`.
    pub user_timeout: Option<Duration>,
    /// `tcp_defer_accept`: accept a client only once it has said something. For listeners only.
    pub defer_accept: Option<Duration>,
    /// `tcp_socket_buffer`.
    pub socket_buffer_bytes: Option<usize>,
    /// `so_reuseport`. For listeners only.
    pub reuse_port: bool,
}

/// How long names of hosts are remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsOptions {
    /// `dns_max_ttl`: at most, where name servers say less.
    pub found_ttl: Duration,
    /// `dns_nxdomain_ttl`.
    pub failed_ttl: Duration,
    /// `dns_zone_check_period`; `None`: zones are not looked at.
    pub zone_check: Option<Duration>,
    /// In place of the system's.
    pub resolv_conf: Option<Arc<Path>>,
}

impl Default for DnsOptions {
    fn default() -> Self {
        let ttl = Duration::from_secs(15);
        Self { found_ttl: ttl, failed_ttl: ttl, zone_check: None, resolv_conf: None }
    }
}

/// All that the drivers are told.
#[derive(Debug, Clone)]
pub struct Options {
    pub listeners: Vec<Listen>,
    /// `listen_backlog`.
    pub backlog: i32,
    pub tls: Arc<Tls>,
    pub tcp: TcpOptions,
    pub dns: DnsOptions,
    /// 0: one per core.
    pub workers: u16,
    pub kind: DriverKind,
    /// `busy_poll`: how long a worker looks for work before it sleeps.
    pub busy_poll: Duration,
    /// Where the workers' random bytes come from; `None`: the operating system.
    pub seed: Option<[u8; 32]>,
    /// `None`: it is drawn.
    pub process_secret: Option<[u8; 32]>,
    /// The abstract socket where the process that was taken over from hears cancel requests.
    pub predecessor: Option<String>,
    /// The Unix socket that is listened on, also by the process that takes over.
    pub place: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            backlog: 128,
            tls: Arc::new(Tls::default()),
            tcp: TcpOptions::default(),
            dns: DnsOptions::default(),
            workers: 0,
            kind: DriverKind::Auto,
            busy_poll: Duration::ZERO,
            seed: None,
            process_secret: None,
            predecessor: None,
            place: None,
        }
    }
}
