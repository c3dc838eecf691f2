//! A stand-in for core: sends a client's bytes back, or passes them to a server and its answers back, with
//! back-pressure; and checks that the driver keeps the contract.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use weir_core::contract::*;
use weir_core::id::{ClientId, Party, ServerId, Table};
use weir_core::time::Duration;
use weir_core::{ConnId, Numbers, Side, Time, Worker, WorkerConfig, WorkerId};

use crate::driver::Machine;

/// What the relay does.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// Where a client's bytes go; `None`: back.
    pub target: Option<Endpoint>,
    pub client_tls: Option<TlsRole>,
    pub server_tls: Option<TlsRole>,
    /// Takes at most so many bytes of an input, then stops reading until the next time-out.
    pub bite: Option<usize>,
    /// Answers the first bytes with so many of its own, then closes.
    pub burst: Option<usize>,
    /// Takes half of an input now and then, and mails the connection with the other half to the next worker.
    pub moves: bool,
    /// Mails each client on as soon as it is accepted, as core does under load.
    pub moves_first: bool,
    /// Says of each client that it is still logging in, and takes as long for its bytes as for a handshake: all of them have
    /// to wait for their share of a turn.
    pub never_in: bool,
    /// Takes so long for bytes that more pile up meanwhile.
    pub slow: bool,
    /// Never takes anything.
    pub deaf: bool,
    /// Keeps clients that send no more.
    pub stays: bool,
    pub panics: bool,
}

/// What the relay has seen, of all workers.
#[derive(Debug, Default)]
pub struct Seen {
    pub accepted: Vec<(Peer, Peer)>,
    pub connected: Vec<Peer>,
    pub connect_failed: Vec<String>,
    pub tls: Vec<TlsInfo>,
    pub ended: usize,
    pub failed: usize,
    pub closed: usize,
    pub moved: usize,
    pub open: usize,
    pub taken: usize,
    pub congested: usize,
    pub writable: usize,
    pub timeouts: usize,
    pub inputs: usize,
    /// Broken rules of the contract.
    pub faults: Vec<String>,
}

#[derive(Debug, Default)]
struct Conn {
    partner: Option<ConnId>,
    read_on: bool,
    closing: bool,
    congested: bool,
}

pub struct Relay {
    script: Script,
    seen: Arc<Mutex<Seen>>,
    clients: Table<ClientId, Conn>,
    servers: Table<ServerId, Conn>,
    outputs: VecDeque<Output>,
    made: Vec<u8>,
    hungry: Vec<ConnId>,
    wake_at: Option<Time>,
    last: Time,
    id: WorkerId,
    workers: u16,
    /// How many inputs of bytes there were.
    bites: usize,
}

impl Relay {
    pub fn new(id: WorkerId, workers: u16, script: Script, seen: Arc<Mutex<Seen>>) -> Self {
        Self {
            script,
            seen,
            clients: Table::default(),
            servers: Table::default(),
            outputs: VecDeque::new(),
            made: Vec::new(),
            hungry: Vec::new(),
            wake_at: None,
            last: Time(0),
            id,
            workers,
            bites: 0,
        }
    }

    fn conn(&mut self, id: ConnId) -> &mut Conn {
        let conn = match id.party() {
            Party::Client(id) => self.clients.get_mut(id),
            Party::Server(id) => self.servers.get_mut(id),
        };
        conn.unwrap_or_else(|| panic!("{id:?} is nobody"))
    }

    fn remove(&mut self, id: ConnId) -> Conn {
        let conn = match id.party() {
            Party::Client(id) => self.clients.remove(id),
            Party::Server(id) => self.servers.remove(id),
        };
        conn.unwrap_or_else(|| panic!("{id:?} ended twice"))
    }

