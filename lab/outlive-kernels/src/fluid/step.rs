//! A thread that moves its part of the fluid.

use super::super::private::Private;
use super::super::vector::{Vector, add, scale};
use super::layout::{Blocks, Field, Layout, ROOM};
use super::physics::{Fluid, Particle};
use outlive_machine::program::Cpu;

/// The list of a cell's neighbours.
const NEIGHBOURS: Private = Private(0);

pub(super) struct Thread {
    layout: Layout,
    own: Vec<[u64; 3]>,
    care: bool,
}

/// A cell with its number of particles, and whether it is a border.
#[derive(Clone, Copy)]
struct Cell {
    index: u64,
    count: u64,
    border: bool,
}

/// A particle of a cell, by its slot there.
type Slot = (Cell, u64);

/// A particle that reaches another, and its position.
type Met = (Cell, u64, Vector);

impl Thread {
    pub(super) fn new(layout: Layout, cpu: &Cpu<'_>, care: bool) -> Self {
        let own = Blocks::of(cpu.threads())
            .cells(&layout.fluid, cpu.thread())
            .collect();
        Self { layout, own, care }
    }

    pub(super) fn run(self, cpu: &mut Cpu<'_>, frames: u32) {
        let phases = [
            Self::clear,
            Self::rebuild,
            Self::begin,
            Self::add_nearness,
            Self::find_density,
            Self::add_forces,
            Self::add_walls,
            Self::advance,
        ];
        for frame in 0..frames {
            // Particles go from one grid to the other at the beginning of a frame.
            let grid = (frame as usize + 1) % 2;
            for phase in phases {
                phase(&self, cpu, grid);
                self.layout.barrier.meet(cpu);
            }
        }
    }

    fn clear(&self, cpu: &mut Cpu<'_>, grid: usize) {
        for &cell in &self.own {
            cpu.compute(2);
            self.layout.counts[grid].set(cpu, self.layout.fluid.index(cell), 0);
        }
    }

    /// Puts the particles into their current cells.
    fn rebuild(&self, cpu: &mut Cpu<'_>, grid: usize) {
        let (fluid, old) = (self.layout.fluid, 1 - grid);
        for &cell in &self.own {
            let index = fluid.index(cell);
            for slot in 0..self.layout.counts[old].get(cpu, index) {
                let fields = [Field::AT, Field::HALF, Field::SPEED];
                let words = fields.map(|field| self.layout.words(old, index, field, slot));
                let words = words.map(|words| words.map(|word| cpu.load_later_f64(word)));
                let number = cpu.load_later(self.layout.word(old, index, Field::NUMBER, slot));
                let values = words.map(|words| words.map(|word| cpu.value(word)));
                let number = cpu.value(number);
                cpu.compute(Fluid::CELL);
                let now = fluid.cell(values[0]);
                let to = fluid.index(now);
                let slot = self.take_slot(cpu, grid, now, cell);
                for (field, values) in fields.into_iter().zip(values) {
                    for (word, value) in self
                        .layout
                        .words(grid, to, field, slot)
                        .into_iter()
                        .zip(values)
                    {
                        cpu.store_f64(word, value);
                    }
                }
                cpu.store(self.layout.word(grid, to, Field::NUMBER, slot), number);
            }
        }
    }

    /// Takes a slot for one more particle in a cell.
    fn take_slot(&self, cpu: &mut Cpu<'_>, grid: usize, now: [u64; 3], before: [u64; 3]) -> u64 {
        let to = self.layout.fluid.index(now);
        let lock = self.care && self.layout.borders.get(cpu, to) != 0;
        // The original does not check this, and may lose a particle there.
        assert!(
            lock || !self.care || now == before || self.own.contains(&now),
            "a particle has moved from cell {before:?} beyond the neighbouring cells, into the \
             middle of another thread's block, where no lock is taken: give shorter frames"
        );
        if lock {
            cpu.lock(self.layout.lock(to));
        }
        let slot = self.layout.counts[grid].get(cpu, to);
        assert!(
            slot < self.layout.room(),
            "cell {to} has no space for more than {slot} particles: give its chain another link"
        );
        cpu.compute(3);
        self.layout.counts[grid].set(cpu, to, slot + 1);
        if lock {
            cpu.unlock(self.layout.lock(to));
        }
        slot
    }

