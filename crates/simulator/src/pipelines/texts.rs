//! The statements that pipelines are made of. Those without a client's mark in their text are the same for all clients, so
//! that a pooler may share them: their rows tell whose they are all the same.
//!
//! Only where Weir keeps it (`Deed::Hold`), since otherwise it is whoever's gets the server next: SET of a parameter that is not
//! reported, temporary tables that outlive their transaction, session advisory locks, LISTEN, SQL PREPARE, cursors WITH HOLD.

use super::people::{Deed, Person};
use super::steps::Text;
use crate::rng::Rng;

/// One that stands alone or with others in a transaction.
pub fn any(rng: &mut Rng, person: Person, may: &dyn Fn(Deed) -> bool) -> Text {
    if person.misleads() && may(Deed::Mislead) && rng.chance(300) {
        return set_quietly(rng);
    }
    if may(Deed::Hold) && rng.chance(300) {
        return held(rng, person, may(Deed::Pin));
    }
    if (person.misleads() || person.innocent()) && rng.chance(450) {
        return read_alike(rng);
    }
    let drawn = match rng.below(30) {
        0..=6 => own(rng, person),
        7..=9 if person.plain() && rng.chance(400) => common(),
        7..=9 => shared(rng),
        // PostgreSQL reads a statement again when search_path is not what it was (`RevalidateCachedQuery`, plancache.c), so a vandal's
        // would depend on what it has changed.
        10..=12 if may(Deed::Read) && !person.vandal() && !person.misleads() => read(rng),
        13..=15 => write(rng, person),
        16 | 17 if may(Deed::Set) => set(rng),
        18 if may(Deed::Reset) => reset(rng),
        19 if may(Deed::Discard) && rng.chance(300) => Text::new("discard all", 0),
        20 if may(Deed::Deallocate) && rng.chance(400) => Text::new("deallocate all", 0),
        21 if may(Deed::Copy) => Text::new("copy (select mark, 1 from own) to stdout", 0),
        22 if may(Deed::Rows) && person.alters() => change_rows(rng),
        23 if may(Deed::Types) && person.alters() => change_types(rng, person),
        24 | 25 => rows(rng, person),
        26 if may(Deed::Alone) => Text::new("vacuum items", 0),
        27 if may(Deed::Fail) && rng.chance(300) => violates_later(),
        _ => state(rng, person),
    };
    qualified(drawn, person)
}

/// A vandal's statements rely on nothing that it may have changed, and plain clients have no search_path of their own.
pub fn qualified(mut text: Text, person: Person) -> Text {
    if person.qualifies() {
        for table in ["own", "items", "shaped", "typed", "later"] {
            for before in ["from ", "into ", "table ", "vacuum "] {
                text.sql =
                    text.sql.replace(&format!("{before}{table}"), &format!("{before}{}.{table}", person.schema()));
            }
        }
    }
    text
}

fn own(rng: &mut Rng, person: Person) -> Text {
    let mark = person.mark();
    match rng.below(4) {
        0 => Text::new(format!("select '{mark}' as mine, {}", rng.below(1_000_000)), 0),
        1 => Text::new(format!("select '{mark}' as mine, $1::text, {}", rng.below(1_000_000)), 1),
        2 => Text::new(format!("insert into items (id, note) values ({}, '{mark}') returning note", rng.below(40)), 0),
        _ => Text::new(format!("select '{mark}' as mine, count(*) from own"), 0),
    }
}

fn shared(rng: &mut Rng) -> Text {
    let texts: [(&str, u16); 8] = [
        ("select mark from own {n}", 0),
        ("select mark, $1::text from own {n}", 1),
        ("select * from shaped {n}", 0),
        ("select mark, current_setting('application_name') from own", 0),
        ("", 0),
        ("select mark, x from typed where x = $1 {n}", 1),
        ("select * from shaped where mark like '@%' {n}", 0),
        ("select $1::int + 1, mark from own {n}", 1),
    ];
    let (sql, parameters) = *rng.pick(&texts);
    Text::new(sql, parameters)
}

/// Of the table that all plain clients name alike.
pub fn common() -> Text {
    Text::new("select x from common where x = $1", 1)
}

/// The same name for another table, for this client and up to the end of its transaction.
pub fn other_common() -> Text {
    Text::new("create temp table common (x text) on commit drop", 0)
}

/// Violates a constraint that is looked at when it is committed.
pub fn violates_later() -> Text {
    Text::new("insert into later values (1)", 0)
}

