//! Where a query goes: each relation that it names has an owner, and all of them have to be the same.

use super::value::Owners;
use super::{Class, Route, Target, Values, Why};
use crate::statement::{Cell, Column, Columns, Insert, Of, Query, Relation, Rows};
use crate::topology::{self, Group, Hashed, Table, TableName, Topology};

pub(super) struct Asked<'a> {
    pub query: &'a Query,
    pub topology: &'a Topology,
    pub path: &'a [&'a str],
    pub values: &'a dyn Values,
}

/// A relation that the cluster has.
struct Found<'a> {
    schema: &'a str,
    name: &'a str,
    known: &'a topology::Relation,
}

/// Whose a relation is.
struct Owned {
    group: Group,
    why: Why,
    key: Option<String>,
}

impl<'a> Asked<'a> {
    pub fn route(&self) -> Route {
        let mut owner: Option<Route> = None;
        let mut why = Why::NoTable;
        let founds = match self.founds() {
            Ok(founds) => founds,
            Err((why, table)) => return Route { table, ..to_coordinator(Class::Other, why) },
        };
        for (number, found) in founds.iter().enumerate() {
            let owned = match self.owner(number, found) {
                Ok(Some(owned)) => owned,
                Ok(None) => {
                    why = Why::Reference;
                    continue;
                }
                Err(why) => return Route { table: Some(found.table()), ..to_coordinator(Class::FanOut, why) },
            };
            let target = Target::Owner(owned.group);
            match &owner {
                Some(before) if before.target != target => return to_coordinator(Class::FanOut, Why::TwoOwners),
                Some(before) if before.key.is_some() || owned.key.is_none() => {}
                _ => {
                    let table = Some(found.table());
                    owner = Some(Route { target, class: Class::Single, why: owned.why, table, key: owned.key });
                }
            }
        }
        owner.map_or_else(|| Route::plain(Class::Single, why), |route| self.if_answers(route))
    }

    /// An owner without metadata knows its shards and nothing else.
    fn if_answers(&self, route: Route) -> Route {
        let Target::Owner(group) = route.target else { return route };
        let answers = self.topology.node(group).is_some_and(|node| node.answers_any);
        if answers { route } else { Route { target: Target::Coordinator, why: Why::NoMetadata, ..route } }
    }

