//! The drivers: threads, sockets, TLS and names around core's workers. Owns no decision of pooling.
//!
//! One thread per worker runs one loop ([`engine`]) over one of two drivers ([`epoll`], [`uring`]); no async runtime.
//!
//! ```text
//!   program -- Handle --> mailbox --+                        +--> epoll | io_uring
//!   other workers ------> mailbox --+--> engine <--> core    |
//!   background (names, key derivation) --^   +---- Sockets --+
//! ```

mod background;
mod connect;
mod derive;
mod dns;
mod engine;
mod epoll;
mod events;
mod handle;
mod machine;
mod mailbox;
mod net;
mod options;
mod outside;
mod resolve;
mod sockets;
mod tls;
mod transport;
mod uring;
mod watch;

#[cfg(test)]
mod tests;

pub use events::{Asker, DriverEvent, Line, Listener};
pub use handle::{Commander, Handle, StartError, has_tables, probe_uring, random, start, start_machines};
pub use machine::Machine;
pub use net::{SocketFile, connect_unix, listen, listen_tcp, local_address, local_path};
pub use options::{DnsOptions, DriverKind, Listen, Options, TcpOptions};
pub use outside::{check_ldap, check_pam};
pub use tls::{AcceptOptions, ConnectOptions, Session, Tls};
pub use transport::Shipment;
pub use uring::capacity;
pub use watch::Seen;
