//! Files to settings: everything is read, all errors are found, and only then is there a result.

use std::io::ErrorKind;
use std::sync::Arc;

use weir_core::Settings;
use weir_core::contract::event::Change;
use weir_core::hba::Hba;
use weir_core::outside::Authority;
use weir_core::settings::AuthType;

use super::ini::{self, Entry, FileSystem, Source};
use super::problem::{Place, Problem, Problems};
use super::program::ProgramSettings;
use super::registry::{self, Section};
use super::values::Values;
use super::{database, global, hba, tls, userlist};

/// A configuration that can be used.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub settings: Arc<Settings>,
    pub program: ProgramSettings,
    pub warnings: Vec<Problem>,
    /// What the files said, for SET to change.
    pub text: Arc<ini::Text>,
    /// By SET, and in force with what it needs.
    pub aside: Vec<Change>,
}

impl Loaded {
    /// The command line may ask for more to be logged than the file.
    pub fn log_at_least(&mut self, verbose: u8) {
        let log = &mut Arc::make_mut(&mut self.settings).log;
        log.verbose = log.verbose.max(verbose);
    }
}

/// Reads a configuration file and all that it names. On failure, everything that was found is in the answer.
pub fn load(path: &str) -> Result<Loaded, Problems> {
    load_from(path, &mut FileSystem::default())
}

/// Reads it again. Files that somebody is writing just now are waited for, and a configuration without any database, any user, or any
/// line of the HBA file, is an error where there were some: it would end every client, or let nobody in to mend it, and is a file that was
/// cut off rather than anybody's wish.
pub fn reload(path: &str, old: &Settings) -> Result<Loaded, Problems> {
    let loaded = load_from(path, &mut FileSystem::patient())?;
    whole(path, loaded, old)
}

/// All of it, as far as can be told.
fn whole(path: &str, loaded: Loaded, old: &Settings) -> Result<Loaded, Problems> {
    let mut problems = Problems::default();
    if !has_databases(&loaded.settings) && has_databases(old) {
        problems.error(&Place::new(&path.into(), 0), "no database is left: was the file cut off?");
    }
    let names_users = loaded.settings.show_config.iter().any(|row| row.key == "auth_file" && !row.value.is_empty());
    if names_users && loaded.settings.secrets.is_empty() && !old.secrets.is_empty() {
        problems.error(&Place::new(&path.into(), 0), "no user is left in auth_file: was it cut off?");
    }
    let asks_records = loaded.settings.auth_type == AuthType::Hba;
    if asks_records && loaded.settings.hba.records.is_empty() && !old.hba.records.is_empty() {
        problems.error(&Place::new(&path.into(), 0), "no line is left in auth_hba_file: was it cut off?");
    }
    if problems.has_errors() { Err(problems) } else { Ok(loaded) }
}

/// The same, from any source of files.
pub fn load_from(path: &str, source: &mut dyn Source) -> Result<Loaded, Problems> {
    let mut problems = Problems::default();
    let text = ini::parse(path, source, &mut problems);
    load_text(path, text, source, problems)
}

/// What SET is blamed for, in place of a file.
pub const SET: &str = "SET";

/// Settings are others, as the console's SET gives them: the files that the configuration was read from are not read again, those that it
/// names are. The next RELOAD forgets them.
pub fn set(now: &Loaded, changes: &[Change]) -> Result<Loaded, Problems> {
    let place = Place::new(&SET.into(), 0);
    let mut problems = Problems::default();
    let mut text = (*now.text).clone();
    for Change { key, value } in changes {
        if let Some(setting) = registry::find(Section::Pgbouncer, key).filter(|setting| !setting.reloadable) {
            problems.error(&place, format!("{} changes at the next start only", setting.name));
            return Err(problems);
        }
        let section = Section::Pgbouncer.name().into();
        text.entries.retain(|entry| entry.place != place || entry.key != *key);
        text.entries.push(Entry { section, key: key.clone(), value: value.clone(), place: place.clone() });
    }
    let path = &now.program.config_file;
    let loaded = load_text(path, text, &mut FileSystem::patient(), problems)?;
    whole(path, loaded, &now.settings)
}

