//! The program around the workers: what happens before they start, what they ask for while they run, and the end.
//!
//! ```text
//! main:   files -> another user -> background -> log, pidfile -> Pooler::start -> wait
//! Pooler: one thread hears the workers' events (log lines, reload, exit), one hears signals
//! ```
//!
//! Owns no decision of pooling and no socket.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use signal_hook::iterator::Handle as SignalHandle;
use weir_core::Command;
use weir_core::settings::{PoolMode, SessionState, Settings};

use crate::cli;
use crate::config::global::VERSION;
use crate::config::load::{adopt, unchangeable};
use crate::config::{self, Loaded, ProgramSettings};
use crate::daemon::{self, Pidfile, Side};
use crate::driver::{self, DriverEvent, Handle, Seen};
use crate::log::{Log, LogOptions};
use crate::manager;
use crate::metrics::{Health, Metrics};
use crate::reloads::{Found, Opened, Reloads};
use crate::signals::{Commands, hear_signals, watch_signals};
use crate::start;
use crate::takeover::{Offer, Predecessor, Takeovers};

/// How long the workers may take to end by themselves after they were told to end at once.
const END_AT_ONCE: Duration = Duration::from_secs(2);
/// How long they may take once all is done: the last bytes of connections are on their way.
const END_IN_ORDER: Duration = Duration::from_secs(10);
/// How long clients have to read the answer to what was waited for before they hear of the end: there are drivers that take an
/// error on the heels of an answer for the answer.
const LAST_ANSWERS: Duration = Duration::from_millis(100);
/// How often the thread of events looks whether that time is over, and after the workers.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How often it looks whether the files of a RELOAD are read.
const READING_INTERVAL: Duration = Duration::from_millis(10);
/// How long lines gather after some were written: while they do, a line costs the worker that says it no system call.
const LOG_PAUSE: Duration = Duration::from_millis(20);
/// How often in a second something is written before lines gather: up to then a line is there as soon as what it tells of.
const LOG_PROMPT_MAX: u32 = 100;
/// Lines written in one piece at most.
const LINES_AT_ONCE: usize = 512;

/// What the command line says beside the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOptions {
    pub config: String,
    pub daemon: bool,
    pub quiet: bool,
    pub verbose: u8,
    pub user: Option<String>,
    /// People start with it also where nothing runs.
    pub reboot: bool,
}

/// `weir CONFIG.ini`, until it ends.
pub fn main(options: &RunOptions) -> Result<(), String> {
    let loaded = config::load(&options.config).map_err(|problems| cli::summary(&options.config, &problems))?;
    if let Some(user) = options.user.as_ref().or(loaded.program.user.as_ref()) {
        daemon::become_user(user)?;
    }
    if daemon::is_root() {
        return Err(
            "Weir should not run as root: name another user with --user, or with user in the configuration file"
                .to_owned(),
        );
    }
    if !options.daemon {
        let pooler = serve(loaded, options)?;
        manager::tell(&[NotifyState::Ready]);
        return pooler.wait();
    }
    needs_of_the_background(&loaded.program)?;
    match daemon::detach()? {
        Side::Foreground(outcome) => outcome,
        Side::Between => Ok(()),
        Side::Background(notifier) => match serve(loaded, options) {
            Ok(pooler) => {
                notifier.ready();
                pooler.wait()
            }
            Err(reason) => {
                notifier.failed(&reason);
                Err(reason)
            }
        },
    }
}

fn needs_of_the_background(program: &ProgramSettings) -> Result<(), String> {
    if program.pidfile.is_none() {
        return Err("--daemon needs pidfile in the configuration file".to_owned());
    }
    if program.logfile.is_none() && program.syslog.is_none() {
        return Err("--daemon needs logfile or syslog in the configuration file".to_owned());
    }
    Ok(())
}

