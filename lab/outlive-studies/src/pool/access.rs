//! `pool-access`: the cost of access to a memory pool by guards, and of moves beside it.
//!
//! The peer of an access is the same access to private memory of the same size. A guard is made for
//! 16 accesses of 64 bytes in one slice. The set fits in the second-level cache, or has the size of
//! several caches. A sequential view is one guard for each slice.
//!
//! In the rounds beside moves, a second thread moves slices that the measured thread does not use
//! between two servers, with a budget of 5% of the measured copy rate; on two processors, both
//! threads have one each. The pauses are those of writes to a slice that moves all the time.

use super::{BYTES, SLICE, Scratch, void, write_randomly};
use crate::paired::{Comparison, Paired};
use crate::row::{Goal, Row};
use crate::statistics::{longest, median_estimate};
use crate::{Run, Study, StudyError};
use outlive_pool::{Address, MoveBudget, PoolError};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub const STUDY: Study = Study {
    name: "pool-access",
    about: "guards of a memory pool beside plain memory, and writers beside moves",
    body: study,
};

/// The accesses of a guard, of 64 bytes each.
const ACCESSES: u64 = 16;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let rounds = run.effort().of(3, 21, 51);
    for (slices, name) in [
        (1, "a set of 2 MB"),
        (run.effort().of(2, 64, 64), "a set of 128 MB"),
    ] {
        run.begin(name);
        reads(run, slices, name, rounds)?;
    }
    run.begin("beside moves");
    beside_moves(run, rounds)?;
    run.begin("pauses");
    pauses(run)
}

/// Measures 16 accesses under a guard, and sequential views, beside plain memory.
fn reads(run: &mut Run<'_>, slices: u64, name: &str, rounds: usize) -> Result<(), StudyError> {
    let scratch = Scratch::new(2, slices)?;
    let reader = scratch.client.reader().map_err(void)?;
    let address = scratch.allocate(&reader, slices, 1)?;
    let plain = vec![1u64; (slices * SLICE / 8) as usize];
    let guards = run.effort().of(1000, 200_000, 1_000_000);
    let bytes = slices * SLICE;
    // The same places on both sides: the first byte of the accesses of each guard.
    let places = || {
        let mut random = fastrand::Rng::with_seed(1);
        let groups = bytes / (ACCESSES * BYTES);
        (0..guards).map(move |_| random.u64(..groups) * ACCESSES * BYTES)
    };
    let each = |began: Instant| began.elapsed().as_nanos() as f64 / (guards * ACCESSES) as f64;
    let words = BYTES / 8;
    let guarded = Paired::measure(
        run,
        rounds,
        || {
            let (began, mut sum) = (Instant::now(), 0u64);
            for place in places() {
                let guard = reader.guard(address.plus(place)).map_err(void)?;
                for word in 0..ACCESSES * words {
                    sum = sum.wrapping_add(guard.load(word));
                }
            }
            black_box(sum);
            Ok(each(began))
        },
        || {
            let (began, mut sum) = (Instant::now(), 0u64);
            for place in places() {
                let first = (place / 8) as usize;
                for word in &plain[first..first + (ACCESSES * words) as usize] {
                    sum = sum.wrapping_add(*black_box(word));
                }
            }
            black_box(sum);
            Ok(each(began))
        },
    )?;
    let more = median_estimate(&guarded.more());
    let metric = "an access of 64 bytes, 16 under a guard: more than in plain memory";
    let row = Row::new(name, metric, "ns").ours_within(more);
    run.answer([row.goal(Goal::ours_at_most(5.0))]);
    let passes = run.effort().of(1, 4, 16) * (64 / slices).max(1);
    let rate = |began: Instant| (passes * bytes) as f64 / began.elapsed().as_nanos() as f64;
    let views = Paired::measure(
        run,
        rounds,
        || {
            let (began, mut sum) = (Instant::now(), 0u64);
            for _ in 0..passes {
                for slice in 0..slices {
                    let guard = reader.guard(address.plus(slice * SLICE)).map_err(void)?;
                    for word in 0..guard.words() {
                        sum = sum.wrapping_add(guard.load(word));
                    }
                    guard.confirm().map_err(void)?;
                }
            }
            black_box(sum);
            Ok(rate(began))
        },
        || {
            let (began, mut sum) = (Instant::now(), 0u64);
            for _ in 0..passes {
                sum = sum.wrapping_add(black_box(&plain).iter().sum::<u64>());
            }
            black_box(sum);
            Ok(rate(began))
        },
    )?;
    let comparison = Comparison {
        case: name,
        metric: "the sum of a sequential view",
        unit: "GB/s",
        peer: "the sum of a vector",
        paper: None,
        goal: Some(Goal::ratio_at_least(0.97)),
    };
    run.answer(comparison.rows(&views));
    Ok(())
}

