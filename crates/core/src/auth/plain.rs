//! The check of a password that came in clear (AuthenticationCleartextPassword), against any form of
//! secret. `plain_crypt_verify` in PostgreSQL's `src/backend/libpq/crypt.c`.
//!
//! Does not run PBKDF2: it says what is to be derived, and [`ScramVerifier::matches_salted`] ends it.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::md5::md5_stored;
use super::scram;
use super::secret::{ScramVerifier, Secret};

/// What is known of a password before any slow derivation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainCheck {
    /// The password is right.
    Accepted,
    /// The password is wrong.
    Rejected,
    /// Run `salted_password(password, &salt, iterations)` off the worker, then ask
    /// [`ScramVerifier::matches_salted`].
    NeedsDerivation {
        /// The verifier's salt.
        salt: Vec<u8>,
        /// The verifier's iteration count.
        iterations: u32,
    },
}

/// Checks `password`, without its closing zero byte. As in PostgreSQL's `recv_password_packet`, an
/// empty one is never right.
pub fn verify_plain(secret: &Secret, user: &str, password: impl AsRef<[u8]>) -> PlainCheck {
    let password = password.as_ref();
    let matches = match secret {
        Secret::Plain(expected) => equal_in_constant_time(expected.as_bytes(), password),
        Secret::Md5(expected) => expected.ct_eq(&md5_stored(user, password)).into(),
        Secret::Scram(verifier) => {
            return PlainCheck::NeedsDerivation { salt: verifier.salt.clone(), iterations: verifier.iterations };
        }
    };
    if matches && !password.is_empty() { PlainCheck::Accepted } else { PlainCheck::Rejected }
}

/// Compares digests, since comparing the passwords themselves would tell whether their lengths agree.
fn equal_in_constant_time(expected: &[u8], password: &[u8]) -> bool {
    Sha256::digest(expected).as_slice().ct_eq(Sha256::digest(password).as_slice()).into()
}

impl ScramVerifier {
    /// Whether the derived password is this verifier's. PostgreSQL's `scram_verify_plain_password`
    /// compares the ServerKey, and so do we.
    pub fn matches_salted(&self, salted_password: &[u8; 32]) -> bool {
        self.server_key.ct_eq(&scram::server_key(salted_password)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::scram::salted_password;
    use super::*;

    #[test]
    fn plain_and_md5_are_decided_at_once() {
        let md5 = Secret::Md5(md5_stored("alice", "wonder"));
        for secret in [Secret::Plain("wonder".into()), md5] {
            assert_eq!(verify_plain(&secret, "alice", "wonder"), PlainCheck::Accepted);
            for wrong in ["", "wonde", "wonder ", "wonderwonder", "WONDER"] {
                assert_eq!(verify_plain(&secret, "alice", wrong), PlainCheck::Rejected);
            }
        }
    }

    #[test]
    fn the_empty_password_is_never_right() {
        for secret in [Secret::Plain("".into()), Secret::Md5(md5_stored("alice", ""))] {
            assert_eq!(verify_plain(&secret, "alice", ""), PlainCheck::Rejected);
        }
    }

    #[test]
    fn a_hash_is_not_a_password() {
        let hash = md5_stored("alice", "wonder");
        let secret = Secret::Md5(hash);
        assert_eq!(verify_plain(&secret, "alice", hash), PlainCheck::Rejected);
        assert_eq!(verify_plain(&secret, "bob", "wonder"), PlainCheck::Rejected);
    }

    #[test]
    fn scram_asks_for_a_derivation_and_then_decides() {
        let verifier = ScramVerifier::from_salted(&salted_password("pencil", b"salt", 7), b"salt", 7);
        let secret = Secret::Scram(verifier.clone());
        let expected = PlainCheck::NeedsDerivation { salt: b"salt".to_vec(), iterations: 7 };
        assert_eq!(verify_plain(&secret, "alice", "pencil"), expected);
        assert!(verifier.matches_salted(&salted_password("pencil", b"salt", 7)));
        assert!(!verifier.matches_salted(&salted_password("pencils", b"salt", 7)));
        assert!(!verifier.matches_salted(&salted_password("pencil", b"salt", 8)));
        assert!(!verifier.matches_salted(&salted_password("pencil", b"tlas", 7)));
    }

    #[test]
    fn passwords_need_not_be_utf8() {
        let secret = Secret::Plain("wonder".into());
        assert_eq!(verify_plain(&secret, "alice", b"\xff\xfe"), PlainCheck::Rejected);
    }
}
