//! The process that takes over.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use weir_core::Side;

use super::channel::{Channel, unasked};
use super::{Mail, Message, PROTOCOL, Place, path_beside};
use crate::config::ProgramSettings;
use crate::config::global::VERSION;
use crate::driver::{Commander, Listen, Shipment, connect_unix};
use crate::log::Log;

/// How long the old process may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one is looked for where somebody listens.
const FOUND_WITHIN: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The process whose place is taken.
#[derive(Debug)]
pub struct Predecessor {
    channel: Channel,
    pid: u32,
    /// What it listens on and nobody has taken yet.
    sockets: Vec<(Place, OwnedFd)>,
    /// Where it hears cancel requests.
    pub cancels: String,
    pub process_secret: [u8; 32],
}

impl Predecessor {
    /// The one that runs with these settings. `None`: there is none.
    pub fn find(program: &ProgramSettings, log: &Log) -> Result<Option<Self>, String> {
        let connected = program.unix_socket_path().and_then(|unix_socket| connect(&unix_socket));
        let Some((stream, path)) = connected else {
            // As PgBouncer has it: people start with it also where nothing runs. Where something does, its port or pidfile is in the way.
            log.info("old process not found, try to continue normally");
            return Ok(None);
        };
        let failed = |error| format!("could not take over from the process at {}: {error}", path.display());
        let stream = UnixStream::from(stream);
        stream.set_nonblocking(false).map_err(failed)?;
        let channel = Channel::new(stream);
        if !channel.is_of_our_user() {
            return Err(failed(std::io::Error::other("it is another user's")));
        }
        channel.patience(Some(PATIENCE)).map_err(failed)?;
        Self::ask(channel, log).map(Some).map_err(failed)
    }

    fn ask(channel: Channel, log: &Log) -> std::io::Result<Self> {
        let hello = Message::Hello { protocol: PROTOCOL, version: VERSION.to_owned(), pid: std::process::id() };
        channel.send(&hello, &[])?;
        match channel.answer()? {
            (Message::Sockets(sockets), descriptors) => {
                let super::Sockets { version, pid, listeners, cancels, process_secret } = sockets;
                log.info(&format!("taking over from process {pid} ({version})"));
                let sockets = listeners.into_iter().zip(descriptors).collect();
                Ok(Self { channel, pid, sockets, cancels, process_secret })
            }
            (Message::Refused { reason }, _) => Err(std::io::Error::other(reason)),
            _ => Err(unasked()),
        }
    }

    fn take(&mut self, wanted: &Place) -> Option<OwnedFd> {
        let found = self.sockets.iter().position(|(place, _)| place == wanted)?;
        Some(self.sockets.swap_remove(found).1)
    }

    /// The same place to listen on; on a socket of the old process's, where that has it.
    pub fn instead_of(&mut self, listen: Listen) -> Listen {
        let place = match &listen {
            Listen::Tcp(address) => Place::Tcp(*address),
            Listen::Unix { path, .. } => Place::Unix(path.clone()),
            Listen::Passed(_) | Listen::TakenOver(_) => return listen,
        };
        self.take(&place).map_or(listen, |fd| Listen::TakenOver(fd.into_raw_fd()))
    }

    pub fn metrics_listener(&mut self, address: SocketAddr) -> Option<OwnedFd> {
        self.take(&Place::Metrics(address))
    }

    /// This process listens; the pidfile and the way to take over are free when this returns. What goes wrong from here on is for the log: there
    /// is no way back.
    pub fn leave(&mut self, log: &Log) {
        // What nobody listens on any more.
        self.sockets.clear();
        let left = self.channel.send(&Message::Listens, &[]).and_then(|()| self.channel.receive());
        match left {
            Ok(Some((Message::Left, _))) => {}
            Ok(_) => log.warning(&format!("process {} did not say that it has left", self.pid)),
            Err(error) => log.warning(&format!("process {} did not say that it has left: {error}", self.pid)),
        }
    }

    /// Takes clients in as they come, until the old process has ended.
    pub fn take_clients(self, commander: Commander, log: Arc<Log>) -> Result<(), String> {
        let Self { channel, pid, .. } = self;
        let take_all = move || {
            let mut count = 0;
            let outcome = channel.patience(None).and_then(|()| {
                while let Some((message, descriptors)) = channel.receive()? {
                    match take(&channel, message, descriptors, &commander)? {
                        Taken::Client => count += 1,
                        Taken::Word => {}
                        Taken::Lost(reason) => log.error(&format!("a client of process {pid} is lost: {reason}")),
                    }
                }
                Ok(())
            });
            if let Err(error) = outcome {
                log.error(&format!(
                    "process {pid} cannot be understood, and keeps those who are not here yet: {error}"
                ));
            }
            commander.predecessor_ended();
            log.info(&format!("process {pid} has nobody left: {count} of its clients came over"));
        };
        let thread = thread::Builder::new().name("weir-takeover".to_owned()).spawn(take_all);
        thread.map(drop).map_err(|error| format!("could not start a thread: {error}"))
    }
}

/// Where clients are answered somebody may be about to say that it can be taken over from: it has just taken over itself.
fn connect(unix_socket: &str) -> Option<(OwnedFd, PathBuf)> {
    let (path, deadline) = (path_beside(unix_socket), Instant::now() + FOUND_WITHIN);
    loop {
        match connect_unix(path.to_str()?) {
            Ok(stream) => return Some((stream, path)),
            Err(_) if connect_unix(unix_socket).is_ok() && Instant::now() < deadline => thread::sleep(LOOK_INTERVAL),
            Err(_) => return None,
        }
    }
}

/// What came over.
enum Taken {
    Client,
    /// What is told without one.
    Word,
    Lost(String),
}

/// An error ends the way, which leaves the client and whoever comes behind it with the old process.
fn take(
    channel: &Channel,
    message: Message,
    mut descriptors: Vec<OwnedFd>,
    commander: &Commander,
) -> io::Result<Taken> {
    let Message::Mail(Mail { text, held, unsent, ended }) = message else { return Err(unasked()) };
    // Another release may write what this one cannot read.
    let letter = commander.letter(&text).map_err(io::Error::other)?;
    let client = descriptors.pop().map(|fd| Shipment { side: Side::Client, fd, tls: None, held, ended, unsent });
    let taken = if client.is_some() { Taken::Client } else { Taken::Word };
    if client.is_some() {
        // Where this cannot be said the old process has it, and nobody else may.
        channel.send(&Message::Taken, &[])?;
    }
    Ok(commander.take_over(letter, client).map_or_else(Taken::Lost, |()| taken))
}
