//! What is gathered on the way through a parse tree, and the queries of it.
//!
//! Whatever is not known to be the same on every node ends the walk: the statement is the coordinator's.

use pg_query::protobuf::{SelectStmt, SetOperation, WithClause};
use pg_query::{Node, NodeEnum};

use super::{Bound, Column, Insert, Of, Query, Relation};
use crate::route::Why;
use crate::shape::Literal;

/// A recipe with more of anything is not kept.
pub(super) const MOST: usize = 1024;

/// The text that is walked through.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    pub text: &'a str,
    pub literals: &'a [Literal],
}

pub(super) struct Walk<'a> {
    pub said: Text<'a>,
    /// The names of common table expressions that are seen here.
    pub common: Vec<&'a str>,
    /// The queries that are open, the innermost last.
    pub scopes: Vec<Scope<'a>>,
    pub relations: Vec<Relation>,
    pub columns: Vec<Column>,
    pub bounds: Vec<Bound>,
    /// The level of a subquery, a class of its columns, and one of a query around it that it equals.
    pub followers: Vec<(u16, u16, u16)>,
    pub inserts: Vec<Insert>,
    /// It calls what gives another value each time.
    pub is_fresh: bool,
    levels: u16,
}

pub(super) struct Scope<'a> {
    pub level: u16,
    pub names: Vec<Named<'a>>,
}

/// What a column's qualifier may name.
pub(super) struct Named<'a> {
    pub schema: &'a str,
    pub name: &'a str,
    /// `None`: a subquery, or a function.
    pub relation: Option<u16>,
}

impl<'a> Walk<'a> {
    pub fn new(said: Text<'a>) -> Self {
        Self {
            said,
            common: Vec::new(),
            scopes: Vec::new(),
            relations: Vec::new(),
            columns: Vec::new(),
            bounds: Vec::new(),
            followers: Vec::new(),
            inserts: Vec::new(),
            is_fresh: false,
            levels: 0,
        }
    }

    /// What has been found, as it is kept.
    pub fn query(mut self) -> Result<Query, Why> {
        if self.relations.is_empty() && self.is_fresh {
            return Err(Why::Function);
        }
        self.unite_qualified();
        // What is around a subquery has a lower level, and is known before.
        self.followers.sort_unstable();
        for (_, class, followed) in std::mem::take(&mut self.followers) {
            let of_followed = self.bounds.iter().filter(|bound| bound.class == followed);
            let same: Vec<_> = of_followed.map(|bound| Bound { class, values: bound.values.clone() }).collect();
            self.bounds.extend(same);
        }
        if self.relations.len().max(self.columns.len()).max(self.bounds.len()) > MOST {
            return Err(Why::Deep);
        }
        Ok(Query {
            relations: self.relations.into(),
            columns: self.columns.into(),
            bounds: self.bounds.into(),
            inserts: self.inserts.into(),
        })
    }

    /// A column that is named with its relation and without is one: of several that have it, it would have to be named with it.
    fn unite_qualified(&mut self) {
        for place in 0..self.columns.len() {
            let Of::Level(level) = self.columns[place].of else { continue };
            let is_same = |column: &&Column| {
                let is_here = |number: u16| self.relations[usize::from(number)].level == level;
                column.name == self.columns[place].name && matches!(column.of, Of::Relation(number) if is_here(number))
            };
            let same: Vec<_> =
                self.columns.iter().filter(is_same).map(|column| (column.of, column.name.clone())).collect();
            for (of, name) in same {
                let (kept, gone) = (self.columns[place].class, self.column(of, &name));
                self.unite(kept, gone);
            }
        }
    }

    /// A query that may also stand in a WITH.
    pub fn statement(&mut self, statement: &'a NodeEnum) -> Result<(), Why> {
        let seen = self.common.len();
        match statement {
            NodeEnum::SelectStmt(select) => self.select(select),
            NodeEnum::InsertStmt(insert) => self.insert(insert),
            NodeEnum::UpdateStmt(update) => self.update(update),
            NodeEnum::DeleteStmt(delete) => self.delete(delete),
            NodeEnum::MergeStmt(merge) => self.merge(merge),
            _ => Err(Why::NotFollowed),
        }?;
        self.common.truncate(seen);
        Ok(())
    }

    /// A common table expression sees those before it, and itself if any of them may.
    pub fn with(&mut self, with: Option<&'a WithClause>) -> Result<(), Why> {
        let Some(with) = with else { return Ok(()) };
        let expressions = with.ctes.iter().map(|node| match &node.node {
            Some(NodeEnum::CommonTableExpr(common)) => Ok(common),
            _ => Err(Why::NotFollowed),
        });
        let expressions = expressions.collect::<Result<Vec<_>, _>>()?;
        if with.recursive {
            self.common.extend(expressions.iter().map(|common| &*common.ctename));
        }
        for common in expressions {
            if common.search_clause.is_some() || common.cycle_clause.is_some() {
                return Err(Why::NotFollowed);
            }
            self.statement(node(common.ctequery.as_deref())?)?;
            self.common.push(&common.ctename);
        }
        Ok(())
    }

    pub fn open(&mut self) {
        self.scopes.push(Scope { level: self.levels, names: Vec::new() });
        self.levels = self.levels.saturating_add(1);
    }

    pub fn close(&mut self) {
        self.scopes.pop();
    }

    pub fn level(&self) -> u16 {
        self.scopes.last().map_or(0, |scope| scope.level)
    }

    /// Of which relation a column is that has a qualifier.
    pub fn named(&self, schema: &str, name: &str) -> Option<Of> {
        let mut names = self.scopes.iter().rev().flat_map(|scope| &scope.names);
        let named = names.find(|named| named.name == name && (schema.is_empty() || named.schema == schema))?;
        named.relation.map(Of::Relation)
    }

    pub fn select(&mut self, select: &'a SelectStmt) -> Result<(), Why> {
        if select.into_clause.is_some() {
            return Err(Why::Ddl);
        }
        let seen = self.common.len();
        self.with(select.with_clause.as_ref())?;
        self.open();
        if select.op() == SetOperation::SetopNone {
            self.plain_select(select)?;
        } else {
            for side in [&select.larg, &select.rarg] {
                self.select(side.as_deref().ok_or(Why::NotFollowed)?)?;
            }
        }
        self.expressions(&select.sort_clause)?;
        self.expression_if(select.limit_offset.as_deref())?;
        self.expression_if(select.limit_count.as_deref())?;
        self.close();
        self.common.truncate(seen);
        Ok(())
    }

    fn plain_select(&mut self, select: &'a SelectStmt) -> Result<(), Why> {
        let first = self.relations.len();
        self.from(&select.from_clause)?;
        self.condition_if(select.where_clause.as_deref())?;
        // `DISTINCT` without ON is a list of one node that is nothing.
        self.expressions(select.distinct_clause.iter().filter(|node| node.node.is_some()))?;
        self.expressions(&select.target_list)?;
        self.expressions(&select.group_clause)?;
        self.expression_if(select.having_clause.as_deref())?;
        self.expressions(&select.window_clause)?;
        self.expressions(&select.values_lists)?;
        let level = self.level();
        if !select.locking_clause.is_empty() {
            let locked = self.relations[first..].iter_mut().filter(|relation| relation.level == level);
            locked.for_each(|relation| relation.is_written = true);
        }
        Ok(())
    }
}

/// What a node is, which has to be there.
pub(super) fn node(node: Option<&Node>) -> Result<&NodeEnum, Why> {
    node.and_then(|node| node.node.as_ref()).ok_or(Why::NotFollowed)
}
