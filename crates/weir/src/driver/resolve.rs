//! Names of hosts, remembered for a while. Each is looked up on a thread of its own, one at a time, so that a name
//! whose servers do not answer holds up nobody who asks for another.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as Channel};
use std::thread;
use std::time::{Duration, Instant};

use weir_core::contract::Host;
use weir_core::{ClientId, ConnId};

use super::mailbox::{Letter, Sender};
use super::options::DnsOptions;

/// Names remembered at most; a configuration with more forgets them all at once.
const NAMES_MAX: usize = 1024;
/// Names looked up at the same time; further ones wait.
const LOOKUPS_MAX: usize = 16;
/// How long a new answer is waited for before the one of last time is used.
const OLD_AFTER: Duration = Duration::from_millis(500);

type Found = Result<Vec<IpAddr>, String>;
/// Asks for a name's addresses. Blocks.
type Ask = fn(&str) -> io::Result<Vec<IpAddr>>;

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
    /// A lookup has ended.
    Found(Arc<str>, Found),
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

/// A name that is being looked up.
struct Lookup {
    /// When those who wait get the old answer, if there is one.
    old_at: Instant,
    questions: Vec<Question>,
}

pub struct Resolver {
    dns: DnsOptions,
    ask: Ask,
    /// Where lookups say what they found: to ourselves.
    answers: Channel<Message>,
    /// What was found, and until when it counts.
    known: HashMap<Arc<str>, (Instant, Found)>,
    lookups: HashMap<Arc<str>, Lookup>,
    /// Lookups that are under way, and those that wait for one of them to end.
    under_way: usize,
    waiting: VecDeque<Arc<str>>,
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

fn look_up(host: &str, ask: Ask) -> Found {
    match catch_unwind(|| ask(host)) {
        Ok(Ok(ips)) if ips.is_empty() => Err(format!("host {host} has no address")),
        Ok(Ok(ips)) => Ok(ips),
        Ok(Err(error)) => Err(format!("cannot resolve host {host}: {error}")),
        Err(_) => Err(format!("cannot resolve host {host}: a bug")),
    }
}

impl Question {
    fn answer(self, found: &Found) {
        let at_port = |ip: &IpAddr| SocketAddr::new(*ip, self.port);
        let result = found.as_ref().map(|ips| ips.iter().map(at_port).collect()).map_err(String::clone);
        self.answer_to.send(Letter::Resolved { conn: self.conn, result });
    }
}

impl Resolver {
    pub fn new(dns: DnsOptions, answers: &Channel<Message>, ask: Ask) -> Self {
        Self {
            dns,
            ask,
            answers: answers.clone(),
            known: HashMap::new(),
            lookups: HashMap::new(),
            under_way: 0,
            waiting: VecDeque::new(),
        }
    }

