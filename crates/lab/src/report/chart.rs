//! A plot on a canvas: axes with numbers, lines, spreads, marks, and what is wrong with them.
//!
//! Knows plots, not where they come from.

use super::figures::{number, tick};
use super::plot::{Curve, Dot, Plot, SignKind, bar};
use weir_measure::drawing::canvas::{Anchor, Canvas, Style, coordinate, width_of};
use weir_measure::drawing::scale::{Across, Height};

/// The room that a chart has, and how large its letters and marks are.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
    pub font: f64,
    pub mark: f64,
    /// Whether marks answer a pointer.
    pub hints: bool,
}

/// On a page as wide as a desk's screen.
pub const WIDE: Frame = Frame { left: 0.0, top: 0.0, width: 1072.0, height: 400.0, font: 13.0, mark: 5.0, hints: true };
/// On a telephone, and where several stand side by side.
pub const NARROW: Frame =
    Frame { left: 0.0, top: 0.0, width: 340.0, height: 264.0, font: 11.5, mark: 4.0, hints: true };

/// Between the frame's edge and the first and last value along the axis.
const INSET_SHARE: f64 = 0.035;
/// Lines' marks at one place stand so far apart, so that their spreads can be told apart.
const DODGE: f64 = 3.0;
const HEIGHT_STEPS: f64 = 5.0;

/// Where values stand on the canvas.
struct Ground {
    left: f64,
    right: f64,
    top: f64,
    foot: f64,
    across: Across,
    height: Height,
    dodge: f64,
}

impl Ground {
    fn new(plot: &Plot, frame: &Frame, logarithmic: bool) -> Ground {
        let height = match plot.wide_range().filter(|_| logarithmic) {
            Some((smallest, largest)) => Height::logarithmic(smallest, largest),
            None if plot.unit == "%" && plot.largest() <= 100.0 => Height::linear(100.0, HEIGHT_STEPS),
            None => Height::linear(plot.largest(), HEIGHT_STEPS),
        };
        let widest = height.ticks.iter().map(|value| width_of(&tick(*value), frame.font)).fold(0.0, f64::max);
        let mut xs = plot.xs();
        xs.extend(plot.curves.iter().flat_map(|curve| &curve.dashed).map(|(x, _)| *x));
        let across = Across::new(&xs, plot.logarithmic);
        let mut ground = Ground {
            left: frame.left + widest + 12.0,
            right: frame.left + frame.width - 8.0,
            top: frame.top + frame.font,
            foot: frame.top + frame.height - 3.4 * frame.font,
            across,
            height,
            dodge: 0.0,
        };
        ground.dodge = ground.room_for_dodging(plot);
        ground
    }

    /// No dodge so wide that a mark comes nearer to its neighbour than to its place.
    fn room_for_dodging(&self, plot: &Plot) -> f64 {
        let lines = coordinate(plot.curves.len().max(2) - 1);
        let places: Vec<f64> = plot.xs().iter().map(|x| self.x(*x)).collect();
        let nearest = places.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
        DODGE.min(nearest * 0.4 / lines)
    }

    fn x(&self, value: f64) -> f64 {
        let inset = (self.right - self.left) * INSET_SHARE + 4.0;
        self.left + inset + self.across.share(value) * (self.right - self.left - 2.0 * inset)
    }

    fn y(&self, value: f64) -> f64 {
        self.foot - self.height.share(value) * (self.foot - self.top)
    }
}

/// Draws the plot into the frame; a logarithmic height where the plot has the range for it.
pub fn draw(canvas: &mut Canvas, plot: &Plot, frame: &Frame, logarithmic: bool) {
    let ground = Ground::new(plot, frame, logarithmic);
    heights(canvas, &ground, frame);
    places(canvas, plot, &ground, frame);
    let middle = coordinate(plot.curves.len().saturating_sub(1)) / 2.0;
    for (index, curve) in plot.curves.iter().enumerate() {
        canvas.group(&class_of(curve));
        draw_curve(canvas, curve, &ground, frame, (coordinate(index) - middle) * ground.dodge);
        canvas.end_group();
    }
    if !frame.hints {
        return;
    }
    // After all that is drawn, so that no mark covers what a pointer is told.
    let bounds = (frame.left + frame.width, frame.top + frame.height);
    for (index, curve) in plot.curves.iter().enumerate() {
        canvas.group(&class_of(curve));
        for dot in &curve.dots {
            let x = ground.x(dot.x) + (coordinate(index) - middle) * ground.dodge;
            canvas.hint((x, ground.y(dot.spread.median)), bounds, &dot.hint);
        }
        for failure in &curve.failures {
            let x = ground.x(failure.x) + (coordinate(index) - middle) * ground.dodge;
            canvas.hint((x, ground.foot - frame.mark * 1.6), bounds, &failure.hint);
        }
        for sign in &curve.signs {
            canvas.hint((ground.x(sign.x), ground.y(sign.value)), bounds, &sign.hint);
        }
        canvas.end_group();
    }
}