/// Opens the log, finds whose place it takes, starts.
fn serve(loaded: Loaded, options: &RunOptions) -> Result<Pooler, String> {
    let to_stderr = !options.quiet && !options.daemon;
    let log = Arc::new(Log::open(LogOptions::of(&loaded.program, to_stderr, options.verbose))?);
    log_panics(&log);
    let start = || {
        let predecessor = if options.reboot { Predecessor::find(&loaded.program, &log)? } else { None };
        let options = PoolerOptions { log: log.clone(), is_process: true, verbose: options.verbose, predecessor };
        Pooler::start(loaded, options)
    };
    // Whoever reads only the log file must find the reason there.
    start().inspect_err(|reason: &String| {
        log.error(reason);
        log.flush();
    })
}

/// What a bug says on standard error, nobody reads in the background, and where nobody reads it at all, saying it takes for ever.
fn log_panics(log: &Arc<Log>) {
    let log = log.clone();
    std::panic::set_hook(Box::new(move |panic| log.error(&format!("a bug: {panic}"))));
}

fn take_pidfile(program: &ProgramSettings) -> Result<Option<Pidfile>, String> {
    program.pidfile.as_deref().map(Pidfile::create).transpose()
}

/// What a pooler is started with, beside its configuration.
#[derive(Debug)]
pub struct PoolerOptions {
    pub log: Arc<Log>,
    /// Whether it is all that its process is for: then the process's signals are its commands, and another one may take over.
    pub is_process: bool,
    /// `--verbose`: a reload may ask for more, not for less.
    pub verbose: u8,
    /// Whose place it takes.
    pub predecessor: Option<Predecessor>,
}

/// A running pooler.
#[derive(Debug)]
pub struct Pooler {
    commands: Commands,
    events: JoinHandle<Result<(), String>>,
    signals: Option<(SignalHandle, JoinHandle<()>)>,
    addresses: Vec<std::net::SocketAddr>,
    /// Answers for as long as it is here.
    metrics: Metrics,
    takeovers: Option<Takeovers>,
    /// Held as long as it runs, and nobody has taken over.
    pidfile: Arc<Mutex<Option<Pidfile>>>,
}

impl Pooler {
    /// When this returns, clients can connect.
    pub fn start(mut loaded: Loaded, options: PoolerOptions) -> Result<Self, String> {
        let PoolerOptions { log, is_process, verbose, mut predecessor } = options;
        loaded.log_at_least(verbose);
        for warning in &loaded.warnings {
            log.warning(&without_severity(warning));
        }
        // Another process that runs and is not taken over from is found before anything is done.
        let mut held = if is_process && predecessor.is_none() { take_pidfile(&loaded.program)? } else { None };
        let files = start::raise_limits(&loaded, &log);
        let taken = |address| predecessor.as_mut()?.metrics_listener(address);
        let mut metrics = Metrics::listen(&start::metrics_addresses(&loaded.program)?, taken, &log)?;
        // Before anybody can connect: one that comes from now on ends it in order.
        let signals = if is_process { Some(watch_signals()?) } else { None };
        let mut drivers = start::options(&loaded, files)?;
        let process_secret = match &predecessor {
            Some(predecessor) => predecessor.process_secret,
            None => driver::random().map_err(|error| error.to_string())?,
        };
        drivers.process_secret = Some(process_secret);
        if let Some(predecessor) = &mut predecessor {
            drivers.listeners = drivers.listeners.into_iter().map(|listen| predecessor.instead_of(listen)).collect();
            drivers.predecessor = Some(predecessor.cancels.clone());
        }
        let handle = driver::start(drivers, loaded.settings.clone()).map_err(|error| error.to_string())?;
        announce(&handle, &loaded, &log);
        let commands = Commands::new(handle.commander());
        let addresses = handle.addresses.clone();
        let health = Arc::<Health>::default();
        metrics.serve(handle.commander(), health.clone(), &log)?;
        if let Some(mut predecessor) = predecessor {
            predecessor.leave(&log);
            handle.commander().listen_anew();
            // It runs already: who wants that file is told, and that is all.
            held = take_pidfile(&loaded.program).inspect_err(|reason| log.error(reason)).unwrap_or_default();
            predecessor.take_clients(handle.commander(), log.clone())?;
        }
        let pidfile = Arc::new(Mutex::new(held));
        let offer = || {
            let unix_socket = loaded.program.unix_socket_path()?;
            let (commander, metrics) = (handle.commander(), metrics.listeners());
            let offer = Offer { commander, metrics, pidfile: pidfile.clone(), process_secret, log: log.clone() };
            let offered = Takeovers::offer(&unix_socket, offer);
            offered.inspect_err(|reason| log.warning(&format!("nobody can take over (-R): {reason}"))).ok()
        };
        let takeovers = if is_process { offer() } else { None };
        let around = Around {
            handle,
            log: log.clone(),
            loaded,
            verbose,
            at_once: commands.at_once.clone(),
            health,
            reloads: Reloads::default(),
        };
        let events = thread::Builder::new().name("weir-events".to_owned()).spawn(move || around.run());
        let events = events.map_err(|error| format!("could not start a thread: {error}"))?;
        let signals = signals.map(|signals| hear_signals(signals, commands.clone(), log)).transpose()?;
        Ok(Self { commands, events, signals, addresses, metrics, takeovers, pidfile })
    }

