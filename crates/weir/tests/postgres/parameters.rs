//! Parameters of sessions that share a server, beside the same sessions each with a server of its own.

use std::collections::BTreeSet;

use postgres::{Client, NoTls, SimpleQueryMessage};
use weir_pg::{Cluster, Installation, Options};
use weir_wire::{BackendTag, ProtocolVersion, backend, write};

use super::bench::{Place, Raw, Weir, cluster, shared};

/// What two clients see who say this in turn, `(who, what)`: each alone with a server, and both sharing one.
pub fn beside(server: impl Into<Place>, lines: &str, settings: [&str; 2], steps: &[(usize, &str)]) {
    let place = server.into();
    let weir = Weir::start_at(place, &format!("default_pool_size = 1\n{lines}"));
    let take = |clients: &mut [Client; 2]| -> Vec<_> {
        steps.iter().map(|&(who, what)| said(&mut clients[who], what)).collect()
    };
    let alone = take(&mut settings.map(|settings| place.client(settings)));
    let mut clients = settings.map(|settings| client(weir.port, settings));
    let shared = take(&mut clients);
    // What is kept from whom, where that is what went wrong.
    let kept = said(&mut weir.try_client("dbname=pgbouncer").unwrap(), "show pins");
    for ((step, alone), shared) in steps.iter().zip(&alone).zip(&shared) {
        assert_eq!(alone, shared, "{step:?}, with {settings:?} and {lines:?}; kept: {kept:?}");
    }
}

/// The rows of a simple query, or its error's SQLSTATE.
pub fn said(client: &mut Client, what: &str) -> Vec<String> {
    match client.simple_query(what) {
        Err(error) => vec![error.code().map_or("lost", |code| code.code()).to_owned()],
        Ok(messages) => messages.iter().filter_map(row).collect(),
    }
}

fn row(message: &SimpleQueryMessage) -> Option<String> {
    let SimpleQueryMessage::Row(row) = message else { return None };
    Some((0..row.len()).map(|column| row.get(column).unwrap_or("null")).collect::<Vec<_>>().join("|"))
}

/// PostgreSQL tells such a one as a name that it does not take.
#[test]
fn a_time_zone_with_seconds_goes_along() {
    const ASK: &str = "select '2020-01-01 00:00+0'::timestamptz, current_setting('timezone')";
    for set in ["time zone 3.333333", "time zone interval '-00:00:01'", "timezone = '12.345'", "time zone 5.5"] {
        let set = format!("set {set}");
        let steps = [
            (0, &*set),
            (1, "set timezone = 'UTC'"),
            (0, ASK),
            (1, ASK),
            (0, "begin; select 1"),
            (0, ASK),
            (0, "commit"),
            (1, ASK),
        ];
        beside(shared(), "", ["", ""], &steps);
    }
    beside(
        shared(),
        "",
        ["options='-c timezone=3.333333'", "options='-c timezone=UTC'"],
        &[(0, ASK), (1, ASK), (0, ASK)],
    );
    // Statements that were parsed under one and under another, each prepared anew where its batch has set the other.
    use Said::{Batch, Query};
    use Step::{Execute, Parse};
    const EPOCH: &str = "select extract(epoch from timestamptz '2020-01-01')::text";
    let said = [
        Query("set timezone = 'UTC'"),
        Batch(&[Parse("utc", EPOCH)]),
        Query("set time zone interval '03:19:59'"),
        Batch(&[Parse("odd", EPOCH)]),
        Batch(&[Parse("to utc", "set timezone = 'UTC'"), Parse("to odd", "set time zone 3.333055556")]),
        Batch(&[Parse("show", "select current_setting('timezone')")]),
        Batch(&[Execute("to utc"), Execute("odd"), Execute("utc"), Execute("show")]),
        Batch(&[Execute("to odd"), Execute("utc"), Execute("odd"), Execute("show")]),
        Batch(&[Execute("show")]),
    ];
    let [alone, shared] = ["session", "transaction"].map(|mode| all_answered(mode, &said));
    assert_eq!(shared, alone);
    assert_eq!(alone[7], ["1577836800.000000", "1577824801.000000", "<+03:19:59>-03:19:59"]);
}

