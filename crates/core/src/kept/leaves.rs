//! What a text may leave in its session, or take away from it, as far as its words tell.
//!
//! Words count wherever they stand outside of strings and comments, and those that begin a statement where one may begin: what is none is
//! taken for one sooner than the other way round, and costs a look. A parameter that PostgreSQL reports needs none.

use std::sync::Arc;

use super::{Kinds, NAMES_MAX};
use crate::sql::{Raw, Tokens};

/// What a text may do to its session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Leaves {
    pub(crate) makes: Kinds,
    pub(crate) ends: Kinds,
    /// Of parameters with a dot in their names that it sets.
    pub(crate) names: Vec<Arc<str>>,
    /// It has strings in which a backslash may be an escape: of use where `standard_conforming_strings` is on.
    pub(crate) uncertain: bool,
    /// And it names that parameter.
    pub(crate) sets_strings: bool,
    /// It may change what other texts call.
    pub(crate) alters: bool,
    /// Tokens of arguments that were looked at ahead of their turn.
    pub(super) looked_ahead: usize,
}

/// Calls stand within calls: beyond it no argument is looked at.
const LOOKED_AHEAD_MAX: usize = 4096;
/// PostgreSQL cuts a longer identifier (`NAMEDATALEN`, src/include/pg_config_manual.h).
const NAME_BYTES_MAX: usize = 63;
/// What a look does not see though it outlives its transaction: the seed of random(), also where it was set locally, and what only a
/// superuser is shown.
const UNSEEN: [&str; 4] = ["seed", "dynamic_library_path", "session_preload_libraries", "extension_control_path"];

/// Parameters that PostgreSQL reports since 14 (`GUC_REPORT`, src/backend/utils/misc/guc.c), of those that may be set.
const REPORTED: [&str; 7] = [
    "application_name",
    "client_encoding",
    "datestyle",
    "default_transaction_read_only",
    "intervalstyle",
    "standard_conforming_strings",
    "timezone",
];

impl Leaves {
    /// It may be anything.
    pub(crate) fn unknown() -> Self {
        Self::any(Kinds::ANY.with(Kinds::LASTING))
    }

    pub(crate) fn any(kinds: Kinds) -> Self {
        Self { makes: kinds, ends: kinds, ..Self::default() }
    }

    /// For a text that is not kept: a parameter whose name is not either stays where it is.
    pub(crate) fn without_names(self) -> Kinds {
        let kinds = self.makes.with(self.ends);
        if self.uncertain || !self.names.is_empty() { kinds.with(Kinds::ANY).with(Kinds::LASTING) } else { kinds }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.makes.is_none() && self.ends.is_none()
    }

    pub(crate) fn of(text: &[u8]) -> Self {
        let mut leaves = Self::default();
        leaves.read(text, false);
        leaves
    }

    /// Of code behind a name.
    pub(crate) fn of_code(text: &[u8]) -> Self {
        // As PostgreSQL writes a trigger down: what it runs is a function, whose name is a word of the text.
        const RUNS: &[u8] = b" EXECUTE FUNCTION ";
        let is_trigger = text.starts_with(b"CREATE TRIGGER ") || text.starts_with(b"CREATE CONSTRAINT TRIGGER ");
        let end = text.windows(RUNS.len()).rposition(|at| at == RUNS).filter(|_| is_trigger);
        let text = &text[..end.unwrap_or(text.len())];
        let is_definition = [&b"CREATE RULE "[..], b"CREATE INDEX ", b"CREATE UNIQUE INDEX "];
        let is_definition = is_trigger || is_definition.iter().any(|begin| text.starts_with(begin));
        let mut leaves = Self::default();
        // It creates nothing where it is run.
        leaves.read(if is_definition { &text[b"CREATE".len()..] } else { text }, true);
        if leaves.uncertain {
            // Under which `standard_conforming_strings` it runs is not known.
            leaves.makes(Kinds::ANY);
            leaves.uncertain = false;
        }
        leaves
    }

