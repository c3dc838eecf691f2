//! Where PostgreSQL's client programs are, and of which version.
//!
//! Does not run loads.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

const DEBIAN_ROOT: &str = "/usr/lib/postgresql";

/// A program of PostgreSQL's: of `PG_BIN`, Debian's newest, or on `PATH`, where Debian has wrappers of the same names.
pub fn find(name: &str) -> Option<PathBuf> {
    let named = env::var_os("PG_BIN").filter(|directory| !directory.is_empty()).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut directories = named.into_iter().chain(debian()).chain(env::split_paths(&path));
    directories.find_map(|directory| Some(directory.join(name)).filter(|program| program.is_file()))
}

/// A program on `PATH`, or where Debian keeps those of administrators.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    directories.map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// The first line that `program --version` prints.
pub fn version(program: &Path) -> Result<String> {
    match version_lines(program)?.lines().next() {
        Some(line) => Ok(line.to_owned()),
        None => bail!("{} --version prints nothing", program.display()),
    }
}

/// All that `program --version` prints.
pub fn version_lines(program: &Path) -> Result<String> {
    let shown = program.display();
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {shown} --version"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Of `pgbench (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)` or `19beta1`: the first number.
pub fn major(version: &str) -> Option<u32> {
    let (_, number) = version.split_once("(PostgreSQL) ")?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Newest first.
fn debian() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(DEBIAN_ROOT) else { return Vec::new() };
    let mut versions: Vec<u32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable_by(|left, right| right.cmp(left));
    versions.into_iter().map(|version| Path::new(DEBIAN_ROOT).join(version.to_string()).join("bin")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_major_is_the_first_number() {
        assert_eq!(major("pgbench (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)"), Some(15));
        assert_eq!(major("pgbench (PostgreSQL) 19beta1"), Some(19));
        assert_eq!(major("pgbench 7"), None);
    }
}
