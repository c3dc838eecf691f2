//! Settings about running the program: console, log, process.

use super::{Kind, Setting, setting};
use crate::syslog::Facility;

const NO_WINDOWS: &str = "there is no Windows service";

pub const CONSOLE: &[Setting] = &[
    setting("admin_users", Kind::List, "", "Users who may run every command of the console."),
    setting("stats_users", Kind::List, "", "Users who may run the console's SHOW commands, but for SHOW FDS."),
    setting(
        "stats_period",
        Kind::Integer { min: 1, max: i32::MAX as u64 },
        "60",
        "Over how many seconds SHOW STATS averages.",
    ),
    setting(
        "metrics_listen_addr",
        Kind::List,
        "",
        "The TCP addresses where HTTP is answered to whoever watches the process, or `*` for all: `/metrics` for Prometheus, `/healthz`, \
         `/readyz`. Nobody is asked who they are. Empty: none.",
    )
    .fixed()
    .own(),
    setting("metrics_port", Kind::Integer { min: 1, max: 65_535 }, "9127", "The port for that.").fixed().own(),
    setting(
        "log_stats",
        Kind::Switch,
        "1",
        "Whether the averages of each `stats_period` are written to the log: one line for all databases together.",
    ),
];

pub const LOG: &[Setting] = &[
    setting(
        "logfile",
        Kind::Path,
        "",
        "The log file, opened again on SIGHUP. Needed by `--daemon`, unless `syslog` is on.",
    ),
    setting(
        "verbose",
        Kind::Integer { min: 0, max: 9 },
        "",
        "How much is logged: 0: what operators need; 1 and more: what debugging needs; 2 and more: also what startup packets have set.",
    )
    .unset(),
    setting("log_connections", Kind::Switch, "1", "Whether logins are logged."),
    setting("log_disconnections", Kind::Switch, "1", "Whether disconnects are logged, with their reason."),
    setting("log_pooler_errors", Kind::Switch, "1", "Whether the errors that we send to clients are logged."),
    setting(
        "log_format",
        Kind::Choice(&["text", "json"]),
        "text",
        "How lines are written to `logfile` and to standard error. `text`: as PgBouncer writes them. `json`: each is an object with `time` \
         (RFC 3339), `pid`, `level` and `message`.",
    )
    .own(),
    setting(
        "syslog",
        Kind::Switch,
        "0",
        "Whether to log to the system's log (`/dev/log`), too. What that does not take is lost, and nobody waits for it.",
    ),
    setting("syslog_ident", Kind::Text, "pgbouncer", "The name in the system's log."),
    setting("syslog_facility", Kind::Choice(&Facility::NAMES), "daemon", "The facility in the system's log."),
];

pub const PROCESS: &[Setting] = &[
    setting(
        "workers",
        Kind::Integer { min: 0, max: 1_024 },
        "0",
        "How many worker threads share the work. 0: one per core, or more where `max_client_conn` needs them to hold sockets \
         beyond the limit on open files (io_uring).",
    )
    .fixed()
    .own(),
    setting(
        "driver",
        Kind::Choice(&["auto", "epoll", "io_uring"]),
        "auto",
        "How workers talk to the kernel. `auto`: io_uring where the kernel allows it, else epoll; the log says which.",
    )
    .fixed()
    .own(),
    setting(
        "busy_poll",
        Kind::Integer { min: 0, max: 1_000 },
        "0",
        "For how many microseconds a worker looks for work before it sleeps, while its last waits were shorter than that, \
         as long as it gets more done and nobody else wants the core. With few busy clients on a machine with idle cores 50 saves the \
         time of waking up, for nearly twice the CPU time; with many it changes nothing. 0: never. A machine with one core never does.",
    )
    .fixed()
    .own(),
    setting("user", Kind::Text, "", "The system user to become after start. Needed when started as root.")
        .unset()
        .fixed(),
    setting("pidfile", Kind::Path, "", "The file that holds the process id while we run. Needed by `--daemon`.")
        .fixed(),
    setting(
        "conffile",
        Kind::Path,
        "",
        "The configuration file that the next RELOAD reads. Unset: the one of the command line.",
    )
    .unset(),
    setting("job_name", Kind::Text, "pgbouncer", "The name of the Windows service.").fixed().no_effect(NO_WINDOWS),
    setting("service_name", Kind::Text, "pgbouncer", "The name of the Windows service.").fixed().no_effect(NO_WINDOWS),
];
