//! Poolers that the lab starts: PgBouncer, a fleet of PgBouncers on one port, and Weir.
//!
//! Knows which there are and how they are told apart; does not know what is measured.

use std::path::Path;

use anyhow::{Result, bail};
use nix::unistd::Pid;

use super::PoolerKind;
use weir_measure::ground::running::Running;
use weir_measure::load::programs;
use weir_measure::pooler::{self, Program, Settings, Started};
use weir_measure::server::{DATABASE, USER};
use weir_measure::url::Url;

/// More than any experiment opens.
const CLIENTS_MAX: usize = 100_000;
/// What Weir's `--version` says where it is so.
const WITHOUT_OPTIMISATION: &str = "built without optimisation";

/// As charts name it.
pub fn name(kind: PoolerKind) -> &'static str {
    match kind {
        PoolerKind::PgBouncer => "PgBouncer",
        PoolerKind::PgBouncerFleet => "PgBouncer fleet",
        PoolerKind::Weir => "Weir",
    }
}

/// The role as which it logs in to the server, so that its connections can be told from those of others.
pub fn role(kind: PoolerKind) -> &'static str {
    match kind {
        PoolerKind::PgBouncer => "lab_pgbouncer",
        PoolerKind::PgBouncerFleet => "lab_fleet",
        PoolerKind::Weir => "lab_weir",
    }
}

/// What every pooler needs to start.
pub struct Stage<'a> {
    pub files: pooler::Stage<'a>,
    /// Weir's program.
    pub weir: &'a Path,
    pub cores: usize,
}

pub struct Pooler {
    pub kind: PoolerKind,
    pub version: String,
    started: Started,
}

impl Pooler {
    /// Starts it before the server on `server_port`, with so many server connections, all together.
    pub fn start(kind: PoolerKind, server_port: u16, pool_size: u32, stage: &Stage) -> Result<Pooler> {
        let (program, count) = match kind {
            PoolerKind::PgBouncer => (Program::pgbouncer()?, 1),
            PoolerKind::PgBouncerFleet => (Program::pgbouncer()?, fleet_size(stage.cores)),
            PoolerKind::Weir => (Program::weir(stage.weir)?, 1),
        };
        let mut version = program.version.clone();
        if count > 1 {
            version = format!("{count} processes of {version}");
        }
        if kind == PoolerKind::Weir && programs::version_lines(stage.weir)?.contains(WITHOUT_OPTIMISATION) {
            version.push_str(" (built without optimisation: slower than it is)");
        }
        let settings = Settings {
            database: DATABASE,
            server_port,
            role: Some(role(kind)),
            admin: USER,
            auth_type: "trust",
            users: &stage.files.write("users.txt", &format!("\"{USER}\" \"\"\n"))?,
            pool_size,
            clients_max: CLIENTS_MAX,
            server_tls: false,
            more: "",
        };
        let started = pooler::start(name(kind), &program, count, &settings, &stage.files)?;
        Ok(Pooler { kind, version, started })
    }

    pub fn configuration(&self) -> &str {
        &self.started.configuration
    }

    pub fn url(&self) -> Url {
        Url::loopback(self.started.port, USER, DATABASE)
    }

    pub fn pids(&self) -> Vec<Pid> {
        self.started.running.iter().map(Running::pid).collect()
    }

    pub fn check(&mut self) -> Result<()> {
        for running in &mut self.started.running {
            if let Some(status) = running.ended()? {
                bail!("{} has ended ({status}): {}", name(self.kind), running.last_words());
            }
        }
        Ok(())
    }
}

/// One per core, as a single-threaded pooler needs; two at least, or it would be no fleet.
fn fleet_size(cores: usize) -> u32 {
    u32::try_from(cores).unwrap_or(u32::MAX).max(2)
}
