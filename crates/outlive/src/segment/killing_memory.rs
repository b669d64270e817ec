//! A memory that kills its user after N accesses, for the tests of this module.
//!
//! In the write-back domain the user's cache dies with it: of the words that it had not written
//! back and drained, each 8 bytes are independently in memory or lost.

use outlive_memory::{CrashPoint, Memory, Native, Offset, Ordering, PersistenceDomain, Word};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const LINE: u64 = 64;

thread_local! {
    /// The number of accesses that this thread has left.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    /// The contents that are in memory for certain, and the lines on their way there.
    static IMAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static ON_THE_WAY: RefCell<Vec<(u64, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
    static PASSED: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

struct Death;

#[derive(Clone, Copy, Debug)]
pub(super) struct Mortal(pub Native);

impl Mortal {
    pub fn new(size: u64, domain: PersistenceDomain) -> Self {
        Self(Native::leaked(size, domain))
    }

    /// Runs `operation`, which dies when it has made `accesses` accesses. Returns `None` if it
    /// died.
    pub fn with_life_of<T>(self, accesses: u64, operation: impl FnOnce() -> T) -> Option<T> {
        let mut image = vec![0; self.0.size() as usize];
        self.0.copy_out(Offset::new(0), &mut image);
        IMAGE.set(image);
        ON_THE_WAY.take();
        LEFT.set(accesses);
        let result = catch_unwind(AssertUnwindSafe(operation));
        LEFT.set(u64::MAX);
        match result {
            Ok(value) => Some(value),
            Err(payload) if payload.is::<Death>() => None,
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Calls `look` for the contents that the death of the last operation's host may leave: in the
    /// write-back domain all, none, or a random choice of the words that it had not written back.
    pub fn after_its_host_died(self, mut look: impl FnMut()) {
        if self.0.domain() == PersistenceDomain::Flushed {
            return look();
        }
        let image = IMAGE.take();
        let mut whole = vec![0; image.len()];
        self.0.copy_out(Offset::new(0), &mut whole);
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        for outcome in 0..12 {
            for at in (0..image.len()).step_by(8) {
                random = random
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let kept = outcome == 0 || outcome > 1 && random >> 63 == 0;
                let from = if kept { &whole } else { &image };
                self.0.copy_in(Offset::new(at as u64), &from[at..at + 8]);
            }
            look();
        }
    }

    /// Returns the crash points that this thread's operations have passed since the last call.
    pub fn passed() -> BTreeSet<String> {
        PASSED.take()
    }

    fn live(self) {
        match LEFT.get() {
            0 => resume_unwind(Box::new(Death)),
            u64::MAX => {}
            left => LEFT.set(left - 1),
        }
    }
}

// SAFETY: size and domain are those of the memory beneath, which never change; accesses are handed
// on to it.
unsafe impl Memory for Mortal {
    fn size(self) -> u64 {
        self.0.size()
    }
    fn domain(self) -> PersistenceDomain {
        self.0.domain()
    }
    fn load<W: Word>(self, at: Offset, order: Ordering) -> W {
        self.live();
        self.0.load(at, order)
    }
    fn store<W: Word>(self, at: Offset, value: W, order: Ordering) {
        self.live();
        self.0.store(at, value, order);
    }
    fn exchange<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.live();
        self.0.exchange(at, value, order)
    }
    fn compare_exchange<W: Word>(
        self,
        at: Offset,
        current: W,
        new: W,
        success: Ordering,
        failure: Ordering,
    ) -> Result<W, W> {
        self.live();
        self.0.compare_exchange(at, current, new, success, failure)
    }
    fn fetch_add<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.live();
        self.0.fetch_add(at, value, order)
    }
    fn fetch_and<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.live();
        self.0.fetch_and(at, value, order)
    }
    fn fetch_or<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.live();
        self.0.fetch_or(at, value, order)
    }
    fn copy_in(self, at: Offset, from: &[u8]) {
        let mut at = at;
        for chunk in from.chunks(8) {
            self.live();
            self.0.copy_in(at, chunk);
            at = at + 8;
        }
    }
    fn copy_out(self, at: Offset, into: &mut [u8]) {
        self.live();
        self.0.copy_out(at, into);
    }
    fn write_back(self, at: Offset, len: u64) {
        self.live();
        if self.domain() == PersistenceDomain::Flushed || len == 0 {
            return;
        }
        let first = at.byte() / LINE * LINE;
        for line in (first..at.byte() + len).step_by(LINE as usize) {
            let mut bytes = vec![0; LINE as usize];
            self.0.copy_out(Offset::new(line), &mut bytes);
            ON_THE_WAY.with_borrow_mut(|lines| lines.push((line, bytes)));
        }
    }
    fn drain(self) {
        self.live();
        for (line, bytes) in ON_THE_WAY.take() {
            IMAGE.with_borrow_mut(|image| {
                let line = line as usize;
                if let Some(place) = image.get_mut(line..line + bytes.len()) {
                    place.copy_from_slice(&bytes);
                }
            });
        }
    }
    fn fence(self, order: Ordering) {
        self.0.fence(order);
    }
    fn spin_hint(self) {
        self.live();
    }
    fn crash_point<P: CrashPoint>(self, point: P) {
        PASSED.with_borrow_mut(|passed| passed.insert(point.name().to_owned()));
    }
}
