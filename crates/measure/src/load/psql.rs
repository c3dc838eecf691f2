//! psql: statements in one session, and what they answer.
//!
//! Knows psql's options; does not know what is asked.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use super::programs;
use crate::ground::interrupt::Interrupt;
use crate::ground::running::{Running, last_lines};
use crate::url::Url;

/// Building an index, or touching a hundred thousand tables, takes minutes.
const PATIENCE: Duration = Duration::from_mins(60);
/// A host that drops packets shall not hold a run for minutes.
const CONNECT_TIMEOUT_SECONDS: &str = "15";

#[derive(Clone, Debug)]
pub struct Psql {
    program: PathBuf,
    directory: PathBuf,
    interrupt: Interrupt,
    patience: Duration,
}

impl Psql {
    /// The one of `PG_BIN`, of Debian's newest, or of `PATH`. Its files go to `directory`.
    pub fn find(directory: &Path, interrupt: &Interrupt) -> Result<Psql> {
        let program = programs::find("psql")
            .context("there is no psql in PG_BIN, on PATH or in /usr/lib/postgresql: install postgresql-client")?;
        Ok(Psql { program, directory: directory.to_path_buf(), interrupt: interrupt.clone(), patience: PATIENCE })
    }

    /// One that gives up after so long.
    pub fn patient(self, patience: Duration) -> Psql {
        Psql { patience, ..self }
    }

    /// One that goes on when somebody wants us to stop: for clearing away, with a short patience.
    pub fn heedless(self) -> Psql {
        Psql { interrupt: Interrupt::never(), ..self }
    }

    /// Whether every node answers; an error says which does not.
    pub fn check(&self, url: &Url) -> Result<()> {
        self.run_everywhere(url, "select 1").map(drop)
    }

    /// What every node answers, in their order. All are asked, whatever one of them says; the error has all that went wrong.
    pub fn run_everywhere(&self, url: &Url, sql: &str) -> Result<Vec<String>> {
        let answers: Vec<Result<String>> = url.nodes().iter().map(|node| self.run(node, sql)).collect();
        let errors = answers.iter().filter_map(|answer| answer.as_ref().err());
        let complaints: Vec<String> = errors.map(|error| format!("{error:#}")).collect();
        if !complaints.is_empty() {
            bail!("{}", complaints.join("; "));
        }
        answers.into_iter().collect()
    }

    /// What `psql -X -A -t -q` prints for these statements, all in one session; the first error ends it, and is ours. Of a
    /// cluster the first node is asked.
    pub fn run(&self, url: &Url, sql: &str) -> Result<String> {
        self.interrupt.check()?;
        let url = url.first_node();
        let script = self.directory.join("statements.sql");
        fs::write(&script, sql).with_context(|| format!("cannot write {}", script.display()))?;
        let mut command = Command::new(&self.program);
        command.current_dir(&self.directory).stdin(Stdio::null()).process_group(0);
        command.env("LC_ALL", "C").env("PGCONNECT_TIMEOUT", CONNECT_TIMEOUT_SECONDS);
        url.give_password(&mut command);
        command.args(["-X", "-A", "-t", "-q", "-w", "-v", "ON_ERROR_STOP=1", "-d", &url.conninfo(), "-f"]).arg(script);
        let complaints = self.directory.join("psql.errors");
        let answers = self.directory.join("psql.log");
        // On SIGINT psql cancels what it asked for; ended otherwise it would leave the server at work on it.
        let mut running = Running::start_apart("psql", command, answers, &complaints, Signal::SIGINT)?;
        let status = self.interrupt.wait_for(self.patience, || running.ended())?;
        let complaint = || url.hide_password(&last_lines(&fs::read_to_string(&complaints).unwrap_or_default()));
        match status {
            Some(status) if status.success() => Ok(running.output()),
            Some(_) => bail!("{url} answers: {}", complaint()),
            None => bail!("{url} does not answer within {} seconds", self.patience.as_secs()),
        }
    }
}
