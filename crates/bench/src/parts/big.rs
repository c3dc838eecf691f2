//! Target 6: COPY in and out, rows of 1 MB, and values of 40 MB over TLS.

use std::time::Instant;

use anyhow::{Context, Result};

use super::bench::{Bench, Scale, Values, turns, values};
use super::{Figure, Part};
use crate::ground::DATABASE;
use crate::load::straight::Straight;
use crate::load::tally::to_f64;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;
use weir_measure::ground::process::thread_cpu_time;

pub const PART: Part = Part {
    name: "big",
    title: "Big data",
    about: "One client of the lab's own. COPY moves lines of 1 000 bytes; COPY in is filtered by `WHERE false`, so that PostgreSQL \
            parses everything and stores nothing. *Client* is the share of its time that the client itself worked: near 1 the \
            client is the limit.",
    figures: &FIGURES,
    drawing: None,
    run,
};

const FIGURES: [Figure; 3] = [
    Figure::higher("mb_per_s", "MB/s", 0),
    Figure::lower("cpu_s_per_gb", "CPU s/GB", 3),
    Figure::told("client_busy", "client", 2),
];

const LINE_BYTES: usize = 1000;
const LINES_PER_MESSAGE: usize = 64;
const ROW_BYTES: usize = 1_000_000;
const VALUE_BYTES: usize = 40_000_000;
const TABLE: &str = "big";

#[derive(Clone, Copy, PartialEq)]
enum Case {
    CopyOut,
    CopyIn,
    Rows,
    ValuesOut,
    ValuesIn,
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::CopyOut => "COPY out",
            Case::CopyIn => "COPY in",
            Case::Rows => "1 MB rows",
            Case::ValuesOut => "40 MB values out, TLS",
            Case::ValuesIn => "40 MB values in, TLS",
        }
    }

    /// Moves about so many bytes; gives the exact number.
    fn run(self, session: &mut Straight, bytes: usize, value_bytes: usize) -> Result<u64> {
        let received = session.received;
        let sent = match self {
            Case::CopyOut => {
                let lines = bytes.div_ceil(LINE_BYTES);
                let text =
                    format!("COPY (SELECT repeat('x', {LINE_BYTES}) FROM generate_series(1, {lines})) TO STDOUT");
                session.query(&text)?;
                0
            }
            Case::CopyIn => {
                let line = format!("{}\n", "x".repeat(LINE_BYTES - 1));
                let lines = line.repeat(LINES_PER_MESSAGE);
                let times = bytes.div_ceil(lines.len());
                session.copy_in(&format!("COPY {TABLE} FROM STDIN WHERE false"), lines.as_bytes(), times)?
            }
            Case::Rows => {
                let rows = bytes.div_ceil(ROW_BYTES);
                session.query(&format!("SELECT repeat('x', {ROW_BYTES}) FROM generate_series(1, {rows})"))?;
                0
            }
            Case::ValuesOut => {
                for _ in 0..bytes.div_ceil(value_bytes) {
                    session.query(&format!("SELECT repeat('x', {value_bytes})"))?;
                }
                0
            }
            Case::ValuesIn => {
                let mut sent = 0;
                for _ in 0..bytes.div_ceil(value_bytes) {
                    sent += session.send_value("SELECT length('", value_bytes, "')")?;
                }
                sent
            }
        };
        Ok(if sent > 0 { sent } else { session.received - received })
    }
}

fn bytes(case: Case, scale: Scale) -> usize {
    let values = matches!(case, Case::ValuesOut | Case::ValuesIn);
    scale.pick(if values { 400_000_000 } else { 600_000_000 }, 100_000_000, 1_000_000)
}

fn run(bench: &mut Bench) -> Result<()> {
    let rounds = bench.rounds(3);
    for (profile, cases) in [
        (Profile::PLAIN, &[Case::CopyOut, Case::CopyIn, Case::Rows][..]),
        (Profile::TLS, &[Case::ValuesOut, Case::ValuesIn]),
    ] {
        let mut endpoints = vec![bench.direct(&profile)?];
        endpoints.extend(bench.start(bench.roster.single(), &profile)?);
        endpoints.extend(bench.externals(&profile)?);
        let endpoints = bench.warm_up(endpoints, &profile)?;
        if profile == Profile::PLAIN {
            let mut session = Straight::log_in(&bench.target(&endpoints[0], &profile, DATABASE)?)?;
            session.query(&format!("CREATE UNLOGGED TABLE IF NOT EXISTS {TABLE} (line text)"))?;
        }
        for case in cases.iter().copied() {
            for (round, endpoint) in turns(&endpoints.iter().collect::<Vec<_>>(), rounds) {
                let measured = measure(bench, endpoint, &profile, case);
                bench.keep((case.name(), 1), &endpoint.name, round, measured)?;
            }
        }
    }
    Ok(())
}

fn measure(bench: &Bench, endpoint: &Endpoint, profile: &Profile, case: Case) -> Result<Values> {
    let mut session = Straight::log_in(&bench.target(endpoint, profile, DATABASE)?)?;
    let bytes = bytes(case, bench.scale);
    let value_bytes = bench.scale.pick(VALUE_BYTES, VALUE_BYTES, ROW_BYTES);
    // The server that comes first has its buffers to grow.
    case.run(&mut session, bytes / 10, value_bytes).context("warming up")?;
    let (start, own, cpu) = (Instant::now(), thread_cpu_time()?, endpoint.cpu_time()?);
    let moved = to_f64(case.run(&mut session, bytes, value_bytes)?);
    let seconds = start.elapsed().as_secs_f64();
    let own = thread_cpu_time()?.saturating_sub(own).as_secs_f64();
    let mut figures = values([("mb_per_s", moved / 1e6 / seconds), ("client_busy", own / seconds)]);
    if let Some((after, before)) = endpoint.cpu_time()?.zip(cpu) {
        let used = after.saturating_sub(before).as_secs_f64();
        figures.extend(values([("cpu_s_per_gb", used / (moved / 1e9))]));
    }
    Ok(figures)
}
