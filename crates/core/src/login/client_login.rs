//! The beginning of a client's login: startup packet, TLS, and the question for a place.
//!
//! What comes of it is the worker's business (`greeting.rs`).

use std::sync::Arc;

use weir_wire::startup::{STARTUP_HEADER_LEN, TLS_ACCEPTED, TLS_HANDSHAKE_RECORD, TLS_REFUSED};
use weir_wire::{ProtocolVersion, Startup, write};

use crate::auth::ScramKeys;
use crate::context::Context;
use crate::derivations::Derivations;
use crate::failure::Failure;
use crate::id::ClientId;
use crate::inbox::{Cursor, Inbox};
use crate::login::authentication::Known;
use crate::login::options::split_options;
use crate::login::{Login, Phase};
use crate::mail::Letter;
use crate::names::{CONSOLE, CONSOLE_DATABASES, PoolName, cut, shown};
use crate::peer::{Peer, TlsInfo, TlsRole};
use crate::settings::TlsMode;

/// What comes of an input.
pub(crate) enum Then {
    /// It may go on with what is there.
    Next,
    /// The client's next message is awaited, or what somebody else answers.
    Nothing,
    /// The client sends on, and has to wait for us.
    Hold,
    Cancel {
        process_id: u32,
        key: Box<[u8]>,
    },
    /// Its secret is asked for, of a server of this pool.
    LookUp(Arc<PoolName>),
    /// It is who it says.
    Authenticated(Option<Shown>),
    /// Its password was wrong, which is told in a moment.
    Refused,
    Fail(Failure),
    /// Whoever sends this does not speak our protocol, or not yet: an answer would be no use (`ProcessStartupPacket`,
    /// src/backend/tcop/backend_startup.c, PostgreSQL 18).
    EndUnanswered(&'static str),
}

/// What a client has shown that opens PostgreSQL's door too.
pub(crate) enum Shown {
    /// Of a secret that PostgreSQL has as well.
    Keys(ScramKeys),
    /// Which PAM or a directory has found right.
    Password(Arc<str>),
}

/// A client that is not in yet, for the length of one input.
pub(crate) struct ClientLogin<'w> {
    pub(crate) cx: &'w mut Context,
    pub(crate) known: &'w mut Known,
    pub(crate) derivations: &'w mut Derivations,
    pub(crate) id: ClientId,
    pub(crate) login: &'w mut Login,
    pub(crate) peer: &'w Peer,
    pub(crate) local: &'w Peer,
    pub(crate) tls: Option<&'w TlsInfo>,
    /// Nobody but the console is let in any more.
    pub(crate) shutting_down: bool,
}

