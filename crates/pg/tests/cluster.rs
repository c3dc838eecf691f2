//! Real clusters: downloaded once, then started, restarted, killed and recovered.
//!
//! Clients here speak just enough of the protocol to learn that a postmaster answers.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use weir_pg::{Cluster, Error, Installation, KNOWN_MAJORS, Options, Place};

fn installation(major: u32) -> Installation {
    Installation::of_major(major, &|line| eprintln!("{line}")).unwrap()
}

/// SSLRequest (80877103): a postmaster answers with one byte, `N` where it has no certificate.
fn answers(mut stream: impl Read + Write) -> bool {
    let mut answer = [0];
    stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).and_then(|()| stream.read_exact(&mut answer)).is_ok()
        && answer == *b"N"
}

fn answers_on_tcp(cluster: &Cluster) -> bool {
    TcpStream::connect(("127.0.0.1", cluster.port())).is_ok_and(answers)
}

fn answers_on_socket(cluster: &Cluster) -> bool {
    let name = format!(".s.PGSQL.{}", cluster.port());
    // Over a Unix socket SSLRequest is answered `N` too.
    UnixStream::connect(cluster.socket_dir().join(name)).is_ok_and(answers)
}

fn is_running(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_major_starts_and_is_gone_after_drop() {
    // There is no build of 13 for arm64.
    let known = KNOWN_MAJORS.into_iter().filter(|major| *major != 13 || cfg!(target_arch = "x86_64"));
    for major in known {
        let cluster = Cluster::start(&installation(major), Options::default()).unwrap();
        assert_eq!(cluster.installation().major(), major);
        assert!(answers_on_tcp(&cluster), "PostgreSQL {major}");
        assert!(answers_on_socket(&cluster), "PostgreSQL {major}");
        let (pid, folder) = (cluster.pid().unwrap(), cluster.data_dir().to_owned());
        drop(cluster);
        assert!(!is_running(pid));
        assert!(!folder.exists());
    }
}

#[test]
fn restart_keeps_port_and_changes_process() {
    let mut cluster = Cluster::start(&installation(18), Options::default()).unwrap();
    let (port, pid) = (cluster.port(), cluster.pid());
    cluster.restart().unwrap();
    assert_eq!(cluster.port(), port);
    assert_ne!(cluster.pid(), pid);
    assert!(answers_on_tcp(&cluster));
    cluster.stop().unwrap();
    assert!(!answers_on_tcp(&cluster));
    assert!(cluster.has_ended().is_some());
}

#[test]
fn killed_cluster_recovers() {
    let mut cluster = Cluster::start(&installation(18), Options::default()).unwrap();
    cluster.kill_hard();
    assert!(!answers_on_tcp(&cluster));
    assert!(cluster.data_dir().join("postmaster.pid").exists());
    cluster.start_again().unwrap();
    assert!(answers_on_tcp(&cluster));
    let log = std::fs::read_to_string(cluster.log()).unwrap();
    assert!(log.contains("not properly shut down"), "{log}");
}

#[test]
fn kept_folder_is_kept_and_serves_one_at_a_time() {
    let folder = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    open(folder.path());
    let options = Options { place: Place::Folder(folder.path().join("kept")), ..Options::default() };
    let installation = installation(18);
    let cluster = Cluster::start(&installation, options.clone()).unwrap();
    let second = Cluster::start(&installation, options.clone());
    assert!(matches!(second, Err(Error::InUse(_))), "{second:?}");
    let marker = cluster.data_dir().join("marker");
    std::fs::write(&marker, "").unwrap();
    drop(cluster);
    let again = Cluster::start(&installation, options).unwrap();
    assert!(marker.exists());
    assert!(answers_on_tcp(&again));
}

#[test]
fn port_in_use_is_said() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let options = Options { port: Some(port), ..Options::default() };
    let error = Cluster::start(&installation(18), options).unwrap_err();
    assert_eq!(error.to_string(), format!("port {port} is in use by another process"));
}

