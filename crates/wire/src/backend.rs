//! Messages from a backend (a server, or us towards a client).

use crate::header::{HEADER_LEN, Header};
use crate::reader::{Malformed, Reader};

/// Every message a backend may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BackendTag {
    Authentication = b'R',
    BackendKeyData = b'K',
    BindComplete = b'2',
    CloseComplete = b'3',
    CommandComplete = b'C',
    CopyBothResponse = b'W',
    CopyData = b'd',
    CopyDone = b'c',
    CopyInResponse = b'G',
    CopyOutResponse = b'H',
    DataRow = b'D',
    EmptyQueryResponse = b'I',
    ErrorResponse = b'E',
    FunctionCallResponse = b'V',
    NegotiateProtocolVersion = b'v',
    NoData = b'n',
    NoticeResponse = b'N',
    NotificationResponse = b'A',
    ParameterDescription = b't',
    ParameterStatus = b'S',
    ParseComplete = b'1',
    PortalSuspended = b's',
    ReadyForQuery = b'Z',
    RowDescription = b'T',
}

impl BackendTag {
    /// Answers nothing, and may come at any time ("Asynchronous Operations" in the protocol's chapter).
    #[inline]
    pub fn is_asynchronous(self) -> bool {
        matches!(self, Self::NoticeResponse | Self::NotificationResponse | Self::ParameterStatus)
    }

    /// The message a tag byte stands for, if there is one.
    #[inline]
    pub fn from_byte(tag: u8) -> Option<Self> {
        Some(match tag {
            b'R' => Self::Authentication,
            b'K' => Self::BackendKeyData,
            b'2' => Self::BindComplete,
            b'3' => Self::CloseComplete,
            b'C' => Self::CommandComplete,
            b'W' => Self::CopyBothResponse,
            b'd' => Self::CopyData,
            b'c' => Self::CopyDone,
            b'G' => Self::CopyInResponse,
            b'H' => Self::CopyOutResponse,
            b'D' => Self::DataRow,
            b'I' => Self::EmptyQueryResponse,
            b'E' => Self::ErrorResponse,
            b'V' => Self::FunctionCallResponse,
            b'v' => Self::NegotiateProtocolVersion,
            b'n' => Self::NoData,
            b'N' => Self::NoticeResponse,
            b'A' => Self::NotificationResponse,
            b't' => Self::ParameterDescription,
            b'S' => Self::ParameterStatus,
            b'1' => Self::ParseComplete,
            b's' => Self::PortalSuspended,
            b'Z' => Self::ReadyForQuery,
            b'T' => Self::RowDescription,
            _ => return None,
        })
    }
}

/// Where a session stands after a ReadyForQuery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum TransactionStatus {
    Idle = b'I',
    InTransaction = b'T',
    Failed = b'E',
}

/// How many bytes at the front are whole rows and copy data, and, where `described`, descriptions of rows.
pub fn rows_len(bytes: &[u8], described: bool) -> usize {
    let mut end = 0;
    while let Some(first) = bytes.get(end..).and_then(|rest| rest.first_chunk::<HEADER_LEN>()) {
        let header = Header::parse(first);
        let passes = header.tag == BackendTag::DataRow as u8
            || header.tag == BackendTag::CopyData as u8
            || (described && header.tag == BackendTag::RowDescription as u8);
        let Some(body_len) = header.body_len.filter(|_| passes) else { break };
        let next = end + HEADER_LEN + body_len as usize;
        if next > bytes.len() {
            break;
        }
        end = next;
    }
    end
}

/// ReadyForQuery.
#[inline]
pub fn ready(body: &[u8]) -> Result<TransactionStatus, Malformed> {
    match body {
        b"I" => Ok(TransactionStatus::Idle),
        b"T" => Ok(TransactionStatus::InTransaction),
        b"E" => Ok(TransactionStatus::Failed),
        _ => Err(Malformed { what: "ReadyForQuery" }),
    }
}

/// The requests and answers under the Authentication tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication<'a> {
    Ok,
    CleartextPassword,
    Md5Password {
        salt: [u8; 4],
    },
    Sasl {
        mechanisms: Vec<&'a str>,
    },
    SaslContinue {
        data: &'a [u8],
    },
    SaslFinal {
        data: &'a [u8],
    },
    /// Kerberos, GSSAPI, SSPI and whatever comes: the code that was asked for.
    Unsupported {
        code: u32,
    },
}

