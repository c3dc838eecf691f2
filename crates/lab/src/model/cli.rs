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
use super::{published, queue, table};
use crate::report::figures::counted;

/// The options of `weir lab model`.
#[derive(Debug, Clone, Default, Args)]
pub struct ModelArgs {
    /// Measurements: columns clients (or connections, n) and tps (or throughput), and if there are any p99_ms or p99_us, cores,
    /// nodes; separated by commas, semicolons or tabs
    #[arg(value_name = "FILE.csv", required_unless_present_any = ["published", "service_ms"])]
    file: Option<PathBuf>,
    /// Answer how many connections, cores and nodes it takes for so many transactions per second
    #[arg(long, value_name = "N")]
    tps: Option<f64>,
    /// With 99 of 100 transactions faster than this
    #[arg(long, value_name = "M", requires = "tps")]
    p99_ms: Option<f64>,
    /// Compute a closed queue, alone or beside the measurements: what a transaction takes at the server
    #[arg(long, value_name = "MS")]
    service_ms: Option<f64>,
    /// Of the queue: how many transactions are worked on at once
    #[arg(long, value_name = "N", default_value_t = 1, requires = "service_ms")]
    servers: usize,
    /// Of the queue: what a client does between an answer and its next transaction
    #[arg(long, value_name = "MS", default_value_t = 0.0, requires = "service_ms")]
    think_ms: f64,
    /// Hold the models against the published tables, and print how far off they are (Markdown)
    #[arg(long, conflicts_with_all = ["file", "service_ms", "json"])]
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
        return Ok(());
    }
    let station = args.station()?;
    if args.tps.is_some() && args.file.is_none() && station.is_none() {
        bail!("--tps needs a file of measurements or --service-ms");
    }
    let wish = args.tps.map(|throughput| Wish { throughput, p99_ms: args.p99_ms });
    let groups = args.file.as_deref().map(table::read).transpose()?.map(|all| plan::groups(&all)).unwrap_or_default();
    if args.json {
        let all = json(&groups, station.as_ref(), wish);
        writeln!(out, "{all:#}")?;
        return Ok(());
    }
    for group in &groups {
        writeln!(
            out,
            "{}: {}",
            capitalised(&group.name()),
            counted(group.points.len() as u64, "measurement", "measurements")
        )?;
        for sentence in sentences(group, wish) {
            writeln!(out, "  {sentence}")?;
        }
    }
    for sentence in plan_of(&groups, wish) {
        writeln!(out, "{sentence}")?;
    }
    if let Some(station) = station {
        write_queue(&station, &groups, wish, out)?;
    }
    Ok(())
}

impl ModelArgs {
    fn station(&self) -> Result<Option<Station>> {
        let Some(service_ms) = self.service_ms else { return Ok(None) };
        let station = Station { service: service_ms / 1000.0, servers: self.servers, think: self.think_ms / 1000.0 };
        if station.throughput(1).is_none() {
            bail!("a queue needs --servers of at least 1 and --think-ms of at least 0");
        }
        Ok(Some(station))
    }
}

fn plan_of(groups: &[Group], wish: Option<Wish>) -> Vec<String> {
    wish.filter(|_| !groups.is_empty()).map(|wish| plan::hardware(groups, wish)).unwrap_or_default()
}

fn json(groups: &[Group], station: Option<&Station>, wish: Option<Wish>) -> Value {
    let sizes: Vec<Value> = groups.iter().map(|group| as_json(group, wish)).collect();
    let queues = |station: &Station| -> Vec<Value> {
        let mut sentences = queue::introduction(station);
        sentences.extend(wish.map(|wish| queue::answer(station, wish)).unwrap_or_default());
        let tables: Vec<Vec<queue::Row>> = if groups.is_empty() {
            vec![queue::doubling(station)]
        } else {
            groups.iter().map(|group| queue::beside(station, group)).collect()
        };
        tables.iter().map(|rows| queue::as_json(station, rows, &sentences)).collect()
    };
    json!({ "sizes": sizes, "hardware": plan_of(groups, wish), "queues": station.map(queues) })
}

fn write_queue(station: &Station, groups: &[Group], wish: Option<Wish>, out: &mut dyn Write) -> Result<()> {
    for sentence in queue::introduction(station) {
        writeln!(out, "{sentence}")?;
    }
    for sentence in wish.map(|wish| queue::answer(station, wish)).unwrap_or_default() {
        writeln!(out, "  {sentence}")?;
    }
    if groups.is_empty() {
        writeln!(out, "{}", queue::table(&queue::doubling(station)).join("\n"))?;
    }
    for group in groups {
        writeln!(out, "Beside {}:", group.name())?;
        writeln!(out, "{}", queue::table(&queue::beside(station, group)).join("\n"))?;
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
            "relative_error": fit.error, "r_squared": fit.r_squared, "doubts": fit.doubts,
        })
    });
    json!({
        "label": group.label, "cores": group.cores, "nodes": group.nodes, "measurements": group.points.len(),
        "fit": fit.unwrap_or(Value::Null), "sentences": sentences(group, wish),
    })
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
        let queue = ModelArgs { service_ms: Some(1.0), servers: 14, ..args.clone() };
        let text = said(&queue);
        assert!(text.contains("measured TPS") && text.lines().any(|line| line.contains("14,500")), "{text}");
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
        assert!(text.starts_with("A closed queue: at most 400 TPS; more than 20 clients wait"), "{text}");
        let asked = said(&ModelArgs { tps: Some(200.0), ..args.clone() });
        assert!(asked.contains("  200 TPS: 11 clients"), "{asked}");
        let json: Value = serde_json::from_str(&said(&ModelArgs { json: true, ..args.clone() })).unwrap();
        assert_eq!(json["queues"][0]["ceiling_tps"].as_f64(), Some(400.0), "{json}");
        assert!(run(&ModelArgs { servers: 0, ..args }, &mut Vec::new()).is_err());
        assert!(run(&ModelArgs { service_ms: Some(-1.0), ..ModelArgs::default() }, &mut Vec::new()).is_err());
        assert!(run(&ModelArgs { tps: Some(1.0), ..ModelArgs::default() }, &mut Vec::new()).is_err());
    }
}
