//! `memory`: what a connection costs in memory, idle, after a query and at work, directly and through a pooler.

use std::time::Duration;

use super::beside;
use super::peaks;
use super::places::{self, Room};
use super::sources::{FREUND_2020, MICROSOFT_2026};
use super::words;
use crate::dataset::{Dataset, Line};
use crate::experiment::{About, Axis, Better, Chart, Course, Experiment, Finding, Stop, values};
use crate::report::figures::number;
use crate::run::{ServerMemory, Site};
use crate::targets::{Kind, Needs, Tables, Target};
use weir_measure::journal::{Point, Preset, Role, Sizes, TargetRecord};
use weir_measure::load::Script;
use weir_measure::statistics;

pub struct Memory;

/// Series: what the connections do.
const IDLE: &str = "idle";
const AFTER: &str = "after a query";
const ACTIVE: &str = "reading";
const SORTING: &str = "sorting";
const HUGE: &str = "reading, huge pages";

const SCRIPT_IDLE: &str = "\\sleep 1 s\n";
const SCRIPT_AFTER: &str = "\\set aid random(1, 100000 * :scale)\n\
    SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n\
    \\sleep 1 s\n";
/// Touches ever more of the shared buffers, which each process maps for itself.
const SCRIPT_READING: &str = "\\set aid random(1, 100000 * :scale)\n\
    SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :aid AND :aid + 1000;\n";
/// Sorts about as much as work_mem (4 MB) holds.
const SCRIPT_SORTING: &str =
    "SELECT count(*) FROM (SELECT md5(i::text) AS word FROM generate_series(1, 40000) i ORDER BY word) sorted;\n";

/// Closes what the lab's own pooler still holds of the measurement before: each pooler has a user of its own there.
const CLOSE_POOL: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = current_user \
    AND backend_type = 'client backend' AND pid <> pg_backend_pid();";

/// MiB per connection.
const EACH_MIB: &str = "connection_mib";
const EACH_PRIVATE_MIB: &str = "connection_private_mib";
const EACH_PAGE_TABLES_MIB: &str = "connection_page_tables_mib";
const EACH_NAIVE_MIB: &str = "connection_rss_mib";
/// How often a state that changes is looked at; the median counts.
const LOOKS: usize = 5;
const LOOK_PAUSE: Duration = Duration::from_millis(100);
const POOL_PER_CORE: usize = 10;
const POSTGRES_PAGE_KIB: u64 = 1024;
/// Freund's bound with huge pages, MiB; Microsoft's rules of thumb, MB.
const FREUND_BOUND_MIB: f64 = 2.0;
const MICROSOFT_IDLE_MB: (f64, f64) = (2.0, 5.0);
const MICROSOFT_ACTIVE_MB: (f64, f64) = (10.0, 20.0);
/// As in `targets::cluster`: what huge pages must hold.
const SHARED_BUFFERS_MIB_MIN: u64 = 128;

static ABOUT: About = About {
    name: "memory",
    title: "What a connection costs in memory",
    question: "How much memory does a connection take, idle, after its first query and at work, and how much through a pooler?",
    method: &[
        "Connections are opened directly and through poolers: idle (a client-side sleep and no query), after one lookup by key, reading \
         random ranges of the table all the time, and sorting about as much as work_mem of 4 MB holds.",
        "What a connection costs is its backend's private memory (Private_Clean, Private_Dirty and Private_Hugetlb of \
         /proc/PID/smaps_rollup) and its page tables (VmPTE of /proc/PID/status), divided by the number of connections; through a \
         pooler, the pooler's private memory as well. That is how Freund counted in the post that his article refers to.",
        "Beside it stands what tools like top show, resident memory: it counts shared buffers again for every process that touched \
         them, which is why connections are thought to cost more than they do.",
        "With small pages each process has page tables for all of the shared buffers it touched; with huge pages nearly none. The series \
         with huge pages is measured where the machine has enough of them set aside (vm.nr_hugepages), by restarting the server with \
         huge_pages = on; otherwise all series run with huge_pages = off.",
        "Before each measurement the server connections that a pooler still holds are closed, so that each state pays for its own.",
        "Where connections are at work their memory changes, so it is looked at five times, and the median counts.",
        "The sources give bounds, not curves (below 2 MiB with huge pages; 2 to 5 MB idle and 10 to 20 MB active), so no line of theirs \
         is drawn.",
    ],
    sources: &[FREUND_2020, MICROSOFT_2026],
    axis: Axis { label: "connections", logarithmic: true },
    charts: &[
        Chart {
            title: "Memory of a connection: private and page tables",
            key: EACH_MIB,
            unit: "MiB",
            better: Better::Lower,
        },
        Chart { title: "Private memory of a connection", key: EACH_PRIVATE_MIB, unit: "MiB", better: Better::Lower },
        Chart { title: "Page tables of a connection", key: EACH_PAGE_TABLES_MIB, unit: "MiB", better: Better::Lower },
        Chart {
            title: "Resident memory of a connection, as top shows it",
            key: EACH_NAIVE_MIB,
            unit: "MiB",
            better: Better::Lower,
        },
        Chart {
            title: "Server connections",
            key: values::SERVER_CONNECTIONS,
            unit: "connections",
            better: Better::Neither,
        },
        Chart { title: "Private memory of the pooler", key: values::POOLER_MIB, unit: "MiB", better: Better::Lower },
    ],
    published: &[],
    fit: false,
};

