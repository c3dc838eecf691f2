//! Others than PostgreSQL say who a client is: a directory, PAM, name servers. And PostgreSQL says whose member he is.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use postgres::{Client, NoTls};
use tempfile::TempDir;

use super::bench::{DRIVERS, Weir, open_to_all, shared, wait_until, write_for_all};
use super::hba::folder;
use super::parameters::client;
use super::ports::free_port;
use super::tls::certificates_of;

type Told = Result<String, (String, String)>;

/// As whom its statements run, or what its login ends in.
fn logs_in(weir: &Weir, database: &str, user: &str, password: &str) -> Told {
    let url = format!("host=127.0.0.1 port={} dbname={database} user={user} password='{password}'", weir.port);
    match Client::connect(&url, NoTls) {
        Ok(mut client) => Ok(client.query_one("select current_user::text", &[]).unwrap().get(0)),
        Err(error) => {
            let told = error.as_db_error().unwrap_or_else(|| panic!("{user}: {error}"));
            Err((told.code().code().to_owned(), told.message().to_owned()))
        }
    }
}

fn refused(by: &str, user: &str) -> Told {
    Err(("28000".to_owned(), format!("{by} authentication failed for user \"{user}\"")))
}

fn is(user: &str) -> Told {
    Ok(user.to_owned())
}

/// An entry `uid=NAME,ou=people,dc=example,dc=net` for each, whose password is `NAME's`, and one of the same name in another place.
struct Slapd {
    child: Child,
    folder: TempDir,
    port: u16,
    tls_port: u16,
}

impl Slapd {
    fn start(users: &[&str]) -> Self {
        let folder = certificates_of(&[("server", "127.0.0.1")]);
        let path = folder.path().to_owned();
        std::fs::create_dir(path.join("data")).unwrap();
        let at = path.display();
        let schema = |name: &str| format!("include /etc/ldap/schema/{name}.schema\n");
        let schemas: String = ["core", "cosine", "inetorgperson"].map(schema).concat();
        let conf = format!(
            "{schemas}pidfile {at}/slapd.pid\naccess to attrs=userPassword by * auth\naccess to * by dn=\"cn=reader,dc=example,dc=net\" read by anonymous auth\n\
             TLSCACertificateFile {at}/ca.crt\nTLSCertificateFile {at}/server.crt\nTLSCertificateKeyFile {at}/server.key\n\
             database ldif\ndirectory {at}/data\nsuffix \"dc=example,dc=net\"\n"
        );
        std::fs::write(path.join("slapd.conf"), conf).unwrap();
        let unit =
            |name: &str| format!("dn: ou={name},dc=example,dc=net\nobjectClass: organizationalUnit\nou: {name}\n\n");
        let mut entries = "dn: dc=example,dc=net\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n\
             dn: cn=reader,dc=example,dc=net\nobjectClass: organizationalRole\nobjectClass: simpleSecurityObject\ncn: reader\nuserPassword: reads\n\n"
            .to_owned();
        for (place, name) in [("people", None), ("others", Some("ldap_twice"))] {
            entries += &unit(place);
            for user in users.iter().filter(|user| name.is_none_or(|name| name == **user)) {
                entries += &format!(
                    "dn: uid={user},ou={place},dc=example,dc=net\nobjectClass: inetOrgPerson\nuid: {user}\nsn: x\ncn: x\n\
                     mail: {user}@example.net\nuserPassword: {user}'s\n\n"
                );
            }
        }
        std::fs::write(path.join("entries.ldif"), entries).unwrap();
        let added = Command::new("/usr/sbin/slapadd")
            .arg("-f")
            .arg(path.join("slapd.conf"))
            .arg("-l")
            .arg(path.join("entries.ldif"))
            .output();
        let added = added.expect("slapd is installed (scripts/setup test)");
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let (port, tls_port) = (free_port(), free_port());
        let urls = format!("ldap://127.0.0.1:{port} ldaps://127.0.0.1:{tls_port}");
        let log = std::fs::File::create(path.join("slapd.log")).unwrap();
        let mut command = Command::new("/usr/sbin/slapd");
        command.args(["-d", "0", "-h", &urls, "-f"]).arg(path.join("slapd.conf")).stdout(Stdio::null()).stderr(log);
        let mut slapd = Self { child: command.spawn().unwrap(), folder, port, tls_port };
        wait_until("slapd listens", || {
            let ended = slapd.child.try_wait().unwrap();
            assert!(ended.is_none(), "{}", std::fs::read_to_string(path.join("slapd.log")).unwrap());
            [port, tls_port].iter().all(|port| std::net::TcpStream::connect(("127.0.0.1", *port)).is_ok())
        });
        slapd
    }

