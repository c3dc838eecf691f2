//! A new process takes the place of one that runs (`-R`), and its clients notice nothing.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use weir_wire::{BackendTag, write};

use super::bench::{DRIVERS, Raw, Weir, open_to_all, shared, wait_until};
use super::tls;

/// A Weir with a Unix socket and a pidfile, and the folder of those.
fn weir(lines: &str) -> (Weir, tempfile::TempDir) {
    let folder = tempfile::Builder::new().prefix("weir-socket").tempdir().unwrap();
    open_to_all(folder.path());
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let at = folder.path().display();
    let weir = Weir::start(shared(), &format!("unix_socket_dir = {at}\npidfile = {at}/weir.pid\n{lines}"));
    let takeover = socket(&weir, folder.path()).with_extension(format!("{}.takeover", weir.port));
    wait_until("it can be taken over from", || takeover.exists());
    (weir, folder)
}

fn socket(weir: &Weir, folder: &Path) -> PathBuf {
    folder.join(format!(".s.PGSQL.{}", weir.port))
}

fn pid_in(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("weir.pid")).unwrap_or_default().trim().to_owned()
}

fn query(raw: &mut Raw, text: &str) -> String {
    raw.send(|out| write::query(out, text.as_bytes()));
    let messages = raw.read_until(BackendTag::ReadyForQuery);
    let row = messages.iter().find(|(tag, _)| *tag == BackendTag::DataRow as u8);
    row.map(|(_, body)| String::from_utf8_lossy(&body[6..]).into_owned()).unwrap_or_default()
}

#[test]
fn who_is_in_a_transaction_ends_it_and_who_comes_finds_the_new_process() {
    for driver in DRIVERS {
        let (mut old, folder) = weir(&format!("driver = {driver}\nworkers = 2"));
        let mut staying = old.raw();
        staying.log_in();
        query(&mut staying, "begin");
        assert_eq!(pid_in(folder.path()), old.pid().to_string());
        let mut new = old.successor();
        wait_until("the pidfile is the new process's", || pid_in(folder.path()) == new.pid().to_string());
        new.client().simple_query("select 1").unwrap();
        UnixStream::connect(socket(&new, folder.path())).unwrap();
        assert_eq!(query(&mut staying, "select 'still here'"), "still here");
        assert!(!old.has_ended());
        query(&mut staying, "commit");
        drop(staying);
        wait_until("the old one ends", || old.has_ended());
        // It has taken nothing with it.
        new.client().simple_query("select 1").unwrap();
        UnixStream::connect(socket(&new, folder.path())).unwrap();
        assert_eq!(pid_in(folder.path()), new.pid().to_string());
        let next = new.successor();
        wait_until("the one in between ends", || new.has_ended());
        next.client().simple_query("select 1").unwrap();
    }
}

#[test]
fn a_cancel_request_finds_whom_the_old_process_still_serves() {
    for driver in DRIVERS {
        let (mut old, _folder) = weir(&format!("driver = {driver}\nworkers = 2"));
        let client = std::sync::Arc::new(std::sync::Mutex::new(old.client()));
        let cancel = client.lock().unwrap().cancel_token();
        let running = std::thread::spawn(move || {
            let error = client.lock().unwrap().simple_query("select pg_sleep(60)").unwrap_err();
            error.code().cloned()
        });
        std::thread::sleep(Duration::from_millis(200));
        let new = old.successor();
        let mut other = new.raw();
        other.log_in();
        other.send(|out| write::query(out, b"select pg_sleep(1), 'undisturbed'"));
        std::thread::sleep(Duration::from_millis(200));
        cancel.cancel_query(postgres::NoTls).unwrap();
        assert_eq!(running.join().unwrap(), Some(postgres::error::SqlState::QUERY_CANCELED));
        let messages = other.read_until(BackendTag::ReadyForQuery);
        assert!(messages.iter().all(|(tag, _)| *tag != BackendTag::ErrorResponse as u8));
        wait_until("the old one ends", || old.has_ended());
    }
}

