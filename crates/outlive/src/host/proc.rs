//! What `/proc` says of processes and threads, and where ids mean something.

use super::{Liveness, OsError, ProcessIdentity, ThreadIdentity};
use crate::fork;
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::io::Errno;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::{fs, io};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The kernel's number for procfs (`PROC_SUPER_MAGIC`).
const PROC: u32 = 0x9fa0;

/// What one line of `/proc/PID/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) state: u8,
    pub(super) threads: u64,
    pub(super) start_time: u64,
}

impl Stat {
    /// Whether the thread executes no more: a zombie, or dead and about to vanish.
    pub(super) fn is_dead(self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Parses a line. The second field is the program's name in parentheses and may itself hold spaces
    /// and parentheses, so the fields are counted from the last `)`.
    fn parse(line: &[u8]) -> Option<Self> {
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

    fn read(path: &str) -> io::Result<Self> {
        Self::parse(read(path)?.as_bytes())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a line of stat"))
    }

    /// Of a process (its leader thread). `NotFound` also where `/proc` hides it.
    pub(super) fn of_process(pid: u32) -> io::Result<Self> {
        Self::read(&format!("/proc/{pid}/stat")).map_err(vanished)
    }

    /// Of a thread. `NotFound` also where `/proc` hides it.
    pub(super) fn of_thread(pid: u32, tid: u32) -> io::Result<Self> {
        Self::read(&format!("/proc/{pid}/task/{tid}/stat")).map_err(vanished)
    }
}

/// Reads the small file `path` of `/proc` by one read of a page. (Its reported size means nothing,
/// so the standard library begins with a few bytes and makes seven reads. A restart waits for
/// several of these files.)
fn read(path: &str) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
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

/// A process that ends between the opening and the reading of its file is `ESRCH`.
fn vanished(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => io::ErrorKind::NotFound.into(),
        _ => error,
    }
}

/// Whether the kernel knows no thread `tid` in process `pid`. It answers also where `/proc` is hidden.
pub(super) fn no_such_thread(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 is never sent; the call only looks whether it could be.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    answer == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Whether `thread`, of this operating system, exists.
pub(super) fn liveness(thread: ThreadIdentity) -> Liveness {
    let pid = thread.process.pid;
    if !is_own() {
        // The kernel's own list of threads, which is that of this PID namespace.
        return if no_such_thread(pid, thread.tid) {
            Liveness::Gone
        } else {
            Liveness::Unknown
        };
    }
    let is_over = |stat: Stat| differ(stat.start_time, thread.start_time) || stat.is_dead();
    match Stat::of_thread(pid, thread.tid) {
        Ok(stat) if is_over(stat) => {
            // This would be a proof of death, so it is checked again, and the mount of /proc too.
            let is_sure =
                is_own_now() && Stat::of_thread(pid, thread.tid).is_ok_and(is_over) && is_own_now();
            if is_sure {
                Liveness::Gone
            } else {
                Liveness::Unknown
            }
        }
        Ok(_) => Liveness::Exists,
        // Not there, or hidden (hidepid=): the kernel tells which.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if no_such_thread(pid, thread.tid) {
                Liveness::Gone
            } else {
                Liveness::Unknown
            }
        }
        Err(_) => Liveness::Unknown,
    }
}

/// Returns whether two start times are known to be different. 0 stands for an unknown one.
pub(super) fn differ(one: u64, other: u64) -> bool {
    one != other && one != 0 && other != 0
}

/// Returns whether no thread of this PID namespace has the id `tid`.
pub(super) fn no_such_tid(tid: u32) -> bool {
    // SAFETY: signal 0 is never sent; the call only looks whether it could be.
    let answer = unsafe { libc::syscall(libc::SYS_tkill, tid, 0) };
    answer == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Returns whether a thread of this process has the id `tid`.
pub(super) fn is_thread_of_this_process(tid: u32) -> bool {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), tid, 0) == 0 }
}

/// Returns the start time of process `pid`; `None` if it cannot be read.
pub(super) fn start_time_of(pid: u32) -> Option<u64> {
    if !is_own() {
        return None;
    }
    Stat::of_process(pid).ok().map(|stat| stat.start_time)
}

