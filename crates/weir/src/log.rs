//! The log: lines as PgBouncer writes them, to standard error and to a file.
//!
//! `YYYY-MM-DD HH:MM:SS.mmm TZ [pid] LEVEL text`, so that what reads PgBouncer's log reads ours. Owns the form and the
//! file. Does not decide what is worth a line, and is handed no secrets.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use jiff::Zoned;
use weir_core::Level;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    pub file: Option<PathBuf>,
    pub to_stderr: bool,
    /// 0: no debug lines.
    pub verbose: u8,
}

/// Shared by whoever has something to say.
#[derive(Debug)]
pub struct Log {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    options: LogOptions,
    file: Option<File>,
}

impl Log {
    pub fn open(options: LogOptions) -> Result<Self, String> {
        let file = options.file.as_deref().map(open_file).transpose()?;
        Ok(Self { state: Mutex::new(State { options, file }) })
    }

    pub fn debug(&self, text: &str) {
        self.write(Level::Debug, text);
    }

    pub fn info(&self, text: &str) {
        self.write(Level::Info, text);
    }

    pub fn warning(&self, text: &str) {
        self.write(Level::Warning, text);
    }

    pub fn error(&self, text: &str) {
        self.write(Level::Error, text);
    }

    /// One line. A log that cannot be written must not stop the pooler, so failures are ignored here.
    pub fn write(&self, level: Level, text: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if level == Level::Debug && state.options.verbose == 0 {
            return;
        }
        let line = format_line(&Zoned::now(), std::process::id(), level, text);
        if state.options.to_stderr {
            let _ = io::stderr().write_all(line.as_bytes());
        }
        if let Some(file) = &mut state.file {
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// Opens the file anew, by its name: after something rotated it away, or a reload named another. On failure the old
    /// one stays.
    pub fn reopen(&self, file: Option<&Path>, verbose: u8) -> Result<(), String> {
        let opened = file.map(open_file).transpose()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.file = opened;
        state.options.file = file.map(Path::to_path_buf);
        state.options.verbose = verbose;
        Ok(())
    }
}

fn open_file(path: &Path) -> Result<File, String> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| format!("could not open logfile \"{}\": {error}", path.display()))
}

fn format_line(now: &Zoned, pid: u32, level: Level, text: &str) -> String {
    let time = now.strftime("%Y-%m-%d %H:%M:%S%.3f %Z");
    format!("{time} [{pid}] {} {}\n", tag(level), one_line(text))
}

/// PgBouncer's words (libusual's `log_level_list`).
fn tag(level: Level) -> &'static str {
    match level {
        Level::Debug => "DEBUG",
        Level::Info => "LOG",
        Level::Warning => "WARNING",
        Level::Error => "ERROR",
    }
}

/// Names that clients choose are in these texts: a line break among them must not make a second line.
fn one_line(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_looks_like_pgbouncer_s() {
        let now: Zoned = "2026-05-08T01:02:03.004567[UTC]".parse().unwrap();
        assert_eq!(
            format_line(&now, 42, Level::Info, "process up"),
            "2026-05-08 01:02:03.004 UTC [42] LOG process up\n"
        );
        assert_eq!(
            format_line(&now, 42, Level::Warning, "a\nb\u{1b}"),
            "2026-05-08 01:02:03.004 UTC [42] WARNING a\\nb\\u{1b}\n"
        );
    }

    #[test]
    fn the_file_is_opened_anew_after_rotation() {
        let directory = std::env::temp_dir().join(format!("weir-log-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (path, rotated) = (directory.join("log"), directory.join("log.1"));
        let log = Log::open(LogOptions { file: Some(path.clone()), ..LogOptions::default() }).unwrap();
        log.info("one");
        log.debug("unseen");
        std::fs::rename(&path, &rotated).unwrap();
        log.reopen(Some(&path), 1).unwrap();
        log.debug("two");
        let (old, new) = (std::fs::read_to_string(&rotated).unwrap(), std::fs::read_to_string(&path).unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(old.ends_with("LOG one\n") && old.lines().count() == 1, "{old}");
        assert!(new.ends_with("DEBUG two\n") && new.lines().count() == 1, "{new}");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let options = LogOptions { file: Some("/nowhere/at/all".into()), ..LogOptions::default() };
        assert_eq!(
            Log::open(options).unwrap_err(),
            "could not open logfile \"/nowhere/at/all\": No such file or directory (os error 2)"
        );
    }
}
