//! Settings as core uses them: values, read by the program from files and handed in whole.
//!
//! Names and defaults are PgBouncer's (doc/config.md of 1.25.2). How a file spells them is not known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::auth::Secret;
use crate::hba::Hba;
use crate::names::CONSOLE_DATABASES;
use crate::peer::Endpoint;
use crate::time::Duration;

/// What becomes of what a client leaves in a server's session, in transaction mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// It is the client's alone: it goes with it, or the server stays with it while it is there.
    Keep,
    /// It is not made: a statement that says so is an error, and who makes it otherwise is disconnected.
    Refuse,
    /// Whoever gets the server next has it, as with PgBouncer.
    Pgbouncer,
}

/// A database that several nodes have, each of which answers any query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterKind {
    Citus,
}

/// Where a transaction in a cluster's database goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To the node that has its rows, where its first statement with a key says which that is.
    Owner,
    /// To whichever node has least to do, where any may answer.
    Any,
    Coordinator,
}

/// When a server goes back to its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolMode {
    Session,
    Transaction,
    Statement,
}

impl PoolMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
            Self::Statement => "statement",
        }
    }
}

/// `auth_query`, as it comes.
pub const AUTH_QUERY: &str = "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END FROM pg_authid \
                              WHERE rolname=$1 AND rolcanlogin";

/// The same, as it is sent: whoever owns the database may not have other things found under those names.
const QUALIFIED: &str = "SELECT rolname, CASE WHEN rolvaliduntil OPERATOR(pg_catalog.<) pg_catalog.now() THEN NULL ELSE rolpassword END \
                         FROM pg_catalog.pg_authid WHERE rolname OPERATOR(pg_catalog.=) $1 AND rolcanlogin";

/// How users are looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) database: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) query: Arc<str>,
}

/// How clients prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthType {
    /// Anybody, and the name is ignored: databases must force a user.
    Any,
    /// The name must be known, nothing is proved.
    Trust,
    /// Cleartext password.
    Plain,
    /// md5, or SCRAM where the stored secret is a SCRAM verifier.
    Md5,
    ScramSha256,
    /// A client certificate whose common name is the user.
    Cert,
    /// The system's user at the other end of a Unix socket, by a record alone.
    Peer,
    /// Who the client's machine says that it is (RFC 1413), by a record alone.
    Ident,
    /// A password in clear that PAM finds right, by a record alone.
    Pam,
    /// A password in clear that a directory finds right, by a record alone.
    Ldap,
    /// Nobody.
    Reject,
    /// What the first record says that matches ([`Hba`]).
    Hba,
}

/// `sslmode`, for both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Everything core is told. Zero means "no limit" in limits and timeouts, as in PgBouncer.
#[derive(Debug, Clone)]
pub struct Settings {
    pub databases: BTreeMap<Arc<str>, Arc<Database>>,
    /// The database `*`: any name not listed, with `dbname` defaulting to that name.
    pub fallback_database: Option<Arc<Database>>,
    pub users: BTreeMap<Arc<str>, UserSettings>,
    /// auth_file: who may enter, and with which secret.
    pub secrets: BTreeMap<Arc<str>, Secret>,

    pub auth_type: AuthType,
    pub hba: Arc<Hba>,
    /// Who asks for the secrets of users who are not in `secrets`, how, and in which entry of `[databases]`; `None`: in the one
    /// that the client wants.
    pub auth_user: Option<Arc<str>>,
    pub auth_query: Arc<str>,
    pub auth_dbname: Option<Arc<str>>,
    pub admin_users: Vec<String>,
    pub stats_users: Vec<String>,
    pub scram_iterations: u32,

    /// Our own number among those that pass cancel requests on to each other; 0: nobody does.
    pub peer_id: u16,
    pub peers: BTreeMap<u16, PeerSettings>,

    pub pool_mode: PoolMode,
    pub session_state: SessionState,
    pub pin_timeout: Duration,
    pub pin_warn_after: Duration,
    pub max_pinned_per_pool: u32,
    pub max_client_conn: u32,
    pub default_pool_size: u32,
    pub min_pool_size: u32,
    pub reserve_pool_size: u32,
    pub reserve_pool_timeout: Duration,
    pub max_db_connections: u32,
    pub max_user_connections: u32,
    pub max_db_client_connections: u32,
    pub max_user_client_connections: u32,
    pub server_round_robin: bool,
    pub max_prepared_statements: u32,
    pub ignore_startup_parameters: Vec<String>,
    pub application_name_add_host: bool,
    /// A notice behind each login; none where it is empty.
    pub login_notify_message: String,
    pub server_reset_query: String,
    pub server_reset_query_always: bool,
    /// Whether a server still answers is asked with this, where it has been idle for so long; never without one. An empty query is one.
    pub server_check_query: Option<String>,
    pub server_check_delay: Duration,
    pub max_packet_size: u32,
    /// Whether clients that keep a server which is to be replaced end with it, between two transactions.
    pub server_fast_close: bool,
    /// Whether a simple query ends its client. The console takes them.
    pub disable_pqexec: bool,

