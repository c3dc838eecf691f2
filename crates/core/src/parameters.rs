//! Session parameters: what a client's session has, what a server's session has, and the difference between the two.
//!
//! A parameter that PostgreSQL reports (ParameterStatus, "protocol-flow-async") is known exactly, whoever changed it. One it does
//! not report is known where a client set it in its startup packet.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_wire::{HEADER_LEN, write};

/// Reported, but facts of the server or the login: nothing that a session may be given.
const FACTS: [&str; 6] = [
    "server_version",
    "server_encoding",
    "in_hot_standby",
    "is_superuser",
    "session_authorization",
    "integer_datetimes",
];

const ENCODING: &str = "client_encoding";

/// Interned sets above which those nobody uses any more are dropped.
const SETS_SWEPT_ABOVE: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Parameter {
    /// As PostgreSQL spells it, or as the client did where PostgreSQL has not spelled it for us.
    pub(crate) name: Arc<str>,
    pub(crate) value: Arc<[u8]>,
    pub(crate) reported: bool,
}

/// Parameters by name, without regard to case, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ParameterSet {
    values: Vec<Parameter>,
}

pub(crate) fn is_fact(name: &str) -> bool {
    FACTS.contains(&name)
}

impl ParameterSet {
    fn find(&self, name: &str) -> Result<usize, usize> {
        self.values.binary_search_by(|parameter| compare_names(&parameter.name, name))
    }

