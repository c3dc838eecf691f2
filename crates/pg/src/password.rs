//! The superuser's password: one that everybody knows, or one that is made for a folder and kept in it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Which password the superuser has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Password {
    /// [`crate::PASSWORD`].
    #[default]
    Known,
    /// Random, made once for the cluster's folder and kept there, in a file that only its owner reads.
    Random,
}

/// Bytes of randomness in a password.
const BYTES: usize = 16;

/// The random one of `folder`, if it has been made.
pub(crate) fn kept(folder: &Path) -> Option<String> {
    fs::read_to_string(file(folder)).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Letters and digits, so that it stands in a URL, a file and a statement as it is.
pub(crate) fn random() -> Result<String> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; BYTES];
    File::open(source).and_then(|mut file| file.read_exact(&mut bytes)).map_err(Error::file("read", source))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// All at once: a password that was kept by half would lock everybody out.
pub(crate) fn keep(folder: &Path, password: &str) -> Result<()> {
    let path = file(folder);
    let failed = || Error::file("write", &path);
    let mut made = tempfile::NamedTempFile::new_in(folder).map_err(failed())?;
    writeln!(made, "{password}").map_err(failed())?;
    made.persist(&path).map(drop).map_err(|error| failed()(error.error))
}

fn file(folder: &Path) -> PathBuf {
    folder.join("password")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_password_is_made_once_and_is_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(kept(folder.path()), None);
        let (one, other) = (random().unwrap(), random().unwrap());
        assert_ne!(one, other);
        assert!(one.len() == 2 * BYTES && one.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{one}");
        keep(folder.path(), &one).unwrap();
        assert_eq!(kept(folder.path()), Some(one));
        assert_eq!(fs::metadata(file(folder.path())).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
