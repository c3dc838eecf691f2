//! How long an experiment takes on this machine, roughly, before it is begun.
//!
//! Does not measure.

use super::sizes::{self, Asked};
use crate::experiment::Experiment;
use crate::targets::{Kind, Target};
use weir_measure::ground::machine::Machine;
use weir_measure::statistics::place;

/// Warming up, starting and ending a load.
const BESIDE_SECONDS: f64 = 3.0;
/// A server and its tables, and a fit of the places of a quick run into two minutes.
const START_SECONDS: f64 = 15.0;
const QUICK_SECONDS_MAX: f64 = 120.0;

/// With the lab's own targets, in words.
pub fn of(experiment: &dyn Experiment, quick: bool) -> String {
    let sizes = sizes::of(&Asked { quick, ..Asked::default() }, &Machine::describe());
    let mut targets = vec![Target::imagined("direct", Kind::Server)];
    for pooler in experiment.needs(&sizes).poolers {
        targets.push(Target::imagined(&format!("{pooler:?}"), Kind::Pooler(pooler)));
    }
    let places: usize = experiment.courses(&sizes, &targets).iter().map(|course| course.xs.len()).sum();
    #[expect(clippy::cast_precision_loss)]
    let each = sizes.seconds as f64 + BESIDE_SECONDS;
    let seconds = START_SECONDS + place(places * sizes.rounds) * each;
    words(if quick { seconds.min(QUICK_SECONDS_MAX) } else { seconds })
}

fn words(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 90.0 => format!("{:.0} s", (seconds / 10.0).ceil() * 10.0),
        seconds if seconds < 5_400.0 => format!("{:.0} min", (seconds / 60.0).ceil()),
        seconds => format!("{:.1} h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;

    #[test]
    fn quick_takes_two_minutes_at_the_most_and_the_whole_longer() {
        assert_eq!([42.0, 100.0, 7_200.0].map(words), ["50 s", "2 min", "2.0 h"]);
        for experiment in experiments::ALL {
            let (quick, whole) = (of(*experiment, true), of(*experiment, false));
            assert!(quick.ends_with(" s") || quick == "2 min", "{quick}");
            assert!(!whole.is_empty() && whole != "0 s", "{whole}");
        }
    }
}
