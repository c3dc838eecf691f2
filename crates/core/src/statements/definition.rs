//! A statement's definition as bytes: its text, a zero, and the types of its parameters, as a Parse has them.

use std::ffi::CStr;

/// The text of a statement's definition, which the types of its parameters follow.
pub(crate) fn text_of(definition: &[u8]) -> &[u8] {
    CStr::from_bytes_until_nul(definition).map_or(definition, CStr::to_bytes)
}
