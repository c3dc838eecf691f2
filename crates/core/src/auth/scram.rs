//! The arithmetic of SCRAM-SHA-256 (RFC 5802 section 3, RFC 7677) that both sides share, the names of
//! its mechanisms, and what channel binding an exchange has.
//!
//! Does not know the messages (see `scram_message`, `scram_server`, `scram_client`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use super::saslprep::normalised_password;
use super::secret::{KEY_LENGTH_BYTES, ScramKeys, ScramVerifier};

/// The mechanism without channel binding.
pub const SCRAM_SHA_256: &str = "SCRAM-SHA-256";
/// The mechanism with channel binding.
pub const SCRAM_SHA_256_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// The largest iteration count that we derive for a server. PostgreSQL's default is 4 096; this takes
/// a good part of a second, and a server that asks for more only wants us busy.
pub const SERVER_ITERATIONS_MAX: u32 = 1_000_000;

pub(super) type Key = [u8; KEY_LENGTH_BYTES];

/// What ties an exchange to the TLS connection that it runs in (RFC 5929 section 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelBinding {
    /// No TLS, or a certificate for which no hash is defined.
    None,
    /// The hash of the server's certificate, as the TLS layer computed it. Public data.
    TlsServerEndPoint(Vec<u8>),
}

impl ChannelBinding {
    /// What a server with this binding offers in AuthenticationSASL, preferred first.
    pub fn mechanisms(&self) -> &'static [&'static str] {
        match self {
            Self::None => &[SCRAM_SHA_256],
            Self::TlsServerEndPoint(_) => &[SCRAM_SHA_256_PLUS, SCRAM_SHA_256],
        }
    }
}

/// Makes a nonce for the messages of random bytes; PostgreSQL takes 18 (SCRAM_RAW_NONCE_LEN).
pub fn encode_nonce(random: &[u8]) -> String {
    BASE64.encode(random)
}

/// SaltedPassword := Hi(Normalize(password), salt, i): PBKDF2-HMAC-SHA256 of one block. Slow by
/// intention, `iterations` HMACs long; never call it on a worker. A password need not be UTF-8.
pub fn salted_password(password: impl AsRef<[u8]>, salt: &[u8], iterations: u32) -> [u8; KEY_LENGTH_BYTES] {
    let mut salting = Salting::begin(password, salt, iterations);
    loop {
        if let Some(salted) = salting.advance(u32::MAX) {
            return salted;
        }
    }
}

/// A salted password on its way: for whoever has more than one to derive, and does not want the short ones to wait.
pub struct Salting {
    keyed: Hmac<Sha256>,
    round: Key,
    result: Key,
    rounds_left: u32,
}

impl Salting {
    pub fn begin(password: impl AsRef<[u8]>, salt: &[u8], iterations: u32) -> Self {
        let keyed = keyed_hmac(&normalised_password(password.as_ref()));
        // The block's number, big-endian, follows the salt (RFC 8018 section 5.2).
        let round = finish(keyed.clone().chain_update(salt).chain_update([0, 0, 0, 1]));
        Self { keyed, round, result: round, rounds_left: iterations.saturating_sub(1) }
    }

    /// Goes on for so many iterations at most. The result, once it is there.
    pub fn advance(&mut self, iterations: u32) -> Option<[u8; KEY_LENGTH_BYTES]> {
        let rounds = self.rounds_left.min(iterations);
        for _ in 0..rounds {
            self.round = finish(self.keyed.clone().chain_update(self.round));
            self.result = xor(self.result, self.round);
        }
        self.rounds_left -= rounds;
        (self.rounds_left == 0).then_some(self.result)
    }
}

impl ScramVerifier {
    /// The verifier of a derived password, with what it was derived with.
    pub fn from_salted(salted: &[u8; 32], salt: &[u8], iterations: u32) -> Self {
        let keys = ScramKeys::from_salted(salted);
        Self { iterations, salt: salt.to_vec(), stored_key: stored_key(&keys.client_key), server_key: keys.server_key }
    }
}

impl ScramKeys {
    /// The keys of a derived password.
    pub fn from_salted(salted: &[u8; 32]) -> Self {
        Self { client_key: hmac_sha256(salted, &[b"Client Key"]), server_key: server_key(salted) }
    }
}

/// ServerKey := HMAC(SaltedPassword, "Server Key")
pub(super) fn server_key(salted: &Key) -> Key {
    hmac_sha256(salted, &[b"Server Key"])
}

