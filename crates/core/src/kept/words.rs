//! What users' code may leave in a session, by the names that call it: functions, and tables that have triggers, rules, defaults, policies.
//!
//! PostgreSQL is asked once for the texts behind all names (`catalogue.sql`), and again where they may have changed. A text that says
//! a name leaves what the texts behind that name leave, and those that they call. What PostgreSQL cannot tell, code in another language or
//! in a text that is put together, may leave anything, and keeps the server up to its client's end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::Kinds;
use super::glance::Glance;
use super::leaves::{Inserts, Leaves, declared_types};
use crate::parameters::meanings::NAME_BYTES;
use crate::sql::{Raw, Tokens, is_keyword};
use crate::statements::definition::text_of;

/// Texts of one database that are read. Beyond it any text may leave anything.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Texts that stand in one another. Code that has more of them may leave anything.
pub(crate) const NESTED_MAX: usize = 8;

/// Parameters that the code of one database sets, without definitions. Code that sets more of them may leave what nobody knows.
pub(super) const NAMES_MAX: usize = 256;

/// Which of the database's names: one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Names([u64; NAMES_MAX / 64]);

/// What a word leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Left {
    makes: Kinds,
    ends: Kinds,
    names: Names,
    says: Says,
}

/// What a text says that leaves nothing, and still must be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Says {
    reads_sequences: bool,
    asks_channels: bool,
    asks_statements: bool,
    resets_all: bool,
    sets_strings: bool,
    sets_read: bool,
}

impl Says {
    fn of(leaves: &Leaves) -> Self {
        let Leaves { reads_sequences, asks_channels, asks_statements, resets_all, sets_read, .. } = *leaves;
        let sets_strings = leaves.sets_strings || leaves.resets_strings;
        Self { reads_sequences, asks_channels, asks_statements, resets_all, sets_strings, sets_read }
    }

    fn with(self, other: Self) -> Self {
        Self {
            reads_sequences: self.reads_sequences || other.reads_sequences,
            asks_channels: self.asks_channels || other.asks_channels,
            asks_statements: self.asks_statements || other.asks_statements,
            resets_all: self.resets_all || other.resets_all,
            sets_strings: self.sets_strings || other.sets_strings,
            sets_read: self.sets_read || other.sets_read,
        }
    }
}

impl Left {
    /// What is not known.
    fn anything() -> Self {
        let Leaves { makes, ends, sets_read, .. } = Leaves::unknown();
        Self { makes, ends, says: Says { sets_read, ..Says::default() }, ..Self::default() }
    }

    fn is_none(&self) -> bool {
        self.makes.is_none() && self.ends.is_none() && self.says == Says::default()
    }

    /// Adds what another leaves. Whether that was anything more.
    fn add(&mut self, other: &Self) -> bool {
        let before = *self;
        self.makes = self.makes.with(other.makes);
        self.ends = self.ends.with(other.ends);
        self.says = self.says.with(other.says);
        self.names.0.iter_mut().zip(other.names.0).for_each(|(own, other)| *own |= other);
        *self != before
    }
}

/// Of one database, as it was told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    by_word: BTreeMap<Box<[u8]>, Left>,
    /// What any text may leave.
    always: Left,
    /// What a text may that has a word beyond ASCII.
    foreign: Left,
    /// Those of parameters.
    names: Vec<Arc<str>>,
    /// Some of its code may leave what a look does not find.
    lasting: bool,
    /// Something is left when a session begins.
    pub(super) left_at_login: bool,
    /// It is more than is read.
    is_cut: bool,
    /// `None`: no text can be told to be plain.
    glance: Option<Glance>,
}

/// Of a letter, in any encoding.
const LETTER_BYTES_MAX: usize = 4;

/// What stands for every name beyond ASCII: where PostgreSQL cuts those, and which letters it makes small ones, depends on the encoding.
const FOREIGN: &[u8] = b" foreign";

/// What stands ahead of a text in SQL: INTO creates a table there, and names a variable in other languages.
const IN_SQL: &[u8] = b"\x01";

/// What stands for the beginning of a session.
const LOGIN: &[u8] = b" login";

