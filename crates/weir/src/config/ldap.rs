//! The options of LDAP, on a line of `auth_hba_file` or in `auth_ldap_options`: where passwords are checked, and how a user's entry is found.
//!
//! As "LDAP Authentication" in PostgreSQL's documentation has them (`parse_hba_auth_opt`, src/backend/libpq/hba.c at 18), and PgBouncer 1.25.

use weir_core::outside::{Directory, Entry, Password, Scope};

/// Ports of the two schemes (RFC 4516, and the registry of service names).
const LDAP_PORT: u16 = 389;
const LDAPS_PORT: u16 = 636;

/// What the options say, before they are measured against each other.
#[derive(Debug, Default)]
struct Said {
    ldaps: bool,
    hosts: Vec<String>,
    port: Option<u16>,
    start_tls: bool,
    prefix: Option<String>,
    suffix: Option<String>,
    base: Option<String>,
    scope: Option<Scope>,
    bind_name: Option<String>,
    bind_password: Option<Password>,
    attribute: Option<String>,
    filter: Option<String>,
}

/// Of `name=value` words.
pub fn directory<'w>(words: impl Iterator<Item = &'w str>) -> Result<Directory, String> {
    let mut said = Said::default();
    for (number, word) in (1..).zip(words) {
        // It is not repeated: a password may have a blank, and be cut there.
        let (name, value) = word.split_once('=').ok_or_else(|| format!("option {number} of LDAP is not name=value"))?;
        if !said.option(name, value)? {
            let name = if name.starts_with("ldap") {
                format!("\"{name}\" (option {number})")
            } else {
                format!("option {number}")
            };
            return Err(format!("{name} is none of LDAP's"));
        }
    }
    said.directory()
}

