//! Fetching one build and unpacking it: a jar (zip) around a tar.xz. Knows nothing of where it is kept.

use std::io::{Cursor, Read};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
use ureq::tls::{RootCerts, TlsConfig};

use crate::release::Release;
use crate::{Error, Result};

/// A machine without a network should say so soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// 15 MB in this time is slower than any line on which one would wait for it.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_mins(10);
/// No build is larger than a fraction of this; a server that sends on and on shall not fill our memory.
const ARCHIVE_BYTES_MAX: u64 = 128 << 20;

/// Fills `folder` with `bin`, `lib` and `share`.
pub(crate) fn download_and_unpack(release: Release, folder: &Path) -> Result<()> {
    let jar = download(release)?;
    check_digest(release, &jar)?;
    unpack(release, jar, folder)
}

fn download(release: Release) -> Result<Vec<u8>> {
    let url = release.url();
    let failed = |reason: String| Error::Download { version: release.version, url: url.clone(), reason };
    // The system's certificates, since companies put their own proxy's among them; the proxy itself comes from the
    // usual environment variables.
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .tls_config(tls)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(DOWNLOAD_TIMEOUT))
        .build()
        .into();
    let response = agent.get(&url).call().map_err(|error| failed(error.to_string()))?;
    let mut body = response.into_body();
    let bar = progress_bar(release, body.content_length());
    let mut bytes = Vec::new();
    let read = bar.wrap_read(body.as_reader().take(ARCHIVE_BYTES_MAX)).read_to_end(&mut bytes);
    bar.finish_and_clear();
    read.map_err(|error| failed(error.to_string()))?;
    Ok(bytes)
}

/// On standard error, and only if that is a terminal.
fn progress_bar(release: Release, length: Option<u64>) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = match length {
        Some(length) => ProgressBar::new(length).with_style(style.progress_chars("=> ")),
        None => ProgressBar::new_spinner(),
    };
    bar.with_message(format!("PostgreSQL {}", release.version))
}

fn check_digest(release: Release, jar: &[u8]) -> Result<()> {
    let found: String = Sha256::digest(jar).iter().map(|byte| format!("{byte:02x}")).collect();
    if found == release.sha256 {
        return Ok(());
    }
    Err(Error::Digest { version: release.version, url: release.url(), expected: release.sha256, found })
}

fn unpack(release: Release, jar: Vec<u8>, folder: &Path) -> Result<()> {
    let damaged = |reason: String| Error::Archive { version: release.version, reason };
    let mut jar = zip::ZipArchive::new(Cursor::new(jar)).map_err(|e| damaged(e.to_string()))?;
    let index = (0..jar.len())
        .find(|&index| jar.name_for_index(index).is_some_and(|name| name.is_ok_and(|name| name.ends_with(".txz"))))
        .ok_or_else(|| damaged("no .txz inside".to_owned()))?;
    let packed = jar.by_index(index).map_err(|e| damaged(e.to_string()))?;
    let mut archive = tar::Archive::new(liblzma::read::XzDecoder::new(packed));
    archive.set_preserve_permissions(true);
    archive.unpack(folder).map_err(Error::file("unpack into", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_than_pinned_are_refused() {
        let error = check_digest(Release::of(18).unwrap(), b"something else").unwrap_err().to_string();
        assert!(error.ends_with("it is not used"), "{error}");
    }

    #[test]
    fn damaged_archive_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let release = Release::of(18).unwrap();
        let error = unpack(release, b"no zip".to_vec(), folder.path()).unwrap_err();
        assert!(error.to_string().contains("cannot be unpacked"), "{error}");
    }
}
