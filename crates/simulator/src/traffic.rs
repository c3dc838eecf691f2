//! Bytes arriving: from links at drivers, clients and servers, and what these say in return.

use weir_core::time::Duration;
use weir_core::{ConnId, Endpoint};

use crate::client::{Action, Client, Identity, Role, Stage};
use crate::draws::name_here;
use crate::driver::{Stand, Todo};
use crate::network::{Link, LinkId, Manner, Remote};
use crate::postgres::Scene;
use crate::postgres::backend::Backend;
use crate::world::{Event, World};

/// What a driver that was told not to read may have received all the same.
const HELD_BYTES_MAX: usize = 64 * 1024;
/// What waits on a link towards the pooler before the server stops to work.
const UNREAD_REPLY_BYTES_MAX: usize = 256 * 1024;
/// Where the first server listens; the others follow.
pub const FIRST_PORT: u16 = 5432;
/// So many beyond a server's port nobody listens, up to the end of the faults.
pub const DEAD_PORTS: u16 = 100;

impl World {
    pub fn is_server(&self, link: LinkId) -> bool {
        matches!(self.links[link].remote, Remote::Backend(_))
    }

    pub fn new_link(&mut self, remote: Remote) -> LinkId {
        let manner = if self.plan.plain_network {
            Manner { latency_us: 100, chunk_max: 65_536, window: 262_144 }
        } else {
            Manner::random(&mut self.rng)
        };
        self.links.push(Link::new(remote, manner, self.now));
        self.owners.push(None);
        self.pairs.push(None);
        self.links.len() - 1
    }

    /// Puts the next delivery towards the pooler into the calendar, if there is something and none is there.
    pub fn kick_up(&mut self, id: LinkId) {
        let link = &mut self.links[id];
        let something = !link.up.bytes.is_empty() || link.up.fin && !link.up.end_delivered;
        if something && !link.up.scheduled && link.pooler_open {
            link.up.scheduled = true;
            let at = link.next_delivery(self.now, true, &mut self.rng);
            self.at(at, Event::Up(id));
        }
    }

    pub fn kick_down(&mut self, id: LinkId) {
        let link = &mut self.links[id];
        let something = !link.down.bytes.is_empty() || link.down.fin && !link.down.end_delivered;
        if something && !link.down.scheduled && link.remote_open {
            link.down.scheduled = true;
            let at = link.next_delivery(self.now, true, &mut self.rng).max(link.reader_paused_until);
            self.at(at, Event::Down(id));
        }
    }

    pub fn deliver_up(&mut self, id: LinkId) {
        let link = &mut self.links[id];
        link.up.scheduled = false;
        if let Some(other) = self.pairs[id] {
            return self.pass_on(id, other);
        }
        let Some((worker, conn_id)) = self.owners[id] else { return };
        if link.stalled_until > self.now {
            return self.kick_up(id);
        }
        let Some(conn) = self.hosts[worker].conns.get_mut(&conn_id) else { return };
        if link.up.bytes.is_empty() {
            if link.up.fin && !link.up.end_delivered {
                link.up.end_delivered = true;
                self.fin_arrived(id);
            }
            return;
        }
        if conn.stand == Stand::Closing {
            link.up.bytes.clear();
            return self.kick_up(id);
        }
        let room = HELD_BYTES_MAX.saturating_sub(conn.held.len());
        let count = link.chunk(link.up.bytes.len(), &mut self.rng).min(room);
        if count == 0 {
            return;
        }
        conn.held.extend(link.up.bytes.drain(..count));
        self.hosts[worker].queue.push_back(Todo::Bytes(conn_id));
        let remote = link.remote;
        self.kick_up_again(id);
        if let Remote::Backend(backend) = remote {
            self.run_backend(backend, &[]);
        }
    }

    /// The next piece of what already travels comes sooner than a first one.
    fn kick_up_again(&mut self, id: LinkId) {
        let link = &mut self.links[id];
        if !link.up.bytes.is_empty() && !link.up.scheduled {
            link.up.scheduled = true;
            let at = link.next_delivery(self.now, false, &mut self.rng);
            self.at(at, Event::Up(id));
        } else {
            self.kick_up(id);
        }
    }

    /// A connection has come to a worker: what waited for it may be delivered.
    pub fn arrived(&mut self, id: LinkId) {
        self.kick_up(id);
    }

