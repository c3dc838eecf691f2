//! Writers: each appends one whole message to a buffer.
//!
//! Lengths are those of messages we make ourselves, all far below the 31 bits of the length field; a body that
//! could be longer is forwarded from the bytes that came, never rebuilt here.

use crate::backend::{BackendTag, TransactionStatus};
use crate::frontend::FrontendTag;
use crate::report::{Report, Severity};
use crate::startup::{ProtocolVersion, cancel_request_code, ssl_request_code};

fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    packet(out, body);
}

fn packet(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn cstr(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(0);
}

// From a frontend.

/// The header of a message whose body the caller appends or forwards.
pub fn frontend_header(out: &mut Vec<u8>, tag: FrontendTag, body_len: usize) {
    out.push(tag as u8);
    out.extend_from_slice(&((body_len + 4) as u32).to_be_bytes());
}

pub fn startup(out: &mut Vec<u8>, version: ProtocolVersion, parameters: &[(&str, &str)]) {
    packet(out, |out| {
        out.extend_from_slice(&version.0.to_be_bytes());
        for (name, value) in parameters {
            cstr(out, name.as_bytes());
            cstr(out, value.as_bytes());
        }
        out.push(0);
    });
}

pub fn ssl_request(out: &mut Vec<u8>) {
    packet(out, |out| out.extend_from_slice(&ssl_request_code().to_be_bytes()));
}

pub fn cancel_request(out: &mut Vec<u8>, process_id: u32, key: &[u8]) {
    packet(out, |out| {
        out.extend_from_slice(&cancel_request_code().to_be_bytes());
        out.extend_from_slice(&process_id.to_be_bytes());
        out.extend_from_slice(key);
    });
}

pub fn password(out: &mut Vec<u8>, password: &[u8]) {
    message(out, FrontendTag::Password as u8, |out| cstr(out, password));
}

pub fn sasl_initial(out: &mut Vec<u8>, mechanism: &str, data: &[u8]) {
    message(out, FrontendTag::Password as u8, |out| {
        cstr(out, mechanism.as_bytes());
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(data);
    });
}

pub fn sasl_response(out: &mut Vec<u8>, data: &[u8]) {
    message(out, FrontendTag::Password as u8, |out| out.extend_from_slice(data));
}

pub fn query(out: &mut Vec<u8>, text: &[u8]) {
    query_of(out, |out| out.extend_from_slice(text));
}

/// A simple query whose text is appended by `text`.
pub fn query_of(out: &mut Vec<u8>, text: impl FnOnce(&mut Vec<u8>)) {
    message(out, FrontendTag::Query as u8, |out| {
        text(out);
        out.push(0);
    });
}

/// Parse, its text and types given as they stand in a message ([`crate::frontend::Parse::definition`]).
pub fn parse(out: &mut Vec<u8>, name: &[u8], definition: &[u8]) {
    message(out, FrontendTag::Parse as u8, |out| {
        cstr(out, name);
        out.extend_from_slice(definition);
    });
}

pub fn describe_statement(out: &mut Vec<u8>, name: &[u8]) {
    message(out, FrontendTag::Describe as u8, |out| {
        out.push(b'S');
        cstr(out, name);
    });
}

pub fn close_statement(out: &mut Vec<u8>, name: &[u8]) {
    message(out, FrontendTag::Close as u8, |out| {
        out.push(b'S');
        cstr(out, name);
    });
}

/// The header of a Bind and its two names; `values_len` bytes of values follow from elsewhere.
pub fn bind_names(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], values_len: usize) {
    frontend_header(out, FrontendTag::Bind, portal.len() + statement.len() + 2 + values_len);
    cstr(out, portal);
    cstr(out, statement);
}

/// Binds a statement without parameters, and asks for text.
pub fn bind_without_values(out: &mut Vec<u8>, portal: &[u8], statement: &[u8]) {
    bind_names(out, portal, statement, 6);
    // No formats of parameters, no parameters, no formats of columns.
    out.extend_from_slice(&[0; 6]);
}

/// Executes a portal to its end.
pub fn execute(out: &mut Vec<u8>, portal: &[u8]) {
    message(out, FrontendTag::Execute as u8, |out| {
        cstr(out, portal);
        out.extend_from_slice(&0u32.to_be_bytes());
    });
}

/// Calls a function by its number, without arguments.
pub fn function_call(out: &mut Vec<u8>, function: u32) {
    message(out, FrontendTag::FunctionCall as u8, |out| {
        out.extend_from_slice(&function.to_be_bytes());
        // No formats of arguments, none of these, and a result as text.
        out.extend_from_slice(&[0; 6]);
    });
}

