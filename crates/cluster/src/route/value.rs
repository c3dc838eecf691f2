//! The values of a key, and who owns them all.

use std::borrow::Cow;

use super::{Parameter, Values, Why};
use crate::key::{KeyType, UNTYPED, oid};
use crate::statement::{Operand, Source};
use crate::topology::{Group, Hashed};

/// The values of a table's key that have been met.
pub(super) struct Owners<'a> {
    hashed: &'a Hashed,
    values: &'a dyn Values,
    owner: Option<(Group, Option<String>)>,
}

impl<'a> Owners<'a> {
    pub fn new(hashed: &'a Hashed, values: &'a dyn Values) -> Self {
        Self { hashed, values, owner: None }
    }

    /// Whose all of them are, and the first one as a text.
    pub fn owner(self) -> Result<(Group, Option<String>), Why> {
        self.owner.ok_or(Why::NoKey)
    }

    pub fn add(&mut self, operand: Operand) -> Result<(), Why> {
        let key = self.hashed.key.ok_or(Why::KeyType)?;
        match operand.source {
            Source::Number { literal, is_negative } => self.number(key, operand.cast, literal, is_negative),
            Source::Text(literal) => {
                let literal = self.values.literal(literal.into()).ok_or(Why::KeyUnknown)?;
                self.text(key, operand.cast, &unquoted(literal).ok_or(Why::KeyUnknown)?)
            }
            Source::Texts(literal) => {
                let literal = self.values.literal(literal.into()).ok_or(Why::KeyUnknown)?;
                self.texts(key, operand.cast, &unquoted(literal).ok_or(Why::KeyUnknown)?)
            }
            Source::Parameter(number) => self.parameter(key, operand.cast, self.bound(number)?),
            Source::Parameters(number) => self.parameters(key, operand.cast, self.bound(number)?),
        }
    }

    fn bound(&self, number: u16) -> Result<Parameter<'a>, Why> {
        self.values.parameter(number.into()).ok_or(Why::KeyUnknown)
    }

    /// `text` is what it is called in messages.
    fn hash(&mut self, hash: Option<i32>, text: Option<&str>) -> Result<(), Why> {
        let group = hash.and_then(|hash| self.hashed.owner(hash)).ok_or(Why::KeyUnknown)?;
        match &self.owner {
            Some((owner, _)) if *owner != group => return Err(Why::TwoOwners),
            Some(_) => {}
            None => self.owner = Some((group, text.map(str::to_owned))),
        }
        Ok(())
    }

    fn number(&mut self, key: KeyType, cast: u32, literal: u16, is_negative: bool) -> Result<(), Why> {
        let digits = self.values.literal(literal.into()).ok_or(Why::KeyUnknown)?;
        let text = if is_negative { Cow::Owned(format!("-{digits}")) } else { Cow::Borrowed(digits) };
        self.hash(key.hash_of_number(&text).filter(|_| key.takes(cast)), Some(&text))
    }

    fn text(&mut self, key: KeyType, type_oid: u32, text: &str) -> Result<(), Why> {
        self.hash(key.hash_of_text(text).filter(|_| key.takes(type_oid)), Some(text))
    }

    fn parameter(&mut self, key: KeyType, cast: u32, parameter: Parameter<'_>) -> Result<(), Why> {
        let value = parameter.value.ok_or(Why::KeyUnknown)?;
        let type_oid = effective(key, cast, parameter.type_oid).ok_or(Why::KeyUnknown)?;
        let is_text = [oid::TEXT, oid::VARCHAR].contains(&parameter.type_oid);
        if parameter.is_binary && !(is_text && cast != 0) {
            return self.hash(key.hash_of_binary(type_oid, value), shown(type_oid, value).as_deref());
        }
        self.text(key, type_oid, std::str::from_utf8(value).map_err(|_| Why::KeyUnknown)?)
    }

    fn parameters(&mut self, key: KeyType, cast: u32, parameter: Parameter<'_>) -> Result<(), Why> {
        let value = parameter.value.filter(|_| !parameter.is_binary).ok_or(Why::KeyUnknown)?;
        let type_oid = element(parameter.type_oid).and_then(|of_type| effective(key, cast, of_type));
        self.texts(key, type_oid.ok_or(Why::KeyUnknown)?, std::str::from_utf8(value).map_err(|_| Why::KeyUnknown)?)
    }

    /// An array's elements, none of which is in quotes.
    fn texts(&mut self, key: KeyType, type_oid: u32, array: &str) -> Result<(), Why> {
        let elements = array.strip_prefix('{').and_then(|array| array.strip_suffix('}')).ok_or(Why::KeyUnknown)?;
        if elements.contains(['{', '}', '"', '\\']) {
            return Err(Why::KeyUnknown);
        }
        for element in elements.split(',') {
            let element = element.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
            if element.is_empty() || element.eq_ignore_ascii_case("null") {
                return Err(Why::KeyUnknown);
            }
            self.text(key, type_oid, element)?;
        }
        Ok(())
    }
}

/// The type that the key is compared with: that of the parameter, or of its cast.
fn effective(key: KeyType, cast: u32, declared: u32) -> Option<u32> {
    let is_text = [oid::TEXT, oid::VARCHAR].contains(&declared);
    let of_type = if cast != 0 && (is_text || UNTYPED.contains(&declared)) { cast } else { declared };
    (key.takes(of_type) && key.takes(cast)).then_some(of_type)
}

/// The type of an array's elements; `None`: it is not known.
fn element(array: u32) -> Option<u32> {
    Some(match array {
        _ if UNTYPED.contains(&array) => 0,
        1005 => oid::INT2,
        1007 => oid::INT4,
        1016 => oid::INT8,
        1009 => oid::TEXT,
        1015 => oid::VARCHAR,
        1182 => oid::DATE,
        2951 => oid::UUID,
        _ => return None,
    })
}

/// A string without its quotes.
fn unquoted(literal: &str) -> Option<Cow<'_, str>> {
    let inside = literal.strip_prefix('\'')?.strip_suffix('\'')?;
    Some(if inside.contains('\'') { inside.replace("''", "'").into() } else { inside.into() })
}

/// A value in binary format, as far as it is read at a glance.
fn shown(type_oid: u32, value: &[u8]) -> Option<String> {
    match (type_oid, value) {
        (oid::TEXT | oid::VARCHAR | oid::BPCHAR, _) => std::str::from_utf8(value).ok().map(str::to_owned),
        (_, [a, b]) => Some(i16::from_be_bytes([*a, *b]).to_string()),
        (oid::DATE, _) => None,
        (_, [a, b, c, d]) => Some(i32::from_be_bytes([*a, *b, *c, *d]).to_string()),
        (oid::INT8, _) => value.try_into().ok().map(|bytes| i64::from_be_bytes(bytes).to_string()),
        _ => None,
    }
}