    pub fn deliver_down(&mut self, id: LinkId) {
        let link = &mut self.links[id];
        link.down.scheduled = false;
        if !link.remote_open {
            return;
        }
        if link.stalled_until.max(link.reader_paused_until) > self.now {
            return self.kick_down(id);
        }
        if link.down.bytes.is_empty() {
            if link.down.fin && !link.down.end_delivered {
                link.down.end_delivered = true;
                link.remote_open = false;
                self.remote_closed(id);
            }
            return;
        }
        if let Remote::Backend(backend) = link.remote
            && self.backends[backend].as_ref().is_some_and(|backend| !backend.reads())
        {
            return;
        }
        let count = link.chunk(link.down.bytes.len(), &mut self.rng);
        let bytes: Vec<u8> = link.down.bytes.drain(..count).collect();
        let more = !link.down.bytes.is_empty();
        if more {
            link.down.scheduled = true;
            let at = link.next_delivery(self.now, false, &mut self.rng);
            self.at(at, Event::Down(id));
        }
        if let Some((worker, conn)) = self.owners[id] {
            self.push_down(worker, conn);
        }
        self.kick_down(id);
        match self.links[id].remote {
            Remote::Client(client) => {
                if self.clients[client].link == Some(id) {
                    self.with_client(client, |client, stage| client.receive(stage, &bytes));
                }
            }
            Remote::Backend(backend) => self.run_backend(backend, &bytes),
        }
    }

    /// The pooler's side has closed, and the remote has heard of it.
    fn remote_closed(&mut self, id: LinkId) {
        match self.links[id].remote {
            Remote::Client(client) if self.clients[client].link == Some(id) => {
                if let Role::Canceller { ask, owner, owner_number, .. } = self.clients[client].role {
                    let owner = &self.clients[owner];
                    let last = if owner.number == owner_number { owner.last_sent() } else { u32::MAX };
                    self.checks.cancel_done(ask, last);
                }
                self.with_client(client, Client::closed);
            }
            Remote::Client(_) => {}
            Remote::Backend(backend) => self.remove_backend(backend),
        }
    }

    /// The driver has closed its end; the remote hears of it after what is under way.
    pub fn pooler_closed(&mut self, id: LinkId) {
        self.sessions.remove(&id);
        let link = &mut self.links[id];
        link.pooler_open = false;
        link.down.fin = true;
        link.up.bytes.clear();
        self.kick_down(id);
    }

    /// Both directions end at once and what was under way is lost.
    pub fn reset_link(&mut self, id: LinkId) {
        let link = &mut self.links[id];
        link.up.bytes.clear();
        link.down.bytes.clear();
        let was_open = link.remote_open;
        link.remote_open = false;
        link.up.fin = true;
        link.up.end_delivered = true;
        self.pooler_loses(id);
        if was_open {
            self.remote_closed(id);
        }
        if let Some(other) = self.pairs[id].take() {
            self.pairs[other] = None;
            self.reset_link(other);
        }
    }

    /// The pooler's side fails. What it has sent travels on.
    pub fn pooler_loses(&mut self, id: LinkId) {
        if let Some((worker, conn)) = self.owners[id] {
            let queue = &mut self.hosts[worker].queue;
            if matches!(self.links[id].remote, Remote::Backend(_)) {
                queue.push_back(Todo::Failed(conn));
            }
            queue.push_back(Todo::Closed(conn));
        }
    }

    pub fn remove_backend(&mut self, index: usize) {
        if let Some(mut backend) = self.backends[index].take() {
            backend.unlock_types(&mut self.clusters[backend.cluster].types);
            if backend.counted {
                self.clusters[backend.cluster].sessions -= 1;
            }
            self.trace(|| format!("backend {} is gone", backend.pid));
            let link = &mut self.links[backend.link];
            link.remote_open = false;
            link.up.fin = true;
            self.kick_up(backend.link);
        }
    }

