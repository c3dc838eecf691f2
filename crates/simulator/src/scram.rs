//! SCRAM-SHA-256 and md5 for the simulated ends, written apart from core's so that the two check each other.
//!
//! RFC 5802 and 7677 without channel binding; names are not normalised, as the simulated passwords are ASCII.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::{Digest as _, Md5};
use sha2::Sha256;

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// PBKDF2 with one block: what `Output::Derive` asks for.
pub fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let mut round = hmac(password, &[salt, &1u32.to_be_bytes()]);
    let mut sum = round;
    for _ in 1..iterations {
        round = hmac(password, &[&round]);
        sum.iter_mut().zip(round).for_each(|(sum, byte)| *sum ^= byte);
    }
    sum
}

/// `md5` and the hash of hash and salt, as PostgreSQL's md5 authentication wants it.
pub fn md5_answer(user: &str, password: &str, salt: [u8; 4]) -> String {
    let inner = hex(&Md5::digest(format!("{password}{user}")));
    let mut outer = Md5::new();
    outer.update(inner.as_bytes());
    outer.update(salt);
    format!("md5{}", hex(&outer.finalize()))
}

/// What a file of users has of a password as md5.
pub fn md5_stored(user: &str, password: &str) -> String {
    format!("md5{}", hex(&Md5::digest(format!("{password}{user}"))))
}

/// What a file of users has of a password as a SCRAM verifier.
pub fn stored(password: &str, salt: [u8; 8], iterations: u32) -> String {
    let salted = salted_password(password.as_bytes(), &salt, iterations);
    let stored_key = Sha256::digest(hmac(&salted, &[b"Client Key"]));
    let server_key = hmac(&salted, &[b"Server Key"]);
    let [salt, stored_key, server_key] = [&salt[..], &stored_key, &server_key].map(|bytes| STANDARD.encode(bytes));
    format!("SCRAM-SHA-256${iterations}:{salt}${stored_key}:{server_key}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Value of an attribute like `r=` in a message of the exchange.
fn attribute(message: &str, name: char) -> Option<&str> {
    message.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// The side that proves it knows the password.
pub struct Prover {
    nonce: String,
    expected: Option<[u8; 32]>,
}

impl Prover {
    pub fn new(nonce: [u8; 12]) -> Self {
        Self { nonce: STANDARD.encode(nonce), expected: None }
    }

    pub fn first(&self) -> String {
        format!("n,,n=,r={}", self.nonce)
    }

    /// The answer to server-first; `None` if that makes no sense.
    pub fn answer(&mut self, server_first: &str, password: &str) -> Option<String> {
        let nonce = attribute(server_first, 'r')?;
        let salt = STANDARD.decode(attribute(server_first, 's')?).ok()?;
        let iterations: u32 = attribute(server_first, 'i')?.parse().ok()?;
        if !nonce.starts_with(&self.nonce) || iterations > 100_000 {
            return None;
        }
        let salted = salted_password(password.as_bytes(), &salt, iterations);
        let bare = format!("c=biws,r={nonce}");
        let messages = format!("n=,r={},{server_first},{bare}", self.nonce);
        let client_key = hmac(&salted, &[b"Client Key"]);
        let signature = hmac(&Sha256::digest(client_key), &[messages.as_bytes()]);
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(key, byte)| key ^ byte).collect();
        self.expected = Some(hmac(&hmac(&salted, &[b"Server Key"]), &[messages.as_bytes()]));
        Some(format!("{bare},p={}", STANDARD.encode(proof)))
    }

    /// Whether server-final proves that the server knows the password too.
    pub fn verify(&self, server_final: &str) -> bool {
        let given = attribute(server_final, 'v').and_then(|text| STANDARD.decode(text).ok());
        given.is_some() && given.as_deref() == self.expected.as_ref().map(|bytes| &bytes[..])
    }
}

/// The side that checks the proof.
pub struct Verifier {
    salted: [u8; 32],
    server_first: String,
    client_first_bare: String,
}

impl Verifier {
    pub fn new(client_first: &str, password: &str, salt: [u8; 8], nonce: [u8; 12], iterations: u32) -> Option<Self> {
        let bare = client_first.strip_prefix("n,,").or_else(|| client_first.strip_prefix("y,,"))?;
        let client_nonce = attribute(bare, 'r')?;
        let server_first =
            format!("r={client_nonce}{},s={},i={iterations}", STANDARD.encode(nonce), STANDARD.encode(salt));
        let salted = salted_password(password.as_bytes(), &salt, iterations);
        Some(Self { salted, server_first, client_first_bare: bare.to_owned() })
    }

    pub fn challenge(&self) -> &str {
        &self.server_first
    }

    /// server-final, if the proof is right.
    pub fn finish(&self, client_final: &str) -> Option<String> {
        let (bare, proof) = client_final.rsplit_once(",p=")?;
        let proof = STANDARD.decode(proof).ok()?;
        if attribute(bare, 'r') != attribute(&self.server_first, 'r') {
            return None;
        }
        let messages = format!("{},{},{bare}", self.client_first_bare, self.server_first);
        let client_key = hmac(&self.salted, &[b"Client Key"]);
        let signature = hmac(&Sha256::digest(client_key), &[messages.as_bytes()]);
        let expected: Vec<u8> = client_key.iter().zip(signature).map(|(key, byte)| key ^ byte).collect();
        if proof != expected {
            return None;
        }
        let server = hmac(&hmac(&self.salted, &[b"Server Key"]), &[messages.as_bytes()]);
        Some(format!("v={}", STANDARD.encode(server)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_on_the_right_password_only() {
        for (given, right) in [("secret", true), ("Secret", false)] {
            let mut prover = Prover::new([7; 12]);
            let verifier = Verifier::new(&prover.first(), "secret", [1; 8], [2; 12], 3).unwrap();
            let answer = prover.answer(verifier.challenge(), given).unwrap();
            let finish = verifier.finish(&answer);
            assert_eq!(finish.is_some(), right);
            if let Some(finish) = finish {
                assert!(prover.verify(&finish));
            }
        }
    }
}
