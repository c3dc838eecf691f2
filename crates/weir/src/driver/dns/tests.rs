//! A name server that says what it is told to, over UDP and TCP.

use super::*;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use domain::base::Serial;

/// A record: the type, the time it counts, and the data as text.
type Record = (&'static str, &'static str, u32, &'static str);

/// What it has, and what it was asked.
#[derive(Clone, Default)]
struct Zone {
    records: Vec<Record>,
    /// In place of an answer to these names.
    refuses: BTreeMap<&'static str, Rcode>,
    /// Questions of this type are refused so, or not answered.
    refuses_type: Option<(Rtype, Option<Rcode>)>,
    /// So many questions of this type are not answered.
    loses: Arc<Mutex<(u32, Option<Rtype>)>>,
    /// Answers over UDP are said to be cut off.
    is_long: bool,
    /// What nobody has asked for comes ahead of each answer.
    is_forged: bool,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Zone {
    fn answer(&self, bytes: &[u8], over_udp: bool) -> Option<Vec<u8>> {
        let query = Message::from_octets(bytes).unwrap();
        let question = query.sole_question().unwrap();
        let name = question.qname().to_string().to_ascii_lowercase();
        self.asked.lock().unwrap().push(format!("{name} {}", question.qtype()));
        let known = self.records.iter().any(|(own, ..)| *own == name);
        let mut rcode =
            self.refuses.get(&*name).copied().unwrap_or(if known { Rcode::NOERROR } else { Rcode::NXDOMAIN });
        if let Some((rtype, refusal)) = self.refuses_type
            && rtype == question.qtype()
        {
            rcode = refusal?;
        }
        let mut loses = self.loses.lock().unwrap();
        if loses.0 > 0 && loses.1 == Some(question.qtype()) {
            loses.0 -= 1;
            return None;
        }
        let mut answer = MessageBuilder::new_vec().start_answer(&query, rcode).unwrap();
        answer.header_mut().set_tc(self.is_long && over_udp);
        let mut owner = name;
        let rtype = question.qtype().to_string();
        while let Some((_, kind, ttl, data)) =
            self.records.iter().find(|(own, kind, ..)| *own == owner && (*kind == "CNAME" || *kind == rtype))
        {
            let own = name_of(&owner).unwrap();
            match *kind {
                "CNAME" => {
                    answer.push((own, *ttl, Cname::new(name_of(data).unwrap()))).unwrap();
                    owner = (*data).to_owned();
                    continue;
                }
                "SOA" => {
                    let (name, ttl) = (name_of(data).unwrap(), domain::base::Ttl::from_secs(1));
                    answer.push((own, ttl, Soa::new(name.clone(), name, Serial(7), ttl, ttl, ttl, ttl))).unwrap();
                }
                _ => {
                    for (_, _, ttl, data) in
                        self.records.iter().filter(|(other, other_kind, ..)| *other == owner && other_kind == kind)
                    {
                        match data.parse().unwrap() {
                            IpAddr::V4(ip) => answer.push((own.clone(), *ttl, A::new(ip))).unwrap(),
                            IpAddr::V6(ip) => answer.push((own.clone(), *ttl, Aaaa::new(ip))).unwrap(),
                        }
                    }
                }
            }
            break;
        }
        Some(answer.finish())
    }

    /// Its port.
    fn serve(&self) -> u16 {
        let (tcp, udp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
                break (tcp, udp);
            }
        };
        let port = tcp.local_addr().unwrap().port();
        let (zone, long) = (self.clone(), self.clone());
        thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((length, from)) = udp.recv_from(&mut bytes) {
                let Some(answer) = zone.answer(&bytes[..length], true) else { continue };
                if zone.is_forged {
                    let mut other = answer.clone();
                    other[0] ^= 1;
                    let of_another = MessageBuilder::new_vec()
                        .start_answer(
                            &Message::from_octets(
                                &*message(
                                    &(name_of("other").unwrap(), Rtype::A),
                                    u16::from_be_bytes([answer[0], answer[1]]),
                                )
                                .unwrap(),
                            )
                            .unwrap(),
                            Rcode::NXDOMAIN,
                        )
                        .unwrap()
                        .finish();
                    for forged in [&b"x"[..], &bytes[..length], &other, &of_another] {
                        udp.send_to(forged, from).unwrap();
                    }
                }
                udp.send_to(&answer, from).unwrap();
            }
        });
        thread::spawn(move || {
            for mut socket in tcp.incoming().flatten() {
                let mut length = [0; 2];
                socket.read_exact(&mut length).unwrap();
                let mut bytes = vec![0; u16::from_be_bytes(length).into()];
                socket.read_exact(&mut bytes).unwrap();
                let answer = long.answer(&bytes, false).unwrap();
                // In pieces, as it may come.
                let all = [&(answer.len() as u16).to_be_bytes()[..], &answer].concat();
                let (first, rest) = all.split_at(1);
                socket.write_all(first).unwrap();
                thread::sleep(Duration::from_millis(5));
                socket.write_all(rest).unwrap();
            }
        });
        port
    }

    fn servers(&self, more: &str) -> NameServers {
        NameServers::at(format!("nameserver 127.0.0.1\noptions timeout:2\n{more}").as_bytes(), self.serve())
    }
}

