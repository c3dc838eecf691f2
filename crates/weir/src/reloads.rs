//! Reads all files again, for RELOAD. Knows nothing of what then changes.
//!
//! Files may take any time: those of a file server that is gone, or a pipe. They have a thread of their own, so that nothing else waits
//! for them, the end of the process least of all.

use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;

use weir_core::WorkerId;
use weir_core::settings::Settings;

use crate::cli;
use crate::config::{self, Loaded};
use crate::driver::Tls;
use crate::log::Log;
use crate::run::without_severity;
use crate::start;

/// What the files say, or why they cannot be used.
type Read = Result<(Loaded, Tls), String>;

/// Whoever asked, and the files that are being read.
#[derive(Debug, Default)]
pub struct Reloads {
    /// Who asked since the reading began: a file may have changed since then.
    askers: Vec<WorkerId>,
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    askers: Vec<WorkerId>,
    result: mpsc::Receiver<Read>,
}

impl Reloads {
    pub fn asked(&mut self, worker: WorkerId, path: &str, settings: &Arc<Settings>, log: &Arc<Log>) {
        self.askers.push(worker);
        self.begin(path, settings, log);
    }

    /// Reads for those who have asked, once the files are not being read already.
    pub fn begin(&mut self, path: &str, settings: &Arc<Settings>, log: &Arc<Log>) {
        if self.reading.is_some() || self.askers.is_empty() {
            return;
        }
        let (path, settings, log) = (path.to_owned(), Arc::clone(settings), Arc::clone(log));
        let (tell, result) = mpsc::sync_channel(1);
        self.reading = Some(Reading { askers: std::mem::take(&mut self.askers), result });
        let failed = tell.clone();
        let read = move || {
            // Nobody listens any more where the process ends.
            let _ = tell.send(read_again(&path, &settings, &log));
        };
        if let Err(error) = thread::Builder::new().name("weir-reload".to_owned()).spawn(read) {
            let _ = failed.send(Err(format!("cannot start a thread: {error}")));
        }
    }

    pub fn are_read(&self) -> bool {
        self.reading.is_some()
    }

    /// What was read, and for whom, once it is.
    pub fn read(&mut self) -> Option<(Vec<WorkerId>, Read)> {
        let read = match self.reading.as_ref()?.result.try_recv() {
            Ok(read) => read,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err("a bug: the thread that reads the files has ended".to_owned()),
        };
        self.reading.take().map(|reading| (reading.askers, read))
    }
}

/// All or nothing, too: whatever is wrong is in the log.
pub fn read_again(path: &str, old: &Settings, log: &Log) -> Read {
    let loaded = config::reload(path, old).map_err(|problems| {
        for problem in problems.errors() {
            log.error(&without_severity(problem));
        }
        format!("\"{path}\" has {}, see the log", cli::counted(problems.errors().count(), "error"))
    })?;
    let tls = start::tls(&loaded.program)?;
    Ok((loaded, tls))
}
