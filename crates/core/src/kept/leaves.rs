//! What a text may leave in its session, or take away from it, as far as its words tell.
//!
//! Words count wherever they stand outside of strings and comments, and those that begin a statement where one may begin: what is none is
//! taken for one sooner than the other way round, and costs a look. A parameter that PostgreSQL reports needs none.

mod behind;
mod inserts;

use std::sync::Arc;

use behind::{begins_code, calls, is_held, is_temporary, names_table, next_is};
pub(super) use inserts::Inserts;

use super::Kinds;
use super::glance::Glance;
use super::words::{NAMES_MAX, NESTED_MAX};
use crate::parameters::meanings::NAME_BYTES;
use crate::parameters::reading::is_read;
use crate::sql::{Raw, Tokens, dotted_name, names_temporary};
use crate::statements::definition::text_of;

/// What a text may do to its session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Leaves {
    pub(super) makes: Kinds,
    /// Of what it makes, what it does by its own words: no code's, and no words that may mean something else.
    pub(crate) says: Kinds,
    pub(super) ends: Kinds,
    /// It says UNLISTEN, or DISCARD ALL.
    pub(crate) unlistens: bool,
    /// It asks what its session listens to.
    pub(crate) asks_channels: bool,
    /// It asks which statements are prepared.
    pub(super) asks_statements: bool,
    /// It asks for what `nextval` gave last in its session.
    pub(super) reads_sequences: bool,
    /// It executes what SQL has prepared.
    pub(super) executes: bool,
    /// It says ROLLBACK or ABORT, which may take back a part of a transaction.
    pub(crate) takes_back: bool,
    /// Or anything else that ends one, failed or not.
    pub(crate) ends_transaction: bool,
    /// It says COMMIT or END.
    pub(crate) commits: bool,
    /// It says RESET ALL.
    pub(crate) resets_all: bool,
    /// Of parameters with a dot in their names that it sets.
    pub(super) names: Vec<Arc<str>>,
    /// It may set or reset a parameter that parsing reads, for its transaction alone perhaps: then PostgreSQL reports nothing of it.
    pub(super) sets_read: bool,
    /// It has strings in which a backslash may be an escape: of use where `standard_conforming_strings` is on.
    pub(crate) uncertain: bool,
    /// It may change how a text is read: that parameter, or `client_encoding`.
    pub(crate) sets_strings: bool,
    /// Or take both back to what the session began with.
    pub(crate) resets_strings: bool,
    /// It may change what other texts call.
    pub(crate) alters: bool,
    /// The code that it creates may leave what a look does not find.
    pub(super) defines_lasting: bool,
    /// It names the schema of temporary objects, in a string perhaps.
    pub(crate) names_temporary: bool,
    pub(crate) beyond_ascii: bool,
    /// So has a word without quotes.
    pub(crate) words_beyond_ascii: bool,
    /// Tokens of arguments that were looked at ahead of their turn.
    pub(super) looked_ahead: usize,
}

/// Calls stand within calls: beyond it no argument is looked at.
const LOOKED_AHEAD_MAX: usize = 4096;
/// Numbers from here on are none of PostgreSQL's own types (`FirstNormalObjectId`, src/include/access/transam.h).
const USERS_FROM: u32 = 16_384;
/// What a look does not see though it outlives its transaction: the seed of random(), also where it was set locally, and what only a
/// superuser is shown.
const UNSEEN: [&str; 4] = ["seed", "dynamic_library_path", "session_preload_libraries", "extension_control_path"];

/// Parameters that PostgreSQL reports in any release (`GUC_REPORT`, src/backend/utils/misc/guc.c), of those that may be set.
const REPORTED: [&str; 6] =
    ["application_name", "client_encoding", "datestyle", "intervalstyle", "standard_conforming_strings", "timezone"];

impl Leaves {
    /// It may be anything, and have other texts read otherwise.
    pub(crate) fn unknown() -> Self {
        let any = Self::any(Kinds::ANY.with(Kinds::LASTING));
        Self { alters: true, defines_lasting: true, sets_strings: true, ..any }
    }

    pub(crate) fn any(kinds: Kinds) -> Self {
        Self { makes: kinds, ends: kinds, sets_read: kinds.has(Kinds::PARAMETERS), ..Self::default() }
    }

    /// Text that is put together, or code in another language.
    pub(crate) fn runs_anything(&self) -> bool {
        Kinds::ANY.with(Kinds::LASTING).without(self.makes).is_none()
    }

    pub(crate) fn is_none(&self) -> bool {
        self.makes.is_none() && self.ends.is_none() && !self.sets_read
    }

