//! Users who are in no file: they are looked up in PostgreSQL (`auth_query`), and get in as if they were in one.

use std::io::{Read, Write};
use std::net::TcpStream;

use postgres::{Client, NoTls};
use weir_core::auth::{ChannelBinding, ClientFirst, Credentials};
use weir_wire::backend::Authentication;
use weir_wire::{BackendTag, HEADER_LEN, Header, ProtocolVersion, write};

use super::bench::{DRIVERS, PATIENCE, Weir, at_once, shared, wait_until};
use super::parameters::{client, said};

/// The SQLSTATE and the text of what a login ends in; `Ok`: as whom its statements run.
fn logs_in(port: u16, database: &str, user: &str, password: &str) -> Result<String, (String, String)> {
    let url = format!("host=127.0.0.1 port={port} dbname={database} user={user} password={password}");
    match Client::connect(&url, NoTls) {
        Ok(mut client) => Ok(client.query_one("select current_user::text", &[]).unwrap().get(0)),
        Err(error) => {
            let told = error.as_db_error().unwrap_or_else(|| panic!("{user}: {error}"));
            // By what it was to be known is said first: `password`, `SASL`, `"trust"`.
            let text = told.message();
            let text = text.find("authentication failed").map_or(text, |at| &text[at..]);
            Err((told.code().code().to_owned(), text.to_owned()))
        }
    }
}

fn wrong(user: &str) -> Result<String, (String, String)> {
    told("28P01", &format!("authentication failed for user \"{user}\""))
}

fn told(code: &str, text: &str) -> Result<String, (String, String)> {
    Err((code.to_owned(), text.to_owned()))
}

fn misconfigured() -> Result<String, (String, String)> {
    told("08006", "bouncer config error")
}

