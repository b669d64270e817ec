//! Builds the tree with all threads together, and computes the centres of its cells.

use super::super::bodies::{Centre, Cube, DEPTH, Sum};
use super::program::{CENTRE, NODE, Part, Program, ROOT};
use outlive_machine::program::Cpu;

/// The level at which cells with their subtrees are dealt out to threads to compute their centres.
const DEALT: u32 = 3;

impl Program {
    /// Inserts a body into the tree. `next` is the next cell that the thread can make.
    pub fn insert(&self, cpu: &mut Cpu<'_>, body: u64, mut cube: Cube, next: &mut u64) {
        let place = self.place(cpu, body);
        let mut cell = ROOT;
        for _ in 0..DEPTH {
            let (part, inner) = cube.part(place);
            let word = self.part(cell, part);
            cpu.compute(12);
            // A thread that finds a cell finds it complete, even without the lock: it was filled
            // before it was linked, and stores are not reordered.
            let mut found = Part::from_word(cpu.load(word));
            if !matches!(found, Part::Cell(_)) {
                cpu.lock(self.lock(cell));
                found = Part::from_word(cpu.load(word));
                match found {
                    Part::Nothing => cpu.store(word, Part::Body(body).to_word()),
                    Part::Body(other) => {
                        let made = *next;
                        *next += 1;
                        assert!(
                            *next <= (cpu.thread() as u64 + 1) * self.pool,
                            "no more than {} cells",
                            self.pool
                        );
                        self.clear(cpu, made);
                        let (part_of_other, _) = inner.part(self.place(cpu, other));
                        cpu.store(self.part(made, part_of_other), Part::Body(other).to_word());
                        cpu.store(word, Part::Cell(made).to_word());
                        found = Part::Cell(made);
                    }
                    Part::Cell(_) => {}
                }
                cpu.unlock(self.lock(cell));
            }
            let Part::Cell(below) = found else { return };
            (cell, cube) = (below, inner);
        }
        panic!("body {body} is at the position of another one");
    }

    pub fn find_centres(&self, cpu: &mut Cpu<'_>) {
        let mut dealt = 0;
        self.deal(cpu, ROOT, 0, &mut dealt);
        self.barrier.meet(cpu);
        if cpu.thread() == 0 {
            self.find_centre(cpu, ROOT, Some(DEALT));
        }
        self.barrier.meet(cpu);
    }

    /// Computes the centres of the subtrees that are this thread's turn.
    fn deal(&self, cpu: &mut Cpu<'_>, cell: u64, depth: u32, dealt: &mut usize) {
        if depth == DEALT {
            if *dealt % self.threads == cpu.thread() {
                self.find_centre(cpu, cell, None);
            }
            *dealt += 1;
            return;
        }
        for part in self.parts(cpu, cell) {
            if let Part::Cell(below) = part {
                self.deal(cpu, below, depth + 1, dealt);
            }
        }
    }

    /// Computes the centre of a cell, after those of the cells below it. The centres that are
    /// `known` levels further down have been computed already.
    fn find_centre(&self, cpu: &mut Cpu<'_>, cell: u64, known: Option<u32>) {
        if known == Some(0) {
            return;
        }
        let mut sum = Sum::default();
        for part in self.parts(cpu, cell) {
            if let Part::Cell(below) = part {
                self.find_centre(cpu, below, known.map(|levels| levels - 1));
            }
            let [x, y, z, mass] = self.ask_centre(cpu, part).map(|value| cpu.value(value));
            cpu.compute(8);
            let place = [x, y, z];
            sum.add(Centre { place, mass });
        }
        let Centre { place, mass } = sum.centre();
        for (word, value) in (CENTRE..).zip(place.into_iter().chain([mass])) {
            cpu.store_f64(self.cells.word(cell * NODE + word), value);
        }
        cpu.compute(6);
    }
}
