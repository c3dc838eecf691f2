//! Session parameters: what a client's session has, what a server's session has, and the difference between the two.
//!
//! A parameter that PostgreSQL reports (ParameterStatus, "protocol-flow-async") is known exactly, whoever changed it. One it does
//! not report is known where a client set it in its startup packet.

pub(crate) mod encodings;
pub(crate) mod meanings;
pub(crate) mod reading;
pub(crate) mod resets;
pub(crate) mod resetting;
mod sets;
pub(crate) mod startup;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_wire::startup::STARTUP_LEN_MAX;

pub(crate) use sets::ParameterSets;

use crate::bytes;
use crate::owed::marks::FORMER;
use crate::parameters::encodings::reads_alike;
use crate::sql::names_temporary;
use crate::writing::{is_blank, write_query, write_reset, write_set};

/// Reported, but facts of the server or the login: nothing that a session may be given.
const FACTS: [&str; 6] = [
    "server_version",
    "server_encoding",
    "in_hot_standby",
    "is_superuser",
    "session_authorization",
    "integer_datetimes",
];

const SEARCH_PATH: &str = "search_path";
const ENCODING: &str = "client_encoding";
/// Who has it may not set what only a superuser may: it is set last, and reset first.
const ROLE: &str = "role";
/// As it is set, PostgreSQL makes of it a name with its schema, by the search_path and the role of then
/// (`check_default_text_search_config`, src/backend/utils/cache/ts_cache.c).
const TEXT_SEARCH: &str = "default_text_search_config";

/// Parameters that one server may report, and the bytes of their names and values. PostgreSQL 18 reports 15
/// (`GUC_REPORT`, src/backend/utils/misc/guc_tables.c); extensions may add some.
const REPORTED_MAX: usize = 64;
const REPORTED_BYTES_MAX: usize = 64 * 1024;
/// Parameters that a session may have, and their bytes: as many as are reported, and as many of its own and of its startup packet.
const HAD_MAX: usize = 2048;
const HAD_BYTES_MAX: usize = 2 * REPORTED_BYTES_MAX + STARTUP_LEN_MAX;
/// Reported by each release that there is (`GUC_REPORT`, src/backend/utils/misc/guc.c since 8.4).
const REPORTED_BY_ALL: [&str; 6] =
    ["application_name", ENCODING, "DateStyle", "IntervalStyle", "standard_conforming_strings", "TimeZone"];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Parameter {
    /// As PostgreSQL spells it, or as the client did where PostgreSQL has not spelled it for us.
    pub(crate) name: Arc<str>,
    #[serde(with = "bytes")]
    pub(crate) value: Arc<[u8]>,
    pub(crate) reported: bool,
}

/// Parameters by name, without regard to case, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Vec<Parameter>", into = "Vec<Parameter>")]
pub(crate) struct ParameterSet {
    values: Vec<Parameter>,
    /// Some of them are not reported: whoever uses a server may change them there unnoticed.
    unreported: bool,
    /// The `search_path` among them names the schema of temporary objects.
    temporary: bool,
}

pub(crate) fn is_fact(name: &str) -> bool {
    FACTS.contains(&name)
}

/// Whether whoever has its default has the default of each server, which brings no other release.
pub(crate) fn is_reported_by_all(name: &str) -> bool {
    REPORTED_BY_ALL.iter().any(|own| same_name(own, name))
}

impl From<ParameterSet> for Vec<Parameter> {
    fn from(set: ParameterSet) -> Self {
        set.values
    }
}

impl From<Vec<Parameter>> for ParameterSet {
    fn from(values: Vec<Parameter>) -> Self {
        let mut set = Self::default();
        values.iter().for_each(|own| set.set(&own.name, &own.value, own.reported));
        set
    }
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
        let Self { unreported, temporary, .. } = *self;
        Self { values: self.values.iter().map(copy).collect(), unreported, temporary }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn is_ascii(&self) -> bool {
        self.values.iter().all(Parameter::is_ascii)
    }

    pub(crate) fn reported_only(&self) -> Self {
        let values: Vec<_> = self.values.iter().filter(|value| value.reported).cloned().collect();
        let temporary = self.temporary && values.iter().any(Parameter::names_temporary);
        Self { values, unreported: false, temporary }
    }

