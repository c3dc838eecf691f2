//! What RESET, DISCARD ALL and SET to DEFAULT go back to, beside the same sessions each with a server of its own.

use std::net::TcpStream;

use weir_wire::{BackendTag, ProtocolVersion, write};

use super::bench::{Raw, Weir, shared, trusting_cluster};
use super::parameters::{beside, client, definition, last_row, said, told};

const SHOW_ALL: &str = "select current_setting('timezone'), current_setting('datestyle'), current_setting('search_path'), \
                        current_setting('statement_timeout'), current_setting('application_name'), \
                        current_setting('client_encoding'), nullif(current_setting('my.tenant', true), '')";

/// Startup parameters, reported ones and others.
const SETTINGS: &str = "application_name=shop options='-c timezone=Europe/Berlin -c datestyle=SQL,DMY -c search_path=sa \
                        -c statement_timeout=77s -c my.tenant=7'";

#[test]
fn a_reset_goes_back_to_the_startup_packet() {
    let resets = [
        "reset all",
        "discard all",
        "reset timezone; reset search_path; reset statement_timeout; reset my.tenant",
        "select pg_advisory_unlock_all(); close all; unlisten *; reset all;",
        "set timezone to default",
        "set statement_timeout = default",
        "set time zone local",
        "reset all; set timezone = 'Etc/UTC'",
    ];
    let changes = "set timezone = 'Asia/Tokyo'; set application_name = 'x'; set search_path = sb";
    for mode in ["pool_mode = session\ndefault_pool_size = 2", "pool_mode = transaction"] {
        for reset in resets {
            beside(shared(), mode, [SETTINGS, ""], &[(0, reset), (0, SHOW_ALL), (1, SHOW_ALL), (0, SHOW_ALL)]);
            if mode.contains("session") {
                beside(shared(), mode, [SETTINGS, ""], &[(0, changes), (0, reset), (0, SHOW_ALL), (1, SHOW_ALL)]);
            }
            if reset != "discard all" {
                let within = [(0, "begin"), (0, changes), (0, reset), (0, SHOW_ALL), (0, "commit"), (1, SHOW_ALL)];
                beside(shared(), mode, [SETTINGS, ""], &within);
                let undone = [(0, "begin"), (0, reset), (0, SHOW_ALL), (0, "rollback"), (0, SHOW_ALL)];
                beside(shared(), mode, [SETTINGS, ""], &undone);
                let failed =
                    [(0, changes), (0, "begin"), (0, reset), (0, "select 1/0"), (0, "rollback"), (0, "show timezone")];
                beside(shared(), mode, [SETTINGS, ""], &failed);
            }
        }
    }
}

/// What gives a startup value again in a transaction takes no snapshot: that is of its own first query, behind a LOCK perhaps.
#[test]
fn a_reset_within_a_transaction_takes_no_snapshot() {
    let weir = Weir::start(shared(), "default_pool_size = 2\npool_mode = transaction");
    let mut other = weir.client();
    other.batch_execute("drop table if exists snapped; create table snapped (number int)").unwrap();
    let startup = [("user", "postgres"), ("database", "postgres"), ("datestyle", "German"), ("application_name", "a")];
    let mut raw = begun(weir.port, &startup);
    let mut asks = |text: &str| {
        raw.send(|out| write::query(out, text.as_bytes()));
        last_row(&mut raw)
    };
    let mut count = 0;
    for reset in ["reset datestyle", "reset all", "set datestyle to default", "reset application_name"] {
        asks("begin isolation level repeatable read");
        asks(reset);
        other.batch_execute("insert into snapped values (1)").unwrap();
        count += 1;
        asks("lock table snapped");
        assert_eq!(asks("select count(*) from snapped"), count.to_string(), "{reset}");
        assert_eq!(asks("show datestyle"), "German, DMY", "{reset}");
        asks("rollback");
        asks("begin");
        asks(reset);
        asks("set transaction isolation level serializable");
        assert_eq!(asks("show transaction_isolation"), "serializable", "{reset}");
        asks("rollback");
    }
    other.batch_execute("drop table snapped").unwrap();
}

