//! What is not said in the middle of a TLS handshake: bytes in clear text are no part of it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, clippy::disallowed_macros)]

#[path = "support/config.rs"]
mod config;

use std::sync::Arc;

use weir_core::contract::{Input, Output, Peer};
use weir_core::settings::TlsMode;
use weir_core::time::Duration;
use weir_core::{Numbers, Settings, Side, Time, Worker};
use weir_wire::write;

const TIMEOUT: Duration = Duration::from_secs(5);

/// A client has asked for TLS and does not begin; what the worker puts out at this input then.
fn put_out(now: Time, input: Input<'_>) -> Vec<Output> {
    let settings = Settings {
        client_tls_sslmode: TlsMode::Prefer,
        client_tls_available: true,
        client_login_timeout: TIMEOUT,
        ..Settings::default()
    };
    let mut worker = Worker::new(config::of_worker(0, 1, &Numbers::default()), Arc::new(settings));
    let conn = worker.reserve(Side::Client);
    let peer = |port| Peer::Tcp { ip: [127, 0, 0, 1].into(), port };
    let mut bytes = Vec::new();
    write::ssl_request(&mut bytes);
    let mut outputs = |now, input: Input<'_>| {
        worker.handle(now, input);
        std::iter::from_fn(|| worker.poll_output()).collect::<Vec<_>>()
    };
    outputs(Time(0), Input::Accepted { conn, peer: peer(1), local: peer(6432) });
    let begun = outputs(Time(0), Input::Bytes { conn, bytes: &bytes });
    assert!(begun.iter().any(|output| matches!(output, Output::StartTls { .. })));
    outputs(now, input)
}

#[test]
fn nothing_is_said_within_a_handshake() {
    for (now, input) in [(Time(0) + TIMEOUT, Input::Timeout), (Time(1), Input::Stop)] {
        let outputs = put_out(now, input);
        assert!(!outputs.iter().any(|output| matches!(output, Output::Send { .. })), "{outputs:?}");
        assert!(outputs.iter().any(|output| matches!(output, Output::Close { .. })), "{outputs:?}");
    }
}
