//! Where on its stack a measured loop runs: at another place of a page in every round.
//!
//! A processor tells by the lower twelve bits of their addresses whether a load may overtake an older store. A loop
//! whose values on the stack happen to lie whole pages from the words of a lock takes up to twice as long for it, be it
//! ours or a peer's; and as a thread's stack begins at the same place of a page in every run, that would be no noise but
//! a bias. In rounds at all places it is what a median leaves out.

use std::hint::black_box;

/// How many places there are; together they go beyond a page.
const PLACES: u64 = 64;

/// Does `job` at the place of the stack that `round` falls on.
pub fn displaced(round: u64, job: &mut dyn FnMut()) {
    // By the golden ratio, so that what is measured in turns gets all places.
    let place = (round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % PLACES;
    deeper(place, job);
}

#[inline(never)]
fn deeper(levels: u64, job: &mut dyn FnMut()) {
    let frame = black_box([0u8; 48]);
    match levels {
        0 => job(),
        _ => deeper(levels - 1, job),
    }
    // Used after the call: this frame is not gone before.
    black_box(&frame);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rounds_fall_on_all_parts_of_a_page_and_every_other_one_does_too() {
        for first in [0, 1] {
            let mut parts = BTreeSet::new();
            for round in (first..1000).step_by(2) {
                displaced(round, &mut || {
                    let here = black_box(0u8);
                    parts.insert((&raw const here).addr() % 4096 / 512);
                });
            }
            assert_eq!(parts.len(), 8, "{parts:?}");
        }
    }
}
