//! TLS: what is loaded from files ([`Tls`]) and one connection's state ([`Session`]). Knows nothing of sockets.

mod authorities;
mod certificate;
mod load;
mod path;
mod session;
mod verify;
mod version_one;

pub use load::{AcceptOptions, ConnectOptions, Tls};
pub use session::Session;
