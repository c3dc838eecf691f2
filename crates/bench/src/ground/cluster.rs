//! A PostgreSQL cluster of our own: found binaries, a temporary data directory, a free port on the loopback.
//!
//! Knows initdb, postgres and pgbench's tables; does not know who will connect.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use super::certificate::Certificate;
use weir_measure::ground::account::Account;
use weir_measure::ground::interrupt::Interrupt;
use weir_measure::ground::running::{Running, free_port, run_to_end};
use weir_measure::load::programs;

pub const USER: &str = "bench";
pub const DATABASE: &str = "bench";
/// What clients send where a password is asked for; PostgreSQL itself trusts everybody on the loopback.
pub const PASSWORD: &str = "a benchmark's password";
pub const ROWS_PER_SCALE: u32 = 100_000;

const DEBIAN_ROOT: &str = "/usr/lib/postgresql";
const START_PATIENCE: Duration = Duration::from_secs(20);
const PREPARE_PATIENCE: Duration = Duration::from_secs(180);

/// Where initdb, postgres and pgbench are.
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// `PG_BIN`, else the newest of Debian's.
    pub fn find() -> Result<Binaries> {
        let directory = match env::var_os("PG_BIN") {
            Some(directory) => PathBuf::from(directory),
            None => newest_debian().with_context(|| {
                format!("no PostgreSQL in {DEBIAN_ROOT}/*/bin: install postgresql, or set PG_BIN to its bin directory")
            })?,
        };
        for program in ["initdb", "postgres", "pgbench", "psql"] {
            if !directory.join(program).is_file() {
                bail!("{} has no {program}", directory.display());
            }
        }
        Ok(Binaries { directory })
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn version(&self, name: &str) -> Result<String> {
        programs::version(&self.program(name))
    }
}

fn newest_debian() -> Option<PathBuf> {
    let directories = fs::read_dir(DEBIAN_ROOT).ok()?.flatten();
    let versions = directories.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let usable = versions.filter(|version| binary_directory(*version).join("postgres").is_file());
    usable.max().map(binary_directory)
}

fn binary_directory(version: u32) -> PathBuf {
    Path::new(DEBIAN_ROOT).join(version.to_string()).join("bin")
}

pub struct Settings<'a> {
    /// pgbench's: so many times 100 000 accounts.
    pub scale: u32,
    /// A free one unless poolers that run already need to know it.
    pub port: Option<u16>,
    pub certificate: &'a Certificate,
}

pub struct Cluster {
    pub port: u16,
    pub scale: u32,
    pub configuration: String,
    _postgres: Running,
}

impl Cluster {
    /// Creates, starts and fills a cluster inside `directory`, which must outlive it.
    pub fn start(
        settings: &Settings,
        binaries: &Binaries,
        account: &Account,
        directory: &Path,
        interrupt: &Interrupt,
    ) -> Result<Cluster> {
        let data = directory.join("data");
        account.create_folder(&data)?;
        let mut initdb = account.command(binaries.program("initdb"), directory);
        initdb.arg("-D").arg(&data).args(["-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]);
        run_to_end("initdb", initdb, directory, PREPARE_PATIENCE, interrupt)?;

        let port = settings.port.map_or_else(free_port, Ok)?;
        let configuration = configuration(port, settings.certificate);
        account.write(&data.join("postgresql.auto.conf"), &configuration)?;
        let mut postgres = account.command(binaries.program("postgres"), directory);
        postgres.arg("-D").arg(&data);
        // SIGINT is PostgreSQL's fast shutdown: it rolls back and closes every session.
        let mut postgres = Running::start("postgres", postgres, directory.join("postgres.log"), Signal::SIGINT)?;
        postgres.wait_until_listening(port, interrupt)?;
        let cluster = Cluster { port, scale: settings.scale, configuration, _postgres: postgres };
        cluster.fill(binaries, account, directory, interrupt)?;
        Ok(cluster)
    }

    fn fill(&self, binaries: &Binaries, account: &Account, directory: &Path, interrupt: &Interrupt) -> Result<()> {
        let port = self.port.to_string();
        let endpoint = ["-h", "127.0.0.1", "-p", &port, "-U", USER];
        let mut psql = account.command(binaries.program("psql"), directory);
        psql.args(endpoint).args(["-X", "-d", "postgres", "-c", &format!("create database {DATABASE}")]);
        // The port is open before recovery has ended, so the first tries may be told that the server is starting.
        let created = interrupt.wait_for(START_PATIENCE, || {
            Ok(psql.output().context("cannot run psql")?.status.success().then_some(()))
        })?;
        created.context("the new cluster accepts no connection")?;
        let mut pgbench = account.command(binaries.program("pgbench"), directory);
        pgbench.args(endpoint).args(["-i", "-q", "-s", &self.scale.to_string(), DATABASE]);
        run_to_end("pgbench-initialise", pgbench, directory, PREPARE_PATIENCE, interrupt).map(drop)
    }
}

/// Data safety is off, since disks are not what is compared.
fn configuration(port: u16, certificate: &Certificate) -> String {
    format!(
        "listen_addresses = '127.0.0.1'\n\
         port = {port}\n\
         unix_socket_directories = ''\n\
         max_connections = 300\n\
         shared_buffers = '128MB'\n\
         fsync = off\n\
         autovacuum = off\n\
         ssl = on\n\
         ssl_cert_file = '{}'\n\
         ssl_key_file = '{}'\n",
        certificate.certificate.display(),
        certificate.key.display()
    )
}
