//! A client's way in: startup packet, TLS, authentication, and what it is greeted with.
//!
//! ```text
//! Startup <─> (TlsHandshake) ─> Admission ─> Password | Md5 | ScramInitial ─> ScramFinal ─> Proving ─> Ready
//!                                    └─ Deriving: a salted password is computed elsewhere
//! ```
//! An unknown user goes through the same exchange as one with a wrong password, and fails at its end.

use std::sync::Arc;

use weir_wire::frontend::{self, AUTH_MESSAGE_LEN_MAX};
use weir_wire::report::{Report, Severity};
use weir_wire::startup::{STARTUP_LEN_MIN, TLS_HANDSHAKE_RECORD};
use weir_wire::{FrontendTag, HEADER_LEN, Header, ProtocolVersion, Startup, TransactionStatus, write};

use crate::auth::{
    self, ChannelBinding, PlainCheck, ScramKeys, ScramVerifier, Secret, ServerFinal, ServerFirst, mock_verifier,
};
use crate::client::{ClientState, Discard, Limits, Link, Session};
use crate::console::Console;
use crate::contract::{TlsInfo, TlsRole};
use crate::failure::Failure;
use crate::id::ConnId;
use crate::inbox::Cursor;
use crate::mail::Letter;
use crate::parameters::{ParameterSet, split_options};
use crate::pool::{PoolName, Welcome};
use crate::settings::{AuthType, TlsMode};
use crate::statements::{ClientStatements, Unnamed};
use crate::worker::{Job, Worker};

/// Bytes of a cancel key in protocol 3.2, as PostgreSQL 18 has them (`MyCancelKeyLength`).
const CANCEL_KEY_LEN: usize = 32;
/// The databases that are the console.
pub(crate) const CONSOLE_DATABASES: [&str; 2] = ["pgbouncer", "weir"];

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
    /// A salted password is being derived: to check a plain password, or to make a verifier of one.
    DerivingPlain(Box<ScramVerifier>),
    DerivingVerifier,
    /// Authenticated. Waits for a server, to learn what it greets with and whether it takes the client's parameters.
    Proving,
}

#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) phase: Phase,
    /// SSLRequest or direct TLS came already; a second one breaks the protocol.
    tls_asked: bool,
    gss_asked: bool,
    version: ProtocolVersion,
    /// As the startup packet has them, without user, database, options and replication.
    parameters: Vec<(Arc<str>, Arc<str>)>,
    replication: Option<Arc<str>>,
    user: Arc<str>,
    database: Arc<str>,
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

    /// What a replication connection's server is started with.
    pub(crate) fn tunnel_parameters(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let replication = self.replication.iter().map(|value| (Arc::from("replication"), Arc::clone(value)));
        self.parameters.iter().cloned().chain(replication).collect()
    }
}

/// What to do with the bytes that are there.
enum Step {
    /// Dealt with: look for the next message.
    Next,
    /// Nothing more to do with what is there.
    Rest,
}

impl Worker {
    fn login(&mut self, id: ConnId) -> Option<&mut Login> {
        match &mut self.clients.get_mut(id)?.state {
            ClientState::Login(login) => Some(login),
            _ => None,
        }
    }

