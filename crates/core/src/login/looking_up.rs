//! When a login has PostgreSQL asked about its user, and what it makes of the answer.

use std::sync::Arc;

use crate::auth::{Secret, keyed_number};
use crate::failure::Failure;
use crate::login::Phase;
use crate::login::client_login::{ClientLogin, Then};
use crate::login::lookup::{LookedUp, Lookup, Sought, Told};
use crate::login::strangers::{Asked, Realm};
use crate::mail::Letter;
use crate::names::{CONSOLE_DATABASES, Destination, PoolName};
use crate::parameters::meanings::NAME_BYTES;
use crate::settings::{AuthType, Settings};

impl ClientLogin<'_> {
    /// PostgreSQL has told what it knows of the user.
    pub(crate) fn is_told(&mut self, told: Told) -> Then {
        match told {
            Told::Secret(looked_up) => {
                if let LookedUp::Found(secret, _) = &looked_up
                    && !secret.is_empty()
                {
                    let (realm, asked) = (self.login.realm, Asked::of(secret));
                    if self.known.meet(realm, asked) {
                        for worker in self.cx.other_workers().collect::<Vec<_>>() {
                            self.cx.post(worker, Letter::Met { realm, asked });
                        }
                    }
                }
                self.login.looked_up = looked_up;
            }
            Told::Roles(roles) => self.login.roles = Some(roles),
            Told::ForcedSecret(user, looked_up) => {
                self.login.forced = Some((user, looked_up));
                return Then::Authenticated(None);
            }
        }
        self.begin_authentication()
    }

    /// Of the file, or as PostgreSQL has told it.
    pub(super) fn secret(&self) -> Option<&Secret> {
        self.cx.settings.secrets.get(&self.login.user).or(match &self.login.looked_up {
            LookedUp::Found(secret, _) => Some(secret),
            LookedUp::NotYet | LookedUp::Nobody => None,
        })
    }

    /// Whom to ask, where a user is known of whom nobody has heard yet.
    pub(super) fn looks_up(&mut self) -> Option<Then> {
        use AuthType::{Any, Hba, Ldap, Pam, Reject};
        let known = self.secret().is_some() || !matches!(self.login.looked_up, LookedUp::NotYet);
        if known || matches!(self.login.method, Any | Reject | Hba | Pam | Ldap) {
            return None;
        }
        self.ask_postgresql(Arc::clone(&self.login.user), Sought::Secret)
    }

    /// Which record is its depends on the roles of its user.
    pub(super) fn asks_for_roles(&mut self) -> Then {
        match self.ask_postgresql(Arc::clone(&self.login.user), Sought::Roles) {
            Some(then) => then,
            None => {
                let text = "a line of auth_hba_file is for the members of a role: auth_user, who could ask for them, is not set, or the \
                            user's name is longer than 63 bytes";
                self.cx.log_error(text.to_owned());
                Then::Fail(Failure::LookupFailed)
            }
        }
    }

    /// Its database's entry forces a user without saying by which secret. Once for a login.
    pub(crate) fn looks_up_forced(&mut self, user: &Arc<str>) -> Option<Then> {
        if self.login.forced.is_some() || self.cx.settings.secrets.contains_key(user) {
            return None;
        }
        self.ask_postgresql(Arc::clone(user), Sought::ForcedSecret)
    }

    /// The database whose entry says how. For one that does not exist it is that of another, the same each time.
    fn asks_as(&mut self, settings: &Settings) -> Option<Arc<str>> {
        let database = &self.login.database;
        if self.login.is_to_console() || settings.database(database).is_some() {
            return Some(Arc::clone(database));
        }
        let number = keyed_number(&format!("{database}\0database"), &self.cx.config.process_secret);
        self.login.is_stood_for = true;
        settings.stands_for(number).cloned()
    }

    /// Nobody can be asked in the place of a database that does not exist.
    pub(crate) fn is_told_nothing(&mut self) -> Then {
        match std::mem::replace(&mut self.login.phase, Phase::Admission) {
            Phase::LookingUp(lookup) if lookup.is_about_roles() => self.login.roles = Some(Vec::new()),
            _ => self.login.looked_up = LookedUp::Nobody,
        }
        self.begin_authentication()
    }

    /// `None`: nobody is there to ask, or it would be asked about another.
    fn ask_postgresql(&mut self, user: Arc<str>, sought: Sought) -> Option<Then> {
        // PostgreSQL would cut a longer name, and tell of another user.
        if user.len() > NAME_BYTES {
            return None;
        }
        let settings = Arc::clone(&self.cx.settings);
        let entry = self.asks_as(&settings)?;
        let way = settings.lookup(&entry)?;
        let wrong = if CONSOLE_DATABASES.contains(&&*way.database) {
            format!("cannot use the reserved \"{}\" database as an auth_dbname", way.database)
        } else if self.cx.settings.database(&way.database).is_none() {
            format!("authentication database \"{}\" is not configured", way.database)
        } else {
            let pool = PoolName {
                database: Arc::clone(&way.database),
                user: Arc::clone(&way.user),
                looks_up: true,
                destination: Destination::default(),
            };
            let endpoints = settings.database(&way.database).map_or(&[][..], |entry| &entry.endpoints);
            self.login.realm = Realm::of(endpoints, &way.query, &self.cx.config.process_secret);
            let lookup = Lookup::of(user, sought, (entry, way), settings);
            self.login.phase = Phase::LookingUp(Box::new(lookup));
            return Some(Then::LookUp(Arc::new(pool)));
        };
        self.cx.log_error(wrong);
        Some(Then::Fail(Failure::LookupFailed))
    }
}
