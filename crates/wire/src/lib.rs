//! Bytes and messages of PostgreSQL's frontend/backend protocol, versions 3.0 and 3.2.
//!
//! Owns the shape of every message: what a header looks like, what a body must hold, how one is written.
//! Knows bytes only: no time, no sockets, no settings, no pooling. Bad bytes never become a typed message:
//! each parser answers a [`Malformed`] that says what it expected.
//!
//! The authority is chapter 55 of PostgreSQL's documentation ("Frontend/Backend Protocol") and
//! `src/include/libpq/protocol.h` and `src/backend/libpq/pqformat.c` of PostgreSQL 18.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]
#![forbid(unsafe_code)]

pub mod backend;
pub mod frontend;
pub mod header;
mod reader;
pub mod report;
pub mod startup;
pub mod write;

pub use backend::{BackendTag, TransactionStatus};
pub use frontend::FrontendTag;
pub use header::{HEADER_LEN, Header};
pub use reader::Malformed;
pub use report::Report;
pub use startup::{ProtocolVersion, Startup};
