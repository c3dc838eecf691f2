//! Why a login to a server failed, and what of that a client is told who waits for it.
//!
//! What concerns the database, or PostgreSQL as a whole, is told as PostgreSQL says it: clients look for `3D000` or `53300`. What
//! concerns our own credentials or settings is not the client's to mend, and is told as ours.

use std::sync::Arc;

use weir_wire::Report;
use weir_wire::backend::ErrorFields;
use weir_wire::report::Severity;

use crate::pool::endpoints::Fails;

/// What PostgreSQL says at a login that would be the same for any user's own login.
const HANDED_ON: [&str; 12] =
    ["3D000", "42501", "53000", "53100", "53200", "53300", "53400", "55000", "57P01", "57P02", "57P03", "57P04"];

/// What it says of a startup packet's parameters: a value or a name that it does not know, and a change that is not allowed.
const OF_PARAMETERS: [&str; 3] = ["22023", "42704", "55P02"];

/// Why a login failed.
#[derive(Debug)]
pub(crate) struct LoginFailure {
    /// For the log.
    pub(crate) text: String,
    /// For clients.
    pub(crate) report: Arc<Report>,
    /// Trying again with the same settings gives the same, so waiting clients are told.
    pub(crate) refused: bool,
    /// The server may take the same login with TLS.
    pub(crate) wants_tls: bool,
    /// It is an answer to one client's own startup packet: others' logins may be taken.
    pub(crate) of_one_client: bool,
    /// The server has answered with it.
    of_server: bool,
    /// The session that the login began is of no use.
    at_once: bool,
}

impl LoginFailure {
    /// It may go well the next time.
    pub(crate) fn broken(text: impl Into<String>) -> Self {
        let text = text.into();
        let report = Report::new(Severity::Fatal, "08006", format!("cannot log in to the server: {text}"));
        Self {
            text,
            report: Arc::new(report),
            refused: false,
            wants_tls: false,
            of_one_client: false,
            of_server: false,
            at_once: false,
        }
    }

    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self { refused: true, ..Self::broken(text) }
    }

    /// It has gone well, for nothing.
    pub(crate) fn at_once(text: impl Into<String>) -> Self {
        Self { at_once: true, ..Self::broken(text) }
    }

    pub(crate) fn fails(&self) -> Fails {
        match (self.refused, self.at_once) {
            (true, _) => Fails::Refused(Arc::clone(&self.report)),
            (false, true) => Fails::EndedAtOnce,
            (false, false) => Fails::Passing,
        }
    }

    /// As PgBouncer's log has it (`kill_pool_logins_server_error`, src/objects.c at 1.25.2).
    pub(crate) fn for_log(&self) -> String {
        if self.of_server {
            format!("server login failed: FATAL {}", self.text)
        } else {
            format!("login failed: {}", self.text)
        }
    }

    /// PostgreSQL's own words. `of_one_client`: to a login that carries the parameters of one client, which are its own to mend.
    pub(crate) fn of_server(fields: &ErrorFields<'_>, of_one_client: bool) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut failure = Self::refused(text(fields.message));
        // Class 57 and 53: cannot connect now, too many connections. They pass.
        failure.refused = !(fields.code.starts_with(b"57") || fields.code.starts_with(b"53"));
        // No line of pg_hba.conf for a connection without TLS (`ClientAuthentication`, src/backend/libpq/auth.c).
        failure.wants_tls = fields.code == b"28000";
        (failure.of_one_client, failure.of_server) = (of_one_client, true);
        let own = OF_PARAMETERS.iter().filter(|_| of_one_client);
        if let Some(code) = HANDED_ON.iter().chain(own).find(|code| code.as_bytes() == fields.code) {
            failure.report = Arc::new(Report::new(Severity::Fatal, code, text(fields.message)));
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: &'static [u8]) -> LoginFailure {
        LoginFailure::of_server(&ErrorFields { code, message: b"so it is", ..ErrorFields::default() }, false)
    }

    #[test]
    fn what_is_not_about_our_credentials_is_handed_on() {
        for (code, refused) in [("3D000", true), ("42501", true), ("55000", true), ("53300", false), ("57P03", false)] {
            let failure = of(code.as_bytes());
            assert_eq!((failure.report.code, &*failure.report.message), (code, "so it is"));
            assert_eq!(failure.refused, refused, "{code}");
        }
    }

    #[test]
    fn what_is_about_our_credentials_or_settings_is_told_as_ours() {
        for code in [&b"28P01"[..], b"28000", b"42704", b"08P01", b"", b"nonsense"] {
            let failure = of(code);
            assert_eq!((failure.report.code, failure.refused), ("08006", true));
            assert_eq!(failure.report.message, "cannot log in to the server: so it is");
        }
        assert!(of(b"28000").wants_tls && !of(b"28P01").wants_tls);
    }
}