impl ClientLogin<'_> {
    /// Takes what it can of the client's bytes.
    pub(crate) fn bytes(&mut self, inbox: &mut Inbox, cursor: &mut Cursor<'_>) -> Then {
        loop {
            let then = match self.login.phase {
                Phase::Startup => self.startup_piece(inbox, cursor),
                Phase::Password | Phase::Md5 { .. } | Phase::ScramInitial(_) | Phase::ScramFinal(_) => {
                    self.password_piece(inbox, cursor)
                }
                Phase::TlsHandshake => Ok(Then::Nothing),
                // The client has to wait for us.
                _ if cursor.rest().is_empty() => Ok(Then::Nothing),
                _ => Ok(Then::Hold),
            };
            match then {
                Ok(Then::Next) => {}
                Ok(then) => return then,
                Err(failure) => return Then::Fail(failure),
            }
        }
    }

    fn startup_piece(&mut self, inbox: &mut Inbox, cursor: &mut Cursor<'_>) -> Result<Then, Failure> {
        let direct = !inbox.has_partial() && cursor.rest().first() == Some(&TLS_HANDSHAKE_RECORD);
        if direct && !self.login.tls_asked {
            return self.accept_tls(true).map(|()| Then::Nothing);
        }
        let packet = match inbox.take_whole(cursor, Startup::packet_len) {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(Then::Nothing),
            Err(_) => return Ok(Then::EndUnanswered("invalid length of startup packet")),
        };
        let startup = Startup::parse(&packet[STARTUP_HEADER_LEN..])?;
        self.startup(&startup)
    }

    fn startup(&mut self, startup: &Startup<'_>) -> Result<Then, Failure> {
        match startup {
            Startup::Tls => {
                if self.login.tls_asked {
                    return Err(Failure::WrongMessage { expected: "a startup packet", got: 0 });
                }
                self.accept_tls(false)?;
                // The answer was no: a startup packet in clear follows. Else what follows is TLS.
                Ok(Then::Next)
            }
            Startup::GssEncryption => {
                if std::mem::replace(&mut self.login.gss_asked, true) {
                    return Err(Failure::WrongMessage { expected: "a startup packet", got: 0 });
                }
                self.cx.out.send(self.id, |out| out.push(TLS_REFUSED));
                Ok(Then::Next)
            }
            Startup::Cancel { process_id, key } => Ok(Then::Cancel { process_id: *process_id, key: (*key).into() }),
            Startup::Session { version, parameters } => {
                self.begin_session(*version, parameters)?;
                Ok(Then::Next)
            }
        }
    }

    /// Answers a client that asks for TLS.
    fn accept_tls(&mut self, direct: bool) -> Result<(), Failure> {
        let offered = self.cx.settings.client_tls_sslmode != TlsMode::Disable && self.cx.settings.client_tls_available;
        self.login.tls_asked = true;
        if !offered || self.is_local() {
            if direct {
                return Err(Failure::TlsUnavailable);
            }
            self.cx.out.send(self.id, |out| out.push(TLS_REFUSED));
            return Ok(());
        }
        self.login.phase = Phase::TlsHandshake;
        if !direct {
            self.cx.out.send(self.id, |out| out.push(TLS_ACCEPTED));
        }
        self.cx.out.start_tls(self.id, TlsRole::Accept { direct });
        Ok(())
    }

    fn begin_session(&mut self, version: ProtocolVersion, parameters: &[(&str, &str)]) -> Result<(), Failure> {
        if version.major() != 3 {
            return Err(Failure::UnsupportedVersion(version.0));
        }
        if self.tls.is_none() && !self.is_local() && self.cx.settings.client_tls_sslmode >= TlsMode::Require {
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
        if self.cx.settings.application_name_add_host {
            login.add_host(self.peer);
        }
        if login.user.is_empty() {
            return Err(Failure::NoUserName);
        }
        if login.database.is_empty() {
            login.database = Arc::clone(&login.user);
        }
        self.cut_names(&mut login)?;
        if self.shutting_down && !CONSOLE_DATABASES.contains(&&*login.database) {
            return Err(Failure::NoNewClients);
        }
        if version > ProtocolVersion::V3_2 || !unrecognised.is_empty() {
            let newest = version.min(ProtocolVersion::V3_2);
            self.cx.out.send(self.id, |out| write::negotiate_version(out, newest, &unrecognised));
        }
        self.admit(login);
        Ok(())
    }

    /// What is behind a name's 63rd byte PostgreSQL does not see, and no rule of ours is to be passed by with it. Names that the settings have
    /// are theirs: what PostgreSQL is told may be another.
    fn cut_names(&self, login: &mut Login) -> Result<(), Failure> {
        let settings = &self.cx.settings;
        let known = (settings.databases.contains_key(&login.database), settings.secrets.contains_key(&login.user));
        for (name, is_known) in [(&mut login.database, known.0), (&mut login.user, known.1)] {
            let cut = if is_known { Some(&**name) } else { cut(name) };
            let cut = cut.ok_or_else(|| {
                let text =
                    format!("the name \"{}\" is longer than 63 bytes, and ends within a letter there", shown(name));
                Failure::StartupParameter { text }
            })?;
            if cut.len() < name.len() {
                *name = cut.into();
            }
        }
        Ok(())
    }

    /// Asks for a place.
    fn admit(&mut self, mut login: Login) {
        let database = if login.is_to_console() { CONSOLE.into() } else { Arc::clone(&login.database) };
        let user = Arc::clone(&login.user);
        login.phase = Phase::Admission;
        *self.login = login;
        self.cx.tell_steward(Letter::Admit { client: self.id, database, user });
    }

    fn is_local(&self) -> bool {
        matches!(self.peer, Peer::Unix { .. })
    }
}

/// `replication` is a boolean or `database` (`ProcessStartupPacket`, src/backend/tcop/backend_startup.c).
fn replication(value: &str) -> Result<Option<Arc<str>>, Failure> {
    let is_one = if value == "database" { Some(true) } else { boolean(value) };
    match is_one {
        Some(true) => Ok(Some(value.into())),
        Some(false) => Ok(None),
        None => {
            let text = format!("invalid value for parameter \"replication\": \"{value}\"");
            Err(Failure::StartupParameter { text })
        }
    }
}

/// As PostgreSQL reads one: the beginning of a word is enough that is no other's (`parse_bool`, src/backend/utils/adt/bool.c).
fn boolean(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || value == "1" {
        Some(true)
    } else {
        (begins("false", 1) || begins("no", 1) || begins("off", 2) || value == "0").then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replication_is_said_as_postgresql_reads_it() {
        for value in ["database", "t", "TRU", "y", "yes", "on", "1"] {
            assert!(replication(value).unwrap().is_some(), "{value}");
        }
        for value in ["f", "n", "No", "of", "off", "0"] {
            assert!(replication(value).unwrap().is_none(), "{value}");
        }
        for value in ["", "o", "truer", "Database", "2"] {
            assert!(replication(value).is_err(), "{value}");
        }
    }
}
