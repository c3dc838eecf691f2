//! Configuration: from PgBouncer's files to the settings of core and of the program.
//!
//! ```text
//! file -> ini (lines) -> values, database (checked against registry) -> load (Settings, ProgramSettings)
//!                                                     auth_file -> userlist; auth_hba_file, auth_ident_file -> hba
//! ```
//!
//! Knows no sockets and starts nothing. All errors of all files are found in one go.

pub mod ciphers;
pub mod connstr;
pub mod database;
pub mod global;
pub mod hba;
pub mod ini;
pub mod ldap;
pub mod load;
pub mod problem;
pub mod program;
pub mod registry;
pub mod tls;
pub mod userlist;
pub mod value;
pub mod values;

pub use load::{Loaded, SET, load, reload, set};
pub use problem::{Problem, Problems, Severity};
pub use program::{DriverChoice, ProgramSettings, TcpOptions, TlsFiles};
pub use tls::may_wait;
