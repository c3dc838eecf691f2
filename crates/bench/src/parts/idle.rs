//! Target 8: with 10 000 idle clients nothing wakes up.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::bench::{Bench, Values, values};
use super::{Figure, Part};
use crate::ground::Ground;
use crate::load::holders::Holders;
use crate::load::tally::to_f64;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;
use weir_measure::ground::process;
use weir_measure::ground::running::Running;

pub const PART: Part = Part {
    name: "idle",
    title: "The cost of doing nothing",
    about: "Clients that have asked one query each and are quiet. Wake-ups are the voluntary context switches of all the pooler's \
            threads, CPU is its user and system time, both per second; then `strace -c -f` counts system calls for as long again.",
    figures: &FIGURES,
    drawing: None,
    run,
};

const FIGURES: [Figure; 3] = [
    Figure::lower("syscalls_per_s", "system calls/s", 1),
    Figure::lower("wakeups_per_s", "wake-ups/s", 1),
    Figure::lower("cpu_us_per_s", "CPU µs/s", 0),
];

/// Servers are settled and their pools quiet by then.
const SETTLING: Duration = Duration::from_secs(3);
const TIME: Duration = Duration::from_secs(10);
const QUICK_TIME: Duration = Duration::from_secs(4);

fn run(bench: &mut Bench) -> Result<()> {
    let profile = Profile::PLAIN;
    let clients = bench.scale.pick(10_000, 2000, 20);
    let endpoints = bench.start(bench.roster.single(), &profile)?;
    let endpoints = bench.warm_up(endpoints, &profile)?;
    let mut holders = Vec::with_capacity(endpoints.len());
    for endpoint in &endpoints {
        let mut holder = Holders::start(endpoint.port, clients, false)?;
        holder.ask_once()?;
        holders.push(holder);
    }
    bench.settle(SETTLING)?;
    for (endpoint, (held, measured)) in
        endpoints.iter().zip(holders.iter().map(|holder| holder.held).zip(measure(bench, &endpoints)?))
    {
        let measured = measured.and_then(|values| {
            anyhow::ensure!(held == clients, "only {held} of {clients} clients were held");
            Ok(values)
        });
        bench.keep(("idle", clients), &endpoint.name, 0, measured)?;
    }
    Ok(())
}

/// All at the same time: who does nothing disturbs nobody.
fn measure(bench: &Bench, endpoints: &[Endpoint]) -> Result<Vec<Result<Values>>> {
    let interrupt = &bench.ground.interrupt;
    let time = bench.scale.pick(TIME, QUICK_TIME, Duration::from_millis(200));
    let seconds = time.as_secs_f64();
    let counters = |endpoint: &Endpoint| -> Result<(u64, Duration)> {
        let sleeps = endpoint.pids.iter().map(|pid| process::sleeps(*pid)).sum::<Result<u64>>()?;
        Ok((sleeps, endpoint.cpu_time()?.context("its process is not known")?))
    };
    let before: Vec<_> = endpoints.iter().map(counters).collect();
    interrupt.sleep(time)?;
    let after: Vec<_> = endpoints.iter().map(counters).collect();
    let traces: Vec<_> = endpoints.iter().map(|endpoint| Trace::start(&endpoint.pids, bench.ground)).collect();
    interrupt.sleep(time)?;
    let calls = traces.into_iter().map(|trace| trace?.count());
    let figures = before.into_iter().zip(after).zip(calls).map(|((before, after), calls)| {
        let ((sleeps_before, cpu_before), (sleeps, cpu)) = (before?, after?);
        Ok(values([
            ("syscalls_per_s", to_f64(calls?) / seconds),
            ("wakeups_per_s", to_f64(sleeps - sleeps_before) / seconds),
            ("cpu_us_per_s", cpu.saturating_sub(cpu_before).as_secs_f64() * 1e6 / seconds),
        ]))
    });
    Ok(figures.collect())
}

/// `strace -c` on some processes, from its start until it is asked for the count.
struct Trace {
    strace: Running,
    summary: PathBuf,
}

impl Trace {
    fn start(pids: &[Pid], ground: &Ground) -> Result<Trace> {
        let first = pids.first().context("its process is not known")?;
        let summary = ground.directory().join(format!("strace-{first}.txt"));
        // As ourselves, not as the poolers' account: root may look into everybody.
        let mut command = std::process::Command::new("strace");
        command.args(["-c", "-f", "-o"]).arg(&summary);
        for pid in pids {
            command.arg("-p").arg(pid.to_string());
        }
        let log = ground.directory().join(format!("strace-{first}.log"));
        let strace = Running::start("strace", command, log, Signal::SIGINT)?;
        Ok(Trace { strace, summary })
    }

    fn count(self) -> Result<u64> {
        // It writes its summary when it is interrupted.
        drop(self.strace);
        read_count(&self.summary)
    }
}

fn read_count(summary: &Path) -> Result<u64> {
    let text = fs::read_to_string(summary).context("strace wrote no summary: it may not look into the process")?;
    parse_count(&text).with_context(|| format!("strace wrote {text:?}"))
}

/// The line "total" of the summary: its number of calls is the fourth column. Without any call there are no lines.
fn parse_count(summary: &str) -> Option<u64> {
    if summary.trim().is_empty() {
        return Some(0);
    }
    let total = summary.lines().find(|line| line.trim_end().ends_with(" total"))?;
    total.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_strace_is_read() {
        let summary = "% time     seconds  usecs/call     calls    errors syscall\n\
             ------ ----------- ----------- --------- --------- ----------------\n\
             100.00    0.000216           7        30           epoll_wait\n\
             ------ ----------- ----------- --------- --------- ----------------\n\
             100.00    0.000216           7        30           total\n";
        assert_eq!(parse_count(summary), Some(30));
        assert_eq!(parse_count(""), Some(0));
        assert_eq!(parse_count("strange"), None);
    }
}
