//! What a client sends, message by message: how it is written, and how a report shows it.

use std::fmt;

use weir_wire::{FrontendTag, write};

/// The text of a statement. `{n}` in it stands for the episode, so that a replay meets servers that do not know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    pub sql: String,
    pub parameters: u16,
    /// `int4` (23) and the like, as Parse declares them; mostly none.
    pub types: Vec<u32>,
}

impl Text {
    pub fn new(sql: impl Into<String>, parameters: u16) -> Self {
        Self { sql: sql.into(), parameters, types: Vec::new() }
    }

    pub fn begins(&self) -> bool {
        self.sql == "begin"
    }

    /// Up to the transaction's end.
    pub fn sets_locally(&self) -> bool {
        self.sql.starts_with("set local ") || self.sql.ends_with(", true)")
    }

    fn render(&self, episode: u64) -> String {
        self.sql.replace("{n}", &format!("/*{episode}*/"))
    }
}

/// Statement or portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Statement,
    Portal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Parse {
        name: &'static str,
        text: Text,
    },
    Bind {
        portal: &'static str,
        statement: &'static str,
        values: Vec<String>,
    },
    Describe {
        kind: Kind,
        name: &'static str,
    },
    Execute {
        portal: &'static str,
        rows_max: u32,
    },
    Close {
        kind: Kind,
        name: &'static str,
    },
    Flush,
    Sync,
    Query(Text),
    /// By its number, with values as texts.
    Call {
        function: u32,
        values: Vec<&'static str>,
    },
    CopyData(String),
    CopyDone,
    CopyFail,
}

/// How PostgreSQL's transaction stands for what comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Batch {
    Ended,
    Open,
    /// Behind a simple query that no Sync was in front of, PostgreSQL 18.6 answers a Sync and ends nothing: all is lost with the next error.
    Dormant,
}

/// With a Sync before each simple query or function call that follows messages of the extended protocol, but for those that `stays` lets pass. Behind these
/// a Parse has PostgreSQL take its transaction up again before a Sync.
pub fn synced(steps: Vec<Step>, mut stays: impl FnMut(&Step) -> bool) -> Vec<Step> {
    let mut batch = Batch::Ended;
    let mut synced = Vec::with_capacity(steps.len());
    let takes_up = || Step::Parse { name: "", text: Text::new("", 0) };
    for step in steps {
        match &step {
            Step::Query(_) | Step::Call { .. } => {
                let copies = matches!(&step, Step::Query(text) if text.sql.ends_with("from stdin"));
                if copies && batch == Batch::Dormant {
                    synced.push(takes_up());
                    batch = Batch::Open;
                }
                if batch == Batch::Open && (copies || !stays(&step)) {
                    synced.push(Step::Sync);
                    batch = Batch::Ended;
                }
                if batch != Batch::Ended {
                    batch = Batch::Dormant;
                }
            }
            Step::Sync => {
                if batch == Batch::Dormant {
                    synced.push(takes_up());
                }
                batch = Batch::Ended;
            }
            Step::CopyData(_) | Step::CopyDone | Step::CopyFail => {}
            Step::Flush | Step::Close { .. } if batch == Batch::Dormant => {}
            _ => batch = Batch::Open,
        }
        synced.push(step);
    }
    if batch == Batch::Dormant {
        synced.push(takes_up());
    }
    synced
}

/// Messages in a row at the end of each pipeline; no pipeline has as many in a row elsewhere.
pub const END_MARKS: u64 = 8;

/// Ends each pipeline: portals that are not there are closed, which PostgreSQL answers in any state of a transaction, and which
/// leaves all as it is. (A simple query would take the unnamed statement away that the next client must not meet.)
pub fn end_mark(out: &mut Vec<u8>) {
    (0..END_MARKS).for_each(|_| named(out, FrontendTag::Close, Kind::Portal, "end"));
    write::sync(out);
}

impl Step {
    pub fn begins(&self) -> bool {
        matches!(self, Self::Query(text) if text.begins())
    }

    pub fn write(&self, out: &mut Vec<u8>, episode: u64) {
        match self {
            Self::Parse { name, text } => {
                let mut definition = text.render(episode).into_bytes();
                definition.push(0);
                definition.extend_from_slice(&(text.types.len() as u16).to_be_bytes());
                text.types.iter().for_each(|oid| definition.extend_from_slice(&oid.to_be_bytes()));
                write::parse(out, name.as_bytes(), &definition);
            }
            Self::Bind { portal, statement, values } => {
                let mut rest = vec![0, 0];
                rest.extend_from_slice(&(values.len() as u16).to_be_bytes());
                for value in values {
                    rest.extend_from_slice(&(value.len() as u32).to_be_bytes());
                    rest.extend_from_slice(value.as_bytes());
                }
                rest.extend_from_slice(&[0, 0]);
                write::bind_names(out, portal.as_bytes(), statement.as_bytes(), rest.len());
                out.extend_from_slice(&rest);
            }
            Self::Describe { kind, name } => named(out, FrontendTag::Describe, *kind, name),
            Self::Close { kind, name } => named(out, FrontendTag::Close, *kind, name),
            Self::Execute { portal, rows_max } => {
                let mut body = format!("{portal}\0").into_bytes();
                body.extend_from_slice(&rows_max.to_be_bytes());
                message(out, FrontendTag::Execute, &body);
            }
            Self::Flush => write::flush(out),
            Self::Sync => write::sync(out),
            Self::Query(text) => write::query(out, text.render(episode).as_bytes()),
            Self::Call { function, values } => {
                let mut body = function.to_be_bytes().to_vec();
                body.extend_from_slice(&[0, 0]);
                body.extend_from_slice(&(values.len() as u16).to_be_bytes());
                for value in values {
                    body.extend_from_slice(&(value.len() as u32).to_be_bytes());
                    body.extend_from_slice(value.as_bytes());
                }
                body.extend_from_slice(&[0, 0]);
                message(out, FrontendTag::FunctionCall, &body);
            }
            Self::CopyData(data) => message(out, FrontendTag::CopyData, data.as_bytes()),
            Self::CopyDone => message(out, FrontendTag::CopyDone, &[]),
            Self::CopyFail => write::copy_fail(out, b"changed my mind"),
        }
    }
}

fn message(out: &mut Vec<u8>, tag: FrontendTag, body: &[u8]) {
    write::frontend_header(out, tag, body.len());
    out.extend_from_slice(body);
}

fn named(out: &mut Vec<u8>, tag: FrontendTag, kind: Kind, name: &str) {
    let body = match kind {
        Kind::Statement => format!("S{name}\0"),
        Kind::Portal => format!("P{name}\0"),
    };
    message(out, tag, body.as_bytes());
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse { name, text } if text.types.is_empty() => write!(f, "Parse {name:?} {}", text.sql),
            Self::Parse { name, text } => write!(f, "Parse {name:?} {} {:?}", text.sql, text.types),
            Self::Bind { portal, statement, values } => write!(f, "Bind {portal:?} of {statement:?} {values:?}"),
            Self::Describe { kind, name } => write!(f, "Describe {kind:?} {name:?}"),
            Self::Close { kind, name } => write!(f, "Close {kind:?} {name:?}"),
            Self::Execute { portal, rows_max } => write!(f, "Execute {portal:?} {rows_max}"),
            Self::Query(text) => write!(f, "Query {}", text.sql),
            Self::Call { function, values } => write!(f, "Call {function} {values:?}"),
            Self::CopyData(data) => write!(f, "CopyData {data:?}"),
            Self::Flush | Self::Sync | Self::CopyDone | Self::CopyFail => write!(f, "{self:?}"),
        }
    }
}
