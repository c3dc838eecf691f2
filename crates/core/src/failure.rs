//! Who is to blame when something goes wrong, and what the client is told.
//!
//! One table: the SQLSTATE, the text, and how loudly the log speaks. A failure holds names and limits, never secrets.

use std::borrow::Cow;
use std::sync::Arc;

use weir_wire::Malformed;
use weir_wire::report::{Report, Severity};

use crate::contract::event::Level;

/// Why something was refused or ended, by who is to blame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    // The client broke the protocol.
    ClientMalformed(Malformed),
    UnknownMessage(u8),
    WrongMessage {
        expected: &'static str,
        got: u8,
    },
    MessageLength {
        tag: u8,
    },
    UnsupportedVersion(u32),
    NameTooLong,
    StatementTooLong,

    // The client asked for what it may not have.
    /// `by`: what it was to be known by. `stranger`: for the log alone.
    AuthenticationFailed {
        by: Proof,
        user: String,
        stranger: Option<Stranger>,
    },
    Scram {
        error: crate::auth::AuthError,
    },
    NoUserName,
    UnknownDatabase {
        name: String,
    },
    TlsRequired,
    TlsUnavailable,
    CertificateRequired {
        user: String,
    },
    /// The system's user at the other end of the socket is not this one.
    PeerRejected {
        user: String,
    },
    /// No record of `auth_hba_file` lets it in, in these words; `line`: this one does not.
    Hba {
        line: Option<u32>,
        whence: String,
    },
    TooManyClients {
        limit: u32,
        what: &'static str,
    },
    StartupParameter {
        text: String,
    },
    TooManyLogins {
        limit: usize,
    },
    TransactionsNotAllowed,
    SimpleQuery,
    /// Its server is replaced by one of other settings.
    Reconfigured,
    /// What Weir has to do in it cannot be done rightly.
    Batch(BatchFailure),
    ConsoleOnly {
        user: String,
    },

    // Nothing wrong with the client; we cannot serve it.
    LoginTimeout,
    IdleTimeout,
    /// Where `session_state = refuse`: it was not seen before it was there.
    StateRefused {
        held: String,
        text: String,
    },
    PinTimeout {
        held: String,
    },
    TooManyPins {
        limit: u32,
        held: String,
    },
    /// The server that listened for it is gone.
    ListenerLost,
    /// What it was notified of waits for it.
    NotificationsUnread,
    /// The other is the encoding of the database.
    NotificationUnlike,
    /// Code shows what the session listens to.
    ChannelsElsewhere,
    QueryWaitTimeout,
    /// A transaction that had no server yet was cancelled.
    BegunCancelled,
    QueryTimeout,
    IdleTransactionTimeout,
    TransactionTimeout,
    ServerLost,
    /// What may be there is not known.
    Uncertain(Uncertain),
    ServerBrokeProtocol,
    ServerReportsTooMuch,
    /// A cluster's nodes would take its session for one of theirs.
    PosesAsNode,
    /// What the client has changed where it is reported may be reset unseen where it is not.
    ReportedElsewhere {
        name: String,
    },
    /// What a server said at our login, as far as it is for clients.
    ServerLogin {
        report: Arc<Report>,
    },
    /// A user's secret could not be asked for; why, the log says: whoever asks is nobody yet. In PgBouncer's words.
    LookupFailed,
    /// A user's secret could not be asked for in the database that he has named.
    DatabaseMissing {
        name: String,
    },
    /// PostgreSQL was asked, too.
    NoSuchUser,
    /// Nor is it where whoever runs the pooler has said so on its console.
    LookupDisabled {
        name: String,
    },
    ParametersRefused {
        text: String,
    },
    DatabaseRemoved,
    Killed,
    ShuttingDown,
    NoNewClients,
    Disabled {
        name: String,
    },
}

/// What is not known of a session, so that it cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uncertain {
    /// A cancel request of its own may still arrive where its session is.
    CancelMayCome,
    /// What it holds cannot be asked any more.
    StateUnknown,
    /// A value that PostgreSQL has told in one encoding is not known in another.
    EncodingChanged,
    /// A value is told that is not ASCII, in another encoding than the one that servers can be given it in.
    UnlikeEncodings,
}

impl Uncertain {
    fn report(self) -> Report {
        match self {
            Self::CancelMayCome => cancel_may_come(),
            Self::StateUnknown => state_unknown(),
            Self::EncodingChanged => encoding_changed(),
            Self::UnlikeEncodings => unlike_encodings(),
        }
    }
}

