//! Settings as a seed draws them: each over the whole range that a file may give it, zero where zero is a value.
//!
//! What is not drawn, or not by a reload, says why where it stands, or here: `application_name_add_host`, `login_notify_message` and `log_stats` change
//! what is told and not what is done. `auth_type = hba` decides who comes in from records that are a file's, before anything that is watched here.
//! `session_state = refuse` would end nearly all clients at the first thing that they leave; whether state is kept is one thing for a whole
//! run, by databases, users and reloads too, since a client that is kept its state now and not then can rely on nothing that a model could look at. So
//! it is with `auth_user`, `auth_query` and `auth_dbname`: who is looked up is in no file, whichever is read. Conversations and tests with PostgreSQL have each of these.

use std::sync::Arc;

use weir_core::auth::Secret;
use weir_core::settings::{
    AuthType, ClusterKind, ConfigRow, Database, LogSettings, PoolMode, Route, SessionState, TlsMode, UserSettings,
};
use weir_core::time::Duration;
use weir_core::{Endpoint, Settings};

use crate::plan::{ADMIN, CROWD, password};
use crate::postgres::sharded::SHARDED;
use crate::postgres::{QUESTION, ServerAuth, UNREPORTED};
use crate::rng::Rng;
use crate::scram;
use crate::traffic::{DEAD_PORTS, FIRST_PORT};

/// What a database is called on its server, where that is not its name here.
const THERE: &str = "_there";
/// Whose session a database may force; no client comes as this one.
pub const FORCED: &str = "f0";
/// Who looks up users that are in no file; no client comes as this one.
pub const LOOKER: &str = "looker";
/// A time zone that no client asks for.
pub const OWN_ZONE: &str = "America/New_York";

/// What all settings of a run have in common: those of its begin, which are those of its end, and those of its reloads.
pub struct Frame {
    /// Nothing may go wrong for any client.
    pub calm: bool,
    pub server_tls: bool,
    /// All clients come with TLS.
    pub clients_tls: bool,
    pub server_auth: ServerAuth,
    pub databases: Vec<String>,
    pub users: Vec<String>,
    pub clusters: usize,
    /// What a login means that begins while a reload is under way cannot be told for a parameter that is not reported.
    pub ignored: Vec<String>,
    /// What clients leave in their sessions stays theirs.
    pub keeps: bool,
    /// Pools change their mode at reloads. Seldom: a client whose pool keeps servers now and not then can rely on little.
    pub modes_vary: bool,
    /// Statements of before would be found by who has the server next: not where a pool keeps servers for sessions.
    pub odd_resets: bool,
    /// The first of the users is in no file, and looked up.
    pub looks_up: bool,
    /// A database stands as `*`: one that was removed would lead there, to another server's tables.
    pub fallback: bool,
    /// The first of the databases is a cluster. What else is drawn does not depend on it.
    pub sharded: bool,
}

/// The name that a database has here.
pub fn name_here(there: &str) -> &str {
    there.strip_suffix(THERE).unwrap_or(there)
}

fn seconds(rng: &mut Rng, low: u64, high: u64) -> Duration {
    if rng.chance(100) { Duration::ZERO } else { Duration::from_secs(rng.between(low, high)) }
}

impl Frame {
    pub fn new(rng: &mut Rng) -> Self {
        let databases: Vec<String> = (0..rng.between(1, 2)).map(|number| format!("d{number}")).collect();
        let clusters = rng.between(1, databases.len() as u64) as usize;
        let ignored = *rng.pick(&["", "", "", "", UNREPORTED, "timezone"]);
        Self {
            calm: rng.chance(350),
            server_tls: rng.chance(300),
            clients_tls: rng.chance(200),
            server_auth: *rng.pick(&[ServerAuth::Trust, ServerAuth::Cleartext, ServerAuth::Md5, ServerAuth::Scram]),
            users: (0..rng.between(1, 3)).map(|number| format!("u{number}")).collect(),
            clusters,
            ignored: Some(ignored).filter(|name| !name.is_empty()).map(str::to_owned).into_iter().collect(),
            keeps: rng.chance(400),
            modes_vary: rng.chance(150),
            odd_resets: rng.chance(200),
            fallback: rng.chance(150),
            looks_up: rng.clone().chance(300),
            sharded: Rng::new(u64::from_be_bytes(rng.clone().bytes())).chance(250),
            databases,
        }
    }

    fn mode(&self, rng: &mut Rng) -> PoolMode {
        match rng.below(10) {
            0 | 1 if !self.odd_resets => PoolMode::Session,
            2 => PoolMode::Statement,
            _ => PoolMode::Transaction,
        }
    }

