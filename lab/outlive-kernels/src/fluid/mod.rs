//! Smoothed-particle fluid dynamics, as PARSEC's `fluidanimate`.
//!
//! A block of fluid falls and spreads in a box. The box is cut into cells as long as particles
//! reach; each thread has a block of cells. A frame has eight phases with a barrier after each:
//! empty the cells, sort the particles into them, begin their densities and forces, add the
//! nearness of each pair in reach to the densities of both, scale the densities, add the forces of
//! each pair to both, add the walls, move. A pair is met once, by the owner of the cell with the
//! higher number; cells at the border of a block are also written by the neighbours, under a lock
//! of the cell, taken for each single sum, as in the original (which has several locks per cell).
//!
//! Cells are chains of links with space for 16 particles, as in the original. The original appends
//! a link when it needs one. Here, a cell's links have their places from the beginning, so that no
//! thread allocates, and a longer run, in which the fluid piles up, has more of them. Particles
//! have numbers, so that the result can be compared. Numbers have double precision.
//!
//! Private is the list of a cell's neighbours. The position of a thread's particle is in registers
//! while the thread visits the others. Instructions that access no memory are counted from the
//! formulas (see `Fluid`).
//!
//! Checked: after the last frame and the one before it, each particle is, within a millionth of its
//! reach, where a plain program has it, and as fast, as dense and as much accelerated. Sums are
//! rounded differently, as they are added in another order.

mod layout;
mod physics;
mod plain;
mod step;

use self::layout::Layout;
use self::physics::Fluid;
use self::step::Thread;
use outlive_machine::program::{Allocator, Cpu, Origin, Scale, Workload};

/// fluidanimate's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fluidanimate {
    /// The approximate number of particles.
    pub particles: u64,
    /// The number of frames.
    pub frames: u32,
    /// The time from frame to frame, in microseconds: 5,000 in the original.
    pub frame_micros: u32,
    /// The number of links in a cell's chain; each has space for 16 particles.
    pub links: u64,
    /// The seed of the initial disorder.
    pub seed: u64,
}

impl Fluidanimate {
    /// Returns the parameters at a scale. `simmedium` has 100,000 particles and 5 frames. At full
    /// scale, these 25 ms are cut into 25 frames: in longer frames, this many particles do not stay
    /// together, and some move further than to the next cell in one frame, where the original has a
    /// race. `Tenfold` has twice the particles of `Study` and five such frames.
    pub fn at(scale: Scale) -> Self {
        let (particles, frames, frame_micros, links) = match scale {
            Scale::Test => (200, 2, 5_000, 1),
            Scale::Study => (16_000, 1, 5_000, 1),
            Scale::Tenfold => (32_000, 5, 1_000, 2),
            Scale::Full => (100_000, 25, 1_000, 2),
        };
        Self {
            particles,
            frames,
            frame_micros,
            links,
            seed: 1,
        }
    }

    /// Returns the workload.
    pub fn workload(self, threads: usize) -> Workload {
        self.build(threads, true)
    }

    /// Returns the workload; without `care`, it takes no locks.
    pub(super) fn build(self, threads: usize, care: bool) -> Workload {
        let fluid = Fluid::new(self.particles, f64::from(self.frame_micros) * 1e-6);
        let block = fluid.block(self.seed);
        let mut memory = Allocator::new();
        let layout = Layout::new(&mut memory, fluid, &block, self.links, threads);
        Workload::new(
            "fluidanimate",
            threads,
            memory,
            origin(),
            move |cpu: &mut Cpu<'_>| {
                Thread::new(layout, cpu, care).run(cpu, self.frames);
            },
        )
        .with_check(move |memory| {
            // One grid has the last frame, the other the one before it.
            for frames in self.frames.saturating_sub(1)..=self.frames {
                let right = plain::simulate(&fluid, block.clone(), frames);
                let mut found = layout.particles(frames as usize % 2, memory);
                found.sort_by_key(|particle| particle.number);
                if found.len() != right.len() {
                    return Err(format!(
                        "after {frames} frames there are {} particles; there should be {}",
                        found.len(),
                        right.len()
                    ));
                }
                for (found, right) in found.iter().zip(&right) {
                    if !fluid.same(found, right) {
                        return Err(format!(
                            "after {frames} frames there is {found:?}; it should be {right:?}"
                        ));
                    }
                }
            }
            Ok(())
        })
    }
}

fn origin() -> Origin {
    Origin {
        program: "PARSEC fluidanimate",
        stores: Some(1.15 / (4.80 + 1.15)),
        shared_stores: None,
        source: "PARSEC, TR-811-08, table 1",
        differs: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_machine::program::{Recording, Reference};

    /// Particles in second links stay right; without second links, the program reports that a cell
    /// has too many.
    #[test]
    fn who_finds_a_full_cell_goes_into_the_next_link_of_its_chain() {
        let dense = |links| Fluidanimate {
            particles: 6_000,
            frames: 14,
            frame_micros: 5_000,
            links,
            seed: 1,
        };
        let run = |links| {
            let workload = dense(links).workload(4);
            let mut machine = Reference::of(&workload, Recording::Off, 3);
            machine.run().unwrap();
            workload.check(&|word| machine.word(word))
        };
        assert_eq!(run(2), Ok(()));
        let full = std::panic::catch_unwind(|| run(1));
        assert!(full.is_err(), "no cell was ever full");
    }
}