impl Said {
    /// Whether it is one.
    fn option(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let own = || Some(value.to_owned());
        match name {
            "ldapurl" => self.url(value)?,
            "ldaptls" => self.start_tls = value == "1",
            "ldapscheme" => self.ldaps = is_ldaps(value)?,
            "ldapserver" => self.hosts = value.split_ascii_whitespace().map(str::to_owned).collect(),
            "ldapport" => self.port = Some(port(value)?),
            "ldapprefix" => self.prefix = own(),
            "ldapsuffix" => self.suffix = own(),
            "ldapbasedn" => self.base = own(),
            "ldapbinddn" => self.bind_name = own(),
            "ldapbindpasswd" => self.bind_password = Some(Password(value.into())),
            "ldapsearchattribute" => self.attribute = own(),
            "ldapsearchfilter" => self.filter = own(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `ldap://host:port/base?attribute?scope?filter` (RFC 4516).
    fn url(&mut self, url: &str) -> Result<(), String> {
        let wrong = |what: &str| format!("\"{url}\" is no URL of a directory: {what}");
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("there is no \"://\""))?;
        self.ldaps = is_ldaps(scheme)?;
        let (place, rest) = rest.split_once('/').unwrap_or((rest, ""));
        // Behind an address of IPv6 in brackets, or a name.
        let at = place.rfind(']').map_or(0, |bracket| bracket + 1);
        let (host, own_port) = match place[at..].rfind(':') {
            Some(colon) => (&place[..at + colon], Some(port(&place[at + colon + 1..])?)),
            None => (place, None),
        };
        self.hosts = if host.is_empty() { Vec::new() } else { vec![decoded(host).ok_or_else(|| wrong("the host"))?] };
        self.port = own_port;
        let mut parts = rest.splitn(4, '?');
        let mut part = |what: &str| match parts.next() {
            None | Some("") => Ok(None),
            Some(part) => decoded(part).map(Some).ok_or_else(|| wrong(what)),
        };
        if let Some(base) = part("the base")? {
            self.base = Some(base);
        }
        if let Some(attributes) = part("the attribute")? {
            self.attribute = attributes.split(',').next().map(str::to_owned);
        }
        self.scope = Some(match part("the scope")?.as_deref() {
            None | Some("base") => Scope::Base,
            Some("one") => Scope::One,
            Some("sub") => Scope::Subtree,
            Some(_) => return Err(wrong("the scope is none of base, one and sub")),
        });
        if let Some(filter) = part("the filter")? {
            self.filter = Some(filter);
        }
        Ok(())
    }

    fn directory(self) -> Result<Directory, String> {
        let binds = self.prefix.is_some() || self.suffix.is_some();
        let searches = [&self.base, &self.bind_name, &self.attribute, &self.filter].iter().any(|said| said.is_some())
            || self.bind_password.is_some();
        if self.attribute.is_some() && self.filter.is_some() {
            return Err("ldapsearchattribute and ldapsearchfilter exclude each other".to_owned());
        }
        let entry = match self.base {
            _ if binds && searches => {
                return Err("ldapprefix and ldapsuffix make a name, which is not searched for then".to_owned());
            }
            None if binds => {
                Entry::Named { prefix: self.prefix.unwrap_or_default(), suffix: self.suffix.unwrap_or_default() }
            }
            None => return Err("LDAP needs ldapbasedn, ldapprefix or ldapsuffix".to_owned()),
            Some(base) => {
                let attribute = self.attribute.as_deref().unwrap_or("uid");
                let filter = self.filter.unwrap_or_else(|| format!("({attribute}=$username)"));
                Entry::Searched {
                    base,
                    scope: self.scope.unwrap_or(Scope::Subtree),
                    filter,
                    bind_name: self.bind_name.unwrap_or_default(),
                    bind_password: self.bind_password.unwrap_or_else(|| Password("".into())),
                }
            }
        };
        if self.hosts.is_empty() && matches!(entry, Entry::Named { .. }) {
            return Err("LDAP needs ldapserver".to_owned());
        }
        let port = self.port.unwrap_or(if self.ldaps { LDAPS_PORT } else { LDAP_PORT });
        let servers = self.hosts.iter().map(|host| format!("{host}:{port}")).collect();
        Ok(Directory { ldaps: self.ldaps, servers, start_tls: self.start_tls, entry })
    }
}

fn is_ldaps(scheme: &str) -> Result<bool, String> {
    match scheme {
        "ldap" => Ok(false),
        "ldaps" => Ok(true),
        _ => Err(format!("the scheme \"{scheme}\" is neither ldap nor ldaps")),
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| format!("\"{text}\" is no port of LDAP"))
}

/// `%20` stands for a space.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match (first, behind) {
            (b'%', [high, low, behind @ ..]) => {
                rest = behind;
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                (digit(high)? * 16 + digit(low)?) as u8
            }
            (b'%', _) => return None,
            _ => first,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<Directory, String> {
        directory(words.iter().copied())
    }

    fn searched(scope: Scope, filter: &str) -> Entry {
        Entry::Searched {
            base: "dc=example,dc=net".to_owned(),
            scope,
            filter: filter.to_owned(),
            bind_name: String::new(),
            bind_password: Password("".into()),
        }
    }

    #[test]
    fn a_directory_is_what_its_options_say() {
        const BASE: &str = "ldapbasedn=dc=example,dc=net";
        let named = Entry::Named { prefix: "uid=".to_owned(), suffix: ",dc=example".to_owned() };
        for (words, ldaps, servers, start_tls, entry) in [
            (
                &["ldapserver=a b", "ldapport=1389", "ldapprefix=uid=", "ldapsuffix=,dc=example", "ldaptls=1"][..],
                false,
                &["a:1389", "b:1389"][..],
                true,
                named,
            ),
            (&["ldapserver=a", BASE], false, &["a:389"], false, searched(Scope::Subtree, "(uid=$username)")),
            (
                &["ldapserver=a", BASE, "ldapscheme=ldaps"],
                true,
                &["a:636"],
                false,
                searched(Scope::Subtree, "(uid=$username)"),
            ),
            (&[BASE, "ldapsearchattribute=mail"], false, &[], false, searched(Scope::Subtree, "(mail=$username)")),
            (
                &["ldapserver=a", BASE, "ldapsearchfilter=uid=$username"],
                false,
                &["a:389"],
                false,
                searched(Scope::Subtree, "uid=$username"),
            ),
            (
                &["ldapurl=ldap://a/dc=example,dc=net?cn,mail?sub"],
                false,
                &["a:389"],
                false,
                searched(Scope::Subtree, "(cn=$username)"),
            ),
            (
                &["ldapurl=ldap://a/dc=example,dc=net"],
                false,
                &["a:389"],
                false,
                searched(Scope::Base, "(uid=$username)"),
            ),
            (
                &["ldapurl=ldaps://[::1]:1636/dc=example%2Cdc=net??one?(|(uid=$username)(mail=$username))"],
                true,
                &["[::1]:1636"],
                false,
                searched(Scope::One, "(|(uid=$username)(mail=$username))"),
            ),
        ] {
            let directory = of(words).unwrap();
            assert_eq!((directory.ldaps, directory.start_tls), (ldaps, start_tls), "{words:?}");
            assert_eq!(
                (&directory.servers[..], directory.entry),
                (&servers.iter().map(ToString::to_string).collect::<Vec<_>>()[..], entry),
                "{words:?}"
            );
        }
        let Entry::Searched { bind_name, bind_password, .. } =
            of(&[BASE, "ldapbinddn=cn=admin", "ldapbindpasswd=se=cret"]).unwrap().entry
        else {
            panic!()
        };
        assert_eq!((&*bind_name, &*bind_password.0), ("cn=admin", "se=cret"));
    }

    #[test]
    fn what_makes_no_directory_is_an_error() {
        for words in [
            &[][..],
            &["ldapserver=a"],
            &["ldapprefix=uid="],
            &["ldapserver=a", "ldapprefix=uid=", "ldapbasedn=dc=net"],
            &["ldapserver=a", "ldapsuffix=x", "ldapbinddn=y"],
            &["ldapserver=a", "ldapbasedn=x", "ldapsearchattribute=x", "ldapsearchfilter=y"],
            &["ldapserver=a", "ldapbasedn=x", "ldapport=0"],
            &["ldapserver=a", "ldapbasedn=x", "ldapport=65536"],
            &["ldapserver=a", "ldapbasedn=x", "ldapscheme=ldapi"],
            &["ldapserver=a", "ldapbasedn=x", "ldapnothing=1"],
            &["ldapserver=a", "ldapbasedn"],
            &["ldapurl=ldapi://a/x"],
            &["ldapurl=ldap:a/x"],
            &["ldapurl=ldap://a:b/x"],
            &["ldapurl=ldap://a/x%2"],
            &["ldapurl=ldap://a/x%zz"],
            &["ldapurl=ldap://a/x%ff"],
            &["ldapurl=ldap://a/x?uid?all"],
        ] {
            assert!(of(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_password_that_is_cut_is_not_repeated() {
        for rest in ["two", "two=three", "=two"] {
            let wrong = of(&["ldapserver=a", "ldapbindpasswd=one", rest]).unwrap_err();
            assert!(wrong.starts_with("option 3 ") && !wrong.contains("two"), "{wrong}");
        }
        assert!(of(&["ldapbase=x"]).unwrap_err().contains("ldapbase"));
    }
}
