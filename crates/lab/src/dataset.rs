//! What a journal says of one experiment: its lines, each a target's medians over what varies, and where they peak.
//!
//! Knows points, not what they mean.

use std::collections::BTreeMap;

use weir_measure::journal::{Absent, Point, Record, Role, Run, TargetRecord, line_name};
use weir_measure::series;
use weir_measure::statistics::Spread;

/// One line of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    pub series: String,
    pub target: String,
    /// In order of `x`.
    pub places: Vec<Place>,
}

/// All rounds of one line at one `x`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    pub x: f64,
    /// Of the rounds that count: those from which something may be concluded, where there are any.
    pub values: BTreeMap<String, Vec<f64>>,
    /// Summed over the rounds.
    pub errors: BTreeMap<String, u64>,
    /// Each once.
    pub doubts: Vec<String>,
    /// Those for which nothing is to be concluded from any of the rounds.
    pub forbids: Vec<String>,
    pub commands: Vec<String>,
    /// All of them, in the order of measuring.
    pub points: Vec<Point>,
}

impl Place {
    /// How often it was measured.
    pub fn rounds(&self) -> usize {
        self.points.iter().filter(|point| !point.sentinel).count()
    }

    /// Of these, those from which something may be concluded.
    pub fn clean_rounds(&self) -> usize {
        self.points.iter().filter(|point| !point.sentinel && point.forbids.is_empty()).count()
    }

    /// Chooses the rounds that count, and takes their figures together.
    fn settle(&mut self) {
        let points = std::mem::take(&mut self.points);
        let is_clean = |point: &&Point| point.forbids.is_empty();
        let rounds = || points.iter().filter(|point| !point.sentinel);
        let clean: Vec<&Point> = rounds().filter(is_clean).collect();
        let counted = if clean.is_empty() { rounds().collect() } else { clean };
        counted.into_iter().for_each(|point| self.add(point));
        self.points = points;
    }

    pub fn spread(&self, key: &str) -> Option<Spread> {
        Spread::of(self.values.get(key)?.iter().copied())
    }

    pub fn median(&self, key: &str) -> Option<f64> {
        Some(self.spread(key)?.median)
    }

    fn add(&mut self, point: &Point) {
        for (key, value) in &point.values {
            self.values.entry(key.clone()).or_default().push(*value);
        }
        for (kind, count) in &point.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        for doubt in &point.doubts {
            if !self.doubts.contains(doubt) {
                self.doubts.push(doubt.clone());
            }
        }
        for doubt in &point.forbids {
            if !self.forbids.contains(doubt) {
                self.forbids.push(doubt.clone());
            }
        }
        self.commands.clone_from(&point.commands);
    }
}

impl Line {
    /// As charts and tables name it.
    pub fn name(&self) -> String {
        line_name(&self.target, &self.series)
    }

    /// The medians of a key over `x`, where there are any.
    pub fn curve(&self, key: &str) -> Vec<(f64, f64)> {
        self.places.iter().filter_map(|place| Some((place.x, place.median(key)?))).collect()
    }

    /// The place with the largest median of `key`: one without errors, if there is any.
    pub fn peak(&self, key: &str) -> Option<&Place> {
        let rank = |place: &Place| Some((place.errors.is_empty(), place.median(key)?));
        let with_value = self.places.iter().filter_map(|place| Some((place, rank(place)?)));
        with_value
            .max_by(|(_, left), (_, right)| left.0.cmp(&right.0).then(left.1.total_cmp(&right.1)))
            .map(|(place, _)| place)
    }

    /// Where clients that all did as much as those of the first place would reach the peak: what a law calls its knee, measured.
    /// `None` where the first place is the peak: the knee is there or before.
    pub fn knee(&self, key: &str) -> Option<f64> {
        let (fewest, value) = self.curve(key).into_iter().find(|(x, _)| *x > 0.0)?;
        let peak = self.peak(key).filter(|peak| peak.x > fewest)?;
        Some(peak.median(key)? * fewest / value).filter(|knee| knee.is_finite())
    }

