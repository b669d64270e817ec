//! The side file: what dies with a boot. One for each pod and operating system, in `/dev/shm`.
//!
//! It holds the obituaries and the bells. They cannot live in the pod's segment: thread ids mean
//! something to one kernel and PID namespace only, the robust list holds addresses, and futexes do not
//! work on every memory that a segment may lie in. Its name says where its users meet:
//! `outlive.POD.BOOT.NAMESPACES`. What identifies the operating system is the random number in its header.
//!
//! ```text
//! page 0                     header: never changes once the file has its name
//! BELLS lines of 64 bytes    one bell each, in the first 4 bytes
//! 16 bytes for each id       the holder of its obituary: thread id, process id, start time
//! a page for three ids       the words of their obituaries, in its last 24 bytes (`window.rs` says why)
//! ```
//!
//! **Creation.** The file is made without a name, filled and locked, and then given its name by a link,
//! which fails if another process was quicker. So under its name it is always complete; a creator that is killed
//! leaves nothing. (Where a filesystem has no nameless files it is made under another name first, which
//! the clean-up knows.)
//!
//! **Use.** Every process that maps the file has a read lock on its first byte, which its mapping keeps. A process that
//! attaches and finds no such lock is alone: it *clears* the file under a write lock before it uses it. So an obituary that an
//! earlier user left (of another PID namespace, say, that had the same number) is never taken for a living thread's. A kill
//! in the middle leaves a file that says so, and is cleared by the next. The number stays: all earlier users are dead, and their
//! obituaries vacant, which is what the table of generations is compared with.
//!
//! **Removal.** A process that removes the file takes the write lock, so a side file in use is never removed; a process that
//! opens it looks, after the lock, whether the file still has its name, and starts again if not.
//!
//! **Trust.** `/dev/shm` is open to all, and the name can be guessed. A file is used only if it is a regular file that belongs to
//! this user, to root or to the owner of the pod's file; or, where the group may use the pod, to the pod's group, which a user
//! outside the group cannot give it. Any other file at the name is passed over, and the next of a few names is taken.
//!
//! **Memory.** All pages are reserved at creation (a full `/dev/shm` is an error then, not a SIGBUS
//! later). The pages by which the kernel marks a word are locked where the limit allows. The
//! mapping is not inherited by fork: a child whose parent's thread was marked can write nothing here, nor
//! follow the parent's robust list. Its addresses are never released, so no handle on it can come
//! to point at another mapping.

use super::proc::Place;
use super::robust::{Entry, OWNER_DIED, RobustList, TID};
use super::side_file_name::{NAMES, UNFINISHED, name, remove_locked, remove_unused, still_named};
use super::window::{WORDS, Window, cell_at};
use super::{Bells, OsError, PodFile, futex, futex::last_error};
use crate::fork;
use crate::segment::ofd::{self, Kind};
use crate::segment::{Registered, can_link, set_mode};
use bytemuck::{Pod, Zeroable};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Where the processes of an operating system meet.
pub(crate) const MEETING: &str = "/dev/shm";

const MAGIC: [u8; 8] = *b"OUTLside";
const VERSION: u32 = 2;
/// The byte whose lock says that the file is used.
pub(super) const USE_BYTE: libc::off_t = 0;
/// The byte of slot 0, whose lock is that of a process that clears an obituary which the kernel did not mark.
const CLEAR_BYTE: libc::off_t = 1;
/// Where in page 0 it stands that the file is being cleared: not zero from before the first byte is until after the last.
const DIRTY_AT: u64 = 1024;
/// For how long a process waits for one that clears or removes the file, which takes a moment.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it sleeps between two tries.
const PAUSE: Duration = Duration::from_micros(200);
const PAGE: usize = 4096;
const LINE: usize = 64;
/// How many bells there are. More make it rarer that two keys share one.
const BELLS: usize = 1024;
const BELL_BITS: u32 = BELLS.trailing_zeros();
/// The size of what is kept of a holder, and where in it: its thread id, since the kernel's mark erases it from the word;
/// its process, and when the thread started, which tell it from others that had its id.
const HOLDER: usize = 16;
const HOLDER_PID_AT: usize = 4;
const HOLDER_START_AT: usize = 8;
const HOLDERS_AT: usize = PAGE + BELLS * LINE;
/// glibc's futex offset on every 64-bit architecture, and musl's.
const FUTEX_OFFSETS: [isize; 2] = [-32, -28];

