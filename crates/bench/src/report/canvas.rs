//! Lines, marks and words of a picture, as plain SVG.
//!
//! Colours are Okabe and Ito's, apart for every kind of colour vision, and each peer has its own mark. Knows no figures.

use std::fmt::{Display, Write};

/// Okabe and Ito (2008), "Color Universal Design", without yellow, which is too light for lines on white.
const COLOURS: [&str; 6] = ["#56606b", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00"];
pub const TEXT: &str = "#24292f";
pub const FAINT_TEXT: &str = "#57606a";
pub const GRID: &str = "#e4e7eb";
const MARK: f64 = 4.5;

#[derive(Clone, Copy)]
pub struct Style {
    pub colour: &'static str,
    shape: usize,
}

impl Style {
    pub fn of(index: usize) -> Style {
        Style { colour: COLOURS[index % COLOURS.len()], shape: index }
    }

    /// Direct connections are the floor that all others stand on, not one of them.
    pub fn is_floor(self) -> bool {
        self.shape == 0
    }

    pub fn dashes(self) -> &'static str {
        if self.is_floor() { "5 4" } else { "" }
    }
}

pub struct Canvas(String);

impl Canvas {
    pub fn new(width: f64, height: f64, title: &str) -> Canvas {
        let mut canvas = Canvas(String::new());
        canvas.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\">\n\
             <title>{}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\"/>",
            escape(title)
        ));
        canvas
    }

    fn put(&mut self, element: impl Display) {
        writeln!(self.0, "{element}").expect("a String takes every write");
    }

    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64, dashes: &str) {
        let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        self.put(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}/>",
            from.0, from.1, to.0, to.1
        ));
    }

    pub fn text(&mut self, x: f64, y: f64, size: f64, anchor: &str, colour: &str, text: impl Display) {
        let text = escape(&text.to_string());
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
        ));
    }

    pub fn heading(&mut self, x: f64, y: f64, title: &str, note: &str) {
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"14.5\" fill=\"{TEXT}\"><tspan font-weight=\"600\">{title}</tspan>\
             <tspan dx=\"9\" font-size=\"12\" fill=\"{FAINT_TEXT}\">{note}</tspan></text>"
        ));
    }

    pub fn mark(&mut self, x: f64, y: f64, style: Style) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_escaped_and_the_picture_is_closed() {
        let mut canvas = Canvas::new(10.0, 10.0, "a & b");
        canvas.text(1.0, 1.0, 12.0, "start", TEXT, "a<b");
        let picture = canvas.finish();
        assert!(picture.contains("<title>a &amp; b</title>") && picture.contains(">a&lt;b</text>"));
        assert!(picture.ends_with("</svg>\n"));
    }
}
