//! Names of hosts to addresses, for all workers: each name is asked for once, and remembered.
//!
//! /etc/hosts comes first, then the name servers, who say how long an answer counts, then the system with all that it knows besides. Where a name
//! has come to lead elsewhere, the workers are told. Knows nothing of loops.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as Channel};
use std::thread;
use std::time::{Duration, Instant};

use weir_core::contract::{Host, Names, UNRESOLVED, Zone};
use weir_core::{ClientId, ConnId, Level};

use super::dns::{Found, Kind, NameServers, Unfound};
use super::events::Speaker;
use super::mailbox::{Letter, Sender};
use super::options::DnsOptions;

/// Names remembered at most; a configuration with more forgets them all at once.
const NAMES_MAX: usize = 1024;
/// Names looked up at the same time; further ones wait.
const LOOKUPS_MAX: usize = 64;
/// With those that do not end though the options are others by now.
const HANGING_MAX: usize = 256;
/// So many are looked up, however many of those there are.
const ALWAYS_MAX: usize = 4;
/// An address that no answer has had for so long has been left. Some name servers tell one of several at a time, in turns.
const LEFT_AFTER: Duration = Duration::from_secs(10);
/// As often is asked meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a new answer is waited for before the one of last time is used.
const OLD_AFTER: Duration = Duration::from_millis(500);

/// The system's files (hosts(5), resolv.conf(5)).
const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";

type Answer = Result<Found, Unfound>;

/// How names are asked for. Each blocks.
#[derive(Clone, Copy)]
pub struct Asks {
    /// What can be told at once.
    local: fn(&str) -> Vec<IpAddr>,
    /// Where an answer is in force, whoever knows the name but is no name server is asked only where name servers say that there is none.
    addresses: fn(&str, &DnsOptions, InForce) -> Answer,
    serial: fn(&str, &DnsOptions) -> Option<u32>,
}

/// Whether there is an answer of before.
type InForce = bool;

/// Who wants to know.
#[derive(Debug)]
pub struct Question {
    pub answer_to: Sender,
    pub conn: ConnId,
    pub port: u16,
}

#[derive(Debug)]
pub enum Message {
    Question(Arc<str>, Question),
    /// A lookup of this round has ended.
    Found(u64, Arc<str>, Answer),
    /// A zone's serial number was asked for, if somebody tells it.
    Serial(Arc<str>, Option<u32>),
    /// All of them were.
    SerialsTold,
    /// Who is told where names lead elsewhere.
    Workers(Vec<Sender>),
    /// How long answers count from now on.
    Options(DnsOptions),
    /// What is remembered, for the console.
    Tell(Sender, ClientId),
    /// Nobody is left to ask.
    End,
}

/// Where questions go. The thread ends with it.
#[derive(Debug)]
pub struct Desk(pub Channel<Message>);

impl Drop for Desk {
    fn drop(&mut self) {
        // The thread may have ended by a fault of its own.
        let _ = self.0.send(Message::End);
    }
}

/// What a name was found to be, and until when it counts.
struct Known {
    until: Instant,
    found: Result<Vec<IpAddr>, String>,
    /// Where it has led, and since when no answer has had that, but for when nobody answered.
    missing: BTreeMap<IpAddr, Instant>,
    /// When the last lookup ended.
    asked_at: Instant,
    /// When it is asked for again for their sake.
    again_at: Option<Instant>,
    /// Which of its addresses is the next one's first.
    turn: usize,
}

/// A name that is being looked up.
struct Lookup {
    /// When those who wait get the old answer, if there is one.
    old_at: Instant,
    questions: Vec<Question>,
}

pub struct Resolver {
    dns: DnsOptions,
    /// Of options: what was asked for under others is not what is asked for now.
    round: u64,
    asks: Asks,
    log: Speaker,
    workers: Vec<Sender>,
    /// Where lookups say what they found: to ourselves.
    answers: Channel<Message>,
    known: HashMap<Arc<str>, Known>,
    lookups: HashMap<Arc<str>, Lookup>,
    /// The last serial number of each zone.
    serials: BTreeMap<Arc<str>, Option<u32>>,
    /// When they are asked for; `None`: they are not, or just now.
    serials_at: Option<Instant>,
    left_after: Duration,
    look_again: Duration,
    /// Lookups that are under way, and those that wait for one of them to end.
    under_way: usize,
    /// And those of former rounds.
    hanging: usize,
    waiting: VecDeque<Arc<str>>,
}

