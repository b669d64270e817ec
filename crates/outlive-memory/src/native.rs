//! Native memory: an access is the instruction that it names.
//!
//! The handle is two words, base and bound, and both stay in registers. One comparison checks range
//! and alignment together ([`Memory::has_word`]). `benches/native.rs` compares the result with the
//! bare atomics of the standard library.

use crate::persist::{PersistenceDomain, drain_write_backs, write_back_lines};
use crate::{CrashPoint, Memory, Offset, Ordering, Word};
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::compiler_fence;

/// Memory of this process, shared with other processes or not, accessed by the processor's own
/// instructions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Native {
    base: NonNull<u8>,
    /// Size in bytes, shifted left by one; the low bit is set for [`PersistenceDomain::WriteBack`].
    /// Every check shifts right by one at least, so the flag costs nothing.
    bound: u64,
}

// SAFETY: `Native::new` demands memory that is valid for the rest of the process and accessed by
// atomics only, so any thread may hold and use the handle.
unsafe impl Send for Native {}
// SAFETY: as for `Send`.
unsafe impl Sync for Native {}

/// This processor has no lock-free 128-bit compare-and-swap.
///
/// Words of 128 bits would be emulated by a lock inside each process, which has no effect on other
/// processes, so memory is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoWideAtomics;

impl fmt::Display for NoWideAtomics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this processor has no 128-bit compare-and-swap (cmpxchg16b on x86-64, casp on Arm); \
             shared memory cannot be used safely between processes on it",
        )
    }
}

impl core::error::Error for NoWideAtomics {}

impl Native {
    /// The smallest unit in which memory is mapped; sizes are multiples of it.
    pub const GRANULE: u64 = 4096;

    /// Returns a handle on `size` bytes at `base`.
    ///
    /// # Errors
    /// If the processor lacks atomics that [`Memory`] promises.
    ///
    /// # Safety
    /// The bytes are mapped readable and writable, and stay so for the rest of the process (or
    /// until no copy of the handle is used any more). While any copy is in use, all processes
    /// access them by atomics only, each word at one size. The one exception is a shared reference
    /// to bytes that no process stores to while the reference exists; reads through it need not be
    /// atomic. No other Rust reference to the bytes exists, except to atomics.
    ///
    /// # Panics
    /// If `base` is not aligned to a cache line pair (128 bytes), or `size` is 0, is not a multiple
    /// of [`GRANULE`](Self::GRANULE) or exceeds [`Offset::SPAN`].
    pub unsafe fn new(
        base: NonNull<u8>,
        size: u64,
        domain: PersistenceDomain,
    ) -> Result<Self, NoWideAtomics> {
        assert!(
            (base.as_ptr() as usize).is_multiple_of(128),
            "memory at {base:p} is not aligned to 128 bytes"
        );
        assert!(
            size != 0 && size.is_multiple_of(Self::GRANULE) && size <= Offset::SPAN,
            "a memory cannot have {size} bytes: its size must be a multiple of {} and at most {} \
             bytes",
            Self::GRANULE,
            Offset::SPAN
        );
        if !portable_atomic::AtomicU128::is_lock_free() {
            return Err(NoWideAtomics);
        }
        let flag = u64::from(domain == PersistenceDomain::WriteBack);
        Ok(Self {
            base,
            bound: size << 1 | flag,
        })
    }

    /// Allocates zeroed private memory that is never freed: for tests, examples and benchmarks.
    ///
    /// # Panics
    /// If memory is short, as for [`new`](Self::new), or where 128-bit atomics are missing.
    pub fn leaked(size: u64, domain: PersistenceDomain) -> Self {
        let layout = std::alloc::Layout::from_size_align(size as usize, Self::GRANULE as usize)
            .expect("a valid size");
        assert!(size != 0, "a memory cannot have 0 bytes");
        // SAFETY: the layout's size is not zero.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        let base = NonNull::new(base).expect("memory for a leaked test memory");
        // SAFETY: just allocated, never freed, and known to no other code.
        unsafe { Self::new(base, size, domain) }.expect("128-bit atomics")
    }