/// Makes session state, looks at it, or ends it.
fn held(rng: &mut Rng, person: Person, pins: bool) -> Text {
    let mark = person.mark();
    let lock = person.number * 10 + rng.below(3) as usize;
    // What follows its client, and a look at it.
    let kind = if pins { rng.below(11) } else { *rng.pick(&[0, 0, 7, 10]) };
    let sql = match kind {
        7 => hidden(rng, &mark, lock, pins),
        8 => (*rng.pick(&ROLES)).to_owned(),
        // Its own transaction's: a later one's `currval` is an error through Weir (docs/session-state.md).
        9 if rng.chance(500) => format!("select setval('public.held_ids', {lock}), currval('public.held_ids')"),
        9 => "select nextval('public.held_ids') = lastval(), lastval() = currval('public.held_ids')".to_owned(),
        0 => parameter_of_its_own(rng, &mark),
        1 => (*rng.pick(&[
            "create temp table held (note text)",
            "create temp table held on commit drop as select 1 as note",
            "create temp view held as select 2 as note",
            "drop table held",
            "discard temp",
        ]))
        .to_owned(),
        2 => match rng.below(3) {
            0 => format!("insert into held values ('{mark}') returning note"),
            1 => "select note from pg_temp.held".to_owned(),
            _ => format!("create temp table held as select '{mark}'::text as note"),
        },
        3 => match rng.below(5) {
            0 => format!("select pg_advisory_lock({lock})"),
            1 => format!("select pg_try_advisory_lock_shared({lock})"),
            2 => format!("select pg_advisory_unlock({lock})"),
            3 => format!("select pg_advisory_xact_lock({lock})"),
            _ => "select pg_advisory_unlock_all()".to_owned(),
        },
        4 => match rng.below(3) {
            0 => format!("listen held_{}", rng.below(2)),
            1 => "unlisten *".to_owned(),
            _ => "unlisten held_1".to_owned(),
        },
        5 => (*rng.pick(&[
            "declare held cursor with hold for select generate_series(1, 5)",
            "fetch 2 from held",
            "close held",
            "close all",
        ]))
        .to_owned(),
        6 => match rng.below(8) {
            0 => format!("prepare held as select '{mark}'"),
            1 => "deallocate held".to_owned(),
            2 | 3 => "execute held".to_owned(),
            // What the protocol has prepared.
            4 => "select string_agg(concat_ws(' ', name, statement, from_sql), ' ' order by name) from pg_prepared_statements"
                .to_owned(),
            5 => format!("prepare s{} as select '{mark}'", rng.between(1, 3)),
            6 => format!("execute s{}", rng.between(1, 3)),
            _ => format!("deallocate s{}; select '{mark}'", rng.between(1, 3)),
        },
        _ => "select (select count(*) from pg_class where relnamespace = pg_my_temp_schema()), \
              (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), \
              (select string_agg(c, ' ' order by c) from pg_listening_channels() c), \
              (select string_agg(name, ' ' order by name) from pg_cursors where is_holdable), \
              (select string_agg(name, ' ' order by name) from pg_prepared_statements where from_sql), \
              current_user, session_user, current_setting('work_mem'), current_setting('lock_timeout'), \
              nullif(current_setting('held.mark', true), '')"
            .to_owned(),
    };
    Text::new(sql, 0)
}

/// Makes the session another user's, and takes that back.
const ROLES: [&str; 9] = [
    "set role held_reader",
    "set role held_ruler",
    "set local role held_reader",
    "set role none",
    "reset role",
    "set session authorization held_reader",
    "set local session authorization held_ruler",
    "set session authorization default",
    "reset session authorization",
];

/// The same, where no word of the text tells.
fn hidden(rng: &mut Rng, mark: &str, lock: usize, pins: bool) -> String {
    match if pins { rng.below(9) } else { rng.between(1, 4) } {
        7 => format!("select public.leave_number({lock})"),
        8 => format!("select public.leave('{}')", rng.pick(&ROLES)),
        0 => format!("select public.leave_lock({lock})"),
        1 => format!("select public.leave_mark('{mark}')"),
        2 => "select one from public.leaving".to_owned(),
        3 => format!("insert into public.left_by (mark) values ('{mark}')"),
        4 => "insert into public.left_by (x) values (1)".to_owned(),
        5 => format!("select public.leave('listen held_{}')", rng.below(2)),
        _ => "select public.leave('create temp table held (note text)')".to_owned(),
    }
}