    /// The TCP addresses listened on, with the ports that the system chose where it was asked to.
    pub fn addresses(&self) -> &[std::net::SocketAddr] {
        &self.addresses
    }

    /// Hands in what otherwise a signal would.
    pub fn command(&self, command: Command) {
        self.commands.give(command);
    }

    pub fn has_ended(&self) -> bool {
        self.events.is_finished()
    }

    /// Ends it at once, and waits for that.
    pub fn stop(self) -> Result<(), String> {
        self.commands.give(Command::ShutdownNow);
        self.wait()
    }

    /// Waits until it ends by itself, a signal or a command of the console.
    pub fn wait(self) -> Result<(), String> {
        let outcome = self.events.join().unwrap_or_else(|_| Err("the thread of events failed".to_owned()));
        // Signals are heard up to then.
        if let Some(takeovers) = self.takeovers {
            self.commands.carries_on();
            takeovers.end(&self.commands.at_once);
        }
        if let Some((handle, thread)) = self.signals {
            handle.close();
            // It only forwards signals: its end changes nothing.
            let _ = thread.join();
        }
        drop(self.metrics);
        drop(self.pidfile.lock().unwrap_or_else(PoisonError::into_inner).take());
        outcome
    }
}

/// A warning's own line says its severity already.
pub fn without_severity(problem: &config::Problem) -> String {
    format!("{}: {}", problem.place, problem.text)
}

/// What a person who starts it wants to know.
fn announce(handle: &Handle, loaded: &Loaded, log: &Log) {
    log.info(&format!("process up: {VERSION}, driver: {}, workers: {}, tls: rustls", handle.driver, handle.workers()));
    for address in &handle.addresses {
        log.info(&format!("listening on {address}"));
    }
    for address in &handle.absent {
        log.warning(&format!("not listening on {address}: this machine does not have it"));
    }
    if let Some(place) = start::place_beside(&loaded.program) {
        log.info(&format!("listening on {place}"));
    }
    if shares_servers(&loaded.settings) && leaves_state(&loaded.settings) {
        log.info(
            "session_state = pgbouncer: transaction pooling keeps per client parameters that PostgreSQL reports, and prepared \
             statements of the protocol; SET of other parameters, LISTEN, temporary tables, session advisory locks and SQL PREPARE are \
             met by whoever gets the server next",
        );
    }
}

/// Whether any pool gives what a client has left in its session to the next.
fn leaves_state(settings: &Settings) -> bool {
    let databases = settings.databases.values().chain(&settings.fallback_database);
    let databases = databases.filter_map(|database| database.session_state);
    let users = settings.users.values().filter_map(|user| user.session_state);
    databases.chain(users).chain([settings.session_state]).any(|state| state == SessionState::Pgbouncer)
}

/// Whether any pool gives a server to another client before its client leaves.
fn shares_servers(settings: &Settings) -> bool {
    let databases =
        settings.databases.values().chain(&settings.fallback_database).filter_map(|database| database.pool_mode);
    let users = settings.users.values().filter_map(|user| user.pool_mode);
    databases.chain(users).chain([settings.pool_mode]).any(|mode| mode != PoolMode::Session)
}