    /// Returns whether a load of 128 bits only reads on this processor. Otherwise it is a
    /// compare-and-swap, which needs memory that can be written.
    pub fn wide_loads_only_read() -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            std::arch::is_x86_feature_detected!("avx")
        }
        #[cfg(target_arch = "aarch64")]
        {
            std::arch::is_aarch64_feature_detected!("lse2")
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            false
        }
    }

    /// Returns the address of the byte at `at` in this process, for system calls.
    ///
    /// # Panics
    /// If `len` bytes at `at` are not all inside the memory.
    pub fn address(self, at: Offset, len: u64) -> NonNull<u8> {
        let (offset, size) = (at.raw(), self.bound >> 1);
        if !(offset <= size && len <= size - offset) {
            out_of_range(at, len, size);
        }
        // SAFETY: inside the mapped region, as just checked.
        unsafe { self.base.add(offset as usize) }
    }

    /// Out of line: in the flushed domain this code is never executed, and inlined into every
    /// publication it would displace the code that is.
    #[cold]
    #[inline(never)]
    fn write_back_checked(self, at: Offset, len: u64) {
        let start = self.address(at, len);
        // SAFETY: `address` has checked that the bytes are inside the mapped region.
        unsafe { write_back_lines(start, len) }
    }

    /// Panics unless the words that `len` bytes at `at` touch are inside the memory, or `len` is 0.
    #[inline(always)]
    fn demand_words(self, at: Offset, len: u64) {
        let size = self.bound >> 1;
        let last = at + (len.max(1) - 1) / 8 * 8;
        // `last` does not wrap unless `at` is outside: a length is less than 2^63.
        if len > 0 && !(self.has_word::<u64>(at) && self.has_word::<u64>(last)) {
            out_of_range(at, len, size);
        }
    }

    /// Returns the address of a word, checked for range and alignment by one comparison.
    #[inline(always)]
    fn word<W: Word>(self, at: Offset) -> *mut u8 {
        if !self.has_word::<W>(at) {
            out_of_range(at, W::SIZE as u64, self.bound >> 1);
        }
        // SAFETY: `at` is aligned and `at + SIZE` is inside the mapped region, as just checked.
        unsafe { self.base.as_ptr().add(at.raw() as usize) }
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn out_of_range(at: Offset, len: u64, size: u64) -> ! {
    panic!(
        "an access of {len} bytes at offset {at} is outside a memory of {size} bytes, or not aligned"
    )
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native")
            .field("base", &self.base)
            .field("size", &self.size())
            .field("domain", &self.domain())
            .finish()
    }
}

// SAFETY: base and bound are never changed. Of the `native_*` calls below, once for all of them:
// `word` has checked that the word is aligned and inside memory which `new`'s caller promised to be
// mapped and accessed by atomics only.
unsafe impl Memory for Native {
    #[inline(always)]
    fn size(self) -> u64 {
        self.bound >> 1
    }

    #[inline(always)]
    fn domain(self) -> PersistenceDomain {
        if self.bound & 1 == 0 {
            PersistenceDomain::Flushed
        } else {
            PersistenceDomain::WriteBack
        }
    }

    #[inline(always)]
    fn load<W: Word>(self, at: Offset, order: Ordering) -> W {
        // SAFETY: see above the impl.
        unsafe { W::native_load(self.word::<W>(at), order) }
    }

