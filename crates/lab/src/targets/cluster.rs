//! A PostgreSQL of the lab's own: started, filled, restarted with other settings, and gone with the value.
//!
//! Knows `weir-pg` and pgbench's tables; does not know what is measured.

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

use super::pooler;
use crate::experiment::{Needs, Tables};
use crate::run::tools::Tools;
use weir_measure::ground::running::run_to_end;
use weir_measure::url::Url;

pub const USER: &str = weir_pg::SUPERUSER;
pub const DATABASE: &str = "postgres";

const NEWEST: u32 = weir_pg::KNOWN_MAJORS[weir_pg::KNOWN_MAJORS.len() - 1];
/// Everybody on the loopback is trusted: the cluster lives for one experiment and holds nobody's data.
const TRUST: &str = "host all all 127.0.0.1/32 trust";
/// Loading a large scale takes long, and is not measured.
const FILL_PATIENCE: std::time::Duration = std::time::Duration::from_mins(120);
/// Neither disks nor housekeeping are what is measured. `shared_buffers` hold the tables at the usual scales.
const SETTINGS: [&str; 4] =
    ["autovacuum = off", "max_wal_size = '4GB'", "checkpoint_timeout = '1h'", "log_min_messages = 'fatal'"];
/// Of the machine's memory, as PostgreSQL's manual advises (chapter 19.4.1), but no more than tables of a lab need.
const SHARED_BUFFERS_PART: u64 = 4;
const SHARED_BUFFERS_MIB_MAX: u64 = 8192;

pub struct Server {
    cluster: weir_pg::Cluster,
    /// What the experiment needs; a measurement may add to them.
    needed: Vec<String>,
    added: Vec<String>,
}

impl Server {
    /// Of this major, or the newest that can be had.
    pub fn start(major: Option<u32>, needs: &Needs, memory_mib: u64) -> Result<Server> {
        let say = |line: &str| eprintln!("{line}");
        let installation = match major {
            Some(major) => weir_pg::Installation::of_major(major, &say)?,
            None => weir_pg::Installation::preferably(NEWEST, &say)?,
        };
        let mut needed: Vec<String> = SETTINGS.map(str::to_owned).to_vec();
        let buffers_mib = (memory_mib / SHARED_BUFFERS_PART).clamp(128, SHARED_BUFFERS_MIB_MAX);
        needed.push(format!("shared_buffers = '{buffers_mib}MB'"));
        if needs.max_connections > 0 {
            needed.push(format!("max_connections = {}", needs.max_connections));
        }
        needed.extend(needs.settings.iter().cloned());
        let options =
            weir_pg::Options { settings: needed.clone(), hba: vec![TRUST.to_owned()], ..weir_pg::Options::default() };
        let cluster = weir_pg::Cluster::start(&installation, options)?;
        Ok(Server { cluster, needed, added: Vec::new() })
    }

    /// Makes the poolers' roles, and pgbench's tables with `pgbench -i`.
    pub fn fill(&self, needs: &Needs, scale: u32, tools: &Tools) -> Result<()> {
        let roles = needs.poolers.iter().map(|kind| format!("create role {} superuser login;\n", pooler::role(*kind)));
        tools.psql.run(&self.url(), &roles.collect::<String>())?;
        if needs.tables == Tables::None {
            return Ok(());
        }
        let mut command = std::process::Command::new(&tools.pgbench.program);
        command
            .current_dir(tools.directory())
            .env("LC_ALL", "C")
            .args(["-i", "-q", "-s", &scale.to_string()])
            .arg(self.url().conninfo());
        run_to_end("pgbench-tables", command, tools.directory(), FILL_PATIENCE, &tools.interrupt)
            .context("cannot make pgbench's tables")?;
        if needs.tables == Tables::PgbenchWithBidIndex {
            tools
                .psql
                .run(&self.url(), "create index index_bid on pgbench_accounts (bid); analyze pgbench_accounts;")?;
        }
        Ok(())
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

    /// Restarts with these lines beyond those that the experiment needs, unless it runs with them already.
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
