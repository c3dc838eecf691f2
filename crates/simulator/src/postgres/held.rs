//! What a session holds besides parameters: temporary tables, advisory locks, cursors, what SQL has prepared.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use weir_wire::write::{self, ColumnType};

use super::backend::Backend;
use super::language::{Tag, literal};
use super::parameters::{CUSTOM, ROLE};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Object,
    /// Of the session, not of its transaction.
    Lock,
    /// `WITH HOLD`.
    Cursor,
    Prepared,
    /// What a session listens to, which its client may hear from another server: rows tell nothing of it.
    Channel,
}

/// One of them, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thing {
    pub kind: Kind,
    pub name: String,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Object, Self::Lock, Self::Cursor, Self::Prepared, Self::Channel];

    fn thing(self, name: &str) -> Thing {
        Thing { kind: self, name: name.to_ascii_lowercase() }
    }

    /// What is said of a statement that makes one, and of one that takes it away.
    pub fn done(self) -> &'static [&'static str; 2] {
        match self {
            Self::Object => &["CREATE TABLE", "DROP TABLE"],
            Self::Lock => &["SELECT 1", "SELECT 1"],
            Self::Cursor => &["DECLARE CURSOR", "CLOSE CURSOR"],
            Self::Prepared => &["PREPARE", "DEALLOCATE"],
            Self::Channel => &["LISTEN", "UNLISTEN"],
        }
    }

    pub fn has_rows(self) -> bool {
        self == Self::Lock
    }
}

impl Thing {
    /// The statement that makes it. `hidden`: its words do not tell, but for who knows what the function does.
    pub fn made_by(&self, hidden: bool) -> String {
        let name = &self.name;
        match self.kind {
            Kind::Object => format!("CREATE TEMP TABLE {name} (a int)"),
            Kind::Lock if hidden => format!("SELECT {HIDING}({name})"),
            Kind::Lock => format!("SELECT pg_advisory_lock({name})"),
            Kind::Cursor => format!("DECLARE {name} CURSOR WITH HOLD FOR SELECT 1"),
            Kind::Prepared => format!("PREPARE {name} AS SELECT 1"),
            Kind::Channel => format!("LISTEN {name}"),
        }
    }

    pub fn taken_by(&self) -> String {
        let name = &self.name;
        match self.kind {
            Kind::Object => format!("DROP TABLE {name}"),
            Kind::Lock => format!("SELECT pg_advisory_unlock({name})"),
            Kind::Cursor => format!("CLOSE {name}"),
            Kind::Prepared => format!("DEALLOCATE {name}"),
            Kind::Channel => format!("UNLISTEN {name}"),
        }
    }
}

/// The parameter that the pooler marks such a transaction by.
const LISTS: &str = "weir.lists";

/// A function of the database that takes an advisory lock, and its text.
const HIDING: &str = "takes_it";
const HIDDEN: &str = "SELECT pg_advisory_lock($1)";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held(BTreeSet<Thing>);

impl Held {
    /// Whether it was not there, or was there.
    pub fn change(&mut self, thing: &Thing, makes: bool) -> bool {
        if makes { self.0.insert(thing.clone()) } else { self.0.remove(thing) }
    }

    pub fn has(&self, thing: &Thing) -> bool {
        self.0.contains(thing)
    }

    fn has_any(&self, kind: Kind) -> bool {
        self.0.iter().any(|thing| thing.kind == kind)
    }

    pub fn listens(&self) -> bool {
        self.has_any(Kind::Channel)
    }

    /// Whether SQL has prepared something.
    pub fn prepares(&self) -> bool {
        self.has_any(Kind::Prepared)
    }

    /// Tables, cursors and channels are as they were; locks and what is prepared are not of the transaction (explicit locking, 13.3.5; `PREPARE`).
    pub fn roll_back(&mut self, before: &Self) {
        let of_transaction = |thing: &&Thing| matches!(thing.kind, Kind::Object | Kind::Cursor | Kind::Channel);
        let stays = self.0.iter().filter(|thing| !of_transaction(thing));
        self.0 = stays.chain(before.0.iter().filter(of_transaction)).cloned().collect();
    }

    pub fn without(&mut self, kind: Kind) {
        self.0.retain(|thing| thing.kind != kind);
    }

