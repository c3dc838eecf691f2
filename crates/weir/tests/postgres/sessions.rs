//! What each client has for itself, though it shares its servers.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use postgres::NoTls;
use postgres::error::SqlState;

use weir_core::contract::LINGER;
use weir_wire::{BackendTag, ProtocolVersion, write};

use super::bench::{DRIVERS, Raw, Weir, at_once, cluster, shared, wait_until};
use super::parameters::definition;

/// The core of it, on every supported PostgreSQL and both drivers: many clients, two servers.
#[test]
fn clients_share_servers_on_every_version() {
    for major in 14..=18 {
        let cluster = cluster(major);
        for driver in DRIVERS {
            let weir =
                std::sync::Arc::new(Weir::start(cluster.port(), &format!("driver = {driver}\ndefault_pool_size = 2")));
            let clients = std::sync::Arc::clone(&weir);
            at_once(8, move |number| {
                let mut client = clients.client();
                let statement = client.prepare("select $1::int4 + 1000 * $2::int4").unwrap();
                for round in 0..20 {
                    let mut transaction = client.transaction().unwrap();
                    let got: i32 = transaction.query_one(&statement, &[&(number as i32), &round]).unwrap().get(0);
                    assert_eq!(got, number as i32 + 1000 * round);
                    transaction.commit().unwrap();
                    let error = client.batch_execute("select 1/0").unwrap_err();
                    assert_eq!(error.code(), Some(&SqlState::DIVISION_BY_ZERO));
                }
            });
            let servers = weir.client().query_one(
                "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()",
                &[],
            );
            assert!(servers.unwrap().get::<_, i64>(0) <= 1, "PostgreSQL {major}, {driver}");
        }
    }
}

#[test]
fn parameters_are_each_clients_own() {
    let weir = Weir::start(shared(), "default_pool_size = 1");
    let show = |client: &mut postgres::Client, name: &str| -> String {
        client.query_one(&format!("select current_setting('{name}')"), &[]).unwrap().get(0)
    };
    let mut one = weir.try_client("dbname=postgres application_name=one options='-c statement_timeout=7s'").unwrap();
    let mut two = weir.try_client("dbname=postgres application_name=two").unwrap();
    for _ in 0..3 {
        assert_eq!(show(&mut one, "application_name"), "one");
        assert_eq!(show(&mut one, "statement_timeout"), "7s");
        assert_eq!(show(&mut two, "application_name"), "two");
        assert_eq!(show(&mut two, "statement_timeout"), "0");
    }
    one.batch_execute("set timezone = 'Asia/Tokyo'").unwrap();
    let zone = show(&mut two, "timezone");
    assert_ne!(zone, "Asia/Tokyo");
    assert_eq!(show(&mut one, "timezone"), "Asia/Tokyo");
    let refused = weir.try_client("dbname=postgres options='-c statement_timeout=nonsense'").err().unwrap();
    assert_eq!(refused.code(), Some(&SqlState::INVALID_PARAMETER_VALUE));
}

#[test]
fn a_vanished_client_leaves_no_trace() {
    for driver in DRIVERS {
        let weir = Weir::start(shared(), &format!("driver = {driver}\ndefault_pool_size = 1"));
        let mut raw = weir.raw();
        raw.log_in();
        raw.send(|out| weir_wire::write::query(out, b"begin; set local work_mem = '77MB'; select pg_sleep(30)"));
        std::thread::sleep(Duration::from_millis(100));
        // A reset: an orderly end could be that of a client that still reads.
        socket2::SockRef::from(&raw.0).set_linger(Some(Duration::ZERO)).unwrap();
        drop(raw);
        let mut next = weir.client();
        let row = next.query_one("select current_setting('work_mem'), pg_current_xact_id_if_assigned()::text", &[]);
        assert_ne!(row.unwrap().get::<_, String>(0), "77MB");
    }
}

/// A cancel hits its own query, or none: the others on the same servers never notice.
#[test]
fn a_cancel_hits_nobody_else() {
    for driver in DRIVERS {
        let weir = std::sync::Arc::new(Weir::start(
            shared(),
            &format!("driver = {driver}\ndefault_pool_size = 2\nworkers = 2"),
        ));
        let clients = std::sync::Arc::clone(&weir);
        at_once(6, move |number| {
            let mut client = clients.client();
            for round in 0..40 {
                if number % 2 == 0 {
                    client.batch_execute("select pg_sleep(0.003)").unwrap();
                } else {
                    let token = client.cancel_token();
                    let canceller = std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(round % 7));
                        token.cancel_query(NoTls)
                    });
                    if let Err(error) = client.batch_execute("select pg_sleep(0.004)") {
                        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
                    }
                    canceller.join().unwrap().unwrap();
                }
            }
        });
    }
}

