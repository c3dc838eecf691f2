//! What a seed chooses before the run begins: sizes, modes, limits, people, and how bad the weather is.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::auth::Secret;
use weir_core::settings::{AuthType, Database, PoolMode, TlsMode, UserSettings};
use weir_core::time::Duration;
use weir_core::{Endpoint, Settings};
use weir_wire::ProtocolVersion;

use crate::client::{Habits, Identity, Role};
use crate::postgres::{Cluster, ServerAuth, Types, UNREPORTED};
use crate::rng::Rng;
use crate::traffic::FIRST_PORT;

/// A client of the plan: what it is for, who it is, what it does, and how much of it.
pub type Person = (Role, Identity, Habits, u32);

pub struct Plan {
    pub workers: u16,
    pub settings: Settings,
    /// Other values for all settings that a reload may change while clients work, one for each reload in turn.
    pub reloaded: Vec<Settings>,
    pub clients: Vec<Person>,
    /// No faults, and limits and timeouts that nobody meets: then nothing may go wrong for any client.
    pub calm: bool,
    pub plain_network: bool,
    pub active_us: u64,
    pub mail_us: u64,
    /// How often each worker's load is measured.
    pub load_us: u64,
    pub refuse_permille: u64,
    /// How often a fault happens.
    pub fault_every_us: u64,
    pub shutdown: bool,
    pub databases: Vec<String>,
    pub users: Vec<String>,
    pub cluster_count: usize,
    pub server_auth: ServerAuth,
    pub server_tls: bool,
    pub connections_max: usize,
    #[cfg(feature = "planted")]
    pub planted: Option<weir_core::planted::Planted>,
}

/// Each cluster's first types: the numbers of all clusters' differ.
const FIRST_TYPES: u32 = 100_000;

/// Reloads that differ from each other.
const RELOADED: usize = 3;

pub const ADMIN: &str = "admin";

fn password(user: &str) -> String {
    format!("secret of {user}")
}

impl Plan {
    pub fn new(rng: &mut Rng, hours: Option<f64>) -> Self {
        let calm = rng.chance(350);
        let databases: Vec<String> = (0..rng.between(1, 2)).map(|number| format!("d{number}")).collect();
        let users: Vec<String> = (0..rng.between(1, 3)).map(|number| format!("u{number}")).collect();
        let cluster_count = rng.between(1, databases.len() as u64) as usize;
        let server_tls = rng.chance(300);
        let mut settings = settings(rng, calm, server_tls);
        add_people(&mut settings, &users);
        add_databases(rng, &mut settings, &databases, cluster_count, calm);
        let mut plan = Self {
            workers: *rng.pick(&[1, 1, 2, 2, 3, 4, 5]),
            reloaded: Vec::new(),
            settings,
            clients: Vec::new(),
            calm,
            plain_network: rng.chance(200),
            active_us: rng.between(3, 40) * 1_000_000,
            mail_us: rng.between(1, 2_000),
            load_us: *rng.pick(&[50_000, 400_000, 1_000_000]),
            refuse_permille: if calm { 0 } else { *rng.pick(&[0, 0, 50, 200]) },
            fault_every_us: *rng.pick(&[300_000, 1_000_000, 5_000_000]),
            shutdown: !calm && rng.chance(60),
            databases,
            users,
            cluster_count,
            server_auth: *rng.pick(&[ServerAuth::Trust, ServerAuth::Cleartext, ServerAuth::Md5, ServerAuth::Scram]),
            server_tls,
            connections_max: if calm { 1_000 } else { *rng.pick(&[1_000, 1_000, 4]) },
            #[cfg(feature = "planted")]
            planted: None,
        };
        if let Some(hours) = hours {
            plan.active_us = (hours * 3.6e9) as u64;
        }
        plan.invite(rng, hours.is_some());
        plan.vary(rng);
        plan
    }

    /// Leaves out what only a pooler does.
    pub fn without_pooler(&mut self) {
        self.shutdown = false;
        self.calm = true;
        self.connections_max = 1_000;
        self.clients.retain(|(_, identity, _, _)| identity.right_password);
        for (_, _, habits, _) in &mut self.clients {
            habits.keeps_server = true;
            // Who ends a side ends both.
            habits.leaves = false;
        }
    }