fn zone(records: &[Record]) -> Zone {
    Zone { records: records.to_vec(), ..Zone::default() }
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn seconds(found: &Found) -> u64 {
    found.ttl.unwrap().as_secs()
}

#[test]
fn addresses_count_as_long_as_the_shortest_of_what_led_to_them() {
    let zone = zone(&[
        ("db.example.org", "A", 30, "127.0.0.2"),
        ("db.example.org", "A", 30, "127.0.0.3"),
        ("db.example.org", "AAAA", 20, "2001:db8::1"),
        ("app.example.org", "CNAME", 7, "db.example.org"),
        ("far.example.org", "CNAME", 99, "app.example.org"),
        ("none.example.org", "TXT", 99, ""),
    ]);
    let servers = zone.servers("");
    for (host, ttl) in [("db.example.org", 20), ("DB.Example.org.", 20), ("app.example.org", 7), ("far.example.org", 7)]
    {
        let found = servers.addresses(host).unwrap();
        assert_eq!(seconds(&found), ttl, "{host}");
        let mut addresses = found.addresses;
        addresses.sort();
        assert_eq!(addresses, ips(&["127.0.0.2", "127.0.0.3", "2001:db8::1"]), "{host}");
    }
    for host in ["nowhere.example.org", "none.example.org", "", "..", &"x".repeat(64), "a b"] {
        assert!(matches!(servers.addresses(host), Err(Unfound::NoSuchName(_))), "{host}");
    }
}

#[test]
fn what_is_not_the_answer_is_left_aside() {
    let zone = Zone { is_forged: true, ..zone(&[("db", "A", 30, "127.0.0.2")]) };
    assert_eq!(zone.servers("").addresses("db").unwrap().addresses, ips(&["127.0.0.2"]));
}

#[test]
fn a_long_answer_comes_over_tcp() {
    let zone = Zone { is_long: true, ..zone(&[("db", "A", 30, "127.0.0.2")]) };
    assert_eq!(zone.servers("").addresses("db").unwrap().addresses, ips(&["127.0.0.2"]));
}

#[test]
fn short_names_are_looked_for_in_domains() {
    let zone = zone(&[
        ("db.one.org", "A", 5, "127.0.0.2"),
        ("db.x.two.org", "A", 5, "127.0.0.3"),
        ("db.x", "A", 5, "127.0.0.4"),
    ]);
    let asked = |servers: &NameServers, host: &str| {
        zone.asked.lock().unwrap().clear();
        let found = servers.addresses(host).unwrap();
        let asked: Vec<_> =
            zone.asked.lock().unwrap().iter().filter_map(|asked| asked.strip_suffix(" A").map(str::to_owned)).collect();
        (found.addresses[0].to_string(), asked.join(" "))
    };
    let servers = zone.servers("search zero.org one.org two.org");
    assert_eq!(asked(&servers, "db"), ("127.0.0.2".to_owned(), "db.zero.org db.one.org".to_owned()));
    assert_eq!(asked(&servers, "db.x"), ("127.0.0.4".to_owned(), "db.x".to_owned()));
    assert_eq!(asked(&servers, "db.one.org."), ("127.0.0.2".to_owned(), "db.one.org".to_owned()));
    let failing =
        Zone { refuses: [("db.zero.org", Rcode::SERVFAIL), ("gone.one.org", Rcode::REFUSED)].into(), ..zone.clone() };
    let servers = failing.servers("search zero.org one.org");
    assert_eq!(servers.addresses("db").unwrap().addresses, ips(&["127.0.0.2"]), "another domain has it");
    assert!(matches!(servers.addresses("gone"), Err(Unfound::Unanswered(_))), "one of them may have it");
    let servers = zone.servers("search two.org\noptions ndots:2");
    assert_eq!(asked(&servers, "db.x"), ("127.0.0.3".to_owned(), "db.x.two.org".to_owned()));
}

#[test]
fn another_server_is_asked_where_one_does_not_know() {
    let failing = Zone { refuses: [("db", Rcode::SERVFAIL)].into(), ..Zone::default() };
    let good = zone(&[("db", "A", 5, "127.0.0.2"), ("example.org", "SOA", 1, "ns")]);
    let mut servers = failing.servers("options attempts:1");
    let Err(Unfound::Unanswered(why)) = servers.addresses("db") else { panic!() };
    assert!(why.contains("SERVFAIL"), "{why}");
    servers.servers.push(SocketAddr::from(([127, 0, 0, 1], good.serve())));
    assert_eq!(servers.addresses("db").unwrap().addresses, ips(&["127.0.0.2"]));
    // Nobody is there: the system says so at once.
    servers.servers[0] = SocketAddr::from(([127, 0, 0, 1], 1));
    assert_eq!(servers.addresses("db").unwrap().addresses, ips(&["127.0.0.2"]));
    assert_eq!((servers.serial("example.org"), servers.serial("example.net")), (Some(7), None));
    servers.servers.clear();
    assert!(matches!(servers.addresses("db"), Err(Unfound::Unanswered(_))));
}

/// Some know addresses of one kind, and refuse to speak of the other.
#[test]
fn one_kind_of_address_is_enough() {
    for (refused, refusal) in [
        (Rtype::AAAA, Some(Rcode::SERVFAIL)),
        (Rtype::AAAA, Some(Rcode::NOTIMP)),
        (Rtype::AAAA, Some(Rcode::NXDOMAIN)),
        (Rtype::AAAA, None),
        (Rtype::A, Some(Rcode::REFUSED)),
        (Rtype::A, None),
    ] {
        let records = [("db", "A", 5, "127.0.0.2"), ("db", "AAAA", 5, "::1")];
        let zone = Zone { refuses_type: Some((refused, refusal)), ..zone(&records) };
        let expected = if refused == Rtype::A { "::1" } else { "127.0.0.2" };
        let began = Instant::now();
        assert_eq!(zone.servers("options timeout:9").addresses("db").unwrap().addresses, ips(&[expected]), "{refused}");
        assert!(began.elapsed() < Duration::from_secs(8), "the other answer is not waited for so long");
        assert!(zone.servers("options timeout:1 attempts:1").addresses("none").is_err());
    }
}

/// Of a name that stands for another one, which has an address of one kind.
#[test]
fn half_an_answer_without_an_address_is_none() {
    let records = [
        ("db.example.org", "CNAME", 5, "host.example.org"),
        ("host.example.org", "A", 5, "127.0.0.2"),
        ("db.example.org.corp.org", "A", 5, "127.0.0.3"),
    ];
    let losing = |count| {
        let zone = Zone { loses: Arc::new(Mutex::new((count, Some(Rtype::A)))), ..zone(&records) };
        zone.servers("search corp.org\noptions timeout:1 attempts:2").addresses("db.example.org")
    };
    // One that is lost is asked for again, of the same server or at the next attempt.
    for count in [1, 2, 3] {
        let found = losing(count).unwrap();
        assert_eq!((found.addresses, found.open), (ips(&["127.0.0.2"]), None), "{count} lost");
    }
    let Err(Unfound::Unanswered(_)) = losing(99) else { panic!("the name is there, and no other machine is meant") };
    let refused = [Rcode::SERVFAIL, Rcode::REFUSED].map(|rcode| {
        let zone = Zone { refuses_type: Some((Rtype::A, Some(rcode))), ..zone(&records) };
        zone.servers("search corp.org").addresses("db.example.org")
    });
    assert!(refused.iter().all(|answer| matches!(answer, Err(Unfound::Unanswered(_)))), "{refused:?}");
    // No more where it is refused as a whole, or where one kind is said not to be there and the other is lost.
    let all = Zone { refuses: [("db.example.org", Rcode::SERVFAIL)].into(), ..zone(&records) };
    let one = Zone {
        refuses_type: Some((Rtype::AAAA, Some(Rcode::NXDOMAIN))),
        loses: Arc::new(Mutex::new((99, Some(Rtype::A)))),
        ..zone(&records)
    };
    for zone in [all, one] {
        let answer = zone.servers("search corp.org\noptions timeout:1").addresses("db.example.org");
        assert!(matches!(answer, Err(Unfound::Unanswered(_))), "{answer:?}");
    }
    // A domain of the search list may be in order, though another one is not.
    let records = [("db.a.zone", "CNAME", 5, "none"), ("db.b.zone", "A", 5, "127.0.0.4")];
    let zone = Zone { refuses_type: Some((Rtype::AAAA, Some(Rcode::SERVFAIL))), ..zone(&records) };
    let found = zone.servers("search a.zone b.zone").addresses("db").unwrap();
    assert_eq!(found.addresses, ips(&["127.0.0.4"]));
}

#[test]
fn which_kind_is_open_is_told() {
    let records = [("db", "A", 5, "127.0.0.2"), ("db", "AAAA", 5, "::1")];
    for (rtype, kind) in [(Rtype::A, Kind::V4), (Rtype::AAAA, Kind::V6)] {
        for refusal in [None, Some(Rcode::SERVFAIL)] {
            let zone = Zone { refuses_type: Some((rtype, refusal)), ..zone(&records) };
            assert_eq!(zone.servers("").addresses("db").unwrap().open, Some(kind));
        }
        let zone = Zone { loses: Arc::new(Mutex::new((1, Some(rtype)))), ..zone(&records) };
        let found = zone.servers("").addresses("db").unwrap();
        assert_eq!((found.addresses.len(), found.open), (2, None), "it was asked for again");
    }
}

#[test]
fn one_that_says_nothing_is_not_waited_for_without_end() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let began = Instant::now();
    let servers = NameServers::at(b"nameserver 127.0.0.1\noptions timeout:1 attempts:2", port);
    assert!(matches!(servers.addresses("db"), Err(Unfound::Unanswered(_))));
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn what_cannot_be_reached_comes_last() {
    let mut addresses = ips(&["127.0.0.2", "::ffff:0:1", "127.0.0.3"]);
    in_order(&mut addresses);
    assert_eq!(addresses.iter().filter(|address| address.is_ipv4()).count(), 2);
    let mut local = ips(&["127.0.0.2", "127.0.0.3"]);
    in_order(&mut local);
    assert_eq!(local, ips(&["127.0.0.2", "127.0.0.3"]), "the server's order is kept");
}

/// Answers of any bytes.
#[test]
fn a_server_that_talks_nonsense_is_no_harm() {
    let nonsense = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = nonsense.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut bytes = [0; 512];
        let mut number = 1_u32;
        while let Ok((length, from)) = nonsense.recv_from(&mut bytes) {
            for round in 0..200 {
                // The head of an answer to it, and what is behind is damaged somewhere.
                let mut answer = [&bytes[..length], &bytes[..length.min(30)]].concat();
                answer[2] |= 0x80;
                answer[7] = round as u8;
                number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = 12 + (number >> 8) as usize % (answer.len() - 12);
                answer[at] = number as u8;
                let _ = nonsense.send_to(&answer, from);
            }
        }
    });
    let servers = NameServers::at(b"nameserver 127.0.0.1\noptions timeout:1 attempts:1", port);
    for host in ["db.example.org", "db"] {
        let _ = (servers.addresses(host), servers.serial(host));
    }
}