/// A session with this startup packet.
fn begun(port: u16, startup: &[(&str, &str)]) -> Raw {
    let mut raw = Raw(TcpStream::connect(("127.0.0.1", port)).unwrap());
    raw.send(|out| write::startup(out, ProtocolVersion::V3_0, startup));
    raw.read_until(BackendTag::ReadyForQuery);
    raw
}

/// By the unnamed statement and portal.
fn run(out: &mut Vec<u8>, text: &str) {
    write::parse(out, b"", &definition(text));
    write::bind_without_values(out, b"", b"");
    write::execute(out, b"");
}

/// What a client is told of its parameters is what PostgreSQL tells without a pooler.
#[test]
fn a_reset_is_told_as_postgresql_tells_it() {
    let startup =
        [("user", "postgres"), ("database", "postgres"), ("TimeZone", "cet"), ("standard_conforming_strings", "1")];
    for mode in ["session", "transaction"] {
        let weir = Weir::start(shared(), &format!("default_pool_size = 1\npool_mode = {mode}"));
        let mut raw = weir.raw();
        raw.send(|out| write::startup(out, ProtocolVersion::V3_0, &startup));
        let told_at_login = told(&mut raw);
        assert!(
            told_at_login.contains(&"TimeZone=CET".to_owned())
                && told_at_login.contains(&"standard_conforming_strings=on".to_owned())
        );
        for (text, expected) in [
            ("set timezone = 'UTC'", "TimeZone=UTC"),
            ("reset all", "TimeZone=CET"),
            ("reset all", ""),
            ("set timezone = 'Asia/Tokyo'; select 1", "TimeZone=Asia/Tokyo"),
            ("begin", ""),
            ("set timezone to default", "TimeZone=CET"),
            ("rollback", "TimeZone=Asia/Tokyo"),
            ("select 1; discard plans; reset time zone", "TimeZone=CET"),
            ("discard all", ""),
        ] {
            raw.send(|out| write::query(out, text.as_bytes()));
            assert_eq!(told(&mut raw).join(" "), expected, "{text}, in {mode} mode");
        }
    }
}

/// A ROLLBACK takes a RESET back, and what was set behind a DISCARD ALL, which it does not take back.
#[test]
fn a_rollback_takes_a_reset_back() {
    let cluster = trusting_cluster(18);
    let options = "-c search_path=sa -c statement_timeout=77s -c my.tenant=7";
    let startup = [("user", "postgres"), ("database", "postgres"), ("TimeZone", "CET"), ("options", options)];
    let changes = "set timezone = 'Asia/Tokyo'; set search_path = sb";
    for batch in [
        &["discard all", "rollback"][..],
        &["discard all", "select 1", "rollback"],
        &["discard all", "begin", "select 1", "rollback"],
        &["discard all", "set timezone = 'Asia/Tokyo'", "set search_path = sb", "rollback"],
        &["discard all", "set search_path = sb", "commit", "select 1", "rollback"],
        &["discard all", "set search_path = sb", "commit", "set search_path = sc", "rollback"],
        &[
            "discard all",
            "begin",
            "set search_path = sb",
            "savepoint a",
            "set search_path = sc",
            "rollback to a",
            "commit",
        ],
        &["begin", "set search_path = sb", "commit", "begin", "reset search_path", "rollback"],
        &["begin", "set search_path = sb", "commit", "reset all", "rollback"],
        &["reset all", "select 1", "rollback"],
        &["reset all", "begin", "set search_path = sb", "rollback"],
        &["reset all", "commit", "set search_path = sb", "rollback"],
    ] {
        let weir = Weir::start(cluster.port(), "default_pool_size = 1\npool_mode = session");
        let [alone, pooled] = [cluster.port(), weir.port].map(|port| {
            let mut raw = begun(port, &startup);
            raw.send(|out| write::query(out, changes.as_bytes()));
            raw.read_until(BackendTag::ReadyForQuery);
            raw.send(|out| {
                batch.iter().chain([&SHOW_ALL]).for_each(|text| run(out, text));
                write::sync(out);
            });
            let within = last_row(&mut raw);
            raw.send(|out| write::query(out, SHOW_ALL.as_bytes()));
            (within, last_row(&mut raw))
        });
        assert_eq!(pooled, alone, "{batch:?}");
    }
}

