//! The poolers that the lab can start by itself: PgBouncer, and Weir once per driver, with one configuration.
//!
//! Knows their ini file and how they are stopped; does not know what is measured.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nix::sys::signal::Signal;

use crate::account::Account;
use crate::cluster::{self, DATABASE, USER};
use crate::interrupt::Interrupt;
use crate::repository;
use crate::running::{Running, free_port};

pub const CLIENTS_MAX: usize = 2000;
const POOL_SIZE: usize = 20;
const PREPARED_STATEMENTS_MAX: usize = 200;
/// The first PgBouncer whose transaction pooling carries protocol-level prepared statements.
const PGBOUNCER_PREPARES_SINCE: (u32, u32) = (1, 21);

/// Weir's event loop, as its setting `driver` names it.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Driver {
    Epoll,
    #[value(name = "io_uring")]
    IoUring,
}

impl Driver {
    fn setting(self) -> &'static str {
        match self {
            Driver::Epoll => "epoll",
            Driver::IoUring => "io_uring",
        }
    }
}

/// What every start needs: who runs it, where its files go, and the PostgreSQL behind it.
pub struct Ground<'a> {
    pub account: &'a Account,
    pub directory: &'a Path,
    pub cluster_port: u16,
    pub interrupt: &'a Interrupt,
}

/// A pooler that can be started any number of times.
pub struct Pooler {
    pub name: String,
    pub version: String,
    /// Whether protocol-level prepared statements work in its transaction pooling.
    pub prepares: bool,
    program: PathBuf,
    /// Lines of the ini file that only this pooler has.
    own_settings: String,
}

/// A pooler at work; dropping it ends it.
pub struct Started {
    pub running: Running,
    pub port: u16,
    pub configuration: String,
}

impl Pooler {
    /// `PGBOUNCER`, else the one on `PATH` or in Debian's `/usr/sbin`.
    pub fn pgbouncer(ground: &Ground) -> Result<Pooler> {
        let program = match env::var_os("PGBOUNCER") {
            Some(path) => PathBuf::from(path),
            None => on_path("pgbouncer").context("there is no pgbouncer on PATH: install it, or set PGBOUNCER=path")?,
        };
        let version = cluster::version(&program)?;
        let prepares = version_number(&version).is_some_and(|number| number >= PGBOUNCER_PREPARES_SINCE);
        let own_settings = if prepares { prepared_statements_setting() } else { String::new() };
        let program = ground.account.reachable(&program, ground.directory)?;
        Ok(Pooler { name: "PgBouncer".to_owned(), version, prepares, program, own_settings })
    }

    pub fn weir(program: &Path, driver: Driver, ground: &Ground) -> Result<Pooler> {
        if !program.is_file() {
            let shown = program.strip_prefix(repository()).unwrap_or(program).display();
            bail!("there is no {shown}: `cargo build --profile bench-build -p weir` makes it");
        }
        let version = cluster::version(program)?;
        let own_settings = format!("{}driver = {}\n", prepared_statements_setting(), driver.setting());
        let program = ground.account.reachable(program, ground.directory)?;
        Ok(Pooler { name: Pooler::weir_name(driver), version, prepares: true, program, own_settings })
    }

    pub fn weir_name(driver: Driver) -> String {
        format!("Weir {}", driver.setting())
    }

    pub fn start(&self, ground: &Ground) -> Result<Started> {
        let port = free_port()?;
        let file = |ending: &str| ground.directory.join(format!("{}-{port}.{ending}", self.name.replace(' ', "-")));
        let users = ground.directory.join("userlist.txt");
        fs::write(&users, format!("\"{USER}\" \"\"\n")).context("cannot write the user list")?;
        ground.account.give(&users)?;
        let configuration = self.configuration(port, ground.cluster_port, &users);
        let ini = file("ini");
        fs::write(&ini, &configuration).with_context(|| format!("cannot write {}", ini.display()))?;
        ground.account.give(&ini)?;
        let mut command = ground.account.command(&self.program, ground.directory);
        command.arg(&ini);
        // SIGTERM is PgBouncer's immediate shutdown; Weir has the same signals.
        let mut running = Running::start(&self.name, command, file("log"), Signal::SIGTERM)?;
        running.wait_until_listening(port, ground.interrupt)?;
        Ok(Started { running, port, configuration })
    }

    fn configuration(&self, port: u16, cluster_port: u16, users: &Path) -> String {
        format!(
            "[databases]\n\
             {DATABASE} = host=127.0.0.1 port={cluster_port} dbname={DATABASE}\n\
             \n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = trust\n\
             auth_file = {}\n\
             pool_mode = transaction\n\
             default_pool_size = {POOL_SIZE}\n\
             max_client_conn = {CLIENTS_MAX}\n\
             log_connections = 0\n\
             log_disconnections = 0\n\
             {}",
            users.display(),
            self.own_settings
        )
    }
}

fn prepared_statements_setting() -> String {
    format!("max_prepared_statements = {PREPARED_STATEMENTS_MAX}\n")
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    directories.map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// `PgBouncer 1.18.0` is (1, 18).
fn version_number(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pgbouncer_prepares_since_1_21() {
        assert!(version_number("PgBouncer 1.18.0").unwrap() < PGBOUNCER_PREPARES_SINCE);
        assert!(version_number("PgBouncer 1.25.2").unwrap() >= PGBOUNCER_PREPARES_SINCE);
        assert_eq!(version_number("PgBouncer"), None);
    }
}
