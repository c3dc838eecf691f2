//! What a seed chooses before the run begins: sizes, modes, limits, people, and how bad the weather is.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::Settings;
use weir_core::settings::{AuthType, Database, PoolMode, SessionState, TlsMode};
use weir_core::time::Duration;
use weir_wire::ProtocolVersion;

use crate::checks::Home;
use crate::client::{Habits, Identity, Role};
use crate::draws::{FORCED, Frame, LOOKER};
use crate::postgres::sharded::{COORDINATOR, Placement, SHARDED};
use crate::postgres::{CUSTOM, Cluster, ServerAuth, Types, UNREPORTED};
use crate::rng::Rng;

/// A client of the plan: what it is for, who it is, what it does, and how much of it.
pub type Person = (Role, Identity, Habits, u32);

pub struct Plan {
    pub workers: u16,
    pub settings: Settings,
    /// Other values for all settings, one for each reload in turn.
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
    /// Where a cluster's rows are at first, and how often something moves.
    pub sharded: Option<Placement>,
    pub move_every_us: u64,
    /// The number of servers beyond those of databases.
    pub node_count: usize,
    pub server_auth: ServerAuth,
    pub server_tls: bool,
    /// All clients come with TLS, which the settings may demand.
    pub clients_tls: bool,
    /// There is no pooler: no settings hold.
    pub direct: bool,
    pub connections_max: usize,
    #[cfg(feature = "planted")]
    pub planted: Option<weir_core::planted::Planted>,
}

/// Each cluster's first types: the numbers of all clusters' differ.
const FIRST_TYPES: u32 = 100_000;

/// Reloads that differ from each other.
const RELOADED: usize = 3;

pub const ADMIN: &str = "admin";
/// More clients than ever come.
pub const CROWD: u32 = 1_000;

pub fn password(user: &str) -> String {
    format!("secret of {user}")
}

impl Plan {
    pub fn new(rng: &mut Rng, hours: Option<f64>) -> Self {
        let frame = Frame::new(rng);
        let calm = frame.calm;
        let settings = frame.first(rng);
        let reloaded = (0..RELOADED).map(|_| frame.reload(rng, &settings)).collect();
        let mut plan = Self {
            workers: *rng.pick(&[1, 1, 2, 2, 3, 4, 5]),
            reloaded,
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
            databases: frame.databases,
            users: frame.users,
            cluster_count: frame.clusters,
            sharded: None,
            move_every_us: 0,
            node_count: 0,
            server_auth: frame.server_auth,
            server_tls: frame.server_tls,
            clients_tls: frame.clients_tls,
            direct: false,
            connections_max: if calm { 1_000 } else { *rng.pick(&[1_000, 1_000, 4]) },
            #[cfg(feature = "planted")]
            planted: None,
        };
        if let Some(hours) = hours {
            plan.active_us = (hours * 3.6e9) as u64;
        }
        if frame.sharded {
            plan.spread(rng);
        }
        plan.invite(rng, hours.is_some());
        plan
    }

    /// Some servers more are a cluster's other nodes.
    fn spread(&mut self, rng: &mut Rng) {
        self.node_count = rng.between(1, 4) as usize;
        self.move_every_us = *rng.pick(&[1_000_000, 4_000_000, 20_000_000]);
        // One may come later.
        let at_first = if self.node_count > 1 { self.node_count - usize::from(rng.chance(500)) } else { 1 };
        let workers = self.cluster_count..self.cluster_count + at_first;
        let nodes: BTreeMap<i32, usize> =
            [COORDINATOR].into_iter().chain(workers).zip(0..).map(|(server, group)| (group, server)).collect();
        let mut some = || rng.index(nodes.len()) as i32;
        let placement = Placement { owners: std::array::from_fn(|_| some()), tenant: some(), nodes };
        self.sharded = Some(placement);
    }

    /// Leaves out what only a pooler does.
    pub fn without_pooler(&mut self) {
        self.direct = true;
        self.sharded = None;
        for settings in std::iter::once(&mut self.settings).chain(&mut self.reloaded) {
            settings.databases.values_mut().for_each(|database| Arc::make_mut(database).cluster = None);
        }
        self.shutdown = false;
        self.calm = true;
        self.connections_max = 1_000;
        self.clients.retain(|(_, identity, _, _)| identity.right_password);
        for (_, _, habits, _) in &mut self.clients {
            habits.keeps_server = true;
            habits.steady = true;
            habits.keeps = true;
            habits.knows_unreported = true;
            // Who ends a side ends both.
            habits.leaves = false;
        }
    }