/// Sets or takes back what PostgreSQL does not report.
fn parameter_of_its_own(rng: &mut Rng, mark: &str) -> String {
    let megabytes = rng.between(1, 9);
    match rng.below(14) {
        0 => format!("set work_mem = '{megabytes}MB'"),
        1 => format!("set local work_mem = '{megabytes}MB'"),
        2 => format!("select length(set_config('lock_timeout', '{megabytes}s', false))"),
        3 => format!("set held.mark = '{mark}'"),
        4 => format!(
            "do $$begin perform set_config('held.mark', '{mark}', false); set work_mem = '{megabytes}MB'; end$$"
        ),
        5 => format!(
            "explain (analyze, costs off, timing off, summary off) select set_config('work_mem', '{megabytes}MB', false)"
        ),
        6 => "reset work_mem".to_owned(),
        7 | 9 => "reset held.mark".to_owned(),
        10 => "set held.mark = ''".to_owned(),
        11 => "reset all".to_owned(),
        12 | 13 => format!("set held.mark = '{mark}'"),
        _ => "reset lock_timeout".to_owned(),
    }
}

/// What parsing reads from the session's parameters.
fn read(rng: &mut Rng) -> Text {
    let texts: [&str; 7] = [
        "select extract(epoch from timestamptz '2020-06-01 00:00:00')::bigint {n}",
        "select extract(epoch from timestamptz '2020-06-01 00:00:00')::bigint, mark from own {n}",
        "select extract(month from date '01/02/2020')::int {n}",
        "select extract(epoch from interval '-1 2:00:00')::bigint {n}",
        r"select length('a\\b') {n}",
        "select timestamptz '2020-01-01 00:00+00', interval '-1 2:00:00' {n}",
        "select current_setting('TimeZone'), current_setting('DateStyle'), mark from own {n}",
    ];
    Text::new(*rng.pick(&texts), 0)
}

/// What parsing or planning reads from the parameters, in texts that all share for as long as a run takes; each result is a number.
pub fn read_alike(rng: &mut Rng) -> Text {
    let texts: [(&str, u16); 7] = [
        ("select extract(epoch from timestamptz '2020-06-01 00:00:00')::bigint", 0),
        ("select extract(epoch from timestamptz '2020-06-01 00:00:00')::bigint + $1::int", 1),
        ("select extract(month from date '01/02/2020')::int", 0),
        ("select extract(epoch from interval '-1 2:00:00')::bigint", 0),
        (r"select length('a\\b')", 0),
        ("select zoned()", 0),
        ("select zoned() + $1::int", 1),
    ];
    let (sql, parameters) = *rng.pick(&texts);
    Text::new(sql, parameters)
}

/// What sets what they read, and tells nobody.
pub fn set_quietly(rng: &mut Rng) -> Text {
    let (name, value) = *rng.pick(&VALUES);
    let local = rng.chance(700);
    let sql = match rng.below(9) {
        0..=3 => format!("select quietly('{name}', '{value}', {local})"),
        4 => format!("call quiet('{name}', '{value}', {local})"),
        5 => format!("do $$begin perform quietly('{name}', '{value}', {local}); end$$"),
        6 => "select one from quiet_view".to_owned(),
        7 => "insert into tricked values ('America/New_York')".to_owned(),
        _ => format!("set local {name} = '{value}'"),
    };
    Text::new(sql, 0)
}

/// What has PostgreSQL analyse and plan all statements again.
pub fn replan(rng: &mut Rng, person: Person) -> Text {
    let sql = match rng.below(4) {
        0 => format!("create schema if not exists {}_extra", person.schema()),
        1 => format!("drop schema if exists {}_extra", person.schema()),
        _ => "discard plans".to_owned(),
    };
    Text::new(sql, 0)
}

/// Whether it is one whose rows depend on what its parsing read.
pub fn reads_literals(text: &Text) -> bool {
    ["timestamptz '", "date '", "interval '", r"'a\\b'"].iter().any(|literal| text.sql.contains(literal))
}

fn write(rng: &mut Rng, person: Person) -> Text {
    match rng.below(4) {
        0 => Text::new("insert into items (id) values ($1) returning id {n}", 1),
        1 => Text::new(format!("insert into items (id, note) values ({}, '{}')", rng.below(30), person.mark()), 0),
        2 => Text::new(format!("delete from items where id % 3 = {}", rng.below(3)), 0),
        _ => Text::new(format!("insert into items (id) values ({}), ({})", rng.below(60), rng.below(60)), 0),
    }
}

pub fn transaction(rng: &mut Rng) -> Text {
    let texts = [
        "begin",
        "begin",
        "begin",
        "commit",
        "commit",
        "commit and chain",
        "rollback and chain",
        "rollback",
        "savepoint a",
        "rollback to savepoint a",
        "release savepoint a",
    ];
    Text::new(*rng.pick(&texts), 0)
}

