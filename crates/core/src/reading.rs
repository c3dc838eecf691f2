//! What parsing reads of a session's parameters: the part of a prepared statement's meaning that is not in its text.

use crate::parameters::{Parameter, ParameterSet, compare_names, write_literal};

/// Parameters that mean nothing to parsing, and so to what a prepared statement is. All others are part of it: PostgreSQL reads
/// literals when it analyses a statement, under the TimeZone, DateStyle, IntervalStyle, client_encoding,
/// standard_conforming_strings, array_nulls, xmloption, lc_monetary ... of that moment, and names under the search_path, which
/// contains the role; what an extension's parameters do is not known.
const NOT_READ_BY_PARSING: [&str; 34] = [
    "application_name",
    "bytea_output",
    "client_min_messages",
    "commit_delay",
    "commit_siblings",
    "cursor_tuple_fraction",
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "effective_cache_size",
    "extra_float_digits",
    "geqo",
    "hash_mem_multiplier",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "in_hot_standby",
    "jit",
    "lc_messages",
    "lock_timeout",
    "log_min_duration_statement",
    "log_min_messages",
    "log_statement",
    "maintenance_work_mem",
    "max_parallel_workers_per_gather",
    "plan_cache_mode",
    "scram_iterations",
    "statement_timeout",
    "synchronous_commit",
    "tcp_keepalives_idle",
    "tcp_user_timeout",
    "temp_buffers",
    "temp_tablespaces",
    "transaction_timeout",
    "work_mem",
];

impl ParameterSet {
    /// Those of the values that parsing reads.
    pub(crate) fn read_by_parsing(&self) -> Self {
        let reads = |parameter: &&Parameter| {
            NOT_READ_BY_PARSING.binary_search_by(|name| compare_names(name, &parameter.name)).is_err()
        };
        let mut read = Self::default();
        for parameter in self.iter().filter(reads) {
            read.set(&parameter.name, &parameter.value, parameter.reported);
        }
        read
    }

    /// The query that brings these values to those of `wanted`, up to the transaction's end; empty where they agree.
    pub(crate) fn local_settings(&self, wanted: &Self) -> Vec<u8> {
        let differs = |theirs: &&Parameter| self.get(&theirs.name).is_none_or(|ours| ours.value != theirs.value);
        write_settings(wanted.iter().filter(differs), b",true)")
    }

    /// The query that sets those of these values that are chosen; empty where none is.
    pub(crate) fn settings(&self, chosen: impl Fn(&Parameter) -> bool) -> Vec<u8> {
        write_settings(self.iter().filter(|own| chosen(own)), b",false)")
    }
}

fn write_settings<'a>(values: impl Iterator<Item = &'a Parameter>, end: &[u8]) -> Vec<u8> {
    let mut sql = Vec::new();
    for value in values {
        sql.extend_from_slice(if sql.is_empty() { b"SELECT " } else { b"," });
        sql.extend_from_slice(b"pg_catalog.set_config(");
        write_literal(&mut sql, value.name.as_bytes());
        sql.push(b',');
        write_literal(&mut sql, &value.value);
        sql.extend_from_slice(end);
    }
    sql
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::parameters::ParameterSets;

    #[test]
    fn names_that_parsing_does_not_read_are_in_order() {
        assert!(NOT_READ_BY_PARSING.is_sorted_by(|left, right| compare_names(left, right).is_lt()));
    }

    #[test]
    fn parsing_reads_the_time_zone_and_no_application_name() {
        let mut sets = ParameterSets::default();
        let [one, two, three] = [("UTC", "a"), ("UTC", "b"), ("CET", "a")].map(|(zone, name)| {
            let mut values = ParameterSet::default();
            values.set("TimeZone", zone.as_bytes(), true);
            values.set("application_name", name.as_bytes(), true);
            sets.reading(&values)
        });
        assert!(Arc::ptr_eq(&one, &two) && !Arc::ptr_eq(&one, &three));
        let to = String::from_utf8(one.local_settings(&three)).unwrap();
        assert_eq!(to, "SELECT pg_catalog.set_config(E'TimeZone',E'CET',true)");
    }
}
