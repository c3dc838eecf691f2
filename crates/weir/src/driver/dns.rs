//! A stub resolver (RFC 1034, 5.3.1): asks the name servers of a resolv.conf(5) for addresses, and for how long they count. Blocks.
//!
//! The system's own functions (`getaddrinfo`) do not tell how long. What a message looks like is the business of the library `domain`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name, Rtype, ToName};
use domain::rdata::{A, Aaaa, Cname, Soa};
use resolv_conf::Config;

const PORT: u16 = 53;
/// How long the second of two answers may come behind the first: some servers never answer one of the kinds (RFC 4074, 4.1).
const BEHIND: Duration = Duration::from_secs(1);
/// What one answer over UDP may have without asking for more (RFC 1035, 4.2.1); longer ones are asked for over TCP.
const UDP_BYTES_MAX: usize = 512;

/// As the system has them (`RES_MAXRETRANS` and `RES_MAXRETRY`, resolv.h of glibc).
const TIMEOUT_MAX: u32 = 30;
const ATTEMPTS_MAX: u32 = 5;

/// Nothing came of it.
enum Vain {
    Refused(String),
    /// Of two questions one is open, and the other's answer has no address.
    Half(String),
    Silent(String),
}

type Question = (Name<Vec<u8>>, Rtype);
type Answer = Message<Vec<u8>>;

/// What a server has told, and which question it has left open.
struct Told {
    answers: Vec<Answer>,
    open: Option<Rtype>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    V4,
    V6,
}

impl Kind {
    pub fn has(self, address: &IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }
}

/// Addresses of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub addresses: Vec<IpAddr>,
    /// Whether there are others of this kind nobody has told.
    pub open: Option<Kind>,
    /// How long they count; `None`: whoever told them did not say.
    pub ttl: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfound {
    /// There is no such name, or it has no address.
    NoSuchName(String),
    /// Nobody has told.
    Unanswered(String),
}

#[derive(Debug)]
pub struct NameServers {
    servers: Vec<SocketAddr>,
    config: Config,
}

impl NameServers {
    /// What cannot be read in it is left out, as by the system.
    pub fn of(resolv_conf: &[u8]) -> Self {
        Self::at(resolv_conf, PORT)
    }

    fn at(resolv_conf: &[u8], port: u16) -> Self {
        let (config, _) = Config::parse_with_errors(resolv_conf);
        let servers = config.nameservers.iter().map(|ip| SocketAddr::new(ip.into(), port)).collect();
        Self { servers, config }
    }

    pub fn addresses(&self, host: &str) -> Result<Found, Unfound> {
        let mut unfound = Unfound::NoSuchName("no such name".to_owned());
        let as_it_is = name_of(host);
        for name in self.candidates(host) {
            let questions = [Rtype::A, Rtype::AAAA].map(|rtype| (name.clone(), rtype));
            let told = match self.ask(&questions) {
                Ok(told) => told,
                // That may hold for one of the domains that are tried alone. Behind the name as it is, another might be another machine's.
                Err(Vain::Refused(why) | Vain::Half(why)) if Some(&name) != as_it_is.as_ref() => {
                    unfound = Unfound::Unanswered(why);
                    continue;
                }
                Err(Vain::Refused(why) | Vain::Half(why) | Vain::Silent(why)) => {
                    return Err(Unfound::Unanswered(why));
                }
            };
            let mut found = Found::of(&told.answers);
            found.open = told.open.map(|rtype| if rtype == Rtype::A { Kind::V4 } else { Kind::V6 });
            if !found.addresses.is_empty() {
                in_order(&mut found.addresses);
                return Ok(found);
            }
        }
        Err(unfound)
    }

    /// The serial number of a zone.
    pub fn serial(&self, zone: &str) -> Option<u32> {
        let told = self.ask(&[(name_of(zone)?, Rtype::SOA)]).ok()?;
        let soa = told.answers.first()?.answer().ok()?.limit_to_in::<Soa<_>>().next()?.ok()?;
        Some(soa.data().serial().into_int())
    }

    /// What the host may be called in full, in the order in which that is tried (resolv.conf(5), `search` and `ndots`).
    fn candidates(&self, host: &str) -> Vec<Name<Vec<u8>>> {
        let as_it_is = name_of(host);
        if host.ends_with('.') {
            return as_it_is.into_iter().collect();
        }
        let search = self.config.get_last_search_or_domain();
        let mut names: Vec<_> = search.filter_map(|domain| name_of(&format!("{host}.{domain}"))).collect();
        let first = host.matches('.').count() >= self.config.ndots as usize;
        names.splice(if first { 0..0 } else { names.len()..names.len() }, as_it_is);
        names
    }

