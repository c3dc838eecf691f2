//! SHOW NODES, SHOW ROUTES and EXPLAIN ROUTE: clusters, and where transactions go in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_cluster::route::{Class, Route, Said, Target};
use weir_cluster::shape::Shape;
use weir_cluster::statement::Recipe;
use weir_cluster::topology::{COORDINATOR, Node, TableName};
use weir_wire::write::ColumnType::{Int4, Int8, Text};

use crate::cluster::recipes::{Uses, schemas};
use crate::cluster::{Clusters, Known};
use crate::names::{Destination, PoolName, quoted};
use crate::pool::limits::PoolLimits;
use crate::settings::{self, Settings};

use super::report::{Answer, Cell, SearchPath};
use super::show::{Columns, host_and_port};

pub(super) const NODES: Columns = &[
    ("database", Text),
    ("node", Int4),
    ("class", Text),
    ("host", Text),
    ("port", Int4),
    ("answers_any", Text),
    ("shards", Int8),
    ("clients_waiting", Int4),
    ("servers", Int4),
    ("servers_active", Int4),
    ("servers_idle", Int4),
    ("transactions", Int8),
];
pub(super) const ROUTES: Columns = &[
    ("text", Text),
    ("class", Text),
    ("table", Text),
    ("key", Text),
    ("target", Text),
    ("why", Text),
    ("counts", Text),
    ("total", Int8),
];
pub(super) const EXPLAINED: Columns =
    &[("target", Text), ("host", Text), ("port", Int4), ("class", Text), ("table", Text), ("key", Text), ("why", Text)];

/// Rows of SHOW ROUTES: the shapes that gave most transactions their node.
const ROUTES_MAX: usize = 1_000;

/// Of each cluster a row for the entry's own servers, which are of no node by name, and one for each node.
pub(super) fn nodes(answer: &Answer, settings: &Settings, clusters: &Clusters) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    let with_pools = answer.nodes.keys().map(|(database, _)| database);
    let mut databases: Vec<_> = clusters.iter().map(|(database, _)| database).chain(with_pools).collect();
    databases.sort_unstable();
    databases.dedup();
    for database in databases {
        let Some(entry) = settings.database(database) else { continue };
        let (host, port) = host_and_port(&entry.endpoints);
        rows.push(node_row(answer, database, Destination::default(), [host, port.into(), Cell::Null, Cell::Null]));
        let Some(known) = clusters.get(database) else { continue };
        let fan_out = Destination { node: known.coordinator(), fan_out: true };
        if answer.nodes.contains_key(&(Arc::clone(database), fan_out)) {
            let of_entry = || {
                let (host, port) = host_and_port(&entry.endpoints);
                [host, port.into()]
            };
            let [host, port] = known.topology.node(COORDINATOR).map_or_else(of_entry, |node| at(Some(node)));
            rows.push(node_row(answer, database, fan_out, [host, port, Cell::Null, Cell::Null]));
        }
        for (group, node) in known.topology.nodes() {
            let shards = known.shards.get(&group).copied().unwrap_or_default();
            let answers_any = if node.answers_any { "yes" } else { "no" };
            let [host, port] = at(Some(node));
            rows.push(node_row(
                answer,
                database,
                Destination::at(Some(group.0)),
                [host, port, answers_any.into(), shards.into()],
            ));
        }
    }
    rows
}

fn node_row(answer: &Answer, database: &Arc<str>, destination: Destination, is: [Cell; 4]) -> Vec<Cell> {
    let report = answer.nodes.get(&(Arc::clone(database), destination)).cloned().unwrap_or_default();
    let node = destination.node.map_or(Cell::Null, |node| Cell::Int(node.into()));
    let class = if destination.fan_out { class_word(Class::FanOut).into() } else { Cell::Null };
    let mut row = vec![(&**database).into(), node, class];
    row.extend(is);
    row.extend([
        report.clients_waiting.into(),
        report.servers.into(),
        report.servers_active.into(),
        (report.servers_idle + report.servers_to_check).into(),
        report.counters.transactions.into(),
    ]);
    row
}

fn at(node: Option<&Node>) -> [Cell; 2] {
    node.map_or([Cell::Null, Cell::Null], |node| [node.host.as_str().into(), u32::from(node.port).into()])
}