/// Where in its cell the word of an obituary is for a C library with this futex offset.
fn word_in_cell(futex_offset: isize) -> usize {
    (32 + futex_offset) as usize
}

/// Who may use a pod's side file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The permission bits, whatever the umask.
    pub mode: u32,
    /// The group it is to belong to, if not that of its creator.
    pub group: Option<u32>,
    /// The user it is to belong to, if not its creator: the owner of the pod's file.
    pub owner: Option<u32>,
}

impl Default for Access {
    /// For this user only.
    fn default() -> Self {
        Self {
            mode: 0o600,
            group: None,
            owner: None,
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
    namespaces: u64,
    /// What identifies the operating system: random.
    id: [u64; 2],
    bells: u32,
    /// Where in its cell an obituary's word is: the creator's C library decided.
    word_at: u32,
    reserved: u32,
    /// CRC32 of all before.
    checksum: u32,
}

impl Header {
    fn new(pod: u128, place: Place, obituaries: u32, word_at: usize) -> Self {
        let mut header = Self {
            magic: MAGIC,
            version: VERSION,
            obituaries,
            pod: halves(pod),
            boot: halves(place.boot),
            namespaces: place.namespaces,
            id: halves(uuid::Uuid::new_v4().as_u128()),
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
    /// In which process of a chain of forks it is mapped: a child has other memory there.
    of: u64,
    obituaries: u32,
    word_at: usize,
    id: u128,
    path: PathBuf,
    /// Held open for its lock, which the mapping keeps too, and for windows. `None` once it is
    /// retired.
    file: RwLock<Option<Arc<File>>>,
    registered: Mutex<Option<Registered>>,
    /// The windows on obituaries that threads of this process hold, or held when they died.
    windows: Mutex<HashMap<u32, Window>>,
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
        place: Place,
        obituaries: u32,
        access: Access,
    ) -> Result<Self, OsError> {
        let mut unfit = None;
        for other in 0..NAMES {
            let path = meeting.join(name(pod, place, other));
            loop {
                let file = match open(&path, access)? {
                    Found::Nothing => {
                        let word_at = word_in_cell(futex_offset()?);
                        let header = Header::new(pod, place, obituaries, word_at);
                        match create(&path, &header, access)? {
                            Some(file) => file,
                            None => continue, // another process was quicker
                        }
                    }
                    Found::Fit(file) => file,
                    // Passed over, and the error told if no name is left.
                    Found::Unfit(why) => {
                        unfit.get_or_insert(refused(&path, why));
                        break;
                    }
                };
                if let Some(side) = Self::begin(file, &path, pod, place, obituaries)? {
                    return Ok(side);
                }
            }
        }
        Err(unfit.expect("there are names"))
    }

    /// Begins to use the open `file`; `None` if it has lost its name since.
    fn begin(
        file: File,
        path: &Path,
        pod: u128,
        place: Place,
        obituaries: u32,
    ) -> Result<Option<Self>, OsError> {
        let is_alone = lock(&file, path)?;
        if !still_named(&file, path)? {
            return Ok(None);
        }
        let checked = check(&file, path, pod, place, obituaries);
        if is_alone && checked.is_err() {
            // Damaged, or of another version; no process uses it, so no member misses it.
            rustix::fs::unlink(path).map_err(|error| failed("removing", path, error))?;
            return Ok(None);
        }
        let header = checked?;
        if !is_alone && is_dirty(&file, path)? {
            // The process that was clearing it died while this one waited. All who see that give their lock back, until one
            // of them is alone.
            std::thread::sleep(PAUSE);
            return Ok(None);
        }
        if is_alone {
            remove_unused(path.parent().unwrap_or(Path::new(MEETING)), pod, place);
            clear(&file, path, obituaries)?;
            // From a write to a read lock, which nothing can prevent.
            ofd::lock(&file, USE_BYTE, Kind::Read).map_err(|error| cannot_lock(path, error))?;
        }
        Self::map(file, path, header).map(Some)
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
                let error = last_error(format!("madvise(MADV_DONTFORK) on {}", path.display()));
                libc::munmap(base, bytes);
                return Err(error);
            }
            // Keeps it out of core dumps; failing that costs nothing but their size.
            libc::madvise(base, bytes, libc::MADV_DONTDUMP);
        }
        let registered = Registered::new(base.cast(), bytes, path);
        Ok(Self {
            base: NonNull::new(base.cast()).expect("mmap returned null"),
            of: fork::generation(),
            obituaries: header.obituaries,
            word_at: header.word_at as usize,
            id: u128::from(header.id[1]) << 64 | u128::from(header.id[0]),
            path: path.to_owned(),
            file: RwLock::new(Some(Arc::new(file))),
            registered: Mutex::new(Some(registered)),
            windows: Mutex::new(HashMap::new()),
        })
    }

    /// Removes the file, which this process itself has attached, unless another process has too.
    pub(super) fn remove(&self) -> Result<bool, OsError> {
        let file = self.file()?;
        let removed = remove_locked(&file, &self.path, || true);
        // Back to a read lock, whether or not it became a write lock.
        ofd::lock(&file, USE_BYTE, Kind::Read).map_err(|error| cannot_lock(&self.path, error))?;
        removed
    }

    /// The file, as the place of its users' presence.
    pub(super) fn pod_file(&self) -> Result<PodFile, OsError> {
        Ok(PodFile::new(self.file()?, &self.path, PAGE as u64))
    }

    fn file(&self) -> Result<Arc<File>, OsError> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        file.clone().ok_or_else(|| OsError::Missing {
            what: "the side file",
            hint: "this process has closed the pod; open it again".into(),
        })
    }

