//! The process that is taken over from, and how it can be found.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sd_notify::NotifyState;
use weir_core::{Command, Side};

use super::channel::{Channel, unasked};
use super::relay::Relay;
use super::{Mail, Message, PROTOCOL, Place, Sockets, path_beside};
use crate::config::global::VERSION;
use crate::daemon::Pidfile;
use crate::driver::{Commander, Listen, Session, Shipment, SocketFile, listen, random};
use crate::log::Log;
use crate::manager;
use crate::metrics::Listeners;

/// How long a new process may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// And to take what it is sent.
const SEND_PATIENCE: Duration = Duration::from_secs(10);
const BACKLOG: i32 = 8;
/// How often it is looked whether all that was handed over needs this process no more.
const JOIN_INTERVAL: Duration = Duration::from_millis(5);

/// What is handed over, and who gives it.
#[derive(Debug)]
pub struct Offer {
    pub commander: Commander,
    pub metrics: Listeners,
    pub pidfile: Arc<Mutex<Option<Pidfile>>>,
    pub process_secret: [u8; 32],
    pub log: Arc<Log>,
}

/// This process can be taken over from, until its end.
#[derive(Debug)]
pub struct Takeovers {
    listener: Arc<OwnedFd>,
    file: Arc<Mutex<Option<SocketFile>>>,
    /// Clients go over to another process.
    sends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Takeovers {
    /// `unix_socket`: the one that clients find.
    pub fn offer(unix_socket: &str, offer: Offer) -> Result<Self, String> {
        let path = path_beside(unix_socket);
        let (listener, file) = listen(&Listen::Unix { path, mode: 0o600, group: None }, BACKLOG, &Default::default())?;
        let failed = |error: io::Error| format!("could not start a thread: {error}");
        rustix::io::ioctl_fionbio(&listener, false).map_err(|errno| failed(errno.into()))?;
        let (listener, file) = (Arc::new(listener), Arc::new(Mutex::new(file)));
        let sends = Arc::<AtomicBool>::default();
        let (theirs, file_here, sends_here) = (listener.clone(), file.clone(), sends.clone());
        let hear = move || hear(&theirs, &file_here, &sends_here, &offer);
        let thread = thread::Builder::new().name("weir-takeover".to_owned()).spawn(hear).map_err(failed)?;
        Ok(Self { listener, file, sends, thread })
    }

    /// Nobody takes over any more. Waits until all that was handed over needs this process no more, or it is to end `at_once`.
    pub fn end(self, at_once: &AtomicBool) {
        remove(&self.file);
        // Linux ends an accept() so. Where it does not, the thread goes with the process.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        while self.sends.load(Ordering::Relaxed) && !self.thread.is_finished() && !at_once.load(Ordering::Relaxed) {
            thread::sleep(JOIN_INTERVAL);
        }
    }
}

fn remove(file: &Mutex<Option<SocketFile>>) {
    if let Some(file) = file.lock().unwrap_or_else(PoisonError::into_inner).take() {
        file.remove();
    }
}

/// Until one has taken over, or nobody can any more.
fn hear(listener: &OwnedFd, file: &Mutex<Option<SocketFile>>, sends: &AtomicBool, offer: &Offer) {
    while let Ok(stream) = rustix::io::retry_on_intr(|| rustix::net::accept(listener)) {
        let channel = Channel::new(UnixStream::from(stream));
        let free = || {
            remove(file);
            drop(offer.pidfile.lock().unwrap_or_else(PoisonError::into_inner).take());
        };
        match hand_over(&channel, offer, free) {
            Ok(true) => {
                sends.store(true, Ordering::Relaxed);
                return send_clients(channel, offer);
            }
            Ok(false) => {}
            Err(error) => offer.log.warning(&format!("the process that was to take over has failed: {error}")),
        }
    }
}

/// Up to the end of all workers, which the channel's end tells the new one. Whoever cannot be sent comes back, and is served here up to its end.
fn send_clients(channel: Channel, offer: &Offer) {
    let departing = offer.commander.departing();
    offer.commander.command(Command::HandOver);
    let relay = Relay::start();
    let mut way = channel.patience(Some(SEND_PATIENCE)).map(|()| channel);
    for parcel in departing {
        let Some(text) = parcel.mail.written() else { continue };
        let (mut fd, mut mail) = (None, Mail { text, held: Vec::new(), unsent: Vec::new(), ended: false });
        if let Some(Shipment { fd: client, tls, held, unsent, ended, .. }) = parcel.transport {
            (mail.held, mail.unsent, mail.ended) = (held, unsent, ended);
            let carried = match tls {
                Some(session) => carry(&relay, client, session, std::mem::take(&mut mail.unsent)),
                None => Ok(client),
            };
            match carried {
                Ok(carried) => fd = Some(carried),
                Err(error) => {
                    offer.log.error(&format!("a client is lost, its TLS cannot be carried on: {error}"));
                    offer.commander.sent();
                    continue;
                }
            }
        }
        let descriptors: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
        let message = Message::Mail(mail);
        let sent = way.as_ref().map(|channel| {
            channel.send(&message, &descriptors)?;
            if descriptors.is_empty() { Ok(()) } else { is_taken(channel) }
        });
        match sent {
            Ok(Ok(())) if fd.is_some() => offer.commander.sent(),
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                offer.log.error(&format!(
                    "the process that takes over has failed: {error}; serving on those who are here until they leave"
                ));
                way = Err(error);
                offer.commander.command(Command::ShutdownWaitForClients);
                come_back(message, fd, offer);
            }
            Err(_) => come_back(message, fd, offer),
        }
    }
    drop(way);
    if let Ok(relay) = relay {
        relay.end(&offer.log);
    }
}

