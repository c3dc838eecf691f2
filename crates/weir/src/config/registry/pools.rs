//! Settings about pools: limits, what passes through, timeouts, servers.

use super::{COUNT, Kind, SESSION_STATES, Setting, setting};

pub const LIMITS: &[Setting] = &[
    setting(
        "pool_mode",
        Kind::Choice(&["session", "transaction", "statement"]),
        "session",
        "When a server goes back to its pool: `session`: when the client leaves; `transaction`: at the end of each \
         transaction; `statement`: after each statement, and transactions of several statements are refused.",
    ),
    setting(
        "session_state",
        SESSION_STATES,
        "keep",
        "In transaction mode, what becomes of what a client leaves in a server's session (`SET`, temporary tables, advisory locks, \
         `LISTEN`, `PREPARE`, cursors `WITH HOLD`). `keep`: it stays that client's, as far as the texts of its statements and the code that they call tell: parameters go \
         with it to whichever server it gets next, and for the rest the server stays with it while it is there (`SHOW PINS`). \
         `refuse`: a statement that says that it leaves something is an error, and who leaves something otherwise is disconnected. \
         `pgbouncer`: whoever gets the server next has it, as with PgBouncer. What follows and what does not: `docs/session-state.md`.",
    )
    .own(),
    setting(
        "pin_timeout",
        Kind::Seconds,
        "0",
        "How long a client may keep a server for its session's state (`session_state = keep`, `SHOW PINS`). It is disconnected then, as \
         soon as it is outside of a transaction. 0: no limit.",
    )
    .own(),
    setting(
        "pin_warn_after",
        Kind::Seconds,
        "0",
        "After which time that a client keeps a server for its session's state there is a warning in the log, with what is kept and by \
         which statement. 0: never.",
    )
    .own(),
    setting(
        "max_pinned_per_pool",
        COUNT,
        "0",
        "How many servers of a pool its clients may keep for their sessions' state, over the whole process. A client that comes to keep one more is \
         disconnected. 0: no limit.",
    )
    .own(),
    setting("max_client_conn", COUNT, "100", "How many clients may be connected at once, over the whole process."),
    setting(
        "default_pool_size",
        COUNT,
        "20",
        "How many servers a pool, which is one pair of database and user, may have at once, over the whole process.",
    ),
    setting(
        "min_pool_size",
        COUNT,
        "0",
        "How many servers a pool opens while it has clients, or always if its database forces a user, and keeps open beyond `server_idle_timeout`.",
    ),
    setting(
        "reserve_pool_size",
        COUNT,
        "0",
        "How many servers a pool may open beyond its size once a client has waited for `reserve_pool_timeout`.",
    ),
    setting(
        "reserve_pool_timeout",
        Kind::Seconds,
        "5",
        "How long a client must have waited before the reserve is used. 0: no reserve.",
    ),
    setting(
        "max_db_connections",
        COUNT,
        "0",
        "How many servers one database may have, whatever the users. 0: no limit.",
    ),
    setting(
        "max_user_connections",
        COUNT,
        "0",
        "How many servers one user may have, whatever the databases. 0: no limit.",
    ),
    setting("max_db_client_connections", COUNT, "0", "How many clients one database may have. 0: no limit."),
    setting("max_user_client_connections", COUNT, "0", "How many clients one user may have. 0: no limit."),
    setting(
        "server_round_robin",
        Kind::Switch,
        "0",
        "Whether the server that has been idle longest is used next, instead of the one used last.",
    ),
    setting(
        "pool_idle_timeout",
        Kind::Seconds,
        "0",
        "After which time without clients and servers a pool is forgotten, and what was counted for it. 0: never. One of a database with a forced user and \
         `min_pool_size` stays. It is looked for four times within the limit, and at least each minute.",
    ),
    setting(
        "autodb_idle_timeout",
        Kind::Seconds,
        "3600",
        "The same for the pools of databases that `*` stands for. Beyond 1,024 pools of a worker, whatever the settings are, one that nobody uses gives way to a new one.",
    ),
];

