//! Connections to servers: names, addresses in turn, until one stands.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use weir_core::ConnId;
use weir_core::contract::{Endpoint, Input};

use super::super::connect::Attempt;
use super::super::machine::Machine;
use super::super::net;
use super::super::sockets::Sockets;
use super::super::transport::{Place, Transport};
use super::{Deferred, Engine};

impl<M: Machine, S: Sockets> Engine<M, S> {
    /// `Output::Connect`.
    pub(super) fn connect(&mut self, id: ConnId, endpoint: Endpoint) {
        let mut attempt = Attempt {
            generation: id.generation,
            socket: None,
            addresses: [].into(),
            target: String::new(),
            closing: false,
        };
        match endpoint {
            Endpoint::Unix { path } => {
                attempt.target = path.to_string();
                self.transports.put(id, Place::Connecting(Box::new(attempt)));
                if let Err(reason) = self.begin(id, net::connect_unix(&path)) {
                    self.connect_failed(id, reason);
                }
            }
            Endpoint::Tcp { host, port } => {
                attempt.target = format!("{host}:{port}");
                let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
                if let Ok(ip) = bare.parse::<IpAddr>() {
                    attempt.addresses.push_back(SocketAddr::new(ip, port));
                    self.transports.put(id, Place::Connecting(Box::new(attempt)));
                    self.try_addresses(id, String::new());
                } else {
                    self.transports.put(id, Place::Connecting(Box::new(attempt)));
                    self.around.background.resolve(self.own_mailbox(), id, host, port);
                }
            }
        }
    }

    /// `Letter::Resolved`.
    pub(super) fn resolved(&mut self, id: ConnId, result: Result<Vec<SocketAddr>, String>) {
        let Some(attempt) = self.transports.connecting(id) else { return };
        match result {
            Ok(addresses) => {
                attempt.addresses = addresses.into();
                self.try_addresses(id, String::new());
            }
            Err(reason) => self.connect_failed(id, reason),
        }
    }

    /// Begins with the next address that can be begun with.
    fn try_addresses(&mut self, id: ConnId, mut reason: String) {
        while let Some(address) = self.transports.connecting(id).and_then(|attempt| attempt.addresses.pop_front()) {
            match self.begin(id, net::connect_tcp(address, &self.around.tcp)) {
                Ok(()) => return,
                Err(error) => reason = error,
            }
        }
        self.connect_failed(id, reason);
    }

    fn begin(&mut self, id: ConnId, fd: std::io::Result<OwnedFd>) -> Result<(), String> {
        let socket = fd.and_then(|fd| self.sockets.begin_connect(id, fd));
        let Some(attempt) = self.transports.connecting(id) else { return Ok(()) };
        match socket {
            Ok(socket) => {
                attempt.socket = Some(socket);
                Ok(())
            }
            Err(error) => Err(sentence(&attempt.target, &error)),
        }
    }

    fn connect_failed(&mut self, id: ConnId, reason: String) {
        self.transports.take(id);
        self.deferred.push_back(Deferred::ConnectFailed(id, reason));
    }

    /// The system has made up its mind about an address.
    pub(super) fn connectable(&mut self, id: ConnId) {
        let Some(attempt) = self.transports.connecting(id) else { return };
        let Some(mut socket) = attempt.socket.take() else { return };
        let Some(fd) = self.sockets.fd(&socket) else {
            return self.connect_failed(id, "its socket has no descriptor".to_owned());
        };
        let (error, ends) = (net::connect_error(fd), net::ends(fd));
        match error.map_or_else(|| self.sockets.connected(id, &mut socket), Err) {
            Ok(()) => {
                let (peer, local) = ends;
                self.transports.put(id, Place::Open(Transport::new(id.generation, socket)));
                self.input(Input::Connected { conn: id, peer, local });
            }
            Err(error) => {
                let reason = sentence(&attempt.target, &error);
                drop(self.sockets.dismantle(socket));
                self.try_addresses(id, reason);
            }
        }
    }

    /// `Output::Close` of a connection under way.
    pub(super) fn close_attempt(&mut self, id: ConnId) {
        let Some(attempt) = self.transports.connecting(id) else { return };
        if std::mem::replace(&mut attempt.closing, true) {
            return;
        }
        attempt.addresses.clear();
        let is_quiet = match &mut attempt.socket {
            Some(socket) => self.sockets.retire(id, socket),
            None => true,
        };
        if is_quiet {
            self.attempt_retired(id);
        }
    }

    pub(super) fn attempt_retired(&mut self, id: ConnId) {
        if self.transports.connecting(id).is_none() {
            return;
        }
        if let Place::Connecting(attempt) = self.transports.take(id)
            && let Some(socket) = attempt.socket
        {
            drop(self.sockets.dismantle(socket));
        }
        self.deferred.push_back(Deferred::Closed(id));
    }
}

fn sentence(target: &str, error: &std::io::Error) -> String {
    let text = error.to_string();
    // The errno's number says nothing that its text does not.
    let text = text.split(" (os error").next().unwrap_or(&text);
    format!("could not connect to {target}: {text}")
}
