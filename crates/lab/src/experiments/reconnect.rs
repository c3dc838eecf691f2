//! `reconnect`: a connection per transaction, with and without a pooler.

use super::peaks;
use super::places::{self, Room};
use super::sources::MICROSOFT_2022;
use super::words::{self, Change};
use crate::dataset::{Dataset, Line, Place};
use crate::experiment::{About, Axis, Better, Chart, Course, Experiment, Finding, Published, Stop, values};
use crate::report::figures::number;
use crate::run::Site;
use crate::targets::{Needs, Tables, Target};
use weir_measure::journal::{Point, Preset, Sizes};
use weir_measure::load::{Load, Script};
use weir_measure::statistics;

pub struct Reconnect;

const SCRIPT: &str = "SELECT 1;\n";
const SOURCE_CLIENTS: f64 = 20.0;
const POOL_PER_CORE: usize = 10;
const SOURCE_TRANSACTIONS: u32 = 100;
const MACHINE_CLIENTS: [usize; 4] = [1, 5, 20, 100];
/// The source's 3.62 and 6.57 TPS.
const SOURCE_GAIN: f64 = 6.570_258 / 3.615_2;
/// From so much more throughput on a pooler is worth having for reconnecting clients alone.
const WORTHWHILE: f64 = 1.25;

static ABOUT: About = About {
    name: "reconnect",
    title: "A connection per transaction",
    question: "What does it cost to open a connection for every transaction, and how much of that does a pooler take away?",
    method: &[
        "pgbench -C opens a connection for each transaction and closes it after; throughput counts all of that, and pgbench's mean \
         latency has the login in it.",
        "The source ran 20 clients in one thread with 100 transactions each, some of them pgbench's own -S and some a script that \
         does as little as possible, which its page no longer shows. Ours is SELECT 1 alone, so that nearly all of the time is the \
         connection's.",
        "By default each place is measured for a time instead of 2,000 transactions, which last a second or two here, and other \
         numbers of clients are measured beside 20; with the source's sizes it is 20 clients, 100 transactions each, one thread.",
        "The source connected over a network to a managed server with TLS; ours are plain connections on the loopback without a \
         password unless a target is given, so each costs far less than in the source. What can be compared is the ratio.",
    ],
    sources: &[MICROSOFT_2022],
    axis: Axis { label: "clients", logarithmic: true },
    charts: &[
        Chart {
            title: "Throughput, a connection per transaction",
            key: values::TPS,
            unit: "transactions/s",
            better: Better::Higher,
        },
        Chart { title: "Connection time, mean", key: values::CONNECT_MS, unit: "ms", better: Better::Lower },
        Chart { title: "Latency with the login, mean", key: values::MEAN_US, unit: "µs", better: Better::Lower },
        Chart { title: "CPU of the machine", key: values::BOX_CPU_PERCENT, unit: "%", better: Better::Neither },
        Chart {
            title: "CPU of the pooler per transaction",
            key: values::POOLER_CPU_US,
            unit: "µs",
            better: Better::Lower,
        },
        Chart { title: "Errors", key: values::ERRORS_PER_SECOND, unit: "errors/s", better: Better::Lower },
    ],
    published: &[
        published("directly (Microsoft 2022)", values::TPS, &[(20.0, 3.6152)]),
        published("built-in PgBouncer (Microsoft 2022)", values::TPS, &[(20.0, 6.570_258)]),
        published("directly (Microsoft 2022)", values::CONNECT_MS, &[(20.0, 230.568)]),
        published("built-in PgBouncer (Microsoft 2022)", values::CONNECT_MS, &[(20.0, 149.425)]),
        published("directly (Microsoft 2022)", values::MEAN_US, &[(20.0, 4_333_507.0)]),
        published("built-in PgBouncer (Microsoft 2022)", values::MEAN_US, &[(20.0, 3_590_498.0)]),
    ],
    fit: true,
};

