//! The work of thread 0 alone.

use super::body::POSE;
use super::filter::{WEIGHT, fraction, weight};
use super::pool::Command;
use super::work::Worker;
use outlive_machine::engine::Random;
use outlive_machine::program::Cpu;

impl Worker {
    /// Leads the others through all frames.
    pub(super) fn lead(&self, cpu: &mut Cpu<'_>) {
        let mut offsets = Random::new(self.parameters.seed + 1);
        for frame in 0..self.parameters.frames {
            for command in [
                Command::Edges(frame),
                Command::BlurRows,
                Command::BlurColumns,
            ] {
                self.order(cpu, command);
            }
            for layer in 0..self.parameters.layers {
                let all = frame * self.parameters.layers + layer;
                self.layout.offset.set(cpu, 0, fraction(offsets.bits()));
                self.order(cpu, Command::Draw(all));
                self.order(cpu, Command::Weigh(frame, all));
                self.sum_weights(cpu, layer);
            }
            self.estimate(cpu, frame);
        }
        self.layout.pool.say(cpu, Command::End);
    }

    fn order(&self, cpu: &mut Cpu<'_>, command: Command) {
        self.layout.pool.say(cpu, command);
        self.obey(cpu, command);
    }

    /// Computes weights from the distances, and sums them up.
    fn sum_weights(&self, cpu: &mut Cpu<'_>, layer: u32) {
        let particles = self.parameters.particles;
        let mut best = f64::INFINITY;
        for first in (0..particles).step_by(16) {
            for distance in self.ask_numbers(cpu, self.layout.distances, first, 16) {
                cpu.compute(2);
                best = best.min(distance);
            }
        }
        let mut sum = 0.0;
        for first in (0..particles).step_by(16) {
            let distances = self.ask_numbers(cpu, self.layout.distances, first, 16);
            for (particle, distance) in (first..).zip(distances) {
                let weight = weight(distance, best, layer);
                cpu.compute(WEIGHT);
                sum += weight;
                self.layout.weights.set(cpu, particle, weight);
                self.layout.sums.set(cpu, particle, sum);
            }
        }
    }

    /// Computes the weighted mean of the particles.
    fn estimate(&self, cpu: &mut Cpu<'_>, frame: u32) {
        let last = (frame + 1) * self.parameters.layers;
        let (mut sum, mut total) = ([0.0; POSE], 0.0);
        for particle in 0..self.parameters.particles {
            let weight = self.layout.weights.ask(cpu, particle);
            let pose = self.load_pose(cpu, last, particle);
            let weight = cpu.value(weight);
            total += weight;
            cpu.compute(1 + 2 * POSE as u32);
            for (sum, number) in sum.iter_mut().zip(pose) {
                *sum += number * weight;
            }
        }
        for (place, sum) in (u64::from(frame) * POSE as u64..).zip(sum) {
            cpu.compute(1);
            self.layout.estimates.set(cpu, place, sum / total);
        }
    }
}
