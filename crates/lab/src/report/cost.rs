//! A cost in proportion beside the measured throughput, where what varies brings none itself: idle connections, allowed ones.
//!
//! Knows what the model says of a line; does not know how it is fitted.

use maud::{Markup, html};

use super::chapter::Chapter;
use super::figures::{Measure, number};
use super::{law, tables};
use crate::dataset::Line;
use crate::experiment::values;
use crate::model::cost::{self, Cost};
use crate::model::doubts::ERROR_MAX;

/// The table; nothing where throughput is not what an experiment is about, or where its law is that of clients.
pub fn part(chapter: &Chapter) -> Markup {
    let Some(about) = chapter.about.filter(|about| !about.fit) else { return html! {} };
    let Some((measure, _)) = chapter.main().filter(|(main, _)| main.key == values::TPS) else { return html! {} };
    let lines = chapter.data.lines.iter().map(|line| (line, cost::fit(&line.curve(values::TPS))));
    let lines: Vec<(&Line, Result<Cost, String>)> =
        lines.filter(|(line, _)| line.peak(values::TPS).is_some()).collect();
    if lines.is_empty() {
        return html! {};
    }
    let doubts: Vec<(&Line, String)> = lines.iter().filter_map(|(line, fit)| Some((*line, doubt(fit)?))).collect();
    let varied = about.axis.label;
    html! {
        h3 { "A model beside the measurements" }
        p {
            "Nothing here brings throughput by being more, so it is a cost that is fitted: each transaction takes a base, and a time \
             for each of the " (varied) ". That is what a snapshot did before PostgreSQL 14. Where it misses the measured points, \
             trust the points."
        }
        @if !doubts.is_empty() { ul { @for (line, doubt) in &doubts { li { strong { (line.name()) } ": " (doubt) } } } }
        (tables::boxed("The cost on each line", &table(&lines, measure, varied)))
    }
}

fn doubt(fit: &Result<Cost, String>) -> Option<String> {
    match fit {
        Err(reason) => Some(format!("No cost: {reason}.")),
        Ok(cost) if cost.error > ERROR_MAX => {
            Some(format!("It misses the points by {} % on average.", number(cost.error * 100.0)))
        }
        Ok(_) => None,
    }
}

fn table(lines: &[(&Line, Result<Cost, String>)], measure: &Measure, varied: &str) -> Markup {
    let fitted = lines.iter().filter_map(|(line, fit)| Some((*line, fit.as_ref().ok()?)));
    html! { table {
        thead { tr {
            th scope="col" { "Line" }
            th scope="col" { "Measured last" small { (measure.unit) } }
            th scope="col" { "Predicted there" small { (measure.unit) } }
            th scope="col" { "Base" small { "µs" } }
            th scope="col" { "Each costs" small { "ns" } }
            th scope="col" { "Half is left at" small { (varied) } }
            th scope="col" { "Misses by" small { "%, on average" } }
        } }
        tbody { @for (line, cost) in fitted { (row(line, cost, measure)) } }
    } }
}

fn row(line: &Line, cost: &Cost, measure: &Measure) -> Markup {
    let last = line.curve(values::TPS).last().copied();
    let [base, each] = cost.coefficients();
    let half = if cost.each > 0.0 { number((cost.base / cost.each).round()) } else { "none".to_owned() };
    html! { tr {
        th scope="row" { (line.name()) @if cost.error > ERROR_MAX { " " span.doubt title="bad fit" { "?" } } }
        td { @if let Some((x, tps)) = last { (measure.number(tps)) small { "at " (number(x)) } } }
        td { @if let Some((x, _)) = last { (measure.number(cost.throughput(x))) } }
        (law::cell(cost.base, base, 1e6))
        (law::cell(cost.each, each, 1e9))
        td { (half) }
        td { (number(cost.error * 100.0)) }
    } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;
    use crate::experiments::fixtures::Facts;
    use crate::report::chapter::Book;

    fn text(experiment: &str, places: &[(f64, f64)]) -> String {
        let records =
            Facts::new(experiment).run(2).server("direct", 12).line("2 active", "direct", "tps", places).end();
        let book = Book::of(&records.records(), &experiments::by_name);
        part(&book.chapters[0]).into_string()
    }

    #[test]
    fn what_idle_connections_cost_stands_beside_what_was_measured() {
        // 100 µs, and 20 ns for each: half of the throughput is left beside 5,000.
        let places = [0.0, 1_000.0, 2_500.0, 5_000.0].map(|x| (x, 1.0 / (100e-6 + 20e-9 * x)));
        let page = text("idle", &places);
        assert!(page.contains("<td>5,000</td>") && page.contains("<td>20"), "{page}");
        assert!(!page.contains("on average.</li>"), "{page}");
    }

    #[test]
    fn a_cost_that_is_none_is_said_and_clients_have_another_law() {
        let page = text("idle", &[(0.0, 100.0), (100.0, 20.0), (200.0, 90.0)]);
        assert!(page.contains("It misses the points by"), "{page}");
        assert!(text("idle", &[(0.0, 100.0)]).contains("No cost: 1 points"), "{page}");
        assert!(text("fleet", &[(8.0, 100.0), (32.0, 20.0)]).is_empty());
        assert!(text("memory", &[(8.0, 100.0), (32.0, 20.0)]).is_empty());
    }
}
