//! SCRAM messages of both sides. The first byte says whose; no bytes at all may be a proof.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_core::auth::{
    ChannelBinding, ClientFirst, Credentials, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ServerFirst, mock_verifier,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((&whose, messages)) = bytes.split_first() else { return };
    let mut messages = messages.splitn(2, |&byte| byte == b'\n');
    let (first, second) = (messages.next().unwrap_or_default(), messages.next().unwrap_or_default());
    let binding = if whose & 1 == 0 { ChannelBinding::None } else { ChannelBinding::TlsServerEndPoint(vec![7; 32]) };
    if whose & 2 == 0 { as_server(whose, first, second, binding) } else { as_client(first, second, binding) }
});

/// A client that does not know the password.
fn as_server(whose: u8, first: &[u8], second: &[u8], binding: ChannelBinding) {
    let verifier = mock_verifier("alice", &[9; 32], 4096);
    let mechanism = if whose & 4 == 0 { SCRAM_SHA_256 } else { SCRAM_SHA_256_PLUS };
    let Ok((_, expected)) = ServerFirst::new(verifier, "serversnonce", binding).on_client_first(mechanism, first)
    else {
        return;
    };
    assert!(expected.on_client_final(second).is_err(), "a proof was made of nothing");
}

/// A server that does not know the password.
fn as_client(first: &[u8], second: &[u8], binding: ChannelBinding) {
    let offered = [SCRAM_SHA_256, SCRAM_SHA_256_PLUS];
    let Ok(client) = ClientFirst::new("alice", "clientsnonce", &offered, binding) else { return };
    let Ok(pending) = client.on_server_first(first) else { return };
    let (_, verify) = pending.finish_with(Credentials::Salted([3; 32]));
    assert!(verify.on_server_final(second).is_err(), "a signature was made of nothing");
}
