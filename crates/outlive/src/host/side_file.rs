//! The side file: what dies with a boot. One for each pod and operating system, in `/dev/shm`.
//!
//! It holds the obituaries and the bells. They cannot live in the pod's segment: thread ids mean
//! something to one kernel and pid namespace only, the robust list holds addresses, and futexes do not
//! work on every memory that a segment may lie in. Its name says whose it is:
//! `outlive.POD.BOOT.NAMESPACE`.
//!
//! ```text
//! page 0                     header: never changes once the file has its name
//! BELLS lines of 64 bytes    one bell each, in the first 4 bytes
//! one line for each id       the obituary: its word, its robust list entry, its holder
//! ```
//!
//! **Creation.** The file is made without a name, filled and locked, and then given its name by a link,
//! which fails if somebody was quicker. So under its name it is always complete; a creator who is killed
//! leaves nothing. (Where a filesystem has no nameless files it is made under another name first, which
//! the clean-up knows.)
//!
//! **Removal.** Everybody who maps the file holds a shared lock on it (flock), which the kernel drops
//! with the process. Who removes it takes the lock for itself, so a side file in use is never removed;
//! who opens it looks, after the lock, whether the file still has its name, and starts again if not.
//!
//! **Memory.** All pages are reserved at creation (a full `/dev/shm` is an error then, not a SIGBUS
//! later), and locked where the limit allows, because the kernel marks a word by an ordinary write. The
//! mapping is not inherited by fork: a child whose parent's thread was marked can write nothing here, nor
//! follow the parent's robust list. It is never unmapped, so that an obituary can be held as long as a
//! thread lives.

use super::robust::{Entry, LINK_AT, RobustList};
use super::side_file_name::{UNFINISHED, name, remove_earlier, remove_locked, still_named};
use super::{Bells, OsError, OsIdentity, futex, futex::last_error};
use bytemuck::{Pod, Zeroable};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, Gid, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where the processes of an operating system meet.
pub(super) const MEETING: &str = "/dev/shm";

const MAGIC: [u8; 8] = *b"OUTLside";
const VERSION: u32 = 1;
const PAGE: usize = 4096;
const LINE: usize = 64;
/// How many bells there are. More make it rarer that two keys share one.
const BELLS: usize = 1024;
const BELL_BITS: u32 = BELLS.trailing_zeros();
/// Where in its line an obituary's entry has its link. With glibc the word is then at byte 8, with musl
/// at byte 12; around them lies what those libraries would have in a mutex.
const ENTRY_LINK_AT: usize = 40;
/// Where in its line the holder's id is kept, since the kernel's mark erases it from the word.
const HOLDER_AT: usize = 48;
/// The holder's process, and when the thread started: what tells it from others that had its id.
const HOLDER_PID_AT: usize = 52;
const HOLDER_START_AT: usize = 56;
/// glibc's futex offset on every 64-bit architecture, and musl's.
const FUTEX_OFFSETS: [isize; 2] = [-32, -28];

/// Who may use a pod's side file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The permission bits, whatever the umask.
    pub mode: u32,
    /// The group it is to belong to, if not that of its creator.
    pub group: Option<u32>,
}

