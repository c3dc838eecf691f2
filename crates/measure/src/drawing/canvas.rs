//! Lines, marks and words of a picture, as plain SVG.
//!
//! A picture that stands alone has its colours in it; one within a page takes them from the page's style sheet, so that
//! they follow its light or dark scheme. Knows no figures.

use std::fmt::{Display, Write};

/// Every colour of a picture, by its part.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    /// Of lines: the first is for what all others are compared with.
    pub lines: [&'static str; LINES],
    pub text: &'static str,
    pub faint: &'static str,
    pub grid: &'static str,
    pub paper: &'static str,
    /// Around what is doubtful.
    pub doubt: &'static str,
    /// Through what had errors.
    pub error: &'static str,
}

pub const LINES: usize = 9;

/// After Okabe and Ito (2008), "Color Universal Design": apart for every kind of colour vision. Their light ones are darkened until
/// they have three times the contrast of white.
pub const LIGHT: Palette = Palette {
    lines: ["#56606b", "#d55e00", "#0072b2", "#009270", "#b8569a", "#a87400", "#2f97c9", "#7b4a12", "#6a51c8"],
    text: "#1f2429",
    faint: "#57606a",
    grid: "#e4e7eb",
    paper: "#ffffff",
    doubt: "#8a6100",
    error: "#b3261e",
};

pub const DARK: Palette = Palette {
    lines: ["#a7b1bc", "#ff8b3d", "#5fb4f0", "#2fc79b", "#ee9fd0", "#f0bb45", "#8fd7ff", "#d3a06a", "#b3a1ff"],
    text: "#e8eaed",
    faint: "#a3abb4",
    grid: "#31373e",
    paper: "#181b1f",
    doubt: "#f2c14e",
    error: "#ff8a80",
};

/// Of pictures within a page, whose style sheet sets these variables.
pub const PAGE: Palette = Palette {
    lines: [
        "var(--line-0)",
        "var(--line-1)",
        "var(--line-2)",
        "var(--line-3)",
        "var(--line-4)",
        "var(--line-5)",
        "var(--line-6)",
        "var(--line-7)",
        "var(--line-8)",
    ],
    text: "var(--text)",
    faint: "var(--faint)",
    grid: "var(--grid)",
    paper: "var(--paper)",
    doubt: "var(--doubt)",
    error: "var(--error)",
};

/// How one line looks. Numbers beyond what there is begin anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub colour: usize,
    pub shape: usize,
    /// Its dashes, and whether its marks are hollow.
    pub variant: usize,
}

const DASHES: [&str; 4] = ["", "6 4", "2 4", "10 3 2 3"];

impl Style {
    pub fn of(index: usize) -> Style {
        Style { colour: index, shape: index, variant: 0 }
    }

    /// What all others stand on, and not one of them.
    pub fn floor() -> Style {
        Style { variant: 1, ..Style::of(0) }
    }

    pub fn in_colours_of(self, palette: &Palette) -> &'static str {
        palette.lines[self.colour % LINES]
    }

    pub fn dashes(self) -> &'static str {
        DASHES[self.variant % DASHES.len()]
    }

    pub fn is_hollow(self) -> bool {
        self.variant % 2 == 1
    }

    /// The mark's corners around its middle; none for a circle.
    fn corners(self) -> &'static [(f64, f64)] {
        match self.shape % 7 {
            1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            2 => &[(0.0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
            3 => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
            4 => &[(0.0, 1.2), (1.15, -0.9), (-1.15, -0.9)],
            5 => &[(-0.6, -1.1), (0.6, -1.1), (1.2, 0.0), (0.6, 1.1), (-0.6, 1.1), (-1.2, 0.0)],
            6 => &[
                (-0.4, -1.2),
                (0.4, -1.2),
                (0.4, -0.4),
                (1.2, -0.4),
                (1.2, 0.4),
                (0.4, 0.4),
                (0.4, 1.2),
                (-0.4, 1.2),
                (-0.4, 0.4),
                (-1.2, 0.4),
                (-1.2, -0.4),
                (-0.4, -0.4),
            ],
            _ => &[],
        }
    }
}

/// Where a text begins, ends or has its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn word(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

const FONT: &str = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif";