/// What a client was to be known by, in PgBouncer's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    Password,
    Sasl,
    Trust,
    Ident,
    Pam,
    Ldap,
}

/// A user whom nobody knows. Who asks is not told: they would learn which users there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stranger {
    InNoFile,
    /// PostgreSQL was asked, too.
    LookedUp,
}

impl Proof {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Sasl => "SASL",
            Self::Trust => "\"trust\"",
            Self::Ident => "Ident",
            Self::Pam => "PAM",
            Self::Ldap => "LDAP",
        }
    }

    /// As PostgreSQL tells them apart (`auth_failed`, src/backend/libpq/auth.c at 18).
    fn code(self) -> &'static str {
        match self {
            Self::Password | Self::Sasl | Self::Trust => "28P01",
            Self::Ident | Self::Pam | Self::Ldap => "28000",
        }
    }
}

const NO_SUCH_USER: &str = "no such user";
const NO_TRANSACTIONS: &str = "transaction blocks are not allowed in statement pooling mode";

/// What hinders a batch in which parameters are reset, or which has a simple query in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchFailure {
    ResetTooLate,
    GoesOnBehindRollback,
    SavepointBehindReset,
    ResetJoined,
    QueryJoinsOurs,
}

impl BatchFailure {
    fn report(self) -> Report {
        let (text, detail, hint) = match self {
            Self::GoesOnBehindRollback => (
                "what follows the end of this transaction in its request may run without the startup values",
                "The transaction began in one request with what reset them, so that they were given again within it.",
                "Send ROLLBACK and COMMIT alone, and requests of no more than 8 kB up to then.",
            ),
            Self::SavepointBehindReset => (
                "it is not known which startup values are left behind what was taken back",
                "A savepoint was set, or a parameter, in one request with what reset them.",
                "Send RESET in a request of its own.",
            ),
            Self::ResetJoined => (
                "giving the startup values again would end the transaction",
                "They were reset by a simple query behind messages that no Sync has ended.",
                "Send a Sync in front of RESET.",
            ),
            Self::QueryJoinsOurs => (
                "a simple query cannot be sent here without a Sync in front of it",
                "The pooler has run a query of its own in the batch, and PostgreSQL would make the two one transaction, which only a Sync ends.",
                "Send a Sync in front of the query.",
            ),
            Self::ResetTooLate => (
                "what follows a reset in its batch would begin a transaction without the startup values",
                "default_transaction_isolation, default_transaction_read_only and default_transaction_deferrable count from a transaction's beginning on.",
                "Send DISCARD ALL, or a RESET with its COMMIT, in a batch of its own.",
            ),
        };
        Report::new(Severity::Fatal, "0A000", text).detail(detail).hint(hint)
    }
}

/// What only nodes call themselves.
const POSES_AS_NODE: &str = "this application_name is for the nodes of the cluster among each other";

fn statement_too_long() -> Report {
    Report::new(Severity::Fatal, "54000", "a named statement is too long to be kept")
        .detail(format!("The limit is {} bytes.", crate::statements::STATEMENT_BYTES_MAX))
}

