//! A client's way in: startup packet, TLS, authentication, and what it is greeted with.
//!
//! ```text
//! Startup <─> (TlsHandshake) ─> Admission ─> Password | Md5 | ScramInitial ─> ScramFinal ─> Proving ─> Ready
//!                                                  └────────────┬─────────────┘
//!                     Deriving: a salted password is computed elsewhere; Refused: wrong, which is told a moment later
//! ```
//! An unknown user goes through the same exchange as one with a wrong password, and fails at its end.

use std::sync::Arc;

use weir_wire::startup::{STARTUP_HEADER_LEN, TLS_ACCEPTED, TLS_HANDSHAKE_RECORD, TLS_REFUSED};
use weir_wire::{ProtocolVersion, Startup, write};

use crate::auth::{ScramVerifier, ServerFinal, ServerFirst};
use crate::client::ClientState;
use crate::contract::peer::{TlsInfo, TlsRole};
use crate::failure::Failure;
use crate::id::ClientId;
use crate::inbox::Cursor;
use crate::mail::Letter;
use crate::names::{CONSOLE, CONSOLE_DATABASES};
use crate::parameters::split_options;
use crate::settings::TlsMode;
use crate::time::Time;
use crate::worker::Worker;

#[derive(Debug)]
pub(crate) enum Phase {
    Startup,
    TlsHandshake,
    /// The steward is asked whether there is room.
    Admission,
    Password,
    Md5 {
        salt: [u8; 4],
    },
    ScramInitial(Box<ServerFirst>),
    ScramFinal(Box<ServerFinal>),
    /// A salted password is being derived: to check a plain password.
    DerivingPlain {
        verifier: Box<ScramVerifier>,
        refused_at: Time,
    },
    /// The verifier is being derived that the client's last message is measured against.
    DerivingProof {
        last: Box<ServerFinal>,
        message: Box<[u8]>,
        refused_at: Time,
    },
    /// The password was wrong, and the client is told so at that time.
    Refused {
        at: Time,
    },
    /// Authenticated. Waits for a server, to learn what it greets with and whether it takes the client's parameters.
    Proving,
}

#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) phase: Phase,
    /// SSLRequest or direct TLS came already; a second one breaks the protocol.
    tls_asked: bool,
    gss_asked: bool,
    pub(crate) version: ProtocolVersion,
    /// As the startup packet has them, without user, database, options and replication.
    pub(crate) parameters: Vec<(Arc<str>, Arc<str>)>,
    pub(crate) replication: Option<Arc<str>>,
    pub(crate) user: Arc<str>,
    pub(crate) database: Arc<str>,
}

impl Login {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Startup,
            tls_asked: false,
            gss_asked: false,
            version: ProtocolVersion::V3_0,
            parameters: Vec::new(),
            replication: None,
            user: "".into(),
            database: "".into(),
        }
    }

    /// Whether it has said whom it wants to be, and where.
    pub(crate) fn is_named(&self) -> bool {
        !self.user.is_empty()
    }

    pub(crate) fn is_to_console(&self) -> bool {
        CONSOLE_DATABASES.contains(&&*self.database)
    }

    /// What is sent now would be no part of the handshake.
    pub(crate) fn is_in_handshake(&self) -> bool {
        matches!(self.phase, Phase::TlsHandshake)
    }

    /// When the client is told that its password was wrong.
    pub(crate) fn refused_at(&self) -> Option<Time> {
        match self.phase {
            Phase::Refused { at } => Some(at),
            _ => None,
        }
    }

    /// What a replication connection's server is started with.
    pub(crate) fn tunnel_parameters(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let replication = self.replication.iter().map(|value| (Arc::from("replication"), Arc::clone(value)));
        self.parameters.iter().cloned().chain(replication).collect()
    }
}

/// What to do with the bytes that are there.
pub(crate) enum Step {
    /// Dealt with: look for the next message.
    Next,
    /// Nothing more to do with what is there.
    Rest,
}

impl Worker {
    pub(crate) fn login(&mut self, id: ClientId) -> Option<&mut Login> {
        match &mut self.clients.get_mut(id)?.state {
            ClientState::Login(login) => Some(login),
            _ => None,
        }
    }

