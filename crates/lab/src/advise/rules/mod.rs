//! The rules of advice, in one table: each a function from facts to at most one piece of advice, with its reason and source.
//!
//! Does not know how facts are found, nor how advice is shown.

pub mod connections;
pub mod console;
pub mod estimates;
pub mod memory;
pub mod pool;
pub mod pooler;
#[cfg(test)]
pub mod samples;
pub mod waits;

use serde::Serialize;

use super::facts::Facts;
use crate::experiment::Source;

/// From facts to advice; `None` where there is nothing to say, or not enough is known.
pub type Rule = fn(&Facts) -> Option<Advice>;

/// In the order of reading.
pub const RULES: &[(&str, Rule)] = &[
    ("limits-first", connections::limits_first),
    ("limits-now", waits::limits_now),
    ("pool-size", pool::size),
    ("max-connections", connections::max_connections),
    ("connections-near-limit", connections::near_limit),
    ("pooler-helps", pooler::helps),
    ("pooler-hurts", pooler::hurts),
    ("memory-of-active", memory::active),
    ("work-mem", memory::work_mem),
    ("huge-pages", memory::huge_pages),
    ("idle-connections", connections::idle),
    ("idle-in-transaction", waits::idle_in_transaction),
    ("database-paused", console::paused),
    ("clients-wait", console::clients_wait),
    ("waits-too-long", console::waits_too_long),
    ("servers-idle", console::servers_idle),
    ("session-mode", console::session_mode),
    ("max-client-conn", console::max_client_conn),
    ("pools-over-max-connections", console::pools_over_max_connections),
    ("pooler-busy", console::pooler_busy),
];

/// What all rules say.
pub fn all(facts: &Facts) -> Vec<Advice> {
    let named = |(name, rule): &(&'static str, Rule)| Some(Advice { rule: name, ..rule(facts)? });
    RULES.iter().filter_map(named).collect()
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Of the table of rules.
    pub rule: &'static str,
    /// What to do, or to know, in one sentence.
    pub what: String,
    /// What to set, if a value follows from the facts.
    pub set: Option<Setting>,
    /// Why, with the figures.
    pub reason: String,
    pub sources: Vec<Cited>,
    pub sure: Sure,
}

impl Advice {
    pub fn new(what: impl Into<String>, reason: impl Into<String>, sure: Sure) -> Advice {
        Advice { rule: "", what: what.into(), set: None, reason: reason.into(), sources: Vec::new(), sure }
    }

    pub fn set(mut self, name: &str, value: impl Into<String>) -> Advice {
        self.set = Some(Setting { name: name.to_owned(), value: value.into() });
        self
    }

    /// Each source once.
    pub fn from(mut self, sources: impl IntoIterator<Item = Cited>) -> Advice {
        for cited in sources {
            if !self.sources.contains(&cited) {
                self.sources.push(cited);
            }
        }
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    pub name: String,
    pub value: String,
}

/// How sure a piece of advice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sure {
    /// A run of the lab measured it.
    Measured,
    /// The same, but in one round, with the smallest sizes, or with doubts.
    Once,
    /// Seen while looking, for some seconds: other hours may differ.
    Seen,
    /// Computed from settings and sizes.
    Computed,
    /// Taken from others' measurements: a place to begin from.
    Start,
}

impl Sure {
    pub fn words(self) -> &'static str {
        match self {
            Sure::Measured => "measured by a run of the lab",
            Sure::Once => {
                "measured by a run of the lab, but once, quickly or doubtfully: measure it again before you rely on it"
            }
            Sure::Seen => "seen during a short look; other hours may differ",
            Sure::Computed => "computed from settings and sizes",
            Sure::Start => "a place to begin from, taken from others' measurements: measure your own",
        }
    }
}