fn class_of(curve: &Curve) -> String {
    curve.line.map_or("published".to_owned(), |line| format!("line-{line}"))
}

fn heights(canvas: &mut Canvas, ground: &Ground, frame: &Frame) {
    let palette = canvas.palette;
    for (index, value) in ground.height.ticks.iter().enumerate() {
        let y = ground.y(*value);
        let colour = if index == 0 { palette.faint } else { palette.grid };
        canvas.line((ground.left, y), (ground.right, y), colour, 1.0, "");
        let at = (ground.left - 7.0, y + frame.font * 0.35);
        canvas.text(at, frame.font, Anchor::End, palette.faint, tick(*value));
    }
}

/// Numbers along the axis: as many as have room, the first and the last in any case.
fn places(canvas: &mut Canvas, plot: &Plot, ground: &Ground, frame: &Frame) {
    let palette = canvas.palette;
    let baseline = ground.foot + frame.font * 1.45;
    for (x, label) in labels(&plot.xs(), ground, frame) {
        canvas.line((x, ground.foot), (x, ground.foot + 4.0), palette.faint, 1.0, "");
        canvas.text((x, baseline), frame.font, Anchor::Middle, palette.faint, label);
    }
    if let Some(gap) = ground.across.gap() {
        let inset = (ground.right - ground.left) * INSET_SHARE + 4.0;
        let x = ground.left + inset + gap * (ground.right - ground.left - 2.0 * inset);
        for shift in [-2.5, 2.5] {
            let (from, to) = ((x + shift - 2.0, ground.foot + 4.0), (x + shift + 2.0, ground.foot - 4.0));
            canvas.line(from, to, palette.faint, 1.2, "");
        }
    }
    let scale = if ground.across.is_logarithmic() { " (logarithmic)" } else { "" };
    let middle = f64::midpoint(ground.left, ground.right);
    let at = (middle, frame.top + frame.height - frame.font * 0.5);
    canvas.text(at, frame.font, Anchor::Middle, palette.faint, format!("{}{scale}", plot.across));
}

fn labels(xs: &[f64], ground: &Ground, frame: &Frame) -> Vec<(f64, String)> {
    let all: Vec<(f64, String, f64)> = xs
        .iter()
        .map(|value| {
            let label = if *value < 10_000.0 { number(*value) } else { tick(*value) };
            let width = width_of(&label, frame.font) + frame.font * 0.6;
            (ground.x(*value), label, width)
        })
        .collect();
    let free =
        |one: &(f64, String, f64), other: &(f64, String, f64)| (one.0 - other.0).abs() >= f64::midpoint(one.2, other.2);
    let mut kept: Vec<&(f64, String, f64)> = all.last().into_iter().collect();
    for label in &all {
        if kept.iter().all(|other| free(label, other)) {
            kept.push(label);
        }
    }
    kept.into_iter().map(|(x, label, _)| (*x, label.clone())).collect()
}

fn draw_curve(canvas: &mut Canvas, curve: &Curve, ground: &Ground, frame: &Frame, dodge: f64) {
    let colour = curve.style.in_colours_of(canvas.palette);
    let model: Vec<(f64, f64)> = curve.dashed.iter().map(|(x, value)| (ground.x(*x), ground.y(*value))).collect();
    canvas.path(&model, colour, 1.8, "5 4");
    for predicted in &curve.signs {
        sign(canvas, predicted.kind, (ground.x(predicted.x), ground.y(predicted.value)), colour);
    }
    if curve.joined {
        for run in curve.dots.chunk_by(|_, next| !next.after_gap) {
            let points: Vec<(f64, f64)> = run.iter().map(|dot| at(dot, ground, dodge)).collect();
            canvas.path(&points, colour, 2.0, curve.style.dashes());
        }
    }
    for failure in &curve.failures {
        let palette = canvas.palette;
        canvas.cross((ground.x(failure.x) + dodge, ground.foot - frame.mark * 1.6), frame.mark * 0.9, palette.error);
    }
    for dot in &curve.dots {
        let place = at(dot, ground, dodge);
        let (low, high) = bar(&dot.spread);
        let (low, high) = (ground.y(low), ground.y(high));
        if low - high > 1.0 {
            spread(canvas, place.0, (low, high), colour);
        }
        canvas.mark(place, frame.mark, curve.style);
        flags(canvas, dot, place, frame.mark);
    }
}