    pub(crate) fn login_bytes(&mut self, id: ClientId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        loop {
            let Some(login) = self.login(id) else {
                // What follows belongs to the session; a closing connection takes nothing more.
                return cursor.at + self.client_bytes(id, cursor.rest());
            };
            let step = match login.phase {
                Phase::Startup => self.startup_piece(id, &mut cursor),
                Phase::Password | Phase::Md5 { .. } | Phase::ScramInitial(_) | Phase::ScramFinal(_) => {
                    self.password_piece(id, &mut cursor)
                }
                // The client has to wait for us.
                _ => {
                    if !cursor.rest().is_empty() && !matches!(login.phase, Phase::TlsHandshake) {
                        self.hold_client(id);
                    }
                    return cursor.at;
                }
            };
            match step {
                Ok(Step::Next) => {}
                Ok(Step::Rest) => return cursor.at,
                Err(failure) => {
                    self.fail_client(id, &failure);
                    return cursor.at;
                }
            }
        }
    }

    fn startup_piece(&mut self, id: ClientId, cursor: &mut Cursor<'_>) -> Result<Step, Failure> {
        let Some(client) = self.clients.get_mut(id) else { return Ok(Step::Rest) };
        let ClientState::Login(login) = &mut client.state else { return Ok(Step::Next) };
        let direct = !client.inbox.has_partial() && cursor.rest().first() == Some(&TLS_HANDSHAKE_RECORD);
        if direct && !login.tls_asked {
            return self.accept_tls(id, true).map(|()| Step::Rest);
        }
        let packet = match client.inbox.take_whole(cursor, Startup::packet_len) {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(Step::Rest),
            Err(_) => {
                self.end_unanswered(id, "invalid length of startup packet");
                return Ok(Step::Rest);
            }
        };
        let startup = Startup::parse(&packet[STARTUP_HEADER_LEN..])?;
        self.startup(id, &startup)
    }

    /// Whoever sends this does not speak our protocol, or not yet: an answer would be no use (`ProcessStartupPacket`,
    /// src/backend/tcop/backend_startup.c, PostgreSQL 18).
    fn end_unanswered(&mut self, id: ClientId, reason: &str) {
        if let (true, Some(client)) = (self.cx.settings.log_disconnections, self.clients.get(id)) {
            let text = format!("C: {}: closing because: {reason}", client.label());
            self.cx.log_info(text);
        }
        self.end_client(id, reason);
    }

    fn startup(&mut self, id: ClientId, startup: &Startup<'_>) -> Result<Step, Failure> {
        let Some(login) = self.login(id) else { return Ok(Step::Next) };
        match startup {
            Startup::Tls => {
                if login.tls_asked {
                    return Err(Failure::WrongMessage { expected: "a startup packet", got: 0 });
                }
                self.accept_tls(id, false)?;
                // The answer was no: a startup packet in clear follows. Else what follows is TLS.
                let plain = self.login(id).is_some_and(|login| matches!(login.phase, Phase::Startup));
                Ok(if plain { Step::Next } else { Step::Rest })
            }
            Startup::GssEncryption => {
                if std::mem::replace(&mut login.gss_asked, true) {
                    return Err(Failure::WrongMessage { expected: "a startup packet", got: 0 });
                }
                self.cx.out.send(id, |out| out.push(TLS_REFUSED));
                Ok(Step::Next)
            }
            Startup::Cancel { process_id, key } => {
                self.cancel_requested(id, *process_id, key);
                Ok(Step::Rest)
            }
            Startup::Session { version, parameters } => {
                self.begin_session(id, *version, parameters)?;
                Ok(Step::Next)
            }
        }
    }

    /// Answers a client that asks for TLS.
    fn accept_tls(&mut self, id: ClientId, direct: bool) -> Result<(), Failure> {
        let offered = self.cx.settings.client_tls_sslmode != TlsMode::Disable && self.cx.settings.client_tls_available;
        let unix =
            self.clients.get(id).is_some_and(|client| matches!(client.peer, crate::contract::peer::Peer::Unix { .. }));
        let Some(login) = self.login(id) else { return Ok(()) };
        login.tls_asked = true;
        if !offered || unix {
            if direct {
                return Err(Failure::TlsUnavailable);
            }
            self.cx.out.send(id, |out| out.push(TLS_REFUSED));
            return Ok(());
        }
        login.phase = Phase::TlsHandshake;
        if !direct {
            self.cx.out.send(id, |out| out.push(TLS_ACCEPTED));
        }
        self.cx.out.start_tls(id, TlsRole::Accept { direct });
        Ok(())
    }