#[test]
fn scram_keys_pass_through_to_the_server() {
    let mut direct = postgres::Client::connect(
        &format!("host=127.0.0.1 port={} user=postgres password=postgres dbname=postgres", shared()),
        NoTls,
    )
    .unwrap();
    direct.batch_execute("drop role if exists weir_scram; create role weir_scram login password 'se cret'").unwrap();
    let verifier: String =
        direct.query_one("select rolpassword from pg_authid where rolname = 'weir_scram'", &[]).unwrap().get(0);
    let weir = Weir::start_with(
        &format!("* = host=127.0.0.1 port={}", shared()),
        &format!("\"weir_scram\" \"{verifier}\"\n"),
        "auth_type = scram-sha-256",
    );
    let connect = |user: &str, password: &str| {
        postgres::Client::connect(
            &format!("host=127.0.0.1 port={} user={user} password='{password}' dbname=postgres", weir.port),
            NoTls,
        )
    };
    let mut client = connect("weir_scram", "se cret").unwrap();
    assert_eq!(client.query_one("select current_user::text", &[]).unwrap().get::<_, String>(0), "weir_scram");
    let wrong = connect("weir_scram", "wrong").err().unwrap();
    let unknown = connect("weir_nobody", "wrong").err().unwrap();
    assert_eq!(wrong.code(), Some(&SqlState::INVALID_PASSWORD));
    let text = |error: &postgres::Error| error.as_db_error().unwrap().message().replace("weir_scram", "weir_nobody");
    assert_eq!((text(&wrong), wrong.code()), (text(&unknown), unknown.code()));
}

#[test]
fn the_console_answers_over_both_protocols() {
    let weir = Weir::start(shared(), "default_pool_size = 3");
    weir.client().batch_execute("select 1").unwrap();
    let mut console = weir.try_client("dbname=pgbouncer").unwrap();
    let simple = console.simple_query("show pools").unwrap();
    assert!(simple.len() >= 2);
    let rows = console.query("show pools", &[]).unwrap();
    let names: Vec<_> = rows[0].columns().iter().map(|column| column.name().to_owned()).collect();
    assert_eq!(
        names.join(" "),
        "database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req sv_active sv_active_cancel \
         sv_being_canceled sv_idle sv_used sv_tested sv_login maxwait maxwait_us pool_mode load_balance_hosts"
    );
    let idle = |rows: &[postgres::Row]| {
        let pool = rows.iter().find(|row| row.get::<_, String>("database") == "postgres");
        pool.map(|row| row.get::<_, i32>("sv_idle"))
    };
    assert_eq!(idle(&rows), Some(1));
    for show in ["clients", "servers", "databases", "stats", "lists", "config", "version", "users", "state"] {
        console.simple_query(&format!("SHOW {show};")).unwrap();
    }
    console.simple_query("PAUSE").unwrap();
    assert_eq!(idle(&console.query("show pools", &[]).unwrap()), Some(0));
    let port = weir.port;
    let waiting = std::thread::spawn(move || {
        let url = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        postgres::Client::connect(&url, NoTls).unwrap().query_one("select 42", &[]).unwrap().get::<_, i32>(0)
    });
    std::thread::sleep(Duration::from_millis(200));
    console.simple_query("RESUME").unwrap();
    assert_eq!(waiting.join().unwrap(), 42);
    console.simple_query("RELOAD").unwrap();
    let error = console.simple_query("nonsense").unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::PROTOCOL_VIOLATION));
}

