//! The command line of `weir lab` and `weir advise`: what may be written, and what is called for it.
//!
//! Does not measure, compute or draw anything itself.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};

use crate::advise::AdviseArgs;
use crate::experiment::Experiment;
use crate::model::cli::ModelArgs;
use crate::run::runner::{Plan, Runner};
use crate::run::site::Wishes;
use crate::run::sizes::{self, Asked};
use crate::run::tools::Tools;
use crate::run::{awake, busy, duration};
use crate::{advise, experiments, model, report};
use weir_measure::ground::interrupt::Interrupt;
use weir_measure::load::{Protocol, programs};
use weir_measure::url::Url;

/// Every experiment, as a name.
const ALL: &str = "all";
/// The experiment that runs a user's own script.
const OWN_WORK: &str = "saturation";
/// Of a comparison.
const WORSE: u8 = 2;
const NOTHING_CONCLUDED: u8 = 3;
/// As shells have it of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Whoever asks for help or makes a mistake has written `weir lab`.
#[derive(Debug, Parser)]
#[command(
    name = "weir-lab",
    bin_name = "weir lab",
    about = "Reproduce known experiments on connection scaling here, with charts and what they mean",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum LabCommand {
    /// Say which experiments there are, what one learns from each, and where it comes from
    List,
    /// Measure experiments, and write a report
    Run(RunArgs),
    /// Write the report of a run again
    Report {
        /// Where the run's results are
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Set two runs side by side
    Compare {
        #[arg(value_name = "A")]
        before: PathBuf,
        #[arg(value_name = "B")]
        after: PathBuf,
        /// For programs
        #[arg(long)]
        json: bool,
        /// End with 2 where a figure of B is clearly worse than A's by more than so many per cent, and with 3 where nothing is to
        /// be concluded from one of the runs
        #[arg(long, value_name = "PERCENT")]
        worse_than: Option<f64>,
    },
    /// Fit laws of scalability to figures of one's own, and ask them for sizes
    Model(ModelArgs),
    /// Say what to set for connections, and why: from a run of the lab, or a short look at a live server
    #[command(override_usage = "weir advise [OPTIONS]")]
    Advise(AdviseArgs),
    /// Spin on every core when nobody else wants to run, until standard input ends
    #[command(name = awake::SUBCOMMAND, hide = true)]
    KeepAwake,
}

#[derive(Debug, Clone, Args)]
struct RunArgs {
    /// Experiments (`weir lab list`), or "all"
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// An endpoint to measure, by a name for the charts; may be repeated. Of a whole cluster: all nodes in one URL, with
    /// load_balance_hosts=random [default: PostgreSQL, PgBouncer and Weir, started here as each experiment needs them]
    #[arg(long = "target", value_name = "NAME=URL")]
    targets: Vec<String>,
    /// Where results and report go; a run that was begun there goes on
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// Versions of PostgreSQL to start, side by side [default: the newest]
    #[arg(long, value_name = "MAJOR", value_delimiter = ',', conflicts_with = "targets")]
    server_version: Vec<u32>,
    /// The smallest sizes that show the shape: at most about two minutes for an experiment
    #[arg(long)]
    quick: bool,
    /// The sources' own sizes, whatever the machine
    #[arg(long, conflicts_with = "quick")]
    source_sizes: bool,
    /// How long each measurement takes [default: 10, quick 2 or less]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// How often each place is measured [default: 3, and up to 8 where they differ; quick 1]
    #[arg(long)]
    rounds: Option<usize>,
    /// pgbench's scale factor: so many times 100 000 rows [default: by the machine's memory, quick 10]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    scale: Option<u32>,
    /// So many clients and no others, in the experiments that vary them
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    clients: Vec<usize>,
    /// pgbench's threads [default: one per core]
    #[arg(long)]
    threads: Option<usize>,
    /// How pgbench asks: simple, extended or prepared [default: simple]
    #[arg(long, value_parser = protocol)]
    protocol: Option<Protocol>,
    /// Transactions per second, begun at their times whether earlier ones have ended or not; latency then counts from those times
    #[arg(long, value_name = "TPS")]
    rate: Option<f64>,
    /// Seconds before each measurement that do not count [default: until throughput stops rising and each client has done some]
    #[arg(long, value_name = "SECONDS")]
    warmup: Option<u64>,
    /// Server connections of the poolers that the lab starts, all together [default: each experiment's own]
    #[arg(long, value_name = "N", conflicts_with = "targets", value_parser = clap::value_parser!(u32).range(1..))]
    pool_size: Option<u32>,
    /// A pgbench script of your own, for the experiment saturation; of a target of yours it needs nothing else
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// The bound on the 99th percentile of latency, for the experiment saturation
    #[arg(long, value_name = "N")]
    p99_ms: Option<f64>,
    /// The pgbench to use [default: of PG_BIN, Debian's newest, or on PATH]
    #[arg(long, value_name = "PATH")]
    pgbench: Option<PathBuf>,
    /// The Weir to measure [default: the one beside this program, or on PATH]
    #[arg(long, env = "WEIR", hide_env_values = true, value_name = "PATH")]
    weir: Option<PathBuf>,
    /// Let cores sleep when they have nothing to do, as they do outside of a lab
    #[arg(long)]
    let_cores_sleep: bool,
}

/// The whole program, from the command line of this process.
pub fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run(cli.command),
        Err(error) => {
            let _ = error.print();
            // As `weir` does it: clap ends with 2 on a mistake, PgBouncer with 1.
            if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
    }
}

