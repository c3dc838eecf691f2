//! The driver that the simulator plays for each worker, and its watch over the contract.
//!
//! Holds what core has not taken, sends what core puts out, and ends every id exactly once. Moves bytes between
//! a worker and its links; how links treat them is not known here.

mod outputs;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weir_core::contract::{CONGESTED_BYTES, Mail, RECEIVE_BYTES_MAX};
use weir_core::time::{Duration, Time};
use weir_core::{ClientId, Command, ConnId, Input, Output, Peer, Settings, Side, TlsInfo, Worker, WorkerId};

use crate::faults::moved;
use crate::memory;
use crate::network::{LinkId, Remote};
use crate::world::{Event, World};

/// Stands for a whole TLS handshake: the first byte is that of a handshake record.
pub const TLS_MARKER: [u8; 4] = [0x16, b'T', b'L', b'S'];

/// Inputs in a row at one moment after which a worker is said to turn in circles.
const INPUTS_AT_ONCE_MAX: u32 = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    Connecting,
    Open,
    TlsAccept,
    TlsConnect,
    Closing,
}

/// A connection as the driver has it.
pub struct Conn {
    pub link: Option<LinkId>,
    pub stand: Stand,
    pub reading: bool,
    /// Received and not taken.
    pub held: Vec<u8>,
    /// Put out and not on its way.
    pub out: VecDeque<u8>,
    congested: bool,
    /// The peer has closed; said to core once everything before it is taken.
    fin: bool,
    /// Core was told that its client sends no more.
    ended: bool,
    /// It was here before the input in hand.
    pub settled: bool,
}

impl Conn {
    pub fn new(link: Option<LinkId>, stand: Stand) -> Self {
        Self {
            link,
            stand,
            reading: true,
            held: Vec::new(),
            out: VecDeque::new(),
            congested: false,
            fin: false,
            ended: false,
            settled: false,
        }
    }
}

/// An input waiting to be handed in.
pub enum Todo {
    Accepted {
        link: LinkId,
    },
    Bytes(ConnId),
    Ended(ConnId),
    Failed(ConnId),
    Closed(ConnId),
    /// The last word on an id whose connection moved away.
    Departed(ConnId),
    Connected(ConnId),
    ConnectFailed(ConnId),
    Congested(ConnId),
    Writable(ConnId),
    TlsReady(ConnId),
    Derived {
        job: u32,
        salted_password: [u8; 32],
    },
    Settings(Arc<Settings>),
    Command(Command),
    Mail {
        from: WorkerId,
        mail: Mail,
        conn: Option<Conn>,
    },
    Load(u16),
    Crowded(bool),
    HostMoved(&'static str),
    Stop,
    ReloadDone(Option<ClientId>),
    NamesTold(ClientId),
    Timeout,
}

/// One worker and its driver.
pub struct Host {
    pub worker: Worker,
    pub conns: BTreeMap<ConnId, Conn>,
    pub queue: VecDeque<Todo>,
    pub timer: Option<Time>,
    /// When what was read anew last reaches it: one sender hands out every reload, so none overtakes another.
    pub settings_due: Time,
    inputs_at: (Time, u32),
}

impl Host {
    pub fn new(worker: Worker) -> Self {
        let (conns, queue) = (BTreeMap::new(), VecDeque::new());
        Self { worker, conns, queue, timer: None, settings_due: Time(0), inputs_at: (Time(0), 0) }
    }

    /// True if too many inputs came at one moment.
    fn turns_in_circles(&mut self, now: Time) -> bool {
        let (at, count) = &mut self.inputs_at;
        if *at != now {
            (*at, *count) = (now, 0);
        }
        *count += 1;
        *count > INPUTS_AT_ONCE_MAX
    }
}

fn peer(port: usize) -> Peer {
    Peer::Tcp { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), port: port as u16 }
}

impl World {
    /// Hands in everything that waits, until nothing does.
    pub fn settle(&mut self) {
        for index in 0..self.hosts.len() {
            while let Some(todo) = self.hosts[index].queue.pop_front() {
                if self.checks.violation.is_some() {
                    return;
                }
                if self.hosts[index].turns_in_circles(self.now) {
                    return self.checks.fail("contract", format!("worker {index} turns in circles"));
                }
                self.hand(index, todo);
            }
            self.set_timer(index);
        }
    }

