//! A cost that grows in proportion: each idle connection makes every transaction longer by the same time.
//!
//! That is what a snapshot cost before PostgreSQL 14: `GetSnapshotData()` walked over all connections (Freund 2020). The time of a
//! transaction is `base + each * x`. The Universal Scalability Law does not apply, since idle connections bring no throughput.

use super::least::{Row, TERMS_MAX, solve, value};
use super::sampling::{Interval, repeat};

/// Base and slope.
const TERMS: usize = 2;
const POINTS_MIN: usize = 3;

/// Of the mean time between transactions, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    pub base: f64,
    pub each: f64,
    /// The root of the mean squared relative error.
    pub error: f64,
    repetitions: Vec<[f64; TERMS_MAX]>,
}

/// Fits throughput (second) over the number of what costs (first, may be zero).
pub fn fit(points: &[(f64, f64)]) -> Result<Cost, String> {
    let usable = |(x, y): &&(f64, f64)| x.is_finite() && *x >= 0.0 && y.is_finite() && *y > 0.0;
    let row = |(x, throughput): &(f64, f64)| Row { terms: [1.0, *x, 0.0], observed: 1.0 / throughput };
    let rows: Vec<Row> = points.iter().filter(usable).map(row).collect();
    if rows.len() < POINTS_MIN {
        return Err(format!("{} points: a base, a slope and a look at whether they fit take {POINTS_MIN}", rows.len()));
    }
    let solution = solve(&rows, TERMS).ok_or("the figures determine no cost")?;
    let [base, each, _] = solution.coefficients;
    let error = (solution.squares / rows.len() as f64).sqrt();
    Ok(Cost { base, each, error, repetitions: repeat(&rows, TERMS, &solution) })
}

impl Cost {
    pub fn throughput(&self, x: f64) -> f64 {
        1.0 / (self.base + self.each * x)
    }

    /// Bounds of base and slope.
    pub fn coefficients(&self) -> [Option<Interval>; TERMS] {
        [0, 1].map(|term| Interval::of(self.repetitions.iter().map(|all| all[term]).collect()))
    }

    /// Throughput at `x` as the curve has it; a single measurement strays from it by `error` besides.
    pub fn bounds(&self, x: f64) -> Option<Interval> {
        Interval::of(self.repetitions.iter().map(|all| 1.0 / value(all, &[1.0, x, 0.0])).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proportional_cost_is_found_and_continued() {
        let points: Vec<(f64, f64)> = [0.0, 100.0, 1000.0].map(|x| (x, 1.0 / (30e-6 + 2e-9 * x))).to_vec();
        let cost = fit(&points).unwrap();
        assert!((cost.throughput(10_000.0) - 20_000.0).abs() < 1.0 && cost.error < 1e-9);
        assert!(cost.bounds(10_000.0).unwrap().contains(cost.throughput(10_000.0)));
        assert!(fit(&points[..2]).is_err());
    }
}
