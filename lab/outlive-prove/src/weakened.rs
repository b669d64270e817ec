//! A memory that omits an operation: it breaks real code without a second version of it.

use outlive_memory::{CrashPoint, Memory, Offset, Ordering, PersistenceDomain, Word};

/// The operation that is omitted. A pair of an offset and a length in bytes is a range of words.
#[derive(Clone, Copy, Debug)]
pub enum Weakness {
    /// Fences of this ordering.
    Fences(Ordering),
    /// The ordering of accesses to these words: they are relaxed.
    Orderings(Offset, u64),
    /// Compare-and-swaps of these words: they do nothing and report success.
    Swaps(Offset, u64),
    /// The comparison of compare-and-swaps of these words: they always store, and report success.
    Comparisons(Offset, u64),
    /// The comparison of these bits by compare-and-swaps of this 64-bit word.
    Bits(Offset, u64),
    /// Stores to these words.
    Stores(Offset, u64),
    /// Stores to these words of values that have one of these bits.
    Tagged(Offset, u64, u64),
    /// Copies to these words: the next store to the last word is followed by zeros for all of them.
    Late(Offset, u64, Offset),
    /// Nothing, but this function is called at this crash point: other threads act there.
    Pauses(&'static str, &'static str, fn()),
    /// Additions to these words.
    Additions(Offset, u64),
    /// The values of these words: loads return 0.
    Blind(Offset, u64),
    /// The wait: a value loaded from the first word is stored into the second at once.
    Haste(Offset, Offset),
    /// The new value of compare-and-swaps of this 128-bit word: the function computes another one
    /// from the expected value and the new value.
    Rewrites(Offset, fn(u128, u128) -> u128),
}

/// A handle on the memory `M` with a weakness.
#[derive(Clone, Copy, Debug)]
pub struct Weakened<M> {
    memory: M,
    weakness: Weakness,
}

impl<M: Memory> Weakened<M> {
    /// Returns `memory` with `weakness`.
    pub fn new(memory: M, weakness: Weakness) -> Self {
        Self { memory, weakness }
    }

    /// Returns `memory` without a weakness: for proofs in which only the broken variants weaken it.
    pub fn sound(memory: M) -> Self {
        // An empty range, so nothing is omitted.
        Self::new(memory, Weakness::Orderings(Offset::new(0), 0))
    }

    fn order(self, at: Offset, order: Ordering) -> Ordering {
        match self.weakness {
            Weakness::Orderings(from, len) if (from..from + len).contains(&at) => Ordering::Relaxed,
            _ => order,
        }
    }
}

// SAFETY: size and domain are those of the memory beneath, which never change; accesses are
// forwarded to it.
unsafe impl<M: Memory> Memory for Weakened<M> {
    fn size(self) -> u64 {
        self.memory.size()
    }

    fn domain(self) -> PersistenceDomain {
        self.memory.domain()
    }

    fn load<W: Word>(self, at: Offset, order: Ordering) -> W {
        if let Weakness::Blind(from, len) = self.weakness
            && (from..from + len).contains(&at)
        {
            return W::default();
        }
        let value = self.memory.load(at, self.order(at, order));
        if let Weakness::Haste(from, to) = self.weakness
            && from == at
        {
            self.memory.store(to, value, Ordering::Relaxed);
        }
        value
    }

    fn store<W: Word>(self, at: Offset, value: W, order: Ordering) {
        let is_omitted = match self.weakness {
            Weakness::Stores(from, len) => (from..from + len).contains(&at),
            Weakness::Tagged(from, len, bits) => {
                (from..from + len).contains(&at) && value.to_bits() & u128::from(bits) != 0
            }
            _ => false,
        };
        if is_omitted {
            return;
        }
        self.memory.store(at, value, self.order(at, order));
        if let Weakness::Late(from, len, word) = self.weakness
            && word == at
        {
            self.memory.copy_in(from, &vec![0; len as usize]);
        }
    }

    fn exchange<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.memory.exchange(at, value, self.order(at, order))
    }

    fn compare_exchange<W: Word>(
        self,
        at: Offset,
        current: W,
        new: W,
        success: Ordering,
        failure: Ordering,
    ) -> Result<W, W> {
        if let Weakness::Swaps(from, len) = self.weakness
            && (from..from + len).contains(&at)
        {
            return Ok(current);
        }
        if let Weakness::Comparisons(from, len) = self.weakness
            && (from..from + len).contains(&at)
        {
            self.memory.exchange(at, new, Ordering::Relaxed);
            return Ok(current);
        }
        let current = match self.weakness {
            Weakness::Bits(word, ignored) if word == at => {
                let ignored = u128::from(ignored);
                let now = self.memory.load::<W>(at, Ordering::Relaxed).to_bits();
                W::from_bits(now & ignored | current.to_bits() & !ignored)
            }
            _ => current,
        };
        let new = match self.weakness {
            Weakness::Rewrites(word, rewrite) if word == at => {
                W::from_bits(rewrite(current.to_bits(), new.to_bits()))
            }
            _ => new,
        };
        let (success, failure) = (self.order(at, success), self.order(at, failure));
        self.memory
            .compare_exchange(at, current, new, success, failure)
    }

    fn fetch_add<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        if let Weakness::Additions(from, len) = self.weakness
            && (from..from + len).contains(&at)
        {
            return self.memory.load(at, Ordering::Relaxed);
        }
        self.memory.fetch_add(at, value, self.order(at, order))
    }

    fn fetch_and<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.memory.fetch_and(at, value, self.order(at, order))
    }

    fn fetch_or<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.memory.fetch_or(at, value, self.order(at, order))
    }

    fn copy_in(self, at: Offset, from: &[u8]) {
        if let Weakness::Late(late, len, _) = self.weakness
            && (late..late + len).contains(&at)
        {
            return;
        }
        self.memory.copy_in(at, from);
    }

    fn copy_out(self, at: Offset, into: &mut [u8]) {
        self.memory.copy_out(at, into);
    }

    fn write_back(self, at: Offset, len: u64) {
        self.memory.write_back(at, len);
    }

    fn drain(self) {
        self.memory.drain();
    }

    fn fence(self, order: Ordering) {
        if !matches!(self.weakness, Weakness::Fences(out) if out == order) {
            self.memory.fence(order);
        }
    }

    fn spin_hint(self) {
        self.memory.spin_hint();
    }

    fn crash_point<P: CrashPoint>(self, point: P) {
        self.memory.crash_point(point);
        if let Weakness::Pauses(operation, name, act) = self.weakness
            && operation == P::OPERATION
            && name == point.name()
        {
            act();
        }
    }
}