fn connections(sizes: &Sizes, room: &Room) -> Vec<f64> {
    match sizes.preset {
        Preset::Quick => places::up_to(&[50], room.connections_max()),
        Preset::Machine => places::up_to(&[20, 100, 500], room.connections_max()),
        Preset::Source => places::up_to(&[20, 100, 500, 1_000, 5_000], room.connections_max()),
    }
}

/// Whether the machine has huge pages set aside that could hold the server's shared buffers.
fn has_huge_pages() -> bool {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| -> Option<u64> {
        meminfo.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    let free = field("HugePages_Free:").zip(field("Hugepagesize:")).map_or(0, |(pages, size_kib)| pages * size_kib);
    free / POSTGRES_PAGE_KIB >= SHARED_BUFFERS_MIB_MIN
}

fn script(series: &str) -> Script {
    let (name, text) = match series {
        AFTER => ("after-a-query", SCRIPT_AFTER),
        ACTIVE | HUGE => ("reading", SCRIPT_READING),
        SORTING => ("sorting", SCRIPT_SORTING),
        _ => ("idle", SCRIPT_IDLE),
    };
    Script::Text { name, text: text.to_owned() }
}

impl Experiment for Memory {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn needs(&self, sizes: &Sizes) -> Needs {
        let room = Room::here();
        let most = places::most(&connections(sizes, &room));
        let settings = vec!["huge_pages = off".to_owned(), "work_mem = '4MB'".to_owned()];
        Needs { settings, ..places::needs(most, Tables::Pgbench, &peaks::POOLERS, POOL_PER_CORE * room.cores) }
    }

    fn courses(&self, sizes: &Sizes, targets: &[Target]) -> Vec<Course> {
        let xs = connections(sizes, &Room::here());
        let course = |series, target| Course::new(series, target, &xs, Stop::Never);
        let mut courses = Vec::new();
        for target in targets {
            courses.extend([IDLE, AFTER, ACTIVE, SORTING].map(|series| course(series, target)));
            if target.kind == Kind::Server && has_huge_pages() {
                courses.push(course(HUGE, target));
            }
        }
        courses
    }

    fn measure(&self, point: &mut Point, site: &mut Site) -> anyhow::Result<()> {
        if site.target.is_direct() {
            let huge = if point.series == HUGE { vec!["huge_pages = on".to_owned()] } else { Vec::new() };
            site.configure_server(&huge)?;
        }
        if matches!(site.target.kind, Kind::Pooler(_)) {
            site.psql(CLOSE_POOL)?;
        }
        let before = Both::look(site)?;
        let clients = statistics::count(point.x);
        let held = site.hold(clients, &script(&point.series))?;
        point.commands.push(held.command.clone());
        site.wait(Duration::from_secs(site.sizes.seconds))?;
        let mut looks = Vec::new();
        for look in 0..LOOKS {
            if look > 0 {
                site.wait(LOOK_PAUSE)?;
            }
            looks.push(Both::look(site)?);
        }
        drop(held);
        write(point, &before, &looks);
        beside::settle(site)
    }

    fn conclude(&self, data: &Dataset) -> Vec<Finding> {
        let mut findings: Vec<Finding> = data.targets.iter().filter_map(|target| states(data, target)).collect();
        findings.extend(naive(data));
        findings.extend(huge_pages(data));
        findings.extend(poolers(data));
        findings.extend(beside_sources(data));
        findings.extend(advise(data));
        findings.extend(words::reservations(data, EACH_MIB));
        findings
    }
}

/// Server and pooler at one moment.
#[derive(Clone, Copy, Debug)]
struct Both {
    server: ServerMemory,
    pooler: Option<ServerMemory>,
}

impl Both {
    fn look(site: &Site) -> anyhow::Result<Both> {
        let server = site.server_memory()?;
        let server = server.ok_or_else(|| {
            anyhow::anyhow!(
                "the server's processes do not run here, or may not be looked into (root may): memory is not measured"
            )
        })?;
        Ok(Both { server, pooler: site.pooler_memory()? })
    }

    fn add(&self, what: impl Fn(&ServerMemory) -> u64) -> f64 {
        let pooler = self.pooler.as_ref().map_or(0, &what);
        #[expect(clippy::cast_precision_loss)]
        let sum = (what(&self.server) + pooler) as f64;
        sum
    }
}

/// What grew, per connection, as the median of the looks.
fn write(point: &mut Point, before: &Both, looks: &[Both]) {
    let mut each = |key: &str, what: fn(&ServerMemory) -> u64| {
        let grown = looks.iter().map(|look| (look.add(what) - before.add(what)) / 1024.0 / point.x);
        let median = weir_measure::statistics::Spread::of(grown).map(|spread| spread.median);
        median.map(|mib| point.values.insert(key.to_owned(), mib));
    };
    each(EACH_MIB, |memory| memory.private_kib + memory.page_tables_kib);
    each(EACH_PRIVATE_MIB, |memory| memory.private_kib);
    each(EACH_PAGE_TABLES_MIB, |memory| memory.page_tables_kib);
    each(EACH_NAIVE_MIB, |memory| memory.rss_kib);
    let Some(last) = looks.last() else { return };
    #[expect(clippy::cast_precision_loss)]
    let connections = last.server.processes as f64;
    point.values.insert(values::SERVER_CONNECTIONS.to_owned(), connections);
    #[expect(clippy::cast_precision_loss)]
    if let Some(pooler) = &last.pooler {
        point.values.insert(values::POOLER_MIB.to_owned(), pooler.private_kib as f64 / 1024.0);
    }
}

/// With the most connections that were measured.
fn each(line: &Line, key: &str) -> Option<f64> {
    line.places.iter().rev().find_map(|place| place.median(key))
}

fn mib(value: f64) -> String {
    // Single KiB are no figure here: backends differ by more.
    if value * 1024.0 < 1.0 {
        "less than 1 KiB".to_owned()
    } else if value < 0.995 {
        format!("{} KiB", number((value * 1024.0).round()))
    } else {
        format!("{} MiB", number(value))
    }
}

/// One target in all its states.
fn states(data: &Dataset, target: &TargetRecord) -> Option<Finding> {
    let state = |series: &str, words: &str| {
        let line = data.line(series, &target.name)?;
        Some(format!("{words} {}", mib(each(line, EACH_MIB)?)))
    };
    let parts: Vec<String> = [
        state(IDLE, "idle"),
        state(AFTER, "after one lookup"),
        state(ACTIVE, "reading"),
        state(SORTING, "sorting with work_mem of 4 MB"),
        state(HUGE, "reading with huge pages"),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!parts.is_empty()).then(|| {
        let what = if target.role == Role::Pooler {
            "a client, with its part of the server's connections,"
        } else {
            "a connection"
        };
        words::shows(format!("{}: {what} takes {}.", target.name, words::list(&parts)))
    })
}

fn servers(data: &Dataset) -> impl Iterator<Item = &str> {
    data.targets.iter().filter(|target| target.role == Role::Server).map(|target| target.name.as_str())
}

/// What top would have said.
fn naive(data: &Dataset) -> Option<Finding> {
    let line = servers(data).find_map(|server| data.line(ACTIVE, server))?;
    let (real, seen) = (each(line, EACH_MIB)?, each(line, EACH_NAIVE_MIB)?);
    let factor = seen / real;
    (factor > 1.2).then(|| {
        words::shows(format!(
            "{}: resident memory, as top shows it, is {} per connection, {} times what a connection takes: the rest is shared buffers, \
             counted once for each process that touched them.",
            line.name(),
            mib(seen),
            words::about(factor.round())
        ))
    })
}

fn huge_pages(data: &Dataset) -> Option<Finding> {
    let server = servers(data).find(|server| data.line(ACTIVE, server).is_some())?;
    let small = each(data.line(ACTIVE, server)?, EACH_PAGE_TABLES_MIB)?;
    Some(match data.line(HUGE, server).and_then(|line| each(line, EACH_PAGE_TABLES_MIB)) {
        Some(huge) => words::shows(format!(
            "{server}: page tables of a reading connection take {} with small pages and {} with huge pages.",
            mib(small),
            mib(huge)
        )),
        None => words::caution(format!(
            "Huge pages were not measured: the machine has too few set aside for the server's shared buffers (vm.nr_hugepages), or they \
             could not be used. With small pages the page tables of a reading connection take {} here; they grow with the part of \
             the shared buffers that a connection touches.",
            mib(small)
        )),
    })
}

/// Client by client, a pooler beside the server.
fn poolers(data: &Dataset) -> Vec<Finding> {
    let compared = words::pairs(data).into_iter().filter(|(direct, _)| direct.series == AFTER || direct.series == IDLE);
    compared
        .filter_map(|(direct, pooled)| {
            let (alone, through) = (each(direct, EACH_MIB)?, each(pooled, EACH_MIB)?);
            let connections = pooled.places.last()?.median(values::SERVER_CONNECTIONS)?;
            Some(words::shows(format!(
                "{}: a client takes {} of pooler and server together, directly {} ({} behind {}).",
                pooled.name(),
                mib(through),
                mib(alone),
                words::of(connections, "server connection", "server connections"),
                words::clients(pooled.places.last()?.x)
            )))
        })
        .collect()
}

fn beside_sources(data: &Dataset) -> Vec<Finding> {
    let Some(server) = servers(data).find(|server| data.line(IDLE, server).is_some()) else { return Vec::new() };
    let of = |series: &str| data.line(series, server).and_then(|line| each(line, EACH_MIB));
    let mut findings = Vec::new();
    let within = |value: f64, (low, high): (f64, f64)| match value {
        value if value < low => "less",
        value if value > high => "more",
        _ => "as much",
    };
    if let Some(idle) = of(AFTER).or_else(|| of(IDLE)) {
        let verdict =
            if idle <= FREUND_BOUND_MIB { "agrees, even without huge pages" } else { "is above it, with small pages" };
        findings.push(words::source(format!(
            "Freund: below {FREUND_BOUND_MIB} MiB per connection in many workloads, with huge pages. Here {} for a connection that has run a \
             query: {verdict}.",
            mib(idle)
        )));
        let (low, high) = MICROSOFT_IDLE_MB;
        findings.push(words::source(format!(
            "Microsoft (2026) counts {low} to {high} MB for an idle connection; here it is {}, {}. Its servers are Citus nodes, whose \
             backends load an extension and its metadata.",
            mib(idle),
            within(idle, MICROSOFT_IDLE_MB)
        )));
    }
    if let Some(sorting) = of(SORTING) {
        let (low, high) = MICROSOFT_ACTIVE_MB;
        findings.push(words::source(format!(
            "Microsoft (2026) counts {low} to {high} MB for an active connection, by work_mem and query; sorting with work_mem of 4 MB takes \
             {} here, {}.",
            mib(sorting),
            within(sorting, MICROSOFT_ACTIVE_MB)
        )));
    }
    findings
}

/// How many connections a GiB holds.
fn advise(data: &Dataset) -> Option<Finding> {
    let server = servers(data).find(|server| data.line(AFTER, server).is_some())?;
    let idle = each(data.line(AFTER, server)?, EACH_MIB).filter(|mib| *mib > 0.0)?;
    let sorting = data.line(SORTING, server).and_then(|line| each(line, EACH_MIB)).filter(|mib| *mib > 0.0);
    let mut text = format!(
        "A GiB of memory holds about {} connections that rest after small queries",
        words::about(1024.0 / idle)
    );
    if let Some(sorting) = sorting {
        text.push_str(&format!(", but only {} that sort with work_mem of 4 MB", words::about(1024.0 / sorting)));
    }
    text.push_str(
        ". Set max_connections so that all of them at work fit beside shared_buffers; a pooler bounds how many can be at work at once.",
    );
    Some(words::advice(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::FindingKind;
    use crate::experiments::fixtures::{self, Facts};
    use crate::targets::PoolerKind;

    #[test]
    fn what_grew_is_divided_among_the_connections() {
        let memory = |private_kib, page_tables_kib, rss_kib| ServerMemory {
            processes: 10,
            private_kib,
            page_tables_kib,
            rss_kib,
        };
        let both = |server, pooler| Both { server, pooler: Some(pooler) };
        let before = both(memory(1_000, 100, 5_000), memory(2_000, 10, 2_000));
        let after = |more: u64| both(memory(21_480 + more, 2_148, 107_400), memory(2_000, 10, 2_000));
        let mut point = Point { x: 10.0, ..Point::default() };
        write(&mut point, &before, &[after(0), after(0), after(9_000)]);
        assert_eq!(point.values.get(EACH_PRIVATE_MIB), Some(&2.0), "the median of three looks");
        assert_eq!(point.values.get(EACH_PAGE_TABLES_MIB), Some(&0.2));
        assert_eq!(point.values.get(EACH_MIB), Some(&2.2));
        assert_eq!(point.values.get(EACH_NAIVE_MIB), Some(&10.0));
        assert_eq!(point.values.get(values::SERVER_CONNECTIONS), Some(&10.0));
    }

    #[test]
    fn huge_pages_are_a_series_of_the_labs_own_server_only() {
        let targets =
            [fixtures::target("direct", Kind::Server), fixtures::target("Weir", Kind::Pooler(PoolerKind::Weir))];
        let courses = Memory.courses(&fixtures::sizes(Preset::Quick), &targets);
        let with_huge = courses.iter().filter(|course| course.series == HUGE).count();
        assert_eq!(with_huge, usize::from(has_huge_pages()));
        assert_eq!(courses.len() - with_huge, 8);
    }

    #[test]
    fn states_poolers_and_sources_are_compared() {
        let measured = |mib: f64, tables: f64, rss: f64| {
            [
                (EACH_MIB, mib),
                (EACH_PAGE_TABLES_MIB, tables),
                (EACH_NAIVE_MIB, rss),
                (values::SERVER_CONNECTIONS, 100.0),
            ]
        };
        let data = Facts::new("memory")
            .server("direct", 15)
            .pooler("Weir", 15)
            .values(IDLE, "direct", 100.0, &measured(1.5, 0.1, 10.0))
            .values(AFTER, "direct", 100.0, &measured(1.8, 0.1, 12.0))
            .values(ACTIVE, "direct", 100.0, &measured(3.0, 1.0, 120.0))
            .values(SORTING, "direct", 100.0, &measured(8.0, 0.1, 20.0))
            .values(AFTER, "Weir", 100.0, &[(EACH_MIB, 0.09), (values::SERVER_CONNECTIONS, 4.0)])
            .end()
            .data();
        let findings = Memory.conclude(&data);
        let shows = fixtures::kind(&findings, FindingKind::Shows);
        assert_eq!(
            shows[0],
            "direct: a connection takes idle 1.50 MiB, after one lookup 1.80 MiB, reading 3 MiB and sorting with work_mem of 4 MB 8 MiB."
        );
        assert!(
            shows.iter().any(|text| text.contains("120 MiB per connection, 40 times what a connection takes")),
            "{shows:?}"
        );
        let pooled = "Weir, after a query: a client takes 92 KiB of pooler and server together, directly 1.80 MiB (4 server connections behind \
                      100 clients).";
        assert!(shows.iter().any(|text| text == pooled), "{shows:?}");
        let sources = fixtures::kind(&findings, FindingKind::Source);
        assert!(
            sources[0].contains("agrees, even without huge pages") && sources[1].contains("1.80 MiB, less"),
            "{sources:?}"
        );
        assert!(fixtures::kind(&findings, FindingKind::Caution)[0].starts_with("Huge pages were not measured"));
        assert!(
            fixtures::kind(&findings, FindingKind::Advice)[0]
                .starts_with("A GiB of memory holds about 569 connections")
        );
    }

    #[test]
    fn nothing_is_made_up() {
        let data =
            Facts::new("memory").server("direct", 15).absent(IDLE, "direct", Some(50.0), "not local").end().data();
        assert_eq!(fixtures::texts(&Memory.conclude(&data)), ["Nothing was measured."]);
    }
}
