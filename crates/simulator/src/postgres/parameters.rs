//! Run-time parameters of a simulated session. Knows which are reported and how PostgreSQL spells their values.

use std::collections::BTreeMap;

/// Parameters that a client may set and that ParameterStatus reports (guc_tables.c, GUC_REPORT).
pub const REPORTED: [&str; 5] = ["application_name", "DateStyle", "TimeZone", "IntervalStyle", "client_encoding"];

/// A parameter that a client may set and that PostgreSQL does not report.
pub const UNREPORTED: &str = "statement_timeout";

/// One without a definition, that PostgreSQL lists nowhere.
pub const CUSTOM: &str = "app.tenant";

/// Whom a session acts as, which PostgreSQL lists nowhere either, and which RESET ALL leaves as it is (`GUC_NO_RESET_ALL`).
pub const ROLE: &str = "role";
const NO_ROLE: &str = "none";

/// A parameter whose default the configuration file changes: each time to one with a higher number.
pub const CONFIGURED: &str = "search_path";

const FIXED: [(&str, &str); 7] = [
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("default_transaction_read_only", "off"),
    ("is_superuser", "off"),
    ("server_encoding", "UTF8"),
    ("server_version", "18.0"),
    ("standard_conforming_strings", "on"),
];

/// What the file says then.
fn configured(number: u64) -> String {
    format!("\"$user\", public, c{number}")
}

/// `None`: it is a session's own.
pub fn configured_number(value: &str) -> Option<u64> {
    value.strip_prefix("\"$user\", public, c")?.parse().ok()
}

/// A session's parameters, by the name that ParameterStatus uses, and those that have a name of somebody's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters(pub BTreeMap<&'static str, String>, BTreeMap<String, String>);

impl Parameters {
    pub fn new(user: &str) -> Self {
        let mut values = BTreeMap::from(FIXED.map(|(name, value)| (name, value.to_owned())));
        values.insert("application_name", String::new());
        values.insert("DateStyle", "ISO, MDY".to_owned());
        values.insert("TimeZone", "Etc/UTC".to_owned());
        values.insert("IntervalStyle", "postgres".to_owned());
        values.insert("client_encoding", "UTF8".to_owned());
        values.insert(UNREPORTED, "0".to_owned());
        values.insert(CONFIGURED, configured(0));
        values.insert("session_authorization", user.to_owned());
        Self(values, BTreeMap::new())
    }

    /// The configuration file has this value now, which counts where the session has none of its own, also behind a ROLLBACK
    /// (`set_config_option`, src/backend/utils/misc/guc.c at 18: `makeDefault`).
    pub fn read_configuration(&mut self, value: u64) {
        if !self.1.contains_key(CONFIGURED) {
            self.0.insert(CONFIGURED, configured(value));
        }
    }

    /// Back to the default.
    pub fn reset(&mut self, name: &str, defaults: &Self) {
        self.1.remove(name);
        let default = defaults.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        if let Some((name, value)) = default {
            self.0.insert(name, value.clone());
        }
    }

    /// Each has its default again.
    pub fn reset_all(&mut self, defaults: &Self) {
        let role = self.1.remove(ROLE);
        self.clone_from(defaults);
        self.1.extend(role.map(|role| (ROLE.to_owned(), role)));
    }

    /// `none`: it acts as itself.
    pub fn role(&self) -> &str {
        self.custom(ROLE).unwrap_or(NO_ROLE)
    }

    /// Sets a parameter; what PostgreSQL would refuse gives the SQLSTATE.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        if name.eq_ignore_ascii_case(ROLE) {
            self.1.remove(ROLE);
            // NULL is its default (`set_config`), and is read as nothing here.
            if !value.is_empty() && value != NO_ROLE {
                self.1.insert(ROLE.to_owned(), value.to_owned());
            }
            return Ok(());
        }
        if name == CONFIGURED {
            // The session has one of its own.
            self.1.insert(name.to_owned(), String::new());
            self.0.insert(CONFIGURED, value.to_owned());
            return Ok(());
        }
        let Some(name) = REPORTED.into_iter().chain([UNREPORTED]).find(|known| known.eq_ignore_ascii_case(name)) else {
            // The rest is real but not reported, so nothing here depends on it; a name without sense is an error.
            if name.contains('.') {
                self.1.insert(name.to_owned(), value.to_owned());
            }
            return if name.contains("nonsense") { Err("42704") } else { Ok(()) };
        };
        let value = canonical(name, value).ok_or("22023")?;
        self.0.insert(name, value);
        Ok(())
    }

    pub fn get(&self, name: &str) -> String {
        if name == ROLE {
            return self.role().to_owned();
        }
        let known = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        known.or_else(|| self.1.get(name)).cloned().unwrap_or_default()
    }

    /// The value of one without a definition.
    pub fn custom(&self, name: &str) -> Option<&str> {
        self.1.get(name).map(String::as_str)
    }

    /// What a row says about the session it was made in.
    pub fn description(&self) -> String {
        [CONFIGURED]
            .iter()
            .chain(&REPORTED)
            .chain(&[UNREPORTED])
            .map(|name| format!("{name}={}\n", self.0[name]))
            .collect()
    }
}

/// How PostgreSQL reports a value back; `None` if it refuses it.
pub fn canonical(name: &str, value: &str) -> Option<String> {
    match name {
        "DateStyle" => date_style(value),
        "TimeZone" => {
            const ZONES: [&str; 5] = ["UTC", "Etc/UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York"];
            ZONES.iter().find(|zone| zone.eq_ignore_ascii_case(value)).map(|zone| (*zone).to_owned())
        }
        "IntervalStyle" => {
            let value = value.to_ascii_lowercase();
            ["postgres", "iso_8601", "sql_standard"].contains(&value.as_str()).then_some(value)
        }
        "client_encoding" => {
            let value = value.to_ascii_uppercase().replace('-', "");
            ["UTF8", "LATIN1", "SQL_ASCII"].contains(&value.as_str()).then_some(value)
        }
        // Clipped to NAMEDATALEN; what is not ASCII is replaced, which the simulated names never are.
        _ => Some(value.chars().take(63).collect()),
    }
}

/// `German` becomes `German, DMY`; a plain order is refused, as nobody here sets one.
fn date_style(value: &str) -> Option<String> {
    let (style, order) = value.split_once(',').map_or((value, ""), |(style, order)| (style, order.trim()));
    let (style, own_order) = match style.trim().to_ascii_lowercase().as_str() {
        "iso" => ("ISO", "MDY"),
        "german" => ("German", "DMY"),
        "sql" => ("SQL", "MDY"),
        _ => return None,
    };
    let order = match order.to_ascii_uppercase().as_str() {
        "" => own_order,
        "MDY" => "MDY",
        "DMY" => "DMY",
        _ => return None,
    };
    Some(format!("{style}, {order}"))
}
