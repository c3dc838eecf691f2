//! What parsing and planning read of a session's parameters: the part of a prepared statement's meaning that is not in its
//! text.

use crate::parameters::{Parameter, ParameterSet, SEARCH_PATH, compare_names, is_role, same_name};
use crate::sql::{Tokens, name_of};
use crate::writing::{as_set, write_as_set, write_has_default, write_literal, write_name, write_set_config};

/// What PostgreSQL itself reads in parsing and planning of parameters that it does not report (14 to 18).
const READ_UNREPORTED: [&str; 11] = [
    "array_nulls",
    "backslash_quote",
    "bytea_output",
    "extra_float_digits",
    "lc_monetary",
    "role",
    "search_path",
    "timezone_abbreviations",
    "transform_null_equals",
    "xmlbinary",
    "xmloption",
];

/// Those of them that say where names are looked up; the role for its "$user".
const LOOKS_UP: [&str; 2] = ["role", "search_path"];

const ROLE: &str = "role";
/// Where the role is kept while others are set.
const ROLE_ASIDE: &[u8] = b"weir.kept_role";

/// A longer SET is taken to set anything.
const SET_LEN_MAX: usize = 256;
const SET: u32 = u32::from_le_bytes(*b"set ");
const SELECT: u32 = u32::from_le_bytes(*b"sele");
/// What makes capital letters small.
const CASE: u32 = 0x2020_2020;

/// Parameters that mean nothing to parsing and planning, and so to what a prepared statement is. All others are part of it:
/// PostgreSQL reads literals when it analyses a statement, under the TimeZone, DateStyle, IntervalStyle, client_encoding,
/// standard_conforming_strings, array_nulls, xmloption, lc_monetary ... of that moment, and names under the search_path, which
/// contains the role; it folds constants when it plans one (`byteaout` and `float8out` are immutable: bytea_output and
/// extra_float_digits are read then). What an extension's parameters do is not known.
const NOT_READ_BY_PARSING: [&str; 36] = [
    "application_name",
    "client_min_messages",
    "commit_delay",
    "commit_siblings",
    "cursor_tuple_fraction",
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "dynamic_library_path",
    "effective_cache_size",
    "extension_control_path",
    "geqo",
    "hash_mem_multiplier",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "in_hot_standby",
    "jit",
    "lc_messages",
    "local_preload_libraries",
    "lock_timeout",
    "log_min_duration_statement",
    "log_min_messages",
    "log_statement",
    "maintenance_work_mem",
    "max_parallel_workers_per_gather",
    "plan_cache_mode",
    "scram_iterations",
    "session_preload_libraries",
    "statement_timeout",
    "synchronous_commit",
    "tcp_keepalives_idle",
    "tcp_user_timeout",
    "temp_buffers",
    "temp_tablespaces",
    "transaction_timeout",
    "work_mem",
];

/// Whether a text begins with SELECT: no other word of SQL begins like it.
#[inline]
pub(crate) fn selects(text: &[u8]) -> bool {
    text.first_chunk().is_some_and(|&word| u32::from_le_bytes(word) | CASE == SELECT)
}

/// Whether a text, which may go on behind a zero byte, is a lone SET of a parameter that parsing and planning do not read.
/// PostgreSQL itself reads none of those with a dot in their names; an extension's functions may, where they are not immutable.
#[inline]
pub(crate) fn sets_unread(text: &[u8]) -> bool {
    text.first_chunk().is_some_and(|&word| u32::from_le_bytes(word) | CASE == SET) && lone_set_of_unread(text)
}

#[cold]
fn lone_set_of_unread(text: &[u8]) -> bool {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.len() > SET_LEN_MAX {
        return false;
    }
    let mut tokens = Tokens::of(text);
    let Some(words) = tokens.statement() else { return false };
    if tokens.statement().is_some() || tokens.are_uncertain() {
        return false;
    }
    let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    let words = match words.as_slice() {
        ["transaction", ..] | ["session", "characteristics", ..] => return true,
        ["session" | "local", words @ ..] => words,
        words => words,
    };
    let Some(to) = words.iter().position(|word| matches!(*word, "to" | "=")) else { return false };
    let name = name_of(&words[..to]);
    name.contains('.') || !is_read(&name)
}

/// Whether a parameter of this name means anything to parsing or planning.
pub(crate) fn is_read(name: &str) -> bool {
    NOT_READ_BY_PARSING.binary_search_by(|known| compare_names(known, name)).is_err()
}

impl ParameterSet {
    /// Those of the values that parsing reads.
    pub(super) fn read_by_parsing(&self) -> Self {
        let mut read = Self::default();
        for parameter in self.iter().filter(|parameter| is_read(&parameter.name)) {
            read.set(&parameter.name, &parameter.value, parameter.reported);
        }
        read
    }

