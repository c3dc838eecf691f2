//! `cache-bloat`: what one connection remembers of many tables.

use std::time::Duration;

use super::beside;
use super::places;
use super::sources::FREUND_2020;
use super::words;
use crate::dataset::{Dataset, Line};
use crate::experiment::{About, Axis, Better, Chart, Course, Experiment, Finding, Published, Stop};
use crate::report::figures::number;
use crate::run::Site;
use crate::targets::{Kind, Needs, Tables, Target};
use weir_measure::journal::{Point, Preset, Sizes};
use weir_measure::statistics;

pub struct CacheBloat;

/// The tables have a schema of their own, so that a user's database loses nothing when they are dropped.
const SCHEMA: &str = "weir_lab_tables";
/// So many are made in one transaction: each locks its table, its sequence, its index and its TOAST table.
const BATCH: usize = 500;
/// Where somebody waits for the lab to stop; a hundred thousand tables may take longer, and then it is said that they are left.
const DROP_PATIENCE: Duration = Duration::from_secs(60);
const SOURCE_TABLES: [usize; 6] = [0, 1_000, 10_000, 25_000, 50_000, 100_000];
const MACHINE_TABLES: [usize; 5] = [0, 2_500, 5_000, 10_000, 20_000];
const QUICK_TABLES: [usize; 3] = [0, 1_000, 2_500];
/// `pg_backend_memory_contexts` is there since this version.
const CONTEXTS_SINCE: u32 = 14;
/// MiB.
const CACHE_MIB: &str = "cache_mib";
const INDEX_INFO_MIB: &str = "index_info_mib";
/// All that the backend allocated.
const BACKEND_MIB: &str = "backend_mib";
const SOURCE_LAST: f64 = 100_000.0;
/// KiB of CacheMemoryContext for each table in the source: (593 MiB - 512 KiB) / 100 000.
const SOURCE_EACH_KIB: f64 = (621_805_848.0 - 524_288.0) / 1024.0 / SOURCE_LAST;
/// Differences between versions and columns; the order of magnitude is what is compared.
const SAME_ORDER: f64 = 2.0;

static ABOUT: About = About {
    name: "cache-bloat",
    title: "What a connection remembers of many tables",
    question: "How much memory does a long-lived connection gather in its catalogue caches when it touches many tables?",
    method: &[
        "Tables as in the source, a serial primary key and three columns (integer, text, json), are made in batches; then one session \
         counts the rows of each of them, and asks pg_backend_memory_contexts in that same session how large its caches are. The source \
         had 100,000 tables.",
        "By default there are fewer tables, since making 100,000 takes long; the caches grow by the same amount for each table, which \
         several numbers of tables show. With the source's sizes it is 100,000.",
        "Each table is touched by one count(*), as in the source, committed every 100 tables, so that locks do not pile up.",
        "CacheMemoryContext itself and the contexts named index info are shown, as in the source, and beside them all that the backend \
         allocated. The view is there since version 14; older servers are left out.",
        "The tables lie in the schema weir_lab_tables, which is dropped at the end, also after an error or Ctrl-C; a run that goes on \
         makes them again. A database in which a schema of that name is yours must not be given.",
        "Poolers are not measured: which server connection touches a table is not the client's choice then, and in time each server \
         connection touches all.",
    ],
    sources: &[FREUND_2020],
    axis: Axis { label: "tables", logarithmic: false },
    charts: &[
        Chart {
            title: "Catalogue caches of one connection (CacheMemoryContext)",
            key: CACHE_MIB,
            unit: "MiB",
            better: Better::Lower,
        },
        Chart {
            title: "Index descriptions of one connection (index info)",
            key: INDEX_INFO_MIB,
            unit: "MiB",
            better: Better::Lower,
        },
        Chart { title: "All memory that the backend allocated", key: BACKEND_MIB, unit: "MiB", better: Better::Lower },
    ],
    published: &[
        published("PostgreSQL 14 in development (Freund 2020)", CACHE_MIB, &[(0.0, 0.5), (SOURCE_LAST, 593.0)]),
        published("PostgreSQL 14 in development (Freund 2020)", INDEX_INFO_MIB, &[(0.0, 0.143), (SOURCE_LAST, 97.8)]),
    ],
    fit: false,
};

