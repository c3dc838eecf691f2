//! The administration console: the databases `pgbouncer` and `weir`, over both query protocols.
//!
//! What a console session holds is in `session.rs`, how its messages are answered in `talk.rs`. What a worker does when asked is
//! `worker/orders.rs`, what it reports `inspection.rs` and `sockets.rs`, how that looks as rows `show.rs` and `clusters.rs`. One command is carried out at a
//! time; while workers are asked, the console's client is not read.

mod clusters;
pub(crate) mod command;
pub(crate) mod inspection;
mod names;
pub(crate) mod report;
pub(crate) mod session;
mod show;
pub(crate) mod sockets;
pub(crate) mod talk;
mod watched;
