//! Starting the workers' threads, and what the program holds of them afterwards.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use sha2::{Digest, Sha256};
use weir_core::contract::Command;
use weir_core::{Settings, Worker, WorkerConfig, WorkerId};

use super::background::Background;
use super::engine::{Clock, Engine, Surroundings};
use super::epoll::Epoll;
use super::events::{self, DriverEvent, Listener};
use super::machine::Machine;
use super::mailbox::{self, Letter, Sender};
use super::net;
use super::options::{DriverKind, Listen, Options};
use super::tls::Tls;
use super::uring::{self, Uring};

/// Workers at most, whatever the machine has.
const WORKERS_MAX: usize = 1024;
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
    mailboxes: Vec<Sender>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

/// Starts core's workers.
pub fn start(options: Options, settings: Arc<Settings>) -> Result<Handle, StartError> {
    let seed = match options.seed {
        Some(seed) => seed,
        None => random().map_err(|error| StartError(format!("the system gives no random bytes: {error}")))?,
    };
    let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let epoch_us = u64::try_from(epoch.as_micros()).unwrap_or(u64::MAX);
    start_machines(options, move |id, workers| {
        let config = WorkerConfig {
            id,
            workers,
            seed: derive(&seed, &id.0.to_le_bytes()),
            process_secret: derive(&seed, b"process"),
            epoch_us,
        };
        Worker::new(config, settings.clone())
    })
}