const fn published(name: &'static str, key: &'static str, points: &'static [(f64, f64)]) -> Published {
    Published { name, setting: "a new connection, and one that touched 100,000 tables", key, points }
}

fn tables(sizes: &Sizes) -> Vec<f64> {
    places::floats(match sizes.preset {
        Preset::Quick => &QUICK_TABLES,
        Preset::Machine => &MACHINE_TABLES,
        Preset::Source => &SOURCE_TABLES,
    })
}

/// Adds tables until there are so many.
fn make(count: usize) -> String {
    format!(
        "CREATE SCHEMA IF NOT EXISTS {SCHEMA};\n\
         DO $$\n\
         DECLARE\n\
           there int := (SELECT count(*) FROM pg_class WHERE relnamespace = '{SCHEMA}'::regnamespace AND relkind = 'r');\n\
         BEGIN\n\
           FOR i IN there + 1 .. {count} LOOP\n\
             EXECUTE format('CREATE TABLE {SCHEMA}.foo_%s (id serial PRIMARY KEY, data1 int, data2 text, data3 json)', i);\n\
             IF i % {BATCH} = 0 THEN COMMIT; END IF;\n\
           END LOOP;\n\
         END $$;\n"
    )
}

/// Drops all that was made, in batches, and the schema; the last table first, so that those that are left when it is cut short
/// are numbered as `make` expects. Without the schema nothing is done.
fn drop_all() -> String {
    format!(
        "DO $$\n\
         DECLARE\n\
           there int := (SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('{SCHEMA}') AND relkind = 'r');\n\
         BEGIN\n\
           FOR i IN REVERSE there .. 1 LOOP\n\
             EXECUTE format('DROP TABLE {SCHEMA}.foo_%s', i);\n\
             IF i % {BATCH} = 0 THEN COMMIT; END IF;\n\
           END LOOP;\n\
           IF to_regnamespace('{SCHEMA}') IS NOT NULL THEN\n\
             DROP SCHEMA {SCHEMA};\n\
           END IF;\n\
         END $$;\n"
    )
}

/// For a person at psql. One DROP SCHEMA ... CASCADE would need more locks than a server has room for.
fn what_is_left() -> String {
    format!(
        "the tables of the schema {SCHEMA} may be left there. The same command, run to its end, drops them, and so do these lines \
         in psql:\n  \
         SELECT format('DROP TABLE {SCHEMA}.%I', relname) FROM pg_class WHERE relnamespace = '{SCHEMA}'::regnamespace \
         AND relkind = 'r' \\gexec\n  \
         DROP SCHEMA {SCHEMA};"
    )
}

/// Touches so many tables and says what this session's caches hold, in MiB: the caches, index descriptions, everything.
fn touch_and_ask(count: usize) -> String {
    format!(
        "DO $$\n\
         BEGIN\n\
           FOR i IN 1 .. {count} LOOP\n\
             EXECUTE format('SELECT count(*) FROM {SCHEMA}.foo_%s', i);\n\
             IF i % 100 = 0 THEN COMMIT; END IF;\n\
           END LOOP;\n\
         END $$;\n\
         SELECT sum(total_bytes) FILTER (WHERE name = 'CacheMemoryContext') / 1048576.0,\n\
           coalesce(sum(total_bytes) FILTER (WHERE name = 'index info'), 0) / 1048576.0,\n\
           sum(total_bytes) / 1048576.0\n\
         FROM pg_backend_memory_contexts;\n"
    )
}

fn read(answer: &str) -> Option<[f64; 3]> {
    let line = answer.lines().rfind(|line| !line.trim().is_empty())?;
    let figures: Option<Vec<f64>> = line.split('|').map(|figure| figure.trim().parse().ok()).collect();
    figures?.try_into().ok()
}

impl Experiment for CacheBloat {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn needs(&self, _sizes: &Sizes) -> Needs {
        places::needs(1, Tables::None, &[], 0)
    }

    fn courses(&self, sizes: &Sizes, targets: &[Target]) -> Vec<Course> {
        let measurable = targets.iter().filter(|target| !target.is_pooler() && target.server_major >= CONTEXTS_SINCE);
        places::courses(places::ONE_SERIES, measurable, &tables(sizes), Stop::Never)
    }