    fn set_timer(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        let Some(due) = host.worker.poll_timeout() else { return };
        let due = due.max(self.now);
        if due == Time::NEVER || host.timer.is_some_and(|timer| timer <= due) {
            return;
        }
        host.timer = Some(due);
        let late = if self.rng.chance(100) { self.rng.below(2_000) } else { 0 };
        self.at(due + Duration(late), Event::Timer(index, due));
    }

    /// Of the timers that were set, the last counts.
    pub fn timer_fired(&mut self, index: usize, due: Time) {
        let host = &mut self.hosts[index];
        if host.timer != Some(due) {
            return;
        }
        host.timer = None;
        if host.worker.poll_timeout().is_some_and(|due| due <= self.now) {
            host.queue.push_back(Todo::Timeout);
        }
    }

    fn hand(&mut self, index: usize, todo: Todo) {
        let known = |conn: &ConnId| self.hosts[index].conns.contains_key(conn);
        match &todo {
            Todo::Bytes(conn) => return self.hand_bytes(index, *conn),
            Todo::Ended(conn)
            | Todo::Failed(conn)
            | Todo::Congested(conn)
            | Todo::Writable(conn)
            | Todo::TlsReady(conn)
            | Todo::Connected(conn)
                if !known(conn) =>
            {
                return;
            }
            Todo::Closed(conn) | Todo::ConnectFailed(conn) if !known(conn) => return,
            _ => {}
        }
        let link = |conn: &ConnId| self.hosts[index].conns[conn].link.unwrap_or(0);
        match todo {
            Todo::Bytes(_) => {}
            Todo::Accepted { link } => self.hand_accepted(index, link),
            Todo::Ended(conn) => self.give(index, Input::Ended { conn }),
            Todo::Failed(conn) => self.give(index, Input::Failed { conn }),
            Todo::Closed(conn) => self.hand_closed(index, conn),
            Todo::Departed(conn) => self.give(index, Input::Closed { conn }),
            Todo::Connected(conn) => {
                let port = link(&conn);
                self.give(index, Input::Connected { conn, peer: peer(5432), local: peer(port) });
            }
            Todo::ConnectFailed(conn) => {
                self.hosts[index].conns.remove(&conn);
                self.give(index, Input::ConnectFailed { conn, reason: "connection refused".to_owned() });
            }
            Todo::Congested(conn) => {
                self.counts.congestions += 1;
                self.give(index, Input::Congested { conn });
            }
            Todo::Writable(conn) => self.give(index, Input::Writable { conn }),
            Todo::TlsReady(conn) => self.hand_tls_ready(index, conn),
            Todo::Derived { job, salted_password } => self.give(index, Input::Derived { job, salted_password }),
            Todo::Settings(settings) => self.give(index, Input::Settings(settings)),
            Todo::Command(command) => self.give(index, Input::Command(command)),
            Todo::Mail { from, mail, conn } => self.hand_mail(index, from, mail, conn),
            Todo::Load(busy_permille) => self.give(index, Input::Load { busy_permille }),
            Todo::Crowded(full) => self.give(index, Input::Crowded { full }),
            Todo::HostMoved(host) => self.give(index, moved(host)),
            Todo::ReloadDone(asker) => self.give(index, Input::ReloadDone { asker, result: Ok(None) }),
            Todo::NamesTold(asker) => self.give(index, Input::NamesTold { asker, names: Box::default() }),
            Todo::Stop => self.give(index, Input::Stop),
            Todo::Timeout => self.give(index, Input::Timeout),
        }
    }

    fn hand_accepted(&mut self, index: usize, link: LinkId) {
        let conn = self.hosts[index].worker.reserve(Side::Client);
        self.adopt(index, conn, Conn::new(Some(link), Stand::Open));
        self.give(index, Input::Accepted { conn, peer: peer(link), local: peer(6432) });
        self.has_settled(index, conn);
        self.arrived(link);
    }

    /// Enters a connection under its name.
    fn adopt(&mut self, index: usize, id: ConnId, conn: Conn) {
        if let Some(link) = conn.link {
            self.owners[link] = Some((index, id));
        }
        if self.hosts[index].conns.insert(id, conn).is_some() {
            self.checks.fail("contract", format!("worker {index} gave the name {id:?} twice"));
        }
    }

