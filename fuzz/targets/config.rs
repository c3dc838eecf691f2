//! A configuration file, with a userlist.txt and an included file beside it: parts of the input, divided by lines of a single NUL.
#![no_main]

use std::io;

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
}

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.split(|&byte| byte == 0);
    let names = ["weir.ini", "userlist.txt", "more.ini"];
    let files = names.map(|name| (name, parts.next().unwrap_or_default())).to_vec();
    match load_from("weir.ini", &mut Files(files)) {
        Ok(loaded) => assert!(!loaded.settings.show_config.is_empty()),
        Err(problems) => assert!(problems.has_errors()),
    }
});
