//! Logins in one line: a client that answers whatever it is asked, and a server that starts.
//!
//! Each is a small machine over messages in words; knows nothing of connections.

use super::scram::{client_final, client_first, md5_response, server_final, server_first};
use super::words::{Bindings, shown_all};

/// What to do about a message.
pub enum Reply {
    Nothing,
    /// Messages to send, each a name and its words.
    Send(Vec<(&'static str, Vec<Vec<u8>>)>),
    /// The login is over, after these were sent.
    Done(Vec<(&'static str, Vec<Vec<u8>>)>),
}

fn words<const N: usize>(words: [&str; N]) -> Vec<Vec<u8>> {
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "this message is text".to_owned())
}

/// A client between its startup packet and its first ReadyForQuery.
#[derive(Debug, Clone)]
pub struct ClientLogin {
    pub peer: String,
    pub user: String,
    pub password: String,
    /// The proof that the server owes.
    pub proof: Option<String>,
    pub authenticated: bool,
}

impl ClientLogin {
    pub fn on(&mut self, message: &[Vec<u8>], bindings: &mut Bindings) -> Result<Reply, String> {
        let name = text(&message[0])?;
        let response = match (name.as_str(), &message[1..]) {
            ("AuthenticationCleartextPassword", []) => ("Password", words([&self.password])),
            ("AuthenticationMD5Password", [salt]) => {
                ("Password", vec![md5_response(&self.user, &self.password, &super::words::unhex(salt)?)])
            }
            ("AuthenticationSASL", mechanisms) if mechanisms.contains(&b"SCRAM-SHA-256".to_vec()) => {
                ("SASLInitialResponse", words(["SCRAM-SHA-256", &client_first()]))
            }
            ("AuthenticationSASLContinue", [data]) => {
                let (response, proof) = client_final(&text(data)?, &self.password)?;
                self.proof = Some(proof);
                ("SASLResponse", words([&response]))
            }
            ("AuthenticationSASLFinal", [data]) if Some(text(data)?) == self.proof => {
                self.proof = None;
                return Ok(Reply::Nothing);
            }
            ("AuthenticationOk", []) if self.proof.is_none() && !self.authenticated => {
                self.authenticated = true;
                return Ok(Reply::Nothing);
            }
            ("ParameterStatus" | "NoticeResponse", _) if self.authenticated => return Ok(Reply::Nothing),
            ("BackendKeyData", [process_id, key]) if self.authenticated => {
                bindings.insert(format!("{}.pid", self.peer), process_id.clone());
                bindings.insert(format!("{}.key", self.peer), key.clone());
                return Ok(Reply::Nothing);
            }
            ("ReadyForQuery", [status]) if self.authenticated && status == b"idle" => {
                let known = bindings.contains_key(&format!("{}.key", self.peer));
                return if known {
                    Ok(Reply::Done(Vec::new()))
                } else {
                    Err("no cancel key before ReadyForQuery".to_owned())
                };
            }
            _ => return Err(format!("{} has no place in the login", shown_all(message))),
        };
        Ok(Reply::Send(vec![response]))
    }
}

/// What a server reports at its start, as PostgreSQL 18 does.
const REPORTED: [(&str, &str); 13] = [
    ("in_hot_standby", "off"),
    ("integer_datetimes", "on"),
    ("TimeZone", "UTC"),
    ("IntervalStyle", "postgres"),
    ("search_path", "\"$user\", public"),
    ("is_superuser", "off"),
    ("application_name", ""),
    ("default_transaction_read_only", "off"),
    ("standard_conforming_strings", "on"),
    ("DateStyle", "ISO, MDY"),
    ("client_encoding", "UTF8"),
    ("server_version", "18.3"),
    ("server_encoding", "UTF8"),
];

/// A server between its connection and its first ReadyForQuery.
#[derive(Debug, Clone)]
pub struct ServerStart {
    pub peer: String,
    pub number: u32,
    /// What the startup packet must say, where the script tells.
    pub user: Option<String>,
    pub database: Option<String>,
    /// How it authenticates: trust, plain, md5 or scram-sha-256.
    pub auth: String,
    pub password: String,
    /// The newest minor version it speaks.
    pub minor: u32,
    pub reported: Vec<(String, String)>,
    pub startup: Option<(String, u32)>,
    pub first: Option<(String, String)>,
}

impl ServerStart {
    pub fn on(&mut self, message: &[Vec<u8>], bindings: &mut Bindings) -> Result<Reply, String> {
        let name = text(&message[0])?;
        match name.as_str() {
            "SSLRequest" => return Ok(Reply::Send(vec![("Byte", words(["N"]))])),
            "Startup" if self.startup.is_none() => return self.on_startup(&message[1..], bindings),
            _ => {}
        }
        let [_, data] = message else { return Err(format!("{} has no place here", shown_all(message))) };
        let data = text(data)?;
        let user = self.startup.clone().unwrap_or_default().0;
        match self.auth.as_str() {
            "plain" if data == format!("{}\0", self.password) => Ok(self.enter(bindings, Vec::new())),
            "md5" => {
                let expected = md5_response(&user, &self.password, b"salt");
                let right = data.as_bytes() == [&expected[..], b"\0"].concat();
                if right { Ok(self.enter(bindings, Vec::new())) } else { Err("the md5 response is wrong".to_owned()) }
            }
            "scram-sha-256" if self.first.is_none() => {
                let (_, client_first) = data.split_at(data.find("n,,").ok_or("no SASLInitialResponse")?);
                let (server_first, bare) = server_first(client_first)?;
                self.first = Some((bare, server_first.clone()));
                Ok(Reply::Send(vec![("AuthenticationSASLContinue", words([&server_first]))]))
            }
            "scram-sha-256" => {
                let (bare, server_first) = self.first.clone().unwrap_or_default();
                let proof = server_final(&bare, &server_first, &data, &self.password).ok_or("the proof is wrong")?;
                Ok(self.enter(bindings, vec![("AuthenticationSASLFinal", words([&proof]))]))
            }
            _ => Err(format!("{} does not answer {}", shown_all(message), self.auth)),
        }
    }

    fn on_startup(&mut self, parameters: &[Vec<u8>], bindings: &mut Bindings) -> Result<Reply, String> {
        let mut pairs = Vec::new();
        for parameter in &parameters[1..] {
            let parameter = text(parameter)?;
            let (name, value) = parameter.split_once('=').ok_or("name=value")?;
            pairs.push((name.to_owned(), value.to_owned()));
        }
        let find = |wanted: &str| pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
        for (name, expected) in [("user", &self.user), ("database", &self.database)] {
            if expected.is_some() && &find(name) != expected {
                return Err(format!("the startup packet has {name} {:?}", find(name)));
            }
        }
        let version = text(&parameters[0])?;
        let asked: u32 = version.strip_prefix("3.").and_then(|minor| minor.parse().ok()).ok_or("version 3.x")?;
        self.startup = Some((find("user").ok_or("no user")?, asked.min(self.minor)));
        let is_reported = |name: &str| REPORTED.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let asked_for: Vec<_> = pairs.into_iter().filter(|(name, _)| is_reported(name)).collect();
        self.reported.splice(0..0, asked_for);
        let mut first = Vec::new();
        if asked > self.minor {
            first.push(("NegotiateProtocolVersion", words([&format!("3.{}", self.minor)])));
        }
        match self.auth.as_str() {
            "trust" => return Ok(self.enter(bindings, first)),
            "plain" => first.push(("AuthenticationCleartextPassword", Vec::new())),
            "md5" => first.push(("AuthenticationMD5Password", words(["73616c74"]))),
            "scram-sha-256" => first.push(("AuthenticationSASL", words(["SCRAM-SHA-256"]))),
            other => return Err(format!("no authentication {other}")),
        }
        Ok(Reply::Send(first))
    }

    /// From AuthenticationOk to the first ReadyForQuery.
    fn enter(&self, bindings: &mut Bindings, mut messages: Vec<(&'static str, Vec<Vec<u8>>)>) -> Reply {
        let (user, minor) = self.startup.clone().unwrap_or_default();
        messages.push(("AuthenticationOk", Vec::new()));
        for (name, value) in REPORTED {
            let set = self.reported.iter().rev().find(|(set, _)| set.eq_ignore_ascii_case(name));
            let value = set.map_or(value, |(_, value)| value.as_str());
            messages.push(("ParameterStatus", words([name, value])));
        }
        messages.push(("ParameterStatus", words(["session_authorization", &user])));
        let process_id = (5000 + self.number).to_string();
        // Four bytes in protocol 3.0, thirty-two in 3.2.
        let key = format!("{:02x}", self.number).repeat(if minor >= 2 { 32 } else { 4 });
        bindings.insert(format!("{}.pid", self.peer), process_id.clone().into_bytes());
        bindings.insert(format!("{}.key", self.peer), key.clone().into_bytes());
        messages.push(("BackendKeyData", words([&process_id, &key])));
        messages.push(("ReadyForQuery", words(["idle"])));
        Reply::Done(messages)
    }
}
