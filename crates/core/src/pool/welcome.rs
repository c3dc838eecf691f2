//! What a server greets with, and its clients are greeted with.

use std::sync::Arc;

use crate::parameters::{ParameterSet, ParameterSets};

/// The one fact that changes while a session lasts.
pub(crate) const STANDBY: &str = "in_hot_standby";

/// What a server told at login that its clients are told too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// Reported parameters that no session can set.
    pub(crate) facts: Vec<(Arc<str>, Arc<[u8]>)>,
    /// The others, as they stand in a new session.
    pub(crate) defaults: Arc<ParameterSet>,
}

/// Whether it is no PostgreSQL but a pooler's console, as its release says (`admin_pre_login`, src/admin.c of PgBouncer at 1.25.2).
pub(crate) fn is_console(facts: &[(Arc<str>, Arc<[u8]>)]) -> bool {
    facts.iter().any(|(name, value)| **name == *"server_version" && value.ends_with(b"/bouncer"))
}

impl Welcome {
    pub(crate) fn is_console(&self) -> bool {
        is_console(&self.facts)
    }

    /// The database's encoding.
    pub(crate) fn encoding(&self) -> &[u8] {
        self.fact("server_encoding")
    }

    /// Its first number: 18 of `18.6 (Debian ...)`.
    pub(crate) fn release(&self) -> u32 {
        let digits = self.fact("server_version").split(|byte| !byte.is_ascii_digit()).next();
        digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).unwrap_or(0)
    }

    /// Whether it recovers from another server's log, where it tells that (PostgreSQL 14).
    pub(crate) fn standby(&self) -> Option<bool> {
        match self.fact(STANDBY) {
            b"" => None,
            value => Some(value == b"on"),
        }
    }

    /// The same of a server that was promoted, or of another.
    pub(crate) fn with_standby(&self, standby: bool) -> Self {
        let value = standby_value(standby);
        let facts = self.facts.iter().map(|(name, known)| match &**name {
            STANDBY => (Arc::clone(name), value.into()),
            _ => (Arc::clone(name), Arc::clone(known)),
        });
        Self { facts: facts.collect(), defaults: Arc::clone(&self.defaults) }
    }

    fn fact(&self, wanted: &str) -> &[u8] {
        self.facts.iter().find(|(name, _)| **name == *wanted).map_or(b"", |(_, value)| value)
    }

    /// The same, shared with no other worker.
    pub(crate) fn own_copy(&self, sets: &mut ParameterSets) -> Arc<Self> {
        let facts = self.facts.iter().map(|(name, value)| ((&**name).into(), (&**value).into())).collect();
        Arc::new(Self { facts, defaults: sets.intern(self.defaults.own_copy()) })
    }
}

pub(crate) fn standby_value(standby: bool) -> &'static [u8] {
    if standby { b"on" } else { b"off" }
}
