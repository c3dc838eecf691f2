//! `weir lab model`: anybody's numbers in, the fitted law and an answer out.
//!
//! Reads arguments and writes sentences; computes nothing itself.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::plan::{self, Group, Wish};
use super::queueing::Station;
use super::words::number;
use super::{published, table};

/// The options of `weir lab model`.
#[derive(Debug, Clone, Default, Args)]
pub struct ModelArgs {
    /// Measurements: columns clients (or connections, n) and tps (or throughput), and if there are any p99_ms or p99_us, cores,
    /// nodes; separated by commas, semicolons or tabs
    #[arg(value_name = "FILE.csv", required_unless_present_any = ["published", "service_ms"])]
    file: Option<PathBuf>,
    /// Answer how many connections, cores and nodes it takes for so many transactions per second
    #[arg(long, value_name = "N", requires = "file")]
    tps: Option<f64>,
    /// With 99 of 100 transactions faster than this
    #[arg(long, value_name = "M", requires = "tps")]
    p99_ms: Option<f64>,
    /// Compute a closed queue instead: what a transaction takes at the server
    #[arg(long, value_name = "MS")]
    service_ms: Option<f64>,
    /// Of the queue: how many transactions are worked on at once
    #[arg(long, value_name = "N", default_value_t = 1, requires = "service_ms")]
    servers: usize,
    /// Of the queue: what a client does between an answer and its next transaction
    #[arg(long, value_name = "MS", default_value_t = 0.0, requires = "service_ms")]
    think_ms: f64,
    /// Hold the models against the published tables, and print how far off they are (Markdown)
    #[arg(long)]
    published: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Writes the answer.
pub fn run(args: &ModelArgs, out: &mut dyn Write) -> Result<()> {
    for (name, value) in [("--tps", args.tps), ("--p99-ms", args.p99_ms), ("--service-ms", args.service_ms)] {
        if value.is_some_and(|value| !value.is_finite() || value <= 0.0) {
            bail!("{name} must be above zero");
        }
    }
    if args.published {
        write!(out, "{}", published::tables())?;
    }
    if args.service_ms.is_some() {
        queue(args, out)?;
    }
    let Some(file) = &args.file else { return Ok(()) };
    let groups = plan::groups(&table::read(file)?);
    let wish = args.tps.map(|throughput| Wish { throughput, p99_ms: args.p99_ms });
    if args.json {
        let sizes: Vec<Value> = groups.iter().map(|group| as_json(group, wish)).collect();
        let hardware = wish.map(|wish| plan::hardware(&groups, wish)).unwrap_or_default();
        writeln!(out, "{:#}", json!({ "sizes": sizes, "hardware": hardware }))?;
        return Ok(());
    }
    for group in &groups {
        writeln!(out, "{}: {} measurements", capitalised(&group.name()), group.points.len())?;
        for sentence in sentences(group, wish) {
            writeln!(out, "  {sentence}")?;
        }
    }
    for sentence in wish.map(|wish| plan::hardware(&groups, wish)).unwrap_or_default() {
        writeln!(out, "{sentence}")?;
    }
    Ok(())
}

fn sentences(group: &Group, wish: Option<Wish>) -> Vec<String> {
    let mut all = match &group.fit {
        Ok(fit) => fit.verdict(),
        Err(reason) if wish.is_none() => vec![format!("No law can be fitted: {reason}.")],
        Err(_) => Vec::new(),
    };
    all.extend(wish.map(|wish| group.answer(wish)).unwrap_or_default());
    all
}

fn as_json(group: &Group, wish: Option<Wish>) -> Value {
    // JSON has no infinity: a peak that never comes is null.
    let finite = |value: f64| if value.is_finite() { json!(value) } else { Value::Null };
    let bounds = |interval: super::Interval| json!([finite(interval.low), finite(interval.high)]);
    let fit = group.fit.as_ref().map(|fit| {
        json!({
            "lambda": fit.law.lambda, "lambda_95": bounds(fit.lambda),
            "sigma": fit.law.sigma, "sigma_95": bounds(fit.sigma),
            "kappa": fit.law.kappa, "kappa_95": bounds(fit.kappa),
            "peak_clients": finite(fit.law.peak_clients()), "peak_clients_95": bounds(fit.peak_clients),
            "ceiling_tps": finite(fit.law.ceiling()), "ceiling_tps_95": bounds(fit.ceiling),
            "knee_clients": finite(fit.law.knee()), "knee_clients_95": bounds(fit.knee),
            "relative_error": fit.error, "doubts": fit.doubts,
        })
    });
    json!({
        "label": group.label, "cores": group.cores, "nodes": group.nodes, "measurements": group.points.len(),
        "fit": fit.unwrap_or(Value::Null), "sentences": sentences(group, wish),
    })
}

/// The numbers of clients of a queue's table: doubled until well beyond the knee.
fn queue(args: &ModelArgs, out: &mut dyn Write) -> Result<()> {
    let service = args.service_ms.unwrap_or_default() / 1000.0;
    let station = Station { service, servers: args.servers, think: args.think_ms / 1000.0 };
    if station.with(1).is_none() {
        bail!("a queue needs --servers of at least 1 and --think-ms of at least 0");
    }
    writeln!(
        out,
        "At most {} TPS; more than {} clients wait for each other.",
        number(station.ceiling()),
        number(station.knee())
    )?;
    writeln!(out, "{:>10} {:>12} {:>12} {:>12} {:>10}", "clients", "TPS", "mean ms", "p99 ms", "busy %")?;
    let mut clients = 1usize;
    while (clients as f64) < 8.0 * station.knee() {
        let Some(load) = station.with(clients) else { break };
        writeln!(
            out,
            "{clients:>10} {:>12} {:>12} {:>12} {:>10}",
            number(load.throughput),
            number(load.response * 1000.0),
            number(load.response_99 * 1000.0),
            number(load.utilisation * 100.0)
        )?;
        clients *= 2;
    }
    writeln!(out, "Service and think times are taken to vary exponentially; steadier ones wait less.")?;
    Ok(())
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(args: &ModelArgs) -> String {
        let mut out = Vec::new();
        run(args, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_file_is_fitted_and_asked() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.csv");
        std::fs::write(&file, "clients,tps\n1,1000\n2,1950\n4,3700\n8,6600\n16,10500\n32,13800\n64,14500\n128,12000\n")
            .unwrap();
        let args = ModelArgs { file: Some(file), tps: Some(10_000.0), ..ModelArgs::default() };
        let text = said(&args);
        assert!(text.contains("The law has its peak at") && text.contains("10,000 TPS: 1"), "{text}");
        let json: Value = serde_json::from_str(&said(&ModelArgs { json: true, ..args })).unwrap();
        assert!(
            json["sizes"][0]["fit"]["peak_clients"].as_f64().is_some_and(|peak| (40.0..90.0).contains(&peak)),
            "{json}"
        );
    }

    #[test]
    fn a_queue_is_computed() {
        let args = ModelArgs { service_ms: Some(10.0), servers: 4, think_ms: 40.0, ..ModelArgs::default() };
        let text = said(&args);
        assert!(text.starts_with("At most 400 TPS; more than 20 clients wait"), "{text}");
        assert!(run(&ModelArgs { servers: 0, ..args }, &mut Vec::new()).is_err());
        assert!(run(&ModelArgs { service_ms: Some(-1.0), ..ModelArgs::default() }, &mut Vec::new()).is_err());
    }
}
