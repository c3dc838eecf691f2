//! Target 7: many workers on few cores cost no more than one, and send each other nearly nothing.

use std::time::Duration;

use anyhow::{Context, Result};

use super::bench::{Bench, Values, measure as pgbench, turns, values};
use super::{Figure, Part};
use crate::load::pgbench::Load;
use crate::load::plan::Target;
use crate::load::straight::Straight;
use crate::load::tally::to_f64;
use crate::peers::OURS;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;
use weir_measure::load::Protocol;

pub const PART: Part = Part {
    name: "workers",
    title: "Many workers on few cores",
    about: "`pgbench -S` in front of Weir with 1 and with 16 workers, whatever the machine has. Messages between workers are those of \
            `SHOW WORKERS`, counted from 40 to 90 % of the run, when all clients are in.",
    figures: &FIGURES,
    drawing: None,
    run,
};

const FIGURES: [Figure; 4] = [
    Figure::told("cpu_us", "CPU µs/transaction", 1),
    Figure::told("tps", "TPS", 0),
    Figure::told("messages", "messages/100 transactions", 2),
    Figure::told("handed_over", "servers handed over/100 transactions", 2),
];

const CONSOLE: &str = "pgbouncer";
/// Shares of the run, of 10, between which messages are counted.
const COUNTED: (u32, u32) = (4, 9);

pub fn name(workers: usize) -> String {
    format!("{OURS}, {workers} worker{}", if workers == 1 { "" } else { "s" })
}

fn run(bench: &mut Bench) -> Result<()> {
    let Some(pooler) = bench.roster.ours() else { return Ok(()) };
    let mut endpoints = Vec::new();
    for workers in [1, 16] {
        let profile = Profile { workers: Some(workers), ..Profile::PLAIN };
        endpoints.extend(bench.start_one(pooler, &profile, &name(workers))?);
    }
    let endpoints = bench.warm_up(endpoints, &Profile::PLAIN)?;
    let (seconds, rounds) = (bench.seconds(3), bench.rounds(3));
    for clients in bench.scale.pick(&[8, 32, 128, 1000][..], &[32, 128], &[4]).iter().copied() {
        let load = Load { mode: Protocol::Simple, clients, seconds, block: false, connect: false, tls: false };
        for (round, endpoint) in turns(&endpoints.iter().collect::<Vec<_>>(), rounds) {
            let measured = measure(bench, endpoint, load);
            bench.keep(("simple", clients), &endpoint.name, round, measured)?;
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Counters {
    transactions: f64,
    messages: f64,
    handed_over: f64,
}

fn measure(bench: &Bench, endpoint: &Endpoint, load: Load) -> Result<Values> {
    let target = bench.target(endpoint, &Profile::PLAIN, CONSOLE)?;
    let mut seen: Vec<Counters> = Vec::new();
    let moments = [COUNTED.0, COUNTED.1].map(|tenths| Duration::from_secs(load.seconds) * tenths / 10);
    let mut figures = pgbench(load, endpoint, bench.ground, |elapsed| {
        if moments.get(seen.len()).is_some_and(|moment| elapsed >= *moment) {
            seen.push(counters(&target)?);
        }
        Ok(())
    })?
    .values;
    let [first, last] = seen.as_slice() else { anyhow::bail!("the run was too short to count messages") };
    let share = |part: fn(&Counters) -> f64| {
        100.0 * (part(last) - part(first)) / (last.transactions - first.transactions).max(1.0)
    };
    figures.extend(values([
        ("messages", share(|counters| counters.messages)),
        ("handed_over", share(|counters| counters.handed_over)),
    ]));
    Ok(figures)
}

fn counters(target: &Target) -> Result<Counters> {
    let mut console = Straight::log_in(target)?;
    let workers = console.rows("SHOW WORKERS")?;
    let stats = console.rows("SHOW STATS_TOTALS")?;
    // SHOW WORKERS ends with servers_handed_over and messages_sent; SHOW STATS_TOTALS begins with the database, the
    // assignments and the transactions.
    Ok(Counters { transactions: sum(&stats, 2)?, handed_over: sum(&workers, 5)?, messages: sum(&workers, 6)? })
}

fn sum(rows: &[Vec<String>], column: usize) -> Result<f64> {
    let number = |row: &Vec<String>| -> Result<u64> {
        let text = row.get(column).with_context(|| format!("no column {column}"))?;
        text.parse().with_context(|| format!("{text:?} is not a number"))
    };
    Ok(to_f64(rows.iter().map(number).sum::<Result<u64>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_summed() {
        let rows = [["0", "7"], ["1", "5"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(sum(&rows, 1).unwrap(), 12.0);
        assert!(sum(&rows, 2).is_err());
        assert_eq!((name(1), name(16)), ("Weir, 1 worker".to_owned(), "Weir, 16 workers".to_owned()));
    }
}
