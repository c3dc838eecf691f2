//! A cluster's data folder: initdb, the settings we write, and a pid file that a crash left behind.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::account::{Account, peek};
use crate::process::Process;
use crate::{Error, Installation, Result, SUPERUSER};

/// Our settings, included from `postgresql.conf` and written anew at every start.
const SETTINGS_FILE: &str = "weir.conf";

/// What a start writes into the folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) port: u16,
    pub(crate) socket_folder: PathBuf,
    /// Safe against a crash of PostgreSQL, not of the machine.
    pub(crate) throw_away: bool,
    pub(crate) extra: Vec<String>,
    /// Lines of `pg_hba.conf` that come before ours.
    pub(crate) hba: Vec<String>,
}

/// PGDATA.
#[derive(Debug, Clone)]
pub(crate) struct DataFolder {
    path: PathBuf,
}

impl DataFolder {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// initdb, unless the folder holds a cluster already; then of the right major. Answers whether it was made now.
    pub(crate) fn initialise(
        &self,
        account: &Account,
        installation: &Installation,
        throw_away: bool,
        password: &str,
    ) -> Result<bool> {
        let wanted = installation.major();
        match peek(&self.path.join("PG_VERSION")).and_then(|text| text.trim().parse::<u32>().ok()) {
            Some(found) if found == wanted => return Ok(false),
            Some(found) => return Err(Error::WrongMajor { path: self.path.clone(), found, wanted }),
            None if self.path.exists() => return Err(Error::NoCluster(self.path.clone())),
            None => {}
        }
        // Into a neighbour and renamed, so that a Ctrl-C inside initdb leaves no half cluster to be started later.
        let partial = self.path.with_extension("initdb");
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(Error::file("remove", &partial))?;
        }
        account.create_folder(&partial)?;
        fs::set_permissions(&partial, Permissions::from_mode(0o700)).map_err(Error::file("close", &partial))?;
        account.own_folder(&partial)?;
        account.check_can_enter(&partial)?;
        run_initdb(account, installation, &partial, throw_away, password)?;
        fs::rename(&partial, &self.path).map_err(Error::file("create", &self.path))?;
        Ok(true)
    }

    /// Of the superuser, in a backend that stands alone: no postmaster may run on the folder.
    pub(crate) fn set_password(&self, account: &Account, installation: &Installation, password: &str) -> Result<()> {
        let program = installation.bin().join("postgres");
        let failed = |source| Error::Program { program: program.clone(), source };
        let mut command = account.command(&program);
        command.args(["--single", "-D"]).arg(&self.path).arg("postgres");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let statement = format!("alter role {SUPERUSER} password '{password}'\n");
        let written = child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(statement.as_bytes()));
        let output = child.wait_with_output().map_err(failed)?;
        // It ends with 0 whatever its statements came to.
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() && !said.contains("ERROR:") {
            return written.map_err(failed);
        }
        Err(Error::Refused { program: "postgres --single", output: said.trim().to_owned() })
    }

    /// Writes our settings and who may enter.
    pub(crate) fn configure(&self, account: &Account, settings: &Settings) -> Result<()> {
        account.write(&self.path.join(SETTINGS_FILE), &settings_text(settings))?;
        account.write(&self.path.join("pg_hba.conf"), &hba_text(settings))?;
        let main = self.path.join("postgresql.conf");
        let text = account.read(&main)?;
        let include = format!("include '{SETTINGS_FILE}'");
        if text.lines().any(|line| line == include) {
            return Ok(());
        }
        account.write(&main, &format!("{text}\n{include}\n"))
    }

    /// The first line of `postmaster.pid` (`src/include/utils/pidfile.h` in PostgreSQL 18).
    pub(crate) fn postmaster(&self) -> Option<Process> {
        let line = peek(&self.pid_file())?;
        // A stand-alone backend writes its id negated; it is no postmaster, but as alive.
        let pid: i64 = line.lines().next()?.trim().parse().ok()?;
        u32::try_from(pid.unsigned_abs()).ok().map(Process)
    }

    /// The last line of the pid file, padded with blanks by the postmaster.
    pub(crate) fn is_ready(&self, pid: u32) -> bool {
        let text = peek(&self.pid_file()).unwrap_or_default();
        let mut lines = text.lines();
        lines.next() == Some(pid.to_string().as_str()) && lines.nth(6).is_some_and(|status| status.trim() == "ready")
    }

    /// After a SIGKILL the pid file stays. PostgreSQL ignores it if nothing has that id any more, but takes any process of
    /// its user for a postmaster; so one that is not ours to fear is removed here.
    pub(crate) fn clear_stale_pid_file(&self) -> Result<()> {
        let Some(process) = self.postmaster() else {
            return Ok(());
        };
        if process.is_alive() {
            let folder = self.path.to_string_lossy().into_owned();
            if process.arguments().contains(&folder) {
                return Err(Error::InUse(self.path.clone()));
            }
        }
        let path = self.pid_file();
        fs::remove_file(&path).map_err(Error::file("remove", &path))
    }

    fn pid_file(&self) -> PathBuf {
        self.path.join("postmaster.pid")
    }
}

