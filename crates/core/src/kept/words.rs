//! What users' code may leave in a session, by the names that call it: functions, and tables that have triggers, rules, defaults, policies.
//!
//! PostgreSQL is asked once for the texts behind all names (`catalogue.sql`), and again where they may have changed. A text that says
//! a name leaves what the texts behind that name leave, and those that they call. What PostgreSQL cannot tell, code in another language or
//! in a text that is put together, may leave anything, and keeps the server up to its client's end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Kinds;
use super::leaves::Leaves;
use crate::id::ServerId;
use crate::sql::{Raw, Tokens};
use crate::time::{Duration, Time};

/// The question. What it costs grows with the number of functions and tables: 30 ms for none.
pub(crate) const QUESTION: &str = include_str!("catalogue.sql");

/// Texts of one database that are read. Beyond it any text may leave anything.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Of one database, as it was told.
#[derive(Debug, Default)]
pub(crate) struct Words {
    by_word: BTreeMap<Box<[u8]>, Leaves>,
    /// What any text may leave.
    always: Leaves,
    /// What a text may that has a word beyond ASCII: in which encoding the names are is not looked at.
    foreign: Leaves,
    /// It is more than is read.
    is_cut: bool,
}

/// What is run where a text says a name.
#[derive(Debug)]
struct Text {
    name: Box<[u8]>,
    leaves: Leaves,
    words: Vec<Box<[u8]>>,
}

/// What has been told so far.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    texts: Vec<Text>,
    bytes: usize,
    /// Not all of it can be known.
    is_cut: bool,
}

impl Reading {
    /// A row: a name, and a text that is run for it.
    pub(crate) fn row(&mut self, values: Option<&[Option<&[u8]>]>) {
        let Some(&[Some(name), Some(text)]) = values else {
            self.is_cut = true;
            return;
        };
        self.bytes += name.len() + text.len();
        if self.bytes > TEXT_BYTES_MAX {
            self.is_cut = true;
            return;
        }
        let name = name.to_ascii_lowercase().into();
        self.texts.push(Text { name, leaves: Leaves::of_code(text), words: words_of(text) });
    }

    pub(crate) fn words(self) -> Words {
        if self.is_cut {
            return Words::anything();
        }
        let mut by_word: BTreeMap<Box<[u8]>, Leaves> = BTreeMap::new();
        let names: BTreeSet<&[u8]> = self.texts.iter().map(|text| &*text.name).collect();
        // Whoever calls a name that something is behind.
        let mut callers: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        for Text { name, leaves, words } in &self.texts {
            if !leaves.is_none() {
                by_word.entry(name.clone()).or_default().add(leaves);
            }
            for word in words.iter().filter(|word| ***word != **name) {
                if let Some(called) = names.get(&**word) {
                    callers.entry(called).or_default().push(name);
                }
            }
        }
        // They leave it too. Each is looked at once for each thing that it is found to leave.
        let mut grown: Vec<Box<[u8]>> = by_word.keys().cloned().collect();
        while let Some(called) = grown.pop() {
            let Some(leaves) = by_word.get(&called).cloned() else { continue };
            for caller in callers.get(&*called).into_iter().flatten() {
                if by_word.entry((*caller).into()).or_default().add(&leaves) {
                    grown.push((*caller).into());
                }
            }
        }
        let mut words = Words { always: by_word.remove(&b""[..]).unwrap_or_default(), ..Words::default() };
        for (_, leaves) in by_word.iter().filter(|(word, _)| !word.is_ascii()) {
            words.foreign.add(leaves);
        }
        by_word.retain(|word, leaves| word.is_ascii() && !leaves.is_none());
        Words { by_word, ..words }
    }
}

impl Words {
    /// Nothing is known of the database: texts may set parameters whose names nobody knows.
    fn anything() -> Self {
        Self { always: Leaves::unknown(), is_cut: true, ..Self::default() }
    }

    fn names(&self) -> Vec<Arc<str>> {
        let all = self.by_word.values().chain([&self.always, &self.foreign]);
        all.flat_map(|leaves| leaves.names.iter().cloned()).collect()
    }

