//! What speaks against a fit of the scalability law, in sentences.
//!
//! Knows the fit and its points; a fit without any of these is a good one.

use super::usl::{Fit, Law, POINTS_MIN, through};
use super::words::{number, percent};

/// A law that misses its points by more than this on average is no description of them.
pub const ERROR_MAX: f64 = 0.1;
/// One point may be missed by so much.
const ERROR_OF_ONE_MAX: f64 = 0.3;
/// A bound so many times the other says little.
const WIDE: f64 = 3.0;
/// Throughput per client that rises by so much is beyond the law, in which clients only hinder each other.
const RISE_MAX: f64 = 1.1;
/// Below this part of a ceiling that throughput comes near to, the ceiling is an extrapolation.
const NEAR: f64 = 0.8;
/// The chance of errors in so long runs of one sign that is taken for structure, unless they are small anyway.
const CHANCE_MAX: f64 = 0.05;
const ERROR_SMALL: f64 = 0.01;
/// By how much the peak's clients and throughput may change when one number of clients is left out.
const CLIENTS_CHANGE: f64 = 1.5;
const THROUGHPUT_CHANGE: f64 = 1.2;
/// The law's coefficients.
const TERMS: usize = 3;

/// The points are those that were fitted, in order of clients.
pub fn of(fit: &Fit, points: &[(f64, f64)], left_out: usize) -> Vec<String> {
    let errors: Vec<f64> = points.iter().map(|(clients, tps)| fit.law.throughput(*clients) / tps - 1.0).collect();
    let found = [
        missed(fit, points, &errors),
        rise(points),
        beyond(fit),
        wide(fit),
        structure(fit, &errors),
        leaning(fit, points),
    ];
    let mut doubts: Vec<String> = found.into_iter().flatten().collect();
    if left_out > 0 {
        doubts.push(format!(
            "{left_out} of the measurements could not be used: fewer than one client, or a throughput of zero or none at all."
        ));
    }
    doubts
}

fn missed(fit: &Fit, points: &[(f64, f64)], errors: &[f64]) -> Option<String> {
    let (worst, at) = errors.iter().zip(points).fold((0.0f64, 0.0), |worst, (error, point)| {
        if error.abs() > worst.0.abs() { (*error, point.0) } else { worst }
    });
    (fit.error > ERROR_MAX || worst.abs() > ERROR_OF_ONE_MAX).then(|| {
        format!(
            "The fit is bad: it misses the points by {} on average, and the one at {} clients by {}. Trust the measured points.",
            percent(fit.error),
            number(at),
            percent(worst.abs())
        )
    })
}

/// The first place where throughput per client rises clearly.
fn rise(points: &[(f64, f64)]) -> Option<String> {
    let mut pairs = points.windows(2).filter(|pair| pair[1].0 > pair[0].0);
    let rising = pairs.find(|pair| pair[1].1 / pair[1].0 > RISE_MAX * pair[0].1 / pair[0].0)?;
    Some(format!(
        "From {} to {} clients throughput grew faster than the number of clients, which the law cannot express: something \
         else than contention was at work, such as cores that slept between messages.",
        number(rising[0].0),
        number(rising[1].0)
    ))
}

/// What is predicted beyond the last point.
fn beyond(fit: &Fit) -> Option<String> {
    let (last, peak, ceiling) = (fit.range.1, fit.law.peak_clients(), fit.law.ceiling());
    let reached = fit.law.throughput(last) / ceiling;
    if ceiling.is_infinite() {
        return Some("These figures show no limit, so where more clients no longer help cannot be told.".to_owned());
    }
    if peak.is_finite() && peak > last {
        return Some(format!(
            "The peak lies beyond the {} clients that were measured: it is an extrapolation.",
            number(last)
        ));
    }
    (peak.is_infinite() && reached < NEAR).then(|| {
        format!(
            "With the {} clients that were measured throughput is at {} of where it would level off: that is an extrapolation.",
            number(last),
            percent(reached)
        )
    })
}

/// Bounds that are wider than what they bound.
fn wide(fit: &Fit) -> Option<String> {
    let is_wide = |value: f64, low: f64, high: f64| value > 0.0 && high - low > value;
    if fit.law.peak_clients().is_finite() && fit.peak_clients.high > WIDE * fit.peak_clients.low {
        return Some("The bounds of the peak are wide: these points do not say well where it is.".to_owned());
    }
    let ceiling = fit.law.ceiling();
    (ceiling.is_finite() && is_wide(ceiling, fit.ceiling.low, fit.ceiling.high)).then(|| {
        "The bounds of the highest throughput are wider than that throughput: these points do not say how high it is.".to_owned()
    })
}

/// Neighbours that lie on the same side of the law.
fn structure(fit: &Fit, errors: &[f64]) -> Option<String> {
    let above = errors.iter().filter(|error| **error > 0.0).count();
    let runs = errors.chunk_by(|left, right| (*left > 0.0) == (*right > 0.0)).count();
    let chance = chance_of_runs(above, errors.len() - above, runs);
    (chance < CHANCE_MAX && fit.error > ERROR_SMALL).then(|| {
        format!(
            "The errors of the fit have structure: along the clients they change their sign {} only, where chance does so in {} \
             of such series. The law leaves something out.",
            match runs - 1 {
                1 => "once".to_owned(),
                2 => "twice".to_owned(),
                times => format!("{times} times"),
            },
            percent(chance)
        )
    })
}