impl Asks {
    pub const OUTSIDE: Self = Self { local, addresses, serial };
}

/// Whatever the file's comments are written in.
fn local(host: &str) -> Vec<IpAddr> {
    of_hosts(&String::from_utf8_lossy(&std::fs::read(HOSTS).unwrap_or_default()), host)
}

fn addresses(host: &str, dns: &DnsOptions, in_force: InForce) -> Answer {
    let answer = name_servers(dns).addresses(host);
    // Whoever names a file of his own wants those servers.
    if answer.is_ok() || dns.resolv_conf.is_some() {
        return answer;
    }
    let unanswered = matches!(answer, Err(Unfound::Unanswered(_)));
    if unanswered && in_force {
        return answer;
    }
    // It may know others to ask (nsswitch.conf(5)), but is to look for no other name in their place (`search`).
    let rooted = format!("{}.", host.trim_end_matches('.'));
    let name = if unanswered && host.contains('.') { &rooted } else { host };
    match (ask_system(name), answer) {
        (Ok(addresses), _) => Ok(Found { addresses, ..Found::default() }),
        (Err(error), Err(Unfound::NoSuchName(_))) => Err(Unfound::NoSuchName(error.to_string())),
        (Err(error), _) => Err(Unfound::Unanswered(error.to_string())),
    }
}

fn serial(zone: &str, dns: &DnsOptions) -> Option<u32> {
    name_servers(dns).serial(zone)
}

/// As the file has them now: it changes with the networks.
fn name_servers(dns: &DnsOptions) -> NameServers {
    let path = dns.resolv_conf.as_deref().unwrap_or(Path::new(RESOLV_CONF));
    NameServers::of(&std::fs::read(path).unwrap_or_default())
}

/// As the system knows it: /etc/hosts, DNS, whatever nsswitch.conf says.
pub fn ask_system(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut ips: Vec<IpAddr> = Vec::new();
    for address in (host, 0u16).to_socket_addrs()? {
        if !ips.contains(&address.ip()) {
            ips.push(address.ip());
        }
    }
    Ok(ips)
}

/// Lines of an address and its names (hosts(5)).
fn of_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let mut ips = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
        let Some(Ok(ip)) = words.next().map(str::parse) else { continue };
        if words.any(|name| name.eq_ignore_ascii_case(host)) && !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    ips
}

fn look_up(host: &str, asks: Asks, dns: &DnsOptions, in_force: InForce) -> Answer {
    let in_vain = |why: &str| format!("{UNRESOLVED} {host}: {why}");
    match catch_unwind(AssertUnwindSafe(|| (asks.addresses)(host, dns, in_force))) {
        Ok(Ok(found)) if found.addresses.is_empty() => Err(Unfound::NoSuchName(in_vain("it has no address"))),
        Ok(Ok(found)) => Ok(found),
        Ok(Err(Unfound::NoSuchName(why))) => Err(Unfound::NoSuchName(in_vain(&why))),
        Ok(Err(Unfound::Unanswered(why))) => Err(Unfound::Unanswered(in_vain(&why))),
        Err(_) => Err(Unfound::Unanswered(in_vain("a bug"))),
    }
}

/// Of this kind nobody has told anew; which kind comes first stays as it was.
fn with_old_ones(mut told: Vec<IpAddr>, before: &[IpAddr], kind: Kind) -> Vec<IpAddr> {
    let at = if before.first().is_some_and(|first| kind.has(first)) { 0 } else { told.len() };
    told.splice(at..at, before.iter().copied().filter(|address| kind.has(address)));
    told
}

/// What is behind a host's own name.
fn zone_of(host: &str) -> Option<&str> {
    host.split_once('.').map(|(_, zone)| zone.trim_end_matches('.')).filter(|zone| !zone.is_empty())
}

