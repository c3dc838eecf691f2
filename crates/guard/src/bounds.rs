//! The most that a transaction may cost: `bounds.txt`, and what is said of a figure beside its bound.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// One line of the file: `instructions simple 2100`.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// What is counted, and for what.
    pub name: String,
    pub most: f64,
}

/// A figure that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub name: String,
    pub value: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    /// So far below that the bound says nothing any more.
    Lower,
    Broken,
    /// There is no bound.
    Unknown,
}

/// How far below its bound a figure may be before the bound is to be lowered: compilers differ by a little, a clock may make a system call
/// or two, and on a busy machine a batch of 32 comes in pieces, each of which is waited for: some calls more for one, now and then.
fn slack(name: &str, most: f64) -> f64 {
    let of_pieces = if name.ends_with(" batch") { 0.2 } else { 0.06 };
    most * 0.02 + of_pieces
}

pub fn read(path: &Path) -> Result<Vec<Bound>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Bound>> {
    let mut bounds = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some((name, most)) = line.rsplit_once(' ') else { bail!("a name and a number are expected: {line}") };
        let most = most.parse().with_context(|| format!("no number: {line}"))?;
        bounds.push(Bound { name: name.trim().to_owned(), most });
    }
    Ok(bounds)
}

pub fn judge(bounds: &[Bound], figure: &Figure) -> Verdict {
    let Some(bound) = bounds.iter().find(|bound| bound.name == figure.name) else { return Verdict::Unknown };
    if figure.value > bound.most {
        Verdict::Broken
    } else if figure.value < bound.most - slack(&bound.name, bound.most) {
        Verdict::Lower
    } else {
        Verdict::Holds
    }
}

/// Writes the bounds that can be lowered; comments and the bounds that hold stay as they are.
pub fn lower(path: &Path, figures: &[Figure]) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    std::fs::write(path, lowered(&text, figures)?).with_context(|| format!("cannot write {}", path.display()))
}

fn lowered(text: &str, figures: &[Figure]) -> Result<String> {
    let bounds = parse(text)?;
    let mut out = String::new();
    for line in text.lines() {
        let name = line.trim().rsplit_once(' ').map(|(name, _)| name.trim());
        let figure = figures.iter().find(|figure| Some(figure.name.as_str()) == name);
        match figure.filter(|figure| judge(&bounds, figure) == Verdict::Lower) {
            Some(figure) => writeln!(out, "{}", line_of(figure))?,
            None => writeln!(out, "{line}")?,
        }
    }
    for figure in figures.iter().filter(|figure| judge(&bounds, figure) == Verdict::Unknown) {
        writeln!(out, "{}", line_of(figure))?;
    }
    Ok(out)
}

/// A bound a little above the figure: half of the slack.
fn line_of(figure: &Figure) -> String {
    let most = figure.value + slack(&figure.name, figure.value) / 2.0;
    if figure.value >= 100.0 { format!("{} {most:.0}", figure.name) } else { format!("{} {most:.2}", figure.name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64) -> Figure {
        Figure { name: "instructions simple".to_owned(), value }
    }

    #[test]
    fn a_bound_holds_breaks_or_is_to_be_lowered() {
        let bounds = parse("# why\ninstructions simple 2000\n").unwrap();
        assert_eq!(judge(&bounds, &figure(2000.0)), Verdict::Holds);
        assert_eq!(judge(&bounds, &figure(1961.0)), Verdict::Holds);
        assert_eq!(judge(&bounds, &figure(1959.0)), Verdict::Lower);
        assert_eq!(judge(&bounds, &figure(2000.1)), Verdict::Broken);
        let other = Figure { name: "instructions other".to_owned(), value: 1.0 };
        assert_eq!(judge(&bounds, &other), Verdict::Unknown);
    }

    #[test]
    fn a_line_without_a_number_is_refused() {
        assert!(parse("instructions").is_err());
        assert!(parse("instructions simple").is_err());
    }

    #[test]
    fn bounds_only_fall() {
        let text = "# why\ninstructions simple 2000\ncalls epoll 4.00\n";
        assert_eq!(lowered(text, &[figure(1000.0)]).unwrap(), "# why\ninstructions simple 1010\ncalls epoll 4.00\n");
        assert_eq!(lowered(text, &[figure(3000.0)]).unwrap(), text);
    }
}
