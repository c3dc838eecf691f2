//! `metrics_listen_addr`: what Prometheus and Kubernetes ask, and what whoever else comes there can do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::bench::{DRIVERS, Weir, shared, wait_until};
use super::ports::free_port;

/// Weir with metrics, and their port.
fn start(lines: &str) -> (Weir, u16) {
    let port = free_port();
    let weir = Weir::start(shared(), &format!("metrics_listen_addr = 127.0.0.1\nmetrics_port = {port}\n{lines}"));
    (weir, port)
}

/// All that comes for these bytes.
fn exchange(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // Where it is closed with bytes unread, the system says so.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// Status and body.
fn get(port: u16, path: &str) -> (u16, String) {
    let answer = exchange(port, format!("GET {path} HTTP/1.1\r\nHost: weir\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The value of a sample.
fn value(page: &str, sample: &str) -> f64 {
    let lines = page.lines().filter_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    let values: Vec<f64> = lines.map(|value| value.parse().unwrap()).collect();
    let [value] = values[..] else { panic!("{sample} is there {} times in\n{page}", values.len()) };
    value
}

/// Version 0.0.4: each metric is described once, and its samples stand together behind that.
fn check_format(page: &str) {
    let mut known = std::collections::BTreeSet::new();
    let mut name = "";
    for line in page.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (described, kind) = described.split_once(' ').unwrap();
            assert!(known.insert(described), "{described} is described twice");
            let ending = if kind == "counter" { "_total" } else { "" };
            assert!(matches!(kind, "gauge" | "counter" | "histogram") && described.ends_with(ending), "{line}");
            name = described;
        } else if !line.starts_with("# HELP ") {
            let end = line.find(['{', ' ']).unwrap();
            let part = line[..end].strip_prefix(name).unwrap_or_else(|| panic!("{line}, behind {name}"));
            assert!(matches!(part, "" | "_bucket" | "_sum" | "_count"), "{line}");
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        }
    }
    assert!(page.ends_with('\n') && known.len() > 40, "{} metrics", known.len());
}

#[test]
fn metrics_are_what_the_console_counts() {
    for driver in DRIVERS {
        // A console of its own needs no place among the clients, nor a name in the files.
        let limits = "max_client_conn = 1\nmax_db_client_connections = 1\nadmin_users =\nstats_users = postgres\n";
        let (weir, port) = start(&format!("driver = {driver}\n{limits}"));
        let mut client = weir.client();
        let _whoever_else_looks = weir.try_client("dbname=pgbouncer").unwrap();
        for _ in 0..10 {
            client.simple_query("select 1").unwrap();
        }
        client.batch_execute("begin").unwrap();
        let (status, page) = get(port, "/metrics");
        assert_eq!(status, 200, "{page}");
        check_format(&page);
        let pool = "{database=\"postgres\",user=\"postgres\"}";
        assert_eq!(value(&page, &format!("pgbouncer_pools_server_active_connections{pool}")), 1.0);
        assert_eq!(value(&page, &format!("pgbouncer_pools_client_active_connections{pool}")), 1.0);
        let queries = "pgbouncer_stats_totals_queries_pooled_total{database=\"postgres\"}";
        let before = value(&page, queries);
        assert!(before >= 10.0, "{before}");
        assert_eq!(value(&page, "pgbouncer_up"), 1.0);
        assert_eq!(value(&page, "pgbouncer_config_max_client_connections"), 1.0);
        client.batch_execute("commit").unwrap();
        let (_, page) = get(port, "/metrics");
        // BEGIN was counted when it was answered, or with COMMIT.
        assert!(value(&page, queries) > before);
        assert_eq!(value(&page, &format!("pgbouncer_pools_server_active_connections{pool}")), 0.0);
        drop(weir);
        TcpStream::connect(("127.0.0.1", port)).unwrap_err();
    }
}

#[test]
fn a_star_is_every_address() {
    let port = free_port();
    let _weir = Weir::start(shared(), &format!("metrics_listen_addr = *\nmetrics_port = {port}"));
    assert_eq!(get(port, "/healthz").0, 200);
    // Where the machine has the other kind of addresses.
    if TcpStream::connect(("::1", port)).is_err() {
        std::net::TcpListener::bind(("::1", 0)).unwrap_err();
    }
}

#[test]
fn what_keeps_a_server_is_counted_by_kind() {
    let (weir, port) = start("");
    let sample = "weir_pins_total{database=\"postgres\",state=\"temporary_objects\"}";
    let mut client = weir.client();
    client.batch_execute("create temporary table t (a int)").unwrap();
    wait_until("it is counted", || value(&get(port, "/metrics").1, sample) == 1.0);
}

#[test]
fn one_that_drains_lives_and_is_not_ready() {
    let (weir, port) = start("");
    let mut client = weir.client();
    client.batch_execute("begin").unwrap();
    assert_eq!((get(port, "/healthz").0, get(port, "/readyz").0), (200, 200));
    weir.signal(nix::sys::signal::Signal::SIGTERM);
    wait_until("it drains", || get(port, "/readyz").0 == 503);
    assert_eq!(get(port, "/healthz").0, 200);
    let (status, page) = get(port, "/metrics");
    assert_eq!((status, value(&page, "weir_draining")), (200, 1.0));
    // The connection that asks is no client that is waited for.
    client.batch_execute("commit").unwrap();
    drop(client);
    wait_until("it has ended", || TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn whoever_comes_there_gets_an_answer_or_is_closed() {
    let (weir, port) = start("");
    let slow: Vec<_> = (0..80).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    // As many as are answered at a time say nothing; the others are told so at once.
    assert!(exchange(port, b"GET /metrics HTTP/1.1\r\n\r\n").contains(" 503 "));
    drop(slow);
    wait_until("their places are free", || get_status(port, b"GET /healthz HTTP/1.1\r\n\r\n") == "200");
    assert_eq!(get_status(port, b"GET /nothing HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(get_status(port, b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), "405");
    assert_eq!(get_status(port, b"\x00\x00\x00\x08\x04\xd2\x16\x2f"), "400");
    let head = exchange(port, b"HEAD /healthz HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    let mut long = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
    long.resize(1024 * 1024, b'x');
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // It is closed before all of it is taken.
    let _ = stream.write_all(&long);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(get_status(port, b"GET /metrics HTTP/1.1\r\n\r\n"), "200");
    weir.client().batch_execute("select 1").unwrap();
}

/// Many that ask for a long page and take nothing of it, or little by little.
#[test]
fn who_reads_slowly_keeps_no_probe_waiting() {
    let databases: String = (0..400).map(|number| format!("a_database_of_many_{number} = host=127.0.0.1\n")).collect();
    let port = free_port();
    let lines = format!("metrics_listen_addr = 127.0.0.1\nmetrics_port = {port}\n");
    let _weir = Weir::start_with(&databases, "\"postgres\" \"postgres\"\n", &lines);
    let ask = |_| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        // As on a network: over loopback the other end would buffer all of it.
        socket.set_tcp_mss(536).unwrap();
        socket.connect(&std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        stream
    };
    let mut slow: Vec<_> = (0..30).map(ask).collect();
    let begun = std::time::Instant::now();
    wait_until("the places are free again", || {
        for stream in &mut slow {
            let _ = stream.read(&mut [0; 16]);
        }
        assert_eq!(get_status(port, b"GET /healthz HTTP/1.1\r\n\r\n"), "200");
        assert_eq!(get_status(port, b"GET /readyz HTTP/1.1\r\n\r\n"), "200");
        begun.elapsed() > Duration::from_secs(1) && get(port, "/metrics").0 == 200
    });
}

fn get_status(port: u16, bytes: &[u8]) -> String {
    exchange(port, bytes).split(' ').nth(1).unwrap_or_default().to_owned()
}

/// What no counter of PgBouncer's tells.
#[test]
fn times_logins_and_errors_are_counted() {
    let (weir, port) = start("workers = 2");
    for _ in 0..3 {
        let mut client = weir.client();
        client.batch_execute("select pg_sleep(0.2)").unwrap();
        client.batch_execute("begin; select 1").unwrap();
        client.batch_execute("commit").unwrap();
        // It hears of the error ahead of ReadyForQuery: what it asked next might go to the server that it has still.
        client.batch_execute("select 1/0").unwrap_err();
    }
    let refused = weir.try_client("dbname=postgres user=stranger").err().unwrap();
    assert_eq!(refused.code(), Some(&postgres::error::SqlState::INVALID_PASSWORD));
    let (_, page) = get(port, "/metrics");
    check_format(&page);
    let of =
        |metric: &str, more: &str| value(&page, &format!("{metric}{{database=\"postgres\",user=\"postgres\"{more}}}"));
    let (query, transaction) = ("weir_query_duration_seconds", "weir_transaction_duration_seconds");
    assert_eq!(of(&format!("{query}_count"), ""), 12.0);
    assert_eq!(of(&format!("{transaction}_count"), ""), 9.0);
    assert_eq!(of(&format!("{query}_bucket"), ",le=\"+Inf\""), 12.0);
    assert!(of(&format!("{query}_bucket"), ",le=\"0.131072\"") <= 9.0);
    assert!((0.6..).contains(&of(&format!("{query}_sum"), "")));
    assert_eq!(of("weir_client_wait_duration_seconds_count", ""), 9.0);
    assert_eq!(of("weir_client_logins_total", ""), 3.0);
    assert!(of("weir_server_logins_total", "") >= 1.0);
    assert_eq!(of("weir_server_logins_failed_total", ""), 0.0);
    assert_eq!(value(&page, "weir_errors_total{source=\"postgresql\",sqlstate=\"22012\"}"), 3.0);
    assert_eq!(value(&page, "weir_errors_total{source=\"weir\",sqlstate=\"28P01\"}"), 1.0);
}

#[test]
fn a_connection_to_the_console_that_was_closed_is_made_again() {
    let (weir, port) = start("");
    assert_eq!(get(port, "/metrics").0, 200);
    let mut admin = weir.try_client("dbname=pgbouncer").unwrap();
    let own = admin.simple_query("show clients").unwrap().into_iter().find_map(|message| match message {
        postgres::SimpleQueryMessage::Row(row) => {
            (row.get("user") == Some("pgbouncer")).then(|| row.get("id").unwrap().to_owned())
        }
        _ => None,
    });
    admin.simple_query(&format!("kill_client {}", own.unwrap())).unwrap();
    assert_eq!(get(port, "/metrics").0, 200);
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let (_weir, port) = start("");
    let (_, page) = get(port, "/metrics");
    let dashboard = include_str!("../../../../packaging/grafana/weir.json");
    let words = dashboard.split(|byte: char| !(byte.is_ascii_alphanumeric() || byte == '_'));
    let names: std::collections::BTreeSet<_> =
        words.filter(|word| word.starts_with("pgbouncer_") || word.starts_with("weir_")).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(page.contains(&format!("# TYPE {name} ")), "{name}");
    }
}
