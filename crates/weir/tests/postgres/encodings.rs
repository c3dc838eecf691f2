//! Values that are not ASCII, for clients of other encodings than the server's. Read in the wrong one, the name of a schema is that of another.

use std::net::TcpStream;

use weir_wire::{BackendTag, ProtocolVersion, write};

use super::bench::{Raw, Weir, trusting_cluster};
use super::parameters::client;

/// The second is the first in LATIN1, where its bytes are those of UTF8.
const SCHEMAS: &str = "create schema \"é\"; create table \"é\".t as select 1 as x; create schema \"Ã©\"; create table \"Ã©\".t as select 2 as x; \
                       create table t as select 0 as x";

fn log_in(port: u16, packet: &[(&str, &str)]) -> (Raw, Vec<(u8, Vec<u8>)>) {
    let mut raw = Raw(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let named = [("user", "postgres"), ("database", "postgres")];
    let parameters: Vec<_> = named.iter().chain(packet).copied().collect();
    raw.send(|out| write::startup(out, ProtocolVersion::V3_0, &parameters));
    let mut messages = Vec::new();
    loop {
        let Some(message) = raw.message() else { return (raw, messages) };
        let tag = message.0;
        messages.push(message);
        if [BackendTag::ReadyForQuery as u8, BackendTag::ErrorResponse as u8].contains(&tag) {
            return (raw, messages);
        }
    }
}

enum Said {
    Query(&'static str),
    /// A statement of this name, prepared.
    Parse(&'static str, &'static str),
    Run(&'static str),
    /// Two unnamed statements in one batch.
    Batch([&'static str; 2]),
    /// Nothing: somebody else uses the server.
    Elsewhere,
}

/// The rows of what is said, and errors.
fn answers(raw: &mut Raw, said: &Said) -> Vec<String> {
    fn execute(out: &mut Vec<u8>, name: &[u8]) {
        write::bind_without_values(out, b"", name);
        write::execute(out, b"");
    }
    let definition = |text: &str| [text.as_bytes(), &[0; 3]].concat();
    raw.send(|out| match said {
        Said::Query(text) => write::query(out, text.as_bytes()),
        Said::Parse(name, text) => {
            write::parse(out, name.as_bytes(), &definition(text));
            write::sync(out);
        }
        Said::Run(name) => {
            execute(out, name.as_bytes());
            write::sync(out);
        }
        Said::Elsewhere => write::sync(out),
        Said::Batch(texts) => {
            for text in texts {
                write::parse(out, b"", &definition(text));
                execute(out, b"");
            }
            write::sync(out);
        }
    });
    let shown = [BackendTag::DataRow as u8, BackendTag::ErrorResponse as u8];
    let messages = raw.read_until(BackendTag::ReadyForQuery).into_iter().filter(|(tag, _)| shown.contains(tag));
    messages.map(|(_, body)| body.escape_ascii().to_string()).collect()
}

#[test]
fn a_statement_finds_the_same_schema_whatever_its_clients_encoding_was() {
    use Said::{Elsewhere, Parse, Query, Run};
    const SEEN: &str = "select x, current_setting('search_path') from t";
    for major in [16, 18] {
        // Before 18 PostgreSQL does not tell what SET makes of a search_path, and the startup packet's stays.
        let set = if major < 18 { "select 1" } else { "set search_path = 'é'" };
        let steps = [
            Parse("s", SEEN),
            Run("s"),
            Elsewhere,
            Query("set client_encoding = 'UTF8'"),
            Query(set),
            Elsewhere,
            Run("s"),
            Elsewhere,
            Query("begin"),
            Run("s"),
            Query("select x from t"),
            Query("rollback"),
        ];
        let cluster = trusting_cluster(major);
        client(cluster.port(), "").batch_execute(SCHEMAS).unwrap();
        let weir = Weir::start(cluster.port(), "default_pool_size = 1\nmax_prepared_statements = 1");
        let mut other = weir.client();
        let [direct, pooled] = [cluster.port(), weir.port].map(|port| {
            let own = if major < 18 {
                &[("client_encoding", "LATIN1"), ("search_path", "é")][..]
            } else {
                &[("client_encoding", "LATIN1")]
            };
            let (mut raw, _) = log_in(port, own);
            steps
                .iter()
                .map(|said| {
                    if matches!(said, Elsewhere) {
                        other.query("select 1", &[]).unwrap();
                    }
                    answers(&mut raw, said)
                })
                .collect::<Vec<_>>()
        });
        assert_eq!(direct, pooled, "PostgreSQL {major}");
    }
}

#[test]
fn a_reset_goes_back_to_the_same_schema_whatever_the_encoding_is() {
    use Said::{Batch, Query};
    let steps = [
        Query("set search_path = public"),
        Batch(["reset search_path", "select x, current_setting('my.own') from t"]),
        Query("begin"),
        Batch(["reset all", "select x from t"]),
        Query("select x from t"),
        Query("commit"),
        Query("select x, current_setting('my.own') from t"),
    ];
    let cluster = trusting_cluster(16);
    client(cluster.port(), "").batch_execute(SCHEMAS).unwrap();
    for mode in ["transaction", "session"] {
        let weir = Weir::start(cluster.port(), &format!("default_pool_size = 1\npool_mode = {mode}"));
        let [direct, pooled] = [cluster.port(), weir.port].map(|port| {
            let (mut raw, _) = log_in(port, &[("client_encoding", "LATIN1"), ("search_path", "é"), ("my.own", "é")]);
            steps.iter().map(|said| answers(&mut raw, said)).collect::<Vec<_>>()
        });
        assert_eq!(direct, pooled, "{mode}");
    }
}

/// PostgreSQL 18 tells the search_path, in the client's encoding: nobody knows then what to give another server.
#[test]
fn what_would_be_told_in_another_encoding_is_refused() {
    let cluster = trusting_cluster(18);
    let weir = Weir::start(cluster.port(), "default_pool_size = 1");
    let last = |packet: &[(&str, &str)]| {
        let (_, messages) = log_in(weir.port, packet);
        let (tag, body) = messages.last().unwrap().clone();
        (tag == BackendTag::ReadyForQuery as u8, String::from_utf8_lossy(&body).into_owned())
    };
    let refused = last(&[("client_encoding", "LATIN1"), ("search_path", "é")]);
    assert!(!refused.0 && refused.1.contains("0A000") && refused.1.contains("not ASCII"), "{refused:?}");
    assert!(last(&[("client_encoding", "UTF8"), ("search_path", "é")]).0);
    assert!(last(&[("client_encoding", "LATIN1"), ("my.own", "é")]).0, "nothing of it is told");
    // Of a value that the other encoding has no letter for PostgreSQL itself would try to tell for ever.
    assert!(!last(&[("client_encoding", "LATIN1"), ("search_path", "表")]).0);
    let busy = "select count(*) from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()";
    assert_eq!(client(cluster.port(), "").query_one(busy, &[]).unwrap().get::<_, i64>(0), 0);
    // The servers' own default is told too.
    client(cluster.port(), "").batch_execute("alter database postgres set search_path = 'é'").unwrap();
    let weir = Weir::start(cluster.port(), "default_pool_size = 1");
    let (_, messages) = log_in(weir.port, &[("client_encoding", "LATIN1")]);
    assert_eq!(messages.last().unwrap().0, BackendTag::ErrorResponse as u8);
}
