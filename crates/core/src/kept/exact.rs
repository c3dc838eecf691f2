//! What a session holds as a module in PostgreSQL tells it (`extension/`): ahead of each ReadyForQuery outside of a transaction, where it has changed.
//!
//! Nothing is read in texts then, and nothing is asked. What comes is of the whole session, whoever has made it.

use std::collections::BTreeMap;

use super::Kinds;
use super::channels::Channels;
use crate::parameters::ParameterSet;

/// Has the module tell, where PostgreSQL has it; else a parameter without a meaning is set.
pub(crate) const QUESTION: &str = "SELECT pg_catalog.set_config(E'weir.report',E'on',false)";
/// And asks which database it is, in four words: one that is made anew, or renamed, has another's number; two clusters number theirs alike (5 is everybody's
/// `postgres`), and have numbers of their own; and one that is made anew with the number that it had has another's row in `pg_database`, as has one
/// whose owner or privileges have changed; and a copy of it on another machine has another postmaster, as has one that was restarted. Not everybody may ask for each: a text of its own does so where its user may.
pub(crate) const QUESTION_WITH_DATABASE: &str = "SELECT pg_catalog.set_config(E'weir.report',E'on',false),pg_catalog.concat(datid,E' ',\
    CASE WHEN pg_catalog.has_function_privilege(pg_catalog.to_regprocedure(E'pg_catalog.pg_control_system()'),E'execute')\
    THEN pg_catalog.\"substring\"(pg_catalog.query_to_xml(\
    E'SELECT system_identifier FROM pg_catalog.pg_control_system()',true,true,E'')::pg_catalog.text,E'[0-9]{9,}')END,E' ',\
    CASE WHEN pg_catalog.has_table_privilege(E'pg_catalog.pg_database',E'select')\
    THEN pg_catalog.\"substring\"(pg_catalog.query_to_xml(pg_catalog.concat(\
    E'SELECT xmin FROM pg_catalog.pg_database WHERE oid OPERATOR(pg_catalog.=)',datid),true,true,E'')::pg_catalog.text,\
    E'<xmin>([0-9]+)</xmin>')END,E' ',\
    (pg_catalog.date_part(E'epoch',pg_catalog.pg_postmaster_start_time())OPERATOR(pg_catalog.*)1000000)::bigint)FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())";
/// Where in its row that is.
pub(crate) const DATABASE: usize = 1;
/// Of ParameterStatus messages that are the module's.
pub(crate) const PREFIX: &str = "weir.";
/// The one that comes in a transaction too: a statement has left a parameter which parsing reads otherwise than it was told.
pub(crate) const READ: &str = "weir.read";
/// It comes at once: a statement is told what its session listens to.
pub(crate) const ASKS: &str = "weir.asks";

/// Parameters of one session, and their bytes.
const PARAMETERS_MAX: usize = 512;
const BYTES_MAX: usize = 64 * 1024;
/// Names of channels that one session listens to, each with what it takes to keep one.
const CHANNELS_BYTES_MAX: usize = 64 * 1024;
const CHANNEL_BYTES: usize = 16;

/// The module's words.
const WORDS: [(&str, Kinds); 6] = [
    ("temp", Kinds::OBJECTS),
    ("lock", Kinds::LOCKS),
    ("listen", Kinds::CHANNELS),
    ("hold", Kinds::CURSORS),
    ("prepare", Kinds::PREPARED),
    ("unknown", Kinds::LASTING),
];

/// Of one server's session.
#[derive(Debug, Default)]
pub(crate) struct Exact {
    held: Kinds,
    /// How often something was done that nothing takes back: all along, and before its client came.
    lasting: u64,
    lasting_before: u64,
    /// Set in the session, of those that PostgreSQL does not report.
    parameters: BTreeMap<Box<str>, Vec<u8>>,
    bytes: usize,
    /// What it listens to. `None`: that is not known.
    channels: Option<Channels>,
    channels_bytes: usize,
    channels_changed: bool,
    /// It has told that: a module of before does not, nor what is left of it.
    tells_channels: bool,
    /// Of the parameters something was told that nobody has taken.
    changed: bool,
    /// More than is kept, or it cannot be read.
    illegible: bool,
}

impl Exact {
    /// A client comes: what was done before is not its.
    pub(crate) fn begin(&mut self) {
        self.lasting_before = self.lasting;
    }

    /// The session has more than is kept.
    pub(crate) fn is_too_much(&mut self) {
        self.illegible = true;
    }