/// PostgreSQL 18 reports the `search_path`. Its client goes on with its server, and prepares there what it will.
#[test]
fn what_is_too_long_to_be_carried_stays() {
    let cluster = super::bench::trusting_cluster(18);
    let weir = Weir::start(cluster.port(), "session_state = keep\ndefault_pool_size = 2");
    client(cluster.port(), "").batch_execute("create table here (a int); insert into here values (5)").unwrap();
    let [mut long, mut other] = [(); 2].map(|()| client(weir.port, ""));
    let path = (0..7_000).map(|number| format!("a{number:08}")).collect::<Vec<_>>().join(", ");
    long.batch_execute(&format!("set search_path to {path}, public")).unwrap();
    for round in 0..2 {
        assert_eq!(long.query_one("select a from here", &[]).unwrap().get::<_, i32>(0), 5, "{round}");
        assert_eq!(said(&mut long, "select length(current_setting('search_path')) > 65536"), ["t"]);
        assert_eq!(said(&mut other, "show search_path"), ["\"$user\", public"]);
        other.query_one("select a from here", &[]).unwrap();
    }
    drop(long);
    assert_eq!(said(&mut other, "show search_path"), ["\"$user\", public"]);
}

const SHOW: &str =
    "select current_setting('search_path'), current_setting('statement_timeout'), current_setting('role')";

#[test]
fn no_function_changes_what_another_client_has() {
    let settings = "options='-c search_path=sa -c statement_timeout=77s -c role=pg_monitor'";
    let changes = [
        "select set_config('search_path', '', false), set_config('statement_timeout', '0', false), set_config('role', 'none', false)",
        "do $$begin perform set_config('search_path', 'sb', false); set statement_timeout = 1234; end$$",
        "explain (analyze, costs off, timing off, summary off) select set_config('search_path', 'sb', false)",
        "copy (select set_config('statement_timeout', '1h', false)) to stdout",
        "set search_path = sb; reset role; begin; set statement_timeout = 0; commit",
    ];
    for change in changes {
        beside(shared(), "", [settings, settings], &[(0, SHOW), (1, change), (0, SHOW)]);
        beside(shared(), "", [settings, ""], &[(0, SHOW), (1, "select 1"), (0, SHOW)]);
    }
}

