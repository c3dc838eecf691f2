//! Settings of the program around the workers: sockets, files, process. Plain values; nothing is opened here.

use std::path::PathBuf;

use rustls::{CipherSuite, NamedGroup};
use weir_core::settings::TlsMode;

use super::ciphers;
use super::database::socket_path;
use super::problem::Problems;
use super::registry;
use super::value;
use super::values::Values;
use crate::log::LogFormat;
use crate::syslog::{Facility, SyslogOptions};

/// The seconds that `tcp_defer_accept = 1` stands for, as in PgBouncer (`pooler_tune_accept`).
const DEFER_ACCEPT_SECS: u32 = 45;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramSettings {
    /// The file that a reload reads.
    pub config_file: String,
    /// Host names, addresses or `*`. Empty: no TCP.
    pub listen_addresses: Vec<String>,
    pub listen_port: u16,
    pub listen_backlog: u32,
    /// Empty: no metrics.
    pub metrics_addresses: Vec<String>,
    pub metrics_port: u16,
    /// A directory, or `@name`. `None`: no Unix socket.
    pub unix_socket_dir: Option<String>,
    pub unix_socket_mode: u32,
    pub unix_socket_group: Option<String>,
    pub client_tls: TlsFiles,
    pub server_tls: TlsFiles,
    pub tcp: TcpOptions,
    pub dns_max_ttl: std::time::Duration,
    pub dns_nxdomain_ttl: std::time::Duration,
    pub dns_zone_check_period: std::time::Duration,
    pub resolv_conf: Option<PathBuf>,
    /// 0: one per core.
    pub workers: u16,
    pub driver: DriverChoice,
    pub busy_poll: std::time::Duration,
    pub auth_file: Option<String>,
    pub logfile: Option<PathBuf>,
    pub syslog: Option<SyslogOptions>,
    pub log_format: LogFormat,
    pub pidfile: Option<PathBuf>,
    pub user: Option<String>,
    pub verbose: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverChoice {
    /// io_uring where the kernel allows it, else epoll.
    Auto,
    Epoll,
    IoUring,
}

impl DriverChoice {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Epoll => "epoll",
            Self::IoUring => "io_uring",
        }
    }
}

/// What TLS on one side is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub sslmode: TlsMode,
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// What is spoken: the suites of TLS 1.2, and of 1.3.
    pub suites: Vec<CipherSuite>,
    /// The one curve that keys are exchanged on; `None`: what the library has.
    pub curve: Option<NamedGroup>,
}

/// Options of TCP sockets. Zero leaves the system's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpOptions {
    /// TCP_DEFER_ACCEPT on listening sockets.
    pub defer_accept_secs: u32,
    pub keepalive: bool,
    pub keepcnt: u32,
    pub keepidle_secs: u32,
    pub keepintvl_secs: u32,
    pub socket_buffer_bytes: u32,
    /// Others may listen on the same port.
    pub reuse_port: bool,
    pub user_timeout_ms: u32,
}

impl ProgramSettings {
    pub fn from_values(config_file: &str, values: &Values, problems: &mut Problems) -> Self {
        let path = |name: &str| values.optional(name).map(PathBuf::from);
        let time = |name: &str| std::time::Duration::from_micros(values.seconds(name).0);
        Self {
            config_file: values.optional("conffile").unwrap_or(config_file).to_owned(),
            listen_addresses: values.list("listen_addr"),
            listen_port: u16::try_from(values.number("listen_port")).unwrap_or_default(),
            listen_backlog: values.number("listen_backlog"),
            metrics_addresses: values.list("metrics_listen_addr"),
            metrics_port: u16::try_from(values.number("metrics_port")).unwrap_or_default(),
            unix_socket_dir: values.optional("unix_socket_dir").map(str::to_owned),
            unix_socket_mode: value::file_mode(values.text("unix_socket_mode")).unwrap_or_default(),
            unix_socket_group: values.optional("unix_socket_group").map(str::to_owned),
            client_tls: tls_files("client", values, problems),
            server_tls: tls_files("server", values, problems),
            tcp: tcp_options(values),
            dns_max_ttl: time("dns_max_ttl"),
            dns_nxdomain_ttl: time("dns_nxdomain_ttl"),
            dns_zone_check_period: time("dns_zone_check_period"),
            resolv_conf: values.optional("resolv_conf").map(Into::into),
            workers: u16::try_from(values.number("workers")).unwrap_or_default(),
            driver: driver(values),
            busy_poll: std::time::Duration::from_micros(values.number("busy_poll").into()),
            auth_file: values.optional("auth_file").map(str::to_owned),
            logfile: path("logfile"),
            log_format: if values.text("log_format") == "json" { LogFormat::Json } else { LogFormat::Text },
            syslog: values.switch("syslog").then(|| SyslogOptions {
                ident: values.text("syslog_ident").to_owned(),
                facility: Facility::parse(values.text("syslog_facility")).unwrap_or_default(),
            }),
            pidfile: path("pidfile"),
            user: values.optional("user").map(str::to_owned),
            verbose: u8::try_from(values.number("verbose")).unwrap_or(u8::MAX),
        }
    }

    /// The path of our Unix socket.
    pub fn unix_socket_path(&self) -> Option<String> {
        self.unix_socket_dir.as_ref().map(|directory| socket_path(directory, self.listen_port))
    }

    /// How many workers to start on this machine.
    pub fn worker_count(&self) -> u16 {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        if self.workers == 0 { u16::try_from(cores()).unwrap_or(u16::MAX) } else { self.workers }
    }
}

