//! `[pgbouncer]` to the fields of core's settings, and what must agree between them.

use std::sync::Arc;

use weir_core::settings::{AuthType, LogSettings, Settings, TlsMode};
use weir_core::time::Duration;

use super::database::RESERVED;
use super::problem::Problems;
use super::values::Values;

/// What `--version` prints first, and SHOW VERSION.
pub const VERSION: &str = concat!("Weir ", env!("CARGO_PKG_VERSION"));

/// Core's settings but for databases, users and secrets.
pub fn settings(values: &Values, problems: &mut Problems) -> Settings {
    let mut settings = Settings { version: VERSION.to_owned(), ..Settings::default() };
    access(&mut settings, values, problems);
    tls(&mut settings, values, problems);
    limits(&mut settings, values);
    sessions(&mut settings, values);
    timeouts(&mut settings, values);
    settings.show_config = values.show_config();
    settings
}

fn access(settings: &mut Settings, values: &Values, problems: &mut Problems) {
    settings.auth_type = auth_type(values);
    settings.auth_user = values.optional("auth_user").map(Into::into);
    settings.auth_query = values.text("auth_query").into();
    settings.auth_dbname = auth_dbname(values, problems);
    settings.admin_users = values.list("admin_users");
    settings.stats_users = values.list("stats_users");
    settings.disable_pqexec = values.switch("disable_pqexec");
    settings.server_fast_close = values.switch("server_fast_close");
    settings.peer_id = u16::try_from(values.number("peer_id")).unwrap_or_default();
    settings.scram_iterations = values.number("scram_iterations");
    settings.log = LogSettings {
        connections: values.switch("log_connections"),
        disconnections: values.switch("log_disconnections"),
        pooler_errors: values.switch("log_pooler_errors"),
        stats: values.switch("log_stats"),
        verbose: u8::try_from(values.number("verbose")).unwrap_or(u8::MAX),
    };
    settings.stats_period = Duration::from_secs(values.number("stats_period").into());
}

/// The console is no database of PostgreSQL's.
fn auth_dbname(values: &Values, problems: &mut Problems) -> Option<Arc<str>> {
    let name = values.optional("auth_dbname")?;
    if RESERVED.contains(&name) {
        let text = format!("cannot use the reserved \"{name}\" database as an auth_dbname");
        problems.error(values.place("auth_dbname"), text);
    }
    Some(name.into())
}

fn auth_type(values: &Values) -> AuthType {
    match values.text("auth_type").to_ascii_lowercase().as_str() {
        "any" => AuthType::Any,
        "trust" => AuthType::Trust,
        "plain" => AuthType::Plain,
        "scram-sha-256" => AuthType::ScramSha256,
        "cert" => AuthType::Cert,
        "hba" => AuthType::Hba,
        "pam" => AuthType::Pam,
        "ldap" => AuthType::Ldap,
        _ => AuthType::Md5,
    }
}

fn tls(settings: &mut Settings, values: &Values, problems: &mut Problems) {
    settings.client_tls_sslmode = values.tls_mode("client_tls_sslmode");
    settings.server_tls_sslmode = values.tls_mode("server_tls_sslmode");
    settings.server_tls_direct = values.text("server_tls_negotiation").eq_ignore_ascii_case("direct");
    let has_certificate =
        values.optional("client_tls_key_file").is_some() && values.optional("client_tls_cert_file").is_some();
    settings.client_tls_available = has_certificate && settings.client_tls_sslmode != TlsMode::Disable;
    if settings.client_tls_sslmode != TlsMode::Disable && !has_certificate {
        problems.error(
            values.place("client_tls_sslmode"),
            "client_tls_sslmode needs client_tls_key_file and client_tls_cert_file, unless it is disable",
        );
    }
    let has_authorities = values.optional("client_tls_ca_file").is_some();
    if settings.client_tls_sslmode >= TlsMode::VerifyCa && !has_authorities {
        problems
            .error(values.place("client_tls_sslmode"), "client_tls_sslmode needs client_tls_ca_file to verify clients");
    }
    if settings.auth_type == AuthType::Cert && settings.client_tls_sslmode != TlsMode::VerifyFull {
        problems.error(values.place("auth_type"), "auth_type = cert needs client_tls_sslmode = verify-full");
    }
    if settings.server_tls_direct && settings.server_tls_sslmode < TlsMode::Require {
        problems.error(
            values.place("server_tls_negotiation"),
            "server_tls_negotiation = direct needs server_tls_sslmode = require, verify-ca or verify-full",
        );
    }
}

fn limits(settings: &mut Settings, values: &Values) {
    settings.pool_mode = values.pool_mode("pool_mode");
    settings.session_state = values.session_state("session_state");
    settings.pin_timeout = values.seconds("pin_timeout");
    settings.pin_warn_after = values.seconds("pin_warn_after");
    settings.max_pinned_per_pool = values.number("max_pinned_per_pool");
    settings.max_client_conn = values.number("max_client_conn");
    settings.default_pool_size = values.number("default_pool_size");
    settings.min_pool_size = values.number("min_pool_size");
    settings.reserve_pool_size = values.number("reserve_pool_size");
    settings.reserve_pool_timeout = values.seconds("reserve_pool_timeout");
    settings.max_db_connections = values.number("max_db_connections");
    settings.max_user_connections = values.number("max_user_connections");
    settings.max_db_client_connections = values.number("max_db_client_connections");
    settings.max_user_client_connections = values.number("max_user_client_connections");
    settings.server_round_robin = values.switch("server_round_robin");
}

fn sessions(settings: &mut Settings, values: &Values) {
    settings.max_prepared_statements = values.number("max_prepared_statements");
    settings.ignore_startup_parameters = values.list("ignore_startup_parameters");
    settings.server_reset_query = values.text("server_reset_query").to_owned();
    settings.server_reset_query_always = values.switch("server_reset_query_always");
    settings.server_check_query = match values.text("server_check_query") {
        "" => None,
        "<empty>" => Some(String::new()),
        query => Some(query.to_owned()),
    };
    settings.server_check_delay = values.seconds("server_check_delay");
    settings.application_name_add_host = values.switch("application_name_add_host");
    settings.login_notify_message = values.text("login_notify_message").to_owned();
    settings.max_packet_size = values.number("max_packet_size");
}

fn timeouts(settings: &mut Settings, values: &Values) {
    settings.client_login_timeout = values.seconds("client_login_timeout");
    settings.client_idle_timeout = values.seconds("client_idle_timeout");
    settings.query_wait_timeout = values.seconds("query_wait_timeout");
    settings.query_wait_notify = values.seconds("query_wait_notify");
    settings.query_timeout = values.seconds("query_timeout");
    settings.idle_transaction_timeout = values.seconds("idle_transaction_timeout");
    settings.transaction_timeout = values.seconds("transaction_timeout");
    settings.cancel_wait_timeout = values.seconds("cancel_wait_timeout");
    settings.server_connect_timeout = values.seconds("server_connect_timeout");
    settings.server_idle_timeout = values.seconds("server_idle_timeout");
    settings.pool_idle_timeout = values.seconds("pool_idle_timeout");
    settings.autodb_idle_timeout = values.seconds("autodb_idle_timeout");
    settings.server_lifetime = values.seconds("server_lifetime");
    settings.server_login_retry = values.seconds("server_login_retry");
}