    /// Tables are added, and none is dropped until the end.
    fn is_ordered(&self) -> bool {
        true
    }

    fn measure(&self, point: &mut Point, site: &mut Site) -> anyhow::Result<()> {
        let count = statistics::count(point.x);
        site.psql(&make(count))?;
        let answer = site.psql(&touch_and_ask(count))?;
        let Some([cache, index_info, all]) = read(&answer) else {
            anyhow::bail!("the server's answer about its memory is not three numbers: {answer:?}");
        };
        for (key, value) in [(CACHE_MIB, cache), (INDEX_INFO_MIB, index_info), (BACKEND_MIB, all)] {
            point.values.insert(key.to_owned(), value);
        }
        point.commands.push(format!(
            "psql: CREATE TABLE {SCHEMA}.foo_N, {count} tables; SELECT count(*) of each; pg_backend_memory_contexts"
        ));
        beside::settle(site)
    }

    fn creates(&self) -> Option<&'static str> {
        Some(
            "Creates the schema weir_lab_tables in a target's database, with 5,000 to 100,000 empty tables, and drops it at the end, also \
             after an error or Ctrl-C.",
        )
    }

    fn clear(&self, site: &mut Site) -> anyhow::Result<()> {
        // The lab's own servers are thrown away as they are.
        if site.target.kind != Kind::Given {
            return Ok(());
        }
        let dropped = site.psql(&drop_all()).or_else(|_| {
            let (target, seconds) = (&site.target.name, DROP_PATIENCE.as_secs());
            eprintln!("{}: dropping its tables on {target}, for {seconds} seconds at most", ABOUT.name);
            site.clear(&drop_all(), DROP_PATIENCE)
        });
        dropped.map(drop).map_err(|error| anyhow::anyhow!("{}: {error:#}: {}", site.target.name, what_is_left()))
    }

    fn conclude(&self, data: &Dataset) -> Vec<Finding> {
        let grown: Vec<Grown> = data.lines.iter().filter_map(Grown::of).collect();
        let mut findings: Vec<Finding> = grown.iter().map(Grown::finding).collect();
        findings.extend(grown.iter().map(Grown::beside_source));
        findings.extend(grown.last().map(Grown::advise));
        findings.extend(words::reservations(data, CACHE_MIB));
        findings
    }
}

/// What a line's caches gathered from the fewest tables to the most.
struct Grown<'a> {
    line: &'a Line,
    first: (f64, f64),
    last: (f64, f64),
    index_info_mib: Option<f64>,
    each_kib: f64,
}

