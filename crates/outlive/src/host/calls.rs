//! Calls that a container may refuse (seccomp), each tried on a file of its own in `/dev/shm`.

use super::Capability;
use super::side_file_header::MEETING;
use crate::segment::can_link;
use crate::segment::ofd;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;

const PAGE: usize = 4096;

/// A call, its result, the consequence of its absence, and whether it is required.
type Tried = (&'static str, Result<()>, &'static str, bool);

/// Tries each call. Returns nothing if no file can be created in `/dev/shm`.
pub(super) fn probe() -> Vec<Capability> {
    let Ok(file) = nameless() else {
        return Vec::new();
    };
    let tried: [Tried; 9] = [
        (
            "fallocate",
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, PAGE as u64)
                .map_err(Error::from),
            "pages are reserved by writing zeros, which takes longer",
            false,
        ),
        (
            "linkat",
            if can_link() {
                Ok(())
            } else {
                Err(Errno::PERM.into())
            },
            "new files have their names before they are complete, and a killed creator leaves an \
             incomplete file",
            false,
        ),
        (
            "fchmod",
            rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(Error::from),
            "a pod can be created only with the permissions 600 (`pod create --mode`)",
            false,
        ),
        (
            "fcntl(F_OFD_SETLK)",
            ofd::lock(&file, 0, ofd::Kind::Read).map(|_| ()),
            "the death of a process cannot be proven, so no process can join a pod",
            true,
        ),
        (
            "fcntl(F_SETLEASE)",
            lease(),
            "a stopped host in another container, or of another user, can be killed only by a \
             fence command",
            false,
        ),
        (
            "madvise",
            advise(&file),
            "no pod can be opened: a forked child could write after its parent's death was reported",
            true,
        ),
        (
            "mlock",
            lock_page(),
            "under memory pressure the death of a thread is reported late",
            false,
        ),
        (
            "memfd_create",
            rustix::fs::memfd_create("outlive.probe", rustix::fs::MemfdFlags::CLOEXEC)
                .map(drop)
                .map_err(Error::from),
            "no segment can be created at `memfd:NAME`",
            false,
        ),
        (
            "prctl",
            rustix::process::parent_process_death_signal()
                .map(drop)
                .map_err(Error::from),
            "`outlive run`, `outlive-lab prove chaos` and `outlive pod host --processes` cannot \
             start child processes, which must die with their parent",
            false,
        ),
    ];
    let row = |(name, result, cost, needed): Tried| Capability {
        name,
        available: result.is_ok(),
        detail: result.map_or_else(
            |error| format!("refused by a filter (seccomp), or missing: {error}"),
            |()| "works".into(),
        ),
        cost,
        needed,
    };
    tried.into_iter().map(row).collect()
}

/// Creates a file in `/dev/shm` that has no name.
pub(super) fn nameless() -> Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
    let file = File::from(rustix::fs::open(MEETING, flags, Mode::RUSR | Mode::WUSR)?);
    file.set_len(PAGE as u64)?;
    Ok(file)
}

/// Takes a read lease, which requires that no description is open for writing.
fn lease() -> Result<()> {
    let writer = nameless()?;
    let file = File::from(rustix::fs::open(
        ofd::name_of(&writer),
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?);
    drop(writer);
    // SAFETY: the command takes a number; the lease ends with the description.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

fn advise(file: &File) -> Result<()> {
    with_page(Some(file), |page| {
        // SAFETY: the page is mapped; the advice changes nothing that is loaded.
        unsafe { libc::madvise(page, PAGE, libc::MADV_DONTFORK) }
    })
}

fn lock_page() -> Result<()> {
    with_page(None, |page| {
        // SAFETY: the page is mapped.
        unsafe { libc::mlock(page, PAGE) }
    })
}

/// Maps a page, of `file` if one is given, and runs `call` on it.
fn with_page(
    file: Option<&File>,
    call: impl FnOnce(*mut libc::c_void) -> libc::c_int,
) -> Result<()> {
    let (kind, fd) = match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: a new mapping at an address of the kernel's choice, which is undone below.
    let page = unsafe { libc::mmap(core::ptr::null_mut(), PAGE, libc::PROT_READ, kind, fd, 0) };
    if page == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    let result = match call(page) {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    };
    // SAFETY: the range was mapped above.
    unsafe { libc::munmap(page, PAGE) };
    result
}
