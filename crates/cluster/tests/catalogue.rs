//! The queries to a cluster, asked of a PostgreSQL that has Citus' tables and nothing else of it.
#![allow(clippy::unwrap_used, clippy::panic)]

use postgres::{Client, NoTls, SimpleQueryMessage};
use weir_cluster::catalogue::{Answers, COLUMNS, FINGERPRINT, NAMESAKES, NODES, PLACEMENTS, Row, SCHEMAS};
use weir_cluster::key::KeyType;
use weir_cluster::topology::{Group, Table, TableName, Topology};
use weir_pg::{Cluster, Installation, Options};

/// The columns that are asked for, in the types of theirs; `partkey` is the column's name here.
const TABLES: &str = "
    create type pg_catalog.noderole as enum ('primary', 'secondary', 'unavailable');
    create table pg_catalog.pg_dist_node (groupid int, nodename text, nodeport int, hasmetadata bool, metadatasynced bool, isactive bool,
        noderole noderole);
    create table pg_catalog.pg_dist_partition (logicalrelid regclass, partmethod \"char\", partkey text, colocationid int, repmodel \"char\");
    create table pg_catalog.pg_dist_shard (logicalrelid regclass, shardid bigint, shardminvalue text, shardmaxvalue text);
    create table pg_catalog.pg_dist_placement (placementid bigint, shardid bigint, shardstate int, groupid int);
    create table pg_catalog.pg_dist_schema (schemaid oid, colocationid int);
    create function pg_catalog.column_to_column_name(regclass, text) returns text language sql as 'select $2';";

const CLUSTER: &str = "
    create table accounts (id int, name varchar(10));
    create function stamp() returns int language sql as 'select 1';
    create table visits (at timestamp(0), gone int, id serial, number bigint generated always as identity, other int default stamp(),
        day date default now(), twice int generated always as (1 + 1) stored);
    alter table visits drop column gone;
    create table colours (name text);
    create type kind as enum ('a');
    create table kinds (kind kind);
    create schema tenant;
    create table tenant.orders (id int);
    create view tenant.accounts as select 1;
    insert into pg_dist_node values (0, 'one', 5432, true, true, true, 'primary'), (1, 'two', 5433, true, false, true, 'primary'),
        (1, 'copy', 5434, true, true, true, 'secondary'), (2, 'gone', 5435, true, true, false, 'primary');
    insert into pg_dist_partition values ('accounts', 'h', 'name', 1, 's'), ('visits', 'h', 'at', 2, 's'), ('kinds', 'h', 'kind', 3, 's'),
        ('colours', 'n', null, 4, 't'), ('tenant.orders', 'n', null, 5, 's');
    insert into pg_dist_shard values ('accounts', 1, '-2147483648', '-1'), ('accounts', 2, '0', '2147483647'),
        ('visits', 3, '-2147483648', '2147483647'), ('kinds', 4, '-2147483648', '2147483647'), ('colours', 5, null, null), ('tenant.orders', 6, null, null);
    insert into pg_dist_placement values (1, 1, 1, 0), (2, 2, 1, 1), (3, 2, 4, 0), (4, 3, 1, 1), (5, 4, 1, 1), (6, 5, 1, 0), (7, 5, 1, 1), (8, 6, 1, 1);
    insert into pg_dist_schema values ('tenant'::regnamespace, 5);
    create temporary table colours (id int);";

fn rows(client: &mut Client, sql: &str) -> Vec<Row> {
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|place| row.get(place).map(str::to_owned)).collect()),
        _ => None,
    };
    client.simple_query(sql).unwrap().into_iter().filter_map(row).collect()
}

fn read(client: &mut Client) -> Topology {
    let queries = [NODES, PLACEMENTS, SCHEMAS, COLUMNS, NAMESAKES];
    let [nodes, placements, schemas, columns, namesakes] = queries.map(|sql| rows(client, sql));
    Answers { nodes, placements, schemas, columns, namesakes }.read().unwrap()
}

