//! Which columns equal which values, and each other: what a condition says at the top level of its ANDs.

use pg_query::protobuf::{AExpr, AExprKind, BoolExprType, a_const};
use pg_query::{Node, NodeEnum};

use super::names;
use super::walk::{Walk, node};
use super::{Bound, Column, Of, Operand, Source};
use crate::route::Why;
use crate::shape::Kind;

/// Of more values in an IN nothing is said: they are those of many nodes.
const VALUES_MAX: usize = 64;

impl<'a> Walk<'a> {
    /// A WHERE, and all that stands in it.
    pub(super) fn condition_if(&mut self, condition: Option<&'a Node>) -> Result<(), Why> {
        let Some(condition) = condition else { return Ok(()) };
        self.expression(condition)?;
        self.conditions(condition, true);
        Ok(())
    }

    /// Where it does not hold for all rows, `has_values` is false.
    pub(super) fn conditions(&mut self, condition: &'a Node, has_values: bool) {
        match &condition.node {
            Some(NodeEnum::BoolExpr(of)) if of.boolop() == BoolExprType::AndExpr => {
                of.args.iter().for_each(|one| self.conditions(one, has_values));
            }
            Some(NodeEnum::AExpr(comparison)) if is_equality(comparison) => {
                let (left, right) = (comparison.lexpr.as_deref(), comparison.rexpr.as_deref());
                if let (Some(left), Some(right)) = (left, right) {
                    self.equality(comparison.kind(), left, right, has_values);
                }
            }
            _ => {}
        }
    }

    fn equality(&mut self, kind: AExprKind, left: &'a Node, right: &'a Node, has_values: bool) {
        let is_plain = kind == AExprKind::AexprOp;
        match (self.column_of(left), self.column_of(right).filter(|_| is_plain)) {
            (Some(left), Some(right)) => self.equal(left, right),
            (Some(column), None) if has_values => {
                let values = match kind {
                    AExprKind::AexprIn => self.list(right),
                    AExprKind::AexprOpAny => self.array(right),
                    _ => self.operand(right).map(|value| vec![value]),
                };
                self.bind(column, values);
            }
            (None, Some(column)) if has_values => {
                let values = self.operand(left).map(|value| vec![value]);
                self.bind(column, values);
            }
            _ => {}
        }
    }

    fn bind(&mut self, (of, name): (Of, &str), values: Option<Vec<Operand>>) {
        if let Some(values) = values.filter(|values| (1..=VALUES_MAX).contains(&values.len())) {
            let class = self.column(of, name);
            self.bounds.push(Bound { class, values: values.into() });
        }
    }

    fn equal(&mut self, left: (Of, &str), right: (Of, &str)) {
        let level = self.level();
        let is_here = |of| match of {
            Of::Level(_) => true,
            Of::Relation(number) => self.relations[usize::from(number)].level == level,
        };
        let (left_is_here, right_is_here) = (is_here(left.0), is_here(right.0));
        let (left, right) = (self.column(left.0, left.1), self.column(right.0, right.1));
        match (left_is_here, right_is_here) {
            (true, true) => self.unite(left, right),
            // What holds in a subquery does not hold for the rows around it.
            (true, false) => self.followers.push((level, left, right)),
            (false, true) => self.followers.push((level, right, left)),
            (false, false) => {}
        }
    }

    /// The class of a column.
    pub(super) fn column(&mut self, of: Of, name: &str) -> u16 {
        if let Some(column) = self.columns.iter().find(|column| column.of == of && *column.name == *name) {
            return column.class;
        }
        let class = self.columns.len() as u16;
        self.columns.push(Column { of, name: name.into(), class });
        class
    }

    pub(super) fn unite(&mut self, kept: u16, gone: u16) {
        let classes = self.columns.iter_mut().map(|column| &mut column.class);
        let classes = classes.chain(self.bounds.iter_mut().map(|bound| &mut bound.class));
        let classes = classes.chain(self.followers.iter_mut().flat_map(|(_, class, followed)| [class, followed]));
        classes.filter(|class| **class == gone).for_each(|class| *class = kept);
    }