/// As PostgreSQL reads the packet: `options` first, wherever they stand, then the names beside them, each in turn.
#[test]
fn startup_parameters_count_in_postgresqls_order() {
    let installation = Installation::of_major(18, &|_| {}).unwrap();
    let hba = vec!["host all all 127.0.0.1/32 trust".to_owned()];
    let cluster = Cluster::start(&installation, Options { hba, ..Options::default() }).unwrap();
    let weir = Weir::start(cluster.port(), "default_pool_size = 1");
    let packets: [&[(&str, &str)]; 7] = [
        &[("search_path", "direct"), ("options", "-c search_path=option")],
        &[("options", "-c search_path=option"), ("search_path", "direct")],
        &[("Search_Path", "direct"), ("options", "-c search-path=option")],
        &[("search_path", "one"), ("search_path", "two"), ("SEARCH_PATH", "three")],
        &[("options", "-c search_path=one --search_path=two -c work_mem=77kB")],
        &[("options", "-c search_path=one -c work_mem=77kB"), ("options", "-c search_path=two")],
        &[("application_name", "direct"), ("options", "-c application_name=option"), ("timezone", "Europe/Oslo")],
    ];
    for packet in packets {
        let [alone, shared] = [cluster.port(), weir.port].map(|port| {
            let mut raw = Raw(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
            let named = [("user", "postgres"), ("database", "postgres")];
            let parameters: Vec<_> = named.iter().chain(packet).copied().collect();
            raw.send(|out| write::startup(out, ProtocolVersion::V3_0, &parameters));
            raw.read_until(BackendTag::ReadyForQuery);
            let show = "select current_setting('search_path'), current_setting('work_mem'), \
                        current_setting('application_name'), current_setting('timezone')";
            raw.send(|out| write::query(out, show.as_bytes()));
            raw.read_until(BackendTag::ReadyForQuery)
        });
        let row = |messages: &[(u8, Vec<u8>)]| {
            let row = messages.iter().find(|(tag, _)| *tag == BackendTag::DataRow as u8).unwrap();
            String::from_utf8_lossy(&row.1).into_owned()
        };
        assert_eq!(row(&alone), row(&shared), "{packet:?}");
    }
}

#[test]
fn a_value_is_what_postgresql_makes_of_it_in_a_new_session() {
    let show = "select current_setting('datestyle'), '01/02/2026'::date, current_setting('timezone')";
    for other in ["-c datestyle=ISO,DMY", "-c datestyle=sql,dmy -c timezone=5", "-c datestyle=german"] {
        let settings = [&*format!("options='{other}'"), "options='-c datestyle=iso -c timezone=utc'"];
        beside(shared(), "", settings, &[(0, show), (1, show), (0, show), (1, show)]);
    }
}

/// PostgreSQL takes a packet as the user who logs in, whatever role it asks for and where.
#[test]
fn a_role_stands_beside_what_only_a_superuser_may_set() {
    let show = "select current_setting('role'), current_setting('log_statement'), current_setting('track_io_timing')";
    for options in [
        "-c log_statement=mod -c role=pg_monitor",
        "-c role=pg_monitor -c log_statement=mod",
        "-c track_io_timing=on -c role=pg_monitor",
        "-c track_io_timing=on -c log_statement=mod -c role=pg_monitor",
    ] {
        let settings = format!("options='{options}'");
        let steps = [(0, show), (1, show), (0, "reset all"), (0, show), (0, "begin; reset role"), (0, show)];
        let end = [(0, "reset all; commit"), (0, show), (0, "discard all"), (0, show), (1, show)];
        let alone = [(0, "reset all"), (0, show)];
        for lines in ["", "session_state = keep", "pool_mode = session\ndefault_pool_size = 2"] {
            beside(shared(), lines, [&settings, ""], &[&steps[..], &alone[..], &end[..]].concat());
        }
        let weir = Weir::start(shared(), "default_pool_size = 1");
        let mut client = client(weir.port, &settings);
        let servers: BTreeSet<_> = (0..3).map(|_| said(&mut client, "select pg_backend_pid()")).collect();
        assert_eq!(servers.len(), 1, "{options}: a server is closed behind a transaction");
    }
}

/// PostgreSQL reads it by the search_path and the role of then, and keeps it with its schema.
#[test]
fn a_text_search_configuration_is_that_of_the_startup_packet() {
    let mut direct = client(shared(), "");
    direct.batch_execute("create role texts_of_role").unwrap();
    for schema in ["texts_a", "texts_b", "texts_of_role"] {
        let create = format!(
            "create schema {schema}; grant usage on schema {schema} to public; \
             create text search configuration {schema}.mine (copy = simple)"
        );
        direct.batch_execute(&create).unwrap();
    }
    let show = "select current_setting('default_text_search_config'), current_setting('search_path')";
    for options in [
        "-c search_path=texts_a,texts_b -c default_text_search_config=mine",
        "-c search_path=texts_b,texts_a -c default_text_search_config=mine",
        "-c search_path=texts_a -c default_text_search_config=mine -c search_path=texts_b",
        "-c role=texts_of_role -c search_path=\"$user\" -c default_text_search_config=mine",
        "-c search_path=\"$user\",texts_a -c default_text_search_config=mine -c role=texts_of_role",
    ] {
        let settings = format!("options='{options}'");
        let steps =
            [(0, show), (1, show), (0, "set search_path = texts_b"), (0, show), (1, show), (0, "reset all"), (0, show)];
        beside(shared(), "", [&settings, ""], &steps);
    }
}

#[test]
fn a_request_waits_until_its_parameters_are_accepted() {
    let cluster = cluster(18);
    let mut direct = client(cluster.port(), "");
    direct.batch_execute("create table t (x int); create role tenant; grant all on t to tenant").unwrap();
    let weir = Weir::start(cluster.port(), "default_pool_size = 1");
    let mut raw = weir.raw();
    let startup = [("user", "postgres"), ("database", "postgres"), ("options", "-c role=tenant")];
    raw.send(|out| write::startup(out, ProtocolVersion::V3_0, &startup));
    raw.read_until(BackendTag::ReadyForQuery);
    raw.send(|out| write::query(out, b"insert into t values (1)"));
    raw.read_until(BackendTag::ReadyForQuery);
    direct.batch_execute("revoke all on t from tenant; drop role tenant").unwrap();
    raw.send(|out| write::query(out, b"insert into t values (2)"));
    assert_eq!(raw.last_error(), "08006");
    assert_eq!(direct.query_one("select count(*) from t", &[]).unwrap().get::<_, i64>(0), 1);
}

/// `options` come first, wherever they stand (`process_startup_options`), and what PostgreSQL makes of a value beside another
/// is nothing to those who come with that value alone.
#[test]
fn a_parameter_that_a_packet_has_twice_is_that_packets_own_affair() {
    let weir = Weir::start(shared(), "default_pool_size = 1");
    let logs_in = |parameters: &[(&str, &str)], expected: &str| {
        let mut raw = weir.raw();
        let startup = [&[("user", "postgres"), ("database", "postgres")], parameters].concat();
        raw.send(|out| write::startup(out, ProtocolVersion::V3_0, &startup));
        let told = told(&mut raw);
        assert!(told.iter().any(|told| told == expected), "{parameters:?}: {told:?}, not {expected}");
        raw.send(|out| write::query(out, b"select 1"));
        raw.read_until(BackendTag::ReadyForQuery);
    };
    for _ in 0..2 {
        logs_in(&[("DateStyle", "ISO"), ("options", "-c datestyle=iso,dmy")], "DateStyle=ISO, DMY");
        logs_in(&[("DateStyle", "ISO")], "DateStyle=ISO, MDY");
        logs_in(&[("client_encoding", "UTF8"), ("options", "-c client_encoding=LATIN1")], "client_encoding=UTF8");
        logs_in(&[("options", "-c client_encoding=LATIN1")], "client_encoding=LATIN1");
        logs_in(&[("client_encoding", "UTF8")], "client_encoding=UTF8");
        logs_in(&[("TimeZone", "utc"), ("options", "-c TimeZone=Asia/Tokyo")], "TimeZone=UTC");
        logs_in(&[("options", "-c TimeZone=Asia/Tokyo -c timezone=cet"), ("application_name", "a")], "TimeZone=CET");
    }
}

/// The parameters that are told up to the next ReadyForQuery.
pub fn told(raw: &mut Raw) -> Vec<String> {
    let messages = raw.read_until(BackendTag::ReadyForQuery);
    let told = messages.iter().filter(|(tag, _)| *tag == BackendTag::ParameterStatus as u8);
    told.map(|(_, body)| {
        let (name, value) = backend::parameter_status(body).unwrap();
        format!("{name}={}", String::from_utf8_lossy(value))
    })
    .collect()
}

/// PostgreSQL analyses a statement again when a table of it was analysed or altered, and folds constants when it plans, both
/// under the parameters of whoever executes it then.
#[test]
fn a_statement_is_analysed_again_under_its_own_clients_parameters() {
    let cluster = shared();
    let mut direct = client(cluster, "");
    direct.batch_execute("create table seen_at (at timestamptz)").unwrap();
    direct.batch_execute("insert into seen_at values ('2026-01-01 00:00Z'), ('2026-01-01 08:00Z')").unwrap();
    let weir = Weir::start(cluster, "default_pool_size = 1");
    let count = "select count(*) from seen_at where at >= '2026-01-01 05:00'";
    let count_of = |client: &mut Client, of: &postgres::Statement| client.query_one(of, &[]).unwrap().get::<_, i64>(0);
    for change in ["set timezone = 'Asia/Tokyo'", "begin; set local timezone = 'Asia/Tokyo'"] {
        let [mut tokyo, mut utc] = [(); 2].map(|()| client(weir.port, "options='-c timezone=UTC'"));
        let [in_tokyo, in_utc] = [&mut tokyo, &mut utc].map(|client| client.prepare(count).unwrap());
        assert_eq!((count_of(&mut tokyo, &in_tokyo), count_of(&mut utc, &in_utc)), (1, 1));
        tokyo.batch_execute(change).unwrap();
        direct.batch_execute("analyze seen_at").unwrap();
        // Which of the two it is here PostgreSQL leaves open: the statement is older than the parameter.
        count_of(&mut tokyo, &in_tokyo);
        tokyo.batch_execute("commit").unwrap();
        assert_eq!(count_of(&mut utc, &in_utc), 1, "{change}");
    }
    direct.batch_execute("drop table seen_at").unwrap();
}

#[test]
fn constants_of_a_plan_are_folded_under_its_own_clients_parameters() {
    let weir = Weir::start(shared(), "default_pool_size = 1");
    let text = "select 0.123456789::float8::text, 'abc'::bytea::text, '1 day'::interval::text";
    let row = |client: &mut Client, of: &postgres::Statement| -> [String; 3] {
        let row = client.query_one(of, &[]).unwrap();
        [0, 1, 2].map(|column| row.get(column))
    };
    let [plain, other] = [["0.123456789", "\\x616263", "1 day"], ["0.12346", "abc", "P1D"]];
    let settings = "-c extra_float_digits=-10 -c bytea_output=escape -c intervalstyle=iso_8601";
    let [mut one, mut two] = ["", &format!("options='{settings}'")].map(|settings| client(weir.port, settings));
    let [of_one, of_two] = [&mut one, &mut two].map(|client| client.prepare(text).unwrap());
    for _ in 0..2 {
        assert_eq!(row(&mut two, &of_two), other);
        assert_eq!(row(&mut one, &of_one), plain);
    }
    drop(two);
    for (turn, change) in [
        "set local extra_float_digits = -10; set local bytea_output = escape",
        "select set_config('intervalstyle', 'iso_8601', true)",
    ]
    .iter()
    .enumerate()
    {
        let text = format!("{text}, {turn}");
        let mut two = client(weir.port, "");
        let [of_one, of_two] = [&mut one, &mut two].map(|client| client.prepare(&text).unwrap());
        two.batch_execute(&format!("begin; {change}")).unwrap();
        assert_ne!(row(&mut two, &of_two), plain, "{change}");
        two.batch_execute("commit").unwrap();
        assert_eq!(row(&mut one, &of_one), plain, "{change}");
    }
}

/// What a literal means that a client parsed in New York, in seconds; behind what makes it mean something else, in each way that a
/// client can say that, on a server that does not have the statement any more.
#[test]
fn a_statement_stays_what_it_was_when_it_was_parsed() {
    const NEW_YORK: &str = "1590984000";
    const TOKYO: &str = "1590937200";
    let text = "select extract(epoch from timestamptz '2020-06-01 00:00')::bigint";
    let weir = Weir::start(shared(), "default_pool_size = 1\nmax_prepared_statements = 1");
    let mut other = client(weir.port, "");
    for name in ["", "s"] {
        for (begin, change, end, parsed, expected) in [
            ("", "select set_config('TimeZone', 'Asia/Tokyo', false)", "", 0, NEW_YORK),
            ("", "select set_config('TimeZone', 'Asia/Tokyo', true)", "", 0, NEW_YORK),
            ("begin", "set local timezone = 'Asia/Tokyo'", "commit", 0, NEW_YORK),
            ("begin", "set local timezone = 'Asia/Tokyo'", "commit", 1, TOKYO),
            ("begin", "set timezone = 'Asia/Tokyo'", "rollback", 1, TOKYO),
            ("begin", "set timezone = 'Asia/Tokyo'", "set timezone = 'UTC'; commit", 1, TOKYO),
            ("begin", "select set_config('TimeZone', 'Asia/Tokyo', true)", "commit", 1, TOKYO),
        ] {
            if name.is_empty() && !begin.is_empty() {
                // A simple query destroys it.
                continue;
            }
            let mut raw = weir.raw();
            let startup = [("user", "postgres"), ("database", "postgres"), ("TimeZone", "America/New_York")];
            raw.send(|out| write::startup(out, ProtocolVersion::V3_0, &startup));
            raw.read_until(BackendTag::ReadyForQuery);
            let query = |raw: &mut Raw, text: &str| {
                if !text.is_empty() {
                    raw.send(|out| write::query(out, text.as_bytes()));
                    raw.read_until(BackendTag::ReadyForQuery);
                }
            };
            if parsed == 0 {
                parse(&mut raw, name, text);
                other.batch_execute("select 1").unwrap();
                other.prepare("select 2").unwrap();
            }
            query(&mut raw, begin);
            if parsed == 0 {
                // In one batch with its use.
                raw.send(|out| {
                    write::parse(out, b"change", &definition(change));
                    for statement in [&b"change"[..], name.as_bytes()] {
                        write::bind_without_values(out, b"", statement);
                        write::execute(out, b"");
                    }
                    write::close_statement(out, b"change");
                    write::sync(out);
                });
                assert_eq!(last_row(&mut raw), expected, "{name}: {change}");
                query(&mut raw, end);
            } else {
                query(&mut raw, change);
                parse(&mut raw, name, text);
                query(&mut raw, end);
                for _ in 0..2 {
                    other.prepare("select 3").unwrap();
                    raw.send(|out| {
                        write::bind_without_values(out, b"", name.as_bytes());
                        write::execute(out, b"");
                        write::sync(out);
                    });
                    assert_eq!(last_row(&mut raw), expected, "{name}: {change}, {end}");
                }
            }
        }
    }
}

pub fn definition(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0; 3]].concat()
}

