//! A client proves who it is: plain, md5, SCRAM-SHA-256 with and without channel binding, certificate; or others vouch for it.
//!
//! Owns the order of the messages; what they hold is computed in `auth`. An unknown user goes through the same exchange as
//! one with a wrong password, and fails at its end, at the same time. Nothing is derived for a name that is not in the file.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weir_wire::frontend::{self, AUTH_MESSAGE_LEN_MAX};
use weir_wire::{FrontendTag, HEADER_LEN, Header, write};

use crate::auth::{
    self, ChannelBinding, PlainCheck, ScramKeys, ScramVerifier, Secret, ServerFinal, ServerFirst, mock_verifier,
};
use crate::derivations::{Derived, Job, PASSWORDS_MAX, Recipe};
use crate::failure::{Failure, Proof};
use crate::hba::{Asked, Map, Missing, Record};
use crate::id::ClientId;
use crate::inbox::{Cursor, Inbox};
use crate::login::client_login::{ClientLogin, Shown, Then};
use crate::login::lookup::LookedUp;
use crate::login::strangers::{self, Realm, Strangers};
use crate::login::{Login, Phase};
use crate::names::{CONSOLE_DATABASES, shown};
use crate::outside::{Authority, Finding, Inquiry, Password};
use crate::peer::Peer;
use crate::settings::{AuthType, Settings};
use crate::time::{Duration, Time};

/// Whoever's password is wrong is told so this long after it came, and later by what a check may take: guessing takes time, and
/// how long this check took, or that there was nothing to check, cannot be seen.
const REFUSED_AFTER: Duration = Duration::from_millis(100);
/// For each iteration of the name's secret: several times what a derivation needs for it on a core of its own.
const REFUSED_AFTER_EACH: Duration = Duration(1);

/// What is known of users beside the settings.
#[derive(Debug)]
pub(crate) struct Known {
    /// Of plain passwords in the file, with the password.
    verifiers: BTreeMap<Arc<str>, (Arc<str>, ScramVerifier)>,
    strangers: Strangers,
}

impl Known {
    pub(crate) fn of(settings: &Settings) -> Self {
        Self { verifiers: BTreeMap::new(), strangers: Strangers::of(settings) }
    }

    /// A user was looked up there and found, by this worker or another. Whether that is the first of his kind.
    pub(crate) fn meet(&mut self, realm: Realm, asked: strangers::Asked) -> bool {
        self.strangers.meet(realm, asked)
    }

    /// Settings changed.
    pub(crate) fn renew(&mut self, settings: &Settings) {
        self.strangers.renew(settings);
        let current = |user: &Arc<str>| settings.secrets.get(user);
        self.verifiers.retain(|user, (of, _)| matches!(current(user), Some(Secret::Plain(now)) if now == of));
    }

    /// A verifier was made of a plain password.
    pub(crate) fn learn(&mut self, user: &Arc<str>, derived: &Derived, settings: &Settings) {
        let Recipe { password, salt, iterations } = &derived.recipe;
        // It may have changed in the meantime.
        if matches!(settings.secrets.get(user), Some(Secret::Plain(current)) if current == password) {
            let verifier = ScramVerifier::from_salted(&derived.salted, salt, *iterations);
            self.verifiers.insert(Arc::clone(user), (Arc::clone(password), verifier));
        }
    }

    /// The verifier of this password, where it has been derived with what was told.
    fn verifier_made(&self, user: &str, password: &str, told: &ScramVerifier) -> Option<ScramVerifier> {
        let (of, verifier) = self.verifiers.get(user)?;
        let same = **of == *password && verifier.salt == told.salt && verifier.iterations == told.iterations;
        same.then(|| verifier.clone())
    }
}

/// What it has to show: as the record says that is for it, where records do.
fn method(settings: &Settings, record: Option<&Record>) -> AuthType {
    record.map_or(settings.auth_type, |record| record.method)
}