/// A startup value that was given again in a transaction is gone with it, where the reset was permanent before.
#[test]
fn a_rollback_of_the_transaction_behind_a_reset_leaves_the_reset() {
    let changes = "set timezone = 'Asia/Tokyo'; set search_path = sb";
    let modes = ["pool_mode = session\ndefault_pool_size = 2", "pool_mode = transaction"];
    for steps in [
        &["reset all; commit; begin", "rollback"][..],
        &["reset all; commit; begin", "set timezone = 'UTC'", "rollback"],
        &["reset all; commit; begin", "commit", "begin", "set search_path = sc", "rollback"],
        &["begin", "reset all; commit and chain", "rollback"],
        &["begin", "reset all; commit and chain", "select 1/0", "rollback"],
        &["reset all; commit; begin; select 1/0", "rollback"],
        &["reset all; commit; begin", "commit"],
    ] {
        for mode in modes {
            let steps = steps.iter().chain([&SHOW_ALL, &"begin", &SHOW_ALL, &"commit", &SHOW_ALL]);
            let mut said: Vec<(usize, &str)> = steps.map(|step| (0, *step)).collect();
            if mode.contains("session") {
                said.insert(0, (0, changes));
            }
            beside(shared(), mode, [SETTINGS, ""], &said);
        }
    }
}

/// A name in quotes is no keyword.
#[test]
fn a_value_that_is_called_default_is_no_reset() {
    let show = "select current_setting('search_path')";
    for set in ["set search_path to \"default\"", "set session search_path = \"default\""] {
        let both = format!("{set}; {show}");
        let within = [(0, "begin"), (0, &*both), (0, show), (0, "commit")];
        beside(shared(), "pool_mode = transaction", [SETTINGS, ""], &within);
        beside(shared(), "pool_mode = session\ndefault_pool_size = 2", [SETTINGS, ""], &[(0, &*both), (0, show)]);
    }
    let reset =
        [(0, "begin"), (0, "set search_path = sb"), (0, "set \"search_path\" to default"), (0, show), (0, "commit")];
    beside(shared(), "pool_mode = transaction", [SETTINGS, ""], &reset);
}

/// What is sent behind a text that is too long to be read waits for what its replies tell.
#[test]
fn a_reset_in_a_long_text_counts_for_what_is_sent_behind_it() {
    let startup = [("user", "postgres"), ("database", "postgres"), ("TimeZone", "CET")];
    let long = format!("select '{}'; reset all", "x".repeat(9000));
    for mode in ["session", "transaction"] {
        let weir = Weir::start(shared(), &format!("default_pool_size = 1\npool_mode = {mode}"));
        let mut raw = begun(weir.port, &startup);
        raw.send(|out| {
            write::query(out, long.as_bytes());
            write::query(out, b"show timezone");
        });
        raw.read_until(BackendTag::ReadyForQuery);
        assert_eq!(last_row(&mut raw), "CET", "{mode}");
    }
}

/// What counts from a transaction's beginning on cannot be given again in it: nobody writes who may not.
#[test]
fn what_a_transaction_begins_with_is_not_given_too_late() {
    let options = "-c default_transaction_read_only=on";
    let startup = [("user", "postgres"), ("database", "postgres"), ("options", options)];
    for mode in ["session", "transaction"] {
        let weir = Weir::start(shared(), &format!("default_pool_size = 1\npool_mode = {mode}"));
        let mut raw = begun(weir.port, &startup);
        raw.send(|out| {
            run(out, "discard all");
            write::sync(out);
            run(out, "create table written_too_early ()");
            write::sync(out);
        });
        raw.read_until(BackendTag::ReadyForQuery);
        let replies = raw.read_until(BackendTag::ReadyForQuery);
        let refused: String = replies.iter().map(|(_, body)| String::from_utf8_lossy(body)).collect();
        assert!(refused.contains("C25006\0"), "{mode}: {refused}");
        raw.send(|out| {
            run(out, "discard all");
            run(out, "create table written_too_late ()");
            write::sync(out);
        });
        assert_eq!(raw.last_error(), "0A000", "{mode}");
    }
}