const fn published(name: &'static str, key: &'static str, points: &'static [(f64, f64)]) -> Published {
    Published {
        name,
        setting: "Azure Flexible Server 14.4 over a network, pgbench 14.2, 20 clients, 100 transactions each",
        key,
        points,
    }
}

fn clients(sizes: &Sizes) -> Vec<f64> {
    match sizes.preset {
        Preset::Quick | Preset::Source => vec![SOURCE_CLIENTS],
        Preset::Machine => places::floats(&MACHINE_CLIENTS),
    }
}

impl Experiment for Reconnect {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn needs(&self, sizes: &Sizes) -> Needs {
        let most = places::most(&clients(sizes));
        // Backends of closed connections are still ending while the next ones begin.
        places::needs(2 * most, Tables::None, &peaks::POOLERS, POOL_PER_CORE * Room::here().cores)
    }

    fn courses(&self, sizes: &Sizes, targets: &[Target]) -> Vec<Course> {
        places::courses(places::ONE_SERIES, targets, &clients(sizes), Stop::Never)
    }

    fn measure(&self, point: &mut Point, site: &mut Site) -> anyhow::Result<()> {
        let script = Script::Text { name: "reconnect", text: SCRIPT.to_owned() };
        let mut load = Load::new(script, statistics::count(point.x), site.sizes.seconds);
        load.connect = true;
        if site.sizes.preset == Preset::Source {
            (load.transactions, load.threads) = (Some(SOURCE_TRANSACTIONS), Some(1));
        }
        site.measure(point, &load)
    }

    fn conclude(&self, data: &Dataset) -> Vec<Finding> {
        let mut findings: Vec<Finding> = data.lines.iter().filter_map(alone).collect();
        let compared: Vec<Compared> = words::pairs(data).into_iter().filter_map(compare).collect();
        findings.extend(compared.iter().map(Compared::finding));
        findings.extend(words::errors(data, "clients"));
        findings.extend(beside_source(&compared));
        findings.extend(advise(&compared));
        findings.extend(words::reservations(data, values::TPS));
        findings
    }
}

/// The source's number of clients, or else the most that were measured.
fn main_place(line: &Line) -> Option<&Place> {
    let measured = |place: &&Place| place.median(values::TPS).is_some_and(|tps| tps > 0.0);
    line.at(SOURCE_CLIENTS).filter(measured).or_else(|| line.places.iter().rfind(measured))
}

fn alone(line: &Line) -> Option<Finding> {
    let place = main_place(line)?;
    let mut text = format!(
        "{}: {} with {} that connect for each transaction",
        line.name(),
        words::tps(place.median(values::TPS)?),
        words::clients(place.x)
    );
    match place.median(values::CONNECT_MS) {
        Some(connect_ms) => {
            text.push_str(&format!("; a connection takes {} to open on average.", words::time(connect_ms * 1_000.0)))
        }
        None => text.push_str("; what a connection takes to open was not measured."),
    }
    Some(words::shows(text))
}

/// A pooler beside the server behind it, at one number of clients.
struct Compared<'a> {
    pooled: &'a Line,
    change: Change,
    x: f64,
    connect_ms: Option<(f64, f64)>,
}

fn compare<'a>((direct, pooled): (&'a Line, &'a Line)) -> Option<Compared<'a>> {
    let from = main_place(direct)?;
    let to = pooled.at(from.x)?;
    let change = Change::of(from, to, values::TPS)?;
    let connect_ms = from.median(values::CONNECT_MS).zip(to.median(values::CONNECT_MS));
    Some(Compared { pooled, change, x: from.x, connect_ms })
}

impl Compared<'_> {
    fn finding(&self) -> Finding {
        let mut text =
            format!("Through {} with {} throughput is {}", self.pooled.name(), words::clients(self.x), self.change);
        if let Some((direct, pooled)) = self.connect_ms {
            let (direct, pooled) = (words::time(direct * 1_000.0), words::time(pooled * 1_000.0));
            text.push_str(&format!("; opening a connection takes {pooled} instead of {direct}"));
        }
        words::shows(text + ".")
    }
}

