//! What applications say all day keeps no server (`session_state = keep`): the statements that their frameworks send when they connect, and for a
//! request.

use postgres::Client;

use super::bench::{Weir, shared};
use super::parameters::{client, said};

const CLIENTS: usize = 6;
const REQUESTS: usize = 20;

struct Application {
    name: &'static str,
    /// When it has connected.
    greets: &'static [&'static str],
    /// For each request of its own users, prepared and bound; those that only begin or end something are simple queries with some of them.
    works: &'static [&'static str],
}

const APPLICATIONS: [Application; 4] = [
    // Django 5 on psycopg 3: `ensure_timezone`, ATOMIC_REQUESTS, a nested atomic().
    Application {
        name: "Django",
        greets: &["SELECT set_config('TimeZone', 'UTC', false)"],
        works: &[
            "BEGIN",
            "SELECT id, name FROM applications WHERE id = 1 LIMIT 21",
            "SAVEPOINT \"s140_x1\"",
            "INSERT INTO applications (name) VALUES ('a') RETURNING id",
            "RELEASE SAVEPOINT \"s140_x1\"",
            "UPDATE applications SET name = 'b' WHERE id = 2",
            "COMMIT",
            "SELECT COUNT(*) AS \"__count\" FROM applications",
        ],
    },
    // Active Record 8: `configure_connection`, the type map, a transaction with statements that it has prepared.
    Application {
        name: "Rails",
        greets: &[
            "SET client_min_messages TO 'warning'",
            "SET standard_conforming_strings = on",
            "SET intervalstyle = iso_8601",
            "SET SESSION timezone TO 'UTC'",
            "SELECT t.oid, t.typname, t.typelem, t.typdelim, t.typinput FROM pg_type AS t WHERE t.typname IN ('int2', 'int4')",
            "SHOW max_identifier_length",
        ],
        works: &[
            "SELECT applications.* FROM applications ORDER BY applications.id ASC LIMIT 1",
            "BEGIN",
            "INSERT INTO applications (name) VALUES ('c') RETURNING id",
            "SAVEPOINT active_record_1",
            "UPDATE applications SET name = 'd' WHERE applications.id = 3",
            "RELEASE SAVEPOINT active_record_1",
            "COMMIT",
        ],
    },
    // Spring's JpaTransactionManager on HikariCP and pgjdbc: what the driver sets, a transaction that only reads, one that writes.
    Application {
        name: "Spring",
        greets: &["SET extra_float_digits = 3", "SET application_name = 'PostgreSQL JDBC Driver'"],
        works: &[
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "BEGIN",
            "select a1_0.id, a1_0.name from applications a1_0 where a1_0.id = 4",
            "COMMIT",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
            "BEGIN",
            "select nextval('applications_id_seq')",
            "insert into applications (name) values ('e')",
            "COMMIT",
        ],
    },
    // Prisma's engine: its schema, an interactive transaction.
    Application {
        name: "Prisma",
        greets: &["SET search_path = \"public\""],
        works: &[
            "SELECT 1",
            "BEGIN",
            "SELECT \"public\".\"applications\".\"id\" FROM \"public\".\"applications\" WHERE 1=1 OFFSET 0",
            "INSERT INTO \"public\".\"applications\" (\"name\") VALUES ('f') RETURNING \"public\".\"applications\".\"id\"",
            "COMMIT",
            "DEALLOCATE ALL",
        ],
    },
];

#[test]
fn what_applications_say_keeps_no_server() {
    for application in &APPLICATIONS {
        let weir = Weir::start(shared(), "session_state = keep\ndefault_pool_size = 2");
        client(weir.port, "")
            .batch_execute("CREATE TABLE IF NOT EXISTS applications (id serial PRIMARY KEY, name text)")
            .unwrap();
        let port = weir.port;
        let threads: Vec<_> =
            (0..CLIENTS).map(|_| std::thread::spawn(move || run(&mut client(port, ""), application))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut console = weir.try_client("dbname=pgbouncer").unwrap();
        let stats = said(&mut console, "show stats");
        assert!(stats.iter().any(|row| row.starts_with("postgres|")), "{stats:?}");
        for row in stats {
            let pins: Vec<_> = row.rsplit('|').take(7).collect();
            assert_eq!(pins, ["0"; 7], "{}: {row}", application.name);
        }
    }
}

fn run(client: &mut Client, application: &Application) {
    application.greets.iter().for_each(|text| client.batch_execute(text).unwrap());
    let settings = said(client, "select current_setting('extra_float_digits'), current_setting('client_min_messages')");
    for _ in 0..REQUESTS {
        for text in application.works {
            let begins = !text.starts_with(['S', 's', 'I', 'i', 'U'])
                || ["SAVEPOINT", "SET"].iter().any(|word| text.starts_with(word));
            if begins { client.batch_execute(text).unwrap() } else { _ = client.query(*text, &[]).unwrap() }
        }
        // It has what it set, on whichever server.
        let now = said(client, "select current_setting('extra_float_digits'), current_setting('client_min_messages')");
        assert_eq!(now, settings, "{}", application.name);
    }
}
