//! Who may vouch for others: the certificates of a CA file, or of the system.
//!
//! webpki takes whatever it is given for an authority, for all times. OpenSSL, and so PostgreSQL and PgBouncer, looks at each certificate of a path,
//! the trusted one among them: that it is an authority's (`check_chain` and `check_ca` of crypto/x509), and its time. A certificate in the file that is none is
//! trusted for itself alone.

use std::borrow::Cow;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{DistinguishedName, Error, RootCertStore};
use x509_parser::certificate::X509Certificate;
use x509_parser::x509::X509Version;

use super::certificate::parse;

/// Seconds since 1970 of the first moment and of the last.
type Times = (i64, i64);

#[derive(Debug)]
pub struct Authorities {
    /// All of the file, to compare with.
    certificates: Vec<CertificateDer<'static>>,
    /// Those that may issue, whatever the time is, and when each may.
    store: RootCertStore,
    times: Vec<Times>,
}

impl Authorities {
    /// An error where there is one that the library does not know.
    pub fn all_of(certificates: Vec<CertificateDer<'static>>) -> Result<Self, Error> {
        let mut own = Self { certificates: Vec::new(), store: RootCertStore::empty(), times: Vec::new() };
        certificates.into_iter().try_for_each(|certificate| own.add(certificate))?;
        Ok(own)
    }

    /// Some of a system's certificates may be of kinds that the library does not know.
    pub fn known_of(certificates: Vec<CertificateDer<'static>>) -> Self {
        let mut own = Self { certificates: Vec::new(), store: RootCertStore::empty(), times: Vec::new() };
        certificates.into_iter().for_each(|certificate| drop(own.add(certificate)));
        own
    }

    fn add(&mut self, certificate: CertificateDer<'static>) -> Result<(), Error> {
        // Also of one that is no authority it is said that it cannot be read.
        let mut alone = RootCertStore::empty();
        alone.add(certificate.clone())?;
        if let Some(parsed) = parse(&certificate).filter(may_issue) {
            self.store.extend(alone.roots);
            let validity = parsed.validity();
            self.times.push((validity.not_before.timestamp(), validity.not_after.timestamp()));
        }
        self.certificates.push(certificate);
        Ok(())
    }

    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// Those that may issue now.
    pub fn store(&self, now: UnixTime) -> Cow<'_, RootCertStore> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let is_now = |(first, last): &Times| (*first..=*last).contains(&now);
        if self.times.iter().all(is_now) {
            return Cow::Borrowed(&self.store);
        }
        let roots = self.store.roots.iter().zip(&self.times).filter(|(_, times)| is_now(times));
        Cow::Owned(roots.map(|(root, _)| root.clone()).collect())
    }

    /// What clients are told that they may choose by.
    pub fn subjects(&self) -> Vec<DistinguishedName> {
        let parsed = self.certificates.iter().filter_map(|certificate| parse(certificate));
        parsed.map(|certificate| DistinguishedName::from(certificate.subject().as_raw().to_vec())).collect()
    }
}

/// Whether it is an authority.
pub fn may_issue(issuer: &X509Certificate<'_>) -> bool {
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

pub fn is_self_issued(certificate: &X509Certificate<'_>) -> bool {
    certificate.subject().as_raw() == certificate.issuer().as_raw()
}

/// Whether it may stand for a client (`check_purpose_ssl_client`, crypto/x509/v3_purp.c of OpenSSL 3.0), for itself: no authority says so.
pub fn is_client_s_own(der: &[u8]) -> bool {
    let Some(certificate) = parse(der) else { return false };
    let purpose = match certificate.extended_key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.client_auth || usage.value.any),
        Err(_) => false,
    };
    is_self_issued(&certificate) && purpose
}

/// Whether its key may prove who a client is, the other half of that check.
pub fn proves_client(der: &[u8]) -> bool {
    let Some(certificate) = parse(der) else { return false };
    match certificate.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.digital_signature() || usage.value.key_agreement()),
        Err(_) => false,
    }
}