fn load_text(path: &str, text: ini::Text, source: &mut dyn Source, mut problems: Problems) -> Result<Loaded, Problems> {
    let file: Arc<str> = path.into();
    let ini::Text { entries, sections } = &text;
    unknown_sections(entries, &mut problems);

    let values = Values::read(&file, entries, &mut problems);
    let mut settings = global::settings(&values, &mut problems);
    let program = ProgramSettings::from_values(path, &values, &mut problems);
    database::read(&mut settings, entries, &values, &mut problems);
    secrets(&mut settings, &values, source, &mut problems);
    records(&mut settings, &values, source, &mut problems);
    tls::check(&values, source, &mut problems);
    resolv_conf(&values, source, &mut problems);
    if !has_databases(&settings) && !problems.has_errors() {
        no_databases(sections.contains(Section::Databases.name()), &Place::new(&file, 0), &mut problems);
    }
    settings.server_tls_files = tls::server_files(&values, source);
    agreement(&settings, &program, &Place::new(&file, 0), &mut problems);
    show_conffile(&mut settings, &program);

    problems.sort();
    if problems.has_errors() {
        return Err(problems);
    }
    let warnings = problems.warnings().cloned().collect();
    Ok(Loaded { settings: Arc::new(settings), program, warnings, text: Arc::new(text), aside: Vec::new() })
}

fn unknown_sections(entries: &[Entry], problems: &mut Problems) {
    let mut last_named: Option<&str> = None;
    for entry in entries.iter().filter(|entry| Section::parse(&entry.section).is_none()) {
        if last_named != Some(&*entry.section) {
            let known = Section::ALL.into_iter().map(Section::name);
            let nearest = registry::nearest_of(&entry.section, known).unwrap_or_default();
            let text = format!("unknown section [{}]: the nearest known one is [{nearest}]", entry.section);
            problems.error(&entry.place, text);
        }
        last_named = Some(&entry.section);
    }
}

fn secrets(settings: &mut Settings, values: &Values, source: &mut dyn Source, problems: &mut Problems) {
    if let Some(path) = values.optional("auth_file") {
        match source.read(path) {
            Ok(bytes) => settings.secrets = userlist::parse(path, &bytes, problems).into_iter().collect(),
            // It may come later, with a mount: a start goes on without, and a reload reads it.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let text = format!("auth_file \"{path}\" is not there: until a reload finds it nobody is in it");
                problems.warn(values.place("auth_file"), text);
            }
            Err(error) => {
                problems.error(values.place("auth_file"), format!("could not read auth_file \"{path}\": {error}"))
            }
        }
    } else if !matches!(settings.auth_type, AuthType::Any | AuthType::Pam | AuthType::Ldap) && !looks_up(settings) {
        let text = format!("auth_file is not set: with auth_type = {} nobody can log in", values.text("auth_type"));
        problems.warn(values.place("auth_type"), text);
    }
}

/// It is read at each lookup, and may come later.
fn resolv_conf(values: &Values, source: &mut dyn Source, problems: &mut Problems) {
    if let Some(path) = values.optional("resolv_conf")
        && let Err(error) = source.read(path)
    {
        problems.warn(values.place("resolv_conf"), format!("could not read resolv_conf \"{path}\": {error}"));
    }
}