    fn hand_closed(&mut self, index: usize, conn: ConnId) {
        if let Some(gone) = self.hosts[index].conns.remove(&conn)
            && let Some(link) = gone.link
        {
            self.owners[link] = None;
            self.pooler_closed(link);
        }
        self.give(index, Input::Closed { conn });
    }

    fn hand_tls_ready(&mut self, index: usize, id: ConnId) {
        let Some(conn) = self.hosts[index].conns.get_mut(&id) else { return };
        if !matches!(conn.stand, Stand::TlsAccept | Stand::TlsConnect) {
            return;
        }
        conn.stand = Stand::Open;
        // A connection reads again after its handshake.
        conn.reading = true;
        let link = conn.link;
        let peer_common_name = link.and_then(|link| self.common_name(link));
        let tls = TlsInfo { description: "TLSv1.3/SIMULATED".to_owned(), peer_common_name, ..TlsInfo::default() };
        self.give(index, Input::TlsReady { conn: id, tls });
        self.hosts[index].queue.push_back(Todo::Bytes(id));
    }

    /// Whom a client's certificate names.
    fn common_name(&self, link: LinkId) -> Option<String> {
        let Remote::Client(client) = self.links[link].remote else { return None };
        let identity = &self.clients[client].identity;
        Some(if identity.right_password { identity.user.clone() } else { "somebody".to_owned() })
    }

    fn hand_mail(&mut self, index: usize, from: WorkerId, mail: Mail, conn: Option<Conn>) {
        self.counts.mails += 1;
        let Some(conn) = conn else {
            return self.give(index, Input::Mail { from, mail, conn: None });
        };
        self.counts.transfers += 1;
        let side = if conn.link.is_some_and(|link| self.is_server(link)) { Side::Server } else { Side::Client };
        let id = self.hosts[index].worker.reserve(side);
        let link = conn.link;
        let busy = conn.out.len() > CONGESTED_BYTES;
        self.adopt(index, id, Conn { reading: true, congested: busy, settled: false, ..conn });
        self.give(index, Input::Mail { from, mail, conn: Some(id) });
        self.has_settled(index, id);
        if busy {
            self.hosts[index].queue.push_back(Todo::Congested(id));
        }
        self.hosts[index].queue.push_back(Todo::Bytes(id));
        if let Some(link) = link {
            self.arrived(link);
            if !self.links[link].remote_open {
                self.push_down(index, id);
            }
            if !self.links[link].remote_open
                && self.links[link].up.bytes.is_empty()
                && self.links[link].up.end_delivered
            {
                self.fin_arrived(link);
            }
        }
    }

    /// The peer's end came, in order after its bytes.
    pub fn fin_arrived(&mut self, link: LinkId) {
        let Some((index, id)) = self.owners[link] else { return };
        if let Some(conn) = self.hosts[index].conns.get_mut(&id) {
            conn.fin = true;
            let tls = matches!(conn.stand, Stand::TlsAccept | Stand::TlsConnect);
            if conn.stand == Stand::Open && conn.held.is_empty() && (conn.reading || id.side == Side::Client) {
                self.has_said_all(index, id);
            } else if tls || conn.stand == Stand::Closing {
                self.hosts[index].queue.push_back(Todo::Closed(id));
            }
        }
    }

    /// Core has taken all that the peer ever sends.
    fn has_said_all(&mut self, index: usize, id: ConnId) {
        let host = &mut self.hosts[index];
        let Some(conn) = host.conns.get_mut(&id) else { return };
        if id.side == Side::Server {
            host.queue.push_back(Todo::Closed(id));
        } else if !std::mem::replace(&mut conn.ended, true) {
            host.queue.push_back(Todo::Ended(id));
        }
    }