    /// Releases the memory, the descriptor and with it the lock. The addresses stay reserved
    /// without access, since handles on them have no lifetimes. `is_gone` returns whether the
    /// thread that holds an obituary is gone.
    ///
    /// # Errors
    /// [`OsError::InUse`] while a thread of this process holds an obituary: its robust list leads
    /// through a window.
    pub(super) fn retire(&self, is_gone: impl Fn(u32, u32) -> bool) -> Result<(), OsError> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if self.of != fork::generation() {
            windows.clear();
            *self.file.write().unwrap_or_else(PoisonError::into_inner) = None;
            return Ok(());
        }
        let me = std::process::id();
        let is_held = |slot: &u32| {
            let word = self.word(*slot).load(Ordering::Acquire);
            let tid = word & TID;
            let is_ours = self.holder_pid(*slot).load(Ordering::Relaxed) == me;
            tid != 0 && word & OWNER_DIED == 0 && is_ours && !is_gone(*slot, tid)
        };
        if windows.keys().any(is_held) {
            return Err(OsError::InUse {
                path: self.path.clone(),
            });
        }
        // SAFETY: the range is ours; an access to it is a fault from now on.
        let base = unsafe {
            libc::mmap(
                self.base.as_ptr().cast(),
                file_bytes(self.obituaries),
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(last_error("reserving the addresses of a side file"));
        }
        *self
            .registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
        // The windows left are of threads that died: the kernel has walked their robust lists.
        windows.clear();
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// The number of the operating system whose side file this is.
    pub(super) fn id(&self) -> u128 {
        self.id
    }

    /// Runs `clear` while no other process does for the obituary `slot`; `None` if one does. The lock is the kernel's to free
    /// if this process dies in the middle.
    pub(super) fn while_clearing<T>(&self, slot: u32, clear: impl FnOnce() -> T) -> Option<T> {
        // A description of its own, so that threads of one process exclude one another too.
        let file = ofd::reopen(&*self.file().ok()?, &self.path).ok()?;
        let byte = CLEAR_BYTE + libc::off_t::from(slot);
        ofd::lock(&file, byte, Kind::Write).ok()?.then(clear)
    }

    /// How many obituaries there are.
    pub(super) fn obituaries(&self) -> u32 {
        self.obituaries
    }

    /// The word of obituary `slot`.
    pub(super) fn word(&self, slot: u32) -> &AtomicU32 {
        self.atomic(self.cell(slot) + self.word_at)
    }

    /// The id of the holder of obituary `slot`, or 0.
    pub(super) fn holder(&self, slot: u32) -> &AtomicU32 {
        self.atomic(self.holder_at(slot))
    }

    /// The process of the holder of obituary `slot`.
    pub(super) fn holder_pid(&self, slot: u32) -> &AtomicU32 {
        self.atomic(self.holder_at(slot) + HOLDER_PID_AT)
    }

    /// When the holder of obituary `slot` started, or 0 if that is not known.
    pub(super) fn holder_start(&self, slot: u32) -> &AtomicU64 {
        let at = self.holder_at(slot) + HOLDER_START_AT;
        // SAFETY: inside the mapping, which is never undone, and aligned to 8; accessed by atomics of
        // this size only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// A window on obituary `slot`, for a thread whose list is `list`.
    pub(super) fn window(&self, slot: u32, list: &RobustList) -> Result<Window, OsError> {
        if word_in_cell(list.futex_offset()) != self.word_at {
            return Err(OsError::Missing {
                what: "a side file for this C library",
                hint:
                    "the members of a pod on one operating system must all use glibc, or all musl"
                        .into(),
            });
        }
        if self.word_at != 0 {
            // musl's pthread_exit walks the list too and takes the word for that of a mutex whose type stands before it
            // and says whether its futex is shared.
            self.atomic(self.cell(slot)).store(128, Ordering::Relaxed);
        }
        let page = self.cell(slot) / PAGE * PAGE;
        let window = Window::new(&*self.file()?, &self.path, page)?;
        debug_assert_eq!(
            window.word(slot % WORDS, list.futex_offset()) as usize % PAGE,
            (self.cell(slot) + self.word_at) % PAGE
        );
        Ok(window)
    }

    /// The entry of obituary `slot` in its window.
    pub(super) fn entry(window: &Window, slot: u32) -> *mut Entry {
        window.entry(slot % WORDS)
    }

    /// Keeps the window by which the calling thread holds obituary `slot`. One that a thread which died has left is
    /// unmapped: the kernel has walked its list, since the obituary could be taken.
    pub(super) fn keep_window(&self, slot: u32, window: Window) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.insert(slot, window);
    }

    /// The window by which the calling thread holds obituary `slot`.
    pub(super) fn take_window(&self, slot: u32) -> Option<Window> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.remove(&slot)
    }

