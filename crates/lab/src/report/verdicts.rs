//! Two runs side by side, for programs: every figure of both with the ratio and whether it is more than noise, and whether any is
//! worse than somebody allows.
//!
//! Knows what a comparison says in words; does not compare anything itself.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use weir_measure::journal::{self, RESULTS};
use weir_measure::statistics::Spread;

use super::chapter::Book;
use super::compare;
use crate::conclusions;
use crate::experiments;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub figures: Vec<Compared>,
    /// Why nothing is to be concluded from an experiment of either run.
    pub doubts: Vec<String>,
}

/// One figure at one place that both runs measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    pub experiment: String,
    pub line: String,
    pub x: f64,
    pub figure: String,
    pub first: Figure,
    pub second: Figure,
    /// The second median over the first.
    pub ratio: f64,
    /// `better`, `worse`, `higher`, `lower`, `within the noise` or `one round: cannot tell`.
    pub verdict: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub median: f64,
    pub low_95: f64,
    pub high_95: f64,
    pub rounds: usize,
}

impl Figure {
    fn of(spread: &Spread) -> Figure {
        let Spread { median, interval, rounds, .. } = *spread;
        Figure { median, low_95: interval.low, high_95: interval.high, rounds }
    }
}

impl Comparison {
    pub fn read(first: &Path, second: &Path) -> Result<Comparison> {
        let book = |directory: &Path| -> Result<Book> {
            Ok(Book::of(&journal::read(&directory.join(RESULTS))?, &experiments::by_name))
        };
        Ok(Comparison::of(&book(first)?, &book(second)?))
    }

    pub(super) fn of(first: &Book, second: &Book) -> Comparison {
        let mut comparison = Comparison { figures: Vec::new(), doubts: Vec::new() };
        for one in &first.chapters {
            let Some(other) = compare::chapter_of(second, one) else { continue };
            let experiment = &one.data.experiment;
            let reasons = [("A", &one.data), ("B", &other.data)].into_iter().filter_map(|(letter, data)| {
                Some(format!("{experiment}, {letter}: {}", conclusions::reason_for_none(data)?))
            });
            comparison.doubts.extend(reasons);
            for (measure, better) in compare::measures(one) {
                for line in &one.data.lines {
                    let Some(same) = other.data.line(&line.series, &line.target) else { continue };
                    let both = line.places.iter().filter_map(|place| {
                        Some((place.x, place.spread(&measure.key)?, same.at(place.x)?.spread(&measure.key)?))
                    });
                    comparison.figures.extend(both.map(|(x, first, second)| Compared {
                        experiment: experiment.clone(),
                        line: line.name(),
                        x,
                        figure: measure.key.clone(),
                        first: Figure::of(&first),
                        second: Figure::of(&second),
                        ratio: second.median / first.median,
                        verdict: compare::verdict(&first, &second, better),
                    }));
                }
            }
        }
        comparison
    }

    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).context("cannot write a comparison")
    }

    /// Figures that are clearly worse in the second run, by more than this part.
    pub fn worse_than(&self, part: f64) -> impl Iterator<Item = &Compared> {
        self.figures.iter().filter(move |compared| {
            // Whichever way is the worse one; a ratio of zero or of nothing is as far as it gets.
            let by = if compared.ratio < 1.0 { 1.0 - compared.ratio } else { compared.ratio - 1.0 };
            compared.verdict == compare::WORSE && (by > part || !by.is_finite())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::fixtures::Facts;

    fn book(times: f64) -> Book {
        let round = |factor: f64| [(8.0, 1_000.0 * factor), (16.0, 1_500.0 * factor)];
        let mut facts = Facts::new("single-shard").run(2).server("direct", 15);
        for factor in [0.99, 1.0, 1.01] {
            facts = facts.line("", "direct", "tps", &round(factor * times));
        }
        Book::of(&facts.end().records(), &experiments::by_name)
    }

    #[test]
    fn what_is_worse_than_allowed_is_found_and_noise_is_not() {
        let worse = |times: f64, part: f64| Comparison::of(&book(1.0), &book(times)).worse_than(part).count();
        assert_eq!((worse(0.9, 0.05), worse(0.9, 0.2), worse(0.99, 0.0), worse(1.3, 0.05)), (2, 0, 0, 0));
        let comparison = Comparison::of(&book(1.0), &book(0.9));
        let text = comparison.json().unwrap();
        assert!(text.contains("\"verdict\": \"worse\"") && text.contains("\"figure\": \"tps\""), "{text}");
        assert!(comparison.doubts.is_empty() && comparison.figures[0].first.rounds == 3);
    }
}
