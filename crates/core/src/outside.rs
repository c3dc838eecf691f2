//! What others than PostgreSQL know of a client: the system, name servers, its own machine, PAM, a directory.
//!
//! They are asked off the workers, since each may take its time, and a client asks one thing at a time.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inquiry {
    /// What the system calls the user with this number.
    UserOf { uid: u32 },
    /// What the host with this address is called, by a name that leads back to it.
    HostOf { ip: IpAddr },
    /// Whose a connection is, as the machine says that it comes from (RFC 1413).
    OwnerOf { theirs: SocketAddr, ours: SocketAddr },
    /// Whether this is the user's password.
    Password { user: Arc<str>, password: Password, authority: Authority, from: Option<IpAddr> },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// `None`: there is none, or whoever was to tell it does not.
    Name(Option<Arc<str>>),
    Right,
    /// And why, for the log.
    Wrong(String),
}

/// Whose word about passwords counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// Under this service.
    Pam {
        service: Arc<str>,
    },
    Directory(Arc<Directory>),
}

/// A directory that is spoken to by LDAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// TLS from the first byte on.
    pub ldaps: bool,
    /// Hosts and ports, which are tried in this order. None: DNS knows those of the domain that the entries' names end with.
    pub servers: Vec<String>,
    pub start_tls: bool,
    pub entry: Entry,
}

/// How a user's entry is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Its name is made of the user's.
    Named { prefix: String, suffix: String },
    /// It is searched for.
    Searched { base: String, scope: Scope, filter: String, bind_name: String, bind_password: Password },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Base,
    One,
    Subtree,
}

/// In nobody's `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub Arc<str>);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(hidden)")
    }
}
