//! How a connection to PostgreSQL becomes a server: TLS, authentication, what it greets with, the connect query.
//!
//! What comes of it for the pool and for who waits is the worker's business (`supply.rs`).

use std::sync::Arc;

use weir_wire::backend::{self, Authentication, ErrorFields};
use weir_wire::startup::{TLS_ACCEPTED, TLS_REFUSED};
use weir_wire::{BackendTag, HEADER_LEN, Header, ProtocolVersion, TransactionStatus, write};

use crate::auth::{self, ChannelBinding, ClientFinalPending, ClientFirst, Credentials, Secret};
use crate::context::Context;
use crate::derivations::{Derivations, Derived, Job, Recipe};
use crate::id::ServerId;
use crate::inbox::{Cursor, Inbox};
use crate::kept::exact;
use crate::label;
use crate::making::login_failure::LoginFailure;
use crate::making::{Asks, AuthState, Making, Phase, Purpose, Told};
use crate::parameters::is_fact;
use crate::peer::{Endpoint, Peer, TlsInfo, TlsRole};
use crate::pool::Pool;
use crate::pool::welcome::is_console;
use crate::settings::TlsMode;

const ILLEGIBLE: &str =
    "a parameter's default is not ASCII, and the default of client_encoding is not the database's encoding";

/// Which of a cluster's nodes it is, by its group (`pg_dist_local_group`, Citus 13).
const GROUP: &str = "SELECT groupid FROM pg_catalog.pg_dist_local_group";
const UNASKED: &str = "the server answered what it was not asked";

/// No message of a login is longer.
const LOGIN_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Notices of one login that the log has; more of them are dropped.
const NOTICES_LOGGED_MAX: u32 = 16;

/// What comes of an input.
pub(crate) enum Then {
    /// The server's next message is awaited.
    Nothing,
    /// The session stands.
    Made,
    /// It was made to carry a cancel request, which is sent.
    CancelSent,
    Failed(LoginFailure),
}

impl From<LoginFailure> for Then {
    fn from(failure: LoginFailure) -> Self {
        Self::Failed(failure)
    }
}

/// A server that is being made, for the length of one input.
pub(crate) struct ServerLogin<'w> {
    pub(crate) cx: &'w mut Context,
    pub(crate) derivations: &'w mut Derivations,
    pub(crate) id: ServerId,
    pub(crate) number: u64,
    pub(crate) making: &'w mut Making,
    pub(crate) endpoint: Option<&'w Endpoint>,
    pub(crate) peer: Option<&'w Peer>,
    /// As the console shows it.
    pub(crate) tls: &'w mut Arc<str>,
    pub(crate) key: &'w mut Option<(u32, Box<[u8]>)>,
    /// Its pool and the pool's index; none for what carries a cancel request.
    pub(crate) pool: Option<(u32, &'w mut Pool)>,
}

