//! TLS on both sides, in every mode of verification.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::NamedGroup;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use weir_core::contract::{Endpoint, TlsRole};
use weir_core::settings::TlsMode;

use super::*;

/// A folder with a CA, a server's certificate for `db.example` and 127.0.0.1, and a client's for `alice`.
pub(super) struct Files {
    folder: PathBuf,
}

impl Files {
    pub(super) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("weir-tls-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let files = Self { folder };
        for ca in ["ca", "other"] {
            let mut parameters = CertificateParams::new(Vec::new()).unwrap();
            parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            parameters.distinguished_name = rcgen::DistinguishedName::new();
            parameters.distinguished_name.push(DnType::CommonName, ca);
            let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
            files.write(&format!("{ca}.crt"), &issuer.pem());
            if ca == "ca" {
                files.issue(&issuer, "server", "a server", &["db.example", "127.0.0.1"]);
                files.issue(&issuer, "client", "alice", &["alice"]);
                files.issue(&issuer, "named", "db.example", &[]);
            } else {
                files.write("other.key", &issuer.key().serialize_pem());
            }
        }
        files
    }

    fn issue(&self, issuer: &CertifiedIssuer<'_, KeyPair>, file: &str, common_name: &str, names: &[&str]) {
        let key = KeyPair::generate().unwrap();
        let mut parameters =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, common_name);
        self.write(&format!("{file}.crt"), &parameters.signed_by(&key, issuer).unwrap().pem());
        self.write(&format!("{file}.key"), &key.serialize_pem());
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Weir's accepting side.
    pub(super) fn accept(&self, mode: TlsMode, with_ca: bool) -> AcceptOptions {
        AcceptOptions {
            mode,
            cert_file: self.path("server.crt"),
            key_file: self.path("server.key"),
            ca_file: with_ca.then(|| self.path("ca.crt")),
            suites: ConnectOptions::default().suites,
            curve: None,
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(super) fn options(tls: Tls) -> Options {
    Options { tls: Arc::new(tls), ..Options::default() }
}

/// Runs a relay of so many workers whose clients speak TLS.
pub(super) fn accepts(kind: DriverKind, files: &Files, script: Script, workers: u16) -> Running {
    let tls = Tls::load(Some(&files.accept(TlsMode::Require, false)), &ConnectOptions::default()).unwrap();
    run(
        kind,
        Script { client_tls: Some(TlsRole::Accept { direct: false }), ..script },
        Options { workers, ..options(tls) },
    )
}

pub(super) fn accepting(direct: bool) -> Script {
    Script { client_tls: Some(TlsRole::Accept { direct }), ..Script::default() }
}

/// A client of the tests' own: rustls over a blocking socket.
pub(super) fn client(
    files: &Files,
    stream: TcpStream,
    alpn: bool,
    certificate: bool,
) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    rustls::StreamOwned::new(client_connection(files, alpn, certificate, None), stream)
}

pub(super) fn client_connection(
    files: &Files,
    alpn: bool,
    certificate: bool,
    fragment: Option<usize>,
) -> rustls::ClientConnection {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_file(files.path("ca.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = if certificate {
        let chain = vec![rustls::pki_types::CertificateDer::from_pem_file(files.path("client.crt")).unwrap()];
        let key = rustls::pki_types::PrivateKeyDer::from_pem_file(files.path("client.key")).unwrap();
        builder.with_client_auth_cert(chain, key).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    if alpn {
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    config.max_fragment_size = fragment;
    rustls::ClientConnection::new(Arc::new(config), ServerName::try_from("db.example").unwrap()).unwrap()
}

pub(super) fn talks(stream: &mut (impl Read + Write)) -> bool {
    let sent: Vec<u8> = (0..100_000u32).map(|n| (n * 7) as u8).collect();
    for chunk in sent.chunks(20_000) {
        let mut back = vec![0; chunk.len()];
        if stream.write_all(chunk).and_then(|()| stream.flush()).and_then(|()| stream.read_exact(&mut back)).is_err() {
            return false;
        }
        assert!(back == chunk);
    }
    true
}

#[test]
fn clients_with_and_without_certificates() {
    both(|kind| {
        let files = Files::new();
        let cases = [
            // mode, a CA is configured, the client shows a certificate, it works
            (TlsMode::Require, false, false, true),
            (TlsMode::Require, true, false, true),
            (TlsMode::Require, true, true, true),
            (TlsMode::VerifyFull, true, true, true),
            (TlsMode::VerifyFull, true, false, false),
        ];
        for (mode, with_ca, shows, works) in cases {
            let tls = Tls::load(Some(&files.accept(mode, with_ca)), &ConnectOptions::default()).unwrap();
            let running = run(kind, accepting(false), options(tls));
            let mut stream = client(&files, running.connect(), false, shows);
            assert_eq!(talks(&mut stream), works, "{mode:?} {with_ca} {shows}");
            if works {
                let seen = running.seen.lock().unwrap();
                assert!(seen.tls[0].description.starts_with("TLSv1.3/TLS_"), "{:?}", seen.tls);
                assert_eq!(seen.tls[0].peer_common_name.as_deref(), (with_ca && shows).then_some("alice"));
                assert_eq!(seen.tls[0].server_end_point.as_ref().map(Vec::len), Some(32));
            }
            drop(stream);
            running.wait("closed", |seen| seen.closed == 1);
            running.end();
        }
    });
}

#[test]
fn direct_tls_needs_the_protocols_name() {
    both(|kind| {
        let files = Files::new();
        let tls = Tls::load(Some(&files.accept(TlsMode::Require, false)), &ConnectOptions::default()).unwrap();
        for (direct, alpn, works) in
            [(true, true, true), (true, false, false), (false, true, true), (false, false, true)]
        {
            let running = run(kind, accepting(direct), options(tls.clone()));
            assert_eq!(talks(&mut client(&files, running.connect(), alpn, false)), works, "{direct} {alpn}");
            running.wait("closed", |seen| seen.closed == 1);
            running.end();
        }
    });
}

/// Whether a relay whose server side is set up so reaches a TLS server that shows `db.example`.
fn reaches(kind: DriverKind, files: &Files, connect: &ConnectOptions, host: &str, demands: bool) -> bool {
    let mode = if demands { TlsMode::VerifyFull } else { TlsMode::Require };
    reaches_one_like(kind, connect, host, &files.accept(mode, demands))
}

fn reaches_one_like(kind: DriverKind, connect: &ConnectOptions, host: &str, accept: &AcceptOptions) -> bool {
    let tls = Tls::load(Some(accept), &ConnectOptions::default()).unwrap();
    let server = run(kind, accepting(true), options(tls));
    let script = Script {
        target: Some(Endpoint::Tcp { host: "127.0.0.1".into(), port: server.address().port() }),
        server_tls: Some(TlsRole::Connect { host: host.into(), direct: true }),
        ..Script::default()
    };
    let running = run(kind, script, options(Tls::load(None, connect).unwrap()));
    let works = talks(&mut running.connect());
    running.wait("closed", |seen| seen.closed == 2);
    if works {
        let ours = running.seen.lock().unwrap().tls[0].clone();
        let theirs = server.seen.lock().unwrap().tls[0].clone();
        assert!(ours.server_end_point.is_some() && ours.server_end_point == theirs.server_end_point);
        assert_eq!(ours.peer_common_name.is_some(), connect.mode >= TlsMode::VerifyCa);
    }
    running.end();
    server.end();
    works
}

#[test]
fn only_suites_that_both_have_are_spoken() {
    use crate::config::ciphers::{before_tls13, of_tls13};
    both(|kind| {
        let files = Files::new();
        let (old, new, aes) = (before_tls13("HIGH"), of_tls13(""), before_tls13("AES128"));
        let cases = [
            (&old, &old, true),
            (&new, &new, true),
            (&old, &new, false),
            (&new, &old, false),
            (&aes, &old, true),
            (&before_tls13("AES256"), &aes, false),
            (&before_tls13("aRSA"), &old, false),
        ];
        for (ours, theirs, expected) in cases {
            let connect = ConnectOptions { mode: TlsMode::Require, suites: ours.clone(), ..ConnectOptions::default() };
            let accept = AcceptOptions { suites: theirs.clone(), ..files.accept(TlsMode::Require, false) };
            assert_eq!(reaches_one_like(kind, &connect, "db.example", &accept), expected, "{ours:?} {theirs:?}");
        }
    });
}

#[test]
fn keys_are_exchanged_on_the_curve_that_is_set() {
    let files = Files::new();
    for curve in [NamedGroup::secp256r1, NamedGroup::secp384r1, NamedGroup::X25519] {
        let accept = AcceptOptions { curve: Some(curve), ..files.accept(TlsMode::Require, false) };
        let tls = Tls::load(Some(&accept), &ConnectOptions::default()).unwrap();
        let spoken = &tls.accept.as_ref().unwrap().config.crypto_provider().kx_groups;
        assert_eq!(spoken.iter().map(|group| group.name()).collect::<Vec<_>>(), [curve]);
    }
}

#[test]
fn servers_are_verified_as_far_as_asked() {
    both(|kind| {
        let files = Files::new();
        let with = |mode, ca: &str| ConnectOptions { mode, ca_file: Some(files.path(ca)), ..ConnectOptions::default() };
        let cases = [
            (with(TlsMode::Require, "other.crt"), "elsewhere.example", true),
            (with(TlsMode::VerifyCa, "ca.crt"), "elsewhere.example", true),
            (with(TlsMode::VerifyCa, "other.crt"), "db.example", false),
            (with(TlsMode::VerifyFull, "ca.crt"), "db.example", true),
            (with(TlsMode::VerifyFull, "ca.crt"), "127.0.0.1", true),
            (with(TlsMode::VerifyFull, "ca.crt"), "elsewhere.example", false),
            (with(TlsMode::VerifyFull, "ca.crt"), "/run/postgresql", false),
            // The system's authorities, if it has any, know nothing of ours.
            (ConnectOptions { mode: TlsMode::VerifyCa, ..ConnectOptions::default() }, "db.example", false),
        ];
        let loads = |connect: &ConnectOptions| connect.ca_file.is_some() || Tls::load(None, connect).is_ok();
        let cases = cases.into_iter().filter(|(connect, _, _)| loads(connect));
        for (connect, host, works) in cases {
            assert_eq!(reaches(kind, &files, &connect, host, false), works, "{:?} {host}", connect.mode);
        }
        let mut connect = with(TlsMode::VerifyFull, "ca.crt");
        assert!(!reaches(kind, &files, &connect, "db.example", true));
        (connect.cert_file, connect.key_file) = (Some(files.path("client.crt")), Some(files.path("client.key")));
        assert!(reaches(kind, &files, &connect, "db.example", true));
    });
}

#[test]
fn certificates_as_people_make_them_are_trusted() {
    both(|kind| {
        let files = Files::new();
        let connect = |ca: &str| ConnectOptions {
            mode: TlsMode::VerifyFull,
            ca_file: Some(files.path(ca)),
            ..ConnectOptions::default()
        };
        let accept = |name: &str| AcceptOptions {
            cert_file: files.path(&format!("{name}.crt")),
            key_file: files.path(&format!("{name}.key")),
            ..files.accept(TlsMode::Require, false)
        };
        // No alternative name: the common name counts.
        assert!(reaches_one_like(kind, &connect("ca.crt"), "db.example", &accept("named")));
        assert!(!reaches_one_like(kind, &connect("ca.crt"), "elsewhere.example", &accept("named")));
        // Signed by itself, a CA, and the very one that is trusted.
        assert!(reaches_one_like(kind, &connect("other.crt"), "other", &accept("other")));
        assert!(!reaches_one_like(kind, &connect("ca.crt"), "other", &accept("other")));
    });
}

/// Certificates of version 1, as PostgreSQL's own recipe makes them ("ssl-certificate-creation"): `openssl x509 -req` without
/// extensions. `false`: there is no openssl here.
fn make_old_certificates(files: &Files) -> bool {
    let openssl = |arguments: &str| {
        let mut command = std::process::Command::new("openssl");
        let output = command.args(arguments.split(' ')).current_dir(&files.folder).output().ok()?;
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        Some(())
    };
    let mut lines = vec!["req -new -x509 -days 9 -nodes -out root.crt -keyout root.key -subj /CN=root".to_owned()];
    for (name, key, issuer) in [
        ("old", "rsa:2048", "root"),
        ("curve", "ec -pkeyopt ec_paramgen_curve:prime256v1", "root"),
        ("past", "rsa:2048", "root"),
        ("selfmade", "rsa:2048", "selfmade"),
    ] {
        let common_name = if name == "curve" { "alice" } else { "db.example" };
        lines.push(format!("req -new -nodes -newkey {key} -out {name}.csr -keyout {name}.key -subj /CN={common_name}"));
        let signed = if issuer == name {
            format!("-signkey {name}.key")
        } else {
            format!("-CA {issuer}.crt -CAkey {issuer}.key -CAcreateserial")
        };
        let days = if name == "past" { -1 } else { 9 };
        lines.push(format!("x509 -req -in {name}.csr {signed} -days {days} -out {name}.crt"));
    }
    lines.iter().all(|line| openssl(line).is_some())
}

#[test]
fn certificates_of_version_1_work() {
    both(|kind| {
        let files = Files::new();
        if !make_old_certificates(&files) {
            return println!("skipped: there is no openssl");
        }
        let with = |mode, ca: &str| ConnectOptions { mode, ca_file: Some(files.path(ca)), ..ConnectOptions::default() };
        let accept = |name: &str| AcceptOptions {
            cert_file: files.path(&format!("{name}.crt")),
            key_file: files.path(&format!("{name}.key")),
            ..files.accept(TlsMode::Require, false)
        };
        let nothing = ConnectOptions::default();
        for (connect, host, server, works) in [
            (nothing.clone(), "elsewhere", "old", true),
            (nothing.clone(), "elsewhere", "curve", true),
            (nothing, "elsewhere", "past", true),
            (with(TlsMode::VerifyCa, "root.crt"), "elsewhere", "old", true),
            (with(TlsMode::VerifyCa, "root.crt"), "elsewhere", "curve", true),
            (with(TlsMode::VerifyFull, "root.crt"), "db.example", "old", true),
            (with(TlsMode::VerifyFull, "root.crt"), "elsewhere", "old", false),
            (with(TlsMode::VerifyCa, "root.crt"), "db.example", "past", false),
            (with(TlsMode::VerifyCa, "ca.crt"), "db.example", "old", false),
            (with(TlsMode::VerifyCa, "root.crt"), "db.example", "selfmade", false),
            (with(TlsMode::VerifyFull, "selfmade.crt"), "db.example", "selfmade", true),
        ] {
            assert_eq!(reaches_one_like(kind, &connect, host, &accept(server)), works, "{:?} {server}", connect.mode);
        }
        // A client's certificate, and another's key.
        let mut connect = ConnectOptions { mode: TlsMode::Require, ..ConnectOptions::default() };
        (connect.cert_file, connect.key_file) = (Some(files.path("curve.crt")), Some(files.path("curve.key")));
        let demanding =
            |ca: &str| AcceptOptions { mode: TlsMode::VerifyFull, ca_file: Some(files.path(ca)), ..accept("old") };
        assert!(reaches_one_like(kind, &connect, "db.example", &demanding("root.crt")));
        assert!(!reaches_one_like(kind, &connect, "db.example", &demanding("ca.crt")));
        let swapped = AcceptOptions { key_file: files.path("past.key"), ..accept("old") };
        assert!(Tls::load(Some(&swapped), &ConnectOptions::default()).unwrap_err().contains("past.key"));
    });
}

/// A server that speaks TLS 1.2 only, whose handshake is signed in another way.
#[test]
fn certificates_of_version_1_work_in_tls_1_2() {
    let files = Files::new();
    if !make_old_certificates(&files) {
        return println!("skipped: there is no openssl");
    }
    for (certificate, key, works) in [("old", "old", true), ("curve", "curve", true), ("old", "past", false)] {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = rustls::pki_types::PrivateKeyDer::from_pem_file(files.path(&format!("{key}.key"))).unwrap();
        let chain =
            rustls::pki_types::CertificateDer::from_pem_file(files.path(&format!("{certificate}.crt"))).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        let certified = rustls::sign::CertifiedKey::new(vec![chain], key);
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)));
        let mut server = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let tls = Tls::load(None, &ConnectOptions::default()).unwrap();
        let role = TlsRole::Connect { host: "db.example".into(), direct: false };
        let mut session = crate::driver::tls::Session::new(&tls, &role).unwrap();
        let (mut to, mut from, mut ready) = (Vec::new(), Vec::new(), Ok(None));
        for _ in 0..10 {
            session.take_outgoing(&mut to);
            let _ =
                server.read_tls(&mut &to[..]).and_then(|_| server.process_new_packets().map_err(std::io::Error::other));
            to.clear();
            while server.wants_write() {
                server.write_tls(&mut from).unwrap();
            }
            ready = session.decrypt(&from, &mut Vec::new(), &mut Vec::new()).map(|progress| progress.ready);
            from.clear();
            if !matches!(ready, Ok(None)) {
                break;
            }
        }
        assert_eq!(matches!(ready, Ok(Some(_))), works, "{certificate} {ready:?}");
        assert!(works || ready.unwrap_err().reason.contains("BadSignature"));
    }
}

#[test]
fn a_forged_signature_is_noticed() {
    both(|kind| {
        let files = Files::new();
        if !make_old_certificates(&files) {
            return println!("skipped: there is no openssl");
        }
        let der = rustls::pki_types::CertificateDer::from_pem_file(files.path("old.crt")).unwrap();
        let mut forged = der.to_vec();
        *forged.last_mut().unwrap() ^= 1;
        std::fs::write(files.path("forged.der"), forged).unwrap();
        let arguments = ["x509", "-inform", "DER", "-in", "forged.der", "-out", "forged.crt"];
        let status = std::process::Command::new("openssl").args(arguments).current_dir(&files.folder).status();
        assert!(status.unwrap().success());
        let accept = AcceptOptions {
            cert_file: files.path("forged.crt"),
            key_file: files.path("old.key"),
            ..files.accept(TlsMode::Require, false)
        };
        let connect = ConnectOptions {
            mode: TlsMode::VerifyCa,
            ca_file: Some(files.path("root.crt")),
            ..ConnectOptions::default()
        };
        assert!(!reaches_one_like(kind, &connect, "db.example", &accept));
    });
}

#[test]
fn nonsense_instead_of_a_handshake_ends_the_connection() {
    both(|kind| {
        let files = Files::new();
        let tls = Tls::load(Some(&files.accept(TlsMode::Require, false)), &ConnectOptions::default()).unwrap();
        let running = run(kind, accepting(false), options(tls));
        let mut stream = running.connect();
        stream.write_all(&[0x51; 70_000]).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        running.wait("closed", |seen| seen.closed == 1 && seen.open == 0);
        let said = running.handle.events.recv_timeout(PATIENCE).unwrap();
        let start = format!("TLS with client {} failed: ", stream.local_addr().unwrap());
        assert!(matches!(&said, DriverEvent::Log(line) if line.text.starts_with(&start)), "{said:?}");
        running.end();
    });
}

#[test]
fn missing_files_are_named() {
    let files = Files::new();
    let mut accept = files.accept(TlsMode::Require, false);
    accept.key_file = Path::new("/nonexistent/server.key").to_owned();
    let error = Tls::load(Some(&accept), &ConnectOptions::default()).unwrap_err();
    assert!(error.contains("/nonexistent/server.key"), "{error}");
    let swapped = AcceptOptions { cert_file: files.path("server.key"), ..files.accept(TlsMode::Require, false) };
    assert!(Tls::load(Some(&swapped), &ConnectOptions::default()).unwrap_err().contains("server.key"));
}