/// Roles that are gone with it.
struct Roles(Vec<&'static str>);

impl Roles {
    fn make(roles: &[(&'static str, &str)]) -> Self {
        let mut direct = client(shared(), "");
        for (name, attributes) in roles {
            direct.batch_execute(&format!("drop role if exists {name}; create role {name} {attributes}")).unwrap();
        }
        Self(roles.iter().map(|(name, _)| *name).collect())
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        let mut direct = client(shared(), "");
        for name in &self.0 {
            let _ = direct.batch_execute(&format!("drop owned by {name}; drop role {name}"));
        }
    }
}

#[test]
fn who_is_in_no_file_is_looked_up() {
    let _roles = Roles::make(&[
        ("found_by_query", "login password 'right'"),
        ("found_expired", "login password 'right' valid until '2020-01-01'"),
        ("found_without_password", "login"),
        ("found_not_to_log_in", "password 'right'"),
    ]);
    for driver in DRIVERS {
        for auth_type in ["md5", "scram-sha-256", "plain"] {
            let lines = format!(
                "driver = {driver}\nauth_type = {auth_type}\nauth_user = postgres\nworkers = 2\npool_mode = transaction"
            );
            let weir = Weir::start(shared(), &lines);
            let logs_in = |user, password| logs_in(weir.port, "postgres", user, password);
            assert_eq!(logs_in("found_by_query", "right"), Ok("found_by_query".to_owned()), "{lines}");
            let strangers = ["found_expired", "found_without_password", "found_not_to_log_in", "found_nowhere"];
            for user in ["found_by_query"].iter().chain(&strangers) {
                assert_eq!(logs_in(user, "wrong"), wrong(user), "{lines}");
            }
            // A longer name is what PostgreSQL makes of it.
            let long = format!("found_by_query{}", "_".repeat(50));
            assert_eq!(logs_in(&long, "right"), wrong(&long[..63]));
            for user in strangers {
                assert_eq!(logs_in(user, "right"), wrong(user), "{lines}");
            }
            assert_eq!(logs_in("postgres", "postgres"), Ok("postgres".to_owned()));
        }
    }
}

/// A secret may be a password, its md5 hash or a SCRAM verifier; which of them a name has decides how it is asked.
#[test]
fn each_kind_of_secret_is_taken() {
    let query = "select usename, secret from (values ('looked_plain', 'right'), \
                 ('looked_hashed', 'md5' || md5('right' || 'looked_hashed'))) as own (usename, secret) where usename = $1";
    let database = format!(
        "* = host=127.0.0.1 port={} user=postgres password=postgres auth_query='{}'",
        shared(),
        query.replace('\'', "''")
    );
    for (auth_type, hashed) in [("md5", true), ("plain", true), ("scram-sha-256", false)] {
        let lines = format!("auth_type = {auth_type}\nauth_user = postgres\nauth_query = select 1\nworkers = 1");
        let weir = Weir::start_with(&database, "\"postgres\" \"postgres\"\n", &lines);
        // Whoever forces a user has its rights.
        let own = Ok("postgres".to_owned());
        assert_eq!(logs_in(weir.port, "postgres", "looked_plain", "right"), own, "{auth_type}");
        assert_eq!(logs_in(weir.port, "postgres", "looked_plain", "wrong"), wrong("looked_plain"), "{auth_type}");
        let expected = if hashed { own } else { wrong("looked_hashed") };
        assert_eq!(logs_in(weir.port, "postgres", "looked_hashed", "right"), expected, "{auth_type}");
    }
}

#[test]
fn trust_asks_whether_the_user_is_there() {
    let _roles = Roles::make(&[("trusted_if_there", "login")]);
    let database = format!("* = host=127.0.0.1 port={} user=postgres password=postgres", shared());
    let weir = Weir::start_with(&database, "\"postgres\" \"postgres\"\n", "auth_type = trust\nauth_user = postgres");
    assert_eq!(logs_in(weir.port, "postgres", "trusted_if_there", "x"), Ok("postgres".to_owned()));
    assert_eq!(logs_in(weir.port, "postgres", "trusted_nowhere", "x"), told("28000", "no such user"));
    // That there is no such database is told, by the name that the client has used.
    let missing = told("3D000", "database \"nowhere\" does not exist");
    assert_eq!(logs_in(weir.port, "nowhere", "trusted_nowhere", "x"), missing);
}

/// Where it is asked, and what is wrong with that: the log says so, and whoever logs in does not hear it.
#[test]
fn one_database_answers_for_others() {
    let _roles = Roles::make(&[("found_elsewhere", "login password 'right'")]);
    let port = shared();
    let entries = [
        "postgres = host=127.0.0.1 port=PORT auth_dbname=answers".to_owned(),
        "answers = host=127.0.0.1 port=PORT dbname=postgres".to_owned(),
        "forced = host=127.0.0.1 port=PORT dbname=postgres user=postgres password=postgres auth_dbname=answers".to_owned(),
        "by_console = host=127.0.0.1 port=PORT auth_dbname=pgbouncer".to_owned(),
        "by_nothing = host=127.0.0.1 port=PORT auth_dbname=absent".to_owned(),
        "by_error = host=127.0.0.1 port=PORT dbname=postgres auth_query='select 1/0, $1'".to_owned(),
        "by_another = host=127.0.0.1 port=PORT dbname=postgres auth_query='select ''postgres'', passwd from pg_shadow where usename = $1'".to_owned(),
        "by_many = host=127.0.0.1 port=PORT dbname=postgres auth_query='select usename, passwd from pg_shadow, (values (1), (2)) as two where usename = $1'".to_owned(),
        "by_one_column = host=127.0.0.1 port=PORT dbname=postgres auth_query='select passwd from pg_shadow where usename = $1'".to_owned(),
        "by_whom = host=127.0.0.1 port=PORT dbname=postgres auth_user=who_is_that".to_owned(),
    ];
    let databases = entries.join("\n").replace("PORT", &port.to_string());
    let lines = "auth_type = scram-sha-256\nauth_user = postgres\nauth_dbname = answers\nadmin_users = found_elsewhere\nserver_login_retry = 1\nworkers = 1";
    let weir = Weir::start_with(&databases, "\"postgres\" \"postgres\"\n", lines);
    let logs_in = |database| logs_in(weir.port, database, "found_elsewhere", "right");
    assert_eq!(logs_in("postgres"), Ok("found_elsewhere".to_owned()));
    assert_eq!(logs_in("forced"), Ok("postgres".to_owned()));
    // That database answers for it too, unless another is named.
    let mut console = client(weir.port, "dbname=pgbouncer user=found_elsewhere password=right");
    assert!(!said(&mut console, "show pools").is_empty());
    for database in ["by_console", "by_nothing"] {
        assert_eq!(logs_in(database), misconfigured(), "{database}");
    }
    console.batch_execute("disable answers").unwrap();
    assert_eq!(logs_in("postgres"), told("57P03", "authentication database \"answers\" is disabled"));
    console.batch_execute("enable answers").unwrap();
    let weir = {
        let lines = lines.replace("auth_dbname = answers\n", "");
        Weir::start_with(&databases, "\"postgres\" \"postgres\"\n", &lines)
    };
    let logs_in = |database| self::logs_in(weir.port, database, "found_elsewhere", "right");
    for _ in 0..2 {
        for database in ["by_error", "by_another", "by_many", "by_one_column", "by_whom"] {
            assert_eq!(logs_in(database), misconfigured(), "{database}");
        }
        assert_eq!(logs_in("postgres"), Ok("found_elsewhere".to_owned()));
    }
}

/// Neither what a client asks for in its startup packet nor what others have left in sessions of `auth_user` leads the question astray.
#[test]
fn no_client_leads_the_question_astray() {
    let mut direct = client(shared(), "");
    let _roles = Roles::make(&[("asks_for_all", "login password 'asks'"), ("led_astray", "login password 'right'")]);
    direct
        .batch_execute(
            "drop schema if exists astray cascade; create schema astray; drop table if exists public.secrets_of; \
             create table public.secrets_of (name text, secret text); create table astray.secrets_of (name text, secret text); \
             insert into public.secrets_of select usename, passwd from pg_shadow where usename = 'led_astray'; \
             insert into astray.secrets_of values ('led_astray', 'known'); grant usage on schema astray to public; \
             grant select on public.secrets_of, astray.secrets_of to public",
        )
        .unwrap();
    let users = "\"postgres\" \"postgres\"\n\"asks_for_all\" \"asks\"\n";
    let lines = "auth_type = scram-sha-256\nauth_user = asks_for_all\nauth_query = select name, secret from secrets_of where name = $1\n\
                 workers = 1\npool_mode = session\nserver_reset_query =\ndefault_pool_size = 1\nsession_state = pgbouncer";
    let weir = Weir::start_with(&format!("* = host=127.0.0.1 port={}", shared()), users, lines);
    {
        let mut one = client(weir.port, "user=asks_for_all password=asks");
        one.batch_execute("set search_path = astray").unwrap();
    }
    for options in ["", "-csearch_path=astray"] {
        let connect = |password: &str| {
            let url = format!(
                "host=127.0.0.1 port={} dbname=postgres user=led_astray password={password} options='{options}'",
                weir.port
            );
            Client::connect(&url, NoTls)
        };
        assert!(connect("known").is_err(), "{options}");
        assert!(connect("right").is_ok(), "{options}");
    }
    direct.batch_execute("drop schema astray cascade; drop table public.secrets_of").unwrap();
}

/// A crowd that comes at once has few servers that answer, and gets in.
#[test]
fn a_crowd_is_looked_up() {
    let _roles = Roles::make(&[("one_of_a_crowd", "login password 'right'")]);
    let lines = "auth_type = scram-sha-256\nauth_user = postgres\nworkers = 2\ndefault_pool_size = 3\npool_mode = transaction\n\
                 max_client_conn = 500\nadmin_users = postgres";
    let weir = Weir::start(shared(), lines);
    let port = weir.port;
    at_once(100, move |number| {
        let right = number % 4 != 0;
        let told = logs_in(port, "postgres", "one_of_a_crowd", if right { "right" } else { "wrong" });
        assert_eq!(told, if right { Ok("one_of_a_crowd".to_owned()) } else { wrong("one_of_a_crowd") });
    });
    let mut console = client(port, "dbname=pgbouncer");
    wait_until("all are gone", || !said(&mut console, "show clients").iter().any(|row| row.contains("one_of_a_crowd")));
    let servers = said(&mut console, "show servers").iter().filter(|row| row.contains("|postgres|postgres|")).count();
    assert!((1..=3).contains(&servers), "{servers}");
}

/// What a client that knows no password is asked for at this database, and told in the end: all that it sees, but for what is drawn anew each time.
fn shown(port: u16, database: &str, user: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let parameters = [("user", user), ("database", database)];
    send(&mut stream, |out| write::startup(out, ProtocolVersion::V3_0, &parameters));
    let (tag, body) = message(&mut stream);
    let asked = match Authentication::parse(&body) {
        Ok(asked) if tag == BackendTag::Authentication as u8 => asked,
        // It is refused at once.
        _ => return String::from_utf8_lossy(&body).replace(user, "USER"),
    };
    let asked = match asked {
        Authentication::Sasl { mechanisms } => {
            let first = ClientFirst::new("", "nonce", &mechanisms, ChannelBinding::None).unwrap();
            send(&mut stream, |out| write::sasl_initial(out, first.mechanism(), &first.message()));
            let (_, told) = message(&mut stream);
            let Authentication::SaslContinue { data } = Authentication::parse(&told).unwrap() else { panic!() };
            let pending = first.on_server_first(data).unwrap();
            let asked = format!("{mechanisms:?} {:?} {}", pending.salt, pending.iterations);
            // Of no password: what is asked is what counts.
            let (data, _) = pending.finish_with(Credentials::Salted([7; 32]));
            send(&mut stream, |out| write::sasl_response(out, &data));
            asked
        }
        asked => {
            send(&mut stream, |out| write::password(out, b"guess"));
            format!("{asked:?}").split_whitespace().next().unwrap().to_owned()
        }
    };
    let mut told = Vec::new();
    stream.read_to_end(&mut told).unwrap();
    format!("{asked}, then {}", String::from_utf8_lossy(&told).replace(user, "USER"))
}

fn send(stream: &mut TcpStream, write: impl FnOnce(&mut Vec<u8>)) {
    let mut out = Vec::new();
    write(&mut out);
    stream.write_all(&out).unwrap();
}

/// The next one's tag and body.
fn message(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; HEADER_LEN];
    stream.read_exact(&mut head).unwrap();
    let header = Header::parse(&head);
    let mut body = vec![0; header.body_len.unwrap() as usize];
    stream.read_exact(&mut body).unwrap();
    (header.tag, body)
}

/// Which of the databases show the same, by the first that does.
fn alike(port: u16, databases: &[&str], user: &str) -> Vec<usize> {
    let ask = |database: &&str| {
        let (database, user) = ((*database).to_owned(), user.to_owned());
        std::thread::spawn(move || shown(port, &database, &user))
    };
    let asked: Vec<_> = databases.iter().map(ask).collect();
    let shown: Vec<_> = asked.into_iter().map(|asked| asked.join().unwrap()).collect();
    shown.iter().map(|own| shown.iter().position(|other| other == own).unwrap()).collect()
}

/// Nobody who has not shown a password sees which users there are, nor which databases, though he asks for each user at each of them.
#[test]
fn who_is_there_is_not_seen_by_comparing_databases() {
    let _roles = Roles::make(&[("seen_or_not", "login password 'right'")]);
    // `elsewhere` has no users but one; `bare` has those of the file alone.
    let databases = [
        "one = host=127.0.0.1 port=PORT dbname=postgres auth_user=postgres",
        "two = host=127.0.0.1 port=PORT dbname=postgres auth_user=postgres",
        "elsewhere = host=127.0.0.1 port=PORT dbname=postgres auth_user=postgres \
         auth_query='select usename, passwd from pg_shadow where usename = $1 and usename = ''nobody'''",
        "bare = host=127.0.0.1 port=PORT dbname=postgres",
    ];
    let databases = databases.join("\n").replace("PORT", &shared().to_string());
    let names = ["one", "two", "elsewhere", "bare", "absent1", "absent2", "absent3", "absent4", "absent5"];
    for auth_type in ["scram-sha-256", "md5", "plain"] {
        let lines = format!("auth_type = {auth_type}\nworkers = 2");
        let users = "\"postgres\" \"postgres\"\n\"of_the_file\" \"secret\"\n";
        let weir = Weir::start_with(&databases, users, &lines);
        // Somebody was found there.
        shown(weir.port, "one", "seen_or_not");
        let strangers: Vec<_> = (0..64).map(|number| alike(weir.port, &names, &format!("stranger{number}"))).collect();
        for user in ["seen_or_not", "of_the_file"] {
            let own = alike(weir.port, &names, user);
            assert!(own[1] == 0, "{auth_type} {user}: {own:?}");
            assert!(strangers.contains(&own), "{auth_type}: nobody else is asked as {user}: {own:?}\n{strangers:?}");
        }
        // A database that is not there is as one that is.
        let as_one_is = |pattern: &Vec<usize>| pattern[4..].iter().all(|first| *first < 4);
        assert!(strangers.iter().all(as_one_is), "{auth_type}: {strangers:?}");
    }
}

/// Where all databases are at one place, everybody sees the same at each, whether it is there or not.
#[test]
fn a_database_that_is_not_there_is_as_one_that_is() {
    let _roles = Roles::make(&[("seen_at_one_place", "login password 'right'")]);
    let database = format!("one = host=127.0.0.1 port={} dbname=postgres", shared());
    for auth_type in ["scram-sha-256", "md5", "plain", "trust"] {
        for users in ["\"postgres\" \"postgres\"\n", "\"postgres\" \"postgres\"\n\"seen_in_the_file\" \"secret\"\n"] {
            let lines = format!("auth_type = {auth_type}\nauth_user = postgres");
            let weir = Weir::start_with(&database, users, &lines);
            for user in ["seen_at_one_place", "seen_in_the_file", "stranger"] {
                // Who is trusted is let in.
                if auth_type != "trust" || user == "stranger" {
                    assert_eq!(alike(weir.port, &["one", "absent1", "absent2"], user), [0; 3], "{auth_type} {user}");
                }
            }
        }
    }
}
