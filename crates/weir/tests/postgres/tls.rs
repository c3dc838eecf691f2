//! Clients over TLS: the SSLRequest and the direct way, certificates, and SCRAM bound to the channel.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sha2::{Digest, Sha256};
use weir_core::auth::{ChannelBinding, ClientFirst, Credentials, salted_password};
use weir_wire::backend::Authentication;
use weir_wire::{BackendTag, HEADER_LEN, Header, ProtocolVersion, write};

use super::bench::{DRIVERS, PATIENCE, Weir, shared, wait_until};

pub type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Certificates in a folder that anybody can read: `ca`, `server` for localhost, `client` for postgres.
pub fn certificates() -> tempfile::TempDir {
    certificates_of(&[("server", "localhost"), ("client", "postgres")])
}

/// `ca`, and for each file's name a certificate that is for this name.
pub fn certificates_of(names: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("weir-test-tls").tempdir().unwrap();
    let write = |name: &str, text: String| super::bench::write_for_all(&folder.path().join(name), &text);
    let authority = || {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
    };
    let issuer = authority();
    write("ca.crt", issuer.pem());
    write("other-ca.crt", authority().pem());
    for (file, common_name) in names {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec![(*common_name).to_owned()]).unwrap();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, *common_name);
        write(&format!("{file}.crt"), parameters.signed_by(&key, &issuer).unwrap().pem());
        write(&format!("{file}.key"), key.serialize_pem());
    }
    super::bench::open_to_all(folder.path());
    folder
}

pub fn weir(folder: &Path, driver: &str, more: &str) -> Weir {
    let folder = folder.display();
    let lines = format!(
        "driver = {driver}\nclient_tls_cert_file = {folder}/server.crt\nclient_tls_key_file = {folder}/server.key\n\
         client_tls_ca_file = {folder}/ca.crt\n{more}"
    );
    Weir::start(shared(), &lines)
}

