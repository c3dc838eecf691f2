//! Ports for programs that are started later.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

/// Those that were given out: nobody gets one again, which its program may not have taken yet.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Free now, and below those that the system gives to connections (`ip_local_port_range`), so that none of these takes it before the
/// program does that it is for.
pub fn free_port() -> u16 {
    listener().local_addr().unwrap().port()
}

/// On such a port. A child that another thread starts meanwhile has every listener too, up to its exec: one that is closed is not free at once.
pub fn listener() -> TcpListener {
    loop {
        let port = 16_000 + (RandomState::new().build_hasher().finish() % 16_000) as u16;
        let is_new = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port);
        if let (true, Ok(listener)) = (is_new, TcpListener::bind(("127.0.0.1", port))) {
            return listener;
        }
    }
}