    /// Whether the pools that this user and database lead to allow transactions, and keep servers for sessions.
    pub fn mode(&self, database: &str, user: &str) -> PoolMode {
        let user_mode = self.settings.users.get(user).and_then(|user| user.pool_mode);
        let database_mode = self.settings.database(database).and_then(|database| database.pool_mode);
        user_mode.or(database_mode).unwrap_or(self.settings.pool_mode)
    }

    /// How many servers a pool may have without the reserve.
    pub fn pool_size(settings: &Settings, database: &str, user: &str) -> u32 {
        let database = settings.database(database);
        let own = settings.users.get(user).and_then(|user| user.pool_size);
        own.or(database.and_then(|database| database.pool_size)).unwrap_or(settings.default_pool_size)
    }

    pub fn reserve(settings: &Settings, database: &str, user: &str) -> u32 {
        let database = settings.database(database);
        let own = settings.users.get(user).and_then(|user| user.reserve_pool_size);
        own.or(database.and_then(|database| database.reserve_pool_size)).unwrap_or(settings.reserve_pool_size)
    }

    pub fn database_max(settings: &Settings, database: &str) -> u32 {
        let own = settings.database(database).and_then(|database| database.max_db_connections);
        own.unwrap_or(settings.max_db_connections)
    }

    pub fn user_max(settings: &Settings, user: &str) -> u32 {
        let own = settings.users.get(user).and_then(|user| user.max_user_connections);
        own.unwrap_or(settings.max_user_connections)
    }

    /// How many of a pool's clients must be able to work at once, when nobody else does.
    pub fn reachable(&self, settings: &Settings, database: &str, user: &str) -> u32 {
        let limits = [Self::database_max(settings, database), Self::user_max(settings, user)];
        let most = limits.into_iter().filter(|limit| *limit > 0).min().unwrap_or(u32::MAX);
        Self::pool_size(settings, database, user).min(most).min(self.connections_max as u32)
    }

    pub fn clusters(&self, rng: &mut Rng) -> Vec<Cluster> {
        let passwords: BTreeMap<String, String> =
            self.users.iter().map(|user| (user.clone(), password(user))).collect();
        let newest = if rng.chance(500) { ProtocolVersion::V3_2 } else { ProtocolVersion::V3_0 };
        let error_permille = if self.calm { 0 } else { *rng.pick(&[0, 5, 50]) };
        (0..self.cluster_count)
            .map(|number| Cluster {
                up: true,
                auth: self.server_auth,
                tls: self.server_tls,
                newest,
                connections_max: self.connections_max,
                schema_version: 1,
                types: Types::new(FIRST_TYPES * (number as u32 + 1)),
                passwords: passwords.clone(),
                service_us: *rng.pick(&[50, 500, 5_000]),
                error_permille,
                noise_permille: *rng.pick(&[0, 0, 20]),
                sessions: 0,
                next_pid: 1_000 * (number as u32 + 1),
            })
            .collect()
    }

    fn invite(&mut self, rng: &mut Rng, long: bool) {
        let count = *rng.pick(&[1, 2, 4, 8, 12, 20]);
        let session_count = if rng.chance(30) { 60 } else { count };
        for _ in 0..session_count {
            let person = self.worker_bee(rng, long);
            self.clients.push(person);
        }
        if rng.chance(500) {
            let (_, mut identity, habits, _) = self.worker_bee(rng, long);
            identity.database = "pgbouncer".to_owned();
            identity.user = ADMIN.to_owned();
            identity.password = password(ADMIN);
            self.clients.push((Role::Console, identity, habits, 20));
        }
        for _ in 0..rng.below(3) {
            let (_, identity, habits, _) = self.worker_bee(rng, long);
            let role = Role::Garbage { after_startup: rng.chance(500) };
            self.clients.push((role, identity, habits, 1));
        }
        if !matches!(self.settings.auth_type, AuthType::Trust) && rng.chance(400) {
            let (role, mut identity, habits, _) = self.worker_bee(rng, long);
            identity.password = "wrong".to_owned();
            identity.right_password = false;
            self.clients.push((role, identity, habits, 3));
        }
        let most = self.clients.len() as u32 * 3 + 50;
        let tight = !self.calm && rng.chance(150);
        self.settings.max_client_conn = if tight { rng.between(1, u64::from(most / 3)) as u32 } else { most };
    }

