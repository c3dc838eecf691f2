//! Starting the workers' threads, and what the program holds of them afterwards.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};
use weir_core::contract::{Command, Mail, Parcel, Reloaded};
use weir_core::{Endpoint, Numbers, Settings, Worker, WorkerConfig, WorkerId};

use super::background::Background;
use super::engine::{Clock, Engine, Surroundings};
use super::epoll::Epoll;
use super::events::{self, Asker, DriverEvent, Listener};
use super::machine::Machine;
use super::mailbox::{self, Letter, Sender};
use super::net;
use super::options::{DnsOptions, DriverKind, Listen, Options, TcpOptions};
use super::tls::Tls;
use super::transport::Shipment;
use super::uring::{self, Uring};
use super::watch::{Seen, Watch};

/// Workers at most, whatever the machine has.
const WORKERS_MAX: usize = 1024;
/// How often it is looked whether the workers have ended.
const JOIN_INTERVAL: Duration = Duration::from_millis(5);
/// Beyond a millisecond nothing is gained by looking.
const BUSY_POLL_MAX_US: u64 = 1_000;

/// Why the drivers could not start: a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError(pub String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// The running workers.
#[derive(Debug)]
pub struct Handle {
    /// What the workers have to say. Lines are lost where nobody reads it.
    pub events: Listener,
    /// The driver that was chosen, and why not the other: for the log.
    pub driver: String,
    /// The TCP addresses listened on, with the ports that the system chose where 0 was asked for.
    pub addresses: Vec<SocketAddr>,
    /// Those that the machine does not have: an address that moves from one machine to another is there on one of them.
    pub absent: Vec<SocketAddr>,
    mailboxes: Vec<Sender>,
    background: Background,
    watches: Vec<Watch>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

/// Starts core's workers.
pub fn start(options: Options, settings: Arc<Settings>) -> Result<Handle, StartError> {
    let seed = options.seed.map_or_else(random, Ok)?;
    let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let epoch_us = u64::try_from(epoch.as_micros()).unwrap_or(u64::MAX);
    let numbers = Numbers::default();
    let process_secret = options.process_secret.unwrap_or_else(|| derive(&seed, b"process"));
    let unix = |path: &Option<String>| path.as_deref().map(|path| Endpoint::Unix { path: path.into() });
    let (predecessor, place) = (unix(&options.predecessor), unix(&options.place));
    start_machines(options, move |id, workers| {
        let config = WorkerConfig {
            id,
            workers,
            seed: derive(&seed, &id.0.to_le_bytes()),
            process_secret,
            epoch_us,
            uid: Some(rustix::process::geteuid().as_raw()),
            numbers: numbers.clone(),
            predecessor: predecessor.clone(),
            place: place.clone(),
        };
        Worker::new(config, settings.clone())
    })
}

/// A secret.
pub fn random() -> Result<[u8; 32], StartError> {
    let mut secret = [0; 32];
    let mut filled = 0;
    while filled < secret.len() {
        let drawn = rustix::rand::getrandom(&mut secret[filled..], rustix::rand::GetRandomFlags::empty());
        filled += drawn.map_err(|error| StartError(format!("the system gives no random bytes: {error}")))?;
    }
    Ok(secret)
}

fn derive(seed: &[u8; 32], purpose: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(seed).chain_update(purpose).finalize().into()
}

/// Starts machines of any kind, one for each worker, made on the worker's own thread.
pub fn start_machines<M, F>(options: Options, make: F) -> Result<Handle, StartError>
where
    M: Machine + 'static,
    F: Fn(WorkerId, u16) -> M + Send + Sync + 'static,
{
    start_with_rings(options, make, |_, bell| Uring::new(bell))
}

/// How a worker's ring is made.
type MakeRing = fn(WorkerId, BorrowedFd<'_>) -> io::Result<Uring>;

pub(super) fn start_with_rings<M, F>(options: Options, make: F, make_ring: MakeRing) -> Result<Handle, StartError>
where
    M: Machine + 'static,
    F: Fn(WorkerId, u16) -> M + Send + Sync + 'static,
{
    let count = match options.workers {
        0 => thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX),
        count => usize::from(count),
    };
    let (kind, driver) = choose(options.kind)?;
    let Listening { fds: listeners, addresses, absent, files } = open_listeners(&options)?;
    let system = |error| StartError(format!("cannot start the workers: {error}"));
    let boxes = (0..count).map(|_| mailbox::mailbox()).collect::<Result<Vec<_>, _>>().map_err(system)?;
    let (mailboxes, receivers): (Vec<_>, Vec<_>) = boxes.into_iter().unzip();
    let (speaker, events) = events::queue();
    let background = Background::start(options.dns, &speaker).map_err(system)?;
    background.has_workers(mailboxes.clone());
    let (said_in, said) = mpsc::channel();
    let clock = Clock(Instant::now());
    let busy_poll = busy_poll(options.busy_poll);
    let tcp = Arc::new(options.tcp);
    let make = Arc::new(make);
    let watches = (0..count).map(|_| Watch::default()).collect();
    let background_here = background.clone();
    let threads = Vec::new();
    let mut handle =
        Handle { events, driver, addresses, absent, mailboxes, background: background_here, watches, threads };
    let mut decisions = Vec::new();
    let mut steward = Some((listeners, files));
    for (index, mailbox) in receivers.into_iter().enumerate() {
        let id = WorkerId(index as u16);
        // Worker 0 alone listens.
        let (listeners, socket_files) = steward.take().unwrap_or_default();
        let around = Surroundings {
            id,
            mailbox,
            mailboxes: handle.mailboxes.clone(),
            events: speaker.clone(),
            background: background.clone(),
            clock,
            busy_poll,
            tls: options.tls.clone(),
            tcp: tcp.clone(),
            socket_files,
        };
        let (decide, decided) = mpsc::channel();
        decisions.push(decide);
        let stage = Stage { kind, make_ring, said: said_in.clone(), decided };
        let make = make.clone();
        let body = move || run_worker(&stage, around, listeners, || make(id, count as u16));
        let thread = thread::Builder::new().name(format!("weir-{index}")).spawn(body);
        handle.threads.push(thread.map_err(system)?);
    }
    drop(said_in);
    let started = agree(options.kind, &said, &decisions).and_then(|refusal| {
        if let Some(refusal) = refusal {
            handle.driver = format!("epoll (io_uring is not usable here: {refusal})");
        }
        hear_all(&said, count, |word| matches!(word, Word::Listens))
    });
    drop(decisions);
    match started {
        Ok(()) => Ok(handle),
        // A thread that ends without a word has failed as well; `join` says why.
        Err(Failed) => Err(StartError(handle.join().err().unwrap_or_else(|| "a worker ended at once".to_owned()))),
    }
}

/// What a worker's thread says while it starts.
enum Word {
    /// Its ring stands, if it is to have one.
    Ring(Result<(), String>),
    Listens,
    Failed,
}

struct Failed;

/// How a worker's thread and whoever starts it come to use one driver on all workers.
struct Stage {
    kind: DriverKind,
    make_ring: MakeRing,
    said: mpsc::Sender<Word>,
    decided: mpsc::Receiver<DriverKind>,
}

/// Decides for all workers once each has tried to make its ring. The probe has made one: for all of them memory may not
/// be enough. Answers why there is no io_uring, where that was not known before.
fn agree(
    asked: DriverKind,
    said: &mpsc::Receiver<Word>,
    decisions: &[mpsc::Sender<DriverKind>],
) -> Result<Option<String>, Failed> {
    let mut refusal = None;
    hear_all(said, decisions.len(), |word| match word {
        Word::Ring(result) => {
            refusal = refusal.take().or(result.err());
            true
        }
        _ => false,
    })?;
    let decision = match refusal {
        Some(_) if asked == DriverKind::Auto => DriverKind::Epoll,
        _ => DriverKind::IoUring,
    };
    for decide in decisions {
        // A worker without a ring to decide about has its driver.
        let _ = decide.send(decision);
    }
    Ok(refusal.filter(|_| asked == DriverKind::Auto))
}

/// One word of each worker, of the kind that is wanted.
fn hear_all(said: &mpsc::Receiver<Word>, count: usize, mut wanted: impl FnMut(Word) -> bool) -> Result<(), Failed> {
    (0..count).try_for_each(|_| if said.recv().is_ok_and(&mut wanted) { Ok(()) } else { Err(Failed) })
}

/// On a single core, looking would keep off those who are waited for.
fn busy_poll(asked: std::time::Duration) -> weir_core::time::Duration {
    let is_alone = thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
    let us = if is_alone { 0 } else { u64::try_from(asked.as_micros()).unwrap_or(u64::MAX) };
    weir_core::time::Duration(us.min(BUSY_POLL_MAX_US))
}

fn choose(kind: DriverKind) -> Result<(DriverKind, String), StartError> {
    match kind {
        DriverKind::Epoll => Ok((kind, "epoll".to_owned())),
        DriverKind::IoUring => match probe_uring() {
            Ok(()) => Ok((kind, "io_uring".to_owned())),
            Err(error) => Err(StartError(format!("io_uring is not usable here: {error}"))),
        },
        DriverKind::Auto => match probe_uring() {
            Ok(()) => Ok((DriverKind::IoUring, "io_uring".to_owned())),
            Err(error) => Ok((DriverKind::Epoll, format!("epoll (io_uring is not usable here: {error})"))),
        },
    }
}

/// Whether the io_uring driver can run here. A ring belongs to the thread that made it, so a thread of its own tries.
pub fn probe_uring() -> io::Result<()> {
    thread::spawn(uring::probe).join().unwrap_or_else(|_| Err(io::Error::other("the probe failed")))
}

/// Whether workers with io_uring hold sockets beyond the process's limit on open files here.
pub fn has_tables() -> bool {
    thread::spawn(|| uring::probe().is_ok() && uring::has_tables()).join().unwrap_or(false)
}

#[derive(Default)]
struct Listening {
    fds: Vec<OwnedFd>,
    addresses: Vec<SocketAddr>,
    absent: Vec<SocketAddr>,
    files: Vec<net::SocketFile>,
}

fn open_listeners(options: &Options) -> Result<Listening, StartError> {
    let mut all = Listening::default();
    let mut failed = None;
    for listen in &options.listeners {
        let (fd, file) = match (net::listen(listen, options.backlog, &options.tcp), listen) {
            (Ok(opened), _) => opened,
            (Err(reason), Listen::Tcp(address)) if !net::is_here(address.ip()) => {
                failed.get_or_insert(reason);
                all.absent.push(*address);
                continue;
            }
            (Err(reason), _) => return Err(StartError(reason)),
        };
        if let Listen::Passed(_) | Listen::TakenOver(_) = listen {
            all.addresses.extend(net::local_address(&fd));
        }
        if let Listen::Tcp(address) = listen {
            let problem = |error| StartError(format!("cannot listen on {address}: {error}"));
            net::defer_accept(&fd, &options.tcp).map_err(problem)?;
            all.addresses.extend(net::local_address(&fd));
        }
        all.files.extend(file);
        all.fds.push(fd);
    }
    match failed.filter(|_| all.fds.is_empty()) {
        Some(reason) => Err(StartError(reason)),
        None => Ok(all),
    }
}

/// The body of a worker's thread. A panic ends here, as an error.
fn run_worker<M: Machine>(
    stage: &Stage,
    around: Surroundings,
    listeners: Vec<OwnedFd>,
    make: impl FnOnce() -> M,
) -> Result<(), String> {
    let (events, id) = (around.events.clone(), around.id);
    let result = catch_unwind(AssertUnwindSafe(|| match choose_sockets(stage, &around)? {
        Some(ring) => run_engine(Engine::new(make(), ring, around), listeners, &stage.said),
        None => {
            let sockets = Epoll::new(around.mailbox.bell()).map_err(|error| format!("cannot set up epoll: {error}"))?;
            run_engine(Engine::new(make(), sockets, around), listeners, &stage.said)
        }
    }));
    let result = result.unwrap_or_else(|panic| Err(format!("a bug: {}", panic_text(panic.as_ref()))));
    result.map_err(|reason| {
        let text = format!("worker {} failed: {reason}", id.0);
        let _ = stage.said.send(Word::Failed);
        events.say(DriverEvent::Failed { text: text.clone() });
        text
    })
}

/// The worker's ring, where all workers have one. `None`: epoll.
fn choose_sockets(stage: &Stage, around: &Surroundings) -> Result<Option<Uring>, String> {
    let made = match stage.kind {
        DriverKind::IoUring => (stage.make_ring)(around.id, around.mailbox.bell()).map(Some),
        DriverKind::Epoll | DriverKind::Auto => Ok(None),
    };
    let said = made.as_ref().map(|_| ()).map_err(ToString::to_string);
    let _ = stage.said.send(Word::Ring(said));
    match (stage.decided.recv(), made) {
        (Ok(DriverKind::IoUring), Err(error)) => Err(format!("cannot set up io_uring: {error}")),
        (Ok(DriverKind::IoUring), Ok(made)) => Ok(made),
        (Ok(_), _) => Ok(None),
        (Err(_), _) => Err("another worker did not start".to_owned()),
    }
}

fn run_engine<M: Machine, S: super::sockets::Sockets>(
    mut engine: Engine<M, S>,
    listeners: Vec<OwnedFd>,
    said: &mpsc::Sender<Word>,
) -> Result<(), String> {
    engine.listen(listeners)?;
    let _ = said.send(Word::Listens);
    engine.run()
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a text")
}

impl Handle {
    /// Hands new settings to every worker, with what TLS handshakes use from now on.
    pub fn settings(&self, settings: &Arc<Settings>, tls: &Arc<Tls>, tcp: &Arc<TcpOptions>, dns: DnsOptions) {
        self.background.options(dns);
        for mailbox in &self.mailboxes {
            mailbox.send(Letter::Settings(settings.clone(), tls.clone(), tcp.clone()));
        }
    }

