//! Certificates and keys from files, for both sides, made into what handshakes need.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use weir_core::settings::TlsMode;

use super::certificate;
use super::verify::{ServerVerifier, Trusted};

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
}

/// Towards servers: `server_tls_*`.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    pub mode: TlsMode,
    pub ca_file: Option<PathBuf>,
    /// What we show a server that asks for a certificate.
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { mode: TlsMode::Prefer, ca_file: None, cert_file: None, key_file: None }
    }
}

/// What handshakes need, loaded. A reload makes a new one; sessions that stand keep theirs.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    pub(super) accept: Option<Arc<Accept>>,
    pub(super) connect: Option<Arc<Connect>>,
}

#[derive(Debug)]
pub(super) struct Accept {
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
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let accept = accept.map(|options| load_accept(options, &provider)).transpose()?;
        let connect = load_connect(connect, &provider)?;
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
    let key = private_key(&options.key_file)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &options.ca_file {
        Some(file) => {
            let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(file)?), provider.clone());
            if options.mode < TlsMode::VerifyCa {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier.build().map_err(|error| format!("{}: {error}", file.display()))?;
            builder.with_client_cert_verifier(verifier)
        }
        None if options.mode >= TlsMode::VerifyCa => {
            return Err("verifying clients' certificates needs a CA file".to_owned());
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("{} and {}: {error}", options.cert_file.display(), options.key_file.display()))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // PostgreSQL's clients never resume a session; tickets would be bytes and work for nothing.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Accept { config: Arc::new(config), end_point })
}

fn load_connect(options: &ConnectOptions, provider: &Arc<CryptoProvider>) -> Result<Connect, String> {
    let verifies = options.mode >= TlsMode::VerifyCa;
    let trusted = match &options.ca_file {
        Some(file) if verifies => Some(Trusted { store: roots(file)?, certificates: certificates(file)? }),
        None if verifies => return Err("verifying servers' certificates needs a CA file".to_owned()),
        _ => None,
    };
    let checks_name = options.mode == TlsMode::VerifyFull;
    let verifier = ServerVerifier::new(trusted, checks_name, provider.signature_verification_algorithms);
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match (&options.cert_file, &options.key_file) {
        (Some(cert), Some(key)) => builder
            .with_client_auth_cert(certificates(cert)?, private_key(key)?)
            .map_err(|error| format!("{} and {}: {error}", cert.display(), key.display()))?,
        (None, None) => builder.with_no_client_auth(),
        _ => return Err("a certificate for servers needs both its file and its key's file".to_owned()),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Connect { config: Arc::new(config), verifies })
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

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file)
        .map_err(|error| format!("cannot read a private key from {}: {error}", file.display()))
}

fn roots(file: &Path) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(file)? {
        store.add(certificate).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(store)
}
