//! The mappings of shared memory that this process has, in a table of atomics that grows and never
//! shrinks.
//!
//! **SIGBUS.** The handler can neither lock nor allocate. It looks for a mapping that a thread is
//! accessing, so the slot of this mapping is not reused in the meantime. (Of another slot it may
//! read a torn entry, and then print its path.)
//!
//! **Forks.** A forked child does not inherit these mappings (`MADV_DONTFORK`): it could write
//! after the death of its parent was reported. Its copies of the parent's handles point at
//! addresses that are free in the child. If its own mapping of the same pod came to lie there, the
//! child would write as its parent. (A window on the side file there would let it change the words
//! of any member.) Two measures prevent that:
//!
//! * In the child, before `fork` returns, [`reserve_inherited`] reserves the addresses of all
//!   entries without access. From then on neither the kernel nor any code chooses them: another
//!   copy of this library in the process has a table of its own, and the program makes mappings.
//! * The child inherits the table too, and no entry of its parent leaves it. A new mapping that
//!   overlaps an entry is removed, and made elsewhere ([`map_apart`]). This covers children that
//!   are made by a system call or `_Fork`, for which no handler runs, and addresses that could not
//!   be reserved.

use crate::fork_exclusion;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The number of slots by which the table grows.
const SLOTS: usize = 128;
/// The shortest distance of a mapping from the entries above it.
const GAP: usize = 1 << 20;
/// The longest distance that is tried.
const FARTHEST: usize = 1 << 40;
/// The number of bytes that are kept of a path, from its end.
const PATH_BYTES: usize = 232;
/// `start` of a slot that is free, and of one that is being written.
const FREE: usize = 0;
const TAKEN: usize = 1;

#[derive(Debug)]
pub(super) struct Slot {
    /// The first address, written last.
    start: AtomicUsize,
    len: AtomicUsize,
    path_len: AtomicUsize,
    path: [AtomicU8; PATH_BYTES],
}

struct Table {
    slots: [Slot; SLOTS],
    /// The next table, or null.
    more: AtomicPtr<Table>,
}

static TABLE: Table = Table::new();

/// The lowest address at which the kernel has taken a hint of [`map_apart`]. (A hint at the place
/// of an earlier result would not be taken.)
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Whether [`reserve_inherited`] runs in forked children.
static IS_HANDLED: AtomicBool = AtomicBool::new(false);

impl Table {
    const fn new() -> Self {
        Self {
            slots: [const {
                Slot {
                    start: AtomicUsize::new(FREE),
                    len: AtomicUsize::new(0),
                    path_len: AtomicUsize::new(0),
                    path: [const { AtomicU8::new(0) }; PATH_BYTES],
                }
            }; SLOTS],
            more: AtomicPtr::new(null_mut()),
        }
    }

    fn next(&self) -> Option<&'static Self> {
        // Acquire: the slots behind the pointer were written before it.
        // SAFETY: null, or a leaked table.
        unsafe { self.more.load(Ordering::Acquire).as_ref() }
    }

    /// Appends slots; returns those that follow `self`, which another thread may have appended.
    fn grow(&self) -> &'static Self {
        let more = Box::into_raw(Box::new(Self::new()));
        let (appended, found) = (Ordering::AcqRel, Ordering::Acquire);
        match self
            .more
            .compare_exchange(null_mut(), more, appended, found)
        {
            // SAFETY: from now on it is never freed.
            Ok(_) => unsafe { &*more },
            Err(other) => {
                // SAFETY: no other thread has seen it.
                drop(unsafe { Box::from_raw(more) });
                // SAFETY: not null, and never freed.
                unsafe { &*other }
            }
        }
    }
}

fn all() -> impl Iterator<Item = &'static Slot> {
    core::iter::successors(Some(&TABLE), |table| table.next()).flat_map(|table| &table.slots)
}

impl Slot {
    fn range(&self) -> Option<(usize, usize)> {
        // Acquire: the length was written before the address.
        let start = self.start.load(Ordering::Acquire);
        (start > TAKEN).then(|| (start, self.len.load(Ordering::Relaxed)))
    }

    /// Returns the end of the mapped file's path.
    pub fn path(&self) -> impl Iterator<Item = u8> {
        let len = self.path_len.load(Ordering::Relaxed).min(PATH_BYTES);
        let cells = self.path.iter().take(len);
        cells.map(|cell| cell.load(Ordering::Relaxed))
    }
}

/// Returns the slot of the mapping that contains the address `at`.
pub(super) fn find(at: usize) -> Option<&'static Slot> {
    all().find(|slot| {
        slot.range()
            .is_some_and(|(start, len)| at.wrapping_sub(start) < len)
    })
}

