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

use super::authorities::{Authorities, check_subject};
use super::certificate::{self, AlternativeNames};
use super::path::{self, Authority};
use super::version_one;

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
        trusted.check_purpose(end_entity)?;
        if let Some(pinned) = trusted.is_pinned(end_entity, now) {
            return pinned;
        }
        let find = |take: &mut Take<'_>| path::find(end_entity, intermediates, trusted, &self.algorithms, now, take);
        if version_one::is_one(end_entity) {
            certificate::check_validity(end_entity, now)?;
            return find(&mut version_one::check_path);
        }
        let parsed = ParsedCertificate::try_from(end_entity)?;
        find(&mut |path| {
            check_subject(end_entity, path)?;
            let algorithms = self.algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, &trusted.store(now), &between(path), now, algorithms)
        })
    }
}

/// Whether a path is right, from the leaf's issuer up to an anchor.
type Take<'a> = dyn FnMut(&[&Authority<'_>]) -> Result<(), Error> + 'a;

/// Of a path, what is below its anchor.
fn between<'a>(path: &[&Authority<'a>]) -> Vec<CertificateDer<'a>> {
    path.iter().take(path.len().saturating_sub(1)).map(|authority| authority.der.clone()).collect()
}

/// libpq's `pgtls_verify_peer_name_matches_certificate_guts`: alternative names, or the common name where there is none of the kind that is wanted.
fn verify_name(end_entity: &CertificateDer<'_>, wanted: &ServerName<'_>) -> Result<(), Error> {
    let AlternativeNames { hosts, addresses } = AlternativeNames::of(end_entity);
    if if matches!(wanted, ServerName::IpAddress(_)) { addresses } else { hosts } {
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

/// Names of authorities that a client is told, in bytes: TLS has no room for more than 64 KiB of them (RFC 8446, section 4.2.4), and the message in front of
/// them has others.
const NAMES_BYTES_MAX: usize = 60 * 1024;
/// The length in front of each.
const NAME_HEADER_LEN: usize = 2;

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
        let mut subjects = trusted.subjects();
        let length: usize = subjects.iter().map(|subject| subject.as_ref().len() + NAME_HEADER_LEN).sum();
        if length > NAMES_BYTES_MAX {
            // Nothing depends on them: OpenSSL's servers name none unless they are told to.
            subjects.clear();
        }
        Self { subjects, trusted, is_optional, provider }
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
        self.trusted.check_purpose(end_entity)?;
        if let Some(pinned) = self.trusted.is_pinned(end_entity, now) {
            return pinned.map(|()| ClientCertVerified::assertion());
        }
        let (trusted, algorithms) = (&self.trusted, self.algorithms());
        let find = |take: &mut Take<'_>| path::find(end_entity, intermediates, trusted, algorithms, now, take);
        if version_one::is_one(end_entity) {
            certificate::check_validity(end_entity, now)?;
            find(&mut version_one::check_path)?;
            return Ok(ClientCertVerified::assertion());
        }
        let roots = Arc::new(trusted.store(now).into_owned());
        let others = WebPkiClientVerifier::builder_with_provider(roots, self.provider.clone()).build();
        // There is nobody who may issue.
        let others = others.map_err(|_| CertificateError::UnknownIssuer)?;
        find(&mut |path| {
            check_subject(end_entity, path)?;
            others.verify_client_cert(end_entity, &between(path), now).map(drop)
        })?;
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
        BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, ExtendedKeyUsagePurpose,
        GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints, SanType, date_time_ymd,
    };

    use super::super::authorities::Peers;

    type Change = fn(&mut CertificateParams);

    fn params(name: &str, change: Change) -> CertificateParams {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        params
    }

    fn stands_for_itself(name: &str, change: Change) -> Own {
        CertifiedIssuer::self_signed(params(name, change), KeyPair::generate().unwrap()).unwrap()
    }

    fn authority(params: &mut CertificateParams) {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }

    /// What a client or a server shows that this one has issued.
    fn issued_by(issuer: &CertifiedIssuer<'_, KeyPair>, change: Change) -> CertificateDer<'static> {
        params("localhost", change).signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
    }

    type Own = CertifiedIssuer<'static, KeyPair>;

    /// An authority that this one has issued.
    fn below(issuer: &Own, name: &str, change: Change) -> Own {
        let mut params = params(name, authority);
        params.subject_alt_names.clear();
        change(&mut params);
        CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), issuer).unwrap()
    }

    /// Whether they come in, as a client and as a server, where these certificates are in the file.
    fn come_in(file: &[&Own], shown: &CertificateDer<'_>) -> (bool, bool) {
        come_in_with(file, shown, &[])
    }

    /// The same where they show these too.
    fn come_in_with(file: &[&Own], shown: &CertificateDer<'_>, between: &[&Own]) -> (bool, bool) {
        let between: Vec<_> = between.iter().map(|own| own.der().clone()).collect();
        let authorities = |of| Authorities::all_of(file.iter().map(|own| own.der().clone()).collect(), of).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let (now, name) = (UnixTime::now(), ServerName::try_from("localhost").unwrap());
        let server = ServerVerifier::new(Some(authorities(Peers::Servers)), true, algorithms);
        let client = ClientVerifier::new(authorities(Peers::Clients), false, provider);
        (
            client.verify_client_cert(shown, &between, now).is_ok(),
            server.verify_server_cert(shown, &between, &name, &[], now).is_ok(),
        )
    }

    #[test]
    fn clients_are_told_as_many_names_as_tls_has_room_for() {
        let good = stands_for_itself("good", authority);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let told = |count: usize| {
            let authorities = Authorities::all_of(vec![good.der().clone(); count], Peers::Clients).unwrap();
            ClientVerifier::new(authorities, true, provider.clone()).root_hint_subjects().len()
        };
        assert_eq!([1, 100, 10_000].map(told), [1, 100, 0]);
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
            (|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth], (true, false)),
            (|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth], (false, true)),
            (|params| params.not_after = date_time_ymd(2025, 1, 1), (false, false)),
        ];
        for (change, expected) in pinned {
            let own = stands_for_itself("localhost", change);
            assert_eq!(come_in(&[&good, &own], own.der()), expected);
            assert_eq!(come_in(&[&good], own.der()), (false, false));
        }
    }

    /// `check_chain`: a path goes on to a certificate that is issued by itself, and each of it is looked at.
    #[test]
    fn who_vouches_for_an_authority_is_looked_at_too() {
        let over: Change = |params| {
            authority(params);
            (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2025, 1, 1));
        };
        let (good, old) = (stands_for_itself("good", authority), stands_for_itself("old", over));
        let (between, below_old) = (below(&good, "between", |_| {}), below(&old, "below old", |_| {}));
        let leaf = issued_by(&between, |_| {});
        assert_eq!(come_in(&[&good, &between], &leaf), (true, true));
        assert_eq!(come_in(&[&between], &leaf), (false, false), "nobody stands for it");
        assert_eq!(come_in(&[&old, &below_old], &issued_by(&below_old, |_| {})), (false, false), "its root is over");
        assert_eq!(come_in_with(&[&good], &leaf, &[&between]), (true, true));
        assert_eq!(come_in_with(&[&old], &issued_by(&below_old, |_| {}), &[&below_old]), (false, false));
        let signs_nothing = below(&good, "signs nothing", |params| params.key_usages = vec![KeyUsagePurpose::CrlSign]);
        let its = issued_by(&signs_nothing, |_| {});
        assert_eq!(come_in_with(&[&good], &its, &[&signs_nothing]), (false, false));
        assert_eq!(come_in(&[&good, &signs_nothing], &its), (false, false));
        let servers = below(&good, "servers", |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        assert_eq!(come_in(&[&good, &servers], &issued_by(&servers, |_| {})), (false, true));
        let clients = stands_for_itself("clients", |params| {
            authority(params);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        assert_eq!(come_in(&[&clients], &issued_by(&clients, |_| {})), (true, false));
    }

    /// A stranger shows authorities of one name, none of which has signed another: webpki looks at each order of them, which takes a minute.
    #[test]
    fn what_leads_nowhere_is_soon_left() {
        let good = stands_for_itself("good", authority);
        let crowd: Vec<_> = (0..9).map(|_| stands_for_itself("crowd", authority)).collect();
        let shown: Vec<_> = crowd.iter().collect();
        let other = stands_for_itself("crowd", authority);
        assert_eq!(come_in_with(&[&good], &issued_by(&other, |_| {}), &shown), (false, false));
        // Each has signed each.
        let twins: Vec<_> = (0..20).map(|_| below(&other, "crowd", |_| {})).collect();
        let shown: Vec<_> = twins.iter().collect();
        assert_eq!(come_in_with(&[&good], &issued_by(&other, |_| {}), &shown), (false, false));
        let many: Vec<_> = std::iter::repeat_n(&crowd[0], 40).collect();
        assert_eq!(come_in_with(&[&good], &issued_by(&good, |_| {}), &many), (false, false));
    }

    /// `NAME_CONSTRAINTS_check_CN`: of a host in a common name alone.
    #[test]
    fn an_authority_speaks_for_its_own_domains() {
        let host = |name: &str| {
            let mut params = params(name, |_| {});
            params.subject_alt_names.clear();
            params
        };
        let constraints = |permitted: &[&str], excluded: &[&str]| {
            let of = |names: &[&str]| names.iter().map(|&name| GeneralSubtree::DnsName(name.to_owned())).collect();
            NameConstraints { permitted_subtrees: of(permitted), excluded_subtrees: of(excluded) }
        };
        for (permitted, excluded, name, comes_in) in [
            (&["good.example"][..], &[][..], "alice.good.example", true),
            (&["good.example"], &[], "alice.corp.example", false),
            (&[], &["corp.example"], "alice.corp.example", false),
            (&[], &["corp.example"], "alice.good.example", true),
            // No host's.
            (&["good.example"], &[], "alice", true),
        ] {
            let mut root = params("root", authority);
            root.name_constraints = Some(constraints(permitted, excluded));
            let root = CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap();
            let between = below(&root, "between", |_| {});
            for (file, issuer) in [(&[&root][..], &root), (&[&root, &between], &between)] {
                let shown = host(name).signed_by(&KeyPair::generate().unwrap(), issuer).unwrap();
                assert_eq!(come_in(file, shown.der()).0, comes_in, "{name}, {permitted:?}, {excluded:?}");
            }
        }
    }

    /// `ns_reject`: 0x80 is a client's, 0x40 a server's, 0x04 an authority's.
    #[test]
    fn netscape_s_types_are_looked_at() {
        let with = |change: Change, types: u8| {
            let mut params = params("localhost", change);
            let bits = vec![3, 2, 0, types];
            let oid = [2, 16, 840, 1, 113_730, 1, 1];
            params.custom_extensions.push(CustomExtension::from_oid_content(&oid, bits));
            params
        };
        let own = |types| CertifiedIssuer::self_signed(with(authority, types), KeyPair::generate().unwrap()).unwrap();
        let good = own(0x04);
        for (types, expected) in [(0x80, (true, false)), (0x40, (false, true)), (0xc0, (true, true))] {
            let shown = with(|_| {}, types).signed_by(&KeyPair::generate().unwrap(), &good).unwrap();
            assert_eq!(come_in(&[&good], shown.der()), expected, "{types:x}");
        }
        // Where nothing else says that it is an authority.
        for (types, is_one) in [(0x04, true), (0xc0, false)] {
            let own = CertifiedIssuer::self_signed(with(|_| {}, types), KeyPair::generate().unwrap()).unwrap();
            assert_eq!(come_in(&[&own], &issued_by(&own, |_| {})), (is_one, is_one), "{types:x}");
        }
    }

    /// `check_purpose_ssl_client` and `check_purpose_ssl_server`: a key that signs what is said in the handshake, or that a server decrypts with.
    #[test]
    fn a_peer_s_key_must_be_for_that() {
        let good = stands_for_itself("good", authority);
        let usages = [
            (vec![], (true, true)),
            (vec![KeyUsagePurpose::DigitalSignature], (true, true)),
            (vec![KeyUsagePurpose::KeyAgreement], (true, true)),
            (vec![KeyUsagePurpose::KeyEncipherment], (false, true)),
            (vec![KeyUsagePurpose::CrlSign], (false, false)),
        ];
        for (usages, come) in usages {
            let mut params = params("localhost", |_| {});
            params.key_usages.clone_from(&usages);
            let shown = params.signed_by(&KeyPair::generate().unwrap(), &good).unwrap();
            assert_eq!(come_in(&[&good], shown.der()), come, "{usages:?}");
        }
    }

    /// The common name counts where no alternative name is of the kind that is wanted.
    #[test]
    fn addresses_say_nothing_of_hosts() {
        let mut named = params("localhost", |_| {});
        named.subject_alt_names = vec![SanType::IpAddress("10.0.0.1".parse().unwrap())];
        let der = named.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone();
        verify_name(&der, &ServerName::try_from("localhost").unwrap()).unwrap();
        verify_name(&der, &ServerName::try_from("10.0.0.1").unwrap()).unwrap();
        verify_name(&der, &ServerName::try_from("10.0.0.2").unwrap()).unwrap_err();
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
