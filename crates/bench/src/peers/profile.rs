//! How peers are configured in one part: who may enter, what is encrypted, how many servers and clients.
//!
//! One profile gives every peer the same; only what one of them cannot do differs. Knows PgBouncer's settings.

use std::fmt::Write;

use crate::ground::certificate::Certificate;

pub const POOL_SIZE: u32 = 20;

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
    /// Weir's `session_state`; `None` is its default.
    pub session_state: Option<&'static str>,
}

impl Profile {
    pub const PLAIN: Profile = Profile {
        name: "plain",
        auth: Auth::Trust,
        client_tls: false,
        server_tls: false,
        clients_max: 12_000,
        workers: None,
        session_state: None,
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
        self.auth == Auth::Trust && !self.client_tls && self.workers.is_none() && self.session_state.is_none()
    }

    pub fn auth_type(&self) -> &'static str {
        if self.auth == Auth::Trust { "trust" } else { "scram-sha-256" }
    }

    /// Lines of the ini file for the clients' side.
    pub fn client_lines(&self, Certificate { certificate, key }: &Certificate) -> String {
        if !self.client_tls {
            return String::new();
        }
        let (key, certificate) = (key.display(), certificate.display());
        format!("client_tls_sslmode = require\nclient_tls_key_file = {key}\nclient_tls_cert_file = {certificate}\n")
    }
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

    #[test]
    fn a_profile_says_who_enters_and_what_is_encrypted() {
        let certificate = Certificate { certificate: PathBuf::from("c.crt"), key: PathBuf::from("c.key") };
        assert_eq!((Profile::PLAIN.auth_type(), Profile::SCRAM_PASSWORD.auth_type()), ("trust", "scram-sha-256"));
        assert_eq!(Profile::SCRAM.client_lines(&certificate), "");
        assert_eq!(
            Profile::TLS.client_lines(&certificate),
            "client_tls_sslmode = require\nclient_tls_key_file = c.key\nclient_tls_cert_file = c.crt\n"
        );
    }

    #[test]
    fn the_difference_has_what_is_new_and_no_port() {
        let more = difference("a = 1\nlisten_port = 7\nb = 2\nc = 4\n", "a = 1\nlisten_port = 1\nb = 3\n");
        assert_eq!(more, "b = 2\nc = 4\n");
    }
}