/// How likely so few runs or fewer are among signs in random order (Wald and Wolfowitz 1940).
fn chance_of_runs(above: usize, below: usize, runs: usize) -> f64 {
    if above == 0 || below == 0 {
        return 1.0;
    }
    let choose = |of: usize, take: usize| {
        let factor = |index: usize| (of - index) as f64 / (index + 1) as f64;
        if take > of { 0.0 } else { (0..take).map(factor).product::<f64>() }
    };
    let ways = |runs: usize| {
        let half = runs / 2;
        if runs.is_multiple_of(2) {
            2.0 * choose(above - 1, half - 1) * choose(below - 1, half - 1)
        } else {
            choose(above - 1, half) * choose(below - 1, half - 1)
                + choose(above - 1, half - 1) * choose(below - 1, half)
        }
    };
    (2..=runs).map(ways).sum::<f64>() / choose(above + below, above)
}

/// One number of clients without which the prediction would be another.
fn leaning(fit: &Fit, points: &[(f64, f64)]) -> Option<String> {
    let numbers: Vec<f64> = points.chunk_by(|left, right| left.0 == right.0).map(|same| same[0].0).collect();
    if numbers.len() < POINTS_MIN || fit.law.ceiling().is_infinite() {
        return None;
    }
    let without = |clients: f64| {
        let others: Vec<(f64, f64)> = points.iter().copied().filter(|point| point.0 != clients).collect();
        Some((clients, through(&others, TERMS)?))
    };
    let apart = |left: f64, right: f64| if left == right { 1.0 } else { (left / right).max(right / left) };
    let change = |law: &Law| {
        let clients = apart(law.peak_clients(), fit.law.peak_clients());
        (clients / CLIENTS_CHANGE).max(apart(law.ceiling(), fit.law.ceiling()) / THROUGHPUT_CHANGE)
    };
    let others = numbers.into_iter().filter_map(without);
    let (clients, law) = others.max_by(|left, right| change(&left.1).total_cmp(&change(&right.1)))?;
    (change(&law) > 1.0).then(|| {
        format!(
            "The prediction leans on one place: with the measurement at {} clients it is {}, without it {}.",
            number(clients),
            highest(&fit.law),
            highest(&law)
        )
    })
}

fn highest(law: &Law) -> String {
    match (law.peak_clients(), law.ceiling()) {
        (_, ceiling) if ceiling.is_infinite() => "no limit at all".to_owned(),
        (peak, ceiling) if peak.is_infinite() => format!("a level of {}", number(ceiling)),
        (peak, ceiling) => format!("a peak of {} at {} clients", number(ceiling), number(peak.round())),
    }
}

#[cfg(test)]
mod tests {
    use crate::model::fit;

    const LAW: super::Law = super::Law { lambda: 1000.0, sigma: 0.03, kappa: 0.0002 };

    fn doubts(points: &[(f64, f64)]) -> Vec<String> {
        fit(points).unwrap().doubts
    }

    #[test]
    fn a_good_fit_has_none() {
        let clients = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
        let noise = [1.01, 0.99, 1.005, 0.995].into_iter().cycle();
        let points: Vec<(f64, f64)> =
            clients.into_iter().zip(noise).map(|(x, noise)| (x, noise * LAW.throughput(x))).collect();
        assert_eq!(doubts(&points), Vec::<String>::new());
    }

    #[test]
    fn each_weakness_is_said() {
        let says = |points: &[(f64, f64)], part: &str| {
            let doubts = doubts(points);
            assert!(doubts.iter().any(|doubt| doubt.contains(part)), "{part}: {doubts:?}");
        };
        let law = |clients: &[f64]| clients.iter().map(|x| (*x, LAW.throughput(*x))).collect::<Vec<_>>();
        says(&law(&[1.0, 2.0, 4.0, 8.0, 16.0]), "The peak lies beyond the 16 clients");
        let linear: Vec<(f64, f64)> = (1..9).map(f64::from).map(|x| (x, 100.0 * x)).collect();
        says(&linear, "show no limit");
        let early: Vec<(f64, f64)> = (1..9).map(f64::from).map(|x| (x, 100.0 * x / (1.0 + 0.02 * (x - 1.0)))).collect();
        says(&early, "would level off");
        let stair: Vec<(f64, f64)> = (1..31).map(f64::from).map(|x| (x, 100.0 * x.min(10.0))).collect();
        says(&stair, "The errors of the fit have structure");
        says(&[(1.0, 100.0), (2.0, 190.0), (4.0, 350.0), (8.0, 600.0), (100.0, 300.0)], "leans on one place");
        says(&[(1.0, 100.0), (2.0, 190.0), (4.0, 350.0), (8.0, 600.0), (16.0, 0.0)], "1 of the measurements could not");
    }

    #[test]
    fn runs_have_their_exact_chance() {
        assert!((super::chance_of_runs(4, 4, 2) - 2.0 / 70.0).abs() < 1e-12);
        assert!((super::chance_of_runs(4, 4, 8) - 1.0).abs() < 1e-12);
        assert!((super::chance_of_runs(3, 2, 3) - 0.5).abs() < 1e-12);
        assert_eq!(super::chance_of_runs(5, 0, 1), 1.0);
    }
}