fn run_initdb(
    account: &Account,
    installation: &Installation,
    folder: &Path,
    throw_away: bool,
    password: &str,
) -> Result<()> {
    // Whatever TMPDIR says: the account must reach it.
    let temporary = Path::new("/tmp");
    let mut file = tempfile::NamedTempFile::new_in(temporary).map_err(Error::file("create a file in", temporary))?;
    writeln!(file, "{password}").map_err(Error::file("write", file.path()))?;
    account.own(file.as_file(), file.path())?;
    let program = installation.bin().join("initdb");
    let mut command = account.command(&program);
    command
        .arg("--pgdata")
        .arg(folder)
        .arg("--pwfile")
        .arg(file.path())
        .args(["--username", SUPERUSER, "--auth", "scram-sha-256"])
        .args(["--encoding", "UTF8", "--locale", "C"])
        .stdin(Stdio::null());
    if installation.major() >= 17 {
        // Letters are letters, and the same on every machine; before 17 that needs an installed locale.
        command.args(["--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"]);
    }
    if throw_away {
        command.arg("--no-sync");
    }
    let output = command.output().map_err(|source| Error::Program { program, source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("No space left on device") {
        return Err(Error::NoSpace(folder.to_owned()));
    }
    Err(Error::Refused { program: "initdb", output: said.trim().to_owned() })
}

fn settings_text(settings: &Settings) -> String {
    let mut lines = vec![
        "# Written anew at every start: changes belong into postgresql.conf, after the include.".to_owned(),
        "listen_addresses = '127.0.0.1'".to_owned(),
        format!("port = {}", settings.port),
        format!("unix_socket_directories = '{}'", settings.socket_folder.display()),
        "password_encryption = 'scram-sha-256'".to_owned(),
        "logging_collector = off".to_owned(),
        "log_destination = 'stderr'".to_owned(),
    ];
    if settings.throw_away {
        lines.extend(["fsync = off", "full_page_writes = off", "synchronous_commit = off"].map(str::to_owned));
    }
    lines.extend(settings.extra.iter().cloned());
    lines.push(String::new());
    lines.join("\n")
}

fn hba_text(settings: &Settings) -> String {
    let mut lines = settings.hba.clone();
    lines.extend(
        [
            "local all         all              scram-sha-256",
            "host  all         all 127.0.0.1/32 scram-sha-256",
            "local replication all              scram-sha-256",
            "host  replication all 127.0.0.1/32 scram-sha-256",
        ]
        .map(str::to_owned),
    );
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with_pid_file(pid: u32) -> (tempfile::TempDir, DataFolder) {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("{pid}\n/data\n1\n5432\n/tmp\n127.0.0.1\n  1 2\nready   \n");
        fs::write(folder.path().join("postmaster.pid"), text).unwrap();
        let data = DataFolder::at(folder.path().to_owned());
        (folder, data)
    }

    #[test]
    fn ready_is_of_the_process_that_was_started() {
        let (_folder, data) = folder_with_pid_file(77);
        assert!(data.is_ready(77));
        assert!(!data.is_ready(78));
    }

    #[test]
    fn pid_file_of_a_stranger_is_stale() {
        // Ourselves: alive, but no postmaster on this folder.
        let (_folder, data) = folder_with_pid_file(std::process::id());
        data.clear_stale_pid_file().unwrap();
        assert!(data.postmaster().is_none());
    }

    #[test]
    fn pid_file_of_a_live_postmaster_stays() {
        let (folder, data) = folder_with_pid_file(0);
        let mut postmaster = std::process::Command::new("/bin/sh")
            .args(["-c", "read x", "-D"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        fs::write(folder.path().join("postmaster.pid"), format!("{}\n", postmaster.id())).unwrap();
        // A spawn returns before exec(2) has put the arguments where they can be read.
        let command = format!("/proc/{}/cmdline", postmaster.id());
        let is_there = || fs::read(&command).is_ok_and(|arguments| !arguments.is_empty());
        for _ in 0..1000 {
            if is_there() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let refused = data.clear_stale_pid_file();
        drop(postmaster.stdin.take());
        postmaster.wait().unwrap();
        assert!(matches!(refused, Err(Error::InUse(_))), "{refused:?}");
    }

    #[test]
    fn extra_lines_come_where_they_count() {
        let settings = Settings {
            extra: vec!["max_connections = 7".to_owned()],
            hba: vec!["host all someone 127.0.0.1/32 md5".to_owned()],
            ..Settings::default()
        };
        // The last setting and the first rule win in PostgreSQL.
        assert!(settings_text(&settings).ends_with("max_connections = 7\n"));
        assert!(hba_text(&settings).starts_with("host all someone"));
    }
}
