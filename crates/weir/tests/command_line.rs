//! The built program, from its command line: exit codes, and what is printed where.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory that goes away.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-command-line-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// For its owner alone, as secrets should be.
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
        self.allow(name, 0o600);
    }

    fn allow(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.0.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn weir(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).current_dir(directory).output().unwrap()
}

fn texts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn version_and_help() {
    let here = Path::new(".");
    let (code, out, _) = texts(&weir(here, &["--version"]));
    assert_eq!((code, out.lines().next()), (0, Some("Weir 0.1.0")));
    assert_eq!(texts(&weir(here, &["-V"])).1, out);
    let (code, out, _) = texts(&weir(here, &["--help"]));
    assert_eq!(code, 0);
    for word in ["--daemon", "--quiet", "--verbose", "--user", "--version", "check", "dev", "lab", "advise"] {
        assert!(out.contains(word), "{word} is missing in {out}");
    }
}

#[test]
fn wrong_command_lines_end_with_one() {
    let here = Path::new(".");
    for (arguments, expected) in [
        (&[][..], "no configuration file specified"),
        (&["--nonsense"], "unexpected argument '--nonsense'"),
        (&["none.ini"], "none.ini: error: could not read file \"none.ini\""),
        (&["check", "none.ini"], "none.ini: error: could not read file \"none.ini\""),
    ] {
        let (code, _, err) = texts(&weir(here, arguments));
        assert_eq!(code, 1, "{arguments:?}: {err}");
        assert!(err.contains(expected), "{arguments:?}: {err}");
    }
}

#[test]
fn check_says_all_and_counts() {
    let scratch = Scratch::new("check");
    scratch.write("users", "\"u\" \"p\"\n");
    scratch.write("good.ini", "[databases]\nd = host=h\n[pgbouncer]\nauth_file = users\nsbuf_loopcnt = 4\n");
    let good = texts(&weir(&scratch.0, &["check", "good.ini"]));
    let warning = "good.ini:5: warning: sbuf_loopcnt has no effect: every socket with something to read has its turn in each round\n";
    assert_eq!(good, (0, "good.ini: 0 errors, 1 warning\n".to_owned(), warning.to_owned()));

    scratch.write("bad.ini", "[pgbouncer]\nauth_file = users\npool_mod = session\nlisten_port = 0\n");
    let (code, out, err) = texts(&weir(&scratch.0, &["check", "bad.ini"]));
    assert_eq!((code, out.as_str()), (1, "bad.ini: 2 errors, 0 warnings\n"));
    assert_eq!(
        err,
        "bad.ini:3: error: unknown setting \"pool_mod\": the nearest known one is \"pool_mode\"\n\
         bad.ini:4: error: invalid value \"0\" for listen_port: expected a whole number from 1 to 65535\n"
    );
}

#[test]
fn check_tries_tls() {
    let scratch = Scratch::new("tls");
    let made = || rcgen::generate_simple_self_signed(["weir.test".to_owned()]).unwrap();
    let (one, other) = (made(), made());
    scratch.write("users", "\"u\" \"p\"\n");
    scratch.write("cert.pem", &one.cert.pem());
    scratch.write("key.pem", &one.signing_key.serialize_pem());
    scratch.write("other.pem", &other.signing_key.serialize_pem());
    let ini = |key: &str| {
        format!(
            "[databases]\nd = host=h\n[pgbouncer]\nauth_file = users\nclient_tls_sslmode = require\nclient_tls_cert_file = cert.pem\nclient_tls_key_file = {key}\n"
        )
    };
    scratch.write("fits.ini", &ini("key.pem"));
    scratch.write("misfit.ini", &ini("other.pem"));
    scratch.write("none.ini", &ini("cert.pem"));
    assert_eq!(
        texts(&weir(&scratch.0, &["check", "fits.ini"])),
        (0, "fits.ini: 0 errors, 0 warnings\n".to_owned(), String::new())
    );
    for name in ["users", "key.pem", "cert.pem"] {
        scratch.allow(name, 0o644);
    }
    let (code, out, err) = texts(&weir(&scratch.0, &["check", "fits.ini"]));
    let says = |name: &str, file: &str| {
        format!("fits.ini: warning: {name} \"{file}\" holds secrets, and everybody on this machine can read it\n")
    };
    assert_eq!((code, out.as_str()), (0, "fits.ini: 0 errors, 2 warnings\n"));
    assert_eq!(err, says("client_tls_key_file", "key.pem") + &says("auth_file", "users"));
    scratch.allow("users", 0o640);
    scratch.allow("key.pem", 0o640);
    let (code, out, err) = texts(&weir(&scratch.0, &["check", "misfit.ini"]));
    assert_eq!((code, out.as_str()), (1, "misfit.ini: 1 error, 0 warnings\n"));
    assert!(err.starts_with("misfit.ini: error: ") && err.contains("cert.pem"), "{err}");
    let (code, _, err) = texts(&weir(&scratch.0, &["check", "none.ini"]));
    let expected = "none.ini:7: error: client_tls_key_file \"cert.pem\" holds no unencrypted private key in PEM form\n";
    assert_eq!((code, err.as_str()), (1, expected));
}

