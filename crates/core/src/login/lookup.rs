//! What PostgreSQL is asked about users, as `auth_user`: the secrets of those who are in no file, with `auth_query`, and whose members they are.
//!
//! Those who answer are servers of a pool that no client uses (`PoolName::looks_up`): what a client has left in a session, or asks for in its
//! startup packet, leads no question astray. Knows the question and what an answer means; who asks when is the worker's business (`greeting.rs`).

use std::sync::Arc;

use crate::auth::{SERVER_ITERATIONS_MAX, Secret};
use crate::names::CONSOLE_DATABASES;
use crate::pool::credentials::Credentials;
use crate::settings::{Settings, Way};
use crate::time::Time;

/// Roles of one user that are kept, beyond which nothing is known of them.
const ROLES_MAX: usize = 4096;

/// Those that a user is a member of, directly or not, itself one of them; a superuser is no member of others for it (`is_member`,
/// src/backend/libpq/hba.c at 18, which `+role` asks).
const ROLES: &str = "WITH RECURSIVE member(oid) AS (\
                     SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) $1 UNION \
                     SELECT m.roleid FROM pg_catalog.pg_auth_members m, member WHERE m.member OPERATOR(pg_catalog.=) member.oid) \
                     SELECT r.rolname FROM pg_catalog.pg_roles r, member WHERE r.oid OPERATOR(pg_catalog.=) member.oid";

/// What is known of a user who is in no file.
#[derive(Debug, Default)]
pub(crate) enum LookedUp {
    #[default]
    NotYet,
    Nobody,
    Found(Secret, Question),
}

impl LookedUp {
    /// What was found counts under the settings of now.
    pub(crate) fn is_current(&self, database: &str, user: &str, settings: &Arc<Settings>) -> bool {
        match self {
            Self::Found(_, question) => question.is_current(database, user, settings),
            Self::NotYet | Self::Nobody => true,
        }
    }

    /// What was found opens PostgreSQL's door too.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        match self {
            Self::Found(secret, question) => {
                Some(Credentials { secret: Some(secret.clone()), since: question.asked_at, ..Credentials::default() })
            }
            Self::NotYet | Self::Nobody => None,
        }
    }
}

/// Who is asked, and when.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    way: Way,
    /// The database whose entry says so: the client's, or another for one that does not exist.
    entry: Arc<str>,
    /// The settings when it was decided on.
    under: Arc<Settings>,
    /// When it was sent: what it tells is no newer than that.
    asked_at: Time,
}

impl Question {
    /// The settings of now would ask the same about the user, and there. What another authority says counts no more.
    pub(crate) fn is_current(&self, database: &str, user: &str, settings: &Arc<Settings>) -> bool {
        let is_same = Arc::ptr_eq(&self.under, settings);
        is_same || (!settings.secrets.contains_key(user) && self.leads_there(database, settings))
    }

    /// The settings of now would ask in the same way and place.
    fn leads_there(&self, database: &str, now: &Settings) -> bool {
        let same_server = || match (self.under.database(&self.way.database), now.database(&self.way.database)) {
            (Some(then), Some(now)) => then.endpoints == now.endpoints && then.server_database == now.server_database,
            _ => false,
        };
        let is_its_own = CONSOLE_DATABASES.contains(&database) || now.database(database).is_some();
        let same_entry = is_its_own == (*self.entry == *database);
        same_entry && now.lookup(&self.entry).as_ref() == Some(&self.way) && same_server()
    }
}

/// What is asked of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sought {
    Secret,
    /// The same, of the one whom the database's entry forces.
    ForcedSecret,
    Roles,
}

/// A question, and what has come of it so far.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(super) question: Question,
    pub(crate) user: Arc<str>,
    sought: Sought,
    secret: Option<Secret>,
    roles: Vec<Arc<str>>,
    wrong: Option<&'static str>,
}

/// What PostgreSQL has told.
pub(crate) enum Told {
    Secret(LookedUp),
    ForcedSecret(Arc<str>, LookedUp),
    Roles(Vec<Arc<str>>),
}

impl Lookup {
    pub(super) fn of(user: Arc<str>, sought: Sought, (entry, way): (Arc<str>, Way), under: Arc<Settings>) -> Self {
        let question = Question { way, entry, under, asked_at: Time(0) };
        Self { question, user, sought, secret: None, roles: Vec::new(), wrong: None }
    }

    /// What to ask now; `None` where the settings have changed meanwhile.
    pub(crate) fn query(&mut self, database: &str, settings: &Arc<Settings>, now: Time) -> Option<&str> {
        self.question.asked_at = now;
        let query = if self.sought == Sought::Roles { ROLES } else { &self.question.way.query };
        self.is_current(database, settings).then_some(query)
    }

    pub(crate) fn is_current(&self, database: &str, settings: &Arc<Settings>) -> bool {
        match self.sought {
            Sought::Roles => self.question.leads_there(database, settings),
            Sought::Secret | Sought::ForcedSecret => self.question.is_current(database, &self.user, settings),
        }
    }

    /// A row of the answer; `None` where it cannot be read.
    pub(crate) fn row(&mut self, values: Option<&[Option<&[u8]>]>) {
        match self.sought {
            Sought::Roles => self.role(values),
            Sought::Secret | Sought::ForcedSecret => self.secret(values),
        }
    }