impl Default for Access {
    /// For this user only.
    fn default() -> Self {
        Self {
            mode: 0o600,
            group: None,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
struct Header {
    magic: [u8; 8],
    version: u32,
    obituaries: u32,
    pod: [u64; 2],
    boot: [u64; 2],
    pid_namespace: u64,
    bells: u32,
    /// Where in its line an obituary's word is: the creator's C library decided.
    word_at: u32,
    reserved: u32,
    /// CRC32 of all before.
    checksum: u32,
}

impl Header {
    fn new(pod: u128, os: OsIdentity, obituaries: u32, word_at: usize) -> Self {
        let mut header = Self {
            magic: MAGIC,
            version: VERSION,
            obituaries,
            pod: halves(pod),
            boot: halves(os.boot),
            pid_namespace: os.pid_namespace,
            bells: BELLS as u32,
            word_at: word_at as u32,
            reserved: 0,
            checksum: 0,
        };
        header.checksum = header.sum();
        header
    }

    fn sum(&self) -> u32 {
        let bytes = bytemuck::bytes_of(self);
        crc32fast::hash(&bytes[..bytes.len() - 4])
    }
}

fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

/// A mapped side file.
#[derive(Debug)]
pub(super) struct SideFile {
    base: NonNull<u8>,
    obituaries: u32,
    word_at: usize,
    path: PathBuf,
    /// Held open for its shared lock.
    file: File,
}

// SAFETY: what the mapping holds is read and written by atomics, or (entries) by the one thread that
// holds the obituary; the mapping is never undone.
unsafe impl Send for SideFile {}
// SAFETY: as above.
unsafe impl Sync for SideFile {}

impl SideFile {
    /// Opens the side file of `pod`, or creates it with `obituaries` obituaries.
    pub(super) fn attach(
        meeting: &Path,
        pod: u128,
        os: OsIdentity,
        obituaries: u32,
        access: Access,
    ) -> Result<Self, OsError> {
        let path = meeting.join(name(pod, os));
        loop {
            let file = match open(&path, access)? {
                Some(file) => file,
                None => {
                    remove_earlier(meeting, pod, os);
                    let word_at = ENTRY_LINK_AT.strict_add_signed(futex_offset()?);
                    let header = Header::new(pod, os, obituaries, word_at);
                    match create(&path, &header, access)? {
                        Some(file) => file,
                        None => continue, // somebody was quicker
                    }
                }
            };
            if !still_named(&file, &path)? {
                continue; // removed between opening and locking
            }
            let header = check(&file, &path, pod, os, obituaries)?;
            return Self::map(file, &path, header);
        }
    }

    fn map(file: File, path: &Path, header: Header) -> Result<Self, OsError> {
        let bytes = file_bytes(header.obituaries);
        // SAFETY: a new shared mapping at an address of the kernel's choice; the file has that size
        // (checked) and nobody truncates it.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(last_error(format!("mapping {}", path.display())));
        }
        // SAFETY: the mapping is ours. Without MADV_DONTFORK a forked child could write here after its
        // parent's obituary, so failing that is failing.
        unsafe {
            if libc::madvise(base, bytes, libc::MADV_DONTFORK) != 0 {
                let error = last_error(format!("MADV_DONTFORK on {}", path.display()));
                libc::munmap(base, bytes);
                return Err(error);
            }
            // Keeps it out of core dumps; failing that costs nothing but their size.
            libc::madvise(base, bytes, libc::MADV_DONTDUMP);
            if libc::mlock(base, bytes) != 0 {
                tracing::warn!(
                    error = %io::Error::last_os_error(), bytes,
                    "the side file is not locked in memory; under memory pressure an obituary may \
                     come late: raise RLIMIT_MEMLOCK"
                );
            }
        }
        Ok(Self {
            base: NonNull::new(base.cast()).expect("mmap returned null"),
            obituaries: header.obituaries,
            word_at: header.word_at as usize,
            path: path.to_owned(),
            file,
        })
    }

    /// Removes the file, which this process itself has attached, unless another process has too.
    pub(super) fn remove(&self) -> Result<bool, OsError> {
        let removed = remove_locked(&self.file, &self.path);
        // The exclusive lock, had or not, replaced our shared one.
        lock(&self.file, &self.path)?;
        removed
    }

    /// How many obituaries there are.
    pub(super) fn obituaries(&self) -> u32 {
        self.obituaries
    }

    /// The word of obituary `slot`.
    pub(super) fn word(&self, slot: u32) -> &AtomicU32 {
        self.atomic(self.line(slot) + self.word_at)
    }

    /// The id of the holder of obituary `slot`, or 0.
    pub(super) fn holder(&self, slot: u32) -> &AtomicU32 {
        self.atomic(self.line(slot) + HOLDER_AT)
    }

    /// The process of the holder of obituary `slot`.
    pub(super) fn holder_pid(&self, slot: u32) -> &AtomicU32 {
        self.atomic(self.line(slot) + HOLDER_PID_AT)
    }

    /// When the holder of obituary `slot` started, or 0 if that is not known.
    pub(super) fn holder_start(&self, slot: u32) -> &AtomicU64 {
        let at = self.line(slot) + HOLDER_START_AT;
        // SAFETY: inside the mapping, which is never undone, and aligned to 8; accessed by atomics of
        // this size only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// The inode of the file: one for as long as anybody has it mapped.
    pub(super) fn inode(&self) -> u64 {
        self.file.metadata().map_or(0, |file| file.ino())
    }

    /// The robust list entry of obituary `slot`, for a thread whose list is `list`.
    pub(super) fn entry(&self, slot: u32, list: &RobustList) -> Result<*mut Entry, OsError> {
        if ENTRY_LINK_AT.strict_add_signed(list.futex_offset()) != self.word_at {
            return Err(OsError::Missing {
                what: "a side file for this C library",
                hint:
                    "the members of a pod on one operating system must all use glibc, or all musl"
                        .into(),
            });
        }
        let line = self.line(slot);
        if self.word_at != 8 {
            // musl's pthread_exit walks the list too and takes our line for a mutex at byte 8, whose
            // type says whether its futex is shared.
            self.atomic(line + 8).store(128, Ordering::Relaxed);
        }
        // SAFETY: inside the mapping.
        Ok(unsafe {
            self.base
                .as_ptr()
                .add(line + ENTRY_LINK_AT - LINK_AT)
                .cast()
        })
    }

    /// The bell that `key` is hashed to.
    pub(super) fn bell(&self, key: u64) -> &AtomicU32 {
        // Fibonacci hashing: neighbouring keys get different bells.
        let bell = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - BELL_BITS);
        self.atomic(PAGE + bell as usize * LINE)
    }

    fn line(&self, slot: u32) -> usize {
        assert!(
            slot < self.obituaries,
            "obituary {slot} of {}",
            self.obituaries
        );
        PAGE + (BELLS + slot as usize) * LINE
    }

    fn atomic(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `at` is inside the mapping, which is never undone, and aligned to 4; these words are
        // accessed by atomics (and by the kernel) at this size only.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }
}

/// The lowest bit of a bell: somebody sleeps on it, so a ring must call the kernel. A ring clears it, so
/// a sleeper who was killed costs one call in vain. The count is in the other bits.
const SLEEPER: u32 = 1;

/// Sleeps on `bell` only if it can be marked as slept on and still has the count `seen`; returns the
/// value to sleep on.
pub(super) fn mark_sleeper(bell: &AtomicU32, seen: u32) -> Option<u32> {
    // Relaxed: this word alone decides. The ring's exchange comes before ours (and this fails) or after
    // it (and the ring sees the sleeper).
    match bell.compare_exchange(seen, seen | SLEEPER, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Some(seen | SLEEPER),
        Err(now) => (now == seen | SLEEPER).then_some(now),
    }
}

impl Bells for SideFile {
    fn read(&self, key: u64) -> u32 {
        // Acquire: who sees the ring sees the change that it tells of.
        self.bell(key).load(Ordering::Acquire) & !SLEEPER
    }

    fn wait(&self, key: u64, seen: u32, timeout: Duration) {
        let bell = self.bell(key);
        if let Some(value) = mark_sleeper(bell, seen & !SLEEPER) {
            futex::wait(bell, value, timeout);
        }
    }

    fn ring(&self, key: u64) {
        let bell = self.bell(key);
        let raise = |old: u32| Some((old & !SLEEPER).wrapping_add(2));
        // AcqRel: release, for the change that is told of.
        if let Ok(old) = bell.fetch_update(Ordering::AcqRel, Ordering::Relaxed, raise)
            && old & SLEEPER != 0
        {
            futex::wake_all(bell);
        }
    }
}

fn file_bytes(obituaries: u32) -> usize {
    (PAGE + (BELLS + obituaries as usize) * LINE).next_multiple_of(PAGE)
}

pub(super) fn failed(doing: &str, path: &Path, error: Errno) -> OsError {
    OsError::Call {
        call: format!("{doing} {}", path.display()),
        source: error.into(),
    }
}

/// Opens and locks an existing file; `None` if there is none.
fn open(path: &Path, access: Access) -> Result<Option<File>, OsError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(failed("opening", path, error)),
    };
    let stat = rustix::fs::fstat(&file).map_err(|error| failed("stat of", path, error))?;
    // /dev/shm is open to all: a private side file that another user has put there is a trap.
    let mine = stat.st_uid == rustix::process::geteuid().as_raw() || stat.st_uid == 0;
    if !mine && access.mode & 0o022 == 0 {
        return Err(refused(path, "it belongs to another user"));
    }
    lock(&file, path)?;
    Ok(Some(file.into()))
}

/// Waits for a remover, who holds the lock for a moment only.
fn lock(file: impl AsFd, path: &Path) -> Result<(), OsError> {
    rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockShared))
        .map_err(|error| failed("locking", path, error))
}

