//! The first packet of a connection: it has a length and no tag.

use crate::backend::CANCEL_KEY_LEN_MAX;
use crate::reader::{Malformed, Reader};

/// `MAX_STARTUP_PACKET_LENGTH` of src/include/libpq/pqcomm.h (PostgreSQL 18), and the length field, which that does not count.
pub const STARTUP_LEN_MAX: usize = 10_004;
/// The length field and the code.
pub const STARTUP_LEN_MIN: usize = 8;
/// A startup packet has no tag: its length comes first.
pub const STARTUP_HEADER_LEN: usize = 4;

const CANCEL_REQUEST_CODE: u32 = 80_877_102;
const SSL_REQUEST_CODE: u32 = 80_877_103;
const GSSENC_REQUEST_CODE: u32 = 80_877_104;

/// The answers to SSLRequest and GSSENCRequest: one byte each, no message.
pub const TLS_ACCEPTED: u8 = b'S';
pub const TLS_REFUSED: u8 = b'N';

/// The first byte of a TLS ClientHello record: a client that skips SSLRequest (direct TLS, PostgreSQL 17).
pub const TLS_HANDSHAKE_RECORD: u8 = 0x16;
/// The name a direct TLS connection must agree on in its ALPN extension.
pub const ALPN_PROTOCOL: &[u8] = b"postgresql";

/// Major version in the upper 16 bits, minor in the lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtocolVersion(pub u32);

impl ProtocolVersion {
    pub const V3_0: Self = Self(0x0003_0000);
    pub const V3_2: Self = Self(0x0003_0002);

    pub fn major(self) -> u32 {
        self.0 >> 16
    }

    pub fn minor(self) -> u32 {
        self.0 & 0xffff
    }
}

/// What a connection opens with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Startup<'a> {
    Tls,
    GssEncryption,
    Cancel { process_id: u32, key: &'a [u8] },
    Session { version: ProtocolVersion, parameters: Vec<(&'a str, &'a str)> },
}

impl<'a> Startup<'a> {
    /// The length a packet announces, itself included; an error where it is out of bounds.
    pub fn packet_len(bytes: &[u8; STARTUP_HEADER_LEN]) -> Result<usize, Malformed> {
        let length = u32::from_be_bytes(*bytes) as usize;
        if (STARTUP_LEN_MIN..=STARTUP_LEN_MAX).contains(&length) {
            Ok(length)
        } else {
            Err(Malformed { what: "startup packet length" })
        }
    }

    /// Parses what follows the length field.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("startup packet", body);
        match reader.u32()? {
            SSL_REQUEST_CODE => reader.end().map(|()| Self::Tls),
            GSSENC_REQUEST_CODE => reader.end().map(|()| Self::GssEncryption),
            CANCEL_REQUEST_CODE => {
                let process_id = reader.u32()?;
                let key = reader.rest();
                if (4..=CANCEL_KEY_LEN_MAX).contains(&key.len()) {
                    Ok(Self::Cancel { process_id, key })
                } else {
                    Err(Malformed { what: "cancel request" })
                }
            }
            version => {
                let version = ProtocolVersion(version);
                // Another major version has another layout: name it, read no further.
                let parameters = if version.major() == 3 { parameters(reader)? } else { Vec::new() };
                Ok(Self::Session { version, parameters })
            }
        }
    }
}

fn parameters<'a>(mut reader: Reader<'a>) -> Result<Vec<(&'a str, &'a str)>, Malformed> {
    let mut parameters = Vec::new();
    loop {
        if reader.is_empty() {
            return Err(reader.malformed());
        }
        let name = reader.utf8()?;
        if name.is_empty() {
            reader.end()?;
            return Ok(parameters);
        }
        parameters.push((name, reader.utf8()?));
    }
}

pub(crate) fn cancel_request_code() -> u32 {
    CANCEL_REQUEST_CODE
}

pub(crate) fn ssl_request_code() -> u32 {
    SSL_REQUEST_CODE
}
