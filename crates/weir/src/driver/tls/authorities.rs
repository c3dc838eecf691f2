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
use x509_parser::extensions::{GeneralName, GeneralSubtree, NSCertType, ParsedExtension};
use x509_parser::x509::X509Version;

use super::certificate::{self, AlternativeNames, parse};

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
            Some(parsed) if !is_self_issued(&parsed) && self.may_be_between(&parsed) => {
                self.between.push(certificate.clone());
            }
            Some(parsed) if is_self_issued(&parsed) && self.may_vouch(&parsed) => {
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
        is_for(authority, self.of) && of_netscape(authority, NSCertType::ssl_ca)
    }

    /// Whether it may vouch for others where another one vouches for it.
    fn may_be_between(&self, certificate: &X509Certificate<'_>) -> bool {
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
    pub fn anchors(&self, now: UnixTime) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.anchors.iter().zip(&self.times).filter(move |(_, times)| is_in(times, now)).map(|(anchor, _)| anchor)
    }

    /// What may be between those and a peer that has shown these. Of the usages of a key webpki looks at none.
    pub fn between<'a>(&'a self, shown: &'a [CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
        let may_be = |der: &&CertificateDer<'_>| parse(der).is_some_and(|parsed| self.may_be_between(&parsed));
        shown.iter().filter(may_be).chain(&self.between).cloned().collect()
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
            signs && is_for(&parsed, self.of) && of_netscape(&parsed, netscape)
        });
        if is_right { Ok(()) } else { Err(CertificateError::InvalidPurpose.into()) }
    }

    /// Looks whether an authority may say that a peer has this common name: webpki looks at alternative names alone. Where there is none of a host,
    /// OpenSSL takes it for one (`NAME_CONSTRAINTS_check_CN`, crypto/x509/v3_ncons.c of 3.0).
    pub fn check_common_name(&self, der: &[u8], shown: &[CertificateDer<'_>]) -> Result<(), Error> {
        let Some(name) = certificate::common_name(der).filter(|name| is_host(name)) else { return Ok(()) };
        let Some(own) = parse(der).filter(|_| !AlternativeNames::of(der).hosts) else { return Ok(()) };
        let all: Vec<_> = self.certificates.iter().chain(shown).filter_map(|other| parse(other)).collect();
        // Whoever has such a name may be part of the path.
        let mut above = vec![own.issuer().as_raw()];
        let mut looked_at = 0;
        while let Some(issuer) = above.get(looked_at).copied() {
            looked_at += 1;
            for authority in all.iter().filter(|authority| authority.subject().as_raw() == issuer) {
                if !may_name(authority, &name) {
                    return Err(CertificateError::NotValidForName.into());
                }
                if !above.contains(&authority.issuer().as_raw()) {
                    above.push(authority.issuer().as_raw());
                }
            }
        }
        Ok(())
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
        None => signs.unwrap_or(false),
    }
}

fn is_self_issued(certificate: &X509Certificate<'_>) -> bool {
    certificate.subject().as_raw() == certificate.issuer().as_raw()
}

/// Its purpose, for itself and for those whom it has issued (`xku_reject`, crypto/x509/v3_purp.c of OpenSSL 3.0): any is none of these.
fn is_for(certificate: &X509Certificate<'_>, peers: Peers) -> bool {
    let Ok(usage) = certificate.extended_key_usage() else { return false };
    usage.is_none_or(|usage| match peers {
        Peers::Clients => usage.value.client_auth,
        Peers::Servers => usage.value.server_auth,
    })
}

/// Whether Netscape's types of certificates, which OpenSSL still looks at (`ns_reject`), are right, where it has any.
fn of_netscape(certificate: &X509Certificate<'_>, is_right: impl Fn(&NSCertType) -> bool) -> bool {
    certificate.extensions().iter().all(|extension| match extension.parsed_extension() {
        ParsedExtension::NSCertType(types) => is_right(types),
        _ => true,
    })
}

/// Whether a common name may be a host's: one of several labels.
fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'*'));
        !label.is_empty() && plain
    };
    name.contains('.') && name.split('.').all(is_label)
}

/// Whether this authority, and those whom it has issued, may speak for a host of that name.
fn may_name(authority: &X509Certificate<'_>, name: &str) -> bool {
    let Ok(constraints) = authority.name_constraints() else { return false };
    let Some(constraints) = constraints else { return true };
    let hosts = |subtrees: &Option<Vec<GeneralSubtree<'_>>>| -> Vec<bool> {
        let is_in = |subtree: &GeneralSubtree<'_>| match &subtree.base {
            GeneralName::DNSName(base) => Some(is_within(name, base)),
            _ => None,
        };
        subtrees.iter().flatten().filter_map(is_in).collect()
    };
    let (permitted, excluded) =
        (hosts(&constraints.value.permitted_subtrees), hosts(&constraints.value.excluded_subtrees));
    (permitted.is_empty() || permitted.contains(&true)) && !excluded.contains(&true)
}

/// `nc_dns` of OpenSSL: the base and whatever has more labels in front of it; one that begins with a dot does not stand for itself.
fn is_within(name: &str, base: &str) -> bool {
    let (name, base) = (name.to_ascii_lowercase(), base.to_ascii_lowercase());
    let Some(front) = name.strip_suffix(&*base) else { return false };
    front.is_empty() || base.is_empty() || base.starts_with('.') || front.ends_with('.')
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
            assert_eq!(is_within(name, base), is_in, "{name} in {base}");
        }
        assert!(is_host("alice.example") && is_host("*.db.example"));
        assert!(!is_host("alice") && !is_host("alice. smith") && !is_host("a@b.c") && !is_host("alice."));
    }
}