    /// As a row tells it.
    pub fn description(&self) -> String {
        let told = self.0.iter().filter(|thing| thing.kind != Kind::Channel);
        let things: Vec<String> = told.map(|thing| format!("{:?} {}", thing.kind, thing.name)).collect();
        format!("held={}\n", things.join(", "))
    }
}

/// How the names begin that the pooler gives.
const OURS: &str = "weir_";

/// A statement about what a session holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    Change {
        thing: Thing,
        makes: bool,
    },
    /// The pooler's: what is there of this?
    Look(Vec<Sight>),
    /// The pooler's: what is behind the names of the database?
    Catalogue {
        /// Those in front of it in its query.
        settings: usize,
    },
    /// The pooler's, around a text that nobody has read, and what gives a client's names: of what there is here it changes nothing.
    Around {
        done: &'static str,
        /// It goes back to a savepoint that the pooler has set.
        recovers: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    Any(Kind, &'static str),
    Channels,
    /// Of a transaction in which it was told to listen to more, which is forgotten by that.
    Mark,
    Parameters,
    /// None is `none` here.
    Role,
    Custom {
        name: String,
        may_be_empty: bool,
    },
}

impl Deed {
    pub fn parse(text: &str) -> Option<Self> {
        if text.contains("FROM pg_catalog.pg_proc") {
            return Some(Self::Catalogue { settings: text.matches("SET LOCAL").count() });
        }
        if text.starts_with("SELECT E'") {
            // No row: another seed of random(), which nobody has here.
            let shown = |part: &&str| !part.starts_with("SELECT NULL,NULL,NULL WHERE pg_catalog.setseed(");
            let sights: Option<Vec<_>> = text.split(" UNION ALL ").filter(shown).map(Sight::parse).collect();
            return sights.map(Self::Look);
        }
        let called =
            |function: &str| text.strip_prefix("SELECT ")?.strip_prefix(function)?.strip_prefix('(')?.strip_suffix(')');
        let change = |kind: Kind, name: &str, makes| Some(Self::Change { thing: kind.thing(name), makes });
        for (function, makes) in [("pg_advisory_lock", true), (HIDING, true), ("pg_advisory_unlock", false)] {
            if let Some(name) = called(function) {
                return change(Kind::Lock, name, makes);
            }
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let around = |done| Some(Self::Around { done, recovers: false });
        match *words.as_slice() {
            ["CREATE", "TEMP", "TABLE", name, ..] => change(Kind::Object, name, true),
            ["DROP", "TABLE", name] => change(Kind::Object, name, false),
            ["DECLARE", name, "CURSOR", "WITH", "HOLD", ..] => change(Kind::Cursor, name, true),
            ["CLOSE", name] => change(Kind::Cursor, name, false),
            ["PREPARE", name, "AS", ..] => change(Kind::Prepared, name, true),
            ["DISCARD", "SEQUENCES"] => around("DISCARD SEQUENCES"),
            ["SET", "LOCAL", "lock_timeout" | "statement_timeout", ..] => around("SET"),
            ["SELECT", first, ..] if first.starts_with("pg_catalog.set_config(E'transaction_timeout'") => {
                around("SELECT 0")
            }
            // What a login asks. No database is made anew here, and there is no module.
            ["SELECT", first, ..] if first.starts_with("pg_catalog.set_config(E'weir.report'") => around("SELECT 1"),
            ["SAVEPOINT", name] if name.starts_with(OURS) => around("SAVEPOINT"),
            ["RELEASE", name] if name.starts_with(OURS) => around("RELEASE"),
            ["ROLLBACK", "TO", name] if name.starts_with(OURS) => {
                Some(Self::Around { done: "ROLLBACK", recovers: true })
            }
            ["DEALLOCATE", name] if name != "ALL" => change(Kind::Prepared, name, false),
            _ => None,
        }
    }
}

impl Sight {
    fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.strip_prefix("SELECT E'")?.split_once("',")?;
        Some(match word {
            "temporary objects" => Self::Any(Kind::Object, "temporary objects"),
            "advisory locks" => Self::Any(Kind::Lock, "advisory locks"),
            "cursors" => Self::Any(Kind::Cursor, "cursors"),
            "prepare" => Self::Any(Kind::Prepared, "prepare"),
            "listen" => Self::Channels,
            "mark" => Self::Mark,
            "parameter" if rest.starts_with("s.name,") => Self::Parameters,
            "parameter" if rest.starts_with("E'role',") => Self::Role,
            "parameter" => {
                let (name, _) = rest.split_once(',')?;
                Self::Custom { name: literal(name), may_be_empty: rest.ends_with("IS NOT NULL") }
            }
            _ => return None,
        })
    }
}

impl Backend {
    /// What a row says about the session it was made in.
    pub(super) fn description(&self) -> String {
        let custom = self.parameters.custom(CUSTOM).unwrap_or_default();
        let (role, held) = (self.parameters.role(), self.held.description());
        format!("{}{CUSTOM}={custom}\n{ROLE}={role}\n{held}", self.parameters.description())
    }

    pub(super) fn holds(&mut self, tag: Option<Tag>, deed: &Deed, extended: bool) {
        match deed {
            Deed::Change { thing, makes } => self.change_held(tag, thing, *makes, extended),
            Deed::Look(sights) => {
                let rows: Vec<_> = sights.iter().flat_map(|sight| self.seen(sight)).collect();
                self.tell_rows(&rows, extended);
            }
            Deed::Around { done, recovers } => {
                self.failed &= !recovers;
                write::command_complete(&mut self.out, done);
            }
            Deed::Catalogue { settings } => {
                for _ in 0..*settings {
                    write::command_complete(&mut self.out, "SET");
                }
                let row = [HIDING, HIDDEN].map(|text| Some(BASE64_STANDARD.encode(text)));
                self.tell_rows(&[row.to_vec()], extended);
            }
        }
    }

    fn change_held(&mut self, tag: Option<Tag>, thing: &Thing, makes: bool, extended: bool) {
        if !self.held.change(thing, makes) {
            return self.error(tag, if makes { "42P07" } else { "42704" }, "it is there, or is not", extended);
        }
        if thing.kind.has_rows() {
            return self.tell_rows(&[vec![Some(String::new())]], extended);
        }
        self.sign(tag);
        write::command_complete(&mut self.out, thing.kind.done()[usize::from(!makes)]);
    }

    fn tell_rows(&mut self, rows: &[Vec<Option<String>>], extended: bool) {
        if !extended {
            let columns = rows.first().map_or(1, Vec::len);
            write::row_description(&mut self.out, &vec![("value", ColumnType::Text); columns], false);
        }
        for row in rows {
            write::data_row(&mut self.out, row.iter().map(|value| value.as_ref().map(String::as_bytes)));
        }
        write::command_complete(&mut self.out, &format!("SELECT {}", rows.len()));
    }

    fn seen(&self, sight: &Sight) -> Vec<Vec<Option<String>>> {
        let parameter =
            |name: &str, value: String| vec![Some("parameter".to_owned()), Some(name.to_owned()), Some(value)];
        match sight {
            Sight::Any(kind, word) if self.held.has_any(*kind) => vec![vec![Some((*word).to_owned()), None, None]],
            Sight::Any(..) => Vec::new(),
            Sight::Role => {
                let role = self.parameters.custom(ROLE).map(str::to_owned);
                role.into_iter().map(|role| parameter(ROLE, role)).collect()
            }
            Sight::Channels => {
                let channels = self.channels.keys();
                channels.map(|channel| vec![Some("listen".to_owned()), Some(channel.clone()), None]).collect()
            }
            Sight::Mark => vec![
                ["mark", self.parameters.custom(LISTS).unwrap_or_default(), ""]
                    .map(|text| Some(text.to_owned()))
                    .to_vec(),
            ],
            Sight::Parameters => {
                let own = self.parameters.0.iter().filter(|(name, value)| self.defaults.0[*name] != **value);
                own.map(|(name, value)| parameter(name, value.clone())).collect()
            }
            Sight::Custom { name, may_be_empty } => match self.parameters.custom(name) {
                Some(value) if *may_be_empty || !value.is_empty() => vec![parameter(name, value.to_owned())],
                _ => Vec::new(),
            },
        }
    }
}
