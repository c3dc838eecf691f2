//! What users are asked for who are in no file: nothing that tells them from those who are.
//!
//! A name is asked for what the users of the file are asked for, in the same proportion, and for the same each time; and so long as
//! the check of a user's password may take, the answer to a stranger's takes. Knows names and secrets; not exchanges.

use std::collections::{BTreeMap, BTreeSet};

use crate::auth::{SALT_LENGTH_BYTES, ScramVerifier, Secret, keyed_number, mock_salt, mock_verifier};
use crate::settings::{AuthType, Settings};

/// Kinds that are remembered of users who were looked up: one may make his own (a salt of his own length).
const KINDS_MAX: usize = 16;

/// What of a login can be seen before the password is checked, or by how long that takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    /// Who has no SCRAM secret: what the login's method makes of that.
    Other,
    Scram {
        iterations: u32,
        salt_len: usize,
    },
}

impl Asked {
    fn of(secret: &Secret) -> Self {
        match secret {
            Secret::Scram(verifier) => Self::Scram { iterations: verifier.iterations, salt_len: verifier.salt.len() },
            _ => Self::Other,
        }
    }

    /// The iterations and the length of the salt; `None` where md5 is asked for, or a password in clear, for which nothing need be derived.
    /// `iterations`: of a secret that is made of a password.
    fn scram(self, method: AuthType, iterations: u32) -> Option<(u32, usize)> {
        match (self, method) {
            (Self::Scram { iterations, salt_len }, _) => Some((iterations, salt_len)),
            (Self::Other, AuthType::Md5 | AuthType::Plain) => None,
            (Self::Other, _) => Some((iterations, SALT_LENGTH_BYTES)),
        }
    }

    /// How many iterations it takes to check the password.
    pub(super) fn iterations(self, method: AuthType, iterations: u32) -> u32 {
        self.scram(method, iterations).map_or(0, |(iterations, _)| iterations)
    }
}

/// What the users of the file are asked for, with how many they are.
#[derive(Debug)]
pub(super) struct Strangers {
    counts: BTreeMap<Asked, u64>,
    /// What users were asked for who were looked up and found: so is who is looked up in vain.
    looked_up: BTreeSet<Asked>,
}

impl Strangers {
    pub(super) fn of(settings: &Settings) -> Self {
        let mut counts = BTreeMap::new();
        for secret in settings.secrets.values() {
            *counts.entry(Asked::of(secret)).or_default() += 1;
        }
        if counts.is_empty() {
            counts.insert(Asked::Other, 1);
        }
        Self { counts, looked_up: BTreeSet::new() }
    }

    /// A user was looked up and found.
    pub(super) fn meet(&mut self, secret: &Secret) {
        if self.looked_up.len() < KINDS_MAX {
            self.looked_up.insert(Asked::of(secret));
        }
    }

    fn choose(&self, user: &str, process_secret: &[u8; 32]) -> Asked {
        let number = u128::from(keyed_number(user, process_secret));
        // How many there are of each is not known: what a name is asked for is another only when a new kind is met.
        let place = (number * self.looked_up.len() as u128) >> 64;
        if let Some(asked) = self.looked_up.iter().nth(place as usize) {
            return *asked;
        }
        let total: u64 = self.counts.values().sum();
        // The name's place among all of them, as if they stood in a row.
        let mut place = ((number * u128::from(total)) >> 64) as u64;
        let mut asked = Asked::Other;
        for (of_the_file, count) in &self.counts {
            asked = *of_the_file;
            if place < *count {
                break;
            }
            place -= count;
        }
        asked
    }

    /// What anybody is asked for of this name, stranger or not.
    pub(super) fn asked(&self, user: &str, secret: Option<&Secret>, process_secret: &[u8; 32]) -> Asked {
        secret.map_or_else(|| self.choose(user, process_secret), Asked::of)
    }

