//! The question what a session holds, and its answer.
//!
//! One statement, in which every name has its schema: what a client has made in its own schemas is not called. It is asked outside of
//! a transaction, and takes no lock that anybody waits for.

use super::Kinds;
use super::channels::Channels;
use crate::parameters::{Parameter, ParameterSet};
use crate::writing::{write_has_default, write_literal};

/// What is known of a session by its answer.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) asked: Kinds,
    pub(crate) found: Kinds,
    /// Those that PostgreSQL does not report.
    pub(super) parameters: ParameterSet,
    /// What it listens to; `None` where a name is not known.
    pub(super) channels: Option<Channels>,
    /// That with which it was told to listen to more (`Lists`).
    pub(super) mark: Option<Box<[u8]>>,
    /// A value is not known: it is in another encoding than the database's, or there is too much.
    pub(super) illegible: bool,
    pub(crate) failed: bool,
    bytes: usize,
    channel_bytes: usize,
}

/// Names and values of one session's parameters.
const BYTES_MAX: usize = 64 * 1024;
/// Names of what it listens to.
const CHANNEL_BYTES_MAX: usize = 1024 * 1024;

/// Each kind's row, where there is such a thing: its word, for parameters name and value, and one for each channel with its name.
const OBJECTS: &str = "SELECT E'temporary objects',NULL,NULL WHERE EXISTS(SELECT FROM pg_catalog.pg_depend d \
    WHERE d.refclassid OPERATOR(pg_catalog.=)E'pg_catalog.pg_namespace'::pg_catalog.regclass \
    AND d.refobjid OPERATOR(pg_catalog.=)pg_catalog.pg_my_temp_schema())";
const LOCKS: &str = "SELECT E'advisory locks',NULL,NULL WHERE EXISTS(SELECT FROM pg_catalog.pg_locks l \
    WHERE l.locktype OPERATOR(pg_catalog.=)E'advisory' AND l.pid OPERATOR(pg_catalog.=)pg_catalog.pg_backend_pid())";
const CHANNELS: &str = "SELECT E'listen',c.name,NULL FROM pg_catalog.pg_listening_channels()c(name)";
/// And no more.
const MARK: &str =
    "SELECT E'mark',pg_catalog.current_setting(E'weir.lists',true),pg_catalog.set_config(E'weir.lists',E'',false)";
const CURSORS: &str =
    "SELECT E'cursors',NULL,NULL WHERE EXISTS(SELECT FROM pg_catalog.pg_cursors c WHERE c.is_holdable)";
const PREPARED: &str =
    "SELECT E'prepare',NULL,NULL WHERE EXISTS(SELECT FROM pg_catalog.pg_prepared_statements p WHERE p.from_sql)";
/// `source` is what the value was set by last. Those of a transaction are no session's.
const PARAMETERS: &str = "SELECT E'parameter',s.name,pg_catalog.current_setting(s.name) FROM pg_catalog.pg_settings s \
    WHERE s.source OPERATOR(pg_catalog.=)E'session' AND NOT s.name OPERATOR(pg_catalog.=) \
    ANY(E'{transaction_deferrable,transaction_isolation,transaction_read_only}'::pg_catalog.text[]) \
    UNION ALL SELECT E'parameter',E'role',pg_catalog.current_setting(E'role') \
    WHERE pg_catalog.current_setting(E'role')OPERATOR(pg_catalog.<>)E'none' OR ";

impl Look {
    pub(super) fn new(asked: Kinds) -> Self {
        let parameters = ParameterSet::default();
        let channels = Some(Channels::new());
        Self {
            asked,
            found: Kinds::NONE,
            parameters,
            channels,
            mark: None,
            illegible: false,
            failed: false,
            bytes: 0,
            channel_bytes: 0,
        }
    }

