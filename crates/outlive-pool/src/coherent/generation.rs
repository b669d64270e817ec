//! The choice of an allocation's generation.
//!
//! An address has a position and a generation, so an access that leaves its allocation is an error
//! only if the neighbouring allocations have other generations. Two neighbours may choose at one
//! time. Each stores its choice in the map words at both ends of its run, executes a full fence,
//! and reads the words beside its run. One of the two sees the other's choice, and chooses again.

use super::{Coherent, Run};
use crate::layout::{LAST_COUNT, MapWord, Use, count_of};
use outlive::memory::{Memory, Ordering};
use std::collections::BTreeSet;

impl<M: Memory> Coherent<M> {
    /// Chooses a generation for the use `kind`. Its count differs from the previous counts of the
    /// slices of `run`, and it differs from the generations of the slices beside the run; `None` if
    /// no such generation exists. The caller owns the slices. Repeated only if a neighbour chooses
    /// the same generation at the same time.
    pub(super) fn choose_generation(self, run: Run, kind: Use) -> Option<u16> {
        let used = run.slices().map(|it| count_of(self.generation(it)));
        let used: BTreeSet<_> = used.collect();
        let mut rounds = 0;
        loop {
            let generation = choose(kind, &used, self.beside(run), rounds, run.first)?;
            for end in [run.first, run.first + run.slices - 1] {
                self.set_map_word(end, MapWord::unmapped(generation));
            }
            // SeqCst: either this member sees the choice of a neighbour, or the neighbour sees
            // this one.
            self.memory.fence(Ordering::SeqCst);
            if !self.beside(run).contains(&generation) {
                return Some(generation);
            }
            rounds += 1;
            self.memory.spin_hint();
        }
    }

    fn generation(self, slice: u64) -> u16 {
        self.map_word(slice).generation()
    }

    /// Returns the generations of the slices beside `run`; 0, which no allocation has, beyond the
    /// tables.
    fn beside(self, run: Run) -> [u16; 2] {
        let before = run.first.checked_sub(1);
        let behind = Some(run.first + run.slices).filter(|it| *it < self.sizes.slices);
        [before, behind].map(|slice| slice.map_or(0, |slice| self.generation(slice)))
    }
}

/// Returns a generation that is not in `beside`, with the next count after those in `used`; after
/// the last count, with the smallest that is not in `used`. Two neighbours that repeat the choice
/// in step have different first slices, so a bit of these lets one of them skip a generation and
/// the other one not.
fn choose(
    kind: Use,
    used: &BTreeSet<u16>,
    beside: [u16; 2],
    rounds: u32,
    first: u64,
) -> Option<u16> {
    let most = used.last().copied().unwrap_or(0);
    let skipped = match rounds {
        0 => 0,
        rounds => first >> ((rounds - 1) % 32) & 1,
    };
    let all = || {
        (most + 1..=LAST_COUNT)
            .chain(1..=most)
            .filter(|it| !used.contains(it))
            .map(|it| kind.generation(it))
            .filter(|it| !beside.contains(it))
    };
    all().nth(skipped as usize).or_else(|| all().next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Sizes;
    use outlive::memory::{Native, Offset, PersistenceDomain};

    const LAST: u16 = LAST_COUNT;

    #[test]
    fn a_generation_differs_from_those_before_and_beside() {
        let sizes = Sizes {
            slice_bits: 12,
            slices: 4,
            servers: 1,
            readers: 1,
            counters: 1,
            moves: 1,
            object_quota: 0,
        };
        let memory = Native::leaked(4096, PersistenceDomain::Flushed);
        let coherent = Coherent::create(memory, Offset::new(0), sizes);
        let choose_for = |kind, generations: [u16; 4], first, slices| {
            for (slice, generation) in (0..).zip(generations) {
                coherent.set_map_word(slice, MapWord::unmapped(generation));
            }
            coherent.choose_generation(Run { first, slices }, kind)
        };
        let choose =
            |generations, first, slices| choose_for(Use::Plain, generations, first, slices);
        assert_eq!(choose([0, 0, 0, 0], 0, 4), Some(1));
        assert_eq!(choose([1, 0, 0, 0], 1, 2), Some(2));
        assert_eq!(choose([5, 4, 2, 6], 1, 2), Some(7));
        // After the last one: that of no slice in the run, and of none beside it.
        assert_eq!(choose([LAST, 1, 3, 2], 0, 2), Some(2));
        assert_eq!(choose([LAST, 1, 2, 3], 0, 3), Some(4));
        assert_eq!(choose([1, LAST, 3, 2], 1, 2), Some(4));
        assert_eq!(choose([LAST, LAST - 1, 0, 0], 1, 1), Some(1));
        // The count goes on when the use of a slice changes.
        let object = |count| Use::Object.generation(count);
        assert_eq!(choose([0, object(7), 3, 0], 1, 2), Some(8));
        let of_object = |generations| choose_for(Use::Object, generations, 1, 2);
        assert_eq!(of_object([0, 9, 3, 10]), Some(object(10)));
        assert_eq!(of_object([object(10), 9, 3, 0]), Some(object(11)));
        assert_eq!(of_object([0, LAST, 0, 0]), Some(object(1)));
    }

    #[test]
    fn neighbours_in_step_come_apart() {
        let used = BTreeSet::from([0]);
        for (left, right) in [(0, 1), (2, 4), (5, 7), (0, 1 << 29)] {
            let differ = (0..=32).any(|rounds| {
                choose(Use::Plain, &used, [0, 1], rounds, left)
                    != choose(Use::Plain, &used, [1, 0], rounds, right)
            });
            assert!(differ, "{left} and {right}");
        }
    }
}
