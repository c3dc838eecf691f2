//! The settings of a conversation: few servers, no TLS, nobody asked for a password unless it says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::Settings;
use weir_core::auth::Secret;
use weir_core::contract::Endpoint;
use weir_core::settings::{
    AuthType, ClusterKind, Database, PeerSettings, PoolMode, SessionState, TlsMode, UserSettings,
};
use weir_core::time::Duration;

use super::outside;
use super::scram::{md5_stored, verifier};
use super::script::duration;
use super::words::{Bindings, Word};

/// Databases app and other, users alice, bob and carol with the password "secret", and admin for the console.
pub fn initial() -> Settings {
    let mut settings = Settings {
        auth_type: AuthType::Trust,
        pool_mode: PoolMode::Transaction,
        default_pool_size: 1,
        server_tls_sslmode: TlsMode::Disable,
        admin_users: vec!["admin".to_owned()],
        version: "Weir 0".to_owned(),
        // No key of a conversation is derived with patience.
        scram_iterations: 4096,
        // Waits are told where a conversation asks for it.
        query_wait_notify: Duration::ZERO,
        // What asks a server for code before anybody is served is in the conversations that are about it.
        session_state: SessionState::Pgbouncer,
        server_check_query: None,
        ..Settings::default()
    };
    for name in ["app", "other"] {
        let endpoint = Endpoint::Tcp { host: "db".into(), port: 5432 };
        settings.databases.insert(name.into(), Arc::new(Database::at(vec![endpoint])));
    }
    for name in ["alice", "bob", "carol", "admin"] {
        settings.secrets.insert(name.into(), Secret::parse("secret"));
    }
    settings
}

