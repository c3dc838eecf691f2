//! Where downloaded builds are kept, and how one gets there whole: never half, never twice at once.

use std::env;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::account::{Account, check_is_ours};
use crate::release::Release;
use crate::{Error, Result, archive};

/// Overrides the folder.
const VARIABLE: &str = "WEIR_PG_CACHE";

/// The folder with one sub-folder per version.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// `$WEIR_PG_CACHE`, else the user's cache folder. Root's own is closed to the user that PostgreSQL runs as, so for
    /// root it is one under `/var/cache`.
    pub(crate) fn from_environment(account: &Account) -> Result<Self> {
        let folder = match (variable(VARIABLE), account) {
            (Some(folder), _) => folder,
            (None, Account::Other { .. }) => PathBuf::from("/var/cache/weir/postgresql"),
            (None, Account::Own) => users(variable("XDG_CACHE_HOME"), variable("HOME"))?,
        };
        Ok(Self { folder })
    }

    #[cfg(test)]
    fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The folder of `release`, when it is there. Being there means being whole. Its programs will be run, so it is an error
    /// where others could have put them.
    pub(crate) fn get(&self, release: Release) -> Result<Option<PathBuf>> {
        let folder = self.folder.join(release.version);
        if !folder.join("bin/postgres").is_file() {
            return Ok(None);
        }
        let bin = folder.join("bin");
        check_is_ours(&fs::canonicalize(&bin).map_err(Error::file("find", &bin))?, false)?;
        Ok(Some(folder))
    }

    /// The folder of `release`, filled by `unpack` if it is not there. A second process waits on the lock and then
    /// finds it; a process that dies inside leaves a `.partial-` folder and no version.
    pub(crate) fn get_or_fill(
        &self,
        account: &Account,
        release: Release,
        unpack: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        account.create_folder(&self.folder)?;
        check_is_ours(&fs::canonicalize(&self.folder).map_err(Error::file("find", &self.folder))?, false)?;
        let _lock = self.lock(release)?;
        if let Some(folder) = self.get(release)? {
            return Ok(folder);
        }
        self.sweep(release);
        let partial = tempfile::Builder::new()
            .prefix(&partial_prefix(release))
            .tempdir_in(&self.folder)
            .map_err(Error::file("create a folder in", &self.folder))?;
        unpack(partial.path())?;
        fs::set_permissions(partial.path(), Permissions::from_mode(0o755))
            .map_err(Error::file("open the folder", partial.path()))?;
        let folder = self.folder.join(release.version);
        fs::rename(partial.path(), &folder).map_err(Error::file("create", &folder))?;
        Ok(folder)
    }

    /// Downloads into the cache.
    pub(crate) fn download(&self, account: &Account, release: Release, say: &dyn Fn(&str)) -> Result<PathBuf> {
        self.get_or_fill(account, release, |folder| {
            say(&format!("downloading PostgreSQL {} into {}", release.version, self.folder.display()));
            archive::download_and_unpack(release, folder)
        })
    }

    /// Released when the file is closed, also by a process that is killed: no stale locks.
    fn lock(&self, release: Release) -> Result<File> {
        let path = self.folder.join(format!(".lock-{}", release.version));
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Error::file("open", &path))?;
        file.lock().map_err(Error::file("lock", &path))?;
        Ok(file)
    }

    /// Removes what a killed process left. Only called under the lock, so nobody is filling it now.
    fn sweep(&self, release: Release) {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(&partial_prefix(release)) {
                // Left-overs cost only disk; the download that follows says if the disk is the problem.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn partial_prefix(release: Release) -> String {
    format!(".partial-{}-", release.version)
}

/// As the XDG Base Directory Specification has it. Never a folder that others share: what lies there is run.
fn users(cache: Option<PathBuf>, home: Option<PathBuf>) -> Result<PathBuf> {
    let cache = cache.or_else(|| home.map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("weir/postgresql")).ok_or(Error::NoCache)
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn release() -> Release {
        Release::of(18).unwrap()
    }

    fn fill(folder: &Path) -> Result<()> {
        fs::create_dir(folder.join("bin")).unwrap();
        fs::write(folder.join("bin/postgres"), "").unwrap();
        Ok(())
    }

    #[test]
    fn failure_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let failed = cache.get_or_fill(&Account::Own, release(), |folder| {
            fill(folder)?;
            Err(Error::NoAccount)
        });
        assert!(failed.is_err());
        assert!(cache.get(release()).unwrap().is_none());
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 1, "only the lock: {left:?}");
    }

    #[test]
    fn what_a_killed_process_left_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let partial = folder.path().join(format!("{}x", partial_prefix(release())));
        fs::create_dir(&partial).unwrap();
        cache.get_or_fill(&Account::Own, release(), fill).unwrap();
        assert!(!partial.exists());
        assert!(cache.get(release()).unwrap().is_some());
    }

    #[test]
    fn two_at_once_fill_once() {
        let folder = tempfile::tempdir().unwrap();
        let fills = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    Cache::at(folder.path())
                        .get_or_fill(&Account::Own, release(), |folder| {
                            fills.fetch_add(1, Ordering::Relaxed);
                            std::thread::sleep(std::time::Duration::from_millis(50));
                            fill(folder)
                        })
                        .unwrap();
                });
            }
        });
        assert_eq!(fills.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn without_a_home_there_is_no_shared_folder_instead() {
        assert_eq!(users(None, Some("/h/u".into())).unwrap(), Path::new("/h/u/.cache/weir/postgresql"));
        assert_eq!(users(Some("/c".into()), None).unwrap(), Path::new("/c/weir/postgresql"));
        assert!(matches!(users(None, None), Err(Error::NoCache)));
    }

    #[test]
    fn programs_that_others_could_have_put_there_are_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        cache.get_or_fill(&Account::Own, release(), fill).unwrap();
        let version = folder.path().join(release().version);
        for (path, mode) in [(folder.path(), 0o1777), (&version, 0o777), (&version.join("bin"), 0o775)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            // In a sticky folder only ours can stand under the name that is ours, once it does.
            let refused = cache.get(release());
            let filled = cache.get_or_fill(&Account::Own, release(), fill);
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
            assert!(matches!(filled, Err(Error::Shared { .. })), "{path:?}: {filled:?}");
            assert!(path == folder.path() || matches!(refused, Err(Error::Shared { .. })), "{path:?}: {refused:?}");
        }
        assert!(cache.get(release()).unwrap().is_some());
    }
}
