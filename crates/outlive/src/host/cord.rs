//! Cords: files by which processes of another PID namespace, or of another user, are killed.
//!
//! A process can signal processes of its own PID namespace and of namespaces below, but not those
//! of a sibling namespace. The kernel, however, sends a signal on a file event to the process that
//! the file's opener has chosen, and checks the rights of the opener, not of the process that
//! causes the event. Every process of a host therefore
//!
//! 1. opens the host's cord, an empty file of its user's beside the pod, for reading,
//! 2. asks that it be sent SIGKILL (`F_SETSIG`, `F_SETOWN`) when its lease is broken, and takes a
//!    read lease,
//! 3. maps a page through that description, excludes the mapping from `fork`, and closes the
//!    descriptor. Forks wait meanwhile, as for a presence.
//!
//! A process that opens the file for writing *pulls* the cord: the kernel breaks all leases and so
//! kills all processes of the host at the same time, including stopped ones and those that a
//! control group (version 2) has frozen. The file's mode says which users may do that. A process
//! that has ended or called exec has no lease any more. A later process with the same pid is never
//! killed, since the kernel keeps a reference to the process, not its number.
//!
//! A cord does not kill the first process of a PID namespace, nor does any signal from within the
//! namespace. A cord also proves nothing: only the presence of the processes shows whether they are
//! dead.
//!
//! A cord is named by the incarnation of its host, so a late pull does not kill the next
//! incarnation. It is removed with the incarnation. The next join of the host, or the destruction
//! of the pod, removes the cord that a killed host has left.
//!
//! Tests: tests/host_presence.rs.

use super::side_file_header::failed;
use super::side_file_open::{Access, hand_over};
use super::user_ids::{Kind, is_certain};
use super::{OsError, Presence};
use crate::fork;
use crate::fork_exclusion::Section;
use crate::segment::mapping_keeps_locks;
use core::ptr::NonNull;
use core::time::Duration;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, accessat, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of attempts to take a lease while another open description of the file prevents it.
const TRIES: u32 = 20;
/// The time between two attempts.
const LEASE_RETRY_PAUSE: Duration = Duration::from_millis(1);
/// The flags with which a process opens the cord to which it ties itself.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const PAGE: usize = 4096;
/// The `fcntl` command that sets the signal for file events. It is not in the `libc` crate.
const F_SETSIG: libc::c_int = 10;

/// The cords of one pod.
#[derive(Debug)]
pub(super) struct Cords {
    directory: PathBuf,
    pod: u128,
    access: Access,
    /// The cords to which this process is tied and that it has not removed.
    tied: Arc<Mutex<Vec<PathBuf>>>,
}

/// A cord in `/dev/shm`, of any pod: a file by which the processes of a host are killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CordEntry {
    /// The number of the cord's pod.
    pub pod: u128,
    /// The path of the file.
    pub path: PathBuf,
}

/// A lease, and the mapping that keeps it.
#[derive(Debug)]
struct Lease {
    base: NonNull<libc::c_void>,
    path: PathBuf,
    tied: Arc<Mutex<Vec<PathBuf>>>,
    /// The number of the process that mapped it (`fork::generation`).
    of: u64,
}

// SAFETY: the mapping is never accessed; it is an address.
unsafe impl Send for Lease {}
// SAFETY: as above.
unsafe impl Sync for Lease {}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.of == fork::generation() {
            let mut tied = self.tied.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = tied.iter().position(|path| *path == self.path) {
                tied.remove(at);
            }
            // SAFETY: the mapping is ours and never accessed.
            unsafe { libc::munmap(self.base.as_ptr(), PAGE) };
        }
    }
}

impl Cords {
    /// Returns the cords of `pod` in `directory`, for the users to which `access` gives the pod.
    pub(super) fn new(directory: &Path, pod: u128, access: Access) -> Self {
        Self {
            directory: directory.to_owned(),
            pod,
            access,
            tied: Arc::default(),
        }
    }

