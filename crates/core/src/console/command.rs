//! The console's language: what a line asks for. Knows nothing of how it is done.
//!
//! PgBouncer's grammar (src/admin.c of 1.25.2): one command a message, words without regard to case, an optional semicolon.

use std::sync::Arc;

/// A command the console understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Show(Show),
    Pause(Option<Arc<str>>),
    Resume(Option<Arc<str>>),
    Disable(Arc<str>),
    Enable(Arc<str>),
    Reconnect(Option<Arc<str>>),
    Kill(Option<Arc<str>>),
    KillClient(u64),
    WaitClose(Option<Arc<str>>),
    Reload,
    Shutdown(crate::contract::event::Command),
    Empty,
}

/// What SHOW can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    Clients,
    Config,
    Databases,
    Help,
    Lists,
    Pins,
    Pools,
    Servers,
    State,
    Stats,
    StatsAverages,
    StatsTotals,
    Users,
    Version,
    Workers,
}

impl Show {
    const ALL: [(&'static str, Self); 15] = [
        ("clients", Self::Clients),
        ("config", Self::Config),
        ("databases", Self::Databases),
        ("help", Self::Help),
        ("lists", Self::Lists),
        ("pins", Self::Pins),
        ("pools", Self::Pools),
        ("servers", Self::Servers),
        ("state", Self::State),
        ("stats", Self::Stats),
        ("stats_averages", Self::StatsAverages),
        ("stats_totals", Self::StatsTotals),
        ("users", Self::Users),
        ("version", Self::Version),
        ("workers", Self::Workers),
    ];
}

/// PgBouncer's words that we know and cannot do yet.
const LATER: [&str; 11] = [
    "fds",
    "peers",
    "peer_pools",
    "sockets",
    "active_sockets",
    "totals",
    "mem",
    "dns_hosts",
    "dns_zones",
    "suspend",
    "set",
];

/// The longest command line that is read.
pub(super) const COMMAND_BYTES_MAX: usize = 8 * 1024;

impl Command {
    /// What the line asks for, or why it cannot be understood.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let line = line.trim().trim_end_matches(';').trim_end();
        let mut words = line.split_ascii_whitespace();
        let Some(verb) = words.next() else { return Ok(Self::Empty) };
        let argument = words.next();
        if words.next().is_some() && !verb.eq_ignore_ascii_case("set") {
            return Err(format!("invalid command '{line}', use SHOW HELP;"));
        }
        let name = || argument.map(unquote);
        let needed = || name().ok_or_else(|| format!("{} needs a database", verb.to_ascii_uppercase()));
        match verb.to_ascii_lowercase().as_str() {
            "show" | "select" => show(argument),
            "pause" => Ok(Self::Pause(name())),
            "resume" => Ok(Self::Resume(name())),
            "disable" => needed().map(Self::Disable),
            "enable" => needed().map(Self::Enable),
            "reconnect" => Ok(Self::Reconnect(name())),
            "kill" => Ok(Self::Kill(name())),
            "kill_client" => argument
                .and_then(|number| number.parse().ok())
                .map(Self::KillClient)
                .ok_or_else(|| "KILL_CLIENT needs the id of a client, as SHOW CLIENTS has it".to_owned()),
            "wait_close" => Ok(Self::WaitClose(name())),
            "reload" if argument.is_none() => Ok(Self::Reload),
            "shutdown" => shutdown(argument).map(Self::Shutdown),
            later if LATER.contains(&later) => Err(format!("the command {} has not come yet", later.to_uppercase())),
            _ => Err(format!("invalid command '{line}', use SHOW HELP;")),
        }
    }
}

fn show(what: Option<&str>) -> Result<Command, String> {
    let Some(what) = what else { return Ok(Command::Show(Show::Help)) };
    let what = what.to_ascii_lowercase();
    if let Some((_, show)) = Show::ALL.iter().find(|(word, _)| *word == what) {
        return Ok(Command::Show(*show));
    }
    if LATER.contains(&what.as_str()) {
        return Err(format!("SHOW {} has not come yet", what.to_uppercase()));
    }
    Err(format!("unsupported SHOW option '{what}', use SHOW HELP;"))
}

fn shutdown(how: Option<&str>) -> Result<crate::contract::event::Command, String> {
    use crate::contract::event::Command as Process;
    match how.map(str::to_ascii_lowercase).as_deref() {
        None => Ok(Process::ShutdownNow),
        Some("wait_for_servers") => Ok(Process::ShutdownWaitForServers),
        Some("wait_for_clients") => Ok(Process::ShutdownWaitForClients),
        Some(other) => Err(format!("unknown way to shut down: {other}")),
    }
}

/// A database's name, in double quotes or not.
fn unquote(name: &str) -> Arc<str> {
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\"").into(),
        None => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_pgbouncer_reads_them() {
        assert_eq!(Command::parse("show pools;"), Ok(Command::Show(Show::Pools)));
        assert_eq!(Command::parse("  SELECT Version "), Ok(Command::Show(Show::Version)));
        assert_eq!(Command::parse("PAUSE"), Ok(Command::Pause(None)));
        assert_eq!(Command::parse("pause \"my db\""), Err("invalid command 'pause \"my db\"', use SHOW HELP;".into()));
        assert_eq!(Command::parse("kill app;"), Ok(Command::Kill(Some("app".into()))));
        assert_eq!(Command::parse(";"), Ok(Command::Empty));
        assert!(Command::parse("disable").is_err());
        assert!(Command::parse("SHOW FDS").unwrap_err().contains("has not come yet"));
        assert!(Command::parse("drop table").is_err());
    }
}