impl Grown<'_> {
    fn of(line: &Line) -> Option<Grown<'_>> {
        let curve = line.curve(CACHE_MIB);
        let (first, last) = (*curve.first()?, *curve.last()?);
        if last.0 <= first.0 {
            return None;
        }
        let index_info_mib = line.at(last.0).and_then(|place| place.median(INDEX_INFO_MIB));
        Some(Grown { line, first, last, index_info_mib, each_kib: (last.1 - first.1) * 1024.0 / (last.0 - first.0) })
    }

    fn finding(&self) -> Finding {
        let index_info = self
            .index_info_mib
            .map_or(String::new(), |mib| format!(", and its index descriptions another {} MiB", number(mib)));
        words::shows(format!(
            "{}: a connection's catalogue caches hold {} MiB after {} tables and {} MiB after {}{index_info}: {} KiB for each table, which \
             stay until the connection closes.",
            self.line.name(),
            number(self.first.1),
            number(self.first.0),
            number(self.last.1),
            number(self.last.0),
            number(self.each_kib)
        ))
    }

    fn beside_source(&self) -> Finding {
        let ratio = self.each_kib / SOURCE_EACH_KIB;
        let verdict = if (1.0 / SAME_ORDER..=SAME_ORDER).contains(&ratio) {
            "the shape agrees"
        } else {
            "the shape does not agree"
        };
        let scaled = if self.last.0 < SOURCE_LAST {
            format!(
                "; 100,000 tables would take {} MiB at that rate",
                words::about(self.first.1 + self.each_kib * SOURCE_LAST / 1024.0)
            )
        } else {
            String::new()
        };
        words::source(format!(
            "{}: in the source 100,000 tables take 593 MiB of catalogue cache, {} KiB each; here {} KiB each{scaled}: {verdict}.",
            self.line.name(),
            number(SOURCE_EACH_KIB),
            number(self.each_kib)
        ))
    }

    fn advise(&self) -> Finding {
        let mib_per_1000 = self.each_kib * 1000.0 / 1024.0;
        words::advice(format!(
            "With many tables (a schema for each tenant), count {} MiB for each 1,000 tables that a connection touches, times the number of \
             server connections: few of them, and a limit on their age (server_lifetime of a pooler), keep that small.",
            number(mib_per_1000)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::FindingKind;
    use crate::experiments::fixtures::{self, Facts};
    use crate::targets::PoolerKind;

    #[test]
    fn only_servers_that_can_say_it_are_measured() {
        let mut old = fixtures::target("PostgreSQL 12", Kind::Server);
        old.server_major = 12;
        let targets = [
            old,
            fixtures::target("PostgreSQL 15", Kind::Server),
            fixtures::target("Weir", Kind::Pooler(PoolerKind::Weir)),
        ];
        let courses = CacheBloat.courses(&fixtures::sizes(Preset::Source), &targets);
        assert_eq!(courses.iter().map(|course| course.target.as_str()).collect::<Vec<_>>(), ["PostgreSQL 15"]);
        assert_eq!(courses[0].xs.last(), Some(&SOURCE_LAST));
    }

    #[test]
    fn what_is_left_is_said_with_what_removes_it() {
        let lines: Vec<String> = what_is_left().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].starts_with("the tables of the schema weir_lab_tables may be left"), "{lines:?}");
        assert!(lines[1].starts_with("  SELECT format('DROP TABLE weir_lab_tables.%I'"), "{lines:?}");
        assert!(lines[1].ends_with(" \\gexec") && lines[2] == "  DROP SCHEMA weir_lab_tables;", "{lines:?}");
        assert!(CacheBloat.creates().unwrap().contains(SCHEMA));
    }

    #[test]
    fn an_answer_is_three_numbers() {
        assert_eq!(read("593.0034|97.81|700.5\n"), Some([593.0034, 97.81, 700.5]));
        assert_eq!([read(""), read("1|2"), read("a|b|c")], [None; 3]);
    }

    #[test]
    fn the_sources_own_figures_agree_with_it() {
        let data = Facts::new("cache-bloat")
            .server("direct", 15)
            .values("", "direct", 0.0, &[(CACHE_MIB, 0.5)])
            .values("", "direct", 100_000.0, &[(CACHE_MIB, 593.0), (INDEX_INFO_MIB, 97.8)])
            .end()
            .data();
        let findings = CacheBloat.conclude(&data);
        let shows = fixtures::kind(&findings, FindingKind::Shows).remove(0);
        assert!(shows.contains("0.50 MiB after 0 tables and 593 MiB after 100,000, and its index descriptions another 97.8 MiB: 6.07 KiB"), "{shows}");
        assert!(
            fixtures::kind(&findings, FindingKind::Source)[0]
                .ends_with("6.07 KiB each; here 6.07 KiB each: the shape agrees.")
        );
        assert!(fixtures::kind(&findings, FindingKind::Advice)[0].contains("count 5.92 MiB for each 1,000 tables"));
    }

    #[test]
    fn fewer_tables_are_scaled_and_one_place_says_nothing() {
        let data = |places: &[(f64, f64)]| Facts::new("cache-bloat").line("", "direct", CACHE_MIB, places).end().data();
        let findings = CacheBloat.conclude(&data(&[(0.0, 1.0), (1_000.0, 21.0)]));
        let source = fixtures::kind(&findings, FindingKind::Source).remove(0);
        assert!(
            source.contains("100,000 tables would take 2,000 MiB at that rate: the shape does not agree"),
            "{source}"
        );
        assert!(fixtures::kind(&CacheBloat.conclude(&data(&[(1_000.0, 21.0)])), FindingKind::Source).is_empty());
    }
}