#[test]
fn the_example_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (code, out, err) = texts(&weir(&root, &["check", "etc/weir.ini"]));
    // The example is for everybody to read, its secrets too.
    let warning = "etc/weir.ini: warning: auth_file \"etc/userlist.txt\" holds secrets, and everybody on this machine can read it\n";
    assert_eq!((code, out.as_str(), err.as_str()), (0, "etc/weir.ini: 0 errors, 1 warning\n", warning));
}

#[test]
fn the_background_needs_files() {
    let scratch = Scratch::new("background");
    scratch.write("users", "\"u\" \"p\"\n");
    scratch.write(
        "weir.ini",
        "[databases]\nd = host=h\n[pgbouncer]\nauth_file = users\nlisten_addr =\nunix_socket_dir = @weir-none\n",
    );
    let is_root = nix::unistd::geteuid().is_root();
    let user = if is_root { "nobody" } else { "" };
    let arguments: Vec<&str> = if is_root { vec!["-d", "-u", user, "weir.ini"] } else { vec!["-d", "weir.ini"] };
    let (code, _, err) = texts(&weir(&scratch.0, &arguments));
    assert_eq!((code, err.as_str()), (1, "weir: --daemon needs pidfile in the configuration file\n"));
    if is_root {
        let (code, _, err) = texts(&weir(&scratch.0, &["weir.ini"]));
        let expected = "weir: Weir should not run as root: name another user with --user, or with user in the configuration file\n";
        assert_eq!((code, err.as_str()), (1, expected));
    }
}

/// Weir's program in a folder of its own, with nothing beside it. A link: what was just written, a test beside may hold open.
fn alone() -> (tempfile::TempDir, impl Fn(&[&str]) -> Command) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("weir");
    std::fs::hard_link(env!("CARGO_BIN_EXE_weir"), &program).unwrap();
    let path = folder.path().to_path_buf();
    let command = move |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).current_dir(&path).env("PATH", &path).env_remove("WEIR");
        command
    };
    (folder, command)
}

#[test]
fn lab_and_advise_are_the_program_beside() {
    let (folder, weir) = alone();
    let lab = folder.path().join("weir-lab");
    let said = |mut command: Command| texts(&command.output().unwrap());
    std::os::unix::fs::symlink("/bin/echo", &lab).unwrap();
    assert_eq!(said(weir(&["lab", "run", "--quick", "-h"])), (0, "run --quick -h\n".to_owned(), String::new()));
    assert_eq!(said(weir(&["advise", "--help"])), (0, "advise --help\n".to_owned(), String::new()));

    std::fs::remove_file(&lab).unwrap();
    std::os::unix::fs::symlink("/usr/bin/env", &lab).unwrap();
    let own = format!("WEIR={}\n", folder.path().join("weir").display());
    assert!(said(weir(&["lab"])).1.contains(&own), "it measures the Weir that ran it");
    let mut command = weir(&["lab"]);
    command.env("WEIR", "/another");
    assert!(said(command).1.contains("WEIR=/another\n"));
}

#[test]
fn a_missing_lab_is_said() {
    let (_folder, weir) = alone();
    for word in ["lab", "advise"] {
        let (code, out, error) = texts(&weir(&[word]).output().unwrap());
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(error.starts_with("weir: the lab is a program of its own, weir-lab, and"), "{error}");
        assert!(error.contains("`make build` builds both"), "{error}");
    }
}
