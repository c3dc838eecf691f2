//! Messages as clients and servers write them, where the pooler itself never does.

use weir_wire::{BackendTag, FrontendTag, write};

fn frontend(out: &mut Vec<u8>, tag: FrontendTag, body: &[u8]) {
    write::frontend_header(out, tag, body.len());
    out.extend_from_slice(body);
}

pub fn query(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write::query(&mut out, text.as_bytes());
    out
}

/// Parse without parameter types.
pub fn parse(out: &mut Vec<u8>, name: &str, text: &str) {
    let definition = [text.as_bytes(), &[0, 0, 0]].concat();
    write::parse(out, name.as_bytes(), &definition);
}

/// Bind of one value in text format to the unnamed portal.
pub fn bind(out: &mut Vec<u8>, statement: &str, value: &str) {
    let mut values = vec![0, 0, 0, 1];
    values.extend_from_slice(&(value.len() as u32).to_be_bytes());
    values.extend_from_slice(value.as_bytes());
    values.extend_from_slice(&[0, 0]);
    write::bind_names(out, b"", statement.as_bytes(), values.len());
    out.extend_from_slice(&values);
}

/// Describe of the unnamed portal.
pub fn describe_portal(out: &mut Vec<u8>) {
    frontend(out, FrontendTag::Describe, b"P\0");
}

/// Execute of the unnamed portal to its end.
pub fn execute(out: &mut Vec<u8>) {
    frontend(out, FrontendTag::Execute, &[0; 5]);
}

/// One row of one column, as PostgreSQL sends it: a table's column of type int4.
pub fn row_description(out: &mut Vec<u8>) {
    write::row_description(out, &[("abalance", write::ColumnType::Int4)], false);
}

pub fn row(out: &mut Vec<u8>, value: &str) {
    write::data_row(out, [Some(value.as_bytes())].into_iter());
}

/// The tags of the messages in `bytes`, in order: `TDCZ`. Startup packets have none.
pub fn tags(mut bytes: &[u8]) -> String {
    let mut tags = String::new();
    while let [tag, a, b, c, d, ..] = *bytes {
        tags.push(char::from(tag));
        let end = 1 + u32::from_be_bytes([a, b, c, d]) as usize;
        bytes = bytes.get(end..).unwrap_or_default();
    }
    tags
}

/// Whether a client has been told that its login is done, or that a request is.
pub fn ends_ready(bytes: &[u8]) -> bool {
    bytes.len() >= 6 && bytes[bytes.len() - 6] == BackendTag::ReadyForQuery as u8
}

/// Whether a server's answer is a query's, not a login's.
pub fn is_result(bytes: &[u8]) -> bool {
    ends_ready(bytes) && tags(bytes).contains('D')
}