    /// The same values, shared with nobody: what two workers share, both would count.
    pub(crate) fn own_copy(&self) -> Self {
        let copy = |parameter: &Parameter| Parameter {
            name: (&*parameter.name).into(),
            value: (&*parameter.value).into(),
            reported: parameter.reported,
        };
        Self { values: self.values.iter().map(copy).collect() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Parameter> {
        self.find(name).ok().map(|at| &self.values[at])
    }

    pub(crate) fn set(&mut self, name: &str, value: &[u8], reported: bool) {
        match self.find(name) {
            Ok(at) => {
                self.values[at].value = value.into();
                self.values[at].reported |= reported;
            }
            Err(at) => self.values.insert(at, Parameter { name: name.into(), value: value.into(), reported }),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Parameter> {
        self.values.iter()
    }

    /// Where the encodings differ and a value is not ASCII, the session's own encoding comes first, in a message of its
    /// own: PostgreSQL reads each message in the encoding that counts when it comes (`pg_getmsgstring`,
    /// src/backend/libpq/pqformat.c). Answers what `self` is after that.
    pub(crate) fn write_encoding(&self, wanted: &Self, out: &mut Vec<u8>) -> Option<Self> {
        let encoding = wanted.get(ENCODING)?;
        let same = self.get(ENCODING).is_some_and(|ours| ours.value == encoding.value);
        if same || wanted.values.iter().all(|theirs| theirs.name.is_ascii() && theirs.value.is_ascii()) {
            return None;
        }
        let mut between = self.clone();
        between.set(&encoding.name, &encoding.value, encoding.reported);
        self.write_difference(&between, false, out);
        Some(between)
    }

    /// The Query message that brings a server's session from `self` to `wanted`; nothing where they agree.
    /// `unsure`: what is not reported may have been changed behind our back and is set in any case.
    pub(crate) fn write_difference(&self, wanted: &Self, unsure: bool, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        write::query_of(out, |sql| self.difference(wanted, unsure, sql));
        let written = out.len() > start + HEADER_LEN + 1;
        if !written {
            out.truncate(start);
        }
        written
    }

    fn difference(&self, wanted: &Self, unsure: bool, sql: &mut Vec<u8>) {
        for ours in self.values.iter().filter(|ours| !ours.reported && wanted.get(&ours.name).is_none()) {
            sql.extend_from_slice(b"RESET ");
            write_name(sql, &ours.name);
            sql.push(b';');
        }
        let mut separator: &[u8] = b"SELECT ";
        for theirs in &wanted.values {
            let same = self.get(&theirs.name).is_some_and(|ours| ours.value == theirs.value);
            if same && (theirs.reported || !unsure) {
                continue;
            }
            sql.extend_from_slice(separator);
            sql.extend_from_slice(b"pg_catalog.set_config(");
            write_literal(sql, theirs.name.as_bytes());
            sql.push(b',');
            write_literal(sql, &theirs.value);
            sql.extend_from_slice(b",false)");
            separator = b",";
        }
    }
}

fn compare_names(left: &str, right: &str) -> std::cmp::Ordering {
    let lower = |byte: u8| byte.to_ascii_lowercase();
    left.bytes().map(lower).cmp(right.bytes().map(lower))
}

/// An escape string reads the same whatever standard_conforming_strings says.
fn write_literal(sql: &mut Vec<u8>, value: &[u8]) {
    sql.extend_from_slice(b"E'");
    for &byte in value {
        if byte == b'\'' || byte == b'\\' {
            sql.push(byte);
        }
        sql.push(byte);
    }
    sql.push(b'\'');
}

/// A custom parameter's name has dots between its parts.
fn write_name(sql: &mut Vec<u8>, name: &str) {
    for (count, part) in name.split('.').enumerate() {
        if count > 0 {
            sql.push(b'.');
        }
        sql.push(b'"');
        sql.extend(part.bytes().flat_map(|byte| std::iter::repeat_n(byte, if byte == b'"' { 2 } else { 1 })));
        sql.push(b'"');
    }
}

/// Equal sets are one value, so that the usual comparison is that of two pointers.
#[derive(Debug, Default)]
pub(crate) struct ParameterSets {
    sets: BTreeSet<Arc<ParameterSet>>,
    sweep_above: usize,
}

impl ParameterSets {
    /// PostgreSQL reports a parameter's value: most often the one that is known.
    pub(crate) fn change(&mut self, set: &mut Arc<ParameterSet>, name: &str, value: &[u8]) {
        if set.get(name).is_some_and(|known| known.reported && *known.value == *value) {
            return;
        }
        let mut changed = (**set).clone();
        changed.set(name, value, true);
        *set = self.intern(changed);
    }

    pub(crate) fn intern(&mut self, set: ParameterSet) -> Arc<ParameterSet> {
        if let Some(known) = self.sets.get(&set) {
            return Arc::clone(known);
        }
        if self.sets.len() > self.sweep_above.max(SETS_SWEPT_ABOVE) {
            self.sets.retain(|set| Arc::strong_count(set) > 1);
            self.sweep_above = self.sets.len() * 2;
        }
        let set = Arc::new(set);
        self.sets.insert(Arc::clone(&set));
        set
    }
}

/// Splits the `options` of a startup packet: words, where a backslash keeps the next character as it is
/// (`pg_split_opts`, src/backend/utils/init/postinit.c), of the forms `-c name=value`, `-cname=value` and `--name=value`.
pub(crate) fn split_options(options: &str) -> Result<Vec<(String, String)>, String> {
    let mut parameters = Vec::new();
    let mut words = words(options).into_iter();
    while let Some(word) = words.next() {
        let assignment = if word == "-c" {
            words.next().ok_or("the option -c in \"options\" needs name=value")?
        } else if let Some(rest) = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            rest.to_owned()
        } else {
            return Err(format!("the option \"{word}\" in \"options\" is not supported: only -c name=value is"));
        };
        let (name, value) =
            assignment.split_once('=').ok_or_else(|| format!("the option \"{assignment}\" needs a value"))?;
        parameters.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(parameters)
}

fn words(options: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        if character.is_ascii_whitespace() {
            words.extend(word.take());
            continue;
        }
        let kept = if character == '\\' { characters.next() } else { Some(character) };
        word.get_or_insert_default().extend(kept);
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(values: &[(&str, &str, bool)]) -> ParameterSet {
        let mut set = ParameterSet::default();
        for (name, value, reported) in values {
            set.set(name, value.as_bytes(), *reported);
        }
        set
    }

    fn difference(from: &ParameterSet, to: &ParameterSet, unsure: bool) -> String {
        let mut out = Vec::new();
        from.write_difference(to, unsure, &mut out);
        String::from_utf8(out.get(5..).unwrap_or(&[]).to_vec()).unwrap().trim_end_matches('\0').to_owned()
    }

    #[test]
    fn equal_sets_need_no_message() {
        let one = set(&[("TimeZone", "UTC", true), ("statement_timeout", "5s", false)]);
        assert_eq!(difference(&one, &one.clone(), false), "");
    }

    #[test]
    fn what_another_client_set_is_reset() {
        let server = set(&[("TimeZone", "UTC", true), ("statement_timeout", "5s", false)]);
        let client = set(&[("timezone", "Europe/Berlin", true)]);
        assert_eq!(
            difference(&server, &client, false),
            "RESET \"statement_timeout\";SELECT pg_catalog.set_config(E'timezone',E'Europe/Berlin',false)"
        );
    }

    #[test]
    fn quotes_and_backslashes_stay_inside_the_literal() {
        let client = set(&[("application_name", "a'b\\c", true)]);
        assert_eq!(
            difference(&ParameterSet::default(), &client, false),
            "SELECT pg_catalog.set_config(E'application_name',E'a''b\\\\c',false)"
        );
    }

    #[test]
    fn unsure_sets_again_what_is_not_reported() {
        let one = set(&[("TimeZone", "UTC", true), ("work_mem", "64MB", false)]);
        assert_eq!(difference(&one, &one.clone(), true), "SELECT pg_catalog.set_config(E'work_mem',E'64MB',false)");
    }

    #[test]
    fn options_are_split_as_postgresql_does() {
        let parsed = split_options("-c statement_timeout=5s  --search-path=a,\\ b -cgeqo=off").unwrap();
        let expected = [("statement_timeout", "5s"), ("search_path", "a, b"), ("geqo", "off")];
        assert_eq!(parsed, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(split_options("-B 4").is_err());
        assert!(split_options("-c").is_err());
    }
}
