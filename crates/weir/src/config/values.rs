//! The settings of `[pgbouncer]` as a file gives them: checked, the last one counting, defaults for the rest.
//!
//! Does not know where a value goes: [`super::global`] and [`super::program`] ask for each by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::settings::{ConfigRow, PoolMode, Route, SessionState, TlsMode};
use weir_core::time::Duration;

use super::ini::Entry;
use super::problem::{Place, Problems};
use super::registry::{self, Kind, Section, Setting, Status};
use super::value;

/// The most characters of a value that an error repeats.
const VALUE_CHARS_SHOWN_MAX: usize = 80;

#[derive(Debug)]
pub struct Values {
    set: BTreeMap<&'static str, (String, Place)>,
    /// The file as a whole: what is blamed for a setting that is missing.
    whole: Place,
}

impl Values {
    /// Takes the entries of `[pgbouncer]`. A wrong value is an error and counts as not set.
    pub fn read(file: &Arc<str>, entries: &[Entry], problems: &mut Problems) -> Self {
        let mut values = Self { set: BTreeMap::new(), whole: Place::new(file, 0) };
        for entry in entries.iter().filter(|entry| &*entry.section == Section::Pgbouncer.name()) {
            values.take(entry, problems);
        }
        values.warn_of_what_has_not_come(problems);
        values
    }

    fn take(&mut self, entry: &Entry, problems: &mut Problems) {
        let Some(setting) = registry::find(Section::Pgbouncer, &entry.key) else {
            let nearest = registry::nearest(Section::Pgbouncer, &entry.key);
            return problems.error(
                &entry.place,
                format!("unknown setting \"{}\": the nearest known one is \"{nearest}\"", entry.key),
            );
        };
        match check(setting, &entry.value) {
            Ok(()) => {
                self.set.insert(setting.name, (entry.value.clone(), entry.place.clone()));
            }
            Err(text) => problems.error(&entry.place, text),
        }
    }

    fn warn_of_what_has_not_come(&self, problems: &mut Problems) {
        for setting in registry::of_section(Section::Pgbouncer) {
            if let Some((text, place)) = self.set.get(setting.name).filter(|(text, _)| !setting.is_default(text)) {
                debug_assert!(setting.check(text).is_ok());
                warn_of_status(setting, place, problems);
            }
        }
    }

    /// The value in the file, else the default, else nothing.
    pub fn text(&self, name: &str) -> &str {
        if let Some((text, _)) = self.set.get(name) {
            return text;
        }
        let setting = registry::find(Section::Pgbouncer, name);
        debug_assert!(setting.is_some(), "{name} is not in the registry");
        setting.and_then(|setting| setting.default).unwrap_or_default()
    }

    /// A text that may be left out.
    pub fn optional(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// Where a setting stands; the whole file if it does not.
    pub fn place(&self, name: &str) -> &Place {
        self.set.get(name).map_or(&self.whole, |(_, place)| place)
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(name)
    }

    pub fn number(&self, name: &str) -> u32 {
        value::integer(self.text(name), 0, u32::MAX.into())
            .ok()
            .and_then(|number| u32::try_from(number).ok())
            .unwrap_or_default()
    }

    pub fn switch(&self, name: &str) -> bool {
        value::switch(self.text(name)).unwrap_or_default()
    }

    pub fn seconds(&self, name: &str) -> Duration {
        value::seconds(self.text(name)).unwrap_or_default()
    }

    pub fn list(&self, name: &str) -> Vec<String> {
        value::list(self.text(name))
    }

    pub fn tls_mode(&self, name: &str) -> TlsMode {
        match self.text(name).to_ascii_lowercase().as_str() {
            "allow" => TlsMode::Allow,
            "prefer" => TlsMode::Prefer,
            "require" => TlsMode::Require,
            "verify-ca" => TlsMode::VerifyCa,
            "verify-full" => TlsMode::VerifyFull,
            _ => TlsMode::Disable,
        }
    }

    pub fn pool_mode(&self, name: &str) -> PoolMode {
        pool_mode(self.text(name))
    }

    pub fn session_state(&self, name: &str) -> SessionState {
        session_state(self.text(name))
    }

    /// What SHOW CONFIG prints, in alphabetical order. What may hold a secret is left out.
    pub fn show_config(&self) -> Vec<ConfigRow> {
        let mut rows: Vec<ConfigRow> =
            registry::of_section(Section::Pgbouncer).map(|setting| self.row(setting)).collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows
    }

    fn row(&self, setting: &Setting) -> ConfigRow {
        let value = if setting.kind == Kind::Hidden { "" } else { self.text(setting.name) };
        ConfigRow {
            key: setting.name.to_owned(),
            value: value.to_owned(),
            default: setting.default.unwrap_or_default().to_owned(),
            changeable: setting.reloadable,
        }
    }
}

/// A checked `pool_mode`.
pub fn pool_mode(text: &str) -> PoolMode {
    match text.to_ascii_lowercase().as_str() {
        "transaction" => PoolMode::Transaction,
        "statement" => PoolMode::Statement,
        _ => PoolMode::Session,
    }
}

/// A checked `session_state`.
pub fn session_state(text: &str) -> SessionState {
    match text.to_ascii_lowercase().as_str() {
        "keep" => SessionState::Keep,
        "refuse" => SessionState::Refuse,
        _ => SessionState::Pgbouncer,
    }
}

/// A checked `route`.
pub fn route(text: &str) -> Route {
    match text.to_ascii_lowercase().as_str() {
        "owner" => Route::Owner,
        "any" => Route::Any,
        _ => Route::Coordinator,
    }
}

/// Whether a setting takes a value; the error is a whole sentence that shows the value, unless it may be a secret.
pub fn check(setting: &Setting, text: &str) -> Result<(), String> {
    // An unset switch or number may be written as an empty value: `verbose =`.
    if setting.default.is_none() && text.is_empty() && setting.section == Section::Pgbouncer {
        return Ok(());
    }
    setting.check(text).map_err(|expected| {
        let shown: String = text.chars().take(VALUE_CHARS_SHOWN_MAX).collect();
        format!("invalid value \"{shown}\" for {}: {expected}", setting.name)
    })
}

/// A warning for a setting that does not do what its author thinks.
pub fn warn_of_status(setting: &Setting, place: &Place, problems: &mut Problems) {
    match setting.status {
        Status::Supported => {}
        Status::NoEffect(why) => problems.warn(place, format!("{} has no effect: {why}", setting.name)),
    }
}
