//! `pool-replicas`: the cost of replicas in a memory pool, and the rate at which lost ones are
//! rebuilt.
//!
//! All servers are in this process. The peer of a write to a slice with replicas is the same write
//! to a slice without, and that of a rebuild a copy of the same bytes to memory in use. A write of
//! 64 bytes has a guard of its own. A server dies when its value is dropped; the first read from
//! the other replica begins when that is recorded.

use super::{SLICE, Scratch, void, write_randomly};
use crate::paired::{Comparison, Paired};
use crate::row::{Goal, Row};
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError};
use outlive_pool::{Address, MoveBudget};
use std::hint::black_box;
use std::time::Instant;

pub const STUDY: Study = Study {
    name: "pool-replicas",
    about: "writes to replicas in a memory pool, and the rebuilding of lost ones",
    body: study,
};

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let rounds = run.effort().of(3, 21, 51);
    for replicas in [2, 3] {
        run.begin(&format!("{replicas} replicas"));
        writes(run, replicas, rounds)?;
    }
    run.begin("rebuilding");
    rebuilding(run, rounds)
}

/// Measures writes to a slice with replicas beside writes to one without.
fn writes(run: &mut Run<'_>, replicas: u8, rounds: usize) -> Result<(), StudyError> {
    let scratch = Scratch::new(replicas.into(), 2)?;
    let reader = scratch.client.reader().map_err(void)?;
    let with = scratch.allocate(&reader, 1, replicas)?;
    let without = scratch.allocate(&reader, 1, 1)?;
    let case = format!("{replicas} replicas");
    let guards = run.effort().of(1000, 300_000, 1_000_000);
    let small = |address| write_randomly(&reader, address, guards);
    let written = Paired::measure(run, rounds, || small(with), || small(without))?;
    let comparison = Comparison {
        case: &case,
        metric: "a write of 64 bytes under a guard of its own",
        unit: "ns",
        peer: "without replicas",
        paper: None,
        goal: None,
    };
    run.answer(comparison.rows(&written));
    let passes = run.effort().of(1, 50, 200);
    let bytes = vec![7; SLICE as usize];
    let large = |address: Address| {
        let began = Instant::now();
        for _ in 0..passes {
            reader.write(address, &bytes).map_err(void)?;
        }
        Ok(passes as f64 * SLICE as f64 / began.elapsed().as_nanos() as f64)
    };
    let written = Paired::measure(run, rounds, || large(with), || large(without))?;
    let comparison = Comparison {
        metric: "a write of a whole slice",
        unit: "GB/s",
        ..comparison
    };
    run.answer(comparison.rows(&written));
    Ok(())
}

/// Measures the first read after the death of a server, and the rebuilding of its replicas.
fn rebuilding(run: &mut Run<'_>, rounds: usize) -> Result<(), StudyError> {
    let slices = run.effort().of(2, 32, 64);
    let mut scratch = Scratch::new(3, 2 * slices)?;
    let reader = scratch.client.reader().map_err(void)?;
    let address = scratch.allocate(&reader, slices, 2)?;
    let (from, mut to) = (
        vec![1u8; (slices * SLICE) as usize],
        vec![2u8; (slices * SLICE) as usize],
    );
    let rate = |began: Instant| (slices * SLICE) as f64 / began.elapsed().as_nanos() as f64;
    let (client, pool) = (scratch.client.clone(), scratch.client.pool().clone());
    let mut reads = Vec::new();
    let rebuilt = Paired::measure(
        run,
        rounds,
        || {
            // The server that the first replica of the first slice is on.
            let victim = client.servers_of(address, 8)[0];
            let place = { scratch.servers.iter() }.position(|it| Some(it.id()) == victim);
            let place = place.ok_or_else(|| void("the first replica is on no server"))?;
            drop(scratch.servers.remove(place));
            let began = Instant::now();
            let mut word = [0; 8];
            reader.read(address, &mut word).map_err(void)?;
            reads.push(began.elapsed().as_nanos() as f64 / 1e3);
            let lost = pool.status().degraded;
            let began = Instant::now();
            let result = client.rebuild(MoveBudget::default());
            let took = began.elapsed().as_nanos() as f64;
            if result.rebuilt != lost || lost == 0 {
                return Err(void(format!("{lost} replicas were lost: {result:?}")));
            }
            client.collect();
            scratch
                .servers
                .push(pool.serve(2 * slices * SLICE, 0).map_err(void)?);
            Ok((lost * SLICE) as f64 / took)
        },
        || {
            let began = Instant::now();
            to.copy_from_slice(black_box(&from));
            black_box(&to);
            Ok(rate(began))
        },
    )?;
    let comparison = Comparison {
        case: "lost replicas",
        metric: "the rate of rebuilding",
        unit: "GB/s",
        peer: "a copy to memory in use",
        paper: None,
        goal: Some(Goal::ratio_at_least(0.5)),
    };
    run.answer(comparison.rows(&rebuilt));
    let metric = "from the recorded death to the first word read";
    let row = Row::new("lost replicas", metric, "µs");
    run.answer([row.ours_within(median_estimate(&reads))]);
    Ok(())
}
