//! What `weir dev` prints: the lines to paste, what to expect, how to stop.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weir_pg::{Cluster, SUPERUSER};

use super::files::Files;

/// All that the first screen tells.
pub(super) struct Screen<'a> {
    pub(super) address: SocketAddr,
    pub(super) cluster: &'a Cluster,
    pub(super) files: &'a Files,
    pub(super) ephemeral: bool,
}

impl fmt::Display for Screen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = |database| url(self.address, self.cluster.password(), database);
        writeln!(
            f,
            "\nWeir {} pools on {} in transaction mode, in front of PostgreSQL {}.\n",
            env!("CARGO_PKG_VERSION"),
            self.address,
            self.cluster.installation().version()
        )?;
        writeln!(f, "  psql:         psql {}", url("postgres"))?;
        writeln!(f, "  applications: {}", url("postgres"))?;
        writeln!(f, "  console:      psql {} -c 'SHOW POOLS'", url("pgbouncer"))?;
        writeln!(f, "  past Weir:    psql {}", self.cluster.url("postgres"))?;
        let kept = if self.ephemeral { "thrown away at the end" } else { "kept" };
        writeln!(f, "  data:         {} ({kept})", self.cluster.data_dir().display())?;
        writeln!(f, "  settings:     {}", self.files.ini().display())?;
        writeln!(f, "  logs:         {}, {}", self.files.log().display(), self.cluster.log().display())?;
        writeln!(f, "\n{SESSION_STATE}")?;
        if !self.address.ip().is_loopback() {
            writeln!(f, "\n{OPEN}")?;
        }
        writeln!(f, "\nCtrl-C stops both.")
    }
}

const SESSION_STATE: &str = "\
A server is a client's for one transaction. SET, LISTEN and drivers' prepared statements follow the client to the next; while it
has a temporary table, an advisory lock or a PREPARE, its server stays with it: SHOW PINS on the console tells who keeps one.";

const OPEN: &str = "\
Whoever reaches this address and has the password above is superuser, and so runs programs here as the user that PostgreSQL
runs as (COPY ... TO PROGRAM). Passwords and data cross the network in clear text. Use it on networks that you trust.";

/// The last line.
pub(super) fn stopped(cluster: &Cluster, ephemeral: bool) -> String {
    if ephemeral {
        return "\nWeir and PostgreSQL have stopped; the data are thrown away.\n".to_owned();
    }
    format!("\nWeir and PostgreSQL have stopped; the data stay in {}.\n", cluster.data_dir().display())
}

fn url(address: SocketAddr, password: &str, database: &str) -> String {
    let address = SocketAddr::new(reachable(address.ip()), address.port());
    format!("postgres://{SUPERUSER}:{password}@{address}/{database}")
}

/// One listens on all addresses, but connects to one.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_one_that_connects() {
        let cases = [
            ("127.0.0.1:6432", "postgres://postgres:secret@127.0.0.1:6432/postgres"),
            ("0.0.0.0:6432", "postgres://postgres:secret@127.0.0.1:6432/postgres"),
            ("[::]:7000", "postgres://postgres:secret@[::1]:7000/postgres"),
        ];
        for (address, expected) in cases {
            assert_eq!(url(address.parse().unwrap(), "secret", "postgres"), expected);
        }
    }
}
