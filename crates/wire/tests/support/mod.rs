//! Reads the vector files, and says in their words what weir-wire makes of a message.
//!
//! The words are those of `vectors/capture.py`, which decoded the same bytes without weir-wire.

use std::fmt::Write as _;
use std::path::Path;

use weir_wire::backend::{self, Authentication, ErrorFields};
use weir_wire::frontend::{self, BindNames, Parse, Target};
use weir_wire::{BackendTag, FrontendTag, HEADER_LEN, Header, Malformed, ProtocolVersion, Startup, TransactionStatus};

/// Who sent a message, and, where the bytes alone do not say, as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first packet of a connection.
    Startup,
    Frontend,
    /// The three messages under the password tag, told apart by the exchange they belong to.
    Password,
    SaslInitial,
    SaslResponse,
    Backend,
}

/// One message that a real client or server sent.
#[derive(Debug, Clone)]
pub struct Vector {
    pub name: String,
    pub side: Side,
    pub bytes: Vec<u8>,
    pub meaning: String,
}

/// All vectors of all files, in order.
pub fn vectors() -> Vec<Vector> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files.iter().flat_map(|path| read(path)).collect()
}

fn read(path: &Path) -> Vec<Vector> {
    let file = path.file_stem().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut vectors = Vec::new();
    while let Some(head) = lines.next() {
        let (name, sender) = head.split_once(' ').unwrap();
        let bytes = unhex(lines.next().unwrap());
        let meaning = lines.next().unwrap().to_owned();
        let side = side(sender, &meaning);
        vectors.push(Vector { name: format!("{file}/{name}"), side, bytes, meaning });
    }
    vectors
}

fn side(sender: &str, meaning: &str) -> Side {
    match (sender, meaning.split(' ').next().unwrap()) {
        ("backend", _) => Side::Backend,
        ("frontend", "Startup" | "CancelRequest" | "SSLRequest" | "GSSENCRequest") => Side::Startup,
        ("frontend", "PasswordMessage") => Side::Password,
        ("frontend", "SASLInitialResponse") => Side::SaslInitial,
        ("frontend", "SASLResponse") => Side::SaslResponse,
        ("frontend", _) => Side::Frontend,
        _ => panic!("unknown sender {sender}"),
    }
}

pub fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd number of digits: {text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => write!(text, "\\{}", byte as char).unwrap(),
            0x20..0x7f => text.push(byte as char),
            _ => write!(text, "\\x{byte:02x}").unwrap(),
        }
    }
    text + "\""
}

fn version_text(version: ProtocolVersion) -> String {
    format!("{}.{}", version.major(), version.minor())
}

/// The bytes of a whole message, split where weir-wire splits them. `None`: header and length do not agree.
pub fn split(side: Side, bytes: &[u8]) -> Option<(Option<u8>, &[u8])> {
    if side == Side::Startup {
        let length = Startup::packet_len(bytes.first_chunk()?).ok()?;
        return (length == bytes.len()).then_some((None, &bytes[4..]));
    }
    let header = Header::parse(bytes.first_chunk::<HEADER_LEN>()?);
    let body = &bytes[HEADER_LEN..];
    (header.body_len? as usize == body.len()).then_some((Some(header.tag), body))
}

/// What weir-wire reads in a whole message; `Err` where it refuses.
pub fn meaning(side: Side, bytes: &[u8]) -> Result<String, Malformed> {
    let (tag, body) = split(side, bytes).ok_or(Malformed { what: "header" })?;
    let Some(tag) = tag else { return Startup::parse(body).map(|startup| startup_text(&startup)) };
    if side == Side::Backend {
        let tag = BackendTag::from_byte(tag).ok_or(Malformed { what: "tag" })?;
        return backend_text(tag, body);
    }
    let tag = FrontendTag::from_byte(tag).ok_or(Malformed { what: "tag" })?;
    if body.len() > tag.body_len_max() as usize {
        return Err(Malformed { what: "length" });
    }
    frontend_text(side, tag, body)
}

