//! Opening, creating, locking and clearing a side file, and the checks by which it is trusted.

use super::OsError;
use super::side_file_header::{DIRTY_AT, Header, MEETING, PAGE, USE_BYTE, failed, file_bytes};
use super::side_file_name::UNFINISHED;
use super::user_ids::{Kind as Id, is_certain};
use crate::segment::ofd::{self, Kind};
use crate::segment::{can_link, set_mode};
use core::time::Duration;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The longest time that a process waits for another that clears or removes the file.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The time between two attempts.
pub(super) const RETRY_PAUSE: Duration = Duration::from_micros(200);

/// The permissions and the owner of a pod's side file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The permission bits, whatever the umask.
    pub mode: u32,
    /// The group of the file, if not that of its creator.
    pub group: Option<u32>,
    /// The owner of the file, if not its creator: the owner of the pod's file.
    pub owner: Option<u32>,
}

impl Default for Access {
    /// Access for this user only.
    fn default() -> Self {
        Self {
            mode: 0o600,
            group: None,
            owner: None,
        }
    }
}

impl Access {
    /// Returns the access without an owner or a group that may stand for several (see
    /// the module `user_ids`), if files with the result are only for users of the pod. `path` is
    /// the pod's file.
    ///
    /// # Errors
    /// [`OsError::Unmapped`] if a file that another user has created could not be told from one
    /// that a user of the pod has created, or would give rights to another group.
    pub(super) fn of_certain_ids(self, path: &Path) -> Result<Self, OsError> {
        let unmapped = |what, id| OsError::Unmapped {
            path: path.to_owned(),
            what,
            id,
        };
        // If all users may write to the pod, none of them can do harm by a side file.
        let is_for_all = self.mode & 0o002 != 0;
        let owner = self.owner.filter(|owner| is_certain(Id::User, *owner));
        let group = self.group.filter(|group| is_certain(Id::Group, *group));
        match (self.owner, self.group) {
            (Some(id), _) if owner.is_none() && !is_for_all => Err(unmapped("owner", id)),
            (_, Some(id)) if group.is_none() && !is_for_all && self.mode & 0o020 != 0 => {
                Err(unmapped("group", id))
            }
            _ => Ok(Self {
                owner,
                group,
                ..self
            }),
        }
    }
}

/// The file at the name of a side file.
pub(super) enum Found {
    Nothing,
    Fit(File),
    /// A file that may not be used, with the reason.
    Unfit(&'static str),
}

/// Opens the file at `path` if it may be used.
pub(super) fn open(path: &Path, access: Access) -> Result<Found, OsError> {
    open_with(path, access, OFlags::RDWR)
}

/// Opens the file at `path` for reading, if it may be used.
pub(super) fn open_for_reading(path: &Path, access: Access) -> Result<Found, OsError> {
    open_with(path, access, OFlags::RDONLY)
}

fn open_with(path: &Path, access: Access, flags: OFlags) -> Result<Found, OsError> {
    // Nonblocking: opening a FIFO of that name must not wait for its other end.
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
            return Ok(Found::Unfit("it is not a regular file"));
        }
        // Another user has a lease on it, or executes it.
        Err(Errno::AGAIN | Errno::TXTBSY) => {
            return Ok(Found::Unfit(
                "another process has a lease on it or executes it",
            ));
        }
        Err(Errno::ACCESS) => return Ok(Found::Unfit("this user may not open it")),
        Err(error) => return Err(failed("opening", path, error)),
    };
    let file = File::from(file);
    Ok(match unfit(&file, path, access)? {
        None => Found::Fit(file),
        Some(why) => Found::Unfit(why),
    })
}

