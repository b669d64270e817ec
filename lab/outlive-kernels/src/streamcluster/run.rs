//! The work of a thread: it clusters the chunks, then their centres.

use std::ops::Range;

use super::super::clusters::{Price, block, openings, unit};
use super::{Program, Stage, Streamcluster};
use outlive_machine::engine::Random;
use outlive_machine::program::{Cpu, Pending};

/// The state of a thread; all threads have the same numbers here at the same point.
pub(super) struct Run<'a> {
    program: &'a Program,
    stage: usize,
    trial: u64,
    turn: u64,
}

impl<'a> Run<'a> {
    /// Returns the initial state of a thread.
    pub(super) fn of(program: &'a Program) -> Self {
        Self {
            program,
            stage: 0,
            trial: 0,
            turn: 0,
        }
    }

    pub(super) fn all(mut self, cpu: &mut Cpu<'_>) {
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
            self.program.barrier.meet(cpu);
        }
        let last = Stage {
            coordinates: kept.coordinates,
            weights: kept.weights,
            points: kept.count.get(cpu, 0) as usize,
        };
        self.search(cpu, last, &mut random);
    }

    /// Searches for centres. Returns the final number of centres.
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

    /// Returns the sums of all threads' values, added in the order of threads.
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
        barrier.meet(cpu);
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
        barrier.meet(cpu);
        std::array::from_fn(|place| sums.get(cpu, place as u64))
    }

    /// Begins to load all data from which the cost of a point with a centre follows.
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

    /// Opens centres at random. Returns their number.
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
                // The next decision must wait until all threads have seen this one.
                barrier.meet(cpu);
                return centres as usize;
            }
            for point in self.own(cpu, stage) {
                self.join_if_nearer(cpu, stage, point, candidate, centres == 0);
            }
            centres += 1;
            barrier.meet(cpu);
        }
    }

    /// Returns the first point from `from` on that is to be opened, or else the number of points.
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

    /// Returns the first thread's decision; the other threads wait for it.
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

    /// Tries a candidate, and takes it if that is a gain. Returns the new number of centres.
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
        barrier.meet(cpu);
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
        barrier.meet(cpu);
        if me == 0 {
            self.close(cpu, candidate, centres as u64);
        }
        barrier.meet(cpu);
        centres + 1 - closes as usize
    }

    /// Adds the candidate to the centres, and removes those whose closing is a gain.
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

/// A point's weight, and the coordinates of it and of a centre; the loads are in progress.
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