    /// The settings of the begin and of the end: then every client must be served or told.
    pub fn first(&self, rng: &mut Rng) -> Settings {
        let mut settings = self.global(rng);
        settings.max_packet_size = self.packets(rng, 200);
        settings.pool_mode = self.mode(rng);
        if let (true, true) = (self.clients_tls, rng.chance(300)) {
            (settings.auth_type, settings.client_tls_sslmode) = (AuthType::Cert, TlsMode::VerifyFull);
        }
        for number in 0..self.databases.len() {
            let mut database = self.database(rng, number);
            if rng.chance(100) {
                database.pool_mode = Some(self.mode(rng));
            }
            self.list(&mut settings, number, Arc::new(database), true);
        }
        for name in self.names() {
            if rng.chance(250) {
                let mut own = self.user(rng);
                own.pool_mode = rng.chance(200).then(|| self.mode(rng));
                settings.users.insert(name.as_str().into(), own);
            }
        }
        self.finish(rng, &mut settings);
        settings
    }

    /// Those of a reload: much is as it was, or anything may be another.
    pub fn reload(&self, rng: &mut Rng, first: &Settings) -> Settings {
        let mut settings = self.global(rng);
        settings.max_packet_size = self.packets(rng, 1);
        settings.pool_mode = if self.modes_vary { self.mode(rng) } else { first.pool_mode };
        if !self.calm && rng.chance(300) {
            use TlsMode::{Allow, Disable, Prefer, Require, VerifyCa, VerifyFull};
            settings.client_tls_sslmode = *rng.pick(&[Disable, Allow, Prefer, Require, VerifyCa, VerifyFull]);
        }
        // In a calm run none who has logged in without a password is asked for one half way, and none the other way round.
        let certificate = if self.calm { first.auth_type == AuthType::Cert } else { rng.chance(50) };
        if certificate {
            (settings.auth_type, settings.client_tls_sslmode) = (AuthType::Cert, TlsMode::VerifyFull);
        }
        for (number, name) in self.databases.iter().enumerate() {
            let Some(before) = first.database(name) else { continue };
            let mut database = if rng.chance(600) { (**before).clone() } else { self.database(rng, number) };
            if rng.chance(300) {
                self.resize(rng, &mut database);
            }
            database.pool_mode = before.pool_mode;
            if self.modes_vary && rng.chance(300) {
                database.pool_mode = rng.chance(500).then(|| self.mode(rng));
            }
            if self.calm || self.fallback || rng.chance(920) {
                let fallback = rng.chance(700);
                self.list(&mut settings, number, Arc::new(database), fallback);
            }
        }
        for name in self.names() {
            let before = first.users.get(name.as_str());
            let mut own = if rng.chance(500) { before.cloned() } else { rng.chance(250).then(|| self.user(rng)) };
            let kept = before.and_then(|user| user.pool_mode);
            let mode = if self.modes_vary && rng.chance(300) { rng.chance(200).then(|| self.mode(rng)) } else { kept };
            if mode.is_some() || own.is_some() {
                own.get_or_insert_default().pool_mode = mode;
            }
            settings.users.extend(own.map(|own| (name.as_str().into(), own)));
        }
        self.finish(rng, &mut settings);
        // The secret of a login that is under way stays what the client was told.
        if self.calm {
            let hashed = first.secrets.values().any(|secret| matches!(secret, Secret::Md5(_)));
            settings.secrets = first.secrets.clone();
            if hashed && settings.auth_type == AuthType::ScramSha256 {
                settings.auth_type = first.auth_type;
            }
        }
        settings
    }

    /// Everybody who may have an entry in `[users]`.
    fn names(&self) -> Vec<String> {
        self.users.iter().cloned().chain([FORCED.to_owned()]).collect()
    }

    /// The last one is what every other name leads to, where there is such a one.
    fn list(&self, settings: &mut Settings, number: usize, database: Arc<Database>, fallback: bool) {
        if self.fallback && fallback && number + 1 == self.databases.len() {
            settings.fallback_database = Some(database);
        } else {
            settings.databases.insert(self.databases[number].as_str().into(), database);
        }
    }

