//! The side file: the data of a pod that is valid within one boot only. Each pod has one for each
//! operating system, in `/dev/shm`.
//!
//! It contains the obituaries and the wake-up futexes ("bells"). They cannot be in the pod's
//! segment: thread ids are valid within one kernel and PID namespace only, the robust list contains
//! addresses, and futexes do not work on every memory that can hold a segment. The processes that
//! share the file find it by its name: `outlive.POD.BOOT.NAMESPACES`. The random number in its
//! header identifies the operating system.
//!
//! ```text
//! page 0                     header: never changes once the file has its name
//! BELLS lines of 64 bytes    one bell each, in the first 4 bytes
//! 16 bytes for each id       the holder of its obituary: thread id, process id, start time
//! a page for three ids       the words of their obituaries, in its last 24 bytes (see module `window`)
//! ```
//!
//! **Creation.** The file is created without a name, filled and locked, and then given its name by
//! a link, which fails if another process was quicker. So under its name it is always complete; a
//! creator that is killed leaves nothing. (Where a filesystem has no nameless files, the file is
//! first created under another name, which the clean-up knows.)
//!
//! **Use.** Every process that maps the file has a read lock on its first byte, which its mapping
//! keeps. A process that attaches and finds no such lock is alone: it *clears* the file under a
//! write lock before it uses it. So an obituary that an earlier user left (of another PID namespace
//! that had the same number, for example) is never taken for that of a live thread. A kill during
//! the clearing leaves a mark in the file, and the next process clears the file again. The number
//! stays the same: all earlier users are dead and their obituaries vacant, and the table of
//! generations is compared with the obituaries.
//!
//! **Removal.** A process that removes the file takes the write lock, so a side file in use is
//! never removed. A process that opens the file checks, after it has locked it, whether the file
//! still has its name, and starts again if not.
//!
//! **Trust.** All users can write to `/dev/shm`, and the name can be guessed. A file is used only
//! if it is a regular file that belongs to this user, to root or to the owner of the pod's file;
//! or, where the group may use the pod, to the pod's group, which a user outside the group cannot
//! give it. Any other file at the name is skipped, and the next of a few names is taken.
//!
//! **Memory.** All pages are reserved at creation (so a full `/dev/shm` is an error at that time,
//! not a SIGBUS later). The pages by which the kernel marks a word are locked where the limit
//! allows. The mapping is not inherited by fork: a child whose parent's thread was marked cannot
//! write here, nor follow the parent's robust list. Its addresses are never released, so no handle
//! on it ever points to another mapping.

use super::proc::{self, Place};
use super::robust::{Entry, OWNER_DIED, RobustList, TID};
use super::side_file_header::{
    BELLS, HOLDER, HOLDER_PID_AT, HOLDER_START_AT, HOLDERS_AT, Header, LINE, MEETING, PAGE,
    USE_BYTE, WORD_IN_CELL, cell_offset, check, failed, file_bytes, refused,
};
use super::side_file_name::{NAMES, name, remove_locked, remove_unused, still_named};
use super::side_file_open::{
    Access, Found, PATIENCE, RETRY_PAUSE, cannot_lock, clear, create, is_dirty, lock, open,
};
use super::window::{WORDS, Window};
use super::{Bells, OsError, PodFile, futex, futex::last_error};
use crate::fork;
use crate::segment::ofd::{self, Held, Kind, Which, which};
use crate::segment::{Registered, file_keeps_locks, map_apart, reserve};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

/// The byte of slot 0. A process locks the byte of a slot while it clears an obituary that the
/// kernel did not mark.
const CLEAR_BYTE: libc::off_t = 1;
const BELL_BITS: u32 = BELLS.trailing_zeros();

/// A mapped side file.
#[derive(Debug)]
pub(super) struct SideFile {
    base: NonNull<u8>,
    /// The number of the process that mapped it (`fork::generation`): a child has other memory
    /// there.
    of: u64,
    /// The namespaces in which it was attached, where the start times in it are valid.
    pub(super) namespaces: u64,
    obituaries: u32,
    id: u128,
    path: PathBuf,
    /// The identity of `file`.
    which: Option<Which>,
    /// Kept open for its lock and for windows. `None` once it is retired.
    file: RwLock<Option<Held>>,
    registered: Mutex<Option<Registered>>,
    /// The windows on obituaries that threads of this process hold, or held when they died.
    windows: Mutex<HashMap<u32, (u32, Window)>>,
}