fn run(command: LabCommand) -> ExitCode {
    let result = match command {
        LabCommand::List => {
            list();
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Run(args) => measure(&args),
        LabCommand::Report { directory } => report::write(&directory).map(|files| said(&files)),
        LabCommand::Compare { before, after, json, worse_than } => compare(&before, &after, json, worse_than),
        LabCommand::Model(args) => model::cli::run(&args, &mut std::io::stdout().lock()).map(|()| ExitCode::SUCCESS),
        LabCommand::Advise(args) => advise::run(&args).map(|()| ExitCode::SUCCESS),
        LabCommand::KeepAwake => return awake::spin(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("weir: {error:#}");
        ExitCode::FAILURE
    })
}

fn compare(before: &Path, after: &Path, json: bool, worse_than: Option<f64>) -> Result<ExitCode> {
    let comparison = report::Comparison::read(before, after)?;
    if json {
        println!("{}", comparison.json()?);
    } else {
        print!("{}", report::compare(before, after)?);
    }
    let Some(percent) = worse_than else { return Ok(ExitCode::SUCCESS) };
    for doubt in &comparison.doubts {
        eprintln!("weir: {doubt}");
    }
    for worse in comparison.worse_than(percent / 100.0) {
        let (line, figure, x) = (&worse.line, &worse.figure, worse.x);
        eprintln!("weir: {}: {line} at {x}: {figure} is {:.2} times what it was", worse.experiment, worse.ratio);
    }
    let is_worse = comparison.worse_than(percent / 100.0).next().is_some();
    Ok(match (comparison.doubts.is_empty(), is_worse) {
        (false, _) => ExitCode::from(NOTHING_CONCLUDED),
        (true, true) => ExitCode::from(WORSE),
        (true, false) => ExitCode::SUCCESS,
    })
}

fn list() {
    for experiment in experiments::ALL {
        print!("{}", described(*experiment));
    }
}

fn described(experiment: &dyn Experiment) -> String {
    let about = experiment.about();
    let mut text = format!("{}\n  {}\n  {}\n", about.name, about.title, about.question);
    let [quick, whole] = [true, false].map(|quick| duration::of(experiment, quick));
    text.push_str(&format!(
        "  Takes about {quick} with --quick here, else {whole}, as far as lines are measured to their ends.\n"
    ));
    if let Some(creates) = experiment.creates() {
        text.push_str(&format!("  {creates}\n"));
    }
    for source in about.sources {
        text.push_str(&format!("  {}, \"{}\", {}: {}\n", source.authors, source.title, source.year, source.url));
    }
    text
}

fn measure(args: &RunArgs) -> Result<ExitCode> {
    let chosen = chosen(&args.names)?;
    let plan = plan(args)?;
    let interrupt = Interrupt::install()?;
    let weir = args.weir.clone().map_or_else(weir, Ok)?;
    let tools = Tools::find(args.pgbench.as_deref(), &weir, &interrupt)?;
    if let Some(text) = busy::now(&tools)? {
        eprintln!("weir: {text}");
    }
    let mut runner = Runner::open(&args.out, &tools, &plan)?;
    let mut code = ExitCode::SUCCESS;
    for experiment in chosen {
        let Err(error) = runner.run(experiment) else { continue };
        if interrupt.check().is_err() {
            eprintln!("weir: interrupted: what was measured is kept, and the same command goes on from there");
            code = ExitCode::from(INTERRUPTED);
            break;
        }
        eprintln!("weir: {error:#}");
        code = ExitCode::FAILURE;
    }
    drop(runner);
    if args.out.join(weir_measure::journal::RESULTS).metadata().is_ok_and(|results| results.len() > 0) {
        said(&report::write(&args.out).context("the results are kept, but their report cannot be written")?);
    }
    Ok(code)
}

/// The pooler that an experiment starts. Where there is none, what would be measured of it is missing.
fn weir() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find out where this program is")?;
    let beside = own.with_file_name("weir");
    Ok(if beside.is_file() { beside } else { programs::on_path("weir").unwrap_or(beside) })
}