    fn worker_bee(&self, rng: &mut Rng, long: bool) -> Person {
        let database = rng.pick(&self.databases).clone();
        let user = rng.pick(&self.users).clone();
        let mode = self.mode(&database, &user);
        let habits = Habits {
            transactions: mode != PoolMode::Statement,
            keeps_server: mode == PoolMode::Session,
            named_statements: mode == PoolMode::Session || self.settings.max_prepared_statements > 0,
            think_us: *rng.pick(&[1_000, 20_000, 300_000, 2_000_000]),
            leaves: mode == PoolMode::Session || rng.chance(500),
            vanish_permille: *rng.pick(&[0, 10, 100]),
            fatal_permille: if self.calm { 0 } else { 300 },
            cancel_permille: *rng.pick(&[0, 20, 200, 500]),
        };
        let units = if long { u32::MAX / 2 } else { rng.between(3, 60) as u32 };
        (Role::Session, self.identity(rng, database, user), habits, units)
    }

    pub fn identity(&self, rng: &mut Rng, database: String, user: String) -> Identity {
        let mut parameters = Vec::new();
        if rng.chance(800) {
            parameters.push(("application_name", format!("app '{}'", rng.below(1_000))));
        }
        if rng.chance(300) {
            parameters.push(("DateStyle", (*rng.pick(&["ISO, DMY", "German, DMY", "SQL, MDY"])).to_owned()));
        }
        if rng.chance(300) {
            parameters.push(("TimeZone", (*rng.pick(&["UTC", "Europe/Berlin", "Asia/Kolkata"])).to_owned()));
        }
        if rng.chance(200) {
            parameters.push(("IntervalStyle", "iso_8601".to_owned()));
        }
        if rng.chance(200) {
            parameters.push((UNREPORTED, format!("{}s", rng.between(1, 3))));
        }
        let password = password(&user);
        let tls = rng.chance(200);
        Identity { database, user, password, right_password: true, parameters, tls, newest: rng.chance(300) }
    }

    /// Everything that was ever in force.
    pub fn all_settings(&self) -> impl Iterator<Item = &Settings> {
        std::iter::once(&self.settings).chain(&self.reloaded)
    }

    /// The settings of reloads: everything anew but what the clients of the plan rely on.
    fn vary(&mut self, rng: &mut Rng) {
        for _ in 0..RELOADED {
            let fresh = settings(rng, self.calm, self.server_tls);
            let kept = self.settings.clone();
            let tracked = kept.max_prepared_statements > 0 && fresh.max_prepared_statements > 0;
            let max_prepared_statements =
                if tracked { fresh.max_prepared_statements } else { kept.max_prepared_statements };
            let mut reloaded = Settings {
                auth_type: kept.auth_type,
                pool_mode: kept.pool_mode,
                max_client_conn: kept.max_client_conn,
                client_tls_sslmode: kept.client_tls_sslmode,
                max_prepared_statements,
                server_tls_files: rng.below(2),
                databases: kept.databases,
                users: kept.users,
                secrets: kept.secrets,
                ..fresh
            };
            for database in reloaded.databases.values_mut() {
                if rng.chance(700) {
                    continue;
                }
                let database = Arc::make_mut(database);
                database.pool_size = Some(rng.between(1, 4) as u32);
                database.min_pool_size = Some(rng.below(3) as u32);
                database.max_db_connections = Some(rng.below(4) as u32).filter(|_| !self.calm);
                database.server_lifetime = rng.chance(300).then(|| Duration::from_secs(rng.below(10)));
            }
            self.reloaded.push(reloaded);
        }
    }
}

