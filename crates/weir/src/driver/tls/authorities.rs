//! Who may vouch for others: the certificates of a CA file, or of the system.
//!
//! webpki takes whatever it is given for an authority that stands for itself, for all times and purposes. OpenSSL, and so PostgreSQL and PgBouncer,
//! follows a path up to a certificate that is issued by itself, and looks at each of it, that one too: that it is an authority's (`check_chain`
//! and `check_ca` of crypto/x509), its time, and its purpose. So those alone are webpki's anchors; other authorities of the file are what a peer
//! may have left out between them and its own; and a certificate in the file that is no authority's is trusted for itself alone.

use std::borrow::Cow;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, DistinguishedName, Error, RootCertStore};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, GeneralSubtree, NSCertType, ParsedExtension, X509Extension};
use x509_parser::x509::X509Version;

use super::certificate::{self, AlternativeNames, KeyNames, parse};
use super::path::Authority;

/// Seconds since 1970 of the first moment and of the last.
type Times = (i64, i64);

/// Whom they vouch for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peers {
    Clients,
    Servers,
}

#[derive(Debug)]
pub struct Authorities {
    of: Peers,
    /// All of the file, to compare with.
    certificates: Vec<CertificateDer<'static>>,
    /// Those that stand for themselves and may issue, whatever the time is, and when each may.
    anchors: Vec<CertificateDer<'static>>,
    store: RootCertStore,
    times: Vec<Times>,
    /// Those that others vouch for.
    between: Vec<CertificateDer<'static>>,
}

impl Authorities {
    fn none(of: Peers) -> Self {
        let (store, times) = (RootCertStore::empty(), Vec::new());
        Self { of, certificates: Vec::new(), anchors: Vec::new(), store, times, between: Vec::new() }
    }

    /// An error where there is one that the library does not know.
    pub fn all_of(certificates: Vec<CertificateDer<'static>>, of: Peers) -> Result<Self, Error> {
        let mut own = Self::none(of);
        certificates.into_iter().try_for_each(|certificate| own.add(certificate))?;
        Ok(own)
    }

    /// Some of a system's certificates may be of kinds that the library does not know.
    pub fn known_of(certificates: Vec<CertificateDer<'static>>, of: Peers) -> Self {
        let mut own = Self::none(of);
        certificates.into_iter().for_each(|certificate| drop(own.add(certificate)));
        own
    }

    fn add(&mut self, certificate: CertificateDer<'static>) -> Result<(), Error> {
        // Also of one that is no authority it is said that it cannot be read.
        let mut alone = RootCertStore::empty();
        alone.add(certificate.clone())?;
        match parse(&certificate).filter(may_issue) {
            Some(parsed) if !is_self_issued(&parsed) => self.between.push(certificate.clone()),
            Some(parsed) if self.may_vouch(&parsed) => {
                let validity = parsed.validity();
                self.times.push((validity.not_before.timestamp(), validity.not_after.timestamp()));
                self.anchors.push(certificate.clone());
                self.store.extend(alone.roots);
            }
            _ => {}
        }
        self.certificates.push(certificate);
        Ok(())
    }

