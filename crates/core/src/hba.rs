//! Who may come in from where, and how they prove who they are: the records of `auth_hba_file`, of which the first that matches decides.
//!
//! As PgBouncer's `hba_eval` (src/hba.c of 1.25.2) and "The pg_hba.conf File" in PostgreSQL's documentation. How a file spells them is not
//! known here. What a name server or PostgreSQL has to tell first is asked for once a record depends on it ([`Missing`]).

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use regex_lite::Regex;

use crate::outside::Authority;
use crate::settings::AuthType;

/// In the order of the file.
#[derive(Debug, Clone, Default)]
pub struct Hba {
    pub records: Vec<Record>,
}

#[derive(Debug, Clone)]
pub struct Record {
    /// Where it stands, for the log.
    pub line: u32,
    pub kind: Kind,
    pub databases: Vec<Name>,
    pub users: Vec<Name>,
    pub addresses: Addresses,
    /// One of those that ask for something; [`AuthType::Reject`] also where it asks for what Weir does not know.
    pub method: AuthType,
    /// Whom the name in a certificate, or the system's for whoever is at the other end, stands for; `None`: the user who is called so.
    pub map: Option<Arc<Map>>,
    /// Whose word about passwords counts, for [`AuthType::Pam`] and [`AuthType::Ldap`].
    pub authority: Option<Authority>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Unix sockets.
    Local,
    Host,
    HostSsl,
    HostNoSsl,
}

/// A name in a list. Each of them may match.
#[derive(Debug, Clone)]
pub enum Name {
    All,
    /// Of databases: the one that is called as the user.
    SameUser,
    /// Of databases: physical replication, which has none, and which nothing else matches.
    Replication,
    Is(Arc<str>),
    Like(Regex),
    /// Of users: a role and its members, and theirs.
    MemberOf(Arc<str>),
    /// Of databases: the one that is called as a role which the user is a member of.
    SameRole,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addresses {
    All,
    /// Any of these.
    Of(Vec<Network>),
    /// Those of a host, or of all whose names end so, where it begins with a dot.
    Host(Arc<str>),
}

/// Addresses of one family that have these bits. Where some of those are set that its mask leaves out, it has none, as with PgBouncer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    pub address: IpAddr,
    pub mask: IpAddr,
}

/// Pairs of a name that a certificate or the system has and a user that it stands for.
#[derive(Debug, Clone, Default)]
pub struct Map {
    pub pairs: Vec<(Name, Mapped)>,
}

/// The user of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mapped {
    All,
    /// `\1` stands for what the regular expression of the other name has caught first.
    Is(Arc<str>),
}

/// Who asks to come in, and how.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// `None`: through a Unix socket.
    pub address: Option<IpAddr>,
    pub tls: bool,
    /// `None`: physical replication. Each that is the same, as the console's names are.
    pub databases: Option<&'a [&'a str]>,
    pub user: &'a str,
    /// What the host is called, where it is known, and has a name that leads back to the address.
    pub host: Option<Option<&'a str>>,
    /// Roles that the user is a member of, itself one of them, where those are known.
    pub roles: Option<&'a [Arc<str>]>,
}

/// What has to be known of a client to tell which record is its.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Host,
    Roles,
}

impl Hba {
    /// Everybody, wherever he comes from, shows the same.
    pub fn of_all(method: AuthType, authority: &Authority) -> Self {
        let record = |kind| Record {
            line: 0,
            kind,
            databases: vec![Name::All, Name::Replication],
            users: vec![Name::All],
            addresses: Addresses::All,
            method,
            map: None,
            authority: Some(authority.clone()),
        };
        Self { records: vec![record(Kind::Local), record(Kind::Host)] }
    }

    /// Whether others' word about passwords counts for anybody.
    pub(crate) fn asks_others(&self) -> bool {
        self.records.iter().any(|record| record.authority.is_some())
    }

