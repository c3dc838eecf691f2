//! A cluster: four PostgreSQLs, each with its own part of a table, and the others' through postgres_fdw, so that any node answers any query, as Citus' do.
//! Beside the table stand Citus' catalogues. A reference table says which node has answered: its copies differ, which a real one's do not.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use postgres::error::SqlState;
use postgres::types::Type;
use postgres::{Client, NoTls};
use weir_pg::{Cluster, Installation, Options};
use weir_wire::backend::ErrorFields;
use weir_wire::{BackendTag, write};

use super::bench::{PATIENCE, Raw, Weir, wait_until};
use super::parameters::said;

const NODES: usize = 4;
/// Where the parts of the hashes' range begin.
const FIRST: [i64; NODES] = [-2_147_483_648, -1_073_741_824, 0, 1_073_741_824];

/// The columns of Citus' catalogue that are asked for, in the types of theirs; `partkey` is the column's name here.
const CATALOGUE: &str = "
    create type pg_catalog.noderole as enum ('primary', 'secondary', 'unavailable');
    create table pg_catalog.pg_dist_node (nodeid int, groupid int, nodename text, nodeport int, hasmetadata bool, metadatasynced bool, isactive bool,
        noderole noderole);
    create table pg_catalog.pg_dist_partition (logicalrelid regclass, partmethod \"char\", partkey text, colocationid int, repmodel \"char\");
    create table pg_catalog.pg_dist_shard (logicalrelid regclass, shardid bigint, shardminvalue text, shardmaxvalue text);
    create table pg_catalog.pg_dist_placement (placementid bigint, shardid bigint, shardstate int, groupid int);
    create table pg_catalog.pg_dist_schema (schemaid oid, colocationid int);
    create function pg_catalog.column_to_column_name(regclass, text) returns text language sql as 'select $2';";

struct Nodes(Vec<Cluster>);

impl Nodes {
    fn start() -> Self {
        let installation = Installation::of_major(16, &|_| {}).unwrap();
        let one = || {
            let settings = ["allow_system_table_mods = on", "fsync = off", "max_connections = 100"].map(str::to_owned);
            let hba = vec!["host all all 127.0.0.1/32 trust".to_owned()];
            Cluster::start(&installation, Options { settings: settings.to_vec(), hba, ..Options::default() }).unwrap()
        };
        let nodes = Self((0..NODES).map(|_| one()).collect());
        for node in 0..NODES {
            nodes.client(node).batch_execute(&nodes.schema(node)).unwrap();
        }
        nodes.client(0).batch_execute("insert into accounts select n, 0 from generate_series(1, 200) n").unwrap();
        nodes
    }

    fn client(&self, node: usize) -> Client {
        Client::connect(&format!("host=127.0.0.1 port={} user=postgres", self.0[node].port()), NoTls).unwrap()
    }

    fn schema(&self, node: usize) -> String {
        let mut sql = CATALOGUE.to_owned();
        sql += "create extension postgres_fdw;
            create table accounts (aid bigint, balance bigint) partition by range (hashint8(aid));
            create table places (id int, node int);
            create table at_coordinator (id int);
            create table pg_catalog.pg_dist_local_group (groupid int);
            insert into pg_dist_partition values ('accounts', 'h', 'aid', 1, 's'), ('places', 'n', null, 2, 't');
            insert into pg_dist_shard values ('places', 9, null, null);";
        sql += &format!("insert into places values (1, {node}); insert into pg_dist_local_group values ({node});");
        for (other, first) in FIRST.iter().enumerate() {
            let last = FIRST.get(other + 1).map_or(2_147_483_647, |next| next - 1);
            let until = FIRST.get(other + 1).map_or("maxvalue".to_owned(), i64::to_string);
            let part = format!("partition of accounts for values from ({first}) to ({until})");
            let port = self.0[other].port();
            sql += &match other == node {
                true => format!("create table accounts_{other} {part};"),
                false => format!(
                    "create server node_{other} foreign data wrapper postgres_fdw options (host '127.0.0.1', port '{port}', dbname 'postgres');
                     create user mapping for postgres server node_{other} options (user 'postgres');
                     create foreign table accounts_{other} {part} server node_{other};"
                ),
            };
            sql += &format!(
                "insert into pg_dist_node values ({other}, {other}, '127.0.0.1', {port}, true, true, true, 'primary');
                 insert into pg_dist_shard values ('accounts', {other}, '{first}', '{last}');
                 insert into pg_dist_placement values ({other}, {other}, 1, {other}), (1{other}, 9, 1, {other});"
            );
        }
        sql
    }

    fn weir(&self, lines: &str) -> Weir {
        self.weir_of("", lines)
    }

    fn weir_of(&self, entry: &str, lines: &str) -> Weir {
        let databases = format!("postgres = host=127.0.0.1 port={} cluster=citus {entry}", self.0[0].port());
        let lines = format!("pool_mode = transaction\nauth_type = trust\nadmin_users = postgres\n{lines}");
        let weir = Weir::start_with(&databases, "\"postgres\" \"\"\n", &lines);
        let mut client = weir.client();
        client.simple_query("select 1").unwrap();
        let since = Instant::now();
        while !weir.log().contains("cluster of database") {
            assert!(since.elapsed() < PATIENCE, "the catalogue is read");
            std::thread::sleep(Duration::from_millis(20));
        }
        weir
    }

    /// By PostgreSQL's own hash.
    fn owner(&self, aid: i64) -> i32 {
        let hash: i32 = self.client(0).query_one("select hashint8($1)", &[&aid]).unwrap().get(0);
        FIRST.iter().rposition(|first| *first <= i64::from(hash)).unwrap() as i32
    }
}

/// Where a row of that number is asked for.
const ASKS: &str = "select p.node from accounts a, places p where a.aid = ";

fn node_of(client: &mut Client, sql: &str) -> i32 {
    let rows = client.simple_query(sql).unwrap();
    let row = rows.iter().find_map(|message| match message {
        postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    row.unwrap().parse().unwrap()
}

#[test]
fn statements_go_to_the_node_that_has_their_row() {
    let nodes = Nodes::start();
    let weir = nodes.weir("");
    let mut client = weir.client();
    let named = client.prepare(&format!("{ASKS} $1")).unwrap();
    for aid in 1..=24_i64 {
        let owner = nodes.owner(aid);
        assert_eq!(node_of(&mut client, &format!("{ASKS}{aid}")), owner, "{aid}, simple");
        assert_eq!(client.query_one(&named, &[&aid]).unwrap().get::<_, i32>(0), owner, "{aid}, prepared, binary");
        let typed = client.query_typed(&format!("{ASKS} $1"), &[(&aid, Type::INT8)]).unwrap();
        assert_eq!(typed[0].get::<_, i32>(0), owner, "{aid}, unnamed");
        let update =
            format!("with w as (update accounts set balance = balance + 1 where aid = {aid} returning 1) {ASKS}{aid}");
        assert!((0..4).contains(&node_of(&mut client, &update)));
    }
    // Without a key, of several nodes, of nobody's tables: the coordinator's.
    for sql in [
        "select p.node from accounts a, places p order by a.aid limit 1",
        "select p.node from accounts a, places p where a.aid in (1, 2, 3, 4, 5, 6, 7, 8) limit 1",
        "select p.node from places p, at_coordinator a right join places q on true",
    ] {
        assert_eq!(node_of(&mut client, sql), 0, "{sql}");
    }
    let total = "select sum(balance) from accounts where aid <= 24";
    let through: i64 = client.query_one(&format!("select ({total})::bigint"), &[]).unwrap().get(0);
    let straight: i64 = nodes.client(0).query_one(&format!("select ({total})::bigint"), &[]).unwrap().get(0);
    assert_eq!((through, straight), (24, 24));
}

/// It is answered before there is a server, and what follows it is done in it.
#[test]
fn a_transaction_goes_where_its_first_key_says() {
    let nodes = Nodes::start();
    let weir = nodes.weir("default_pool_size = 1");
    let mut client = weir.client();
    for aid in 1..=12_i64 {
        let owner = nodes.owner(aid);
        client.batch_execute("begin isolation level repeatable read").unwrap();
        client.batch_execute("set local statement_timeout = '4321s'").unwrap();
        assert_eq!(node_of(&mut client, &format!("{ASKS}{aid}")), owner);
        let mut show = |name: &str| {
            let rows = client.simple_query(&format!("show {name}")).unwrap();
            rows.iter().find_map(|message| match message {
                postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
        };
        assert_eq!(show("transaction_isolation").as_deref(), Some("repeatable read"));
        assert_eq!(show("statement_timeout").as_deref(), Some("4321s"));
        // Any other row is there, too.
        node_of(&mut client, &format!("{ASKS}{}", aid + 1));
        client.batch_execute(&format!("update accounts set balance = 7 where aid = {aid}")).unwrap();
        client.batch_execute(if aid % 2 == 0 { "commit" } else { "rollback" }).unwrap();
    }
    let sum: i64 = client.query_one("select sum(balance)::bigint from accounts where aid <= 12", &[]).unwrap().get(0);
    assert_eq!(sum, 6 * 7);
    // One that does nothing needs no server, and one that fails is failed.
    client.batch_execute("begin").unwrap();
    client.batch_execute("commit").unwrap();
    client.batch_execute("start transaction read only").unwrap();
    let refused = client.batch_execute("update accounts set balance = 1 where aid = 3").unwrap_err();
    assert_eq!(refused.code(), Some(&SqlState::READ_ONLY_SQL_TRANSACTION));
    let aborted = client.batch_execute("select 1").unwrap_err();
    assert_eq!(aborted.code(), Some(&SqlState::IN_FAILED_SQL_TRANSACTION));
    client.batch_execute("rollback").unwrap();
    client.batch_execute("select 1").unwrap();
    let mut transaction = client.transaction().unwrap();
    transaction.execute("update accounts set balance = 1 where aid = $1", &[&5_i64]).unwrap();
    transaction.commit().unwrap();
}

/// It would be done on the one node alone, without a word.
#[test]
fn what_only_the_coordinator_does_right_is_refused_elsewhere() {
    let nodes = Nodes::start();
    let weir = nodes.weir("");
    let mut client = weir.client();
    let aid = (1..100).find(|aid| nodes.owner(*aid) == 2).unwrap();
    let lock = client.prepare("select pg_advisory_xact_lock($1)").unwrap();
    for sql in ["select pg_advisory_xact_lock(1)", "create table mine (id int)", "listen somebody"] {
        // What may have made tables has the catalogue read again.
        let since = Instant::now();
        while node_of(&mut client, &format!("{ASKS}{aid}")) != 2 {
            assert!(since.elapsed() < PATIENCE, "it is read");
        }
        client.batch_execute("begin").unwrap();
        assert_eq!(node_of(&mut client, &format!("{ASKS}{aid}")), 2);
        let refused = client.batch_execute(sql).unwrap_err();
        assert_eq!(refused.code(), Some(&SqlState::FEATURE_NOT_SUPPORTED), "{sql}: {refused}");
        client.batch_execute("rollback").unwrap();
        client.batch_execute(&format!("begin; {sql}; rollback")).unwrap();
    }
    client.batch_execute("begin").unwrap();
    node_of(&mut client, &format!("{ASKS}{aid}"));
    assert!(client.query(&lock, &[&1_i64]).is_err());
    client.batch_execute("rollback").unwrap();
    client.query(&lock, &[&1_i64]).unwrap();
    // A session that a node would take for another node's.
    let named = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", weir.port);
    let posing = format!("{named} application_name='citus_internal gpid=10000000123'");
    assert!(Client::connect(&posing, NoTls).is_err());
    assert!(
        client.batch_execute("select set_config('application_name', 'citus_' || 'internal gpid=1', false)").is_err()
    );
    assert!(client.is_closed() || client.batch_execute("select 1").is_err());
}

/// What is out of date is slower, never wrong; and a node that is down stalls nobody else.
#[test]
fn placements_and_nodes_may_change() {
    let mut nodes = Nodes::start();
    let weir = nodes.weir("server_login_retry = 1\nquery_wait_timeout = 3");
    let mut client = weir.client();
    let of = |node: i32| (1..100).find(|aid| nodes.owner(*aid) == node).unwrap();
    let (first, second) = (of(1), of(2));
    assert_eq!(node_of(&mut client, &format!("{ASKS}{first}")), 1);
    for node in 0..NODES {
        nodes.client(node).batch_execute("update pg_dist_placement set groupid = 3 where shardid = 1").unwrap();
    }
    let since = Instant::now();
    while node_of(&mut client, &format!("{ASKS}{first}")) != 3 {
        assert!(since.elapsed() < PATIENCE, "the catalogue is read again");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Of a part that is not there postgres_fdw does not know that it has not the row.
    nodes.client(3).batch_execute("alter table accounts detach partition accounts_2").unwrap();
    nodes.0[2].stop().unwrap();
    let lost = client.simple_query(&format!("{ASKS}{second}"));
    assert!(lost.is_err(), "its node is down");
    let mut client = weir.client();
    let since = Instant::now();
    assert_eq!(node_of(&mut client, &format!("{ASKS}{first}")), 3);
    assert!(since.elapsed() < Duration::from_secs(10), "nobody else waits");
    nodes.0[2].start_again().unwrap();
    let since = Instant::now();
    loop {
        let mut client = weir.client();
        if client.simple_query(&format!("{ASKS}{second}")).is_ok() {
            break assert_eq!(node_of(&mut client, &format!("{ASKS}{second}")), 2);
        }
        assert!(since.elapsed() < PATIENCE, "it is found again");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn who_wants_the_coordinator_gets_it() {
    let nodes = Nodes::start();
    let weir = nodes.weir_of("route=coordinator", "");
    let mut client = weir.client();
    for aid in 1..=12_i64 {
        assert_eq!(node_of(&mut client, &format!("{ASKS}{aid}")), 0);
    }
}

/// Also where a table of the same name is on the coordinator alone.
#[test]
fn names_mean_what_they_mean_on_the_coordinator() {
    let nodes = Nodes::start();
    let weir = nodes.weir("");
    let mut client = weir.client();
    let aid = (1..100).find(|aid| nodes.owner(*aid) == 2).unwrap();
    let balance = |client: &mut Client| {
        let rows = client.simple_query(&format!("select balance from accounts where aid = {aid}")).unwrap();
        rows.iter().find_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
    };
    assert_eq!(balance(&mut client).as_deref(), Some("0"));
    // Made and used at once, while what is known of the catalogue is older.
    let makes = format!(
        "create schema apart; create table apart.accounts (aid bigint, balance bigint); insert into apart.accounts values ({aid}, 99)"
    );
    client.batch_execute(&makes).unwrap();
    client.batch_execute("set search_path = apart, public").unwrap();
    assert_eq!(balance(&mut client).as_deref(), Some("99"));
    client.batch_execute("reset search_path").unwrap();
    client.batch_execute("begin; set local search_path = apart, public").unwrap();
    assert_eq!(balance(&mut client).as_deref(), Some("99"));
    client.batch_execute("rollback").unwrap();
    client.batch_execute("begin").unwrap();
    client.batch_execute("set local search_path = apart, public").unwrap();
    assert_eq!(balance(&mut client).as_deref(), Some("99"));
    client.batch_execute("commit").unwrap();
    // What PostgreSQL refuses is refused where it is said, and the transaction has failed.
    client.batch_execute("begin").unwrap();
    assert!(client.batch_execute("set local work_mem = 'nonsense'").is_err());
    assert_eq!(client.batch_execute("select 1").unwrap_err().code(), Some(&SqlState::IN_FAILED_SQL_TRANSACTION));
    client.batch_execute("rollback").unwrap();
    // One that is too long to be held back.
    client.batch_execute(&format!("begin{}", " ".repeat(5000))).unwrap();
    client.batch_execute(&format!("update accounts set balance = 5 where aid = {aid}")).unwrap();
    client.batch_execute("rollback").unwrap();
    client.batch_execute("set local statement_timeout = '1s'").unwrap();
    assert_eq!(balance(&mut client).as_deref(), Some("0"));
}

/// What needs rows of several nodes has servers of its own, so many and no more, and keeps nobody else waiting.
#[test]
fn what_fans_out_has_a_size_of_its_own() {
    const COUNTS: &str = "select count(*) from accounts where balance >= 0";
    let nodes = Nodes::start();
    let weir = nodes.weir_of("fan_out_pool_size=1", "default_pool_size = 2");
    let mut first = weir.client();
    first.batch_execute(&format!("begin; {COUNTS}")).unwrap();
    let second = std::thread::spawn({
        let mut second = weir.client();
        move || second.batch_execute(COUNTS).unwrap()
    });
    let mut console = weir.try_client("dbname=pgbouncer").unwrap();
    let mut fan_out = || {
        let rows = said(&mut console, "show nodes");
        let row = rows.iter().find(|row| row.split('|').nth(2) == Some("fan-out")).map(|row| {
            let columns: Vec<_> = row.split('|').collect();
            // Who waits, and servers.
            (columns[7].to_owned(), columns[8].to_owned())
        });
        row.unwrap_or_default()
    };
    wait_until("it waits for the one", || fan_out() == ("1".to_owned(), "1".to_owned()));
    // Others are served, at the coordinator too.
    let mut third = weir.client();
    let of_coordinator = (1..100).find(|aid| nodes.owner(*aid) == 0).unwrap();
    assert_eq!(node_of(&mut third, &format!("{ASKS}{of_coordinator}")), 0);
    third.batch_execute("select from at_coordinator").unwrap();
    assert!(!second.is_finished());
    first.batch_execute("commit").unwrap();
    second.join().unwrap();
    assert_eq!(fan_out(), ("0".to_owned(), "1".to_owned()));
}

/// Leads to one node after the other: the port.
fn balancer(ports: Vec<u16>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (from, port) in listener.incoming().map_while(Result::ok).zip(ports.into_iter().cycle()) {
            let Ok(to) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            for (mut from, mut to) in [(from.try_clone().unwrap(), to.try_clone().unwrap()), (to, from)] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    port
}

/// Behind a load balancer each connection is at the node that it was made for, or is not used.
#[test]
fn nodes_may_be_behind_one_address() {
    let nodes = Nodes::start();
    for node in 0..NODES {
        nodes.client(node).batch_execute("update pg_dist_node set nodename = 'nowhere.invalid', nodeport = 1").unwrap();
    }
    let port = balancer(nodes.0.iter().map(Cluster::port).collect());
    let weir = nodes.weir_of(&format!("balanced=127.0.0.1:{port}"), "default_pool_size = 2");
    let mut clients = [weir.client(), weir.client(), weir.client()];
    for aid in 1..=40_i64 {
        let owner = nodes.owner(aid);
        for client in &mut clients {
            assert_eq!(node_of(client, &format!("{ASKS}{aid}")), owner, "{aid}");
        }
    }
    assert_eq!(
        node_of(&mut clients[0], "select p.node from places p, at_coordinator a right join places q on true"),
        0
    );
    // Also where nothing but the balancer's address is known.
    let weir = nodes.weir_of(&format!("balanced=127.0.0.1:{port} port={port}"), "default_pool_size = 2");
    let mut client = weir.client();
    for aid in 1..=10_i64 {
        assert_eq!(node_of(&mut client, &format!("{ASKS}{aid}")), nodes.owner(aid), "{aid}");
    }
    assert_eq!(node_of(&mut client, "select p.node from places p, at_coordinator a right join places q on true"), 0);
    // One that leads to no node of theirs any more is no reason for others to wait.
    let port = balancer(nodes.0[..3].iter().map(Cluster::port).collect());
    let weir = nodes.weir_of(&format!("balanced=127.0.0.1:{port}"), "query_wait_timeout = 2\nserver_login_retry = 1");
    let of = |node: i32| (1..100).find(|aid| nodes.owner(*aid) == node).unwrap();
    let mut waiting = weir.raw();
    waiting.log_in();
    waiting.send(|out| write::query(out, format!("{ASKS}{}", of(3)).as_bytes()));
    assert_eq!(waiting.last_error(), "57014");
    assert!(weir.log().contains("the load balancer leads to other nodes"));
    let mut client = weir.client();
    assert_eq!(node_of(&mut client, &format!("{ASKS}{}", of(1))), 1);
}

/// A statement as a batch of its own.
fn batch(out: &mut Vec<u8>, text: &str) {
    parses(out, b"", text, &[0; 2]);
    runs(out, b"");
}

fn runs(out: &mut Vec<u8>, name: &[u8]) {
    write::bind_without_values(out, b"", name);
    out.extend_from_slice(b"D\0\0\0\x06P\0");
    write::execute(out, b"");
    write::sync(out);
}

type Step = (&'static str, fn(&mut Vec<u8>, &str));

fn query(out: &mut Vec<u8>, text: &str) {
    write::query(out, text.as_bytes());
}

fn again(out: &mut Vec<u8>, name: &str) {
    runs(out, name.as_bytes());
}

fn parses(out: &mut Vec<u8>, name: &[u8], text: &str, types: &[u8]) {
    write::parse(out, name, &[text.as_bytes(), b"\0", types].concat());
}

fn prepare(out: &mut Vec<u8>, text: &str) {
    parses(out, b"s", text, &[0; 2]);
    write::sync(out);
}

fn typed(out: &mut Vec<u8>, text: &str) {
    parses(out, b"", text, &[0, 1, 0, 0, 0, 23]);
    runs(out, b"");
}

fn prepare_typed(out: &mut Vec<u8>, text: &str) {
    parses(out, b"s", text, &[0, 1, 0, 0, 0, 23]);
    write::sync(out);
}

fn with_a_value(out: &mut Vec<u8>, text: &str) {
    parses(out, b"", text, &[0; 2]);
    out.extend_from_slice(b"B\0\0\0\x11\0\0\0\0\0\x01\0\0\0\x017\0\0");
    write::execute(out, b"");
    write::sync(out);
}

fn not_run(out: &mut Vec<u8>, text: &str) {
    parses(out, b"", text, &[0; 2]);
    write::bind_without_values(out, b"", b"");
    write::sync(out);
}

fn twice(out: &mut Vec<u8>, text: &str) {
    parses(out, b"", text, &[0; 2]);
    write::bind_without_values(out, b"", b"");
    write::execute(out, b"");
    write::execute(out, b"");
    write::sync(out);
}

const SCRIPTS: [&[Step]; 16] = [
    &[("begin", batch), ("", again), ("rollback", batch), ("", again)],
    &[("BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY;", batch), ("show transaction_isolation", batch), ("end", batch)],
    &[
        ("start transaction", batch),
        ("set local lock_timeout = '77s'", batch),
        ("show lock_timeout", batch),
        ("abort", batch),
    ],
    &[("begin", batch), ("commit", query), ("", again)],
    &[("begin", query), ("", again), ("commit", batch), ("", again)],
    &[
        ("begin", prepare),
        ("s", again),
        ("s", again),
        ("commit", batch),
        ("s", again),
        ("select 1", batch),
        ("end", batch),
    ],
    &[("begin", prepare), ("begin", prepare), ("s", again), ("select 1/0", batch), ("select 1", batch), ("end", batch)],
    &[("begin", typed), ("select 1", batch), ("commit", batch)],
    &[("begin", prepare_typed), ("s", again), ("select 1", batch), ("", again)],
    &[("begin", query), ("set local lock_timeout = '5S'", batch), ("show lock_timeout", batch), ("end", batch)],
    &[("begin", with_a_value), ("select 1", batch), ("nobody", again)],
    &[("begin", not_run), ("select 1", batch)],
    &[("begin", twice), ("select 1", batch), ("rollback", batch)],
    &[("begin read only", batch), ("update accounts set balance = 1 where aid = 3", batch), ("commit", batch)],
    &[("begin; select 1", batch), ("begin /* */", batch), ("commit and chain", batch), ("rollback", batch)],
    &[
        ("select 1", batch),
        ("begin", batch),
        ("prepare transaction 'a'", batch),
        ("savepoint a", batch),
        ("commit", batch),
    ],
];

/// What is answered without a node is what PostgreSQL answers, in batches too.
#[test]
fn a_batch_that_only_begins_is_answered_as_postgresql_answers_it() {
    let nodes = Nodes::start();
    let weir = nodes.weir("default_pool_size = 1");
    let mut straight = Raw(TcpStream::connect(("127.0.0.1", nodes.0[0].port())).unwrap());
    straight.log_in();
    for (pieces, script) in [false, true].into_iter().flat_map(|pieces| SCRIPTS.map(|script| (pieces, script))) {
        let mut through = weir.raw();
        through.log_in();
        for (text, step) in script {
            let [straight, through] = [&mut straight, &mut through].map(|raw| {
                let mut bytes = Vec::new();
                step(&mut bytes, text);
                let length = if pieces { 1 } else { bytes.len() };
                for piece in bytes.chunks(length) {
                    raw.send(|out| out.extend_from_slice(piece));
                }
                raw.read_until(BackendTag::ReadyForQuery).into_iter().map(told).collect::<Vec<_>>()
            });
            assert_eq!(through, straight, "{text} of {:?}", script.iter().map(|(text, _)| text).collect::<Vec<_>>());
        }
        straight.send(|out| write::query(out, b"deallocate all"));
        straight.read_until(BackendTag::ReadyForQuery);
    }
    // It goes to its owner with what has begun it.
    let mut client = weir.raw();
    client.log_in();
    for aid in 1..=8_i64 {
        for text in ["begin", "set local statement_timeout = 5432", &format!("{ASKS}{aid}"), "commit"] {
            client.send(|out| batch(out, text));
            let rows = client.read_until(BackendTag::ReadyForQuery);
            let row = rows.iter().find(|(tag, _)| *tag == BackendTag::DataRow as u8);
            if let Some((_, body)) = row {
                assert_eq!(body[6..], [b'0' + nodes.owner(aid) as u8], "{aid}");
            }
            assert_eq!(row.is_some(), text.starts_with(ASKS));
        }
    }
}

/// What is compared of a message: of errors and notices their SQLSTATE.
fn told((tag, body): (u8, Vec<u8>)) -> (char, Vec<u8>) {
    let is_report = [BackendTag::ErrorResponse as u8, BackendTag::NoticeResponse as u8].contains(&tag);
    let said = if is_report { ErrorFields::parse(&body).unwrap().code.to_vec() } else { body };
    (char::from(tag), said)
}
