//! An error or notice as PostgreSQL words it: severity, SQLSTATE, message, detail, hint.

use std::borrow::Cow;

/// How bad it is; written untranslated in both severity fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Notice,
    Warning,
    Error,
    Fatal,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Notice => "NOTICE",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
        }
    }
}

/// One report. Never holds a secret: whoever builds one writes only what the client may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub severity: Severity,
    /// Five characters of PostgreSQL's appendix A.
    pub code: &'static str,
    pub message: Cow<'static, str>,
    pub detail: Option<Cow<'static, str>>,
    pub hint: Option<Cow<'static, str>>,
    /// The function of PostgreSQL's source that such an error comes from, where drivers look for it.
    pub routine: Option<&'static str>,
}

impl Report {
    pub fn new(severity: Severity, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { severity, code, message: message.into(), detail: None, hint: None, routine: None }
    }

    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    #[must_use]
    pub fn routine(mut self, routine: &'static str) -> Self {
        self.routine = Some(routine);
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