    /// What a text may leave by what it calls; `None` for most.
    pub(crate) fn leaves(&self, text: &[u8]) -> Option<Leaves> {
        let only_data = self.by_word.is_empty() && self.always.is_none() && self.foreign.is_none();
        if only_data {
            return None;
        }
        let mut all = self.always.clone();
        let mut tokens = Tokens::of(text);
        while let Some(token) = tokens.raw() {
            let (Raw::Word(word) | Raw::Name(word)) = token else { continue };
            if !word.is_ascii() {
                all.add(&self.foreign);
            } else if let Some(leaves) = self.by_word.get(&*word.to_ascii_lowercase()) {
                all.add(leaves);
            }
        }
        Some(all).filter(|all| !all.is_none())
    }
}

fn words_of(text: &[u8]) -> Vec<Box<[u8]>> {
    let mut words = BTreeSet::new();
    let mut tokens = Tokens::of(text);
    while let Some(token) = tokens.raw() {
        match token {
            Raw::Word(word) | Raw::Name(word) => _ = words.insert(word.to_ascii_lowercase().into()),
            // The body of a function within that of another, and what it runs as text.
            Raw::Dollars(inner) | Raw::Text(inner) => words.extend(words_of(inner)),
            Raw::Sign(_) => {}
        }
    }
    words.into_iter().collect()
}

/// How much of a database's code is known to whoever serves it.
#[derive(Debug, Default, Clone)]
pub(crate) enum Code {
    /// PostgreSQL was not asked yet.
    #[default]
    Unknown,
    Known(Arc<Words>),
    /// It has changed since. A text may leave anything then, parameters of these names among it.
    Changed(Arc<[Arc<str>]>),
}

impl Code {
    pub(crate) fn leaves(&self, text: &[u8]) -> Option<Leaves> {
        match self {
            Self::Unknown => Some(Leaves::unknown()),
            Self::Known(words) => words.leaves(text),
            Self::Changed(names) => Some(Leaves { names: names.to_vec(), ..Leaves::any(Kinds::ANY) }),
        }
    }

    /// Parameters that code sets.
    fn names(&self) -> Vec<Arc<str>> {
        match self {
            Self::Unknown => Vec::new(),
            Self::Known(words) => words.names(),
            Self::Changed(names) => names.to_vec(),
        }
    }

    /// It is not known any more, but for these names and those that it had.
    #[must_use]
    pub(crate) fn changed(&self, names: &[Arc<str>]) -> Self {
        // Where the names are not known that it had.
        if matches!(self, Self::Unknown) || matches!(self, Self::Known(words) if words.is_cut) {
            return Self::Unknown;
        }
        let mut all = self.names();
        all.extend(names.iter().map(|name| (&**name).into()));
        all.sort_unstable();
        all.dedup();
        Self::Changed(all.into())
    }
}

/// After so long PostgreSQL is asked again: others than Weir's clients may have changed the code.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// And no sooner, however often it changes.
const READ_APART: Duration = Duration::from_secs(1);

/// What a pool knows of the code of its database.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    pub(crate) code: Code,
    /// When it was asked for last.
    asked_at: Option<Time>,
    /// Who is asked, and what came.
    reading: Option<(ServerId, Reading)>,
    /// It has changed since it was asked for.
    stale: bool,
    /// Servers that are free when it is known.
    waiting: Vec<ServerId>,
    /// Moves on with what is known.
    pub(crate) version: u64,
}