/// What is set behind a RESET in its batch is the client's own, also where it is the server's default.
#[test]
fn what_is_set_behind_a_reset_stays() {
    let weir = Weir::start(shared(), "default_pool_size = 1");
    let startup = [("user", "postgres"), ("database", "postgres"), ("IntervalStyle", "sql_standard")];
    let mut raw = begun(weir.port, &startup);
    let batch = |raw: &mut Raw, texts: &[&str]| {
        raw.send(|out| {
            texts.iter().for_each(|text| run(out, text));
            write::sync(out);
        });
        told(raw).join(" ")
    };
    let set = "do $$begin perform set_config('IntervalStyle', 'postgres', false); end$$";
    assert_eq!(batch(&mut raw, &["reset intervalstyle", set]), "IntervalStyle=postgres");
    assert_eq!(batch(&mut raw, &["reset intervalstyle"]), "IntervalStyle=sql_standard");
    batch(&mut raw, &["reset intervalstyle", set, "reset intervalstyle"]);
    raw.send(|out| write::query(out, b"show intervalstyle"));
    assert_eq!(last_row(&mut raw), "sql_standard");
}

/// However a client resets its parameters, and whether Weir has seen it: nobody else has other values for it.
#[test]
fn a_reset_that_nobody_reads_is_its_clients_own_affair() {
    let resets = [
        "do $$begin reset timezone; set statement_timeout to default; set search_path to default; end$$",
        "do $$begin execute 'reset all'; end$$",
        "select set_config('timezone', null, false), set_config('statement_timeout', null, false)",
        "begin; set local timezone to default; set local statement_timeout to default",
        "reset timezone; reset statement_timeout; commit; select 1/0",
        "reset all; commit; begin; select 1/0",
        "reset timezone; select set_config('timezone', 'Etc/UTC', false), set_config('statement_timeout', '3s', false)",
        "set statement_timeout = '5s'; begin; savepoint s; reset statement_timeout; rollback to s",
        "create or replace function pg_temp.f() returns int language plpgsql set timezone to default as \
         $$begin reset statement_timeout; return 1; end$$; select pg_temp.f()",
    ];
    let [alone, others] =
        [SETTINGS, "options='-c my.tenant=9'"].map(|other| said(&mut client(shared(), other), SHOW_ALL));
    for mode in ["session", "transaction"] {
        // Else the client of a text that is put together keeps the only server.
        let lines = format!("session_state = pgbouncer\ndefault_pool_size = 1\npool_mode = {mode}");
        let weir = Weir::start(shared(), &lines);
        for reset in resets {
            let mut one = client(weir.port, SETTINGS);
            said(&mut one, reset);
            if mode == "transaction" {
                said(&mut one, "rollback");
            } else {
                drop(one);
            }
            assert_eq!(said(&mut client(weir.port, "options='-c my.tenant=9'"), SHOW_ALL), others, "{mode}: {reset}");
            assert_eq!(said(&mut client(weir.port, SETTINGS), SHOW_ALL), alone, "{mode}: {reset}");
        }
    }
}

/// What is permanent of a reset whose request has failed, and what is not, counts for its client as without a pooler.
#[test]
fn a_reset_before_an_error_stands_as_far_as_it_was_committed() {
    let settings = "options='-c timezone=Europe/Berlin -c search_path=sa -c statement_timeout=77s'";
    let set = "set timezone = 'Asia/Tokyo'; set search_path = sb; set statement_timeout = '3s'";
    for reset in [
        "reset timezone; reset statement_timeout; commit; reset search_path; select 1/0",
        "reset all; commit; begin; select 1/0",
        "reset all; select 1/0",
        "reset search_path; set search_path = sc; commit; select 1/0",
        "begin; reset search_path; set search_path = sc; commit; reset statement_timeout; select 1/0",
    ] {
        let said = [(0, set), (0, reset), (0, "rollback"), (0, SHOW_ALL), (1, SHOW_ALL)];
        beside(shared(), "pool_mode = session\ndefault_pool_size = 2", [settings, ""], &said);
    }
}

