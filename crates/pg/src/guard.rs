//! Stops a postmaster whose owner was killed: SIGKILL leaves no chance to do it oneself.
//!
//! A shell waits on a pipe that only we hold. When we end, however we end, the pipe closes, and the shell sends the
//! postmaster a fast shutdown (SIGINT) and removes what was to be thrown away.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Error, Result};

/// `$1` is the postmaster's id, `$2` the program that it must still be running (ids are used again), the rest are
/// folders to throw away. "keep" means that the owner has cleaned up.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
read -r word
[ "$word" = keep ] && exit 0
if [ "$(readlink "/proc/$1/exe")" = "$2" ]; then kill -INT "$1"; fi
pid=$1
shift 2
tries=0
while [ -d "/proc/$pid" ] && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
rm -rf -- "$@"
"#;

/// The shell that waits.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    pub(crate) fn over(pid: u32, program: &Path, throw_away: &[&Path]) -> Result<Self> {
        let shell = PathBuf::from("/bin/sh");
        Command::new(&shell)
            .args(["-c", SCRIPT, "weir-pg-guard", &pid.to_string()])
            .arg(program)
            .args(throw_away)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(|shell| Self { shell })
            .map_err(|source| Error::Program { program: shell, source })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            // If the shell is gone there is nothing to call off.
            let _ = std::io::Write::write_all(&mut pipe, b"keep\n");
        }
        let _ = self.shell.wait();
    }
}
