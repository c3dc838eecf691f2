//! Weir's program in front of real PostgreSQL, 14 to 18, on both drivers, spoken to by a real client library and by raw bytes.
#![allow(clippy::unwrap_used, clippy::panic)]

mod abuse;
mod advise;
mod advisories;
mod applications;
mod authorities;
mod bench;
mod by_sql;
mod copies;
mod crash;
mod encodings;
mod exact;
mod hba;
mod hidden;
mod innocents;
mod limits;
mod listen;
mod literals;
mod logins;
mod lookups;
mod metrics;
mod names;
mod own_names;
mod parameters;
mod peers;
mod pipelines;
#[path = "../support/ports.rs"]
mod ports;
mod releases;
mod resets;
mod sessions;
mod shutdown;
mod state;
mod takeover;
mod tls;
mod unread;