/// What is run where a text says a name.
#[derive(Debug)]
struct Text {
    name: Box<[u8]>,
    left: Left,
    words: Vec<Box<[u8]>>,
}

/// What has been told so far.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    texts: Vec<Text>,
    /// Of parameters.
    names: BTreeMap<Arc<str>, usize>,
    bytes: usize,
    /// Not all of it can be known.
    is_cut: bool,
}

impl Reading {
    /// A row as PostgreSQL tells it, in Base64.
    pub(crate) fn told(&mut self, values: Option<&[Option<&[u8]>]>) {
        let values: Option<Vec<_>> = values.and_then(|values| values.iter().map(|value| decoded((*value)?)).collect());
        match values.as_deref() {
            Some([name, text]) => self.row(name, text),
            _ => self.is_cut = true,
        }
    }

    /// A name, and a text that is run for it: SQL where it begins with that mark.
    pub(super) fn row(&mut self, name: &[u8], text: &[u8]) {
        let (text, is_sql) = text.strip_prefix(IN_SQL).map_or((text, false), |text| (text, true));
        self.bytes += name.len() + text.len();
        if self.bytes > TEXT_BYTES_MAX {
            self.is_cut = true;
            return;
        }
        let mut leaves = Leaves::of_code(text);
        let words = words_of(text).unwrap_or_else(|| {
            leaves = Leaves::unknown();
            Vec::new()
        });
        let mut left = self.left(&leaves);
        if is_sql && selects_into(text) {
            // The search_path may begin with the temporary schema.
            (left.makes, left.ends) = (left.makes.with(Kinds::OBJECTS), left.ends.with(Kinds::OBJECTS));
        }
        let name = if name.is_ascii() { name.to_ascii_lowercase().into() } else { FOREIGN.into() };
        self.texts.push(Text { name, left, words });
    }

    fn left(&mut self, leaves: &Leaves) -> Left {
        let Leaves { makes, ends, .. } = *leaves;
        let mut left = Left { makes, ends, says: Says::of(leaves), ..Left::default() };
        for name in &leaves.names {
            let next = self.names.len();
            match self.names.get(name) {
                Some(&known) => left.names.0[known / 64] |= 1 << (known % 64),
                None if next < NAMES_MAX => {
                    self.names.insert(Arc::clone(name), next);
                    left.names.0[next / 64] |= 1 << (next % 64);
                }
                None => left.makes = left.makes.with(Kinds::LASTING),
            }
        }
        left
    }

    pub(crate) fn words(self) -> Words {
        if self.is_cut {
            return Words::anything();
        }
        let mut indexes: BTreeMap<&[u8], usize> = BTreeMap::new();
        for text in &self.texts {
            let next = indexes.len();
            indexes.entry(&text.name).or_insert(next);
        }
        let mut left = vec![Left::default(); indexes.len()];
        // Whoever calls a name that something is behind.
        let mut callers = vec![Vec::new(); indexes.len()];
        for text in &self.texts {
            let own = indexes[&*text.name];
            left[own].add(&text.left);
            let called = text.words.iter().filter_map(|word| indexes.get(&**word).copied());
            called.filter(|called| *called != own).for_each(|called| callers[called].push(own));
        }
        spread(&mut left, &callers);
        let mut by_word: BTreeMap<Box<[u8]>, Left> =
            indexes.into_iter().map(|(word, index)| (word.into(), left[index])).collect();
        let mut names = vec![Arc::from(""); self.names.len()];
        for (name, at) in self.names {
            names[at] = name;
        }
        let lasting = by_word.values().any(|left| left.makes.has(Kinds::LASTING));
        let always = by_word.remove(&b""[..]).unwrap_or_default();
        let foreign = by_word.remove(FOREIGN).unwrap_or_default();
        let left_at_login = by_word.remove(LOGIN).is_some_and(|left| !left.is_none());
        by_word.retain(|_, left| !left.is_none());
        let glance = Glance::of(by_word.keys().map(|word| &**word)).filter(|_| always.is_none());
        Words { by_word, always, foreign, names, lasting, left_at_login, glance, is_cut: false }
    }
}

