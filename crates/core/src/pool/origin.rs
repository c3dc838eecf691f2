//! What the settings said when a server was made.

use std::sync::Arc;

use crate::names::PoolName;
use crate::peer::Endpoint;
use crate::settings::{Database, PoolMode, Settings, TlsMode};

/// What the settings said when a server was made, as far as it is why the server is as it is.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(super) database: Arc<Database>,
    pub(super) mode: PoolMode,
    pub(super) keeps: bool,
    pub(super) tls: Tls,
}

/// How servers are spoken to: `server_tls_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tls {
    mode: TlsMode,
    direct: bool,
    files: u64,
}

impl Tls {
    pub(crate) fn of(settings: &Settings) -> Self {
        Self { mode: settings.server_tls_sslmode, direct: settings.server_tls_direct, files: settings.server_tls_files }
    }
}

impl Origin {
    /// The database's name on the server.
    pub(crate) fn server_database(&self, pool: &PoolName) -> Arc<str> {
        Arc::clone(self.database.server_database.as_ref().unwrap_or(&pool.database))
    }

    /// Both are of one database.
    pub(crate) fn leads_as(&self, other: &Self) -> bool {
        let (database, others) = (&self.database, &other.database);
        database.server_database == others.server_database && database.endpoints == others.endpoints
    }

    /// Whether a server of one is as good as one of the other.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        let (database, others) = (&self.database, &other.database);
        let over_tcp = |endpoint: &Endpoint| matches!(endpoint, Endpoint::Tcp { .. });
        // What a session left behind is for nobody else, and its server is not reset between transactions.
        self.mode == other.mode
            && self.keeps == other.keeps
            && (self.tls == other.tls || !database.endpoints.iter().any(over_tcp))
            && self.leads_as(other)
            && database.forced_user == others.forced_user
            && database.forced_password == others.forced_password
            && database.startup_parameters == others.startup_parameters
            && database.connect_query == others.connect_query
    }
}