    /// Which workers have fallen silent, or are back. To be asked every second or so.
    pub fn look(&mut self, now: Instant) -> Vec<(usize, Seen)> {
        let workers = self.watches.iter_mut().zip(&self.mailboxes).enumerate();
        workers.filter_map(|(worker, (watch, mailbox))| Some((worker, watch.look(mailbox, now)?))).collect()
    }

    /// Hands a command to the steward.
    pub fn command(&self, command: Command) {
        if let Some(steward) = self.mailboxes.first() {
            steward.send(Letter::Command(command));
        }
    }

    /// Answers [`DriverEvent::Reload`].
    pub fn reload_done(&self, to: Asker, result: Reloaded) {
        if let Some(mailbox) = self.mailboxes.get(usize::from(to.worker.0)) {
            mailbox.send(Letter::ReloadDone { asker: to.client, result });
        }
    }

    pub fn workers(&self) -> usize {
        self.mailboxes.len()
    }

    /// A way to hand in commands from another thread, such as the one that waits for signals.
    pub fn commander(&self) -> Commander {
        Commander { mailboxes: self.mailboxes.clone() }
    }

    /// Ends all workers and waits for them. An error says which worker failed, and how.
    pub fn join(self) -> Result<(), String> {
        self.stop();
        self.collect()
    }

