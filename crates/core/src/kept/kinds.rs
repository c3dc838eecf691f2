//! What a session may hold beyond what PostgreSQL reports of it, by kind.

/// Kinds of what a session may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kinds(u16);

impl Kinds {
    pub(crate) const NONE: Self = Self(0);
    /// Parameters that PostgreSQL does not report.
    pub(crate) const PARAMETERS: Self = Self(1);
    /// In the schema of temporary objects.
    pub(crate) const OBJECTS: Self = Self(2);
    /// Advisory locks.
    pub(crate) const LOCKS: Self = Self(4);
    /// LISTEN.
    pub(crate) const CHANNELS: Self = Self(8);
    /// WITH HOLD.
    pub(crate) const CURSORS: Self = Self(16);
    /// SQL PREPARE.
    pub(crate) const PREPARED: Self = Self(32);
    /// What a look does not find, and nothing takes back: a library, the seed of random(), a parameter whose name is not known.
    pub(crate) const LASTING: Self = Self(64);
    /// A look failed.
    pub(crate) const UNKNOWN: Self = Self(128);
    /// The seed of random() perhaps, by `set_config` of a name that no text tells: a look sets another, which nobody knows.
    pub(crate) const SEED: Self = Self(256);
    /// What a look can be for, by what is left.
    pub(crate) const ANY: Self = Self(63);
    /// And by what it takes away.
    pub(crate) const LOOKED_FOR: Self = Self::ANY.with(Self::SEED);
    /// As SHOW STATS counts them.
    pub(crate) const COUNTED: [Self; 7] =
        [Self::PARAMETERS, Self::OBJECTS, Self::LOCKS, Self::CHANNELS, Self::CURSORS, Self::PREPARED, Self::LASTING];

    #[inline]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[inline]
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The kind that a look's row is of.
    pub(super) fn of_word(word: &[u8]) -> Option<Self> {
        WORDS.iter().find(|(_, own)| own.as_bytes() == word).map(|(kind, _)| *kind)
    }

    /// For SHOW PINS.
    pub(crate) fn words(self) -> String {
        let words = WORDS.iter().filter(|(kind, _)| self.has(*kind)).map(|(_, word)| *word);
        words.collect::<Vec<_>>().join(", ")
    }
}

/// What keeps a server, as a look and SHOW PINS call it.
const WORDS: [(Kinds, &str); 8] = [
    (Kinds::PARAMETERS, "parameters"),
    (Kinds::OBJECTS, "temporary objects"),
    (Kinds::LOCKS, "advisory locks"),
    (Kinds::CHANNELS, "listen"),
    (Kinds::CURSORS, "cursors"),
    (Kinds::PREPARED, "prepare"),
    (Kinds::LASTING, "for the session"),
    (Kinds::UNKNOWN, "unknown"),
];
