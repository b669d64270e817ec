//! The layout of the fluid in shared memory, and its division among threads.

use super::super::combining::Combining;
use super::super::vector::Vector;
use super::physics::{Fluid, Particle};
use outlive_machine::program::{Allocator, Array, LockId, Word};

/// The particles that one link of a cell's chain can hold.
pub(super) const ROOM: u64 = 16;

/// A field of the particles of a link: all fields of one kind are adjacent, as in the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field(u64);

impl Field {
    pub(super) const AT: Self = Self(0);
    pub(super) const HALF: Self = Self(3 * ROOM);
    pub(super) const SPEED: Self = Self(6 * ROOM);
    pub(super) const ACCELERATION: Self = Self(9 * ROOM);
    /// One word.
    pub(super) const DENSITY: Self = Self(12 * ROOM);
    /// One word.
    pub(super) const NUMBER: Self = Self(13 * ROOM);
    const END: u64 = 14 * ROOM;
}

/// The two grids: the particles before and after a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) fluid: Fluid,
    pub(super) barrier: Combining,
    /// The first lock; each cell has one.
    locks: LockId,
    /// The number of particles in each cell.
    pub(super) counts: [Array<u64>; 2],
    /// The first link of each cell.
    cells: [Array<f64>; 2],
    /// The second link of each cell, then the third of each, and so on.
    chained: [Array<f64>; 2],
    /// The number of links of a cell, including the first.
    links: u64,
    /// For each cell, whether a thread can touch it that owns another cell near it: then its lock
    /// is needed.
    pub(super) borders: Array<u64>,
}

impl Layout {
    pub(super) fn new(
        memory: &mut Allocator,
        fluid: Fluid,
        particles: &[Particle],
        links: u64,
        threads: usize,
    ) -> Self {
        assert!(links > 0, "a cell has at least one link");
        let count = fluid.cell_count();
        let mut counts = vec![0; count as usize];
        let mut cells = vec![0.0; (count * Field::END) as usize];
        for particle in particles {
            let cell = fluid.index(fluid.cell(particle.at));
            let slot = counts[cell as usize];
            assert!(
                slot < ROOM,
                "cell {cell} begins with more than {ROOM} particles"
            );
            counts[cell as usize] += 1;
            let first = (cell * Field::END) as usize;
            cells[first + (Field::NUMBER.0 + slot) as usize] = f64::from_bits(particle.number);
            for (axis, at) in (0..3).zip(particle.at) {
                cells[first + (Field::AT.0 + 3 * slot + axis) as usize] = at;
            }
        }
        let blocks = Blocks::of(threads);
        let borders: Vec<u64> = (0..count)
            .map(|index| u64::from(blocks.is_border(&fluid, index)))
            .collect();
        Self {
            fluid,
            barrier: Combining::new(memory, threads),
            locks: memory.locks(count as u32),
            counts: [memory.array_of(&counts), memory.array(count)],
            cells: [memory.array_of(&cells), memory.array(count * Field::END)],
            borders: memory.array_of(&borders),
            chained: [(); 2].map(|()| memory.array(count * (links - 1) * Field::END)),
            links,
        }
    }

    pub(super) fn lock(&self, cell: u64) -> LockId {
        LockId(self.locks.0 + cell as u32)
    }

    /// Returns the number of particles that a cell can hold.
    pub(super) fn room(&self) -> u64 {
        self.links * ROOM
    }

    /// Returns the word of a field with one word.
    pub(super) fn word(&self, grid: usize, cell: u64, field: Field, slot: u64) -> Word {
        let (links, first) = self.link(grid, cell, slot);
        links.word(first + field.0 + slot % ROOM)
    }

    /// Returns the array with the link of a slot, and the link's offset there.
    fn link(&self, grid: usize, cell: u64, slot: u64) -> (Array<f64>, u64) {
        match (slot / ROOM).checked_sub(1) {
            None => (self.cells[grid], cell * Field::END),
            Some(link) => {
                let before = link * self.fluid.cell_count() + cell;
                (self.chained[grid], before * Field::END)
            }
        }
    }

