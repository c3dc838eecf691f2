//! A PostgreSQL of our own: started, restarted with other settings, and gone with the value.
//!
//! Knows `weir-pg`; does not know what is measured.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

use crate::url::Url;

pub const USER: &str = weir_pg::SUPERUSER;
pub const DATABASE: &str = "postgres";

const NEWEST: u32 = weir_pg::KNOWN_MAJORS[weir_pg::KNOWN_MAJORS.len() - 1];
/// Everybody on the loopback is trusted: the cluster lives for one run and holds nobody's data.
const TRUST: &str = "host all all 127.0.0.1/32 trust";
/// Neither disks nor housekeeping are what is measured.
const SETTINGS: [&str; 4] =
    ["autovacuum = off", "max_wal_size = '4GB'", "checkpoint_timeout = '1h'", "log_min_messages = 'fatal'"];

/// Which PostgreSQL.
pub enum Wanted {
    /// The newest that can be had.
    Newest,
    Major(u32),
    /// Whose programs are here.
    Folder(PathBuf),
}

pub struct Server {
    cluster: weir_pg::Cluster,
    /// What its user needs; a measurement may add to them.
    needed: Vec<String>,
    added: Vec<String>,
}

impl Server {
    /// With these lines of `postgresql.conf` beyond those of every measurement, and on this port, or a free one.
    pub fn start(wanted: Wanted, port: Option<u16>, settings: Vec<String>) -> Result<Server> {
        let say = |line: &str| eprintln!("{line}");
        let installation = match wanted {
            Wanted::Newest => weir_pg::Installation::preferably(NEWEST, &say)?,
            Wanted::Major(major) => weir_pg::Installation::of_major(major, &say)?,
            Wanted::Folder(bin) => weir_pg::Installation::in_folder(&bin)
                .with_context(|| format!("{} has no PostgreSQL that runs", bin.display()))?,
        };
        let needed: Vec<String> = SETTINGS.map(str::to_owned).into_iter().chain(settings).collect();
        let options = weir_pg::Options {
            port,
            settings: needed.clone(),
            hba: vec![TRUST.to_owned()],
            ..weir_pg::Options::default()
        };
        let cluster = weir_pg::Cluster::start(&installation, options)?;
        Ok(Server { cluster, needed, added: Vec::new() })
    }

    pub fn url(&self) -> Url {
        Url::loopback(self.cluster.port(), USER, DATABASE)
    }

    pub fn port(&self) -> u16 {
        self.cluster.port()
    }

    pub fn major(&self) -> u32 {
        self.cluster.installation().major()
    }

    pub fn version(&self) -> String {
        format!("PostgreSQL {}", self.cluster.installation().version())
    }

    pub fn postmaster(&self) -> Option<Pid> {
        Some(Pid::from_raw(i32::try_from(self.cluster.pid()?).ok()?))
    }

    /// Lines of `postgresql.conf` beyond the defaults, those of `weir-pg` for a cluster to throw away among them.
    pub fn configuration(&self) -> String {
        let thrown_away = ["fsync = off", "full_page_writes = off", "synchronous_commit = off"].map(str::to_owned);
        let lines: Vec<String> = thrown_away.iter().chain(&self.needed).chain(&self.added).cloned().collect();
        lines.join("\n")
    }

    /// Restarts with these lines beyond those that its user needs, unless it runs with them already.
    pub fn configure(&mut self, added: &[String]) -> Result<()> {
        if self.added == added && self.cluster.has_ended().is_none() {
            return Ok(());
        }
        self.cluster.set_settings(self.needed.iter().chain(added).cloned().collect());
        added.clone_into(&mut self.added);
        self.cluster.restart().with_context(|| format!("with {}", added.join(", ")))
    }

    pub fn check(&mut self) -> Result<()> {
        match self.cluster.has_ended() {
            None => Ok(()),
            Some(how) => bail!("{} has ended: {how}", self.version()),
        }
    }
}