/// Makes the file and gives it its name; `None` if another has it already.
fn create(path: &Path, header: &Header, access: Access) -> Result<Option<File>, OsError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mode = Mode::from_raw_mode(0o600);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        Ok(file) => {
            fill(&file, path, header, access)?;
            let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
            finish(file, path, |to| {
                rustix::fs::linkat(CWD, &nameless, CWD, to, AtFlags::SYMLINK_FOLLOW)
            })
        }
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            // No nameless files here: under a name of its own that is removed right after. Two creators
            // take turns; what a killed one left is replaced.
            let unfinished = PathBuf::from(format!("{}.{UNFINISHED}", path.display()));
            let _ = rustix::fs::unlink(&unfinished);
            let file =
                match rustix::fs::open(&unfinished, flags | OFlags::CREATE | OFlags::EXCL, mode) {
                    Ok(file) => file,
                    Err(Errno::EXIST) => return Ok(None),
                    Err(error) => return Err(failed("creating", &unfinished, error)),
                };
            fill(&file, &unfinished, header, access)?;
            let file = finish(file, path, |to| rustix::fs::link(&unfinished, to));
            let _ = rustix::fs::unlink(&unfinished);
            file
        }
        Err(error) => Err(failed("creating a file in", directory, error)),
    }
}

fn fill(file: &OwnedFd, path: &Path, header: &Header, access: Access) -> Result<(), OsError> {
    let bytes = file_bytes(header.obituaries) as u64;
    rustix::fs::ftruncate(file, bytes).map_err(|error| failed("sizing", path, error))?;
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => {}
        Err(Errno::NOSPC) => {
            return Err(OsError::Missing {
                what: "space for the side file",
                hint: format!(
                    "{MEETING} has no {bytes} bytes left; remove what lies there, or make it larger \
                     (mount -o remount,size=…; --shm-size for a container)"
                ),
            });
        }
        Err(error) => return Err(failed("reserving", path, error)),
    }
    let written = rustix::io::pwrite(file, bytemuck::bytes_of(header), 0)
        .map_err(|error| failed("writing", path, error))?;
    assert_eq!(
        written,
        size_of::<Header>(),
        "a short write to a reserved page"
    );
    if let Some(group) = access.group {
        rustix::fs::fchown(file, None, Some(Gid::from_raw(group)))
            .map_err(|error| failed("giving away", path, error))?;
    }
    // After the owner, whose change would take bits away; and whatever the umask.
    rustix::fs::fchmod(file, Mode::from_raw_mode(access.mode))
        .map_err(|error| failed("setting the mode of", path, error))
}

