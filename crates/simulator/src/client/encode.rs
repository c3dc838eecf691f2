//! Frontend messages that only clients write; the pooler never makes them, so wire does not have them.

use weir_wire::write;
use weir_wire::{FrontendTag, HEADER_LEN, Header};

use crate::postgres::Belief;
use crate::postgres::language::Tag;

fn message(out: &mut Vec<u8>, tag: FrontendTag, body: &[u8]) {
    write::frontend_header(out, tag, body.len());
    out.extend_from_slice(body);
}

/// The longest body of these messages, the last of which may have been cut off.
pub fn longest(mut bytes: &[u8]) -> u32 {
    let mut longest = 0;
    while let Some(header) = bytes.first_chunk::<HEADER_LEN>() {
        let Some(length) = Header::parse(header).body_len else { break };
        longest = longest.max(length);
        bytes = bytes.get(HEADER_LEN + length as usize..).unwrap_or_default();
    }
    longest
}

/// Where the last of these messages ends that is there in whole.
pub fn ends(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(header) = bytes[at..].first_chunk::<HEADER_LEN>()
        && let Some(length) = Header::parse(header).body_len
        && at + HEADER_LEN + length as usize <= bytes.len()
    {
        at += HEADER_LEN + length as usize;
    }
    at
}

/// Parse without parameter types.
pub fn parse(out: &mut Vec<u8>, name: &str, text: &str) {
    let definition = [text.as_bytes(), &[0, 0, 0]].concat();
    write::parse(out, name.as_bytes(), &definition);
}

/// Bind whose only value, if the statement takes one, is the tag.
pub fn bind(out: &mut Vec<u8>, portal: &str, statement: &str, tag: Option<Tag>) {
    let tag = tag.map(|tag| tag.to_string());
    bind_texts(out, portal, statement, tag.as_deref().as_slice());
}

/// Bind with a second value, of a type that the table decides: it says what its client takes that type for. Returns where.
pub fn bind_typed(out: &mut Vec<u8>, portal: &str, statement: &str, tag: Tag) -> usize {
    bind_texts(out, portal, statement, &[&tag.to_string(), &Belief::default().text()]);
    // The formats of the result follow.
    out.len() - 2 - Belief::TEXT_LEN
}

fn bind_texts(out: &mut Vec<u8>, portal: &str, statement: &str, texts: &[&str]) {
    let mut values = vec![0, 0];
    values.extend_from_slice(&(texts.len() as u16).to_be_bytes());
    for text in texts {
        values.extend_from_slice(&(text.len() as u32).to_be_bytes());
        values.extend_from_slice(text.as_bytes());
    }
    values.extend_from_slice(&[0, 0]);
    write::bind_names(out, portal.as_bytes(), statement.as_bytes(), values.len());
    out.extend_from_slice(&values);
}

pub fn describe_portal(out: &mut Vec<u8>, name: &str) {
    message(out, FrontendTag::Describe, format!("P{name}\0").as_bytes());
}

pub fn close_portal(out: &mut Vec<u8>, name: &str) {
    message(out, FrontendTag::Close, format!("P{name}\0").as_bytes());
}

pub fn execute(out: &mut Vec<u8>, portal: &str, rows_max: u32) {
    let mut body = format!("{portal}\0").into_bytes();
    body.extend_from_slice(&rows_max.to_be_bytes());
    message(out, FrontendTag::Execute, &body);
}

pub fn flush(out: &mut Vec<u8>) {
    message(out, FrontendTag::Flush, &[]);
}

pub fn copy_data(out: &mut Vec<u8>, bytes: &[u8]) {
    message(out, FrontendTag::CopyData, bytes);
}

pub fn copy_done(out: &mut Vec<u8>) {
    message(out, FrontendTag::CopyDone, &[]);
}
