//! The threads' work in a step of Barnes-Hut, and the layout of bodies and cells in memory.

use std::ops::Range;

use super::super::bodies::{Cube, Pull, Vector, advance, bounds};
use super::super::combining::Combining;
use super::Barnes;
use outlive_machine::program::{Array, Cpu, LockId, Pending, Word};

/// Words of a body, and of a cell.
///
/// A body: position (3), mass, speed (3), potential, acceleration (3). A cell: its parts (8), the
/// centre's position (3), mass.
pub(super) const NODE: u64 = 16;

/// The offset of the centre in a cell.
pub(super) const CENTRE: u64 = 8;

/// A part of a cell, encoded in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Nothing,
    Body(u64),
    Cell(u64),
}

impl Part {
    pub const fn to_word(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Body(number) => number << 2 | 1,
            Self::Cell(number) => number << 2 | 2,
        }
    }

    pub const fn from_word(word: u64) -> Self {
        match word & 3 {
            1 => Self::Body(word >> 2),
            2 => Self::Cell(word >> 2),
            _ => Self::Nothing,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub barnes: Barnes,
    pub threads: usize,
    pub bodies: Array<f64>,
    pub cells: Array<u64>,
    /// Cells that each thread can make in a step; the root is the first thread's first cell.
    pub pool: u64,
    /// The box of all bodies: its lowest and its highest corner.
    pub bounds: Array<f64>,
    pub bounds_lock: LockId,
    pub first_lock: LockId,
    pub barrier: Combining,
}

pub(super) const ROOT: u64 = 0;

/// The loads of an attracting node that are in progress.
pub(super) type Asked = [Pending<f64>; 4];

impl Program {
    fn own(&self, thread: usize) -> Range<u64> {
        let part = |thread: usize| (self.barnes.bodies * thread / self.threads) as u64;
        part(thread)..part(thread + 1)
    }

    pub fn run(&self, cpu: &mut Cpu<'_>) {
        let own = self.own(cpu.thread());
        for _ in 0..self.barnes.steps {
            self.find_bounds(cpu, own.clone());
            let cube = self.cube(cpu);
            if cpu.thread() == 0 {
                self.clear(cpu, ROOT);
            }
            self.barrier.meet(cpu);
            // The root is the first thread's first cell.
            let mut next = cpu.thread() as u64 * self.pool + u64::from(cpu.thread() == 0);
            for body in own.clone() {
                self.insert(cpu, body, cube, &mut next);
            }
            self.barrier.meet(cpu);
            self.find_centres(cpu);
            for body in own.clone() {
                let place = self
                    .ask_centre(cpu, Part::Body(body))
                    .map(|value| cpu.value(value));
                let mut pull = Pull::default();
                self.walk(
                    cpu,
                    ROOT,
                    (body, [place[0], place[1], place[2]]),
                    cube.side,
                    0,
                    &mut pull,
                );
                for (word, value) in (8..).zip(pull.acceleration) {
                    self.bodies.set(cpu, body * NODE + word, value);
                }
                self.bodies.set(cpu, body * NODE + 7, pull.potential);
            }
            self.barrier.meet(cpu);
            for body in own.clone() {
                self.advance(cpu, body);
            }
        }
    }

    /// Extends the box of all bodies by the thread's own bodies, and waits for the other threads.
    fn find_bounds(&self, cpu: &mut Cpu<'_>, own: Range<u64>) {
        if cpu.thread() == 0 {
            // The other threads have read the box of the last step: they have built a tree since.
            for word in 0..6 {
                let none = if word < 3 {
                    f64::INFINITY
                } else {
                    f64::NEG_INFINITY
                };
                self.bounds.set(cpu, word, none);
            }
        }
        self.barrier.meet(cpu);
        let places = own.map(|body| {
            let place = [0, 1, 2].map(|axis| self.bodies.ask(cpu, body * NODE + axis));
            cpu.compute(8);
            place.map(|axis| cpu.value(axis))
        });
        let (low, high) = bounds(places);
        cpu.lock(self.bounds_lock);
        for (axis, (low, high)) in (0..).zip(low.into_iter().zip(high)) {
            if self.bounds.get(cpu, axis) > low {
                self.bounds.set(cpu, axis, low);
            }
            if self.bounds.get(cpu, axis + 3) < high {
                self.bounds.set(cpu, axis + 3, high);
            }
        }
        cpu.unlock(self.bounds_lock);
        self.barrier.meet(cpu);
    }

    fn cube(&self, cpu: &mut Cpu<'_>) -> Cube {
        let words = [0, 1, 2, 3, 4, 5].map(|word| self.bounds.ask(cpu, word));
        let [a, b, c, d, e, f] = words.map(|word| cpu.value(word));
        cpu.compute(12);
        Cube::around([a, b, c], [d, e, f])
    }

    pub fn part(&self, cell: u64, part: usize) -> Word {
        self.cells.word(cell * NODE + part as u64)
    }

    pub fn clear(&self, cpu: &mut Cpu<'_>, cell: u64) {
        for part in 0..8 {
            cpu.store(self.part(cell, part), Part::Nothing.to_word());
        }
    }

    pub fn lock(&self, cell: u64) -> LockId {
        LockId(self.first_lock.0 + (cell % u64::from(self.barnes.locks)) as u32)
    }

    pub fn place(&self, cpu: &mut Cpu<'_>, body: u64) -> Vector {
        [0, 1, 2]
            .map(|axis| self.bodies.ask(cpu, body * NODE + axis))
            .map(|axis| cpu.value(axis))
    }

    /// Returns the parts of a cell that are not empty.
    pub fn parts(&self, cpu: &mut Cpu<'_>, cell: u64) -> impl Iterator<Item = Part> + use<> {
        let words: [u64; 8] = std::array::from_fn(|part| self.part(cell, part).0);
        let parts = cpu.load_all(words.map(Word)).map(Part::from_word);
        parts.into_iter().filter(|part| *part != Part::Nothing)
    }

    /// Begins to load a node's position and mass.
    pub fn ask_centre(&self, cpu: &mut Cpu<'_>, part: Part) -> Asked {
        let first = match part {
            Part::Body(body) => self.bodies.word(body * NODE),
            Part::Cell(cell) => self.cells.word(cell * NODE + CENTRE),
            Part::Nothing => unreachable!("an empty part has no centre"),
        };
        [0, 1, 2, 3].map(|word| cpu.load_later_f64(first.offset(word)))
    }

    fn advance(&self, cpu: &mut Cpu<'_>, body: u64) {
        let ask = |cpu: &mut Cpu<'_>, first: u64| {
            [0, 1, 2].map(|axis| self.bodies.ask(cpu, body * NODE + first + axis))
        };
        let asked = [0, 4, 8].map(|first| ask(cpu, first));
        let [place, speed, acceleration] = asked.map(|three| three.map(|one| cpu.value(one)));
        let (place, speed) = advance(place, speed, acceleration, self.barnes.step);
        cpu.compute(20);
        for axis in 0..3 {
            self.bodies
                .set(cpu, body * NODE + axis, place[axis as usize]);
            self.bodies
                .set(cpu, body * NODE + 4 + axis, speed[axis as usize]);
        }
    }
}