/// `name=value` words as text.
pub fn pairs(words: &[Word]) -> Result<Vec<(String, String)>, String> {
    let pair = |word: &Word| {
        let value = word.value(&Bindings::new())?;
        let text = String::from_utf8(value).map_err(|_| "settings are text".to_owned())?;
        let (name, value) = text.split_once('=').ok_or_else(|| format!("{text}: name=value expected"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    words.iter().map(pair).collect()
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn pool_mode(text: &str) -> Result<PoolMode, String> {
    let modes = [PoolMode::Session, PoolMode::Transaction, PoolMode::Statement];
    modes.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| format!("no pool mode {text}"))
}

fn session_state(text: &str) -> Result<SessionState, String> {
    match text {
        "keep" => Ok(SessionState::Keep),
        "refuse" => Ok(SessionState::Refuse),
        "pgbouncer" => Ok(SessionState::Pgbouncer),
        _ => Err(format!("no session state {text}")),
    }
}

fn tls_mode(text: &str) -> Result<TlsMode, String> {
    Ok(match text {
        "disable" => TlsMode::Disable,
        "allow" => TlsMode::Allow,
        "prefer" => TlsMode::Prefer,
        "require" => TlsMode::Require,
        _ => return Err(format!("no TLS mode {text}")),
    })
}

pub fn auth_type(text: &str) -> Result<AuthType, String> {
    Ok(match text {
        "any" => AuthType::Any,
        "trust" => AuthType::Trust,
        "plain" => AuthType::Plain,
        "md5" => AuthType::Md5,
        "scram-sha-256" => AuthType::ScramSha256,
        "peer" => AuthType::Peer,
        "ident" => AuthType::Ident,
        "pam" => AuthType::Pam,
        "ldap" => AuthType::Ldap,
        "reject" => AuthType::Reject,
        "hba" => AuthType::Hba,
        _ => return Err(format!("no auth_type {text}")),
    })
}

pub fn global(settings: &mut Settings, words: &[Word]) -> Result<(), String> {
    if let Some((Word::Exact(word), rest)) = words.split_first()
        && word == b"database"
    {
        return database(settings, rest);
    }
    if let Some((Word::Exact(word), rest)) = words.split_first()
        && word == b"peer"
    {
        return peer(settings, rest);
    }
    for (name, value) in pairs(words)? {
        if let Some(setting) = timeout(settings, &name) {
            *setting = duration(&value)?;
        } else if let Some(setting) = count(settings, &name) {
            *setting = number(&value)?;
        } else {
            match name.as_str() {
                "peer_id" => settings.peer_id = value.parse().map_err(|_| format!("{value} is no peer"))?,
                "pool_mode" => settings.pool_mode = pool_mode(&value)?,
                "session_state" => settings.session_state = session_state(&value)?,
                "auth_type" => settings.auth_type = auth_type(&value)?,
                "authority" => outside::vouches_for_all(settings, &value),
                "hba" => settings.hba = Arc::default(),
                "auth_user" => settings.auth_user = Some(value.into()),
                "auth_query" => settings.auth_query = value.into(),
                "auth_dbname" => settings.auth_dbname = Some(value.into()),
                "client_tls_sslmode" => {
                    settings.client_tls_sslmode = tls_mode(&value)?;
                    settings.client_tls_available = settings.client_tls_sslmode != TlsMode::Disable;
                }
                "server_tls_sslmode" => settings.server_tls_sslmode = tls_mode(&value)?,
                "server_check_query" => settings.server_check_query = Some(value),
                "server_reset_query" => settings.server_reset_query = value,
                "server_reset_query_always" => settings.server_reset_query_always = value == "1",
                "server_round_robin" => settings.server_round_robin = value == "1",
                "ignore_startup_parameters" => {
                    settings.ignore_startup_parameters = value.split(',').map(str::to_owned).collect();
                }
                "server_fast_close" => settings.server_fast_close = value == "1",
                "disable_pqexec" => settings.disable_pqexec = value == "1",
                "stats_users" => settings.stats_users = vec![value],
                "login_notify_message" => settings.login_notify_message = value,
                "application_name_add_host" => settings.application_name_add_host = value == "1",
                "verbose" => settings.log.verbose = value.parse().map_err(|_| format!("{value} is no number"))?,
                "log_stats" => settings.log.stats = value == "1",
                _ => return Err(format!("no setting {name}")),
            }
        }
    }
    Ok(())
}

fn timeout<'a>(settings: &'a mut Settings, name: &str) -> Option<&'a mut Duration> {
    Some(match name {
        "client_login_timeout" => &mut settings.client_login_timeout,
        "client_idle_timeout" => &mut settings.client_idle_timeout,
        "query_wait_timeout" => &mut settings.query_wait_timeout,
        "query_wait_notify" => &mut settings.query_wait_notify,
        "query_timeout" => &mut settings.query_timeout,
        "idle_transaction_timeout" => &mut settings.idle_transaction_timeout,
        "stats_period" => &mut settings.stats_period,
        "pin_timeout" => &mut settings.pin_timeout,
        "pin_warn_after" => &mut settings.pin_warn_after,
        "transaction_timeout" => &mut settings.transaction_timeout,
        "cancel_wait_timeout" => &mut settings.cancel_wait_timeout,
        "server_connect_timeout" => &mut settings.server_connect_timeout,
        "server_idle_timeout" => &mut settings.server_idle_timeout,
        "server_lifetime" => &mut settings.server_lifetime,
        "server_check_delay" => &mut settings.server_check_delay,
        "server_login_retry" => &mut settings.server_login_retry,
        "reserve_pool_timeout" => &mut settings.reserve_pool_timeout,
        _ => return None,
    })
}

fn count<'a>(settings: &'a mut Settings, name: &str) -> Option<&'a mut u32> {
    Some(match name {
        "max_client_conn" => &mut settings.max_client_conn,
        "default_pool_size" => &mut settings.default_pool_size,
        "min_pool_size" => &mut settings.min_pool_size,
        "reserve_pool_size" => &mut settings.reserve_pool_size,
        "max_db_connections" => &mut settings.max_db_connections,
        "max_user_connections" => &mut settings.max_user_connections,
        "max_db_client_connections" => &mut settings.max_db_client_connections,
        "max_user_client_connections" => &mut settings.max_user_client_connections,
        "max_prepared_statements" => &mut settings.max_prepared_statements,
        "max_pinned_per_pool" => &mut settings.max_pinned_per_pool,
        "max_packet_size" => &mut settings.max_packet_size,
        _ => return None,
    })
}

fn name(words: &[Word]) -> Result<String, String> {
    let value = match words.first().ok_or("a name is missing")? {
        Word::Any => b"*".to_vec(),
        word => word.value(&Bindings::new())?,
    };
    String::from_utf8(value).map_err(|_| "a name is text".to_owned())
}

