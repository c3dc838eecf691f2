//! What goes wrong, and when: drawn by the seed, done to the world, and counted.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weir_core::time::{Duration, Time};
use weir_core::{ClientId, Command, Input, Settings};

use crate::driver::Todo;
use crate::network::{LinkId, Remote};
use crate::plan::Plan;
use crate::world::{Event, PoolOf, World};

/// So long before a server is connected to it may have been allowed: the word of it is on its way, or waits for its worker.
const PERMIT_OLD: Duration = Duration::from_millis(100);

/// Something that happens to somebody.
pub enum Fault {
    /// Draws one of the kinds below.
    Any,
    /// A server that was down comes back.
    ServerUp(usize),
    Resume,
    Reload,
    Shutdown(Command),
    /// Rows of a cluster go to another node.
    Moves,
}

/// A name leads elsewhere than to where all servers are.
pub fn moved(host: &str) -> Input<'static> {
    Input::HostMoved { host: host.into(), gone: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)] }
}

impl World {
    pub fn schedule_faults(&mut self) {
        if !self.plan.calm {
            let first = self.rng.spread(self.plan.fault_every_us);
            self.at(Time(first), Event::Fault(Fault::Any));
        }
        self.schedule_moves();
        if self.rng.chance(200) {
            let at = self.rng.below(self.plan.active_us);
            self.at(Time(at), Event::Fault(Fault::Reload));
        }
        if self.plan.shutdown {
            let at = self.rng.between(self.plan.active_us / 2, self.plan.active_us);
            let command = *self.rng.pick(&[
                Command::ShutdownNow,
                Command::ShutdownWaitForClients,
                Command::ShutdownWaitForServers,
            ]);
            self.at(Time(at), Event::Fault(Fault::Shutdown(command)));
        }
    }

    pub fn inflict(&mut self, fault: Fault) {
        match fault {
            Fault::Any if self.quiet => {}
            Fault::Any => {
                self.any_fault();
                let pause = self.rng.spread(self.plan.fault_every_us);
                self.at(self.now + Duration(pause), Event::Fault(Fault::Any));
            }
            Fault::ServerUp(cluster) => self.clusters[cluster].up = true,
            Fault::Resume => self.resume(),
            Fault::Moves => self.something_moves(),
            Fault::Reload if self.quiet => {}
            Fault::Reload => {
                self.counts.faults.add("reload");
                self.command(Command::Reload);
            }
            Fault::Shutdown(command) => {
                self.counts.faults.add("shutdown");
                self.shutting_down = true;
                self.command(command);
            }
        }
    }

    fn any_fault(&mut self) {
        match self.rng.below(14) {
            12 => self.cut_one_side(),
            13 => self.host_moves(),
            0 | 1 => self.cut(true),
            2 | 3 => self.cut(false),
            4 | 5 => self.stall(),
            6 => self.crash(),
            7 | 8 => self.administrator(),
            9 => self.pause(),
            10 => {
                self.counts.faults.add("reload");
                self.command(Command::Reload);
            }
            _ => self.slow_reader(),
        }
    }

    /// Each worker hears of it in its time.
    fn host_moves(&mut self) {
        self.counts.faults.add("host moves");
        let host = *self.rng.pick(&["127.0.0.1", "localhost"]);
        self.trace(|| format!("{host} leads elsewhere"));
        for worker in 0..self.hosts.len() {
            let pause = self.rng.spread(self.plan.mail_us);
            self.later(pause, worker, Todo::HostMoved(host));
        }
    }

    fn some_link(&mut self, clients: bool) -> Option<LinkId> {
        let open: Vec<LinkId> = (0..self.links.len())
            .filter(|&link| {
                self.links[link].remote_open && matches!(self.links[link].remote, Remote::Client(_)) == clients
            })
            .collect();
        (!open.is_empty()).then(|| *self.rng.pick(&open))
    }

    /// The network resets a connection, with whatever was on its way.
    fn cut(&mut self, clients: bool) {
        if let Some(link) = self.some_link(clients) {
            self.counts.faults.add(if clients { "client cut" } else { "server cut" });
            self.trace(|| format!("the network cuts link {link}"));
            self.reset_link(link);
        }
    }

    /// A connection to a server fails for the pooler alone, and what it has sent arrives late.
    fn cut_one_side(&mut self) {
        if let Some(link) = self.some_link(false).filter(|&link| self.pairs[link].is_none()) {
            self.counts.faults.add("server cut on one side");
            self.trace(|| format!("the network cuts the pooler's side of link {link}"));
            self.links[link].stalled_until = self.now + Duration(self.rng.spread(500_000));
            self.pooler_loses(link);
        }
    }

    fn stall(&mut self) {
        let clients = self.rng.chance(500);
        if let Some(link) = self.some_link(clients) {
            self.counts.faults.add("stall");
            self.links[link].stalled_until = self.now + Duration(self.rng.spread(500_000));
        }
    }

