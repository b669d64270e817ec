//! The cache array against the plainest possible cache: a list for each set, in the order of use.

use outlive_machine::description::Description;
use outlive_machine::line::{Line, LineAddress};
use outlive_machine::parts::{CacheArray, Slot, Victim};
use proptest::prelude::*;

/// The lines of each set, least recently used first.
#[derive(Clone)]
struct Reference {
    ways: usize,
    sets: Vec<Vec<(u64, u8, Line)>>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Uses a line as a cache does: touches it and stores into it if it is here, else evicts one
    /// and fetches it.
    Use(u64, u64),
    /// The same, but a line whose state is odd must stay.
    UseAmongEven(u64, u8),
    Remove(u64),
    SetState(u64, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let line = 0..40u64;
    let step = prop_oneof![
        5 => (line.clone(), any::<u64>()).prop_map(|(line, value)| Step::Use(line, value)),
        2 => (line.clone(), any::<u8>()).prop_map(|(line, state)| Step::UseAmongEven(line, state)),
        1 => line.clone().prop_map(Step::Remove),
        2 => (line, any::<u8>()).prop_map(|(line, state)| Step::SetState(line, state)),
    ];
    prop::collection::vec(step, 1..300)
}

type Cache = CacheArray<u8>;

fn fill(
    cache: &mut Cache,
    reference: &mut Reference,
    place: Victim,
    line: u64,
    state: u8,
    values: Line,
) -> Slot {
    let set = line as usize % reference.sets.len();
    let slot = match place {
        Victim::Free(slot) => slot,
        Victim::Taken(slot) => {
            let (address, state, values) = cache.remove(slot);
            let oldest = reference.sets[set]
                .iter()
                .position(|held| held.0 == address.0)
                .unwrap();
            assert_eq!(
                reference.sets[set].remove(oldest),
                (address.0, state, values)
            );
            slot
        }
    };
    cache.fill(slot, LineAddress(line), state, values);
    reference.sets[set].push((line, state, values));
    slot
}

fn step(cache: &mut Cache, reference: &mut Reference, step: &Step) {
    let (Step::Use(line, _)
    | Step::UseAmongEven(line, _)
    | Step::Remove(line)
    | Step::SetState(line, _)) = *step;
    let set = line as usize % reference.sets.len();
    let found = cache.find(LineAddress(line));
    let held = reference.sets[set].iter().position(|held| held.0 == line);
    assert_eq!(found.is_some(), held.is_some());
    match (step, found.zip(held)) {
        (Step::Use(_, value), Some((slot, held))) => {
            // In one step or in two, with the same result.
            match value % 3 {
                0 => cache.touch(slot),
                _ => assert_eq!(cache.find_to_use(LineAddress(line)), Some(slot)),
            }
            cache.line_mut(slot)[(*value % 8) as usize] = *value;
            let mut used = reference.sets[set].remove(held);
            used.2[(*value % 8) as usize] = *value;
            reference.sets[set].push(used);
        }
        (Step::Use(_, value), None) => {
            assert_eq!(cache.find_to_use(LineAddress(line)), None);
            let place = cache.victim(LineAddress(line));
            // The victim is the least recently used line, and only if the set is full.
            let full = reference.sets[set].len() == reference.ways;
            let expected = full.then(|| LineAddress(reference.sets[set][0].0));
            let taken = if let Victim::Taken(slot) = place {
                Some(cache.address(slot))
            } else {
                None
            };
            assert_eq!(taken, expected);
            fill(cache, reference, place, line, 0, [*value; 8]);
        }
        (Step::UseAmongEven(..), Some((slot, held))) => {
            cache.touch(slot);
            let used = reference.sets[set].remove(held);
            reference.sets[set].push(used);
        }
        (Step::UseAmongEven(_, state), None) => {
            let place = cache.victim_among(LineAddress(line), |_, state| state % 2 == 0);
            let even = reference.sets[set]
                .iter()
                .find(|held| held.1 % 2 == 0)
                .map(|held| LineAddress(held.0));
            match place {
                None => assert!(even.is_none() && reference.sets[set].len() == reference.ways),
                Some(place) => {
                    if let Victim::Taken(slot) = place {
                        assert_eq!(Some(cache.address(slot)), even);
                    }
                    fill(cache, reference, place, line, *state, [line; 8]);
                }
            }
        }
        (Step::Remove(_), Some((slot, held))) => {
            let (address, state, values) = cache.remove(slot);
            assert_eq!((address.0, state, values), reference.sets[set].remove(held));
        }
        (Step::SetState(_, state), Some((slot, held))) => {
            *cache.state_mut(slot) = *state;
            reference.sets[set][held].1 = *state;
        }
        (Step::Remove(_) | Step::SetState(..), None) => {}
    }
    check(cache, reference);
}

/// Checks that exactly the expected lines are here, with their states and values.
fn check(cache: &Cache, reference: &Reference) {
    let mut here: Vec<(u64, u8, Line)> = cache
        .iter()
        .map(|(address, state, line)| (address.0, state, *line))
        .collect();
    let mut expected: Vec<_> = reference.sets.concat();
    here.sort_unstable();
    expected.sort_unstable();
    assert_eq!(here, expected);
    assert_eq!(
        (cache.len(), cache.is_empty()),
        (expected.len(), expected.is_empty())
    );
    for (line, state, values) in expected {
        let slot = cache.find(LineAddress(line)).unwrap();
        assert_eq!(
            (cache.address(slot), cache.state(slot), cache.line(slot)),
            (LineAddress(line), state, &values)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_array_is_the_reference(sets in 0..3u32, ways in 1..6usize, first in steps(), second in steps()) {
        let sets = 1 << sets;
        let (mut cache, mut reference) = (Cache::new(sets, ways), Reference { ways, sets: vec![Vec::new(); sets] });
        first.iter().for_each(|one| step(&mut cache, &mut reference, one));
        // The clone takes steps of its own from here.
        let (mut clone, mut clone_reference) = (cache.clone(), reference.clone());
        second.iter().for_each(|one| step(&mut clone, &mut clone_reference, one));
        check(&cache, &reference);
    }
}

#[test]
fn the_papers_caches_have_the_papers_sizes() {
    let description = Description::default();
    let lines = [&description.l1, &description.l2, &description.l3]
        .map(|cache| Cache::described(cache).capacity());
    assert_eq!(
        lines.map(|lines| lines * 64),
        [48 << 10, 512 << 10, 8 << 20]
    );
    // "The maximum total number of different lines in the caches of a CN is 163K": with all caches
    // exclusive of each other, 131,072 + 4 (8,192 + 768) = 166,912; counted in units of 1,024, 163.
    assert_eq!((lines[2] + 4 * (lines[1] + lines[0])) / 1024, 163);
}

#[test]
#[should_panic(expected = "line 0x1 cannot go to")]
fn a_line_goes_to_its_own_set_only() {
    let mut cache = Cache::new(2, 1);
    let Victim::Free(slot) = cache.victim(LineAddress(0)) else {
        panic!("it is empty")
    };
    cache.fill(slot, LineAddress(1), 0, [0; 8]);
}

#[test]
#[should_panic(expected = "cannot go to")]
fn a_line_goes_to_a_free_place_only() {
    let mut cache = Cache::new(1, 1);
    let Victim::Free(slot) = cache.victim(LineAddress(0)) else {
        panic!("it is empty")
    };
    cache.fill(slot, LineAddress(0), 0, [0; 8]);
    cache.fill(slot, LineAddress(1), 0, [0; 8]);
}

#[test]
#[should_panic(expected = "holds no line")]
fn nothing_is_removed_twice() {
    let mut cache = Cache::new(1, 1);
    let Victim::Free(slot) = cache.victim(LineAddress(0)) else {
        panic!("it is empty")
    };
    cache.fill(slot, LineAddress(0), 0, [0; 8]);
    cache.remove(slot);
    cache.remove(slot);
}
