//! What is asked of a node about its cluster, and how the answer is read.
//!
//! The tables are Citus' (`src/include/distributed/pg_dist_*.h` at 12 and 13): the same on every node that has the metadata, but for OIDs, which are
//! looked up here. All is told as text.

use std::collections::BTreeMap;

use crate::topology::{Group, Node, Placement, TableColumn, TableName, Topology};

/// A row for each node that can be asked: the primaries that are in use.
pub const NODES: &str = "SELECT groupid, nodename, nodeport, hasmetadata AND metadatasynced FROM pg_catalog.pg_dist_node \
    WHERE isactive AND noderole OPERATOR(pg_catalog.=) 'primary'";

/// A row for each placement of each shard. A type that is not PostgreSQL's own has no name here.
pub const PLACEMENTS: &str = "SELECT n.nspname, c.relname, p.partmethod, p.repmodel, p.colocationid, a.attname, t.typname, a.atttypmod, \
        s.shardminvalue, s.shardmaxvalue, l.groupid \
    FROM pg_catalog.pg_dist_partition p \
    JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) p.logicalrelid \
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    JOIN pg_catalog.pg_dist_shard s ON s.logicalrelid OPERATOR(pg_catalog.=) p.logicalrelid \
    JOIN pg_catalog.pg_dist_placement l ON l.shardid OPERATOR(pg_catalog.=) s.shardid AND l.shardstate OPERATOR(pg_catalog.=) 1 \
    LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) p.logicalrelid \
        AND a.attname OPERATOR(pg_catalog.=) pg_catalog.column_to_column_name(p.logicalrelid, p.partkey)::pg_catalog.name \
    LEFT JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) a.atttypid \
        AND t.typnamespace OPERATOR(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace";

/// A row for each distributed schema.
pub const SCHEMAS: &str = "SELECT n.nspname FROM pg_catalog.pg_dist_schema s \
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) s.schemaid";

/// A row for each column of a table, in their order. Whose default is an identity's, a sequence's, a function's that others have defined, or of the session,
/// has it from the coordinator.
pub const COLUMNS: &str = "SELECT n.nspname, c.relname, a.attname, \
        a.attidentity OPERATOR(pg_catalog.<>) '' OR (a.attgenerated OPERATOR(pg_catalog.=) '' AND d.oid IS NOT NULL AND ( \
            pg_catalog.pg_get_expr(d.adbin, d.adrelid) OPERATOR(pg_catalog.~) '(nextval|currval|lastval|txid_|pg_|inet_|setting)' \
            OR EXISTS (SELECT FROM pg_catalog.pg_depend e WHERE e.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_attrdef'::pg_catalog.regclass \
                AND e.objid OPERATOR(pg_catalog.=) d.oid AND e.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass))) \
    FROM pg_catalog.pg_dist_partition p \
    JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) p.logicalrelid \
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped \
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid OPERATOR(pg_catalog.=) a.attrelid AND d.adnum OPERATOR(pg_catalog.=) a.attnum \
    ORDER BY a.attrelid, a.attnum";

/// A row for each relation that is not distributed and has the name of one that is. Of the coordinator: others may not have it.
pub const NAMESAKES: &str = "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    WHERE c.relname OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT o.relname FROM pg_catalog.pg_dist_partition p \
        JOIN pg_catalog.pg_class o ON o.oid OPERATOR(pg_catalog.=) p.logicalrelid)) \
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition p WHERE p.logicalrelid OPERATOR(pg_catalog.=) c.oid) \
    AND n.nspname OPERATOR(pg_catalog.!~) '^pg_t'";

/// One value, another one whenever anything above is: a moved shard leaves all numbers of placements as they are, so that rows have to be looked at.
/// Quick enough to be asked every few seconds; of the coordinator, as namesakes are.
pub const FINGERPRINT: &str = "SELECT pg_catalog.md5(pg_catalog.concat_ws(' ', \
    (SELECT pg_catalog.sum(pg_catalog.hashtextextended(pg_catalog.concat_ws(':', shardid, groupid, shardstate), 0)) FROM pg_catalog.pg_dist_placement), \
    (SELECT pg_catalog.sum(pg_catalog.hashtextextended(pg_catalog.concat_ws(':', shardid, shardminvalue, shardmaxvalue), 0)) FROM pg_catalog.pg_dist_shard), \
    (SELECT pg_catalog.sum(pg_catalog.hashtextextended(pg_catalog.concat_ws(':', nodename, nodeport, groupid, noderole, isactive, hasmetadata, metadatasynced), 0)) \
        FROM pg_catalog.pg_dist_node), \
    (SELECT pg_catalog.sum(pg_catalog.hashtextextended(pg_catalog.concat_ws(':', c.relnamespace::pg_catalog.regnamespace, c.relname, p.partmethod, p.repmodel, \
        p.colocationid, p.partkey), 0)) FROM pg_catalog.pg_dist_partition p \
        JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) p.logicalrelid), \
    (SELECT pg_catalog.sum(pg_catalog.hashtextextended(schemaid::pg_catalog.regnamespace::pg_catalog.text, 0)) FROM pg_catalog.pg_dist_schema), \
    (SELECT pg_catalog.sum(pg_catalog.hashtextextended(pg_catalog.concat_ws(':', c.relnamespace::pg_catalog.regnamespace, c.relname, a.attnum, a.attname, \
        a.attisdropped, a.attidentity, pg_catalog.pg_get_expr(d.adbin, d.adrelid)), 0)) FROM pg_catalog.pg_dist_partition p \
        JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) p.logicalrelid \
        JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0 \
        LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid OPERATOR(pg_catalog.=) a.attrelid AND d.adnum OPERATOR(pg_catalog.=) a.attnum), \
    (SELECT pg_catalog.sum(pg_catalog.hashtextextended(pg_catalog.concat_ws(':', c.relnamespace::pg_catalog.regnamespace, c.relname), 0)) \
        FROM pg_catalog.pg_class c \
        WHERE c.relname OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT o.relname FROM pg_catalog.pg_dist_partition p \
            JOIN pg_catalog.pg_class o ON o.oid OPERATOR(pg_catalog.=) p.logicalrelid)) \
        AND c.relnamespace::pg_catalog.regnamespace::pg_catalog.text OPERATOR(pg_catalog.!~) '^pg_t')))";

