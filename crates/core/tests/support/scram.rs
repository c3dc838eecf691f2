//! Both sides of SCRAM-SHA-256 and md5, as a client's library and a server have them.
//!
//! Written without weir-core's own on purpose: two sides with the same error would agree.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::Md5;
use sha2::{Digest as _, Sha256};

use super::driver::pbkdf2;
use super::words::hex;

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    Hmac::<Sha256>::new_from_slice(key).unwrap().chain_update(text).finalize().into_bytes().into()
}

fn xor(left: [u8; 32], right: [u8; 32]) -> [u8; 32] {
    std::array::from_fn(|at| left[at] ^ right[at])
}

/// The hash that PostgreSQL would store for a password.
pub fn md5_stored(user: &str, password: &str) -> String {
    let hash = hex(&Md5::new().chain_update(password).chain_update(user).finalize());
    format!("md5{}", String::from_utf8_lossy(&hash))
}

/// The response to AuthenticationMD5Password.
pub fn md5_response(user: &str, password: &str, salt: &[u8]) -> Vec<u8> {
    let stored = md5_stored(user, password);
    [b"md5".to_vec(), hex(&Md5::new().chain_update(&stored[3..]).chain_update(salt).finalize())].concat()
}

/// What both sides can compute once the salt is known.
struct Proofs {
    client: String,
    server: String,
}

fn proofs(password: &str, salt: &[u8], iterations: u32, auth_message: &str) -> Proofs {
    let salted = pbkdf2(password.as_bytes(), salt, iterations);
    let client_key = hmac(&salted, b"Client Key");
    let stored_key: [u8; 32] = Sha256::digest(client_key).into();
    let client = xor(client_key, hmac(&stored_key, auth_message.as_bytes()));
    let server = hmac(&hmac(&salted, b"Server Key"), auth_message.as_bytes());
    Proofs { client: BASE64.encode(client), server: BASE64.encode(server) }
}

fn attribute<'a>(message: &'a str, name: &str) -> Result<&'a str, String> {
    let mut attributes = message.split(',');
    attributes.find_map(|attribute| attribute.strip_prefix(name)).ok_or_else(|| format!("no {name} in {message}"))
}

const CLIENT_FIRST_BARE: &str = "n=,r=clientsnonce";

/// client-first.
pub fn client_first() -> String {
    format!("n,,{CLIENT_FIRST_BARE}")
}

/// client-final, and what the server must prove.
pub fn client_final(server_first: &str, password: &str) -> Result<(String, String), String> {
    let nonce = attribute(server_first, "r=")?;
    if !nonce.starts_with("clientsnonce") || nonce.len() <= "clientsnonce".len() {
        return Err(format!("the server's nonce does not continue ours: {nonce}"));
    }
    let salt = BASE64.decode(attribute(server_first, "s=")?).map_err(|error| error.to_string())?;
    let iterations = attribute(server_first, "i=")?.parse().map_err(|_| "iterations are a number".to_owned())?;
    let without_proof = format!("c=biws,r={nonce}");
    let proofs = proofs(password, &salt, iterations, &format!("{CLIENT_FIRST_BARE},{server_first},{without_proof}"));
    Ok((format!("{without_proof},p={}", proofs.client), format!("v={}", proofs.server)))
}

const SALT: &[u8] = b"a server's salt.";
const ITERATIONS: u32 = 4096;

/// server-first in answer to client-first; the bare client-first is needed once more.
pub fn server_first(client_first: &str) -> Result<(String, String), String> {
    let bare = client_first.strip_prefix("n,,").ok_or_else(|| format!("client-first is {client_first}"))?;
    let nonce = attribute(bare, "r=")?;
    Ok((format!("r={nonce}serversnonce,s={},i={ITERATIONS}", BASE64.encode(SALT)), bare.to_owned()))
}

/// server-final; `None` where the client's proof is wrong.
pub fn server_final(bare: &str, server_first: &str, client_final: &str, password: &str) -> Option<String> {
    let (without_proof, proof) = client_final.rsplit_once(",p=")?;
    let proofs = proofs(password, SALT, ITERATIONS, &format!("{bare},{server_first},{without_proof}"));
    (proof == proofs.client).then(|| format!("v={}", proofs.server))
}

/// The verifier that PostgreSQL would store for a password.
pub fn verifier(password: &str) -> String {
    let salted = pbkdf2(password.as_bytes(), SALT, ITERATIONS);
    let stored_key = Sha256::digest(hmac(&salted, b"Client Key"));
    let (stored, server) = (BASE64.encode(stored_key), BASE64.encode(hmac(&salted, b"Server Key")));
    format!("SCRAM-SHA-256${ITERATIONS}:{}${stored}:{server}", BASE64.encode(SALT))
}
