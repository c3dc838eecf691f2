//! What the clients stand on: a PostgreSQL with two databases of the same kind, and a Weir in front of one of them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_pg::{Cluster, Installation, Options};

use super::people::{Person, ROLES};
use super::session::Session;

/// How long Weir may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const ADMIN_PATIENCE: Duration = Duration::from_secs(30);
/// The database that clients meet at once, and the one that they meet through Weir.
const DATABASES: [&str; 2] = ["direct", "pooled"];

pub struct Ground {
    // Dropped in this order.
    weir: Option<Child>,
    folder: Option<PathBuf>,
    _cluster: Option<Cluster>,
    pub direct: SocketAddr,
    pub pooled: SocketAddr,
    pub version: String,
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A session's first temporary table has PostgreSQL analyse again all that it has prepared, under the parameters of then, since it changes
/// where names are looked up (`SearchPathMatchesCurrentEnvironment`, src/backend/catalog/namespace.c at 18). A server of the pool may get its
/// first from another client (docs/decisions/statements-and-parameters.md): so each, and each session beside it, begins with one.
pub const WARM: &str = "create temp table warm (); drop table warm";

/// More than there ever are at a time.
const SESSIONS: usize = 40;

impl Ground {
    /// A PostgreSQL of this major version if it can be had, and this program in front of it.
    pub fn start(major: u32, weir: &Path, settings: &str) -> Result<Self, String> {
        let installation =
            Installation::preferably(major, &|line| eprintln!("{line}")).map_err(|error| error.to_string())?;
        let options = Options {
            settings: ["max_connections = 100", "fsync = off", "autovacuum = off", "checkpoint_timeout = 30s"]
                .map(str::to_owned)
                .to_vec(),
            hba: vec!["host all all 127.0.0.1/32 trust".to_owned()],
            ..Options::default()
        };
        let cluster = Cluster::start(&installation, options).map_err(|error| error.to_string())?;
        let version = installation.version().to_owned();
        let mut ground = Self {
            weir: None,
            folder: None,
            direct: local(cluster.port()),
            pooled: local(0),
            _cluster: Some(cluster),
            version,
        };
        for database in DATABASES {
            ground.admin("postgres", &format!("create database {database}"))?;
        }
        ground.admin("postgres", ROLES)?;
        ground.start_weir(weir, settings)?;
        Ok(ground)
    }

    /// PostgreSQL and the pooler that are there already: user `postgres`, by trust. The pooler has a database `pooled`.
    pub fn given(direct: SocketAddr, pooled: SocketAddr) -> Result<Self, String> {
        let ground = Self { weir: None, folder: None, direct, pooled, _cluster: None, version: "given".to_owned() };
        for database in DATABASES {
            // It may be there.
            let _ = ground.admin("postgres", &format!("create database {database}"));
        }
        let _ = ground.admin("postgres", ROLES);
        Ok(ground)
    }

    fn start_weir(&mut self, program: &Path, settings: &str) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        let listener = TcpListener::bind(local(0)).map_err(text)?;
        self.pooled = listener.local_addr().map_err(text)?;
        drop(listener);
        let folder = std::env::temp_dir().join(format!("weir-pipelines-{}-{}", std::process::id(), self.pooled.port()));
        fs::create_dir(&folder).map_err(text)?;
        self.folder = Some(folder.clone());
        let (file, users) = (folder.join("weir.ini"), folder.join("userlist.txt"));
        let root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
        let user = if root { "user = nobody\n" } else { "" };
        // With one Weir keeps no session state.
        let keeps = settings.contains("session_state=keep");
        let warm = if keeps { String::new() } else { format!(" connect_query='{WARM}'") };
        let ini = format!(
            "[databases]\npooled = host=127.0.0.1 port={} dbname=pooled{warm}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             admin_users = postgres\n{user}{settings}\n",
            self.direct.port(),
            self.pooled.port(),
            users.display()
        );
        fs::write(&users, "\"postgres\" \"postgres\"\n").map_err(text)?;
        fs::write(&file, ini).map_err(text)?;
        for (path, mode) in [(&folder, 0o755), (&file, 0o644), (&users, 0o644)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(text)?;
        }
        let mut command = Command::new(program);
        command.arg("--quiet").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        self.weir = Some(command.spawn().map_err(|error| format!("{}: {error}", program.display()))?);
        let end = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(self.pooled).is_err() {
            if Instant::now() > end {
                return Err("Weir does not listen".to_owned());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// False once Weir has ended by itself.
    pub fn weir_lives(&mut self) -> bool {
        self.weir.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_none()))
    }

    fn admin(&self, database: &str, sql: &str) -> Result<(), String> {
        let lines = self.ask(database, sql)?;
        match lines.iter().find(|line| line.starts_with("ERROR") || line.starts_with('(')) {
            Some(line) => Err(format!("{sql}: {line}")),
            None => Ok(()),
        }
    }

    /// What each backend of PostgreSQL does, and whom it waits for; and what the pooler makes of its servers and clients.
    pub fn activity(&self) -> Vec<String> {
        let sql = "select concat_ws(' ', pid, datname, state, now() - xact_start, wait_event_type, wait_event, \
                   pg_blocking_pids(pid), query) from pg_stat_activity where backend_type <> 'client backend' or state <> 'idle'";
        let mut lines = self.ask("postgres", sql).unwrap_or_else(|error| vec![error]);
        let console = [("user", "postgres"), ("database", "pgbouncer")];
        match Session::log_in(self.pooled, &console, ADMIN_PATIENCE) {
            Ok(mut session) => {
                session.transcript.take();
                lines.extend(
                    ["show pools", "show servers", "show clients", "show pins"]
                        .iter()
                        .flat_map(|sql| session.query(sql)),
                );
            }
            Err(error) => lines.push(error),
        }
        lines
    }

    fn ask(&self, database: &str, sql: &str) -> Result<Vec<String>, String> {
        let mut session = self.admin_session(database)?;
        Ok(session.query(sql))
    }

    fn admin_session(&self, database: &str) -> Result<Session, String> {
        let parameters = [("user", "postgres"), ("database", database)];
        let mut session = Session::log_in(self.direct, &parameters, ADMIN_PATIENCE)?;
        session.transcript.take();
        Ok(session)
    }

    /// Makes the clients' schemas in both databases, and those of temporary tables, one for each session at a time: PostgreSQL makes one
    /// when it is first needed, and then analyses everything again in every session.
    pub fn settle(&self, people: impl Iterator<Item = Person> + Clone) -> Result<(), String> {
        for database in DATABASES {
            people.clone().try_for_each(|person| self.admin(database, &person.schemas()))?;
            let sessions: Result<Vec<Session>, String> = (0..SESSIONS).map(|_| self.admin_session(database)).collect();
            for mut session in sessions? {
                session.query(WARM);
            }
        }
        Ok(())
    }

    /// Makes what is in this client's schema anew in both databases.
    pub fn reset(&self, person: Person) -> Result<(), String> {
        DATABASES.iter().try_for_each(|database| self.admin(database, &person.setup()))
    }

    pub fn log_in(&self, person: Person, pooled: bool, patience: Duration) -> Result<Session, String> {
        let address = if pooled { self.pooled } else { self.direct };
        let mut parameters = vec![("user", "postgres"), ("database", DATABASES[usize::from(pooled)])];
        let own = person.startup();
        parameters.extend(own.iter().map(|(name, value)| (*name, value.as_str())));
        Session::log_in(address, &parameters, patience)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(child) = &mut self.weir {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}
