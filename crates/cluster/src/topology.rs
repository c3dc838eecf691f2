//! A cluster as its metadata tell it: nodes, and where the rows of each table are.
//!
//! Read by names: OIDs differ from node to node, shards' and groups' numbers do not. Never changed, but replaced as a whole. What is out of date is
//! slower, never wrong: any node answers any query.

use std::collections::{BTreeMap, HashMap};

use crate::key::KeyType;

/// The nodes' number of group (`pg_dist_node.groupid`); a node and its standbys have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub i32);

/// Whatever only one node may do, it does.
pub const COORDINATOR: Group = Group(0);

/// The primary of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub host: String,
    pub port: u16,
    /// It has the metadata, so that it can answer any query.
    pub answers_any: bool,
}

/// A table's name, in its schema.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    pub schema: String,
    pub name: String,
}

/// Where a table's rows are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Table {
    /// By the hash of a column.
    Hashed(Hashed),
    /// All of them on every node; a write goes to all, from whichever node.
    Reference,
    /// All of them on one node: a table of a distributed schema, or one without a column to distribute it by.
    Single(Group),
    /// On the coordinator alone, or distributed in a way that is not followed here.
    AtCoordinator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashed {
    pub column: String,
    /// `None`: of a type whose hash is not known here.
    pub key: Option<KeyType>,
    /// Tables of the same number have their rows of equal keys on the same node.
    pub colocation: u32,
    /// In the order of their hashes, of all of which each has one.
    shards: Vec<Shard>,
}

/// The rows whose hashes are from `first` on, up to where the next shard begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shard {
    first: i32,
    group: Group,
}

/// A shard as `pg_dist_shard` and `pg_dist_placement` tell it, a row for each of its placements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    pub table: TableName,
    /// `pg_dist_partition.partmethod` and `repmodel`.
    pub method: char,
    pub replication: char,
    pub colocation: u32,
    /// The distribution column, its type, and that type's length in characters or digits, if it says one.
    pub column: Option<(String, String, Option<u32>)>,
    /// `shardminvalue` and `shardmaxvalue`, both included.
    pub hashes: Option<(i32, i32)>,
    pub group: Group,
}

/// A column, in the order of its table's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    pub name: String,
    /// Where no value is given, the coordinator has to make it: another node numbers rows otherwise, or refuses to.
    pub is_numbered: bool,
}

/// What is known of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relation {
    pub table: Table,
    /// None: they are not known.
    pub columns: Vec<TableColumn>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Topology {
    nodes: BTreeMap<Group, Node>,
    /// By schema, and by name.
    tables: HashMap<String, HashMap<String, Relation>>,
    /// Schemas all of whose tables are on one node.
    schemas: HashMap<String, Group>,
}

impl Topology {
    pub fn new(nodes: BTreeMap<Group, Node>, placements: Vec<Placement>, schemas: Vec<String>) -> Self {
        let mut of_tables: HashMap<TableName, Vec<Placement>> = HashMap::new();
        for placement in placements {
            of_tables.entry(placement.table.clone()).or_default().push(placement);
        }
        let mut tables: HashMap<_, HashMap<_, _>> = HashMap::new();
        for (name, placements) in of_tables {
            let relation = Relation { table: table(placements), columns: Vec::new() };
            tables.entry(name.schema).or_default().insert(name.name, relation);
        }
        let at = |schema: &String| tables.get(schema)?.values().find_map(|relation| single(&relation.table));
        let schemas = schemas.iter().filter_map(|schema| Some((schema.clone(), at(schema)?))).collect();
        Self { nodes, tables, schemas }
    }

    /// With the columns of tables, in their order.
    pub fn with_columns(mut self, columns: impl IntoIterator<Item = (TableName, TableColumn)>) -> Self {
        for (name, column) in columns {
            let of_schema = self.tables.get_mut(&name.schema);
            if let Some(relation) = of_schema.and_then(|tables| tables.get_mut(&name.name)) {
                relation.columns.push(column);
            }
        }
        self
    }

    /// With relations that are not distributed, but have the name of one that is: whichever is earlier in a search path is meant.
    pub fn with_namesakes(mut self, names: impl IntoIterator<Item = TableName>) -> Self {
        for name in names {
            let of_schema = self.tables.entry(name.schema).or_default();
            of_schema.entry(name.name).or_insert(Relation { table: Table::AtCoordinator, columns: Vec::new() });
        }
        self
    }

    pub fn nodes(&self) -> impl Iterator<Item = (Group, &Node)> {
        self.nodes.iter().map(|(group, node)| (*group, node))
    }

    pub fn node(&self, group: Group) -> Option<&Node> {
        self.nodes.get(&group)
    }

    /// How many shards each node alone has: a table that is on one node as a whole is one.
    pub fn shards(&self) -> BTreeMap<Group, u64> {
        let mut shards = BTreeMap::new();
        for relation in self.tables.values().flat_map(HashMap::values) {
            match &relation.table {
                Table::Hashed(hashed) => {
                    hashed.shards.iter().for_each(|shard| *shards.entry(shard.group).or_default() += 1)
                }
                Table::Single(group) => *shards.entry(*group).or_default() += 1,
                Table::Reference | Table::AtCoordinator => {}
            }
        }
        shards
    }

    /// `None`: it is no table of the cluster's, and has no such table's name.
    pub fn table(&self, name: &TableName) -> Option<&Table> {
        self.relation(&name.schema, &name.name).map(|relation| &relation.table)
    }

    /// None: they are not known.
    pub fn columns(&self, name: &TableName) -> &[TableColumn] {
        self.relation(&name.schema, &name.name).map_or(&[], |relation| &relation.columns)
    }

