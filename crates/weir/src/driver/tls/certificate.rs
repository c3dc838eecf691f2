//! What is read out of a certificate: its common name, and its hash for channel binding.

use rustls::pki_types::UnixTime;
use rustls::{CertificateError, Error};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::Oid;
use x509_parser::der_parser::oid;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::signature_algorithm::SignatureAlgorithm;

/// `None`: it is none, or one that nobody can read.
pub fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate)
}

/// `tls-server-end-point`, RFC 5929 section 4.1: the certificate hashed with its signature's hash function, where
/// SHA-256 stands in for MD5 and SHA-1. `None` where the signature names no single hash function (Ed25519).
pub fn end_point(der: &[u8]) -> Option<Vec<u8>> {
    let certificate = parse(der)?;
    let hash = Hash::of_signature(&certificate)?;
    Some(match hash {
        Hash::Sha224 => Sha224::digest(der).to_vec(),
        Hash::Sha256 => Sha256::digest(der).to_vec(),
        Hash::Sha384 => Sha384::digest(der).to_vec(),
        Hash::Sha512 => Sha512::digest(der).to_vec(),
    })
}

/// The subject's common name.
pub fn common_name(der: &[u8]) -> Option<String> {
    let certificate = parse(der)?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    // A name with a zero byte inside is an attempt to be taken for another (CVE-2009-4034).
    (!name.contains('\0')).then(|| name.to_owned())
}

/// What a certificate names beside its subject.
#[derive(Debug, Default, Clone, Copy)]
pub struct AlternativeNames {
    pub hosts: bool,
    pub addresses: bool,
}

impl AlternativeNames {
    pub fn of(der: &[u8]) -> Self {
        let Some(certificate) = parse(der) else { return Self::default() };
        let Ok(Some(names)) = certificate.subject_alternative_name() else { return Self::default() };
        let names = &names.value.general_names;
        Self {
            hosts: names.iter().any(|name| matches!(name, GeneralName::DNSName(_))),
            addresses: names.iter().any(|name| matches!(name, GeneralName::IPAddress(_))),
        }
    }
}

/// What it calls its own key, and its issuer's.
#[derive(Debug, Default, Clone, Copy)]
pub struct KeyNames<'a> {
    pub own: Option<&'a [u8]>,
    pub issuer_s: Option<&'a [u8]>,
}

impl<'a> KeyNames<'a> {
    pub fn of(certificate: &'a X509Certificate<'_>) -> Self {
        let mut names = Self::default();
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(key) => names.own = Some(key.0),
                ParsedExtension::AuthorityKeyIdentifier(by) => {
                    names.issuer_s = by.key_identifier.as_ref().map(|key| key.0)
                }
                _ => {}
            }
        }
        names
    }
}

/// Whether now is a time that the certificate is made for.
pub fn check_validity(der: &[u8], now: UnixTime) -> Result<(), Error> {
    let problem = |error| Err(Error::InvalidCertificate(error));
    let Some(certificate) = parse(der) else { return problem(CertificateError::BadEncoding) };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < certificate.validity().not_before.timestamp() {
        return problem(CertificateError::NotValidYet);
    }
    if now > certificate.validity().not_after.timestamp() {
        return problem(CertificateError::Expired);
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    fn of_signature(certificate: &X509Certificate<'_>) -> Option<Self> {
        let algorithm = &certificate.signature_algorithm;
        if let Ok(SignatureAlgorithm::RSASSA_PSS(parameters)) = SignatureAlgorithm::try_from(algorithm) {
            return Self::named(parameters.hash_algorithm_oid());
        }
        Self::named(&algorithm.algorithm)
    }

    fn named(name: &Oid<'_>) -> Option<Self> {
        let table = [
            // md5WithRSAEncryption, sha1WithRSAEncryption, ecdsa-with-SHA1, SHA-1
            (oid!(1.2.840.113549.1.1.4), Self::Sha256),
            (oid!(1.2.840.113549.1.1.5), Self::Sha256),
            (oid!(1.2.840.10045.4.1), Self::Sha256),
            (oid!(1.3.14.3.2.26), Self::Sha256),
            // RSA, ECDSA and the hashes themselves, which RSASSA-PSS names
            (oid!(1.2.840.113549.1.1.14), Self::Sha224),
            (oid!(1.2.840.10045.4.3.1), Self::Sha224),
            (oid!(2.16.840.1.101.3.4.2.4), Self::Sha224),
            (oid!(1.2.840.113549.1.1.11), Self::Sha256),
            (oid!(1.2.840.10045.4.3.2), Self::Sha256),
            (oid!(2.16.840.1.101.3.4.2.1), Self::Sha256),
            (oid!(1.2.840.113549.1.1.12), Self::Sha384),
            (oid!(1.2.840.10045.4.3.3), Self::Sha384),
            (oid!(2.16.840.1.101.3.4.2.2), Self::Sha384),
            (oid!(1.2.840.113549.1.1.13), Self::Sha512),
            (oid!(1.2.840.10045.4.3.4), Self::Sha512),
            (oid!(2.16.840.1.101.3.4.2.3), Self::Sha512),
        ];
        table.into_iter().find(|(known, _)| known == name).map(|(_, hash)| hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(algorithm: &'static rcgen::SignatureAlgorithm) -> Vec<u8> {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["db.example".to_owned()]).unwrap();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "alice");
        parameters.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn hashes_with_the_signatures_own_hash() {
        let der = certificate(&rcgen::PKCS_ECDSA_P256_SHA256);
        assert_eq!(end_point(&der), Some(Sha256::digest(&der).to_vec()));
        let der = certificate(&rcgen::PKCS_ECDSA_P384_SHA384);
        assert_eq!(end_point(&der), Some(Sha384::digest(&der).to_vec()));
        assert_eq!(end_point(&certificate(&rcgen::PKCS_ED25519)), None);
        assert_eq!(end_point(b"not a certificate"), None);
    }

    #[test]
    fn weak_hashes_are_replaced() {
        assert_eq!(Hash::named(&oid!(1.2.840.113549.1.1.4)), Some(Hash::Sha256));
        assert_eq!(Hash::named(&oid!(1.2.840.113549.1.1.5)), Some(Hash::Sha256));
    }

    #[test]
    fn finds_the_common_name() {
        assert_eq!(common_name(&certificate(&rcgen::PKCS_ECDSA_P256_SHA256)).as_deref(), Some("alice"));
    }
}