#[test]
fn wrong_setting_is_said_with_postgresqls_words() {
    let options = Options { settings: vec!["no_such_setting = 1".to_owned()], ..Options::default() };
    let error = Cluster::start(&installation(18), options).unwrap_err().to_string();
    assert!(error.contains("did not start"), "{error}");
    assert!(error.contains("configuration file"), "{error}");
}

#[test]
fn owner_killed_takes_its_cluster_along() {
    let mut owner = std::process::Command::new(env!("CARGO_BIN_EXE_weir-pg"))
        .arg("18")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let mut value =
        |name: &str| lines.find_map(|line| line.strip_prefix(&format!("{name}=")).map(str::to_owned)).unwrap();
    let (sockets, pid, data) = (value("PG_SOCKET_DIR"), value("PG_PID"), value("PG_DATA"));
    let pid: u32 = pid.parse().unwrap();
    assert!(is_running(pid));
    owner.kill().unwrap();
    owner.wait().unwrap();
    eventually("the orphan stops", || !is_running(pid));
    eventually("its sockets' folder is removed", || !Path::new(&sockets).exists());
    eventually("its data are removed", || !Path::new(&data).exists());
}

fn open(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A superuser of PostgreSQL is, on the machine, whoever PostgreSQL runs as: what root writes and gives away in that folder
/// must not be what a link there points to.
#[test]
fn links_in_the_data_folder_lead_root_nowhere() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root has something to lose");
        return;
    }
    let folder = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    open(folder.path());
    let options = Options { place: Place::Folder(folder.path().join("kept")), ..Options::default() };
    // Whatever can be had: no major is meant here.
    let installation = Installation::preferably(18, &|line| eprintln!("{line}")).unwrap();
    let cluster = Cluster::start(&installation, options.clone()).unwrap();
    let data = cluster.data_dir().to_owned();
    drop(cluster);

    let victim = folder.path().join("victim");
    let main = std::fs::read(data.join("postgresql.conf")).unwrap();
    for name in ["weir.conf", "pg_hba.conf", "postgresql.conf", "postmaster.pid", "PG_VERSION"] {
        std::fs::write(&victim, "root's secret\n").unwrap();
        std::fs::set_permissions(&victim, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let kept = std::fs::read(data.join(name)).ok();
        let _ = std::fs::remove_file(data.join(name));
        std::os::unix::fs::symlink(&victim, data.join(name)).unwrap();
        let again = Cluster::start(&installation, options.clone());
        let metadata = std::fs::metadata(&victim).unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "root's secret\n", "{name}");
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&metadata), 0, "{name}");
        let said = again.map_or_else(|error| error.to_string(), |_| String::new());
        assert!(!said.contains("secret"), "{name}: {said}");
        std::fs::remove_file(data.join(name)).unwrap();
        for (name, bytes) in [(name, kept.as_ref()), ("postgresql.conf", Some(&main))] {
            if let Some(bytes) = bytes {
                std::fs::write(data.join(name), bytes).unwrap();
                std::os::unix::fs::chown(
                    data.join(name),
                    Some(std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&data).unwrap())),
                    None,
                )
                .unwrap();
            }
        }
    }
}

#[test]
fn root_keeps_no_data_where_others_can_plant_links() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root has something to lose");
        return;
    }
    let folder = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let installation = Installation::preferably(18, &|line| eprintln!("{line}")).unwrap();
    for (owner, mode) in [(65534, 0o755), (0, 0o777)] {
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(folder.path(), Some(owner), None).unwrap();
        let options = Options { place: Place::Folder(folder.path().join("kept")), ..Options::default() };
        let error = Cluster::start(&installation, options).unwrap_err();
        assert!(matches!(&error, Error::Shared { path, .. } if path == folder.path()), "{error}");
    }
}
