//! `metrics_listen_addr`: what the console shows, for Prometheus; and whether the process lives, and takes clients.
//!
//! ```text
//! weir-metrics: accepts ─> one thread for each request ─> the console, through a connection of our own
//! ```
//!
//! It is a client of the console like any other, in this process: nothing is counted for it that is not counted without it, and a
//! worker that hangs is seen here as anybody sees it.

mod console;
mod http;
mod page;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::driver::{Commander, listen_tcp};
use crate::log::Log;

use console::Console;
use http::{Method, Request};

/// Connections at a time; more are turned away.
pub const REQUESTS_MAX: usize = 64;
/// Of these, whom a page is told.
const SCRAPES_MAX: usize = 8;
/// Connections that the system keeps until they are taken.
const BACKLOG: i32 = 128;
/// So that a fault which does not go away takes no core.
const PAUSE_BEHIND_FAULT: Duration = Duration::from_millis(100);
/// `Content-Type` of version 0.0.4 of Prometheus' text format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// How the process is, for those who ask whether it lives, and whether to send it clients.
#[derive(Debug, Default)]
pub struct Health {
    draining: AtomicBool,
    silent_workers: AtomicUsize,
}

impl Health {
    /// A shutdown is under way: new clients are turned away.
    pub fn drains(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// A worker has not answered for a while.
    pub fn one_falls_silent(&self) {
        self.silent_workers.fetch_add(1, Ordering::Relaxed);
    }

    /// It has answered.
    pub fn one_is_back(&self) {
        self.silent_workers.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn silent_workers(&self) -> usize {
        self.silent_workers.load(Ordering::Relaxed)
    }
}

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Metrics {
    listeners: Listeners,
    threads: Vec<JoinHandle<()>>,
}

/// What is listened on, until somebody else does.
#[derive(Debug, Clone)]
pub struct Listeners {
    all: Arc<[(SocketAddr, TcpListener)]>,
    /// Written to when no more requests are taken: another process may listen on the same sockets, which are not to be shut down.
    stop: Arc<OwnedFd>,
}

impl Listeners {
    pub fn iter(&self) -> impl Iterator<Item = (&SocketAddr, &TcpListener)> {
        self.all.iter().map(|(address, listener)| (address, listener))
    }

    pub fn stop(&self) {
        // Fails only when the counter is full, and then it has been said.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }

    /// The next request's connection; `None`: no more are taken.
    fn accept(&self, listener: &TcpListener) -> io::Result<Option<TcpStream>> {
        loop {
            let mut watched = [PollFd::new(listener, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            rustix::io::retry_on_intr(|| poll(&mut watched, None))?;
            if !watched[1].revents().is_empty() {
                return Ok(None);
            }
            match listener.accept() {
                Ok((stream, _)) => return stream.set_nonblocking(false).map(|()| Some(stream)),
                // Another process has taken it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What a request is answered from.
struct Sources {
    console: Mutex<Console>,
    health: Arc<Health>,
    requests: AtomicUsize,
    scrapes: AtomicUsize,
}

impl Metrics {
    /// Requests wait until they are served. `taken`: another process's socket of that address.
    pub fn listen(
        addresses: &[SocketAddr],
        mut taken: impl FnMut(SocketAddr) -> Option<OwnedFd>,
        log: &Log,
    ) -> Result<Self, String> {
        let mut listeners = Vec::new();
        for address in addresses {
            let failed = |error| format!("cannot listen on {address} for metrics: {error}");
            let listener = match taken(*address) {
                Some(fd) => Ok(fd.into()),
                None => listen_tcp(*address, BACKLOG, false),
            };
            let listener = listener.map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            log.info(&format!("metrics are at http://{address}/metrics"));
            listeners.push((*address, listener));
        }
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(stop.map_err(|error| format!("cannot serve metrics: {error}"))?);
        Ok(Self { listeners: Listeners { all: listeners.into(), stop }, threads: Vec::new() })
    }

    pub fn listeners(&self) -> Listeners {
        self.listeners.clone()
    }

    pub fn serve(&mut self, way_in: Commander, health: Arc<Health>, log: &Arc<Log>) -> Result<(), String> {
        let console = Mutex::new(Console::new(way_in));
        let sources =
            Arc::new(Sources { console, health, requests: AtomicUsize::new(0), scrapes: AtomicUsize::new(0) });
        for place in 0..self.listeners.all.len() {
            let (listeners, sources, log) = (self.listeners.clone(), sources.clone(), log.clone());
            let thread = thread::Builder::new().name("weir-metrics".to_owned());
            let thread = thread.spawn(move || accept(&listeners, place, &sources, &log));
            self.threads.push(thread.map_err(|error| format!("could not start a thread: {error}"))?);
        }
        Ok(())
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.listeners.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn accept(listeners: &Listeners, place: usize, sources: &Arc<Sources>, log: &Log) {
    loop {
        match listeners.accept(&listeners.all[place].1) {
            Ok(Some(stream)) => take(stream, sources),
            Ok(None) => return,
            Err(error) => {
                log.warning(&format!("metrics: cannot take a connection: {error}"));
                thread::sleep(PAUSE_BEHIND_FAULT);
            }
        }
    }
}

/// Answers in a thread of its own: who sends slowly keeps nobody else waiting.
fn take(stream: TcpStream, sources: &Arc<Sources>) {
    if !enter(&sources.requests, REQUESTS_MAX) {
        return http::answer(&stream, Method::Get, 503, PLAIN, "too many requests at a time\n");
    }
    let all = sources.clone();
    let serve = move || {
        let _place = Place(&all.requests);
        serve(&stream, &all);
    };
    // Where none can be started it is closed without a word: there is no other way to serve it.
    if thread::Builder::new().name("weir-request".to_owned()).spawn(serve).is_err() {
        drop(Place(&sources.requests));
    }
}

/// One more, if there are not so many.
fn enter(places: &AtomicUsize, most: usize) -> bool {
    places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < most).then_some(taken + 1)).is_ok()
}

/// One that was entered.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(stream: &TcpStream, sources: &Sources) {
    match http::read(stream) {
        Ok(Request { method: Method::Other, .. }) => {
            http::answer(stream, Method::Get, 405, PLAIN, "only GET and HEAD are answered\n")
        }
        Ok(Request { method, path }) => {
            // A page is long, and may be read slowly: probes have places of their own beside those that read one.
            let scrapes = path == "/metrics";
            if scrapes && !enter(&sources.scrapes, SCRAPES_MAX) {
                return http::answer(stream, method, 503, PLAIN, "too many scrapes at a time\n");
            }
            let _place = scrapes.then(|| Place(&sources.scrapes));
            let (status, kind, body) = sources.answer(&path);
            http::answer(stream, method, status, kind, &body);
        }
        Err(None) => {}
        Err(Some(reason)) => http::answer(stream, Method::Get, 400, PLAIN, &format!("{reason}\n")),
    }
    let _ = stream.shutdown(Shutdown::Both);
}

impl Sources {
    fn answer(&self, path: &str) -> (u16, &'static str, String) {
        let silent = self.health.silent_workers();
        match path {
            "/metrics" => {
                let mut console = self.console.lock().unwrap_or_else(PoisonError::into_inner);
                (200, EXPOSITION, page::page(&mut console, &self.health))
            }
            "/healthz" | "/readyz" if silent > 0 => {
                (503, PLAIN, format!("{silent} workers do not answer: they hang, or the machine does\n"))
            }
            "/readyz" if self.health.is_draining() => (503, PLAIN, "shutting down: no new clients\n".to_owned()),
            "/healthz" | "/readyz" => (200, PLAIN, "ok\n".to_owned()),
            _ => (404, PLAIN, "there are /metrics, /healthz and /readyz\n".to_owned()),
        }
    }
}