    /// Of one server: it answers all, or one of them with addresses.
    fn ask(&self, questions: &[Question]) -> Result<Told, Vain> {
        let timeout = Duration::from_secs(self.config.timeout.clamp(1, TIMEOUT_MAX).into());
        let mut vain = Vain::Silent("no name server is known".to_owned());
        for _ in 0..self.config.attempts.clamp(1, ATTEMPTS_MAX) {
            for server in &self.servers {
                match (ask_one(*server, questions, timeout), &vain) {
                    (Ok(told), _) => return Ok(told),
                    // One that has spoken of it has, whatever others say.
                    (Err(_), Vain::Half(_)) | (Err(Vain::Silent(_)), Vain::Refused(_)) => {}
                    (Err(what), _) => vain = what,
                }
            }
        }
        Err(vain)
    }
}

/// What is lost on its way is asked for once more.
fn ask_one(server: SocketAddr, questions: &[Question], timeout: Duration) -> Result<Told, Vain> {
    let silent = |error: io::Error| Vain::Silent(format!("the name server {server} does not answer: {error}"));
    let mut answers = ask_server(server, questions, timeout).map_err(silent)?;
    let says = |answer: &Option<Answer>| answer.as_ref().is_some_and(says_something);
    if answers.iter().any(says) {
        for (question, answer) in questions.iter().zip(&mut answers).filter(|(_, answer)| !says(answer)) {
            if let Ok(again) = ask_server(server, std::slice::from_ref(question), BEHIND) {
                *answer = again.into_iter().flatten().next().or(answer.take());
            }
        }
    }
    let open = questions.iter().zip(&answers).find(|(_, answer)| !says(answer)).map(|((_, rtype), _)| *rtype);
    let (answers, refused): (Vec<_>, Vec<_>) = answers.into_iter().flatten().partition(says_something);
    let why = match refused.first() {
        Some(answer) => format!("the name server {server} says {}", answer.header().rcode()),
        None => format!("the name server {server} does not answer all that it is asked"),
    };
    match open {
        None => Ok(Told { answers, open }),
        Some(_) if !Found::of(&answers).addresses.is_empty() => Ok(Told { answers, open }),
        // It may have addresses of the other kind, whatever is said of the one (RFC 4074, 4.2).
        Some(_) if !answers.is_empty() => Err(Vain::Half(why)),
        Some(_) => Err(Vain::Refused(why)),
    }
}

fn says_something(answer: &Answer) -> bool {
    matches!(answer.header().rcode(), Rcode::NOERROR | Rcode::NXDOMAIN)
}

fn name_of(text: &str) -> Option<Name<Vec<u8>>> {
    Name::vec_from_str(text).ok()
}

impl Found {
    fn of(answers: &[Answer]) -> Self {
        let mut found = Self::default();
        let there = answers.iter().filter(|answer| answer.header().rcode() == Rcode::NOERROR);
        there.for_each(|answer| add_addresses(&mut found, answer));
        found
    }
}

fn add_addresses(found: &mut Found, answer: &Answer) {
    let (Some(name), Ok(records)) = (answer.canonical_name(), answer.answer()) else { return };
    let mut add = |address: IpAddr, ttl: Duration| {
        if !found.addresses.contains(&address) {
            found.addresses.push(address);
        }
        found.ttl = Some(found.ttl.map_or(ttl, |known| known.min(ttl)));
    };
    let seconds = |ttl: domain::base::Ttl| Duration::from_secs(ttl.as_secs().into());
    // A name that stands for another one counts no longer than it says, either.
    let aliases = records.limit_to_in::<Cname<_>>().flatten().map(|record| seconds(record.ttl())).min();
    let counts = |ttl| aliases.map_or(seconds(ttl), |alias| alias.min(seconds(ttl)));
    for record in records.limit_to_in::<A>().flatten().filter(|record| record.owner().name_eq(&name)) {
        add(record.data().addr().into(), counts(record.ttl()));
    }
    for record in records.limit_to_in::<Aaaa>().flatten().filter(|record| record.owner().name_eq(&name)) {
        add(record.data().addr().into(), counts(record.ttl()));
    }
}