pub fn close_portal(out: &mut Vec<u8>, name: &[u8]) {
    message(out, FrontendTag::Close as u8, |out| {
        out.push(b'P');
        cstr(out, name);
    });
}

pub fn sync(out: &mut Vec<u8>) {
    message(out, FrontendTag::Sync as u8, |_| {});
}

pub fn flush(out: &mut Vec<u8>) {
    message(out, FrontendTag::Flush as u8, |_| {});
}

pub fn copy_fail(out: &mut Vec<u8>, reason: &[u8]) {
    message(out, FrontendTag::CopyFail as u8, |out| cstr(out, reason));
}

pub fn terminate(out: &mut Vec<u8>) {
    message(out, FrontendTag::Terminate as u8, |_| {});
}

// From a backend.

fn authentication(out: &mut Vec<u8>, code: u32, data: &[u8]) {
    message(out, BackendTag::Authentication as u8, |out| {
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(data);
    });
}

pub fn authentication_ok(out: &mut Vec<u8>) {
    authentication(out, 0, &[]);
}

pub fn authentication_cleartext(out: &mut Vec<u8>) {
    authentication(out, 3, &[]);
}

pub fn authentication_md5(out: &mut Vec<u8>, salt: [u8; 4]) {
    authentication(out, 5, &salt);
}

pub fn authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&str]) {
    message(out, BackendTag::Authentication as u8, |out| {
        out.extend_from_slice(&10u32.to_be_bytes());
        for mechanism in mechanisms {
            cstr(out, mechanism.as_bytes());
        }
        out.push(0);
    });
}

pub fn authentication_sasl_continue(out: &mut Vec<u8>, data: &[u8]) {
    authentication(out, 11, data);
}

pub fn authentication_sasl_final(out: &mut Vec<u8>, data: &[u8]) {
    authentication(out, 12, data);
}

pub fn parameter_status(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    message(out, BackendTag::ParameterStatus as u8, |out| {
        cstr(out, name.as_bytes());
        cstr(out, value);
    });
}

pub fn backend_key(out: &mut Vec<u8>, process_id: u32, key: &[u8]) {
    message(out, BackendTag::BackendKeyData as u8, |out| {
        out.extend_from_slice(&process_id.to_be_bytes());
        out.extend_from_slice(key);
    });
}

pub fn negotiate_version(out: &mut Vec<u8>, newest: ProtocolVersion, unrecognised: &[&str]) {
    message(out, BackendTag::NegotiateProtocolVersion as u8, |out| {
        out.extend_from_slice(&newest.0.to_be_bytes());
        out.extend_from_slice(&(unrecognised.len() as u32).to_be_bytes());
        for option in unrecognised {
            cstr(out, option.as_bytes());
        }
    });
}

pub fn ready(out: &mut Vec<u8>, status: TransactionStatus) {
    message(out, BackendTag::ReadyForQuery as u8, |out| out.push(status as u8));
}

pub fn parse_complete(out: &mut Vec<u8>) {
    message(out, BackendTag::ParseComplete as u8, |_| {});
}

pub fn bind_complete(out: &mut Vec<u8>) {
    message(out, BackendTag::BindComplete as u8, |_| {});
}

pub fn close_complete(out: &mut Vec<u8>) {
    message(out, BackendTag::CloseComplete as u8, |_| {});
}

pub fn no_data(out: &mut Vec<u8>) {
    message(out, BackendTag::NoData as u8, |_| {});
}

pub fn empty_query_response(out: &mut Vec<u8>) {
    message(out, BackendTag::EmptyQueryResponse as u8, |_| {});
}

/// ParameterDescription of a statement that takes no parameters.
pub fn no_parameters(out: &mut Vec<u8>) {
    message(out, BackendTag::ParameterDescription as u8, |out| out.extend_from_slice(&[0; 2]));
}

pub fn command_complete(out: &mut Vec<u8>, tag: &str) {
    message(out, BackendTag::CommandComplete as u8, |out| cstr(out, tag.as_bytes()));
}