fn driver(values: &Values) -> DriverChoice {
    match values.text("driver").to_ascii_lowercase().as_str() {
        "epoll" => DriverChoice::Epoll,
        "io_uring" => DriverChoice::IoUring,
        _ => DriverChoice::Auto,
    }
}

fn tcp_options(values: &Values) -> TcpOptions {
    let defer = values.number("tcp_defer_accept");
    TcpOptions {
        defer_accept_secs: if defer == 1 { DEFER_ACCEPT_SECS } else { defer },
        keepalive: values.switch("tcp_keepalive"),
        keepcnt: values.number("tcp_keepcnt"),
        keepidle_secs: values.number("tcp_keepidle"),
        keepintvl_secs: values.number("tcp_keepintvl"),
        socket_buffer_bytes: values.number("tcp_socket_buffer"),
        reuse_port: values.switch("so_reuseport"),
        user_timeout_ms: values.number("tcp_user_timeout"),
    }
}

fn tls_files(side: &str, values: &Values, problems: &mut Problems) -> TlsFiles {
    let path = |name: &str| values.optional(&format!("{side}_tls_{name}_file")).map(PathBuf::from);
    TlsFiles {
        sslmode: values.tls_mode(&format!("{side}_tls_sslmode")),
        ca_file: path("ca"),
        cert_file: path("cert"),
        key_file: path("key"),
        suites: suites(side, values, problems),
        curve: if side == "client" { curve("client_tls_ecdhcurve", values, problems) } else { None },
    }
}

/// By the names that OpenSSL has for it (`obj_mac.h` of 3.0). PgBouncer starts with any of OpenSSL's curves.
fn curve(name: &str, values: &Values, problems: &mut Problems) -> Option<NamedGroup> {
    const CURVES: [(&str, NamedGroup); 6] = [
        ("prime256v1", NamedGroup::secp256r1),
        ("P-256", NamedGroup::secp256r1),
        ("secp256r1", NamedGroup::secp256r1),
        ("secp384r1", NamedGroup::secp384r1),
        ("P-384", NamedGroup::secp384r1),
        ("X25519", NamedGroup::X25519),
    ];
    let word = values.text(name);
    let curve = CURVES.into_iter().find(|(own, _)| own.eq_ignore_ascii_case(word)).map(|(_, curve)| curve);
    if curve.is_none() && !word.eq_ignore_ascii_case("auto") {
        let text = format!("{name}: {word} is not spoken, only prime256v1, secp384r1 and X25519 are: all of these are");
        problems.warn(values.place(name), text);
    }
    curve
}

fn suites(side: &str, values: &Values, problems: &mut Problems) -> Vec<CipherSuite> {
    let (tls12, tls13) = protocols(&format!("{side}_tls_protocols"), values, problems);
    if values.tls_mode(&format!("{side}_tls_sslmode")) == TlsMode::Disable {
        // Nothing is asked of what is not used.
        return ciphers::of_tls13("");
    }
    let lists: [(_, _, _, fn(&str) -> _); 2] = [
        (tls13, "1.3", format!("{side}_tls13_ciphers"), ciphers::of_tls13),
        (tls12, "1.2", format!("{side}_tls_ciphers"), ciphers::before_tls13),
    ];
    let (mut suites, mut missing) = (Vec::new(), Vec::new());
    for (_, version, name, of) in lists.into_iter().filter(|(spoken, ..)| *spoken) {
        let mut own: Vec<CipherSuite> = of(values.text(&name));
        if own.is_empty() {
            missing.push((version, name));
        }
        suites.append(&mut own);
    }
    for (version, name) in missing {
        // In PgBouncer's words, where it has some.
        let text = match version {
            "1.3" => format!("failed to set the TLSv1.3 cipher suites: {name} names none that is spoken"),
            _ => format!("{name} names no cipher suite that is spoken"),
        };
        match suites.is_empty() {
            true => problems.error(values.place(&name), text),
            false => problems.warn(values.place(&name), format!("{text}: TLS {version} is not")),
        }
    }
    suites
}

/// Whether TLS 1.2 and 1.3 are spoken. PgBouncer's list knows two older ones, which are left out with a warning; where nothing else is on it,
/// both newer ones are spoken: whoever wrote it wants TLS.
fn protocols(name: &str, values: &Values, problems: &mut Problems) -> (bool, bool) {
    const WORDS: [&str; 7] = ["secure", "all", "default", "tlsv1.0", "tlsv1.1", "tlsv1.2", "tlsv1.3"];
    let place = values.place(name);
    let (mut tls12, mut tls13, mut known) = (false, false, true);
    for word in values.text(name).split([',', ':', ' ']).filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "secure" | "all" | "default" => (tls12, tls13) = (true, true),
            "tlsv1.2" => tls12 = true,
            "tlsv1.3" => tls13 = true,
            "tlsv1.0" | "tlsv1.1" => {
                problems.warn(place, format!("{name}: {word} is not spoken, only tlsv1.2 and tlsv1.3 are"))
            }
            _ => {
                known = false;
                let nearest = registry::nearest_of(word, WORDS.into_iter()).unwrap_or_default();
                problems.error(
                    place,
                    format!("invalid value \"{word}\" in {name}: the nearest known one is \"{nearest}\""),
                );
            }
        }
    }
    if tls12 || tls13 {
        return (tls12, tls13);
    }
    if known {
        problems.warn(place, format!("{name} leaves no version that is spoken: tlsv1.2 and tlsv1.3 are"));
    }
    (true, true)
}
