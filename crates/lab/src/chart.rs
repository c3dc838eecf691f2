//! The report as a picture: CPU per transaction and TPS by clients, a line per peer, a column per protocol mode.
//!
//! Plain SVG. Colours are Okabe and Ito's, apart for every kind of colour vision, and each peer has its own mark.

use std::fmt::{Display, Write};

use crate::record::{Mode, Run};
use crate::summary::{Row, Spread};

const PANEL_WIDTH: f64 = 270.0;
const PANEL_HEIGHT: f64 = 190.0;
const COLUMN_GAP: f64 = 34.0;
/// A legend of four peers, which one panel would not leave room for.
const LEGEND_WIDTH: f64 = 600.0;
const ROW_GAP: f64 = 104.0;
const LEFT: f64 = 66.0;
const TOP: f64 = 122.0;
const RIGHT: f64 = 24.0;
const BOTTOM: f64 = 58.0;
/// Room between a panel's edge and its first and last number of clients.
const INSET: f64 = 26.0;
/// Lines of one number of clients stand this far apart, so that their spreads can be told apart.
const DODGE: f64 = 6.0;
const MARK: f64 = 4.5;
const TICKS: f64 = 5.0;
/// Okabe and Ito (2008), "Color Universal Design", without yellow, which is too light for lines on white.
const COLOURS: [&str; 6] = ["#56606b", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00"];
const TEXT: &str = "#24292f";
const FAINT_TEXT: &str = "#57606a";
const GRID: &str = "#e4e7eb";

/// One row of panels.
struct Measure {
    title: &'static str,
    note: &'static str,
    value: fn(&Row) -> Option<Spread>,
}

const MEASURES: [Measure; 2] = [
    Measure { title: "CPU per transaction of the pooler, µs", note: "lower is better", value: |row| row.cpu_us },
    Measure { title: "Transactions per second", note: "higher is better", value: |row| Some(row.tps) },
];

pub fn svg(run: &Run, rows: &[Row]) -> String {
    let modes: Vec<Mode> = Mode::ALL
        .into_iter()
        .filter(|mode| *mode != Mode::Connect && rows.iter().any(|row| row.mode == *mode))
        .collect();
    let columns = f64::from(u32::try_from(modes.len()).unwrap_or(u32::MAX));
    let panels = columns * PANEL_WIDTH + (columns - 1.0).max(0.0) * COLUMN_GAP;
    let width = (LEFT + panels + RIGHT).max(LEGEND_WIDTH);
    let height = TOP + 2.0 * PANEL_HEIGHT + ROW_GAP + BOTTOM;
    let mut canvas = Canvas::new(width, height);
    let all = run.peers.iter().enumerate().map(|(index, peer)| Line { peer: &peer.name, style: Style::of(index) });
    let lines: Vec<Line> = all.filter(|line| rows.iter().any(|row| row.peer == line.peer)).collect();
    legend(&mut canvas, &lines, run);
    for (band, measure) in MEASURES.iter().enumerate() {
        let y = TOP + coordinate(band) * (PANEL_HEIGHT + ROW_GAP);
        let shown = rows.iter().filter(|row| row.mode != Mode::Connect);
        let largest = shown.filter_map(measure.value).map(|spread| spread.max).fold(0.0, f64::max);
        let step = round_step(largest / TICKS);
        let scale = Scale { step, top: (largest / step).ceil().max(1.0) * step };
        canvas.heading(LEFT, y - 36.0, measure.title, measure.note);
        for (column, mode) in modes.iter().enumerate() {
            let x = LEFT + coordinate(column) * (PANEL_WIDTH + COLUMN_GAP);
            let of_mode: Vec<&Row> = rows.iter().filter(|row| row.mode == *mode).collect();
            panel(&mut canvas, &Panel { x, y, scale, rows: &of_mode, value: measure.value }, &lines, *mode);
        }
    }
    canvas.finish()
}

fn legend(canvas: &mut Canvas, lines: &[Line], run: &Run) {
    let mut x = LEFT;
    for Line { peer, style } in lines.iter().copied() {
        canvas.line((x, 26.0), (x + 28.0, 26.0), style.colour, 2.0, style.dashes());
        canvas.mark(x + 14.0, 26.0, style);
        canvas.text(x + 36.0, 30.5, 13.0, "start", TEXT, peer);
        x += 36.0 + 7.2 * coordinate(peer.chars().count()) + 24.0;
    }
    let bars =
        if run.rounds > 1 { format!("; bars: lowest and highest of {} rounds", run.rounds) } else { String::new() };
    let about = format!("pgbench -S, {} cores{bars}", run.machine.cores);
    canvas.text(LEFT, 52.0, 11.5, "start", FAINT_TEXT, &about);
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
    rows: &'a [&'a Row],
    value: fn(&Row) -> Option<Spread>,
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

fn panel(canvas: &mut Canvas, panel: &Panel, lines: &[Line], mode: Mode) {
    let mut clients: Vec<usize> = panel.rows.iter().map(|row| row.clients).collect();
    clients.dedup();
    canvas.text(panel.x + PANEL_WIDTH, panel.y - 9.0, 12.0, "end", FAINT_TEXT, mode.name());
    let mut tick = 0.0;
    while tick <= panel.scale.top * 1.001 {
        let y = panel.height_of(tick);
        canvas.line((panel.x, y), (panel.x + PANEL_WIDTH, y), if tick == 0.0 { FAINT_TEXT } else { GRID }, 1.0, "");
        if panel.x <= LEFT {
            canvas.text(panel.x - 8.0, y + 4.0, 11.5, "end", FAINT_TEXT, tick_label(tick));
        }
        tick += panel.scale.step;
    }
    for (index, count) in clients.iter().enumerate() {
        let x = panel.place_of(index, clients.len());
        canvas.text(x, panel.y + PANEL_HEIGHT + 17.0, 11.5, "middle", FAINT_TEXT, count);
    }
    let middle = panel.x + PANEL_WIDTH / 2.0;
    canvas.text(middle, panel.y + PANEL_HEIGHT + 33.0, 11.5, "middle", FAINT_TEXT, "clients");
    let silent = silent(panel, lines);
    if !silent.is_empty() {
        let note = format!("not measured: {}", silent.join(", "));
        canvas.text(panel.x + 4.0, panel.y + PANEL_HEIGHT - 8.0, 11.0, "start", FAINT_TEXT, note);
    }
    for (index, line) in lines.iter().enumerate() {
        let dodge = (coordinate(index) - coordinate(lines.len() - 1) / 2.0) * DODGE;
        series(canvas, panel, &clients, *line, dodge);
    }
}

/// Who could have had a value here; direct connections have no pooler whose CPU would count.
fn silent<'a>(panel: &Panel, lines: &[Line<'a>]) -> Vec<&'a str> {
    let speaks = |peer: &str| panel.rows.iter().any(|row| row.peer == peer && (panel.value)(row).is_some());
    lines.iter().filter(|line| !line.style.is_floor() && !speaks(line.peer)).map(|line| line.peer).collect()
}