    /// The question. `marked`: with the mark of what it was told to listen to. `custom`: names of parameters that PostgreSQL does not list, and whether an empty value is their client's: what
    /// a `RESET` leaves of a name that has no definition cannot be told from that.
    pub(crate) fn question<'a>(asked: Kinds, marked: bool, custom: impl Iterator<Item = (&'a str, bool)>) -> Vec<u8> {
        const PARTS: [(Kinds, &str); 6] = [
            (Kinds::OBJECTS, OBJECTS),
            (Kinds::LOCKS, LOCKS),
            (Kinds::CHANNELS, CHANNELS),
            (Kinds::CURSORS, CURSORS),
            (Kinds::PREPARED, PREPARED),
            (Kinds::PARAMETERS, PARAMETERS),
        ];
        let mut sql = Vec::new();
        for (kind, part) in PARTS.iter().filter(|(kind, _)| asked.has(*kind)) {
            separate(&mut sql);
            sql.extend_from_slice(part.as_bytes());
            if *kind == Kinds::PARAMETERS {
                write_has_default(&mut sql, b"role");
            }
        }
        if marked {
            separate(&mut sql);
            sql.extend_from_slice(MARK.as_bytes());
        }
        if asked.has(Kinds::PARAMETERS) {
            for (name, may_be_empty) in custom {
                separate(&mut sql);
                sql.extend_from_slice(b"SELECT E'parameter',");
                write_literal(&mut sql, name.as_bytes());
                let value = |sql: &mut Vec<u8>| {
                    sql.extend_from_slice(b"pg_catalog.current_setting(");
                    write_literal(sql, name.as_bytes());
                    sql.extend_from_slice(b",true)");
                };
                sql.push(b',');
                value(&mut sql);
                sql.extend_from_slice(b" WHERE ");
                value(&mut sql);
                if may_be_empty {
                    sql.extend_from_slice(b" IS NOT NULL");
                } else {
                    sql.extend_from_slice(b"OPERATOR(pg_catalog.<>)E'' OR ");
                    value(&mut sql);
                    sql.extend_from_slice(b" IS NOT NULL AND ");
                    write_has_default(&mut sql, name.as_bytes());
                }
            }
        }
        sql
    }

    /// One of its rows. `reported`: what PostgreSQL tells by itself. `legible`: what it tells is as the database has it.
    pub(crate) fn row(&mut self, values: Option<&[Option<&[u8]>]>, reported: &ParameterSet, legible: bool) {
        let Some(&[Some(word), name, value]) = values else {
            self.illegible = true;
            return;
        };
        match (Kinds::of_word(word), name, value) {
            (Some(Kinds::CHANNELS), name, _) => {
                self.found = self.found.with(Kinds::CHANNELS);
                self.channel(name, legible);
            }
            (Some(kind), ..) => self.found = self.found.with(kind),
            (None, mark, _) if word == b"mark" => self.mark = mark.map(Into::into),
            (None, Some(name), Some(value)) => self.parameter(name, value, reported, legible),
            _ => self.illegible = true,
        }
    }

    /// Where there are too many, or one is told in another encoding than the database's, they stay where they are.
    fn channel(&mut self, name: Option<&[u8]>, legible: bool) {
        self.channel_bytes += name.map_or(0, <[u8]>::len);
        let name = name.filter(|name| (legible || name.is_ascii()) && self.channel_bytes <= CHANNEL_BYTES_MAX);
        match (name, &mut self.channels) {
            (Some(name), Some(channels)) => _ = channels.insert(name.into()),
            (None, channels) => *channels = None,
            _ => {}
        }
    }

    fn parameter(&mut self, name: &[u8], value: &[u8], reported: &ParameterSet, legible: bool) {
        self.bytes += name.len() + value.len();
        let told = (std::str::from_utf8(name), legible || (name.is_ascii() && value.is_ascii()));
        let (Ok(name), true, true) = (told.0, told.1, self.bytes <= BYTES_MAX) else {
            self.illegible = true;
            return;
        };
        if !reported.get(name).is_some_and(|known| known.reported) {
            self.parameters.set(name, value, false);
        }
    }

    /// What its client has, that had `before`.
    pub(crate) fn parameters_behind(&self, before: &ParameterSet) -> ParameterSet {
        let mut after = before.reported_only();
        for Parameter { name, value, .. } in self.parameters.iter() {
            after.set(name, value, false);
        }
        after
    }
}

fn separate(sql: &mut Vec<u8>) {
    if !sql.is_empty() {
        sql.extend_from_slice(b" UNION ALL ");
    }
}

/// Adds that a seed of random() is set that nobody knows: no row.
pub(crate) fn write_seed(sql: &mut Vec<u8>, random: [u8; 8]) {
    separate(sql);
    // From -1 to 1 (`setseed`, src/backend/utils/adt/float.c at 15).
    let seed = u64::from_le_bytes(random) as f64 / u64::MAX as f64 * 2.0 - 1.0;
    sql.extend_from_slice(format!("SELECT NULL,NULL,NULL WHERE pg_catalog.setseed({seed:.17})IS NULL").as_bytes());
}