/// This process. Its start time is read each time: a forked child has its own, and in another time
/// namespace it is another number.
pub(super) fn this_process() -> Result<ProcessIdentity, OsError> {
    let pid = std::process::id();
    let start_time = if is_own() {
        let stat = Stat::of_process(pid).map_err(|source| no_proc("/proc/PID/stat", source))?;
        stat.start_time
    } else {
        0
    };
    Ok(ProcessIdentity { pid, start_time })
}

/// The calling thread of `process`.
pub(super) fn this_thread(process: ProcessIdentity) -> ThreadIdentity {
    let tid = this_tid();
    // 0 (not known) where it cannot be read: a wrong start time would prove that this thread is
    // gone.
    let start_time = match is_own() {
        true => Stat::of_thread(process.pid, tid).map_or(0, |stat| stat.start_time),
        false => 0,
    };
    ThreadIdentity {
        process,
        tid,
        start_time,
    }
}

/// The id of the calling thread. Asked each time: a forked child has another than it remembers.
pub(super) fn this_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Returns whether `/proc` is that of this process's own PID namespace, so that its ids are those
/// that this process knows. Then the process has exactly one id there, its own. (In the `/proc` of
/// a parent namespace it has two; in that of a child or a sibling, and without `/proc`, it has no
/// line at all.)
pub(super) fn is_own() -> bool {
    /// The number of the process that checked last (`fork.rs`), and the result in the lowest bit. A
    /// forked child checks again.
    static ANSWER: AtomicU64 = AtomicU64::new(0);
    let me = fork::generation();
    // Relaxed: the word alone is the answer.
    let known = ANSWER.load(Ordering::Relaxed);
    if known >> 1 == me {
        return known & 1 != 0;
    }
    let is_own = is_own_now();
    ANSWER.store(me << 1 | u64::from(is_own), Ordering::Relaxed);
    is_own
}

/// As [`is_own`], but checks again: another `/proc` may have been mounted over this one since.
fn is_own_now() -> bool {
    let pid = std::process::id();
    let status = read("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.is_some_and(|line| line.split_whitespace().eq([pid.to_string()]))
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
        let boot = read(BOOT_ID).map_err(|source| no_proc(BOOT_ID, source))?;
        let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16)
            .map_err(|error| no_proc(BOOT_ID, io::Error::new(io::ErrorKind::InvalidData, error)))?;
        // Even in the /proc of another namespace the link leads to the namespace of the reading
        // thread. (The process has no time namespace when its first thread has ended.)
        let path = "/proc/thread-self/ns/pid";
        let pid = fs::metadata(path).map_err(|source| no_proc(path, source))?;
        let pid = pid.ino();
        // Kernels before 5.6 have no time namespaces.
        let time = fs::metadata("/proc/thread-self/ns/time").map_or(0, |file| file.ino());
        Ok(Self {
            boot,
            // Numbers of namespaces have 32 bits.
            namespaces: pid << 32 | (time & 0xFFFF_FFFF),
        })
    }
}

/// Returns the id of this machine, which stays the same over its boots; 0 if it is not known, or if
/// this is a container with a boot id of its own: its boot would be taken for an earlier one.
pub(super) fn machine() -> u128 {
    let of_kernel = fs::File::open(BOOT_ID)
        .map_err(|_| Errno::NOENT)
        .and_then(rustix::fs::fstatfs)
        .is_ok_and(|filesystem| filesystem.f_type as u32 == PROC);
    if !of_kernel {
        return 0;
    }
    let id = read("/etc/machine-id").ok();
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
            let stat = Stat::parse(line.as_bytes()).unwrap();
            assert_eq!(
                (stat.state, stat.threads, stat.start_time),
                (b'S', 17, 4711)
            );
        }
        for broken in ["", "42", "42 (sh)", "42 (sh) S 1 2", "42 (sh S 1 2 3"] {
            assert_eq!(Stat::parse(broken.as_bytes()), None, "{broken:?}");
        }
    }

    #[test]
    fn a_recycled_id_is_not_the_thread() {
        let this = this_thread(this_process().unwrap());
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
