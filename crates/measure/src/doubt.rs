//! What makes a measurement doubtful, and what makes it worthless: a load generator at its limit, strangers on the processor, a
//! machine that slept, a figure that did not stand still.
//!
//! Sentences without figures, so that those of several rounds are one. Does not know how the figures were taken.

use std::fmt;
use std::time::Duration;

use crate::ground::strangers::Shares;
use crate::series::{Series, trend};

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
/// Of all cores: what is not ours and uses less hardly changes a figure.
const STRANGERS_PART: f64 = 0.05;
/// Threads of the kernel that work because of the load, by the beginnings of their names.
const KERNEL_OF_LOAD: [&str; 7] = ["ksoftirqd", "kworker", "kswapd", "jbd2", "rcu", "migration", "iou-"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    LoadAtItsLimit {
        whole: bool,
        threads: usize,
    },
    /// All cores of this machine were busy; what was measured runs here.
    LoadBesideTarget,
    /// The same where what was measured runs elsewhere.
    LoadMachineFull,
    CoresSlept,
    NodesApart,
    /// Programs that are nobody's here; the largest by its name.
    Strangers(Option<String>),
    KernelThread(String),
    Steal,
    StillCold,
    Rose,
    Fell,
    /// An open load: not all transactions could be begun at their times.
    BehindRate,
}

impl Doubt {
    /// Whether nothing is to be concluded from the figure.
    pub fn forbids(&self) -> bool {
        match self {
            Doubt::LoadAtItsLimit { .. }
            | Doubt::LoadMachineFull
            | Doubt::Strangers(_)
            | Doubt::KernelThread(_)
            | Doubt::Steal
            | Doubt::StillCold => true,
            Doubt::LoadBesideTarget
            | Doubt::CoresSlept
            | Doubt::NodesApart
            | Doubt::Rose
            | Doubt::Fell
            | Doubt::BehindRate => false,
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let text = match self {
            Doubt::LoadAtItsLimit { threads: 1, .. } => {
                "pgbench's one thread had no CPU left to use: the figure is the load generator's limit, not the target's."
            }
            Doubt::LoadAtItsLimit { whole: true, .. } => {
                "All of pgbench's threads had no CPU left to use: the figure is the load generator's limit, not the target's."
            }
            Doubt::LoadAtItsLimit { .. } => {
                "One of pgbench's threads had no CPU left to use: its clients were at the load generator's limit, not the target's."
            }
            Doubt::LoadBesideTarget => {
                "All cores were busy, and pgbench used a good part of them: on a machine of its own it would leave more to the \
                 target."
            }
            Doubt::LoadMachineFull => {
                "All cores of the machine that made the load were busy: the figure is that machine's limit, not the target's."
            }
            Doubt::CoresSlept => {
                "Cores had nothing to do between two messages and may have slept: with few clients throughput then depends on \
                 how fast a core wakes up, and more load may look faster."
            }
            Doubt::NodesApart => {
                "The nodes' clients took so differently long to connect that the nodes were partly measured one after another: \
                 together they may do less."
            }
            Doubt::Strangers(Some(name)) => {
                return write!(
                    formatter,
                    "Another program, {name}, used the processor: what it took is missing in the figure."
                );
            }
            Doubt::Strangers(None) => {
                "Other programs, each too short to be named, used the processor: what they took is missing in the figure."
            }
            Doubt::KernelThread(name) => {
                return write!(
                    formatter,
                    "A thread of the kernel's, {name}, used the processor: what it took is missing in the figure, and is not the \
                     server's."
                );
            }
            Doubt::Steal => {
                "The hypervisor gave cores of this machine to others: what they took is missing in the figure."
            }
            Doubt::StillCold => {
                "It was not warm when it was measured: throughput still rose, or clients had not done a few transactions each. A \
                 longer --warmup tells more."
            }
            Doubt::Rose => "Throughput rose while it was measured: a longer measurement would say more.",
            Doubt::Fell => "Throughput fell while it was measured: a longer measurement would say less.",
            Doubt::BehindRate => {
                "Transactions came to their end more slowly than they were to begin: at this rate the target is past its limit, and \
                 latency grows with the length of the measurement."
            }
        };
        formatter.write_str(text)
    }
}

/// What was used while it was counted, in cores; absent where it could not be seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    pub box_cores: Option<f64>,
    pub load_cores: Option<f64>,
    /// Of pgbench's threads, the one that used most.
    pub fullest_thread: Option<f64>,
    pub shares: Option<Shares>,
}

/// In which a measurement was made.
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

/// Of what was used.
#[expect(clippy::cast_precision_loss)]
pub fn of(used: &Used, situation: &Situation) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let (cores, threads) = (situation.cores.max(1) as f64, situation.threads.max(1) as f64);
    let whole = used.load_cores.is_some_and(|load| load >= THREAD_BUSY_PART * threads);
    if whole || used.fullest_thread.is_some_and(|fullest| fullest >= THREAD_BUSY_PART) {
        doubts.push(Doubt::LoadAtItsLimit { whole, threads: situation.threads });
    }
    let box_full = used.box_cores.is_some_and(|busy| busy >= BOX_BUSY_PART * cores);
    let load_share = used.load_cores.zip(used.box_cores).map_or(0.0, |(load, all)| load / all.max(f64::EPSILON));
    if box_full && load_share >= LOAD_SHARE_MIN {
        doubts.push(if situation.local { Doubt::LoadBesideTarget } else { Doubt::LoadMachineFull });
    }
    let sleepy = used.box_cores.is_some_and(|busy| busy < BOX_SLEEPY_PART * cores);
    if situation.local && !situation.awake && sleepy && situation.clients <= situation.cores {
        doubts.push(Doubt::CoresSlept);
    }
    if situation.began_apart.as_secs_f64() > APART_PART * situation.seconds as f64 {
        doubts.push(Doubt::NodesApart);
    }
    doubts.extend(used.shares.iter().flat_map(|shares| of_strangers(shares, situation.cores)));
    doubts
}

