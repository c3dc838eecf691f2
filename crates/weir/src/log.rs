//! The log: lines as PgBouncer writes them, to standard error, to a file and to the system's log.
//!
//! `YYYY-MM-DD HH:MM:SS.mmm TZ [pid] LEVEL text`, so that what reads PgBouncer's log reads ours. Owns the form and the
//! file. Does not decide what is worth a line, and is handed no secrets. Whoever says something never waits for a reader.

use std::fmt::Write as _;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use rustix::fs::OFlags;
use weir_core::Level;

use crate::config::ProgramSettings;
use crate::driver::Line;
use crate::sink::Sink;
use crate::syslog::{self, Socket, SyslogOptions};

/// How long whoever ends waits for its last lines to be written, and an answer on the console for what the log says of it.
const FLUSH_PATIENCE: Duration = Duration::from_millis(500);
/// Names of users and databases, and what servers say of data, are the operator's business.
const FILE_MODE: u32 = 0o640;
/// Of a line's text. Peers have a say in how long one is.
const TEXT_BYTES_SHOWN_MAX: usize = 4096;
/// What is kept of the memory that lines are put together in.
const TEXT_BYTES_KEPT: usize = 64 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    pub file: Option<PathBuf>,
    pub to_stderr: bool,
    pub syslog: Option<SyslogOptions>,
    /// To the file and to standard error.
    pub format: LogFormat,
    /// 0: no debug lines.
    pub verbose: u8,
}

/// `log_format`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// PgBouncer's lines.
    #[default]
    Text,
    /// An object for each line: `time` (RFC 3339), `pid`, `level`, `message`.
    Json,
}

impl LogOptions {
    /// What the configuration says, `verbose` at least.
    pub fn of(program: &ProgramSettings, to_stderr: bool, verbose: u8) -> Self {
        let ProgramSettings { logfile, syslog, log_format: format, .. } = program;
        let (file, syslog, verbose) = (logfile.clone(), syslog.clone(), verbose.max(program.verbose));
        Self { file, to_stderr, syslog, format: *format, verbose }
    }
}

/// Shared by whoever has something to say.
#[derive(Debug)]
pub struct Log {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    options: LogOptions,
    stderr: Option<Sink>,
    file: Option<LogFile>,
    system: Option<Sink>,
    clock: Clock,
    /// Lines in the form that they are written in.
    text: String,
}

#[derive(Debug)]
struct LogFile {
    sink: Sink,
    /// Its device and its number there.
    place: (u64, u64),
}

/// What lines go to from now on.
#[derive(Debug)]
pub struct Reopened {
    options: LogOptions,
    file: Next<LogFile>,
    system: Next<Sink>,
}

#[derive(Debug)]
enum Next<T> {
    /// A sink that is as it was: another one beside it would wait for the same reader.
    Stays,
    Is(Option<T>),
}

/// The second that was written last, since most lines fall into the same one.
#[derive(Debug, Default)]
struct Clock {
    second: Option<i64>,
    /// `YYYY-MM-DD HH:MM:SS`
    time: String,
    zone: String,
    /// `+00:00`
    offset: String,
    /// As the system's log has it.
    stamp: String,
}

impl Log {
    pub fn open(options: LogOptions) -> Result<Self, String> {
        let file = options.file.as_deref().map(|path| open_file(path, OFlags::empty())).transpose()?;
        let stderr = if options.to_stderr { Some(stderr()?) } else { None };
        let system = system(&options)?;
        let state = State { options, stderr, file, system, clock: Clock::default(), text: String::new() };
        Ok(Self { state: Mutex::new(state) })
    }

    pub fn debug(&self, text: &str) {
        self.write(&[Line::now(Level::Debug, text.to_owned())]);
    }

    pub fn info(&self, text: &str) {
        self.write(&[Line::now(Level::Info, text.to_owned())]);
    }

    pub fn warning(&self, text: &str) {
        self.write(&[Line::now(Level::Warning, text.to_owned())]);
    }

    pub fn error(&self, text: &str) {
        self.write(&[Line::now(Level::Error, text.to_owned())]);
    }

    /// Lines, all in one piece.
    pub fn write(&self, lines: &[Line]) {
        let mut state = self.lock();
        let State { options, stderr, file, system, clock, text } = &mut *state;
        let sinks = || stderr.iter().chain(file.as_ref().map(|file| &file.sink));
        for sink in sinks() {
            if let Some(lost) = sink.take_lost() {
                let notice = format!("the log is written too slowly: {lost} lines are missing here");
                text.clear();
                clock.write_line(text, options.format, std::process::id(), &Line::now(Level::Warning, notice));
                sink.put(&text.as_str().into(), 1);
            }
        }
        let shown = || lines.iter().filter(|line| line.level > Level::Debug || options.verbose > 0);
        let count = shown().count() as u64;
        if count == 0 {
            return;
        }
        let mut put = |sinks: &mut dyn Iterator<Item = &Sink>, write: &mut dyn FnMut(&mut String, &Line)| {
            text.clear();
            shown().for_each(|line| write(text, line));
            let piece: Arc<str> = text.as_str().into();
            sinks.for_each(|sink| sink.put(&piece, count));
            text.shrink_to(TEXT_BYTES_KEPT);
        };
        let pid = std::process::id();
        put(&mut sinks(), &mut |out, line| clock.write_line(out, options.format, pid, line));
        if let (Some(system), Some(options)) = (system, &options.syslog) {
            put(&mut std::iter::once(&*system), &mut |out, line| clock.write_system_line(out, options, pid, line));
        }
    }

