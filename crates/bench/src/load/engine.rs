//! One thread of the load generator: many clients on one epoll.
//!
//! Clients log in, a limited number at the same time, and then stay idle, ask queries with or without thinking, or leave
//! and come again, as the stage says. Level-triggered, one read per wake-up: the generator has to be cheap. Does not know
//! why a stage changes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use postgres_protocol::message::frontend;

use super::channel::Channel;
use super::plan::{Control, Plan, Stage, Target};
use super::session::{self, Session};
use super::tally::{PHASES, Tally, Waits, microseconds};
use weir_measure::ground::process::thread_cpu_time;

const EVENTS_MAX: usize = 512;
const NICEST: i32 = 19;
const RECEIVE_BYTES: usize = 64 * 1024;
/// How soon a change of the stage is seen.
const TURN_MS_MAX: u64 = 10;
/// Clients that come again are not worth it where nearly nobody gets in.
const FAILURES_MAX: u64 = 200;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Connecting,
    AskingTls,
    LoggingIn,
    Idle,
    Asking,
}

struct Client {
    channel: Channel,
    session: Option<Session>,
    place: Place,
    /// When it began what it waits for.
    since: Instant,
    waits: Waits,
    hears_writable: bool,
}

pub struct Engine<'a> {
    plan: &'a Plan,
    control: &'a Control,
    epoll: Epoll,
    clients: Vec<Option<Client>>,
    opened: usize,
    opening: usize,
    stage: Stage,
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    once_next: usize,
    buffer: Vec<u8>,
    out: Vec<u8>,
    random: u64,
    tally: Tally,
}

