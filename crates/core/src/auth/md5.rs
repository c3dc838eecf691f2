//! PostgreSQL's md5 authentication: the stored hash, the salted response to AuthenticationMD5Password,
//! and its check. `src/common/md5_common.c` and `md5_crypt_verify` in `src/backend/libpq/crypt.c`.
//!
//! Does not know where the salt comes from.

use md5::{Digest as _, Md5};
use subtle::ConstantTimeEq as _;

use super::secret::Secret;

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// md5(password || user) in hexadecimal: what is stored, without its "md5" in front.
pub fn md5_stored(user: &str, password: impl AsRef<[u8]>) -> [u8; 32] {
    md5_hex(password.as_ref(), user.as_bytes())
}

/// The password of PasswordMessage: "md5" || md5(stored || salt).
pub fn md5_response(stored_hex: &[u8; 32], salt: [u8; 4]) -> String {
    let mut response = String::with_capacity(35);
    response.push_str("md5");
    response.extend(md5_hex(stored_hex, &salt).map(char::from));
    response
}

/// Whether `response`, without its closing zero byte, answers `salt`. A SCRAM verifier cannot tell,
/// so the answer is no; and no empty password is ever right.
pub fn verify_md5(secret: &Secret, user: &str, salt: [u8; 4], response: &[u8]) -> bool {
    let stored = match secret {
        Secret::Plain(password) => md5_stored(user, password.as_bytes()),
        Secret::Md5(stored) => *stored,
        Secret::Scram(_) => return false,
    };
    let matches = md5_response(&stored, salt).as_bytes().ct_eq(response);
    bool::from(matches) && !secret.is_empty()
}

fn md5_hex(first: &[u8], second: &[u8]) -> [u8; 32] {
    let digest: [u8; 16] = Md5::new().chain_update(first).chain_update(second).finalize().into();
    let mut hex = [0; 32];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(digest) {
        pair[0] = HEX_DIGITS[usize::from(byte >> 4)];
        pair[1] = HEX_DIGITS[usize::from(byte & 0x0f)];
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::super::secret::ScramVerifier;
    use super::*;

    const SALT: [u8; 4] = [0x01, 0x02, 0xfe, 0xff];

    #[test]
    fn hashes_are_those_of_postgresql() {
        // SELECT md5('postgrespostgres') in PostgreSQL 15.
        assert_eq!(&md5_stored("postgres", "postgres"), b"3175bce1d3201d16594cebf9d7eb3f9d");
        // RFC 1321, appendix A.5: md5("abc").
        assert_eq!(&md5_stored("c", "ab"), b"900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(&md5_stored("", ""), b"d41d8cd98f00b204e9800998ecf8427e");
    }

    #[test]
    fn response_is_the_salted_hash_of_the_stored_one() {
        // The same PostgreSQL's md5(convert_to(md5('postgrespostgres'), 'UTF8') || '\x0102feff').
        let stored = md5_stored("postgres", "postgres");
        assert_eq!(md5_response(&stored, SALT), "md5448dff32689248fb5636ac1de213ddc6");
    }

    #[test]
    fn plain_and_md5_secrets_accept_the_same_response() {
        let stored = md5_stored("alice", "wonder");
        let response = md5_response(&stored, SALT);
        for secret in [Secret::Plain("wonder".into()), Secret::Md5(stored)] {
            assert!(verify_md5(&secret, "alice", SALT, response.as_bytes()));
            assert!(!verify_md5(&secret, "alice", [0; 4], response.as_bytes()));
            assert!(!verify_md5(&secret, "alice", SALT, &response.as_bytes()[..34]));
            assert!(!verify_md5(&secret, "alice", SALT, &response.as_bytes()[3..]));
            assert!(!verify_md5(&secret, "alice", SALT, response.to_uppercase().as_bytes()));
            assert!(!verify_md5(&secret, "alice", SALT, b""));
            assert!(!verify_md5(&secret, "alice", SALT, b"wonder"));
        }
        // The user's name is part of the hash.
        let secret = Secret::Plain("wonder".into());
        assert!(!verify_md5(&secret, "bob", SALT, response.as_bytes()));
    }

    #[test]
    fn empty_passwords_and_scram_verifiers_never_pass() {
        let response = md5_response(&md5_stored("alice", ""), SALT);
        let empty = Secret::Plain("".into());
        assert!(!verify_md5(&empty, "alice", SALT, response.as_bytes()));
        let verifier = ScramVerifier { iterations: 1, salt: vec![0], stored_key: [0; 32], server_key: [0; 32] };
        assert!(!verify_md5(&Secret::Scram(verifier), "alice", SALT, response.as_bytes()));
    }
}