    pub client_login_timeout: Duration,
    pub client_idle_timeout: Duration,
    pub query_wait_timeout: Duration,
    pub query_wait_notify: Duration,
    pub query_timeout: Duration,
    pub idle_transaction_timeout: Duration,
    pub transaction_timeout: Duration,
    pub cancel_wait_timeout: Duration,
    pub server_connect_timeout: Duration,
    pub server_idle_timeout: Duration,
    /// So long after its last client and server a pool is forgotten; one of a database that `*` made also after the other.
    pub pool_idle_timeout: Duration,
    pub autodb_idle_timeout: Duration,
    pub server_lifetime: Duration,
    pub server_login_retry: Duration,

    pub client_tls_sslmode: TlsMode,
    /// Whether the program loaded a certificate for `TlsRole::Accept`.
    pub client_tls_available: bool,
    pub server_tls_sslmode: TlsMode,
    /// Begin TLS towards servers without SSLRequest (PostgreSQL 17 and newer).
    pub server_tls_direct: bool,
    /// Another number whenever the program loaded something else for `TlsRole::Connect`: servers made with that are replaced.
    pub server_tls_files: u64,

    pub log: LogSettings,
    pub stats_period: Duration,

    /// What SHOW CONFIG prints: every setting of the file, in its order.
    pub show_config: Vec<ConfigRow>,
    /// What SHOW VERSION prints.
    pub version: String,
}

/// What the log says beside what goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    pub connections: bool,
    pub disconnections: bool,
    pub pooler_errors: bool,
    pub stats: bool,
    /// From 2 on also what startup packets have set.
    pub verbose: u8,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { connections: true, disconnections: true, pooler_errors: true, stats: true, verbose: 0 }
    }
}

/// One row of SHOW CONFIG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRow {
    pub key: String,
    pub value: String,
    pub default: String,
    pub changeable: bool,
}

/// One entry of `[databases]`. `None`: the global setting, or the client's own value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// `dbname`.
    pub server_database: Option<Arc<str>>,
    /// `host` and `port`.
    pub endpoints: Vec<Endpoint>,
    /// `load_balance_hosts`: several hosts are taken in turn. Else one is kept until logins fail there.
    pub balances_hosts: bool,
    /// `user`: everybody's sessions run as this one.
    pub forced_user: Option<Arc<str>>,
    /// `password` of the forced user.
    pub forced_password: Option<Secret>,
    pub pool_size: Option<u32>,
    pub min_pool_size: Option<u32>,
    pub reserve_pool_size: Option<u32>,
    pub max_db_connections: Option<u32>,
    pub max_db_client_connections: Option<u32>,
    pub server_lifetime: Option<Duration>,
    pub query_wait_timeout: Option<Duration>,
    pub pool_mode: Option<PoolMode>,
    pub session_state: Option<SessionState>,
    pub cluster: Option<ClusterKind>,
    pub route: Option<Route>,
    /// Where a load balancer leads to any of a cluster's nodes, whose own addresses cannot be reached.
    pub balanced: Option<Endpoint>,
    pub fan_out_pool_size: Option<u32>,
    /// client_encoding, datestyle, timezone, application_name: parameters of the server's startup.
    pub startup_parameters: Vec<(Arc<str>, Arc<str>)>,
    /// Run after each connect to a server.
    pub connect_query: Option<Arc<str>>,
    pub auth_user: Option<Arc<str>>,
    pub auth_query: Option<Arc<str>>,
    pub auth_dbname: Option<Arc<str>>,
}

/// One entry of `[users]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserSettings {
    pub pool_mode: Option<PoolMode>,
    pub session_state: Option<SessionState>,
    pub route: Option<Route>,
    pub fan_out_pool_size: Option<u32>,
    pub pool_size: Option<u32>,
    pub reserve_pool_size: Option<u32>,
    pub max_user_connections: Option<u32>,
    pub max_user_client_connections: Option<u32>,
    pub query_wait_timeout: Option<Duration>,
    pub query_timeout: Option<Duration>,
    pub idle_transaction_timeout: Option<Duration>,
    pub transaction_timeout: Option<Duration>,
    pub client_idle_timeout: Option<Duration>,
}

/// One entry of `[peers]`: another process, which cancel requests for its sessions are passed on to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSettings {
    pub endpoint: Endpoint,
    /// So many requests are on their way to it at once.
    pub pool_size: Option<u32>,
}

impl Database {
    /// A database that connects to the given endpoints and leaves all else to the global settings.
    pub fn at(endpoints: Vec<Endpoint>) -> Self {
        Self {
            server_database: None,
            endpoints,
            balances_hosts: true,
            forced_user: None,
            forced_password: None,
            pool_size: None,
            min_pool_size: None,
            reserve_pool_size: None,
            max_db_connections: None,
            max_db_client_connections: None,
            server_lifetime: None,
            query_wait_timeout: None,
            pool_mode: None,
            session_state: None,
            cluster: None,
            route: None,
            balanced: None,
            fan_out_pool_size: None,
            startup_parameters: Vec::new(),
            connect_query: None,
            auth_user: None,
            auth_query: None,
            auth_dbname: None,
        }
    }
}

