//! A PostgreSQL of one's own: found or downloaded, initialised, started as an unprivileged user, stopped.
//!
//! `weir dev` and the tests against the real thing stand on this crate. It knows PostgreSQL's programs and files; it
//! knows nothing of pooling, of the protocol or of Weir's settings. Everything blocks: there is no runtime to bring.
//!
//! ```no_run
//! use weir_pg::{Cluster, Installation, Options};
//! # fn main() -> Result<(), weir_pg::Error> {
//! let installation = Installation::of_major(18, &|line| eprintln!("{line}"))?;
//! let mut cluster = Cluster::start(&installation, Options::default())?;
//! println!("host=127.0.0.1 port={} user=postgres password=postgres", cluster.port());
//! cluster.stop()?;
//! # Ok(())
//! # }
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod account;
mod archive;
mod cache;
mod cluster;
mod data;
mod error;
mod guard;
mod installation;
mod password;
mod postmaster;
mod process;
mod release;

pub use account::Unprivileged;
pub use cluster::{Cluster, Options, Place};
pub use error::Error;
pub use installation::{Installation, Origin};
pub use password::Password;
pub use release::{KNOWN_MAJORS, MAJORS};

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// The superuser of every cluster. As such one runs programs as the system's user that PostgreSQL runs as.
pub const SUPERUSER: &str = "postgres";
/// Its password, unless [`Options::password`] says otherwise: good for tests, on a machine of one's own.
pub const PASSWORD: &str = "postgres";
