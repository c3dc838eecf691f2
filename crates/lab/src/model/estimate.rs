//! A value with the interval that 95 of 100 such measurements would place around the true one.
//!
//! Knows how uncertainty is said, not where it comes from.

use serde::{Serialize, Serializer};

use crate::report::figures::number;

/// Of values that bounds are taken from, so many lie below the interval, and as many above.
const OUTSIDE: f64 = 0.025;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    #[serde(serialize_with = "finite")]
    pub low: f64,
    /// Infinite where the data set no bound; `null` in JSON.
    #[serde(serialize_with = "finite")]
    pub high: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    #[serde(serialize_with = "finite")]
    pub value: f64,
    /// 95 %; `None` where there are too few points to tell.
    pub interval: Option<Interval>,
}

/// JSON has no infinity.
pub fn finite<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() { serializer.serialize_some(value) } else { serializer.serialize_none() }
}

impl Interval {
    /// The middle 95 % of draws; `None` of none.
    pub fn of(draws: impl Iterator<Item = f64>) -> Option<Interval> {
        let mut draws: Vec<f64> = draws.filter(|draw| !draw.is_nan()).collect();
        draws.sort_by(f64::total_cmp);
        let last = draws.len().checked_sub(1)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let cut = (last as f64 * OUTSIDE) as usize;
        Some(Interval { low: draws[cut], high: draws[last - cut] })
    }

    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

impl Estimate {
    pub fn new(value: f64, interval: Option<Interval>) -> Estimate {
        // The value is the best fit, the interval comes from draws: of a value at its bound it may just miss it.
        let interval = interval.map(|it| Interval { low: it.low.min(value), high: it.high.max(value) });
        Estimate { value, interval }
    }

    /// Whether the interval is wider than the value itself, or has no end.
    pub fn is_vague(&self) -> bool {
        self.interval.is_some_and(|interval| interval.high - interval.low > self.value.abs())
    }

    /// `46 (41 to 55)`.
    pub fn text(&self) -> String {
        self.with(number)
    }

    /// Two digits, for parameters that may be very small.
    pub fn small(&self) -> String {
        self.with(small)
    }

    pub fn with(&self, show: impl Fn(f64) -> String) -> String {
        let value = bounded(self.value, &show);
        match self.interval {
            None => format!("{value} (no bounds)"),
            Some(Interval { low, high }) if high.is_infinite() && low.is_infinite() => value,
            Some(Interval { low, high }) if high.is_infinite() => format!("{value} ({} or more)", show(low)),
            Some(Interval { low, high }) => format!("{value} ({} to {})", show(low), show(high)),
        }
    }
}

fn bounded(value: f64, show: impl Fn(f64) -> String) -> String {
    if value.is_finite() { show(value) } else { "none".to_owned() }
}

/// `0.031`, `0.00021`, `3.1e-7`.
pub fn small(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-5..1.0).contains(&size) {
        return if size < 1.0 { format!("{value:.1e}") } else { number(value) };
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let decimals = (1.0 - size.log10().floor()) as usize;
    format!("{value:.decimals$}")
}

/// `12 %`; of small ones `0.3 %`.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent.abs() < 9.95 { format!("{percent:.1} %") } else { format!("{} %", number(percent.round())) }
}

/// How far a prediction is from what was measured, with its sign.
pub fn error_percent(predicted: f64, measured: f64) -> String {
    let percent = 100.0 * (predicted / measured - 1.0);
    if !percent.is_finite() {
        return "no number".to_owned();
    }
    if percent.abs() < 9.95 { format!("{percent:+.1} %") } else { format!("{percent:+.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_say_how_far_they_can_be_trusted() {
        let interval = Interval::of((0..=1_000).map(f64::from)).unwrap();
        assert_eq!(interval, Interval { low: 25.0, high: 975.0 });
        assert_eq!(Estimate::new(500.0, Some(interval)).text(), "500 (25 to 975)");
        assert!(Estimate::new(500.0, Some(interval)).is_vague());
        assert_eq!(Estimate::new(500.0, None).text(), "500 (no bounds)");
        let open = Estimate::new(3.5, Some(Interval { low: 2.0, high: f64::INFINITY }));
        assert_eq!((open.text().as_str(), open.is_vague()), ("3.50 (2 or more)", true));
        assert_eq!(serde_json::to_string(&open).unwrap(), r#"{"value":3.5,"interval":{"low":2.0,"high":null}}"#);
        assert_eq!(Interval::of([f64::NAN].into_iter()), None);
    }

    #[test]
    fn small_numbers_keep_two_digits() {
        assert_eq!(
            [0.0, 0.031, 0.000_212, 3.1e-7, 0.5, 1.0].map(small),
            ["0", "0.031", "0.00021", "3.1e-7", "0.50", "1"]
        );
        assert_eq!([0.0034, 0.12, 1.5].map(percent), ["0.3 %", "12 %", "150 %"]);
        assert_eq!(error_percent(90.0, 100.0), "-10 %");
    }
}
