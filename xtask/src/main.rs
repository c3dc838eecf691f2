//! House-keeping of the repository: `cargo xtask reference [--check]`, `cargo xtask tidy` and `cargo xtask package`.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod limits;
mod package;
mod reference;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: xtask reference          write docs/settings.md and docs/limits.md from the sources
       xtask reference --check  fail if they are stale
       xtask tidy               check the house rules
       xtask package WEIR DIR   make a Debian package of this program in the folder";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = root();
    let result = match arguments.as_slice() {
        ["reference"] => both(reference::write(&root), limits::write(&root)),
        ["reference", "--check"] => both(reference::check(&root), limits::check(&root)),
        ["tidy"] => tidy::run(&root),
        ["package", weir, folder] => package::make(&root, Path::new(weir), Path::new(folder)),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

fn both(first: Result<String, String>, second: Result<String, String>) -> Result<String, String> {
    Ok(format!("{}\n{}", first?, second?))
}

/// The repository: the directory above this crate's.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}
