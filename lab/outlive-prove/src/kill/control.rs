//! The page that a sweep's processes share beside the memory under test.
//!
//! In it a child records its progress: whether its operation has begun or returned, which crash
//! point it passed last, the message of its panic. The parent reads it while the child is stopped
//! or dead, so it is as exact as the memory itself at that instruction.

use super::coverage::{PassedPoint, PointKind};
use super::shared_memory::Lease;
use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, compiler_fence};
use outlive_memory::{CrashPoint, Native};

/// The progress of a child's operation.
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

/// The contents of the page. Every field is an atomic, since two processes use it.
#[repr(C)]
pub(super) struct Control {
    phase: AtomicU32,
    /// The errno of a child that could not begin its operation; 0 for none.
    refused: AtomicU32,
    /// The last crash point passed, packed; 0 for none.
    point: AtomicU64,
    spins: AtomicU64,
    /// The case that a survivor is recovering.
    case: AtomicU64,
    /// The number of recoveries that survivors have run.
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
    /// The size of the message buffer in bytes.
    const MESSAGE: usize = 3072;

    /// The number of spin hints that one run may execute. No other thread runs in a sweep, so a
    /// loop that waits longer waits for a dead one.
    const MOST_SPINS: u64 = 1 << 21;

    /// Returns the control block in leased memory, all zero.
    pub(super) fn lease() -> (Lease, &'static Self) {
        const { assert!(size_of::<Control>() <= Native::GRANULE as usize) }
        let lease = Lease::of(Native::GRANULE);
        lease.zero();
        // SAFETY: leased memory is mapped for the rest of the process, a page is large enough, any
        // bit pattern is a valid `Control`, and all of its fields are atomics.
        let control = unsafe { lease.base().cast::<Self>().as_ref() };
        (lease, control)
    }

    /// Resets the page before a child is forked.
    pub(super) fn reset(&self) {
        self.phase.store(Phase::Before as u32, Ordering::Relaxed);
        self.refused.store(0, Ordering::Relaxed);
        self.forget_run();
    }

    /// Resets the page before a run of an operation or a recovery.
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

    /// Begins or ends the window of a sweep by one store: the compiler moves nothing across it.
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

    /// Records a point by one store, so that a kill falls before or after it, never inside.
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
        // SAFETY: only `pass` stores here, the address of a static that a forked child has at the
        // same place as its parent.
        let kind = unsafe { &*core::ptr::with_exposed_provenance::<PointKind>(address) };
        Some(PassedPoint { kind, index })
    }

    /// Returns the packed point, to detect a change.
    #[inline]
    pub(super) fn raw_point(&self) -> u64 {
        self.point.load(Ordering::Relaxed)
    }

    /// Counts a spin hint.
    ///
    /// # Panics
    /// If one run has waited too often.
    #[inline]
    pub(super) fn spin(&self) {
        let spins = self.spins.load(Ordering::Relaxed) + 1;
        self.spins.store(spins, Ordering::Relaxed);
        assert!(
            spins < Self::MOST_SPINS,
            "waited {spins} times for another thread, but there is none: it waits for a dead member"
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

    /// Returns the message left since the last run began, if there is one.
    pub(super) fn message(&self) -> Option<String> {
        let len = self.message_len.load(Ordering::Acquire) as usize;
        let bytes = self.message.get(..len).unwrap_or(&self.message);
        let bytes: Vec<u8> = bytes.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }
}
