//! What a process does to itself before it works: go to the background, become another user, hold a pidfile, raise its
//! limit of open files.
//!
//! Must run before there are threads. Does not exit the process: whoever called decides.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::kill;
use nix::unistd::{self, ForkResult, Pid, User};
use rustix::fs::FlockOperation;

/// Whom a call of [`detach`] returns to: it returns three times.
#[derive(Debug)]
pub enum Side {
    /// The process that was started: the result of the background process's start.
    Foreground(Result<(), String>),
    /// A process in between, which has nothing to do but to end.
    Between,
    /// The process in the background.
    Background(Notifier),
}

/// Tells the process in the foreground how the start went.
#[derive(Debug)]
pub struct Notifier(File);

impl Notifier {
    const READY: &'static str = "ready\n";

    pub fn ready(mut self) {
        // Nobody may be left to hear it: that is no reason to stop.
        let _ = self.0.write_all(Self::READY.as_bytes());
    }

    pub fn failed(mut self, reason: &str) {
        let _ = self.0.write_all(reason.as_bytes());
    }
}

/// Goes to the background: forks twice, so that the process leads no session and can never get a terminal.
pub fn detach() -> Result<Side, String> {
    let (reader, writer) = io::pipe().map_err(|error| format!("could not open a pipe: {error}"))?;
    if let ForkResult::Parent { child } = fork()? {
        drop(writer);
        let _ = nix::sys::wait::waitpid(child, None);
        return Ok(Side::Foreground(outcome(reader)));
    }
    drop(reader);
    unistd::setsid().map_err(|error| format!("setsid failed: {}", error.desc()))?;
    if let ForkResult::Parent { .. } = fork()? {
        return Ok(Side::Between);
    }
    silence().map_err(|error| format!("could not open /dev/null: {error}"))?;
    Ok(Side::Background(Notifier(File::from(OwnedFd::from(writer)))))
}

fn fork() -> Result<ForkResult, String> {
    // SAFETY: called before any thread is started, so the child may do whatever the parent may.
    unsafe { unistd::fork() }.map_err(|error| format!("fork failed: {}", error.desc()))
}

/// Waits until the background process says something or ends.
fn outcome(mut reader: io::PipeReader) -> Result<(), String> {
    let mut text = String::new();
    let read = reader.read_to_string(&mut text);
    match (read, text.as_str()) {
        (Ok(_), Notifier::READY) => Ok(()),
        (Ok(_), "") => Err("the process in the background ended while starting: see the log file".to_owned()),
        (Ok(_), reason) => Err(reason.to_owned()),
        (Err(error), _) => Err(format!("could not hear from the process in the background: {error}")),
    }
}

/// Standard input, output and error become /dev/null.
fn silence() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    unistd::dup2_stdin(&null)?;
    unistd::dup2_stdout(&null)?;
    unistd::dup2_stderr(&null)?;
    Ok(())
}

/// Becomes another user for good, groups included.
pub fn become_user(name: &str) -> Result<(), String> {
    let failed = |what: &str, error: Errno| format!("could not become user \"{name}\": {what}: {}", error.desc());
    let user = User::from_name(name)
        .map_err(|error| failed("look-up", error))?
        .ok_or_else(|| format!("user \"{name}\" is not known to this system"))?;
    if user.uid == unistd::geteuid() && user.uid == unistd::getuid() {
        return Ok(());
    }
    let c_name = std::ffi::CString::new(name).map_err(|_| format!("user \"{name}\" is not known to this system"))?;
    unistd::initgroups(&c_name, user.gid).map_err(|error| failed("initgroups", error))?;
    unistd::setgid(user.gid).map_err(|error| failed("setgid", error))?;
    unistd::setuid(user.uid).map_err(|error| failed("setuid", error))?;
    if unistd::setuid(0.into()).is_ok() && !user.uid.is_root() {
        return Err(format!("could not become user \"{name}\": the way back to root is still open"));
    }
    Ok(())
}

pub fn is_root() -> bool {
    unistd::getuid().is_root() || unistd::geteuid().is_root()
}

/// Raises the limit of open files to what the system allows this process, and tells it.
pub fn raise_open_files() -> Result<u64, String> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(|error| format!("could not read the limit of open files: {}", error.desc()))?;
    if soft >= hard {
        return Ok(soft);
    }
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => Ok(hard),
        Err(_) => Ok(soft),
    }
}

/// A file with our process id, locked while we run and removed at the end.
#[derive(Debug)]
pub struct Pidfile {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

impl Pidfile {
    pub fn create(path: &Path) -> Result<Self, String> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            format!("could not {what} pidfile \"{}\": {error}", path.display())
        };
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened.map_err(|error| failed("open", &error))?;
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let mut text = String::new();
        // What is not a number is nobody's process id, and is overwritten.
        let _ = file.read_to_string(&mut text);
        let owner = text.trim().parse::<i32>().ok().filter(|pid| *pid > 0);
        if !locked || owner.is_some_and(runs_besides_us) {
            return Err(format!(
                "pidfile \"{}\" exists and its process is running: is another instance up?",
                path.display()
            ));
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(|error| failed("empty", &error))?;
        writeln!(file, "{}", std::process::id()).map_err(|error| failed("write", &error))?;
        Ok(Self { path: path.to_path_buf(), _file: file })
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Another program than ours may have written the file without a lock, PgBouncer for one.
fn runs_besides_us(pid: i32) -> bool {
    let ours = u32::try_from(pid).is_ok_and(|pid| pid == std::process::id());
    !ours && kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("weir-{name}-{}.pid", std::process::id()))
    }

    #[test]
    fn a_pidfile_is_held_once_and_goes_away() {
        let path = path("once");
        let held = Pidfile::create(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        let error = Pidfile::create(&path).unwrap_err();
        assert_eq!(
            error,
            format!("pidfile \"{}\" exists and its process is running: is another instance up?", path.display())
        );
        drop(held);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_pidfile_is_taken_over_and_a_live_one_is_not() {
        let path = path("stale");
        for stale in ["", "nonsense", "-1", "2147483647"] {
            std::fs::write(&path, stale).unwrap();
            assert!(Pidfile::create(&path).is_ok(), "{stale:?}");
        }
        // Process 1 always runs, and it holds no lock on our file.
        std::fs::write(&path, "1").unwrap();
        assert!(Pidfile::create(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_unknown_user_is_named() {
        assert_eq!(
            become_user("no-such-user-here").unwrap_err(),
            "user \"no-such-user-here\" is not known to this system"
        );
    }
}
