//! One experiment's part of the page: the question, what was found, charts, tables, and how to repeat it.
//!
//! Knows the order of reading; tables and charts come from others.

use maud::{Markup, PreEscaped, html};

use super::chapter::Chapter;
use super::chart::{self, Frame, NARROW, WIDE};
use super::figures::number;
use super::plot::{self, Curve, Plot, SignKind};
use super::{cost, law, page, shape, tables};
use crate::experiment::{About, FindingKind};
use weir_measure::drawing::canvas::{Canvas, PAGE, Style};

const KINDS: [(FindingKind, &str); 4] = [
    (FindingKind::Shows, "What it shows"),
    (FindingKind::Source, "Beside the source"),
    (FindingKind::Advice, "What to set"),
    (FindingKind::Caution, "Read with care"),
];

/// By its place: a name from a journal may be anything.
pub fn anchor(index: usize) -> String {
    format!("experiment-{}", index + 1)
}

/// What is missing of an experiment, in few words.
pub fn state(chapter: &Chapter) -> Option<&'static str> {
    match (chapter.about, chapter.data.lines.is_empty(), chapter.data.complete) {
        (None, _, _) => Some("unknown to this version"),
        (_, true, _) => Some("nothing measured"),
        (_, false, false) => Some("not to the end"),
        _ => None,
    }
}

pub fn section(chapter: &Chapter, index: usize) -> Markup {
    html! {
        section.experiment id=(anchor(index)) aria-labelledby={ (anchor(index)) "-title" } {
            h2 id={ (anchor(index)) "-title" } { (chapter.title()) code { (chapter.data.experiment) } }
            @if let Some(about) = chapter.about { (introduction(about)) }
            (notices(chapter))
            (findings(chapter))
            (charts(chapter, index))
            (tables::highlights(chapter))
            (tables::errors(chapter))
            (tables::doubts(chapter))
            (tables::absent(chapter))
            (law::part(chapter, &law::fit(chapter)))
            (cost::part(chapter))
            (method(chapter))
            div.more {
                (tables::all(chapter))
                @if let Some(about) = chapter.about { (tables::published(about)) }
                (tables::commands(chapter))
                (tables::targets(chapter))
            }
        }
    }
}

fn introduction(about: &About) -> Markup {
    html! {
        p.question { (about.question) }
        p.sources {
            @if about.sources.is_empty() { "An experiment of the lab's own." } @else { "After " }
            @for (index, source) in about.sources.iter().enumerate() {
                @if index > 0 { "; " }
                (source.authors) ", " a href=(source.url) rel="noreferrer" { (source.title) } " (" (source.year) ")"
            }
        }
    }
}

fn notices(chapter: &Chapter) -> Markup {
    let data = &chapter.data;
    html! {
        @if chapter.about.is_none() {
            div.notice { p {
                "This version of the lab does not know an experiment of this name: a newer one may have written the journal. \
                 What it measured is in the table below, by the names that stand in the journal."
            } }
        }
        @if !data.complete {
            div.notice {
                p {
                    "The run ended before this experiment did. "
                    @if data.lines.is_empty() { "Nothing of it was measured." } @else { "What follows is what was measured until then." }
                    @if let Some(run) = chapter.run() { " To continue, repeat the command: " code { (run.command) } }
                }
            }
        }
    }
}

fn findings(chapter: &Chapter) -> Markup {
    let texts = |kind: FindingKind| {
        let mut texts = chapter.of_kind(kind);
        if kind == FindingKind::Caution {
            texts.extend(chapter.data.notes.iter().map(String::as_str));
        }
        texts
    };
    let kinds: Vec<(&str, Vec<&str>)> =
        KINDS.into_iter().map(|(kind, title)| (title, texts(kind))).filter(|(_, texts)| !texts.is_empty()).collect();
    html! { @if !kinds.is_empty() {
        div.findings {
            @for (title, texts) in kinds { div { h3 { (title) } ul { @for text in texts { li { (text) } } } } }
        }
    } }
}

fn method(chapter: &Chapter) -> Markup {
    html! { @if let Some(about) = chapter.about.filter(|about| !about.method.is_empty()) {
        div.method {
            h3 { "How it was measured" }
            p {
                @for sentence in about.method { (sentence) " " }
                @if let Some(run) = chapter.run() { "Sizes: " (page::sizes(run.sizes.as_ref())) "." }
            }
        }
    } }
}

