//! Every statement that `weir advise` sends: questions only. Nothing else in `advise` writes SQL.

/// Who answers. A backend's start and number are its own: two sessions of one client that meet the same one met a pooler.
pub const IDENTITY: &str = "\
SELECT current_setting('server_version') AS version, current_setting('server_version_num') AS version_number,
       current_setting('transaction_read_only') AS read_only, current_setting('port') AS port,
       pg_is_in_recovery() AS in_recovery, extract(epoch FROM clock_timestamp()) AS now,
       (SELECT extract(epoch FROM backend_start) FROM pg_stat_activity WHERE pid = pg_backend_pid()) AS began,
       (SELECT pid || '/' || extract(epoch FROM backend_start) FROM pg_stat_activity WHERE pid = pg_backend_pid()) AS backend";

/// Memory in bytes, times in milliseconds, others as they are. Settings that a version does not have are left out.
pub const SETTINGS: &str = "\
SELECT name, CASE unit WHEN '8kB' THEN setting::numeric * 8192 WHEN 'kB' THEN setting::numeric * 1024
                       WHEN 'MB' THEN setting::numeric * 1048576 WHEN 's' THEN setting::numeric * 1000
                       WHEN 'min' THEN setting::numeric * 60000 WHEN 'ms' THEN setting::numeric
                       ELSE NULL END AS number, setting
  FROM pg_settings
 WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections', 'shared_buffers', 'work_mem',
                'hash_mem_multiplier', 'maintenance_work_mem', 'autovacuum_work_mem', 'autovacuum_max_workers', 'huge_pages',
                'huge_pages_status', 'idle_in_transaction_session_timeout', 'idle_session_timeout')";

/// Processes of the server that always run, and when it started, to see whether they are of this machine.
pub const PROCESSES: &str = "\
SELECT pid, extract(epoch FROM pg_postmaster_start_time()) AS started FROM pg_stat_activity WHERE datid IS NULL";

/// What connections do at one moment. Without the rights of `pg_read_all_stats` others' states are hidden.
pub const ACTIVITY: &str = "\
SELECT coalesce(state, '') AS state, coalesce(wait_event_type, '') AS wait_type, coalesce(wait_event, '') AS wait,
       (query = '<insufficient privilege>') AS hidden, count(*) AS sessions,
       max(extract(epoch FROM clock_timestamp() - state_change)) AS longest_state,
       max(extract(epoch FROM clock_timestamp() - xact_start)) AS longest_transaction
  FROM pg_stat_activity
 WHERE datid IS NOT NULL AND pid <> pg_backend_pid() AND coalesce(backend_type, 'client backend') = 'client backend'
 GROUP BY 1, 2, 3, 4";

/// Backends that serve clients, to read their memory where they are of this machine.
pub const BACKENDS: &str = "\
SELECT pid FROM pg_stat_activity
 WHERE datid IS NOT NULL AND pid <> pg_backend_pid() AND coalesce(backend_type, 'client backend') = 'client backend'
 LIMIT 200";

/// Counters; `sessions` came with version 14.
pub const COUNTERS: &str = "\
SELECT extract(epoch FROM clock_timestamp()) AS time, sum(xact_commit + xact_rollback) AS transactions,
       sum(blks_read) AS blocks_read, sum(blks_hit) AS blocks_hit, sum(temp_bytes) AS temporary_bytes,
       sum((to_jsonb(d) ->> 'sessions')::numeric) AS sessions
  FROM pg_stat_database d";

/// Between two moments of a look.
pub const PAUSE: &str = "SELECT pg_sleep(0.25)";

pub const SHOW_VERSION: &str = "SHOW VERSION";
pub const SHOW_POOLS: &str = "SHOW POOLS";
pub const SHOW_STATS: &str = "SHOW STATS";
pub const SHOW_CONFIG: &str = "SHOW CONFIG";
pub const SHOW_DATABASES: &str = "SHOW DATABASES";
pub const SHOW_LISTS: &str = "SHOW LISTS";
/// Weir's own; others answer that they do not know it.
pub const SHOW_WORKERS: &str = "SHOW WORKERS";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Of this file, what stands between quotes behind a constant of text.
    fn texts(source: &str) -> Vec<String> {
        let constants = source.split("pub const ").skip(1);
        let text = |constant: &str| {
            let (_, after) = constant.split_once(": &str = ").unwrap();
            after.split_once("\";").unwrap().0.trim_start().trim_start_matches(['"', '\\', '\n']).to_owned()
        };
        constants.filter(|constant| constant.contains(": &str = ")).map(text).collect()
    }

    #[test]
    fn every_statement_only_asks() {
        let source = include_str!("statements.rs").split("#[cfg(test)]").next().unwrap();
        let texts = texts(source);
        assert_eq!(texts.len(), 14);
        for text in texts {
            let first = text.split_whitespace().next().unwrap();
            assert!(["SELECT", "SHOW"].contains(&first), "{text}");
            assert!(!text.contains(';'), "one statement each: {text}");
            let upper = text.to_uppercase();
            let words: Vec<&str> = upper.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            for forbidden in [
                "SET",
                "RESET",
                "INTO",
                "INSERT",
                "UPDATE",
                "DELETE",
                "ALTER",
                "CREATE",
                "DROP",
                "COPY",
                "DO",
                "CALL",
                "VACUUM",
                "PG_TERMINATE_BACKEND",
                "PG_CANCEL_BACKEND",
                "SET_CONFIG",
                "PG_RELOAD_CONF",
                "PAUSE",
                "KILL",
                "RELOAD",
                "RESUME",
            ] {
                assert!(!words.contains(&forbidden), "{forbidden} in {text}");
            }
        }
    }

    /// A statement written elsewhere would not be among those above.
    #[test]
    fn nothing_else_here_writes_statements() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/advise");
        let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.extend(fs::read_dir(directory.join("rules")).unwrap().map(|entry| entry.unwrap().path()));
        let mut looked = 0;
        for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
            let text = fs::read_to_string(file).unwrap();
            let own = text.split("#[cfg(test)]").next().unwrap();
            looked += 1;
            if !file.ends_with("statements.rs") {
                for word in ["\"SELECT ", "\"SHOW ", "\"SET ", "\"ALTER ", "\"select ", "\"show ", "\"set ", "\"alter "]
                {
                    assert!(!own.contains(word), "{word} in {}", file.display());
                }
            }
        }
        assert!(looked > 5, "looked at {looked} files");
    }
}
