//! Sums up a body's pulls by walking the tree.

use super::super::bodies::{Pull, Vector, apart};
use super::program::{Part, Program};
use outlive_machine::program::Cpu;

/// The addresses of a thread's structure and stack in its private memory.
const LOCAL: u64 = 0;
const STACK: u64 = 1 << 20;

impl Program {
    /// Adds the pull of a whole cell on a body.
    pub fn walk(
        &self,
        cpu: &mut Cpu<'_>,
        cell: u64,
        (body, place): (u64, Vector),
        side: f64,
        depth: u64,
        pull: &mut Pull,
    ) {
        let frame = STACK + depth * 64;
        for word in 0..6 {
            cpu.private_store(frame + word * 8);
        }
        cpu.compute(12);
        let mut asked = [None; 8];
        for (asked, part) in asked.iter_mut().zip(self.parts(cpu, cell)) {
            *asked = Some((part, self.ask_centre(cpu, part)));
        }
        // Loaded together; a processor runs that far ahead. Cells below may need many more loads.
        let all =
            asked.map(|node| node.map(|(part, asked)| (part, asked.map(|value| cpu.value(value)))));
        for (part, [x, y, z, mass]) in all.into_iter().flatten() {
            let far = apart(place, [x, y, z]);
            private(cpu, 3, 4);
            cpu.compute(10);
            let openness = self.barnes.openness;
            match part {
                Part::Body(other) if other == body => {}
                Part::Cell(below) if side * side / 4.0 >= openness * openness * far.1 => {
                    self.walk(cpu, below, (body, place), side / 2.0, depth + 1, pull);
                }
                _ => {
                    pull.add(mass, far, self.barnes.softening);
                    private(cpu, 8, 4);
                    cpu.compute(14);
                }
            }
        }
        for word in 0..6 {
            cpu.private_load(frame + word * 8);
        }
    }
}

/// Reads and writes these numbers of words of the thread's structure.
fn private(cpu: &mut Cpu<'_>, loads: u64, stores: u64) {
    for word in 0..loads {
        cpu.private_load(LOCAL + word * 8);
    }
    for word in 0..stores {
        cpu.private_store(LOCAL + word * 8);
    }
}
