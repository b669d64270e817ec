//! `objects`: the cost of bound handles, of finding a name, and of reading in place, on one thread.
//! Bound handles are compared with calls that take the heap handle, reading in place with a look-up
//! of 8 bytes and with a copy.

use crate::paired::{Comparison, Paired};
use crate::row::{Goal, Row};
use crate::scratch::ScratchPod;
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError};
use outlive::objects::Counter;
use outlive::pod::Session;
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
    in_place(run, &session, calls, rounds)
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
