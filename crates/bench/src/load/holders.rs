//! Idle clients in processes of their own: one process may open only so many files.
//!
//! The parent's half, and the program that each process runs (`weir-bench hold`). They talk in lines: the child says what
//! it holds, the parent says to ask or closes the pipe.

use std::io::{BufRead, BufReader, Write, stdin};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::crew::Crew;
use super::plan::{Plan, Target};
use super::scram::Keys;
use super::session::Identity;
use super::tls;
use crate::ground::{DATABASE, PASSWORD, USER};
use weir_measure::ground::descriptors;
use weir_measure::ground::interrupt::Interrupt;

/// The ports that `connect` chooses among, where the system does not say: ip(7).
const PORTS: usize = 28_232;
/// Files that a process needs beside its clients'.
const OTHER_FILES: u64 = 100;
const AT_ONCE: usize = 64;

#[derive(Args)]
pub struct Options {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    clients: usize,
    #[arg(long)]
    source: Ipv4Addr,
    #[arg(long)]
    tls: bool,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Report {
    held: usize,
    reason: Option<String>,
}

/// The program of one process: logs in, reports, asks when told so, ends with its input.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<ExitCode> {
    descriptors::raise_limit()?;
    let identity = Identity { user: USER.to_owned(), database: DATABASE.to_owned(), keys: Keys::of(PASSWORD) };
    let tls = options.tls.then(|| tls::config(false)).transpose()?;
    let target = Target { port: options.port, source: options.source, tls, identity: Arc::new(identity) };
    let plan = Plan::idle(target, options.clients, AT_ONCE);
    let crew = Crew::start(&plan, 1);
    let held = crew.wait_for_logins(interrupt)?;
    report(held, None)?;
    for line in stdin().lines() {
        let line = line.context("cannot read from the parent")?;
        if line == "ask" {
            crew.ask_once(interrupt)?;
        }
        report(crew.logged_in(), None)?;
    }
    let reason = crew.stop()?.first_failure;
    report(0, reason)?;
    Ok(ExitCode::SUCCESS)
}

fn report(held: usize, reason: Option<String>) -> Result<()> {
    println!("{}", serde_json::to_string(&Report { held, reason }).context("a report that JSON cannot hold")?);
    Ok(())
}

struct Holder {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Holder {
    fn start(port: u16, clients: usize, number: u8, tls: bool) -> Result<Holder> {
        let program = std::env::current_exe().context("where this program is")?;
        let mut command = Command::new(program);
        let source = Ipv4Addr::new(127, 0, 0, 2 + number);
        command.args(["hold", "--port", &port.to_string(), "--clients", &clients.to_string()]);
        command.args(["--source", &source.to_string()]).args(tls.then_some("--tls"));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start a holder of clients")?;
        let output = BufReader::new(child.stdout.take().context("a holder without an output")?);
        let input = child.stdin.take();
        Ok(Holder { child, input, output })
    }

    fn report(&mut self) -> Result<Report> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("cannot hear a holder of clients")?;
        serde_json::from_str(&line).with_context(|| format!("a holder of clients said {line:?}"))
    }

    fn tell(&mut self, order: &str) -> Result<()> {
        let input = self.input.as_mut().context("a holder that was ended")?;
        writeln!(input, "{order}").context("cannot tell a holder of clients")
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.input.take());
        // It ends with its input; there is nothing to do about one that does not.
        let _ = self.child.wait();
    }
}

/// A crowd of idle clients over as many processes as it takes.
pub struct Holders {
    holders: Vec<Holder>,
    pub held: usize,
}

impl Holders {
    pub fn start(port: u16, clients: usize, tls: bool) -> Result<Holders> {
        let files = usize::try_from(descriptors::limit()?.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let shares = shares(clients, files.min(clients_per_address(&range)).max(1));
        let numbered = shares.into_iter().zip(0u8..);
        let mut holders =
            numbered.map(|(share, number)| Holder::start(port, share, number, tls)).collect::<Result<Vec<_>>>()?;
        let held = holders.iter_mut().map(|holder| Ok(holder.report()?.held)).sum::<Result<usize>>()?;
        Ok(Holders { holders, held })
    }

    /// Each client asks one query.
    pub fn ask_once(&mut self) -> Result<()> {
        self.holders.iter_mut().try_for_each(|holder| holder.tell("ask"))?;
        self.held = self.holders.iter_mut().map(|holder| Ok(holder.report()?.held)).sum::<Result<usize>>()?;
        Ok(())
    }

    /// How many are still there.
    pub fn count(&mut self) -> Result<usize> {
        self.holders.iter_mut().try_for_each(|holder| holder.tell("count"))?;
        self.holders.iter_mut().map(|holder| Ok(holder.report()?.held)).sum()
    }

    /// Lets all go; gives why some could not come in.
    pub fn stop(mut self) -> Result<Option<String>> {
        let mut reason = None;
        for holder in &mut self.holders {
            drop(holder.input.take());
            reason = reason.or(holder.report()?.reason);
        }
        Ok(reason)
    }
}

/// How many clients one address is good for. `connect` takes even ports first, and once all of them are taken it looks at each
/// again for every further client (`__inet_hash_connect` of Linux): a millisecond each instead of 30 us.
fn clients_per_address(port_range: &str) -> usize {
    let mut ends = port_range.split_ascii_whitespace().map(str::parse::<usize>);
    let ports = match (ends.next(), ends.next()) {
        (Some(Ok(first)), Some(Ok(last))) if last >= first => last - first + 1,
        _ => PORTS,
    };
    ports * 2 / 5
}

/// As even as possible, none above `largest`.
fn shares(whole: usize, largest: usize) -> Vec<usize> {
    let count = whole.div_ceil(largest).max(1);
    (0..count).map(|number| whole / count + usize::from(number < whole % count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_even_ports_left() {
        assert_eq!(clients_per_address("32768\t60999\n"), 11_292);
        assert_eq!(clients_per_address("1024 1123"), 40);
        assert_eq!(clients_per_address("nonsense"), PORTS * 2 / 5);
        assert!(shares(100_000, clients_per_address("32768 60999")).iter().all(|share| *share < PORTS / 2));
    }

    #[test]
    fn shares_are_even_and_complete() {
        assert_eq!(shares(10, 4), [4, 3, 3]);
        assert_eq!(shares(8, 4), [4, 4]);
        assert_eq!(shares(3, 100), [3]);
    }
}
