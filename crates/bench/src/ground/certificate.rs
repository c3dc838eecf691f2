//! A certificate for the loopback, signed by itself, that PostgreSQL and all poolers share.
//!
//! Does not know who verifies it: nobody does in the lab, as nobody does with `sslmode=require`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use weir_measure::ground::account::Account;

pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Certificate {
    pub fn create(directory: &Path, account: &Account) -> Result<Certificate> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
            .context("cannot make a certificate")?;
        let place = Certificate { certificate: directory.join("server.crt"), key: directory.join("server.key") };
        for (path, text) in [(&place.certificate, made.cert.pem()), (&place.key, made.signing_key.serialize_pem())] {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
            // PostgreSQL refuses a key that others can read.
            fs::set_permissions(path, Permissions::from_mode(0o600)).context("cannot protect a key")?;
            account.give(path)?;
        }
        Ok(place)
    }
}