pub struct Canvas {
    text: String,
    pub palette: &'static Palette,
}

impl Canvas {
    /// A picture that stands alone, on paper of its own.
    pub fn new(width: f64, height: f64, title: &str) -> Canvas {
        let mut canvas = Canvas { text: String::new(), palette: &LIGHT };
        let (title, paper) = (escape(title), LIGHT.paper);
        canvas.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" font-family=\"{FONT}\">\n<title>{title}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{paper}\"/>",
        ));
        canvas
    }

    /// A picture within a page, with its description for those who cannot see it.
    pub fn within_page(width: f64, height: f64, class: &str, description: &str) -> Canvas {
        let mut canvas = Canvas { text: String::new(), palette: &PAGE };
        let (class, description) = (escape(class), escape(description));
        canvas.put(format_args!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{description}\">"
        ));
        canvas
    }

    /// A small picture beside words that say the same.
    pub fn decoration(width: f64, height: f64) -> Canvas {
        let mut canvas = Canvas { text: String::new(), palette: &PAGE };
        canvas.put(format_args!("<svg viewBox=\"0 0 {width} {height}\" aria-hidden=\"true\">"));
        canvas
    }

    fn put(&mut self, element: impl Display) {
        writeln!(self.text, "{element}").expect("a String takes every write");
    }

    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    /// All until `end_group` can be hidden together by the class's name.
    pub fn group(&mut self, class: &str) {
        let class = escape(class);
        self.put(format_args!("<g class=\"{class}\">"));
    }

    pub fn end_group(&mut self) {
        self.put("</g>");
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64, dashes: &str) {
        let dashes = dash_attribute(dashes);
        self.put(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}/>",
            from.0, from.1, to.0, to.1
        ));
    }

    pub fn path(&mut self, points: &[(f64, f64)], colour: &str, width: f64, dashes: &str) {
        if points.len() < 2 {
            return;
        }
        let dashes = dash_attribute(dashes);
        let steps = points.iter().zip(std::iter::once('M').chain(std::iter::repeat('L')));
        let steps: String = steps.map(|((x, y), letter)| format!("{letter}{x:.1} {y:.1}")).collect();
        self.put(format_args!(
            "<path d=\"{steps}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\" \
             stroke-linecap=\"round\"{dashes}/>"
        ));
    }

    pub fn text(&mut self, at: (f64, f64), size: f64, anchor: Anchor, colour: &str, text: impl Display) {
        self.words(at, size, anchor, colour, "", text);
    }

    pub fn bold(&mut self, at: (f64, f64), size: f64, anchor: Anchor, colour: &str, text: impl Display) {
        self.words(at, size, anchor, colour, " font-weight=\"600\"", text);
    }

    fn words(&mut self, at: (f64, f64), size: f64, anchor: Anchor, colour: &str, more: &str, text: impl Display) {
        let (text, anchor) = (escape(&text.to_string()), anchor.word());
        self.put(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{colour}\"{more}>{text}</text>",
            at.0, at.1
        ));
    }

    /// A title, and beside it what to know of it.
    pub fn heading(&mut self, x: f64, y: f64, title: &str, note: &str) {
        let (title, note) = (escape(title), escape(note));
        let (text, faint) = (self.palette.text, self.palette.faint);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"14.5\" fill=\"{text}\"><tspan font-weight=\"600\">{title}</tspan>\
             <tspan dx=\"9\" font-size=\"12\" fill=\"{faint}\">{note}</tspan></text>"
        ));
    }

    /// The mark of one value; `size` is half its width.
    pub fn mark(&mut self, (x, y): (f64, f64), size: f64, style: Style) {
        let (colour, paper) = (style.in_colours_of(self.palette), self.palette.paper);
        let (fill, edge, width) = if style.is_hollow() { (paper, colour, 1.6) } else { (colour, paper, 0.8) };
        if style.corners().is_empty() {
            return self.put(format_args!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{size}\" fill=\"{fill}\" stroke=\"{edge}\" stroke-width=\"{width}\"/>"
            ));
        }
        let corners = style.corners().iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx * size, y + dy * size));
        let corners = corners.collect::<Vec<_>>().join(" ");
        self.put(format_args!(
            "<polygon points=\"{corners}\" fill=\"{fill}\" stroke=\"{edge}\" stroke-width=\"{width}\"/>"
        ));
    }

    pub fn ring(&mut self, (x, y): (f64, f64), radius: f64, colour: &str, dashes: &str) {
        let dashes = dash_attribute(dashes);
        self.put(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.4\"{dashes}/>"
        ));
    }

    pub fn cross(&mut self, (x, y): (f64, f64), size: f64, colour: &str) {
        self.line((x - size, y - size), (x + size, y + size), colour, 1.8, "");
        self.line((x - size, y + size), (x + size, y - size), colour, 1.8, "");
    }

    /// An invisible circle; a pointer over it shows `lines` beside it, by the page's style sheet.
    pub fn hint(&mut self, (x, y): (f64, f64), bounds: (f64, f64), lines: &[String]) {
        let widest = lines.iter().map(|line| width_of(line, 11.5)).fold(0.0, f64::max);
        let (width, height) = (widest + 16.0, 15.0 * coordinate(lines.len()) + 9.0);
        let left = (x + 12.0).min(bounds.0 - width - 2.0).max(2.0);
        let above = y - height - 10.0;
        let top = if above < 2.0 { (y + 12.0).min(bounds.1 - height - 2.0) } else { above };
        self.put(format_args!(
            "<g class=\"hint\"><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\"/><g><rect x=\"{left:.1}\" y=\"{top:.1}\" \
             width=\"{width:.1}\" height=\"{height:.1}\" rx=\"4\"/>"
        ));
        for (index, line) in lines.iter().enumerate() {
            let (y, line) = (top + 16.0 + 15.0 * coordinate(index), escape(line));
            self.put(format_args!("<text x=\"{:.1}\" y=\"{y:.1}\" font-size=\"11.5\">{line}</text>", left + 8.0));
        }
        self.put("</g></g>");
    }
}

