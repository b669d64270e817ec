//! Data of processes and threads from `/proc`, and the scope in which their ids are valid.

use super::{Liveness, OsError, ProcessIdentity, ThreadIdentity};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, fstatfs, openat, openat2, readlinkat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Below the directory `sys`.
const BOOT_ID: &str = "kernel/random/boot_id";
/// The kernel's number for procfs (`PROC_SUPER_MAGIC`).
const PROC: u32 = 0x9fa0;

/// The data from one line of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) state: u8,
    pub(super) threads: u64,
    pub(super) start_time: u64,
}

impl Stat {
    /// Returns whether the thread executes no more: it is a zombie, or dead and about to vanish.
    pub(super) fn is_dead(self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Parses the line of the process or thread `id`. The second field is the program's name in
    /// parentheses and may itself contain spaces and parentheses, so the fields are counted from
    /// the last `)`.
    fn parse(line: &[u8], id: u32) -> Option<Self> {
        if !line.starts_with(format!("{id} (").as_bytes()) {
            return None;
        }
        let after = line.iter().rposition(|&byte| byte == b')')? + 1;
        let mut fields = line[after..]
            .split(u8::is_ascii_whitespace)
            .filter(|field| !field.is_empty());
        let state = *fields.next()?.first()?;
        // Fields 20 and 22 of proc_pid_stat(5); the state is field 3.
        let number = |field: &[u8]| core::str::from_utf8(field).ok()?.parse().ok();
        let threads = number(fields.nth(16)?)?;
        let start_time = number(fields.nth(1)?)?;
        Some(Self {
            state,
            threads,
            start_time,
        })
    }
}

/// A `/proc`, kept open while it is read, so that a concurrent mount over it has no effect.
#[derive(Debug)]
pub(super) struct Proc {
    root: OwnedFd,
}

impl Proc {
    /// Opens the filesystem at `/proc` without a check. Its contents prove nothing.
    fn any() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open("/proc", flags, Mode::empty())?;
        Ok(Self { root })
    }

    /// Opens `/proc` if two conditions hold: it shows this process's own PID namespace, so that its
    /// ids are those that this process knows; and the calling thread is in the PID and time
    /// namespaces `namespaces`, since another time namespace shows other start times. The first
    /// condition holds if this process has exactly one id there. (A parent namespace shows two ids
    /// of it, a child or a sibling shows no line for it.)
    ///
    /// # Errors
    /// `Unsupported` if `/proc` is missing or does not meet the conditions, and the errors of
    /// opening a file.
    pub fn own(namespaces: u64) -> io::Result<Self> {
        let other = io::ErrorKind::Unsupported;
        let missing = |error: io::Error| match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => error,
            _ => other.into(),
        };
        let it = Self::any().map_err(missing)?;
        if !it.is_procfs() {
            return Err(other.into());
        }
        let status = it.read("self/status").map_err(missing)?;
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let pid = std::process::id().to_string();
        let is_own = line.is_some_and(|line| line.split_whitespace().eq([&*pid]));
        match is_own && it.namespaces().map_err(missing)? == namespaces {
            true => Ok(it),
            false => Err(other.into()),
        }
    }

    /// Returns whether it is the kernel's procfs, and not a directory with files of the same names.
    fn is_procfs(&self) -> bool {
        fstatfs(&self.root).is_ok_and(|it| it.f_type as u32 == PROC)
    }

    /// Returns the PID and time namespaces of the calling thread, as in [`Place::namespaces`].
    fn namespaces(&self) -> io::Result<u64> {
        let directory = self.open("thread-self/ns", OFlags::PATH | OFlags::DIRECTORY)?;
        // The text of the links, such as `pid:[4026531836]`, is their own file's number.
        let number = |name: &str| -> io::Result<u64> {
            let link = readlinkat(&directory, name, Vec::new())?;
            let text = link.to_string_lossy();
            let digits = text.strip_prefix(name).and_then(|it| it.strip_prefix(":["));
            let number = digits.and_then(|it| it.strip_suffix(']')?.parse().ok());
            number.ok_or_else(|| io::ErrorKind::InvalidData.into())
        };
        let time = match number("time") {
            // A kernel before 5.6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            time => time?,
        };
        Ok(number("pid")? << 32 | time & 0xFFFF_FFFF)
    }

    /// Opens a file of it, but no file that is mounted over it or over a directory above it.
    fn open(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let (flags, mode) = (flags | OFlags::CLOEXEC, Mode::empty());
        match openat2(&self.root, path, flags, mode, ResolveFlags::NO_XDEV) {
            // A kernel before 5.6, or a filter: then a mount from the same procfs is not noticed.
            Err(Errno::NOSYS | Errno::PERM) => {
                let file = openat(&self.root, path, flags, mode)?;
                match fstat(&file)?.st_dev == fstat(&self.root)?.st_dev {
                    true => Ok(file),
                    false => Err(Errno::XDEV.into()),
                }
            }
            opened => Ok(opened?),
        }
    }

    /// Reads a small file of it.
    fn read(&self, path: &str) -> io::Result<String> {
        read(self.open(path, OFlags::RDONLY)?.into())
    }

    fn stat(&self, path: &str, id: u32) -> io::Result<Stat> {
        let line = self.read(path).map_err(vanished)?;
        Stat::parse(line.as_bytes(), id).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "its stat file has no line for this id",
            )
        })
    }

    /// Returns the data of a process (its leader thread). `NotFound` also if `/proc` hides it.
    pub fn of_process(&self, pid: u32) -> io::Result<Stat> {
        self.stat(&format!("{pid}/stat"), pid)
    }

    /// Returns the data of a thread. `NotFound` also if `/proc` hides it.
    pub fn of_thread(&self, pid: u32, tid: u32) -> io::Result<Stat> {
        self.stat(&format!("{pid}/task/{tid}/stat"), tid)
    }
}