pub fn connect(weir: &Weir, folder: &Path, with_certificate: bool, direct: bool) -> Stream {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = if with_certificate {
        let chain = vec![CertificateDer::from_pem_file(folder.join("client.crt")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(folder.join("client.key")).unwrap();
        builder.with_client_auth_cert(chain, key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    let mut socket = TcpStream::connect(("127.0.0.1", weir.port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    if direct {
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    } else {
        let mut request = Vec::new();
        write::ssl_request(&mut request);
        socket.write_all(&request).unwrap();
        let mut answer = [0];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"S");
    }
    StreamOwned::new(ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap(), socket)
}

pub fn send(stream: &mut Stream, write: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    write(&mut bytes);
    stream.write_all(&bytes).unwrap();
}

fn message(stream: &mut Stream) -> (u8, Vec<u8>) {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).unwrap();
    let header = Header::parse(&header);
    let mut body = vec![0; header.body_len.unwrap() as usize];
    stream.read_exact(&mut body).unwrap();
    (header.tag, body)
}

pub fn start_session(stream: &mut Stream) {
    let parameters = [("user", "postgres"), ("database", "postgres")];
    send(stream, |out| write::startup(out, ProtocolVersion::V3_2, &parameters));
}

pub fn read_to_ready(stream: &mut Stream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let (tag, body) = message(stream);
        assert_ne!(tag, BackendTag::ErrorResponse as u8, "{}", String::from_utf8_lossy(&body));
        all.extend_from_slice(&body);
        if tag == BackendTag::ReadyForQuery as u8 {
            return all;
        }
    }
}

#[test]
fn a_certificate_opens_the_door_by_both_ways_of_tls() {
    let folder = certificates();
    for driver in DRIVERS {
        let weir = weir(folder.path(), driver, "auth_type = cert\nclient_tls_sslmode = verify-full");
        for direct in [false, true] {
            let mut stream = connect(&weir, folder.path(), true, direct);
            start_session(&mut stream);
            read_to_ready(&mut stream);
            send(&mut stream, |out| write::query(out, b"select 'over ' || 'TLS', repeat('x', 300000)"));
            let rows = read_to_ready(&mut stream);
            assert!(rows.windows(8).any(|bytes| bytes == b"over TLS") && rows.len() > 300_000);
        }
        let mut nobody = connect(&weir, folder.path(), false, false);
        let refused = nobody.write_all(b"\0").and_then(|()| nobody.read(&mut [0; 1])).is_ok_and(|count| count > 0);
        assert!(!refused, "without a certificate there is no session");
    }
}

#[test]
fn scram_is_bound_to_the_channel() {
    let folder = certificates();
    for driver in DRIVERS {
        let weir = weir(folder.path(), driver, "auth_type = scram-sha-256\nclient_tls_sslmode = require");
        let certificate = CertificateDer::from_pem_file(folder.path().join("server.crt")).unwrap();
        // The certificate of another server: what somebody in the middle would have.
        let other = CertificateDer::from_pem_file(folder.path().join("client.crt")).unwrap();
        for (bound_to, accepted) in [(&certificate, true), (&other, false)] {
            let mut stream = connect(&weir, folder.path(), false, false);
            start_session(&mut stream);
            let (_, body) = message(&mut stream);
            let Authentication::Sasl { mechanisms } = Authentication::parse(&body).unwrap() else { panic!() };
            assert_eq!(mechanisms, ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"]);
            let binding = ChannelBinding::TlsServerEndPoint(Sha256::digest(bound_to).to_vec());
            let first = ClientFirst::new("", "aNonceOfOurs0123456789", &mechanisms, binding).unwrap();
            let (mechanism, data) = (first.mechanism(), first.message());
            send(&mut stream, |out| write::sasl_initial(out, mechanism, &data));
            let (_, body) = message(&mut stream);
            let Authentication::SaslContinue { data } = Authentication::parse(&body).unwrap() else { panic!() };
            let pending = first.on_server_first(data).unwrap();
            let salted = salted_password("postgres", &pending.salt, pending.iterations);
            let (data, verify) = pending.finish_with(Credentials::Salted(salted));
            send(&mut stream, |out| write::sasl_response(out, &data));
            let (tag, body) = message(&mut stream);
            assert_eq!(tag == BackendTag::Authentication as u8, accepted);
            if accepted {
                let Authentication::SaslFinal { data } = Authentication::parse(&body).unwrap() else { panic!() };
                verify.on_server_final(data).unwrap();
                read_to_ready(&mut stream);
            }
        }
    }
}

/// A second Weir is the server: its certificate is for `localhost`, and it is reached by its address. A client waits for a while, since a certificate may
/// be about to be another, and is told then.
#[test]
fn a_client_is_told_that_the_servers_certificate_is_refused() {
    let folder = certificates();
    let told = |driver: &str, server: u16, ca: &str, host: &str, why: Option<&str>| {
        let databases = format!("* = host={host} port={server}");
        let lines = format!(
            "driver = {driver}\nserver_tls_sslmode = verify-full\nserver_tls_ca_file = {}/{ca}.crt\nserver_login_retry = 1",
            folder.path().display()
        );
        let weir = Weir::start_with(&databases, "\"postgres\" \"postgres\"\n", &lines);
        let Err(error) = weir.try_client("dbname=postgres") else { return assert_eq!(why, None) };
        let error = error.as_db_error().unwrap_or_else(|| panic!("{driver} {host} {ca}: {error}"));
        let message = error.message();
        assert_eq!(error.code().code(), "08006", "{message}");
        let told = message.strip_prefix("server login failed: TLS failed: certificate verify failed: ");
        assert!(why.is_some_and(|why| told.unwrap_or_default().contains(why)), "{message}");
        assert!(!message.contains("localhost") && !message.contains("127.0.0.1"), "{message}");
    };
    for driver in DRIVERS {
        let server = weir(folder.path(), driver, "client_tls_sslmode = require");
        let cases = [
            ("ca", "localhost", None),
            ("ca", "127.0.0.1", Some("NotValidForName")),
            ("other-ca", "localhost", Some("UnknownIssuer")),
        ];
        std::thread::scope(|scope| {
            for (ca, host, why) in cases {
                let (told, port) = (&told, server.port);
                scope.spawn(move || told(driver, port, ca, host, why));
            }
        });
    }
}

/// Who waits gets in as soon as what the server shows is right.
#[test]
fn a_client_waits_for_a_certificate_that_is_about_to_be_another() {
    let folder = certificates();
    let server = weir(folder.path(), DRIVERS[0], "client_tls_sslmode = require");
    let databases = format!("* = host=localhost port={}", server.port);
    let ca = |name: &str| format!("{}/{name}.crt", folder.path().display());
    let lines =
        format!("server_tls_sslmode = verify-full\nserver_tls_ca_file = {}\nadmin_users = postgres", ca("other-ca"));
    let weir = Weir::start_with(&databases, "\"postgres\" \"postgres\"\n", &lines);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| weir.try_client("dbname=postgres").map(drop));
        wait_until("TLS fails", || weir.log().contains("TLS failed: certificate verify failed"));
        let mut console = weir.try_client("dbname=pgbouncer").unwrap();
        console.batch_execute(&format!("set server_tls_ca_file = '{}'", ca("ca"))).unwrap();
        waits.join().unwrap().unwrap();
    });
}
