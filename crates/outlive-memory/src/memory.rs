//! The operations on shared memory: the trait that every algorithm is written over.

use crate::{CrashPoint, Offset, Ordering, PersistenceDomain, Word};

/// A shared, byte-addressable memory.
///
/// A handle is `Copy` and names the whole memory; places in it are named by [`Offset`]. An access
/// that falls outside the memory or is not aligned to its size **panics**: it never touches
/// anything else. An offset that was read from the segment itself is therefore checked (or caught)
/// before it is followed.
///
/// # The rules for an algorithm
///
/// * A word is accessed at one size all its life. Bulk payload is accessed by
///   [`copy_in`](Self::copy_in) and [`copy_out`](Self::copy_out), which use relaxed 64-bit words.
/// * The data that a word publishes is written before it, and on [`PersistenceDomain::WriteBack`]
///   memory also [written back](Self::write_back) and [drained](Self::drain) before it, because a
///   thread may see the word after the publisher's caches are lost. On
///   [`PersistenceDomain::Flushed`] memory these two calls do nothing.
/// * A loop that waits for another thread's store calls [`spin_hint`](Self::spin_hint) each time.
///   The memories of the proofs run one thread at a time and switch there; without it they hang.
/// * The orderings requested are those that the algorithm needs on the weakest machine, never those
///   that x86 happens to give: the scheduled memory is weaker than x86.
///
/// # Safety
/// Algorithms ask once and rely on the answer: the [size](Self::size), the [domain](Self::domain)
/// and [`has_word`](Self::has_word) of a memory never change, and an access for which `has_word`
/// holds is made.
pub unsafe trait Memory: Copy + Send + Sync + core::fmt::Debug + 'static {
    /// Returns the size of the memory in bytes.
    fn size(self) -> u64;

    /// Returns whether there is a word at `at`: inside the memory and aligned. An access to any
    /// other place panics. (Called before an access, it costs nothing on native memory, which makes
    /// the same check: a fast path that calls it first contains no panic.)
    #[inline(always)]
    fn has_word<W: Word>(self, at: Offset) -> bool {
        // Rotated right by the logarithm of the word's size, an offset that is not aligned has its
        // low bits at the top and is larger than any size.
        let shift = W::SIZE.trailing_zeros();
        at.raw().rotate_right(shift) < self.size() >> shift
    }

    /// Returns the persistence domain: which stores survive the loss of a host's caches.
    fn domain(self) -> PersistenceDomain;

    /// Reads the word at `at`.
    ///
    /// # Panics
    /// Like all accesses, panics if `at` is out of range or not aligned to the word, or if `order`
    /// is one that the corresponding method of [`core::sync::atomic::AtomicU64`] rejects.
    fn load<W: Word>(self, at: Offset, order: Ordering) -> W;

    /// Writes the word at `at`.
    fn store<W: Word>(self, at: Offset, value: W, order: Ordering);

    /// Reads the word at `at` as [`load`](Self::load) does, but does not check that a word is
    /// there. For fast paths that have checked it before: once for several words, or at a place
    /// where a panic does no harm.
    ///
    /// # Safety
    /// [`has_word`](Self::has_word) holds for `at`, or for a wider word that this one is a part of.
    #[inline(always)]
    unsafe fn load_unchecked<W: Word>(self, at: Offset, order: Ordering) -> W {
        self.load(at, order)
    }

    /// Writes the word at `at` as [`store`](Self::store) does, without that check.
    ///
    /// # Safety
    /// The conditions of [`load_unchecked`](Self::load_unchecked) apply.
    #[inline(always)]
    unsafe fn store_unchecked<W: Word>(self, at: Offset, value: W, order: Ordering) {
        self.store(at, value, order);
    }

    /// Writes the word at `at` and returns the previous one, in one atomic step.
    fn exchange<W: Word>(self, at: Offset, value: W, order: Ordering) -> W;

    /// Writes `new` at `at` if the word there is `current`, in one atomic step. Returns the
    /// previous word: `Ok` if the write was made. Never fails spuriously.
    fn compare_exchange<W: Word>(
        self,
        at: Offset,
        current: W,
        new: W,
        success: Ordering,
        failure: Ordering,
    ) -> Result<W, W>;

    /// Adds to the word at `at`, wrapping, and returns the previous word, in one atomic step.
    fn fetch_add<W: Word>(self, at: Offset, value: W, order: Ordering) -> W;

    /// Clears in the word at `at` the bits that are clear in `value`, in one atomic step.
    fn fetch_and<W: Word>(self, at: Offset, value: W, order: Ordering) -> W;

    /// Sets in the word at `at` the bits that are set in `value`, in one atomic step.
    fn fetch_or<W: Word>(self, at: Offset, value: W, order: Ordering) -> W;

    /// Hints that the caller accesses the word at `at` soon, so that the processor fetches the
    /// cache line now. This is no access: the word need not exist.
    #[inline(always)]
    fn prefetch(self, _at: Offset) {}

    /// Copies `from` into the memory by relaxed 64-bit words.
    ///
    /// `at` is aligned to 8. The last word is padded with zeros: payload owns whole words. Other
    /// threads may see the copy torn at 8 bytes, and a death may cut it at any word.
    fn copy_in(self, at: Offset, from: &[u8]);

    /// Copies out of the memory by relaxed 64-bit words. `at` is aligned to 8.
    fn copy_out(self, at: Offset, into: &mut [u8]);

    /// Starts to write the cache lines of `len` bytes at `at` back to memory. Complete only after
    /// [`drain`](Self::drain). Does nothing on [`PersistenceDomain::Flushed`] memory.
    fn write_back(self, at: Offset, len: u64);

    /// Waits until all lines that this thread [wrote back](Self::write_back) have reached memory,
    /// before any later store of this thread can be seen. Does nothing on
    /// [`PersistenceDomain::Flushed`] memory.
    fn drain(self);

    /// Executes an atomic fence, as [`core::sync::atomic::fence`] does.
    fn fence(self, order: Ordering);

    /// Signals that the caller waits for another thread's store.
    fn spin_hint(self);

    /// Marks a crash point: a step at which proofs kill the running operation. On native memory it
    /// executes no instruction, but keeps the compiler from moving a store across it.
    #[inline(always)]
    fn crash_point<P: CrashPoint>(self, _point: P) {}

    /// Marks a crash point as [`crash_point`](Self::crash_point) does, where the next store to
    /// shared memory has [`Ordering::Release`]. The compiler does not move that store before
    /// another one anyway, so this is not even a fence for the compiler: such fences keep guards of
    /// locks from being inlined.
    #[inline(always)]
    fn crash_point_before_release<P: CrashPoint>(self, point: P) {
        self.crash_point(point);
    }

    /// [Writes back](Self::write_back) and [drains](Self::drain).
    #[inline(always)]
    fn persist(self, at: Offset, len: u64) {
        self.write_back(at, len);
        self.drain();
    }
}
