//! The value of a distribution column, and its hash.
//!
//! A value is hashed as PostgreSQL would store it in the column. Where that depends on a setting (`DateStyle`, `TimeZone`), or on more than a glance
//! at the text tells, there is no hash: what has none goes to a node that knows.

use crate::hash;

/// The types of a distribution column whose hash is known here. Enums are not among them: their hash is that of a label's OID, which differs from
/// node to node, so that Citus itself finds other shards on each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyType {
    Int2,
    Int4,
    Int8,
    Oid,
    Bool,
    /// `varchar`, too; of so many characters at most, where it says so.
    Text {
        longest: Option<u32>,
    },
    /// `char(n)`.
    Padded,
    Bytes,
    Uuid,
    Date,
    Timestamp,
    TimestampTz,
}

/// Types' OIDs, as a Bind's values are typed (src/include/catalog/pg_type.dat).
pub(crate) mod oid {
    pub const BOOL: u32 = 16;
    pub const BYTEA: u32 = 17;
    pub const INT8: u32 = 20;
    pub const INT2: u32 = 21;
    pub const INT4: u32 = 23;
    pub const TEXT: u32 = 25;
    pub const OID: u32 = 26;
    pub const BPCHAR: u32 = 1042;
    pub const VARCHAR: u32 = 1043;
    pub const DATE: u32 = 1082;
    pub const TIMESTAMP: u32 = 1114;
    pub const TIMESTAMPTZ: u32 = 1184;
    pub const UUID: u32 = 2950;
}

/// What binds a parameter whose type is left to PostgreSQL (0, or `unknown`): it gets the column's.
pub(crate) const UNTYPED: [u32; 2] = [0, 705];

impl KeyType {
    /// By its name in `pg_catalog`, and what a column's definition says behind it in parentheses.
    pub fn named(name: &str, modifier: Option<u32>) -> Option<Self> {
        Some(match name {
            "int2" => Self::Int2,
            "int4" => Self::Int4,
            "int8" => Self::Int8,
            "oid" => Self::Oid,
            "bool" => Self::Bool,
            "text" => Self::Text { longest: None },
            "varchar" => Self::Text { longest: modifier },
            "bpchar" => Self::Padded,
            "bytea" => Self::Bytes,
            "uuid" => Self::Uuid,
            "date" => Self::Date,
            // Of fewer digits: what is stored is rounded.
            "timestamp" if modifier.is_none() => Self::Timestamp,
            "timestamptz" if modifier.is_none() => Self::TimestampTz,
            _ => return None,
        })
    }