    /// Everything that the query names, if nothing of it is the coordinator's.
    fn founds(&self) -> Result<Vec<Found<'a>>, (Why, Option<TableName>)> {
        let found = |relation: &'a Relation| {
            let found = self.find(relation).ok_or((Why::Unknown, None))?;
            match &found.known.table {
                Table::AtCoordinator => Err((Why::Local, Some(found.table()))),
                Table::Hashed(hashed) if hashed.key.is_none() => Err((Why::KeyType, Some(found.table()))),
                _ => Ok(found),
            }
        };
        let founds = self.query.relations.iter().map(found).collect::<Result<Vec<_>, _>>()?;
        for insert in &self.query.inserts {
            let found = &founds[usize::from(insert.relation)];
            numbers_nothing(insert, found).map_err(|why| (why, Some(found.table())))?;
        }
        Ok(founds)
    }

    /// The first of the path that has the name.
    fn find(&self, relation: &'a Relation) -> Option<Found<'a>> {
        let name = &*relation.name;
        let in_schema =
            |schema: &'a str| self.topology.relation(schema, name).map(|known| Found { schema, name, known });
        if let Some(schema) = &relation.schema {
            return in_schema(schema);
        }
        // It is searched first unless the path says otherwise.
        let first = (!self.path.contains(&"pg_catalog")).then_some("pg_catalog");
        first.into_iter().chain(self.path.iter().copied()).find_map(in_schema)
    }

    /// `None`: it is on every node.
    fn owner(&self, number: usize, found: &Found<'a>) -> Result<Option<Owned>, Why> {
        let relation = &self.query.relations[number];
        match &found.known.table {
            Table::Single(group) => Ok(Some(Owned { group: *group, why: Why::OneNode, key: None })),
            Table::Reference if relation.is_written => Err(Why::WritesReference),
            Table::Reference => Ok(None),
            Table::Hashed(hashed) => self.key_owner(number, relation.level, found, hashed).map(Some),
            Table::AtCoordinator => Err(Why::Local),
        }
    }

    fn key_owner(&self, number: usize, level: u16, found: &Found<'a>, hashed: &Hashed) -> Result<Owned, Why> {
        let inserts = self.query.inserts.iter().find(|insert| usize::from(insert.relation) == number);
        if let Some(insert) = inserts.filter(|insert| insert.rows != Rows::Matched) {
            return self.rows_owner(insert, found, hashed);
        }
        let is_key = |column: &&Column| {
            let is_its = column.of == Of::Relation(number as u16) || column.of == Of::Level(level);
            is_its && *column.name == *hashed.column
        };
        let mut why = Why::NoKey;
        for column in self.query.columns.iter().filter(is_key) {
            for bound in self.query.bounds.iter().filter(|bound| bound.class == column.class) {
                let mut owners = Owners::new(hashed, self.values);
                match bound.values.iter().try_for_each(|value| owners.add(*value)).and_then(|()| owners.owner()) {
                    Ok((group, key)) => return Ok(Owned { group, why: Why::Key, key }),
                    Err(reason) => why = reason,
                }
            }
        }
        Err(why)
    }

    fn rows_owner(&self, insert: &Insert, found: &Found<'a>, hashed: &Hashed) -> Result<Owned, Why> {
        let Rows::Said(cells) = &insert.rows else { return Err(Why::NoKey) };
        let width = width(insert);
        let place = match &insert.columns {
            Columns::Named(names) => names.iter().position(|name| **name == *hashed.column),
            _ => found.known.columns.iter().position(|column| column.name == hashed.column),
        };
        let place = place.filter(|place| *place < width).ok_or(Why::NoKey)?;
        let mut owners = Owners::new(hashed, self.values);
        for cell in cells.iter().skip(place).step_by(width) {
            let Cell::Value(value) = cell else { return Err(Why::NoKey) };
            owners.add(*value)?;
        }
        owners.owner().map(|(group, key)| Owned { group, why: Why::Key, key })
    }
}

impl Found<'_> {
    fn table(&self) -> TableName {
        TableName { schema: self.schema.to_owned(), name: self.name.to_owned() }
    }
}

fn to_coordinator(class: Class, why: Why) -> Route {
    Route { target: Target::Coordinator, class, why, table: None, key: None }
}

/// Of how many columns a row is; they are all that it gives.
fn width(insert: &Insert) -> usize {
    match &insert.columns {
        Columns::Named(names) => names.len(),
        Columns::First(width) => *width,
        Columns::All | Columns::Unknown => usize::MAX,
    }
}

/// Each column that is left out has a default that any node gives alike.
fn numbers_nothing(insert: &Insert, found: &Found<'_>) -> Result<(), Why> {
    let known = &found.known.columns;
    if known.is_empty() {
        return Err(Why::Columns);
    }
    for (place, column) in known.iter().enumerate().filter(|(_, column)| column.is_numbered) {
        let given = match &insert.columns {
            Columns::Named(names) => names.iter().position(|name| **name == *column.name),
            Columns::First(width) => (place < *width).then_some(place),
            Columns::All => Some(place),
            Columns::Unknown => None,
        };
        let Some(given) = given else { return Err(Why::Numbers) };
        if let Rows::Said(cells) = &insert.rows {
            let mut cells = cells.iter().skip(given).step_by(width(insert).max(1));
            if cells.any(|cell| *cell == Cell::Default) {
                return Err(Why::Numbers);
            }
        }
    }
    Ok(())
}