    /// Adds what another may leave. Whether that was anything more.
    pub(crate) fn add(&mut self, other: &Self) -> bool {
        let before = (self.makes, self.ends, self.names.len());
        self.makes = self.makes.with(other.makes);
        self.ends = self.ends.with(other.ends);
        self.add_names(other);
        before != (self.makes, self.ends, self.names.len())
    }

    fn add_names(&mut self, other: &Self) {
        for name in &other.names {
            if self.names.contains(name) {
                continue;
            }
            if self.names.len() == NAMES_MAX {
                // As a server that has so many.
                return self.makes(Kinds::LASTING);
            }
            self.names.push(Arc::clone(name));
        }
    }

    /// `code`: of a DO or a function, where statements begin behind other words too.
    fn read(&mut self, text: &[u8], code: bool) {
        let mut tokens = Tokens::of(text);
        let (mut begins, mut explained, mut does, mut alters) = (true, false, false, false);
        while let Some(token) = tokens.raw() {
            let mut opens = false;
            match token {
                Raw::Sign(b';') => (explained, does, alters, opens) = (false, false, false, true),
                // A label's end.
                Raw::Sign(b'>') => opens = code,
                Raw::Word(word) | Raw::Name(word) => {
                    let mut buffer = [0; LONGEST];
                    if let Some(word) = lower(word, &mut buffer) {
                        self.anywhere(word, code, &tokens);
                        // In PL/pgSQL it begins a block.
                        let declares = word == b"declare";
                        if begins && matches!(token, Raw::Word(_)) && !(declares && code) {
                            self.beginning(word, &tokens);
                            explained |= word == b"explain";
                            does |= word == b"do";
                            alters |= matches!(word, b"create" | b"alter");
                        } else if (explained && declares) || (code && word == b"hold") {
                            self.makes(Kinds::CURSORS);
                        }
                        opens = code && matches!(word, b"begin" | b"then" | b"else" | b"loop" | b"atomic");
                    }
                }
                Raw::Dollars(inner) | Raw::Text(inner) if does && !code => {
                    if matches!(token, Raw::Text(_)) && inner.contains(&b'\\') {
                        self.makes(Kinds::LASTING);
                    }
                    self.read(inner, true);
                }
                // It is not run, but may be by a text that comes before its code is known.
                Raw::Dollars(inner) | Raw::Text(inner) if alters && !code => {
                    let mut behind = Self::default();
                    behind.read(inner, true);
                    self.add_names(&behind);
                }
                _ => {}
            }
            begins = opens;
        }
        if code && self.alters {
            // The search_path may begin with the temporary schema.
            self.makes(Kinds::OBJECTS);
        }
        // A temporary table's code ends with it.
        self.alters &= !self.makes.has(Kinds::OBJECTS);
        self.uncertain |= tokens.has_backslash();
        if tokens.has_escaped_name() {
            self.makes(Kinds::ANY.with(Kinds::LASTING));
        }
    }

    fn makes(&mut self, kinds: Kinds) {
        self.makes = self.makes.with(kinds);
        self.ends = self.ends.with(kinds);
    }

    fn ends(&mut self, kinds: Kinds) {
        self.ends = self.ends.with(kinds);
    }

