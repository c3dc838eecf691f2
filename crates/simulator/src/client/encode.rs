//! Frontend messages that only clients write; the pooler never makes them, so wire does not have them.

use weir_wire::write;
use weir_wire::{FrontendTag, HEADER_LEN, Header};

use crate::postgres::Belief;
use crate::postgres::language::Tag;

fn message(out: &mut Vec<u8>, tag: FrontendTag, body: &[u8]) {
    write::frontend_header(out, tag, body.len());
    out.extend_from_slice(body);
}

/// How long the body of each of these messages is, and where it ends; the last one may have been cut off.
fn bodies(bytes: &[u8]) -> impl Iterator<Item = (u32, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let length = Header::parse(bytes.get(at..)?.first_chunk::<HEADER_LEN>()?).body_len?;
        at += HEADER_LEN + length as usize;
        Some((length, at))
    })
}

/// The longest body of these messages.
pub fn longest(bytes: &[u8]) -> u32 {
    bodies(bytes).map(|(length, _)| length).max().unwrap_or_default()
}

/// Where the last of these messages ends that is there in whole.
pub fn ends(bytes: &[u8]) -> usize {
    bodies(bytes).map(|(_, end)| end).take_while(|end| *end <= bytes.len()).last().unwrap_or_default()
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

/// Bind with a key as its second value.
pub fn bind_key(out: &mut Vec<u8>, statement: &str, tag: Tag, key: i64) {
    bind_texts(out, "", statement, &[&tag.to_string(), &key.to_string()]);
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
