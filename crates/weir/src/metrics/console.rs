//! A client of the console, on a connection that never leaves the process.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use weir_wire::backend::{ErrorFields, row_values};
use weir_wire::{BackendTag, HEADER_LEN, Header, ProtocolVersion, write};

use crate::driver::Commander;

/// A worker that has not answered by then hangs.
const PATIENCE: Duration = Duration::from_secs(5);
/// No message of the console's is as long.
const MESSAGE_BYTES_MAX: u32 = 1024 * 1024;

/// Rows by the names of their columns.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
}

impl Table {
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(String::as_str)
    }

    /// Each row's value in that column; none where the table has no such column.
    pub fn column(&self, name: &str) -> Option<impl Iterator<Item = &str>> {
        let place = self.columns.iter().position(|column| column == name)?;
        Some(self.rows.iter().map(move |row| row.get(place).and_then(Option::as_deref).unwrap_or_default()))
    }

    #[cfg(test)]
    pub fn of(columns: &[&str], rows: &[&[&str]]) -> Self {
        let row = |row: &&[&str]| row.iter().map(|cell| Some((*cell).to_owned())).collect();
        Self { columns: columns.iter().map(|&name| name.to_owned()).collect(), rows: rows.iter().map(row).collect() }
    }
}

/// Connected when it is first asked, and again where its connection has ended.
#[derive(Debug)]
pub struct Console {
    way_in: Commander,
    stream: Option<UnixStream>,
}

impl Console {
    pub fn new(way_in: Commander) -> Self {
        Self { way_in, stream: None }
    }

    /// `SHOW` of that.
    pub fn show(&mut self, what: &str) -> Result<Table, String> {
        if self.stream.is_some() {
            let begun = Instant::now();
            let shown = self.ask(what);
            // One that was there before may have been closed meanwhile: by KILL_CLIENT, or `client_idle_timeout`. Who says nothing says nothing to
            // another one either.
            if shown.is_ok() || begun.elapsed() >= PATIENCE {
                self.stream = self.stream.take().filter(|_| shown.is_ok());
                return shown;
            }
        }
        self.stream = None;
        let shown = self.connect().and_then(|()| self.ask(what));
        if shown.is_err() {
            // What it would answer next is not known.
            self.stream = None;
        }
        shown
    }

    /// As PgBouncer's administrators come in: the process's own user, over a Unix socket (`admin_pre_login`, src/admin.c of 1.25.2).
    fn connect(&mut self) -> Result<(), String> {
        let stream = self.way_in.connect().map_err(|error| error.to_string())?;
        let timeout = Some(PATIENCE);
        stream.set_read_timeout(timeout).and(stream.set_write_timeout(timeout)).map_err(|error| error.to_string())?;
        self.stream = Some(stream);
        let parameters = [("user", "pgbouncer"), ("database", "pgbouncer")];
        self.send(|out| write::startup(out, ProtocolVersion::V3_0, &parameters))?;
        self.answers(|_, _| Ok(()))
    }

    fn ask(&mut self, what: &str) -> Result<Table, String> {
        self.send(|out| write::query(out, format!("SHOW {what}").as_bytes()))?;
        let mut table = Table::default();
        self.answers(|tag, body| {
            match BackendTag::from_byte(tag) {
                Some(BackendTag::RowDescription) => table.columns = names(body)?,
                Some(BackendTag::DataRow) => {
                    let values = row_values(body).map_err(|error| error.to_string())?;
                    let text = |value: Option<&[u8]>| value.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                    table.rows.push(values.into_iter().map(text).collect());
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(table)
    }

    fn send(&mut self, message: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
        let mut bytes = Vec::new();
        message(&mut bytes);
        let stream = self.stream.as_mut().ok_or("not connected")?;
        stream.write_all(&bytes).map_err(|error| error.to_string())
    }

    /// Hands in each message up to ReadyForQuery. An error of the console's is one here.
    fn answers(&mut self, mut hear: impl FnMut(u8, &[u8]) -> Result<(), String>) -> Result<(), String> {
        let stream = self.stream.as_mut().ok_or("not connected")?;
        let mut failure = None;
        loop {
            let mut header = [0; HEADER_LEN];
            stream.read_exact(&mut header).map_err(|error| failure.clone().unwrap_or(error.to_string()))?;
            let Header { tag, body_len } = Header::parse(&header);
            let length = body_len.filter(|length| *length <= MESSAGE_BYTES_MAX).ok_or("a message without a length")?;
            let mut body = vec![0; length as usize];
            stream.read_exact(&mut body).map_err(|error| error.to_string())?;
            match BackendTag::from_byte(tag) {
                Some(BackendTag::ReadyForQuery) => return failure.map_or(Ok(()), Err),
                Some(BackendTag::ErrorResponse) => {
                    let text =
                        ErrorFields::parse(&body).map(|fields| String::from_utf8_lossy(fields.message).into_owned());
                    failure = Some(text.unwrap_or_default());
                }
                _ => hear(tag, &body)?,
            }
        }
    }
}

/// Of a RowDescription: a count, and for each a name and 18 bytes more.
fn names(body: &[u8]) -> Result<Vec<String>, String> {
    const BEHIND_NAME: usize = 18;
    let mut rest = body.get(2..).unwrap_or_default();
    let mut names = Vec::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == 0).ok_or("a column without a name")?;
        names.push(String::from_utf8_lossy(&rest[..end]).into_owned());
        rest = rest.get(end + 1 + BEHIND_NAME..).ok_or("half a column")?;
    }
    Ok(names)
}
