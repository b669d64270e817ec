//! Streaming k-median clustering: points come in chunks; of each chunk a local search keeps some centres with the weights of
//! their points; in the end the centres are clustered the same way.
//!
//! As its model: points are opened as centres at random, in proportion to what they cost; then random candidates are tried,
//! each by all threads together, and taken if opening them and closing those they make useless is a gain; the price of a centre
//! is halved or raised until there are as many as wanted. It leaves out the reading of the stream (all points stand in memory
//! from the beginning), and the candidates are drawn among all points.
//!
//! Sums are taken by threads, in the order of their points, and of threads, in their order: so the result is that of one thread
//! that sums that way, to the last bit.
//!
//! Instructions beyond accesses: 3 for a coordinate of a distance (difference, square, sum; the loop is unrolled), 8 for a point
//! otherwise. All data are shared; what else there is is in registers.

use std::ops::Range;

use super::super::{
    Allocator, Array, BarrierId, ConditionId, Cpu, LockId, Origin, Pending, Scale, Word, Workload,
};
use super::clusters::{Found, Points, Price, block, openings, plain, points, squared, unit};
use crate::engine::Random;

/// Streamcluster's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streamcluster {
    /// Points of a chunk.
    pub points: usize,
    /// Coordinates of a point.
    pub dimensions: usize,
    /// How many chunks.
    pub chunks: usize,
    /// At least so many centres are wanted.
    pub least: usize,
    /// At most so many.
    pub most: usize,
    /// Candidates that are tried at a price.
    pub tries: usize,
    /// Prices that are tried, at most.
    pub rounds: usize,
    /// Of all draws.
    pub seed: u64,
}

impl Streamcluster {
    /// How often centres are opened anew at half the price when there are too few.
    pub(super) const ATTEMPTS: u64 = 8;

    /// The parameters at a scale. At full scale points and dimensions are those of the original's medium input, with as many
    /// chunks as make some 6.4 thousand million instructions.
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

