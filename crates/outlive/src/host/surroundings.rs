//! Limits and settings of the machine or container that affect a pod: free space in `/dev/shm`,
//! namespaces, descriptors, huge pages, and a login manager that removes files.

use super::Capability;
use super::calls::nameless;
use super::side_file_header::{MEETING, bytes};
use crate::segment::mapping_keeps_locks;
use rustix::fs::StatVfsMountFlags;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The size and the number of ids of a pod that `outlive pod create` creates without options.
const DEFAULT_POD: (u64, u32) = (64 << 20, 256);
/// The smallest number of free descriptors that counts as enough.
const FEW_DESCRIPTORS: u64 = 256;
/// The inode numbers of the first namespaces, which the kernel never changes (`PROC_PID_INIT_INO`,
/// `PROC_TIME_INIT_INO`).
const FIRST_PID: u64 = 0xEFFF_FFFC;
const FIRST_TIME: u64 = 0xEFFF_FFFA;
/// The largest id of a system user, unless `/etc/login.defs` sets another.
const LAST_SYSTEM_USER: u32 = 999;

pub(super) fn probe() -> Vec<Capability> {
    vec![
        shm(),
        default_pod(),
        namespaces(),
        descriptors(),
        huge_pages(),
        login_manager(),
    ]
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

fn shm() -> Capability {
    let found = rustix::fs::statvfs(MEETING).map_err(std::io::Error::from);
    let found = found.and_then(|fs| {
        // The mount flags show the cause; the failure to create a file shows no cause.
        if fs.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(std::io::Error::other("it is mounted read-only"));
        }
        nameless()?;
        if !mapping_keeps_locks(Path::new(MEETING)) {
            return Err(std::io::Error::other(
                "a mapping keeps no lock on its filesystem; mount a tmpfs there",
            ));
        }
        Ok((fs.f_bavail * fs.f_frsize, fs.f_blocks * fs.f_frsize))
    });
    Capability {
        name: MEETING,
        available: found.as_ref().is_ok_and(|(free, _)| *free >= 1 << 20),
        detail: match found {
            Ok((free, all)) => format!("{} of {} MiB free", mib(free), mib(all)),
            Err(error) => format!("no side file can be created there: {error}"),
        },
        cost: "there is no free space for side files, nor for a pod in it (--shm-size for a \
               container; mount -o remount,rw,size=1G /dev/shm)",
        needed: true,
    }
}

fn default_pod() -> Capability {
    let (size, ids) = DEFAULT_POD;
    let needed = size + bytes(ids) + (64 << 10);
    let free = rustix::fs::statvfs(MEETING).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    Capability {
        name: "room for a pod",
        available: free >= needed,
        detail: format!(
            "a pod of the default size needs {} KiB of {MEETING}, and {} KiB are free",
            needed >> 10,
            free >> 10
        ),
        cost: "`outlive pod create` needs a smaller --size there, or a path elsewhere",
        needed: false,
    }
}

fn namespaces() -> Capability {
    let number =
        |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |it| it.ino());
    let own = |name: &str, first| match number(name) {
        0 => "unknown",
        number if number == first => "the machine's",
        _ => "its own",
    };
    let is_first = std::process::id() == 1;
    Capability {
        name: "namespaces",
        available: !is_first,
        detail: format!(
            "PID namespace: {}; time namespace: {}; the members in each pair of \
             namespaces have a side file of their own{}",
            own("pid", FIRST_PID),
            own("time", FIRST_TIME),
            if is_first {
                "; this is the first process of its PID namespace, which no other process can kill"
            } else {
                ""
            }
        ),
        cost: "this process can join only a pod with a fence command (docker run --init gives it \
               another pid)",
        needed: false,
    }
}

fn descriptors() -> Capability {
    let limit = getrlimit(Resource::Nofile).current;
    let open = fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
    Capability {
        name: "descriptors",
        available: limit.is_none_or(|limit| limit.saturating_sub(open) >= FEW_DESCRIPTORS),
        detail: match limit {
            Some(limit) => {
                format!("{limit} for each process (RLIMIT_NOFILE), of which {open} are open")
            }
            None => "no limit".into(),
        },
        cost: "each pod that a process joins takes about 9 of them, and one process of each host \
               takes one more for each other process of the host (ulimit -n)",
        needed: false,
    }
}