impl Knowledge {
    /// Whether the next server that is free is to be asked.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        let pause = if self.stale { READ_APART } else { READ_AGAIN };
        let is_old = |at: Time| now.since(at) >= pause;
        self.reading.is_none() && self.asked_at.is_none_or(is_old)
    }

    /// The code may be another now; `names`: of parameters that the new one may set.
    pub(crate) fn changed(&mut self, names: &[Arc<str>]) {
        self.code = self.code.changed(names);
        self.stale = true;
        self.version += 1;
    }

    /// The server waits until it is known, if it is asked for the first time.
    pub(crate) fn has_to_wait(&mut self, server: ServerId) -> bool {
        let waits = self.reading.is_some() && matches!(self.code, Code::Unknown);
        if waits {
            self.waiting.push(server);
        }
        waits
    }

    pub(crate) fn begins(&mut self, server: ServerId, now: Time) {
        (self.asked_at, self.stale) = (Some(now), false);
        self.reading = Some((server, Reading::default()));
    }

    pub(crate) fn read_by(&mut self, server: ServerId) -> Option<&mut Reading> {
        self.reading.as_mut().filter(|(by, _)| *by == server).map(|(_, reading)| reading)
    }

    /// The server has answered, or never will (`failed`), for a table that was dropped meanwhile perhaps: then it is tried again. Answers who has
    /// waited for that.
    pub(crate) fn ended(&mut self, server: ServerId, failed: bool) -> Vec<ServerId> {
        let Some((_, reading)) = self.reading.take_if(|(by, _)| *by == server) else { return Vec::new() };
        let names = self.code.names();
        self.code = if failed { Code::Unknown } else { Code::Known(Arc::new(reading.words())) };
        if self.stale {
            self.code = self.code.changed(&names);
        }
        self.stale |= failed;
        self.version += 1;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(rows: &[(&str, &str)]) -> Words {
        let mut reading = Reading::default();
        for (name, text) in rows {
            reading.row(Some(&[Some(name.as_bytes()), Some(text.as_bytes())]));
        }
        reading.words()
    }

    fn makes(words: &Words, text: &str) -> Kinds {
        words.leaves(text.as_bytes()).map_or(Kinds::NONE, |leaves| leaves.makes)
    }

    #[test]
    fn a_name_leaves_what_is_behind_it() {
        let words = words(&[
            ("locks", "begin perform pg_advisory_lock(1); end"),
            ("Sets", "begin perform set_config('app.tenant', '1', false); end"),
            ("plain", "begin return 1; end"),
            ("calls", "select locks() + plain()"),
            ("audited", "CREATE TRIGGER a BEFORE INSERT ON audited FOR EACH ROW EXECUTE FUNCTION calls()"),
            ("seen", "CREATE RULE \"_RETURN\" AS ON SELECT TO seen DO INSTEAD SELECT \"Sets\"()"),
            ("local", "begin perform set_config('app.tenant', '1', true); set local work_mem = 1; end"),
            ("dynamic", "begin execute 'select ' || $1; end"),
            ("one", "select two()"),
            ("two", "select one()"),
        ]);
        assert_eq!(makes(&words, "select locks()"), Kinds::LOCKS);
        assert_eq!(makes(&words, "insert into Audited values (1)"), Kinds::LOCKS);
        assert_eq!(makes(&words, "select * from \"seen\""), Kinds::PARAMETERS);
        assert_eq!(makes(&words, "select dynamic('x')"), Kinds::ANY.with(Kinds::LASTING));
        for text in ["select plain()", "select local(), one()", "select 'locks()'", "select 1"] {
            assert_eq!(makes(&words, text), Kinds::NONE, "{text}");
        }
        let names = words.leaves(b"select sets()").unwrap().names;
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["app.tenant"]);
    }

    #[test]
    fn what_no_word_calls_any_text_may_leave() {
        let words = words(&[("", "casts"), ("casts", "begin create temp table t (a int); end")]);
        assert_eq!(makes(&words, "select 1"), Kinds::OBJECTS);
    }

    #[test]
    fn a_word_beyond_ascii_is_any_of_those() {
        let words = words(&[("größe", "select pg_advisory_lock(1)")]);
        assert_eq!(makes(&words, "select gr\u{f6}\u{df}e2()"), Kinds::LOCKS);
        assert_eq!(makes(&words, "select 1"), Kinds::NONE);
    }

    #[test]
    fn what_cannot_be_known_may_be_anything() {
        let mut reading = Reading::default();
        reading.row(None);
        let all = Kinds::ANY.with(Kinds::LASTING);
        assert_eq!(makes(&reading.words(), "select 1"), all);
        assert_eq!(Code::Unknown.leaves(b"select 1").unwrap().makes, all);
    }

    #[test]
    fn what_has_changed_may_set_what_was_known_and_what_is_new() {
        let known = Code::Known(Arc::new(words(&[("f", "begin set a.b = 1; end")])));
        let leaves = known.changed(&["c.d".into()]).leaves(b"select 1").unwrap();
        assert_eq!(leaves.makes, Kinds::ANY);
        assert_eq!(leaves.names.iter().map(|name| &**name).collect::<Vec<_>>(), ["a.b", "c.d"]);
    }
}