    /// The query that brings these values to those of `wanted`, up to the transaction's end; empty where they agree.
    pub(crate) fn local_settings(&self, wanted: &Self) -> Vec<u8> {
        let mut sql = Vec::new();
        // Those get their defaults that it has no value of.
        let is_gone = |ours: &&Parameter| wanted.get(&ours.name).is_none_or(Parameter::is_blank) && !ours.is_blank();
        let gone = || self.iter().filter(is_gone);
        for own in gone().filter(|own| is_role(&own.name)).chain(gone().filter(|own| !is_role(&own.name))) {
            separate(&mut sql);
            write_set(&mut sql, own.name.as_bytes(), |sql| sql.extend_from_slice(b"NULL"));
        }
        let differs = |theirs: &&Parameter| self.get(&theirs.name).is_none_or(|ours| ours.value != theirs.value);
        write_settings(sql, wanted.iter().filter(differs), b",true)")
    }

    /// The statements that set those of these values that are chosen, amid a transaction. What SET can do takes no snapshot, so that
    /// the transaction's own first query still does (`PlannedStmtRequiresSnapshot`, src/backend/tcop/pquery.c at 18): that is what
    /// everybody may set, whatever role the session has, and is no list of names (`GUC_LIST_QUOTE`), of which a string would be one.
    pub(crate) fn settings_amid(&self, chosen: impl Fn(&Parameter) -> bool) -> Vec<Vec<u8>> {
        let by_set = |own: &Parameter| own.reported && own.value.is_ascii() && !same_name(&own.name, SEARCH_PATH);
        let sets = self.iter().filter(|own| chosen(own) && by_set(own));
        let others = self.settings(|own| chosen(own) && !by_set(own));
        sets.map(write_plain_set).chain((!others.is_empty()).then_some(others)).collect()
    }

    /// The query that sets those of these values that are chosen, whatever role the session has; empty where none is. A value may be
    /// only the user's to set who has logged in, as it was in the startup packet.
    pub(crate) fn settings(&self, chosen: impl Fn(&Parameter) -> bool) -> Vec<u8> {
        let (roles, others): (Vec<_>, Vec<_>) =
            self.iter().filter(|own| chosen(own)).partition(|own| is_role(&own.name));
        let mut sql = Vec::new();
        // Of what PostgreSQL reports, everybody may set all.
        let aside = others.iter().any(|own| !own.reported);
        if aside {
            separate(&mut sql);
            write_set(&mut sql, ROLE_ASIDE, |sql| write_current(sql, b"role"));
            separate(&mut sql);
            write_set(&mut sql, b"role", |sql| sql.extend_from_slice(b"E'none'"));
        }
        sql = write_settings(sql, others.into_iter(), b",false)");
        if aside {
            separate(&mut sql);
            write_set(&mut sql, b"role", |sql| write_current(sql, ROLE_ASIDE));
        }
        write_settings(sql, roles.into_iter(), b",false)")
    }

    /// The query that brings whatever values there are to these, and keeps the former ones for `unpinning`; both up to the
    /// transaction's end. Those that agree are not touched: some may be nobody's to set. What else is read gets its default.
    pub(crate) fn pinning(&self) -> Vec<u8> {
        self.query_of_each(|sql, kept, name, value| {
            // `set_config` returns what it has set.
            let keep = |sql: &mut Vec<u8>| write_set(sql, kept, |sql| write_current(sql, name));
            match value {
                Some(value) => {
                    let given = |sql: &mut Vec<u8>| write_literal(sql, &as_set(name, value));
                    write_set_unless_equal(sql, name, keep, |sql| write_literal(sql, value), given);
                }
                None => {
                    keep(sql);
                    sql.push(b',');
                    write_set(sql, name, |sql| sql.extend_from_slice(b"NULL"));
                }
            }
        })
    }

    /// The query that asks for these values as they are in its place of a batch; empty where there are none. `others`: also for those that are read
    /// and not reported, where they were set in the session.
    pub(crate) fn asking(&self, others: bool) -> Vec<u8> {
        let mut sql = Vec::new();
        for own in self.iter() {
            separate(&mut sql);
            write_current(&mut sql, own.name.as_bytes());
        }
        if others {
            self.write_asking_for_others(&mut sql);
        }
        sql
    }

    /// PostgreSQL lists them once; the role is on no list.
    #[cold]
    fn write_asking_for_others(&self, sql: &mut Vec<u8>) {
        for name in self.unreported_others() {
            separate(sql);
            if name == ROLE {
                sql.extend_from_slice(
                    b"CASE WHEN pg_catalog.current_setting(E'role')OPERATOR(pg_catalog.<>)E'none' OR ",
                );
                write_has_default(sql, name.as_bytes());
                sql.extend_from_slice(b" THEN pg_catalog.current_setting(E'role')END");
                continue;
            }
            sql.extend_from_slice(b"pg_catalog.max(s.setting)FILTER(WHERE s.name OPERATOR(pg_catalog.=)");
            write_literal(sql, name.as_bytes());
            sql.push(b')');
        }
        sql.extend_from_slice(b" FROM pg_catalog.pg_settings s WHERE s.source OPERATOR(pg_catalog.=)E'session'");
    }

