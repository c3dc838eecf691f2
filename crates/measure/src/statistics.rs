//! What rounds say together.
//!
//! Knows numbers only.

/// Of a normal distribution, both sides together, 5 of 100 lie beyond so many deviations.
const NORMAL_95: f64 = 1.959_964;
/// The same of Student's distribution, by degrees of freedom from one.
const STUDENT_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// So many deviations of a mean, of so many degrees of freedom, hold the truth in 95 of 100 cases. Infinite of none.
pub fn student_95(freedom: usize) -> f64 {
    let Some(index) = freedom.checked_sub(1) else { return f64::INFINITY };
    // Beyond the table the difference to the normal distribution is inverse to the degrees of freedom.
    STUDENT_95.get(index).copied().unwrap_or_else(|| NORMAL_95 + 2.4 / place(freedom))
}

/// Where a figure lies in 95 of 100 cases, as far as its rounds tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Of the mean of values. One alone says nothing of what another would have been: an interval without width, which whoever
    /// concludes something must not take for certainty.
    ///
    /// Positive values are taken by their logarithms: what disturbs a machine takes a part of a figure, and none is below zero.
    fn of(values: &[f64]) -> Option<Interval> {
        if values.iter().all(|value| *value > 0.0) {
            let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
            let (mean, half) = mean_and_half_width(&logarithms)?;
            return Some(Interval { low: (mean - half).exp(), high: (mean + half).exp() });
        }
        let (mean, half) = mean_and_half_width(values)?;
        Some(Interval { low: mean - half, high: mean + half })
    }

    /// With `value` in it.
    fn around(self, value: f64) -> Interval {
        Interval { low: self.low.min(value), high: self.high.max(value) }
    }

    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

fn mean_and_half_width(values: &[f64]) -> Option<(f64, f64)> {
    let mean = mean(values)?;
    let Some(freedom) = values.len().checked_sub(2).map(|more| more + 1) else { return Some((mean, 0.0)) };
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / place(freedom) / place(values.len())).sqrt();
    Some((mean, student_95(freedom) * deviation))
}

pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / place(values.len()))
}

/// Values of one figure over the rounds of one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
    pub rounds: usize,
    /// Of the mean, with the median in it.
    pub interval: Interval,
}

impl Spread {
    /// `None` of no values; what is no number is none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        let interval = Interval::of(&values)?.around(median);
        Some(Spread { low, median, high, rounds: values.len(), interval })
    }

    /// How far the interval reaches to either side, as a part of the median. Infinite where nothing is known of it: of one
    /// round, and where the median is zero.
    pub fn half_width(&self) -> f64 {
        if self.rounds < 2 || self.median <= 0.0 {
            return f64::INFINITY;
        }
        (self.interval.high - self.interval.low) / 2.0 / self.median
    }

    /// Whether two figures differ by more than their intervals allow: the distance of the medians is beyond both half
    /// widths, added as independent errors are. For as many rounds on both sides this asks for more than a test of 95 %.
    pub fn differs(&self, other: &Spread) -> bool {
        let (one, other) = if self.median <= other.median { (self, other) } else { (other, self) };
        if one.rounds < 2 || other.rounds < 2 {
            return false;
        }
        let (above, below) = (one.interval.high - one.median, other.median - other.interval.low);
        other.median - one.median > above.hypot(below)
    }

    /// Of one figure.
    pub fn alone(value: f64) -> Spread {
        let interval = Interval { low: value, high: value };
        Spread { low: value, median: value, high: value, rounds: 1, interval }
    }

    /// In another unit.
    #[must_use]
    pub fn map(self, of: impl Fn(f64) -> f64) -> Spread {
        let interval = Interval { low: of(self.interval.low), high: of(self.interval.high) };
        Spread { low: of(self.low), median: of(self.median), high: of(self.high), rounds: self.rounds, interval }
    }
}

/// A place along an axis as a number of things.
pub fn count(x: f64) -> usize {
    // Saturates; places are small whole numbers.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = x.round() as usize;
    whole
}

/// A number of things as a place; such numbers are exact.
pub fn place(count: usize) -> f64 {
    #[expect(clippy::cast_precision_loss)]
    let place = count as f64;
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let of =
            |values: &[f64]| Spread::of(values.iter().copied()).map(|spread| (spread.low, spread.median, spread.high));
        assert_eq!(of(&[4.0, 1.0, 2.0]), Some((1.0, 2.0, 4.0)));
        assert_eq!(of(&[4.0, 1.0]), Some((1.0, 2.5, 4.0)));
        assert_eq!(Spread::of([4.0, 1.0]).unwrap().map(|value| value * 2.0).median, 5.0);
        assert_eq!(Spread::of([f64::NAN, 1.0]).unwrap().median, 1.0);
        assert_eq!(Spread::of([]), None);
    }

    /// A tenth to either side at the most, and less in most cases.
    fn noisy(random: &mut u64) -> f64 {
        let mut part = || {
            // Of Knuth's MMIX.
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            #[expect(clippy::cast_precision_loss)]
            let part = (*random >> 11) as f64 / (1u64 << 53) as f64;
            part
        };
        1_000.0 * (0.9 + 0.05 * (part() + part() + part() + part()))
    }

    #[test]
    fn an_interval_holds_the_truth_in_95_of_100_cases() {
        let mut random = 1;
        for rounds in [2, 3, 5, 8] {
            let held = (0..2_000).filter(|_| {
                let spread = Spread::of((0..rounds).map(|_| noisy(&mut random))).unwrap();
                spread.interval.holds(1_000.0)
            });
            let part = place(held.count()) / 2_000.0;
            assert!((0.93..=0.99).contains(&part), "{part} with {rounds} rounds");
        }
    }

    #[test]
    fn what_is_the_same_seldom_differs_and_what_is_not_does() {
        let mut random = 7;
        let mut of = |times: f64| Spread::of((0..3).map(|_| times * noisy(&mut random))).unwrap();
        let apart = (0..2_000).filter(|_| of(1.0).differs(&of(1.0))).count();
        assert!(apart < 100, "{apart} of 2000");
        let apart = (0..2_000).filter(|_| of(1.0).differs(&of(1.5))).count();
        assert!(apart > 1_900, "{apart} of 2000");
        let once = |value: f64| Spread::of([value]).unwrap();
        assert!(!once(1.0).differs(&once(9.0)) && once(1.0).half_width().is_infinite());
    }

    #[test]
    fn intervals_of_positive_figures_stay_positive_and_hold_the_median() {
        let rough = Spread::of([100.0, 900.0]).unwrap();
        assert!(rough.interval.low > 0.0 && rough.interval.holds(rough.median), "{rough:?}");
        let signed = Spread::of([-1.0, 0.0, 1.0]).unwrap();
        assert!((signed.interval.high - 4.303 / 3f64.sqrt()).abs() < 1e-9, "{signed:?}");
        assert_eq!((student_95(1), student_95(30), student_95(0)), (12.706, 2.042, f64::INFINITY));
        assert!((student_95(60) - 2.000).abs() < 0.001);
    }

    #[test]
    fn places_are_whole() {
        assert_eq!((count(7.6), count(-1.0), place(8)), (8, 0, 8.0));
    }
}