    /// `a`, `t.a` or `s.t.a`.
    fn column_of(&self, expression: &'a Node) -> Option<(Of, &'a str)> {
        let Some(NodeEnum::ColumnRef(column)) = &expression.node else { return None };
        let names = names::strings(&column.fields)?;
        match names[..] {
            [name] => Some((Of::Level(self.level()), name)),
            [table, name] => Some((self.named("", table)?, name)),
            [schema, table, name] => Some((self.named(schema, table)?, name)),
            _ => None,
        }
    }

    /// A literal, a parameter, or a cast of one.
    pub(super) fn operand(&self, expression: &Node) -> Option<Operand> {
        self.operand_of(expression.node.as_ref()?)
    }

    fn operand_of(&self, expression: &NodeEnum) -> Option<Operand> {
        match expression {
            NodeEnum::AConst(constant) => {
                let place = usize::try_from(constant.location).ok()?;
                let source = match constant.val.as_ref()? {
                    a_const::Val::Sval(_) => Source::Text(self.literal(place, Kind::String)?),
                    a_const::Val::Ival(_) | a_const::Val::Fval(_) => self.number(place)?,
                    _ => return None,
                };
                Some(Operand { source, cast: 0 })
            }
            NodeEnum::ParamRef(parameter) => {
                let number = u16::try_from(parameter.number).ok()?;
                Some(Operand { source: Source::Parameter(number), cast: 0 })
            }
            NodeEnum::TypeCast(cast) => {
                let of_type = cast.type_name.as_ref().filter(|name| name.array_bounds.is_empty())?;
                let operand = self.operand(cast.arg.as_deref()?).filter(|operand| operand.cast == 0)?;
                Some(Operand { cast: names::type_oid(of_type)?, ..operand })
            }
            _ => None,
        }
    }

    /// A number's sign is a part of the constant, which begins with it then.
    fn number(&self, place: usize) -> Option<Source> {
        if let Some(literal) = self.literal(place, Kind::Number) {
            return Some(Source::Number { literal, is_negative: false });
        }
        let behind = self.said.text.get(place..)?.strip_prefix('-')?;
        let digits = behind.trim_start_matches([' ', '\t', '\r', '\n']);
        let literal = self.literal(self.said.text.len() - digits.len(), Kind::Number)?;
        Some(Source::Number { literal, is_negative: true })
    }

    fn literal(&self, place: usize, kind: Kind) -> Option<u16> {
        let literals = self.said.literals;
        let number = literals.binary_search_by_key(&place, |literal| literal.place.start).ok()?;
        (literals[number].kind == kind).then(|| u16::try_from(number).ok()).flatten()
    }

    fn list(&self, list: &Node) -> Option<Vec<Operand>> {
        let Some(NodeEnum::List(list)) = &list.node else { return None };
        self.operands(&list.items)
    }

    fn operands(&self, items: &[Node]) -> Option<Vec<Operand>> {
        items.iter().take(VALUES_MAX + 1).map(|item| self.operand(item)).collect()
    }

    /// `ARRAY[...]`, `'{...}'` or a parameter, with a cast or without.
    fn array(&self, array: &Node) -> Option<Vec<Operand>> {
        let (array, cast) = match array.node.as_ref()? {
            NodeEnum::TypeCast(cast) => {
                let of_type = cast.type_name.as_ref().filter(|name| name.array_bounds.len() == 1)?;
                (node(cast.arg.as_deref()).ok()?, names::type_oid(of_type)?)
            }
            array => (array, 0),
        };
        if let NodeEnum::AArrayExpr(array) = array {
            let operands = self.operands(&array.elements)?;
            let cast_too = |operand: Operand| Operand { cast: if cast == 0 { operand.cast } else { cast }, ..operand };
            return Some(operands.into_iter().map(cast_too).collect());
        }
        let operand = self.operand_of(array).filter(|operand| operand.cast == 0)?;
        let source = match operand.source {
            Source::Text(literal) => Source::Texts(literal),
            Source::Parameter(number) => Source::Parameters(number),
            _ => return None,
        };
        Some(vec![Operand { source, cast }])
    }
}

fn is_equality(comparison: &AExpr) -> bool {
    let is_known = matches!(comparison.kind(), AExprKind::AexprOp | AExprKind::AexprIn | AExprKind::AexprOpAny);
    is_known && matches!(names::strings(&comparison.name).as_deref(), Some(["="] | ["pg_catalog", "="]))
}
