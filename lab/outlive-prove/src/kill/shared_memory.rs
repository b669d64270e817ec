//! Memory that survives a fork as shared memory, and is never unmapped.
//!
//! The traits of this module pass out handles that are `Copy` and `'static`, and an implementation
//! may keep one. A kept handle must not become a dangling pointer, so mappings return to a pool and
//! live as long as the process: a stale handle can at worst disturb a later sweep.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use outlive_memory::{Native, PersistenceDomain};
use std::sync::{Mutex, PoisonError};

/// An anonymous shared mapping, which returns to the pool when it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    base: NonNull<u8>,
    size: u64,
}

/// The mappings not leased: base and size.
static POOL: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());

impl Lease {
    /// Leases `size` bytes with arbitrary contents.
    ///
    /// # Panics
    /// If `size` is 0 or no multiple of [`Native::GRANULE`], or if there is no memory.
    pub(super) fn of(size: u64) -> Self {
        assert!(
            size != 0 && size.is_multiple_of(Native::GRANULE),
            "a memory of {size} bytes is not a multiple of {} bytes",
            Native::GRANULE
        );
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = pool.iter().position(|(_, had)| *had == size) {
            let (base, _) = pool.swap_remove(index);
            let base = NonNull::new(core::ptr::with_exposed_provenance_mut(base));
            return Self {
                base: base.expect("a mapping is not at 0"),
                size,
            };
        }
        drop(pool);
        // SAFETY: a new anonymous mapping at a place of the kernel's choice disturbs nothing.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                size as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(
            base != libc::MAP_FAILED,
            "cannot map {size} bytes of shared memory: {}",
            std::io::Error::last_os_error()
        );
        base.expose_provenance();
        Self {
            base: NonNull::new(base.cast()).expect("a mapping is not at 0"),
            size,
        }
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the addresses of the mapping.
    pub(super) fn addresses(&self) -> Range<usize> {
        let start = self.base.as_ptr().addr();
        start..start + self.size as usize
    }

    /// Returns the mapping as memory.
    pub(super) fn memory(&self, domain: PersistenceDomain) -> Native {
        // SAFETY: the mapping is readable and writable and is never unmapped; this module and the
        // handles access it by atomics only.
        unsafe { Native::new(self.base, self.size, domain) }.expect("128-bit atomics")
    }

    /// Returns its words, to be read while no other process may write them, or as a hint only.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped, aligned to a page, a whole number of words, all of them atomics. (A torn
        // read of a word that another process accesses at another size is possible only while that
        // process runs, and the words are not read then.)
        unsafe { core::slice::from_raw_parts(self.base.cast().as_ptr(), self.size as usize / 8) }
    }

    pub(super) fn zero(&self) {
        for word in self.words() {
            word.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn fill(&self, image: &[u64]) {
        for (word, value) in self.words().iter().zip(image) {
            word.store(*value, Ordering::Relaxed);
        }
    }

    pub(super) fn image(&self) -> Vec<u64> {
        let words = self.words().iter();
        words.map(|word| word.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        pool.push((self.base.as_ptr().expose_provenance(), self.size));
    }
}
