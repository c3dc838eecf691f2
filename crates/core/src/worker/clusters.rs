//! What a cluster's catalogue says reaches whoever is here already.

use std::sync::Arc;

use crate::cluster::Known;
use crate::pool::limits::PoolLimits;
use crate::worker::{Process, Traffic};

impl Process {
    /// Nodes may be elsewhere from now on, or gone, and others may have come: servers of a pool whose node has moved are replaced as they become free.
    pub(super) fn learn_cluster(&mut self, database: &str, known: &Arc<Known>) {
        let Traffic { cx, pools, .. } = &mut self.service.traffic;
        cx.clusters.learn(database, Arc::clone(known));
        let mut changed = vec![false; pools.indexes().len()];
        for index in pools.indexes() {
            let pool = &mut pools[index];
            if pool.name.destination.node.is_none() || *pool.name.database != *database {
                continue;
            }
            changed[index as usize] = match cx.clusters.entry(&cx.settings, &pool.name) {
                Some(entry) if entry.endpoints == pool.database.endpoints => false,
                Some(entry) => !pool.renew(entry, &cx.settings),
                None => true,
            };
        }
        if let Some(steward) = &mut self.steward {
            steward.learn_cluster(cx.now, database, known);
            self.post_stewards_letters();
        }
        self.mark_servers(&changed);
        self.leave_lost_nodes();
    }

    /// Whoever waits for a server of a node that is none any more waits for one of the entry's.
    pub(super) fn leave_lost_nodes(&mut self) {
        let service = &mut self.service;
        for index in service.traffic.pools.indexes() {
            let Traffic { cx, pools, .. } = &mut service.traffic;
            let pool = &mut pools[index];
            if pool.name.destination.node.is_none() || !cx.clusters.endpoints(&cx.settings, &pool.name).is_empty() {
                continue;
            }
            let base = Arc::new(pool.name.at_entry());
            pool.limits = PoolLimits::of(&pool.name, &cx.settings);
            for waiting in pool.waiting.take_all() {
                if let Some(base) = service.traffic.pool_for(&base) {
                    service.traffic.joins(waiting.client, base);
                    service.queue_by_time(base, waiting.client, waiting.since);
                    // More of them, perhaps, than there are idle servers.
                    service.traffic.ask_behind(base);
                }
            }
        }
    }
}