/// In session mode names are the server's own: what they reset is known also where PostgreSQL has refused or skipped what gave them.
#[test]
fn a_name_resets_what_postgresql_says_that_it_is() {
    let cluster = trusting_cluster(18);
    let weir = Weir::start(cluster.port(), "default_pool_size = 2\npool_mode = session");
    let batch = |raw: &mut Raw, said: &[(&str, &str)]| {
        raw.send(|out| {
            for (name, text) in said {
                match *text {
                    "" => write::bind_without_values(out, b"", name.as_bytes()),
                    "close" => write::close_statement(out, name.as_bytes()),
                    text => write::parse(out, name.as_bytes(), &definition(text)),
                }
                if text.is_empty() {
                    write::execute(out, b"");
                }
            }
            write::sync(out);
        });
    };
    let show = ("", "select current_setting('timezone') || current_setting('statement_timeout')");
    let long = "n".repeat(70);
    let batches: [&[(&str, &str)]; 15] = [
        &[("r", "set timezone to default"), ("s", "select 1"), ("t", "reset statement_timeout")],
        &[("u", "set timezone = 'Asia/Tokyo'"), ("u", "")],
        // The name is taken.
        &[("r", "select 1")],
        &[("r", ""), show, ("", "")],
        &[("u", "")],
        &[("s", "reset timezone")],
        &[("s", ""), show, ("", "")],
        // Skipped.
        &[("none", ""), ("r", "close"), ("s", "close"), ("s", "reset timezone")],
        &[("s", ""), show, ("", "")],
        &[("r", ""), ("u", ""), show, ("", "")],
        &[("r", ""), ("r", "close"), ("r", "set statement_timeout = '1s'"), show, ("", ""), ("r", ""), show, ("", "")],
        &[("u", ""), ("t", ""), show, ("", "")],
        &[("r", ""), ("d", "deallocate all"), ("d", ""), ("t", "set timezone to default"), show, ("", "")],
        &[("t", ""), show, ("", "")],
        &[(&long, "set timezone to default"), (&long[..63], ""), show, ("", "")],
    ];
    for pipelined in [false, true] {
        let seen = [cluster.port(), weir.port].map(|port| {
            let options = ("options", "-c timezone=Europe/Berlin -c statement_timeout=77s");
            let mut raw = begun(port, &[("user", "postgres"), ("database", "postgres"), options]);
            let mut seen = Vec::new();
            for said in batches {
                batch(&mut raw, said);
                if !pipelined {
                    seen.push(last_row(&mut raw));
                }
            }
            if pipelined {
                seen.extend(batches.iter().map(|_| last_row(&mut raw)));
            }
            seen
        });
        assert_eq!(seen[0], seen[1], "pipelined: {pipelined}");
    }
}

/// A batch that resets something may end in a simple query, and what is reset takes no unnamed statement away.
#[test]
fn a_reset_is_made_good_out_of_sight() {
    let cluster = trusting_cluster(18);
    let startup = [("user", "postgres"), ("database", "postgres"), ("TimeZone", "Asia/Tokyo")];
    let show = "select current_setting('timezone') || timestamptz '2020-06-01 00:00'";
    let execute = |out: &mut Vec<u8>, name: &[u8]| {
        write::bind_without_values(out, b"", name);
        write::execute(out, b"");
    };
    for mode in ["session", "transaction"] {
        let weir = Weir::start(cluster.port(), &format!("default_pool_size = 1\npool_mode = {mode}"));
        let seen = [cluster.port(), weir.port].map(|port| {
            let mut raw = begun(port, &startup);
            raw.send(|out| {
                write::parse(out, b"r", &definition("reset timezone"));
                execute(out, b"r");
                write::query(out, show.as_bytes());
            });
            let mut seen = vec![last_row(&mut raw)];
            for message in ["parse", "reset", "execute"] {
                raw.send(|out| {
                    match message {
                        "parse" => write::parse(out, b"", &definition(show)),
                        "reset" => {
                            write::bind_without_values(out, b"p", b"r");
                            write::execute(out, b"p");
                        }
                        _ => execute(out, b""),
                    }
                    write::sync(out);
                });
                seen.push(last_row(&mut raw));
            }
            seen
        });
        assert_eq!(seen[0], seen[1], "{mode}");
        assert!(seen[1][3].starts_with("Asia/Tokyo"), "{seen:?}");
    }
}

