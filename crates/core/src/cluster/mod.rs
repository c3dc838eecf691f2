//! What is known of the clusters that databases are: one value for all workers, replaced as a whole where a catalogue says otherwise.
//!
//! Who asks is `worker/surveying.rs`, what is asked is `survey.rs`. What is out of date is slower, never wrong: any node answers any query.

pub(crate) mod recipes;
pub(crate) mod survey;

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_cluster::topology::{COORDINATOR, Group, Topology};

use crate::names::PoolName;
use crate::peer::Endpoint;
use crate::settings::{Database, Settings};
use crate::time::Time;

/// By these a node knows sessions of other nodes, and lets them past its limits (Citus 13): no client's may be called so.
const INTERNAL: [&str; 4] =
    ["citus_internal gpid=", "citus_rebalancer gpid=", "citus_run_command gpid=", "citus_shard_"];

/// Whether a parameter's value would have a node take the session for another node's.
pub(crate) fn poses_as_node(name: &str, value: &[u8]) -> bool {
    name.eq_ignore_ascii_case("application_name") && INTERNAL.iter().any(|prefix| value.starts_with(prefix.as_bytes()))
}

/// A cluster as its catalogue tells it.
#[derive(Debug)]
pub(crate) struct Known {
    /// Of the catalogue that it was read from.
    pub(crate) fingerprint: Box<str>,
    pub(crate) topology: Topology,
    /// How many each node alone has: counted once, since there may be very many.
    pub(crate) shards: BTreeMap<Group, u64>,
    endpoints: BTreeMap<i32, Vec<Endpoint>>,
}

impl Known {
    pub(crate) fn new(fingerprint: Box<str>, topology: Topology) -> Self {
        let at = |host: &str, port| vec![Endpoint::Tcp { host: host.into(), port }];
        let endpoints = topology.nodes().map(|(group, node)| (group.0, at(&node.host, node.port))).collect();
        Self { fingerprint, shards: topology.shards(), topology, endpoints }
    }

    /// Of the nodes that answer any query.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = i32> {
        self.topology.nodes().filter(|(_, node)| node.answers_any).map(|(group, _)| group.0)
    }

    /// The pools at the coordinator. Where that is no node of the cluster's own, the entry leads to it.
    pub(crate) fn coordinator(&self) -> Option<i32> {
        self.topology.node(COORDINATOR).map(|_| COORDINATOR.0)
    }
}

/// By their names in `[databases]`.
#[derive(Debug, Default, Clone)]
pub(crate) struct Clusters {
    known: BTreeMap<Arc<str>, Arc<Known>>,
    /// When somebody here last did what may make tables: what is known was read before that.
    changed_at: BTreeMap<Arc<str>, Time>,
}

impl Clusters {
    pub(crate) fn get(&self, database: &str) -> Option<&Arc<Known>> {
        self.known.get(database)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Known>)> {
        self.known.iter()
    }

    pub(crate) fn learn(&mut self, database: &str, known: Arc<Known>) {
        self.known.insert(database.into(), known);
    }

    /// Tables may be others from now on: until that is read all is the coordinator's.
    pub(crate) fn may_change(&mut self, database: &Arc<str>, now: Time) {
        self.changed_at.insert(Arc::clone(database), now);
    }

    pub(crate) fn is_in_doubt(&self, database: &str) -> bool {
        self.changed_at.contains_key(database)
    }

    /// The catalogue was read, from then on.
    pub(crate) fn read_since(&mut self, database: &str, began: Time) {
        self.changed_at.retain(|name, changed_at| **name != *database || *changed_at >= began);
    }

    /// Those of databases that are none any more are forgotten.
    pub(crate) fn retain(&mut self, settings: &Settings) {
        let is_one = |name: &str| settings.database(name).is_some_and(|database| database.cluster.is_some());
        self.known.retain(|name, _| is_one(name));
        self.changed_at.retain(|name, _| is_one(name));
    }

    /// Where a pool's servers are made. None: its database, or its node, is none any more.
    pub(crate) fn endpoints<'a>(&'a self, settings: &'a Settings, pool: &PoolName) -> &'a [Endpoint] {
        let Some(database) = settings.database(&pool.database) else { return &[] };
        let Some(node) = pool.destination.node else { return &database.endpoints };
        let Some(own) = self.get(&pool.database).and_then(|known| known.endpoints.get(&node)) else { return &[] };
        match &database.balanced {
            Some(_) if node == COORDINATOR.0 => &database.endpoints,
            Some(balanced) => std::slice::from_ref(balanced),
            None => own,
        }
    }

    /// What the settings say of a pool's database, with the endpoints of its node.
    pub(crate) fn entry(&self, settings: &Settings, pool: &PoolName) -> Option<Arc<Database>> {
        let database = settings.database(&pool.database)?;
        if pool.destination.node.is_none() {
            return Some(Arc::clone(database));
        }
        let endpoints = self.endpoints(settings, pool).to_vec();
        (!endpoints.is_empty() && database.cluster.is_some())
            .then(|| Arc::new(Database { endpoints, ..Database::clone(database) }))
    }
}
