//! The first packet of a connection. What parses is written again and must come out as the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_wire::{Startup, write};

fuzz_target!(|bytes: &[u8]| {
    let Some((length, body)) = bytes.split_first_chunk::<4>() else { return };
    let Ok(length) = Startup::packet_len(length) else { return };
    let Some(body) = body.get(..length - 4) else { return };
    let Ok(startup) = Startup::parse(body) else { return };
    let mut written = Vec::new();
    match &startup {
        Startup::Tls => write::ssl_request(&mut written),
        Startup::Cancel { process_id, key } => write::cancel_request(&mut written, *process_id, key),
        Startup::Session { version, parameters } if version.major() == 3 => {
            write::startup(&mut written, *version, parameters);
        }
        // Nobody writes these.
        Startup::Session { .. } | Startup::GssEncryption => return,
    }
    assert_eq!(written, bytes[..length]);
});
