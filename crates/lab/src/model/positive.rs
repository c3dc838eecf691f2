//! Least squares for sums of known functions with coefficients that cannot be negative: times, each a sum of causes.
//!
//! What is compared are logarithms, so that an error of 5 % counts the same at 1,000 and at 100,000 transactions per second.
//! Few coefficients: which of them are zero is found by trying all ways. Does not know what is fitted.

use super::matrix::{Matrix, cholesky, dot, gram, inverse, products, solve};
use super::random::Random;

/// Draws of plausible coefficients; bounds are taken from them.
const DRAWS: usize = 2_000;
const STEPS_MAX: usize = 100;
/// A step that changes the sum of squares by less is the last.
const GAIN_MIN: f64 = 1e-13;
/// A coefficient goes at most so near to zero in one step.
const NEAREST: f64 = 0.01;
/// A coefficient is left out when it makes the sum of squares smaller by no more than this share.
const WORTH: f64 = 1e-7;
const SEED: u64 = 20_261_121;

/// The best coefficients.
#[derive(Clone, Debug, PartialEq)]
pub struct Positive {
    pub coefficients: Vec<f64>,
    /// The logarithm of measured by fitted, in the order of the rows.
    pub residuals: Vec<f64>,
    rows: Vec<Vec<f64>>,
}

/// Coefficients that the data allow, drawn as often as they are plausible.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cloud {
    pub draws: Vec<Vec<f64>>,
    /// Each draw's own idea of how far a single measurement strays, as a factor that one was drawn from.
    pub strays: Vec<f64>,
}

impl Positive {
    /// `rows` are the functions' values where `measured` was measured; everything positive or zero, `measured` positive.
    /// `None` where no coefficients can be told: too few rows, or none that are distinct.
    pub fn fit(rows: &[Vec<f64>], measured: &[f64]) -> Option<Positive> {
        let columns = rows.first()?.len();
        if rows.len() < columns || rows.len() != measured.len() {
            return None;
        }
        // Divided by what was measured the best sum is 1 everywhere; divided by their sizes all columns weigh the same.
        let mut rows: Vec<Vec<f64>> = rows.to_vec();
        for (row, measured) in rows.iter_mut().zip(measured) {
            row.iter_mut().for_each(|value| *value /= measured);
        }
        let sizes: Vec<f64> = (0..columns).map(|column| norm(&rows, column)).collect();
        if sizes.iter().any(|size| !size.is_finite() || *size <= 0.0) {
            return None;
        }
        rows.iter_mut().for_each(|row| row.iter_mut().zip(&sizes).for_each(|(value, size)| *value /= size));
        solve(gram(&rows, columns), vec![0.0; columns])?;
        let scaled = best(&rows, columns)?;
        let coefficients: Vec<f64> = scaled.iter().zip(&sizes).map(|(value, size)| value / size).collect();
        let residuals = rows.iter().map(|row| -dot(row, &scaled).ln()).collect();
        // From here on in the caller's units.
        rows.iter_mut().for_each(|row| row.iter_mut().zip(&sizes).for_each(|(value, size)| *value *= size));
        Some(Positive { coefficients, residuals, rows })
    }

    pub fn sum_of_squares(&self) -> f64 {
        dot(&self.residuals, &self.residuals)
    }

    /// Rows beyond those that the coefficients need.
    pub fn degrees(&self) -> usize {
        self.rows.len() - self.coefficients.len()
    }

    /// How far a single measurement strays from the curve, as a share; `None` where no row is left to tell it.
    #[allow(clippy::cast_precision_loss)]
    pub fn deviation(&self) -> Option<f64> {
        (self.degrees() > 0).then(|| (self.sum_of_squares() / self.degrees() as f64).sqrt())
    }

