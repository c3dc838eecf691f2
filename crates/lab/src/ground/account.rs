//! Whose processes the lab starts: ours, or an unprivileged user's when we are root.
//!
//! initdb, postgres and PgBouncer refuse to run as root. Does not know what the processes do.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::unistd::{User, geteuid};

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

    pub fn give(&self, path: &Path) -> Result<()> {
        let Some(user) = &self.instead_of_root else { return Ok(()) };
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
            .with_context(|| format!("cannot give {} to user {}", path.display(), user.name))
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
