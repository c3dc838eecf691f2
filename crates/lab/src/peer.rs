//! A peer: an endpoint that is measured beside others.
//!
//! Knows its port and, for a pooler on this machine, its process; does not know the workload.

use std::str::FromStr;

use anyhow::{Context, Error, Result};
use nix::unistd::Pid;

use crate::pooler::{Pooler, Started};

pub struct Peer {
    pub name: String,
    pub port: u16,
    /// Whose CPU time and memory are measured; direct connections have no pooler.
    pub pid: Option<Pid>,
    pub prepares: bool,
    /// `None` for what somebody else started.
    pub pooler: Option<Pooler>,
    pub started: Option<Started>,
}

impl Peer {
    pub fn direct(port: u16) -> Peer {
        Peer { name: "direct".to_owned(), port, pid: None, prepares: true, pooler: None, started: None }
    }

    pub fn pooler(pooler: Pooler, started: Started) -> Peer {
        Peer {
            name: pooler.name.clone(),
            port: started.port,
            pid: Some(started.running.pid()),
            prepares: pooler.prepares,
            pooler: Some(pooler),
            started: Some(started),
        }
    }

    pub fn external(external: &External) -> Peer {
        let External { name, port, pid } = external.clone();
        Peer { name, port, pid, prepares: true, pooler: None, started: None }
    }
}

/// `NAME=PORT[:PID]`: a pooler that runs already, with database and user `bench` on PostgreSQL of its own choice.
#[derive(Clone, Debug, PartialEq)]
pub struct External {
    pub name: String,
    pub port: u16,
    pub pid: Option<Pid>,
}

impl FromStr for External {
    type Err = Error;

    fn from_str(text: &str) -> Result<External> {
        let (name, place) = text.split_once('=').context("expected NAME=PORT or NAME=PORT:PID")?;
        let (port, pid) = match place.split_once(':') {
            Some((port, pid)) => (port, Some(pid.parse::<i32>().context("the pid is not a number")?)),
            None => (place, None),
        };
        let port = port.parse().context("the port is not a number")?;
        Ok(External { name: name.to_owned(), port, pid: pid.map(Pid::from_raw) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_external_peer_is_name_port_and_maybe_pid() {
        let with_pid: External = "odyssey=6433:17".parse().unwrap();
        assert_eq!(with_pid, External { name: "odyssey".to_owned(), port: 6433, pid: Some(Pid::from_raw(17)) });
        assert_eq!("x=1".parse::<External>().unwrap().pid, None);
        assert!("x".parse::<External>().is_err());
        assert!("x=y:1".parse::<External>().is_err());
    }
}
