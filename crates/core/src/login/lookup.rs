//! Users who are in no file: PostgreSQL is asked for their secrets, with `auth_query` as `auth_user`.
//!
//! Those who answer are servers of a pool that no client uses (`PoolName::looks_up`): what a client has left in a session, or asks for in its
//! startup packet, leads no question astray. Knows the question and what an answer means; who asks when is the worker's business (`greeting.rs`).

use std::sync::Arc;

use crate::auth::{SERVER_ITERATIONS_MAX, Secret};
use crate::failure::Failure;
use crate::login::Phase;
use crate::login::client_login::{ClientLogin, Then};
use crate::names::{CONSOLE_DATABASES, PoolName};
use crate::parameters::meanings::NAME_BYTES;
use crate::settings::{AuthType, Settings, Way};
use crate::time::Time;

/// What is known of a user who is in no file.
#[derive(Debug, Default)]
pub(crate) enum LookedUp {
    #[default]
    NotYet,
    Nobody,
    Found(Secret, Question),
}

/// Who is asked, and when.
#[derive(Debug)]
pub(crate) struct Question {
    way: Way,
    /// The settings when it was decided on.
    under: Arc<Settings>,
    /// When it was sent: what it tells is no newer than that.
    pub(crate) asked_at: Time,
}

impl Question {
    /// The settings of now would ask the same about the user, and there. What another authority says counts no more.
    pub(crate) fn is_current(&self, database: &str, user: &str, settings: &Arc<Settings>) -> bool {
        let (then, now) = (&self.under, settings);
        let same_way = || now.lookup(database).as_ref() == Some(&self.way);
        let same_server = || match (then.database(&self.way.database), now.database(&self.way.database)) {
            (Some(then), Some(now)) => then.endpoints == now.endpoints && then.server_database == now.server_database,
            _ => false,
        };
        Arc::ptr_eq(then, now) || (!now.secrets.contains_key(user) && same_way() && same_server())
    }
}

/// A question, and what has come of it so far.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) question: Question,
    found: Option<Secret>,
    wrong: Option<&'static str>,
}

impl Lookup {
    pub(crate) fn by(way: Way, under: Arc<Settings>) -> Self {
        Self { question: Question { way, under, asked_at: Time(0) }, found: None, wrong: None }
    }

    /// What to ask now; `None` where the settings have changed meanwhile.
    pub(crate) fn query(&mut self, database: &str, user: &str, settings: &Arc<Settings>, now: Time) -> Option<&str> {
        self.question.asked_at = now;
        self.question.is_current(database, user, settings).then_some(&*self.question.way.query)
    }

    /// A row of the answer; `None` where it cannot be read.
    pub(crate) fn row(&mut self, user: &str, values: Option<&[Option<&[u8]>]>) {
        let wrong = match values {
            Some(&[Some(name), secret]) if self.found.is_none() => {
                match secret.map(std::str::from_utf8) {
                    // The user of another row would be let in by this one's secret.
                    _ if name != user.as_bytes() => "it returned another user than it was asked for",
                    Some(Err(_)) => "the secret is not UTF-8",
                    // Nobody's password fits, as where PostgreSQL has none, or it has expired.
                    None => return self.found = Some(Secret::parse("")),
                    Some(Ok(secret)) => match Secret::parse(secret) {
                        // Users may set their own secrets (`pg_authid.rolpassword`): one who does so keeps nobody else waiting.
                        Secret::Scram(verifier) if verifier.iterations > SERVER_ITERATIONS_MAX => {
                            "the secret has more than 1,000,000 SCRAM iterations"
                        }
                        secret => return self.found = Some(secret),
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
    pub(crate) fn end(self) -> Result<LookedUp, &'static str> {
        match (self.wrong, self.found) {
            (Some(wrong), _) => Err(wrong),
            (None, Some(secret)) => Ok(LookedUp::Found(secret, self.question)),
            (None, None) => Ok(LookedUp::Nobody),
        }
    }
}

impl ClientLogin<'_> {
    /// PostgreSQL has told what it knows of the user.
    pub(crate) fn is_looked_up(&mut self, looked_up: LookedUp) -> Then {
        if let LookedUp::Found(secret, _) = &looked_up
            && !secret.is_empty()
        {
            self.known.meet(secret);
        }
        self.login.looked_up = looked_up;
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
        let known = self.secret().is_some() || !matches!(self.login.looked_up, LookedUp::NotYet);
        // PostgreSQL would cut a longer name, and tell of another user.
        let too_long = self.login.user.len() > NAME_BYTES;
        if known || too_long || matches!(self.login.method, AuthType::Any | AuthType::Reject | AuthType::Hba) {
            return None;
        }
        let way = self.cx.settings.lookup(&self.login.database)?;
        let wrong = if CONSOLE_DATABASES.contains(&&*way.database) {
            format!("cannot use the reserved \"{}\" database as an auth_dbname", way.database)
        } else if self.cx.settings.database(&way.database).is_none() {
            format!("authentication database \"{}\" is not configured", way.database)
        } else {
            let (database, user) = (Arc::clone(&way.database), Arc::clone(&way.user));
            self.login.phase = Phase::LookingUp(Lookup::by(way, Arc::clone(&self.cx.settings)));
            return Some(Then::LookUp(Arc::new(PoolName { database, user, looks_up: true })));
        };
        self.cx.log_error(wrong);
        Some(Then::Fail(Failure::LookupFailed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::mock_verifier;

    fn answer(rows: &[&[Option<&str>]]) -> Result<Option<Secret>, &'static str> {
        let mut lookup = Lookup::by(Way { database: "".into(), user: "".into(), query: "".into() }, Arc::default());
        for row in rows {
            let values: Vec<_> = row.iter().map(|value| value.map(str::as_bytes)).collect();
            lookup.row("alice", Some(&values));
        }
        lookup.end().map(|looked_up| match looked_up {
            LookedUp::Found(secret, _) => Some(secret),
            _ => None,
        })
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
