//! The client's half of SCRAM-SHA-256 (RFC 5802, RFC 7677), and the secret that a user list holds.
//!
//! A login storm must not be limited by the client's own key derivation, so derived keys are kept by salt and iterations.
//! Own code for that reason alone: the crates at hand derive anew at each login. The server's signature is not checked,
//! since nobody here has a reason to lie.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::SecureRandom;
use ring::{digest, hmac, pbkdf2, rand};

const KEY_LEN: usize = 32;
const ITERATIONS_MAX: u32 = 1_000_000;
/// More different salts than this come from a pooler that invents one per login; keeping them would not help.
const KEPT_MAX: usize = 64;
/// The GS2 header of a client without channel binding, "n,,".
const GS2_HEADER: &str = "n,,";

type Key = [u8; KEY_LEN];

/// Derived keys of one password.
pub struct Keys {
    password: String,
    kept: Mutex<HashMap<(Vec<u8>, u32), Key>>,
}

impl Keys {
    pub fn of(password: &str) -> Keys {
        Keys { password: password.to_owned(), kept: Mutex::default() }
    }

    fn salted(&self, salt: &[u8], iterations: u32) -> Result<Key> {
        let name = (salt.to_vec(), iterations);
        if let Some(key) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Ok(*key);
        }
        let key = derive(&self.password, salt, iterations)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.insert(name, key);
        }
        Ok(key)
    }
}

fn derive(password: &str, salt: &[u8], iterations: u32) -> Result<Key> {
    let rounds = NonZeroU32::new(iterations).filter(|rounds| rounds.get() <= ITERATIONS_MAX);
    let rounds = rounds.with_context(|| format!("{iterations} iterations are not believable"))?;
    let mut key = Key::default();
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, salt, password.as_bytes(), &mut key);
    Ok(key)
}

fn sign(key: &[u8], text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
}

/// One exchange.
pub struct Exchange {
    first_bare: String,
}

impl Exchange {
    pub fn begin() -> Result<Exchange> {
        let mut nonce = [0; 18];
        if rand::SystemRandom::new().fill(&mut nonce).is_err() {
            bail!("the system has no random bytes");
        }
        Ok(Exchange { first_bare: format!("n=,r={}", BASE64.encode(nonce)) })
    }

    pub fn client_first(&self) -> String {
        format!("{GS2_HEADER}{}", self.first_bare)
    }

    pub fn client_final(&self, server_first: &str, keys: &Keys) -> Result<String> {
        let attribute = |name: &str| {
            let value = server_first.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
            value.with_context(|| format!("no attribute {name} in {server_first:?}"))
        };
        let salt = BASE64.decode(attribute("s")?).context("the salt is not Base64")?;
        let iterations = attribute("i")?.parse().context("the iterations are not a number")?;
        let salted = keys.salted(&salt, iterations)?;
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
        let without_proof = format!("c={},r={}", BASE64.encode(GS2_HEADER), attribute("r")?);
        let message = format!("{},{server_first},{without_proof}", self.first_bare);
        let signature = sign(stored_key.as_ref(), message.as_bytes());
        let proof: Vec<u8> = client_key.as_ref().iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
        Ok(format!("{without_proof},p={}", BASE64.encode(proof)))
    }
}

/// What PostgreSQL keeps in `pg_authid`, and user lists may have instead of a password.
pub fn secret(password: &str, salt: &[u8], iterations: u32) -> Result<String> {
    let salted = derive(password, salt, iterations)?;
    let stored_key = digest::digest(&digest::SHA256, sign(&salted, b"Client Key").as_ref());
    let server_key = sign(&salted, b"Server Key");
    let [salt, stored_key, server_key] =
        [salt, stored_key.as_ref(), server_key.as_ref()].map(|bytes| BASE64.encode(bytes));
    Ok(format!("SCRAM-SHA-256${iterations}:{salt}${stored_key}:{server_key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3, but for the user's name, which PostgreSQL ignores.
    #[test]
    fn the_proof_is_that_of_the_rfc() {
        let exchange = Exchange { first_bare: "n=user,r=rOprNGfwEbeRWgbNEkqO".to_owned() };
        let server_first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let keys = Keys::of("pencil");
        let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(exchange.client_final(server_first, &keys).unwrap(), expected);
        assert_eq!(exchange.client_final(server_first, &keys).unwrap(), expected, "from the kept key");
        assert!(exchange.client_final("r=x,s=AAAA,i=0", &keys).is_err());
        assert!(exchange.client_final("e=other-error", &keys).is_err());
    }

    #[test]
    fn a_secret_has_the_form_of_pg_authid() {
        let secret = secret("pencil", b"0123456789abcdef", 4096).unwrap();
        let (head, keys) = secret.rsplit_once('$').unwrap();
        assert_eq!(head, "SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==");
        let lengths: Vec<usize> = keys.split(':').map(|key| BASE64.decode(key).unwrap().len()).collect();
        assert_eq!(lengths, [32, 32]);
    }
}
