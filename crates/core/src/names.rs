//! Names of pools, users and databases.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::parameters::meanings::NAME_BYTES;

/// Names in the log end here: PostgreSQL's have 63 bytes (`NAMEDATALEN`), and a client may send ten thousand.
const NAME_BYTES_SHOWN_MAX: usize = 128;

/// The console's database, as everything that is shown calls it.
pub(crate) const CONSOLE: &str = "pgbouncer";
/// The databases that are the console.
pub(crate) const CONSOLE_DATABASES: [&str; 2] = [CONSOLE, "weir"];

/// What stands up to the closing quote, where two of them are one of its own, and what follows it: names and values in files and on the console.
pub fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let (mut word, mut rest) = (String::new(), text);
    loop {
        let (within, behind) = rest.split_once(quote)?;
        word.push_str(within);
        let Some(more) = behind.strip_prefix(quote) else { return Some((word, behind)) };
        word.push(quote);
        rest = more;
    }
}

/// What makes two sessions of servers interchangeable.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PoolName {
    /// The name in `[databases]` that clients ask for.
    pub(crate) database: Arc<str>,
    /// The user the servers are logged in as.
    pub(crate) user: Arc<str>,
    /// They answer `auth_query`, and are no client's: what a client has left in a session may not lead that astray.
    pub(crate) looks_up: bool,
    pub(crate) destination: Destination,
}

/// Which of a cluster's servers. The blank one: those of the entry's hosts, as of any other database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Destination {
    /// The group of the node that they are at; `None`: at one of those that the entry names.
    pub(crate) node: Option<i32>,
    /// For what needs rows of several nodes, where that has a size of its own.
    pub(crate) fan_out: bool,
}

impl Destination {
    pub(crate) fn at(node: Option<i32>) -> Self {
        Self { node, fan_out: false }
    }

    pub(crate) fn is_entry(self) -> bool {
        self == Self::default()
    }
}

impl PoolName {
    /// Of servers for clients.
    pub(crate) fn new(database: Arc<str>, user: Arc<str>) -> Self {
        Self { database, user, looks_up: false, destination: Destination::default() }
    }

    /// The same, shared with no other worker.
    pub(crate) fn own_copy(&self) -> Self {
        Self {
            database: (&*self.database).into(),
            user: (&*self.user).into(),
            looks_up: self.looks_up,
            destination: self.destination,
        }
    }

    /// Both are for the same clients, at whichever nodes.
    pub(crate) fn is_for_those_of(&self, other: &Self) -> bool {
        (&self.database, &self.user, self.looks_up) == (&other.database, &other.user, other.looks_up)
    }

    /// Those for the same clients at that destination.
    pub(crate) fn at(&self, destination: Destination) -> Self {
        Self {
            database: Arc::clone(&self.database),
            user: Arc::clone(&self.user),
            looks_up: self.looks_up,
            destination,
        }
    }

    /// Those for the same clients, at the entry's hosts.
    pub(crate) fn at_entry(&self) -> Self {
        self.at(Destination::default())
    }
}

/// A name in a startup packet as PostgreSQL takes it (`ProcessStartupPacket`, src/backend/tcop/backend_startup.c): cut, for whoever it is compared
/// with. `None`: within a letter, where releases differ.
pub(crate) fn cut(name: &str) -> Option<&str> {
    if name.len() <= NAME_BYTES { Some(name) } else { name.get(..NAME_BYTES) }
}

/// A name as the log shows it.
pub(crate) fn shown(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES_SHOWN_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(shown("short"), "short");
        let long = "é".repeat(NAME_BYTES_SHOWN_MAX);
        assert_eq!(shown(&long).len(), NAME_BYTES_SHOWN_MAX);
        assert_eq!(shown(&format!("x{long}")).len(), NAME_BYTES_SHOWN_MAX - 1);
    }
}
