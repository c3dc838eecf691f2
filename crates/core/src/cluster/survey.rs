//! What a worker asks of a cluster's catalogue, question by question, on a server that is idle.

use std::sync::Arc;

use weir_cluster::catalogue::{Answers, COLUMNS, FINGERPRINT, NAMESAKES, NODES, PLACEMENTS, Row, SCHEMAS};

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

/// What is asked behind that, where the fingerprint tells of a change.
const QUESTIONS: [&str; 5] = [NODES, PLACEMENTS, SCHEMAS, COLUMNS, NAMESAKES];

/// A session's own `search_path` may be its last client's: what counts is what it is reset to.
fn fingerprint() -> String {
    let path = "SELECT reset_val FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'search_path'";
    format!("SELECT ({FINGERPRINT}), ({path})")
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
    pub(crate) began: Time,
    /// For whom: the pool at the entry's endpoints.
    pub(crate) pool: Arc<PoolName>,
    /// Answers to the questions behind the first.
    answered: Vec<Vec<Row>>,
    asks_all: bool,
    fingerprint: Box<str>,
    /// What a session of that user has where nobody says otherwise.
    pub(crate) path: Box<str>,
    rows: Vec<Row>,
    bytes: usize,
}

impl Look {
    /// And what is asked first.
    pub(crate) fn begin(server: ServerId, pool: Arc<PoolName>, began: Time) -> (Self, String) {
        let (answered, rows) = (Vec::new(), Vec::new());
        let look = Self {
            server,
            began,
            pool,
            answered,
            asks_all: false,
            fingerprint: "".into(),
            path: "".into(),
            rows,
            bytes: 0,
        };
        (look, fingerprint())
    }

    /// `None`: the row cannot be read.
    pub(crate) fn row(&mut self, values: Option<&[Option<&[u8]>]>) {
        let text = |value: &Option<&[u8]>| value.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let row: Row = values.unwrap_or_default().iter().map(text).collect();
        let texts: usize = row.iter().flatten().map(String::len).sum();
        self.bytes += texts + row.len() * size_of::<Option<String>>() + size_of::<Row>();
        let is_more = !self.asks_all && !self.rows.is_empty();
        if self.bytes <= BYTES_MAX && !is_more {
            self.rows.push(row);
        }
    }

    /// That is answered. `known`: what was known before.
    pub(crate) fn answered(&mut self, known: Option<&Known>) -> Step {
        let rows = std::mem::take(&mut self.rows);
        if self.bytes > BYTES_MAX {
            return Step::Failed("the catalogue of the cluster is too large".to_owned());
        }
        if self.asks_all {
            self.answered.push(rows);
        } else if let Some(step) = self.fingerprint_answered(rows, known) {
            return step;
        }
        self.asks_all = true;
        match QUESTIONS.get(self.answered.len()) {
            Some(question) => Step::Ask((*question).to_owned()),
            None => self.read(),
        }
    }

    fn fingerprint_answered(&mut self, rows: Vec<Row>, known: Option<&Known>) -> Option<Step> {
        let mut values = rows.into_iter().next().unwrap_or_default().into_iter();
        let (Some(Some(fingerprint)), Some(Some(path))) = (values.next(), values.next()) else {
            return Some(Step::Failed("the catalogue of the cluster has no fingerprint".to_owned()));
        };
        (self.fingerprint, self.path) = (fingerprint.into(), path.into());
        known.is_some_and(|known| known.fingerprint == self.fingerprint).then_some(Step::Same)
    }

    fn read(&mut self) -> Step {
        let Ok([nodes, placements, schemas, columns, namesakes]) =
            <[_; 5]>::try_from(std::mem::take(&mut self.answered))
        else {
            return Step::Failed("the catalogue of the cluster has not been read".to_owned());
        };
        match (Answers { nodes, placements, schemas, columns, namesakes }).read() {
            Ok(topology) => Step::Learnt(Arc::new(Known::new(self.fingerprint.clone(), topology))),
            Err(text) => Step::Failed(text),
        }
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

/// When the catalogue is looked at for a pool's user.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// When to look again.
    pub(crate) due_at: Time,
    /// The last look failed.
    pub(crate) failed: bool,
}
