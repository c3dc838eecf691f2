//! Whoever has started the process, where that wants to know how it goes (`sd_notify(3)`, a unit of `Type=notify`).
//!
//! Nothing waits for it: `sd_notify::notify` would, where it reads no more.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use sd_notify::NotifyState;

/// Nobody else hears of it, and where it cannot be told there is nobody to tell that either.
pub fn tell(states: &[NotifyState<'_>]) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    let _ = tell_at(&place, &text);
}

fn tell_at(place: &OsStr, text: &str) -> io::Result<()> {
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(text.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn one_that_reads_no_more_is_not_waited_for() {
        let name = format!("weir-manager-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let place = OsString::from(format!("@{name}"));
        tell_at(&place, "READY=1\n").unwrap();
        let mut text = [0; 64];
        let length = manager.recv(&mut text).unwrap();
        assert_eq!(&text[..length], b"READY=1\n");
        let full = (0..100_000).find_map(|_| tell_at(&place, "RELOADING=1\n").err());
        assert_eq!(full.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
    }
}
