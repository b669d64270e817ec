//! `objects`: the cost of bound handles, of finding a name, and of reading in place, on one thread.
//! Bound handles are compared with calls that take the heap handle. Reading in place is compared
//! with a look-up of 8 bytes and with a copy. A mutex, whose owner works on a private copy of the
//! value, is compared with a prototype that changes the value in place and keeps an undo copy.

use crate::paired::{Comparison, Paired};
use crate::row::{Goal, Row};
use crate::scratch::ScratchPod;
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError};
use outlive::objects::Counter;
use outlive::pod::Session;
use outlive::segment::Shared;
use outlive::sync::Repair;
use std::hint::black_box;
use std::time::Instant;

pub const STUDY: Study = Study {
    name: "objects",
    about: "named objects: a handle that carries the heap handle, finding a name, reading in place",
    body: study,
};

/// The number of entries of a map.
const KEYS: u64 = 1000;

fn void(error: impl std::fmt::Display) -> StudyError {
    StudyError::void(error.to_string())
}

/// Returns the nanoseconds that one of `count` calls takes.
fn each(count: u64, mut call: impl FnMut(u64)) -> f64 {
    let started = Instant::now();
    (0..count).for_each(|index| call(black_box(index)));
    started.elapsed().as_nanos() as f64 / count as f64
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let calls = run.effort().of(1_000, 100_000, 400_000);
    let rounds = run.effort().of(2, 15, 61);
    let names = run.effort().of(100, 10_000, 10_000);
    let scratch = ScratchPod::with_heap(256 << 20)?;
    let session = scratch.pod().session()?;
    handles(run, &session, calls, rounds)?;
    find(run, &session, names, calls / 4, rounds)?;
    in_place(run, &session, calls, rounds)?;
    large_value::<8>(run, &session, calls / 4, rounds)?;
    large_value::<512>(run, &session, calls / 16, rounds)?;
    large_value::<8192>(run, &session, calls / 100, rounds)
}

/// Measures a bound handle, beside the calls that take the heap handle.
fn handles(
    run: &mut Run<'_>,
    session: &Session,
    calls: u64,
    rounds: usize,
) -> Result<(), StudyError> {
    run.begin("a bound handle");
    let words = session.map::<u64, u64>("words").map_err(void)?;
    for key in 0..KEYS {
        words.insert(&key, &0).map_err(void)?;
    }
    let (low_level, heap) = (words.low_level(), session.heap());
    let looked_up = Paired::measure(
        run,
        rounds,
        || {
            Ok(each(calls, |index| {
                _ = black_box(words.get(&(index % KEYS)))
            }))
        },
        || {
            Ok(each(calls, |index| {
                _ = black_box(low_level.get(heap, &(index % KEYS)))
            }))
        },
    )?;
    let updated = Paired::measure(
        run,
        rounds,
        || {
            Ok(each(calls, |index| {
                words
                    .upsert(&(index % KEYS), &1, |n| n + 1)
                    .expect("memory");
            }))
        },
        || {
            Ok(each(calls, |index| {
                low_level
                    .upsert(heap, &(index % KEYS), &1, |n| n + 1)
                    .expect("memory");
            }))
        },
    )?;
    for (metric, paired) in [
        ("time of a look-up", looked_up),
        ("time of an upsert", updated),
    ] {
        let comparison = Comparison {
            case: "map of 1000 entries, bound handle",
            metric,
            unit: "ns",
            peer: "the heap handle in each call",
            paper: None,
            goal: Some(Goal::ratio_at_most(1.05)),
        };
        run.answer(comparison.rows(&paired));
    }
    Ok(())
}

/// Measures opening an object by its name among many, and closing it.
fn find(
    run: &mut Run<'_>,
    session: &Session,
    names: u64,
    calls: u64,
    rounds: usize,
) -> Result<(), StudyError> {
    run.begin(&format!("a name among {names}"));
    let objects = session.objects();
    let name = |number: u64| format!("object {number}");
    let all: Vec<String> = (0..names).map(name).collect();
    for name in &all {
        objects.create::<Counter>(name, 0).map_err(void)?;
    }
    let mut took = Vec::new();
    for _ in 0..rounds {
        run.go_on()?;
        took.push(each(calls, |index| {
            let name = &all[(index * 7919 % names) as usize];
            black_box(objects.open::<Counter>(name).expect("an object").get());
        }));
    }
    let row = Row::new(
        format!("{names} named counters"),
        "time to open one by its name, to read it and to close it",
        "ns",
    );
    let row = row.ours_within(median_estimate(&took));
    run.answer([row.goal(Goal::ours_at_most(1000.0))]);
    for name in &all {
        objects.remove(name).map_err(void)?;
    }
    Ok(())
}

