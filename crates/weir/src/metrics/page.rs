//! The page of metrics: the console's tables in Prometheus' text format (version 0.0.4).
//!
//! What PgBouncer shows too has the names that prometheus-community/pgbouncer_exporter 0.12 gives it, so that dashboards and alerts go on;
//! what is Weir's own begins with `weir_`.

use std::fmt::Write;

use super::Health;
use super::console::{Console, Table};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A column of a table, as a metric.
struct Metric {
    column: &'static str,
    name: &'static str,
    kind: Kind,
    /// What a value is multiplied by: metrics are in seconds and bytes.
    factor: f64,
    help: &'static str,
}

const MICROSECONDS: f64 = 1e-6;

const fn gauge(column: &'static str, name: &'static str, help: &'static str) -> Metric {
    Metric { column, name, kind: Kind::Gauge, factor: 1.0, help }
}

const fn counter(column: &'static str, name: &'static str, help: &'static str) -> Metric {
    Metric { column, name, kind: Kind::Counter, factor: 1.0, help }
}

const fn of(factor: f64, metric: Metric) -> Metric {
    Metric { factor, ..metric }
}

/// A table with a row for each combination of its labels.
struct Shown {
    show: &'static str,
    labels: &'static [&'static str],
    metrics: &'static [Metric],
}