/// Returns the reason why the open `file` may not be used as a side file with `access`; `None` if
/// it may.
pub(super) fn unfit(
    file: &File,
    path: &Path,
    access: Access,
) -> Result<Option<&'static str>, OsError> {
    let stat = rustix::fs::fstat(file).map_err(|error| failed("stat of", path, error))?;
    let me = rustix::process::geteuid().as_raw();
    let is_user_certain = is_certain(Id::User, stat.st_uid);
    let is_of_owner =
        is_user_certain && [Some(me), Some(0), access.owner].contains(&Some(stat.st_uid));
    // Only members of a group can give a file to that group.
    let is_of_group = access.mode & 0o020 != 0
        && access.group == Some(stat.st_gid)
        && is_certain(Id::Group, stat.st_gid);
    let is_of_all = access.mode & 0o002 != 0;
    Ok(if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        Some("it is not a regular file")
    } else if stat.st_nlink > 1 {
        Some("it has more than one name")
    } else if !(is_of_owner || is_of_group || is_of_all) {
        Some(match is_user_certain {
            true => "it belongs to a user that may not use the pod",
            false => "its owner has no id of its own in this user namespace",
        })
    } else if stat.st_mode & 0o777 & !access.mode != 0 {
        Some("its mode gives more rights than that of the pod's file")
    } else {
        None
    })
}

/// Takes the lock of a user of `file`. Returns `true` if it is a write lock, because there is no
/// other user. Waits for a process that clears or removes the file, which has it locked only
/// briefly.
pub(super) fn lock(file: &File, path: &Path) -> Result<bool, OsError> {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        for (kind, is_alone) in [(Kind::Write, true), (Kind::Read, false)] {
            if ofd::lock(file, USE_BYTE, kind).map_err(|error| cannot_lock(path, error))? {
                return Ok(is_alone);
            }
        }
        if std::time::Instant::now() >= until {
            return Err(OsError::InUse {
                path: path.to_owned(),
            });
        }
        std::thread::sleep(RETRY_PAUSE);
    }
}

pub(super) fn cannot_lock(path: &Path, source: io::Error) -> OsError {
    OsError::Call {
        call: format!("locking {} (fcntl(F_OFD_SETLK))", path.display()),
        source,
    }
}

/// Resets all futexes and makes all obituaries vacant, in a file that no other process uses.
pub(super) fn clear(file: &File, path: &Path, obituaries: u32) -> Result<(), OsError> {
    let zeros = vec![0; file_bytes(obituaries) - PAGE];
    let cleared = file
        .write_all_at(&1u32.to_ne_bytes(), DIRTY_AT)
        .and_then(|()| file.write_all_at(&zeros, PAGE as u64))
        .and_then(|()| file.write_all_at(&0u32.to_ne_bytes(), DIRTY_AT));
    cleared.map_err(|source| OsError::Call {
        call: format!("clearing {}", path.display()),
        source,
    })
}

/// Returns whether a process has begun to clear the file and has not finished.
pub(super) fn is_dirty(file: &File, path: &Path) -> Result<bool, OsError> {
    let mut dirty = [0; 4];
    let read = file.read_exact_at(&mut dirty, DIRTY_AT);
    read.map_err(|source| OsError::Call {
        call: format!("reading {}", path.display()),
        source,
    })?;
    Ok(dirty != [0; 4])
}

/// Creates the file and gives it its name. Returns `None` if another file has that name already.
pub(super) fn create(
    path: &Path,
    header: &Header,
    access: Access,
) -> Result<Option<File>, OsError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mode = Mode::from_raw_mode(0o600);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let nameless = match can_link() {
        true => rustix::fs::open(directory, flags | OFlags::TMPFILE, mode),
        false => Err(Errno::OPNOTSUPP),
    };
    match nameless {
        Ok(file) => {
            fill(&file, path, header, access)?;
            let file = locked(file, path)?;
            let nameless = ofd::name_of(&file);
            finish(file, path, |to| {
                rustix::fs::linkat(CWD, &nameless, CWD, to, AtFlags::SYMLINK_FOLLOW)
            })
        }
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            // The filesystem has no nameless files: the file is created under a name of its own and
            // renamed right after. Two creators take turns; a file that a killed creator left is
            // replaced.
            let unfinished = PathBuf::from(format!("{}.{UNFINISHED}", path.display()));
            let _ = rustix::fs::unlink(&unfinished);
            let file =
                match rustix::fs::open(&unfinished, flags | OFlags::CREATE | OFlags::EXCL, mode) {
                    Ok(file) => file,
                    Err(Errno::EXIST) => return Ok(None),
                    Err(error) => return Err(failed("creating", &unfinished, error)),
                };
            let filled = fill(&file, &unfinished, header, access)
                .and_then(|()| locked(file, &unfinished))
                .inspect_err(|_| {
                    let _ = rustix::fs::unlink(&unfinished);
                });
            let file = finish(filled?, path, |to| {
                rustix::fs::renameat_with(CWD, &unfinished, CWD, to, RenameFlags::NOREPLACE)
            });
            if !matches!(file, Ok(Some(_))) {
                let _ = rustix::fs::unlink(&unfinished);
            }
            file
        }
        Err(error) => Err(failed("creating a file in", directory, error)),
    }
}

