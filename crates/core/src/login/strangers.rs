//! What users are asked for whom nobody knows: nothing that tells them from those who are known, whichever database they name.
//!
//! A name is asked for what the users of the file are asked for, in the same proportion, and for the same each time; and so long as
//! the check of a user's password may take, the answer to a stranger's takes. Users of the file are asked for the same at each database; who is looked up, for
//! the same wherever the same is asked about him (`Realm`), and for something else elsewhere, where he may be nobody. A stranger may be either, as a lot says
//! for each name and each realm: whatever is seen of a user at all databases together, is seen of strangers too. Knows names and secrets; not exchanges.

use std::collections::{BTreeMap, BTreeSet};

use crate::auth::{SALT_LENGTH_BYTES, ScramVerifier, Secret, keyed_number, mock_salt, mock_verifier};
use crate::peer::Endpoint;
use crate::settings::{AuthType, Settings};

/// Kinds that are remembered of users who were looked up, by where: one may make his own (a salt of his own length).
const KINDS_MAX: usize = 16;
/// Where they were. As many as there are entries with an `auth_query` or a host of their own.
const REALMS_MAX: usize = 1024;

/// Whom the same question is about, by number: those whom one `auth_query` finds at one place. Copies of a cluster that have entries of their own are two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Realm {
    /// Nobody is asked about users who are in no file.
    #[default]
    Nowhere,
    Place(u64),
}

impl Realm {
    pub(super) fn of(endpoints: &[Endpoint], query: &str, process_secret: &[u8; 32]) -> Self {
        Self::Place(keyed_number(&format!("{endpoints:?}\0{query}"), process_secret))
    }

    /// What stands for the user here alone: salts are made of it.
    pub(super) fn name(self, user: &str) -> String {
        match self {
            Self::Nowhere => format!("{user}\0"),
            Self::Place(number) => format!("{user}\0{number:x}"),
        }
    }
}

/// What of a login can be seen before the password is checked, or by how long that takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asked {
    /// Who has no SCRAM secret: what the login's method makes of that.
    Other,
    Scram {
        iterations: u32,
        salt_len: usize,
    },
}

impl Asked {
    pub(super) fn of(secret: &Secret) -> Self {
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
    has_file: bool,
    looks_up: bool,
    /// What users were asked for who were looked up and found: so is who is looked up there in vain.
    looked_up: BTreeMap<Realm, BTreeSet<Asked>>,
}

impl Strangers {
    pub(super) fn of(settings: &Settings) -> Self {
        let mut counts = BTreeMap::new();
        for secret in settings.secrets.values() {
            *counts.entry(Asked::of(secret)).or_default() += 1;
        }
        let has_file = !counts.is_empty();
        if !has_file {
            counts.insert(Asked::Other, 1);
        }
        Self { counts, has_file, looks_up: settings.looks_up(), looked_up: BTreeMap::new() }
    }

    /// What was found counts on: what a stranger is asked for does not change with settings that ask the same.
    pub(super) fn renew(&mut self, settings: &Settings) {
        let looked_up = std::mem::take(&mut self.looked_up);
        *self = Self { looked_up, ..Self::of(settings) };
    }

    /// A user was looked up there and found. Whether that is the first of his kind.
    pub(super) fn meet(&mut self, realm: Realm, asked: Asked) -> bool {
        let has_room = self.looked_up.len() < REALMS_MAX || self.looked_up.contains_key(&realm);
        if !has_room {
            return false;
        }
        let kinds = self.looked_up.entry(realm).or_default();
        kinds.len() < KINDS_MAX && kinds.insert(asked)
    }

    /// Whether the name passes for one of the file there.
    fn is_as_of_file(&self, user: &str, realm: Realm, process_secret: &[u8; 32]) -> bool {
        let lot = || keyed_number(&format!("{}\0lot", realm.name(user)), process_secret);
        !self.looks_up || self.has_file && lot().is_multiple_of(2)
    }

