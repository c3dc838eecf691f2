//! One worker's loop: sleeps, hands in what happened, does what core puts out. The same for both drivers.
//! Knows no system calls: those are the driver's ([`Sockets`]).

mod connecting;
mod load;
mod mail;
mod newcomers;
mod receive;
mod send;
mod waiting;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use weir_core::contract::{Event, Input, Level, Mail, Output, Parcel, Span};
use weir_core::time::Duration;
use weir_core::{ConnId, Side, Time, WorkerId};

use super::background::Background;
use super::derive::Derivation;
use super::events::{Asker, DriverEvent, Speaker};
use super::machine::Machine;
use super::mailbox::{self, Letter};
use super::options::TcpOptions;
use super::sockets::{self, Sockets, Step};
use super::tls::Tls;
use super::transport::{Phase, Place, Shipment, Transport, Transports};
use super::{mailbox::Receiver, net};
use load::Load;
use mail::Departing;
use newcomers::Newcomers;
use waiting::BusyPoll;

/// Letters taken in one turn.
const LETTERS_MAX: usize = 256;
/// How long to leave the listeners alone when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long last words may take once the worker is told to end.
const STOP_LINGER: Duration = Duration::from_millis(500);
/// The clock is read again after so many events of a turn.
const EVENTS_PER_TIME: usize = 32;

/// When the process began, for all its workers.
#[derive(Debug, Clone, Copy)]
pub struct Clock(pub Instant);

