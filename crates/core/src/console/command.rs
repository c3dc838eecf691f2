//! The console's language: what a line asks for. Knows nothing of how it is done.
//!
//! PgBouncer's grammar (src/admin.c of 1.25.2): one command a message, words without regard to case, an optional semicolon.

use std::sync::Arc;

use crate::contract::event::Change;
use crate::names::quoted;

/// A command the console understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Show(Show),
    Pause(Option<Arc<str>>),
    Resume(Option<Arc<str>>),
    Suspend,
    Disable(Arc<str>),
    Enable(Arc<str>),
    Reconnect(Option<Arc<str>>),
    Kill(Option<Arc<str>>),
    KillClient(u64),
    WaitClose(Option<Arc<str>>),
    Reload,
    Set(Change),
    /// What drivers set by themselves: it means nothing here.
    SetIgnored,
    Shutdown(crate::contract::event::Command),
    /// The rest of the line, as it is.
    ExplainRoute(Arc<str>),
    Empty,
}

/// What SHOW can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    ActiveSockets,
    Clients,
    Config,
    Databases,
    DnsHosts,
    DnsZones,
    Errors,
    Help,
    Histograms,
    Lists,
    Logins,
    Mem,
    Nodes,
    Peers,
    PeerPools,
    Pins,
    Pools,
    Routes,
    Servers,
    Sockets,
    State,
    Stats,
    StatsAverages,
    StatsTotals,
    Totals,
    Users,
    Version,
    Workers,
}

impl Show {
    const ALL: [(&'static str, Self); 28] = [
        ("active_sockets", Self::ActiveSockets),
        ("clients", Self::Clients),
        ("config", Self::Config),
        ("databases", Self::Databases),
        ("dns_hosts", Self::DnsHosts),
        ("dns_zones", Self::DnsZones),
        ("errors", Self::Errors),
        ("help", Self::Help),
        ("histograms", Self::Histograms),
        ("lists", Self::Lists),
        ("logins", Self::Logins),
        ("mem", Self::Mem),
        ("nodes", Self::Nodes),
        ("peers", Self::Peers),
        ("peer_pools", Self::PeerPools),
        ("pins", Self::Pins),
        ("pools", Self::Pools),
        ("routes", Self::Routes),
        ("servers", Self::Servers),
        ("sockets", Self::Sockets),
        ("state", Self::State),
        ("stats", Self::Stats),
        ("stats_averages", Self::StatsAverages),
        ("stats_totals", Self::StatsTotals),
        ("totals", Self::Totals),
        ("users", Self::Users),
        ("version", Self::Version),
        ("workers", Self::Workers),
    ];

    /// There is a row for each of many connections: they are told in portions, as they come.
    pub(super) fn has_portions(self) -> bool {
        matches!(self, Self::Clients | Self::Servers | Self::Sockets | Self::ActiveSockets | Self::Pins)
    }
}

/// PgBouncer's words that we know and cannot do yet.
const LATER: [&str; 1] = ["fds"];

/// The longest command line that is read.
pub(super) const COMMAND_BYTES_MAX: usize = 8 * 1024;

impl Command {
    /// What the line asks for, or why it cannot be understood.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        if let Some(query) = behind(line, "explain").and_then(|rest| behind(rest, "route")) {
            return explain_route(query);
        }
        let invalid = || format!("invalid command '{}', use SHOW HELP;", line.trim());
        let words = words(line).ok_or_else(invalid)?;
        let (verb, argument) = match words.as_slice() {
            [] => return Ok(Self::Empty),
            [verb] => (verb.to_ascii_lowercase(), None),
            [verb, argument] => (verb.to_ascii_lowercase(), Some(&**argument)),
            [set, key, is, value]
                if set.eq_ignore_ascii_case("set") && (is == "=" || is.eq_ignore_ascii_case("to")) =>
            {
                return Ok(self::set(key, value));
            }
            _ => return Err(invalid()),
        };
        let name = || argument.map(Into::into);
        let needed = || name().ok_or_else(|| format!("{} needs a database", verb.to_ascii_uppercase()));
        match verb.as_str() {
            "show" | "select" => show(argument),
            "pause" => Ok(Self::Pause(name())),
            "resume" => Ok(Self::Resume(name())),
            "suspend" if argument.is_none() => Ok(Self::Suspend),
            "disable" => needed().map(Self::Disable),
            "enable" => needed().map(Self::Enable),
            "reconnect" => Ok(Self::Reconnect(name())),
            "kill" => Ok(Self::Kill(name())),
            "kill_client" => argument.and_then(|number| number.parse().ok()).map(Self::KillClient).ok_or_else(|| {
                "invalid client pointer supplied: KILL_CLIENT takes the id that SHOW CLIENTS has".to_owned()
            }),
            "wait_close" => Ok(Self::WaitClose(name())),
            "reload" if argument.is_none() => Ok(Self::Reload),
            "shutdown" => shutdown(argument).map(Self::Shutdown),
            later if LATER.contains(&later) => Err(format!("the command {} has not come yet", later.to_uppercase())),
            _ => Err(invalid()),
        }
    }
}

