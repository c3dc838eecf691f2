//! What makes a measurement doubtful: a load generator at its limit, a machine that slept between messages.
//!
//! Sentences without figures, so that those of several rounds are one. Does not know how the figures were taken.

use std::time::Duration;

use super::sampler::Usage;

/// Of a thread's core: above it pgbench itself is what limits.
const THREAD_BUSY_PART: f64 = 0.9;
/// Of all cores.
const BOX_BUSY_PART: f64 = 0.95;
/// Of what is used: below it, what pgbench takes away from the others does not matter.
const LOAD_SHARE_MIN: f64 = 0.15;
/// Of the measured time: nodes that are measured further apart are not measured together.
const APART_PART: f64 = 0.1;
/// Of all cores: below it, cores sleep and wake between messages.
const BOX_SLEEPY_PART: f64 = 0.9;

pub struct Situation {
    pub cores: usize,
    pub clients: usize,
    /// pgbench's.
    pub threads: usize,
    /// Whether cores were kept awake.
    pub awake: bool,
    /// Whether what is measured runs on this machine, at least a part of it.
    pub local: bool,
    pub seconds: u64,
    /// How far apart the nodes of a cluster began.
    pub began_apart: Duration,
}

#[expect(clippy::cast_precision_loss)]
pub fn of(usage: &Usage, situation: &Situation) -> Vec<String> {
    let mut doubts = Vec::new();
    let (cores, threads) = (situation.cores.max(1) as f64, situation.threads.max(1) as f64);
    if usage.load_cores.is_some_and(|load| load >= THREAD_BUSY_PART * threads) {
        let text = if situation.threads == 1 {
            "pgbench's one thread had no CPU left to use: the figure is the load generator's limit, not the target's."
        } else {
            "All of pgbench's threads had no CPU left to use: the figure is the load generator's limit, not the target's."
        };
        doubts.push(text.to_owned());
    }
    let box_full = usage.box_cores.is_some_and(|used| used >= BOX_BUSY_PART * cores);
    let load_share = usage.load_cores.zip(usage.box_cores).map_or(0.0, |(load, all)| load / all.max(f64::EPSILON));
    if situation.local && box_full && load_share >= LOAD_SHARE_MIN {
        doubts.push(
            "All cores were busy, and pgbench used a good part of them: on a machine of its own it would leave more to the \
             target."
                .to_owned(),
        );
    }
    let sleepy = usage.box_cores.is_some_and(|used| used < BOX_SLEEPY_PART * cores);
    if situation.local && !situation.awake && sleepy && situation.clients <= situation.cores {
        doubts.push(
            "Cores had nothing to do between two messages and may have slept: with few clients throughput then depends on \
             how fast a core wakes up, and more load may look faster."
                .to_owned(),
        );
    }
    if situation.began_apart.as_secs_f64() > APART_PART * situation.seconds as f64 {
        doubts.push(
            "The nodes' clients took so differently long to connect that the nodes were partly measured one after another: \
             together they may do less."
                .to_owned(),
        );
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Situation = Situation {
        cores: 4,
        clients: 64,
        threads: 4,
        awake: true,
        local: true,
        seconds: 10,
        began_apart: Duration::ZERO,
    };

    fn usage(load_cores: f64, box_cores: f64) -> Usage {
        Usage { load_cores: Some(load_cores), box_cores: Some(box_cores), ..Usage::default() }
    }

    #[test]
    fn a_calm_measurement_has_no_doubts() {
        assert_eq!(of(&usage(0.4, 3.0), &CALM), Vec::<String>::new());
        assert_eq!(of(&Usage::default(), &CALM), Vec::<String>::new());
    }

    #[test]
    fn the_load_generator_s_limits_are_said() {
        let one_thread = Situation { threads: 1, ..CALM };
        assert!(of(&usage(0.97, 2.0), &one_thread)[0].starts_with("pgbench's one thread"));
        assert!(of(&usage(3.7, 3.9), &CALM)[0].starts_with("All of pgbench's threads"));
        assert!(of(&usage(1.0, 3.95), &CALM)[0].starts_with("All cores were busy"));
        let apart = Situation { began_apart: Duration::from_secs(2), ..CALM };
        assert!(of(&usage(0.4, 3.0), &apart)[0].starts_with("The nodes' clients"));
        let elsewhere = Situation { local: false, ..CALM };
        assert_eq!(of(&usage(1.0, 3.95), &elsewhere), Vec::<String>::new());
    }

    #[test]
    fn a_machine_that_sleeps_is_said_unless_it_was_kept_awake() {
        let few = Situation { clients: 1, awake: false, threads: 1, ..CALM };
        assert!(of(&usage(0.3, 0.8), &few)[0].starts_with("Cores had nothing to do"));
        assert_eq!(of(&usage(0.3, 0.8), &Situation { awake: true, ..few }), Vec::<String>::new());
    }
}