/// The new process has that client: it says so before it serves it.
fn is_taken(channel: &Channel) -> io::Result<()> {
    let taken = || match channel.answer()? {
        (Message::Taken, _) => Ok(()),
        _ => Err(unasked()),
    };
    taken().or_else(|error| {
        // It may be saying so in this moment. From here on it cannot.
        let _ = channel.stop_hearing();
        taken().map_err(|_| error)
    })
}

fn carry(relay: &io::Result<Relay>, fd: OwnedFd, session: Box<Session>, unsent: Vec<u8>) -> io::Result<OwnedFd> {
    match relay {
        Ok(relay) => relay.carry(fd, session, unsent),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}

/// To the worker that would take it in from another process. What is told of servers is for nobody then.
fn come_back(message: Message, client: Option<OwnedFd>, offer: &Offer) {
    let (Message::Mail(Mail { text, held, unsent, ended }), Some(fd)) = (message, client) else { return };
    let client = Shipment { side: Side::Client, fd, tls: None, held, ended, unsent };
    if let Err(reason) = offer.commander.take_back(&text, client) {
        offer.log.error(&format!("a client is lost: {reason}"));
        offer.commander.sent();
    }
}

/// Answers whether the new process has taken over. `free`: lets go of what only one process can have.
fn hand_over(channel: &Channel, offer: &Offer, free: impl FnOnce()) -> io::Result<bool> {
    channel.patience(Some(PATIENCE))?;
    if !channel.is_of_our_user() {
        return Ok(false);
    }
    let Some((Message::Hello { protocol, version, pid }, _)) = channel.receive()? else { return Ok(false) };
    let refuse = |reason: &str| channel.send(&Message::Refused { reason: reason.to_owned() }, &[]).map(|()| false);
    if protocol != PROTOCOL {
        return refuse("it is of another release: stop it, and start this one");
    }
    let Some(listeners) = offer.commander.listeners(PATIENCE) else {
        return refuse("its listening sockets cannot be had: it hangs, or has no descriptors left");
    };
    let (cancels, name) = hear_cancels()?;
    let tcp = listeners.iter().filter_map(|fd| Some((place(fd)?, fd.as_fd())));
    let metrics = offer.metrics.iter().map(|(address, fd)| (Place::Metrics(*address), fd.as_fd()));
    let (places, descriptors): (Vec<Place>, Vec<BorrowedFd<'_>>) = tcp.chain(metrics).unzip();
    let process_secret = offer.process_secret;
    let sockets = Sockets {
        version: VERSION.to_owned(),
        pid: std::process::id(),
        listeners: places,
        cancels: name,
        process_secret,
    };
    channel.send(&Message::Sockets(sockets), &descriptors)?;
    drop(listeners);
    let (Message::Listens, _) = channel.answer()? else { return Err(unasked()) };
    offer.log.info(&format!("process {pid} ({version}) takes over: serving on those who are here until they leave"));
    offer.metrics.stop();
    take_cancels(cancels, offer.commander.clone())?;
    if offer.commander.leave_listeners(PATIENCE).is_none() {
        return Err(io::Error::other("the worker that listens does not answer"));
    }
    free();
    manager::tell(&[NotifyState::MainPid(pid)]);
    // There is no way back: whether it hears this, and what comes next, is seen when clients are sent.
    let _ = channel.send(&Message::Left, &[]);
    Ok(true)
}

/// Where a client's listener listens.
fn place(fd: &OwnedFd) -> Option<Place> {
    crate::driver::local_address(fd).map(Place::Tcp).or_else(|| crate::driver::local_path(fd).map(Place::Unix))
}

/// A socket that is found by its name alone; of who comes there only our own user, or root, is taken in.
fn hear_cancels() -> io::Result<(UnixListener, String)> {
    let random = random().map_err(io::Error::other)?;
    let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("weir-cancels-{name}");
    let listener = UnixListener::bind_addr(&UnixAddress::from_abstract_name(&name)?)?;
    Ok((listener, format!("@{name}")))
}

fn take_cancels(listener: UnixListener, commander: Commander) -> io::Result<()> {
    let take = move || {
        for stream in listener.incoming().flatten() {
            let channel = Channel::new(stream);
            if channel.is_of_our_user() {
                commander.take_in(channel.into());
            }
        }
    };
    thread::Builder::new().name("weir-cancels".to_owned()).spawn(take).map(drop)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn where_somebody_listens_is_told_by_the_socket() {
        let address: SocketAddr = ([127, 0, 0, 1], 0).into();
        let tcp = listen(&Listen::Tcp(address), 1, &Default::default()).unwrap().0;
        assert!(matches!(place(&tcp), Some(Place::Tcp(found)) if found.ip() == address.ip() && found.port() != 0));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".s.PGSQL.1");
        let unix = listen(&Listen::Unix { path: path.clone(), mode: 0o700, group: None }, 1, &Default::default());
        assert_eq!(place(&unix.unwrap().0), Some(Place::Unix(path)));
        let name = format!("@weir-old-{}/.s.PGSQL.1", std::process::id());
        let named = listen(&Listen::Unix { path: (&name).into(), mode: 0o700, group: None }, 1, &Default::default());
        assert_eq!(place(&named.unwrap().0), Some(Place::Unix(name.into())));
    }
}