    /// The bell that `key` is hashed to.
    pub(super) fn bell(&self, key: u64) -> &AtomicU32 {
        // Fibonacci hashing: neighbouring keys get different bells.
        let bell = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - BELL_BITS);
        self.atomic(PAGE + bell as usize * LINE)
    }

    fn holder_at(&self, slot: u32) -> usize {
        self.check(slot);
        HOLDERS_AT + slot as usize * HOLDER
    }

    /// Where the cell of obituary `slot` is.
    fn cell(&self, slot: u32) -> usize {
        self.check(slot);
        words_at(self.obituaries) + (slot / WORDS) as usize * PAGE + cell_at(slot % WORDS)
    }

    fn check(&self, slot: u32) {
        assert!(
            slot < self.obituaries,
            "obituary {slot} of {}",
            self.obituaries
        );
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

/// Where the pages with the words begin.
fn words_at(obituaries: u32) -> usize {
    (HOLDERS_AT + obituaries as usize * HOLDER).next_multiple_of(PAGE)
}

/// The size of the side file of a pod with `ids` ids.
pub(crate) fn bytes(ids: u32) -> u64 {
    file_bytes(ids) as u64
}

fn file_bytes(obituaries: u32) -> usize {
    words_at(obituaries) + obituaries.div_ceil(WORDS) as usize * PAGE
}

pub(super) fn failed(doing: &str, path: &Path, error: Errno) -> OsError {
    OsError::Call {
        call: format!("{doing} {}", path.display()),
        source: error.into(),
    }
}

/// What is at the name of a side file.
enum Found {
    Nothing,
    Fit(File),
    /// A file that may not be used, and why.
    Unfit(&'static str),
}

/// Opens what is at `path`, if it may be used.
fn open(path: &Path, access: Access) -> Result<Found, OsError> {
    // Nonblocking: a FIFO of that name is not waited for.
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
            return Ok(Found::Unfit("it is not a regular file"));
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

/// Why the open `file` may not be used by those to whom `access` gives the pod, if it may not.
pub(super) fn unfit(
    file: &File,
    path: &Path,
    access: Access,
) -> Result<Option<&'static str>, OsError> {
    let stat = rustix::fs::fstat(file).map_err(|error| failed("stat of", path, error))?;
    let me = rustix::process::geteuid().as_raw();
    let is_of_owner = [Some(me), Some(0), access.owner].contains(&Some(stat.st_uid));
    // Only members of a group can give it a file.
    let is_of_group = access.mode & 0o020 != 0 && access.group == Some(stat.st_gid);
    let is_of_all = access.mode & 0o002 != 0;
    Ok(if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        Some("it is not a regular file")
    } else if stat.st_nlink > 1 {
        Some("it has a second name")
    } else if !(is_of_owner || is_of_group || is_of_all) {
        Some("it belongs to a user who may not use the pod")
    } else if stat.st_mode & 0o777 & !access.mode != 0 {
        Some("its mode gives more rights than that of the pod's file")
    } else {
        None
    })
}

/// Takes the lock of a user of `file`; `true` if it is a write lock, because there is no other user. Waits for a process that
/// clears or removes the file, which has it for a moment.
fn lock(file: &File, path: &Path) -> Result<bool, OsError> {
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
        std::thread::sleep(PAUSE);
    }
}