    /// For such peers. It is an authority.
    fn may_vouch(&self, authority: &X509Certificate<'_>) -> bool {
        let is_understood = |extension: &X509Extension<'_>| {
            !extension.critical
                || !extension.parsed_extension().unsupported() && extension.parsed_extension().error().is_none()
        };
        is_for(authority, self.of) && authority.extensions().iter().all(is_understood)
    }

    /// Whether it may vouch for others where another one vouches for it. Of the usages of a key webpki looks at none.
    pub fn may_be_between(&self, certificate: &X509Certificate<'_>) -> bool {
        certificate.version() != X509Version::V1 && may_issue(certificate) && self.may_vouch(certificate)
    }

    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// Whether there is one that stands for itself: else nobody is trusted.
    pub fn stand_for_themselves(&self) -> bool {
        self.certificates.iter().filter_map(|certificate| parse(certificate)).any(|parsed| is_self_issued(&parsed))
    }

    /// Those that stand for themselves and may issue now, as webpki has them.
    pub fn store(&self, now: UnixTime) -> Cow<'_, RootCertStore> {
        if self.times.iter().all(|times| is_in(times, now)) {
            return Cow::Borrowed(&self.store);
        }
        let roots = self.store.roots.iter().zip(&self.times).filter(|(_, times)| is_in(times, now));
        Cow::Owned(roots.map(|(root, _)| root.clone()).collect())
    }

    /// The same, as they are in the file.
    pub fn anchors<'a>(&'a self, now: UnixTime) -> impl Iterator<Item = &'a CertificateDer<'a>> {
        self.anchors.iter().zip(&self.times).filter(move |(_, times)| is_in(times, now)).map(|(anchor, _)| anchor)
    }

    /// What may be between those and a peer that has shown these.
    pub fn between<'a>(&'a self, shown: &'a [CertificateDer<'a>]) -> impl Iterator<Item = &'a CertificateDer<'a>> {
        shown.iter().chain(&self.between)
    }

    /// Whether that certificate is trusted for itself: it is in the file, nobody else has issued it, and its time is now.
    pub fn is_pinned(&self, der: &CertificateDer<'_>, now: UnixTime) -> Option<Result<(), Error>> {
        let is_own = || parse(der).is_some_and(|parsed| is_self_issued(&parsed));
        (self.certificates.contains(der) && is_own()).then(|| certificate::check_validity(der, now))
    }

    /// Looks whether a peer's own certificate is for what it does (`check_purpose_ssl_client` and `check_purpose_ssl_server`, crypto/x509/v3_purp.c of 3.0):
    /// webpki looks at the extended usage alone, and where an authority has issued it.
    pub fn check_purpose(&self, der: &[u8]) -> Result<(), Error> {
        let is_right = parse(der).is_some_and(|parsed| {
            let signs = match parsed.key_usage() {
                Ok(Some(usage)) => {
                    let usage = usage.value;
                    let ciphers = usage.key_encipherment() && self.of == Peers::Servers;
                    usage.digital_signature() || usage.key_agreement() || ciphers
                }
                Ok(None) => true,
                Err(_) => false,
            };
            let netscape = match self.of {
                Peers::Clients => NSCertType::ssl_client,
                Peers::Servers => NSCertType::ssl_server,
            };
            signs && is_for(&parsed, self.of) && of_netscape(&parsed).is_none_or(netscape)
        });
        if is_right { Ok(()) } else { Err(CertificateError::InvalidPurpose.into()) }
    }

    /// What clients are told that they may choose by.
    pub fn subjects(&self) -> Vec<DistinguishedName> {
        let parsed = self.certificates.iter().filter_map(|certificate| parse(certificate));
        parsed.map(|certificate| DistinguishedName::from(certificate.subject().as_raw().to_vec())).collect()
    }
}

fn is_in((first, last): &Times, now: UnixTime) -> bool {
    (*first..=*last).contains(&i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// Whether it is an authority.
fn may_issue(issuer: &X509Certificate<'_>) -> bool {
    if issuer.version() == X509Version::V1 {
        // Nothing says that it is one, unless it stands for itself.
        return is_self_issued(issuer);
    }
    let (Ok(constraints), Ok(usage)) = (issuer.basic_constraints(), issuer.key_usage()) else { return false };
    let signs = usage.map(|usage| usage.value.key_cert_sign());
    match constraints {
        Some(constraints) => constraints.value.ca && signs.unwrap_or(true),
        None => signs.unwrap_or_else(|| of_netscape(issuer).is_some_and(NSCertType::ssl_ca)),
    }
}

pub fn is_self_issued(certificate: &X509Certificate<'_>) -> bool {
    certificate.subject().as_raw() == certificate.issuer().as_raw() && !names_another_key(certificate)
}

/// An authority that has changed its key has its new one signed by the old one.
fn names_another_key(certificate: &X509Certificate<'_>) -> bool {
    let KeyNames { own, issuer_s } = KeyNames::of(certificate);
    own.zip(issuer_s).is_some_and(|(own, issuer_s)| own != issuer_s)
}

/// Its purpose, for itself and for those whom it has issued (`xku_reject`, crypto/x509/v3_purp.c of OpenSSL 3.0): any is none of these.
fn is_for(certificate: &X509Certificate<'_>, peers: Peers) -> bool {
    let Ok(usage) = certificate.extended_key_usage() else { return false };
    usage.is_none_or(|usage| match peers {
        Peers::Clients => usage.value.client_auth,
        Peers::Servers => usage.value.server_auth,
    })
}

/// Netscape's types of certificates, which OpenSSL still looks at (`ns_reject`), where it has any.
fn of_netscape<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a NSCertType> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::NSCertType(types) => Some(types),
        _ => None,
    })
}

