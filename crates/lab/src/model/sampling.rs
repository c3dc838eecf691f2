//! Error bounds by repetition: data as a fitted law would give them, with errors of the size that was seen, fitted again.
//!
//! The size itself is uncertain with few points, so each repetition draws it too (as Student's t does). The draws begin at a
//! fixed seed: the same data give the same bounds. Does not know any law.

use fastrand::Rng;

use super::least::{Row, Solution, TERMS_MAX, solve, unbounded, value};

/// Enough for bounds of 95 % that do not move by more than a few per cent of themselves.
const REPETITIONS: usize = 1000;
const SEED: u64 = 42;
/// The part of the repetitions that bounds leave out at either end.
const LEFT_OUT: f64 = 0.025;

/// What lies in 95 of 100 repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Of values that may be infinite (a peak that never comes); `None` of no values.
    pub fn of(mut values: Vec<f64>) -> Option<Interval> {
        values.retain(|value| !value.is_nan());
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let at = |part: f64| values[(part * last as f64).round() as usize];
        Some(Interval { low: at(LEFT_OUT), high: at(1.0 - LEFT_OUT) })
    }

    pub fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Coefficients of every repetition; empty where there are no more rows than coefficients.
///
/// Repetitions begin at the best coefficients without a bound. Begun at the bound they would lie on its one side, and bounds
/// of what follows from a coefficient that is truly zero would miss it more often (the ceiling in 12 of 100 series, not in 9).
pub fn repeat(rows: &[Row], terms: usize, solution: &Solution) -> Vec<[f64; TERMS_MAX]> {
    let freedom = rows.len().saturating_sub(terms);
    if freedom == 0 {
        return Vec::new();
    }
    let positive = |begin: &Solution| rows.iter().all(|row| value(&begin.coefficients, &row.terms) > 0.0);
    let begin = unbounded(rows, terms).filter(positive);
    let solution = begin.as_ref().unwrap_or(solution);
    let mut random = Rng::with_seed(SEED);
    let mut all = Vec::with_capacity(REPETITIONS);
    for _ in 0..REPETITIONS {
        let chi_squared: f64 = (0..freedom).map(|_| normal(&mut random).powi(2)).sum();
        let size = (solution.squares / chi_squared.max(f64::MIN_POSITIVE)).sqrt();
        let again: Vec<Row> = rows.iter().map(|row| disturbed(row, solution, size, &mut random)).collect();
        all.extend(solve(&again, terms).map(|solution| solution.coefficients));
    }
    all
}

fn disturbed(row: &Row, solution: &Solution, size: f64, random: &mut Rng) -> Row {
    // A factor rather than a sum, so that no figure becomes negative.
    let observed = value(&solution.coefficients, &row.terms) * (size * normal(random)).clamp(-3.0, 3.0).exp();
    Row { terms: row.terms, observed }
}

/// From the standard normal distribution (Box and Muller).
pub fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_leaves_out_both_ends() {
        let interval = Interval::of((0..=1000).map(f64::from).collect()).unwrap();
        assert_eq!(interval, Interval { low: 25.0, high: 975.0 });
        assert!(interval.contains(25.0) && !interval.contains(976.0));
        assert_eq!(Interval::of(vec![f64::NAN]), None);
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut random = Rng::with_seed(1);
        let all: Vec<f64> = (0..20_000).map(|_| normal(&mut random)).collect();
        let count = all.len() as f64;
        let (mean, square) = (all.iter().sum::<f64>() / count, all.iter().map(|each| each * each).sum::<f64>() / count);
        assert!(mean.abs() < 0.05 && (square - 1.0).abs() < 0.05, "{mean} {square}");
    }
}