    fn choose(&self, user: &str, realm: Realm, process_secret: &[u8; 32]) -> Asked {
        let number = u128::from(keyed_number(user, process_secret));
        if !self.is_as_of_file(user, realm, process_secret) {
            // How many there are of each is not known: what a name is asked for is another only when a new kind is met.
            let kinds = self.looked_up.get(&realm);
            let place = (number * kinds.map_or(0, BTreeSet::len) as u128) >> 64;
            return kinds.and_then(|kinds| kinds.iter().nth(place as usize)).copied().unwrap_or(Asked::Other);
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
    pub(super) fn asked(&self, user: &str, realm: Realm, secret: Option<&Secret>, process_secret: &[u8; 32]) -> Asked {
        secret.map_or_else(|| self.choose(user, realm, process_secret), Asked::of)
    }

    /// A verifier that nobody's password fits; `None` where md5 is asked for.
    pub(super) fn verifier(
        &self,
        user: &str,
        realm: Realm,
        (method, iterations): (AuthType, u32),
        process_secret: &[u8; 32],
    ) -> Option<ScramVerifier> {
        let (iterations, salt_len) = self.choose(user, realm, process_secret).scram(method, iterations)?;
        let name = if self.is_as_of_file(user, realm, process_secret) { user.to_owned() } else { realm.name(user) };
        let salt = mock_salt(&name, process_secret, salt_len);
        Some(ScramVerifier { salt, ..mock_verifier(&name, process_secret, iterations) })
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
            let shown = || verifier(&strangers, &format!("user{number}"), Realm::Nowhere, settings.auth_type);
            let verifier = shown();
            assert_eq!(verifier, shown());
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
        let settings = Settings { auth_user: Some("looker".into()), ..settings(AuthType::Md5, &[]) };
        let mut strangers = Strangers::of(&settings);
        let seen = |strangers: &Strangers, realm| {
            let of = |number| {
                verifier(strangers, &format!("user{number}"), realm, settings.auth_type).map(|made| made.iterations)
            };
            (0..100).map(of).collect::<Vec<_>>()
        };
        let (here, elsewhere) = (Realm::Place(1), Realm::Place(2));
        assert_eq!(seen(&strangers, here), [None; 100]);
        assert!(strangers.meet(here, Asked::of(&scram(4096, 16))));
        let before = seen(&strangers, here);
        assert_eq!(before, [Some(4096); 100]);
        assert!(!strangers.meet(here, Asked::of(&scram(4096, 16))));
        strangers.renew(&settings);
        assert_eq!(seen(&strangers, here), before);
        assert_eq!(seen(&strangers, elsewhere), [None; 100], "nobody was found there");
        for number in 0..1000 {
            strangers.meet(here, Asked::of(&scram(10_000 + number, 16)));
        }
        assert_eq!(strangers.looked_up[&here].len(), KINDS_MAX);
        for number in 0..10_000 {
            strangers.meet(Realm::Place(number), Asked::Other);
        }
        assert_eq!(strangers.looked_up.len(), REALMS_MAX);
    }

    /// Users of the file are asked for the same everywhere; those that PostgreSQL has at one place are asked for their own there.
    #[test]
    fn a_stranger_may_be_one_of_the_file_or_of_any_place() {
        let file = [("a", scram(4096, 16))];
        let settings = Settings { auth_user: Some("looker".into()), ..settings(AuthType::ScramSha256, &file) };
        let mut strangers = Strangers::of(&settings);
        strangers.meet(Realm::Place(1), Asked::of(&scram(4096, 16)));
        let places = [Realm::Place(1), Realm::Place(2), Realm::Nowhere];
        let salts = |user: &str| {
            let of = |realm| verifier(&strangers, user, realm, settings.auth_type).unwrap().salt;
            places.map(of).into_iter().collect::<BTreeSet<_>>().len()
        };
        let counts: Vec<_> = (0..1000).map(|number| salts(&format!("user{number}"))).collect();
        let of = |count| counts.iter().filter(|other| **other == count).count();
        // The same everywhere; his own at one place, and the same at the others; his own at two places or three.
        assert!((80..170).contains(&of(1)) && (300..450).contains(&of(2)) && (430..570).contains(&of(3)), "{counts:?}");
        // Without a file nobody is asked so, and without a look-up everybody.
        let nobodys = Settings { secrets: BTreeMap::new(), ..settings.clone() };
        let of_nobody = Strangers::of(&nobodys);
        let of_file = Strangers::of(&Settings { auth_user: None, ..settings.clone() });
        for number in 0..100 {
            let user = format!("user{number}");
            let salt = |strangers, realm| verifier(strangers, &user, realm, AuthType::ScramSha256).unwrap().salt;
            assert_ne!(salt(&of_nobody, places[0]), salt(&of_nobody, places[1]));
            assert_eq!(salt(&of_file, places[0]), salt(&of_file, places[1]));
        }
    }

    fn verifier(strangers: &Strangers, user: &str, realm: Realm, method: AuthType) -> Option<ScramVerifier> {
        strangers.verifier(user, realm, (method, 4096), &[7; 32])
    }

    fn md5() -> String {
        format!("md5{}", "0".repeat(32))
    }
}