fn dash_attribute(dashes: &str) -> String {
    if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") }
}

/// About as wide as this text is drawn: fonts differ, so a little more than most need.
pub fn width_of(text: &str, size: f64) -> f64 {
    let wide = |letter: char| match letter {
        ' ' | '.' | ',' | ':' | 'i' | 'l' | '|' | '\'' => 0.32,
        'm' | 'w' | 'M' | 'W' | '%' => 0.92,
        letter if letter.is_ascii_lowercase() || letter.is_ascii_digit() => 0.57,
        letter if letter.is_ascii() => 0.68,
        _ => 1.0,
    };
    text.chars().map(wide).sum::<f64>() * size
}

/// What is drawn is counted in hundreds.
#[allow(clippy::cast_precision_loss)]
pub fn coordinate(index: usize) -> f64 {
    index as f64
}

/// For text and for attributes between double quotes. What XML does not allow at all is left out.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            letter if letter.is_control() && letter != '\n' && letter != '\t' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_escaped_and_the_picture_is_closed() {
        let mut canvas = Canvas::new(10.0, 10.0, "a & b");
        canvas.text((1.0, 1.0), 12.0, Anchor::Start, LIGHT.text, "a<b");
        canvas.heading(1.0, 1.0, "<i>", "\"\u{1b}");
        let picture = canvas.finish();
        assert!(picture.contains("<title>a &amp; b</title>") && picture.contains(">a&lt;b</text>"));
        assert!(picture.contains(">&lt;i&gt;<") && picture.contains(">&quot;\u{fffd}<"));
        assert!(picture.ends_with("</svg>\n"));
    }

    /// WCAG's relative luminance.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        let linear = |value: f64| if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) };
        0.2126 * linear(channel(1)) + 0.7152 * linear(channel(3)) + 0.0722 * linear(channel(5))
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
        one.max(other) / one.min(other)
    }

    #[test]
    fn colours_stand_out_from_their_paper() {
        for palette in [LIGHT, DARK] {
            for line in palette.lines {
                assert!(contrast(line, palette.paper) >= 3.0, "{line} on {}", palette.paper);
            }
            for text in [palette.text, palette.faint, palette.doubt, palette.error] {
                assert!(contrast(text, palette.paper) >= 4.5, "{text} on {}", palette.paper);
            }
        }
    }
}