    fn begin(&self, cpu: &mut Cpu<'_>, grid: usize) {
        self.for_own(cpu, grid, |cpu, (cell, slot)| {
            cpu.store_f64(
                self.layout.word(grid, cell.index, Field::DENSITY, slot),
                0.0,
            );
            let words = self
                .layout
                .words(grid, cell.index, Field::ACCELERATION, slot);
            for (word, part) in words.into_iter().zip(Fluid::outside()) {
                cpu.store_f64(word, part);
            }
            cpu.compute(4);
        });
    }

    fn add_nearness(&self, cpu: &mut Cpu<'_>, grid: usize) {
        self.for_pairs(cpu, grid, |cpu, square, one, other| {
            let nearness = self.layout.fluid.nearness(square);
            cpu.compute(Fluid::NEARNESS);
            for (cell, slot, _) in [one, other] {
                let word = self.layout.word(grid, cell.index, Field::DENSITY, slot);
                self.locked(cpu, cell, |cpu| {
                    let before = cpu.load_f64(word);
                    cpu.store_f64(word, before + nearness);
                });
            }
        });
    }

    fn find_density(&self, cpu: &mut Cpu<'_>, grid: usize) {
        self.for_own(cpu, grid, |cpu, (cell, slot)| {
            let word = self.layout.word(grid, cell.index, Field::DENSITY, slot);
            let nearness = cpu.load_f64(word);
            cpu.compute(5);
            cpu.store_f64(word, self.layout.fluid.density(nearness));
        });
    }

    fn add_forces(&self, cpu: &mut Cpu<'_>, grid: usize) {
        self.for_pairs(cpu, grid, |cpu, square, one, other| {
            let asked = [one, other].map(|(cell, slot, _)| {
                let speed = self.layout.words(grid, cell.index, Field::SPEED, slot);
                let density = self.layout.word(grid, cell.index, Field::DENSITY, slot);
                (
                    speed.map(|word| cpu.load_later_f64(word)),
                    cpu.load_later_f64(density),
                )
            });
            let [a, b] = asked
                .map(|(speed, density)| (speed.map(|part| cpu.value(part)), cpu.value(density)));
            let (a, b) = ((one.2, a.0, a.1), (other.2, b.0, b.1));
            cpu.compute(Fluid::FORCE);
            let force = self.layout.fluid.force(square, a, b);
            for ((cell, slot, _), force) in [(one, force), (other, scale(force, -1.0))] {
                let words = self
                    .layout
                    .words(grid, cell.index, Field::ACCELERATION, slot);
                self.locked(cpu, cell, |cpu| {
                    let before = words.map(|word| cpu.load_later_f64(word));
                    let sum = add(before.map(|part| cpu.value(part)), force);
                    for (word, part) in words.into_iter().zip(sum) {
                        cpu.store_f64(word, part);
                    }
                });
            }
        });
    }

    fn add_walls(&self, cpu: &mut Cpu<'_>, grid: usize) {
        self.for_own(cpu, grid, |cpu, (cell, slot)| {
            let fields = [Field::AT, Field::HALF, Field::SPEED];
            let words = fields.map(|field| self.layout.words(grid, cell.index, field, slot));
            let words = words.map(|words| words.map(|word| cpu.load_later_f64(word)));
            let [at, half, speed] = words.map(|words| words.map(|word| cpu.value(word)));
            cpu.compute(Fluid::WALL);
            for axis in 0..3 {
                if let Some(more) = self
                    .layout
                    .fluid
                    .wall(axis, at[axis], half[axis], speed[axis])
                {
                    let word = self
                        .layout
                        .words(grid, cell.index, Field::ACCELERATION, slot)[axis];
                    let before = cpu.load_f64(word);
                    cpu.compute(4);
                    cpu.store_f64(word, before + more);
                }
            }
        });
    }