impl Words {
    /// Nothing is known of the database: texts may set parameters whose names nobody knows.
    fn anything() -> Self {
        Self { always: Left::anything(), lasting: true, is_cut: true, ..Self::default() }
    }

    /// Whether a text leaves nothing for certain, neither by its own words nor by what they call.
    pub(super) fn are_plain(&self, text: &[u8]) -> bool {
        self.glance.as_ref().is_some_and(|glance| glance.is_plain(text))
    }

    /// What a text may leave by what it calls; `None` for most. Of a Parse's definition, also by the types that it declares.
    pub(crate) fn leaves(&self, definition: &[u8]) -> Option<Leaves> {
        self.left_by(definition, false)
    }

    /// What code may leave that a text creates.
    pub(super) fn left_by_code_in(&self, text: &[u8]) -> Option<Leaves> {
        self.left_by(text, true)
    }

    fn left_by(&self, definition: &[u8], within: bool) -> Option<Leaves> {
        let only_data = self.by_word.is_empty() && self.always.is_none() && self.foreign.is_none();
        if only_data {
            return None;
        }
        let mut all = self.always;
        self.add_called(text_of(definition), within, 0, &mut all);
        for number in declared_types(definition) {
            all.add(&self.by_word.get(type_word(number).as_bytes()).copied().unwrap_or_default());
        }
        if all.is_none() {
            return None;
        }
        let declares = declared_types(definition).next().is_some();
        debug_assert!(declares || !self.are_plain(definition), "a glance has missed it");
        let has = |at: &usize| all.names.0[at / 64] >> (at % 64) & 1 == 1;
        let names = (0..self.names.len()).filter(has).map(|at| Arc::clone(&self.names[at])).collect();
        let Left { makes, ends, says, .. } = all;
        let Says { reads_sequences, asks_channels, asks_statements, resets_all, sets_strings, sets_read } = says;
        let leaves = Leaves { makes, ends, names, sets_read, ..Leaves::default() };
        Some(Leaves { reads_sequences, asks_channels, asks_statements, resets_all, sets_strings, ..leaves })
    }

    /// `within`: by texts within it too, as the body of a `DO` is one.
    fn add_called(&self, text: &[u8], mut within: bool, depth: usize, all: &mut Left) {
        let mut tokens = Tokens::of(text);
        let mut inserts = Inserts::default();
        let mut before = Raw::Sign(b';');
        while let Some(token) = tokens.raw() {
            match token {
                Raw::Word(word) | Raw::Name(word) if word.is_ascii() => {
                    within |= word.eq_ignore_ascii_case(b"do");
                    // It creates no table there.
                    let is_name = |name: &[u8]| is_name(before, token, name) && !(inserts.into && name == b"into");
                    let left = as_name(word, |name| self.by_word.get(name).copied().filter(|_| is_name(name)));
                    all.add(&left.unwrap_or_default());
                }
                Raw::Word(word) | Raw::Name(word) => {
                    all.add(&self.foreign);
                    cut_to_ascii(word, |name| _ = all.add(&self.by_word.get(name).copied().unwrap_or_default()));
                }
                Raw::Dollars(_) | Raw::Text(_) if within && depth == NESTED_MAX => _ = all.add(&Left::anything()),
                Raw::Dollars(inner) | Raw::Text(inner) if within => self.add_called(inner, true, depth + 1, all),
                _ => {}
            }
            inserts.meet(token);
            before = token;
        }
    }
}

/// PostgreSQL's Base64 has lines (`pg_base64_encode`, src/backend/utils/adt/encode.c).
fn decoded(value: &[u8]) -> Option<Vec<u8>> {
    let letters: Vec<u8> = value.iter().copied().filter(|byte| *byte != b'\n').collect();
    BASE64_STANDARD.decode(letters).ok()
}

/// What stands for a type by its number: no word of a text.
fn type_word(number: u32) -> String {
    format!(" {number}")
}