/// What follows that word.
fn behind<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let line = line.trim_start();
    let (first, rest) = line.split_at(line.find(|c: char| c.is_ascii_whitespace() || c == ';').unwrap_or(line.len()));
    first.eq_ignore_ascii_case(word).then_some(rest)
}

fn explain_route(query: &str) -> Result<Command, String> {
    if query.bytes().all(|byte| byte == b';' || byte.is_ascii_whitespace()) {
        return Err("EXPLAIN ROUTE needs a query".to_owned());
    }
    Ok(Command::ExplainRoute(query.trim().into()))
}

/// The words of a line, with what is in quotes as one and `=` by itself; `None` where a quote or anything behind a semicolon is left.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut rest) = (Vec::new(), line.trim_start());
    while let Some(first) = rest.chars().next() {
        let word = match first {
            ';' => return rest.bytes().all(|byte| byte == b';' || byte.is_ascii_whitespace()).then_some(words),
            '=' => {
                rest = &rest[1..];
                "=".to_owned()
            }
            '"' | '\'' => {
                let (word, behind) = quoted(&rest[1..], first)?;
                rest = behind;
                word
            }
            _ => {
                let ends = |c: char| c.is_ascii_whitespace() || matches!(c, ';' | '=' | '"' | '\'');
                let (word, behind) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
                rest = behind;
                word.to_owned()
            }
        };
        words.push(word);
        rest = rest.trim_start();
    }
    Some(words)
}

/// What drivers set as soon as they are connected (`fake_param_list`).
const IGNORED: [&str; 5] =
    ["client_encoding", "default_transaction_isolation", "standard_conforming_strings", "datestyle", "timezone"];

fn set(key: &str, value: &str) -> Command {
    if IGNORED.iter().any(|ignored| key.eq_ignore_ascii_case(ignored)) {
        return Command::SetIgnored;
    }
    Command::Set(Change { key: key.to_owned(), value: value.to_owned() })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_pgbouncer_reads_them() {
        assert_eq!(Command::parse("show pools;"), Ok(Command::Show(Show::Pools)));
        assert_eq!(Command::parse("  SELECT Version "), Ok(Command::Show(Show::Version)));
        assert_eq!(Command::parse("PAUSE"), Ok(Command::Pause(None)));
        assert_eq!(Command::parse("pause \"my \"\"db\"\"\""), Ok(Command::Pause(Some("my \"db\"".into()))));
        assert_eq!(Command::parse("pause my db"), Err("invalid command 'pause my db', use SHOW HELP;".into()));
        assert_eq!(Command::parse("kill app;"), Ok(Command::Kill(Some("app".into()))));
        assert_eq!(Command::parse(";"), Ok(Command::Empty));
        assert!(Command::parse("disable").is_err());
        assert!(Command::parse("SHOW FDS").unwrap_err().contains("has not come yet"));
        for line in
            ["drop table", "pause 'a", "pause a; resume a", "set a", "set a b", "set a = b c", "set = a", "reload ="]
        {
            assert!(Command::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_is_explained_is_the_rest_of_the_line() {
        let explain = |query: &str| Ok(Command::ExplainRoute(query.into()));
        assert_eq!(Command::parse("EXPLAIN ROUTE select ';''\"' = 1; x"), explain("select ';''\"' = 1; x"));
        assert_eq!(Command::parse(" explain\n Route\tapp é 'a "), explain("app é 'a"));
        for line in ["explain", "explain routes", "explain select 1", "explainroute select 1"] {
            assert!(Command::parse(line).unwrap_err().contains("invalid command"), "{line}");
        }
        assert_eq!(Command::parse("explain route ; "), Err("EXPLAIN ROUTE needs a query".to_owned()));
    }

    #[test]
    fn a_setting_is_a_word_or_a_string() {
        for (line, key, value) in [
            ("set pool_mode=session;", "pool_mode", "session"),
            ("SET pool_mode TO 'session'", "pool_mode", "session"),
            ("set logfile='/a b''c' ;", "logfile", "/a b'c"),
            ("set \"auth_user\" = ''", "auth_user", ""),
        ] {
            let change = Change { key: key.into(), value: value.into() };
            assert_eq!(Command::parse(line), Ok(Command::Set(change)), "{line}");
        }
        assert_eq!(Command::parse("set DateStyle to 'ISO'"), Ok(Command::SetIgnored));
    }
}
