//! How peers are configured in one part: who may enter, what is encrypted, how many servers and clients.
//!
//! One profile gives every peer the same; only what one of them cannot do differs. Knows PgBouncer's settings.

use std::fmt::Write;
use std::path::Path;

use crate::ground::certificate::Certificate;
use crate::ground::cluster::{DATABASE, USER};

pub const POOL_SIZE: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    Trust,
    /// The user list has PostgreSQL's SCRAM secret.
    Scram,
    /// The user list has the password, and the pooler derives keys from it.
    ScramFromPassword,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// As the report names it.
    pub name: &'static str,
    pub auth: Auth,
    pub client_tls: bool,
    pub server_tls: bool,
    pub clients_max: usize,
    /// Weir's; `None` is its default, one per core.
    pub workers: Option<usize>,
}

impl Profile {
    pub const PLAIN: Profile = Profile {
        name: "plain",
        auth: Auth::Trust,
        client_tls: false,
        server_tls: false,
        clients_max: 12_000,
        workers: None,
    };
    pub const TLS: Profile =
        Profile { name: "TLS on both sides", client_tls: true, server_tls: true, ..Profile::PLAIN };
    /// For logins and idle clients, where the servers' side does not matter.
    pub const CLIENT_TLS: Profile = Profile { name: "TLS to clients", client_tls: true, ..Profile::PLAIN };
    pub const SCRAM: Profile = Profile { name: "SCRAM", auth: Auth::Scram, ..Profile::PLAIN };
    pub const SCRAM_TLS: Profile = Profile { name: "SCRAM, TLS to clients", client_tls: true, ..Profile::SCRAM };
    pub const SCRAM_PASSWORD: Profile =
        Profile { name: "SCRAM from a password", auth: Auth::ScramFromPassword, ..Profile::PLAIN };

    pub fn is_plain(&self) -> bool {
        self.auth == Auth::Trust && !self.client_tls && self.workers.is_none()
    }
}

/// Where one process listens and what it finds there.
pub struct Place<'a> {
    pub port: u16,
    pub cluster_port: u16,
    pub users: &'a Path,
    pub certificate: &'a Certificate,
    pub pool_size: usize,
}

/// The ini file, with `own` lines that only this pooler has.
pub fn configuration(profile: &Profile, place: &Place, own: &str) -> String {
    let auth_type = if profile.auth == Auth::Trust { "trust" } else { "scram-sha-256" };
    let mut text = format!(
        "[databases]\n\
         {DATABASE} = host=127.0.0.1 port={} dbname={DATABASE}\n\
         \n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {}\n\
         listen_backlog = 4096\n\
         unix_socket_dir =\n\
         auth_type = {auth_type}\n\
         auth_file = {}\n\
         admin_users = {USER}\n\
         pool_mode = transaction\n\
         default_pool_size = {}\n\
         max_client_conn = {}\n\
         server_tls_sslmode = {}\n\
         log_connections = 0\n\
         log_disconnections = 0\n",
        place.cluster_port,
        place.port,
        place.users.display(),
        place.pool_size,
        profile.clients_max,
        if profile.server_tls { "require" } else { "disable" },
    );
    if profile.client_tls {
        let Certificate { certificate, key } = place.certificate;
        let (key, certificate) = (key.display(), certificate.display());
        let tls = format!(
            "client_tls_sslmode = require\nclient_tls_key_file = {key}\nclient_tls_cert_file = {certificate}\n"
        );
        text.push_str(&tls);
    }
    text.push_str(own);
    text
}

/// Lines that a configuration has beyond those of another one, for a report that shows the other in full.
pub fn difference(configuration: &str, base: &str) -> String {
    let mut text = String::new();
    for line in configuration.lines().filter(|line| !is_place(line) && !base.lines().any(|known| known == *line)) {
        writeln!(text, "{line}").expect("a String takes every write");
    }
    text
}

/// Ports change with each start and mean nothing.
fn is_place(line: &str) -> bool {
    line.starts_with("listen_port")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn text(profile: &Profile, own: &str) -> String {
        let certificate = Certificate { certificate: PathBuf::from("c.crt"), key: PathBuf::from("c.key") };
        let users = PathBuf::from("users.txt");
        let place = Place { port: 1, cluster_port: 2, users: &users, certificate: &certificate, pool_size: 10 };
        configuration(profile, &place, own)
    }

    #[test]
    fn a_profile_says_who_enters_and_what_is_encrypted() {
        let plain = text(&Profile::PLAIN, "workers = 3\n");
        assert!(plain.contains("auth_type = trust\n") && plain.ends_with("workers = 3\n"));
        assert!(plain.contains("server_tls_sslmode = disable\n") && !plain.contains("client_tls"));
        assert!(plain.contains("default_pool_size = 10\n"));
        assert!(text(&Profile::SCRAM, "").contains("auth_type = scram-sha-256\n"));
    }

    #[test]
    fn the_difference_has_what_is_new_and_no_port() {
        let (plain, tls) = (text(&Profile::PLAIN, ""), text(&Profile::TLS, ""));
        let more = difference(&tls.replace("listen_port = 1", "listen_port = 7"), &plain);
        assert_eq!(
            more,
            "server_tls_sslmode = require\nclient_tls_sslmode = require\nclient_tls_key_file = c.key\n\
             client_tls_cert_file = c.crt\n"
        );
    }
}
