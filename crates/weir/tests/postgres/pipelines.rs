//! Pipelines of two clients in turn, on PostgreSQL itself and through a pool of one server: the same answers. Each once gave one
//! client what was another's, or an older text of its own, or a wrong error.

mod copies;
pub mod functions;
mod names;
mod readings;
mod types;

use std::net::TcpStream;

use weir_wire::backend::ErrorFields;
use weir_wire::{BackendTag, FrontendTag, ProtocolVersion, write};

use super::bench::{Raw, Weir, trusting_cluster};

/// What a client says in its turn.
#[derive(Clone, Copy)]
enum Say {
    /// Before all else of the turn: on a new connection, with these parameters. Who never says it logs in without any.
    LogIn(&'static [(&'static str, &'static str)]),
    Parse(&'static str, &'static str),
    /// Bound to the unnamed portal, and executed.
    Run(&'static str),
    /// The same, with values.
    RunWith(&'static str, &'static [&'static str]),
    Bind(&'static str),
    Describe(&'static str),
    Close(&'static str),
    Sync,
    Query(&'static str),
    CopyData(&'static str),
    CopyDone,
    CopyFail,
    /// What it has said so far is answered in its next turn.
    Later,
    /// Alone in its turn: with SQL it gives each of Weir's statements on the server another text. What it sees of them is its own affair.
    Usurp,
}
use Say::{Bind, Close, CopyData, CopyDone, CopyFail, Describe, Later, LogIn, Parse, Query, Run, RunWith, Sync, Usurp};

impl Say {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Parse(name, text) => write::parse(out, name.as_bytes(), &[text.as_bytes(), &[0; 3]].concat()),
            Run(name) => {
                write::bind_without_values(out, b"", name.as_bytes());
                write::execute(out, b"");
            }
            RunWith(name, values) => {
                bind_values(out, name, values);
                write::execute(out, b"");
            }
            Bind(name) => write::bind_without_values(out, b"", name.as_bytes()),
            Describe(name) => write::describe_statement(out, name.as_bytes()),
            Close(name) => write::close_statement(out, name.as_bytes()),
            Sync => write::sync(out),
            Query(text) => write::query(out, text.as_bytes()),
            CopyData(data) => {
                write::frontend_header(out, FrontendTag::CopyData, data.len());
                out.extend_from_slice(data.as_bytes());
            }
            CopyDone => write::frontend_header(out, FrontendTag::CopyDone, 0),
            CopyFail => write::copy_fail(out, b"enough"),
            LogIn(_) | Later | Usurp => {}
        }
    }
}

/// Text in, text out.
fn bind_values(out: &mut Vec<u8>, statement: &str, values: &[&str]) {
    let mut body = vec![0; 2];
    body.extend_from_slice(&(values.len() as u16).to_be_bytes());
    for value in values {
        body.extend_from_slice(&(value.len() as u32).to_be_bytes());
        body.extend_from_slice(value.as_bytes());
    }
    body.extend_from_slice(&[0; 2]);
    write::bind_names(out, b"", statement.as_bytes(), body.len());
    out.extend_from_slice(&body);
}

/// Who says what in one write, and the tables that it is about.
type Case = (&'static str, &'static [(usize, &'static [Say])]);

/// What cases leave behind.
const CLEAR: &str = "drop table if exists done, typed; drop schema if exists sa, sb cascade; drop type if exists kind; \
                     create table done (who text)";

#[test]
fn pipelines_are_answered_as_by_postgresql_itself() {
    // Of two clients one may keep a server.
    let states = [(1, "pgbouncer"), (2, "keep")];
    for (major, (servers, state)) in [14, 18].into_iter().flat_map(|major| states.map(|state| (major, state))) {
        let cluster = trusting_cluster(major);
        let lines = format!("session_state = {state}\ndefault_pool_size = {servers}\nmax_prepared_statements = 2");
        let weir = Weir::start(cluster.port(), &lines);
        let of_this = if major < 18 { names::A_QUERY_ENDS_A_BATCH } else { &[] };
        // A server that gets a statement which was never described prepares it as the table is by then.
        let of_one = if servers == 1 { types::CASES } else { &[] };
        let cases = [names::CASES, copies::CASES, readings::CASES, of_one, of_this];
        for (what, turns) in cases.into_iter().flatten() {
            let [alone, shared] = [cluster.port(), weir.port].map(|port| {
                Peer::new(port).answers(&[Query(CLEAR)]);
                let mut peers = [(); 2].map(|()| Peer::new(port));
                turns.iter().map(|(who, says)| peers[*who].answers(says)).collect::<Vec<_>>()
            });
            for (turn, (alone, shared)) in alone.iter().zip(&shared).enumerate() {
                assert_eq!(alone, shared, "{what}, turn {turn}, version {major}, {state}");
            }
        }
    }
}

/// A statement that is parsed behind a SET, also of what PostgreSQL does not report, is used when somebody else has had the server.
#[test]
fn what_is_parsed_behind_a_set_means_the_same_later() {
    [14, 18].map(trusting_cluster).iter().for_each(|cluster| means_the_same_later(cluster.port()));
}

/// `server`: takes whoever comes.
pub fn means_the_same_later(server: u16) {
    const SETS: [(&str, &str); 4] = [
        ("set transform_null_equals = on", "select case when null::int = null then 'on' else 'off' end"),
        ("select set_config('array_nulls', 'off', false)", "select ('{NULL}'::text[])[1] is null"),
        ("set search_path = sb", "select kind::text from of_b"),
        ("set timezone = 'Asia/Tokyo'", "select extract(epoch from timestamptz '2020-01-01')::bigint"),
    ];
    const TABLE: &str = "create schema sb; create table sb.of_b (kind text); insert into sb.of_b values ('b')";
    let weir = Weir::start(server, "session_state = keep\ndefault_pool_size = 1");
    for (set, text) in SETS {
        for name in ["", "s"] {
            let by_query: &[Say] = &[Query(set)];
            let by_batch = [Parse("", set), Run("")];
            let batch_of_its_own = [Parse("", set), Run(""), Sync];
            for sets in [by_query, &by_batch, &batch_of_its_own] {
                let prepares = [Parse(name, text), Sync];
                let ends_by_batch = [Parse("c", "commit"), Run("c"), Sync];
                let one_write = [sets, &prepares].concat();
                let many: &[&[&[Say]]] = &[
                    &[&one_write],
                    &[sets, &prepares],
                    &[&[Query("begin")], sets, &prepares, &[Query("commit")]],
                    &[&[Query("begin")], &one_write, &[Query("rollback")]],
                    &[&[Query("begin")], &one_write, &[Query("reset all"), Query("commit")]],
                    &[&[&[Query("begin")], sets, &ends_by_batch[..2], &prepares].concat()],
                ];
                for writes in many.iter().filter(|writes| writes.len() == 1 || sets.last().is_some_and(is_answered)) {
                    let [alone, shared] = [server, weir.port].map(|port| {
                        Peer::new(port).answers(&[Query(CLEAR), Query(TABLE)]);
                        let mut peers = [(); 2].map(|()| Peer::new(port));
                        writes.iter().for_each(|says| drop(peers[0].answers(says)));
                        peers[1].answers(&[Query("set search_path = pg_catalog")]);
                        peers[0].answers(&[Run(name), Sync])
                    });
                    let of_which = format!("{text} as {name:?}, write {} of {}", writes.len(), many.len());
                    // What is parsed in a transaction, and used behind it, is not asked for.
                    let is_lost = shared.first().is_some_and(|first| first.ends_with("does not exist any more"));
                    let may_be_lost = name.is_empty() && writes.concat().iter().any(|say| matches!(say, Parse("c", _)));
                    assert!(alone == shared || (is_lost && may_be_lost), "{set}; {of_which}: {alone:?}, {shared:?}");
                }
            }
        }
    }
}

/// A VACUUM is the first that is executed in its batch, whatever its client has left before: what is only prepared ahead of it sets nothing.
#[test]
fn what_must_stand_alone_stands_alone_behind_a_parse() {
    let cluster = trusting_cluster(18);
    let weir = Weir::start(cluster.port(), "session_state = keep\ndefault_pool_size = 2");
    Peer::new(cluster.port()).answers(&[Query(CLEAR)]);
    for left in
        ["create temp table own (a int)", "select set_config('array_nulls', 'off', false)", "set search_path = public"]
    {
        let mut peer = Peer::new(weir.port);
        peer.answers(&[Query(left)]);
        for name in ["s0", "s1", "s2"] {
            let batch = [Parse("", "select 1"), Parse(name, "vacuum done"), Run(name), Sync];
            let answers = peer.answers(&batch);
            assert!(answers.contains(&"C VACUUM\\x00".to_owned()), "{left}: {answers:?}");
        }
    }
}

fn is_answered(say: &Say) -> bool {
    matches!(say, Sync | Query(_))
}

/// PostgreSQL 18.6 answers the Sync, commits nothing, and says so only with the next request.
#[test]
fn what_a_sync_ends_behind_a_query_without_one_is_committed() {
    for major in [14, 18] {
        let cluster = trusting_cluster(major);
        for mode in ["pool_mode = transaction", "pool_mode = session"] {
            let weir = Weir::start(cluster.port(), mode);
            let mut peers = [(); 2].map(|()| Peer::new(weir.port));
            peers[0].answers(&[Query(CLEAR)]);
            for query in ["select 1", "copy done from stdin", "insert into done values ('b')"] {
                let data: &[Say] = if query.starts_with("copy") { &[CopyData("b\n"), CopyDone] } else { &[] };
                let mut says = vec![Parse("", "insert into done values ('a')"), Run(""), Query(query)];
                says.extend(data);
                says.push(Sync);
                peers[0].answers(&says);
                let told = peers[1]
                    .answers(&[Query("with gone as (delete from done where who = 'a' returning 1) table gone")]);
                assert!(told.contains(&"C SELECT 1\\x00".to_owned()), "{query}, version {major}, {mode}: {told:?}");
            }
        }
    }
}

/// One of the two.
struct Peer {
    port: u16,
    raw: Option<Raw>,
    /// So many times ReadyForQuery are to come.
    unread: usize,
}

impl Peer {
    fn new(port: u16) -> Self {
        Self { port, raw: None, unread: 0 }
    }

    /// Says it in one write; each message of the answer, with what is in it.
    fn answers(&mut self, says: &[Say]) -> Vec<String> {
        let mut told = match says.first() {
            Some(LogIn(parameters)) => self.log_in(parameters),
            _ => Vec::new(),
        };
        if self.raw.is_none() {
            self.log_in(&[]);
        }
        let raw = self.raw.as_mut().unwrap();
        if matches!(says, [Usurp]) {
            usurp(raw);
            return told;
        }
        raw.send(|out| says.iter().for_each(|say| say.write(out)));
        self.unread += says.iter().filter(|say| matches!(say, Sync | Query(_))).count();
        if !matches!(says.last(), Some(Later)) {
            told.extend(read(raw, std::mem::take(&mut self.unread)));
        }
        told
    }

    /// What it is told while it logs in; the order of that is nobody's promise.
    fn log_in(&mut self, parameters: &[(&str, &str)]) -> Vec<String> {
        let mut raw = Raw(TcpStream::connect(("127.0.0.1", self.port)).unwrap());
        let parameters = [&[("user", "postgres"), ("database", "postgres")], parameters].concat();
        raw.send(|out| write::startup(out, ProtocolVersion::V3_0, &parameters));
        let mut told = read(&mut raw, 1);
        told.sort();
        self.raw = Some(raw);
        told
    }
}

fn usurp(raw: &mut Raw) {
    let query = |raw: &mut Raw, text: &str| {
        raw.send(|out| write::query(out, text.as_bytes()));
        raw.read_until(BackendTag::ReadyForQuery)
    };
    for (tag, body) in query(raw, "select name from pg_prepared_statements where name like 'weir%'") {
        if tag == BackendTag::DataRow as u8 {
            // Behind the number of columns and the length of the only one.
            let name = String::from_utf8_lossy(&body[6..]);
            query(raw, &format!("deallocate \"{name}\""));
            query(raw, &format!("prepare \"{name}\" as select 'usurped'"));
        }
    }
}

fn read(raw: &mut Raw, ends: usize) -> Vec<String> {
    let messages = (0..ends).flat_map(|_| raw.read_until(BackendTag::ReadyForQuery)).collect::<Vec<_>>();
    messages.iter().map(|(tag, body)| format!("{} {}", char::from(*tag), shown(*tag, body))).collect()
}

fn shown(tag: u8, body: &[u8]) -> String {
    match BackendTag::from_byte(tag) {
        Some(BackendTag::ErrorResponse | BackendTag::NoticeResponse) => {
            let fields = ErrorFields::parse(body).unwrap();
            let message = String::from_utf8_lossy(fields.message);
            // An internal error names the object that is gone by its number.
            let ours = if fields.code == b"XX000" {
                message.replace(|char: char| char.is_ascii_digit(), "")
            } else {
                message.into()
            };
            format!("{} {ours}", String::from_utf8_lossy(fields.code))
        }
        Some(BackendTag::ParameterDescription) => body[2..].chunks(4).map(type_shown).collect(),
        Some(BackendTag::RowDescription) => columns_shown(&body[2..]),
        Some(
            BackendTag::DataRow | BackendTag::CommandComplete | BackendTag::ReadyForQuery | BackendTag::ParameterStatus,
        ) => body.escape_ascii().to_string(),
        _ => String::new(),
    }
}

/// Names and types.
fn columns_shown(mut columns: &[u8]) -> String {
    let mut shown = String::new();
    while let Some(end) = columns.iter().position(|&byte| byte == 0) {
        // A table, a column of it, the type; its size and modifier, a format.
        let (name, of_it) = (&columns[..end], &columns[end + 1..]);
        shown += &format!("{}{} ", name.escape_ascii(), type_shown(&of_it[6..10]));
        columns = &of_it[18..];
    }
    shown
}

/// A type that a case has made has another number each time.
fn type_shown(number: &[u8]) -> String {
    const FIRST_NORMAL_OBJECT_ID: u32 = 16_384;
    let number = u32::from_be_bytes(number.try_into().unwrap());
    if number < FIRST_NORMAL_OBJECT_ID { format!(":{number}") } else { ":made".to_owned() }
}
