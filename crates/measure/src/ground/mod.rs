//! What every measurement stands on: the machine, an account that may run servers, processes and what they cost, Ctrl-C.
//!
//! Does not know PostgreSQL, poolers or loads.

pub mod account;
pub mod control_group;
pub mod descriptors;
pub mod family;
pub mod interrupt;
pub mod machine;
pub mod process;
pub mod running;
pub mod strangers;