/// Who else used a good part of so many cores.
#[expect(clippy::cast_precision_loss)]
pub fn of_strangers(shares: &Shares, cores: usize) -> Vec<Doubt> {
    let much = STRANGERS_PART * cores.max(1) as f64;
    let mut doubts = Vec::new();
    let (strangers, largest) = shares.strangers();
    if strangers >= much {
        doubts.push(Doubt::Strangers(largest.map(str::to_owned)));
    }
    let of_load = |name: &str| KERNEL_OF_LOAD.iter().any(|beginning| name.starts_with(beginning));
    let busy = shares.kernel.iter().filter(|(name, used)| *used >= much && !of_load(name));
    doubts.extend(busy.map(|(name, _)| Doubt::KernelThread(name.clone())));
    if shares.steal >= much {
        doubts.push(Doubt::Steal);
    }
    doubts
}

/// Of throughput second by second.
pub fn of_series(series: &Series) -> Option<Doubt> {
    if series.per_second.is_empty() {
        return None;
    }
    if !series.is_warm {
        return Some(Doubt::StillCold);
    }
    trend(series.counted()).map(|change| if change > 0.0 { Doubt::Rose } else { Doubt::Fell })
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

    fn used(load_cores: f64, box_cores: f64) -> Used {
        Used { load_cores: Some(load_cores), box_cores: Some(box_cores), ..Used::default() }
    }

    #[test]
    fn a_calm_measurement_has_no_doubts() {
        assert_eq!(of(&used(0.4, 3.0), &CALM), []);
        assert_eq!(of(&Used::default(), &CALM), []);
    }

    #[test]
    fn the_load_generator_s_limits_are_said() {
        let one_thread = Situation { threads: 1, ..CALM };
        assert!(of(&used(0.97, 2.0), &one_thread)[0].to_string().starts_with("pgbench's one thread"));
        assert!(of(&used(3.7, 3.9), &CALM)[0].to_string().starts_with("All of pgbench's threads"));
        let one_full = Used { fullest_thread: Some(0.96), ..used(1.2, 2.5) };
        let doubt = of(&one_full, &CALM).remove(0);
        assert!(doubt.to_string().starts_with("One of pgbench's threads") && doubt.forbids(), "{doubt}");
        assert_eq!(of(&used(1.0, 3.95), &CALM), [Doubt::LoadBesideTarget]);
        let apart = Situation { began_apart: Duration::from_secs(2), ..CALM };
        assert_eq!(of(&used(0.4, 3.0), &apart), [Doubt::NodesApart]);
        let elsewhere = Situation { local: false, ..CALM };
        assert_eq!(of(&used(1.0, 3.95), &elsewhere), [Doubt::LoadMachineFull]);
        assert_eq!(of(&used(1.0, 2.0), &elsewhere), []);
    }

    #[test]
    fn a_machine_that_sleeps_is_said_unless_it_was_kept_awake() {
        let few = Situation { clients: 1, awake: false, threads: 1, ..CALM };
        assert_eq!(of(&used(0.3, 0.8), &few), [Doubt::CoresSlept]);
        assert_eq!(of(&used(0.3, 0.8), &Situation { awake: true, ..few }), []);
    }

    #[test]
    fn strangers_are_named_and_forbid_conclusions() {
        let cores = |name: &str, cores: f64| vec![(name.to_owned(), cores)];
        let with = |shares: Shares| of(&Used { shares: Some(shares), ..used(0.4, 3.0) }, &CALM);
        let burning = with(Shares { server: 1.0, others: cores("cargo", 1.0), unseen: 0.1, ..Shares::default() });
        assert_eq!(burning, [Doubt::Strangers(Some("cargo".to_owned()))]);
        assert!(burning[0].forbids() && burning[0].to_string().contains("cargo"));
        assert_eq!(with(Shares { others: cores("sshd", 0.1), ..Shares::default() }), []);
        assert_eq!(
            with(Shares { others: cores("sshd", 0.1), unseen: 0.9, ..Shares::default() }),
            [Doubt::Strangers(None)]
        );
        assert_eq!(with(Shares { steal: 0.4, ..Shares::default() }), [Doubt::Steal]);
        let kernel = with(Shares { kernel: cores("kdamond.0", 0.9), ..Shares::default() });
        assert!(kernel[0].to_string().contains("kdamond.0") && kernel[0].forbids(), "{kernel:?}");
        assert_eq!(with(Shares { kernel: cores("ksoftirqd/1", 0.9), ..Shares::default() }), [], "it serves the load");
    }

    #[test]
    fn what_did_not_stand_still_is_said() {
        let series = |rates: &[f64], is_warm| Series { per_second: rates.to_vec(), warm_up: 1, is_warm };
        assert_eq!(of_series(&series(&[1.0, 10.0, 10.0, 10.0, 10.0, 10.0], true)), None);
        assert_eq!(of_series(&series(&[1.0, 10.0, 11.0, 12.0, 13.0, 14.0], true)), Some(Doubt::Rose));
        assert_eq!(of_series(&series(&[1.0, 14.0, 13.0, 12.0, 11.0, 10.0], true)), Some(Doubt::Fell));
        assert_eq!(of_series(&series(&[1.0, 2.0], false)), Some(Doubt::StillCold));
        assert_eq!(of_series(&Series::default()), None);
    }
}
