//! The Debian package: what it has where, and its control files. `dpkg-deb` puts it together.

mod manual;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap_complete::Shell;

const PROGRAM: u32 = 0o755;
const FILE: u32 = 0o644;
/// It has passwords.
const PRIVATE: u32 = 0o640;

/// What lies in `packaging/`, where it goes, and its mode.
const FILES: [(&str, &str, u32); 9] = [
    ("weir.ini", "etc/weir/weir.ini", PRIVATE),
    ("userlist.txt", "etc/weir/userlist.txt", PRIVATE),
    ("weir.logrotate", "etc/logrotate.d/weir", FILE),
    ("weir.service", "usr/lib/systemd/system/weir.service", FILE),
    ("weir.sysusers", "usr/lib/sysusers.d/weir.conf", FILE),
    ("../LICENSE", "usr/share/doc/weir/copyright", FILE),
    ("debian/postinst", "DEBIAN/postinst", PROGRAM),
    ("debian/prerm", "DEBIAN/prerm", PROGRAM),
    ("debian/postrm", "DEBIAN/postrm", PROGRAM),
];

/// Makes `weir_VERSION_ARCHITECTURE.deb` in the folder, of this program.
pub fn make(root: &Path, weir: &Path, folder: &Path) -> Result<String, String> {
    let tree = Tree { root: folder.join("weir") };
    if tree.root.exists() {
        fs::remove_dir_all(&tree.root).map_err(|error| said("could not remove", &tree.root, &error))?;
    }
    fill(root, weir, &tree)?;
    let architecture = said_by("dpkg", &["--print-architecture"])?;
    let version = env!("CARGO_PKG_VERSION");
    let control = control(version, &architecture, tree.kilobytes()?, &libc()?);
    tree.write("DEBIAN/control", FILE, control.as_bytes())?;
    let kept: Vec<String> =
        FILES.iter().filter(|(_, at, _)| at.starts_with("etc/")).map(|(_, at, _)| format!("/{at}\n")).collect();
    tree.write("DEBIAN/conffiles", FILE, kept.concat().as_bytes())?;
    let package = folder.join(format!("weir_{version}_{architecture}.deb"));
    said_by("dpkg-deb", &["--root-owner-group", "--build", &shown(&tree.root), &shown(&package)])?;
    Ok(format!("made {}", package.display()))
}

fn fill(root: &Path, weir: &Path, tree: &Tree) -> Result<(), String> {
    let program = fs::read(weir).map_err(|error| said("could not read", weir, &error))?;
    tree.write("usr/bin/weir", PROGRAM, &program)?;
    for (from, at, mode) in FILES {
        let from = root.join("packaging").join(from);
        let bytes = fs::read(&from).map_err(|error| said("could not read", &from, &error))?;
        tree.write(at, mode, &bytes)?;
    }
    tree.write("usr/share/man/man1/weir.1", FILE, &manual::program()?)?;
    tree.write("usr/share/man/man5/weir.ini.5", FILE, manual::settings().as_bytes())?;
    for (shell, at) in [
        (Shell::Bash, "usr/share/bash-completion/completions/weir"),
        (Shell::Zsh, "usr/share/zsh/vendor-completions/_weir"),
        (Shell::Fish, "usr/share/fish/vendor_completions.d/weir.fish"),
    ] {
        let mut completions = Vec::new();
        clap_complete::generate(shell, &mut weir::cli::command(), "weir", &mut completions);
        tree.write(at, FILE, &completions)?;
    }
    Ok(())
}

fn control(version: &str, architecture: &str, kilobytes: u64, libc: &str) -> String {
    format!(
        "Package: weir\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: the Weir authors <weir@localhost>\n\
         Installed-Size: {kilobytes}\nDepends: libc6 (>= {libc}), libgcc-s1\nRecommends: ca-certificates, logrotate\nSuggests: libldap-2.5-0, libpam0g\n\
         Section: database\nPriority: optional\nDescription: connection pooler for PostgreSQL\n \
         Many clients, few connections to PostgreSQL, every core. Reads the\n configuration of PgBouncer, and answers its console.\n"
    )
}

/// The package's files, as they are to lie.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn write(&self, at: &str, mode: u32, bytes: &[u8]) -> Result<(), String> {
        let path = self.root.join(at);
        let mut folder = self.root.clone();
        let parents = Path::new(at).parent().into_iter().flat_map(Path::components);
        for part in std::iter::once(None).chain(parents.map(Some)) {
            folder.extend(part);
            fs::create_dir_all(&folder)
                .and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(PROGRAM)))
                .map_err(|error| said("could not make", &folder, &error))?;
        }
        fs::write(&path, bytes)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
            .map_err(|error| said("could not write", &path, &error))
    }

    fn kilobytes(&self) -> Result<u64, String> {
        let told = said_by("du", &["-sk", "--apparent-size", &shown(&self.root)])?;
        told.split_whitespace().next().and_then(|word| word.parse().ok()).ok_or(told)
    }
}

/// The one that this was built with: an older one may lack what it needs.
fn libc() -> Result<String, String> {
    let told = said_by("getconf", &["GNU_LIBC_VERSION"])?;
    told.rsplit(' ').next().map(str::to_owned).ok_or(told)
}

fn said_by(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("could not run {program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(format!("{program}: {}", text(&output.stderr))) }
}

fn said(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("{what} {}: {error}", path.display())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests;
