//! TLS as a client with `sslmode=require` does it: encrypted, and whoever answers is believed.
//!
//! Does not know sockets.

use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};

pub fn config(resumes: bool) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().context("no usable version of TLS")?;
    let verifier = Arc::new(Believing(provider));
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.resumption = if resumes { Resumption::in_memory_sessions(256) } else { Resumption::disabled() };
    Ok(Arc::new(config))
}

pub fn connection(config: &Arc<ClientConfig>) -> Result<ClientConnection> {
    let name = ServerName::try_from("localhost").context("a name that TLS does not take")?;
    ClientConnection::new(Arc::clone(config), name).context("cannot begin TLS")
}

/// Any certificate is good; signatures are checked all the same, since real clients pay for that.
#[derive(Debug)]
struct Believing(Arc<CryptoProvider>);

impl ServerCertVerifier for Believing {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