impl Known {
    /// Each connection begins with the next of the addresses: one that takes nothing is not in the way of all.
    fn answer(&mut self, question: Question) {
        if let Ok(addresses) = &self.found {
            let mut addresses = addresses.clone();
            let turn = self.turn % addresses.len().max(1);
            addresses.rotate_left(turn);
            self.turn = turn + 1;
            return question.answer(&Ok(addresses));
        }
        question.answer(&self.found);
    }
}

impl Question {
    fn answer(self, found: &Result<Vec<IpAddr>, String>) {
        let at_port = |ip: &IpAddr| SocketAddr::new(*ip, self.port);
        let result = found.as_ref().map(|ips| ips.iter().map(at_port).collect()).map_err(String::clone);
        self.answer_to.send(Letter::Resolved { conn: self.conn, result });
    }
}

impl Resolver {
    pub fn new(dns: DnsOptions, answers: &Channel<Message>, asks: Asks, log: Speaker) -> Self {
        let serials_at = next_serials(&dns);
        Self {
            dns,
            round: 0,
            asks,
            log,
            workers: Vec::new(),
            answers: answers.clone(),
            known: HashMap::new(),
            lookups: HashMap::new(),
            serials: BTreeMap::new(),
            serials_at,
            left_after: LEFT_AFTER,
            look_again: LOOK_AGAIN,
            under_way: 0,
            hanging: 0,
            waiting: VecDeque::new(),
        }
    }