    /// Gives a backend bytes, lets it work, and sends what it says.
    pub fn run_backend(&mut self, index: usize, bytes: &[u8]) {
        let Some(mut backend) = self.backends[index].take() else { return };
        let link_id = backend.link;
        let blocked = self.links[link_id].up.bytes.len() > UNREAD_REPLY_BYTES_MAX;
        let was_unclassified = backend.database.is_empty();
        self.note_who_is_up();
        let mut scene = Scene {
            now: self.now,
            rng: &mut self.rng,
            cluster: &mut self.clusters[backend.cluster],
            checks: &mut self.checks,
            counts: &mut self.counts,
            sharded: self.sharded.as_mut(),
            cancels: Vec::new(),
        };
        if !bytes.is_empty() {
            backend.receive(&mut scene, bytes);
        }
        let notes = scene.cluster.notes.len();
        backend.work(&mut scene, blocked);
        let notifies = scene.cluster.notes.len() > notes;
        let cancels = scene.cancels;
        let output = backend.take_output();
        let cluster = backend.cluster;
        if self.tracing && !output.is_empty() {
            let text = crate::trace::preview(&output);
            self.trace(|| format!("backend {} says {text}", backend.pid));
        }
        if self.links[link_id].pooler_open {
            self.links[link_id].up.bytes.extend(output);
        }
        if was_unclassified && !self.direct && !backend.database.is_empty() && self.links[link_id].pooler_open {
            let pool = (name_here(&backend.database).to_owned(), backend.user.clone(), backend.node);
            self.session_opened(link_id, pool);
        }
        // One that is blocked goes on when its output has drained.
        if let Some(running) = backend.running.as_ref().filter(|running| running.until > self.now) {
            self.at(running.until, Event::Backend(index));
        }
        let (ended, reads) = (backend.ended(), backend.reads());
        self.backends[index] = Some(backend);
        if ended {
            self.remove_backend(index);
        }
        self.kick_up(link_id);
        if reads {
            self.kick_down(link_id);
        }
        if notifies {
            self.wake_listeners(cluster);
        }
        for (process_id, key) in cancels {
            self.cancel_arrived(cluster, process_id, &key);
        }
    }

    fn note_who_is_up(&mut self) {
        if let Some(sharded) = &mut self.sharded {
            sharded.up.clear();
            sharded.up.extend(self.clusters.iter().map(|cluster| cluster.up));
        }
    }

    /// Something was notified: whoever listens is told soon, each in its own time.
    fn wake_listeners(&mut self, cluster: usize) {
        for index in 0..self.backends.len() {
            let backend = self.backends[index].as_ref();
            if backend.is_some_and(|backend| backend.cluster == cluster && backend.listens()) {
                let pause = self.rng.spread(2_000);
                self.at(self.now + Duration(pause), Event::Backend(index));
            }
        }
    }

    fn cancel_arrived(&mut self, cluster: usize, process_id: u32, key: &[u8]) {
        let hit = self.backends.iter().position(|backend| {
            backend.as_ref().is_some_and(|backend| {
                backend.cluster == cluster && backend.is_session() && backend.pid == process_id && backend.key == key
            })
        });
        self.trace(|| format!("cancel request for {process_id} arrives"));
        let Some(index) = hit else { return };
        let Some(mut backend) = self.backends[index].take() else { return };
        let mut scene = Scene {
            now: self.now,
            rng: &mut self.rng,
            cluster: &mut self.clusters[backend.cluster],
            checks: &mut self.checks,
            counts: &mut self.counts,
            sharded: self.sharded.as_mut(),
            cancels: Vec::new(),
        };
        backend.cancel(&mut scene);
        self.backends[index] = Some(backend);
        self.run_backend(index, &[]);
    }

    /// Core asks for a connection to a server.
    pub fn connect(&mut self, worker: usize, conn: ConnId, endpoint: &Endpoint) {
        let port = match endpoint {
            Endpoint::Tcp { port, .. } => Some(*port),
            Endpoint::Unix { path } => path.rsplit_once('.').and_then(|(_, port)| port.parse().ok()),
        };
        let node = if let Endpoint::Tcp { host, .. } = endpoint { host.strip_prefix("node") } else { None };
        let node = node.and_then(|number| number.parse().ok());
        let number = port.unwrap_or(FIRST_PORT) - FIRST_PORT;
        let cluster = usize::from(number % DEAD_PORTS);
        let way = if self.quiet { 0 } else { number / DEAD_PORTS };
        let pause = self.rng.spread(1_500);
        match way {
            0 if cluster < self.clusters.len() => {
                self.at(self.now + Duration(pause), Event::Connected { worker, conn, cluster, node });
            }
            // A host that answers nothing at all, not even that it refuses.
            2 => self.counts.faults.add("host swallows"),
            _ => self.later(pause, worker, Todo::ConnectFailed(conn)),
        }
    }

    pub fn connect_outcome(&mut self, worker: usize, id: ConnId, cluster: usize, node: Option<usize>) {
        let refused = !self.clusters[cluster].up || !self.quiet && self.rng.chance(self.plan.refuse_permille);
        let swallows = refused && self.clusters[cluster].swallows;
        let refused = refused && !swallows;
        let swallowed = swallows || !self.quiet && self.rng.chance(self.plan.refuse_permille / 4);
        let next = self.backends.len();
        let Some(conn) = self.hosts[worker].conns.get_mut(&id) else { return };
        if conn.stand != Stand::Connecting {
            return;
        }
        if refused || swallowed {
            self.counts.faults.add(if refused { "connect refused" } else { "connect unanswered" });
            if refused {
                self.hosts[worker].queue.push_back(Todo::ConnectFailed(id));
            }
            return;
        }
        conn.stand = Stand::Open;
        let link = self.new_link(Remote::Backend(next));
        self.backends.push(Some(Backend::new(link, cluster, node)));
        if let Some(conn) = self.hosts[worker].conns.get_mut(&id) {
            conn.link = Some(link);
        }
        self.owners[link] = Some((worker, id));
        self.hosts[worker].queue.push_back(Todo::Connected(id));
    }