fn series(canvas: &mut Canvas, panel: &Panel, clients: &[usize], line: Line, dodge: f64) {
    let Line { peer, style } = line;
    let point = |(index, count): (usize, &usize)| {
        let row = panel.rows.iter().find(|row| row.peer == peer && row.clients == *count)?;
        Some((panel.place_of(index, clients.len()) + dodge, (panel.value)(row)?))
    };
    let points: Vec<Option<(f64, Spread)>> = clients.iter().enumerate().map(point).collect();
    for pair in points.windows(2) {
        // No line leads over a number of clients that was not measured.
        let [Some(from), Some(to)] = [pair[0], pair[1]] else { continue };
        let [from, to] = [from, to].map(|(x, spread)| (x, panel.height_of(spread.median)));
        canvas.line(from, to, style.colour, 2.0, style.dashes());
    }
    for (x, spread) in points.into_iter().flatten() {
        let (low, high) = (panel.height_of(spread.min), panel.height_of(spread.max));
        if low > high {
            canvas.line((x, low), (x, high), style.colour, 1.4, "");
        }
        canvas.mark(x, panel.height_of(spread.median), style);
    }
}

#[derive(Clone, Copy)]
struct Line<'a> {
    peer: &'a str,
    style: Style,
}

#[derive(Clone, Copy)]
struct Style {
    colour: &'static str,
    shape: usize,
}

