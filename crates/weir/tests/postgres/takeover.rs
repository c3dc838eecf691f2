//! A new process takes the place of one that runs (`-R`), and its clients notice nothing.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_wire::{BackendTag, write};

use super::bench::{DRIVERS, Raw, Weir, open_to_all, shared, wait_until};

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
