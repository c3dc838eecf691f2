//! Sockets before and beside the loop: listening, connecting, options, who is at the other end.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType,
    connect, getpeername, getsockname, recv, send, sendmsg, socket_with, sockopt,
};
use socket2::{SockRef, Socket, TcpKeepalive};
use weir_core::Peer;

use super::options::{Listen, TcpOptions};

/// Slices sent by one system call at most.
pub const SLICES_MAX: usize = 16;
/// How much a closing socket's unread input is cleared of: unread input would turn its close into a reset, and take
/// the last words on their way to the peer with it.
const DISCARD_BYTES_MAX: usize = 1024 * 1024;

/// A listening socket, ready to accept without blocking, and the file it made.
pub fn listen(listen: &Listen, backlog: i32, tcp: &TcpOptions) -> Result<(OwnedFd, Option<SocketFile>), String> {
    match listen {
        Listen::Tcp(address) => listen_tcp(*address, backlog, tcp.reuse_port)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| (listener.into(), None)))
            .map_err(|error| format!("cannot listen on {address}: {error}")),
        Listen::Passed(fd) => {
            take_passed(*fd).map(|fd| (fd, None)).map_err(|error| format!("cannot listen on descriptor {fd}: {error}"))
        }
        Listen::TakenOver(fd) => {
            let taken = take_passed(*fd).map(|fd| {
                let path = local_path(&fd).filter(|path| !path.starts_with("@"));
                let file = path.and_then(|path| SocketFile::at(&path).ok());
                (fd, file)
            });
            taken.map_err(|error| format!("cannot listen on a socket that was taken over: {error}"))
        }
        Listen::Unix { path, mode, group } => listen_unix(path, *mode, group.as_deref(), backlog)
            .map_err(|error| format!("cannot listen on Unix socket {}: {error}", path.display())),
    }
}

/// One that blocks.
pub fn listen_tcp(address: SocketAddr, backlog: i32, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// A socket that listens already.
fn take_passed(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: it is only looked at, and no longer than this function runs, in which nobody closes it.
    let passed = unsafe { BorrowedFd::borrow_raw(fd) };
    if sockopt::socket_type(passed)? != SocketType::STREAM || !sockopt::socket_acceptconn(passed)? {
        return Err(io::Error::other("it is no stream socket that listens"));
    }
    rustix::io::ioctl_fionbio(passed, true)?;
    // SAFETY: it is open, as was just seen, and nobody else's: the service manager has made it for this process, which takes it once, at its start.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether this machine has the address.
pub fn is_here(address: IpAddr) -> bool {
    std::net::UdpSocket::bind((address, 0)).is_ok()
}

/// `@name` is an abstract socket, as in PostgreSQL's `unix_socket_directories`.
pub fn unix_address(path: &str) -> io::Result<SocketAddrUnix> {
    Ok(match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        None => SocketAddrUnix::new(path)?,
    })
}

fn listen_unix(path: &Path, mode: u32, group: Option<&str>, backlog: i32) -> io::Result<(OwnedFd, Option<SocketFile>)> {
    let text = path.to_str().ok_or_else(|| io::Error::other("the path is not UTF-8"))?;
    let address = unix_address(text)?;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    let is_file = !text.starts_with('@');
    if is_file {
        remove_stale(path, &address)?;
    }
    rustix::net::bind(&fd, &address)?;
    let mut file = None;
    if is_file {
        // At once: who asks later may find the file of another process, and take it for ours.
        file = Some(SocketFile::at(path)?);
        if let Some(group) = group {
            std::os::unix::fs::chown(path, None, Some(group_id(group)?))?;
        }
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    }
    rustix::net::listen(&fd, backlog)?;
    Ok((fd, file))
}

/// A Unix socket's file that we made. The kernel gives its inode to no other file while the socket is open.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)? })
    }

    /// Somebody may have removed it, and another process listen at that name.
    pub fn remove(self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // Whoever removes it in this moment does what we would.
            let _ = std::fs::remove_file(self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Removes a socket that nobody listens on any more; one that answers is somebody's.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    // A connect to any other file is refused too.
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "there is a file of that name, and it is not a socket",
            ));
        }
        Ok(_) => {}
    }
    let probe =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    match connect(&probe, address) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
    }
}

