//! The administration console: the databases `pgbouncer` and `weir`, over both query protocols.
//!
//! What a console session holds is in `session.rs`, how its messages are answered in `talk.rs`. What a worker does when asked is
//! `orders.rs`, what it reports `inspection.rs` and `sockets.rs`, how that looks as rows `show.rs`. One command is carried out at a
//! time; while workers are asked, the console's client is not read.

pub(crate) mod command;
mod inspection;
mod orders;
pub(crate) mod report;
pub(crate) mod session;
mod show;
mod sockets;
pub(crate) mod talk;
