//! What stands in a FROM.

use pg_query::protobuf::{JoinExpr, JoinType, RangeFunction, RangeSubselect, RangeVar};
use pg_query::{Node, NodeEnum};

use super::walk::{Named, Walk, node};
use super::{Of, Relation};
use crate::route::Why;

impl<'a> Walk<'a> {
    pub(super) fn from(&mut self, items: &'a [Node]) -> Result<(), Why> {
        items.iter().try_for_each(|item| self.item(item))
    }

    pub(super) fn item(&mut self, item: &'a Node) -> Result<(), Why> {
        match node(Some(item))? {
            NodeEnum::RangeVar(relation) => self.relation_or_common(relation),
            NodeEnum::JoinExpr(join) => self.join(join),
            NodeEnum::RangeSubselect(subselect) => self.subselect(subselect),
            NodeEnum::RangeFunction(function) => self.function_item(function),
            _ => Err(Why::NotFollowed),
        }
    }

    fn relation_or_common(&mut self, relation: &'a RangeVar) -> Result<(), Why> {
        if relation.schemaname.is_empty() && self.common.contains(&&*relation.relname) {
            self.name("", alias(relation).unwrap_or(&relation.relname), None);
            return Ok(());
        }
        self.relation(relation, false).map(|_| ())
    }

    /// Its number.
    pub(super) fn relation(&mut self, relation: &'a RangeVar, is_written: bool) -> Result<u16, Why> {
        if !relation.catalogname.is_empty() {
            return Err(Why::NotFollowed);
        }
        let schema = &*relation.schemaname;
        if schema.starts_with("pg_") || schema == "information_schema" || relation.relname.starts_with("pg_") {
            return Err(Why::Catalogue);
        }
        let number = u16::try_from(self.relations.len()).map_err(|_| Why::Deep)?;
        self.relations.push(Relation {
            schema: (!schema.is_empty()).then(|| schema.into()),
            name: (*relation.relname).into(),
            is_written,
            level: self.level(),
        });
        match alias(relation) {
            Some(alias) => self.name("", alias, Some(number)),
            None => self.name(schema, &relation.relname, Some(number)),
        }
        Ok(number)
    }

    fn name(&mut self, schema: &'a str, name: &'a str, relation: Option<u16>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.push(Named { schema, name, relation });
        }
    }

    fn join(&mut self, join: &'a JoinExpr) -> Result<(), Why> {
        let first = self.relations.len();
        self.item(join.larg.as_deref().ok_or(Why::NotFollowed)?)?;
        self.item(join.rarg.as_deref().ok_or(Why::NotFollowed)?)?;
        for column in &join.using_clause {
            let NodeEnum::String(column) = node(Some(column))? else { return Err(Why::NotFollowed) };
            self.merged(&column.sval, first);
        }
        if let Some(condition) = join.quals.as_deref() {
            self.expression(condition)?;
            // Of an outer join rows are there for which the condition is not true: it says what is equal, and only for the others what they equal.
            self.conditions(condition, join.jointype() == JoinType::JoinInner);
        }
        if let Some(alias) = &join.alias {
            self.name("", &alias.aliasname, None);
        }
        Ok(())
    }

    /// A column of USING, which those that are joined have in common.
    fn merged(&mut self, name: &'a str, first: usize) {
        let level = self.level();
        let class = self.column(Of::Level(level), name);
        for number in first..self.relations.len() {
            if self.relations[number].level == level {
                let other = self.column(Of::Relation(number as u16), name);
                self.unite(class, other);
            }
        }
    }

    fn subselect(&mut self, subselect: &'a RangeSubselect) -> Result<(), Why> {
        match node(subselect.subquery.as_deref())? {
            NodeEnum::SelectStmt(select) => self.select(select)?,
            _ => return Err(Why::NotFollowed),
        }
        if let Some(alias) = &subselect.alias {
            self.name("", &alias.aliasname, None);
        }
        Ok(())
    }

    fn function_item(&mut self, function: &'a RangeFunction) -> Result<(), Why> {
        // Each is a list of the call and its columns' definitions.
        if !function.coldeflist.is_empty() {
            return Err(Why::NotFollowed);
        }
        for call in &function.functions {
            let NodeEnum::List(call) = node(Some(call))? else { return Err(Why::NotFollowed) };
            self.expressions(call.items.iter().filter(|node| node.node.is_some()))?;
        }
        if let Some(alias) = &function.alias {
            self.name("", &alias.aliasname, None);
        }
        Ok(())
    }
}

fn alias(relation: &RangeVar) -> Option<&str> {
    relation.alias.as_ref().map(|alias| &*alias.aliasname)
}
