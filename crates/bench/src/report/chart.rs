//! A part's figures as a picture: a row of panels per figure, a panel per load, a line per peer, clients across.
//!
//! Knows rows and drawings, not what the figures mean.

use weir_measure::drawing::canvas::{Anchor, Canvas, LIGHT, Style, coordinate};
use weir_measure::drawing::scale::round_step;
use weir_measure::statistics::Spread;

use super::summary::Row;
use crate::parts::{Better, Drawing, Figure};
use crate::peers::DIRECT;

const PANEL_WIDTH: f64 = 270.0;
const PANEL_HEIGHT: f64 = 190.0;
const COLUMN_GAP: f64 = 34.0;
/// A legend of five peers, which one panel would not leave room for.
const LEGEND_WIDTH: f64 = 760.0;
const ROW_GAP: f64 = 104.0;
const LEFT: f64 = 66.0;
const TOP: f64 = 122.0;
const RIGHT: f64 = 24.0;
const BOTTOM: f64 = 58.0;
/// Room between a panel's edge and its first and last number of clients.
const INSET: f64 = 26.0;
/// Lines of one number of clients stand this far apart, so that their spreads can be told apart.
const DODGE: f64 = 6.0;
const TICKS: f64 = 5.0;
/// Half a mark's width.
const MARK: f64 = 4.5;

pub fn svg(drawing: &Drawing, figures: &[Figure], rows: &[Row]) -> String {
    let mut loads: Vec<&str> = rows.iter().map(|row| row.what).collect();
    loads.dedup();
    let drawn: Vec<&Figure> = figures.iter().filter(|figure| drawing.figures.contains(&figure.key)).collect();
    let columns = coordinate(loads.len());
    let panels = columns * PANEL_WIDTH + (columns - 1.0).max(0.0) * COLUMN_GAP;
    let width = (LEFT + panels + RIGHT).max(LEGEND_WIDTH);
    let bands = coordinate(drawn.len());
    let height = TOP + bands * PANEL_HEIGHT + (bands - 1.0).max(0.0) * ROW_GAP + BOTTOM;
    let mut canvas = Canvas::new(width, height, drawing.title);
    let lines = lines(rows);
    legend(&mut canvas, &lines);
    for (band, figure) in drawn.into_iter().enumerate() {
        let y = TOP + coordinate(band) * (PANEL_HEIGHT + ROW_GAP);
        let largest = rows.iter().filter_map(|row| row.value(figure.key)).map(|spread| spread.high).fold(0.0, f64::max);
        let step = round_step(largest / TICKS);
        let scale = Scale { step, top: (largest / step).ceil().max(1.0) * step };
        let note = match figure.better {
            Better::Lower => "lower is better",
            Better::Higher => "higher is better",
            Better::Neither => "",
        };
        canvas.heading(LEFT, y - 36.0, figure.title, note);
        for (column, load) in loads.iter().enumerate() {
            let x = LEFT + coordinate(column) * (PANEL_WIDTH + COLUMN_GAP);
            let of_load: Vec<&Row> = rows.iter().filter(|row| row.what == *load).collect();
            panel(&mut canvas, &Panel { x, y, scale, rows: &of_load, figure: figure.key }, &lines, load);
        }
    }
    canvas.finish()
}

/// Each peer has its line; direct connections have the style of the floor, whoever else is there.
fn lines<'a>(rows: &[Row<'a>]) -> Vec<Line<'a>> {
    let mut peers: Vec<&str> = Vec::new();
    for row in rows {
        if !peers.contains(&row.peer) {
            peers.push(row.peer);
        }
    }
    let others = peers.iter().filter(|peer| **peer != DIRECT).zip(1..);
    let floor = peers.iter().filter(|peer| **peer == DIRECT).zip(0..);
    floor
        .chain(others)
        .map(|(peer, index)| Line { peer, style: if index == 0 { Style::floor() } else { Style::of(index) } })
        .collect()
}

fn legend(canvas: &mut Canvas, lines: &[Line]) {
    let mut x = LEFT;
    for Line { peer, style } in lines.iter().copied() {
        canvas.line((x, 26.0), (x + 28.0, 26.0), style.in_colours_of(&LIGHT), 2.0, style.dashes());
        canvas.mark((x + 14.0, 26.0), MARK, style);
        canvas.text((x + 36.0, 30.5), 13.0, Anchor::Start, LIGHT.text, peer);
        x += 36.0 + 7.2 * coordinate(peer.chars().count()) + 24.0;
    }
    canvas.text(
        (LEFT, 52.0),
        11.5,
        Anchor::Start,
        LIGHT.faint,
        "marks: median of the rounds; bars: lowest and highest round",
    );
}

#[derive(Clone, Copy)]
struct Scale {
    step: f64,
    top: f64,
}

struct Panel<'a> {
    x: f64,
    y: f64,
    scale: Scale,
    rows: &'a [&'a Row<'a>],
    figure: &'static str,
}

