//! Clients that stay while their pool's servers become another release of PostgreSQL, which reports other parameters (18 the `search_path`,
//! older ones not; 16 and newer `scram_iterations`), or are promoted.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::thread::sleep;
use std::time::Duration;

use weir_wire::{BackendTag, ProtocolVersion, write};

use super::bench::{Raw, Weir, trusting_cluster, write_for_all};
use super::parameters::{client, said};

/// What each client has is its own, in both directions, however it set that and whenever it came.
#[test]
fn what_another_release_reports_is_nobody_elses() {
    let clusters = [18, 17, 15].map(trusting_cluster);
    let [newest, newer, old] = clusters.each_ref().map(|cluster| cluster.port());
    let ways = [[newest, newer], [newer, newest], [newest, old], [old, newest], [old, newer]];
    for (mode, [from, to]) in ["keep", "refuse", "pgbouncer"].iter().flat_map(|mode| ways.map(|way| (mode, way))) {
        let case = format!("{mode}, {from} to {to} of {newest}, {newer} and {old}");
        let weir = Weir::start(
            from,
            &format!(
                "session_state = {mode}\nworkers = 1\ndefault_pool_size = 1\nignore_startup_parameters = extra_float_digits"
            ),
        );
        let mut innocent = weir.client();
        let mut packet = weir.try_client("dbname=postgres options='-c search_path=pg_catalog'").unwrap();
        // What is the default of both, and how the packet spells it.
        let mut default = weir.try_client("dbname=postgres options='-c Search_Path=\"$user\",\\\\ public'").unwrap();
        let sets = *mode == "keep";
        let [mut setter, mut resetter] = [(); 2].map(|()| weir.client());
        assert_eq!(said(&mut innocent, "show search_path"), ["\"$user\", public"], "{case}");
        if sets {
            said(&mut setter, "set search_path = information_schema");
            said(&mut resetter, "set search_path = pg_temp");
            said(&mut resetter, "discard all");
        }
        // What is told where it is changed may be reset unseen where it is not.
        let told = from == newest;
        weir.reload_with(&format!("[databases]\n* = host=127.0.0.1 port={to}"));
        let mut newcomer = weir.client();
        for round in 0..3 {
            if round == 1 && sets {
                said(&mut packet, "set search_path = pg_temp");
            }
            let own = if round > 0 && sets { "pg_temp" } else { "pg_catalog" };
            assert_eq!(said(&mut packet, "show search_path"), [own], "{case}, {round}");
            if sets && !told {
                assert_eq!(said(&mut setter, "show search_path"), ["information_schema"], "{case}, {round}");
                assert_eq!(said(&mut resetter, "show search_path"), ["\"$user\", public"], "{case}, {round}");
            }
            for client in [&mut innocent, &mut newcomer, &mut default] {
                assert_eq!(said(client, "show search_path"), ["\"$user\", public"], "{case}, {round}");
            }
        }
        if sets {
            said(&mut packet, "reset search_path");
            assert_eq!(said(&mut packet, "show search_path"), ["pg_catalog"], "{case}");
        }
        for own in [&mut setter, &mut resetter].into_iter().filter(|_| sets && told) {
            own.simple_query("select 1").expect_err(&case);
        }
        if sets && to != old && !told {
            said(&mut setter, "set scram_iterations = 7777");
            for client in [&mut innocent, &mut newcomer, &mut packet] {
                assert_eq!(said(client, "show scram_iterations"), ["4096"], "{case}");
            }
            assert_eq!(said(&mut setter, "show scram_iterations"), ["7777"], "{case}");
        }
        // And back, as where an upgrade is taken back.
        weir.reload_with(&format!("[databases]\n* = host=127.0.0.1 port={from}"));
        for client in [&mut innocent, &mut newcomer, &mut default] {
            assert_eq!(said(client, "show search_path"), ["\"$user\", public"], "{case}, back");
        }
        if sets {
            assert_eq!(said(&mut packet, "show search_path"), ["pg_catalog"], "{case}, back");
        }
        if sets && !told && (to == newest || from == old) {
            setter.simple_query("select 1").expect_err(&case);
        }
    }
}

/// The values of `in_hot_standby` that came up to the next ReadyForQuery.
fn told(raw: &mut Raw) -> Vec<String> {
    let messages = raw.read_until(BackendTag::ReadyForQuery);
    let told = messages.iter().filter(|(tag, _)| *tag == BackendTag::ParameterStatus as u8);
    let values = told.filter_map(|(_, body)| {
        let text = String::from_utf8(body.clone()).unwrap();
        Some(text.strip_prefix("in_hot_standby\0")?.trim_end_matches('\0').to_owned())
    });
    values.collect()
}