    /// Waits until what was said is written, but not for long.
    pub fn flush(&self) {
        let state = self.lock();
        for sink in state.stderr.iter().chain(state.file.as_ref().map(|file| &file.sink)).chain(&state.system) {
            sink.flush(FLUSH_PATIENCE);
        }
    }

    /// Opens the file anew, by its name: after something rotated it away, or a reload named another. That may take any time; a pipe that nobody
    /// reads is an error.
    pub fn reopen(&self, options: LogOptions) -> Result<Reopened, String> {
        let (place, had_system) = {
            let state = self.lock();
            (state.file.as_ref().map(|file| file.place), state.options.syslog.is_some())
        };
        let is_there = |path: &Path| path.metadata().is_ok_and(|file| Some(place_of(&file)) == place);
        let file = match options.file.as_deref() {
            Some(path) if is_there(path) => Next::Stays,
            Some(path) => Next::Is(Some(open_file(path, OFlags::NONBLOCK)?)),
            None => Next::Is(None),
        };
        // How its lines begin is none of the socket's business.
        let system = if had_system && options.syslog.is_some() { Next::Stays } else { Next::Is(system(&options)?) };
        Ok(Reopened { options, file, system })
    }

    /// What goes to standard error stays as it is.
    pub fn adopt(&self, reopened: Reopened) {
        let Reopened { options, file, system } = reopened;
        let mut state = self.lock();
        // What was said goes on its way to the old ones.
        if let Next::Is(file) = file {
            state.file = file;
        }
        if let Next::Is(system) = system {
            state.system = system;
        }
        state.options = LogOptions { to_stderr: state.options.to_stderr, ..options };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_file(path: &Path, flags: OFlags) -> Result<LogFile, String> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(FILE_MODE).custom_flags(flags.bits().cast_signed());
    let opened = options.open(path).and_then(|file| {
        let place = place_of(&file.metadata()?);
        Ok(LogFile { sink: Sink::start(file)?, place })
    });
    opened.map_err(|error| format!("could not open logfile \"{}\": {error}", path.display()))
}

fn place_of(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn system(options: &LogOptions) -> Result<Option<Sink>, String> {
    let sink = options.syslog.as_ref().map(|_| Sink::start(Socket::default())).transpose();
    sink.map_err(|error| format!("could not write to the system's log: {error}"))
}

fn stderr() -> Result<Sink, String> {
    let file = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    file.and_then(Sink::start).map_err(|error| format!("could not write to standard error: {error}"))
}

impl Clock {
    fn write_line(&mut self, out: &mut String, format: LogFormat, pid: u32, line: &Line) {
        let at = self.at(line);
        let Self { time, zone, offset, .. } = self;
        let (milliseconds, tag) = (at.subsec_millisecond(), tag(line.level));
        // Writing to a string does not fail.
        match format {
            LogFormat::Text => {
                let _ = write!(out, "{time}.{milliseconds:03} {zone} [{pid}] {tag} ");
                push_one_line(out, &line.text);
                out.push('\n');
            }
            LogFormat::Json => {
                let (day, time) = time.split_once(' ').unwrap_or_default();
                let _ =
                    write!(out, r#"{{"time":"{day}T{time}.{milliseconds:03}{offset}","pid":{pid},"level":"{tag}","#);
                out.push_str(r#""message":""#);
                let begins = out.len();
                push_one_line(out, &line.text);
                // What breaks lines is written out by now, with backslashes.
                let message = out[begins..].replace('\\', "\\\\").replace('"', "\\\"");
                out.replace_range(begins.., &message);
                out.push_str("\"}\n");
            }
        }
    }

    fn write_system_line(&mut self, out: &mut String, options: &SyslogOptions, pid: u32, line: &Line) {
        self.at(line);
        options.begin_line(out, line.level, &self.stamp, pid);
        push_one_line(out, &line.text);
        out.push('\n');
    }

    /// That is the second now.
    fn at(&mut self, line: &Line) -> Timestamp {
        // A time that the calendar does not reach is no time to write down.
        let at = Timestamp::try_from(line.at).unwrap_or_default();
        if self.second != Some(at.as_second()) {
            self.second = Some(at.as_second());
            self.name(&at.to_zoned(TimeZone::system()));
        }
        at
    }

    fn name(&mut self, now: &Zoned) {
        self.stamp = syslog::stamp(now);
        self.time = now.strftime("%Y-%m-%d %H:%M:%S").to_string();
        self.zone = now.strftime("%Z").to_string();
        self.offset = now.strftime("%:z").to_string();
    }
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

/// Names that clients choose are in these texts: neither a line break among them may make a second line, nor a mark of
/// direction turn what is read around.
fn push_one_line(out: &mut String, text: &str) {
    let shown = &text[..text.floor_char_boundary(TEXT_BYTES_SHOWN_MAX)];
    for character in shown.chars() {
        if character.is_control() || breaks_or_turns(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    if shown.len() < text.len() {
        let _ = write!(out, "... ({} bytes more)", text.len() - shown.len());
    }
}

/// Line and paragraph separators, and the marks of Unicode's bidirectional algorithm (UAX 9).
fn breaks_or_turns(character: char) -> bool {
    matches!(character, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_looks_like_pgbouncer_s() {
        let at: Zoned = "2026-05-08T01:02:03.004567[UTC]".parse().unwrap();
        let mut clock = Clock { second: Some(at.timestamp().as_second()), ..Clock::default() };
        clock.name(&at);
        let mut written = |at: &Zoned, level, text: &str| {
            let mut out = String::new();
            clock.write_line(
                &mut out,
                LogFormat::Text,
                42,
                &Line { at: at.timestamp().into(), level, text: text.to_owned() },
            );
            out
        };
        let first = written(&at, Level::Info, "process up");
        assert_eq!(first, "2026-05-08 01:02:03.004 UTC [42] LOG process up\n");
        let second = written(&at, Level::Warning, "a\nb\u{1b}");
        assert_eq!(second, "2026-05-08 01:02:03.004 UTC [42] WARNING a\\nb\\u{1b}\n");
        let long = written(&at, Level::Info, &"é".repeat(TEXT_BYTES_SHOWN_MAX));
        assert!(long.ends_with("éé... (4096 bytes more)\n") && long.len() < TEXT_BYTES_SHOWN_MAX + 100, "{long}");
        let turned = written(&at, Level::Warning, "é\u{202e}x\u{2028}y\u{2069}");
        assert_eq!(turned, "2026-05-08 01:02:03.004 UTC [42] WARNING é\\u{202e}x\\u{2028}y\\u{2069}\n");
        let later = at.checked_add(jiff::Span::new().seconds(61)).unwrap().with_time_zone(TimeZone::system());
        let third = written(&later, Level::Error, "c");
        assert_eq!(third, format!("{} [42] ERROR c\n", later.strftime("%Y-%m-%d %H:%M:%S%.3f %Z")));
    }

    #[test]
    fn a_line_may_be_an_object() {
        let at: Zoned = "2026-05-08T01:02:03.004567+02:00[Europe/Berlin]".parse().unwrap();
        let mut clock = Clock { second: Some(at.timestamp().as_second()), ..Clock::default() };
        clock.name(&at);
        let mut out = String::new();
        let text = "say \"é\" \\ and\nturn \u{202e}".to_owned();
        clock.write_line(
            &mut out,
            LogFormat::Json,
            42,
            &Line { at: at.timestamp().into(), level: Level::Warning, text },
        );
        let line = r#"{"time":"2026-05-08T01:02:03.004+02:00","pid":42,"level":"WARNING","message":"say \"é\" \\ and\\nturn \\u{202e}"}"#;
        assert_eq!(out, format!("{line}\n"));
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
        log.flush();
        log.adopt(log.reopen(LogOptions { file: Some(path.clone()), verbose: 1, ..LogOptions::default() }).unwrap());
        log.debug("two");
        log.flush();
        let (old, new) = (std::fs::read_to_string(&rotated).unwrap(), std::fs::read_to_string(&path).unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(old.ends_with("LOG one\n") && old.lines().count() == 1, "{old}");
        assert!(new.ends_with("DEBUG two\n") && new.lines().count() == 1, "{new}");
    }

    #[test]
    fn a_pipe_that_nobody_reads_holds_up_no_reload_and_is_opened_once() {
        let directory = std::env::temp_dir().join(format!("weir-log-pipe-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let [first, second] = ["first", "second"].map(|name| directory.join(name));
        for path in [&first, &second] {
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
        let reader = OpenOptions::new().read(true).custom_flags(nonblocking).open(&first).unwrap();
        let of = |path: &Path| LogOptions { file: Some(path.to_owned()), ..LogOptions::default() };
        let log = Log::open(of(&first)).unwrap();
        drop(reader);
        let again = log.reopen(of(&first)).unwrap();
        let refused = log.reopen(of(&second)).unwrap_err();
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(matches!(again.file, Next::Stays), "{again:?}");
        assert!(refused.ends_with("/second\": No such device or address (os error 6)"), "{refused}");
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
