//! Throughput second by second: when it is warm, and whether it stood still while it was measured; and whether a machine drifted
//! over a whole run.
//!
//! Knows numbers only.

use serde::{Deserialize, Serialize};

use crate::statistics::{mean, place, student_95};

/// The rates of consecutive seconds, and how many of the first are not counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub per_second: Vec<f64>,
    pub warm_up: usize,
    /// Whether it was warm then, or had only used up the time for it.
    pub is_warm: bool,
}

impl Series {
    /// What counts.
    pub fn counted(&self) -> &[f64] {
        self.per_second.get(self.warm_up..).unwrap_or_default()
    }
}

/// Before it counts, each client has done so many transactions on average: the first on a new connection fills caches.
const TRANSACTIONS_OF_EACH: f64 = 3.0;
/// A second with so much more than the one before it was not the last to rise.
const RISING_PART: f64 = 1.1;
/// Seconds that are not counted at the least: the first one holds the start of everything.
const SECONDS_LEAST: u64 = 1;
/// And at the most, beside those that are measured, before a measurement is taken as it is.
const SECONDS_MOST: u64 = 5;
const SECONDS_MOST_TIMES: u64 = 3;

/// How long a load warms up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmUp {
    least: usize,
    most: usize,
}

impl WarmUp {
    /// For a measurement of so many seconds: a tenth of them, and until it is warm. Or so many as somebody wished.
    pub fn of(seconds: u64, wished: Option<u64>) -> WarmUp {
        let (least, most) = match wished {
            Some(wished) => (wished, wished),
            None => ((seconds / 10).max(SECONDS_LEAST), SECONDS_MOST + SECONDS_MOST_TIMES * seconds),
        };
        let whole = |seconds: u64| usize::try_from(seconds).unwrap_or(usize::MAX);
        WarmUp { least: whole(least), most: whole(most) }
    }

    pub fn most_seconds(&self) -> u64 {
        self.most.try_into().unwrap_or(u64::MAX)
    }

    /// How many of these first seconds do not count, and whether it is warm after them; `None`: that cannot be told yet. More
    /// seconds do not change what was told.
    pub fn end(&self, rates: &[f64], clients: usize) -> Option<(usize, bool)> {
        if self.least == self.most {
            return (rates.len() > self.most).then_some((self.most, true));
        }
        let mut done = 0.0;
        for (second, rate) in rates.iter().enumerate() {
            if second >= self.most {
                return Some((self.most, false));
            }
            let each_has_begun = done >= TRANSACTIONS_OF_EACH * place(clients);
            let before = second.checked_sub(1).map_or(0.0, |before| rates[before]);
            if second >= self.least && each_has_begun && *rate <= RISING_PART * before {
                return Some((second, true));
            }
            done += rate;
        }
        None
    }
}

/// Of fewer seconds a straight line says nothing.
const TREND_SECONDS_MIN: usize = 5;
/// From the first second to the last; less hardly changes a mean.
const TREND_PART: f64 = 0.1;

/// By what part of its mean throughput rose (above zero) or fell while it was measured, where that is more than chance and more
/// than little.
pub fn trend(rates: &[f64]) -> Option<f64> {
    if rates.len() < TREND_SECONDS_MIN {
        return None;
    }
    let mean = mean(rates).filter(|mean| *mean > 0.0)?;
    let points: Vec<(f64, f64)> = rates.iter().enumerate().map(|(at, rate)| (place(at), rate / mean)).collect();
    let slope = Slope::of(std::slice::from_ref(&points))?;
    let change = slope.each * place(rates.len() - 1);
    (slope.is_clear() && change.abs() >= TREND_PART).then_some(change)
}

/// A smaller one is less than what anybody sets anything differently for.
const DRIFT_PART: f64 = 0.1;
/// Where too little was repeated to tell chance from drift.
const DRIFT_PART_ALONE: f64 = 0.2;

/// By what part figures that were measured again and again changed from the first moment to the last, where that is clear: what
/// is the same drifted with the machine. Each place has its figures with the moment of each, in seconds.
pub fn drift(places: &[Vec<(f64, f64)>]) -> Option<f64> {
    let logarithms = |place: &Vec<(f64, f64)>| -> Vec<(f64, f64)> {
        place.iter().filter(|(_, value)| *value > 0.0).map(|(at, value)| (*at, value.ln())).collect()
    };
    let groups: Vec<Vec<(f64, f64)>> = places.iter().map(logarithms).filter(|group| group.len() > 1).collect();
    let moments = || groups.iter().flatten().map(|(at, _)| *at);
    let (first, last) = (moments().reduce(f64::min)?, moments().reduce(f64::max)?);
    let slope = Slope::of(&groups)?;
    let change = (slope.each * (last - first)).exp() - 1.0;
    let clear = if slope.freedom > 1 { slope.is_clear() && change.abs() >= DRIFT_PART } else { false };
    let large = slope.freedom <= 1 && change.abs() >= DRIFT_PART_ALONE;
    (clear || large).then_some(change)
}

/// One straight line's slope through several groups, each at a height of its own.
struct Slope {
    each: f64,
    deviation: f64,
    freedom: usize,
}

