//! Poolers that the lab starts: PgBouncer, a fleet of PgBouncers on one port, and Weir.
//!
//! Knows their programs and settings, which are PgBouncer's; does not know what is measured.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::cluster::{DATABASE, USER};
use crate::experiment::PoolerKind;
use weir_measure::ground::account::Account;
use weir_measure::ground::descriptors;
use weir_measure::ground::interrupt::Interrupt;
use weir_measure::ground::running::{Running, free_port};
use weir_measure::load::programs;
use weir_measure::url::Url;

/// More than any experiment opens.
const CLIENTS_MAX: u32 = 100_000;
const PREPARED_STATEMENTS_MAX: u32 = 200;
/// The first PgBouncer whose transaction pooling carries prepared statements of the protocol.
const PGBOUNCER_PREPARES_SINCE: (u32, u32) = (1, 21);
/// What Weir's `--version` says where it is so.
const WITHOUT_OPTIMISATION: &str = "built without optimisation";
/// Ends a pooler at once, whoever is connected. It keeps nothing that could be lost, and its SIGQUIT, made for this, is ignored by
/// all that a shell has started in the background.
pub const STOP: Signal = Signal::SIGKILL;
const FLEET_PATIENCE: Duration = Duration::from_secs(3);

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
    pub account: &'a Account,
    pub directory: &'a Path,
    pub interrupt: &'a Interrupt,
    /// Weir's program.
    pub weir: &'a Path,
    pub cores: usize,
}

pub struct Pooler {
    pub kind: PoolerKind,
    pub version: String,
    pub configuration: String,
    port: u16,
    running: Vec<Running>,
}

impl Pooler {
    /// Starts it before the server on `server_port`, with so many server connections, all together.
    pub fn start(kind: PoolerKind, server_port: u16, pool_size: u32, stage: &Stage) -> Result<Pooler> {
        let program = match kind {
            PoolerKind::Weir => stage.weir.to_path_buf(),
            PoolerKind::PgBouncer | PoolerKind::PgBouncerFleet => pgbouncer()?,
        };
        let version = programs::version(&program)?;
        let slow = kind == PoolerKind::Weir && programs::version_lines(&program)?.contains(WITHOUT_OPTIMISATION);
        let program = stage.account.reachable(&program, stage.directory)?;
        let count = if kind == PoolerKind::PgBouncerFleet { fleet_size(stage.cores) } else { 1 };
        let port = free_port()?;
        let each = pool_size.div_ceil(u32::try_from(count).unwrap_or(1)).max(1);
        let users = write_for(stage, "users.txt", &format!("\"{USER}\" \"\"\n"))?;
        let place = Place { port, server_port, users: &users, pool_size: each };
        let text = configuration(kind, prepares(kind, &version), &place);
        let mut pooler = Pooler { kind, version, configuration: String::new(), port, running: Vec::new() };
        for number in 0..count {
            pooler.running.push(start_one(kind, &program, &text, (port, number), stage)?);
        }
        // One of a fleet answers for all; if the others cannot be seen, they have had their time.
        let all = || Ok((descriptors::listeners(port).len() >= count).then_some(()));
        stage.interrupt.wait_for(FLEET_PATIENCE, all)?;
        if count > 1 {
            pooler.version = format!("{count} processes of {}", pooler.version);
        }
        if slow {
            pooler.version.push_str(" (built without optimisation: slower than it is)");
        }
        pooler.configuration = text.replace(&stage.directory.display().to_string(), "FOLDER");
        Ok(pooler)
    }

    pub fn url(&self) -> Url {
        Url::loopback(self.port, USER, DATABASE)
    }

    pub fn pids(&self) -> Vec<Pid> {
        self.running.iter().map(Running::pid).collect()
    }

    pub fn check(&mut self) -> Result<()> {
        for running in &mut self.running {
            if let Some(status) = running.ended()? {
                bail!("{} has ended ({status}): {}", name(self.kind), running.last_words());
            }
        }
        Ok(())
    }
}

