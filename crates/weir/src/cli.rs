//! The command line: what may be written, and what is called for it.
//!
//! The options are PgBouncer's; the subcommands are Weir's own. Does not load or start anything itself.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config::global::VERSION;
use crate::config::problem::Place;
use crate::config::{self, Problems, ProgramSettings};
use crate::dev;
use crate::log::LogOptions;
use crate::run::{self, Pooler, RunOptions};
use crate::start;

/// Of a file's mode.
const EVERYBODY_READS: u32 = 0o004;
/// The laboratory's program.
const LAB: &str = "weir-lab";
/// Names the Weir that the lab measures.
const LAB_MEASURES: &str = "WEIR";
/// How long the reason of an end may take to be said.
const SAY_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Parser)]
#[command(
    name = "weir",
    about = "A connection pooler for PostgreSQL: many clients, few servers, every core.",
    override_usage = "weir [OPTIONS] CONFIG.ini\n       weir check CONFIG.ini\n       weir dev [OPTIONS]\n       weir lab COMMAND\n       weir advise [OPTIONS]",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Cli {
    /// The configuration file, in PgBouncer's format
    #[arg(value_name = "CONFIG.ini")]
    config: Option<String>,
    /// Run in the background; needs pidfile and logfile
    #[arg(short, long)]
    daemon: bool,
    /// Do not log to standard error
    #[arg(short, long)]
    quiet: bool,
    /// Log more; may be repeated
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Become this system user
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    /// Take the place of the process that runs, and its clients with their sessions; where none runs it starts as always
    #[arg(short = 'R', long)]
    reboot: bool,
    /// Print the version and those of the libraries, and exit
    #[arg(short = 'V', long)]
    version: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Validate a configuration file and all that it names, without starting
    Check {
        #[arg(value_name = "CONFIG.ini")]
        config: String,
    },
    /// Start a PostgreSQL of its own and Weir in front of it, to try things out
    Dev(DevArgs),
    /// Reproduce known experiments on connection scaling here, with charts and what they mean
    #[command(disable_help_flag = true)]
    Lab(Words),
    /// Say what to set for connections, and why: from a run of the lab, or a short look at a live server
    #[command(disable_help_flag = true)]
    Advise(Words),
}

/// What another program is to understand.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// The options of `weir dev`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct DevArgs {
    /// Throw the data away at the end
    #[arg(long)]
    pub ephemeral: bool,
    /// The port Weir listens on
    #[arg(long, default_value_t = 6432, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// The directory of the data
    #[arg(long, value_name = "DIRECTORY")]
    pub data: Option<PathBuf>,
    /// The address Weir listens on
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub listen: String,
}

/// What the command line takes, for who writes its manual.
pub fn command() -> clap::Command {
    Cli::command()
}

/// The whole program, from the command line of this process.
pub fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => dispatch(cli),
        Err(error) => {
            let _ = error.print();
            // clap ends with 2 on a mistake; PgBouncer ends with 1.
            if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
    }
}

fn dispatch(cli: Cli) -> ExitCode {
    if cli.version {
        return print(&version());
    }
    match (cli.command, cli.config) {
        (Some(Command::Check { config }), _) => check(&config),
        (Some(Command::Dev(args)), _) => dev(args),
        (Some(Command::Lab(args)), _) => lab(&[], &args.words),
        (Some(Command::Advise(args)), _) => lab(&["advise"], &args.words),
        (None, Some(config)) => {
            let Cli { daemon, quiet, verbose, user, reboot, .. } = cli;
            match run::main(&RunOptions { config, daemon, quiet, verbose, user, reboot }) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail_soon(error),
            }
        }
        (None, None) => fail(
            "no configuration file specified\nTry \"weir --help\" for more information, or \"weir dev\" to try Weir out.",
        ),
    }
}

/// `weir check`: everything that is wrong, and a count.
fn check(path: &str) -> ExitCode {
    let problems = check_all(path);
    for problem in problems.iter() {
        eprintln!("{problem}");
    }
    let errors = counted(problems.errors().count(), "error");
    let warnings = counted(problems.warnings().count(), "warning");
    let printed = print(&format!("{path}: {errors}, {warnings}\n"));
    if problems.has_errors() { ExitCode::FAILURE } else { printed }
}

/// The files, and whether TLS can be set up from them: that a key fits its certificate shows only then.
fn check_all(path: &str) -> Problems {
    let loaded = match config::load(path) {
        Ok(loaded) => loaded,
        Err(problems) => return problems,
    };
    let mut problems = Problems::from(loaded.warnings);
    let whole = Place::new(&path.into(), 0);
    let needed = [start::authorities(&loaded.settings), start::tls(&loaded.program).map(drop)];
    needed.into_iter().filter_map(Result::err).for_each(|reason| problems.error(&whole, reason));
    let ProgramSettings { auth_file, client_tls, server_tls, .. } = &loaded.program;
    let keys = [("client_tls_key_file", &client_tls.key_file), ("server_tls_key_file", &server_tls.key_file)];
    let secrets = keys.into_iter().filter_map(|(name, file)| Some((name, file.as_deref()?)));
    for (name, file) in secrets.chain(auth_file.as_deref().map(|file| ("auth_file", Path::new(file)))) {
        // PostgreSQL refuses such keys (`check_ssl_key_file_permissions`), PgBouncer takes them.
        if std::fs::metadata(file).is_ok_and(|metadata| metadata.mode() & EVERYBODY_READS != 0) {
            let file = file.display();
            problems
                .warn(&whole, format!("{name} \"{file}\" holds secrets, and everybody on this machine can read it"));
        }
    }
    problems
}