/// As PostgreSQL serves such a client: `printf ... | nc -N` is one.
#[test]
fn what_a_client_sent_before_it_ended_is_done() {
    for driver in DRIVERS {
        let weir = Weir::start(shared(), &format!("driver = {driver}\ndefault_pool_size = 2"));
        let mut other = weir.client();
        other.batch_execute("drop table if exists ended; create table ended (number int)").unwrap();
        let mut raw = weir.raw();
        raw.log_in();
        raw.send(|out| write::query(out, b"insert into ended select 1 from pg_sleep(0.3)"));
        raw.send(|out| write::query(out, b"insert into ended values (2) returning 'the last'"));
        raw.0.shutdown(Shutdown::Write).unwrap();
        raw.read_until(BackendTag::ReadyForQuery);
        let last = raw.read_until(BackendTag::ReadyForQuery);
        assert!(last.iter().any(|(_, body)| body.ends_with(b"the last")), "{last:?}");
        assert_eq!(raw.message(), None);
        // One that is gone altogether looks the same until it is answered.
        let mut raw = weir.raw();
        raw.log_in();
        raw.send(|out| write::query(out, b"insert into ended select 3 from pg_sleep(0.3)"));
        drop(raw);
        let count = |client: &mut postgres::Client| -> i64 {
            client.query_one("select count(*) from ended", &[]).unwrap().get(0)
        };
        wait_until("the third row", || count(&mut other) == 3);
        // An open transaction is not committed by leaving.
        let mut raw = weir.raw();
        raw.log_in();
        raw.send(|out| write::query(out, b"begin"));
        raw.send(|out| write::query(out, b"insert into ended values (4)"));
        raw.0.shutdown(Shutdown::Write).unwrap();
        assert_eq!(raw.last_error(), "");
        assert_eq!(count(&mut other), 3);
        other.batch_execute("drop table ended").unwrap();
    }
}

/// However slowly it takes what it has asked for: `LINGER` is how long it may take nothing.
#[test]
fn who_has_ended_and_reads_slowly_gets_all() {
    std::thread::scope(|scope| {
        for driver in DRIVERS {
            scope.spawn(move || {
                // About half of the answer waits in Weir itself.
                let weir = Weir::start(shared(), &format!("driver = {driver}\ntcp_socket_buffer = 16384"));
                let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
                socket.set_recv_buffer_size(4096).unwrap();
                socket.connect(&SocketAddr::from(([127, 0, 0, 1], weir.port)).into()).unwrap();
                let mut raw = Raw(TcpStream::from(socket));
                raw.log_in();
                raw.send(|out| write::query(out, b"select repeat('x', 1000) from generate_series(1, 80)"));
                raw.0.shutdown(Shutdown::Write).unwrap();
                let began = Instant::now();
                let (mut rows, mut ended) = (0, false);
                while let Some((tag, _)) = raw.message() {
                    match BackendTag::from_byte(tag) {
                        Some(BackendTag::DataRow) => rows += 1,
                        Some(BackendTag::ReadyForQuery) => ended = true,
                        _ => {}
                    }
                    if began.elapsed() < Duration::from_micros(LINGER.0) + Duration::from_secs(2) {
                        std::thread::sleep(Duration::from_millis(400));
                    }
                }
                assert_eq!((rows, ended), (80, true), "{driver}");
            });
        }
    });
}

/// Also where the answer is long, comes from several workers, and is not taken at once.
#[test]
fn a_console_that_has_ended_is_closed_behind_its_answer() {
    let weir = Weir::start(shared(), "workers = 2\nmax_client_conn = 1000");
    let mut crowd: Vec<_> = (0..500).map(|_| weir.raw()).collect();
    crowd.iter_mut().for_each(Raw::ask_in);
    crowd.iter_mut().for_each(|raw| drop(raw.read_until(BackendTag::ReadyForQuery)));
    let parameters = [("user", "postgres"), ("database", "pgbouncer")];
    for _ in 0..12 {
        let mut console = weir.raw();
        console.send(|out| write::startup(out, ProtocolVersion::V3_0, &parameters));
        console.read_until(BackendTag::ReadyForQuery);
        console.send(|out| write::query(out, b"show clients"));
        console.0.shutdown(Shutdown::Write).unwrap();
        let rows = console.read_until(BackendTag::ReadyForQuery);
        assert!(rows.iter().filter(|(tag, _)| *tag == BackendTag::DataRow as u8).count() > 500);
        assert_eq!(console.message(), None);
    }
}

/// As PHP's PDO does it, in a transaction too: else each such transaction would fail.
#[test]
fn what_was_prepared_by_the_protocol_is_deallocated_by_sql() {
    let weir = Weir::start(shared(), "default_pool_size = 1");
    let mut raw = weir.raw();
    raw.log_in();
    let mut asks = |write: &mut dyn FnMut(&mut Vec<u8>)| -> String {
        raw.send(|out| write(out));
        raw.read_until(BackendTag::ReadyForQuery).iter().map(|(tag, _)| char::from(*tag)).collect()
    };
    for around in [["select", "select"], ["begin", "commit"]] {
        asks(&mut |out| write::query(out, around[0].as_bytes()));
        let prepares: &mut dyn FnMut(&mut Vec<u8>) = &mut |out| {
            write::parse(out, b"pdo_stmt_1", &definition("select 1"));
            write::sync(out);
        };
        assert_eq!(asks(prepares), "1Z");
        assert_eq!(asks(&mut |out| write::query(out, b"DEALLOCATE pdo_stmt_1")), "CZ");
        assert_eq!(asks(prepares), "1Z", "the name is free");
        assert_eq!(asks(&mut |out| write::query(out, b"deallocate prepare \"pdo_stmt_1\";")), "CZ");
        asks(&mut |out| write::query(out, around[1].as_bytes()));
        let uses: &mut dyn FnMut(&mut Vec<u8>) = &mut |out| {
            write::bind_without_values(out, b"", b"pdo_stmt_1");
            write::sync(out);
        };
        assert_eq!(asks(uses), "EZ", "and leads to nothing");
    }
}

