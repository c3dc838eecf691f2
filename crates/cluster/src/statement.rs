//! What a statement's text alone tells about where it goes: a recipe that holds for all texts of its shape, and for every cluster.
//!
//! Which tables it names, and which of their columns have to equal which of its values. Whether a table is distributed, and by what, is not known here.

mod conditions;
mod control;
mod expressions;
mod names;
mod relations;
mod walk;
mod writes;

use pg_query::NodeEnum;
use pg_query::protobuf::{RawStmt, VariableSetKind};

use crate::route::{Class, Why};
use crate::shape::Shape;

/// A parse tree of more levels is not made: making it takes time by their square. The decoder refuses it long before.
const LEVELS_MAX: usize = 2048;

/// More than that is not parsed either, so that a worker is not held up for longer than some milliseconds.
const CONSTANTS_MAX: usize = 8192;

/// What so many levels need of a stack, four times in a build that is not optimised; what is not used of it is never there.
const STACK_BYTES: usize = 32 << 20;

/// Small, and the same for all texts of one shape. Keep it by [`Shape::key`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// One for each statement of the text.
    pub(crate) parts: Box<[Part]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// It goes to no node of its own, or to the coordinator ([`Class::Other`]).
    Plain(Class, Why),
    Query(Query),
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    pub relations: Box<[Relation]>,
    pub columns: Box<[Column]>,
    pub bounds: Box<[Bound]>,
    pub inserts: Box<[Insert]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relation {
    pub schema: Option<Box<str>>,
    pub name: Box<str>,
    /// Its rows are changed, or locked.
    pub is_written: bool,
    /// The query or subquery in whose FROM it stands.
    pub level: u16,
}

/// A column that a condition names, or several that equal each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub of: Of,
    pub name: Box<str>,
    /// Columns of one number are equal.
    pub class: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Relation(u16),
    /// Whichever relation of that level has a column of the name.
    Level(u16),
}

/// Columns of the class equal one of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bound {
    pub class: u16,
    pub values: Box<[Operand]>,
}

/// A value of the statement's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operand {
    pub source: Source,
    /// The type that it is cast to; 0: none.
    pub cast: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Number {
        literal: u16,
        is_negative: bool,
    },
    Text(u16),
    Parameter(u16),
    /// An array of values, as a text.
    Texts(u16),
    Parameters(u16),
}

/// Rows for a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Insert {
    pub relation: u16,
    pub columns: Columns,
    pub rows: Rows,
}

/// Those that a row gives; the others get their defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Columns {
    Named(Box<[Box<str>]>),
    /// So many of the first.
    First(usize),
    All,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Row after row.
    Said(Box<[Cell]>),
    /// Of a query, of a COPY, or too many.
    Unknown,
    /// `MERGE`: a condition says which.
    Matched,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    Value(Operand),
    Default,
    Other,
}

impl Recipe {
    /// Parses the text, whose shape this is. Takes tens of microseconds, as a rule; nothing in the text makes it panic.
    pub fn of(text: &str, shape: &Shape) -> Self {
        if shape.levels_max() > LEVELS_MAX || shape.constants() > CONSTANTS_MAX {
            return Self::coordinators(Why::Deep);
        }
        stacker::grow(STACK_BYTES, || Self::parsed(text, shape))
    }

    /// What stands for a text without a shape.
    pub fn coordinators(why: Why) -> Self {
        Self { parts: Box::new([Part::Plain(Class::Other, why)]) }
    }

    fn parsed(text: &str, shape: &Shape) -> Self {
        let tree = match pg_query::parse(text) {
            Ok(tree) => tree.protobuf,
            Err(pg_query::Error::Decode(_)) => return Self::coordinators(Why::Deep),
            Err(_) => return Self::coordinators(Why::Unread),
        };
        let part = |statement: &RawStmt| match statement.stmt.as_ref().and_then(|node| node.node.as_ref()) {
            Some(node) => control::part(node, walk::Text { text, literals: shape.literals() }),
            None => Part::Plain(Class::Other, Why::NotFollowed),
        };
        let parts: Box<[_]> = tree.stmts.iter().map(part).collect();
        // Behind a setting names may mean other tables than before.
        let sets = |statement: &RawStmt| match statement.stmt.as_ref().and_then(|node| node.node.as_ref()) {
            Some(NodeEnum::VariableSetStmt(set)) => set.kind() != VariableSetKind::VarSetMulti,
            _ => false,
        };
        if tree.stmts.iter().any(sets) && parts.iter().any(|part| matches!(part, Part::Query(_))) {
            return Self::coordinators(Why::Setting);
        }
        Self { parts }
    }
}