    /// A word that means the same wherever it stands. `behind`: what follows it.
    #[inline]
    fn anywhere(&mut self, word: &[u8], code: bool, behind: &Tokens<'_>) {
        match word {
            b"temp" | b"temporary" => self.makes(Kinds::OBJECTS),
            b"standard_conforming_strings" => self.sets_strings = true,
            b"set_config" => self.set_config(&mut behind.clone()),
            // What SQL has prepared has a text that was read.
            b"execute" if !code => self.makes(Kinds::ANY),
            b"execute"
            | b"query_to_xml"
            | b"query_to_xml_and_xmlschema"
            | b"query_to_xmlschema"
            | b"ts_stat"
            | b"ts_rewrite"
            | b"cursor_to_xml" => self.makes(Kinds::ANY.with(Kinds::LASTING)),
            b"setseed"
            | b"pg_replication_origin_session_setup"
            | b"pg_create_logical_replication_slot"
            | b"pg_create_physical_replication_slot"
            | b"pg_copy_logical_replication_slot"
            | b"pg_copy_physical_replication_slot"
            | b"pg_backup_start"
            | b"pg_start_backup" => {
                self.makes(Kinds::LASTING);
            }
            _ if word.starts_with(b"pg_") => self.anywhere_of_postgres(word),
            _ if word.starts_with(b"dblink") => self.makes(Kinds::LASTING),
            _ => {}
        }
    }

    fn anywhere_of_postgres(&mut self, word: &[u8]) {
        if word.starts_with(b"pg_temp") {
            self.makes(Kinds::OBJECTS);
        } else if word.starts_with(b"pg_advisory_unlock") {
            self.ends(Kinds::LOCKS);
        } else if word.starts_with(b"pg_advisory_lock") || word.starts_with(b"pg_try_advisory_lock") {
            self.makes(Kinds::LOCKS);
        }
    }

    /// A word that begins a statement. `behind`: what follows it.
    #[inline]
    fn beginning(&mut self, word: &[u8], behind: &Tokens<'_>) {
        match word {
            b"set" => self.set(&mut behind.clone()),
            b"reset" => self.reset(&mut behind.clone()),
            b"do" if begins_code(&mut behind.clone()) => self.makes(Kinds::ANY),
            b"call" => self.makes(Kinds::ANY),
            b"discard" => self.ends(Kinds::ANY),
            b"listen" => self.makes(Kinds::CHANNELS),
            b"unlisten" => self.ends(Kinds::CHANNELS),
            b"declare" => self.makes(Kinds::CURSORS),
            b"close" => self.ends(Kinds::CURSORS),
            b"drop" => self.ends(Kinds::OBJECTS),
            b"deallocate" => self.ends(Kinds::PREPARED),
            b"load" => self.makes(Kinds::LASTING),
            b"create" | b"alter" | b"import" => self.alters = true,
            b"prepare" if next_is(&mut behind.clone(), b"transaction") => {}
            b"prepare" => self.makes(Kinds::PREPARED),
            _ => {}
        }
    }

    /// SET, up to its name.
    fn set(&mut self, behind: &mut Tokens<'_>) {
        let first = name(behind);
        match &*first {
            "local" => {
                if &*name(behind) == "seed" {
                    self.makes(Kinds::LASTING);
                }
            }
            "transaction" | "constraints" | "time" | "names" => {}
            "session" => match &*name(behind) {
                "characteristics" | "authorization" | "" => self.makes(Kinds::PARAMETERS),
                "transaction" | "time" | "names" => {}
                own => self.sets(own),
            },
            own => self.sets(own),
        }
    }

    fn sets(&mut self, own: &str) {
        self.sets_strings |= own == "standard_conforming_strings";
        if REPORTED.contains(&own) {
            return;
        }
        self.makes(Kinds::PARAMETERS);
        if !own.is_ascii() || own.len() > NAME_BYTES_MAX || UNSEEN.contains(&own) {
            // In an encoding that may change, or cut, or not shown.
            self.makes(Kinds::LASTING);
        } else if own.contains('.') {
            self.names.push(own.into());
        }
    }

    fn reset(&mut self, behind: &mut Tokens<'_>) {
        if !REPORTED.contains(&&*name(behind)) {
            self.ends(Kinds::PARAMETERS);
        }
    }

