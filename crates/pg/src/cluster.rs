//! A cluster as its user sees it: start, port, restart, kill, stop. Puts the other files' parts together.

use std::fs::{self, File, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::account::Account;
use crate::data::{DataFolder, Settings};
use crate::password::{self, Password};
use crate::postmaster::Postmaster;
use crate::{Error, Installation, Result};

/// How long a folder's lock may be another's before the folder is said to be in use.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// A free port may be taken by someone else between our look and PostgreSQL's bind.
const PORT_ATTEMPTS_MAX: u32 = 5;

/// Where the data live.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Place {
    /// In a temporary folder, removed with the cluster.
    #[default]
    ThrowAway,
    /// In this folder, kept. Each major has a sub-folder of its own, so that a change of version loses nothing.
    Folder(PathBuf),
}

/// How a cluster is to be.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub place: Place,
    /// None: a free one. Kept over restarts either way.
    pub port: Option<u16>,
    /// Lines for `postgresql.conf`, after ours: they win.
    pub settings: Vec<String>,
    /// Lines for `pg_hba.conf`, before ours: they win.
    pub hba: Vec<String>,
    /// The superuser's.
    pub password: Password,
}

/// A PostgreSQL on the loopback address and on a Unix socket. Its superuser is [`crate::SUPERUSER`], by SCRAM. Dropping it
/// stops it.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: the process before the folders it uses.
    postmaster: Option<Postmaster>,
    account: Account,
    installation: Installation,
    data: DataFolder,
    settings: Settings,
    folder: PathBuf,
    log: PathBuf,
    password: String,
    throw_away: Option<TempDir>,
    /// Short, since a Unix socket's path may have 107 bytes.
    sockets: TempDir,
    _lock: File,
}

impl Cluster {
    /// Initialises the data folder if it is new, starts, and waits until clients can connect.
    pub fn start(installation: &Installation, options: Options) -> Result<Self> {
        let mut cluster = Self::prepare(installation, &options)?;
        let mut attempt = 1;
        loop {
            if options.port.is_none() {
                cluster.settings.port = free_port()?;
            }
            match cluster.start_again() {
                Err(Error::PortInUse(_)) if options.port.is_none() && attempt < PORT_ATTEMPTS_MAX => {
                    attempt += 1;
                }
                Err(error) => return Err(error),
                Ok(()) => return Ok(cluster),
            }
        }
    }

    fn prepare(installation: &Installation, options: &Options) -> Result<Self> {
        let account = Account::choose()?;
        let (folder, throw_away) = match &options.place {
            Place::Folder(folder) => (folder.clone(), None),
            Place::ThrowAway => {
                let folder = open_temporary_folder("weir-pg-")?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let folder = account.create_roots_folder(&folder)?;
        account.check_can_enter(&folder)?;
        let lock = lock(&folder)?;
        let data = DataFolder::at(folder.join(format!("postgresql-{}", installation.major())));
        let password = initialise(&data, &account, installation, &folder, options)?;
        let sockets = open_temporary_folder("weir-socket-")?;
        account.own_folder(sockets.path())?;
        Ok(Self {
            postmaster: None,
            settings: Settings {
                port: options.port.unwrap_or(0),
                socket_folder: sockets.path().to_owned(),
                throw_away: throw_away.is_some(),
                extra: options.settings.clone(),
                hba: options.hba.clone(),
            },
            log: folder.join("postgresql.log"),
            password,
            folder,
            account,
            installation: installation.clone(),
            data,
            throw_away,
            sockets,
            _lock: lock,
        })
    }

    /// Starts after [`Self::stop`] or [`Self::kill_hard`], on the same port. A cluster that runs stays as it is.
    pub fn start_again(&mut self) -> Result<()> {
        if self.has_ended().is_none() {
            return Ok(());
        }
        self.postmaster = None;
        self.data.clear_stale_pid_file()?;
        self.data.configure(&self.account, &self.settings)?;
        let mut throw_away = vec![self.sockets.path()];
        throw_away.extend(self.throw_away.as_ref().map(TempDir::path));
        self.postmaster =
            Some(Postmaster::start(&self.account, &self.installation, &self.data, &self.log, &throw_away)?);
        Ok(())
    }

    /// A fast shutdown: running transactions are rolled back, clients are told.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(postmaster) = self.postmaster.take() {
            postmaster.stop();
        }
        Ok(())
    }

