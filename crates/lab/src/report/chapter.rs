//! A journal as a report tells it: one chapter per experiment, with what the experiment says of its figures.
//!
//! Knows what belongs together; does not know how it is shown.

use std::collections::BTreeMap;

use super::figures::Measure;
use super::plot::{self, Plot};
use crate::conclusions;
use crate::dataset::Dataset;
use crate::experiment::{About, Better, Chart, Experiment, Finding, FindingKind};
use weir_measure::drawing::canvas::Style;
use weir_measure::journal::{Record, Run};

/// Finds an experiment by its name.
pub type Known<'a> = &'a dyn Fn(&str) -> Option<&'static dyn Experiment>;

pub struct Book {
    pub chapters: Vec<Chapter>,
}

pub struct Chapter {
    pub data: Dataset,
    /// `None` of an experiment that this version does not know.
    pub about: Option<&'static About>,
    pub findings: Vec<Finding>,
    /// One per line of `data`.
    pub styles: Vec<Style>,
    /// What was measured: what the experiment draws first, in its order, then all else.
    pub measures: Vec<Measure>,
}

impl Book {
    pub fn of(records: &[Record], known: Known) -> Book {
        let sets = Dataset::all(records);
        let targets = colours(&sets);
        Book { chapters: sets.into_iter().map(|data| Chapter::of(data, &targets, known)).collect() }
    }

    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.chapters.iter().flat_map(|chapter| &chapter.data.runs)
    }
}

impl Chapter {
    fn of(data: Dataset, targets: &BTreeMap<String, usize>, known: Known) -> Chapter {
        let experiment = known(&data.experiment);
        let about = experiment.map(Experiment::about);
        let measured = !data.lines.is_empty();
        let findings =
            experiment.filter(|_| measured).map(|experiment| conclusions::of(experiment, &data)).unwrap_or_default();
        let styles = plot::styles(&data, targets);
        let measures = measures(&data, about);
        Chapter { data, about, findings, styles, measures }
    }

    pub fn title(&self) -> &str {
        self.about.map_or(&self.data.experiment, |about| about.title)
    }

    /// What varies, in words.
    pub fn across(&self) -> &str {
        self.about.map_or("what varies", |about| about.axis.label)
    }

    /// The last run of this experiment.
    pub fn run(&self) -> Option<&Run> {
        self.data.runs.last()
    }

    pub fn of_kind(&self, kind: FindingKind) -> Vec<&str> {
        self.findings.iter().filter(|finding| finding.kind == kind).map(|finding| finding.text.as_str()).collect()
    }

    pub fn measure(&self, key: &str) -> Option<&Measure> {
        self.measures.iter().find(|measure| measure.key == key)
    }

    /// The experiment's charts that have figures, the one that the others explain first.
    pub fn plots(&self) -> Vec<(&'static str, Plot)> {
        self.charts().filter(|(_, plot)| plot.largest() > 0.0).collect()
    }

    /// The titles of charts whose every figure is zero: a sentence says it better.
    pub fn zeros(&self) -> Vec<String> {
        self.charts().filter(|(_, plot)| plot.largest() <= 0.0).map(|(_, plot)| plot.title).collect()
    }

    fn charts(&self) -> impl Iterator<Item = (&'static str, Plot)> {
        let plot = |about: &About, chart: &Chart| {
            let plot = Plot::of(&self.data, self.measure(chart.key)?, chart.better, about.axis, &self.styles)?;
            Some((chart.key, plot))
        };
        self.about.into_iter().flat_map(move |about| about.charts.iter().filter_map(move |chart| plot(about, chart)))
    }

    /// The key of the first chart, and which way it is better.
    pub fn main(&self) -> Option<(&Measure, Better)> {
        let chart = self.about?.charts.iter().find(|chart| self.measure(chart.key).is_some())?;
        Some((self.measure(chart.key)?, chart.better))
    }

    pub fn errors(&self) -> u64 {
        let places = self.data.lines.iter().flat_map(|line| &line.places);
        places.flat_map(|place| place.errors.values()).sum()
    }
}

/// Each target's colour, the same in all experiments: the first that no target beside it in any experiment has.
fn colours(sets: &[Dataset]) -> BTreeMap<String, usize> {
    let beside = |one: &str, other: &str| {
        let has = |set: &Dataset, target: &str| set.lines.iter().any(|line| line.target == target);
        sets.iter().any(|set| has(set, one) && has(set, other))
    };
    let mut colours: BTreeMap<String, usize> = BTreeMap::new();
    for line in sets.iter().flat_map(|set| &set.lines) {
        if colours.contains_key(&line.target) {
            continue;
        }
        let taken =
            |colour: usize| colours.iter().any(|(target, other)| *other == colour && beside(target, &line.target));
        // The colour before these is that of published figures.
        let free = (1..).find(|colour| !taken(*colour)).unwrap_or(1);
        colours.insert(line.target.clone(), free);
    }
    colours
}

fn measures(data: &Dataset, about: Option<&About>) -> Vec<Measure> {
    let charts = about.map(|about| about.charts).unwrap_or_default();
    let mut largest: BTreeMap<&str, f64> = BTreeMap::new();
    for (key, all) in data.lines.iter().flat_map(|line| &line.places).flat_map(|place| &place.values) {
        let known = largest.entry(key).or_default();
        *known = all.iter().copied().filter(|value| value.is_finite()).fold(*known, f64::max);
    }
    let drawn = charts.iter().map(|chart| chart.key).filter(|key| largest.contains_key(key));
    let others = largest.keys().copied().filter(|key| !charts.iter().any(|chart| chart.key == *key));
    drawn.chain(others).map(|key| Measure::of(key, charts, largest[key])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_measure::journal::Point;

    #[test]
    fn a_target_keeps_its_colour_and_shares_it_only_with_targets_of_other_experiments() {
        let point = |(experiment, target): (&str, &str)| {
            let [experiment, target] = [experiment, target].map(str::to_owned);
            Record::Point(Point { experiment, target, ..Point::default() })
        };
        let records = [("1", "a"), ("1", "b"), ("2", "c"), ("2", "b"), ("3", "d")].map(point);
        let colours = colours(&Dataset::all(&records));
        assert_eq!(["a", "b", "c", "d"].map(|target| colours[target]), [1, 2, 1, 1]);
    }
}