fn records(settings: &mut Settings, values: &Values, source: &mut dyn Source, problems: &mut Problems) {
    match settings.auth_type {
        AuthType::Hba => {}
        AuthType::Pam => return vouched(settings, Authority::Pam { service: hba::PAM_SERVICE.into() }),
        AuthType::Ldap => {
            match values.optional("auth_ldap_options").map(hba::directory) {
                Some(Ok(directory)) => vouched(settings, Authority::Directory(Arc::new(directory))),
                Some(Err(wrong)) => {
                    problems.error(values.place("auth_ldap_options"), format!("auth_ldap_options: {wrong}"));
                }
                None => problems.error(values.place("auth_type"), "auth_type = ldap needs auth_ldap_options"),
            }
            return;
        }
        _ => return,
    }
    let file = |name| values.optional(name).map(|path| (path, values.place(name)));
    let (hba_file, ident_file) = (file("auth_hba_file"), file("auth_ident_file"));
    if hba_file.is_none() {
        let text = "auth_hba_file is not set: with auth_type = hba nobody can log in";
        problems.warn(values.place("auth_type"), text);
    }
    settings.hba = Arc::new(hba::read(hba_file, ident_file, source, problems));
}

/// As one record for all.
fn vouched(settings: &mut Settings, authority: Authority) {
    settings.hba = Arc::new(Hba::of_all(settings.auth_type, &authority));
    settings.auth_type = AuthType::Hba;
}

/// Whether any database's users may be in no file. What the entries say has been read by then.
fn looks_up(settings: &Settings) -> bool {
    let mut databases = settings.databases.values().chain(&settings.fallback_database);
    settings.auth_user.is_some() || databases.any(|database| database.auth_user.is_some())
}

fn has_databases(settings: &Settings) -> bool {
    !settings.databases.is_empty() || settings.fallback_database.is_some()
}

/// PgBouncer takes any file for a configuration, an empty one too. Who wants the console alone says so.
fn no_databases(has_section: bool, whole: &Place, problems: &mut Problems) {
    if has_section {
        problems.warn(whole, "no database is configured: there is only the console");
    } else {
        problems.error(whole, "there is no section [databases]; an empty one stands for the console alone");
    }
}

/// What the parts need from each other.
fn agreement(settings: &Settings, program: &ProgramSettings, whole: &Place, problems: &mut Problems) {
    if program.listen_addresses.is_empty() && program.unix_socket_dir.is_none() {
        problems.error(whole, "listen_addr and unix_socket_dir are both empty: nobody could connect");
    }
    let without_user =
        settings.databases.iter().filter(|(_, database)| database.forced_user.is_none()).map(|(name, _)| &**name);
    let fallback = settings.fallback_database.iter().filter(|database| database.forced_user.is_none()).map(|_| "*");
    if settings.auth_type == AuthType::Any {
        for name in without_user.chain(fallback) {
            problems
                .warn(whole, format!("database \"{name}\" has no user: with auth_type = any nobody can log in to it"));
        }
    }
}

/// SHOW CONFIG tells which file is in use even where the file itself does not say.
fn show_conffile(settings: &mut Settings, program: &ProgramSettings) {
    if let Some(row) = settings.show_config.iter_mut().find(|row| row.key == "conffile") {
        row.value.clone_from(&program.config_file);
    }
}

/// The settings that differ between two configurations and that a reload cannot change.
pub fn unchangeable(old: &Settings, new: &Settings) -> Vec<String> {
    let fixed = old.show_config.iter().filter(|row| !row.changeable);
    let differs = |key: &str, value: &str| new.show_config.iter().any(|row| row.key == key && row.value != value);
    fixed.filter(|row| differs(&row.key, &row.value)).map(|row| row.key.clone()).collect()
}

