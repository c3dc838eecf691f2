//! What the experiments that look for a peak share: clients raised step by step until throughput falls, then a finer look.
//!
//! Does not know the queries.

use super::places::{self, Room};
use super::words;
use crate::dataset::{Dataset, Line};
use crate::experiment::{About, Better, Chart, Course, Experiment, Finding, Stop, values};
use crate::run::Site;
use crate::targets::{Needs, PoolerKind, Tables, Target};
use weir_measure::journal::{Point, Preset, Role, Sizes};
use weir_measure::load::{Load, Script};
use weir_measure::statistics;

/// So many times the connections that a server does best with are too many.
const LARGE: f64 = 2.0;

/// The charts of every experiment over clients.
pub const CHARTS: &[Chart] = &[
    Chart { title: "Throughput", key: values::TPS, unit: "transactions/s", better: Better::Higher },
    Chart { title: "Latency, mean", key: values::MEAN_US, unit: "µs", better: Better::Lower },
    Chart { title: "Latency, median", key: values::P50_US, unit: "µs", better: Better::Lower },
    Chart { title: "Latency, 99th percentile", key: values::P99_US, unit: "µs", better: Better::Lower },
    Chart { title: "CPU of the machine", key: values::BOX_CPU_PERCENT, unit: "%", better: Better::Neither },
    Chart {
        title: "CPU of the pooler per transaction", key: values::POOLER_CPU_US, unit: "µs", better: Better::Lower
    },
    Chart { title: "Private memory of the server", key: values::SERVER_MIB, unit: "MiB", better: Better::Lower },
    Chart {
        title: "Server connections",
        key: values::SERVER_CONNECTIONS,
        unit: "connections",
        better: Better::Neither,
    },
    Chart { title: "Errors", key: values::ERRORS_PER_SECOND, unit: "errors/s", better: Better::Lower },
];

/// The poolers that are measured beside the server where a user names no targets.
pub const POOLERS: [PoolerKind; 2] = [PoolerKind::PgBouncer, PoolerKind::Weir];

/// How an experiment raises its clients.
pub struct Steps {
    /// The quick look's, per core.
    pub quick_per_core: &'static [f64],
    /// The machine's are doubled up to so many per core, or to `max_least` where that is more.
    pub per_core_max: usize,
    pub max_least: usize,
    pub source: &'static [usize],
    /// pgbench's threads with the source's sizes, where they are known.
    pub source_threads: Option<usize>,
}

impl Steps {
    pub fn clients(&self, sizes: &Sizes, room: &Room) -> Vec<f64> {
        match sizes.preset {
            Preset::Quick => {
                let cores = places::floats(&[room.cores])[0];
                let of = |each: &f64| statistics::count(each * cores).max(1);
                let mut numbers: Vec<usize> = self.quick_per_core.iter().map(of).collect();
                numbers.dedup();
                places::up_to(&numbers, room.connections_max())
            }
            Preset::Machine => places::doubling(clients_max(room, self.per_core_max, self.max_least)),
            Preset::Source => places::floats(self.source),
        }
    }

    pub fn needs(&self, sizes: &Sizes, tables: Tables, pool_per_core: usize) -> Needs {
        let room = Room::here();
        let most = places::most(&self.clients(sizes, &room));
        places::needs(most, tables, &POOLERS, pool_per_core * room.cores)
    }

    /// The same places on every target, each line until it is past its peak; the quick look has few places, and measures all.
    pub fn courses(&self, series: &[&str], sizes: &Sizes, targets: &[Target]) -> Vec<Course> {
        let stop = if sizes.preset == Preset::Quick { Stop::Never } else { Stop::PastPeak };
        places::courses(series, targets, &self.clients(sizes, &Room::here()), stop)
    }

    /// Runs the script with as many clients as the point has.
    pub fn measure(&self, point: &mut Point, site: &mut Site, script: Script) -> anyhow::Result<()> {
        let mut load = Load::new(script, statistics::count(point.x), site.sizes.seconds);
        load.threads = self.source_threads.filter(|_| site.sizes.preset == Preset::Source);
        site.measure(point, &load)
    }
}

/// An experiment that raises its clients, by what only it has.
pub struct Climb {
    pub about: &'static About,
    pub steps: Steps,
    pub tables: Tables,
    pub pool_per_core: usize,
    pub script: &'static str,
    /// As advice names them.
    pub queries: &'static str,
    /// How the figures compare with the source's.
    pub source: fn(&Dataset) -> Vec<Finding>,
}

impl Experiment for Climb {
    fn about(&self) -> &'static About {
        self.about
    }

    fn needs(&self, sizes: &Sizes) -> Needs {
        self.steps.needs(sizes, self.tables, self.pool_per_core)
    }

    fn courses(&self, sizes: &Sizes, targets: &[Target]) -> Vec<Course> {
        self.steps.courses(places::ONE_SERIES, sizes, targets)
    }

    fn next(&self, sizes: &Sizes, _targets: &[Target], data: &Dataset) -> Vec<Course> {
        finer(sizes, data)
    }

    fn measure(&self, point: &mut Point, site: &mut Site) -> anyhow::Result<()> {
        self.steps.measure(point, site, Script::Text { name: self.about.name, text: self.script.to_owned() })
    }

    fn conclude(&self, data: &Dataset) -> Vec<Finding> {
        let mut all = findings(data);
        all.extend((self.source)(data));
        all.extend(pool_advice(data, self.queries));
        all.extend(large_pools(data));
        all.extend(words::reservations(data, values::TPS));
        all
    }
}

