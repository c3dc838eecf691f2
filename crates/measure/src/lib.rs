//! What the lab and the bench measure with: the machine and processes, servers, poolers, pgbench and psql, a journal, numbers, pictures.
//!
//! Does not know what is measured, nor what is concluded from it.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod doubt;
pub mod drawing;
pub mod ground;
pub mod journal;
pub mod load;
pub mod pooler;
pub mod series;
pub mod server;
pub mod statistics;
pub mod url;
