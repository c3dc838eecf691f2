//! LISTEN and NOTIFY (src/backend/commands/async.c at 18): what a transaction asks for counts with its commit, and a session is told between two
//! transactions, in the order of commits.

use std::collections::BTreeMap;

use weir_wire::BackendTag;

use super::Scene;
use super::backend::Backend;
use super::execute::bare;
use super::language::{Tag, literal};

/// What a transaction asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    Listen(String),
    Unlisten(String),
    UnlistenAll,
    Notify { channel: String, payload: String },
}

/// What was committed, in a cluster's order.
#[derive(Debug)]
pub struct Note {
    database: String,
    channel: String,
    payload: String,
    by: u32,
}

impl Ask {
    pub fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ')?;
        let name = |word: &str| word.trim().trim_matches('"').to_owned();
        Some(match word {
            "LISTEN" => Self::Listen(name(rest)),
            "UNLISTEN" if rest.trim() == "*" => Self::UnlistenAll,
            "UNLISTEN" => Self::Unlisten(name(rest)),
            "NOTIFY" => {
                let (channel, payload) = rest.split_once(',').unwrap_or((rest, "''"));
                Self::Notify { channel: name(channel), payload: literal(payload) }
            }
            _ => return None,
        })
    }

    pub fn done(&self) -> &'static str {
        match self {
            Self::Listen(_) => "LISTEN",
            Self::Unlisten(_) | Self::UnlistenAll => "UNLISTEN",
            Self::Notify { .. } => "NOTIFY",
        }
    }
}

/// A session's channels, each with the first note of the cluster that is told on it.
pub type Channels = BTreeMap<String, usize>;

impl Backend {
    pub fn listens(&self) -> bool {
        !self.channels.is_empty()
    }

    /// Who asks for it in this transaction.
    pub(super) fn asks(&mut self, tag: Option<Tag>, ask: Ask) {
        self.asks.push((tag, ask));
    }

    /// The transaction is committed.
    pub(super) fn commit_notes(&mut self, scene: &mut Scene) {
        let asks = std::mem::take(&mut self.asks);
        let next = scene.cluster.notes.len();
        let place = (self.cluster, self.database.as_str());
        for (tag, ask) in &asks {
            match ask {
                Ask::Listen(channel) => {
                    self.channels.entry(channel.clone()).or_insert(next);
                    scene.checks.listens(*tag, place, channel);
                }
                Ask::Unlisten(channel) => {
                    self.channels.remove(channel);
                    scene.checks.listens_no_more(*tag, Some(channel));
                }
                Ask::UnlistenAll => {
                    self.channels.clear();
                    scene.checks.listens_no_more(*tag, None);
                }
                Ask::Notify { .. } => {}
            }
        }
        for (_, ask) in asks {
            if let Ask::Notify { channel, payload } = ask {
                scene.checks.notifies(place, &channel, &payload);
                let (database, by) = (self.database.clone(), self.pid);
                scene.cluster.notes.push(Note { database, channel, payload, by });
                self.notified_itself = true;
            }
        }
    }

    /// Tells what has been notified meanwhile, where no transaction is open (`ProcessNotifyInterrupt`).
    pub(super) fn tell_notes(&mut self, scene: &Scene) {
        let (from, until) = (self.heard, scene.cluster.notes.len());
        self.heard = until;
        self.notified_itself = false;
        for (number, note) in scene.cluster.notes.iter().enumerate().take(until).skip(from) {
            let since = self.channels.get(&note.channel);
            if note.database == self.database && since.is_some_and(|since| *since <= number) {
                let mut body = note.by.to_be_bytes().to_vec();
                for text in [&note.channel, &note.payload] {
                    body.extend_from_slice(text.as_bytes());
                    body.push(0);
                }
                bare(&mut self.out, BackendTag::NotificationResponse, &body);
            }
        }
    }
}