/// Where the new process cannot start, nothing has happened.
#[test]
fn the_old_process_goes_on_where_the_new_one_fails() {
    let (old, folder) = weir("");
    let mut staying = old.raw();
    staying.log_in();
    let before = old.log().len();
    old.write_line("metrics_listen_addr = 192.0.2.1\nmetrics_port = 1");
    let mut new = old.start_successor();
    wait_until("the new one fails", || new.has_ended());
    wait_until("the old one says so", || old.log()[before..].contains("the process that was to take over has failed"));
    assert_eq!(query(&mut staying, "select 1"), "1");
    old.client().simple_query("select 1").unwrap();
    assert_eq!(pid_in(folder.path()), old.pid().to_string());
    UnixStream::connect(socket(&old, folder.path())).unwrap();
}

/// Nothing of what a session has between two transactions is another's, or gone.
#[test]
fn clients_go_over_with_all_that_their_sessions_hold() {
    for driver in DRIVERS {
        let (mut old, _folder) = weir(&format!("driver = {driver}\nworkers = 2\ndefault_pool_size = 2"));
        let mut clients: Vec<_> = (0..20)
            .map(|number| {
                let mut client = old.try_client(&format!("dbname=postgres application_name=client{number}")).unwrap();
                client.batch_execute(&format!("set timezone = 'Etc/GMT+{}'", number % 12)).unwrap();
                let statement =
                    client.prepare(&format!("select $1::int + {number}, current_setting('timezone')")).unwrap();
                assert_eq!(client.query_one(&statement, &[&1]).unwrap().get::<_, i32>(0), 1 + number);
                (client, statement)
            })
            .collect();
        let mut silent = old.raw();
        silent.log_in();
        let new = old.successor();
        wait_until("the old one ends", || old.has_ended());
        for round in 0..2 {
            for (number, (client, statement)) in (0..).zip(&mut clients) {
                let row = client.query_one(&*statement, &[&round]).unwrap();
                assert_eq!(row.get::<_, i32>(0), round + number);
                assert_eq!(row.get::<_, String>(1), format!("Etc/GMT+{}", number % 12));
                let name = client.query_one("select current_setting('application_name')", &[]).unwrap();
                assert_eq!(name.get::<_, String>(0), format!("client{number}"));
            }
        }
        assert_eq!(query(&mut silent, "select 'and here'"), "and here");
        assert!(new.log().contains(" has nobody left: 21 of its clients came over"), "{}", new.log());
        // It is cancelled by what the old process told it.
        let (mut client, _) = clients.remove(0);
        let cancel = client.cancel_token();
        let running =
            std::thread::spawn(move || client.simple_query("select pg_sleep(60)").unwrap_err().code().cloned());
        std::thread::sleep(Duration::from_millis(200));
        cancel.cancel_query(postgres::NoTls).unwrap();
        assert_eq!(running.join().unwrap(), Some(postgres::error::SqlState::QUERY_CANCELED));
    }
}