    /// The body of the thread.
    pub fn answer(mut self, messages: &Receiver<Message>) {
        loop {
            let next_old = self.next_old();
            let message = match next_old {
                Some(at) => messages.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Question(host, question)) => self.question(host, question),
                Ok(Message::Found(host, found)) => self.found(&host, found),
                Ok(Message::Options(dns)) => self.options(dns),
                Ok(Message::Tell(answer_to, asker)) => answer_to.send(Letter::HostsTold { asker, hosts: self.hosts() }),
                Err(RecvTimeoutError::Timeout) => self.use_old(Instant::now()),
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// What is known was kept for as long as other options said, so it is asked anew; until then it is an old answer.
    fn options(&mut self, dns: DnsOptions) {
        if dns != self.dns {
            let now = Instant::now();
            self.known.values_mut().for_each(|(until, _)| *until = now);
            self.dns = dns;
        }
    }

    fn hosts(&self) -> Vec<Host> {
        let now = Instant::now();
        let host = |(name, (until, found)): (&Arc<str>, &(Instant, Found))| Host {
            name: Arc::clone(name),
            addresses: found.clone().unwrap_or_default(),
            ttl: weir_core::time::Duration::from_secs(until.saturating_duration_since(now).as_secs()),
        };
        let mut hosts: Vec<_> = self.known.iter().map(host).collect();
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        hosts
    }

    fn question(&mut self, host: Arc<str>, question: Question) {
        let now = Instant::now();
        if let Some((until, found)) = self.known.get(&host)
            && *until > now
        {
            return question.answer(found);
        }
        if let Some(lookup) = self.lookups.get_mut(&host) {
            lookup.questions.push(question);
            return self.use_old(now);
        }
        self.lookups.insert(Arc::clone(&host), Lookup { old_at: now + OLD_AFTER, questions: vec![question] });
        self.waiting.push_back(host);
        self.begin_lookups();
    }

    fn begin_lookups(&mut self) {
        while self.under_way < LOOKUPS_MAX
            && let Some(host) = self.waiting.pop_front()
        {
            self.under_way += 1;
            let (ask, answers, name) = (self.ask, self.answers.clone(), Arc::clone(&host));
            let body = move || {
                let found = look_up(&name, ask);
                // Nobody wants it any more when the program is ending.
                let _ = answers.send(Message::Found(name, found));
            };
            if let Err(error) = thread::Builder::new().name("weir-lookup".to_owned()).spawn(body) {
                let text = format!("cannot resolve host {host}: {error}");
                let _ = self.answers.send(Message::Found(host, Err(text)));
            }
        }
    }

    fn found(&mut self, host: &Arc<str>, found: Found) {
        self.under_way -= 1;
        if let Some(lookup) = self.lookups.remove(host) {
            lookup.questions.into_iter().for_each(|question| question.answer(&found));
        }
        if self.known.len() >= NAMES_MAX && !self.known.contains_key(host) {
            self.known.clear();
        }
        let ttl = if found.is_ok() { self.dns.found_ttl } else { self.dns.failed_ttl };
        self.known.insert(Arc::clone(host), (Instant::now() + ttl, found));
        self.begin_lookups();
    }

    fn has_old(&self, host: &str) -> bool {
        matches!(self.known.get(host), Some((_, Ok(_))))
    }

    /// When somebody who waits gets an old answer.
    fn next_old(&self) -> Option<Instant> {
        let waits = |(host, lookup): &(&Arc<str>, &Lookup)| !lookup.questions.is_empty() && self.has_old(host);
        self.lookups.iter().filter(waits).map(|(_, lookup)| lookup.old_at).min()
    }

    /// A new answer takes its time: those who wait get the last one, where that was an address.
    fn use_old(&mut self, now: Instant) {
        for (host, lookup) in self.lookups.iter_mut().filter(|(_, lookup)| lookup.old_at <= now) {
            if let Some((_, found @ Ok(_))) = self.known.get(host) {
                lookup.questions.drain(..).for_each(|question| question.answer(found));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::mailbox::{self, Receiver as Mailbox};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use weir_core::{Party, Side};

    struct Asker {
        desk: Desk,
        mailbox: Sender,
        answers: Mailbox,
    }

    impl Asker {
        fn new(dns: DnsOptions, ask: Ask) -> Self {
            let (messages, hear) = mpsc::channel();
            let resolver = Resolver::new(dns, &messages, ask);
            thread::spawn(move || resolver.answer(&hear));
            let (mailbox, answers) = mailbox::mailbox().unwrap();
            Self { desk: Desk(messages), mailbox, answers }
        }

        fn ask(&self, slot: u32, host: &str) {
            let conn = ConnId { side: Side::Server, slot, generation: 0 };
            let question = Question { answer_to: self.mailbox.clone(), conn, port: 5432 };
            self.desk.0.send(Message::Question(host.into(), question)).unwrap();
        }

        fn next(&mut self) -> (u32, Result<Vec<SocketAddr>, String>) {
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                assert!(Instant::now() < end, "no answer");
                if let Some(Letter::Resolved { conn, result }) = self.answers.take() {
                    return (conn.slot, result);
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn resolves_what_the_system_knows() {
        let mut asker = Asker::new(DnsOptions::default(), ask_system);
        asker.ask(7, "localhost");
        let (slot, found) = asker.next();
        assert_eq!(slot, 7);
        assert!(found.unwrap().iter().all(|address| address.ip().is_loopback() && address.port() == 5432));
    }

    #[test]
    fn tells_what_it_remembers() {
        let options = DnsOptions { found_ttl: Duration::from_secs(900), failed_ttl: Duration::from_secs(900) };
        let mut asker = Asker::new(options, |host| match host {
            "two" => Ok(vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]),
            _ => Err(io::Error::other("no such name")),
        });
        for (slot, host) in [(0, "two"), (1, "none")] {
            asker.ask(slot, host);
            let _ = asker.next();
        }
        let Party::Client(client) = (ConnId { side: Side::Client, slot: 3, generation: 0 }).party() else { panic!() };
        asker.desk.0.send(Message::Tell(asker.mailbox.clone(), client)).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        let hosts = loop {
            assert!(Instant::now() < end, "no answer");
            if let Some(Letter::HostsTold { hosts, .. }) = asker.answers.take() {
                break hosts;
            }
            thread::sleep(Duration::from_millis(1));
        };
        let told: Vec<_> = hosts.iter().map(|host| (&*host.name, host.addresses.len())).collect();
        assert_eq!(told, [("none", 0), ("two", 2)]);
        assert!(hosts.iter().all(|host| (800..=900).contains(&host.ttl.as_secs())), "{hosts:?}");
    }

    #[test]
    fn a_slow_name_holds_up_nobody_else() {
        let mut asker = Asker::new(DnsOptions::default(), |host| {
            if host == "slow" {
                thread::sleep(Duration::from_secs(3));
            }
            Ok(vec![[127, 0, 0, 1].into()])
        });
        (0..100).for_each(|slot| asker.ask(slot, "slow"));
        asker.ask(100, "fast");
        assert_eq!(asker.next().0, 100);
        // One lookup was enough for all of them.
        for slot in 0..100 {
            assert_eq!(asker.next().0, slot);
        }
    }

    #[test]
    fn remembers_and_asks_once() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let mut asker = Asker::new(DnsOptions::default(), |host| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            if host == "panics" { panic!("told to") } else { Err(io::Error::other("no such name")) }
        });
        for (slot, host) in [(0, "none"), (1, "none"), (2, "panics"), (3, "none")] {
            asker.ask(slot, host);
            let (answered, found) = asker.next();
            assert_eq!(answered, slot);
            assert!(found.unwrap_err().starts_with(&format!("cannot resolve host {host}: ")));
        }
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn an_old_answer_is_used_while_a_new_one_takes_its_time() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let dns = DnsOptions { found_ttl: Duration::ZERO, ..DnsOptions::default() };
        let mut asker = Asker::new(dns, |_| {
            let asked = ASKED.fetch_add(1, Ordering::Relaxed) as u8;
            thread::sleep(Duration::from_millis(if asked == 2 { 3_000 } else { 0 }));
            Ok(vec![[127, 0, 0, asked].into()])
        });
        let mut ask = |slot| {
            asker.ask(slot, "host");
            asker.next().1.unwrap()[0].ip()
        };
        assert_eq!(
            [ask(0), ask(1)],
            [IpAddr::from([127, 0, 0, 0]), IpAddr::from([127, 0, 0, 1])],
            "a new one is waited for"
        );
        let began = Instant::now();
        assert_eq!(ask(2), IpAddr::from([127, 0, 0, 1]));
        assert_eq!(ask(3), IpAddr::from([127, 0, 0, 1]), "whoever comes later does not wait again");
        assert!(began.elapsed() >= OLD_AFTER && began.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn new_options_hold_for_what_is_known_already() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let never = DnsOptions { found_ttl: Duration::from_secs(3600), ..DnsOptions::default() };
        let mut asker =
            Asker::new(never, |_| Ok(vec![[127, 0, 0, ASKED.fetch_add(1, Ordering::Relaxed) as u8].into()]));
        let mut ask = |dns| {
            asker.desk.0.send(Message::Options(dns)).unwrap();
            asker.ask(0, "host");
            asker.next().1.unwrap()[0].ip()
        };
        let soon = DnsOptions { found_ttl: Duration::from_secs(1800), ..never };
        assert_eq!(
            [ask(never), ask(never), ask(soon), ask(soon)],
            [0, 0, 1, 1].map(|last| IpAddr::from([127, 0, 0, last]))
        );
    }
}