    /// The same, but a worker that has not ended by then is left behind: only the end of the process ends it.
    pub fn join_within(mut self, patience: Duration) -> Result<(), String> {
        self.stop();
        let deadline = Instant::now() + patience;
        while !self.threads.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
            thread::sleep(JOIN_INTERVAL);
        }
        let hung: Vec<_> = self.threads.extract_if(.., |thread| !thread.is_finished()).collect();
        let names: Vec<_> = hung.iter().filter_map(|thread| thread.thread().name()).collect();
        let left = match names.as_slice() {
            [] => Ok(()),
            names => Err(format!("these workers hang and are left behind: {}", names.join(", "))),
        };
        self.collect().and(left)
    }

    fn stop(&self) {
        for mailbox in &self.mailboxes {
            mailbox.send(Letter::Stop);
        }
    }

    fn collect(self) -> Result<(), String> {
        let mut result = Ok(());
        for thread in self.threads {
            let ended = thread.join().unwrap_or_else(|panic| Err(panic_text(panic.as_ref()).to_owned()));
            result = result.and(ended);
        }
        result
    }
}

/// Hands commands to the steward, and clients, from any thread.
#[derive(Debug, Clone, Default)]
pub struct Commander {
    /// Of all workers, the steward first.
    mailboxes: Vec<Sender>,
}

