//! Certificates of version 1, which `openssl x509 -req` makes without extensions, as in PostgreSQL's chapter on creating
//! certificates. webpki reads none of them, so what it does for others is done here: the key that a peer proves to
//! have, and whether one of those who are trusted has signed it. They have no extensions, hence no names of hosts but the common
//! name, and no authority between them and whoever is trusted.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::verify_tls13_signature_with_raw_key;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error};
use webpki::RawPublicKeyEntity;
use x509_parser::certificate::X509Certificate;
use x509_parser::x509::X509Version;

use super::authorities::may_issue;
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

/// Whether one of the trusted has issued this certificate of version 1, and its time is now.
pub fn verify_issued(
    leaf: &CertificateDer<'_>,
    trusted: &[CertificateDer<'static>],
    algorithms: &WebPkiSupportedAlgorithms,
    now: UnixTime,
) -> Result<(), Error> {
    certificate::check_validity(leaf, now)?;
    let parsed = parse(leaf).ok_or(CertificateError::BadEncoding)?;
    let issuers = trusted.iter().filter(|issuer| certificate::check_validity(issuer, now).is_ok());
    let mut issuers = issuers.filter_map(|issuer| parse(issuer));
    if issuers.any(|issuer| may_issue_any(&issuer) && has_issued(&issuer, &parsed, algorithms)) {
        return Ok(());
    }
    Err(CertificateError::UnknownIssuer.into())
}

/// Whether it is an authority, whose certificates may have any name.
fn may_issue_any(issuer: &X509Certificate<'_>) -> bool {
    may_issue(issuer) && matches!(issuer.name_constraints(), Ok(None))
}

fn has_issued(
    issuer: &X509Certificate<'_>,
    leaf: &X509Certificate<'_>,
    algorithms: &WebPkiSupportedAlgorithms,
) -> bool {
    let is_named = issuer.subject().as_raw() == leaf.issuer().as_raw();
    let is_consistent = leaf.tbs_certificate.signature == leaf.signature_algorithm;
    if !is_named || !is_consistent || leaf.signature_value.unused_bits != 0 {
        return false;
    }
    let key = SubjectPublicKeyInfoDer::from(issuer.public_key().raw);
    let Ok(key) = RawPublicKeyEntity::try_from(&key) else { return false };
    let (signed, signature) = (leaf.tbs_certificate.as_ref(), &leaf.signature_value.data);
    // Each looks at the kind of the key itself; a signature is valid under one of them only.
    algorithms.all.iter().any(|algorithm| key.verify_signature(*algorithm, signed, signature).is_ok())
}