impl Default for Settings {
    /// PgBouncer's defaults, with no databases and no users.
    fn default() -> Self {
        Self {
            databases: BTreeMap::new(),
            fallback_database: None,
            users: BTreeMap::new(),
            secrets: BTreeMap::new(),
            auth_type: AuthType::Md5,
            hba: Arc::default(),
            auth_user: None,
            auth_query: AUTH_QUERY.into(),
            auth_dbname: None,
            admin_users: Vec::new(),
            stats_users: Vec::new(),
            scram_iterations: 4096,
            peer_id: 0,
            peers: BTreeMap::new(),
            pool_mode: PoolMode::Session,
            session_state: SessionState::Keep,
            pin_timeout: Duration::ZERO,
            pin_warn_after: Duration::ZERO,
            max_pinned_per_pool: 0,
            max_client_conn: 100,
            default_pool_size: 20,
            min_pool_size: 0,
            reserve_pool_size: 0,
            reserve_pool_timeout: Duration::from_secs(5),
            max_db_connections: 0,
            max_user_connections: 0,
            max_db_client_connections: 0,
            max_user_client_connections: 0,
            server_round_robin: false,
            max_prepared_statements: 200,
            ignore_startup_parameters: Vec::new(),
            application_name_add_host: false,
            login_notify_message: String::new(),
            server_reset_query: "DISCARD ALL".to_owned(),
            server_reset_query_always: false,
            server_check_query: Some(String::new()),
            server_check_delay: Duration::from_secs(30),
            max_packet_size: i32::MAX as u32,
            client_login_timeout: Duration::from_secs(60),
            client_idle_timeout: Duration::ZERO,
            query_wait_timeout: Duration::from_secs(120),
            query_wait_notify: Duration::from_secs(5),
            query_timeout: Duration::ZERO,
            idle_transaction_timeout: Duration::ZERO,
            transaction_timeout: Duration::ZERO,
            cancel_wait_timeout: Duration::from_secs(10),
            server_connect_timeout: Duration::from_secs(15),
            server_idle_timeout: Duration::from_secs(600),
            pool_idle_timeout: Duration::ZERO,
            autodb_idle_timeout: Duration::from_secs(3600),
            server_lifetime: Duration::from_secs(3600),
            server_login_retry: Duration::from_secs(15),
            client_tls_sslmode: TlsMode::Disable,
            client_tls_available: false,
            server_tls_sslmode: TlsMode::Prefer,
            server_tls_direct: false,
            server_tls_files: 0,
            server_fast_close: false,
            disable_pqexec: false,
            log: LogSettings::default(),
            stats_period: Duration::from_secs(60),
            show_config: Vec::new(),
            version: String::new(),
        }
    }
}

impl Settings {
    /// The entry a client's database name leads to, if any.
    pub fn database(&self, name: &str) -> Option<&Arc<Database>> {
        self.databases.get(name).or(self.fallback_database.as_ref())
    }

    /// How long such a client waits for a server, where the user's or the database's entry says so.
    pub(crate) fn own_query_wait_timeout(&self, database: &str, user: &str) -> Option<Duration> {
        let of_user = self.users.get(user).and_then(|user| user.query_wait_timeout);
        of_user.or_else(|| self.database(database)?.query_wait_timeout)
    }

    /// Whether users are looked up anywhere.
    pub(crate) fn looks_up(&self) -> bool {
        let entries = || self.databases.values().chain(&self.fallback_database);
        self.auth_user.is_some() || entries().any(|entry| entry.auth_user.is_some())
    }

    /// The database that one stands for which does not exist, by this number: its users are asked for what they are asked for there, so that nobody sees
    /// before he is let in which databases there are.
    pub(crate) fn stands_for(&self, number: u64) -> Option<&Arc<str>> {
        let place = (u128::from(number) * self.databases.len() as u128) >> 64;
        self.databases.keys().nth(place as usize)
    }

    /// How users are looked up who are not in `secrets` and want to come into this database; `None`: they are not.
    pub(crate) fn lookup(&self, database: &str) -> Option<Way> {
        let entry = if CONSOLE_DATABASES.contains(&database) { None } else { Some(&**self.database(database)?) };
        let user = entry.and_then(|entry| entry.auth_user.as_ref()).or(self.auth_user.as_ref())?;
        let query = entry.and_then(|entry| entry.auth_query.as_ref()).unwrap_or(&self.auth_query);
        let query = if **query == *AUTH_QUERY { QUALIFIED } else { query };
        let place = entry.and_then(|entry| entry.auth_dbname.as_ref()).or(self.auth_dbname.as_ref());
        let database = place.map_or_else(|| database.into(), Arc::clone);
        Some(Way { database, user: Arc::clone(user), query: query.into() })
    }
}