/// Looks whether those above a peer may say that it has the names of its subject: webpki looks at alternative names alone. OpenSSL takes a common name for
/// a host's, where there is no alternative one, and looks at addresses (`NAME_CONSTRAINTS_check_CN`, `NAME_CONSTRAINTS_check`, crypto/x509/v3_ncons.c of 3.0).
pub fn check_subject(der: &[u8], path: &[&Authority<'_>]) -> Result<(), Error> {
    let host = certificate::common_name(der).filter(|name| is_host(name) && !AlternativeNames::of(der).hosts);
    let subject = parse(der).ok_or(CertificateError::BadEncoding)?;
    let addresses: Vec<_> =
        subject.subject().iter_email().map(|address| address.as_str().unwrap_or_default()).collect();
    let may_name = |authority: &&Authority<'_>| {
        let may_be =
            |name: &str, is_in: fn(&str, &GeneralName<'_>) -> Option<bool>| may_name(&authority.parsed, name, is_in);
        host.iter().all(|name| may_be(name, is_within)) && addresses.iter().all(|name| may_be(name, is_address_of))
    };
    if path.iter().all(may_name) { Ok(()) } else { Err(CertificateError::NotValidForName.into()) }
}

/// Whether a common name may be a host's: one of several labels.
fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'*'));
        !label.is_empty() && plain
    };
    name.contains('.') && name.split('.').all(is_label)
}

/// Whether this authority, and those whom it has issued, may speak for that name. `is_in`: a base of the name's kind, and whether it is in that.
fn may_name(authority: &X509Certificate<'_>, name: &str, is_in: fn(&str, &GeneralName<'_>) -> Option<bool>) -> bool {
    let Ok(constraints) = authority.name_constraints() else { return false };
    let Some(constraints) = constraints else { return true };
    let of = |subtrees: &Option<Vec<GeneralSubtree<'_>>>| -> Vec<bool> {
        subtrees.iter().flatten().filter_map(|subtree| is_in(name, &subtree.base)).collect()
    };
    let (permitted, excluded) = (of(&constraints.value.permitted_subtrees), of(&constraints.value.excluded_subtrees));
    (permitted.is_empty() || permitted.contains(&true)) && !excluded.contains(&true)
}

/// `nc_dns` of OpenSSL: the base and whatever has more labels in front of it; one that begins with a dot does not stand for itself.
fn is_within(name: &str, base: &GeneralName<'_>) -> Option<bool> {
    let GeneralName::DNSName(base) = base else { return None };
    let (name, base) = (name.to_ascii_lowercase(), base.to_ascii_lowercase());
    let front = name.strip_suffix(&*base);
    Some(
        front.is_some_and(|front| front.is_empty() || base.is_empty() || base.starts_with('.') || front.ends_with('.')),
    )
}

/// `nc_email`: the base is an address, a host, or the hosts of a domain.
fn is_address_of(name: &str, base: &GeneralName<'_>) -> Option<bool> {
    let GeneralName::RFC822Name(base) = base else { return None };
    let Some((person, host)) = name.rsplit_once('@') else { return Some(false) };
    Some(match base.rsplit_once('@') {
        Some((own, at)) => (own.is_empty() || own == person) && at.eq_ignore_ascii_case(host),
        None if base.starts_with('.') => host.to_ascii_lowercase().ends_with(&base.to_ascii_lowercase()),
        None => base.eq_ignore_ascii_case(host),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_within_their_domains() {
        for (name, base, is_in) in [
            ("db.example", "example", true),
            ("db.example", "db.example", true),
            ("DB.Example", "db.exaMple", true),
            ("xdb.example", "db.example", false),
            ("db.example", ".example", true),
            ("db.example", "", true),
            ("example", "db.example", false),
        ] {
            assert_eq!(is_within(name, &GeneralName::DNSName(base)), Some(is_in), "{name} in {base}");
        }
        for (name, base, is_in) in [
            ("a@b.c", "a@B.c", true),
            ("x@b.c", "a@b.c", false),
            ("a@b.c", "b.c", true),
            ("a@x.b.c", "b.c", false),
            ("a@x.b.c", ".b.c", true),
            ("a", "b.c", false),
        ] {
            assert_eq!(is_address_of(name, &GeneralName::RFC822Name(base)), Some(is_in), "{name} of {base}");
        }
        assert!(is_host("alice.example") && is_host("*.db.example"));
        assert!(!is_host("alice") && !is_host("alice. smith") && !is_host("a@b.c") && !is_host("alice."));
    }
}