fn beside_source(compared: &[Compared]) -> Option<Finding> {
    let ours: Vec<String> =
        compared.iter().map(|each| format!("{} with {}", number(each.change.ratio), each.pooled.name())).collect();
    if ours.is_empty() {
        return None;
    }
    let gained = compared.iter().filter(|each| each.change.is_more()).count();
    let verdict = match gained {
        0 => "the shape does not agree: nothing was gained here",
        some if some == compared.len() => "the shape agrees",
        _ => "the shape agrees for some",
    };
    Some(words::source(format!(
        "In the source a pooler gives {} times the throughput (3.62 to 6.57 TPS; its text rounds that to double) and takes 81 ms off \
         each connection; here it is {}: {verdict}. Over a network with TLS the client's own round trips to the pooler stay, which \
         is why the source gains less than a pooler on the loopback can.",
        number(SOURCE_GAIN),
        words::list(&ours)
    )))
}

fn advise(compared: &[Compared]) -> Option<Finding> {
    let best = compared.iter().max_by(|left, right| left.change.ratio.total_cmp(&right.change.ratio))?;
    let text = if best.change.is_more() && best.change.ratio >= WORTHWHILE {
        format!(
            "Applications that connect for each request (PHP, functions, cron jobs) gain from a pooler near the server: here throughput is {}. \
             Keeping connections open in the application saves the rest of the login as well.",
            best.change
        )
    } else {
        "For these connections no pooler gained enough to set one up for reconnecting alone; keeping connections open in the \
         application does more."
            .to_owned()
    };
    Some(words::advice(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::FindingKind;
    use crate::experiments::fixtures::{self, Facts};

    #[test]
    fn a_pooler_that_helps_and_one_that_does_not() {
        let facts = |pooled: f64| {
            Facts::new("reconnect")
                .server("direct", 15)
                .pooler("Weir", 15)
                .values("", "direct", 20.0, &[("tps", 500.0), ("connect_ms", 1.9)])
                .values("", "Weir", 20.0, &[("tps", pooled), ("connect_ms", 0.4)])
                .end()
                .data()
        };
        let findings = Reconnect.conclude(&facts(2_000.0));
        let texts = fixtures::kind(&findings, FindingKind::Shows);
        assert_eq!(
            texts,
            [
                "direct: 500 TPS with 20 clients that connect for each transaction; a connection takes 1.90 ms to open on average.",
                "Weir: 2,000 TPS with 20 clients that connect for each transaction; a connection takes 400 µs to open on average.",
                "Through Weir with 20 clients throughput is 4.0 times as much; opening a connection takes 400 µs instead \
                 of 1.90 ms."
            ]
        );
        assert!(fixtures::kind(&findings, FindingKind::Source)[0].contains("1.82 times"));
        assert!(
            fixtures::kind(&findings, FindingKind::Source)[0].contains("here it is 4 with Weir: the shape agrees.")
        );
        let findings = Reconnect.conclude(&facts(480.0));
        assert!(fixtures::kind(&findings, FindingKind::Source)[0].contains("does not agree"));
        assert!(
            fixtures::kind(&findings, FindingKind::Advice)[0].starts_with("For these connections no pooler gained")
        );
    }

    #[test]
    fn without_a_pooler_nothing_is_compared() {
        let data =
            Facts::new("reconnect").server("direct", 15).line("", "direct", "tps", &[(1.0, 300.0), (5.0, 0.0)]).data();
        let findings = Reconnect.conclude(&data);
        assert!(fixtures::texts(&findings)[0].contains("300 TPS with 1 client that connect"), "{findings:?}");
        assert!(fixtures::kind(&findings, FindingKind::Source).is_empty());
        assert!(fixtures::kind(&findings, FindingKind::Advice).is_empty());
    }
}
