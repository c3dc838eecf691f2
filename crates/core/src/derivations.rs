//! Salted passwords that are derived elsewhere (PBKDF2): for what, in which order, and how many at once.
//!
//! Equal ones are derived once, for all who want it. Each kind has its own order and its own share, so that none waits behind
//! a flood of another. What nobody wants any more is not begun. Knows no connections but their names.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::auth::ScramVerifier;
use crate::id::{ClientId, ConnId, ServerId};

/// Clients' own passwords that wait, beyond which no further one is taken.
pub(crate) const PASSWORDS_MAX: usize = 4096;
/// Derivations of one kind that a worker has under way.
const CLIENTS_AT_ONCE: usize = 1;
const SERVERS_AT_ONCE: usize = 2;

/// What a derived password is for.
#[derive(Debug)]
pub(crate) enum Job {
    /// A client's plain password is checked against a SCRAM secret.
    Password { client: ClientId },
    /// A verifier is made of a plain password in the file, and this client waits for it, if one does.
    Verifier { user: Arc<str>, client: Option<ClientId> },
    /// We log in to a server of this pool.
    Server { server: ServerId, pool: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Password,
    Verifier,
    Server,
}

impl Job {
    fn kind(&self) -> Kind {
        match self {
            Self::Password { .. } => Kind::Password,
            Self::Verifier { .. } => Kind::Verifier,
            Self::Server { .. } => Kind::Server,
        }
    }

    fn wanted_by(&self) -> Option<ConnId> {
        match self {
            Self::Password { client } => Some((*client).into()),
            Self::Verifier { client, .. } => client.map(ConnId::from),
            Self::Server { server, .. } => Some((*server).into()),
        }
    }
}

/// What is derived of what. The password is in nobody's `Debug`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Recipe {
    pub(crate) password: Arc<str>,
    pub(crate) salt: Vec<u8>,
    pub(crate) iterations: u32,
}

impl std::fmt::Debug for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recipe(hidden)")
    }
}

/// What came of it.
#[derive(Clone)]
pub(crate) struct Derived {
    pub(crate) recipe: Recipe,
    pub(crate) salted: [u8; 32],
}

impl Derived {
    /// What it makes of a password, if it is that one's.
    pub(crate) fn verifier_of(&self, password: &str) -> Option<ScramVerifier> {
        let Recipe { password: own, salt, iterations } = &self.recipe;
        (**own == *password).then(|| ScramVerifier::from_salted(&self.salted, salt, *iterations))
    }
}

impl std::fmt::Debug for Derived {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Derived(hidden)")
    }
}

#[derive(Debug)]
struct Derivation {
    recipe: Recipe,
    kind: Kind,
    /// The pool that a server's is for: one pool's servers take turns.
    pool: Option<u32>,
    jobs: Vec<Job>,
}

#[derive(Debug, Default)]
pub(crate) struct Derivations {
    number: u32,
    list: BTreeMap<u32, Derivation>,
    by_recipe: BTreeMap<(Kind, Recipe), u32>,
    by_owner: BTreeMap<ConnId, u32>,
    /// Few, so they are looked through.
    under_way: Vec<u32>,
    passwords: VecDeque<u32>,
    verifiers: VecDeque<u32>,
    servers: VecDeque<u32>,
}