/// However the client closes its statements by SQL, no server gets them again behind that.
#[test]
fn what_was_deallocated_is_not_carried_out() {
    type Write = fn(&mut Vec<u8>);
    const ALL: &str = "/* so */ deallocate all";
    fn run(out: &mut Vec<u8>, portal: &[u8], statement: &[u8]) {
        write::bind_without_values(out, portal, statement);
        write::execute(out, portal);
    }
    fn closes(out: &mut Vec<u8>, text: &str, portal: &[u8]) {
        write::parse(out, b"", &definition(text));
        run(out, portal, b"");
    }
    let ways: [(&str, Write); 8] = [
        ("in a portal with a name", |out| run(out, b"q", b"d")),
        ("unnamed, in a portal with a name", |out| closes(out, ALL, b"q")),
        ("behind a comment", |out| closes(out, ALL, b"")),
        ("behind another comment", |out| closes(out, "--x\ndiscard all", b"")),
        ("of another name", |out| closes(out, " deallocate a", b"")),
        ("in a simple query", |out| write::query(out, b" deallocate all")),
        ("behind another statement", |out| write::query(out, b"select 1; deallocate all")),
        ("behind a comment, in a simple query", |out| write::query(out, ALL.as_bytes())),
    ];
    for other_server in [false, true] {
        let weir = Weir::start(shared(), "default_pool_size = 2");
        let mut other = weir.client();
        other.batch_execute("create table if not exists what_was_deallocated (way text)").unwrap();
        for (way, close) in ways {
            let mut raw = weir.raw();
            raw.log_in();
            raw.send(|out| {
                write::parse(out, b"a", &definition(&format!("insert into what_was_deallocated values ('{way}')")));
                write::parse(out, b"d", &definition("deallocate all"));
                write::sync(out);
            });
            raw.read_until(BackendTag::ReadyForQuery);
            let transaction = other_server.then(|| {
                let mut transaction = other.transaction().unwrap();
                transaction.batch_execute("select").unwrap();
                transaction
            });
            raw.send(|out| {
                close(out);
                run(out, b"", b"a");
                write::sync(out);
            });
            let mut answers = raw.read_until(BackendTag::ReadyForQuery);
            if way.contains("query") || way.contains("another statement") {
                answers = raw.read_until(BackendTag::ReadyForQuery);
            }
            let error = answers.iter().find(|(tag, _)| *tag == BackendTag::ErrorResponse as u8);
            let (_, body) = error.unwrap_or_else(|| panic!("{way}: {answers:?}"));
            let fields = weir_wire::backend::ErrorFields::parse(body).unwrap();
            assert_eq!(fields.code, b"26000", "{way}");
            assert_eq!(String::from_utf8_lossy(fields.message), "prepared statement \"a\" does not exist", "{way}");
            drop(transaction);
        }
        let rows: Vec<String> =
            other.query("select way from what_was_deallocated", &[]).unwrap().iter().map(|row| row.get(0)).collect();
        assert!(rows.is_empty(), "{rows:?}");
        other.batch_execute("drop table what_was_deallocated").unwrap();
    }
}

/// PostgreSQL's own limits on time, of one client's startup packet, are nobody else's.
#[test]
fn no_time_limit_ends_another_clients_session() {
    let weir = Weir::start(shared(), "default_pool_size = 1");
    let mut other = weir.client();
    for limit in ["idle_session_timeout=1", "statement_timeout=1", "transaction_timeout=1"] {
        let options = format!("dbname=postgres options='-c {limit}'");
        for _ in 0..100 {
            // Its own session may end any time.
            if let Ok(mut one) = weir.try_client(&options) {
                let _ = one.batch_execute("select 1");
                other.batch_execute("select 1").unwrap();
                let _ = one.batch_execute("begin; select 1; commit");
            }
            other.batch_execute("select 1").unwrap();
        }
    }
}
