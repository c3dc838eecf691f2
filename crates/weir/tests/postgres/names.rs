//! Names of servers: a name server of ours says where they lead, and what leads elsewhere is followed.

use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name, Rtype, Serial, Ttl};
use domain::rdata::{A, Soa};
use weir_pg::{Cluster, Installation, Options};

use super::bench::{DRIVERS, Weir, wait_until, write_for_all};

/// Where `db.weir.test` leads, and the serial number of its zone; `None`: the name server is down.
type Zone = Arc<Mutex<Option<(IpAddr, u32)>>>;

/// On a loopback address of its own, at the port of name servers.
struct NameServer {
    zone: Zone,
    address: IpAddr,
}

impl NameServer {
    /// `None`: only root may listen there.
    fn start() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: only root can be a name server");
            return None;
        }
        let addresses = (1..=250).map(|last| IpAddr::from([127, 53, 53, last]));
        let (address, socket) =
            addresses.into_iter().find_map(|address| Some((address, UdpSocket::bind((address, 53)).ok()?))).unwrap();
        let zone = Zone::default();
        let own = Arc::clone(&zone);
        std::thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                let query = Message::from_octets(&bytes[..length]).unwrap();
                let Some((ip, serial)) = *own.lock().unwrap() else { continue };
                let question = query.sole_question().unwrap();
                let (name, ttl) = (question.qname().to_string(), Ttl::from_secs(1));
                let rcode = if name.ends_with("weir.test") { Rcode::NOERROR } else { Rcode::NXDOMAIN };
                let mut answer = MessageBuilder::new_vec().start_answer(&query, rcode).unwrap();
                let owner: Name<Vec<u8>> = name.parse().unwrap();
                match (question.qtype(), ip) {
                    (Rtype::A, IpAddr::V4(ip)) if rcode == Rcode::NOERROR => {
                        answer.push((owner, ttl, A::new(ip))).unwrap()
                    }
                    (Rtype::SOA, _) => {
                        let soa = Soa::new(owner.clone(), owner.clone(), Serial(serial), ttl, ttl, ttl, ttl);
                        answer.push((owner, ttl, soa)).unwrap();
                    }
                    _ => {}
                }
                socket.send_to(&answer.finish(), from).unwrap();
            }
        });
        Some(Self { zone, address })
    }

    fn says(&self, last: u8, serial: u32) {
        *self.zone.lock().unwrap() = Some((IpAddr::from([127, 0, 0, last]), serial));
    }

    /// A resolv.conf that names it, in a folder.
    fn file(&self, more: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::Builder::new().prefix("weir-test-dns").tempdir().unwrap();
        super::bench::open_to_all(folder.path());
        let file = folder.path().join("resolv.conf");
        write_for_all(&file, &format!("nameserver {}\n{more}", self.address));
        (folder, file)
    }

    fn is_down(&self) {
        *self.zone.lock().unwrap() = None;
    }
}

/// At 127.0.0.1 and 127.0.0.2.
fn cluster() -> Cluster {
    let installation = Installation::of_major(18, &|_| {}).unwrap();
    let settings = vec!["fsync = off".to_owned(), "listen_addresses = '127.0.0.1,127.0.0.2'".to_owned()];
    let hba = vec!["host all all 127.0.0.0/8 trust".to_owned()];
    Cluster::start(&installation, Options { settings, hba, ..Options::default() }).unwrap()
}

/// The addresses that its servers are connected to.
fn connected(weir: &Weir) -> Vec<String> {
    let rows = weir.try_client("dbname=pgbouncer").unwrap().simple_query("show servers").unwrap();
    let address = |row: &postgres::SimpleQueryMessage| match row {
        postgres::SimpleQueryMessage::Row(row) => row.get("addr").map(str::to_owned),
        _ => None,
    };
    rows.iter().filter_map(address).collect()
}

#[test]
fn servers_follow_a_name_that_leads_elsewhere() {
    let Some(names) = NameServer::start() else { return };
    let cluster = cluster();
    let (_folder, file) = names.file("search weir.test\noptions timeout:1 attempts:1\n");
    for driver in DRIVERS {
        names.says(1, 7);
        let lines = format!("driver = {driver}\nworkers = 2\nresolv_conf = {}", file.display());
        let databases = format!("* = host=db port={}", cluster.port());
        let weir = Weir::start_with(&databases, "\"postgres\" \"postgres\"\n", &lines);
        weir.client().simple_query("select 1").unwrap();
        assert_eq!(connected(&weir), ["127.0.0.1"]);
        // One is in a transaction. It stays where it is until that is over; whoever comes goes where the name leads.
        let mut busy = weir.client();
        busy.batch_execute("begin; create temporary table t (a int)").unwrap();
        names.says(2, 7);
        std::thread::sleep(Duration::from_millis(1100));
        let mut other = weir.client();
        other.simple_query("select 1").unwrap();
        let mut addresses = connected(&weir);
        addresses.sort();
        assert_eq!(addresses, ["127.0.0.1", "127.0.0.2"]);
        busy.batch_execute("insert into t values (1); rollback").unwrap();
        wait_until("the server at the old address is closed", || connected(&weir) == ["127.0.0.2"]);
        wait_until("it is said", || weir.log().contains("closing because: obsolete connection"));
        // A name server that is down leaves things as they are; it is not needed to come in.
        names.is_down();
        std::thread::sleep(Duration::from_millis(1100));
        let mut both = [weir.client(), weir.client()];
        both.iter_mut().for_each(|client| client.batch_execute("begin").unwrap());
        both.iter_mut().for_each(|client| client.batch_execute("rollback").unwrap());
        assert_eq!(connected(&weir), ["127.0.0.2", "127.0.0.2"]);
    }
}

#[test]
fn a_zone_s_serial_number_tells_that_names_lead_elsewhere() {
    let Some(names) = NameServer::start() else { return };
    let cluster = cluster();
    let (_folder, file) = names.file("");
    names.says(1, 7);
    let lines = format!("resolv_conf = {}\ndns_max_ttl = 3600\ndns_zone_check_period = 0.1", file.display());
    let databases = format!("* = host=db.weir.test port={}", cluster.port());
    let weir = Weir::start_with(&databases, "\"postgres\" \"postgres\"\n", &lines);
    weir.client().simple_query("select 1").unwrap();
    let zones =
        || format!("{:?}", weir.try_client("dbname=pgbouncer").unwrap().simple_query("show dns_zones").unwrap());
    wait_until("the zone is known", || {
        zones().contains("weir.test") && zones().contains("\"7\"") || zones().contains("7")
    });
    names.says(2, 8);
    wait_until("the server is closed", || connected(&weir).is_empty());
    wait_until("it is said", || weir.log().contains("zone 'weir.test' serial changed: old=7 new=8"));
    weir.client().simple_query("select 1").unwrap();
    assert_eq!(connected(&weir), ["127.0.0.2"]);
}
