//! A cluster of four nodes, the third of which has no metadata: pgbench's tables and some more.

use std::collections::BTreeMap;

use weir_cluster::topology::{Group, Node, Placement, TableColumn, TableName, Topology};

/// Table, columns, the key's type, number of colocation. A star follows a column that is numbered; the key is the first column unless one has a plus.
const HASHED: &[(&str, &str, &str, u32)] = &[
    ("public.accounts", "aid bid abalance filler", "int4", 1),
    ("public.branches", "bid bbalance filler", "int4", 1),
    ("public.tellers", "tid +bid tbalance filler", "int4", 1),
    ("public.history", "tid bid +aid delta mtime filler", "int4", 1),
    ("public.kinds", "kind note", "", 2),
    ("public.orders", "+customer id* total", "int8", 1),
    ("public.users", "id name", "uuid", 3),
    ("public.sites", "host visits", "text", 4),
    ("public.days", "day count", "date", 5),
    ("public.marks", "label", "varchar", 4),
    ("app.events", "aid what", "int4", 1),
];

/// Three shards: the lowest hashes are node 1's, then come node 2's and node 3's.
const SHARDS: [(i32, i32); 3] = [(i32::MIN, -715_827_884), (-715_827_883, 715_827_881), (715_827_882, i32::MAX)];

pub fn topology() -> Topology {
    let node = |group: i32| {
        let host = format!("node{group}");
        (Group(group), Node { host, port: 5432, answers_any: group != 3 })
    };
    let nodes: BTreeMap<_, _> = (0..4).map(node).collect();
    let (mut placements, mut columns) = (Vec::new(), Vec::new());
    for (table, names, key, colocation) in HASHED {
        let table = name(table);
        let mut distributed = names.split(' ').find(|name| name.starts_with('+'));
        for column in names.split(' ') {
            let column = column.trim_start_matches('+');
            let is_numbered = column.ends_with('*');
            let plain = column.trim_end_matches('*').to_owned();
            columns.push((table.clone(), TableColumn { name: plain, is_numbered }));
        }
        let column = distributed.get_or_insert(names.split(' ').next().unwrap()).trim_start_matches('+').to_owned();
        for (group, hashes) in (1..).zip(SHARDS) {
            let column = Some((column.clone(), (*key).to_owned(), None));
            placements.push(Placement { column, ..placement(&table, 'h', 's', *colocation, Some(hashes), group) });
        }
    }
    for group in 0..4 {
        placements.push(placement(&name("public.colours"), 'n', 't', 9, None, group));
    }
    for (table, columns_of, group) in
        [("tenant.notes", "id text", 2), ("tenant.tags", "id* tag", 2), ("other.notes", "id text", 1)]
    {
        let table = name(table);
        placements.push(placement(&table, 'n', 's', 10 + group as u32, None, group));
        for column in columns_of.split(' ') {
            let column =
                TableColumn { name: column.trim_end_matches('*').to_owned(), is_numbered: column.ends_with('*') };
            columns.push((table.clone(), column));
        }
    }
    placements.push(placement(&name("public.local"), 'n', 's', 0, None, 0));
    columns.push((name("public.colours"), TableColumn { name: "name".to_owned(), is_numbered: false }));
    let schemas = vec!["tenant".to_owned(), "other".to_owned()];
    // A view that is found before the table.
    let namesakes = [name("app.tellers")];
    Topology::new(nodes, placements, schemas).with_columns(columns).with_namesakes(namesakes)
}

fn name(text: &str) -> TableName {
    let (schema, name) = text.split_once('.').unwrap();
    TableName { schema: schema.to_owned(), name: name.to_owned() }
}

fn placement(
    table: &TableName,
    method: char,
    replication: char,
    colocation: u32,
    hashes: Option<(i32, i32)>,
    group: i32,
) -> Placement {
    let table = table.clone();
    Placement { table, method, replication, colocation, column: None, hashes, group: Group(group) }
}
