//! Files to settings: everything is read, all errors are found, and only then is there a result.

use std::sync::Arc;

use weir_core::Settings;
use weir_core::settings::AuthType;

use super::ini::{self, Entry, FileSystem, Source};
use super::problem::{Place, Problem, Problems};
use super::program::ProgramSettings;
use super::registry::{self, Section};
use super::values::Values;
use super::{database, global, tls, userlist};

/// A configuration that can be used.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub settings: Arc<Settings>,
    pub program: ProgramSettings,
    pub warnings: Vec<Problem>,
}

/// Reads a configuration file and all that it names. On failure, everything that was found is in the answer.
pub fn load(path: &str) -> Result<Loaded, Problems> {
    load_from(path, &mut FileSystem)
}

/// The same, from any source of files.
pub fn load_from(path: &str, source: &mut dyn Source) -> Result<Loaded, Problems> {
    let mut problems = Problems::default();
    let file: Arc<str> = path.into();
    let entries = ini::parse(path, source, &mut problems);
    unknown_sections(&entries, &mut problems);

    let values = Values::read(&file, &entries, &mut problems);
    let mut settings = global::settings(&values, &mut problems);
    let program = ProgramSettings::from_values(path, &values, &mut problems);
    database::read(&mut settings, &entries, &values, &mut problems);
    secrets(&mut settings, &values, source, &mut problems);
    tls::check(&values, source, &mut problems);
    agreement(&settings, &program, &Place::new(&file, 0), &mut problems);
    show_conffile(&mut settings, &program);

    if problems.has_errors() {
        return Err(problems);
    }
    Ok(Loaded { settings: Arc::new(settings), program, warnings: problems.warnings().cloned().collect() })
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
            Ok(bytes) => settings.secrets = userlist::parse(path, &bytes, problems),
            Err(error) => problems.error(values.place("auth_file"), format!("could not read auth_file \"{path}\": {error}")),
        }
    } else if settings.auth_type != AuthType::Any {
        let text = format!("auth_file is not set: with auth_type = {} nobody can log in", values.text("auth_type"));
        problems.warn(values.place("auth_type"), text);
    }
}

/// What the parts need from each other.
fn agreement(settings: &Settings, program: &ProgramSettings, whole: &Place, problems: &mut Problems) {
    if settings.databases.is_empty() && settings.fallback_database.is_none() {
        problems.warn(whole, "no database is configured: there is only the console");
    }
    if program.listen_addresses.is_empty() && program.unix_socket_dir.is_none() {
        problems.error(whole, "listen_addr and unix_socket_dir are both empty: nobody could connect");
    }
    let without_user = settings.databases.iter().filter(|(_, database)| database.forced_user.is_none()).map(|(name, _)| &**name);
    let fallback = settings.fallback_database.iter().filter(|database| database.forced_user.is_none()).map(|_| "*");
    if settings.auth_type == AuthType::Any {
        for name in without_user.chain(fallback) {
            problems.warn(whole, format!("database \"{name}\" has no user: with auth_type = any nobody can log in to it"));
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