/// PostgreSQL 18 reports the `search_path`, in the client's encoding: another schema's name in another encoding.
#[test]
fn a_reset_of_the_encoding_changes_no_other_value() {
    let cluster = trusting_cluster(18);
    let mut setup = client(cluster.port(), "");
    for (schema, value) in [("é", "right"), ("Ã©", "wrong"), ("public", "public")] {
        said(&mut setup, &format!("create schema if not exists \"{schema}\""));
        said(&mut setup, &format!("create table \"{schema}\".told as select '{value}' as here"));
    }
    const CLOSED: &str = "closed in transaction mode";
    let (read, right) = ("select here from told", "right");
    type Pairs<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Pairs, Pairs); 4] = [
        (
            &[("client_encoding", "LATIN1")],
            &[("set names 'UTF8'", ""), ("set search_path = é", ""), ("set names default", ""), (read, CLOSED)],
        ),
        (
            &[("client_encoding", "LATIN1")],
            &[
                ("set names 'UTF8'", ""),
                ("set search_path = é", ""),
                ("begin; reset client_encoding", ""),
                (read, right),
            ],
        ),
        (
            &[("client_encoding", "LATIN1")],
            &[("reset client_encoding; set search_path = U&\"\\00e9\"", ""), (read, CLOSED)],
        ),
        (
            &[("search_path", "é")],
            &[
                ("set search_path = public", ""),
                ("set names 'LATIN1'", ""),
                ("begin; reset search_path", ""),
                (read, right),
            ],
        ),
    ];
    for mode in ["session", "transaction"] {
        // Else the client of a name with escapes keeps the only server.
        let lines = format!("session_state = pgbouncer\ndefault_pool_size = 1\npool_mode = {mode}");
        let weir = Weir::start(cluster.port(), &lines);
        for (startup, requests) in &cases {
            let mut parameters = vec![("user", "postgres"), ("database", "postgres")];
            parameters.extend_from_slice(startup);
            let mut raw = begun(weir.port, &parameters);
            for (text, expected) in *requests {
                raw.send(|out| write::query(out, text.as_bytes()));
                match *expected {
                    "" => {
                        let failed = |(tag, _): &(u8, Vec<u8>)| *tag == BackendTag::ErrorResponse as u8;
                        assert!(!raw.read_until(BackendTag::ReadyForQuery).iter().any(failed), "{text}");
                    }
                    CLOSED if mode == "transaction" => _ = raw.read_until(BackendTag::ErrorResponse),
                    CLOSED => assert_eq!(last_row(&mut raw), right, "{requests:?}"),
                    row => assert_eq!(last_row(&mut raw), row, "{requests:?}"),
                }
            }
        }
    }
}

const MODES: [&str; 2] = ["pool_mode = session\ndefault_pool_size = 2", "pool_mode = transaction"];
/// A role is the worst to have wrong: what follows is allowed, or not, as somebody else.
const ROLE: &str = "options='-c role=pg_monitor -c work_mem=5MB -c timezone=CET'";
const SHOW_ROLE: &str = "select current_user, current_setting('work_mem'), current_setting('timezone')";

