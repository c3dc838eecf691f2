//! The system's log: lines as datagrams to its socket, in the form that syslog(3) of the C library has (RFC 3164).
//!
//! Knows nothing of who says what.

use std::fmt::Write as _;
use std::io;
use std::os::unix::net::UnixDatagram;

use jiff::Zoned;
use weir_core::Level;

use crate::sink::Target;

const SOCKET: &str = "/dev/log";

/// `syslog`, `syslog_ident` and `syslog_facility`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyslogOptions {
    pub ident: String,
    pub facility: Facility,
}

/// Whose lines these are, as a number (RFC 3164, 4.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facility(u8);

impl Default for Facility {
    fn default() -> Self {
        Self(Self::NUMBERS[0])
    }
}

impl Facility {
    pub const NAMES: [&str; 12] = [
        "daemon", "user", "auth", "authpriv", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
        "local7",
    ];
    const NUMBERS: [u8; 12] = [3, 1, 4, 10, 16, 17, 18, 19, 20, 21, 22, 23];

    pub fn parse(name: &str) -> Option<Self> {
        let at = Self::NAMES.iter().position(|own| *own == name)?;
        Some(Self(Self::NUMBERS[at]))
    }
}

impl SyslogOptions {
    /// What is in front of a line's text. `stamp`: as [`stamp`] has it.
    pub fn begin_line(&self, out: &mut String, level: Level, stamp: &str, pid: u32) {
        // As PgBouncer's levels are mapped: err, warning, info, debug.
        let severity = match level {
            Level::Error => 3,
            Level::Warning => 4,
            Level::Info => 6,
            Level::Debug => 7,
        };
        // Writing to a string does not fail.
        let _ = write!(out, "<{}>{stamp} {}[{pid}]: ", self.facility.0 * 8 + severity, self.ident);
    }
}

/// The time of a line.
pub fn stamp(now: &Zoned) -> String {
    now.strftime("%b %e %H:%M:%S").to_string()
}

/// The socket, once it could be connected to.
#[derive(Debug)]
pub struct Socket {
    path: &'static str,
    connected: Option<UnixDatagram>,
}

impl Default for Socket {
    fn default() -> Self {
        Self { path: SOCKET, connected: None }
    }
}

impl Socket {
    fn send(&mut self, line: &str) -> io::Result<()> {
        let socket = match &self.connected {
            Some(socket) => socket,
            None => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(self.path)?;
                self.connected.insert(socket)
            }
        };
        socket.send(line.as_bytes()).map(drop)
    }
}

impl Target for Socket {
    /// A datagram for each line. One that does not arrive is tried once more: whoever reads there may have been started anew.
    fn write_lines(&mut self, text: &str) -> io::Result<()> {
        for line in text.lines() {
            if self.send(line).is_err() {
                self.connected = None;
                self.send(line)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_as_the_system_s_log_has_it() {
        let now: Zoned = "2026-05-08T01:02:03[UTC]".parse().unwrap();
        let options = SyslogOptions { ident: "pgbouncer".to_owned(), facility: Facility::parse("local0").unwrap() };
        let mut line = String::new();
        options.begin_line(&mut line, Level::Warning, &stamp(&now), 42);
        assert_eq!(line, "<132>May  8 01:02:03 pgbouncer[42]: ");
        assert_eq!(Facility::parse("kern"), None);
    }

    #[test]
    fn a_reader_that_is_started_anew_gets_the_next_line() {
        let folder = tempfile::tempdir().unwrap();
        let path: &'static str = Box::leak(folder.path().join("log").display().to_string().into_boxed_str());
        let mut socket = Socket { path, connected: None };
        assert!(socket.write_lines("nobody is there\n").is_err());
        let mut heard = |text: &str| {
            let _ = std::fs::remove_file(path);
            let reader = UnixDatagram::bind(path).unwrap();
            reader.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
            socket.write_lines(text).unwrap();
            let mut datagram = [0; 64];
            text.lines()
                .map(|_| {
                    let length = reader.recv(&mut datagram).unwrap();
                    String::from_utf8_lossy(&datagram[..length]).into_owned()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(heard("one\ntwo\n"), ["one", "two"]);
        assert_eq!(heard("three\n"), ["three"]);
    }
}
