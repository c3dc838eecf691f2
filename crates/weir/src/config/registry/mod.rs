//! The one table of all settings: name, section, kind, default, unit, what it does, whether it has come.
//!
//! The loader checks files against it, `weir check` suggests names from it, SHOW CONFIG lists it and
//! `docs/settings.md` is generated from it. It does not know which field of which struct a setting ends in.
//!
//! Names and defaults are those of PgBouncer 1.25.2 (`bouncer_params` in `src/main.c`, `parse_database` and
//! `parse_user` in `src/loader.c`); those that are Weir's own say so.

mod access;
mod network;
mod operation;
mod pools;
mod sections;

use super::value;

/// Where a setting may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    Pgbouncer,
    Databases,
    Users,
    Peers,
}

impl Section {
    pub const ALL: [Self; 4] = [Self::Pgbouncer, Self::Databases, Self::Users, Self::Peers];

    pub fn name(self) -> &'static str {
        match self {
            Self::Pgbouncer => "pgbouncer",
            Self::Databases => "databases",
            Self::Users => "users",
            Self::Peers => "peers",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|section| section.name() == name)
    }
}

/// What values a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// Text that may hold a secret: never printed.
    Hidden,
    /// The path of a file or directory.
    Path,
    /// Words, separated by commas or blanks.
    List,
    Switch,
    Integer {
        min: u64,
        max: u64,
    },
    Bytes {
        min: u64,
        max: u64,
    },
    Seconds,
    Milliseconds,
    /// A file mode, as C reads numbers.
    FileMode,
    Choice(&'static [&'static str]),
}

/// An integer that PgBouncer keeps in a C `int`.
const COUNT: Kind = Kind::Integer { min: 0, max: i32::MAX as u64 };

const SESSION_STATES: Kind = Kind::Choice(&["keep", "refuse", "pgbouncer"]);

/// Whether Weir does what the setting says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Supported,
    /// Accepted so that existing files load; why it means nothing here.
    NoEffect(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    pub section: Section,
    pub kind: Kind,
    /// `None`: unset, or (in the sections beside `[pgbouncer]`) the global setting.
    pub default: Option<&'static str>,
    /// Whether RELOAD changes it.
    pub reloadable: bool,
    pub status: Status,
    /// Weir's own: PgBouncer would refuse it.
    pub own: bool,
    pub doc: &'static str,
}

/// A setting of `[pgbouncer]` that is supported and reloadable: the most common case.
const fn setting(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Setting {
    Setting {
        name,
        section: Section::Pgbouncer,
        kind,
        default: Some(default),
        reloadable: true,
        status: Status::Supported,
        own: false,
        doc,
    }
}

impl Setting {
    const fn unset(mut self) -> Self {
        self.default = None;
        self
    }

    const fn fixed(mut self) -> Self {
        self.reloadable = false;
        self
    }

    const fn no_effect(mut self, why: &'static str) -> Self {
        self.status = Status::NoEffect(why);
        self
    }

    const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    const fn own(mut self) -> Self {
        self.own = true;
        self
    }

    const fn of(mut self, section: Section) -> Self {
        self.section = section;
        self.default = None;
        self
    }

    /// The unit of its numbers, where they have one.
    pub fn unit(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Seconds => Some("seconds, decimals allowed"),
            Kind::Milliseconds => Some("milliseconds"),
            Kind::Bytes { .. } => Some("bytes"),
            Kind::FileMode => {
                Some("octal behind a 0, else decimal up to 511 as PgBouncer reads it; 700 and 777 are octal too")
            }
            _ => None,
        }
    }

    /// Whether a value is one this setting takes; if not, what was expected.
    pub fn check(&self, text: &str) -> Result<(), String> {
        match self.kind {
            Kind::Text | Kind::Hidden | Kind::Path | Kind::List => Ok(()),
            Kind::Switch => value::switch(text).map(|_| ()),
            Kind::Integer { min, max } | Kind::Bytes { min, max } => value::integer(text, min, max).map(|_| ()),
            Kind::Milliseconds => value::integer(text, 0, i32::MAX as u64).map(|_| ()),
            Kind::Seconds => value::seconds(text).map(|_| ()),
            Kind::FileMode => value::file_mode(text).map(|_| ()),
            Kind::Choice(words) => value::choice(text, words).map(|_| ()),
        }
    }

    /// Whether a value says the same as the default, however it is written.
    pub fn is_default(&self, text: &str) -> bool {
        let default = self.default.unwrap_or_default();
        match self.kind {
            Kind::Switch => value::switch(text) == value::switch(default),
            Kind::Seconds => value::seconds(text) == value::seconds(default),
            _ => text == default,
        }
    }
}

/// The settings of `[pgbouncer]` in the groups in which the reference shows them.
pub const GROUPS: &[(&str, &[Setting])] = &[
    ("Where to listen", network::LISTENING),
    ("Who may enter", access::AUTHENTICATION),
    ("TLS", access::TLS),
    ("Pools and limits", pools::LIMITS),
    ("What passes through", pools::SESSIONS),
    ("Timeouts", pools::TIMEOUTS),
    ("Connections to servers", pools::SERVERS),
    ("Network details", network::DETAILS),
    ("Console and statistics", operation::CONSOLE),
    ("Log", operation::LOG),
    ("The process", operation::PROCESS),
];

