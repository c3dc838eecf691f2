//! Least squares with up to three coefficients, none of them negative.
//!
//! Each row is divided by what it explains, so that errors count in proportion: throughputs of one client and of a thousand
//! weigh the same. Small enough to be solved exactly: every choice of coefficients that are zero is tried, and the
//! best that needs no negative one is the minimum (the problem is convex). Does not know what it is used for.

/// So many coefficients at most.
pub const TERMS_MAX: usize = 3;

/// One observation: `observed` is to be the sum of coefficients times terms.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub terms: [f64; TERMS_MAX],
    pub observed: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Solution {
    pub coefficients: [f64; TERMS_MAX],
    /// The sum of squared relative errors.
    pub squares: f64,
    /// How many coefficients are not zero.
    pub free: usize,
}

/// The best coefficients among the first `terms`. `None` where the rows do not determine any: too few, or all alike.
pub fn solve(rows: &[Row], terms: usize) -> Option<Solution> {
    let mut best: Option<Solution> = None;
    for mask in 1u32..(1 << terms) {
        let chosen: Vec<usize> = (0..terms).filter(|term| mask & (1 << term) != 0).collect();
        let Some(solution) = solve_chosen(rows, &chosen) else { continue };
        if best.is_none_or(|known| solution.squares < known.squares) {
            best = Some(solution);
        }
    }
    best
}

/// The best coefficients without a bound: where they are negative, so far the data lie beyond it.
pub fn unbounded(rows: &[Row], terms: usize) -> Option<Solution> {
    linear(rows, &(0..terms).collect::<Vec<_>>())
}

fn solve_chosen(rows: &[Row], chosen: &[usize]) -> Option<Solution> {
    linear(rows, chosen).filter(|solution| solution.coefficients.iter().all(|coefficient| *coefficient >= 0.0))
}

fn linear(rows: &[Row], chosen: &[usize]) -> Option<Solution> {
    if rows.len() < chosen.len() {
        return None;
    }
    let count = chosen.len();
    let mut normal = [[0.0; TERMS_MAX + 1]; TERMS_MAX];
    for row in rows {
        let scaled: Vec<f64> = chosen.iter().map(|term| row.terms[*term] / row.observed).collect();
        for (line, factor) in normal.iter_mut().zip(&scaled) {
            line.iter_mut().zip(&scaled).for_each(|(sum, other)| *sum += factor * other);
            line[count] += factor;
        }
    }
    let solved = eliminate(&mut normal, count)?;
    let mut coefficients = [0.0; TERMS_MAX];
    for (term, value) in chosen.iter().zip(solved) {
        coefficients[*term] = value;
    }
    let error = |row: &Row| value(&coefficients, &row.terms) / row.observed - 1.0;
    let squares = rows.iter().map(|row| error(row).powi(2)).sum();
    Some(Solution { coefficients, squares, free: count })
}

/// The sum of coefficients times terms.
pub fn value(coefficients: &[f64; TERMS_MAX], terms: &[f64; TERMS_MAX]) -> f64 {
    coefficients.iter().zip(terms).map(|(coefficient, term)| coefficient * term).sum()
}

/// Gauss's elimination with pivots, of `count` lines with their right side in column `count`.
fn eliminate(lines: &mut [[f64; TERMS_MAX + 1]; TERMS_MAX], count: usize) -> Option<[f64; TERMS_MAX]> {
    /// A pivot so much smaller than its line began is nothing but rounding.
    const SINGULAR: f64 = 1e-12;
    let largest =
        lines[..count].iter().map(|line| line[..count].iter().fold(0.0, |most: f64, each| most.max(each.abs())));
    let sizes: Vec<f64> = largest.collect();
    for column in 0..count {
        let pivot =
            (column..count).max_by(|left, right| lines[*left][column].abs().total_cmp(&lines[*right][column].abs()))?;
        lines.swap(column, pivot);
        if lines[column][column].abs() <= SINGULAR * sizes[column].max(f64::MIN_POSITIVE) {
            return None;
        }
        for line in 0..count {
            if line == column {
                continue;
            }
            let factor = lines[line][column] / lines[column][column];
            let subtracted = lines[column];
            for (value, other) in lines[line].iter_mut().zip(subtracted) {
                *value -= factor * other;
            }
        }
    }
    let mut solved = [0.0; TERMS_MAX];
    for (line, value) in solved.iter_mut().enumerate().take(count) {
        *value = lines[line][count] / lines[line][line];
    }
    solved.iter().all(|value| value.is_finite()).then_some(solved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(x: f64, observed: f64) -> Row {
        Row { terms: [1.0, x, x * x], observed }
    }

    #[test]
    fn exact_data_give_their_coefficients() {
        let rows: Vec<Row> = (1..6u8).map(f64::from).map(|x| row(x, 2.0 + 3.0 * x + 0.5 * x * x)).collect();
        let solution = solve(&rows, 3).unwrap();
        for (found, wanted) in solution.coefficients.iter().zip([2.0, 3.0, 0.5]) {
            assert!((found - wanted).abs() < 1e-9, "{solution:?}");
        }
        assert!(solution.squares < 1e-18);
    }

    #[test]
    fn what_would_be_negative_is_zero() {
        let rows: Vec<Row> = (1..6u8).map(f64::from).map(|x| row(x, 20.0 - x)).collect();
        let solution = solve(&rows, 3).unwrap();
        assert_eq!(solution.coefficients[1..], [0.0, 0.0]);
        assert!(solution.coefficients[0] > 10.0 && solution.free == 1);
    }

    #[test]
    fn rows_that_are_all_alike_determine_one() {
        let solution = solve(&[row(4.0, 8.0), row(4.0, 8.0), row(4.0, 8.0)], 3).unwrap();
        assert_eq!(solution.free, 1);
        assert!(solve(&[], 3).is_none());
    }
}
