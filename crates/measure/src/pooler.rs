//! Poolers that read PgBouncer's configuration: their programs, and a process or a fleet of them on one port.
//!
//! Does not know who is measured beside whom, nor for what.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::ground::account::Account;
use crate::ground::descriptors;
use crate::ground::interrupt::Interrupt;
use crate::ground::running::{Running, free_port};
use crate::load::programs;

const PREPARED_STATEMENTS_MAX: u32 = 200;
/// The first PgBouncer whose transaction pooling carries prepared statements of the protocol.
const PREPARES_SINCE: (u32, u32) = (1, 21);
/// Ends a pooler at once, whoever is connected. It keeps nothing that could be lost, and its SIGQUIT, made for this, is ignored by
/// all that a shell has started in the background.
const STOP: Signal = Signal::SIGKILL;
const FLEET_PATIENCE: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    /// The first line of `--version`.
    pub version: String,
    /// Whether its transaction pooling carries prepared statements of the protocol.
    pub prepares: bool,
}

impl Program {
    /// `PGBOUNCER`, else the one on `PATH` or in Debian's `/usr/sbin`.
    pub fn pgbouncer() -> Result<Program> {
        let path = match env::var_os("PGBOUNCER").filter(|path| !path.is_empty()) {
            Some(path) => PathBuf::from(path),
            None => programs::on_path("pgbouncer")
                .context("there is no pgbouncer on PATH: install it, or set PGBOUNCER=path")?,
        };
        let version = programs::version(&path)?;
        let prepares = version_number(&version).is_some_and(|number| number >= PREPARES_SINCE);
        Ok(Program { path, version, prepares })
    }

    pub fn weir(path: &Path) -> Result<Program> {
        Ok(Program { path: path.to_path_buf(), version: programs::version(path)?, prepares: true })
    }
}

/// `PgBouncer 1.18.0` is (1, 18).
fn version_number(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Where poolers run.
pub struct Stage<'a> {
    pub account: &'a Account,
    pub directory: &'a Path,
    pub interrupt: &'a Interrupt,
}

impl Stage<'_> {
    /// A file of the directory that the account can read.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.account.give(&path)?;
        Ok(path)
    }

    /// A configuration or a log as others may read it: this directory has no meaning for them.
    pub fn without_paths(&self, text: &str) -> String {
        text.replace(&self.directory.display().to_string(), "FOLDER")
    }
}

/// What every pooler of a comparison is told alike.
#[derive(Clone, Debug)]
pub struct Settings<'a> {
    pub database: &'a str,
    pub server_port: u16,
    /// As whom it logs in to the server; `None`: as its client.
    pub role: Option<&'a str>,
    /// Whoever may use its console.
    pub admin: &'a str,
    pub auth_type: &'a str,
    pub users: &'a Path,
    /// Of all processes together.
    pub pool_size: u32,
    pub clients_max: usize,
    pub server_tls: bool,
    /// Lines that only this one has.
    pub more: &'a str,
}

impl Settings<'_> {
    /// The ini file of each of `count` processes on one port.
    fn ini(&self, port: u16, count: u32, prepares: bool) -> String {
        let mut text = format!(
            "[databases]\n\
             {database} = host=127.0.0.1 port={} dbname={database}{}\n\
             \n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             listen_backlog = 4096\n\
             unix_socket_dir =\n\
             auth_type = {}\n\
             auth_file = {}\n\
             admin_users = {}\n\
             pool_mode = transaction\n\
             default_pool_size = {}\n\
             max_client_conn = {}\n\
             server_tls_sslmode = {}\n\
             log_connections = 0\n\
             log_disconnections = 0\n\
             {}",
            self.server_port,
            self.role.map_or(String::new(), |role| format!(" user={role}")),
            self.auth_type,
            self.users.display(),
            self.admin,
            self.pool_size.div_ceil(count).max(1),
            self.clients_max,
            if self.server_tls { "require" } else { "disable" },
            self.more,
            database = self.database,
        );
        if prepares {
            text.push_str(&format!("max_prepared_statements = {PREPARED_STATEMENTS_MAX}\n"));
        }
        if count > 1 {
            text.push_str("so_reuseport = 1\n");
        }
        text
    }
}

/// Poolers of one port. Dropping them ends them.
pub struct Started {
    pub port: u16,
    /// As others may read it.
    pub configuration: String,
    pub running: Vec<Running>,
}

/// Starts so many processes, which share a port, and waits until they listen.
pub fn start(name: &str, program: &Program, count: u32, settings: &Settings, stage: &Stage) -> Result<Started> {
    let path = stage.account.reachable(&program.path, stage.directory)?;
    let port = free_port()?;
    let text = settings.ini(port, count, program.prepares);
    let mut running = Vec::new();
    for number in 0..count {
        let stem = format!("{}-{port}-{number}", name.replace(' ', "-"));
        let ini = stage.write(&format!("{stem}.ini"), &text)?;
        let mut command = stage.account.command(&path, stage.directory);
        command.arg(&ini);
        let mut process = Running::start(name, command, stage.directory.join(format!("{stem}.log")), STOP)?;
        process.wait_until_listening(port, stage.interrupt)?;
        running.push(process);
    }
    // One of a fleet answers for all; if the others cannot be seen, they have had their time.
    let all = || Ok((descriptors::listeners(port).len() >= running.len()).then_some(()));
    stage.interrupt.wait_for(FLEET_PATIENCE, all)?;
    Ok(Started { port, configuration: stage.without_paths(&text), running })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings<'static> {
        Settings {
            database: "d",
            server_port: 2,
            role: None,
            admin: "a",
            auth_type: "trust",
            users: Path::new("users.txt"),
            pool_size: 10,
            clients_max: 4,
            server_tls: false,
            more: "driver = epoll\n",
        }
    }

    #[test]
    fn a_fleet_shares_its_port_and_its_servers() {
        let text = settings().ini(1, 4, false);
        assert!(text.contains("default_pool_size = 3\n") && text.ends_with("so_reuseport = 1\n"), "{text}");
        let alone = settings().ini(1, 1, true);
        assert!(alone.contains("default_pool_size = 10\n") && alone.ends_with("max_prepared_statements = 200\n"));
        assert!(!alone.contains("so_reuseport") && alone.contains("\ndriver = epoll\n"), "{alone}");
    }

    #[test]
    fn settings_say_as_whom_and_how_the_server_is_reached() {
        assert!(settings().ini(1, 1, true).contains("\nd = host=127.0.0.1 port=2 dbname=d\n"));
        let text = Settings { role: Some("r"), server_tls: true, ..settings() }.ini(1, 1, true);
        assert!(text.contains(" dbname=d user=r\n") && text.contains("server_tls_sslmode = require\n"), "{text}");
    }

    #[test]
    fn prepared_statements_are_asked_for_where_they_work() {
        assert_eq!(version_number("PgBouncer 1.18.0"), Some((1, 18)));
        assert!(version_number("PgBouncer 1.25.2") >= Some(PREPARES_SINCE));
        assert_eq!(version_number("PgBouncer"), None);
    }
}
