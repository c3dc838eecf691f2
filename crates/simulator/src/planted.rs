//! Shows that the simulator can fail: each bug planted in core must be caught by some check.

use std::time::Instant;

use weir_core::planted::Planted;
use weir_simulator::{Options, run_seed};

/// Runs seeds with each planted bug until it is caught. True if all were.
pub fn show(from: u64, seeds_max: u64) -> bool {
    let mut all = true;
    for planted in Planted::ALL {
        let began = Instant::now();
        let caught = (from..from + seeds_max).find_map(|seed| {
            // What fails without the bug proves nothing about it.
            if run_seed(seed, Options::default()).violation.is_some() {
                return None;
            }
            let outcome = run_seed(seed, Options { planted: Some(planted), ..Options::default() });
            outcome.violation.map(|violation| (seed, violation))
        });
        let seconds = began.elapsed().as_secs_f64();
        match caught {
            Some((seed, violation)) => {
                let text: String = violation.text.chars().take(200).collect();
                println!("{planted:?}: caught by seed {seed} after {} seeds ({seconds:.1} s)", seed - from + 1);
                println!("    {}: {text}", violation.law);
            }
            None => {
                println!("{planted:?}: NOT caught in {seeds_max} seeds ({seconds:.1} s)");
                all = false;
            }
        }
    }
    all
}