    /// Stop and start, on the same port and data.
    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.start_again()
    }

    /// Other lines for `postgresql.conf` than [`Options::settings`], from the next start on.
    pub fn set_settings(&mut self, settings: Vec<String>) {
        self.settings.extra = settings;
    }

    /// SIGKILL to every process of the cluster; the data survive, as PostgreSQL promises.
    pub fn kill_hard(&mut self) {
        if let Some(postmaster) = self.postmaster.take() {
            postmaster.kill_hard();
        }
    }

    /// None while it runs, else how it ended.
    pub fn has_ended(&mut self) -> Option<String> {
        match &mut self.postmaster {
            Some(postmaster) => postmaster.ended(),
            None => Some("stopped".to_owned()),
        }
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.settings.port
    }

    /// The folder of the Unix socket `.s.PGSQL.<port>`.
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        &self.settings.socket_folder
    }

    /// What [`Place`] says: holds PGDATA and the log, and goes with a throw-away cluster whatever ends its owner.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// PGDATA.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        self.data.path()
    }

    /// PostgreSQL's log.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The postmaster's process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.postmaster.as_ref().map(Postmaster::pid)
    }

    /// The superuser's.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    /// For libpq and most drivers: `postgres://postgres:<password>@127.0.0.1:<port>/<database>`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{}:{}@127.0.0.1:{}/{database}", crate::SUPERUSER, self.password, self.port())
    }
}

/// Makes the data, where there are none yet, and answers with the superuser's password. A random one is kept once it holds, so
/// whatever ends us in between, the next start makes it hold.
fn initialise(
    data: &DataFolder,
    account: &Account,
    installation: &Installation,
    folder: &Path,
    options: &Options,
) -> Result<String> {
    let throw_away = options.place == Place::ThrowAway;
    let kept = match options.password {
        Password::Known => Some(crate::PASSWORD.to_owned()),
        Password::Random => password::kept(folder),
    };
    let password = kept.clone().map_or_else(password::random, Ok)?;
    let is_new = data.initialise(account, installation, throw_away, &password)?;
    if kept.is_none() {
        if !is_new {
            data.clear_stale_pid_file()?;
            data.set_password(account, installation, &password)?;
        }
        password::keep(folder, &password)?;
    }
    Ok(password)
}

/// Under `/tmp` whatever `TMPDIR` says: it must be short, and open to another user.
fn open_temporary_folder(prefix: &str) -> Result<TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let parent = Path::new("/tmp");
    tempfile::Builder::new()
        .prefix(prefix)
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir_in(parent)
        .map_err(Error::file("create a folder in", parent))
}

/// Held as long as the cluster; released by the kernel however we end. A process that somebody else is starting just now has copies of all files of
/// his, a lock's that he has given up among them, until it is another program: that is waited for.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(".lock");
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(Error::file("open", &path))?;
    let patience = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < patience => thread::sleep(Duration::from_millis(5)),
            Err(fs::TryLockError::WouldBlock) => return Err(Error::InUse(folder.to_owned())),
            Err(fs::TryLockError::Error(source)) => return Err(Error::file("lock", &path)(source)),
        }
    }
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0));
    listener
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(Error::file("find a free port on", Path::new("127.0.0.1")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A child has copies of all our files until it is what it is to be, the lock's among them.
    #[test]
    fn a_lock_is_free_again_while_others_start_processes() {
        let (folder, over) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::process::Command::new("true").status().unwrap();
                    }
                });
            }
            let locked: Vec<_> = (0..1000).map(|_| lock(folder.path()).map(drop)).collect();
            over.store(true, Ordering::Relaxed);
            assert!(locked.iter().all(Result::is_ok), "{:?}", locked.iter().find(|locked| locked.is_err()));
        });
        let _held = lock(folder.path()).unwrap();
        assert!(matches!(lock(folder.path()), Err(Error::InUse(_))));
    }
}
