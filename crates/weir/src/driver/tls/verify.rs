//! How a server's certificate is checked: not at all, its chain (`verify-ca`), or its chain and name (`verify-full`).
//!
//! As libpq does, a certificate that is itself among the trusted ones is trusted even where it is a CA (what
//! `openssl req -x509` makes), and the common name counts where there is no alternative name.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::authorities::{self, Authorities};
use super::{certificate, version_one};

#[derive(Debug)]
pub struct ServerVerifier {
    /// `None`: anybody's certificate will do.
    trusted: Option<Authorities>,
    checks_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerVerifier {
    pub fn new(trusted: Option<Authorities>, checks_name: bool, algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { trusted, checks_name, algorithms }
    }

    fn verify_chain(
        &self,
        trusted: &Authorities,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        if trusted.certificates().contains(end_entity) {
            return certificate::check_validity(end_entity, now);
        }
        if version_one::is_one(end_entity) {
            return version_one::verify_issued(end_entity, trusted.certificates(), &self.algorithms, now);
        }
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &trusted.store(now), intermediates, now, algorithms)
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
    trusted: Authorities,
    /// It may be missing.
    is_optional: bool,
    subjects: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientVerifier {
    pub fn new(trusted: Authorities, is_optional: bool, provider: Arc<CryptoProvider>) -> Self {
        Self { subjects: trusted.subjects(), trusted, is_optional, provider }
    }

    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        !self.is_optional
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if !authorities::proves_client(end_entity) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        if self.trusted.certificates().contains(end_entity) && authorities::is_client_s_own(end_entity) {
            certificate::check_validity(end_entity, now)?;
        } else if version_one::is_one(end_entity) {
            version_one::verify_issued(end_entity, self.trusted.certificates(), self.algorithms(), now)?;
        } else {
            let roots = Arc::new(self.trusted.store(now).into_owned());
            let others = WebPkiClientVerifier::builder_with_provider(roots, self.provider.clone()).build();
            // There is nobody who may issue.
            let others = others.map_err(|_| CertificateError::UnknownIssuer)?;
            return others.verify_client_cert(end_entity, intermediates, now);
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        version_one::verify_tls12(message, certificate, signature, self.algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        version_one::verify_tls13(message, certificate, signature, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
        KeyUsagePurpose, date_time_ymd,
    };

    type Change = fn(&mut CertificateParams);

    fn params(name: &str, change: Change) -> CertificateParams {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        params
    }

    fn stands_for_itself(name: &str, change: Change) -> CertifiedIssuer<'static, KeyPair> {
        CertifiedIssuer::self_signed(params(name, change), KeyPair::generate().unwrap()).unwrap()
    }

    fn authority(params: &mut CertificateParams) {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }

    /// What a client or a server shows that this one has issued.
    fn issued_by(issuer: &CertifiedIssuer<'_, KeyPair>, change: Change) -> CertificateDer<'static> {
        params("localhost", change).signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
    }

    /// Whether they come in, as a client and as a server, where these certificates are in the file.
    fn come_in(file: &[&CertifiedIssuer<'_, KeyPair>], shown: &CertificateDer<'_>) -> (bool, bool) {
        let authorities = || Authorities::all_of(file.iter().map(|own| own.der().clone()).collect()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let (now, name) = (UnixTime::now(), ServerName::try_from("localhost").unwrap());
        let server = ServerVerifier::new(Some(authorities()), true, algorithms);
        let client = ClientVerifier::new(authorities(), false, provider);
        (
            client.verify_client_cert(shown, &[], now).is_ok(),
            server.verify_server_cert(shown, &[], &name, &[], now).is_ok(),
        )
    }

    /// As PostgreSQL and libpq have it, by OpenSSL.
    #[test]
    fn only_an_authority_whose_time_it_is_vouches_for_others() {
        let good = stands_for_itself("good", authority);
        assert_eq!(come_in(&[&good], &issued_by(&good, |_| {})), (true, true));
        let with_usage = stands_for_itself("with usage", |params| {
            authority(params);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        });
        assert_eq!(come_in(&[&with_usage], &issued_by(&with_usage, |_| {})), (true, true));
        let others: [(&str, Change); 6] = [
            ("a person", |params| params.is_ca = IsCa::ExplicitNoCa),
            ("nothing said", |_| {}),
            ("a person's key", |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]),
            ("may not sign", |params| {
                authority(params);
                params.key_usages = vec![KeyUsagePurpose::CrlSign];
            }),
            ("over", |params| {
                authority(params);
                (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2025, 1, 1));
            }),
            ("to come", |params| {
                authority(params);
                params.not_before = date_time_ymd(3020, 1, 1);
            }),
        ];
        for (name, change) in others {
            let other = stands_for_itself(name, change);
            // Beside one that may, and alone.
            for file in [&[&good, &other][..], &[&other]] {
                assert_eq!(come_in(file, &issued_by(&other, |_| {})), (false, false), "{name}");
            }
            assert_eq!(come_in(&[&good, &other], &issued_by(&good, |_| {})), (true, true), "beside {name}");
        }
    }

    #[test]
    fn who_is_in_the_file_itself_comes_in() {
        let good = stands_for_itself("good", authority);
        let pinned: [(Change, (bool, bool)); 4] = [
            (|params| params.is_ca = IsCa::ExplicitNoCa, (true, true)),
            (|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth], (true, true)),
            (|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth], (false, true)),
            (|params| params.not_after = date_time_ymd(2025, 1, 1), (false, false)),
        ];
        for (change, expected) in pinned {
            let own = stands_for_itself("localhost", change);
            assert_eq!(come_in(&[&good, &own], own.der()), expected);
            assert_eq!(come_in(&[&good], own.der()), (false, false));
        }
    }

    /// `check_purpose_ssl_client`: its key signs what is said in the handshake.
    #[test]
    fn a_client_s_key_must_be_for_signing() {
        let good = stands_for_itself("good", authority);
        let usages = [
            (vec![], true),
            (vec![KeyUsagePurpose::DigitalSignature], true),
            (vec![KeyUsagePurpose::KeyAgreement], true),
            (vec![KeyUsagePurpose::KeyEncipherment], false),
        ];
        for (usages, comes_in) in usages {
            let mut params = params("localhost", |_| {});
            params.key_usages.clone_from(&usages);
            let shown = params.signed_by(&KeyPair::generate().unwrap(), &good).unwrap();
            assert_eq!(come_in(&[&good], shown.der()).0, comes_in, "{usages:?}");
        }
    }

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