    pub(crate) fn login_bytes(&mut self, id: ConnId, input: &[u8]) -> usize {
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

    fn startup_piece(&mut self, id: ConnId, cursor: &mut Cursor<'_>) -> Result<Step, Failure> {
        let Some(client) = self.clients.get_mut(id) else { return Ok(Step::Rest) };
        let ClientState::Login(login) = &mut client.state else { return Ok(Step::Next) };
        let direct = !client.inbox.has_partial() && cursor.rest().first() == Some(&TLS_HANDSHAKE_RECORD);
        if direct && !login.tls_asked {
            return self.accept_tls(id, true).map(|()| Step::Rest);
        }
        let Some(piece) = client.inbox.gather(cursor, 4) else { return Ok(Step::Rest) };
        let bytes = piece.bytes();
        let length = Startup::packet_len(&[bytes[0], bytes[1], bytes[2], bytes[3]])?;
        debug_assert!(length >= STARTUP_LEN_MIN);
        if bytes.len() < length {
            client.inbox.put_back(piece);
            if client.inbox.gather(cursor, length).map(|piece| client.inbox.put_back(piece)).is_none() {
                return Ok(Step::Rest);
            }
            return Ok(Step::Next);
        }
        let body = bytes[4..length].to_vec();
        client.inbox.used(cursor, piece, length);
        let startup = Startup::parse(&body)?;
        self.startup(id, &startup)
    }

    fn startup(&mut self, id: ConnId, startup: &Startup<'_>) -> Result<Step, Failure> {
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
                self.out.send(id, |out| out.push(b'N'));
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
    fn accept_tls(&mut self, id: ConnId, direct: bool) -> Result<(), Failure> {
        let offered = self.settings.client_tls_sslmode != TlsMode::Disable && self.settings.client_tls_available;
        let unix = self.clients.get(id).is_some_and(|client| matches!(client.peer, crate::contract::Peer::Unix { .. }));
        let Some(login) = self.login(id) else { return Ok(()) };
        login.tls_asked = true;
        if !offered || unix {
            if direct {
                return Err(Failure::TlsUnavailable);
            }
            self.out.send(id, |out| out.push(b'N'));
            return Ok(());
        }
        login.phase = Phase::TlsHandshake;
        if !direct {
            self.out.send(id, |out| out.push(b'S'));
        }
        self.out.start_tls(id, TlsRole::Accept { direct });
        Ok(())
    }

    pub(crate) fn client_tls_ready(&mut self, id: ConnId, tls: TlsInfo) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if let ClientState::Login(login) = &mut client.state {
            login.phase = Phase::Startup;
            client.tls = Some(Box::new(tls));
        }
    }

    fn begin_session(
        &mut self,
        id: ConnId,
        version: ProtocolVersion,
        parameters: &[(&str, &str)],
    ) -> Result<(), Failure> {
        if version.major() != 3 {
            return Err(Failure::UnsupportedVersion(version.0));
        }
        let shutting_down = self.shutting_down();
        let Some(client) = self.clients.get(id) else { return Ok(()) };
        let local = matches!(client.peer, crate::contract::Peer::Unix { .. });
        if client.tls.is_none() && !local && self.settings.client_tls_sslmode >= TlsMode::Require {
            return Err(Failure::TlsRequired);
        }
        let mut unrecognised = Vec::new();
        let mut login = Login { version, ..Login::new() };
        for (name, value) in parameters {
            match *name {
                "user" => login.user = (*value).into(),
                "database" => login.database = (*value).into(),
                "options" => {
                    let options = split_options(value).map_err(|text| Failure::StartupParameter { text })?;
                    login.parameters.extend(options.into_iter().map(|(name, value)| (name.into(), value.into())));
                }
                "replication" => login.replication = replication(value)?,
                name if name.starts_with("_pq_.") => unrecognised.push(name),
                name => login.parameters.push((name.into(), (*value).into())),
            }
        }
        let ignored = &self.settings.ignore_startup_parameters;
        login.parameters.retain(|(name, _)| !ignored.iter().any(|ignored| ignored.eq_ignore_ascii_case(name)));
        if login.user.is_empty() {
            return Err(Failure::NoUserName);
        }
        if login.database.is_empty() {
            login.database = Arc::clone(&login.user);
        }
        if shutting_down && !CONSOLE_DATABASES.contains(&&*login.database) {
            return Err(Failure::ShuttingDown);
        }
        if version > ProtocolVersion::V3_2 || !unrecognised.is_empty() {
            let newest = version.min(ProtocolVersion::V3_2);
            self.out.send(id, |out| write::negotiate_version(out, newest, &unrecognised));
        }
        self.admit(id, login);
        Ok(())
    }

    /// Asks for a place. The console has one for whoever may use it.
    fn admit(&mut self, id: ConnId, mut login: Login) {
        let console = CONSOLE_DATABASES.contains(&&*login.database);
        let (database, user) = (Arc::clone(&login.database), Arc::clone(&login.user));
        login.phase = Phase::Admission;
        if let Some(client) = self.clients.get_mut(id) {
            client.state = ClientState::Login(Box::new(login));
        }
        if console {
            self.admitted(id);
        } else {
            self.tell_steward(Letter::Admit { conn: id, database, user });
        }
    }

    /// The steward's answer; its client may have gone in the meantime.
    pub(crate) fn placed(
        &mut self,
        id: ConnId,
        database: Arc<str>,
        user: Arc<str>,
        refused: Option<(u32, &'static str)>,
    ) {
        match (self.clients.get_mut(id), refused) {
            (Some(client), None) => {
                client.admitted = Some((database, user));
                self.admitted(id);
            }
            (Some(_), Some((limit, what))) => self.fail_client(id, &Failure::TooManyClients { limit, what }),
            (None, None) => self.tell_steward(Letter::Withdraw { database, user }),
            (None, Some(_)) => {}
        }
    }

    fn admitted(&mut self, id: ConnId) {
        if !self.is_logging_in(id) {
            return;
        }
        if let Err(failure) = self.begin_authentication(id) {
            return self.fail_client(id, &failure);
        }
        self.wake_client(id);
    }

    // Authentication.

    fn begin_authentication(&mut self, id: ConnId) -> Result<(), Failure> {
        let auth_type = self.settings.auth_type;
        let Some(client) = self.clients.get(id) else { return Ok(()) };
        let certificate = client.tls.as_ref().and_then(|tls| tls.peer_common_name.clone());
        let Some(login) = self.login(id) else { return Ok(()) };
        let user = Arc::clone(&login.user);
        let known = self.settings.secrets.get(&user).cloned();
        let secret = known.clone().unwrap_or_else(|| self.mock_secret(&user));
        match auth_type {
            AuthType::Any => self.authenticated(id, None),
            AuthType::Trust if known.is_some() => self.authenticated(id, None),
            AuthType::Trust => Err(Failure::AuthenticationFailed { user: user.to_string() }),
            AuthType::Cert if known.is_some() && certificate.as_deref() == Some(&*user) => self.authenticated(id, None),
            AuthType::Cert => Err(Failure::CertificateRequired { user: user.to_string() }),
            AuthType::Plain => {
                self.set_phase(id, Phase::Password);
                self.out.send(id, write::authentication_cleartext);
                Ok(())
            }
            AuthType::Md5 if !matches!(secret, Secret::Scram(_)) => {
                let salt = self.random::<4>();
                self.set_phase(id, Phase::Md5 { salt });
                self.out.send(id, |out| write::authentication_md5(out, salt));
                Ok(())
            }
            AuthType::Md5 | AuthType::ScramSha256 => {
                self.prepare_scram(id, &user, secret);
                Ok(())
            }
        }
    }

    /// What an unknown user is measured against: of the kind that most likely stands in the file, and never right.
    fn mock_secret(&self, user: &str) -> Secret {
        let verifier = mock_verifier(user, &self.config.process_secret, self.settings.scram_iterations);
        if self.settings.secrets.values().any(|secret| matches!(secret, Secret::Scram(_))) {
            Secret::Scram(verifier)
        } else {
            Secret::Plain(auth::encode_nonce(&verifier.stored_key).into())
        }
    }

    /// SCRAM needs a verifier; one is made of a plain password the first time it is needed, the same way for a user
    /// who does not exist.
    fn prepare_scram(&mut self, id: ConnId, user: &Arc<str>, secret: Secret) {
        let mock = mock_verifier(user, &self.config.process_secret, self.settings.scram_iterations);
        match secret {
            Secret::Scram(verifier) => self.offer_scram(id, verifier),
            // An md5 hash cannot prove anything here.
            Secret::Md5(_) => self.offer_scram(id, mock),
            Secret::Plain(password) => match self.verifiers.get(user) {
                Some((known, verifier)) if *known == password => {
                    let verifier = verifier.clone();
                    self.offer_scram(id, verifier);
                }
                _ => {
                    self.set_phase(id, Phase::DerivingVerifier);
                    let job = Job::Verifier { client: id, user: Arc::clone(user), password: Arc::clone(&password) };
                    self.derive(job, &password, mock.salt, mock.iterations);
                }
            },
        }
    }

    /// A verifier was made of a plain password.
    pub(crate) fn verifier_derived(&mut self, id: ConnId, user: Arc<str>, password: Arc<str>, salted: &[u8; 32]) {
        let mock = mock_verifier(&user, &self.config.process_secret, self.settings.scram_iterations);
        let verifier = ScramVerifier::from_salted(salted, &mock.salt, mock.iterations);
        if self.verifiers.len() >= crate::worker::VERIFIERS_MAX {
            self.verifiers.clear();
        }
        // An empty password lets nobody in.
        let usable = if password.is_empty() { mock } else { verifier };
        self.verifiers.insert(user, (password, usable.clone()));
        if self.login(id).is_some_and(|login| matches!(login.phase, Phase::DerivingVerifier)) {
            self.offer_scram(id, usable);
            self.wake_client(id);
        }
    }

    fn offer_scram(&mut self, id: ConnId, verifier: ScramVerifier) {
        let nonce = auth::encode_nonce(&self.random::<18>());
        let Some(client) = self.clients.get(id) else { return };
        let binding = match client.tls.as_ref().and_then(|tls| tls.server_end_point.clone()) {
            Some(hash) => ChannelBinding::TlsServerEndPoint(hash),
            None => ChannelBinding::None,
        };
        let mechanisms = binding.mechanisms();
        self.out.send(id, |out| write::authentication_sasl(out, mechanisms));
        self.set_phase(id, Phase::ScramInitial(Box::new(ServerFirst::new(verifier, &nonce, binding))));
    }

    fn set_phase(&mut self, id: ConnId, phase: Phase) {
        if let Some(login) = self.login(id) {
            login.phase = phase;
        }
    }

    /// A message of the password's tag, in whole.
    fn password_piece(&mut self, id: ConnId, cursor: &mut Cursor<'_>) -> Result<Step, Failure> {
        let Some(client) = self.clients.get_mut(id) else { return Ok(Step::Rest) };
        let Some(piece) = client.inbox.gather(cursor, HEADER_LEN) else { return Ok(Step::Rest) };
        let bytes = piece.bytes();
        let header = Header::parse(&[bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]]);
        if FrontendTag::from_byte(header.tag) != Some(FrontendTag::Password) {
            return Err(Failure::WrongMessage { expected: "a password response", got: header.tag });
        }
        let length = header
            .body_len
            .filter(|&length| length <= AUTH_MESSAGE_LEN_MAX)
            .ok_or(Failure::MessageLength { tag: header.tag })?;
        let total = HEADER_LEN + length as usize;
        if bytes.len() < total {
            client.inbox.put_back(piece);
            if client.inbox.gather(cursor, total).map(|piece| client.inbox.put_back(piece)).is_none() {
                return Ok(Step::Rest);
            }
            return Ok(Step::Next);
        }
        let body = bytes[HEADER_LEN..total].to_vec();
        client.inbox.used(cursor, piece, total);
        self.password_message(id, &body)?;
        Ok(Step::Next)
    }

    fn password_message(&mut self, id: ConnId, body: &[u8]) -> Result<(), Failure> {
        let Some(login) = self.login(id) else { return Ok(()) };
        let user = Arc::clone(&login.user);
        let failed = || Failure::AuthenticationFailed { user: user.to_string() };
        let known = self.settings.secrets.get(&user).cloned();
        let secret = known.clone().unwrap_or_else(|| self.mock_secret(&user));
        let Some(login) = self.login(id) else { return Ok(()) };
        match std::mem::replace(&mut login.phase, Phase::Admission) {
            Phase::Password => {
                let password = frontend::password(body)?;
                match auth::verify_plain(&secret, &user, password) {
                    PlainCheck::Accepted if known.is_some() => self.authenticated(id, None),
                    PlainCheck::NeedsDerivation { salt, iterations } => {
                        let Secret::Scram(verifier) = secret else { return Err(failed()) };
                        // SASLprep leaves a password that is not UTF-8 as it is; no such password was ever stored.
                        let Ok(password) = std::str::from_utf8(password) else { return Err(failed()) };
                        let password: Arc<str> = password.into();
                        self.set_phase(id, Phase::DerivingPlain(Box::new(verifier)));
                        self.derive(Job::Password { client: id }, &password, salt, iterations);
                        Ok(())
                    }
                    _ => Err(failed()),
                }
            }
            Phase::Md5 { salt } => {
                let response = frontend::password(body)?;
                let right = !secret.is_empty() && auth::verify_md5(&secret, &user, salt, response);
                if right && known.is_some() { self.authenticated(id, None) } else { Err(failed()) }
            }
            Phase::ScramInitial(first) => {
                let (mechanism, data) = frontend::sasl_initial(body)?;
                let (answer, next) =
                    first.on_client_first(mechanism, data).map_err(|error| Failure::Scram { error })?;
                self.out.send(id, |out| write::authentication_sasl_continue(out, &answer));
                self.set_phase(id, Phase::ScramFinal(Box::new(next)));
                Ok(())
            }
            Phase::ScramFinal(last) => {
                let (answer, keys) = last.on_client_final(body).map_err(|error| match error {
                    auth::AuthError::WrongProof => failed(),
                    error => Failure::Scram { error },
                })?;
                if known.is_none() {
                    return Err(failed());
                }
                self.out.send(id, |out| write::authentication_sasl_final(out, &answer));
                // Keys of a secret that PostgreSQL has too: they open its door, as the client's own login would.
                let keys = matches!(secret, Secret::Scram(_)).then_some(keys);
                self.authenticated(id, keys)
            }
            _ => Ok(()),
        }
    }

    /// A plain password's salted form was derived.
    pub(crate) fn password_derived(&mut self, id: ConnId, salted: &[u8; 32]) {
        let Some(login) = self.login(id) else { return };
        let user = Arc::clone(&login.user);
        let Phase::DerivingPlain(verifier) = std::mem::replace(&mut login.phase, Phase::Admission) else {
            return;
        };
        let known = self.settings.secrets.contains_key(&user);
        let outcome = if verifier.matches_salted(salted) && known {
            self.authenticated(id, None)
        } else {
            Err(Failure::AuthenticationFailed { user: user.to_string() })
        };
        if let Err(failure) = outcome {
            return self.fail_client(id, &failure);
        }
        self.wake_client(id);
    }

    // After authentication.

    fn authenticated(&mut self, id: ConnId, keys: Option<ScramKeys>) -> Result<(), Failure> {
        let Some(login) = self.login(id) else { return Ok(()) };
        let (database, user) = (Arc::clone(&login.database), Arc::clone(&login.user));
        let replication = login.replication.is_some();
        if CONSOLE_DATABASES.contains(&&*database) {
            return self.enter_console(id, &user);
        }
        let Some(entry) = self.settings.database(&database) else {
            return Err(Failure::UnknownDatabase { name: database.to_string() });
        };
        let user = entry.forced_user.clone().unwrap_or(user);
        let name = Arc::new(PoolName { database, user });
        let Some(index) = self.pool_for(&name) else {
            return Err(Failure::UnknownDatabase { name: name.database.to_string() });
        };
        if let Some(keys) = keys {
            self.pools[index].keys = Some(keys);
        }
        if let Some(client) = self.clients.get_mut(id) {
            client.pool = index;
        }
        self.set_phase(id, Phase::Proving);
        if replication {
            self.want_tunnel(id);
            return Ok(());
        }
        if self.is_proved(id) {
            self.greet(id);
            return Ok(());
        }
        match self.acquire(id) {
            Ok(Some(_)) => {
                self.prove(id);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn enter_console(&mut self, id: ConnId, user: &Arc<str>) -> Result<(), Failure> {
        let admin = self.settings.admin_users.iter().any(|name| **name == **user);
        let stats = self.settings.stats_users.iter().any(|name| **name == **user);
        if !admin && !stats {
            return Err(Failure::ConsoleOnly { user: user.to_string() });
        }
        let version = self.settings.version.clone();
        if let Some(client) = self.clients.get_mut(id) {
            client.state = ClientState::Console(Box::new(Console::new(Arc::clone(user), admin)));
        }
        self.out.send(id, |out| {
            write::authentication_ok(out);
            for (name, value) in Console::parameters(&version) {
                write::parameter_status(out, name, value.as_bytes());
            }
            write::backend_key(out, 0, &[0; 4]);
            write::ready(out, TransactionStatus::Idle);
        });
        self.arm_client(id);
        Ok(())
    }

    /// Whether the pool's greeting is known, and PostgreSQL's opinion of each of the client's parameters.
    fn is_proved(&self, id: ConnId) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let ClientState::Login(login) = &client.state else { return false };
        let pool = &self.pools[client.pool];
        pool.welcome.is_some()
            && login.parameters.iter().all(|(name, value)| {
                is_harmless(name, value) || pool.proven.contains_key(&(Arc::clone(name), Arc::clone(value)))
            })
    }

    pub(crate) fn is_logging_in(&self, id: ConnId) -> bool {
        self.clients.get(id).is_some_and(|client| matches!(client.state, ClientState::Login(_)))
    }

    /// A server is there to try the client's parameters on.
    pub(crate) fn prove(&mut self, id: ConnId) {
        let Some(client) = self.clients.get(id) else { return };
        let Link::Linked(server_id) = client.link else { return };
        let Some(welcome) = self.pools[client.pool].welcome.clone() else { return };
        let wanted = self.wanted_parameters(id, &welcome);
        let wanted = self.parameter_sets.intern(wanted);
        if !self.apply_parameters(server_id, &wanted) {
            self.proved(id, server_id);
        }
    }

    /// PostgreSQL took them: what it made of each is remembered.
    pub(crate) fn proved(&mut self, id: ConnId, server_id: ConnId) {
        let (Some(client), Some(server)) = (self.clients.get(id), self.servers.get(server_id)) else {
            return;
        };
        let ClientState::Login(login) = &client.state else { return };
        let pool = &mut self.pools[client.pool];
        for (name, value) in &login.parameters {
            let reported = server.parameters.get(name).filter(|parameter| parameter.reported);
            pool.remember_proven(name, value, reported.map(|parameter| Arc::clone(&parameter.value)));
        }
        self.greet(id);
        self.unlink(id, server_id);
    }

    /// The session's parameters as its startup packet wants them.
    fn wanted_parameters(&self, id: ConnId, welcome: &Welcome) -> ParameterSet {
        let mut wanted = (*welcome.defaults).clone();
        let Some(client) = self.clients.get(id) else { return wanted };
        let ClientState::Login(login) = &client.state else { return wanted };
        let pool = &self.pools[client.pool];
        for (name, value) in &login.parameters {
            let canonical = pool.proven.get(&(Arc::clone(name), Arc::clone(value))).cloned().flatten();
            wanted.set(name, canonical.as_deref().unwrap_or(value.as_bytes()), false);
        }
        wanted
    }

    /// Lets the client in.
    fn greet(&mut self, id: ConnId) {
        let Some(client) = self.clients.get(id) else { return };
        let Some(welcome) = self.pools[client.pool].welcome.clone() else { return };
        self.welcome_client(id, &welcome);
    }

    /// The greeting: parameters, a cancel key of ours, ReadyForQuery.
    pub(crate) fn welcome_client(&mut self, id: ConnId, welcome: &Welcome) {
        let parameters = self.wanted_parameters(id, welcome);
        let parameters = self.parameter_sets.intern(parameters);
        let process_id = self.next_process_id();
        let long_key = self.random::<CANCEL_KEY_LEN>();
        let Some(client) = self.clients.get_mut(id) else { return };
        let ClientState::Login(login) = &mut client.state else { return };
        let key = if login.version >= ProtocolVersion::V3_2 { &long_key[..] } else { &long_key[..4] };
        let session = Session {
            database: Arc::clone(&login.database),
            user: Arc::clone(&login.user),
            parameters: Arc::clone(&parameters),
            statements: ClientStatements::default(),
            unnamed: Unnamed::default(),
            process_id,
            cancel_key: key.into(),
            discard: Discard::Nothing,
            limits: Limits::of(&self.settings, &login.user),
            request_at: self.now,
            transaction_at: self.now,
        };
        self.out.send(id, |out| {
            write::authentication_ok(out);
            for (name, value) in &welcome.facts {
                write::parameter_status(out, name, value);
            }
            for parameter in parameters.iter().filter(|parameter| parameter.reported) {
                write::parameter_status(out, &parameter.name, &parameter.value);
            }
            write::backend_key(out, process_id, key);
            write::ready(out, TransactionStatus::Idle);
        });
        self.cancel_keys.insert(process_id, id);
        client.state = ClientState::Ready(Box::new(session));
        let (index, label) = (client.pool, client.label());
        self.pools[index].clients += 1;
        if self.settings.log_connections {
            self.log_info(format!("C: {label}: login attempt: ok"));
        }
        self.fill(index);
        self.arm_client(id);
        self.wake_client(id);
    }
}

/// PostgreSQL takes any application_name; one in plain ASCII is kept as it is (`check_application_name`).
fn is_harmless(name: &str, value: &str) -> bool {
    name.eq_ignore_ascii_case("application_name")
        && value.len() < 64
        && value.bytes().all(|byte| (0x20..0x7f).contains(&byte))
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

/// What a client is told that failed for a reason of the exchange itself.
pub(crate) fn scram_report(error: auth::AuthError) -> Report {
    Report::new(Severity::Fatal, "08P01", error.to_string())
}
