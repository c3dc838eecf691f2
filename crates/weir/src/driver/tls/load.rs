//! Certificates and keys from files, for both sides, made into what handshakes need.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ALL_VERSIONS, CipherSuite, ClientConfig, Error, InconsistentKeys, NamedGroup, ServerConfig,
    SupportedProtocolVersion,
};
use weir_core::settings::TlsMode;

use super::authorities::{Authorities, Peers};
use super::verify::{ClientVerifier, ServerVerifier};
use super::{certificate, version_one};

/// Where systems keep the authorities that they trust, as PgBouncer's configure finds them and as distributions have them: Debian
/// and Arch, Fedora and Red Hat, openSUSE, Alpine.
const SYSTEM_AUTHORITIES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// OpenSSL takes no longer chain from the other end (`SSL_MAX_CERT_LIST_DEFAULT`, include/openssl/ssl.h.in of OpenSSL 3), and TLS has no room for one of
/// 16 MiB.
const CHAIN_BYTES_MAX: usize = 100 * 1024;

/// The name of PostgreSQL in ALPN.
pub const ALPN: &[u8] = b"postgresql";

/// Towards clients: `client_tls_*`.
#[derive(Debug, Clone)]
pub struct AcceptOptions {
    pub mode: TlsMode,
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    /// Whom client certificates must come from; below `verify-ca` they may be missing.
    pub ca_file: Option<PathBuf>,
    /// What is spoken. A version of TLS of which none is here is not.
    pub suites: Vec<CipherSuite>,
    /// The one curve that keys are exchanged on; `None`: what the library has.
    pub curve: Option<NamedGroup>,
}

/// Towards servers: `server_tls_*`.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    pub mode: TlsMode,
    pub ca_file: Option<PathBuf>,
    /// What we show a server that asks for a certificate.
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    pub suites: Vec<CipherSuite>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        // All that the library has.
        let suites = rustls::crypto::aws_lc_rs::DEFAULT_CIPHER_SUITES.iter().map(|own| own.suite()).collect();
        Self { mode: TlsMode::Prefer, ca_file: None, cert_file: None, key_file: None, suites }
    }
}

/// What handshakes need, loaded. A reload makes a new one; sessions that stand keep theirs.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    pub(in crate::driver) accept: Option<Arc<Accept>>,
    pub(super) connect: Option<Arc<Connect>>,
}

