//! What a user named by URL: looked at once, without changing anything.
//!
//! Knows how a pooler gives itself away; does not know what is measured.

use std::net::IpAddr;

use anyhow::{Context, Result};
use nix::ifaddrs::getifaddrs;
use nix::unistd::Pid;

use super::url::Url;
use super::{Kind, Target};
use crate::ground::{descriptors, family};
use crate::load::psql::Psql;

/// In transaction pooling all that is asked at once is answered by one server.
const QUESTION: &str = "select current_setting('server_version'), current_setting('server_version_num')::int / 10000, \
                        coalesce(inet_server_port()::text, current_setting('port')), coalesce(host(inet_server_addr()), '')";
/// The console that PgBouncer, and who follows it, answers as a database.
const CONSOLE: &str = "pgbouncer";

pub fn look(name: &str, url: &Url, psql: &Psql) -> Result<Target> {
    let answer = psql.run(url, QUESTION)?;
    let fields: Vec<&str> = answer.trim().split('|').collect();
    let [server, major, port, address] = fields[..] else {
        anyhow::bail!("{url} answers {:?} to a question about its version", answer.trim())
    };
    let server_port: u16 = port.parse().context("a server's port is a number")?;
    // A console is not everybody's to enter: without an answer it is unknown, not absent.
    let console = psql.run(&url.with_database(CONSOLE), "show version").ok().map(|text| text.trim().to_owned());
    let processes = if is_local(url) { descriptors::listeners(url.port()) } else { Vec::new() };
    let postmaster = processes.iter().copied().find(|pid| is_postmaster(*pid));
    let pooler_pids: Vec<Pid> = if postmaster.is_some() { Vec::new() } else { processes };
    let behind = || {
        let near = if address.is_empty() { is_local(url) } else { address.parse().is_ok_and(is_ours) };
        near.then(|| descriptors::listeners(server_port).into_iter().find(|pid| is_postmaster(*pid)))?
    };
    let pooler = console.filter(|version| !version.is_empty()).or_else(|| {
        let name = family::program_name(*pooler_pids.first()?)?;
        Some(format!("a process {name}"))
    });
    let other_port = (server_port != url.port()).then(|| format!("something before port {server_port}"));
    let server = format!("PostgreSQL {server}");
    Ok(Target {
        name: name.to_owned(),
        kind: Kind::Given,
        url: url.clone(),
        version: pooler.or(other_port).map_or(server.clone(), |pooler| format!("{pooler}, {server}")),
        server_major: major.parse().context("a server's version is a number")?,
        configuration: String::new(),
        postmaster: postmaster.or_else(behind),
        pooler_pids,
    })
}

/// Whether what listens there runs on this machine.
fn is_local(url: &Url) -> bool {
    match url.host() {
        None | Some("localhost") => true,
        Some(socket) if socket.starts_with('/') => true,
        Some(host) => host.parse().is_ok_and(is_ours),
    }
}

fn is_ours(address: IpAddr) -> bool {
    if address.is_loopback() {
        return true;
    }
    let Ok(interfaces) = getifaddrs() else { return false };
    let ours = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let four = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        four.or_else(|| Some(IpAddr::V6(address.as_sockaddr_in6()?.ip())))
    });
    ours.into_iter().any(|own| own == address)
}

/// The one of PostgreSQL's processes whose parent is not another of them.
fn is_postmaster(pid: Pid) -> bool {
    let is_postgres = |pid| family::program_name(pid).is_some_and(|name| name == "postgres" || name == "postmaster");
    is_postgres(pid) && !family::parent(pid).is_some_and(is_postgres)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_here_and_documentation_is_not() {
        for near in ["postgres://127.0.0.1/d", "postgres://localhost/d", "postgres://[::1]/d", "dbname=d", "host=/tmp"]
        {
            assert!(is_local(&near.parse().unwrap()), "{near}");
        }
        for far in ["postgres://192.0.2.1/d", "postgres://db.example/d"] {
            assert!(!is_local(&far.parse().unwrap()), "{far}");
        }
    }
}