/// As the system would try them (RFC 6724, 6, as far as it can be told without its tables): those that there is no way to come last, IPv6 comes
/// ahead of IPv4, but for where our own address is a local one (RFC 4193) and theirs is not.
fn in_order(addresses: &mut [IpAddr]) {
    addresses.sort_by_key(|address| match (source(*address), address) {
        (None, _) => 3,
        (Some(IpAddr::V6(own)), IpAddr::V6(theirs)) if own.is_unique_local() && !theirs.is_unique_local() => 2,
        (Some(_), IpAddr::V6(_)) => 0,
        (Some(_), IpAddr::V4(_)) => 1,
    });
}

/// Where we would come from. Nothing is sent.
fn source(address: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((unspecified(address), 0)).ok()?;
    socket.connect((address, PORT)).ok()?;
    socket.local_addr().ok().map(|own| own.ip())
}

fn unspecified(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// In the order of the questions, some of which may not be answered. From a port of its own, which a stranger would have to guess beside the number (RFC 5452).
fn ask_server(server: SocketAddr, questions: &[Question], timeout: Duration) -> io::Result<Vec<Option<Answer>>> {
    let mut until = Instant::now() + timeout;
    let socket = UdpSocket::bind((unspecified(server.ip()), 0))?;
    socket.connect(server)?;
    let mut ids = [[0; 2]; 2];
    rustix::rand::getrandom(ids.as_flattened_mut(), rustix::rand::GetRandomFlags::empty())?;
    let mut open = Vec::new();
    for (at, (question, id)) in questions.iter().zip(ids).enumerate() {
        // Two with one number could not be told apart by it alone; the question tells them apart, too.
        let id = u16::from_be_bytes(id);
        socket.send(&message(question, id)?)?;
        open.push((at, id));
    }
    let mut answers: Vec<Option<Answer>> = vec![None; questions.len()];
    while !open.is_empty() {
        let mut bytes = vec![0; UDP_BYTES_MAX];
        let received = left(until).and_then(|left| {
            socket.set_read_timeout(Some(left))?;
            socket.recv(&mut bytes)
        });
        let length = match received {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) if answers.iter().any(Option::is_some) => break,
            Err(error) => return Err(error),
        };
        bytes.truncate(length);
        let Ok(answer) = Message::from_octets(bytes) else { continue };
        let Some(which) = open.iter().position(|(at, id)| answers_to(&answer, &questions[*at], *id)) else { continue };
        let (at, id) = open.swap_remove(which);
        let is_cut = answer.header().tc();
        answers[at] = if is_cut { ask_at_length(server, &questions[at], id, until).ok() } else { Some(answer) };
        until = until.min(Instant::now() + BEHIND);
    }
    if answers.iter().all(Option::is_none) {
        return Err(ErrorKind::TimedOut.into());
    }
    Ok(answers)
}

/// Over TCP (RFC 7766).
fn ask_at_length(server: SocketAddr, question: &Question, id: u16, until: Instant) -> io::Result<Answer> {
    let mut socket = TcpStream::connect_timeout(&server, left(until)?)?;
    let message = message(question, id)?;
    socket.set_write_timeout(Some(left(until)?))?;
    socket.write_all(&[&(message.len() as u16).to_be_bytes()[..], &message].concat())?;
    let mut length = [0; 2];
    read_all(&mut socket, &mut length, until)?;
    let mut bytes = vec![0; u16::from_be_bytes(length).into()];
    read_all(&mut socket, &mut bytes, until)?;
    let answer = Message::from_octets(bytes).ok().filter(|answer| answers_to(answer, question, id));
    answer.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "it answers something else"))
}

fn read_all(socket: &mut TcpStream, mut to: &mut [u8], until: Instant) -> io::Result<()> {
    while !to.is_empty() {
        socket.set_read_timeout(Some(left(until)?))?;
        match socket.read(to)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            length => to = &mut to[length..],
        }
    }
    Ok(())
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn message((name, rtype): &Question, id: u16) -> io::Result<Vec<u8>> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(id);
    message.header_mut().set_rd(true);
    let mut questions = message.question();
    questions.push((name, *rtype)).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error.to_string()))?;
    Ok(questions.finish())
}

fn answers_to(answer: &Answer, (name, rtype): &Question, id: u16) -> bool {
    let header = answer.header();
    let same = |question: domain::base::Question<_>| {
        let question: domain::base::Question<domain::base::ParsedName<_>> = question;
        question.qname().name_eq(name) && question.qtype() == *rtype
    };
    header.qr() && header.id() == id && answer.sole_question().is_ok_and(same)
}

#[cfg(test)]
mod tests;
