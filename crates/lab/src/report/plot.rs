//! What one chart shows: its axes and curves, drawn from an experiment's lines.
//!
//! Knows figures and what makes them doubtful; does not know how a chart is drawn.

use std::collections::BTreeMap;

use super::figures::{Measure, number};
use crate::dataset::{Dataset, Line, Place};
use crate::experiment::{Axis, Better, values};
use weir_measure::drawing::canvas::Style;
use weir_measure::journal::Absent;
use weir_measure::statistics::Spread;

#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    pub title: String,
    pub unit: String,
    /// `higher is better`, or what else to know.
    pub note: String,
    pub across: String,
    pub logarithmic: bool,
    pub curves: Vec<Curve>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// The number of its line in the experiment: what a reader can hide. `None` of a source's.
    pub line: Option<usize>,
    pub name: String,
    pub style: Style,
    pub dots: Vec<Dot>,
    /// Where errors came and there is no figure.
    pub failures: Vec<Failure>,
    /// A model's, dashed.
    pub dashed: Vec<(f64, f64)>,
    /// What the model predicts.
    pub signs: Vec<Sign>,
    /// Whether a line joins the dots.
    pub joined: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub x: f64,
    pub hint: Vec<String>,
}

/// A place that a model predicts, in the unit of its plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Sign {
    pub kind: SignKind,
    pub x: f64,
    pub value: f64,
    pub hint: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignKind {
    Peak,
    Knee,
}

/// One place of a curve, in the unit of its plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Dot {
    pub x: f64,
    pub spread: Spread,
    pub doubtful: bool,
    pub failing: bool,
    /// Whether something between the one before and this one could not be measured: no line leads over it.
    pub after_gap: bool,
    pub hint: Vec<String>,
}

impl Plot {
    /// A key over what varies; `None` where no line has a value of it.
    pub fn of(data: &Dataset, measure: &Measure, better: Better, axis: Axis, styles: &[Style]) -> Option<Plot> {
        let note = match better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
            Better::Neither => "",
        };
        let curve = |(index, line): (usize, &Line)| Curve {
            line: Some(index),
            name: line.name(),
            style: styles[index],
            dots: dots(data, line, measure, axis),
            failures: failures(line, measure, axis),
            joined: true,
            ..Curve::default()
        };
        let curves = data.lines.iter().enumerate().map(curve);
        let curves: Vec<Curve> = curves.filter(|curve| !(curve.dots.is_empty() && curve.failures.is_empty())).collect();
        curves.iter().any(|curve| !curve.dots.is_empty()).then(|| Plot {
            title: measure.title.clone(),
            unit: measure.unit.clone(),
            note: note.to_owned(),
            across: axis.label.to_owned(),
            logarithmic: axis.logarithmic,
            curves,
        })
    }

    /// Every value along the axis once, in order.
    pub fn xs(&self) -> Vec<f64> {
        let dots = self.curves.iter().flat_map(|curve| &curve.dots).map(|dot| dot.x);
        let failures = self.curves.iter().flat_map(|curve| &curve.failures).map(|failure| failure.x);
        let mut xs: Vec<f64> = dots.chain(failures).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    /// All that is drawn: dots with their spreads, and models.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let spreads =
            self.curves.iter().flat_map(|curve| &curve.dots).flat_map(|dot| <[f64; 2]>::from(bar(&dot.spread)));
        let models = self.curves.iter().flat_map(|curve| &curve.dashed).map(|(_, value)| *value);
        spreads.chain(models).filter(|value| value.is_finite())
    }

    pub fn largest(&self) -> f64 {
        self.values().fold(0.0, f64::max)
    }

    /// The range of a logarithmic scale, where that shows more: all values positive, and the smallest far below the largest.
    pub fn wide_range(&self) -> Option<(f64, f64)> {
        let smallest = self.values().fold(f64::INFINITY, f64::min);
        let largest = self.largest();
        (smallest > 0.0 && largest / smallest >= 8.0).then_some((smallest, largest))
    }

    /// For those who cannot see the chart.
    pub fn description(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" in {}", self.unit) };
        let mut text = format!("Chart of {}{unit} over {}.", self.title, self.across);
        for curve in &self.curves {
            let of_median = |dot: &&Dot| dot.spread.median;
            let highest = curve.dots.iter().max_by(|one, other| of_median(one).total_cmp(&of_median(other)));
            if let (Some(first), Some(last), Some(highest)) = (curve.dots.first(), curve.dots.last(), highest) {
                text += &format!(
                    " {}: {} at {}, highest {} at {}, {} at {}.",
                    curve.name,
                    number(first.spread.median),
                    number(first.x),
                    number(highest.spread.median),
                    number(highest.x),
                    number(last.spread.median),
                    number(last.x),
                );
            }
        }
        text
    }

    pub fn has_spreads(&self) -> bool {
        self.curves.iter().flat_map(|curve| &curve.dots).any(|dot| bar(&dot.spread).0 < bar(&dot.spread).1)
    }

    pub fn has_doubts(&self) -> bool {
        self.curves.iter().flat_map(|curve| &curve.dots).any(|dot| dot.doubtful)
    }

    pub fn has_errors(&self) -> bool {
        self.curves.iter().any(|curve| !curve.failures.is_empty() || curve.dots.iter().any(|dot| dot.failing))
    }
}

