//! What functions set, for their session or their transaction: it stays as it is set, and is nobody else's.

use super::{CLEAR, Parse, Peer, Query, Run, Say, Sync};
use crate::bench::{Weir, trusting_cluster};

/// The name of what they set stands in their texts: else the server would stay with its client for good.
const FUNCTIONS: &str = "create or replace function public.sets_path() returns text language plpgsql as \
     'begin return set_config(''search_path'', ''sb'', false); end'; \
     create or replace function public.sets_path_locally() returns text language plpgsql as \
     'begin return set_config(''search_path'', ''sb'', true); end'; \
     create or replace function public.sets_nulls() returns text language sql as \
     'select set_config(''array_nulls'', ''off'', false)'; \
     create or replace function public.sets_equals() returns text language plpgsql as \
     'begin return set_config(''transform_null_equals'', ''on'', true); end'; \
     create or replace function public.sets_behind() returns trigger language plpgsql as \
     'begin set local array_nulls = off; return null; end'; \
     create table if not exists public.set_behind (name text); \
     drop trigger if exists sets on set_behind; \
     create trigger sets after insert on set_behind for each row execute function sets_behind()";
const TABLES: &str = "create schema sb; create table sb.of_b (kind text); insert into sb.of_b values ('b'); \
     drop table if exists public.of_b; create table public.of_b (kind text); insert into public.of_b values ('public'); \
     create or replace view public.told as select current_setting('search_path') || current_setting('array_nulls') || \
     current_setting('transform_null_equals') || current_setting('bytea_output') as all_of_them";

/// What sets, and a statement that reads it.
const SETS: [(&str, &str); 5] = [
    ("select public.sets_path()", "select kind from of_b"),
    ("select public.sets_path_locally()", "select kind from of_b"),
    ("select public.sets_nulls()", "select ('{NULL}'::text[])[1] is null"),
    ("select public.sets_equals()", "select case when null::int = null then 'on' else 'off' end"),
    ("insert into public.set_behind values ('array_nulls')", "select ('{NULL}'::text[])[2] is null"),
];

fn started(server: u16) -> Weir {
    Peer::new(server).answers(&[Query(FUNCTIONS)]);
    Weir::start(server, "session_state = keep\ndefault_pool_size = 1")
}

/// Weir on one server, and the server itself: a conversation on each, whose answers are told.
fn of_both(server: u16, weir: &Weir, what: impl Fn(u16) -> Vec<Vec<String>>) -> [Vec<Vec<String>>; 2] {
    [server, weir.port].map(|port| {
        Peer::new(server).answers(&[Query(CLEAR), Query(TABLES)]);
        what(port)
    })
}

fn is_lost(answers: &[Vec<String>]) -> bool {
    answers.iter().flatten().any(|told| told.ends_with("does not exist any more"))
}

#[test]
fn what_a_function_sets_stays_set() {
    [14, 18].map(trusting_cluster).iter().for_each(|cluster| stays_set(cluster.port()));
}

/// Within its transaction, whatever is parsed or brought to the server meanwhile; and what was parsed under it means the same behind it.
pub fn stays_set(server: u16) {
    let weir = started(server);
    for (set, text) in SETS {
        for name in ["", "s"] {
            for (sync, set) in [(0, &[Query(set)][..]), (0, &[Parse("", set), Run(""), Sync]), (2, &[Query(set)])] {
                for (by_block, in_one) in [(true, true), (true, false), (false, true)] {
                    let begin: &[Say] = if by_block { &[Query("begin")] } else { &[] };
                    let end: &[Say] = if by_block { &[Query("commit")] } else { &[] };
                    let syncs = [Sync; 2];
                    let uses = [Parse(name, text), Sync, Run(name), Sync, Query("table public.told")];
                    let inserts = Query("insert into of_b values ('new')");
                    let behind = [Query("table sb.of_b"), Query("table public.of_b"), Query("table public.told")];
                    let all = [begin, set, &syncs[..sync], &uses, &[inserts], end, &behind].concat();
                    let [alone, shared] = of_both(server, &weir, |port| {
                        let mut peers = [(); 2].map(|()| Peer::new(port));
                        let mut answers = match in_one {
                            true => vec![peers[0].answers(&all)],
                            false => {
                                all.split_inclusive(super::is_answered).map(|says| peers[0].answers(says)).collect()
                            }
                        };
                        peers[1].answers(&[Query("select 1")]);
                        answers.push(peers[0].answers(&[Run(name), Sync]));
                        answers
                    });
                    // An unnamed one that outlives a transaction which has set something is not asked for.
                    let (last, before) = (shared.len() - 1, &shared[..shared.len() - 1]);
                    let may_be_lost = name.is_empty() && alone[..last] == *before && is_lost(&shared[last..]);
                    assert!(
                        alone == shared || may_be_lost,
                        "{set:?}; {text} as {name:?}, {by_block}, {in_one}: {alone:?}, {shared:?}",
                        set = set.len()
                    );
                }
            }
        }
    }
}