fn startup_text(startup: &Startup<'_>) -> String {
    match startup {
        Startup::Tls => "SSLRequest".to_owned(),
        Startup::GssEncryption => "GSSENCRequest".to_owned(),
        Startup::Cancel { process_id, key } => format!("CancelRequest {process_id} {}", hex(key)),
        Startup::Session { version, parameters } => {
            let mut text = format!("Startup {}", version_text(*version));
            for (name, value) in parameters {
                write!(text, " {}={}", quoted(name.as_bytes()), quoted(value.as_bytes())).unwrap();
            }
            text
        }
    }
}

fn frontend_text(side: Side, tag: FrontendTag, body: &[u8]) -> Result<String, Malformed> {
    Ok(match (tag, side) {
        (FrontendTag::Parse, _) => {
            let parse = Parse::read(body)?;
            format!("Parse {} {}", quoted(parse.name), quoted(parse.definition))
        }
        (FrontendTag::Bind, _) => {
            let names = BindNames::parse(body).ok_or(Malformed { what: "Bind" })?;
            format!("Bind {} {}", quoted(names.portal), quoted(names.statement))
        }
        (FrontendTag::Describe | FrontendTag::Close, _) => match Target::parse(body)? {
            Target::Statement(name) => format!("{tag:?} statement {}", quoted(name)),
            Target::Portal(name) => format!("{tag:?} portal {}", quoted(name)),
        },
        (FrontendTag::Query, _) => format!("Query {}", quoted(frontend::query(body)?)),
        (FrontendTag::Password, Side::SaslInitial) => {
            let (mechanism, data) = frontend::sasl_initial(body)?;
            format!("SASLInitialResponse {mechanism} {}", quoted(data))
        }
        (FrontendTag::Password, Side::SaslResponse) => format!("SASLResponse {}", quoted(body)),
        (FrontendTag::Password, _) => format!("PasswordMessage {}", quoted(frontend::password(body)?)),
        _ => format!("{tag:?} {} bytes", body.len()),
    })
}

fn backend_text(tag: BackendTag, body: &[u8]) -> Result<String, Malformed> {
    Ok(match tag {
        BackendTag::Authentication => authentication_text(&Authentication::parse(body)?),
        BackendTag::BackendKeyData => {
            let (process_id, key) = backend::backend_key(body)?;
            format!("BackendKeyData {process_id} {}", hex(key))
        }
        BackendTag::ParameterStatus => {
            let (name, value) = backend::parameter_status(body)?;
            format!("ParameterStatus {} {}", quoted(name.as_bytes()), quoted(value))
        }
        BackendTag::ReadyForQuery => match backend::ready(body)? {
            TransactionStatus::Idle => "ReadyForQuery idle".to_owned(),
            TransactionStatus::InTransaction => "ReadyForQuery transaction".to_owned(),
            TransactionStatus::Failed => "ReadyForQuery failed".to_owned(),
        },
        BackendTag::NegotiateProtocolVersion => {
            let (version, options) = backend::negotiate_version(body)?;
            let mut text = format!("NegotiateProtocolVersion {}", version_text(ProtocolVersion(version)));
            for option in options {
                write!(text, " {}", quoted(option.as_bytes())).unwrap();
            }
            text
        }
        BackendTag::CommandComplete => format!("CommandComplete {}", quoted(backend::command_tag(body)?)),
        BackendTag::ErrorResponse | BackendTag::NoticeResponse => {
            let fields = ErrorFields::parse(body)?;
            let word = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let (message, routine) = (quoted(fields.message), quoted(fields.routine));
            format!("{tag:?} {} {} {message} {routine}", word(fields.severity), word(fields.code))
        }
        _ => format!("{tag:?} {} bytes", body.len()),
    })
}

fn authentication_text(authentication: &Authentication<'_>) -> String {
    match authentication {
        Authentication::Ok => "AuthenticationOk".to_owned(),
        Authentication::CleartextPassword => "AuthenticationCleartextPassword".to_owned(),
        Authentication::Md5Password { salt } => format!("AuthenticationMD5Password {}", hex(salt)),
        Authentication::Sasl { mechanisms } => format!("AuthenticationSASL {}", mechanisms.join(" ")),
        Authentication::SaslContinue { data } => format!("AuthenticationSASLContinue {}", quoted(data)),
        Authentication::SaslFinal { data } => format!("AuthenticationSASLFinal {}", quoted(data)),
        Authentication::Unsupported { code } => format!("Authentication {code}"),
    }
}