    fn role(&mut self, values: Option<&[Option<&[u8]>]>) {
        let wrong = match values {
            Some(&[Some(name)]) if self.roles.len() < ROLES_MAX => match std::str::from_utf8(name) {
                Ok(name) => return self.roles.push(name.into()),
                // No record can name it.
                Err(_) => return,
            },
            Some(&[Some(_)]) => "the user is a member of more than 4,096 roles",
            _ => "a role is not a name",
        };
        self.wrong.get_or_insert(wrong);
    }

    fn secret(&mut self, values: Option<&[Option<&[u8]>]>) {
        let wrong = match values {
            Some(&[Some(name), secret]) if self.secret.is_none() => {
                match secret.map(std::str::from_utf8) {
                    // The user of another row would be let in by this one's secret.
                    _ if name != self.user.as_bytes() => "it returned another user than it was asked for",
                    Some(Err(_)) => "the secret is not UTF-8",
                    // Nobody's password fits, as where PostgreSQL has none, or it has expired.
                    None => return self.secret = Some(Secret::parse("")),
                    Some(Ok(secret)) => match Secret::parse(secret) {
                        // Users may set their own secrets (`pg_authid.rolpassword`): one who does so keeps nobody else waiting.
                        Secret::Scram(verifier) if verifier.iterations > SERVER_ITERATIONS_MAX => {
                            "the secret has more than 1,000,000 SCRAM iterations"
                        }
                        secret => return self.secret = Some(secret),
                    },
                }
            }
            Some(&[Some(_), _]) => "it returned more than one row",
            Some(&[None, _]) => "the user that it returned is NULL",
            Some(_) => "it must return two columns, the user and the secret",
            None => "what it returned is too long",
        };
        self.wrong.get_or_insert(wrong);
    }

    /// All is answered.
    pub(crate) fn end(&mut self) -> Result<Told, &'static str> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let looked_up = match self.secret.take() {
            Some(secret) => LookedUp::Found(secret, self.question.clone()),
            None => LookedUp::Nobody,
        };
        Ok(match self.sought {
            Sought::Secret => Told::Secret(looked_up),
            Sought::ForcedSecret => Told::ForcedSecret(Arc::clone(&self.user), looked_up),
            Sought::Roles => Told::Roles(std::mem::take(&mut self.roles)),
        })
    }

    pub(crate) fn is_about_roles(&self) -> bool {
        self.sought == Sought::Roles
    }

    /// The user of whom it is, where that is one whom its database's entry forces.
    pub(crate) fn forced(&self) -> Option<Arc<str>> {
        (self.sought == Sought::ForcedSecret).then(|| Arc::clone(&self.user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::mock_verifier;

    fn answer(rows: &[&[Option<&str>]]) -> Result<Option<Secret>, &'static str> {
        told(Sought::Secret, rows).map(|told| match told {
            Told::Secret(LookedUp::Found(secret, _)) => Some(secret),
            _ => None,
        })
    }

    fn told(sought: Sought, rows: &[&[Option<&str>]]) -> Result<Told, &'static str> {
        let way = Way { database: "".into(), user: "".into(), query: "".into() };
        let mut lookup = Lookup::of("alice".into(), sought, ("".into(), way), Arc::default());
        for row in rows {
            let values: Vec<_> = row.iter().map(|value| value.map(str::as_bytes)).collect();
            lookup.row(Some(&values));
        }
        lookup.end()
    }

    #[test]
    fn roles_are_names_and_not_without_end() {
        let roles = |rows: &[&[Option<&str>]]| match told(Sought::Roles, rows) {
            Ok(Told::Roles(roles)) => roles.len(),
            _ => usize::MAX,
        };
        assert_eq!(roles(&[]), 0);
        assert_eq!(roles(&[&[Some("alice")], &[Some("staff")]]), 2);
        assert_eq!(roles(&[&[None]]), usize::MAX);
        assert_eq!(roles(&[&[Some("alice"), Some("x")]]), usize::MAX);
        assert_eq!(roles(&[&[Some("r")][..]; ROLES_MAX]), ROLES_MAX);
        assert_eq!(roles(&[&[Some("r")][..]; ROLES_MAX + 1]), usize::MAX);
    }

    #[test]
    fn one_row_with_the_user_and_the_secret_is_an_answer() {
        let scram = |iterations: u32| mock_verifier("alice", &[0; 32], iterations).to_string();
        assert!(answer(&[]) == Ok(None));
        assert!(answer(&[&[Some("alice"), Some(&scram(1_000_000))]]).is_ok());
        assert!(answer(&[&[Some("alice"), Some("x")]]) == Ok(Some(Secret::parse("x"))));
        let nothing = answer(&[&[Some("alice"), None]]).unwrap().unwrap();
        assert!(nothing.is_empty(), "nobody's password fits");
        for rows in [
            &[&[Some("bob"), Some("x")][..]][..],
            &[&[None, Some("x")]],
            &[&[Some("alice")]],
            &[&[Some("alice"), Some("x"), Some("y")]],
            &[&[Some("alice"), Some("x")], &[Some("alice"), Some("x")]],
            &[&[Some("alice"), None], &[Some("bob"), Some("x")]],
            &[&[Some("alice"), Some(&scram(1_000_001))]],
        ] {
            assert!(answer(rows).is_err(), "{rows:?}");
        }
    }
}
