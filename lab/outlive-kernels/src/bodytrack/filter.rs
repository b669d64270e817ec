//! The particle filter: draws, weighs and moves particles.

use super::body::{POSE, Pose};
use super::picture::walk;
use outlive_machine::engine::Random;

/// Returns the initial guess of the body's pose, which is near the true one.
pub(super) fn expected() -> Pose {
    let mut pose = walk(0);
    for (number, angle) in pose.iter_mut().enumerate() {
        *angle += 0.03 * [1.0, -1.0, 0.5][number % 3];
    }
    pose
}

/// Returns the initial particles, all alike, and the states of their generators.
pub(super) fn begin(particles: u64, seed: u64) -> (Vec<Pose>, Vec<u64>) {
    let mut random = Random::new(seed);
    let states = (0..particles).map(|_| random.bits()).collect();
    (vec![expected(); particles as usize], states)
}

/// Returns the weight of a particle in a layer, from its distance and the best one's: in later
/// layers only the best particles count.
pub(super) fn weight(distance: f64, best: f64, layer: u32) -> f64 {
    let sharpness = 20.0 * f64::from(1 << layer.min(16));
    (-(distance - best) * sharpness).exp()
}

/// Returns the position of a particle's parent in the sum of all weights.
pub(super) fn place_in_sum(particle: u64, particles: u64, offset: f64, total: f64) -> f64 {
    (particle as f64 + offset) / particles as f64 * total
}

/// Returns a number from 0 to 1 (exclusive).
pub(super) fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns the pose of a particle that follows `parent`, and the new state of its generator.
pub(super) fn follow(parent: Pose, state: u64, layer: u32) -> (Pose, u64) {
    let mut random = Random::new(state);
    let spread = 0.06 * 0.65f64.powi(layer.min(16) as i32);
    let pose = parent.map(|number| {
        // Four uniform numbers make one that is nearly normal.
        let sum: f64 = (0..4).map(|_| fraction(random.bits())).sum();
        (number + (sum - 2.0) * 1.7 * spread).clamp(-3.0, 3.0)
    });
    (pose, random.bits())
}

/// Instructions of [`follow`] for each number of the pose: four draws of eight operations, and six
/// to use them.
pub(super) const FOLLOW: u32 = 38 * POSE as u32;
/// Instructions of [`weight`]: an exponential function and the sum.
pub(super) const WEIGHT: u32 = 30;