/// Where a reason comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cited {
    Manual {
        chapter: &'static str,
        url: &'static str,
    },
    Article {
        authors: &'static str,
        title: &'static str,
        year: u16,
        url: &'static str,
    },
    Run {
        directory: String,
        experiment: String,
        date: String,
    },
    /// What this look saw.
    Look {
        at: String,
        seconds: f64,
    },
}

impl Cited {
    pub fn text(&self) -> String {
        match self {
            Cited::Manual { chapter, url } => format!("PostgreSQL's manual, {chapter}: {url}"),
            Cited::Article { authors, title, year, url } => format!("{authors}, \"{title}\", {year}: {url}"),
            Cited::Run { directory, experiment, date } => {
                format!(
                    "the run of {experiment} in {directory}{}",
                    if date.is_empty() { String::new() } else { format!(", {date}") }
                )
            }
            Cited::Look { at, seconds } => format!("{at}, looked at for {seconds:.1} s"),
        }
    }
}

impl From<Source> for Cited {
    fn from(source: Source) -> Cited {
        let Source { authors, title, year, url } = source;
        Cited::Article { authors, title, year, url }
    }
}

/// Chapters of the manual, by the titles that stay when their numbers change.
pub mod manual {
    use super::Cited;

    const fn chapter(chapter: &'static str, url: &'static str) -> Cited {
        Cited::Manual { chapter, url }
    }

    pub const MEMORY: Cited = chapter(
        "\"Resource Consumption: Memory\"",
        "https://www.postgresql.org/docs/current/runtime-config-resource.html",
    );
    pub const CONNECTIONS: Cited = chapter(
        "\"Connections and Authentication\"",
        "https://www.postgresql.org/docs/current/runtime-config-connection.html",
    );
    pub const CLIENTS: Cited =
        chapter("\"Client Connection Defaults\"", "https://www.postgresql.org/docs/current/runtime-config-client.html");
    pub const HUGE_PAGES: Cited =
        chapter("\"Linux Huge Pages\"", "https://www.postgresql.org/docs/current/kernel-resources.html");
    pub const ACTIVITY: Cited = chapter(
        "\"The Cumulative Statistics System\"",
        "https://www.postgresql.org/docs/current/monitoring-stats.html",
    );
    pub const RELEASE_14: Cited = chapter("\"Release 14\"", "https://www.postgresql.org/docs/release/14.0/");
}

/// The look at the server, as a source.
pub fn look(facts: &Facts) -> Option<Cited> {
    let server = facts.server.as_ref()?;
    Some(Cited::Look { at: server.url.clone(), seconds: server.seconds })
}

/// The look at the console, as a source.
pub fn console_look(facts: &Facts) -> Option<Cited> {
    let console = facts.console.as_ref()?;
    Some(Cited::Look { at: format!("the console {}", console.url), seconds: console.seconds })
}

pub fn run(facts: &Facts, experiment: &str, date: &str) -> Cited {
    let directory = facts.runs.directory.clone();
    Cited::Run { directory, experiment: experiment.to_owned(), date: date.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_advised_of_nothing() {
        assert_eq!(all(&Facts::default()), []);
    }

    #[test]
    fn every_rule_has_a_name_of_its_own() {
        let mut names: Vec<&str> = RULES.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len());
    }

    /// Whatever the facts, advice comes with its reason and its source.
    #[test]
    fn every_piece_of_advice_has_a_reason_and_a_source() {
        let mut seen = std::collections::BTreeSet::new();
        for facts in samples::all() {
            for advice in all(&facts) {
                assert!(!advice.sources.is_empty(), "{advice:?}");
                assert!(advice.what.ends_with('.') && advice.reason.ends_with('.'), "{advice:?}");
                assert!(!advice.reason.contains("NaN") && !advice.reason.contains("inf "), "{advice:?}");
                seen.insert(advice.rule);
            }
        }
        let silent: Vec<&str> = RULES.iter().map(|(name, _)| *name).filter(|name| !seen.contains(name)).collect();
        assert!(silent.is_empty(), "no sample makes these speak: {silent:?}");
    }
}