fn finish(
    file: OwnedFd,
    path: &Path,
    link: impl FnOnce(&Path) -> rustix::io::Result<()>,
) -> Result<Option<File>, OsError> {
    lock(&file, path)?;
    match link(path) {
        Ok(()) => Ok(Some(file.into())),
        Err(Errno::EXIST) => Ok(None),
        Err(error) => Err(failed("naming", path, error)),
    }
}

fn refused(path: &Path, why: &str) -> OsError {
    OsError::Refused {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

/// Reads the header of an open file and compares it with what is wanted.
fn check(
    file: &File,
    path: &Path,
    pod: u128,
    os: OsIdentity,
    obituaries: u32,
) -> Result<Header, OsError> {
    let refused = |why: String| refused(path, &why);
    let mut header = Header::zeroed();
    file.read_exact_at(bytemuck::bytes_of_mut(&mut header), 0)
        .map_err(|error| refused(format!("its header cannot be read ({error})")))?;
    if header.magic != MAGIC {
        return Err(refused("it is no side file of outlive".into()));
    }
    if header.version != VERSION {
        return Err(refused(format!(
            "it has format version {}, this program knows {VERSION}",
            header.version
        )));
    }
    if header.checksum != header.sum() {
        return Err(refused("its header is damaged".into()));
    }
    let words = FUTEX_OFFSETS.map(|offset| ENTRY_LINK_AT.strict_add_signed(offset));
    if (header.pod, header.boot, header.pid_namespace)
        != (halves(pod), halves(os.boot), os.pid_namespace)
        || header.bells != BELLS as u32
        || !words.contains(&(header.word_at as usize))
    {
        return Err(refused("its header and its name do not agree".into()));
    }
    if header.obituaries != obituaries {
        return Err(refused(format!(
            "it has {} obituaries and the pod {obituaries} ids",
            header.obituaries
        )));
    }
    let bytes = file.metadata().map_or(0, |file| file.len());
    if bytes != file_bytes(obituaries) as u64 {
        return Err(refused(format!("it has {bytes} bytes")));
    }
    Ok(header)
}

/// The futex offset of the calling thread's C library, if it is one whose entries we know.
fn futex_offset() -> Result<isize, OsError> {
    let offset = RobustList::of_this_thread()?.futex_offset();
    if !FUTEX_OFFSETS.contains(&offset) {
        return Err(OsError::Missing {
            what: "a robust list of known layout",
            hint: format!(
                "the C library's futex offset is {offset}; glibc and musl have {FUTEX_OFFSETS:?}"
            ),
        });
    }
    Ok(offset)
}
