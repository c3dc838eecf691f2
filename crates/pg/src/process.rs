//! Processes by their id: alive, children, signals. Knows `/proc`, not PostgreSQL.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// One process, told by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// A process that is gone is no error: that is what every signal here is after.
    pub(crate) fn signal(self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.0) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Runs, or at least has not been seen out: a zombie has released its memory, ports and locks.
    pub(crate) fn is_alive(self) -> bool {
        self.state_and_parent().is_some_and(|(state, _)| state != "Z" && state != "X")
    }

    /// The program it runs, by its command line.
    pub(crate) fn arguments(self) -> Vec<String> {
        let bytes = fs::read(self.folder().join("cmdline")).unwrap_or_default();
        bytes.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
    }

    pub(crate) fn children(self) -> Vec<Self> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Self))
            .filter(|process| process.state_and_parent().is_some_and(|(_, parent)| parent == self.0))
            .collect()
    }

    /// From `pid (name) state ppid ...`; the name may hold blanks and parentheses, so from its last one on.
    fn state_and_parent(self) -> Option<(String, u32)> {
        let stat = fs::read_to_string(self.folder().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
    }

    fn folder(self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn child_is_seen_until_it_is_killed() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let process = Process(child.id());
        assert!(Process(std::process::id()).children().contains(&process));
        assert!(process.is_alive());
        process.signal(Signal::SIGKILL);
        child.wait().unwrap();
        assert!(!process.is_alive());
        assert!(!Process(std::process::id()).children().contains(&process));
    }
}
