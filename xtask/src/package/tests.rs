//! A package as `dpkg-deb` makes it, unpacked and looked at; nothing is installed.

use super::*;

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_package_has_what_its_users_look_for() {
    let folder = Folder(std::env::temp_dir().join(format!("weir-package-{}", std::process::id())));
    fs::create_dir_all(&folder.0).unwrap();
    let program = folder.0.join("program");
    fs::write(&program, "no program").unwrap();
    let root = crate::root();
    make(&root, &program, &folder.0).unwrap();
    let package = fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| shown(&entry.unwrap().path()))
        .find(|path| path.ends_with(".deb"))
        .unwrap();
    let list = said_by("dpkg-deb", &["--contents", &package]).unwrap();
    for file in [
        "-rwxr-xr-x root/root ./usr/bin/weir",
        "-rw-r----- root/root ./etc/weir/userlist.txt",
        "-rw-r--r-- root/root ./usr/lib/systemd/system/weir.service",
        "-rw-r--r-- root/root ./usr/share/man/man5/weir.ini.5",
        "-rw-r--r-- root/root ./usr/share/bash-completion/completions/weir",
    ] {
        let (mode, path) = file.split_once(" ./").unwrap();
        let there = |line: &str| line.starts_with(mode) && line.ends_with(&format!(" ./{path}"));
        assert!(list.lines().any(there), "{file} is not in\n{list}");
    }
    let kept = said_by("dpkg-deb", &["--info", &package, "conffiles"]).unwrap();
    assert_eq!(kept, "/etc/weir/weir.ini\n/etc/weir/userlist.txt\n/etc/logrotate.d/weir");
    assert!(said_by("dpkg-deb", &["--field", &package, "Depends"]).unwrap().starts_with("libc6 (>= 2."));
}

/// The configuration that comes with it is one.
#[test]
fn the_packaged_configuration_loads() {
    let text = fs::read_to_string(crate::root().join("packaging/weir.ini")).unwrap();
    let folder = Folder(std::env::temp_dir().join(format!("weir-packaged-{}", std::process::id())));
    fs::create_dir_all(&folder.0).unwrap();
    let users = folder.0.join("userlist.txt");
    fs::copy(crate::root().join("packaging/userlist.txt"), &users).unwrap();
    let file = folder.0.join("weir.ini");
    fs::write(&file, text.replace("/etc/weir/userlist.txt", &shown(&users))).unwrap();
    let loaded = weir::config::load(&shown(&file))
        .unwrap_or_else(|problems| panic!("{:?}", problems.iter().map(ToString::to_string).collect::<Vec<_>>()));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}
