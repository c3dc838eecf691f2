//! The publications whose experiments are repeated here, and on what those of several experiments measured.

use crate::experiment::{Published, Source};

/// Microsoft, 2026: peaks of clusters of four and eight nodes, of queries to one shard and to all.
pub const MICROSOFT_2026: Source = Source {
    authors: "Ebru Aydin, Microsoft",
    title: "Connection Scaling in Elastic Clusters",
    year: 2026,
    url: "https://techcommunity.microsoft.com/blog/adforpostgresql/connection-scaling-in-elastic-clusters/4509624",
};

/// A line of [`MICROSOFT_2026`].
pub const fn microsoft_2026(name: &'static str, key: &'static str, points: &'static [(f64, f64)]) -> Published {
    let setting = "Azure elastic cluster, pgbench on a separate machine, 600 s, scale 3000; only the peak is published";
    Published { name, setting, key, points }
}

/// Freund, 2020: what idle connections, delays, max_connections and catalogue caches cost.
pub const FREUND_2020: Source = Source {
    authors: "Andres Freund, Microsoft",
    title: "Analyzing the Limits of Connection Scalability in Postgres",
    year: 2020,
    url: "https://www.citusdata.com/blog/2020/10/08/analyzing-connection-scalability/",
};

/// A line of [`FREUND_2020`], measured on its large machine.
pub const fn freund_2020(name: &'static str, key: &'static str, points: &'static [(f64, f64)]) -> Published {
    let setting = "2 Xeon Gold 5215 (20 cores, 40 threads), 192 GiB, Linux 5.8";
    Published { name, setting, key, points }
}

/// Microsoft, 2022: a connection per transaction.
pub const MICROSOFT_2022: Source = Source {
    authors: "Microsoft",
    title: "Leverage built-in PgBouncer in Flexible Server",
    year: 2022,
    url: "https://techcommunity.microsoft.com/t5/azure-database-for-postgresql/leverage-built-in-pgbouncer-in-flexible-server/ba-p/3667535",
};

/// ClickHouse, 2026: one PgBouncer against sixteen.
pub const CLICKHOUSE_2026: Source = Source {
    authors: "Kaushik Iska, ClickHouse",
    title: "How we scale PgBouncer in ClickHouse Managed Postgres",
    year: 2026,
    url: "https://clickhouse.com/blog/pgbouncer-clickhouse-managed-postgres",
};

/// Cybertec, 2014: max_connections, and sleeping connections beside working ones.
pub const CYBERTEC_2014: Source = Source {
    authors: "Cybertec",
    title: "max_connections - Performance impacts",
    year: 2014,
    url: "https://www.cybertec-postgresql.com/en/max_connections-performance-impacts/",
};