    #[inline(always)]
    fn prefetch(self, at: Offset) {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = self.base.as_ptr().wrapping_add(at.raw() as usize);
            // SAFETY: every x86-64 processor has the instruction, and it accesses no memory: it has
            // no effect at an address that is not mapped.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    #[inline(always)]
    fn store<W: Word>(self, at: Offset, value: W, order: Ordering) {
        // SAFETY: see above the impl.
        unsafe { W::native_store(self.word::<W>(at), value, order) }
    }

    #[inline(always)]
    unsafe fn load_unchecked<W: Word>(self, at: Offset, order: Ordering) -> W {
        debug_assert!(self.has_word::<W>(at));
        // SAFETY: the caller has made the check that `word` makes.
        unsafe { W::native_load(self.base.as_ptr().add(at.raw() as usize), order) }
    }

    #[inline(always)]
    unsafe fn store_unchecked<W: Word>(self, at: Offset, value: W, order: Ordering) {
        debug_assert!(self.has_word::<W>(at));
        // SAFETY: the caller has made the check that `word` makes.
        unsafe { W::native_store(self.base.as_ptr().add(at.raw() as usize), value, order) }
    }

    #[inline(always)]
    fn exchange<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        // SAFETY: see above the impl.
        unsafe { W::native_exchange(self.word::<W>(at), value, order) }
    }

    #[inline(always)]
    fn compare_exchange<W: Word>(
        self,
        at: Offset,
        current: W,
        new: W,
        success: Ordering,
        failure: Ordering,
    ) -> Result<W, W> {
        // SAFETY: see above the impl.
        unsafe { W::native_compare_exchange(self.word::<W>(at), current, new, success, failure) }
    }

