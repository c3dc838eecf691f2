//! The Universal Scalability Law: throughput of N clients is `lambda N / (1 + sigma (N - 1) + kappa N (N - 1))`.
//!
//! (Neil Gunther, "Guerrilla Capacity Planning", 2007.) `lambda` is what one client gets, `sigma` the part of the work that
//! is done one after the other (contention), `kappa` what each pair of clients costs (coherency). N over throughput is a
//! polynomial with coefficients that are not negative, so the best fit is found exactly, by `least.rs`. What speaks against
//! a fit is in `doubts.rs`. Does not know experiments.

use super::least::{Row, Solution, TERMS_MAX, solve};
use super::sampling::{Interval, repeat};
use super::words::{number, percent, percents, range};

/// Three coefficients, and one point more to see whether they fit.
pub const POINTS_MIN: usize = 4;
const CLIENTS_MAX: f64 = 1e9;
const THROUGHPUT_MIN: f64 = 1e-9;
const THROUGHPUT_MAX: f64 = 1e15;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    pub lambda: f64,
    pub sigma: f64,
    pub kappa: f64,
}

impl Law {
    /// `None` of coefficients that say that work takes no time at all.
    fn of(coefficients: &[f64; TERMS_MAX]) -> Option<Law> {
        let [free, serial, coherent] = *coefficients;
        let alone = free + serial;
        (alone > 0.0).then(|| Law { lambda: 1.0 / alone, sigma: serial / alone, kappa: coherent / alone })
    }

    pub fn throughput(&self, clients: f64) -> f64 {
        let others = clients - 1.0;
        self.lambda * clients / (1.0 + self.sigma * others + self.kappa * clients * others)
    }

    /// The number of clients with the most throughput; infinite where more clients never hurt.
    pub fn peak_clients(&self) -> f64 {
        if self.kappa <= 0.0 { f64::INFINITY } else { ((1.0 - self.sigma).max(0.0) / self.kappa).sqrt().max(1.0) }
    }

    /// The most throughput there is: at the peak, or where it levels off; infinite where nothing limits it.
    pub fn ceiling(&self) -> f64 {
        let peak = self.peak_clients();
        match (peak.is_finite(), self.sigma > 0.0) {
            (true, _) => self.throughput(peak),
            (false, true) => self.lambda / self.sigma,
            (false, false) => f64::INFINITY,
        }
    }

    /// Where clients that did not hinder each other would reach the ceiling: up to here each brings nearly its own share.
    pub fn knee(&self) -> f64 {
        self.ceiling() / self.lambda
    }
}

/// A law that was fitted, how sure it is, and what speaks against it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    pub law: Law,
    pub lambda: Interval,
    pub sigma: Interval,
    pub kappa: Interval,
    pub peak_clients: Interval,
    pub ceiling: Interval,
    pub knee: Interval,
    /// The root of the mean squared relative error.
    pub error: f64,
    /// The part of the variance of throughput that the law explains; `None` where throughput does not vary.
    pub r_squared: Option<f64>,
    /// Where it was fitted: the smallest and the largest number of clients.
    pub range: (f64, f64),
    /// Sentences; empty of a good fit.
    pub doubts: Vec<String>,
    /// The laws of all repetitions, for bounds of whatever is computed from them.
    pub repetitions: Vec<Law>,
}

/// Fits throughput (second) over clients (first) of usable points, without a look at what speaks against it; the error says
/// why there is no fit.
pub(super) fn fitted(points: &[(f64, f64)]) -> Result<Fit, String> {
    let numbers = distinct(points);
    if numbers < POINTS_MIN {
        return Err(format!(
            "{} of clients measured: the law has three coefficients, so it takes {POINTS_MIN} to fit it and to see whether it fits",
            if numbers == 1 { "one number".to_owned() } else { format!("{numbers} numbers") }
        ));
    }
    let rows = rows(points);
    let solution = solve(&rows, TERMS_MAX).ok_or("the figures determine no law")?;
    let law = Law::of(&solution.coefficients).ok_or("throughput per client does not tell what one client would get")?;
    let repetitions: Vec<Law> = repeat(&rows, TERMS_MAX, &solution).iter().filter_map(Law::of).collect();
    let bounds = |of: &dyn Fn(&Law) -> f64| {
        Interval::of(repetitions.iter().map(of).collect()).ok_or("the figures determine no bounds of error")
    };
    Ok(Fit {
        law,
        lambda: bounds(&|law| law.lambda)?,
        sigma: bounds(&|law| law.sigma)?,
        kappa: bounds(&|law| law.kappa)?,
        peak_clients: bounds(&Law::peak_clients)?,
        ceiling: bounds(&Law::ceiling)?,
        knee: bounds(&Law::knee)?,
        error: (solution.squares / points.len() as f64).sqrt(),
        r_squared: r_squared(&law, points),
        range: (points[0].0, points[points.len() - 1].0),
        doubts: Vec::new(),
        repetitions,
    })
}

