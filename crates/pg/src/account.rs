//! As whom PostgreSQL runs: initdb and postgres refuse root, so root hands them to an unprivileged user.
//!
//! Whoever is superuser of that PostgreSQL can do there what this user can, links included: `COPY ... TO PROGRAM`. So root
//! works by name only in folders that are root's alone, all the way up, and leaves to this user what lies in theirs.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::libc;
use nix::unistd::{Uid, User};

use crate::{Error, Result};

const SHELL: &str = "/bin/sh";
/// More than any file that is peeked into has.
const PEEK_BYTES_MAX: u64 = 4096;

/// The user that PostgreSQL's programs run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Account {
    /// Whoever started us.
    Own,
    /// An unprivileged user, since root started us.
    Other { name: String, uid: u32, gid: u32 },
}

impl Account {
    /// `postgres` where it exists, since people expect it in `ps`, else `nobody`.
    pub(crate) fn choose() -> Result<Self> {
        if !Uid::effective().is_root() {
            return Ok(Self::Own);
        }
        ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .map(|user| Self::Other { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw() })
            .ok_or(Error::NoAccount)
    }

    /// A command that will run as this user, from a folder that every user can enter, in a process group of its own:
    /// a Ctrl-C at the terminal is for us, and we stop PostgreSQL in our order.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").process_group(0);
        // Settings for libpq and initdb in the caller's environment are about some other PostgreSQL.
        for name in ["PGDATA", "PGPORT", "PGHOST", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGOPTIONS"] {
            command.env_remove(name);
        }
        if let Self::Other { uid, gid, .. } = self {
            // The standard library also drops the supplementary groups when root sets a uid.
            command.uid(*uid).gid(*gid).env("HOME", "/");
        }
        command
    }

    /// Makes an open file or folder this user's. Never by its name, which may have become a link by now.
    pub(crate) fn own(&self, file: &File, path: &Path) -> Result<()> {
        match self {
            Self::Own => Ok(()),
            Self::Other { uid, gid, .. } => {
                fchown(file, Some(*uid), Some(*gid)).map_err(Error::file("change the owner of", path))
            }
        }
    }

    /// [`Self::own`] of a folder that lies in one of ours.
    pub(crate) fn own_folder(&self, path: &Path) -> Result<()> {
        if *self == Self::Own {
            return Ok(());
        }
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let folder = OpenOptions::new().read(true).custom_flags(flags).open(path);
        self.own(&folder.map_err(Error::file("open the folder", path))?, path)
    }

    /// Writes a file in a folder of this user's, as this user.
    pub(crate) fn write(&self, path: &Path, text: &str) -> Result<()> {
        if *self == Self::Own {
            return fs::write(path, text).map_err(Error::file("write", path));
        }
        let mut child = self.shell("exec cat >\"$1\"", path).stdin(Stdio::piped()).spawn().map_err(no_shell)?;
        let written = child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(text.as_bytes()));
        let output = child.wait_with_output().map_err(no_shell)?;
        said("write", path, &output)?;
        written.map_err(Error::file("write", path))
    }

    /// Reads a file in a folder of this user's, as this user: what it says may go back there.
    pub(crate) fn read(&self, path: &Path) -> Result<String> {
        if *self == Self::Own {
            return fs::read_to_string(path).map_err(Error::file("read", path));
        }
        let output = self.shell("exec cat <\"$1\"", path).stdin(Stdio::null()).output().map_err(no_shell)?;
        said("read", path, &output)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A shell that runs `script` as this user, with `path` as `$1`.
    fn shell(&self, script: &str, path: &Path) -> Command {
        let mut command = self.command(Path::new(SHELL));
        command.args(["-c", script, "sh"]).arg(path).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// [`Self::create_folder`] for a folder in which we work by names, which for root must be root's alone. Answers with its
    /// one name.
    pub(crate) fn create_roots_folder(&self, folder: &Path) -> Result<PathBuf> {
        let find = |path: &Path| fs::canonicalize(path).map_err(Error::file("find", path));
        // A path that is relative has a last ancestor of no name.
        let folder = std::path::absolute(folder).map_err(Error::file("find", folder))?;
        if let Some(there) = folder.ancestors().find(|path| path.exists()).filter(|there| *there != folder) {
            self.check_is_roots(&find(there)?, true)?;
        }
        self.create_folder(&folder)?;
        let folder = find(&folder)?;
        self.check_is_roots(&folder, false)?;
        Ok(folder)
    }

    /// What an ordinary user does in a folder of others is that user's own affair; root is worth a trap.
    fn check_is_roots(&self, folder: &Path, may_be_sticky: bool) -> Result<()> {
        if *self == Self::Own { Ok(()) } else { check_is_ours(folder, may_be_sticky) }
    }

    /// Creates `path` and the parents that are missing. Root's umask may be narrow, so what we create for another user
    /// is opened to be passed through; what was there already is left as it is.
    pub(crate) fn create_folder(&self, path: &Path) -> Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.create_folder(parent)?;
        }
        // Whatever the umask lets others do: nobody else puts files there.
        match fs::DirBuilder::new().mode(0o755).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => {
                return Ok(());
            }
            Err(error) => return Err(Error::file("create the folder", path)(error)),
        }
        match self {
            Self::Own => Ok(()),
            Self::Other { .. } => {
                fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(Error::file("open the folder", path))
            }
        }
    }

    /// Asks the kernel, as that user, rather than reading modes: access lists count too.
    pub(crate) fn check_can_enter(&self, path: &Path) -> Result<()> {
        let Self::Other { name, .. } = self else {
            return Ok(());
        };
        let entered = self.shell("cd -- \"$1\"", path).stdin(Stdio::null()).output().map_err(no_shell)?;
        if entered.status.success() {
            return Ok(());
        }
        Err(Error::Unreachable { user: name.clone(), path: path.to_owned() })
    }
}