/// `database NAME key=value ...`
pub fn database(settings: &mut Settings, words: &[Word]) -> Result<(), String> {
    let name = name(words)?;
    let mut database = Database::at(vec![Endpoint::Tcp { host: "db".into(), port: 5432 }]);
    for (key, value) in pairs(&words[1..])? {
        match key.as_str() {
            "host" => {
                let hosts = value.split(',').map(|host| Endpoint::Tcp { host: host.into(), port: 5432 });
                database.endpoints = hosts.collect();
            }
            "load_balance_hosts" => database.balances_hosts = value != "disable",
            "dbname" => database.server_database = Some(value.into()),
            "user" => database.forced_user = Some(value.into()),
            "password" => database.forced_password = Some(Secret::parse(&value)),
            "cluster" => database.cluster = Some(ClusterKind::Citus),
            "pool_size" => database.pool_size = Some(number(&value)?),
            "pool_mode" => database.pool_mode = Some(pool_mode(&value)?),
            "server_lifetime" => database.server_lifetime = Some(duration(&value)?),
            "query_wait_timeout" => database.query_wait_timeout = Some(duration(&value)?),
            "connect_query" => database.connect_query = Some(value.into()),
            "application_name" => database.startup_parameters.push((key.into(), value.into())),
            _ => return Err(format!("no key {key}")),
        }
    }
    if name == "*" {
        settings.fallback_database = Some(Arc::new(database));
    } else {
        settings.databases.insert(name.into(), Arc::new(database));
    }
    Ok(())
}

/// `peer ID host=HOST pool_size=COUNT`
fn peer(settings: &mut Settings, words: &[Word]) -> Result<(), String> {
    let id = name(words)?;
    let (mut endpoint, mut pool_size) = (None, None);
    for (key, value) in pairs(&words[1..])? {
        match key.as_str() {
            "host" => endpoint = Some(Endpoint::Tcp { host: value.into(), port: 6432 }),
            "pool_size" => pool_size = Some(number(&value)?),
            _ => return Err(format!("no key {key}")),
        }
    }
    let peer = PeerSettings { endpoint: endpoint.ok_or("a peer has a host")?, pool_size };
    settings.peers.insert(id.parse().map_err(|_| format!("{id} is no peer"))?, peer);
    Ok(())
}

/// `user NAME secret`, `user NAME md5=password`, `user NAME scram=password` or `user NAME key=value ...`
pub fn user(settings: &mut Settings, words: &[Word]) -> Result<(), String> {
    let name = name(words)?;
    let Some(Word::Exact(first)) = words.get(1) else { return Err("a secret or key=value".to_owned()) };
    let first = String::from_utf8_lossy(first).into_owned();
    let stored = match first.split_once('=') {
        None => Some(first.clone()),
        Some(("scram", password)) => Some(verifier(password)),
        Some(("md5", password)) => Some(md5_stored(&name, password)),
        Some(_) => None,
    };
    if let Some(stored) = stored {
        settings.secrets.insert(name.into(), Secret::parse(&stored));
        return Ok(());
    }
    let mut user = UserSettings::default();
    for (key, value) in pairs(&words[1..])? {
        match key.as_str() {
            "pool_mode" => user.pool_mode = Some(pool_mode(&value)?),
            "pool_size" => user.pool_size = Some(number(&value)?),
            "query_timeout" => user.query_timeout = Some(duration(&value)?),
            "query_wait_timeout" => user.query_wait_timeout = Some(duration(&value)?),
            _ => return Err(format!("no key {key}")),
        }
    }
    settings.users.insert(name.into(), user);
    Ok(())
}

/// Takes `name=value` words apart from `as USER` phrases.
pub type Phrases = (Vec<(String, String)>, BTreeMap<String, String>);

pub fn phrases(words: &[Word]) -> Result<Phrases, String> {
    let mut phrases = BTreeMap::new();
    let mut rest = words;
    while let [Word::Exact(key), Word::Exact(value), after @ ..] = rest {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if !matches!(&key[..], b"as" | b"to" | b"in" | b"at") {
            break;
        }
        phrases.insert(text(key), text(value));
        rest = after;
    }
    Ok((pairs(rest)?, phrases))
}
