//! What is stored about a user's password, in the three forms that an auth_file line or
//! `pg_authid.rolpassword` may have. Owns their text form and keeps them out of every `Debug`.
//!
//! Does not know files or queries; and does not verify anything (see `plain`, `md5`, `scram_server`).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Length of every key of SCRAM-SHA-256 (SCRAM_KEY_LEN in PostgreSQL).
pub(super) const KEY_LENGTH_BYTES: usize = 32;

/// A stored secret.
///
/// Equality is for seeing whether a reload changed it, and takes no care of time: a login is
/// verified by the functions of this module's siblings, never by `==`.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The password itself.
    Plain(Arc<str>),
    /// The 32 hexadecimal digits that follow "md5": md5(password || user).
    Md5([u8; 32]),
    /// What SCRAM-SHA-256 needs to check a login, which is not enough to log in elsewhere.
    Scram(ScramVerifier),
}

impl Secret {
    /// Recognises the form as PgBouncer and PostgreSQL's `get_password_type` do: whatever is not
    /// exactly one of the two hashed forms is a password.
    pub fn parse(text: &str) -> Self {
        if let Some(hash) = parse_md5(text) {
            return Self::Md5(hash);
        }
        match ScramVerifier::parse(text) {
            Some(verifier) => Self::Scram(verifier),
            None => Self::Plain(text.into()),
        }
    }

    /// As it is read again.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Plain(password) => password.to_string(),
            Self::Md5(hash) => format!("md5{}", String::from_utf8_lossy(hash)),
            Self::Scram(verifier) => verifier.to_string(),
        }
    }

    /// Whether this is the empty password, with which PgBouncer and PostgreSQL let nobody in.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Plain(password) if password.is_empty())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Secret(plain)",
            Self::Md5(_) => "Secret(md5)",
            Self::Scram(_) => "Secret(scram)",
        })
    }
}

/// "md5" and 32 lower-case hexadecimal digits; MD5_PASSWD_CHARSET in PostgreSQL's
/// `src/include/common/md5.h` has no upper-case ones.
fn parse_md5(text: &str) -> Option<[u8; 32]> {
    let hash: [u8; 32] = text.strip_prefix("md5")?.as_bytes().try_into().ok()?;
    hash.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')).then_some(hash)
}

/// The server's half of a SCRAM-SHA-256 password.
///
/// `Display` writes PostgreSQL's form, which is a secret itself: for an auth_file, never for a log.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    /// How often the password was hashed; at least 1.
    pub iterations: u32,
    /// The raw salt.
    pub salt: Vec<u8>,
    /// H(ClientKey): checks a client's proof.
    pub stored_key: [u8; KEY_LENGTH_BYTES],
    /// Signs what the server answers.
    pub server_key: [u8; KEY_LENGTH_BYTES],
}

impl ScramVerifier {
    /// `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`, the last three in base64;
    /// `parse_scram_secret` in PostgreSQL's `auth-scram.c`.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("SCRAM-SHA-256$")?;
        let (parameters, keys) = rest.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let salt = BASE64.decode(salt).ok()?;
        if salt.is_empty() {
            return None;
        }
        Some(Self {
            iterations: parse_iterations(iterations.as_bytes())?,
            salt,
            stored_key: decode_key(stored_key.as_bytes())?,
            server_key: decode_key(server_key.as_bytes())?,
        })
    }
}

/// A positive decimal number that fits PostgreSQL's `int`, digits only.
pub(super) fn parse_iterations(digits: &[u8]) -> Option<u32> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: i32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    u32::try_from(number).ok().filter(|&number| number > 0)
}

/// The base64 of exactly one key, proof or signature.
pub(super) fn decode_key(encoded: &[u8]) -> Option<[u8; KEY_LENGTH_BYTES]> {
    BASE64.decode(encoded).ok()?.try_into().ok()
}