impl ClientLogin<'_> {
    /// There is room for it: what does it have to show?
    pub(crate) fn begin_authentication(&mut self) -> Then {
        if self.login.is_own_user(self.peer, self.cx.config.uid) {
            return Then::Authenticated(None);
        }
        let settings = Arc::clone(&self.cx.settings);
        let record = match self.record(&settings) {
            Ok(record) => record,
            Err(Missing::Roles) => return self.asks_for_roles(),
            Err(Missing::Host) => return self.ask_what_host_is_called(),
        };
        self.login.method = method(&settings, record);
        self.login.under = Some(Arc::clone(&settings));
        if let Some(then) = self.looks_up() {
            return then;
        }
        let user = Arc::clone(&self.login.user);
        let known = self.secret().is_some();
        let map = record.and_then(|record| record.map.as_ref());
        let certificate = self.tls.and_then(|tls| tls.peer_common_name.as_deref());
        let certified = certificate.is_some_and(|name| leads(map, name, &user));
        match self.login.method {
            AuthType::Any => Then::Authenticated(None),
            AuthType::Trust if known => Then::Authenticated(None),
            // There is no proof that a guess would fail by.
            AuthType::Trust if matches!(self.login.looked_up, LookedUp::Nobody) => Then::Fail(Failure::NoSuchUser),
            AuthType::Trust => {
                Then::Fail(Failure::AuthenticationFailed { by: Proof::Trust, user: user.to_string(), stranger: None })
            }
            AuthType::Cert if known && certified => Then::Authenticated(None),
            AuthType::Cert => Then::Fail(Failure::CertificateRequired { user: user.to_string() }),
            AuthType::Peer | AuthType::Ident => self.ask_who_is_there(),
            // It is kept out by a record, or none is for it.
            AuthType::Reject | AuthType::Hba => {
                Then::Fail(Failure::Hba { line: record.map(|record| record.line), whence: self.whence() })
            }
            AuthType::Plain | AuthType::Pam | AuthType::Ldap => {
                self.login.phase = Phase::Password;
                self.cx.out.send(self.id, write::authentication_cleartext);
                Then::Nothing
            }
            AuthType::Md5 | AuthType::ScramSha256 => {
                match self.verifier_to_tell(&user) {
                    Some(verifier) => self.offer_scram(verifier),
                    None => self.ask_for_md5(),
                }
                Then::Nothing
            }
        }
    }

    /// The one that says what it has to show, where records do.
    fn record<'s>(&self, settings: &'s Settings) -> Result<Option<&'s Record>, Missing> {
        if settings.auth_type != AuthType::Hba {
            return Ok(None);
        }
        let own = [&*self.login.database];
        let databases = if self.login.is_to_console() { &CONSOLE_DATABASES[..] } else { &own };
        let asked = Asked {
            address: match self.peer {
                Peer::Tcp { ip, .. } => Some(*ip),
                Peer::Unix { .. } => None,
            },
            tls: self.tls.is_some(),
            databases: (!self.login.is_physical_replication() || self.login.is_to_console()).then_some(databases),
            user: &self.login.user,
            host: self.login.host.as_ref().map(Option::as_deref),
            roles: self.login.roles.as_deref(),
        };
        settings.hba.record(&asked)
    }

    fn ask_what_host_is_called(&mut self) -> Then {
        // Who comes through a Unix socket has none, and no record of one is his.
        if let Peer::Tcp { ip, .. } = self.peer {
            self.login.phase = Phase::NamingHost;
            self.cx.out.ask(self.id, Inquiry::HostOf { ip: ip.to_canonical() });
        }
        Then::Nothing
    }

    /// What it has shown is what it has to show as the settings of now have it, to the same authority, and lets it in as the same user: a reload
    /// may have made it another.
    pub(crate) fn shows_what_is_asked(&self) -> bool {
        if self.login.is_own_user(self.peer, self.cx.config.uid) {
            return true;
        }
        let (Some(then), now) = (&self.login.under, &self.cx.settings) else { return false };
        if Arc::ptr_eq(then, now) {
            return true;
        }
        let (Ok(of_then), Ok(record)) = (self.record(then), self.record(now)) else { return false };
        let Login { database, user, method, .. } = &*self.login;
        let same_map =
            match (of_then.and_then(|record| record.map.as_ref()), record.and_then(|record| record.map.as_ref())) {
                (Some(map), Some(other)) => map.is_same(other),
                (map, other) => map.is_none() && other.is_none(),
            };
        let (secret, secret_now) = (then.secrets.get(user), now.secrets.get(user));
        let same_secret = match method {
            AuthType::Any | AuthType::Pam | AuthType::Ldap => true,
            AuthType::Plain | AuthType::Md5 | AuthType::ScramSha256 => secret == secret_now,
            _ => secret.is_some() == secret_now.is_some(),
        };
        let entries =
            [then, now].map(|settings| settings.database(database).and_then(|entry| entry.forced_user.as_ref()));
        let authorities = [of_then, record].map(|record| record.and_then(|record| record.authority.as_ref()));
        self::method(now, record) == *method
            && same_map
            && authorities[0] == authorities[1]
            && same_secret
            && entries[0] == entries[1]
    }

    /// What it shows is compared with what the settings of now have, where they ask for the same.
    fn is_judged_by_now(&mut self) {
        let settings = &self.cx.settings;
        let is_under_them = self.login.under.as_ref().is_some_and(|under| Arc::ptr_eq(under, settings));
        if !is_under_them && self.record(settings).is_ok_and(|record| method(settings, record) == self.login.method) {
            self.login.under = Some(Arc::clone(settings));
        }
    }

    /// Whose word about its password counts, as the settings of now have it.
    fn authority(&self) -> Option<Authority> {
        let record = self.record(&self.cx.settings).ok()??;
        record.authority.clone().filter(|_| record.method == self.login.method)
    }

    /// Who is at the other end, as the system calls him, or the machine that he comes from: whoever has that machine sees whether it is asked, so it is for
    /// strangers too.
    fn ask_who_is_there(&mut self) -> Then {
        let inquiry = match (self.login.method, self.peer, self.local) {
            (AuthType::Peer, Peer::Unix { uid: Some(uid), .. }, _) => Inquiry::UserOf { uid: *uid },
            (AuthType::Ident, Peer::Tcp { ip, port }, Peer::Tcp { ip: own_ip, port: own_port }) => {
                let at = |ip: &IpAddr, port: &u16| SocketAddr::new(ip.to_canonical(), *port);
                Inquiry::OwnerOf { theirs: at(ip, port), ours: at(own_ip, own_port) }
            }
            _ => return self.is_nobody_known(),
        };
        self.login.phase = Phase::Identifying;
        self.cx.out.ask(self.id, inquiry);
        Then::Nothing
    }

    /// What was asked of others has been answered.
    pub(crate) fn is_answered(&mut self, finding: Finding) -> Then {
        match (std::mem::replace(&mut self.login.phase, Phase::Admission), finding) {
            (Phase::NamingHost, Finding::Name(name)) => {
                self.login.host = Some(name);
                self.begin_authentication()
            }
            (Phase::Identifying, Finding::Name(name)) => {
                // A reload may have taken the user away, or another map may count.
                let settings = Arc::clone(&self.cx.settings);
                let map = self.record(&settings).ok().flatten().and_then(|record| record.map.as_ref());
                if self.secret().is_some() && name.is_some_and(|name| leads(map, &name, &self.login.user)) {
                    Then::Authenticated(None)
                } else {
                    self.is_nobody_known()
                }
            }
            // A reload may have made another's word count.
            (Phase::Vouching { authority, .. }, _) if self.authority().as_ref() != Some(&authority) => {
                Then::Fail(Failure::LookupFailed)
            }
            (Phase::Vouching { password, .. }, Finding::Right) => Then::Authenticated(Some(Shown::Password(password))),
            (Phase::Vouching { .. }, Finding::Wrong(reason)) => {
                let by = self.vouched();
                self.cx.log_warning(format!("{} authentication failed for {}: {reason}", by.words(), self.whence()));
                self.refuse(self.cx.now + REFUSED_AFTER, by)
            }
            (phase, _) => {
                self.login.phase = phase;
                Then::Nothing
            }
        }
    }

    fn is_nobody_known(&self) -> Then {
        let user = self.login.user.to_string();
        Then::Fail(match self.login.method {
            AuthType::Ident => Failure::AuthenticationFailed { by: Proof::Ident, user, stranger: None },
            _ => Failure::PeerRejected { user },
        })
    }

    fn vouched(&self) -> Proof {
        if self.login.method == AuthType::Pam { Proof::Pam } else { Proof::Ldap }
    }

    /// A password in clear, about which somebody else is asked.
    fn ask_about(&mut self, password: &[u8]) -> Result<Then, Failure> {
        let authority = self.authority().ok_or(Failure::LookupFailed)?;
        // A directory takes an empty one for nobody's, and lets him in (RFC 4513, 5.1.2). None was ever stored that is not UTF-8.
        let password: Arc<str> = match std::str::from_utf8(password) {
            Ok(password) if !password.is_empty() => password.into(),
            _ => return Ok(self.refuse(self.cx.now + REFUSED_AFTER, self.vouched())),
        };
        let from = match self.peer {
            Peer::Tcp { ip, .. } => Some(ip.to_canonical()),
            Peer::Unix { .. } => None,
        };
        let inquiry = Inquiry::Password {
            user: Arc::clone(&self.login.user),
            password: Password(Arc::clone(&password)),
            authority: authority.clone(),
            from,
        };
        self.login.phase = Phase::Vouching { password, authority };
        self.cx.out.ask(self.id, inquiry);
        Ok(Then::Next)
    }

    /// Who wants to come in, for the log.
    fn whence(&self) -> String {
        let tls = if self.tls.is_some() { "with TLS" } else { "without TLS" };
        let address = match self.peer {
            Peer::Tcp { ip, .. } => format!("{ip} {tls}"),
            Peer::Unix { .. } => "a Unix socket".to_owned(),
        };
        format!("user {} of database {} from {address}", shown(&self.login.user), shown(&self.login.database))
    }

    fn ask_for_md5(&mut self) {
        let salt = self.cx.random::<4>();
        self.login.phase = Phase::Md5 { salt };
        self.cx.out.send(self.id, |out| write::authentication_md5(out, salt));
    }

    /// The verifier whose salt and iteration count the user is told; its keys may come later. `None`: md5 is asked for.
    fn verifier_to_tell(&mut self, user: &Arc<str>) -> Option<ScramVerifier> {
        let (method, iterations) = (self.login.method, self.cx.settings.scram_iterations);
        // Who has none is let in as seldom as a stranger, and asked for the same.
        match self.secret().filter(|secret| !secret.is_empty()).cloned() {
            None => {
                let (realm, secret) = (self.login.realm, &self.cx.config.process_secret);
                self.known.strangers.verifier(user, realm, (method, iterations), secret)
            }
            Some(Secret::Scram(verifier)) => Some(verifier),
            Some(_) if method == AuthType::Md5 => None,
            // An md5 hash cannot prove anything here.
            Some(Secret::Md5(_)) => Some(self.verifier_to_make(user)),
            Some(Secret::Plain(password)) => {
                let told = self.verifier_to_make(user);
                // It will be there by the time that the client has answered.
                let of_file = self.cx.settings.secrets.contains_key(user);
                if of_file && self.known.verifier_made(user, &password, &told).is_none() {
                    self.derive_verifier(user, None, password, &told);
                }
                Some(told)
            }
        }
    }

    /// The salt and the iteration count of what is made of a plain password.
    fn verifier_to_make(&self, user: &str) -> ScramVerifier {
        let (secret, iterations) = (&self.cx.config.process_secret, self.cx.settings.scram_iterations);
        if self.cx.settings.secrets.contains_key(user) {
            return mock_verifier(user, secret, iterations);
        }
        mock_verifier(&self.login.realm.name(user), secret, iterations)
    }

    fn derive_verifier(&mut self, user: &Arc<str>, client: Option<ClientId>, password: Arc<str>, told: &ScramVerifier) {
        let recipe = Recipe { password, salt: told.salt.clone(), iterations: told.iterations };
        self.cx.derive(self.derivations, Job::Verifier { user: Arc::clone(user), client }, recipe);
    }

    /// The verifier was made that the client's last message is measured against.
    pub(crate) fn verifier_derived(&mut self, derived: &Derived) -> Then {
        match std::mem::replace(&mut self.login.phase, Phase::Admission) {
            Phase::DerivingProof { last, message, refused_at } => {
                self.check_proof(*last, &message, refused_at, Some(derived)).unwrap_or_else(Then::Fail)
            }
            phase => {
                self.login.phase = phase;
                Then::Nothing
            }
        }
    }

    fn offer_scram(&mut self, verifier: ScramVerifier) {
        let nonce = auth::encode_nonce(&self.cx.random::<18>());
        let binding = match self.tls.and_then(|tls| tls.server_end_point.clone()) {
            Some(hash) => ChannelBinding::TlsServerEndPoint(hash),
            None => ChannelBinding::None,
        };
        let mechanisms = binding.mechanisms();
        self.cx.out.send(self.id, |out| write::authentication_sasl(out, mechanisms));
        self.login.phase = Phase::ScramInitial(Box::new(ServerFirst::new(verifier, &nonce, binding)));
    }

    /// A message of the password's tag, in whole.
    pub(super) fn password_piece(&mut self, inbox: &mut Inbox, cursor: &mut Cursor<'_>) -> Result<Then, Failure> {
        match inbox.take_whole(cursor, password_len)? {
            Some(message) => self.password_message(&message[HEADER_LEN..]),
            None => Ok(Then::Nothing),
        }
    }

    fn password_message(&mut self, body: &[u8]) -> Result<Then, Failure> {
        let user = Arc::clone(&self.login.user);
        let phase = std::mem::replace(&mut self.login.phase, Phase::Admission);
        let refused_at = self.refused_at(&user);
        self.is_judged_by_now();
        match phase {
            Phase::Password if matches!(self.login.method, AuthType::Pam | AuthType::Ldap) => {
                self.ask_about(frontend::password(body)?)
            }
            Phase::Password => self.check_plain(&user, frontend::password(body)?),
            Phase::Md5 { salt } => {
                let response = frontend::password(body)?;
                let right = |secret: &Secret| !secret.is_empty() && auth::verify_md5(secret, &user, salt, response);
                if self.secret().is_some_and(right) {
                    return Ok(Then::Authenticated(None));
                }
                Ok(self.refuse(refused_at, Proof::Password))
            }
            Phase::ScramInitial(first) => {
                let (mechanism, data) = frontend::sasl_initial(body)?;
                let (answer, next) =
                    first.on_client_first(mechanism, data).map_err(|error| Failure::Scram { error })?;
                self.cx.out.send(self.id, |out| write::authentication_sasl_continue(out, &answer));
                self.login.phase = Phase::ScramFinal(Box::new(next));
                Ok(Then::Next)
            }
            Phase::ScramFinal(last) => {
                last.check(body).map_err(|error| Failure::Scram { error })?;
                match self.secret().cloned() {
                    Some(Secret::Plain(password))
                        if !password.is_empty()
                            && self.known.verifier_made(&user, &password, last.verifier()).is_none() =>
                    {
                        let told = last.verifier().clone();
                        self.login.phase = Phase::DerivingProof { last, message: body.into(), refused_at };
                        self.derive_verifier(&user, Some(self.id), password, &told);
                        Ok(Then::Next)
                    }
                    _ => self.check_proof(*last, body, refused_at, None),
                }
            }
            _ => Ok(Then::Next),
        }
    }

    /// A password in clear.
    fn check_plain(&mut self, user: &Arc<str>, password: &[u8]) -> Result<Then, Failure> {
        let refused_at = self.refused_at(user);
        let secret = self.secret().cloned();
        let check = secret.as_ref().map(|secret| auth::verify_plain(secret, user, password));
        match (check, secret) {
            (Some(PlainCheck::Accepted), _) => return Ok(Then::Authenticated(None)),
            (Some(PlainCheck::NeedsDerivation { salt, iterations }), Some(Secret::Scram(verifier))) => {
                // SASLprep leaves a password that is not UTF-8 as it is; no such password was ever stored.
                if let Ok(password) = std::str::from_utf8(password) {
                    if !self.derivations.has_room() {
                        return Err(Failure::TooManyLogins { limit: PASSWORDS_MAX });
                    }
                    self.login.phase = Phase::DerivingPlain { verifier: Box::new(verifier), refused_at };
                    let recipe = Recipe { password: password.into(), salt, iterations };
                    self.cx.derive(self.derivations, Job::Password { client: self.id }, recipe);
                    return Ok(Then::Next);
                }
            }
            _ => {}
        }
        Ok(self.refuse(refused_at, Proof::Password))
    }

    /// The client's last message of SCRAM. `derived`: what it has waited for.
    fn check_proof(
        &mut self,
        last: ServerFinal,
        message: &[u8],
        refused_at: Time,
        derived: Option<&Derived>,
    ) -> Result<Then, Failure> {
        let user = Arc::clone(&self.login.user);
        // A reload may have brought another secret, or none. An empty password lets nobody in.
        let (last, is_current, shared) = match self.secret() {
            // Keys of a secret that PostgreSQL has too: they open its door, as the client's own login would.
            Some(Secret::Scram(verifier)) => {
                let same = verifier == last.verifier();
                (last, same, same)
            }
            Some(Secret::Plain(password)) if !password.is_empty() => {
                // One that was looked up is derived for each login: it may be another's in another database.
                let own = derived.and_then(|derived| derived.verifier_of(password));
                match own.or_else(|| self.known.verifier_made(&user, password, last.verifier())) {
                    Some(verifier) => (last.with_derived(verifier), true, false),
                    None => (last, false, false),
                }
            }
            _ => (last, false, false),
        };
        match last.on_client_final(message) {
            Ok((answer, keys)) if is_current => {
                self.cx.out.send(self.id, |out| write::authentication_sasl_final(out, &answer));
                Ok(Then::Authenticated(shared.then_some(Shown::Keys(keys))))
            }
            Ok(_) | Err(auth::AuthError::WrongProof) => {
                // What a stranger is asked for is chosen by lot there, and not what it is told.
                let by = if self.login.method == AuthType::Md5 { Proof::Password } else { Proof::Sasl };
                Ok(self.refuse(refused_at, by))
            }
            Err(error) => Err(Failure::Scram { error }),
        }
    }

    /// When a name is told that the password was wrong which came now: when it could have been checked, whether it is or not.
    fn refused_at(&self, user: &str) -> Time {
        let secret = self.secret().filter(|secret| !secret.is_empty());
        let (method, iterations) = (self.login.method, self.cx.settings.scram_iterations);
        let asked = self.known.strangers.asked(user, self.login.realm, secret, &self.cx.config.process_secret);
        let iterations = asked.iterations(method, iterations);
        self.cx.now + REFUSED_AFTER + Duration(REFUSED_AFTER_EACH.0 * u64::from(iterations))
    }

    /// The password was wrong, which is told at that time.
    fn refuse(&mut self, at: Time, by: Proof) -> Then {
        self.login.phase = Phase::Refused { at, by };
        Then::Refused
    }

    /// A plain password's salted form was derived.
    pub(crate) fn password_derived(&mut self, derived: &Derived) -> Then {
        let (verifier, refused_at) = match std::mem::replace(&mut self.login.phase, Phase::Admission) {
            Phase::DerivingPlain { verifier, refused_at } => (verifier, refused_at),
            phase => {
                self.login.phase = phase;
                return Then::Nothing;
            }
        };
        let secret = self.secret();
        let is_current = matches!(secret, Some(Secret::Scram(current)) if *current == *verifier);
        if verifier.matches_salted(&derived.salted) && is_current {
            // They open PostgreSQL's door too, where it has the same secret.
            Then::Authenticated(Some(Shown::Keys(ScramKeys::from_salted(&derived.salted))))
        } else {
            self.refuse(refused_at, Proof::Password)
        }
    }
}

/// Whether the system's name stands for this user.
fn leads(map: Option<&Arc<Map>>, name: &str, user: &str) -> bool {
    map.map_or(name == user, |map| map.leads(name, user))
}

/// Of a message of the password's tag; no other is expected.
fn password_len(head: &[u8; HEADER_LEN]) -> Result<usize, Failure> {
    let header = Header::parse(head);
    if FrontendTag::from_byte(header.tag) != Some(FrontendTag::Password) {
        return Err(Failure::WrongMessage { expected: "a password response", got: header.tag });
    }
    let length = header.body_len.filter(|&length| length <= AUTH_MESSAGE_LEN_MAX);
    Ok(HEADER_LEN + length.ok_or(Failure::MessageLength { tag: header.tag })? as usize)
}
