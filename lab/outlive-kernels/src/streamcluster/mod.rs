//! Streaming k-median clustering: points come in chunks. A local search of each chunk keeps some
//! centres with the weights of their points; at the end the centres are clustered the same way.
//!
//! As in its model, points are opened as centres at random, in proportion to their costs. Then all
//! threads together try random candidates, one after another. A candidate is taken if opening it
//! and closing the centres that it makes useless is a gain. The price of a centre is halved or
//! raised until the number of centres is in the wanted range. The reading of the stream is left out
//! (all points are in memory from the beginning), and the candidates are drawn among all points.
//!
//! Each thread sums in the order of its points, and the threads' sums are added in the order of
//! threads. So the result is that of one thread that sums that way, to the last bit.
//!
//! Instructions beyond accesses: 3 for a coordinate of a distance (difference, square, sum; the
//! loop is unrolled), 8 for a point otherwise. All data are shared; everything else is in
//! registers.

mod run;

use super::clusters::{Found, Points, plain, points, squared};
use super::combining::Combining;
use outlive_machine::program::{
    Allocator, Array, ConditionId, LockId, Origin, Scale, Word, Workload,
};
use run::Run;

/// Streamcluster's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streamcluster {
    /// Points of a chunk.
    pub points: usize,
    /// Coordinates of a point.
    pub dimensions: usize,
    /// The number of chunks.
    pub chunks: usize,
    /// The least number of centres that is wanted.
    pub least: usize,
    /// The greatest number of centres that is wanted.
    pub most: usize,
    /// Candidates that are tried at a price.
    pub tries: usize,
    /// The most prices that are tried.
    pub rounds: usize,
    /// The seed of all draws.
    pub seed: u64,
}

impl Streamcluster {
    /// The most attempts to open centres, each at half the last price, while there are too few.
    pub(super) const ATTEMPTS: u64 = 8;

    /// Returns the parameters at a scale. At full scale, points and dimensions are those of the
    /// original's medium input, and the chunks make about 6.4 thousand million instructions.
    pub fn at(scale: Scale) -> Self {
        let (points, dimensions, chunks, tries, rounds) = match scale {
            Scale::Test => (128, 16, 2, 8, 3),
            Scale::Study => (2048, 64, 1, 20, 1),
            Scale::Tenfold => (2048, 64, 10, 20, 1),
            Scale::Full => (8192, 64, 6, 180, 2),
        };
        Self {
            points,
            dimensions,
            chunks,
            least: 10,
            most: 20,
            tries,
            rounds,
            seed: 1,
        }
    }