fn huge_pages() -> Capability {
    let read = |path: &Path| -> Option<u64> { fs::read_to_string(path).ok()?.trim().parse().ok() };
    let sizes = fs::read_dir("/sys/kernel/mm/hugepages")
        .into_iter()
        .flatten()
        .flatten();
    let mut free = 0;
    let mut found = Vec::new();
    for size in sizes {
        let name = size.file_name().to_string_lossy().into_owned();
        let name = name.strip_prefix("hugepages-").unwrap_or(&name);
        let number = |file: &str| read(&size.path().join(file)).unwrap_or(0);
        // A container sees its own control group there, where it has one.
        let limit = control_group_limit(name);
        let available = number("free_hugepages");
        free += if limit == Some(0) { 0 } else { available };
        found.push(format!(
            "{available} of {} of {name} free{}",
            number("nr_hugepages"),
            limit.map_or(String::new(), |bytes| format!(
                ", {bytes} bytes allowed here"
            ))
        ));
    }
    Capability {
        name: "huge pages",
        available: free > 0,
        detail: if found.is_empty() {
            "the kernel has none".into()
        } else {
            found.join("; ")
        },
        cost: "`pod create --huge reserved` is refused (reserve some in /proc/sys/vm/nr_hugepages)",
        needed: false,
    }
}

/// Returns the limit of this cgroup for huge pages of the size `kib` ("2048kB"), if it has one.
fn control_group_limit(kib: &str) -> Option<u64> {
    let kib: u64 = kib.strip_suffix("kB")?.parse().ok()?;
    let size = match (kib >> 20, kib >> 10) {
        (0, 0) => format!("{kib}KB"),
        (0, mib) => format!("{mib}MB"),
        (gib, _) => format!("{gib}GB"),
    };
    let text = fs::read_to_string(format!("/sys/fs/cgroup/hugetlb.{size}.max")).ok()?;
    // "max" is not a number.
    text.trim().parse().ok()
}

fn login_manager() -> Capability {
    let is_there = Path::new("/run/systemd/seats").exists();
    let me = rustix::process::geteuid().as_raw();
    let removes = is_there && removes_ipc(&texts());
    Capability {
        name: "RemoveIPC",
        available: !removes || me <= LAST_SYSTEM_USER,
        detail: match (is_there, removes) {
            (false, _) => "systemd-logind does not run here".into(),
            (_, false) => "systemd-logind removes no files in /dev/shm".into(),
            (_, true) if me <= LAST_SYSTEM_USER => format!("systemd-logind removes no files of system \
                                                            users, such as {me}"),
            _ => "systemd-logind removes a user's files in /dev/shm when the user's last session ends".into(),
        },
        cost: "pods and side files are removed while their members run, and no process can join \
               them (RemoveIPC=no in \
               /etc/systemd/logind.conf, loginctl enable-linger, or a system user)",
        needed: false,
    }
}

/// Returns the configuration of systemd-logind, in the order in which it is read.
fn texts() -> Vec<String> {
    let mut files: Vec<PathBuf> = Vec::new();
    for directory in ["/usr/lib/systemd", "/run/systemd", "/etc/systemd"] {
        files.push(Path::new(directory).join("logind.conf"));
    }
    let mut parts: Vec<PathBuf> = ["/usr/lib/systemd", "/run/systemd", "/etc/systemd"]
        .iter()
        .flat_map(|directory| fs::read_dir(Path::new(directory).join("logind.conf.d")))
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    parts.sort_by_key(|path| path.file_name().map(std::ffi::OsStr::to_owned));
    files.extend(parts);
    { files.iter() }
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect()
}

/// Returns whether RemoveIPC is set, which it is by default; the last assignment counts.
fn removes_ipc(texts: &[String]) -> bool {
    let mut values = texts
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == "RemoveIPC").then(|| value.trim().to_lowercase())
        });
    values
        .next_back()
        .is_none_or(|value| !["no", "false", "off", "0", "n", "f"].contains(&&*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_remove_ipc_counts() {
        let texts = |all: &[&str]| -> Vec<String> { all.iter().map(|&text| text.into()).collect() };
        assert!(removes_ipc(&[]));
        assert!(removes_ipc(&texts(&["[Login]\n#RemoveIPC=no\n"])));
        assert!(!removes_ipc(&texts(&["[Login]\nRemoveIPC = no\n"])));
        assert!(removes_ipc(&texts(&[
            "[Login]\nRemoveIPC=no\n",
            "[Login]\nRemoveIPC=yes\n"
        ])));
    }
}
