//! A chart as a picture for slides: it stands alone, with its title, legend, source and machine.
//!
//! Knows plots; does not know the page.

use super::chapter::Chapter;
use super::chart::{self, Frame};
use super::page::gibibytes;
use super::plot::{Plot, shortened};
use weir_measure::drawing::canvas::{Anchor, Canvas, LIGHT, Style, coordinate, width_of};

const WIDTH: f64 = 1280.0;
const HEIGHT: f64 = 720.0;
const MARGIN: f64 = 48.0;
const LEGEND_FONT: f64 = 18.0;
const LEGEND_LINE: f64 = 28.0;
const NAME_LETTERS: usize = 60;

pub fn svg(chapter: &Chapter, plot: &Plot) -> String {
    let title = format!("{}: {}", chapter.title(), plot.title);
    let mut canvas = Canvas::new(WIDTH, HEIGHT, &title);
    canvas.bold((MARGIN, 58.0), 30.0, Anchor::Start, LIGHT.text, fitted(chapter.title(), 30.0));
    let words = [plot.title.as_str(), plot.unit.as_str(), plot.note.as_str()];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    canvas.text((MARGIN, 90.0), 19.0, Anchor::Start, LIGHT.faint, fitted(&words.join(", "), 19.0));
    let top = legend(&mut canvas, plot);
    let footer = footer(chapter, plot);
    let foot = HEIGHT - 22.0 - 20.0 * coordinate(footer.len());
    let frame = Frame {
        left: MARGIN,
        top,
        width: WIDTH - 2.0 * MARGIN,
        height: foot - top - 14.0,
        font: 17.0,
        mark: 6.5,
        hints: false,
    };
    chart::draw(&mut canvas, plot, &frame, false);
    for (index, line) in footer.iter().enumerate() {
        let at = (MARGIN, foot + 20.0 * (coordinate(index) + 1.0));
        canvas.text(at, 14.0, Anchor::Start, LIGHT.faint, fitted(line, 14.0));
    }
    canvas.finish()
}

/// As many letters as fit between the margins.
fn fitted(text: &str, size: f64) -> String {
    let mut letters = text.chars().count();
    while letters > 1 && width_of(&shortened(text, letters), size) > WIDTH - 2.0 * MARGIN {
        letters -= 1;
    }
    shortened(text, letters)
}

/// In as many rows as it needs; where the next thing may begin.
fn legend(canvas: &mut Canvas, plot: &Plot) -> f64 {
    let (mut x, mut y) = (MARGIN, 124.0);
    for curve in &plot.curves {
        let name = shortened(&curve.name, NAME_LETTERS);
        let width = 42.0 + width_of(&name, LEGEND_FONT) + 26.0;
        if x > MARGIN && x + width > WIDTH - MARGIN {
            (x, y) = (MARGIN, y + LEGEND_LINE);
        }
        sample(canvas, (x, y), curve.style);
        canvas.text((x + 40.0, y + 6.0), LEGEND_FONT, Anchor::Start, LIGHT.text, name);
        x += width;
    }
    y + LEGEND_LINE * 0.8
}

fn sample(canvas: &mut Canvas, at: (f64, f64), style: Style) {
    chart::sample(canvas, at, style);
}

fn footer(chapter: &Chapter, plot: &Plot) -> Vec<String> {
    let mut lines = Vec::new();
    let sources = chapter.about.map(|about| about.sources).unwrap_or_default();
    if let Some(source) = sources.first() {
        lines.push(format!("After {}, {} ({}), {}", source.authors, source.title, source.year, source.url));
    }
    if let Some(run) = chapter.run() {
        let machine = &run.machine;
        let kind = if machine.virtual_machine { ", a virtual machine" } else { "" };
        lines.push(format!(
            "Measured {} on {} cores of {}, {} of memory{kind}",
            run.date,
            machine.cores,
            machine.processor,
            gibibytes(machine),
        ));
        lines.push(format!("{}, Linux {}; {}", machine.system, machine.kernel, run.pgbench));
    }
    let mut signs = Vec::new();
    if plot.has_spreads() {
        signs.push("Marks: medians of the rounds; bars: 95 % intervals");
    }
    if plot.has_doubts() {
        signs.push("dashed ring: doubtful");
    }
    if plot.has_errors() {
        signs.push("cross: errors came");
    }
    if plot.curves.iter().any(|curve| !curve.signs.is_empty()) {
        signs.push("upright stroke: predicted peak; ring: predicted knee");
    }
    if !chapter.data.complete {
        signs.push("the run ended before the experiment did");
    }
    if !signs.is_empty() {
        lines.push(signs.join("; "));
    }
    lines
}