fn group_id(group: &str) -> io::Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    match nix::unistd::Group::from_name(group) {
        Ok(Some(found)) => Ok(found.gid.as_raw()),
        Ok(None) => Err(io::Error::other(format!("there is no group {group}"))),
        Err(errno) => Err(errno.into()),
    }
}

/// Begins to connect. The socket does not block until [`set_blocking`] says so.
pub fn connect_tcp(address: SocketAddr, tcp: &TcpOptions) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let fd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    tune(&fd, tcp);
    match connect(&fd, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(error) => Err(error.into()),
    }
}

/// Connects to a Unix socket, which stands at once or fails at once: `EAGAIN` says that its backlog is full.
pub fn connect_unix(path: &str) -> io::Result<OwnedFd> {
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    connect(&fd, &unix_address(path)?)?;
    Ok(fd)
}

/// io_uring waits for sockets that block and fails on those that do not; epoll never asks.
pub fn set_blocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, false)?)
}

/// Why a connection under way failed, or `None`: it stands.
pub fn connect_error(fd: BorrowedFd<'_>) -> Option<io::Error> {
    match sockopt::socket_error(fd) {
        Ok(Ok(())) => None,
        Ok(Err(error)) | Err(error) => Some(error.into()),
    }
}

/// Sets a TCP socket's options; what a system refuses is a comfort lost, not a reason to lose the connection.
pub fn tune(fd: &OwnedFd, tcp: &TcpOptions) {
    let socket = SockRef::from(fd);
    if socket.set_tcp_nodelay(true).is_err() {
        return; // Not TCP.
    }
    if tcp.keepalive {
        let mut keepalive = TcpKeepalive::new();
        if let Some(idle) = tcp.keepalive_idle {
            keepalive = keepalive.with_time(idle);
        }
        if let Some(interval) = tcp.keepalive_interval {
            keepalive = keepalive.with_interval(interval);
        }
        if let Some(count) = tcp.keepalive_count {
            keepalive = keepalive.with_retries(count);
        }
        let _ = socket.set_tcp_keepalive(&keepalive);
    }
    if tcp.user_timeout.is_some() {
        let _ = socket.set_tcp_user_timeout(tcp.user_timeout);
    }
    if let Some(bytes) = tcp.socket_buffer_bytes {
        let _ = socket.set_recv_buffer_size(bytes);
        let _ = socket.set_send_buffer_size(bytes);
    }
}

/// `tcp_defer_accept`, on a listener.
pub fn defer_accept(fd: &OwnedFd, tcp: &TcpOptions) -> io::Result<()> {
    let Some(wait) = tcp.defer_accept else { return Ok(()) };
    let seconds = libc::c_int::try_from(wait.as_secs()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the option's value is one c_int that outlives the call, and its size is given.
    let result = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(fd),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where a TCP listener listens.
pub fn local_address(fd: &OwnedFd) -> Option<SocketAddr> {
    SocketAddr::try_from(getsockname(fd).ok()?).ok()
}

/// The path that a Unix socket listens on, or `@name`.
pub fn local_path(fd: &OwnedFd) -> Option<PathBuf> {
    let address = SocketAddrUnix::try_from(getsockname(fd).ok()?).ok()?;
    let name = |name: &[u8]| [b"@", name].concat();
    let path = address.path_bytes().map(<[u8]>::to_vec).or_else(|| address.abstract_name().map(name))?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(path)))
}

/// The other end and this end. An end that cannot be told is an unnamed Unix socket.
pub fn ends(fd: BorrowedFd<'_>) -> (Peer, Peer) {
    let peer = getpeername(fd).ok().flatten().and_then(tcp_peer);
    match peer {
        Some(peer) => {
            let local = getsockname(fd).ok().and_then(tcp_peer).unwrap_or(Peer::NOWHERE);
            (peer, local)
        }
        None => {
            // One of another PID namespace has the process 0, which `rustix` has no value for.
            let cred = getsockopt(&fd, PeerCredentials).ok();
            let port = getsockname(fd).ok().and_then(unix_port).unwrap_or(0);
            let uid = cred.map(|cred| cred.uid());
            let pid = cred.and_then(|cred| u32::try_from(cred.pid()).ok()).filter(|pid| *pid > 0);
            (Peer::Unix { uid, pid, port }, Peer::Unix { uid: None, pid: None, port })
        }
    }
}

