//! What rounds say together.
//!
//! Knows numbers only.

/// Values of one figure over the rounds of one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
    pub rounds: usize,
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
        Some(Spread { low, median, high, rounds: values.len() })
    }

    /// In another unit.
    #[must_use]
    pub fn map(self, of: impl Fn(f64) -> f64) -> Spread {
        Spread { low: of(self.low), median: of(self.median), high: of(self.high), rounds: self.rounds }
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
        assert_eq!(Spread::of([4.0, 1.0, 2.0]), Some(Spread { low: 1.0, median: 2.0, high: 4.0, rounds: 3 }));
        let even = Spread::of([4.0, 1.0]).unwrap();
        assert_eq!(even, Spread { low: 1.0, median: 2.5, high: 4.0, rounds: 2 });
        assert_eq!(even.map(|value| value * 2.0), Spread { low: 2.0, median: 5.0, high: 8.0, rounds: 2 });
        assert_eq!(Spread::of([f64::NAN, 1.0]).unwrap().median, 1.0);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn places_are_whole() {
        assert_eq!((count(7.6), count(-1.0), place(8)), (8, 0, 8.0));
    }
}
