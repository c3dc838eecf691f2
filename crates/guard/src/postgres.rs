//! A PostgreSQL that answers from memory: enough of one for the transactions of [`crate::kinds`].

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use weir_wire::startup::Startup;
use weir_wire::{FrontendTag, HEADER_LEN, Header, TransactionStatus, frontend, write};

use crate::messages;

/// One backend: takes bytes, gives bytes.
#[derive(Debug, Default)]
pub struct Backend {
    received: Vec<u8>,
    started: bool,
    in_transaction: bool,
}

impl Backend {
    /// Answers what has come whole.
    pub fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.received.extend_from_slice(bytes);
        while let Some(used) = self.step(out) {
            self.received.drain(..used);
        }
    }

    fn step(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        if !self.started {
            return self.start(out);
        }
        let header = Header::parse(self.received.first_chunk::<HEADER_LEN>()?);
        let total = HEADER_LEN + header.body_len? as usize;
        let body = self.received.get(HEADER_LEN..total)?.to_vec();
        self.answer(FrontendTag::from_byte(header.tag)?, &body, out);
        Some(total)
    }

    fn start(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        let length = u32::from_be_bytes(*self.received.first_chunk::<4>()?) as usize;
        let packet = self.received.get(4..length)?;
        match Startup::parse(packet) {
            Ok(Startup::Session { .. }) => {
                self.started = true;
                write::authentication_ok(out);
                for (name, value) in [
                    ("application_name", ""),
                    ("client_encoding", "UTF8"),
                    ("DateStyle", "ISO, MDY"),
                    ("integer_datetimes", "on"),
                    ("server_encoding", "UTF8"),
                    ("server_version", "18.0"),
                    ("standard_conforming_strings", "on"),
                    ("TimeZone", "UTC"),
                ] {
                    write::parameter_status(out, name, value.as_bytes());
                }
                write::backend_key(out, 1, &[1, 2, 3, 4]);
                write::ready(out, TransactionStatus::Idle);
            }
            // Neither TLS nor GSS here ("protocol-flow-ssl").
            _ => out.push(b'N'),
        }
        Some(length)
    }

    fn answer(&mut self, tag: FrontendTag, body: &[u8], out: &mut Vec<u8>) {
        match tag {
            FrontendTag::Query => {
                let text = frontend::query(body).map(String::from_utf8_lossy).unwrap_or_default().into_owned();
                self.simple(&text, out);
                self.ready(out);
            }
            FrontendTag::Parse => write::parse_complete(out),
            FrontendTag::Bind => write::bind_complete(out),
            FrontendTag::Close => write::close_complete(out),
            FrontendTag::Describe => {
                if body.first() == Some(&b'S') {
                    write::no_parameters(out);
                }
                messages::row_description(out);
            }
            FrontendTag::Execute => {
                messages::row(out, "12345");
                write::command_complete(out, "SELECT 1");
            }
            FrontendTag::Sync => self.ready(out),
            _ => {}
        }
    }

    fn simple(&mut self, text: &str, out: &mut Vec<u8>) {
        match text {
            "BEGIN" | "COMMIT" => {
                self.in_transaction = text == "BEGIN";
                return write::command_complete(out, text);
            }
            _ => {}
        }
        let setting = text.split_once("set_config(E'application_name',E'");
        if let Some((value, _)) = setting.and_then(|(_, rest)| rest.split_once('\'')) {
            write::parameter_status(out, "application_name", value.as_bytes());
        }
        if text.contains("pg_catalog.pg_proc") {
            return code(out);
        }
        messages::row_description(out);
        let rows = text.strip_prefix("rows ").and_then(|count| count.parse().ok()).unwrap_or(1);
        for _ in 0..rows {
            messages::row(out, "12345");
        }
        write::command_complete(out, &format!("SELECT {rows}"));
    }

    fn ready(&self, out: &mut Vec<u8>) {
        write::ready(out, if self.in_transaction { TransactionStatus::InTransaction } else { TransactionStatus::Idle });
    }
}

/// The database has a few functions that leave something in a session. It tells of them in Base64.
fn code(out: &mut Vec<u8>) {
    let columns = [("name", write::ColumnType::Text), ("text", write::ColumnType::Text)];
    write::row_description(out, &columns, false);
    for name in ["acquire", "audit", "lock_account", "set_tenant"] {
        let row = [name, "begin perform pg_advisory_lock(1); end"].map(|value| BASE64_STANDARD.encode(value));
        write::data_row(out, row.iter().map(|value| Some(value.as_bytes())));
    }
    write::command_complete(out, "SELECT 4");
}
