//! The simulator's command line: runs seeds, replays one, shows that planted bugs are found.

#[cfg(feature = "planted")]
mod planted;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use weir_simulator::pipelines;
use weir_simulator::report::Counts;
use weir_simulator::scaling::{self, Case};
use weir_simulator::{GENERATOR_VERSION, Options, Outcome, has_cluster, memory, run_seed};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// One seed in so many is run twice: the same seed must do the same.
const REPEATED_EVERY: u64 = 20;
/// Seeds run at the same time.
const THREADS: usize = 2;

/// Runs Weir's core in a simulated world and checks the laws that must always hold.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds to run
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Replay this one
    #[arg(long)]
    seed: Option<u64>,
    /// Print every step (with --seed)
    #[arg(long)]
    trace: bool,
    /// Simulate so many hours in one run
    #[arg(long)]
    hours: Option<f64>,
    /// Leave the pooler out: a check of the simulated ends
    #[arg(long)]
    direct: bool,
    /// Only seeds of which a database is a cluster
    #[arg(long)]
    clusters: bool,
    /// Go on after a failing seed
    #[arg(long)]
    keep_going: bool,
    /// Break laws on purpose, and show that each is noticed
    #[arg(long)]
    planted: bool,
    /// Measure how throughput grows with cores, instead of checking laws
    #[arg(long)]
    scaling: bool,
    /// With --scaling: only cases of so many servers
    #[arg(long)]
    servers: Option<u32>,
    /// With --scaling: only cases of so many cores
    #[arg(long)]
    cores: Option<u16>,
    #[command(flatten)]
    pipelines: pipelines::Options,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A panic is reported with its seed; its message need not come twice.
    if arguments.seed.is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let good = if let Some(count) = arguments.pipelines.pipelines {
        pipelines::run(&arguments.pipelines, count, arguments.seed.unwrap_or(arguments.from))
    } else if arguments.scaling {
        show_scaling(&arguments)
    } else if arguments.planted {
        show_planted(&arguments)
    } else if let Some(seed) = arguments.seed {
        replay(seed, &arguments)
    } else {
        run_many(&arguments)
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(feature = "planted")]
fn show_planted(arguments: &Arguments) -> bool {
    planted::show(arguments.from, arguments.seeds)
}

#[cfg(not(feature = "planted"))]
fn show_planted(_: &Arguments) -> bool {
    eprintln!("this build has no planted bugs: build with --features planted");
    false
}

/// Prints the table of all cases in their order, as they are done.
fn show_scaling(arguments: &Arguments) -> bool {
    let wanted = |case: &Case| {
        arguments.servers.is_none_or(|servers| case.servers == servers)
            && arguments.cores.is_none_or(|cores| case.cores == cores)
    };
    let cases: Vec<Case> = scaling::cases().into_iter().filter(wanted).collect();
    let next = AtomicU64::new(0);
    let lines = Mutex::new((0, BTreeMap::new(), Vec::new()));
    println!("{}", scaling::HEADER);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let Some(case) = cases.get(place) else { break };
                    let measured = scaling::run(*case);
                    let Ok(mut lines) = lines.lock() else { break };
                    let (printed, waiting, broken) = &mut *lines;
                    let line = scaling::line(case, &measured);
                    broken.extend(scaling::broken(case, &measured).into_iter().map(|text| format!("{line}\n  {text}")));
                    waiting.insert(place, line);
                    while let Some(line) = waiting.remove(printed) {
                        println!("{line}");
                        *printed += 1;
                    }
                }
            });
        }
    });
    let (_, _, broken) = lines.into_inner().unwrap_or_default();
    for text in &broken {
        println!("does not hold:\n{text}");
    }
    broken.is_empty()
}

fn options(arguments: &Arguments) -> Options {
    Options {
        tracing: arguments.trace,
        hours: arguments.hours,
        direct: arguments.direct,
        #[cfg(feature = "planted")]
        planted: None,
    }
}

fn replay(seed: u64, arguments: &Arguments) -> bool {
    let outcome = run_seed(seed, options(arguments));
    println!("{}", outcome.counts);
    println!("digest             {:016x}", outcome.digest.0);
    tell(seed, &outcome, arguments)
}

/// True if no law was broken; else says which, and how to see it again.
fn tell(seed: u64, outcome: &Outcome, arguments: &Arguments) -> bool {
    let Some(violation) = &outcome.violation else { return true };
    println!("seed {seed} breaks a law: {}\n  {}", violation.law, violation.text);
    let hours = arguments.hours.map(|hours| format!(" --hours {hours}")).unwrap_or_default();
    println!("  replay: cargo run --release -p weir-simulator -- --seed {seed}{hours} --trace");
    false
}

/// Seeds that failed once, of this generator.
fn kept_seeds() -> Vec<u64> {
    let lines = include_str!("../seeds.txt").lines();
    let fields = lines.filter(|line| !line.starts_with('#')).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let current = fields.filter(|fields| fields.first() == Some(&GENERATOR_VERSION.to_string().as_str()));
    current.filter_map(|fields| fields.get(1)?.parse().ok()).collect()
}

fn run_many(arguments: &Arguments) -> bool {
    let began = Instant::now();
    let kept = kept_seeds();
    let wanted =
        (arguments.from..arguments.from + arguments.seeds).filter(|seed| !arguments.clusters || has_cluster(*seed));
    let all: Vec<u64> = kept.iter().copied().chain(wanted).collect();
    let next = AtomicU64::new(0);
    let total = Mutex::new(Counts::default());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let Some(&seed) = all.get(place) else { break };
                    let enough = failed.lock().is_ok_and(|failed| !failed.is_empty());
                    if enough && !arguments.keep_going {
                        break;
                    }
                    let outcome = run_and_repeat(seed, arguments);
                    if let Ok(mut total) = total.lock() {
                        total.merge(&outcome.counts);
                    }
                    if outcome.violation.is_some()
                        && let Ok(mut failed) = failed.lock()
                    {
                        failed.push((seed, outcome));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.sort_by_key(|(seed, _)| *seed);
    println!("{}", total.into_inner().unwrap_or_default());
    println!("kept seeds         {}", kept.len());
    println!("seconds            {:.1}", began.elapsed().as_secs_f64());
    for (seed, outcome) in &failed {
        tell(*seed, outcome, arguments);
    }
    println!(
        "{}",
        if failed.is_empty() { "every law held".to_owned() } else { format!("{} seeds failed", failed.len()) }
    );
    failed.is_empty()
}

fn run_and_repeat(seed: u64, arguments: &Arguments) -> Outcome {
    let mut outcome = run_seed(seed, options(arguments));
    if seed.is_multiple_of(REPEATED_EVERY) && outcome.violation.is_none() && arguments.hours.is_none() {
        let again = run_seed(seed, options(arguments));
        if again.digest != outcome.digest {
            let text = format!("{:016x} and then {:016x}", outcome.digest.0, again.digest.0);
            outcome.violation = Some(weir_simulator::checks::Violation { law: "same seed, same run", text });
        }
    }
    outcome
}
