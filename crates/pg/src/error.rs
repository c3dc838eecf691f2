//! What can go wrong before a PostgreSQL runs, each as one sentence for the person at the terminal.

use std::io;
use std::path::{Path, PathBuf};

/// Why there is no running PostgreSQL.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    /// The disk that holds `path` is full.
    #[error("no space left on the disk that holds {}", .0.display())]
    NoSpace(PathBuf),
    /// Nothing to download for this version or machine.
    #[error("no PostgreSQL {major} is known to download for {architecture} machines")]
    NoRelease { major: u32, architecture: &'static str },
    /// The download failed.
    #[error("cannot download PostgreSQL {version} from {url}: {reason}")]
    Download { version: &'static str, url: String, reason: String },
    /// What was downloaded is not what the pinned digest says.
    #[error("PostgreSQL {version} as downloaded from {url} has SHA-256 {found} instead of {expected}: it is not used")]
    Digest { version: &'static str, url: String, expected: &'static str, found: String },
    /// The archive is damaged.
    #[error("the archive of PostgreSQL {version} cannot be unpacked: {reason}")]
    Archive { version: &'static str, reason: String },
    /// Neither downloaded nor installed.
    #[error("{download}; and {} is installed here", missing(*.major))]
    Nowhere { download: Box<Error>, major: Option<u32> },
    /// A program of PostgreSQL could not be run.
    #[error("cannot run {}: {source}", program.display())]
    Program { program: PathBuf, source: io::Error },
    /// A program of PostgreSQL said no.
    #[error("{program} failed: {output}")]
    Refused { program: &'static str, output: String },
    /// Root has no unprivileged user to hand the work to.
    #[error("PostgreSQL refuses to run as root, and neither a user postgres nor a user nobody exists")]
    NoAccount,
    /// The unprivileged user cannot get at a folder.
    #[error(
        "PostgreSQL runs as the user {user}, who cannot enter {}: choose a folder that others can pass through", path.display()
    )]
    Unreachable { user: String, path: PathBuf },
    /// What is done there by name could be turned by others to something else, by a link for one.
    #[error("other users can change {}: {} is not used, choose another folder", path.display(), folder.display())]
    Shared { folder: PathBuf, path: PathBuf },
    /// A folder that is not only ours is given to nobody.
    #[error("{} holds {}: choose a folder for the data alone", folder.display(), other.display())]
    HoldsMore { folder: PathBuf, other: PathBuf },
    /// There is no folder of one's own for downloads.
    #[error("no folder for PostgreSQL's builds: HOME is not set; choose one with WEIR_PG_CACHE")]
    NoCache,
    /// Another cluster holds this data folder.
    #[error("the data folder {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The data folder belongs to another major version.
    #[error("{} holds data of PostgreSQL {found}, not of {wanted}", path.display())]
    WrongMajor { path: PathBuf, found: u32, wanted: u32 },
    /// Where the data should be is something else.
    #[error("{} holds no data of PostgreSQL: choose another folder, or remove it", .0.display())]
    NoCluster(PathBuf),
    /// The postmaster's port is taken.
    #[error("port {0} is in use by another process")]
    PortInUse(u16),
    /// The postmaster ended while starting.
    #[error("PostgreSQL did not start: {reason} (log: {})", log.display())]
    NotStarted { reason: String, log: PathBuf },
    /// The postmaster neither ended nor became ready.
    #[error("PostgreSQL was not ready after {seconds} s (log: {})", log.display())]
    TooSlow { seconds: u64, log: PathBuf },
}

fn missing(major: Option<u32>) -> String {
    match major {
        Some(major) => format!("no PostgreSQL {major}"),
        None => "no PostgreSQL".to_owned(),
    }
}

impl Error {
    /// A file error at `path`, with a full disk told apart: it is the one that people can mend at once.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace(path),
            _ => Self::File { action, path, source },
        }
    }
}