/// The law through the points without a look at whether it fits: for a prediction whose error is known otherwise.
pub fn through(points: &[(f64, f64)], terms: usize) -> Option<Law> {
    let solution: Solution = solve(&rows(&usable(points)), terms)?;
    Law::of(&solution.coefficients)
}

impl Fit {
    /// The curve to draw through `count` numbers of clients, evenly spread over a logarithmic axis.
    pub fn curve(&self, count: usize) -> Vec<(f64, f64)> {
        let (low, high) = self.range;
        let at = |index: usize| low * (high / low).powf(index as f64 / (count.max(2) - 1) as f64);
        (0..count.max(2)).map(at).map(|clients| (clients, self.law.throughput(clients))).collect()
    }

    pub fn is_good(&self) -> bool {
        self.doubts.is_empty()
    }

    /// Throughput of so many clients, with its bounds.
    pub fn throughput(&self, clients: f64) -> (f64, Option<Interval>) {
        let all = self.repetitions.iter().map(|law| law.throughput(clients)).collect();
        (self.law.throughput(clients), Interval::of(all))
    }

    /// What the fit says, in sentences.
    pub fn verdict(&self) -> Vec<String> {
        let mut sentences = vec![self.peak_sentence()];
        sentences.push(format!(
            "Contention is {} ({}), coherency {} ({}); the law misses the measured points by {} on average{}.",
            percent(self.law.sigma),
            percents(self.sigma),
            number(self.law.kappa),
            range(self.kappa),
            percent(self.error),
            self.r_squared.map_or(String::new(), |share| format!(" (R² {share:.3})")),
        ));
        sentences.extend(self.doubts.iter().cloned());
        sentences
    }

    fn peak_sentence(&self) -> String {
        let (peak, ceiling) = (self.law.peak_clients(), self.law.ceiling());
        if ceiling.is_infinite() {
            return "Throughput grew in proportion to the clients: there is no peak to be seen from these figures."
                .to_owned();
        }
        if peak.is_infinite() {
            return format!(
                "Throughput levels off at {} ({}) with a knee at {} clients ({}); no number of clients after which it falls is to be seen.",
                number(ceiling),
                range(self.ceiling),
                number(self.law.knee()),
                range(self.knee)
            );
        }
        format!(
            "The law has its peak at {} clients ({}) with a throughput of {} ({}), and its knee at {} clients ({}).",
            number(peak),
            range(self.peak_clients),
            number(ceiling),
            range(self.ceiling),
            number(self.law.knee()),
            range(self.knee)
        )
    }
}

/// At least one client and some throughput, in order of clients; numbers that nobody measured would overflow.
pub(super) fn usable(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let measured = |(x, y): &(f64, f64)| (1.0..CLIENTS_MAX).contains(x) && (THROUGHPUT_MIN..THROUGHPUT_MAX).contains(y);
    let mut usable: Vec<(f64, f64)> = points.iter().copied().filter(measured).collect();
    usable.sort_by(|left, right| left.0.total_cmp(&right.0));
    usable
}

fn r_squared(law: &Law, points: &[(f64, f64)]) -> Option<f64> {
    let mean = points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64;
    let total: f64 = points.iter().map(|point| (point.1 - mean).powi(2)).sum();
    let missed: f64 = points.iter().map(|(clients, throughput)| (throughput - law.throughput(*clients)).powi(2)).sum();
    (total > (1e-9 * mean).powi(2)).then(|| 1.0 - missed / total)
}

fn distinct(points: &[(f64, f64)]) -> usize {
    let mut numbers: Vec<f64> = points.iter().map(|point| point.0).collect();
    numbers.dedup();
    numbers.len()
}