    /// The body of the thread.
    pub fn answer(mut self, messages: &Receiver<Message>) {
        loop {
            let again = self.known.values().filter_map(|known| known.again_at).min();
            let message = match self.next_old().into_iter().chain(self.serials_at).chain(again).min() {
                Some(at) => messages.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Question(host, question)) => self.question(host, question),
                Ok(Message::Found(round, host, found)) => self.told(round, &host, found),
                Ok(Message::Serial(zone, serial)) => self.serial_told(&zone, serial),
                Ok(Message::SerialsTold) => self.serials_at = next_serials(&self.dns),
                Ok(Message::Options(dns)) => self.options(dns),
                Ok(Message::Workers(workers)) => self.workers = workers,
                Ok(Message::Tell(answer_to, asker)) => answer_to.send(Letter::NamesTold { asker, names: self.names() }),
                Err(RecvTimeoutError::Timeout) => {
                    self.use_old(Instant::now());
                    self.ask_for_serials();
                    self.ask_again(Instant::now());
                }
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// What is known was kept for as long as other options said, so it is asked anew; until then it is an old answer.
    fn options(&mut self, dns: DnsOptions) {
        if dns != self.dns {
            let now = Instant::now();
            self.known.values_mut().for_each(|known| known.until = now);
            self.serials_at = next_serials(&dns);
            self.dns = dns;
            self.round += 1;
            self.hanging += std::mem::take(&mut self.under_way);
            // Those that are under way are asked for again.
            self.waiting = self.lookups.keys().map(Arc::clone).collect();
            self.begin_lookups();
        }
    }

    fn names(&self) -> Names {
        let now = Instant::now();
        let host = |(name, known): (&Arc<str>, &Known)| Host {
            name: Arc::clone(name),
            addresses: known.found.clone().unwrap_or_default(),
            ttl: weir_core::time::Duration::from_secs(known.until.saturating_duration_since(now).as_secs()),
        };
        let mut hosts: Vec<_> = self.known.iter().map(host).collect();
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        let zone = |(name, serial): (&Arc<str>, &Option<u32>)| Zone {
            name: Arc::clone(name),
            serial: *serial,
            hosts: hosts.iter().filter(|host| zone_of(&host.name) == Some(name)).count() as u64,
        };
        let zones = self.serials.iter().map(zone).collect();
        Names { zones, hosts, asked: self.under_way as u64, waiting: self.waiting.len() as u64 }
    }

    fn question(&mut self, host: Arc<str>, question: Question) {
        let now = Instant::now();
        if let Some(known) = self.known.get_mut(&host).filter(|known| known.until > now) {
            return known.answer(question);
        }
        if let Some(lookup) = self.lookups.get_mut(&host) {
            lookup.questions.push(question);
            return self.use_old(now);
        }
        self.ask_for(host, vec![question]);
    }

    fn ask_for(&mut self, host: Arc<str>, questions: Vec<Question>) {
        self.lookups.insert(Arc::clone(&host), Lookup { old_at: Instant::now() + OLD_AFTER, questions });
        let addresses = (self.asks.local)(&host);
        if !addresses.is_empty() {
            return self.found(&host, Ok(Found { addresses, ..Found::default() }));
        }
        self.waiting.push_back(host);
        self.begin_lookups();
    }

    fn begin_lookups(&mut self) {
        while self.under_way < LOOKUPS_MAX
            && (self.under_way < ALWAYS_MAX || self.under_way + self.hanging < HANGING_MAX)
            && let Some(host) = self.waiting.pop_front()
        {
            self.under_way += 1;
            let (asks, dns, round) = (self.asks, self.dns.clone(), self.round);
            let (answers, name, in_force) = (self.answers.clone(), Arc::clone(&host), self.has_old(&host));
            let body = move || {
                let found = look_up(&name, asks, &dns, in_force);
                // Nobody wants it any more when the program is ending.
                let _ = answers.send(Message::Found(round, name, found));
            };
            if let Err(error) = thread::Builder::new().name("weir-lookup".to_owned()).spawn(body) {
                let text = format!("{UNRESOLVED} {host}: {error}");
                let _ = self.answers.send(Message::Found(round, host, Err(Unfound::Unanswered(text))));
            }
        }
    }

    fn told(&mut self, round: u64, host: &Arc<str>, answer: Answer) {
        if round == self.round {
            self.under_way -= 1;
            self.found(host, answer);
        } else {
            self.hanging -= 1;
        }
        self.begin_lookups();
    }

    fn found(&mut self, host: &Arc<str>, answer: Answer) {
        let now = Instant::now();
        let (before, mut missing, turn, asked_at) = match self.known.remove(host) {
            Some(known) => (known.found.ok(), known.missing, known.turn, known.asked_at),
            None => (None, BTreeMap::new(), 0, now),
        };
        for address in before.iter().flatten() {
            missing.entry(*address).or_insert(now);
        }
        // What nobody has told of is not missing in an answer.
        let is_untold = |address: &IpAddr| match &answer {
            Ok(Found { open, .. }) => open.is_some_and(|kind| kind.has(address)),
            Err(Unfound::Unanswered(_)) => true,
            Err(Unfound::NoSuchName(_)) => false,
        };
        for (_, since) in missing.iter_mut().filter(|(address, _)| is_untold(address)) {
            *since = (*since + now.duration_since(asked_at)).min(now);
        }
        let (found, ttl) = match (answer, before) {
            (Ok(Found { addresses, ttl, open }), before) => {
                let ttl = ttl.unwrap_or(self.dns.found_ttl).min(self.dns.found_ttl);
                match open {
                    None => (Ok(addresses), ttl),
                    // Of the other kind the last answer stays in force, and is asked for again soon.
                    Some(kind) => {
                        let addresses = with_old_ones(addresses, before.as_deref().unwrap_or_default(), kind);
                        (Ok(addresses), ttl.min(self.dns.failed_ttl))
                    }
                }
            }
            // As long as nobody tells better (RFC 8767).
            (Err(Unfound::Unanswered(_)), Some(before)) => (Ok(before), self.dns.failed_ttl),
            (Err(Unfound::Unanswered(why) | Unfound::NoSuchName(why)), _) => (Err(why), self.dns.failed_ttl),
        };
        // Where it leads nowhere nobody could go elsewhere.
        let mut again_at = None;
        if let Ok(addresses) = &found {
            missing.retain(|address, _| !addresses.contains(address));
            self.tell_of_left(host, &mut missing, now);
            again_at = (!missing.is_empty()).then(|| now + self.look_again);
        }
        if self.known.len() >= NAMES_MAX {
            self.known.clear();
        }
        let mut known = Known { until: now + ttl, found, missing, asked_at: now, again_at, turn };
        if let Some(lookup) = self.lookups.remove(host) {
            lookup.questions.into_iter().for_each(|question| known.answer(question));
        }
        self.known.insert(Arc::clone(host), known);
    }

    /// Whoever is connected to an address that has been left has to hear of that.
    fn tell_of_left(&self, host: &Arc<str>, missing: &mut BTreeMap<IpAddr, Instant>, now: Instant) {
        let is_left = |since: Instant| now.duration_since(since) >= self.left_after;
        let gone: Vec<_> = missing.iter().filter(|(_, since)| is_left(**since)).map(|(address, _)| *address).collect();
        missing.retain(|_, since| !is_left(*since));
        let told = self.workers.iter().filter(|_| !gone.is_empty());
        told.for_each(|worker| worker.send(Letter::HostMoved { host: Arc::clone(host), gone: gone.clone() }));
    }

    /// For those that were missing in the last answer: one may be told of in turns.
    fn ask_again(&mut self, now: Instant) {
        let due = |known: &Known| known.again_at.is_some_and(|at| at <= now);
        let hosts: Vec<_> =
            self.known.iter().filter(|(_, known)| due(known)).map(|(host, _)| Arc::clone(host)).collect();
        for host in hosts {
            if let Some(known) = self.known.get_mut(&host) {
                known.again_at = None;
            }
            // Whoever asks for it just now asks for them too.
            if !self.lookups.contains_key(&host) {
                self.ask_for(host, Vec::new());
            }
        }
    }

    fn has_old(&self, host: &str) -> bool {
        matches!(self.known.get(host), Some(Known { found: Ok(_), .. }))
    }

    /// When somebody who waits gets an old answer.
    fn next_old(&self) -> Option<Instant> {
        let waits = |(host, lookup): &(&Arc<str>, &Lookup)| !lookup.questions.is_empty() && self.has_old(host);
        self.lookups.iter().filter(waits).map(|(_, lookup)| lookup.old_at).min()
    }

    /// A new answer takes its time: those who wait get the last one, where that was an address.
    fn use_old(&mut self, now: Instant) {
        for (host, lookup) in self.lookups.iter_mut().filter(|(_, lookup)| lookup.old_at <= now) {
            if let Some(known) = self.known.get_mut(host).filter(|known| known.found.is_ok()) {
                lookup.questions.drain(..).for_each(|question| known.answer(question));
            }
        }
    }

    /// Of the zones of all names that are known, where it is time.
    fn ask_for_serials(&mut self) {
        if self.serials_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        let of_known = self.known.iter().filter(|(_, known)| known.found.is_ok()).filter_map(|(host, _)| zone_of(host));
        let mut serials = BTreeMap::<Arc<str>, _>::new();
        for zone in of_known {
            serials.insert(zone.into(), self.serials.get(zone).copied().flatten());
        }
        self.serials = serials;
        self.serials_at = None;
        let zones: Vec<_> = self.serials.keys().map(Arc::clone).collect();
        let (asks, dns, answers) = (self.asks, self.dns.clone(), self.answers.clone());
        let body = move || {
            for zone in zones {
                let serial = catch_unwind(AssertUnwindSafe(|| (asks.serial)(&zone, &dns))).ok().flatten();
                let _ = answers.send(Message::Serial(zone, serial));
            }
            let _ = answers.send(Message::SerialsTold);
        };
        if thread::Builder::new().name("weir-zones".to_owned()).spawn(body).is_err() {
            self.serials_at = next_serials(&self.dns);
        }
    }

    /// One that is newer (RFC 1982): all names of the zone are asked for again.
    fn serial_told(&mut self, zone: &str, serial: Option<u32>) {
        let (Some(known), Some(new)) = (self.serials.get_mut(zone), serial) else { return };
        let Some(old) = known.replace(new) else { return };
        if (new.wrapping_sub(old) as i32) <= 0 {
            return;
        }
        self.log.log(Level::Info, format!("zone '{zone}' serial changed: old={old} new={new}"));
        let of_zone = self.known.keys().filter(|host| zone_of(host) == Some(zone));
        let hosts: Vec<_> = of_zone.filter(|host| !self.lookups.contains_key(*host)).map(Arc::clone).collect();
        hosts.into_iter().for_each(|host| self.ask_for(host, Vec::new()));
    }
}

/// `None`: never.
fn next_serials(dns: &DnsOptions) -> Option<Instant> {
    dns.zone_check.map(|period| Instant::now() + period)
}

#[cfg(test)]
mod tests;
