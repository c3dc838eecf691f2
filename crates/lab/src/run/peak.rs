//! Where a line ends early: throughput is past its peak, or errors have come.
//!
//! Knows figures in the order of measuring, not what they are of.

/// Throughput that has lost so much is past its peak, noise apart.
const CLEARLY_BELOW_PART: f64 = 0.9;
/// One place may be an accident of the machine.
const PLACES_BELOW: usize = 2;

/// Whether a line ends after these places of its first round; `None` is one where nothing was measured, or errors came.
pub fn is_past(throughput: &[Option<f64>]) -> bool {
    let Some(figures) = throughput.iter().copied().collect::<Option<Vec<f64>>>() else { return true };
    if figures.len() <= PLACES_BELOW {
        return false;
    }
    let (before, last) = figures.split_at(figures.len() - PLACES_BELOW);
    let peak = before.iter().copied().fold(0.0, f64::max);
    last.iter().all(|tps| *tps < CLEARLY_BELOW_PART * peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_past_its_peak_or_with_errors() {
        let over = |figures: &[f64]| is_past(&figures.iter().map(|tps| Some(*tps)).collect::<Vec<_>>());
        assert!(!over(&[]) && !over(&[5.0]) && !over(&[10.0, 5.0]));
        assert!(!over(&[10.0, 20.0, 19.0, 18.5]) && !over(&[10.0, 20.0, 15.0]) && !over(&[10.0, 20.0, 15.0, 19.0]));
        assert!(over(&[10.0, 20.0, 17.0, 16.0]));
        assert!(is_past(&[Some(10.0), None]));
    }
}