    fn tied(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.tied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cords to which this process is tied and that have been removed by others.
    pub(super) fn missing(&self) -> Vec<PathBuf> {
        let tied = self.tied();
        let missing = tied
            .iter()
            .filter(|path| matches!(rustix::fs::lstat(*path), Err(Errno::NOENT)));
        missing.cloned().collect()
    }

    /// Returns the owner of the file at `path` if it can be a cord of this pod. The number of the
    /// pod in the name is not a proof: it is in the segment, where a user may have written that of
    /// another pod. But another pod's cord has other users, and so another mode, group or owner.
    fn owner(&self, path: &Path) -> Option<u32> {
        let stat = rustix::fs::lstat(path).ok()?;
        let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_nlink == 1;
        let of_others = self.access.mode & 0o022 != 0;
        let me = rustix::process::geteuid().as_raw();
        let is_of_group = |group| group == stat.st_gid && is_certain(Kind::Group, group);
        let is_of_pod = is_file
            && stat.st_mode & 0o777 == self.access.mode
            && (self.access.group.is_none_or(is_of_group) || self.access.mode & 0o002 != 0)
            && (of_others
                || self.access.owner.unwrap_or(me) == stat.st_uid
                    && is_certain(Kind::User, stat.st_uid));
        is_of_pod.then_some(stat.st_uid)
    }

    /// Returns whether another user has a cord of that incarnation.
    pub(super) fn is_of_another(&self, host: u32, generation: u32) -> bool {
        let me = rustix::process::geteuid().as_raw();
        let mut all = self.all_of(host, generation).into_iter();
        all.any(|(_, owner)| owner != me)
    }

    /// Returns the paths and owners of the cords of that incarnation: one for each user whose
    /// processes are on the host. Their names end in a random number, so that no other
    /// user can create the name first.
    fn all_of(&self, host: u32, generation: u32) -> Vec<(PathBuf, u32)> {
        let prefix = format!("{}{host}.{generation}.", self.prefix());
        let names = names(&self.directory).unwrap_or_default().into_iter();
        names
            .filter(|name| name.starts_with(&prefix))
            .filter_map(|name| {
                let path = self.directory.join(name);
                let owner = self.owner(&path)?;
                Some((path, owner))
            })
            .collect()
    }

    fn prefix(&self) -> String {
        format!("outlive.{:032x}.cord.", self.pod)
    }

    /// Ties this process to the cord of the incarnation `generation` of `host`. Users with write
    /// permission by the pod's access may pull it. The process stays tied for as long as the result
    /// and its address space live.
    pub(super) fn tie(&self, host: u32, generation: u32) -> Result<Presence, OsError> {
        if !mapping_keeps_locks(&self.directory) {
            return Err(OsError::Missing {
                what: "a filesystem on which a mapping keeps a lease",
                hint: format!(
                    "{} is not on such a filesystem; mount a tmpfs there",
                    self.directory.display()
                ),
            });
        }
        let mut tries = 1;
        loop {
            match self.try_tie(host, generation) {
                // The file is open elsewhere.
                Err(OsError::Call { source, .. })
                    if source.raw_os_error() == Some(libc::EAGAIN) && tries < TRIES =>
                {
                    tries += 1;
                    std::thread::sleep(LEASE_RETRY_PAUSE);
                }
                tied => return tied,
            }
        }
    }

    /// Ties this process to the cord, or creates it. The error has the code EAGAIN while another
    /// open description of the file prevents a lease.
    fn try_tie(&self, host: u32, generation: u32) -> Result<Presence, OsError> {
        let me = rustix::process::geteuid().as_raw();
        let mut all = self.all_of(host, generation).into_iter();
        let known = all.find(|(_, owner)| *owner == me);
        if known.is_none() {
            // Earlier incarnations may have been killed with all processes that could remove their
            // cords.
            self.remove_others(host, generation);
        }
        // A child that inherited the descriptor would keep the lease. (It is closed before.)
        let _section = Section::enter();
        let (path, file) = match known {
            Some((path, _)) => {
                let file = open(&path)?;
                (path, file)
            }
            None => {
                let name = format!("{}{host}.{generation}.{:08x}", self.prefix(), random());
                let path = self.directory.join(name);
                let file = create(&path, self.access)?;
                (path, file)
            }
        };
        let call = |what: &str| OsError::Call {
            call: format!("{what} of {}", path.display()),
            source: std::io::Error::last_os_error(),
        };
        let fcntl = |command, argument: libc::c_int| {
            // SAFETY: these commands take a number.
            unsafe { libc::fcntl(file.as_raw_fd(), command, argument) }
        };
        let me = std::process::id() as libc::c_int;
        if fcntl(F_SETSIG, libc::SIGKILL) != 0 || fcntl(libc::F_SETOWN, me) != 0 {
            return Err(call("F_SETSIG"));
        }
        if fcntl(libc::F_SETLEASE, libc::F_RDLCK) != 0 {
            return Err(call("F_SETLEASE"));
        }
        // SAFETY: a new mapping without access to its bytes.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                PAGE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(call("a mapping"));
        }
        let lease = Lease {
            base: NonNull::new(base).expect("mmap returned null"),
            path: path.clone(),
            tied: Arc::clone(&self.tied),
            of: fork::generation(),
        };
        // SAFETY: the mapping is ours. A forked child that inherited it would keep the lease of its
        // dead parent.
        if unsafe { libc::madvise(base, PAGE, libc::MADV_DONTFORK) } != 0 {
            return Err(call("MADV_DONTFORK on a mapping"));
        }
        self.tied().push(path);
        Ok(Presence::new(lease))
    }