impl Derivations {
    /// Whether one more password of a client's may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.passwords.len() < PASSWORDS_MAX
    }

    pub(crate) fn want(&mut self, job: Job, recipe: Recipe) {
        let kind = job.kind();
        let owner = job.wanted_by();
        let number = match self.by_recipe.get(&(kind, recipe.clone())) {
            Some(&number) => number,
            None => self.add(&job, recipe),
        };
        if let Some(derivation) = self.list.get_mut(&number) {
            derivation.jobs.push(job);
        }
        if let Some(owner) = owner {
            self.by_owner.insert(owner, number);
        }
    }

    fn add(&mut self, job: &Job, recipe: Recipe) -> u32 {
        self.number = self.number.wrapping_add(1);
        let (number, kind) = (self.number, job.kind());
        self.by_recipe.insert((kind, recipe.clone()), number);
        let pool = match job {
            Job::Server { pool, .. } => Some(*pool),
            _ => None,
        };
        self.list.insert(number, Derivation { recipe, kind, pool, jobs: Vec::new() });
        match kind {
            Kind::Password => self.passwords.push_back(number),
            Kind::Verifier => self.verifiers.push_back(number),
            Kind::Server => self.servers.push_back(number),
        }
        number
    }

    /// The next one that may begin.
    pub(crate) fn begin(&mut self) -> Option<(u32, Recipe)> {
        let number = self.next_of_clients(Kind::Verifier).or_else(|| self.next_of_clients(Kind::Password));
        let number = number.or_else(|| self.next_server())?;
        let recipe = self.list.get(&number)?.recipe.clone();
        self.under_way.push(number);
        Some((number, recipe))
    }

    fn begun(&self, kind: Kind) -> impl Iterator<Item = &Derivation> {
        let under_way = self.under_way.iter().filter_map(|number| self.list.get(number));
        under_way.filter(move |derivation| derivation.kind == kind)
    }

    fn next_of_clients(&mut self, kind: Kind) -> Option<u32> {
        if self.begun(kind).count() >= CLIENTS_AT_ONCE {
            return None;
        }
        if kind == Kind::Verifier { self.verifiers.pop_front() } else { self.passwords.pop_front() }
    }

    /// The first whose pool has none under way: one that asks for much keeps no other waiting.
    fn next_server(&mut self) -> Option<u32> {
        if self.begun(Kind::Server).count() >= SERVERS_AT_ONCE {
            return None;
        }
        let busy: Vec<_> = self.begun(Kind::Server).map(|derivation| derivation.pool).collect();
        let idle = |number: &u32| self.list.get(number).is_some_and(|derivation| !busy.contains(&derivation.pool));
        let at = self.servers.iter().position(idle)?;
        self.servers.remove(at)
    }

    /// It is derived: of what, and for whom.
    pub(crate) fn done(&mut self, number: u32) -> Option<(Recipe, Vec<Job>)> {
        self.under_way.retain(|&under_way| under_way != number);
        let derivation = self.remove(number)?;
        for owner in derivation.jobs.iter().filter_map(Job::wanted_by) {
            self.by_owner.remove(&owner);
        }
        Some((derivation.recipe, derivation.jobs))
    }

    fn remove(&mut self, number: u32) -> Option<Derivation> {
        let derivation = self.list.remove(&number)?;
        self.by_recipe.remove(&(derivation.kind, derivation.recipe.clone()));
        Some(derivation)
    }

    /// The connection is gone: what only it wanted is not derived, unless it is under way.
    pub(crate) fn give_up(&mut self, owner: impl Into<ConnId>) {
        let owner = owner.into();
        let Some(number) = self.by_owner.remove(&owner) else { return };
        let Some(derivation) = self.list.get_mut(&number) else { return };
        derivation.jobs.retain(|job| job.wanted_by() != Some(owner));
        if !derivation.jobs.is_empty() || self.under_way.contains(&number) {
            return;
        }
        let queue = match derivation.kind {
            Kind::Password => &mut self.passwords,
            Kind::Verifier => &mut self.verifiers,
            Kind::Server => &mut self.servers,
        };
        // They are in the order of their numbers.
        if let Ok(at) = queue.binary_search(&number) {
            queue.remove(at);
        }
        self.remove(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TableId;

    fn client(slot: u32) -> ClientId {
        ClientId::new(slot, 0)
    }

    fn recipe(password: &str) -> Recipe {
        Recipe { password: password.into(), salt: vec![1], iterations: 4096 }
    }

    fn server(slot: u32, pool: u32) -> Job {
        Job::Server { server: ServerId::new(slot, 0), pool }
    }

    #[test]
    fn equal_ones_are_derived_once_for_all() {
        let mut derivations = Derivations::default();
        for slot in 0..1000 {
            derivations.want(Job::Verifier { user: "alice".into(), client: Some(client(slot)) }, recipe("secret"));
        }
        let (number, _) = derivations.begin().unwrap();
        assert!(derivations.begin().is_none());
        assert_eq!(derivations.done(number).unwrap().1.len(), 1000);
        assert!(derivations.begin().is_none() && derivations.by_owner.is_empty() && derivations.by_recipe.is_empty());
    }

    #[test]
    fn clients_passwords_keep_no_server_waiting() {
        let mut derivations = Derivations::default();
        for slot in 0..10 {
            derivations.want(Job::Password { client: client(slot) }, recipe(&slot.to_string()));
        }
        derivations.want(server(0, 7), recipe("of a server"));
        assert_eq!(derivations.begin().unwrap().1, recipe("0"));
        assert_eq!(derivations.begin().unwrap().1, recipe("of a server"));
        assert!(derivations.begin().is_none());
    }

    #[test]
    fn one_pool_keeps_no_other_waiting() {
        let mut derivations = Derivations::default();
        for slot in 0..10 {
            derivations.want(server(slot, 1), recipe(&slot.to_string()));
        }
        derivations.want(server(10, 2), recipe("of another pool"));
        assert_eq!(derivations.begin().unwrap().1, recipe("0"));
        let (other, _) = derivations.begin().unwrap();
        assert_eq!(derivations.done(other).unwrap().0, recipe("of another pool"));
        assert!(derivations.begin().is_none(), "the first pool has its share");
    }

    #[test]
    fn what_nobody_wants_any_more_is_not_begun() {
        let mut derivations = Derivations::default();
        for slot in 0..PASSWORDS_MAX as u32 {
            derivations.want(Job::Password { client: client(slot) }, recipe(&slot.to_string()));
        }
        assert!(!derivations.has_room());
        (0..PASSWORDS_MAX as u32).for_each(|slot| derivations.give_up(client(slot)));
        assert!(derivations.has_room() && derivations.begin().is_none());
        assert!(derivations.list.is_empty() && derivations.by_recipe.is_empty() && derivations.by_owner.is_empty());
    }
}
