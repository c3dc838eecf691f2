//! Users who are in no file: they are looked up in PostgreSQL (`auth_query`), and get in as if they were in one.

use postgres::{Client, NoTls};

use super::bench::{DRIVERS, Weir, at_once, shared, wait_until};
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