impl Commander {
    pub fn command(&self, command: Command) {
        self.tell_steward(Letter::Command(command));
    }

    /// A connection that came in elsewhere.
    pub fn take_in(&self, fd: OwnedFd) {
        self.tell_steward(Letter::Client(fd));
    }

    /// What the process before this one has written, with the client that comes along, if one does.
    pub fn take_over(&self, letter: (WorkerId, Mail), client: Option<Shipment>) -> Result<(), String> {
        self.take(WorkerId::SUCCESSOR, letter, client)
    }

    /// What another process has written: to whom, and what.
    pub fn letter(&self, text: &str) -> Result<(WorkerId, Mail), String> {
        Mail::read(text, self.mailboxes.len() as u16)
    }

    /// A client that was to go to another process, and could not be sent.
    pub fn take_back(&self, text: &str, client: Shipment) -> Result<(), String> {
        self.take(WorkerId::STEWARD, self.letter(text)?, Some(client))
    }

    fn take(&self, from: WorkerId, (to, mail): (WorkerId, Mail), client: Option<Shipment>) -> Result<(), String> {
        if let Some(client) = &client {
            // The other one's driver may have had it otherwise.
            net::set_blocking(client.fd.as_fd()).map_err(|error| error.to_string())?;
        }
        self.deliver(Parcel { from, mail, transport: client }, to);
        Ok(())
    }