/// The number at the end of `.s.PGSQL.6432`, the name of the socket that this end listens on.
fn unix_port(address: SocketAddrAny) -> Option<u16> {
    let address = SocketAddrUnix::try_from(address).ok()?;
    let name = address.path_bytes().or_else(|| address.abstract_name())?;
    std::str::from_utf8(name).ok()?.rsplit_once('.')?.1.parse().ok()
}

fn tcp_peer(address: SocketAddrAny) -> Option<Peer> {
    let address = SocketAddr::try_from(address).ok()?;
    let ip = match address.ip() {
        IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4),
        ip @ IpAddr::V4(_) => ip,
    };
    Some(Peer::Tcp { ip, port: address.port() })
}

/// Up to here gathering slices by copying costs less than a vector costs the kernel.
const GATHER_BYTES_MAX: usize = 1024;

/// Sends without waiting; how many bytes went, 0 where the socket is full.
pub fn send_slices(fd: BorrowedFd<'_>, slices: &[&[u8]]) -> io::Result<usize> {
    let total: usize = slices.iter().map(|slice| slice.len()).sum();
    if slices.len() < 2 || total > GATHER_BYTES_MAX {
        return send_vector(fd, slices);
    }
    let mut gathered = [0u8; GATHER_BYTES_MAX];
    let mut end = 0;
    for slice in slices {
        gathered[end..end + slice.len()].copy_from_slice(slice);
        end += slice.len();
    }
    send_vector(fd, &[&gathered[..end]])
}

fn send_vector(fd: BorrowedFd<'_>, slices: &[&[u8]]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        let result = match slices {
            [] => return Ok(0),
            [one] => send(fd, one, flags),
            many => {
                let mut vector = [IoSlice::new(&[]); SLICES_MAX];
                let count = many.len().min(SLICES_MAX);
                for (place, slice) in vector.iter_mut().zip(many) {
                    *place = IoSlice::new(slice);
                }
                sendmsg(fd, &vector[..count], &mut SendAncillaryBuffer::default(), flags)
            }
        };
        match result {
            Ok(sent) => return Ok(sent),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Closes after clearing what is unread, so that the last words arrive.
pub fn close(fd: OwnedFd) {
    let mut scrap = [0u8; 16 * 1024];
    for _ in 0..DISCARD_BYTES_MAX / scrap.len() {
        match recv(fd.as_fd(), &mut scrap, RecvFlags::DONTWAIT) {
            Ok((len, _)) if len == scrap.len() => {}
            _ => break,
        }
    }
}

/// Closes what has not been sent to its end: a peer is not to take that for all there was. (Over a Unix socket it cannot be told.)
pub fn reset(fd: OwnedFd) {
    let _ = SockRef::from(&fd).set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_shared_by_those_that_all_say_so() {
        let on = |port: u16, reuse_port| {
            let tcp = TcpOptions { reuse_port, ..TcpOptions::default() };
            listen(&Listen::Tcp(([127, 0, 0, 1], port).into()), 1, &tcp).map(|(fd, _)| TcpListener::from(fd))
        };
        let first = on(0, true).unwrap();
        let port = first.local_addr().unwrap().port();
        let second = on(port, true).unwrap();
        assert!(
            on(port, false)
                .unwrap_err()
                .starts_with(&format!("cannot listen on 127.0.0.1:{port}: Address already in use"))
        );
        drop((first, second));
        let _alone = on(port, false).unwrap();
        assert!(on(port, true).is_err());
    }

    #[test]
    fn only_a_socket_that_nobody_listens_on_gives_way() {
        let directory = std::env::temp_dir().join(format!("weir-net-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("socket");
        let listen_there =
            || listen(&Listen::Unix { path: path.clone(), mode: 0o700, group: None }, 1, &TcpOptions::default());
        std::fs::write(&path, "a file").unwrap();
        assert!(listen_there().unwrap_err().contains("not a socket"));
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
        std::fs::remove_file(&path).unwrap();
        let first = listen_there().unwrap();
        assert!(listen_there().unwrap_err().contains("another process"));
        drop(first);
        listen_there().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
