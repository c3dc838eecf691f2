//! The house rules that a machine can check, over every file that git knows or would add.
//!
//! Each rule gives findings; a finding listed in `xtask/tidy-exceptions.txt` passes. Exceptions only shrink: one that is
//! no longer needed, or allows more lines than there are, fails too.

mod crates;
mod exceptions;
mod rooms;
mod source;
mod text;

use std::fmt;
use std::path::Path;
use std::process::Command;

use exceptions::Exceptions;

/// One breach of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub rule: &'static str,
    /// Relative to the repository.
    pub path: String,
    pub line: usize,
    /// What an exception names, beside rule and path: a function, or nothing.
    pub subject: String,
    /// A length, for rules about lengths.
    pub measure: Option<usize>,
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.text)
    }
}

/// One file of the repository that is text.
#[derive(Debug)]
pub struct File {
    pub path: String,
    pub text: String,
}

/// Larger files are data.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

pub fn run(root: &Path) -> Result<String, String> {
    let files = files(root)?;
    let exceptions = Exceptions::read(root)?;
    let mut findings = Vec::new();
    for file in &files {
        text::check(file, &mut findings);
        source::check(file, &mut findings);
        crates::check(file, &mut findings);
    }
    rooms::check(&files, &mut findings);
    let complaints = exceptions.apply(findings);
    if complaints.is_empty() {
        return Ok(format!("tidy: {} files keep the house rules, {} exceptions", files.len(), exceptions.len()));
    }
    Err(format!("{}\ntidy: {} complaints", complaints.join("\n"), complaints.len()))
}

/// Every file that is tracked, or would be by `git add`.
fn files(root: &Path) -> Result<Vec<File>, String> {
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let listing = listing.map_err(|error| format!("could not run git: {error}"))?;
    if !listing.status.success() {
        return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&listing.stderr)));
    }
    let names = String::from_utf8_lossy(&listing.stdout).into_owned();
    let mut paths: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    Ok(paths.into_iter().filter_map(|path| read(root, path)).collect())
}

/// `None` for what is not text, or was deleted and not yet committed.
fn read(root: &Path, path: &str) -> Option<File> {
    let whole = root.join(path);
    if std::fs::metadata(&whole).ok()?.len() > FILE_BYTES_MAX {
        return None;
    }
    Some(File { path: path.to_owned(), text: std::fs::read_to_string(whole).ok()? })
}
