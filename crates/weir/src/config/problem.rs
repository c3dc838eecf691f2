//! What is wrong, or worth saying, about a configuration, and where it stands.
//!
//! Owns the one form in which it is printed (`file:line: error: text`). Knows nothing of what the files mean.
//! A text never holds a secret: those who write it quote names and positions, not passwords.

use std::fmt;
use std::sync::Arc;

/// A line of a file. Line 0 stands for the file as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: Arc<str>,
    pub line: u32,
}

impl Place {
    pub fn new(file: &Arc<str>, line: u32) -> Self {
        Self { file: Arc::clone(file), line }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can, but perhaps not as its author thinks.
    Warning,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub severity: Severity,
    pub place: Place,
    pub text: String,
}

impl Problem {
    /// A setting of TLS is wrong, or a file that it names.
    pub fn is_of_tls(&self) -> bool {
        ["client_tls", "server_tls"].iter().any(|key| self.text.contains(key))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{}: {severity}: {}", self.place, self.text)
    }
}

/// All that was found. Nothing stops at the first error: a person fixes a file once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems {
    list: Vec<Problem>,
}

impl Problems {
    pub fn error(&mut self, place: &Place, text: impl Into<String>) {
        self.list.push(Problem { severity: Severity::Error, place: place.clone(), text: text.into() });
    }

    pub fn warn(&mut self, place: &Place, text: impl Into<String>) {
        self.list.push(Problem { severity: Severity::Warning, place: place.clone(), text: text.into() });
    }

    /// By file and line, as a person reads them; what one line got keeps its order.
    pub fn sort(&mut self) {
        self.list.sort_by(|a, b| a.place.cmp(&b.place));
    }

    pub fn has_errors(&self) -> bool {
        self.errors().next().is_some()
    }

    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter().filter(|problem| problem.severity == Severity::Error)
    }

    pub fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter().filter(|problem| problem.severity == Severity::Warning)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }
}

impl From<Vec<Problem>> for Problems {
    fn from(list: Vec<Problem>) -> Self {
        Self { list }
    }
}