    fn advance(&self, cpu: &mut Cpu<'_>, grid: usize) {
        self.for_own(cpu, grid, |cpu, (cell, slot)| {
            let words = |field| self.layout.words(grid, cell.index, field, slot);
            let asked = [Field::AT, Field::HALF, Field::ACCELERATION]
                .map(|field| words(field).map(|word| cpu.load_later_f64(word)));
            let [at, half, acceleration] = asked.map(|words| words.map(|word| cpu.value(word)));
            cpu.compute(Fluid::ADVANCE);
            let before = Particle {
                at,
                half,
                ..Particle::default()
            };
            let after = self.layout.fluid.advance(before, acceleration);
            for (field, values) in [
                (Field::AT, after.at),
                (Field::SPEED, after.speed),
                (Field::HALF, after.half),
            ] {
                for (word, value) in words(field).into_iter().zip(values) {
                    cpu.store_f64(word, value);
                }
            }
        });
    }

    /// Calls `each` with each particle of the thread's own cells.
    fn for_own(&self, cpu: &mut Cpu<'_>, grid: usize, mut each: impl FnMut(&mut Cpu<'_>, Slot)) {
        for &cell in &self.own {
            let index = self.layout.fluid.index(cell);
            let count = self.layout.counts[grid].get(cpu, index);
            cpu.compute(2);
            for slot in 0..count {
                let cell = Cell {
                    index,
                    count,
                    border: false,
                };
                each(cpu, (cell, slot));
            }
        }
    }

    /// Calls `each` with each pair of a particle of the thread's own cells and one that it reaches,
    /// and with the square of their distance.
    fn for_pairs(
        &self,
        cpu: &mut Cpu<'_>,
        grid: usize,
        mut each: impl FnMut(&mut Cpu<'_>, f64, Met, Met),
    ) {
        let mut cells = Vec::with_capacity(27);
        for &cell in &self.own {
            self.list_neighbours(cpu, grid, cell, &mut cells);
            let Some(&own) = cells.first() else { continue };
            for slot in 0..own.count {
                let at = self
                    .layout
                    .words(grid, own.index, Field::AT, slot)
                    .map(|word| cpu.load_later_f64(word));
                let at = at.map(|part| cpu.value(part));
                for (&neighbour, entry) in cells.iter().zip(0..) {
                    NEIGHBOURS.load(cpu, entry..entry + 1);
                    // In its own cell, a particle meets those before it.
                    let end = if neighbour.index == own.index {
                        slot
                    } else {
                        neighbour.count
                    };
                    // All particles of a link are loaded at once, as a core reads ahead.
                    for first in (0..end).step_by(ROOM as usize) {
                        let mut asked = [None; ROOM as usize];
                        for (asked, other) in asked.iter_mut().zip(first..end) {
                            let words = self.layout.words(grid, neighbour.index, Field::AT, other);
                            *asked = Some(words.map(|word| cpu.load_later_f64(word)));
                        }
                        let places =
                            asked.map(|asked| asked.map(|at| at.map(|part| cpu.value(part))));
                        for (there, other) in places.into_iter().flatten().zip(first..) {
                            cpu.compute(Fluid::SQUARE);
                            if let Some(square) = self.layout.fluid.square(at, there) {
                                each(cpu, square, (own, slot, at), (neighbour, other, there));
                            }
                        }
                    }
                }
            }
        }
    }

    /// Lists the cells around a cell that have particles, itself first; none if it has none itself.
    fn list_neighbours(
        &self,
        cpu: &mut Cpu<'_>,
        grid: usize,
        cell: [u64; 3],
        cells: &mut Vec<Cell>,
    ) {
        cells.clear();
        for neighbour in self.layout.fluid.neighbours(cell) {
            let index = self.layout.fluid.index(neighbour);
            let count = self.layout.counts[grid].get(cpu, index);
            cpu.compute(8);
            if count > 0 {
                let border = self.layout.borders.get(cpu, index) != 0;
                let entry = cells.len() as u64;
                NEIGHBOURS.store(cpu, entry..entry + 1);
                cells.push(Cell {
                    index,
                    count,
                    border,
                });
            } else if cells.is_empty() {
                return;
            }
        }
    }

    /// Changes a particle of a cell, with the cell's lock if other threads can touch the cell.
    fn locked(&self, cpu: &mut Cpu<'_>, cell: Cell, change: impl FnOnce(&mut Cpu<'_>)) {
        let lock = self.care && cell.border;
        if lock {
            cpu.lock(self.layout.lock(cell.index));
        }
        change(cpu);
        if lock {
            cpu.unlock(self.layout.lock(cell.index));
        }
    }
}