/// Clients that work on and on meanwhile hear no error and lose nothing.
#[test]
fn clients_that_work_notice_nothing() {
    for driver in DRIVERS {
        let (mut weir, _folder) = weir(&format!("driver = {driver}\nworkers = 2\ndefault_pool_size = 3"));
        let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let workers: Vec<_> = (0..12)
            .map(|number: i32| {
                let (mut client, is_over) = (weir.client(), is_over.clone());
                std::thread::spawn(move || {
                    let statement = client.prepare("select $1::int + $2::int").unwrap();
                    let mut count = 0;
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        let mut transaction = client.transaction().unwrap();
                        let sum: i32 = transaction.query_one(&statement, &[&number, &count]).unwrap().get(0);
                        assert_eq!(sum, number + count);
                        if count % 7 == 0 {
                            transaction.query_one("select pg_sleep(0.02)", &[]).unwrap();
                        }
                        transaction.commit().unwrap();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(200));
            let next = weir.successor();
            wait_until("the old one ends", || weir.has_ended());
            weir = next;
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(workers.into_iter().all(|worker| worker.join().unwrap() > 0));
    }
}

/// `default_pool_size` is one limit for both processes.
#[test]
fn the_new_process_makes_no_server_beyond_what_the_old_one_leaves() {
    for driver in DRIVERS {
        let (mut old, _folder) = weir(&format!("driver = {driver}\nworkers = 2\ndefault_pool_size = 2"));
        let mut staying = [old.raw(), old.raw()];
        for client in &mut staying {
            client.log_in();
            query(client, "begin");
        }
        let new = old.successor();
        let mut coming = new.raw();
        coming.0.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        coming.ask_in();
        let mut byte = [0];
        let read = std::io::Read::read(&mut coming.0, &mut byte);
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "there was a server for it");
        coming.0.set_read_timeout(None).unwrap();
        query(&mut staying[0], "commit");
        coming.read_until(BackendTag::ReadyForQuery);
        assert_eq!(query(&mut coming, "select 'one is free'"), "one is free");
        query(&mut staying[1], "commit");
        wait_until("the old one ends", || old.has_ended());
        for client in &mut staying {
            assert_eq!(query(client, "select 1"), "1");
        }
    }
}

/// TLS's keys stay in the process that has them: it carries on what its clients and the others say, for as long as they are there.
#[test]
fn clients_with_tls_go_over_too() {
    let certificates = tls::certificates();
    let at = certificates.path().display();
    for driver in DRIVERS {
        let (mut old, _folder) = weir(&format!(
            "driver = {driver}\nworkers = 2\nclient_tls_sslmode = require\nclient_tls_cert_file = {at}/server.crt\n\
             client_tls_key_file = {at}/server.key"
        ));
        let mut clients: Vec<_> = (0..5)
            .map(|_| {
                let mut client = tls::connect(&old, certificates.path(), false, false);
                tls::start_session(&mut client);
                tls::read_to_ready(&mut client);
                client
            })
            .collect();
        let mut new = old.successor();
        wait_until("its clients went over", || old.log().contains("carrying TLS on"));
        for client in &mut clients {
            tls::send(client, |out| write::query(out, b"select repeat('x', 1000) from generate_series(1, 3000)"));
            assert!(tls::read_to_ready(client).len() > 3_000_000);
            let long = format!("select length('{}')", "y".repeat(500_000));
            tls::send(client, |out| write::query(out, long.as_bytes()));
            assert!(tls::read_to_ready(client).windows(6).any(|found| found == b"500000"));
        }
        assert!(!old.has_ended());
        // To the next one they are as others are.
        let _next = new.successor();
        wait_until("the one in between ends", || new.has_ended());
        for client in &mut clients {
            tls::send(client, |out| write::query(out, b"select 1"));
            tls::read_to_ready(client);
        }
        drop(clients);
        wait_until("the one with the keys ends", || old.has_ended());
    }
}

/// Whoever is still in the first of three processes comes to the third through the second, which stays for that.
#[test]
fn who_stays_behind_comes_through_all_that_have_taken_over_since() {
    for driver in DRIVERS {
        let (mut first, folder) = weir(&format!("driver = {driver}\nworkers = 2\ndefault_pool_size = 2"));
        let mut staying = first.raw();
        staying.log_in();
        query(&mut staying, "begin");
        let cancelled = std::sync::Arc::new(std::sync::Mutex::new(first.client()));
        let cancel = cancelled.lock().unwrap().cancel_token();
        let running = std::thread::spawn(move || {
            let error = cancelled.lock().unwrap().simple_query("select pg_sleep(60)").unwrap_err();
            error.code().cloned()
        });
        std::thread::sleep(Duration::from_millis(200));
        let mut second = first.successor();
        let third = second.successor();
        wait_until("the pidfile is the third's", || pid_in(folder.path()) == third.pid().to_string());
        // The first has both servers that there may be.
        let mut coming = third.raw();
        coming.0.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        coming.ask_in();
        let mut byte = [0];
        let read = std::io::Read::read(&mut coming.0, &mut byte);
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "there was a server for it");
        cancel.cancel_query(postgres::NoTls).unwrap();
        assert_eq!(running.join().unwrap(), Some(postgres::error::SqlState::QUERY_CANCELED));
        coming.0.set_read_timeout(None).unwrap();
        coming.read_until(BackendTag::ReadyForQuery);
        assert!(!second.has_ended());
        query(&mut staying, "commit");
        wait_until("the first ends", || first.has_ended());
        wait_until("the second ends", || second.has_ended());
        assert_eq!(query(&mut staying, "select 'in the third'"), "in the third");
    }
}

/// Also what a client with TLS has sent last is carried out, though it has said goodbye behind it.
#[test]
fn the_last_words_of_a_client_with_tls_arrive() {
    let certificates = tls::certificates();
    let at = certificates.path().display();
    for driver in DRIVERS {
        let (old, _folder) = weir(&format!(
            "driver = {driver}\nworkers = 2\nclient_tls_sslmode = allow\nclient_tls_cert_file = {at}/server.crt\n\
             client_tls_key_file = {at}/server.key"
        ));
        let mut client = tls::connect(&old, certificates.path(), false, false);
        tls::start_session(&mut client);
        tls::read_to_ready(&mut client);
        let new = old.successor();
        wait_until("it went over", || old.log().contains("carrying TLS on"));
        let table = format!("takeover_{driver}");
        let mut watching = new.client();
        watching.batch_execute(&format!("drop table if exists {table}; create table {table} (text text)")).unwrap();
        let text = "x".repeat(1000);
        tls::send(&mut client, |out| {
            write::query(out, b"select pg_sleep(0.5)");
            for _ in 0..500 {
                write::query(out, format!("insert into {table} values ('{text}')").as_bytes());
            }
            write::terminate(out);
        });
        client.conn.send_close_notify();
        client.flush().unwrap();
        client.sock.shutdown(std::net::Shutdown::Write).unwrap();
        wait_until("all is carried out", || {
            let count = watching.query_one(&format!("select count(*) from {table}"), &[]).unwrap();
            count.get::<_, i64>(0) == 500
        });
        watching.batch_execute(&format!("drop table {table}")).unwrap();
    }
}

/// Clients that a shutdown waits for need not leave, and where it does not wait for them the new process serves its own at once.
#[test]
fn a_process_that_shuts_down_can_be_taken_over_from() {
    for (signal, goes_over) in [(Signal::SIGTERM, true), (Signal::SIGINT, false)] {
        let (mut old, _folder) = weir("workers = 2");
        let mut staying = old.raw();
        staying.log_in();
        query(&mut staying, "begin");
        old.signal(signal);
        let port = old.port;
        wait_until("TCP is closed", || std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
        let new = old.successor();
        new.client().simple_query("select 1").unwrap();
        query(&mut staying, "commit");
        wait_until("the old one ends", || old.has_ended());
        if goes_over {
            assert_eq!(query(&mut staying, "select 'here'"), "here");
        } else {
            assert_eq!(staying.last_error(), "57P01");
        }
    }
}

/// One that fails behind the point of no return: nobody listens any more, and all that are here are served up to their end.
#[test]
fn clients_stay_where_the_new_process_ends_as_it_takes_over() {
    for driver in DRIVERS {
        let (mut old, folder) = weir(&format!("driver = {driver}\nworkers = 2\ndefault_pool_size = 2"));
        let mut clients: Vec<_> = (0..10).map(|_| old.client()).collect();
        let statements: Vec<_> = clients.iter_mut().map(|client| client.prepare("select $1::int").unwrap()).collect();
        // With nobody who stays by himself, too.
        let mut busy = Some(driver).filter(|driver| *driver == "epoll").map(|_| old.raw());
        if let Some(busy) = &mut busy {
            busy.log_in();
            query(busy, "begin");
        }
        let path = socket(&old, folder.path()).with_extension(format!("{}.takeover", old.port));
        let mut new = UnixStream::connect(path).unwrap();
        let say = |mut new: &UnixStream, text: &str| {
            new.write_all(&u32::try_from(text.len()).unwrap().to_be_bytes()).unwrap();
            new.write_all(text.as_bytes()).unwrap();
        };
        say(&new, r#"{"Hello":{"protocol":1,"version":"none","pid":1}}"#);
        let mut length = [0; 4];
        new.read_exact(&mut length).unwrap();
        new.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize]).unwrap();
        say(&new, r#""Listens""#);
        if driver == "epoll" {
            // It has been sent some, and has not said that it has them.
            std::thread::sleep(Duration::from_millis(300));
        }
        drop(new);
        wait_until("that is said", || old.log().contains("the process that takes over has failed"));
        for (client, statement) in clients.iter_mut().zip(&statements) {
            assert_eq!(client.query_one(statement, &[&7]).unwrap().get::<_, i32>(0), 7);
        }
        if let Some(busy) = &mut busy {
            query(busy, "commit");
            assert_eq!(query(busy, "select 'here'"), "here");
        }
        let port = old.port;
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
        drop((clients, busy));
        wait_until("the old one ends", || old.has_ended());
    }
}

/// One that came in before the change, and says whom it is for behind it.
#[test]
fn a_cancel_request_of_before_follows_its_session() {
    for driver in DRIVERS {
        let (old, folder) = weir(&format!("driver = {driver}\nworkers = 2"));
        let mut client = old.raw();
        client.ask_in();
        let greeting = client.read_until(BackendTag::ReadyForQuery);
        let (_, key) = greeting.into_iter().find(|(tag, _)| *tag == BackendTag::BackendKeyData as u8).unwrap();
        let mut cancel = UnixStream::connect(socket(&old, folder.path())).unwrap();
        // It has been accepted.
        cancel.write_all(&16u32.to_be_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let _new = old.successor();
        // The client goes over, and the request keeps the old process.
        std::thread::sleep(Duration::from_millis(500));
        client.send(|out| write::query(out, b"select pg_sleep(60)"));
        std::thread::sleep(Duration::from_millis(300));
        cancel.write_all(&[&80_877_102_u32.to_be_bytes()[..], &key].concat()).unwrap();
        let told = client.read_until(BackendTag::ErrorResponse).pop().unwrap().1;
        assert!(told.windows(5).any(|code| code == b"57014"), "{}", String::from_utf8_lossy(&told));
    }
}

/// Another release may write what this one cannot read: the client stays with the process that wrote it.
#[test]
fn a_client_of_whom_nothing_can_be_read_stays_where_it_is() {
    let (mut old, folder) = weir("");
    let path = socket(&old, folder.path()).with_extension(format!("{}.takeover", old.port));
    old.signal(nix::sys::signal::Signal::SIGQUIT);
    wait_until("the old one ends", || old.has_ended());
    let _ = std::fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let new = old.start_successor();
    let (heard, _) = listener.accept().unwrap();
    heard.set_read_timeout(Some(super::bench::PATIENCE)).unwrap();
    let hear = |mut heard: &UnixStream| {
        let mut length = [0; 4];
        heard.read_exact(&mut length)?;
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        heard.read_exact(&mut text).map(|()| String::from_utf8(text).unwrap())
    };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let say = |text: &str, client: Option<&UnixStream>| {
        let message = [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat();
        let descriptors: Vec<_> = client.map(std::os::fd::AsFd::as_fd).into_iter().collect();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors)));
        }
        let pieces = [std::io::IoSlice::new(&message)];
        let sent = rustix::net::sendmsg(&heard, &pieces, &mut ancillary, rustix::net::SendFlags::empty()).unwrap();
        assert_eq!(sent, message.len());
    };
    assert!(hear(&heard).unwrap().contains("Hello"));
    let secret = serde_json::to_string(&[7_u8; 32]).unwrap();
    let sockets =
        r#"{"Sockets":{"version":"another","pid":1,"listeners":[],"cancels":"@none","process_secret":SECRET}}"#;
    say(&sockets.replace("SECRET", &secret), None);
    assert!(hear(&heard).unwrap().contains("Listens"));
    say(r#""Left""#, None);
    say(r#"{"Mail":{"text":"{\"Guest\":{}}","held":[],"unsent":[],"ended":false}}"#, Some(&theirs));
    // No word that it has it; the way is closed, and the client is ours.
    assert_eq!(hear(&heard).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    drop(theirs);
    wait_until("it is said", || new.log().contains("keeps those who are not here yet"));
    let mut end = [0];
    ours.set_nonblocking(true).unwrap();
    wait_until("it has let go of it", || matches!((&ours).read(&mut end), Ok(0)));
    new.client().simple_query("select 1").unwrap();
}
