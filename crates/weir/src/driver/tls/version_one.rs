//! Certificates of version 1, which `openssl x509 -req` makes without extensions, as in PostgreSQL's chapter on creating
//! certificates. webpki reads none of them, so what it does for others is done here: the key that a peer proves to
//! have, and whether a path leads from it to one of those who are trusted. They have no extensions, hence no names of hosts but the common
//! name.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::verify_tls13_signature_with_raw_key;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error};
use webpki::RawPublicKeyEntity;
use x509_parser::certificate::X509Certificate;
use x509_parser::x509::X509Version;

use super::authorities::Authorities;
use super::certificate::{self, parse};

/// Whether it is of version 1.
pub fn is_one(der: &[u8]) -> bool {
    parse(der).is_some_and(|certificate| certificate.version() == X509Version::V1)
}

/// The public key, as `SubjectPublicKeyInfo`.
pub fn public_key(der: &[u8]) -> Option<SubjectPublicKeyInfoDer<'static>> {
    parse(der).map(|certificate| SubjectPublicKeyInfoDer::from(certificate.public_key().raw).into_owned())
}

/// Checks that the peer has the key of the certificate that it shows, of whichever version.
pub fn verify_tls12(
    message: &[u8],
    shown: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let Some(key) = public_key(shown).filter(|_| is_one(shown)) else {
        return verify_tls12_signature(message, shown, signed, algorithms);
    };
    let key = RawPublicKeyEntity::try_from(&key).map_err(|_| Error::from(CertificateError::BadEncoding))?;
    let mut usable =
        algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme).flat_map(|(_, list)| *list);
    match usable.any(|algorithm| key.verify_signature(*algorithm, message, signed.signature()).is_ok()) {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(CertificateError::BadSignature.into()),
    }
}

/// The same, in TLS 1.3.
pub fn verify_tls13(
    message: &[u8],
    shown: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    match public_key(shown).filter(|_| is_one(shown)) {
        Some(key) => verify_tls13_signature_with_raw_key(message, &key, signed, algorithms),
        None => verify_tls13_signature(message, shown, signed, algorithms),
    }
}

/// Whether this certificate of version 1 was issued by an authority that stands for itself, or by one of those between, and its time is now.
pub fn verify_issued(
    leaf: &CertificateDer<'_>,
    trusted: &Authorities,
    shown: &[CertificateDer<'_>],
    algorithms: &WebPkiSupportedAlgorithms,
    now: UnixTime,
) -> Result<(), Error> {
    certificate::check_validity(leaf, now)?;
    let parsed = parse(leaf).ok_or(CertificateError::BadEncoding)?;
    let between = trusted.between(shown);
    let between = between.iter().filter(|other| certificate::check_validity(other, now).is_ok());
    let mut path = Path {
        anchors: trusted.anchors(now).filter_map(|anchor| parse(anchor)).collect(),
        between: between.filter_map(|other| parse(other)).collect(),
        algorithms,
        signatures_left: SIGNATURES_MAX,
    };
    if path.leads_to(&parsed, 0) { Ok(()) } else { Err(CertificateError::UnknownIssuer.into()) }
}

/// What a peer shows can be made to look like many paths; webpki has the same bound.
const SIGNATURES_MAX: u32 = 100;
/// Authorities between the two ends, as in webpki.
const DEPTH_MAX: u32 = 6;

struct Path<'a> {
    anchors: Vec<X509Certificate<'a>>,
    between: Vec<X509Certificate<'a>>,
    algorithms: &'a WebPkiSupportedAlgorithms,
    signatures_left: u32,
}

impl Path<'_> {
    /// `depth`: so many authorities are below this certificate's issuer.
    fn leads_to(&mut self, certificate: &X509Certificate<'_>, depth: u32) -> bool {
        let mut left = self.signatures_left;
        let mut has_issued = |issuer: &X509Certificate<'_>| {
            let may = may_issue_any(issuer, depth) && is_named(issuer, certificate) && left > 0;
            left -= u32::from(may);
            may && has_signed(issuer, certificate, self.algorithms)
        };
        if self.anchors.iter().any(&mut has_issued) {
            return true;
        }
        let issuers: Vec<_> = self.between.iter().filter(|issuer| has_issued(issuer)).cloned().collect();
        self.signatures_left = left;
        depth < DEPTH_MAX && issuers.iter().any(|issuer| self.leads_to(issuer, depth + 1))
    }
}

/// A name is all that the leaf says: where an authority may speak for some alone, nobody has said that this is one of them.
fn may_issue_any(issuer: &X509Certificate<'_>, depth: u32) -> bool {
    let is_long_enough = match issuer.basic_constraints() {
        Ok(constraints) => constraints.and_then(|own| own.value.path_len_constraint).is_none_or(|most| depth <= most),
        Err(_) => false,
    };
    is_long_enough && matches!(issuer.name_constraints(), Ok(None))
}

fn is_named(issuer: &X509Certificate<'_>, other: &X509Certificate<'_>) -> bool {
    issuer.subject().as_raw() == other.issuer().as_raw()
}

fn has_signed(
    issuer: &X509Certificate<'_>,
    other: &X509Certificate<'_>,
    algorithms: &WebPkiSupportedAlgorithms,
) -> bool {
    let is_consistent = other.tbs_certificate.signature == other.signature_algorithm;
    if !is_consistent || other.signature_value.unused_bits != 0 {
        return false;
    }
    let key = SubjectPublicKeyInfoDer::from(issuer.public_key().raw);
    let Ok(key) = RawPublicKeyEntity::try_from(&key) else { return false };
    let (signed, signature) = (other.tbs_certificate.as_ref(), &other.signature_value.data);
    // Each looks at the kind of the key itself; a signature is valid under one of them only.
    algorithms.all.iter().any(|algorithm| key.verify_signature(*algorithm, signed, signature).is_ok())
}