/// What a reload cannot change keeps its old value in SHOW CONFIG too.
pub fn adopt(old: &Settings, new: &mut Arc<Settings>) {
    let new = Arc::make_mut(new);
    for row in new.show_config.iter_mut().filter(|row| !row.changeable) {
        if let Some(kept) = old.show_config.iter().find(|kept| kept.key == row.key) {
            row.value.clone_from(&kept.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ini::tests::{Table, arbitrary};
    use super::*;
    use weir_core::Endpoint;
    use weir_core::auth::Secret;
    use weir_core::settings::{PoolMode, TlsMode};
    use weir_core::time::Duration;

    const USERS: (&str, &str) = ("users", "\"u\" \"p\"");

    fn load_lines(text: &str) -> Result<Loaded, Vec<String>> {
        let mut source = Table::of(&[("weir.ini", text), USERS, ("bad_users", "\"u\" p"), ("empty.pem", "")]);
        load_from("weir.ini", &mut source).map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    fn loaded(text: &str) -> Loaded {
        load_lines(text).unwrap()
    }

    fn warnings(text: &str) -> Vec<String> {
        loaded(text).warnings.iter().map(ToString::to_string).collect()
    }

    fn errors(text: &str) -> Vec<String> {
        load_lines(text).unwrap_err()
    }

    const MINIMAL: &str = "[databases]\nd = host=h\n[pgbouncer]\nauth_file = users\n";

    #[test]
    fn nothing_but_defaults_is_core_s_defaults() {
        let loaded = loaded(MINIMAL);
        let mut expected = Settings::default();
        expected.databases.insert(
            "d".into(),
            Arc::new(weir_core::settings::Database::at(vec![Endpoint::Tcp { host: "h".into(), port: 5432 }])),
        );
        expected.secrets.insert("u".into(), Secret::parse("p"));
        expected.version = global::VERSION.to_owned();
        expected.show_config.clone_from(&loaded.settings.show_config);
        expected.server_tls_files = loaded.settings.server_tls_files;
        assert_eq!(format!("{expected:?}"), format!("{:?}", loaded.settings));
        assert_eq!(loaded.warnings, []);
        assert_eq!(loaded.program.unix_socket_path().as_deref(), Some("/tmp/.s.PGSQL.6432"));
    }

    #[test]
    fn settings_reach_their_fields() {
        let loaded = loaded(&format!(
            "{MINIMAL}pool_mode = transaction\nquery_timeout = 1.5\nadmin_users = a, b\nmax_client_conn = \
             7\nmax_client_conn = 8\n\
             server_tls_sslmode = require\nserver_tls_negotiation = direct\nlisten_addr = 127.0.0.1, \
             ::1\nlisten_port = 7000\n\
             unix_socket_dir =\ndriver = epoll\nworkers = 3\ntcp_defer_accept = 1\nunix_socket_mode = 0700\nverbose \
             = 2\n"
        ));
        let (settings, program) = (&loaded.settings, &loaded.program);
        assert_eq!(settings.pool_mode, PoolMode::Transaction);
        assert_eq!(settings.query_timeout, Duration::from_millis(1500));
        assert_eq!(settings.admin_users, ["a", "b"]);
        assert_eq!(settings.max_client_conn, 8, "the last one counts");
        assert_eq!((settings.server_tls_sslmode, settings.server_tls_direct), (TlsMode::Require, true));
        assert_eq!(program.listen_addresses, ["127.0.0.1", "::1"]);
        assert_eq!((program.listen_port, program.unix_socket_dir.as_deref()), (7000, None));
        assert_eq!((program.driver.as_str(), program.worker_count()), ("epoll", 3));
        assert_eq!((program.tcp.defer_accept_secs, program.unix_socket_mode, program.verbose), (45, 0o700, 2));
        let row = settings.show_config.iter().find(|row| row.key == "max_client_conn").unwrap();
        assert_eq!((row.value.as_str(), row.default.as_str(), row.changeable), ("8", "100", true));
    }

    #[test]
    fn databases_name_their_endpoints() {
        let tcp = |host: &str, port| Endpoint::Tcp { host: host.into(), port };
        let unix = |path: &str| Endpoint::Unix { path: path.into() };
        for (list, expected) in [
            ("", vec![unix("/tmp/.s.PGSQL.5432")]),
            ("port=5433", vec![unix("/tmp/.s.PGSQL.5433")]),
            ("host=/run/pg port=1", vec![unix("/run/pg/.s.PGSQL.1")]),
            ("host=@pg", vec![unix("@pg/.s.PGSQL.5432")]),
            ("host=a,::1,/x port=2", vec![tcp("a", 2), tcp("::1", 2), unix("/x/.s.PGSQL.2")]),
            ("host=a,b load_balance_hosts=disable", vec![tcp("a", 5432), tcp("b", 5432)]),
        ] {
            let loaded = loaded(&format!("[databases]\nd = {list}\n[pgbouncer]\nauth_file = users"));
            assert_eq!(loaded.settings.databases["d"].endpoints, expected, "{list}");
            assert_eq!(loaded.settings.databases["d"].balances_hosts, !list.contains("disable"));
        }
    }

    #[test]
    fn databases_and_users_override() {
        let loaded = loaded(
            "[databases]\n* = host=h user=f password='p ''w'\n\"My DB\" = host=h dbname=x pool_size=3 reserve_pool=2 \
             pool_mode=statement \
             server_lifetime=9 timezone=UTC connect_query='select 1'\n[users]\nu = pool_mode=session query_timeout=2 \
             pool_size=1\n\
             [pgbouncer]\nauth_file = users",
        );
        let fallback = loaded.settings.fallback_database.as_ref().unwrap();
        assert_eq!(fallback.forced_user.as_deref(), Some("f"));
        assert!(fallback.forced_password == Some(Secret::parse("p 'w")));
        let database = &loaded.settings.databases["My DB"];
        assert_eq!(
            (database.server_database.as_deref(), database.pool_size, database.reserve_pool_size),
            (Some("x"), Some(3), Some(2))
        );
        assert_eq!(
            (database.pool_mode, database.server_lifetime),
            (Some(PoolMode::Statement), Some(Duration::from_secs(9)))
        );
        assert_eq!(database.startup_parameters, [("timezone".into(), "UTC".into())]);
        assert_eq!(database.connect_query.as_deref(), Some("select 1"));
        let user = &loaded.settings.users["u"];
        assert_eq!(
            (user.pool_mode, user.query_timeout, user.pool_size),
            (Some(PoolMode::Session), Some(Duration::from_secs(2)), Some(1))
        );
    }

    #[test]
    fn all_errors_are_found_at_once() {
        assert_eq!(
            errors(
                "[databases]\npgbouncer = host=h\nweir =\na = hots=h\nb = host=h port=0\nc = host\nd = \
                 host=a,,b\n[userz]\nu = x=1\nv = y=1\n\
                 [peers]\nx = port=1\n[pgbouncer]\npool_mod = session\nmax_client_conn = many\nquery_timeout = \
                 -1\nauth_file = nowhere\n\
                 auth_type = ldap\nclient_tls_protocols = tlsv1.4\n%include gone.ini"
            ),
            [
                "weir.ini:2: error: database name \"pgbouncer\" is reserved for the console",
                "weir.ini:3: error: database name \"weir\" is reserved for the console",
                "weir.ini:4: error: database \"a\": unknown key \"hots\": the nearest known one is \"host\"",
                "weir.ini:5: error: database \"b\": invalid value \"0\" for port: expected a whole number from 1 to \
                 65535",
                "weir.ini:6: error: database \"c\": expected \"=\" after \"host\"",
                "weir.ini:7: error: database \"d\": host has an empty name between commas",
                "weir.ini:9: error: unknown section [userz]: the nearest known one is [users]",
                "weir.ini:12: error: peer \"x\" must be a number from 1 to 16383",
                "weir.ini:12: error: peer \"x\" needs a host",
                "weir.ini:14: error: unknown setting \"pool_mod\": the nearest known one is \"pool_mode\"",
                "weir.ini:15: error: invalid value \"many\" for max_client_conn: expected a whole number from 0 to \
                 2147483647",
                "weir.ini:16: error: invalid value \"-1\" for query_timeout: expected seconds, a number from 0 to \
                 2147483647, decimals allowed",
                "weir.ini:17: warning: auth_file \"nowhere\" is not there: until a reload finds it nobody is in it",
                "weir.ini:18: error: auth_type = ldap needs auth_ldap_options",
                "weir.ini:19: error: invalid value \"tlsv1.4\" in client_tls_protocols: the nearest known one is \
                 \"tlsv1.0\"",
                "weir.ini:20: error: could not read file \"gone.ini\": entity not found",
            ]
        );
    }

    #[test]
    fn what_has_no_effect_is_a_warning_and_a_default_is_silent() {
        assert_eq!(
            warnings(&format!(
                "{MINIMAL}resolv_conf = /x\nsbuf_loopcnt = 4\nsyslog = no\nserver_check_delay = 30.0\nclient_tls_ecdhcurve \
                 = secp521r1\n\
                 client_tls_protocols = all,tlsv1.0\nserver_tls_protocols = tlsv1.1\n[databases]\ne = host=h load_balance_hosts=disable password=x"
            )),
            [
                "weir.ini:5: warning: could not read resolv_conf \"/x\": entity not found",
                "weir.ini:6: warning: sbuf_loopcnt has no effect: every socket with something to read has its turn in each round",
                "weir.ini:9: warning: client_tls_ecdhcurve: secp521r1 is not spoken, only prime256v1, secp384r1 and X25519 are: all of these are",
                "weir.ini:10: warning: client_tls_protocols: tlsv1.0 is not spoken, only tlsv1.2 and tlsv1.3 are",
                "weir.ini:11: warning: server_tls_protocols: tlsv1.1 is not spoken, only tlsv1.2 and tlsv1.3 are",
                "weir.ini:11: warning: server_tls_protocols leaves no version that is spoken: tlsv1.2 and tlsv1.3 are",
                "weir.ini:13: warning: database \"e\": password has no effect without user",
            ]
        );
        assert_eq!(
            warnings("[databases]\n[pgbouncer]\nauth_type = trust"),
            [
                "weir.ini: warning: no database is configured: there is only the console",
                "weir.ini:3: warning: auth_file is not set: with auth_type = trust nobody can log in",
            ]
        );
    }

    #[test]
    fn settings_must_agree() {
        for (lines, expected) in [
            (
                "unix_socket_dir =",
                &["weir.ini: error: listen_addr and unix_socket_dir are both empty: nobody could connect"][..],
            ),
            ("auth_type = cert", &["weir.ini:5: error: auth_type = cert needs client_tls_sslmode = verify-full"]),
            (
                "client_tls_sslmode = allow",
                &["weir.ini:5: error: client_tls_sslmode needs client_tls_key_file and client_tls_cert_file, \
                     unless it is disable"],
            ),
            (
                "server_tls_negotiation = direct",
                &["weir.ini:5: error: server_tls_negotiation = direct needs server_tls_sslmode = require, \
                     verify-ca or verify-full"],
            ),
            (
                "server_tls_sslmode = verify-ca\nserver_tls_ca_file = empty.pem",
                &["weir.ini:6: error: server_tls_ca_file \"empty.pem\" holds no certificate in PEM form"],
            ),
            (
                "server_tls_key_file = empty.pem",
                &[
                    "weir.ini:5: error: server_tls_key_file \"empty.pem\" holds no unencrypted private key in PEM form",
                    "weir.ini:5: error: server_tls_key_file needs server_tls_cert_file",
                ],
            ),
            ("auth_file = bad_users", &["bad_users:1: error: expected a secret in double quotes after user \"u\""]),
        ] {
            assert_eq!(errors(&format!("{MINIMAL}{lines}")), expected, "{lines}");
        }
    }

    #[test]
    fn files_of_a_side_without_tls_are_not_looked_at() {
        assert_eq!(warnings(&format!("{MINIMAL}client_tls_key_file = nowhere.pem")), Vec::<String>::new());
        let server = "server_tls_cert_file = nowhere.pem\n";
        assert_eq!(warnings(&format!("{MINIMAL}{server}server_tls_sslmode = disable")), Vec::<String>::new());
        assert_eq!(
            errors(&format!("{MINIMAL}{server}server_tls_sslmode = allow")),
            [
                "weir.ini:5: error: could not read server_tls_cert_file \"nowhere.pem\": entity not found",
                "weir.ini:5: error: server_tls_cert_file needs server_tls_key_file",
            ]
        );
        let program = loaded(&format!("{MINIMAL}{server}server_tls_sslmode = disable")).program;
        assert!(crate::start::tls(&program).is_ok());
        let program = loaded(&format!("{MINIMAL}server_tls_sslmode = verify-full")).program;
        let system = std::path::Path::new("/etc/ssl/certs/ca-certificates.crt").exists();
        assert!(!system || crate::start::tls(&program).is_ok());
    }

    #[test]
    fn authorities_that_verify_nothing_may_be_missing() {
        for (mode, file) in [("require", "nowhere.pem"), ("prefer", "empty.pem")] {
            let said = warnings(&format!("{MINIMAL}server_tls_sslmode = {mode}\nserver_tls_ca_file = {file}"));
            assert!(said.len() == 1 && said[0].contains("it is not used"), "{said:?}");
        }
    }

    #[test]
    fn a_file_that_says_nothing_is_no_configuration() {
        let expected = "weir.ini: error: there is no section [databases]; an empty one stands for the console alone";
        for text in ["", "; to come\n", "[pgbouncer]\nauth_file = users\n", "[users]\n"] {
            assert_eq!(errors(text).last().unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn no_secret_in_what_is_printed() {
        let loaded = loaded(&format!(
            "{MINIMAL}auth_ldap_options = ldapbindpasswd=hunter2\n[databases]\ne = host=h user=x password=hunter2"
        ));
        assert!(!format!("{:?}", loaded.settings.show_config).contains("hunter2"));
        assert!(!format!("{:?}", loaded.warnings).contains("hunter2"));
        assert!(!format!("{:?}", loaded.settings).contains("hunter2"));
    }

    #[test]
    fn a_reload_names_what_it_cannot_change() {
        let old = loaded(MINIMAL);
        let new = loaded(&format!("{MINIMAL}listen_port = 7000\nmax_client_conn = 5\nworkers = 2"));
        assert_eq!(unchangeable(&old.settings, &new.settings), ["listen_port", "workers"]);
        let mut adopted = new.settings;
        adopt(&old.settings, &mut adopted);
        let value = |key: &str| adopted.show_config.iter().find(|row| row.key == key).unwrap().value.clone();
        assert_eq!((value("listen_port"), value("max_client_conn")), ("6432".to_owned(), "5".to_owned()));
    }

    #[test]
    fn arbitrary_files_never_panic() {
        let pieces = [
            "[pgbouncer]\n",
            "[databases]\n",
            "[users]\n",
            "[peers]\n",
            "a",
            "=",
            "'",
            "\"",
            " ",
            "\n",
            "host",
            "port=",
            "*",
            ",",
            "@",
            "/",
            "é",
            "pool_size=",
            "9",
            "auth_file",
            "-",
            "%include weir.ini\n",
        ];
        for text in arbitrary(&pieces) {
            let _ = load_lines(&text);
        }
    }

    #[test]
    fn what_tls_towards_servers_is_made_from_has_a_number() {
        let number = |certificate: &str, lines: &str| {
            let text = format!("{MINIMAL}server_tls_ca_file = ca.pem\n{lines}\n");
            let pem = format!("-----BEGIN CERTIFICATE-----\n{certificate}\n-----END CERTIFICATE-----\n");
            let mut source = Table::of(&[("weir.ini", &text), USERS, ("ca.pem", &pem)]);
            load_from("weir.ini", &mut source).unwrap().settings.server_tls_files
        };
        assert_eq!(number("AAAA", ""), number("AAAA", ""));
        assert_ne!(number("AAAA", ""), number("AAAB", ""), "the file has changed");
        assert_ne!(number("AAAA", ""), number("AAAA", "server_tls_protocols = tlsv1.3"));
        assert_eq!(number("AAAA", "server_tls_sslmode = disable"), number("AAAB", "server_tls_sslmode = disable"));
    }
}