    /// What depends on the rest.
    fn finish(&self, rng: &mut Rng, settings: &mut Settings) {
        let all = settings.databases.values().chain(&settings.fallback_database);
        if all.into_iter().all(|database| database.forced_user.is_some()) && !self.calm && rng.chance(500) {
            // Other databases let nobody in.
            settings.auth_type = AuthType::Any;
        }
        let md5_hash = settings.auth_type != AuthType::ScramSha256
            && matches!(self.server_auth, ServerAuth::Trust | ServerAuth::Md5)
            && rng.chance(300);
        // Its keys open no door of servers here, as theirs are others.
        let verifier = self.server_auth == ServerAuth::Trust && rng.chance(300);
        // Clients that stay in a pool of that user's when a reload forces another have its password no more.
        let forced = Some(FORCED).filter(|_| self.calm);
        for user in self.users.iter().map(String::as_str).chain([ADMIN]).chain(forced) {
            let password = password(user);
            let secret = match (verifier, md5_hash) {
                (true, _) => scram::stored(&password, rng.bytes(), 3),
                (_, true) => scram::md5_stored(user, &password),
                _ => password,
            };
            settings.secrets.insert(Arc::from(user), Secret::parse(&secret));
        }
        if self.looks_up {
            settings.auth_user = Some(LOOKER.into());
            settings.auth_query = QUESTION.into();
            settings.auth_dbname = (self.databases.len() > 1).then(|| self.databases[0].as_str().into());
            settings.secrets.insert(LOOKER.into(), Secret::parse(&password(LOOKER)));
            settings.secrets.remove(self.users[0].as_str());
        }
        match rng.below(10) {
            0 => settings.stats_users = vec![ADMIN.to_owned()],
            1 if !self.calm => {}
            _ => settings.admin_users = vec![ADMIN.to_owned()],
        }
    }

    /// A message that is longer ends its client's session. Without limit (0) there is none: a file may not say 0.
    fn packets(&self, rng: &mut Rng, low: u32) -> u32 {
        match rng.below(10) {
            _ if self.calm => *rng.pick(&[10_000, 1 << 20, i32::MAX as u32]),
            0 => rng.between(u64::from(low), 300) as u32,
            1 => 1_000,
            _ => i32::MAX as u32,
        }
    }

    fn global(&self, rng: &mut Rng) -> Settings {
        let sizes = [0, 1, 1, 1, 2, 3, 5, 8];
        let mut ignored = self.ignored.clone();
        ignored.extend(rng.chance(500).then(|| "extra_float_digits".to_owned()));
        let server_tls_sslmode = self.server_tls_mode(rng);
        let (server_check_query, server_check_delay) = self.check(rng);
        Settings {
            auth_type: *rng.pick(&[AuthType::Trust, AuthType::Plain, AuthType::Md5, AuthType::ScramSha256]),
            scram_iterations: rng.between(1, 4) as u32,
            default_pool_size: *rng.pick(if self.calm { &sizes[1..] } else { &sizes }),
            min_pool_size: *rng.pick(&[0, 0, 0, 1, 2]),
            reserve_pool_size: *rng.pick(&[0, 0, 1, 2]),
            reserve_pool_timeout: Duration::from_millis(*rng.pick(&[0, 10, 500, 5_000])),
            max_db_connections: *rng.pick(&[0, 0, 0, 1, 3, 6]),
            max_user_connections: *rng.pick(&[0, 0, 0, 1, 3, 6]),
            max_db_client_connections: self.crowd(rng),
            max_user_client_connections: self.crowd(rng),
            server_round_robin: rng.chance(300),
            max_pinned_per_pool: if self.calm { 0 } else { *rng.pick(&[0, 0, 0, 1, 3]) },
            max_prepared_statements: *rng.pick(&[0, 1, 3, 200]),
            ignore_startup_parameters: ignored,
            session_state: if self.keeps { SessionState::Keep } else { SessionState::Pgbouncer },
            server_reset_query: self.reset_query(rng).to_owned(),
            server_reset_query_always: rng.chance(150),
            server_check_query,
            server_check_delay,
            server_tls_direct: server_tls_sslmode >= TlsMode::Require && rng.chance(500),
            server_tls_sslmode,
            server_tls_files: rng.below(2),
            client_tls_sslmode: self.client_tls_mode(rng),
            // A file that gives no certificate may give no other mode than `disable`.
            client_tls_available: true,
            log: logged(rng),
            show_config: vec![ConfigRow {
                key: "listen_port".to_owned(),
                value: rng.between(1, 65_535).to_string(),
                default: "6432".to_owned(),
                changeable: false,
            }],
            version: "Weir, simulated".to_owned(),
            ..self.timeouts(rng)
        }
    }

