//! Everything that puts load on an endpoint: pgbench, and a generator of our own for what pgbench cannot do.
//!
//! The generator must cost little and never be the limit: a few threads of epoll, one read and one write per query. It
//! knows ports and PostgreSQL's protocol; it does not know what answers, nor what is concluded.

pub mod channel;
pub mod crew;
pub mod engine;
pub mod holders;
pub mod pgbench;
pub mod plan;
pub mod scram;
pub mod session;
pub mod straight;
pub mod tally;
pub mod tls;
