//! To which node a statement goes, by its recipe, a topology and its values.
//!
//! A route is certain, or it is the coordinator's: any node answers a query right, but some things only the coordinator does.

use std::fmt;

use crate::shape::Shape;
use crate::statement::Recipe;
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
    NotFollowed,
}

impl fmt::Display for Why {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::NotFollowed => "is not followed",
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
    /// not asked about: they are where they are.
    pub fn route(&self, topology: &Topology, path: &[&str], values: &dyn Values) -> Route {
        let _ = (topology, path, values);
        Route { target: Target::Coordinator, class: Class::Other, why: self.why(), table: None, key: None }
    }
}
