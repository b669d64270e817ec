//! The peers: locks that are not recoverable, written as plainly as possible.
//!
//! They wait as ours do by default, spinning and then yielding, but never sleep. Shared nodes are
//! named by offsets, as is necessary between processes.

use crate::stage::Bench;
use outlive::memory::{Memory, Native, Offset};
use outlive::sync::Waiting;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Returns a word of the pod, for the rest of the process.
fn word(bench: &Bench, at: Offset) -> &'static AtomicU64 {
    assert!(bench.memory.has_word::<u64>(at));
    let place = bench.memory.address(at, 8).cast();
    // SAFETY: mapped for the rest of the process, aligned, and used by atomics only.
    unsafe { AtomicU64::from_ptr(place.as_ptr()) }
}

/// Spins, then yields, as `Waiting::DEFAULT` says.
fn wait_until(mut ready: impl FnMut() -> bool) {
    let mut round = 0u32;
    while !ready() {
        if round < Waiting::DEFAULT.spins {
            spin_loop();
        } else {
            std::thread::yield_now();
        }
        round = round.saturating_add(1);
    }
}

pub struct Tatas(&'static AtomicU64);

impl Tatas {
    pub fn new(bench: &Bench) -> Self {
        Self(word(bench, bench.lock()))
    }

    #[inline(always)]
    pub fn increment(&self, bench: &Bench) {
        let take = || self.0.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        if !take() {
            wait_until(|| self.0.load(Relaxed) == 0 && take());
        }
        bench.add();
        self.0.store(0, Release);
    }
}

/// The same with one store to a private line between a release and the next acquisition, which any
/// log must make (and nearly any program makes).
pub struct TatasAndStore {
    lock: Tatas,
    own: &'static AtomicU64,
}

impl TatasAndStore {
    pub fn new(bench: &Bench) -> Self {
        let (lock, own) = (Tatas::new(bench), word(bench, bench.own_line()));
        Self { lock, own }
    }

    #[inline(always)]
    pub fn increment(&self, bench: &Bench) {
        self.lock.increment(bench);
        self.own.store(0, Relaxed);
    }
}

/// Mellor-Crummey and Scott's queue lock, with offsets for pointers. With `SPINS` it only spins;
/// else it yields after a while.
pub struct Mcs<const SPINS: bool> {
    tail: &'static AtomicU64,
    own: &'static Node,
    /// The offset of `own`; no node has offset 0.
    me: u64,
    base: *const u8,
}

/// A node of the queue, on a line of its own.
#[repr(C)]
struct Node {
    next: AtomicU64,
    waits: AtomicU64,
}

impl<const SPINS: bool> Mcs<SPINS> {
    pub fn new(bench: &Bench) -> Self {
        let me = bench.own_line();
        let place = bench.memory.address(me, size_of::<Node>() as u64);
        Self {
            tail: word(bench, bench.lock()),
            // SAFETY: mapped for the rest of the process, aligned, and used by atomics only.
            own: unsafe { place.cast().as_ref() },
            me: me.raw(),
            base: bench.memory.address(Offset::new(0), 0).as_ptr(),
        }
    }

    fn wait(ready: impl Fn() -> bool) {
        if SPINS {
            while !ready() {
                spin_loop();
            }
        } else {
            wait_until(ready);
        }
    }

    /// Returns the node at an offset that a worker has put into the queue.
    #[inline(always)]
    fn node(&self, at: u64) -> &Node {
        // SAFETY: workers put only the offsets of their nodes into the queue.
        unsafe { &*self.base.add(at as usize).cast() }
    }

    #[inline(always)]
    pub fn increment(&self, bench: &Bench) {
        let Node { next, waits } = self.own;
        next.store(0, Relaxed);
        waits.store(1, Relaxed);
        let before = self.tail.swap(self.me, AcqRel);
        if before != 0 {
            self.node(before).next.store(self.me, Release);
            Self::wait(|| waits.load(Acquire) == 0);
        }
        bench.add();
        if next.load(Acquire) == 0 {
            let freed = self.tail.compare_exchange(self.me, 0, Release, Relaxed);
            if freed.is_ok() {
                return;
            }
            Self::wait(|| next.load(Acquire) != 0);
        }
        self.node(next.load(Acquire)).waits.store(0, Release);
    }
}

/// A process-shared robust mutex, as a careful program uses it today.
pub struct Pthread(*mut libc::pthread_mutex_t);

impl Pthread {
    const SIZE: u64 = size_of::<libc::pthread_mutex_t>() as u64;

    pub fn new(bench: &Bench) -> Self {
        let place = bench.memory.address(bench.lock(), Self::SIZE);
        Self(place.cast().as_ptr())
    }

    #[inline(always)]
    pub fn increment(&self, bench: &Bench) {
        // SAFETY: initialised before the round, and never destroyed.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.0) }, 0);
        bench.add();
        // SAFETY: locked by this thread.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0) }, 0);
    }
}

/// Initialises the mutex of a stage, while no worker uses it.
pub fn initialise_pthread(memory: Native, at: Offset) {
    let place = memory.address(at, Pthread::SIZE).cast();
    // SAFETY: the place is mapped, aligned, never unmapped, and not in use now.
    unsafe { make_robust(place.as_ptr()) };
}

/// Initialises a robust, process-shared mutex at `place`.
///
/// # Safety
/// `place` is valid for writes, aligned, and not in use.
pub unsafe fn make_robust(place: *mut libc::pthread_mutex_t) {
    // SAFETY: by this function's contract; the attributes are initialised before their use.
    unsafe {
        let mut attributes = core::mem::zeroed();
        assert_eq!(libc::pthread_mutexattr_init(&mut attributes), 0);
        let shared = libc::PTHREAD_PROCESS_SHARED;
        assert_eq!(
            libc::pthread_mutexattr_setpshared(&mut attributes, shared),
            0
        );
        let robust = libc::PTHREAD_MUTEX_ROBUST;
        assert_eq!(
            libc::pthread_mutexattr_setrobust(&mut attributes, robust),
            0
        );
        assert_eq!(libc::pthread_mutex_init(place, &attributes), 0);
        assert_eq!(libc::pthread_mutexattr_destroy(&mut attributes), 0);
    }
}