impl Panel<'_> {
    fn height_of(&self, value: f64) -> f64 {
        self.y + PANEL_HEIGHT * (1.0 - value / self.scale.top)
    }

    /// Numbers of clients stand at equal distances: they are powers, and the first ones matter as much as the last.
    fn place_of(&self, index: usize, count: usize) -> f64 {
        let share = if count < 2 { 0.5 } else { coordinate(index) / coordinate(count - 1) };
        self.x + INSET + share * (PANEL_WIDTH - 2.0 * INSET)
    }
}

fn panel(canvas: &mut Canvas, panel: &Panel, lines: &[Line], load: &str) {
    let mut clients: Vec<usize> = panel.rows.iter().map(|row| row.clients).collect();
    clients.dedup();
    canvas.text((panel.x + PANEL_WIDTH, panel.y - 9.0), 12.0, Anchor::End, LIGHT.faint, load);
    let mut tick = 0.0;
    while tick <= panel.scale.top * 1.001 {
        let y = panel.height_of(tick);
        canvas.line(
            (panel.x, y),
            (panel.x + PANEL_WIDTH, y),
            if tick == 0.0 { LIGHT.faint } else { LIGHT.grid },
            1.0,
            "",
        );
        if panel.x <= LEFT {
            canvas.text((panel.x - 8.0, y + 4.0), 11.5, Anchor::End, LIGHT.faint, tick_label(tick));
        }
        tick += panel.scale.step;
    }
    for (index, count) in clients.iter().enumerate() {
        let x = panel.place_of(index, clients.len());
        canvas.text((x, panel.y + PANEL_HEIGHT + 17.0), 11.5, Anchor::Middle, LIGHT.faint, count);
    }
    let middle = panel.x + PANEL_WIDTH / 2.0;
    canvas.text((middle, panel.y + PANEL_HEIGHT + 33.0), 11.5, Anchor::Middle, LIGHT.faint, "clients");
    let silent = silent(panel, lines);
    if !silent.is_empty() {
        let note = format!("not measured: {}", silent.join(", "));
        canvas.text((panel.x + 4.0, panel.y + PANEL_HEIGHT - 8.0), 11.0, Anchor::Start, LIGHT.faint, note);
    }
    for (index, line) in lines.iter().enumerate() {
        let dodge = (coordinate(index) - coordinate(lines.len() - 1) / 2.0) * DODGE;
        series(canvas, panel, &clients, *line, dodge);
    }
}

/// Who could have had a value here; direct connections have no pooler whose CPU would count.
fn silent<'a>(panel: &Panel, lines: &[Line<'a>]) -> Vec<&'a str> {
    let speaks = |peer: &str| panel.rows.iter().any(|row| row.peer == peer && row.value(panel.figure).is_some());
    lines.iter().filter(|line| line.style != Style::floor() && !speaks(line.peer)).map(|line| line.peer).collect()
}

fn series(canvas: &mut Canvas, panel: &Panel, clients: &[usize], line: Line, dodge: f64) {
    let Line { peer, style } = line;
    let point = |(index, count): (usize, &usize)| {
        let row = panel.rows.iter().find(|row| row.peer == peer && row.clients == *count)?;
        Some((panel.place_of(index, clients.len()) + dodge, row.value(panel.figure)?))
    };
    let points: Vec<Option<(f64, Spread)>> = clients.iter().enumerate().map(point).collect();
    for pair in points.windows(2) {
        // No line leads over a number of clients that was not measured.
        let [Some(from), Some(to)] = [pair[0], pair[1]] else { continue };
        let [from, to] = [from, to].map(|(x, spread)| (x, panel.height_of(spread.median)));
        canvas.line(from, to, style.in_colours_of(&LIGHT), 2.0, style.dashes());
    }
    for (x, spread) in points.into_iter().flatten() {
        let (low, high) = (panel.height_of(spread.low), panel.height_of(spread.high));
        if low > high {
            canvas.line((x, low), (x, high), style.in_colours_of(&LIGHT), 1.4, "");
        }
        canvas.mark((x, panel.height_of(spread.median)), MARK, style);
    }
}

#[derive(Clone, Copy)]
struct Line<'a> {
    peer: &'a str,
    style: Style,
}

fn tick_label(value: f64) -> String {
    if value >= 1000.0 { format!("{} k", value / 1000.0) } else { format!("{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::rows;
    use crate::report::summary::tests::sample;

    #[test]
    fn labels_are_short() {
        assert_eq!(tick_label(7_500.0), "7.5 k");
    }

    #[test]
    fn each_measured_value_has_a_mark_and_no_other() {
        let records = [
            sample("direct", 0, &[("tps", 300.0)]),
            sample("PgBouncer", 0, &[("tps", 100.0), ("cpu", 10.0)]),
            sample("a<b", 0, &[("tps", 100.0)]),
        ];
        let drawing = Drawing { name: "x", title: "x", figures: &["cpu", "tps"] };
        let figures = [Figure::lower("cpu", "CPU", 1), Figure::higher("tps", "TPS", 0)];
        let picture = svg(&drawing, &figures, &rows(&records));
        // The legend has a mark of each; PgBouncer one in both panels, the others only in that of TPS.
        assert_eq!(picture.matches("<circle").count(), 2);
        assert_eq!(picture.matches("<polygon").count(), 2 + 3);
        assert!(picture.contains("not measured: a&lt;b<"));
    }
}