/// Reads the small file `file` of `/proc` by one read of a page. (Its reported size means nothing,
/// so the standard library begins with a few bytes and makes seven reads. A restart waits for
/// several of these files.)
fn read(mut file: File) -> io::Result<String> {
    let mut page = vec![0; 4096];
    let mut there = 0;
    loop {
        match file.read(&mut page[there..]) {
            Ok(0) => break,
            Ok(more) => there += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if there == page.len() {
            page.resize(2 * there, 0);
        }
    }
    page.truncate(there);
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Converts `ESRCH`, the error if a process ends between the opening and the reading of its file.
fn vanished(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => io::ErrorKind::NotFound.into(),
        _ => error,
    }
}

/// Returns whether process `pid` has no thread `tid`. Works also where `/proc` is hidden.
pub(super) fn no_such_thread(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 is never sent; the call only checks whether it could be.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    answer == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Returns whether `thread`, of this operating system, exists. `namespaces` are those in which its
/// start time was read.
pub(super) fn liveness(thread: ThreadIdentity, namespaces: u64) -> Liveness {
    let (pid, tid) = (thread.process.pid, thread.tid);
    // The kernel's own list of the threads of this PID namespace, whatever `/proc` is.
    if no_such_thread(pid, tid) {
        return Liveness::Gone;
    }
    let is_over = |stat: Stat| differ(stat.start_time, thread.start_time) || stat.is_dead();
    let has_ended = |proc: io::Result<Proc>| {
        let stat = proc.and_then(|proc| proc.of_thread(pid, tid));
        stat.map(is_over)
    };
    // Most threads live, so the first check uses any `/proc`; a death is proved by this
    // namespace's.
    match has_ended(Proc::any()) {
        Ok(false) => Liveness::Exists,
        Ok(true) if matches!(has_ended(Proc::own(namespaces)), Ok(true)) => Liveness::Gone,
        // It may have ended since, or be hidden (hidepid=).
        _ if no_such_thread(pid, tid) => Liveness::Gone,
        _ => Liveness::Unknown,
    }
}

/// Returns whether two start times are known to be different. 0 stands for an unknown one.
pub(super) fn differ(one: u64, other: u64) -> bool {
    one != other && one != 0 && other != 0
}

/// Returns whether no thread of this PID namespace has the id `tid`.
pub(super) fn no_such_tid(tid: u32) -> bool {
    // SAFETY: signal 0 is never sent; the call only checks whether it could be.
    let answer = unsafe { libc::syscall(libc::SYS_tkill, tid, 0) };
    answer == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Returns whether a thread of this process has the id `tid`.
pub(super) fn is_thread_of_this_process(tid: u32) -> bool {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), tid, 0) == 0 }
}

/// Returns the start time of process `pid`: 0 if it is not known here, `None` if there is no such
/// process.
pub(super) fn start_time_of(pid: u32, namespaces: u64) -> Option<u64> {
    let Ok(proc) = Proc::own(namespaces) else {
        return Some(0);
    };
    proc.of_process(pid).ok().map(|stat| stat.start_time)
}

/// Returns the identity of this process. Its start time is read each time: a forked child has its
/// own, and in another time namespace it is another number.
pub(super) fn this_process(namespaces: u64) -> Result<ProcessIdentity, OsError> {
    let pid = std::process::id();
    let start_time = match Proc::own(namespaces) {
        Ok(proc) => proc.of_process(pid).map(|stat| stat.start_time),
        // The start time is not known, and a wrong one would prove that this process is gone.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(0),
        Err(error) => Err(error),
    };
    let start_time = start_time.map_err(|source| no_proc("/proc/PID/stat", source))?;
    Ok(ProcessIdentity { pid, start_time })
}