fn dots(data: &Dataset, line: &Line, measure: &Measure, axis: Axis) -> Vec<Dot> {
    let missing = |from: f64, to: f64| {
        let of_line = |absent: &&Absent| absent.series == line.series && absent.target == line.target;
        let absent = data.absent.iter().filter(of_line).filter_map(|absent| absent.x);
        let failed = line.places.iter().filter(|place| has_errors(place) && !place.values.contains_key(&measure.key));
        absent.chain(failed.map(|place| place.x)).any(|x| x > from && x < to)
    };
    let mut dots: Vec<Dot> = Vec::new();
    for place in &line.places {
        let Some(spread) = place.spread(&measure.key) else { continue };
        let after_gap = dots.last().is_some_and(|before| missing(before.x, place.x));
        dots.push(Dot {
            x: place.x,
            spread: spread.map(|value| measure.scaled(value)),
            doubtful: !place.doubts.is_empty(),
            failing: has_errors(place),
            after_gap,
            hint: hint(line, place, &spread, measure, axis),
        });
    }
    dots
}

/// Of a line that has this figure at other places, or could have: throughput belongs to every line.
fn failures(line: &Line, measure: &Measure, axis: Axis) -> Vec<Failure> {
    let has = |place: &Place| place.values.contains_key(&measure.key);
    if measure.key != values::TPS && !line.places.iter().any(has) {
        return Vec::new();
    }
    let failed = line.places.iter().filter(|place| has_errors(place) && !has(place));
    let failure = |place: &Place| Failure {
        x: place.x,
        hint: vec![shortened(&line.name(), 40), format!("{}: errors, and no figure", with_label(place.x, axis.label))],
    };
    failed.map(failure).collect()
}

pub fn has_errors(place: &Place) -> bool {
    place.errors.values().any(|count| *count > 0)
}

/// What a pointer over a mark is told; short, since it is drawn beside the mark.
fn hint(line: &Line, place: &Place, spread: &Spread, measure: &Measure, axis: Axis) -> Vec<String> {
    let mut lines = vec![
        shortened(&line.name(), 40),
        with_label(place.x, axis.label),
        // A line of its own: both together are wider than a telephone's chart.
        measure.with_unit(spread.median),
    ];
    if spread.rounds > 1 {
        lines.push(format!(
            "{} rounds, {} to {}",
            spread.rounds,
            measure.number(spread.interval.low),
            measure.number(spread.interval.high)
        ));
    }
    if has_errors(place) {
        lines.push("with errors, see below".to_owned());
    }
    if !place.doubts.is_empty() {
        lines.push("doubtful, see below".to_owned());
    }
    lines
}

/// `8 clients`, and `1 client`.
pub fn with_label(x: f64, label: &str) -> String {
    let singular = label.strip_suffix('s').filter(|word| x == 1.0 && !word.contains('_'));
    format!("{} {}", number(x), singular.unwrap_or(label))
}

pub fn shortened(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters.saturating_sub(1)).collect();
    kept + "…"
}