fn said(files: &[PathBuf]) -> ExitCode {
    if let Some(page) = files.first() {
        println!("{}", page.display());
    }
    ExitCode::SUCCESS
}

fn chosen(names: &[String]) -> Result<Vec<&'static dyn Experiment>> {
    let mut chosen: Vec<&'static dyn Experiment> = Vec::new();
    for name in names {
        let known = || experiments::ALL.iter().map(|experiment| experiment.about().name).collect::<Vec<_>>().join(", ");
        let more: Vec<&'static dyn Experiment> = match name.as_str() {
            ALL => experiments::ALL.to_vec(),
            name => vec![
                experiments::by_name(name)
                    .with_context(|| format!("there is no experiment {name}; there are {}", known()))?,
            ],
        };
        for experiment in more {
            if !chosen.iter().any(|known| known.about().name == experiment.about().name) {
                chosen.push(experiment);
            }
        }
    }
    Ok(chosen)
}

fn plan(args: &RunArgs) -> Result<Plan> {
    if let Some(unknown) = args.server_version.iter().find(|major| !weir_pg::KNOWN_MAJORS.contains(major)) {
        let known = weir_pg::KNOWN_MAJORS.map(|major| major.to_string()).join(", ");
        bail!("PostgreSQL {unknown} cannot be started here; the versions are {known}");
    }
    if let Some(script) = args.script.as_ref().filter(|script| !script.is_file()) {
        bail!("there is no script {}", script.display());
    }
    let mut targets: Vec<(String, Url)> = Vec::new();
    for text in &args.targets {
        let (name, url) = target(text)?;
        if targets.iter().any(|(known, _)| *known == name) {
            bail!("two targets have the name {name}");
        }
        targets.push((name, url));
    }
    let asked = Asked {
        quick: args.quick,
        source: args.source_sizes,
        seconds: args.seconds,
        rounds: args.rounds,
        scale: args.scale,
    };
    let wishes = wishes(args)?;
    let command = command(args, &targets, &asked);
    let (majors, cores_awake) = (args.server_version.clone(), !args.let_cores_sleep);
    Ok(Plan { targets, majors, asked, wishes, cores_awake, command })
}

fn wishes(args: &RunArgs) -> Result<Wishes> {
    let only_own_work = args.script.is_some() || args.p99_ms.is_some();
    if only_own_work && !args.names.iter().any(|name| name == OWN_WORK || name == ALL) {
        bail!("--script and --p99-ms are for the experiment {OWN_WORK}, which is not to be run");
    }
    let mut clients = args.clients.clone();
    clients.sort_unstable();
    clients.dedup();
    if clients.first() == Some(&0) || args.threads == Some(0) {
        bail!("--clients and --threads are at least 1");
    }
    if args.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
        bail!("--rate is a number of transactions per second");
    }
    Ok(Wishes {
        script: args.script.clone(),
        p99_ms: args.p99_ms,
        clients,
        threads: args.threads,
        protocol: args.protocol,
        rate: args.rate,
        warm_up: args.warmup,
        pool_size: args.pool_size,
    })
}

fn protocol(name: &str) -> Result<Protocol, String> {
    let known = Protocol::ALL.into_iter().find(|protocol| protocol.to_string() == name);
    known.ok_or_else(|| "the protocols are simple, extended and prepared".to_owned())
}

/// `NAME=URL`. An error does not repeat the text, which may have a password.
fn target(text: &str) -> Result<(String, Url)> {
    let (name, url) = text.split_once('=').context("--target is NAME=URL")?;
    // `postgres://host/db?x=y` has an equals sign too.
    if name.trim().is_empty() || name.contains("://") {
        bail!("--target is NAME=URL: a name for the charts is missing");
    }
    let url = url.parse().with_context(|| format!("--target {name}"))?;
    Ok((name.trim().to_owned(), url))
}

