//! A pod of a few ids over one memory with members that die at a test's request, and a memory that
//! kills its user at the n-th access.

#![allow(dead_code)] // each test file uses its part of this

#[path = "../../../../../lab/outlive-proofs/src/pod.rs"]
mod fixture;

pub use fixture::*;
use outlive::memory::{CrashPoint, Memory, Native, Offset, Ordering, PersistenceDomain, Word};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub fn native() -> Native {
    Native::leaked(SIZE, PersistenceDomain::Flushed)
}

thread_local! {
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    static DEAD: Cell<bool> = const { Cell::new(false) };
    static PASSED: Cell<Option<BTreeSet<(&'static str, &'static str)>>> = const { Cell::new(None) };
}

thread_local! {
    static LOSES: Cell<Option<(Offset, u64)>> = const { Cell::new(None) };
}

/// Runs `live` while another member is faster at each compare-and-swap of the word at `at`, and
/// returns how often it was. Panics after 1,000 times `most`.
pub fn losing(at: Offset, most: u64, live: impl FnOnce()) -> u64 {
    LOSES.set(Some((at, most * 1000)));
    live();
    let (_, left) = LOSES.take().expect("set above");
    most * 1000 - left
}

fn loses(at: Offset) -> bool {
    let Some((_, left)) = LOSES.get().filter(|(word, _)| *word == at) else {
        return false;
    };
    assert!(left > 0, "tried without end");
    LOSES.set(Some((at, left - 1)));
    true
}

struct Died;

/// Runs `live` until it has made `accesses` accesses to [`Countdown`] memory: the next one does not
/// take place, nor does any after it. Returns `None` if it died.
pub fn cut<R>(accesses: u64, live: impl FnOnce() -> R) -> Option<R> {
    LEFT.set(Some(accesses));
    let outcome = catch_unwind(AssertUnwindSafe(live));
    LEFT.set(None);
    let died = DEAD.replace(false);
    match outcome {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Died>() || died => None,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// Runs `run` for 0, 1, 2 ... accesses until it reports no death; returns the number of deaths.
pub fn sweep(mut run: impl FnMut(u64) -> bool) -> u64 {
    let mut accesses = 0;
    while run(accesses) {
        accesses += 1;
        assert!(accesses < 100_000, "an operation without end");
    }
    accesses
}

/// Collects the crash points that are passed while `run` runs.
pub fn points_of(run: impl FnOnce()) -> BTreeSet<(&'static str, &'static str)> {
    PASSED.set(Some(BTreeSet::new()));
    run();
    PASSED.take().expect("set above")
}

/// Native memory that kills its user at an access chosen with [`cut`]: later accesses, during the
/// unwinding, have no effect.
#[derive(Clone, Copy, Debug)]
pub struct Countdown(Native);

impl Countdown {
    pub fn new() -> Self {
        Self(native())
    }

    /// The same with `size` bytes.
    pub fn of_size(size: u64) -> Self {
        Self(Native::leaked(size, PersistenceDomain::Flushed))
    }

    /// Makes everything zero again.
    pub fn reset(self) {
        self.0
            .copy_in(Offset::new(0), &vec![0; self.0.size() as usize]);
    }

    /// Returns whether the access takes place.
    fn lives(self) -> bool {
        if DEAD.get() {
            return false;
        }
        match LEFT.get() {
            Some(0) => {
                DEAD.set(true);
                std::panic::resume_unwind(Box::new(Died))
            }
            Some(left) => LEFT.set(Some(left - 1)),
            None => {}
        }
        true
    }
}

// SAFETY: size and domain are those of the memory beneath, which never change; accesses are handed
// on to it.
unsafe impl Memory for Countdown {
    fn size(self) -> u64 {
        self.0.size()
    }
    fn domain(self) -> PersistenceDomain {
        PersistenceDomain::Flushed
    }
    fn load<W: Word>(self, at: Offset, order: Ordering) -> W {
        if self.lives() {
            self.0.load(at, order)
        } else {
            W::default()
        }
    }
    fn store<W: Word>(self, at: Offset, value: W, order: Ordering) {
        if self.lives() {
            self.0.store(at, value, order);
        }
    }
    fn exchange<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        if self.lives() {
            self.0.exchange(at, value, order)
        } else {
            W::default()
        }
    }
    fn compare_exchange<W: Word>(
        self,
        at: Offset,
        current: W,
        new: W,
        success: Ordering,
        failure: Ordering,
    ) -> Result<W, W> {
        if loses(at) {
            Err(new)
        } else if self.lives() {
            self.0.compare_exchange(at, current, new, success, failure)
        } else {
            Err(W::default())
        }
    }
    fn fetch_add<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        if self.lives() {
            self.0.fetch_add(at, value, order)
        } else {
            W::default()
        }
    }
    fn fetch_and<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        if self.lives() {
            self.0.fetch_and(at, value, order)
        } else {
            W::default()
        }
    }
    fn fetch_or<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        if self.lives() {
            self.0.fetch_or(at, value, order)
        } else {
            W::default()
        }
    }
    fn copy_in(self, at: Offset, from: &[u8]) {
        for (index, chunk) in from.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.store(
                at + index as u64 * 8,
                u64::from_ne_bytes(word),
                Ordering::Relaxed,
            );
        }
    }
    fn copy_out(self, at: Offset, into: &mut [u8]) {
        if self.lives() {
            self.0.copy_out(at, into);
        }
    }
    fn write_back(self, _: Offset, _: u64) {}
    fn drain(self) {}
    fn fence(self, order: Ordering) {
        self.0.fence(order);
    }
    fn spin_hint(self) {
        self.lives();
    }
    fn crash_point<P: CrashPoint>(self, point: P) {
        if let Some(mut passed) = PASSED.take() {
            passed.insert((P::OPERATION, point.name()));
            PASSED.set(Some(passed));
        }
    }
}

/// The declared points of `P`, as [`points_of`] gives them.
pub fn declared<P: CrashPoint>() -> BTreeSet<(&'static str, &'static str)> {
    P::ALL
        .iter()
        .map(|point| (P::OPERATION, point.name()))
        .collect()
}