    fn timeouts(&self, rng: &mut Rng) -> Settings {
        let (calm, long) = (self.calm, Duration::from_secs(3_600));
        Settings {
            client_login_timeout: if calm { Duration::from_secs(300) } else { seconds(rng, 5, 60) },
            // A new server may first be asked for its database's code, 18 kB that come in drops.
            query_wait_timeout: if calm { long } else { seconds(rng, if self.keeps { 10 } else { 2 }, 120) },
            query_wait_notify: seconds(rng, 0, 4),
            query_timeout: self.seldom(rng, 100, 5_000),
            idle_transaction_timeout: self.seldom(rng, 20, 3_000),
            transaction_timeout: self.seldom(rng, 100, 5_000),
            client_idle_timeout: self.seldom(rng, 1_000, 20_000),
            cancel_wait_timeout: if calm { long } else { Duration::from_secs(rng.between(1, 15) % 15) },
            // Some connects are never answered: without a limit they would hold their place for ever.
            server_connect_timeout: Duration::from_secs(rng.between(1, 15)),
            server_idle_timeout: if rng.chance(300) { seconds(rng, 1, 5) } else { seconds(rng, 60, 600) },
            pool_idle_timeout: self.seldom(rng, 500, 20_000),
            autodb_idle_timeout: self.seldom(rng, 500, 20_000),
            server_lifetime: if rng.chance(300) { seconds(rng, 1, 10) } else { seconds(rng, 600, 3_600) },
            server_login_retry: seconds(rng, 1, 15),
            pin_timeout: self.seldom(rng, 1_000, 20_000),
            pin_warn_after: seconds(rng, 1, 60),
            stats_period: seconds(rng, 1, 60),
            ..Settings::default()
        }
    }

    fn seldom(&self, rng: &mut Rng, low: u64, high: u64) -> Duration {
        if self.calm || rng.chance(700) { Duration::ZERO } else { Duration::from_millis(rng.between(low, high)) }
    }

    /// How many clients of one kind may be in.
    fn crowd(&self, rng: &mut Rng) -> u32 {
        if self.calm { *rng.pick(&[0, 0, CROWD]) } else { *rng.pick(&[0, 0, 0, 0, 1, 4, 12]) }
    }

