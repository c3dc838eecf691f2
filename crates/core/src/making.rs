//! Making a server: from connect to the first ReadyForQuery.
//!
//! ```text
//! Connecting ─> (TlsAnswer ─> TlsHandshake) ─> Authentication ─> Settling ─> (ConnectQuery) ─> done
//! ```
//! A connection that carries a cancel request leaves after the TLS part: it sends its request and waits for the end.

use std::sync::Arc;

use weir_wire::backend::{self, Authentication, ErrorFields};
use weir_wire::startup::{TLS_ACCEPTED, TLS_REFUSED};
use weir_wire::{BackendTag, HEADER_LEN, Header, ProtocolVersion, TransactionStatus, write};

use crate::auth::{self, ChannelBinding, ClientFinalPending, ClientFirst, Credentials, Secret, ServerVerify};
use crate::client::Link;
use crate::contract::peer::{Endpoint, TlsInfo, TlsRole};
use crate::derivations::{Derived, Job, Recipe};
use crate::failure::Failure;
use crate::id::{ClientId, ServerId};
use crate::inbox::Cursor;
use crate::login_failure::LoginFailure;
use crate::mail::Letter;
use crate::parameters::{ParameterSet, is_fact};
use crate::pool::{NO_POOL, Welcome};
use crate::server::ServerState;
use crate::settings::TlsMode;
use crate::worker::Worker;

/// No message of a login is longer.
const LOGIN_MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// What the connection is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    Pool,
    /// A client's own connection, with its startup parameters.
    Tunnel {
        client: ClientId,
        parameters: Vec<(Arc<str>, Arc<str>)>,
    },
    Cancel {
        target: ServerId,
        process_id: u32,
        key: Box<[u8]>,
    },
}

#[derive(Debug)]
pub(crate) enum Phase {
    Connecting,
    /// SSLRequest was sent: one byte is the answer.
    TlsAnswer,
    TlsHandshake,
    Authentication(Exchange),
    /// Authenticated: parameters, the cancel key, ReadyForQuery.
    Settling,
    ConnectQuery,
}

/// Where the authentication stands.
#[derive(Debug)]
pub(crate) enum Exchange {
    /// The server says what it wants.
    Open,
    /// A password or its hash was sent.
    Answered,
    ScramFirst(Box<ClientFirst>),
    /// The salted password is being derived.
    Deriving(Box<ClientFinalPending>),
    ScramFinal(Box<ServerVerify>),
    /// The server has proved itself, and may say that all is well.
    Verified,
}

#[derive(Debug)]
pub(crate) struct Making {
    pub(crate) purpose: Purpose,
    pub(crate) phase: Phase,
    pub(crate) tls: Option<TlsInfo>,
    /// The server was asked for TLS.
    tls_tried: bool,
    facts: Vec<(Arc<str>, Arc<[u8]>)>,
    parameters: ParameterSet,
}

impl Making {
    pub(crate) fn new(purpose: Purpose) -> Self {
        Self {
            purpose,
            phase: Phase::Connecting,
            tls: None,
            tls_tried: false,
            facts: Vec::new(),
            parameters: ParameterSet::default(),
        }
    }
}

impl Worker {
    fn making(&mut self, id: ServerId) -> Option<&mut Making> {
        match &mut self.servers.get_mut(id)?.state {
            ServerState::Making(making) => Some(making),
            _ => None,
        }
    }

    /// The connection stands: TLS first, if it is wanted.
    pub(crate) fn server_connected(&mut self, id: ServerId) {
        let mode = self.cx.settings.server_tls_sslmode;
        let direct = self.cx.settings.server_tls_direct;
        let Some(server) = self.servers.get_mut(id) else { return };
        let Some(Endpoint::Tcp { host, .. }) = server.endpoint.clone() else { return self.introduce(id) };
        let wanted = match mode {
            TlsMode::Disable => false,
            // In clear first, as libpq does it. A cancel request is taken either way.
            TlsMode::Allow => server.pool != NO_POOL && self.pools[server.pool].needs_tls,
            _ => true,
        };
        if !wanted {
            return self.introduce(id);
        }
        let ServerState::Making(making) = &mut server.state else { return };
        making.tls_tried = true;
        if direct {
            making.phase = Phase::TlsHandshake;
            self.cx.out.start_tls(id, TlsRole::Connect { host, direct });
        } else {
            making.phase = Phase::TlsAnswer;
            self.cx.out.send(id, write::ssl_request);
        }
    }

