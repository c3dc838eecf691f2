//! Whether something else keeps the machine busy before anything is measured on it.
//!
//! Does not know what will be measured.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::tools::Tools;
use weir_measure::doubt;
use weir_measure::ground::strangers::{Shares, Watch};

/// Long enough for a program that works now and then.
const LOOK: Duration = Duration::from_secs(1);
/// So many are named.
const NAMED_MAX: usize = 3;

/// What to tell before a run; nothing of a machine that is at rest.
pub fn now(tools: &Tools) -> Result<Option<String>> {
    let cores = tools.machine.cores;
    let mut watch = Watch::new(cores, &[]);
    let began = Instant::now();
    watch.look(true);
    tools.interrupt.sleep(LOOK)?;
    watch.look(true);
    Ok(watch.shares(began, Instant::now()).and_then(|shares| warning(&shares, cores)))
}

fn warning(shares: &Shares, cores: usize) -> Option<String> {
    if doubt::of_strangers(shares, cores).is_empty() {
        return None;
    }
    let mut all: Vec<(&str, f64)> =
        shares.others.iter().chain(&shares.kernel).map(|(name, cores)| (name.as_str(), *cores)).collect();
    all.extend([
        ("programs that end too soon to be named", shares.unseen),
        ("the hypervisor for others", shares.steal),
    ]);
    all.retain(|(_, used)| *used >= 0.01);
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
    let named: Vec<String> = all.iter().take(NAMED_MAX).map(|(name, used)| format!("{name} ({used:.2})")).collect();
    Some(format!(
        "this machine is busy before anything is measured: of its {cores} cores are used by {}. Whatever is measured meanwhile is \
         doubted, and nothing is concluded from it",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_the_machine_busy_is_named() {
        let used = |name: &str, cores: f64| vec![(name.to_owned(), cores)];
        let busy = Shares { others: used("cargo", 1.25), kernel: used("kdamond.0", 0.5), ..Shares::default() };
        let text = warning(&busy, 2).unwrap();
        assert!(text.contains("of its 2 cores are used by cargo (1.25), kdamond.0 (0.50)."), "{text}");
        assert_eq!(warning(&Shares { others: used("sshd", 0.01), load: 2.0, ..Shares::default() }, 2), None);
    }
}
