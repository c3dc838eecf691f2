//! Certificates of version 1, which `openssl x509 -req` makes without extensions, as in PostgreSQL's chapter on creating
//! certificates. webpki reads none of them, so what it does for others is done here: the key that a peer proves to
//! have. They have no extensions, hence no names of hosts but the common name.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::verify_tls13_signature_with_raw_key;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use rustls::{CertificateError, DigitallySignedStruct, Error};
use webpki::RawPublicKeyEntity;
use x509_parser::x509::X509Version;

use super::certificate::parse;
use super::path::Authority;

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

/// Whether whoever is above a certificate of version 1 may speak for anybody: a name is all that it says, and nobody has said that this is one
/// of those for whom some may.
pub fn check_path(path: &[&Authority<'_>]) -> Result<(), Error> {
    let may_name_any = |authority: &&Authority<'_>| matches!(authority.parsed.name_constraints(), Ok(None));
    if path.iter().all(may_name_any) { Ok(()) } else { Err(CertificateError::NotValidForName.into()) }
}
