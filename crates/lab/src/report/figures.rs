//! Numbers as people read them: rounded to what they mean, in units of their size.
//!
//! Knows the keys that experiments share, not what any of them measured.

use crate::experiment::{Chart, values};

/// What a key means to a reader, and in which unit its figures are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    pub key: String,
    pub title: String,
    pub unit: String,
    /// What a value is divided by.
    divisor: f64,
}

/// Keys that experiments share but need not draw: title and unit.
const SHARED: [(&str, &str, &str); 16] = [
    (values::TPS, "Throughput", "transactions/s"),
    (values::P50_US, "Latency, median", "µs"),
    (values::P99_US, "Latency, 99th percentile", "µs"),
    (values::MEAN_US, "Latency, mean", "µs"),
    (values::CONNECT_MS, "Connection time", "ms"),
    (values::BOX_CPU_PERCENT, "CPU of the machine", "%"),
    (values::POOLER_CPU_US, "CPU of the pooler per transaction", "µs"),
    (values::POOLER_CORES, "CPU of the pooler", "cores"),
    (values::SERVER_CORES, "CPU of the server", "cores"),
    (values::LOAD_CORES, "CPU of pgbench", "cores"),
    (values::POOLER_MIB, "Memory of the pooler", "MiB"),
    (values::SERVER_MIB, "Memory of the server", "MiB"),
    (values::SERVER_PAGE_TABLES_MIB, "Page tables of the server", "MiB"),
    (values::SERVER_CONNECTIONS, "Server connections", "connections"),
    (values::ERRORS_PER_SECOND, "Errors", "errors/s"),
    ("seconds", "Time", "s"),
];

impl Measure {
    /// Of a key as an experiment draws it, or as many experiments share it, or else by the key alone.
    pub fn of(key: &str, charts: &[Chart], largest: f64) -> Measure {
        let drawn = charts.iter().find(|chart| chart.key == key).map(|chart| (chart.title, chart.unit));
        let shared = SHARED.iter().find(|(shared, _, _)| *shared == key).map(|(_, title, unit)| (*title, *unit));
        let (title, unit) = drawn.or(shared).unwrap_or((key, ""));
        let (unit, divisor) = match unit {
            "µs" | "us" | "microseconds" if largest >= 2_000.0 => ("ms", 1_000.0),
            "ms" | "milliseconds" if largest >= 10_000.0 => ("s", 1_000.0),
            "MiB" if largest >= 10_240.0 => ("GiB", 1_024.0),
            "KiB" | "kiB" if largest >= 10_240.0 => ("MiB", 1_024.0),
            unit => (unit, 1.0),
        };
        Measure { key: key.to_owned(), title: title.to_owned(), unit: unit.to_owned(), divisor }
    }

    pub fn scaled(&self, value: f64) -> f64 {
        value / self.divisor
    }

    pub fn number(&self, value: f64) -> String {
        number(self.scaled(value))
    }

    pub fn with_unit(&self, value: f64) -> String {
        let number = self.number(value);
        match self.unit.as_str() {
            "" => number,
            "%" => format!("{number} %"),
            unit => format!("{number} {unit}"),
        }
    }
}

/// Three digits or all of a whole number's, with commas between thousands.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "no number".to_owned();
    }
    let decimals = match size {
        size if !(1e-9..99.95).contains(&size) => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    if decimals > 0 && value.fract() == 0.0 { format!("{value:.0}") } else { commas(&text) }
}

fn commas(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (whole, rest) = digits.find('.').map_or((digits, ""), |dot| digits.split_at(dot));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

/// A number at a chart's edge: short, and exact since such numbers are round.
pub fn tick(value: f64) -> String {
    let (value, letter) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => return commas(&trimmed(value)),
    };
    trimmed(value) + letter
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `one`, or `many` of them.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    #[allow(clippy::cast_precision_loss)]
    let shown = number(count as f64);
    format!("{shown} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Better;

    #[test]
    fn numbers_have_three_digits_or_are_whole() {
        let shown = [0.0, 0.01234, 0.5, 1.0, 9.876, 12.34, 99.96, 1_032_435.4, -1_234.5].map(number);
        assert_eq!(shown, ["0", "0.012", "0.50", "1", "9.88", "12.3", "100", "1,032,435", "-1,234"]);
        assert_eq!(number(f64::NAN), "no number");
        assert_eq!([0.0, 0.25, 2_500.0, 12_500.0, 1_500_000.0].map(tick), ["0", "0.25", "2,500", "12.5k", "1.5M"]);
        assert_eq!(
            (counted(1, "error", "errors"), counted(2_000, "error", "errors")),
            ("1 error".into(), "2,000 errors".into())
        );
    }

    #[test]
    fn units_follow_the_size_of_the_figures() {
        let measure = Measure::of(values::P99_US, &[], 250_000.0);
        assert_eq!((measure.unit.as_str(), measure.with_unit(250_000.0)), ("ms", "250 ms".to_owned()));
        assert_eq!(Measure::of(values::P99_US, &[], 900.0).with_unit(850.0), "850 µs");
        let chart = Chart { title: "Own", key: "own", unit: "MiB", better: Better::Lower };
        assert_eq!(Measure::of("own", &[chart], 20_480.0).with_unit(20_480.0), "20 GiB");
        assert_eq!(Measure::of("unheard_of", &[], 1.0).title, "unheard_of");
    }
}
