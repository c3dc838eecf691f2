//! One connection's TLS: bytes in, bytes out. Keeps nothing itself: what rustls wants to send is taken at once.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConnection, Connection, Error, ServerConnection};
use weir_core::contract::{TlsInfo, TlsRole};

use super::certificate;
use super::load::{ALPN, Tls};

/// Asked to name nobody: a host that is no name at all (a Unix socket's path) cannot be verified, only reached.
const NAMELESS: &str = "localhost.invalid";

pub struct Session {
    connection: Connection,
    handshaking: bool,
    direct: bool,
    /// Of our own certificate, when we are the server.
    own_end_point: Option<Vec<u8>>,
    /// Whether the peer's certificate, if it showed one, was checked.
    verifies: bool,
    /// The server's host, when we are the client.
    host: Option<Arc<str>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("handshaking", &self.handshaking).finish_non_exhaustive()
    }
}

/// Why a connection's TLS is over.
#[derive(Debug)]
pub struct Failed {
    /// For the log.
    pub reason: String,
    /// For clients: without the names that a certificate is for, nor those that were asked for.
    pub told: String,
}

impl From<rustls::Error> for Failed {
    fn from(error: rustls::Error) -> Self {
        let told = match &error {
            Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. }) => {
                Error::InvalidCertificate(CertificateError::NotValidForName).to_string()
            }
            other => other.to_string(),
        };
        Self { reason: error.to_string(), told }
    }
}

impl From<String> for Failed {
    fn from(reason: String) -> Self {
        Self { told: reason.clone(), reason }
    }
}

/// What decrypting brought besides bytes.
#[derive(Debug, Default)]
pub struct Progress {
    /// The handshake has just been done.
    pub ready: Option<TlsInfo>,
    /// The peer said that it sends no more.
    pub ended: bool,
}

impl Session {
    pub fn new(tls: &Tls, role: &TlsRole) -> Result<Self, String> {
        match role {
            TlsRole::Accept { direct } => {
                let accept = tls.accept.as_ref().ok_or("no certificate for clients is loaded")?;
                let connection = ServerConnection::new(accept.config.clone()).map_err(|error| error.to_string())?;
                Ok(Self {
                    connection: connection.into(),
                    handshaking: true,
                    direct: *direct,
                    own_end_point: accept.end_point.clone(),
                    verifies: true,
                    host: None,
                })
            }
            TlsRole::Connect { host, direct } => {
                let connect = tls.connect.as_ref().ok_or("TLS towards servers is not set up")?;
                let name = ServerName::try_from(host.to_string())
                    .or_else(|_| ServerName::try_from(NAMELESS))
                    .map_err(|error| error.to_string())?;
                let connection =
                    ClientConnection::new(connect.config.clone(), name).map_err(|error| error.to_string())?;
                Ok(Self {
                    connection: connection.into(),
                    handshaking: true,
                    direct: *direct,
                    own_end_point: None,
                    verifies: connect.verifies,
                    host: Some(host.clone()),
                })
            }
        }
    }

    /// Whom it is with, for the log.
    pub fn peer(&self) -> String {
        self.host.as_ref().map_or_else(|| "a client".to_owned(), |host| format!("server {host}"))
    }

    /// Decrypts all of `bytes` to the end of `plain`. What is to be sent is then in `take_outgoing`, an error's alert too.
    pub fn decrypt(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<Progress, Failed> {
        let mut progress = Progress::default();
        while !bytes.is_empty() && !progress.ended {
            let taken = self.connection.read_tls(&mut bytes).map_err(|error| error.to_string())?;
            let state = self.connection.process_new_packets()?;
            if state.plaintext_bytes_to_read() > 0 {
                let start = plain.len();
                plain.resize(start + state.plaintext_bytes_to_read(), 0);
                self.connection.reader().read_exact(&mut plain[start..]).map_err(|error| error.to_string())?;
            }
            progress.ended = state.peer_has_closed() || taken == 0;
            if self.handshaking && !self.connection.is_handshaking() {
                self.handshaking = false;
                progress.ready = Some(self.finish()?);
            }
        }
        Ok(progress)
    }

    /// Checks what was agreed on.
    fn finish(&self) -> Result<TlsInfo, String> {
        if self.direct && self.connection.alpn_protocol() != Some(ALPN) {
            return Err("direct TLS without the application protocol \"postgresql\"".to_owned());
        }
        let peer = self.connection.peer_certificates().and_then(|chain| chain.first());
        let server_end_point = match &self.connection {
            Connection::Server(_) => self.own_end_point.clone(),
            Connection::Client(_) => peer.and_then(|peer| certificate::end_point(peer)),
        };
        Ok(TlsInfo {
            description: self.description(),
            peer_common_name: peer.filter(|_| self.verifies).and_then(|peer| certificate::common_name(peer)),
            server_end_point,
        })
    }

    fn description(&self) -> String {
        let version = match self.connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLS",
        };
        let suite = self.connection.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
        // rustls writes TLS13_AES_256_GCM_SHA384 for what RFC 8446 and OpenSSL write as TLS_AES_256_GCM_SHA384.
        let suite = suite.unwrap_or_default().replacen("TLS13_", "TLS_", 1);
        format!("{version}/{suite}")
    }

    /// Encrypts to the end of `cipher`.
    pub fn encrypt(&mut self, slices: &[&[u8]], cipher: &mut Vec<u8>) -> Result<(), String> {
        for slice in slices {
            let mut rest = *slice;
            while !rest.is_empty() {
                let taken = self.connection.writer().write(rest).map_err(|error| error.to_string())?;
                if taken == 0 {
                    return Err("TLS takes no more bytes".to_owned());
                }
                rest = &rest[taken..];
                self.take_outgoing(cipher);
            }
        }
        Ok(())
    }

    /// Moves what rustls wants to send to the end of `cipher`.
    pub fn take_outgoing(&mut self, cipher: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // Writing to a vector does not fail.
            if !matches!(self.connection.write_tls(cipher), Ok(written) if written > 0) {
                break;
            }
        }
    }

    /// Says to the peer that nothing more comes.
    pub fn say_goodbye(&mut self, cipher: &mut Vec<u8>) {
        self.connection.send_close_notify();
        self.take_outgoing(cipher);
    }
}