const TABLES: &[Shown] = &[
    Shown {
        show: "DATABASES",
        labels: &["name", "host", "port", "database", "force_user", "pool_mode"],
        metrics: &[
            gauge("pool_size", "pgbouncer_databases_pool_size", "Servers that a pool may have."),
            gauge("reserve_pool_size", "pgbouncer_databases_reserve_pool", "Servers that a pool may have beyond that."),
            gauge("max_connections", "pgbouncer_databases_max_connections", "Servers that all pools may have; 0: any."),
            gauge("current_connections", "pgbouncer_databases_current_connections", "Servers that there are."),
            gauge(
                "max_client_connections",
                "pgbouncer_databases_max_client_connections",
                "Clients that may come in; 0: any.",
            ),
            gauge(
                "current_client_connections",
                "pgbouncer_databases_current_client_connections",
                "Clients that are in.",
            ),
            gauge("paused", "pgbouncer_databases_paused", "1 if it is paused."),
            gauge("disabled", "pgbouncer_databases_disabled", "1 if it is disabled."),
        ],
    },
    Shown {
        show: "POOLS",
        labels: &["database", "user"],
        metrics: &[
            gauge("cl_active", "pgbouncer_pools_client_active_connections", "Clients that do not wait for a server."),
            gauge("cl_waiting", "pgbouncer_pools_client_waiting_connections", "Clients that wait for a server."),
            gauge(
                "cl_active_cancel_req",
                "pgbouncer_pools_client_active_cancel_connections",
                "Cancel requests that are on their way to a server.",
            ),
            gauge(
                "cl_waiting_cancel_req",
                "pgbouncer_pools_client_waiting_cancel_connections",
                "Cancel requests that wait for a connection.",
            ),
            gauge("sv_active", "pgbouncer_pools_server_active_connections", "Servers that work for a client."),
            gauge(
                "sv_active_cancel",
                "pgbouncer_pools_server_active_cancel_connections",
                "Servers that a cancel request is on its way to.",
            ),
            gauge(
                "sv_being_canceled",
                "pgbouncer_pools_server_being_canceled_connections",
                "Servers that would be idle, but for a cancel request on its way.",
            ),
            gauge("sv_idle", "pgbouncer_pools_server_idle_connections", "Servers that wait for a client."),
            gauge("sv_used", "pgbouncer_pools_server_used_connections", "Servers that are to be checked first."),
            gauge(
                "sv_tested",
                "pgbouncer_pools_server_testing_connections",
                "Servers that are being cleaned or checked.",
            ),
            gauge("sv_login", "pgbouncer_pools_server_login_connections", "Servers that are logging in."),
        ],
    },
    Shown {
        show: "STATS",
        labels: &["database"],
        metrics: &[
            counter("total_query_count", "pgbouncer_stats_totals_queries_pooled_total", "Queries."),
            of(
                MICROSECONDS,
                counter(
                    "total_query_time",
                    "pgbouncer_stats_totals_queries_duration_seconds_total",
                    "For how long servers had a query to carry out.",
                ),
            ),
            counter("total_xact_count", "pgbouncer_stats_totals_sql_transactions_pooled_total", "Transactions."),
            of(
                MICROSECONDS,
                counter(
                    "total_xact_time",
                    "pgbouncer_stats_totals_server_in_transaction_seconds_total",
                    "For how long servers were in a transaction.",
                ),
            ),
            of(
                MICROSECONDS,
                counter(
                    "total_wait_time",
                    "pgbouncer_stats_totals_client_wait_seconds_total",
                    "For how long clients have waited for a server.",
                ),
            ),
            counter("total_received", "pgbouncer_stats_totals_received_bytes_total", "Bytes that came from clients."),
            counter("total_sent", "pgbouncer_stats_totals_sent_bytes_total", "Bytes that went to clients."),
            counter(
                "total_server_assignment_count",
                "pgbouncer_stats_totals_server_assignments_total",
                "How often a client was given a server.",
            ),
            counter(
                "total_client_parse_count",
                "pgbouncer_stats_totals_client_parses_total",
                "Statements with a name that clients have prepared.",
            ),
            counter(
                "total_server_parse_count",
                "pgbouncer_stats_totals_server_parses_total",
                "Statements that were prepared on servers for that.",
            ),
            counter("total_bind_count", "pgbouncer_stats_totals_binds_total", "Statements that were bound."),
        ],
    },
    Shown {
        show: "LOGINS",
        labels: &["database", "user"],
        metrics: &[
            counter("client_logins", "weir_client_logins_total", "Clients that have logged in."),
            counter("server_logins", "weir_server_logins_total", "Servers that have been logged in to."),
            counter(
                "server_logins_failed",
                "weir_server_logins_failed_total",
                "Connections to servers that could not be made, or logins to them that failed.",
            ),
        ],
    },
    Shown {
        show: "ERRORS",
        labels: &["source", "sqlstate"],
        metrics: &[counter("count", "weir_errors_total", "Errors that clients were told, PostgreSQL's and Weir's.")],
    },
    Shown {
        show: "WORKERS",
        labels: &["worker"],
        metrics: &[
            gauge("clients", "weir_worker_clients", "Clients on this worker."),
            gauge("servers", "weir_worker_servers", "Servers on this worker."),
            gauge("servers_idle", "weir_worker_servers_idle", "Of these, those that wait for a client."),
            of(
                1e-3,
                gauge("busy_permille", "weir_worker_busy_ratio", "Which part of its time it had work lately, 0 to 1."),
            ),
            counter(
                "servers_handed_over",
                "weir_worker_servers_handed_over_total",
                "Servers that went to another worker.",
            ),
            counter("messages_sent", "weir_worker_messages_total", "Messages to other workers."),
        ],
    },
];

/// Of SHOW LISTS, where each row is a metric.
const LISTS: &[(&str, &str, &str)] = &[
    ("databases", "pgbouncer_databases", "Databases, with the console's."),
    ("users", "pgbouncer_users", "Users that the files name."),
    ("pools", "pgbouncer_pools", "Pools."),
    ("free_clients", "pgbouncer_free_clients", "Places that are kept for the next clients."),
    ("used_clients", "pgbouncer_used_clients", "Clients that are in."),
    ("login_clients", "pgbouncer_login_clients", "Clients that are logging in."),
    ("free_servers", "pgbouncer_free_servers", "Places that are kept for the next servers."),
    ("used_servers", "pgbouncer_used_servers", "Servers."),
    ("dns_names", "pgbouncer_cached_dns_names", "Not counted: 0."),
    ("dns_zones", "pgbouncer_cached_dns_zones", "There are none: 0."),
    ("dns_queries", "pgbouncer_in_flight_dns_queries", "Not counted: 0."),
];

