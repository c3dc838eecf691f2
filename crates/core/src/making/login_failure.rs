//! Why a login to a server failed, and what of that a client is told who waits for it.
//!
//! What PostgreSQL says is told as it says it, as with PgBouncer: clients look for `3D000`, `53300` or `28P01`. That it was said to us, not to
//! the client, is in the detail.

use std::sync::Arc;

use weir_wire::Report;
use weir_wire::backend::ErrorFields;
use weir_wire::report::Severity;

use crate::pool::endpoints::Fails;

/// What PostgreSQL says at a login (`InitPostgres`, src/backend/utils/init/postinit.c; src/backend/libpq/auth.c), the last three of parameters.
const HANDED_ON: [&str; 19] = [
    "08P01", "0A000", "28000", "28P01", "3D000", "42501", "53000", "53100", "53200", "53300", "53400", "55000",
    "57P01", "57P02", "57P03", "57P04", "22023", "42704", "55P02",
];

const SAID_TO_US: &str = "PostgreSQL has said this to the pooler, whose server login failed.";

/// Why a login failed.
#[derive(Debug)]
pub(crate) struct LoginFailure {
    /// For the log.
    pub(crate) text: String,
    /// For clients.
    pub(crate) report: Arc<Report>,
    /// Trying again with the same settings gives the same, so waiting clients are told.
    pub(crate) refused: bool,
    /// Once that has gone on for a while: it may be on the change.
    may_change: bool,
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
        let report = Report::new(Severity::Fatal, "08006", format!("server login failed: {text}"));
        Self {
            text,
            report: Arc::new(report),
            refused: false,
            may_change: false,
            wants_tls: false,
            of_one_client: false,
            of_server: false,
            at_once: false,
        }
    }

    /// No TLS is to be had with the server: its certificate, or what it is verified with, may be on the change, and one without the other is seen.
    pub(crate) fn of_tls(reason: &str) -> Self {
        // As OpenSSL's alert says it, which PgBouncer's log has.
        let reason = reason.replace("invalid peer certificate", "certificate verify failed");
        Self { may_change: true, ..Self::broken(format!("TLS failed: {reason}")) }
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
            _ if self.may_change => Fails::RefusedForLong(Arc::clone(&self.report)),
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

    /// Why connections close for the log, in PgBouncer's words (`handle_server_startup`, src/server.c at 1.25.2): `own`: it is one client's own.
    pub(crate) fn closing(&self, own: bool) -> &str {
        if self.of_server && own { "login failed" } else { &self.text }
    }

    /// PostgreSQL's own words. `of_one_client`: to a login that carries the parameters of one client, which are its own to mend.
    pub(crate) fn of_server(fields: &ErrorFields<'_>, of_one_client: bool) -> Self {
        let text = String::from_utf8_lossy(fields.message).into_owned();
        let code = HANDED_ON.into_iter().find(|code| code.as_bytes() == fields.code).unwrap_or("08006");
        let report = Report::new(Severity::Fatal, code, text.clone()).detail(SAID_TO_US);
        Self {
            text,
            report: Arc::new(report),
            // Class 57 and 53: cannot connect now, too many connections. They pass.
            may_change: false,
            refused: !(fields.code.starts_with(b"57") || fields.code.starts_with(b"53")),
            // No line of pg_hba.conf for a connection without TLS (`ClientAuthentication`, src/backend/libpq/auth.c).
            wants_tls: fields.code == b"28000",
            of_one_client,
            of_server: true,
            at_once: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: &'static [u8]) -> LoginFailure {
        LoginFailure::of_server(&ErrorFields { code, message: b"so it is", ..ErrorFields::default() }, false)
    }

    #[test]
    fn what_postgresql_says_is_handed_on() {
        for (code, refused) in [("3D000", true), ("28P01", true), ("55000", true), ("53300", false), ("57P03", false)] {
            let failure = of(code.as_bytes());
            assert_eq!((failure.report.code, &*failure.report.message), (code, "so it is"));
            assert_eq!(failure.refused, refused, "{code}");
        }
        assert!(of(b"28000").wants_tls && !of(b"28P01").wants_tls);
    }

    /// A code is told that is one.
    #[test]
    fn words_without_a_code_of_a_login_are_of_a_lost_connection() {
        for code in [&b"XX000"[..], b"", b"nonsense"] {
            let failure = of(code);
            assert_eq!((failure.report.code, failure.refused), ("08006", true));
            assert_eq!(failure.report.message, "so it is");
        }
    }
}
