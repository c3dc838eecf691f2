//! A configuration file, and the files beside it that it may name: parts of the input, divided by a NUL.
#![no_main]

use std::io;
use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use weir::config::ini::Source;
use weir::config::load::load_from;

struct Files<'a>(Vec<(&'static str, &'a [u8])>);

impl Source for Files<'_> {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let file = self.0.iter().find(|(name, _)| *name == path);
        file.map(|(_, bytes)| bytes.to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn identity(&self, path: &str) -> String {
        path.to_owned()
    }

    /// One folder, `hba.d`, with the last of the files in it.
    fn names_in(&self, path: &str) -> io::Result<Vec<String>> {
        match path {
            "hba.d" => Ok(vec!["more.conf".to_owned()]),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn own_addresses(&self) -> io::Result<Vec<(IpAddr, IpAddr)>> {
        Ok(vec![([127, 0, 0, 1].into(), [255, 0, 0, 0].into())])
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.split(|&byte| byte == 0);
    let names = ["weir.ini", "userlist.txt", "more.ini", "hba.conf", "ident.conf", "hba.d/more.conf"];
    let files = names.map(|name| (name, parts.next().unwrap_or_default())).to_vec();
    match load_from("weir.ini", &mut Files(files)) {
        Ok(loaded) => assert!(!loaded.settings.show_config.is_empty()),
        Err(problems) => assert!(problems.has_errors()),
    }
});