    #[inline(always)]
    fn fetch_add<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        // SAFETY: see above the impl.
        unsafe { W::native_fetch_add(self.word::<W>(at), value, order) }
    }

    #[inline(always)]
    fn fetch_and<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        // SAFETY: see above the impl.
        unsafe { W::native_fetch_and(self.word::<W>(at), value, order) }
    }

    #[inline(always)]
    fn fetch_or<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        // SAFETY: see above the impl.
        unsafe { W::native_fetch_or(self.word::<W>(at), value, order) }
    }

    #[inline]
    fn copy_in(self, at: Offset, from: &[u8]) {
        self.demand_words(at, from.len() as u64);
        let mut at = at;
        let mut chunks = from.chunks_exact(8);
        for chunk in &mut chunks {
            let word = u64::from_ne_bytes(chunk.try_into().expect("eight bytes"));
            // SAFETY: all words were checked above.
            unsafe { self.store_unchecked(at, word, Ordering::Relaxed) };
            at = at + 8;
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.store(at, u64::from_ne_bytes(last), Ordering::Relaxed);
        }
    }

    #[inline]
    fn copy_out(self, at: Offset, into: &mut [u8]) {
        self.demand_words(at, into.len() as u64);
        let mut at = at;
        let mut chunks = into.chunks_exact_mut(8);
        for chunk in &mut chunks {
            // SAFETY: all words were checked above.
            let word: u64 = unsafe { self.load_unchecked(at, Ordering::Relaxed) };
            chunk.copy_from_slice(&word.to_ne_bytes());
            at = at + 8;
        }
        let rest = chunks.into_remainder();
        if !rest.is_empty() {
            let word: u64 = self.load(at, Ordering::Relaxed);
            rest.copy_from_slice(&word.to_ne_bytes()[..rest.len()]);
        }
    }

    #[inline(always)]
    fn write_back(self, at: Offset, len: u64) {
        if self.bound & 1 != 0 {
            self.write_back_checked(at, len);
        }
    }

    #[inline(always)]
    fn drain(self) {
        if self.bound & 1 != 0 {
            drain_write_backs();
        }
    }

    #[inline(always)]
    fn fence(self, order: Ordering) {
        #[cfg(target_arch = "x86_64")]
        if matches!(order, Ordering::SeqCst) {
            // SAFETY: changes only the cache line state of the word at the stack pointer. For this
            // memory a locked instruction is as full a fence as `mfence`, and unlike that it lets
            // later loads be prepared at the same time.
            unsafe { core::arch::asm!("lock or dword ptr [rsp], 0", options(nostack)) };
            return;
        }
        core::sync::atomic::fence(order);
    }

    #[inline(always)]
    fn spin_hint(self) {
        core::hint::spin_loop();
    }

    #[inline(always)]
    fn crash_point<P: CrashPoint>(self, _point: P) {
        // A killed thread has executed its instructions up to one of them, and a survivor sees all
        // their stores. So processor order is enough, and only the compiler could move a relaxed
        // store from after this point to before a store that precedes it. A release fence keeps
        // it from that: all stores to shared memory are atomic. It is not an instruction, and
        // loads may move across it.
        compiler_fence(Ordering::Release);
    }

    #[inline(always)]
    fn crash_point_before_release<P: CrashPoint>(self, _point: P) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn memory() -> Native {
        Native::leaked(4096, PersistenceDomain::Flushed)
    }

    fn touches<W: Word>(memory: Native, at: u64) -> bool {
        catch_unwind(AssertUnwindSafe(|| {
            memory.load::<W>(Offset::new(at), Ordering::Relaxed)
        }))
        .is_ok()
    }

    #[test]
    fn every_word_size_works_at_both_ends() {
        fn check<W: Word>(memory: Native) {
            let last = Offset::new(4096 - W::SIZE as u64);
            for at in [Offset::new(0), last] {
                let (a, b) = (W::from_bits(5), W::from_bits(9));
                memory.store(at, a, Ordering::Release);
                assert_eq!(memory.load::<W>(at, Ordering::Acquire), a);
                assert_eq!(memory.exchange(at, b, Ordering::AcqRel), a);
                let order = (Ordering::AcqRel, Ordering::Acquire);
                assert_eq!(memory.compare_exchange(at, a, b, order.0, order.1), Err(b));
                assert_eq!(memory.compare_exchange(at, b, a, order.0, order.1), Ok(b));
                assert_eq!(memory.fetch_add(at, b, Ordering::Relaxed), a);
                assert_eq!(memory.fetch_and(at, b, Ordering::Relaxed).to_bits(), 14);
                assert_eq!(memory.fetch_or(at, a, Ordering::Relaxed).to_bits(), 8);
                assert_eq!(memory.load::<W>(at, Ordering::Relaxed).to_bits(), 13);
            }
        }
        let memory = memory();
        check::<u8>(memory);
        check::<u16>(memory);
        check::<u32>(memory);
        check::<u64>(memory);
        check::<u128>(memory);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn an_access_is_made_exactly_if_it_is_inside_and_aligned(
            at in prop_oneof![0u64..4200, 4080u64..4100, any::<u64>().prop_map(|at| at & Offset::MASK)],
        ) {
            let memory = memory();
            let fits = |size: u64| at.is_multiple_of(size) && at <= 4096 - size;
            // (The messages of the panics are printed and have no reader: the hook is shared by all
            // tests that run at the same time.)
            let seen = [
                touches::<u8>(memory, at), touches::<u16>(memory, at), touches::<u32>(memory, at),
                touches::<u64>(memory, at), touches::<u128>(memory, at),
            ];
            prop_assert_eq!(seen, [fits(1), fits(2), fits(4), fits(8), fits(16)]);
        }

        #[test]
        fn payload_comes_out_as_it_went_in(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let memory = memory();
            memory.store(Offset::new(512 + bytes.len().next_multiple_of(8) as u64), 7u64, Ordering::Relaxed);
            memory.copy_in(Offset::new(512), &bytes);
            let mut out = vec![0xAA; bytes.len()];
            memory.copy_out(Offset::new(512), &mut out);
            prop_assert_eq!(&out, &bytes);
            let after = Offset::new(512 + bytes.len().next_multiple_of(8) as u64);
            prop_assert_eq!(memory.load::<u64>(after, Ordering::Relaxed), 7);
        }
    }

    #[test]
    fn write_back_of_every_length_is_accepted() {
        let memory = Native::leaked(4096, PersistenceDomain::WriteBack);
        assert_eq!(memory.domain(), PersistenceDomain::WriteBack);
        assert_eq!(memory.size(), 4096);
        for len in [0, 1, 63, 64, 65, 4096] {
            memory.persist(Offset::new(0), len);
        }
        memory.persist(Offset::new(4095), 1);
    }
}