    /// A Weir that knows the directory's authority, as ldap.conf(5) says.
    fn weir(&self, users: &str, lines: &str) -> Weir {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.env("LDAPTLS_CACERT", self.folder.path().join("ca.crt"));
        Weir::start_as(command, &format!("* = host=127.0.0.1 port={}", shared()), users, lines)
    }
}

impl Drop for Slapd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Roles of PostgreSQL's, whose passwords are theirs in the directory. Tests that run beside each other share them.
fn roles(names: &[&str]) {
    static ONE_AFTER_THE_OTHER: Mutex<()> = Mutex::new(());
    let _first = ONE_AFTER_THE_OTHER.lock().unwrap();
    let mut direct = client(shared(), "");
    for name in names {
        let made = direct.query("select from pg_roles where rolname = $1", &[name]).unwrap();
        if made.is_empty() {
            direct.batch_execute(&format!("create role {name} login password '{name}''s'")).unwrap();
        }
    }
}

const USERS: &str = "\"postgres\" \"postgres\"\n\"ldap_in_file\" \"of the file\"\n";
const SEARCH: &str = "ldapbasedn=\"dc=example,dc=net\" ldapbinddn=\"cn=reader,dc=example,dc=net\" ldapbindpasswd=reads";
const NAME: &str = "ldapprefix=\"uid=\" ldapsuffix=\",ou=people,dc=example,dc=net\"";

const PEOPLE: [&str; 3] = ["ldap_ann", "ldap_in_file", "ldap_twice"];

/// A Weir that asks the directory with these options, one after the other.
struct Asking {
    weir: Weir,
    folder: TempDir,
}

impl Asking {
    fn new(slapd: &Slapd, driver: &str) -> Self {
        let folder = folder("host pgbouncer postgres all trust\n");
        let file = folder.path().join("hba.conf");
        let lines = format!("driver = {driver}\nauth_type = hba\nauth_hba_file = {}", file.display());
        Self { weir: slapd.weir(USERS, &lines), folder }
    }

    fn with(&self, options: &str) -> &Weir {
        let records = format!("host pgbouncer postgres all trust\nhost all all all ldap {options}\n");
        write_for_all(&self.folder.path().join("hba.conf"), &records);
        self.weir.try_client("dbname=pgbouncer").unwrap().simple_query("reload").unwrap();
        &self.weir
    }
}

#[test]
fn a_directory_says_whose_password_is_right() {
    let slapd = Slapd::start(&PEOPLE);
    roles(&PEOPLE);
    let (port, tls_port) = (slapd.port, slapd.tls_port);
    for driver in DRIVERS {
        let asking = Asking::new(&slapd, driver);
        // One of IPv6 that nobody listens at is tried first.
        for options in [
            format!("ldapserver=127.0.0.1 ldapport={port} {NAME}"),
            format!("ldapserver=\"[::1] 127.0.0.1\" \"ldapport\"={port} {NAME} ,ldaptls=1"),
            format!("ldapserver=127.0.0.1 ldapport={tls_port} ldapscheme=ldaps {NAME}"),
            format!("ldapserver=127.0.0.1 ldapport={port} {SEARCH}"),
            format!(
                "ldapserver=127.0.0.1 ldapport={port} {SEARCH} ldaptls=1 ldapsearchfilter=\"(mail=$username@example.net)\""
            ),
            format!(
                "ldapurl=\"ldaps://127.0.0.1:{tls_port}/ou=people,dc=example,dc=net??sub?(|(uid=$username)(mail=$username))\" \
                 ldapbinddn=\"cn=reader,dc=example,dc=net\" ldapbindpasswd=reads"
            ),
        ] {
            let weir = asking.with(&options);
            for user in ["ldap_ann", "ldap_in_file"] {
                assert_eq!(logs_in(weir, "postgres", user, &format!("{user}\\'s")), is(user), "{options}");
                assert_eq!(logs_in(weir, "postgres", user, "wrong"), refused("LDAP", user), "{options}");
                assert_eq!(logs_in(weir, "postgres", user, ""), refused("LDAP", user), "{options}");
            }
            for user in ["ldap_nobody", "*", "ldap_ann)(uid=*"] {
                assert_eq!(logs_in(weir, "postgres", user, "ldap_ann\\'s"), refused("LDAP", user), "{options}");
            }
        }
    }
}