    /// The workload.
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
        // The last stage is over what the others have kept: at most all.
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
            barrier: memory.barrier(threads),
        };
        let origin = Origin {
            program: "PARSEC streamcluster",
            stores: Some(0.06 / (9.4 + 0.06)),
            shared_stores: Some(0.92),
            source: "stores: PARSEC TR-811-08, simlarge; shared: recorded, small input, 4 threads",
        };
        Workload::new("streamcluster", threads, memory, origin, move |cpu| {
            Run {
                program: &program,
                stage: 0,
                trial: 0,
                turn: 0,
            }
            .all(cpu);
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
    /// Which centre each point is with, what that costs, and in which trial it was last nearer to the candidate.
    with: Array<u64>,
    cost: Array<f64>,
    nearer: Array<u64>,
    /// Where a centre is among the centres; these; and what is gained by closing each.
    slot: Array<u64>,
    centres: Array<u64>,
    gains: Array<f64>,
    /// What each thread's points save with each centre.
    saved: Array<f64>,
    /// Each thread's part of sums, and the sums.
    parts: Array<f64>,
    sums: Array<f64>,
    /// Which turn it is, and what the first thread has decided for it.
    turn: Array<u64>,
    lock: LockId,
    condition: ConditionId,
    barrier: BarrierId,
}

/// The points of a stage.
#[derive(Clone, Copy)]
struct Stage {
    coordinates: Array<f64>,
    weights: Array<f64>,
    points: usize,
}

/// A thread under way: all threads have the same numbers here at the same point.
struct Run<'a> {
    program: &'a Program,
    stage: usize,
    trial: u64,
    turn: u64,
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
        // There are fewer centres than points: behind them is what the search of the last chunk found.
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
        // And it is a clustering: everybody is with a centre, at that centre's cost.
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

impl Run<'_> {
    fn all(mut self, cpu: &mut Cpu<'_>) {
        let Program {
            parameters, kept, ..
        } = *self.program;
        let mut random = Random::new(parameters.seed);
        for chunk in 0..parameters.chunks as u64 {
            let (points, dimensions) = (parameters.points as u64, parameters.dimensions as u64);
            let first = chunk * points;
            let stage = Stage {
                coordinates: self
                    .program
                    .coordinates
                    .slice(first * dimensions..(first + points) * dimensions),
                weights: self.program.weights.slice(first..first + points),
                points: parameters.points,
            };
            let centres = self.search(cpu, stage, &mut random);
            if cpu.thread() == 0 {
                self.keep(cpu, stage, centres);
            }
            cpu.barrier(self.program.barrier);
        }
        let last = Stage {
            coordinates: kept.coordinates,
            weights: kept.weights,
            points: kept.count.get(cpu, 0) as usize,
        };
        self.search(cpu, last, &mut random);
    }

    /// Searches for centres: how many there are in the end.
    fn search(&mut self, cpu: &mut Cpu<'_>, stage: Stage, random: &mut Random) -> usize {
        let parameters = self.program.parameters;
        let mut own = 0.0;
        for point in self.own(cpu, stage) {
            own += self.ask(cpu, stage, point, 0).cost(cpu);
        }
        let [high] = self.sum(cpu, [own]);
        let mut price = Price::below(high);
        let mut centres = self.open(cpu, stage, 0, price.price);
        for attempt in 1..Streamcluster::ATTEMPTS {
            if centres >= parameters.least {
                break;
            }
            price.cheaper();
            centres = self.open(cpu, stage, attempt, price.price);
        }
        for _ in 0..parameters.rounds {
            for _ in 0..parameters.tries {
                let candidate = random.below(stage.points as u64);
                centres = self.try_centre(cpu, stage, candidate, price.price, centres);
            }
            if (parameters.least..=parameters.most).contains(&centres) || price.settled() {
                break;
            }
            if centres > parameters.most {
                price.dearer();
            } else {
                price.cheaper();
            }
        }
        self.stage += 1;
        centres
    }

    fn own(&self, cpu: &Cpu<'_>, stage: Stage) -> Range<usize> {
        block(stage.points, self.program.threads, cpu.thread())
    }

    /// Sums of what each thread has, in the order of threads.
    fn sum<const N: usize>(&self, cpu: &mut Cpu<'_>, own: [f64; N]) -> [f64; N] {
        const { assert!(N <= 8) };
        let Program {
            parts,
            sums,
            barrier,
            threads,
            ..
        } = *self.program;
        for (place, own) in (0..).zip(own) {
            parts.set(cpu, cpu.thread() as u64 * 8 + place, own);
        }
        cpu.barrier(barrier);
        if cpu.thread() == 0 {
            for place in 0..N as u64 {
                let mut sum = 0.0;
                for thread in 0..threads as u64 {
                    sum += parts.get(cpu, thread * 8 + place);
                    cpu.compute(1);
                }
                sums.set(cpu, place, sum);
            }
        }
        cpu.barrier(barrier);
        std::array::from_fn(|place| sums.get(cpu, place as u64))
    }

    /// Asks for all that says what a point costs with a centre.
    fn ask(&self, cpu: &mut Cpu<'_>, stage: Stage, point: usize, centre: u64) -> Asked {
        let dimensions = self.program.parameters.dimensions as u64;
        let weight = stage.weights.ask(cpu, point as u64);
        let coordinates = std::array::from_fn(|dimension| {
            let dimension = dimension as u64;
            (dimension < dimensions).then(|| {
                cpu.compute(3);
                let of_point = stage
                    .coordinates
                    .ask(cpu, point as u64 * dimensions + dimension);
                (
                    of_point,
                    stage.coordinates.ask(cpu, centre * dimensions + dimension),
                )
            })
        });
        cpu.compute(8);
        Asked {
            weight,
            coordinates,
        }
    }

    /// Opens centres at random: how many.
    fn open(&mut self, cpu: &mut Cpu<'_>, stage: Stage, attempt: u64, price: f64) -> usize {
        let Program {
            barrier,
            parameters,
            ..
        } = *self.program;
        let mut random = openings(parameters.seed, self.stage, attempt);
        let (mut centres, mut candidate) = (0, 0);
        loop {
            if cpu.thread() == 0 {
                if centres > 0 {
                    candidate = self.next_to_open(cpu, stage, candidate + 1, price, &mut random);
                }
                if candidate < stage.points as u64 {
                    self.program.slot.set(cpu, candidate, centres);
                    self.program.centres.set(cpu, centres, candidate);
                }
            }
            candidate = self.decide(cpu, candidate);
            if candidate == stage.points as u64 {
                // Nothing new is decided before all have seen this.
                cpu.barrier(barrier);
                return centres as usize;
            }
            for point in self.own(cpu, stage) {
                self.join_if_nearer(cpu, stage, point, candidate, centres == 0);
            }
            centres += 1;
            cpu.barrier(barrier);
        }
    }

    /// The first point from `from` on that is to be opened; the number of points if there is none.
    fn next_to_open(
        &self,
        cpu: &mut Cpu<'_>,
        stage: Stage,
        from: u64,
        price: f64,
        random: &mut Random,
    ) -> u64 {
        for candidate in from..stage.points as u64 {
            cpu.compute(8);
            if unit(random) * price < self.program.cost.get(cpu, candidate) {
                return candidate;
            }
        }
        stage.points as u64
    }

    /// What the first thread has decided; the others wait for it.
    fn decide(&mut self, cpu: &mut Cpu<'_>, decision: u64) -> u64 {
        let Program {
            turn,
            lock,
            condition,
            ..
        } = *self.program;
        self.turn += 1;
        cpu.lock(lock);
        if cpu.thread() == 0 {
            turn.set(cpu, 1, decision);
            turn.set(cpu, 0, self.turn);
            cpu.broadcast(condition);
        } else {
            while turn.get(cpu, 0) != self.turn {
                cpu.wait(condition, lock);
            }
        }
        let decision = turn.get(cpu, 1);
        cpu.unlock(lock);
        decision
    }

    fn join_if_nearer(
        &self,
        cpu: &mut Cpu<'_>,
        stage: Stage,
        point: usize,
        centre: u64,
        first: bool,
    ) {
        let Program { cost, with, .. } = *self.program;
        let old = cost.ask(cpu, point as u64);
        let new = self.ask(cpu, stage, point, centre).cost(cpu);
        if first || new < cpu.value(old) {
            cost.set(cpu, point as u64, new);
            with.set(cpu, point as u64, centre);
        }
    }

    /// Tries a candidate and takes it if that is a gain: how many centres there are then.
    fn try_centre(
        &mut self,
        cpu: &mut Cpu<'_>,
        stage: Stage,
        candidate: u64,
        price: f64,
        centres: usize,
    ) -> usize {
        let Program {
            with,
            cost,
            nearer,
            slot,
            gains,
            barrier,
            threads,
            ..
        } = *self.program;
        if with.get(cpu, candidate) == candidate {
            return centres;
        }
        self.trial += 1;
        let me = cpu.thread();
        for slot in 0..centres as u64 {
            let (saved, place) = self.program.saved(me, slot);
            saved.set(cpu, place, 0.0);
        }
        let mut opened = 0.0;
        for point in self.own(cpu, stage) {
            let (old, old_centre) = (cost.ask(cpu, point as u64), with.ask(cpu, point as u64));
            let new = self.ask(cpu, stage, point, candidate).cost(cpu);
            let old = cpu.value(old);
            if new < old {
                nearer.set(cpu, point as u64, self.trial);
                opened += new - old;
            } else {
                let old_centre = cpu.value(old_centre);
                let slot = slot.get(cpu, old_centre);
                let (saved, place) = self.program.saved(me, slot);
                let sum = saved.get(cpu, place) + (old - new);
                saved.set(cpu, place, sum);
            }
        }
        cpu.barrier(barrier);
        let (mut closed, mut closes) = (0.0, 0.0);
        for slot in (me..centres).step_by(threads) {
            let mut sum = 0.0;
            for thread in 0..threads {
                let (saved, place) = self.program.saved(thread, slot as u64);
                sum += saved.get(cpu, place);
                cpu.compute(1);
            }
            let gain = price + sum;
            gains.set(cpu, slot as u64, gain);
            if gain > 0.0 {
                closed += gain;
                closes += 1.0;
            }
        }
        let [opened, closed, closes] = self.sum(cpu, [opened, closed, closes]);
        if price + opened - closed >= 0.0 {
            return centres;
        }
        for point in self.own(cpu, stage) {
            let is_nearer = nearer.get(cpu, point as u64) == self.trial;
            let old_centre = with.get(cpu, point as u64);
            let old_slot = slot.get(cpu, old_centre);
            if gains.get(cpu, old_slot) > 0.0 || is_nearer {
                let new = self.ask(cpu, stage, point, candidate).cost(cpu);
                cost.set(cpu, point as u64, new);
                with.set(cpu, point as u64, candidate);
            }
        }
        cpu.barrier(barrier);
        if me == 0 {
            self.close(cpu, candidate, centres as u64);
        }
        cpu.barrier(barrier);
        centres + 1 - closes as usize
    }

    /// Takes the candidate among the centres, and those out whose closing is a gain.
    fn close(&self, cpu: &mut Cpu<'_>, candidate: u64, centres: u64) {
        let Program {
            gains,
            slot,
            centres: list,
            ..
        } = *self.program;
        let mut left = 0;
        for old in 0..centres {
            if gains.get(cpu, old) <= 0.0 {
                let centre = list.get(cpu, old);
                list.set(cpu, left, centre);
                slot.set(cpu, centre, left);
                left += 1;
            }
        }
        list.set(cpu, left, candidate);
        slot.set(cpu, candidate, left);
    }

    /// Keeps the centres with the weights of their points.
    fn keep(&self, cpu: &mut Cpu<'_>, stage: Stage, centres: usize) {
        let Program {
            kept,
            with,
            slot,
            centres: list,
            ..
        } = *self.program;
        let dimensions = self.program.parameters.dimensions as u64;
        let first = kept.count.get(cpu, 0);
        for centre in 0..centres as u64 {
            kept.weights.set(cpu, first + centre, 0.0);
            let point = list.get(cpu, centre);
            for dimension in 0..dimensions {
                let place = stage.coordinates.get(cpu, point * dimensions + dimension);
                kept.coordinates
                    .set(cpu, (first + centre) * dimensions + dimension, place);
            }
        }
        for point in 0..stage.points as u64 {
            let weight = stage.weights.ask(cpu, point);
            let centre = with.get(cpu, point);
            let centre = first + slot.get(cpu, centre);
            let sum = kept.weights.get(cpu, centre) + cpu.value(weight);
            kept.weights.set(cpu, centre, sum);
            cpu.compute(8);
        }
        kept.count.set(cpu, 0, first + centres as u64);
    }
}

/// A point's weight, and the coordinates of it and of a centre, under way.
struct Asked {
    weight: Pending<f64>,
    coordinates: [Option<(Pending<f64>, Pending<f64>)>; 128],
}

impl Asked {
    fn cost(self, cpu: &mut Cpu<'_>) -> f64 {
        let both = self.coordinates.into_iter().flatten();
        let mut sum = 0.0;
        for (of_point, of_centre) in both {
            let apart = cpu.value(of_point) - cpu.value(of_centre);
            sum += apart * apart;
        }
        sum * cpu.value(self.weight)
    }
}