    fn put(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    fn set_read(&mut self, conn: ConnId, on: bool) {
        self.conn(conn).read_on = on;
        self.put(Output::Read { conn, on });
    }

    fn accepted(&mut self, conn: ConnId) {
        self.conn(conn).read_on = true;
        if self.script.moves_first {
            return self.move_on(conn);
        }
        if let Some(role) = self.script.client_tls.clone() {
            return self.put(Output::StartTls { conn, role });
        }
        self.reach_out(conn);
    }

    fn reach_out(&mut self, client: ConnId) {
        let Some(endpoint) = self.script.target.clone() else { return };
        self.set_read(client, false);
        let server = self.servers.insert(Conn { partner: Some(client), ..Conn::default() }).into();
        self.conn(client).partner = Some(server);
        self.put(Output::Connect { conn: server, endpoint });
    }

    fn linked(&mut self, server: ConnId) {
        let Some(client) = self.conn(server).partner else { return };
        self.set_read(client, true);
    }

    fn bytes(&mut self, now: Time, conn: ConnId, bytes: &[u8]) -> usize {
        assert!(!self.script.panics, "the relay was told to");
        if !self.conn(conn).read_on {
            self.seen.lock().unwrap().faults.push(format!("bytes for {conn:?} while reading is off"));
        }
        if bytes.is_empty() || bytes.len() > RECEIVE_BYTES_MAX {
            self.seen.lock().unwrap().faults.push(format!("{} bytes at once", bytes.len()));
        }
        if self.conn(conn).closing {
            return bytes.len();
        }
        if self.script.deaf {
            self.set_read(conn, false);
            return 0;
        }
        if let Some(size) = self.script.burst {
            self.made = vec![b'x'; size];
            self.put(Output::Send { conn, span: Span::Made { start: 0, end: size as u32 } });
            self.close(conn);
            return bytes.len();
        }
        let is_last_here = self.script.moves && (self.bites + 1).is_multiple_of(5);
        let whole = if is_last_here { bytes.len().div_ceil(2) } else { bytes.len() };
        let taken = whole.min(self.script.bite.unwrap_or(usize::MAX));
        let to = self.conn(conn).partner.unwrap_or(conn);
        // In two spans, one of them made: so that they are told apart and sent as one.
        self.made.clear();
        self.made.push(bytes[0]);
        self.put(Output::Send { conn: to, span: Span::Made { start: 0, end: 1 } });
        self.put(Output::Send { conn: to, span: Span::Received { start: 1, end: taken as u32 } });
        self.seen.lock().unwrap().taken += taken;
        self.bites += 1;
        if self.script.moves && self.bites.is_multiple_of(5) {
            self.move_on(conn);
        }
        if self.script.bite.is_some() {
            self.set_read(conn, false);
            self.hungry.push(conn);
            self.wake_at.get_or_insert(now + Duration(50));
        }
        taken
    }

    fn move_on(&mut self, conn: ConnId) {
        self.seen.lock().unwrap().moved += 1;
        let to = WorkerId((self.id.0 + 1) % self.workers);
        // Whatever comes for it here from now on, but for its end, is a fault.
        let here = self.conn(conn);
        (here.read_on, here.closing) = (false, true);
        self.put(Output::Mail { to, mail: any_mail(), conn: Some(conn) });
    }

    fn close(&mut self, conn: ConnId) {
        if !std::mem::replace(&mut self.conn(conn).closing, true) {
            self.put(Output::Close { conn });
        }
    }

    fn closed(&mut self, conn: ConnId) {
        let gone = self.remove(conn);
        self.hungry.retain(|hungry| *hungry != conn);
        if let Some(partner) = gone.partner {
            self.conn(partner).partner = None;
            self.close(partner);
        }
    }

    /// Whoever feeds a connection is its partner, or itself.
    fn congested(&mut self, conn: ConnId, on: bool) {
        if std::mem::replace(&mut self.conn(conn).congested, on) == on {
            self.seen.lock().unwrap().faults.push(format!("{conn:?} congested: {on} twice"));
        }
        let feeder = self.conn(conn).partner.unwrap_or(conn);
        if self.script.bite.is_none() && !self.conn(conn).closing && !self.conn(feeder).closing {
            self.set_read(feeder, !on);
        }
    }

    fn timeout(&mut self, now: Time) {
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
            for conn in std::mem::take(&mut self.hungry) {
                if self.conn(conn).closing || self.conn(conn).congested {
                    self.hungry.push(conn);
                    self.wake_at = Some(now + Duration(1000));
                } else {
                    self.set_read(conn, true);
                }
            }
        }
    }
}

