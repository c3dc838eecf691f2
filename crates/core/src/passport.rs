//! What a client takes along to the process that takes over (`-R`): all that its session holds between two transactions.
//!
//! It is written as JSON, field by field, so that a release reads what the one before it has written. What cannot be written so is not at
//! rest, and its client stays until it is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::auth::{ScramKeys, Secret};
use crate::client::{Client, Discard};
use crate::inbox::{Body, Inbox};
use crate::names::PoolName;
use crate::parameters::ParameterSet;
use crate::parameters::startup::SavedStartup;
use crate::peer::{Peer, TlsInfo};
use crate::pool::credentials::Credentials;
use crate::statements::{SavedStatements, SavedUnnamed};
use crate::time::Time;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Passport {
    /// The names that it asked for.
    pub(crate) database: String,
    pub(crate) user: String,
    /// Whom its pool's servers are logged in as.
    server_user: String,
    pub(crate) parameters: ParameterSet,
    pub(crate) greeted: ParameterSet,
    pub(crate) startup: Option<SavedStartup>,
    pub(crate) statements: Option<SavedStatements>,
    pub(crate) unnamed: Option<SavedUnnamed>,
    pub(crate) standby: Option<bool>,
    /// What its cancel requests name.
    pub(crate) process_id: u32,
    /// 0: a release before this one has not written it.
    #[serde(default)]
    pub(crate) told: u32,
    #[serde(with = "crate::bytes")]
    pub(crate) cancel_key: Box<[u8]>,
    /// The number of its last batch.
    pub(crate) batch: u64,
    keys: Option<Hidden<[[u8; 32]; 2]>>,
    secret: Option<Hidden<String>>,
    #[serde(default)]
    shown: bool,
    pub(crate) peer: Peer,
    pub(crate) local: Peer,
    /// Whoever has its keys goes on with it.
    pub(crate) tls: Option<TlsInfo>,
    /// How long it has been connected, and idle.
    age_us: u64,
    idle_us: u64,
    /// It has sent this, and nothing has been done of it.
    #[serde(with = "crate::bytes")]
    unread: Vec<u8>,
}

/// A secret, which is in no `Debug` (`auth/secret.rs`).
#[derive(Serialize, Deserialize)]
struct Hidden<T>(T);

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

impl Passport {
    /// `None`: it is not at rest.
    pub(crate) fn of(client: &Client, pool: &PoolName, credentials: &Credentials, now: Time) -> Option<Self> {
        let session = client.session()?;
        let at_rest = client.inbox.body == Body::None && session.discard == Discard::Nothing && !session.listens;
        let statements = match session.statements.is_blank() {
            true => None,
            false => Some(session.statements.saved()?),
        };
        let startup = match &session.startup {
            Some(startup) => Some(startup.saved()?),
            None => None,
        };
        at_rest.then_some(Self {
            database: session.database.to_string(),
            user: session.user.to_string(),
            server_user: pool.user.to_string(),
            parameters: session.parameters.own_copy(),
            greeted: session.greeted.own_copy(),
            startup,
            statements,
            unnamed: session.unnamed.saved()?,
            standby: session.standby,
            process_id: client.moved.process_id,
            told: session.told,
            cancel_key: session.cancel_key.clone(),
            batch: session.batch,
            keys: credentials.keys.as_ref().map(|keys| Hidden([keys.client_key, keys.server_key])),
            secret: credentials.secret.as_ref().map(|secret| Hidden(secret.text())),
            shown: credentials.shown,
            peer: client.peer.clone(),
            local: client.local.clone(),
            tls: client.tls.as_deref().cloned(),
            age_us: now.since(client.connected_at).0,
            idle_us: now.since(session.idle_at).0,
            unread: client.inbox.partial().to_vec(),
        })
    }

    pub(crate) fn pool(&self) -> PoolName {
        PoolName::new((&*self.database).into(), (&*self.server_user).into())
    }

    /// As old as can be: what a login has brought here since is newer.
    pub(crate) fn credentials(&self) -> Credentials {
        let keys = |&Hidden([client_key, server_key]): &Hidden<[[u8; 32]; 2]>| ScramKeys { client_key, server_key };
        Credentials {
            keys: self.keys.as_ref().map(keys),
            secret: self.secret.as_ref().map(|Hidden(text)| Secret::parse(text)),
            shown: self.shown,
            since: Time(0),
        }
    }

    pub(crate) fn connected_at(&self, now: Time) -> Time {
        before(now, self.age_us)
    }

    pub(crate) fn idle_at(&self, now: Time) -> Time {
        before(now, self.idle_us)
    }

    pub(crate) fn inbox(&mut self) -> Inbox {
        Inbox::of_partial(std::mem::take(&mut self.unread))
    }
}

/// The process's own time has not begun much before.
fn before(now: Time, us: u64) -> Time {
    Time(now.0.saturating_sub(us))
}