/// An entry of the table. A drop removes the entry; it comes before the mapping is removed, so that
/// no other mapping is taken for this one.
#[derive(Debug)]
pub(crate) struct Registered(&'static Slot);

impl Registered {
    /// Enters the mapping of `len` bytes at `start` of the file at `path`.
    pub fn new(start: *const u8, len: usize, path: &Path) -> Self {
        let slot = Self::take();
        let path = path.as_os_str().as_bytes();
        let end = &path[path.len().saturating_sub(PATH_BYTES)..];
        for (cell, byte) in slot.path.iter().zip(end) {
            cell.store(*byte, Ordering::Relaxed);
        }
        slot.path_len.store(end.len(), Ordering::Relaxed);
        slot.len.store(len, Ordering::Relaxed);
        // Release: a reader that sees the address sees the rest.
        slot.start.store(start as usize, Ordering::Release);
        Self(slot)
    }

    fn take() -> &'static Slot {
        // Acquire: the writes of the new owner come after those of the slot's earlier owner.
        let (free, taken) = (Ordering::Acquire, Ordering::Relaxed);
        let take = |slot: &&Slot| {
            slot.start
                .compare_exchange(FREE, TAKEN, free, taken)
                .is_ok()
        };
        let mut table = &TABLE;
        loop {
            if let Some(slot) = table.slots.iter().find(take) {
                return slot;
            }
            table = table.next().unwrap_or_else(|| table.grow());
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Release: the next owner's writes come after all of ours.
        self.0.start.store(FREE, Ordering::Release);
    }
}

/// Makes a mapping of `len` bytes by `map`, at an address that no entry has: the entries of this
/// process are mapped, and those of the processes from which it was forked may not be reused. `map`
/// gets an address as a hint to the kernel, or null.
pub(crate) fn map_apart(
    len: usize,
    mut map: impl FnMut(*mut u8) -> Result<NonNull<u8>, Errno>,
) -> Result<NonNull<u8>, Errno> {
    handle_forks()?;
    let (mut hint, mut distance) = (null_mut(), GAP);
    loop {
        let base = map(hint)?;
        let start = base.as_ptr() as usize;
        let overlaps =
            |(other, bytes): (usize, usize)| start < other + bytes && other < start + len;
        if !all().filter_map(Slot::range).any(overlaps) {
            if !hint.is_null() {
                LOWEST.fetch_min(start, Ordering::Relaxed);
            }
            return Ok(base);
        }
        if distance <= FARTHEST {
            // SAFETY: the mapping is new, and no other code knows of it.
            unsafe { munmap(base.as_ptr().cast(), len) }?;
            // Below all entries and earlier results, at a whole page. The kernel takes the hint if
            // the addresses are free: each hint is farther away than the one before.
            let entries = all().filter_map(Slot::range).map(|(start, _)| start);
            let lowest = entries.fold(LOWEST.load(Ordering::Relaxed), usize::min);
            let below = lowest.saturating_sub(len + distance) & !(GAP - 1);
            if below == 0 {
                // All addresses have been used once.
                LOWEST.store(usize::MAX, Ordering::Relaxed);
            }
            hint = core::ptr::without_provenance_mut(below);
            distance *= 2;
        } else {
            // The kernel has taken no hint. It does not choose a reserved address again.
            // SAFETY: as above.
            unsafe { reserve(base.as_ptr(), len) }?;
        }
    }
}

/// Makes [`reserve_inherited`] run in children that are forked from now on, and the handlers of
/// the module `fork_exclusion` in this process. It is harmless that two threads may do this at the
/// same time, and then it runs twice. (The child of a fork in the middle would wait forever for a
/// lock that one of them holds.)
fn handle_forks() -> Result<(), Errno> {
    if IS_HANDLED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let (begin, end) = (fork_exclusion::begin, fork_exclusion::end);
    // SAFETY: the handlers make system calls and use atomics, which a forked child may do.
    match unsafe { libc::pthread_atfork(Some(begin), Some(end), Some(reserve_inherited)) } {
        0 => {}
        error => return Err(Errno::from_raw_os_error(error)),
    }
    IS_HANDLED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Reserves, in a forked child, the addresses of all entries, where its parent has mappings. A
/// range that is not free stays as it is: an earlier fork has reserved it, or the program's own
/// handler has made a mapping there.
extern "C" fn reserve_inherited() {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    for (start, len) in all().filter_map(Slot::range) {
        let at = core::ptr::without_provenance_mut(start);
        // SAFETY: a new mapping, which replaces none.
        let reserved = unsafe { mmap_anonymous(at, len, ProtFlags::empty(), flags) };
        if let Ok(other) = reserved
            && other != at
        {
            // A kernel before 4.17 takes the address for a hint.
            // SAFETY: the mapping is new, and no other code knows of it.
            let _ = unsafe { munmap(other, len) };
        }
    }
}

/// Replaces the mappings at the `len` addresses from `start` on by a reservation without access.
///
/// # Safety
/// The range is the caller's, and nothing in it is referenced.
pub(crate) unsafe fn reserve(start: *mut u8, len: usize) -> Result<(), Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the caller's promise.
    unsafe { mmap_anonymous(start.cast(), len, ProtFlags::empty(), flags) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_grows_and_slots_are_reused() {
        let path = Path::new("/dev/shm/many");
        let place = |at: usize| (1usize << 50) + at * 4096;
        let all: Vec<_> = { 0..3 * SLOTS }
            .map(|at| Registered::new(place(at) as *const u8, 4096, path))
            .collect();
        for (at, entry) in all.iter().enumerate() {
            let found = find(place(at) + 4095).unwrap();
            assert!(core::ptr::eq(found, entry.0));
            assert!(found.path().eq(path.as_os_str().as_bytes().iter().copied()));
        }
        drop(all);
        assert!(find(place(7)).is_none());
    }
}
