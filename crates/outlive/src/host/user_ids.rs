//! User and group ids that may stand for more than one user.
//!
//! A file's owner that has no id in the user namespace of the reader (or in an id-mapped mount) is
//! shown as the overflow id. Two files whose owners are shown as that id may belong to two users,
//! so the id proves no equality. It is an id like all others only where every id has a mapping.
//!
//! Tests: tests/host_edges/users.rs.

use std::fs;

/// The overflow id, unless `/proc/sys/kernel` shows another one.
const OVERFLOW: u32 = 65_534;
/// The number of ids of the initial user namespace: all except -1.
const ALL: u64 = u32::MAX as u64;

/// The two kinds of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    User,
    Group,
}

/// Returns whether the id `id`, which the kernel has shown as an id of a file or of this process,
/// stands for one user or group only.
pub(super) fn is_certain(kind: Kind, id: u32) -> bool {
    let path = match kind {
        Kind::User => "/proc/sys/kernel/overflowuid",
        Kind::Group => "/proc/sys/kernel/overflowgid",
    };
    let overflow = fs::read_to_string(path).ok();
    let overflow = overflow.and_then(|text| text.trim().parse().ok());
    id != overflow.unwrap_or(OVERFLOW) || has_all(kind) && !has_mapped_mount()
}

/// Returns whether every id has a mapping in the user namespace of this process, as in the initial
/// one.
pub(super) fn has_all(kind: Kind) -> bool {
    let path = match kind {
        Kind::User => "/proc/self/uid_map",
        Kind::Group => "/proc/self/gid_map",
    };
    fs::read_to_string(path).is_ok_and(|map| mapped(&map) == ALL)
}

/// Returns the number of ids in the text of a `uid_map`. A line is the first id, the first id
/// outside, and the number of ids.
fn mapped(map: &str) -> u64 {
    let count = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    map.lines().filter_map(count).sum()
}

/// Returns whether this process sees an id-mapped mount, or cannot find out.
fn has_mapped_mount() -> bool {
    fs::read_to_string("/proc/self/mountinfo").map_or(true, |mounts| lists_mapped(&mounts))
}

/// Returns whether the text of a `mountinfo` lists an id-mapped mount. The sixth field of a line is
/// the options of the mount.
fn lists_mapped(mounts: &str) -> bool {
    let options = |line: &str| line.split(' ').nth(5).map(str::to_owned);
    let mut all = mounts.lines().filter_map(options);
    all.any(|options| options.split(',').any(|option| option == "idmapped"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_mounts_are_read() {
        assert_eq!(mapped("         0          0 4294967295\n"), ALL);
        assert_eq!(mapped("0 1000 1\n1 100000 65536\n"), 65_537);
        assert_eq!(mapped(""), 0);
        let line =
            |options| format!("36 35 98:0 /a /b {options} master:1 - ext3 /dev/root idmapped\n");
        assert!(!lists_mapped(&line("rw,noatime")));
        assert!(lists_mapped(&(line("rw") + &line("rw,nosuid,idmapped"))));
    }
}
