//! Ports for programs that are started later.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::TcpListener;

/// Free now, and below those that the system gives to connections (`ip_local_port_range`), so that none of these takes it before the
/// program does that it is for.
pub fn free_port() -> u16 {
    loop {
        let port = 16_000 + (RandomState::new().build_hasher().finish() % 16_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
