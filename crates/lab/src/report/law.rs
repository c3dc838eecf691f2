//! The Universal Scalability Law beside the measured throughput: its curve, its peak and knee, and whether it fits.
//!
//! Knows what the model says of a line; does not know how it is fitted.

use maud::{Markup, html};

use super::chapter::Chapter;
use super::figures::{Measure, number};
use super::plot::{Curve, Plot, Sign, SignKind, shortened};
use super::{queue, section, tables};
use crate::dataset::Line;
use crate::experiment::{Better, values};
use crate::model;
use crate::model::Interval;
use crate::model::usl::Fit;

/// Of a curve.
const STEPS: usize = 60;

/// A line of an experiment, and the law that was fitted to it, or why none could be.
pub struct Fitted {
    pub line: usize,
    pub fit: Result<Fit, String>,
}

/// One per line where the experiment varies its active clients; none for others.
pub fn fit(chapter: &Chapter) -> Vec<Fitted> {
    if !chapter.about.is_some_and(|about| about.fit) {
        return Vec::new();
    }
    let lines = chapter.data.lines.iter().enumerate();
    let measured = lines.filter(|(_, line)| line.peak(values::TPS).is_some());
    measured.map(|(index, line)| Fitted { line: index, fit: model::fit(&line.curve(values::TPS)) }).collect()
}

/// Measured marks and fitted curves; `None` where no law could be fitted.
pub fn plot(chapter: &Chapter, fitted: &[Fitted]) -> Option<Plot> {
    let measure = chapter.measure(values::TPS)?;
    let axis = chapter.about?.axis;
    let mut plot = Plot::of(&chapter.data, measure, Better::Higher, axis, &chapter.styles)?;
    let mut any = false;
    for curve in &mut plot.curves {
        curve.joined = false;
        let of_line = fitted.iter().find(|fitted| Some(fitted.line) == curve.line);
        if let Some(Ok(fit)) = of_line.map(|fitted| &fitted.fit) {
            curve.dashed = fit.curve(STEPS).into_iter().map(|(x, value)| (x, measure.scaled(value))).collect();
            curve.signs = signs(curve, fit, measure);
            any = true;
        }
    }
    plot.title = format!("{}, measured and fitted", measure.title);
    "marks: measured; dashed: the law".clone_into(&mut plot.note);
    any.then_some(plot)
}

/// Where they lie within what was measured: beyond it the chart would have to grow for a guess.
fn signs(curve: &Curve, fit: &Fit, measure: &Measure) -> Vec<Sign> {
    let law = &fit.law;
    let all = [
        (SignKind::Peak, "predicted peak", law.peak_clients(), fit.peak_clients),
        (SignKind::Knee, "predicted knee", law.knee(), fit.knee),
    ];
    let within = all.into_iter().filter(|(_, _, x, _)| *x >= fit.range.0 && *x <= fit.range.1);
    let sign = |(kind, words, x, bounds): (SignKind, &str, f64, Interval)| {
        let value = law.throughput(x);
        let hint = vec![
            shortened(&curve.name, 40),
            format!("{words}: {} clients ({})", rounded(x), range(bounds)),
            format!("there: {}", measure.with_unit(value)),
        ];
        Sign { kind, x, value: measure.scaled(value), hint }
    };
    within.map(sign).collect()
}

/// As the law's numbers are no measurements, they have no digits of one.
fn rounded(value: f64) -> String {
    if value.is_infinite() {
        "none".to_owned()
    } else if value >= 10.0 {
        number(value.round())
    } else {
        number(value)
    }
}

fn range(bounds: Interval) -> String {
    let high = if bounds.high.is_infinite() { "no bound".to_owned() } else { rounded(bounds.high) };
    if bounds.low.is_infinite() { high } else { format!("{} – {high}", rounded(bounds.low)) }
}