    pub(crate) fn server_tls_ready(&mut self, id: ServerId, tls: TlsInfo) {
        if let Some(server) = self.servers.get_mut(id)
            && let ServerState::Making(making) = &mut server.state
        {
            server.tls = tls.description.as_str().into();
            making.tls = Some(tls);
            self.introduce(id);
        }
    }

    /// With the same settings and certificates it would fail again. A session that has begun hears of its end only.
    pub(crate) fn server_tls_failed(&mut self, id: ServerId, reason: &str) {
        self.server_login_failed(id, LoginFailure::refused(format!("TLS failed: {reason}")));
    }

    /// Says what we are here for.
    fn introduce(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let ServerState::Making(making) = &mut server.state else { return };
        if let Purpose::Cancel { target, process_id, key } = &making.purpose {
            let (target, process_id, key) = (*target, *process_id, key.clone());
            self.cx.out.send(id, |out| write::cancel_request(out, process_id, &key));
            server.state = ServerState::Canceller { target };
            return;
        }
        making.phase = Phase::Authentication(Exchange::Open);
        let pool = &self.pools[server.pool];
        let database = pool.database.server_database.as_ref().unwrap_or(&pool.name.database);
        let mut parameters: Vec<(&str, &str)> = vec![("user", &pool.name.user), ("database", database)];
        parameters.extend(pool.database.startup_parameters.iter().map(|(name, value)| (&**name, &**value)));
        if let Purpose::Tunnel { parameters: own, .. } = &making.purpose {
            parameters.extend(own.iter().map(|(name, value)| (&**name, &**value)));
        }
        self.cx.out.send(id, |out| write::startup(out, ProtocolVersion::V3_2, &parameters));
    }

    /// Takes bytes of a server that is being made.
    pub(crate) fn making_bytes(&mut self, id: ServerId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        loop {
            let Some(making) = self.making(id) else {
                // It is made: what follows belongs to its session.
                return cursor.at + self.server_bytes(id, cursor.rest());
            };
            if cursor.rest().is_empty() {
                return cursor.at;
            }
            if matches!(making.phase, Phase::TlsAnswer) {
                let answer = cursor.rest()[0];
                cursor.at += 1;
                self.tls_answer(id, answer);
                continue;
            }
            if matches!(making.phase, Phase::TlsHandshake) {
                return cursor.at;
            }
            let Some(server) = self.servers.get_mut(id) else { return cursor.at };
            let handled = match server.inbox.take_whole(&mut cursor, login_message_len) {
                Ok(Some(message)) => self.login_message(id, message[0], &message[HEADER_LEN..]),
                Ok(None) => return cursor.at,
                Err(failure) => Err(failure),
            };
            if let Err(failure) = handled {
                self.server_login_failed(id, failure);
                return input.len();
            }
        }
    }

    fn tls_answer(&mut self, id: ServerId, answer: u8) {
        let mode = self.cx.settings.server_tls_sslmode;
        let Some(server) = self.servers.get_mut(id) else { return };
        let Some(Endpoint::Tcp { host, .. }) = server.endpoint.clone() else { return };
        match answer {
            TLS_ACCEPTED => {
                if let Some(making) = self.making(id) {
                    making.phase = Phase::TlsHandshake;
                }
                self.cx.out.start_tls(id, TlsRole::Connect { host, direct: false });
            }
            TLS_REFUSED if mode <= TlsMode::Prefer => self.introduce(id),
            TLS_REFUSED => self.server_login_failed(id, LoginFailure::refused("the server does not support TLS")),
            _ => self.server_login_failed(id, LoginFailure::broken("the server did not answer the SSLRequest")),
        }
    }

    fn login_message(&mut self, id: ServerId, tag: u8, body: &[u8]) -> Result<(), LoginFailure> {
        let Some(making) = self.making(id) else { return Ok(()) };
        let tag = BackendTag::from_byte(tag);
        let settled = matches!(making.phase, Phase::Settling | Phase::ConnectQuery);
        match tag {
            Some(BackendTag::ErrorResponse) => self.login_error(id, body),
            Some(BackendTag::NoticeResponse) => self.login_notice(id, body),
            Some(BackendTag::NegotiateProtocolVersion) => Ok(()),
            Some(BackendTag::Authentication) if !settled => self.authentication(id, body),
            Some(BackendTag::ParameterStatus) if settled => {
                let (name, value) =
                    backend::parameter_status(body).map_err(|bad| LoginFailure::broken(bad.to_string()))?;
                if is_fact(name) {
                    making.facts.retain(|(known, _)| **known != *name);
                    making.facts.push((name.into(), value.into()));
                } else {
                    making.parameters.set(name, value, true);
                }
                if !making.parameters.is_within_bounds() {
                    return Err(LoginFailure::broken("the server reported too many parameters"));
                }
                Ok(())
            }
            Some(BackendTag::BackendKeyData) if settled => {
                let (process_id, key) =
                    backend::backend_key(body).map_err(|bad| LoginFailure::broken(bad.to_string()))?;
                let key = Some((process_id, key.into()));
                if let Some(server) = self.servers.get_mut(id) {
                    server.key = key;
                }
                Ok(())
            }
            Some(BackendTag::ReadyForQuery) if settled => match backend::ready(body) {
                Ok(TransactionStatus::Idle) => {
                    self.server_settled(id);
                    Ok(())
                }
                _ => Err(LoginFailure::broken("the session did not begin idle")),
            },
            // Whatever the connect query answers.
            Some(_) if matches!(making.phase, Phase::ConnectQuery) => Ok(()),
            _ => Err(LoginFailure::broken("the server sent a message that has no place in a login")),
        }
    }

