//! A pooler that runs already: `NAME=PORT`, or `PEER_NAME=PORT` in the environment.
//!
//! It serves database and user `bench` without a password, from the PostgreSQL of this run (`PG_PORT`). Whose CPU and
//! memory count is found by its port, or given behind a colon.

use std::env;
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail};
use nix::unistd::Pid;

use weir_measure::ground::descriptors;

const VARIABLE: &str = "PEER_";

#[derive(Clone, Debug, PartialEq)]
pub struct External {
    pub name: String,
    pub port: u16,
    given: Vec<Pid>,
}

impl External {
    pub fn pids(&self) -> Vec<Pid> {
        if self.given.is_empty() { descriptors::listeners(self.port) } else { self.given.clone() }
    }

    /// `PEER_odyssey=6433` in the environment is a peer named odyssey.
    pub fn of_environment() -> Result<Vec<External>> {
        let named = env::vars().filter_map(|(key, value)| Some((key.strip_prefix(VARIABLE)?.to_owned(), value)));
        let mut externals = named
            .map(|(name, place)| format!("{name}={place}").parse().with_context(|| format!("{VARIABLE}{name}={place}")))
            .collect::<Result<Vec<External>>>()?;
        externals.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(externals)
    }
}

impl FromStr for External {
    type Err = Error;

    fn from_str(text: &str) -> Result<External> {
        let (name, place) = text.split_once('=').context("expected NAME=PORT or NAME=PORT:PID,PID")?;
        let (port, pids) = place.split_once(':').unwrap_or((place, ""));
        if name.is_empty() {
            bail!("the peer has no name");
        }
        let port = port.parse().context("the port is not a number")?;
        let pids = pids.split(',').filter(|pid| !pid.is_empty());
        let given = pids
            .map(|pid| Ok(Pid::from_raw(pid.parse::<i32>().context("the pid is not a number")?)))
            .collect::<Result<_>>()?;
        Ok(External { name: name.to_owned(), port, given })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_external_peer_is_name_port_and_maybe_pids() {
        let with_pids: External = "odyssey=6433:17,18".parse().unwrap();
        let given = vec![Pid::from_raw(17), Pid::from_raw(18)];
        assert_eq!(with_pids, External { name: "odyssey".to_owned(), port: 6433, given: given.clone() });
        assert_eq!(with_pids.pids(), given);
        assert!("x=1".parse::<External>().unwrap().given.is_empty());
        assert!("x".parse::<External>().is_err());
        assert!("x=y:1".parse::<External>().is_err());
        assert!("=1".parse::<External>().is_err());
    }
}
