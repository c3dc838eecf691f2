//! The models against the published tables: what the first half of each predicts, beside the rest of it.
//!
//! Knows the experiments' published figures; writes the table of docs/lab-model.md.

use std::fmt::Write;

use super::queueing::Station;
use super::words::{number, percent};
use super::{cost, usl};
use crate::experiment::{Published, values};
use crate::experiments;

/// Which law a series is held against.
#[derive(Clone, Copy, PartialEq)]
enum Law {
    Scalability,
    Cost,
}

/// A prediction of one point, or why there is none.
struct Row {
    series: String,
    x: f64,
    published: f64,
    predicted: Result<(f64, String), String>,
}

/// The table in Markdown.
pub fn table() -> String {
    let mut text = String::from(
        "| series | fitted to | at | published TPS | predicted | bounds | error |\n|---|---|---:|---:|---:|---|---:|\n",
    );
    for (experiment, published, law) in series() {
        let (first, rest) = published.points.split_at(published.points.len().div_ceil(2));
        let fitted = format!("{} to {}", number(first[0].0), number(first[first.len() - 1].0));
        for mut row in rows(published, law, first, rest) {
            row.series = format!("{experiment}: {}", row.series);
            line(&mut text, &row, &fitted);
        }
    }
    for row in queue() {
        line(&mut text, &row, "CPU at 64");
    }
    for row in clusters() {
        line(&mut text, &row, "8 and 16 cores");
    }
    text
}

fn line(text: &mut String, row: &Row, fitted: &str) {
    let (predicted, bounds, error) = match &row.predicted {
        Ok((value, bounds)) => (number(*value), bounds.clone(), percent(value / row.published - 1.0)),
        Err(reason) => ("none".to_owned(), reason.clone(), String::new()),
    };
    // Writing into a String does not fail.
    let _ = writeln!(
        text,
        "| {} | {fitted} | {} | {} | {predicted} | {bounds} | {error} |",
        row.series,
        number(row.x),
        number(row.published)
    );
}

/// Every published series of throughput with enough points to leave some out.
fn series() -> Vec<(&'static str, &'static Published, Law)> {
    let mut all = Vec::new();
    for experiment in experiments::ALL {
        let about = experiment.about();
        let law = if about.fit { Law::Scalability } else { Law::Cost };
        let usable = |published: &&Published| published.key == values::TPS && published.points.len() > 3;
        all.extend(about.published.iter().filter(usable).map(|published| (about.name, published, law)));
    }
    all
}

fn rows(published: &Published, law: Law, first: &[(f64, f64)], rest: &[(f64, f64)]) -> Vec<Row> {
    let predict: Box<dyn Fn(f64) -> Result<(f64, String), String>> = match law {
        Law::Scalability => match usl::through(first, first.len()) {
            Some(law) => Box::new(move |x| Ok((law.throughput(x), "none: as many points as coefficients".to_owned()))),
            None => Box::new(|_| Err("the points determine no law".to_owned())),
        },
        Law::Cost => match cost::fit(first) {
            Ok(cost) => Box::new(move |x| Ok((cost.throughput(x), bounds(&cost, x)))),
            Err(reason) => Box::new(move |_| Err(reason.clone())),
        },
    };
    let row = |(x, tps): &(f64, f64)| Row {
        series: published.name.to_owned(),
        x: *x,
        published: *tps,
        predicted: predict(*x),
    };
    rest.iter().map(row).collect()
}

fn bounds(cost: &cost::Cost, x: f64) -> String {
    cost.bounds(x).map_or("unknown".to_owned(), |range| format!("{} to {}", number(range.low), number(range.high)))
}

/// One PgBouncer as a queue with one server whose service time is known: the source saw it use 97 % of a core with 64 clients.
fn queue() -> Vec<Row> {
    const BUSY: f64 = 0.97;
    let one = series().into_iter().find(|(_, published, _)| published.name.starts_with("one PgBouncer"));
    let Some((experiment, published, _)) = one else { return Vec::new() };
    let (first, rest) = published.points.split_at(published.points.len().div_ceil(2));
    let station = Station { service: BUSY / first[first.len() - 1].1, servers: 1, think: 0.0 };
    let row = |(clients, tps): &(f64, f64)| Row {
        series: format!("{experiment}: {}, closed queue", published.name),
        x: *clients,
        published: *tps,
        predicted: station
            .with(*clients as usize)
            .map(|load| (load.throughput, "none: one figure".to_owned()))
            .ok_or_else(|| "no such queue".to_owned()),
    };
    rest.iter().map(row).collect()
}

/// Peaks over the cores of a whole cluster: the first two sizes differ in nodes only.
fn clusters() -> Vec<Row> {
    /// Nodes times cores, peak throughput, clients at the peak (Microsoft 2026), in the source's order.
    const PEAKS: [(&str, f64, f64, f64); 4] = [
        ("4 nodes of 2 cores", 8.0, 11_400.0, 64.0),
        ("8 nodes of 2 cores", 16.0, 19_400.0, 192.0),
        ("4 nodes of 4 cores", 16.0, 27_500.0, 128.0),
        ("8 nodes of 4 cores", 32.0, 48_300.0, 224.0),
    ];
    let [first, second, rest @ ..] = PEAKS;
    let power = |from: f64, to: f64| (to / from).ln() / (second.1 / first.1).ln();
    let predict = |from: f64, to: f64, cores: f64| to * (cores / second.1).powf(power(from, to));
    let none = || "none: two points, two coefficients".to_owned();
    let mut all = Vec::new();
    for (name, cores, tps, _) in rest {
        let predicted = Ok((predict(first.2, second.2, cores), none()));
        all.push(Row {
            series: format!("single-shard: peak TPS, {name} (Microsoft 2026)"),
            x: cores,
            published: tps,
            predicted,
        });
    }
    for (name, cores, _, clients) in rest {
        let predicted = Ok((predict(first.3, second.3, cores), none()));
        all.push(Row {
            series: format!("single-shard: peak clients, {name} (Microsoft 2026)"),
            x: cores,
            published: clients,
            predicted,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_table_is_the_computed_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab-model.md");
        let document = std::fs::read_to_string(path).unwrap();
        assert!(
            document.contains(&table()),
            "docs/lab-model.md needs the table of `weir lab model --published`:\n{}",
            table()
        );
    }

    #[test]
    fn every_published_series_has_its_rows() {
        let names: Vec<&str> = series().iter().map(|(_, published, _)| published.name).collect();
        assert!(names.len() >= 6, "{names:?}");
        assert!(table().lines().count() > 2 + names.len());
    }
}