fn fill(file: &OwnedFd, path: &Path, header: &Header, access: Access) -> Result<(), OsError> {
    let bytes = file_bytes(header.obituaries) as u64;
    rustix::fs::ftruncate(file, bytes).map_err(|error| failed("sizing", path, error))?;
    let reserved = match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // A filter refuses the call; written pages are reserved too.
        Err(Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP) => write_zeros(file, bytes),
        reserved => reserved,
    };
    match reserved {
        Ok(()) => {}
        Err(Errno::NOSPC) => {
            return Err(OsError::Missing {
                what: "space for the side file",
                hint: format!(
                    "{MEETING} does not have {bytes} bytes left; remove files there, or make it \
                     larger (mount -o remount,size=…; --shm-size for a container)"
                ),
            });
        }
        Err(error) => return Err(failed("reserving (fallocate)", path, error)),
    }
    let metadata = File::from(file.try_clone().map_err(|source| OsError::Call {
        call: format!("dup of {}", path.display()),
        source,
    })?)
    .metadata();
    let header = header.of(&metadata.map_err(|source| OsError::Call {
        call: format!("stat of {}", path.display()),
        source,
    })?);
    let written = rustix::io::pwrite(file, bytemuck::bytes_of(&header), 0)
        .map_err(|error| failed("writing", path, error))?;
    assert_eq!(
        written,
        size_of::<Header>(),
        "a short write to a reserved page"
    );
    hand_over(file, path, access)
}

/// Gives `file`, which this process has created, the owner, the group and the mode of `access`.
pub(super) fn hand_over(file: impl AsFd, path: &Path, access: Access) -> Result<(), OsError> {
    let is_root = rustix::process::geteuid().is_root();
    let owner = access.owner.filter(|_| is_root).map(Uid::from_raw);
    if access.group.is_some() || owner.is_some() {
        match rustix::fs::fchown(&file, owner, access.group.map(Gid::from_raw)) {
            // The creator need not be in the group if all users have the group's rights.
            Err(Errno::PERM) if access.mode & 0o002 != 0 => {}
            given => given.map_err(|error| failed("setting the owner (fchown) of", path, error))?,
        }
    }
    // After the change of the owner, which may clear mode bits; and regardless of the umask.
    set_mode(file, access.mode).map_err(|error| failed("setting the mode (fchmod) of", path, error))
}

fn write_zeros(file: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    let zeros = [0; PAGE];
    for at in (0..bytes).step_by(PAGE) {
        // A write is short only if there is no free space for the rest.
        if rustix::io::pwrite(file, &zeros, at)? < PAGE {
            return Err(Errno::NOSPC);
        }
    }
    Ok(())
}

/// Takes the lock of a user before the file has its name, so that no file is left behind where
/// locks are refused.
fn locked(file: OwnedFd, path: &Path) -> Result<File, OsError> {
    let file = File::from(file);
    ofd::lock(&file, USE_BYTE, Kind::Read).map_err(|error| cannot_lock(path, error))?;
    Ok(file)
}

fn finish(
    file: File,
    path: &Path,
    link: impl FnOnce(&Path) -> rustix::io::Result<()>,
) -> Result<Option<File>, OsError> {
    match link(path) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::EXIST) => Ok(None),
        Err(error) => Err(failed("naming", path, error)),
    }
}
