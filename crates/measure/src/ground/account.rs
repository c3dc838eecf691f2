//! Whose processes the lab starts: ours, or an unprivileged user's when we are root.
//!
//! initdb, postgres and PgBouncer refuse to run as root. Does not know what the processes do.
//!
//! Whoever reaches such a PostgreSQL may run programs as that user, links in its folders included. So the folder that root works
//! in stays root's, and what lies in a folder of that user's is written by that user.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::libc;
use nix::unistd::{User, geteuid};
use tempfile::TempDir;

const UNPRIVILEGED_USERS: [&str; 2] = ["postgres", "nobody"];

pub struct Account {
    /// `None`: we are not root, and children run as we do.
    instead_of_root: Option<User>,
}

impl Account {
    pub fn find() -> Result<Account> {
        if !geteuid().is_root() {
            return Ok(Account { instead_of_root: None });
        }
        for name in UNPRIVILEGED_USERS {
            if let Some(user) = User::from_name(name).with_context(|| format!("cannot look up user {name}"))? {
                return Ok(Account { instead_of_root: Some(user) });
            }
        }
        bail!("PostgreSQL does not run as root, and neither user {} exists here", UNPRIVILEGED_USERS.join(" nor "))
    }

    /// A folder for a run's files. This user can look into it and read what it is given, and no more.
    pub fn directory(&self, prefix: &str) -> Result<TempDir> {
        let mode = if self.instead_of_root.is_some() { 0o755 } else { 0o700 };
        let directory = tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(mode)).tempdir();
        directory.context("no temporary directory")
    }

    /// A folder in that one for this user to write in.
    pub fn create_folder(&self, path: &Path) -> Result<()> {
        fs::create_dir(path).with_context(|| format!("cannot create {}", path.display()))?;
        self.give(path)
    }

    /// Makes a file or folder of [`Self::directory`] this user's.
    pub fn give(&self, path: &Path) -> Result<()> {
        let Some(user) = &self.instead_of_root else { return Ok(()) };
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
        file.and_then(|file| fchown(file, Some(user.uid.as_raw()), Some(user.gid.as_raw())))
            .with_context(|| format!("cannot give {} to user {}", path.display(), user.name))
    }

    /// Writes a file in a folder of this user's, as this user.
    pub fn write(&self, path: &Path, text: &str) -> Result<()> {
        let writing = || format!("cannot write {}", path.display());
        let mut command = self.command("/bin/sh", Path::new("/"));
        command.args(["-c", "exec cat >\"$1\"", "sh"]).arg(path).stdin(Stdio::piped());
        let mut child = command.spawn().with_context(writing)?;
        let written = child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(text.as_bytes()));
        let status = child.wait().with_context(writing)?;
        ensure!(status.success(), writing());
        written.with_context(writing)
    }

    /// A program that this account can execute: root's may lie where the unprivileged user cannot look.
    pub fn reachable(&self, program: &Path, directory: &Path) -> Result<PathBuf> {
        if self.instead_of_root.is_none() {
            return Ok(program.to_path_buf());
        }
        let name = program.file_name().with_context(|| format!("{} names no program", program.display()))?;
        let copy = directory.join(name);
        if copy.exists() {
            // One program may run as several peers; a running one cannot be written over.
            return Ok(copy);
        }
        std::fs::copy(program, &copy)
            .with_context(|| format!("cannot copy {} to {}", program.display(), copy.display()))?;
        self.give(&copy)?;
        Ok(copy)
    }

    /// A command in `directory` and in its own process group: Ctrl-C reaches the lab, which stops the rest in order.
    pub fn command(&self, program: impl AsRef<OsStr>, directory: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(directory).env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
        if let Some(user) = &self.instead_of_root {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).env("HOME", directory).env("USER", &user.name);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    /// Root's files stay root's, whatever links that user plants where it may write.
    #[test]
    fn links_lead_root_nowhere() {
        let account = Account::find().unwrap();
        let directory = account.directory("weir-lab-").unwrap();
        let (victim, folder) = (directory.path().join("victim"), directory.path().join("data"));
        fs::write(&victim, "root's").unwrap();
        fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
        account.create_folder(&folder).unwrap();
        account.write(&folder.join("plain"), "text").unwrap();
        assert_eq!(fs::read_to_string(folder.join("plain")).unwrap(), "text");
        if account.instead_of_root.is_none() {
            return;
        }
        assert_ne!(fs::metadata(folder.join("plain")).unwrap().uid(), 0);
        symlink(&victim, folder.join("link")).unwrap();
        assert!(account.write(&folder.join("link"), "theirs").is_err());
        assert!(account.give(&folder.join("link")).is_err());
        assert_eq!(
            (fs::read_to_string(&victim).unwrap().as_str(), fs::metadata(&victim).unwrap().uid()),
            ("root's", 0)
        );
        let own = fs::metadata(directory.path()).unwrap();
        assert_eq!((own.uid(), own.mode() & 0o777), (0, 0o755));
        let made = account.command("/bin/mkdir", Path::new("/")).arg(directory.path().join("log")).output().unwrap();
        assert!(!made.status.success(), "the folder that root works in is not that user's");
    }
}
