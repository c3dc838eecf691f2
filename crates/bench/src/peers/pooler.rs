//! The poolers that the lab can start by itself: PgBouncer, a fleet of PgBouncers, and Weir once per driver.
//!
//! Knows what each has of its own; does not know what is measured.

use std::path::Path;

use anyhow::{Result, bail};
use clap::ValueEnum;

use super::endpoint::Endpoint;
use super::profile::{Auth, POOL_SIZE, Profile};
use super::{BASELINE, FLEET, OURS};
use crate::ground::{DATABASE, Ground, PASSWORD, USER};
use crate::load::scram;
use crate::repository;
use weir_measure::pooler::{self, Program, Settings};

/// PostgreSQL's default.
const SCRAM_ITERATIONS: u32 = 4096;
const SCRAM_SALT: &[u8; 16] = b"a salt of no use";

/// Weir's event loop, as its setting `driver` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    #[value(name = "io_uring")]
    IoUring,
    Epoll,
}

impl Driver {
    fn setting(self) -> &'static str {
        match self {
            Driver::Epoll => "epoll",
            Driver::IoUring => "io_uring",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    PgBouncer,
    /// So many PgBouncers on one port, which share the servers.
    Fleet(u32),
    Weir(Driver),
}

/// A pooler that can be started any number of times.
pub struct Pooler {
    pub name: String,
    pub version: String,
    pub kind: Kind,
    program: Program,
}

impl Pooler {
    pub fn pgbouncer(kind: Kind) -> Result<Pooler> {
        let program = Program::pgbouncer()?;
        let version = program.version.clone();
        let (name, version) = match kind {
            Kind::Fleet(count) => (FLEET, format!("{count} processes of {version}")),
            _ => (BASELINE, version),
        };
        Ok(Pooler { name: name.to_owned(), version, kind, program })
    }

    pub fn weir(path: &Path, driver: Driver) -> Result<Pooler> {
        if !path.is_file() {
            let shown = path.strip_prefix(repository()).unwrap_or(path).display();
            bail!("there is no {shown}: `cargo build --release -p weir` makes it");
        }
        let program = Program::weir(path)?;
        let version = program.version.clone();
        Ok(Pooler { name: Pooler::weir_name(driver), version, kind: Kind::Weir(driver), program })
    }

    pub fn weir_name(driver: Driver) -> String {
        format!("{OURS} {}", driver.setting())
    }

    pub fn start(&self, profile: &Profile, ground: &Ground) -> Result<Endpoint> {
        let stage = ground.stage();
        let (file, secret) = match profile.auth {
            Auth::Trust => ("users-trust.txt", String::new()),
            Auth::Scram => ("users-scram.txt", scram::secret(PASSWORD, SCRAM_SALT, SCRAM_ITERATIONS)?),
            Auth::ScramFromPassword => ("users-password.txt", PASSWORD.to_owned()),
        };
        let settings = Settings {
            database: DATABASE,
            server_port: ground.server.port(),
            role: None,
            admin: USER,
            auth_type: profile.auth_type(),
            users: &stage.write(file, &format!("\"{USER}\" \"{secret}\"\n"))?,
            pool_size: POOL_SIZE,
            clients_max: profile.clients_max,
            server_tls: profile.server_tls,
            more: &(profile.client_lines(&ground.certificate) + &self.own_lines(profile)),
        };
        let count = if let Kind::Fleet(count) = self.kind { count } else { 1 };
        let started = pooler::start(&self.name, &self.program, count, &settings, &stage)?;
        Ok(Endpoint::started(&self.name, &self.version, self.program.prepares, started))
    }

    /// Lines of the ini file that only this pooler has.
    fn own_lines(&self, profile: &Profile) -> String {
        let Kind::Weir(driver) = self.kind else { return String::new() };
        let workers = profile.workers.map_or(String::new(), |workers| format!("workers = {workers}\n"));
        let state = profile.session_state.map_or(String::new(), |state| format!("session_state = {state}\n"));
        format!("driver = {}\n{workers}{state}", driver.setting())
    }
}