fn random() -> std::io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    let mut filled = 0;
    while filled < seed.len() {
        filled += rustix::rand::getrandom(&mut seed[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(seed)
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
    let count = match options.workers {
        0 => thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX),
        count => usize::from(count),
    };
    let (kind, driver) = choose(options.kind)?;
    let (listeners, addresses, files) = open_listeners(&options)?;
    let system = |error| StartError(format!("cannot start the workers: {error}"));
    let background = Background::start(options.dns).map_err(system)?;
    let boxes = (0..count).map(|_| mailbox::mailbox()).collect::<Result<Vec<_>, _>>().map_err(system)?;
    let (mailboxes, receivers): (Vec<_>, Vec<_>) = boxes.into_iter().unzip();
    let (speaker, events) = events::queue();
    let (ready_in, ready) = mpsc::channel();
    let clock = Clock(Instant::now());
    let busy_poll = busy_poll(options.busy_poll);
    let tcp = Arc::new(options.tcp);
    let make = Arc::new(make);
    let mut handle = Handle { events, driver, addresses, mailboxes, threads: Vec::new() };
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
        let (make, ready_in) = (make.clone(), ready_in.clone());
        let body = move || run_worker(kind, around, listeners, &ready_in, || make(id, count as u16));
        let thread = thread::Builder::new().name(format!("weir-{index}")).spawn(body);
        handle.threads.push(thread.map_err(system)?);
    }
    drop(ready_in);
    for _ in 0..count {
        // A thread that ends without a word has failed; `join` says why.
        if let Ok(Ok(())) = ready.recv() {
            continue;
        }
        let reason = handle.join().err().unwrap_or_else(|| "a worker ended at once".to_owned());
        return Err(StartError(reason));
    }
    Ok(handle)
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
pub fn probe_uring() -> std::io::Result<()> {
    thread::spawn(uring::probe).join().unwrap_or_else(|_| Err(std::io::Error::other("the probe failed")))
}

/// Whether workers with io_uring hold sockets beyond the process's limit on open files here.
pub fn has_tables() -> bool {
    thread::spawn(|| uring::probe().is_ok() && uring::has_tables()).join().unwrap_or(false)
}

type Listening = (Vec<OwnedFd>, Vec<SocketAddr>, Vec<PathBuf>);

fn open_listeners(options: &Options) -> Result<Listening, StartError> {
    let (mut fds, mut addresses, mut files) = (Vec::new(), Vec::new(), Vec::new());
    for listen in &options.listeners {
        let fd = net::listen(listen, options.backlog, &options.tcp).map_err(StartError)?;
        match listen {
            Listen::Tcp(address) => {
                let problem = |error| StartError(format!("cannot listen on {address}: {error}"));
                net::defer_accept(&fd, &options.tcp).map_err(problem)?;
                addresses.extend(net::local_address(&fd));
            }
            Listen::Unix { path, .. } if !path.to_string_lossy().starts_with('@') => files.push(path.clone()),
            Listen::Unix { .. } => {}
        }
        fds.push(fd);
    }
    Ok((fds, addresses, files))
}

/// The body of a worker's thread. A panic ends here, as an error.
fn run_worker<M: Machine>(
    kind: DriverKind,
    around: Surroundings,
    listeners: Vec<OwnedFd>,
    ready: &mpsc::Sender<Result<(), ()>>,
    make: impl FnOnce() -> M,
) -> Result<(), String> {
    let (events, id) = (around.events.clone(), around.id);
    let result = catch_unwind(AssertUnwindSafe(|| match kind {
        DriverKind::Epoll | DriverKind::Auto => {
            let sockets = Epoll::new(around.mailbox.bell()).map_err(|error| format!("cannot set up epoll: {error}"))?;
            run_engine(Engine::new(make(), sockets, around), listeners, ready)
        }
        DriverKind::IoUring => {
            let sockets =
                Uring::new(around.mailbox.bell()).map_err(|error| format!("cannot set up io_uring: {error}"))?;
            run_engine(Engine::new(make(), sockets, around), listeners, ready)
        }
    }));
    let result = result.unwrap_or_else(|panic| Err(format!("a bug: {}", panic_text(panic.as_ref()))));
    result.map_err(|reason| {
        let text = format!("worker {} failed: {reason}", id.0);
        let _ = ready.send(Err(()));
        events.say(DriverEvent::Failed { text: text.clone() });
        text
    })
}

fn run_engine<M: Machine, S: super::sockets::Sockets>(
    mut engine: Engine<M, S>,
    listeners: Vec<OwnedFd>,
    ready: &mpsc::Sender<Result<(), ()>>,
) -> Result<(), String> {
    engine.listen(listeners)?;
    let _ = ready.send(Ok(()));
    engine.run()
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a text")
}

impl Handle {
    /// Hands new settings to every worker, with what TLS handshakes use from now on.
    pub fn settings(&self, settings: &Arc<Settings>, tls: &Arc<Tls>) {
        for mailbox in &self.mailboxes {
            mailbox.send(Letter::Settings(settings.clone(), tls.clone()));
        }
    }

    /// Hands a command to the steward.
    pub fn command(&self, command: Command) {
        if let Some(steward) = self.mailboxes.first() {
            steward.send(Letter::Command(command));
        }
    }

    /// Answers [`DriverEvent::Reload`].
    pub fn reload_done(&self, worker: WorkerId, result: Result<(), String>) {
        if let Some(mailbox) = self.mailboxes.get(usize::from(worker.0)) {
            mailbox.send(Letter::ReloadDone { result });
        }
    }

    pub fn workers(&self) -> usize {
        self.mailboxes.len()
    }

    /// A way to hand in commands from another thread, such as the one that waits for signals.
    pub fn commander(&self) -> Commander {
        Commander { steward: self.mailboxes.first().cloned() }
    }

    /// Ends all workers and waits for them. An error says which worker failed, and how.
    pub fn join(self) -> Result<(), String> {
        for mailbox in &self.mailboxes {
            mailbox.send(Letter::Stop);
        }
        let mut result = Ok(());
        for thread in self.threads {
            let ended = thread.join().unwrap_or_else(|panic| Err(panic_text(panic.as_ref()).to_owned()));
            result = result.and(ended);
        }
        result
    }
}

/// Hands commands to the steward from any thread.
#[derive(Debug, Clone)]
pub struct Commander {
    steward: Option<Sender>,
}

impl Commander {
    pub fn command(&self, command: Command) {
        if let Some(steward) = &self.steward {
            steward.send(Letter::Command(command));
        }
    }
}