/// StoredKey := H(ClientKey)
pub(super) fn stored_key(client_key: &Key) -> Key {
    Sha256::digest(client_key).into()
}

/// The HMAC of all parts, one behind the other.
pub(crate) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> Key {
    let keyed = keyed_hmac(key);
    finish(parts.iter().fold(keyed, |mac, part| mac.chain_update(part)))
}

pub(super) fn xor(mut left: Key, right: Key) -> Key {
    for (byte, other) in left.iter_mut().zip(right) {
        *byte ^= other;
    }
    left
}

fn keyed_hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes a key of any length (RFC 2104 section 2)")
}

fn finish(mac: Hmac<Sha256>) -> Key {
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn derivation_is_pbkdf2_hmac_sha256() {
        // The vectors of RFC 6070, computed with SHA-256.
        for (iterations, expected) in [
            (1, "120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b"),
            (2, "ae4d0c95af6b46d32d0adff928f06dd02a303f8ef3c251dfd6e2d85a95474c43"),
            (4096, "c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a"),
        ] {
            let derived = salted_password("password", b"salt", iterations);
            assert_eq!(hex(&derived), expected, "{iterations} iterations");
            let mut salting = Salting::begin("password", b"salt", iterations);
            let sliced = std::iter::repeat_with(|| salting.advance(100)).take(50).find_map(|salted| salted);
            assert_eq!(sliced, Some(derived));
        }
    }

    #[test]
    fn verifier_is_written_as_postgresql_does() {
        // Salt and count of RFC 7677 section 3.
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let salted = salted_password("pencil", &salt, 4096);
        assert_eq!(
            ScramVerifier::from_salted(&salted, &salt, 4096).to_string(),
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
             WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
             wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
    }

    #[test]
    fn verifiers_that_postgresql_stored_match() {
        // CREATE ROLE ... PASSWORD in PostgreSQL 15: one password that SASLprep changes, one that it
        // prohibits, one whose normal form would break the rule for right-to-left text.
        for (password, stored) in [
            (
                "p\u{e4}\u{ad}s\u{2168}\u{a0}\u{374}",
                "SCRAM-SHA-256$4096:oOnaTLruQVn/RL9qgSkBEw==$\
                 ByzQ+BS7Fvqj1j/qtFdOwH1OU8m83OWxLBUrgwQhxKQ=:rAnCR+IibWIPeoJwmP3tDvX6cThFghT/6H7f3pK8BiU=",
            ),
            (
                "\u{e4}\u{340}",
                "SCRAM-SHA-256$4096:M/iTNNV9t3VJqhy/kJDuHA==$\
                 Xczxi8zfVnvmxwztDjnVvW6Ouz0+/fR9dCY39lDHpVU=:q2xVsl+eKJgNW3Y7qbWh5BUMRwlby5IZDKOZojgvqbs=",
            ),
            (
                "\u{fb1d}",
                "SCRAM-SHA-256$4096:OFgSE9B/lLeX/ZmoZjAOLQ==$\
                 kHknID4XBtXA09RF+CPdIPv//CfiZmkdtiMrnG360XU=:E9wwij0lDigQCb8CYnCqPztFowl72cftY90DNO6zH/g=",
            ),
        ] {
            let verifier = ScramVerifier::parse(stored).unwrap();
            assert_eq!(verifier.to_string(), stored);
            let salted = salted_password(password, &verifier.salt, verifier.iterations);
            assert!(verifier.matches_salted(&salted), "{password}");
            let derived = ScramVerifier::from_salted(&salted, &verifier.salt, verifier.iterations);
            assert_eq!(derived, verifier, "{password}");
        }
    }

    #[test]
    fn password_is_normalised_first() {
        let plain = salted_password("IX", b"salt", 2);
        assert_eq!(salted_password("I\u{ad}X", b"salt", 2), plain);
        assert_eq!(salted_password("\u{2168}", b"salt", 2), plain);
        assert_ne!(salted_password(b"I\xadX", b"salt", 2), plain);
    }

    #[test]
    fn mechanisms_follow_the_binding() {
        assert_eq!(ChannelBinding::None.mechanisms(), ["SCRAM-SHA-256"]);
        assert_eq!(ChannelBinding::TlsServerEndPoint(vec![1]).mechanisms(), ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"]);
    }

    #[test]
    fn nonces_are_printable() {
        assert_eq!(encode_nonce(&[0xff; 18]).len(), 24);
        assert!(super::super::scram_message::is_nonce(encode_nonce(&[0xff; 18]).as_bytes()));
    }
}