    pub(crate) fn relation(&self, schema: &str, name: &str) -> Option<&Relation> {
        self.tables.get(schema)?.get(name)
    }

    /// Where all tables of a distributed schema are; `None` also while it has none.
    pub fn schema(&self, name: &str) -> Option<Group> {
        self.schemas.get(name).copied()
    }
}

impl Hashed {
    pub fn owner(&self, hash: i32) -> Option<Group> {
        let behind = self.shards.partition_point(|shard| shard.first <= hash);
        self.shards[..behind].last().map(|shard| shard.group)
    }
}

fn single(table: &Table) -> Option<Group> {
    match table {
        Table::Single(group) => Some(*group),
        _ => None,
    }
}

/// What comes of a table's rows in the metadata.
fn table(placements: Vec<Placement>) -> Table {
    let Some(first) = placements.first() else { return Table::AtCoordinator };
    match (first.method, first.replication) {
        ('h', _) => hashed(placements).map_or(Table::AtCoordinator, Table::Hashed),
        ('n', 't') => Table::Reference,
        // A table that is local to the coordinator is in no colocation group (`IsCitusTableTypeInternal`, metadata_cache.c of Citus 13).
        ('n', _) if first.colocation != 0 && placements.len() == 1 => Table::Single(first.group),
        _ => Table::AtCoordinator,
    }
}

/// Each hash must have one owner: where shards are missing, overlap, or have several placements, nobody knows which is the nearest.
fn hashed(placements: Vec<Placement>) -> Option<Hashed> {
    let (column, type_name, length) = placements.first()?.column.clone()?;
    let colocation = placements.first()?.colocation;
    let ranges = placements.into_iter().map(|placement| Some((placement.hashes?, placement.group)));
    let mut ranges = ranges.collect::<Option<Vec<_>>>()?;
    ranges.sort_unstable_by_key(|((first, _), _)| *first);
    let mut due = Some(i32::MIN);
    for ((first, last), _) in &ranges {
        if due != Some(*first) || last < first {
            return None;
        }
        due = last.checked_add(1);
    }
    if due.is_some() {
        return None;
    }
    let shards = ranges.into_iter().map(|((first, _), group)| Shard { first, group }).collect();
    Some(Hashed { column, key: KeyType::named(&type_name, length), colocation, shards })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> TableName {
        TableName { schema: "public".to_owned(), name: name.to_owned() }
    }

    fn shard(table: &str, hashes: (i32, i32), group: i32) -> Placement {
        Placement {
            table: name(table),
            method: 'h',
            replication: 's',
            colocation: 1,
            column: Some(("id".to_owned(), "int4".to_owned(), None)),
            hashes: Some(hashes),
            group: Group(group),
        }
    }

    fn of(placements: Vec<Placement>) -> Topology {
        Topology::new(BTreeMap::new(), placements, Vec::new())
    }

    /// Three shards, in any order: the last has the rest.
    #[test]
    fn each_hash_has_an_owner() {
        let thirds = [(i32::MIN, -715_827_884), (-715_827_883, 715_827_881), (715_827_882, i32::MAX)];
        let topology = of(vec![shard("t", thirds[2], 3), shard("t", thirds[0], 1), shard("t", thirds[1], 2)]);
        let Some(Table::Hashed(table)) = topology.table(&name("t")) else { panic!("{topology:?}") };
        for ((first, last), group) in thirds.into_iter().zip([1, 2, 3]) {
            assert_eq!(table.owner(first), Some(Group(group)));
            assert_eq!(table.owner(last), Some(Group(group)));
        }
        assert_eq!(table.key, Some(KeyType::Int4));
    }

    #[test]
    fn what_has_gaps_or_copies_is_the_coordinators() {
        let whole = (i32::MIN, i32::MAX);
        let broken = [
            vec![shard("t", (i32::MIN, -1), 1), shard("t", (1, i32::MAX), 2)],
            vec![shard("t", (i32::MIN, 0), 1), shard("t", (0, i32::MAX), 2)],
            vec![shard("t", whole, 1), shard("t", whole, 2)],
            vec![shard("t", (0, i32::MAX), 1)],
            vec![Placement { hashes: None, ..shard("t", whole, 1) }],
            vec![Placement { column: None, ..shard("t", whole, 1) }],
            vec![Placement { method: 'r', ..shard("t", whole, 1) }],
        ];
        for placements in broken {
            let topology = of(placements);
            assert_eq!(topology.table(&name("t")), Some(&Table::AtCoordinator), "{topology:?}");
        }
    }

    #[test]
    fn tables_without_a_key_are_told_apart() {
        let of_one = |table: &str, replication, colocation, group| Placement {
            method: 'n',
            replication,
            colocation,
            column: None,
            hashes: None,
            ..shard(table, (0, 0), group)
        };
        let tenant = Placement {
            table: TableName { schema: "tenant".to_owned(), name: "t".to_owned() },
            ..of_one("", 's', 7, 2)
        };
        let placements = vec![
            of_one("everywhere", 't', 5, 1),
            of_one("everywhere", 't', 5, 2),
            of_one("single", 's', 6, 3),
            of_one("local", 's', 0, 0),
            tenant,
        ];
        let topology = Topology::new(BTreeMap::new(), placements, vec!["tenant".to_owned(), "empty".to_owned()]);
        assert_eq!(topology.table(&name("everywhere")), Some(&Table::Reference));
        assert_eq!(topology.table(&name("single")), Some(&Table::Single(Group(3))));
        assert_eq!(topology.table(&name("local")), Some(&Table::AtCoordinator));
        assert_eq!(topology.table(&name("nobody's")), None);
        assert_eq!((topology.schema("tenant"), topology.schema("empty")), (Some(Group(2)), None));
    }
}
