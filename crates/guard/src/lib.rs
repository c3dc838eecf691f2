//! What a transaction costs, in counts that no other load on the machine can move: instructions of core, system calls
//! of each driver, allocations. `bounds.txt` has the most that each may be; `make guard` holds them.
//!
//! ```text
//!   kinds ──> recording ──> replay ──> instructions (callgrind), tests/allocations.rs
//!     postgres ───┤
//!                 └────> peers, program ──> calls (strace)
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod allocations;
pub mod bounds;
pub mod calls;
pub mod instructions;
pub mod kinds;
pub mod messages;
pub mod peers;
pub mod postgres;
pub mod program;
pub mod recording;
