//! What every experiment of a run uses: programs, an account to run servers, a directory for files, the machine.
//!
//! Does not know experiments or targets.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;

use weir_measure::ground::account::Account;
use weir_measure::ground::descriptors;
use weir_measure::ground::interrupt::Interrupt;
use weir_measure::ground::machine::Machine;
use weir_measure::load::pgbench::Pgbench;
use weir_measure::load::psql::Psql;

pub struct Tools {
    pub pgbench: Pgbench,
    pub psql: Psql,
    pub account: Account,
    pub interrupt: Interrupt,
    pub machine: Machine,
    /// Weir's program.
    pub weir: PathBuf,
    directory: TempDir,
}

impl Tools {
    pub fn find(pgbench: Option<&Path>, weir: &Path, interrupt: &Interrupt) -> Result<Tools> {
        descriptors::raise_limit()?;
        let account = Account::find()?;
        let directory = account.directory("weir-lab-")?;
        Ok(Tools {
            pgbench: Pgbench::find(pgbench, directory.path(), interrupt)?,
            psql: Psql::find(directory.path(), interrupt)?,
            account,
            interrupt: interrupt.clone(),
            machine: Machine::describe(),
            weir: weir.to_path_buf(),
            directory,
        })
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}