pub const SESSIONS: &[Setting] = &[
    setting(
        "max_prepared_statements",
        COUNT,
        "200",
        "How many named prepared statements of the protocol each server holds at most, in transaction and statement \
         mode. Beyond it the one unused longest is closed and prepared again when needed. 0: a server holds one, \
         and a client's statements follow it all the same.",
    ),
    setting(
        "max_packet_size",
        Kind::Bytes { min: 1, max: i32::MAX as u64 },
        "2147483647",
        "The largest message that passes, in either direction.",
    ),
    setting(
        "ignore_startup_parameters",
        Kind::List,
        "",
        "Startup parameters that clients may send and that are dropped. `options` among them drops options that are \
         not of the form `-c name=value`. All others are applied to the client's session, whichever server it is \
         linked to; one that PostgreSQL refuses ends the login, as it does without a pooler.",
    ),
    setting("track_extra_parameters", Kind::List, "IntervalStyle", "Further parameters that are kept per client.")
        .fixed()
        .no_effect("every parameter that PostgreSQL reports is kept per client"),
    setting(
        "application_name_add_host",
        Kind::Switch,
        "0",
        "Whether a client's address is added to its `application_name` at the login (`app - 10.0.0.7:40000`). What it sets later is \
         left as it is.",
    ),
    setting(
        "disable_pqexec",
        Kind::Switch,
        "0",
        "Whether a simple query ends its client (`08P01`, `PQexec disallowed`): it may have several statements, which is what many injections of SQL need. \
         Connections for replication, which speak in simple queries, are refused. The console takes them all the same.",
    ),
    setting("login_notify_message", Kind::Text, "", "A notice that each client gets behind its login. Empty: none."),
];

pub const TIMEOUTS: &[Setting] = &[
    setting("client_login_timeout", Kind::Seconds, "60", "How long a client may take to log in. 0: no limit."),
    setting(
        "client_idle_timeout",
        Kind::Seconds,
        "0",
        "After which time without a query a client is disconnected. 0: never.",
    ),
    setting(
        "query_wait_timeout",
        Kind::Seconds,
        "120",
        "How long a client waits for a server before it is disconnected. 0: for ever.",
    ),
    setting(
        "query_wait_notify",
        Kind::Seconds,
        "5",
        "After which time of waiting for a server a client gets a notice, once for each wait. 0: never.",
    ),
    setting(
        "query_timeout",
        Kind::Seconds,
        "0",
        "How long a query may take before it is cancelled and its client disconnected; waiting for a server is a part of it, at a login too. 0: no \
         limit.",
    ),
    setting(
        "idle_transaction_timeout",
        Kind::Seconds,
        "0",
        "How long a client may sit idle in a transaction before it is disconnected. 0: no limit.",
    ),
    setting(
        "transaction_timeout",
        Kind::Seconds,
        "0",
        "How long a transaction may last before its client is disconnected. 0: no limit.",
    ),
    setting(
        "cancel_wait_timeout",
        Kind::Seconds,
        "10",
        "How long a cancel request waits for a connection to the server, and for its end. 0: for ever with PgBouncer, ten \
         seconds here: whatever its session does next waits for that.",
    ),
    setting(
        "server_connect_timeout",
        Kind::Seconds,
        "15",
        "How long connecting and logging in to a server may take. 0: no limit.",
    ),
    setting(
        "server_login_retry",
        Kind::Seconds,
        "15",
        "The longest wait after a failed connect or login before the next one. The first wait is 50 ms, and each \
         further one is twice as long as the last.",
    ),
    setting("server_idle_timeout", Kind::Seconds, "600", "After which time unused a server is closed. 0: never."),
    setting(
        "server_lifetime",
        Kind::Seconds,
        "3600",
        "The age at which a server that is not in use is closed. 0: each is used once.",
    ),
    setting("suspend_timeout", Kind::Seconds, "10", "How long SUSPEND waits for buffers to drain.").no_effect(
        "SUSPEND waits for nothing: what is unsent is sent meanwhile, and a restart (-R) drops nobody for it",
    ),
];

pub const SERVERS: &[Setting] = &[
    setting(
        "server_reset_query",
        Kind::Text,
        "DISCARD ALL",
        "What cleans a server when its client leaves it, in session mode. Empty: nothing.",
    ),
    setting("server_reset_query_always", Kind::Switch, "0", "Whether `server_reset_query` runs in every pool mode."),
    setting(
        "server_check_delay",
        Kind::Seconds,
        "30",
        "How long a server may be idle and be given to a client at once; one that was idle for longer is asked `server_check_query` first. 0: each is \
         asked, whenever it was idle.",
    ),
    setting(
        "server_check_query",
        Kind::Text,
        "<empty>",
        "The query that tells whether a server that was idle for `server_check_delay` is still there, as where a firewall forgets connections. Its client \
         waits for the answer; where that is an error, or none comes within 10 seconds, the server is closed; where none comes within a second, the client gets the next one that answers. \
         `<empty>`: an empty query. Empty: servers are not asked.",
    ),
    setting(
        "server_fast_close",
        Kind::Switch,
        "0",
        "Whether clients that keep a server which RECONNECT or a reload replaces (in session mode, or for what they have left in its session) are ended with it, \
         between two transactions (`57P01`, `database configuration changed`), rather than with their session.",
    ),
];