    /// A verifier that nobody's password fits; `None` where md5 is asked for.
    pub(super) fn verifier(
        &self,
        user: &str,
        method: AuthType,
        iterations: u32,
        process_secret: &[u8; 32],
    ) -> Option<ScramVerifier> {
        let (iterations, salt_len) = self.choose(user, process_secret).scram(method, iterations)?;
        let salt = mock_salt(user, process_secret, salt_len);
        Some(ScramVerifier { salt, ..mock_verifier(user, process_secret, iterations) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(auth_type: AuthType, secrets: &[(&str, Secret)]) -> Settings {
        let secrets = secrets.iter().map(|(name, secret)| ((*name).into(), secret.clone())).collect();
        Settings { auth_type, secrets, ..Settings::default() }
    }

    fn scram(iterations: u32, salt_len: usize) -> Secret {
        let verifier = mock_verifier("somebody", &[0; 32], iterations);
        Secret::Scram(ScramVerifier { salt: vec![1; salt_len], ..verifier })
    }

    /// Of 1 000 strangers, how many are asked for what.
    fn asked(settings: &Settings) -> BTreeMap<Option<(u32, usize)>, u32> {
        let strangers = Strangers::of(settings);
        let mut counts = BTreeMap::new();
        for number in 0..1000 {
            let verifier = strangers.verifier(&format!("user{number}"), settings.auth_type, 4096, &[7; 32]);
            assert_eq!(verifier, strangers.verifier(&format!("user{number}"), settings.auth_type, 4096, &[7; 32]));
            let seen = verifier.map(|verifier| (verifier.iterations, verifier.salt.len()));
            *counts.entry(seen).or_default() += 1;
        }
        counts
    }

    #[test]
    fn strangers_are_asked_for_what_the_users_of_the_file_are() {
        let plain = Secret::parse("secret");
        let one_kind = settings(AuthType::ScramSha256, &[("a", plain.clone()), ("b", Secret::parse(&md5()))]);
        assert_eq!(asked(&one_kind).into_keys().collect::<Vec<_>>(), [Some((4096, 16))]);
        let md5_alone = settings(AuthType::Md5, &[("a", plain.clone())]);
        assert_eq!(asked(&md5_alone).into_keys().collect::<Vec<_>>(), [None]);
        let mixed = settings(AuthType::Md5, &[("a", plain), ("b", scram(600_000, 16)), ("c", scram(4096, 24))]);
        let counts = asked(&mixed);
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [None, Some((4096, 24)), Some((600_000, 16))]);
        assert!(counts.values().all(|count| (250..420).contains(count)), "{counts:?}");
    }

    #[test]
    fn without_a_file_strangers_are_asked_for_what_auth_type_says() {
        assert_eq!(asked(&settings(AuthType::Md5, &[])).into_keys().collect::<Vec<_>>(), [None]);
        let scram = asked(&settings(AuthType::ScramSha256, &[]));
        assert_eq!(scram.into_keys().collect::<Vec<_>>(), [Some((4096, 16))]);
    }

    #[test]
    fn who_is_looked_up_in_vain_is_asked_for_what_those_were_who_were_found() {
        let settings = settings(AuthType::Md5, &[("a", Secret::parse(&md5()))]);
        let mut strangers = Strangers::of(&settings);
        let seen = |strangers: &Strangers| {
            let of = |number| {
                strangers
                    .verifier(&format!("user{number}"), settings.auth_type, 4096, &[7; 32])
                    .map(|made| made.iterations)
            };
            (0..100).map(of).collect::<Vec<_>>()
        };
        assert_eq!(seen(&strangers), [None; 100]);
        strangers.meet(&scram(4096, 16));
        let before = seen(&strangers);
        assert_eq!(before, [Some(4096); 100]);
        strangers.meet(&scram(4096, 16));
        assert_eq!(seen(&strangers), before);
        for number in 0..1000 {
            strangers.meet(&scram(10_000 + number, 16));
        }
        assert_eq!(strangers.looked_up.len(), KINDS_MAX);
    }

    fn md5() -> String {
        format!("md5{}", "0".repeat(32))
    }
}