impl<'a> Authentication<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("Authentication message", body);
        Ok(match reader.u32()? {
            0 => {
                reader.end()?;
                Self::Ok
            }
            3 => {
                reader.end()?;
                Self::CleartextPassword
            }
            5 => {
                let salt = reader.bytes(4)?;
                let salt = [salt[0], salt[1], salt[2], salt[3]];
                reader.end()?;
                Self::Md5Password { salt }
            }
            10 => Self::Sasl { mechanisms: mechanisms(reader)? },
            11 => Self::SaslContinue { data: reader.rest() },
            12 => Self::SaslFinal { data: reader.rest() },
            code => Self::Unsupported { code },
        })
    }
}

fn mechanisms<'a>(mut reader: Reader<'a>) -> Result<Vec<&'a str>, Malformed> {
    let mut mechanisms = Vec::new();
    loop {
        let name = reader.utf8()?;
        if name.is_empty() {
            reader.end()?;
            return Ok(mechanisms);
        }
        mechanisms.push(name);
    }
}

/// ParameterStatus: name and value. Values are bytes: PostgreSQL does not promise an encoding here.
pub fn parameter_status(body: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let mut reader = Reader::new("ParameterStatus", body);
    let name = reader.utf8()?;
    let value = reader.cstr()?;
    reader.end()?;
    Ok((name, value))
}

/// DataRow: the values; None for NULL.
pub fn row_values(body: &[u8]) -> Result<Vec<Option<&[u8]>>, Malformed> {
    let mut reader = Reader::new("DataRow", body);
    let count = reader.u16()?;
    let mut values = Vec::new();
    for _ in 0..count {
        let len = reader.u32()?;
        values.push(if len == u32::MAX { None } else { Some(reader.bytes(len as usize)?) });
    }
    reader.end()?;
    Ok(values)
}

/// The longest cancel key of protocol 3.2; protocol 3.0 has always four bytes.
pub const CANCEL_KEY_LEN_MAX: usize = 256;

/// BackendKeyData: process id and cancel key.
pub fn backend_key(body: &[u8]) -> Result<(u32, &[u8]), Malformed> {
    let mut reader = Reader::new("BackendKeyData", body);
    let process_id = reader.u32()?;
    let malformed = reader.malformed();
    let key = reader.rest();
    if (4..=CANCEL_KEY_LEN_MAX).contains(&key.len()) { Ok((process_id, key)) } else { Err(malformed) }
}

/// NegotiateProtocolVersion: the newest minor version spoken, and the options not recognised.
pub fn negotiate_version(body: &[u8]) -> Result<(u32, Vec<&str>), Malformed> {
    let mut reader = Reader::new("NegotiateProtocolVersion", body);
    let version = reader.u32()?;
    let count = reader.u32()?;
    let mut options = Vec::new();
    for _ in 0..count {
        options.push(reader.utf8()?);
    }
    reader.end()?;
    Ok((version, options))
}

/// What a row looks like: as much of a RowDescription as makes two of them the same to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowShape {
    pub columns: u16,
    /// Over the names, types and type modifiers of all columns. Two shapes may share it by an accident of one in 2^64.
    digest: u64,
}

impl RowShape {
    /// The shape of what returns no rows (NoData).
    pub const NO_ROWS: Self = Self { columns: 0, digest: 0 };
    /// Nothing is known of it. No RowDescription has more columns than 1664 (`MaxTupleAttributeNumber`, src/include/access/htup_details.h).
    pub const UNKNOWN: Self = Self { columns: u16::MAX, digest: 0 };
    /// None that a server tells.
    pub const OTHER: Self = Self { columns: u16::MAX, digest: 1 };

    /// Reads a RowDescription.
    pub fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("RowDescription", body);
        let columns = reader.u16()?;
        let mut digest = Fnv::default();
        for _ in 0..columns {
            digest.add(reader.cstr()?);
            reader.bytes(6)?; // The table and its column: another table may give the same rows.
            digest.add(reader.bytes(4)?);
            reader.bytes(2)?; // The type's size follows from the type.
            digest.add(reader.bytes(4)?);
            reader.bytes(2)?; // The format.
        }
        reader.end()?;
        Ok(Self { columns, digest: digest.0 })
    }
}

/// What a statement takes and returns: as much of its description as makes two of them the same to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatementShape {
    pub rows: RowShape,
    /// Over the types of its parameters; 0 where only its rows are known.
    parameters: u64,
}

impl StatementShape {
    /// The same with other rows.
    pub const fn with_rows(self, rows: RowShape) -> Self {
        Self { rows, ..self }
    }