    /// FATAL ends the login. Its text is for whoever waits, unless the server is only starting or stopping.
    fn login_error(&mut self, id: ServerId, body: &[u8]) -> Result<(), LoginFailure> {
        let fields = ErrorFields::parse(body).map_err(|bad| LoginFailure::broken(bad.to_string()))?;
        if self.making(id).is_some_and(|making| matches!(making.phase, Phase::ConnectQuery)) {
            let text = String::from_utf8_lossy(fields.message).into_owned();
            self.cx.log_warning(format!("connect_query failed: {text}"));
            return Ok(());
        }
        Err(LoginFailure::of_server(&fields))
    }

    /// Nobody has asked for it, so only the log has it.
    fn login_notice(&mut self, id: ServerId, body: &[u8]) -> Result<(), LoginFailure> {
        let fields = ErrorFields::parse(body).map_err(|bad| LoginFailure::broken(bad.to_string()))?;
        let label = self.servers.get(id).map(|server| self.pool_label(server.pool)).unwrap_or_default();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.cx.log_info(format!("S: {label}: {}: {}", text(fields.severity), text(fields.message)));
        Ok(())
    }

    fn authentication(&mut self, id: ServerId, body: &[u8]) -> Result<(), LoginFailure> {
        let message = Authentication::parse(body).map_err(|bad| LoginFailure::broken(bad.to_string()))?;
        let Some(making) = self.making(id) else { return Ok(()) };
        let Phase::Authentication(exchange) = &mut making.phase else { return Ok(()) };
        match (message, std::mem::replace(exchange, Exchange::Answered)) {
            (Authentication::Ok, Exchange::Open | Exchange::Answered | Exchange::Verified) => {
                making.phase = Phase::Settling;
                Ok(())
            }
            (Authentication::CleartextPassword, Exchange::Open) => match self.server_secret(id) {
                Some(Secret::Plain(password)) => {
                    self.cx.out.send(id, |out| write::password(out, password.as_bytes()));
                    Ok(())
                }
                _ => Err(no_password("a password")),
            },
            (Authentication::Md5Password { salt }, Exchange::Open) => self.answer_md5(id, salt),
            (Authentication::Sasl { mechanisms }, Exchange::Open) => self.begin_scram(id, &mechanisms),
            (Authentication::SaslContinue { data }, Exchange::ScramFirst(first)) => {
                self.continue_scram(id, *first, data)
            }
            (Authentication::SaslFinal { data }, Exchange::ScramFinal(verify)) => {
                verify.on_server_final(data).map_err(|error| LoginFailure::refused(error.to_string()))?;
                if let Some(making) = self.making(id) {
                    making.phase = Phase::Authentication(Exchange::Verified);
                }
                Ok(())
            }
            (Authentication::Unsupported { code }, _) => Err(LoginFailure::refused(format!(
                "the server asks for authentication method {code}, which is not supported"
            ))),
            _ => Err(LoginFailure::broken("the server's authentication messages are out of order")),
        }
    }

    fn answer_md5(&mut self, id: ServerId, salt: [u8; 4]) -> Result<(), LoginFailure> {
        let user = self.servers.get(id).map(|server| Arc::clone(&self.pools[server.pool].name.user));
        let stored = match (self.server_secret(id), user) {
            (Some(Secret::Md5(stored)), _) => stored,
            (Some(Secret::Plain(password)), Some(user)) => auth::md5_stored(&user, password.as_bytes()),
            _ => return Err(no_password("a password or its md5 hash")),
        };
        let response = auth::md5_response(&stored, salt);
        self.cx.out.send(id, |out| write::password(out, response.as_bytes()));
        Ok(())
    }