    /// A ParameterStatus of the module's. `None`: it is too long to be read.
    pub(crate) fn told(&mut self, name: &str, value: Option<&[u8]>) {
        match (name, value) {
            ("weir.session", Some(value)) => self.session(value),
            ("weir.set", Some(value)) => self.set(value),
            ("weir.reset", Some(value)) => match name_of(value) {
                Some(name) => self.reset(&name),
                None => self.illegible = true,
            },
            ("weir.listen", value) => self.listens(value),
            ("weir.unlisten" | "weir.unlisten_but", value) => self.unlistens(Unlistened::read(name, value).flatten()),
            // By a query of ours at the login.
            (READ | ASKS, _) => {}
            _ => self.illegible = true,
        }
    }

    fn session(&mut self, value: &[u8]) {
        let Ok(value) = std::str::from_utf8(value) else { return self.illegible = true };
        self.held = Kinds::NONE;
        for word in value.split_ascii_whitespace() {
            let known = WORDS.iter().find(|(known, _)| *known == word);
            match (known, word.strip_prefix("lasting=").map(str::parse)) {
                (Some((_, kind)), _) => self.held = self.held.with(*kind),
                (None, Some(Ok(lasting))) => self.lasting = lasting,
                _ => self.illegible = true,
            }
        }
    }

    fn set(&mut self, value: &[u8]) {
        let named = value.iter().position(|byte| *byte == b'=').map(|at| (&value[..at], &value[at + 1..]));
        let Some((Some(name), Some(value))) = named.map(|(name, value)| (name_of(name), unescaped(value))) else {
            return self.illegible = true;
        };
        self.reset(&name);
        self.bytes += name.len() + value.len();
        if self.bytes > BYTES_MAX || self.parameters.len() >= PARAMETERS_MAX {
            self.illegible = true;
        } else {
            self.parameters.insert(name, value);
            self.changed = true;
        }
    }

    fn reset(&mut self, name: &str) {
        if let Some(value) = self.parameters.remove(name) {
            self.bytes -= name.len() + value.len();
            self.changed = true;
        }
    }

    fn listens(&mut self, value: Option<&[u8]>) {
        if !std::mem::replace(&mut self.tells_channels, true) {
            self.channels = Some(Channels::new());
        }
        self.channels_changed = true;
        let Some(channels) = &mut self.channels else { return };
        let Some(new) = value.and_then(channels_of) else { return self.channels = None };
        for channel in new {
            let bytes = channel.len() + CHANNEL_BYTES;
            self.channels_bytes += if channels.insert(channel) { bytes } else { 0 };
        }
        if self.channels_bytes > CHANNELS_BYTES_MAX {
            self.channels = None;
        }
    }

    fn unlistens(&mut self, left: Option<Unlistened>) {
        self.channels_changed = true;
        match (left, &mut self.channels) {
            (Some(Unlistened::These(left)), Some(channels)) => {
                let gone = left.iter().filter(|channel| channels.remove(*channel));
                self.channels_bytes -= gone.map(|channel| channel.len() + CHANNEL_BYTES).sum::<usize>();
            }
            // What it listens to all the same comes next.
            (Some(Unlistened::AllBut(_)), channels) => (*channels, self.channels_bytes) = (Some(Channels::new()), 0),
            (_, channels) => *channels = None,
        }
    }

    pub(crate) fn tells_channels(&self) -> bool {
        self.tells_channels
    }

    /// What it listens to, if that is another than when it was asked last, or is asked for `again`.
    pub(crate) fn channels(&mut self, again: bool) -> Option<Channels> {
        let asks = std::mem::take(&mut self.channels_changed) || again;
        self.channels.as_ref().filter(|_| asks).cloned()
    }

    /// What keeps the session its client's.
    pub(crate) fn held(&self) -> Kinds {
        let lasts = self.illegible || self.lasting != self.lasting_before;
        self.held.with(if lasts { Kinds::LASTING } else { Kinds::NONE })
    }

    /// What is told counts between two transactions: until then its client's are those of before.
    pub(crate) fn is_ahead(&self) -> bool {
        self.changed
    }

    /// Whether other parameters were told since that was asked last.
    pub(crate) fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// What its client has, that had `before`.
    pub(crate) fn parameters_behind(&self, before: &ParameterSet) -> ParameterSet {
        let mut after = before.reported_only();
        for (name, value) in self.parameters.iter().filter(|(name, _)| !before.reports(name)) {
            after.set(name, value, false);
        }
        after
    }

    /// Whether there is nothing but parameters that the server is known to have.
    pub(crate) fn is_clean(&self, known: &ParameterSet) -> bool {
        self.held().is_none() && self.parameters.keys().all(|name| known.get(name).is_some())
    }
}

/// Channels that a session was told to leave, whether or not it listens to them itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unlistened {
    These(Channels),
    AllBut(Channels),
}

