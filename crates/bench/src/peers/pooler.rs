//! The poolers that the lab can start by itself: PgBouncer, a fleet of PgBouncers, and Weir once per driver.
//!
//! Knows their programs and how they are stopped; does not know what is measured.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::endpoint::Endpoint;
use super::profile::{Auth, POOL_SIZE, Place, Profile, configuration};
use super::{BASELINE, FLEET, OURS};
use crate::ground::Ground;
use crate::ground::cluster::{PASSWORD, USER};
use crate::load::scram;
use crate::repository;
use weir_lab::targets::pooler;
use weir_measure::ground::descriptors;
use weir_measure::ground::running::{Running, free_port};
use weir_measure::load::programs;

const PREPARED_STATEMENTS_MAX: usize = 200;
/// PostgreSQL's default.
const SCRAM_ITERATIONS: u32 = 4096;
const SCRAM_SALT: &[u8; 16] = b"a salt of no use";

const FLEET_PATIENCE: Duration = Duration::from_secs(3);

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
    Fleet(usize),
    Weir(Driver),
}

/// A pooler that can be started any number of times.
pub struct Pooler {
    pub name: String,
    pub version: String,
    pub kind: Kind,
    prepares: bool,
    program: PathBuf,
}

impl Pooler {
    /// `PGBOUNCER`, else the one on `PATH` or in Debian's `/usr/sbin`.
    pub fn pgbouncer(kind: Kind, ground: &Ground) -> Result<Pooler> {
        let program = match env::var_os("PGBOUNCER").filter(|path| !path.is_empty()) {
            Some(path) => PathBuf::from(path),
            None => programs::on_path("pgbouncer")
                .context("there is no pgbouncer on PATH: install it, or set PGBOUNCER=path")?,
        };
        let version = programs::version(&program)?;
        let prepares = pooler::pgbouncer_prepares(&version);
        let program = ground.account.reachable(&program, ground.directory())?;
        let (name, version) = match kind {
            Kind::Fleet(count) => (FLEET, format!("{count} processes of {version}")),
            _ => (BASELINE, version),
        };
        Ok(Pooler { name: name.to_owned(), version, kind, prepares, program })
    }

    pub fn weir(program: &Path, driver: Driver, ground: &Ground) -> Result<Pooler> {
        if !program.is_file() {
            let shown = program.strip_prefix(repository()).unwrap_or(program).display();
            bail!("there is no {shown}: `cargo build --profile bench-build -p weir` makes it");
        }
        let version = programs::version(program)?;
        let program = ground.account.reachable(program, ground.directory())?;
        Ok(Pooler { name: Pooler::weir_name(driver), version, kind: Kind::Weir(driver), prepares: true, program })
    }

    pub fn weir_name(driver: Driver) -> String {
        format!("{OURS} {}", driver.setting())
    }

    pub fn start(&self, profile: &Profile, ground: &Ground) -> Result<Endpoint> {
        let port = free_port()?;
        let (count, pool_size) = match self.kind {
            Kind::Fleet(count) => (count, POOL_SIZE.div_ceil(count)),
            _ => (1, POOL_SIZE),
        };
        let users = self.write_users(profile, ground)?;
        let place = Place {
            port,
            cluster_port: ground.cluster.port,
            users: &users,
            certificate: &ground.certificate,
            pool_size,
        };
        let configuration = configuration(profile, &place, &self.own_settings(profile));
        let mut running = Vec::with_capacity(count);
        for number in 0..count {
            running.push(self.start_one(&configuration, port, number, ground)?);
        }
        // One of a fleet answers for all; if the others cannot be seen, they have had their time.
        let all = || Ok((descriptors::listeners(port).len() >= count).then_some(()));
        ground.interrupt.wait_for(FLEET_PATIENCE, all)?;
        let shown = ground.without_paths(&configuration);
        Ok(Endpoint::started(&self.name, &self.version, self.prepares, port, (running, shown)))
    }

    fn start_one(&self, configuration: &str, port: u16, number: usize, ground: &Ground) -> Result<Running> {
        let stem = format!("{}-{port}-{number}", self.name.replace(' ', "-"));
        let ini = ground.directory().join(format!("{stem}.ini"));
        fs::write(&ini, configuration).with_context(|| format!("cannot write {}", ini.display()))?;
        ground.account.give(&ini)?;
        let mut command = ground.account.command(&self.program, ground.directory());
        command.arg(&ini);
        let log = ground.directory().join(format!("{stem}.log"));
        let mut running = Running::start(&self.name, command, log, pooler::STOP)?;
        running.wait_until_listening(port, &ground.interrupt)?;
        Ok(running)
    }

    fn write_users(&self, profile: &Profile, ground: &Ground) -> Result<PathBuf> {
        let (file, secret) = match profile.auth {
            Auth::Trust => ("users-trust.txt", String::new()),
            Auth::Scram => ("users-scram.txt", scram::secret(PASSWORD, SCRAM_SALT, SCRAM_ITERATIONS)?),
            Auth::ScramFromPassword => ("users-password.txt", PASSWORD.to_owned()),
        };
        let users = ground.directory().join(file);
        fs::write(&users, format!("\"{USER}\" \"{secret}\"\n")).context("cannot write the user list")?;
        ground.account.give(&users)?;
        Ok(users)
    }

    /// Lines of the ini file that only this pooler has.
    fn own_settings(&self, profile: &Profile) -> String {
        let mut text = String::new();
        if self.prepares {
            text.push_str(&format!("max_prepared_statements = {PREPARED_STATEMENTS_MAX}\n"));
        }
        match self.kind {
            Kind::PgBouncer => {}
            Kind::Fleet(_) => text.push_str("so_reuseport = 1\n"),
            Kind::Weir(driver) => {
                text.push_str(&format!("driver = {}\n", driver.setting()));
                if let Some(workers) = profile.workers {
                    text.push_str(&format!("workers = {workers}\n"));
                }
            }
        }
        text
    }
}
