//! What the workers say to the program around them, through one queue that log lines cannot fill without end.
//! Knows nothing of what becomes of it.
//!
//! A line that is said while nobody waits for one costs no system call: whoever hears may let lines gather.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::{Duration, SystemTime};

use weir_core::contract::Level;
use weir_core::contract::event::Change;
use weir_core::{ClientId, WorkerId};

/// Lines that wait to be written. More come only where the log is slower than those who fill it, and are lost, since clients
/// decide how many there are and nobody may wait for a disk.
const LINES_MAX: usize = 10_000;

/// What the workers have to say.
#[derive(Debug)]
pub enum DriverEvent {
    Log(Line),
    /// Read the files again, or change that setting, then [`Handle::settings`](super::Handle::settings), then
    /// [`Handle::reload_done`](super::Handle::reload_done).
    Reload {
        asker: Asker,
        change: Option<Change>,
    },
    /// A shutdown waits for clients or servers; nobody new comes in.
    Drains,
    /// All is done: [`Handle::join`](super::Handle::join) and end.
    Exit,
    /// A worker has ended by a fault of its own. The rest cannot go on without it: [`Handle::join`](super::Handle::join)
    /// and end.
    Failed {
        text: String,
    },
}

/// Who is told of the end of a reload: a worker, and the console that asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    pub worker: WorkerId,
    pub client: Option<ClientId>,
}

/// One line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub at: SystemTime,
    pub level: Level,
    pub text: String,
}

impl Line {
    pub fn now(level: Level, text: String) -> Self {
        Self { at: SystemTime::now(), level, text }
    }
}

/// A worker's end of the queue.
#[derive(Debug)]
pub struct Speaker {
    queue: mpsc::Sender<DriverEvent>,
    lines: Arc<AtomicUsize>,
    /// Lines of this worker that were lost since the last one that was not.
    lost: u64,
}

/// The program's end.
#[derive(Debug)]
pub struct Listener {
    queue: mpsc::Receiver<DriverEvent>,
    lines: Arc<AtomicUsize>,
}

pub fn queue() -> (Speaker, Listener) {
    let (sender, receiver) = mpsc::channel();
    let lines = Arc::<AtomicUsize>::default();
    (Speaker { queue: sender, lines: lines.clone(), lost: 0 }, Listener { queue: receiver, lines })
}

impl Clone for Speaker {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), lines: self.lines.clone(), lost: 0 }
    }
}

impl Speaker {
    /// Says something other than a line. Nobody listens any more when the program is ending.
    pub fn say(&self, event: DriverEvent) {
        let _ = self.queue.send(event);
    }

    /// Says a line, unless too many wait.
    pub fn log(&mut self, level: Level, text: String) {
        if self.lines.load(Ordering::Relaxed) >= LINES_MAX {
            self.lost += 1;
            return;
        }
        if self.lost > 0 {
            let text = format!("the log is written too slowly: {} lines are missing here", self.lost);
            self.lost = 0;
            self.put(Line::now(Level::Warning, text));
        }
        self.put(Line::now(level, text));
    }

    fn put(&self, line: Line) {
        self.lines.fetch_add(1, Ordering::Relaxed);
        self.say(DriverEvent::Log(line));
    }
}

impl Listener {
    pub fn recv_timeout(&self, timeout: Duration) -> Result<DriverEvent, RecvTimeoutError> {
        self.queue.recv_timeout(timeout).inspect(|event| self.heard(event))
    }

    pub fn try_recv(&self) -> Result<DriverEvent, TryRecvError> {
        self.queue.try_recv().inspect(|event| self.heard(event))
    }

    fn heard(&self, event: &DriverEvent) {
        if matches!(event, DriverEvent::Log(_)) {
            self.lines.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(listener: &Listener) -> Vec<String> {
        std::iter::from_fn(|| listener.try_recv().ok())
            .filter_map(|event| if let DriverEvent::Log(line) = event { Some(line.text) } else { None })
            .collect()
    }

    #[test]
    fn lines_that_nobody_writes_are_counted_not_kept() {
        let (mut speaker, listener) = queue();
        for number in 0..LINES_MAX + 7 {
            speaker.log(Level::Info, number.to_string());
        }
        speaker.say(DriverEvent::Exit);
        assert_eq!(lines(&listener).len(), LINES_MAX);
        speaker.log(Level::Info, "last".to_owned());
        assert_eq!(lines(&listener), ["the log is written too slowly: 7 lines are missing here", "last"]);
        speaker.log(Level::Info, "again".to_owned());
        assert_eq!(lines(&listener), ["again"]);
    }

    #[test]
    fn what_is_no_line_is_always_heard() {
        let (mut speaker, listener) = queue();
        (0..=LINES_MAX).for_each(|_| speaker.log(Level::Info, String::new()));
        speaker.say(DriverEvent::Exit);
        assert!(std::iter::from_fn(|| listener.try_recv().ok()).any(|event| matches!(event, DriverEvent::Exit)));
    }
}