#[test]
fn a_directory_that_cannot_be_asked_lets_nobody_in() {
    let slapd = Slapd::start(&PEOPLE);
    let (port, tls_port) = (slapd.port, slapd.tls_port);
    let asking = Asking::new(&slapd, "epoll");
    for (user, options, why) in [
        ("ldap_ann", format!("ldapserver=127.0.0.1 ldapport={port} ldapscheme=ldaps {NAME}"), "could not begin TLS"),
        ("ldap_ann", format!("ldapserver=127.0.0.1 ldapport={tls_port} {NAME} ldaptls=1"), "could not start TLS"),
        // Its certificate is another host's.
        ("ldap_ann", format!("ldapserver=localhost ldapport={port} {NAME} ldaptls=1"), "could not start TLS"),
        (
            "ldap_ann",
            format!("ldapserver=127.0.0.1 ldapport={} {NAME}", free_port()),
            "could not connect to 127.0.0.1:",
        ),
        // Nobody may search without a name.
        (
            "ldap_ann",
            format!("ldapserver=127.0.0.1 ldapport={port} ldapbasedn=\"dc=example,dc=net\""),
            "\"(uid=ldap_ann)\"",
        ),
        ("ldap_twice", format!("ldapserver=127.0.0.1 ldapport={port} {SEARCH}"), "more than one entry is found"),
    ] {
        let weir = asking.with(&options);
        let said = weir.log().len();
        assert_eq!(logs_in(weir, "postgres", user, &format!("{user}\\'s")), refused("LDAP", user), "{options}");
        wait_until(why, || weir.log()[said..].contains(why));
    }
}

#[test]
fn a_directory_may_say_it_for_all() {
    let slapd = Slapd::start(&PEOPLE);
    let lines = format!(
        "auth_type = ldap\nauth_ldap_options = ldapserver=127.0.0.1,ldapport={} {NAME}\nadmin_users = ldap_ann",
        slapd.port
    );
    let weir = slapd.weir("", &lines);
    assert_eq!(logs_in(&weir, "nowhere", "ldap_ann", "wrong"), refused("LDAP", "ldap_ann"));
    let console = |user: &str| {
        let url = format!("host=127.0.0.1 port={} dbname=pgbouncer user={user} password='{user}\\'s'", weir.port);
        Client::connect(&url, NoTls).and_then(|mut console| console.simple_query("show config"))
    };
    let config = format!("{:?}", console("ldap_ann").unwrap());
    assert!(config.contains("auth_ldap_options") && !config.contains("ldapserver"), "{config}");
    assert!(console("ldap_in_file").is_err());
}

