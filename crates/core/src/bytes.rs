//! Bytes as text in base64, for what is written down as JSON (`passport.rs`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<S: Serializer>(bytes: &impl AsRef<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
    BASE64.encode(bytes).serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: From<Vec<u8>>>(deserializer: D) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64.decode(text).map(T::from).map_err(D::Error::custom)
}
