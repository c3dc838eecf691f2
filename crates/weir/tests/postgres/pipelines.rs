//! Pipelines of two clients in turn, on PostgreSQL itself and through a pool of one server: the same answers. Each once gave one
//! client what was another's, or an older text of its own, or a wrong error.

use std::net::TcpStream;

use weir_wire::backend::ErrorFields;
use weir_wire::{BackendTag, write};

use super::bench::{Raw, Weir, trusting_cluster};

/// A message of a pipeline.
enum Say {
    Parse(&'static str, &'static str),
    /// Bound to the unnamed portal, and executed.
    Run(&'static str),
    Bind(&'static str),
    Describe(&'static str),
    Close(&'static str),
    Sync,
    Query(&'static str),
}
use Say::{Bind, Close, Describe, Parse, Query, Run, Sync};

impl Say {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Parse(name, text) => write::parse(out, name.as_bytes(), &[text.as_bytes(), &[0; 3]].concat()),
            Run(name) => {
                write::bind_without_values(out, b"", name.as_bytes());
                write::execute(out, b"");
            }
            Bind(name) => write::bind_without_values(out, b"", name.as_bytes()),
            Describe(name) => write::describe_statement(out, name.as_bytes()),
            Close(name) => write::close_statement(out, name.as_bytes()),
            Sync => write::sync(out),
            Query(text) => write::query(out, text.as_bytes()),
        }
    }
}

/// Who says what in one write, and the tables that it is about.
type Case = (&'static str, &'static [(usize, &'static [Say])]);

const CASES: &[Case] = &[
    (
        "the unnamed statement of another, behind a batch that failed",
        &[
            (0, &[Parse("", "insert into done values ('A') returning who"), Run(""), Sync]),
            (1, &[Run("nope"), Bind(""), Sync, Run(""), Sync]),
            (0, &[Parse("", "select 'SECRET'"), Run(""), Sync]),
            (1, &[Run("nope"), Close(""), Sync, Run(""), Sync]),
            (1, &[Parse("", "select 'own'"), Sync]),
            (0, &[Parse("", "select 'SECRET'"), Run(""), Sync]),
            (1, &[Run("nope"), Describe(""), Sync, Run(""), Sync]),
            (1, &[Run("nope"), Parse("", "select 'skipped'"), Sync, Run(""), Sync]),
        ],
    ),
    (
        "what must fail, where SQL has made a name",
        &[
            (0, &[Query("prepare \"weir absent\" as select 1"), Query("deallocate \"weir absent\"")]),
            (1, &[Parse("s", "select 'mine'"), Sync]),
            (1, &[Parse("s", "select 'taken'"), Run("s"), Sync, Run("s"), Sync]),
            (1, &[Parse("s", "insert into done values ('taken')"), Run("s"), Sync]),
        ],
    ),
    (
        "a name given anew behind a batch that failed",
        &[
            (0, &[Parse("s7", "select 'old'"), Sync]),
            (
                0,
                &[
                    Run("nope"),
                    Close("s7"),
                    Parse("s7", "select 'mid'"),
                    Sync,
                    Close("s7"),
                    Parse("s7", "select 'new'"),
                    Sync,
                ],
            ),
            (0, &[Run("s7"), Sync]),
            (0, &[Run("nope"), Close("s7"), Sync, Parse("s7", "select 'newer'"), Sync]),
            (0, &[Run("s7"), Sync]),
            (0, &[Close("s7"), Sync, Close("s7"), Parse("s7", "select 'newest'"), Run("s7"), Sync]),
            (0, &[Run("s7"), Sync]),
        ],
    ),
    (
        "a name of a batch that failed, in the next",
        &[
            (
                0,
                &[
                    Run("nope"),
                    Parse("s6", "select 'skipped'"),
                    Sync,
                    Parse("s6", "select 'there'"),
                    Sync,
                    Run("s6"),
                    Sync,
                ],
            ),
            (1, &[Parse("t", "insert into done values ('T')"), Sync]),
            (0, &[Run("nope"), Parse("t", "insert into done values ('T')"), Sync, Run("t"), Sync]),
            (1, &[Run("t"), Sync, Query("select count(*) from done")]),
            (0, &[Run("nope"), Run("s6"), Sync, Run("s6"), Sync]),
        ],
    ),
    (
        "names that SQL takes away",
        &[
            (0, &[Parse("a", "select 'a'"), Sync, Query("deallocate all"), Run("a"), Sync]),
            (0, &[Parse("a", "select 'again'"), Run("a"), Sync]),
            (0, &[Query("begin; savepoint x; select 1/0"), Run("a"), Sync, Query("rollback"), Run("a"), Sync]),
            (0, &[Query("discard all"), Run("a"), Sync, Parse("a", "select 'third'"), Run("a"), Sync]),
        ],
    ),
    (
        "types that DDL changes",
        &[
            (0, &[Query("create table typed (x int); insert into typed values (1)")]),
            (1, &[Parse("s", "select x from typed"), Run("s"), Sync]),
            (0, &[Query("drop table typed; create table typed (x text); insert into typed values ('one')")]),
            (0, &[Parse("s", "select x from typed"), Describe("s"), Run("s"), Sync]),
            (1, &[Close("s"), Parse("s", "select x from typed"), Describe("s"), Run("s"), Sync]),
        ],
    ),
    (
        "a time zone of one's own",
        &[
            (
                0,
                &[
                    Query("set timezone = 'Asia/Tokyo'"),
                    Parse("z", "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint"),
                    Run("z"),
                    Sync,
                ],
            ),
            (1, &[Parse("z", "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint"), Run("z"), Sync]),
            (1, &[Query("set timezone = 'America/New_York'"), Run("z"), Sync]),
            (0, &[Run("z"), Sync, Query("reset timezone"), Run("z"), Sync]),
        ],
    ),
    (
        "a name that a failed batch was to close",
        &[
            (0, &[Query("set timezone = 'America/New_York'"), Query("begin"), Query("set timezone = 'Asia/Tokyo'")]),
            (0, &[Parse("s1", "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint"), Sync]),
            (0, &[Run("nope"), Close("s1"), Sync, Query("rollback"), Run("s1"), Sync]),
        ],
    ),
    (
        "a name that is evicted in the transaction that gave it",
        &[
            (0, &[Query("set timezone = 'America/New_York'"), Query("begin; set datestyle = 'ISO, DMY'")]),
            (
                0,
                &[
                    Parse("", "select set_config('TimeZone', 'Asia/Tokyo', false)"),
                    Run(""),
                    Parse("s1", "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint"),
                    Sync,
                ],
            ),
            (
                0,
                &[
                    Parse("a", "select 1"),
                    Parse("b", "select 2"),
                    Parse("c", "select 3"),
                    Run("a"),
                    Run("b"),
                    Run("c"),
                    Sync,
                ],
            ),
            (0, &[Run("s1"), Sync, Query("commit"), Run("s1"), Sync]),
        ],
    ),
];

/// For releases before 18: 18.6 answers the next query with XX000.
const A_QUERY_ENDS_A_BATCH: &[Case] = &[(
    "a name given behind what sets the time zone, in a batch that a query ends",
    &[
        (0, &[Query("set timezone = 'America/New_York'")]),
        (
            0,
            &[
                Parse("st", "select set_config('TimeZone', 'Asia/Tokyo', false)"),
                Run("st"),
                Parse("s1", "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint"),
                Query("select 1"),
            ],
        ),
        (1, &[Parse("a", "select 1"), Run("a"), Parse("b", "select 2"), Run("b"), Sync]),
        (0, &[Query("set timezone = 'Europe/Berlin'"), Run("s1"), Sync]),
    ],
)];

#[test]
fn pipelines_are_answered_as_by_postgresql_itself() {
    for major in [14, 18] {
        let cluster = trusting_cluster(major);
        let weir = Weir::start(cluster.port(), "default_pool_size = 1\nmax_prepared_statements = 2");
        let of_this = if major < 18 { A_QUERY_ENDS_A_BATCH } else { &[] };
        for (what, turns) in CASES.iter().chain(of_this) {
            let [alone, shared] = [cluster.port(), weir.port].map(|port| {
                let mut clients = [(); 2].map(|()| Raw(TcpStream::connect(("127.0.0.1", port)).unwrap()));
                clients.iter_mut().for_each(Raw::log_in);
                answers(&mut clients[0], &[Query("drop table if exists done, typed; create table done (who text)")]);
                turns.iter().map(|(who, says)| answers(&mut clients[*who], says)).collect::<Vec<_>>()
            });
            for (turn, (alone, shared)) in alone.iter().zip(&shared).enumerate() {
                assert_eq!(alone, shared, "{what}, turn {turn}, version {major}");
            }
        }
    }
}

/// Says it in one write; each message of the answer, with what is in it.
fn answers(client: &mut Raw, says: &[Say]) -> Vec<String> {
    client.send(|out| says.iter().for_each(|say| say.write(out)));
    let ends = says.iter().filter(|say| matches!(say, Sync | Query(_))).count();
    let messages = (0..ends).flat_map(|_| client.read_until(BackendTag::ReadyForQuery)).collect::<Vec<_>>();
    messages.iter().map(|(tag, body)| shown(*tag, body)).collect()
}

fn shown(tag: u8, body: &[u8]) -> String {
    let text = match BackendTag::from_byte(tag) {
        Some(BackendTag::ErrorResponse) => {
            let fields = ErrorFields::parse(body).unwrap();
            [fields.code, fields.message].map(String::from_utf8_lossy).join(" ")
        }
        Some(BackendTag::DataRow | BackendTag::CommandComplete | BackendTag::ReadyForQuery) => {
            String::from_utf8_lossy(body).into_owned()
        }
        _ => String::new(),
    };
    format!("{} {text}", char::from(tag))
}