impl<'a> Engine<'a> {
    pub fn new(plan: &'a Plan, control: &'a Control, seed: u64) -> Result<Engine<'a>> {
        Ok(Engine {
            plan,
            control,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("no epoll")?,
            clients: Vec::with_capacity(plan.clients),
            opened: 0,
            opening: 0,
            stage: Stage::Hold,
            due: BinaryHeap::new(),
            once_next: 0,
            buffer: vec![0; RECEIVE_BYTES],
            out: Vec::new(),
            random: seed | 1,
            tally: Tally::new()?,
        })
    }

    /// Works until the stage is `Stop`, and gives what it has seen.
    pub fn run(mut self) -> Result<Tally> {
        if self.plan.nice {
            // On Linux this is the calling thread's priority alone: setpriority(2).
            rustix::process::setpriority_process(None, NICEST).context("cannot be nice")?;
        }
        let mut events = vec![EpollEvent::empty(); EVENTS_MAX];
        let mut began = (Instant::now(), thread_cpu_time()?);
        loop {
            let stage = self.control.stage();
            if stage == Stage::Stop {
                break;
            }
            if stage != self.stage {
                if stage == Stage::Ask {
                    began = (Instant::now(), thread_cpu_time()?);
                }
                self.enter(stage);
            }
            self.open_more()?;
            self.ask_due()?;
            let count = self.epoll.wait(&mut events, self.patience()).or_else(again).context("epoll failed")?;
            for event in &events[..count] {
                self.woken(usize::try_from(event.data()).context("a client's number")?, event.events());
            }
        }
        let cpu = thread_cpu_time()?.saturating_sub(began.1);
        self.tally.busy = cpu.as_secs_f64() / began.0.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
        self.tally.clients = self.clients.iter().flatten().map(|client| client.waits).collect();
        Ok(self.tally)
    }

    fn patience(&self) -> EpollTimeout {
        let next = self.due.peek().map(|Reverse((at, _))| at.saturating_duration_since(Instant::now()));
        // Rounded up: a timer that is due within a millisecond must not become a busy loop.
        let wait_ms = next.map_or(TURN_MS_MAX, |left| u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(0));
        let backlog = self.opening < self.plan.at_once && self.opened < self.plan.clients;
        EpollTimeout::from(if backlog { 0 } else { u8::try_from(wait_ms.min(TURN_MS_MAX)).unwrap_or(0) })
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        let now = Instant::now();
        self.due.clear();
        match stage {
            Stage::Once => {
                self.once_next = self.plan.at_once.min(self.clients.len());
                self.due.extend((0..self.once_next).map(|index| Reverse((now, index))));
            }
            Stage::Ask => {
                for index in 0..self.clients.len() {
                    let at = if index < self.plan.eager { now } else { now + self.plan.think.mul_f64(self.fraction()) };
                    self.due.push(Reverse((at, index)));
                }
            }
            Stage::Hold | Stage::Stop => {}
        }
    }

    fn open_more(&mut self) -> Result<()> {
        while self.opening < self.plan.at_once && self.opened < self.plan.clients {
            self.opened += 1;
            self.clients.push(None);
            self.open(self.clients.len() - 1)?;
        }
        Ok(())
    }

    fn open(&mut self, index: usize) -> Result<()> {
        let Target { port, source, .. } = self.plan.target;
        match Channel::connect(port, source, false) {
            Ok(channel) => {
                // It is writable when it is connected.
                let interest = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT;
                self.epoll
                    .add(channel.descriptor(), EpollEvent::new(interest, index as u64))
                    .context("epoll is full")?;
                let (session, place, waits) = (None, Place::Connecting, Waits::default());
                let since = Instant::now();
                self.clients[index] = Some(Client { channel, session, place, since, waits, hears_writable: true });
                self.opening += 1;
            }
            Err(error) => {
                self.tally.fail(format!("{error:#}"));
                self.control.lost.fetch_add(1, Ordering::Relaxed);
                if self.tally.failures > FAILURES_MAX && self.plan.leave {
                    bail!("nearly nobody gets in: {error:#}");
                }
            }
        }
        Ok(())
    }

    fn ask_due(&mut self) -> Result<()> {
        let now = Instant::now();
        while let Some(Reverse((at, index))) = self.due.peek().copied() {
            if at > now {
                break;
            }
            self.due.pop();
            self.ask(index)?;
        }
        Ok(())
    }

    fn ask(&mut self, index: usize) -> Result<()> {
        let account = 1 + self.random() % u64::from(self.plan.rows.max(1));
        let Some(client) = self.clients[index].as_mut().filter(|client| client.place == Place::Idle) else {
            return Ok(());
        };
        self.out.clear();
        session::query(&format!("SELECT abalance FROM pgbench_accounts WHERE aid = {account}"), &mut self.out)?;
        client.place = Place::Asking;
        client.since = Instant::now();
        if let Err(error) = client.channel.send(&self.out) {
            self.lose(index, &error);
        } else {
            self.listen(index);
        }
        Ok(())
    }

    fn woken(&mut self, index: usize, flags: EpollFlags) {
        if let Err(error) = self.serve(index, flags) {
            self.lose(index, &error);
        }
    }

    fn serve(&mut self, index: usize, flags: EpollFlags) -> Result<()> {
        let Some(client) = self.clients[index].as_mut() else { return Ok(()) };
        if client.place == Place::Connecting {
            client.channel.connected()?;
            self.greet(index)?;
            self.listen(index);
            return Ok(());
        }
        if flags.contains(EpollFlags::EPOLLOUT) {
            client.channel.flush()?;
            self.listen(index);
        }
        self.read(index)?;
        self.listen(index);
        Ok(())
    }

    fn greet(&mut self, index: usize) -> Result<()> {
        let Some(client) = self.clients[index].as_mut() else { return Ok(()) };
        self.out.clear();
        if self.plan.target.tls.is_some() && client.place == Place::Connecting {
            let mut request = BytesMut::new();
            frontend::ssl_request(&mut request);
            self.out.extend_from_slice(&request);
            client.place = Place::AskingTls;
        } else {
            client.session = Some(Session::begin(Arc::clone(&self.plan.target.identity), &mut self.out)?);
            client.place = Place::LoggingIn;
        }
        client.channel.send(&self.out)
    }

    fn read(&mut self, index: usize) -> Result<()> {
        loop {
            let Some(client) = self.clients[index].as_mut() else { return Ok(()) };
            // The answer to an SSLRequest is one byte; what follows it belongs to TLS.
            let limit = if client.place == Place::AskingTls { 1 } else { RECEIVE_BYTES };
            let count = match client.channel.receive(&mut self.buffer[..limit])? {
                None => return Ok(()),
                Some(0) => bail!("the connection was closed"),
                Some(count) => count,
            };
            if client.place == Place::AskingTls {
                let config = self.plan.target.tls.as_ref().filter(|_| self.buffer[0] == b'S');
                client.channel.start_tls(config.context("TLS is not offered")?)?;
                self.greet(index)?;
                continue;
            }
            let Some(session) = client.session.as_mut() else { return Ok(()) };
            self.out.clear();
            let seen = session.receive(&self.buffer[..count], &mut self.out)?;
            if !self.out.is_empty() {
                client.channel.send(&self.out)?;
            }
            if seen.ready {
                self.complete(index)?;
            }
            // TLS holds what it has decrypted, and epoll does not know of that.
            if self.plan.target.tls.is_none() && count < limit {
                return Ok(());
            }
        }
    }

    fn complete(&mut self, index: usize) -> Result<()> {
        let Some(client) = self.clients[index].as_mut() else { return Ok(()) };
        let was = client.place;
        let wait_us = microseconds(client.since.elapsed());
        client.place = Place::Idle;
        if was == Place::LoggingIn {
            self.opening -= 1;
            self.tally.login.saturating_record(wait_us);
            self.tally.resumed += u64::from(client.channel.resumed());
            self.control.logged_in.fetch_add(1, Ordering::Relaxed);
            return if self.plan.leave { self.come_again(index) } else { Ok(()) };
        }
        let phase = self.control.phase.load(Ordering::Relaxed).min(PHASES - 1);
        if phase > 0 {
            self.tally.latency[phase].saturating_record(wait_us);
        }
        if phase == 1 {
            client.waits.add(wait_us);
        }
        let next = client.since + self.plan.think;
        match self.stage {
            Stage::Ask if index < self.plan.eager => self.ask(index)?,
            Stage::Ask => self.due.push(Reverse((next, index))),
            Stage::Once => {
                self.control.asked_once.fetch_add(1, Ordering::Relaxed);
                if self.once_next < self.clients.len() {
                    self.due.push(Reverse((Instant::now(), self.once_next)));
                    self.once_next += 1;
                }
            }
            Stage::Hold | Stage::Stop => {}
        }
        Ok(())
    }

    fn come_again(&mut self, index: usize) -> Result<()> {
        if let Some(mut client) = self.clients[index].take() {
            let mut terminate = BytesMut::new();
            frontend::terminate(&mut terminate);
            client.channel.send(&terminate)?;
        }
        self.open(index)
    }

    /// Hears of room in the socket only while something waits for it.
    fn listen(&mut self, index: usize) {
        let Some(client) = self.clients[index].as_mut() else { return };
        let wanted = client.channel.has_unsent();
        // Who is not connected yet hears of that as room.
        if wanted == client.hears_writable || client.place == Place::Connecting {
            return;
        }
        client.hears_writable = wanted;
        let interest = if wanted { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
        let changed = self.epoll.modify(client.channel.descriptor(), &mut EpollEvent::new(interest, index as u64));
        if let Err(error) = changed {
            self.lose(index, &error.into());
        }
    }

    fn lose(&mut self, index: usize, error: &anyhow::Error) {
        let Some(client) = self.clients[index].take() else { return };
        if !matches!(client.place, Place::Idle | Place::Asking) {
            self.opening -= 1;
        } else {
            self.control.logged_in.fetch_sub(1, Ordering::Relaxed);
        }
        self.tally.fail(format!("{error:#}"));
        self.control.lost.fetch_add(1, Ordering::Relaxed);
        if self.plan.leave && self.tally.failures <= FAILURES_MAX {
            // What goes wrong again is counted there.
            let _ = self.open(index);
        }
    }

    /// Marsaglia's xorshift64: the rows that are asked for need no better.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn fraction(&mut self) -> f64 {
        f64::from(u32::try_from(self.random() >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}

fn again(error: nix::errno::Errno) -> nix::Result<usize> {
    if error == nix::errno::Errno::EINTR { Ok(0) } else { Err(error) }
}
