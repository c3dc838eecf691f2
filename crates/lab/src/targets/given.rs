//! What a user named by URL: looked at once, without changing anything.
//!
//! Knows how a pooler gives itself away; does not know what is measured.

use std::net::{IpAddr, ToSocketAddrs};

use anyhow::{Context, Result};
use nix::ifaddrs::getifaddrs;
use nix::unistd::Pid;

use super::{Kind, Target, Whereabouts};
use weir_measure::ground::{descriptors, family};
use weir_measure::journal::Role;
use weir_measure::load::psql::Psql;
use weir_measure::url::Url;

/// In transaction pooling all that is asked at once is answered by one server.
const QUESTION: &str = "select current_setting('server_version'), current_setting('server_version_num')::int / 10000, \
                        coalesce(inet_server_port()::text, current_setting('port')), coalesce(host(inet_server_addr()), '')";
/// The console that PgBouncer, and who follows it, answers as a database.
const CONSOLE: &str = "pgbouncer";

/// Programs that are poolers, also where they do not let us into their console.
pub const POOLERS: [&str; 6] = ["pgbouncer", "weir", "odyssey", "pgcat", "pgagroal", "pgpool"];

/// Every node of a cluster must answer: measured without one it would be another cluster.
pub fn look(name: &str, url: &Url, psql: &Psql) -> Result<Target> {
    let nodes: Vec<Node> = url.nodes().iter().map(|node| Node::look(node, psql)).collect::<Result<_>>()?;
    let mut versions: Vec<&str> = nodes.iter().map(|node| node.version.as_str()).collect();
    versions.dedup();
    let mut version = versions.join(", ");
    if nodes.len() > 1 {
        version.push_str(&format!(" ({} nodes)", nodes.len()));
    }
    let first_role = nodes.first().map_or(Role::Given, |node| node.role);
    let parts: Vec<bool> = nodes.iter().flat_map(|node| node.parts_here.clone()).collect();
    Ok(Target {
        name: name.to_owned(),
        kind: Kind::Given,
        role: if nodes.iter().all(|node| node.role == first_role) { first_role } else { Role::Given },
        place: Whereabouts::of(&parts),
        url: url.clone(),
        version,
        server_major: nodes.first().map_or(0, |node| node.server_major),
        configuration: String::new(),
        pooler_pids: of_all(&nodes, |node| node.pooler_pids.clone()),
        postmasters: of_all(&nodes, |node| node.postmaster.into_iter().collect()),
    })
}

/// None unless every node has some: figures of a part would be taken for those of all. Each once, where nodes share one.
fn of_all(nodes: &[Node], pids: impl Fn(&Node) -> Vec<Pid>) -> Vec<Pid> {
    let all: Vec<Vec<Pid>> = nodes.iter().map(pids).collect();
    if all.iter().any(Vec::is_empty) {
        return Vec::new();
    }
    let mut all = all.concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// What answers at one endpoint.
struct Node {
    version: String,
    role: Role,
    /// The server, and the pooler before it if there is one.
    parts_here: Vec<bool>,
    server_major: u32,
    pooler_pids: Vec<Pid>,
    postmaster: Option<Pid>,
}

impl Node {
    fn look(url: &Url, psql: &Psql) -> Result<Node> {
        let answer = psql.run(url, QUESTION)?;
        let fields: Vec<&str> = answer.trim().split('|').collect();
        let [server, major, port, address] = fields[..] else {
            anyhow::bail!("{url} answers {:?} to a question about its version", answer.trim())
        };
        let server_port: u16 = port.parse().context("a server's port is a number")?;
        let address: Option<IpAddr> = address.parse().ok();
        // A console is not everybody's to enter: without an answer it is unknown, not absent.
        let console = psql.run(&url.with_database(CONSOLE), "show version").ok().map(|text| text.trim().to_owned());
        let console = console.filter(|version| !version.is_empty());
        let listeners = if is_local(url) { descriptors::listeners(url.port()) } else { Vec::new() };
        let listening = listeners.iter().copied().find(|pid| is_postmaster(*pid));
        // What else listens may be a tunnel, or a container's door.
        let is_pooler =
            |pid: &Pid| console.is_some() || family::program_name(*pid).is_some_and(|name| POOLERS.contains(&&*name));
        let pooler_pids: Vec<Pid> =
            if listening.is_some() { Vec::new() } else { listeners.into_iter().filter(is_pooler).collect() };
        let itself = server_port == url.port() && address.is_some_and(|address| resolves_to(url, address));
        let role = if console.is_some() || !pooler_pids.is_empty() {
            Role::Pooler
        } else if listening.is_some() || itself {
            Role::Server
        } else {
            Role::Given
        };
        let near = address.map_or_else(|| is_local(url), is_ours);
        let behind =
            || near.then(|| descriptors::listeners(server_port).into_iter().find(|pid| is_postmaster(*pid)))?;
        let postmaster = listening.or_else(behind);
        let mut parts_here = vec![postmaster.is_some() || itself && near];
        if role == Role::Pooler {
            parts_here.push(!pooler_pids.is_empty());
        }
        let pooler = console.or_else(|| Some(format!("a process {}", family::program_name(*pooler_pids.first()?)?)));
        let other_port = (server_port != url.port()).then(|| format!("something before port {server_port}"));
        let server = format!("PostgreSQL {server}");
        Ok(Node {
            version: pooler.or(other_port).map_or(server.clone(), |pooler| format!("{pooler}, {server}")),
            role,
            parts_here,
            server_major: major.parse().context("a server's version is a number")?,
            postmaster,
            pooler_pids,
        })
    }
}

/// Whether the server says that it has the address at which we reached something.
fn resolves_to(url: &Url, address: IpAddr) -> bool {
    let addresses = url.host().and_then(|host| (host, url.port()).to_socket_addrs().ok());
    addresses.into_iter().flatten().any(|resolved| resolved.ip() == address)
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

    #[test]
    fn figures_of_processes_are_of_all_nodes_or_none() {
        let node = |pids: &[i32]| Node {
            version: String::new(),
            role: Role::Pooler,
            parts_here: vec![true, !pids.is_empty()],
            server_major: 18,
            pooler_pids: pids.iter().map(|pid| Pid::from_raw(*pid)).collect(),
            postmaster: Some(Pid::from_raw(7)),
        };
        let pids = |nodes: &[Node]| of_all(nodes, |node| node.pooler_pids.clone()).len();
        assert_eq!((pids(&[node(&[1, 2]), node(&[3])]), pids(&[node(&[1]), node(&[])])), (3, 0));
        let postmasters = of_all(&[node(&[1]), node(&[2])], |node| node.postmaster.into_iter().collect());
        assert_eq!(postmasters, [Pid::from_raw(7)], "two poolers before one server");
        let places = [&[true, true][..], &[true, false], &[false]].map(Whereabouts::of);
        assert_eq!(places, [Whereabouts::Here, Whereabouts::Partly, Whereabouts::Elsewhere]);
    }

    #[test]
    fn a_server_is_known_by_its_address() {
        let reached = |text: &str, address: &str| resolves_to(&text.parse().unwrap(), address.parse().unwrap());
        assert!(reached("postgres://127.0.0.1/d", "127.0.0.1") && reached("postgres://[::1]/d", "::1"));
        assert!(!reached("postgres://127.0.0.1/d", "172.17.0.2") && !reached("dbname=d", "127.0.0.1"));
    }
}