impl Style {
    fn of(index: usize) -> Style {
        Style { colour: COLOURS[index % COLOURS.len()], shape: index }
    }

    /// The first peer of a run, direct connections, is the floor that all others stand on, not one of them.
    fn is_floor(self) -> bool {
        self.shape == 0
    }

    fn dashes(self) -> &'static str {
        if self.is_floor() { "5 4" } else { "" }
    }
}

struct Canvas(String);

impl Canvas {
    fn new(width: f64, height: f64) -> Canvas {
        let mut canvas = Canvas(String::new());
        canvas.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\">\n\
             <title>CPU per transaction and transactions per second by number of clients</title>\n\
             <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\"/>"
        ));
        canvas
    }

    fn put(&mut self, element: impl Display) {
        writeln!(self.0, "{element}").expect("a String takes every write");
    }

    fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64, dashes: &str) {
        let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        self.put(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}/>",
            from.0, from.1, to.0, to.1
        ));
    }

    fn text(&mut self, x: f64, y: f64, size: f64, anchor: &str, colour: &str, text: impl Display) {
        let text = escape(&text.to_string());
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
        ));
    }

    fn heading(&mut self, x: f64, y: f64, title: &str, note: &str) {
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"14.5\" fill=\"{TEXT}\"><tspan font-weight=\"600\">{title}</tspan>\
             <tspan dx=\"9\" font-size=\"12\" fill=\"{FAINT_TEXT}\">{note}</tspan></text>"
        ));
    }

    fn mark(&mut self, x: f64, y: f64, style: Style) {
        let colour = style.colour;
        let around = |offsets: &[(f64, f64)]| {
            let points = offsets.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * MARK, y + dy * MARK));
            points.collect::<Vec<_>>().join(" ")
        };
        let polygon = match style.shape % 4 {
            1 => around(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            2 => around(&[(0.0, -1.2), (1.15, 0.9), (-1.15, 0.9)]),
            3 => around(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            _ => {
                let fill = if style.is_floor() { "#ffffff" } else { colour };
                return self.put(format_args!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{MARK}\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.6\"/>"
                ));
            }
        };
        self.put(format_args!(
            "<polygon points=\"{polygon}\" fill=\"{colour}\" stroke=\"#ffffff\" stroke-width=\"0.8\"/>"
        ));
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The next of 1, 2, 2.5, 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    if step <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0].into_iter().find(|factor| factor * power >= step * 0.999);
    factor.unwrap_or(10.0) * power
}

fn tick_label(value: f64) -> String {
    if value >= 1000.0 { format!("{} k", value / 1000.0) } else { format!("{value}") }
}

/// Columns, peers and numbers of clients are counted in dozens.
#[allow(clippy::cast_precision_loss)]
fn coordinate(index: usize) -> f64 {
    index as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::rows;
    use crate::summary::tests::{run_of, sample};

    #[test]
    fn steps_are_round() {
        assert_eq!([0.0, 1.0, 3.0, 0.21, 4_200.0].map(round_step), [1.0, 1.0, 5.0, 0.25, 5_000.0]);
        assert_eq!(tick_label(7_500.0), "7.5 k");
    }

    #[test]
    fn each_measured_value_has_a_mark_and_no_other() {
        let run = run_of(1, &["direct", "PgBouncer", "a<b", "absent"]);
        let records = [
            sample("direct", 0, 300.0, None),
            sample("PgBouncer", 0, 100.0, Some(10.0)),
            sample("a<b", 0, 100.0, None),
        ];
        let picture = svg(&run, &rows(&run, &records));
        // The legend has a mark of each; PgBouncer one in both panels, the others only in that of TPS.
        assert_eq!(picture.matches("<circle").count(), 2);
        assert_eq!(picture.matches("<polygon").count(), 3 + 2);
        assert!(picture.contains("not measured: a&lt;b<"));
    }
}