    pub(crate) fn client_tls_ready(&mut self, id: ClientId, tls: TlsInfo) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if let ClientState::Login(login) = &mut client.state {
            login.phase = Phase::Startup;
            client.tls = Some(Box::new(tls));
        }
    }

    fn begin_session(
        &mut self,
        id: ClientId,
        version: ProtocolVersion,
        parameters: &[(&str, &str)],
    ) -> Result<(), Failure> {
        if version.major() != 3 {
            return Err(Failure::UnsupportedVersion(version.0));
        }
        let shutting_down = self.shutdown.is_under_way();
        let Some(client) = self.clients.get(id) else { return Ok(()) };
        let local = matches!(client.peer, crate::contract::peer::Peer::Unix { .. });
        if client.tls.is_none() && !local && self.cx.settings.client_tls_sslmode >= TlsMode::Require {
            return Err(Failure::TlsRequired);
        }
        let mut unrecognised = Vec::new();
        let mut login = Login { version, ..Login::new() };
        let mut options = None;
        for (name, value) in parameters {
            match *name {
                "user" => login.user = (*value).into(),
                "database" => login.database = (*value).into(),
                "options" => options = Some(*value),
                "replication" => login.replication = replication(value)?,
                name if name.starts_with("_pq_.") => unrecognised.push(name),
                name => login.parameters.push((name.into(), (*value).into())),
            }
        }
        let ignored = &self.cx.settings.ignore_startup_parameters;
        let no_options = ignored.iter().any(|name| name == "options");
        // What stands beside them counts, wherever they stand (`process_startup_options`, src/backend/utils/init/postinit.c).
        let first = match split_options(options.unwrap_or_default()) {
            Err(_) if no_options => Vec::new(),
            first => first.map_err(|text| Failure::StartupParameter { text })?,
        };
        login.parameters.splice(0..0, first.into_iter().map(|(name, value)| (name.into(), value.into())));
        login.parameters.retain(|(name, _)| !ignored.iter().any(|ignored| ignored.eq_ignore_ascii_case(name)));
        // PostgreSQL ignores it in a startup packet; `set_config` would not.
        login.parameters.retain(|(name, _)| !name.eq_ignore_ascii_case("session_authorization"));
        // PostgreSQL would take it, and do nothing: it counts when a server's session begins.
        let preloads = |(name, _): &&(Arc<str>, Arc<str>)| name.eq_ignore_ascii_case("local_preload_libraries");
        if let Some((name, _)) = login.parameters.iter().find(preloads).filter(|_| login.replication.is_none()) {
            let text = format!("parameter \"{name}\" cannot be set for one client of a pooled server");
            return Err(Failure::StartupParameter { text });
        }
        if login.user.is_empty() {
            return Err(Failure::NoUserName);
        }
        if login.database.is_empty() {
            login.database = Arc::clone(&login.user);
        }
        if shutting_down && !CONSOLE_DATABASES.contains(&&*login.database) {
            return Err(Failure::NoNewClients);
        }
        if version > ProtocolVersion::V3_2 || !unrecognised.is_empty() {
            let newest = version.min(ProtocolVersion::V3_2);
            self.cx.out.send(id, |out| write::negotiate_version(out, newest, &unrecognised));
        }
        self.admit(id, login);
        Ok(())
    }

    /// Asks for a place.
    fn admit(&mut self, id: ClientId, mut login: Login) {
        let database = if login.is_to_console() { CONSOLE.into() } else { Arc::clone(&login.database) };
        let user = Arc::clone(&login.user);
        login.phase = Phase::Admission;
        if let Some(client) = self.clients.get_mut(id) {
            client.state = ClientState::Login(Box::new(login));
        }
        self.cx.tell_steward(Letter::Admit { client: id, database, user });
    }

    /// The steward's answer; its client may have gone in the meantime.
    pub(crate) fn placed(
        &mut self,
        id: ClientId,
        database: Arc<str>,
        user: Arc<str>,
        refused: Option<(u32, &'static str)>,
    ) {
        match (self.clients.get_mut(id), refused) {
            (Some(client), None) => {
                client.admitted = Some((database, user));
                self.admitted(id);
            }
            (Some(_), Some((limit, what))) => {
                self.fail_client(id, &Failure::TooManyClients { limit, what, database, user });
            }
            (None, None) => self.cx.tell_steward(Letter::Withdraw { database, user }),
            (None, Some(_)) => {}
        }
    }

    fn admitted(&mut self, id: ClientId) {
        if !self.is_logging_in(id) {
            return;
        }
        if let Err(failure) = self.begin_authentication(id) {
            return self.fail_client(id, &failure);
        }
        self.wake_client(id);
    }
}

/// `replication` is a boolean or `database` (`ProcessStartupPacket`, src/backend/tcop/backend_startup.c).
fn replication(value: &str) -> Result<Option<Arc<str>>, Failure> {
    match value.to_ascii_lowercase().as_str() {
        "database" | "true" | "on" | "yes" | "1" => Ok(Some(value.into())),
        "false" | "off" | "no" | "0" => Ok(None),
        _ => {
            let text = format!("invalid value for parameter \"replication\": \"{value}\"");
            Err(Failure::StartupParameter { text })
        }
    }
}