/// Directories that take connections and say nothing, where TLS begins too: whoever asks another one, or none, is answered.
#[test]
fn a_directory_that_says_nothing_holds_up_nobody_else() {
    let slapd = Slapd::start(&PEOPLE);
    roles(&PEOPLE);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for scheme in ["ldap", "ldaps"] {
        let folder = folder(&format!(
            "host all postgres all scram-sha-256\nhost all ldap_ann all ldap ldapserver=127.0.0.1 ldapport={} {NAME}\n\
             host all all all ldap ldapserver=127.0.0.1 ldapport={port} ldapscheme={scheme} {NAME}\n",
            slapd.port
        ));
        let file = folder.path().join("hba.conf");
        let lines =
            format!("auth_type = hba\nauth_hba_file = {}\nclient_login_timeout = 3\nworkers = 1", file.display());
        let weir = slapd.weir(USERS, &lines);
        let url = format!("host=127.0.0.1 port={} dbname=postgres user=somebody password=x", weir.port);
        let waiting: Vec<_> = (0..40)
            .map(|_| {
                let url = url.clone();
                std::thread::spawn(move || Client::connect(&url, NoTls).map(drop))
            })
            .collect();
        wait_until("all of them ask", || weir.log().matches("login attempt: db=postgres user=somebody").count() == 40);
        for _ in 0..5 {
            weir.client().simple_query("select 1").unwrap();
        }
        for client in waiting {
            let error = client.join().unwrap().unwrap_err();
            let told = error.as_db_error().unwrap();
            assert!(told.message().starts_with("client_login_timeout"), "{told:?}");
        }
        // Those that were begun end; those that were not have gone with their clients.
        wait_until("another directory is asked", || {
            logs_in(&weir, "postgres", "ldap_ann", "ldap_ann\\'s") == is("ldap_ann")
        });
    }
}

/// In a namespace in which /etc/pam.d is another folder.
#[test]
fn pam_says_whose_password_is_right() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can give a process services of PAM of its own");
        return;
    }
    roles(&["pam_ann"]);
    let folder = tempfile::Builder::new().prefix("weir-test-pam").tempdir().unwrap();
    let script = folder.path().join("check");
    write_for_all(
        &script,
        "#!/bin/sh\nread -r password\n[ \"$PAM_USER:$password:$PAM_RHOST\" = \"pam_ann:pam_ann's:127.0.0.1\" ]\n",
    );
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    open_to_all(folder.path());
    let service = format!(
        "auth required pam_exec.so quiet expose_authtok {}\naccount required pam_permit.so\n",
        script.display()
    );
    for name in ["pgbouncer", "own"] {
        write_for_all(&folder.path().join(name), &service);
    }
    let hba = folder.path().join("hba.conf");
    write_for_all(&hba, "host all all all pam pamservice=own\n");
    for driver in DRIVERS {
        for method in ["auth_type = pam".to_owned(), format!("auth_type = hba\nauth_hba_file = {}", hba.display())] {
            let mut command = Command::new("unshare");
            let bind = format!("mount --bind {} /etc/pam.d && exec \"$0\" \"$@\"", folder.path().display());
            command.args(["--mount", "sh", "-c", &bind, env!("CARGO_BIN_EXE_weir")]);
            let databases = format!("* = host=127.0.0.1 port={}", shared());
            let weir = Weir::start_as(command, &databases, "", &format!("driver = {driver}\n{method}"));
            assert_eq!(logs_in(&weir, "postgres", "pam_ann", "pam_ann\\'s"), is("pam_ann"), "{method}");
            for (user, password) in [("pam_ann", "wrong"), ("pam_ann", ""), ("pam_bob", "pam_ann\\'s")] {
                assert_eq!(logs_in(&weir, "postgres", user, password), refused("PAM", user), "{method}");
            }
        }
    }
}

#[test]
fn members_of_a_role_are_those_of_postgresql() {
    let mut direct = client(shared(), "");
    direct
        .batch_execute(
            "drop role if exists member_direct, member_indirect, member_none, member_super, member_group, member_inner;
             create role member_group; create role member_inner; create role member_direct login; create role member_indirect login;
             create role member_none login; create role member_super login superuser;
             grant member_group to member_direct, member_inner; grant member_inner to member_indirect;",
        )
        .unwrap();
    let folder = folder(
        "host all postgres all trust\nhost samerole all all trust\nhost all +member_group all reject\nhost all all all trust\n",
    );
    let file = folder.path().join("hba.conf");
    let mut users = USERS.to_owned();
    for user in ["member_direct", "member_indirect", "member_none", "member_super", "member_unknown"] {
        users += &format!("\"{user}\" \"\"\n");
    }
    let databases = format!(
        "postgres = host=127.0.0.1 port={port} user=postgres password=postgres\n\
         member_inner = host=127.0.0.1 port={port} dbname=postgres user=postgres password=postgres",
        port = shared()
    );
    for driver in DRIVERS {
        let lines =
            format!("driver = {driver}\nauth_type = hba\nauth_user = postgres\nauth_hba_file = {}", file.display());
        let weir = Weir::start_with(&databases, &users, &lines);
        let rejected = || Err(("28000".to_owned(), "login rejected".to_owned()));
        for (database, user, expected) in [
            ("postgres", "member_direct", rejected()),
            ("postgres", "member_indirect", rejected()),
            ("postgres", "member_none", is("postgres")),
            ("postgres", "member_super", is("postgres")),
            ("postgres", "member_unknown", is("postgres")),
            ("member_inner", "member_indirect", is("postgres")),
            ("member_inner", "member_direct", rejected()),
        ] {
            assert_eq!(logs_in(&weir, database, user, ""), expected, "{database} {user}");
        }
    }
    direct
        .batch_execute(
            "drop role member_direct, member_indirect, member_none, member_super, member_inner, member_group",
        )
        .unwrap();
}

