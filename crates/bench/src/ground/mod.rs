//! What every part stands on: programs, an account to run them, one PostgreSQL, a place for files.
//!
//! Does not know poolers or loads.

pub mod certificate;
pub mod cluster;

use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;
use weir_measure::ground::account::Account;
use weir_measure::ground::descriptors;
use weir_measure::ground::interrupt::Interrupt;
use weir_measure::pooler::Stage;

use certificate::Certificate;
use cluster::{Binaries, Cluster};

const LOGS: &str = "transactions";

pub struct Ground {
    // In the order in which they end: PostgreSQL before its directory.
    pub cluster: Cluster,
    pub binaries: Binaries,
    pub account: Account,
    pub certificate: Certificate,
    pub interrupt: Interrupt,
    directory: TempDir,
}

impl Ground {
    pub fn prepare(scale: u32, port: Option<u16>, interrupt: &Interrupt) -> Result<Ground> {
        descriptors::raise_limit()?;
        let binaries = Binaries::find()?;
        let account = Account::find()?;
        let directory = account.directory("weir-bench-")?;
        account.create_folder(&directory.path().join(LOGS))?;
        let certificate = Certificate::create(directory.path(), &account)?;
        eprintln!("preparing PostgreSQL ({})", binaries.version("postgres")?);
        let settings = cluster::Settings { scale, port, certificate: &certificate };
        let cluster = Cluster::start(&settings, &binaries, &account, directory.path(), interrupt)?;
        Ok(Ground { cluster, binaries, account, certificate, interrupt: interrupt.clone(), directory })
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where pgbench puts its logs of transactions: the account's own.
    pub fn logs(&self) -> PathBuf {
        self.directory().join(LOGS)
    }

    /// Where poolers run.
    pub fn stage(&self) -> Stage<'_> {
        Stage { account: &self.account, directory: self.directory(), interrupt: &self.interrupt }
    }
}
