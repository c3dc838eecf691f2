//! A client's way in: what is known of it until it is let in. How it goes on is in `client_login.rs` and `authentication.rs`.
//!
//! ```text
//! Startup <─> (TlsHandshake) ─> Admission ─> (LookingUp) ─> Password | Md5 | ScramInitial ─> ScramFinal ─> Proving ─> Ready
//!                                                  │ (Identifying) ─> Proving
//!                                                  └────────────┬─────────────┘
//!                     Deriving: a salted password is computed elsewhere; Vouching: another says whether it is right;
//!                     Refused: wrong, which is told a moment later
//! ```
//! Before any of it a name server or PostgreSQL may have to say which record is the client's (NamingHost, LookingUp).
//! An unknown user goes through the same exchange as one with a wrong password, and fails at its end.

pub(crate) mod authentication;
pub(crate) mod client_login;
mod looking_up;
pub(crate) mod lookup;
pub(crate) mod options;
pub(crate) mod strangers;

use std::sync::Arc;

use weir_wire::ProtocolVersion;

use crate::auth::{ScramVerifier, ServerFinal, ServerFirst};
use crate::cluster::poses_as_node;
use crate::failure::{Proof, Stranger};
use crate::inbox::Inbox;
use crate::label;
use crate::login::lookup::{LookedUp, Lookup};
use crate::login::strangers::Realm;
use crate::names::{CONSOLE, CONSOLE_DATABASES, shown};
use crate::outside::Authority;
use crate::peer::{Peer, TlsInfo};
use crate::settings::{AuthType, Settings};
use crate::time::Time;

#[derive(Debug)]
pub(crate) enum Phase {
    Startup,
    TlsHandshake,
    /// The steward is asked whether there is room.
    Admission,
    /// A record of `auth_hba_file` is for a host: a name server is asked what the client's is called.
    NamingHost,
    /// PostgreSQL is asked for a secret, or for the user's roles.
    LookingUp(Box<Lookup>),
    /// The system, or the client's own machine, is asked who is at the other end.
    Identifying,
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
    /// PAM or a directory is asked about the password.
    Vouching {
        password: Arc<str>,
        authority: Authority,
    },
    /// The password was wrong, and the client is told so at that time.
    Refused {
        at: Time,
        by: Proof,
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
    /// PostgreSQL has told what it made of one of them in an encoding that is not its own.
    pub(crate) illegible: bool,
    pub(crate) replication: Option<Arc<str>>,
    pub(crate) user: Arc<str>,
    pub(crate) database: Arc<str>,
    pub(crate) looked_up: LookedUp,
    /// Where its user is looked up.
    realm: Realm,
    /// Its database did not exist when its user was asked about: what another one's server has said counts for none that comes meanwhile.
    pub(crate) is_stood_for: bool,
    /// What is known of the user that its database's entry forces, who is in no file.
    pub(crate) forced: Option<(Arc<str>, LookedUp)>,
    /// What its host is called, if that has been asked.
    host: Option<Option<Arc<str>>>,
    /// The roles that its user is a member of, if those have been asked for.
    roles: Option<Vec<Arc<str>>>,
    /// What it has to show; `Hba` while no record has said so.
    method: AuthType,
    /// The settings by which that was decided.
    under: Option<Arc<Settings>>,
}

impl Login {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Startup,
            tls_asked: false,
            gss_asked: false,
            version: ProtocolVersion::V3_0,
            parameters: Vec::new(),
            illegible: false,
            replication: None,
            user: "".into(),
            database: "".into(),
            looked_up: LookedUp::NotYet,
            realm: Realm::Nowhere,
            is_stood_for: false,
            forced: None,
            host: None,
            roles: None,
            method: AuthType::Hba,
            under: None,
        }
    }

    /// Where it comes from becomes part of its `application_name`, as PgBouncer writes it.
    fn add_host(&mut self, peer: &Peer) {
        const NAME: &str = "application_name";
        let own = self.parameters.iter().rposition(|(name, _)| name.eq_ignore_ascii_case(NAME));
        let name = own.map_or("app".into(), |at| self.parameters.remove(at).1);
        self.parameters.push((NAME.into(), format!("{name} - {}", label::address(peer)).into()));
    }

    /// Whether it has said whom it wants to be, and where.
    pub(crate) fn is_named(&self) -> bool {
        !self.user.is_empty()
    }

    pub(crate) fn is_to_console(&self) -> bool {
        CONSOLE_DATABASES.contains(&&*self.database)
    }

    /// Replication of a whole cluster, which belongs to no database.
    pub(crate) fn is_physical_replication(&self) -> bool {
        self.replication.as_ref().is_some_and(|value| **value != *"database")
    }

    /// The console's own user, on a Unix socket: an administrator without a password where it is the system's user that this runs as.
    pub(crate) fn is_own_user(&self, peer: &Peer, uid: Option<u32>) -> bool {
        let same = matches!(peer, Peer::Unix { uid: Some(theirs), .. } if uid == Some(*theirs));
        same && self.is_to_console() && *self.user == *CONSOLE
    }

    pub(crate) fn poses_as_node(&self) -> bool {
        self.parameters.iter().any(|(name, value)| poses_as_node(name, value.as_bytes()))
    }

    /// Others than PostgreSQL are asked about it.
    pub(crate) fn asks_others(&self) -> bool {
        matches!(self.phase, Phase::NamingHost | Phase::Identifying | Phase::Vouching { .. })
    }

    /// What is sent now would be no part of the handshake.
    pub(crate) fn is_in_handshake(&self) -> bool {
        matches!(self.phase, Phase::TlsHandshake)
    }

    /// When the client is told that what it showed was wrong, and what that was.
    pub(crate) fn refused(&self) -> Option<(Time, Proof)> {
        match self.phase {
            Phase::Refused { at, by } => Some((at, by)),
            _ => None,
        }
    }

    /// Whether nobody knows its user, who has shown what is compared here.
    pub(crate) fn stranger(&self, by: Proof, settings: &Settings) -> Option<Stranger> {
        if !matches!(by, Proof::Password | Proof::Sasl) || settings.secrets.contains_key(&self.user) {
            return None;
        }
        match self.looked_up {
            LookedUp::Found(..) => None,
            LookedUp::Nobody => Some(Stranger::LookedUp),
            LookedUp::NotYet => Some(Stranger::InNoFile),
        }
    }

    /// Nothing came of it but a connection: something looks whether we are there.
    pub(crate) fn is_untouched(&self, inbox: &Inbox) -> bool {
        let asked = self.tls_asked || self.gss_asked || self.is_named();
        matches!(self.phase, Phase::Startup) && !asked && !inbox.has_partial()
    }

    /// As PgBouncer's log has it of a login.
    pub(crate) fn attempt(&self, tls: Option<&TlsInfo>) -> String {
        let tls = tls.map_or("no", |tls| &tls.description);
        let replication = match self.replication.as_deref() {
            None => "no",
            Some("database") => "database",
            Some(_) => "yes",
        };
        let (database, user) = (shown(&self.database), shown(&self.user));
        format!("login attempt: db={database} user={user} tls={tls} replication={replication}")
    }

    /// What a replication connection's server is started with.
    pub(crate) fn tunnel_parameters(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let replication = self.replication.iter().map(|value| (Arc::from("replication"), Arc::clone(value)));
        self.parameters.iter().cloned().chain(replication).collect()
    }
}
