//! `weir advise`: what to set, and why, from a run of the lab, a short look at a live server, and a pooler's console.
//!
//! It only asks (`statements.rs`): nothing is ever changed. Facts are gathered here; what follows from them is in `rules`.

pub mod console;
pub mod facts;
pub mod gather;
pub mod here;
pub mod rules;
pub mod runs;
pub mod server;
pub mod session;
pub mod statements;
pub mod text;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;

use facts::Facts;
use rules::Advice;
use weir_measure::url::Url;

const SECONDS_MAX: u64 = 30;
const GIB_MAX: f64 = 1_048_576.0;

/// The options of `weir advise`.
#[derive(Debug, Clone, Args)]
pub struct AdviseArgs {
    /// The directory of a run of the lab (weir lab run --out DIR)
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// A live PostgreSQL to look at; itself, not a pooler before it. A console's URL is taken as --console
    #[arg(long)]
    url: Option<String>,
    /// The console of a running Weir or PgBouncer, its database "pgbouncer"
    #[arg(long, visible_alias = "weir", value_name = "URL")]
    console: Option<String>,
    /// The cores of the server's machine, where they cannot be seen from here
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    cores: Option<u32>,
    /// The memory of the server's machine, where it cannot be seen from here
    #[arg(long, value_name = "N", value_parser = gib)]
    memory_gib: Option<f64>,
    /// How long to look at a live server or console
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,
    /// Print facts and advice as JSON
    #[arg(long)]
    json: bool,
}

fn gib(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|gib| *gib > 0.0 && *gib <= GIB_MAX).ok_or_else(|| "a number of GiB above 0".to_owned())
}

/// All that is printed as JSON.
#[derive(Serialize)]
struct Output<'a> {
    facts: &'a Facts,
    advice: &'a [Advice],
}

/// `weir advise`: looks, and prints.
pub fn run(args: &AdviseArgs) -> Result<()> {
    let facts = gather::facts(&wanted(args)?)?;
    let advice = rules::all(&facts);
    let text = if args.json {
        serde_json::to_string_pretty(&Output { facts: &facts, advice: &advice })
            .context("facts that JSON cannot hold")?
            + "\n"
    } else {
        text::page(&facts, &advice)
    };
    let mut out = std::io::stdout().lock();
    std::io::Write::write_all(&mut out, text.as_bytes()).context("cannot write")
}

fn wanted(args: &AdviseArgs) -> Result<gather::Wanted> {
    if args.from.is_none() && args.url.is_none() && args.console.is_none() {
        bail!("there is nothing to advise from: give --from DIR, --url URL or --console URL");
    }
    let url = |option: &str, text: &Option<String>| {
        text.as_ref().map(|text| text.parse::<Url>().with_context(|| option.to_owned())).transpose()
    };
    Ok(gather::Wanted {
        from: args.from.clone(),
        url: url("--url", &args.url)?,
        console: url("--console", &args.console)?,
        cores: args.cores.map(f64::from),
        memory_mib: args.memory_gib.map(|gib| gib * 1024.0),
        seconds: f64::from(u32::try_from(args.seconds).unwrap_or(1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        advise: AdviseArgs,
    }

    fn parse(words: &[&str]) -> Result<gather::Wanted> {
        wanted(&Cli::try_parse_from(["advise"].iter().chain(words))?.advise)
    }

    #[test]
    fn options_become_what_is_wanted() {
        let wanted =
            parse(&["--url", "postgres://h/d", "--cores", "8", "--memory-gib", "16", "--seconds", "2"]).unwrap();
        assert_eq!((wanted.cores, wanted.memory_mib, wanted.seconds), (Some(8.0), Some(16_384.0), 2.0));
        assert!(wanted.from.is_none() && wanted.console.is_none());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_in_words() {
        let refused = |words: &[&str]| format!("{:#}", parse(words).map(drop).unwrap_err());
        assert!(refused(&[]).contains("give --from DIR, --url URL or --console URL"));
        assert!(refused(&["--memory-gib=0"]).contains("a number of GiB above 0"));
        assert!(refused(&["--url", "postgres://h/d", "--cores", "0"]).contains("--cores"));
        let wrong = refused(&["--url", "mysql://me:hunter2@h"]);
        assert!(wrong.starts_with("--url: ") && !wrong.contains("hunter2"), "{wrong}");
    }
}
