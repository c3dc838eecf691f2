//! Which PostgreSQL is used: a cached download, a fresh one, or what the machine has installed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::Account;
use crate::cache::Cache;
use crate::release::Release;
use crate::{Error, Result};

/// A folder with PostgreSQL's programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    bin: PathBuf,
    version: String,
    major: u32,
    origin: Origin,
}

/// How an installation was come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Downloaded, now or earlier.
    Downloaded,
    /// Was on the machine.
    Installed,
}

impl Installation {
    /// PostgreSQL `major`: cached, else downloaded, else installed. What happens goes to `say`, in sentences.
    pub fn of_major(major: u32, say: &dyn Fn(&str)) -> Result<Self> {
        Self::obtain(major, Some(major), say)
    }

    /// PostgreSQL `major` if it can be had, else the newest that is installed.
    pub fn preferably(major: u32, say: &dyn Fn(&str)) -> Result<Self> {
        Self::obtain(major, None, say)
    }

    fn obtain(major: u32, installed_major: Option<u32>, say: &dyn Fn(&str)) -> Result<Self> {
        let account = Account::choose()?;
        let error = match Self::downloaded(&account, major, say) {
            Ok(installation) => return Ok(installation),
            // A full disk or a wrong digest is not a missing network: working around it would hide it.
            Err(error @ (Error::Download { .. } | Error::NoRelease { .. } | Error::NoCache)) => error,
            Err(error) => return Err(error),
        };
        let Some(installation) = Self::newest_installed(installed_major) else {
            return Err(Error::Nowhere { download: Box::new(error), major: installed_major });
        };
        say(&format!(
            "{error}; using the installed PostgreSQL {} in {}",
            installation.version,
            installation.bin.display()
        ));
        Ok(installation)
    }

    fn downloaded(account: &Account, major: u32, say: &dyn Fn(&str)) -> Result<Self> {
        let release = Release::of(major)?;
        let cache = Cache::from_environment(account)?;
        let folder = match cache.get(release)? {
            Some(folder) => folder,
            None => cache.download(account, release, say)?,
        };
        account.check_can_enter(&folder)?;
        Ok(Self { bin: folder.join("bin"), version: release.version.to_owned(), major, origin: Origin::Downloaded })
    }

    fn newest_installed(major: Option<u32>) -> Option<Self> {
        candidates()
            .into_iter()
            .filter_map(|bin| Self::in_folder(&bin))
            .find(|found| major.is_none_or(|major| found.major == major))
    }

    /// The installation in `bin`, if both programs that we need are there and run.
    pub fn in_folder(bin: &Path) -> Option<Self> {
        // Through the links: PostgreSQL finds its other files beside its real program.
        let program = fs::canonicalize(bin.join("postgres")).ok()?;
        let bin = program.parent()?.to_owned();
        if !bin.join("initdb").is_file() {
            return None;
        }
        let output = Command::new(&program).arg("--version").output().ok()?;
        let (major, version) = parse_version(&String::from_utf8_lossy(&output.stdout))?;
        Some(Self { bin, version, major, origin: Origin::Installed })
    }

    /// Where `postgres` and `initdb` are.
    #[must_use]
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// As `postgres --version` has it: `18.6`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }
}

/// `$PG_BIN`, then what Debian installs, newest first, then the path.
fn candidates() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = env::var_os("PG_BIN").map(PathBuf::from).into_iter().collect();
    folders.extend(debian());
    if let Some(path) = env::var_os("PATH") {
        folders.extend(env::split_paths(&path));
    }
    folders
}

fn debian() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/usr/lib/postgresql") else {
        return Vec::new();
    };
    let mut found: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let major = entry.file_name().to_str()?.parse().ok()?;
            Some((major, entry.path().join("bin")))
        })
        .collect();
    found.sort_by_key(|(major, _)| std::cmp::Reverse(*major));
    found.into_iter().map(|(_, bin)| bin).collect()
}

/// From `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`, also `18beta1`.
fn parse_version(line: &str) -> Option<(u32, String)> {
    let version = line.strip_prefix("postgres (PostgreSQL) ")?.split_whitespace().next()?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((digits.parse().ok()?, version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_programs_print_them() {
        let cases = [
            ("postgres (PostgreSQL) 18.6\n", Some((18, "18.6"))),
            ("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n", Some((15, "15.14"))),
            ("postgres (PostgreSQL) 19beta1\n", Some((19, "19beta1"))),
            ("pgbench (PostgreSQL) 15.1\n", None),
            ("", None),
        ];
        for (line, expected) in cases {
            let expected = expected.map(|(major, version)| (major, version.to_owned()));
            assert_eq!(parse_version(line), expected, "{line:?}");
        }
    }

    #[test]
    fn folder_without_programs_is_no_installation() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Installation::in_folder(folder.path()), None);
    }
}