/// Those that decided most often first.
pub(super) fn routes(answer: &Answer) -> Vec<Vec<Cell>> {
    let mut shapes: Vec<&Uses> = answer.routes.values().collect();
    shapes.sort_by_key(|uses| std::cmp::Reverse(uses.total()));
    let row = |uses: &&Uses| {
        let (_, last) = uses.last.as_ref()?;
        let text = if uses.text.is_empty() { Cell::Null } else { (&*uses.text).into() };
        let mut row = vec![text, class_word(last.class).into()];
        row.extend(table_and_key(last));
        row.extend([target_word(last.target).into(), last.why.to_string().into()]);
        row.extend([counts(&uses.counts).into(), uses.total().into()]);
        Some(row)
    };
    shapes.iter().filter_map(row).take(ROUTES_MAX).collect()
}

/// `0: 12, 1: 40`
fn counts(counts: &BTreeMap<Option<i32>, u64>) -> String {
    let one = |(node, count): (&Option<i32>, &u64)| match node {
        Some(node) => format!("{node}: {count}"),
        None => format!("entry: {count}"),
    };
    counts.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn table_and_key(route: &Route) -> [Cell; 2] {
    let table = |TableName { schema, name }: &TableName| format!("{schema}.{name}").into();
    [route.table.as_ref().map_or(Cell::Null, table), route.key.as_deref().map_or(Cell::Null, Cell::from)]
}

fn target_word(target: Target) -> String {
    match target {
        Target::Owner(group) => group.0.to_string(),
        Target::Any => "any".to_owned(),
        Target::Coordinator => "coordinator".to_owned(),
    }
}

fn class_word(class: Class) -> &'static str {
    match class {
        Class::Begins => "begins",
        Class::Follows => "follows",
        Class::Ends => "ends",
        Class::Sets => "sets",
        Class::Shows => "shows",
        Class::Single => "single",
        Class::FanOut => "fan-out",
        Class::Other => "other",
    }
}

/// Where a transaction goes that begins with this query, or why it goes nowhere.
pub(super) fn explain(
    asked: &str,
    paths: &BTreeMap<Arc<str>, SearchPath>,
    settings: &Settings,
    clusters: &Clusters,
) -> Result<Vec<Cell>, String> {
    let (database, query) = database_and_query(asked, settings, clusters)?;
    let unread = || format!("the catalogue of the cluster of database {database} has not been read yet");
    let known = clusters.get(&database).ok_or_else(unread)?;
    let entry = settings.database(&database).ok_or_else(unread)?;
    let (user, path) = paths.get(&*database).map_or(("", "public"), |known| (&*known.user, &*known.path));
    let limits = PoolLimits::of(&PoolName::new(database.as_str().into(), user.into()), settings);
    let chosen = limits.route.ok_or_else(|| format!("transactions of database {database} are not routed"))?;
    let mut route = routed(query, &schemas(path, user).unwrap_or_default(), known)?;
    route.target = match (route.target, chosen) {
        (Target::Coordinator, _) | (_, settings::Route::Coordinator) => Target::Coordinator,
        (_, settings::Route::Any) => Target::Any,
        (target, settings::Route::Owner) => target,
    };
    let [host, port] = match route.target {
        Target::Owner(group) => at(known.topology.node(group)),
        Target::Any => at(None),
        Target::Coordinator if known.coordinator().is_some() => at(known.topology.node(COORDINATOR)),
        Target::Coordinator => {
            let (host, port) = host_and_port(&entry.endpoints);
            [host, port.into()]
        }
    };
    let mut row = vec![target_word(route.target).into(), host, port, class_word(route.class).into()];
    row.extend(table_and_key(&route));
    row.push(route.why.to_string().into());
    Ok(row)
}

/// As a session has it that has set nothing.
fn routed(query: &str, path: &[String], known: &Known) -> Result<Route, String> {
    let shape = Shape::of(query, true).ok_or("the query is too long, or what it says depends on settings")?;
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    Ok(Recipe::of(query, &shape).route(&known.topology, &path, &Said { text: query, shape: &shape }))
}

/// The first word is a database where a cluster has that name. Where one cluster is known, it need not be named.
fn database_and_query<'a>(
    asked: &'a str,
    settings: &Settings,
    clusters: &Clusters,
) -> Result<(String, &'a str), String> {
    // `*` stands for any name, also for a query's first word.
    let is_cluster = |name: &str| {
        clusters.get(name).is_some() || settings.databases.get(name).is_some_and(|entry| entry.cluster.is_some())
    };
    if let Some((name, query)) = first_word(asked).filter(|(name, _)| is_cluster(name)) {
        return Ok((name, query));
    }
    let mut known = clusters.iter();
    match (known.next(), known.next()) {
        (Some((name, _)), None) => Ok((name.to_string(), asked)),
        (Some(_), Some(_)) => Err("there are several clusters: EXPLAIN ROUTE <db> <query>".to_owned()),
        (None, _) => Err("no cluster is known".to_owned()),
    }
}

