//! The ends of connections, and TLS between them.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Peer {
    Tcp {
        ip: IpAddr,
        port: u16,
    },
    /// A Unix socket: the peer's user and process, where the system tells them, and the number that the socket's name ends with.
    Unix {
        uid: Option<u32>,
        pid: Option<u32>,
        port: u16,
    },
}

impl Peer {
    /// Nothing is known of it.
    pub const NOWHERE: Self = Self::Unix { uid: None, pid: None, port: 0 };
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A host name or an address; the driver resolves names.
    Tcp { host: Arc<str>, port: u16 },
    /// The whole path of the socket, or `@name` for an abstract one.
    Unix { path: Arc<str> },
}

/// Which side of a TLS handshake to play, with which of the settings' certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsRole {
    /// Towards a client. `direct`: the client began without SSLRequest, so ALPN must agree on `postgresql`.
    Accept { direct: bool },
    /// Towards a server; `host` is what verify-full compares with the certificate.
    Connect { host: Arc<str>, direct: bool },
}

/// What a finished handshake is worth knowing for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TlsInfo {
    /// Protocol and cipher suite, as SHOW CLIENTS prints them: `TLSv1.3/TLS_AES_256_GCM_SHA384`.
    pub description: String,
    /// The common name of the peer's certificate, where one was presented and verified.
    pub peer_common_name: Option<String>,
    /// `tls-server-end-point` channel binding (RFC 5929): the hash of the server's certificate.
    pub server_end_point: Option<Vec<u8>>,
}
