//! Whether the files of TLS can be read and hold what they should, said with the line that names them.
//!
//! Does not build TLS configurations: the driver does, from the same files, and finds what only it can
//! (a key that does not fit its certificate).

use std::hash::{DefaultHasher, Hash, Hasher};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use weir_core::contract::event::Change;
use weir_core::settings::TlsMode;

use super::ini::{FileSystem, Source};
use super::problem::Problems;
use super::values::Values;

/// Reads the files that the settings name, on a side where TLS is spoken. Elsewhere, as with PgBouncer, they may come one at a
/// time and mean nothing yet.
pub fn check(values: &Values, source: &mut dyn Source, problems: &mut Problems) {
    for side in ["client", "server"] {
        if values.tls_mode(&format!("{side}_tls_sslmode")) == TlsMode::Disable {
            continue;
        }
        if side == "server" && values.tls_mode("server_tls_sslmode") < TlsMode::VerifyCa {
            unused_authorities(values, source, problems);
        } else {
            certificates(&format!("{side}_tls_ca_file"), values, source, problems);
        }
        certificates(&format!("{side}_tls_cert_file"), values, source, problems);
        key(&format!("{side}_tls_key_file"), values, source, problems);
        both_or_none(side, values, problems);
    }
}

/// A number for what TLS towards servers is made from: another one after any change, also of a file that kept its name. 0: no TLS.
pub fn server_files(values: &Values, source: &mut dyn Source) -> u64 {
    if values.tls_mode("server_tls_sslmode") == TlsMode::Disable {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    for name in ["server_tls_ca_file", "server_tls_cert_file", "server_tls_key_file"] {
        values.optional(name).and_then(|path| source.read(path).ok()).hash(&mut hasher);
    }
    for name in ["server_tls_protocols", "server_tls_ciphers", "server_tls13_ciphers"] {
        values.text(name).hash(&mut hasher);
    }
    hasher.finish()
}

fn both_or_none(side: &str, values: &Values, problems: &mut Problems) {
    let (cert, key) = (format!("{side}_tls_cert_file"), format!("{side}_tls_key_file"));
    match (values.optional(&cert), values.optional(&key)) {
        (Some(_), None) => problems.error(values.place(&cert), format!("{cert} needs {key}")),
        (None, Some(_)) => problems.error(values.place(&key), format!("{key} needs {cert}")),
        _ => {}
    }
}

/// Nothing is verified with it, and PgBouncer does not look whether it is there.
fn unused_authorities(values: &Values, source: &mut dyn Source, problems: &mut Problems) {
    const NAME: &str = "server_tls_ca_file";
    let mut found = Problems::default();
    certificates(NAME, values, source, &mut found);
    for problem in found.errors() {
        let text = format!("{}: it is not used, since server_tls_sslmode verifies nothing", problem.text);
        problems.warn(values.place(NAME), text);
    }
}

fn certificates(name: &str, values: &Values, source: &mut dyn Source, problems: &mut Problems) {
    let Some((path, bytes)) = read(name, values, source, problems) else { return };
    if let Err(what) = certificates_of(&bytes) {
        problems.error(values.place(name), format!("{name} \"{path}\" {what}"));
    }
}

fn key(name: &str, values: &Values, source: &mut dyn Source, problems: &mut Problems) {
    let Some((path, bytes)) = read(name, values, source, problems) else { return };
    if let Err(what) = key_of(&bytes) {
        problems.error(values.place(name), format!("{name} \"{path}\" {what}"));
    }
}

/// That there are some, or what is wrong.
fn certificates_of(bytes: &[u8]) -> Result<(), String> {
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(bytes) {
        certificate.map_err(|error| format!("is not valid PEM: {error}"))?;
        count += 1;
    }
    if count == 0 { Err("holds no certificate in PEM form".to_owned()) } else { Ok(()) }
}

fn key_of(bytes: &[u8]) -> Result<(), String> {
    let key = PrivateKeyDer::from_pem_slice(bytes);
    key.map(drop).map_err(|_| "holds no unencrypted private key in PEM form".to_owned())
}

/// Whether a SET of what TLS is made from may wait until the rest fits: a file that is right by itself, or a list of cipher suites, which is as right
/// as the versions that are spoken let it be.
pub fn may_wait(change: &Change) -> bool {
    let what = change.key.strip_prefix("client_tls").or_else(|| change.key.strip_prefix("server_tls"));
    let holds = |what: fn(&[u8]) -> Result<(), String>| {
        FileSystem::patient().read(&change.value).is_ok_and(|bytes| what(&bytes).is_ok())
    };
    match what {
        Some("_key_file") => holds(key_of),
        Some("_cert_file" | "_ca_file") => holds(certificates_of),
        Some("_ciphers" | "13_ciphers") => true,
        _ => false,
    }
}

fn read<'a>(
    name: &str,
    values: &'a Values,
    source: &mut dyn Source,
    problems: &mut Problems,
) -> Option<(&'a str, Vec<u8>)> {
    let path = values.optional(name)?;
    match source.read(path) {
        Ok(bytes) => Some((path, bytes)),
        Err(error) => {
            problems.error(values.place(name), format!("could not read {name} \"{path}\": {error}"));
            None
        }
    }
}