    fn reset_query(&self, rng: &mut Rng) -> &'static str {
        const QUERIES: [&str; 6] =
            ["DISCARD ALL", "", "RESET ALL", "DEALLOCATE ALL", "/*reset*/ FAIL", "/*reset*/ ECHO 1 10 0"];
        QUERIES[if self.odd_resets { rng.index(QUERIES.len()) } else { 0 }]
    }

    /// A check that always fails takes a server from whoever waits, where it comes each time.
    fn check(&self, rng: &mut Rng) -> (Option<String>, Duration) {
        const DELAYS: [u64; 4] = [1_000, 30_000, 0, 5];
        let query = *rng.pick(&[None, None, Some(""), Some("/*check*/ ECHO 1 10 0"), Some("/*check*/ FAIL")]);
        let fails = query.is_some_and(|query| query.ends_with("FAIL"));
        let delay = *rng.pick(if fails { &DELAYS[..2] } else { &DELAYS });
        (query.filter(|_| self.odd_resets || !fails).map(str::to_owned), Duration::from_millis(delay))
    }

    fn server_tls_mode(&self, rng: &mut Rng) -> TlsMode {
        use TlsMode::{Allow, Disable, Prefer, Require, VerifyCa, VerifyFull};
        let modes = [Disable, Allow, Prefer, Require, VerifyCa, VerifyFull];
        *rng.pick(if self.server_tls { &modes } else { &modes[..3] })
    }

    /// One that demands no more than all clients have.
    fn client_tls_mode(&self, rng: &mut Rng) -> TlsMode {
        use TlsMode::{Allow, Disable, Prefer, Require, VerifyCa, VerifyFull};
        let modes = [Disable, Allow, Prefer, Require, VerifyCa, VerifyFull];
        *rng.pick(if self.clients_tls { &modes[1..] } else { &modes[..3] })
    }

    fn database(&self, rng: &mut Rng, number: usize) -> Database {
        let name = &self.databases[number];
        let port = FIRST_PORT + (number % self.clusters) as u16;
        let mut database = Database::at(self.endpoints(rng, port));
        database.balances_hosts = database.endpoints.len() < 2 || rng.chance(700);
        if rng.chance(200) {
            self.resize(rng, &mut database);
        }
        database.server_database = rng.chance(200).then(|| format!("{name}{THERE}").into());
        match rng.below(12) {
            0 => {
                database.forced_user = Some(FORCED.into());
                database.forced_password = Some(Secret::parse(&password(FORCED)));
            }
            // Its password is that of the file.
            1 if !self.looks_up => database.forced_user = Some(self.users[0].as_str().into()),
            _ => {}
        }
        for (key, value) in
            [("application_name", "its own"), ("datestyle", "German, MDY"), ("client_encoding", "SQL_ASCII")]
        {
            if rng.chance(80) {
                database.startup_parameters.push((key.into(), value.into()));
            }
        }
        if rng.chance(80) {
            database.startup_parameters.push(("timezone".into(), OWN_ZONE.into()));
        }
        const QUERIES: [&str; 4] = [
            "/*connect*/ ECHO 1 10 0",
            "/*connect*/ SET TimeZone TO 'America/New_York'",
            "/*connect*/ FAIL",
            "/*connect*/ SET statement_timeout TO '8s'",
        ];
        if self.sharded && name == SHARDED {
            database.cluster = Some(ClusterKind::Citus);
            database.route = self.route(rng);
        }
        database.connect_query = rng.chance(150).then(|| (*rng.pick(&QUERIES)).into());
        database
    }

    fn route(&self, rng: &mut Rng) -> Option<Route> {
        *rng.pick(&[None, None, None, Some(Route::Owner), Some(Route::Any), Some(Route::Coordinator)])
    }

    /// Several ways to one server, some of which lead nowhere.
    fn endpoints(&self, rng: &mut Rng, port: u16) -> Vec<Endpoint> {
        let tcp = |host: &str, port| Endpoint::Tcp { host: host.into(), port };
        let unix = || Endpoint::Unix { path: format!("/tmp/.s.PGSQL.{port}").into() };
        match rng.below(12) {
            0 => vec![unix()],
            1 => vec![tcp("127.0.0.1", port), unix()],
            2 => vec![tcp("127.0.0.1", port), tcp("localhost", port)],
            3 if !self.calm => vec![tcp("127.0.0.1", port), tcp("127.0.0.2", port + DEAD_PORTS)],
            4 if !self.calm => vec![tcp("127.0.0.2", port + 2 * DEAD_PORTS), tcp("127.0.0.1", port)],
            _ => vec![tcp("127.0.0.1", port)],
        }
    }

    fn resize(&self, rng: &mut Rng, database: &mut Database) {
        let least = u64::from(self.calm);
        database.pool_size = rng.chance(700).then(|| rng.between(least, 4) as u32);
        database.min_pool_size = rng.chance(400).then(|| rng.below(3) as u32);
        database.reserve_pool_size = rng.chance(300).then(|| rng.below(3) as u32);
        database.max_db_connections = (!self.calm && rng.chance(500)).then(|| rng.below(4) as u32);
        database.max_db_client_connections = rng.chance(300).then(|| self.crowd(rng));
        database.server_lifetime = rng.chance(300).then(|| Duration::from_secs(rng.below(10)));
        database.query_wait_timeout = (!self.calm && rng.chance(100)).then(|| seconds(rng, 0, 20));
    }

    fn user(&self, rng: &mut Rng) -> UserSettings {
        let least = u64::from(self.calm);
        UserSettings {
            pool_mode: None,
            session_state: None,
            fan_out_pool_size: None,
            route: None,
            pool_size: rng.chance(300).then(|| rng.between(least, 4) as u32),
            reserve_pool_size: rng.chance(300).then(|| rng.below(3) as u32),
            max_user_connections: rng.chance(500).then(|| rng.below(5) as u32),
            max_user_client_connections: rng.chance(300).then(|| self.crowd(rng)),
            query_wait_timeout: (!self.calm && rng.chance(100)).then(|| seconds(rng, 0, 20)),
            query_timeout: rng.chance(200).then(|| self.seldom(rng, 100, 5_000)),
            idle_transaction_timeout: rng.chance(200).then(|| self.seldom(rng, 20, 3_000)),
            transaction_timeout: rng.chance(200).then(|| self.seldom(rng, 100, 5_000)),
            client_idle_timeout: rng.chance(200).then(|| self.seldom(rng, 1_000, 20_000)),
        }
    }
}

fn logged(rng: &mut Rng) -> LogSettings {
    let (connections, disconnections, pooler_errors) = (rng.chance(500), rng.chance(500), rng.chance(500));
    let verbose = if connections == disconnections { 2 } else { 0 };
    LogSettings { connections, disconnections, pooler_errors, verbose, ..LogSettings::default() }
}