/// Of SHOW CONFIG.
const CONFIG: &[(&str, &str, &str)] = &[
    ("max_client_conn", "pgbouncer_config_max_client_connections", "The setting max_client_conn."),
    ("max_user_connections", "pgbouncer_config_max_user_connections", "The setting max_user_connections; 0: any."),
];

/// Of SHOW HISTOGRAMS, by its column `time`.
const HISTOGRAMS: &[(&str, &str, &str)] = &[
    ("query", "weir_query_duration_seconds", "How long queries took, from the client's request to its answer."),
    ("transaction", "weir_transaction_duration_seconds", "How long transactions took."),
    ("wait", "weir_client_wait_duration_seconds", "How long clients waited to be given a server."),
];

/// How the columns of SHOW STATS begin that count how often a server came to stay with its client.
const PINS: &str = "total_pins_";
const PIN_KINDS: [&str; 7] =
    ["parameters", "temporary_objects", "advisory_locks", "listen", "cursors", "prepare", "for_the_session"];

/// Asks the console for all of it. Where that does not answer, or would not, it is that which is told.
pub fn page(console: &mut Console, health: &Health) -> String {
    let silent = health.silent_workers();
    let shown = if silent == 0 { shown(console) } else { Err("a worker hangs".to_owned()) };
    let is_up = f64::from(u8::from(shown.is_ok()));
    let why = |reason: String| Page(format!("# the console does not answer: {}\n", reason.replace('\n', " ")));
    let mut page = shown.unwrap_or_else(why);
    page.one("pgbouncer_up", Kind::Gauge, "Whether the console has answered.", &[], is_up);
    let draining = f64::from(u8::from(health.is_draining()));
    page.one("weir_draining", Kind::Gauge, "1 while a shutdown waits and new clients are turned away.", &[], draining);
    let help = "Workers that have not answered for a while.";
    page.one("weir_workers_silent", Kind::Gauge, help, &[], silent as f64);
    page.0
}