    /// The arguments of a call: whose name is not known, or not that it is local, is taken for the other.
    fn set_config(&mut self, behind: &mut Tokens<'_>) {
        let first = match (behind.raw(), behind.raw()) {
            (Some(Raw::Sign(b'(')), first) => first,
            // In quotes, or a name of something else.
            _ => return self.makes(Kinds::PARAMETERS.with(Kinds::LASTING)),
        };
        let (mut depth, mut commas) = (0_usize, 0);
        // The first argument is one string, and the third is one word.
        let (mut alone, mut third) = (true, None);
        loop {
            let token = behind.raw().filter(|_| self.looked_ahead < LOOKED_AHEAD_MAX);
            let Some(token) = token else { return self.set_by_call(None) };
            self.looked_ahead += 1;
            match token {
                Raw::Sign(b')') if depth == 0 => break,
                Raw::Sign(b',') if depth == 0 => {
                    commas += 1;
                    continue;
                }
                Raw::Sign(b'(' | b'[') => depth += 1,
                Raw::Sign(b')' | b']') => depth = depth.saturating_sub(1),
                _ => {}
            }
            match commas {
                0 => alone &= matches!(token, Raw::Sign(b':') | Raw::Word(b"text")),
                2 => third = Some(third.is_none() && is_true(token)),
                _ => {}
            }
        }
        let is_seed = matches!(first, Some(Raw::Text(name)) if name.eq_ignore_ascii_case(b"seed"));
        if !(third == Some(true) && commas == 2) || is_seed {
            self.set_by_call(first.filter(|_| alone));
        }
    }

    fn set_by_call(&mut self, name: Option<Raw<'_>>) {
        match name {
            Some(Raw::Text(name)) if !name.iter().any(|byte| matches!(byte, b'\'' | b'\\')) => {
                self.sets(&String::from_utf8_lossy(name).to_ascii_lowercase());
            }
            _ => self.makes(Kinds::PARAMETERS.with(Kinds::LASTING)),
        }
    }
}

fn is_true(token: Raw<'_>) -> bool {
    matches!(token, Raw::Word(word) if word.eq_ignore_ascii_case(b"true"))
}

/// No word that matters is longer.
const LONGEST: usize = 40;

#[inline]
fn lower<'b>(word: &[u8], buffer: &'b mut [u8; LONGEST]) -> Option<&'b [u8]> {
    let lower = buffer.get_mut(..word.len())?;
    lower.copy_from_slice(word);
    lower.make_ascii_lowercase();
    Some(lower)
}

/// Behind DO, not ON CONFLICT DO or a rule's.
fn begins_code(tokens: &mut Tokens<'_>) -> bool {
    match tokens.raw() {
        Some(Raw::Dollars(_) | Raw::Text(_)) => true,
        Some(Raw::Word(word)) => word.eq_ignore_ascii_case(b"language"),
        _ => false,
    }
}

fn next_is(tokens: &mut Tokens<'_>, word: &[u8]) -> bool {
    matches!(tokens.raw(), Some(Raw::Word(next)) if next.eq_ignore_ascii_case(word))
}

