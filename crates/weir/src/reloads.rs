//! Reads all files again, for RELOAD, or what one setting more names, for SET. Knows nothing of what then changes.
//!
//! Files may take any time: those of a file server that is gone, or a pipe. They have a thread of their own, so that nothing else waits
//! for them, the end of the process least of all.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;

use weir_core::contract::event::Change;

use crate::cli;
use crate::config::{self, Loaded, Problem};
use crate::driver::{Asker, Tls};
use crate::log::{Log, LogOptions, Reopened};
use crate::run::without_severity;
use crate::start;

/// What the files say, or why they cannot be used.
type Read = Result<Found, String>;

#[derive(Debug)]
pub enum Found {
    All(Box<Opened>),
    /// SETs of what TLS is made from do not fit what else is set: why.
    Aside(Vec<Change>, String),
}

/// What the files say, and what stands behind them.
#[derive(Debug)]
pub struct Opened {
    pub loaded: Loaded,
    pub tls: Tls,
    pub log: Reopened,
}

/// What is asked for, in its order, and the files that are being read.
#[derive(Debug, Default)]
pub struct Reloads {
    waiting: VecDeque<Job>,
    reading: Option<(Job, mpsc::Receiver<Read>)>,
}

#[derive(Debug)]
pub struct Job {
    /// One for a SET.
    pub askers: Vec<Asker>,
    pub change: Option<Change>,
}

impl Reloads {
    pub fn asked(&mut self, asker: Asker, change: Option<Change>) {
        match self.waiting.back_mut().filter(|last| last.change.is_none() && change.is_none()) {
            // Who asks since the reading began asks for another: a file may have changed since then.
            Some(last) => last.askers.push(asker),
            None => self.waiting.push_back(Job { askers: vec![asker], change }),
        }
    }

    /// Does what is asked for next, once the files are not being read already.
    /// `verbose`: what the command line asks for.
    pub fn begin(&mut self, now: &Loaded, log: &Arc<Log>, verbose: u8) {
        if self.reading.is_some() {
            return;
        }
        let Some(job) = self.waiting.pop_front() else { return };
        let (change, now, log) = (job.change.clone(), now.clone(), Arc::clone(log));
        let (tell, result) = mpsc::sync_channel(1);
        self.reading = Some((job, result));
        let failed = tell.clone();
        let read = move || {
            // Nobody listens any more where the process ends.
            let _ = tell.send(match change {
                Some(change) => with_change(&now, &change, &log, verbose),
                None => read_again(&now, &log, verbose).map(Found::All),
            });
        };
        if let Err(error) = thread::Builder::new().name("weir-reload".to_owned()).spawn(read) {
            let _ = failed.send(Err(format!("cannot start a thread: {error}")));
        }
    }

    pub fn are_read(&self) -> bool {
        self.reading.is_some()
    }

    /// What was read, and for whom, once it is.
    pub fn read(&mut self) -> Option<(Job, Read)> {
        let read = match self.reading.as_ref()?.1.try_recv() {
            Ok(read) => read,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err("a bug: the thread that reads the files has ended".to_owned()),
        };
        self.reading.take().map(|(job, _)| (job, read))
    }
}

/// All or nothing, too: whatever is wrong is in the log.
pub fn read_again(now: &Loaded, log: &Log, verbose: u8) -> Result<Box<Opened>, String> {
    let path = &now.program.config_file;
    let loaded = config::reload(path, &now.settings).map_err(|problems| {
        for problem in problems.errors() {
            // In PgBouncer's words (`sbuf_tls_setup`, src/sbuf.c at 1.25.2).
            let what = if problem.is_of_tls() { "TLS setup failed: " } else { "" };
            log.error(&format!("{what}{}", without_severity(problem)));
        }
        format!("\"{path}\" has {}, see the log", cli::counted(problems.errors().count(), "error"))
    })?;
    opened(loaded, log, verbose)
}

/// Whoever asked is told what is wrong, in one line.
fn with_change(now: &Loaded, change: &Change, log: &Log, verbose: u8) -> Read {
    let said = |problem: &Problem| match &*problem.place.file {
        config::SET => problem.text.clone(),
        _ => without_severity(problem),
    };
    // Those that are not in force yet stay aside.
    let with = |changes: &[Change], aside: &[Change]| {
        let loaded = config::set(now, changes);
        let loaded = loaded.map_err(|problems| problems.errors().map(said).collect::<Vec<_>>().join("; "))?;
        let mut opened = opened(loaded, log, verbose)?;
        opened.loaded.aside = aside.to_vec();
        Ok(Found::All(opened))
    };
    let alone = std::slice::from_ref(change);
    let aside: Vec<_> = now.aside.iter().filter(|aside| aside.key != change.key).cloned().collect();
    if !config::may_wait(change) {
        return with(alone, &aside);
    }
    // As with PgBouncer. A key comes before its certificate, or behind it, since SET takes one at a time; what waits towards servers keeps nothing
    // towards clients waiting.
    let side = |change: &Change| change.key.split('_').next().map(str::to_owned);
    let (own, others): (Vec<_>, Vec<_>) = aside.iter().cloned().partition(|aside| side(aside) == side(change));
    let all = [&aside, alone].concat();
    let found =
        with(&all, &[]).or_else(|_: String| with(&[&own, alone].concat(), &others)).or_else(|_| with(alone, &aside));
    found.or_else(|why| Ok(Found::Aside(all, why)))
}

fn opened(loaded: Loaded, log: &Log, verbose: u8) -> Result<Box<Opened>, String> {
    start::authorities(&loaded.settings)?;
    let tls = start::tls(&loaded.program)?;
    let log = log.reopen(LogOptions::of(&loaded.program, false, verbose))?;
    Ok(Box::new(Opened { loaded, tls, log }))
}