    fn begin_scram(&mut self, id: ServerId, mechanisms: &[&str]) -> Result<(), LoginFailure> {
        let nonce = auth::encode_nonce(&self.cx.random::<18>());
        let Some(making) = self.making(id) else { return Ok(()) };
        let binding = match making.tls.as_ref().and_then(|tls| tls.server_end_point.clone()) {
            Some(hash) => ChannelBinding::TlsServerEndPoint(hash),
            None => ChannelBinding::None,
        };
        // PostgreSQL takes the user from the startup packet and ignores the one in here, which libpq leaves empty.
        let first = ClientFirst::new("", &nonce, mechanisms, binding)
            .map_err(|error| LoginFailure::refused(error.to_string()))?;
        let (mechanism, data) = (first.mechanism(), first.message());
        making.phase = Phase::Authentication(Exchange::ScramFirst(Box::new(first)));
        self.cx.out.send(id, |out| write::sasl_initial(out, mechanism, &data));
        Ok(())
    }

    fn continue_scram(&mut self, id: ServerId, first: ClientFirst, data: &[u8]) -> Result<(), LoginFailure> {
        let pending = first.on_server_first(data).map_err(|error| LoginFailure::refused(error.to_string()))?;
        let pool = self.servers.get(id).map(|server| server.pool);
        let keys = pool.and_then(|pool| self.pools[pool].keys.clone());
        match (self.server_secret(id), keys) {
            (Some(Secret::Plain(password)), _) => {
                self.derive_for_server(id, pending, password);
                Ok(())
            }
            // The client proved that it has the secret; the keys fit where the server's verifier is the same one.
            (Some(Secret::Scram(verifier)), Some(keys))
                if verifier.salt == pending.salt && verifier.iterations == pending.iterations =>
            {
                self.finish_scram(id, pending, Credentials::Keys(keys));
                Ok(())
            }
            (Some(Secret::Scram(_)), Some(_)) => Err(LoginFailure::refused(
                "the SCRAM secret in auth_file is not the one that the server has for this user",
            )),
            _ => Err(no_password("a password, or a client's SCRAM login with the same secret")),
        }
    }

    /// The salted password of the pool's last login, where the server asks for the same, else a new one.
    fn derive_for_server(&mut self, id: ServerId, pending: ClientFinalPending, password: Arc<str>) {
        let Some(pool) = self.servers.get(id).map(|server| server.pool) else { return };
        let recipe = Recipe { password, salt: pending.salt.clone(), iterations: pending.iterations };
        let known = self.pools[pool].salted.as_ref().filter(|known| known.recipe == recipe);
        if let Some(salted) = known.map(|known| known.salted) {
            return self.finish_scram(id, pending, Credentials::Salted(salted));
        }
        if let Some(making) = self.making(id) {
            making.phase = Phase::Authentication(Exchange::Deriving(Box::new(pending)));
        }
        self.derive(Job::Server { server: id, pool }, recipe);
    }

    fn finish_scram(&mut self, id: ServerId, pending: ClientFinalPending, credentials: Credentials) {
        let (data, verify) = pending.finish_with(credentials);
        if let Some(making) = self.making(id) {
            making.phase = Phase::Authentication(Exchange::ScramFinal(Box::new(verify)));
            self.cx.out.send(id, |out| write::sasl_response(out, &data));
        }
    }

    /// The salted password of a server's login has been derived.
    pub(crate) fn server_derived(&mut self, id: ServerId, pool: u32, derived: &Derived) {
        let Some(making) = self.making(id) else { return };
        let Phase::Authentication(exchange) = &mut making.phase else { return };
        if let Exchange::Deriving(pending) = std::mem::replace(exchange, Exchange::Answered) {
            self.finish_scram(id, *pending, Credentials::Salted(derived.salted));
        }
        self.pools[pool].salted = Some(derived.clone());
    }

    /// Clients stay in the pool of their user when a reload forces another: its password is not theirs.
    fn server_secret(&self, id: ServerId) -> Option<Secret> {
        let pool = &self.pools[self.servers.get(id)?.pool];
        let forced = pool.database.forced_user.as_ref().is_some_and(|user| *user == pool.name.user);
        let password = pool.database.forced_password.as_ref().filter(|_| forced);
        password.or_else(|| self.cx.settings.secrets.get(&pool.name.user)).cloned()
    }

    /// ReadyForQuery: the session stands, or its connect query is done.
    fn server_settled(&mut self, id: ServerId) {
        let Some(server) = self.servers.get(id) else { return };
        let connect_query = self.pools[server.pool].database.connect_query.clone();
        let Some(making) = self.making(id) else { return };
        let pooled = matches!(making.purpose, Purpose::Pool);
        if let (Some(query), Phase::Settling, true) = (connect_query, &making.phase, pooled) {
            making.phase = Phase::ConnectQuery;
            self.cx.out.send(id, |out| write::query(out, query.as_bytes()));
            return;
        }
        self.server_made(id);
    }