    /// The modes that the pools of this user and database have, one after the other.
    fn modes(&self, database: &str, user: &str) -> Vec<PoolMode> {
        // Who is in stays in its pool when a reload sends others to another user's, and meets what that sets for the former.
        let pool_users = self.all_settings().map(|settings| Self::pool_user(settings, database, user));
        let users: Vec<_> = pool_users.chain([user.to_owned()]).collect();
        let modes = |settings| users.iter().map(move |user| Self::mode(settings, database, user));
        self.all_settings().flat_map(modes).collect()
    }

    pub fn mode(settings: &Settings, database: &str, pool_user: &str) -> PoolMode {
        let user_mode = settings.users.get(pool_user).and_then(|user| user.pool_mode);
        let database_mode = settings.database(database).and_then(|database| database.pool_mode);
        user_mode.or(database_mode).unwrap_or(settings.pool_mode)
    }

    /// Whose sessions a client gets that comes as this user.
    pub fn pool_user(settings: &Settings, database: &str, user: &str) -> String {
        let forced = settings.database(database).and_then(|database| database.forced_user.as_ref());
        forced.map_or(user, |forced| forced).to_owned()
    }

    /// How many servers a pool may have without the reserve.
    pub fn pool_size(settings: &Settings, database: &str, user: &str) -> u32 {
        let database = settings.database(database);
        let own = settings.users.get(user).and_then(|user| user.pool_size);
        own.or(database.and_then(|database| database.pool_size)).unwrap_or(settings.default_pool_size)
    }