/// Returns the identity of the calling thread, of `process`.
pub(super) fn this_thread(process: ProcessIdentity, namespaces: u64) -> ThreadIdentity {
    let tid = this_tid();
    let stat = Proc::own(namespaces).and_then(|proc| proc.of_thread(process.pid, tid));
    ThreadIdentity {
        process,
        tid,
        // 0 if not known: see `this_process`.
        start_time: stat.map_or(0, |stat| stat.start_time),
    }
}

/// Returns the id of the calling thread. It is not cached, since a forked child has another one.
pub(super) fn this_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// The scope in which the ids of this process's threads are valid, as a part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The id of this boot.
    pub boot: u128,
    /// The inode numbers of the PID namespace (upper half) and the time namespace (lower half).
    /// They are unique among existing namespaces.
    pub namespaces: u64,
}

impl Place {
    pub(super) fn of_this_process() -> Result<Self, OsError> {
        let boot = File::open(Path::new("/proc/sys").join(BOOT_ID)).and_then(boot_id);
        let boot = boot.map_err(|source| no_proc("/proc/sys/kernel/random/boot_id", source))?;
        // Even in the /proc of another namespace the links lead to the namespaces of the reading
        // thread. (The process has no time namespace when its first thread has ended; kernels
        // before 5.6 have none.) But files of another kind of directory would be the same in every
        // namespace.
        let namespaces = Proc::any().and_then(|proc| match proc.is_procfs() {
            true => proc.namespaces(),
            false => Err(io::Error::other("it is not a procfs")),
        });
        let namespaces = namespaces.map_err(|source| no_proc("/proc/thread-self/ns", source))?;
        Ok(Self { boot, namespaces })
    }
}

/// Reads a boot id.
fn boot_id(file: File) -> io::Result<u128> {
    let text = read(file)?.trim().replace('-', "");
    u128::from_str_radix(&text, 16)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Returns the boot id of the kernel. A container may have another file, directory or link in its
/// place; then this is an error.
fn boot_of_kernel() -> io::Result<u128> {
    let proc = Proc::any()?;
    if !proc.is_procfs() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // Container runtimes mount the directory `sys` once more at its place, read-only. Of all the
    // directories of a procfs only this one has the file below it.
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let sys = Proc {
        root: openat(&proc.root, "sys", directory, Mode::empty())?,
    };
    if !sys.is_procfs() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let (flags, mode) = (OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    let file = openat2(&sys.root, BOOT_ID, flags, mode, resolve)?;
    boot_id(file.into())
}

/// Returns the id of this machine, which stays the same over its boots; 0 if it is not known, or if
/// `its_boot` is not the boot id of the kernel: the boot of a container with a boot id of its own
/// would be taken for an earlier one of this machine.
pub(super) fn machine(its_boot: u128) -> u128 {
    if !boot_of_kernel().is_ok_and(|boot| boot == its_boot) {
        return 0;
    }
    let id = fs::read_to_string("/etc/machine-id").ok();
    id.and_then(|id| u128::from_str_radix(id.trim(), 16).ok())
        .unwrap_or(0)
}

fn no_proc(what: &'static str, source: io::Error) -> OsError {
    let hint = match crate::segment::hint(&source) {
        "" => "; mount /proc",
        hint => hint,
    };
    OsError::Missing {
        what,
        hint: format!("it could not be read ({source}){hint}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let tail = "S 1 2 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 17 0 4711 9 10";
        for name in ["sh", "a b", "x) R 1 (y", ")", "S 1 2 (("] {
            let line = format!("42 ({name}) {tail}\n");
            let stat = Stat::parse(line.as_bytes(), 42).unwrap();
            assert_eq!(
                (stat.state, stat.threads, stat.start_time),
                (b'S', 17, 4711)
            );
        }
        let other = format!("421 (sh) {tail}");
        for broken in [
            &*other,
            "",
            "42",
            "42 (sh)",
            "42 (sh) S 1 2",
            "42 (sh S 1 2 3",
        ] {
            assert_eq!(Stat::parse(broken.as_bytes(), 42), None, "{broken:?}");
        }
    }

    #[test]
    fn a_recycled_id_is_not_the_thread() {
        let here = Place::of_this_process().unwrap().namespaces;
        let liveness = |thread| liveness(thread, here);
        let this = this_thread(this_process(here).unwrap(), here);
        assert_ne!(this.start_time, 0);
        assert_eq!(liveness(this), Liveness::Exists);
        let earlier = ThreadIdentity {
            start_time: this.start_time - 1,
            ..this
        };
        assert_eq!(liveness(earlier), Liveness::Gone);
        let nowhere = ThreadIdentity {
            tid: u32::MAX >> 2,
            ..this
        };
        assert_eq!(liveness(nowhere), Liveness::Gone);
    }
}