    /// Whether what is created without a schema may be temporary.
    #[inline]
    pub(crate) fn names_temporary(&self) -> bool {
        self.temporary
    }

    #[inline]
    pub(crate) fn has_unreported(&self) -> bool {
        self.unreported
    }

    /// What stands with a query that sets others in a session which has these: they may be what it fails for.
    pub(crate) fn mark_of_former(&self) -> u64 {
        if self.unreported { FORMER } else { 0 }
    }

    /// Whether a server may have these while nobody has it: none of them ends what comes next, a query of ours or the session, or has it
    /// done with other rights.
    pub(crate) fn may_rest(&self) -> bool {
        const RESTLESS: [&str; 6] = [
            "default_transaction_deferrable",
            "idle_session_timeout",
            "lock_timeout",
            "role",
            "statement_timeout",
            "transaction_timeout",
        ];
        let restless = |own: &Parameter| RESTLESS.iter().any(|name| compare_names(name, &own.name).is_eq());
        !self.values.iter().any(|own| !own.reported && restless(own))
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
        if same_name(name, SEARCH_PATH) {
            self.temporary = names_temporary(value);
        }
    }

    /// Whether a server may have reported so much.
    pub(crate) fn is_within_bounds(&self) -> bool {
        let reported = self.values.iter().filter(|own| own.reported);
        let (count, bytes) = reported.fold((0, 0), |(count, bytes), own| (count + 1, bytes + own.bytes()));
        count <= REPORTED_MAX && bytes <= REPORTED_BYTES_MAX
    }

    /// Whether it is no more than a session may have: a server that lies, or some in turn, would make it grow.
    pub(crate) fn is_had_within_bounds(&self) -> bool {
        self.is_within_bounds() && self.values.len() <= HAD_MAX && self.bytes() <= HAD_BYTES_MAX
    }

    /// Whether one more may come that only its server reports: beside what its client has, as few as those that all report.
    pub(crate) fn has_room_for(&self, name: &str, clients: Option<&Self>) -> bool {
        let own = clients.map_or(0, |set| set.unreported().count());
        self.get(name).is_some() || self.unreported().count() < own + REPORTED_MAX
    }

