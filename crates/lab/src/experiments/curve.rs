//! From how many connections on throughput is as good as it gets, and how sure that is.
//!
//! Knows the rounds of a line; does not know any experiment.

use super::words::{self, AS_GOOD_AS_BEST};
use crate::dataset::Line;
use crate::experiment::values;
use weir_measure::statistics::{self, Spread};

/// Places whose throughput is within this part of the best are the plateau; its median is less of an accident than the best.
pub const PLATEAU: f64 = 0.97;
/// Neighbours nearer than this are not halved further: what is found is then right within 5 %.
const NEAR: f64 = 0.04;
/// A smaller pool is no good advice, whatever throughput says: one slow query would hold up too many others.
pub const POOL_LEAST: f64 = 4.0;

/// The number that is asked for lies above `low` and is at most `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Between {
    /// `None`: even the fewest connections measured are enough.
    pub low: Option<f64>,
    pub high: f64,
}

impl Between {
    pub fn middle(&self) -> Option<f64> {
        let low = self.low.unwrap_or(0.0);
        let middle = f64::midpoint(low, self.high).floor();
        // Below 1 there is nothing to measure, and near neighbours are near enough.
        (self.high - low > (NEAR * self.high).max(1.0) && middle >= 1.0 && middle > low).then_some(middle)
    }
}

/// A line's figures with what noise there is in them, pooled over its places: a machine is as rough at one number of connections
/// as at another.
pub struct Curve {
    /// Means of the rounds, by `x`.
    figures: Vec<(f64, f64)>,
    rounds: Vec<f64>,
    /// The standard deviation of one round, as a part of its figure.
    noise: f64,
    /// Degrees of freedom of that; 0: nothing was measured twice, and it is assumed.
    pub freedom: usize,
}

impl Curve {
    pub fn of(line: &Line) -> Option<Curve> {
        let (mut figures, mut rounds, mut squares, mut freedom) = (Vec::new(), Vec::new(), 0.0, 0);
        for place in &line.places {
            let values = place.values.get(values::TPS).map_or(&[][..], Vec::as_slice);
            let logarithms: Vec<f64> = values.iter().filter(|tps| **tps > 0.0).map(|tps| tps.ln()).collect();
            let Some(mean) = statistics::mean(&logarithms) else { continue };
            figures.push((place.x, mean.exp()));
            rounds.push(words::float(logarithms.len()));
            squares += logarithms.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            freedom += logarithms.len() - 1;
        }
        let noise = if freedom < FREEDOM_MIN { NOISE_ASSUMED } else { (squares / words::float(freedom)).sqrt() };
        (!figures.is_empty()).then_some(Curve { figures, rounds, noise, freedom })
    }

    /// Of a typical place, as a part of its figure.
    fn error(&self) -> f64 {
        let rounds = Spread::of(self.rounds.iter().copied()).map_or(1.0, |spread| spread.median);
        self.noise / rounds.sqrt()
    }

    /// The throughput of the plateau: the median of all places that are as good as the best but for their errors.
    pub fn plateau(&self) -> Option<f64> {
        let best = self.best();
        let near =
            if self.freedom == 0 { 1.0 - PLATEAU } else { (2.0 * self.error()).clamp(NEAR_LEAST, 1.0 - PLATEAU) };
        let near = self.figures.iter().map(|(_, tps)| *tps).filter(|tps| *tps >= (1.0 - near) * best);
        Spread::of(near).map(|spread| spread.median).filter(|tps| *tps > 0.0)
    }

    fn best(&self) -> f64 {
        self.figures.iter().map(|(_, tps)| *tps).fold(0.0, f64::max)
    }

    /// Where throughput first reaches so much.
    fn reaches(&self, enough: f64) -> Option<Between> {
        let at = self.figures.iter().position(|(_, tps)| *tps >= enough)?;
        let low = at.checked_sub(1).map(|before| self.figures[before].0);
        Some(Between { low, high: self.figures[at].0 })
    }

    pub fn saturation(&self) -> Option<Between> {
        self.reaches(AS_GOOD_AS_BEST * self.plateau()?)
    }

    /// As the figures might have been as well.
    fn again(&self, random: &mut fastrand::Rng) -> Curve {
        let disturbed =
            |((x, tps), rounds): (&(f64, f64), &f64)| (*x, tps * (self.noise / rounds.sqrt() * normal(random)).exp());
        let figures = self.figures.iter().zip(&self.rounds).map(disturbed).collect();
        Curve { figures, rounds: self.rounds.clone(), ..*self }
    }

    /// The numbers of connections between which saturation lies in 95 of 100 cases, both included.
    ///
    /// The plateau is no higher than its best place, and that is the best one partly by luck: the upper end asks for half of the way
    /// from the median to the best, the lower one for as much less than the median as luck adds.
    pub fn interval(&self) -> Option<(f64, f64)> {
        let mut random = fastrand::Rng::with_seed(SEED);
        let found = self.saturation()?;
        let (mut lows, mut highs) = (vec![found.low.unwrap_or(0.0) + 1.0], vec![found.high]);
        for _ in 0..REPETITIONS {
            let other = self.again(&mut random);
            let Some(plateau) = other.plateau() else { continue };
            let above = plateau + ABOVE_PLATEAU * (other.best() - plateau);
            let below = plateau * (1.0 - LUCK * other.error());
            lows.extend(other.reaches(AS_GOOD_AS_BEST * below).map(|between| between.low.unwrap_or(0.0) + 1.0));
            highs.extend(other.reaches(AS_GOOD_AS_BEST * above).map(|between| between.high));
        }
        let quantile = |mut values: Vec<f64>, part: f64| {
            values.sort_by(f64::total_cmp);
            values[statistics::count(part * words::float(values.len() - 1))]
        };
        let low = quantile(lows, 0.025).min(found.low.unwrap_or(0.0) + 1.0);
        Some((low, quantile(highs, 0.975).max(found.high)))
    }
}

/// With fewer degrees of freedom the noise is guessed rather than measured.
pub const FREEDOM_MIN: usize = 3;
/// Two runs of two seconds on a virtual machine differ by as much.
const NOISE_ASSUMED: f64 = 0.07;
/// Nearer than this to the best, places are as good as the best, however little noise there was.
const NEAR_LEAST: f64 = 0.005;
const REPETITIONS: usize = 400;
/// So many errors lies the best of several places that are as good above what they are, or somewhat more.
const LUCK: f64 = 1.5;
/// Of the way from the plateau's median to its best place, which is partly luck.
const ABOVE_PLATEAU: f64 = 0.5;
/// The same figures give the same interval.
const SEED: u64 = 95;

/// By the method of Box and Muller.
pub fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}