    /// Returns the words of a field with three.
    pub(super) fn words(&self, grid: usize, cell: u64, field: Field, slot: u64) -> [Word; 3] {
        let (links, first) = self.link(grid, cell, slot);
        let first = first + field.0 + 3 * (slot % ROOM);
        [0, 1, 2].map(|axis| links.word(first + axis))
    }

    /// Returns all particles of a grid, in no order, from a memory at rest.
    pub(super) fn particles(&self, grid: usize, memory: &dyn Fn(Word) -> u64) -> Vec<Particle> {
        let vector = |cell, field, slot| -> Vector {
            self.words(grid, cell, field, slot)
                .map(|word| f64::from_bits(memory(word)))
        };
        let all = (0..self.fluid.cell_count()).flat_map(|cell| {
            let count = self.counts[grid].at(memory, cell).min(self.room());
            (0..count).map(move |slot| Particle {
                number: memory(self.word(grid, cell, Field::NUMBER, slot)),
                at: vector(cell, Field::AT, slot),
                half: vector(cell, Field::HALF, slot),
                speed: vector(cell, Field::SPEED, slot),
                density: f64::from_bits(memory(self.word(grid, cell, Field::DENSITY, slot))),
                acceleration: vector(cell, Field::ACCELERATION, slot),
            })
        });
        all.collect()
    }
}

/// Blocks of cells, one for each thread: cut along the first and last axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    columns: u64,
    layers: u64,
}

impl Blocks {
    pub(super) fn of(threads: usize) -> Self {
        let threads = threads as u64;
        let columns = (1..=threads)
            .rev()
            .find(|columns| threads.is_multiple_of(*columns) && columns * columns <= threads);
        let columns = columns.unwrap_or(1);
        Self {
            columns,
            layers: threads / columns,
        }
    }

    /// Returns the cells of a thread.
    pub(super) fn cells(self, fluid: &Fluid, thread: usize) -> impl Iterator<Item = [u64; 3]> {
        let thread = thread as u64;
        let part =
            |cells: u64, part: u64, parts: u64| cells * part / parts..cells * (part + 1) / parts;
        let columns = part(fluid.cells[0], thread % self.columns, self.columns);
        let layers = part(fluid.cells[2], thread / self.columns, self.layers);
        let rows = fluid.cells[1];
        layers.flat_map(move |z| {
            let columns = columns.clone();
            (0..rows).flat_map(move |y| columns.clone().map(move |x| [x, y, z]))
        })
    }

    fn is_border(self, fluid: &Fluid, index: u64) -> bool {
        let [columns, rows, _] = fluid.cells;
        let cell = [
            index % columns,
            index / columns % rows,
            index / (columns * rows),
        ];
        let owner = |[x, _, z]: [u64; 3]| {
            // The part that `part` assigns a cell to.
            let part = |cell: u64, cells: u64, parts: u64| ((cell + 1) * parts - 1) / cells;
            (
                part(x, fluid.cells[0], self.columns),
                part(z, fluid.cells[2], self.layers),
            )
        };
        let near = |axis: usize| {
            cell[axis].saturating_sub(1)..=(cell[axis] + 1).min(fluid.cells[axis] - 1)
        };
        near(0).any(|x| near(2).any(|z| owner([x, 0, z]) != owner(cell)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each cell has one owner, and each cell that another thread can reach is a border.
    #[test]
    fn blocks_cover_all_cells() {
        let fluid = Fluid::new(2000, 0.005);
        for threads in [1, 2, 3, 6, 7, 16, 64] {
            let blocks = Blocks::of(threads);
            let mut owners = vec![None; fluid.cell_count() as usize];
            for thread in 0..threads {
                for cell in blocks.cells(&fluid, thread) {
                    let owner = &mut owners[fluid.index(cell) as usize];
                    assert_eq!(owner.replace(thread), None, "{cell:?} of {threads} threads");
                }
            }
            assert!(owners.iter().all(Option::is_some));
            for thread in 0..threads {
                for cell in blocks.cells(&fluid, thread) {
                    for neighbour in fluid.neighbours(cell) {
                        let (a, b) = (fluid.index(cell), fluid.index(neighbour));
                        if owners[a as usize] != owners[b as usize] {
                            assert!(blocks.is_border(&fluid, a) && blocks.is_border(&fluid, b));
                        }
                    }
                }
            }
        }
    }
}
