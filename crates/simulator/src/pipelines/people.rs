//! Who the clients are: startup packets that differ, a schema for each with tables of its own shape, and what each may do.

/// Kinds of things that pipelines do, so that a run can leave some out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Deed {
    /// SET, SET LOCAL, set_config of reported parameters.
    Set,
    /// RESET of them, and RESET ALL.
    Reset,
    /// DISCARD ALL.
    Discard,
    /// DEALLOCATE ALL.
    Deallocate,
    /// COPY both ways.
    Copy,
    /// DDL that changes the types of results.
    Rows,
    /// DDL that changes the types of parameters.
    Types,
    /// Statements that read differently under other parameters.
    Read,
    /// Unreported parameters changed where no command tag tells; names of statements in SQL.
    Vandal,
    /// What PostgreSQL carries out only outside a transaction block.
    Alone,
    /// Clients that leave in the middle.
    Vanish,
    /// Errors.
    Fail,
    /// Transactions, savepoints.
    Transaction,
    /// Named statements.
    Named,
    /// Unnamed statements that are bound again later.
    Unnamed,
    /// Named portals and row limits.
    Portal,
    /// Simple queries in a batch that no Sync has ended.
    Unsynced,
    /// Parameters changed where nothing tells, and statements that are analysed anew.
    Mislead,
    /// Function calls; not where Weir keeps session state: the first in a transaction may be refused there, and its server stays with its client.
    Call,
    /// Session state of all kinds that outlives its transaction: only where Weir keeps it (`session_state=keep` among the settings).
    Hold,
    /// Such as keeps a server for its client; without it what follows the client is left, and fewer servers than clients do.
    Pin,
}

/// Functions that leave session state, by their own, a trigger's, a view's and a default's name.
const LEAVING: &str = "\
    create or replace function leave(what text) returns text language plpgsql as 'begin execute what; return what; end'; \
    create or replace function leave_lock(n int) returns int language plpgsql as 'begin perform pg_advisory_lock(n); return n; end'; \
    create or replace function leave_mark(mark text) returns text language plpgsql as \
    'begin perform set_config(''held.mark'', mark, false); return mark; end'; \
    create sequence if not exists held_ids; \
    create or replace function leave_number(n int) returns bigint language plpgsql as \
    'begin perform setval(''public.held_ids'', n); return currval(''public.held_ids''); end'; \
    create or replace function leave_memory() returns int language sql as \
    'select length(set_config(''work_mem'', ''3MB'', false))'; \
    create or replace view leaving as select leave_memory() as one; \
    create table if not exists left_by (mark text default leave_mark('none'), x int); \
    create or replace function leave_row() returns trigger language plpgsql as \
    'begin perform leave_mark(new.mark); return null; end'; \
    create or replace trigger leave_row before insert on left_by for each row execute function leave_row(); \
    ";

/// Whom sessions may become, beside what they are: one who may read and write all, and change no table; and one who may do all.
pub const ROLES: &str = "\
    create role held_reader in role pg_read_all_data, pg_write_all_data; create role held_ruler superuser";

/// Functions that set a parameter, by their own, a trigger's and a view's name, and one that PostgreSQL takes for immutable though it reads one.
/// It has no literal of a zone: a session reads those of a function's body when it first runs it (docs/pooling-modes.md).
const MISLEADING: &str = "\
    create or replace function quietly(name text, value text, local bool) returns int language plpgsql as \
    'begin perform set_config(name, value, local); return 1; end'; \
    create or replace procedure quiet(name text, value text, local bool) language plpgsql as \
    'begin perform set_config(name, value, local); end'; \
    create or replace view quiet_view as select quietly('TimeZone', 'Asia/Tokyo', true) as one; \
    create table if not exists tricked (zone text); \
    create or replace function trick() returns trigger language plpgsql as \
    'begin perform set_config(''TimeZone'', new.zone, true); return null; end'; \
    create or replace trigger trick before insert on tricked for each row execute function trick(); \
    create or replace function zoned() returns bigint immutable language plpgsql as \
    'begin return extract(epoch from ''2020-06-01 00:00:00''::text::timestamptz)::bigint; end'";

/// Schemas of each client, taken in turn: what a client that vanished had sent may be carried out a while later.
const PLACES: usize = 4;
/// From this client on each second one misleads, and the others are innocent.
const MISLEADERS: usize = 8;

/// One client: the number decides everything about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Person {
    pub number: usize,
    place: usize,
}

impl Person {
    pub fn new(number: usize) -> Self {
        Self { number, place: 0 }
    }

    /// In an episode.
    pub fn at(self, episode: u64) -> Self {
        Self { place: (episode % PLACES as u64) as usize, ..self }
    }