/// The keys of the lists in `[databases]`, `[users]` and `[peers]`.
pub const LISTS: &[(Section, &[Setting])] =
    &[(Section::Databases, sections::DATABASES), (Section::Users, sections::USERS), (Section::Peers, sections::PEERS)];

/// Every setting of a section, in the order of the reference.
pub fn of_section(section: Section) -> impl Iterator<Item = &'static Setting> {
    let globals = GROUPS.iter().flat_map(|(_, settings)| settings.iter());
    let lists = LISTS.iter().flat_map(|(_, settings)| settings.iter());
    globals.chain(lists).filter(move |setting| setting.section == section)
}

pub fn find(section: Section, name: &str) -> Option<&'static Setting> {
    of_section(section).find(|setting| setting.name == name)
}

/// The known name that looks most like one that is not known.
pub fn nearest(section: Section, name: &str) -> &'static str {
    let names = of_section(section).map(|setting| setting.name);
    nearest_of(name, names).unwrap_or_default()
}

pub fn nearest_of<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Distances take quadratic time: what is longer than any name is compared by its beginning.
    const COMPARED_CHARS_MAX: usize = 64;
    let name: String = name.to_ascii_lowercase().chars().take(COMPARED_CHARS_MAX).collect();
    let (length, mut nearest) = (name.chars().count(), None);
    for candidate in known {
        // No distance is shorter than the difference in length, which costs nothing to know.
        let at_least = length.abs_diff(candidate.chars().count());
        if nearest.is_some_and(|(distance, _)| distance <= at_least) {
            continue;
        }
        let distance = strsim::damerau_levenshtein(&name, candidate);
        if nearest.is_none_or(|(shortest, _)| distance < shortest) {
            nearest = Some((distance, candidate));
        }
    }
    nearest.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_defaults_are_values() {
        for section in Section::ALL {
            let mut seen = BTreeSet::new();
            for setting in of_section(section) {
                assert!(seen.insert(setting.name), "{} is listed twice", setting.name);
                if let Some(default) = setting.default.filter(|text| !text.is_empty()) {
                    assert_eq!(setting.check(default), Ok(()), "the default of {}", setting.name);
                    assert!(setting.is_default(default), "{}", setting.name);
                }
                assert!(setting.doc.ends_with('.'), "{} needs a sentence", setting.name);
            }
            assert!(!seen.is_empty());
        }
    }

    #[test]
    fn every_setting_of_pgbouncer_is_known() {
        // SHOW CONFIG of PgBouncer 1.25.2 on Linux, and what its next release adds.
        let names = "admin_users application_name_add_host auth_dbname auth_file auth_hba_file auth_ident_file \
            auth_ldap_options \
            auth_query auth_type auth_user autodb_idle_timeout cancel_wait_timeout client_idle_timeout \
            client_login_timeout \
            client_tls13_ciphers client_tls_ca_file client_tls_cert_file client_tls_ciphers client_tls_dheparams \
            client_tls_ecdhcurve \
            client_tls_key_file client_tls_protocols client_tls_sslmode conffile default_pool_size disable_pqexec \
            dns_max_ttl \
            dns_nxdomain_ttl dns_zone_check_period idle_transaction_timeout ignore_startup_parameters job_name \
            listen_addr \
            listen_backlog listen_port log_connections log_disconnections log_pooler_errors log_stats logfile \
            max_client_conn \
            max_db_client_connections max_db_connections max_packet_size max_prepared_statements \
            max_user_client_connections \
            max_user_connections min_pool_size peer_id pidfile pkt_buf pool_mode query_timeout query_wait_notify \
            query_wait_timeout \
            reserve_pool_size reserve_pool_timeout resolv_conf sbuf_loopcnt scram_iterations server_check_delay \
            server_check_query \
            server_connect_timeout server_fast_close server_idle_timeout server_lifetime server_login_retry \
            server_reset_query \
            server_reset_query_always server_round_robin server_tls13_ciphers server_tls_ca_file server_tls_cert_file \
            server_tls_ciphers server_tls_key_file server_tls_protocols server_tls_sslmode so_reuseport stats_period \
            stats_users \
            suspend_timeout syslog syslog_facility syslog_ident tcp_defer_accept tcp_keepalive tcp_keepcnt \
            tcp_keepidle tcp_keepintvl \
            tcp_socket_buffer tcp_user_timeout track_extra_parameters transaction_timeout unix_socket_dir \
            unix_socket_group \
            unix_socket_mode user verbose service_name pool_idle_timeout login_notify_message";
        let expected: BTreeSet<&str> = names.split_whitespace().collect();
        let known: BTreeSet<&str> = of_section(Section::Pgbouncer).filter(|s| !s.own).map(|s| s.name).collect();
        assert_eq!(known, expected);
    }

    #[test]
    fn the_nearest_name_is_suggested() {
        assert_eq!(nearest(Section::Pgbouncer, "pool_mod"), "pool_mode");
        assert_eq!(nearest(Section::Pgbouncer, "MAX_CLIENT_CONNS"), "max_client_conn");
        assert_eq!(nearest(Section::Databases, "hots"), "host");
    }
}
