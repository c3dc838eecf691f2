//! The five bytes before every message but the first of a connection: a tag and a length.

/// A tag byte and a four-byte length that counts itself but not the tag.
pub const HEADER_LEN: usize = 5;

/// A message's header, not yet judged: whether the tag exists, and whether the length is allowed for it, is the
/// caller's next question ([`crate::FrontendTag::from_byte`], [`crate::FrontendTag::body_len_max`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The message's tag byte.
    pub tag: u8,
    /// Bytes after the header. `None` where the length field lies: below 4, or above what fits in 31 bits.
    pub body_len: Option<u32>,
}

impl Header {
    /// The header of the five bytes given.
    #[inline]
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Self {
        let length = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        let body_len = if length <= i32::MAX as u32 { length.checked_sub(4) } else { None };
        Self { tag: bytes[0], body_len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_counts_itself() {
        assert_eq!(Header::parse(b"Z\0\0\0\x05"), Header { tag: b'Z', body_len: Some(1) });
    }

    #[test]
    fn length_that_lies_is_no_length() {
        for lie in [[0, 0, 0, 0], [0, 0, 0, 3], [0x80, 0, 0, 0], [0xff; 4]] {
            let bytes = [b'Q', lie[0], lie[1], lie[2], lie[3]];
            assert_eq!(Header::parse(&bytes).body_len, None, "{lie:?}");
        }
    }
}