#[test]
fn a_role_goes_back_to_the_startup_packet() {
    for mode in MODES {
        for change in [
            "set role to default",
            "set role = default",
            "set session role to default",
            "set role pg_read_all_data; reset role",
            "reset session authorization",
            "set session authorization default",
            "set session_authorization to default",
        ] {
            let within = [(0, "begin"), (0, change), (0, SHOW_ROLE), (0, "commit"), (0, SHOW_ROLE), (1, SHOW_ROLE)];
            beside(shared(), mode, [ROLE, ""], &within);
            beside(shared(), mode, [ROLE, ""], &[(0, change), (0, SHOW_ROLE), (1, "select 1"), (0, SHOW_ROLE)]);
        }
    }
}

/// Up to the transaction's end it counts, and behind it the startup value.
#[test]
fn set_local_counts_over_a_reset() {
    for mode in MODES {
        for changes in [
            "reset role; set local role pg_read_all_data",
            "reset work_mem; set local work_mem = '7MB'",
            "reset timezone; set local time zone 'Asia/Tokyo'",
            "reset role; set local role pg_read_all_data; reset role",
        ] {
            for end in ["commit", "rollback", "reset role; commit", "set role pg_read_all_data; commit"] {
                if mode.contains("transaction") && end.starts_with("set") {
                    // What is not reported does not follow its client.
                    continue;
                }
                let steps = [(0, "begin"), (0, changes), (0, SHOW_ROLE), (0, end), (0, SHOW_ROLE), (1, SHOW_ROLE)];
                beside(shared(), mode, [ROLE, ""], &steps);
            }
        }
        let outside = [(0, "reset role; set local role pg_read_all_data; select current_user"), (0, SHOW_ROLE)];
        beside(shared(), mode, [ROLE, ""], &outside);
    }
}

/// What takes a transaction back takes back, too, that startup values were given again within it.
#[test]
fn what_nobody_can_tell_behind_a_reset_is_refused() {
    const SAVED: &str = "begin; reset role; savepoint s";
    let startup = [("user", "postgres"), ("database", "postgres"), ("options", "-c role=pg_monitor -c work_mem=5MB")];
    for mode in MODES {
        for steps in [
            [SAVED, "rollback to s", SHOW_ROLE],
            [SAVED, "select 1", "rollback to s; select current_user"],
            ["begin; reset role; savepoint s; select 1/0", "rollback to s", SHOW_ROLE],
            ["reset work_mem; commit; begin; savepoint s", "rollback to s", SHOW_ROLE],
            ["select 1", "reset role; commit; begin", "rollback; select current_user"],
            ["reset role; commit; begin", "select 1/0", "commit; select current_user"],
            ["select 1", "begin; reset role; set local role pg_read_all_data", "commit; select current_user"],
            ["begin; savepoint s; reset role; set local role pg_read_all_data", "rollback to s", SHOW_ROLE],
        ] {
            let weir = Weir::start(shared(), mode);
            let mut one = begun(weir.port, &startup);
            for step in &steps[..2] {
                one.send(|out| write::query(out, step.as_bytes()));
                one.read_until(BackendTag::ReadyForQuery);
            }
            one.send(|out| write::query(out, steps[2].as_bytes()));
            assert_eq!(one.last_error(), "0A000", "{steps:?}, {mode}");
            assert_eq!(said(&mut client(weir.port, ""), "select current_user"), ["postgres"]);
        }
        for steps in [
            [SAVED, "release s", "commit", SHOW_ROLE],
            [SAVED, "rollback", SHOW_ROLE, SHOW_ROLE],
            [SAVED, SHOW_ROLE, "commit", SHOW_ROLE],
            ["begin; reset role", "savepoint s", "rollback to s", SHOW_ROLE],
            ["begin; savepoint s; reset role", "rollback to s", SHOW_ROLE, "commit"],
            ["reset role; commit; begin", "rollback", SHOW_ROLE, SHOW_ROLE],
            ["reset role; commit; begin", SHOW_ROLE, "commit; select current_user", SHOW_ROLE],
            ["reset role; commit; begin", "select 1/0", "rollback", SHOW_ROLE],
        ] {
            beside(shared(), mode, [ROLE, ""], &steps.map(|step| (0, step)));
        }
    }
}