/// What is written behind `weir lab run NAME` to measure the same again.
fn command(args: &RunArgs, targets: &[(String, Url)], asked: &Asked) -> String {
    let mut text = String::new();
    for (name, url) in targets {
        text.push_str(&format!(" --target '{name}={url}'"));
    }
    if !args.server_version.is_empty() {
        let majors: Vec<String> = args.server_version.iter().map(u32::to_string).collect();
        text.push_str(&format!(" --server-version {}", majors.join(",")));
    }
    text.push_str(&sizes::options(asked));
    if !args.clients.is_empty() {
        let clients: Vec<String> = args.clients.iter().map(usize::to_string).collect();
        text.push_str(&format!(" --clients {}", clients.join(",")));
    }
    let numbers = [
        ("threads", args.threads.map(|threads| threads.to_string())),
        ("protocol", args.protocol.map(|protocol| protocol.to_string())),
        ("rate", args.rate.map(|rate| rate.to_string())),
        ("warmup", args.warmup.map(|seconds| seconds.to_string())),
        ("pool-size", args.pool_size.map(|size| size.to_string())),
    ];
    for (option, value) in numbers.into_iter().filter_map(|(option, value)| Some((option, value?))) {
        text.push_str(&format!(" --{option} {value}"));
    }
    if let Some(script) = &args.script {
        text.push_str(&format!(" --script {}", script.display()));
    }
    if let Some(p99_ms) = args.p99_ms {
        text.push_str(&format!(" --p99-ms {p99_ms}"));
    }
    if args.let_cores_sleep {
        text.push_str(" --let-cores-sleep");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        let help = |words: &[&str]| Cli::try_parse_from(words).unwrap_err().to_string();
        let lab = help(&["weir-lab", "--help"]);
        assert!(lab.contains("Usage: weir lab <COMMAND>") && !lab.contains("keep-awake"), "{lab}");
        let run = help(&["weir-lab", "run", "--help"]);
        assert!(run.contains("Usage: weir lab run "), "{run}");
        assert!(help(&["weir-lab", "advise", "--help"]).contains("Usage: weir advise [OPTIONS]"));
    }

    fn run_args(words: &[&str]) -> RunArgs {
        let cli = Cli::try_parse_from(["lab", "run"].iter().chain(words)).unwrap_or_else(|error| panic!("{error}"));
        match cli.command {
            LabCommand::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_plan_repeats_itself_without_passwords() {
        let args = run_args(&["idle", "--target", "mine=postgres://me:hunter2@h/d", "--quick", "--seconds", "3"]);
        let plan = plan(&args).unwrap();
        assert_eq!(plan.command, " --target 'mine=postgres://me@h/d' --quick --seconds 3");
        assert!(plan.cores_awake);
    }

    #[test]
    fn what_is_wished_of_loads_is_in_the_command() {
        let words = [
            "saturation",
            "--clients",
            "8,2",
            "--threads",
            "2",
            "--protocol",
            "prepared",
            "--rate",
            "50",
            "--warmup",
            "3",
        ];
        let plan = plan(&run_args(&words)).unwrap();
        assert_eq!(plan.command, " --clients 8,2 --threads 2 --protocol prepared --rate 50 --warmup 3");
        assert_eq!((plan.wishes.clients, plan.wishes.protocol), (vec![2, 8], Some(Protocol::Prepared)));
        let refused = |words: &[&str]| super::plan(&run_args(words)).unwrap_err().to_string();
        assert!(refused(&["idle", "--p99-ms", "20"]).contains("for the experiment saturation"));
        assert!(refused(&["idle", "--clients", "0"]).contains("at least 1"));
    }

    #[test]
    fn the_list_says_what_an_experiment_makes_on_a_server() {
        let described = |name| described(experiments::by_name(name).unwrap());
        assert!(described("cache-bloat").contains("\n  Creates the schema weir_lab_tables in a target's database"));
        assert!(!described("idle").contains("Creates"));
        assert!(described("idle").contains("with --quick here, else"), "{}", described("idle"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_words() {
        let refused = |words: &[&str]| plan(&run_args(words)).unwrap_err().to_string();
        assert_eq!(
            refused(&["idle", "--server-version", "9"]).split(';').next(),
            Some("PostgreSQL 9 cannot be started here")
        );
        assert!(refused(&["idle", "--target", "postgres://a:hunter2@h/d?x=y"]).contains("a name for the charts"));
        assert_eq!(refused(&["idle", "--script", "/no/such.sql"]), "there is no script /no/such.sql");
        assert_eq!(refused(&["idle", "--target", "a=host=h", "--target", "a=host=i"]), "two targets have the name a");
        let wrong = format!("{:#}", plan(&run_args(&["idle", "--target", "a=mysql://me:hunter2@h"])).unwrap_err());
        assert!(!wrong.contains("hunter2"), "{wrong}");
    }
}
