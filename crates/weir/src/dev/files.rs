//! The configuration that `weir dev` runs with: an ordinary one, in files that people can read and learn from.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use weir_pg::{Cluster, SUPERUSER};

use super::DevError;

/// Where they are.
#[derive(Debug)]
pub(super) struct Files {
    ini: PathBuf,
    log: PathBuf,
}

impl Files {
    /// Writes them anew into `folder`, beside the data: they follow the options and PostgreSQL's port, and are thrown away
    /// with the data.
    pub(super) fn write(cluster: &Cluster, address: SocketAddr) -> Result<Self, DevError> {
        Self::write_into(cluster.folder(), address, cluster.port(), cluster.password())
    }

    fn write_into(folder: &Path, address: SocketAddr, postgresql_port: u16, password: &str) -> Result<Self, DevError> {
        let (ini, userlist, log) = (folder.join("weir.ini"), folder.join("userlist.txt"), folder.join("weir.log"));
        write_private(&userlist, &userlist_text(password))?;
        write_private(&ini, &ini_text(address, postgresql_port, &userlist, &log))?;
        Ok(Self { ini, log })
    }

    pub(super) fn ini(&self) -> &Path {
        &self.ini
    }

    /// Weir's.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }
}

/// There is a password in it.
fn write_private(path: &Path, text: &str) -> Result<(), DevError> {
    let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> DevError {
    let path = path.to_owned();
    move |source| DevError::Write { path, source }
}

fn userlist_text(password: &str) -> String {
    format!("\"{SUPERUSER}\" \"{password}\"\n")
}

/// Fewer servers than PostgreSQL's default `max_connections` of 100, so that `psql` on its own port still gets in.
fn ini_text(address: SocketAddr, postgresql_port: u16, userlist: &Path, log: &Path) -> String {
    format!(
        "\
; Written anew by every start of weir dev. To keep changes, copy it and run: weir COPY.ini

[databases]
* = host=127.0.0.1 port={postgresql_port}

[pgbouncer]
listen_addr = {ip}
listen_port = {port}
unix_socket_dir =
pool_mode = transaction
auth_type = scram-sha-256
auth_file = {userlist}
logfile = {log}
admin_users = {SUPERUSER}
max_client_conn = 1000
default_pool_size = 20
max_user_connections = 90
",
        ip = address.ip(),
        port = address.port(),
        userlist = userlist.display(),
        log = log.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn address() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 6432))
    }

    #[test]
    fn configuration_is_one_that_weir_takes_without_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::write_into(folder.path(), address(), 5433, "p").unwrap();
        let loaded = crate::config::load(files.ini().to_str().unwrap()).unwrap();
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        assert_eq!(loaded.program.listen_addresses, ["127.0.0.1"]);
        assert_eq!(loaded.program.listen_port, 6432);
        assert_eq!(loaded.program.unix_socket_dir, None);
    }

    #[test]
    fn files_are_private() {
        let folder = tempfile::tempdir().unwrap();
        Files::write_into(folder.path(), address(), 5433, "p").unwrap();
        for name in ["weir.ini", "userlist.txt"] {
            let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}
