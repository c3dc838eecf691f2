//! Numbers of a model as people read them: three significant digits, also of very small ones, and infinity in words.

use super::sampling::Interval;
use crate::experiments::words::about;

/// Below this `about` would round to nothing; coherency coefficients are as small as that.
const SMALL: f64 = 0.1;

pub fn number(value: f64) -> String {
    if value.is_infinite() {
        return "any number".to_owned();
    }
    if value == 0.0 || value.abs() >= SMALL || value.is_nan() {
        return about(value);
    }
    let decimals = 2 - value.abs().log10().floor() as i32;
    if decimals > 7 {
        return format!("{value:.2e}");
    }
    let text = format!("{value:.*}", usize::try_from(decimals).unwrap_or(0));
    text.trim_end_matches('0').to_owned()
}

/// Bounds: `41 to 55`, `41 or more`.
pub fn range(bounds: Interval) -> String {
    shown(bounds, number)
}

/// The same of parts of one.
pub fn percents(bounds: Interval) -> String {
    shown(bounds, percent)
}

fn shown(bounds: Interval, show: fn(f64) -> String) -> String {
    match (bounds.low.is_infinite(), bounds.high.is_infinite()) {
        (true, _) => show(f64::INFINITY),
        (false, true) => format!("{} or more", show(bounds.low)),
        (false, false) => format!("{} to {}", show(bounds.low), show(bounds.high)),
    }
}

/// A part of one, in per cent.
pub fn percent(part: f64) -> String {
    format!("{} %", number(part * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_also_of_small_numbers() {
        let cases = [
            (12_345.0, "12,300"),
            (0.012_34, "0.0123"),
            (0.0004, "0.0004"),
            (2.0, "2"),
            (0.0, "0"),
            (f64::INFINITY, "any number"),
            (1.234e-7, "1.23e-7"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(percent(0.0312), "3.12 %");
        let bounds = |low, high| range(Interval { low, high });
        assert_eq!(bounds(1.0, 2.5), "1 to 2.50");
        assert_eq!(bounds(1.0, f64::INFINITY), "1 or more");
        assert_eq!(bounds(f64::INFINITY, f64::INFINITY), "any number");
    }
}
