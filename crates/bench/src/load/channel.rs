//! A socket with or without TLS: bytes in, bytes out, blocking or not.
//!
//! Does not know what the bytes mean, but for the one that answers an SSLRequest.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use anyhow::{Context, Result};
use nix::libc::EINPROGRESS;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::IpBindAddressNoPort;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};
use socket2::{Domain, Socket, Type};

use super::tls;

pub struct Channel {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Plain bytes that the socket did not take yet.
    unsent: Vec<u8>,
}

impl Channel {
    /// Connects; a channel that does not block may not be connected yet, and is writable when it is.
    pub fn connect(port: u16, source: Ipv4Addr, blocking: bool) -> Result<Channel> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).context("no socket")?;
        if source != Ipv4Addr::LOCALHOST {
            // Each source address has ports of its own, and connect chooses among them: bind would take one from all
            // connections of that address, also those that have ended a moment ago.
            setsockopt(&socket, IpBindAddressNoPort, &true).context("cannot set IP_BIND_ADDRESS_NO_PORT")?;
            socket.bind(&SocketAddr::from((source, 0)).into()).with_context(|| format!("cannot bind {source}"))?;
        }
        socket.set_tcp_nodelay(true).context("cannot set TCP_NODELAY")?;
        socket.set_nonblocking(!blocking).context("cannot set O_NONBLOCK")?;
        match socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(EINPROGRESS) => {}
            Err(error) => return Err(error).context("cannot connect"),
        }
        Ok(Channel { socket: socket.into(), tls: None, unsent: Vec::new() })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The error that ended an attempt to connect.
    pub fn connected(&self) -> Result<()> {
        match self.socket.take_error().context("a socket without a state")? {
            Some(error) => Err(error).context("cannot connect"),
            None => Ok(()),
        }
    }

    /// From now on all bytes are encrypted.
    pub fn start_tls(&mut self, config: &Arc<ClientConfig>) -> Result<()> {
        self.tls = Some(Box::new(tls::connection(config)?));
        self.flush()
    }

    pub fn resumed(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.handshake_kind() == Some(HandshakeKind::Resumed))
    }

    /// Bytes are sent, or kept until `flush`.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        if self.tls.is_none() {
            if self.unsent.is_empty() {
                let sent = some(self.socket.write(bytes)).context("cannot send")?.unwrap_or(0);
                bytes = &bytes[sent..];
            }
            self.unsent.extend_from_slice(bytes);
            return if bytes.is_empty() { Ok(()) } else { self.flush() };
        }
        while !bytes.is_empty() {
            let Some(tls) = &mut self.tls else { break };
            // rustls takes what its buffer has room for, and the socket empties it.
            let taken = tls.writer().write(bytes).context("TLS takes no bytes")?;
            bytes = &bytes[taken..];
            self.flush()?;
        }
        Ok(())
    }

    pub fn flush(&mut self) -> Result<()> {
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                if some(tls.write_tls(&mut self.socket)).context("cannot send")?.is_none() {
                    break;
                }
            }
            return Ok(());
        }
        while !self.unsent.is_empty() {
            let Some(sent) = some(self.socket.write(&self.unsent)).context("cannot send")? else { break };
            self.unsent.drain(..sent);
        }
        if self.unsent.is_empty() {
            self.unsent = Vec::new();
        }
        Ok(())
    }

    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// `None`: nothing there yet. `Some(0)`: the other side has closed.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        let Some(tls) = &mut self.tls else {
            return some(self.socket.read(buffer)).context("cannot receive");
        };
        loop {
            if let Some(count) = some(tls.reader().read(buffer)).context("TLS ended badly")? {
                return Ok(Some(count));
            }
            match some(tls.read_tls(&mut self.socket)).context("cannot receive")? {
                None => return Ok(None),
                Some(0) => return Ok(Some(0)),
                Some(_) => {}
            }
            tls.process_new_packets().context("TLS was refused")?;
            while tls.wants_write() {
                if some(tls.write_tls(&mut self.socket)).context("cannot send")?.is_none() {
                    break;
                }
            }
        }
    }
}

/// `None` where the socket would block.
fn some(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}
