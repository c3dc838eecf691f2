//! House-keeping of the repository: `cargo xtask reference [--check]`, `cargo xtask tidy` and `cargo xtask package`.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod limits;
mod package;
mod parameters;
mod reference;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str =
    "usage: xtask reference          write docs/settings.md, docs/limits.md and extension/settings.h from the sources
       xtask reference --check  fail if they are stale
       xtask tidy               check the house rules
       xtask package WEIR DIR   make a Debian package of this program in the folder";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = root();
    let result = match arguments.as_slice() {
        ["reference"] => all([reference::write, limits::write, parameters::write], &root),
        ["reference", "--check"] => all([reference::check, limits::check, parameters::check], &root),
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

/// What says how it went.
type Step = fn(&Path) -> Result<String, String>;

fn all(steps: [Step; 3], root: &Path) -> Result<String, String> {
    let said: Result<Vec<String>, String> = steps.into_iter().map(|step| step(root)).collect();
    said.map(|lines| lines.join("\n"))
}

/// The repository: the directory above this crate's.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}
