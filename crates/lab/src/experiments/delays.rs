//! `delays`: throughput over clients that wait between queries, beside clients that do not.

use super::peaks::{self, Steps};
use super::sources::FREUND_2020;
use super::words::{self, Peak};
use crate::dataset::{Dataset, Line};
use crate::experiment::{About, Axis, Course, Experiment, Finding, values};
use crate::report::figures::number;
use crate::run::Site;
use crate::targets::{Needs, Tables, Target};
use weir_measure::journal::{Point, Sizes};
use weir_measure::load::Script;

pub struct Delays;

const WITHOUT: &str = "no delays";
const WITH: &str = "1 ms + 1 ms delays";
const DELAYS_SECONDS: f64 = 0.002;
/// The first sleep stands for the network, the second for the application that works on the result.
const DELAYED: &str = "\\set aid random(1, 100000 * :scale)\n\
    \\sleep 1 ms\n\
    SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n\
    \\sleep 1 ms\n";
const SOURCE_CLIENTS: [usize; 14] = [1, 8, 16, 32, 48, 64, 100, 200, 500, 1_000, 2_000, 3_000, 4_000, 5_000];
const STEPS: Steps = Steps {
    quick_per_core: &[1.0, 2.0, 8.0, 32.0, 128.0],
    // The source's peak with delays is at 3,000 clients on 40 threads; ours shall be well inside.
    per_core_max: 512,
    max_least: 512,
    source: &SOURCE_CLIENTS,
    source_threads: None,
};
const POOL_PER_CORE: usize = 16;
/// Where the source's throughput peaks without and with delays.
const SOURCE_PEAKS: (f64, f64) = (48.0, 3_000.0);
/// Where it peaks between two machines with a network of 10 Gbit/s.
const SOURCE_NETWORK_PEAK: f64 = 500.0;
/// A peak that moved by less did not move.
const MOVED: f64 = 2.0;

static ABOUT: About = About {
    name: "delays",
    title: "Clients that wait between queries",
    question: "How many connections does it take to keep the server busy when each client spends most of its time waiting for the \
               network and its own work?",
    method: &[
        "A select-only workload that fits into memory, clients raised step by step until throughput falls, once without any delay and \
         once with 1 ms for the network and 1 ms for the application's work, as in the source.",
        "The source does not say how it delayed. Ours lets pgbench sleep 1 ms before the query, which stands for the way through the \
         network, and 1 ms after it, for the work on the result. The server sees the same as with a slow network: a connection that \
         is idle for 2 ms between queries. What a network would cost in CPU is not part of it.",
        "pgbench's latency counts both sleeps, so with delays 2 ms of it are not the server's.",
        "Behind a pooler in transaction mode a client that sleeps holds no server connection: charts of server connections show it.",
        "The source's text names only where the peaks lie (48 and about 3,000 clients on 40 hardware threads); its curves are \
         pictures, so no line of the source is drawn.",
    ],
    sources: &[FREUND_2020],
    axis: Axis { label: "clients", logarithmic: true },
    charts: peaks::CHARTS,
    published: &[],
    fit: true,
};

impl Experiment for Delays {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn needs(&self, sizes: &Sizes) -> Needs {
        STEPS.needs(sizes, Tables::Pgbench, POOL_PER_CORE)
    }

    fn courses(&self, sizes: &Sizes, targets: &[Target]) -> Vec<Course> {
        STEPS.courses(&[WITHOUT, WITH], sizes, targets)
    }

    fn next(&self, sizes: &Sizes, _targets: &[Target], data: &Dataset) -> Vec<Course> {
        peaks::finer(sizes, data)
    }

    fn measure(&self, point: &mut Point, site: &mut Site) -> anyhow::Result<()> {
        let script = match point.series.as_str() {
            WITH => Script::Text { name: "delayed", text: DELAYED.to_owned() },
            _ => Script::SelectOnly,
        };
        STEPS.measure(point, site, script)
    }

    fn conclude(&self, data: &Dataset) -> Vec<Finding> {
        let mut findings = peaks::findings(data);
        let moved: Vec<Moved> = data.lines.iter().filter_map(|line| Moved::of(data, line)).collect();
        findings.extend(moved.iter().map(Moved::finding));
        findings.extend(moved.first().map(Moved::waiting));
        findings.extend(moved.first().map(Moved::beside_source));
        findings.extend(advise(data));
        findings.extend(words::reservations(data, values::TPS));
        findings
    }
}

/// A target's peaks without and with delays.
struct Moved<'a> {
    target: &'a str,
    without: Peak<'a>,
    with: Peak<'a>,
}