    /// Draws around the best coefficients by their covariance, with Student's distribution for the deviation that is itself
    /// estimated. A draw with a negative coefficient becomes the nearest one without, as fitting such data would make it.
    pub fn cloud(&self) -> Option<Cloud> {
        let deviation = self.deviation()?;
        let columns = self.coefficients.len();
        let slopes = self.slopes();
        let sizes: Vec<f64> = (0..columns).map(|column| norm(&slopes, column)).collect();
        let scaled: Vec<Vec<f64>> =
            slopes.iter().map(|row| row.iter().zip(&sizes).map(|(value, size)| value / size).collect()).collect();
        let information = gram(&scaled, columns);
        let lower = cholesky(&inverse(&information)?)?;
        let towards = solve(information.clone(), products(&scaled, columns, &self.residuals))?;
        // Where the best coefficients would be if they could be negative: inside the bounds the step is zero.
        let centre: Vec<f64> =
            (0..columns).map(|column| self.coefficients[column] * sizes[column] + towards[column]).collect();
        let faces = faces(&information);
        let mut random = Random::new(SEED);
        let mut cloud = Cloud::default();
        for _ in 0..DRAWS {
            let spread = deviation * random.unsure_deviation(self.degrees());
            let normal: Vec<f64> = (0..columns).map(|_| random.normal()).collect();
            let draw = (0..columns).map(|row| centre[row] + spread * dot(&lower[row], &normal)).collect();
            let stray = (spread * random.normal()).exp();
            if let Some(draw) = nearest(draw, &information, &faces) {
                cloud.draws.push(draw.iter().zip(&sizes).map(|(value, size)| value / size).collect());
                cloud.strays.push(stray);
            }
        }
        Some(cloud)
    }

    /// How the logarithm of the fitted sum changes with each coefficient.
    fn slopes(&self) -> Vec<Vec<f64>> {
        let slope = |row: &Vec<f64>| {
            let sum = dot(row, &self.coefficients);
            row.iter().map(|value| value / sum).collect()
        };
        self.rows.iter().map(slope).collect()
    }
}

fn norm(rows: &[Vec<f64>], column: usize) -> f64 {
    rows.iter().map(|row| row[column].powi(2)).sum::<f64>().sqrt()
}

/// Of all ways to leave coefficients at zero the one with the least sum of squares, with as few coefficients as that takes.
fn best(rows: &[Vec<f64>], columns: usize) -> Option<Vec<f64>> {
    let mut ways: Vec<u32> = (1..1 << columns).collect();
    ways.sort_by_key(|way| way.count_ones());
    let mut best: Option<(f64, Vec<f64>)> = None;
    for way in ways {
        let used: Vec<usize> = (0..columns).filter(|column| way & (1 << column) != 0).collect();
        let Some((sum, part)) = descend(rows, &used) else { continue };
        if best.as_ref().is_none_or(|(least, _)| sum < least * (1.0 - WORTH)) {
            let mut all = vec![0.0; columns];
            used.iter().zip(part).for_each(|(column, value)| all[*column] = value);
            best = Some((sum, all));
        }
    }
    best.map(|(_, coefficients)| coefficients)
}

/// Levenberg and Marquardt's descent over the used columns, with steps that keep all coefficients positive.
fn descend(rows: &[Vec<f64>], used: &[usize]) -> Option<(f64, Vec<f64>)> {
    let rows: Vec<Vec<f64>> = rows.iter().map(|row| used.iter().map(|column| row[*column]).collect()).collect();
    let columns = used.len();
    let sum_of = |at: &[f64]| rows.iter().map(|row| dot(row, at).ln().powi(2)).sum::<f64>();
    let mut at = beginning(&rows, columns);
    let mut sum = sum_of(&at);
    let mut damping = 1e-3;
    for _ in 0..STEPS_MAX {
        let residuals: Vec<f64> = rows.iter().map(|row| -dot(row, &at).ln()).collect();
        let slopes: Vec<Vec<f64>> = rows
            .iter()
            .map(|row| {
                let fitted = dot(row, &at);
                row.iter().map(|value| value / fitted).collect()
            })
            .collect();
        let mut matrix = gram(&slopes, columns);
        (0..columns).for_each(|index| matrix[index][index] *= 1.0 + damping);
        let step = solve(matrix, products(&slopes, columns, &residuals))?;
        let next: Vec<f64> = at.iter().zip(&step).map(|(value, step)| (value + step).max(value * NEAREST)).collect();
        let sum_next = sum_of(&next);
        if sum_next.is_finite() && sum_next <= sum {
            let gain = sum - sum_next;
            (at, sum) = (next, sum_next);
            damping *= 0.1;
            if gain <= sum * GAIN_MIN {
                break;
            }
        } else {
            damping *= 10.0;
        }
    }
    sum.is_finite().then_some((sum, at))
}

/// The solution of the linear problem where it is positive, or equal shares.
fn beginning(rows: &[Vec<f64>], columns: usize) -> Vec<f64> {
    let ones = vec![1.0; rows.len()];
    if let Some(linear) = solve(gram(rows, columns), products(rows, columns, &ones))
        && linear.iter().all(|value| *value > 0.0)
    {
        return linear;
    }
    // Scaled so that the sums are 1 in the geometric mean.
    #[allow(clippy::cast_precision_loss)]
    let mean = rows.iter().map(|row| row.iter().sum::<f64>().ln()).sum::<f64>() / rows.len() as f64;
    vec![(-mean).exp(); columns]
}

