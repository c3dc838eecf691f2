//! Authentication exchanges, without I/O.

/// A stored secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    Plain(std::sync::Arc<str>),
}

impl Secret {
    pub fn parse(text: &str) -> Self {
        Self::Plain(text.into())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(plain)")
    }
}
