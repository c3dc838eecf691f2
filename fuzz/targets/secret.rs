//! Stored secrets: what reads as a SCRAM verifier is written again as a verifier that reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_core::auth::{ScramVerifier, Secret};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let secret = Secret::parse(text);
    let shown = format!("{secret:?}");
    assert!(text.len() < 14 || !shown.contains(text), "a secret is shown");
    if let Secret::Scram(verifier) = secret {
        let again = ScramVerifier::parse(&verifier.to_string());
        assert!(again.is_some_and(|again| again == verifier));
    }
});