impl Failure {
    /// The text for the client. All of these end its session.
    pub(crate) fn report(&self) -> Report {
        let fatal = |code, message: String| Report::new(Severity::Fatal, code, message);
        match self {
            Self::ClientMalformed(_)
            | Self::UnknownMessage(_)
            | Self::WrongMessage { .. }
            | Self::MessageLength { .. }
            | Self::UnsupportedVersion(_) => self.misspoken(),
            Self::StatementTooLong => statement_too_long(),
            Self::NameTooLong => fatal("54000", "a statement or portal name is too long".to_owned()),
            Self::AuthenticationFailed { by, user, .. } => not_authenticated(*by, user),
            Self::Scram { error } => fatal("08P01", error.to_string()),
            Self::NoUserName => fatal("28000", "no PostgreSQL user name specified in startup packet".to_owned()),
            Self::UnknownDatabase { name } => fatal("3D000", format!("no such database: {name}"))
                .hint("Name it in the [databases] section, or add the entry *."),
            Self::TlsRequired => fatal("28000", "this pooler accepts only TLS connections".to_owned())
                .hint("Connect with sslmode=require."),
            Self::TlsUnavailable => fatal("08P01", "this pooler does not accept TLS connections".to_owned()),
            Self::CertificateRequired { user } => no_certificate(user),
            Self::PeerRejected { user } => peer_rejected(user),
            Self::Hba { line, .. } => no_record(*line),
            Self::TooManyClients { limit, what } => too_many_clients(*limit, what),
            Self::TooManyLogins { limit } => fatal("53300", "too many logins at once".to_owned())
                .detail(format!("{limit} passwords wait to be checked.")),
            Self::StartupParameter { text } => fatal("22023", text.clone()),
            Self::Batch(failure) => failure.report(),
            Self::TransactionsNotAllowed => fatal("0A000", NO_TRANSACTIONS.to_owned()),
            Self::Reconfigured => fatal("57P01", "database configuration changed".to_owned()),
            // In PgBouncer's words.
            Self::SimpleQuery => fatal("08P01", "PQexec disallowed".to_owned())
                .hint("disable_pqexec is set: use the extended query protocol."),
            Self::ConsoleOnly { user } => {
                fatal("42501", format!("user \"{user}\" may not use the administration console"))
                    .hint("Name the user in admin_users or stats_users.")
            }
            Self::StateRefused { held, .. } | Self::PinTimeout { held } | Self::TooManyPins { held, .. } => {
                self.pinned(held)
            }
            Self::ChannelsElsewhere => channels_asked_by_code(),
            Self::ListenerLost | Self::NotificationsUnread | Self::NotificationUnlike => self.unheard(),
            Self::LoginTimeout
            | Self::IdleTimeout
            | Self::QueryWaitTimeout
            | Self::BegunCancelled
            | Self::QueryTimeout
            | Self::IdleTransactionTimeout
            | Self::TransactionTimeout => self.timed_out(),
            Self::ServerLost => fatal("08006", "the server closed the connection unexpectedly".to_owned())
                .detail("Whether the last statement took effect is not known; an open transaction was rolled back."),
            Self::ServerBrokeProtocol => fatal("08P01", "the server broke the protocol".to_owned()),
            Self::ServerReportsTooMuch => reports_too_much(),
            Self::PosesAsNode => fatal("42501", POSES_AS_NODE.to_owned()),
            Self::ReportedElsewhere { name } => reported_elsewhere(name),
            Self::ServerLogin { report } => (**report).clone(),
            Self::LookupFailed => fatal("08006", "bouncer config error".to_owned()),
            // In PostgreSQL's words (`InitPostgres`, src/backend/utils/init/postinit.c).
            Self::DatabaseMissing { name } => fatal("3D000", format!("database \"{name}\" does not exist")),
            Self::NoSuchUser => fatal("28000", NO_SUCH_USER.to_owned()),
            Self::LookupDisabled { name } => fatal("57P03", format!("authentication database \"{name}\" is disabled")),
            Self::ParametersRefused { text } => fatal("08006", format!("session parameters were refused: {text}")),
            Self::Uncertain(what) => what.report(),
            Self::DatabaseRemoved => fatal("57P01", "database removed from the configuration".to_owned()),
            Self::Killed => fatal("57P01", "admin forced disconnect".to_owned()),
            // In PgBouncer's words, with PostgreSQL's SQLSTATEs (`ProcessInterrupts`, and `canAcceptConnections` for a login).
            Self::ShuttingDown => fatal("57P01", "server shutting down".to_owned()),
            Self::NoNewClients => fatal("57P03", "the pooler is shutting down".to_owned()),
            Self::Disabled { name } => fatal("57P03", format!("database \"{name}\" is disabled")),
        }
    }

    /// The text for the log.
    pub(crate) fn log_text(&self, report: &Report) -> String {
        match self {
            Self::TooManyClients { limit, what } => format!("{}: {what} = {limit}", report.message),
            Self::Hba { line, whence } => {
                let line = line.map_or(String::new(), |line| format!(" by line {line} of auth_hba_file"));
                format!("{}{line} for {whence}", report.message)
            }
            _ => self.reason(report).into_owned(),
        }
    }

