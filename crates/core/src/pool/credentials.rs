//! How logins to a pool's servers are made where the files do not say.

use crate::auth::{ScramKeys, Secret};
use crate::time::Time;

/// What its clients' logins have brought that logins to its servers may need.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credentials {
    /// The keys of a client that logged in with the SCRAM secret which the server has too.
    pub(crate) keys: Option<ScramKeys>,
    /// The secret that was looked up, of a user who is not in the file, or that was shown.
    pub(crate) secret: Option<Secret>,
    /// PAM or a directory has found it right: it counts more than the file's.
    pub(crate) shown: bool,
    /// When that was asked for, or the login with the file's: a login that began before another one, and ends behind it, brings nothing newer.
    pub(crate) since: Time,
}

impl Credentials {
    /// Nor does what was on its way by then count.
    pub(crate) fn forget_shown(&mut self, now: Time) {
        if self.shown {
            *self = Self { since: now, ..Self::default() };
        }
    }

    /// A login has brought others. Whether they are news: so is that those of before were looked up and hold still.
    pub(crate) fn meet(&mut self, others: Self) -> bool {
        if others.since < self.since {
            return false;
        }
        let is_news = others.secret.is_some() || (&others.keys, &others.secret) != (&self.keys, &self.secret);
        *self = others;
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_that_began_earlier_brings_nothing_newer() {
        let of = |secret: &str, at: u64| Credentials {
            secret: Some(Secret::parse(secret)),
            since: Time(at),
            ..Credentials::default()
        };
        let mut known = Credentials::default();
        assert!(
            known.meet(of("new", 2))
                && !known.meet(of("old", 1))
                && known.meet(of("new", 3))
                && !known.meet(of("other", 2))
        );
        assert!(known.secret == Some(Secret::parse("new")) && known.meet(of("newer", 3)));
    }
}
