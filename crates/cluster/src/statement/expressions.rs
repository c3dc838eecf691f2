//! What may stand in an expression of a statement that any node may answer.

use pg_query::protobuf::{AExpr, AExprKind, CaseExpr, ColumnRef, FuncCall, SubLink, TypeCast, WindowDef};
use pg_query::{Node, NodeEnum};

use super::names::{self, Sameness};
use super::walk::{Walk, node};
use crate::route::Why;

impl<'a> Walk<'a> {
    pub(super) fn expressions(&mut self, nodes: impl IntoIterator<Item = &'a Node>) -> Result<(), Why> {
        nodes.into_iter().try_for_each(|node| self.expression(node))
    }

    pub(super) fn expression_if(&mut self, node: Option<&'a Node>) -> Result<(), Why> {
        node.map_or(Ok(()), |node| self.expression(node))
    }

    pub(super) fn expression(&mut self, expression: &'a Node) -> Result<(), Why> {
        match node(Some(expression))? {
            NodeEnum::AConst(_)
            | NodeEnum::ParamRef(_)
            | NodeEnum::AStar(_)
            | NodeEnum::String(_)
            | NodeEnum::SqlvalueFunction(_) => Ok(()),
            NodeEnum::SetToDefault(_) => Err(Why::Default),
            NodeEnum::ColumnRef(of) => column(of),
            NodeEnum::FuncCall(of) => self.call(of),
            NodeEnum::TypeCast(of) => self.cast(of),
            NodeEnum::AExpr(of) => self.operation(of),
            NodeEnum::SubLink(of) => self.subquery(of),
            NodeEnum::WindowDef(of) => self.window(of),
            NodeEnum::CaseExpr(of) => self.case(of),
            NodeEnum::CaseWhen(of) => {
                self.expression_if(of.expr.as_deref())?;
                self.expression_if(of.result.as_deref())
            }
            NodeEnum::AIndirection(of) => {
                self.expression_if(of.arg.as_deref())?;
                self.expressions(&of.indirection)
            }
            NodeEnum::AIndices(of) => {
                self.expression_if(of.lidx.as_deref())?;
                self.expression_if(of.uidx.as_deref())
            }
            NodeEnum::ResTarget(of) => {
                self.expressions(&of.indirection)?;
                self.expression_if(of.val.as_deref())
            }
            other => self.simple(other),
        }
    }

    /// What is only its arguments.
    fn simple(&mut self, expression: &'a NodeEnum) -> Result<(), Why> {
        match expression {
            NodeEnum::BoolExpr(of) => self.expressions(&of.args),
            NodeEnum::CoalesceExpr(of) => self.expressions(&of.args),
            NodeEnum::MinMaxExpr(of) => self.expressions(&of.args),
            NodeEnum::RowExpr(of) => self.expressions(&of.args),
            NodeEnum::GroupingFunc(of) => self.expressions(&of.args),
            NodeEnum::GroupingSet(of) => self.expressions(&of.content),
            NodeEnum::AArrayExpr(of) => self.expressions(&of.elements),
            NodeEnum::List(of) => self.expressions(&of.items),
            NodeEnum::NullTest(of) => self.expression_if(of.arg.as_deref()),
            NodeEnum::BooleanTest(of) => self.expression_if(of.arg.as_deref()),
            NodeEnum::CollateClause(of) => self.expression_if(of.arg.as_deref()),
            NodeEnum::NamedArgExpr(of) => self.expression_if(of.arg.as_deref()),
            NodeEnum::MultiAssignRef(of) => self.expression_if(of.source.as_deref()),
            NodeEnum::SortBy(of) if of.use_op.is_empty() => self.expression_if(of.node.as_deref()),
            _ => Err(Why::NotFollowed),
        }
    }

    fn operation(&mut self, operation: &'a AExpr) -> Result<(), Why> {
        use AExprKind::{AexprBetween, AexprBetweenSym, AexprNotBetween, AexprNotBetweenSym};
        let is_between =
            matches!(operation.kind(), AexprBetween | AexprBetweenSym | AexprNotBetween | AexprNotBetweenSym);
        if !is_between && !names::own(&operation.name).is_some_and(names::is_operator) {
            return Err(Why::Function);
        }
        self.expression_if(operation.lexpr.as_deref())?;
        self.expression_if(operation.rexpr.as_deref())
    }

    fn call(&mut self, call: &'a FuncCall) -> Result<(), Why> {
        match names::own(&call.funcname).and_then(names::sameness) {
            Some(Sameness::Same) => {}
            Some(Sameness::Fresh) => self.is_fresh = true,
            None => return Err(Why::Function),
        }
        self.expressions(&call.args)?;
        self.expressions(&call.agg_order)?;
        self.expression_if(call.agg_filter.as_deref())?;
        call.over.as_deref().map_or(Ok(()), |over| self.window(over))
    }

    fn cast(&mut self, cast: &'a TypeCast) -> Result<(), Why> {
        let of_type = cast.type_name.as_ref().ok_or(Why::NotFollowed)?;
        if !names::is_type(of_type) {
            return Err(Why::Type);
        }
        self.expression_if(cast.arg.as_deref())
    }

    fn subquery(&mut self, subquery: &'a SubLink) -> Result<(), Why> {
        if !subquery.oper_name.is_empty() && !names::own(&subquery.oper_name).is_some_and(names::is_operator) {
            return Err(Why::Function);
        }
        self.expression_if(subquery.testexpr.as_deref())?;
        match node(subquery.subselect.as_deref())? {
            NodeEnum::SelectStmt(select) => self.select(select),
            _ => Err(Why::NotFollowed),
        }
    }

    fn window(&mut self, window: &'a WindowDef) -> Result<(), Why> {
        self.expressions(&window.partition_clause)?;
        self.expressions(&window.order_clause)?;
        self.expression_if(window.start_offset.as_deref())?;
        self.expression_if(window.end_offset.as_deref())
    }

    fn case(&mut self, case: &'a CaseExpr) -> Result<(), Why> {
        self.expression_if(case.arg.as_deref())?;
        self.expressions(&case.args)?;
        self.expression_if(case.defresult.as_deref())
    }
}

/// A table's OID is another one on each node.
fn column(column: &ColumnRef) -> Result<(), Why> {
    match column.fields.last().and_then(|field| field.node.as_ref()) {
        Some(NodeEnum::String(name)) if name.sval == "tableoid" => Err(Why::Catalogue),
        _ => Ok(()),
    }
}
