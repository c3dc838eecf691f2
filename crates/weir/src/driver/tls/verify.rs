//! How a server's certificate is checked: not at all, its chain (`verify-ca`), or its chain and name (`verify-full`).
//!
//! As libpq does, a certificate that is itself among the trusted ones is trusted even where it is a CA (what
//! `openssl req -x509` makes), and the common name counts where there is no alternative name.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::{certificate, version_one};

/// Whose certificates are trusted.
#[derive(Debug)]
pub struct Trusted {
    pub store: RootCertStore,
    /// The same, to compare with.
    pub certificates: Vec<CertificateDer<'static>>,
}

#[derive(Debug)]
pub struct ServerVerifier {
    /// `None`: anybody's certificate will do.
    trusted: Option<Trusted>,
    checks_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerVerifier {
    pub fn new(trusted: Option<Trusted>, checks_name: bool, algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { trusted, checks_name, algorithms }
    }

    fn verify_chain(
        &self,
        trusted: &Trusted,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        if trusted.certificates.contains(end_entity) {
            return certificate::check_validity(end_entity, now);
        }
        if version_one::is_one(end_entity) {
            return version_one::verify_issued(end_entity, &trusted.certificates, &self.algorithms, now);
        }
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &trusted.store, intermediates, now, algorithms)
    }
}

/// libpq's `pq_verify_peer_name_matches_certificate`: alternative names, or the common name where there are none.
fn verify_name(end_entity: &CertificateDer<'_>, wanted: &ServerName<'_>) -> Result<(), Error> {
    if certificate::has_alternative_names(end_entity) {
        return verify_server_name(&ParsedCertificate::try_from(end_entity)?, wanted);
    }
    let common_name = certificate::common_name(end_entity).unwrap_or_default();
    let matches = match wanted {
        ServerName::DnsName(name) => matches_name(&common_name, name.as_ref()),
        ServerName::IpAddress(ip) => common_name.parse() == Ok(IpAddr::from(*ip)),
        _ => false,
    };
    if matches { Ok(()) } else { Err(Error::InvalidCertificate(CertificateError::NotValidForName)) }
}

/// RFC 2818 as libpq reads it: a `*` is the whole first label, and stands for one label only.
fn matches_name(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_ascii_lowercase(), name.to_ascii_lowercase());
    match pattern.strip_prefix("*.") {
        Some(parent) if parent.contains('.') => name.split_once('.').is_some_and(|(_, rest)| rest == parent),
        Some(_) => false,
        None => !name.is_empty() && pattern == name,
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(trusted) = &self.trusted {
            self.verify_chain(trusted, end_entity, intermediates, now)?;
            if self.checks_name {
                verify_name(end_entity, server_name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        version_one::verify_tls12(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        version_one::verify_tls13(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// How a client's certificate is checked: as rustls does, and where it is of version 1 as a server's.
#[derive(Debug)]
pub struct ClientVerifier {
    pub others: Arc<dyn ClientCertVerifier>,
    pub trusted: Vec<CertificateDer<'static>>,
    pub algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.others.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.others.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.others.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if version_one::is_one(end_entity) {
            version_one::verify_issued(end_entity, &self.trusted, &self.algorithms, now)?;
            return Ok(ClientCertVerified::assertion());
        }
        self.others.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        version_one::verify_tls12(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        version_one::verify_tls13(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.others.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_whole_label() {
        assert!(matches_name("db.example", "DB.example"));
        assert!(matches_name("*.db.example", "one.db.example"));
        for (pattern, name) in [
            ("*.db.example", "one.two.db.example"),
            ("*.db.example", "db.example"),
            ("*.example", "db.example"),
            ("d*.db.example", "db.db.example"),
            ("", ""),
        ] {
            assert!(!matches_name(pattern, name), "{pattern} {name}");
        }
    }
}