    /// Of a text up to its end: also of the body of a Query, and of the rest of a Parse behind the name.
    pub(crate) fn of(text: &[u8]) -> Self {
        let text = text_of(text);
        let (names_temporary, beyond_ascii) = (names_temporary(text), !text.is_ascii());
        let mut leaves = Self { names_temporary, beyond_ascii, ..Self::default() };
        leaves.read(Tokens::of(text), false, 0);
        debug_assert!(
            !(leaves.is_of_note() && Glance::own().is_plain(text)),
            "a glance has missed it: {}",
            String::from_utf8_lossy(text)
        );
        leaves
    }

    /// Something may be left, or what is left may not be known.
    pub(crate) fn is_of_note(&self) -> bool {
        let Self { ends_transaction, commits, looked_ahead, .. } = *self;
        *self != Self { ends_transaction, commits, looked_ahead, ..Self::default() }
    }

    /// Of code behind a name.
    pub(crate) fn of_code(text: &[u8]) -> Self {
        let mut leaves = Self::default();
        leaves.reads_code(text, 0);
        leaves
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

    /// Of a DO or a function. Under which `standard_conforming_strings` it runs is not known, and PL/pgSQL may read its parts under both: where it
    /// matters it may be anything.
    fn reads_code(&mut self, text: &[u8], depth: usize) {
        let tokens = Tokens::of(text);
        if self.read(tokens.clone(), true, depth) && !tokens.are_alike() {
            self.is_illegible();
        }
    }

    /// It cannot be read.
    fn is_illegible(&mut self) {
        self.makes(Kinds::ANY.with(Kinds::LASTING));
        (self.reads_sequences, self.asks_statements, self.asks_channels, self.sets_strings) = (true, true, true, true);
    }

    /// `code`: where statements begin behind other words too; `depth`: in so many others. Whether it has strings in which a backslash may be an escape.
    fn read(&mut self, mut tokens: Tokens<'_>, code: bool, depth: usize) -> bool {
        let (mut begins, mut explained, mut does, mut alters) = (true, false, false, false);
        // An UPDATE of the view of all parameters is a SET.
        let (mut updates, mut names_settings) = (false, false);
        let (mut inserts, mut before) = (Inserts::default(), Raw::Sign(b';'));
        while let Some(token) = tokens.raw() {
            let mut opens = false;
            match token {
                Raw::Sign(b';') => (explained, does, alters, opens) = (false, false, false, true),
                // A label's end.
                Raw::Sign(b'>') => opens = code,
                Raw::Word(word) | Raw::Name(word) => {
                    self.words_beyond_ascii |= matches!(token, Raw::Word(_)) && !word.is_ascii();
                    let mut buffer = [0; LONGEST];
                    if let Some(word) = lower(word, &mut buffer) {
                        self.anywhere(word, code, &tokens);
                        updates |= word == b"update";
                        names_settings |= word == b"pg_settings";
                        // In PL/pgSQL it begins a block.
                        let declares = word == b"declare";
                        if begins && matches!(token, Raw::Word(_)) && !(declares && code) {
                            self.beginning(word, &tokens);
                            explained |= word == b"explain";
                            alters |= matches!(word, b"create" | b"alter");
                            self.defines_lasting |= alters && next_is(&mut tokens.clone(), b"extension");
                        } else if alters && !code && word == b"language" {
                            let known = ["sql", "plpgsql", "c", "internal"].map(str::as_bytes);
                            self.defines_lasting |= !is_one_of(tokens.clone().raw(), &known);
                        } else if (explained && declares) || (code && word == b"hold") {
                            self.makes(Kinds::CURSORS);
                        }
                        does |= word == b"do" && (begins || code) && begins_code(&mut tokens.clone());
                        // EXPLAIN ANALYZE CREATE TABLE AS, and SELECT INTO, which is no INSERT.
                        self.alters |= (explained && word == b"create") || (word == b"into" && !code && !inserts.into);
                        opens = code && matches!(word, b"begin" | b"then" | b"else" | b"loop" | b"atomic");
                    }
                }
                Raw::Dollars(inner) | Raw::Text(inner) if does => self.runs(token, before, inner, depth),
                // It is not run, but may be by a text that comes before its code is known.
                Raw::Dollars(inner) | Raw::Text(inner) if alters => {
                    let mut behind = Self::default();
                    behind.runs(token, before, inner, depth);
                    self.add_names(&behind);
                    self.asks_statements |= behind.asks_statements;
                    self.defines_lasting |= behind.makes.has(Kinds::LASTING) || behind.defines_lasting;
                }
                _ => {}
            }
            inserts.meet(token);
            begins = opens;
            before = token;
        }
        if code && self.alters {
            // The search_path may begin with the temporary schema; and what it creates it may call.
            self.makes(Kinds::OBJECTS);
            self.makes(if self.defines_lasting { Kinds::ANY.with(Kinds::LASTING) } else { Kinds::NONE });
        }
        // Of a view, a default, a function that is no string.
        self.defines_lasting |= self.alters && self.makes.has(Kinds::LASTING);
        if updates && names_settings {
            // One perhaps that only a superuser is shown.
            self.makes(Kinds::LASTING);
        }
        self.uncertain |= !code && tokens.has_backslash();
        if tokens.are_illegible() {
            self.is_illegible();
            (self.alters, self.defines_lasting) = (true, true);
        }
        tokens.has_backslash()
    }

    /// A string is run. What it is only PostgreSQL knows where it has escapes or quotes, or goes on in another (`U&'...'`, and on the next line).
    fn runs(&mut self, token: Raw<'_>, before: Raw<'_>, inner: &[u8], depth: usize) {
        let is_string = matches!(token, Raw::Text(_));
        let goes_on = matches!(before, Raw::Text(_) | Raw::Sign(b'&'));
        if depth == NESTED_MAX || (is_string && (goes_on || inner.iter().any(|byte| matches!(byte, b'\\' | b'\'')))) {
            self.makes(Kinds::ANY.with(Kinds::LASTING));
        }
        if depth < NESTED_MAX {
            let says = self.says;
            self.reads_code(inner, depth + 1);
            self.says = says;
        }
    }

    fn makes(&mut self, kinds: Kinds) {
        self.makes = self.makes.with(kinds);
        self.ends(kinds);
    }

    fn says(&mut self, kinds: Kinds) {
        self.says = self.says.with(kinds);
        self.makes(kinds);
    }

    fn ends(&mut self, kinds: Kinds) {
        self.ends = self.ends.with(kinds);
        self.sets_read |= kinds.has(Kinds::PARAMETERS);
    }

    /// A word that means the same wherever it stands. `behind`: what follows it.
    #[inline]
    fn anywhere(&mut self, word: &[u8], code: bool, behind: &Tokens<'_>) {
        match word {
            b"temp" | b"temporary" => self.makes(Kinds::OBJECTS),
            b"client_encoding" | b"standard_conforming_strings" => self.sets_strings = true,
            b"currval" | b"lastval" => self.reads_sequences = true,
            b"set_config" => self.set_config(&mut behind.clone()),
            // What SQL has prepared has a text that was read; but what that calls may be another by now.
            b"execute" if !code => {
                self.executes |= !is_one_of(behind.clone().raw(), &[b"function", b"on", b"procedure"]);
                self.makes(Kinds::ANY);
            }
            b"execute"
            | b"query_to_xml"
            | b"query_to_xml_and_xmlschema"
            | b"query_to_xmlschema"
            | b"table_to_xml"
            | b"table_to_xmlschema"
            | b"table_to_xml_and_xmlschema"
            | b"schema_to_xml"
            | b"schema_to_xmlschema"
            | b"schema_to_xml_and_xmlschema"
            | b"database_to_xml"
            | b"database_to_xmlschema"
            | b"database_to_xml_and_xmlschema"
            | b"pg_input_is_valid"
            | b"pg_input_error_info"
            | b"ts_stat"
            | b"ts_rewrite"
            | b"cursor_to_xml" => self.makes(Kinds::ANY.with(Kinds::LASTING)),
            // What is run is named in a string, or by a number: a domain's check, an index's expression.
            b"array_in"
            | b"array_recv"
            | b"brin_summarize_new_values"
            | b"brin_summarize_range"
            | b"domain_in"
            | b"domain_recv"
            | b"multirange_in"
            | b"multirange_recv"
            | b"pg_restore_attribute_stats"
            | b"pg_restore_extended_stats"
            | b"range_in"
            | b"range_recv"
            | b"record_in"
            | b"record_recv" => self.makes(Kinds::ANY.with(Kinds::LASTING)),
            b"setseed" if calls(behind) && !code => self.says(Kinds::LASTING),
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
            _ if word.starts_with(b"pg_") => self.anywhere_of_postgres(word, calls(behind) && !code),
            _ if word.starts_with(b"dblink") => self.makes(Kinds::LASTING),
            _ => {}
        }
    }

    fn anywhere_of_postgres(&mut self, word: &[u8], calls: bool) {
        if word.starts_with(b"pg_temp_") {
            // Another session's: what is in there is not told.
            self.makes(Kinds::ANY.with(Kinds::LASTING));
        } else if word.starts_with(b"pg_temp") {
            self.makes(Kinds::OBJECTS);
        } else if word == b"pg_settings" {
            self.makes(Kinds::PARAMETERS);
            self.sets_strings = true;
        } else if word == b"pg_listening_channels" {
            self.asks_channels = true;
        } else if matches!(word, b"pg_prepared_statements" | b"pg_prepared_statement") {
            self.asks_statements = true;
        } else if word.starts_with(b"pg_advisory_unlock") {
            self.ends(Kinds::LOCKS);
        } else if word.starts_with(b"pg_advisory_lock") || word.starts_with(b"pg_try_advisory_lock") {
            if calls { self.says(Kinds::LOCKS) } else { self.makes(Kinds::LOCKS) }
        }
    }

    /// A word that begins a statement. `behind`: what follows it.
    #[inline]
    fn beginning(&mut self, word: &[u8], behind: &Tokens<'_>) {
        match word {
            b"set" => self.set(&mut behind.clone()),
            b"reset" => {
                let all = next_is(&mut behind.clone(), b"all");
                (self.resets_all, self.resets_strings) = (self.resets_all || all, self.resets_strings || all);
                self.reset(&mut behind.clone());
            }
            b"rollback" | b"abort" => (self.takes_back, self.ends_transaction) = (true, true),
            b"end" => (self.commits, self.ends_transaction) = (true, true),
            b"do" if begins_code(&mut behind.clone()) => self.makes(Kinds::ANY),
            b"call" => self.makes(Kinds::ANY),
            b"discard" => {
                let all = next_is(&mut behind.clone(), b"all");
                (self.unlistens, self.resets_strings) = (self.unlistens || all, self.resets_strings || all);
                self.ends(Kinds::ANY);
            }
            b"listen" => self.says(Kinds::CHANNELS),
            b"unlisten" => {
                self.unlistens = true;
                self.ends(Kinds::CHANNELS);
            }
            b"declare" if is_held(&mut behind.clone()) => self.says(Kinds::CURSORS),
            b"declare" => self.makes(Kinds::CURSORS),
            b"close" => self.ends(Kinds::CURSORS),
            b"drop" => self.ends(Kinds::OBJECTS),
            b"deallocate" => self.ends(Kinds::PREPARED),
            b"load" => self.says(Kinds::LASTING),
            // Its code ends with it.
            b"create" if is_temporary(&mut behind.clone()) => self.says(Kinds::OBJECTS),
            b"create" | b"alter" | b"import" => self.alters = true,
            // What it makes visible was created elsewhere.
            b"commit" if next_is(&mut behind.clone(), b"prepared") => {
                (self.alters, self.defines_lasting) = (true, true)
            }
            b"commit" => (self.commits, self.ends_transaction) = (true, true),
            // They run the code of indexes: of those of a table that they name, or of all.
            b"vacuum" | b"analyze" | b"analyse" | b"reindex" | b"cluster" => {
                let all = Kinds::ANY.with(Kinds::LASTING);
                self.makes(if names_table(&mut behind.clone()) { Kinds::ANY } else { all });
            }
            b"prepare" if next_is(&mut behind.clone(), b"transaction") => {}
            b"prepare" => self.says(Kinds::PREPARED),
            _ => {}
        }
    }

    /// SET, up to its name.
    fn set(&mut self, behind: &mut Tokens<'_>) {
        let first = dotted_name(behind);
        match &*first {
            "local" => match &*dotted_name(behind) {
                "seed" => self.makes(Kinds::LASTING),
                own => {
                    self.sets_strings |= own == "names";
                    self.sets_read |= reads(own);
                }
            },
            // Of client_encoding.
            "names" => (self.sets_strings, self.sets_read) = (true, true),
            "time" => self.sets_read = true,
            "transaction" | "constraints" => {}
            "session" => match &*dotted_name(behind) {
                "characteristics" | "authorization" | "" => self.says(Kinds::PARAMETERS),
                "names" => (self.sets_strings, self.sets_read) = (true, true),
                "time" => self.sets_read = true,
                "transaction" => {}
                own => self.sets(own, true),
            },
            own => self.sets(own, true),
        }
    }

    /// `says`: for longer than its transaction.
    fn sets(&mut self, own: &str, says: bool) {
        let sets_read = self.sets_read || reads(own);
        if REPORTED.contains(&own) {
            return self.sets_read = sets_read;
        }
        self.makes(Kinds::PARAMETERS);
        if says {
            self.says(Kinds::PARAMETERS);
        }
        self.sets_read = sets_read;
        let has_empty_part = || own.contains('.') && own.split('.').any(str::is_empty);
        if !own.is_ascii() || own.len() > NAME_BYTES || UNSEEN.contains(&own) || has_empty_part() {
            // In an encoding that may change, or cut, or not shown, or (before 14) no name that a RESET takes.
            self.makes(Kinds::LASTING);
        } else if own.contains('.') {
            self.names.push(own.into());
        }
    }

    fn reset(&mut self, behind: &mut Tokens<'_>) {
        let name = dotted_name(behind);
        let sets_read = self.sets_read || reads(&name);
        if !REPORTED.contains(&&*name) {
            self.ends(Kinds::PARAMETERS);
        }
        self.sets_read = sets_read;
    }

    /// The arguments of a call: whose name is not known, or not that it is local, is taken for the other.
    fn set_config(&mut self, behind: &mut Tokens<'_>) {
        let first = match (behind.raw(), behind.raw()) {
            (Some(Raw::Sign(b'(')), first) => first,
            // In quotes, or a name of something else.
            _ => {
                self.sets_strings = true;
                return self.makes(Kinds::PARAMETERS.with(Kinds::LASTING));
            }
        };
        let (mut depth, mut commas) = (0_usize, 0);
        // The first argument is one string, and the third is one word.
        let (mut alone, mut third, mut says_false) = (true, None, false);
        loop {
            let token = behind.raw().filter(|_| self.looked_ahead < LOOKED_AHEAD_MAX);
            let Some(token) = token else {
                self.sets_strings = true;
                return self.set_by_call(None, false);
            };
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
                2 => {
                    says_false = third.is_none() && is_word(token, b"false");
                    third = Some(third.is_none() && is_word(token, b"true"));
                }
                _ => {}
            }
        }
        let is_seed = matches!(first, Some(Raw::Text(name)) if name.eq_ignore_ascii_case(b"seed"));
        let named = first.filter(|first| alone && is_plain_string(*first));
        self.sets_strings |= named.is_none_or(says_how_texts_are_read);
        if !(third == Some(true) && commas == 2) || is_seed {
            self.set_by_call(named, says_false && commas == 2);
        } else if named.is_none() {
            self.makes(Kinds::SEED);
            self.sets_read = true;
        } else if let Some(Raw::Text(name)) = named {
            self.sets_read |= reads(&String::from_utf8_lossy(name).to_ascii_lowercase());
        }
    }

