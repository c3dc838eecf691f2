//! System calls that each driver makes for a transaction, counted by strace.
//!
//! Two loads. `one`: a client asks, waits, and asks again: nothing can be done together. `batch`: 32 clients ask while
//! the pooler is stopped, and 20 servers answer while it is stopped, so that it finds all of it at once, on any machine.
//! From what a run counts, that of a run that is stopped as often and asked nothing is taken away.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::bounds::Figure;
use crate::messages;
use crate::peers::Peers;
use crate::program::Program;

pub const DRIVERS: [&str; 2] = ["epoll", "io_uring"];
/// How often each load runs. What else goes on (a lock that is waited for, a clock that asks the kernel) only adds calls:
/// the run with the fewest is nearest to what the pooler itself needs.
const RUNS: usize = 3;
/// How often again where a bound is broken: a machine that is busy elsewhere gives the kernel's completions one by one.
const RUNS_AGAIN: usize = 9;
/// Rounds before those that count: servers are connected, buffers have their size.
const WARM_UP: u32 = 5;

/// How often each system call was made.
type Counts = BTreeMap<String, u64>;

/// A load on the pooler.
struct Load {
    name: &'static str,
    clients: usize,
    pool_size: usize,
    /// What is sent is sent while the pooler is stopped.
    held: bool,
    rounds: u32,
}

const LOADS: [Load; 2] = [
    Load { name: "one", clients: 1, pool_size: 1, held: false, rounds: 1_000 },
    Load { name: "batch", clients: 32, pool_size: 20, held: true, rounds: 40 },
];

/// The figures of one driver. A load whose figure does not hold is run again.
pub fn measure(weir: &Path, driver: &str, holds: impl Fn(&Figure) -> bool) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for load in &LOADS {
        let idle = fewest(weir, driver, load, false)?;
        let mut busy = fewest(weir, driver, load, true)?;
        for _ in 0..RUNS_AGAIN {
            if holds(&figure(driver, load, &each(load, &idle, &busy))) {
                break;
            }
            busy = fewer(busy, run(weir, driver, load, true)?);
        }
        let calls = each(load, &idle, &busy);
        let shown: Vec<String> =
            calls.iter().filter(|(_, each)| *each >= 0.005).map(|(name, each)| format!("{name} {each:.2}")).collect();
        println!("calls {driver} {}: {}", load.name, shown.join(", "));
        figures.push(figure(driver, load, &calls));
    }
    Ok(figures)
}

/// The calls of each transaction: those of a busy run, without those that an idle one makes too.
fn each(load: &Load, idle: &Counts, busy: &Counts) -> Vec<(String, f64)> {
    let transactions = f64::from(load.rounds) * load.clients as f64;
    let of_each = |(name, count): (&String, &u64)| {
        let count = count.saturating_sub(idle.get(name).copied().unwrap_or(0));
        (name.clone(), count as f64 / transactions)
    };
    busy.iter().map(of_each).collect()
}

fn figure(driver: &str, load: &Load, calls: &[(String, f64)]) -> Figure {
    Figure { name: format!("calls {driver} {}", load.name), value: calls.iter().map(|(_, each)| each).sum() }
}

fn fewest(weir: &Path, driver: &str, load: &Load, asks: bool) -> Result<Counts> {
    let mut fewest = run(weir, driver, load, asks)?;
    for _ in 1..RUNS {
        fewest = fewer(fewest, run(weir, driver, load, asks)?);
    }
    Ok(fewest)
}

fn fewer(one: Counts, other: Counts) -> Counts {
    if other.values().sum::<u64>() < one.values().sum() { other } else { one }
}

fn run(weir: &Path, driver: &str, load: &Load, asks: bool) -> Result<Counts> {
    let mut peers = Peers::new()?;
    let program = Program::start(weir, driver, load.pool_size, peers.server_address()?)?;
    peers.log_in(program.address, load.clients)?;
    let query = messages::query("SELECT abalance FROM pgbench_accounts WHERE aid = 12345;");
    for round in 0..WARM_UP + load.rounds {
        let asks = asks || round < WARM_UP;
        if load.held {
            held_round(&program, &mut peers, load, asks.then_some(&query))?;
        } else if asks {
            peers.say_all(&query)?;
            peers.serve()?;
        }
    }
    program.end()
}

fn held_round(program: &Program, peers: &mut Peers, load: &Load, query: Option<&Vec<u8>>) -> Result<()> {
    program.hold()?;
    if let Some(query) = query {
        peers.say_all(query)?;
    }
    program.go_on()?;
    let mut left = load.clients;
    while left > 0 {
        let asked = left.min(load.pool_size);
        if query.is_some() {
            peers.until_asked(asked)?;
        }
        program.hold()?;
        peers.answer()?;
        program.go_on()?;
        left -= asked;
    }
    if query.is_some() { peers.serve() } else { Ok(()) }
}
