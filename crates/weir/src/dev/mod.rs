//! `weir dev`: a PostgreSQL of its own and Weir in front of it, in one command.
//!
//! Owns the order of things: what is checked before the first download, what starts after what, and that both stop
//! together. Does not know how the pooler runs: it is handed a way to start one from a configuration file.

mod files;
mod home;
mod screen;

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weir_pg::{Cluster, Installation, Password, Place, Unprivileged};

use crate::daemon;
use files::Files;
use home::Home;
use screen::Screen;

/// The newest major that is supported; the first user wants that.
const POSTGRESQL_MAJOR: u32 = 18;
/// What stands beside a cluster in a folder of `weir dev`.
const FILES: [&str; 5] = [".lock", "password", "weir.ini", "userlist.txt", "weir.log"];
/// How long a Ctrl-C may go unnoticed. Nothing hot runs on this thread.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What may be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevOptions {
    /// Throw the data away at the end.
    pub ephemeral: bool,
    /// Weir's port.
    pub port: u16,
    /// Where the data are kept. None: where the system keeps such data.
    pub data: Option<PathBuf>,
    /// Weir's address.
    pub listen: String,
}

/// A pooler that serves already when it is handed over.
pub trait Pooler {
    /// None while it runs, else why it ended.
    fn ended(&mut self) -> Option<String>;
    /// At once: whoever pressed Ctrl-C does not wait for clients.
    fn stop(self: Box<Self>);
}

/// Why `weir dev` ended, when nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    #[error("--listen {0} is not an IP address")]
    Address(String),
    #[error("--ephemeral throws the data away and --data keeps them: choose one")]
    EphemeralAndData,
    #[error("port {} of {} is in use by another process: choose another with --port", .0.port(), .0.ip())]
    PortInUse(SocketAddr),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("no folder for the data: HOME is not set; choose one with --data, or use --ephemeral")]
    NoHome,
    #[error("{0}; is another weir dev running there? Choose another folder with --data, or use --ephemeral")]
    DataInUse(weir_pg::Error),
    #[error("{0}")]
    PostgreSql(#[from] weir_pg::Error),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{0}")]
    LeaveRoot(String),
    #[error("cannot watch for signals: {0}")]
    Signals(std::io::Error),
    #[error("Weir did not start: {0}")]
    PoolerStart(String),
    #[error("Weir ended: {0}")]
    PoolerEnded(String),
    #[error("PostgreSQL ended ({how}); its log is {}", log.display())]
    PostgreSqlEnded { how: String, log: PathBuf },
}

/// Runs until a signal or until one of the two ends. `start_pooler` gets the configuration file.
pub fn run(
    options: &DevOptions,
    start_pooler: impl FnOnce(&Path) -> Result<Box<dyn Pooler>, String>,
) -> Result<(), DevError> {
    let address = listen_address(options)?;
    // Before the download: an answer after one second is worth more than after thirty.
    check_port_is_free(address)?;
    let home = Home::choose(options)?;
    let installation = Installation::preferably(POSTGRESQL_MAJOR, &|line| eprintln!("weir: {line}"))?;
    let home = leave_root(home)?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(DevError::Signals)?;
    let mut cluster = start_cluster(&installation, &home)?;
    let files = Files::write(&cluster, address)?;
    let mut pooler = start_pooler(files.ini()).map_err(DevError::PoolerStart)?;
    show(&Screen { address, cluster: &cluster, files: &files, ephemeral: options.ephemeral }.to_string());

    let outcome = wait(&mut signals, &mut cluster, pooler.as_mut());
    // The pooler first: its clients then hear from it, and not from a server that vanishes.
    pooler.stop();
    cluster.stop()?;
    if outcome.is_ok() {
        show(&screen::stopped(&cluster, options.ephemeral));
    }
    outcome
}

fn listen_address(options: &DevOptions) -> Result<SocketAddr, DevError> {
    let ip: IpAddr = options.listen.parse().map_err(|_| DevError::Address(options.listen.clone()))?;
    Ok(SocketAddr::new(ip, options.port))
}

fn check_port_is_free(address: SocketAddr) -> Result<(), DevError> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(DevError::PortInUse(address)),
        Err(source) => Err(DevError::Listen { address, source }),
    }
}

/// Root has fetched the builds where all may read them; nothing else needs it. Whoever is superuser of this PostgreSQL runs
/// programs as its system user, so all that follows is done as that user, Weir too.
fn leave_root(home: Home) -> Result<Home, DevError> {
    let Some(user) = Unprivileged::instead_of_root()? else { return Ok(home) };
    let home = match home {
        Home::Kept(folder) => Home::Kept(user.give_folder(&folder, &FILES)?),
        Home::ThrowAway => Home::ThrowAway,
    };
    // Root's own folder may be closed to that user.
    std::env::set_current_dir("/").map_err(|error| DevError::LeaveRoot(error.to_string()))?;
    daemon::become_user(user.name()).map_err(DevError::LeaveRoot)?;
    Ok(home)
}

fn start_cluster(installation: &Installation, home: &Home) -> Result<Cluster, DevError> {
    let place = match home {
        Home::Kept(folder) => Place::Folder(folder.clone()),
        Home::ThrowAway => Place::ThrowAway,
    };
    let options = weir_pg::Options { place, password: Password::Random, ..weir_pg::Options::default() };
    Cluster::start(installation, options).map_err(|error| match error {
        error @ weir_pg::Error::InUse(_) => DevError::DataInUse(error),
        error => DevError::PostgreSql(error),
    })
}

fn wait(signals: &mut Signals, cluster: &mut Cluster, pooler: &mut dyn Pooler) -> Result<(), DevError> {
    loop {
        if signals.pending().next().is_some() {
            return Ok(());
        }
        if let Some(how) = cluster.has_ended() {
            return Err(DevError::PostgreSqlEnded { how, log: cluster.log().to_owned() });
        }
        if let Some(why) = pooler.ended() {
            return Err(DevError::PoolerEnded(why));
        }
        sleep(LOOK_INTERVAL);
    }
}

/// A terminal that went away (`weir dev | head`) is no reason to stop serving.
fn show(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> DevOptions {
        DevOptions { ephemeral: true, port: 6432, data: None, listen: "127.0.0.1".to_owned() }
    }

    fn never(_: &Path) -> Result<Box<dyn Pooler>, String> {
        panic!("nothing may start")
    }

    #[test]
    fn port_in_use_is_said_before_anything_starts() {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = run(&DevOptions { port, ..options() }, never).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("port {port} of 127.0.0.1 is in use by another process: choose another with --port")
        );
    }

    #[test]
    fn name_is_no_address() {
        let options = DevOptions { listen: "here".to_owned(), ..options() };
        assert_eq!(run(&options, never).unwrap_err().to_string(), "--listen here is not an IP address");
    }

    #[test]
    fn throwing_away_and_keeping_exclude_each_other() {
        // Port 0: always free to look at.
        let options = DevOptions { data: Some("/x".into()), port: 0, ..options() };
        assert!(matches!(run(&options, never), Err(DevError::EphemeralAndData)));
    }
}
