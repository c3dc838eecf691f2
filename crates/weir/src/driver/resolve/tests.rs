//! Names that are asked for, with others than name servers to answer.

use super::*;
use crate::driver::events::{self, DriverEvent, Listener};
use crate::driver::mailbox::{self, Receiver as Mailbox};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use weir_core::{Party, Side};

struct Asker {
    desk: Desk,
    mailbox: Sender,
    answers: Mailbox,
    said: Listener,
}

fn none() -> Answer {
    Err(Unfound::NoSuchName("no such name".to_owned()))
}

/// Without saying how long they count.
fn at(ips: &[[u8; 4]]) -> Answer {
    Ok(Found { addresses: ips.iter().map(|ip| IpAddr::from(*ip)).collect(), ..Found::default() })
}

impl Asker {
    fn new(dns: DnsOptions, addresses: fn(&str, &DnsOptions, InForce) -> Answer) -> Self {
        Self::with(dns, Asks { local: |_| Vec::new(), addresses, serial: |_, _| None })
    }

    fn with(dns: DnsOptions, asks: Asks) -> Self {
        let (messages, hear) = mpsc::channel();
        let (log, said) = events::queue();
        let mut resolver = Resolver::new(dns, &messages, asks, log);
        (resolver.left_after, resolver.look_again) = (Duration::from_millis(300), Duration::from_millis(20));
        thread::spawn(move || resolver.answer(&hear));
        let (mailbox, answers) = mailbox::mailbox().unwrap();
        messages.send(Message::Workers(vec![mailbox.clone()])).unwrap();
        Self { desk: Desk(messages), mailbox, answers, said }
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
    let mut asker = Asker::with(DnsOptions::default(), Asks::OUTSIDE);
    asker.ask(7, "localhost");
    let (slot, found) = asker.next();
    assert_eq!(slot, 7);
    assert!(found.unwrap().iter().all(|address| address.ip().is_loopback() && address.port() == 5432));
}

#[test]
fn tells_what_it_remembers() {
    let soon = Duration::from_secs(900);
    let options = DnsOptions { found_ttl: soon, failed_ttl: soon, ..DnsOptions::default() };
    let mut asker = Asker::new(options, |host, _, _| match host {
        "two" => at(&[[10, 0, 0, 1], [10, 0, 0, 2]]),
        "short" => Ok(Found { ttl: Some(Duration::from_secs(60)), ..at(&[[10, 0, 0, 3]])? }),
        _ => none(),
    });
    for (slot, host) in [(0, "two"), (1, "none"), (2, "short")] {
        asker.ask(slot, host);
        let _ = asker.next();
    }
    let Party::Client(client) = (ConnId { side: Side::Client, slot: 3, generation: 0 }).party() else { panic!() };
    asker.desk.0.send(Message::Tell(asker.mailbox.clone(), client)).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let hosts = loop {
        assert!(Instant::now() < end, "no answer");
        if let Some(Letter::NamesTold { names, .. }) = asker.answers.take() {
            break names.hosts;
        }
        thread::sleep(Duration::from_millis(1));
    };
    let told: Vec<_> = hosts.iter().map(|host| (&*host.name, host.addresses.len())).collect();
    assert_eq!(told, [("none", 0), ("short", 1), ("two", 2)]);
    let seconds: Vec<_> = hosts.iter().map(|host| host.ttl.as_secs()).collect();
    assert!([800..=900, 1..=60, 800..=900].iter().zip(&seconds).all(|(range, ttl)| range.contains(ttl)), "{hosts:?}");
}

#[test]
fn a_slow_name_holds_up_nobody_else() {
    let mut asker = Asker::new(DnsOptions::default(), |host, _, _| {
        if host == "slow" {
            thread::sleep(Duration::from_secs(3));
        }
        at(&[[127, 0, 0, 1]])
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
    let mut asker = Asker::new(DnsOptions::default(), |host, _, _| {
        ASKED.fetch_add(1, Ordering::Relaxed);
        if host == "panics" { panic!("told to") } else { none() }
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
    let mut asker = Asker::new(dns, |_, _, _| {
        let asked = ASKED.fetch_add(1, Ordering::Relaxed) as u8;
        thread::sleep(Duration::from_millis(if asked == 2 { 3_000 } else { 0 }));
        at(&[[127, 0, 0, asked]])
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
        Asker::new(never.clone(), |_, _, _| at(&[[127, 0, 0, ASKED.fetch_add(1, Ordering::Relaxed) as u8]]));
    let mut ask = |dns| {
        asker.desk.0.send(Message::Options(dns)).unwrap();
        asker.ask(0, "host");
        asker.next().1.unwrap()[0].ip()
    };
    let soon = DnsOptions { found_ttl: Duration::from_secs(1800), ..never.clone() };
    assert_eq!(
        [ask(never.clone()), ask(never), ask(soon.clone()), ask(soon)],
        [0, 0, 1, 1].map(|last| IpAddr::from([127, 0, 0, last]))
    );
}

/// What workers hear of left addresses until all of these have been asked for once, and for a while longer.
fn moves(asker: &mut Asker, questions: u32) -> (Vec<Vec<IpAddr>>, Vec<usize>) {
    let (mut moved, mut counts) = (Vec::new(), Vec::new());
    for slot in 0..questions {
        asker.ask(slot, "host");
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < end, "no answer");
            match asker.answers.take() {
                Some(Letter::HostMoved { gone, .. }) => moved.push(gone),
                Some(Letter::Resolved { result, .. }) => break counts.push(result.map_or(0, |ips| ips.len())),
                _ => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        match asker.answers.take() {
            Some(Letter::HostMoved { gone, .. }) => moved.push(gone),
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
    (moved, counts)
}

fn at_once() -> DnsOptions {
    DnsOptions { found_ttl: Duration::ZERO, failed_ttl: Duration::ZERO, ..DnsOptions::default() }
}

#[test]
fn workers_hear_where_a_name_leads_elsewhere() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let mut asker = Asker::new(at_once(), |_, _, _| match ASKED.fetch_add(1, Ordering::Relaxed) {
        0 => at(&[[10, 0, 0, 1]]),
        // One that comes moves nobody; nor that they are told in another order.
        1 => at(&[[10, 0, 0, 1], [10, 0, 0, 2]]),
        2 => at(&[[10, 0, 0, 2], [10, 0, 0, 1]]),
        // What was told last counts as long as nobody answers, but not where there is no such name.
        3 => Err(Unfound::Unanswered("it is down".to_owned())),
        4 => none(),
        5 => Err(Unfound::Unanswered("it is down".to_owned())),
        _ => at(&[[10, 0, 0, 2]]),
    });
    let (moved, counts) = moves(&mut asker, 7);
    assert_eq!(counts, [1, 2, 2, 2, 0, 0, 1]);
    assert_eq!(moved, [vec![IpAddr::from([10, 0, 0, 1])]], "once, though nobody asks any more");
}

#[test]
fn addresses_that_are_told_in_turns_are_not_left() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let mut asker = Asker::new(at_once(), |_, _, _| {
        let asked = ASKED.fetch_add(1, Ordering::Relaxed) as u8;
        at(&[[10, 0, 0, asked % 3]])
    });
    assert_eq!(moves(&mut asker, 5).0, Vec::<Vec<IpAddr>>::new());
    // It goes on being looked at, but without haste.
    assert!(ASKED.load(Ordering::Relaxed) < 100, "{ASKED:?}");
}

/// One lookup of three is not answered.
#[test]
fn what_is_lost_now_and_then_keeps_no_address_that_was_left() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let mut asker = Asker::new(at_once(), |_, _, _| match ASKED.fetch_add(1, Ordering::Relaxed) {
        0 => at(&[[10, 0, 0, 1]]),
        asked if asked % 3 == 1 => Err(Unfound::Unanswered("lost".to_owned())),
        _ => at(&[[10, 0, 0, 2]]),
    });
    assert_eq!(moves(&mut asker, 5).0, [vec![IpAddr::from([10, 0, 0, 1])]]);
}

/// What was told in turns, and what nobody has told anew, is not left while name servers are silent about it.
#[test]
fn silence_leaves_no_address() {
    static SILENT: AtomicUsize = AtomicUsize::new(0);
    let mut asker = Asker::new(at_once(), |_, _, _| match SILENT.fetch_add(1, Ordering::Relaxed) {
        asked @ 0..3 => at(&[[10, 0, 0, asked as u8]]),
        _ => Err(Unfound::Unanswered("nobody answers".to_owned())),
    });
    assert_eq!(moves(&mut asker, 5).0, Vec::<Vec<IpAddr>>::new());
    static HALF: AtomicUsize = AtomicUsize::new(0);
    let mut asker = Asker::new(at_once(), |_, _, _| {
        let old = ["::1", "10.0.0.1"].map(|ip| ip.parse().unwrap()).to_vec();
        match HALF.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(Found { addresses: old, ..Found::default() }),
            _ => Ok(Found { open: Some(Kind::V6), ..at(&[[10, 0, 0, 2]])? }),
        }
    });
    let (moved, counts) = moves(&mut asker, 5);
    assert_eq!(moved, [vec![IpAddr::from([10, 0, 0, 1])]], "the other kind's is left");
    assert_eq!(counts, [2; 5], "the last answer about the one kind stays beside the new one about the other");
}

#[test]
fn a_zone_that_has_changed_has_its_hosts_asked_for_again() {
    static SERIAL: AtomicUsize = AtomicUsize::new(7);
    let never = Duration::from_secs(3600);
    let zone_check = Some(Duration::from_millis(20));
    let dns = DnsOptions { found_ttl: never, failed_ttl: never, zone_check, ..DnsOptions::default() };
    let asks = Asks {
        local: |_| Vec::new(),
        addresses: |_, _, _| at(&[[10, 0, 0, SERIAL.load(Ordering::Relaxed) as u8]]),
        serial: |zone, _| (zone == "example.org").then(|| SERIAL.load(Ordering::Relaxed) as u32),
    };
    let mut asker = Asker::with(dns, asks);
    for (slot, host) in [(0, "a.example.org"), (1, "b.example.org."), (2, "c.example.net"), (3, "single")] {
        asker.ask(slot, host);
        let _ = asker.next();
    }
    thread::sleep(Duration::from_millis(200));
    SERIAL.store(8, Ordering::Relaxed);
    let end = Instant::now() + Duration::from_secs(20);
    let mut moved = Vec::new();
    while moved.len() < 2 {
        assert!(Instant::now() < end, "{moved:?}");
        match asker.answers.take() {
            Some(Letter::HostMoved { host, gone }) => moved.push((host.to_string(), gone)),
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
    moved.sort();
    let there = || vec![IpAddr::from([10, 0, 0, 7])];
    assert_eq!(moved, [("a.example.org".to_owned(), there()), ("b.example.org.".to_owned(), there())]);
    let said = asker.said.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(
        matches!(&said, DriverEvent::Log(line) if line.text == "zone 'example.org' serial changed: old=7 new=8"),
        "{said:?}"
    );
}

#[test]
fn the_file_of_hosts_is_read_as_the_system_reads_it() {
    let text = "127.0.0.1 localhost\n# 10.0.0.9 db\n10.0.0.1\tdb.example.org DB # first\nnonsense db\n10.0.0.2 x db\n10.0.0.1 db\n::1 db";
    let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
    assert_eq!(of_hosts(text, "db"), ips(&["10.0.0.1", "10.0.0.2", "::1"]));
    assert_eq!(of_hosts(text, "db.example.ORG."), ips(&["10.0.0.1"]));
    assert_eq!(of_hosts(text, "example.org"), ips(&[]));
}

#[test]
fn each_connection_begins_with_the_next_address() {
    let mut asker = Asker::new(DnsOptions::default(), |_, _, _| at(&[[10, 0, 0, 1], [10, 0, 0, 2]]));
    let mut firsts = Vec::new();
    for slot in 0..4 {
        asker.ask(slot, "host");
        let found = asker.next().1.unwrap();
        assert_eq!(found.len(), 2);
        firsts.push(found[0].ip().to_string());
    }
    assert_eq!(firsts, ["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.2"]);
}

#[test]
fn what_can_be_told_at_once_waits_for_nobody() {
    let asks = Asks {
        local: |host| if host == "here" { vec![IpAddr::from([127, 0, 0, 1])] } else { Vec::new() },
        addresses: |_, _, _| {
            thread::sleep(Duration::from_secs(3));
            none()
        },
        serial: |_, _| None,
    };
    let mut asker = Asker::with(DnsOptions::default(), asks);
    (0..LOOKUPS_MAX as u32 + 5).for_each(|slot| asker.ask(slot, &format!("slow-{slot}")));
    asker.ask(1000, "here");
    assert_eq!(asker.next().0, 1000);
}

/// What another name server was asked counts no more, and is asked of the new one, whether the old one ever answers or not.
#[test]
fn a_lookup_under_other_options_is_begun_anew() {
    let mut asker = Asker::new(DnsOptions::default(), |_, dns, _| {
        if dns.found_ttl == Duration::from_secs(15) {
            thread::sleep(Duration::from_millis(500));
            return none();
        }
        at(&[[10, 0, 0, 7]])
    });
    asker.ask(0, "host");
    thread::sleep(Duration::from_millis(50));
    let others = DnsOptions { found_ttl: Duration::from_secs(16), ..DnsOptions::default() };
    asker.desk.0.send(Message::Options(others)).unwrap();
    assert_eq!(asker.next().1.unwrap()[0].ip(), IpAddr::from([10, 0, 0, 7]));
    thread::sleep(Duration::from_millis(800));
    asker.ask(1, "host");
    assert!(asker.next().1.is_ok(), "the old answer does not count");
}
