//! What control groups leave a process of its machine, as a container or a systemd unit is limited (cgroups(7), both versions).
//!
//! Does not know what the process does.

use std::fs;
use std::path::Path;

use nix::unistd::Pid;

/// Where systemd and container runtimes mount the hierarchies.
const MOUNT: &str = "/sys/fs/cgroup";

/// `None`: not limited, or not to be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Processor time for each time that passes.
    pub cores: Option<f64>,
    pub memory_mib: Option<u64>,
}

impl Limits {
    pub fn of(pid: Pid) -> Limits {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        Limits::read(&groups, Path::new(MOUNT))
    }

    /// `groups`: lines of `NUMBER:CONTROLLERS:PATH`.
    fn read(groups: &str, mount: &Path) -> Limits {
        let mut limits = Limits::default();
        for line in groups.lines() {
            let fields: Vec<&str> = line.splitn(3, ':').collect();
            let [_, controllers, path] = fields[..] else { continue };
            // Version 2 has one hierarchy and names no controllers; version 1 mounts one by the names of its controllers.
            let hierarchy = mount.join(controllers);
            // What limits a group limits all groups in it. Inside of a container only its own part may be mounted, as the root.
            for group in Path::new(path.trim_start_matches('/')).ancestors() {
                limits.tighten(&hierarchy.join(group));
            }
        }
        limits
    }

    fn tighten(&mut self, group: &Path) {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<f64>().ok();
        // `QUOTA PERIOD`, or two files; a quota of `max` or -1 is none.
        let both = |text: String| {
            let (quota, period) = text.trim().split_once(' ')?;
            Some((quota.parse().ok()?, period.parse().ok()?))
        };
        let quota: Option<(f64, f64)> = read("cpu.max")
            .and_then(both)
            .or_else(|| number("cpu.cfs_quota_us").zip(number("cpu.cfs_period_us")))
            .filter(|(quota, period)| *quota > 0.0 && *period > 0.0);
        if let Some((quota, period)) = quota {
            self.cores = Some(self.cores.unwrap_or(f64::MAX).min(quota / period));
        }
        let bytes =
            ["memory.max", "memory.limit_in_bytes"].iter().find_map(|name| read(name)?.trim().parse::<u64>().ok());
        if let Some(bytes) = bytes {
            self.memory_mib = Some(self.memory_mib.unwrap_or(u64::MAX).min(bytes / (1024 * 1024)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(files: &[(&str, &str)]) -> tempfile::TempDir {
        let mount = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let file = mount.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        mount
    }

    #[test]
    fn the_least_on_the_way_up_counts() {
        let mount = mounted(&[
            ("a.slice/cpu.max", "150000 100000\n"),
            ("a.slice/memory.max", "4294967296\n"),
            ("a.slice/b.service/cpu.max", "max 100000\n"),
            ("a.slice/b.service/memory.max", "max\n"),
        ]);
        let limits = Limits::read("0::/a.slice/b.service\n", mount.path());
        assert_eq!(limits, Limits { cores: Some(1.5), memory_mib: Some(4096) });
        assert_eq!(Limits::read("0::/other.slice\n", mount.path()), Limits::default());
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let mount = mounted(&[("cpu.max", "200000 100000\n"), ("memory.max", "1073741824\n")]);
        let limits = Limits::read("0::/kubepods/pod7/c9\n", mount.path());
        assert_eq!(limits, Limits { cores: Some(2.0), memory_mib: Some(1024) });
    }

    #[test]
    fn version_one_has_a_hierarchy_for_each_controller() {
        let mount = mounted(&[
            ("cpu,cpuacct/x/cpu.cfs_quota_us", "50000\n"),
            ("cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("memory/x/memory.limit_in_bytes", "536870912\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        let limits = Limits::read("4:memory:/x\n3:cpu,cpuacct:/x\n1:name=systemd:/\n0::/\n", mount.path());
        assert_eq!(limits, Limits { cores: Some(0.5), memory_mib: Some(512) });
    }

    #[test]
    fn what_cannot_be_read_limits_nothing() {
        assert_eq!(Limits::read("nonsense\n0::\n::/\n", Path::new("/nowhere")), Limits::default());
        assert_eq!(Limits::of(Pid::from_raw(i32::MAX)), Limits::default());
    }
}