    fn unreported_others(&self) -> impl Iterator<Item = &'static str> {
        READ_UNREPORTED.into_iter().filter(|name| self.get(name).is_none())
    }

    /// These with the values of the answer to `asking`; `None` where that has not all of them, or some in another encoding than the server's.
    pub(crate) fn answered(&self, values: &[Option<&[u8]>], server_encoding: &[u8]) -> Option<Self> {
        let mut answered = Self::default();
        for (own, value) in self.iter().zip(values) {
            answered.set(&own.name, (*value)?, own.reported);
        }
        let (_, others) = values.split_at_checked(self.iter().count())?;
        for (name, value) in self.unreported_others().zip(others) {
            if let Some(value) = value {
                answered.set(name, value, false);
            }
        }
        let are_all = others.is_empty() || others.len() == self.unreported_others().count();
        let legible = answered.is_ascii() || super::reads_alike(answered.encoding(), server_encoding);
        (are_all && legible).then_some(answered)
    }

    /// Takes back what `pinning` did.
    pub(crate) fn unpinning(&self) -> Vec<u8> {
        self.query_of_each(|sql, kept, name, _| {
            let former = |sql: &mut Vec<u8>| write_current(sql, kept);
            let given = |sql: &mut Vec<u8>| write_as_set(sql, name, former);
            write_set_unless_equal(sql, name, |sql| write_current(sql, name), former, given);
        })
    }

    /// Of these values and of what is read beside them, but for where names are looked up: PostgreSQL analyses a statement anew where that
    /// has changed, and looks them up as of its use (`RevalidateCachedQuery`).
    fn query_of_each(&self, write: impl Fn(&mut Vec<u8>, &[u8], &[u8], Option<&[u8]>)) -> Vec<u8> {
        let with_default = |name: &&&str| !LOOKS_UP.contains(name) && self.get(name).is_none();
        let others = READ_UNREPORTED.iter().filter(with_default).map(|name| (*name, None));
        let all = self.iter().map(|own| (&*own.name, Some(&*own.value))).chain(others);
        let mut sql = Vec::new();
        for (number, (name, value)) in all.enumerate() {
            separate(&mut sql);
            write(&mut sql, format!("weir.kept_{number}").as_bytes(), name.as_bytes(), value);
        }
        sql
    }
}

fn write_settings<'a>(mut sql: Vec<u8>, values: impl Iterator<Item = &'a Parameter>, end: &[u8]) -> Vec<u8> {
    let (roles, others): (Vec<_>, Vec<_>) = values.partition(|own| is_role(&own.name));
    for value in others.into_iter().chain(roles) {
        separate(&mut sql);
        write_set_config(&mut sql, value.name.as_bytes(), &value.value, end);
    }
    sql
}

fn write_plain_set(own: &Parameter) -> Vec<u8> {
    let mut sql = b"SET ".to_vec();
    write_name(&mut sql, &own.name);
    sql.push(b'=');
    write_literal(&mut sql, &as_set(own.name.as_bytes(), &own.value));
    sql
}

/// Before each of a query's values.
fn separate(sql: &mut Vec<u8>) {
    sql.extend_from_slice(if sql.is_empty() { b"SELECT " } else { b"," });
}

fn write_call(sql: &mut Vec<u8>, function: &str, arguments: impl FnOnce(&mut Vec<u8>)) {
    sql.extend_from_slice(b"pg_catalog.");
    sql.extend_from_slice(function.as_bytes());
    sql.push(b'(');
    arguments(sql);
    sql.push(b')');
}

fn write_current(sql: &mut Vec<u8>, name: &[u8]) {
    write_call(sql, "current_setting", |sql| {
        write_literal(sql, name);
        sql.extend_from_slice(b",true");
    });
}

/// Sets it up to the transaction's end.
fn write_set(sql: &mut Vec<u8>, name: &[u8], value: impl Fn(&mut Vec<u8>)) {
    write_call(sql, "set_config", |sql| {
        write_literal(sql, name);
        sql.push(b',');
        value(sql);
        sql.extend_from_slice(b",true");
    });
}

