//! What a worker asks of a cluster's catalogue, question by question, on a server that is idle.

use std::sync::Arc;

use weir_cluster::catalogue::{Answers, FINGERPRINT, NODES, PLACEMENTS, Row, SCHEMAS};

use crate::cluster::Known;
use crate::id::ServerId;
use crate::names::PoolName;
use crate::time::{Duration, Time};
use crate::timers::Deadline;

/// How often a catalogue is looked at, while somebody uses it.
pub(crate) const EVERY: Duration = Duration::from_secs(5);
/// Where no server was idle, or the answer was an error.
pub(crate) const AGAIN: Duration = Duration::from_millis(200);
/// Values of one answer.
const BYTES_MAX: usize = 64 << 20;

/// What is asked, in this order; all but the first only where that tells of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    Fingerprint,
    Nodes,
    Placements,
    Schemas,
}

impl Question {
    /// A session's own `search_path` may be its last client's: what counts is what it is reset to.
    fn text(self) -> String {
        match self {
            Self::Fingerprint => format!(
                "SELECT ({FINGERPRINT}), (SELECT reset_val FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'search_path')"
            ),
            Self::Nodes => NODES.to_owned(),
            Self::Placements => PLACEMENTS.to_owned(),
            Self::Schemas => SCHEMAS.to_owned(),
        }
    }
}

/// What comes of an answer.
#[derive(Debug)]
pub(crate) enum Step {
    /// This is asked next.
    Ask(String),
    /// It is as it was.
    Same,
    Learnt(Arc<Known>),
    /// The answer is none.
    Failed(String),
}

/// One look at a catalogue.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) server: ServerId,
    /// For whom: the pool at the entry's endpoints.
    pub(crate) pool: Arc<PoolName>,
    question: Question,
    fingerprint: Box<str>,
    /// What a session of that user has where nobody says otherwise.
    pub(crate) path: Box<str>,
    rows: Vec<Row>,
    bytes: usize,
    answers: Answers,
}

impl Look {
    /// And what is asked first.
    pub(crate) fn begin(server: ServerId, pool: Arc<PoolName>) -> (Self, String) {
        let question = Question::Fingerprint;
        let look = Self {
            server,
            pool,
            question,
            fingerprint: "".into(),
            path: "".into(),
            rows: Vec::new(),
            bytes: 0,
            answers: Answers::default(),
        };
        (look, question.text())
    }

    /// `None`: the row cannot be read.
    pub(crate) fn row(&mut self, values: Option<&[Option<&[u8]>]>) {
        let text = |value: &Option<&[u8]>| value.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let row: Row = values.unwrap_or_default().iter().map(text).collect();
        self.bytes += row.iter().flatten().map(String::len).sum::<usize>() + size_of::<Row>();
        if self.bytes <= BYTES_MAX {
            self.rows.push(row);
        }
    }

    /// That is answered. `known`: what was known before.
    pub(crate) fn answered(&mut self, known: Option<&Known>) -> Step {
        let rows = std::mem::take(&mut self.rows);
        if self.bytes > BYTES_MAX {
            return Step::Failed("the catalogue of the cluster is too large".to_owned());
        }
        self.question = match self.question {
            Question::Fingerprint => {
                let mut first = rows.into_iter().next().unwrap_or_default().into_iter();
                let (Some(Some(fingerprint)), Some(Some(path))) = (first.next(), first.next()) else {
                    return Step::Failed("the catalogue of the cluster has no fingerprint".to_owned());
                };
                (self.fingerprint, self.path) = (fingerprint.into(), path.into());
                if known.is_some_and(|known| known.fingerprint == self.fingerprint) {
                    return Step::Same;
                }
                Question::Nodes
            }
            Question::Nodes => {
                self.answers.nodes = rows;
                Question::Placements
            }
            Question::Placements => {
                self.answers.placements = rows;
                Question::Schemas
            }
            Question::Schemas => {
                self.answers.schemas = rows;
                return match std::mem::take(&mut self.answers).read() {
                    Ok(topology) => Step::Learnt(Arc::new(Known::new(self.fingerprint.clone(), topology))),
                    Err(text) => Step::Failed(text),
                };
            }
        };
        Step::Ask(self.question.text())
    }
}

/// Of all clusters, one look after the other.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) deadline: Deadline,
    pub(crate) look: Option<Box<Look>>,
}

impl Survey {
    /// Whether that server is asked.
    pub(crate) fn asks(&self, server: ServerId) -> bool {
        self.look.as_ref().is_some_and(|look| look.server == server)
    }
}

/// What a pool knows for its user.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// `None`: nobody has asked yet, or the answer was an error.
    pub(crate) path: Option<Box<str>>,
    /// When to look again.
    pub(crate) due_at: Time,
    /// The last look failed.
    pub(crate) failed: bool,
}
