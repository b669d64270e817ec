//! The page that a sweep's processes share beside the memory under test.
//!
//! A child says here how far it is: whether its operation has begun or returned, which crash point it
//! passed last, what its panic said. The parent reads it while the child is stopped or dead, so what
//! stands here is as true as the memory itself at that instruction.

use super::coverage::{PassedPoint, PointKind};
use super::lease::Lease;
use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, compiler_fence};
use outlive_memory::{CrashPoint, Native};

/// How far the child is with its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has not begun.
    Before,
    /// Every instruction from here on belongs to the operation.
    Inside,
    /// The operation has returned.
    Returned,
    /// The operation has panicked.
    Panicked,
}

/// What stands in the page. Every field is an atomic, for two processes use it.
#[repr(C)]
pub(super) struct Control {
    phase: AtomicU32,
    /// The errno of a child that could not get as far as its operation; 0 for none.
    refused: AtomicU32,
    /// The last crash point passed, packed; 0 for none.
    point: AtomicU64,
    spins: AtomicU64,
    /// Which of its cases a survivor is at.
    case: AtomicU64,
    /// How many recoveries survivors have run.
    recoveries: AtomicU64,
    message_len: AtomicU32,
    message: [AtomicU8; Control::MESSAGE],
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Control({:?}, {:?})", self.phase(), self.point())
    }
}

/// The bits of a packed point that hold its index plus one; the address of its kind is above them.
const INDEX_BITS: u32 = 16;

impl Control {
    /// How many bytes of a message are kept.
    const MESSAGE: usize = 3072;

    /// How often one run may ask to wait for another thread. In a sweep nobody else runs, so a loop that
    /// waits so long waits for the dead.
    const MOST_SPINS: u64 = 1 << 21;

    /// The control block in leased memory, all zero.
    pub(super) fn lease() -> (Lease, &'static Self) {
        const { assert!(size_of::<Control>() <= Native::GRANULE as usize) }
        let lease = Lease::of(Native::GRANULE);
        lease.zero();
        // SAFETY: leased memory is mapped for the rest of the process, a page is large enough, any bit
        // pattern is a valid `Control`, and all of its fields are atomics.
        let control = unsafe { lease.base().cast::<Self>().as_ref() };
        (lease, control)
    }

    /// Before a child is forked.
    pub(super) fn reset(&self) {
        self.phase.store(Phase::Before as u32, Ordering::Relaxed);
        self.refused.store(0, Ordering::Relaxed);
        self.forget_run();
    }

    /// Before a run of an operation or a recovery.
    pub(super) fn forget_run(&self) {
        self.point.store(0, Ordering::Relaxed);
        self.spins.store(0, Ordering::Relaxed);
        self.message_len.store(0, Ordering::Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Before,
            1 => Phase::Inside,
            2 => Phase::Returned,
            _ => Phase::Panicked,
        }
    }

    /// The window of a sweep begins and ends with this store: the compiler moves nothing across it.
    pub(super) fn enter(&self, phase: Phase) {
        compiler_fence(Ordering::SeqCst);
        self.phase.store(phase as u32, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    pub(super) fn refuse(&self, errno: i32) {
        self.refused.store(errno as u32, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) -> Option<i32> {
        let errno = self.refused.load(Ordering::Relaxed);
        (errno != 0).then_some(errno as i32)
    }

    /// One store, so that a kill falls before or after it, never inside.
    #[inline(always)]
    pub(super) fn pass<P: CrashPoint>(&self, point: P) {
        let kind = core::ptr::from_ref(PointKind::of::<P>()).expose_provenance() as u64;
        debug_assert!(kind >> (64 - INDEX_BITS) == 0);
        compiler_fence(Ordering::SeqCst);
        let packed = kind << INDEX_BITS | (point.index() as u64 + 1);
        self.point.store(packed, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    pub(super) fn point(&self) -> Option<PassedPoint> {
        let packed = self.point.load(Ordering::Relaxed);
        if packed == 0 {
            return None;
        }
        let address = (packed >> INDEX_BITS) as usize;
        let index = (packed & ((1 << INDEX_BITS) - 1)) as usize - 1;
        // SAFETY: only `pass` stores here, the address of a static that a forked child has at the same
        // place as its parent.
        let kind = unsafe { &*core::ptr::with_exposed_provenance::<PointKind>(address) };
        Some(PassedPoint { kind, index })
    }

    /// The packed point, to see whether it has changed.
    #[inline]
    pub(super) fn raw_point(&self) -> u64 {
        self.point.load(Ordering::Relaxed)
    }

    /// # Panics
    /// When one run has waited too often.
    #[inline]
    pub(super) fn spin(&self) {
        let spins = self.spins.load(Ordering::Relaxed) + 1;
        self.spins.store(spins, Ordering::Relaxed);
        assert!(
            spins < Self::MOST_SPINS,
            "waited {spins} times for another thread, and there is none: it waits for the dead"
        );
    }

    pub(super) fn start_case(&self, case: u64) {
        self.forget_run();
        self.case.store(case, Ordering::Relaxed);
    }

    pub(super) fn case(&self) -> u64 {
        self.case.load(Ordering::Relaxed)
    }

    pub(super) fn count_recovery(&self) {
        self.recoveries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn recoveries(&self) -> u64 {
        self.recoveries.load(Ordering::Relaxed)
    }

    /// Leaves a message, cut at a character if it is too long.
    pub(super) fn say(&self, message: &str) {
        let mut len = message.len().min(Self::MESSAGE);
        while !message.is_char_boundary(len) {
            len -= 1;
        }
        for (cell, byte) in self.message.iter().zip(&message.as_bytes()[..len]) {
            cell.store(*byte, Ordering::Relaxed);
        }
        self.message_len.store(len as u32, Ordering::Release);
    }

    /// What was said since the last run began, if anything.
    pub(super) fn message(&self) -> Option<String> {
        let len = self.message_len.load(Ordering::Acquire) as usize;
        let bytes = self.message.get(..len).unwrap_or(&self.message);
        let bytes: Vec<u8> = bytes.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }
}