    /// Of a number as a statement says it: digits, a sign before them.
    pub fn hash_of_number(self, text: &str) -> Option<i32> {
        // Another type's column is compared with it by a cast that this is not, or not at all.
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8 | Self::Oid).then(|| self.hash_of_text(text)).flatten()
    }

    /// Of a text in the server's encoding: a string in a statement that has no type of its own, or a parameter in text format.
    pub fn hash_of_text(self, text: &str) -> Option<i32> {
        match self {
            Self::Int2 | Self::Int4 | Self::Int8 | Self::Oid => self.hash_of_integer(integer(text)?),
            Self::Bool => boolean(text).map(|value| hash::word(u32::from(value))),
            Self::Text { longest } => fits(text, longest).then(|| hash::bytes(text.as_bytes())),
            Self::Padded => Some(hash::bytes(text.trim_end_matches(' ').as_bytes())),
            Self::Uuid => uuid(text).map(|bytes| hash::bytes(&bytes)),
            Self::Date => date(text).map(hash::integer),
            Self::Timestamp => timestamp(text).map(hash::integer),
            // Of a zone that is not said it is the session's; of one that is, it may be a name.
            Self::TimestampTz => timestamp(text.strip_suffix("+00")?).map(hash::integer),
            // In one of two formats, with escapes.
            Self::Bytes => None,
        }
    }

    /// A value of that type is compared with the column's as it is, or means the same in the column's (0: it takes the column's).
    pub fn takes(self, type_oid: u32) -> bool {
        let alike: &[u32] = match self {
            Self::Int2 | Self::Int4 | Self::Int8 => &[oid::INT2, oid::INT4, oid::INT8],
            Self::Oid => &[oid::OID],
            Self::Bool => &[oid::BOOL],
            Self::Text { .. } => &[oid::TEXT, oid::VARCHAR],
            Self::Padded => &[oid::BPCHAR],
            Self::Bytes => &[oid::BYTEA],
            Self::Uuid => &[oid::UUID],
            Self::Date => &[oid::DATE],
            Self::Timestamp => &[oid::TIMESTAMP],
            Self::TimestampTz => &[oid::TIMESTAMPTZ],
        };
        UNTYPED.contains(&type_oid) || alike.contains(&type_oid)
    }

    /// Of a parameter in binary format, whose client says what type it has (0: the column's).
    pub fn hash_of_binary(self, type_oid: u32, value: &[u8]) -> Option<i32> {
        let own = UNTYPED.contains(&type_oid);
        match self {
            Self::Int2 | Self::Int4 | Self::Int8 => {
                let width = match (self, type_oid) {
                    (_, oid::INT2) => 2,
                    (_, oid::INT4) => 4,
                    (_, oid::INT8) => 8,
                    (Self::Int2, _) if own => 2,
                    (Self::Int4, _) if own => 4,
                    (Self::Int8, _) if own => 8,
                    _ => return None,
                };
                (value.len() == width).then(|| self.hash_of_integer(signed(value))).flatten()
            }
            Self::Oid => (own && value.len() == 4).then(|| hash::word(signed(value) as u32)),
            Self::Bool => match value {
                [value @ (0 | 1)] if own || type_oid == oid::BOOL => Some(hash::word(u32::from(*value))),
                _ => None,
            },
            Self::Text { .. } | Self::Padded => {
                let is_text = own || [oid::TEXT, oid::VARCHAR, oid::BPCHAR].contains(&type_oid);
                // A value of `char(n)` loses its blanks where it meets a text.
                let is_alike = (type_oid == oid::BPCHAR) == (self == Self::Padded) || own;
                let text = std::str::from_utf8(value).ok().filter(|_| is_text && is_alike)?;
                self.hash_of_text(text)
            }
            Self::Bytes => (own || type_oid == oid::BYTEA).then(|| hash::bytes(value)),
            Self::Uuid => (value.len() == 16 && (own || type_oid == oid::UUID)).then(|| hash::bytes(value)),
            Self::Date => (value.len() == 4 && (own || type_oid == oid::DATE)).then(|| hash::integer(signed(value))),
            Self::Timestamp | Self::TimestampTz => {
                let of_type = if self == Self::Timestamp { oid::TIMESTAMP } else { oid::TIMESTAMPTZ };
                (value.len() == 8 && (own || type_oid == of_type)).then(|| hash::integer(signed(value)))
            }
        }
    }

    /// Of an integer that the column can hold.
    fn hash_of_integer(self, value: i64) -> Option<i32> {
        match self {
            Self::Int2 => i16::try_from(value).ok().map(|value| hash::integer(value.into())),
            Self::Int4 => i32::try_from(value).ok().map(|value| hash::integer(value.into())),
            Self::Int8 => Some(hash::integer(value)),
            Self::Oid => u32::try_from(value).ok().map(hash::word),
            _ => None,
        }
    }
}

/// Big-endian, of at most eight bytes.
fn signed(bytes: &[u8]) -> i64 {
    let first = bytes.first().map_or(0, |byte| i64::from(*byte as i8));
    bytes.iter().skip(1).fold(first, |value, byte| value << 8 | i64::from(*byte))
}

/// Decimal digits with a sign, and blanks around them: every release reads these alike (`pg_strtoint64_safe`, src/backend/utils/adt/numutils.c).
fn integer(text: &str) -> Option<i64> {
    let text = text.trim_matches(' ');
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "t" | "true" => Some(true),
        "f" | "false" => Some(false),
        _ => None,
    }
}

/// What is longer loses its blanks where it is stored, or is refused.
fn fits(text: &str, longest: Option<u32>) -> bool {
    longest.is_none_or(|longest| text.chars().count() <= longest as usize)
}

/// In the form that PostgreSQL writes.
fn uuid(text: &str) -> Option<[u8; 16]> {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    let is_shaped = text.len() == 36 && DASHES.iter().all(|place| text.as_bytes()[*place] == b'-');
    if !is_shaped {
        return None;
    }
    let mut bytes = [0; 16];
    let mut digits = text.bytes().enumerate().filter(|(place, _)| !DASHES.contains(place)).map(|(_, digit)| digit);
    for byte in &mut bytes {
        for _ in 0..2 {
            *byte = *byte << 4 | (digits.next()? as char).to_digit(16)? as u8;
        }
    }
    Some(bytes)
}

/// Days since 2000, of `YYYY-MM-DD`, which every `DateStyle` reads alike.
fn date(text: &str) -> Option<i64> {
    let [year, month, day] = fields(text, [4, 2, 2], '-')?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let of_month = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap),
        1..=12 => 31,
        _ => return None,
    };
    if year == 0 || !(1..=of_month).contains(&day) {
        return None;
    }
    Some(days(year, month, day) - days(2000, 1, 1))
}

/// Since some day, in the Gregorian calendar: years begin in March, so that a leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day
}

