//! `buddy`: the cost of the buddy allocator. 100 objects of 1 to 16 MB are allocated and freed, as
//! in LUPIN §5. Since the time must not depend on the size, 16 MB are also compared with 1 MB.
//!
//! The blocks are never touched. So the region takes no memory, and neither time includes the
//! mapping of pages, which the paper leaves out too.

use crate::lone_member::{Alone, FREE};
use crate::paired::{Comparison, Paired};
use crate::row::{Goal, Row};
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError};
use outlive::heap;
use outlive::heap::buddy::Buddy;
use outlive::memory::{Native, Offset};
use outlive::recovery::Recoverers;
use outlive::sync;
use std::hint::black_box;
use std::time::Instant;

pub const STUDY: Study = Study {
    name: "buddy",
    about: "allocating and freeing large blocks (LUPIN section 5, memory allocation)",
    body: study,
};

const OBJECTS: u64 = 100;
const MB: u64 = 1 << 20;
const UNIT: u64 = 4096;
const REGION: u64 = 4 << 30;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let stage = Stage::new()?;
    let rounds = run.effort().of(8, 400, 4000);
    run.begin("100 objects of 1 to 16 MB");
    let mixed: Vec<u64> = (0..OBJECTS)
        .map(|object| (object * 7 % 16 + 1) * MB)
        .collect();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        run.go_on()?;
        let (allocate, free) = stage.round(&mixed)?;
        times[0].push(allocate);
        times[1].push(free);
    }
    // LUPIN §5: "The average latency of allocation is 1.6 us and free is 2.0 us."
    for (times, (metric, paper)) in times
        .iter()
        .zip([("mean to allocate", 1.6), ("mean to free", 2.0)])
    {
        let row = Row::new("100 objects of 1 to 16 MB", metric, "us")
            .ours_within(median_estimate(times))
            .paper(paper);
        run.answer([row.goal(Goal::ours_at_most(paper))]);
    }
    let (small, large) = ([MB; OBJECTS as usize], [16 * MB; OBJECTS as usize]);
    for (metric, free) in [("mean to allocate", false), ("mean to free", true)] {
        run.begin(&format!("16 MB beside 1 MB, {metric}"));
        let time = |sizes: &[u64]| {
            let (allocated, freed) = stage.round(sizes)?;
            Ok(if free { freed } else { allocated })
        };
        let paired = Paired::measure(run, rounds, || time(&large), || time(&small))?;
        let comparison = Comparison {
            case: "100 objects of 16 MB",
            metric,
            unit: "us",
            peer: "100 objects of 1 MB",
            paper: None,
            goal: Some(Goal::ratio_at_most(1.1)),
        };
        run.answer(comparison.rows(&paired));
    }
    Ok(())
}

struct Stage {
    alone: Alone,
    recoverers: Recoverers,
    heap: Buddy,
}

impl Stage {
    fn new() -> Result<Self, StudyError> {
        let metadata = Buddy::<Native>::metadata_bytes(REGION, UNIT).expect("a region");
        let region = Offset::new((FREE.raw() + metadata).next_multiple_of(4096));
        let alone = Alone::new(region.raw() + REGION)?;
        let heap = Buddy::create(alone.memory, FREE, region, REGION, UNIT).expect("a heap");
        Ok(Self {
            recoverers: heap::recoverers(sync::recoverers(alone.logs)),
            alone,
            heap,
        })
    }

    /// Allocates an object of each size, then frees them all. Returns the mean time of each in µs.
    fn round(&self, sizes: &[u64]) -> Result<(f64, f64), StudyError> {
        let (heap, member, by) = (&self.heap, &self.alone.member, &self.recoverers);
        let failed = |error: &dyn std::fmt::Display| StudyError::void(format!("buddy: {error}"));
        let mut blocks = Vec::with_capacity(sizes.len());
        let started = Instant::now();
        for size in sizes {
            let block = heap.allocate(member, by, black_box(*size));
            blocks.push(block.map_err(|error| failed(&error))?);
        }
        let allocated = Instant::now();
        for block in blocks {
            let freed = heap.free(member, by, black_box(block));
            freed.map_err(|error| failed(&error))?;
        }
        let freed = allocated.elapsed();
        let mean = |time: std::time::Duration| time.as_secs_f64() * 1e6 / sizes.len() as f64;
        Ok((mean(allocated - started), mean(freed)))
    }
}