fn shown(console: &mut Console) -> Result<Page, String> {
    let mut page = Page::default();
    let version = console.show("VERSION")?;
    for version in version.column("version").into_iter().flatten() {
        page.one(
            "pgbouncer_version_info",
            Kind::Gauge,
            "The version, as SHOW VERSION has it.",
            &[("version", version)],
            1.0,
        );
    }
    for shown in TABLES {
        let table = console.show(shown.show)?;
        page.table(shown, &table);
        match shown.show {
            "POOLS" => page.longest_waits(&table),
            "STATS" => page.pins(&table),
            _ => {}
        }
    }
    page.histograms(&console.show("HISTOGRAMS")?);
    page.named(&console.show("LISTS")?, ("list", "items"), LISTS);
    page.named(&console.show("CONFIG")?, ("key", "value"), CONFIG);
    Ok(page)
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (place, (label, text)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(text));
        }
        let behind = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{behind} {value}");
    }

    fn one(&mut self, name: &str, kind: Kind, help: &str, labels: &[(&str, &str)], value: f64) {
        self.head(name, kind, help);
        self.sample(name, labels, value);
    }

    /// A metric of each column, with a sample of each row.
    fn table(&mut self, shown: &Shown, table: &Table) {
        for Metric { column, name, kind, factor, help } in shown.metrics {
            let samples = table.column(column).map(|values| values.map(|value| number(value) * factor));
            self.rows(name, *kind, help, &labels(table, shown.labels), samples);
        }
    }

    fn rows(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        labels: &[Vec<(&str, &str)>],
        values: Option<impl Iterator<Item = f64>>,
    ) {
        let Some(values) = values else { return };
        self.head(name, kind, help);
        for (labels, value) in labels.iter().zip(values) {
            self.sample(name, labels, value);
        }
    }

    /// Seconds and what is beyond them stand in two columns.
    fn longest_waits(&mut self, pools: &Table) {
        let whole = pools.column("maxwait").into_iter().flatten();
        let beyond = pools.column("maxwait_us").into_iter().flatten();
        let waits = whole.zip(beyond).map(|(whole, beyond)| number(whole) + number(beyond) * MICROSECONDS);
        let help = "For how long the client waits that has waited longest.";
        let labels = labels(pools, &["database", "user"]);
        self.rows("pgbouncer_pools_client_maxwait_seconds", Kind::Gauge, help, &labels, Some(waits));
    }

    fn pins(&mut self, stats: &Table) {
        let name = "weir_pins_total";
        self.head(
            name,
            Kind::Counter,
            "How often a server came to stay with its client, by what that had left in its session.",
        );
        for kind in PIN_KINDS {
            let column = format!("{PINS}{kind}");
            let counts = stats.column(&column).into_iter().flatten();
            for (database, count) in stats.column("database").into_iter().flatten().zip(counts) {
                self.sample(name, &[("database", database), ("state", kind)], number(count));
            }
        }
    }

    /// Each row is one of a database, a user and a time; `le_N` counts what took no longer than N microseconds.
    fn histograms(&mut self, table: &Table) {
        let of = |column: &str| table.column(column).into_iter().flatten().map(number).collect::<Vec<_>>();
        let bounds = table.columns().filter_map(|column| Some((column.strip_prefix("le_")?, of(column))));
        let bounds = bounds.map(|(bound, counts)| ((number(bound) * MICROSECONDS).to_string(), counts));
        let (mut bounds, counts, sums) = (bounds.collect::<Vec<_>>(), of("count"), of("sum_us"));
        bounds.push(("+Inf".to_owned(), counts.clone()));
        let labels = labels(table, &["database", "user", "time"]);
        for (time, name, help) in HISTOGRAMS {
            self.head(name, Kind::Histogram, help);
            let [bucket, sum, count] = ["bucket", "sum", "count"].map(|part| format!("{name}_{part}"));
            for (place, labels) in labels.iter().enumerate().filter(|(_, labels)| labels[2].1 == *time) {
                let labels = &labels[..2];
                for (bound, counts) in &bounds {
                    self.sample(&bucket, &[labels, &[("le", bound)]].concat(), counts[place]);
                }
                self.sample(&sum, labels, sums[place] * MICROSECONDS);
                self.sample(&count, labels, counts[place]);
            }
        }
    }

    /// Rows that each have a name.
    fn named(&mut self, table: &Table, (key, value): (&str, &str), metrics: &[(&str, &str, &str)]) {
        let keys: Vec<_> = table.column(key).into_iter().flatten().collect();
        let values: Vec<_> = table.column(value).into_iter().flatten().collect();
        for (row, name, help) in metrics {
            if let Some(value) = keys.iter().position(|key| key == row).and_then(|place| values.get(place)) {
                self.one(name, Kind::Gauge, help, &[], number(value));
            }
        }
    }
}

/// Each row's labels.
fn labels<'a>(table: &'a Table, names: &[&'a str]) -> Vec<Vec<(&'a str, &'a str)>> {
    let mut rows: Vec<Vec<(&str, &str)>> = Vec::new();
    for name in names {
        for (place, text) in table.column(name).into_iter().flatten().enumerate() {
            if rows.len() <= place {
                rows.push(Vec::new());
            }
            rows[place].push((name, text));
        }
    }
    rows
}

/// The console's numbers are whole and below 2^53 for centuries.
fn number(text: &str) -> f64 {
    text.parse().unwrap_or_default()
}