    /// Why the session ends, for the log, in PgBouncer's words.
    pub(crate) fn reason<'r>(&self, report: &'r Report) -> Cow<'r, str> {
        match self {
            Self::AuthenticationFailed { stranger: Some(Stranger::LookedUp), .. } => NO_SUCH_USER.into(),
            Self::AuthenticationFailed { stranger: Some(Stranger::InNoFile), .. } => {
                format!("{}: {NO_SUCH_USER}", report.message).into()
            }
            _ => Cow::Borrowed(&*report.message),
        }
    }

    /// The client broke the protocol.
    fn misspoken(&self) -> Report {
        let (code, text) = match self {
            Self::ClientMalformed(malformed) => ("08P01", malformed.to_string()),
            Self::WrongMessage { expected, got } => ("08P01", format!("expected {expected}, got message type {got}")),
            Self::MessageLength { tag } => ("08P01", format!("invalid length of message type {tag}")),
            Self::UnsupportedVersion(version) => {
                let asked = format!("unsupported frontend protocol {}.{}", version >> 16, version & 0xffff);
                ("0A000", format!("{asked}: this pooler supports 3.0 to 3.2"))
            }
            Self::UnknownMessage(tag) => ("08P01", format!("invalid frontend message type {tag}")),
            _ => ("08P01", "protocol violation".to_owned()),
        };
        Report::new(Severity::Fatal, code, text)
    }

    /// Of a session that keeps a server, with what it has there.
    fn pinned(&self, held: &str) -> Report {
        let (code, message) = match self {
            Self::StateRefused { text, .. } => {
                return state_refused(Severity::Fatal, held).detail(format!("It was left by: {text}"));
            }
            Self::TooManyPins { limit, .. } => {
                ("53400", format!("max_pinned_per_pool: {limit} sessions keep servers already"))
            }
            _ => ("57P05", "pin_timeout: the session kept its server too long".to_owned()),
        };
        Report::new(Severity::Fatal, code, message)
            .detail(format!("What it had in its server's session: {held}."))
            .hint("Unlock, drop, close or deallocate it when the work is done, or use session pooling.")
    }

    /// Something took longer than it may.
    fn timed_out(&self) -> Report {
        let (code, text) = match self {
            Self::LoginTimeout => ("57014", "client_login_timeout: the login took too long"),
            Self::IdleTimeout => ("57P05", "client_idle_timeout: the connection was idle too long"),
            Self::QueryWaitTimeout => ("57014", "query_wait_timeout: no server connection became free in time"),
            Self::BegunCancelled => ("57014", "canceling statement due to user request"),
            Self::IdleTransactionTimeout => ("25P03", "idle transaction timeout (idle_transaction_timeout)"),
            Self::TransactionTimeout => ("25P04", "transaction timeout (transaction_timeout)"),
            _ => ("57014", "query timeout (query_timeout)"),
        };
        Report::new(Severity::Fatal, code, text)
    }

    /// Notifications do not reach the client any more.
    fn unheard(&self) -> Report {
        let (code, text, hint) = match self {
            Self::NotificationsUnread => (
                "54000",
                "too many notifications wait for this session",
                "Read them, and end transactions: they are told between two.",
            ),
            Self::NotificationUnlike => (
                "0A000",
                "a notification is not ASCII, and client_encoding is not the encoding of the database",
                "Set client_encoding to the encoding of the database.",
            ),
            _ => (
                "08006",
                "the server connection that listened for this session was lost",
                "Notifications may have been missed: connect again, LISTEN, and look for what has changed.",
            ),
        };
        Report::new(Severity::Fatal, code, text).hint(hint)
    }

    /// How loudly.
    pub(crate) fn level(&self) -> Level {
        match self {
            Self::ServerBrokeProtocol | Self::ServerReportsTooMuch | Self::ParametersRefused { .. } => Level::Error,
            _ => Level::Warning,
        }
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::ClientMalformed(malformed)
    }
}

/// Something that outlives its transaction, where `session_state = refuse`.
pub(crate) fn state_refused(severity: Severity, held: &str) -> Report {
    Report::new(severity, "0A000", format!("state of the session is refused here (session_state = refuse): {held}")).hint(
        "Use SET LOCAL, parameters in the startup packet, pg_advisory_xact_lock, ON COMMIT DROP and prepared statements of the protocol, or session_state = keep.",
    )
}

/// What `nextval` gave last may be of another client's session.
pub(crate) fn sequences_elsewhere() -> Report {
    let text = "what currval() and lastval() would return may be another session's";
    Report::new(Severity::Error, "0A000", text)
        .detail("No session of this pool has asked for it before, so that the server still has what others were given.")
        .hint("Repeat the transaction, or use INSERT ... RETURNING.")
}