/// Which line looks how: a target keeps its colour throughout a report, and its series differ by their dashes; where there
/// is one target only, colours tell its series apart.
pub fn styles(data: &Dataset, targets: &BTreeMap<String, usize>) -> Vec<Style> {
    let mut series: Vec<&str> = Vec::new();
    let mut own: Vec<&str> = Vec::new();
    for line in &data.lines {
        if !series.contains(&line.series.as_str()) {
            series.push(&line.series);
        }
        if !own.contains(&line.target.as_str()) {
            own.push(&line.target);
        }
    }
    let number_of = |name: &str| series.iter().position(|known| *known == name).unwrap_or_default();
    let style = |line: &Line| {
        let colour = targets.get(&line.target).copied().unwrap_or_default();
        if own.len() < 2 {
            Style::of(colour + number_of(&line.series))
        } else {
            Style { variant: number_of(&line.series), ..Style::of(colour) }
        }
    };
    data.lines.iter().map(style).collect()
}

/// What is drawn of an interval: of two rounds one may reach to ten times the figure, and would leave no room for any.
pub fn bar(spread: &Spread) -> (f64, f64) {
    let most = if spread.median > 0.0 { BAR_TIMES_MAX * spread.median } else { f64::INFINITY };
    (spread.interval.low, spread.interval.high.min(most))
}

const BAR_TIMES_MAX: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_measure::journal::{Point, Record};

    const AXIS: Axis = Axis { label: "clients", logarithmic: true };

    fn point(series: &str, target: &str, x: f64, tps: f64) -> Point {
        let [experiment, series, target] = ["e", series, target].map(str::to_owned);
        let values = BTreeMap::from([("tps".to_owned(), tps)]);
        Point { experiment, series, target, x, round: 1, values, ..Point::default() }
    }

    #[test]
    fn a_plot_has_a_curve_per_line_with_what_is_wrong_with_its_places() {
        let mut doubtful = point("", "a", 8.0, 300.0);
        doubtful.doubts.push("pgbench was at its limit".to_owned());
        doubtful.errors.insert("too many clients".to_owned(), 3);
        let absent = Absent {
            experiment: "e".to_owned(),
            series: String::new(),
            target: "a".to_owned(),
            x: Some(4.0),
            reason: "refused".to_owned(),
        };
        let mut refused = point("", "a", 16.0, 0.0);
        refused.values.clear();
        refused.errors.insert("too many clients".to_owned(), 16);
        let records = [
            Record::Point(point("", "a", 1.0, 10.0)),
            Record::Absent(absent),
            Record::Point(doubtful),
            Record::Point(refused),
        ];
        let data = &Dataset::all(&records)[0];
        let measure = Measure::of("tps", &[], 300.0);
        let plot = Plot::of(data, &measure, Better::Higher, AXIS, &[Style::of(1)]).unwrap();
        let dots = &plot.curves[0].dots;
        assert_eq!(
            dots.iter().map(|dot| (dot.x, dot.doubtful, dot.failing, dot.after_gap)).collect::<Vec<_>>(),
            [(1.0, false, false, false), (8.0, true, true, true)]
        );
        assert_eq!(plot.xs(), [1.0, 8.0, 16.0]);
        assert_eq!(plot.curves[0].failures.iter().map(|failure| failure.x).collect::<Vec<_>>(), [16.0]);
        assert_eq!(plot.wide_range(), Some((10.0, 300.0)));
        assert!(plot.description().contains("a: 10 at 1, highest 300 at 8, 300 at 8."), "{}", plot.description());
        assert!(Plot::of(data, &Measure::of("cpu", &[], 0.0), Better::Lower, AXIS, &[Style::of(1)]).is_none());
    }

    #[test]
    fn a_target_keeps_its_colour_and_series_differ_by_dashes() {
        let records = [("1 active", "a"), ("1 active", "b"), ("48 active", "a"), ("48 active", "b")]
            .map(|(series, target)| Record::Point(point(series, target, 1.0, 1.0)));
        let targets = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        let style = |index, variant| Style { variant, ..Style::of(index) };
        assert_eq!(styles(&Dataset::all(&records)[0], &targets), [style(1, 0), style(2, 0), style(1, 1), style(2, 1)]);
        let alone = [records[0].clone(), records[2].clone()];
        assert_eq!(styles(&Dataset::all(&alone)[0], &targets), [style(1, 0), style(2, 0)]);
    }
}
