//! All facts that can be had from what was named: a run, a server, a console; and what could not be known.
//!
//! Knows where facts come from; does not know what follows from them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::facts::{Facts, Machine, Server};
use super::here::{self, Usage};
use super::session::{PsqlSession, Session};
use super::statements::SHOW_VERSION;
use super::{console, runs, server};
use crate::experiments::words;
use crate::report::figures::number;
use weir_measure::ground::interrupt::Interrupt;
use weir_measure::ground::machine;
use weir_measure::journal::Role;
use weir_measure::load::psql::Psql;
use weir_measure::url::Url;

/// As poolers name the database of their console; Weir knows it by its own name, too.
const CONSOLE: &str = "pgbouncer";
const CONSOLES: [&str; 2] = [CONSOLE, "weir"];

/// What a user named.
#[derive(Debug)]
pub struct Wanted {
    pub from: Option<PathBuf>,
    pub url: Option<Url>,
    pub console: Option<Url>,
    pub cores: Option<f64>,
    pub memory_mib: Option<f64>,
    pub seconds: f64,
}

pub fn facts(wanted: &Wanted) -> Result<Facts> {
    let mut facts = Facts::default();
    let mut of_run = Machine::default();
    if let Some(directory) = &wanted.from {
        (facts.runs, of_run) = runs::read(directory)?;
    }
    if wanted.url.is_some() || wanted.console.is_some() {
        look(wanted, &mut facts)?;
    }
    if wanted.url.is_none() && wanted.console.is_none() {
        facts.machine = of_run;
    }
    for (given, known) in [(wanted.cores, &mut facts.machine.cores), (wanted.memory_mib, &mut facts.machine.memory_mib)]
    {
        if given.is_some() {
            *known = given;
            facts.machine.origin = "as given".to_owned();
        }
    }
    facts.unknown = unknown(&facts);
    Ok(facts)
}

/// The server is looked at between the console's two looks.
fn look(wanted: &Wanted, facts: &mut Facts) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let directory = tempfile::Builder::new().prefix("weir-advise-").tempdir().context("no temporary directory")?;
    let psql = Psql::find(directory.path(), &interrupt)?;
    let (server, console) = told_apart(wanted, &psql);
    let mut seen = None;
    let mut between = || {
        let began = Instant::now();
        match server {
            Some(url) => seen = Some(look_at_server(&psql, url, wanted.seconds)?),
            None => interrupt.sleep(Duration::from_secs_f64(wanted.seconds))?,
        }
        Ok(began.elapsed())
    };
    match console {
        Some(url) => {
            let session = PsqlSession::of_console(&psql, url);
            facts.console = Some(console::look(&session, &url.to_string(), &mut between)?);
        }
        None => drop(between()?),
    }
    if let Some((server, machine)) = seen {
        (facts.server, facts.machine) = (Some(server), machine);
    }
    Ok(())
}

/// The server and the console: one that answers as a console under `--url` is meant as one.
fn told_apart<'a>(wanted: &'a Wanted, psql: &Psql) -> (Option<&'a Url>, Option<&'a Url>) {
    let is_console = |url: &Url| {
        let database = url.get("dbname").unwrap_or_default();
        CONSOLES.contains(&database) && version_of_console(psql, url).is_some()
    };
    match (&wanted.url, &wanted.console) {
        (Some(url), None) if is_console(url) => (None, Some(url)),
        (url, console) => (url.as_ref(), console.as_ref()),
    }
}

fn look_at_server(psql: &Psql, url: &Url, seconds: f64) -> Result<(Server, Machine)> {
    let mut usage = None;
    let mut begin = |processes: &[i32], started| usage = Usage::now(processes, started);
    let look = server::look(&PsqlSession::of_server(psql, url), &url.to_string(), seconds, &mut begin)?;
    let here = usage.as_ref().map_or_else(machine::Machine::describe, Usage::machine);
    // Both are far below 2^53.
    #[expect(clippy::cast_precision_loss)]
    let (cores, memory_mib) = (here.cores as f64, here.memory_mib as f64);
    let percents = usage.and_then(|usage| usage.percents_since(cores));
    let mut server = look.server;
    let through =
        server.port.is_some_and(|port| port != url.port()) && url.host().is_some_and(|host| !host.starts_with('/'));
    if through && let Some(version) = version_of_console(psql, &url.with_database(CONSOLE)) {
        bail!(
            "--url: {url} is a pooler ({version}) before a server on port {}. Give the server's own URL to --url and the pooler's \
             console to --console",
            server.port.unwrap_or_default()
        );
    }
    if !here::runs_here(&look.processes, look.started) {
        return Ok((server, Machine::default()));
    }
    server.backend_mib = here::backend_memory(&look.backends);
    let (busy_percent, server_percent) = (percents.map(|(busy, _)| busy), percents.map(|(_, server)| server));
    let origin = "read on this machine, where the server runs".to_owned();
    let known = |value: f64| (value > 0.0).then_some(value);
    Ok((server, Machine { cores: known(cores), memory_mib: known(memory_mib), busy_percent, server_percent, origin }))
}

/// What a console answers that it is, if there is one that lets us in.
fn version_of_console(psql: &Psql, url: &Url) -> Option<String> {
    let tables = PsqlSession::of_console(psql, url).ask(&[SHOW_VERSION]).ok()?;
    Some(tables.first()?.first()?.text("version")?.to_owned())
}