fn at(dot: &Dot, ground: &Ground, dodge: f64) -> (f64, f64) {
    (ground.x(dot.x) + dodge, ground.y(dot.spread.median))
}

fn spread(canvas: &mut Canvas, x: f64, (low, high): (f64, f64), colour: &str) {
    canvas.line((x, low), (x, high), colour, 1.4, "");
    for y in [low, high] {
        canvas.line((x - 2.5, y), (x + 2.5, y), colour, 1.4, "");
    }
}

/// A dashed ring around what is doubtful, a cross above what had errors; a cross at the foot is all there is of a place
/// where nothing but errors came.
fn flags(canvas: &mut Canvas, dot: &Dot, (x, y): (f64, f64), mark: f64) {
    let palette = canvas.palette;
    if dot.doubtful {
        canvas.ring((x, y), mark * 2.0, palette.doubt, "3 2");
    }
    if dot.failing {
        canvas.cross((x, y - mark * 3.0), mark * 0.75, palette.error);
    }
}

/// A peak is a stroke upright through the curve, a knee a ring on it.
pub fn sign(canvas: &mut Canvas, kind: SignKind, (x, y): (f64, f64), colour: &str) {
    match kind {
        SignKind::Peak => canvas.line((x, y - 8.0), (x, y + 8.0), colour, 2.4, ""),
        SignKind::Knee => canvas.ring((x, y), 5.5, colour, ""),
    }
}

/// A line with its mark, as it stands in a legend.
pub fn sample(canvas: &mut Canvas, (x, y): (f64, f64), style: Style) {
    canvas.line((x, y), (x + 30.0, y), style.in_colours_of(canvas.palette), 2.0, style.dashes());
    canvas.mark((x + 15.0, y), 4.5, style);
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_measure::statistics::Spread;

    fn dot(x: f64, value: f64) -> Dot {
        let spread = Spread::of([value * 0.9, value, value * 1.1]).unwrap();
        Dot { x, spread, doubtful: false, failing: false, after_gap: false, hint: vec!["hint".to_owned()] }
    }

    fn plot(dots: Vec<Dot>) -> Plot {
        let curve =
            Curve { line: Some(0), name: "a".to_owned(), style: Style::of(1), dots, joined: true, ..Curve::default() };
        let [title, unit, note, across] = ["Throughput", "TPS", "", "clients"].map(str::to_owned);
        Plot { title, unit, note, across, logarithmic: true, curves: vec![curve] }
    }

    fn picture(plot: &Plot) -> String {
        let mut canvas = Canvas::within_page(NARROW.width, NARROW.height, "chart", "");
        draw(&mut canvas, plot, &NARROW, false);
        canvas.finish()
    }

    #[test]
    fn each_value_has_a_mark_and_no_line_leads_over_a_gap() {
        let mut dots: Vec<Dot> = [1.0, 2.0, 4.0, 8.0].map(|x| dot(x, x * 100.0)).into();
        assert_eq!(picture(&plot(dots.clone())).matches("<path").count(), 1);
        dots[2].after_gap = true;
        dots[3].doubtful = true;
        dots[3].failing = true;
        let picture = picture(&plot(dots));
        assert_eq!(picture.matches("<polygon").count(), 4);
        assert_eq!(picture.matches("<path").count(), 2);
        assert_eq!(picture.matches("class=\"hint\"").count(), 4);
        assert!(
            picture.contains(weir_measure::drawing::canvas::PAGE.doubt)
                && picture.contains(weir_measure::drawing::canvas::PAGE.error)
        );
    }

    #[test]
    fn a_chart_of_one_place_is_drawn() {
        let picture = picture(&plot(vec![dot(8.0, 0.0)]));
        assert!(picture.contains("<polygon") && !picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }

    #[test]
    fn labels_stand_apart_and_the_last_one_stays() {
        let dots = (1..40).map(|x| dot(f64::from(x) * 25.0, 1.0)).collect();
        let plot = plot(dots);
        let ground = Ground::new(&plot, &NARROW, false);
        let mut labels = labels(&plot.xs(), &ground, &NARROW);
        labels.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert_eq!(labels.last().map(|(_, label)| label.as_str()), Some("975"));
        assert!(labels.len() > 4 && labels.windows(2).all(|pair| pair[1].0 - pair[0].0 > 20.0), "{labels:?}");
    }
}
