//! userlist.txt: users and secrets in quotes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::config::Problems;
use weir::config::userlist::parse;

fuzz_target!(|bytes: &[u8]| {
    let mut problems = Problems::default();
    let secrets = parse("userlist.txt", bytes, &mut problems);
    assert!(secrets.len() <= bytes.len());
});