/// Whom root may become, to do all the rest as an ordinary user.
#[derive(Debug)]
pub struct Unprivileged {
    account: Account,
    name: String,
}

impl Unprivileged {
    /// The user as whom root starts PostgreSQL; `None` for who is not root.
    pub fn instead_of_root() -> Result<Option<Self>> {
        let account = Account::choose()?;
        Ok(match &account {
            Account::Own => None,
            Account::Other { name, .. } => Some(Self { name: name.clone(), account }),
        })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates `folder` as this user's, or makes it so where it is root's and holds nothing but a cluster and the files of
    /// `names`. Answers with its one name.
    pub fn give_folder(&self, folder: &Path, names: &[&str]) -> Result<PathBuf> {
        let Account::Other { uid, .. } = &self.account else { return Ok(folder.to_owned()) };
        if fs::metadata(folder).is_ok_and(|metadata| metadata.uid() == *uid) {
            return fs::canonicalize(folder).map_err(Error::file("find", folder));
        }
        let folder = self.account.create_roots_folder(folder)?;
        self.account.check_can_enter(&folder)?;
        let look = || Error::file("look into", &folder);
        let entries = fs::read_dir(&folder).map_err(look())?.collect::<std::io::Result<Vec<_>>>().map_err(look())?;
        let is_known = |name: &str| names.contains(&name) || name.starts_with("postgresql");
        if let Some(other) = entries.iter().find(|entry| !entry.file_name().to_str().is_some_and(is_known)) {
            return Err(Error::HoldsMore { folder: folder.clone(), other: other.path() });
        }
        for entry in entries {
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
            let file = OpenOptions::new().read(true).custom_flags(flags).open(entry.path());
            if let Some(file) = file.ok().filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file())) {
                self.account.own(&file, &entry.path())?;
            }
        }
        self.account.own_folder(&folder)?;
        Ok(folder)
    }
}

fn no_shell(source: std::io::Error) -> Error {
    Error::Program { program: SHELL.into(), source }
}