/// Mail is core's own affair, so core writes it: a worker tells the steward how busy it is.
fn any_mail() -> Mail {
    let config = WorkerConfig {
        id: WorkerId(1),
        workers: 2,
        seed: [0; 32],
        process_secret: [0; 32],
        epoch_us: 0,
        uid: None,
        numbers: Numbers::default(),
        predecessor: None,
        place: None,
    };
    let mut worker = Worker::new(config, Arc::default());
    for busy_permille in [0, 1000] {
        Worker::handle(&mut worker, Time(0), Input::Load { busy_permille });
        while let Some(output) = Worker::poll_output(&mut worker) {
            if let Output::Mail { mail, .. } = output {
                return mail;
            }
        }
    }
    panic!("no mail from a worker that tells how busy it is")
}

impl Machine for Relay {
    fn reserve(&mut self, side: Side) -> ConnId {
        match side {
            Side::Client => self.clients.insert(Conn::default()).into(),
            Side::Server => self.servers.insert(Conn::default()).into(),
        }
    }

    fn handle(&mut self, now: Time, input: Input<'_>) -> usize {
        assert!(self.outputs.is_empty(), "outputs are drained before the next input");
        assert!(now >= self.last, "time goes back");
        self.last = now;
        if self.script.never_in && matches!(&input, Input::Bytes { conn, .. } if conn.side == Side::Client) {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        if self.script.slow && matches!(&input, Input::Bytes { .. }) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let seen = self.seen.clone();
        let mut seen = seen.lock().unwrap();
        seen.inputs += 1;
        match &input {
            Input::Accepted { peer, local, .. } => seen.accepted.push((peer.clone(), local.clone())),
            Input::Connected { peer, .. } => seen.connected.push(peer.clone()),
            Input::ConnectFailed { reason, .. } => seen.connect_failed.push(reason.clone()),
            Input::TlsReady { tls, .. } => seen.tls.push(tls.clone()),
            Input::Ended { .. } => seen.ended += 1,
            Input::Failed { .. } => seen.failed += 1,
            Input::Closed { .. } => seen.closed += 1,
            Input::Congested { .. } => seen.congested += 1,
            Input::Writable { .. } => seen.writable += 1,
            Input::Timeout => seen.timeouts += 1,
            _ => {}
        }
        drop(seen);
        match input {
            Input::Accepted { conn, .. } => self.accepted(conn),
            Input::Bytes { conn, bytes } => return self.bytes(now, conn, bytes),
            Input::Ended { .. } if self.script.stays => {}
            Input::Ended { conn } => self.close(conn),
            Input::Closed { conn } | Input::ConnectFailed { conn, .. } => self.closed(conn),
            Input::Connected { conn, .. } => {
                self.conn(conn).read_on = true;
                match self.script.server_tls.clone() {
                    Some(role) => self.put(Output::StartTls { conn, role }),
                    None => self.linked(conn),
                }
            }
            Input::TlsReady { conn, .. } => match conn.side {
                Side::Client => self.reach_out(conn),
                Side::Server => self.linked(conn),
            },
            Input::Congested { conn } => self.congested(conn, true),
            Input::Writable { conn } => self.congested(conn, false),
            Input::Timeout => self.timeout(now),
            Input::Mail { conn: Some(conn), .. } => self.conn(conn).read_on = true,
            Input::Command(Command::ShutdownNow) => self.put(Output::Event(Event::Exit)),
            Input::Command(Command::Pause) => self.put(Output::Event(Event::StopListening)),
            Input::Command(Command::Reload) => self.put(Output::Event(Event::Reload { asker: None, change: None })),
            _ => {}
        }
        self.seen.lock().unwrap().open = self.clients.len() + self.servers.len();
        0
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn made(&self, span: Span) -> &[u8] {
        match span {
            Span::Made { start, end } => &self.made[start as usize..end as usize],
            Span::Received { .. } => &[],
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.wake_at
    }

    fn is_logging_in(&self, _client: ConnId) -> bool {
        self.script.never_in
    }
}