impl ServerLogin<'_> {
    /// The connection stands: TLS first, if it is wanted.
    pub(crate) fn connected(&mut self) -> Then {
        let direct = self.cx.settings.server_tls_direct;
        let Some(Endpoint::Tcp { host, .. }) = self.endpoint.cloned() else { return self.introduce() };
        let wanted = match self.cx.settings.server_tls_sslmode {
            TlsMode::Disable => false,
            // In clear first, as libpq does it. A cancel request is taken either way.
            TlsMode::Allow => self.pool.as_ref().is_some_and(|(_, pool)| pool.needs_tls),
            _ => true,
        };
        if !wanted {
            return self.introduce();
        }
        self.making.tls_tried = true;
        if direct {
            self.making.phase = Phase::TlsHandshake;
            self.cx.out.start_tls(self.id, TlsRole::Connect { host, direct });
        } else {
            self.making.phase = Phase::TlsAnswer;
            self.cx.out.send(self.id, write::ssl_request);
        }
        Then::Nothing
    }

    pub(crate) fn tls_ready(&mut self, tls: TlsInfo) -> Then {
        *self.tls = tls.description.as_str().into();
        self.making.tls = Some(tls);
        self.introduce()
    }

    /// Says what we are here for.
    fn introduce(&mut self) -> Then {
        if let Purpose::Cancel { process_id, key, .. } = &self.making.purpose {
            self.cx.out.send(self.id, |out| write::cancel_request(out, *process_id, key));
            return Then::CancelSent;
        }
        let Some((_, pool)) = &self.pool else { return Then::Nothing };
        self.making.phase = Phase::Authentication(AuthState::Open);
        let database = pool.server_database();
        let mut parameters: Vec<(&str, &str)> = vec![("user", &pool.name.user), ("database", database)];
        parameters.extend(pool.database.startup_parameters.iter().map(|(name, value)| (&**name, &**value)));
        if let Purpose::Tunnel { parameters: own, .. } = &self.making.purpose {
            parameters.extend(own.iter().map(|(name, value)| (&**name, &**value)));
        }
        self.cx.out.send(self.id, |out| write::startup(out, ProtocolVersion::V3_2, &parameters));
        Then::Nothing
    }

    /// Takes what it can of the server's bytes.
    pub(crate) fn bytes(&mut self, inbox: &mut Inbox, cursor: &mut Cursor<'_>) -> Then {
        let asked_before = self.asks();
        loop {
            let Some(&first) = cursor.rest().first() else { return Then::Nothing };
            let asks_now = self.asks() != asked_before;
            if asks_now && !BackendTag::from_byte(first).is_some_and(BackendTag::is_asynchronous) {
                // It was there before the query was sent: taken for its answer, each later one would be another request's.
                return LoginFailure::broken(UNASKED).into();
            }
            let then = match self.making.phase {
                Phase::TlsHandshake => return Then::Nothing,
                Phase::TlsAnswer => {
                    cursor.at += 1;
                    self.tls_answer(first)
                }
                _ => match inbox.take_whole(cursor, login_message_len) {
                    Ok(Some(message)) => self.message(message[0], &message[HEADER_LEN..]).unwrap_or_else(Then::Failed),
                    Ok(None) => return Then::Nothing,
                    Err(failure) => Then::Failed(failure),
                },
            };
            if !matches!(then, Then::Nothing) {
                return then;
            }
        }
    }

    fn tls_answer(&mut self, answer: u8) -> Then {
        let Some(Endpoint::Tcp { host, .. }) = self.endpoint.cloned() else { return Then::Nothing };
        match answer {
            TLS_ACCEPTED => {
                self.making.phase = Phase::TlsHandshake;
                self.cx.out.start_tls(self.id, TlsRole::Connect { host, direct: false });
                Then::Nothing
            }
            TLS_REFUSED if self.cx.settings.server_tls_sslmode <= TlsMode::Prefer => self.introduce(),
            TLS_REFUSED => LoginFailure::refused("the server does not support TLS").into(),
            _ => LoginFailure::broken("the server did not answer the SSLRequest").into(),
        }
    }

    fn message(&mut self, tag: u8, body: &[u8]) -> Result<Then, LoginFailure> {
        let settled = matches!(self.making.phase, Phase::Settling | Phase::ConnectQuery { .. });
        match BackendTag::from_byte(tag) {
            Some(BackendTag::ErrorResponse) => self.error(body)?,
            Some(BackendTag::NoticeResponse) => self.notice(body)?,
            Some(BackendTag::NegotiateProtocolVersion) => {}
            Some(BackendTag::Authentication) if !settled => self.authentication(body)?,
            Some(BackendTag::ParameterStatus) if settled => self.parameter(body)?,
            Some(BackendTag::BackendKeyData) if settled => {
                let (process_id, key) =
                    backend::backend_key(body).map_err(|bad| LoginFailure::broken(bad.to_string()))?;
                *self.key = Some((process_id, key.into()));
            }
            Some(BackendTag::ReadyForQuery)
                if matches!(
                    self.making.phase,
                    Phase::Settling | Phase::ConnectQuery { told: Told::Ended | Told::Failed, .. }
                ) =>
            {
                match backend::ready(body) {
                    Ok(TransactionStatus::Idle) if self.is_illegible() => return Err(LoginFailure::refused(ILLEGIBLE)),
                    Ok(TransactionStatus::Idle) => return Ok(self.settled()),
                    _ => return Err(LoginFailure::broken("the session did not begin idle")),
                }
            }
            Some(BackendTag::ReadyForQuery) => return Err(LoginFailure::broken(UNASKED)),
            Some(BackendTag::DataRow) if self.is_told_of_database() => {
                let row = backend::row_values(body).map_err(|bad| LoginFailure::broken(bad.to_string()))?;
                self.making.database = row.get(exact::DATABASE).copied().flatten().map(Box::from);
            }
            Some(BackendTag::DataRow) if self.asks() == Some(Asks::Group) => {
                let row = backend::row_values(body).map_err(|bad| LoginFailure::broken(bad.to_string()))?;
                let text = row.first().copied().flatten().and_then(|value| std::str::from_utf8(value).ok());
                self.making.group = text.and_then(|text| text.parse().ok());
            }
            // Whatever the connect query answers.
            Some(tag) if matches!(self.making.phase, Phase::ConnectQuery { told: Told::Nothing | Told::Ended, .. }) => {
                if let (
                    BackendTag::CommandComplete | BackendTag::EmptyQueryResponse,
                    Phase::ConnectQuery { told, .. },
                ) = (tag, &mut self.making.phase)
                {
                    *told = Told::Ended;
                }
            }
            _ => return Err(LoginFailure::broken("the server sent a message that has no place in a login")),
        }
        Ok(Then::Nothing)
    }

    /// Whether a default is told that nobody can be given: in another encoding than the database's. A client's own connection is nobody else's.
    fn is_illegible(&self) -> bool {
        let encoding = self.making.facts.iter().find(|(name, _)| &**name == "server_encoding");
        let encoding = encoding.map_or(&[][..], |(_, value)| value);
        !self.making.purpose.is_tunnel() && !self.making.parameters.is_legible(encoding)
    }

    fn parameter(&mut self, body: &[u8]) -> Result<(), LoginFailure> {
        let (name, value) = backend::parameter_status(body).map_err(|bad| LoginFailure::broken(bad.to_string()))?;
        let making = &mut *self.making;
        if name.starts_with(exact::PREFIX) {
            making.exact.get_or_insert_default().told(name, Some(value));
        } else if is_fact(name) {
            making.facts.retain(|(known, _)| **known != *name);
            making.facts.push((name.into(), value.into()));
        } else {
            // What a login tells is all in one encoding. What a connect_query changes is not told again in another.
            if matches!(making.phase, Phase::ConnectQuery { .. }) && making.parameters.makes_stale(name, value) {
                return Err(LoginFailure::refused(ILLEGIBLE));
            }
            making.parameters.set(name, value, true);
        }
        if !making.parameters.is_within_bounds() {
            return Err(LoginFailure::broken("the server reported too many parameters"));
        }
        Ok(())
    }

    /// FATAL ends the login. Its text is for whoever waits, unless the server is only starting or stopping.
    fn error(&mut self, body: &[u8]) -> Result<(), LoginFailure> {
        let fields = ErrorFields::parse(body).map_err(|bad| LoginFailure::broken(bad.to_string()))?;
        if let Phase::ConnectQuery { asks, told } = &mut self.making.phase {
            if std::mem::replace(told, Told::Failed) == Told::Failed {
                return Err(LoginFailure::broken(UNASKED));
            }
            let what = match asks {
                Asks::Configured => "connect_query",
                Asks::WithDatabase => "asking which database it is",
                Asks::Module => "asking whether it tells what sessions hold",
                Asks::Group => "asking which node it is",
            };
            let text = String::from_utf8_lossy(fields.message).into_owned();
            self.cx.log_warning(format!("{what} failed: {text}"));
            return Ok(());
        }
        Err(LoginFailure::of_server(&fields, self.making.purpose.is_tunnel()))
    }

    /// Nobody has asked for it, so only the log has it.
    fn notice(&mut self, body: &[u8]) -> Result<(), LoginFailure> {
        let fields = ErrorFields::parse(body).map_err(|bad| LoginFailure::broken(bad.to_string()))?;
        self.making.notices += 1;
        if self.making.notices > NOTICES_LOGGED_MAX {
            return Ok(());
        }
        let pool = self.pool.as_ref().map(|(_, pool)| &*pool.name);
        let label = label::of_server(self.number, pool, self.peer, self.endpoint);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.cx.log_info(format!("{label} {}: {}", text(fields.severity), text(fields.message)));
        Ok(())
    }

    fn authentication(&mut self, body: &[u8]) -> Result<(), LoginFailure> {
        let message = Authentication::parse(body).map_err(|bad| LoginFailure::broken(bad.to_string()))?;
        let Phase::Authentication(state) = &mut self.making.phase else { return Ok(()) };
        match (message, std::mem::replace(state, AuthState::Answered)) {
            (Authentication::Ok, AuthState::Open | AuthState::Answered | AuthState::Verified) => {
                self.making.phase = Phase::Settling;
                Ok(())
            }
            (Authentication::CleartextPassword, AuthState::Open) => match self.secret() {
                Some(Secret::Plain(password)) => {
                    self.cx.out.send(self.id, |out| write::password(out, password.as_bytes()));
                    Ok(())
                }
                _ => Err(no_password("a password")),
            },
            (Authentication::Md5Password { salt }, AuthState::Open) => self.answer_md5(salt),
            (Authentication::Sasl { mechanisms }, AuthState::Open) => self.begin_scram(&mechanisms),
            (Authentication::SaslContinue { data }, AuthState::ScramFirst(first)) => self.continue_scram(*first, data),
            (Authentication::SaslFinal { data }, AuthState::ScramFinal(verify)) => {
                verify.on_server_final(data).map_err(|error| LoginFailure::refused(error.to_string()))?;
                self.making.phase = Phase::Authentication(AuthState::Verified);
                Ok(())
            }
            (Authentication::Unsupported { code }, _) => Err(LoginFailure::refused(format!(
                "the server asks for authentication method {code}, which is not supported"
            ))),
            _ => Err(LoginFailure::broken("the server's authentication messages are out of order")),
        }
    }

    fn answer_md5(&mut self, salt: [u8; 4]) -> Result<(), LoginFailure> {
        let stored = match (self.secret(), &self.pool) {
            (Some(Secret::Md5(stored)), _) => stored,
            (Some(Secret::Plain(password)), Some((_, pool))) => auth::md5_stored(&pool.name.user, password.as_bytes()),
            _ => return Err(no_password("a password or its md5 hash")),
        };
        let response = auth::md5_response(&stored, salt);
        self.cx.out.send(self.id, |out| write::password(out, response.as_bytes()));
        Ok(())
    }

    fn begin_scram(&mut self, mechanisms: &[&str]) -> Result<(), LoginFailure> {
        let nonce = auth::encode_nonce(&self.cx.random::<18>());
        let binding = match self.making.tls.as_ref().and_then(|tls| tls.server_end_point.clone()) {
            Some(hash) => ChannelBinding::TlsServerEndPoint(hash),
            None => ChannelBinding::None,
        };
        // PostgreSQL takes the user from the startup packet and ignores the one in here, which libpq leaves empty.
        let first = ClientFirst::new("", &nonce, mechanisms, binding)
            .map_err(|error| LoginFailure::refused(error.to_string()))?;
        let (mechanism, data) = (first.mechanism(), first.message());
        self.making.phase = Phase::Authentication(AuthState::ScramFirst(Box::new(first)));
        self.cx.out.send(self.id, |out| write::sasl_initial(out, mechanism, &data));
        Ok(())
    }

    fn continue_scram(&mut self, first: ClientFirst, data: &[u8]) -> Result<(), LoginFailure> {
        let pending = first.on_server_first(data).map_err(|error| LoginFailure::refused(error.to_string()))?;
        let keys = self.pool.as_ref().and_then(|(_, pool)| pool.credentials.keys.clone());
        match (self.secret(), keys) {
            (Some(Secret::Plain(password)), _) => {
                self.derive(pending, password);
                Ok(())
            }
            // The client proved that it has the secret; the keys fit where the server's verifier is the same one.
            (Some(Secret::Scram(verifier)), Some(keys))
                if verifier.salt == pending.salt && verifier.iterations == pending.iterations =>
            {
                self.finish_scram(pending, Credentials::Keys(keys));
                Ok(())
            }
            (Some(Secret::Scram(_)), Some(_)) => Err(LoginFailure::refused(
                "the SCRAM secret that clients log in with is not the one that the server has for this user",
            )),
            _ => Err(no_password("a password, or a client's SCRAM login with the same secret")),
        }
    }

    /// The salted password of the pool's last login, where the server asks for the same, else a new one.
    fn derive(&mut self, pending: ClientFinalPending, password: Arc<str>) {
        let Some((index, pool)) = &self.pool else { return };
        let recipe = Recipe { password, salt: pending.salt.clone(), iterations: pending.iterations };
        let known = pool.salted.as_ref().filter(|known| known.recipe == recipe);
        if let Some(salted) = known.map(|known| known.salted) {
            return self.finish_scram(pending, Credentials::Salted(salted));
        }
        self.making.phase = Phase::Authentication(AuthState::Deriving(Box::new(pending)));
        self.cx.derive(self.derivations, Job::Server { server: self.id, pool: *index }, recipe);
    }

    fn finish_scram(&mut self, pending: ClientFinalPending, credentials: Credentials) {
        let (data, verify) = pending.finish_with(credentials);
        self.making.phase = Phase::Authentication(AuthState::ScramFinal(Box::new(verify)));
        self.cx.out.send(self.id, |out| write::sasl_response(out, &data));
    }

    /// The salted password has been derived.
    pub(crate) fn derived(&mut self, derived: &Derived) {
        let Phase::Authentication(state) = &mut self.making.phase else { return };
        if let AuthState::Deriving(pending) = std::mem::replace(state, AuthState::Answered) {
            self.finish_scram(*pending, Credentials::Salted(derived.salted));
        }
        if let Some((_, pool)) = &mut self.pool {
            pool.salted = Some(derived.clone());
        }
    }

    /// Clients stay in the pool of their user when a reload forces another: its password is not theirs.
    fn secret(&self) -> Option<Secret> {
        let (_, pool) = self.pool.as_ref()?;
        let forced = pool.database.forced_user.as_ref().is_some_and(|user| *user == pool.name.user);
        let password = pool.database.forced_password.as_ref().filter(|_| forced);
        let own = pool.credentials.secret.as_ref();
        let of_file = || self.cx.settings.secrets.get(&pool.name.user);
        password.or(own.filter(|_| pool.credentials.shown)).or_else(of_file).or(own).cloned()
    }

    fn is_told_of_database(&self) -> bool {
        matches!(self.making.phase, Phase::ConnectQuery { asks: Asks::WithDatabase, told: Told::Nothing })
    }

    fn asks(&self) -> Option<Asks> {
        match self.making.phase {
            Phase::ConnectQuery { asks, .. } => Some(asks),
            _ => None,
        }
    }

    /// ReadyForQuery: the session stands, or its query is done.
    fn settled(&mut self) -> Then {
        let query = match self.making.phase {
            Phase::Settling if matches!(self.making.purpose, Purpose::Pool) => self.first_query(),
            // One of its functions may be forbidden; the module is asked for all the same.
            Phase::ConnectQuery { asks: Asks::WithDatabase, told: Told::Failed } => {
                Some((Asks::Module, exact::QUESTION.into()))
            }
            _ => None,
        };
        let Some((asks, query)) = query.or_else(|| self.asks_for_group()) else { return Then::Made };
        self.cx.out.send(self.id, |out| write::query(out, query.as_bytes()));
        self.making.phase = Phase::ConnectQuery { asks, told: Told::Nothing };
        Then::Nothing
    }

    /// Behind a load balancer it may be any of the cluster's nodes.
    fn asks_for_group(&self) -> Option<(Asks, Arc<str>)> {
        let (_, pool) = self.pool.as_ref()?;
        let is_asked = matches!(self.making.phase, Phase::ConnectQuery { asks: Asks::Group, .. });
        (pool.is_balanced() && !is_asked).then(|| (Asks::Group, GROUP.into()))
    }

    fn first_query(&self) -> Option<(Asks, Arc<str>)> {
        let (_, pool) = self.pool.as_ref()?;
        match &pool.database.connect_query {
            Some(query) => Some((Asks::Configured, Arc::clone(query))),
            None => {
                let asks = pool.limits.keeps && !is_console(&self.making.facts);
                asks.then(|| (Asks::WithDatabase, exact::QUESTION_WITH_DATABASE.into()))
            }
        }
    }
}

fn login_message_len(head: &[u8; HEADER_LEN]) -> Result<usize, LoginFailure> {
    let total = Header::parse(head).body_len.map(|length| HEADER_LEN + length as usize);
    let total = total.filter(|total| *total <= LOGIN_MESSAGE_BYTES_MAX);
    total.ok_or_else(|| LoginFailure::broken("the server sent no PostgreSQL message"))
}

fn no_password(what: &str) -> LoginFailure {
    LoginFailure::refused(format!(
        "wrong password type: the server asks for {what}, and auth_file has none for this user"
    ))
}
