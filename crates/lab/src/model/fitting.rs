//! The scalability law through measured points, and what speaks against it.
//!
//! Knows numbers only.

use super::doubts;
use super::usl::{self, Fit};

/// Fits throughput (second) over clients (first). Points that are no positive numbers are left out; the error says why there
/// is no fit.
pub fn fit(points: &[(f64, f64)]) -> Result<Fit, String> {
    let usable = usl::usable(points);
    let mut fit = usl::fitted(&usable)?;
    fit.doubts = doubts::of(&fit, &usable, points.len() - usable.len());
    Ok(fit)
}
