//! Which node of a cluster owns a row, and to which node a statement goes.
//!
//! A cluster is Citus', which answers a query on any node and forwards it to the owner. Pure: no sockets, no time; what is known of a cluster is a
//! [`topology::Topology`], and a value's place in it is told by its [`hash`]. Public facts are those of the catalogue and of PostgreSQL's own source.
//!
//! A text's [`shape::Shape`] is found first; texts of one shape share a [`statement::Recipe`], which the caller keeps. The recipe, a topology, a search
//! path and a statement's values make a [`route::Route`]. It is certain, or names the coordinator.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]
#![forbid(unsafe_code)]

pub mod catalogue;
pub mod hash;
pub mod key;
pub mod route;
pub mod shape;
pub mod statement;
pub mod topology;