impl<'a> Moved<'a> {
    /// Of the line without delays.
    fn of(data: &'a Dataset, line: &'a Line) -> Option<Moved<'a>> {
        if line.series != WITHOUT {
            return None;
        }
        let with = Peak::of(data.line(WITH, &line.target)?)?;
        Some(Moved { target: &line.target, without: Peak::of(line)?, with })
    }

    fn times(&self) -> f64 {
        self.with.enough / self.without.enough
    }

    fn finding(&self) -> Finding {
        words::shows(format!(
            "{}: without delays {} are enough for nearly all of the best throughput, with them it takes {} ({} times as many).",
            self.target,
            words::clients(self.without.enough),
            words::clients(self.with.enough),
            number(self.times())
        ))
    }

    /// What Little's law says of the delays.
    fn waiting(&self) -> Finding {
        words::shows(format!(
            "To keep up the {} that {} does without delays, about {} would have to be waiting in theirs at any time (Little's law: \
             transactions per second by 2 ms).",
            words::tps(self.without.tps),
            self.target,
            words::clients((self.without.tps * DELAYS_SECONDS).round())
        ))
    }

    fn beside_source(&self) -> Finding {
        let (without, with) = SOURCE_PEAKS;
        let verdict = if self.with.open {
            "the line with delays still rises at its end, so ours may move further".to_owned()
        } else if self.times() >= MOVED {
            format!(
                "the shape agrees. It moves less far on a server that does fewer transactions per second: 2 ms hold 2 clients for each \
                 1,000 TPS, so the source's move to {} clients stands for a server of about a million TPS",
                number(with)
            )
        } else {
            "the shape does not agree: something else than the server limits here, look at the CPU of pgbench"
                .to_owned()
        };
        words::source(format!(
            "In the source the same delays move the peak from {} to about {} clients ({} times as many), and a real network between two \
             machines to about {}. Here, {}, from {} to {}: {verdict}.",
            number(without),
            number(with),
            number(with / without),
            number(SOURCE_NETWORK_PEAK),
            self.target,
            number(self.without.enough),
            number(self.with.enough)
        ))
    }
}

/// Whether a pooler serves delayed clients with fewer server connections.
fn advise(data: &Dataset) -> Option<Finding> {
    let pairs = words::pairs(data);
    let best = |line: &Line| Peak::of(line).map_or(0.0, |peak| peak.tps);
    let delayed = pairs.iter().filter(|(direct, _)| direct.series == WITH);
    let (direct, pooled) = delayed.max_by(|left, right| best(left.1).total_cmp(&best(right.1)))?;
    let (alone, through) = (Peak::of(direct)?, Peak::of(pooled)?);
    let change = words::Change::of(alone.place, through.place, values::TPS)?;
    let connections = through.place.median(values::SERVER_CONNECTIONS)?.round();
    let (name, connections) = (pooled.name(), words::of(connections, "server connection", "server connections"));
    let text = if change.is_less() {
        format!(
            "{name} serves {} with {connections}, at {} of throughput ({} against {} directly): what is saved are \
             connections and their memory, not CPU.",
            words::clients(through.place.x),
            change,
            words::tps(through.tps),
            words::tps(alone.tps)
        )
    } else {
        format!(
            "Clients that wait between queries need many connections but few servers: {name} serves {} with {connections} and {} \
             throughput. Size the pool by the queries under way, not by the clients.",
            words::clients(through.place.x),
            if change.clear { "more" } else { "the same" }
        )
    };
    Some(words::advice(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::FindingKind;
    use crate::experiments::fixtures::{self, Facts};
    use crate::targets::Kind;
    use weir_measure::journal::Preset;

    #[test]
    fn both_series_are_measured_on_every_target() {
        let courses = Delays.courses(&fixtures::sizes(Preset::Source), &[fixtures::target("direct", Kind::Server)]);
        let series: Vec<&str> = courses.iter().map(|course| course.series.as_str()).collect();
        assert_eq!(series, [WITHOUT, WITH]);
        assert!(courses[0].xs.contains(&48.0) && courses[0].xs.contains(&3_000.0));
    }

    #[test]
    fn a_peak_that_moves_agrees_with_the_source() {
        let data = |with: &[(f64, f64)]| {
            Facts::new("delays")
                .server("direct", 15)
                .pooler("Weir", 15)
                .line(WITHOUT, "direct", "tps", &[(2.0, 15_000.0), (4.0, 20_000.0), (64.0, 15_000.0)])
                .line(WITH, "direct", "tps", with)
                .values(WITH, "Weir", 128.0, &[("tps", 19_000.0), ("server_connections", 6.0)])
                .end()
                .data()
        };
        let findings = Delays.conclude(&data(&[(4.0, 1_800.0), (64.0, 20_000.0), (256.0, 17_000.0)]));
        let source = fixtures::kind(&findings, FindingKind::Source).remove(0);
        assert!(source.contains("Here, direct, from 4 to 64: the shape agrees"), "{source}");
        let shows = fixtures::kind(&findings, FindingKind::Shows);
        assert!(shows.iter().any(|text| text.contains("(16 times as many)")), "{shows:?}");
        assert!(
            shows.iter().any(|text| text.contains("the 20,000 TPS that direct does without delays, about 40 clients"))
        );
        let advice = fixtures::kind(&findings, FindingKind::Advice).remove(0);
        assert!(
            advice.contains("Weir, 1 ms + 1 ms delays serves 128 clients with 6 server connections and the same"),
            "{advice}"
        );
        let flat = Delays.conclude(&data(&[(4.0, 20_000.0), (64.0, 19_000.0)]));
        assert!(fixtures::kind(&flat, FindingKind::Source)[0].contains("does not agree"));
        let rising = Delays.conclude(&data(&[(4.0, 2_000.0), (64.0, 19_000.0)]));
        assert!(fixtures::kind(&rising, FindingKind::Source)[0].contains("still rises"));
    }

    #[test]
    fn one_series_alone_is_not_compared() {
        let data = Facts::new("delays").server("direct", 15).line(WITHOUT, "direct", "tps", &[(2.0, 15_000.0)]).data();
        assert!(fixtures::kind(&Delays.conclude(&data), FindingKind::Source).is_empty());
    }
}