    /// Kills the processes that are tied to the cord. Returns `false` if the cord does not exist,
    /// no process is tied to it, or this process may not pull it.
    pub(super) fn pull(&self, host: u32, generation: u32) -> bool {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut pulled = false;
        for (path, _) in self.all_of(host, generation) {
            let opened = rustix::fs::open(&path, flags, Mode::empty());
            // EAGAIN: a lease conflicts with the opening, and has been broken by it.
            pulled |= matches!(opened, Err(Errno::AGAIN));
        }
        pulled
    }

    /// Returns whether there are cords of that incarnation, and this process may pull all of them.
    pub(super) fn finds(&self, host: u32, generation: u32) -> bool {
        let all = self.all_of(host, generation);
        // Checked without opening the file, which would pull the cord.
        let may_write = |path: &PathBuf| {
            accessat(CWD, path, rustix::fs::Access::WRITE_OK, AtFlags::EACCESS).is_ok()
        };
        !all.is_empty() && all.iter().all(|(path, _)| may_write(path))
    }

    /// Removes the cords of other incarnations of `host`, which have ended.
    fn remove_others(&self, host: u32, generation: u32) {
        let of_host = format!("{}{host}.", self.prefix());
        self.remove_named(|name| {
            let other = { name.strip_prefix(&of_host) }.and_then(|rest| rest.split_once('.'));
            other
                .is_some_and(|(other, _)| other.parse().is_ok_and(|other: u32| other != generation))
        });
    }

    /// Removes the cord of an incarnation of `host` that has ended.
    pub(super) fn remove(&self, host: u32, generation: u32) {
        for (path, _) in self.all_of(host, generation) {
            self.tied().retain(|tied| *tied != path);
            let _ = rustix::fs::unlink(path);
        }
    }

    /// Removes all cords. Those of other users stay in a directory with the sticky bit, and are
    /// logged.
    pub(super) fn remove_all(&self) {
        let prefix = self.prefix();
        self.remove_named(|name| name.starts_with(&prefix));
        let left = names(&self.directory).unwrap_or_default();
        for name in left.iter().filter(|name| name.starts_with(&prefix)) {
            tracing::warn!(
                path = %self.directory.join(name).display(),
                "the cord was not removed: another user owns it; that user or root can remove it"
            );
        }
    }

    fn remove_named(&self, is_one: impl Fn(&str) -> bool) {
        for name in names(&self.directory).unwrap_or_default() {
            let path = self.directory.join(&name);
            if is_one(&name) && self.owner(&path).is_some() {
                let _ = rustix::fs::unlink(path);
            }
        }
    }
}

/// Returns the names in `directory`.
fn names(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)?;
    let names = entries.flatten().map(|entry| entry.file_name());
    Ok(names.filter_map(|name| name.into_string().ok()).collect())
}

