//! The way of messages between a client and the server that it is linked to.

pub(crate) mod prepared;
pub(crate) mod requests;