/// And what follows it, if anything does.
fn first_word(asked: &str) -> Option<(String, &str)> {
    let (word, rest) = match asked.strip_prefix('"') {
        Some(inner) => quoted(inner, '"')?,
        None => {
            let (word, rest) = asked.split_at(asked.find(|c: char| c.is_ascii_whitespace())?);
            (word.to_owned(), rest)
        }
    };
    let query = rest.trim_start();
    (query.len() < rest.len() && !query.is_empty()).then_some((word, query))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::report::PoolReport;
    use crate::settings::{ClusterKind, Database};
    use crate::stats::Counters;
    use crate::time::Time;
    use weir_cluster::route::Why;
    use weir_cluster::topology::{Group, Placement, Topology};

    /// Tables `public.accounts` of both nodes, and `alice.orders` of node 1.
    fn known() -> Known {
        let node = |port| Node { host: "h".to_owned(), port, answers_any: port != 2 };
        let placement = |schema: &str, name: &str, hashes: Option<(i32, i32)>, group| Placement {
            table: TableName { schema: schema.to_owned(), name: name.to_owned() },
            method: if hashes.is_some() { 'h' } else { 'n' },
            replication: 's',
            colocation: 1,
            column: hashes.map(|_| ("id".to_owned(), "int4".to_owned(), None)),
            hashes,
            group: Group(group),
        };
        let placements = vec![
            placement("public", "accounts", Some((i32::MIN, -1)), 0),
            placement("public", "accounts", Some((0, i32::MAX)), 1),
            placement("alice", "orders", None, 1),
        ];
        let nodes = BTreeMap::from([(Group(0), node(1)), (Group(1), node(2))]);
        Known::new("".into(), Topology::new(nodes, placements, Vec::new()))
    }

    fn of(databases: &[&str]) -> (Settings, Clusters) {
        let (mut settings, mut clusters) = (Settings::default(), Clusters::default());
        for name in databases {
            let entry = Database { cluster: Some(ClusterKind::Citus), ..Database::at(Vec::new()) };
            settings.databases.insert((*name).into(), Arc::new(entry));
            clusters.learn(name, Arc::new(known()));
        }
        settings.pool_mode = settings::PoolMode::Transaction;
        (settings, clusters)
    }

    fn texts(row: &[Cell]) -> Vec<String> {
        let text = |cell: &Cell| match cell {
            Cell::Text(text) => text.clone(),
            Cell::Int(number) => number.to_string(),
            Cell::Null => "-".to_owned(),
        };
        row.iter().map(text).collect()
    }

    fn explained(asked: &str, paths: &BTreeMap<Arc<str>, SearchPath>, databases: &[&str]) -> Result<String, String> {
        let (settings, clusters) = of(databases);
        explain(asked, paths, &settings, &clusters).map(|row| texts(&row).join(" "))
    }

    #[test]
    fn a_query_is_explained_by_the_cluster_that_it_is_for() {
        let none = BTreeMap::new();
        let of_key = "select * from accounts where id = 1;";
        // hashint4(1) is below zero (src/backend/access/hash/hashfunc.c).
        let owned = Ok("0 h 1 single public.accounts 1 has a key".to_owned());
        assert_eq!(explained(of_key, &none, &["app"]), owned);
        assert_eq!(explained(&format!("app  {of_key}"), &none, &["app", "other"]), owned);
        assert_eq!(explained(&format!("\"a p\"\n{of_key}"), &none, &["a p", "other"]), owned);
        assert!(explained(of_key, &none, &["app", "other"]).is_err_and(|text| text.contains("several clusters")));
        assert_eq!(explained(of_key, &none, &[]), Err("no cluster is known".to_owned()));
        assert_eq!(explained("select 1", &none, &["app"]), Ok("any - - single - - reads no table".to_owned()));
        let all = "coordinator h 1 fan-out public.accounts - has no key";
        assert_eq!(explained("select * from accounts", &none, &["app"]), Ok(all.to_owned()));
        let ddl = "coordinator h 1 other - - is DDL";
        assert_eq!(explained("drop table accounts", &none, &["app"]), Ok(ddl.to_owned()));
    }

    #[test]
    fn names_are_looked_for_where_the_entrys_users_look() {
        let path = SearchPath { user: "alice".into(), path: "\"$user\", public".into() };
        let paths = BTreeMap::from([("app".into(), path)]);
        let (none, explained) = (BTreeMap::new(), |paths| explained("select * from orders", paths, &["app"]));
        assert!(explained(&none).unwrap().ends_with("names no table of the cluster"));
        assert!(explained(&paths).unwrap().contains("alice.orders"), "{:?}", explained(&paths));
    }

    #[test]
    fn what_is_not_routed_is_not_explained() {
        let (mut settings, clusters) = of(&["app"]);
        let explained = |settings: &Settings, clusters| {
            explain("app select * from accounts where id = 1", &BTreeMap::new(), settings, clusters)
                .map(|row| texts(&row)[0].clone())
        };
        let none = Clusters::default();
        assert!(explained(&settings, &none).unwrap_err().contains("has not been read yet"));
        settings.pool_mode = settings::PoolMode::Session;
        assert!(explained(&settings, &clusters).unwrap_err().contains("are not routed"));
        let entry = Database { route: Some(settings::Route::Any), ..Database::clone(&settings.databases["app"]) };
        settings.databases.insert("app".into(), Arc::new(entry));
        settings.pool_mode = settings::PoolMode::Transaction;
        assert_eq!(explained(&settings, &clusters), Ok("any".to_owned()));
    }

    #[test]
    fn nodes_have_what_their_pools_have() {
        let (settings, clusters) = of(&["app"]);
        let counters = Counters { transactions: 5, ..Counters::default() };
        let report = PoolReport {
            servers: 3,
            servers_active: 1,
            servers_idle: 1,
            servers_to_check: 1,
            counters,
            ..PoolReport::default()
        };
        let mut answer = Answer::default();
        for worker in 0..2 {
            let nodes = BTreeMap::from([
                (("app".into(), Destination::at(Some(worker))), report.clone()),
                (("app".into(), Destination { node: Some(0), fan_out: true }), report.clone()),
                (("app".into(), Destination::default()), report.clone()),
            ]);
            answer.merge(Answer { nodes, ..Answer::default() });
        }
        let rows = nodes(&answer, &settings, &clusters);
        let rows: Vec<_> = rows.iter().map(|row| texts(row).join(" ")).collect();
        assert_eq!(
            rows,
            [
                "app - - - 0 - - 0 6 2 4 10",
                "app 0 fan-out h 1 - - 0 6 2 4 10",
                "app 0 - h 1 yes 1 0 3 1 2 5",
                "app 1 - h 2 no 2 0 3 1 2 5",
            ]
        );
        assert!(nodes(&answer, &Settings::default(), &clusters).is_empty());
    }

    #[test]
    fn shapes_of_all_workers_are_one_row_and_the_busiest_is_first() {
        let uses = |text: &str, node, count, at, key: &str| {
            let (class, why) = (Class::Single, Why::Key);
            let route = Route { target: Target::Owner(Group(1)), class, why, table: None, key: Some(key.to_owned()) };
            Uses { text: text.into(), counts: BTreeMap::from([(node, count)]), last: Some((Time(at), route)) }
        };
        let mut answer = Answer::default();
        let shape = |number: usize| Some(Arc::from(number.to_string().as_bytes()));
        for used in
            [uses("a", None, 1, 5, "later"), uses("a", Some(1), 3, 4, "earlier"), uses("a", Some(1), 4, 1, "first")]
        {
            answer.merge(Answer { routes: BTreeMap::from([(shape(0), used)]), ..Answer::default() });
        }
        let many = (1..2 * ROUTES_MAX).map(|number| (shape(number), uses("b", Some(0), 1, 1, "k")));
        answer.merge(Answer { routes: many.collect(), ..Answer::default() });
        answer.merge(Answer { routes: BTreeMap::from([(None, uses("", Some(0), 2, 1, "-"))]), ..Answer::default() });
        let rows = routes(&answer);
        assert_eq!(rows.len(), ROUTES_MAX);
        assert_eq!(texts(&rows[0]).join(" "), "a single - later 1 has a key entry: 1, 1: 7 8");
        assert_eq!(texts(&rows[1]).join(" "), "- single - - 1 has a key 0: 2 2");
        assert_eq!(rows[0].len(), ROUTES.len());
    }
}