pub fn part(chapter: &Chapter, fitted: &[Fitted]) -> Markup {
    if fitted.is_empty() {
        return html! {};
    }
    let plot = plot(chapter, fitted);
    html! {
        h3 { "A model beside the measurements" }
        div.charts.pairs {
            @if let Some(plot) = &plot { (section::small(plot, section::signs())) }
            div {
                p {
                    "The Universal Scalability Law takes three figures: what one client gets alone; contention, the part of \
                     the work that is done one after the other; and coherency, what each pair of clients costs. From them \
                     follow a peak, beyond which more clients bring less, and a knee, up to which each brings nearly its own \
                     share. Where it misses the measured points, trust the points."
                }
                (doubts(chapter, fitted))
            }
        }
        @if plot.is_some() { (table(chapter, fitted)) }
        (queue::part(chapter))
    }
}

fn doubts(chapter: &Chapter, fitted: &[Fitted]) -> Markup {
    let sentences = |fitted: &Fitted| match &fitted.fit {
        Ok(fit) => fit.doubts.join(" "),
        Err(reason) => format!("No law: {reason}."),
    };
    let doubted = || fitted.iter().filter(|fitted| !fitted.fit.as_ref().is_ok_and(Fit::is_good));
    html! {
        @if doubted().next().is_none() { p { "It describes every line here well." } }
        @else { ul { @for fitted in doubted() {
            li { strong { (name(chapter, fitted)) } ": " (sentences(fitted)) }
        } } }
    }
}

fn name(chapter: &Chapter, fitted: &Fitted) -> String {
    chapter.data.lines.get(fitted.line).map(Line::name).unwrap_or_default()
}

fn table(chapter: &Chapter, fitted: &[Fitted]) -> Markup {
    let Some(measure) = chapter.measure(values::TPS) else { return html! {} };
    let good = fitted.iter().filter_map(|fitted| Some((fitted, fitted.fit.as_ref().ok()?)));
    let table = html! { table {
        thead { tr {
            th scope="col" { "Line" }
            th scope="col" { "Measured peak" small { (measure.unit) } }
            th scope="col" { "Predicted most" small { (measure.unit) } }
            th scope="col" { "Predicted peak" small { "clients" } }
            th scope="col" { "Measured knee" small { "clients" } }
            th scope="col" { "Predicted knee" small { "clients" } }
            th scope="col" { "Contention" small { "%" } }
            th scope="col" { "Coherency" small { "of a million" } }
            th scope="col" { "Misses by" small { "%, on average" } }
        } }
        tbody { @for (fitted, fit) in good {
            tr {
                th scope="row" { (name(chapter, fitted)) @if !fit.is_good() { " " span.doubt title="bad fit" { "?" } } }
                (tables::measured_peak(&chapter.data.lines[fitted.line], measure))
                td { @if fit.law.ceiling().is_finite() { (measure.number(fit.law.ceiling())) } @else { "none" } }
                (cell(fit.law.peak_clients(), fit.peak_clients, 1.0))
                (tables::measured_knee(&chapter.data.lines[fitted.line]))
                (cell(fit.law.knee(), fit.knee, 1.0))
                (cell(fit.law.sigma, fit.sigma, 100.0))
                (cell(fit.law.kappa, fit.kappa, 1e6))
                td { (number(fit.error * 100.0)) }
            }
        } }
    } };
    html! {
        p.faint {
            "Below each predicted figure: what it is in 95 of 100 repetitions of the fit. The measured knee is where clients that \
             all did as much as those of the line's first place would reach the measured peak."
        }
        (tables::boxed("The law of each line", &table))
    }
}

/// A figure of a fit, and its bounds below it.
pub(super) fn cell(value: f64, bounds: impl Into<Option<Interval>>, factor: f64) -> Markup {
    let scaled = |bounds: Interval| Interval { low: bounds.low * factor, high: bounds.high * factor };
    let bounds = bounds.into().map(scaled);
    html! { td { (rounded(value * factor)) @if let Some(bounds) = bounds { small { (range(bounds)) } } } }
}
