//! Many clients that log in and then say nothing.
//!
//! Knows just enough of the protocol to reach ReadyForQuery under trust; does not measure.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ErrorResponseBody, Message};
use postgres_protocol::message::frontend;

use crate::cluster::{DATABASE, USER};
use crate::interrupt::Interrupt;

const LOGIN_PATIENCE: Duration = Duration::from_secs(10);
/// A greeting is some hundred bytes; one that grows beyond this is not one.
const GREETING_BYTES_MAX: usize = 64 * 1024;

/// Opens that many sessions; they last until the sockets are dropped.
pub fn connect(port: u16, clients: usize, interrupt: &Interrupt) -> Result<Vec<TcpStream>> {
    let mut sessions = Vec::with_capacity(clients);
    for number in 1..=clients {
        interrupt.check()?;
        sessions.push(log_in(port).with_context(|| format!("idle client {number}"))?);
    }
    Ok(sessions)
}

fn log_in(port: u16) -> Result<TcpStream> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot connect")?;
    socket.set_read_timeout(Some(LOGIN_PATIENCE)).context("cannot set a timeout")?;
    let mut startup = BytesMut::new();
    frontend::startup_message([("user", USER), ("database", DATABASE)], &mut startup)
        .context("cannot write a startup message")?;
    socket.write_all(&startup).context("cannot send the startup message")?;
    let mut greeting = BytesMut::new();
    while !ready(&mut greeting)? {
        let mut chunk = [0; 4096];
        let count = socket.read(&mut chunk).context("no ReadyForQuery")?;
        if count == 0 || greeting.len() > GREETING_BYTES_MAX {
            bail!("the login ended after {count} bytes without ReadyForQuery");
        }
        greeting.extend_from_slice(&chunk[..count]);
    }
    Ok(socket)
}

/// Consumes whole messages; true once ReadyForQuery is among them.
fn ready(greeting: &mut BytesMut) -> Result<bool> {
    while let Some(message) = Message::parse(greeting).context("not PostgreSQL's protocol")? {
        match message {
            Message::ReadyForQuery(_) => return Ok(true),
            Message::ErrorResponse(error) => bail!("refused: {}", error_text(&error)),
            _ => {}
        }
    }
    Ok(false)
}

fn error_text(error: &ErrorResponseBody) -> String {
    // The human-readable message: "Error and Notice Message Fields" of the protocol chapter.
    let message = error.fields().find(|field| Ok(field.type_() == b'M'));
    let text = message.ok().flatten().map(|field| String::from_utf8_lossy(field.value_bytes()).into_owned());
    text.unwrap_or_else(|| "without a message".to_owned())
}