fn cannot_lock(path: &Path, source: io::Error) -> OsError {
    OsError::Call {
        call: format!("locking {} (fcntl(F_OFD_SETLK))", path.display()),
        source,
    }
}

/// Makes all bells silent and all obituaries vacant, in a file that no other process uses.
fn clear(file: &File, path: &Path, obituaries: u32) -> Result<(), OsError> {
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

/// Whether a process has begun to clear the file and not come to the end.
fn is_dirty(file: &File, path: &Path) -> Result<bool, OsError> {
    let mut dirty = [0; 4];
    let read = file.read_exact_at(&mut dirty, DIRTY_AT);
    read.map_err(|source| OsError::Call {
        call: format!("reading {}", path.display()),
        source,
    })?;
    Ok(dirty != [0; 4])
}

/// Makes the file and gives it its name; `None` if another has it already.
fn create(path: &Path, header: &Header, access: Access) -> Result<Option<File>, OsError> {
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
            let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
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
                    "{MEETING} has no {bytes} bytes left; remove what lies there, or make it larger \
                     (mount -o remount,size=…; --shm-size for a container)"
                ),
            });
        }
        Err(error) => return Err(failed("reserving (fallocate)", path, error)),
    }
    let written = rustix::io::pwrite(file, bytemuck::bytes_of(header), 0)
        .map_err(|error| failed("writing", path, error))?;
    assert_eq!(
        written,
        size_of::<Header>(),
        "a short write to a reserved page"
    );
    let is_root = rustix::process::geteuid().is_root();
    let owner = access.owner.filter(|_| is_root).map(Uid::from_raw);
    if access.group.is_some() || owner.is_some() {
        rustix::fs::fchown(file, owner, access.group.map(Gid::from_raw))
            .map_err(|error| failed("giving away", path, error))?;
    }
    // After the owner, whose change would take bits away; and whatever the umask.
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

/// Takes the lock of a user before the file has its name, so no file is left where locks are
/// refused.
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
    place: Place,
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
    let words = FUTEX_OFFSETS.map(word_in_cell);
    if (header.pod, header.boot, header.namespaces)
        != (halves(pod), halves(place.boot), place.namespaces)
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