    pub fn schema(self) -> String {
        format!("c{}_{}", self.number, self.place)
    }

    /// Stands in each row and text that is this client's own.
    pub fn mark(self) -> String {
        format!("@{}@", self.number)
    }

    /// Changes what others rely on; its own statements do not rely on it.
    pub fn vandal(self) -> bool {
        self.number == 4
    }

    /// Has no startup parameters, like others of this kind: a server goes from one to the other without a word between.
    pub fn plain(self) -> bool {
        self.number > 4
    }

    /// Has functions set what parsing reads, and PostgreSQL analyse statements anew at any moment. What its own literals mean then is not
    /// compared.
    pub fn misleads(self) -> bool {
        self.number >= MISLEADERS && self.number.is_multiple_of(2)
    }

    /// Sets nothing, and uses the statements of those who mislead: each of its literals means always the same.
    pub fn innocent(self) -> bool {
        self.number >= MISLEADERS && !self.misleads()
    }

    /// Names its tables with their schema.
    pub fn qualifies(self) -> bool {
        self.vandal() || self.plain()
    }

    /// Changes its tables' shape. Others never do, so that nothing excuses "cached plan must not change result type".
    pub fn alters(self) -> bool {
        self.number.is_multiple_of(3) && self.number < MISLEADERS
    }

    /// All values in PostgreSQL's own spelling, as what it reports back is compared.
    pub fn startup(self) -> Vec<(&'static str, String)> {
        const ZONES: [&str; 4] = ["UTC", "America/New_York", "Asia/Tokyo", "Europe/Berlin"];
        const DATES: [&str; 3] = ["ISO, MDY", "ISO, DMY", "German, DMY"];
        if self.plain() {
            return Vec::new();
        }
        // The vandal's are another's, so that a pooler has no cause to bring the server from one to the other.
        let number = if self.vandal() { 1 } else { self.number };
        let mut options = format!("-c search_path={}", Self { number, ..self }.schema());
        if number % 2 == 1 {
            options += &format!(" -c statement_timeout={}s", 70 + number);
        }
        if number % 4 == 2 {
            options += " -c standard_conforming_strings=off";
        }
        let mut parameters = vec![("application_name", format!("number {number}")), ("options", options)];
        parameters.push(("TimeZone", ZONES[number % 4].to_owned()));
        if !number.is_multiple_of(5) {
            parameters.push(("DateStyle", DATES[number % 3].to_owned()));
        }
        if number.is_multiple_of(2) {
            parameters.push(("IntervalStyle", ["postgres", "sql_standard"][number / 2 % 2].to_owned()));
        }
        parameters
    }

    /// Makes all of this client's schemas, and the table that all plain clients name alike.
    pub fn schemas(self) -> String {
        let schemas = (0..PLACES).map(|place| {
            format!(
                "create schema if not exists {0}; create or replace view {0}.seen as select 1 as one; ",
                Self { place, ..self }.schema()
            )
        });
        let common = "create table if not exists public.common as select generate_series(1, 12) as x";
        format!("set client_min_messages = warning; {}{common}; {MISLEADING}; {LEAVING}", schemas.collect::<String>())
    }

    /// Makes what is in this client's schema anew; not the schema, since then PostgreSQL would analyse each statement of every
    /// session again, under the parameters of that moment (`PlanCacheSysCallback`, src/backend/utils/cache/plancache.c). It does so
    /// too in a session that falls 4096 messages behind what others change in the catalog (`resetState` and `MAXNUMMESSAGES`,
    /// src/backend/storage/ipc/sinvaladt.c), so tables that nobody alters are emptied.
    /// The shape of `shaped` is the client's own; `typed` is the same for all.
    pub fn setup(self) -> String {
        let (schema, mark) = (self.schema(), self.mark());
        let shape = match self.number % 3 {
            0 => "mark text, x int",
            1 => "mark text, x text, y int",
            _ => "x bigint, mark text",
        };
        let extra = if self.misleads() { format!("drop schema if exists {schema}_extra; ") } else { String::new() };
        let drops = if self.alters() { "drop table if exists own, items, shaped, typed; " } else { "" };
        format!(
            "set client_min_messages = warning; set search_path = {schema}; {extra}{drops}\
             create table if not exists own (mark text); delete from own; insert into own values ('{mark}'); \
             create table if not exists items (id int primary key, note text); delete from items; \
             create table if not exists shaped ({shape}); delete from shaped; \
             insert into shaped (mark, x) values ('{mark}', '7'); \
             create table if not exists typed (mark text, x int); delete from typed; \
             insert into typed values ('{mark}', 7); \
             create table if not exists never (id int primary key); \
             create table if not exists later (id int references never deferrable initially deferred); \
             delete from later; reset search_path"
        )
    }
}
