//! What changes rows.

use pg_query::protobuf::{
    CopyStmt, DeleteStmt, InsertStmt, MergeStmt, MergeWhenClause, OnConflictClause, OverridingKind, RangeVar,
    SelectStmt, SetOperation, UpdateStmt,
};
use pg_query::{Node, NodeEnum};

use super::names;
use super::walk::{MOST, Walk, node};
use super::{Cell, Columns, Insert, Rows};
use crate::route::Why;

impl<'a> Walk<'a> {
    pub(super) fn insert(&mut self, insert: &'a InsertStmt) -> Result<(), Why> {
        self.with(insert.with_clause.as_ref())?;
        self.open();
        let relation = self.relation(insert.relation.as_ref().ok_or(Why::NotFollowed)?, true)?;
        if !matches!(insert.r#override(), OverridingKind::OverridingNotSet | OverridingKind::Undefined) {
            return Err(Why::Default);
        }
        let (width, rows) = match insert.select_stmt.as_deref() {
            None => (Some(0), Rows::Said(Box::new([]))),
            Some(rows) => match node(Some(rows))? {
                NodeEnum::SelectStmt(rows) => self.rows(rows)?,
                _ => return Err(Why::NotFollowed),
            },
        };
        let columns = match width {
            Some(width) if insert.cols.is_empty() => Columns::First(width),
            None if insert.cols.is_empty() => Columns::Unknown,
            _ => Columns::Named(targets(&insert.cols)?),
        };
        self.inserts.push(Insert { relation, columns, rows });
        if let Some(conflict) = insert.on_conflict_clause.as_deref() {
            self.conflict(conflict)?;
        }
        self.expressions(&insert.returning_list)?;
        self.close();
        Ok(())
    }

    /// How many columns they have, if that is known, and what is known of them.
    fn rows(&mut self, rows: &'a SelectStmt) -> Result<(Option<usize>, Rows), Why> {
        let is_plain = rows.with_clause.is_none() && rows.sort_clause.is_empty() && rows.limit_count.is_none();
        if !rows.values_lists.is_empty() && is_plain && rows.limit_offset.is_none() {
            return self.said(&rows.values_lists);
        }
        self.select(rows)?;
        let is_star = |target: &Node| match &target.node {
            Some(NodeEnum::ResTarget(target)) => match target.val.as_deref().and_then(|value| value.node.as_ref()) {
                Some(NodeEnum::ColumnRef(column)) => names::strings(&column.fields).is_none(),
                Some(NodeEnum::AIndirection(_)) | None => true,
                _ => false,
            },
            _ => true,
        };
        if rows.op() != SetOperation::SetopNone || rows.target_list.is_empty() || rows.target_list.iter().any(is_star) {
            return Ok((None, Rows::Unknown));
        }
        let cells = rows.target_list.iter().map(|target| match &target.node {
            Some(NodeEnum::ResTarget(target)) => target.val.as_deref().and_then(|value| self.operand(value)),
            _ => None,
        });
        let cells: Box<[_]> = cells.map(|value| value.map_or(Cell::Other, Cell::Value)).collect();
        Ok((Some(cells.len()), Rows::Said(cells)))
    }

    fn said(&mut self, lists: &'a [Node]) -> Result<(Option<usize>, Rows), Why> {
        let mut cells = Vec::new();
        let mut width = None;
        for list in lists {
            let NodeEnum::List(list) = node(Some(list))? else { return Err(Why::NotFollowed) };
            if width.is_some_and(|width| width != list.items.len()) {
                return Err(Why::NotFollowed);
            }
            width = Some(list.items.len());
            for item in &list.items {
                cells.push(self.cell(item)?);
            }
        }
        if cells.len() <= MOST {
            return Ok((width, Rows::Said(cells.into())));
        }
        // What is not kept may not have said this.
        if cells.contains(&Cell::Default) { Err(Why::Default) } else { Ok((width, Rows::Unknown)) }
    }

    fn cell(&mut self, item: &'a Node) -> Result<Cell, Why> {
        if matches!(item.node, Some(NodeEnum::SetToDefault(_))) {
            return Ok(Cell::Default);
        }
        self.expression(item)?;
        Ok(self.operand(item).map_or(Cell::Other, Cell::Value))
    }

