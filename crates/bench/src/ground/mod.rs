//! What every part stands on: programs, an account to run them, one PostgreSQL with its tables, a place for files.
//!
//! Does not know poolers or loads.

pub mod certificate;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;
use weir_measure::ground::account::Account;
use weir_measure::ground::descriptors;
use weir_measure::ground::interrupt::Interrupt;
use weir_measure::load::pgbench::Pgbench;
use weir_measure::load::psql::Psql;
use weir_measure::pooler::Stage;
use weir_measure::server::{Server, Wanted};
use weir_measure::url::Url;

use certificate::Certificate;

pub const USER: &str = "bench";
pub const DATABASE: &str = "bench";
/// What clients send where a password is asked for; PostgreSQL itself trusts everybody on the loopback.
pub const PASSWORD: &str = "a benchmark's password";
pub const ROWS_PER_SCALE: u32 = 100_000;

pub struct Ground {
    // In the order in which they end: PostgreSQL before its directory.
    pub server: Server,
    /// pgbench's: so many times 100 000 accounts.
    pub scale: u32,
    pub pgbench: Pgbench,
    pub account: Account,
    pub certificate: Certificate,
    pub interrupt: Interrupt,
    directory: TempDir,
}

impl Ground {
    /// On a free port unless poolers that run already need to know it.
    pub fn prepare(scale: u32, port: Option<u16>, interrupt: &Interrupt) -> Result<Ground> {
        descriptors::raise_limit()?;
        let account = Account::find()?;
        let directory = account.directory("weir-bench-")?;
        let pgbench = Pgbench::find(None, directory.path(), interrupt)?;
        let certificate = Certificate::create(directory.path(), &account)?;
        let folder = env::var_os("PG_BIN").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let wanted = folder.map_or(Wanted::Newest, Wanted::Folder);
        let server = Server::start(wanted, port, settings(&certificate))?;
        eprintln!("preparing {}", server.version());
        let roles = format!("create role {USER} superuser login; create database {DATABASE} owner {USER};");
        Psql::find(directory.path(), interrupt)?.run(&server.url(), &roles).context("the new cluster")?;
        let interrupt = interrupt.clone();
        let ground = Ground { server, scale, pgbench, account, certificate, interrupt, directory };
        ground.pgbench.make_tables(&ground.url(ground.server.port()), scale)?;
        Ok(ground)
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where poolers run.
    pub fn stage(&self) -> Stage<'_> {
        Stage { account: &self.account, directory: self.directory(), interrupt: &self.interrupt }
    }

    /// The tables behind an endpoint of this run.
    pub fn url(&self, port: u16) -> Url {
        Url::loopback(port, USER, DATABASE)
    }
}

fn settings(Certificate { certificate, key }: &Certificate) -> Vec<String> {
    let (certificate, key) = (certificate.display(), key.display());
    let files = [format!("ssl_cert_file = '{certificate}'"), format!("ssl_key_file = '{key}'")];
    let lines = ["max_connections = 300", "shared_buffers = '128MB'", "ssl = on"].map(str::to_owned);
    lines.into_iter().chain(files).collect()
}