/// What a shell could not do, in its words.
fn said(action: &'static str, path: &Path, output: &std::process::Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if words.contains("No space left on device") {
        return Err(Error::NoSpace(path.to_owned()));
    }
    Err(Error::file(action, path)(std::io::Error::other(words)))
}

/// Whether nobody but us and root can change what names in `folder` mean: not there, and not in a folder above it. `folder`
/// has no links in it. In a sticky folder such as /tmp, what is ours can only be renamed by us.
pub(crate) fn check_is_ours(folder: &Path, mut may_be_sticky: bool) -> Result<()> {
    let us = Uid::effective();
    // Above a user's own folders, whoever is in a group that may write was put there by root: /usr/local is `staff`'s.
    let mut writable = libc::S_IWGRP | libc::S_IWOTH;
    for path in folder.ancestors() {
        let metadata = fs::symlink_metadata(path).map_err(Error::file("look at", path))?;
        let is_safe = metadata.mode() & writable == 0 || (may_be_sticky && metadata.mode() & libc::S_ISVTX != 0);
        if !is_safe || (metadata.uid() != us.as_raw() && metadata.uid() != 0) {
            return Err(Error::Shared { folder: folder.to_owned(), path: path.to_owned() });
        }
        may_be_sticky = true;
        if !us.is_root() {
            writable = libc::S_IWOTH;
        }
    }
    Ok(())
}

/// The beginning of a file in a folder of somebody else's; nothing where it is no plain file. Only for what is parsed and
/// never shown: the file may be any that a link points to.
pub(crate) fn peek(path: &Path) -> Option<String> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().ok().filter(Metadata::is_file)?;
    let mut bytes = Vec::new();
    file.take(PEEK_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_account_is_never_root() {
        let id = Account::choose().unwrap().command(Path::new("/usr/bin/id")).arg("-u").output().unwrap();
        assert_ne!(String::from_utf8(id.stdout).unwrap().trim(), "0");
    }

    #[test]
    fn closed_folder_is_said() {
        let account = Account::choose().unwrap();
        if account == Account::Own {
            return;
        }
        let closed = tempfile::tempdir().unwrap();
        fs::set_permissions(closed.path(), Permissions::from_mode(0o700)).unwrap();
        let error = account.check_can_enter(closed.path()).unwrap_err().to_string();
        assert!(error.contains("who cannot enter"), "{error}");
        let open = closed.path().join("a/b");
        account.create_folder(&open).unwrap();
        fs::set_permissions(closed.path(), Permissions::from_mode(0o755)).unwrap();
        account.check_can_enter(&open).unwrap();
    }

    #[test]
    fn root_gives_away_what_is_a_cluster_s_and_nothing_else() {
        let Some(user) = Unprivileged::instead_of_root().unwrap() else { return };
        let outer = tempfile::tempdir().unwrap();
        fs::set_permissions(outer.path(), Permissions::from_mode(0o755)).unwrap();
        let owner = |path: &Path| fs::symlink_metadata(path).unwrap().uid();

        let mine = outer.path().join("mine");
        fs::create_dir(&mine).unwrap();
        fs::write(mine.join("precious"), "").unwrap();
        let refused = user.give_folder(&mine, &["log"]);
        assert!(matches!(refused, Err(Error::HoldsMore { .. })), "{refused:?}");
        assert_eq!((owner(&mine), owner(&mine.join("precious"))), (0, 0));

        let (kept, precious) = (outer.path().join("kept"), mine.join("precious"));
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("log"), "").unwrap();
        std::os::unix::fs::symlink(&precious, kept.join("password")).unwrap();
        assert_eq!(user.give_folder(&kept, &["log", "password"]).unwrap(), kept);
        assert_ne!((owner(&kept), owner(&kept.join("log"))), (0, 0));
        assert_eq!(owner(&precious), 0);

        let new = outer.path().join("a/new");
        assert_eq!(user.give_folder(&new, &[]).unwrap(), new);
        assert_eq!(owner(&new), owner(&kept));
        assert_eq!(owner(&outer.path().join("a")), 0);
    }
}
