//! The physics of the fluid: the forces between particles, and the box around them.

use super::super::vector::{Vector, add, dot, scale, sub};
use outlive_machine::engine::Random;

/// The corners of the box, in metres.
pub(super) const LOW: Vector = [-0.065, -0.08, -0.065];
pub(super) const HIGH: Vector = [0.065, 0.1, 0.065];
/// The share of the box that is filled at the beginning, along each axis.
const FILLED: Vector = [0.7, 0.7, 1.0];
/// Twice the density at rest, in kg per cubic metre.
const TWICE_REST: f64 = 2000.0;
const GRAVITY: Vector = [0.0, -9.8, 0.0];
const STIFFNESS: f64 = 3.0;
const VISCOSITY: f64 = 0.4;
/// Of the walls.
const WALL_STIFFNESS: f64 = 30_000.0;
const WALL_DAMPING: f64 = 128.0;
/// The least distance of a particle to a wall, and the length that counts as no distance.
const SIZE: f64 = 0.0002;
const NO_DISTANCE: f64 = 1e-10;

/// A particle after a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Particle {
    pub(super) number: u64,
    pub(super) at: Vector,
    /// The speed half a frame ago.
    pub(super) half: Vector,
    pub(super) speed: Vector,
    /// The density in the frame.
    pub(super) density: f64,
    /// The acceleration in the frame.
    pub(super) acceleration: Vector,
}

/// A fluid of particles with a range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fluid {
    /// The reach of particles, in metres.
    pub(super) range: f64,
    range_square: f64,
    density: f64,
    pressure: f64,
    viscosity: f64,
    /// The number of cells along each axis; none is shorter than the range.
    pub(super) cells: [u64; 3],
    edges: Vector,
    /// Seconds from frame to frame.
    step: f64,
}

impl Fluid {
    /// Instructions of the formulas: one for each operation and each comparison with its branch. A
    /// pair's [`square`](Self::square), with the loop and the indices of the particle.
    pub(super) const SQUARE: u32 = 15;
    /// [`nearness`](Self::nearness), with its sums and the tests for the border.
    pub(super) const NEARNESS: u32 = 10;
    /// [`force`](Self::force), with its sums and the tests for the border.
    pub(super) const FORCE: u32 = 46;
    /// [`cell`](Self::cell).
    pub(super) const CELL: u32 = 19;
    /// [`wall`](Self::wall) away from the walls.
    pub(super) const WALL: u32 = 18;
    /// [`advance`](Self::advance).
    pub(super) const ADVANCE: u32 = 21;

    /// Returns a fluid of about `particles` particles.
    pub(super) fn new(particles: u64, step: f64) -> Self {
        let volume: f64 = (0..3)
            .map(|axis| FILLED[axis] * (HIGH[axis] - LOW[axis]))
            .product();
        let per_metre = (particles as f64 / volume).cbrt();
        let range = 1.695 / per_metre;
        let mass = 0.5 * TWICE_REST / per_metre.powi(3);
        let pi = std::f64::consts::PI;
        let cells = std::array::from_fn(|axis| (((HIGH[axis] - LOW[axis]) / range) as u64).max(1));
        Self {
            range,
            range_square: range * range,
            density: 315.0 * mass / (64.0 * pi * range.powi(9)),
            pressure: 3.0 * 0.5 * STIFFNESS * mass * 15.0 / (pi * range.powi(6)),
            viscosity: VISCOSITY * 45.0 * mass / (pi * range.powi(6)),
            cells,
            edges: std::array::from_fn(|axis| (HIGH[axis] - LOW[axis]) / cells[axis] as f64),
            step,
        }
    }

    /// Returns the fluid at the beginning: a block at rest, a little disordered.
    pub(super) fn block(&self, seed: u64) -> Vec<Particle> {
        let mut random = Random::new(seed);
        let gap = self.range / 1.695;
        let counts: [u64; 3] = std::array::from_fn(|axis| {
            ((FILLED[axis] * (HIGH[axis] - LOW[axis]) / gap).round() as u64).max(1)
        });
        let places = (0..counts.iter().product()).map(|number| {
            let place = [
                number % counts[0],
                number / counts[0] % counts[1],
                number / (counts[0] * counts[1]),
            ];
            let at = std::array::from_fn(|axis| {
                let away = (random.below(1000) as f64 - 500.0) / 5000.0;
                LOW[axis] + gap * (place[axis] as f64 + 0.5 + away)
            });
            Particle {
                number,
                at,
                ..Particle::default()
            }
        });
        places.collect()
    }

