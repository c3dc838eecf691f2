//! Our figures beside the source's: each line relative to its own highest or first value, so that shapes can be compared
//! and sizes cannot be mixed up.
//!
//! Knows what was published and measured; does not know how it is drawn.

use super::chapter::Chapter;
use super::figures::number;
use super::plot::{Curve, Dot, Plot, shortened, with_label};
use crate::experiment::{About, Published};
use weir_measure::drawing::canvas::Style;
use weir_measure::statistics::Spread;

/// The key that the chart compares, and the chart; `None` without two published points and two measured ones.
pub fn plot(chapter: &Chapter) -> Option<(&'static str, Plot)> {
    let about = chapter.about?;
    let key = about.published.iter().find(|published| published.points.len() > 1)?.key;
    let measure = chapter.measure(key)?;
    let lines = chapter.data.lines.iter().enumerate();
    let ours = lines.filter_map(|(index, line)| {
        let dots = relative(&line.curve(key), about, &line.name());
        (dots.len() > 1).then(|| Curve {
            line: Some(index),
            name: line.name(),
            style: chapter.styles[index],
            dots,
            joined: true,
            ..Curve::default()
        })
    });
    let ours: Vec<Curve> = ours.collect();
    if ours.is_empty() {
        return None;
    }
    let theirs = about.published.iter().filter(|published| published.key == key && published.points.len() > 1);
    let theirs = theirs.enumerate().map(|(index, published)| published_curve(index, published, about));
    let plot = Plot {
        title: format!("{} beside the source's", measure.title),
        unit: "%".to_owned(),
        note: if about.fit { "of each line's highest figure" } else { "of each line's first figure" }.to_owned(),
        across: about.axis.label.to_owned(),
        logarithmic: about.axis.logarithmic,
        curves: theirs.chain(ours).collect(),
    };
    Some((key, plot))
}

fn published_curve(index: usize, published: &Published, about: &About) -> Curve {
    // Grey with marks of its own: it is not one of ours.
    let style = Style { colour: 0, shape: index, variant: 1 };
    let name = published.name.to_owned();
    Curve { line: None, style, dots: relative(published.points, about, &name), name, joined: true, ..Curve::default() }
}

fn relative(points: &[(f64, f64)], about: &About, name: &str) -> Vec<Dot> {
    let highest = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let first = points.first().map_or(0.0, |(_, value)| *value);
    let whole = if about.fit { highest } else { first };
    if whole <= 0.0 {
        return Vec::new();
    }
    let dot = |(x, value): &(f64, f64)| {
        let percent = 100.0 * value / whole;
        Dot {
            x: *x,
            spread: Spread::alone(percent),
            doubtful: false,
            failing: false,
            after_gap: false,
            hint: vec![
                shortened(name, 40),
                format!("{}: {percent:.0} %", with_label(*x, about.axis.label)),
                format!("{} of {}", number(*value), number(whole)),
            ],
        }
    };
    points.iter().map(dot).collect()
}
