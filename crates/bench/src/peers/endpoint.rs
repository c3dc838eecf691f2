//! An endpoint that is measured: a port, and the processes behind it whose cost counts.
//!
//! Does not know the workload.

use std::time::Duration;

use anyhow::Result;
use nix::unistd::Pid;

use super::external::External;
use super::{DIRECT, OURS};
use crate::ground::Ground;
use weir_measure::ground::process::{self, Memory};
use weir_measure::ground::running::Running;
use weir_measure::journal::Role;
use weir_measure::pooler::Started;

pub struct Endpoint {
    pub name: String,
    pub role: Role,
    pub port: u16,
    /// Empty for direct connections, which have no pooler.
    pub pids: Vec<Pid>,
    /// Whether protocol-level prepared statements work.
    pub prepares: bool,
    pub version: String,
    pub configuration: String,
    /// Dropping them ends them; empty for what somebody else started.
    _running: Vec<Running>,
}

impl Endpoint {
    pub fn direct(ground: &Ground) -> Endpoint {
        Endpoint {
            name: DIRECT.to_owned(),
            role: Role::Server,
            port: ground.server.port(),
            pids: Vec::new(),
            prepares: true,
            version: ground.server.version(),
            configuration: ground.stage().without_paths(&ground.server.configuration()),
            _running: Vec::new(),
        }
    }

    pub fn external(external: &External) -> Endpoint {
        Endpoint {
            name: external.name.clone(),
            role: Role::Given,
            port: external.port,
            pids: external.pids(),
            prepares: true,
            version: "running already".to_owned(),
            configuration: String::new(),
            _running: Vec::new(),
        }
    }

    pub fn started(name: &str, version: &str, prepares: bool, started: Started) -> Endpoint {
        Endpoint {
            name: name.to_owned(),
            role: Role::Pooler,
            port: started.port,
            pids: started.running.iter().map(Running::pid).collect(),
            prepares,
            version: version.to_owned(),
            configuration: started.configuration,
            _running: started.running,
        }
    }

    pub fn named(mut self, name: &str) -> Endpoint {
        name.clone_into(&mut self.name);
        self
    }

    pub fn is_direct(&self) -> bool {
        self.name == DIRECT
    }

    pub fn is_ours(&self) -> bool {
        self.name.starts_with(OURS)
    }

    /// The CPU time that all its processes have used so far.
    pub fn cpu_time(&self) -> Result<Option<Duration>> {
        let times = self.pids.iter().map(|pid| process::cpu_time(*pid));
        let sum = times.sum::<Result<Duration>>()?;
        Ok((!self.pids.is_empty()).then_some(sum))
    }

    pub fn memory(&self) -> Result<Option<Memory>> {
        let sum = self.pids.iter().map(|pid| process::memory(*pid)).sum::<Result<Memory>>()?;
        Ok((!self.pids.is_empty()).then_some(sum))
    }
}