    fn slow_reader(&mut self) {
        let clients = self.rng.chance(700);
        if let Some(link) = self.some_link(clients) {
            self.counts.faults.add("slow reader");
            self.links[link].reader_paused_until = self.now + Duration(self.rng.spread(1_000_000));
        }
    }

    /// A whole server dies, all its backends with it, and comes back later.
    fn crash(&mut self) {
        let cluster = self.rng.index(self.clusters.len());
        self.goes_down(cluster);
        let pause = self.rng.spread(1_000_000);
        self.at(self.now + Duration(pause), Event::Fault(Fault::ServerUp(cluster)));
    }

    /// It answers nobody any more.
    pub fn goes_down(&mut self, cluster: usize) {
        self.counts.faults.add("server crash");
        self.trace(|| format!("server {cluster} crashes"));
        self.clusters[cluster].up = false;
        for index in 0..self.backends.len() {
            let link = self.backends[index].as_ref().filter(|backend| backend.cluster == cluster).map(|it| it.link);
            if let Some(link) = link {
                self.reset_link(link);
            }
        }
    }

    /// pg_terminate_backend of somebody.
    fn administrator(&mut self) {
        let sessions: Vec<usize> = (0..self.backends.len())
            .filter(|&index| self.backends[index].as_ref().is_some_and(|backend| backend.is_session()))
            .collect();
        if sessions.is_empty() {
            return;
        }
        let index = *self.rng.pick(&sessions);
        self.counts.faults.add("terminated by administrator");
        if let Some(backend) = self.backends[index].as_mut() {
            backend.terminate_by_administrator();
        }
        self.run_backend(index, &[]);
    }

    fn pause(&mut self) {
        if !self.paused && !self.shutting_down {
            self.counts.faults.add("pause");
            self.paused = true;
            self.command(Command::Pause);
            let pause = self.rng.spread(1_000_000);
            self.at(self.now + Duration(pause), Event::Fault(Fault::Resume));
        }
    }

    pub fn resume(&mut self) {
        if self.paused {
            self.paused = false;
            self.command(Command::Resume);
        }
    }

    /// Core asks for its settings to be read again: by a signal, or on the console.
    pub fn reload_asked(&mut self, worker: usize, asker: Option<ClientId>) {
        let settings = match self.rng.chance(500) {
            _ if self.quiet => (*self.settings).clone(),
            true => self.rng.pick(&self.plan.reloaded).clone(),
            false => self.plan.settings.clone(),
        };
        let settings = Arc::new(settings);
        let mut last = self.now;
        for index in 0..self.hosts.len() {
            let due = (self.now + Duration(self.rng.spread(500))).max(self.hosts[index].settings_due);
            self.hosts[index].settings_due = due;
            last = last.max(due);
            self.at(due, Event::Todo(index, Some(Todo::Settings(Arc::clone(&settings)))));
        }
        self.hold(settings, last);
        self.at(last + Duration(10), Event::Todo(worker, Some(Todo::ReloadDone(asker))));
    }

    /// The pooler has opened a session on a server: are the limits kept? Those of when it was allowed to, or since: what stands by wider ones of
    /// before counts.
    pub fn session_opened(&mut self, link: LinkId, pool: PoolOf) {
        self.sessions.insert(link, pool.clone());
        let begun = Time(self.links[link].made_at.0.saturating_sub(PERMIT_OLD.0));
        self.limits_hold(&pool, begun);
    }

    /// All that stand are idle, and nobody waits.
    pub fn limits_hold_at_rest(&mut self) {
        let pools: BTreeSet<_> = self.sessions.values().cloned().collect();
        for pool in pools {
            self.limits_hold(&pool, self.now);
        }
    }

    fn limits_hold(&mut self, pool: &PoolOf, since: Time) {
        let (database, user, _) = pool;
        let most = |limit: &dyn Fn(&Settings) -> u32| {
            let limits: Vec<u32> = self.followed_since(since).map(limit).collect();
            // Zero is no limit.
            if limits.contains(&0) { 0 } else { limits.into_iter().max().unwrap_or(0) }
        };
        let count =
            |matches: &dyn Fn(&PoolOf) -> bool| self.sessions.values().filter(|pool| matches(pool)).count() as u32;
        let size =
            |settings: &Settings| Plan::pool_size(settings, database, user) + Plan::reserve(settings, database, user);
        let counts = [
            ("pool size and reserve", count(&|other| other == pool), most(&size)),
            (
                "max_db_connections",
                count(&|other| other.0 == *database),
                most(&|settings| Plan::database_max(settings, database)),
            ),
            (
                "max_user_connections",
                count(&|other| other.1 == *user),
                most(&|settings| Plan::user_max(settings, user)),
            ),
        ];
        for (name, count, limit) in counts {
            if limit > 0 && count > limit {
                let text = format!("{name} is {limit}, and {count} servers stand ({database} {user})");
                self.checks.fail("limits hold", text);
            }
        }
    }
}
