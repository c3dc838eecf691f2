//! A simulated client's way in: TLS, startup, password, the first parameters.

use weir_wire::backend::{self, Authentication, ErrorFields};
use weir_wire::{BackendTag, ProtocolVersion, write};

use super::encode;
use super::{Action, Client, Phase, Role, Stage};
use crate::driver::TLS_MARKER;
use crate::postgres::{UNREPORTED, canonical};
use crate::scram::{Prover, md5_answer};

/// What a server's sessions begin with.
const DEFAULTS: [(&str, &str); 5] = [
    ("application_name", ""),
    ("DateStyle", "ISO, MDY"),
    ("TimeZone", "Etc/UTC"),
    ("IntervalStyle", "postgres"),
    ("client_encoding", "UTF8"),
];

impl Client {
    /// The connection stands.
    pub fn opened(&mut self, stage: &mut Stage) {
        stage.counts.client_sessions += 1;
        (self.opened_at, self.longest) = (stage.now, 0);
        self.next_send = stage.now;
        if let Role::Canceller { request, .. } = &self.role {
            stage.actions.push(Action::Send(request.clone()));
            self.phase = Phase::Login { prover: None, authenticated: false };
        } else if self.role == (Role::Garbage { after_startup: false }) {
            stage.counts.faults.add("garbage");
            let length = stage.rng.between(1, 300) as usize;
            let mut bytes = stage.rng.byte_vec(length);
            if stage.rng.chance(500) {
                // A length that makes sense, and then nothing that does.
                bytes.splice(0..0, [0, 0, 0, 20]);
            }
            stage.actions.push(Action::Send(bytes));
            self.phase = Phase::Login { prover: None, authenticated: false };
        } else if self.identity.tls {
            let mut bytes = Vec::new();
            write::ssl_request(&mut bytes);
            stage.actions.push(Action::Send(bytes));
            self.phase = Phase::TlsAsked;
        } else {
            self.send_startup(stage, Vec::new());
        }
    }

    fn send_startup(&mut self, stage: &mut Stage, mut bytes: Vec<u8>) {
        self.model = crate::postgres::REPORTED.map(|name| (name, String::new())).into();
        for (name, value) in DEFAULTS {
            self.model.insert(name, value.to_owned());
        }
        let mut parameters = vec![("user", self.identity.user.as_str()), ("database", self.identity.database.as_str())];
        for (name, value) in &self.identity.parameters {
            parameters.push((name, value));
            if let Some(value) = canonical(name, value).filter(|_| !stage.plan.ignores(name)) {
                self.model.insert(name, value);
            }
        }
        let version = if self.identity.newest { ProtocolVersion::V3_2 } else { ProtocolVersion::V3_0 };
        write::startup(&mut bytes, version, &parameters);
        stage.actions.push(Action::Send(bytes));
        self.phase = Phase::Login { prover: None, authenticated: false };
    }

    /// The one byte that answers SSLRequest.
    pub(super) fn tls_answer(&mut self, stage: &mut Stage, answer: u8) {
        match answer {
            b'S' => self.send_startup(stage, TLS_MARKER.to_vec()),
            b'N' => self.send_startup(stage, Vec::new()),
            // An error in full may be the answer too (protocol chapter, SSL Session Encryption): what it says is judged there.
            answer if answer == BackendTag::ErrorResponse as u8 => {
                self.phase = Phase::Login { prover: None, authenticated: false };
            }
            _ => stage.checks.fail("nonsense to a client", format!("SSLRequest answered by {:?}", answer as char)),
        }
    }

    pub(super) fn login_message(&mut self, stage: &mut Stage, tag: u8, body: &[u8]) {
        match BackendTag::from_byte(tag) {
            Some(BackendTag::Authentication) => self.authentication(stage, body),
            Some(BackendTag::ErrorResponse) => self.login_refused(stage, body),
            Some(BackendTag::ParameterStatus) => self.hear_parameter(stage, body),
            Some(BackendTag::BackendKeyData) => {
                self.key = backend::backend_key(body).ok().map(|(process_id, key)| (process_id, key.to_vec()));
            }
            Some(BackendTag::NoticeResponse | BackendTag::NegotiateProtocolVersion) => {}
            Some(BackendTag::ReadyForQuery) => self.welcome(stage),
            _ => stage.checks.fail("nonsense to a client", format!("{:?} during login", tag as char)),
        }
    }

    pub(super) fn hear_parameter(&mut self, stage: &mut Stage, body: &[u8]) {
        match backend::parameter_status(body) {
            Ok((name, value)) => {
                let value = String::from_utf8_lossy(value).into_owned();
                self.told.insert(name.to_owned(), value);
            }
            Err(malformed) => stage.checks.fail("nonsense to a client", malformed.to_string()),
        }
    }