/// A session that nobody else has had would have made its schema of temporary objects in this transaction. In PostgreSQL's words.
pub(crate) fn temporary_elsewhere() -> Report {
    let text = "cannot PREPARE a transaction that has operated on temporary objects";
    Report::new(Severity::Error, "0A000", text)
}

/// SQL is to reach what the protocol has prepared, where that cannot be had.
pub(crate) fn statements_elsewhere(hint: &'static str) -> Report {
    let text = "SQL does not reach what is prepared by the protocol at this point";
    Report::new(Severity::Error, "0A000", text)
        .detail("Prepared statements are on shared servers, by other names, until SQL asks for them.")
        .hint(hint)
}

const HEARD_ELSEWHERE: &str = "Its notifications are told by a server that listens for many sessions.";

/// What a session listens to cannot be told, or ended, there.
pub(crate) fn channels_elsewhere() -> Report {
    let text = "what this session listens to cannot be ended or shown at this point of a transaction";
    Report::new(Severity::Error, "0A000", text)
        .detail(HEARD_ELSEWHERE)
        .hint("Send UNLISTEN, or the query of pg_listening_channels(), outside of a transaction block.")
}

/// They are about to be told by code, of which nobody has read what it asks for.
fn channels_asked_by_code() -> Report {
    Report::new(Severity::Fatal, "0A000", "what this session listens to cannot be shown to a function or view")
        .detail(HEARD_ELSEWHERE)
        .hint("Say pg_listening_channels() in the query itself, outside of a transaction block.")
}

fn reports_too_much() -> Report {
    Report::new(Severity::Fatal, "54000", "the server reported more parameters than can be carried to another")
        .detail("Their names and values are limited to 64 KiB, and to 64 of them.")
}

fn reported_elsewhere(name: &str) -> Report {
    let text = format!("the server does not report \"{name}\", which was changed where it is reported");
    Report::new(Severity::Fatal, "08006", text)
        .detail("It is of another release, or has loaded other modules, than the server before it.")
        .hint("Connect again.")
}

fn unlike_encodings() -> Report {
    let text = "a session parameter has a value that is not ASCII, and client_encoding is not the server's encoding";
    Report::new(Severity::Fatal, "0A000", text)
        .detail("The value cannot be carried to another server.")
        .hint("Set client_encoding to the encoding of the database.")
}

/// The same for a stranger as for a user whose password is another, who are told in the same words that it may be either.
fn not_authenticated(by: Proof, user: &str) -> Report {
    let text = format!("{} authentication failed for user \"{user}\"", by.words());
    let report = Report::new(Severity::Fatal, by.code(), text);
    match by {
        Proof::Password | Proof::Sasl => report.detail("There is no such user, or the password is another."),
        Proof::Trust | Proof::Ident | Proof::Pam | Proof::Ldap => report,
    }
}

fn no_certificate(user: &str) -> Report {
    Report::new(Severity::Fatal, "28000", format!("certificate authentication failed for user \"{user}\""))
}

/// In PgBouncer's words.
fn peer_rejected(user: &str) -> Report {
    Report::new(Severity::Fatal, "28000", "unix socket login rejected")
        .detail(format!("The system's user at the other end may not log in as \"{user}\"."))
}

fn too_many_clients(limit: u32, what: &str) -> Report {
    let text = if what == "max_client_conn" { "no more connections allowed" } else { "client connections exceeded" };
    Report::new(Severity::Fatal, "53300", format!("{text} ({what})")).detail(format!("The limit is {what} = {limit}."))
}

/// In PgBouncer's words.
fn no_record(line: Option<u32>) -> Report {
    let text = if line.is_some() { "login rejected" } else { "no authentication method is found" };
    Report::new(Severity::Fatal, "28000", text)
}

fn cancel_may_come() -> Report {
    let text = "how a cancel request of this session has ended is not known";
    Report::new(Severity::Fatal, "08006", text)
        .detail("It may still arrive, and would cancel what the session does next. All that was answered is done; an open transaction was rolled back.")
        .hint("Connect again.")
}

fn state_unknown() -> Report {
    let text = "what this session holds cannot be asked any more: its server is of a database that its pool has left";
    Report::new(Severity::Fatal, "08006", text).detail("All that was answered is done.").hint("Connect again.")
}

fn encoding_changed() -> Report {
    let text = "client_encoding was changed while a parameter had a value that is not ASCII";
    Report::new(Severity::Fatal, "0A000", text)
        .detail("The value cannot be carried to another server.")
        .hint("Set client_encoding first, or use session pooling.")
}
