//! The mapping of a segment into this process.

use super::backend::Access;
use super::completion::load_page;
use super::error::CallFailed;
use super::mapped::{self, Registered};
use super::ofd::{Which, which};
use super::superblock::{Page, SUPERBLOCK_BYTES};
use crate::fork;
use outlive_memory::{Memory, Native, NoWideAtomics, Offset, Ordering, PersistenceDomain};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::fs::File;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// The size of a huge page on x86-64 and on Arm with pages of 4096.
const HUGE: u64 = 2 << 20;
/// The number of bytes prefaulted between two reports of progress.
const STEP: u64 = 16 << 20;
/// `MADV_COLLAPSE`, since Linux 6.1.
const MADV_COLLAPSE: i32 = 25;

/// A mapping that is removed when it is dropped: a creation that fails leaves none. A segment keeps
/// its mapping from being dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    which: Which,
    registered: Mutex<Option<Registered>>,
    /// The number of the process that mapped it (`fork::generation`): a child has other memory
    /// there.
    of: u64,
}

// SAFETY: it is an address; the code that accesses the memory there is responsible for that.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `file`, which is at `path`, shared, with `access`. With
    /// `huge`, at an address where huge pages can be mapped.
    pub fn new(
        file: &File,
        path: &Path,
        len: u64,
        huge: bool,
        access: Access,
    ) -> Result<Self, CallFailed> {
        let failed = |error| CallFailed::new("mmap", path, error);
        let len = usize::try_from(len).map_err(|_| failed(Errno::NOMEM))?;
        let its = which(file).ok_or_else(|| failed(Errno::BADF))?;
        let base =
            mapped::map_apart(len, |hint| map(file, len, huge, access, hint)).map_err(failed)?;
        // Addresses in the mapping are made from numbers too (self-relative pointers).
        base.as_ptr().expose_provenance();
        let mapping = Self {
            base,
            len,
            which: its,
            registered: Mutex::new(Some(Registered::new(base.as_ptr(), len, path))),
            of: fork::generation(),
        };
        // A forked child could write after its parent's death was reported.
        mapping
            .advise(Advice::LinuxDontFork)
            .map_err(|error| CallFailed::new("madvise(MADV_DONTFORK)", path, error))?;
        if which(file) != Some(its) {
            return Err(failed(Errno::BADF));
        }
        // A failure is ignored: a core dump would only delay the report of the death, by seconds.
        let _ = mapping.advise(Advice::LinuxDontDump);
        Ok(mapping)
    }

    /// Returns whether the mapping was made before this process was forked, so that its memory does
    /// not exist here.
    pub fn is_inherited(&self) -> bool {
        self.of != fork::generation()
    }

    /// Returns the file that the mapping maps.
    pub fn which(&self) -> Which {
        self.which
    }

    /// Returns a handle on the first `size` bytes.
    ///
    /// # Safety
    /// The handle is not used after the mapping has been dropped, and all processes that map the
    /// file follow the rules of [`Native::new`].
    pub unsafe fn memory(
        &self,
        size: u64,
        domain: PersistenceDomain,
    ) -> Result<Native, NoWideAtomics> {
        assert!(
            size <= self.len as u64,
            "a handle on more bytes than are mapped"
        );
        // SAFETY: the bytes are mapped for as long as the caller promises.
        unsafe { Native::new(self.base, size, domain) }
    }

    /// Replaces the mapping by a reservation without access. The memory is released, and the
    /// addresses stay reserved.
    pub fn retire(&self) -> Result<(), Errno> {
        if self.is_inherited() {
            return Ok(());
        }
        // SAFETY: the range is ours, and accesses by handles on it fault from now on, as on a page
        // that a file has lost.
        unsafe { mapped::reserve(self.base.as_ptr(), self.len) }?;
        self.unregister();
        Ok(())
    }

    fn unregister(&self) {
        let mut registered = self
            .registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *registered = None;
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: none of the advices used here changes what a load returns.
        unsafe { madvise(self.base.as_ptr().cast(), self.len, advice) }
    }

    /// Asks for transparent huge pages for pages that are touched from now on.
    pub fn advise_huge(&self) -> Result<(), Errno> {
        self.advise(Advice::LinuxHugepage)
    }

    /// Asks the kernel to collapse resident pages into huge ones, now.
    pub fn collapse(&self) -> Result<(), Errno> {
        // SAFETY: collapsing moves pages without changing what a load returns.
        let result = unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, MADV_COLLAPSE) };
        if result == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
    }

    /// Returns the number of bytes that are mapped by huge pages now.
    pub fn huge_bytes(&self) -> u64 {
        let start = format!("{:x}-", self.base.as_ptr() as usize);
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        smaps
            .lines()
            .skip_while(|line| !line.starts_with(&start))
            .skip(1)
            .take_while(|line| !line.starts_with("VmFlags:"))
            .filter_map(|line| {
                let (key, value) = line.split_once(':')?;
                let counts = matches!(key, "ShmemPmdMapped" | "FilePmdMapped" | "AnonHugePages");
                let kib = value
                    .trim()
                    .strip_suffix("kB")?
                    .trim()
                    .parse::<u64>()
                    .ok()?;
                counts.then_some(kib * 1024)
            })
            .sum()
    }

    /// Puts every page of the first `size` bytes into this process's page table, writable.
    ///
    /// Contents stay unchanged. On kernels without the call (before Linux 5.14), a page is touched
    /// by adding no bits to its first word, but only if `fresh`: in a segment that is in use, other
    /// processes may access that word at another size.
    pub fn prefault(
        &self,
        size: u64,
        fresh: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Errno> {
        let mut at = 0;
        while at < size {
            let len = STEP.min(size - at);
            // SAFETY: inside the mapping.
            let start = unsafe { self.base.add(at as usize) };
            // SAFETY: populating does not change what a load returns.
            match unsafe {
                madvise(
                    start.as_ptr().cast(),
                    len as usize,
                    Advice::LinuxPopulateWrite,
                )
            } {
                Ok(()) => {}
                Err(Errno::INTR | Errno::AGAIN) => continue,
                // An old kernel, or device memory, which has no faults to take. (EFAULT means that
                // a touch would raise SIGBUS: an error.)
                Err(Errno::INVAL) => {
                    if fresh {
                        self.touch(at, len);
                    }
                }
                Err(error) => return Err(error),
            }
            at += len;
            progress(at, size);
        }
        Ok(())
    }

    /// Touches `len` bytes at `at`, page by page, without changing them.
    pub fn touch(&self, at: u64, len: u64) {
        let size = self.len as u64 / Native::GRANULE * Native::GRANULE;
        // SAFETY: the handle is used in this function only.
        let Ok(memory) = (unsafe { self.memory(size, PersistenceDomain::Flushed) }) else {
            return;
        };
        for page in (at..at + len).step_by(Native::GRANULE as usize) {
            memory.fetch_or(Offset::new(page), 0u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.is_inherited() {
            // The entry stays: there may be copies of the parent's handles.
            let registered = self.registered.get_mut();
            core::mem::forget(registered.unwrap_or_else(PoisonError::into_inner).take());
            return;
        }
        // Before the address can belong to another mapping.
        self.unregister();
        // SAFETY: the mapping is ours, and the holders of handles on it promised not to use them
        // from now on.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Maps the first `len` bytes of `file`, at the address `hint` if it is not null and the kernel
/// agrees.
fn map(
    file: &File,
    len: usize,
    huge: bool,
    access: Access,
    hint: *mut u8,
) -> Result<NonNull<u8>, Errno> {
    let (at, fixed) = if huge && len as u64 >= HUGE {
        (aligned_place(len)?, MapFlags::FIXED)
    } else {
        (hint.cast(), MapFlags::empty())
    };
    let access = match access {
        Access::ReadOnly => ProtFlags::READ,
        Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
    };
    // SAFETY: either the kernel chooses a free place, or `aligned_place` has reserved this one for
    // us.
    let base = unsafe { mmap(at, len, access, MapFlags::SHARED | fixed, file, 0) };
    let base = base.inspect_err(|_| {
        if !fixed.is_empty() {
            // SAFETY: the place was reserved for this mapping, and no other code knows of it.
            let _ = unsafe { munmap(at, len) };
        }
    });
    NonNull::new(base?.cast()).ok_or(Errno::NOMEM)
}

/// Returns a free place of `len` bytes that is aligned for huge pages, reserved.
fn aligned_place(len: usize) -> Result<*mut core::ffi::c_void, Errno> {
    let more = len.checked_add(HUGE as usize).ok_or(Errno::NOMEM)?;
    // SAFETY: a fresh reservation without access.
    let start = unsafe {
        mmap_anonymous(
            core::ptr::null_mut(),
            more,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }?;
    let before = start.cast::<u8>().align_offset(HUGE as usize);
    let after = more - before - len.next_multiple_of(4096);
    // SAFETY: inside the reservation.
    let (at, end) = unsafe { (start.byte_add(before), start.byte_add(more - after)) };
    for (edge, len) in [(start, before), (end, after)] {
        if len > 0 {
            // SAFETY: the edges of a reservation that no other code knows of.
            let _ = unsafe { munmap(edge, len) };
        }
    }
    Ok(at)
}

/// Loads the first page of a device, which can be mapped but not read, in units of `granule` bytes.
pub(super) fn map_page(file: &File, path: &Path, granule: u64) -> Result<Page, CallFailed> {
    let mapping = Mapping::new(file, path, granule, false, Access::ReadOnly)?;
    // SAFETY: the handle is used in this function only; all processes that map the device follow
    // the rules.
    let memory = unsafe { mapping.memory(SUPERBLOCK_BYTES, PersistenceDomain::Flushed) }
        .map_err(|error| CallFailed::new("mmap", path, std::io::Error::other(error)))?;
    Ok(load_page(memory))
}
