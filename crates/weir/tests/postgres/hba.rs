//! `auth_type = hba`: each client shows what the first record that matches asks for.

use postgres::{Client, NoTls};
use weir_wire::{BackendTag, ProtocolVersion, write};

use super::bench::{DRIVERS, Weir, shared, wait_until, write_for_all};

const USERS: &str = "\"postgres\" \"postgres\"\n\"trusted\" \"t\"\n\"clear\" \"c\"\n\"hashed\" \"h\"\n\"scrammed\" \"s\"\n\
    \"kept_out\" \"k\"\n\"unnamed\" \"u\"\n";

fn weir(driver: &str, records: &str) -> (Weir, tempfile::TempDir) {
    let folder = folder(records);
    (weir_in(&folder, USERS, &format!("driver = {driver}")), folder)
}

/// With an `hba.conf`.
pub fn folder(records: &str) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("weir-test-hba").tempdir().unwrap();
    write_for_all(&folder.path().join("hba.conf"), records);
    super::bench::open_to_all(folder.path());
    folder
}

/// Each of Weir's users is `postgres` at the server.
fn weir_in(folder: &tempfile::TempDir, users: &str, lines: &str) -> Weir {
    let databases = format!("* = host=127.0.0.1 port={} dbname=postgres user=postgres password=postgres", shared());
    let lines = format!("auth_type = hba\nauth_hba_file = {}/hba.conf\n{lines}", folder.path().display());
    Weir::start_with(&databases, users, &lines)
}

fn logs_in(weir: &Weir, database: &str, user: &str, password: &str) -> Result<(), (String, String)> {
    let url = format!("host=127.0.0.1 port={} dbname={database} user={user} password='{password}'", weir.port);
    match Client::connect(&url, NoTls) {
        Ok(mut client) => {
            client.simple_query(if database == "pgbouncer" { "show version" } else { "select 1" }).unwrap();
            Ok(())
        }
        Err(error) => {
            let told = error.as_db_error().unwrap_or_else(|| panic!("{user}: {error}"));
            Err((told.code().code().to_owned(), told.message().to_owned()))
        }
    }
}

fn refused(message: &str) -> Result<(), (String, String)> {
    Err(("28000".to_owned(), message.to_owned()))
}

const RECORDS: &str = "host all trusted 127.0.0.1/32 trust\nhost own clear 127.0.0.0/8 password\n\
    host all hashed all md5\nhost all scrammed all scram-sha-256\nhost all kept_out all reject\n\
    host pgbouncer postgres 127.0.0.1 255.255.255.255 trust\nhostssl all all all trust\nlocal all all trust\n\
    host replication postgres all trust\n";

#[test]
fn each_shows_what_its_record_asks_for() {
    for driver in DRIVERS {
        let (weir, _folder) = weir(driver, RECORDS);
        for (user, password) in [("trusted", "wrong"), ("clear", "c"), ("hashed", "h"), ("scrammed", "s")] {
            assert_eq!(logs_in(&weir, "own", user, password), Ok(()), "{user}");
        }
        for (user, by) in [("clear", "password"), ("hashed", "password"), ("scrammed", "SASL")] {
            let expected = ("28P01".to_owned(), format!("{by} authentication failed for user \"{user}\""));
            assert_eq!(logs_in(&weir, "own", user, "wrong"), Err(expected), "{user}");
        }
        assert_eq!(logs_in(&weir, "pgbouncer", "postgres", ""), Ok(()));
        assert_eq!(logs_in(&weir, "own", "kept_out", "k"), refused("login rejected"));
        let none = refused("no authentication method is found");
        for (database, user) in [("own", "unnamed"), ("other", "clear"), ("own", "nobody"), ("own", "postgres")] {
            assert_eq!(logs_in(&weir, database, user, "c"), none, "{database} {user}");
        }
        let line = "login rejected by line 5 of auth_hba_file for user kept_out of database own";
        wait_until("it is logged", || weir.log().contains(line));
    }
}

#[test]
fn physical_replication_is_named() {
    let (weir, _folder) = weir("epoll", RECORDS);
    for (user, replication, is_in) in
        [("postgres", "true", true), ("postgres", "database", false), ("hashed", "true", false)]
    {
        let mut raw = weir.raw();
        let parameters = [("user", user), ("database", "postgres"), ("replication", replication)];
        raw.send(|out| write::startup(out, ProtocolVersion::V3_0, &parameters));
        let last = if is_in { BackendTag::ReadyForQuery } else { BackendTag::ErrorResponse };
        raw.read_until(last);
    }
}

#[test]
fn a_reload_brings_other_records() {
    let (weir, folder) = weir("epoll", RECORDS);
    assert_eq!(logs_in(&weir, "own", "trusted", ""), Ok(()));
    let now = "host own trusted all reject\nhost all all all trust\n";
    write_for_all(&folder.path().join("hba.conf"), now);
    weir.reload_with("");
    assert_eq!(logs_in(&weir, "own", "trusted", ""), refused("login rejected"));
    assert_eq!(logs_in(&weir, "own", "clear", "wrong"), Ok(()));
}

#[test]
fn who_is_at_the_other_end_of_a_socket_is_known() {
    let own = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
    let map = format!("m somebody clear\nm {own} clear\nm {own} nobody\n");
    for driver in DRIVERS {
        let folder = folder("local all clear,nobody peer map=m\nlocal all all peer\nhost all all all peer\n");
        write_for_all(&folder.path().join("ident.conf"), &map);
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let socket = folder.path().display();
        let lines = format!("driver = {driver}\nauth_ident_file = {socket}/ident.conf\nunix_socket_dir = {socket}");
        let weir = weir_in(&folder, &format!("{USERS}\"{own}\" \"\"\n"), &lines);
        let on_socket = |user: &str| {
            let url = format!("host={socket} port={} dbname=own user={user}", weir.port);
            let client = Client::connect(&url, NoTls);
            let told = client.map_err(|error| error.as_db_error().unwrap().message().to_owned());
            told.map(|mut client| client.simple_query("select 1").map(drop).unwrap())
        };
        wait_until("the socket is there", || folder.path().join(format!(".s.PGSQL.{}", weir.port)).exists());
        assert_eq!(on_socket(&own), Ok(()));
        assert_eq!(on_socket("clear"), Ok(()), "it has a map");
        let rejected = Err("unix socket login rejected".to_owned());
        assert_eq!(on_socket("nobody"), rejected, "it is in no file of users");
        assert_eq!(on_socket("trusted"), rejected);
        assert_eq!(logs_in(&weir, "own", &own, ""), refused("login rejected"), "it is for sockets");
    }
}
