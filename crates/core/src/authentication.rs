//! A client proves who it is: plain, md5, SCRAM-SHA-256 with and without channel binding, certificate.
//!
//! Owns the order of the messages; what they hold is computed in `auth`. An unknown user goes through the same exchange as
//! one with a wrong password, and fails at its end.

use std::sync::Arc;

use weir_wire::frontend::{self, AUTH_MESSAGE_LEN_MAX};
use weir_wire::report::{Report, Severity};
use weir_wire::{FrontendTag, HEADER_LEN, Header, write};

use crate::auth::{self, ChannelBinding, PlainCheck, ScramVerifier, Secret, ServerFirst, mock_verifier};
use crate::failure::Failure;
use crate::id::ConnId;
use crate::inbox::Cursor;
use crate::login::{Phase, Step};
use crate::settings::AuthType;
use crate::worker::{JOBS_MAX, Job, Worker};

impl Worker {
    pub(crate) fn begin_authentication(&mut self, id: ConnId) -> Result<(), Failure> {
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
            AuthType::Md5 | AuthType::ScramSha256 => self.prepare_scram(id, &user, secret),
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
    fn prepare_scram(&mut self, id: ConnId, user: &Arc<str>, secret: Secret) -> Result<(), Failure> {
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
                    self.room_for_a_job()?;
                    self.set_phase(id, Phase::DerivingVerifier);
                    let job = Job::Verifier { client: id, user: Arc::clone(user), password: Arc::clone(&password) };
                    self.derive(job, &password, mock.salt, mock.iterations);
                }
            },
        }
        Ok(())
    }

    /// Clients that come and go faster than passwords are derived must not make an endless queue of them.
    fn room_for_a_job(&self) -> Result<(), Failure> {
        if self.jobs.len() < JOBS_MAX { Ok(()) } else { Err(Failure::TooManyLogins { limit: JOBS_MAX }) }
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

    pub(crate) fn set_phase(&mut self, id: ConnId, phase: Phase) {
        if let Some(login) = self.login(id) {
            login.phase = phase;
        }
    }

    /// A message of the password's tag, in whole.
    pub(crate) fn password_piece(&mut self, id: ConnId, cursor: &mut Cursor<'_>) -> Result<Step, Failure> {
        let Some(client) = self.clients.get_mut(id) else { return Ok(Step::Rest) };
        let Some(message) = client.inbox.take_whole(cursor, password_len)? else { return Ok(Step::Rest) };
        self.password_message(id, &message[HEADER_LEN..])?;
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
                        self.room_for_a_job()?;
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

/// What a client is told that failed for a reason of the exchange itself.
pub(crate) fn scram_report(error: auth::AuthError) -> Report {
    Report::new(Severity::Fatal, "08P01", error.to_string())
}