/// Measures reading 64 bytes in place, beside a look-up of 8 bytes and beside a copy.
fn in_place(
    run: &mut Run<'_>,
    session: &Session,
    calls: u64,
    rounds: usize,
) -> Result<(), StudyError> {
    run.begin("reading in place");
    let pages = session.map::<u64, [u8]>("pages").map_err(void)?;
    let numbers = session.map::<u64, u64>("numbers").map_err(void)?;
    for key in 0..KEYS {
        pages.insert(&key, &[key as u8; 64]).map_err(void)?;
        numbers.insert(&key, &key).map_err(void)?;
    }
    let mut read = || {
        Ok(each(calls, |index| {
            let page = pages.read(&(index % KEYS)).expect("an entry");
            black_box(page.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
        }))
    };
    let paired = Paired::measure(run, rounds, &mut read, || {
        Ok(each(calls, |index| {
            _ = black_box(numbers.get(&(index % KEYS)))
        }))
    })?;
    let row = Row::new(
        "map of 1000 entries of 64 bytes",
        "extra time of reading one in place and adding up its bytes, over a look-up of 8 bytes",
        "ns",
    );
    let row = row.ours_within(median_estimate(&paired.more()));
    let row = row.peer("the look-up", paired.peer());
    run.answer([row.goal(Goal::ours_at_most(20.0))]);
    let paired = Paired::measure(run, rounds, &mut read, || {
        Ok(each(calls, |index| {
            let page = pages.get(&(index % KEYS)).expect("an entry");
            black_box(page.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
        }))
    })?;
    let comparison = Comparison {
        case: "map of 1000 entries of 64 bytes",
        metric: "time to read one in place and to add up its bytes",
        unit: "ns",
        peer: "a copied value",
        paper: None,
        goal: None,
    };
    run.answer(comparison.rows(&paired));
    Ok(())
}

/// Measures a change of one word of a mutex over `N` words, beside a prototype that changes the
/// value in place. Under a lock, the prototype copies the value to an undo area, marks the area as
/// valid, changes the word, and marks the area as invalid.
fn large_value<const N: usize>(
    run: &mut Run<'_>,
    session: &Session,
    calls: u64,
    rounds: usize,
) -> Result<(), StudyError>
where
    [u64; N]: Shared + Repair,
{
    run.begin(&format!("a mutex over {} bytes", 8 * N));
    let mutex = session
        .mutex(&format!("mutex {N}"), [0u64; N])
        .map_err(void)?;
    let lock = session.mutex("lock", 0u64).map_err(void)?;
    // The value, the undo copy, and the word that marks the undo copy as valid.
    let array = session.array::<u64>(&format!("array {N}"), 2 * N as u64 + 1);
    let array = array.map_err(void)?;
    let paired = Paired::measure(
        run,
        rounds,
        || {
            Ok(each(calls, |index| {
                let mut value = mutex.lock().expect("no member dies");
                value[index as usize % N] += 1;
            }))
        },
        || {
            Ok(each(calls, |index| {
                let held = lock.lock().expect("no member dies");
                let n = N as u64;
                (0..n).for_each(|at| array.set(n + at, array.get(at)));
                array.set(2 * n, 1);
                let at = index % n;
                array.set(at, array.get(at) + 1);
                array.set(2 * n, 0);
                drop(held);
            }))
        },
    )?;
    let comparison = Comparison {
        case: &format!("mutex over {} bytes", 8 * N),
        metric: "time to lock, to change one word and to unlock",
        unit: "ns",
        peer: "in place, with an undo copy",
        paper: None,
        goal: None,
    };
    run.answer(comparison.rows(&paired));
    Ok(())
}