/// Returns all cords in `directory`.
pub(super) fn list(directory: &Path) -> std::io::Result<Vec<CordEntry>> {
    let entry = |name: String| {
        let (pod, of_host) = name.strip_prefix("outlive.")?.split_once(".cord.")?;
        let mut parts = of_host.split('.');
        let mut number = || parts.next()?.parse::<u32>().ok();
        let _incarnation = (number()?, number()?);
        let random = parts.next()?;
        let is_cord = pod.len() == 32 && random.len() == 8 && parts.next().is_none();
        is_cord.then_some(())?;
        Some(CordEntry {
            pod: u128::from_str_radix(pod, 16).ok()?,
            path: directory.join(name),
        })
    };
    Ok(names(directory)?.into_iter().filter_map(entry).collect())
}

/// Creates the cord `path`, open for reading.
fn create(path: &Path, access: Access) -> Result<File, OsError> {
    let flags = READ | OFlags::CREATE | OFlags::EXCL;
    let mode = Mode::RUSR | Mode::WUSR;
    // The directory's path has no symbolic links. If one is put into it concurrently, nothing is
    // created at its target.
    let created = match openat2(CWD, path, flags, mode, ResolveFlags::NO_SYMLINKS) {
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::open(path, flags, mode),
        created => created,
    };
    let file = created.map_err(|error| failed("creating", path, error))?;
    // Otherwise other users of the pod could not pull it.
    hand_over(&file, path, access)?;
    Ok(file.into())
}

/// Opens the cord at `path` for reading.
fn open(path: &Path) -> Result<File, OsError> {
    let opened = rustix::fs::open(path, READ, Mode::empty());
    Ok(opened
        .map_err(|error| failed("opening", path, error))?
        .into())
}

fn random() -> u32 {
    uuid::Uuid::new_v4().as_u128() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    const ALICE: u32 = 61_001;

    /// The name of a cord does not prove its pod: its kind, mode, group and owner must fit too.
    #[test]
    fn the_owner_of_a_file_that_is_not_the_pods_is_not_returned() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cord");
        fs::write(&path, "").unwrap();
        let set_mode = |mode| fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        let (me, own) = (metadata.uid(), Some(metadata.gid()));
        let other = own.map(|group| group + 1);
        let owner_of = |path: &Path, mode, group, owner| {
            let access = Access { mode, group, owner };
            Cords::new(directory.path(), 1, access).owner(path)
        };
        let owner = |mode, group, owner| owner_of(&path, mode, group, owner);

        set_mode(0o600);
        assert_eq!(owner(0o600, own, Some(me)), Some(me));
        assert_eq!(owner(0o600, None, None), Some(me));
        assert_eq!(owner(0o600, other, Some(me)), None, "another group");
        assert_eq!(owner(0o600, own, Some(me + 1)), None, "another owner");
        // More rights than the pod's file gives, and fewer.
        assert_eq!(owner(0o660, own, Some(me)), None);
        set_mode(0o660);
        assert_eq!(owner(0o600, own, Some(me)), None);
        // Each user of the group has cords of its own; each user at all, if all may write.
        assert_eq!(owner(0o660, own, Some(me + 1)), Some(me));
        assert_eq!(owner(0o660, other, Some(me + 1)), None);
        set_mode(0o666);
        assert_eq!(owner(0o666, other, Some(me + 1)), Some(me));
        if rustix::process::geteuid().is_root() {
            set_mode(0o600);
            chown(&path, Some(ALICE), None).unwrap();
            assert_eq!(owner(0o600, own, Some(ALICE)), Some(ALICE));
            assert_eq!(owner(0o600, own, None), None, "not this user's");
            chown(&path, Some(me), None).unwrap();
        }

        set_mode(0o600);
        let [link, pipe, second] =
            ["link", "pipe", "second"].map(|name| directory.path().join(name));
        symlink(&path, &link).unwrap();
        let (fifo, mode) = (rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR);
        rustix::fs::mknodat(CWD, &pipe, fifo, mode, 0).unwrap();
        for path in [&link, &pipe, &directory.path().join("missing")] {
            assert_eq!(
                owner_of(path, 0o600, None, None),
                None,
                "{}",
                path.display()
            );
        }
        fs::hard_link(&path, &second).unwrap();
        assert_eq!(owner(0o600, own, Some(me)), None, "it has a second name");
    }
}