    /// Where nobody waits for the reserve, there is none.
    pub fn reserve(settings: &Settings, database: &str, user: &str) -> u32 {
        if settings.reserve_pool_timeout == Duration::ZERO {
            return 0;
        }
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

    pub fn database_clients_max(settings: &Settings, database: &str) -> u32 {
        let own = settings.database(database).and_then(|database| database.max_db_client_connections);
        own.unwrap_or(settings.max_db_client_connections)
    }

    pub fn user_clients_max(settings: &Settings, user: &str) -> u32 {
        let own = settings.users.get(user).and_then(|user| user.max_user_client_connections);
        own.unwrap_or(settings.max_user_client_connections)
    }

    /// How many clients of this user and database must be able to work at once, when nobody else does.
    pub fn reachable(&self, settings: &Settings, database: &str, user: &str) -> u32 {
        let pool_user = Self::pool_user(settings, database, user);
        let limits = [
            Self::database_max(settings, database),
            Self::user_max(settings, &pool_user),
            Self::database_clients_max(settings, database),
            Self::user_clients_max(settings, user),
        ];
        let most = limits.into_iter().filter(|limit| *limit > 0).min().unwrap_or(u32::MAX);
        // Who looks them up has a server too, of this database perhaps.
        let looks_up = settings.auth_user.is_some() && !settings.secrets.contains_key(user);
        let there = settings.auth_dbname.as_deref().unwrap_or(database);
        if looks_up && Self::pool_size(settings, there, LOOKER) == 0 {
            return 0;
        }
        let most = if looks_up { (most - 1).max(1) } else { most };
        let size = Self::pool_size(settings, database, &pool_user);
        size.min(most).min(self.connections_max as u32).min(settings.max_client_conn)
    }

    /// Whether somebody may wait for a server that is never made.
    pub fn some_unreachable(&self, settings: &Settings) -> bool {
        let users = || self.users.iter().map(String::as_str).chain([FORCED, LOOKER]);
        let mut pools = self.databases.iter().flat_map(|database| users().map(move |user| (database, user)));
        pools.any(|(database, user)| Self::pool_size(settings, database, user) == 0)
    }

    pub fn clusters(&self, rng: &mut Rng) -> Vec<Cluster> {
        let users = self.users.iter().map(String::as_str).chain([FORCED, LOOKER]);
        let passwords: BTreeMap<String, String> = users.map(|user| (user.to_owned(), password(user))).collect();
        let newest = if rng.chance(500) { ProtocolVersion::V3_2 } else { ProtocolVersion::V3_0 };
        let error_permille = if self.calm { 0 } else { *rng.pick(&[0, 5, 50]) };
        (0..self.cluster_count + self.node_count)
            .map(|number| Cluster {
                up: true,
                swallows: false,
                auth: self.server_auth,
                tls: self.server_tls,
                newest,
                connections_max: self.connections_max,
                schema_version: 1,
                types: Types::new(FIRST_TYPES * (number as u32 + 1)),
                passwords: passwords.clone(),
                service_us: *rng.pick(&[50, 500, 5_000]),
                error_permille,
                noise_permille: *rng.pick(&[0, 0, 20, 200]),
                configured_permille: *rng.pick(&[0, 0, 2, 50]),
                configuration: 0,
                sessions: 0,
                next_pid: 1_000 * (number as u32 + 1),
                notes: Vec::new(),
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
        if !Self::trusts(&self.settings) && rng.chance(400) {
            let (role, mut identity, habits, _) = self.worker_bee(rng, long);
            identity.password = "wrong".to_owned();
            identity.right_password = false;
            self.clients.push((role, identity, habits, 3));
        }
        let most = self.clients.len() as u32 * 3 + 50;
        let tight = !self.calm && rng.chance(150);
        self.settings.max_client_conn = if tight { rng.between(0, u64::from(most / 3)) as u32 } else { most };
        for reloaded in &mut self.reloaded {
            let tight = !self.calm && rng.chance(200);
            reloaded.max_client_conn = if tight { rng.between(0, u64::from(most / 3)) as u32 } else { most };
        }
    }

    fn worker_bee(&self, rng: &mut Rng, long: bool) -> Person {
        let database = rng.pick(&self.databases).clone();
        let user = rng.pick(&self.users).clone();
        let modes = self.modes(&database, &user);
        let session = |mode: &PoolMode| *mode == PoolMode::Session;
        let keeps = self.keeps(&database, &modes);
        let steady = modes.iter().all(session) || !modes.iter().any(session);
        let habits = Habits {
            transactions: !modes.contains(&PoolMode::Statement),
            keeps_server: modes.iter().all(session),
            keeps,
            knows_unreported: steady && (keeps || !self.any_keeps()),
            steady,
            think_us: *rng.pick(&[1_000, 20_000, 300_000, 2_000_000]),
            // In a pool whose servers stay with clients, others get theirs when these go.
            leaves: modes.iter().any(session) || self.any_keeps() || rng.chance(500),
            vanish_permille: *rng.pick(&[0, 10, 100]),
            fatal_permille: if self.calm { 0 } else { 300 },
            cancel_permille: *rng.pick(&[0, 20, 200, 500]),
        };
        let units = if long { u32::MAX / 2 } else { rng.between(3, 60) as u32 };
        (Role::Session, self.identity(rng, database, user), habits, units)
    }

    fn any_keeps(&self) -> bool {
        self.all_settings().any(|settings| settings.session_state == SessionState::Keep)
    }

    /// Whether what a client leaves in its session stays its own, by each of the settings.
    fn keeps(&self, database: &str, modes: &[PoolMode]) -> bool {
        let all = |holds: &dyn Fn(&Settings) -> bool| self.all_settings().all(holds);
        let queried =
            |settings: &Settings| settings.database(database).is_some_and(|entry| entry.connect_query.is_some());
        let keeps = all(&|settings| settings.session_state == SessionState::Keep);
        let all_are = |wanted| modes.iter().all(|mode| *mode == wanted);
        all(&|settings| !queried(settings)) && (all_are(PoolMode::Session) || keeps && all_are(PoolMode::Transaction))
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
        if rng.chance(150) {
            parameters.push((CUSTOM, (*rng.pick(&["one", "its own"])).to_owned()));
        }
        let password = password(&user);
        let tls = self.clients_tls || rng.chance(200);
        Identity { database, user, password, right_password: true, parameters, tls, newest: rng.chance(300) }
    }

    /// Nobody makes a table without the pooler's notice.
    pub fn reads_all_texts(&self) -> bool {
        let users = || self.users.iter().map(String::as_str).chain([FORCED]);
        let transactions = |settings| users().all(|user| Self::mode(settings, SHARDED, user) == PoolMode::Transaction);
        let plain = |settings: &Settings| settings.database(SHARDED).is_none_or(|entry| entry.connect_query.is_none());
        let keeps = |settings: &Settings| settings.session_state == SessionState::Keep && plain(settings);
        self.all_settings().all(|settings| keeps(settings) && transactions(settings))
    }

    /// Everything that was ever in force.
    pub fn all_settings(&self) -> impl Iterator<Item = &Settings> {
        std::iter::once(&self.settings).chain(&self.reloaded)
    }

    /// The databases and users, by the servers' names, that a client's statements may run in and as.
    pub fn home(&self, identity: &Identity) -> Home {
        let Identity { database, user, .. } = identity;
        let entries = || self.all_settings().filter_map(|settings| settings.database(database));
        let there = entries().map(|entry| entry.server_database.as_deref().unwrap_or(database).to_owned());
        Home {
            databases: there.collect(),
            users: self.all_settings().map(|settings| Self::pool_user(settings, database, user)).collect(),
        }
    }

    /// Whether no password is looked at.
    pub fn trusts(settings: &Settings) -> bool {
        matches!(settings.auth_type, AuthType::Any | AuthType::Trust | AuthType::Cert)
    }

    /// Whether a parameter of a startup packet is left out.
    pub fn ignores(&self, name: &str) -> bool {
        let mut ignored = self.settings.ignore_startup_parameters.iter();
        !self.direct && ignored.any(|ignored| ignored.eq_ignore_ascii_case(name))
    }

    /// What a session of this database may begin with where its client says nothing: the servers' own value is `plain`.
    pub fn defaults<'a>(
        &'a self,
        database: &'a str,
        name: &'a str,
        plain: &'a str,
    ) -> impl Iterator<Item = &'a str> + 'a {
        let entries = self.all_settings().filter(|_| !self.direct).filter_map(|settings| settings.database(database));
        entries.map(move |entry| default_of(entry, name).unwrap_or(plain)).chain(self.direct.then_some(plain))
    }

    /// Whether not all settings that were ever in force lead to the same servers.
    pub fn leads_elsewhere(&self, database: &str) -> bool {
        let mut entries = self.all_settings().filter_map(|settings| settings.database(database));
        let first = entries.next();
        entries.any(|entry| {
            first.is_some_and(|first| {
                (&entry.endpoints, &entry.server_database) != (&first.endpoints, &first.server_database)
            })
        })
    }

    /// The longest message of a client that passes, by the widest and by the narrowest settings.
    pub fn packets(&self) -> (u32, u32) {
        let sizes = || self.all_settings().map(|settings| settings.max_packet_size);
        if self.direct { (u32::MAX, u32::MAX) } else { (sizes().max().unwrap_or(0), sizes().min().unwrap_or(0)) }
    }

    /// Why the pooler may refuse a client with the right password, by the settings that were ever in force. `text`: of the whole
    /// error.
    pub fn refuses(&self, identity: &Identity, code: &str, text: &str) -> bool {
        let Identity { database, user, .. } = identity;
        let any = |holds: &dyn Fn(&Settings) -> bool| self.all_settings().any(holds);
        let limit = |name: &str, value: &dyn Fn(&Settings) -> u32| {
            let told = text.split_once(&format!("The limit is {name} = ")).and_then(|(_, rest)| rest.split('.').next());
            told.is_some_and(|told| any(&|settings| value(settings).to_string() == told))
        };
        match code {
            "53300" if text.contains("connections allowed") || text.contains("connections exceeded") => {
                limit("max_client_conn", &|settings| settings.max_client_conn)
                    || limit("max_db_client_connections", &|settings| Self::database_clients_max(settings, database))
                    || limit("max_user_client_connections", &|settings| Self::user_clients_max(settings, user))
            }
            "3D000" => any(&|settings| settings.database(database).is_none()),
            "28000" => {
                // One that asked for TLS came in clear where it was told that there is none.
                let clear = !identity.tls || any(&|settings| settings.client_tls_sslmode == TlsMode::Disable);
                // Where there is no database nobody is looked up, and a certificate is a stranger's.
                let nobody = |settings: &Settings| {
                    settings.database(database).is_none() && !settings.secrets.contains_key(user.as_str())
                };
                any(&nobody) || clear && any(&|settings| settings.client_tls_sslmode >= TlsMode::Require)
            }
            "42501" => any(&|settings| settings.admin_users.is_empty() && settings.stats_users.is_empty()),
            // What a secret is kept as, and what is asked for, changes in the middle of a login.
            "28P01" | "08P01" => !self.calm,
            _ => true,
        }
    }
}

/// What an entry of `[databases]` makes of a parameter's default.
fn default_of<'a>(entry: &'a Database, name: &str) -> Option<&'a str> {
    let set = format!("SET {name} TO '");
    let query = entry.connect_query.as_deref().and_then(|query| query.split_once(&*set));
    let by_query = query.and_then(|(_, rest)| rest.strip_suffix('\''));
    let mut packet = entry.startup_parameters.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
    by_query.or_else(|| packet.next().map(|(_, value)| &**value))
}