/// Microseconds since 2000, of `YYYY-MM-DD HH:MM:SS`, and up to six more digits.
fn timestamp(text: &str) -> Option<i64> {
    let (day, time) = text.split_once(' ')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = fields(time, [2, 2, 2], ':')?;
    let is_plain = (1..=6).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let micros = fraction.parse::<i64>().ok()? * 10_i64.pow(6 - fraction.len() as u32);
    Some((((date(day)? * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros)
}

/// Numbers of so many digits each.
fn fields(text: &str, widths: [usize; 3], between: char) -> Option<[i64; 3]> {
    let mut parts = text.split(between);
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next().filter(|part| part.len() == width && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_hashed_as_the_column_would_hold_them() {
        let known = [
            (KeyType::Int4, " -1 ", 385_747_274),
            (KeyType::Int2, "+1", -1_905_060_026),
            (KeyType::Int8, "4294967296", -1_905_060_026),
            (KeyType::Bool, "t", -1_905_060_026),
            (KeyType::Bool, "false", -272_711_505),
            (KeyType::Text { longest: None }, "abc", -785_388_649),
            (KeyType::Text { longest: Some(3) }, "abc", -785_388_649),
            (KeyType::Padded, "abc  ", -785_388_649),
            (KeyType::Uuid, "123E4567-e89b-12d3-a456-426614174000", 1_944_658_063),
        ];
        for (key, text, hash) in known {
            assert_eq!(key.hash_of_text(text), Some(hash), "{key:?} {text}");
        }
    }

    #[test]
    fn what_is_not_plain_has_no_hash() {
        let unknown = [
            (KeyType::Int4, "1e3"),
            (KeyType::Int4, "0x10"),
            (KeyType::Int4, "1_000"),
            (KeyType::Int4, ""),
            (KeyType::Int4, "2147483648"),
            (KeyType::Int2, "32768"),
            (KeyType::Bool, "yes"),
            (KeyType::Text { longest: Some(3) }, "abc "),
            (KeyType::Uuid, "123e4567e89b12d3a456426614174000"),
            (KeyType::Uuid, "123e4567-e89b-12d3-a456-42661417400g"),
            (KeyType::Date, "01/02/2020"),
            (KeyType::Date, "2021-02-29"),
            (KeyType::Date, "0000-01-01"),
            (KeyType::Timestamp, "2020-01-01"),
            (KeyType::Timestamp, "2020-01-01 24:00:00"),
            (KeyType::Timestamp, "2020-01-01 00:00:60"),
            (KeyType::Timestamp, "2020-01-01 00:00:00.1234567"),
            (KeyType::TimestampTz, "2020-01-01 00:00:00"),
            (KeyType::TimestampTz, "2020-01-01 00:00:00+02"),
            (KeyType::Bytes, "abc"),
        ];
        for (key, text) in unknown {
            assert_eq!(key.hash_of_text(text), None, "{key:?} {text}");
        }
        assert_eq!(KeyType::Text { longest: None }.hash_of_number("1"), None);
        assert_eq!(KeyType::named("timestamp", Some(0)), None);
        assert_eq!(KeyType::named("numeric", None), None);
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        let known = [
            ("2000-01-01", 0),
            ("1999-12-31", -1),
            ("2000-02-29", 59),
            ("2000-03-01", 60),
            ("1970-01-01", -10_957),
            ("9999-12-31", 2_921_939),
        ];
        for (text, days) in known {
            assert_eq!(date(text), Some(days), "{text}");
        }
        assert_eq!(timestamp("2000-01-02 00:00:01.5"), Some(86_401_500_000));
    }

    #[test]
    fn a_binary_value_is_of_a_type_that_says_the_same() {
        assert_eq!(KeyType::Int8.hash_of_binary(oid::INT4, &1_i32.to_be_bytes()), Some(-1_905_060_026));
        assert_eq!(KeyType::Int4.hash_of_binary(oid::INT8, &(-1_i64).to_be_bytes()), Some(385_747_274));
        assert_eq!(KeyType::Int4.hash_of_binary(0, &1_i32.to_be_bytes()), Some(-1_905_060_026));
        assert_eq!(KeyType::Int4.hash_of_binary(oid::INT8, &(1_i64 << 40).to_be_bytes()), None);
        assert_eq!(KeyType::Int4.hash_of_binary(0, &1_i64.to_be_bytes()), None);
        assert_eq!(KeyType::Int4.hash_of_binary(oid::TEXT, b"1"), None);
        assert_eq!(KeyType::Text { longest: None }.hash_of_binary(oid::VARCHAR, b"abc"), Some(-785_388_649));
        assert_eq!(KeyType::Padded.hash_of_binary(oid::TEXT, b"abc"), None);
    }
}