    /// A client that was to go to another process has been sent, or is lost.
    pub fn sent(&self) {
        self.tell(Mail::sent());
    }

    /// The process before this one has ended.
    pub fn predecessor_ended(&self) {
        self.tell(Mail::predecessor_ended());
    }

    fn tell(&self, mail: Mail) {
        self.deliver(Parcel { from: WorkerId::SUCCESSOR, mail, transport: None }, WorkerId::STEWARD);
    }

    fn deliver(&self, parcel: Parcel<Shipment>, to: WorkerId) {
        if let Some(mailbox) = self.mailboxes.get(usize::from(to.0)) {
            mailbox.send(Letter::Parcel(parcel));
        }
    }

    /// What is mailed to the process that takes over, from now on, as long as this one runs.
    pub fn departing(&self) -> mpsc::Receiver<Parcel<Shipment>> {
        let (sender, departing) = mpsc::channel();
        for mailbox in &self.mailboxes {
            mailbox.send(Letter::Successor(sender.clone()));
        }
        departing
    }

    fn tell_steward(&self, letter: Letter) {
        if let Some(steward) = self.mailboxes.first() {
            steward.send(letter);
        }
    }

    /// Descriptors of all sockets that are listened on. `None`: they cannot be had, within that time.
    pub fn listeners(&self, patience: Duration) -> Option<Vec<OwnedFd>> {
        self.ask(patience, Letter::LendListeners)
    }

    /// Another process listens there. `None`: within that time this one has not left.
    pub fn leave_listeners(&self, patience: Duration) -> Option<()> {
        self.ask(patience, Letter::LeaveListeners)
    }

    /// The other process has left.
    pub fn listen_anew(&self) {
        self.tell_steward(Letter::ListenAnew);
    }

    fn ask<T>(&self, patience: Duration, letter: impl FnOnce(mpsc::Sender<T>) -> Letter) -> Option<T> {
        let (answer, answered) = mpsc::channel();
        self.tell_steward(letter(answer));
        answered.recv_timeout(patience).ok()
    }

    /// A connection that is on no listener: its other end is taken in as a client over a Unix socket, of the process's own user.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        self.take_in(theirs.into());
        Ok(ours)
    }
}
