//! From values to places on paper: round steps up a chart, and what varies along it.
//!
//! Knows numbers only.

/// Up a chart: from its foot to its head.
#[derive(Clone, Debug, PartialEq)]
pub struct Height {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// Where a line across the chart helps to read it.
    pub ticks: Vec<f64>,
}

impl Height {
    /// From zero to a round number above the largest value, in about `steps` steps.
    pub fn linear(largest: f64, steps: f64) -> Height {
        let step = round_step(largest / steps);
        let high = (largest / step - 1e-9).ceil().max(1.0) * step;
        let mut ticks = Vec::new();
        let mut tick = 0.0;
        while tick <= high + step / 2.0 {
            ticks.push(tick);
            tick += step;
        }
        Height { low: 0.0, high, logarithmic: false, ticks }
    }

    /// Between round numbers around the smallest and largest of positive values.
    pub fn logarithmic(smallest: f64, largest: f64) -> Height {
        let (low, high) = (smallest.log10(), largest.log10());
        let factors: &[f64] = if high - low > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let mut all = Vec::new();
        let mut power = low.floor();
        while power <= high.ceil() {
            all.extend(factors.iter().map(|factor| factor * 10f64.powf(power)));
            power += 1.0;
        }
        let from = all.iter().rposition(|tick| *tick <= smallest * 1.000_001).unwrap_or(0);
        let to = all.iter().position(|tick| *tick >= largest * 0.999_999).unwrap_or(all.len() - 1);
        let to = to.max(from + 1).min(all.len() - 1);
        let ticks = all[from..=to].to_vec();
        Height { low: all[from].ln(), high: all[to].ln(), logarithmic: true, ticks }
    }

    /// 0 at the foot, 1 at the head.
    pub fn share(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.ln() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// How far zero stands before the first other value, of the way from there to the last.
const ZERO_SHARE: f64 = 0.16;

/// Along a chart: what varies.
#[derive(Clone, Debug, PartialEq)]
pub struct Across {
    logarithmic: bool,
    low: f64,
    high: f64,
    /// Where zero stands on a logarithmic axis, which has no place for it: one step before the first.
    zero: Option<f64>,
}

impl Across {
    pub fn new(values: &[f64], logarithmic: bool) -> Across {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        sorted.dedup();
        let logarithmic = logarithmic && sorted.first().is_some_and(|first| *first >= 0.0);
        if !logarithmic {
            let (low, high) = (sorted.first().copied().unwrap_or(0.0), sorted.last().copied().unwrap_or(1.0));
            return Across { logarithmic, low, high, zero: None };
        }
        let positive: Vec<f64> = sorted.iter().copied().filter(|value| *value > 0.0).map(f64::ln).collect();
        let has_zero = sorted.first() == Some(&0.0);
        let (Some(low), Some(high)) = (positive.first().copied(), positive.last().copied()) else {
            return Across { logarithmic, low: 0.0, high: 0.0, zero: has_zero.then_some(0.0) };
        };
        let step = if high > low { (high - low) * ZERO_SHARE } else { 1.0 };
        let zero = has_zero.then_some(low - step);
        Across { logarithmic, low: zero.unwrap_or(low), high, zero }
    }

    /// 0 at the left end, 1 at the right one; all in the middle when there is only one.
    pub fn share(&self, value: f64) -> f64 {
        let place = match self.zero {
            Some(zero) if value <= 0.0 => zero,
            _ if self.logarithmic => value.ln(),
            _ => value,
        };
        if self.high <= self.low { 0.5 } else { ((place - self.low) / (self.high - self.low)).clamp(0.0, 1.0) }
    }

    /// Between zero's place and the first other one, where the axis is broken.
    pub fn gap(&self) -> Option<f64> {
        self.zero.filter(|zero| self.high > *zero).map(|_| ZERO_SHARE / (1.0 + ZERO_SHARE) / 2.0)
    }

    pub fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// So many values between the first and the last, as far apart on paper from each other: for curves.
    pub fn steps(&self, from: f64, to: f64, count: u16) -> Vec<f64> {
        let between = |index: u16| {
            let share = f64::from(index) / f64::from(count.max(2) - 1);
            if self.logarithmic && from > 0.0 { from * (to / from).powf(share) } else { from + (to - from) * share }
        };
        (0..count.max(2)).map(between).collect()
    }
}

/// The next of 1, 2, 2.5, 5 times a power of ten that is not below `step`.
pub fn round_step(step: f64) -> f64 {
    if step <= 0.0 || !step.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0].into_iter().find(|factor| factor * power >= step * 0.999);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!([0.0, 1.0, 3.0, 0.21, 4_200.0].map(round_step), [1.0, 1.0, 5.0, 0.25, 5_000.0]);
        assert_eq!(Height::linear(9.2, 4.0).ticks, [0.0, 2.5, 5.0, 7.5, 10.0]);
        assert_eq!(Height::linear(0.0, 4.0).ticks, [0.0, 1.0]);
    }

    #[test]
    fn a_logarithmic_height_holds_all_values_between_round_ones() {
        assert_eq!(Height::logarithmic(14.0, 900.0).ticks, [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        let height = Height::logarithmic(7.0, 1_032_435.0);
        assert_eq!(height.ticks.first(), Some(&1.0));
        assert!(height.share(7.0) > 0.0 && height.share(1_032_435.0) <= 1.0);
        assert_eq!(Height::logarithmic(10.0, 10.0).ticks.len(), 2);
    }

    #[test]
    fn zero_has_a_place_of_its_own_on_a_logarithmic_axis() {
        let across = Across::new(&[0.0, 100.0, 1_000.0, 10_000.0], true);
        let places = [0.0, 100.0, 1_000.0, 10_000.0].map(|value| across.share(value));
        assert_eq!((places[0], places[3]), (0.0, 1.0));
        assert!(
            (places[1] - ZERO_SHARE / (1.0 + ZERO_SHARE)).abs() < 1e-9
                && (places[3] - places[2] - places[2] + places[1]).abs() < 1e-9
        );
        let gap = across.gap().unwrap();
        assert!(gap > 0.0 && gap < places[1]);
        assert_eq!(Across::new(&[0.0], true).share(0.0), 0.5);
        assert_eq!(Across::new(&[8.0], true).share(8.0), 0.5);
        assert_eq!(Across::new(&[], false).share(0.5), 0.5);
    }
}