    fn login_refused(&mut self, stage: &mut Stage, body: &[u8]) {
        self.refused = true;
        let fields = ErrorFields::parse(body).unwrap_or_default();
        let code = String::from_utf8_lossy(fields.code);
        let text = format!("{code} {}", String::from_utf8_lossy(fields.message));
        let other = !matches!(self.role, Role::Session | Role::Console | Role::Fresh { .. } | Role::Keyed { .. });
        if !other && self.identity.right_password {
            let whole = String::from_utf8_lossy(body);
            if !stage.plan.refuses(&self.identity, &code, &whole) {
                stage.checks.fail("refused without cause", format!("{text}: {}", self.describe()));
            }
        }
        // Who is being looked up when a reload changes who is asked for that, or where, is refused.
        let asked_before = self.opened_at <= stage.settings_since && text.contains("bouncer config error");
        let fits = !self.identity.right_password
            || asked_before
            || matches!(self.role, Role::Garbage { .. } | Role::Canceller { .. });
        if !fits && self.is_strict(stage) {
            stage.checks.fail("refused without cause", format!("{text}: {}", self.describe()));
        }
        stage.counts.pooler_errors.add(&without_numbers(&text));
    }

    fn welcome(&mut self, stage: &mut Stage) {
        if !self.identity.right_password && self.opened_at > stage.trusted_until {
            stage.checks.fail("let in with a wrong password", self.describe());
        }
        if !matches!(self.phase, Phase::Login { authenticated: true, .. }) {
            stage.checks.fail("nonsense to a client", "ReadyForQuery before AuthenticationOk".to_owned());
        }
        self.phase = Phase::Working;
        if self.role == (Role::Garbage { after_startup: true }) {
            stage.counts.faults.add("garbage");
            // A tag that does not exist, then noise.
            let mut bytes = vec![b'?'];
            bytes.extend(stage.rng.byte_vec(50));
            stage.actions.push(Action::Send(bytes));
            return;
        }
        if self.role != Role::Console {
            self.adopt_defaults(stage);
            self.remember_session();
            self.compare_told(stage);
        }
        self.pump(stage);
    }

    /// What it did not name itself is its database's, by the settings that its login met.
    fn adopt_defaults(&mut self, stage: &Stage) {
        if self.habits.keeps {
            self.model.entry(UNREPORTED).or_insert_with(|| "0".to_owned());
        }
        for (name, plain) in DEFAULTS {
            if self.identity.parameters.iter().any(|(own, _)| *own == name) && !stage.plan.ignores(name) {
                continue;
            }
            let told = self.told.get(name).and_then(|value| canonical(name, value));
            let mut defaults = stage.plan.defaults(&self.identity.database, name, plain);
            if let Some(default) = defaults.find(|default| canonical(name, default) == told) {
                self.model.insert(name, canonical(name, default).unwrap_or_default());
            } else {
                // So that what was told is wrong.
                self.model.remove(name);
            }
        }
    }

    fn authentication(&mut self, stage: &mut Stage, body: &[u8]) {
        let Ok(message) = Authentication::parse(body) else {
            return stage.checks.fail("nonsense to a client", "Authentication message".to_owned());
        };
        let Phase::Login { prover, authenticated } = &mut self.phase else { return };
        let mut out = Vec::new();
        let identity = &self.identity;
        let last_word = matches!(
            message,
            Authentication::CleartextPassword
                | Authentication::Md5Password { .. }
                | Authentication::SaslContinue { .. }
        );
        match message {
            Authentication::Ok => *authenticated = true,
            Authentication::CleartextPassword => write::password(&mut out, identity.password.as_bytes()),
            Authentication::Md5Password { salt } => {
                write::password(&mut out, md5_answer(&identity.user, &identity.password, salt).as_bytes());
            }
            Authentication::Sasl { .. } => {
                let fresh = Prover::new(stage.rng.bytes());
                write::sasl_initial(&mut out, "SCRAM-SHA-256", fresh.first().as_bytes());
                *prover = Some(fresh);
            }
            Authentication::SaslContinue { data } => {
                let text = std::str::from_utf8(data).unwrap_or_default();
                let answer = prover.as_mut().and_then(|prover| prover.answer(text, &identity.password));
                match answer {
                    Some(answer) => write::sasl_response(&mut out, answer.as_bytes()),
                    None => stage.checks.fail("nonsense to a client", format!("SCRAM challenge {text:?}")),
                }
            }
            Authentication::SaslFinal { data } => {
                let text = std::str::from_utf8(data).unwrap_or_default();
                if !prover.as_ref().is_some_and(|prover| prover.verify(text)) {
                    stage.checks.fail("nonsense to a client", format!("SCRAM final {text:?}"));
                }
            }
            Authentication::Unsupported { code } => {
                stage.checks.fail("nonsense to a client", format!("authentication {code}"));
            }
        }
        if last_word && !out.is_empty() {
            self.ask_ahead(stage, &mut out);
        }
        if !out.is_empty() {
            stage.actions.push(Action::Send(out));
        }
    }

    /// Some send their first request in one piece with the last word of their login.
    fn ask_ahead(&mut self, stage: &mut Stage, out: &mut Vec<u8>) {
        if self.role != Role::Session || !self.identity.right_password || !stage.rng.chance(200) {
            return;
        }
        let mut first = self.echo(1, 10, 0);
        first.longest = encode::longest(&first.bytes);
        self.longest = self.longest.max(first.longest);
        first.simple = true;
        out.append(&mut first.bytes);
        stage.counts.exchanges += 1;
        self.owed.push_back(first);
    }
}

/// Garbage of any version number is one kind of error.
fn without_numbers(text: &str) -> String {
    let (code, message) = text.split_once(' ').unwrap_or((text, ""));
    let message: Vec<_> =
        message.split(|character: char| character.is_ascii_digit()).filter(|part| !part.is_empty()).collect();
    format!("{code} {}", message.join("#"))
}