fn settings(rng: &mut Rng, calm: bool, server_tls: bool) -> Settings {
    // Zero is a value like others.
    let seconds = |rng: &mut Rng, low, high| {
        if rng.chance(100) { Duration::ZERO } else { Duration::from_secs(rng.between(low, high)) }
    };
    let seldom = |rng: &mut Rng, low, high| {
        if calm || rng.chance(700) { Duration::ZERO } else { Duration::from_millis(rng.between(low, high)) }
    };
    let long = Duration::from_secs(3_600);
    Settings {
        auth_type: *rng.pick(&[AuthType::Trust, AuthType::Plain, AuthType::Md5, AuthType::ScramSha256]),
        admin_users: vec![ADMIN.to_owned()],
        scram_iterations: 3,
        pool_mode: match rng.below(10) {
            0 | 1 => PoolMode::Session,
            2 => PoolMode::Statement,
            _ => PoolMode::Transaction,
        },
        default_pool_size: *rng.pick(&[1, 1, 2, 3, 5, 8]),
        min_pool_size: *rng.pick(&[0, 0, 0, 1, 2]),
        reserve_pool_size: *rng.pick(&[0, 0, 1, 2]),
        reserve_pool_timeout: Duration::from_millis(*rng.pick(&[0, 10, 500, 5_000])),
        max_db_connections: *rng.pick(&[0, 0, 0, 1, 3, 6]),
        max_user_connections: *rng.pick(&[0, 0, 0, 1, 3, 6]),
        server_round_robin: rng.chance(300),
        max_prepared_statements: *rng.pick(&[0, 1, 3, 200]),
        ignore_startup_parameters: vec!["extra_float_digits".to_owned()],
        server_reset_query_always: rng.chance(100),
        client_login_timeout: if calm { Duration::from_secs(300) } else { seconds(rng, 5, 60) },
        query_wait_timeout: if calm { long } else { seconds(rng, 2, 120) },
        query_timeout: seldom(rng, 100, 5_000),
        idle_transaction_timeout: seldom(rng, 20, 3_000),
        transaction_timeout: seldom(rng, 100, 5_000),
        client_idle_timeout: seldom(rng, 1_000, 20_000),
        // Some connects are never answered: without a limit they would hold their place for ever.
        cancel_wait_timeout: if calm { long } else { Duration::from_secs(rng.between(1, 15)) },
        server_connect_timeout: Duration::from_secs(rng.between(1, 15)),
        server_idle_timeout: if rng.chance(300) { seconds(rng, 1, 5) } else { seconds(rng, 60, 600) },
        server_lifetime: if rng.chance(300) { seconds(rng, 1, 10) } else { seconds(rng, 600, 3_600) },
        server_login_retry: seconds(rng, 1, 15),
        client_tls_sslmode: *rng.pick(&[TlsMode::Disable, TlsMode::Allow, TlsMode::Prefer]),
        client_tls_available: true,
        server_tls_sslmode: match server_tls {
            true => *rng.pick(&[TlsMode::Disable, TlsMode::Allow, TlsMode::Prefer, TlsMode::Require]),
            false => *rng.pick(&[TlsMode::Disable, TlsMode::Allow, TlsMode::Prefer]),
        },
        stats_period: seconds(rng, 1, 60),
        version: "Weir, simulated".to_owned(),
        ..Settings::default()
    }
}

fn add_people(settings: &mut Settings, users: &[String]) {
    for user in users.iter().map(String::as_str).chain([ADMIN]) {
        settings.secrets.insert(Arc::from(user), Secret::parse(&password(user)));
    }
}

fn add_databases(rng: &mut Rng, settings: &mut Settings, names: &[String], clusters: usize, calm: bool) {
    for (number, name) in names.iter().enumerate() {
        let port = FIRST_PORT + (number % clusters) as u16;
        let mut database = Database::at(vec![Endpoint::Tcp { host: "127.0.0.1".into(), port }]);
        if rng.chance(200) {
            database.pool_size = Some(rng.between(1, 4) as u32);
        }
        if rng.chance(100) {
            database.pool_mode = Some(*rng.pick(&[PoolMode::Session, PoolMode::Transaction]));
        }
        if !calm && rng.chance(100) {
            database.max_db_connections = Some(rng.between(1, 3) as u32);
        }
        settings.databases.insert(Arc::from(name.as_str()), Arc::new(database));
    }
    if rng.chance(200) {
        let own = UserSettings { max_user_connections: Some(rng.between(1, 4) as u32), ..UserSettings::default() };
        settings.users.insert("u0".into(), own);
    }
}