// SAFETY: the mapping is read and written by atomics, or (entries) by the one thread that holds the
// obituary; it is never unmapped.
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
        let until = Instant::now() + PATIENCE;
        for other in 0..NAMES {
            let path = meeting.join(name(pod, place, other));
            loop {
                let file = match open(&path, access)? {
                    Found::Nothing => {
                        // An error if this process could not use the file.
                        RobustList::of_this_thread()?;
                        let header = Header::new(pod, place, obituaries);
                        match create(&path, &header, access)? {
                            Some(file) => file,
                            None => continue, // another process was quicker
                        }
                    }
                    Found::Fit(file) => file,
                    // The file is skipped. The first error is returned if no name is left.
                    Found::Unfit(why) => {
                        unfit.get_or_insert(refused(&path, why));
                        break;
                    }
                };
                if let Some(side) = Self::begin(file, &path, pod, place, obituaries)? {
                    return Ok(side);
                }
                if Instant::now() >= until {
                    // The file stays marked as being cleared, perhaps by another user of the pod.
                    return Err(OsError::InUse { path });
                }
            }
        }
        Err(unfit.expect("there are names"))
    }

    /// Begins to use the open `file`. Returns `None` if the file has lost its name, or if the
    /// caller is to try again.
    fn begin(
        file: File,
        path: &Path,
        pod: u128,
        place: Place,
        obituaries: u32,
    ) -> Result<Option<Self>, OsError> {
        let keeps_locks = file_keeps_locks(&file).map_err(|error| OsError::Call {
            call: format!("fstatfs of {}", path.display()),
            source: error.into(),
        })?;
        if !keeps_locks {
            return Err(OsError::Missing {
                what: "a filesystem on which a mapping keeps a lock",
                hint: format!(
                    "{} is not on such a filesystem; mount a tmpfs at {MEETING}",
                    path.display()
                ),
            });
        }
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
            // The process that was clearing the file died while this one waited. All processes that
            // see that release their lock, until one of them is alone.
            std::thread::sleep(RETRY_PAUSE);
            return Ok(None);
        }
        if is_alone {
            remove_unused(path.parent().unwrap_or(Path::new(MEETING)), pod, place);
            clear(&file, path, obituaries)?;
            // Turns the write lock into a read lock, which no other lock can prevent.
            ofd::lock(&file, USE_BYTE, Kind::Read).map_err(|error| cannot_lock(path, error))?;
        }
        Self::map(file, path, header, place).map(Some)
    }

    fn map(file: File, path: &Path, header: Header, place: Place) -> Result<Self, OsError> {
        let bytes = file_bytes(header.obituaries);
        let (access, shared) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::POPULATE,
        );
        let base = map_apart(bytes, |hint| {
            // SAFETY: a new shared mapping at an address of the kernel's choice; the file has that
            // size (checked), and no user of the pod truncates it.
            let base = unsafe { mmap(hint.cast(), bytes, access, shared, &file, 0) };
            NonNull::new(base?.cast()).ok_or(Errno::NOMEM)
        });
        let mapped: NonNull<u8> = base.map_err(|error| failed("mapping", path, error))?;
        let base = mapped.as_ptr().cast();
        // SAFETY: the mapping is ours. Without MADV_DONTFORK a forked child could write here after
        // its parent's obituary, so its failure is an error.
        unsafe {
            if libc::madvise(base, bytes, libc::MADV_DONTFORK) != 0 {
                let error = last_error(format!("madvise(MADV_DONTFORK) on {}", path.display()));
                libc::munmap(base, bytes);
                return Err(error);
            }
            // Excludes it from core dumps; a failure only makes them larger.
            libc::madvise(base, bytes, libc::MADV_DONTDUMP);
        }
        let registered = Registered::new(base.cast(), bytes, path);
        Ok(Self {
            base: mapped,
            of: fork::generation(),
            namespaces: place.namespaces,
            obituaries: header.obituaries,
            id: header.number(),
            path: path.to_owned(),
            which: which(&file),
            file: RwLock::new(Some(Held::new(Arc::new(file), USE_BYTE))),
            registered: Mutex::new(Some(registered)),
            windows: Mutex::new(HashMap::new()),
        })
    }

    /// Removes the file, which this process itself has attached, unless another process has too.
    pub(super) fn remove(&self) -> Result<bool, OsError> {
        let file = self.file()?;
        let removed = remove_locked(&file, &self.path, || true);
        // The lock becomes a read lock again, whether or not it became a write lock.
        ofd::lock(&file, USE_BYTE, Kind::Read).map_err(|error| cannot_lock(&self.path, error))?;
        removed
    }

    /// Returns the file as one in which the presence of its users is locked.
    pub(super) fn pod_file(&self) -> Result<PodFile, OsError> {
        Ok(PodFile::new(self.file()?, &self.path, PAGE as u64))
    }

    fn file(&self) -> Result<Arc<File>, OsError> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        let file = file.as_ref().map(|held| Arc::clone(held.file()));
        let missing = |hint: &str| OsError::Missing {
            what: "the side file",
            hint: hint.into(),
        };
        let file = file.ok_or_else(|| missing("this process has closed the pod; open it again"))?;
        match which(&file) == self.which {
            true => Ok(file),
            false => Err(missing(
                "the program has closed its descriptor; close only descriptors that you have opened",
            )),
        }
    }

    /// Releases the memory, the descriptor and with it the lock. The addresses stay reserved
    /// without access, since handles on them have no lifetimes. `is_gone` returns whether the
    /// thread that holds an obituary is gone.
    ///
    /// # Errors
    /// [`OsError::InUse`] while a thread of this process holds an obituary: its robust list leads
    /// through a window.
    pub(super) fn retire(&self, is_gone: impl Fn(u32, u32) -> bool) -> Result<(), OsError> {
        if self.of != fork::generation() {
            // A lock that another thread had at the fork is never released in the child. Then the
            // descriptor stays.
            if let Ok(mut file) = self.file.try_write() {
                *file = None;
            }
            return Ok(());
        }
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
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
        unsafe { reserve(self.base.as_ptr(), file_bytes(self.obituaries)) }
            .map_err(|error| failed("reserving addresses of", &self.path, error))?;
        *self
            .registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
        // The remaining windows are of threads that died: the kernel has walked their robust lists.
        // Those of live threads stay: another user of the pod may have changed their words.
        for (_, (tid, window)) in windows.drain() {
            if proc::is_thread_of_this_process(tid) {
                core::mem::forget(window);
            }
        }
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// Returns the number that identifies the operating system of this side file.
    pub(super) fn id(&self) -> u128 {
        self.id
    }

    /// Runs `clear` for the obituary `slot` while no other thread does. Returns `None` if another
    /// thread does, or on an error. The kernel releases the lock if this process dies in the
    /// middle.
    pub(super) fn while_clearing<T>(&self, slot: u32, clear: impl FnOnce() -> T) -> Option<T> {
        // A description of its own, so that threads of one process exclude one another too.
        let file = ofd::reopen(&*self.file().ok()?, &self.path).ok()?;
        let byte = CLEAR_BYTE + libc::off_t::from(slot);
        if !ofd::lock(&file, byte, Kind::Write).ok()? {
            return None;
        }
        let _held = Held::new(Arc::new(file), byte);
        Some(clear())
    }

    /// Returns the number of obituaries.
    pub(super) fn obituaries(&self) -> u32 {
        self.obituaries
    }

    /// Returns the word of obituary `slot`.
    pub(super) fn word(&self, slot: u32) -> &AtomicU32 {
        self.atomic(self.cell(slot) + WORD_IN_CELL)
    }

    /// Returns the thread id of the holder of obituary `slot`, or 0.
    pub(super) fn holder(&self, slot: u32) -> &AtomicU32 {
        self.atomic(self.holder_at(slot))
    }

    /// Returns the process id of the holder of obituary `slot`.
    pub(super) fn holder_pid(&self, slot: u32) -> &AtomicU32 {
        self.atomic(self.holder_at(slot) + HOLDER_PID_AT)
    }

    /// Returns the start time of the holder of obituary `slot`, or 0 if it is not known.
    pub(super) fn holder_start(&self, slot: u32) -> &AtomicU64 {
        let at = self.holder_at(slot) + HOLDER_START_AT;
        // SAFETY: inside the mapping, which is never undone, and aligned to 8; accessed by atomics
        // of this size only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Maps a window on obituary `slot`.
    pub(super) fn window(&self, slot: u32) -> Result<Window, OsError> {
        let page = self.cell(slot) / PAGE * PAGE;
        let window = Window::new(&*self.file()?, &self.path, page)?;
        debug_assert_eq!(
            window.word(slot % WORDS) as usize % PAGE,
            (self.cell(slot) + WORD_IN_CELL) % PAGE
        );
        Ok(window)
    }

    /// Returns the entry of obituary `slot` in its window.
    pub(super) fn entry(window: &Window, slot: u32) -> *mut Entry {
        window.entry(slot % WORDS)
    }

    /// Keeps the window by which the calling thread holds obituary `slot`. A window that a dead
    /// thread has left for this slot is unmapped: the kernel has walked that thread's list, since
    /// the obituary could be taken.
    pub(super) fn keep_window(&self, slot: u32, tid: u32, window: Window) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        // If that thread lives, another user of the pod has changed the word, and its list still
        // leads there.
        if let Some((earlier, window)) = windows.insert(slot, (tid, window))
            && proc::is_thread_of_this_process(earlier)
        {
            core::mem::forget(window);
        }
    }

    /// Removes and returns the window on obituary `slot` if the thread `tid` has kept it and
    /// `is_ours` returns true for it.
    pub(super) fn take_window(
        &self,
        slot: u32,
        tid: u32,
        is_ours: impl FnOnce(&Window) -> bool,
    ) -> Option<Window> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = windows
            .get(&slot)
            .is_some_and(|(holder, window)| *holder == tid && is_ours(window));
        let taken = is_ours.then(|| windows.remove(&slot));
        taken.flatten().map(|(_, window)| window)
    }

    /// Returns the wake-up futex that `key` is hashed to.
    pub(super) fn bell(&self, key: u64) -> &AtomicU32 {
        // Fibonacci hashing: neighbouring keys get different futexes.
        let bell = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - BELL_BITS);
        self.atomic(PAGE + bell as usize * LINE)
    }

    fn holder_at(&self, slot: u32) -> usize {
        self.check(slot);
        HOLDERS_AT + slot as usize * HOLDER
    }

    /// Returns the offset of the cell of obituary `slot` in the file.
    fn cell(&self, slot: u32) -> usize {
        self.check(slot);
        cell_offset(self.obituaries, slot)
    }

    fn check(&self, slot: u32) {
        assert!(
            slot < self.obituaries,
            "obituary {slot} of {}",
            self.obituaries
        );
    }

    fn atomic(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `at` is inside the mapping, which is never undone, and aligned to 4; these words
        // are accessed by atomics (and by the kernel) at this size only.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }
}

/// The lowest bit of a wake-up futex: a thread sleeps on it, so a wake-up must call the kernel. A
/// wake-up clears the bit, so a sleeper that was killed costs one unnecessary call. The count is in
/// the other bits.
const SLEEPER: u32 = 1;

/// Marks `bell` as slept on if it still has the count `seen`. Returns the value to sleep on, or
/// `None` if the count has changed.
pub(super) fn mark_sleeper(bell: &AtomicU32, seen: u32) -> Option<u32> {
    // Relaxed: this word alone decides. The waker's exchange comes before this one (and this one
    // fails) or after it (and the waker sees the sleeper).
    match bell.compare_exchange(seen, seen | SLEEPER, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Some(seen | SLEEPER),
        Err(now) => (now == seen | SLEEPER).then_some(now),
    }
}

impl Bells for SideFile {
    fn read(&self, key: u64) -> u32 {
        // Acquire: a thread that sees the new count sees the change for which it was incremented.
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
        // AcqRel: release, for the change that the count announces.
        if let Ok(old) = bell.fetch_update(Ordering::AcqRel, Ordering::Relaxed, raise)
            && old & SLEEPER != 0
        {
            futex::wake_all(bell);
        }
    }
}
