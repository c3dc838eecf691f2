//! Messages from a frontend (a client, or us towards a server), after startup.

use crate::reader::{Malformed, Reader};

/// Every message a frontend may send after its startup packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrontendTag {
    Bind = b'B',
    Close = b'C',
    CopyData = b'd',
    CopyDone = b'c',
    CopyFail = b'f',
    Describe = b'D',
    Execute = b'E',
    Flush = b'H',
    FunctionCall = b'F',
    Parse = b'P',
    /// PasswordMessage, SASLInitialResponse and SASLResponse share a tag; the exchange tells which one it is.
    Password = b'p',
    Query = b'Q',
    Sync = b'S',
    Terminate = b'X',
}

/// `PQ_SMALL_MESSAGE_LIMIT` of src/include/libpq/libpq.h (PostgreSQL 18): messages that have no reason to be large. It counts the
/// length's own four bytes, too (`pq_getmessage`, src/backend/libpq/pqcomm.c).
pub const SMALL_MESSAGE_LEN_MAX: u32 = 10_000 - 4;
/// Describe and Close. Of a prepared statement PostgreSQL is told another name; what is passed on as it is has to be a small message.
pub const NAMING_MESSAGE_LEN_MAX: u32 = 65_536;
/// `PQ_LARGE_MESSAGE_LIMIT` there: `MaxAllocSize - 1`, one gibibyte less two.
const LARGE_MESSAGE_LEN_MAX: u32 = 0x3fff_fffe;
/// `PG_MAX_AUTH_TOKEN_LENGTH` of src/backend/libpq/auth.c.
pub const AUTH_MESSAGE_LEN_MAX: u32 = 65_535;

impl FrontendTag {
    /// Asks for something to be done, and for an answer ("Message Flow" in the protocol's chapter).
    #[inline]
    pub fn begins_request(self) -> bool {
        use FrontendTag as Tag;
        matches!(
            self,
            Tag::Query | Tag::FunctionCall | Tag::Parse | Tag::Bind | Tag::Describe | Tag::Execute | Tag::Close
        )
    }

    /// The message a tag byte stands for, if there is one.
    #[inline]
    pub fn from_byte(tag: u8) -> Option<Self> {
        Some(match tag {
            b'B' => Self::Bind,
            b'C' => Self::Close,
            b'd' => Self::CopyData,
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail,
            b'D' => Self::Describe,
            b'E' => Self::Execute,
            b'H' => Self::Flush,
            b'F' => Self::FunctionCall,
            b'P' => Self::Parse,
            b'p' => Self::Password,
            b'Q' => Self::Query,
            b'S' => Self::Sync,
            b'X' => Self::Terminate,
            _ => return None,
        })
    }

    /// The longest body that is read of this message: what PostgreSQL accepts (`SocketBackend`, src/backend/tcop/postgres.c), but where it
    /// is not passed on as it is.
    #[inline]
    pub fn body_len_max(self) -> u32 {
        match self {
            Self::Bind | Self::CopyData | Self::FunctionCall | Self::Parse | Self::Query => LARGE_MESSAGE_LEN_MAX,
            Self::Password => AUTH_MESSAGE_LEN_MAX,
            Self::Sync | Self::Flush | Self::Terminate | Self::CopyDone => 0,
            Self::Close | Self::Describe => NAMING_MESSAGE_LEN_MAX,
            Self::Execute | Self::CopyFail => SMALL_MESSAGE_LEN_MAX,
        }
    }
}

/// Parse: a statement's name (empty for the unnamed one), its text, and parameter types as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parse<'a> {
    pub name: &'a [u8],
    /// The text and the types, exactly as they stand after the name: what makes two statements the same one.
    pub definition: &'a [u8],
}

impl<'a> Parse<'a> {
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("Parse message", body);
        let name = reader.cstr()?;
        let definition = &body[name.len() + 1..];
        reader.cstr()?;
        let types = reader.u16()?;
        reader.bytes(usize::from(types) * 4)?;
        reader.end()?;
        Ok(Self { name, definition })
    }

    /// What stands behind the name, of a message that is looked at ahead of its turn: whether all of it is right, `read` says then.
    #[inline]
    pub fn definition_of(body: &'a [u8]) -> Option<&'a [u8]> {
        let name = body.iter().position(|byte| *byte == 0)?;
        Some(&body[name + 1..])
    }
}