    /// Returns the workload.
    ///
    /// # Panics
    ///
    /// If there are no points, or points have no coordinates or more than 128.
    pub fn workload(self, threads: usize) -> Workload {
        assert!(self.points > 0 && self.chunks > 0, "no points");
        assert!(
            (1..=128).contains(&self.dimensions),
            "points have 1 to 128 coordinates, not {}",
            self.dimensions
        );
        let mut memory = Allocator::new();
        let all = points(&self);
        let ones = vec![1.0; self.points * self.chunks];
        // The last stage is over the centres that the other stages have kept: at most all points.
        let most = ones.len() as u64;
        let program = Program {
            parameters: self,
            threads,
            coordinates: memory.array_of(&all),
            weights: memory.array_of(&ones),
            kept: Kept {
                coordinates: memory.array(all.len() as u64),
                weights: memory.array(most),
                count: memory.array(1),
            },
            with: memory.array(most),
            cost: memory.array(most),
            nearer: memory.array(most),
            slot: memory.array(most),
            centres: memory.array(most),
            gains: memory.array(most),
            saved: memory.array(most.next_multiple_of(8) * threads as u64),
            parts: memory.array(8 * threads as u64),
            sums: memory.array(8),
            turn: memory.array(2),
            lock: memory.lock(),
            condition: memory.condition(),
            barrier: Combining::new(&mut memory, threads),
        };
        let origin = Origin {
            program: "PARSEC streamcluster",
            stores: Some(0.06 / (9.4 + 0.06)),
            shared_stores: Some(0.92),
            source: "stores: PARSEC TR-811-08, simlarge; shared: recorded, small input, 4 threads",
            differs: None,
        };
        Workload::new("streamcluster", threads, memory, origin, move |cpu| {
            Run::of(&program).all(cpu);
        })
        .with_check(move |memory| program.check(memory))
    }
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    coordinates: Array<f64>,
    weights: Array<f64>,
    count: Array<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Program {
    parameters: Streamcluster,
    threads: usize,
    coordinates: Array<f64>,
    weights: Array<f64>,
    kept: Kept,
    /// The centre of each point, the point's cost there, and the trial in which it was last nearer
    /// to the candidate.
    with: Array<u64>,
    cost: Array<f64>,
    nearer: Array<u64>,
    /// The slot of each centre; the centre in each slot; and the gain of closing it.
    slot: Array<u64>,
    centres: Array<u64>,
    gains: Array<f64>,
    /// The savings of each thread's points with each centre.
    saved: Array<f64>,
    /// Each thread's part of sums, and the sums.
    parts: Array<f64>,
    sums: Array<f64>,
    /// The current turn, and the first thread's decision for it.
    turn: Array<u64>,
    lock: LockId,
    condition: ConditionId,
    barrier: Combining,
}

/// The points of a stage.
#[derive(Clone, Copy)]
struct Stage {
    coordinates: Array<f64>,
    weights: Array<f64>,
    points: usize,
}

impl Program {
    fn saved(&self, thread: usize, slot: u64) -> (Array<f64>, u64) {
        (
            self.saved,
            thread as u64 * self.cost.len().next_multiple_of(8) + slot,
        )
    }

    fn check(&self, memory: &dyn Fn(Word) -> u64) -> Result<(), String> {
        let (kept, last, right) = plain(&self.parameters, self.threads);
        let count = self.kept.count.at(memory, 0) as usize;
        if count != kept.weights.len() {
            return Err(format!(
                "{count} centres of chunks instead of {}",
                kept.weights.len()
            ));
        }
        let kept_words = count * self.parameters.dimensions;
        let found = Points {
            coordinates: self
                .kept
                .coordinates
                .slice(0..kept_words as u64)
                .all(memory),
            weights: self.kept.weights.slice(0..count as u64).all(memory),
        };
        for point in 0..count {
            if found.weights[point] != kept.weights[point] {
                return Err(format!(
                    "centre {point} has weight {} instead of {}",
                    found.weights[point], kept.weights[point]
                ));
            }
        }
        if found.coordinates != kept.coordinates {
            return Err("the centres of chunks are not at their places".to_owned());
        }
        let found = Found {
            with: (0..count)
                .map(|point| self.with.at(memory, point as u64) as usize)
                .collect(),
            cost: (0..count)
                .map(|point| self.cost.at(memory, point as u64))
                .collect(),
            centres: (0..right.centres.len())
                .map(|slot| self.centres.at(memory, slot as u64) as usize)
                .collect(),
        };
        if found != right {
            return Err(format!(
                "the last search found {found:?} instead of {right:?}"
            ));
        }
        // There are fewer centres than points: the entries after the centres are results of the
        // search of the last chunk.
        for point in count..self.parameters.points {
            let with = self.with.at(memory, point as u64) as usize;
            let cost = self.cost.at(memory, point as u64);
            if (with, cost) != (last.with[point], last.cost[point]) {
                return Err(format!(
                    "point {point} of the last chunk is with {with} at {cost} instead of {} at {}",
                    last.with[point], last.cost[point]
                ));
            }
        }
        // The result is a clustering: each point is with a centre, at that centre's cost.
        let dimensions = self.parameters.dimensions;
        let point = |point: usize| {
            kept.coordinates[point * dimensions..][..dimensions]
                .iter()
                .copied()
        };
        for (number, (with, cost)) in found.with.iter().zip(&found.cost).enumerate() {
            let right = squared(point(number), point(*with)) * kept.weights[number];
            if !found.centres.contains(with) || *cost != right {
                return Err(format!(
                    "point {number} is with {with} at {cost}; its cost is {right}"
                ));
            }
        }
        Ok(())
    }
}