#[test]
fn a_host_is_known_by_a_name_that_leads_back_to_it() {
    let name = local_name();
    let name = name.to_uppercase();
    let folder = folder(&format!("host all postgres no.such.host.invalid reject\nhost all postgres {name} trust\n"));
    let file = folder.path().join("hba.conf");
    let weir = Weir::start(shared(), &format!("auth_type = hba\nauth_hba_file = {}", file.display()));
    assert_eq!(logs_in(&weir, "postgres", "postgres", ""), is("postgres"));
    write_for_all(&file, "host all postgres no.such.host.invalid trust\n");
    weir.signal(nix::sys::signal::Signal::SIGHUP);
    let none = Err(("28000".to_owned(), "no authentication method is found".to_owned()));
    wait_until("the records are read", || logs_in(&weir, "postgres", "postgres", "") == none);
}

/// What the machine calls 127.0.0.1.
fn local_name() -> String {
    let hosts = Command::new("getent").args(["hosts", "127.0.0.1"]).output().unwrap();
    let text = String::from_utf8(hosts.stdout).unwrap();
    text.split_ascii_whitespace().nth(1).expect("127.0.0.1 has a name").to_owned()
}

#[test]
fn the_password_of_a_forced_user_is_looked_up() {
    let mut direct = client(shared(), "");
    direct
        .batch_execute(
            "drop role if exists forced_looked_up; create role forced_looked_up login password 'hidden';
             drop schema if exists forced_secrets cascade; create schema forced_secrets;
             create table forced_secrets.own (name text, secret text);
             insert into forced_secrets.own values ('forced_looked_up', 'hidden')",
        )
        .unwrap();
    let databases = format!("app = host=127.0.0.1 port={} dbname=postgres user=forced_looked_up", shared());
    for driver in DRIVERS {
        let lines = format!(
            "driver = {driver}\nauth_user = postgres\nauth_query = select name, secret from forced_secrets.own where name = $1"
        );
        let weir = Weir::start_with(&databases, "\"postgres\" \"postgres\"\n\"ann\" \"\"\n", &lines);
        for _ in 0..2 {
            assert_eq!(logs_in(&weir, "app", "ann", ""), is("forced_looked_up"));
        }
    }
    direct.batch_execute("drop schema forced_secrets cascade; drop role forced_looked_up").unwrap();
}

/// What is asked of others is said by `weir check`, too.
#[test]
fn options_that_make_no_directory_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.ini");
    let check = |lines: &str| {
        std::fs::write(&file, format!("[databases]\na = host=h\n[pgbouncer]\nlisten_addr = *\n{lines}")).unwrap();
        said(&file)
    };
    assert!(check("auth_type = ldap\n").contains("auth_type = ldap needs auth_ldap_options"));
    let wrong = check("auth_type = ldap\nauth_ldap_options = ldapserver=a\n");
    assert!(
        wrong.contains("weir.ini:6: error: auth_ldap_options: LDAP needs ldapbasedn, ldapprefix or ldapsuffix"),
        "{wrong}"
    );
    let fine = check("auth_type = ldap\nauth_ldap_options = ldapurl=\"ldap://a/dc=x?uid?sub\"\n");
    assert!(fine.contains("0 errors, 0 warnings"), "{fine}");
}

fn said(file: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("check").arg(file).output().unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}
