//! Authentication building blocks for both sides of the pooler: what a stored secret is, and the
//! plain, md5 and SCRAM-SHA-256 computations on it.
//!
//! Everything here is a pure function or a value that is consumed by the next message (a state that
//! a message does not fit cannot be written down). Nonces and salts are handed in by the caller, and
//! so is the hash of the TLS certificate. What is slow (PBKDF2, thousands of HMACs) is one function,
//! [`salted_password`], that nothing else in here calls: a worker asks for it to be run elsewhere,
//! and goes on with the 32 bytes that come back.
//!
//! Knows nothing of: sessions, the framing of messages (`AuthenticationSASL` and its kin belong to
//! wire), files, time, and who the users are.
//!
//! The rules are those of RFC 5802, RFC 7677 and PostgreSQL 17's `src/backend/libpq/auth-scram.c`,
//! `src/interfaces/libpq/fe-auth-scram.c`, `src/backend/libpq/crypt.c` and `src/common/saslprep.c`.

mod error;
mod md5;
mod plain;
mod saslprep;
mod scram;
mod scram_client;
mod scram_message;
mod scram_server;
mod secret;

pub use error::AuthError;
pub use md5::{md5_response, md5_stored, verify_md5};
pub use plain::{PlainCheck, verify_plain};
pub(crate) use scram::hmac_sha256;
pub use scram::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, SERVER_ITERATIONS_MAX, Salting, encode_nonce, salted_password,
};
pub use scram_client::{ClientFinalPending, ClientFirst, Credentials, ServerVerify};
pub use scram_server::{SALT_LENGTH_BYTES, ServerFinal, ServerFirst, keyed_number, mock_salt, mock_verifier};
pub use secret::{ScramKeys, ScramVerifier, Secret};

/// What the tests of several files here share.
#[cfg(test)]
pub(crate) mod testing {
    /// Calls `check` with `count` damaged copies of `message`: bytes replaced, removed, inserted,
    /// doubled, and cut at both ends. The same seed gives the same copies.
    pub fn for_each_mutation(message: &[u8], count: usize, mut check: impl FnMut(&[u8])) {
        let mut state: u64 = 0x5eed_cafe_f00d_0001;
        let mut below = |limit: usize| {
            // Marsaglia's xorshift64: enough for choosing damage.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % limit.max(1) as u64) as usize
        };
        let interesting = b",=nypcrsivmea\0\xff 0-9";
        for _ in 0..count {
            let mut damaged = message.to_vec();
            for _ in 0..=below(4) {
                let at = below(damaged.len() + 1);
                let byte = match below(2) {
                    0 => interesting[below(interesting.len())],
                    _ => below(256) as u8,
                };
                match below(5) {
                    0 if at < damaged.len() => damaged[at] = byte,
                    1 if at < damaged.len() => drop(damaged.remove(at)),
                    2 => damaged.insert(at, byte),
                    3 => damaged.truncate(at),
                    _ => damaged.extend_from_within(..at),
                }
            }
            check(&damaged);
        }
    }
}