/// `given`: how the value is set (`as_set`).
fn write_set_unless_equal(
    sql: &mut Vec<u8>,
    name: &[u8],
    current: impl Fn(&mut Vec<u8>),
    value: impl Fn(&mut Vec<u8>),
    given: impl Fn(&mut Vec<u8>),
) {
    sql.extend_from_slice(b"CASE WHEN ");
    write_call(sql, "texteq", |sql| {
        current(sql);
        sql.push(b',');
        value(sql);
    });
    sql.extend_from_slice(b" THEN NULL ELSE ");
    write_set(sql, name, given);
    sql.extend_from_slice(b" END");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::parameters::ParameterSets;

    #[test]
    fn names_that_parsing_does_not_read_are_in_order() {
        assert!(NOT_READ_BY_PARSING.is_sorted_by(|left, right| compare_names(left, right).is_lt()));
    }

    #[test]
    fn a_lone_set_of_what_parsing_does_not_read() {
        for text in [
            "SET statement_timeout = 0",
            "set local \"Statement_Timeout\" to '5s';",
            "set session application_name = 'it''s; reset role'",
            r"set application_name = e'a\''",
            "set local app.tenant = '7'",
            "set app . tenant to '7'",
            "set transaction isolation level serializable",
            "set session characteristics as transaction read only",
        ] {
            assert!(sets_unread(text.as_bytes()), "{text}");
        }
        for text in [
            "set timezone = 'UTC'",
            "set local bytea_output = escape",
            "set statement_timeout = 0; set timezone = 'UTC'",
            "set time zone 'UTC'",
            "set role a",
            "set session authorization a",
            // Deferred triggers run then, which may set anything.
            "set constraints all immediate",
            // Two statements, where a backslash in such a string is an escape.
            r"set application_name = 'a\''; set local array_nulls = 'off'",
            "set search_path to 'application_name'",
            "set",
            "set ",
            "select 1",
        ] {
            assert!(!sets_unread(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn parsing_reads_the_time_zone_and_no_application_name() {
        let mut sets = ParameterSets::default();
        let [one, two, three] = [("UTC", "a"), ("UTC", "b"), ("CET", "a")].map(|(zone, name)| {
            let mut values = ParameterSet::default();
            values.set("TimeZone", zone.as_bytes(), true);
            values.set("application_name", name.as_bytes(), true);
            sets.reading(&values)
        });
        assert!(Arc::ptr_eq(&one, &two) && !Arc::ptr_eq(&one, &three));
        let to = String::from_utf8(one.local_settings(&three)).unwrap();
        assert_eq!(to, "SELECT pg_catalog.set_config(E'TimeZone',E'CET',true)");
    }

    #[test]
    fn values_are_asked_for() {
        let mut values = ParameterSet::default();
        values.set("TimeZone", b"CET", true);
        values.set("client_encoding", b"UTF8", true);
        let text = String::from_utf8(values.asking(false)).unwrap().replace("pg_catalog.", "");
        assert_eq!(text, "SELECT current_setting(E'client_encoding',true),current_setting(E'TimeZone',true)");
        let answered = values.answered(&[Some(b"LATIN1"), Some(b"UTC")], b"UTF8").unwrap();
        assert_eq!((answered.encoding(), &*answered.get("timezone").unwrap().value), (&b"LATIN1"[..], &b"UTC"[..]));
        for values_of_another in [&[Some(&b"LATIN1"[..]), Some(b"\xe9")][..], &[Some(b"UTF8"), None], &[Some(b"UTF8")]]
        {
            assert!(values.answered(values_of_another, b"UTF8").is_none());
        }
    }

    #[test]
    fn values_that_nobody_knows_are_kept_and_taken_back() {
        let mut values = ParameterSet::default();
        values.set("TimeZone", b"CET", true);
        values.set("search_path", b"a'b", false);
        let text = |sql: Vec<u8>| String::from_utf8(sql).unwrap().replace("pg_catalog.", "");
        let first = "SELECT CASE WHEN texteq(set_config(E'weir.kept_0',current_setting(E'search_path',true),true),E'a''b') \
                     THEN NULL ELSE set_config(E'search_path',E'a''b',true) END";
        let second = "CASE WHEN texteq(set_config(E'weir.kept_1',current_setting(E'TimeZone',true),true),E'CET') \
                      THEN NULL ELSE set_config(E'TimeZone',E'CET',true) END";
        assert!(text(values.pinning()).starts_with(&format!("{first},{second},")));
        let first = "SELECT CASE WHEN texteq(current_setting(E'search_path',true),current_setting(E'weir.kept_0',true)) \
                     THEN NULL ELSE set_config(E'search_path',current_setting(E'weir.kept_0',true),true) END,";
        assert!(text(values.unpinning()).starts_with(first));
        let default =
            "set_config(E'weir.kept_0',current_setting(E'array_nulls',true),true),set_config(E'array_nulls',NULL,true)";
        assert!(text(ParameterSet::default().pinning()).starts_with(&format!("SELECT {default}")));
    }
}