impl fmt::Display for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SCRAM-SHA-256${}:{}${}:{}",
            self.iterations,
            BASE64.encode(&self.salt),
            BASE64.encode(self.stored_key),
            BASE64.encode(self.server_key)
        )
    }
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramVerifier(hidden)")
    }
}

/// The keys with which a client proves itself and knows its server: as good as the password for
/// every server that has the same salt and iteration count.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramKeys {
    /// What the proof hides.
    pub client_key: [u8; KEY_LENGTH_BYTES],
    /// What the server signs with.
    pub server_key: [u8; KEY_LENGTH_BYTES],
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramKeys(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "md5a3556571e93b0d20722ba62be61e8c2d";
    const SCRAM: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    #[test]
    fn both_hashed_forms_are_recognised() {
        let Secret::Md5(hash) = Secret::parse(MD5) else { panic!("not md5") };
        assert_eq!(hash, MD5.as_bytes()[3..]);
        let Secret::Scram(verifier) = Secret::parse(SCRAM) else { panic!("not SCRAM") };
        assert_eq!((verifier.iterations, verifier.salt.len()), (4096, 16));
        assert_eq!(verifier.to_string(), SCRAM);
    }

    #[test]
    fn whatever_is_nearly_a_hash_is_a_password() {
        let key = "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=";
        let nearly = [
            String::new(),
            "md5".to_owned(),
            MD5.to_uppercase(),
            MD5.replace('a', "A"),
            MD5.replace('d', "g"),
            MD5[..34].to_owned(),
            format!("{MD5}0"),
            format!(" {MD5}"),
            "SCRAM-SHA-256$".to_owned(),
            SCRAM.to_lowercase(),
            SCRAM.replace("$4096:", "$0:"),
            SCRAM.replace("$4096:", "$-1:"),
            SCRAM.replace("$4096:", "$+1:"),
            SCRAM.replace("$4096:", "$ 1:"),
            SCRAM.replace("$4096:", "$:"),
            SCRAM.replace("$4096:", "$2147483648:"),
            SCRAM.replace("$4096:", "$4096x:"),
            SCRAM.replace("W22Z", "W22"),
            SCRAM.replace("W22ZaJ0SNY7soEsUEjb6gQ==", ""),
            SCRAM.replace(key, ""),
            SCRAM.replace(key, &key[4..]),
            format!("{SCRAM}AAAA"),
            format!("{SCRAM}:{key}"),
            SCRAM.replace(':', ";"),
        ];
        for text in nearly {
            let secret = Secret::parse(&text);
            assert!(secret == Secret::Plain(text.as_str().into()), "{text}: not a password");
        }
    }

    #[test]
    fn only_the_empty_password_is_empty() {
        assert!(Secret::parse("").is_empty());
        assert!(!Secret::parse("x").is_empty());
        assert!(!Secret::parse(MD5).is_empty());
        assert!(!Secret::parse(SCRAM).is_empty());
    }

    #[test]
    fn debug_shows_the_form_only() {
        assert_eq!(format!("{:?}", Secret::parse("open sesame")), "Secret(plain)");
        assert_eq!(format!("{:?}", Secret::parse(MD5)), "Secret(md5)");
        assert_eq!(format!("{:#?}", Secret::parse(SCRAM)), "Secret(scram)");
        let verifier = ScramVerifier::parse(SCRAM).unwrap();
        assert_eq!(format!("{verifier:#?}"), "ScramVerifier(hidden)");
        let keys = ScramKeys { client_key: [1; 32], server_key: [2; 32] };
        assert_eq!(format!("{keys:#?}"), "ScramKeys(hidden)");
    }

    #[test]
    fn parsing_damaged_verifiers_never_panics() {
        crate::auth::testing::for_each_mutation(SCRAM.as_bytes(), 5_000, |damaged| {
            if let Secret::Scram(verifier) = Secret::parse(&String::from_utf8_lossy(damaged)) {
                assert_eq!(ScramVerifier::parse(&verifier.to_string()), Some(verifier.clone()));
            }
        });
    }
}