    fn conflict(&mut self, conflict: &'a OnConflictClause) -> Result<(), Why> {
        if let Some(infer) = conflict.infer.as_deref() {
            for element in &infer.index_elems {
                let NodeEnum::IndexElem(element) = node(Some(element))? else { return Err(Why::NotFollowed) };
                self.expression_if(element.expr.as_deref())?;
            }
            self.expression_if(infer.where_clause.as_deref())?;
        }
        self.expressions(&conflict.target_list)?;
        self.expression_if(conflict.where_clause.as_deref())
    }

    pub(super) fn update(&mut self, update: &'a UpdateStmt) -> Result<(), Why> {
        self.with(update.with_clause.as_ref())?;
        self.open();
        self.relation(update.relation.as_ref().ok_or(Why::NotFollowed)?, true)?;
        self.from(&update.from_clause)?;
        self.condition_if(update.where_clause.as_deref())?;
        self.expressions(&update.target_list)?;
        self.expressions(&update.returning_list)?;
        self.close();
        Ok(())
    }

    pub(super) fn delete(&mut self, delete: &'a DeleteStmt) -> Result<(), Why> {
        self.with(delete.with_clause.as_ref())?;
        self.open();
        self.relation(delete.relation.as_ref().ok_or(Why::NotFollowed)?, true)?;
        self.from(&delete.using_clause)?;
        self.condition_if(delete.where_clause.as_deref())?;
        self.expressions(&delete.returning_list)?;
        self.close();
        Ok(())
    }

    pub(super) fn merge(&mut self, merge: &'a MergeStmt) -> Result<(), Why> {
        self.with(merge.with_clause.as_ref())?;
        self.open();
        let relation = self.relation(merge.relation.as_ref().ok_or(Why::NotFollowed)?, true)?;
        self.item(merge.source_relation.as_deref().ok_or(Why::NotFollowed)?)?;
        let condition = merge.join_condition.as_deref().ok_or(Why::NotFollowed)?;
        self.expression(condition)?;
        // Rows of the source are there for which it is not true, as in an outer join.
        self.conditions(condition, false);
        for clause in &merge.merge_when_clauses {
            let NodeEnum::MergeWhenClause(clause) = node(Some(clause))? else { return Err(Why::NotFollowed) };
            self.when(relation, clause)?;
        }
        self.expressions(&merge.returning_list)?;
        self.close();
        Ok(())
    }

    fn when(&mut self, relation: u16, clause: &'a MergeWhenClause) -> Result<(), Why> {
        self.expression_if(clause.condition.as_deref())?;
        self.expressions(&clause.values)?;
        if !matches!(clause.r#override(), OverridingKind::OverridingNotSet | OverridingKind::Undefined) {
            return Err(Why::Default);
        }
        if clause.command_type() == pg_query::protobuf::CmdType::CmdInsert {
            let columns = match &clause.target_list[..] {
                [] => Columns::First(clause.values.len()),
                // A row of defaults has no columns, whichever are named.
                _ if clause.values.is_empty() => Columns::First(0),
                targets => Columns::Named(self::targets(targets)?),
            };
            self.inserts.push(Insert { relation, columns, rows: Rows::Matched });
            return Ok(());
        }
        self.expressions(&clause.target_list)
    }

    pub(super) fn copied(&mut self, relation: &'a RangeVar, copy: &'a CopyStmt) -> Result<(), Why> {
        self.open();
        let relation = self.relation(relation, copy.is_from)?;
        self.expression_if(copy.where_clause.as_deref())?;
        if copy.is_from {
            let columns = names::strings(&copy.attlist).ok_or(Why::NotFollowed)?;
            let columns = match &columns[..] {
                [] => Columns::All,
                names => Columns::Named(names.iter().map(|name| (*name).into()).collect()),
            };
            self.inserts.push(Insert { relation, columns, rows: Rows::Unknown });
        }
        self.close();
        Ok(())
    }
}

/// The columns of an INSERT, as a whole each.
fn targets(nodes: &[Node]) -> Result<Box<[Box<str>]>, Why> {
    let name = |target: &Node| match &target.node {
        Some(NodeEnum::ResTarget(target)) if target.indirection.is_empty() => Ok((*target.name).into()),
        _ => Err(Why::NotFollowed),
    };
    nodes.iter().map(name).collect()
}