/// A row's values; `None`: null.
pub type Row = Vec<Option<String>>;

/// What the queries have answered.
#[derive(Debug, Default)]
pub struct Answers {
    pub nodes: Vec<Row>,
    pub placements: Vec<Row>,
    pub schemas: Vec<Row>,
    pub columns: Vec<Row>,
    pub namesakes: Vec<Row>,
}

impl Answers {
    /// The topology, or which answer is not one.
    pub fn read(self) -> Result<Topology, String> {
        let read = |row: &Row| node(row).ok_or_else(|| format!("pg_dist_node: {row:?}"));
        let nodes = self.nodes.iter().map(read).collect::<Result<BTreeMap<_, _>, _>>()?;
        let read = |row: &Row| placement(row).ok_or_else(|| format!("pg_dist_placement: {row:?}"));
        let placements = self.placements.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let schemas = self.schemas.into_iter().filter_map(|row| row.into_iter().next()?).collect();
        let read = |row: &Row| column(row).ok_or_else(|| format!("pg_attribute: {row:?}"));
        let columns = self.columns.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let read = |row: &Row| namesake(row).ok_or_else(|| format!("pg_class: {row:?}"));
        let namesakes = self.namesakes.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(Topology::new(nodes, placements, schemas).with_columns(columns).with_namesakes(namesakes))
    }
}

fn column(row: &Row) -> Option<(TableName, TableColumn)> {
    let [schema, name, column, is_numbered] = values(row)?;
    let table = TableName { schema: schema?.to_owned(), name: name?.to_owned() };
    Some((table, TableColumn { name: column?.to_owned(), is_numbered: is_numbered? == "t" }))
}

fn namesake(row: &Row) -> Option<TableName> {
    let [schema, name] = values(row)?;
    Some(TableName { schema: schema?.to_owned(), name: name?.to_owned() })
}

fn node(row: &Row) -> Option<(Group, Node)> {
    let [group, host, port, answers_any] = values(row)?;
    let node = Node { host: host?.to_owned(), port: port?.parse().ok()?, answers_any: answers_any? == "t" };
    Some((Group(group?.parse().ok()?), node))
}

fn placement(row: &Row) -> Option<Placement> {
    let [schema, name, method, replication, colocation, column, type_name, modifier, first, last, group] = values(row)?;
    let column = column.map(|column| {
        let type_name = type_name.unwrap_or_default();
        let modifier = modifier.and_then(|modifier| modifier.parse().ok()).and_then(|number| length(type_name, number));
        (column.to_owned(), type_name.to_owned(), modifier)
    });
    let hashes = match (first, last) {
        (Some(first), Some(last)) => Some((first.parse().ok()?, last.parse().ok()?)),
        _ => None,
    };
    Some(Placement {
        table: TableName { schema: schema?.to_owned(), name: name?.to_owned() },
        method: letter(method?)?,
        replication: letter(replication?)?,
        colocation: colocation?.parse().ok()?,
        column,
        hashes,
        group: Group(group?.parse().ok()?),
    })
}

fn values<const COUNT: usize>(row: &Row) -> Option<[Option<&str>; COUNT]> {
    let values: Vec<_> = row.iter().map(Option::as_deref).collect();
    values.try_into().ok()
}

fn letter(text: &str) -> Option<char> {
    let mut letters = text.chars();
    letters.next().filter(|_| letters.next().is_none())
}

/// What a column's definition says in parentheses, of `atttypmod`: a length counts its own four bytes (`anychar_typmodin`, src/backend/utils/adt/varchar.c).
fn length(type_name: &str, modifier: i64) -> Option<u32> {
    let own = if ["varchar", "bpchar"].contains(&type_name) { 4 } else { 0 };
    u32::try_from(modifier - own).ok()
}
