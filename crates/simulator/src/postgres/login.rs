//! A simulated backend's start: packets before the session, authentication, the first parameters.

use weir_wire::startup::{ProtocolVersion, STARTUP_LEN_MAX, Startup};
use weir_wire::{HEADER_LEN, Header, TransactionStatus, frontend, write};

use super::backend::{Backend, Phase};
use super::parameters::{Parameters, UNREPORTED};
use super::{Scene, ServerAuth};
use crate::driver::TLS_MARKER;
use crate::scram::{Verifier, md5_answer};

/// Where authentication stands.
pub enum Login {
    Cleartext,
    Md5 { salt: [u8; 4] },
    SaslInitial,
    SaslFinal(Box<Verifier>),
}

impl Backend {
    /// Takes one packet of the startup, if a whole one is there.
    pub(super) fn startup_packet(&mut self, scene: &mut Scene) -> bool {
        let Some(&[a, b, c, d]) = self.input.first_chunk::<4>() else { return false };
        if [a, b, c, d] == TLS_MARKER && scene.cluster.tls {
            // Without being asked first (PostgreSQL 17, `ProcessSSLStartup`).
            return self.tls_marker(scene);
        }
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if !(8..=STARTUP_LEN_MAX).contains(&length) {
            scene.checks.fail("nonsense to a server", format!("startup packet of {length} bytes"));
            return false;
        }
        if self.input.len() < length {
            return false;
        }
        let packet: Vec<u8> = self.input.drain(..length).skip(4).collect();
        match Startup::parse(&packet) {
            Ok(Startup::Tls) if scene.cluster.tls => {
                self.out.push(b'S');
                self.phase = Phase::TlsMarker;
            }
            Ok(Startup::Tls | Startup::GssEncryption) => self.out.push(b'N'),
            Ok(Startup::Cancel { process_id, key }) => {
                scene.cancels.push((process_id, key.to_vec()));
                self.is_cancel = true;
                self.phase = Phase::Ended;
            }
            Ok(Startup::Session { version, parameters }) => self.session(scene, version, &parameters),
            Err(malformed) => scene.checks.fail("nonsense to a server", malformed.to_string()),
        }
        self.flush();
        true
    }

    /// The four bytes that stand for a TLS handshake.
    pub(super) fn tls_marker(&mut self, scene: &mut Scene) -> bool {
        if self.input.len() < TLS_MARKER.len() {
            return false;
        }
        let marker: Vec<u8> = self.input.drain(..TLS_MARKER.len()).collect();
        if marker != TLS_MARKER {
            scene.checks.fail("nonsense to a server", "clear bytes after the server agreed to TLS".to_owned());
        }
        self.phase = Phase::Startup;
        true
    }

    fn session(&mut self, scene: &mut Scene, version: ProtocolVersion, parameters: &[(&str, &str)]) {
        let find = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        self.user = find("user").unwrap_or_default();
        self.database = find("database").unwrap_or_else(|| self.user.clone());
        self.defaults = Parameters::new(&self.user);
        self.read_configuration(scene.cluster.configuration);
        for (name, value) in parameters {
            let apart = matches!(*name, "user" | "database" | "replication" | "options") || name.starts_with("_pq_.");
            if !apart && let Err(code) = self.defaults.set(name, value) {
                return self.fatal(code, "invalid value in startup packet");
            }
        }
        self.parameters = self.defaults.clone();
        self.version = version.min(scene.cluster.newest);
        if version > scene.cluster.newest {
            write::negotiate_version(&mut self.out, scene.cluster.newest, &[]);
        }
        if scene.cluster.sessions >= scene.cluster.connections_max {
            return self.fatal("53300", "sorry, too many clients already");
        }
        scene.cluster.sessions += 1;
        self.counted = true;
        self.ask_password(scene);
    }

    fn ask_password(&mut self, scene: &mut Scene) {
        self.phase = match scene.cluster.auth {
            ServerAuth::Trust => return self.welcome(scene),
            ServerAuth::Cleartext => {
                write::authentication_cleartext(&mut self.out);
                Phase::Login(Login::Cleartext)
            }
            ServerAuth::Md5 => {
                let salt = scene.rng.bytes();
                write::authentication_md5(&mut self.out, salt);
                Phase::Login(Login::Md5 { salt })
            }
            ServerAuth::Scram => {
                write::authentication_sasl(&mut self.out, &["SCRAM-SHA-256"]);
                Phase::Login(Login::SaslInitial)
            }
        };
    }

    /// Takes one answer of the login, if a whole one is there.
    pub(super) fn login_message(&mut self, scene: &mut Scene) -> bool {
        let Some(header) = self.input.first_chunk::<HEADER_LEN>() else { return false };
        let header = Header::parse(header);
        let Some(length) = header.body_len.filter(|length| *length < 65_536) else {
            scene.checks.fail("nonsense to a server", "password message's length".to_owned());
            return false;
        };
        let end = HEADER_LEN + length as usize;
        if self.input.len() < end {
            return false;
        }
        let body: Vec<u8> = self.input.drain(..end).skip(HEADER_LEN).collect();
        if header.tag != weir_wire::FrontendTag::Password as u8 {
            scene
                .checks
                .fail("nonsense to a server", format!("message {:?} instead of a password", header.tag as char));
            return false;
        }
        if self.answered(scene, &body).is_none() {
            self.fatal("28P01", "password authentication failed");
        }
        self.flush();
        true
    }

    fn answered(&mut self, scene: &mut Scene, body: &[u8]) -> Option<()> {
        let password = scene.cluster.passwords.get(&self.user)?.clone();
        let Phase::Login(login) = std::mem::replace(&mut self.phase, Phase::Ended) else { return None };
        match login {
            Login::Cleartext => (frontend::password(body).ok()? == password.as_bytes()).then(|| self.welcome(scene)),
            Login::Md5 { salt } => {
                let right = md5_answer(&self.user, &password, salt);
                (frontend::password(body).ok()? == right.as_bytes()).then(|| self.welcome(scene))
            }
            Login::SaslInitial => {
                let (_, first) = frontend::sasl_initial(body).ok()?;
                let first = std::str::from_utf8(first).ok()?;
                let verifier = Verifier::new(first, &password, scene.rng.bytes(), scene.rng.bytes(), 2)?;
                write::authentication_sasl_continue(&mut self.out, verifier.challenge().as_bytes());
                self.phase = Phase::Login(Login::SaslFinal(Box::new(verifier)));
                Some(())
            }
            Login::SaslFinal(verifier) => {
                let last = verifier.finish(std::str::from_utf8(body).ok()?)?;
                write::authentication_sasl_final(&mut self.out, last.as_bytes());
                self.welcome(scene);
                Some(())
            }
        }
    }

    fn welcome(&mut self, scene: &mut Scene) {
        write::authentication_ok(&mut self.out);
        for (name, value) in self.parameters.0.iter().filter(|(name, _)| **name != UNREPORTED) {
            write::parameter_status(&mut self.out, name, value.as_bytes());
        }
        self.reported = self.parameters.clone();
        // PostgreSQL 18 gives 32 bytes to whoever speaks 3.2, and the old four to others (backend_startup.c).
        let length = if self.version >= ProtocolVersion::V3_2 { 32 } else { 4 };
        self.key = scene.rng.byte_vec(length);
        self.pid = scene.cluster.next_pid;
        scene.cluster.next_pid += 1;
        write::backend_key(&mut self.out, self.pid, &self.key);
        write::ready(&mut self.out, TransactionStatus::Idle);
        self.phase = Phase::Ready;
        scene.counts.server_sessions += 1;
        self.flush();
    }
}
