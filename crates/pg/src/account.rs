//! As whom PostgreSQL runs: initdb and postgres refuse root, so root hands them to an unprivileged user.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User};

use crate::{Error, Result};

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

    /// Makes `path` this user's.
    pub(crate) fn own(&self, path: &Path) -> Result<()> {
        match self {
            Self::Own => Ok(()),
            Self::Other { uid, gid, .. } => {
                chown(path, Some(*uid), Some(*gid)).map_err(Error::file("change the owner of", path))
            }
        }
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
        match fs::create_dir(path) {
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
        let entered = self
            .command(Path::new("/bin/sh"))
            .args(["-c", "cd -- \"$1\"", "sh"])
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|source| Error::Program { program: "/bin/sh".into(), source })?;
        if entered.success() {
            return Ok(());
        }
        Err(Error::Unreachable { user: name.clone(), path: path.to_owned() })
    }
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
}
