//! The whole pooler as a deterministic state machine.
//!
//! Owns every decision: who may enter, who gets which server when, what is sent on, what is held back, when a
//! server is clean. Knows no sockets, no clock, no threads, no files, and writes no log: it is told what happened
//! ([`Input`]), says what to do ([`Output`]), and takes its random bytes from the seed it was given. The same
//! inputs give the same outputs, so any run can be replayed.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]
#![forbid(unsafe_code)]

pub mod auth;
pub mod contract;
pub mod hba;
pub mod id;
pub mod mail;
pub mod outside;
pub mod peer;
#[cfg(feature = "planted")]
pub mod planted;
pub mod settings;
pub mod time;
pub mod worker;

mod bytes;
mod client;
mod cluster;
mod console;
mod context;
mod derivations;
mod exchange;
mod failure;
mod inbox;
mod kept;
mod label;
mod login;
mod making;
mod message;
mod names;
mod ours;
mod outbox;
mod owed;
mod parameters;
mod passport;
mod peering;
mod pool;
mod server;
mod shutdown;
mod sparse;
mod sql;
mod statements;
mod stats;
mod steward;
mod timers;
mod watched;
mod whereabouts;
mod whither;
mod writing;

pub use context::{Numbers, WorkerConfig};
pub use contract::{Command, Endpoint, Event, Input, Level, Output, Parcel, Peer, Span, TlsInfo, TlsRole};
pub use id::{ClientId, ConnId, Party, ServerId, Side, WorkerId};
pub use names::quoted;
pub use settings::Settings;
pub use time::Time;
pub use worker::Worker;