fn charts(chapter: &Chapter, index: usize) -> Markup {
    let plots = chapter.plots();
    let shape = shape::plot(chapter);
    let zeros = chapter.zeros();
    let Some((_, main)) = plots.first() else { return html! { (all_zero(&zeros)) } };
    let all = || plots.iter().map(|(_, plot)| plot).chain(shape.iter().map(|(_, plot)| plot));
    html! {
        (controls(chapter, index, plots.iter().any(|(_, plot)| plot.wide_range().is_some())))
        figure.card.main {
            (caption(main))
            (pictures(main, &WIDE, "wide"))
            (pictures(main, &NARROW, "narrow"))
        }
        @let beside = plots.len() - 1 + usize::from(shape.is_some());
        @if beside > 0 {
            div.charts.pairs[matches!(beside, 1 | 2 | 4)] {
                @for (_, plot) in &plots[1..] { (small(plot, html! {})) }
                @if let Some((_, plot)) = &shape { (small(plot, key(plot))) }
            }
        }
        (all_zero(&zeros))
        (marks(all().any(Plot::has_doubts), all().any(Plot::has_errors), all().any(Plot::has_spreads)))
    }
}

/// What is not drawn is said.
fn all_zero(titles: &[String]) -> Markup {
    html! { @if !titles.is_empty() { p.marks { "Zero in every round, and not drawn: " (titles.join("; ")) "." } } }
}

pub fn small(plot: &Plot, below: Markup) -> Markup {
    html! { figure.card { (caption(plot)) (pictures(plot, &NARROW, "narrow")) (below) } }
}

fn caption(plot: &Plot) -> Markup {
    let words = [plot.unit.as_str(), plot.note.as_str()];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    html! { figcaption { strong { (plot.title) } span { (words.join(", ")) } } }
}

/// The chart, and where it tells more, the same with a logarithmic height, of which the style sheet shows one.
fn pictures(plot: &Plot, frame: &Frame, size: &str) -> Markup {
    let picture = |class: &str, logarithmic: bool| {
        let mut canvas = Canvas::within_page(frame.width, frame.height, class, &plot.description());
        chart::draw(&mut canvas, plot, frame, logarithmic);
        PreEscaped(canvas.finish())
    };
    html! {
        div class=(size) {
            @if plot.wide_range().is_some() {
                (picture("chart linear", false))
                (picture("chart logarithmic", true))
            } @else {
                (picture("chart", false))
            }
        }
    }
}

/// Which line looks how, and which ones to show: the style sheet hides what is not ticked.
fn controls(chapter: &Chapter, index: usize, has_scale: bool) -> Markup {
    html! {
        fieldset.controls aria-label={ "Lines of " (chapter.title()) } {
            @for (number, (line, style)) in chapter.data.lines.iter().zip(&chapter.styles).enumerate() {
                label {
                    input type="checkbox" class={ "show-" (number) } name={ "show-" (index) "-" (number) } checked autocomplete="off";
                    (sample(*style)) span { (line.name()) }
                }
            }
            @if has_scale {
                label.scale { input type="checkbox" name={ "scale-" (index) } autocomplete="off"; span { "logarithmic height" } }
            }
        }
    }
}

fn sample(style: Style) -> PreEscaped<String> {
    decoration((34.0, 16.0), |canvas| chart::sample(canvas, (2.0, 8.0), style))
}

/// A small picture beside words that say the same.
fn decoration((width, height): (f64, f64), draw: impl FnOnce(&mut Canvas)) -> PreEscaped<String> {
    let mut canvas = Canvas::decoration(width, height);
    draw(&mut canvas);
    PreEscaped(canvas.finish())
}

/// Of curves that the controls do not name.
pub fn key(plot: &Plot) -> Markup {
    let theirs: Vec<&Curve> = plot.curves.iter().filter(|curve| curve.line.is_none()).collect();
    html! { ul.key { @for curve in theirs { li { (sample(curve.style)) span { (curve.name) } } } } }
}

/// What a model's signs mean.
pub fn signs() -> Markup {
    let sign = |kind: SignKind| {
        let draw = |canvas: &mut Canvas| chart::sign(canvas, kind, (10.0, 10.0), PAGE.faint);
        decoration((20.0, 20.0), draw)
    };
    html! { ul.marks {
        li { (sign(SignKind::Peak)) "predicted peak" }
        li { (sign(SignKind::Knee)) "predicted knee" }
    } }
}

fn marks(doubts: bool, errors: bool, spreads: bool) -> Markup {
    let place = (10.0, 10.0);
    html! {
        ul.marks {
            @if spreads { li { "Marks: median of the rounds; bars: 95 % interval" } }
            @else { li { "Marks: one round each" } }
            @if doubts {
                li { (decoration((20.0, 20.0), |canvas| {
                    canvas.mark(place, 4.0, Style::of(0));
                    canvas.ring(place, 8.0, PAGE.doubt, "3 2");
                })) "doubtful: the reasons are below" }
            }
            @if errors { li { (decoration((20.0, 20.0), |canvas| canvas.cross(place, 4.0, PAGE.error))) "errors came (at the foot: nothing else): they are counted below" } }
        }
    }
}

/// `8 clients`.
pub fn place_name(chapter: &Chapter, x: f64) -> String {
    match chapter.about {
        Some(about) => plot::with_label(x, about.axis.label),
        None => number(x),
    }
}
