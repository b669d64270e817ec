//! Runs a measured loop at another stack offset within a page in every round.
//!
//! A processor decides by the lower twelve bits of the addresses whether a load may overtake an
//! older store. A loop whose stack values happen to lie whole pages from the words of a lock takes
//! up to twice as long, be it ours or a peer's. A thread's stack begins at the same offset in a
//! page in every run, so this would be a bias, not noise. Rounds at all offsets turn it into
//! outliers, which a median leaves out.

use std::hint::black_box;

/// The number of offsets; together they span more than a page.
const PLACES: u64 = 64;

/// Runs `job` at the stack offset of `round`.
pub fn displaced(round: u64, job: &mut dyn FnMut()) {
    // Multiples of the golden ratio, so that alternating measurements get all offsets.
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
    // Used after the call, so that this frame still exists during the call.
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
