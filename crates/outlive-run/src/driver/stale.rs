//! Pods of drivers that were killed: found by their names, and removed by the next run.

use super::now_nanos;
use core::fmt;
use outlive::pod::Pod;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const PREFIX: &str = "outlive-run-";

/// The name of a pod that a driver creates: `outlive-run-PID-NAMESPACE-TIME`.
///
/// A process id is meaningful only in its PID namespace, and several namespaces may share a
/// directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pid: u32,
    namespace: u64,
    time: u64,
}

impl Name {
    /// Returns a name for this process and the current time.
    pub(super) fn of_this_process() -> Self {
        Self {
            pid: std::process::id(),
            namespace: namespace(),
            time: now_nanos(),
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let name = Self {
            pid: parts.next()?.parse().ok()?,
            namespace: u64::from_str_radix(parts.next()?, 16).ok()?,
            time: u64::from_str_radix(parts.next()?, 16).ok()?,
        };
        parts.next().is_none().then_some(name)
    }

    /// Returns whether the driver is known to be gone.
    fn is_stale(self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        // 0: the namespace of this process is not known.
        self.namespace != 0
            && self.namespace == namespace()
            && pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pid,
            namespace,
            time,
        } = self;
        write!(f, "{PREFIX}{pid}-{namespace:x}-{time:x}")
    }
}

/// Returns the inode number of this process's PID namespace, or 0.
fn namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// Removes the pods in `directory` whose drivers are gone, with their side files. Pods that cannot
/// be removed stay, for example those of another user.
pub(super) fn sweep(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_str().and_then(Name::parse);
        // Symbolic links are not followed: they may lead to files of others.
        if name.is_some_and(Name::is_stale) && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = Pod::destroy_forcibly(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_be_a_gone_drivers_is_swept() {
        let own = Name::of_this_process();
        assert_eq!(Name::parse(&own.to_string()), Some(own));
        assert!(!own.is_stale());
        // Larger than any process id.
        let gone = Name {
            pid: i32::MAX as u32,
            ..own
        };
        assert!(gone.is_stale());
        let elsewhere = Name {
            namespace: own.namespace + 1,
            ..gone
        };
        assert!(!elsewhere.is_stale());
        for other in [
            "outlive-run-1",
            "outlive-run-test-1-2",
            "outlive-run-1-2-3-4",
            "x-1-2-3",
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
        let place = tempfile::tempdir().unwrap();
        let file = |name: String| {
            let path = place.path().join(name);
            std::fs::write(&path, "no segment").unwrap();
            path
        };
        let kept = [file(own.to_string()), file(elsewhere.to_string())];
        sweep(place.path());
        assert!(kept.iter().all(|path| path.exists()));
    }
}