/// As `target_session_attrs` asks: who comes behind a promotion is told of it, and everybody who was there, once.
#[test]
fn a_promotion_is_told() {
    for (mode, workers) in [("transaction", 1), ("transaction", 3), ("session", 1)] {
        let mut cluster = trusting_cluster(18);
        cluster.stop().unwrap();
        write_for_all(&cluster.data_dir().join("standby.signal"), "");
        cluster.start_again().unwrap();
        let weir =
            Weir::start(cluster.port(), &format!("pool_mode = {mode}\nworkers = {workers}\ndefault_pool_size = 5"));
        let ask = |raw: &mut Raw| {
            raw.send(|out| write::query(out, b"select 1"));
            told(raw)
        };
        let mut old: Vec<_> = (0..4).map(|_| weir.raw()).collect();
        for raw in &mut old {
            raw.ask_in();
            assert_eq!(told(raw), ["on"], "{mode}, {workers}");
            assert!(ask(raw).is_empty());
        }
        let mut direct = client(cluster.port(), "");
        if mode == "transaction" {
            // Its servers were not all greeted alike.
            let mut file = OpenOptions::new().append(true).open(cluster.data_dir().join("postgresql.conf")).unwrap();
            file.write_all(b"timezone = 'Asia/Tokyo'\n").unwrap();
            said(&mut direct, "select pg_reload_conf()");
            sleep(Duration::from_millis(300));
            for text in [&b"begin"[..], b"commit"] {
                old.iter_mut().rev().for_each(|raw| {
                    raw.send(|out| write::query(out, text));
                    assert!(told(raw).is_empty());
                });
            }
        }
        assert_eq!(said(&mut direct, "select pg_promote()"), ["t"]);
        let mut newcomer = weir.raw();
        newcomer.ask_in();
        assert_eq!(told(&mut newcomer), ["off"], "{mode}, {workers}");
        assert!(ask(&mut newcomer).is_empty());
        for raw in &mut old {
            assert_eq!(ask(raw), ["off"], "{mode}, {workers}");
            assert!(ask(raw).is_empty());
        }
    }
}

/// However much a client has in its startup packet, it goes with it; and what it sets where that is not reported it is told where it is, and is not
/// taken for its own where that cannot be seen again.
#[test]
fn what_a_client_has_goes_to_another_release() {
    let clusters = [15, 18].map(trusting_cluster);
    let [old, new] = clusters.each_ref().map(|cluster| cluster.port());
    let weir = Weir::start(old, "session_state = keep\nworkers = 1\ndefault_pool_size = 1");
    let to = |port: u16| weir.reload_with(&format!("[databases]\n* = host=127.0.0.1 port={port}"));
    let options: String = (0..300).map(|number| format!("-c a.p{number}=v ")).collect();
    let mut client = weir.try_client(&format!("dbname=postgres options='{options}'")).unwrap();
    let mut raw = weir.raw();
    raw.log_in();
    let mut spelled = weir.raw();
    let parameters = [("user", "postgres"), ("database", "postgres"), ("SEARCH_PATH", "s5")];
    spelled.send(|out| write::startup(out, ProtocolVersion::V3_0, &parameters));
    spelled.read_until(BackendTag::ReadyForQuery);
    for (text, told) in [("select 1", "s5"), ("set search_path = s7", "s7"), ("reset search_path", "s5")] {
        to(new);
        spelled.send(|out| write::query(out, text.as_bytes()));
        let messages = spelled.read_until(BackendTag::ReadyForQuery);
        assert!(
            messages.iter().any(|(_, body)| *body == format!("search_path\0{told}\0").into_bytes()),
            "{messages:?}"
        );
    }
    for port in [old, new, old, new] {
        to(port);
        assert_eq!(said(&mut client, "select current_setting('a.p7'), current_setting('a.p299')"), ["v|v"]);
    }
    for (text, port) in [("set search_path = s0", old), ("select 1", new), ("set search_path = s1", old)] {
        to(port);
        raw.send(|out| write::query(out, text.as_bytes()));
        if port == new {
            let told = raw.read_until(BackendTag::ReadyForQuery);
            assert!(told.iter().any(|(_, body)| body == b"search_path\0s0\0"), "{told:?}");
        } else if text.ends_with("s0") {
            raw.read_until(BackendTag::ReadyForQuery);
        }
    }
    assert_eq!(raw.last_error(), "08006");
}

/// PostgreSQL would try for ever to tell a client what its encoding has no letter for: it is told that it cannot be.
#[test]
fn what_cannot_be_told_is_not_tried() {
    let clusters = [17, 18].map(trusting_cluster);
    let [old, new] = clusters.each_ref().map(|cluster| cluster.port());
    let mut direct = client(new, "");
    said(&mut direct, "alter database postgres set search_path = 'sé'");
    let weir = Weir::start(old, "session_state = keep\nworkers = 1\ndefault_pool_size = 1");
    let mut koi = weir.raw();
    let parameters = [("user", "postgres"), ("database", "postgres"), ("client_encoding", "KOI8R")];
    koi.send(|out| write::startup(out, ProtocolVersion::V3_0, &parameters));
    koi.read_until(BackendTag::ReadyForQuery);
    let mut other = weir.client();
    weir.reload_with(&format!("[databases]\n* = host=127.0.0.1 port={new}"));
    assert_eq!(said(&mut other, "show search_path"), ["\"sé\""]);
    koi.send(|out| write::query(out, b"select 1"));
    assert_eq!(koi.last_error(), "0A000");
    assert_eq!(said(&mut other, "select 1"), ["1"]);
}