    pub fn at(&self, x: f64) -> Option<&Place> {
        self.places.iter().find(|place| place.x == x)
    }
}

/// One experiment of a journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dataset {
    pub experiment: String,
    pub runs: Vec<Run>,
    /// The last record of each target.
    pub targets: Vec<TargetRecord>,
    /// In the order in which they were first measured.
    pub lines: Vec<Line>,
    pub absent: Vec<Absent>,
    pub notes: Vec<String>,
    /// By the names that commands have for them.
    pub scripts: BTreeMap<String, String>,
    /// Whether it was measured to its end.
    pub complete: bool,
}

impl Dataset {
    /// Every experiment of a journal, in the order in which they began.
    pub fn all(records: &[Record]) -> Vec<Dataset> {
        let mut sets: Vec<Dataset> = Vec::new();
        for record in records {
            let experiment = match record {
                Record::Run(run) => &run.experiment,
                Record::Target(target) => &target.experiment,
                Record::Point(point) => &point.experiment,
                Record::Absent(absent) => &absent.experiment,
                Record::Note(note) => &note.experiment,
                Record::Script(script) => &script.experiment,
                Record::End(end) => &end.experiment,
            };
            let index = sets.iter().position(|set| set.experiment == *experiment).unwrap_or_else(|| {
                sets.push(Dataset { experiment: experiment.clone(), ..Dataset::default() });
                sets.len() - 1
            });
            sets[index].add(record);
        }
        for place in sets.iter_mut().flat_map(|set| &mut set.lines).flat_map(|line| &mut line.places) {
            place.settle();
        }
        sets
    }

    /// By what part a figure of the same places changed over the run, where that is clear: the machine drifted.
    pub fn drift(&self, key: &str) -> Option<f64> {
        #[expect(clippy::cast_precision_loss)]
        let moment = |point: &Point| Some((point.at as f64, *point.values.get(key)?));
        let well = |point: &&Point| point.at > 0 && point.forbids.is_empty() && point.errors.is_empty();
        let of = |place: &Place| place.points.iter().filter(well).filter_map(moment).collect::<Vec<_>>();
        let places: Vec<Vec<(f64, f64)>> = self.lines.iter().flat_map(|line| &line.places).map(of).collect();
        series::drift(&places)
    }

    /// The same without the places from which nothing is to be concluded.
    #[must_use]
    pub fn trusted(&self) -> Dataset {
        let mut data = self.clone();
        data.lines.iter_mut().for_each(|line| line.places.retain(|place| place.forbids.is_empty()));
        data.lines.retain(|line| !line.places.is_empty());
        data
    }

    fn add(&mut self, record: &Record) {
        match record {
            Record::Run(run) => {
                self.complete = false;
                self.runs.push(run.clone());
            }
            Record::Target(target) => {
                self.targets.retain(|known| known.name != target.name);
                // One that was left out, or died, and is there again: its places are tried again, too.
                self.absent.retain(|absent| absent.target != target.name);
                self.targets.push(target.clone());
            }
            Record::Point(point) => self.place(point).points.push(point.clone()),
            Record::Absent(absent) if !self.absent.contains(absent) => self.absent.push(absent.clone()),
            Record::Note(note) if !self.notes.contains(&note.text) => self.notes.push(note.text.clone()),
            Record::Absent(_) | Record::Note(_) => {}
            Record::Script(script) => drop(self.scripts.insert(script.name.clone(), script.text.clone())),
            Record::End(_) => self.complete = true,
        }
    }

    fn place(&mut self, point: &Point) -> &mut Place {
        let same = |line: &Line| line.series == point.series && line.target == point.target;
        let index = self.lines.iter().position(same).unwrap_or_else(|| {
            let (series, target) = (point.series.clone(), point.target.clone());
            self.lines.push(Line { series, target, places: Vec::new() });
            self.lines.len() - 1
        });
        let places = &mut self.lines[index].places;
        match places.binary_search_by(|place| place.x.total_cmp(&point.x)) {
            Ok(at) => &mut places[at],
            Err(at) => {
                places.insert(at, Place { x: point.x, ..Place::default() });
                &mut places[at]
            }
        }
    }