impl Unlistened {
    /// A ParameterStatus of the module's, if it tells of that. The second is `None` where it cannot be read.
    pub(crate) fn read(name: &str, value: Option<&[u8]>) -> Option<Option<Self>> {
        match name {
            "weir.unlisten" => Some(value.and_then(channels_of).map(Self::These)),
            "weir.unlisten_but" => Some(value.and_then(channels_of).map(Self::AllBut)),
            _ => None,
        }
    }

    /// Whether it is among them.
    pub(crate) fn has(&self, channel: &[u8]) -> bool {
        match self {
            Self::These(channels) => channels.contains(channel),
            Self::AllBut(channels) => !channels.contains(channel),
        }
    }
}

fn channels_of(value: &[u8]) -> Option<Channels> {
    let names = value.split(|byte| *byte == b' ').filter(|name| !name.is_empty());
    names.map(|name| unescaped(name).map(Vec::into_boxed_slice)).collect()
}

/// Names are one whatever the case of their letters.
fn name_of(name: &[u8]) -> Option<Box<str>> {
    let mut name = String::from_utf8(unescaped(name)?).ok()?;
    name.make_ascii_lowercase();
    Some(name.into())
}

/// `\ooo` is a byte.
fn unescaped(value: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_first_chunk::<3>()?;
        let octal = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(octal, 8).ok()?);
        rest = behind;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_module_tells() {
        let mut exact = Exact::default();
        exact.told("weir.session", Some(b""));
        assert!(exact.is_clean(&ParameterSet::default()));
        exact.told("weir.session", Some(b"temp lock lasting=2"));
        assert_eq!(exact.held(), Kinds::OBJECTS.with(Kinds::LOCKS).with(Kinds::LASTING));
        exact.begin();
        assert_eq!(exact.held(), Kinds::OBJECTS.with(Kinds::LOCKS));
        exact.told("weir.session", Some(b"lasting=2"));
        exact.told("weir.set", Some(b"app.tenant=a\\134\\303\\244=b"));
        let parameters = exact.parameters_behind(&ParameterSet::default());
        assert_eq!(&*parameters.get("app.tenant").unwrap().value, "a\\\u{e4}=b".as_bytes());
        assert!(!exact.is_clean(&ParameterSet::default()) && exact.is_clean(&parameters));
        exact.told("weir.reset", Some(b"app.tenant"));
        assert!(exact.is_clean(&ParameterSet::default()));
    }

    #[test]
    fn what_the_module_tells_of_channels() {
        let mut exact = Exact::default();
        exact.told("weir.listen", Some(b"a b\\040c \\303\\244"));
        let names = ["a", "b c", "\u{e4}"].map(|name| name.as_bytes().into());
        assert_eq!(exact.channels(false), Some(names.clone().into()));
        assert_eq!((exact.channels(false), exact.channels(true)), (None, Some(names.into())));
        exact.told("weir.unlisten", Some(b"a x"));
        exact.told("weir.listen", Some(b"d"));
        let names = ["b c", "\u{e4}", "d"].map(|name| name.as_bytes().into());
        assert_eq!(exact.channels(false), Some(names.into()));
        exact.told("weir.listen", Some(b"e \\9"));
        assert_eq!(exact.channels(true), None);
        exact.told("weir.unlisten_but", Some(b"e"));
        exact.told("weir.listen", Some(b"e"));
        assert_eq!(exact.channels(true), Some([b"e"[..].into()].into()));
        let left = Unlistened::read("weir.unlisten", Some(b"a b")).flatten().unwrap();
        assert!(left.has(b"a") && !left.has(b"c"));
        let left = Unlistened::read("weir.unlisten_but", Some(b"")).flatten().unwrap();
        assert!(left.has(b"a"));
        assert_eq!(Unlistened::read("weir.unlisten", None), Some(None));
    }

    #[test]
    fn what_cannot_be_read_keeps_the_session() {
        for (name, value) in [
            ("weir.session", "temporary"),
            ("weir.session", "lasting=many"),
            ("weir.set", "name"),
            ("weir.set", "name=\\9"),
            ("weir.other", ""),
        ] {
            let mut exact = Exact::default();
            exact.told(name, Some(value.as_bytes()));
            assert!(exact.held().has(Kinds::LASTING), "{name} {value}");
        }
    }

    #[test]
    fn no_session_takes_memory_without_bound() {
        let mut exact = Exact::default();
        for number in 0..PARAMETERS_MAX + 1 {
            exact.told("weir.set", Some(format!("a.b{number}=1").as_bytes()));
        }
        assert!(exact.illegible && exact.parameters.len() == PARAMETERS_MAX);
        for number in 0..CHANNELS_BYTES_MAX / 63 {
            exact.told("weir.listen", Some(format!("{number:063}").as_bytes()));
        }
        assert_eq!(exact.channels(true), None);
    }
}
