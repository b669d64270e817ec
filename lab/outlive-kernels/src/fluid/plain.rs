//! A reference for the fluid without threads or simulated memory.

use super::super::vector::{Vector, add, sub};
use super::physics::{Fluid, Particle};

#[derive(Clone, Copy, Default)]
struct Moving {
    particle: Particle,
    nearness: f64,
    density: f64,
    acceleration: Vector,
}

/// Returns the particles after `frames` frames, by number.
pub(super) fn simulate(fluid: &Fluid, particles: Vec<Particle>, frames: u32) -> Vec<Particle> {
    let mut particles = particles;
    for _ in 0..frames {
        frame(fluid, &mut particles);
    }
    particles
}

fn frame(fluid: &Fluid, particles: &mut [Particle]) {
    let mut cells = vec![Vec::new(); fluid.cell_count() as usize];
    for particle in &*particles {
        cells[fluid.index(fluid.cell(particle.at)) as usize].push(particle.number as usize);
    }
    let mut all: Vec<Moving> = particles
        .iter()
        .map(|&particle| Moving {
            particle,
            acceleration: Fluid::outside(),
            ..Moving::default()
        })
        .collect();
    for_pairs(fluid, &cells, |a, b| {
        if let Some(square) = fluid.square(all[a].particle.at, all[b].particle.at) {
            let nearness = fluid.nearness(square);
            all[a].nearness += nearness;
            all[b].nearness += nearness;
        }
    });
    for one in &mut all {
        one.density = fluid.density(one.nearness);
    }
    for_pairs(fluid, &cells, |a, b| {
        if let Some(square) = fluid.square(all[a].particle.at, all[b].particle.at) {
            let [one, other] = [a, b].map(|one| {
                (
                    all[one].particle.at,
                    all[one].particle.speed,
                    all[one].density,
                )
            });
            let force = fluid.force(square, one, other);
            all[a].acceleration = add(all[a].acceleration, force);
            all[b].acceleration = sub(all[b].acceleration, force);
        }
    });
    for (particle, mut one) in particles.iter_mut().zip(all) {
        for axis in 0..3 {
            let wall = fluid.wall(
                axis,
                particle.at[axis],
                particle.half[axis],
                particle.speed[axis],
            );
            one.acceleration[axis] += wall.unwrap_or(0.0);
        }
        *particle = fluid.advance(*particle, one.acceleration);
        particle.density = one.density;
    }
}

/// Calls `pair` once with each two particles of cells that touch.
fn for_pairs(fluid: &Fluid, cells: &[Vec<usize>], mut pair: impl FnMut(usize, usize)) {
    let [columns, rows, _] = fluid.cells;
    for own in 0..fluid.cell_count() {
        let cell = [own % columns, own / columns % rows, own / (columns * rows)];
        for neighbour in fluid.neighbours(cell) {
            let neighbour = fluid.index(neighbour);
            for (place, &a) in cells[own as usize].iter().enumerate() {
                let others = &cells[neighbour as usize];
                let end = if neighbour == own {
                    place
                } else {
                    others.len()
                };
                for &b in &others[..end] {
                    pair(a, b);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cells hide no pair.
    #[test]
    fn each_pair_in_reach_is_met_once() {
        let fluid = Fluid::new(300, 0.005);
        let particles = simulate(&fluid, fluid.block(1), 3);
        let mut cells = vec![Vec::new(); fluid.cell_count() as usize];
        for particle in &particles {
            cells[fluid.index(fluid.cell(particle.at)) as usize].push(particle.number as usize);
        }
        let mut met = Vec::new();
        for_pairs(&fluid, &cells, |a, b| {
            if fluid.square(particles[a].at, particles[b].at).is_some() {
                met.push((a.max(b), a.min(b)));
            }
        });
        met.sort_unstable();
        let all = (0..particles.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let right: Vec<_> = all
            .filter(|&(a, b)| fluid.square(particles[a].at, particles[b].at).is_some())
            .collect();
        assert_eq!(met, right);
        assert!(!met.is_empty());
    }

    /// The forces of particles on one another add up to zero, so a fluid away from the walls falls
    /// as a stone does.
    #[test]
    fn the_fluid_neither_bursts_nor_leaks() {
        let fluid = Fluid::new(2000, 0.005);
        let particles = simulate(&fluid, fluid.block(1), 20);
        let fastest = particles
            .iter()
            .map(|one| super::super::super::vector::dot(one.speed, one.speed).sqrt());
        let fastest = fastest.fold(0.0, f64::max);
        assert!(fastest > 0.1, "it moves: {fastest} m/s");
        assert!(
            fastest < fluid.range / 0.005,
            "a cell a frame at most: {fastest} m/s"
        );
        for one in particles {
            for axis in 0..3 {
                let (low, high) = (
                    super::super::physics::LOW[axis],
                    super::super::physics::HIGH[axis],
                );
                assert!((low - 0.01..high + 0.01).contains(&one.at[axis]), "{one:?}");
            }
        }
    }
}