    /// `parameters`: the digest of its ParameterDescription, where the statement was described and not a portal.
    pub const fn new(rows: RowShape, parameters: Option<u64>) -> Self {
        let parameters = match parameters {
            Some(digest) => digest,
            None => 0,
        };
        Self { rows, parameters }
    }

    /// For another process.
    pub fn parts(self) -> [u64; 3] {
        [self.rows.columns.into(), self.rows.digest, self.parameters]
    }

    /// As [`parts`](Self::parts) told it.
    pub fn of([columns, digest, parameters]: [u64; 3]) -> Self {
        Self { rows: RowShape { columns: columns as u16, digest }, parameters }
    }

    /// The digest of a ParameterDescription; never 0.
    pub fn parameters(body: &[u8]) -> u64 {
        let mut digest = Fnv::default();
        digest.add(body);
        digest.0 | 1
    }

    /// The same, and what was known before of what this says nothing of: the description of a portal of parameters, that of a statement which
    /// ended in an error of rows.
    #[must_use]
    pub fn or_of(self, former: Self) -> Self {
        let parameters = if self.parameters == 0 { former.parameters } else { self.parameters };
        Self { rows: if self.rows == RowShape::UNKNOWN { former.rows } else { self.rows }, parameters }
    }

    /// Whether the parameters are known too.
    pub fn is_whole(&self) -> bool {
        self.parameters != 0
    }

    /// The same, as far as both are known.
    pub fn agrees(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let known = self.parameters != 0 && other.parameters != 0;
        let same_rows = self.rows == other.rows || [self.rows, other.rows].contains(&RowShape::UNKNOWN);
        same_rows && (!known || self.parameters == other.parameters)
    }

    pub fn digest(&self) -> u64 {
        self.rows.digest.rotate_left(17) ^ self.parameters ^ u64::from(self.rows.columns)
    }
}

/// FNV-1a of 64 bits, with a mark between fields.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, field: &[u8]) {
        for &byte in field.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// CommandComplete: the command tag.
pub fn command_tag(body: &[u8]) -> Result<&[u8], Malformed> {
    let mut reader = Reader::new("CommandComplete", body);
    let tag = reader.cstr()?;
    reader.end()?;
    Ok(tag)
}

/// The fields of an ErrorResponse or NoticeResponse that a pooler looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorFields<'a> {
    /// Never translated (field V); older servers have only S, which may be.
    pub severity: &'a [u8],
    pub code: &'a [u8],
    pub message: &'a [u8],
    pub routine: &'a [u8],
    /// In which function or trigger.
    pub context: &'a [u8],
}

impl<'a> ErrorFields<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("ErrorResponse", body);
        let mut fields = Self::default();
        let mut translated: &[u8] = b"";
        loop {
            match reader.u8()? {
                0 => break,
                b'V' => fields.severity = reader.cstr()?,
                b'S' => translated = reader.cstr()?,
                b'C' => fields.code = reader.cstr()?,
                b'M' => fields.message = reader.cstr()?,
                b'R' => fields.routine = reader.cstr()?,
                b'W' => fields.context = reader.cstr()?,
                _ => {
                    reader.cstr()?;
                }
            }
        }
        reader.end()?;
        if fields.severity.is_empty() {
            fields.severity = translated;
        }
        Ok(fields)
    }

    /// FATAL and PANIC end the session.
    pub fn ends_session(&self) -> bool {
        matches!(self.severity, b"FATAL" | b"PANIC")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rows_values_end_with_it() {
        let row = [&b"\0\x02\0\0\0\x01a"[..], &[0xff; 4]].concat();
        assert_eq!(row_values(&row).unwrap(), [Some(&b"a"[..]), None]);
        assert!(row_values(&row[..9]).is_err() && row_values(&[&row[..], b"x"].concat()).is_err());
        assert!(row_values(b"\xff\xff").is_err());
    }

    #[test]
    fn rows_end_where_something_else_begins_or_a_row_is_cut() {
        let (description, row) = (b"T\0\0\0\x06\0\0", b"D\0\0\0\x06\0\0");
        let rows = [&row[..], row, b"C\0\0\0\x06a\0"].concat();
        assert_eq!(rows_len(&rows, false), 14);
        assert_eq!(rows_len(&rows[..13], false), 7);
        assert_eq!(rows_len(&rows[..11], false), 7);
        let described = [&description[..], row].concat();
        assert_eq!((rows_len(&described, false), rows_len(&described, true)), (0, 14));
        assert_eq!(rows_len(b"D\0\0\0\x03", true), 0);
        assert_eq!(rows_len(b"", true), 0);
    }
}