impl Slope {
    /// `None` where nothing moves along the axis.
    fn of(groups: &[Vec<(f64, f64)>]) -> Option<Slope> {
        let mut centred = Vec::new();
        for group in groups {
            let (xs, ys): (Vec<f64>, Vec<f64>) = group.iter().copied().unzip();
            let (x, y) = (mean(&xs)?, mean(&ys)?);
            centred.extend(group.iter().map(|point| (point.0 - x, point.1 - y)));
        }
        let squares: f64 = centred.iter().map(|(x, _)| x * x).sum();
        if squares <= 0.0 {
            return None;
        }
        let each = centred.iter().map(|(x, y)| x * y).sum::<f64>() / squares;
        let freedom = centred.len().saturating_sub(groups.len() + 1);
        let left: f64 = centred.iter().map(|(x, y)| (y - each * x).powi(2)).sum();
        let deviation = if freedom == 0 { f64::INFINITY } else { (left / place(freedom) / squares).sqrt() };
        Some(Slope { each, deviation, freedom })
    }

    fn is_clear(&self) -> bool {
        self.each.abs() > student_95(self.freedom) * self.deviation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTOMATIC: Option<u64> = None;

    #[test]
    fn first_queries_are_not_counted() {
        // As 256 and 1000 direct connections began on a machine of two cores.
        let warm_up = WarmUp::of(5, AUTOMATIC);
        assert_eq!(warm_up.end(&[79.0, 6_737.0], 256), None, "it rose until now");
        assert_eq!(warm_up.end(&[79.0, 6_737.0, 7_125.0, 7_000.0], 256), Some((2, true)));
        let slow = [9.9, 9.9, 9.9, 9.9, 9.9, 6_460.0, 7_227.0, 7_349.0];
        assert_eq!(warm_up.end(&slow, 1_000), Some((7, true)), "each client has done some by then");
        assert_eq!(warm_up.end(&slow[..7], 1_000), None, "it rose until the last of these");
        assert_eq!(warm_up.end(&[1_000.0, 1_010.0], 8), Some((1, true)), "the first second alone");
        assert_eq!(WarmUp::of(60, AUTOMATIC).end(&[1_000.0; 60], 8), Some((6, true)));
    }

    #[test]
    fn warming_up_has_a_limit_and_can_be_wished() {
        let rising: Vec<f64> = (0..40).map(|second| 100.0 * 1.2f64.powi(second)).collect();
        assert_eq!(WarmUp::of(2, AUTOMATIC).end(&rising, 1), Some((11, false)));
        assert_eq!(WarmUp::of(2, AUTOMATIC).end(&[0.0; 12], 1), Some((11, false)), "nothing came to its end");
        let wished = WarmUp::of(2, Some(3));
        assert_eq!((wished.end(&rising[..3], 1), wished.end(&rising[..4], 1)), (None, Some((3, true))));
        assert_eq!(WarmUp::of(2, Some(0)).end(&rising[..1], 1_000), Some((0, true)));
        let series = Series { per_second: rising[..5].to_vec(), warm_up: 3, is_warm: true };
        assert_eq!(series.counted(), &rising[3..5]);
    }

    #[test]
    fn a_trend_is_told_from_noise() {
        let noise = [1.01, 0.98, 1.02, 0.99, 1.0, 0.97, 1.03, 1.0, 0.99, 1.01];
        assert_eq!(trend(&noise), None);
        let rising: Vec<f64> = noise.iter().enumerate().map(|(at, noise)| noise * (1.0 + 0.03 * place(at))).collect();
        assert!((trend(&rising).unwrap() - 0.24).abs() < 0.03, "{:?}", trend(&rising));
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        assert!(trend(&falling).unwrap() < -0.2);
        assert_eq!((trend(&[1.0, 9.0]), trend(&[0.0; 9])), (None, None));
    }

    #[test]
    fn a_machine_that_drifts_is_noticed_and_a_steady_one_is_not() {
        let noise = |index: usize| 1.0 + 0.02 * (place((index * 7_919) % 101) / 50.5 - 1.0);
        let run = |drift: f64| -> Vec<Vec<(f64, f64)>> {
            let figure = |place_of: usize, round: usize| {
                let moment = place(round * 8 + place_of);
                (moment, 1_000.0 * place(place_of + 1) * (1.0 + drift * moment / 23.0) * noise(round * 8 + place_of))
            };
            (0..8).map(|of| (0..3).map(|round| figure(of, round)).collect()).collect()
        };
        assert_eq!(drift(&run(0.0)), None);
        assert!((drift(&run(-0.2)).unwrap() + 0.2).abs() < 0.05, "{:?}", drift(&run(-0.2)));
        assert!(drift(&run(0.2)).is_some());
        let twice = |last: f64| drift(&[vec![(0.0, 100.0), (60.0, last)], vec![(30.0, 5.0)]]);
        assert_eq!((twice(90.0), twice(75.0).map(|part| (part * 100.0).round())), (None, Some(-25.0)));
        assert_eq!(drift(&[]), None);
    }
}