    fn bytes(&self) -> usize {
        self.values.iter().map(Parameter::bytes).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Parameter> {
        self.values.iter()
    }

    /// Whether PostgreSQL has told a value that means something else in another encoding.
    pub(crate) fn has_told_text(&self) -> bool {
        self.values.iter().any(|parameter| parameter.reported && !parameter.value.is_ascii())
    }

    /// Whether what was told of these is in another encoding than PostgreSQL tells from now on, where it reports this value.
    pub(crate) fn makes_stale(&self, name: &str, value: &[u8]) -> bool {
        same_name(name, ENCODING) && value != self.encoding() && self.has_told_text()
    }

    /// Whether what PostgreSQL tells of these is what it has: that is told in the client's encoding, and kept and set in the server's.
    pub(crate) fn is_legible(&self, server_encoding: &[u8]) -> bool {
        !self.has_told_text() || reads_alike(self.encoding(), server_encoding)
    }

    pub(crate) fn encoding(&self) -> &[u8] {
        self.get(ENCODING).map_or(b"", |parameter| &parameter.value)
    }

    /// Whether a backslash in a string stands for itself.
    pub(crate) fn has_standard_strings(&self) -> bool {
        self.get("standard_conforming_strings").is_some_and(|own| &*own.value == b"on")
    }

    /// Whether a server that reports what is reported of the one reports that of the other, and no more.
    pub(crate) fn reports_alike(&self, other: &Self) -> bool {
        let [mut ours, mut theirs] = [self, other].map(|set| set.values.iter().filter(|own| own.reported));
        let same =
            |ours: &Parameter, theirs: &Parameter| Arc::ptr_eq(&ours.name, &theirs.name) || ours.name == theirs.name;
        ours.all(|ours| theirs.next().is_some_and(|theirs| same(ours, theirs))) && theirs.next().is_none()
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

    /// These on a server whose new sessions have `defaults` and report those: which they are is a matter of its release, and of what it loads by
    /// itself. `greeted`: the defaults of the servers that told it, those of them as reported that the client has left as they were (`touch`): these
    /// follow the server. What it has `asked` for in its startup packet, or has where that is not reported, is its own. What of the others it has
    /// changed may be reset unseen where it is not reported: its name is the error. The second answer is what is `greeted` then.
    pub(crate) fn as_reported_by(
        &self,
        defaults: &Self,
        greeted: &Self,
        asked: impl Fn(&str) -> bool,
    ) -> Result<(Self, Self), Arc<str>> {
        let (mut told, mut greets) = (Self::default(), Self::default());
        for own in &self.values {
            let default = defaults.get(&own.name);
            let untouched = greeted.has_untouched(&own.name, &own.value);
            if let Some(default) = default {
                greets.set(&default.name, &own.value, untouched);
            } else if own.reported && untouched {
                continue;
            } else if own.reported && !asked(&own.name) {
                return Err(Arc::clone(&own.name));
            }
            // In its packet it may be spelled otherwise.
            told.set(&default.unwrap_or(own).name, &own.value, default.is_some());
        }
        for own in defaults.values.iter().filter(|own| self.get(&own.name).is_none()) {
            told.set(&own.name, &own.value, true);
            greets.set(&own.name, &own.value, true);
        }
        Ok((told, greets))
    }

    /// Of the defaults that a client was greeted with it has not left these as they were.
    pub(crate) fn touch(&mut self, touched: impl Fn(&str) -> bool) {
        for own in self.values.iter_mut().filter(|own| touched(&own.name)) {
            (own.reported, self.unreported) = (false, true);
        }
    }

    /// Whether this value is the default that a client was greeted with, and which it has had ever since.
    pub(crate) fn has_untouched(&self, name: &str, value: &[u8]) -> bool {
        self.get(name).is_some_and(|greeted| greeted.reported && *greeted.value == *value)
    }

    pub(crate) fn reports(&self, name: &str) -> bool {
        self.get(name).is_some_and(|own| own.reported)
    }

    /// These, of which those are reported that are in the other set.
    pub(crate) fn reported_as(&self, other: &Self) -> Self {
        let mut told = Self::default();
        for own in &self.values {
            let reported = other.get(&own.name).filter(|own| own.reported);
            told.set(&reported.unwrap_or(own).name, &own.value, reported.is_some());
        }
        told
    }

    /// The Query message that brings a server's session from `self` to `wanted`, and how many that is; none where they agree. What is
    /// not reported is set in any case: a statement may have changed it.
    pub(crate) fn write_difference(&self, wanted: &Self, out: &mut Vec<u8>) -> usize {
        // An empty one is set only where the session has no such name (`write_set_config`).
        let gone = self.unreported().filter(|ours| wanted.get(&ours.name).is_none_or(Parameter::is_blank));
        let differs = |theirs: &&Parameter| {
            theirs.reported && self.get(&theirs.name).is_none_or(|ours| ours.value != theirs.value)
        };
        let differing = wanted.values.iter().filter(differs);
        write_query(out, |sql| {
            let names = gone.map(|ours| &*ours.name).filter(|name| !is_role(name));
            self.role()
                .map(|role| &*role.name)
                .into_iter()
                .chain(names.clone())
                .for_each(|name| write_reset(sql, name));
            let resets_end = sql.len();
            let unreported = wanted.unreported().filter(|theirs| !is_role(&theirs.name));
            write_set(sql, unreported.chain(differing).chain(wanted.role()).map(Parameter::pair));
            // A time limit may have run out in the very moment in which it was reset, and is noticed by the next statement
            // (`CHECK_FOR_INTERRUPTS` in `exec_simple_query`, src/backend/tcop/postgres.c at 18): by one of ours, not by the next client's.
            if sql.len() == resets_end
                && let Some(limit) = names.clone().find(|name| name.ends_with("_timeout"))
            {
                write_reset(sql, limit);
            }
        })
    }

    /// The Query message that tries values of a startup packet on a server whose session has `self`, and how many that is. What other
    /// clients left is reset first, reported or not: PostgreSQL makes of a value what it would make of it in a new session. All of it
    /// fails as one.
    pub(crate) fn write_trial(&self, startup: &[(Arc<str>, Arc<str>)], defaults: &Self, out: &mut Vec<u8>) -> usize {
        let asks = |name: &str| startup.iter().any(|(own, _)| same_name(own, name));
        let is_default = |ours: &Parameter| defaults.get(&ours.name).is_some_and(|own| own.value == ours.value);
        let left = self.values.iter().filter(|ours| !(asks(&ours.name) || ours.reported && is_default(ours)));
        let (roles, left): (Vec<_>, Vec<_>) = left.partition(|ours| is_role(&ours.name));
        write_query(out, |sql| {
            let names = roles.iter().chain(&left).map(|ours| &ours.name).chain(startup.iter().map(|(name, _)| name));
            names.for_each(|name| write_reset(sql, name));
            write_set(sql, in_order(startup).into_iter().map(|(name, value)| (&**name, value.as_bytes())));
        })
    }

    /// What a server's session has that had `self`, while it tries values of a startup packet: what is not reported is set or reset in any case for
    /// whoever has the server next. The rest PostgreSQL tells, where it changes.
    pub(crate) fn while_tried(&self, startup: &[(Arc<str>, Arc<str>)]) -> Self {
        let mut tried = self.clone();
        for (name, value) in startup {
            if self.get(name).is_none_or(|known| !known.reported) {
                tried.set(name, value.as_bytes(), false);
            }
        }
        tried
    }

    /// These with what the trial's row of values tells of a startup packet beyond what PostgreSQL reports.
    pub(crate) fn with_tried(&self, startup: &[(Arc<str>, Arc<str>)], row: &[Option<&[u8]>]) -> Option<Self> {
        let at = in_order(startup).iter().rposition(|(name, _)| is_text_search(name))?;
        let value = (*row.get(at)?)?;
        if row.len() != startup.len() {
            return None;
        }
        let mut tried = self.clone();
        tried.set(TEXT_SEARCH, value, false);
        Some(tried)
    }
}

impl Parameter {
    fn bytes(&self) -> usize {
        self.name.len() + self.value.len()
    }

    fn is_blank(&self) -> bool {
        is_blank(self.name.as_bytes(), &self.value)
    }

    fn names_temporary(&self) -> bool {
        same_name(&self.name, SEARCH_PATH) && names_temporary(&self.value)
    }

    fn is_ascii(&self) -> bool {
        self.name.is_ascii() && self.value.is_ascii()
    }

    fn pair(&self) -> (&str, &[u8]) {
        (&self.name, &self.value)
    }
}

/// Whether PostgreSQL would tell a value that is not ASCII in another encoding than its own, to a session of these defaults with this startup
/// packet. Of a value that the other has no letter for it can tell nothing, and tries for ever (`ReportChangedGUCOptions` and the error that is reported behind it,
/// 14.23 to 18.6).
pub(crate) fn is_told_unlike(
    startup: &[(Arc<str>, Arc<str>)],
    defaults: &ParameterSet,
    server_encoding: &[u8],
) -> bool {
    let asked = |name: &str| startup.iter().rev().find(|(own, _)| same_name(own, name)).map(|(_, value)| &**value);
    let encoding = asked(ENCODING).map_or(defaults.encoding(), str::as_bytes);
    let told = |own: &Parameter| !asked(&own.name).map_or(&*own.value, str::as_bytes).is_ascii();
    defaults.iter().any(told) && !reads_alike(encoding, server_encoding)
}

pub(crate) fn is_role(name: &str) -> bool {
    same_name(name, ROLE)
}

/// Whether PostgreSQL makes something else of a value that it does not report.
pub(crate) fn is_text_search(name: &str) -> bool {
    same_name(name, TEXT_SEARCH)
}

/// The parameter of a startup packet that cannot be tried on a shared server. A name stands in RESET as it is; and what PostgreSQL makes of the
/// name of a text search configuration can be asked where that is ASCII.
pub(crate) fn untriable(startup: &[(Arc<str>, Arc<str>)]) -> Option<&str> {
    let untriable =
        |(name, value): &&(Arc<str>, Arc<str>)| !name.is_ascii() || (is_text_search(name) && !value.is_ascii());
    startup.iter().find(untriable).map(|(name, _)| &**name)
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

pub(crate) fn same_name(left: &str, right: &str) -> bool {
    compare_names(left, right).is_eq()
}

pub(crate) fn compare_names(left: &str, right: &str) -> std::cmp::Ordering {
    if left == right {
        // As PostgreSQL spells it, which is how most come.
        return std::cmp::Ordering::Equal;
    }
    let lower = |byte: u8| byte.to_ascii_lowercase();
    left.bytes().map(lower).cmp(right.bytes().map(lower))
}

#[cfg(test)]
mod tests;