/// What the workers' events are answered with.
#[derive(Debug)]
struct Around {
    handle: Handle,
    log: Arc<Log>,
    loaded: Loaded,
    verbose: u8,
    /// [`Command::ShutdownNow`] was given.
    at_once: Arc<AtomicBool>,
    health: Arc<Health>,
    reloads: Reloads,
}

impl Around {
    fn run(mut self) -> Result<(), String> {
        let mut told: Option<Instant> = None;
        let (mut looked, mut heard) = (Instant::now(), 0);
        let outcome = loop {
            if self.at_once.load(Ordering::Relaxed) && told.get_or_insert_with(Instant::now).elapsed() >= END_AT_ONCE {
                self.log.warning("the workers do not end by themselves: stopping them");
                break Ok(());
            }
            if looked.elapsed() >= LOOK_INTERVAL {
                (looked, heard) = (Instant::now(), 0);
                self.look();
            }
            self.look_at_reload();
            let pause = if self.reloads.are_read() { READING_INTERVAL } else { LOOK_INTERVAL };
            match self.handle.events.recv_timeout(pause) {
                Ok(event) => {
                    if let Some(outcome) = self.hear(event) {
                        break outcome;
                    }
                    heard += 1;
                    if heard > LOG_PROMPT_MAX {
                        thread::sleep(LOG_PAUSE);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break Err("all workers have ended".to_owned()),
            }
        };
        self.finish(outcome)
    }

    /// A worker that hangs takes its clients and servers with it, and nothing else would say so.
    fn look(&mut self) {
        for (worker, seen) in self.handle.look(Instant::now()) {
            match seen {
                Seen::Silent(since) => {
                    self.health.one_falls_silent();
                    let secs = since.as_secs();
                    self.log.error(&format!(
                        "worker {worker} has not answered for {secs} s: it hangs, or the machine does"
                    ));
                }
                Seen::Back => {
                    self.health.one_is_back();
                    self.log.warning(&format!("worker {worker} answers again"));
                }
            }
        }
    }

    /// Does what was said and what else waits; answers how all ends, if it does.
    fn hear(&mut self, first: DriverEvent) -> Option<Result<(), String>> {
        let mut lines = Vec::new();
        let mut next = Some(first);
        let mut outcome = None;
        while let Some(event) = next.filter(|_| outcome.is_none()) {
            match event {
                DriverEvent::Log(line) => lines.push(line),
                // What was said before it stands before it in the log.
                DriverEvent::Reload { asker, change } => {
                    self.log.write(&std::mem::take(&mut lines));
                    let now = NotifyState::monotonic_usec_now();
                    manager::tell(&[NotifyState::Reloading].into_iter().chain(now).collect::<Vec<_>>());
                    self.reloads.asked(asker, change);
                    self.reloads.begin(&self.loaded, &self.log, self.verbose);
                }
                DriverEvent::Drains => self.health.drains(),
                DriverEvent::Exit => {
                    self.health.drains();
                    outcome = Some(Ok(()));
                }
                DriverEvent::Failed { text } => outcome = Some(Err(text)),
            }
            if lines.len() >= LINES_AT_ONCE {
                self.log.write(&std::mem::take(&mut lines));
            }
            next = self.handle.events.try_recv().ok();
        }
        self.log.write(&lines);
        outcome
    }

    fn finish(self, outcome: Result<(), String>) -> Result<(), String> {
        if outcome.is_ok() && !self.at_once.load(Ordering::Relaxed) {
            thread::sleep(LAST_ANSWERS);
        }
        while let Ok(event) = self.handle.events.try_recv() {
            if let DriverEvent::Log(line) = event {
                self.log.write(&[line]);
            }
        }
        let patience = if self.at_once.load(Ordering::Relaxed) { END_AT_ONCE } else { END_IN_ORDER };
        let outcome = outcome.and(self.handle.join_within(patience));
        match &outcome {
            Ok(()) => self.log.info("process down"),
            Err(reason) => self.log.error(reason),
        }
        self.log.flush();
        outcome
    }

    fn look_at_reload(&mut self) {
        let Some((job, read)) = self.reloads.read() else { return };
        let result = read.map(|found| match found {
            Found::All(opened) => {
                self.adopt_all(*opened, job.change.is_some());
                None
            }
            Found::Aside(aside, why) => {
                self.loaded.aside = aside;
                Some(format!("TLS setup failed: {why}; it stays as it was until this fits the other settings"))
            }
        });
        match (&result, &job.change) {
            (Ok(Some(why)), _) => self.log.error(why),
            (Ok(None), None) => self.log.info("configuration read again"),
            // Its value may be a secret.
            (Ok(None), Some(change)) => self.log.info(&format!("SET {}: in force until a RELOAD", change.key)),
            (Err(reason), None) => self.log.error(&format!("RELOAD failed, the old configuration stays: {reason}")),
            (Err(reason), Some(change)) => self.log.error(&format!("SET {} failed: {reason}", change.key)),
        }
        // Whoever has the answer finds in the log what was said before it.
        self.log.flush();
        for asker in job.askers {
            self.handle.reload_done(asker, result.clone());
        }
        manager::tell(&[NotifyState::Ready]);
        self.reloads.begin(&self.loaded, &self.log, self.verbose);
    }

    /// All or nothing: what is wrong in one file must not leave half of another in force.
    fn adopt_all(&mut self, opened: Opened, is_set: bool) {
        let Opened { mut loaded, tls, log } = opened;
        self.log.adopt(log);
        // At a SET the others have been said.
        let said = if is_set { self.loaded.warnings.as_slice() } else { &[] };
        for warning in loaded.warnings.iter().filter(|warning| !said.contains(warning)) {
            self.log.warning(&without_severity(warning));
        }
        for name in unchangeable(&self.loaded.settings, &loaded.settings) {
            self.log.warning(&format!("{name} changes at the next start only"));
        }
        adopt(&self.loaded.settings, &mut loaded.settings);
        loaded.log_at_least(self.verbose);
        let (tcp, dns) = (start::tcp(&loaded.program), start::dns(&loaded.program));
        self.handle.settings(&loaded.settings, &Arc::new(tls), &Arc::new(tcp), dns);
        self.loaded = loaded;
    }
}

/// A pooler for `weir dev`: on the given file, without signals of its own, its log in a file or nowhere.
pub fn start_for_dev(config: &Path, log: LogOptions) -> Result<Pooler, String> {
    let path = config.display().to_string();
    let loaded = config::load(&path).map_err(|problems| cli::summary(&path, &problems))?;
    let log = LogOptions { file: log.file.or_else(|| loaded.program.logfile.clone()), ..log };
    let options = PoolerOptions { log: Arc::new(Log::open(log)?), is_process: false, verbose: 0, predecessor: None };
    Pooler::start(loaded, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reloads::read_again;

    #[test]
    fn one_pool_in_transaction_mode_is_enough_to_say_what_is_not_kept() {
        let mut settings = Settings::default();
        assert!(!shares_servers(&settings));
        let user = weir_core::settings::UserSettings { pool_mode: Some(PoolMode::Transaction), ..Default::default() };
        settings.users.insert("u".into(), user);
        assert!(shares_servers(&settings));
    }

    /// A pooler's surroundings over a directory of its own, without the thread that hears events.
    fn around(name: &str) -> (Around, std::path::PathBuf) {
        let directory = std::env::temp_dir().join(format!("weir-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("users"), "\"u\" \"p\"\n").unwrap();
        write_ini(&directory, "");
        let loaded = config::load(&directory.join("weir.ini").display().to_string()).unwrap();
        let log = LogOptions { file: loaded.program.logfile.clone(), ..LogOptions::default() };
        let handle = driver::start(
            start::options(&loaded, start::Files { workers: loaded.program.workers }).unwrap(),
            loaded.settings.clone(),
        )
        .unwrap();
        let log = Arc::new(Log::open(log).unwrap());
        (
            Around {
                handle,
                log,
                loaded,
                verbose: 0,
                at_once: Arc::default(),
                health: Arc::default(),
                reloads: Reloads::default(),
            },
            directory,
        )
    }

    #[test]
    fn a_bug_in_any_thread_is_in_the_log() {
        let file = std::env::temp_dir().join(format!("weir-run-bug-{}", std::process::id()));
        let options = LogOptions { file: Some(file.clone()), ..LogOptions::default() };
        let log = Arc::new(Log::open(options).unwrap());
        log_panics(&log);
        let ended = thread::Builder::new().spawn(|| panic!("nobody thought of this")).unwrap().join();
        drop(std::panic::take_hook());
        log.flush();
        let said = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(ended.is_err());
        assert!(said.contains("a bug: panicked at") && said.contains("nobody thought of this"), "{said}");
    }

    fn reread(around: &mut Around) -> Result<(), String> {
        let read = read_again(&around.loaded, &around.log, around.verbose);
        read.map(|opened| around.adopt_all(*opened, false))
    }

    fn write_ini(directory: &Path, more: &str) {
        let (at, id) = (directory.display(), std::process::id());
        let text = format!(
            "[databases]\nd = host=h\n[pgbouncer]\nauth_file = {at}/users\nlogfile = {at}/log\ndriver = epoll\nworkers = 1\n\
             unix_socket_dir = @weir-run-{id}\n{more}"
        );
        std::fs::write(directory.join("weir.ini"), text).unwrap();
    }

    #[test]
    fn a_reload_takes_effect_whole_or_not_at_all() {
        let (mut around, directory) = around("reload");
        write_ini(&directory, "max_client_conn = 7\nlisten_port = 7000\n");
        let good = reread(&mut around);
        let after_good = (around.loaded.settings.max_client_conn, around.loaded.settings.secrets.len());
        std::fs::write(directory.join("users"), "\"u\" \"p\"\n\"v\" broken\n").unwrap();
        write_ini(&directory, "max_client_conn = 8\n");
        let bad = reread(&mut around);
        let after_bad = (around.loaded.settings.max_client_conn, around.loaded.settings.secrets.len());
        // What an editor leaves when it has begun to write, or a disk that is full.
        let mut cut_off = Vec::new();
        for text in ["", "[databases]\n", "[databases]\n[pgbouncer]\n"] {
            std::fs::write(directory.join("users"), "\"u\" \"p\"\n").unwrap();
            std::fs::write(directory.join("weir.ini"), text).unwrap();
            cut_off.push((reread(&mut around).is_err(), around.loaded.settings.databases.len()));
        }
        write_ini(&directory, "");
        std::fs::write(directory.join("users"), "").unwrap();
        let nobody = (reread(&mut around).is_err(), around.loaded.settings.secrets.len());
        std::fs::write(directory.join("users"), "\"u\" \"p\"\n").unwrap();
        write_ini(&directory, &format!("auth_type = hba\nauth_hba_file = {}\n", directory.join("hba").display()));
        let lets_in = ["local all all trust\n", "# nothing\n"].map(|text| {
            std::fs::write(directory.join("hba"), text).unwrap();
            (reread(&mut around).is_err(), around.loaded.settings.hba.records.len())
        });
        around.log.flush();
        let log = std::fs::read_to_string(directory.join("log")).unwrap();
        around.handle.join().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();

        assert_eq!((good, after_good), (Ok(()), (7, 1)));
        assert_eq!(bad.unwrap_err(), format!("\"{}/weir.ini\" has 1 error, see the log", directory.display()));
        assert_eq!(after_bad, after_good);
        assert_eq!(cut_off, [(true, 1); 3]);
        assert_eq!(nobody, (true, 1));
        assert_eq!(lets_in, [(false, 1), (true, 1)]);
        assert!(log.contains("/weir.ini: no user is left in auth_file: was it cut off?\n"), "{log}");
        assert!(log.contains("/weir.ini: no database is left: was the file cut off?\n"), "{log}");
        assert!(log.contains("WARNING listen_port changes at the next start only\n"), "{log}");
        assert!(log.contains("/users:2: expected a secret in double quotes after user \"v\"\n"), "{log}");
    }
}