    pub fn accept(&mut self, link: LinkId) {
        if self.links[link].remote_open {
            self.hosts[0].queue.push_back(Todo::Accepted { link });
        }
    }

    /// Where a client's database is.
    pub fn cluster_of(&self, client: usize) -> usize {
        let name = &self.clients[client].identity.database;
        self.plan.databases.iter().position(|known| known == name).unwrap_or(0) % self.plan.cluster_count
    }

    /// Lets a client act, and carries out what it wants.
    pub fn with_client(&mut self, index: usize, act: impl FnOnce(&mut Client, &mut Stage)) {
        let types = self.clusters[self.cluster_of(index)].types.committed;
        let mut stage = Stage {
            now: self.now,
            rng: &mut self.rng,
            checks: &mut self.checks,
            counts: &mut self.counts,
            calm: self.plan.calm && !self.shutting_down,
            quiet: self.quiet,
            types,
            plan: &self.plan,
            trusted_until: self.trusted_until,
            settings_since: self.settings_since,
            schema_version: self.clusters.iter().map(|cluster| cluster.schema_version).max().unwrap_or(0),
            actions: Vec::new(),
        };
        let (before, was_in) = (self.clients[index].link, self.clients[index].logged_in());
        act(&mut self.clients[index], &mut stage);
        for action in stage.actions {
            self.client_action(index, before, action);
        }
        if !was_in && !self.direct && self.clients[index].logged_in() {
            self.check_client_limits(index);
        }
    }

    fn client_action(&mut self, index: usize, link: Option<LinkId>, action: Action) {
        match (action, link) {
            (Action::Wake(at), _) => self.at(at, Event::Client(index)),
            (Action::Connect, None) => self.client_connects(index),
            (Action::Send(bytes), Some(link)) if self.links[link].remote_open => {
                if self.tracing {
                    let (number, text) = (self.clients[index].number, crate::trace::preview(&bytes));
                    self.trace(|| format!("client {number} says {text}"));
                }
                self.clients[index].note_sent(&bytes);
                if self.links[link].pooler_open {
                    self.links[link].up.bytes.extend(bytes);
                    self.kick_up(link);
                }
            }
            (Action::Close, Some(link)) => {
                self.links[link].remote_open = false;
                self.links[link].up.fin = true;
                self.kick_up(link);
                if let Some((worker, conn)) = self.owners[link] {
                    self.push_down(worker, conn);
                }
            }
            (Action::End, Some(link)) => {
                self.links[link].up.fin = true;
                self.kick_up(link);
            }
            (Action::Reset, Some(link)) => {
                self.links[link].remote_open = false;
                self.reset_link(link);
            }
            (Action::PauseReading(until), Some(link)) => {
                self.counts.faults.add("slow reader");
                self.links[link].reader_paused_until = until;
            }
            (Action::Cancel { process_id, key, ask }, _) => self.client_cancels(index, process_id, &key, ask),
            _ => {}
        }
    }

    fn client_connects(&mut self, index: usize) {
        if self.direct {
            return self.connect_directly(index);
        }
        if !self.listening {
            self.clients[index].phase = crate::client::Phase::Gone;
            return;
        }
        let link = self.new_link(Remote::Client(index));
        let client = &mut self.clients[index];
        client.link = Some(link);
        client.number = self.next_client_number;
        self.next_client_number += 1;
        let number = client.number;
        let home = self.plan.home(&self.clients[index].identity);
        self.checks.client_comes(number, home);
        let pause = self.rng.below(500);
        self.at(self.now + Duration(pause), Event::Accept(link));
        self.with_client(index, Client::opened);
    }

    fn client_cancels(&mut self, owner: usize, process_id: u32, key: &[u8], ask: usize) {
        let mut request = Vec::new();
        weir_wire::write::cancel_request(&mut request, process_id, key);
        let role = Role::Canceller { ask, owner, owner_number: self.clients[owner].number, request };
        let identity = Identity { tls: false, ..self.clients[owner].identity.clone() };
        let habits = self.clients[owner].habits;
        let index = self.clients.len();
        self.clients.push(Client::new(index, role, identity, habits, 0));
        self.at(self.now, Event::Client(index));
    }
}
