//! What every experiment of a run uses: programs, an account to run servers, a directory for files, the machine.
//!
//! Does not know experiments or targets.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tempfile::TempDir;

use crate::ground::account::Account;
use crate::ground::descriptors;
use crate::ground::interrupt::Interrupt;
use crate::ground::machine::Machine;
use crate::load::pgbench::Pgbench;
use crate::load::psql::Psql;

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