/// An ErrorResponse, or a NoticeResponse where the severity is no error.
pub fn report(out: &mut Vec<u8>, report: &Report) {
    let tag = match report.severity {
        Severity::Notice | Severity::Warning => BackendTag::NoticeResponse,
        Severity::Error | Severity::Fatal => BackendTag::ErrorResponse,
    };
    message(out, tag as u8, |out| {
        let mut field = |kind: u8, text: &str| {
            out.push(kind);
            // A zero byte would end the field early and turn the rest into fields of its own.
            out.extend(text.bytes().filter(|&byte| byte != 0));
            out.push(0);
        };
        field(b'S', report.severity.as_str());
        field(b'V', report.severity.as_str());
        field(b'C', report.code);
        field(b'M', &report.message);
        if let Some(detail) = &report.detail {
            field(b'D', detail);
        }
        if let Some(hint) = &report.hint {
            field(b'H', hint);
        }
        if let Some(routine) = report.routine {
            field(b'R', routine);
        }
        out.push(0);
    });
}

/// A type a result column of ours can have: object id and size of `pg_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    Text,
    Int4,
    Int8,
    Numeric,
}

impl ColumnType {
    fn oid_and_size(self) -> (u32, i16) {
        match self {
            Self::Text => (25, -1),
            Self::Int4 => (23, 4),
            Self::Int8 => (20, 8),
            Self::Numeric => (1700, -1),
        }
    }
}

/// RowDescription of columns that belong to no table; `binary` is the format of all of them.
pub fn row_description(out: &mut Vec<u8>, columns: &[(&str, ColumnType)], binary: bool) {
    message(out, BackendTag::RowDescription as u8, |out| {
        out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for (name, column_type) in columns {
            let (oid, size) = column_type.oid_and_size();
            cstr(out, name.as_bytes());
            out.extend_from_slice(&[0; 6]); // No table, no column of one.
            out.extend_from_slice(&oid.to_be_bytes());
            out.extend_from_slice(&size.to_be_bytes());
            out.extend_from_slice(&(-1i32).to_be_bytes()); // No type modifier.
            out.extend_from_slice(&u16::from(binary).to_be_bytes());
        }
    });
}

/// A whole number in the binary form of `numeric`: digits of base 10 000 behind their count, the weight of the first, a sign and
/// the digits behind the point (`numeric_send`, src/backend/utils/adt/numeric.c of PostgreSQL 18).
pub fn numeric(number: u64) -> Vec<u8> {
    let mut digits: Vec<u16> = Vec::new();
    let mut rest = number;
    while rest > 0 {
        digits.push((rest % 10_000) as u16);
        rest /= 10_000;
    }
    let weight = digits.len().saturating_sub(1) as u16;
    let head = [digits.len() as u16, weight, 0, 0];
    head.into_iter().chain(digits.into_iter().rev()).flat_map(u16::to_be_bytes).collect()
}

/// DataRow; `None` is NULL.
pub fn data_row<'a>(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = Option<&'a [u8]>>) {
    message(out, BackendTag::DataRow as u8, |out| {
        out.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for value in values {
            match value {
                Some(value) => {
                    out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                    out.extend_from_slice(value);
                }
                None => out.extend_from_slice(&(-1i32).to_be_bytes()),
            }
        }
    });
}

/// An ErrorResponse of these fields in which one name stands for another; `None` where it does not occur.
pub fn renamed_error(body: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    if from.is_empty() || !body.windows(from.len()).any(|at| at == from) {
        return None;
    }
    let mut renamed = Vec::new();
    message(&mut renamed, BackendTag::ErrorResponse as u8, |out| {
        let mut rest = body;
        while let Some(at) = rest.windows(from.len()).position(|at| at == from) {
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(to);
            rest = &rest[at + from.len()..];
        }
        out.extend_from_slice(rest);
    });
    Some(renamed)
}

/// Passes an ErrorResponse's fields on with another severity: what is an error for the server that raised it ends this
/// client's session.
pub fn error_as(out: &mut Vec<u8>, severity: Severity, body: &[u8]) {
    message(out, BackendTag::ErrorResponse as u8, |out| {
        for field in body.split(|&byte| byte == 0).filter(|field| !field.is_empty()) {
            out.push(field[0]);
            match field[0] {
                b'S' | b'V' => cstr(out, severity.as_str().as_bytes()),
                _ => cstr(out, &field[1..]),
            }
        }
        out.push(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errors_name_is_replaced_wherever_it_stands() {
        let renamed = renamed_error(b"SERROR\0Mno weir_1, no weir_1\0\0", b"weir_1", b"s").unwrap();
        assert_eq!(renamed, b"E\0\0\0\x18SERROR\0Mno s, no s\0\0");
        assert!(renamed_error(b"Mno\0\0", b"weir_1", b"s").is_none());
    }
}