/// `1 error`, `2 errors`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// What a start prints when the files are wrong.
pub fn summary(path: &str, problems: &Problems) -> String {
    let mut lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.push(format!("cannot load config file \"{path}\": {}", counted(problems.errors().count(), "error")));
    lines.join("\n")
}

/// Prints to standard output; a reader that has gone is a failure, not a panic.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(text: &str) -> ExitCode {
    eprintln!("weir: {text}");
    ExitCode::FAILURE
}

/// The same, but where nobody reads standard error the process ends all the same.
fn fail_soon(text: String) -> ExitCode {
    let (said_in, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        fail(&text);
        let _ = said_in.send(());
    });
    let _ = said.recv_timeout(SAY_PATIENCE);
    ExitCode::FAILURE
}

/// `Weir x.y.z`, the libraries whose age an operator may want to know, and whether this build is slow.
fn version() -> String {
    let libraries = ["rustls", "ring", "io-uring"].map(|name| format!("{name} {}\n", locked_version(name)));
    // Whoever measures should know.
    let build = if cfg!(debug_assertions) { "built without optimisation\n" } else { "" };
    format!("{VERSION}\n{}{build}", libraries.concat())
}

/// The version of a dependency that this program was built with.
fn locked_version(name: &str) -> &'static str {
    let lock = include_str!("../../../Cargo.lock");
    let package = lock.split("[[package]]").find(|package| package.contains(&format!("\nname = \"{name}\"\n")));
    let version =
        package.and_then(|package| package.split_once("version = \"")).and_then(|(_, rest)| rest.split_once('"'));
    version.map_or("unknown", |(version, _)| version)
}

fn dev(args: DevArgs) -> ExitCode {
    let options = dev::DevOptions { ephemeral: args.ephemeral, port: args.port, data: args.data, listen: args.listen };
    let start = |config: &Path| {
        let pooler = run::start_for_dev(config, LogOptions::default())?;
        Ok(Box::new(DevPooler(Some(pooler))) as Box<dyn dev::Pooler>)
    };
    match dev::run(&options, start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

/// Becomes the laboratory, a program of its own: whoever only pools does not carry it. It measures this very Weir, unless told of
/// another.
fn lab(first: &[&str], words: &[OsString]) -> ExitCode {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return fail(&format!("cannot find out where this program is: {error}")),
    };
    let beside = own.with_file_name(LAB);
    // A name without a folder is looked for on PATH.
    let program = if beside.is_file() { beside } else { PathBuf::from(LAB) };
    let mut command = std::process::Command::new(program);
    command.args(first).args(words);
    if std::env::var_os(LAB_MEASURES).is_none() {
        command.env(LAB_MEASURES, &own);
    }
    let error = command.exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        return fail(&format!(
            "the lab is a program of its own, {LAB}, and it is neither beside {} nor on PATH: `make build` builds both, and \
             `cargo build --release -p {LAB}` the lab alone",
            own.display()
        ));
    }
    fail(&format!("cannot run {LAB}: {error}"))
}

/// A pooler as `weir dev` wants it. `None` once it has ended.
struct DevPooler(Option<Pooler>);

impl dev::Pooler for DevPooler {
    fn ended(&mut self) -> Option<String> {
        let ended = self.0.take_if(|pooler| pooler.has_ended())?;
        Some(ended.wait().err().unwrap_or_else(|| "it was shut down".to_owned()))
    }

    fn stop(self: Box<Self>) {
        if let Some(Err(reason)) = self.0.map(Pooler::stop) {
            eprintln!("weir: {reason}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_are_pgbouncer_s() {
        let cli = Cli::try_parse_from(["weir", "-d", "-q", "-vv", "-u", "postgres", "weir.ini"]).unwrap();
        assert!(cli.daemon && cli.quiet && cli.verbose == 2);
        assert_eq!((cli.user.as_deref(), cli.config.as_deref()), (Some("postgres"), Some("weir.ini")));
        assert!(Cli::try_parse_from(["weir", "-R", "weir.ini"]).unwrap().reboot);
        assert!(Cli::try_parse_from(["weir", "--version"]).unwrap().version);
        assert!(Cli::try_parse_from(["weir", "--nonsense"]).is_err());
    }

    #[test]
    fn subcommands() {
        let cli = Cli::try_parse_from(["weir", "check", "a.ini"]).unwrap();
        assert!(matches!(cli.command, Some(Command::Check { config }) if config == "a.ini"));
        let cli = Cli::try_parse_from(["weir", "dev", "--ephemeral", "--port", "7000"]).unwrap();
        let expected = DevArgs { ephemeral: true, port: 7000, data: None, listen: "127.0.0.1".to_owned() };
        assert!(matches!(cli.command, Some(Command::Dev(args)) if args == expected));
        assert!(Cli::try_parse_from(["weir", "dev", "--port", "0"]).is_err());
        for (name, words) in
            [("lab", vec!["run", "idle", "--quick", "--", "-x"]), ("lab", vec!["--help"]), ("advise", vec!["-h"])]
        {
            let cli = Cli::try_parse_from(["weir", name].iter().chain(&words)).unwrap();
            let Some(Command::Lab(handed) | Command::Advise(handed)) = cli.command else { panic!("{name}") };
            assert_eq!(handed.words, words);
        }
    }

    #[test]
    fn version_begins_with_our_own() {
        let text = version();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(concat!("Weir ", env!("CARGO_PKG_VERSION"))));
        assert!(lines.all(|line| !line.ends_with("unknown")), "{text}");
    }
}