/// Callers leave what those leave whom they call. Who was found to leave more is looked at again, once for all that was found since.
fn spread(left: &mut [Left], callers: &[Vec<usize>]) {
    let mut grown: VecDeque<usize> = (0..left.len()).filter(|at| !left[*at].is_none()).collect();
    let mut waits: Vec<bool> = left.iter().map(|left| !left.is_none()).collect();
    while let Some(called) = grown.pop_front() {
        waits[called] = false;
        let leaves = left[called];
        for &caller in &callers[called] {
            if left[caller].add(&leaves) && !std::mem::replace(&mut waits[caller], true) {
                grown.push_back(caller);
            }
        }
    }
}

/// A word as the name that PostgreSQL takes it for, but that letters are small ones: of two that differ in that alone, one is as good as the
/// other.
fn as_name<T>(word: &[u8], of: impl FnOnce(&[u8]) -> T) -> T {
    if word.len() <= NAME_BYTES && !word.contains(&b'"') {
        let mut buffer = [0; NAME_BYTES];
        let name = &mut buffer[..word.len()];
        name.copy_from_slice(word);
        name.make_ascii_lowercase();
        return of(name);
    }
    let mut name = Vec::with_capacity(word.len());
    let mut quoted = false;
    for byte in word {
        // Two quotes stand for one.
        quoted = *byte == b'"' && !quoted;
        if !quoted {
            name.push(byte.to_ascii_lowercase());
        }
    }
    name.truncate(NAME_BYTES);
    of(&name)
}

/// Whether a token may name what is called so: a keyword only in quotes, or behind a dot (`attr_name`, src/backend/parser/gram.y). But for those
/// that event triggers stand behind.
fn is_name(before: Raw<'_>, token: Raw<'_>, name: &[u8]) -> bool {
    let may_be_any = before == Raw::Sign(b'.') || matches!(token, Raw::Name(_));
    may_be_any || matches!(name, b"create" | b"grant" | b"into") || !is_keyword(name, false)
}

/// The names in ASCII that PostgreSQL may take this for, where it cuts off the letters beyond it: how many bytes are left of what is longer
/// than a name depends on the encoding.
fn cut_to_ascii(word: &[u8], mut of: impl FnMut(&[u8])) {
    let ascii = word.iter().position(|byte| !byte.is_ascii()).unwrap_or(word.len());
    as_name(&word[..ascii], |name| (NAME_BYTES - LETTER_BYTES_MAX..name.len()).for_each(|end| of(&name[..=end])));
}

/// `None`: they stand too deep, one text in another, to be looked for.
fn words_of(text: &[u8]) -> Option<Vec<Box<[u8]>>> {
    let mut words = BTreeSet::new();
    let mut texts = vec![(text, 0)];
    while let Some((text, depth)) = texts.pop() {
        let mut tokens = Tokens::of(text);
        let mut before = Raw::Sign(b';');
        while let Some(token) = tokens.raw() {
            match token {
                Raw::Word(word) | Raw::Name(word) if !word.is_ascii() => {
                    words.insert(FOREIGN.into());
                    cut_to_ascii(word, |name| _ = words.insert(name.into()));
                }
                Raw::Word(word) | Raw::Name(word) => {
                    words.extend(as_name(word, |name| is_name(before, token, name).then(|| Box::from(name))));
                }
                // The body of a function within that of another, and what it runs as text.
                Raw::Dollars(_) | Raw::Text(_) if depth == NESTED_MAX => return None,
                Raw::Dollars(inner) | Raw::Text(inner) => texts.push((inner, depth + 1)),
                Raw::Sign(_) => {}
            }
            before = token;
        }
    }
    Some(words.into_iter().collect())
}

fn selects_into(text: &[u8]) -> bool {
    let (mut tokens, mut inserts) = (Tokens::of(text), Inserts::default());
    while let Some(token) = tokens.raw() {
        if matches!(token, Raw::Word(word) if word.eq_ignore_ascii_case(b"into")) && !inserts.into {
            return true;
        }
        inserts.meet(token);
    }
    false
}