fn table<'a>(topology: &'a Topology, schema: &str, name: &str) -> Option<&'a Table> {
    topology.table(&self::name(schema, name))
}

fn name(schema: &str, name: &str) -> TableName {
    TableName { schema: schema.to_owned(), name: name.to_owned() }
}

#[test]
fn a_cluster_is_read_by_its_names() {
    let installation = Installation::preferably(16, &|_| {}).unwrap();
    let hba = vec!["host all all 127.0.0.1/32 trust".to_owned()];
    let settings = vec!["allow_system_table_mods = on".to_owned()];
    let cluster = Cluster::start(&installation, Options { hba, settings, ..Options::default() }).unwrap();
    let mut client = Client::connect(&format!("host=127.0.0.1 port={} user=postgres", cluster.port()), NoTls).unwrap();
    client.batch_execute(TABLES).unwrap();
    client.batch_execute(CLUSTER).unwrap();
    // What a user has put ahead of the catalogue is not asked.
    client
        .batch_execute("create schema ahead; create table ahead.pg_dist_node (); set search_path = ahead, pg_catalog")
        .unwrap();

    let topology = read(&mut client);
    let nodes: Vec<_> =
        topology.nodes().map(|(group, node)| (group.0, &*node.host, node.port, node.answers_any)).collect();
    assert_eq!(nodes, [(0, "one", 5432, true), (1, "two", 5433, false)]);
    let Some(Table::Hashed(accounts)) = table(&topology, "public", "accounts") else { panic!("{topology:?}") };
    assert_eq!((&*accounts.column, accounts.key), ("name", Some(KeyType::Text { longest: Some(10) })));
    assert_eq!((accounts.owner(-1), accounts.owner(0)), (Some(Group(0)), Some(Group(1))));
    for unknown in ["visits", "kinds"] {
        let Some(Table::Hashed(table)) = table(&topology, "public", unknown) else { panic!("{topology:?}") };
        assert_eq!(table.key, None, "{unknown}");
    }
    assert_eq!(table(&topology, "public", "colours"), Some(&Table::Reference));
    assert_eq!(table(&topology, "tenant", "orders"), Some(&Table::Single(Group(1))));
    assert_eq!(topology.schema("tenant"), Some(Group(1)));

    let visits = topology.columns(&name("public", "visits"));
    let visits: Vec<_> = visits.iter().map(|column| (&*column.name, column.is_numbered)).collect();
    let expected = [("at", false), ("id", true), ("number", true), ("other", true), ("day", false), ("twice", false)];
    assert_eq!(visits, expected);
    assert_eq!(table(&topology, "tenant", "accounts"), Some(&Table::AtCoordinator));

    // Whatever changes changes the fingerprint.
    let mut before = rows(&mut client, FINGERPRINT);
    let changes = [
        "update pg_catalog.pg_dist_placement set groupid = 1 where shardid = 1",
        "update pg_catalog.pg_dist_node set nodeport = 6000 where groupid = 0",
        "update pg_catalog.pg_dist_node set isactive = true where groupid = 2",
        "update pg_catalog.pg_dist_shard set shardminvalue = '1' where shardid = 2",
        "drop view tenant.accounts",
        "alter table public.accounts rename to customers",
        "delete from pg_catalog.pg_dist_partition where partmethod = 'n' and repmodel = 't'",
        "delete from pg_catalog.pg_dist_schema",
        "alter table public.visits rename column day to days",
        "alter table public.visits alter column other set default 1",
        "alter table public.visits drop column twice",
        "create table tenant.visits ()",
    ];
    for change in changes {
        client.batch_execute(change).unwrap();
        let now = rows(&mut client, FINGERPRINT);
        assert_ne!(now, before, "{change}");
        before = now;
    }
    assert_eq!(rows(&mut client, FINGERPRINT), before);
    assert_eq!(table(&read(&mut client), "public", "customers"), Some(&Table::AtCoordinator));
}
