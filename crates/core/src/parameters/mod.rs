//! Session parameters: what a client's session has, what a server's session has, and the difference between the two.
//!
//! A parameter that PostgreSQL reports (ParameterStatus, "protocol-flow-async") is known exactly, whoever changed it. One it does
//! not report is known where a client set it in its startup packet.

pub(crate) mod meanings;
pub(crate) mod reading;
pub(crate) mod resets;
pub(crate) mod resetting;
pub(crate) mod startup;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::writing::{write_query, write_reset, write_set};

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
/// Who has it may not set what only a superuser may: it is set last, and reset first.
const ROLE: &str = "role";
/// As it is set, PostgreSQL makes of it a name with its schema, by the search_path and the role of then
/// (`check_default_text_search_config`, src/backend/utils/cache/ts_cache.c).
const TEXT_SEARCH: &str = "default_text_search_config";

/// Interned sets above which those nobody uses any more are dropped.
const SETS_SWEPT_ABOVE: usize = 1024;
/// Parameters that one server may report, and the bytes of their names and values. PostgreSQL 18 reports 15
/// (`GUC_REPORT`, src/backend/utils/misc/guc_tables.c); extensions may add some.
const REPORTED_MAX: usize = 64;
const REPORTED_BYTES_MAX: usize = 64 * 1024;

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
    /// Some of them are not reported: whoever uses a server may change them there unnoticed.
    unreported: bool,
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
        Self { values: self.values.iter().map(copy).collect(), unreported: self.unreported }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn is_ascii(&self) -> bool {
        self.values.iter().all(Parameter::is_ascii)
    }

    pub(crate) fn reported_only(&self) -> Self {
        Self { values: self.values.iter().filter(|value| value.reported).cloned().collect(), unreported: false }
    }

    #[inline]
    pub(crate) fn has_unreported(&self) -> bool {
        self.unreported
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Parameter> {
        self.find(name).ok().map(|at| &self.values[at])
    }

    pub(crate) fn set(&mut self, name: &str, value: &[u8], reported: bool) {
        match self.find(name) {
            Ok(at) => {
                self.values[at].value = value.into();
                if reported && !self.values[at].reported {
                    self.values[at].reported = true;
                    self.unreported = self.values.iter().any(|parameter| !parameter.reported);
                }
            }
            Err(at) => {
                self.values.insert(at, Parameter { name: name.into(), value: value.into(), reported });
                self.unreported |= !reported;
            }
        }
    }

    /// Whether a server may have reported so much.
    pub(crate) fn is_within_bounds(&self) -> bool {
        let reported = self.values.iter().filter(|parameter| parameter.reported);
        let (count, bytes) = reported.fold((0, 0), |(count, bytes), parameter| {
            (count + 1, bytes + parameter.name.len() + parameter.value.len())
        });
        count <= REPORTED_MAX && bytes <= REPORTED_BYTES_MAX
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Parameter> {
        self.values.iter()
    }

    /// Whether PostgreSQL has told a value that means something else in another encoding.
    pub(crate) fn has_foreign_text(&self) -> bool {
        self.foreign_texts().next().is_some()
    }

    pub(crate) fn foreign_texts(&self) -> impl Iterator<Item = &Parameter> {
        self.values.iter().filter(|parameter| parameter.reported && !parameter.value.is_ascii())
    }

    /// Whether some of that is not the servers' own default.
    pub(crate) fn has_left_text(&self, defaults: &Self) -> bool {
        self.foreign_texts().any(|told| defaults.get(&told.name).is_none_or(|default| default.value != told.value))
    }

    pub(crate) fn has_encoding(&self) -> bool {
        self.get(ENCODING).is_some()
    }

    pub(crate) fn encoding(&self) -> &[u8] {
        self.get(ENCODING).map_or(b"", |parameter| &parameter.value)
    }

    fn unreported(&self) -> impl Iterator<Item = &Parameter> + Clone {
        let values = if self.unreported { &*self.values } else { &[] };
        values.iter().filter(|parameter| !parameter.reported)
    }

    /// The role, where a startup packet has one.
    fn role(&self) -> Option<&Parameter> {
        self.unreported().find(|parameter| is_role(&parameter.name))
    }

    /// Whether a session that has these can serve one that has others before it has those: the name that is shown of it is not
    /// read by what it does.
    pub(crate) fn differs_by_name_only(&self, wanted: &Self) -> bool {
        let matters = |parameter: &&Parameter| !same_name(&parameter.name, "application_name");
        let same = |(ours, theirs): (&Parameter, &Parameter)| ours == theirs;
        !self.unreported
            && !wanted.unreported
            && self.values.len() == wanted.values.len()
            && self.values.iter().filter(matters).zip(wanted.values.iter().filter(matters)).all(same)
    }

    /// The Query messages that bring a server's session from `self` to `wanted`, and how many; none where they agree. What is
    /// not reported is set in any case: a statement may have changed it.
    ///
    /// PostgreSQL reads each message in the encoding that counts when it comes (`pq_getmsgstring`,
    /// src/backend/libpq/pqformat.c). Values of a startup packet are in the server's encoding, reported ones in the client's.
    pub(crate) fn write_difference(&self, wanted: &Self, server_encoding: &[u8], out: &mut Vec<u8>) -> usize {
        let mut messages = 0;
        let mut encoding = self.encoding();
        let gone = self.unreported().filter(|ours| wanted.get(&ours.name).is_none());
        let foreign = gone.clone().any(|ours| !ours.name.is_ascii()) || !wanted.unreported().all(Parameter::is_ascii);
        if foreign && encoding != server_encoding {
            messages += write_query(out, |sql| write_encoding(sql, server_encoding));
            encoding = server_encoding;
        }
        let differs = |theirs: &&Parameter| {
            theirs.reported && self.get(&theirs.name).is_none_or(|ours| ours.value != theirs.value)
        };
        let differing = wanted.values.iter().filter(differs).filter(|theirs| !same_name(&theirs.name, ENCODING));
        let switch = encoding != wanted.encoding();
        let apart = switch && (foreign || !differing.clone().all(Parameter::is_ascii));
        let reset = |sql: &mut Vec<u8>| {
            let names = gone.clone().map(|ours| &*ours.name).filter(|name| !is_role(name));
            self.role().map(|role| &*role.name).into_iter().chain(names).for_each(|name| write_reset(sql, name));
        };
        let unreported = wanted.unreported().filter(|theirs| !is_role(&theirs.name));
        if apart {
            messages += write_query(out, |sql| {
                reset(sql);
                write_set(sql, unreported.chain(wanted.role()).map(Parameter::pair));
            });
            messages += write_query(out, |sql| write_encoding(sql, wanted.encoding()));
            return messages + write_query(out, |sql| write_set(sql, differing.map(Parameter::pair)));
        }
        messages
            + write_query(out, |sql| {
                reset(sql);
                let encoding = wanted.get(ENCODING).filter(|_| switch);
                write_set(sql, unreported.chain(encoding).chain(differing).chain(wanted.role()).map(Parameter::pair));
            })
    }

    /// The Query messages that give values again to a server's session that has `self`, and how many. `told`: the encoding
    /// that those are in which PostgreSQL has told.
    pub(crate) fn write_again(&self, given: &Self, told: &[u8], server_encoding: &[u8], out: &mut Vec<u8>) -> usize {
        let mut wanted = self.clone();
        given.iter().for_each(|own| wanted.set(&own.name, &own.value, own.reported));
        let mut between = wanted.clone();
        between.set(ENCODING, told, true);
        let messages = self.write_difference(&between, server_encoding, out);
        messages + between.reported_only().write_difference(&wanted.reported_only(), server_encoding, out)
    }

    /// The Query messages that try values of a startup packet on a server whose session has `self`, and how many. What other
    /// clients left is reset first: PostgreSQL makes of a value what it would make of it in a new session. All of it fails
    /// as one.
    pub(crate) fn write_trial(
        &self,
        startup: &[(Arc<str>, Arc<str>)],
        server_encoding: &[u8],
        out: &mut Vec<u8>,
    ) -> usize {
        let mut messages = 0;
        let left = self.unreported().filter(|ours| startup.iter().all(|(name, _)| !same_name(&ours.name, name)));
        let ascii = left.clone().all(|ours| ours.name.is_ascii())
            && startup.iter().all(|(name, value)| name.is_ascii() && value.is_ascii());
        let switch = !ascii && self.encoding() != server_encoding;
        if switch {
            messages += write_query(out, |sql| write_encoding(sql, server_encoding));
        }
        messages
            + write_query(out, |sql| {
                let names = left.map(|ours| &ours.name).chain(startup.iter().map(|(name, _)| name));
                names.for_each(|name| write_reset(sql, name));
                if switch && !startup.iter().any(|(name, _)| same_name(name, ENCODING)) {
                    write_reset(sql, ENCODING);
                }
                write_set(sql, in_order(startup).into_iter().map(|(name, value)| (&**name, value.as_bytes())));
            })
    }

    /// These with what the trial's row of values tells of a startup packet beyond what PostgreSQL reports.
    pub(crate) fn with_tried(&self, startup: &[(Arc<str>, Arc<str>)], row: &[Option<&[u8]>]) -> Option<Self> {
        let at = in_order(startup).iter().rposition(|(name, _)| is_text_search(name))?;
        // What is not ASCII comes in the client's encoding, and is sent in the server's.
        let value = (*row.get(at)?)?;
        if row.len() != startup.len() || !value.is_ascii() {
            return None;
        }
        let mut tried = self.clone();
        tried.set(TEXT_SEARCH, value, false);
        Some(tried)
    }
}

impl Parameter {
    fn is_ascii(&self) -> bool {
        self.name.is_ascii() && self.value.is_ascii()
    }

    fn pair(&self) -> (&str, &[u8]) {
        (&self.name, &self.value)
    }
}

fn write_encoding(sql: &mut Vec<u8>, encoding: &[u8]) {
    write_set(sql, std::iter::once((ENCODING, encoding)));
}

pub(crate) fn is_encoding(name: &str) -> bool {
    same_name(name, ENCODING)
}

pub(crate) fn is_role(name: &str) -> bool {
    same_name(name, ROLE)
}

/// Whether PostgreSQL makes something else of a value that it does not report.
pub(crate) fn is_text_search(name: &str) -> bool {
    same_name(name, TEXT_SEARCH)
}

/// What a startup packet sets, in an order in which SET may do it. PostgreSQL takes the packet in its own order, whoever may set
/// what (`process_startup_options`, src/backend/utils/init/postinit.c): only the role has to wait, up to what depends on it.
fn in_order(startup: &[(Arc<str>, Arc<str>)]) -> Vec<&(Arc<str>, Arc<str>)> {
    let (mut ordered, mut roles) = (Vec::new(), Vec::new());
    for parameter in startup {
        if is_role(&parameter.0) {
            roles.push(parameter);
            continue;
        }
        if is_text_search(&parameter.0) {
            ordered.append(&mut roles);
        }
        ordered.push(parameter);
    }
    ordered.append(&mut roles);
    ordered
}

fn same_name(left: &str, right: &str) -> bool {
    compare_names(left, right).is_eq()
}

pub(crate) fn compare_names(left: &str, right: &str) -> std::cmp::Ordering {
    let lower = |byte: u8| byte.to_ascii_lowercase();
    left.bytes().map(lower).cmp(right.bytes().map(lower))
}

/// Equal sets are one value, so that the usual comparison is that of two pointers.
#[derive(Debug, Default)]
pub(crate) struct ParameterSets {
    sets: BTreeSet<Arc<ParameterSet>>,
    sweep_above: usize,
    #[cfg(feature = "planted")]
    pub(crate) planted: Option<crate::planted::Planted>,
}

impl ParameterSets {
    /// PostgreSQL reports a parameter's value: most often the one that is known. False where that is more than any
    /// server has to report; the set is then as it was.
    pub(crate) fn change(&mut self, set: &mut Arc<ParameterSet>, name: &str, value: &[u8]) -> bool {
        if set.get(name).is_some_and(|known| known.reported && *known.value == *value) {
            return true;
        }
        let mut changed = (**set).clone();
        changed.set(name, value, true);
        if !changed.is_within_bounds() {
            return false;
        }
        let before = std::mem::replace(set, self.intern(changed));
        // Ours and the list's: a server that reports on and on leaves nothing behind.
        if Arc::strong_count(&before) == 2 {
            self.sets.remove(&*before);
        }
        true
    }

    /// What parsing reads of this set, interned: the part of a prepared statement's meaning that is not in its text.
    pub(crate) fn reading(&mut self, set: &ParameterSet) -> Arc<ParameterSet> {
        #[cfg(feature = "planted")]
        if self.planted == Some(crate::planted::Planted::ShareAcrossParameters) {
            return self.intern(ParameterSet::default());
        }
        self.intern(set.read_by_parsing())
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

    fn difference(from: &ParameterSet, to: &ParameterSet) -> String {
        let mut out = Vec::new();
        from.write_difference(to, b"UTF8", &mut out);
        texts(&out).join(" | ")
    }

    /// The texts of Query messages.
    fn texts(mut out: &[u8]) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some((header, rest)) = out.split_first_chunk::<5>() {
            let len = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize - 4;
            texts.push(String::from_utf8_lossy(&rest[..len - 1]).into_owned());
            out = &rest[len..];
        }
        texts
    }

    #[test]
    fn equal_sets_need_no_message() {
        let one = set(&[("TimeZone", "UTC", true), ("DateStyle", "ISO, MDY", true)]);
        assert_eq!(difference(&one, &one.clone()), "");
    }

    #[test]
    fn what_another_client_set_is_reset() {
        let server = set(&[("TimeZone", "UTC", true), ("statement_timeout", "5s", false)]);
        let client = set(&[("timezone", "Europe/Berlin", true)]);
        assert_eq!(
            difference(&server, &client),
            "RESET \"statement_timeout\";SELECT pg_catalog.set_config(E'timezone',E'Europe/Berlin',false)"
        );
    }

    #[test]
    fn quotes_and_backslashes_stay_inside_the_literal() {
        let client = set(&[("application_name", "a'b\\c", true)]);
        assert_eq!(
            difference(&ParameterSet::default(), &client),
            "SELECT pg_catalog.set_config(E'application_name',E'a''b\\\\c',false)"
        );
    }

    #[test]
    fn what_is_not_reported_is_set_again() {
        let one = set(&[("TimeZone", "UTC", true), ("work_mem", "64MB", false)]);
        assert!(one.has_unreported());
        assert_eq!(difference(&one, &one.clone()), "SELECT pg_catalog.set_config(E'work_mem',E'64MB',false)");
    }

    #[test]
    fn only_the_name_may_be_anothers_for_a_moment() {
        let [one, two, three] = [("UTC", "a"), ("UTC", "b"), ("CET", "b")]
            .map(|(zone, name)| set(&[("application_name", name, true), ("TimeZone", zone, true)]));
        assert!(one.differs_by_name_only(&two) && !two.differs_by_name_only(&three));
        assert!(!one.differs_by_name_only(&set(&[("TimeZone", "UTC", true), ("role", "a", true)])));
        assert!(!one.differs_by_name_only(&set(&[("application_name", "b", true), ("TimeZone", "UTC", false)])));
    }

    #[test]
    fn a_value_is_tried_on_the_default() {
        let server = set(&[("DateStyle", "ISO, DMY", true), ("role", "bob", false), ("work_mem", "1MB", false)]);
        let startup = [("datestyle", "ISO"), ("Work_mem", "2MB")].map(|(name, value)| (name.into(), value.into()));
        let mut out = Vec::new();
        server.write_trial(&startup, b"UTF8", &mut out);
        assert_eq!(
            texts(&out).join(" | "),
            "RESET \"role\";RESET \"datestyle\";RESET \"Work_mem\";SELECT pg_catalog.set_config(E'datestyle',E'ISO',false),\
             pg_catalog.set_config(E'Work_mem',E'2MB',false)"
        );
    }

    #[test]
    fn the_role_is_set_last_and_reset_first() {
        let server = set(&[("lc_messages", "C", false), ("role", "bob", false), ("TimeZone", "CET", true)]);
        let client = set(&[("Role", "eve", false), ("track_io_timing", "on", false), ("TimeZone", "UTC", true)]);
        assert_eq!(
            difference(&server, &client),
            "RESET \"role\";RESET \"lc_messages\";SELECT pg_catalog.set_config(E'track_io_timing',E'on',false),\
             pg_catalog.set_config(E'TimeZone',E'UTC',false),pg_catalog.set_config(E'Role',E'eve',false)"
        );
        let plain = set(&[("TimeZone", "CET", true)]);
        assert_eq!(difference(&server, &plain), "RESET \"role\";RESET \"lc_messages\";");
        assert_eq!(
            String::from_utf8(client.settings(|own| !own.reported)).unwrap(),
            "SELECT pg_catalog.set_config(E'track_io_timing',E'on',false),pg_catalog.set_config(E'Role',E'eve',false)"
        );
    }

    #[test]
    fn a_packet_is_tried_in_an_order_in_which_set_takes_it() {
        let order = |names: &[&str]| {
            let startup: Vec<_> = names.iter().map(|name| ((*name).into(), "".into())).collect();
            in_order(&startup).iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(&["role", "log_statement", "a"]), "log_statement a role");
        let texts = "default_text_search_config";
        assert_eq!(order(&["ROLE", "search_path", texts, "b"]), format!("search_path ROLE {texts} b"));
        assert_eq!(order(&[texts, "search_path", "role"]), format!("{texts} search_path role"));
    }

    #[test]
    fn a_text_search_configuration_is_known_with_its_schema() {
        let server = set(&[("TimeZone", "UTC", true)]);
        let startup =
            [("role", "r"), ("default_text_search_config", "mine")].map(|(name, value)| (name.into(), value.into()));
        let row = [Some(&b"r"[..]), Some(&b"a.mine"[..])];
        let tried = server.with_tried(&startup, &row).unwrap();
        assert_eq!(&*tried.get("default_text_search_config").unwrap().value, b"a.mine");
        assert!(server.with_tried(&startup, &row[1..]).is_none());
        assert!(server.with_tried(&startup[..1], &row[..1]).is_none());
    }

    #[test]
    fn values_are_set_in_the_encoding_that_they_are_in() {
        let server = set(&[("client_encoding", "LATIN1", true), ("search_path", "a", true)]);
        let client = set(&[("client_encoding", "SJIS", true), ("role", "表", false), ("search_path", "表", true)]);
        assert_eq!(
            difference(&server, &client),
            "SELECT pg_catalog.set_config(E'client_encoding',E'UTF8',false) | SELECT pg_catalog.set_config(E'role',$w$表$w$,false) \
             | SELECT pg_catalog.set_config(E'client_encoding',E'SJIS',false) \
             | SELECT pg_catalog.set_config(E'search_path',$w$表$w$,false)"
        );
        let startup = [("search_path".into(), "é".into())];
        let mut out = Vec::new();
        assert_eq!(server.write_trial(&startup, b"UTF8", &mut out), 2);
        assert_eq!(
            texts(&out)[1],
            "RESET \"search_path\";RESET \"client_encoding\";SELECT pg_catalog.set_config(E'search_path',$w$é$w$,false)"
        );
    }

    #[test]
    fn a_server_cannot_report_without_end() {
        let mut sets = ParameterSets::default();
        let mut set = sets.intern(ParameterSet::default());
        for number in 0..REPORTED_MAX {
            assert!(sets.change(&mut set, &format!("parameter_{number}"), b"on"));
        }
        assert!(!sets.change(&mut set, "one_more", b"on"));
        assert!(set.get("one_more").is_none());
        assert!(!sets.change(&mut set, "parameter_0", &[b'x'; REPORTED_BYTES_MAX]));
        for number in 0..10 * SETS_SWEPT_ABOVE {
            assert!(sets.change(&mut set, "parameter_0", number.to_string().as_bytes()));
        }
        assert!(sets.sets.len() <= 2, "{} sets are kept of one server", sets.sets.len());
        // What a client sets is bounded by its startup packet, and is not the server's to answer for.
        let mut set = ParameterSet::default();
        (0..1000).for_each(|number| set.set(&format!("my.{number}"), b"on", false));
        assert!(set.is_within_bounds());
    }
}
