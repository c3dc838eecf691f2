//! Whose a connection is, as the machine says that it comes from (RFC 1413).

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

const PORT: u16 = 113;
/// For all of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// A reply has at most a thousand (RFC 1413, 3).
const REPLY_BYTES_MAX: usize = 1000;

pub fn owner_of(theirs: SocketAddr, ours: SocketAddr) -> io::Result<String> {
    ask(theirs, ours, PORT)
}

fn ask(theirs: SocketAddr, ours: SocketAddr, port: u16) -> io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let left = || Some(until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
    let mut socket = Socket::new(Domain::for_address(theirs), Type::STREAM, None)?;
    // From where it was connected to: the port alone says little.
    socket.bind(&SocketAddr::new(ours.ip(), 0).into())?;
    socket.connect_timeout(&SocketAddr::new(theirs.ip(), port).into(), PATIENCE)?;
    socket.set_write_timeout(left())?;
    write!(socket, "{} , {}\r\n", theirs.port(), ours.port())?;
    let mut reply = Vec::new();
    while !reply.contains(&b'\n') && reply.len() < REPLY_BYTES_MAX {
        let mut piece = [0; REPLY_BYTES_MAX];
        socket.set_read_timeout(left())?;
        match socket.read(&mut piece)? {
            0 => break,
            count => reply.extend_from_slice(&piece[..count]),
        }
    }
    let owner = owner(&reply, theirs.port(), ours.port());
    owner.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it does not say"))
}

/// `PORT , PORT : USERID : SYSTEM : USER`
fn owner(reply: &[u8], theirs: u16, ours: u16) -> Option<String> {
    let line = std::str::from_utf8(reply).ok()?.split(['\r', '\n']).next()?;
    let mut parts = line.splitn(4, ':');
    let (ports, kind, _system, user) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let (first, second) = ports.split_once(',')?;
    let same = first.trim().parse() == Ok(theirs) && second.trim().parse() == Ok(ours);
    let user = user.trim();
    (same && kind.trim() == "USERID" && !user.is_empty()).then(|| user.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn a_reply_says_who_it_is() {
        for (reply, expected) in [
            ("6193, 23 : USERID : UNIX : stjohns\r\n", Some("stjohns")),
            ("6193,23:USERID:UNIX,US-ASCII:ann", Some("ann")),
            ("6193 , 23 : USERID : OTHER : a:b\r\nmore", Some("a:b")),
            ("6193, 24 : USERID : UNIX : ann\r\n", None),
            ("23, 6193 : USERID : UNIX : ann\r\n", None),
            ("6193, 23 : ERROR : HIDDEN-USER\r\n", None),
            ("6193, 23 : ERROR : UNIX : ann\r\n", None),
            ("6193, 23 : USERID : UNIX :  \r\n", None),
            ("", None),
            ("\r\n6193, 23 : USERID : UNIX : ann", None),
        ] {
            assert_eq!(owner(reply.as_bytes(), 6193, 23).as_deref(), expected, "{reply:?}");
        }
        assert_eq!(owner(b"6193, 23 : USERID : UNIX : \xff", 6193, 23), None);
    }

    #[test]
    fn the_machine_is_asked_about_the_ports() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let machine = thread::spawn(move || {
            let (mut socket, from) = listener.accept().unwrap();
            let mut asked = [0; 64];
            let length = socket.read(&mut asked).unwrap();
            for piece in ["50001 , 6432 : USE", "RID : UNIX : ann\r\n"] {
                socket.write_all(piece.as_bytes()).unwrap();
            }
            (String::from_utf8_lossy(&asked[..length]).into_owned(), from.ip())
        });
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(ask(at(50001), at(6432), port).unwrap(), "ann");
        assert_eq!(machine.join().unwrap(), ("50001 , 6432\r\n".to_owned(), at(0).ip()));
        assert!(ask(at(50001), at(6432), port).is_err(), "nobody is there any more");
    }
}
