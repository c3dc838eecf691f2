//! Numbers that look random and are the same on every run, so that a report can be repeated to the last digit.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): ten lines, and its sequence cannot change under us with a newer crate.

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Above 0, and at most 1.
    #[allow(clippy::cast_precision_loss)]
    pub fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Of the normal distribution around 0 with deviation 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.share().ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }

    /// What normal draws are multiplied with so that they follow Student's distribution: their deviation was estimated
    /// from so many degrees of freedom and not known.
    #[allow(clippy::cast_precision_loss)]
    pub fn unsure_deviation(&mut self, degrees: usize) -> f64 {
        let sum: f64 = (0..degrees).map(|_| self.normal().powi(2)).sum();
        (degrees as f64 / sum.max(f64::MIN_POSITIVE)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_published_quantiles() {
        let mut random = Random::new(7);
        let mut students: Vec<f64> = (0..40_000).map(|_| random.normal() * random.unsure_deviation(3)).collect();
        students.sort_by(f64::total_cmp);
        // Student's distribution with three degrees of freedom: 97.5 % lie below 3.182.
        assert!((students[39_000] - 3.182).abs() < 0.15, "{}", students[39_000]);
        let mean = (0..40_000).map(|_| random.normal()).sum::<f64>() / 40_000.0;
        assert!(mean.abs() < 0.03, "{mean}");
    }
}
