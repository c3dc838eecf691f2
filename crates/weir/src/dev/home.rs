//! Where `weir dev` keeps its data.

use std::env;
use std::path::PathBuf;

use super::{DevError, DevOptions};

/// The choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Home {
    Kept(PathBuf),
    ThrowAway,
}

impl Home {
    pub(super) fn choose(options: &DevOptions) -> Result<Self, DevError> {
        match (&options.data, options.ephemeral) {
            (Some(_), true) => Err(DevError::EphemeralAndData),
            (None, true) => Ok(Self::ThrowAway),
            (Some(folder), false) => Ok(Self::Kept(folder.clone())),
            (None, false) if nix::unistd::Uid::effective().is_root() => {
                // Root's home is closed to the user that PostgreSQL runs as.
                Ok(Self::Kept(PathBuf::from("/var/lib/weir/dev")))
            }
            (None, false) => users(variable("XDG_DATA_HOME"), variable("HOME")).map(Self::Kept),
        }
    }
}

/// As the XDG Base Directory Specification has it.
fn users(data: Option<PathBuf>, home: Option<PathBuf>) -> Result<PathBuf, DevError> {
    data.or_else(|| home.map(|home| home.join(".local/share")))
        .map(|data| data.join("weir/dev"))
        .ok_or(DevError::NoHome)
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_folder() {
        let home = Some(PathBuf::from("/h/u"));
        assert_eq!(users(None, home.clone()).unwrap(), PathBuf::from("/h/u/.local/share/weir/dev"));
        assert_eq!(users(Some("/d".into()), home).unwrap(), PathBuf::from("/d/weir/dev"));
        assert!(matches!(users(None, None), Err(DevError::NoHome)));
    }
}