/// What a client's transaction takes: a part of its own, a part for every client, a part for every pair of them. That none of
/// these is negative keeps sigma between zero and one.
fn rows(points: &[(f64, f64)]) -> Vec<Row> {
    let row = |(clients, throughput): &(f64, f64)| Row {
        terms: [1.0, *clients, clients * (clients - 1.0)],
        observed: clients / throughput,
    };
    points.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fit;
    use crate::model::sampling::normal;
    use fastrand::Rng;

    const LAW: Law = Law { lambda: 1000.0, sigma: 0.03, kappa: 0.0004 };
    const CLIENTS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

    fn exact(law: Law) -> Vec<(f64, f64)> {
        CLIENTS.iter().map(|clients| (*clients, law.throughput(*clients))).collect()
    }

    #[test]
    fn exact_points_give_the_law_and_its_peak() {
        let fit = fit(&exact(LAW)).unwrap();
        assert!((fit.law.sigma / LAW.sigma - 1.0).abs() < 1e-6 && (fit.law.kappa / LAW.kappa - 1.0).abs() < 1e-6);
        assert!((fit.law.peak_clients() - (0.97f64 / 0.0004).sqrt()).abs() < 1e-3);
        assert!(fit.is_good() && fit.error < 1e-9, "{:?}", fit.doubts);
        assert!(fit.law.knee() < fit.law.peak_clients());
    }

    #[test]
    fn bounds_hold_the_truth_in_about_95_of_100_noisy_runs() {
        let mut random = Rng::with_seed(7);
        let (mut peaks, mut sigmas) = (0, 0);
        for _ in 0..400 {
            let points: Vec<(f64, f64)> =
                exact(LAW).iter().map(|(n, x)| (*n, x * (0.04 * normal(&mut random)).exp())).collect();
            let fit = fit(&points).unwrap();
            peaks += u32::from(fit.peak_clients.contains(LAW.peak_clients()));
            sigmas += u32::from(fit.sigma.contains(LAW.sigma));
        }
        assert!((360..=396).contains(&peaks) && (360..=396).contains(&sigmas), "{peaks} {sigmas} of 400");
    }

    #[test]
    fn what_never_falls_has_no_peak() {
        let level = fit(&exact(Law { kappa: 0.0, ..LAW })).unwrap();
        assert!(level.law.peak_clients().is_infinite());
        assert!((level.law.ceiling() - 1000.0 / 0.03).abs() < 1.0);
        let linear = fit(&exact(Law { sigma: 0.0, kappa: 0.0, ..LAW })).unwrap();
        assert!(linear.verdict()[0].contains("no peak"));
    }

    #[test]
    fn more_clients_that_never_help_are_a_law_too() {
        let of = |law: fn(f64) -> f64| fit(&CLIENTS.map(|clients| (clients, law(clients)))).unwrap();
        let flat = of(|_| 500.0);
        assert!((flat.law.sigma - 1.0).abs() < 1e-6 && (flat.law.ceiling() - 500.0).abs() < 0.1, "{:?}", flat.law);
        assert_eq!(flat.r_squared, None);
        let falling = of(|clients| 500.0 / clients);
        assert!((falling.law.peak_clients() - 1.0).abs() < 1e-3, "{:?}", falling.law);
    }

    #[test]
    fn bounds_hold_what_is_zero() {
        let mut random = Rng::with_seed(9);
        let level = Law { kappa: 0.0, ..LAW };
        let (mut kappas, mut ceilings) = (0, 0);
        for _ in 0..400 {
            let points: Vec<(f64, f64)> =
                exact(level).iter().map(|(n, x)| (*n, x * (0.04 * normal(&mut random)).exp())).collect();
            let fit = fit(&points).unwrap();
            kappas += u32::from(fit.kappa.contains(0.0));
            ceilings += u32::from(fit.ceiling.contains(level.ceiling()));
        }
        assert!((360..=396).contains(&kappas) && (360..=396).contains(&ceilings), "{kappas} {ceilings} of 400");
    }

    #[test]
    fn too_few_points_are_said() {
        let error = fit(&exact(LAW)[..3]).unwrap_err();
        assert!(error.starts_with("3 numbers of clients measured"), "{error}");
        assert!(fit(&[]).is_err());
        assert!(fit(&[(4.0, 10.0); 9]).unwrap_err().starts_with("one number"));
    }

    #[test]
    fn what_the_law_cannot_be_is_doubted() {
        let waking = [(1.0, 1000.0), (2.0, 4000.0), (8.0, 30_000.0), (32.0, 30_000.0), (128.0, 29_000.0)];
        let doubts = fit(&waking).unwrap().doubts;
        assert!(doubts.iter().any(|doubt| doubt.contains("grew faster")), "{doubts:?}");
        let broken = [(1.0, 1000.0), (2.0, 2000.0), (4.0, 300.0), (8.0, 8000.0), (16.0, 900.0), (32.0, 30_000.0)];
        assert!(fit(&broken).unwrap().doubts[0].starts_with("The fit is bad"));
    }

    #[test]
    fn anything_at_all_is_fitted_or_refused() {
        let mut random = Rng::with_seed(3);
        let odd = [0.0, -1.0, f64::NAN, f64::INFINITY, 1.0, 2.0, 3.0, 0.5, 1e-300, 1e300, 1e8];
        let mut fitted = 0;
        for round in 0..400 {
            let mut any = || match random.u8(..3) {
                0 => odd[random.usize(..odd.len())],
                1 => f64::from(random.u16(..300)),
                _ => random.f64().powi(9) * 1e6,
            };
            let points: Vec<(f64, f64)> = (0..round % 14).map(|_| (any(), any())).collect();
            if let Ok(fit) = fit(&points) {
                fitted += 1;
                assert!((0.0..=1.0).contains(&fit.law.sigma) && fit.law.kappa >= 0.0, "{points:?}");
                assert!(fit.curve(20).iter().all(|(x, y)| !x.is_nan() && !y.is_nan()), "{points:?}");
                assert!(fit.verdict().iter().all(|sentence| sentence.ends_with('.')), "{points:?}");
            }
        }
        assert!(fitted > 50, "{fitted}");
    }
}