    /// Targets that could not be measured at all, or not to their end.
    pub fn left_out(&self) -> impl Iterator<Item = &str> {
        self.absent.iter().filter(|absent| absent.x.is_none()).map(|absent| absent.target.as_str())
    }

    /// What a line was measured on; `None` where the journal does not say.
    pub fn target_of(&self, line: &Line) -> Option<&TargetRecord> {
        self.targets.iter().find(|target| target.name == line.target)
    }

    pub fn role_of(&self, line: &Line) -> Role {
        self.target_of(line).map_or(Role::Given, |target| target.role)
    }

    /// Of the server behind it; 0 where nobody said.
    pub fn major_of(&self, line: &Line) -> u32 {
        self.target_of(line).map_or(0, |target| target.server_major)
    }

    pub fn line(&self, series: &str, target: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.series == series && line.target == target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_measure::doubt::Doubt;

    fn point(target: &str, x: f64, round: usize, tps: f64) -> Record {
        let values = BTreeMap::from([("tps".to_owned(), tps)]);
        let (experiment, target) = ("e".to_owned(), target.to_owned());
        Record::Point(Point { experiment, target, x, round, values, ..Point::default() })
    }

    #[test]
    fn rounds_become_medians_in_order_of_x() {
        let records =
            [point("a", 8.0, 1, 30.0), point("a", 2.0, 1, 10.0), point("a", 8.0, 2, 20.0), point("a", 8.0, 3, 90.0)];
        let sets = Dataset::all(&records);
        let line = sets[0].line("", "a").unwrap();
        assert_eq!(line.curve("tps"), [(2.0, 10.0), (8.0, 30.0)]);
        assert_eq!(line.peak("tps").unwrap().x, 8.0);
        assert_eq!(line.knee("tps"), Some(6.0), "six of those that do 5 each would do 30");
        assert_eq!(line.places[1].spread("tps"), Spread::of([20.0, 30.0, 90.0]));
        assert_eq!(sets[0].lines[0].places.iter().map(Place::rounds).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn rounds_of_which_nothing_is_to_be_concluded_count_only_where_there_are_no_others() {
        let spoilt = |round: usize, tps: f64| match point("a", 8.0, round, tps) {
            Record::Point(mut point) => {
                point.doubt(&Doubt::Strangers(Some("cargo".to_owned())));
                Record::Point(point)
            }
            other => other,
        };
        let of = |records: &[Record]| Dataset::all(records).remove(0);
        let one = of(&[point("a", 8.0, 1, 30.0), spoilt(2, 5.0)]);
        let place = &one.lines[0].places[0];
        assert_eq!((place.median("tps"), place.rounds(), place.clean_rounds()), (Some(30.0), 2, 1));
        assert!(place.forbids.is_empty() && one.trusted() == one);
        let all = of(&[spoilt(1, 6.0), spoilt(2, 4.0)]);
        let place = &all.lines[0].places[0];
        assert_eq!((place.median("tps"), place.forbids.len()), (Some(5.0), 1));
        assert!(place.doubts[0].contains("cargo") && all.trusted().lines.is_empty());
    }

    #[test]
    fn a_sentinel_tells_of_drift_and_is_in_no_median() {
        let at = |at: u64, tps: f64, sentinel: bool| match point("a", 8.0, 1, tps) {
            Record::Point(point) => Record::Point(Point { at, sentinel, ..point }),
            other => other,
        };
        let of = |last: f64| Dataset::all(&[at(60, 100.0, false), at(600, last, true)]).remove(0);
        assert_eq!(of(70.0).lines[0].curve("tps"), [(8.0, 100.0)]);
        assert_eq!(of(70.0).drift("tps").map(|part| (part * 100.0).round()), Some(-30.0));
        assert_eq!(of(95.0).drift("tps"), None);
    }
}