fn unknown(facts: &Facts) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut say = |text: String| unknown.push(text);
    let missing: Vec<String> =
        [(facts.machine.cores, "cores (--cores)"), (facts.machine.memory_mib, "memory (--memory-gib)")]
            .iter()
            .filter(|(known, _)| known.is_none())
            .map(|(_, name)| (*name).to_owned())
            .collect();
    if !missing.is_empty() {
        let why = if facts.server.is_some() {
            "a server does not tell them, and its processes are not to be seen on this machine"
        } else {
            "nothing that was named tells them"
        };
        say(format!(
            "The {} of the server's machine: {why}. Rules that need them are left out.",
            words::list(&missing)
        ));
    }
    if let Some(server) = &facts.server {
        of_server(server, &mut say);
        if facts.machine.busy_percent.is_none() {
            say("How busy the server's processor is: run advise on the server's machine to see it.".to_owned());
        }
    } else if facts.console.is_some() {
        say("What the server behind the pooler is and does: give its own URL with --url.".to_owned());
    }
    let measured_memory =
        facts.runs.memory.is_some() || facts.server.as_ref().is_some_and(|server| server.backend_mib.is_some());
    if facts.server.is_some() && !measured_memory {
        say("What a connection takes of memory here: published ranges stand in for it; weir lab run memory measures it.".to_owned());
    }
    if facts.console.as_ref().is_some_and(|console| console.workers_permille.is_empty()) {
        say("How busy the pooler itself is: this console does not tell. A pooler of one thread is full at one core (top).".to_owned());
    }
    unknown.extend(no_peak(facts));
    unknown
}

/// Why no run tells how many connections are best.
fn no_peak(facts: &Facts) -> Option<String> {
    if facts.runs.peak_of_server().is_some() {
        return None;
    }
    let what = "How many connections give the best throughput here";
    let peaks = &facts.runs.peaks;
    if peaks.is_empty() {
        return Some(format!("{what}: no run was named that measured it; weir lab run saturation --script FILE does."));
    }
    if peaks.iter().any(|peak| peak.role == Role::Server) {
        return Some(format!("{what}: throughput still rose where the run ended; a run with more clients shows it."));
    }
    let mut names: Vec<String> = peaks.iter().map(|peak| peak.target.clone()).collect();
    names.sort_unstable();
    names.dedup();
    Some(format!(
        "{what}: whether PostgreSQL or a pooler answered the run ({}) is not known, and a pooler's clients are no server \
         connections; a run on the server itself tells.",
        words::list(&names)
    ))
}

fn of_server(server: &Server, say: &mut impl FnMut(String)) {
    let asked = server.url.parse::<Url>().ok().filter(|url| url.host().is_some_and(|host| !host.starts_with('/')));
    if let Some((url, port)) = asked.zip(server.port).filter(|(url, port)| url.port() != *port) {
        say(format!(
            "What stands before the server: it says that it listens on port {port}, and the URL has {}. A tunnel or a container's port \
             changes nothing here; behind a pooler of session mode the figures are those of the server, not of the pooler.",
            url.port()
        ));
    }
    if server.hidden > 0.0 {
        let open = server.most(|moment| moment.open);
        say(format!(
            "What {} of {} sessions do: this user may not see it; one that is a member of pg_read_all_stats may.",
            number(server.hidden),
            number(open)
        ));
    }
    if server.rates.transactions.is_none() {
        say("How many transactions there are per second: the server's counters stood still or were reset. Those that touch no table are \
             counted late from version 15 on."
            .to_owned());
    }
    if server.rates.sessions.is_none() {
        say("How many sessions begin per second: the server counts them from version 14 on.".to_owned());
    }
    if server.settings.huge_pages.as_deref() == Some("try") {
        say("Whether the shared buffers are in huge pages: huge_pages is try, and only version 17 and later say what came of it.".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::facts::{MeasuredPeak, Moment};

    #[test]
    fn what_is_not_known_is_said() {
        let facts = Facts { server: Some(Server::default()), ..Facts::default() };
        let text = unknown(&facts).join("\n");
        for part in [
            "cores (--cores) and memory (--memory-gib)",
            "weir lab run memory",
            "from version 14 on",
            "best throughput",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let mut facts = facts;
        facts.machine =
            Machine { cores: Some(8.0), memory_mib: Some(1.0), busy_percent: Some(1.0), ..Machine::default() };
        facts.runs.peaks = vec![MeasuredPeak { role: Role::Server, open: true, ..MeasuredPeak::default() }];
        let server = facts.server.as_mut().unwrap();
        (server.hidden, server.rates.sessions) = (2.0, Some(0.0));
        server.moments = vec![Moment { open: 9.0, ..Moment::default() }];
        let text = unknown(&facts).join("\n");
        assert!(!text.contains("--cores") && !text.contains("version 14") && !text.contains("processor"), "{text}");
        assert!(text.contains("What 2 of 9 sessions do") && text.contains("still rose where the run ended"), "{text}");
    }

    #[test]
    fn a_peak_of_what_may_be_a_pooler_is_said_to_be_one() {
        let mut facts = Facts::default();
        let peak = |target: &str| MeasuredPeak { target: target.to_owned(), ..MeasuredPeak::default() };
        facts.runs.peaks = vec![peak("shop"), peak("other"), peak("shop")];
        let said = unknown(&facts).join("\n");
        assert!(said.contains("a pooler answered the run (other and shop) is not known"), "{said}");
        facts.runs.peaks.push(MeasuredPeak { role: Role::Server, ..peak("direct") });
        assert!(!unknown(&facts).join("\n").contains("best throughput"));
    }
}