/// Moves the slices of `addresses` between the servers until the end. Returns the numbers of moves.
fn move_around(
    scratch: &Scratch,
    addresses: &[Address],
    budget: MoveBudget,
    is_over: &AtomicBool,
) -> Result<u64, StudyError> {
    let mut moves = 0;
    while !is_over.load(Ordering::Acquire) {
        let turn = moves as usize / addresses.len();
        let to = scratch.servers[(turn + 1) % 2].id();
        let address = addresses[moves as usize % addresses.len()];
        match scratch.client.move_slice(address, to, budget) {
            Ok(_) => moves += 1,
            Err(PoolError::MoveCancelled { .. } | PoolError::StillWritten { .. }) => {}
            Err(error) => return Err(void(error)),
        }
    }
    Ok(moves)
}

/// Measures writes to a slice that does not move while others move.
fn beside_moves(run: &mut Run<'_>, rounds: usize) -> Result<(), StudyError> {
    const OTHERS: u64 = 8;
    let scratch = Scratch::new(2, OTHERS + 1)?;
    let reader = scratch.client.reader().map_err(void)?;
    let others = scratch.allocate(&reader, OTHERS, 1)?;
    let mine = scratch.allocate(&reader, 1, 1)?;
    let others: Vec<Address> = (0..OTHERS).map(|it| others.plus(it * SLICE)).collect();
    // 5% of the rate at which one thread copies.
    let (from, mut to) = (vec![1u8; 64 << 20], vec![0u8; 64 << 20]);
    let began = Instant::now();
    to.copy_from_slice(black_box(&from));
    black_box(&to);
    let rate = from.len() as f64 / began.elapsed().as_secs_f64();
    let budget = MoveBudget {
        bytes_per_second: Some((rate / 20.0) as u64),
        ..MoveBudget::default()
    };
    let guards = run.effort().of(1000, 1_000_000, 2_000_000);
    let write = || write_randomly(&reader, mine, guards);
    let moves = std::cell::Cell::new(0);
    let written = Paired::measure(
        run,
        rounds,
        || {
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let moving = || move_around(&scratch, &others, budget, &is_over);
                let mover = scope.spawn(moving);
                let took = write();
                is_over.store(true, Ordering::Release);
                let moved = mover.join().map_err(|_| void("the mover has panicked"))??;
                moves.set(moves.get() + moved);
                took
            })
        },
        write,
    )?;
    let comparison = Comparison {
        case: "writes of 64 bytes under a guard each",
        metric: "the time beside moves of other slices",
        unit: "ns",
        peer: "without moves",
        paper: None,
        goal: Some(Goal::ratio_at_most(1.02)),
    };
    run.answer(comparison.rows(&written));
    let row = Row::new("the moves of these rounds", "slices moved", "slices");
    run.answer([row.ours(moves.get() as f64)]);
    Ok(())
}

/// Measures the pauses of writes to a slice that moves all the time.
fn pauses(run: &mut Run<'_>) -> Result<(), StudyError> {
    let scratch = Scratch::new(2, 2)?;
    let reader = scratch.client.reader().map_err(void)?;
    let address = scratch.allocate(&reader, 1, 1)?;
    let writes = run.effort().of(1000, 500_000, 2_000_000);
    for (case, places) in [
        ("all places", SLICE / BYTES),
        ("one 64th", SLICE / BYTES / 64),
    ] {
        let is_over = AtomicBool::new(false);
        let mut took: Vec<f64> = Vec::with_capacity(writes);
        let moves = std::thread::scope(|scope| {
            let moving = || move_around(&scratch, &[address], MoveBudget::default(), &is_over);
            let mover = scope.spawn(moving);
            let mut random = fastrand::Rng::with_seed(1);
            let written: Result<(), StudyError> = (0..writes).try_for_each(|_| {
                let place = random.u64(..places) * BYTES;
                let began = Instant::now();
                let guard = reader.write_guard(address.plus(place)).map_err(void)?;
                guard.store(0, 1);
                drop(guard);
                took.push(began.elapsed().as_nanos() as f64 / 1e3);
                Ok(())
            });
            is_over.store(true, Ordering::Release);
            let moved = mover.join().map_err(|_| void("the mover has panicked"))??;
            written.map(|()| moved)
        })?;
        let case = format!("a slice that moves all the time, writes to {case}");
        took.sort_by(f64::total_cmp);
        let last = took[took.len() * 999 / 1000];
        run.answer([
            Row::new(&case, "99.9% of the writes take at most", "µs").ours(last),
            Row::new(&case, "the longest write", "µs").ours(longest(&took)),
            Row::new(&case, "moves", "moves").ours(moves as f64),
        ]);
    }
    Ok(())
}