    pub fn record(&self, asked: &Asked<'_>) -> Result<Option<&Record>, Missing> {
        for record in &self.records {
            if record.matches(asked)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

/// Whether one of them is true, as far as that can be told.
fn any(them: impl Iterator<Item = Result<bool, Missing>>) -> Result<bool, Missing> {
    let mut is_any = Ok(false);
    for it in them {
        match it {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(missing) => is_any = is_any.and(Err(missing)),
        }
    }
    is_any
}

impl Record {
    fn matches(&self, asked: &Asked<'_>) -> Result<bool, Missing> {
        let comes_so = match (self.kind, asked.address) {
            (Kind::Local, None) => true,
            (Kind::Local, Some(_)) | (_, None) => false,
            (Kind::Host, Some(_)) => true,
            (Kind::HostSsl, Some(_)) => asked.tls,
            (Kind::HostNoSsl, Some(_)) => !asked.tls,
        };
        // Nothing is asked for a record that is another's in any case.
        let parts = [Ok(comes_so), self.has_database(asked), self.has_user(asked), self.addresses.has(asked)];
        if parts.contains(&Ok(false)) {
            return Ok(false);
        }
        parts.into_iter().try_fold(true, |_, part| part)
    }

    fn has_database(&self, asked: &Asked<'_>) -> Result<bool, Missing> {
        any(self.databases.iter().map(|name| match (name, asked.databases) {
            (Name::Replication, databases) => Ok(databases.is_none()),
            (_, None) => Ok(false),
            (Name::SameUser, Some(databases)) => Ok(databases.contains(&asked.user)),
            (Name::SameRole, Some(databases)) => any(databases.iter().map(|database| asked.is_member_of(database))),
            (name, Some(databases)) => Ok(databases.iter().any(|database| name.is(database))),
        }))
    }

    fn has_user(&self, asked: &Asked<'_>) -> Result<bool, Missing> {
        any(self.users.iter().map(|name| match name {
            Name::MemberOf(role) => asked.is_member_of(role),
            name => Ok(name.is(asked.user)),
        }))
    }
}

impl Asked<'_> {
    fn is_member_of(&self, role: &str) -> Result<bool, Missing> {
        Ok(self.roles.ok_or(Missing::Roles)?.iter().any(|own| **own == *role))
    }
}

impl Name {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Is(one), Self::Is(two)) | (Self::MemberOf(one), Self::MemberOf(two)) => one == two,
            (Self::Like(one), Self::Like(two)) => one.as_str() == two.as_str(),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    fn is(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::SameUser | Self::SameRole | Self::Replication | Self::MemberOf(_) => false,
            Self::Is(own) => **own == *name,
            Self::Like(own) => own.is_match(name),
        }
    }
}

impl Map {
    /// Both say the same of everybody.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let same = |((name, user), (others, other_user)): (&(Name, Mapped), &(Name, Mapped))| {
            name.is_same(others) && user == other_user
        };
        self.pairs.len() == other.pairs.len() && self.pairs.iter().zip(&other.pairs).all(same)
    }

    /// Whether this name stands for this user. The first pair that asks for what its expression has not caught ends it, as in PostgreSQL
    /// (`check_ident_usermap`, src/backend/libpq/hba.c at 18).
    pub(crate) fn leads(&self, system: &str, user: &str) -> bool {
        for (name, mapped) in &self.pairs {
            let leads = match (name, mapped) {
                (name, Mapped::All) => name.is(system),
                (Name::Like(own), Mapped::Is(mapped)) => match own.captures(system) {
                    Some(caught) if mapped.contains("\\1") => match caught.get(1) {
                        Some(first) => mapped.replacen("\\1", first.as_str(), 1) == user,
                        None => return false,
                    },
                    caught => caught.is_some() && **mapped == *user,
                },
                (name, Mapped::Is(mapped)) => name.is(system) && **mapped == *user,
            };
            if leads {
                return true;
            }
        }
        false
    }
}

impl Addresses {
    fn has(&self, asked: &Asked<'_>) -> Result<bool, Missing> {
        Ok(match (self, asked.address) {
            (Self::All, _) => true,
            (_, None) => false,
            (Self::Of(networks), Some(address)) => networks.iter().any(|network| network.has(address)),
            (Self::Host(own), Some(_)) => {
                asked.host.ok_or(Missing::Host)?.is_some_and(|host| is_called(host.as_bytes(), own.as_bytes()))
            }
        })
    }
}

/// As `hostname_match` (src/backend/libpq/hba.c at 18) has it.
fn is_called(host: &[u8], own: &[u8]) -> bool {
    let end = if own.first() == Some(&b'.') { host.len().checked_sub(own.len()) } else { Some(0) };
    end.is_some_and(|end| host[end..].eq_ignore_ascii_case(own))
}

impl Network {
    fn has(&self, address: IpAddr) -> bool {
        // One of IPv4 that has come to a socket of both.
        self.masked(address.to_canonical()) == Some(self.address)
    }

    fn masked(&self, address: IpAddr) -> Option<IpAddr> {
        match (address, self.mask) {
            (IpAddr::V4(address), IpAddr::V4(mask)) => Some(IpAddr::V4(address & mask)),
            (IpAddr::V6(address), IpAddr::V6(mask)) => Some(IpAddr::V6(address & mask)),
            _ => None,
        }
    }

