//! The models against the published tables: what the first half of each predicts beside the rest, and what all of it says.
//!
//! Knows the experiments' published figures; writes the tables of docs/lab-model.md.

use std::fmt::Write;

use super::clusters::Row;
use super::sampling::Interval;
use super::words::{number, percent, percents, range};
use super::{clusters, cost, fit, usl};
use crate::experiment::{Published, values};
use crate::experiments;

/// Which law a series is held against.
#[derive(Clone, Copy, PartialEq)]
enum Law {
    Scalability,
    Cost,
}

/// All tables in Markdown, with their captions.
pub fn tables() -> String {
    let mut text = String::from(
        "Predicted from the first half of each series, and what was published:\n\n\
         | series | predicted from | at | published | predicted | 95 % bounds | error |\n|---|---|---:|---:|---:|---|---:|\n",
    );
    let halves = series().into_iter().flat_map(|(name, published, law)| halves(name, published, law));
    for row in halves.chain(clusters::rows()).chain(clusters::queues()) {
        line(&mut text, &row);
    }
    text.push_str(
        "\nThe scalability law fitted to the whole of each series over clients:\n\n\
         | series | published peak | peak of the law | at clients | knee | contention | coherency | misses by |\n\
         |---|---:|---|---|---|---|---|---:|\n",
    );
    let mut doubts = String::new();
    for (name, published, _) in series().into_iter().filter(|(_, _, law)| *law == Law::Scalability) {
        doubts.push_str(&scalability(&mut text, &format!("{name}: {}", published.name), published.points));
    }
    text.push_str("\nWhat the lab says of these fits:\n\n");
    text.push_str(&doubts);
    text.push_str(
        "\nA cost in proportion fitted to the whole of each series over idle connections:\n\n\
         | series | a transaction alone, µs | each connection adds, ns | misses by |\n|---|---|---|---:|\n",
    );
    for (name, published, _) in series().into_iter().filter(|(_, _, law)| *law == Law::Cost) {
        proportion(&mut text, &format!("{name}: {}", published.name), published.points);
    }
    text
}

// Writing into a String does not fail.
fn line(text: &mut String, row: &Row) {
    let error = |predicted: f64| {
        format!("{}{}", if predicted > row.published { "+" } else { "" }, percent(predicted / row.published - 1.0))
    };
    let _ = writeln!(
        text,
        "| {} | {} | {} | {} | {} | {} | {} |",
        row.series,
        row.fitted,
        row.at,
        number(row.published),
        row.predicted.map_or("none".to_owned(), number),
        row.bounds,
        row.predicted.map_or(String::new(), error)
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

/// The second half of a series as its first half predicts it.
fn halves(name: &str, published: &Published, law: Law) -> Vec<Row> {
    let (first, rest) = published.points.split_at(published.points.len().div_ceil(2));
    let across = if law == Law::Scalability { "clients" } else { "idle" };
    let row = |(x, tps): &(f64, f64)| {
        let (predicted, bounds) = match law {
            Law::Scalability => (
                usl::through(first, first.len()).map(|law| law.throughput(*x)),
                format!("cannot be told: {} points for as many coefficients", first.len()),
            ),
            Law::Cost => match cost::fit(first) {
                Ok(cost) => (Some(cost.throughput(*x)), cost.bounds(*x).map_or("cannot be told".to_owned(), range)),
                Err(reason) => (None, reason),
            },
        };
        Row {
            series: format!("{name}: {}, TPS", published.name),
            fitted: format!("{} to {} {across}", number(first[0].0), number(first[first.len() - 1].0)),
            at: format!("{} {across}", number(*x)),
            published: *tps,
            predicted,
            bounds,
        }
    };
    rest.iter().map(row).collect()
}

/// A row of the law's table, and what is to be said below it.
fn scalability(text: &mut String, name: &str, points: &[(f64, f64)]) -> String {
    let highest = points.iter().copied().max_by(|left, right| left.1.total_cmp(&right.1)).unwrap_or_default();
    let published = format!("{} at {}", number(highest.1), number(highest.0));
    let (cells, doubts) = match fit(points) {
        Err(reason) => ("none | | | | | ".to_owned(), format!("no law: {reason}.")),
        Ok(fit) => {
            let law = fit.law;
            let with = |value: f64, bounds: Interval| format!("{} ({})", number(value), range(bounds));
            let cells = [
                with(law.ceiling(), fit.ceiling),
                with(law.peak_clients(), fit.peak_clients),
                with(law.knee(), fit.knee),
                format!("{} ({})", percent(law.sigma), percents(fit.sigma)),
                with(law.kappa, fit.kappa),
                percent(fit.error),
            ];
            (cells.join(" | "), if fit.is_good() { "no doubts.".to_owned() } else { fit.doubts.join(" ") })
        }
    };
    let _ = writeln!(text, "| {name} | {published} | {cells} |");
    format!("- {name}: {doubts}\n")
}

fn proportion(text: &mut String, name: &str, points: &[(f64, f64)]) {
    let cells = match cost::fit(points) {
        Err(reason) => format!("none: {reason} | | "),
        Ok(cost) => {
            let [base, each] = cost.coefficients();
            let with = |value: f64, bounds: Option<Interval>, unit: f64| {
                let scaled = bounds.map(|it| Interval { low: it.low * unit, high: it.high * unit });
                format!("{} ({})", number(value * unit), scaled.map_or("no bounds".to_owned(), range))
            };
            format!("{} | {} | {}", with(cost.base, base, 1e6), with(cost.each, each, 1e9), percent(cost.error))
        }
    };
    let _ = writeln!(text, "| {name} | {cells} |");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_tables_are_the_computed_ones() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab-model.md");
        let document = std::fs::read_to_string(path).unwrap();
        assert!(
            document.contains(&tables()),
            "docs/lab-model.md needs the tables of `weir lab model --published`:\n{}",
            tables()
        );
    }

    #[test]
    fn every_published_series_has_its_rows() {
        let names: Vec<&str> = series().iter().map(|(_, published, _)| published.name).collect();
        assert!(names.len() >= 6, "{names:?}");
        let tables = tables();
        for name in names {
            assert!(tables.matches(name).count() >= 3, "{name}");
        }
    }

    #[test]
    fn a_cost_in_proportion_predicts_idle_connections_to_a_fifth() {
        let idle = series().into_iter().filter(|(name, _, law)| *name == "idle" && *law == Law::Cost);
        let rows: Vec<Row> = idle.flat_map(|(name, published, law)| halves(name, published, law)).collect();
        assert_eq!(rows.len(), 6);
        for row in rows {
            let error = row.predicted.unwrap() / row.published - 1.0;
            assert!(error.abs() < 0.2, "{} at {}: {error}", row.series, row.at);
        }
    }
}
