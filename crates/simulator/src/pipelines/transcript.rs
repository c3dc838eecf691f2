//! What came back for a pipeline, as lines that can be compared.
//!
//! Left out, since it may differ without harm: notices; the object ids of tables and their columns in a RowDescription
//! (the two databases have tables of their own); fields of an error but severity, SQLSTATE and message, and in the message
//! the name of a prepared statement (a pooler may have another for it); when within a batch ParameterStatus comes (its
//! values count at each ReadyForQuery).

use std::collections::BTreeMap;

use weir_wire::backend::{self, ErrorFields};
use weir_wire::{BackendTag, TransactionStatus};

use super::steps::END_MARKS;

/// The replies of one session, gathered message by message.
#[derive(Debug, Default)]
pub struct Transcript {
    pub lines: Vec<String>,
    /// What ParameterStatus said since the session began.
    told: BTreeMap<String, String>,
    /// That as of the last ReadyForQuery.
    settled: BTreeMap<String, String>,
    pub status: Option<TransactionStatus>,
    /// CloseComplete in a row.
    closes: u64,
    pub ended: bool,
    /// The session can answer no more.
    pub broken: bool,
    pub messages: u64,
}

impl Transcript {
    /// Takes the lines of a pipeline out; what the session was told stays.
    pub fn take(&mut self) -> Vec<String> {
        self.ended = false;
        std::mem::take(&mut self.lines)
    }

    pub fn take_in(&mut self, tag: u8, body: &[u8]) {
        self.messages += 1;
        let closes = std::mem::take(&mut self.closes);
        let line = match BackendTag::from_byte(tag) {
            // These may come anywhere, between CloseCompletes in a row too.
            Some(BackendTag::ParameterStatus) => {
                self.closes = closes;
                return self.parameter(body);
            }
            Some(BackendTag::NoticeResponse) => {
                self.closes = closes;
                return;
            }
            Some(BackendTag::ReadyForQuery) if closes >= END_MARKS => {
                self.lines.truncate(self.lines.len() - END_MARKS as usize);
                self.ended = true;
                self.ready(body)
            }
            Some(BackendTag::CloseComplete) => {
                self.closes = closes + 1;
                "CloseComplete".to_owned()
            }
            Some(BackendTag::ReadyForQuery) => self.ready(body),
            Some(BackendTag::ErrorResponse) => error(body),
            Some(BackendTag::DataRow) => row(body),
            Some(BackendTag::RowDescription) => columns(body),
            Some(BackendTag::ParameterDescription) => types(body),
            Some(BackendTag::CommandComplete) => {
                format!("CommandComplete {}", lossy(backend::command_tag(body).unwrap_or_default()))
            }
            Some(BackendTag::FunctionCallResponse) => format!("FunctionCallResponse {:?}", lossy(body)),
            Some(BackendTag::CopyData) => format!("CopyData {:?}", lossy(body)),
            Some(kind) => format!("{kind:?}"),
            None => format!("message {:?}", tag as char),
        };
        self.lines.push(line);
    }

    pub fn closed(&mut self, how: &str) {
        (self.ended, self.broken) = (true, true);
        self.lines.push(how.to_owned());
    }

    fn ready(&mut self, body: &[u8]) -> String {
        self.status = backend::ready(body).ok();
        let mut line = format!("ReadyForQuery {}", lossy(body));
        for (name, value) in &self.told {
            if self.settled.get(name) != Some(value) {
                line += &format!(" {name}={value:?}");
            }
        }
        self.settled.clone_from(&self.told);
        line
    }

    fn parameter(&mut self, body: &[u8]) {
        match backend::parameter_status(body) {
            Ok((name, value)) => drop(self.told.insert(name.to_owned(), lossy(value))),
            Err(malformed) => self.lines.push(malformed.to_string()),
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn error(body: &[u8]) -> String {
    let Ok(fields) = ErrorFields::parse(body) else { return "ErrorResponse malformed".to_owned() };
    format!("{} {} {}", lossy(fields.severity), lossy(fields.code), without_statement_name(&lossy(fields.message)))
}

fn without_statement_name(message: &str) -> String {
    let (before, rest) = match message.split_once("prepared statement \"") {
        Some((before, rest)) => (before, rest.split_once('"').map_or("", |(_, rest)| rest)),
        None => return message.to_owned(),
    };
    format!("{before}prepared statement{rest}")
}

/// Reads big-endian numbers and texts; what is missing is zero, and shows as a difference.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self, len: usize) -> u32 {
        self.bytes(len).iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
    }

    fn text(&mut self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let text = lossy(self.bytes(end));
        self.bytes(1);
        text
    }
}

fn row(body: &[u8]) -> String {
    let mut fields = Fields(body);
    let mut line = "DataRow".to_owned();
    for _ in 0..fields.number(2) {
        match fields.number(4) {
            u32::MAX => line += " null",
            length => line += &format!(" {:?}", lossy(fields.bytes(length as usize))),
        }
    }
    line
}

fn columns(body: &[u8]) -> String {
    let mut fields = Fields(body);
    let mut line = "RowDescription".to_owned();
    for _ in 0..fields.number(2) {
        let name = fields.text();
        fields.bytes(6);
        let (oid, size, modifier, format) = (fields.number(4), fields.number(2), fields.number(4), fields.number(2));
        line += &format!(" {name}:{oid}/{size}/{modifier}/{format}");
    }
    line
}

fn types(body: &[u8]) -> String {
    let mut fields = Fields(body);
    let count = fields.number(2);
    let types: Vec<u32> = (0..count).map(|_| fields.number(4)).collect();
    format!("ParameterDescription {types:?}")
}