/// A label's value: names of databases and users may be anything.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where a worker hangs, so that its console would not answer, or has ended.
    #[test]
    fn where_the_console_does_not_answer_that_is_told() {
        let health = Health::default();
        for silent in [0.0, 1.0] {
            let page = page(&mut Console::new(crate::driver::Commander::default()), &health);
            assert!(page.starts_with("# the console does not answer: "), "{page}");
            assert!(page.contains("\npgbouncer_up 0\n") && page.contains("\nweir_draining 0\n"), "{page}");
            assert!(page.ends_with(&format!("\nweir_workers_silent {silent}\n")), "{page}");
            health.one_falls_silent();
        }
    }

    #[test]
    fn a_row_is_a_sample_with_its_labels() {
        let columns = ["database", "user", "cl_active", "maxwait", "maxwait_us"];
        let table = Table::of(&columns, &[&["a", "b\"c\\d\ne", "3", "2", "500000"], &["a", "", "0", "0", "0"]]);
        let shown = TABLES.iter().find(|shown| shown.show == "POOLS").unwrap();
        let mut page = Page::default();
        page.table(shown, &table);
        page.longest_waits(&table);
        assert_eq!(
            page.0,
            "# HELP pgbouncer_pools_client_active_connections Clients that do not wait for a server.\n\
             # TYPE pgbouncer_pools_client_active_connections gauge\n\
             pgbouncer_pools_client_active_connections{database=\"a\",user=\"b\\\"c\\\\d\\ne\"} 3\n\
             pgbouncer_pools_client_active_connections{database=\"a\",user=\"\"} 0\n\
             # HELP pgbouncer_pools_client_maxwait_seconds For how long the client waits that has waited longest.\n\
             # TYPE pgbouncer_pools_client_maxwait_seconds gauge\n\
             pgbouncer_pools_client_maxwait_seconds{database=\"a\",user=\"b\\\"c\\\\d\\ne\"} 2.5\n\
             pgbouncer_pools_client_maxwait_seconds{database=\"a\",user=\"\"} 0\n"
        );
    }

    #[test]
    fn histograms_are_prometheus_own() {
        let columns = ["database", "user", "time", "count", "sum_us", "le_64", "le_128"];
        let rows: &[&[&str]] =
            &[&["a", "u", "query", "3", "1500000", "1", "2"], &["a", "u", "wait", "0", "0", "0", "0"]];
        let mut page = Page::default();
        page.histograms(&Table::of(&columns, rows));
        let query = "# HELP weir_query_duration_seconds How long queries took, from the client's request to its answer.\n\
                     # TYPE weir_query_duration_seconds histogram\n\
                     weir_query_duration_seconds_bucket{database=\"a\",user=\"u\",le=\"0.000064\"} 1\n\
                     weir_query_duration_seconds_bucket{database=\"a\",user=\"u\",le=\"0.000128\"} 2\n\
                     weir_query_duration_seconds_bucket{database=\"a\",user=\"u\",le=\"+Inf\"} 3\n\
                     weir_query_duration_seconds_sum{database=\"a\",user=\"u\"} 1.5\n\
                     weir_query_duration_seconds_count{database=\"a\",user=\"u\"} 3\n";
        assert!(page.0.starts_with(query), "{}", page.0);
        assert!(
            page.0.contains("weir_client_wait_duration_seconds_count{database=\"a\",user=\"u\"} 0\n"),
            "{}",
            page.0
        );
    }

    #[test]
    fn times_are_in_seconds() {
        let table = Table::of(&["database", "total_query_time"], &[&["a", "2500000"]]);
        let shown = TABLES.iter().find(|shown| shown.show == "STATS").unwrap();
        let mut page = Page::default();
        page.table(shown, &table);
        assert!(
            page.0.ends_with("pgbouncer_stats_totals_queries_duration_seconds_total{database=\"a\"} 2.5\n"),
            "{}",
            page.0
        );
    }
}