fn parse(raw: &mut Raw, name: &str, text: &str) {
    raw.send(|out| {
        write::parse(out, name.as_bytes(), &definition(text));
        write::sync(out);
    });
    raw.read_until(BackendTag::ReadyForQuery);
}

/// The first value of the last row.
pub fn last_row(raw: &mut Raw) -> String {
    let messages = raw.read_until(BackendTag::ReadyForQuery);
    let mut rows = messages.iter().filter(|(tag, _)| *tag == BackendTag::DataRow as u8);
    rows.next_back().map(|(_, body)| String::from_utf8_lossy(&body[6..]).into_owned()).unwrap_or_default()
}

pub fn client(port: u16, settings: &str) -> Client {
    let url = format!("host=127.0.0.1 port={port} user=postgres password=postgres dbname=postgres {settings}");
    Client::connect(&url, NoTls).unwrap()
}

/// A batch of messages, or a simple query.
pub enum Said<'a> {
    Batch(&'a [Step]),
    Query(&'static str),
    /// The unnamed statement of the server is another client's now.
    Another,
}

pub enum Step {
    Parse(&'static str, &'static str),
    /// Bound and executed.
    Execute(&'static str),
    /// The same of a text that has no name.
    Run(&'static str),
}

/// A statement is what it was when it was parsed, also where a server gets it again behind something that changed parameters in
/// the same batch: with one place for a statement on the server, that is each time.
#[test]
fn a_statement_keeps_what_it_read_behind_a_set_in_its_batch() {
    use Said::{Another, Batch, Query};
    use Step::{Execute, Parse};
    let said = [
        Query("set timezone = 'UTC'"),
        Batch(&[Parse("old", "select extract(epoch from timestamptz '2020-01-01')::text")]),
        Batch(&[Parse("tokyo", "set timezone = 'Asia/Tokyo'"), Parse("utc", "set timezone = 'UTC'")]),
        Batch(&[Parse("local", "set local timezone = 'Asia/Tokyo'")]),
        Batch(&[Parse("show", "select current_setting('timezone')")]),
        Batch(&[Execute("tokyo"), Execute("old"), Execute("show")]),
        Batch(&[Execute("show"), Execute("old"), Execute("show")]),
        Batch(&[Parse("", "select extract(epoch from timestamptz '2021-01-01')::text")]),
        Another,
        Batch(&[Execute("utc"), Execute(""), Execute("show")]),
        Batch(&[Execute("tokyo"), Parse("", "select extract(epoch from timestamptz '2022-01-01')::text")]),
        Another,
        Batch(&[Execute(""), Execute("old"), Execute("show")]),
        Query("set timezone = 'UTC'"),
        Query("begin"),
        Batch(&[Execute("local"), Execute("old"), Execute("show")]),
        Query("commit"),
        Batch(&[Execute("show")]),
    ];
    let [alone, shared] = ["session", "transaction"].map(|mode| all_answered(mode, &said));
    assert_eq!(shared, alone);
    assert_eq!(alone[5], ["1577836800.000000", "Asia/Tokyo"]);
}

/// In session mode PostgreSQL keeps the statements itself.
fn all_answered(mode: &str, said: &[Said]) -> Vec<Vec<String>> {
    let size = if mode == "session" { 2 } else { 1 };
    let lines = format!("default_pool_size = {size}\npool_mode = {mode}\nmax_prepared_statements = 1");
    let weir = Weir::start(shared(), &lines);
    let (mut raw, mut another) = (weir.raw(), weir.raw());
    raw.log_in();
    another.log_in();
    said.iter().map(|said| answered(&mut raw, &mut another, said)).collect()
}

/// What a statement was read under is what counted in its place of its batch, not what counts in front or behind of that.
#[test]
fn a_statement_keeps_what_it_read_in_the_middle_of_its_batch() {
    use Said::{Batch, Query};
    use Step::{Execute, Parse, Run};
    const TEXT: &str = "select extract(epoch from timestamptz '2020-01-01')::text";
    const TOKYO: &str = "set timezone = 'Asia/Tokyo'";
    const NEW_YORK: &str = "set timezone = 'America/New_York'";
    const LOCAL: &str = "set local timezone = 'Asia/Tokyo'";
    let said = [
        Query("set timezone = 'UTC'"),
        Batch(&[Run(TOKYO), Parse("s0", TEXT), Execute("s0"), Run(NEW_YORK), Parse("s1", TEXT), Execute("s1")]),
        Batch(&[Run("select 1"), Parse("s2", TEXT), Run("set timezone = 'UTC'")]),
        Batch(&[Run(TOKYO), Parse("s3", TEXT), Run("select 1/0")]),
        Batch(&[Run("select 1"), Parse("s4", TEXT), Run(TOKYO), Run("select 1/0")]),
        Batch(&[Run("begin"), Run(LOCAL), Parse("s5", TEXT), Run("commit"), Parse("s6", TEXT), Run(NEW_YORK)]),
        Query("set timezone = 'UTC'"),
        Batch(&[Run("select set_config('TimeZone', 'Asia/Tokyo', true)"), Parse("s7", TEXT)]),
        Batch(&[Run("do $$begin perform set_config('TimeZone', 'Asia/Tokyo', true); end$$"), Parse("s8", TEXT)]),
        Batch(&[Run("select 1"), Parse("s9", TEXT), Parse("set", TOKYO), Execute("set")]),
        Query("begin"),
        Query(LOCAL),
        Batch(&[Parse("t0", TEXT), Run("reset timezone"), Parse("t1", TEXT), Run(TOKYO)]),
        Query("commit; set timezone = 'UTC'"),
        Batch(&[Execute("s0"), Execute("s1"), Execute("s2"), Execute("s3"), Execute("s4"), Execute("s5")]),
        Batch(&[Execute("s6"), Execute("s7"), Execute("s8"), Execute("s9"), Execute("t0"), Execute("t1")]),
    ];
    let [alone, shared] = ["session", "transaction"].map(|mode| all_answered(mode, &said));
    assert_eq!(shared, alone);
    let [utc, tokyo, new_york] = ["1577836800.000000", "1577804400.000000", "1577854800.000000"];
    assert_eq!(alone[14], [tokyo, new_york, new_york, tokyo, utc, tokyo]);
    assert_eq!(alone[15][..4], [utc, tokyo, tokyo, utc]);
}

/// The same where a function sets it whose text nobody reads, and where what it has set is taken back in the same batch.
#[test]
fn a_statement_keeps_what_a_function_has_set_in_front_of_it() {
    use Said::{Batch, Query};
    use Step::{Execute, Parse, Run};
    const TEXT: &str = "select extract(epoch from timestamptz '2020-01-01')::text";
    const HIDES: &str = "select hides()";
    let said = [
        Query(
            "create or replace function hides() returns text language sql as \
             'select set_config(''TimeZone'', ''Asia/Tokyo'', false)'",
        ),
        Query("set timezone = 'UTC'"),
        Batch(&[Run(HIDES), Parse("s0", TEXT), Run("select 1/0")]),
        Batch(&[Run("begin"), Run(HIDES), Parse("s1", TEXT), Run("rollback")]),
        Batch(&[Run("select 1"), Parse("s2", TEXT), Run(HIDES)]),
        Query("set timezone = 'UTC'"),
        Batch(&[Run(HIDES), Parse("s3", TEXT)]),
        Batch(&[Execute("s0"), Execute("s1"), Execute("s2"), Execute("s3")]),
    ];
    let [alone, shared] = ["session", "transaction"].map(|mode| all_answered(mode, &said));
    assert_eq!(shared, alone);
    let [utc, tokyo] = ["1577836800.000000", "1577804400.000000"];
    assert_eq!(alone[7], [tokyo, tokyo, utc, tokyo]);
}

pub fn answered(raw: &mut Raw, another: &mut Raw, said: &Said) -> Vec<String> {
    let parse = |out: &mut Vec<u8>, name: &str, text: &str| {
        write::parse(out, name.as_bytes(), &[text.as_bytes(), &[0; 3]].concat());
    };
    match said {
        Said::Query(text) => raw.send(|out| write::query(out, text.as_bytes())),
        Said::Batch(steps) => raw.send(|out| {
            for step in *steps {
                let name = match step {
                    Step::Parse(name, text) => {
                        parse(out, name, text);
                        continue;
                    }
                    Step::Execute(name) => name,
                    Step::Run(text) => {
                        parse(out, "", text);
                        ""
                    }
                };
                write::bind_without_values(out, b"", name.as_bytes());
                write::execute(out, b"");
            }
            write::sync(out);
        }),
        Said::Another => {
            another.send(|out| {
                parse(out, "", "select 1");
                write::sync(out);
            });
            another.read_until(BackendTag::ReadyForQuery);
            return Vec::new();
        }
    }
    let messages = raw.read_until(BackendTag::ReadyForQuery);
    let told = messages.iter().filter_map(|(tag, body)| match BackendTag::from_byte(*tag) {
        // One column of text: after the number of columns and its length.
        Some(BackendTag::DataRow) => Some(String::from_utf8_lossy(&body[6..]).into_owned()),
        Some(BackendTag::ErrorResponse) => Some(String::from_utf8_lossy(body).into_owned()),
        _ => None,
    });
    told.collect()
}
