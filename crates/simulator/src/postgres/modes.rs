//! What a transaction is: its isolation level, and whether it only reads.

use super::Scene;
use super::backend::Backend;
use super::expression::Session as _;
use super::language::{Statement, Tag, Verb};

/// By PostgreSQL's words for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolation {
    #[default]
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    pub const ALL: [Self; 3] = [Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];

    pub fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}

/// Those of a transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modes {
    pub isolation: Isolation,
    pub read_only: bool,
}

/// What a statement says of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Said {
    pub isolation: Option<Isolation>,
    pub read_only: Option<bool>,
}

impl Modes {
    pub fn with(self, said: Said) -> Self {
        Self {
            isolation: said.isolation.unwrap_or(self.isolation),
            read_only: said.read_only.unwrap_or(self.read_only),
        }
    }

    /// As a row tells them.
    pub fn description(self) -> String {
        format!("{}{}", self.isolation.name(), if self.read_only { ", read only" } else { "" })
    }
}

impl Said {
    /// Those behind `BEGIN`, with commas or without; `None`: that is something else.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let text = words.join(" ");
        let mut said = Self::default();
        for mode in text.split(',').map(str::trim).filter(|mode| !mode.is_empty()) {
            match mode.strip_prefix("isolation level ") {
                Some(level) => said.isolation = Isolation::ALL.into_iter().find(|known| known.name() == level),
                None if mode == "read only" || mode == "read write" => said.read_only = Some(mode == "read only"),
                None => return None,
            }
        }
        Some(said)
    }

    /// What follows `BEGIN` or `SET TRANSACTION`.
    pub fn text(self) -> String {
        let isolation = self.isolation.map(|isolation| format!("isolation level {}", isolation.name()));
        let read_only = self.read_only.map(|only| if only { "read only" } else { "read write" }.to_owned());
        isolation.into_iter().chain(read_only).collect::<Vec<_>>().join(", ")
    }
}

impl Verb {
    /// One that needs a snapshot, behind which the isolation level cannot be another.
    fn is_query(&self) -> bool {
        !matches!(self, Self::Begin { .. } | Self::Commit | Self::Rollback | Self::Modes(_) | Self::SetLocal { .. })
    }

    fn writes(&self) -> bool {
        match self {
            Self::Access(access) => access.writes(),
            _ => false,
        }
    }
}

impl Backend {
    /// What a transaction is does not let it; then the error is said.
    pub(super) fn is_kept_by_modes(&mut self, statement: &Statement, extended: bool) -> bool {
        if self.explicit && self.modes.read_only && statement.verb.writes() {
            self.error(statement.tag, "25006", "cannot execute this in a read-only transaction", extended);
            return true;
        }
        self.queried |= self.explicit && statement.verb.is_query();
        false
    }

    /// What a transaction or a session is from now on. `None`: the error is said.
    pub(super) fn set_up(&mut self, statement: &Statement, extended: bool) -> Option<&'static str> {
        let set = match &statement.verb {
            Verb::Begin { done, said } => {
                self.begins(*said);
                return Some(done);
            }
            Verb::Modes(said) => return self.sets_modes(statement.tag, *said, extended).then_some("SET"),
            Verb::Set { name, value } => self.set(name, value, false),
            Verb::SetLocal { name, value } => self.set(name, value, true),
            _ => return None,
        };
        if let Err(code) = set {
            self.error(statement.tag, code, "invalid value for parameter", extended);
        }
        set.ok().map(|()| "SET")
    }

    /// BEGIN; in a transaction it changes nothing (`BeginTransactionBlock`, src/backend/access/transam/xact.c).
    fn begins(&mut self, said: Said) {
        if !self.explicit {
            (self.explicit, self.queried) = (true, false);
        }
        self.modes = self.modes.with(said);
    }

    /// SET TRANSACTION (`check_transaction_isolation`, src/backend/commands/variable.c).
    fn sets_modes(&mut self, tag: Option<Tag>, said: Said, extended: bool) -> bool {
        if self.queried && said.isolation.is_some_and(|isolation| isolation != self.modes.isolation) {
            let text = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
            self.error(tag, "25001", text, extended);
            return false;
        }
        if self.queried && self.modes.read_only && said.read_only == Some(false) {
            self.error(tag, "25001", "transaction read-write mode must be set before any query", extended);
            return false;
        }
        if self.explicit {
            self.modes = self.modes.with(said);
        }
        true
    }

    /// Whether a tagged statement is looked at: where it has come to counts, also if it fails then.
    pub(super) fn notes_place(&self, scene: &mut Scene, statement: &Statement) {
        if let Some(tag) = statement.tag.filter(|_| !self.failed) {
            scene.checks.comes_to(tag, self.link, self.explicit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for isolation in Isolation::ALL.map(Some).into_iter().chain([None]) {
            for read_only in [None, Some(true), Some(false)] {
                let said = Said { isolation, read_only };
                let text = said.text();
                assert_eq!(Said::parse(&text.split_whitespace().collect::<Vec<_>>()), Some(said));
            }
        }
        assert_eq!(Said::parse(&["deferrable"]), None);
    }
}