    /// The first so many bits; `None`: there are fewer.
    pub fn with_bits(address: IpAddr, bits: u32) -> Option<Self> {
        let mask = match address {
            IpAddr::V4(_) => IpAddr::V4(u32::MAX.checked_shl(32_u32.checked_sub(bits)?).unwrap_or(0).into()),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(u128::MAX.checked_shl(128_u32.checked_sub(bits)?).unwrap_or(0))),
        };
        Some(Self { address, mask })
    }

    /// The network that one of its addresses is in.
    pub fn around(address: IpAddr, mask: IpAddr) -> Option<Self> {
        Self { address, mask }.masked(address).map(|address| Self { address, mask })
    }

    /// Bits are set that its mask leaves out: nobody has such an address.
    pub fn is_empty(&self) -> bool {
        self.masked(self.address) != Some(self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind, database: Name, user: Name, addresses: Addresses) -> Record {
        let (databases, users) = (vec![database], vec![user]);
        Record { line: 1, kind, databases, users, addresses, method: AuthType::Trust, map: None, authority: None }
    }

    fn network(address: &str, bits: u32) -> Addresses {
        Addresses::Of(vec![Network::with_bits(address.parse().unwrap(), bits).unwrap()])
    }

    fn asked<'a>(address: Option<&str>, tls: bool, databases: Option<&'a [&'a str]>, user: &'a str) -> Asked<'a> {
        let address = address.map(|address| address.parse().unwrap());
        Asked { address, tls, databases, user, host: None, roles: None }
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_so() {
        for (address, bits, of, expected) in [
            ("10.1.0.0", 16, "10.1.255.3", true),
            ("10.1.0.0", 16, "10.2.0.0", false),
            ("10.1.0.0", 16, "::ffff:10.1.2.3", true),
            ("0.0.0.0", 0, "10.2.0.0", true),
            ("0.0.0.0", 0, "::1", false),
            ("10.0.0.1", 8, "10.0.0.1", false),
            ("127.0.0.1", 32, "127.0.0.1", true),
            ("fd00::", 8, "fd12::1", true),
            ("::", 0, "fd12::1", true),
            ("::1", 128, "::2", false),
        ] {
            assert_eq!(
                network(address, bits).has(&asked(Some(of), false, None, "u")),
                Ok(expected),
                "{address}/{bits} {of}"
            );
        }
        let broken = |address: &str, bits| Network::with_bits(address.parse().unwrap(), bits);
        assert!(broken("10.0.0.1", 8).unwrap().is_empty() && !broken("10.0.0.0", 8).unwrap().is_empty());
        assert!(broken("10.0.0.0", 33).is_none() && broken("::", 129).is_none());
    }

    #[test]
    fn who_comes_another_way_does_not_match() {
        let of = |kind| record(kind, Name::All, Name::All, Addresses::All);
        for (kind, address, tls, expected) in [
            (Kind::Local, None, false, true),
            (Kind::Local, Some("127.0.0.1"), false, false),
            (Kind::Host, None, false, false),
            (Kind::Host, Some("127.0.0.1"), true, true),
            (Kind::HostSsl, Some("127.0.0.1"), true, true),
            (Kind::HostSsl, Some("127.0.0.1"), false, false),
            (Kind::HostNoSsl, Some("127.0.0.1"), true, false),
            (Kind::HostNoSsl, Some("127.0.0.1"), false, true),
        ] {
            assert_eq!(of(kind).matches(&asked(address, tls, Some(&["d"]), "u")), Ok(expected), "{kind:?} {address:?}");
        }
    }

    #[test]
    fn names_match_what_they_say() {
        let is = |name: &str| Name::Is(name.into());
        let like = |name: &str| Name::Like(Regex::new(name).unwrap());
        for (database, user, databases, of, expected) in [
            (is("d"), Name::All, Some(&["d"][..]), "u", true),
            (is("d"), Name::All, Some(&["e"][..]), "u", false),
            (is("d"), is("v"), Some(&["d"][..]), "u", false),
            (Name::SameUser, Name::All, Some(&["u"][..]), "u", true),
            (Name::SameUser, Name::All, Some(&["d"][..]), "u", false),
            (is("pgbouncer"), Name::All, Some(&["weir", "pgbouncer"][..]), "u", true),
            (Name::Replication, Name::All, None, "u", true),
            (Name::Replication, Name::All, Some(&["replication"][..]), "u", false),
            (Name::All, Name::All, None, "u", false),
            (like("^db[0-9]$"), like("r$"), Some(&["db1"][..]), "user", true),
            (like("^db[0-9]$"), Name::All, Some(&["db10"][..]), "user", false),
        ] {
            let record = record(Kind::Local, database, user, Addresses::All);
            assert_eq!(record.matches(&asked(None, false, databases, of)), Ok(expected), "{record:?} {databases:?}");
        }
    }

    #[test]
    fn a_map_leads_a_name_to_users() {
        let pair = |name, mapped: &str| (name, Mapped::Is(mapped.into()));
        let like = Name::Like(Regex::new("^(.*)@example\\.org$").unwrap());
        let pairs =
            vec![pair(Name::Is("ann".into()), "app"), pair(like, "\\1"), (Name::Is("root".into()), Mapped::All)];
        let map = Map { pairs };
        for (system, user, expected) in [
            ("ann", "app", true),
            ("ann", "ann", false),
            ("bob@example.org", "bob", true),
            ("bob@example.org", "app", false),
            ("bob@example.com", "bob", false),
            ("root", "anybody", true),
        ] {
            assert_eq!(map.leads(system, user), expected, "{system} {user}");
        }
        // Nothing is caught: that is no empty name, and what follows does not count.
        for expression in ["^ann$", "^(x)|ann$"] {
            let like = Name::Like(Regex::new(expression).unwrap());
            let map = Map { pairs: vec![pair(like, "\\1admin"), pair(Name::Is("ann".into()), "ann")] };
            assert!(!map.leads("ann", "admin") && !map.leads("ann", "ann"), "{expression}");
        }
    }

    #[test]
    fn a_host_is_called_as_it_is_or_by_the_end_of_its_name() {
        for (own, host, expected) in [
            ("db.example.org", Some("db.example.org"), true),
            ("DB.example.org", Some("db.Example.org"), true),
            ("example.org", Some("db.example.org"), false),
            (".example.org", Some("db.example.org"), true),
            (".example.org", Some("example.org"), false),
            (".example.org", Some("badexample.org"), false),
            (".example.org", Some("g"), false),
            ("db", None, false),
        ] {
            let record = record(Kind::Host, Name::All, Name::Is("u".into()), Addresses::Host(own.into()));
            let mut asked = asked(Some("10.0.0.1"), false, Some(&["d"]), "u");
            assert_eq!(record.matches(&asked), Err(Missing::Host));
            assert_eq!(record.matches(&Asked { user: "v", ..asked }), Ok(false), "nothing need be asked");
            assert_eq!(record.matches(&Asked { address: None, ..asked }), Ok(false));
            asked.host = Some(host);
            assert_eq!(record.matches(&asked), Ok(expected), "{own} {host:?}");
        }
    }

    #[test]
    fn members_of_a_role_are_those_that_postgresql_says() {
        let mut record = record(Kind::Local, Name::All, Name::MemberOf("staff".into()), Addresses::All);
        let asked = asked(None, false, Some(&["d"]), "ann");
        assert_eq!(record.matches(&asked), Err(Missing::Roles));
        let of = |roles: &[&str]| roles.iter().map(|role| Arc::from(*role)).collect::<Vec<_>>();
        let matches = |record: &Record, roles: &[&str]| record.matches(&Asked { roles: Some(&of(roles)), ..asked });
        assert_eq!(matches(&record, &["ann", "staff"]), Ok(true));
        assert_eq!(matches(&record, &["ann"]), Ok(false));
        assert_eq!(matches(&record, &[]), Ok(false));
        // Whoever is named beside it need not be asked about.
        record.users.push(Name::Is("ann".into()));
        assert_eq!(record.matches(&asked), Ok(true));
        (record.users, record.databases) = (vec![Name::All], vec![Name::SameRole, Name::Is("e".into())]);
        assert_eq!(record.matches(&asked), Err(Missing::Roles));
        assert_eq!(record.matches(&Asked { databases: Some(&["e"]), ..asked }), Ok(true));
        assert_eq!(record.matches(&Asked { databases: None, ..asked }), Ok(false));
        assert_eq!(matches(&record, &["d"]), Ok(true));
        assert_eq!(matches(&record, &["e"]), Ok(false));
    }

    /// A record behind one that cannot be told yet does not decide in its place.
    #[test]
    fn the_first_record_that_is_not_known_is_asked_about() {
        let mut first = record(Kind::Local, Name::All, Name::MemberOf("bad".into()), Addresses::All);
        first.method = AuthType::Reject;
        let hba = Hba { records: vec![first, record(Kind::Local, Name::All, Name::All, Addresses::All)] };
        assert_eq!(hba.record(&asked(None, false, Some(&["d"]), "u")).err(), Some(Missing::Roles));
    }

    #[test]
    fn the_first_record_decides() {
        let mut first = record(Kind::Local, Name::All, Name::Is("u".into()), Addresses::All);
        first.method = AuthType::Reject;
        let second = record(Kind::Local, Name::All, Name::All, Addresses::All);
        let hba = Hba { records: vec![first, second] };
        let method = |user| hba.record(&asked(None, false, Some(&["d"]), user)).unwrap().map(|record| record.method);
        assert_eq!((method("u"), method("v")), (Some(AuthType::Reject), Some(AuthType::Trust)));
    }
}
