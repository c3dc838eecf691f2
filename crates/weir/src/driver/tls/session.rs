//! One connection's TLS: bytes in, bytes out. An idle one holds no bytes, only its keys: rustls without buffers of its own.

use std::fmt;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CertificateError, CommonState, Error};
use weir_core::contract::{TlsInfo, TlsRole};

use super::certificate;
use super::load::{ALPN, Tls};

/// Asked to name nobody: a host that is no name at all (a Unix socket's path) cannot be verified, only reached.
const NAMELESS: &str = "localhost.invalid";

/// More bytes than this never wait for the rest of what they belong to: no record is longer, nor a handshake message that comes in
/// several.
const REST_BYTES_MAX: usize = 0xffff;
/// What a record is larger than its contents, at most: its header, TLS 1.2's explicit nonce, the authentication tag.
const RECORD_OVERHEAD: usize = 5 + 8 + 17;
/// What a record holds, at most (RFC 8446, 5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;
/// Larger than a close_notify is in any suite.
const GOODBYE_BYTES: usize = 64;

pub struct Session {
    connection: Connection,
    /// Received: the beginning of what has not come to its end yet.
    rest: Vec<u8>,
    /// Of the handshake, to be sent.
    outgoing: Vec<u8>,
    handshaking: bool,
    /// It has told its peer so, and says and takes nothing more.
    failed: bool,
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

enum Connection {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// What is to be done once the handshake is over.
enum Wish<'a> {
    Nothing,
    Encrypt(&'a [u8]),
    Goodbye,
}

enum Step {
    /// There may be more to do.
    GoesOn,
    /// There is nothing to do until more comes.
    Waits,
    PeerEnded,
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
                let connection =
                    UnbufferedServerConnection::new(accept.config.clone()).map_err(|error| error.to_string())?;
                Ok(Self {
                    own_end_point: accept.end_point.clone(),
                    ..Self::begun(Connection::Server(connection), *direct)
                })
            }
            TlsRole::Connect { host, direct } => {
                let connect = tls.connect.as_ref().ok_or("TLS towards servers is not set up")?;
                let name = ServerName::try_from(host.to_string())
                    .or_else(|_| ServerName::try_from(NAMELESS))
                    .map_err(|error| error.to_string())?;
                let connection =
                    UnbufferedClientConnection::new(connect.config.clone(), name).map_err(|error| error.to_string())?;
                Ok(Self {
                    verifies: connect.verifies,
                    host: Some(host.clone()),
                    ..Self::begun(Connection::Client(connection), *direct)
                })
            }
        }
    }

    fn begun(connection: Connection, direct: bool) -> Self {
        Self {
            connection,
            rest: Vec::new(),
            outgoing: Vec::new(),
            handshaking: true,
            failed: false,
            direct,
            own_end_point: None,
            verifies: true,
            host: None,
        }
    }

    /// Whom it is with, for the log.
    pub fn peer(&self) -> String {
        self.host.as_ref().map_or_else(|| "a client".to_owned(), |host| format!("server {host}"))
    }

    /// Decrypts all of `bytes` to the end of `plain`; `scratch` is any buffer. What is to be sent is then in `take_outgoing`, an
    /// error's alert too.
    pub fn decrypt(&mut self, bytes: &[u8], scratch: &mut Vec<u8>, plain: &mut Vec<u8>) -> Result<Progress, Failed> {
        if self.failed {
            return Ok(Progress::default());
        }
        scratch.clear();
        scratch.append(&mut std::mem::take(&mut self.rest));
        scratch.extend_from_slice(bytes);
        let (used, result) = self.connection.run(scratch, Wish::Nothing, plain, &mut self.outgoing);
        let rest = &mut scratch[used..];
        let result = result.map_err(Failed::from).and_then(|ended| {
            if rest.len() > REST_BYTES_MAX {
                return Err("a TLS message that is too long".to_owned().into());
            }
            let has_ended = self.handshaking && !self.connection.common().is_handshaking();
            let ready = if has_ended { Some(self.finish()?) } else { None };
            Ok(Progress { ready, ended })
        });
        match result {
            Ok(progress) => {
                self.handshaking &= progress.ready.is_none();
                self.rest = rest.to_vec();
                Ok(progress)
            }
            Err(failed) => {
                // The alert that says why is queued, and handed out before anything is read again.
                while self.connection.common().wants_write()
                    && let (_, Ok(_)) = self.connection.step(rest, &mut Wish::Nothing, plain, &mut self.outgoing)
                {
                }
                self.failed = true;
                Err(failed)
            }
        }
    }

    /// Checks what was agreed on.
    fn finish(&self) -> Result<TlsInfo, String> {
        let connection = self.connection.common();
        if self.direct && connection.alpn_protocol() != Some(ALPN) {
            return Err("direct TLS without the application protocol \"postgresql\"".to_owned());
        }
        let peer = connection.peer_certificates().and_then(|chain| chain.first());
        let server_end_point = match self.connection {
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
        let connection = self.connection.common();
        let version = match connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLS",
        };
        let suite = connection.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
        // rustls writes TLS13_AES_256_GCM_SHA384 for what RFC 8446 and OpenSSL write as TLS_AES_256_GCM_SHA384.
        let suite = suite.unwrap_or_default().replacen("TLS13_", "TLS_", 1);
        format!("{version}/{suite}")
    }

    /// Encrypts to the end of `cipher`, in as few records as it takes; `scratch` is any buffer.
    pub fn encrypt(&mut self, slices: &[&[u8]], scratch: &mut Vec<u8>, cipher: &mut Vec<u8>) -> Result<(), String> {
        scratch.clear();
        for slice in slices {
            if scratch.len() + slice.len() > RECORD_BYTES_MAX {
                self.encrypt_one(scratch, cipher)?;
                scratch.clear();
            }
            if slice.len() > RECORD_BYTES_MAX {
                self.encrypt_one(slice, cipher)?;
            } else {
                scratch.extend_from_slice(slice);
            }
        }
        self.encrypt_one(scratch, cipher)
    }

    fn encrypt_one(&mut self, bytes: &[u8], cipher: &mut Vec<u8>) -> Result<(), String> {
        if bytes.is_empty() { Ok(()) } else { self.wish(Wish::Encrypt(bytes), cipher) }
    }

    /// Moves what TLS itself has to send to the end of `cipher`.
    pub fn take_outgoing(&mut self, cipher: &mut Vec<u8>) {
        cipher.append(&mut std::mem::take(&mut self.outgoing));
        if self.handshaking {
            // A client speaks first.
            let _ = self.wish(Wish::Nothing, cipher);
        }
    }

    /// Says to the peer that nothing more comes.
    pub fn say_goodbye(&mut self, cipher: &mut Vec<u8>) {
        cipher.append(&mut std::mem::take(&mut self.outgoing));
        // Before the end of the handshake the end of the connection says so.
        let _ = self.wish(Wish::Goodbye, cipher);
    }

    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.rest.capacity() + self.outgoing.capacity()
    }

    fn wish(&mut self, wish: Wish<'_>, cipher: &mut Vec<u8>) -> Result<(), String> {
        if self.failed {
            return Err("TLS has failed".to_owned());
        }
        // What waits for its end is looked at again, and brings nothing.
        let (used, result) = self.connection.run(&mut self.rest, wish, &mut Vec::new(), cipher);
        self.rest.drain(..used);
        result.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl Connection {
    fn common(&self) -> &CommonState {
        match self {
            Self::Server(connection) => connection,
            Self::Client(connection) => connection,
        }
    }

    /// Takes what it can of `incoming`, and does what is wished once the handshake is over. Answers how many bytes are not needed
    /// any more, and whether the peer has said that it sends no more.
    fn run(
        &mut self,
        incoming: &mut [u8],
        mut wish: Wish<'_>,
        plain: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> (usize, Result<bool, Error>) {
        let (mut used, mut ended) = (0, false);
        loop {
            let (discard, step) = self.step(&mut incoming[used..], &mut wish, plain, outgoing);
            used += discard;
            match step {
                Ok(Step::GoesOn) => {}
                Ok(Step::PeerEnded) => ended = true,
                Ok(Step::Waits) => {
                    let refused = matches!(wish, Wish::Encrypt(_));
                    return (used, if refused { Err(Error::HandshakeNotComplete) } else { Ok(ended) });
                }
                Err(error) => return (used, Err(error)),
            }
        }
    }

    fn step(
        &mut self,
        incoming: &mut [u8],
        wish: &mut Wish<'_>,
        plain: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> (usize, Result<Step, Error>) {
        match self {
            Self::Server(connection) => take(connection.process_tls_records(incoming), wish, plain, outgoing),
            Self::Client(connection) => take(connection.process_tls_records(incoming), wish, plain, outgoing),
        }
    }
}

fn take<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    wish: &mut Wish<'_>,
    plain: &mut Vec<u8>,
    outgoing: &mut Vec<u8>,
) -> (usize, Result<Step, Error>) {
    let mut discard = status.discard;
    let step = status.state.and_then(|state| match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record?;
                plain.extend_from_slice(record.payload);
                discard += record.discard;
            }
            Ok(Step::GoesOn)
        }
        ConnectionState::EncodeTlsData(mut data) => append(outgoing, 0, |room| {
            data.encode(room).map_err(|error| match error {
                EncodeError::InsufficientSize(size) => Refused::Room(size.required_size),
                EncodeError::AlreadyEncoded => Refused::Error(Error::General(error.to_string())),
            })
        }),
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Step::GoesOn)
        }
        ConnectionState::WriteTraffic(mut traffic) => {
            let told = |error: EncryptError| match error {
                EncryptError::InsufficientSize(size) => Refused::Room(size.required_size),
                EncryptError::EncryptExhausted => {
                    Refused::Error(Error::General("its key has encrypted as many records as it may".to_owned()))
                }
            };
            match std::mem::replace(wish, Wish::Nothing) {
                Wish::Nothing => Ok(Step::Waits),
                Wish::Encrypt(bytes) => {
                    let records = bytes.len() / RECORD_BYTES_MAX + 1;
                    append(outgoing, bytes.len() + records * RECORD_OVERHEAD, |room| {
                        traffic.encrypt(bytes, room).map_err(told)
                    })
                }
                Wish::Goodbye => append(outgoing, GOODBYE_BYTES, |room| traffic.queue_close_notify(room).map_err(told)),
            }
        }
        ConnectionState::PeerClosed => Ok(Step::PeerEnded),
        ConnectionState::Closed | ConnectionState::BlockedHandshake => Ok(Step::Waits),
        // Early data is not switched on; and what comes with a later release of the library.
        other => Err(Error::General(format!("unexpected state of TLS: {other:?}"))),
    });
    (discard, step)
}

/// Why nothing was written.
enum Refused {
    /// So many bytes are needed.
    Room(usize),
    Error(Error),
}

/// Has something written to the end of `outgoing`, with room for so many bytes, or for as many as it then asks for.
fn append(
    outgoing: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Refused>,
) -> Result<Step, Error> {
    let start = outgoing.len();
    outgoing.resize(start + room, 0);
    let mut result = write(&mut outgoing[start..]);
    if let Err(Refused::Room(needed)) = result {
        outgoing.resize(start + needed, 0);
        result = write(&mut outgoing[start..]);
    }
    outgoing.truncate(start + *result.as_ref().unwrap_or(&0));
    match result {
        Ok(_) => Ok(Step::GoesOn),
        Err(Refused::Room(_)) => Err(Error::EncryptError),
        Err(Refused::Error(error)) => Err(error),
    }
}