    fn server_made(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let ServerState::Making(making) = std::mem::replace(&mut server.state, ServerState::Idle) else {
            return;
        };
        let Making { purpose, facts, parameters, .. } = *making;
        server.parameters = self.cx.parameter_sets.intern(parameters);
        let welcome = Welcome { facts, defaults: Arc::clone(&server.parameters) };
        let pool_index = server.pool;
        let pool = &mut self.pools[pool_index];
        pool.connecting = pool.connecting.saturating_sub(1);
        let failed_before = pool.failures > 0;
        pool.login_succeeded();
        let name = Arc::clone(&pool.name);
        if failed_before {
            self.cx.tell_steward(Letter::LoginSucceeded { pool: name });
            // Only one was made of those that are missing.
            self.fill(pool_index);
        }
        let pool = &mut self.pools[pool_index];
        if let Purpose::Tunnel { client, .. } = purpose {
            return self.tunnel_made(id, client, &welcome);
        }
        if pool.welcome.as_deref() != Some(&welcome) {
            let welcome = Arc::new(welcome);
            pool.set_welcome(Arc::clone(&welcome));
            self.tell_welcome(pool_index, &welcome);
        }
        self.cx.log_info(format!("S: {}: new connection to server", self.pool_label(pool_index)));
        self.free_server(id);
        self.schedule(pool_index);
        self.ask(pool_index);
    }

    /// A login did not succeed: the connection ends, and whoever waits is told if waiting is no use.
    pub(crate) fn server_login_failed(&mut self, id: ServerId, failure: LoginFailure) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let ServerState::Making(making) = std::mem::replace(&mut server.state, ServerState::Closing) else {
            return;
        };
        let pool = server.pool;
        self.cx.out.close(id);
        self.note_closing(id);
        self.making_ended(*making, pool, &failure);
    }

    /// A server that was being made is not going to be.
    pub(crate) fn making_ended(&mut self, making: Making, pool_index: u32, failure: &LoginFailure) {
        if let Purpose::Cancel { target, .. } = making.purpose {
            return self.cancel_ended(target, true);
        }
        let pool = &mut self.pools[pool_index];
        pool.connecting = pool.connecting.saturating_sub(1);
        let tls_left = self.cx.settings.server_tls_sslmode == TlsMode::Allow && !making.tls_tried;
        pool.needs_tls = tls_left && failure.wants_tls;
        if pool.needs_tls {
            return self.make_with_tls(making.purpose, pool_index, failure);
        }
        pool.refusal = failure.refused.then(|| Arc::clone(&failure.report));
        let (name, refusal) = (Arc::clone(&pool.name), pool.refusal.clone());
        self.cx.tell_steward(Letter::LoginFailed { pool: name, refusal });
        self.pools.note_failed(pool_index);
        self.cx.log_warning(format!("S: {}: login failed: {}", self.pool_label(pool_index), failure.text));
        if let Purpose::Tunnel { client, .. } = making.purpose {
            self.fail_client(client, &Failure::ServerLogin { report: Arc::clone(&failure.report) });
        } else if failure.refused {
            self.refuse_waiting(pool_index);
        }
        self.ask(pool_index);
    }

    /// `server_tls_sslmode = allow`: the server takes nobody in clear. Whoever it was for waits for another connection.
    fn make_with_tls(&mut self, purpose: Purpose, pool_index: u32, failure: &LoginFailure) {
        let label = self.pool_label(pool_index);
        self.cx.log_info(format!("S: {label}: trying with TLS, since the server says: {}", failure.text));
        if let Purpose::Tunnel { client: id, .. } = purpose
            && let Some(client) = self.clients.get_mut(id)
            && let Link::WaitingTunnel { since } = client.link
        {
            client.place = self.pools[pool_index].tunnels.join(id, since);
        }
        self.ask(pool_index);
    }
}

fn login_message_len(head: &[u8; HEADER_LEN]) -> Result<usize, LoginFailure> {
    let total = Header::parse(head).body_len.map(|length| HEADER_LEN + length as usize);
    let total = total.filter(|total| *total <= LOGIN_MESSAGE_BYTES_MAX);
    total.ok_or_else(|| LoginFailure::broken("the server sent no PostgreSQL message"))
}

fn no_password(what: &str) -> LoginFailure {
    LoginFailure::refused(format!("the server asks for {what}, and auth_file has none for this user"))
}
