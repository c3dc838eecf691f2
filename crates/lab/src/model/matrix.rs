//! Linear algebra of a few unknowns: normal equations of least squares.
//!
//! Knows numbers, not what they stand for. At most a handful of rows and columns.

/// Rows of a square matrix.
pub type Matrix = Vec<Vec<f64>>;

/// A pivot so much smaller than the largest element means that columns depend on each other.
const SINGULAR: f64 = 1e-12;

/// The products of the columns of `rows` with each other.
pub fn gram(rows: &[Vec<f64>], columns: usize) -> Matrix {
    let product = |left: usize, right: usize| rows.iter().map(|row| row[left] * row[right]).sum();
    (0..columns).map(|left| (0..columns).map(|right| product(left, right)).collect()).collect()
}

/// The products of the columns of `rows` with a vector.
pub fn products(rows: &[Vec<f64>], columns: usize, vector: &[f64]) -> Vec<f64> {
    (0..columns).map(|column| rows.iter().zip(vector).map(|(row, value)| row[column] * value).sum()).collect()
}

pub fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// Solves `matrix * x = right`; `None` where there is no one solution.
pub fn solve(mut matrix: Matrix, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let size = right.len();
    let largest = matrix.iter().flatten().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    if !largest.is_finite() || largest == 0.0 {
        return None;
    }
    for column in 0..size {
        let pivot = (column..size).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        if matrix[pivot][column].abs() <= largest * SINGULAR {
            return None;
        }
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        for row in column + 1..size {
            let factor = matrix[row][column] / matrix[column][column];
            for index in column..size {
                matrix[row][index] -= factor * matrix[column][index];
            }
            right[row] -= factor * right[column];
        }
    }
    for row in (0..size).rev() {
        let known = dot(&matrix[row][row + 1..], &right[row + 1..]);
        right[row] = (right[row] - known) / matrix[row][row];
    }
    right.iter().all(|value| value.is_finite()).then_some(right)
}

/// The inverse, column by column.
pub fn inverse(matrix: &Matrix) -> Option<Matrix> {
    let size = matrix.len();
    let unit = |column: usize| (0..size).map(|row| f64::from(u8::from(row == column))).collect();
    let columns: Matrix = (0..size).map(|column| solve(matrix.clone(), unit(column))).collect::<Option<_>>()?;
    Some((0..size).map(|row| (0..size).map(|column| columns[column][row]).collect()).collect())
}

/// The lower triangle whose product with its transpose is the matrix; `None` of one that is not positive definite.
pub fn cholesky(matrix: &Matrix) -> Option<Matrix> {
    let size = matrix.len();
    let mut lower: Matrix = vec![vec![0.0; size]; size];
    for row in 0..size {
        for column in 0..=row {
            let rest = matrix[row][column] - dot(&lower[row][..column], &lower[column][..column]);
            lower[row][column] = if row == column { rest.sqrt() } else { rest / lower[column][column] };
            if !lower[row][column].is_finite() || (row == column && rest <= 0.0) {
                return None;
            }
        }
    }
    Some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_solved_or_refused() {
        let matrix = vec![vec![4.0, 2.0, 0.5], vec![2.0, 3.0, 1.0], vec![0.5, 1.0, 2.0]];
        let x = solve(matrix.clone(), vec![9.5, 11.0, 8.5]).unwrap();
        assert!(x.iter().zip([1.0, 2.0, 3.0]).all(|(got, expected)| (got - expected).abs() < 1e-12), "{x:?}");
        let inverse = inverse(&matrix).unwrap();
        assert!((dot(&matrix[0], &[inverse[0][0], inverse[1][0], inverse[2][0]]) - 1.0).abs() < 1e-12);
        let lower = cholesky(&matrix).unwrap();
        assert!((dot(&lower[2], &lower[1]) - 1.0).abs() < 1e-12 && lower[0][1] == 0.0);
        assert_eq!(solve(vec![vec![1.0, 2.0], vec![2.0, 4.0]], vec![1.0, 1.0]), None);
        assert_eq!(solve(vec![vec![f64::NAN]], vec![1.0]), None);
        assert_eq!(cholesky(&vec![vec![-1.0]]), None);
    }
}
