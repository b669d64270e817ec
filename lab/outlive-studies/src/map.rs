//! `map`: the cost of the hash map to one thread, eight bytes to eight bytes. The peers are a
//! sharded (dashmap) and a lock-free (papaya) map of private memory, which are lost with their
//! process. It also measures the longest single insertion while each map grows.
//!
//! A round makes a map of each kind, inserts all keys and looks each of them up in another order.
//! All of them grow on the way. Our map is in memory that was touched before, as in a prefaulted
//! segment: the first touch of a page of 2 MiB takes the kernel milliseconds, whichever map it is.

use crate::lone_member::{Alone, FREE};
use crate::paired::{Comparison, Paired};
use crate::row::{Goal, Row};
use crate::statistics::{median, median_estimate};
use crate::{Run, Study, StudyError};
use dashmap::DashMap;
use outlive::heap::{self, Heap, LocalHeap};
use outlive::memory::{Native, Offset};
use outlive::structures::{self, Map};
use outlive::sync;
use std::hint::black_box;
use std::time::Instant;

pub const STUDY: Study = Study {
    name: "map",
    about: "the hash map beside concurrent maps of private memory, and the longest operation while it grows",
    body: study,
};

/// The times of one kind of map.
#[derive(Clone, Copy, Debug)]
struct Took {
    /// Nanoseconds per insertion.
    insert: f64,
    /// Nanoseconds per look-up.
    get: f64,
    /// Microseconds of the longest insertion, in a second map, with a time for each insertion.
    longest: f64,
}

/// Returns keys in an order from which no map can profit.
fn key(index: u64) -> u64 {
    index.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let entries: u64 = run.effort().of(2_000, 200_000, 1_000_000);
    let rounds = run.effort().of(2, 13, 31);
    // Two maps at a time: nodes of at most 64 bytes, directories, and slabs that are not full.
    let region = (entries * 400 * 2).max(64 << 20).next_multiple_of(4096);
    let state = Heap::<Native>::state_bytes(region).expect("a region");
    let at = Offset::new((FREE + state).raw().next_multiple_of(4096));
    let alone = Alone::prefaulted(at.raw() + region)?;
    let heap = Heap::create(alone.memory, FREE, at, region)
        .map_err(|error| StudyError::void(error.to_string()))?;
    let recoverers = heap::recoverers(sync::recoverers(alone.logs));
    let recoverers = structures::recoverers(heap::recoverers_of(recoverers, heap), heap);
    let local = LocalHeap::of(heap, &alone.member, &recoverers);
    // The first round warms up.
    outlive(&local, entries)?;
    let mut took = Vec::new();
    for round in 0..rounds {
        run.go_on()?;
        run.begin(&format!(
            "{entries} entries, round {} of {rounds}",
            round + 1
        ));
        took.push(Round {
            dash_before: dash(entries),
            papaya_before: papaya(entries),
            ours: outlive(&local, entries)?,
            dash_after: dash(entries),
            papaya_after: papaya(entries),
        });
    }
    for (peer, goal, before, after) in [
        (
            "dashmap, sharded, private memory",
            Some(Goal::ratio_at_most(2.0)),
            (|round: &Round| round.dash_before) as fn(&Round) -> Took,
            (|round: &Round| round.dash_after) as fn(&Round) -> Took,
        ),
        (
            "papaya, lock-free, private memory",
            None,
            |round| round.papaya_before,
            |round| round.papaya_after,
        ),
    ] {
        for (metric, of) in [
            (
                "time of an insertion",
                (|took: Took| took.insert) as fn(Took) -> f64,
            ),
            ("time of a look-up", |took| took.get),
        ] {
            let paired = Paired {
                ours: took.iter().map(|round| of(round.ours)).collect(),
                before: took.iter().map(|round| of(before(round))).collect(),
                after: took.iter().map(|round| of(after(round))).collect(),
            };
            let comparison = Comparison {
                case: &format!("{entries} entries, one thread"),
                metric,
                unit: "ns",
                peer,
                paper: None,
                goal,
            };
            run.answer(comparison.rows(&paired));
        }
        let longest: Vec<f64> = took.iter().map(|round| before(round).longest).collect();
        let ours: Vec<f64> = took.iter().map(|round| round.ours.longest).collect();
        let row = Row::new(
            format!("{entries} entries, one thread"),
            "the longest insertion while the map grows (median of rounds)",
            "us",
        );
        run.answer([row
            .ours_within(median_estimate(&ours))
            .peer(peer, median(&longest))]);
    }
    Ok(())
}

struct Round {
    dash_before: Took,
    papaya_before: Took,
    ours: Took,
    dash_after: Took,
    papaya_after: Took,
}

fn measure(
    entries: u64,
    mut insert: impl FnMut(u64, u64),
    mut get: impl FnMut(u64) -> Option<u64>,
    mut insert_again: impl FnMut(u64, u64),
) -> Took {
    let started = Instant::now();
    for index in 0..entries {
        insert(key(index), index);
    }
    let inserted = started.elapsed();
    let started = Instant::now();
    let mut sum = 0u64;
    for index in 0..entries {
        let value = get(key(index * 7919 % entries));
        sum = sum.wrapping_add(value.expect("an entry that was inserted"));
    }
    let got = started.elapsed();
    // 7919 is prime and divides no number of entries used here, so each key was looked up once.
    assert_eq!(black_box(sum), entries * (entries - 1) / 2);
    let mut longest = 0;
    for index in 0..entries {
        let started = Instant::now();
        insert_again(key(index), index);
        longest = longest.max(started.elapsed().as_nanos());
    }
    let each = |time: std::time::Duration| time.as_nanos() as f64 / entries as f64;
    Took {
        insert: each(inserted),
        get: each(got),
        longest: longest as f64 / 1000.0,
    }
}

fn outlive(heap: &LocalHeap<'_>, entries: u64) -> Result<Took, StudyError> {
    let cells = [Offset::new(2048), Offset::new(2056)];
    let make = |cell| {
        Map::<u64, u64>::create(heap, cell).map_err(|error| StudyError::void(error.to_string()))
    };
    let (first, second) = (make(cells[0])?, make(cells[1])?);
    let took = measure(
        entries,
        |key, value| {
            first.insert(heap, &key, &value).expect("room");
        },
        |key| first.get(heap, &key),
        |key, value| {
            second.insert(heap, &key, &value).expect("room");
        },
    );
    for (map, cell) in [first, second].into_iter().zip(cells) {
        if map.len() != entries {
            return Err(StudyError::void(format!(
                "{entries} entries were inserted, and {} are there",
                map.len()
            )));
        }
        map.destroy(heap, cell)
            .map_err(|error| StudyError::void(error.to_string()))?;
    }
    Ok(took)
}

fn dash(entries: u64) -> Took {
    let (first, second) = (DashMap::new(), DashMap::new());
    measure(
        entries,
        |key, value| {
            first.insert(key, value);
        },
        |key| first.get(&key).map(|value| *value),
        |key, value| {
            second.insert(key, value);
        },
    )
}

fn papaya(entries: u64) -> Took {
    let (first, second) = (papaya::HashMap::new(), papaya::HashMap::new());
    measure(
        entries,
        |key, value| {
            first.pin().insert(key, value);
        },
        |key| first.pin().get(&key).copied(),
        |key, value| {
            second.pin().insert(key, value);
        },
    )
}