#[test]
fn what_a_function_sets_is_nobody_elses() {
    [14, 18].map(trusting_cluster).iter().for_each(|cluster| is_nobody_elses(cluster.port()));
}

/// A statement that several have, and that PostgreSQL analyses anew, as its table has changed, while one of them has set something.
pub fn is_nobody_elses(server: u16) {
    const LOCAL: &[(&str, &str)] = &[
        ("set array_nulls = off", "select ('{NULL}'::text[])[1] is null, kind from public.of_b"),
        ("set local array_nulls = off", "select ('{NULL}'::text[])[1] is null, kind from public.of_b"),
        ("select public.sets_nulls()", "select ('{NULL}'::text[])[1] is null, kind from public.of_b"),
        (
            "insert into public.set_behind values ('array_nulls')",
            "select ('{NULL}'::text[])[1] is null, kind from public.of_b",
        ),
        (
            "select public.sets_equals()",
            "select case when null::int = null then 'on' else 'off' end, kind from public.of_b",
        ),
        ("select public.sets_path()", "select kind from of_b"),
    ];
    let weir = started(server);
    for (set, text) in LOCAL {
        for (end, leaves) in [("commit", false), ("rollback", false), ("commit", true)] {
            for in_one in [true, false] {
                let [alone, shared] = of_both(server, &weir, |port| {
                    let mut peers = [(); 3].map(|()| Peer::new(port));
                    let mut other = Peer::new(server);
                    let uses = [Parse("s", text), Run("s"), Sync];
                    peers[0].answers(&uses);
                    peers[1].answers(&uses);
                    let alters = [Query("alter table public.of_b alter kind set statistics 7")];
                    if in_one {
                        other.answers(&alters);
                        peers[1].answers(&[Query("begin"), Query(set), Run("s"), Sync, Query(end)]);
                    } else {
                        peers[1].answers(&[Query("begin")]);
                        peers[1].answers(&[Query(set)]);
                        other.answers(&alters);
                        peers[1].answers(&[Run("s"), Sync]);
                        peers[1].answers(&[Query(end)]);
                    }
                    if leaves {
                        peers[1] = Peer::new(port);
                    }
                    let again = peers[0].answers(&[Run("s"), Sync]);
                    vec![again, peers[2].answers(&uses), peers[2].answers(&[Query("table public.told")])]
                });
                assert_eq!(alone, shared, "{set}; {text}, {end}, {leaves}, {in_one}");
            }
        }
    }
}

#[test]
fn what_is_set_as_it_is_parsed_is_nobody_elses() {
    [14, 18].map(trusting_cluster).iter().for_each(|cluster| is_set_as_it_is_parsed(cluster.port()));
}

/// By the check of a domain, for an array of it: what is parsed behind it is the client's own, and means what it would in a session of its own.
pub fn is_set_as_it_is_parsed(server: u16) {
    const TEXT: &str = "select ('{NULL}'::text[])[1] is null, kind from public.of_b";
    const CHECKS: &str = "do $$ begin if to_regtype('public.sets_session') is null then \
         create function public.checks(local bool) returns bool language plpgsql as \
         'begin perform set_config(''array_nulls'', ''off'', local); return true; end'; \
         create domain public.sets_session as int check (public.checks(false)); \
         create domain public.sets_local as int check (public.checks(true)); end if; end $$";
    Peer::new(server).answers(&[Query(CHECKS)]);
    let weir = started(server);
    for sets in ["select '{1}'::public.sets_session[]", "select '{1}'::public.sets_local[]"] {
        let [set, parse, begin, commit] = [Parse("f", sets), Parse("s", TEXT), Query("begin"), Query("commit")];
        let begins = [Parse("b", "begin"), Run("b")];
        let ways: &[&[&[Say]]] = &[
            &[&[set, parse, Sync]],
            &[&[set, Sync, parse, Sync]],
            &[&[set, Sync, begin, parse, Sync], &[commit]],
            &[&[begins[0], begins[1], set, Sync], &[parse, Sync], &[commit]],
            &[&[begins[0], begins[1], set, parse, Sync], &[commit]],
            &[&[begin], &[set, parse, Sync], &[commit]],
            &[&[set, parse, Parse("", "nonsense"), Sync]],
        ];
        for (way, writes) in ways.iter().enumerate() {
            let [alone, shared] = of_both(server, &weir, |port| {
                let mut peers = [(); 3].map(|()| Peer::new(port));
                let uses = [Parse("s", TEXT), Run("s"), Sync];
                let mut answers = vec![peers[1].answers(&uses)];
                answers.extend(writes.iter().map(|says| peers[0].answers(says)));
                let again = [Run("s"), Sync];
                answers.extend([peers[1].answers(&again), peers[0].answers(&again), peers[2].answers(&uses)]);
                answers
            });
            assert_eq!(alone, shared, "{sets}, {way}");
        }
    }
}