    /// Returns the cell of a position, along each axis.
    pub(super) fn cell(&self, at: Vector) -> [u64; 3] {
        std::array::from_fn(|axis| {
            let cell = ((at[axis] - LOW[axis]) / self.edges[axis]).max(0.0) as u64;
            cell.min(self.cells[axis] - 1)
        })
    }

    /// Returns the number of a cell.
    pub(super) fn index(&self, [x, y, z]: [u64; 3]) -> u64 {
        (z * self.cells[1] + y) * self.cells[0] + x
    }

    /// Returns the number of cells.
    pub(super) fn cell_count(&self) -> u64 {
        self.cells.iter().product()
    }

    /// Returns the cells around a cell, itself first, without those with higher numbers: each pair
    /// of cells is met once.
    pub(super) fn neighbours(&self, cell: [u64; 3]) -> impl Iterator<Item = [u64; 3]> {
        let (own, fluid) = (self.index(cell), *self);
        let around = (0..27).filter_map(move |step: u64| {
            let steps = [step % 3, step / 3 % 3, step / 9];
            let mut next = [0; 3];
            for axis in 0..3 {
                next[axis] = (cell[axis] + steps[axis]).checked_sub(1)?;
                if next[axis] >= fluid.cells[axis] {
                    return None;
                }
            }
            (fluid.index(next) < own).then_some(next)
        });
        std::iter::once(cell).chain(around)
    }

    /// Returns the square of the distance, if the two reach one another.
    pub(super) fn square(&self, a: Vector, b: Vector) -> Option<f64> {
        let way = sub(a, b);
        let square = dot(way, way);
        (square < self.range_square).then_some(square)
    }

    /// Returns the nearness that two particles add to the density of one another.
    pub(super) fn nearness(&self, square: f64) -> f64 {
        (self.range_square - square).powi(3)
    }

    /// Returns the density, from the sum of nearnesses.
    pub(super) fn density(&self, nearness: f64) -> f64 {
        (nearness + self.range_square.powi(3)) * self.density
    }

    /// Returns the acceleration of `a` by `b`, which is that of `b` by `a` reversed. Each is a
    /// position, a speed and a density.
    pub(super) fn force(
        &self,
        square: f64,
        a: (Vector, Vector, f64),
        b: (Vector, Vector, f64),
    ) -> Vector {
        let distance = square.max(1e-12).sqrt();
        let near = self.range - distance;
        let push = self.pressure * near * near / distance * (a.2 + b.2 - TWICE_REST);
        let drag = self.viscosity * near;
        let sum = add(scale(sub(a.0, b.0), push), scale(sub(b.1, a.1), drag));
        scale(sum, 1.0 / (a.2 * b.2))
    }

    /// Returns the acceleration of a particle by forces other than those of particles.
    pub(super) fn outside() -> Vector {
        GRAVITY
    }

    /// Returns the acceleration by the walls along an axis, if the particle is at one.
    pub(super) fn wall(&self, axis: usize, at: f64, half: f64, speed: f64) -> Option<f64> {
        let at = at + half * self.step;
        let low = SIZE - (at - LOW[axis]);
        if low > NO_DISTANCE {
            return Some(WALL_STIFFNESS * low - WALL_DAMPING * speed);
        }
        let high = SIZE - (HIGH[axis] - at);
        (high > NO_DISTANCE).then(|| -WALL_STIFFNESS * high - WALL_DAMPING * speed)
    }

    /// Returns the particle after a frame with this acceleration.
    pub(super) fn advance(&self, particle: Particle, acceleration: Vector) -> Particle {
        let half = add(particle.half, scale(acceleration, self.step));
        Particle {
            at: add(particle.at, scale(half, self.step)),
            speed: scale(add(particle.half, half), 0.5),
            half,
            acceleration,
            ..particle
        }
    }

    /// Returns whether two versions of a particle are the same except for rounding.
    pub(super) fn same(&self, a: &Particle, b: &Particle) -> bool {
        let close =
            |a: Vector, b: Vector, by: f64| (0..3).all(|axis| (a[axis] - b[axis]).abs() < by);
        let by = self.range * 1e-6;
        a.number == b.number
            && close(a.at, b.at, by)
            && close(a.half, b.half, by / self.step)
            && close(a.speed, b.speed, by / self.step)
            && close(a.acceleration, b.acceleration, by / (self.step * self.step))
            && (a.density - b.density).abs() < TWICE_REST * 1e-6
    }
}
