//! All that one experiment is measured on: servers and poolers of the lab's own, or what a user named.
//!
//! What the lab started ends with this value: poolers before servers. Does not know how measuring is done.

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

use super::pooler::{self, Pooler, Stage};
use super::{Kind, Needs, PoolerKind, Target, Whereabouts, cluster, given};
use crate::run::tools::Tools;
use weir_measure::journal::{Role, Sizes};
use weir_measure::server::{self, Server};
use weir_measure::url::Url;

/// The server itself, where there is only one version of it.
pub const DIRECT: &str = "direct";

pub struct Stand {
    // In the order in which they end.
    poolers: Vec<Place<Pooler>>,
    servers: Vec<Place<Server>>,
    pub targets: Vec<Target>,
    /// Targets that could not be had, and why.
    pub missing: Vec<(String, String)>,
}

/// Something that the lab started, under the name of its target.
struct Place<T> {
    name: String,
    /// Of `servers`: itself, or the one behind a pooler.
    server: usize,
    what: T,
}

impl Stand {
    /// The endpoints that a user named; one that does not answer is missing, and why.
    pub fn given(named: &[(String, Url)], tools: &Tools) -> Stand {
        let mut stand = Stand::empty();
        for (name, url) in named {
            match given::look(name, url, &tools.psql) {
                Ok(target) => stand.targets.push(target),
                Err(error) => stand.missing.push((name.clone(), format!("{error:#}"))),
            }
        }
        stand
    }

    /// Servers of these majors (none: the newest), and the poolers that the experiment needs before each.
    pub fn own(majors: &[u32], needs: &Needs, sizes: &Sizes, tools: &Tools) -> Result<Stand> {
        let mut stand = Stand::empty();
        let alone = majors.len() < 2;
        let majors: Vec<Option<u32>> =
            if majors.is_empty() { vec![None] } else { majors.iter().copied().map(Some).collect() };
        for major in majors {
            tools.interrupt.check()?;
            let name = major.filter(|_| !alone).map_or(DIRECT.to_owned(), |major| format!("PostgreSQL {major}"));
            let server = stand.start_server(major, needs, sizes, tools);
            tools.interrupt.check()?;
            match server {
                Ok(server) => stand.add_server(name.clone(), server),
                Err(error) => {
                    stand.missing.push((name, format!("{error:#}")));
                    continue;
                }
            }
            for kind in &needs.poolers {
                let pooler_name = pooler::name(*kind);
                let name = if alone { pooler_name.to_owned() } else { format!("{pooler_name}, {name}") };
                stand.add_pooler(name, *kind, needs.pool_size, tools)?;
            }
        }
        Ok(stand)
    }

    fn empty() -> Stand {
        Stand { poolers: Vec::new(), servers: Vec::new(), targets: Vec::new(), missing: Vec::new() }
    }

    fn start_server(&self, major: Option<u32>, needs: &Needs, sizes: &Sizes, tools: &Tools) -> Result<Server> {
        let server = cluster::start(major, needs, tools.machine.memory_mib)?;
        cluster::fill(&server, needs, sizes.scale, tools)?;
        Ok(server)
    }

    fn add_server(&mut self, name: String, server: Server) {
        self.targets.push(Target {
            name: name.clone(),
            kind: Kind::Server,
            role: Role::Server,
            place: Whereabouts::Here,
            url: server.url(),
            version: server.version(),
            server_major: server.major(),
            configuration: server.configuration(),
            pooler_pids: Vec::new(),
            postmasters: server.postmaster().into_iter().collect(),
        });
        self.servers.push(Place { name, server: self.servers.len(), what: server });
    }

    /// Before the last server. One that cannot be had, as a PgBouncer that is not installed, is missing.
    fn add_pooler(&mut self, name: String, kind: PoolerKind, pool_size: u32, tools: &Tools) -> Result<()> {
        let server = self.servers.last().context("a pooler stands before a server")?;
        let files = weir_measure::pooler::Stage {
            account: &tools.account,
            directory: tools.directory(),
            interrupt: &tools.interrupt,
        };
        let stage = Stage { files, weir: &tools.weir, cores: tools.machine.cores };
        let pooler = match Pooler::start(kind, server.what.port(), pool_size, &stage) {
            Ok(pooler) => pooler,
            Err(error) => {
                tools.interrupt.check()?;
                self.missing.push((name, format!("{error:#}")));
                return Ok(());
            }
        };
        self.targets.push(Target {
            name: name.clone(),
            kind: Kind::Pooler(kind),
            role: Role::Pooler,
            place: Whereabouts::Here,
            url: pooler.url(),
            version: format!("{}, {}", pooler.version, server.what.version()),
            server_major: server.what.major(),
            configuration: pooler.configuration().to_owned(),
            pooler_pids: pooler.pids(),
            postmasters: server.what.postmaster().into_iter().collect(),
        });
        self.poolers.push(Place { name, server: self.servers.len() - 1, what: pooler });
        Ok(())
    }

    /// The postmasters behind a target now: a restart changes them.
    pub fn postmasters(&self, target: &Target) -> Vec<Pid> {
        match self.server_of(&target.name) {
            Some(server) => self.servers[server].what.postmaster().into_iter().collect(),
            None => target.postmasters.clone(),
        }
    }

    /// The role whose server connections are this target's; `None` where all of them may be.
    pub fn role(target: &Target) -> Option<&'static str> {
        match target.kind {
            Kind::Server => Some(server::USER),
            Kind::Pooler(kind) => Some(pooler::role(kind)),
            Kind::Given => None,
        }
    }

    /// Restarts the server behind a target with these further lines, if it is ours.
    pub fn configure(&mut self, target: &Target, lines: &[String]) -> Result<()> {
        match self.server_of(&target.name) {
            Some(server) => self.servers[server].what.configure(lines),
            None => bail!("the server of {} is not the lab's own, and stays as it is", target.name),
        }
    }

    /// Whether what the lab started for this target still runs; an error says what has ended.
    pub fn check(&mut self, target: &Target) -> Result<()> {
        if let Some(pooler) = self.poolers.iter_mut().find(|place| place.name == target.name) {
            pooler.what.check()?;
        }
        match self.server_of(&target.name) {
            Some(server) => self.servers[server].what.check(),
            None => Ok(()),
        }
    }

    fn server_of(&self, name: &str) -> Option<usize> {
        let servers = self.servers.iter().map(|place| (&place.name, place.server));
        let mut places = servers.chain(self.poolers.iter().map(|place| (&place.name, place.server)));
        places.find(|(known, _)| *known == name).map(|(_, server)| server)
    }
}