/// One way to have some coefficients at zero: how the others move when those are taken to zero.
struct Face {
    zero: Vec<usize>,
    free: Vec<usize>,
    /// One row per free coefficient, one column per zero one.
    moves: Matrix,
}

fn faces(information: &Matrix) -> Vec<Face> {
    let columns = information.len();
    let face = |way: u32| {
        let (zero, free): (Vec<usize>, Vec<usize>) = (0..columns).partition(|column| way & (1 << column) != 0);
        let among: Matrix =
            free.iter().map(|row| free.iter().map(|column| information[*row][*column]).collect()).collect();
        let moved = |zero: &usize| solve(among.clone(), free.iter().map(|row| information[*row][*zero]).collect());
        let by_zero: Matrix = zero.iter().map(moved).collect::<Option<_>>()?;
        let moves = (0..free.len()).map(|row| by_zero.iter().map(|column| column[row]).collect()).collect();
        Some(Face { zero, free, moves })
    };
    (1..(1 << columns) - 1).filter_map(face).collect()
}

/// The draw itself, or the nearest without a negative coefficient by the metric of the information; `None` where that would
/// be nothing at all.
fn nearest(draw: Vec<f64>, information: &Matrix, faces: &[Face]) -> Option<Vec<f64>> {
    if draw.iter().all(|value| *value >= 0.0) {
        return Some(draw);
    }
    let mut best: Option<(f64, Vec<f64>)> = None;
    for face in faces {
        let gone: Vec<f64> = face.zero.iter().map(|index| draw[*index]).collect();
        let mut moved = vec![0.0; draw.len()];
        for (index, moves) in face.free.iter().zip(&face.moves) {
            moved[*index] = draw[*index] + dot(moves, &gone);
        }
        let apart: Vec<f64> = moved.iter().zip(&draw).map(|(moved, drawn)| moved - drawn).collect();
        let distance: f64 = information.iter().zip(&apart).map(|(row, value)| value * dot(row, &apart)).sum();
        if moved.iter().all(|value| *value >= 0.0) && best.as_ref().is_none_or(|(least, _)| distance < *least) {
            best = Some((distance, moved));
        }
    }
    best.map(|(_, coefficients)| coefficients)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(xs: &[f64]) -> Vec<Vec<f64>> {
        xs.iter().map(|x| vec![1.0, *x]).collect()
    }

    #[test]
    fn exact_sums_are_found_exactly() {
        let xs = [0.0, 1.0, 10.0, 100.0];
        let fit = Positive::fit(&rows(&xs), &xs.map(|x| 3.0 + 0.5 * x)).unwrap();
        assert!((fit.coefficients[0] - 3.0).abs() < 1e-6 && (fit.coefficients[1] - 0.5).abs() < 1e-6, "{fit:?}");
        assert_eq!(fit.degrees(), 2);
    }

    #[test]
    fn what_would_be_negative_is_zero_and_its_bounds_say_how_surely() {
        let xs = [0.0, 1.0, 2.0, 3.0, 4.0];
        let falling = Positive::fit(&rows(&xs), &[10.0, 9.0, 8.1, 7.0, 6.0]).unwrap();
        assert_eq!(falling.coefficients[1], 0.0);
        assert!(falling.cloud().unwrap().draws.iter().all(|draw| draw[1] == 0.0));
        let flat = Positive::fit(&rows(&xs), &[10.0, 10.3, 9.8, 10.1, 9.9]).unwrap();
        let draws = flat.cloud().unwrap().draws;
        assert!(draws.iter().any(|draw| draw[1] == 0.0) && draws.iter().any(|draw| draw[1] > 0.0));
    }

    #[test]
    fn what_cannot_be_told_is_none() {
        assert_eq!(Positive::fit(&[], &[]), None);
        assert_eq!(Positive::fit(&rows(&[1.0]), &[1.0]), None);
        assert_eq!(Positive::fit(&rows(&[2.0, 2.0, 2.0]), &[1.0, 1.1, 0.9]), None);
        assert_eq!(Positive::fit(&rows(&[0.0, 0.0]), &[1.0, 1.1]), None);
        let two = Positive::fit(&rows(&[1.0, 2.0]), &[1.0, 2.0]).unwrap();
        assert_eq!(two.cloud(), None);
    }
}