/// `PGBOUNCER`, else the one on `PATH` or in Debian's `/usr/sbin`.
fn pgbouncer() -> Result<PathBuf> {
    match env::var_os("PGBOUNCER").filter(|path| !path.is_empty()) {
        Some(path) => Ok(PathBuf::from(path)),
        None => {
            programs::on_path("pgbouncer").context("there is no pgbouncer on PATH: install it, or set PGBOUNCER=path")
        }
    }
}

/// One per core, as a single-threaded pooler needs; two at least, or it would be no fleet.
fn fleet_size(cores: usize) -> usize {
    cores.max(2)
}

fn prepares(kind: PoolerKind, version: &str) -> bool {
    kind == PoolerKind::Weir || pgbouncer_prepares(version)
}

/// Whether a PgBouncer of this version carries prepared statements of the protocol in transaction pooling.
pub fn pgbouncer_prepares(version: &str) -> bool {
    version_number(version).is_some_and(|number| number >= PGBOUNCER_PREPARES_SINCE)
}

/// `PgBouncer 1.18.0` is (1, 18).
fn version_number(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Where one process listens and what it finds there.
struct Place<'a> {
    port: u16,
    server_port: u16,
    users: &'a Path,
    pool_size: u32,
}

fn configuration(kind: PoolerKind, prepares: bool, place: &Place) -> String {
    let Place { port, server_port, users, pool_size } = place;
    let mut text = format!(
        "[databases]\n\
         {DATABASE} = host=127.0.0.1 port={server_port} dbname={DATABASE} user={}\n\
         \n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         listen_backlog = 4096\n\
         unix_socket_dir =\n\
         auth_type = trust\n\
         auth_file = {}\n\
         admin_users = {USER}\n\
         pool_mode = transaction\n\
         default_pool_size = {pool_size}\n\
         max_client_conn = {CLIENTS_MAX}\n\
         server_tls_sslmode = disable\n\
         log_connections = 0\n\
         log_disconnections = 0\n",
        role(kind),
        users.display(),
    );
    if prepares {
        text.push_str(&format!("max_prepared_statements = {PREPARED_STATEMENTS_MAX}\n"));
    }
    if kind == PoolerKind::PgBouncerFleet {
        text.push_str("so_reuseport = 1\n");
    }
    text
}

fn start_one(
    kind: PoolerKind,
    program: &Path,
    text: &str,
    (port, number): (u16, usize),
    stage: &Stage,
) -> Result<Running> {
    let stem = format!("{}-{port}-{number}", name(kind).replace(' ', "-"));
    let ini = write_for(stage, &format!("{stem}.ini"), text)?;
    let mut command = stage.account.command(program, stage.directory);
    command.arg(&ini);
    let mut running = Running::start(name(kind), command, stage.directory.join(format!("{stem}.log")), STOP)?;
    running.wait_until_listening(port, stage.interrupt)?;
    Ok(running)
}

/// A file of the stage's directory that the account can read.
fn write_for(stage: &Stage, name: &str, text: &str) -> Result<PathBuf> {
    let path = stage.directory.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    stage.account.give(&path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_statements_are_asked_for_where_they_work() {
        assert!(!prepares(PoolerKind::PgBouncer, "PgBouncer 1.18.0"));
        assert!(prepares(PoolerKind::PgBouncer, "PgBouncer 1.25.2"));
        assert!(prepares(PoolerKind::Weir, "Weir 0.1.0"));
        assert_eq!(version_number("PgBouncer"), None);
    }

    #[test]
    fn a_fleet_shares_its_port() {
        let place = Place { port: 1, server_port: 2, users: Path::new("u"), pool_size: 3 };
        let text = configuration(PoolerKind::PgBouncerFleet, false, &place);
        assert!(text.contains("default_pool_size = 3\n") && text.ends_with("so_reuseport = 1\n"), "{text}");
        assert!(!configuration(PoolerKind::Weir, true, &place).contains("so_reuseport"));
    }
}