impl Clock {
    pub fn now(self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

/// What a worker is given besides its machine and its sockets.
pub struct Surroundings {
    pub id: WorkerId,
    pub mailbox: Receiver,
    /// Of all workers, this one's included.
    pub mailboxes: Vec<mailbox::Sender>,
    pub events: Speaker,
    pub background: Background,
    pub clock: Clock,
    /// How long to look for work before sleeping.
    pub busy_poll: Duration,
    pub tls: Arc<Tls>,
    pub tcp: Arc<TcpOptions>,
    /// Unix sockets to remove when listening ends.
    pub socket_files: Vec<net::SocketFile>,
}

/// Inputs that wait until the outputs of the one before are drained.
enum Deferred {
    Feed(ConnId),
    Ciphertext(ConnId, Vec<u8>),
    Congested(ConnId),
    Writable(ConnId),
    Closed(ConnId),
    ConnectFailed(ConnId, String),
}

/// A connection that is closed once its last bytes are sent.
struct Lingering {
    id: ConnId,
    deadline: Time,
    /// How many they were when that was set, and whether none of them was taken up to then.
    unsent: usize,
    idle: bool,
}

pub struct Engine<M, S: Sockets> {
    machine: M,
    sockets: S,
    around: Surroundings,
    transports: Transports<S::Socket>,
    now: Time,
    deferred: VecDeque<Deferred>,
    /// Spans of one connection, to be sent together.
    batch: Vec<Span>,
    batch_conn: Option<ConnId>,
    /// Connections whose sends begin at the end of the turn.
    dirty: Vec<ConnId>,
    /// Closing connections, by when that is looked at again.
    lingering: VecDeque<Lingering>,
    /// Mail that waits for a connection that goes with it, for each worker.
    departing: Vec<VecDeque<Departing>>,
    /// Who carries what is for the process that takes over.
    successor: Option<mpsc::Sender<Parcel<Shipment>>>,
    /// Clients that cannot leave, with their mail: core hears of it in its next input.
    staying: Vec<(ConnId, Mail)>,
    accept_paused_until: Option<Time>,
    /// The first so many listeners are Unix sockets.
    unix_listeners: usize,
    /// What core was told of the driver's room for connections.
    crowded: bool,
    newcomers: Newcomers,
    load: Load,
    busy_poll: BusyPoll,
    stop_at: Option<Time>,
    /// What TLS works in: received, decrypted, encrypted.
    incoming: Vec<u8>,
    plain: Vec<u8>,
    cipher: Vec<u8>,
    /// Emptied buffers of what was held, for the next that is.
    spare: Vec<Vec<u8>>,
}

impl<M: Machine, S: Sockets> Engine<M, S> {
    pub fn new(machine: M, sockets: S, around: Surroundings) -> Self {
        let busy_poll = BusyPoll::new(around.busy_poll);
        // And for the process that takes over.
        let departing = (0..=around.mailboxes.len()).map(|_| VecDeque::new()).collect();
        Self {
            machine,
            sockets,
            transports: Transports::new(),
            now: around.clock.now(),
            around,
            deferred: VecDeque::new(),
            batch: Vec::new(),
            batch_conn: None,
            dirty: Vec::new(),
            lingering: VecDeque::new(),
            departing,
            successor: None,
            staying: Vec::new(),
            accept_paused_until: None,
            unix_listeners: 0,
            crowded: false,
            newcomers: Newcomers::default(),
            load: Load::default(),
            busy_poll,
            stop_at: None,
            incoming: Vec::new(),
            plain: Vec::new(),
            cipher: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Runs until told to stop. The error is a sentence: the system refused what the loop cannot do without.
    pub fn run(mut self) -> Result<(), String> {
        let result = self.turns();
        self.end_listening();
        result
    }

    fn turns(&mut self) -> Result<(), String> {
        // A machine may have something to say before anything has happened.
        self.drain(&[], None);
        self.settle();
        while !self.is_over() {
            while !self.dirty.is_empty() {
                self.flush_dirty();
                self.settle();
            }
            let wait = self.wait().map_err(|error| format!("waiting for sockets failed: {error}"))?;
            // Events first: among them is what was not sent, which goes before what letters lead to.
            let events = self.read_events();
            self.busy_poll.turn(self.now, wait, events);
            self.read_letters();
            self.serve_newcomers();
            self.look_at_the_clock();
        }
        Ok(())
    }

    fn read_letters(&mut self) {
        for _ in 0..LETTERS_MAX {
            let Some(letter) = self.around.mailbox.take() else { return };
            self.load.worked();
            self.letter(letter);
            self.settle();
        }
    }

    fn letter(&mut self, letter: Letter) {
        match letter {
            Letter::Parcel(parcel) => self.unpack(parcel),
            Letter::Settings(settings, tls, tcp) => {
                (self.around.tls, self.around.tcp) = (tls, tcp);
                self.input(Input::Settings(settings));
            }
            Letter::Command(command) => self.input(Input::Command(command)),
            Letter::Client(fd) => self.accepted(fd),
            Letter::LeaveListeners(left) => {
                self.around.socket_files.clear();
                self.sockets.stop_accept(0);
                self.around.events.say(DriverEvent::Drains);
                let _ = left.send(());
            }
            Letter::Successor(successor) => self.successor = Some(successor),
            // Another process's accept may have been woken for whoever waits, and have ended.
            Letter::ListenAnew => {
                self.sockets.pause_accept();
                if self.accept_paused_until.is_none() && !self.newcomers.are_many() {
                    self.sockets.resume_accept();
                }
            }
            Letter::LendListeners(lend) => {
                let lent = self.sockets.listeners().iter().map(std::os::fd::OwnedFd::try_clone);
                // Whoever asked may have given up; where the process has no descriptor left there is nothing to lend.
                let _ = lent.collect::<Result<_, _>>().map(|lent| lend.send(lent));
            }
            Letter::Resolved { conn, result } => self.resolved(conn, result),
            Letter::Derived { job, salted_password } => self.input(Input::Derived { job, salted_password }),
            Letter::Answered { client, finding } => self.input(Input::Answered { client, finding }),
            Letter::NamesTold { asker, names } => self.input(Input::NamesTold { asker, names: Box::new(names) }),
            Letter::HostMoved { host, gone } => self.input(Input::HostMoved { host, gone }),
            Letter::ReloadDone { asker, result } => self.input(Input::ReloadDone { asker, result }),
            Letter::Knock(heard, number) => heard.store(number, Ordering::Relaxed),
            Letter::Stop => {
                self.end_listening();
                self.input(Input::Stop);
                self.stop_at = Some(self.now + STOP_LINGER);
            }
        }
    }

    fn read_events(&mut self) -> usize {
        let mut count = 0;
        while let Some(event) = self.sockets.next() {
            self.load.worked();
            match event {
                sockets::Event::Connection(id, raw) => self.step(id, raw),
                sockets::Event::Accepted(fd) => self.accepted(fd),
                sockets::Event::AcceptFailed(error) => self.accept_failed(&error),
            }
            self.settle();
            count += 1;
            if count % EVENTS_PER_TIME == 0 {
                let now = self.around.clock.now().max(self.now);
                self.load.awake(now.since(self.now));
                self.now = now;
            }
        }
        count
    }

    /// Something happened on one connection.
    fn step(&mut self, id: ConnId, raw: S::Raw) {
        let step = if let Some(transport) = self.transports.open(id) {
            self.sockets.advance(id, &mut transport.socket, raw)
        } else if let Some(socket) = self.transports.connecting(id).and_then(|attempt| attempt.socket.as_mut()) {
            self.sockets.advance(id, socket, raw)
        } else {
            return;
        };
        match step {
            Step::Nothing => {}
            Step::Received(piece) => self.received(id, piece),
            Step::Ended => self.hung_up(id),
            Step::Lost => self.lost(id),
            Step::HungUp if id.side == Side::Client => self.lost(id),
            Step::HungUp => {}
            Step::Sent => self.sent(id),
            Step::Connectable => self.connectable(id),
            Step::Retired => self.retired(id),
        }
    }

    /// Hands in one input other than bytes, and does what it led to.
    fn input(&mut self, input: Input<'_>) {
        self.machine.handle(self.now, input);
        self.drain(&[], None);
    }

    /// Hands in what came of doing.
    fn settle(&mut self) {
        while let Some(deferred) = self.deferred.pop_front() {
            match deferred {
                Deferred::Feed(id) => self.feed_held(id),
                Deferred::Ciphertext(id, bytes) => self.ciphertext(id, &bytes),
                Deferred::Congested(conn) if self.is_open(conn) => self.input(Input::Congested { conn }),
                Deferred::Writable(conn) if self.is_open(conn) => self.input(Input::Writable { conn }),
                Deferred::Congested(_) | Deferred::Writable(_) => {}
                Deferred::Closed(conn) => self.input(Input::Closed { conn }),
                Deferred::ConnectFailed(conn, reason) => self.input(Input::ConnectFailed { conn, reason }),
            }
        }
    }

    fn is_open(&mut self, id: ConnId) -> bool {
        self.transports.open(id).is_some_and(|transport| transport.phase == Phase::Open)
    }

    /// Takes all outputs. `bytes` are those of the input just handled, in `piece` if they came out of one.
    fn drain(&mut self, bytes: &[u8], piece: Option<&S::Piece>) {
        while let Some(output) = self.machine.poll_output() {
            if let Output::Send { conn, span } = output {
                if self.batch_conn != Some(conn) {
                    self.send_batch(bytes, piece);
                    self.batch_conn = Some(conn);
                }
                self.batch.push(span);
                continue;
            }
            self.send_batch(bytes, piece);
            self.act(output);
        }
        self.send_batch(bytes, piece);
        while let Some((conn, mail)) = self.staying.pop() {
            self.input(Input::Stays { conn, mail });
        }
    }

    fn act(&mut self, output: Output) {
        match output {
            // Taken by `drain`.
            Output::Send { .. } => {}
            Output::Read { conn, on } => self.read(conn, on),
            Output::Connect { conn, endpoint } => self.connect(conn, endpoint),
            Output::StartTls { conn, role } => self.start_tls(conn, &role),
            Output::Close { conn } => self.close(conn),
            Output::Derive { job, password, salt, iterations } => {
                let derivation = Derivation { job, password, salt, iterations };
                self.around.background.derive(self.own_mailbox(), derivation);
            }
            Output::TellNames { asker } => self.around.background.tell_names(self.own_mailbox(), asker),
            Output::Ask { client, inquiry } => {
                self.around.background.ask(self.own_mailbox(), (self.around.id, client), *inquiry);
            }
            Output::AskNoMore { client } => self.around.background.ask_no_more((self.around.id, client)),
            Output::Mail { to, mail, conn } => self.mail(to, mail, conn),
            Output::Event(event) => self.event(event),
        }
    }

    fn own_mailbox(&self) -> &mailbox::Sender {
        &self.around.mailboxes[usize::from(self.around.id.0)]
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Log { level, text } => self.around.events.log(level, text),
            Event::Reload { asker, change } => {
                let asker = Asker { worker: self.around.id, client: asker };
                self.around.events.say(DriverEvent::Reload { asker, change });
            }
            Event::StopListening => {
                self.sockets.stop_accept(self.unix_listeners);
                self.around.events.say(DriverEvent::Drains);
            }
            Event::Exit => self.around.events.say(DriverEvent::Exit),
        }
    }

    fn log(&mut self, level: Level, text: String) {
        self.event(Event::Log { level, text });
    }

    fn end_listening(&mut self) {
        // The files first: whoever listens there next makes one of its own.
        for file in self.around.socket_files.drain(..) {
            file.remove();
        }
        self.sockets.stop_accept(0);
    }

    /// Starts to listen; the steward's only.
    pub fn listen(&mut self, mut listeners: Vec<std::os::fd::OwnedFd>) -> Result<(), String> {
        let is_tcp = |fd: &std::os::fd::OwnedFd| net::local_address(fd).is_some();
        listeners.sort_by_key(is_tcp);
        self.unix_listeners = listeners.iter().filter(|fd| !is_tcp(fd)).count();
        self.sockets.listen(listeners).map_err(|error| format!("cannot watch the listening sockets: {error}"))
    }

    /// Brings in a client that was accepted.
    fn welcome(&mut self, fd: std::os::fd::OwnedFd) {
        net::tune(&fd, &self.around.tcp);
        let (peer, local) = net::ends(std::os::fd::AsFd::as_fd(&fd));
        let conn = self.bring_in(Side::Client, fd);
        self.input(Input::Accepted { conn, peer, local });
        self.start_receiving(conn);
    }

    /// Takes in a connection that stands.
    fn bring_in(&mut self, side: Side, fd: std::os::fd::OwnedFd) -> ConnId {
        let id = self.machine.reserve(side);
        let transport = Transport::new(id.generation, self.sockets.adopt(fd));
        self.transports.put(id, Place::Open(transport));
        id
    }

    /// Starts to receive on a connection that was brought in, unless it has left or ended since: most new clients go to
    /// another worker at once.
    fn start_receiving(&mut self, id: ConnId) {
        let is_new = self.machine.is_logging_in(id);
        let Some(transport) = self.transports.open(id).filter(|transport| transport.phase == Phase::Open) else {
            return;
        };
        transport.newcomer = is_new;
        if let Err(error) = self.sockets.begin(id, &mut transport.socket) {
            self.log(Level::Warning, format!("cannot watch a connection: {error}"));
            self.end(id);
        }
    }

    fn accept_failed(&mut self, error: &std::io::Error) {
        if self.accept_paused_until.is_none() {
            self.sockets.pause_accept();
            self.accept_paused_until = Some(self.now + ACCEPT_PAUSE);
            self.log(Level::Warning, format!("cannot accept clients for a moment: {error}"));
        }
    }

    /// Does what is due.
    fn look_at_the_clock(&mut self) {
        if self.accept_paused_until.is_some_and(|until| until <= self.now) {
            self.accept_paused_until = None;
            if !self.newcomers.are_many() {
                self.sockets.resume_accept();
            }
        }
        while let Some(lingering) = self.lingering.pop_front_if(|lingering| lingering.deadline <= self.now) {
            self.linger_on(&lingering);
        }
        if self.machine.poll_timeout().is_some_and(|due| due <= self.now) {
            self.input(Input::Timeout);
        }
        let full = self.sockets.is_full();
        if full != self.crowded {
            self.crowded = full;
            self.input(Input::Crowded { full });
        }
        if let Some(busy_permille) = self.load.tell(self.now) {
            self.input(Input::Load { busy_permille });
        }
        self.settle();
    }

    /// How long to sleep. `None`: until something happens.
    fn timeout(&mut self) -> Option<std::time::Duration> {
        if self.newcomers.wait() || !self.around.mailbox.fall_asleep() {
            return Some(std::time::Duration::ZERO);
        }
        let lingering = self.lingering.front().map(|lingering| lingering.deadline);
        let due = [self.machine.poll_timeout(), self.accept_paused_until, lingering, self.stop_at];
        let due = due.into_iter().flatten().min().filter(|due| *due != Time::NEVER)?;
        Some(std::time::Duration::from_micros(due.since(self.around.clock.now()).0))
    }

    fn is_over(&mut self) -> bool {
        let Some(stop_at) = self.stop_at else { return false };
        let transports = &mut self.transports;
        self.lingering.retain(|it| transports.open(it.id).is_some_and(|it| it.phase == Phase::Closing));
        self.lingering.is_empty() || stop_at <= self.now
    }
}