/// The two names at the start of a Bind; the values after them are nobody's business but PostgreSQL's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindNames<'a> {
    pub portal: &'a [u8],
    pub statement: &'a [u8],
}

impl<'a> BindNames<'a> {
    /// `None`: the names do not end within `prefix`, more bytes are needed.
    pub fn parse(prefix: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new("Bind message", prefix);
        let portal = reader.cstr().ok()?;
        let statement = reader.cstr().ok()?;
        Some(Self { portal, statement })
    }

    /// Bytes of the body that the names and their terminators take.
    pub fn len(&self) -> usize {
        self.portal.len() + self.statement.len() + 2
    }

    /// Both names are empty: the unnamed statement into the unnamed portal.
    pub fn is_empty(&self) -> bool {
        self.portal.is_empty() && self.statement.is_empty()
    }
}

/// What Describe and Close speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    Statement(&'a [u8]),
    Portal(&'a [u8]),
}

impl<'a> Target<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("Describe or Close message", body);
        let kind = reader.u8()?;
        let name = reader.cstr()?;
        let target = match kind {
            b'S' => Self::Statement(name),
            b'P' => Self::Portal(name),
            _ => return Err(reader.malformed()),
        };
        reader.end()?;
        Ok(target)
    }
}

/// The password of a PasswordMessage, without its terminator. The caller owns its secrecy.
pub fn password(body: &[u8]) -> Result<&[u8], Malformed> {
    let mut reader = Reader::new("PasswordMessage", body);
    let password = reader.cstr()?;
    reader.end()?;
    Ok(password)
}

/// SASLInitialResponse: the mechanism chosen and the first message of the exchange.
pub fn sasl_initial(body: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let mut reader = Reader::new("SASLInitialResponse", body);
    let mechanism = reader.utf8()?;
    let length = reader.u32()?;
    let data = reader.bytes(usize::try_from(length).map_err(|_| reader.malformed())?)?;
    reader.end()?;
    Ok((mechanism, data))
}

/// The text of a simple query, without its terminator.
pub fn query(body: &[u8]) -> Result<&[u8], Malformed> {
    let mut reader = Reader::new("Query message", body);
    let text = reader.cstr()?;
    reader.end()?;
    Ok(text)
}

/// A parameter's value in a Bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundValue<'a> {
    pub is_binary: bool,
    /// `None`: null.
    pub value: Option<&'a [u8]>,
}

/// The values in what follows a Bind's names, as `exec_bind_message` reads them (src/backend/tcop/postgres.c at REL_18_0).
pub fn bind_values(values: &[u8]) -> Result<Vec<BoundValue<'_>>, Malformed> {
    let mut reader = Reader::new("Bind message", values);
    let formats = (0..reader.u16()?).map(|_| reader.u16()).collect::<Result<Vec<_>, _>>()?;
    let count = usize::from(reader.u16()?);
    if formats.len() > 1 && formats.len() != count {
        return Err(reader.malformed());
    }
    let mut bound = Vec::with_capacity(count.min(values.len() / 4));
    for place in 0..count {
        let format = formats.get(place).or(formats.first()).copied().unwrap_or_default();
        let length = reader.u32()?;
        let value = match length {
            u32::MAX => None,
            length => Some(reader.bytes(usize::try_from(length).map_err(|_| reader.malformed())?)?),
        };
        bound.push(BoundValue { is_binary: format != 0, value });
    }
    Ok(bound)
}

/// Whether what follows a Bind's names asks for results in binary; one format for all of them is all we tell apart.
pub fn bind_wants_binary(values: &[u8]) -> Result<bool, Malformed> {
    let mut reader = Reader::new("Bind message", values);
    let formats = reader.u16()?;
    reader.bytes(usize::from(formats) * 2)?;
    let count = reader.u16()?;
    for _ in 0..count {
        let length = reader.u32()?;
        if length != u32::MAX {
            reader.bytes(usize::try_from(length).map_err(|_| reader.malformed())?)?;
        }
    }
    let results = reader.u16()?;
    let mut binary = false;
    for _ in 0..results {
        binary |= reader.u16()? == 1;
    }
    reader.end()?;
    Ok(binary)
}