/// How much of a database's code is known to whoever serves it.
#[derive(Debug, Default, Clone)]
pub(crate) enum Code {
    /// PostgreSQL was not asked yet.
    #[default]
    Unknown,
    Known(Arc<Words>),
    /// It was so, and has changed since: a text may leave anything then.
    Changed(Arc<Words>, Changed),
}

/// What code that has come may set: parameters of these names; where it is `lasting`, what a look does not find.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Changed {
    names: Arc<[Arc<str>]>,
    pub(super) lasting: bool,
    asks_statements: bool,
}

impl Changed {
    /// By code that a text creates.
    pub(crate) fn by(leaves: &Leaves) -> Self {
        let Leaves { names, defines_lasting: lasting, asks_statements, .. } = leaves;
        Self { names: names.as_slice().into(), lasting: *lasting, asks_statements: *asks_statements }
    }

    /// By whoever is not seen.
    pub(super) fn by_others() -> Self {
        Self { lasting: true, ..Self::default() }
    }

    /// For another worker.
    #[must_use]
    pub(crate) fn own_copy(&self) -> Self {
        Self { names: self.names.iter().map(|name| (&**name).into()).collect(), ..*self }
    }

    #[must_use]
    pub(super) fn with(&self, other: &Self) -> Self {
        let mut names: BTreeSet<&Arc<str>> = self.names.iter().collect();
        names.extend(other.names.iter());
        let too_many = names.len() > NAMES_MAX;
        let names = if too_many { Arc::default() } else { names.into_iter().cloned().collect() };
        let asks_statements = self.asks_statements || other.asks_statements;
        Self { names, lasting: self.lasting || other.lasting || too_many, asks_statements }
    }
}

impl Code {
    /// What a text may leave by what it calls, as far as that is known; `None` for most.
    pub(crate) fn leaves(&self, text: &[u8]) -> Option<Leaves> {
        self.words().and_then(|words| words.leaves(text))
    }

    /// Both tell the same of each text, as far as they tell anything.
    pub(super) fn has_same_words(&self, other: &Self) -> bool {
        matches!((self.words(), other.words()), (Some(own), Some(other)) if Arc::ptr_eq(own, other))
    }

    /// Code has come that may leave what a look does not find.
    pub(super) fn may_have_lasted(&self) -> bool {
        matches!(self, Self::Changed(_, by) if by.lasting)
    }

    /// Else any text may leave anything.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self, Self::Known(_))
    }

    pub(super) fn words(&self) -> Option<&Arc<Words>> {
        match self {
            Self::Unknown => None,
            Self::Known(words) | Self::Changed(words, _) => Some(words),
        }
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// What is left may be what only the next reading tells: parameters whose names are not known, or what a look does not find.
    pub(crate) fn is_blind(&self) -> bool {
        match self {
            Self::Unknown => true,
            Self::Known(_) => false,
            Self::Changed(_, by) => by.lasting,
        }
    }

    /// What was left by code that was not known then. `lasting`: also what a look does not find.
    pub(crate) fn left_unseen(&self, lasting: bool) -> Leaves {
        let mut leaves = Leaves::any(Kinds::ANY);
        if let Some(words) = self.words() {
            leaves.names.extend(words.names.iter().cloned());
            if lasting && words.lasting {
                leaves.makes = leaves.makes.with(Kinds::LASTING);
            }
        }
        if let Self::Changed(_, by) = self {
            leaves.names.extend(by.names.iter().cloned());
        }
        leaves
    }

    /// Whether what has changed may ask which statements are prepared.
    pub(crate) fn may_ask_statements(&self) -> bool {
        matches!(self, Self::Changed(_, by) if by.asks_statements)
    }

    /// Whether both are known, and the same.
    pub(crate) fn is_equal(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Known(own), Self::Known(theirs)) if own == theirs)
    }

    /// It is not known any more, but for what it was and what has come.
    #[must_use]
    pub(crate) fn changed(&self, by: &Changed) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::Known(words) if words.is_cut => Self::Unknown,
            Self::Known(words) => Self::Changed(Arc::clone(words), by.clone()),
            Self::Changed(words, before) => Self::Changed(Arc::clone(words), before.with(by)),
        }
    }
}

#[cfg(test)]
mod tests;