    fn set_by_call(&mut self, name: Option<Raw<'_>>, says: bool) {
        match name {
            Some(Raw::Text(name)) => {
                self.sets(&String::from_utf8_lossy(name).to_ascii_lowercase(), says);
            }
            _ => {
                if says {
                    self.says(Kinds::PARAMETERS);
                }
                self.makes(Kinds::PARAMETERS.with(Kinds::LASTING));
            }
        }
    }
}

/// Whether a parameter of this name means anything to parsing. PostgreSQL itself reads none with a dot in its name.
fn reads(name: &str) -> bool {
    !name.contains('.') && is_read(name)
}

/// A string that is what stands there.
fn is_plain_string(token: Raw<'_>) -> bool {
    matches!(token, Raw::Text(text) if !text.iter().any(|byte| matches!(byte, b'\'' | b'\\')))
}

/// A parameter's name, in a string.
fn says_how_texts_are_read(token: Raw<'_>) -> bool {
    let names = ["client_encoding", "standard_conforming_strings"];
    matches!(token, Raw::Text(text) if names.iter().any(|name| text.eq_ignore_ascii_case(name.as_bytes())))
}

fn is_word(token: Raw<'_>, expected: &[u8]) -> bool {
    matches!(token, Raw::Word(word) if word.eq_ignore_ascii_case(expected))
}

fn is_one_of(token: Option<Raw<'_>>, words: &[&[u8]]) -> bool {
    token.is_some_and(|token| words.iter().any(|word| is_word(token, word)))
}

/// The types that a Parse declares of its parameters, but PostgreSQL's own.
pub(crate) fn declared_types(definition: &[u8]) -> impl Iterator<Item = u32> {
    // Behind the text's end, and how many they are.
    let (types, _) = definition.get(text_of(definition).len() + 3..).unwrap_or_default().as_chunks::<4>();
    types.iter().map(|number| u32::from_be_bytes(*number)).filter(|number| *number >= USERS_FROM)
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

#[cfg(test)]
mod tests;
