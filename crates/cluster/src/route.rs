//! To which node a statement goes, by its recipe, a topology and its values.
//!
//! A route is certain, or it is the coordinator's: any node answers a query right, but some things only the coordinator does.

mod query;
mod value;

use std::fmt;

use crate::shape::Shape;
use crate::statement::{Part, Recipe};
use crate::topology::{Group, TableName, Topology};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// That node has all its rows.
    Owner(Group),
    /// Whichever node has the metadata ([`crate::topology::Node::answers_any`]).
    Any,
    Coordinator,
}

/// What kind of statement it is, to whoever has to keep transactions together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// `BEGIN`, `START TRANSACTION`: of any node.
    Begins,
    /// `SET LOCAL`, `SET TRANSACTION`, `SAVEPOINT`, and the like: what may stand between a `BEGIN` and the first statement that has a node.
    Follows,
    /// `COMMIT`, `ROLLBACK`: where the transaction is.
    Ends,
    /// `SET` and `RESET` for the session: of any node.
    Sets,
    /// `SHOW`: of any node.
    Shows,
    /// One node can do it by itself.
    Single,
    /// Rows of several nodes, or nobody knows.
    FanOut,
    /// Whatever else is the coordinator's.
    Other,
}

/// Why a statement goes where it goes, in a few words ([`fmt::Display`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    Key,
    OneNode,
    Reference,
    NoTable,
    Session,
    Shape,
    Unread,
    Deep,
    Setting,
    NotFollowed,
    Ddl,
    Utility,
    Function,
    Type,
    Default,
    Catalogue,
    Unknown,
    Local,
    WritesReference,
    Numbers,
    Columns,
    KeyType,
    NoKey,
    KeyUnknown,
    TwoOwners,
    NoMetadata,
}

impl fmt::Display for Why {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Key => "has a key",
            Self::OneNode => "is of one node's tables",
            Self::Reference => "reads reference tables",
            Self::NoTable => "reads no table",
            Self::Session => "is of the session",
            Self::Shape => "has no shape",
            Self::Unread => "is not understood",
            Self::Deep => "is too large",
            Self::Setting => "sets something before a query",
            Self::NotFollowed => "is not followed",
            Self::Ddl => "is DDL",
            Self::Utility => "is a utility statement",
            Self::Function => "calls a function",
            Self::Type => "casts to a type",
            Self::Default => "sets a default",
            Self::Catalogue => "reads a catalogue",
            Self::Unknown => "names no table of the cluster",
            Self::Local => "is of a table that is not distributed",
            Self::WritesReference => "writes reference tables",
            Self::Numbers => "leaves a number to a sequence",
            Self::Columns => "is of a table whose columns are not known",
            Self::KeyType => "has a key of a type that is not followed",
            Self::NoKey => "has no key",
            Self::KeyUnknown => "has a key that is not understood",
            Self::TwoOwners => "is of two nodes",
            Self::NoMetadata => "is of a node without metadata",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub target: Target,
    pub class: Class,
    pub why: Why,
    /// The table that decided, and the text of its key, as far as there are such.
    pub table: Option<TableName>,
    pub key: Option<String>,
}

/// A value that a Bind brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// As its Parse said, or as PostgreSQL described it; 0: neither.
    pub type_oid: u32,
    pub is_binary: bool,
    /// `None`: null.
    pub value: Option<&'a [u8]>,
}

/// A statement's values.
pub trait Values {
    /// The text of a literal as it stands in the statement, quotes included; counted from 0, as in [`Shape::literals`].
    fn literal(&self, number: usize) -> Option<&str>;
    /// Of `$1` with number 1. `None`: there is none, or it is not known.
    fn parameter(&self, number: usize) -> Option<Parameter<'_>>;
}

/// The values of a text without parameters.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    pub text: &'a str,
    pub shape: &'a Shape,
}

impl Values for Said<'_> {
    fn literal(&self, number: usize) -> Option<&str> {
        self.text.get(self.shape.literals().get(number)?.place.clone())
    }

    fn parameter(&self, _number: usize) -> Option<Parameter<'_>> {
        None
    }
}

impl Recipe {
    /// `path` is the search path, its schemas that are there, in order; `$user` is resolved, and `pg_catalog` need not be in it. A session that has temporary tables is
    /// not asked about: they are where they are. What a Bind or a text says in another encoding than the server's, the caller does not hand in.
    pub fn route(&self, topology: &Topology, path: &[&str], values: &dyn Values) -> Route {
        let mut chosen: Option<Route> = None;
        for part in &self.parts {
            let route = match part {
                Part::Plain(class, why) => Route::plain(*class, *why),
                Part::Query(query) => query::Asked { query, topology, path, values }.route(),
            };
            if route.target == Target::Coordinator {
                return route;
            }
            let Some(before) = &mut chosen else {
                chosen = Some(route);
                continue;
            };
            let class = if follows(before.class, route.class) { before.class } else { Class::Single };
            if before.target == Target::Any && route.target != Target::Any {
                *before = route;
            }
            before.class = class;
        }
        chosen.unwrap_or_else(|| Route::plain(Class::Single, Why::NoTable))
    }
}

/// Both are as good as the first.
fn follows(first: Class, then: Class) -> bool {
    first == then || (first == Class::Begins && then == Class::Follows)
}

impl Route {
    fn plain(class: Class, why: Why) -> Self {
        let target = if class == Class::Other { Target::Coordinator } else { Target::Any };
        Self { target, class, why, table: None, key: None }
    }
}