#[derive(Debug)]
pub(in crate::driver) struct Accept {
    pub config: Arc<ServerConfig>,
    /// RFC 5929's hash of our certificate.
    pub end_point: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct Connect {
    pub config: Arc<ClientConfig>,
    /// Whether the server's certificate is checked at all.
    pub verifies: bool,
}

impl Tls {
    /// Reads the files. The error is a sentence that names the file.
    pub fn load(accept: Option<&AcceptOptions>, connect: &ConnectOptions) -> Result<Self, String> {
        Self::load_with(accept, connect, &Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
    }

    pub(in crate::driver) fn load_with(
        accept: Option<&AcceptOptions>,
        connect: &ConnectOptions,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let accept = accept.map(|options| load_accept(options, provider)).transpose()?;
        let connect = load_connect(connect, provider)?;
        Ok(Self { accept: accept.map(Arc::new), connect: Some(Arc::new(connect)) })
    }

    /// Whether clients can be answered with TLS.
    pub fn accepts(&self) -> bool {
        self.accept.is_some()
    }
}

fn load_accept(options: &AcceptOptions, provider: &Arc<CryptoProvider>) -> Result<Accept, String> {
    let chain = certificates(&options.cert_file)?;
    let end_point = chain.first().and_then(|first| certificate::end_point(first));
    let certified = certified(chain, &options.cert_file, &options.key_file, provider)?;
    let (mut spoken, versions) = of_suites(provider, &options.suites);
    if let Some(curve) = options.curve {
        spoken.kx_groups.retain(|group| group.name() == curve);
    }
    let builder = ServerConfig::builder_with_provider(Arc::new(spoken))
        .with_protocol_versions(&versions)
        .map_err(|error| error.to_string())?;
    let builder = match &options.ca_file {
        Some(file) => {
            let is_optional = options.mode < TlsMode::VerifyCa;
            let verifier = ClientVerifier::new(authorities(file, Peers::Clients)?, is_optional, provider.clone());
            builder.with_client_cert_verifier(Arc::new(verifier))
        }
        None if options.mode >= TlsMode::VerifyCa => {
            return Err("verifying clients' certificates needs a CA file".to_owned());
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(certified);
    config.alpn_protocols = vec![ALPN.to_vec()];
    // PostgreSQL's clients never resume a session; tickets would be bytes and work for nothing.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Accept { config: Arc::new(config), end_point })
}

fn load_connect(options: &ConnectOptions, provider: &Arc<CryptoProvider>) -> Result<Connect, String> {
    let verifies = options.mode >= TlsMode::VerifyCa;
    let trusted = match &options.ca_file {
        Some(file) if verifies => Some(authorities(file, Peers::Servers)?),
        None if verifies => Some(system_authorities(&SYSTEM_AUTHORITIES)?),
        _ => None,
    };
    let checks_name = options.mode == TlsMode::VerifyFull;
    let verifier = ServerVerifier::new(trusted, checks_name, provider.signature_verification_algorithms);
    let (spoken, versions) = of_suites(provider, &options.suites);
    let builder = ClientConfig::builder_with_provider(Arc::new(spoken))
        .with_protocol_versions(&versions)
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match (&options.cert_file, &options.key_file) {
        // Settings may come one at a time: while no TLS is spoken nothing is asked of them.
        _ if options.mode == TlsMode::Disable => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            builder.with_client_cert_resolver(certified(certificates(cert)?, cert, key, provider)?)
        }
        (None, None) => builder.with_no_client_auth(),
        _ => return Err("a certificate for servers needs both its file and its key's file".to_owned()),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Connect { config: Arc::new(config), verifies })
}

/// Only these suites, in this order, and the versions that they belong to.
fn of_suites(
    provider: &CryptoProvider,
    suites: &[CipherSuite],
) -> (CryptoProvider, Vec<&'static SupportedProtocolVersion>) {
    let own = |suite: &CipherSuite| provider.cipher_suites.iter().find(|own| own.suite() == *suite).copied();
    let cipher_suites: Vec<_> = suites.iter().filter_map(own).collect();
    let is_spoken = |version: &&SupportedProtocolVersion| cipher_suites.iter().any(|own| own.version() == *version);
    let versions = ALL_VERSIONS.iter().copied().filter(is_spoken).collect();
    (CryptoProvider { cipher_suites, ..provider.clone() }, versions)
}

/// Those of the first of these files that is there. Some of a system's certificates may be of kinds that the library does not know.
fn system_authorities(files: &[&str]) -> Result<Authorities, String> {
    let Some(file) = files.iter().map(Path::new).find(|file| file.exists()) else {
        return Err(format!(
            "verifying servers' certificates needs server_tls_ca_file: this system keeps no authorities where they are looked for \
             ({})",
            files.join(", ")
        ));
    };
    let authorities = Authorities::known_of(certificates(file)?, Peers::Servers);
    if authorities.certificates().is_empty() {
        return Err(format!("{} holds no authority that can be used", file.display()));
    }
    Ok(authorities)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let problem = |error| format!("cannot read certificates from {}: {error}", file.display());
    let found: Vec<_> =
        CertificateDer::pem_file_iter(file).map_err(problem)?.collect::<Result<_, _>>().map_err(problem)?;
    if found.is_empty() {
        return Err(format!("{} holds no certificate", file.display()));
    }
    Ok(found)
}

/// A certificate with its key, which must be its own.
fn certified(
    chain: Vec<CertificateDer<'static>>,
    cert_file: &Path,
    key_file: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<SingleCertAndKey>, String> {
    let length: usize = chain.iter().map(|certificate| certificate.len()).sum();
    if length > CHAIN_BYTES_MAX {
        let file = cert_file.display();
        return Err(format!("{file} holds {length} bytes of certificates, others take at most {CHAIN_BYTES_MAX}"));
    }
    let problem = |error: Error| format!("{} and {}: {error}", cert_file.display(), key_file.display());
    let key = provider.key_provider.load_private_key(private_key(key_file)?).map_err(problem)?;
    let certified = CertifiedKey::new(chain, key);
    let leaf = certified.end_entity_cert().map_err(problem)?;
    if version_one::is_one(leaf) {
        if certified.key.public_key() != version_one::public_key(leaf) {
            return Err(problem(InconsistentKeys::KeyMismatch.into()));
        }
    } else {
        match certified.keys_match() {
            // Not every kind of key tells its public half.
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(error) => return Err(problem(error)),
        }
    }
    Ok(Arc::new(SingleCertAndKey::from(certified)))
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file)
        .map_err(|error| format!("cannot read a private key from {}: {error}", file.display()))
}

fn authorities(file: &Path, of: Peers) -> Result<Authorities, String> {
    let authorities = Authorities::all_of(certificates(file)?, of);
    let authorities = authorities.map_err(|error| format!("{}: {error}", file.display()))?;
    if !authorities.stand_for_themselves() {
        return Err(format!(
            "{} holds no certificate that is issued by itself: nobody would be trusted (add the authority at the top)",
            file.display()
        ));
    }
    Ok(authorities)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_authorities_are_found_or_said_to_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (missing, bundle, empty) = (path("missing"), path("bundle"), path("empty"));
        let made = rcgen::generate_simple_self_signed(["authority.example".to_owned()]).unwrap();
        // Not every certificate of a system is one that the library takes.
        let unknown = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(&bundle, format!("{unknown}{}", made.cert.pem())).unwrap();
        std::fs::write(&empty, unknown).unwrap();
        let found = system_authorities(&[&missing, &bundle, &empty]).unwrap();
        assert_eq!(found.certificates().len(), 1);
        assert!(system_authorities(&[&empty]).unwrap_err().ends_with("holds no authority that can be used"));
        let error = system_authorities(&[&missing]).unwrap_err();
        assert!(error.contains("needs server_tls_ca_file") && error.contains(&missing), "{error}");
    }

    #[test]
    fn a_chain_that_nobody_takes_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["weir.example".to_owned()]).unwrap();
        let (cert_file, key_file) = (folder.path().join("cert"), folder.path().join("key"));
        std::fs::write(&key_file, made.signing_key.serialize_pem()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let load = |count: usize| {
            std::fs::write(&cert_file, made.cert.pem().repeat(count)).unwrap();
            certified(certificates(&cert_file).unwrap(), &cert_file, &key_file, &provider).map(drop)
        };
        assert_eq!(load(10), Ok(()));
        assert!(load(1000).unwrap_err().ends_with("of certificates, others take at most 102400"));
    }
}