/// Places between each line's peak and its neighbours, where these are far; none for the quick look.
pub fn finer(sizes: &Sizes, data: &Dataset) -> Vec<Course> {
    if sizes.preset != Preset::Machine {
        return Vec::new();
    }
    let course = |line: &Line| {
        let asked = |x: &f64| line.at(*x).is_some() || is_absent(data, line, *x);
        let xs: Vec<f64> = places::around_peak(line, values::TPS).into_iter().filter(|x| !asked(x)).collect();
        Course { series: line.series.clone(), target: line.target.clone(), xs, stop: Stop::Never }
    };
    data.lines.iter().map(course).filter(|course| !course.xs.is_empty()).collect()
}

/// Whether a place was tried and did not come about: it is not tried again.
pub fn is_absent(data: &Dataset, line: &Line, x: f64) -> bool {
    let same = |absent: &&weir_measure::journal::Absent| absent.series == line.series && absent.target == line.target;
    data.absent.iter().filter(same).any(|absent| absent.x.is_none_or(|place| place == x))
}

/// The most clients that are tried: enough to see the fall on any number of cores, as far as the machine has room.
pub fn clients_max(room: &Room, per_core: usize, least: usize) -> usize {
    (room.cores * per_core).max(least).min(room.connections_max())
}

/// Peaks, what poolers changed, and errors.
pub fn findings(data: &Dataset) -> Vec<Finding> {
    let mut findings: Vec<Finding> = data.lines.iter().filter_map(words::peak).collect();
    findings.extend(words::poolers(data));
    findings.extend(words::errors(data, "clients"));
    findings
}

/// The lines of servers measured without a pooler.
pub fn direct_lines(data: &Dataset) -> impl Iterator<Item = &Line> {
    data.lines.iter().filter(|line| data.role_of(line) == Role::Server)
}

/// How large a pool is enough, where the server itself was measured past its peak.
pub fn pool_advice(data: &Dataset, work: &str) -> Option<Finding> {
    let line = direct_lines(data).last()?;
    let peak = words::Peak::of(line).filter(|peak| !peak.open)?;
    let cores = words::cores(data);
    let per_core = if cores == 0 {
        String::new()
    } else {
        format!(
            " ({} per core of this machine)",
            crate::report::figures::number(peak.enough / places::floats(&[cores])[0])
        )
    };
    Some(words::advice(format!(
        "For {work} a pool of about {}{per_core} is enough: with so many the server reaches {} of its best \
         throughput, and more only wait for one another. Clients beyond that belong into a pooler's queue.",
        words::of(peak.enough, "server connection", "server connections"),
        words::percent(words::AS_GOOD_AS_BEST),
    )))
}

/// Pools that let more connections work at the server than it does best with.
pub fn large_pools(data: &Dataset) -> Vec<Finding> {
    let held = |(direct, pooled): (&Line, &Line)| {
        let enough = words::Peak::of(direct).filter(|peak| !peak.open)?.enough;
        let last = pooled.places.iter().rfind(|place| place.median(values::SERVER_CONNECTIONS).is_some())?;
        let connections = last.median(values::SERVER_CONNECTIONS)?.round();
        let (some, without) = (words::Peak::of(pooled)?, last.median(values::TPS)?);
        (connections > LARGE * enough && without < words::AS_GOOD_AS_BEST * some.tps).then(|| {
            words::advice(format!(
                "With {} {} let {} work at once, and gives {} instead of its best {}; the server itself does best with {}. A smaller \
                 pool would keep more of the peak.",
                words::clients(last.x),
                pooled.name(),
                words::of(connections, "server connection", "server connections"),
                words::tps(without),
                words::tps(some.tps),
                crate::report::figures::number(enough)
            ))
        })
    };
    words::pairs(data).into_iter().filter_map(held).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::fixtures::{self, Facts};

    #[test]
    fn a_finer_look_is_asked_for_once() {
        let sizes = fixtures::sizes(Preset::Machine);
        let coarse = [(8.0, 100.0), (16.0, 120.0), (32.0, 90.0)];
        let data = Facts::new("e").line("", "a", "tps", &coarse).absent("", "a", Some(23.0), "died").data();
        let more = finer(&sizes, &data);
        assert_eq!((more.len(), more[0].xs.as_slice()), (1, [11.0].as_slice()), "23 was tried already");
        let data =
            Facts::new("e").line("", "a", "tps", &coarse).line("", "a", "tps", &[(11.0, 110.0), (23.0, 115.0)]).data();
        assert_eq!(finer(&sizes, &data).iter().map(|course| course.xs.len()).sum::<usize>(), 2, "13 and 19");
        assert!(finer(&fixtures::sizes(Preset::Quick), &data).is_empty());
    }

    #[test]
    fn a_pool_is_advised_only_where_a_servers_peak_was_found() {
        let data = |role: fn(Facts) -> Facts, places: &[(f64, f64)]| {
            role(Facts::new("e").run(4)).line("", "direct", "tps", places).data()
        };
        let past = [(1.0, 10.0), (8.0, 99.0), (16.0, 100.0), (32.0, 70.0)];
        let text = pool_advice(&data(|facts| facts.server("direct", 15), &past), "lookups").unwrap().text;
        assert!(text.contains("about 8 server connections (2 per core of this machine) is enough"), "{text}");
        assert!(
            pool_advice(&data(|facts| facts.server("direct", 15), &past[..2]), "lookups").is_none(),
            "still rising"
        );
        assert!(pool_advice(&data(|facts| facts.pooler("direct", 15), &past), "lookups").is_none(), "a pooler");
    }
}