/// A name, which may have dots, in lower case: PostgreSQL finds parameters without regard to it.
fn name(tokens: &mut Tokens<'_>) -> String {
    let mut name = String::new();
    loop {
        match tokens.raw() {
            Some(Raw::Word(part) | Raw::Name(part)) => {
                name.push_str(&String::from_utf8_lossy(part).to_ascii_lowercase().replace("\"\"", "\""));
            }
            _ => return name,
        }
        let mut behind = tokens.clone();
        if !matches!(behind.raw(), Some(Raw::Sign(b'.'))) {
            return name;
        }
        *tokens = behind;
        name.push('.');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(text: &str) -> Leaves {
        Leaves::of(text.as_bytes())
    }

    #[test]
    fn what_leaves_nothing() {
        for text in [
            "select 1",
            "update t set a = 'set b; listen c' where \"Set\" = 1",
            "insert into t values (1) on conflict do nothing",
            "begin; set local work_mem = '1MB'; commit",
            "/* set a.b = 1 */ select 1 -- listen\n",
            "SET LOCAL a.b = '1'",
            "set transaction isolation level serializable",
            "set session timezone to 'UTC'",
            "set time zone 'UTC'",
            "SET NAMES 'utf8'",
            "set \"TimeZone\" = 'UTC'",
            "set application_name = 'a'; set DateStyle to iso",
            "set constraints all deferred",
            "select set_config('app.tenant', $1, true)",
            "select pg_catalog.set_config ( 'a.b' :: text , coalesce($1, (select 'x')), TRUE )",
            "select set_config($1, f($2, true), true)",
            "select set_config('timezone', 'UTC', false)",
            "select pg_advisory_xact_lock(1), pg_try_advisory_xact_lock(2)",
            "prepare transaction 'a'",
            "create table attempt (a int)",
            "copy t from stdin",
            "notify a, 'b'",
            "alter table t set (fillfactor = 50)",
            "create function f() returns int language plpgsql as $$ begin perform set_config('a.b', '1', false); end $$",
            "",
        ] {
            assert_eq!(leaves(text).makes, Kinds::NONE, "{text}");
        }
    }

    #[test]
    fn what_leaves_something() {
        const ANY: Kinds = Kinds::ANY;
        let unnamed = Kinds::PARAMETERS.with(Kinds::LASTING);
        for (text, makes) in [
            ("set work_mem = '1MB'", Kinds::PARAMETERS),
            ("select 1; /* a */ SET search_path to a", Kinds::PARAMETERS),
            ("set session work_mem = 1", Kinds::PARAMETERS),
            ("set session characteristics as transaction read only", Kinds::PARAMETERS),
            ("set session authorization a", Kinds::PARAMETERS),
            ("set role a", Kinds::PARAMETERS),
            ("select set_config('work_mem', '1MB', false)", Kinds::PARAMETERS),
            ("select set_config('work_mem', '1MB', $1)", Kinds::PARAMETERS),
            ("select set_config('work_mem', '1MB', not true)", Kinds::PARAMETERS),
            ("select set_config('work_mem', '1MB', true and false)", Kinds::PARAMETERS),
            ("select set_config($1, '1MB', false)", unnamed),
            ("select set_config('a' || 'b', '1MB', false)", unnamed),
            ("select set_config(concat('a', 'b'), '1MB', false)", unnamed),
            ("select set_config('a', '1MB'", unnamed),
            ("create temp table t (a int)", Kinds::OBJECTS),
            ("select 1 into temporary t", Kinds::OBJECTS),
            ("create view pg_temp.v as select 1", Kinds::OBJECTS),
            ("create view \"pg_temp\".v as select 1", Kinds::OBJECTS),
            ("select pg_advisory_lock(1)", Kinds::LOCKS),
            ("select PG_TRY_ADVISORY_LOCK_SHARED(1)", Kinds::LOCKS),
            ("listen a", Kinds::CHANNELS),
            ("declare c cursor with hold for select 1", Kinds::CURSORS),
            ("explain analyze declare c cursor with hold for select 1", Kinds::CURSORS),
            ("prepare p as select 1", Kinds::PREPARED),
            ("execute p", ANY),
            ("create table t as execute p", ANY),
            ("do $$ begin end $$", ANY),
            ("do $$ begin load 'a'; end $$", ANY.with(Kinds::LASTING)),
            ("call p()", ANY),
            ("load 'a'", Kinds::LASTING),
            ("select setseed(0)", Kinds::LASTING),
            ("set seed = 0.5", unnamed),
            ("set local seed = 0.5", Kinds::LASTING),
            ("select set_config('seed', '0.5', true)", unnamed),
            ("set dynamic_library_path = '/x'", unnamed),
            ("select E'a'\n'\\''; set work_mem = '1MB'; --'", Kinds::PARAMETERS),
            (
                "select query_to_xml('select set_config(''a.b'', '''', false)', true, true, '')",
                ANY.with(Kinds::LASTING),
            ),
            ("do $$ begin execute 'set a.b = 1'; end $$", ANY.with(Kinds::LASTING)),
            ("do E'begin set a\\x2eb = 1; end'", ANY.with(Kinds::LASTING)),
            ("select dblink_connect('a', '')", Kinds::LASTING),
            (r#"select U&"\0073etseed"(0)"#, ANY.with(Kinds::LASTING)),
        ] {
            assert_eq!(leaves(text).makes, makes, "{text}");
        }
    }

    #[test]
    fn what_takes_something_away() {
        for (text, ends) in [
            ("reset work_mem", Kinds::PARAMETERS),
            ("reset all", Kinds::PARAMETERS),
            ("reset session authorization", Kinds::PARAMETERS),
            ("reset timezone", Kinds::NONE),
            ("drop table t", Kinds::OBJECTS),
            ("select pg_advisory_unlock_all()", Kinds::LOCKS),
            ("unlisten *", Kinds::CHANNELS),
            ("close c", Kinds::CURSORS),
            ("deallocate p", Kinds::PREPARED),
            ("discard all", Kinds::ANY),
        ] {
            let leaves = leaves(text);
            assert_eq!((leaves.makes, leaves.ends), (Kinds::NONE, ends), "{text}");
        }
    }

    #[test]
    fn calls_within_calls_are_read_once() {
        let text = format!("select {}", "set_config(".repeat(100_000));
        assert!(leaves(&text).makes.has(Kinds::LASTING));
    }

    #[test]
    fn a_name_that_is_cut_is_not_known() {
        assert!(leaves(&format!("set app.{} = '7'", "a".repeat(70))).makes.has(Kinds::LASTING));
    }

    #[test]
    fn custom_parameters_have_their_names_from_texts() {
        let names = |text: &str| leaves(text).names.iter().map(|name| name.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(names("set A.b = 1; set \"c\".\"D\" to 2; set local e.f = 3"), "a.b c.d");
        assert_eq!(names("select set_config('My.Own', 'x', false)"), "my.own");
        assert_eq!(names("select set_config('my.own'::text, 'x', false)"), "my.own");
        assert_eq!(names("do $$begin set a.b = 1; perform set_config('c.d', '', false); end$$"), "a.b c.d");
        assert_eq!(
            names("create function f() returns int language sql as $$select set_config('e.f', '', false)$$"),
            "e.f"
        );
        assert_eq!(names("set work_mem = 1"), "");
    }

    #[test]
    fn code_has_statements_of_its_own() {
        let makes = |text: &str| Leaves::of_code(text.as_bytes()).makes;
        for (text, expected) in [
            (
                "declare a int; begin update t set a = 1; insert into t values (1) on conflict do nothing; end",
                Kinds::NONE,
            ),
            ("begin set local work_mem = 1; end", Kinds::NONE),
            ("begin set work_mem = 1; end", Kinds::PARAMETERS),
            ("begin if a then set role b; end if; end", Kinds::PARAMETERS),
            ("<<a>> begin execute 'x'; end", Kinds::ANY.with(Kinds::LASTING)),
            ("begin create table t (a int); end", Kinds::OBJECTS),
            ("begin create temp table t (a int) on commit drop; end", Kinds::OBJECTS),
            ("begin perform pg_advisory_lock(1); end", Kinds::LOCKS),
            ("begin open c; fetch c into d; close c; end", Kinds::NONE),
            ("CREATE TRIGGER a BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()", Kinds::NONE),
            ("CREATE RULE r AS ON INSERT TO t DO ALSO SELECT pg_advisory_lock(1)", Kinds::LOCKS),
        ] {
            assert_eq!(makes(text), expected, "{text}");
        }
    }

    #[test]
    fn backslashes_are_told() {
        assert!(leaves(r"select 'a\'").uncertain);
        assert!(!leaves(r"select E'a\n', 'b'").uncertain);
    }
}
