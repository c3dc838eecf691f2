//! What a process does to itself before it works: go to the background, become another user, hold a pidfile, raise its
//! limit of open files.
//!
//! Must run before there are threads. Does not exit the process: whoever called decides.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::kill;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{self, ForkResult, Pid, User};
use rustix::fs::FlockOperation;

/// What we make is for us, and for our group to read.
const UMASK: libc::mode_t = 0o027;
/// More than any process id has.
const PIDFILE_BYTES_MAX: u64 = 64;

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
    close_what_was_inherited().map_err(|error| format!("could not close inherited files: {error}"))?;
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
    // Whatever the shell lets others do. The directory stays: paths in the configuration may be relative, at a reload too.
    umask(Mode::from_bits_truncate(UMASK));
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

/// Files that whoever started us had open: a pipe among them would never end, and a socket never close.
fn close_what_was_inherited() -> io::Result<()> {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > libc::STDERR_FILENO)
        .collect();
    for fd in open {
        // SAFETY: there is one thread, and nothing of ours is open yet. What listed the files is closed already.
        unsafe { libc::close(fd) };
    }
    Ok(())
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
    file: File,
}

impl Pidfile {
    pub fn create(path: &Path) -> Result<Self, String> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            format!("could not {what} pidfile \"{}\": {error}", path.display())
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o644);
        // Neither through a link nor into a pipe.
        let opened = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
        let mut file = opened.map_err(|error| failed("open", &error))?;
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let owner = owner(&mut file).ok_or_else(|| {
            let path = path.display();
            format!("pidfile \"{path}\" holds something else than a process id: it is not written over")
        })?;
        if !locked || owner.is_some_and(runs_besides_us) {
            return Err(format!(
                "pidfile \"{}\" exists and its process is running: is another instance up?",
                path.display()
            ));
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(|error| failed("empty", &error))?;
        writeln!(file, "{}", std::process::id()).map_err(|error| failed("write", &error))?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// Whether the name still stands for our file: somebody may have removed it, and another instance made its own.
    fn is_ours(&self) -> bool {
        let identity = |metadata: io::Result<Metadata>| metadata.ok().map(|file| (file.dev(), file.ino()));
        let ours = identity(self.file.metadata());
        ours.is_some() && ours == identity(std::fs::symlink_metadata(&self.path))
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        if self.is_ours() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The process id in a pidfile, if there is one; `None` where it is no pidfile at all.
fn owner(file: &mut File) -> Option<Option<i32>> {
    file.metadata().ok().filter(Metadata::is_file)?;
    let mut text = String::new();
    file.take(PIDFILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    match text.trim() {
        "" => Some(None),
        number => number.parse::<i32>().ok().map(|pid| Some(pid).filter(|pid| *pid > 0)),
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
        for stale in ["", "\n", "-1", "2147483647\n"] {
            std::fs::write(&path, stale).unwrap();
            assert!(Pidfile::create(&path).is_ok(), "{stale:?}");
        }
        // Process 1 always runs, and it holds no lock on our file.
        std::fs::write(&path, "1").unwrap();
        assert!(Pidfile::create(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_pidfile_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (precious, link) = (directory.path().join("users.txt"), directory.path().join("link"));
        for text in ["precious text", "\"u\" \"p\"\n", &"1".repeat(100)] {
            std::fs::write(&precious, text).unwrap();
            let error = Pidfile::create(&precious).unwrap_err();
            assert!(error.ends_with("holds something else than a process id: it is not written over"), "{error}");
            assert_eq!(std::fs::read_to_string(&precious).unwrap(), text);
        }
        std::fs::write(&precious, "").unwrap();
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        assert!(Pidfile::create(&link).unwrap_err().starts_with("could not open pidfile"));
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "");
        assert!(Pidfile::create(directory.path()).is_err());
        assert!(Pidfile::create(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn another_s_pidfile_is_not_removed() {
        let path = path("another");
        let held = Pidfile::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another's").unwrap();
        drop(held);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another's");
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