/// What parsing reads, and PostgreSQL reports.
const VALUES: [(&str, &str); 10] = [
    ("TimeZone", "UTC"),
    ("TimeZone", "America/New_York"),
    ("TimeZone", "Asia/Tokyo"),
    ("DateStyle", "ISO, MDY"),
    ("DateStyle", "ISO, DMY"),
    ("DateStyle", "SQL, DMY"),
    ("IntervalStyle", "sql_standard"),
    ("IntervalStyle", "postgres"),
    ("standard_conforming_strings", "off"),
    ("standard_conforming_strings", "on"),
];

fn set(rng: &mut Rng) -> Text {
    let (name, value) = *rng.pick(&VALUES);
    match rng.below(6) {
        0 => Text::new(format!("set local {name} = '{value}'"), 0),
        1 => Text::new(format!("select set_config('{name}', '{value}', false)"), 0),
        2 => Text::new(format!("select set_config('{name}', '{value}', true)"), 0),
        3 => Text::new(format!("do $$begin perform set_config('{name}', '{value}', false); end$$"), 0),
        _ => Text::new(format!("set {name} = '{value}'"), 0),
    }
}

fn reset(rng: &mut Rng) -> Text {
    Text::new(*rng.pick(&["reset timezone", "reset datestyle", "reset intervalstyle", "set timezone to default"]), 0)
}

/// A statement that returns what a prepared statement or a cursor returns.
pub fn returns_anothers(text: &Text) -> bool {
    ["execute ", "fetch "].iter().any(|begins| text.sql.starts_with(begins))
}

fn change_rows(rng: &mut Rng) -> Text {
    let texts = [
        "alter table shaped add column z int default 3",
        "alter table shaped drop column z",
        "alter table shaped add z text",
    ];
    Text::new(*rng.pick(&texts), 0)
}

fn change_types(rng: &mut Rng, person: Person) -> Text {
    if person.plain() && rng.chance(300) {
        return other_common();
    }
    let texts =
        ["alter table typed alter column x type text", "alter table typed alter column x type int using x::int"];
    Text::new(*rng.pick(&texts), 0)
}

pub fn rows(rng: &mut Rng, person: Person) -> Text {
    let mark = person.mark();
    Text::new(format!("select '{mark}' as mine, generate_series(1, {})", rng.below(8)), 0)
}

/// What earlier statements left behind, and what the session was given when it began.
fn state(rng: &mut Rng, person: Person) -> Text {
    match rng.below(2) {
        0 => Text::new("select mark, held.* from own, lateral (select count(*), sum(id) from items) held", 0),
        _ if person.vandal() => Text::new("select mark from own", 0),
        _ => Text::new("select mark, current_setting('statement_timeout'), current_setting('search_path') from own", 0),
    }
}

pub fn failing(rng: &mut Rng, person: Person) -> Text {
    let texts: [(&str, u16); 8] = [
        ("select 1/0 {n}", 0),
        ("select 1/0", 0),
        ("select 10/($1::int - 7) {n}", 1),
        ("select nothing {n}", 0),
        ("selec", 0),
        ("select * from missing", 0),
        ("insert into items values (1), (1)", 0),
        ("select 'no number'::int", 0),
    ];
    let (sql, parameters) = *rng.pick(&texts);
    qualified(Text::new(sql, parameters), person)
}

/// What changes an unreported parameter without a tag that says so, or takes names that a pooler may use. Its rows are
/// the same wherever it runs.
pub fn vandal(rng: &mut Rng) -> Text {
    let texts = [
        "select length(set_config('search_path', 'public', false))",
        "select length(set_config('statement_timeout', '61s', false))",
        "do $$begin perform set_config('search_path', 'nowhere', false); end$$",
        "do $$begin perform set_config('statement_timeout', '62s', false); end$$",
        "select length(set_config('transform_null_equals', 'on', false))",
        "explain (analyze, costs off, timing off, summary off) select set_config('search_path', 'public', false)",
        "do $$begin execute 'prepare \"weir absent\" as select 1'; exception when others then end$$",
        "do $$begin execute 'prepare weir_0_1 as select 666'; exception when others then end$$",
        "do $$begin execute 'deallocate weir_0_1'; exception when others then end$$",
        "do $$begin execute 'deallocate weir_0_2'; execute 'prepare weir_0_2 as select 666'; exception when others then end$$",
    ];
    Text::new(*rng.pick(&texts), 0)
}