    fn hand_bytes(&mut self, index: usize, id: ConnId) {
        let Some(conn) = self.hosts[index].conns.get_mut(&id) else { return };
        if matches!(conn.stand, Stand::TlsAccept) {
            return self.shake_hands(index, id);
        }
        if conn.stand != Stand::Open {
            return;
        }
        if conn.held.is_empty() && conn.fin && (conn.reading || id.side == Side::Client) {
            return self.has_said_all(index, id);
        }
        if conn.held.is_empty() || !conn.reading {
            return;
        }
        let rest = conn.held.split_off(conn.held.len().min(RECEIVE_BYTES_MAX));
        let bytes = std::mem::replace(&mut conn.held, rest);
        let before = self.reads_on;
        let taken = self.give_bytes(index, id, &bytes);
        if taken > bytes.len() {
            return self.checks.fail("contract", format!("took {taken} of {} bytes of {id:?}", bytes.len()));
        }
        self.put_back(index, id, &bytes[taken..], self.reads_on != before);
    }

    /// What was not taken stays, wherever its connection is now.
    fn put_back(&mut self, index: usize, id: ConnId, rest: &[u8], read_on_again: bool) {
        let Some(conn) = self.hosts[index].conns.get_mut(&id) else {
            // It moved in this very step; the parcel still waits.
            if let Some(conn) = self.departed_conn(index, id) {
                conn.held.splice(0..0, rest.iter().copied());
            }
            return;
        };
        if !rest.is_empty() && conn.stand == Stand::Open && conn.reading && !read_on_again {
            let text = format!("worker {index} left {} bytes of {id:?} and goes on reading", rest.len());
            return self.checks.fail("contract", text);
        }
        conn.held.splice(0..0, rest.iter().copied());
        if conn.stand == Stand::Open && conn.reading && (conn.fin || !conn.held.is_empty())
            || conn.stand == Stand::TlsAccept
        {
            self.hosts[index].queue.push_back(Todo::Bytes(id));
        }
        let link = self.hosts[index].conns.get(&id).and_then(|conn| conn.link);
        if let Some(link) = link {
            self.kick_up(link);
        }
    }

    /// The client's side of the handshake, as far as it has come.
    fn shake_hands(&mut self, index: usize, id: ConnId) {
        let Some(conn) = self.hosts[index].conns.get_mut(&id) else { return };
        if conn.held.len() < TLS_MARKER.len() {
            return;
        }
        if conn.held[..TLS_MARKER.len()] == TLS_MARKER {
            conn.held.drain(..TLS_MARKER.len());
            let pause = self.rng.spread(1_000);
            self.at(self.now + Duration(pause), Event::TlsReady(index, id));
            // Until then the marker is not seen again.
            if let Some(conn) = self.hosts[index].conns.get_mut(&id) {
                conn.stand = Stand::TlsConnect;
            }
        } else {
            self.hosts[index].queue.push_back(Todo::Closed(id));
        }
    }

    pub fn give(&mut self, index: usize, input: Input) {
        self.trace(|| format!("worker {index} <- {input:?}"));
        let now = self.now;
        memory::in_core(|| self.hosts[index].worker.handle(now, input));
        self.drain(index, &[]);
    }

    fn give_bytes(&mut self, index: usize, conn: ConnId, bytes: &[u8]) -> usize {
        self.trace(|| format!("worker {index} <- Bytes {conn:?} {}", crate::trace::preview(bytes)));
        let now = self.now;
        let taken = memory::in_core(|| self.hosts[index].worker.handle(now, Input::Bytes { conn, bytes }));
        if taken < bytes.len() {
            self.trace(|| format!("worker {index}    took {taken} of {} bytes", bytes.len()));
        }
        self.drain(index, bytes);
        taken
    }

    pub fn drain(&mut self, index: usize, received: &[u8]) {
        while let Some(output) = memory::in_core(|| self.hosts[index].worker.poll_output()) {
            if self.checks.violation.is_some() {
                return;
            }
            self.digest.add(self.now.0, index, &output);
            if !matches!(output, Output::Send { .. }) {
                self.trace(|| format!("worker {index} -> {output:?}"));
            }
            if let Some(conn) = output.conn()
                && !matches!(output, Output::Connect { .. })
                && !self.hosts[index].conns.contains_key(&conn)
            {
                return self
                    .checks
                    .fail("contract", format!("worker {index} speaks of {conn:?}, which is not: {output:?}"));
            }
            self.carry_out(index, output, received);
        }
        self.keep_back(index);
    }
}
