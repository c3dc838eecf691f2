//! Target 5: SCRAM logins per second of the pooler's CPU, plain, over TLS, and over resumed TLS.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::bench::{Bench, Scale, Values, turns, values};
use super::{Figure, Part};
use crate::load::crew::Crew;
use crate::load::plan::{Plan, Target};
use crate::load::tally::to_f64;
use crate::load::tls;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;

pub const PART: Part = Part {
    name: "logins",
    title: "SCRAM logins",
    about: "The lab's own clients log in and leave, 32 at the same time. They keep the keys that they have derived, so that the \
            pooler's work is what is measured. The user list has a SCRAM secret, or, *from a password*, the password itself. \
            *Resumed* is the share of TLS sessions that the pooler let its clients resume.",
    figures: &FIGURES,
    drawing: None,
    run,
};

const FIGURES: [Figure; 5] = [
    Figure::higher("logins_per_cpu_s", "logins/s of CPU", 0),
    Figure::higher("logins_per_s", "logins/s", 0),
    Figure::told("p99_us", "p99 µs", 0),
    Figure::told("resumed", "resumed", 2),
    Figure::told("generator_busy", "generator", 2),
];

const AT_ONCE: usize = 32;
const THREADS: usize = 2;
const TIME: Duration = Duration::from_secs(2);
const SETTLING: Duration = Duration::from_millis(500);

struct Case {
    what: &'static str,
    profile: Profile,
    resumes: bool,
}

fn cases(scale: Scale) -> Vec<Case> {
    let mut cases = vec![
        Case { what: "SCRAM", profile: Profile::SCRAM, resumes: false },
        Case { what: "SCRAM over TLS", profile: Profile::SCRAM_TLS, resumes: false },
    ];
    if scale == Scale::Full {
        cases.push(Case { what: "SCRAM over resumed TLS", profile: Profile::SCRAM_TLS, resumes: true });
        cases.push(Case { what: "SCRAM from a password", profile: Profile::SCRAM_PASSWORD, resumes: false });
    }
    cases
}

fn run(bench: &mut Bench) -> Result<()> {
    let time = bench.time(TIME);
    let rounds = bench.rounds(3);
    for case in cases(bench.scale) {
        let endpoints = bench.start(bench.roster.pair(), &case.profile)?;
        let endpoints = bench.warm_up(endpoints, &case.profile)?;
        for (round, endpoint) in turns(&endpoints.iter().collect::<Vec<_>>(), rounds) {
            let measured = measure(bench, endpoint, &case, time);
            bench.keep((case.what, AT_ONCE), &endpoint.name, round, measured)?;
        }
    }
    Ok(())
}

fn measure(bench: &Bench, endpoint: &Endpoint, case: &Case, time: Duration) -> Result<Values> {
    let interrupt = &bench.ground.interrupt;
    let plan = Plan { leave: true, at_once: AT_ONCE, ..bench.plan(endpoint, &case.profile, AT_ONCE)? };
    let tls = case.profile.client_tls.then(|| tls::config(case.resumes)).transpose()?;
    let plan = Plan { target: Target { tls, ..plan.target }, ..plan };
    let crew = Crew::start(&plan, THREADS);
    bench.settle(SETTLING)?;
    let (start, logins, cpu) = (Instant::now(), crew.logged_in(), endpoint.cpu_time()?);
    interrupt.sleep(time)?;
    let (seconds, logins) = (start.elapsed().as_secs_f64(), to_f64((crew.logged_in() - logins) as u64));
    let cpu = endpoint.cpu_time()?.zip(cpu).map(|(after, before)| after.saturating_sub(before));
    let used = cpu.context("its process is not known")?.as_secs_f64();
    let tally = crew.stop()?;
    if let Some(reason) = &tally.first_failure {
        anyhow::bail!("a login failed: {reason}");
    }
    let mut figures = values([
        ("logins_per_cpu_s", logins / used),
        ("logins_per_s", logins / seconds),
        ("p99_us", to_f64(tally.login.value_at_quantile(0.99))),
        ("generator_busy", tally.busy),
    ]);
    if case.profile.client_tls {
        figures.extend(values([("resumed", to_f64(tally.resumed) / to_f64(tally.login.len().max(1)))]));
    }
    Ok(figures)
}
