//! The memory that the control group of this process leaves it (versions 1 and 2).
//!
//! Pages of a shared-memory file are charged to the control group of the process that touches them
//! first. The kernel answers an excess over the limit with a kill, so the limit is read before
//! pages are reserved.

use super::space::Places;
use std::fs;
use std::path::{Path, PathBuf};

/// The memory that a control group leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub bytes: u64,
    pub group: PathBuf,
}

/// Returns the tightest limit on this process, its own group's or an ancestor's; `None` where there
/// is none or nothing can be read.
pub(super) fn left(places: &Places) -> Option<Left> {
    let groups = fs::read_to_string(places.at("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(places.at("proc/self/mountinfo")).ok()?;
    groups
        .lines()
        .filter_map(Membership::parse)
        .filter_map(|membership| membership.tightest(&mounts, places))
        .min_by_key(|left| left.bytes)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A line of `/proc/self/cgroup` about a hierarchy that limits memory.
struct Membership<'a> {
    version: Version,
    group: &'a str,
}

impl<'a> Membership<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
        let version = if controllers.is_empty() {
            Version::Two
        } else if controllers.split(',').any(|name| name == "memory") {
            Version::One
        } else {
            return None;
        };
        Some(Self { version, group })
    }

    fn tightest(&self, mounts: &str, places: &Places) -> Option<Left> {
        let (mount, root) = mounts
            .lines()
            .find_map(|line| self.is_mounted_by(line, places))?;
        // In a container the mount may show a subtree only, or a group that is not ours to see.
        let below = Path::new(self.group)
            .strip_prefix(&root)
            .unwrap_or(Path::new(""));
        let own = mount.join(below);
        own.ancestors()
            .take_while(|group| group.starts_with(&mount))
            .filter_map(|group| {
                let bytes = self.version.left_in(group)?;
                let group = group.into();
                Some(Left { bytes, group })
            })
            .min_by_key(|left| left.bytes)
    }

    /// Returns the mount point and the root of the mount that this line of mountinfo describes, if
    /// it shows this hierarchy.
    fn is_mounted_by(&self, line: &str, places: &Places) -> Option<(PathBuf, PathBuf)> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (name, _source, options) = (kind.next()?, kind.next()?, kind.next()?);
        let shows = match self.version {
            Version::One => name == "cgroup" && options.split(',').any(|option| option == "memory"),
            Version::Two => name == "cgroup2",
        };
        if !shows {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        Some((places.at(&unescape(point)), unescape(root).into()))
    }
}

impl Version {
    /// Returns the bytes that the limit of one group leaves. Pages of files can be dropped and do
    /// not count; pages of shared memory could only be swapped, which is not wanted, and do.
    fn left_in(self, group: &Path) -> Option<u64> {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        let (limit, used) = match self {
            Self::One => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            Self::Two => ("memory.max", "memory.current"),
        };
        // "max" is not a number: no limit.
        let limit: u64 = read(limit)?.trim().parse().ok()?;
        let used: u64 = read(used)?.trim().parse().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let value = |key: &str| {
            stat.lines()
                .filter_map(|line| line.split_once(' '))
                .find(|(name, _)| *name == key)
                .and_then(|(_, value)| value.trim().parse::<u64>().ok())
        };
        // Version 1 gives the sums over the subtree another name.
        let droppable: u64 = ["inactive_file", "active_file"]
            .iter()
            .filter_map(|key| value(&format!("total_{key}")).or_else(|| value(key)))
            .sum();
        Some(limit.saturating_sub(used.saturating_sub(droppable)))
    }
}

/// Undoes the octal escapes of mountinfo.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 4);
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) => {
                out.push(byte.into());
                rest = &rest[at + 4..];
            }
            None => {
                out.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(files: &[(&str, &str)]) -> (tempfile::TempDir, Places) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let places = Places::below(dir.path());
        (dir, places)
    }

    #[test]
    fn version_2_takes_the_tightest_ancestor_and_does_not_count_file_pages() {
        let (_dir, places) = fake(&[
            ("proc/self/cgroup", "0::/outer/inner\n"),
            (
                "proc/self/mountinfo",
                "41 31 0:38 / /sys/fs/cg\\040roup rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cg roup/outer/memory.max", "1000\n"),
            ("sys/fs/cg roup/outer/memory.current", "900\n"),
            (
                "sys/fs/cg roup/outer/memory.stat",
                "anon 7\ninactive_file 200\nactive_file 100\n",
            ),
            ("sys/fs/cg roup/outer/inner/memory.max", "max\n"),
            ("sys/fs/cg roup/outer/inner/memory.current", "300\n"),
        ]);
        let left = left(&places).unwrap();
        assert_eq!(left.bytes, 400);
        assert!(left.group.ends_with("outer"));
    }

    #[test]
    fn version_1_is_found_among_other_hierarchies_and_in_a_container_s_mount() {
        let (_dir, places) = fake(&[
            (
                "proc/self/cgroup",
                "8:cpu:/x\n4:pids,memory:/docker/abc/job\n0::/\n",
            ),
            (
                "proc/self/mountinfo",
                "1 2 0:3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                 1 2 0:3 /docker/abc /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000"),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4500"),
            (
                "sys/fs/cgroup/memory/job/memory.stat",
                "inactive_file 1\ntotal_inactive_file 50\n",
            ),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712",
            ),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4500"),
        ]);
        let left = left(&places).unwrap();
        assert_eq!(left.bytes, 550);
        assert!(left.group.ends_with("memory/job"));
    }

    #[test]
    fn no_limit_and_nothing_to_read_are_none() {
        let (_dir, places) = fake(&[]);
        assert_eq!(left(&places), None);
        let (_dir, places) = fake(&[
            ("proc/self/cgroup", "0::/\nnonsense\n"),
            (
                "proc/self/mountinfo",
                "nonsense\n1 2 0:3 / /cg rw - cgroup2 none rw\n",
            ),
        ]);
        assert_eq!(left(&places), None);
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape("/a\\040b\\134c\\"), "/a b\\c\\");
    }
}
